//! The operators over slices of numbers, in parallel, for backends with tensors in main memory.
//!
//! Sums over rows are sums over blocks of rows, added in order, so they do not depend on the threads.

use heedful_attention::engine::exponential::{exponentials, largest, sum_of_exponentials};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Numbers that are reduced side by side.
const LANES: usize = 16;

/// Rows per unit of work: about ten thousand numbers.
fn block(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}

/// The sum of a function of pairs of numbers.
#[inline(always)]
fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for ((sum, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *sum += term(a, b);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(&a, &b)| term(a, b)).sum();
    lanes.into_iter().sum::<f32>() + rest
}

/// Sums to which each block adds its own, in order.
fn sums_of_blocks<T>(blocks: impl IndexedParallelIterator<Item = T>, width: usize, add: impl Fn(T, &mut [f32]) + Sync + Send) -> Vec<f32> {
    let of_blocks = blocks.map(|block| {
        let mut sums = vec![0.0; width];
        add(block, &mut sums);
        sums
    });
    let mut all = vec![0.0; width];
    for sums in of_blocks.collect::<Vec<Vec<f32>>>() {
        all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
    }
    all
}

/// Normalised rows `[N, C]`, and their means and inverse deviations `[N, 2]`.
pub(super) fn norm(x: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32) -> (Vec<f32>, Vec<f32>) {
    let width = gamma.len();
    let (mut output, mut statistics) = (vec![0.0; x.len()], vec![0.0; x.len() / width * 2]);
    let rows = block(width);
    let arch = Arch::new();
    let blocks = output.par_chunks_mut(rows * width).zip(statistics.par_chunks_mut(rows * 2)).zip(x.par_chunks(rows * width));
    blocks.for_each(|((output, statistics), x)| arch.dispatch(NormRows { x, gamma, beta, epsilon, output, statistics }));
    (output, statistics)
}

struct NormRows<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    beta: &'a [f32],
    epsilon: f32,
    output: &'a mut [f32],
    statistics: &'a mut [f32],
}

impl WithSimd for NormRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { x, gamma, beta, epsilon, output, statistics } = self;
        let width = gamma.len();
        for ((x, output), statistics) in x.chunks_exact(width).zip(output.chunks_exact_mut(width)).zip(statistics.chunks_exact_mut(2)) {
            let mean = sum_of(x, x, |x, _| x) / width as f32;
            let variance = sum_of(x, x, |x, _| (x - mean) * (x - mean)) / width as f32;
            let inverse = 1.0 / (variance + epsilon).sqrt();
            for (((output, x), gamma), beta) in output.iter_mut().zip(x).zip(gamma).zip(beta) {
                *output = (x - mean) * inverse * gamma + beta;
            }
            statistics.copy_from_slice(&[mean, inverse]);
        }
    }
}

/// Replaces the gradient of normalised rows by that of the rows; returns the gradients of `gamma` and `beta`.
pub(super) fn norm_backward(x: &[f32], gamma: &[f32], statistics: &[f32], gradient: &mut [f32]) -> (Vec<f32>, Vec<f32>) {
    let width = gamma.len();
    let rows = block(width);
    let arch = Arch::new();
    let blocks = gradient.par_chunks_mut(rows * width).zip(statistics.par_chunks(rows * 2)).zip(x.par_chunks(rows * width));
    let mut of_gamma = sums_of_blocks(blocks, 2 * width, |((gradient, statistics), x), sums| {
        arch.dispatch(NormRowsBackward { x, gamma, statistics, gradient, sums });
    });
    let of_beta = of_gamma.split_off(width);
    (of_gamma, of_beta)
}

struct NormRowsBackward<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    statistics: &'a [f32],
    gradient: &'a mut [f32],
    /// For `gamma`, then for `beta`.
    sums: &'a mut [f32],
}

impl WithSimd for NormRowsBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { x, gamma, statistics, gradient, sums } = self;
        let width = gamma.len();
        let (of_gamma, of_beta) = sums.split_at_mut(width);
        let mut normal = vec![0.0; width];
        let rows = x.chunks_exact(width).zip(gradient.chunks_exact_mut(width)).zip(statistics.as_chunks::<2>().0);
        for ((x, gradient), &[mean, inverse]) in rows {
            let sums = of_gamma.iter_mut().zip(of_beta.iter_mut());
            for ((((normal, x), gradient), gamma), (of_gamma, of_beta)) in
                normal.iter_mut().zip(x).zip(gradient.iter_mut()).zip(gamma).zip(sums)
            {
                *normal = (x - mean) * inverse;
                *of_gamma += *gradient * *normal;
                *of_beta += *gradient;
                *gradient *= gamma;
            }
            let across = sum_of(gradient, gradient, |slope, _| slope) / width as f32;
            let along = sum_of(gradient, &normal, |slope, normal| slope * normal) / width as f32;
            for (gradient, normal) in gradient.iter_mut().zip(&normal) {
                *gradient = (*gradient - across - normal * along) * inverse;
            }
        }
    }
}

/// Replaces `x` `[N, F]` by `x + bias`, or with `RELU` by `max(0, x + bias)`.
pub(super) fn biased<const RELU: bool>(x: &mut [f32], bias: &[f32]) {
    let arch = Arch::new();
    x.par_chunks_mut(block(bias.len()) * bias.len()).for_each(|x| arch.dispatch(Biased::<RELU> { x, bias }));
}

struct Biased<'a, const RELU: bool> {
    x: &'a mut [f32],
    bias: &'a [f32],
}

