//! Layers of released models, against numbers in double precision: `tests/fixtures/released_layers.py`.

use burn::tensor::Device;
use heedful_attention::mechanisms::delta_rule::DeltaRule;
use heedful_attention::mechanisms::gated_recurrence::GatedRecurrence;
use heedful_attention::mechanisms::mamba_2::StateSpace;
use heedful_attention::mechanisms::mla::Mla;
use heedful_attention::mechanisms::recurrent_attention::RecurrentAttention;
use heedful_attention::mechanisms::rotary::{Rotary, RotaryScaling};

use super::*;

/// The outputs of a layer, `[6, 8]`.
fn expected(name: &str) -> Vec<f64> {
    let file: toml::Table = toml::from_str(include_str!("../../fixtures/released_layers.toml")).unwrap();
    file[name].as_array().unwrap().iter().map(|number| number.as_float().unwrap()).collect()
}

/// The numbers of a parameter, as the script makes them.
fn number(seed: usize, flat: usize) -> f64 {
    (((flat * 37 + seed * 101) % 29) as f64 - 14.0) / 16.0
}

fn vector(seed: usize, length: usize) -> Array {
    Array::from_fn([length], |[index]| number(seed, index))
}

fn matrix(seed: usize, rows: usize, columns: usize) -> Array {
    Array::from_fn([rows, columns], |[row, column]| number(seed, row * columns + column))
}

fn map(seed: usize, rows: usize, columns: usize) -> Linear {
    linear(&matrix(seed, rows, columns))
}

/// The elements `[1, 6, 8]`.
fn elements(scale: f64) -> Array {
    Array::from_fn([1, 6, 8], |[_, row, column]| number(0, row * 8 + column) * scale)
}

/// What steps of 1 and then of 2 elements give.
fn in_steps(attention: &AnyAttention, x: &Array) -> Vec<f64> {
    let x: Tensor<3> = x.tensor(&flex().device);
    let mut state = attention.state(&DecodingStart::self_attention(1, 6));
    let mut step =
        |start, length| Array::read(attention.step(x.clone().narrow(1, start, length), &mut state, &mut Probe::off()).context).values;
    [(0, 1), (1, 2), (3, 1), (4, 2)].into_iter().flat_map(|(start, length)| step(start, length)).collect()
}

/// Asserts that a layer gives these numbers, in whole and in steps.
fn assert_gives(name: &str, attention: &AnyAttention, x: &Array) {
    let expected = expected(name);
    let greatest = expected.iter().fold(0.0, |greatest: f64, number| greatest.max(number.abs()));
    for (how, found) in [("whole", context(attention, self_attention(x)).values), ("in steps", in_steps(attention, x))] {
        assert_same(&format!("{name}, {how}"), &found, &expected, 1e-4 * greatest);
    }
}

fn gated_delta_net(config: GatedDeltaNetConfig) -> AnyAttention {
    let config = config.with_key_expansion(1.5).with_value_expansion(1).with_key_heads(2);
    let mut attention = init(&config.into(), &LayerSpec::new(Role::Decoder, 8, 4).with_max_length(6));
    let layer = attention.get_mut::<RecurrentAttention<GatedRecurrence<DeltaRule>>>().unwrap();
    layer.output = map(11, 12, 8);
    let GatedRecurrence { maps, rule, norm } = &mut layer.mixer;
    (maps.query, maps.key, maps.value) = (map(1, 8, 6), map(2, 8, 6), map(3, 8, 12));
    (norm.gate, rule.strength) = (Some(map(4, 8, 12)), map(5, 8, 4));
    let decay = rule.decay.as_mut().unwrap();
    decay.step = Linear { bias: Some(parameter(&vector(7, 4))), ..map(6, 8, 4) };
    decay.a_log = parameter(&vector(8, 4));
    norm.gamma = Some(parameter(&vector(9, 3)));
    maps.convolution.as_mut().unwrap().weight = parameter(&matrix(10, 4, 24));
    attention
}

#[test]
fn a_layer_of_qwen3_next_shares_key_heads_and_has_its_epsilon() {
    let x = elements(1.0 / 64.0);
    assert_gives("gated-delta-net", &gated_delta_net(GatedDeltaNetConfig::default().with_norm_epsilon(1e-6)), &x);
    assert_gives("gated-delta-net-1e-5", &gated_delta_net(GatedDeltaNetConfig::default()), &x);
}

