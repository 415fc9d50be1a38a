//! What attention allocates for heads that share keys and values, and in 16 bits. A program of its own, since it counts what the whole process allocates.

use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Distribution, FloatDType, Tensor};
use heedful_attention::engine::fused::{self, Part};
use heedful_attention::engine::heads::repeat_heads;
use heedful_attention::engine::{AttentionProgram, Weighting, reference};
use heedful_attention::prelude::*;
use peak_alloc::PeakAlloc;
use rayon::ThreadPoolBuilder;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const HEADS: usize = 32;
const KEYS: usize = 1024;
const WIDTH: usize = 32;

/// Bytes of the keys and values of all heads, if each had its own.
const OF_ALL_HEADS: usize = HEADS * KEYS * 2 * WIDTH * size_of::<f32>();

/// Held by the test that counts: another one would be counted too.
static COUNTING: Mutex<()> = Mutex::new(());

/// On one thread a peak is the same in every run. On several it depends on which of them wait.
static ONE_THREAD: Once = Once::new();

fn alone() -> MutexGuard<'static, ()> {
    ONE_THREAD.call_once(|| ThreadPoolBuilder::new().num_threads(1).build_global().expect("nothing has used the pool"));
    COUNTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By how many bytes the most that is allocated during some work exceeds what was allocated before. The work is done twice and counted the second time: a
/// thread's first matrix product allocates a buffer as large as the processor's second-level cache, and keeps it.
fn growth<T>(mut work: impl FnMut() -> T) -> usize {
    drop(work());
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
        fused::attend(program(queries, [keys, values]), Arc::new([Part::in_order(tiles.clone())])).sum().backward()
    });
    let (query, state) = (random(HEADS, 1, &device), [random(1, KEYS, &device), random(1, KEYS, &device)]);
    [trained, growth(|| reference::attend(program(query.clone(), state.clone()), &mut Probe::off()))]
}

#[test]
fn nothing_is_held_of_copies_of_what_heads_share() {
    let _alone = alone();
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
    layer.step(elements(KEYS - 2), &mut cache);
    let step = growth(|| layer.step(elements(1), &mut cache));
    assert!(step < OF_ALL_HEADS / 4, "a step takes {step} bytes, where copies are {OF_ALL_HEADS}");
}

/// Operands of a causal program with two heads, as leaves of this type.
fn leaves(length: usize, dtype: FloatDType) -> [Tensor<4>; 3] {
    let device = Device::flex().autodiff();
    std::array::from_fn(|_| random(2, length, &device).cast(dtype).detach().require_grad())
}

fn causal([queries, keys, values]: [Tensor<4>; 3]) -> AttentionProgram {
    AttentionProgram {
        weighting: Weighting::softmax(LogitTerms::content(queries, keys)),
        mask: None,
        soft_span: None,
        values,
        dropout: None,
    }
}

fn tiled(program: AttentionProgram) -> Tensor<4> {
    let span = Span::whole(program.values.dims()[2], program.values.dims()[2]);
    fused::attend(program, Arc::new([Part::in_order(Visibility::causal().tiles(span, 2))]))
}

fn dense(program: AttentionProgram) -> Tensor<4> {
    reference::attend(program, &mut Probe::off())
}

/// How many times as much the second length takes as the first, half as long.
fn ratio(growth_at: impl Fn(usize) -> usize) -> f64 {
    growth_at(2 * KEYS) as f64 / growth_at(KEYS) as f64
}

const SIXTEEN: [FloatDType; 2] = [FloatDType::F16, FloatDType::BF16];

#[test]
fn a_training_step_in_16_bits_has_no_matrix_of_queries_and_keys() {
    let _alone = alone();
    for dtype in SIXTEEN {
        let step = |attend: fn(AttentionProgram) -> Tensor<4>| {
            ratio(|length| {
                let operands = leaves(length, dtype);
                growth(|| attend(causal(operands.clone())).sum().backward())
            })
        };
        let (without, with) = (step(tiled), step(dense));
        assert!(without < 2.5, "{dtype:?}: twice the length takes {without} times the memory");
        assert!(with > 3.0, "{dtype:?}: with a matrix of all pairs twice the length takes {with} times the memory, which is not counted");
    }
}

/// A causal layer with weights of this type.
fn layer(dtype: FloatDType) -> AttentionLayer {
    struct Cast(FloatDType);

    impl ModuleMapper for Cast {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|weight| weight.detach().cast(self.0).detach().require_grad())
        }
    }

    let layer = AttentionConfig::new("dot-product", 64, 2).with_causal(true).init(&Device::flex().autodiff());
    layer.expect("the configuration is valid").map(&mut Cast(dtype))
}

#[test]
fn a_layer_in_16_bits_trains_without_a_matrix_of_queries_and_keys() {
    let _alone = alone();
    for dtype in SIXTEEN {
        let layer = layer(dtype);
        let device = Device::flex().autodiff();
        let grown = ratio(|length| {
            let elements = Tensor::<3>::random([1, length, 64], Distribution::Normal(0.0, 1.0), &device).cast(dtype);
            growth(|| {
                let output = layer.forward(elements.clone(), &Mask::none());
                assert_eq!(FloatDType::from(output.dtype()), dtype);
                output.sum().backward()
            })
        });
        assert!(grown < 2.5, "{dtype:?}: twice the length takes {grown} times the memory");
    }
}

#[test]
fn training_keeps_16_bits_of_what_has_16_bits() {
    let _alone = alone();
    let kept = |dtype| {
        // Made in a computation, as those of a layer are.
        let step = || tiled(causal(leaves(KEYS, dtype).map(|leaf| leaf * 2.0)));
        // What is made once is there before anything is counted, and gradients leave nothing of their graph.
        step().sum().backward();
        let before = ALLOCATOR.current_usage();
        let context = step();
        let kept = ALLOCATOR.current_usage() - before;
        context.sum().backward();
        kept as f64
    };
    let whole = kept(FloatDType::F32);
    for dtype in SIXTEEN {
        // Operands and the context have half the bits; the logarithms of sums, one for each query, have as many.
        let share = kept(dtype) / whole;
        assert!(share < 0.6, "training keeps {share} of the bytes of 32 bits in {dtype:?}");
    }
}
