//! The Vision Transformer (Dosovitskiy et al. 2021, section 3.1): an encoder over the patches of an image, and a classifier.
//!
//! An image is cut into patches of `P` by `P` pixels, which a linear map embeds as a sequence, row by row. A trained class token precedes them, and the
//! classifier reads its state in the last layer.

mod config;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;
use heedful_attention::contract::training::Training;
use heedful_attention::engine::dropout::dropout;
use heedful_attention::prelude::*;

pub use self::config::VisionConfig;
use crate::architectures::classifier::Pooling;
use crate::architectures::seq2seq::Scores;
use crate::block::stack::Stack;
use crate::block::{Context, Hidden};
use crate::kernels::fused::linear;
use crate::parts::position::PositionEncoding;

/// Embedded patches plus positions, after a class token.
#[derive(Module, Debug)]
pub struct PatchEmbedding {
    /// Map from the pixels of a patch, `[channels P P, C]`; channel by channel, and row by row within a channel.
    pub patches: Linear,
    /// Class token before the patches, `[1, C]`.
    pub class_token: Option<Param<Tensor<2>>>,
    /// Position vectors, including that of the class token.
    pub positions: PositionEncoding,
    patch: usize,
    dropout: f64,
}

impl PatchEmbedding {
    /// Embeds images `[B, channels, H, W]` to `[B, N, C]`. Dropout is active if and only if a key is given.
    ///
    /// # Panics
    /// If an image does not divide into patches, or has more patches than there are positions.
    pub fn forward(&self, images: Tensor<4>, random: Option<RandomKey>) -> Tensor<3> {
        let batch = images.dims()[0];
        let x = linear(patches(images, self.patch), &self.patches);
        let x = match &self.class_token {
            Some(token) => {
                let width = x.dims()[2];
                Tensor::cat(vec![token.val().unsqueeze::<3>().expand([batch, 1, width]), x], 1)
            }
            None => x,
        };
        let positions = self.positions.shifted(&Positions::default(), x.dims()[1], random.as_ref());
        dropout(self.positions.forward(x, &positions), self.dropout, random.as_ref())
    }
}

/// The patches of images `[B, channels, H, W]`, `[B, N, channels P P]`.
fn patches(images: Tensor<4>, patch: usize) -> Tensor<3> {
    let [batch, channels, height, width] = images.dims();
    assert!(
        height.is_multiple_of(patch) && width.is_multiple_of(patch),
        "images of {height} by {width} pixels do not divide into patches of {patch} by {patch}"
    );
    let [rows, columns] = [height / patch, width / patch];
    images.reshape([batch, channels, rows, patch, columns, patch]).permute([0, 2, 4, 1, 3, 5]).reshape([
        batch,
        rows * columns,
        channels * patch * patch,
    ])
}

/// The Vision Transformer.
///
/// Should be created with [`VisionConfig`].
#[derive(Module, Debug)]
pub struct VisionTransformer<A: Attention = AnyAttention> {
    /// Embedding of the patches.
    pub embedding: PatchEmbedding,
    /// The layers.
    pub encoder: Stack<A>,
    /// Map from the pooled vector to the classes.
    pub output: Linear,
    #[module(skip)]
    pooling: Pooling,
    training: Training,
}

