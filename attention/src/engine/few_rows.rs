//! Products with a few rows on the left, as decoding step by step has them.
//!
//! Each number of the right factor is read once, where it lies. A product of matrices copies it into another order first, which pays for many rows alone.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::Tensor;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::exponential::dot;
use super::fused::FEWEST_QUERIES;
use super::fused::flex::{rows, shape, with_whole_rows};
use super::fused::slices::Rows;
use super::native::{self, Operands, Operation};
use crate::main_memory::tensor;

/// Multiplications that one thread computes at least: fewer take less time than to wake another.
const FEWEST: usize = 32_768;

/// `left right^T` of `[B, G, M, R]` and `[B, G, K, R]`: `[B, G, M, K]`.
pub(super) fn with_transpose(left: Tensor<4>, right: Tensor<4>) -> Tensor<4> {
    if can_compute(&left, &right) { natively(Product::WithTranspose, left, right) } else { left.matmul(right.swap_dims(2, 3)) }
}

/// `left right` of `[B, G, M, K]` and `[B, G, K, D]`: `[B, G, M, D]`.
pub(super) fn plain(left: Tensor<4>, right: Tensor<4>) -> Tensor<4> {
    if can_compute(&left, &right) { natively(Product::Plain, left, right) } else { left.matmul(right) }
}

fn can_compute(left: &Tensor<4>, right: &Tensor<4>) -> bool {
    let ([rows, heads, height, _], [own_rows, own_heads, ..]) = (left.dims(), right.dims());
    let fits = [rows, heads] == [own_rows, own_heads] && height < FEWEST_QUERIES;
    fits && native::can_compute(&left.device(), [Some(left.dtype()), Some(right.dtype())])
}

fn natively(product: Product, left: Tensor<4>, right: Tensor<4>) -> Tensor<4> {
    native::computed(product, [Some(left.into_dispatch()), Some(right.into_dispatch()), None, None])
}

/// A product of two factors.
#[derive(Clone, Copy, Debug)]
enum Product {
    WithTranspose,
    Plain,
}

impl Operation for Product {
    fn output(&self, operands: Operands<FlexTensor>) -> FlexTensor {
        let [left, right] = factors(operands).map(with_whole_rows);
        let ([batch, heads, height, inner], [_, _, length, width]) = (shape(&left), shape(&right));
        assert_eq!(inner, if matches!(self, Self::WithTranspose) { width } else { length }, "factors of a product");
        let columns = if matches!(self, Self::WithTranspose) { length } else { width };
        let (left, right) = (rows(&left, heads), rows(&right, heads));
        let mut output = vec![0.0; batch * heads * height * columns];
        let planes = output.par_chunks_mut((height * columns).max(1)).enumerate();
        planes.with_min_len(FEWEST.div_ceil((height * length * width).max(1))).for_each(|(plane, output)| {
            let place = [plane / heads, plane % heads];
            Arch::new().dispatch(Plane { product: *self, left, right, place, sizes: [height, length, width], output });
        });
        tensor(output, [batch, heads, height, columns])
    }

    fn gradients(&self, operands: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor> {
        let [left, right] = factors(operands);
        let product = |a: &FlexTensor, b: FlexTensor| Flex::float_matmul(a.clone(), b);
        let [of_left, of_right] = match self {
            Self::WithTranspose => [product(&gradient, right), product(&gradient.transpose(2, 3), left)],
            Self::Plain => [product(&gradient, right.transpose(2, 3)), product(&left.transpose(2, 3), gradient)],
        };
        [Some(of_left), Some(of_right), None, None]
    }
}

fn factors([left, right, ..]: Operands<FlexTensor>) -> [FlexTensor; 2] {
    [left, right].map(|factor| factor.expect("a product has two factors"))
}

/// The product of one batch row and head.
struct Plane<'a> {
    product: Product,
    left: Rows<'a>,
    right: Rows<'a>,
    /// Batch row and head.
    place: [usize; 2],
    /// Rows of the left factor; rows of the right one, and their width.
    sizes: [usize; 3],
    output: &'a mut [f32],
}

