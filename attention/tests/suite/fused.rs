//! The fused execution of the engine against the dense one.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use heedful_attention::conformance::Subject;
use heedful_attention::engine::fused::{self, Order, Part};
use heedful_attention::engine::{
    AttentionProgram, Bias, Dropout, GaussianShape, GaussianWeights, Kronecker, Normaliser, Ramp, SoftCap, SoftSpan, Weighting,
};
use heedful_attention::prelude::*;

use crate::array::{Array, finite, same};
use crate::backends::{Backend, backends, flex};
use crate::executions::{self, LATER, SQUARE, compare, context_and_gradients, dense, tiled};

const BATCH: usize = 2;
const HEADS: usize = 3;

/// What logits are made of, and which of it batch rows or heads share.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Terms {
    Content,
    SharedContent,
    Bias([usize; 2]),
    /// A bias with a scale for each head, or one for all; with a product if it is told apart by batch row.
    ScaledBias([usize; 2], usize),
    Relative([usize; 2]),
    Spanned([usize; 2]),
    /// With these pairs of the first key.
    Kronecker(&'static [isize]),
    All,
    /// Content and scores by distance under a soft cap, with a bias before it, or with a scaled one after it.
    Capped,
    CappedBefore([usize; 2]),
    /// Content with a sink for each head, or one for all.
    Sunk(usize),
    /// A closed form for so many batch rows, renormalised or not.
    GaussianWeights(usize, bool),
}

const TERMS: [Terms; 23] = [
    Terms::Content,
    Terms::SharedContent,
    Terms::Bias([BATCH, HEADS]),
    Terms::Bias([1, HEADS]),
    Terms::Bias([BATCH, 1]),
    Terms::Bias([1, 1]),
    Terms::ScaledBias([1, HEADS], HEADS),
    Terms::ScaledBias([BATCH, HEADS], 1),
    Terms::Relative([1, HEADS]),
    Terms::Relative([BATCH, 1]),
    Terms::Spanned([1, 1]),
    Terms::Spanned([BATCH, 7]),
    Terms::Kronecker(&[5]),
    Terms::Kronecker(&[0, 3]),
    Terms::All,
    Terms::Capped,
    Terms::CappedBefore([BATCH, HEADS]),
    Terms::CappedBefore([1, 1]),
    Terms::Sunk(HEADS),
    Terms::Sunk(1),
    Terms::GaussianWeights(1, false),
    Terms::GaussianWeights(1, true),
    Terms::GaussianWeights(BATCH, false),
];

/// A dense gaussian, one that ends early, and one without a slope.
fn gaussians(rows: usize, queries: usize, renormalise: bool) -> GaussianWeights {
    let shapes = [(1.0, f64::INFINITY), (2.5, 6.0), (f64::INFINITY, 2.0)].map(|(deviation, window)| GaussianShape { deviation, window });
    let centre = |plane: usize, query: usize| 0.9 * query as f64 + plane as f64 - 1.3;
    let centres = (0..rows * HEADS).flat_map(|plane| (0..queries).map(move |query| centre(plane, query)));
    GaussianWeights::new(shapes.into(), queries, centres.collect(), renormalise)
}

