//! Initial weights of whole models, as in papers.
//!
//! Modules draw their own weights Xavier-uniformly, as in the Transformer's reference code. Other schemes depend on the place of a weight in the model, which
//! only the model can determine.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use heedful_attention::contract::unit_variant::without_options;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use crate::parts::embedding::EmbeddingScale;

/// Initialisation of the weights of linear maps and embeddings. Biases always start at 0, and other parameters at their modules' values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Initialisation {
    /// Module defaults: Xavier-uniform maps, embeddings with standard deviation `d_model^-0.5`.
    #[default]
    #[serde(deserialize_with = "without_options")]
    Xavier,
    /// As `xavier`, but query, key and value maps have `1 / sqrt(2)` of its deviation, as if drawn as one matrix of three times the width, like fairseq and
    /// PyTorch's `MultiheadAttention`.
    #[serde(deserialize_with = "without_options")]
    PackedXavier,
    /// Normal with one standard deviation everywhere (Dai et al. 2019: 0.02).
    Normal {
        /// The standard deviation, greater than 0.
        deviation: f64,
    },
    /// Normal with one standard deviation everywhere, including tables of positions, segments and class tokens (Devlin et al. 2019: 0.02, and most models
    /// since).
    NormalTables {
        /// The standard deviation, greater than 0.
        deviation: f64,
        /// Whether the last map of each residual branch is scaled by `1 / sqrt(2 N)` in a stack of `N` blocks, the deeper of two (Radford et al. 2019, section
        /// 2.3; default: no).
        #[serde(default)]
        scaled_branches: bool,
    },
    /// Normal with standard deviation `0.125 / sqrt(inputs)`, scaled by `1 / sqrt(2 N)` for the last map of each residual branch in a stack of `N` blocks (the
    /// deeper of two). The output projection is 0, so that all tokens are equally likely at first (Child et al. 2019, section 6). Requires an untied output
    /// projection.
    #[serde(deserialize_with = "without_options")]
    Scaled,
}

impl Initialisation {
    pub(crate) fn validate(&self, check: &Check, is_tied: bool) -> Result<(), ConfigError> {
        match *self {
            Self::Normal { deviation } | Self::NormalTables { deviation, .. } if !(deviation > 0.0 && deviation.is_finite()) => {
                Err(check.refuse("initialisation.deviation", deviation, "give a number greater than 0"))
            }
            Self::Scaled if is_tied => {
                let remedy = "give the output projection a matrix of its own (tied = false, or tying = \"none\"): it begins with 0, which the embedding must not";
                Err(check.refuse("initialisation", "scaled", remedy))
            }
            _ => Ok(()),
        }
    }

    /// The model with redrawn weights, unless it uses Xavier. `blocks` is the number of residual blocks of a stack, `scale` that of embedded tokens.
    pub(crate) fn apply<M: Module>(self, model: M, blocks: usize, scale: EmbeddingScale, key: &RandomKey) -> M {
        if self == Self::Xavier {
            return model;
        }
        model.map(&mut Draw { initialisation: self, blocks, scale, key: key.named("initialisation"), path: Vec::new() })
    }
}

/// Tables other than token embeddings: name and container.
const TABLES: [(&str, &str); 3] =
    [("learned", "Struct:PositionEncoding"), ("segments", "Struct:TokenEmbedding"), ("class_token", "Struct:PatchEmbedding")];

struct Draw {
    initialisation: Initialisation,
    blocks: usize,
    scale: EmbeddingScale,
    key: RandomKey,
    path: Vec<(String, String)>,
}

/// Linear maps that packed projections draw as one matrix.
const PACKED: [&str; 3] = ["query", "key", "value"];

/// Change of a parameter.
enum Change {
    /// Redrawn from a normal distribution with this standard deviation.
    Normal(f64),
    /// Multiplied by a factor.
    Times(f64),
}

impl Draw {
    /// Change of the parameter at this path.
    fn change(&self, shape: &[usize]) -> Option<Change> {
        let at = |back: usize| self.path.iter().rev().nth(back).map_or(("", ""), |(name, container)| (name.as_str(), container.as_str()));
        let (name, container) = at(0);
        let is_linear = (name, container) == ("weight", "Struct:Linear");
        let is_embedding = (name, container) == ("weight", "Struct:Embedding");
        let is_in_layer = self.path.iter().any(|(_, container)| container == "Struct:Block");
        let ends_branch = is_linear && is_in_layer && at(1).0 == "output";
        let of_branch = if ends_branch { (2.0 * self.blocks as f64).powf(-0.5) } else { 1.0 };
        let is_of_grid = at(1).1 == "Struct:GridEncoding";
        match self.initialisation {
            Initialisation::Xavier => None,
            Initialisation::PackedXavier => {
                let is_packed = is_linear && is_in_layer && PACKED.contains(&at(1).0);
                is_packed.then_some(Change::Times(std::f64::consts::FRAC_1_SQRT_2))
            }
            Initialisation::Normal { deviation } => (is_linear || is_embedding).then_some(Change::Normal(deviation)),
            Initialisation::NormalTables { deviation, scaled_branches } => {
                let is_table = is_of_grid || TABLES.contains(&(name, container));
                let deviation = if scaled_branches { deviation * of_branch } else { deviation };
                (is_linear || is_embedding || is_table).then_some(Change::Normal(deviation))
            }
            Initialisation::Scaled if is_linear => {
                if at(1).0 == "output" && !is_in_layer {
                    return Some(Change::Times(0.0));
                }
                Some(Change::Normal(0.125 * of_branch / (shape[0] as f64).sqrt()))
            }
            // They already have `1 / sqrt(width)`. With `EmbeddingScale::Sqrt`, embedded tokens are multiplied by `sqrt(width)`, unlike in the paper.
            Initialisation::Scaled if is_embedding => Some(Change::Times(match self.scale {
                EmbeddingScale::Sqrt => 0.125 / (shape[1] as f64).sqrt(),
                EmbeddingScale::None => 0.125,
            })),
            // These already have `1 / sqrt(width)`, or less if several are added.
            Initialisation::Scaled if is_of_grid || container == "Struct:PositionEncoding" => Some(Change::Times(0.125)),
            Initialisation::Scaled => None,
        }
    }
}

