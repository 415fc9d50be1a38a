//! Configuration of the Vision Transformer.

use burn::module::Module;
use burn::tensor::Device;
use derive_setters::Setters;
use heedful_attention::contract::init;
use heedful_attention::contract::training::Training;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::{PatchEmbedding, VisionTransformer};
use crate::architectures::classifier::Pooling;
use crate::block::BlockConfig;
use crate::block::builders::{model_builders, one_stack_builders};
use crate::block::initialisation::Initialisation;
use crate::block::layer_sharing::DepthConfig;
use crate::block::layout::LayerAttention;
use crate::block::stack::StackConfig;
use crate::parts::embedding::EmbeddingScale;
use crate::parts::position::PositionConfig;

/// Configuration of [`VisionTransformer`]. The number of classes must be given.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Tensor};
/// use heedful_models::prelude::*;
///
/// let device = Device::flex();
/// let config = VisionConfig::new(10).with_image(8, 8, 1).with_patch(4).with_layers(1).with_d_model(16).with_n_heads(2).with_d_ff(32);
/// let logits = config.build(&device)?.forward(Tensor::ones([2, 1, 8, 8], &device)); // [2, 10]
/// # assert_eq!(logits.dims(), [2, 10]);
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", strip_option)]
pub struct VisionConfig {
    /// Rows of pixels, a multiple of `patch` (default 224).
    #[setters(skip)]
    pub height: usize,
    /// Columns of pixels, a multiple of `patch` (default 224).
    #[setters(skip)]
    pub width: usize,
    /// Channels per pixel (default 3).
    #[setters(skip)]
    pub channels: usize,
    /// Rows and columns of a patch (default 16).
    pub patch: usize,
    /// Number of classes.
    pub classes: usize,
    /// Self-attention of the layers (default: dot-product).
    #[setters(skip)]
    pub attention: LayerAttention,
    /// Number of layers, at least 1 (default 6).
    pub layers: usize,
    /// Sizes and options of all layers. `max_length` must cover the patches and the class token.
    pub block: BlockConfig,
    /// Position vectors (default: learned).
    pub positions: PositionConfig,
    /// Sharing of weights across layers (default: each layer has its own).
    pub depth: DepthConfig,
    /// Initialisation of the weights (default: that of each module, Xavier-uniform).
    pub initialisation: Initialisation,
    /// Pooling of the hidden states (default: the state of a class token before the patches; mean pooling uses no class token).
    pub pooling: Pooling,
    /// Seed of [`build`](Self::build) and of the dropout of `forward`, with equal numbers on every backend (default: drawn from the device's generator).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Default for VisionConfig {
    fn default() -> Self {
        Self {
            height: 224,
            width: 224,
            channels: 3,
            patch: 16,
            classes: 0,
            attention: LayerAttention::default(),
            layers: 6,
            block: BlockConfig::default(),
            positions: PositionConfig::Learned,
            depth: DepthConfig::default(),
            initialisation: Initialisation::default(),
            pooling: Pooling::default(),
            seed: None,
        }
    }
}

model_builders!(VisionConfig, VisionTransformer);
one_stack_builders!(VisionConfig, VisionTransformer);

impl VisionConfig {
    /// Configuration for this number of classes, at least 1.
    pub fn new(classes: usize) -> Self {
        Self { classes, ..Self::default() }
    }

    /// Sets rows and columns of pixels, multiples of the patch size, and channels per pixel (default 224, 224 and 3).
    pub fn with_image(mut self, height: usize, width: usize, channels: usize) -> Self {
        (self.height, self.width, self.channels) = (height, width, channels);
        self
    }

    /// Sequence length: the patches, and the class token if used.
    pub fn length(&self) -> usize {
        let patches = (self.height / self.patch.max(1)).saturating_mul(self.width / self.patch.max(1));
        patches.saturating_add(usize::from(self.pooling == Pooling::ClassToken))
    }

    /// Numbers per patch.
    pub(crate) fn patch_size(&self) -> usize {
        self.channels * self.patch * self.patch
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// An invalid option, or an attention that does not support it; the message names both and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("vision transformer");
        for (option, value) in [("channels", self.channels), ("patch", self.patch), ("layers", self.layers)] {
            check.at_least_one(option, value)?;
        }
        for (option, pixels) in [("height", self.height), ("width", self.width)] {
            if pixels == 0 || !pixels.is_multiple_of(self.patch) {
                return Err(check.refuse(option, pixels, format!("give a multiple of patch = {}", self.patch)));
            }
        }
        if self.classes == 0 {
            return Err(check.refuse("classes", 0, "give the number of classes"));
        }
        self.block.validate(&check)?;
        self.block.validate_without_padding(&check, "images are not padded")?;
        if self.block.max_length < self.length() {
            let remedy = format!("give at least {}: the patches and the class token are so many elements", self.length());
            return Err(check.refuse("max_length", self.block.max_length, remedy));
        }
        self.initialisation.validate(&check, false)?;
        self.stack().validate(&check, &self.attention)
    }

    pub(crate) fn stack(&self) -> StackConfig {
        let Self { block, layers, depth, positions, .. } = *self;
        StackConfig::new(Role::Encoder, block, layers, depth, positions).fitted_to(&self.attention)
    }

    /// Initialises the model with attentions that `build` creates from their place and key, instead of those in [`attention`](Self::attention).
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init_with<A: Attention>(
        &self,
        key: &RandomKey,
        device: &Device,
        build: impl Fn(&LayerSpec, &RandomKey, &Device) -> A,
    ) -> VisionTransformer<A> {
        let BlockConfig { d_model, max_length, position_offset, dropout, .. } = self.block;
        let embedding = key.named("embedding");
        let deviation = Init::Normal((d_model as f32).powf(-0.5));
        let positions = self.depth.embedded_positions(self.positions);
        let encoder = self.stack().init_with(&key.named("encoder"), device, &build);
        let model = VisionTransformer {
            embedding: PatchEmbedding {
                patches: init::linear(self.patch_size(), d_model, true, &embedding.named("patches"), device),
                class_token: (self.pooling == Pooling::ClassToken)
                    .then(|| deviation.parameter([1, d_model], &embedding.named("class_token"), device)),
                positions: positions.init(max_length, d_model, &embedding.named("positions"), device).with_offset(position_offset),
                patch: self.patch,
                dropout,
            },
            encoder: if self.pooling == Pooling::MeanEmbeddings { encoder.freeze() } else { encoder },
            output: init::linear(d_model, self.classes, true, &key.named("output"), device),
            pooling: self.pooling,
            training: Training::new(&key.named("plain")),
        };
        self.initialisation.apply(model, self.layers, EmbeddingScale::default(), key)
    }
}
