//! The kernels that training uses, with what each has to do at least.

use std::hint::black_box;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{DType, Device};
use heedful_attention::description::multiplications::{Multiplications, multiplications};
use heedful_attention::engine::linear::SUMS;
use heedful_attention::mechanisms::recurrent_attention::Stretch;
use heedful_attention::mechanisms::short_convolution::ShortConvolution;
use heedful_attention::prelude::*;
use heedful_models::kernels::precision::Precision;
use serde::{Deserialize, Serialize};

#[cfg(target_arch = "x86_64")]
use super::bfloat16;
use super::model::Limit;
use super::operators::{self, threads_of_groups};
use super::peaks::{Product, Triad};
use crate::cost::point::{Layer, Pass, Work};
use crate::projections::Projections;
use crate::training_step::{ModelSizes, TrainingStep};
use crate::workload::{Sizes, gradient_of, wait};

/// Sizes at which kernels are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Width of layers and their heads.
    pub width: usize,
    pub heads: usize,
    /// Positions of the fused operator.
    pub lengths: [usize; 3],
    /// Positions of everything else.
    pub length: usize,
    /// Rows and columns of the square product.
    pub product: usize,
    /// The language model, and its batch and length.
    pub model: ModelSizes,
    pub rows: [usize; 2],
}

/// The work of a kernel, and its times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Forward, or forward and backward.
    pub pass: Pass,
    /// What operands and results are made of, or what is multiplied where those have 32 bits.
    #[serde(default)]
    pub precision: Precision,
    /// Multiplications, each with an addition.
    pub multiplications: f64,
    /// Bytes of operands that it reads and of results that it writes, each once for a direction.
    pub bytes: f64,
    /// Shares of its work that the code divides among few threads.
    pub limits: Vec<Limit>,
    /// What was measured, by threads, ascending.
    pub times: Vec<Times>,
}

/// Times with so many threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Threads.
    pub threads: usize,
    /// Seconds of each round.
    pub seconds: Vec<f64>,
}

/// A kernel that can be run.
pub(super) struct Candidate {
    pub kernel: Kernel,
    pub run: Box<dyn FnMut() + Send>,
}

impl Candidate {
    pub(super) fn new(kernel: Kernel, run: impl FnMut() + Send + 'static) -> Self {
        Self { kernel, run: Box::new(run) }
    }
}

/// Numbers of operands and results.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub operands: usize,
    pub results: usize,
}

impl Numbers {
    /// Bytes that a pass reads and writes at least. A backward pass reads the operands again and the gradient of the results, and writes gradients of the
    /// operands.
    pub(super) fn bytes(self, pass: Pass) -> f64 {
        self.bytes_in(Precision::F32, pass)
    }

    /// Those of numbers of this type.
    fn bytes_in(self, precision: Precision, pass: Pass) -> f64 {
        let Self { operands, results } = self;
        let numbers = if pass == Pass::Training { 3 * operands + 2 * results } else { operands + results };
        (numbers * DType::from(precision.dtype()).size()) as f64
    }
}

/// Threads that compute the gradient of a weight of few rows and columns: as many as it has sums.
const THREADS_OF_WEIGHTS: f64 = SUMS as f64;

/// The square product, of which the best time is the peak of arithmetic, and a triad of arrays of so many numbers, of which it is that of memory.
pub(super) fn peaks(scale: Scale, numbers: usize, device: &Device) -> [Candidate; 2] {
    let width = scale.product;
    let product = Product::new(width, device);
    let of_product = Numbers { operands: 2 * width * width, results: width * width };
    let of_triad = Numbers { operands: 2 * numbers, results: numbers };
    let kernel = |name: String, multiplications: usize, numbers: Numbers| {
        let (multiplications, bytes) = (multiplications as f64, numbers.bytes(Pass::Forward));
        Kernel { name, multiplications, bytes, ..Kernel::default() }
    };
    let mut triad = Triad::new(numbers);
    [
        Candidate::new(kernel(format!("product of {width} by {width}"), width * width * width, of_product), move || product.run()),
        Candidate::new(kernel(format!("triad of {numbers} numbers"), numbers, of_triad), move || triad.run()),
    ]
}