impl<A: Attention> VisionTransformer<A> {
    /// Logits of the classes `[B, classes]` of images `[B, channels, H, W]`.
    ///
    /// Dropout follows [`LanguageModel::forward`](crate::architectures::language_model::LanguageModel::forward): it is active in training.
    ///
    /// # Panics
    /// If an image does not divide into patches, or has more patches than there are positions.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let device = self.output.weight.device();
        let Scores { logits, losses } = self.forward_with(images, self.training.next_key(&device), &mut Probe::off());
        self.training.warn_of_lost(&losses, &device, "forward_with");
        logits
    }

    /// The full form of [`forward`](Self::forward). Dropout is active if and only if a key is given.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_with(&self, images: Tensor<4>, random: Option<RandomKey>, probe: &mut Probe) -> Scores<2> {
        let Hidden { states, losses } = match self.pooling {
            Pooling::MeanEmbeddings => Hidden { states: self.embedded(images, random), losses: Losses::default() },
            _ => self.hidden(images, random, probe),
        };
        let [batch, length, width] = states.dims();
        let pooled = match self.pooling {
            Pooling::ClassToken => states.narrow(1, 0, 1),
            Pooling::Mean | Pooling::MeanEmbeddings => states.mean_dim(1),
            Pooling::LastToken => states.narrow(1, length - 1, 1),
        };
        Scores { logits: linear(pooled.reshape([batch, width]), &self.output), losses }
    }

    /// Hidden states `[B, N, C]` of the last layer, starting with the class token.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn hidden(&self, images: Tensor<4>, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let x = self.embedded(images, random);
        let context = Context::new(Visibility::all());
        probe.within("encoder", None, |probe| self.encoder.forward(x, &context, random, probe))
    }

    /// Input of the layers, `[B, N, C]`.
    fn embedded(&self, images: Tensor<4>, random: Option<RandomKey>) -> Tensor<3> {
        self.embedding.forward(images, random.map(|key| key.named("embedding")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData};
    use heedful_attention::description::case::parameters;

    use crate::block::BlockConfig;
    use crate::block::layout::LayerAttention;

    fn tiny() -> VisionConfig {
        let block = BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 7, ..BlockConfig::default() };
        VisionConfig { height: 4, width: 6, channels: 3, patch: 2, classes: 5, layers: 2, block, ..VisionConfig::default() }
    }

    fn images(device: &Device) -> Tensor<4> {
        Init::Normal(1.0).tensor([2, 3, 4, 6], &RandomKey::from_seed(1), device)
    }

    #[test]
    fn layers_that_cannot_have_the_biases_of_the_block_are_made_without() {
        let mechanisms = ["dot-product", "linear-attention"].map(|name| name.parse().unwrap());
        let mixed = VisionConfig { attention: LayerAttention::Each(mechanisms.to_vec()), ..tiny() };
        let mixed = VisionConfig { block: BlockConfig { qkv_bias: true, kv_heads: Some(1), ..mixed.block }, ..mixed };
        mixed.validate().unwrap();
        let model = mixed.init(&RandomKey::from_seed(1), &Device::flex());
        let biases: Vec<String> = parameters(&model, None).into_keys().filter(|path| path.ends_with("query.bias")).collect();
        assert!(biases.len() == 1 && biases[0].contains("layers.0"), "{biases:?}");
        let uniform = VisionConfig { attention: LayerAttention::All("linear-attention".parse().unwrap()), ..mixed };
        assert!(uniform.validate().is_err(), "an option that no layer can have is refused");
    }

    #[test]
    fn patches_lie_row_by_row_with_their_channels_one_after_the_other() {
        let image: Vec<f32> = (0..2 * 4 * 6).map(|value| value as f32).collect();
        let image = Tensor::<4>::from_data(TensorData::new(image, [1, 2, 4, 6]), &Device::flex());
        let found = patches(image, 2);
        assert_eq!(found.dims(), [1, 6, 8]);
        let values = found.into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(values[..8], [0.0, 1.0, 6.0, 7.0, 24.0, 25.0, 30.0, 31.0]);
        assert_eq!(values[8..12], [2.0, 3.0, 8.0, 9.0]);
        assert_eq!(values[24..28], [12.0, 13.0, 18.0, 19.0], "the second row begins with the fourth patch");
    }

    #[test]
    fn the_embedding_of_patches_is_a_convolution_with_their_size_as_stride() {
        let device = Device::flex();
        let model = tiny().init(&RandomKey::from_seed(2), &device);
        let weight = model.embedding.patches.weight.val().transpose().reshape([8, 3, 2, 2]);
        let options = burn::tensor::ops::ConvOptions::new([2, 2], [0, 0], [1, 1], 1);
        let expected = burn::tensor::module::conv2d(images(&device), weight, None, options).reshape([2, 8, 6]).swap_dims(1, 2);
        let positions = model.embedding.positions.learned.as_ref().unwrap().val().narrow(0, 1, 6).unsqueeze::<3>();
        let found = model.embedding.forward(images(&device), None).narrow(1, 1, 6);
        let difference: f32 = (found - expected - positions).abs().max().into_scalar();
        assert!(difference < 1e-5, "{difference}");
    }

    #[test]
    fn both_ways_of_pooling_train_every_parameter_and_every_pixel_counts() {
        let device = Device::flex().autodiff();
        for (pooling, max_length) in [(Pooling::ClassToken, 7), (Pooling::Mean, 6), (Pooling::LastToken, 6)] {
            let base = tiny();
            let config = VisionConfig { pooling, block: BlockConfig { max_length, ..base.block }, ..base };
            config.validate().unwrap();
            let model = config.init(&RandomKey::from_seed(2), &device);
            let input = images(&device).require_grad();
            let logits = model.forward_with(input.clone(), None, &mut Probe::off()).logits;
            assert_eq!(logits.dims(), [2, 5]);
            let mut gradients = logits.powi_scalar(2).sum().backward();
            let of_pixels = input.grad_remove(&mut gradients).unwrap().into_data();
            assert!(of_pixels.iter::<f32>().all(|gradient| gradient != 0.0), "{pooling:?}");
            let trained = GradientsParams::from_grads(gradients, &model).len();
            assert_eq!(trained, parameters(&model, None).len(), "{pooling:?}");
            assert_eq!(model.embedding.class_token.is_some(), pooling == Pooling::ClassToken);
        }
    }

    #[test]
    fn the_class_token_is_what_the_classifier_reads() {
        let device = Device::flex();
        let mut model = VisionConfig { layers: 1, ..tiny() }.init(&RandomKey::from_seed(2), &device);
        let logits = |model: &VisionTransformer| model.forward(images(&device)).into_data();
        let before = logits(&model);
        model.embedding.class_token = Some(Param::from_tensor(Tensor::ones([1, 8], &device)));
        assert_ne!(before, logits(&model));
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let base = tiny;
        let cases = [
            ("height", VisionConfig { height: 0, ..base() }),
            ("width", VisionConfig { width: 5, ..base() }),
            ("channels", VisionConfig { channels: 0, ..base() }),
            ("patch", VisionConfig { patch: 0, ..base() }),
            ("classes", VisionConfig { classes: 0, ..base() }),
            ("layers", VisionConfig { layers: 0, ..base() }),
            ("max_length", VisionConfig { block: BlockConfig { max_length: 6, ..base().block }, ..base() }),
            ("heads", VisionConfig { block: BlockConfig { heads: 3, ..base().block }, ..base() }),
        ];
        for (option, config) in cases {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("`{option}`")), "{option}: {error}");
        }
        let text = toml::to_string(&base()).unwrap();
        assert_eq!(toml::from_str::<VisionConfig>(&text).unwrap(), base());
    }
}
