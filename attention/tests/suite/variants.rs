//! The mechanisms and options that the suite runs through.

use heedful_attention::description::restricted::PatternExecution;
use heedful_attention::mechanisms::adaptive_span::{SpanKind, SpanOrigin};
use heedful_attention::mechanisms::aft::AftForm;
use heedful_attention::mechanisms::convolution_attention::{self as convolution, KernelSizes};
use heedful_attention::mechanisms::forgetting::ForgetGate;
use heedful_attention::mechanisms::gated_norm::HeadNorm;
use heedful_attention::mechanisms::gaussian::{self, Normalisation};
use heedful_attention::mechanisms::linear_attention::FeatureMap;
use heedful_attention::mechanisms::linformer::Sharing;
use heedful_attention::mechanisms::lsh::{BucketCount, Hashing, Rotations};
use heedful_attention::mechanisms::mixture::MixtureWeights;
use heedful_attention::mechanisms::output_gate::GateForm;
use heedful_attention::mechanisms::performer::{Directions, RandomFeatureKind};
use heedful_attention::mechanisms::qk_norm::QkNorm;
use heedful_attention::mechanisms::rotary::{PairLayout, RotaryScaling};
use heedful_attention::mechanisms::sequence_projection::{ProjectionInit, ProjectionKind};
use heedful_attention::mechanisms::shared_qk::Scale;
use heedful_attention::mechanisms::streaming_llm::StreamingPositions;
use heedful_attention::mechanisms::talking_heads::MixingInit;
use heedful_attention::prelude::*;
use heedful_attention::softmax_attention::pattern::Integration;

use crate::backends::Backend;
use crate::subject::Subject;

/// A mechanism with options, in a role.
#[derive(Clone, Debug)]
pub struct Variant {
    pub name: String,
    pub config: AnyMechanism,
    pub role: Role,
    /// Whether rows of weights sum to 1.
    pub normalised: bool,
    /// Whether heads share keys and values in groups and have another width than `d_model / heads`.
    pub shares_keys: bool,
}

