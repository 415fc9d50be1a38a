use std::sync::Arc;

use burn::backend::flex::FlexDevice;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex};
use burn::tensor::{FloatDType, Shape, TensorData};
use heedful_random::RandomKey;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tiles::DeviceTiles;
use super::*;
use crate::conformance::cube_test_device as adapter;
use crate::contract::visibility::{Span, TileMap, Visibility, least_visible_logit};
use crate::engine::Ramp;
use crate::engine::dropout::WeightDropout;
use crate::engine::fused::plan::Part;

const BATCH: usize = 2;
const HEADS: usize = 2;

/// Inputs of an attention.
#[derive(Clone, Copy, Debug)]
struct Case {
    span: Span,
    /// Width of queries and keys, 0 without any, and of values.
    widths: [usize; 2],
    /// Key and value heads.
    shared: usize,
    /// Rows and heads of a bias.
    bias: Option<[usize; 2]>,
    /// Heads of its scale.
    scale: Option<usize>,
    /// Rows, heads and queries of soft spans.
    spans: Option<[usize; 3]>,
    /// Rows and heads of a table by distance, and its width.
    relative: Option<[usize; 3]>,
    /// Widths of the factors of Kronecker products.
    pairs: Option<[usize; 2]>,
}

impl Case {
    fn product(span: Span, widths: [usize; 2]) -> Self {
        Self { span, widths, shared: HEADS, bias: None, scale: None, spans: None, relative: None, pairs: None }
    }

    /// Operands, and the gradient of the context.
    fn operands<B: Backend>(&self, device: &B::Device, casts: &[FloatDType]) -> (Operands<B>, FloatTensor<B>) {
        let tensor = |seed, shape: [usize; 4], size: f32| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let numbers = (0..shape.iter().product()).map(|_| rng.random_range(-size..size)).collect::<Vec<_>>();
            let tensor = B::float_from_data(TensorData::new(numbers, shape), device);
            casts.iter().fold(tensor, |tensor, &dtype| B::float_cast(tensor, dtype))
        };
        let Self { span: Span { queries, keys, .. }, widths: [factor, value], shared, .. } = *self;
        let of_heads = |heads, seed, length, width: usize| tensor(seed, [BATCH, heads, length, width], 2.0 / (width as f32).sqrt());
        let wide = |seed, length, width| of_heads(HEADS, seed, length, width);
        let mut operands = Operands::of_values(of_heads(shared, 1, keys, value));
        if factor > 0 {
            operands.queries = Operand::Given(wide(2, queries, factor));
            operands.keys = Operand::Given(of_heads(shared, 3, keys, factor));
        }
        operands.bias = self.bias.map(|[rows, heads]| tensor(4, [rows, heads, queries, keys], 1.0)).into();
        operands.bias_scale = self.scale.map(|heads| tensor(5, [1, heads, 1, 1], 2.0)).into();
        let lengths = |[rows, heads, queries]: [usize; 3]| {
            // Spans of 8 and 16 end on a key, where ramps have corners.
            let numbers = (0..rows * heads * queries).map(|index| [8.0, 13.3, 16.0, 33.25, 60.5][index % 5]).collect::<Vec<f32>>();
            let tensor = B::float_from_data(TensorData::new(numbers, [rows, heads, queries, 1]), device);
            casts.iter().fold(tensor, |tensor, &dtype| B::float_cast(tensor, dtype))
        };
        operands.spans = self.spans.map(lengths).into();
        if let Some([rows, heads, width]) = self.relative {
            operands.relative_queries = Operand::Given(wide(7, queries, width));
            operands.relative_keys = Operand::Given(tensor(8, [rows, heads, queries + keys - 1, width], 2.0 / (width as f32).sqrt()));
        }
        if let Some([left, right]) = self.pairs {
            operands.left = Operand::Given(tensor(9, [BATCH, HEADS, queries, left], 1.5));
            operands.right = Operand::Given(tensor(10, [BATCH, HEADS, queries, right], 1.5));
        }
        (operands, wide(6, queries, value))
    }
}

