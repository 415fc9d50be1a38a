//! The operators over slices of numbers, in parallel, for backends with tensors in main memory.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::AdamStep;

/// Numbers per unit of work.
const BLOCK: usize = 16_384;

/// Numbers that are reduced side by side.
const LANES: usize = 16;

/// Updates the parameter and its moments in place.
pub(super) fn adam(parameter: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], step: AdamStep) {
    let arch = Arch::new();
    let moments = first.par_chunks_mut(BLOCK).zip(second.par_chunks_mut(BLOCK));
    let blocks = parameter.par_chunks_mut(BLOCK).zip(gradient.par_chunks(BLOCK)).zip(moments);
    blocks.for_each(|((parameter, gradient), (first, second))| arch.dispatch(Block { parameter, gradient, first, second, step }));
}

struct Block<'a> {
    parameter: &'a mut [f32],
    gradient: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
    step: AdamStep,
}

impl WithSimd for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { parameter, gradient, first, second, step } = self;
        let AdamStep { betas: (beta_1, beta_2), rate, epsilon, kept, penalty } = step;
        for (((parameter, gradient), first), second) in parameter.iter_mut().zip(gradient).zip(first).zip(second) {
            let gradient = gradient + penalty * *parameter;
            *first = beta_1 * *first + (1.0 - beta_1) * gradient;
            *second = beta_2 * *second + (1.0 - beta_2) * gradient * gradient;
            *parameter = kept * *parameter - rate * (*first / (second.sqrt() + epsilon));
        }
    }
}

/// Sum of squares: block sums are added in order, so the result does not depend on the threads.
pub(super) fn sum_of_squares(numbers: &[f32]) -> f32 {
    let arch = Arch::new();
    let sums: Vec<f32> = numbers.par_chunks(BLOCK).map(|numbers| arch.dispatch(Squares(numbers))).collect();
    sums.into_iter().map(f64::from).sum::<f64>() as f32
}

struct Squares<'a>(&'a [f32]);

impl WithSimd for Squares<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> f32 {
        let mut lanes = [0.0; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            for (sum, number) in lanes.iter_mut().zip(chunk) {
                *sum += number * number;
            }
        }
        lanes.into_iter().chain(rest.iter().map(|number| number * number)).sum()
    }
}
