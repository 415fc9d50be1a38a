//! Gradients of spans whose ramps begin or end exactly at a key, against the formula with both ends of the ramp included.

use std::ops::Range;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use heedful_attention::description::case::parameters;
use heedful_attention::engine::blocked::{Blocks, attend_parts};
use heedful_attention::engine::{AttentionProgram, Dropout, Ramp, SoftSpan, Weighting, reference};
use heedful_attention::prelude::*;

use crate::array::{Array, same};
use crate::backends::{backends, flex};
use crate::executions::{dense, tiled};
use crate::subject::coefficients;
use crate::variants::{parse, spec};

const HEADS: usize = 2;
const WIDTH: usize = 3;

/// Spans of the heads, their ramp, and how many positions there are.
#[derive(Clone, Copy, Debug)]
struct Corner {
    spans: [f64; HEADS],
    ramp: Ramp,
    length: usize,
}

impl Corner {
    fn height(&self, head: usize, i: usize, j: usize) -> Option<f64> {
        let Ramp { width, origin, nearest, farthest, .. } = self.ramp;
        let distance = i.abs_diff(j);
        (nearest..=farthest).contains(&distance).then(|| (self.spans[head] - distance as f64 + f64::from(origin)) / f64::from(width) + 1.0)
    }

    fn logits(&self) -> Array {
        Array::random("logits", &[1, HEADS, self.length, self.length])
    }

    fn values(&self) -> Array {
        Array::random("values", &[1, HEADS, self.length, WIDTH])
    }

    /// The gradients of the spans by the formula `sum_ij [0 <= h <= 1] e^s_ij / sum_k m_ik e^s_ik (G_ij - sum_k a_ik G_ik) / R`.
    fn gradients(&self, sees: impl Fn(usize, usize) -> bool) -> [f64; HEADS] {
        let (logits, values) = (self.logits(), self.values());
        let coefficients = coefficients(&values.shape);
        std::array::from_fn(|h| {
            let mut sum = 0.0;
            for i in 0..self.length {
                let keys = (0..self.length).filter(|&j| sees(i, j)).filter_map(|j| Some((j, self.height(h, i, j)?)));
                let keys: Vec<(f64, f64, f64)> = keys
                    .map(|(j, height)| {
                        let slope = values.row(&[0, h, j]).iter().zip(coefficients.row(&[0, h, i])).map(|(v, c)| v * c).sum();
                        (height, logits.at(&[0, h, i, j]).exp(), slope)
                    })
                    .collect();
                let total: f64 = keys.iter().map(|(height, exponential, _)| height.clamp(0.0, 1.0) * exponential).sum();
                if total == 0.0 {
                    continue;
                }
                let mean: f64 =
                    keys.iter().map(|(height, exponential, slope)| height.clamp(0.0, 1.0) * exponential * slope).sum::<f64>() / total;
                let on_ramp = keys.iter().filter(|(height, _, _)| (0.0..=1.0).contains(height));
                sum += on_ramp.map(|(_, exponential, slope)| exponential / total * (slope - mean)).sum::<f64>();
            }
            sum / f64::from(self.ramp.width)
        })
    }

    /// The program, and the spans that it depends on.
    fn program(&self, dropout: Option<Dropout>, device: &Device) -> (AttentionProgram, Tensor<3>) {
        let spans = Array { shape: vec![1, HEADS, 1], values: self.spans.to_vec() }.tensor::<3>(device).require_grad();
        let program = AttentionProgram {
            weighting: Weighting::softmax(LogitTerms::bias(self.logits().tensor(device))),
            mask: None,
            soft_span: Some(SoftSpan { spans: spans.clone(), ramp: self.ramp }),
            values: self.values().tensor(device),
            dropout,
        };
        (program, spans)
    }

    fn found(&self, dropout: Option<Dropout>, device: &Device, execute: impl Fn(AttentionProgram) -> Tensor<4>) -> Vec<f64> {
        let (program, spans) = self.program(dropout, &device.clone().autodiff());
        let context = execute(program);
        let coefficients = coefficients(&context.dims()).tensor(&context.device());
        let gradients = (context * coefficients).sum().backward();
        Array::read(spans.grad(&gradients).expect("the context depends on the spans")).values
    }
}

