//! The linear maps around an attention, without the attention.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use heedful_attention::contract::init;
use heedful_attention::engine::linear::linear;
use heedful_models::kernels::precision::{Precision, cast};
use heedful_random::RandomKey;

use crate::workload::{Sizes, gradient_of, wait};

/// The linear maps of an attention with `count` of them, as `W_O (W_1 x + .. + W_(count-1) x)`: each gets the input and the gradient that it gets around
/// an attention, at the price of `count - 2` sums of sequences.
#[derive(Debug)]
pub struct Projections {
    maps: Maps,
    without_autodiff: Maps,
    sequence: Tensor<3>,
}

#[derive(Module, Debug)]
struct Maps {
    inputs: Vec<Linear>,
    output: Linear,
}

impl Maps {
    fn forward(&self, sequence: Tensor<3>) -> Tensor<3> {
        let sum = self.inputs.iter().map(|input| linear(sequence.clone(), input)).reduce(|a, b| a + b);
        linear(sum.expect("there is a map of the input"), &self.output)
    }
}

impl Projections {
    /// `count` maps of the width of the sizes, and a random sequence, on a device with autodiff.
    ///
    /// # Panics
    /// If `count` is less than 2.
    pub fn new(count: usize, sizes: Sizes, device: &Device) -> Self {
        Self::with(count, sizes, Precision::F32, device)
    }

    /// The same with another precision for weights and sequence.
    ///
    /// # Panics
    /// If `count` is less than 2.
    pub fn with(count: usize, sizes: Sizes, precision: Precision, device: &Device) -> Self {
        assert!(count >= 2, "an attention has a map of its values and one of its output");
        let device = device.clone().autodiff();
        let key = RandomKey::from_seed(0);
        let linear = |index| init::linear(sizes.d_model, sizes.d_model, false, &key.numbered(index as u64), &device);
        let maps = cast(Maps { inputs: (1..count).map(linear).collect(), output: linear(0) }, precision.dtype());
        Self { without_autodiff: maps.valid(), maps, sequence: sizes.sequence(&device).cast(precision.dtype()) }
    }

    /// Runs the maps, without a graph for their gradients, and waits for the result.
    pub fn forward(&self) -> Tensor<3> {
        let output = self.without_autodiff.forward(self.sequence.clone().inner());
        wait(&output);
        output
    }

    /// Runs the maps and their backward pass, and waits for the gradient of the sequence.
    pub fn forward_backward(&self) -> Tensor<3> {
        gradient_of(&self.sequence, |sequence| self.maps.forward(sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_that_of_the_product_of_the_maps() {
        let sizes = Sizes { batch: 2, length: 3, d_model: 4, heads: 1, kv_heads: None };
        let projections = Projections::new(3, sizes, &Device::flex());
        let weight = |linear: &Linear| linear.weight.val().inner();
        let [first, second] = [0, 1].map(|index| weight(&projections.maps.inputs[index]));
        let slope = (first + second).matmul(weight(&projections.maps.output)).sum_dim(1).transpose();
        let difference = projections.forward_backward().inner() - slope.unsqueeze::<3>().expand([2, 3, 4]);
        assert!(difference.abs().max().into_scalar::<f32>() < 1e-6);
        assert_eq!(projections.forward().dims(), [2, 3, 4]);
    }
}
