//! Training losses as sums; for means over tokens or sentences, divide by their number.

use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::is_queued;

use crate::kernels::fused;

/// Cross-entropy of a batch.
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// Sum of the smoothed loss over the real tokens, `[1]`: the training loss.
    pub loss: Tensor<1>,
    /// Sum of `-ln p(target)` over the real tokens, `[1]`, on the device without autodiff, for perplexity.
    pub negative_log_likelihood: Tensor<1>,
}

/// Cross-entropy of `logits` `[N, V]` against `targets` `[N]`, summed over the targets other than `padding`.
///
/// With label smoothing ε the target distribution has `1 - ε` on the target plus `ε / V` on each of the `V` tokens (Szegedy et al. 2016, used by Vaswani et al.
/// 2017): `loss = -(1 - ε) ln p(target) - ε / V sum_v ln p(v)`. Uniform logits have loss `ln V` for any ε. A batch of only padding has loss 0.
///
/// The gradient, `softmax(logits) - target distribution`, is computed with the loss, in place of the logits if possible, since they are the largest tensor of a
/// training step. [`projected_cross_entropy`] never materialises all of them.
///
/// # Panics
/// If `label_smoothing` is not in `[0, 1)` or shapes do not fit.
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, padding: Option<u32>, label_smoothing: f64) -> CrossEntropy {
    let [rows, _] = logits.dims();
    let (targets, weights) = checked(rows, targets, padding, label_smoothing);
    let logits = if is_queued(&logits.device()) { logits } else { logits.cast(FloatDType::F32) };
    of_sums(fused::cross_entropy(logits, targets, weights, label_smoothing))
}

/// [`cross_entropy`] of the logits `x E^T` of `states` `x` `[N, C]` and the `matrix` `E` `[V, C]`, materialised only in parts.
///
/// # Panics
/// As [`cross_entropy`].
pub fn projected_cross_entropy(
    states: Tensor<2>,
    matrix: Tensor<2>,
    targets: Tensor<1, Int>,
    padding: Option<u32>,
    label_smoothing: f64,
) -> CrossEntropy {
    if states.dtype() != DType::F32 && !is_queued(&states.device()) {
        return cross_entropy(states.matmul(matrix.transpose()), targets, padding, label_smoothing);
    }
    let (targets, weights) = checked(states.dims()[0], targets, padding, label_smoothing);
    of_sums(fused::projected_cross_entropy(states, matrix, targets, weights, label_smoothing))
}

/// States `[N, C + 1]` and a matrix `[V, C + 1]` with the logits of `states` and `matrix` plus biases `[V]`: a bias is the weight of a constant input 1.
pub(crate) fn with_biases(states: Tensor<2>, matrix: Tensor<2>, biases: Tensor<1>) -> (Tensor<2>, Tensor<2>) {
    let ones = Tensor::ones([states.dims()[0], 1], (&states.device(), states.dtype()));
    (Tensor::cat(vec![states, ones], 1), Tensor::cat(vec![matrix, biases.unsqueeze_dim(1)], 1))
}

/// Targets, and flags that are 1 for real targets and 0 for padding, outside of the graph.
fn checked(rows: usize, targets: Tensor<1, Int>, padding: Option<u32>, label_smoothing: f64) -> (Tensor<1, Int>, Tensor<1>) {
    assert!((0.0..1.0).contains(&label_smoothing), "label smoothing {label_smoothing} is not in [0, 1)");
    assert_eq!(targets.dims(), [rows], "targets for {rows} rows of logits");
    let targets = targets.inner();
    let weights = match padding {
        Some(padding) => targets.clone().not_equal_elem(padding as i32).float().cast(FloatDType::F32),
        None => Tensor::ones([rows], (&targets.device(), DType::F32)),
    };
    (targets, weights)
}

fn of_sums(sums: Tensor<1>) -> CrossEntropy {
    let negative_log_likelihood = sums.clone().inner().slice(1..2);
    CrossEntropy { loss: sums.slice(0..1), negative_log_likelihood }
}

/// The states `[B, N, C]` of the first `lengths[b]` tokens of each row, concatenated to `[sum of lengths, C]`: the states to project to logits.
///
/// # Panics
/// If the number of lengths differs from the number of rows, or a length exceeds `N`.
pub fn real_states(states: Tensor<3>, lengths: &[usize]) -> Tensor<2> {
    let [batch, length, width] = states.dims();
    assert_eq!(lengths.len(), batch, "one length for each row");
    assert!(lengths.iter().all(|&real| real <= length), "lengths {lengths:?} of rows of {length}");
    let indices: Vec<i32> =
        lengths.iter().enumerate().flat_map(|(row, &real)| (row * length..row * length + real).map(|index| index as i32)).collect();
    let count = indices.len();
    let states = states.reshape([batch * length, width]);
    if count == batch * length {
        return states;
    }
    let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [count]), &states.device());
    states.select(0, indices)
}

/// Sum of squared errors of `predictions` `[N]`, `[1]`.
///
/// # Panics
/// If the number of targets differs.
pub fn squared_error(predictions: Tensor<1>, targets: Tensor<1>) -> Tensor<1> {
    assert_eq!(predictions.dims(), targets.dims(), "one target for each prediction");
    let error = predictions - targets;
    (error.clone() * error).sum()
}