/// A program and its leaves, of sizes that fill no tile and no register.
fn program(terms: Terms, span: Span, dropout: Option<Dropout>, device: &Device) -> (AttentionProgram, Vec<Tensor<4>>) {
    let mut leaves = Vec::new();
    let mut leaf = |name: &str, shape: [usize; 4]| {
        let leaf = executions::leaf(name, shape, device);
        leaves.push(leaf.clone());
        leaf
    };
    let Span { queries, keys, .. } = span;
    let mut content = |rows| LogitTerms::content(leaf("queries", [rows, HEADS, queries, 5]) * 3.0, leaf("keys", [rows, HEADS, keys, 5]));
    let logits = match terms {
        Terms::Content | Terms::Spanned(_) => content(BATCH),
        Terms::SharedContent => content(1),
        Terms::Bias([rows, heads]) => LogitTerms::bias(leaf("bias", [rows, heads, queries, keys])),
        Terms::ScaledBias([rows, heads], scales) => {
            let terms = if rows == 1 { LogitTerms::default() } else { content(rows) };
            let scale = Some(leaf("scale", [1, scales, 1, 1]) + 2.0);
            LogitTerms { bias: Some(Bias { numbers: leaf("bias", [rows, heads, queries, keys]), scale }), ..terms }
        }
        Terms::Relative([rows, heads]) => {
            let table = leaf("table", [rows, heads, queries + keys - 1, 6]);
            LogitTerms {
                relative: Some(Content { queries: leaf("scored", [BATCH, HEADS, queries, 6]), keys: table }),
                ..LogitTerms::default()
            }
        }
        Terms::Capped => {
            let content = content(BATCH);
            let table = leaf("table", [1, HEADS, queries + keys - 1, 6]);
            let relative = Content { queries: leaf("scored", [BATCH, HEADS, queries, 6]), keys: table };
            let bias = Bias { numbers: leaf("bias", [1, HEADS, queries, keys]), scale: Some(leaf("scale", [1, HEADS, 1, 1]) + 2.0) };
            LogitTerms { relative: Some(relative), bias: Some(bias), ..content }.capped(3.0)
        }
        Terms::CappedBefore([rows, heads]) => {
            let content = content(BATCH);
            let added = Bias { numbers: leaf("bias", [rows, heads, queries, keys]), scale: Some(leaf("scale", [1, heads, 1, 1]) + 2.0) };
            LogitTerms { cap: Some(SoftCap { limit: 3.0, added: Some(added) }), ..content }
        }
        Terms::Sunk(heads) => {
            let content = content(BATCH);
            LogitTerms { sink: Some(leaf("sink", [1, heads, 1, 1]) * 3.0), ..content }
        }
        Terms::GaussianWeights(..) => LogitTerms::default(),
        Terms::Kronecker(starts) => {
            let [left, right] = [("left", 9), ("right", 13)].map(|(name, width)| leaf(name, [BATCH, HEADS, queries, width]));
            LogitTerms::kronecker(Kronecker { left, right, starts: starts.into(), keys })
        }
        Terms::All => {
            let content = content(BATCH);
            let table = leaf("table", [1, HEADS, queries + keys - 1, 6]);
            let bias = Bias { numbers: leaf("bias", [1, HEADS, queries, keys]), scale: None };
            LogitTerms {
                relative: Some(Content { queries: leaf("scored", [BATCH, HEADS, queries, 6]), keys: table }),
                bias: Some(bias),
                ..content
            }
        }
    };
    let offset = span.query_start as isize - span.key_start as isize;
    let mut spanned = |rows, length| SoftSpan {
        spans: leaf("spans", [rows, HEADS, length, 1]).squeeze_dim::<3>(3) * 10.0 + 20.0,
        ramp: Ramp { width: 7.0, origin: 1.0, nearest: 1, farthest: 60, offset },
    };
    let soft_span = match terms {
        Terms::Spanned([rows, 1]) => Some(spanned(rows, 1)),
        Terms::Spanned([rows, _]) => Some(spanned(rows, queries)),
        Terms::All => Some(spanned(1, 1)),
        _ => None,
    };
    let values = leaf("values", [BATCH, HEADS, keys, 7]);
    let weighting = match terms {
        Terms::GaussianWeights(rows, renormalise) => Weighting::Gaussian(Arc::new(gaussians(rows, queries, renormalise))),
        _ => Weighting::softmax(logits),
    };
    (AttentionProgram { weighting, mask: None, soft_span, values, dropout }, leaves)
}

/// Context and gradients of all leaves.
fn run(terms: Terms, span: Span, dropout: Option<Dropout>, device: &Device, execute: impl Fn(AttentionProgram) -> Tensor<4>) -> Vec<Array> {
    let (program, leaves) = program(terms, span, dropout, &device.clone().autodiff());
    context_and_gradients(execute(program), leaves)
}