/// In two sets of blocks of one block each: the first half of the keys, and the second.
fn in_halves(visibility: &Visibility, length: usize) -> impl Fn(AttentionProgram) -> Tensor<4> {
    move |program| {
        let (device, dtype) = (program.values.device(), program.values.dtype());
        let indices = |range: Range<usize>| {
            let indices: Vec<i32> = range.map(|index| index as i32).collect();
            let count = indices.len();
            Tensor::from_data(TensorData::new(indices, [1, 1, 1, count]), &device)
        };
        let mask = visibility.mask(Span::whole(length, length), HEADS, dtype, &device).map(|mask| mask.bias);
        let mask = mask.unwrap_or_else(|| Tensor::zeros([1, 1, length, length], (&device, dtype)));
        let half = |keys: Range<usize>| {
            let mask = mask.clone().narrow(3, keys.start, keys.len()).unsqueeze_dim(2);
            Blocks { queries: indices(0..length), keys: indices(keys), mask, places: indices(0..length).squeeze_dim(2) }
        };
        attend_parts(program, &[half(0..length / 2), half(length / 2..length)]).context
    }
}

fn corners() -> Vec<Corner> {
    let ramp = |width, origin, nearest, farthest| Ramp { width, origin, nearest, farthest, offset: 0 };
    vec![
        // Where every span starts, with the released code's origin and with the paper's.
        Corner { spans: [0.0; HEADS], ramp: ramp(4.0, 1.0, 0, 40), length: 20 },
        Corner { spans: [0.0; HEADS], ramp: ramp(4.0, 0.0, 1, 40), length: 20 },
        Corner { spans: [2.0, 5.0], ramp: ramp(3.0, 1.0, 1, 40), length: 20 },
        // One head has its ends between keys.
        Corner { spans: [2.0, 4.3], ramp: ramp(2.5, 1.0, 0, 40), length: 20 },
        // The end lies at the greatest distance, and beyond it.
        Corner { spans: [2.0, 3.0], ramp: ramp(4.0, 1.0, 0, 7), length: 20 },
        // A tile of which the ends of ramps are all that is met: the first query of the third meets the last key of the first at distance 65.
        Corner { spans: [32.0, 31.0], ramp: ramp(32.0, 1.0, 0, 192), length: 192 },
    ]
}

/// Whether a query sees a key.
type Sees = fn(usize, usize) -> bool;

#[test]
fn both_ends_of_a_ramp_have_its_slope_on_every_engine() {
    // With a gap, some queries see nothing but the keys at which their ramps end: they have no weights and no gradient.
    let views: [(Visibility, Sees); 3] = [
        (Visibility::causal(), |i, j| j <= i),
        (Visibility::all(), |_, _| true),
        (Visibility::relation(|i, j| j <= i && (i % 2 == 0 || j + 5 <= i)), |i, j| j <= i && (i % 2 == 0 || j + 5 <= i)),
    ];
    for backend in backends() {
        for corner in corners() {
            for (visibility, sees) in &views {
                let expected = corner.gradients(sees);
                for (name, found) in [
                    ("reference", corner.found(None, &backend.device, dense(visibility, Span::whole(corner.length, corner.length), HEADS))),
                    ("fused", corner.found(None, &backend.device, tiled(visibility, Span::whole(corner.length, corner.length), HEADS))),
                    // The first half has of some queries no more than a key at the very end of a ramp.
                    ("blocked", corner.found(None, &backend.device, in_halves(visibility, corner.length))),
                ] {
                    let largest = expected.iter().fold(1.0f64, |largest, number| largest.max(number.abs()));
                    same(&format!("{}, {name}: {corner:?} {visibility:?}", backend.name), &found, &expected, 2e-5 * largest).unwrap();
                }
            }
        }
    }
}

#[test]
fn the_engines_agree_on_ends_under_dropout() {
    let dropout = Some(Dropout { probability: 0.4, key: RandomKey::from_seed(3) });
    let visibility = Visibility::causal();
    for backend in backends() {
        for corner in corners() {
            let expected = corner.found(dropout, &backend.device, dense(&visibility, Span::whole(corner.length, corner.length), HEADS));
            let found = corner.found(dropout, &backend.device, tiled(&visibility, Span::whole(corner.length, corner.length), HEADS));
            let largest = expected.iter().fold(1.0f64, |largest, number| largest.max(number.abs()));
            same(&format!("{}: {corner:?}", backend.name), &found, &expected, 2e-5 * largest).unwrap();
            let plain = corner.found(None, &backend.device, tiled(&visibility, Span::whole(corner.length, corner.length), HEADS));
            assert!(same("", &found, &plain, 1e-3).is_err(), "dropout changes nothing");
        }
    }
}

