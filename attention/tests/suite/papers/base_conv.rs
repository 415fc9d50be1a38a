//! BaseConv: Arora et al. 2023 (2312.04927).

use heedful_attention::mechanisms::base_conv::BaseConv;

use super::*;

fn inner(attention: &mut AnyAttention) -> &mut BaseConv {
    attention.get_mut().expect("it is a gated convolution")
}

#[test]
fn a_kernel_that_shifts_multiplies_each_element_by_an_earlier_one() {
    for (taps, shift) in [(1, 0), (3, 0), (3, 2), (5, 1)] {
        let mut attention = init(&BaseConvConfig::default().with_taps(taps).into(), &spec(Role::Decoder, 2));
        let own = inner(&mut attention);
        own.gate = linear(&identity(6));
        own.weight = parameter(&Array::from_fn([taps, 6], |[tap, _]| if tap + shift + 1 == taps { 1.0 } else { 0.0 }));
        let x = Array::random("x", &[2, 7, 6]);
        let earlier = |row, i: usize, c| i.checked_sub(shift).map_or(0.0, |j| x.at(&[row, j, c]));
        let expected = Array::from_fn([2, 7, 6], |[row, i, c]| x.at(&[row, i, c]) * earlier(row, i, c));
        assert_same("outputs", &context(&attention, self_attention(&x)).values, &expected.values, 1e-6);
    }
}

#[test]
fn without_weights_of_the_gate_it_is_a_convolution_of_each_channel() {
    let mut attention = init(&BaseConvConfig::default().into(), &spec(Role::Decoder, 2));
    let own = inner(&mut attention);
    own.gate = linear(&Array::from_fn([6, 6], |_| 0.0));
    own.gate.bias = Some(Param::from_tensor(Tensor::ones([6], &flex().device)));
    let kernel = Array::random("kernel", &[3, 6]);
    own.weight = parameter(&kernel);
    let x = Array::random("x", &[1, 7, 6]);
    let expected = Array::from_fn([1, 7, 6], |[_, i, c]| {
        (0..3).filter_map(|tap| Some(kernel.at(&[tap, c]) * x.at(&[0, (i + tap).checked_sub(2)?, c]))).sum()
    });
    assert_same("outputs", &context(&attention, self_attention(&x)).values, &expected.values, 1e-6);
}

#[test]
fn the_state_holds_what_the_next_sum_needs_whatever_the_length() {
    let attention = init(&BaseConvConfig::default().with_taps(4).into(), &spec(Role::Decoder, 2));
    let mut state = attention.state(&DecodingStart::self_attention(2, 20));
    for _ in 0..9 {
        attention.step(Tensor::ones([2, 1, 6], &flex().device), &mut state, &mut Probe::off());
        assert_eq!(attention.state_bytes(&state), Some(4 * 2 * 3 * 6));
    }
}