fn check(backend: &Backend, terms: Terms, visibility: &Visibility, span: Span, dropout: Option<Dropout>) {
    let found = run(terms, span, dropout, &backend.device, tiled(visibility, span, HEADS));
    let expected = run(terms, span, dropout, &backend.device, dense(visibility, span, HEADS));
    compare(&format!("{}: {terms:?} {visibility:?} {span:?} {dropout:?}", backend.name), &found, &expected);
}

fn dropout(seed: u64) -> Option<Dropout> {
    Some(Dropout { probability: 0.3, key: RandomKey::from_seed(seed) })
}

#[test]
fn tiles_give_the_context_and_gradients_of_the_dense_execution() {
    let visibilities = [
        (Visibility::all(), Span::whole(20, 131)),
        (Visibility::causal(), SQUARE),
        (Visibility::causal(), LATER),
        (Visibility::causal().and(Visibility::padding(vec![70, 33])), SQUARE),
        (Visibility::causal().and(Visibility::left_padding(vec![0, 66])), SQUARE),
        (Visibility::window(3, 1), Span::whole(130, 130)),
        (Visibility::pattern(|head, i, j| j + 20 * head <= i), SQUARE),
    ];
    for backend in backends() {
        for (visibility, span) in &visibilities {
            check(&backend, Terms::Content, visibility, *span, None);
        }
        check(&backend, Terms::Content, &visibilities[1].0, SQUARE, dropout(5));
    }
}

#[test]
fn every_term_has_the_context_and_gradients_of_the_dense_execution() {
    for backend in backends() {
        for terms in TERMS {
            check(&backend, terms, &Visibility::causal(), SQUARE, None);
        }
        let padded = Visibility::causal().and(Visibility::left_padding(vec![0, 66]));
        check(&backend, Terms::Kronecker(&[0, -66]), &padded, SQUARE, None);
        for terms in [Terms::SharedContent, Terms::All, Terms::Capped, Terms::CappedBefore([1, HEADS]), Terms::Sunk(HEADS)] {
            check(&backend, terms, &Visibility::causal(), SQUARE, dropout(5));
            check(&backend, terms, &Visibility::causal().and(Visibility::padding(vec![80, 33])), LATER, None);
        }
    }
}

/// The pairs with an even sum and those with an odd one: in each, queries and keys go from the even ones to the odd ones.
fn by_parity(span: Span) -> Arc<[Part]> {
    let part = |parity: usize| {
        let order = |count: usize| [0, 1].iter().flat_map(|&first| (first..count as u32).step_by(2)).collect::<Vec<u32>>();
        let (queries, keys) = (order(span.queries), order(span.keys));
        let (own_queries, own_keys) = (queries.clone(), keys.clone());
        // The last key is nobody's.
        let sees = move |i: usize, j: usize| {
            let (i, j) = (own_queries[i] as usize, own_keys[j] as usize);
            (i + j) % 2 == parity && j <= i + 60 && j + 1 < span.keys
        };
        let tiles = Visibility::relation(sees).tiles(Span::whole(span.queries, span.keys), HEADS);
        Part { tiles, queries: Some(Order::new(1, vec![queries])), keys: Some(Order::new(1, vec![keys])) }
    };
    Arc::new([part(0), part(1)])
}

#[test]
fn parts_in_another_order_make_one_softmax() {
    let visibility = Visibility::relation(|i, j| j <= i && j + 1 < LATER.keys);
    let scattered = |program| fused::attend(program, by_parity(LATER));
    for backend in backends() {
        let scaled = Terms::ScaledBias([BATCH, HEADS], 1);
        let capped = Terms::CappedBefore([BATCH, 1]);
        for terms in [
            Terms::Content,
            Terms::Bias([1, HEADS]),
            scaled,
            Terms::Spanned([BATCH, 7]),
            Terms::Kronecker(&[0, 20]),
            capped,
            Terms::Sunk(HEADS),
        ] {
            for dropout in [None, dropout(5)] {
                let expected = run(terms, LATER, dropout, &flex().device, dense(&visibility, LATER, HEADS));
                let found = run(terms, LATER, dropout, &backend.device, scattered);
                compare(&format!("{}: {terms:?}", backend.name), &found, &expected);
            }
        }
    }
}

