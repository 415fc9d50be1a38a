//! Talking-heads attention: Shazeer et al. 2020.

use heedful_attention::mechanisms::talking_heads::{MixingInit, TalkingHeads};

use super::*;

fn inner(attention: &mut AnyAttention) -> &mut SoftmaxAttention<TalkingHeads> {
    attention.get_mut().expect("its heads talk")
}

/// The attention of the same scores and projections whose heads do not talk.
fn silent(attention: &mut AnyAttention, heads: usize) -> SoftmaxAttention<heedful_attention::description::AnyLogits> {
    let (place, talking) = (spec(Role::Decoder, heads), inner(attention));
    let mut plain = SoftmaxAttention::new(talking.logits.scores.clone(), &place, &RandomKey::from_seed(2), &flex().device);
    (plain.value, plain.output) = (talking.value.clone(), talking.output.clone());
    plain
}

#[test]
fn with_the_identity_heads_keep_to_themselves() {
    let x = Array::random("x", &[2, 6, 9]);
    for logits in ["dot-product", "relative", "random@local-1d"] {
        let config = TalkingHeadsConfig::default().with_init(MixingInit::Identity).with_logits(parse(logits));
        let mut attention = init(&AnyMechanism::from(config), &spec(Role::Decoder, 3));
        let plain = silent(&mut attention, 3);
        let [found, expected] = [context(&attention, self_attention(&x)), context(&plain, self_attention(&x))];
        assert_same(logits, &found.values, &expected.values, 1e-5);
    }
}

#[test]
fn a_permutation_lets_heads_score_for_one_another() {
    // Head h takes the logits of head h + 1 and gives its weights back to head h + 1: the softmaxes move and all else stays.
    let next = Array::from_fn([3, 3], |[from, to]| f64::from(from == (to + 1) % 3));
    let back = Array::from_fn([3, 3], |[from, to]| f64::from(to == (from + 1) % 3));
    let mut attention = init(&parse("talking-heads"), &spec(Role::Decoder, 3));
    let plain = silent(&mut attention, 3);
    let heads = &mut inner(&mut attention).logits;
    (heads.logit_mixing, heads.weight_mixing) = (Some(parameter(&next)), Some(parameter(&back)));
    let x = Array::random("x", &[2, 6, 9]);
    assert_same("context", &context(&attention, self_attention(&x)).values, &context(&plain, self_attention(&x)).values, 1e-5);
}

#[test]
fn a_head_that_hears_nothing_weighs_all_keys_alike() {
    let config = TalkingHeadsConfig::default().with_mix_weights(false);
    let mut attention = init(&AnyMechanism::from(config), &spec(Role::Decoder, 2));
    // The second head hears the first one alone, twice as loud; the first one hears nobody.
    let mixing = Array::from_fn([2, 2], |[from, to]| if (from, to) == (0, 1) { 2.0 } else { 0.0 });
    let mut plain = silent(&mut attention, 2);
    inner(&mut attention).logits.logit_mixing = Some(parameter(&mixing));
    let dot_product = plain.logits.get_mut::<heedful_attention::mechanisms::dot_product::DotProduct>().unwrap();
    dot_product.query.weight = parameter(&Array::read(dot_product.query.weight.val() * 2.0));
    let x = Array::random("x", &[1, 6, 6]);
    let (found, twice) = (weights(&attention, self_attention(&x)), weights(&plain, self_attention(&x)));
    for i in 0..6 {
        let alike: Vec<f64> = (0..6).map(|j| if j <= i { 1.0 / (i + 1) as f64 } else { 0.0 }).collect();
        assert_same("the first head", found.row(&[0, 0, i]), &alike, 1e-6);
        assert_same("the second head", found.row(&[0, 1, i]), twice.row(&[0, 0, i]), 1e-6);
    }
}
