//! The operators on flex, which stores its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use heedful_attention::tensors::main_memory::{contiguous, numbers, numbers_mut, owned, tensor};

use super::cpu::{self, Logits};
use super::operator::FusedLayers;

impl FusedLayers for Flex {
    fn norm_forward(x: FlexTensor, gamma: FlexTensor, beta: FlexTensor, epsilon: f64) -> (FlexTensor, FlexTensor) {
        let [x, gamma, beta] = [x, gamma, beta].map(contiguous);
        let (output, statistics) = cpu::norm(numbers(&x), numbers(&gamma), numbers(&beta), epsilon as f32);
        let rows = statistics.len() / 2;
        (tensor(output, x.layout().shape().clone()), tensor(statistics, [rows, 2]))
    }

    fn norm_backward(
        x: FlexTensor,
        gamma: FlexTensor,
        statistics: FlexTensor,
        gradient: FlexTensor,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let [x, gamma, statistics] = [x, gamma, statistics].map(contiguous);
        let mut gradient = owned(gradient);
        let (of_gamma, of_beta) = cpu::norm_backward(numbers(&x), numbers(&gamma), numbers(&statistics), numbers_mut(&mut gradient));
        let width = of_gamma.len();
        (gradient, tensor(of_gamma, [width]), tensor(of_beta, [width]))
    }

    fn biased(x: FlexTensor, bias: FlexTensor) -> FlexTensor {
        let (mut x, bias) = (owned(x), contiguous(bias));
        cpu::biased::<false>(numbers_mut(&mut x), numbers(&bias));
        x
    }

    fn sum_of_rows(x: FlexTensor) -> FlexTensor {
        let x = contiguous(x);
        let width = x.layout().shape()[1];
        tensor(cpu::sum_of_rows(numbers(&x), width), [width])
    }

    fn biased_relu(x: FlexTensor, bias: FlexTensor) -> FlexTensor {
        let (mut x, bias) = (owned(x), contiguous(bias));
        cpu::biased::<true>(numbers_mut(&mut x), numbers(&bias));
        x
    }

    fn biased_relu_backward(output: FlexTensor, gradient: FlexTensor) -> (FlexTensor, FlexTensor) {
        let (output, mut gradient) = (contiguous(output), owned(gradient));
        let width = output.layout().shape()[1];
        let of_bias = cpu::biased_relu_backward(numbers(&output), numbers_mut(&mut gradient), width);
        (gradient, tensor(of_bias, [width]))
    }

    fn cross_entropy_forward(logits: FlexTensor, targets: FlexTensor, weights: FlexTensor, label_smoothing: f64) -> FlexTensor {
        let (logits, weights) = (contiguous(logits), contiguous(weights));
        let vocabulary = logits.layout().shape()[1];
        let targets = indices(&targets, vocabulary);
        let sums = cpu::cross_entropy(Logits::Read(numbers(&logits), vocabulary), &targets, numbers(&weights), label_smoothing);
        tensor(sums.to_vec(), [2])
    }

    fn cross_entropy_with_gradient(
        logits: FlexTensor,
        targets: FlexTensor,
        weights: FlexTensor,
        label_smoothing: f64,
    ) -> (FlexTensor, FlexTensor) {
        let (mut logits, weights) = (owned(logits), contiguous(weights));
        let vocabulary = logits.layout().shape()[1];
        let targets = indices(&targets, vocabulary);
        let differentiated = Logits::Differentiate(numbers_mut(&mut logits), vocabulary);
        let sums = cpu::cross_entropy(differentiated, &targets, numbers(&weights), label_smoothing);
        (tensor(sums.to_vec(), [2]), logits)
    }

    fn scaled_by_first(x: FlexTensor, factors: FlexTensor) -> FlexTensor {
        let factor = numbers(&contiguous(factors))[0];
        if factor == 1.0 {
            return x;
        }
        let mut x = owned(x);
        cpu::scale(numbers_mut(&mut x), factor);
        x
    }
}

/// Indices below `end`.
///
/// # Panics
/// If an index is out of range.
fn indices(tensor: &FlexTensor, end: usize) -> Vec<usize> {
    let data = tensor.clone().into_data();
    let index = |index: i64| usize::try_from(index).ok().filter(|&index| index < end);
    data.iter::<i64>().map(|target| index(target).unwrap_or_else(|| panic!("target {target} is not in a vocabulary of {end}"))).collect()
}
