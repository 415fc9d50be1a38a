//! Formulas of parameter counts against the parameters of modules.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use heedful_attention::description::parameter_formula::ParameterCount;
use heedful_attention::mechanisms::lsh::BucketCount;
use heedful_attention::prelude::*;

use crate::variants::{parse, variants};

/// The value of a sum of products as it is shown, `4 d^2 + H L^2`.
fn value(formula: &str, letters: &[(&str, usize)]) -> usize {
    let factor = |factor: &str| {
        let (base, power) = factor.split_once('^').unwrap_or((factor, "1"));
        let known = letters.iter().find(|(letter, _)| *letter == base).map(|(_, value)| *value);
        let base = known.unwrap_or_else(|| base.parse().unwrap_or_else(|_| panic!("{base} in {formula} has no value")));
        base.pow(power.parse().unwrap())
    };
    formula.split(" + ").map(|product| product.split(' ').map(factor).product::<usize>()).sum()
}

/// Values of the letters that an option decides.
fn option_letters(config: &AnyMechanism, max_length: usize) -> Vec<(&'static str, usize)> {
    by_type!(config;
        config in SynthesizerFactorizedRandomConfig => vec![("k", config.rank.unwrap_or((max_length / 4).clamp(2, 8)))],
        config in SynthesizerFactorizedDenseConfig => {
            let a = max_length.isqrt();
            let [a, b] = config.factors.unwrap_or([a, max_length.div_ceil(a)]);
            vec![("a", a), ("b", b)]
        },
        config in LinformerConfig => {
            let rank = config.rank.unwrap_or((max_length / 4).clamp(2, 64));
            vec![("k", rank), ("s_k", max_length.div_ceil(rank))]
        },
        config in AftConfig => vec![("k", config.rank.unwrap_or((max_length / 4).clamp(2, 128)))],
        config in LearnedRelativeConfig => vec![("S", config.max_distance.unwrap_or(max_length))],
        config in AdaptiveSpanConfig => match &config.logits {
            Some(logits) => option_letters(logits, max_length),
            None => vec![("S", config.max_span.unwrap_or(max_length))],
        },
        config in ShawConfig => vec![("p", config.max_relative_position)],
        config in T5BiasConfig => vec![("B", config.buckets)],
        config in LightweightConvConfig => vec![("t", config.kernel_at(max_length).at(0).unwrap())],
        config in DynamicConvConfig => vec![("t", config.kernel_at(max_length).at(0).unwrap())],
        config in LshConfig => {
            let buckets = match config.buckets {
                None => (2 * max_length).div_ceil(config.chunk.unwrap_or((max_length / 4).clamp(2, 64))).next_multiple_of(2),
                Some(BucketCount::One(count)) => count,
                Some(BucketCount::Factorised([a, b])) => a + b,
            };
            vec![("r", config.rounds), ("c", buckets / 2)]
        },
        mixture in MixtureConfig => mixture.members.iter().flat_map(|member| option_letters(member, max_length)).collect();
        else => config.inner().map(|logits| option_letters(logits, max_length)).unwrap_or_default()
    )
}

/// Values of the letters of widths that an option decides together with the width of a head.
fn widths(config: &AnyMechanism, heads: usize, d_head: usize) -> Vec<(&'static str, usize)> {
    let times = |expansion: f64| (d_head as f64 * expansion).ceil() as usize;
    by_type!(config;
        config in GlaConfig => vec![("K", heads * times(config.key_expansion)), ("v", times(config.value_expansion)), ("u", config.gate_rank)],
        config in SimpleGlaConfig => vec![
            ("K", heads * times(config.key_expansion)),
            ("v", times(config.value_expansion)),
            ("w", config.taps),
        ],
        config in MambaTwoConfig => vec![
            ("N", config.state),
            ("E", config.groups * config.state),
            ("v", config.expansion * d_head),
            ("w", config.taps),
        ],
        config in PerformerConfig => {
            let features = config.features.unwrap_or((d_head as f64 * (d_head as f64).ln()) as usize);
            vec![("F", features.max(1))]
        },
        config in MlaConfig => vec![
            ("d_c", config.latent.unwrap_or(4 * d_head)),
            ("d_r", config.rotary_width.unwrap_or(2 * (d_head / 2).div_ceil(2))),
            ("d_q", config.query_latent.unwrap_or(0)),
        ],
        config in MlpMixerConfig => vec![("h", config.hidden.unwrap_or(heads * d_head / 2))],
        config in BaseConvConfig => vec![("w", config.taps)],
        config in DeltaNetConfig => vec![("w", config.taps)],
        config in GatedDeltaNetConfig => {
            let width = times(config.key_expansion);
            vec![("K", config.key_heads.unwrap_or(heads) * width), ("v", config.value_expansion * width), ("w", config.taps)]
        };
        else => Vec::new()
    )
}

#[derive(Default)]
struct Count {
    trained: usize,
    fixed: usize,
}

impl ModuleVisitor for Count {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let count = if param.is_require_grad() { &mut self.trained } else { &mut self.fixed };
        *count += param.shape().num_elements();
    }
}

