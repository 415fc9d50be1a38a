//! The operator on flex, which keeps its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::DType;
use gemm::{Parallelism, gemm};

use super::operator::Products;
use crate::main_memory::tensor;

/// Multiplications for which several threads are faster than one.
const PARALLEL: usize = 192 * 192 * 192;

impl Products for Flex {
    fn product(a: FlexTensor, b: FlexTensor) -> FlexTensor {
        if [&a, &b].into_iter().any(|matrix| matrix.dtype() != DType::F32) {
            return Self::float_matmul(a, b);
        }
        let ([rows, inner], [given, columns]) = (a.layout().shape().dims(), b.layout().shape().dims());
        assert_eq!(inner, given, "factors of a product");
        if inner == 0 {
            return tensor(vec![0.0; rows * columns], [rows, columns]);
        }
        let strides = |matrix: &FlexTensor| <[isize; 2]>::try_from(matrix.layout().strides()).expect("a matrix has two strides");
        let ([a_rows, a_columns], [b_rows, b_columns]) = (strides(&a), strides(&b));
        let numbers = |matrix: &FlexTensor| matrix.storage::<f32>()[matrix.layout().start_offset()..].as_ptr();
        let parallelism = if rows * columns * inner < PARALLEL { Parallelism::None } else { Parallelism::Rayon(0) };
        let mut product = Vec::with_capacity(rows * columns);
        #[allow(unsafe_code, reason = "gemm has no safe interface, and writes memory that nothing has to clear before")]
        // SAFETY: the layouts of tensors lie within their storage, of which they give the strides. The product has room for all its numbers, which lie row
        // after row, and gemm writes each of them without having read it.
        unsafe {
            let stride = columns as isize;
            let (to, from_a, from_b) = (product.as_mut_ptr(), numbers(&a), numbers(&b));
            gemm(
                rows,
                columns,
                inner,
                to,
                1,
                stride,
                false,
                from_a,
                a_columns,
                a_rows,
                from_b,
                b_columns,
                b_rows,
                0.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
            product.set_len(rows * columns);
        }
        tensor(product, [rows, columns])
    }
}
