//! Linear maps along a sequence, `n` positions to `k` slots, and the decoding state of attention to the slots.

use burn::module::{Module, Param, RunningState};
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::contract::Positions;
use crate::engine::columns_from;
use crate::init::Init;
use crate::logits::starts;
use crate::random::RandomKey;
use crate::visibility::Span;

/// Distribution of the initial values of a [`SequenceProjection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProjectionInit {
    /// Xavier-uniform with gain `1/sqrt(2)`, as in the authors' code.
    #[default]
    Xavier,
    /// Normal with variance `1/k`, for which the bounds hold that the paper derives from Johnson and Lindenstrauss (Wang et al. 2020, section 4).
    Normal,
}

/// A map of the positions of a sequence to slots, trained or frozen.
///
/// Dimension letters: `P` matrices (one, or one for each head), `k` slots, `L` greatest length.
#[derive(Module, Debug)]
pub struct SequenceProjection {
    /// Trained matrix `[P, k, L]`.
    pub matrix: Option<Param<Tensor<3>>>,
    /// Frozen matrix `[P, k, L]`.
    pub frozen_matrix: Option<RunningState<Tensor<3>>>,
}

impl SequenceProjection {
    /// Draws a projection of shape `[P, k, L]`.
    pub fn new(shape: [usize; 3], init: ProjectionInit, trainable: bool, key: &RandomKey, device: &Device) -> Self {
        let [_, rank, max_length] = shape;
        let init = match init {
            // Twice the fans halve the variance: a gain of 1/sqrt(2).
            ProjectionInit::Xavier => Init::XavierUniform { fan_in: 2 * max_length, fan_out: 2 * rank },
            ProjectionInit::Normal => Init::Normal((rank as f32).powf(-0.5)),
        };
        let matrix = init.tensor(shape, key, device);
        if trainable {
            Self { matrix: Some(Param::from_tensor(matrix)), frozen_matrix: None }
        } else {
            Self { matrix: None, frozen_matrix: Some(RunningState::new(matrix)) }
        }
    }

    fn value(&self) -> Tensor<3> {
        match (&self.matrix, &self.frozen_matrix) {
            (Some(matrix), _) => matrix.val(),
            (None, Some(matrix)) => matrix.value(),
            (None, None) => unreachable!("a projection has one of its two matrices"),
        }
    }

    /// `[P, k, L]`.
    pub fn shape(&self) -> [usize; 3] {
        self.value().dims()
    }

    /// Whether another projection could stand in the place of this one.
    pub fn is_like(&self, other: &Self) -> bool {
        self.shape() == other.shape() && self.matrix.is_some() == other.matrix.is_some()
    }

    /// `[B, P, N, D]` to `[B, P, k, D]`, taking only the positions of each row that are `seen`. A sequence shorter than `L` takes the first columns,
    /// counted in each row from its first real element.
    ///
    /// # Panics
    /// If a row without its padding on the left is longer than `L`.
    pub fn forward(&self, x: Tensor<4>, seen: &[Vec<bool>], positions: &Positions) -> Tensor<4> {
        let [batch, matrices, length, _] = x.dims();
        let [_, rank, limit] = self.shape();
        let first = positions.left_padding.iter().flat_map(|counts| counts.iter().copied()).min().unwrap_or(0);
        assert!(length - first <= limit, "{} keys lie beyond the maximal length {limit} of this attention", length - first);
        let columns = columns_from(self.value().unsqueeze_dim(0), &starts(Span::whole(0, length), positions), length);
        let shown: Vec<f32> = seen.iter().flatten().map(|&seen| if seen { 1.0 } else { 0.0 }).collect();
        let x = if shown.contains(&0.0) {
            x.clone() * Tensor::from_data(TensorData::new(shown, [batch, 1, length, 1]), (&x.device(), x.dtype()))
        } else {
            x
        };
        columns.expand([batch, matrices, rank, length]).matmul(x)
    }
}
