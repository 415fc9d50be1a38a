//! Scores that depend on where a key stands by itself: rotated keys (Su et al. 2021), remembered as they were rotated.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::conformance::{Property, Subject};
use heedful_attention::contract::Positions;
use heedful_attention::engine::LogitTerms;
use heedful_attention::heads::split_heads;
use heedful_attention::init;
use heedful_attention::linear::linear;
use heedful_attention::logits::{LogitFacts, Logits};
use heedful_attention::placement::{Placement, Role};
use heedful_attention::random::RandomKey;
use heedful_attention::softmax_attention::SoftmaxAttention;
use heedful_attention::visibility::Span;

use crate::backends::backends;

#[derive(Module, Debug)]
struct Rotary {
    query: Linear,
    key: Linear,
    heads: usize,
    kv_heads: usize,
    /// Whether each step counts positions from 0 again.
    forgets: bool,
}

/// Channel `c` and channel `c + D / 2` of `x` `[B, H, N, D]` turn by `p / 10000^(2 c / D)` at position `p`.
fn rotated(x: Tensor<4>, start: usize) -> Tensor<4> {
    let [_, _, length, width] = x.dims();
    let half = width / 2;
    let angle = |position: usize, channel: usize| position as f64 / 10_000f64.powf(channel as f64 / half as f64);
    let table = |of: fn(f64) -> f64| {
        let numbers = (start..start + length).flat_map(|position| (0..half).map(move |channel| of(angle(position, channel)) as f32));
        Tensor::<4>::from_data(TensorData::new(numbers.collect(), [1, 1, length, half]), (&x.device(), x.dtype()))
    };
    let (sin, cos) = (table(f64::sin), table(f64::cos));
    let (first, second) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
    let turned = [first.clone() * cos.clone() - second.clone() * sin.clone(), first * sin + second * cos];
    Tensor::cat(turned.to_vec(), 3)
}

impl Logits for Rotary {
    fn facts(&self) -> LogitFacts {
        LogitFacts::default().with_keys()
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        let start = if self.forgets { 0 } else { positions.start };
        Some(rotated(split_heads(linear(memory, &self.key), self.kv_heads), start))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, _: &Positions) -> LogitTerms {
        let keys = keys.unwrap();
        let queries = split_heads(linear(query, &self.query), self.heads) / (keys.dims()[3] as f64).sqrt();
        LogitTerms::content(rotated(queries, span.query_start), keys)
    }
}

fn subject(device: &Device, kv_heads: usize, forgets: bool) -> Subject<SoftmaxAttention<Rotary>> {
    let placement = Placement::new(Role::Decoder, 8, 2).with_kv_heads(Some(kv_heads)).with_max_length(8).with_dropout(0.3);
    let build = move |place: &Placement, key: &RandomKey, device: &Device| {
        let linear = |name, width| init::linear(place.d_model, width, false, &key.named(name), device);
        let (query, memory) = (linear("query", place.query_width()), linear("key", place.key_width()));
        let logits = Rotary { query, key: memory, heads: place.heads, kv_heads: place.n_kv_heads(), forgets };
        SoftmaxAttention::new(logits, place, key, device)
    };
    Subject::new(placement, build, device)
}

#[test]
fn rotated_keys_are_remembered_as_they_were_rotated() {
    for backend in backends() {
        for kv_heads in [1, 2] {
            let subject = subject(&backend.device, kv_heads, false).unmoved_within(backend.unmoved()).rounding(backend.rounding);
            subject.check().unwrap_or_else(|report| panic!("{kv_heads} heads of keys on {}: {report}", backend.name));
        }
    }
}

#[test]
fn keys_that_are_rotated_from_the_beginning_at_each_step_are_noticed() {
    let subject = subject(&crate::backends::flex().device, 2, true);
    assert!(Property::Steps.check(&subject).is_err());
}