#[test]
fn every_formula_counts_the_parameters_at_any_size() {
    let sizes = [(12, 2, 8), (20, 5, 9)];
    let role = |config: &AnyMechanism| if config.can_see_ahead() { Role::Encoder } else { Role::Decoder };
    let names = AnyMechanism::names().into_iter().map(|name| (name.to_owned(), parse(name), role(&parse(name))));
    for (name, config, role) in variants().into_iter().map(|variant| (variant.name, variant.config, variant.role)).chain(names) {
        let formula = config.parameter_formula().unwrap_or_else(|| panic!("{name} has no formula of its parameters"));
        for (d_model, heads, max_length) in sizes {
            let spec = LayerSpec::new(role, d_model, heads).with_max_length(max_length);
            let mut letters = vec![("d", d_model), ("H", heads), ("D", d_model / heads), ("L", max_length)];
            letters.extend(option_letters(&config, max_length));
            letters.extend(widths(&config, heads, d_model / heads));
            let mut count = Count::default();
            config.init(&spec, &RandomKey::from_seed(1), &Device::flex().autodiff()).visit(&mut count);
            assert_eq!(value(&formula.trained.to_string(), &letters), count.trained, "{name}: trained, {formula}, {spec:?}");
            assert_eq!(value(&formula.fixed.to_string(), &letters), count.fixed, "{name}: fixed, {formula}, {spec:?}");
            let numbers = ParameterCount { trained: count.trained as u128, fixed: count.fixed as u128 };
            assert_eq!(config.parameters_at(&spec), Some(numbers), "{name}: {spec:?}");
        }
    }
}

#[test]
fn parameters_of_heads_of_any_size_are_counted() {
    let mut counted = 0;
    for config in AnyMechanism::all().into_iter().filter(AnyMechanism::has_free_heads) {
        for (heads, kv_heads, head_width) in [(4, Some(2), None), (4, Some(1), Some(6)), (3, None, Some(8))] {
            let spec = LayerSpec::new(Role::Encoder, 16, heads).with_max_length(8).with_kv_heads(kv_heads).with_head_width(head_width);
            config.validate(&spec).unwrap();
            let mut count = Count::default();
            config.init(&spec, &RandomKey::from_seed(1), &Device::flex().autodiff()).visit(&mut count);
            let numbers = ParameterCount { trained: count.trained as u128, fixed: count.fixed as u128 };
            assert_eq!(config.parameters_at(&spec), Some(numbers), "{config}: {spec:?}");
            counted += 1;
        }
    }
    assert!(counted > 30, "only {counted} were counted");
}

#[test]
fn layers_of_other_sizes_are_counted() {
    for config in [parse("lightweight-conv"), parse("dynamic-conv")] {
        let counts = [0, 1, 3].map(|layer| {
            let spec = LayerSpec::new(Role::Encoder, 12, 4).at_layer(layer, 4);
            let mut count = Count::default();
            config.init(&spec, &RandomKey::from_seed(1), &Device::flex().autodiff()).visit(&mut count);
            let numbers = ParameterCount { trained: count.trained as u128, fixed: count.fixed as u128 };
            assert_eq!(config.parameters_at(&spec), Some(numbers), "{config}: {spec:?}");
            count.trained
        });
        assert!(counts[0] < counts[1] && counts[1] < counts[2], "{config}: {counts:?}");
    }
}

#[test]
fn biases_that_the_place_asks_for_are_counted() {
    let mut counted = 0;
    let biased = AnyMechanism::from(DotProductConfig::default().with_bias(true));
    for config in AnyMechanism::all().into_iter().filter(AnyMechanism::has_biases_on_demand).chain([biased, parse("dot-product+alibi")]) {
        for (qkv_bias, output_bias) in [(false, false), (true, false), (false, true), (true, true)] {
            let spec = LayerSpec::new(Role::Encoder, 16, 4).with_max_length(8).with_qkv_bias(qkv_bias).with_output_bias(output_bias);
            let spec = spec.with_kv_heads(config.has_free_heads().then_some(2));
            config.validate(&spec).unwrap();
            let mut count = Count::default();
            config.init(&spec, &RandomKey::from_seed(1), &Device::flex().autodiff()).visit(&mut count);
            let numbers = ParameterCount { trained: count.trained as u128, fixed: count.fixed as u128 };
            assert_eq!(config.parameters_at(&spec), Some(numbers), "{config}: {spec:?}");
            counted += 1;
        }
    }
    assert!(counted > 30, "only {counted} were counted");
    let of_dot_product = |spec: LayerSpec| parse("dot-product").parameters_at(&spec).unwrap().trained;
    let place = LayerSpec::new(Role::Decoder, 12, 4).with_kv_heads(Some(2));
    assert_eq!(of_dot_product(place.with_qkv_bias(true)) - of_dot_product(place), 12 + 6 + 6);
    assert_eq!(of_dot_product(place.with_output_bias(true)) - of_dot_product(place), 12);
}

#[test]
fn parameters_are_counted_at_sizes_that_nobody_could_build() {
    let largest = usize::MAX;
    for variant in variants() {
        for (d_model, heads, max_length) in [(largest, 1, largest), (largest, 0, 0), (0, largest, largest)] {
            let spec = LayerSpec::new(variant.role, d_model, heads).with_max_length(max_length);
            let found = variant.config.parameters_at(&spec);
            // Of what has no projections, the parameters are those of positions, or there are none.
            let has_few = d_model == 0 || variant.config.family() == "fnet" || variant.config.family() == "mlp-mixer" && max_length == 0;
            assert!(found.is_some_and(|count| has_few || count.trained >= largest as u128), "{}: {found:?}", variant.name);
        }
    }
}

#[test]
fn formulas_are_written_as_in_text() {
    let shown = |config: AnyMechanism| config.parameter_formula().unwrap().to_string();
    assert_eq!(shown(parse("dot-product")), "4 d^2");
    assert_eq!(shown(parse("random+dot-product")), "4 d^2 + H L^2 + 2 H");
    assert_eq!(shown(parse("random-fixed")), "2 d^2, fixed H L^2");
    let shared = AnyMechanism::from(SynthesizerDenseConfig::default().with_per_head_output(false));
    assert_eq!(shown(shared), "3 d^2 + D L");
}
