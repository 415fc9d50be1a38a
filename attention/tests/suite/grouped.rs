//! Heads that share keys and values, on all executions of the engine, against heads with copies of them.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use heedful_attention::engine::fused::{self, Order, Part};
use heedful_attention::engine::heads::repeat_heads;
use heedful_attention::engine::{AttentionProgram, Bias, Dropout, Normaliser, Ramp, SoftSpan, Weighting};
use heedful_attention::prelude::*;

use crate::array::{Array, same};
use crate::backends::{backends, flex};
use crate::executions::{self, LATER, SQUARE, compare, context_and_gradients, dense, tiled};

const BATCH: usize = 2;
const HEADS: usize = 4;

/// What logits have beside the product of queries and keys.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    Bias([usize; 2]),
    ScaledBias([usize; 2]),
    Relative([usize; 2]),
    Spans,
    Sink,
    /// There is no product either.
    BiasAlone([usize; 2]),
}

#[derive(Clone, Copy, Debug)]
struct Case {
    /// Heads of keys and of values.
    shared: [usize; 2],
    beside: Beside,
    normaliser: Normaliser,
    drops: bool,
}

impl Case {
    const fn of(shared: usize) -> Self {
        Self { shared: [shared, shared], beside: Beside::Nothing, normaliser: Normaliser::Softmax, drops: false }
    }

    const fn beside(self, beside: Beside) -> Self {
        Self { beside, ..self }
    }

    const fn dropping(self) -> Self {
        Self { drops: true, ..self }
    }

    const fn by(self, normaliser: Normaliser) -> Self {
        Self { normaliser, ..self }
    }

    /// A program and its leaves; `copied` makes keys and values of it.
    fn program(self, span: Span, device: &Device, copied: fn(Tensor<4>) -> Tensor<4>) -> (AttentionProgram, Vec<Tensor<4>>) {
        let Span { queries, keys, .. } = span;
        let mut leaves = Vec::new();
        let mut leaf = |name: &str, shape: [usize; 4]| {
            let leaf = executions::leaf(name, shape, device);
            leaves.push(leaf.clone());
            leaf
        };
        let [of_keys, of_values] = self.shared;
        let content = match self.beside {
            Beside::BiasAlone(_) => LogitTerms::default(),
            _ => LogitTerms::content(leaf("queries", [BATCH, HEADS, queries, 5]) * 3.0, copied(leaf("keys", [BATCH, of_keys, keys, 5]))),
        };
        let mut bias = |[rows, heads]: [usize; 2], scale| Some(Bias { numbers: leaf("bias", [rows, heads, queries, keys]), scale });
        let terms = match self.beside {
            Beside::Nothing | Beside::Spans => content,
            Beside::Bias(planes) | Beside::BiasAlone(planes) => LogitTerms { bias: bias(planes, None), ..content },
            Beside::ScaledBias(planes) => {
                let scale = Array::random("scale", &[1, planes[1], 1, 1]).tensor::<4>(device) + 2.0;
                LogitTerms { bias: bias(planes, Some(scale)), ..content }
            }
            Beside::Relative([rows, heads]) => {
                let queries_by_distance = leaf("scored", [BATCH, HEADS, queries, 6]);
                let table = leaf("table", [rows, heads, queries + keys - 1, 6]);
                LogitTerms { relative: Some(Content { queries: queries_by_distance, keys: table }), ..content }
            }
            Beside::Sink => LogitTerms { sink: Some(leaf("sink", [1, HEADS, 1, 1]) * 3.0), ..content },
        };
        let offset = span.query_start as isize - span.key_start as isize;
        let ramp = Ramp { width: 7.0, origin: 1.0, nearest: 1, farthest: 60, offset };
        let soft_span = matches!(self.beside, Beside::Spans)
            .then(|| SoftSpan { spans: leaf("spans", [1, HEADS, 1, 1]).squeeze_dim::<3>(3) * 10.0 + 20.0, ramp });
        let values = copied(leaf("values", [BATCH, of_values, keys, 7]));
        let dropout = self.drops.then(|| Dropout { probability: 0.3, key: RandomKey::from_seed(5) });
        (AttentionProgram { weighting: Weighting::Scores(terms, self.normaliser), mask: None, soft_span, values, dropout }, leaves)
    }

    /// Context and gradients of all leaves.
    fn run(
        self,
        span: Span,
        device: &Device,
        copied: fn(Tensor<4>) -> Tensor<4>,
        execute: &dyn Fn(AttentionProgram) -> Tensor<4>,
    ) -> Vec<Array> {
        let (program, leaves) = self.program(span, &device.clone().autodiff(), copied);
        let context = execute(program);
        assert_eq!(context.dims(), [BATCH, HEADS, span.queries, 7]);
        context_and_gradients(context, leaves)
    }
}

fn shared(x: Tensor<4>) -> Tensor<4> {
    x
}

fn copied(x: Tensor<4>) -> Tensor<4> {
    repeat_heads(x, HEADS)
}

const STEP: Span = Span { query_start: 129, queries: 1, key_start: 0, keys: 130 };

