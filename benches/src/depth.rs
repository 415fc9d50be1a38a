//! Forward and backward of a language model by the style of its depth: with all activations kept, with those of blocks computed again, or reversible.

use std::fmt;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor};
use clap::ValueEnum;
use heedful_models::prelude::*;
use serde::{Deserialize, Serialize};

use crate::training_step::ModelSizes;

/// How activations are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Activations {
    /// All are kept
    Kept,
    /// Inputs of blocks are kept
    Checkpointed,
    /// Those of the last block are kept
    Reversible,
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}

/// A language model with dot-product attention, dropout on, and a batch.
pub struct Deep {
    model: LanguageModel,
    tokens: Tensor<2, Int>,
}

impl Deep {
    /// A model that reads `batch` rows of `length` tokens, on a device with autodiff.
    ///
    /// # Errors
    /// If the sizes contradict each other.
    pub fn new(activations: Activations, sizes: ModelSizes, batch: usize, length: usize, device: &Device) -> Result<Self, ConfigError> {
        let device = device.clone().autodiff();
        let ModelSizes { vocabulary, layers, d_model, heads, d_ff } = sizes;
        let checkpoint = activations == Activations::Checkpointed;
        let depth = if activations == Activations::Reversible { DepthConfig::Reversible } else { DepthConfig::Stacked };
        let norm_order = NormOrder::Pre;
        let block = BlockConfig { d_model, heads, d_ff, max_length: length, norm_order, checkpoint, ..BlockConfig::default() };
        let config = LanguageModelConfig { vocabulary, layers, block, depth, ..LanguageModelConfig::default() };
        config.validate()?;
        let tokens = sizes.tokens(batch, length, &device);
        Ok(Self { model: config.init(&RandomKey::from_seed(0), &device), tokens })
    }

    /// Bytes of the gradients of all parameters.
    pub fn gradient_bytes(&self) -> u64 {
        (self.model.num_params() * size_of::<f32>()) as u64
    }

    /// Gradients of all parameters.
    pub fn forward_backward(&self) -> GradientsParams {
        let key = Some(RandomKey::from_seed(1));
        let loss = self.model.hidden(self.tokens.clone(), &[], key, &mut Probe::off()).states.powi_scalar(2).mean();
        GradientsParams::from_grads(loss.backward(), &self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_styles_train_the_same_parameters() {
        let sizes = ModelSizes { vocabulary: 11, layers: 2, d_model: 8, heads: 2, d_ff: 16 };
        for activations in [Activations::Kept, Activations::Checkpointed, Activations::Reversible] {
            let deep = Deep::new(activations, sizes, 2, 6, &Device::flex()).unwrap();
            let (layer, outside) = (4 + 4 + 2 + 2, 1 + 2);
            assert_eq!(deep.forward_backward().len(), 2 * layer + outside, "{activations:?}");
            // Four square maps, two of the feed-forward network with biases, two normalisations; vectors of tokens, and a normalisation.
            let (layer, outside) = (4 * 64 + 2 * 8 * 16 + 16 + 8 + 4 * 8, 11 * 8 + 2 * 8);
            assert_eq!(deep.gradient_bytes(), 4 * (2 * layer + outside), "{activations:?}");
        }
    }
}