/// Loss `[1]` summed over `units` units, plus the auxiliary losses of a pass, which are per unit, like the loss after division by their number.
pub fn with_auxiliary(loss: Tensor<1>, losses: &Losses, units: usize) -> Tensor<1> {
    match losses.total() {
        Some(auxiliary) => loss + auxiliary.cast(FloatDType::F32) * units as f64,
        None => loss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use burn::tensor::activation::log_softmax;

    fn scalar(x: Tensor<1>) -> f64 {
        f64::from(x.into_scalar::<f32>())
    }

    fn random_logits(device: &Device) -> Tensor<2> {
        Init::Normal(2.0).tensor([5, 7], &RandomKey::from_seed(3), device)
    }

    fn targets(device: &Device) -> Tensor<1, Int> {
        Tensor::from_data([3, 0, 6, 1, 0], device)
    }

    /// The definition, in double precision.
    fn by_hand(logits: &Tensor<2>, smoothing: f64, padding: Option<i64>) -> (f64, f64) {
        let rows = logits.to_data().try_to_vec::<f32>().unwrap();
        let targets = targets(&logits.device()).into_data().iter::<i64>().collect::<Vec<_>>();
        let (mut loss, mut nll) = (0.0, 0.0);
        for (row, &target) in rows.chunks(7).zip(&targets) {
            if Some(target) == padding {
                continue;
            }
            let total = row.iter().map(|&l| f64::from(l).exp()).sum::<f64>().ln();
            for (token, &logit) in row.iter().enumerate() {
                let share = smoothing / 7.0 + if token as i64 == target { 1.0 - smoothing } else { 0.0 };
                loss += share * (total - f64::from(logit));
            }
            nll += total - f64::from(row[target as usize]);
        }
        (loss, nll)
    }

    #[test]
    fn the_loss_is_that_of_its_definition() {
        let device = Device::flex();
        for (smoothing, padding) in [(0.0, None), (0.0, Some(0)), (0.1, None), (0.3, Some(0))] {
            let logits = random_logits(&device);
            let (loss, nll) = by_hand(&logits, smoothing, padding.map(i64::from));
            let found = cross_entropy(logits, targets(&device), padding, smoothing);
            assert!((scalar(found.loss) - loss).abs() < 1e-4, "smoothing {smoothing}, padding {padding:?}");
            assert!((scalar(found.negative_log_likelihood) - nll).abs() < 1e-4);
        }
    }

    #[test]
    fn without_smoothing_the_loss_is_the_negative_log_likelihood() {
        let device = Device::flex();
        let found = cross_entropy(random_logits(&device), targets(&device), Some(0), 0.0);
        assert_eq!(scalar(found.loss), scalar(found.negative_log_likelihood));
    }

    #[test]
    fn uniform_logits_cost_the_logarithm_of_the_vocabulary_whatever_the_smoothing() {
        let device = Device::flex();
        for smoothing in [0.0, 0.1, 0.9] {
            let found = cross_entropy(Tensor::ones([5, 7], &device), targets(&device), None, smoothing);
            assert!((scalar(found.loss) / 5.0 - 7f64.ln()).abs() < 1e-6);
        }
    }

    #[test]
    fn the_gradient_is_that_of_the_differentiated_definition() {
        let device = Device::flex().autodiff();
        let checkpointing = device.clone().gradient_checkpointing();
        for (smoothing, padding, device) in [(0.0, None, device.clone()), (0.2, Some(0), device), (0.2, Some(0), checkpointing)] {
            // Losses are computed from the results of a graph, not from its leaves.
            let leaf = random_logits(&device).require_grad();
            let logits = leaf.clone() * 1.0;
            let found = cross_entropy(logits.clone(), targets(&device), padding, smoothing);
            let (expected, _) = by_hand(&logits, smoothing, padding.map(i64::from));
            assert!((scalar(found.loss.clone()) - expected).abs() < 1e-4);
            let gradient = leaf.grad(&(found.loss * 2.0).backward()).unwrap();

            let log_probabilities = log_softmax(leaf.clone() * 1.0, 1);
            let indices = targets(&device).reshape([5, 1]);
            let real = indices.clone().not_equal_elem(padding.map_or(-1, |p| p as i32)).float();
            let picked = log_probabilities.clone().gather(1, indices) * (1.0 - smoothing);
            let loss = ((picked + log_probabilities.mean_dim(1) * smoothing) * real).sum().neg();
            let expected = leaf.grad(&(loss * 2.0).backward()).unwrap();
            let difference: f32 = (gradient - expected).abs().max().into_scalar();
            assert!(difference < 1e-6, "difference {difference}");
        }
    }

    #[test]
    fn a_batch_of_padding_costs_nothing() {
        let device = Device::flex().autodiff();
        let logits = random_logits(&device).require_grad();
        let found = cross_entropy(logits.clone(), Tensor::zeros([5], &device), Some(0), 0.1);
        assert_eq!(scalar(found.loss.clone()), 0.0);
        assert_eq!(scalar(found.negative_log_likelihood), 0.0);
        let gradient = logits.grad(&found.loss.backward()).unwrap();
        assert!(gradient.into_data().iter::<f32>().all(|g| g == 0.0));
    }

    #[test]
    fn real_states_are_those_before_the_padding() {
        let device = Device::flex();
        let states = Tensor::from_data([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]], &device);
        let real = |lengths: &[usize]| real_states(states.clone(), lengths).into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(real(&[2, 1]), [1.0, 2.0, 4.0]);
        assert_eq!(real(&[0, 3]), [4.0, 5.0, 6.0]);
        assert_eq!(real(&[3, 3]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn squared_errors_are_summed() {
        let device = Device::flex();
        let loss = squared_error(Tensor::from_data([1.0, 2.0], &device), Tensor::from_data([0.0, 4.5], &device));
        assert_eq!(scalar(loss), 7.25);
    }
}
