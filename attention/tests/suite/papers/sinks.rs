//! Softmaxes with one more key: Miller 2023, and the learned sinks of gpt-oss (OpenAI 2025).

use heedful_attention::description::case::parameters;

use super::*;

const HEADS: usize = 2;

fn place() -> LayerSpec {
    spec(Role::Encoder, HEADS)
}

fn sequence() -> Array {
    Array::random("sequence", &[2, 8, 3 * HEADS])
}

/// An attention whose heads have these sinks.
fn with_sinks(name: &str, sinks: [f64; HEADS]) -> AnyAttention {
    let mut attention = init(&parse(name), &place());
    softmax(&mut attention).sink = Some(parameter(&Array { shape: vec![HEADS], values: sinks.to_vec() }));
    attention
}

#[test]
fn a_sink_of_0_is_softmax_plus_one() {
    for logits in ["dot-product", "alibi", "relative@local-1d"] {
        let found = with_sinks(&format!("{logits}@learned-sink"), [0.0; HEADS]);
        let expected = init(&parse(&format!("{logits}@softmax-plus-one")), &place());
        let run = |attention| context(attention, self_attention(&sequence())).values;
        assert_same(logits, &run(&found), &run(&expected), 1e-6);
    }
}

#[test]
fn a_very_low_sink_is_none_and_a_very_high_one_takes_everything() {
    let run = |attention: &AnyAttention| context(attention, self_attention(&sequence())).values;
    let plain = run(&init(&parse("dot-product"), &place()));
    assert_same("low", &run(&with_sinks("learned-sink", [-200.0; HEADS])), &plain, 1e-6);
    assert_same("high", &run(&with_sinks("learned-sink", [200.0; HEADS])), &vec![0.0; plain.len()], 1e-30);
}

#[test]
fn a_sink_takes_the_same_share_from_all_keys_of_a_row_with_odds_of_its_exponential() {
    let shown = |attention: &AnyAttention| weights(attention, self_attention(&sequence()));
    let plain = shown(&init(&parse("dot-product"), &place()));
    let [low, high] = [[-1.0, 0.5], [0.25, 2.0]].map(|sinks| (sinks, shown(&with_sinks("learned-sink", sinks))));
    for (row, plain) in plain.values.chunks(8).enumerate() {
        let share = |weights: &Array| weights.values[row * 8..][..8].iter().sum::<f64>();
        for (_, weights) in [&low, &high] {
            let scaled: Vec<f64> = plain.iter().map(|weight| weight * share(weights)).collect();
            assert_same(&format!("row {row}"), &weights.values[row * 8..][..8], &scaled, 1e-6);
            assert!((0.0..1.0).contains(&share(weights)));
        }
        let odds = |weights| share(weights) / (1.0 - share(weights));
        let head = row / 8 % HEADS;
        let expected = (high.0[head] - low.0[head]).exp();
        assert_same(&format!("odds of row {row}"), &[odds(&low.1) / odds(&high.1)], &[expected], 1e-4 * expected);
    }
}

#[test]
fn a_query_that_sees_no_key_gives_0_whatever_its_sink() {
    let input = self_attention(&sequence()).visibility(Visibility::padding(vec![8, 0]));
    let found = context(&with_sinks("learned-sink", [3.0, -3.0]), input);
    assert_eq!(found.row(&[1]), vec![0.0; 8 * 3 * HEADS]);
    assert!(found.row(&[0]).iter().all(|&number| number != 0.0));
}

#[test]
fn sinks_begin_small_and_are_the_only_parameters_beside_those_of_the_softmax() {
    let device = flex().device;
    let wide = LayerSpec::new(Role::Decoder, 1000, 500).with_max_length(8);
    let of = |std: f64| {
        let mechanism = AnyMechanism::from(LearnedSinkConfig::default().with_init_std(std));
        parameters(&mechanism.init(&wide, &RandomKey::from_seed(1), &device), None)["Softmax.sink"].values.clone()
    };
    let deviation = |values: Vec<f64>| (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt();
    assert!((deviation(of(LearnedSinkConfig::default().init_std)) - 0.02).abs() < 0.002);
    assert_eq!(of(0.0), vec![0.0; 500]);
    let names = |name: &str| parameters(&init(&parse(name), &place()), None).into_keys().collect::<Vec<_>>();
    let mut with = names("dot-product@sliding-window@learned-sink");
    with.retain(|name| name != "Softmax.sink");
    assert_eq!(with, names("dot-product@sliding-window"));
}
