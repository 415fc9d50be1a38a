//! Learning the targets of vector sequences.

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::contract::Losses;
use heedful_attention::contract::probe::Observation;
use heedful_attention::tensors::read::read;
use heedful_data::generate::vectors::{VectorSequence, padded};
use heedful_models::architectures::recurrent::RecurrentNetwork;
use heedful_models::parts::loss::cross_entropy;

use super::VectorSet;
use crate::tasks::answers::most_frequent;
use crate::tasks::prelude::*;
use crate::tasks::scoring::{are_right, integers, of_items, score_batches};

const SEQUENCE_ACCURACY: &str = "sequence accuracy";
const ELEMENT_ACCURACY: &str = "element accuracy";
/// The mean number of steps that an element took, and the mean of steps and remainder, which training makes dear.
const STEPS: &str = "ponder steps";
const COST: &str = "ponder cost";

pub(super) fn columns() -> Vec<MetricColumn> {
    let accuracy = |name: &str, label: &str| MetricColumn::new(name, label).percent().higher_is_better();
    vec![
        accuracy(SEQUENCE_ACCURACY, "sequences").defined_as("of the sequences of which all answers are right"),
        accuracy(ELEMENT_ACCURACY, "elements").defined_as("of the elements at which something is asked"),
        MetricColumn::new(STEPS, "steps").digits(2).defined_as("of each element, those at which nothing is asked included"),
        MetricColumn::new(COST, "cost").digits(2).defined_as("the same with the remainder: what `network.halting.ponder_weight` weighs"),
    ]
}

/// Training a network on sequences.
#[derive(Clone, Copy, Debug)]
pub struct VectorLearning<'a> {
    pub(super) set: &'a VectorSet,
    /// Sequences of a batch.
    pub(super) batch: usize,
}

/// Sequences, padded on the right, and what is asked.
#[derive(Debug)]
pub struct VectorBatch {
    inputs: TensorData,
    lengths: Vec<usize>,
    /// Elements, counted row after row.
    at: Vec<i32>,
    /// The classes that are asked there, group after group.
    targets: Vec<i32>,
    /// Elements of each row at which something is asked.
    asked: Vec<usize>,
}

/// What was told of sequences.
#[derive(Debug, Default)]
struct Told {
    /// Of each sequence, the elements at which something is asked, the right ones of them, all elements, and their steps.
    sequences: Vec<[f64; 4]>,
    /// Sum of the costs of all elements, if they are known.
    cost: Option<f64>,
}

impl Told {
    fn ratio(&self, above: usize, below: usize) -> f64 {
        let sum = |column: usize| self.sequences.iter().map(|counts| counts[column]).sum::<f64>();
        sum(above) / sum(below)
    }

    /// The accuracies of sequences and of elements, by their names.
    fn accuracies(&self) -> [(String, f64); 2] {
        let sequences = self.sequences.iter().filter(|[asked, right, ..]| asked == right).count() as f64 / self.sequences.len() as f64;
        [(SEQUENCE_ACCURACY.to_owned(), sequences), (ELEMENT_ACCURACY.to_owned(), self.ratio(1, 0))]
    }
}

