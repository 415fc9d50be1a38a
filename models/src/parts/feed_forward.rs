//! Position-wise feed-forward network (Vaswani et al. 2017, section 3.3): `f(x W_1 + b_1) W_2 + b_2`, the same at every position.
//!
//! A gated network is `(f(x W_1 + b_1) ⊙ (x V + c)) W_2 + b_2` (Shazeer 2020; Dauphin et al. 2017): ReGLU with ReLU, GEGLU with GELU, SwiGLU with SiLU. It has
//! half as many parameters more than an ungated one of the same width. In chunks, the network processes some positions at a time (Kitaev et al. 2020, section
//! 3), with the same result. A separable network has a [depthwise convolution](crate::parts::depthwise) before each map (Dehghani et al. 2018, section 2.1),
//! over 3 and 5 positions as in the released code.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::{gelu_approximate, relu, sigmoid, silu};
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::contract::init;
use heedful_attention::engine::dropout::dropout_from;
use heedful_attention::engine::gelu::gelu;
use heedful_random::RandomKey;
use serde::{Deserialize, Serialize};

use crate::kernels::fused::{linear, linear_relu};
use crate::parts::depthwise::{DepthwiseConvolution, DepthwiseConvolutionConfig};

/// Non-linearity of a feed-forward network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(0, x)` (Vaswani et al. 2017).
    #[default]
    Relu,
    /// `x Φ(x)` (Hendrycks and Gimpel 2016).
    Gelu,
    /// `x / 2 (1 + tanh(sqrt(2 / π) (x + 0.044715 x³)))`, an approximation of GELU (Hendrycks and Gimpel 2016; that of GPT-2 and Gemma).
    GeluTanh,
    /// `x σ(1.702 x)`, the quick approximation of GELU (Hendrycks and Gimpel 2016; that of Child et al. 2019).
    QuickGelu,
    /// `x σ(x)` (Elfwing et al. 2017).
    Silu,
}

impl Activation {
    pub(crate) fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Relu => relu(x),
            Self::Gelu => gelu(x),
            Self::GeluTanh => gelu_approximate(x),
            Self::QuickGelu => x.clone() * sigmoid(x * 1.702),
            Self::Silu => silu(x),
        }
    }
}

/// Configuration of [`FeedForward`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedForwardConfig {
    /// Width of the model, `C`.
    pub d_model: usize,
    /// Hidden units, `F`.
    pub d_ff: usize,
    /// Non-linearity.
    pub activation: Activation,
    /// Whether a second map of the input multiplies the hidden units.
    pub gated: bool,
    /// Whether the maps have biases.
    pub bias: bool,
    /// Positions per pass, over all rows; all by default. Convolutions need all.
    pub chunk: Option<usize>,
    /// Whether a convolution over positions precedes each map.
    pub separable: bool,
    /// Whether convolutions see no later positions.
    pub causal: bool,
    /// Dropout probability of hidden units.
    pub dropout: f64,
}

/// Window sizes of the two convolutions.
pub(crate) const KERNELS: [usize; 2] = [3, 5];

impl FeedForwardConfig {
    /// Initialises the network: Xavier-uniform weights and zero biases.
    pub fn init(&self, key: &RandomKey, device: &Device) -> FeedForward {
        let Self { d_model, d_ff, activation, gated, bias, chunk, separable, causal, dropout } = *self;
        let convolution = |name, channels, kernel| {
            separable.then(|| DepthwiseConvolutionConfig { channels, kernel, causal }.init(&key.named(name), device))
        };
        let map = |name, from, to| init::linear(from, to, bias, &key.named(name), device);
        FeedForward {
            input: map("input", d_model, d_ff),
            gate: gated.then(|| map("gate", d_model, d_ff)),
            output: map("output", d_ff, d_model),
            input_convolution: convolution("input_convolution", d_model, KERNELS[0]),
            output_convolution: convolution("output_convolution", d_ff, KERNELS[1]),
            activation,
            chunk,
            dropout,
        }
    }
}

