//! Dropout with explicit randomness.
//!
//! Burn's dropout draws from a device generator: it cannot be replayed, differs between backends, and a resumed run would draw other masks. Here a mask is a
//! function of the key of its place and step. The host draws it, or a kernel on the tensor's device draws the same numbers. Dropout is active if and only if a
//! key is given.

#[cfg(feature = "cube")]
pub(crate) mod gpu;
mod operator;

use std::ops::Range;

use burn::backend::Dispatch;
#[cfg(feature = "cube")]
use burn::backend::DispatchDevice;
use burn::tensor::{Tensor, TensorData};
use heedful_random::{RandomKey, generator};
use rand::Rng;
use rayon::prelude::*;

pub(crate) use self::operator::{Draws, DropoutOperator};

/// Zeroes each element with the given probability and scales the others by `1 / (1 - probability)`; without a key, or with probability 0, returns
/// `x` as it is.
///
/// The probability is rounded to a multiple of 1/65536.
///
/// # Panics
/// If `probability` is not in `[0, 1)`.
pub fn dropout<const D: usize>(x: Tensor<D>, probability: f64, key: Option<&RandomKey>) -> Tensor<D> {
    dropout_from(0, x, probability, key)
}

/// The same for a part of a tensor: `x` contains its elements, in order, from `first` on.
///
/// # Panics
/// If `probability` is not in `[0, 1)`.
pub fn dropout_from<const D: usize>(first: usize, x: Tensor<D>, probability: f64, key: Option<&RandomKey>) -> Tensor<D> {
    assert!((0.0..1.0).contains(&probability), "dropout probability {probability} is not in [0, 1)");
    let threshold = (probability * 65536.0).round() as u32;
    let (Some(key), 1..) = (key, threshold) else { return x };
    #[cfg(feature = "cube")]
    if let DispatchDevice::Cube(_) = x.device().without_autodiff().as_dispatch() {
        let draws = Draws::Stream { seed: key.seed(), first: first as u64, threshold };
        return Tensor::from_dispatch(<Dispatch as DropoutOperator>::dropped(x.into_dispatch(), draws));
    }
    let mask = keep_mask(first..first + x.dims().iter().product::<usize>(), threshold, key.seed());
    let mask = Tensor::from_data(TensorData::new(mask, x.dims()), (&x.device(), x.dtype()));
    x * mask
}

/// Elements per draw.
const BLOCK: usize = 32_768;

/// Factors of elements in the stream with the given seed.
fn keep_mask(elements: Range<usize>, threshold: u32, seed: [u32; 8]) -> Vec<f32> {
    let keep = factor_of_kept(threshold);
    let mut mask = vec![0.0; elements.len()];
    mask.par_chunks_mut(BLOCK).enumerate().for_each(|(block, mask)| {
        // Sixteen bits per element: equal to the draws of one generator for all elements in order.
        let first = elements.start + block * BLOCK;
        let skipped = first % 2;
        let mut rng = generator(seed);
        rng.set_word_pos((first / 2) as u128);
        let mut bytes = vec![0u8; (skipped + mask.len()) * 2];
        rng.fill_bytes(&mut bytes);
        for (factor, &pair) in mask.iter_mut().zip(&bytes.as_chunks::<2>().0[skipped..]) {
            *factor = if u32::from(u16::from_le_bytes(pair)) < threshold { 0.0 } else { keep };
        }
    });
    mask
}

/// Factor of kept elements, which compensates for dropped ones: `threshold` of 2^16.
fn factor_of_kept(threshold: u32) -> f32 {
    65536.0 / (65536 - threshold) as f32
}

/// Dropout of attention weights as a function of their place: recomputation, alone or in a tile, drops the same weights.
#[derive(Clone, Copy, Debug)]
pub struct WeightDropout {
    key: RandomKey,
    /// A weight is dropped if its draw, of 2^16, is below this threshold.
    threshold: u32,
    /// Factor of the other weights.
    kept: f32,
}

/// [`WeightDropout`] of the weights of one query.
#[derive(Clone, Copy, Debug)]
pub struct RowDropout {
    offsets: [u32; 2],
    threshold: u32,
    kept: f32,
}

impl WeightDropout {
    /// Dropout with the given probability, rounded to a multiple of 1/65536; `None` if it drops nothing.
    ///
    /// # Panics
    /// If `probability` is not in `[0, 1)`.
    pub fn new(probability: f64, key: RandomKey) -> Option<Self> {
        assert!((0.0..1.0).contains(&probability), "dropout probability {probability} is not in [0, 1)");
        let threshold = (probability * 65536.0).round() as u32;
        (threshold > 0).then(|| Self { key, threshold, kept: factor_of_kept(threshold) })
    }

    /// Weights `[B, H, Q, K]` after dropout.
    pub fn drop(&self, weights: Tensor<4>) -> Tensor<4> {
        let draws = Draws::Weights { dropout: *self, first_query: 0 };
        Tensor::from_dispatch(<Dispatch as DropoutOperator>::dropped(weights.into_dispatch(), draws))
    }

    /// The weights of query `query` of a head in a row of the batch.
    pub fn row(&self, row: usize, head: usize, query: usize) -> RowDropout {
        let word = self.key.numbered(row as u64).numbered(head as u64).numbered(query as u64).word();
        RowDropout { offsets: [word as u32, (word >> 32) as u32], threshold: self.threshold, kept: self.kept }
    }

