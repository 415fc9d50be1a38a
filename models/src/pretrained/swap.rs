//! Replacing the attention in chosen layers of a trained model: a [`LanguageModel`] or a [`Classifier`].
//!
//! Every weight that fits the new model is kept: those of all other parts, and the shared projections of the replaced attention. Nearly every mechanism keeps
//! values and output; mechanisms that score with queries and keys keep those too. Parameters match by the end of their path, such as `value.weight`, and their
//! shape; the middle of the path (`Softmax.logits.DotProduct`) names the mechanism. Mechanism-specific parameters, such as the matrix of a random synthesizer,
//! are kept if the new attention has the same one. [`SwapReport`] lists kept, new and dropped parameters.
//!
//! ```
//! # use burn::tensor::Device;
//! use heedful_models::prelude::*;
//! use heedful_models::pretrained::swap::swap_attention;
//!
//! # let config = LanguageModelConfig::new(11).with_layers(2).with_d_model(8).with_n_heads(2).with_d_ff(16);
//! # let model = config.build(&Device::flex())?; // trained, or read from a file
//! let swapped = swap_attention(model, &config, &"layers.1".parse()?, "synthesizer-random", &RandomKey::from_seed(1))?;
//! println!("{}", swapped.report); // layer 1: kept 128 of 256 parameters (0.50): output.weight [8, 8], ...
//! # assert_eq!(swapped.report.kept_parameters(), 128);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pattern;
mod places;
mod report;

use burn::module::Module;
use burn::tensor::Device;
use heedful_attention::prelude::*;
use heedful_attention::registry::constraints;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use thiserror::Error;

pub use self::pattern::{LayerPattern, LayerPatternError};
use self::places::{Named, matched};
pub use self::report::{Dropped, Kept, New, Reason, SwapReport};
use crate::architectures::classifier::{Classifier, ClassifierConfig};
use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
use crate::block::layout::{IntoLayers, LayerAttention};
use crate::training::weights::{Differences, WeightsError, partly_from_bytes, to_bytes};

