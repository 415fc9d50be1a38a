//! Each term of logits, forward and backward, against the reference engine on the CPU.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use crate::conformance::array::{Array, same};
use crate::conformance::subject::coefficients;
use crate::conformance::test_device;
use crate::engine::fused::{self, Part};
use crate::engine::{AttentionProgram, Content, Dropout, LogitTerms, Ramp, SoftSpan, Weighting, reference};
use crate::probe::Probe;
use crate::random::RandomKey;
use crate::visibility::{Span, Visibility};

const BATCH: usize = 2;
const HEADS: usize = 3;

/// The terms of an attention. Batch rows and heads of what may have one of either are given.
#[derive(Clone, Debug, Default)]
struct Terms {
    /// Width of queries and keys.
    content: Option<usize>,
    bias: Option<[usize; 2]>,
    /// Batch rows and heads of what scores by distance are made with, and its width.
    relative: Option<([usize; 2], usize)>,
    /// Batch rows, heads, and whether each query has a span of its own.
    spans: Option<([usize; 2], bool)>,
}

/// An attention over `lengths` queries and keys, of which the last query and the last key have the same index.
#[derive(Clone, Debug)]
struct Case {
    terms: Terms,
    lengths: [usize; 2],
    /// Width of the values.
    value: usize,
    visibility: Visibility,
    drops: bool,
}