    /// First word for the row keys.
    #[cfg(feature = "cube")]
    pub(crate) fn word(&self) -> u64 {
        self.key.word()
    }

    /// Drop threshold for draws of 2^16, and the factor of kept weights.
    #[cfg(feature = "cube")]
    pub(crate) fn threshold_and_factor(&self) -> (u32, f32) {
        (self.threshold, self.kept)
    }

    /// Factors of the weights of queries from `first` on, `[batch, heads, queries, keys]`.
    pub fn factors(&self, [batch, heads, queries, keys]: [usize; 4], first: usize) -> Vec<f32> {
        let mut factors = Vec::with_capacity(batch * heads * queries * keys);
        for index in 0..batch * heads * queries {
            let row = self.row(index / (heads * queries), index / queries % heads, first + index % queries);
            factors.extend((0..keys).map(|key| row.factor(key)));
        }
        factors
    }
}

impl RowDropout {
    /// Initial values of the hash of key numbers.
    #[cfg(all(test, feature = "wgpu"))]
    pub(crate) fn offsets(&self) -> [u32; 2] {
        self.offsets
    }

    /// Factor of key `key`: 0, or the compensation for dropped weights.
    #[inline(always)]
    pub fn factor(&self, key: usize) -> f32 {
        // Wellons' 32-bit hash (lowbias32), with the second offset between its rounds so that rows are not shifted copies of each other.
        let mut x = (key as u32).wrapping_add(self.offsets[0]);
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d) ^ self.offsets[1];
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        if (x >> 16) ^ (x & 0xffff) < self.threshold { 0.0 } else { self.kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn dropout_is_off_without_a_key_and_at_probability_zero() {
        let x = Tensor::<2>::ones([3, 4], &Device::flex());
        let key = RandomKey::from_seed(1);
        assert_eq!(dropout(x.clone(), 0.5, None).into_data(), x.to_data());
        assert_eq!(dropout(x.clone(), 0.0, Some(&key)).into_data(), x.to_data());
    }

    #[test]
    fn the_expectation_is_kept_and_the_rate_is_as_asked() {
        let mask = keep_mask(0..200_000, (0.3f64 * 65536.0).round() as u32, RandomKey::from_seed(1).seed());
        let dropped = mask.iter().filter(|&&m| m == 0.0).count() as f64 / mask.len() as f64;
        let mean = mask.iter().map(|&m| f64::from(m)).sum::<f64>() / mask.len() as f64;
        assert!((dropped - 0.3).abs() < 0.005, "dropped {dropped}");
        assert!((mean - 1.0).abs() < 0.01, "mean {mean}");
    }

    #[test]
    fn blocks_of_a_mask_are_one_stream() {
        let (count, key) = (2 * BLOCK + 77, RandomKey::from_seed(1));
        let mut bytes = vec![0u8; count * 2];
        key.rng().fill_bytes(&mut bytes);
        let is_kept = |pair: &[u8; 2]| u16::from_le_bytes(*pair) >= 20_000;
        let expected: Vec<bool> = bytes.as_chunks::<2>().0.iter().map(is_kept).collect();
        let mask: Vec<bool> = keep_mask(0..count, 20_000, key.seed()).into_iter().map(|factor| factor > 0.0).collect();
        assert_eq!(mask, expected);
        for first in [1, 6, BLOCK - 1] {
            let part: Vec<bool> = keep_mask(first..count, 20_000, key.seed()).into_iter().map(|factor| factor > 0.0).collect();
            assert_eq!(part, expected[first..], "from {first} on");
        }
        assert_ne!(mask[..BLOCK], mask[BLOCK..2 * BLOCK]);
    }

    #[test]
    fn weights_are_dropped_by_their_place_at_the_rate_asked_for() {
        let dropout = |seed| WeightDropout::new(0.3, RandomKey::from_seed(seed)).unwrap();
        let factors = |seed| dropout(seed).factors([2, 3, 50, 700], 0);
        let drawn = factors(1);
        let rate = |numbers: &[f32]| numbers.iter().filter(|&&factor| factor == 0.0).count() as f64 / numbers.len() as f64;
        assert!((rate(&drawn) - 0.3).abs() < 0.003, "dropped {}", rate(&drawn));
        assert!((drawn.iter().map(|&factor| f64::from(factor)).sum::<f64>() / drawn.len() as f64 - 1.0).abs() < 0.005);
        assert_eq!(drawn[(50 + 7) * 700 + 11], dropout(1).row(0, 1, 7).factor(11));
        assert_eq!(drawn, factors(1));
        assert_eq!(dropout(1).factors([1, 1, 2, 700], 3), drawn[3 * 700..5 * 700]);
        // Two rows, two keys, and a row and its copy shifted by one agree no more often than independent draws: in 0.58 of the places.
        let agreement = |a: &[f32], b: &[f32]| a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len().min(b.len()) as f64;
        for other in [&drawn[700..], &drawn[1..], &drawn[701..], &drawn[50 * 700..], &factors(2)] {
            assert!((agreement(&drawn, other) - 0.58).abs() < 0.005, "{}", agreement(&drawn, other));
        }
        assert!(WeightDropout::new(0.0, RandomKey::from_seed(1)).is_none());
    }

    #[test]
    fn one_key_replays_the_same_mask() {
        let x = Tensor::<1>::ones([1000], &Device::flex());
        let draw = |seed| dropout(x.clone(), 0.5, Some(&RandomKey::from_seed(seed))).into_data();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
