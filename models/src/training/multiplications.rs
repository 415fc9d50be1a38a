//! Multiplication counts of models, computed without running them: [`heedful_attention::description::multiplications`] for attentions, and the surrounding
//! linear maps.
//!
//! A matrix that serves as embedding and output projection counts only as projection. Layers that share a block count as often as the block is applied; early
//! halting is not considered. For an adaptive softmax the count covers the probabilities of all tokens, although its loss computes a tail only for its own
//! targets. For adaptive input vectors it covers the projections of all clusters.

use heedful_attention::description::multiplications::{Multiplications, multiplications, weights_of_maps};

use crate::architectures::classifier::{Classifier, ClassifierConfig};
use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
use crate::architectures::seq2seq::{Seq2SeqConfig, Seq2SeqTransformer};
use crate::block::stack::{Stack, StackConfig};

impl StackConfig {
    /// Multiplications of the stack with these attentions for one sequence of `length` tokens and a memory of `memory` tokens.
    fn multiplications(&self, stack: &Stack, length: usize, memory: usize) -> Multiplications {
        let mut places = self.specs();
        let of_block: Vec<Multiplications> = stack
            .layers
            .iter()
            .map(|block| {
                let attentions = [(Some(&block.self_attention), length), (block.cross_attention.as_ref(), memory)];
                let counted = attentions.into_iter().filter_map(|(built, keys)| Some((built?, keys))).map(|(built, keys)| {
                    let place = places.next().expect("there is a place for each attention");
                    (multiplications(built, &place, 0..length, keys), weights_of_maps(built))
                });
                let (of_attentions, of_their_maps) =
                    counted.fold((Multiplications::default(), 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                of_attentions + maps(weights_of_maps(block) - of_their_maps, length)
            })
            .collect();
        of_block.iter().copied().cycle().take(self.layers).sum()
    }
}

impl ClassifierConfig {
    /// Multiplications of a forward pass of this configuration's model, for one sequence of `length` tokens, `hidden` of them
    /// [`masked`](crate::architectures::masked) and predicted by the token embeddings.
    pub fn multiplications(&self, model: &Classifier, length: usize, hidden: f64) -> Multiplications {
        let stack = self.stack().multiplications(&model.encoder, length, 0);
        stack + Multiplications { maps: hidden * (self.vocabulary * self.block.d_model) as f64, pairs: 0.0 }
    }
}

impl LanguageModelConfig {
    /// Multiplications of a forward pass of this configuration's model, for one sequence of `length` tokens.
    pub fn multiplications(&self, model: &LanguageModel, length: usize) -> Multiplications {
        let d_model = self.block.d_model;
        let around = match &self.adaptive {
            Some(adaptive) => {
                let projections: usize = adaptive.clusters(self.vocabulary, d_model).map(|cluster| cluster.width * d_model).sum();
                projections + adaptive.softmax_parameters(self.vocabulary, d_model, false) as usize
            }
            None => self.vocabulary * d_model,
        };
        self.stack().multiplications(&model.decoder, length, 0) + maps(around, length)
    }
}

impl Seq2SeqConfig {
    /// Multiplications of a forward pass of this configuration's model, for one pair of source and target with these lengths.
    pub fn multiplications(&self, model: &Seq2SeqTransformer, source: usize, target: usize) -> Multiplications {
        self.encoder_stack().multiplications(&model.encoder, source, 0)
            + self.decoder_stack().multiplications(&model.decoder, target, source)
            + maps(self.target_vocabulary * self.block.d_model, target)
    }
}

fn maps(weights: usize, elements: usize) -> Multiplications {
    Multiplications { pairs: 0.0, maps: (weights * elements) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use heedful_random::RandomKey;

    use crate::block::layer_sharing::{DepthConfig, SharedConfig};
    use crate::block::{BlockConfig, FeedForwardIn};
    use crate::parts::adaptive_softmax::AdaptiveConfig;

    const C: usize = 8;
    const F: usize = 12;

    fn block() -> BlockConfig {
        BlockConfig { d_model: C, heads: 2, d_ff: F, max_length: 32, ..BlockConfig::default() }
    }

    fn of_classifier(config: &ClassifierConfig, length: usize, hidden: f64) -> Multiplications {
        config.multiplications(&config.init(&RandomKey::from_seed(0), &Device::flex()), length, hidden)
    }

    #[test]
    fn an_encoder_is_counted_by_its_formula() {
        let config = ClassifierConfig { vocabulary: 50, outputs: 3, layers: 2, block: block(), ..ClassifierConfig::default() };
        let found = of_classifier(&config, 10, 1.5);
        let layer = 4 * C * C + 2 * C * F;
        let expected = Multiplications { pairs: (2 * 10 * 10 * 2 * C) as f64, maps: (2 * 10 * layer) as f64 + 1.5 * (50 * C) as f64 };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_shared_block_is_counted_as_often_as_it_is_applied() {
        let stacked = ClassifierConfig { vocabulary: 50, outputs: 3, layers: 4, block: block(), ..ClassifierConfig::default() };
        let shared = ClassifierConfig { depth: DepthConfig::Shared(SharedConfig::default()), ..stacked.clone() };
        assert_eq!(of_classifier(&shared, 10, 0.0), of_classifier(&stacked, 10, 0.0));
    }

    #[test]
    fn a_language_model_is_counted_by_its_formula() {
        let config = LanguageModelConfig { vocabulary: 50, layers: 2, block: block(), ..LanguageModelConfig::default() };
        let without = LanguageModelConfig { block: BlockConfig { feed_forward_in: FeedForwardIn::None, ..block() }, ..config.clone() };
        let counted = |config: &LanguageModelConfig| config.multiplications(&config.init(&RandomKey::from_seed(0), &Device::flex()), 10);
        let pairs = (2 * 55 * 2 * C) as f64;
        assert_eq!(counted(&config), Multiplications { pairs, maps: (10 * (2 * (4 * C * C + 2 * C * F) + 50 * C)) as f64 });
        assert_eq!(counted(&without), Multiplications { pairs, maps: (10 * (2 * 4 * C * C + 50 * C)) as f64 });
        let adaptive = LanguageModelConfig { adaptive: Some(AdaptiveConfig::new([20]).with_div(2.0)), ..without };
        let (input, output) = (C * C + C / 2 * C, 20 * C + C + C / 2 * C + 30 * C / 2);
        assert_eq!(counted(&adaptive), Multiplications { pairs, maps: (10 * (2 * 4 * C * C + input + output)) as f64 });
    }

    #[test]
    fn an_encoder_decoder_is_counted_by_its_formula() {
        let config = Seq2SeqConfig {
            source_vocabulary: 50,
            target_vocabulary: 50,
            encoder_layers: 1,
            decoder_layers: 1,
            block: block(),
            ..Seq2SeqConfig::default()
        };
        let model = config.init(&RandomKey::from_seed(0), &Device::flex());
        let (source, target) = (7, 5);
        let encoder = Multiplications { pairs: (source * source * 2 * C) as f64, maps: (source * (4 * C * C + 2 * C * F)) as f64 };
        let causal = target * (target + 1) / 2;
        let decoder = Multiplications {
            pairs: ((causal + source * target) * 2 * C) as f64,
            maps: (target * (4 * C * C + 2 * C * F) + (2 * target + 2 * source) * C * C + target * 50 * C) as f64,
        };
        assert_eq!(config.multiplications(&model, source, target), encoder + decoder);
    }
}
