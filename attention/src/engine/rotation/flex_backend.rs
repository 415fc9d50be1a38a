//! The operator on flex, which stores its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::DType;
use rayon::prelude::*;

use super::operator::Rotations;
use super::{PairLayout, tensor_ops};
use crate::tensors::main_memory::{contiguous, numbers, numbers_mut, owned};

/// Minimum numbers per thread: for fewer, waking a thread takes longer.
const FEWEST: usize = 16_384;

impl Rotations for Flex {
    fn rotated(x: FlexTensor, cos: FlexTensor, sin: FlexTensor, layout: PairLayout) -> FlexTensor {
        if x.dtype() != DType::F32 {
            return tensor_ops::rotated::<Self>(x, cos, sin, layout);
        }
        let (mut x, cos, sin) = (owned(x), contiguous(cos), contiguous(sin));
        let [_, length, heads, width] = x.layout().shape().dims();
        let pairs = cos.layout().shape()[1];
        let (cos, sin) = (numbers(&cos), numbers(&sin));
        let row = heads * width;
        if row == 0 {
            return x;
        }
        let rows = numbers_mut(&mut x).par_chunks_exact_mut(row).with_min_len(FEWEST.div_ceil(row));
        rows.enumerate().for_each(|(index, row)| {
            let angles = index % length * pairs..(index % length + 1) * pairs;
            let (cos, sin) = (&cos[angles.clone()], &sin[angles]);
            for head in row.chunks_exact_mut(width) {
                turn(&mut head[..2 * pairs], cos, sin, layout);
            }
        });
        x
    }
}

/// Rotates the pairs of one head at one position.
fn turn(channels: &mut [f32], cos: &[f32], sin: &[f32], layout: PairLayout) {
    let turned = |a: f32, b: f32, cos: f32, sin: f32| (a * cos - b * sin, a * sin + b * cos);
    match layout {
        PairLayout::Half => {
            let (first, second) = channels.split_at_mut(cos.len());
            for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = turned(*a, *b, cos, sin);
            }
        }
        PairLayout::Interleaved => {
            for ((pair, &cos), &sin) in channels.chunks_exact_mut(2).zip(cos).zip(sin) {
                (pair[0], pair[1]) = turned(pair[0], pair[1], cos, sin);
            }
        }
    }
}