impl ModuleMapper for Draw {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push((name.to_owned(), container_type.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(change) = self.change(&param.val().dims()) else { return param };
        let key = self.path.iter().fold(self.key, |key, (name, _)| key.named(name));
        param.map(|old| {
            let new = match change {
                Change::Normal(deviation) => Init::Normal(deviation as f32).tensor(old.dims(), &key, &old.device()),
                Change::Times(factor) => (old.clone() * factor).detach(),
            };
            new.set_require_grad(old.is_require_grad())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Int};
    use heedful_attention::mechanisms::dot_product::DotProduct;

    use crate::architectures::classifier::ClassifierConfig;
    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::block::BlockConfig;
    use crate::parts::position::{GridConfig, PositionConfig};

    fn model(initialisation: Initialisation) -> LanguageModel {
        let block = BlockConfig { d_model: 64, heads: 2, d_ff: 256, max_length: 64, ..BlockConfig::default() };
        let positions = PositionConfig::Grid(GridConfig::new(8, 8));
        let config = LanguageModelConfig {
            vocabulary: 100,
            layers: 8,
            block,
            positions,
            initialisation,
            tied: false,
            ..LanguageModelConfig::default()
        };
        config.validate().unwrap();
        config.init(&RandomKey::from_seed(5), &Device::flex().autodiff())
    }

    fn deviation<const D: usize>(parameter: &Param<Tensor<D>>) -> f64 {
        assert!(parameter.is_require_grad());
        parameter.val().powi_scalar(2).mean().into_scalar::<f64>().sqrt()
    }

    fn assert_close(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 0.1, "{found} is not {wanted}");
    }

    #[test]
    fn scaled_weights_have_the_deviations_of_the_paper() {
        let model = model(Initialisation::Scaled);
        for block in &model.decoder.layers {
            assert_close(deviation(&block.feed_forward.as_ref().unwrap().input.weight), 0.125 / 8.0);
            assert_close(deviation(&block.feed_forward.as_ref().unwrap().output.weight), 0.125 / 16.0 / 4.0);
            let attention = block.self_attention.as_softmax().unwrap();
            assert_close(deviation(&attention.value.weight), 0.125 / 8.0);
            assert_close(deviation(&attention.output.weight), 0.125 / 8.0 / 4.0);
        }
        assert_close(8.0 * deviation(&model.embedding.tokens.weight), 0.125 / 8.0);
        let grid = model.embedding.positions.grid.as_ref().unwrap();
        assert_close(deviation(&grid.tables[1]), 0.125 / (64.0f64 * 2.0).sqrt());
        assert_eq!(deviation(&model.output.as_ref().unwrap().weight), 0.0);
        let norm = model.decoder.layers[3].feed_forward_residual.as_ref().unwrap().norm.as_ref().unwrap();
        assert_eq!(deviation(&norm.gamma), 1.0);
    }

    #[test]
    fn all_tokens_are_equally_likely_at_first() {
        let device = Device::flex().autodiff();
        let logits =
            model(Initialisation::Scaled).forward_with(Tensor::<2, Int>::from_data([[3, 5]], &device), &[], None, &mut Probe::off()).logits;
        assert!(logits.into_data().iter::<f32>().all(|logit| logit == 0.0));
    }

    #[test]
    fn embedded_tokens_have_the_deviation_of_the_paper_whatever_they_are_multiplied_by() {
        for (embedding_scale, factor) in [(EmbeddingScale::Sqrt, 8.0), (EmbeddingScale::None, 1.0)] {
            let block = BlockConfig { d_model: 64, heads: 2, d_ff: 64, max_length: 64, ..BlockConfig::default() };
            let config = LanguageModelConfig {
                vocabulary: 100,
                layers: 1,
                block,
                initialisation: Initialisation::Scaled,
                tied: false,
                embedding_scale,
                ..LanguageModelConfig::default()
            };
            let model = config.init(&RandomKey::from_seed(5), &Device::flex().autodiff());
            assert_close(factor * deviation(&model.embedding.tokens.weight), 0.125 / 8.0);
        }
    }

    /// Bound of a Xavier-uniform matrix of this shape, whose values come near to it.
    fn assert_bound(parameter: &Param<Tensor<2>>, inputs: f64, outputs: f64) {
        let largest = parameter.val().abs().max().into_scalar::<f64>();
        let bound = (6.0 / (inputs + outputs)).sqrt();
        assert!(largest <= bound && largest > 0.99 * bound, "{largest} of {bound}");
    }

    #[test]
    fn packed_maps_have_the_interval_of_one_matrix_of_three_times_the_width() {
        let model = model(Initialisation::PackedXavier);
        let block = &model.decoder.layers[2];
        let attention = block.self_attention.as_softmax().unwrap();
        assert_bound(&attention.value.weight, 64.0, 3.0 * 64.0);
        let scores = block.self_attention.logits::<DotProduct>().unwrap();
        assert_bound(&scores.query.weight, 64.0, 3.0 * 64.0);
        assert_bound(&scores.key.weight, 64.0, 3.0 * 64.0);
        assert_bound(&attention.output.weight, 64.0, 64.0);
        assert_bound(&block.feed_forward.as_ref().unwrap().input.weight, 64.0, 256.0);
        assert_eq!(
            model.embedding.tokens.weight.val().into_data(),
            self::model(Initialisation::Xavier).embedding.tokens.weight.val().into_data()
        );
    }

    #[test]
    fn normal_weights_have_one_deviation() {
        let model = model(Initialisation::Normal { deviation: 0.02 });
        assert_close(deviation(&model.embedding.tokens.weight), 0.02);
        assert_close(deviation(&model.decoder.layers[1].feed_forward.as_ref().unwrap().output.weight), 0.02);
        assert_close(deviation(&model.output.as_ref().unwrap().weight), 0.02);
        let weights = |layer: usize| model.decoder.layers[layer].feed_forward.as_ref().unwrap().input.weight.val().into_data();
        assert_ne!(weights(0), weights(1));
    }

    #[test]
    fn normal_tables_have_the_deviation_and_ends_of_branches_a_part_of_it() {
        for (scaled_branches, of_branch) in [(false, 1.0), (true, 0.25)] {
            let initialisation = Initialisation::NormalTables { deviation: 0.02, scaled_branches };
            let model = model(initialisation);
            assert_close(deviation(&model.embedding.tokens.weight), 0.02);
            assert_close(deviation(&model.embedding.positions.grid.as_ref().unwrap().tables[0]), 0.02);
            assert_close(deviation(&model.output.as_ref().unwrap().weight), 0.02);
            let block = &model.decoder.layers[3];
            assert_close(deviation(&block.feed_forward.as_ref().unwrap().input.weight), 0.02);
            assert_close(deviation(&block.feed_forward.as_ref().unwrap().output.weight), 0.02 * of_branch);
            let attention = block.self_attention.as_softmax().unwrap();
            assert_close(deviation(&attention.value.weight), 0.02);
            assert_close(deviation(&attention.output.weight), 0.02 * of_branch);
            let block = BlockConfig { d_model: 64, heads: 2, d_ff: 64, max_length: 64, ..BlockConfig::default() };
            let config = ClassifierConfig {
                vocabulary: 9,
                outputs: 2,
                layers: 1,
                block,
                positions: PositionConfig::Learned,
                segments: true,
                initialisation,
                ..ClassifierConfig::default()
            };
            let embedding = config.init(&RandomKey::from_seed(5), &Device::flex().autodiff()).embedding;
            assert_close(deviation(embedding.positions.learned.as_ref().unwrap()), 0.02);
            assert!((deviation(embedding.segments.as_ref().unwrap()) / 0.02 - 1.0).abs() < 0.3);
        }
    }

    #[test]
    fn initialisations_are_read_and_impossible_ones_refused() {
        let read = |text: &str| toml::from_str::<LanguageModelConfig>(&format!("vocabulary = 9\n{text}")).unwrap();
        assert_eq!(read("initialisation = { kind = 'normal', deviation = 0.5 }").initialisation, Initialisation::Normal { deviation: 0.5 });
        let tables = read("initialisation = { kind = 'normal-tables', deviation = 0.5 }").initialisation;
        assert_eq!(tables, Initialisation::NormalTables { deviation: 0.5, scaled_branches: false });
        assert_eq!(read("initialisation = { kind = 'packed-xavier' }").initialisation, Initialisation::PackedXavier);
        assert!(read("tied = false\ninitialisation = { kind = 'scaled' }").validate().is_ok());
        for (text, option) in [
            ("initialisation = { kind = 'scaled' }", "initialisation"),
            ("initialisation = { kind = 'normal', deviation = 0.0 }", "initialisation.deviation"),
            ("initialisation = { kind = 'normal-tables', deviation = -1.0 }", "initialisation.deviation"),
        ] {
            let error = read(text).validate().unwrap_err().to_string();
            assert!(error.contains(&format!("`{option}`")), "{error}");
        }
    }
}