impl WithSimd for Plane<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { product, left, right, place: [row, head], sizes: [height, length, width], output } = self;
        let (left, right) = (left.of(row, head), right.of(row, head));
        for index in 0..length {
            let numbers = right.row(index, width);
            match product {
                Product::WithTranspose => {
                    for at in 0..height {
                        output[at * length + index] = dot(left.row(at, width), numbers);
                    }
                }
                Product::Plain => {
                    for (at, sums) in output.chunks_exact_mut(width).enumerate() {
                        let factor = left.row(at, length)[index];
                        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = factor.mul_add(*number, *sum));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::engine::recomputed::tests::{assert_same_for_any_number_of_threads, difference, drawn};

    const PRODUCTS: [Product; 2] = [Product::WithTranspose, Product::Plain];

    type Multiply = fn(Product, Tensor<4>, Tensor<4>) -> Tensor<4>;

    fn composed(product: Product, left: Tensor<4>, right: Tensor<4>) -> Tensor<4> {
        match product {
            Product::WithTranspose => left.matmul(right.swap_dims(2, 3)),
            Product::Plain => left.matmul(right),
        }
    }

    /// The product and the gradients of both factors for a random gradient of it. Heads of a position lie side by side.
    fn found(
        (product, multiply): (Product, Multiply),
        [batch, heads, height, length, width]: [usize; 5],
        device: &Device,
        dtype: DType,
    ) -> Vec<Vec<f64>> {
        let device = device.clone().autodiff();
        let inner = if matches!(product, Product::WithTranspose) { width } else { length };
        let left = drawn("left", [batch, height, heads, inner], &device, dtype).require_grad();
        let right = drawn("right", [batch, length, heads, width], &device, dtype).require_grad();
        let output = multiply(product, left.clone().swap_dims(1, 2), right.clone().swap_dims(1, 2));
        let gradients = (output.clone() * drawn("of outputs", output.dims(), &device, dtype)).sum().backward();
        let numbers = |x: Tensor<4>| x.into_data().iter::<f64>().collect::<Vec<_>>();
        let of = |x: &Tensor<4>| numbers(x.grad(&gradients).expect("factors have a gradient"));
        vec![numbers(output.detach()), of(&left), of(&right)]
    }

    #[test]
    fn products_of_all_sizes_agree_with_tensor_operations_in_outputs_and_gradients() {
        for product in PRODUCTS {
            for sizes in [[1, 1, 1, 1, 1], [2, 3, 1, 7, 5], [3, 2, 15, 33, 64], [1, 4, 4, 130, 17]] {
                let expected = found((product, composed), sizes, &Device::flex(), DType::F64);
                let off = difference(&found((product, natively), sizes, &Device::flex(), DType::F32), &expected);
                assert!(off < 2e-6, "{product:?} {sizes:?}: off by {off}");
            }
        }
    }

    #[test]
    fn another_product_is_noticed() {
        let sizes = [2, 3, 2, 7, 7];
        let wrong: [Multiply; 3] = [
            |product, left, right| natively(product, left * 1.001, right),
            |product, left, right| natively(product, left, right * 1.001),
            |product, left, right| natively(product, left, right.flip([2])),
        ];
        for product in PRODUCTS {
            let expected = found((product, composed), sizes, &Device::flex(), DType::F64);
            for multiply in wrong {
                assert!(difference(&found((product, multiply), sizes, &Device::flex(), DType::F32), &expected) > 1e-4);
            }
        }
    }

    #[test]
    fn many_rows_and_factors_that_rows_share_are_left_to_products_of_matrices() {
        let factor = |shape| drawn("factor", shape, &Device::flex(), DType::F32);
        let right = factor([2, 3, 8, 8]);
        assert!(can_compute(&factor([2, 3, FEWEST_QUERIES - 1, 8]), &right));
        for shape in [[2, 3, FEWEST_QUERIES, 8], [1, 3, 4, 8], [2, 1, 4, 8]] {
            assert!(!can_compute(&factor(shape), &right));
            assert_eq!(plain(factor(shape), right.clone()).dims(), [2, 3, shape[2], 8]);
        }
    }

    #[test]
    #[cfg(feature = "ndarray")]
    fn ndarray_gives_what_flex_gives() {
        #[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this test with it")]
        let device = Device::ndarray();
        for product in PRODUCTS {
            let by = |device: &Device| found((product, natively), [2, 3, 2, 9, 5], device, DType::F32);
            assert_eq!(by(&device), by(&Device::flex()));
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        for product in PRODUCTS {
            assert_same_for_any_number_of_threads(|| found((product, natively), [4, 4, 3, 300, 40], &Device::flex(), DType::F32));
        }
    }
}