/// Every mechanism with default options and with each option changed, in every role that makes a difference.
pub fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut add = |name: &str, config: AnyMechanism, roles: &[Role], normalised| {
        for &role in roles {
            let shares_keys = name.ends_with(SHARED);
            variants.push(Variant { name: format!("{name}, {role:?}"), config: config.clone(), role, normalised, shares_keys });
        }
    };
    for config in AnyMechanism::all() {
        let own = [
            "adaptive-span",
            "gaussian",
            "linformer",
            "linear-attention",
            "performer",
            "cosformer",
            "retnet",
            "gla",
            "simple-gla",
            "mamba-2",
            "delta-net",
            "gated-delta-net",
            "lightweight-conv",
            "dynamic-conv",
            "base-conv",
            "aft",
            "fnet",
            "gmlp",
            "mlp-mixer",
            "forgetting",
            "output-gate",
            "differential",
            "talking-heads",
        ];
        let normalises = config.card().kind == Kind::Normaliser;
        if !normalises && !own.contains(&config.family()) {
            let crosses = ["dot-product", "uniform", "soft-cap"].contains(&config.family());
            let roles: &[Role] = if crosses { &[Role::Encoder, Role::Decoder, Role::Cross] } else { &[Role::Encoder, Role::Decoder] };
            // All pairs, for which what the properties ask for is exact; chunks are below.
            let all_pairs = config.get::<LshConfig>().map(|lsh| lsh.clone().with_full_attention_below(MAX_LENGTH).into());
            // In such a window a query that is padding sees nothing but padding.
            let sees_little = ["sliding-window", "local-1d"].contains(&config.family());
            add(&config.name(), all_pairs.unwrap_or(config), roles, !sees_little);
        }
    }
    let one = &[Role::Decoder];
    add("dense, shared W2", AnyMechanism::from(SynthesizerDenseConfig::default().with_per_head_output(false)), one, true);
    add("dot-product, biases", AnyMechanism::from(DotProductConfig::default().with_bias(true)), &[Role::Decoder, Role::Cross], true);
    let normalised = |norm| DotProductConfig::default().with_qk_norm(norm);
    add("dot-product, RMS norms", normalised(QkNorm::Rms).into(), &[Role::Decoder, Role::Cross], true);
    add("dot-product, layer norms, large epsilon", normalised(QkNorm::Layer).with_qk_norm_epsilon(0.5).into(), one, true);
    let wide = SynthesizerFactorizedDenseConfig::default().with_factors([2, 5]);
    add("factorized dense, wide", AnyMechanism::from(wide), one, true);
    let separate = SynthesizerFactorizedDenseConfig::default().with_separate_hidden(true);
    add("factorized dense, separate first layers", AnyMechanism::from(separate), one, true);
    let thin = SynthesizerFactorizedRandomConfig::default().with_rank(3).with_init_std(0.5);
    add("factorized random, rank 3", AnyMechanism::from(thin), one, true);
    add("dense+dot-product", parse("dense+dot-product"), one, true);
    add("random+dense", parse("random+dense"), one, true);
    add("dot-product+gaussian", parse("dot-product+gaussian"), &[Role::Encoder, Role::Decoder, Role::Cross], true);
    add("three members", parse("dot-product+factorized-random+factorized-dense"), one, true);
    add("dot-product+dot-product", parse("dot-product+dot-product"), &[Role::Decoder, Role::Cross], true);
    add("random+dot-product, sum", mixture("random+dot-product", MixtureWeights::Sum), one, true);
    add("dot-product+random, sigmoid", mixture("dot-product+random", MixtureWeights::Sigmoid), one, true);
    let roles = &[Role::Encoder, Role::Decoder, Role::Cross];
    for execution in [gaussian::GaussianExecution::Dense, gaussian::GaussianExecution::Banded, gaussian::GaussianExecution::Index] {
        for normalisation in [Normalisation::None, Normalisation::Renormalise] {
            let config = GaussianConfig::default().with_execution(execution).with_normalisation(normalisation).with_length_ratio(0.8);
            let name = format!("gaussian, {execution:?}, {normalisation:?}");
            // A row whose one key lies beyond the border sums to 0 also after division.
            let normalised = normalisation == Normalisation::Renormalise && execution != gaussian::GaussianExecution::Index;
            add(&name, AnyMechanism::from(config), roles, normalised);
        }
    }
    let narrow = GaussianConfig::default().with_execution(gaussian::GaussianExecution::Banded).with_window(1).with_deviations(vec![1.5]);
    let ends = &[Role::Encoder, Role::Cross];
    add("linformer", parse("linformer"), ends, false);
    for sharing in [Sharing::None, Sharing::Headwise, Sharing::KeyValue, Sharing::Layerwise] {
        let config = LinformerConfig::default().with_rank(3).with_sharing(sharing);
        add(&format!("linformer, rank 3, {sharing:?}"), AnyMechanism::from(config), ends, false);
    }
    let frozen =
        LinformerConfig::default().with_rank(4).with_sharing(Sharing::Headwise).with_trainable(false).with_init(ProjectionInit::Normal);
    add("linformer, frozen", AnyMechanism::from(frozen), ends, false);
    // Windows of three positions, of which the last one is short; and of two.
    for kind in [ProjectionKind::MeanPooling, ProjectionKind::MaxPooling, ProjectionKind::Convolution] {
        let config = LinformerConfig::default().with_rank(3).with_projection(kind);
        add(&format!("linformer, {kind:?}"), AnyMechanism::from(config), ends, false);
    }
    let kernels = LinformerConfig::default().with_rank(4).with_projection(ProjectionKind::Convolution);
    for sharing in [Sharing::None, Sharing::KeyValue, Sharing::Layerwise] {
        add(&format!("linformer, Convolution, {sharing:?}"), AnyMechanism::from(kernels.clone().with_sharing(sharing)), ends, false);
    }
    add("linformer, Convolution, frozen", AnyMechanism::from(kernels.with_trainable(false)), ends, false);
    let both = &[Role::Encoder, Role::Decoder];
    add("lightweight-conv", parse("lightweight-conv"), both, false);
    add("dynamic-conv", parse("dynamic-conv"), both, false);
    // One tap, an even number, and more than there are positions.
    for taps in [1, 4, 19] {
        for (glu, renormalise_padding, execution) in [
            (true, false, convolution::ConvolutionExecution::Expanded),
            (false, true, convolution::ConvolutionExecution::Unfolded),
            (true, true, convolution::ConvolutionExecution::Expanded),
        ] {
            let kernel = KernelSizes::Each(vec![taps]);
            let what = format!("{taps} taps, glu {glu}, renormalise {renormalise_padding}, {execution:?}");
            let config = LightweightConvConfig::default()
                .with_kernel(kernel.clone())
                .with_glu(glu)
                .with_renormalise_padding(renormalise_padding)
                .with_execution(execution);
            add(&format!("lightweight-conv, {what}"), AnyMechanism::from(config), both, false);
            let config = DynamicConvConfig::default()
                .with_kernel(kernel)
                .with_kernel_bias(glu)
                .with_glu(glu)
                .with_renormalise_padding(renormalise_padding)
                .with_execution(execution);
            add(&format!("dynamic-conv, {what}"), AnyMechanism::from(config), both, false);
        }
    }
    add("gaussian, narrow band", AnyMechanism::from(narrow), one, false);
    let relative = |clamp_length, same_length| {
        AnyMechanism::from(RelativeConfig::default().with_clamp_length(clamp_length).with_same_length(same_length))
    };
    add("alibi+random", parse("alibi+random"), one, true);
    add("relative", relative(None, None), &[Role::Encoder], true);
    add("relative, clamped", relative(Some(2), None), &[Role::Encoder, Role::Decoder], true);
    // Where the few keys in view are hidden by the mechanism, a row sums to 0: here and below.
    add("relative, same length", relative(None, Some(3)), one, false);
    add("relative+random", parse("relative+random"), one, true);
    add("rotary+random", parse("rotary+random"), one, true);
    let members = vec![parse("dot-product"), relative(None, Some(3)), parse("learned-relative")];
    let members = AnyMechanism::from(MixtureConfig::default().with_members(members).with_weights(MixtureWeights::Sum));
    add("dot-product+relative+learned-relative", members.clone(), one, false);
    add("learned-relative", parse("learned-relative"), &[Role::Encoder], true);
    let near = LearnedRelativeConfig::default().with_max_distance(3);
    add("learned-relative, near", AnyMechanism::from(near), &[Role::Encoder, Role::Decoder], false);
    let span = ramped();
    let mut add_span = |name: &str, config: AdaptiveSpanConfig, roles| add(name, AnyMechanism::from(config), roles, false);
    add_span("adaptive-span", span.clone(), &[Role::Encoder, Role::Decoder]);
    add_span("adaptive-span, paper's origin", span.clone().with_origin(SpanOrigin::Paper), one);
    add_span("adaptive-span, without own position", span.clone().with_own_position(false), one);
    add_span("adaptive-span, hard end", span.clone().with_max_span(3).with_ramp(32.0), one);
    let over = |logits: AnyMechanism| span.clone().with_logits(logits);
    add_span("adaptive-span over dot-product", over(parse("dot-product")), one);
    add_span("adaptive-span over relative", over(relative(None, Some(4))), one);
    add_span("adaptive-span over a mixture", over(members), one);
    add_span("adaptive-span over random", over(parse("random")), one);
    add_span("adaptive-span, fixed", span.clone().with_kind(SpanKind::Fixed), one);
    let dynamic = span.clone().with_kind(SpanKind::Dynamic);
    add_span("adaptive-span, dynamic", dynamic.clone(), one);
    add_span("adaptive-span, dynamic, initial by default", dynamic.with_initial(None), one);
    // One chunk holds all: what the properties ask for is then exact. A query whose bucket holds nothing visible has no weights.
    let lsh = LshConfig::default().with_chunk(8).with_full_attention_below(0).with_buckets(BucketCount::One(4));
    for rounds in [1, 2, 3] {
        add(&format!("lsh, {rounds} rounds"), AnyMechanism::from(lsh.clone().with_rounds(rounds)), one, false);
    }
    let other = |name: &str, config: LshConfig| (format!("lsh, {name}"), AnyMechanism::from(config));
    let others = [
        other("default buckets", lsh.clone().with_buckets(None)),
        other("factorised", lsh.clone().with_buckets(BucketCount::Factorised([2, 4]))),
        other("with duplicates", lsh.clone().with_duplicate_correction(false)),
        other("scale of the code", lsh.clone().with_scale(Scale::Code)),
        other("wrapped, farther", lsh.clone().with_wrap(true).with_before(2).with_after(2)),
        other("random buckets", lsh.clone().with_hashing(Hashing::Random)),
    ];
    for (name, config) in others {
        add(&name, config, &[Role::Encoder, Role::Decoder], false);
    }
    let across = lsh.with_bucket_mask(false);
    let rounds = across.clone().with_wrap(true).with_across_rounds(true);
    add("lsh, across rounds", AnyMechanism::from(rounds.clone().with_rounds(3)), &[Role::Encoder, Role::Decoder], true);
    add("lsh, across two rounds, before", AnyMechanism::from(rounds.with_rounds(2).with_before(0).with_after(1)), one, true);
    let across = across.with_rotations(Rotations::PerCall);
    add("lsh, across buckets, rotations per call", AnyMechanism::from(across), one, true);
    let chunked = chunked_lsh();
    add("lsh, several chunks", AnyMechanism::from(chunked.clone()), &[Role::Encoder, Role::Decoder], false);
    let others = [
        other("several chunks, one round", chunked.clone().with_rounds(1)),
        other("several chunks, three rounds", chunked.clone().with_rounds(3)),
        other("several chunks, with duplicates", chunked.clone().with_duplicate_correction(false)),
        other("several chunks, factorised", chunked.clone().with_buckets(BucketCount::Factorised([4, 4]))),
        other("several chunks, random buckets", chunked.clone().with_hashing(Hashing::Random)),
        // Not with rotations of each call: the mean over keys, of which dropout is to keep it, is then over buckets too.
        other("several chunks, farther", chunked.with_before(2).with_after(2)),
    ];
    for (name, config) in others {
        add(&name, config, one, false);
    }
    let few = T5BiasConfig::default().with_buckets(4).with_max_distance(5);
    add("t5-bias, few buckets", few.into(), &[Role::Encoder, Role::Decoder], true);
    add("t5-bias+random", parse("t5-bias+random"), one, true);
    for far in [0, 2] {
        let config = ShawConfig::default().with_max_relative_position(far);
        add(&format!("shaw, up to {far}"), config.into(), &[Role::Encoder, Role::Decoder], true);
    }
    add("shaw+random", parse("shaw+random"), one, true);
    add("shared-qk, scale of the code", SharedQkConfig::default().with_scale(Scale::Code).into(), &[Role::Encoder, Role::Decoder], true);
    add("shared-qk+random", parse("shared-qk+random"), one, true);
    add("shared-qk@sigmoid", parse("shared-qk@sigmoid"), one, false);
    rotations(&mut add);
    forgetting(&mut add);
    recurrences(&mut add);
    latents(&mut add);
    mixers(&mut add);
    patterns(&mut add);
    soft_caps(&mut add);
    normalisers(&mut add);
    gates(&mut add);
    heads(&mut add);
    shared_keys(&mut add);
    biased(&mut add);
    variants
}

