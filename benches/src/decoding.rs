//! Greedy decoding of a language model, step by step or by computing the whole prefix again for each token.

use std::time::Instant;

use burn::tensor::{Device, Int, Tensor};
use heedful_models::generation::StepDecoder;
use heedful_models::prelude::*;

use crate::training_step::ModelSizes;

/// A language model that decodes.
#[derive(Debug)]
pub struct Decoding {
    model: LanguageModel,
    sizes: ModelSizes,
    batch: usize,
    tokens: usize,
}

impl Decoding {
    /// A model that decodes `tokens` tokens for each of `batch` rows, on a device without autodiff.
    ///
    /// # Errors
    /// If the attention is impossible with these sizes.
    pub fn new(attention: &AnyMechanism, sizes: ModelSizes, batch: usize, tokens: usize, device: &Device) -> Result<Self, ConfigError> {
        Ok(Self { model: sizes.model(attention, tokens, device)?, sizes, batch, tokens })
    }

    /// Seconds of decoding all tokens with the state that the attentions carry from step to step.
    pub fn by_steps(&self) -> f64 {
        let begun = Instant::now();
        let mut state = self.model.start(self.batch, &[]);
        let mut last = Tensor::<2, Int>::zeros([self.batch, 1], &self.model.device());
        for _ in 0..self.tokens {
            last = self.model.next_logits(last, &mut state).argmax(1);
        }
        last.device().sync().expect("the device finishes its work");
        begun.elapsed().as_secs_f64()
    }

    /// Seconds of decoding all tokens without a state: each from the whole prefix. It is timed at `count` evenly spaced lengths of the prefix, and their
    /// mean counts for all.
    pub fn by_recomputing(&self, count: usize) -> f64 {
        let spent: f64 = (0..count).map(|index| self.recompute((2 * index + 1) * self.tokens / (2 * count) + 1)).sum();
        spent * self.tokens as f64 / count as f64
    }

    fn recompute(&self, length: usize) -> f64 {
        let prefix = self.sizes.tokens(self.batch, length, &self.model.device());
        let begun = Instant::now();
        let hidden = self.model.hidden(prefix, &[], None, &mut Probe::off()).states;
        let next = self.model.project(hidden.narrow(1, length - 1, 1)).argmax(2);
        next.device().sync().expect("the device finishes its work");
        begun.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_stay_within_the_tokens_whatever_their_count() {
        let sizes = ModelSizes { vocabulary: 11, layers: 1, d_model: 8, heads: 2, d_ff: 16 };
        let decoding = Decoding::new(&AnyMechanism::default(), sizes, 2, 6, &Device::flex()).unwrap();
        assert!(decoding.by_steps() > 0.0);
        for count in [1, 4, 6] {
            // A prefix that is too long panics.
            assert!(decoding.by_recomputing(count) > 0.0);
        }
    }
}