impl VectorLearning<'_> {
    fn assemble<'s>(&self, sequences: impl Iterator<Item = &'s VectorSequence> + Clone) -> VectorBatch {
        let (numbers, shape, lengths) = padded(sequences.clone(), self.set.task.inputs());
        let inputs = TensorData::new(numbers, shape);
        let width = lengths.iter().copied().max().unwrap_or(0);
        let mut batch = VectorBatch { inputs, lengths, at: Vec::new(), targets: Vec::new(), asked: Vec::new() };
        for (row, VectorSequence { targets, .. }) in sequences.enumerate() {
            batch.at.extend(targets.iter().map(|(at, _)| (row * width + at) as i32));
            batch.targets.extend(targets.iter().flat_map(|(_, classes)| classes).map(|&class| class as i32));
            batch.asked.push(targets.len());
        }
        batch
    }

    /// Logits `[P, classes]` of each group at each element at which something is asked, with the classes `[P]` that are right, and the losses of pondering.
    fn logits(&self, network: &RecurrentNetwork, batch: &VectorBatch, probe: &mut Probe) -> (Tensor<2>, Tensor<1, Int>, Losses) {
        let device = network.output.weight.device();
        let sequence = Tensor::<3>::from_data(batch.inputs.clone(), &device);
        let (outputs, losses) = network.forward_padded(sequence, &batch.lengths, probe);
        let [rows, length, width] = outputs.dims();
        let list = |values: &[i32]| integers(values.to_vec(), [values.len()], &device);
        let asked = outputs.reshape([rows * length, width]).select(0, list(&batch.at));
        let [groups, classes] = self.set.task.outputs();
        let count = batch.at.len() * groups;
        // One output tells two classes: its logistic function is the probability of the second.
        let logits = if classes == 2 {
            let asked = asked.reshape([count, 1]);
            Tensor::cat(vec![asked.zeros_like(), asked], 1)
        } else {
            asked.reshape([count, classes])
        };
        (logits, list(&batch.targets), losses)
    }

    /// Always the most frequent answer.
    pub(super) fn trivial_baseline(&self) -> TrivialBaseline {
        let most = most_frequent(self.set.valid.iter().flat_map(|sequence| &sequence.targets).map(|(_, answer)| answer));
        let accuracies = |sequences: &[VectorSequence]| {
            let count = |VectorSequence { targets, .. }: &VectorSequence| {
                let right = targets.iter().filter(|(_, answer)| most == Some(answer)).count();
                [targets.len() as f64, right as f64, 0.0, 0.0]
            };
            Told { sequences: sequences.iter().map(count).collect(), cost: None }.accuracies()
        };
        TrivialBaseline::new("chance", "always the most frequent answer of the validation set.")
            .scores(accuracies(&self.set.test))
            .devs(accuracies(&self.set.valid))
    }

    /// What a network tells of sequences; `None` if the interrupt was raised meanwhile.
    fn told(&self, network: &RecurrentNetwork, sequences: &[VectorSequence], interrupt: &Interrupt) -> Option<Told> {
        let [groups, _] = self.set.task.outputs();
        let weight = network.halting.config().ponder_weight;
        let mut told = Told { sequences: Vec::new(), cost: (weight > 0.0).then_some(0.0) };
        score_batches(("scoring", sequences.len()), sequences.chunks(self.batch), interrupt, |sequences| {
            let batch = self.assemble(sequences.iter());
            let mut steps = Vec::new();
            let mut listener = |_: &str, observation: Observation| {
                if let Observation::HaltingSteps(taken) = observation {
                    steps = read(taken).iter::<f64>().collect();
                }
            };
            let (logits, targets, losses) = self.logits(network, &batch, &mut Probe::listening(&mut listener));
            let elements: usize = batch.lengths.iter().sum();
            if let (Some(sum), Some(loss)) = (told.cost.as_mut(), losses.total()) {
                *sum += f64::from(loss.into_scalar::<f32>()) / weight * elements as f64;
            }
            let right = are_right(logits, targets);
            let right: Vec<bool> = right.chunks(groups).map(|groups| groups.iter().all(|&right| right)).collect();
            let width = steps.len() / batch.lengths.len();
            for ((row, [asked, right]), &length) in of_items(&right, &batch.asked).enumerate().zip(&batch.lengths) {
                let taken: f64 = steps[row * width..][..length].iter().sum();
                told.sequences.push([asked as f64, right as f64, length as f64, taken]);
            }
            sequences.len()
        })?;
        Some(told)
    }
}

impl Task for VectorLearning<'_> {
    type Model = RecurrentNetwork;
    type Batch = VectorBatch;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.set.train, self.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> VectorBatch {
        let sequences: Vec<VectorSequence> = items.iter().map(|&item| self.set.training(item)).collect();
        self.assemble(sequences.iter())
    }

    fn units(&self, batch: &VectorBatch) -> usize {
        batch.at.len()
    }

    fn loss(&self, network: &RecurrentNetwork, batch: &VectorBatch, _pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (logits, targets, losses) = self.logits(network, batch, probe);
        TrainingLoss::new(cross_entropy(logits, targets, None, 0.0).loss, &losses, batch.at.len())
    }

    fn evaluate(&self, network: &RecurrentNetwork, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let (name, sequences) = split.of(("validation set", &self.set.valid), ("test set", &self.set.test));
        let told = self.told(network, sequences, interrupt)?;
        let signature = format!("{name}, {} sequences", sequences.len());
        let mut scores = Scores::default();
        for (name, accuracy) in told.accuracies() {
            scores.push(&name, accuracy, signature.clone());
        }
        scores.push(STEPS, told.ratio(3, 2), format!("{signature}, mean over elements"));
        if let Some(cost) = told.cost {
            let elements: f64 = told.sequences.iter().map(|counts| counts[2]).sum();
            scores.push(COST, cost / elements, format!("{signature}, mean over elements"));
        }
        if split == Split::Test {
            scores.push_items(SEQUENCE_ACCURACY, ItemScore::new(name, "sequences", Combination::Mean, &["right"]));
            scores
                .push_items(ELEMENT_ACCURACY, ItemScore::new(name, "sequences", Combination::Ratio, &["right elements", "asked elements"]));
            scores.push_items(STEPS, ItemScore::new(name, "sequences", Combination::Ratio, &["steps", "elements"]));
            let mut table = ItemTable::new(name, &["right", "right elements", "asked elements", "steps", "elements"]);
            for (sequence, &[asked, right, elements, steps]) in sequences.iter().zip(&told.sequences) {
                let identity = sequence.inputs.iter().map(|number| i64::from(number.to_bits()));
                table.push_tokens(identity, &[f64::from(u8::from(asked == right)), right, asked, steps, elements]);
            }
            scores.items.push(table);
        }
        Some(scores)
    }

    fn selection(&self) -> Selection {
        Selection::highest(ELEMENT_ACCURACY)
    }
}