/// Forget gates of all kinds, alone and with others. In an encoder a query may be shown nothing but its future, which the mechanism hides.
fn forgetting(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let one = &[Role::Decoder];
    add("forgetting", parse("forgetting"), one, true);
    add("forgetting", parse("forgetting"), &[Role::Encoder], false);
    let of = |gate| ForgettingConfig::default().with_gate(gate);
    add("forgetting, bias only", of(ForgetGate::BiasOnly).into(), one, true);
    add("forgetting, bias only, decay times", of(ForgetGate::BiasOnly).with_decay_times([1.0, 8.0]).into(), one, true);
    add("forgetting, fixed", of(ForgetGate::Fixed).with_decay_times([1.0, 8.0]).into(), one, true);
    // Keys of different widths in one mixture, and sums that begin with what a window leaves.
    add("dot-product+forgetting", parse("dot-product+forgetting"), one, true);
    add("forgetting+random", parse("forgetting+random"), one, true);
    add("forgetting@sigmoid", parse("forgetting@sigmoid"), one, false);
    let window = SlidingWindowConfig::default().with_window(3);
    add("forgetting@sliding-window", AnyMechanism::from(window).over(parse("forgetting")).unwrap(), one, false);
}

/// Mechanisms without a matrix of pairs, whose state each position changes.
fn recurrences(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let all = &[Role::Encoder, Role::Decoder, Role::Cross];
    let linear = LinearAttentionConfig::default();
    add("linear-attention", linear.clone().into(), all, true);
    add("linear-attention, without sums", linear.clone().with_normalise(false).into(), all, false);
    // Where no channel of a query and of a key are positive both, weights are 0.
    add("linear-attention, ReLU", linear.clone().with_feature_map(FeatureMap::Relu).into(), all, false);
    add("linear-attention, ReLU, without sums", linear.with_feature_map(FeatureMap::Relu).with_normalise(false).into(), all, false);
    let performer = PerformerConfig::default();
    add("performer", performer.clone().into(), all, true);
    let few = performer.clone().with_features(5).with_orthogonal(false).with_directions(Directions::PerCall);
    add("performer, 5 independent directions for each call", few.into(), all, true);
    add("performer, ReLU", performer.with_kind(RandomFeatureKind::Relu).with_features(7).into(), all, true);
    let cosformer = CosformerConfig::default();
    // As with ReLU above.
    add("cosformer", cosformer.clone().into(), all, false);
    add("cosformer, without distances", cosformer.with_reweighting(false).into(), all, false);
    let one = &[Role::Decoder];
    let retnet = RetnetConfig::default();
    add("retnet", retnet.clone().into(), one, false);
    let bare = retnet.clone().with_norm(HeadNorm::None).with_gate(false).with_rotation(false).with_value_expansion(1);
    add("retnet, bare", bare.into(), one, false);
    let wide = retnet.with_value_expansion(3);
    add("retnet, root mean square", wide.clone().with_norm(HeadNorm::Rms).into(), one, false);
    add("retnet, root mean square with gain", wide.with_norm(HeadNorm::RmsWithGain).into(), one, false);
    let gla = GlaConfig::default();
    add("gla", gla.clone().into(), one, false);
    let wide = gla.clone().with_key_expansion(1.0).with_value_expansion(1.5).with_gate_rank(2).with_gate_normaliser(1.0);
    add("gla, wide, fast", wide.with_norm(HeadNorm::Group).into(), one, false);
    add("gla, bare", gla.with_norm(HeadNorm::None).with_gate(false).into(), one, false);
    let simple = SimpleGlaConfig::default();
    add("simple-gla", simple.clone().into(), one, false);
    let narrow = simple.clone().with_key_expansion(0.5).with_value_expansion(1.5).with_taps(2).with_gate_normaliser(1.0);
    add("simple-gla, narrow keys, two taps, fast", narrow.with_norm(HeadNorm::Rms).into(), one, false);
    add("simple-gla, bare", simple.with_taps(1).with_norm(HeadNorm::None).with_gate(false).into(), one, false);
    let mamba = MambaTwoConfig::default().with_state(8);
    add("mamba-2", mamba.clone().into(), one, false);
    add("mamba-2, narrow, one tap", mamba.with_state(3).with_expansion(1).with_taps(1).into(), one, false);
    let delta = DeltaNetConfig::default();
    add("delta-net", delta.clone().into(), one, false);
    add("delta-net, gate, two taps", delta.clone().with_gate(true).with_norm(HeadNorm::Group).with_taps(2).into(), one, false);
    let bare = delta.with_norm(HeadNorm::None).with_taps(1).with_negative_eigenvalues(true);
    add("delta-net, bare, negative eigenvalues", bare.into(), one, false);
    let gated = GatedDeltaNetConfig::default();
    add("gated-delta-net", gated.clone().into(), one, false);
    let narrow = gated.clone().with_key_expansion(0.5).with_value_expansion(1).with_norm(HeadNorm::None).with_gate(false);
    add("gated-delta-net, narrow, bare", narrow.into(), one, false);
    let wide = gated.with_key_expansion(1.5).with_taps(9).with_negative_eigenvalues(true).with_norm(HeadNorm::Rms);
    add("gated-delta-net, wide, nine taps, negative eigenvalues", wide.into(), one, false);
    let shared = GatedDeltaNetConfig::default().with_key_heads(1).with_norm_epsilon(1e-2);
    add("gated-delta-net, one head of keys, large epsilon", shared.into(), one, false);
    let delta = DeltaNetConfig::default().with_norm_epsilon(1e-2);
    add("delta-net, large epsilon", delta.into(), one, false);
    add("gla, large epsilon", GlaConfig::default().with_norm_epsilon(1e-2).into(), one, false);
    add("simple-gla, large epsilon", SimpleGlaConfig::default().with_norm_epsilon(1e-2).into(), one, false);
    add("retnet, large epsilon", RetnetConfig::default().with_norm_epsilon(1e-2).into(), one, false);
    let limited = MambaTwoConfig::default().with_state(8).with_time_step_limit([0.004, 0.5]).with_norm_epsilon(1e-2);
    add("mamba-2, limited steps, large epsilon", limited.into(), one, false);
}

