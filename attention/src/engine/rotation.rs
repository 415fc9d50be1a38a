//! Rotations of pairs of channels by angles of positions (Su et al. 2021).
//!
//! As separate tensor operations a rotation reads and writes its input about four times per direction, on flex with one thread. Here it is one pass, in place
//! for unshared inputs, and the gradient is the inverse rotation.

mod flex_backend;
mod operator;
mod tensor_ops;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use self::operator::Rotations;

/// Pairing of the first `r` channels of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairLayout {
    /// Channels `i` and `i + r / 2`, as in GPT-NeoX and Hugging Face files.
    #[default]
    Half,
    /// Channels `2 i` and `2 i + 1`, as in the paper.
    Interleaved,
}

/// `x` `[B, N, H, D]` with the pairs `(a, b)` of its first `2 P` channels rotated to `(a cos - b sin, a sin + b cos)`, by tables `[N, P]` of the positions. The
/// tables have no gradient.
///
/// # Panics
/// If the tables do not have `N` rows, or have more pairs than the channels form.
pub(crate) fn rotated(x: Tensor<4>, cos: Tensor<2>, sin: Tensor<2>, layout: PairLayout) -> Tensor<4> {
    let ([_, length, _, width], [rows, pairs]) = (x.dims(), cos.dims());
    assert!(
        sin.dims() == [rows, pairs] && rows == length && 2 * pairs <= width,
        "{rows} x {pairs} angles for {length} positions {width} wide"
    );
    Tensor::from_dispatch(<Dispatch as Rotations>::rotated(x.into_dispatch(), cos.into_dispatch(), sin.into_dispatch(), layout))
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::backend::flex::FlexTensor;
    use burn::tensor::{DType, TensorData};
    use heedful_random::RandomKey;

    use super::*;
    use crate::contract::init::Init;

    const LAYOUTS: [PairLayout; 2] = [PairLayout::Half, PairLayout::Interleaved];

    fn drawn<const D: usize>(seed: u64, shape: [usize; D], dtype: DType) -> FlexTensor {
        let numbers = Init::Normal(1.0).values(shape.iter().product(), &RandomKey::from_seed(seed));
        FlexTensor::from_data(TensorData::new(numbers, shape).convert_dtype(dtype))
    }

    /// Results of both executions.
    fn both(shape: [usize; 4], pairs: usize, dtype: DType, layout: PairLayout) -> [TensorData; 2] {
        [Flex::rotated, tensor_ops::rotated::<Flex>].map(|by| {
            let [cos, sin] = [2, 3].map(|seed| drawn(seed, [shape[1], pairs], dtype));
            by(drawn(1, shape, dtype), cos, sin, layout).into_data()
        })
    }

    #[test]
    fn the_kernel_does_what_separate_operations_do() {
        for layout in LAYOUTS {
            for (shape, pairs) in [([1, 1, 1, 2], 1), ([2, 5, 3, 6], 3), ([3, 4, 2, 7], 2), ([2, 300, 4, 64], 32)] {
                let [found, expected] = both(shape, pairs, DType::F32, layout);
                assert_eq!(found, expected, "{layout:?}, {pairs} pairs of {shape:?}");
            }
        }
    }

    #[test]
    fn other_numbers_than_32_bit_floats_are_rotated_too() {
        for layout in LAYOUTS {
            let [found, expected] = both([2, 5, 3, 6], 2, DType::BF16, layout);
            assert_eq!((found.dtype(), &found), (DType::BF16, &expected), "{layout:?}");
        }
    }

    #[test]
    fn what_another_tensor_shares_is_not_changed() {
        let x = drawn(1, [1, 2, 1, 4], DType::F32);
        let before = x.clone().into_data();
        let [cos, sin] = [2, 3].map(|seed| drawn(seed, [2, 2], DType::F32));
        let turned = Flex::rotated(x.clone(), cos, sin, PairLayout::Half).into_data();
        assert_eq!(x.into_data(), before);
        assert_ne!(turned, before);
    }
}
