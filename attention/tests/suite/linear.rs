//! Linear maps against those of Burn.

use burn::backend::Dispatch;
use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::contract::init::{self, Init};
use heedful_attention::engine::linear::{Products, linear, projected};
use heedful_attention::tensors::read::read;
use heedful_random::RandomKey;

use crate::backends::backends;

fn drawn<const D: usize>(seed: u64, shape: [usize; D], device: &Device) -> Tensor<D> {
    Init::Normal(1.0).tensor(shape, &RandomKey::from_seed(seed), device)
}

/// Output and gradients of input, weight and bias, by Burn's own map or by this one.
fn run(
    [batch, length, width, units]: [usize; 4],
    bias: bool,
    device: &Device,
    forward: impl Fn(Tensor<3>, &Linear) -> Tensor<3>,
) -> Vec<TensorData> {
    let map = init::linear(width, units, bias, &RandomKey::from_seed(1), device);
    // As heads are merged: rows that do not lie in a row.
    let x = drawn(2, [batch, width, length], device).require_grad();
    let output = forward(x.clone().swap_dims(1, 2), &map);
    let gradients = (output.clone() * drawn(3, [batch, length, units], device)).sum().backward();
    let mut found = vec![read(output), read(x.grad(&gradients).expect("the input has a gradient"))];
    found.push(read(map.weight.val().grad(&gradients).expect("the weight has a gradient")));
    found.extend(map.bias.map(|bias| read(bias.val().grad(&gradients).expect("the bias has a gradient"))));
    found
}

/// How far sums of so many terms may be apart that are added in another order. Their roundings add up like the steps of a random walk: what was measured is
/// at most 1.4 times the root of the number of terms, in units of the precision and of the root mean square of the sums, and this is three times.
fn rounding(sums: &TensorData, terms: usize) -> f32 {
    let squares: f32 = sums.iter::<f32>().map(|sum| sum * sum).sum();
    3.0 * f32::EPSILON * (terms as f32).sqrt() * (squares / sums.num_elements() as f32).sqrt()
}

#[test]
fn maps_and_their_gradients_are_those_of_burn() {
    // The last but one has gradients of weights that are long and thin, the last one few rows.
    let shapes = [[1, 1, 1, 1], [2, 3, 5, 7], [3, 70, 64, 33], [2, 300, 200, 130], [3, 700, 100, 60], [5, 3, 130, 141]];
    for backend in backends() {
        let device = backend.device.clone().autodiff();
        for (shape, bias) in shapes.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
            let (found, wanted) = (run(shape, bias, &device, linear), run(shape, bias, &device, |x, map| map.forward(x)));
            assert_eq!(found.len(), if bias { 4 } else { 3 });
            let [batch, length, width, units] = shape;
            let terms = [width, units, batch * length, batch * length];
            for ((found, wanted), terms) in found.iter().zip(&wanted).zip(terms) {
                assert_eq!(found.shape(), wanted.shape());
                let tolerance = rounding(wanted, terms);
                for (found, wanted) in found.iter::<f32>().zip(wanted.iter::<f32>()) {
                    let near = (found - wanted).abs() <= tolerance;
                    assert!(near, "{} {shape:?}: {found} is not {wanted} (tolerance {tolerance})", backend.name);
                }
            }
        }
    }
}

#[test]
fn maps_of_any_number_of_rows_are_those_of_burn_where_no_gradient_is_tracked() {
    let device = Device::flex();
    for bias in [false, true] {
        for [width, units] in [[131, 257], [64, 128], [33, 70]] {
            let map = init::linear(width, units, bias, &RandomKey::from_seed(1), &device);
            for rows in 1..=65 {
                let x: Tensor<2> = drawn(rows as u64, [rows, width], &device);
                let wanted = read(map.forward(x.clone()));
                let tolerance = rounding(&wanted, width);
                for (found, wanted) in read(linear(x, &map)).iter::<f32>().zip(wanted.iter::<f32>()) {
                    assert!((found - wanted).abs() <= tolerance, "{rows} rows, {width} to {units}: {found} is not {wanted}");
                }
            }
        }
    }
}

#[test]
fn projections_have_the_bits_of_burns_maps_and_their_gradients() {
    let plain = Device::flex();
    for device in [plain.clone(), plain.autodiff()] {
        let leaf = |x: Tensor<2>| if device.is_autodiff() { x.require_grad() } else { x };
        let table = leaf(drawn(1, [300, 130], &device));
        for rows in [1, 2, 3, 8, 17, 32, 33, 65] {
            let x = leaf(drawn(2, [rows, 130], &device));
            let burns = |x: Tensor<2>| burn::tensor::module::linear(x, table.clone().transpose(), None);
            let ours = |x: Tensor<2>| projected(x, table.clone().transpose());
            assert_eq!(read(ours(x.clone())), read(burns(x.clone())), "{rows} rows");
            let batch = |x: Tensor<2>| x.unsqueeze_dim::<3>(1);
            let of_batch = read(burn::tensor::module::linear(batch(x.clone()), table.clone().transpose(), None));
            assert_eq!(read(projected(batch(x.clone()), table.clone().transpose())), of_batch, "{rows} rows of a batch");
            if device.is_autodiff() {
                let gradients = |y: Tensor<2>| {
                    let gradients = (y * drawn(3, [rows, 300], &device)).sum().backward();
                    [
                        read(x.grad(&gradients).expect("rows have a gradient")),
                        read(table.grad(&gradients).expect("the table has a gradient")),
                    ]
                };
                assert_eq!(gradients(ours(x.clone())), gradients(burns(x.clone())), "{rows} rows");
            }
        }
    }
}

#[test]
fn a_product_over_nothing_is_zero() {
    let device = Device::flex();
    let map = Linear { weight: Param::from_tensor(Tensor::zeros([0, 3], &device)), bias: None };
    let output = <Dispatch as Products>::product(Tensor::<2>::zeros([2, 0], &device).into_dispatch(), map.weight.val().into_dispatch());
    assert_eq!(read(Tensor::<2>::from_dispatch(output)), TensorData::zeros::<f32, _>([2, 3]));
}

#[test]
#[should_panic(expected = "the width of what is mapped")]
fn another_width_is_refused() {
    let device = Device::flex();
    linear(Tensor::<2>::zeros([2, 6], &device), &init::linear(3, 3, false, &RandomKey::from_seed(1), &device));
}