/// A table of TOML.
fn scaling(table: &str) -> RotaryScaling {
    let whole: toml::Table = toml::from_str(&format!("scaling = {table}")).unwrap();
    whole["scaling"].clone().try_into().unwrap()
}

/// Keys and values of a latent.
fn latents(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let narrow = MlaConfig::default().with_latent(2).with_query_latent(5).with_rotary_width(4).with_base(100.0);
    add("mla, narrow, latent of queries", narrow.into(), &[Role::Encoder, Role::Decoder], true);
    let plain = MlaConfig::default().with_rotary_width(0).with_latent_norm(false).with_query_latent(4);
    add("mla, no positions, no norms", plain.into(), &[Role::Decoder], true);
    let mut yarn = MlaConfig::default().with_rotary_width(4).with_base(100.0);
    yarn.scaling = scaling("{kind = 'yarn', factor = 4.0, original_max_position_embeddings = 64, mscale = 1.0, mscale_all_dim = 0.5}");
    add("mla, YaRN", yarn.into(), &[Role::Encoder, Role::Decoder], true);
}

/// Mechanisms that mix positions without comparing queries and keys.
fn mixers(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let (one, both, encoder) = (&[Role::Decoder], &[Role::Encoder, Role::Decoder], &[Role::Encoder]);
    add("base-conv", parse("base-conv"), one, false);
    add("base-conv, one tap", BaseConvConfig::default().with_taps(1).into(), one, false);
    add("base-conv, many taps", BaseConvConfig::default().with_taps(6).into(), one, false);
    let aft = AftConfig::default().with_init_std(1.0);
    add("aft", aft.clone().into(), both, false);
    add("aft, rank 3", aft.clone().with_rank(3).into(), one, false);
    add("aft, table", aft.clone().with_factorised(false).into(), both, false);
    add("aft-local", aft.with_form(AftForm::Local).with_window(3).into(), both, false);
    add("aft-simple", parse("aft-simple"), both, false);
    add("fnet", parse("fnet"), encoder, false);
    add("fnet, orthonormal", FnetConfig::default().with_orthonormal(true).into(), encoder, false);
    // Weights that are not near 0.
    let gmlp = GmlpConfig::default().with_init_scale(8.0);
    add("gmlp", gmlp.clone().into(), both, false);
    add("gmlp, wide", gmlp.with_expansion(2).into(), one, false);
    add("mlp-mixer", parse("mlp-mixer"), encoder, false);
    add("mlp-mixer, wide", MlpMixerConfig::default().with_hidden(7).into(), encoder, false);
}