const NORMALISERS: [Normaliser; 9] = [
    Normaliser::SoftmaxPlusOne,
    Normaliser::Sigmoid { bias: -1.5 },
    Normaliser::Relu { power: 1, scale: 0.1 },
    Normaliser::Relu { power: 2, scale: 0.02 },
    Normaliser::Relu { power: 3, scale: 0.01 },
    Normaliser::Softpick { epsilon: 1e-3 },
    Normaliser::Entmax { power: 1 },
    Normaliser::Entmax { power: 2 },
    Normaliser::Entmax { power: 3 },
];

/// The program with its logits normalised in another way.
fn by(normaliser: Normaliser, program: AttentionProgram) -> AttentionProgram {
    let Weighting::Scores(terms, _) = program.weighting else { unreachable!("the program has logits") };
    AttentionProgram { weighting: Weighting::Scores(terms, normaliser), ..program }
}

#[test]
fn every_normaliser_has_the_context_and_gradients_of_the_dense_execution() {
    let padded = Visibility::causal().and(Visibility::left_padding(vec![0, 66]));
    for backend in backends() {
        for normaliser in NORMALISERS {
            let check = |terms, visibility: &Visibility, span, dropout| {
                let found = run(terms, span, dropout, &backend.device, |program| tiled(visibility, span, HEADS)(by(normaliser, program)));
                let expected =
                    run(terms, span, dropout, &backend.device, |program| dense(visibility, span, HEADS)(by(normaliser, program)));
                compare(&format!("{}: {normaliser:?}, {terms:?}, {visibility:?}", backend.name), &found, &expected);
            };
            for terms in [Terms::Content, Terms::SharedContent, Terms::Bias([1, HEADS]), Terms::Relative([1, HEADS]), Terms::Capped] {
                check(terms, &padded, SQUARE, None);
            }
            check(Terms::Content, &Visibility::all(), Span::whole(20, 131), None);
            check(Terms::Content, &Visibility::causal(), LATER, dropout(5));
            check(Terms::Kronecker(&[0, 3]), &Visibility::pattern(|head, i, j| j + 20 * head <= i), SQUARE, dropout(5));
        }
    }
}

#[test]
fn parts_in_another_order_are_normalised_together() {
    let visibility = Visibility::relation(|i, j| j <= i && j + 1 < LATER.keys);
    for backend in backends() {
        for normaliser in NORMALISERS {
            for (terms, dropout) in [(Terms::Content, None), (Terms::Bias([1, HEADS]), dropout(5)), (Terms::CappedBefore([BATCH, 1]), None)]
            {
                let expected =
                    run(terms, LATER, dropout, &flex().device, |program| dense(&visibility, LATER, HEADS)(by(normaliser, program)));
                let found = run(terms, LATER, dropout, &backend.device, |program| fused::attend(by(normaliser, program), by_parity(LATER)));
                compare(&format!("{}: {normaliser:?}, {terms:?}", backend.name), &found, &expected);
            }
        }
    }
}

#[test]
fn another_visibility_or_dropout_is_told_apart() {
    let device = flex().device;
    let differs = |a: Vec<Array>, b: Vec<Array>| {
        for (at, (a, b)) in a.iter().zip(&b).enumerate() {
            assert!(same("", &a.values, &b.values, 1e-2).is_err(), "context or gradient {at} does not notice");
        }
    };
    let causal = Visibility::causal();
    let content = |dropout, execute: &dyn Fn(AttentionProgram) -> Tensor<4>| run(Terms::Content, SQUARE, dropout, &device, execute);
    differs(content(None, &tiled(&causal, SQUARE, HEADS)), content(None, &dense(&Visibility::window(70, 1), SQUARE, HEADS)));
    differs(content(dropout(1), &tiled(&causal, SQUARE, HEADS)), content(dropout(2), &dense(&causal, SQUARE, HEADS)));
}