fn read<B: Backend>(tensor: FloatTensor<B>) -> TensorData {
    burn::tensor::try_read_sync(B::float_into_data(tensor)).expect("the device answers").expect("the kernels have run")
}

const COUNT: usize = 12;

/// Context, log-sum-exp and gradients, as [`NAMES`] has them.
type Results = [Option<TensorData>; COUNT];

/// Names of results.
const NAMES: [&str; COUNT] = [
    "context",
    "log-sum-exp",
    "gradient of values",
    "gradient of queries",
    "gradient of keys",
    "gradient of the bias",
    "gradient of its scale",
    "gradient of spans",
    "gradient of the queries of distances",
    "gradient of the table of distances",
    "gradient of the left factors",
    "gradient of the right factors",
];

fn results<B: FusedAttention>(device: &B::Device, casts: &[FloatDType], case: &Case, plan: &Plan) -> Results {
    let (operands, gradient) = case.operands::<B>(device, casts);
    let (context, log_sum_exp) = B::fused_forward(operands.clone(), plan.clone());
    // Dimensions shared by batch rows or heads are not repeated.
    let by_query = B::float_expand(log_sum_exp.clone(), Shape::new([BATCH, HEADS, case.span.queries, 1]));
    let gradients = B::fused_backward(operands, context.clone(), log_sum_exp.clone(), gradient, plan.clone());
    let Operands { values, queries, keys, bias, bias_scale, spans, relative_queries, relative_keys, left, right, sink: _ } = gradients;
    let given = [queries, keys, bias, bias_scale, spans, relative_queries, relative_keys, left, right].map(Operand::given);
    let [queries, keys, bias, bias_scale, spans, relative_queries, relative_keys, left, right] = given;
    [Some(context), Some(by_query), Some(values), queries, keys, bias, bias_scale, spans, relative_queries, relative_keys, left, right]
        .map(|result| result.map(read::<B>))
}

/// Results of the kernels.
fn by_kernels(casts: &[FloatDType], case: &Case, plan: &Plan) -> Results {
    results::<CubeBackend>(&adapter(), casts, case, plan)
}

/// Results of tensor operations.
fn by_tensor_ops(casts: &[FloatDType], case: &Case, plan: &Plan) -> Results {
    results::<CubeBackend>(&adapter(), casts, case, &Plan { by_kernels: false, ..plan.clone() })
}

/// Fails if two results differ by `limit` or more, relative to the largest number of the second, or 1.
fn assert_close(found: &Results, expected: &Results, limit: f32, what: &str) {
    for ((name, found), expected) in NAMES.iter().zip(found).zip(expected) {
        let (Some(found), Some(expected)) = (found, expected) else {
            assert!(found.is_none() && expected.is_none(), "{what}: {name} is there in one and not in the other");
            continue;
        };
        assert_eq!(found.shape(), expected.shape(), "{what}: {name}");
        // Queries without visible keys have various large numbers.
        let seen = |number: f32| if number > 1e29 { 0.0 } else { number };
        let [found, expected] = [found, expected].map(|data| data.iter::<f32>().map(seen).collect::<Vec<_>>());
        let largest = expected.iter().fold(1.0f32, |largest, number| largest.max(number.abs()));
        let difference = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs() / largest);
        // Comparisons with NaN are false.
        let worst = difference.fold(0.0, |worst: f32, difference| if difference < worst { worst } else { difference });
        assert!(worst < limit, "{what}: {name} differs by {worst}");
        assert!(expected.iter().any(|number| number.abs() > 1e-3), "{what}: {name} is nothing");
    }
}

fn plan(visibility: &Visibility, span: Span, dropout: Option<WeightDropout>) -> Plan {
    let tiles = Arc::new(TileMap::new(visibility, span, HEADS));
    let parts = Arc::new([Part::in_order(tiles)]);
    Plan { dropout, by_kernels: true, ..Plan::new(HEADS, parts, least_visible_logit(DType::F32)) }
}

/// Maximum difference of two results.
fn difference(found: &TensorData, expected: &TensorData) -> f32 {
    found.iter::<f32>().zip(expected.iter::<f32>()).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max)
}

