//! Multiplications of an attention layer, counted without running it.
//!
//! Counted are linear maps, scores of visible pairs and weighted sums of values; exponentials, normalisation and copies are not. A backward pass is counted
//! as 2.5 forward passes of the pairs (it scores them again) and as two of the linear maps.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use heedful_attention::any::{AnyAttention, AnyLogits, AttentionConfig};
use heedful_attention::logits::Logits;
use heedful_attention::mechanisms::lsh::BucketCount;

use super::point::Pass;
use crate::workload::Sizes;

/// Queries at which the visible keys of a pattern are counted; all others are taken to see as many on average.
const SAMPLED_QUERIES: usize = 128;

/// Multiplications of one pass, to be read as an estimate.
pub fn multiplications(config: &AttentionConfig, attention: &AnyAttention, sizes: Sizes, pass: Pass) -> u64 {
    let Sizes { batch, length, d_model, heads } = sizes;
    let d_head = d_model as f64 / heads as f64;
    let queries = if pass == Pass::Decode { length - 1..length } else { 0..length };
    let count = queries.len() as f64;
    let all_heads = heads as f64;
    let is_causal = config.can_be_causal();
    let dense: f64 = queries.clone().map(|query| if is_causal { query + 1 } else { length } as f64).sum::<f64>() * all_heads;
    let pairs = match (attention, config) {
        (AnyAttention::Softmax(attention), _) => {
            let pairs = visible(&attention.logits, sizes, queries).unwrap_or(dense);
            pairs * (score(&attention.logits, d_head) + d_head)
        }
        (AnyAttention::Gaussian(_), _) => dense * (d_head + 1.0),
        (AnyAttention::Lsh(_), AttentionConfig::Lsh(options)) => {
            if length <= options.full_attention_below.unwrap_or(2 * options.chunk) {
                dense * 2.0 * d_head
            } else {
                let rounds = options.rounds as f64;
                let buckets = match &options.buckets {
                    Some(BucketCount::One(buckets)) => *buckets,
                    Some(BucketCount::Factorised(factors)) => factors.iter().sum(),
                    None => 2 * length.div_ceil(options.chunk),
                };
                let hashing = count * rounds * d_head * buckets as f64 / 2.0;
                let chunks = 1 + options.before + options.after.unwrap_or(usize::from(!is_causal));
                all_heads * (hashing + count * rounds * (chunks * options.chunk) as f64 * 2.0 * d_head)
            }
        }
        (AnyAttention::Linformer(_), AttentionConfig::Linformer(options)) => {
            let slots = options.rank.unwrap_or(length.min(64)) as f64;
            // Keys and values to slots, then scores and sums over slots.
            2.0 * length as f64 * slots * d_model as f64 + 2.0 * count * slots * d_model as f64
        }
        (AnyAttention::LightweightConv(attention), _) => count * attention.kernel.weight.dims()[1] as f64 * d_model as f64,
        (AnyAttention::DynamicConv(attention), _) => {
            let taps = attention.kernel.predictor.weight.dims()[1] as f64 / all_heads;
            count * taps * d_model as f64
        }
        _ => dense * 2.0 * d_head,
    };
    let (of_pairs, of_maps) = if pass == Pass::Training { (3.5, 3.0) } else { (1.0, 1.0) };
    (batch as f64 * (of_pairs * pairs + of_maps * count * map_sizes(attention))) as u64
}

/// Multiplications of the score of a pair.
fn score(logits: &AnyLogits, d_head: f64) -> f64 {
    match logits {
        AnyLogits::Relative(_) | AnyLogits::LearnedRelative(_) => 2.0 * d_head,
        AnyLogits::AdaptiveSpan(span) => score(&span.logits[0], d_head) + 1.0,
        AnyLogits::SynthesizerRandom(_) | AnyLogits::Uniform(_) => 0.0,
        AnyLogits::SynthesizerFactorizedDense(_) | AnyLogits::Gaussian(_) => 1.0,
        AnyLogits::SynthesizerFactorizedRandom(random) => random.query_factor.dims()[2] as f64,
        AnyLogits::Mixture(mixture) => mixture.members.iter().map(|member| score(member, d_head)).sum(),
        AnyLogits::LocalOneD(logits) | AnyLogits::LocalTwoD(logits) | AnyLogits::SparseStrided(logits) | AnyLogits::SparseFixed(logits) => {
            score(&logits.logits[0], d_head)
        }
        AnyLogits::DotProduct(_) | AnyLogits::SynthesizerDense(_) => d_head,
    }
}

