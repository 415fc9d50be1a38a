//! Learning the targets of sequences.

use burn::tensor::{Int, Tensor};
use heedful_data::generate::sequences::{ScoredSequence, SequenceTask};
use heedful_models::block::Hidden;
use heedful_runs::record::{LEARNING_RATE, RATES_NEAR_BEST, RATES_TRIED, STATE_BYTES};
use rand::RngExt;
use rand::seq::SliceRandom;

use super::SequenceSet;
use super::rebuilding::Reader;
use crate::tasks::answers::most_frequent;
use crate::tasks::prelude::*;
use crate::tasks::scoring::{Tally, are_right, integers, of_items, score_batches};

/// The levels that have columns of their own: those of the defaults, and such as papers report.
const LEVELS: [&str; 20] = [
    "N=64, n=4",
    "N=64, n=8",
    "N=64, n=16",
    "N=128, n=8",
    "N=128, n=16",
    "N=128, n=32",
    "N=256, n=16",
    "N=256, n=32",
    "N=256, n=64",
    "N=512, n=64",
    "N=512, n=128",
    "N=1024, n=256",
    "N=16",
    "N=32",
    "N=40",
    "N=64",
    "N=128",
    "N=256",
    "N=512",
    "N=1024",
];

pub(super) fn columns() -> Vec<MetricColumn> {
    let accuracy = |name: &str, label: &str, of: &str| MetricColumn::new(name, label).percent().higher_is_better().defined_as(of);
    let mut columns = vec![
        accuracy("token accuracy", "tokens", "of the tokens that are asked for, sequences of the levels of training"),
        accuracy("sequence accuracy", "sequences", "of the sequences of which all tokens are right"),
        accuracy("class accuracy", "classes", "mean over the tokens that are asked for of the accuracy where they are"),
        accuracy("longer token accuracy", "longer: tokens", "the same of sequences that are longer than those of training"),
        accuracy("longer sequence accuracy", "longer: sequences", "the same of sequences that are longer than those of training"),
    ];
    columns.push(
        MetricColumn::new(STATE_BYTES, "state (bytes)")
            .digits(0)
            .defined_as("what a sequence of training leaves for the tokens after it to be read one by one, in all layers"),
    );
    columns.push(MetricColumn::new(LEARNING_RATE, "best rate").digits(4).defined_as("the learning rate that was kept"));
    columns.push(MetricColumn::new(RATES_TRIED, "rates tried").digits(0).defined_as("learning rates that the run tried"));
    let near = MetricColumn::new(RATES_NEAR_BEST, "rates near best").digits(0);
    columns.push(near.defined_as("of them those whose validation accuracy is at least nine tenths of the best"));
    columns.extend(LEVELS.map(|level| accuracy(&of_level(level), level, "token accuracy of one level, N tokens with n pairs")));
    columns
}

fn of_level(level: &str) -> String {
    format!("token accuracy, {level}")
}

/// Tokens as a batch of one row.
pub(super) fn row(tokens: &[u32], device: &Device) -> Tensor<2, Int> {
    integers(tokens.iter().map(|&token| token as i32).collect(), [1, tokens.len()], device)
}

/// Training a model on sequences.
#[derive(Clone, Copy, Debug)]
pub struct SequenceLearning<'a> {
    pub(super) set: &'a SequenceSet,
    /// Sequences of a batch.
    pub(super) batch: usize,
}

/// Sequences, padded on the right, and what is asked for.
#[derive(Debug)]
pub struct SequenceBatch {
    inputs: Vec<i32>,
    rows: usize,
    /// Positions, counted row after row.
    at: Vec<i32>,
    targets: Vec<i32>,
    /// How many targets each row has.
    asked: Vec<usize>,
}

/// What was told right.
#[derive(Debug, Default)]
struct Told {
    sequences: Tally,
    /// Of each token of the vocabulary, how often it is asked for and how often it was told right.
    classes: Vec<[usize; 2]>,
}

impl Told {
    /// Nothing yet, of so many tokens.
    fn of_vocabulary(tokens: usize) -> Self {
        Self { sequences: Tally::default(), classes: vec![[0; 2]; tokens] }
    }

