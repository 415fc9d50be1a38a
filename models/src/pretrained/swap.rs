//! Another attention in chosen layers of a trained model: a [`LanguageModel`] or a [`Classifier`].
//!
//! Every weight that still has a place is kept: those of all other parts, and of the attention that is replaced the projections that mechanisms share. Values
//! and output are kept by nearly every mechanism, queries and keys by those that score with them. A place is the end of a parameter's path, `value.weight`, and
//! its shape; what stands between (`Softmax.logits.DotProduct`) says which mechanism it is of. Parameters that only one mechanism has, such as the matrix of a
//! random synthesizer, are kept where the new attention has the same one. [`SwapReport`] names what was kept, what is new and what was dropped.
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

/// A swap that cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SwapError {
    /// A layer that the model does not have.
    #[error(transparent)]
    Layers(#[from] LayerPatternError),
    /// An attention that is impossible in one of the layers.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The model does not have the parameters of the configuration, apart from the layers that are swapped.
    #[error("the model is not of this configuration: {0}")]
    Model(#[from] WeightsError),
}

/// A model after a swap.
#[derive(Debug)]
pub struct Swapped<C: Swappable = LanguageModelConfig> {
    /// The model: the weights that were kept, and what is new with initial values.
    pub model: C::Model,
    /// Its configuration.
    pub config: C,
    /// What became of the parameters of the attentions that were replaced, and which are new.
    pub report: SwapReport,
}

/// The configuration of a model with one stack of layers, whose attention can be replaced.
pub trait Swappable: Clone {
    /// The model that it describes.
    type Model: Module;
    /// What messages call the model.
    const NAME: &'static str;
    /// The path of the layers in the model.
    const LAYERS: &'static str;

    /// Number of layers with weights of their own.
    fn blocks(&self) -> usize;

    /// The attention of the layers.
    fn attention(&self) -> &LayerAttention;

    /// The configuration with another attention of the layers.
    fn with_layer_attention(self, attention: LayerAttention) -> Self;

    /// The configuration without what the attention of no layer can have: biases of attentions, heads that share keys and values, and a width of heads. Where
    /// only some layers cannot have them, these alone are built without.
    fn fitted_to_attention(self) -> Self;

    /// Checks the configuration.
    ///
    /// # Errors
    /// An impossible option, or an attention that it is impossible for.
    fn check(&self) -> Result<(), ConfigError>;

    /// A model with initial weights from `key`.
    fn initial(&self, key: &RandomKey, device: &Device) -> Self::Model;

    /// Where a model is.
    fn device_of(model: &Self::Model) -> Device;

    /// The configuration with another attention in chosen layers: in layer `i` that of layer `i` in `attention`.
    ///
    /// # Errors
    /// A layer that the model does not have, or an attention that is impossible in one.
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

/// `model`, which has this configuration, with another attention in chosen layers: in layer `i` that of layer `i` in `attention`. What is new has initial
/// values drawn from `key`, as a model of the new configuration has them. The device stays; which parameters are trained is what the new configuration says.
///
/// # Errors
/// A layer that the model does not have, an attention that is impossible in one, or a model of another configuration.
pub fn swap_attention<C: Swappable, Form>(
    model: C::Model,
    config: &C,
    layers: &LayerPattern,
    attention: impl IntoLayers<Form>,
    key: &RandomKey,
) -> Result<Swapped<C>, SwapError> {
    replaced(model, config, layers, attention, key, matched)
}

/// The same with initial values of all parameters of the new attentions, those included that [`swap_attention`] would keep: the control that tells what the
/// kept weights were worth.
///
/// # Errors
/// Those of [`swap_attention`].
pub fn reinitialise_attention<C: Swappable, Form>(
    model: C::Model,
    config: &C,
    layers: &LayerPattern,
    attention: impl IntoLayers<Form>,
    key: &RandomKey,
) -> Result<Swapped<C>, SwapError> {
    replaced(model, config, layers, attention, key, places::reinitialised)
}

/// Says of the old parameters of an attention and of the new ones what becomes of them.
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

/// `to` with the parameters of `from`: all outside of `places`, which both have, and in each of the places those that `matching` keeps.
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
    // What loading leaves as it was is what the report calls new.
    missing.retain(|name| report.new.iter().all(|new| new.name != *name));
    if !missing.is_empty() || !unused.is_empty() {
        return Err(WeightsError::Mismatch { missing, unused }.into());
    }
    // A file holds each of the parameters that layers share by itself.
    Ok((constraints::tie(model), report))
}