#[test]
fn heads_of_keys_divide_the_heads_and_epsilons_have_an_effect() {
    let place = LayerSpec::new(Role::Decoder, 8, 4);
    let refused = |config: &str| config.parse::<AnyMechanism>().unwrap().validate(&place).unwrap_err().to_string();
    assert!(refused("gated-delta-net{key_heads=3}").contains("`key_heads` is 3: give a divisor of heads = 4"));
    assert!(refused("gated-delta-net{key_heads=0}").contains("`key_heads` is 0"));
    for name in ["gated-delta-net", "delta-net", "gla", "simple-gla", "retnet"] {
        assert!(refused(&format!("{name}{{norm_epsilon=0.0}}")).contains("`norm_epsilon` is 0: give a number greater than 0"), "{name}");
        let idle = refused(&format!("{name}{{norm='none',norm_epsilon=1e-3}}"));
        assert!(idle.contains("leave it out, or normalise heads"), "{idle}");
        let none: AnyMechanism = format!("{name}{{norm='none'}}").parse().unwrap();
        assert!(none.without_effect("norm_epsilon", Role::Decoder).is_some(), "{name}");
    }
    for limit in [[0.1, 0.1], [-0.1, 1.0], [0.0, f64::INFINITY], [f64::NAN, 1.0]] {
        let config = AnyMechanism::from(MambaTwoConfig::default().with_time_step_limit(limit));
        assert!(config.validate(&place).unwrap_err().to_string().contains("`time_step_limit` is ["), "{limit:?}");
    }
    assert!(refused("mamba-2{norm_epsilon=-1.0}").contains("`norm_epsilon` is -1"));
}

fn mamba_2(config: MambaTwoConfig) -> AnyAttention {
    let mut attention = init(&config.with_state(3).into(), &LayerSpec::new(Role::Decoder, 8, 4).with_max_length(6));
    let layer = attention.get_mut::<RecurrentAttention<StateSpace>>().unwrap();
    layer.output = map(12, 16, 8);
    let mixer = &mut layer.mixer;
    (mixer.gate, mixer.value, mixer.key, mixer.query) = (map(1, 8, 16), map(2, 8, 16), map(3, 8, 3), map(4, 8, 3));
    mixer.decay.step = Linear { bias: Some(parameter(&vector(6, 4))), ..map(5, 8, 4) };
    (mixer.decay.a_log, mixer.skip) = (parameter(&vector(7, 4)), parameter(&vector(8, 4)));
    (mixer.convolution.weight, mixer.convolution.bias) = (parameter(&matrix(9, 4, 22)), Some(parameter(&vector(10, 22))));
    mixer.gamma = parameter(&vector(11, 16));
    attention
}

#[test]
fn steps_of_mamba_2_have_limits() {
    assert_gives("mamba-2", &mamba_2(MambaTwoConfig::default().with_time_step_limit([0.25, 1.0])), &elements(1.0));
    assert_gives("mamba-2-without-limit", &mamba_2(MambaTwoConfig::default()), &elements(1.0));
}

#[test]
fn latent_attention_has_the_yarn_of_deepseek() {
    let mut config = MlaConfig::default().with_latent(6).with_rotary_width(4);
    config.scaling = RotaryScaling::Yarn {
        factor: 4.0,
        original_max_position_embeddings: 64,
        beta_fast: 4.0,
        beta_slow: 0.5,
        attention_factor: None,
        mscale: Some(1.0),
        mscale_all_dim: Some(0.5),
        truncate: true,
    };
    let mut attention = init(&config.into(), &LayerSpec::new(Role::Decoder, 8, 2).with_max_length(6));
    let layer = attention.get_mut::<Mla>().unwrap();
    (layer.query, layer.latent, layer.rotary_key) = (map(1, 8, 16), map(2, 8, 6), Some(map(4, 8, 4)));
    layer.latent_norm.as_mut().unwrap().gamma = parameter(&vector(3, 6));
    (layer.key, layer.value, layer.output) = (map(5, 6, 8), map(6, 6, 8), map(7, 8, 8));
    assert_gives("mla", &attention, &elements(1.0));
}

