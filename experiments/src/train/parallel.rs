//! Training of one model by several processes, which compute the micro-batches of each step in turn.
//!
//! Each process has a rank, from 0 on, and computes every `size`-th micro-batch. Their gradients are summed in the order of the micro-batches, so that the
//! weights have the same bits whatever the number of ranks, and each makes the same step with its own copy of the weights. The first rank alone evaluates, writes
//! and decides when to stop. Only micro-batches are divided: each rank holds all weights and all of the optimiser's state.
//!
//! Everything is sent by one operation, [`Collective::exchange`], in which all ranks take part. Each message says what it is about, and a rank that fails sends
//! its reason instead of what the others wait for. So no rank waits for one that does something else, or that has given up.

mod gradients;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;
#[cfg(test)]
pub(super) mod tests;

use std::fmt::Debug;
use std::sync::OnceLock;

use burn::module::Module;
use heedful_host::checksum::sha256_hex;
use heedful_host::exit::{FAILURE_EXIT, USAGE_EXIT};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::loss::LossNumbers;
use super::task::Task;

pub(super) use self::gradients::GradientSum;

/// Processes that can send each other messages.
pub trait Collective: Debug + Send + Sync {
    /// The number of this process, from 0 to `size - 1`.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Sends one message to each rank, this one too, and returns those that the ranks have sent to this one, both in the order of the ranks. It returns when all
    /// ranks have called it.
    fn exchange(&self, messages: Vec<Vec<u8>>) -> Vec<Vec<u8>>;
}

/// Why processes cannot go on together.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankError {
    /// Another rank has failed.
    #[error("rank {rank}: {reason}")]
    Failed {
        /// Which.
        rank: usize,
        /// Its message.
        reason: String,
        /// The exit code that it ends with.
        exit: u8,
    },
    /// Another rank is elsewhere in the program.
    #[error("rank {rank} sends {found:?} where rank {own} waits for {expected:?}; this is an error of the program: report it")]
    OutOfStep {
        /// This rank.
        own: usize,
        /// The other one.
        rank: usize,
        /// What this one waits for.
        expected: Topic,
        /// What the other one sends; none if that is unknown.
        found: Option<Topic>,
    },
    /// Ranks differ in what they must have in common.
    #[error(
        "rank {rank} differs from rank 0 in its {what}: start all ranks by one command, of one program, with the same files, on machines of one kind"
    )]
    Differ {
        /// The first that differs from rank 0.
        rank: usize,
        /// In what it does.
        what: &'static str,
    },
    /// Batches cannot be computed apart.
    #[error("--data-parallel cannot divide the batches among {size} ranks, since each needs what the one before left: {reason}")]
    Carries {
        /// How many ranks there are.
        size: usize,
        /// Why, and the remedy.
        reason: &'static str,
    },
    /// There are more ranks than micro-batches.
    #[error(
        "--data-parallel has {size} ranks, and training.accumulate = {accumulate} micro-batches to divide among them; give --set training.accumulate={size}, or \
         another multiple of {size}"
    )]
    TooMany {
        /// How many ranks there are.
        size: usize,
        /// Micro-batches of a step.
        accumulate: usize,
    },
}

impl RankError {
    /// Whether the command is invalid (exit code 2), rather than failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Failed { exit, .. } => *exit == USAGE_EXIT,
            Self::Carries { .. } | Self::TooMany { .. } => true,
            Self::OutOfStep { .. } | Self::Differ { .. } => false,
        }
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Topic {
    /// The reason of a rank that fails.
    Failure,
    /// What all must have in common.
    Agreement,
    /// What the first rank asks the others to do.
    Word,
    /// The checkpoint to go on from.
    Checkpoint,
    /// Whether to stop.
    Stop,
    /// Gradients of micro-batches.
    Gradients,
    /// Sums of gradients.
    Sums,
    /// Losses of micro-batches.
    Losses,
    /// Whether the time is up.
    Time,
    /// Scores of the model.
    Scores,
}

impl Topic {
    fn of(letter: u8) -> Option<Self> {
        use Topic::*;
        [Failure, Agreement, Word, Checkpoint, Stop, Gradients, Sums, Losses, Time, Scores].into_iter().find(|topic| *topic as u8 == letter)
    }
}

/// What a rank says when it fails.
#[derive(Serialize, Deserialize)]
struct Failure {
    reason: String,
    exit: u8,
}

/// The processes that train together, as one of them sees them.
#[derive(Debug)]
pub struct Ranks {
    /// None where there is only one process, which sends nothing.
    collective: Option<Box<dyn Collective>>,
    /// The exit code of a rank that has failed. Nothing is sent any more then.
    failed: OnceLock<u8>,
}

impl Default for Ranks {
    fn default() -> Self {
        Self::alone()
    }
}

impl Ranks {
    /// This process alone.
    pub const fn alone() -> Self {
        Self { collective: None, failed: OnceLock::new() }
    }

    /// Processes that `collective` connects.
    pub fn of(collective: Box<dyn Collective>) -> Self {
        let collective = Some(collective).filter(|collective| collective.size() > 1);
        Self { collective, ..Self::alone() }
    }

    /// The number of this process.
    pub fn rank(&self) -> usize {
        self.collective.as_ref().map_or(0, |collective| collective.rank())
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.collective.as_ref().map_or(1, |collective| collective.size())
    }

    /// Whether this process is the one that evaluates, writes and decides.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Checks whether they can divide the micro-batches of a task.
    ///
    /// # Errors
    /// [`RankError::Carries`] or [`RankError::TooMany`].
    pub fn check<T: Task>(&self, task: &T, accumulate: usize) -> Result<(), RankError> {
        let size = self.size();
        if size == 1 {
            return Ok(());
        }
        if let Some(reason) = task.carries() {
            return Err(RankError::Carries { size, reason });
        }
        if accumulate < size { Err(RankError::TooMany { size, accumulate }) } else { Ok(()) }
    }