/// Visible pairs of all heads under a causal visibility, where logits restrict them.
fn visible(logits: &AnyLogits, sizes: Sizes, queries: std::ops::Range<usize>) -> Option<f64> {
    let pattern = match logits {
        AnyLogits::LocalOneD(logits) | AnyLogits::LocalTwoD(logits) | AnyLogits::SparseStrided(logits) | AnyLogits::SparseFixed(logits) => {
            logits.pattern()
        }
        other => {
            let reach = other.reach()?;
            return Some(queries.map(|query| query.min(reach) + 1).sum::<usize>() as f64 * sizes.heads as f64);
        }
    };
    let step = queries.len().div_ceil(SAMPLED_QUERIES);
    let sampled: Vec<usize> = queries.clone().step_by(step).collect();
    let keys = |head: usize, query: usize| (0..=query).filter(|&key| pattern.sees(head, query, key)).count();
    let found: usize = (0..sizes.heads).map(|head| sampled.iter().map(|&query| keys(head, query)).sum::<usize>()).sum();
    Some(found as f64 * queries.len() as f64 / sampled.len() as f64)
}

/// Weights of the linear maps, each of which every element passes.
fn map_sizes<M: Module>(module: &M) -> f64 {
    let mut maps = Maps { place: Vec::new(), weights: 0 };
    module.visit(&mut maps);
    maps.weights as f64
}

struct Maps {
    /// Types and names of the modules around the current parameter.
    place: Vec<(String, String)>,
    weights: usize,
}

impl ModuleVisitor for Maps {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.push((container.to_owned(), name.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.place.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.place.last().is_some_and(|(container, name)| container == "Struct:Linear" && name == "weight") {
            self.weights += param.shape().num_elements();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use heedful_attention::placement::Role;
    use heedful_attention::random::RandomKey;

    const SIZES: Sizes = Sizes { batch: 2, length: 256, d_model: 16, heads: 4 };

    fn of(name: &str, pass: Pass) -> f64 {
        let config: AttentionConfig = name.parse().unwrap();
        let role = if config.can_be_causal() { Role::Decoder } else { Role::Encoder };
        let attention = config.init(&SIZES.placement(role), &RandomKey::from_seed(0), &Device::flex());
        multiplications(&config, &attention, SIZES, pass) as f64
    }

    #[test]
    fn the_counts_are_those_of_the_formulas() {
        let (rows, width, maps) = (2.0 * 256.0, 16.0, 16.0 * 16.0);
        let pairs = 2.0 * (256.0 * 257.0 / 2.0);
        assert_eq!(of("dot-product", Pass::Forward), rows * 4.0 * maps + pairs * 2.0 * width);
        assert_eq!(of("dot-product", Pass::Training), 3.0 * rows * 4.0 * maps + 3.5 * pairs * 2.0 * width);
        assert_eq!(of("dot-product", Pass::Decode), 2.0 * 4.0 * maps + 2.0 * 256.0 * 2.0 * width);
        // Values and output, and nothing to score.
        assert_eq!(of("synthesizer-random", Pass::Forward), rows * 2.0 * maps + pairs * width);
    }

    #[test]
    fn what_sees_less_multiplies_less() {
        let dense = of("dot-product", Pass::Forward);
        for name in ["local-1d", "sparse-strided", "sparse-fixed", "lightweight-conv"] {
            assert!(of(name, Pass::Forward) < dense, "{name}");
        }
        assert!(AttentionConfig::all().iter().all(|config| of(&config.name(), Pass::Forward) > 0.0));
    }
}
