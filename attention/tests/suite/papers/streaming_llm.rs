//! StreamingLLM: Xiao, Tian, Chen, Han and Lewis 2023.

use heedful_attention::description::restricted::{PatternExecution, Restricted};
use heedful_attention::mechanisms::alibi::{Alibi, slopes};
use heedful_attention::mechanisms::rotary::Rotary;
use heedful_attention::mechanisms::streaming_llm::StreamingPositions;

use super::*;

/// Two heads of width 4.
fn place() -> LayerSpec {
    spec(Role::Decoder, 2).with_d_model(8).with_max_length(64)
}

fn over(logits: &str, sinks: usize, window: usize) -> AnyMechanism {
    AnyMechanism::from(StreamingLlmConfig::default().with_sinks(sinks).with_window(window).with_logits(parse(logits)))
}

fn streaming(logits: &str, sinks: usize, window: usize) -> AnyAttention {
    init(&over(logits, sinks, window), &place())
}

/// What the steps of a state give, each of so many positions as `chunks` says in turn.
fn decoded(attention: &AnyAttention, x: &Array, start: &DecodingStart, chunks: &[usize]) -> Array {
    let (length, mut state) = (x.shape[1], attention.state(start));
    let (mut at, mut steps) = (0, Vec::new());
    for chunk in chunks.iter().cycle() {
        let end = (at + chunk).min(length);
        steps.push(attention.step(x.slice(at..end).tensor(&flex().device), &mut state, &mut Probe::off()).context);
        at = end;
        if at == length {
            break;
        }
    }
    Array::read(Tensor::cat(steps, 1))
}

#[test]
fn streaming_is_whole_attention_until_the_cache_is_full() {
    let x = Array::random("x", &[2, 12, 8]);
    for logits in ["rotary", "alibi", "dot-product", "rotary+alibi"] {
        let whole = context(&init(&parse(logits), &place()), self_attention(&x));
        let found = context(&streaming(logits, 2, 5), self_attention(&x));
        assert_same(logits, &found.slice(0..7).values, &whole.slice(0..7).values, 1e-6);
        assert!(found.slice(7..8).values.iter().zip(&whole.slice(7..8).values).any(|(a, b)| (a - b).abs() > 1e-4), "{logits}");
    }
}

#[test]
fn a_query_sees_sinks_and_window() {
    let shown = weights(&streaming("rotary", 2, 3), self_attention(&Array::random("x", &[1, 10, 8])));
    for i in 0..10 {
        let seen: Vec<usize> = (0..10).filter(|&j| shown.at(&[0, 0, i, j]) > 0.0).collect();
        let expected: Vec<usize> = (0..=i).filter(|&j| j < 2 || j + 3 > i).collect();
        assert_eq!(seen, expected, "query {i}");
        assert_eq!(seen.len(), (i + 1).min(5), "query {i}");
    }
}

/// One head of width 2 whose only pair turns by 1 for each position, with projections that are the identity.
fn one_pair(sinks: usize, window: usize) -> AnyAttention {
    let place = LayerSpec::new(Role::Decoder, 2, 1);
    let mut attention = init(&over("rotary", sinks, window), &place);
    let restricted = softmax(&mut attention).logits.get_mut::<Restricted>().unwrap();
    let rotary = restricted.logits[0].get_mut::<Rotary>().unwrap();
    (rotary.query, rotary.key) = (linear(&identity(2)), linear(&identity(2)));
    attention
}

#[test]
fn a_sink_is_turned_as_if_it_stood_before_the_window() {
    let attention = one_pair(1, 2);
    // Of equal elements of length r the score of a key at distance t is r^2 cos(t) / sqrt(2).
    let x = Array::from_fn([1, 9, 2], |[_, _, channel]| [0.6, 0.8][channel] * 2.0);
    let shown = weights(&attention, self_attention(&x));
    let exponential = |distance: f64| (4.0 * distance.cos() / 2f64.sqrt()).exp();
    for i in 3..9 {
        // The sink is 2 before the query inside the cache and farther in the sequence, the keys of the window are 1 and 0 before it.
        let sum: f64 = [2.0, 1.0, 0.0].map(exponential).iter().sum();
        let row = shown.row(&[0, 0, i]);
        assert_same(&format!("query {i}: sink"), &row[..1], &[exponential(2.0) / sum], 1e-6);
        assert_same(&format!("query {i}: window"), &row[i - 1..=i], &[exponential(1.0) / sum, exponential(0.0) / sum], 1e-6);
    }
    let sequence = AnyMechanism::from(
        StreamingLlmConfig::default()
            .with_sinks(1)
            .with_window(2)
            .with_positions(StreamingPositions::Sequence)
            .with_logits(parse("rotary")),
    );
    let moved = weights(&streaming("rotary", 1, 2), self_attention(&Array::random("x", &[1, 9, 8])));
    let stayed = weights(&init(&sequence, &place()), self_attention(&Array::random("x", &[1, 9, 8])));
    assert_same("query 2", moved.row(&[0, 0, 2]), stayed.row(&[0, 0, 2]), 1e-6);
    assert!((moved.at(&[0, 0, 8, 0]) - stayed.at(&[0, 0, 8, 0])).abs() > 1e-4, "with positions in the sequence sinks stand elsewhere");
}

