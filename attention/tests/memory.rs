//! What attention allocates for heads that share keys and values. A program of its own, since it counts what the whole process allocates.

use std::sync::Arc;

use burn::tensor::{Device, Distribution, Tensor};
use heedful_attention::engine::fused::{self, Part};
use heedful_attention::engine::{AttentionProgram, LogitTerms, Weighting, reference};
use heedful_attention::heads::repeat_heads;
use heedful_attention::prelude::*;
use heedful_attention::probe::Probe;
use heedful_attention::visibility::{Span, Visibility};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const HEADS: usize = 32;
const KEYS: usize = 1024;
const WIDTH: usize = 32;

/// Bytes of the keys and values of all heads, if each had its own.
const OF_ALL_HEADS: usize = HEADS * KEYS * 2 * WIDTH * size_of::<f32>();

/// By how many bytes the most that is allocated during some work exceeds what was allocated before.
fn growth<T>(work: impl FnOnce() -> T) -> usize {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let made = work();
    let growth = ALLOCATOR.peak_usage() - before;
    drop(made);
    growth
}

fn random(heads: usize, length: usize, device: &Device) -> Tensor<4> {
    Tensor::random([1, heads, length, WIDTH], Distribution::Normal(0.0, 1.0), device)
}

/// A training step of the fused engine, and a step of decoding by the dense one.
fn growths(made: fn(Tensor<4>) -> Tensor<4>) -> [usize; 2] {
    let device = Device::flex();
    let program = |queries, [keys, values]: [Tensor<4>; 2]| AttentionProgram {
        weighting: Weighting::softmax(LogitTerms::content(queries, made(keys))),
        mask: None,
        soft_span: None,
        values: made(values),
        dropout: None,
    };
    let span = Span::whole(16, KEYS);
    let tiles = Visibility::all().tiles(span, HEADS);
    let training = device.clone().autodiff();
    let leaves = [HEADS, 1, 1].map(|heads| random(heads, if heads == 1 { KEYS } else { span.queries }, &training).require_grad());
    let trained = growth(|| {
        let [queries, keys, values] = leaves.clone();
        fused::attend(program(queries, [keys, values]), Arc::new([Part::in_order(tiles)])).sum().backward()
    });
    let (query, state) = (random(HEADS, 1, &device), [random(1, KEYS, &device), random(1, KEYS, &device)]);
    [trained, growth(|| reference::attend(program(query, state), &mut Probe::off()))]
}

#[test]
fn nothing_is_held_of_copies_of_what_heads_share() {
    let (shared, copied) = (growths(|x| x), growths(|x| repeat_heads(x, HEADS) * 1.0));
    for (name, (shared, copied)) in ["training", "decoding"].into_iter().zip(shared.into_iter().zip(copied)) {
        assert!(shared < OF_ALL_HEADS / 4, "{name} takes {shared} bytes, where copies are {OF_ALL_HEADS}");
        assert!(copied > OF_ALL_HEADS / 2, "{name} with copies of {OF_ALL_HEADS} bytes takes {copied}: they are not counted");
    }
    // The same of a whole layer: what is remembered is that of the shared head.
    let device = Device::flex();
    let layer = AttentionConfig::new("dot-product", 64, HEADS).with_n_kv_heads(1).with_head_width(WIDTH).with_causal(true).init(&device);
    let layer = layer.expect("the configuration is valid");
    let mut cache = layer.cache(1, KEYS);
    let elements = |length| Tensor::<3>::random([1, length, 64], Distribution::Normal(0.0, 1.0), &device);
    layer.step(elements(KEYS - 1), &mut cache);
    let step = growth(|| layer.step(elements(1), &mut cache));
    assert!(step < OF_ALL_HEADS / 4, "a step takes {step} bytes, where copies are {OF_ALL_HEADS}");
}
