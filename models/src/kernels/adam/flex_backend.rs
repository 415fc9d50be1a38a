//! The operators on flex, which stores its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::DType;
use heedful_attention::tensors::main_memory::{contiguous, numbers, numbers_mut, owned, tensor};

use super::operator::ParameterUpdate;
use super::{AdamStep, cpu, tensor_ops};

impl ParameterUpdate for Flex {
    fn adam(
        parameter: FlexTensor,
        gradient: FlexTensor,
        first: FlexTensor,
        second: FlexTensor,
        step: AdamStep,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        if parameter.dtype() != DType::F32 {
            return tensor_ops::adam::<Self>(parameter, gradient, first, second, step);
        }
        let gradient = contiguous(gradient);
        let [mut parameter, mut first, mut second] = [parameter, first, second].map(owned);
        let [of_parameter, of_first, of_second] = [&mut parameter, &mut first, &mut second].map(numbers_mut);
        cpu::adam(of_parameter, numbers(&gradient), of_first, of_second, step);
        (parameter, first, second)
    }

    fn sum_of_squares(x: FlexTensor) -> FlexTensor {
        if x.dtype() != DType::F32 {
            return tensor_ops::sum_of_squares::<Self>(x);
        }
        tensor(vec![cpu::sum_of_squares(numbers(&contiguous(x)))], [1])
    }
}
