//! The largest batch of training within a given memory.

use burn::optim::GradientsParams;
use burn::tensor::Device;
use clap::Args;
use heedful_attention::prelude::*;
use heedful_host::allocator::return_freed_memory;
use heedful_host::machine::{peak_memory_bytes, reset_peak_memory};
use heedful_host::rounds::{Series, in_turn};
use rand::RngExt;

use super::models::ModelOptions;
use crate::session::comparison::Reloaded;
use crate::session::error::ExperimentError;
use crate::session::experiment::{Experiment, Setup};
use crate::tasks::text_to_text::{TextToTextTask, TokenPair};
use crate::tasks::translation::Translation;

/// Which batches are looked for.
#[derive(Args, Clone, Debug)]
pub struct BatchOptions {
    #[command(flatten)]
    models: ModelOptions,

    /// Memory of the model, its gradients and the activations of a batch, in GiB
    #[arg(long, value_name = "GIB", default_value_t = 1.0)]
    memory: f64,
}

impl BatchOptions {
    /// Measures the models of a finished command of `mt`.
    ///
    /// # Errors
    /// Runs that cannot be read, a memory that no batch fits into, a system that does not tell how much is used, or a file that cannot be written.
    pub fn run(&self) -> Result<(), ExperimentError> {
        if !(self.memory.is_finite() && self.memory > 0.0) {
            return Err(ExperimentError::usage(format!("--memory {}: give a number greater than 0", self.memory)));
        }
        let models = self.models.models::<Translation>()?;
        let about = format!(
            "The most tokens of the longer side, padding included, of a batch that forward and backward of training take at most {} GiB of resident memory for, \
             weights and gradients among it, the state of the optimiser not; on flex, to one in a hundred. Each round has pairs of another length.",
            self.memory
        );
        self.models.measured(&about, || self.measure(&models))
    }

    fn measure(&self, models: &[Reloaded<Translation>]) -> Result<Vec<Series>, ExperimentError> {
        let limit = (self.memory * f64::from(1 << 30)) as u64;
        let sorted: Vec<Vec<&TokenPair>> = models.iter().map(sorted).collect();
        // What code and threads need once is there before the first round.
        for (model, pairs) in models.iter().zip(&sorted) {
            bytes(model, &batch(pairs, 0, 1), 0)?;
        }
        let tokens = in_turn(self.models.rounds, models.len(), |round, index| {
            let (model, pairs) = (&models[index], &sorted[index]);
            let first = RandomKey::from_seed(round as u64).named("length").rng().random_range(0..pairs.len());
            let begin = model.config.own.data.batch_tokens;
            let found = largest(begin, limit, |tokens| bytes(model, &batch(pairs, first, tokens), round))?;
            match found {
                0 => Err(ExperimentError::usage(format!(
                    "--memory {}: no batch of {} fits into it; give more",
                    self.memory, model.attention.name
                ))),
                tokens => Ok(Some(tokens as f64)),
            }
        })?;
        let series = |(model, values): (&Reloaded<Translation>, Vec<f64>)| Series {
            name: model.attention.name.clone(),
            unit: "tokens".to_owned(),
            values,
        };
        Ok(models.iter().zip(tokens.unwrap_or_default()).map(series).collect())
    }
}

/// The most tokens whose bytes are at most `limit`, to one in a hundred, looked for from `begin` on; 0 if even one has more.
fn largest<E>(begin: usize, limit: u64, mut bytes: impl FnMut(usize) -> Result<u64, E>) -> Result<usize, E> {
    let (mut fits, mut exceeds, mut next) = (0, None, begin.max(1));
    loop {
        if bytes(next)? <= limit {
            fits = next
        } else {
            exceeds = Some(next)
        }
        next = match exceeds {
            None => 2 * next,
            Some(exceeds) if exceeds - fits <= (fits / 100).max(1) => return Ok(fits),
            Some(exceeds) => fits + (exceeds - fits) / 2,
        };
    }
}

fn length(pair: &TokenPair) -> usize {
    pair.source.len().max(pair.target.len() + 1)
}

/// The training pairs by the length of their longer side.
fn sorted(model: &Reloaded<Translation>) -> Vec<&TokenPair> {
    let mut pairs: Vec<&TokenPair> = model.dataset.train().iter().collect();
    pairs.sort_by_key(|pair| length(pair));
    pairs
}

/// Pairs of like length from the one number `first` on, as many as have at most `tokens` tokens on the longer side, padding included, and at least one. After the
/// longest pairs come others as long as that: the first of them again.
fn batch<'p>(pairs: &[&'p TokenPair], first: usize, tokens: usize) -> Vec<&'p TokenPair> {
    let (mut batch, mut longest) = (Vec::new(), 0);
    for pair in pairs[first..].iter().cycle() {
        longest = longest.max(length(pair));
        if !batch.is_empty() && (batch.len() + 1) * longest > tokens {
            break;
        }
        batch.push(*pair);
    }
    batch
}

/// By how much resident memory grows at most while the model is made and learns from a batch once.
fn bytes(model: &Reloaded<Translation>, pairs: &[&TokenPair], round: usize) -> Result<u64, ExperimentError> {
    let Reloaded { config, dataset, attention, .. } = model;
    let setup = Setup { config, data: dataset, attention };
    let untold = || ExperimentError::failure("this system does not tell how much memory a program uses; measure on Linux");
    let batch = TextToTextTask::pad(dataset.frame().special, pairs.iter().copied());
    return_freed_memory();
    if !reset_peak_memory() {
        return Err(untold());
    }
    let before = peak_memory_bytes().ok_or_else(untold)?;
    let key = RandomKey::from_seed(round as u64);
    let model = Translation::model(setup, &key, &Device::flex().autodiff())?;
    let loss = TextToTextTask::loss_of(&model, &batch, config.own.label_smoothing, Some(key), &mut Probe::off());
    let gradients = GradientsParams::from_grads(loss.total().backward(), &model);
    let peak = peak_memory_bytes().ok_or_else(untold)?;
    drop(gradients);
    Ok(peak.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_within_a_limit_is_found_from_both_sides() {
        for (begin, limit, least, most) in [(64, 100_000, 9_900, 10_000), (100_000, 100_000, 9_900, 10_000), (3, 70, 7, 7), (1000, 9, 0, 0)]
        {
            let mut count = 0;
            let found = largest::<()>(begin, limit, |tokens| {
                count += 1;
                Ok(10 * tokens as u64)
            });
            let found = found.unwrap();
            assert!((least..=most).contains(&found) && count < 30, "{found} after {count}");
        }
        assert_eq!(largest(1, 1, |_| Err("no")), Err("no"));
    }

    #[test]
    fn batches_have_pairs_of_like_length_within_their_tokens() {
        let pair = |source: usize, target: usize| TokenPair { source: vec![5; source], target: vec![6; target] };
        let pairs = [pair(2, 1), pair(1, 3), pair(4, 2), pair(8, 1)];
        let pairs: Vec<&TokenPair> = pairs.iter().collect();
        let lengths = |first, tokens| batch(&pairs, first, tokens).into_iter().map(length).collect::<Vec<_>>();
        assert_eq!(lengths(0, 12), [2, 4, 4]);
        assert_eq!(lengths(0, 1), [2], "there is always one");
        assert_eq!(lengths(2, 8), [4], "two of them and padding have 16 tokens");
        assert_eq!(lengths(3, 24), [8, 8, 8]);
    }
}
