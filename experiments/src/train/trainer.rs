//! A trainer: the task, its configuration, and the folder of the run.

use std::path::{Path, PathBuf};

use heedful_random::RandomKey;

use super::checkpoint::{Checkpoint, CheckpointFolder};
use super::config::TrainingConfig;
use super::error::TrainingError;
use super::parallel::{Ranks, Topic};
use super::progress::{StepCount, Watcher};
use super::task::Task;
use heedful_host::interrupt::Interrupt;

static ALONE: Ranks = Ranks::alone();

/// Trains a model on a task in one run folder.
///
/// The folder receives `log.jsonl`, the same for TensorBoard, and `checkpoint/`. All randomness follows from the key and from the numbers of step, epoch and
/// batch, so a run that is stopped and resumed gives the weights of one that was not, bit for bit where the backend itself is deterministic.
pub struct Trainer<'a, T: Task> {
    pub(super) task: &'a T,
    pub(super) config: &'a TrainingConfig,
    pub(super) folder: PathBuf,
    pub(super) key: RandomKey,
    pub(super) checkpoints: CheckpointFolder,
    resume: bool,
    pub(super) watcher: Watcher,
    pub(super) description: Option<String>,
    pub(super) interrupt: Interrupt,
    pub(super) count: StepCount,
    pub(super) ranks: &'a Ranks,
}

impl<'a, T: Task> Trainer<'a, T> {
    /// A trainer for the run in `folder`. `digest` is the SHA-256 of the whole configuration, in hexadecimal; a checkpoint written under another one is
    /// refused.
    pub fn new(task: &'a T, config: &'a TrainingConfig, folder: &Path, digest: &str, key: RandomKey) -> Self {
        Self {
            task,
            config,
            folder: folder.to_path_buf(),
            key,
            checkpoints: CheckpointFolder::new(folder, digest),
            resume: false,
            watcher: Watcher::default(),
            description: None,
            interrupt: Interrupt::new(),
            count: StepCount::of(config.steps),
            ranks: &ALONE,
        }
    }

    /// Whether to continue from the latest checkpoint. Without one the run starts afresh. If false, earlier checkpoints and logs in the folder are
    /// deleted.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Who watches the run.
    pub fn watcher(mut self, watcher: Watcher) -> Self {
        self.watcher = watcher;
        self
    }

    /// What the run is, in Markdown, for those who look at its curves in TensorBoard.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// The flag that stops the run.
    pub fn interrupt(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// Where steps are counted.
    pub(crate) fn count(mut self, count: StepCount) -> Self {
        self.count = count;
        self
    }

    /// The processes that train the model together. The first of them calls [`run`](Self::run), the others call [`follow`](Self::follow).
    pub fn ranks(mut self, ranks: &'a Ranks) -> Self {
        self.ranks = ranks;
        self
    }

    #[cfg(test)]
    pub(crate) fn checkpoints(mut self, checkpoints: CheckpointFolder) -> Self {
        self.checkpoints = checkpoints;
        self
    }

    /// The checkpoint to go on from, which the first rank reads for all.
    pub(super) fn latest(&self) -> Result<Option<Checkpoint>, TrainingError> {
        let step = if self.resume && self.ranks.is_first() { self.checkpoints.latest()? } else { None };
        let own = step.map(|step| self.checkpoints.load(step)).transpose()?;
        if self.ranks.size() == 1 {
            return Ok(own);
        }
        let parts = own.as_ref().map_or_else(Vec::new, Checkpoint::to_parts);
        Ok(Checkpoint::from_parts(self.ranks.parts_of_first(Topic::Checkpoint, &parts)?))
    }

    pub(super) fn epoch_key(&self, epoch: u64) -> RandomKey {
        self.key.named("order").numbered(epoch)
    }

    /// The batches of an epoch, of which there is at least one.
    pub(super) fn order(&self, epoch: u64) -> Result<Vec<Vec<usize>>, TrainingError> {
        let order = self.task.epoch(epoch, &self.epoch_key(epoch));
        if order.is_empty() { Err(TrainingError::EmptyEpoch { epoch }) } else { Ok(order) }
    }
}
