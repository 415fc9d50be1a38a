//! Steps of training on padded batches: of a classifier, and of an encoder-decoder.

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_models::parts::loss::{cross_entropy, real_states};
use heedful_models::prelude::*;

use crate::training_step::{LEARNING_RATE, ModelSizes, adam_w};

/// A model and its optimiser.
struct Trained<M> {
    model: Option<M>,
    optimiser: ModuleOptimizer,
}

impl<M: Module> Trained<M> {
    fn new(model: M, device: &Device) -> Self {
        Self { model: Some(model), optimiser: adam_w(device) }
    }

    /// Backward and update from a loss `[1]`, which is returned.
    fn step(&mut self, loss: impl FnOnce(&M) -> Tensor<1>) -> f32 {
        // By value, so that the optimiser can update tensors in place.
        let model = self.model.take().expect("the model is there between steps");
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.optimiser.step(LEARNING_RATE, model, gradients));
        loss.into_scalar()
    }
}

/// Token ids `[B, N]` of rows of these lengths, padded on the right by 0.
fn padded(sizes: ModelSizes, lengths: &[usize], device: &Device) -> Tensor<2, Int> {
    let width = longest(lengths);
    let real: Vec<i32> = lengths.iter().flat_map(|&length| (0..width).map(move |index| i32::from(index < length))).collect();
    sizes.tokens(lengths.len(), width, device) * Tensor::from_data(TensorData::new(real, [lengths.len(), width]), device)
}

fn longest(lengths: &[usize]) -> usize {
    lengths.iter().copied().max().unwrap_or(0)
}

/// A classifier, its optimiser and a batch of sentences.
pub struct ClassifierStep {
    trained: Trained<Classifier>,
    tokens: Tensor<2, Int>,
    lengths: Vec<usize>,
    labels: Tensor<1, Int>,
}

impl ClassifierStep {
    /// A classifier with the mean of the real tokens, which learns to classify sentences with AdamW, on a device with autodiff. It also computes the padding,
    /// unless it is `unpadded`.
    ///
    /// # Errors
    /// If the attention is impossible with these sizes.
    pub fn new(
        attention: &AnyMechanism,
        sizes: ModelSizes,
        classes: usize,
        lengths: &[usize],
        unpadded: bool,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        let device = device.clone().autodiff();
        let config = ClassifierConfig {
            attention: attention.clone().into(),
            layers: sizes.layers,
            block: BlockConfig { unpadded, ..sizes.block(longest(lengths)) },
            pooling: Pooling::Mean,
            ..ClassifierConfig::new(sizes.vocabulary, classes)
        };
        config.validate()?;
        let labels: Vec<i32> = (0..lengths.len()).map(|row| (row % classes) as i32).collect();
        Ok(Self {
            trained: Trained::new(config.init(&RandomKey::from_seed(0), &device), &device),
            tokens: padded(sizes, lengths, &device),
            lengths: lengths.to_vec(),
            labels: Tensor::from_data(TensorData::new(labels, [lengths.len()]), &device),
        })
    }

    /// Forward, backward and update. Returns the loss per sentence before the update, in nats.
    ///
    /// # Panics
    /// If an earlier call panicked.
    pub fn run(&mut self) -> f32 {
        let Self { trained, tokens, lengths, labels } = self;
        trained.step(|model| {
            let sentences = Sentences { tokens: tokens.clone(), segments: None, lengths };
            let logits = model.forward_with(sentences, None, &mut Probe::off()).logits;
            cross_entropy(logits, labels.clone(), None, 0.0).loss.div_scalar(lengths.len() as f64)
        })
    }
}

/// An encoder-decoder, its optimiser and a batch of pairs.
pub struct TranslationStep {
    trained: Trained<Seq2SeqTransformer>,
    source: Tensor<2, Int>,
    source_lengths: Vec<usize>,
    target: Tensor<2, Int>,
    target_lengths: Vec<usize>,
    outputs: Tensor<1, Int>,
}

