//! Contenders by their names: a mechanism, with the layers that it goes into where it is not all of them.

use std::fmt;
use std::str::FromStr;

use heedful_host::names::listed;
use heedful_models::block::layout::{AttentionLayout, LayerAttention};
use heedful_models::pretrained::swap::LayerPattern;
use heedful_runs::settings::Assignment;

use super::SwapConfig;
use crate::session::comparison;
use crate::session::error::ExperimentError;
use crate::session::experiment::Attention;
use crate::session::experiment::definition::{Config, Experiment, UNCHANGED};

/// `LAYERS=NAMES` in two; `None` for names alone, whose options have a `=` as well.
pub(crate) fn split_layers(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(layers, _)| !layers.contains(['{', '[']))
}

/// What a contender replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// Nothing.
    Unchanged,
    /// The attention of these layers, by the mechanism or list of this name.
    Swap { layers: LayerPattern, attention: String },
}

impl FromStr for Contender {
    type Err = ExperimentError;

    /// `unchanged`, `LAYERS=NAME`, or `NAME` for all layers.
    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        if text == UNCHANGED {
            return Ok(Self::Unchanged);
        }
        match split_layers(text) {
            None => Ok(Self::Swap { layers: LayerPattern::ALL, attention: text.to_owned() }),
            Some((layers, attention)) => {
                let layers = layers.trim().parse().map_err(ExperimentError::usage)?;
                Ok(Self::Swap { layers, attention: attention.trim().to_owned() })
            }
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchanged => f.write_str(UNCHANGED),
            Self::Swap { layers, attention } if *layers == LayerPattern::ALL => f.write_str(attention),
            Self::Swap { layers, attention } => write!(f, "{layers}={attention}"),
        }
    }
}

/// The attention of the model that all begin with.
pub(super) fn base(config: &SwapConfig) -> Result<Attention, ExperimentError> {
    comparison::attention(&config.language(), &config.own.start.attention)
}

/// The attention of a contender: that of the model that all begin with, `own`, apart from the layers in which it is replaced. Names of mechanisms mean what
/// they do in `config`.
pub(crate) fn attention<E: Experiment>(config: &Config<E>, own: &LayerAttention, name: &str) -> Result<Attention, ExperimentError> {
    let contender: Contender = name.parse()?;
    let blocks = config.model.depth.blocks(config.model.layers);
    let (contender, chosen, other) = match contender {
        Contender::Unchanged => (contender, Vec::new(), own.clone()),
        Contender::Swap { layers, attention } => {
            let chosen = layers.layers(blocks).map_err(ExperimentError::usage)?;
            let Attention { name, layout } = comparison::attention(config, &attention)?;
            (Contender::Swap { layers, attention: name }, chosen, layout.decoder)
        }
    };
    if let LayerAttention::Each(list) = &other
        && (list.is_empty() || !blocks.is_multiple_of(list.len()))
    {
        return Err(ExperimentError::usage(format!(
            "attention `{name}`: a list of {} does not fit {blocks} layers; give one for each layer, or a number of them that divides {blocks}",
            list.len()
        )));
    }
    let of_layer = |layer: usize| if chosen.contains(&layer) { other.at(layer) } else { own.at(layer) };
    let decoder = LayerAttention::Each((0..blocks).map(|layer| of_layer(layer).clone()).collect());
    let layout = AttentionLayout { encoder: decoder.clone(), decoder, ..AttentionLayout::default() };
    Ok(Attention { name: contender.to_string(), layout })
}
/// The contenders of one `--swap`, each with its layers before it.
fn contenders(text: &str) -> Vec<String> {
    match split_layers(text) {
        None => listed(text).into_iter().map(str::to_owned).collect(),
        Some((layers, names)) => listed(names).into_iter().map(|name| format!("{layers}={name}")).collect(),
    }
}

/// The contenders of all `--swap` and the one that replaces nothing, in their field of the configuration.
pub(crate) fn assignments(swaps: &[String]) -> Vec<Assignment> {
    let all: Vec<String> = std::iter::once(UNCHANGED.to_owned()).chain(swaps.iter().flat_map(|text| contenders(text))).collect();
    vec![Assignment::option("--swap", "run.attention", all)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mechanism_of_a_swap_is_a_contender_in_its_layers() {
        assert_eq!(contenders("layers.*.attention=alibi,uniform"), ["layers.*.attention=alibi", "layers.*.attention=uniform"]);
        assert_eq!(contenders("layers.0,2=[alibi,uniform], relative"), ["layers.0,2=[alibi,uniform]", "layers.0,2=relative"]);
        assert_eq!(contenders("alibi,uniform"), ["alibi", "uniform"]);
        assert_eq!(contenders("sliding-window{window=4},alibi"), ["sliding-window{window=4}", "alibi"]);
    }
}