/// Patterns so small that they hide something of eight elements. What they and the view show may be nothing, and then weights sum to 0.
fn patterns(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let (one, both) = (&[Role::Decoder], &[Role::Encoder, Role::Decoder]);
    let blocked = local_1d(2, None);
    add("local-1d", AnyMechanism::from(blocked.clone()), both, false);
    add("local-1d, masked", AnyMechanism::from(blocked.with_execution(PatternExecution::Masked)), one, false);
    add("local-1d, short memory", AnyMechanism::from(local_1d(3, Some(1))), one, false);
    let window = SlidingWindowConfig::default().with_window(3);
    add("sliding-window, short", AnyMechanism::from(window.clone()), both, false);
    add("rotary@sliding-window", AnyMechanism::from(window.clone()).over(parse("rotary")).unwrap(), one, false);
    add("rotary@local-1d", AnyMechanism::from(local_1d(2, None)).over(parse("rotary")).unwrap(), one, false);
    add("t5-bias@sliding-window", AnyMechanism::from(window.clone()).over(parse("t5-bias")).unwrap(), one, false);
    add("shaw@sliding-window", AnyMechanism::from(window.clone()).over(parse("shaw")).unwrap(), one, false);
    add("shared-qk@sliding-window", AnyMechanism::from(window.clone()).over(parse("shared-qk")).unwrap(), one, false);
    add("shared-qk@local-1d", AnyMechanism::from(local_1d(2, None)).over(parse("shared-qk")).unwrap(), both, false);
    let columns = AnyMechanism::from(SparseStridedConfig::default().with_stride(2));
    add("shared-qk@sparse-strided", columns.over(parse("shared-qk")).unwrap(), one, false);
    add("alibi@sliding-window", AnyMechanism::from(window.clone()).over(parse("alibi")).unwrap(), one, false);
    add("sliding-window, masked", AnyMechanism::from(window.with_execution(PatternExecution::Masked)), one, false);
    streams(add);
    let blocked = local_2d(4, [1, 2], [1, 1]);
    add("local-2d", AnyMechanism::from(blocked.clone()), both, false);
    add("local-2d, masked", AnyMechanism::from(blocked.with_execution(PatternExecution::Masked)), one, false);
    for integration in [Integration::Interleaved, Integration::Merged, Integration::Heads] {
        let strided = SparseStridedConfig::default().with_stride(2).with_integration(integration);
        add(&format!("sparse-strided, {integration:?}"), AnyMechanism::from(strided), one, false);
        let fixed = SparseFixedConfig::default().with_stride(3).with_summary(1).with_integration(integration);
        add(&format!("sparse-fixed, {integration:?}"), AnyMechanism::from(fixed), both, false);
    }
    // Steps of one, two and four positions.
    for integration in [Integration::Interleaved, Integration::Merged, Integration::Heads] {
        let strided = SparseStridedConfig::default().with_stride(2).with_factors(3).with_integration(integration);
        add(&format!("sparse-strided, three factors, {integration:?}"), AnyMechanism::from(strided), one, false);
        let fixed = SparseFixedConfig::default().with_stride(2).with_summary(1).with_factors(3).with_integration(integration);
        add(&format!("sparse-fixed, three factors, {integration:?}"), AnyMechanism::from(fixed), both, false);
    }
    let strided = SparseStridedConfig::default().with_stride(2).with_integration(Integration::Interleaved).with_ratio(vec![2, 1]);
    add("sparse-strided, at a ratio", AnyMechanism::from(strided), one, false);
    let fixed = SparseFixedConfig::default().with_stride(3).with_summary(1).with_integration(Integration::Interleaved);
    add("sparse-fixed, at a ratio", AnyMechanism::from(fixed.with_ratio(vec![2, 1])), one, false);
    let masked = SparseStridedConfig::default().with_stride(3).with_execution(PatternExecution::Masked);
    add("sparse-strided, masked", AnyMechanism::from(masked), one, false);
    let shared = SparseFixedConfig::default().with_stride(4).with_summary(2).with_separate_summaries(false);
    add("sparse-fixed, shared summaries", AnyMechanism::from(shared.clone()), one, false);
    add("sparse-fixed, masked", AnyMechanism::from(shared.with_execution(PatternExecution::Masked)), one, false);
    let local = AnyMechanism::from(local_1d(2, None));
    for logits in ["random", "dense", "factorized-random", "gaussian", "random+dot-product"] {
        add(&format!("{logits}@local-1d"), local.clone().over(parse(logits)).unwrap(), one, false);
    }
    let strided = AnyMechanism::from(SparseStridedConfig::default().with_stride(2));
    let local = AnyMechanism::from(local_1d(3, Some(2)));
    add("local-1d@sparse-strided", strided.over(local).unwrap(), one, false);
}