/// An invalid swap.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SwapError {
    /// A layer outside of the model.
    #[error(transparent)]
    Layers(#[from] LayerPatternError),
    /// An attention that one of the layers does not support.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A model without the configuration's parameters, apart from the swapped layers.
    #[error("the model is not of this configuration: {0}")]
    Model(#[from] WeightsError),
}

/// A model after a swap.
#[derive(Debug)]
pub struct Swapped<C: Swappable = LanguageModelConfig> {
    /// The model: kept weights, and initial values of new ones.
    pub model: C::Model,
    /// Its configuration.
    pub config: C,
    /// Report of kept, new and dropped parameters of the replaced attentions.
    pub report: SwapReport,
}

/// Configuration of a model with one stack of layers and replaceable attention.
pub trait Swappable: Clone {
    /// Its model.
    type Model: Module;
    /// Name of the model in messages.
    const NAME: &'static str;
    /// Path of the layers in the model.
    const LAYERS: &'static str;

    /// Number of layers with separate weights.
    fn blocks(&self) -> usize;

    /// Attention of the layers.
    fn attention(&self) -> &LayerAttention;

    /// The configuration with another attention in the layers.
    fn with_layer_attention(self, attention: LayerAttention) -> Self;

    /// The configuration without options that no layer's attention supports: attention biases, shared key and value heads, and head width. If only some layers
    /// do not support them, only these are built without.
    fn fitted_to_attention(self) -> Self;

    /// Checks the configuration.
    ///
    /// # Errors
    /// An invalid option, or an attention that does not support it.
    fn check(&self) -> Result<(), ConfigError>;

    /// A model with initial weights from `key`.
    fn initial(&self, key: &RandomKey, device: &Device) -> Self::Model;

    /// Device of a model.
    fn device_of(model: &Self::Model) -> Device;

    /// The configuration with another attention in chosen layers: layer `i` gets that of layer `i` in `attention`.
    ///
    /// # Errors
    /// A layer outside of the model, or an attention that a layer does not support.
    fn swapped<Form>(&self, layers: &LayerPattern, attention: impl IntoLayers<Form>) -> Result<Self, SwapError> {
        let count = self.blocks();
        self.check()?;
        let chosen = layers.layers(count)?;
        let attention = attention.into_layers();
        attention.validate_length(&Check::of(Self::NAME), "attention", count)?;
        let of_layer = |layer: usize| -> &AnyMechanism {
            let own = if chosen.contains(&layer) { &attention } else { self.attention() };
            own.at(layer)
        };
        let attention = LayerAttention::Each((0..count).map(|layer| of_layer(layer).clone()).collect());
        let config = self.clone().with_layer_attention(attention).fitted_to_attention();
        config.check()?;
        Ok(config)
    }
}

macro_rules! swappable {
    ($config:ident, $model:ident, $name:literal, $layers:literal) => {
        impl Swappable for $config {
            type Model = $model;
            const NAME: &'static str = $name;
            const LAYERS: &'static str = $layers;

            fn blocks(&self) -> usize {
                self.depth.blocks(self.layers)
            }

            fn attention(&self) -> &LayerAttention {
                &self.attention
            }

            fn with_layer_attention(self, attention: LayerAttention) -> Self {
                Self { attention, ..self }
            }

            fn fitted_to_attention(self) -> Self {
                Self { block: self.attention.fitted(self.block), ..self }
            }

            fn check(&self) -> Result<(), ConfigError> {
                self.validate()
            }

            fn initial(&self, key: &RandomKey, device: &Device) -> $model {
                self.init(key, device)
            }

            fn device_of(model: &$model) -> Device {
                model.embedding.tokens.weight.device()
            }
        }
    };
}

swappable!(LanguageModelConfig, LanguageModel, "language model", "decoder.layers");
swappable!(ClassifierConfig, Classifier, "classifier", "encoder.layers");

/// Replaces the attention in chosen layers of `model`, which has this configuration: layer `i` gets that of layer `i` in `attention`. New parameters have
/// initial values drawn from `key`, as in a model of the new configuration. The device does not change; the new configuration determines the trained
/// parameters.
///
/// # Errors
/// A layer outside of the model, an attention that a layer does not support, or a model of another configuration.
pub fn swap_attention<C: Swappable, Form>(
    model: C::Model,
    config: &C,
    layers: &LayerPattern,
    attention: impl IntoLayers<Form>,
    key: &RandomKey,
) -> Result<Swapped<C>, SwapError> {
    replaced(model, config, layers, attention, key, matched)
}

/// The same with initial values of all parameters of the new attentions, including those that [`swap_attention`] would keep: a control that measures the
/// benefit of kept weights.
///
/// # Errors
/// As [`swap_attention`].
pub fn reinitialise_attention<C: Swappable, Form>(
    model: C::Model,
    config: &C,
    layers: &LayerPattern,
    attention: impl IntoLayers<Form>,
    key: &RandomKey,
) -> Result<Swapped<C>, SwapError> {
    replaced(model, config, layers, attention, key, places::reinitialised)
}

/// Matches the old parameters of an attention with the new ones.
type Matching = fn(&[Named], &[Named], &mut SwapReport);

fn replaced<C: Swappable, Form>(
    model: C::Model,
    config: &C,
    layers: &LayerPattern,
    attention: impl IntoLayers<Form>,
    key: &RandomKey,
    matching: Matching,
) -> Result<Swapped<C>, SwapError> {
    let config = config.swapped(layers, attention)?;
    let chosen = layers.layers(config.blocks())?;
    let new = config.initial(key, &C::device_of(&model));
    let places: Vec<String> = chosen.iter().map(|layer| format!("{}.{layer}.self_attention", C::LAYERS)).collect();
    let (model, report) = carry_over(&model, new, chosen, &places, matching)?;
    Ok(Swapped { model, config, report })
}

/// `to` with the parameters of `from`: all parameters outside of `places`, and within each place those that `matching` keeps.
fn carry_over<M: Module>(from: &M, to: M, layers: Vec<usize>, places: &[String], matching: Matching) -> Result<(M, SwapReport), SwapError> {
    let (old, new) = (to_bytes(from), to_bytes(&to));
    let [old, new] = [&old, &new].map(|bytes| SafeTensors::deserialize(bytes).expect("the bytes were just written"));
    let place = |name: &str| places.iter().position(|place| name.strip_prefix(place.as_str()).is_some_and(|rest| rest.starts_with('.')));
    let of_place = |file: &SafeTensors<'_>, wanted: usize| -> Vec<Named> {
        let found = file.iter().filter(|(name, _)| place(name) == Some(wanted));
        let mut found: Vec<Named> = found.map(|(name, view)| Named { name: name.to_owned(), shape: view.shape().to_vec() }).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    };
    let mut report = SwapReport { layers, ..SwapReport::default() };
    for index in 0..places.len() {
        matching(&of_place(&old, index), &of_place(&new, index), &mut report);
    }
    let outside = old.iter().filter(|(name, _)| place(name).is_none()).map(|(name, view)| (name.to_owned(), view));
    let kept = report.kept.iter().map(|kept| (kept.name.clone(), old.tensor(&kept.before).expect("it is in the list of all")));
    let tensors: Vec<(String, TensorView<'_>)> = outside.chain(kept).collect();
    let bytes = safetensors::serialize(tensors, None).map_err(|error| WeightsError::Format(error.to_string()))?;
    let (model, Differences { mut missing, unused }) = partly_from_bytes(to, bytes)?;
    // Parameters unchanged by loading are those reported as new.
    missing.retain(|name| report.new.iter().all(|new| new.name != *name));
    if !missing.is_empty() || !unused.is_empty() {
        return Err(WeightsError::Mismatch { missing, unused }.into());
    }
    // Files store each of the parameters shared by layers separately.
    Ok((constraints::tie(model), report))
}