/// What is computed, by name.
type Results = Vec<(&'static str, Array)>;

impl Case {
    fn span(&self) -> Span {
        let [queries, keys] = self.lengths;
        Span { query_start: keys.saturating_sub(queries), queries, key_start: 0, keys }
    }

    /// The program, and the tensors that have a gradient.
    fn program(&self, device: &Device) -> (AttentionProgram, Vec<(&'static str, Tensor<4>)>) {
        let [queries, keys] = self.lengths;
        let mut leaves = Vec::new();
        let mut leaf = |name: &'static str, shape: [usize; 4]| {
            let leaf = Array::random(name, &shape).tensor::<4>(device).require_grad();
            leaves.push((name, leaf.clone()));
            leaf
        };
        let values = leaf("values", [BATCH, HEADS, keys, self.value]);
        let mut terms = LogitTerms::default();
        if let Some(width) = self.terms.content {
            let [queries, keys] = [("queries", queries), ("keys", keys)].map(|(name, length)| leaf(name, [BATCH, HEADS, length, width]));
            terms = terms.plus(LogitTerms::content(queries / (width as f64).sqrt(), keys));
        }
        if let Some([rows, heads]) = self.terms.bias {
            terms = terms.plus(LogitTerms::bias(leaf("bias", [rows, heads, queries, keys])));
        }
        if let Some(([rows, heads], width)) = self.terms.relative {
            let own = leaf("relative queries", [BATCH, HEADS, queries, width]) / (width as f64).sqrt();
            let relative = Content { queries: own, keys: leaf("relative keys", [rows, heads, queries + keys - 1, width]) };
            terms = terms.plus(LogitTerms { relative: Some(relative), ..LogitTerms::default() });
        }
        let soft_span = self.terms.spans.map(|([rows, heads], is_by_query)| {
            let count = if is_by_query { queries } else { 1 };
            let spans = leaf("spans", [rows, heads, count, 1]).reshape([rows, heads, count]) * 20.0 + 25.0;
            let offset = self.span().query_start as isize;
            SoftSpan { spans, ramp: Ramp { width: 8.0, origin: 1.0, nearest: 0, farthest: 60, offset } }
        });
        let dropout = self.drops.then(|| Dropout { probability: 0.3, key: RandomKey::from_seed(7) });
        (AttentionProgram { weighting: Weighting::Softmax(terms), mask: None, soft_span, values, dropout }, leaves)
    }

    fn run(&self, device: &Device, execute: impl Fn(AttentionProgram) -> Tensor<4>) -> Results {
        let (program, leaves) = self.program(&device.clone().autodiff());
        let context = execute(program);
        let coefficients = coefficients(&context.dims()).tensor(&context.device());
        let gradients = (context.clone() * coefficients).sum().backward();
        let of_leaves =
            leaves.into_iter().map(|(name, leaf)| (name, Array::read(leaf.grad(&gradients).expect("the context depends on it"))));
        std::iter::once(("context", Array::read(context))).chain(of_leaves).collect()
    }

    /// By the kernels of the device that tests run on.
    fn by_kernels(&self) -> Results {
        let span = self.span();
        self.run(&test_device(), |program| {
            assert!(fused::has_kernels(&program), "{self:?} is not computed by kernels");
            fused::attend(program, Arc::new([Part::in_order(self.visibility.tiles(span, HEADS))]))
        })
    }

    fn by_reference(&self) -> Results {
        let span = self.span();
        self.run(&Device::flex(), |program| {
            let mask = self.visibility.mask(span, HEADS, program.values.dtype(), &program.values.device());
            reference::attend(AttentionProgram { mask, ..program }, &mut Probe::off())
        })
    }

    /// Asserts that the kernels compute what the reference engine does, and no less of it.
    fn check(&self) {
        for ((name, found), (_, expected)) in self.by_kernels().iter().zip(&self.by_reference()) {
            // Gradients that are summed over many pairs are as large.
            let largest = expected.values.iter().fold(1.0, |largest: f64, number| largest.max(number.abs()));
            same(&format!("{self:?}: {name}"), &found.values, &expected.values, 2e-5 * largest).unwrap();
            // One key has weight 1 whatever its logit is.
            let is_something = self.lengths[1] == 1 || expected.values.iter().any(|number| number.abs() > 1e-3);
            assert!(is_something, "{self:?}: {name} is nothing");
        }
    }
}

/// Some terms with lengths that are multiples of a tile and others, several widths and visibilities, with and without dropout.
fn cases(terms: &Terms) -> Vec<Case> {
    let padded = |counts: [usize; 2]| Visibility::causal().and(Visibility::left_padding(counts.to_vec()));
    let case = |lengths, value, visibility, drops| Case { terms: terms.clone(), lengths, value, visibility, drops };
    vec![
        case([70, 70], 4, Visibility::all(), false),
        case([65, 129], 33, Visibility::causal(), true),
        case([130, 130], 16, padded([0, 66]), false),
        case([64, 128], 16, Visibility::padding(vec![128, 37]), true),
        case([20, 70], 7, Visibility::causal().and(Visibility::window(9, 0)), false),
        case([1, 1], 1, Visibility::all(), false),
    ]
}

#[test]
fn a_bias_gives_what_the_reference_engine_computes() {
    let (alone, with_content) = (|bias| Terms { bias: Some(bias), ..Terms::default() }, |content| Terms { content, ..Terms::default() });
    for terms in [alone([1, HEADS]), alone([BATCH, 1]), Terms { bias: Some([1, 1]), ..with_content(Some(16)) }] {
        cases(&terms).iter().for_each(Case::check);
    }
    let terms = Terms { bias: Some([BATCH, HEADS]), ..with_content(Some(33)) };
    cases(&terms)[1].check();
}

#[test]
fn soft_spans_give_what_the_reference_engine_computes() {
    let content = |spans| Terms { content: Some(16), spans: Some(spans), ..Terms::default() };
    for terms in [content(([1, HEADS], false)), content(([BATCH, HEADS], true))] {
        cases(&terms).iter().for_each(Case::check);
    }
    let terms = Terms { bias: Some([1, HEADS]), spans: Some(([1, 1], true)), ..Terms::default() };
    cases(&terms)[..3].iter().for_each(Case::check);
}

#[test]
fn scores_by_distance_give_what_the_reference_engine_computes() {
    let relative = |content, relative| Terms { content, relative: Some(relative), ..Terms::default() };
    for terms in [relative(Some(16), ([1, HEADS], 4)), relative(Some(33), ([1, 1], 16))] {
        cases(&terms).iter().for_each(Case::check);
    }
    cases(&relative(None, ([BATCH, HEADS], 33)))[..3].iter().for_each(Case::check);
    let all = Terms { bias: Some([1, HEADS]), spans: Some(([1, HEADS], false)), ..relative(Some(4), ([1, HEADS], 80)) };
    cases(&all)[..3].iter().for_each(Case::check);
}