#[test]
fn without_content_weights_fall_with_the_distance_inside_the_cache() {
    let (sinks, window) = (3, 2);
    let mut attention = streaming("alibi", sinks, window);
    let restricted = softmax(&mut attention).logits.get_mut::<Restricted>().unwrap();
    restricted.logits[0].get_mut::<Alibi>().unwrap().query = linear(&Array::from_fn([8, 8], |_| 0.0));
    let shown = weights(&attention, self_attention(&Array::random("x", &[1, 12, 8])));
    for (head, slope) in slopes(2).into_iter().enumerate() {
        for i in 0..12usize {
            let index = i.min(sinks + window - 1);
            let cached = (0..=index).map(|place| (-slope * (index - place) as f64).exp());
            let sum: f64 = cached.clone().sum();
            let expected: Vec<f64> = cached.map(|weight| weight / sum).collect();
            let found: Vec<f64> = (0..=i).filter(|&j| j < sinks || j + window > i).map(|j| shown.at(&[0, head, i, j])).collect();
            assert_same(&format!("head {head}, query {i}"), &found, &expected, 1e-6);
        }
    }
}

#[test]
fn what_was_forgotten_has_no_part() {
    let x = Array::random("x", &[1, 14, 8]);
    for logits in ["rotary", "alibi", "dot-product"] {
        let attention = streaming(logits, 2, 4);
        let (before, query) = (context(&attention, self_attention(&x)), 13);
        let moved_by = |key: usize| {
            let mut changed = x.clone();
            changed.row_mut(&[0, key]).iter_mut().for_each(|x| *x = 5.0 - 3.0 * *x);
            let after = context(&attention, self_attention(&changed));
            let (after, before) = (after.row(&[0, query]), before.row(&[0, query]));
            after.iter().zip(before).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        for key in 0..13 {
            let is_seen = key < 2 || key + 4 > query;
            assert_eq!(moved_by(key) > 0.0, is_seen, "{logits}: key {key}");
        }
    }
}

#[test]
fn steps_of_any_length_give_what_the_whole_sequence_gives() {
    let x = Array::random("x", &[2, 40, 8]);
    for logits in
        ["rotary", "alibi", "dot-product", "alibi+rotary", "rotary@soft-cap", "alibi@sigmoid", "rotary@output-gate", "rotary@local-1d"]
    {
        for (sinks, window) in [(1, 1), (4, 6), (2, 17)] {
            let attention = streaming(logits, sinks, window);
            let whole = context(&attention, self_attention(&x));
            for chunks in [&[1][..], &[3], &[20, 1, 1, 18], &[1, 7]] {
                let found = decoded(&attention, &x, &DecodingStart::self_attention(2, 40), chunks);
                assert_same(&format!("{logits}, {sinks} and {window}, {chunks:?}"), &found.values, &whole.values, 1e-5);
            }
        }
    }
    for name in [
        "rotary@streaming-llm@differential",
        "rotary@streaming-llm@talking-heads",
        "alibi@streaming-llm@sliding-window{window=9}",
        "rotary@streaming-llm@sparse-strided{stride=4}",
    ] {
        let (before, after) = name.split_once("streaming-llm").unwrap();
        let inner = over(before.trim_end_matches('@'), 2, 5);
        let outer = parse(after.trim_start_matches('@')).over(inner).unwrap();
        let attention = init(&outer, &place());
        let whole = context(&attention, self_attention(&x));
        for chunks in [&[1][..], &[20, 3]] {
            let found = decoded(&attention, &x, &DecodingStart::self_attention(2, 40), chunks);
            assert_same(&format!("{name}, {chunks:?}"), &found.values, &whole.values, 1e-5);
        }
    }
}

#[test]
fn padding_at_the_left_and_other_masks_change_no_position() {
    let x = Array::random("x", &[2, 24, 8]);
    for logits in ["rotary", "alibi"] {
        let attention = streaming(logits, 2, 4);
        let start = DecodingStart::self_attention(2, 24).with_left_padding([0, 7]);
        for chunks in [&[1][..], &[9, 1, 4]] {
            let found = decoded(&attention, &x, &start, chunks);
            let alone = |row: usize, padding: usize| {
                let real = Array::from_fn([1, 24 - padding, 8], |[_, i, c]| x.at(&[row, i + padding, c]));
                context(&attention, self_attention(&real)).values
            };
            assert_same(&format!("{logits}, first row"), found.row(&[0]), &alone(0, 0), 1e-5);
            assert_same(&format!("{logits}, padded row"), found.slice(7..24).row(&[1]), &alone(1, 7), 1e-5);
        }
        // Some keys are hidden, by their places in the sequence.
        let mask = Visibility::relation(|i, j| i == j || (i + j) % 3 != 0);
        let whole = context(&attention, self_attention(&x).visibility(mask.clone()));
        let masked = DecodingStart::self_attention(2, 24).with_visibility(mask);
        assert_same(&format!("{logits}, masked"), &decoded(&attention, &x, &masked, &[1]).values, &whole.values, 1e-5);
    }
}

#[test]
fn a_state_grows_until_the_cache_is_full() {
    let x = Array::random("x", &[2, 30, 8]);
    let bytes = |attention: &AnyAttention| -> Vec<usize> {
        let mut state = attention.state(&DecodingStart::self_attention(2, 30));
        let step = |t: usize| {
            attention.step(x.slice(t..t + 1).tensor(&flex().device), &mut state, &mut Probe::off());
            attention.state_bytes(&state).unwrap()
        };
        (0..30).map(step).collect()
    };
    // Keys and values of two rows, 8 wide, four bytes each.
    let position = 2 * 2 * 8 * 4;
    for logits in ["rotary", "alibi", "dot-product"] {
        let expected: Vec<usize> = (1..=30usize).map(|length| length.min(3 + 5) * position).collect();
        assert_eq!(bytes(&streaming(logits, 3, 5)), expected, "{logits}");
    }
    let sequence = StreamingLlmConfig::default().with_sinks(3).with_window(5).with_positions(StreamingPositions::Sequence);
    let all = bytes(&init(&sequence.with_logits(parse("rotary")).into(), &place()));
    assert_eq!(all[29], 30 * position, "with positions in the sequence all keys stay");
}

#[test]
fn weights_of_steps_have_a_column_for_each_key() {
    let attention = streaming("rotary", 2, 3);
    let x = Array::random("x", &[1, 9, 8]);
    let whole = weights(&attention, self_attention(&x));
    let mut state = attention.state(&DecodingStart::self_attention(1, 9));
    for t in 0..9 {
        let mut shown = None;
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Weights(weights) = observation {
                shown = Some(Array::read(weights));
            }
        };
        attention.step(x.slice(t..t + 1).tensor(&flex().device), &mut state, &mut Probe::listening(&mut listener));
        let shown = shown.unwrap();
        assert_eq!(shown.shape, [1, 2, 1, t + 1]);
        for head in 0..2 {
            assert_same(&format!("step {t}, head {head}"), shown.row(&[0, head, 0]), &whole.row(&[0, head, t])[..=t], 1e-6);
        }
    }
}

#[test]
fn engines_and_executions_agree_on_long_sequences() {
    let place = place().with_max_length(90);
    let x = Array::random("x", &[2, 90, 8]);
    for logits in ["rotary", "alibi", "rotary+alibi", "rotary@sigmoid"] {
        let config = StreamingLlmConfig::default().with_sinks(3).with_window(20).with_logits(parse(logits));
        let run =
            |config: StreamingLlmConfig, engine: Engine| context(&init(&config.into(), &place), self_attention(&x).engine(engine)).values;
        let expected = run(config.clone(), Engine::Reference);
        for execution in [PatternExecution::Masked, PatternExecution::Blocked] {
            for engine in [Engine::Auto, Engine::Fused] {
                let found = run(config.clone().with_execution(execution), engine);
                assert_same(&format!("{logits}, {execution:?}, {engine:?}"), &found, &expected, 1e-5);
            }
        }
    }
}
