//! Operators that are computed from slices of numbers, in one pass forward and one backward.
//!
//! As separate tensor operations they would read and write their inputs many times, and hold what lies between. An [`Operation`] says what is computed from which
//! operands; it holds nothing but these. What all of them need is here once: operands that may be absent, a place in the graph of automatic differentiation, the
//! numbers of flex and of ndarray, and [`blocks`] of positions for the threads.

pub(super) mod blocks;
#[cfg(feature = "ndarray")]
mod ndarray;
mod operator;

use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::Dispatch;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Device, Tensor};

use self::operator::{List, NativeOperator};
use crate::tensors::main_memory;

/// Most operands of an operation.
const COUNT: usize = 4;

/// The operands of an operation in its order, or their gradients. The first one is always there.
pub(super) type Operands<T> = [Option<T>; COUNT];

/// What is computed from operands, and its gradients. Tensors are of 32-bit floats, in any order of their numbers.
pub(super) trait Operation: Debug + Send + Sync + 'static {
    /// The output.
    fn output(&self, operands: Operands<FlexTensor>) -> FlexTensor;

    /// Gradients of the operands from that of the output; absent operands have none.
    fn gradients(&self, operands: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor>;
}

/// Whether kernels can compute on a device with operands of these types: 32-bit floats in main memory.
pub(super) fn can_compute(device: &Device, types: impl IntoIterator<Item = Option<DType>>) -> bool {
    main_memory::has_kernels(device) && types.into_iter().flatten().all(|dtype| dtype == DType::F32)
}

/// The output of an operation, with its gradients where there is automatic differentiation.
///
/// # Panics
/// If the first operand is absent, or kernels cannot [compute](can_compute) with the operands.
pub(super) fn computed<const D: usize>(operation: impl Operation, operands: Operands<FloatTensor<Dispatch>>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as NativeOperator>::computed(List::from(operands), Arc::new(operation)))
}

#[cfg(feature = "cube")]
impl NativeOperator for burn_cubecl::CubeBackend {}