/// Caches of few sinks and a short window, so that most queries have keys that are forgotten.
fn streams(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let (one, both) = (&[Role::Decoder], &[Role::Encoder, Role::Decoder]);
    let cache = StreamingLlmConfig::default().with_sinks(1).with_window(2);
    let over = |logits: &str| AnyMechanism::from(cache.clone()).over(parse(logits)).unwrap();
    add("streaming-llm, short", cache.clone().into(), both, false);
    for logits in ["rotary", "alibi"] {
        add(&format!("{logits}@streaming-llm, short"), over(logits), both, false);
    }
    for logits in ["rotary+alibi", "rotary@soft-cap", "alibi@sigmoid", "rotary@output-gate", "alibi@sliding-window", "shared-qk"] {
        add(&format!("{logits}@streaming-llm, short"), over(logits), one, false);
    }
    add("rotary@streaming-llm@differential, short", parse("differential").over(over("rotary")).unwrap(), one, false);
    let wide = cache.clone().with_sinks(3).with_logits(parse("rotary"));
    add("rotary@streaming-llm, more sinks than window", wide.into(), one, false);
    let masked = cache.clone().with_execution(PatternExecution::Masked);
    add("alibi@streaming-llm, masked", masked.with_logits(parse("alibi")).into(), one, false);
    let sequence = cache.with_positions(StreamingPositions::Sequence);
    for logits in ["rotary", "relative"] {
        add(&format!("{logits}@streaming-llm, sequence"), sequence.clone().with_logits(parse(logits)).into(), one, false);
    }
}

/// Rotary positions: both layouts, turned parts of heads, and all scalings, by factors that change all of few positions.
fn rotations(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let (one, config) = (&[Role::Decoder], RotaryConfig::default());
    let mut add = |name: &str, config: RotaryConfig| add(&format!("rotary, {name}"), config.into(), one, true);
    add("interleaved", config.clone().with_layout(PairLayout::Interleaved));
    add("half of the channels", config.clone().with_fraction(0.5).with_base(500.0));
    add("half of the channels, interleaved", config.clone().with_fraction(0.5).with_layout(PairLayout::Interleaved));
    add("RMS norms, large epsilon", config.clone().with_qk_norm(QkNorm::Rms).with_qk_norm_epsilon(0.5));
    add("layer norms", config.clone().with_qk_norm(QkNorm::Layer));
    add("another scale of scores", config.clone().with_score_scale(1.5));
    let original_max_position_embeddings = 16;
    let yarn = |attention_factor, truncate| RotaryScaling::Yarn {
        factor: 4.0,
        original_max_position_embeddings,
        beta_fast: 2.0,
        beta_slow: 0.5,
        attention_factor,
        mscale: None,
        mscale_all_dim: None,
        truncate,
    };
    let weights = "{kind = 'yarn', factor = 4.0, original_max_position_embeddings = 16, beta_fast = 2.0, beta_slow = 0.5, mscale = 1.0, mscale_all_dim = 0.25}";
    for (name, scaling) in [
        ("proportional", RotaryScaling::Proportional { factor: 2.0, partial_rotary_factor: 0.5 }),
        // Beyond it, what a call computes depends on its length.
        ("dynamic, not beyond the original length", RotaryScaling::Dynamic { factor: 2.0, original_max_position_embeddings: 64 }),
        ("YaRN, two weights", scaling(weights)),
        ("linear", RotaryScaling::Linear { factor: 4.0 }),
        ("NTK", RotaryScaling::Ntk { factor: 4.0 }),
        ("Llama 3", RotaryScaling::Llama3 { factor: 4.0, low_freq_factor: 0.5, high_freq_factor: 3.0, original_max_position_embeddings }),
        ("YaRN", yarn(None, true)),
        ("YaRN, ramp between pairs", yarn(Some(1.5), false)),
    ] {
        add(name, config.clone().with_base(20.0).with_scaling(scaling));
    }
}

/// Caps so low that they bend most scores, over and under whatever goes with them.
fn soft_caps(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let one = &[Role::Decoder];
    let low = AnyMechanism::from(SoftCapConfig::default().with_cap(0.5));
    let over = |logits: AnyMechanism| low.over(logits).unwrap();
    add("soft-cap, low", low.clone(), &[Role::Encoder, Role::Decoder, Role::Cross], true);
    for logits in ["random", "random+dot-product", "relative", "alibi"] {
        add(&format!("{logits}@soft-cap, low"), over(parse(logits)), one, true);
    }
    let local = local_1d(2, None);
    add("local-1d@soft-cap, low", over(local.clone().into()), &[Role::Encoder, Role::Decoder], false);
    let relative = AnyMechanism::from(local.clone()).over(parse("relative")).unwrap();
    add("relative@local-1d@soft-cap, low", over(relative), one, false);
    add("soft-cap, low, @local-1d", AnyMechanism::from(local).over(low.clone()).unwrap(), one, false);
    add("sigmoid@soft-cap, low", over(parse("sigmoid")), one, false);
    add("soft-cap, low, @softmax-plus-one", parse("softmax-plus-one").over(low.clone()).unwrap(), one, false);
}