impl TranslationStep {
    /// An encoder and a decoder of so many layers each, with one matrix for both embeddings and the output and dot-product attention between them, which learn
    /// pairs of sequences with AdamW, on a device with autodiff. They compute the padding too, unless they are `unpadded`.
    ///
    /// # Errors
    /// If the attention is impossible with these sizes.
    ///
    /// # Panics
    /// If there are not as many targets as sources.
    pub fn new(
        attention: &AnyMechanism,
        sizes: ModelSizes,
        [source, target]: [&[usize]; 2],
        unpadded: bool,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        assert_eq!(source.len(), target.len(), "one target for each source");
        let device = device.clone().autodiff();
        let config = Seq2SeqConfig {
            attention: AttentionLayout::for_attention(attention.clone()),
            encoder_layers: sizes.layers,
            decoder_layers: sizes.layers,
            block: BlockConfig { unpadded, ..sizes.block(longest(source).max(longest(target))) },
            ..Seq2SeqConfig::new(sizes.vocabulary, sizes.vocabulary)
        };
        config.validate()?;
        let real = target.iter().sum();
        Ok(Self {
            trained: Trained::new(config.init(&RandomKey::from_seed(0), &device), &device),
            source: padded(sizes, source, &device),
            source_lengths: source.to_vec(),
            target: padded(sizes, target, &device),
            target_lengths: target.to_vec(),
            outputs: sizes.tokens(1, real, &device).reshape([real]),
        })
    }

    /// Forward, backward and update. Returns the loss per token of the targets before the update, in nats.
    ///
    /// # Panics
    /// If an earlier call panicked.
    pub fn run(&mut self) -> f32 {
        let Self { trained, source, source_lengths, target, target_lengths, outputs } = self;
        trained.step(|model| {
            let source = Padded { tokens: source.clone(), lengths: source_lengths };
            let target = Padded { tokens: target.clone(), lengths: target_lengths };
            let states = real_states(model.hidden(source, target, None, &mut Probe::off()).states, target_lengths);
            let [tokens, _] = states.dims();
            model.cross_entropy(states, outputs.clone(), None, 0.0).loss.div_scalar(tokens as f64)
        })
    }
}

#[cfg(test)]
mod tests {
    use heedful_attention::tensors::read::read;

    use super::*;

    const TINY: ModelSizes = ModelSizes { vocabulary: 11, layers: 1, d_model: 8, heads: 2, d_ff: 16 };

    #[track_caller]
    fn learns(mut run: impl FnMut() -> f32) {
        let first = run();
        let last = (0..50).map(|_| run()).last().unwrap();
        assert!(first.is_finite() && last < first, "the loss goes from {first} to {last}");
    }

    #[test]
    fn a_classifier_learns_the_batch_with_and_without_its_padding() {
        let first = [false, true].map(|unpadded| {
            let mut step = ClassifierStep::new(&AnyMechanism::default(), TINY, 2, &[2, 5, 3], unpadded, &Device::flex()).unwrap();
            let first = step.run();
            learns(|| step.run());
            first
        });
        assert!((first[0] - first[1]).abs() < 1e-5, "{first:?}");
    }

    #[test]
    fn an_encoder_decoder_learns_the_batch_with_and_without_its_padding() {
        let first = [false, true].map(|unpadded| {
            let lengths: [&[usize]; 2] = [&[2, 5], &[4, 3]];
            let mut step = TranslationStep::new(&AnyMechanism::default(), TINY, lengths, unpadded, &Device::flex()).unwrap();
            let first = step.run();
            learns(|| step.run());
            first
        });
        assert!((first[0] - first[1]).abs() < 1e-5, "{first:?}");
    }

    #[test]
    fn what_is_not_real_is_padding() {
        let tokens = padded(TINY, &[1, 3], &Device::flex());
        let found: Vec<i32> = read(tokens).iter().collect();
        let whole: Vec<i32> = read(TINY.tokens(2, 3, &Device::flex())).iter().collect();
        assert_eq!(found, [whole[0], 0, 0, whole[3], whole[4], whole[5]]);
        assert!(whole[1] > 0 && whole[2] > 0);
    }
}
