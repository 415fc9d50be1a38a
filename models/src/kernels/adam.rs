//! Per-parameter operations on gradients in one pass over memory: the update of Adam and AdamW, and the sum of squares of a gradient.

mod cpu;
mod flex_backend;
#[cfg(feature = "cube")]
mod gpu;
mod operator;
mod tensor_ops;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::optim::{AdamState, AdaptiveMomentumState, LearningRate, Optimizer};
use burn::tensor::{Device, Tensor};

use self::operator::ParameterUpdate;

/// Adam (Kingma and Ba 2015), or AdamW (Loshchilov and Hutter 2019) if `is_decoupled`.
///
/// Its state has the form of burn-optim's, so each can read the other's saved state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adam {
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Strength of the weight decay.
    pub weight_decay: f64,
    /// Whether the decay acts on the parameter instead of its gradient.
    pub is_decoupled: bool,
}

/// Constants of one update: `m = β_1 m + (1 - β_1) g`, `v = β_2 v + (1 - β_2) g²`, `x = kept x - rate m / (sqrt(v) + ε)`, where `g` includes `penalty x`.
///
/// `rate` and `ε` include the bias corrections of both moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdamStep {
    /// Decay rates of the two moments.
    pub betas: (f32, f32),
    /// Step length, with the bias corrections.
    pub rate: f32,
    /// Added to the root of the second moment, with its bias correction.
    pub epsilon: f32,
    /// Factor of the parameter under decoupled weight decay.
    pub kept: f32,
    /// Weight of the parameter in its gradient.
    pub penalty: f32,
}

impl Adam {
    /// The update number `time`, from 1.
    fn at(&self, time: usize, rate: LearningRate) -> AdamStep {
        let (beta_1, beta_2) = self.betas;
        let unbiased = |beta: f64| 1.0 - beta.powi(i32::try_from(time).unwrap_or(i32::MAX));
        let root = unbiased(beta_2).sqrt();
        let (kept, penalty) = if self.is_decoupled { (1.0 - rate * self.weight_decay, 0.0) } else { (1.0, self.weight_decay) };
        AdamStep {
            betas: (beta_1 as f32, beta_2 as f32),
            rate: (rate * root / unbiased(beta_1)) as f32,
            epsilon: (self.epsilon * root) as f32,
            kept: kept as f32,
            penalty: penalty as f32,
        }
    }
}

impl Optimizer for Adam {
    type State<const D: usize> = AdamState<D>;

    fn step<const D: usize>(
        &self,
        rate: LearningRate,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdamState<D>>,
    ) -> (Tensor<D>, Option<AdamState<D>>) {
        let AdaptiveMomentumState { time, moment_1, moment_2, .. } = match state {
            Some(state) => state.momentum,
            None => AdaptiveMomentumState::new(0, gradient.zeros_like(), gradient.zeros_like()),
        };
        let time = time + 1;
        let (parameter, moment_1, moment_2) = <Dispatch as ParameterUpdate>::adam(
            parameter.into_dispatch(),
            gradient.into_dispatch(),
            moment_1.into_dispatch(),
            moment_2.into_dispatch(),
            self.at(time, rate),
        );
        let [moment_1, moment_2] = [moment_1, moment_2].map(Tensor::from_dispatch);
        (Tensor::from_dispatch(parameter), Some(AdamState::new(AdaptiveMomentumState::new(time, moment_1, moment_2))))
    }

    fn to_device<const D: usize>(mut state: AdamState<D>, device: &Device) -> AdamState<D> {
        state.momentum = state.momentum.to_device(device);
        state
    }
}

/// Sum of squares, `[1]`.
pub fn sum_of_squares<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as ParameterUpdate>::sum_of_squares(x.into_dispatch()))
}