    /// Checks that all ranks have the same of something, given by its bytes.
    ///
    /// # Errors
    /// [`RankError::Differ`] on every rank.
    pub fn agree(&self, what: &'static str, bytes: impl FnOnce() -> Vec<u8>) -> Result<(), RankError> {
        if self.size() == 1 {
            return Ok(());
        }
        let digests = self.gather(Topic::Agreement, sha256_hex(&bytes()).into_bytes())?;
        match digests.iter().position(|digest| *digest != digests[0]) {
            Some(rank) => Err(RankError::Differ { rank, what }),
            None => Ok(()),
        }
    }

    /// Whether any rank says yes.
    ///
    /// # Errors
    /// Any [`RankError`].
    pub fn any(&self, topic: Topic, own: bool) -> Result<bool, RankError> {
        Ok(self.gather(topic, vec![u8::from(own)])?.iter().any(|answer| answer == &[1]))
    }

    /// What the first rank computes, on every rank. The others wait for it.
    ///
    /// # Errors
    /// Any [`RankError`].
    ///
    /// # Panics
    /// If the value cannot be written as JSON.
    pub fn of_first<V: Serialize + DeserializeOwned>(&self, topic: Topic, compute: impl FnOnce() -> V) -> Result<V, RankError> {
        let own = self.is_first().then(compute);
        if self.size() == 1 {
            return Ok(own.expect("the only rank is the first"));
        }
        let message = own.as_ref().map_or(Vec::new(), |own| serde_json::to_vec(own).expect("JSON can hold it"));
        let told = self.gather(topic, message)?.swap_remove(0);
        Ok(own.unwrap_or_else(|| serde_json::from_slice(&told).expect("the same program has written it")))
    }

    /// The first rank's parts of something, on every rank; those of other ranks are left out.
    pub(super) fn parts_of_first(&self, topic: Topic, own: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, RankError> {
        let message = if self.is_first() { packed(own) } else { Vec::new() };
        Ok(unpacked(&self.gather(topic, message)?.swap_remove(0)))
    }

    /// Losses and numbers of units of all micro-batches, of which every rank has computed its own: the losses in the order of the micro-batches, and the sum of
    /// the units.
    pub(super) fn totals(&self, own: Vec<LossNumbers>, units: usize, count: usize) -> Result<(Vec<LossNumbers>, usize), RankError> {
        if self.size() == 1 {
            return Ok((own, units));
        }
        let message = serde_json::to_vec(&(units, own)).expect("JSON can hold it");
        let read = |message: &Vec<u8>| serde_json::from_slice(message).expect("the same program has written it");
        let told: Vec<(usize, Vec<LossNumbers>)> = self.gather(Topic::Losses, message)?.iter().map(read).collect();
        let units = told.iter().map(|(units, _)| units).sum();
        let loss = |number: usize| told[number % self.size()].1[number / self.size()].clone();
        Ok(((0..count).map(loss).collect(), units))
    }

    /// Tells the other ranks that this one fails, and why. Afterwards nothing is sent any more.
    pub fn fail(&self, reason: impl Into<String>, exit: u8) {
        if let Some(collective) = &self.collective
            && self.failed.set(exit).is_ok()
        {
            let mut message = serde_json::to_vec(&Failure { reason: reason.into(), exit }).expect("JSON can hold it");
            message.push(Topic::Failure as u8);
            collective.exchange(vec![message; self.size()]);
        }
    }

    /// The exit code of the rank that has failed, if one has.
    pub fn failed_with(&self) -> Option<u8> {
        self.failed.get().copied()
    }

    fn gather(&self, topic: Topic, message: Vec<u8>) -> Result<Vec<Vec<u8>>, RankError> {
        self.exchange(topic, vec![message; self.size()])
    }

    /// Sends messages of one topic.
    fn exchange(&self, topic: Topic, mut messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, RankError> {
        let Some(collective) = &self.collective else { return Ok(messages) };
        assert!(self.failed.get().is_none(), "a rank has failed, and {topic:?} is still to be sent");
        messages.iter_mut().for_each(|message| message.push(topic as u8));
        let mut told = collective.exchange(messages);
        let topics: Vec<_> = told.iter_mut().map(|message| message.pop().and_then(Topic::of)).collect();
        if let Some(rank) = topics.iter().position(|topic| *topic == Some(Topic::Failure)) {
            let Failure { reason, exit } = serde_json::from_slice(&told[rank]).expect("the same program has written it");
            let _ = self.failed.set(exit);
            return Err(RankError::Failed { rank, reason, exit });
        }
        if let Some(rank) = topics.iter().position(|found| *found != Some(topic)) {
            // The other rank sees the same, and sends nothing either.
            let _ = self.failed.set(FAILURE_EXIT);
            return Err(RankError::OutOfStep { own: self.rank(), rank, expected: topic, found: topics[rank] });
        }
        Ok(told)
    }

    /// Checks that all ranks have the same weights.
    pub(super) fn agree_on_weights<M: Module>(&self, model: &M) -> Result<(), RankError> {
        self.agree("weights", || heedful_models::training::weights::to_bytes(model))
    }
}

/// Several parts in one message.
fn packed(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut message = Vec::with_capacity(parts.iter().map(|part| part.len() + size_of::<u64>()).sum::<usize>() + 1);
    for part in parts {
        message.extend_from_slice(&(part.len() as u64).to_le_bytes());
        message.extend_from_slice(part);
    }
    message
}

fn unpacked(mut message: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = message.split_first_chunk() {
        let (part, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        parts.push(part.to_vec());
        message = rest;
    }
    parts
}