    /// Adds sequences that ask for so many tokens each.
    fn add(&mut self, targets: impl Iterator<Item = usize>, right: &[bool], asked: &[usize]) {
        for (target, &is_right) in targets.zip(right) {
            let [asked, answered] = &mut self.classes[target];
            *asked += 1;
            *answered += usize::from(is_right);
        }
        self.sequences.0.extend(of_items(right, asked));
    }

    /// The mean over the tokens that were asked for.
    fn class_accuracy(&self) -> f64 {
        let asked: Vec<f64> =
            self.classes.iter().filter(|[asked, _]| *asked > 0).map(|&[asked, right]| right as f64 / asked as f64).collect();
        asked.iter().sum::<f64>() / asked.len() as f64
    }

    fn join(&mut self, other: &Self) {
        self.sequences.0.extend(&other.sequences.0);
        self.classes.resize(other.classes.len(), [0; 2]);
        for (own, [asked, right]) in self.classes.iter_mut().zip(&other.classes) {
            *own = [own[0] + asked, own[1] + right];
        }
    }
}

/// What tells a sequence apart from others.
fn identity(sequence: &ScoredSequence) -> Vec<i64> {
    let targets = sequence.targets.iter().flat_map(|&(at, token)| [at as i64, i64::from(token)]);
    sequence.tokens.iter().map(|&token| i64::from(token)).chain(targets).collect()
}

impl SequenceLearning<'_> {
    fn assemble<'s>(sequences: impl Iterator<Item = &'s ScoredSequence> + Clone) -> SequenceBatch {
        let width = sequences.clone().map(|sequence| sequence.tokens.len()).max().unwrap_or(0);
        let mut batch = SequenceBatch { inputs: Vec::new(), rows: 0, at: Vec::new(), targets: Vec::new(), asked: Vec::new() };
        for ScoredSequence { tokens, targets } in sequences {
            batch.inputs.extend(tokens.iter().map(|&token| token as i32));
            // No one sees what stands after a sequence.
            batch.inputs.resize((batch.rows + 1) * width, 0);
            batch.at.extend(targets.iter().map(|&(at, _)| (batch.rows * width + at) as i32));
            batch.targets.extend(targets.iter().map(|&(_, token)| token as i32));
            batch.asked.push(targets.len());
            batch.rows += 1;
        }
        batch
    }

    /// Hidden states, of those what the tokens that are asked for are told from, and these tokens.
    fn answering(model: &Reader, batch: &SequenceBatch, key: Option<RandomKey>, probe: &mut Probe) -> (Hidden, Tensor<2>, Tensor<1, Int>) {
        let device = model.device();
        let width = batch.inputs.len() / batch.rows;
        let hidden = model.language.hidden(integers(batch.inputs.clone(), [batch.rows, width], &device), &[], key, probe);
        let list = |values: &[i32]| integers(values.to_vec(), [values.len()], &device);
        let answering = model.answering(hidden.states.clone(), list(&batch.at));
        (hidden, answering, list(&batch.targets))
    }

    /// What a model tells of sequences; `None` if the interrupt was raised meanwhile.
    fn told(&self, model: &Reader, sequences: &[ScoredSequence], interrupt: &Interrupt) -> Option<Told> {
        let mut told = Told::of_vocabulary(self.set.task.vocabulary());
        score_batches(("scoring", sequences.len()), sequences.chunks(self.batch), interrupt, |sequences| {
            let batch = Self::assemble(sequences.iter());
            let (_, answering, targets) = Self::answering(model, &batch, None, &mut Probe::off());
            let right = are_right(model.logits(answering), targets);
            told.add(batch.targets.iter().map(|&target| target as usize), &right, &batch.asked);
            sequences.len()
        })?;
        Some(told)
    }

    /// The scores of a split by what is told right of its sequences.
    fn scores(&self, split: Split, mut told_of: impl FnMut(&[ScoredSequence]) -> Option<Told>) -> Option<Scores> {
        let mut scores = Scores::default();
        if split == Split::Valid {
            let told = told_of(&self.set.valid)?;
            let signature = format!("validation set, {} sequences", self.set.valid.len());
            told.sequences.score(&mut scores, "", [signature.clone(), signature]);
            return Some(scores);
        }
        let mut levels = Vec::with_capacity(self.set.test.len());
        for (name, longer, sequences) in &self.set.test {
            let told = told_of(sequences)?;
            if self.set.test.len() > 1 {
                scores.push(&of_level(name), told.sequences.token_accuracy(), format!("test set, {} sequences of {name}", sequences.len()));
            }
            levels.push((*longer, told, sequences));
        }
        for (prefix, set, longer) in [("", "test set", false), ("longer ", "longer test set", true)] {
            let of_set = || levels.iter().filter(|level| level.0 == longer);
            if of_set().next().is_none() {
                continue;
            }
            let mut told = Told::default();
            of_set().for_each(|(_, other, _)| told.join(other));
            let signature = format!("{set}, {} sequences", told.sequences.0.len());
            let of_tokens = format!("{signature}, micro-average over positions");
            told.sequences.score(&mut scores, prefix, [of_tokens, signature.clone()]);
            if !longer {
                scores.push("class accuracy", told.class_accuracy(), format!("{signature}, macro-average over tokens"));
            }
            let identities = of_set().flat_map(|level| level.2).map(identity);
            told.sequences.score_items(&mut scores, prefix, (set, "sequences"), identities);
        }
        Some(scores)
    }

    /// What chance gets right: the token that is most often asked for in the validation set, and where values are recalled one of those of the sequence.
    pub(super) fn trivial_baselines(&self) -> Vec<TrivialBaseline> {
        let asked = self.set.valid.iter().flat_map(|sequence| &sequence.targets);
        let most = most_frequent(asked.map(|&(_, token)| token));
        let mut baselines = vec![
            self.told_by(TrivialBaseline::new("chance", "always the token that is most often asked for in the validation set."), |_| most),
        ];
        if let SequenceTask::Mqar(_) = self.set.task {
            let mut rng = self.set.key.named("chance").rng();
            let what = "a value of the sequence, drawn from those that it asks for.";
            baselines.push(self.told_by(TrivialBaseline::new("any value", what), |sequence| {
                let drawn = rng.random_range(0..sequence.targets.len());
                Some(sequence.targets[drawn].1)
            }));
        }
        baselines
    }

    /// The baseline with the scores of what `tell` says wherever a sequence asks for a token.
    fn told_by(&self, baseline: TrivialBaseline, mut tell: impl FnMut(&ScoredSequence) -> Option<u32>) -> TrivialBaseline {
        let mut told_of = |sequences: &[ScoredSequence]| {
            let mut told = Told::of_vocabulary(self.set.task.vocabulary());
            for sequence in sequences {
                let right: Vec<bool> = sequence.targets.iter().map(|&(_, token)| tell(sequence) == Some(token)).collect();
                told.add(sequence.targets.iter().map(|&(_, token)| token as usize), &right, &[right.len()]);
            }
            Some(told)
        };
        let [valid, test] =
            [Split::Valid, Split::Test].map(|split| self.scores(split, &mut told_of).map_or_else(Vec::new, |scores| scores.metrics));
        baseline.scores(test).devs(valid)
    }
}