/// Other normalisers than a softmax: over logits with and without keys, mixtures and patterns, which are executed in every way.
fn normalisers(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let one = &[Role::Decoder];
    for name in ["sigmoid", "softmax-plus-one", "learned-sink", "softpick", "entmax", "sparsemax", "relu", "relu-squared"] {
        add(name, parse(name), &[Role::Encoder, Role::Decoder, Role::Cross], false);
        let over = |logits: AnyMechanism| parse(name).over(logits).unwrap();
        for logits in ["random", "dense+dot-product", "relative", "rotary"] {
            add(&format!("{logits}@{name}"), over(parse(logits)), one, false);
        }
        let local = local_1d(2, None);
        add(&format!("local-1d@{name}"), over(local.clone().into()), &[Role::Encoder, Role::Decoder], false);
        add(&format!("{name}@local-1d"), AnyMechanism::from(local).over(parse(name)).unwrap(), one, false);
    }
    add("sigmoid, bias", SigmoidConfig::default().with_bias(0.5).into(), one, false);
    let far = AnyMechanism::from(LearnedSinkConfig::default().with_init_std(2.0));
    add("alibi@learned-sink, far", far.over(parse("alibi")).unwrap(), one, false);
    add("soft-cap@learned-sink, far", far.over(parse("soft-cap")).unwrap(), one, false);
    add("softpick, small epsilon", SoftpickConfig::default().with_epsilon(1e-9).into(), one, false);
    let third = AnyMechanism::from(ReluConfig::default().with_power(3).with_length(2));
    add("alibi@relu, third power", third.over(parse("alibi")).unwrap(), one, false);
}

/// Gates on what heads give, over everything that can have them, and below patterns and normalisers.
fn gates(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let one = &[Role::Decoder];
    add("output-gate", parse("output-gate"), &[Role::Encoder, Role::Decoder, Role::Cross], true);
    let headwise = OutputGateConfig::default().with_form(GateForm::Headwise);
    add("output-gate, headwise", headwise.clone().into(), one, true);
    add("output-gate, open", OutputGateConfig::default().with_bias(1.0).into(), one, true);
    add("output-gate, headwise, open", headwise.with_bias(1.0).into(), one, true);
    for name in ["random@output-gate", "relative+dense@output-gate", "alibi@output-gate@output-gate"] {
        add(name, parse(name), one, true);
    }
    let local = local_1d(2, None);
    add("local-1d@output-gate", parse("output-gate").over(local.clone().into()).unwrap(), &[Role::Encoder, Role::Decoder], false);
    add("output-gate@local-1d", AnyMechanism::from(local).over(parse("output-gate")).unwrap(), one, false);
    add("sigmoid@output-gate", parse("sigmoid@output-gate"), one, false);
    for name in ["output-gate@softmax-plus-one", "learned-sink@output-gate", "output-gate@learned-sink"] {
        add(name, parse(name), one, false);
    }
    for name in ["soft-cap@output-gate", "output-gate@soft-cap"] {
        add(name, parse(name), one, true);
    }
}

/// Heads that are made of several softmaxes, over scores with and without keys, patterns, and keys that are not as wide as heads.
fn heads(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let one = &[Role::Decoder];
    add("differential", parse("differential"), &[Role::Encoder, Role::Decoder, Role::Cross], false);
    let raw = DifferentialConfig::default().with_norm(false);
    add("differential, no norm", raw.clone().into(), one, false);
    add("differential, initial", raw.with_lambda_init(0.9).into(), one, false);
    for name in ["alibi@differential", "random@differential", "dense+dot-product@differential", "forgetting@differential"] {
        add(name, parse(name), one, false);
    }
    let local = |name: &str| parse(name).over(local_1d(2, None).into()).unwrap();
    add("local-1d@differential", local("differential"), &[Role::Encoder, Role::Decoder], false);
    add(&format!("differential, {SHARED}"), parse("differential"), one, false);
    add("talking-heads", parse("talking-heads"), &[Role::Encoder, Role::Decoder, Role::Cross], false);
    let talking = TalkingHeadsConfig::default();
    add("talking-heads, logits alone", talking.clone().with_mix_weights(false).into(), one, true);
    add("talking-heads, weights alone", talking.clone().with_mix_logits(false).into(), one, false);
    add("talking-heads, identity", talking.with_init(MixingInit::Identity).into(), one, false);
    for name in ["relative@talking-heads", "random@talking-heads", "uniform@talking-heads", "forgetting+dense@talking-heads"] {
        add(name, parse(name), one, false);
    }
    add("local-1d@talking-heads", local("talking-heads"), &[Role::Encoder, Role::Decoder], false);
    add(&format!("talking-heads, {SHARED}"), parse("talking-heads"), one, false);
}

/// What the names of variants end with whose heads share keys and values.
const SHARED: &str = "shared keys";

fn shared_keys(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let one = &[Role::Decoder];
    add(&format!("dot-product, {SHARED}"), parse("dot-product"), &[Role::Encoder, Role::Decoder, Role::Cross], true);
    add(&format!("dot-product, biases, {SHARED}"), DotProductConfig::default().with_bias(true).into(), one, true);
    add(&format!("dot-product, RMS norms, {SHARED}"), DotProductConfig::default().with_qk_norm(QkNorm::Rms).into(), one, true);
    for name in [
        "relative",
        "alibi",
        "rotary",
        "t5-bias",
        "forgetting",
        "shaw",
        "learned-relative",
        "dense+dot-product",
        "factorized-dense+random",
        "output-gate",
        "dot-product@softmax-plus-one",
        "learned-sink",
    ] {
        add(&format!("{name}, {SHARED}"), parse(name), one, parse(name).card().kind != Kind::Normaliser);
    }
    add(&format!("local-1d, {SHARED}"), local_1d(2, None).into(), one, false);
    let cache = StreamingLlmConfig::default().with_sinks(1).with_window(2);
    for logits in ["rotary", "alibi"] {
        add(&format!("{logits}@streaming-llm, {SHARED}"), cache.clone().with_logits(parse(logits)).into(), one, false);
    }
}

