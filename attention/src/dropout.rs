//! Dropout whose randomness is an input.
//!
//! Burn's dropout draws from a generator of the device: it cannot be replayed, differs between backends, and a resumed run would see other masks.
//! Here the mask is drawn on the host from the key of its place and step. Dropout is on exactly where a key is given.

use burn::tensor::{Tensor, TensorData};
use rand::Rng;

use crate::random::RandomKey;

/// Zeroes each element with the given probability and scales the others by `1 / (1 - probability)`; without a key, or with probability 0, returns
/// `x` as it is.
///
/// The probability is rounded to a multiple of 1/65536.
///
/// # Panics
/// If `probability` is not in `[0, 1)`.
pub fn dropout<const D: usize>(x: Tensor<D>, probability: f64, key: Option<&RandomKey>) -> Tensor<D> {
    assert!((0.0..1.0).contains(&probability), "dropout probability {probability} is not in [0, 1)");
    let threshold = (probability * 65536.0).round() as u32;
    let (Some(key), 1..) = (key, threshold) else { return x };
    let mask = keep_mask(x.dims().iter().product(), threshold, key);
    let mask = Tensor::from_data(TensorData::new(mask, x.dims()), (&x.device(), x.dtype()));
    x * mask
}

fn keep_mask(count: usize, threshold: u32, key: &RandomKey) -> Vec<f32> {
    let keep = 65536.0 / (65536 - threshold) as f32;
    let mut bytes = vec![0u8; count * 2];
    key.rng().fill_bytes(&mut bytes);
    bytes.as_chunks::<2>().0.iter().map(|&pair| if u32::from(u16::from_le_bytes(pair)) < threshold { 0.0 } else { keep }).collect()
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
        let mask = keep_mask(200_000, (0.3f64 * 65536.0).round() as u32, &RandomKey::from_seed(1));
        let dropped = mask.iter().filter(|&&m| m == 0.0).count() as f64 / mask.len() as f64;
        let mean = mask.iter().map(|&m| f64::from(m)).sum::<f64>() / mask.len() as f64;
        assert!((dropped - 0.3).abs() < 0.005, "dropped {dropped}");
        assert!((mean - 1.0).abs() < 0.01, "mean {mean}");
    }

    #[test]
    fn one_key_replays_the_same_mask() {
        let x = Tensor::<1>::ones([1000], &Device::flex());
        let draw = |seed| dropout(x.clone(), 0.5, Some(&RandomKey::from_seed(seed))).into_data();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
