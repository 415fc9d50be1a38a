//! Blocks of positions for threads.
//!
//! Results do not depend on the number of threads: neither do blocks, and their results are returned in order.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Positions per block.
const BLOCK: usize = 64;

/// Minimum numbers per thread: for fewer, waking a thread takes longer.
const FEWEST: usize = 16_384;

/// Numbers `[B, N, size]` at successive positions of a batch row.
pub(in crate::engine) struct Block<'a> {
    pub row: usize,
    /// The first of the positions.
    pub first: usize,
    pub numbers: &'a mut [f32],
}

/// Splits numbers `[B, N, size]` into blocks in order, with `length` positions per batch row.
pub(in crate::engine) fn blocks(numbers: &mut [f32], length: usize, size: usize) -> impl Iterator<Item = Block<'_>> {
    // Zero numbers form no block; a chunk has at least one number.
    numbers.chunks_mut((length * size).max(1)).enumerate().flat_map(move |(row, numbers)| {
        let blocks = numbers.chunks_mut((BLOCK * size).max(1)).enumerate();
        blocks.map(move |(index, numbers)| Block { row, first: index * BLOCK, numbers })
    })
}

/// Results of blocks, in order. Each of `length` positions has `size` numbers to compute.
pub(in crate::engine) fn computed<T: WithSimd<Output: Send> + Send>(blocks: Vec<T>, length: usize, size: usize) -> Vec<T::Output> {
    let fewest = FEWEST.div_ceil((BLOCK.min(length) * size).max(1));
    blocks.into_par_iter().with_min_len(fewest).map(|block| Arch::new().dispatch(block)).collect()
}

/// Computes the numbers of a block.
pub(in crate::engine) trait Fill: Copy + Send {
    /// Implementations are inlined, since they are compiled once per instruction set.
    fn fill(self, block: Block);
}

/// Fills numbers `[B, N, size]` block by block, with `length` positions in each of `batch` rows. `work` is the number of computations per number.
pub(in crate::engine) fn filled(fill: impl Fill, [batch, length, size]: [usize; 3], work: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; batch * length * size];
    computed(blocks(&mut numbers, length, size).map(|block| Filled { fill, block }).collect(), length, size * work);
    numbers
}

struct Filled<'a, F> {
    fill: F,
    block: Block<'a>,
}

impl<F: Fill> WithSimd for Filled<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.fill.fill(self.block);
    }
}

/// Sums of parts of `count` numbers, added in order.
pub(in crate::engine) fn added(parts: Vec<Vec<f32>>, count: usize) -> Vec<f32> {
    let mut sums = vec![0.0; count];
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, number)| *sum += number);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_position_and_of_no_number_there_is_no_block() {
        for (length, size) in [(0, 4), (3, 0), (0, 0)] {
            assert_eq!(blocks(&mut [], length, size).count(), 0);
        }
        struct Never;
        impl WithSimd for Never {
            type Output = ();

            fn with_simd<S: Simd>(self, _simd: S) {}
        }
        assert!(computed(Vec::<Never>::new(), 0, 4).is_empty() && computed(Vec::<Never>::new(), 3, 0).is_empty());
    }
}