/// Position-wise feed-forward network.
///
/// Should be created with [`FeedForwardConfig`].
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `W_1`, `[C, F]`, and `b_1`, before the non-linearity.
    pub input: Linear,
    /// `V`, `[C, F]`, and `c`, in gated networks.
    pub gate: Option<Linear>,
    /// `W_2`, `[F, C]`, and `b_2`.
    pub output: Linear,
    /// Convolution over the positions of the input, in separable networks.
    pub input_convolution: Option<DepthwiseConvolution>,
    /// Convolution over the positions of the hidden units, in separable networks.
    pub output_convolution: Option<DepthwiseConvolution>,
    #[module(skip)]
    activation: Activation,
    chunk: Option<usize>,
    dropout: f64,
}

/// Further inputs of a separable network; other networks ignore them.
#[derive(Debug, Default)]
pub struct Neighbours<'a> {
    /// 0 for padding and 1 elsewhere, `[B, N, 1]`, if there is padding.
    pub real: Option<Tensor<3>>,
    /// State of earlier steps.
    pub past: Option<&'a mut FeedForwardState>,
}

/// Decoding state of a separable network: the last inputs of its convolutions.
#[derive(Clone, Debug, Default)]
pub struct FeedForwardState {
    inputs: Option<Tensor<3>>,
    hidden: Option<Tensor<3>>,
}

impl FeedForwardState {
    /// Bytes of the cached numbers, at 4 bytes per number.
    pub fn bytes(&self) -> usize {
        [&self.inputs, &self.hidden].into_iter().flatten().map(|past| 4 * past.dims().iter().product::<usize>()).sum()
    }

    /// Keeps the given batch rows, in the given order.
    pub fn select(&mut self, rows: &[usize]) {
        for past in [&mut self.inputs, &mut self.hidden] {
            *past = past.take().map(|past| {
                let rows: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
                let count = rows.len();
                let rows = Tensor::<1, Int>::from_data(TensorData::new(rows, [count]), &past.device());
                past.select(0, rows)
            });
        }
    }
}

impl FeedForward {
    /// Whether positions depend on their neighbours.
    pub fn is_separable(&self) -> bool {
        self.input_convolution.is_some()
    }

    /// Applies the network to each position, `[B, N, C]`. Dropout is active if and only if a key is given.
    pub fn forward(&self, x: Tensor<3>, random: Option<RandomKey>, neighbours: Neighbours) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let positions = batch * length;
        #[cfg(test)]
        COUNTED.with(|counted| counted.set(counted.get() + positions));
        let chunk = self.chunk.filter(|&chunk| chunk < positions && !self.is_separable());
        let Some(chunk) = chunk else { return self.chunk_forward(x, 0, random, neighbours) };
        let x = x.reshape([1, positions, width]);
        let starts = (0..positions).step_by(chunk);
        let part = |start: usize| {
            let x = x.clone().narrow(1, start, chunk.min(positions - start));
            self.chunk_forward(x, start, random, Neighbours::default())
        };
        Tensor::cat(starts.map(part).collect(), 1).reshape([batch, length, width])
    }

    /// The positions from `start` on.
    fn chunk_forward(&self, x: Tensor<3>, start: usize, random: Option<RandomKey>, neighbours: Neighbours) -> Tensor<3> {
        let Neighbours { real, past } = neighbours;
        let (past_inputs, past_hidden) = past.map(|past| (&mut past.inputs, &mut past.hidden)).unzip();
        let x = convolved(x, self.input_convolution.as_ref(), real.as_ref(), past_inputs);
        let hidden = match (&self.gate, self.activation) {
            (Some(gate), activation) => activation.apply(linear(x.clone(), &self.input)) * linear(x, gate),
            (None, Activation::Relu) => linear_relu(x, &self.input),
            (None, activation) => activation.apply(linear(x, &self.input)),
        };
        let first = start * hidden.dims()[2];
        let hidden = dropout_from(first, hidden, self.dropout, random.as_ref());
        linear(convolved(hidden, self.output_convolution.as_ref(), real.as_ref(), past_hidden), &self.output)
    }
}

