//! The blocked execution of the engine against the dense one, and a pattern of a user's own.

use std::sync::Arc;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use heedful_attention::description::restricted::{PatternExecution, Restricted};
use heedful_attention::engine::blocked::{Blocks, attend_blocks, attend_parts};
use heedful_attention::engine::{AttentionProgram, Dropout, Normaliser, Ramp, SoftSpan, Weighting, reference};
use heedful_attention::prelude::*;
use heedful_attention::softmax_attention::pattern::Pattern;

use crate::array::{Array, same};
use crate::backends::{Backend, backends, flex};
use crate::subject::{Subject, coefficients};
use crate::variants::{parse, spec, variants};

const BATCH: usize = 2;
const HEADS: usize = 3;
const QUERIES: usize = 5;
const KEYS: usize = 4;

/// Blocks of two or three queries in another order for each batch row and head, as hashing would make them; every second block lacks a key.
struct Shuffled {
    blocks: Blocks,
    visible: Vec<bool>,
}

fn shuffled(rows: usize, heads: usize, device: &Device) -> Shuffled {
    const SIZE: usize = 3;
    let (mut queries, mut keys, mut mask, mut places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut visible = vec![false; rows * heads * QUERIES * KEYS];
    for plane in 0..rows * heads {
        let query = |place: usize| (2 * place + plane) % QUERIES;
        let mut own_places = vec![0; QUERIES];
        for block in 0..2 {
            for at in 0..SIZE {
                // The last place is not used.
                let (place, used) = (block * SIZE + at, block * SIZE + at < QUERIES);
                let i = query(place);
                queries.push(i as i32);
                if used {
                    own_places[i] = place as i32;
                }
                for slot in 0..KEYS {
                    let j = (plane + slot) % KEYS;
                    // The last query of the first block sees nothing.
                    let sees = used && !(block == 1 && slot == 2) && place != 2 && !(i + j).is_multiple_of(3);
                    mask.push(if sees { 0.0f32 } else { -1e30 });
                    if used {
                        visible[(plane * QUERIES + i) * KEYS + j] = sees;
                    }
                }
            }
            keys.extend((0..KEYS).map(|slot| ((plane + slot) % KEYS) as i32));
        }
        places.extend(own_places);
    }
    let indices = |values, last| Tensor::<4, Int>::from_data(TensorData::new(values, [rows, heads, 2, last]), device);
    let blocks = Blocks {
        queries: indices(queries, SIZE),
        keys: indices(keys, KEYS),
        mask: Tensor::from_data(TensorData::new(mask, [rows, heads, 2, SIZE, KEYS]), device),
        places: Tensor::from_data(TensorData::new(places, [rows, heads, QUERIES]), device),
    };
    Shuffled { blocks, visible }
}

/// The parts of a program, each a leaf; those of logits without the batch where `shared`. Keys and values have so many heads.
fn leaves(shared: bool, kv_heads: usize, device: &Device) -> Vec<Tensor<4>> {
    let rows = if shared { 1 } else { BATCH };
    let leaf = |name: &str, shape: [usize; 4]| {
        let leaf = Array::random(name, &shape).tensor::<4>(device);
        if device.is_autodiff() { leaf.require_grad() } else { leaf }
    };
    vec![
        leaf("queries", [rows, HEADS, QUERIES, 2]),
        leaf("keys", [BATCH, kv_heads, KEYS, 2]),
        leaf("bias", [rows, if shared { 1 } else { HEADS }, QUERIES, KEYS]),
        leaf("density", [rows, HEADS, QUERIES, KEYS]),
        leaf("values", [BATCH, kv_heads, KEYS, 2]),
        leaf("spans", [rows, HEADS, QUERIES, 1]),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Content,
    Bias,
    Both,
    Capped,
    Sunk,
    Spanned,
    Density,
    Renormalised,
    /// Both, by another normaliser than a softmax.
    By(Normaliser),
}

const KINDS: [Kind; 15] = [
    Kind::Content,
    Kind::Bias,
    Kind::Both,
    Kind::Capped,
    Kind::Sunk,
    Kind::Spanned,
    Kind::Density,
    Kind::Renormalised,
    Kind::By(Normaliser::SoftmaxPlusOne),
    Kind::By(Normaliser::Sigmoid { bias: -0.5 }),
    Kind::By(Normaliser::Relu { power: 1, scale: 0.25 }),
    Kind::By(Normaliser::Relu { power: 2, scale: 0.25 }),
    Kind::By(Normaliser::Softpick { epsilon: 1e-3 }),
    Kind::By(Normaliser::Entmax { power: 1 }),
    Kind::By(Normaliser::Entmax { power: 2 }),
];

fn program(kind: Kind, leaves: &[Tensor<4>]) -> AttentionProgram {
    let [queries, keys, bias, density, values, spans] = leaves else { unreachable!("six leaves are made") };
    let content = LogitTerms::content(queries.clone(), keys.clone());
    let given = LogitTerms::bias(bias.clone());
    let weights = density.clone().powi_scalar(2);
    let weighting = match kind {
        Kind::Content => Weighting::softmax(content),
        Kind::Bias => Weighting::softmax(given),
        Kind::Both | Kind::Spanned => Weighting::softmax(content.plus(given)),
        Kind::By(normaliser) => Weighting::Scores(content.plus(given), normaliser),
        Kind::Sunk => Weighting::softmax(LogitTerms { sink: Some(spans.clone().narrow(0, 0, 1).narrow(2, 0, 1)), ..content }),
        Kind::Capped => Weighting::softmax(content.capped(0.5).plus(given)),
        Kind::Density => Weighting::Density { weights: weights.clone(), renormalise: false },
        Kind::Renormalised => Weighting::Density { weights: weights.clone(), renormalise: true },
    };
    let ramp = Ramp { width: 2.5, origin: 0.0, nearest: 0, farthest: 3, offset: 1 };
    let soft_span = matches!(kind, Kind::Spanned).then(|| SoftSpan { spans: spans.clone().squeeze_dim(3), ramp });
    AttentionProgram { weighting, mask: None, soft_span, values: values.clone(), dropout: None }
}

/// Contexts and gradients of all leaves that have one.
fn run(
    kind: Kind,
    (shared, kv_heads): (bool, usize),
    device: &Device,
    execute: impl Fn(AttentionProgram) -> Tensor<4>,
) -> (Array, Vec<Option<Array>>) {
    let leaves = leaves(shared, kv_heads, &device.clone().autodiff());
    let context = execute(program(kind, &leaves));
    let coefficients = coefficients(&context.dims()).tensor(&context.device());
    let gradients = (context.clone() * coefficients).sum().backward();
    (Array::read(context), leaves.iter().map(|leaf| leaf.grad(&gradients).map(Array::read)).collect())
}

fn check(backend: &Backend) {
    let device = &backend.device;
    for kind in KINDS {
        let (own, one) = (HEADS, 1);
        for (rows, heads, shared, kv_heads) in [
            (1, 1, false, own),
            (1, 1, true, own),
            (BATCH, HEADS, false, own),
            (BATCH, HEADS, true, own),
            (1, HEADS, true, own),
            (1, 1, false, one),
            (BATCH, HEADS, false, one),
        ] {
            let Shuffled { visible, .. } = shuffled(rows, heads, device);
            let seen = Tensor::<4, Bool>::from_data(TensorData::new(visible, [rows, heads, QUERIES, KEYS]), device);
            let seen = Visibility::explicit(seen);
            let (expected, gradients) = run(kind, (shared, kv_heads), device, |program| {
                let mask = seen.mask(Span::whole(QUERIES, KEYS), HEADS, program.values.dtype(), &program.values.device());
                reference::attend(AttentionProgram { mask, ..program }, &mut Probe::off())
            });
            let (found, own) = run(kind, (shared, kv_heads), device, |program| {
                let blocks = shuffled(rows, heads, &program.values.device()).blocks;
                attend_blocks(program, &blocks).context
            });
            let what = format!("{}: {kind:?}, blocks [{rows}, {heads}], shared {shared}, {kv_heads} heads of keys", backend.name);
            let close =
                |what: &str, found: &Array, expected: &Array| same(what, &found.values, &expected.values, backend.rounding * 1e-5).unwrap();
            close(&what, &found, &expected);
            for (leaf, (found, expected)) in own.iter().zip(&gradients).enumerate() {
                assert_eq!(found.is_some(), expected.is_some(), "{what}: leaf {leaf}");
                if let (Some(found), Some(expected)) = (found, expected) {
                    close(&format!("{what}: gradient of leaf {leaf}"), found, expected);
                }
            }
        }
    }
}

#[test]
fn blocks_in_any_order_give_the_contexts_and_gradients_of_the_dense_engine() {
    check(&flex());
}

#[test]
fn every_backend_executes_blocks_in_any_order() {
    backends().iter().for_each(check);
}

#[test]
fn the_log_sum_exp_of_blocks_is_that_of_the_visible_logits() {
    let device = flex().device;
    let leaves = leaves(false, HEADS, &device);
    let Weighting::Scores(terms, _) = program(Kind::Both, &leaves).weighting else { unreachable!("the program has logits") };
    let logits = Array::read(reference::logits(terms, KEYS));
    let Shuffled { blocks, visible } = shuffled(BATCH, HEADS, &device);
    let found = Array::read(attend_blocks(program(Kind::Both, &leaves), &blocks).log_sum_exp);
    assert_eq!(found.shape, [BATCH, HEADS, QUERIES, 1]);
    let mut blind = 0;
    for (row, found) in found.values.iter().enumerate() {
        let seen = (0..KEYS).filter(|j| visible[row * KEYS + j]).map(|j| logits.values[row * KEYS + j].exp());
        let sum: f64 = seen.sum();
        if sum > 0.0 {
            same("log-sum-exp", &[*found], &[sum.ln()], 1e-5).unwrap();
        } else {
            assert!(*found < -1e29, "{found}");
            blind += 1;
        }
    }
    assert_eq!(blind, BATCH * HEADS);
}

#[test]
fn parts_of_a_program_are_joined_to_one_normalisation() {
    let device = flex().device;
    // The pairs of the blocks dealt out to two parts, of which each leaves some queries without a key.
    let deal = |blocks: &Blocks, part: usize| {
        let mut mask = Array::read(blocks.mask.clone());
        mask.values.iter_mut().enumerate().filter(|(at, _)| (at / 3) % 2 != part).for_each(|(_, bias)| *bias = -1e30);
        Blocks { mask: mask.tensor(&blocks.mask.device()), ..blocks.clone() }
    };
    for kind in KINDS {
        let whole = |program: AttentionProgram| {
            let blocks = shuffled(BATCH, HEADS, &program.values.device()).blocks;
            attend_blocks(program, &blocks)
        };
        let parts = |program: AttentionProgram| {
            let blocks = shuffled(BATCH, HEADS, &program.values.device()).blocks;
            attend_parts(program, &[deal(&blocks, 0), deal(&blocks, 1)])
        };
        let (expected, gradients) = run(kind, (false, HEADS), &device, |program| whole(program).context);
        let (found, own) = run(kind, (false, HEADS), &device, |program| parts(program).context);
        same(&format!("{kind:?}"), &found.values, &expected.values, 1e-5).unwrap();
        for (found, expected) in own.iter().zip(&gradients).filter_map(|(found, expected)| found.as_ref().zip(expected.as_ref())) {
            same(&format!("{kind:?}: gradients"), &found.values, &expected.values, 1e-5).unwrap();
        }
        let leaves = leaves(false, HEADS, &device);
        let log_sum_exp =
            [whole(program(kind, &leaves)), parts(program(kind, &leaves))].map(|output| Array::read(output.log_sum_exp).values);
        for (found, expected) in log_sum_exp[1].iter().zip(&log_sum_exp[0]) {
            assert!((found - expected).abs() < 1e-5 || (*found < -1e29 && *expected < -1e29), "{kind:?}: {found} instead of {expected}");
        }
    }
}

#[test]
fn a_part_whose_factors_are_all_zero_weighs_nothing_however_large_its_logits() {
    let device = flex().device;
    let tensor = |values: [f32; 2]| Tensor::<1>::from_floats(values, &device).reshape([1, 1, 1, 2]);
    let program = AttentionProgram {
        weighting: Weighting::softmax(LogitTerms::bias(tensor([500.0, 1.0]))),
        mask: None,
        // Only the second key stands where the query is.
        soft_span: Some(SoftSpan {
            spans: Tensor::ones([1, 1, 1], &device),
            ramp: Ramp { width: 1.0, origin: 0.0, nearest: 0, farthest: 0, offset: 1 },
        }),
        values: tensor([3.0, 7.0]).reshape([1, 1, 2, 1]),
        dropout: None,
    };
    let index = |at: i32| Tensor::<1, Int>::from_ints([at], &device);
    let part = |key| Blocks {
        queries: index(0).reshape([1, 1, 1, 1]),
        keys: index(key).reshape([1, 1, 1, 1]),
        mask: Tensor::zeros([1, 1, 1, 1, 1], &device),
        places: index(0).reshape([1, 1, 1]),
    };
    let output = attend_parts(program, &[part(0), part(1)]);
    same("context", &Array::read(output.context).values, &[7.0], 1e-5).unwrap();
    same("log-sum-exp", &Array::read(output.log_sum_exp).values, &[1.0], 1e-5).unwrap();
}

#[test]
fn keys_beyond_a_span_take_no_weight_from_others_however_large_their_logits() {
    let device = flex().device.autodiff();
    let leaf = |values: &[f32]| Tensor::<1>::from_floats(values, &device).require_grad();
    // The first key lies beyond the ramp, the second at its very end.
    let run = |far: f32, execute: &dyn Fn(AttentionProgram) -> Tensor<4>| {
        let (logits, spans) = (leaf(&[far, far, 1.0, 0.5]), leaf(&[1.0]));
        let ramp = Ramp { width: 1.0, origin: 0.0, nearest: 0, farthest: 5, offset: 3 };
        let context = execute(AttentionProgram {
            weighting: Weighting::softmax(LogitTerms::bias(logits.clone().reshape([1, 1, 1, 4]))),
            mask: None,
            soft_span: Some(SoftSpan { spans: spans.clone().reshape([1, 1, 1]), ramp }),
            values: Tensor::<1>::from_floats([3.0, 2.0, 7.0, 5.0], &device).reshape([1, 1, 4, 1]),
            dropout: None,
        });
        let gradients = context.clone().sum().backward();
        let of_leaves = [logits, spans].map(|leaf| Array::read(leaf.grad(&gradients).expect("the context depends on it")).values);
        [Array::read(context).values, of_leaves.concat()].concat()
    };
    let blocks = |program| {
        let index = |values: &[i32], last| Tensor::<1, Int>::from_ints(values, &device).reshape([1, 1, 1, last]);
        let places = index(&[0], 1).reshape([1, 1, 1]);
        attend_blocks(
            program,
            &Blocks { queries: index(&[0], 1), keys: index(&[0, 1, 2, 3], 4), mask: Tensor::zeros([1, 1, 1, 1, 4], &device), places },
        )
        .context
    };
    let share = 1.0 / (1.0 + (-0.5f64).exp());
    for far in [1.0f32, 30.0, 100.0, 300.0, 1e4] {
        let found = run(far, &blocks);
        same(&format!("context, {far}"), &found[..1], &[7.0 * share + 5.0 * (1.0 - share)], 1e-5).unwrap();
        let expected = run(far, &|program| reference::attend(program, &mut Probe::off()));
        // What is rounded off a logit is a part of its exponential.
        let part = 1e-5 + f64::from(far * f32::EPSILON);
        for (found, expected) in found.iter().zip(expected) {
            same(&format!("with gradients, {far}"), &[*found], &[expected], part * expected.abs().max(1.0)).unwrap();
        }
    }
}

#[test]
fn dropout_over_blocks_is_a_function_of_its_key_that_keeps_the_expectation() {
    let device = flex().device;
    let leaves = leaves(false, HEADS, &device);
    let blocks = shuffled(BATCH, HEADS, &device).blocks;
    let draw = |key: Option<RandomKey>| {
        let dropout = key.map(|key| Dropout { probability: 0.3, key });
        Array::read(attend_blocks(AttentionProgram { dropout, ..program(Kind::Both, &leaves) }, &blocks).context).values
    };
    let (root, plain) = (RandomKey::from_seed(2), draw(None));
    assert_eq!(draw(Some(root)), draw(Some(root)));
    assert_ne!(draw(Some(root)), plain);
    let count = 2000;
    let mut mean = vec![0.0; plain.len()];
    for at in 0..count {
        draw(Some(root.numbered(at))).iter().zip(&mut mean).for_each(|(x, mean)| *mean += x / count as f64);
    }
    // The standard deviation of one draw is at most that of a dropped weight times a value: below 1.
    same("mean over keys", &mean, &plain, 5.0 / (count as f64).sqrt()).unwrap();
}

/// The same attention with another execution, `None` if it has only one.
fn executed(config: &AnyMechanism, execution: PatternExecution) -> Option<AnyMechanism> {
    by_type!(config;
        config in LocalOneDConfig => Some(config.clone().with_execution(execution).into()),
        config in LocalTwoDConfig => Some(config.clone().with_execution(execution).into()),
        config in SparseStridedConfig => Some(config.clone().with_execution(execution).into()),
        config in SparseFixedConfig => Some(config.clone().with_execution(execution).into());
        else => None
    )
}

#[test]
fn both_executions_of_every_pattern_agree_in_outputs_and_gradients() {
    let mut compared = 0;
    for variant in variants() {
        let Some(pair) = executed(&variant.config, PatternExecution::Masked).zip(executed(&variant.config, PatternExecution::Blocked))
        else {
            continue;
        };
        let place = variant.spec(3);
        let [masked, blocked] = [pair.0, pair.1].map(|config| {
            let build = move |place: &LayerSpec, key: &RandomKey, device: &Device| config.init(place, key, device);
            Subject::new(place, build, &flex().device).unnormalised()
        });
        for (length, visibility) in [
            (8, Visibility::all()),
            (7, Visibility::causal()),
            (8, Visibility::causal().and(Visibility::padding(vec![8, 3]))),
            (6, Visibility::pattern(|h, i, j| (h + i + j) % 2 == 0)),
        ] {
            let case = masked.case("executions", 2, length);
            let what = format!("{}, length {length}, {visibility:?}", variant.name);
            let run = |subject: &Subject<_>| subject.forward(case.input(&subject.device).visibility(visibility.clone()));
            same(&what, &run(&blocked).values, &run(&masked).values, 1e-5).unwrap();
            let [expected, found] =
                [&masked, &blocked].map(|subject| subject.gradients(&case, |input| input.visibility(visibility.clone())));
            same(&format!("{what}: gradient of the queries"), &found.query.values, &expected.query.values, 1e-5).unwrap();
            for (path, expected) in &expected.parameters {
                same(&format!("{what}: gradient of {path}"), &found.parameters[path].values, &expected.values, 1e-4).unwrap();
            }
            compared += 1;
        }
    }
    assert!(compared > 80, "{compared}");
}

/// Queries see keys of their own parity; odd heads see all.
#[derive(Debug)]
struct Parity;

impl Pattern for Parity {
    fn sees(&self, head: usize, i: usize, j: usize) -> bool {
        head % 2 == 1 || i % 2 == j % 2
    }

    fn block(&self, head: usize, i: usize) -> usize {
        if head % 2 == 1 { i / 3 } else { i % 2 }
    }
}

#[test]
fn a_pattern_of_a_users_own_restricts_any_logits() {
    let (place, device, key) = (spec(Role::Decoder, 2), flex().device, RandomKey::from_seed(1));
    let attention = |execution| {
        let logits = parse("random+dot-product").init_logits(&place, &key, &device).unwrap();
        SoftmaxAttention::<Restricted<AnyLogits>>::new(Restricted::new(logits, Arc::new(Parity), execution), &place, &key, &device)
    };
    let x = Array::random("x", &[2, 7, 6]);
    let context = |attention: &SoftmaxAttention<Restricted>, visibility| {
        let input = AttentionInput::self_attention(x.tensor(&device)).visibility(visibility);
        Array::read(attention.forward(input, &mut Probe::off()).context).values
    };
    let [masked, blocked] =
        [PatternExecution::Masked, PatternExecution::Blocked].map(|execution| context(&attention(execution), Visibility::causal()));
    same("executions", &blocked, &masked, 1e-5).unwrap();
    // The same, said by the model instead of the mechanism.
    let plain = SoftmaxAttention::new(parse("random+dot-product").init_logits(&place, &key, &device).unwrap(), &place, &key, &device);
    let parity = Visibility::causal().and(Visibility::pattern(|head, i, j| Parity.sees(head, i, j)));
    let input = AttentionInput::self_attention(x.tensor(&device)).visibility(parity);
    same("visibility", &blocked, &Array::read(plain.forward(input, &mut Probe::off()).context).values, 1e-5).unwrap();
}
