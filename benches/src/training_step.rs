//! One step of training a language model.
//!
//! # Where its time goes
//!
//! Processor time of the step of [`ModelSizes::default`], 8 sequences of 256 tokens, on flex, two threads of an x86-64 server processor with AVX2 that others used as well. Everything is
//! relative to the step that was composed of Burn's operations (attention aside, which was fused already) = 100; `fused` is the step with layer
//! normalisation, bias and ReLU, cross-entropy and AdamW in one pass each (`heedful_models::fused`, `heedful_experiments::train`).
//!
//! | part | composed | fused |
//! |---|---|---|
//! | matrix products, packing included | 44 | 44 |
//! | attention without its projections | 18 | 18 |
//! | of it exponentials, in calls that were not inlined | 7 | 7 |
//! | element-wise operations and reductions of Burn | 26 | 2 |
//! | cross-entropy | in the above | 2 |
//! | layer normalisation, bias, ReLU, AdamW, norms | in the above | 1.5 |
//! | setting and copying memory | 3 | 2.5 |
//! | kernel: page faults, switches between programs | 6 | 7 |
//! | rest | 3 | 4 |
//! | **sum** | **100** | **81** |
//!
//! Of these samples 30 % (composed) and 8 % (fused) lay on the thread that called, while the others waited: in wall-clock time the fused step took 0.77 of
//! the composed one (0.68 to 0.83 in three alternated runs), and 0.49 to 0.69 of PyTorch 2.15's eager step in the same runs. PyTorch suffers more from
//! a machine that is shared, so the latter does not carry over to one that is not. Largest resident set of the process: 350 MB, composed 610 MB, PyTorch
//! 1200 MB.
//!
//! What was left beside products and attention was mostly the allocation of the products' results: Burn's flex clears each and then copies it into
//! an aligned block, on one thread, which took some 9 % of the wall-clock time. Linear maps do neither since (`heedful_attention::linear`), and heads are
//! read where projections put them; the table is from before that.

use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::any::AttentionConfig;
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_experiments::train::{OptimiserConfig, OptimiserKind};
use heedful_models::block::BlockConfig;
use heedful_models::error::ConfigError;
use heedful_models::language_model::{LanguageModel, LanguageModelConfig};
use heedful_models::residual::NormOrder;
use serde::{Deserialize, Serialize};

/// Sizes of a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSizes {
    /// Number of tokens, `V`.
    pub vocabulary: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the model, `C`.
    pub d_model: usize,
    /// Heads, a divisor of the width.
    pub heads: usize,
    /// Hidden units of the feed-forward networks.
    pub d_ff: usize,
}

impl Default for ModelSizes {
    /// Four layers of width 256 with four heads and 1024 hidden units, a vocabulary of 10,000.
    fn default() -> Self {
        Self { vocabulary: 10_000, layers: 4, d_model: 256, heads: 4, d_ff: 1024 }
    }
}

impl ModelSizes {
    /// A model with normalisation before its sublayers, sinusoids, tied output and no dropout, for sequences of at most `max_length`.
    ///
    /// # Errors
    /// If the attention is impossible with these sizes.
    pub fn model(&self, attention: &AttentionConfig, max_length: usize, device: &Device) -> Result<LanguageModel, ConfigError> {
        let Self { vocabulary, layers, d_model, heads, d_ff } = *self;
        let block = BlockConfig { d_model, heads, d_ff, max_length, norm_order: NormOrder::Pre, dropout: 0.0, ..BlockConfig::default() };
        let attention = attention.clone().into();
        let config = LanguageModelConfig { vocabulary, attention, layers, block, ..LanguageModelConfig::default() };
        config.validate()?;
        Ok(config.init(&RandomKey::from_seed(0), device))
    }

    /// Token ids `[B, N]` that look random and are the same in every run.
    pub(crate) fn tokens(&self, batch: usize, length: usize, device: &Device) -> Tensor<2, Int> {
        // The fractional parts of multiples of the golden section are spread evenly.
        let id = |index: usize| ((index as f64 * 0.618_033_988_749_895).fract() * self.vocabulary as f64) as i32;
        Tensor::from_data(TensorData::new((0..batch * length).map(id).collect(), [batch, length]), device)
    }
}

/// A language model, its optimiser and a batch.
pub struct TrainingStep {
    model: Option<LanguageModel>,
    optimiser: ModuleOptimizer,
    inputs: Tensor<2, Int>,
    targets: Tensor<1, Int>,
}

impl TrainingStep {
    /// Learning rate of all steps.
    const LEARNING_RATE: f64 = 1e-4;

    /// A model that learns to continue `batch` rows of `length` tokens with AdamW, on a device with autodiff.
    ///
    /// # Errors
    /// If the attention is impossible with these sizes.
    ///
    /// # Panics
    /// If the optimiser's own constants are refused.
    pub fn new(attention: &AttentionConfig, sizes: ModelSizes, batch: usize, length: usize, device: &Device) -> Result<Self, ConfigError> {
        let device = device.clone().autodiff();
        let optimiser = OptimiserConfig { kind: OptimiserKind::AdamW, weight_decay: 0.01, ..OptimiserConfig::default() };
        let tokens = sizes.tokens(batch, length + 1, &device);
        Ok(Self {
            model: Some(sizes.model(attention, length, &device)?),
            optimiser: optimiser.init(&device.without_autodiff()).expect("the constants are in their ranges"),
            inputs: tokens.clone().narrow(1, 0, length),
            targets: tokens.narrow(1, 1, length).reshape([batch * length]),
        })
    }

    /// Forward, backward and update. Returns the loss per token before the update, in nats.
    ///
    /// # Panics
    /// If an earlier call panicked.
    pub fn run(&mut self) -> f32 {
        // By value, so that the optimiser can update tensors in place.
        let model = self.model.take().expect("the model is there between steps");
        let states = model.hidden(self.inputs.clone(), &[], None, &mut Probe::off()).states;
        let [batch, length, d_model] = states.dims();
        let tokens = batch * length;
        let loss = model.cross_entropy(states.reshape([tokens, d_model]), self.targets.clone(), None, 0.0).loss;
        let loss = loss.div_scalar(tokens as f64);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.optimiser.step(Self::LEARNING_RATE, model, gradients));
        loss.into_scalar()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_learn_the_batch() {
        let sizes = ModelSizes { vocabulary: 11, layers: 1, d_model: 8, heads: 2, d_ff: 16 };
        let mut step = TrainingStep::new(&AttentionConfig::default(), sizes, 2, 6, &Device::flex()).unwrap();
        let first = step.run();
        let last = (0..50).map(|_| step.run()).last().unwrap();
        assert!(first.is_finite() && last < first, "the loss goes from {first} to {last}");
    }
}