#[test]
fn a_query_of_whose_span_a_tensor_hides_all_keys_has_no_weights() {
    let (length, ramp) = (20, Ramp { width: 3.0, origin: 1.0, nearest: 0, farthest: 40, offset: 0 });
    let corner = Corner { spans: [2.0, 5.0], ramp, length };
    let in_16_bits = [FloatDType::F16, FloatDType::BF16].map(|dtype| (flex(), dtype));
    for (backend, dtype) in backends().into_iter().map(|backend| (backend, FloatDType::F32)).chain(in_16_bits) {
        let device = backend.device.clone().autodiff();
        let (what, unit) = (format!("{} in {dtype:?}", backend.name), if dtype == FloatDType::F32 { 1e-5 } else { 3e-2 });
        let seen = Tensor::from_data(TensorData::new((0..length).map(|key| key < 6).collect(), [1, length]), &backend.device);
        let visibility = Visibility::given_keys(seen);
        let run = |dtype: FloatDType, engine: &str| {
            let leaf = |x: Tensor<4>| x.cast(dtype).detach().require_grad();
            let (logits, values) = (leaf(corner.logits().tensor(&device)), leaf(corner.values().tensor(&device)));
            let spans = Array { shape: vec![1, HEADS, 1], values: corner.spans.to_vec() }.tensor::<3>(&device).cast(dtype).require_grad();
            let program = |scores: Tensor<4>| AttentionProgram {
                weighting: Weighting::softmax(LogitTerms::bias(scores)),
                mask: None,
                soft_span: Some(SoftSpan { spans: spans.clone(), ramp }),
                values: values.clone(),
                dropout: None,
            };
            let mask = || visibility.mask(Span::whole(length, length), HEADS, dtype.into(), &device).expect("keys are hidden");
            let context = match engine {
                "fused" => tiled(&Visibility::all(), Span::whole(length, length), HEADS)(program(logits.clone() + mask().bias)),
                "blocked" => in_halves(&visibility, length)(program(logits.clone())),
                _ => reference::attend(AttentionProgram { mask: Some(mask()), ..program(logits.clone()) }, &mut Probe::off()),
            };
            let slopes = coefficients(&context.dims()).tensor::<4>(&device).cast(dtype);
            let gradients = (context.clone() * slopes).sum().backward();
            let of = |gradient: Option<Tensor<4>>| Array::read(gradient.expect("the context depends on it")).values;
            let spans = spans.grad(&gradients).expect("the context depends on it").unsqueeze_dim::<4>(3);
            [Array::read(context).values, of(logits.grad(&gradients)), of(values.grad(&gradients)), of(Some(spans))]
        };
        let expected = run(FloatDType::F32, "reference");
        for engine in ["fused", "blocked", "reference"] {
            let found = run(dtype, engine);
            let what = format!("{what}, {engine}");
            // From query 15 on, no key before 6 is within 5 + 3 positions.
            for head in found[0].chunks(length * WIDTH) {
                assert!(head[15 * WIDTH..].iter().all(|&number| number == 0.0), "{what}: {:?}", &head[15 * WIDTH..]);
            }
            for ((found, expected), name) in found.iter().zip(&expected).zip(["context", "logits", "values", "spans"]) {
                let largest = expected.iter().fold(1.0f64, |largest, number| largest.max(number.abs()));
                same(&format!("{what}: {name}"), found, expected, unit * largest).unwrap();
            }
        }
    }
}

/// Gradients of the learned spans when the loss is that of the last six elements.
fn of_spans(attention: &impl Attention, input: AttentionInput) -> Vec<f64> {
    let context = attention.forward(input, &mut Probe::off()).context;
    let length = context.dims()[1];
    let last = context.narrow(1, length - 6, 6);
    let coefficients = coefficients(&last.dims()).tensor(&last.device());
    let gradients = parameters(attention, Some(&(last * coefficients).sum().backward()));
    gradients["Softmax.logits.AdaptiveSpan.span"].values.clone()
}

#[test]
fn the_end_of_a_ramp_is_not_cut_from_a_carried_memory() {
    let place = spec(Role::Decoder, 2).with_max_length(40);
    for backend in backends() {
        let device = backend.device.clone().autodiff();
        let config = AdaptiveSpanConfig::default().with_ramp(4.0).with_logits(parse("dot-product"));
        let attention = AnyMechanism::from(config).init(&place, &RandomKey::from_seed(1), &device);
        let x = Array::random("x", &[2, 20, 6]);
        let whole = AttentionInput::self_attention(x.tensor(&device)).visibility(Visibility::causal());
        let expected = of_spans(&attention, whole);
        let carried = AttentionInput::segment(x.slice(14..20).tensor(&device), x.slice(0..14).tensor(&device));
        let found = of_spans(&attention, carried.visibility(Visibility::causal()));
        same(backend.name, &found, &expected, 1e-4).unwrap();
        assert!(expected.iter().all(|gradient| gradient.abs() > 1e-3), "{expected:?}");
    }
}
