//! The mechanisms and options that the suite runs through.

use heedful_attention::any::{AnyAttention, AttentionConfig};
use heedful_attention::mechanisms::gaussian::{self, GaussianConfig, Normalisation};
use heedful_attention::mechanisms::local_1d::LocalOneDConfig;
use heedful_attention::mechanisms::local_2d::LocalTwoDConfig;
use heedful_attention::mechanisms::mixture::{MixtureConfig, MixtureWeights};
use heedful_attention::mechanisms::sparse_fixed::SparseFixedConfig;
use heedful_attention::mechanisms::sparse_strided::SparseStridedConfig;
use heedful_attention::mechanisms::synthesizer_dense::SynthesizerDenseConfig;
use heedful_attention::mechanisms::synthesizer_factorized_dense::SynthesizerFactorizedDenseConfig;
use heedful_attention::mechanisms::synthesizer_factorized_random::SynthesizerFactorizedRandomConfig;
use heedful_attention::pattern::Integration;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::random::RandomKey;
use heedful_attention::restricted::Execution;

use crate::backends::Backend;
use crate::subject::Subject;

/// A mechanism with options, in a role.
#[derive(Clone, Debug)]
pub struct Variant {
    pub name: String,
    pub config: AttentionConfig,
    pub role: Role,
    /// Whether rows of weights sum to 1.
    pub normalised: bool,
}

/// Every mechanism with default options and with each option changed, in every role that makes a difference.
pub fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut add = |name: &str, config: AttentionConfig, roles: &[Role], normalised| {
        for &role in roles {
            variants.push(Variant { name: format!("{name}, {role:?}"), config: config.clone(), role, normalised });
        }
    };
    for config in AttentionConfig::all() {
        if !matches!(config, AttentionConfig::Gaussian(_)) {
            let crosses = ["dot-product", "uniform"].contains(&config.family());
            let roles: &[Role] = if crosses { &[Role::Decoder, Role::Cross] } else { &[Role::Decoder] };
            add(&config.name(), config.clone(), roles, true);
        }
    }
    let one = &[Role::Decoder];
    add("dense, shared W2", AttentionConfig::SynthesizerDense(SynthesizerDenseConfig { per_head_output: false }), one, true);
    let wide = SynthesizerFactorizedDenseConfig { factors: Some([2, 5]) };
    add("factorized dense, wide", AttentionConfig::SynthesizerFactorizedDense(wide), one, true);
    let thin = SynthesizerFactorizedRandomConfig { rank: 3, init_std: 0.5 };
    add("factorized random, rank 3", AttentionConfig::SynthesizerFactorizedRandom(thin), one, true);
    add("dense+dot-product", parse("dense+dot-product"), one, true);
    add("random+dense", parse("random+dense"), one, true);
    add("dot-product+gaussian", parse("dot-product+gaussian"), &[Role::Encoder, Role::Decoder, Role::Cross], true);
    add("three members", parse("dot-product+factorized-random+factorized-dense"), one, true);
    add("dot-product+dot-product", parse("dot-product+dot-product"), &[Role::Decoder, Role::Cross], true);
    add("random+dot-product, sum", mixture("random+dot-product", MixtureWeights::Sum), one, true);
    add("dot-product+random, sigmoid", mixture("dot-product+random", MixtureWeights::Sigmoid), one, true);
    let roles = &[Role::Encoder, Role::Decoder, Role::Cross];
    for execution in [gaussian::Execution::Dense, gaussian::Execution::Banded, gaussian::Execution::Index] {
        for normalisation in [Normalisation::None, Normalisation::Renormalise] {
            let config = GaussianConfig { execution, normalisation, length_ratio: 0.8, ..GaussianConfig::default() };
            let name = format!("gaussian, {execution:?}, {normalisation:?}");
            // A row whose one key lies beyond the border sums to 0 also after division.
            let normalised = normalisation == Normalisation::Renormalise && execution != gaussian::Execution::Index;
            add(&name, AttentionConfig::Gaussian(config), roles, normalised);
        }
    }
    let narrow = GaussianConfig { execution: gaussian::Execution::Banded, window: 1, deviations: vec![1.5], ..GaussianConfig::default() };
    add("gaussian, narrow band", AttentionConfig::Gaussian(narrow), one, false);
    patterns(&mut add);
    variants
}

