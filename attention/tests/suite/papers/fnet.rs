//! FNet: Lee-Thorp et al. 2021.

use super::*;

fn fnet() -> AnyAttention {
    init(&FnetConfig::default().into(), &spec(Role::Encoder, 2))
}

#[test]
fn the_transform_is_linear() {
    let (x, y) = (Array::random("x", &[2, 7, 6]), Array::random("y", &[2, 7, 6]));
    let sum = Array::from_fn([2, 7, 6], |index| 2.0 * x.at(&index) - y.at(&index));
    let [x, y, sum] = [x, y, sum].map(|x| context(&fnet(), self_attention(&x)));
    let expected = Array::from_fn([2, 7, 6], |index| 2.0 * x.at(&index) - y.at(&index));
    assert_same("outputs", &sum.values, &expected.values, 1e-4);
}

#[test]
fn a_single_element_is_transformed_over_its_channels_alone() {
    let x = Array::random("x", &[1, 1, 6]);
    let cosine = |c: usize, other: usize| (std::f64::consts::TAU * (c * other) as f64 / 6.0).cos();
    let expected = Array::from_fn([1, 1, 6], |[_, _, c]| (0..6).map(|other| x.at(&[0, 0, other]) * cosine(c, other)).sum());
    assert_same("outputs", &context(&fnet(), self_attention(&x)).values, &expected.values, 1e-5);
}

#[test]
fn what_is_constant_along_the_sequence_goes_to_the_first_position() {
    let row = Array::random("row", &[6]);
    let found = context(&fnet(), self_attention(&Array::from_fn([1, 5, 6], |[_, _, c]| row.at(&[c]))));
    assert_same("all positions but the first", &found.values[6..], &[0.0; 24], 1e-5);
    assert_same("the first channel of the first position", &found.values[..1], &[5.0 * row.values.iter().sum::<f64>()], 1e-5);
}

#[test]
fn real_parts_are_even() {
    let found = context(&fnet(), self_attention(&Array::random("x", &[1, 7, 6])));
    let mirrored = Array::from_fn([1, 7, 6], |[_, i, c]| found.at(&[0, (7 - i) % 7, (6 - c) % 6]));
    assert_same("outputs", &found.values, &mirrored.values, 1e-5);
}

#[test]
fn orthonormal_transforms_are_scaled_by_the_root_of_the_numbers_that_they_sum() {
    let x = Array::random("x", &[1, 7, 6]);
    let orthonormal = init(&FnetConfig::default().with_orthonormal(true).into(), &spec(Role::Encoder, 2));
    let expected: Vec<f64> = context(&fnet(), self_attention(&x)).values.iter().map(|y| y / 42f64.sqrt()).collect();
    assert_same("outputs", &context(&orthonormal, self_attention(&x)).values, &expected, 1e-5);
}
