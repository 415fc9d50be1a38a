//! Operators over slices of numbers, in one pass forward and one backward.
//!
//! As separate tensor operations they would read and write their inputs many times and save intermediate results. An [`Operation`] defines the computation and
//! saves only its operands. A [`KeepingOperation`] also saves results. The shared parts are implemented once: optional operands, nodes of the autodiff graph,
//! tensors of flex and ndarray, and [`blocks`] of positions for threads.

mod operator;
pub(super) mod parallel_blocks;

use std::array::from_fn;
use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::Dispatch;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Device, Tensor};

use self::operator::{CpuOperator, OperandList};
use crate::tensors::main_memory;

/// Maximum number of operands.
const COUNT: usize = 6;

/// Operands of an operation in order, or their gradients. The first one is always present.
pub(super) type Operands<T> = [Option<T>; COUNT];

/// Pads the operands of an operation with fewer.
pub(super) fn padded<T, const N: usize>(operands: [Option<T>; N]) -> Operands<T> {
    let mut operands = operands.into_iter();
    from_fn(|_| operands.next().flatten())
}

/// A computation and its gradients. Tensors are of 32-bit floats, with any strides.
pub(super) trait Operation: Debug + Send + Sync + 'static {
    /// The output.
    fn output(&self, operands: Operands<FlexTensor>) -> FlexTensor;

    /// Gradients of the operands from that of the output; absent operands have none.
    fn gradients(&self, operands: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor>;
}

/// An [`Operation`] whose gradients read more than its operands.
pub(super) trait KeepingOperation: Debug + Send + Sync + 'static {
    /// The output and, if gradients follow, the further results that they read.
    fn results(&self, operands: Operands<FlexTensor>, has_gradient: bool) -> Operands<FlexTensor>;

    /// Whether gradients read the output.
    fn reads_output(&self) -> bool {
        true
    }

    /// Gradients of the operands, from the operands, the saved results, and the gradient of the output.
    fn gradients_of(&self, operands: Operands<FlexTensor>, results: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor>;
}

impl<O: Operation> KeepingOperation for O {
    fn results(&self, operands: Operands<FlexTensor>, _has_gradient: bool) -> Operands<FlexTensor> {
        padded([Some(self.output(operands))])
    }

    fn reads_output(&self) -> bool {
        false
    }

    fn gradients_of(&self, operands: Operands<FlexTensor>, _: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor> {
        self.gradients(operands, gradient)
    }
}

/// Whether kernels support a device and operands of these types: 32-bit floats in main memory.
pub(super) fn can_compute(device: &Device, types: impl IntoIterator<Item = Option<DType>>) -> bool {
    main_memory::has_kernels(device) && types.into_iter().flatten().all(|dtype| dtype == DType::F32)
}

/// Output of an operation, with gradients under autodiff.
///
/// # Panics
/// If the first operand is absent, or kernels cannot [compute](can_compute) with the operands.
pub(super) fn computed<const D: usize, const N: usize>(
    operation: impl KeepingOperation,
    operands: [Option<FloatTensor<Dispatch>>; N],
) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as CpuOperator>::computed(OperandList::from(padded(operands)), Arc::new(operation)))
}

/// All results of an operation, on a device without automatic differentiation.
///
/// # Panics
/// As [`computed`] does.
pub(super) fn results<const N: usize>(
    operation: impl KeepingOperation,
    operands: [Option<FloatTensor<Dispatch>>; N],
) -> Operands<FloatTensor<Dispatch>> {
    <Dispatch as CpuOperator>::results(OperandList::from(padded(operands)), Arc::new(operation), false).operands()
}