/// What the names of variants have in them whose layer spec asks for biases of all projections.
const BIASED: &str = "biases of the place";

fn biased(add: &mut impl FnMut(&str, AnyMechanism, &[Role], bool)) {
    let one = &[Role::Decoder];
    add(&format!("dot-product, {BIASED}"), parse("dot-product"), &[Role::Encoder, Role::Decoder, Role::Cross], true);
    for name in ["alibi", "rotary", "forgetting", "learned-relative", "dot-product+alibi", "dot-product@softmax-plus-one"] {
        add(&format!("{name}, {BIASED}"), parse(name), one, !name.contains('@'));
    }
    add(&format!("local-1d, {BIASED}"), local_1d(2, None).into(), one, false);
}

/// A span of which no ramp begins or ends at a key.
pub fn ramped() -> AdaptiveSpanConfig {
    AdaptiveSpanConfig::default().with_ramp(2.5).with_initial(0.3)
}

/// Several chunks of which no bucket fills more than one, so that what the properties ask for is exact: then no later element can move a border that a
/// bucket lies across. Their size divides no length but 3 and 6.
pub fn chunked_lsh() -> LshConfig {
    LshConfig::default().with_chunk(3).with_rounds(2).with_full_attention_below(0).with_buckets(BucketCount::One(8))
}

pub fn local_1d(query_block: usize, memory_block: Option<usize>) -> LocalOneDConfig {
    LocalOneDConfig::default().with_query_block(query_block).with_memory_block(memory_block)
}

pub fn local_2d(width: usize, query_block: [usize; 2], memory: [usize; 2]) -> LocalTwoDConfig {
    LocalTwoDConfig::default().with_width(width).with_query_block(query_block).with_memory(memory)
}

pub fn parse(name: &str) -> AnyMechanism {
    name.parse().unwrap()
}

pub fn mixture(members: &str, weights: MixtureWeights) -> AnyMechanism {
    let members = members.split('+').map(parse).collect();
    AnyMechanism::from(MixtureConfig::default().with_members(members).with_weights(weights))
}

/// The maximal length of layers in which variants stand.
const MAX_LENGTH: usize = 8;

/// A layer with heads of width 3, sequences of up to eight elements, and dropout.
pub fn spec(role: Role, heads: usize) -> LayerSpec {
    LayerSpec::new(role, 3 * heads, heads).with_max_length(MAX_LENGTH).with_dropout(0.3)
}

impl Variant {
    pub fn subject(&self, heads: usize, backend: &Backend) -> Subject<AnyAttention> {
        let spec = self.spec(heads);
        self.config.validate(&spec).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let subject = Subject::of(&self.config, spec, &backend.device).unmoved_within(backend.unmoved()).rounding(backend.rounding);
        let subject = if self.normalised { subject } else { subject.unnormalised() };
        let is_normed = self.config.get::<DifferentialConfig>().is_some_and(|config| config.norm);
        let draws = self.config.get::<PerformerConfig>().is_some_and(|config| config.directions == Directions::PerCall);
        let subject = if is_normed || draws { subject.nonlinear() } else { subject };
        match self.border() {
            Some(border) => subject.with_border(border),
            None => subject,
        }
    }

    /// Where it stands: in a layer of heads of width 3, or of width 4 if two each share keys and values or channels are turned in pairs.
    pub fn spec(&self, heads: usize) -> LayerSpec {
        let spec = spec(self.role, heads);
        let spec = if turns_pairs(&self.config) { spec.with_d_model(4 * heads) } else { spec };
        let has_biases = self.name.contains(BIASED);
        let spec = spec.with_qkv_bias(has_biases).with_output_bias(has_biases);
        if !self.shares_keys {
            return spec;
        }
        spec.with_kv_heads(Some(heads.div_ceil(2)).filter(|shared| heads.is_multiple_of(*shared)).or(Some(1))).with_head_width(Some(4))
    }

    /// Length at which the mechanism changes what it does.
    fn border(&self) -> Option<usize> {
        by_type!(&self.config.resolved(MAX_LENGTH);
            config in AftConfig => config.window,
            config in GaussianConfig => (config.execution == gaussian::GaussianExecution::Banded).then_some(config.window),
            config in SlidingWindowConfig => config.window,
            config in StreamingLlmConfig => config.window.map(|window| config.sinks + window),
            config in LocalOneDConfig => config.query_block,
            config in LocalTwoDConfig => config.width,
            config in SparseStridedConfig => config.stride,
            config in SparseFixedConfig => config.stride,
            config in LearnedRelativeConfig => config.max_distance.filter(|&distance| distance < MAX_LENGTH),
            config in LshConfig => config.chunk.filter(|&chunk| chunk < MAX_LENGTH && config.full_attention_below == Some(0)),
            config in RelativeConfig => config.clamp_length.or(config.same_length),
            config in LightweightConvConfig => config.kernel.as_ref().and_then(short),
            config in DynamicConvConfig => config.kernel.as_ref().and_then(short);
            else => None
        )
    }
}

fn turns_pairs(config: &AnyMechanism) -> bool {
    config.get::<RotaryConfig>().is_some() || config.members().into_iter().any(turns_pairs)
}

/// Taps of the first layer, where layers differ and there are few.
fn short(kernel: &KernelSizes) -> Option<usize> {
    match kernel {
        KernelSizes::Each(taps) => Some(taps[0]).filter(|&taps| taps < 8),
        KernelSizes::All(_) => None,
    }
}
