//! Learning what sequences ask for.

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::contract::probe::Probe;
use heedful_attention::tensors::read::read;
use heedful_data::generate::sequences::{ScoredSequence, SequenceTask};
use heedful_host::interrupt::Interrupt;
use heedful_metrics::{Combination, ItemScore, ItemTable, MetricColumn};
use heedful_models::block::Hidden;
use heedful_random::RandomKey;
use heedful_runs::record::{LEARNING_RATE, RATES_NEAR_BEST, RATES_TRIED, STATE_BYTES};
use heedful_runs::trivial::TrivialBaseline;
use rand::RngExt;
use rand::seq::SliceRandom;

use super::SequenceSet;
use super::rebuilding::Reader;
use crate::session::comparison::scoring_bar;
use crate::tasks::answers::most_frequent;
use crate::train::batch::fixed_size_batches;
use crate::train::{Pass, Scores, Selection, Split, Task, TrainingLoss};

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
    let ids: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
    Tensor::from_data(TensorData::new(ids, [1, tokens.len()]), device)
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
    /// Of each sequence, the tokens that were asked for and the right ones of them.
    sequences: Vec<[usize; 2]>,
    /// The same of each token of the vocabulary.
    classes: Vec<[usize; 2]>,
}

impl Told {
    fn token_accuracy(&self) -> f64 {
        let sum = |index: usize| self.sequences.iter().map(|counts| counts[index]).sum::<usize>();
        sum(1) as f64 / sum(0) as f64
    }

    fn sequence_accuracy(&self) -> f64 {
        self.sequences.iter().filter(|[asked, right]| asked == right).count() as f64 / self.sequences.len() as f64
    }

    /// The mean over the tokens that were asked for.
    fn class_accuracy(&self) -> f64 {
        let asked: Vec<f64> =
            self.classes.iter().filter(|[asked, _]| *asked > 0).map(|&[asked, right]| right as f64 / asked as f64).collect();
        asked.iter().sum::<f64>() / asked.len() as f64
    }

    fn join(&mut self, other: &Self) {
        self.sequences.extend(&other.sequences);
        self.classes.resize(other.classes.len(), [0; 2]);
        for (own, [asked, right]) in self.classes.iter_mut().zip(&other.classes) {
            *own = [own[0] + asked, own[1] + right];
        }
    }

    fn items<'s>(&self, set: &str, sequences: impl Iterator<Item = &'s ScoredSequence>) -> ItemTable {
        let mut table = ItemTable::new(set, &["right", "right tokens", "tokens"]);
        for (sequence, &[asked, right]) in sequences.zip(&self.sequences) {
            let targets = sequence.targets.iter().flat_map(|&(at, token)| [at as i64, i64::from(token)]);
            let identity = sequence.tokens.iter().map(|&token| i64::from(token)).chain(targets);
            table.push_tokens(identity, &[f64::from(u8::from(right == asked)), right as f64, asked as f64]);
        }
        table
    }
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
        let inputs = Tensor::<2, Int>::from_data(TensorData::new(batch.inputs.clone(), [batch.rows, width]), &device);
        let hidden = model.language.hidden(inputs, &[], key, probe);
        let integers = |values: &[i32]| Tensor::<1, Int>::from_data(TensorData::new(values.to_vec(), [values.len()]), &device);
        let answering = model.answering(hidden.states.clone(), integers(&batch.at));
        (hidden, answering, integers(&batch.targets))
    }

    /// What a model tells of sequences; `None` if the interrupt was raised meanwhile.
    fn told(&self, model: &Reader, sequences: &[ScoredSequence], interrupt: &Interrupt) -> Option<Told> {
        let mut told = Told { sequences: Vec::new(), classes: vec![[0; 2]; self.set.task.vocabulary()] };
        let bar = scoring_bar("scoring", sequences.len());
        for sequences in sequences.chunks(self.batch) {
            if interrupt.is_raised() {
                return None;
            }
            let batch = Self::assemble(sequences.iter());
            let (_, answering, targets) = Self::answering(model, &batch, None, &mut Probe::off());
            let chosen = model.logits(answering).argmax(1).squeeze_dim::<1>(1);
            let right: Vec<bool> = read(chosen.equal(targets)).iter::<bool>().collect();
            for (&target, &right) in batch.targets.iter().zip(&right) {
                let [asked, answered] = &mut told.classes[target as usize];
                *asked += 1;
                *answered += usize::from(right);
            }
            let mut rest = right.as_slice();
            for &asked in &batch.asked {
                let (row, after) = rest.split_at(asked);
                told.sequences.push([asked, row.iter().filter(|&&right| right).count()]);
                rest = after;
            }
            bar.inc(sequences.len() as u64);
        }
        bar.finish_and_clear();
        Some(told)
    }

    /// The scores of a split by what is told right of its sequences.
    fn scores(&self, split: Split, mut told_of: impl FnMut(&[ScoredSequence]) -> Option<Told>) -> Option<Scores> {
        let mut scores = Scores::default();
        if split == Split::Valid {
            let told = told_of(&self.set.valid)?;
            let signature = format!("validation set, {} sequences", self.set.valid.len());
            scores.push("token accuracy", told.token_accuracy(), signature.clone());
            scores.push("sequence accuracy", told.sequence_accuracy(), signature);
            return Some(scores);
        }
        let mut levels = Vec::with_capacity(self.set.test.len());
        for (name, longer, sequences) in &self.set.test {
            let told = told_of(sequences)?;
            if self.set.test.len() > 1 {
                scores.push(&of_level(name), told.token_accuracy(), format!("test set, {} sequences of {name}", sequences.len()));
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
            let signature = format!("{set}, {} sequences", told.sequences.len());
            let [tokens, sequences] = ["token", "sequence"].map(|of| format!("{prefix}{of} accuracy"));
            scores.push(&tokens, told.token_accuracy(), format!("{signature}, micro-average over positions"));
            scores.push(&sequences, told.sequence_accuracy(), signature.clone());
            scores.push_items(&tokens, ItemScore::new(set, "sequences", Combination::Ratio, &["right tokens", "tokens"]));
            scores.push_items(&sequences, ItemScore::new(set, "sequences", Combination::Mean, &["right"]));
            if !longer {
                scores.push("class accuracy", told.class_accuracy(), format!("{signature}, macro-average over tokens"));
            }
            scores.items.push(told.items(set, of_set().flat_map(|level| level.2)));
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
            let mut told = Told { sequences: Vec::new(), classes: vec![[0; 2]; self.set.task.vocabulary()] };
            for sequence in sequences {
                let mut counts = [0; 2];
                for &(_, token) in &sequence.targets {
                    let is_right = usize::from(tell(sequence) == Some(token));
                    let of_class = &mut told.classes[token as usize];
                    (counts, *of_class) = ([counts[0] + 1, counts[1] + is_right], [of_class[0] + 1, of_class[1] + is_right]);
                }
                told.sequences.push(counts);
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