#[test]
fn kernels_compute_what_tensor_operations_compute() {
    let dropout = |seed| WeightDropout::new(0.3, RandomKey::from_seed(seed));
    let cases = [
        (Visibility::all(), Span::whole(1, 1), [1, 1], dropout(1)),
        (Visibility::causal(), Span::whole(70, 70), [5, 7], dropout(1)),
        (Visibility::padding(vec![129, 40]), Span::whole(65, 129), [8, 36], dropout(2)),
    ];
    for (visibility, span, widths, dropout) in cases {
        let (case, plan) = (Case::product(span, widths), plan(&visibility, span, dropout));
        let what = format!("{span:?} widths {widths:?}");
        let (found, expected) = (by_kernels(&[], &case, &plan), by_tensor_ops(&[], &case, &plan));
        for (name, (found, expected)) in NAMES.iter().zip(found.iter().zip(&expected)) {
            let [Some(found), Some(expected)] = [found, expected] else { continue };
            let difference = difference(found, expected);
            assert!(difference < 2e-5, "{what}: {name} differs by {difference}");
        }
    }
    let (span, widths) = (Span::whole(70, 70), [8, 36]);
    let case = Case::product(span, widths);
    let [one, other] = [1, 2].map(|seed| by_kernels(&[], &case, &plan(&Visibility::all(), span, dropout(seed))));
    for index in [0, 2, 3, 4] {
        let [one, other] = [&one, &other].map(|results| results[index].as_ref().expect("it is there"));
        assert!(difference(one, other) > 1e-3, "the {} does not notice what is dropped", NAMES[index]);
    }
}

#[test]
fn kernels_in_16_bits_compute_what_they_compute_in_32() {
    let span = Span::whole(70, 130);
    let ramp = Ramp { width: 8.0, origin: 0.0, nearest: 0, farthest: 50, offset: 0 };
    let padding = Visibility::padding(vec![129, 40]);
    let plan = Plan {
        ramp: Some(ramp),
        first_pairs: Some(Arc::new([0])),
        ..plan(&padding, span, WeightDropout::new(0.3, RandomKey::from_seed(1)))
    };
    let product = |widths| Case::product(span, widths);
    let cases = [
        product([5, 7]),
        // Rows of eights use the tensor cores of a GPU.
        Case { shared: 1, ..product([8, 8]) },
        Case { bias: Some([1, HEADS]), scale: Some(HEADS), ..product([8, 7]) },
        Case {
            bias: Some([BATCH, 1]),
            spans: Some([1, HEADS, 70]),
            relative: Some([1, HEADS, 8]),
            pairs: Some([13, 10]),
            ..product([0, 8])
        },
    ];
    for case in cases {
        let found = by_kernels(&[FloatDType::F16], &case, &plan);
        let expected = by_kernels(&[FloatDType::F16, FloatDType::F32], &case, &plan);
        for (index, found) in found.iter().enumerate() {
            // Log-sum-exps have 32 bits.
            let dtype = if index == 1 { DType::F32 } else { DType::F16 };
            assert!(found.as_ref().is_none_or(|found| found.dtype() == dtype), "{case:?}: {}", NAMES[index]);
        }
        assert_close(&found, &expected, 4e-3, &format!("{case:?}"));
        let [whole, rounded] = [by_kernels(&[], &case, &plan), expected].map(|[context, ..]| context.expect("there is a context"));
        assert!(difference(&whole, &rounded) > 0.0, "the inputs were not rounded");
    }
}

/// Compares native results with those of tensor operations and of flex.
fn assert_native(case: &Case, plan: &Plan, what: &str) {
    let found = by_kernels(&[], case, plan);
    assert_close(&found, &by_tensor_ops(&[], case, plan), 3e-5, &format!("{what}, by tensor operations"));
    let mut expected = results::<Flex>(&FlexDevice, &[], case, plan);
    // Flex uses another number for queries without visible keys.
    expected[1].clone_from(&found[1]);
    assert_close(&found, &expected, 3e-5, &format!("{what}, flex"));
}

