//! The loss of a batch: that of the task, and what is added to it.

use burn::tensor::{FloatDType, Tensor};
use heedful_attention::contract::Losses;
use heedful_models::parts::loss::with_auxiliary;

use super::state::Metric;

/// The training loss of a batch, summed over its units: that of the task, and the penalties and auxiliary losses that training adds. The log has each of them
/// as a field of its own.
#[derive(Clone, Debug)]
pub struct TrainingLoss {
    task: Tensor<1>,
    added: Losses,
    units: usize,
}

impl TrainingLoss {
    /// The loss `task` `[1]` of the task itself, label smoothing included, summed over `units` units, and the losses of the pass through the model, which are
    /// per unit.
    pub fn new(task: Tensor<1>, added: &Losses, units: usize) -> Self {
        Self { task, added: added.clone(), units }
    }

    /// What is minimised, `[1]`: the sum of all.
    pub fn total(&self) -> Tensor<1> {
        with_auxiliary(self.task.clone(), &self.added, self.units)
    }

    /// The names of what is added, each once, in the order of the model.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (name, _) in self.added.iter() {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }

    /// What [`LossNumbers::of`] reads, one number each, in 32 bits and without a part in the graph. `total` is that of the pass.
    pub(super) fn tensors(&self, total: Tensor<1>) -> Vec<Tensor<1>> {
        let number = |loss: Tensor<1>| loss.inner().cast(FloatDType::F32);
        let names = self.names();
        let mut tensors = vec![number(total)];
        if !names.is_empty() {
            tensors.push(number(self.task.clone()));
        }
        for name in names {
            let parts = self.added.iter().filter(|(other, _)| *other == name).map(|(_, loss)| number(loss.clone()));
            tensors.extend(parts.reduce(|a, b| a + b).map(|sum| sum * self.units as f64));
        }
        tensors
    }
}

/// A loss to which nothing is added.
impl From<Tensor<1>> for TrainingLoss {
    fn from(task: Tensor<1>) -> Self {
        Self::new(task, &Losses::default(), 1)
    }
}

/// The loss of a batch as numbers, summed over its units.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct LossNumbers {
    /// What is minimised.
    #[serde(with = "super::state::exact")]
    pub total: f64,
    /// That of the task.
    #[serde(with = "super::state::exact")]
    pub task: f64,
    /// What is added, by name.
    pub added: Vec<Metric>,
}

impl LossNumbers {
    /// How many numbers there are of a loss to which losses with these names are added.
    pub(super) fn count(names: &[&'static str]) -> usize {
        if names.is_empty() { 1 } else { 2 + names.len() }
    }

    /// Takes the numbers of such a loss from the front of `values`.
    pub(super) fn of(names: &[&'static str], values: &mut &[f64]) -> Self {
        let (own, rest) = values.split_at(Self::count(names));
        *values = rest;
        let added = names.iter().zip(own.iter().skip(2)).map(|(name, value)| Metric { name: (*name).to_owned(), value: *value });
        Self { total: own[0], task: if names.is_empty() { own[0] } else { own[1] }, added: added.collect() }
    }
}