impl Task for SequenceLearning<'_> {
    type Model = Reader;
    type Batch = SequenceBatch;
    type Carried = ();

    /// A batch is of one level, as losses of sequences that ask for more tokens would otherwise outweigh the others.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let levels = self.set.trained();
        let of_level = |level: usize| {
            let count = (self.set.train + levels - 1 - level) / levels;
            let batches = fixed_size_batches(count, self.batch, &key.numbered(level as u64));
            batches.into_iter().map(move |batch| batch.into_iter().map(|index| index * levels + level).collect())
        };
        let mut batches: Vec<Vec<usize>> = (0..levels).flat_map(of_level).collect();
        batches.shuffle(&mut key.named("levels").rng());
        batches
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> SequenceBatch {
        let sequences: Vec<ScoredSequence> = items.iter().map(|&item| self.set.training(item)).collect();
        Self::assemble(sequences.iter())
    }

    fn units(&self, batch: &SequenceBatch) -> usize {
        batch.targets.len()
    }

    fn loss(&self, model: &Reader, batch: &SequenceBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (hidden, answering, targets) = Self::answering(model, batch, Some(pass.key), probe);
        TrainingLoss::new(model.loss(answering, targets), &hidden.losses, batch.targets.len())
    }

    fn evaluate(&self, model: &Reader, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        self.scores(split, |sequences| self.told(model, sequences, interrupt))
    }

    fn selection(&self) -> Selection {
        Selection::highest("token accuracy")
    }
}