#[cfg(test)]
thread_local! {
    static COUNTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Result of `run`, and the number of positions that passed feed-forward networks meanwhile.
#[cfg(test)]
pub(crate) fn counted_positions<T>(run: impl FnOnce() -> T) -> (T, usize) {
    COUNTED.with(|counted| counted.set(0));
    let result = run();
    (result, COUNTED.with(std::cell::Cell::get))
}

/// `x` after a convolution without padding, if present.
fn convolved(
    x: Tensor<3>,
    convolution: Option<&DepthwiseConvolution>,
    real: Option<&Tensor<3>>,
    past: Option<&mut Option<Tensor<3>>>,
) -> Tensor<3> {
    let Some(convolution) = convolution else { return x };
    let x = match real {
        Some(real) => x * real.clone(),
        None => x,
    };
    convolution.forward(x, past)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;

    const PLAIN: FeedForwardConfig = FeedForwardConfig {
        d_model: 4,
        d_ff: 64,
        activation: Activation::Relu,
        gated: false,
        bias: true,
        chunk: None,
        separable: false,
        causal: false,
        dropout: 0.5,
    };

    fn with_weights(activation: Activation) -> FeedForward {
        let device = Device::flex();
        let config = FeedForwardConfig { d_model: 2, d_ff: 1, activation, dropout: 0.0, ..PLAIN };
        let mut network = config.init(&RandomKey::from_seed(1), &device);
        network.input.weight = Param::from_tensor(Tensor::from_data([[1.0], [1.0]], &device));
        network.input.bias = Some(Param::from_tensor(Tensor::from_data([-1.0], &device)));
        network.output.weight = Param::from_tensor(Tensor::from_data([[3.0, 4.0]], &device));
        network.output.bias = Some(Param::from_tensor(Tensor::from_data([0.5, 0.0], &device)));
        network
    }

    fn applied(network: &FeedForward) -> Vec<f32> {
        let x = Tensor::from_data([[[1.0, 2.0], [0.0, -1.0]]], &Device::flex());
        network.forward(x, None, Neighbours::default()).into_data().try_to_vec().unwrap()
    }

    #[test]
    fn the_network_computes_the_formula_of_the_paper() {
        assert_eq!(applied(&with_weights(Activation::Relu)), [6.5, 8.0, 0.5, 0.0]);
    }

    #[test]
    fn gelu_is_the_input_times_the_normal_distribution_function() {
        let values = applied(&with_weights(Activation::Gelu));
        let (positive, negative) = (2.0 * 0.977_249_87, -2.0 * 0.022_750_13);
        for (value, expected) in values.iter().zip([3.0 * positive + 0.5, 4.0 * positive, 3.0 * negative + 0.5, 4.0 * negative]) {
            assert!((value - expected).abs() < 1e-4, "{value} instead of {expected}");
        }
    }

    #[test]
    fn approximate_gelu_and_silu_are_the_input_times_a_logistic_function() {
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        for (activation, slope) in [(Activation::QuickGelu, 1.702), (Activation::Silu, 1.0)] {
            let values = applied(&with_weights(activation));
            let (positive, negative) = (2.0 * logistic(2.0 * slope), -2.0 * logistic(-2.0 * slope));
            for (value, expected) in values.iter().zip([3.0 * positive + 0.5, 4.0 * positive, 3.0 * negative + 0.5, 4.0 * negative]) {
                assert!((f64::from(*value) - expected).abs() < 1e-5, "{activation:?}: {value} instead of {expected}");
            }
        }
    }

    #[test]
    fn a_gate_multiplies_the_hidden_units() {
        let device = Device::flex();
        let mut network = with_weights(Activation::Relu);
        let mut gate = init::linear(2, 1, true, &RandomKey::from_seed(1), &device);
        gate.weight = Param::from_tensor(Tensor::from_data([[0.0], [1.0]], &device));
        gate.bias = Some(Param::from_tensor(Tensor::from_data([3.0], &device)));
        network.gate = Some(gate);
        // Hidden units 2 and 0, gates 5 and 2.
        assert_eq!(applied(&network), [30.5, 40.0, 0.5, 0.0]);
    }

    fn by_definition(activation: Activation, x: f64) -> f64 {
        match activation {
            Activation::Relu => x.max(0.0),
            Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
            Activation::GeluTanh => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh()),
            Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }

    const ACTIVATIONS: [Activation; 5] =
        [Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::QuickGelu, Activation::Silu];

    #[test]
    fn every_network_is_its_formula() {
        let device = Device::flex();
        let numbers = |parameter: Tensor<2>| parameter.into_data().iter::<f64>().collect::<Vec<_>>();
        for (activation, gated, bias) in ACTIVATIONS
            .into_iter()
            .flat_map(|activation| [(false, true), (true, true), (true, false)].map(|(gated, bias)| (activation, gated, bias)))
        {
            let config = FeedForwardConfig { d_ff: 6, activation, gated, bias, dropout: 0.0, ..PLAIN };
            let mut network = config.init(&RandomKey::from_seed(1), &device);
            let maps = [Some(&mut network.input), network.gate.as_mut(), Some(&mut network.output)];
            for (at, map) in maps.into_iter().enumerate() {
                let Some(map) = map else { continue };
                assert_eq!(map.bias.is_some(), bias);
                let key = RandomKey::from_seed(2).numbered(at as u64);
                map.bias = map.bias.take().map(|old| init::Init::Normal(1.0).parameter(old.dims(), &key, &device));
            }
            let x = init::Init::Normal(1.0).tensor([1, 5, 4], &RandomKey::from_seed(3), &device);
            let found = network.forward(x.clone(), None, Neighbours::default()).reshape([5, 4]);
            // Positions by rows.
            let map = |x: &[f64], map: &Linear| -> Vec<f64> {
                let [from, to] = map.weight.dims();
                let (weight, bias) = (numbers(map.weight.val()), map.bias.as_ref().map(|bias| numbers(bias.val().reshape([1, to]))));
                let unit = |unit: usize| {
                    let product: f64 = (0..from).map(|at| x[at] * weight[at * to + unit]).sum();
                    product + bias.as_ref().map_or(0.0, |bias| bias[unit])
                };
                (0..to).map(unit).collect()
            };
            let rows = numbers(x.reshape([5, 4]));
            let expected = rows.chunks(4).flat_map(|x| {
                let hidden: Vec<f64> = map(x, &network.input).into_iter().map(|x| by_definition(activation, x)).collect();
                let hidden = match &network.gate {
                    Some(gate) => hidden.iter().zip(map(x, gate)).map(|(hidden, gate)| hidden * gate).collect(),
                    None => hidden,
                };
                map(&hidden, &network.output)
            });
            for (found, expected) in numbers(found).into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{activation:?}, gated {gated}, bias {bias}: {found} is not {expected}");
            }
        }
    }

    #[test]
    fn what_is_before_the_non_linearity_being_0_closes_a_swiglu() {
        let device = Device::flex();
        let config = FeedForwardConfig { activation: Activation::Silu, gated: true, bias: false, dropout: 0.0, ..PLAIN };
        let mut network = config.init(&RandomKey::from_seed(1), &device);
        network.input.weight = Param::from_tensor(Tensor::zeros([4, 64], &device));
        let x = init::Init::Normal(1.0).tensor([2, 3, 4], &RandomKey::from_seed(2), &device);
        assert!(network.forward(x, None, Neighbours::default()).into_data().iter::<f32>().all(|output| output == 0.0));
    }

    #[test]
    fn chunks_have_the_outputs_and_gradients_of_the_whole() {
        let device = Device::flex().autodiff();
        let key = RandomKey::from_seed(1);
        for gated in [false, true] {
            let run = |chunk| {
                let network = FeedForwardConfig { gated, chunk, ..PLAIN }.init(&key, &device);
                let x = init::Init::Normal(1.0).tensor([2, 7, 4], &key, &device).require_grad();
                let output = network.forward(x.clone(), Some(RandomKey::from_seed(2)), Neighbours::default());
                let gradients = (output.clone() * output.clone()).sum().backward();
                let weight = network.input.weight.val().grad(&gradients).expect("the weight has a gradient");
                [output.flatten::<1>(0, 2).inner(), x.grad(&gradients).expect("so has the input").flatten(0, 2), weight.flatten(0, 1)]
            };
            let whole = run(None);
            for chunk in [1, 3, 5, 14, 100] {
                for (found, wanted) in run(Some(chunk)).into_iter().zip(&whole) {
                    let difference: f32 = (found - wanted.clone()).abs().max().into_scalar();
                    assert!(difference < 1e-4, "gated {gated}, chunks of {chunk}: {difference}");
                }
            }
        }
    }

    #[test]
    fn hidden_units_are_dropped_only_with_a_key() {
        let device = Device::flex();
        let network = PLAIN.init(&RandomKey::from_seed(1), &device);
        let x = Tensor::ones([1, 2, 4], &device);
        let plain = network.forward(x.clone(), None, Neighbours::default()).into_data();
        assert_eq!(plain, network.forward(x.clone(), None, Neighbours::default()).into_data());
        assert_ne!(plain, network.forward(x, Some(RandomKey::from_seed(2)), Neighbours::default()).into_data());
    }
}
