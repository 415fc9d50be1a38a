//! One step of training a language model.
//!
//! # Where its time goes
//!
//! Samples of processor time in the step of [`ModelSizes::default`], 8 sequences of 256 tokens, on flex, two threads of an x86-64 server processor with AVX2
//! that others used as well, in percent:
//!
//! | part | |
//! |---|---|
//! | matrix products | 80 |
//! | of it packing | 5 |
//! | attention without its projections, exponentials included | 9 |
//! | cross-entropy, layer normalisation, bias, ReLU, AdamW | 3 |
//! | setting and copying memory | 1 |
//! | kernel: page faults, switches between programs | 3 |
//! | threads looking for work | 1.5 |
//! | element-wise operations of Burn, and the rest | 2.5 |
//!
//! Nine tenths of a step are thus products of matrices, those within attention included, and go no faster than their micro-kernel does.
//!
//! It was not so when the step was composed of Burn's operations (attention aside, which was fused already): 44 of 100 samples lay in products, 18 in
//! attention, 26 in element-wise operations and reductions, and 30 of them were taken on the thread that called, while the others waited. One pass each
//! for layer normalisation, bias and ReLU, cross-entropy and AdamW (`heedful_models::kernels::fused`, `heedful_models::training::optimiser`) took 0.77 of that step's
//! wall-clock time (0.68 to 0.83 in three alternated runs) and 0.57 of its memory. What was left were copies: linear maps have neither cleared nor copied
//! their results since (`heedful_attention::engine::linear`), and heads are read where projections put them.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use heedful_attention::description::multiplications::Multiplications;
use heedful_host::exit::ProgramError;
use heedful_host::machine::available_memory;
use heedful_models::kernels::precision::{Precision, cast};
use heedful_models::prelude::*;
use heedful_models::training::optimiser::{OptimiserConfig, OptimiserKind};
use serde::{Deserialize, Serialize};

use crate::markdown::significant;

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
    /// Bytes of the weights of the layers and of the embedding.
    fn weight_bytes(&self) -> u128 {
        let [vocabulary, layers, d_model, d_ff] = [self.vocabulary, self.layers, self.d_model, self.d_ff].map(|size| size as u128);
        let of_layer = d_model.saturating_mul(4 * d_model + 2 * d_ff);
        vocabulary.saturating_mul(d_model).saturating_add(layers.saturating_mul(of_layer)).saturating_mul(4)
    }

    /// Refuses models that take more main memory than there is: at the least the weights of all, and beside them the gradients of the largest, or what one of its
    /// layers makes of `tokens` tokens.
    ///
    /// # Errors
    /// A usage error with both amounts.
    pub fn check_memory(models: &[Self], tokens: usize) -> Result<(), ProgramError> {
        let Some(available) = available_memory() else { return Ok(()) };
        let activations = |model: &Self| (tokens as u128).saturating_mul(2 * model.d_model as u128 + model.d_ff as u128).saturating_mul(4);
        let beside = models.iter().map(|model| model.weight_bytes().max(activations(model))).max().unwrap_or_default();
        let least = models.iter().fold(beside, |sum, model| sum.saturating_add(model.weight_bytes()));
        let gibibytes = |bytes: f64| significant(bytes / f64::from(1 << 30));
        if least <= u128::from(available) {
            return Ok(());
        }
        Err(ProgramError::usage(format!(
            "models of these sizes take at least {} GiB, and {} GiB are available; give smaller sizes or a smaller batch",
            gibibytes(least as f64),
            gibibytes(available as f64)
        )))
    }

    /// A model with normalisation before its sublayers, sinusoids, tied output and no dropout, for sequences of at most `max_length`.
    ///
    /// # Errors
    /// If the attention is impossible with these sizes.
    pub fn model(&self, attention: &AnyMechanism, max_length: usize, device: &Device) -> Result<LanguageModel, ConfigError> {
        self.model_with_dropout(attention, max_length, 0.0, device)
    }

    /// The same with dropout.
    fn model_with_dropout(
        &self,
        attention: &AnyMechanism,
        max_length: usize,
        dropout: f64,
        device: &Device,
    ) -> Result<LanguageModel, ConfigError> {
        let config = self.config(attention, max_length, dropout);
        config.validate()?;
        Ok(config.init(&RandomKey::from_seed(0), device))
    }

    fn config(&self, attention: &AnyMechanism, max_length: usize, dropout: f64) -> LanguageModelConfig {
        let Self { vocabulary, layers, .. } = *self;
        let block = BlockConfig { dropout, ..self.block(max_length) };
        let attention = attention.clone().into();
        LanguageModelConfig { vocabulary, attention, layers, block, ..LanguageModelConfig::default() }
    }

    /// Multiplications of a forward pass of this [model](Self::model) for one row of `length` tokens.
    pub fn multiplications(&self, model: &LanguageModel, attention: &AnyMechanism, length: usize) -> Multiplications {
        self.config(attention, length, 0.0).multiplications(model, length)
    }

    /// Blocks with normalisation before their sublayers and no dropout, for sequences of at most `max_length`.
    pub(crate) fn block(&self, max_length: usize) -> BlockConfig {
        let Self { d_model, heads, d_ff, .. } = *self;
        BlockConfig { d_model, heads, d_ff, max_length, norm_order: NormOrder::Pre, dropout: 0.0, ..BlockConfig::default() }
    }

    /// Token ids `[B, N]` that look random and are the same in every run.
    pub(crate) fn tokens(&self, batch: usize, length: usize, device: &Device) -> Tensor<2, Int> {
        let id = |index: usize| (spread(index) * self.vocabulary as f64) as i32;
        Tensor::from_data(TensorData::new((0..batch * length).map(id).collect(), [batch, length]), device)
    }
}

