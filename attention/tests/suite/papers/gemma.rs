//! Soft caps of scores: Gemma Team 2024, section 2.

use super::*;

fn capped(logits: &str, cap: f64) -> AnyMechanism {
    AnyMechanism::from(SoftCapConfig::default().with_cap(cap)).over(parse(logits)).unwrap()
}

#[test]
fn the_cap_of_self_attention_is_50_unless_told_otherwise() {
    assert_eq!(SoftCapConfig::default().cap, 50.0);
}

#[test]
fn capped_scores_lie_between_minus_and_plus_the_cap() {
    // With elements a hundred times as large, scores lie far apart.
    let place = spec(Role::Encoder, 2);
    let mut sequence = Array::random("sequence", &[2, 8, 6]);
    sequence.values.iter_mut().for_each(|x| *x *= 100.0);
    let ratio = |attention: &AnyMechanism| {
        let shown = weights(&init(attention, &place), self_attention(&sequence));
        let of_row = |row: &[f64]| row.iter().copied().fold(0.0, f64::max) / row.iter().copied().fold(1.0, f64::min);
        shown.values.chunks(8).map(of_row).fold(0.0, f64::max)
    };
    for cap in [0.25, 1.0, 4.0] {
        let (found, most) = (ratio(&capped("dot-product", cap)), (2.0 * cap).exp());
        assert!(
            found <= most * (1.0 + 1e-4) && found > 0.95 * most,
            "cap {cap}: the largest weight is {found} times the smallest, at most {most}"
        );
    }
    assert!(ratio(&parse("dot-product")) > 1e6);
}

#[test]
fn scores_much_smaller_than_the_cap_stay_what_they_are() {
    let place = spec(Role::Decoder, 2);
    let sequence = Array::random("sequence", &[2, 8, 6]);
    for logits in ["dot-product", "alibi", "random+dot-product"] {
        let plain = context(&init(&parse(logits), &place), self_attention(&sequence));
        let found = context(&init(&capped(logits, 1e4), &place), self_attention(&sequence));
        assert_same(logits, &found.values, &plain.values, 1e-5);
        let bent = context(&init(&capped(logits, 0.2), &place), self_attention(&sequence));
        assert!(crate::array::same(logits, &bent.values, &plain.values, 1e-3).is_err(), "a low cap bends the scores of {logits}");
    }
}

#[test]
fn a_cap_that_nothing_exceeds_makes_all_weights_equal() {
    let place = spec(Role::Encoder, 2);
    let sequence = Array::random("sequence", &[1, 8, 6]);
    let shown = weights(&init(&capped("dot-product", 1e-7), &place), self_attention(&sequence));
    assert_same("weights", &shown.values, &vec![1.0 / 8.0; shown.values.len()], 1e-6);
}