#[test]
fn long_rows_of_large_logits_stay_finite() {
    let span = Span::whole(200, 200);
    let device = flex().device;
    let huge = |program: AttentionProgram| {
        let Weighting::Scores(LogitTerms { content: Some(content), .. }, _) = program.weighting else { unreachable!() };
        AttentionProgram { weighting: Weighting::softmax(LogitTerms::content(content.queries * 1e4, content.keys)), ..program }
    };
    let visibility = Visibility::causal();
    let bounded =
        [Normaliser::Softmax, Normaliser::SoftmaxPlusOne, Normaliser::Softpick { epsilon: 1e-6 }, Normaliser::Entmax { power: 2 }];
    for normaliser in bounded {
        let found = run(Terms::Content, span, None, &device, |program| tiled(&visibility, span, HEADS)(by(normaliser, huge(program))));
        let expected = run(Terms::Content, span, None, &device, |program| dense(&visibility, span, HEADS)(by(normaliser, huge(program))));
        same(&format!("{normaliser:?}: context"), &found[0].values, &expected[0].values, 1e-4).unwrap();
        found.iter().for_each(|found| finite(&format!("{normaliser:?}: context or gradient"), &found.values).unwrap());
    }
}

/// All mechanisms as they are by default, at a length of several tiles.
fn long_subjects(device: &Device) -> impl Iterator<Item = (String, Subject<heedful_attention::description::AnyAttention>)> {
    let device = device.clone();
    AnyMechanism::all().into_iter().map(move |config| {
        let role = if config.can_be_causal() { Role::Decoder } else { Role::Encoder };
        // Of few channels, of which a ReLU leaves hardly one, the sum of the weights is so small that its rounding shows in gradients.
        let d_model = if config.get::<CosformerConfig>().is_some() { 48 } else { 12 };
        let spec = LayerSpec::new(role, d_model, 3).with_max_length(150).with_dropout(0.2);
        let name = config.name();
        (name, Subject::new(spec, move |spec, key, device| config.init(spec, key, device), &device))
    })
}

#[test]
fn every_mechanism_gives_the_same_on_both_engines_over_several_tiles() {
    for (name, subject) in long_subjects(&flex().device) {
        heedful_attention::conformance::Property::Engines.check(&subject).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn dropout_of_a_softmax_is_the_same_on_both_engines() {
    for (name, subject) in long_subjects(&flex().device).filter(|(name, _)| !name.contains("lsh") && !name.contains("conv")) {
        let case = subject.case("dropout", 2, 150);
        let context = |engine| {
            let input = case.input(&subject.device).visibility(subject.usual()).random(RandomKey::from_seed(2));
            subject.forward(AttentionInput { engine, ..input })
        };
        same(&name, &context(Engine::Fused).values, &context(Engine::Reference).values, 2e-5).unwrap();
    }
}

#[test]
fn a_program_with_a_bias_within_its_cap_and_one_after_it_or_with_a_span_is_not_fused() {
    let device = flex().device;
    let fuses = |terms: LogitTerms, soft_span| {
        let program = program(Terms::Content, SQUARE, None, &device.clone().autodiff()).0;
        fused::can_attend(&AttentionProgram { weighting: Weighting::softmax(terms), soft_span, ..program }, Engine::Fused)
    };
    let bias = || LogitTerms::bias(Tensor::zeros([1, 1, 70, 70], &device));
    let capped = || bias().capped(2.0);
    assert!(fuses(capped(), None) && fuses(bias().plus(bias()), None));
    assert!(!fuses(capped().plus(bias()), None));
    let span =
        SoftSpan { spans: Tensor::ones([1, 1, 1], &device), ramp: Ramp { width: 1.0, origin: 0.0, nearest: 0, farthest: 9, offset: 0 } };
    assert!(fuses(bias(), Some(span.clone())) && !fuses(capped(), Some(span)));
}

#[test]
fn the_engine_is_chosen_by_the_number_of_queries() {
    let device = flex().device.autodiff();
    let content = |queries| program(Terms::Content, Span::whole(queries, queries), None, &device).0;
    for (engine, expected) in [(Engine::Auto, [false, true]), (Engine::Fused, [true, true]), (Engine::Reference, [false, false])] {
        assert_eq!([2, 64].map(|queries| fused::can_attend(&content(queries), engine)), expected, "{engine:?}");
    }
}
