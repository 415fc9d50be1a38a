//! Padding queries with unused outputs.

use burn::tensor::TensorData;
use heedful_random::RandomKey;

use super::*;
use crate::contract::Positions;
use crate::contract::visibility::{Span, TILE, Visibility};
use crate::engine::Dropout;
use crate::engine::custom_gradient::tests::{devices, difference, drawn};

const LENGTH: usize = 150;
const HEADS: usize = 2;
const WIDTH: usize = 6;
/// In the second row, only the first query tile contains real queries.
const ENDS: [usize; 2] = [LENGTH, 40];

/// The context `[B, H, N, D]`, and the gradients of queries, keys and values under a loss that reads only real queries.
fn results(visibility: &Visibility, positions: &Positions, dropout: Option<f64>, device: &Device) -> Vec<Vec<f64>> {
    let leaf = |name: &str| drawn(name, [2, HEADS, LENGTH, WIDTH], device, DType::F32).require_grad();
    let leaves = ["queries", "keys", "values"].map(leaf);
    let [queries, keys, values] = leaves.clone();
    let program = AttentionProgram {
        weighting: Weighting::softmax(LogitTerms::content(queries, keys)),
        mask: None,
        soft_span: None,
        values,
        dropout: dropout.map(|probability| Dropout { probability, key: RandomKey::from_seed(3) }),
    };
    let tiles = visibility.tiles_of(Span::whole(LENGTH, LENGTH), HEADS, positions);
    let context = attend(program, Arc::new([Part::in_order(tiles)]));
    let real = ENDS.iter().flat_map(|&end| (0..LENGTH).map(move |query| f32::from(query < end))).collect::<Vec<_>>();
    let real = Tensor::<4>::from_data(TensorData::new(real, [2, 1, LENGTH, 1]), device);
    let slopes = drawn("slopes", [2, HEADS, LENGTH, WIDTH], device, DType::F32);
    let mut gradients = (context.clone() * slopes * real).sum().backward();
    let numbers = |tensor: Tensor<4>| tensor.into_data().iter::<f64>().collect::<Vec<f64>>();
    let gradients = leaves.map(|leaf| numbers(leaf.grad_remove(&mut gradients).expect("the loss depends on it")));
    std::iter::once(numbers(context)).chain(gradients).collect()
}

/// Numbers of the second row's queries from `first` on.
fn of_second_row(numbers: &[f64], first: usize) -> Vec<f64> {
    let heads = numbers[numbers.len() / 2..].chunks(LENGTH * WIDTH);
    heads.flat_map(|head| head[first * WIDTH..].to_vec()).collect()
}

#[test]
fn tiles_of_queries_that_nobody_reads_are_left_out_and_change_nothing_else() {
    for device in devices().into_iter().map(|device| device.autodiff()) {
        let padding = Visibility::padding(ENDS.to_vec());
        for visibility in [padding.clone(), padding.and(Visibility::causal()), Visibility::causal()] {
            for dropout in [None, Some(0.3)] {
                let all = results(&visibility, &Positions::default(), dropout, &device);
                let some = results(&visibility, &Positions::default().with_ends(ENDS), dropout, &device);
                let name = format!("{device:?}, {visibility:?}, dropout {dropout:?}");
                let (of_all, of_some) = (&all[0], &some[0]);
                let row = of_all.len() / 2;
                assert!(of_all[..row] == of_some[..row], "{name}: the row without padding");
                let computed = |context: &[f64]| {
                    let heads = context[row..].chunks(LENGTH * WIDTH);
                    heads.flat_map(|head| head[..TILE * WIDTH].to_vec()).collect::<Vec<f64>>()
                };
                assert!(computed(of_all) == computed(of_some), "{name}: the tile with real queries");
                assert!(of_second_row(of_some, TILE).iter().all(|&number| number == 0.0), "{name}: tiles of padding are computed");
                assert!(of_second_row(of_all, TILE).iter().any(|&number| number != 0.0), "{name}: they would not be seen");
                let difference = difference(&some[1..], &all[1..]);
                assert!(difference < 1e-6, "{name}: gradients differ by {difference}");
            }
        }
    }
}