#[test]
fn scalings_that_have_no_place_in_latent_attention_are_refused() {
    let place = LayerSpec::new(Role::Decoder, 8, 2);
    let refused = |config: &str| config.parse::<AnyMechanism>().unwrap().validate(&place).unwrap_err().to_string();
    assert!(refused("mla{scaling={kind='dynamic',factor=2.0,original_max_position_embeddings=4}}").contains("`scaling.kind` is dynamic"));
    assert!(refused("mla{rotary_width=0,scaling={kind='linear',factor=2.0}}").contains("`rotary_width` is 0"));
    assert!(refused("mla{scaling={kind='linear',factor=0.5}}").contains("`scaling.factor` is 0.5"));
    let dynamic = RotaryScaling::Dynamic { factor: 2.0, original_max_position_embeddings: 4 };
    let cache = StreamingLlmConfig::default().with_logits(AnyMechanism::from(RotaryConfig::default().with_scaling(dynamic)));
    assert!(AnyMechanism::from(cache).validate(&place).unwrap_err().to_string().contains("another scaling than dynamic"));
}

/// Weights of rotary attention whose projections are the identity, in a call of `length` elements.
fn rotated(scaling: RotaryScaling, length: usize) -> (AnyAttention, Array) {
    let mut attention = init(
        &RotaryConfig::default().with_base(100.0).with_scaling(scaling).into(),
        &LayerSpec::new(Role::Decoder, 4, 1).with_max_length(16),
    );
    let logits = attention.logits_mut::<Rotary>().unwrap();
    (logits.query, logits.key) = (linear(&super::identity(4)), linear(&super::identity(4)));
    (attention, Array::from_fn([1, length, 4], |[_, row, column]| number(row, column)))
}

/// Scores of the last element by angles from one position to the next, in double precision.
fn last_weights(x: &Array, angles: [f64; 2]) -> Vec<f64> {
    let length = x.values.len() / 4;
    let turned = |row: usize| {
        let mut y = [0.0; 4];
        for (pair, angle) in angles.into_iter().enumerate() {
            let (sin, cos) = (angle * row as f64).sin_cos();
            let (a, b) = (x.at(&[0, row, pair]), x.at(&[0, row, pair + 2]));
            (y[pair], y[pair + 2]) = (a * cos - b * sin, a * sin + b * cos);
        }
        y
    };
    let last = turned(length - 1);
    let scores: Vec<f64> = (0..length).map(|row| (turned(row).iter().zip(last).map(|(a, b)| a * b).sum::<f64>() / 2.0).exp()).collect();
    scores.iter().map(|score| score / scores.iter().sum::<f64>()).collect()
}

#[test]
fn dynamic_angles_follow_the_length_of_the_call_and_of_the_steps() {
    let scaling = RotaryScaling::Dynamic { factor: 2.0, original_max_position_embeddings: 4 };
    let row = |attention: &AnyAttention, x: &Array| {
        let all = weights(attention, self_attention(x));
        let length = x.values.len() / 4;
        all.values[all.values.len() - length..].to_vec()
    };
    for length in [2, 4, 5, 9] {
        let (attention, x) = rotated(scaling, length);
        // Of 4 channels: base^(-1/2), where the base grows by (2 n / 4 - 1)^2 beyond 4 positions.
        let grown = if length > 4 { length as f64 / 2.0 - 1.0 } else { 1.0 };
        let expected = last_weights(&x, [1.0, 0.1 / grown]);
        assert_same(&format!("{length} elements"), &row(&attention, &x), &expected, 1e-6);
        // The last step turns all remembered keys for the length that it has reached.
        let whole = context(&attention, self_attention(&x)).values;
        let device: &Device = &flex().device;
        let x: Tensor<3> = x.tensor(device);
        let mut state = attention.state(&DecodingStart::self_attention(1, 16));
        let mut last = Vec::new();
        for at in 0..length {
            last = Array::read(attention.step(x.clone().narrow(1, at, 1), &mut state, &mut Probe::off()).context).values;
        }
        assert_same(&format!("the last of {length} steps"), &last, &whole[whole.len() - 4..], 1e-5);
    }
}

#[test]
fn a_proportional_share_is_turned_as_among_all_pairs() {
    let (attention, x) = rotated(RotaryScaling::Proportional { factor: 2.0, partial_rotary_factor: 0.5 }, 7);
    let all = weights(&attention, self_attention(&x));
    // The first pair alone, channels 0 and 2.
    assert_same("proportional", &all.values[all.values.len() - 7..], &last_weights(&x, [0.5, 0.0]), 1e-6);
}