/// Kernels and the training step.
///
/// # Errors
/// If a mechanism is impossible with these sizes.
pub(super) fn kernels(scale: Scale, device: &Device) -> Result<Vec<Candidate>, ConfigError> {
    let Scale { width, heads, lengths, length, .. } = scale;
    let sizes = |length| Sizes { batch: 1, length, d_model: width, heads, kv_heads: None };
    let mut all = Vec::new();
    for precision in PRECISIONS {
        all.extend(linear_maps(sizes(length), precision, device));
    }
    for length in lengths {
        all.extend(operators::fused(sizes(length), device)?);
    }
    all.extend(operators::random_table(sizes(length), device)?);
    all.extend(operators::relative(sizes(length), device)?);
    all.extend(operators::linear_attention(sizes(length), device)?);
    all.extend(operators::gated_delta_net(sizes(length), device)?);
    all.extend(convolution(sizes(length), device));
    for name in ["local-1d", "lsh"] {
        all.extend(layer(name, sizes(length), Precision::F32, device)?);
    }
    for precision in PRECISIONS {
        all.extend(layer("dot-product", sizes(length), precision, device)?);
    }
    all.extend(products(length, width, device));
    all.push(step(scale, device)?);
    Ok(all)
}

/// What is compared with each other.
const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

/// Begins the names of products of rows.
pub(super) const PRODUCT: &str = "rows times a square matrix:";

/// The product of rows with a square matrix in 32 bits, and by the instruction for `bfloat16` where the processor has it. Operands and result have 32 bits in both.
fn products(rows: usize, width: usize, device: &Device) -> Vec<Candidate> {
    let numbers = Numbers { operands: (rows + width) * width, results: rows * width };
    let kernel = |precision| Kernel {
        name: format!("{PRODUCT} {rows} rows of {width}"),
        precision,
        multiplications: (rows * width * width) as f64,
        bytes: numbers.bytes(Pass::Forward),
        ..Kernel::default()
    };
    let product = Product::of_rows(rows, width, device);
    let mut all = vec![Candidate::new(kernel(Precision::F32), move || product.run())];
    #[cfg(target_arch = "x86_64")]
    if let Some(product) = bfloat16::Product::new(rows, width) {
        all.push(Candidate::new(kernel(Precision::Bf16), move || drop(black_box(product.run()))));
    }
    all
}

/// The four maps of a layer, whose backward pass has two products for each.
fn linear_maps(sizes: Sizes, precision: Precision, device: &Device) -> [Candidate; 2] {
    const MAPS: usize = 4;
    let Sizes { length, d_model, .. } = sizes;
    let maps = Arc::new(Projections::with(MAPS, sizes, precision, device));
    let numbers = Numbers { operands: MAPS * (length + d_model) * d_model, results: MAPS * length * d_model };
    let count = Multiplications { pairs: 0.0, maps: (MAPS * length * d_model * d_model) as f64 };
    let kernel = |pass, multiplications, limits| {
        let name = format!("four linear maps of {length} rows of {d_model}");
        Kernel { name, pass, precision, multiplications, bytes: numbers.bytes_in(precision, pass), limits, times: Vec::new() }
    };
    let of_weights = Limit { share: 1.0 / 3.0, threads: THREADS_OF_WEIGHTS };
    let training = maps.clone();
    [
        Candidate::new(kernel(Pass::Forward, count.forward(), Vec::new()), move || drop(black_box(maps.forward()))),
        Candidate::new(kernel(Pass::Training, count.training(), vec![of_weights]), move || drop(black_box(training.forward_backward()))),
    ]
}