#[test]
fn kernels_add_biases_of_any_shape() {
    let dropout = WeightDropout::new(0.3, RandomKey::from_seed(1));
    let (square, ragged, wide) = (Span::whole(70, 70), Span::whole(65, 129), Span::whole(3, 150));
    let causal = plan(&Visibility::causal(), square, None);
    let padded = plan(&Visibility::padding(vec![129, 40]), ragged, dropout);
    let whole = plan(&Visibility::all(), wide, None);
    let cases = [
        (square, &causal, [5, 7], [1, HEADS], Some(HEADS)),
        (square, &causal, [0, 7], [BATCH, 1], None),
        (ragged, &padded, [8, 36], [1, 1], Some(1)),
        (ragged, &padded, [0, 8], [1, HEADS], Some(1)),
        (wide, &whole, [5, 7], [BATCH, HEADS], Some(HEADS)),
    ];
    for (span, plan, widths, bias, scale) in cases {
        let case = Case { bias: Some(bias), scale, ..Case::product(span, widths) };
        assert_native(&case, plan, &format!("{case:?}"));
    }
}

#[test]
fn kernels_read_what_heads_share() {
    let dropout = WeightDropout::new(0.3, RandomKey::from_seed(1));
    let (square, ragged) = (Span::whole(70, 70), Span::whole(65, 129));
    let by_head = plan(&Visibility::pattern(|head, i, j| j + 20 * head <= i), square, None);
    let padded = plan(&Visibility::padding(vec![129, 40]), ragged, dropout);
    let shared = |span, widths| Case { shared: 1, ..Case::product(span, widths) };
    let cases = [
        (shared(square, [5, 7]), &by_head),
        (shared(ragged, [8, 36]), &padded),
        (Case { bias: Some([1, HEADS]), scale: Some(HEADS), ..shared(square, [5, 7]) }, &by_head),
        (Case { bias: Some([1, HEADS]), scale: Some(1), ..shared(ragged, [0, 8]) }, &padded),
        (Case { relative: Some([1, HEADS, 6]), ..shared(square, [5, 7]) }, &by_head),
    ];
    for (case, plan) in cases {
        assert_native(&case, plan, &format!("{case:?}"));
    }
}

#[test]
fn kernels_end_spans_softly() {
    let dropout = WeightDropout::new(0.3, RandomKey::from_seed(1));
    let (square, ragged, late) = (Span::whole(150, 150), Span::whole(65, 200), Span { queries: 70, keys: 140, ..Span::whole(70, 140) });
    let ramp = Ramp { width: 8.0, origin: 0.0, nearest: 0, farthest: 50, offset: 0 };
    let causal = Plan { ramp: Some(ramp), ..plan(&Visibility::causal(), square, None) };
    let padded = Ramp { width: 3.0, origin: 1.0, nearest: 2, farthest: usize::MAX, ..ramp };
    let padded = Plan { ramp: Some(padded), ..plan(&Visibility::padding(vec![200, 40]), ragged, dropout) };
    let after = Plan { ramp: Some(Ramp { offset: 70, ..ramp }), ..plan(&Visibility::all(), late, None) };
    // For some queries all logits within the span are hidden.
    let faint = Plan { least_visible: 0.5, ..causal.clone() };
    let cases = [
        (square, &causal, [5, 7], [BATCH, 1, 150]),
        (square, &faint, [5, 7], [BATCH, 1, 150]),
        (ragged, &padded, [8, 36], [BATCH, HEADS, 65]),
        (late, &after, [5, 7], [1, HEADS, 1]),
    ];
    for (span, plan, widths, spans) in cases {
        let case = Case { spans: Some(spans), ..Case::product(span, widths) };
        assert_native(&case, plan, &format!("{case:?}"));
    }
}