/// Patterns so small that they hide something of eight elements. What they and the view show may be nothing, and then weights sum to 0.
fn patterns(add: &mut impl FnMut(&str, AttentionConfig, &[Role], bool)) {
    let (one, both) = (&[Role::Decoder], &[Role::Encoder, Role::Decoder]);
    let blocked = local_1d(2, None);
    add("local-1d", AttentionConfig::LocalOneD(blocked.clone()), both, false);
    add("local-1d, masked", AttentionConfig::LocalOneD(LocalOneDConfig { execution: Execution::Masked, ..blocked }), one, false);
    add("local-1d, short memory", AttentionConfig::LocalOneD(local_1d(3, Some(1))), one, false);
    let blocked = local_2d(4, [1, 2], [1, 1]);
    add("local-2d", AttentionConfig::LocalTwoD(blocked.clone()), both, false);
    add("local-2d, masked", AttentionConfig::LocalTwoD(LocalTwoDConfig { execution: Execution::Masked, ..blocked }), one, false);
    for integration in [Integration::Interleaved, Integration::Merged, Integration::Heads] {
        let strided = SparseStridedConfig { stride: 2, integration, ..SparseStridedConfig::default() };
        add(&format!("sparse-strided, {integration:?}"), AttentionConfig::SparseStrided(strided), one, false);
        let fixed = SparseFixedConfig { stride: 3, summary: 1, integration, ..SparseFixedConfig::default() };
        add(&format!("sparse-fixed, {integration:?}"), AttentionConfig::SparseFixed(fixed), both, false);
    }
    let masked = SparseStridedConfig { stride: 3, execution: Execution::Masked, ..SparseStridedConfig::default() };
    add("sparse-strided, masked", AttentionConfig::SparseStrided(masked), one, false);
    let shared = SparseFixedConfig { stride: 4, summary: 2, separate_summaries: false, ..SparseFixedConfig::default() };
    add("sparse-fixed, shared summaries", AttentionConfig::SparseFixed(shared.clone()), one, false);
    add("sparse-fixed, masked", AttentionConfig::SparseFixed(SparseFixedConfig { execution: Execution::Masked, ..shared }), one, false);
    let local = AttentionConfig::LocalOneD(local_1d(2, None));
    for logits in ["random", "dense", "factorized-random", "gaussian", "random+dot-product"] {
        add(&format!("{logits}@local-1d"), local.clone().over(parse(logits)).unwrap(), one, false);
    }
    let strided = AttentionConfig::SparseStrided(SparseStridedConfig { stride: 2, ..SparseStridedConfig::default() });
    let local = AttentionConfig::LocalOneD(local_1d(3, Some(2)));
    add("local-1d@sparse-strided", strided.over(local).unwrap(), one, false);
}

pub fn local_1d(query_block: usize, memory_block: Option<usize>) -> LocalOneDConfig {
    LocalOneDConfig { query_block, memory_block, ..LocalOneDConfig::default() }
}

pub fn local_2d(width: usize, query_block: [usize; 2], memory: [usize; 2]) -> LocalTwoDConfig {
    LocalTwoDConfig { width, query_block, memory, ..LocalTwoDConfig::default() }
}

pub fn parse(name: &str) -> AttentionConfig {
    name.parse().unwrap()
}

pub fn mixture(members: &str, weights: MixtureWeights) -> AttentionConfig {
    let members = members.split('+').map(parse).collect();
    AttentionConfig::Mixture(MixtureConfig { members, weights })
}

/// A layer with heads of width 3, sequences of up to eight elements, and dropout.
pub fn placement(role: Role, heads: usize) -> Placement {
    Placement { role, layer: 0, layers: 1, d_model: 3 * heads, heads, max_length: 8, dropout: 0.3 }
}

impl Variant {
    pub fn subject(&self, heads: usize, backend: &Backend) -> Subject<AnyAttention> {
        let placement = placement(self.role, heads);
        self.config.validate(&placement).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let key = RandomKey::from_seed(1);
        Subject::new(|device| self.config.init(&placement, &key, device), placement, self.normalised, backend)
    }
}
