//! heedful beside its peers: PyTorch, local-attention, reformer-pytorch.
//!
//! What is compared runs in two processes, one of heedful and one of Python (benches/peers), which speak the same [`protocol`]. A third, which computes
//! nothing, has them run one contender after the other, round after round, and compares the times of a round with each other: whatever else happens on
//! the machine meets all contenders alike. Peak memory is the growth of a process of its own, read from outside in the same way for both.
//!
//! [`plan`] says what is compared, [`work`] is one contender, [`side`] one of the processes, [`measure`] takes the times, [`statistics`](crate::statistics) are
//! those of the results, [`target`] holds what is to be reached, [`report`] writes the tables, and
//! [`comparison`] goes from the one to the other.

pub mod comparison;
pub mod measure;
pub mod options;
pub mod plan;
pub mod protocol;
pub mod report;
pub mod side;
pub mod target;
pub mod work;