fn visibilities() -> [(Visibility, Span); 5] {
    [
        (Visibility::causal(), SQUARE),
        (Visibility::causal().and(Visibility::padding(vec![80, 33])), LATER),
        (Visibility::padding(vec![131, 66]), Span::whole(20, 131)),
        (Visibility::pattern(|head, i, j| j + 20 * head <= i), SQUARE),
        (Visibility::causal(), STEP),
    ]
}

const CASES: [Case; 17] = [
    Case::of(1),
    Case::of(2),
    Case::of(2).dropping(),
    Case { shared: [4, 2], ..Case::of(2) },
    Case { shared: [1, 2], ..Case::of(2) },
    Case::of(2).beside(Beside::Bias([1, HEADS])),
    Case::of(1).beside(Beside::Bias([BATCH, 1])).dropping(),
    Case::of(2).beside(Beside::Bias([1, 1])),
    Case::of(2).beside(Beside::ScaledBias([BATCH, HEADS])),
    Case::of(2).beside(Beside::BiasAlone([1, HEADS])),
    Case::of(1).beside(Beside::BiasAlone([BATCH, HEADS])),
    Case::of(2).beside(Beside::Relative([1, HEADS])),
    Case::of(1).beside(Beside::Relative([BATCH, 1])).dropping(),
    Case::of(2).beside(Beside::Spans),
    Case::of(2).beside(Beside::Sink),
    Case::of(2).by(Normaliser::Entmax { power: 2 }),
    Case::of(1).by(Normaliser::Sigmoid { bias: -1.5 }).dropping(),
];

#[test]
fn heads_of_a_group_attend_as_with_copies_of_what_they_share() {
    for backend in backends() {
        for case in CASES {
            for (visibility, span) in visibilities() {
                let expected = case.run(span, &flex().device, copied, &dense(&visibility, span, HEADS));
                let executions: [(&str, &dyn Fn(AttentionProgram) -> Tensor<4>); 2] =
                    [("dense", &dense(&visibility, span, HEADS)), ("tiled", &tiled(&visibility, span, HEADS))];
                for (execution, execute) in executions {
                    let found = case.run(span, &backend.device, shared, execute);
                    compare(&format!("{}: {execution} {case:?} {visibility:?} {span:?}", backend.name), &found, &expected);
                }
            }
        }
    }
}

/// The pairs with an even sum and those with an odd one. Each head has the keys in an order of its own if `by_head`.
fn by_parity(span: Span, by_head: bool) -> Arc<[Part]> {
    let heads = if by_head { HEADS } else { 1 };
    let part = |parity: usize| {
        // From another key on in each head.
        let order = move |head: usize| (0..span.keys).map(move |place| (place + 3 * head) % span.keys);
        let sees = move |head: usize, i: usize, place: usize| {
            let j = (place + 3 * if by_head { head } else { 0 }) % span.keys;
            (i + j) % 2 == parity && j <= i + span.query_start
        };
        let tiles = Visibility::pattern(sees).tiles(Span::whole(span.queries, span.keys), HEADS);
        let orders = (0..heads).map(|head| order(head).map(|key| key as u32).collect()).collect();
        Part { tiles, queries: None, keys: Some(Order::new(heads, orders)) }
    };
    Arc::new([part(0), part(1)])
}

#[test]
fn heads_of_a_group_may_have_their_keys_in_orders_of_their_own() {
    let cases = [
        Case::of(1).dropping(),
        Case::of(2),
        Case::of(2).beside(Beside::ScaledBias([1, HEADS])),
        Case::of(2).beside(Beside::Bias([1, 1])),
        Case::of(2).by(Normaliser::Entmax { power: 1 }),
    ];
    for backend in backends() {
        for case in cases {
            let expected = case.run(LATER, &flex().device, copied, &dense(&Visibility::causal(), LATER, HEADS));
            for by_head in [false, true] {
                let found = case.run(LATER, &backend.device, shared, &|program| fused::attend(program, by_parity(LATER, by_head)));
                compare(&format!("{}: {case:?}, orders by head: {by_head}", backend.name), &found, &expected);
            }
        }
    }
}

#[test]
fn tiles_of_a_shared_head_are_computed_as_those_of_a_copy_bit_by_bit() {
    for case in CASES {
        for (visibility, span) in visibilities() {
            let context = |copied| case.run(span, &flex().device, copied, &tiled(&visibility, span, HEADS)).swap_remove(0).values;
            assert_eq!(context(shared), context(copied), "{case:?} {visibility:?} {span:?}");
        }
    }
}

#[test]
fn the_head_of_another_group_is_told_apart() {
    // Heads 0 and 2 share what 0 and 1 should share.
    let wrong = |x: Tensor<4>| Tensor::cat(vec![x.clone(), x], 1);
    let (visibility, device) = (Visibility::causal(), flex().device);
    let expected = Case::of(2).run(SQUARE, &device, wrong, &dense(&visibility, SQUARE, HEADS));
    for execute in [&dense(&visibility, SQUARE, HEADS) as &dyn Fn(AttentionProgram) -> Tensor<4>, &tiled(&visibility, SQUARE, HEADS)] {
        for (at, (found, expected)) in Case::of(2).run(SQUARE, &device, shared, execute).iter().zip(&expected).enumerate() {
            assert!(same("", &found.values, &expected.values, 1e-2).is_err(), "context or gradient {at} does not notice");
        }
    }
}