/// A short convolution of all channels, whose backward pass sums again and then makes gradients of what it reads and of its weights.
fn convolution(sizes: Sizes, device: &Device) -> [Candidate; 2] {
    const TAPS: usize = 4;
    let Sizes { length, d_model, .. } = sizes;
    let device = device.clone().autodiff();
    let convolution = ShortConvolution::new(TAPS, d_model, &RandomKey::from_seed(0), &device);
    let sequence = sizes.sequence(&device);
    let (plain, without_autodiff) = (sequence.clone().inner(), convolution.valid());
    let numbers = Numbers { operands: (length + TAPS) * d_model, results: length * d_model };
    let kernel = |pass, products: usize| {
        let name = format!("short convolution, {length} positions, {d_model} channels, {TAPS} taps");
        let multiplications = (products * TAPS * length * d_model) as f64;
        Kernel { name, pass, multiplications, bytes: numbers.bytes(pass), ..Kernel::default() }
    };
    let convolved = |convolution: &ShortConvolution, x| convolution.forward(x, Stretch { start: 0, real: None, tail: &mut None });
    [
        Candidate::new(kernel(Pass::Forward, 1), move || {
            let output = convolved(&without_autodiff, plain.clone());
            wait(&output);
            black_box(output);
        }),
        Candidate::new(kernel(Pass::Training, 4), move || {
            black_box(gradient_of(&sequence, |x| convolved(&convolution, x)));
        }),
    ]
}

/// A whole causal layer, its linear maps included, counted as `cost` counts it.
fn layer(name: &str, sizes: Sizes, precision: Precision, device: &Device) -> Result<[Candidate; 2], ConfigError> {
    let attention: AnyMechanism = name.parse()?;
    let layer = Layer { attention: &attention, sizes, precision, is_bidirectional: false };
    let candidate = |pass: Pass| {
        let mut work = Work::new(pass, layer, 0, Engine::default(), device)?;
        let count = multiplications(work.attention(), &sizes.spec(layer.role()), 0..sizes.length, sizes.length);
        let numbers =
            Numbers { operands: work.attention().num_params() + sizes.length * sizes.d_model, results: sizes.length * sizes.d_model };
        let (multiplications, limits) = match pass {
            Pass::Training => (count.training(), vec![Limit { share: count.maps / count.training(), threads: THREADS_OF_WEIGHTS }]),
            _ => (count.forward(), Vec::new()),
        };
        let name = operators::named(&format!("layer of {name}"), sizes);
        let bytes = numbers.bytes_in(precision, pass);
        let kernel = Kernel { name, pass, precision, multiplications, bytes, limits, times: Vec::new() };
        Ok::<_, ConfigError>(Candidate::new(kernel, move || drop(black_box(work.run()))))
    };
    Ok([candidate(Pass::Forward)?, candidate(Pass::Training)?])
}

/// A step of training a language model.
fn step(Scale { model: sizes, rows: [batch, length], .. }: Scale, device: &Device) -> Result<Candidate, ConfigError> {
    /// Times that a step reads or writes a number for each weight: the weight forward and backward, its gradient both ways, and in AdamW both moments and
    /// the weight both ways.
    const OF_WEIGHTS: usize = 10;
    let attention = AnyMechanism::default();
    let model = sizes.model(&attention, length, device)?;
    let Multiplications { pairs, maps } = sizes.multiplications(&model, &attention, length);
    let total = batch as f64 * Multiplications { pairs, maps }.training();
    // Only weights of few rows and columns, those of the attentions, have sums.
    let of_weights = (batch * length * sizes.layers * 4 * sizes.d_model.pow(2)) as f64;
    let limits = vec![
        Limit { share: of_weights / total, threads: THREADS_OF_WEIGHTS },
        Limit { share: 2.5 * batch as f64 * pairs / total, threads: threads_of_groups(batch * sizes.heads) },
    ];
    let kernel = Kernel {
        name: format!("training step, {batch} rows of {length} tokens"),
        pass: Pass::Training,
        precision: Precision::F32,
        multiplications: total,
        bytes: (OF_WEIGHTS * model.num_params() * size_of::<f32>()) as f64,
        limits,
        times: Vec::new(),
    };
    let mut step = TrainingStep::new(&attention, sizes, batch, length, device)?;
    Ok(Candidate::new(kernel, move || {
        black_box(step.run());
    }))
}