#[test]
fn kernels_score_distances() {
    let dropout = WeightDropout::new(0.3, RandomKey::from_seed(1));
    let (square, ragged) = (Span::whole(70, 70), Span::whole(65, 129));
    let causal = plan(&Visibility::causal(), square, None);
    let padded = plan(&Visibility::padding(vec![129, 40]), ragged, dropout);
    let cases = [
        (square, &causal, [5, 7], None, [1, HEADS, 6]),
        (square, &causal, [5, 7], None, [BATCH, 1, 6]),
        (ragged, &padded, [0, 36], Some([1, 1]), [1, 1, 68]),
    ];
    for (span, plan, widths, bias, relative) in cases {
        let case = Case { bias, relative: Some(relative), ..Case::product(span, widths) };
        assert_native(&case, plan, &format!("{case:?}"));
    }
}

#[test]
fn kernels_multiply_two_numbers_of_a_query() {
    let dropout = WeightDropout::new(0.3, RandomKey::from_seed(1));
    let (square, ragged) = (Span::whole(70, 70), Span::whole(65, 129));
    let causal = Plan { first_pairs: Some(Arc::new([3])), ..plan(&Visibility::causal(), square, None) };
    // The second batch row is left-padded: its keys begin before pair 0.
    let padded = Plan { first_pairs: Some(Arc::new([0, -40])), ..plan(&Visibility::left_padding(vec![0, 40]), ragged, dropout) };
    let cases = [(square, &causal, [5, 7], Some([1, 1]), [15, 5]), (ragged, &padded, [0, 36], None, [10, 13])];
    for (span, plan, widths, bias, pairs) in cases {
        let case = Case { bias, pairs: Some(pairs), ..Case::product(span, widths) };
        assert_native(&case, plan, &format!("{case:?}"));
    }
}

#[test]
fn fixed_biases_have_no_gradient() {
    let span = Span::whole(70, 70);
    let case = Case { bias: Some([1, HEADS]), scale: Some(HEADS), ..Case::product(span, [5, 7]) };
    let plan = plan(&Visibility::causal(), span, None);
    let fixed = by_kernels(&[], &case, &Plan { is_bias_fixed: true, ..plan.clone() });
    let trained = by_kernels(&[], &case, &plan);
    assert!(fixed[5..7].iter().all(Option::is_none) && trained[5..7].iter().all(Option::is_some));
    assert_eq!(fixed[..5], trained[..5]);
}

#[test]
fn queries_that_see_nothing_have_no_context_and_no_gradient() {
    let span = Span::whole(20, 70);
    // The first batch row sees nothing, the second everything.
    let plan = plan(&Visibility::padding(vec![0, 70]), span, None);
    let results = by_kernels(&[], &Case::product(span, [5, 7]), &plan);
    let [context, log_sum_exp, values, queries, keys, ..] = results;
    let [context, log_sum_exp, values, queries, keys] =
        [context, log_sum_exp, values, queries, keys].map(|data| data.expect("it is there"));
    for data in [context, queries, keys, values] {
        let numbers = data.try_to_vec::<f32>().expect("the numbers are 32-bit floats");
        let (unseen, seen) = numbers.split_at(numbers.len() / 2);
        assert!(unseen.iter().all(|&number| number == 0.0));
        assert!(seen.iter().any(|&number| number != 0.0));
    }
    let sums = log_sum_exp.try_to_vec::<f32>().expect("the numbers are 32-bit floats");
    let (unseen, seen) = sums.split_at(sums.len() / 2);
    assert!(unseen.iter().all(|&sum| sum == UNSEEN) && seen.iter().all(|&sum| sum < 10.0));
}

#[test]
fn tiles_of_a_visibility_are_uploaded_once() {
    let device = adapter();
    let span = Span::whole(70, 70);
    let [one, other] = [Visibility::causal(), Visibility::all()].map(|visibility| plan(&visibility, span, None).parts[0].tiles.clone());
    let memory = |map: &Arc<TileMap>| DeviceTiles::new(map, [70, 70], &device).words.handle.memory;
    let [first, again, of_other] = [memory(&one), memory(&one), memory(&other)];
    assert_eq!(first.descriptor(), again.descriptor());
    assert_ne!(first.descriptor(), of_other.descriptor());
}