/// A language model, its optimiser and a batch.
pub struct TrainingStep {
    model: Option<LanguageModel>,
    optimiser: ModuleOptimizer,
    inputs: Tensor<2, Int>,
    targets: Tensor<1, Int>,
    precision: Precision,
    /// Steps that were run, which dropout depends on.
    steps: u64,
    drops: bool,
}

/// How a step is computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numerics {
    /// Type of activations; weights have 32 bits.
    pub precision: Precision,
    /// Probability with which activations and weights of attention are dropped.
    pub dropout: f64,
}

/// Numbers in `[0, 1)` that look random and are the same in every run: fractional parts of multiples of the golden section, which are spread evenly.
pub(crate) fn spread(index: usize) -> f64 {
    (index as f64 * 0.618_033_988_749_895).fract()
}

/// Learning rate of all steps.
pub(crate) const LEARNING_RATE: f64 = 1e-4;

/// AdamW for a model on a device.
pub(crate) fn adam_w(device: &Device) -> ModuleOptimizer {
    let config = OptimiserConfig { kind: OptimiserKind::AdamW, weight_decay: 0.01, ..OptimiserConfig::default() };
    config.init(&device.clone().without_autodiff()).expect("the constants are in their ranges")
}

impl TrainingStep {
    /// A model that learns to continue `batch` rows of `length` tokens with AdamW, on a device with autodiff.
    ///
    /// # Errors
    /// If the attention is impossible with these sizes.
    ///
    /// # Panics
    /// If the optimiser's own constants are refused.
    pub fn new(attention: &AnyMechanism, sizes: ModelSizes, batch: usize, length: usize, device: &Device) -> Result<Self, ConfigError> {
        Self::with(attention, sizes, [batch, length], Numerics::default(), device)
    }

    /// The same with other numbers, or with dropout.
    ///
    /// # Errors
    /// If the attention or the dropout is impossible.
    ///
    /// # Panics
    /// If the optimiser's own constants are refused.
    pub fn with(
        attention: &AnyMechanism,
        sizes: ModelSizes,
        [batch, length]: [usize; 2],
        Numerics { precision, dropout }: Numerics,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        let device = device.clone().autodiff();
        let tokens = sizes.tokens(batch, length + 1, &device);
        Ok(Self {
            model: Some(sizes.model_with_dropout(attention, length, dropout, &device)?),
            optimiser: adam_w(&device),
            inputs: tokens.clone().narrow(1, 0, length),
            targets: tokens.narrow(1, 1, length).reshape([batch * length]),
            precision,
            steps: 0,
            drops: dropout > 0.0,
        })
    }

    /// Forward, backward and update. Returns the loss per token before the update, in nats.
    ///
    /// # Panics
    /// If an earlier call panicked.
    pub fn run(&mut self) -> f32 {
        // By value, so that the optimiser can update tensors in place.
        let model = self.model.take().expect("the model is there between steps");
        let copy = (self.precision != Precision::F32).then(|| cast(model.clone(), self.precision.dtype()));
        let passed = copy.as_ref().unwrap_or(&model);
        self.steps += 1;
        let key = self.drops.then(|| RandomKey::from_seed(self.steps));
        let states = passed.hidden(self.inputs.clone(), &[], key, &mut Probe::off()).states;
        let [batch, length, d_model] = states.dims();
        let tokens = batch * length;
        let loss = passed.cross_entropy(states.reshape([tokens, d_model]), self.targets.clone(), None, 0.0).loss;
        let loss = loss.div_scalar(tokens as f64);
        let gradients = GradientsParams::from_grads(loss.backward(), passed);
        let gradients = if copy.is_some() { in_32_bits(gradients, &model) } else { gradients };
        self.model = Some(self.optimiser.step(LEARNING_RATE, model, gradients));
        loss.into_scalar()
    }
}

/// Gradients as the weights of `model` have them.
fn in_32_bits(gradients: GradientsParams, model: &LanguageModel) -> GradientsParams {
    struct Visitor {
        from: GradientsParams,
        to: GradientsParams,
    }

    impl ModuleVisitor for Visitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.from.remove::<D>(param.id) {
                self.to.register(param.id, gradient.cast(FloatDType::F32));
            }
        }
    }

    let mut visitor = Visitor { from: gradients, to: GradientsParams::new() };
    model.visit(&mut visitor);
    visitor.to
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: ModelSizes = ModelSizes { vocabulary: 11, layers: 1, d_model: 8, heads: 2, d_ff: 16 };

    #[test]
    fn multiplications_are_those_of_the_model() {
        let attention = AnyMechanism::default();
        let model = TINY.model(&attention, 6, &Device::flex()).unwrap();
        let (pairs, maps) = (21 * 2 * 8, 6 * (4 * 8 * 8 + 2 * 8 * 16 + 11 * 8));
        assert_eq!(TINY.multiplications(&model, &attention, 6), Multiplications { pairs: pairs as f64, maps: maps as f64 });
    }

    #[test]
    fn steps_learn_the_batch() {
        let mut step = TrainingStep::new(&AnyMechanism::default(), TINY, 2, 6, &Device::flex()).unwrap();
        let first = step.run();
        let last = (0..50).map(|_| step.run()).last().unwrap();
        assert!(first.is_finite() && last < first, "the loss goes from {first} to {last}");
    }
}
