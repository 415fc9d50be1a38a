//! The mechanisms and options that the suite runs through.

use heedful_attention::any::{AnyAttention, AttentionConfig};
use heedful_attention::kernel_attention::{self as convolution, KernelSizes};
use heedful_attention::mechanisms::dynamic_conv::DynamicConvConfig;
use heedful_attention::mechanisms::gaussian::{Execution, GaussianConfig, Normalisation};
use heedful_attention::mechanisms::lightweight_conv::LightweightConvConfig;
use heedful_attention::mechanisms::linformer::{LinformerConfig, Sharing};
use heedful_attention::mechanisms::mixture::{MixtureConfig, MixtureWeights};
use heedful_attention::mechanisms::synthesizer_dense::SynthesizerDenseConfig;
use heedful_attention::mechanisms::synthesizer_factorized_dense::SynthesizerFactorizedDenseConfig;
use heedful_attention::mechanisms::synthesizer_factorized_random::SynthesizerFactorizedRandomConfig;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::random::RandomKey;
use heedful_attention::sequence_projection::ProjectionInit;

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
        let own = ["gaussian", "linformer", "lightweight-conv", "dynamic-conv"];
        if !own.contains(&config.family()) {
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
    for execution in [Execution::Dense, Execution::Banded, Execution::Index] {
        for normalisation in [Normalisation::None, Normalisation::Renormalise] {
            let config = GaussianConfig { execution, normalisation, length_ratio: 0.8, ..GaussianConfig::default() };
            let name = format!("gaussian, {execution:?}, {normalisation:?}");
            // A row whose one key lies beyond the border sums to 0 also after division.
            let normalised = normalisation == Normalisation::Renormalise && execution != Execution::Index;
            add(&name, AttentionConfig::Gaussian(config), roles, normalised);
        }
    }
    let narrow = GaussianConfig { execution: Execution::Banded, window: 1, deviations: vec![1.5], ..GaussianConfig::default() };
    let ends = &[Role::Encoder, Role::Cross];
    add("linformer", parse("linformer"), ends, false);
    for sharing in [Sharing::None, Sharing::Headwise, Sharing::KeyValue, Sharing::Layerwise] {
        let config = LinformerConfig { rank: Some(3), sharing, ..LinformerConfig::default() };
        add(&format!("linformer, rank 3, {sharing:?}"), AttentionConfig::Linformer(config), ends, false);
    }
    let frozen = LinformerConfig { rank: Some(4), sharing: Sharing::Headwise, trainable: false, init: ProjectionInit::Normal };
    add("linformer, frozen", AttentionConfig::Linformer(frozen), ends, false);
    let both = &[Role::Encoder, Role::Decoder];
    add("lightweight-conv", parse("lightweight-conv"), both, false);
    add("dynamic-conv", parse("dynamic-conv"), both, false);
    // One tap, an even number, and more than there are positions.
    for taps in [1, 4, 19] {
        for (glu, renormalise_padding, execution) in [
            (true, false, convolution::Execution::Expanded),
            (false, true, convolution::Execution::Unfolded),
            (true, true, convolution::Execution::Expanded),
        ] {
            let kernel = KernelSizes::Each(vec![taps]);
            let what = format!("{taps} taps, glu {glu}, renormalise {renormalise_padding}, {execution:?}");
            let config = LightweightConvConfig { kernel: kernel.clone(), glu, renormalise_padding, execution };
            add(&format!("lightweight-conv, {what}"), AttentionConfig::LightweightConv(config), both, false);
            let config = DynamicConvConfig { kernel, kernel_bias: glu, glu, renormalise_padding, execution };
            add(&format!("dynamic-conv, {what}"), AttentionConfig::DynamicConv(config), both, false);
        }
    }
    add("gaussian, narrow band", AttentionConfig::Gaussian(narrow), one, false);
    variants
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
