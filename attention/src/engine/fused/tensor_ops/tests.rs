use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn_cubecl::CubeBackend;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use burn::tensor::TensorData;

use super::*;
pub(super) use crate::conformance::cube_test_device as adapter;
use crate::contract::visibility::{Span, TileMap, Visibility, least_visible_logit};
use crate::engine::fused::operator::FusedAttention;
use crate::engine::fused::plan::Part;
use crate::engine::{GaussianShape, GaussianWeights, Ramp};

const BATCH: usize = 2;
const HEADS: usize = 2;

pub(super) fn numbers<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    let data = burn::tensor::try_read_sync(B::float_into_data(tensor)).expect("the device answers").expect("the device has computed");
    data.try_to_vec().expect("the numbers are 32-bit floats")
}

/// The context, and the gradients of all operands.
fn results<B: FusedAttention>([queries, keys]: [usize; 2], plan: &Plan, device: &B::Device) -> Vec<Vec<f32>> {
    let tensor = |seed, [length, width]: [usize; 2], range: Range<f32>| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let numbers = (0..BATCH * HEADS * length * width).map(|_| rng.random_range(range.clone())).collect();
        B::float_from_data(TensorData::new(numbers, [BATCH, HEADS, length, width]), device)
    };
    let operand = |is_there: bool, tensor: FloatTensor<B>| -> Operand<B> { is_there.then_some(tensor).into() };
    let (has_product, has_spans) = (plan.gaussians.is_none(), plan.ramp.is_some());
    let operands = Operands::<B> {
        queries: operand(has_product, tensor(2, [queries, 5], -1.0..1.0)),
        keys: operand(has_product, tensor(3, [keys, 5], -1.0..1.0)),
        spans: operand(has_spans, tensor(4, [queries, 1], 0.0..60.0)),
        ..Operands::of_values(tensor(1, [keys, 7], -1.0..1.0))
    };
    let gradient = tensor(5, [queries, 7], -1.0..1.0);
    let (context, log_sum_exp) = B::fused_forward(operands.clone(), plan.clone());
    let gradients = B::fused_backward(operands, context.clone(), log_sum_exp, gradient, plan.clone());
    let Operands { values, queries, keys, spans, .. } = gradients;
    let given = [queries, keys, spans].into_iter().filter_map(Operand::given);
    [context, values].into_iter().chain(given).map(numbers::<B>).collect()
}

#[test]
fn terms_of_the_device_give_what_flex_computes_without_them() {
    let lengths @ [queries, keys] = [150, 140];
    let plan = |visibility: Visibility| {
        let tiles = Arc::new(TileMap::new(&visibility, Span::whole(queries, keys), HEADS));
        Plan::new(HEADS, Arc::new([Part::in_order(tiles)]), least_visible_logit(DType::F32))
    };
    let ramp = Ramp { width: 8.0, origin: 1.0, nearest: 0, farthest: 50, offset: 0 };
    let gaussians = |renormalise| {
        let shapes = [(2.0, f64::INFINITY), (9.0, 12.0)].map(|(deviation, window)| GaussianShape { deviation, window }).to_vec();
        let centres = (0..BATCH * HEADS).flat_map(|plane| (0..queries).map(move |query| query as f64 * 0.8 - plane as f64 / 3.0));
        Some(Arc::new(GaussianWeights::new(shapes, queries, centres.collect(), renormalise)))
    };
    let padding = || Visibility::padding(vec![keys, 71]);
    let plans = [
        plan(Visibility::causal().and(padding())),
        Plan { ramp: Some(ramp), ..plan(Visibility::causal()) },
        Plan { ramp: Some(ramp), ..plan(Visibility::window(20, 90).and(padding())) },
        Plan { gaussians: gaussians(true), ..plan(Visibility::causal()) },
        Plan { gaussians: gaussians(false), ..plan(padding()) },
    ];
    for (number, plan) in plans.iter().enumerate() {
        let found = results::<CubeBackend>(lengths, plan, &adapter());
        let wanted = results::<Flex>(lengths, plan, &FlexDevice);
        assert_eq!(found.len(), wanted.len());
        for (index, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert_eq!(found.len(), wanted.len());
            let difference = found.iter().zip(wanted).map(|(found, wanted)| (found - wanted).abs()).fold(0.0, f32::max);
            assert!(difference < 1e-4, "plan {number}: result {index} differs by {difference}");
            // With closed-form weights, values are the only operand.
            assert!(wanted.iter().any(|number| number.abs() > 1e-2), "plan {number}: result {index} is nothing");
        }
    }
}