impl<const RELU: bool> WithSimd for Biased<'_, RELU> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for x in self.x.chunks_exact_mut(self.bias.len()) {
            for (x, bias) in x.iter_mut().zip(self.bias) {
                let sum = *x + bias;
                // Not `max`, which would turn NaN into 0.
                *x = if RELU && sum <= 0.0 { 0.0 } else { sum };
            }
        }
    }
}

/// The sum of the rows of `x` `[N, F]`.
pub(super) fn sum_of_rows(x: &[f32], width: usize) -> Vec<f32> {
    let arch = Arch::new();
    sums_of_blocks(x.par_chunks(block(width) * width), width, |x, sums| arch.dispatch(RowSum { x, sums }))
}

struct RowSum<'a> {
    x: &'a [f32],
    sums: &'a mut [f32],
}

impl WithSimd for RowSum<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for x in self.x.chunks_exact(self.sums.len()) {
            for (sum, x) in self.sums.iter_mut().zip(x) {
                *sum += x;
            }
        }
    }
}

/// Replaces the gradient of [`biased`]'s result with `RELU` by that of `x`; returns that of the bias.
pub(super) fn biased_relu_backward(output: &[f32], gradient: &mut [f32], width: usize) -> Vec<f32> {
    let size = block(width) * width;
    let arch = Arch::new();
    let blocks = gradient.par_chunks_mut(size).zip(output.par_chunks(size));
    sums_of_blocks(blocks, width, |(gradient, output), sums| arch.dispatch(BiasedReluBackward { output, gradient, sums }))
}

struct BiasedReluBackward<'a> {
    output: &'a [f32],
    gradient: &'a mut [f32],
    sums: &'a mut [f32],
}

impl WithSimd for BiasedReluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { output, gradient, sums } = self;
        for (output, gradient) in output.chunks_exact(sums.len()).zip(gradient.chunks_exact_mut(sums.len())) {
            for ((output, gradient), sum) in output.iter().zip(gradient).zip(&mut *sums) {
                *gradient = if *output <= 0.0 { 0.0 } else { *gradient };
                *sum += *gradient;
            }
        }
    }
}

/// Sums of the smoothed loss and of the negative log-likelihood of logits `[N, V]`; with `differentiate` the logits become their gradient.
pub(super) fn cross_entropy(logits: Logits, targets: &[usize], weights: &[f32], label_smoothing: f64) -> [f32; 2] {
    let arch = Arch::new();
    let smoothing = label_smoothing as f32;
    let of_rows: Vec<[f32; 2]> = match logits {
        Logits::Read(logits, vocabulary) => {
            let rows = logits.par_chunks(vocabulary).zip(targets).zip(weights);
            rows.map(|((logits, &target), &weight)| arch.dispatch(RowLoss { logits, target, weight, smoothing })).collect()
        }
        Logits::Differentiate(logits, vocabulary) => {
            let rows = logits.par_chunks_mut(vocabulary).zip(targets).zip(weights);
            rows.map(|((logits, &target), &weight)| arch.dispatch(RowGradient { logits, target, weight, smoothing })).collect()
        }
    };
    let sum = |at: usize| of_rows.iter().map(|losses| f64::from(losses[at])).sum::<f64>() as f32;
    [sum(0), sum(1)]
}

/// Logits `[N, V]`, and `V`.
pub(super) enum Logits<'a> {
    /// Read-only logits.
    Read(&'a [f32], usize),
    /// Logits to be replaced by the gradient of the smoothed loss.
    Differentiate(&'a mut [f32], usize),
}

/// Losses of a row from the log-sum-exp of its logits; `mean` is the mean of the logits.
#[inline(always)]
fn losses(log_sum: f32, of_target: f32, mean: impl FnOnce() -> f32, weight: f32, smoothing: f32) -> [f32; 2] {
    let likelihood = log_sum - of_target;
    let loss = if smoothing == 0.0 { likelihood } else { (1.0 - smoothing) * likelihood + smoothing * (log_sum - mean()) };
    [weight * loss, weight * likelihood]
}

struct RowLoss<'a> {
    logits: &'a [f32],
    target: usize,
    weight: f32,
    smoothing: f32,
}

impl WithSimd for RowLoss<'_> {
    type Output = [f32; 2];

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> [f32; 2] {
        let Self { logits, target, weight, smoothing } = self;
        if weight == 0.0 {
            return [0.0; 2];
        }
        let top = largest(logits);
        let log_sum = top + sum_of_exponentials(logits, top).ln();
        losses(log_sum, logits[target], || sum_of(logits, logits, |logit, _| logit) / logits.len() as f32, weight, smoothing)
    }
}

struct RowGradient<'a> {
    logits: &'a mut [f32],
    target: usize,
    weight: f32,
    smoothing: f32,
}

impl WithSimd for RowGradient<'_> {
    type Output = [f32; 2];

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> [f32; 2] {
        let Self { logits, target, weight, smoothing } = self;
        if weight == 0.0 {
            logits.fill(0.0);
            return [0.0; 2];
        }
        let count = logits.len() as f32;
        let top = largest(logits);
        let of_target = logits[target];
        let mean = if smoothing == 0.0 { 0.0 } else { sum_of(logits, logits, |logit, _| logit) / count };
        let total = exponentials(logits, top);
        let (share, even) = (weight / total, weight * smoothing / count);
        logits.iter_mut().for_each(|logit| *logit = *logit * share - even);
        logits[target] -= weight * (1.0 - smoothing);
        losses(top + total.ln(), of_target, || mean, weight, smoothing)
    }
}

/// Multiplies all numbers by a factor.
pub(super) fn scale(numbers: &mut [f32], factor: f32) {
    numbers.par_chunks_mut(16_384).for_each(|numbers| numbers.iter_mut().for_each(|number| *number *= factor));
}
