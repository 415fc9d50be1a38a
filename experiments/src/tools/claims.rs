//! Published claims about attention, each with the runs that test it again and the rule that decides.
//!
//! The ledger is a folder of TOML files: one for each claim ([`Claim`]), with its sentence, its source, what was published and its tests; one for each block of
//! runs that claims share ([`Block`]); and the features that some of them wait for. What a test needs and which result decides is written there before the first
//! run. Verdicts are computed from the records of finished runs ([`verdict`](Verdicts::compute)) and stand in no file of the ledger.
//!
//! Rules. A *difference* is reproduced if it is significant in the claimed direction and at least as large as the smallest that matters; it is contradicted if
//! its 99 % interval lies wholly below that. *No loss* is reproduced if a difference beyond the margin is rejected, and contradicted if the 99 % interval lies
//! wholly beyond. A *cost* is decided by which side of the named ratio its 95 % interval lies on. With eight seeds or more, tests are paired t-tests over seeds.
//! With fewer there are two locks: a test over items, and the same sign (or a narrow range) in every seed. p-values are adjusted by Holm's procedure over all
//! primary tests of the ledger; while some of them have not run, verdicts are provisional and take the strictest step of it.

mod block;
mod card;
mod claim;
mod cost;
mod error;
mod evidence;
mod ledger;
mod pilot;
mod pitfalls;
mod plan;
mod programs;
mod report;
mod running;
mod runs;
mod smoke;
mod sum;
mod verdict;

pub use self::block::{Block, Part};
pub use self::claim::{
    Claim, Cost, Described, Difference, Failures, Measured, NamedSeries, NoLoss, Pitfall, Published, Side, Test, Timing,
};
pub use self::error::LedgerError;
pub use self::evidence::{ContenderScores, Evidence};
pub use self::ledger::Ledger;
pub use self::pilot::pilot;
pub use self::plan::PlannedBlock;
pub use self::report::ClaimsReport;
pub use self::running::{RunOptions, run};
pub use self::runs::Reason;
pub use self::smoke::{Check, Smoke, SmokeRun};
pub use self::sum::{Placed, Sum, Term};
pub use self::verdict::{ClaimVerdict, Decision, DescribedValue, TestVerdict, Verdict, Verdicts};

#[cfg(test)]
mod tests;
