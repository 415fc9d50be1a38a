//! heedful beside its peers: PyTorch and packages on it.
//!
//! Two processes compute, one of heedful and one of Python (benches/peers), and speak the same [`protocol`]. A third process, which computes nothing, makes
//! them run one candidate after the other, round after round, and compares the times within a round: other load on the machine affects all candidates alike.
//! Each of their threads has a core of its own where there are enough of them ([`cores`]). Peak memory is the growth of a separate process, read from outside in the
//! same way for both.
//!
//! [`plan`] says what is compared, [`work`] is one candidate, [`side`] one of the processes, [`measure`] takes the times, [`statistics`](crate::statistics) are
//! those of the results, [`target`] holds what is to be reached, [`report`] writes the tables, and
//! [`comparison`] goes from the one to the other.

pub mod comparison;
pub mod cores;
pub mod measure;
pub mod options;
pub mod outcome;
pub mod plan;
pub mod protocol;
pub mod report;
pub mod side;
pub mod target;
pub mod work;
