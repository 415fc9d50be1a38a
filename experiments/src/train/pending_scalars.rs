//! Numbers of steps that are read later.
//!
//! When the host reads a number, it waits for a device that queues its operations, and the device then waits for the host. Losses and gradient norms therefore
//! stay on the device until a line of the log, a score or a checkpoint is due. The factor that clips gradients is computed there too.

use burn::tensor::Tensor;

use super::loss::LossNumbers;

/// The numbers of one step.
pub(super) struct StepNumbers {
    /// Which step, counted from 1.
    pub step: u64,
    /// Units of its batches.
    pub units: usize,
    /// For each of its batches the names of what is added to the loss of the task.
    pub losses: Vec<Vec<&'static str>>,
    /// The parameters that have gradients.
    pub paths: Vec<String>,
    /// The losses, then the sums of squares of the gradients, which are those of the sums over units.
    pub numbers: Tensor<1>,
}

impl StepNumbers {
    /// What the gradients are multiplied by, one number: they become means, whose norm is at most `bound`. See [`clipping_factor`](super::clipping_factor).
    pub(super) fn gradient_factor(&self, bound: Option<f64>) -> Tensor<1> {
        let units = self.units as f64;
        let losses = self.losses.iter().map(|names| LossNumbers::count(names)).sum::<usize>();
        let squares = self.numbers.clone().slice(losses..losses + self.paths.len());
        let norm = squares.sum().sqrt().div_scalar(units);
        match bound {
            Some(bound) => norm.recip().mul_scalar(bound).clamp_max(1.0).div_scalar(units),
            None => norm.ones_like().div_scalar(units),
        }
    }

    /// What is not finite, and where, if something is not.
    pub(super) fn first_non_finite(&self, losses: &[LossNumbers], squares: &[f64]) -> Option<(&'static str, String)> {
        let gradient = squares.iter().position(|square| !square.is_finite()).map(|at| format!("the gradient of {}", self.paths[at]));
        match losses.iter().all(|loss| loss.total.is_finite()) {
            true => gradient.map(|place| ("gradient", place)),
            false => Some(("loss", gradient.unwrap_or_else(|| "the loss itself".to_owned()))),
        }
    }
}
