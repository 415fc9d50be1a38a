//! Projections along a sequence, from `n` positions to `k` slots: linear, or pooling or a convolution over disjoint windows.

use burn::module::RunningState;

use crate::contract::visibility::hidden_logit;
use crate::engine::columns_from;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::starts;

/// Projection of positions to slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProjectionKind {
    /// A matrix from all positions to all slots.
    #[default]
    Linear,
    /// Each slot is the mean of a window of successive positions.
    MeanPooling,
    /// Each slot is the channel-wise maximum of a window.
    MaxPooling,
    /// Each slot is a linear map of a window, with shared weights: a convolution whose stride equals its kernel.
    Convolution,
}

impl ProjectionKind {
    /// Whether slots correspond to windows.
    pub fn has_windows(self) -> bool {
        self != Self::Linear
    }

    /// Whether there are no trained parameters.
    pub fn is_pooling(self) -> bool {
        matches!(self, Self::MeanPooling | Self::MaxPooling)
    }
}

/// Window size for which the longest sequence has at most `rank` windows.
pub(crate) fn window_of(max_length: usize, rank: usize) -> usize {
    max_length.div_ceil(rank.max(1)).max(1)
}

/// Distribution of the initial values of a [`SequenceProjection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProjectionInit {
    /// Xavier-uniform with gain `1/sqrt(2)`, as in the authors' code.
    #[default]
    Xavier,
    /// Normal with variance `1/k`, the assumption of the paper's bounds after Johnson and Lindenstrauss (Wang et al. 2020, section 4).
    Normal,
}

/// A projection of sequence positions to slots, trained or frozen.
///
/// Dimension letters: `P` matrices (one, or one per head), `k` slots, `L` maximal length, `s` positions of a window, `D` head width.
#[derive(Module, Debug)]
pub struct SequenceProjection {
    /// Trained matrix `[P, k, L]`; for a convolution `[P, s D, D]`, earliest position first.
    pub matrix: Option<Param<Tensor<3>>>,
    /// Frozen matrix of the same shape.
    pub frozen_matrix: Option<RunningState<Tensor<3>>>,
    #[module(skip)]
    kind: ProjectionKind,
    /// `P`, `k` and `L`.
    #[module(skip)]
    sizes: [usize; 3],
}

/// Assignment of sequence positions to windows.
struct Windows {
    /// Positions of a window, `s`.
    size: usize,
    /// Windows, `w`.
    count: usize,
    /// Padding before the first position of each row, if any.
    padding: Option<Vec<usize>>,
    /// 1 for visible positions and 0 for others, `[B, w, s]`.
    shown: Vec<f32>,
}

impl Windows {
    fn new(size: usize, seen: &[Vec<bool>], positions: &Positions) -> Self {
        let padding =
            positions.left_padding.as_ref().map(|counts| (0..seen.len()).map(|row| counts[row % counts.len()]).collect::<Vec<_>>());
        let first = |row: usize| padding.as_ref().map_or(0, |counts| counts[row]);
        let longest = seen.iter().enumerate().map(|(row, seen)| seen.len() - first(row).min(seen.len())).max().unwrap_or(0);
        let count = longest.div_ceil(size).max(1);
        let places = (0..seen.len()).flat_map(|row| (0..count * size).map(move |position| (row, position)));
        let is_shown = |(row, position): (usize, usize)| seen[row].get(first(row) + position).is_some_and(|&seen| seen);
        let shown = places.map(|place| if is_shown(place) { 1.0 } else { 0.0 }).collect();
        Self { size, count, padding, shown }
    }

    /// Number of visible positions per window, `[B w]`.
    fn seen(&self) -> Vec<f32> {
        self.shown.chunks(self.size).map(|window| window.iter().sum()).collect()
    }

    /// `[B, 1, w, s or 1, 1]`.
    fn tensor(&self, numbers: Vec<f32>, like: &Tensor<4>) -> Tensor<5> {
        let [rows, ..] = like.dims();
        let last = numbers.len() / (rows * self.count);
        Tensor::from_data(TensorData::new(numbers, [rows, 1, self.count, last, 1]), (&like.device(), like.dtype()))
    }

    /// Arranges the positions of `x` `[B, H, N, D]` in windows, `[B, H, w, s, D]`.
    fn arranged(&self, x: Tensor<4>) -> Tensor<5> {
        let [rows, heads, length, width] = x.dims();
        let places = self.count * self.size;
        let shape = [rows, heads, self.count, self.size, width];
        let Some(padding) = &self.padding else {
            if places == length {
                return x.reshape(shape);
            }
            let further = Tensor::zeros([rows, heads, places - length, width], (&x.device(), x.dtype()));
            return Tensor::cat(vec![x, further], 2).reshape(shape);
        };
        let index = |row: usize, place: usize| (row * length + (padding[row] + place).min(length - 1)) as i32;
        let indices: Vec<i32> =
            (0..rows).flat_map(|row| (0..places).map(move |place| (row, place))).map(|(row, place)| index(row, place)).collect();
        let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [rows * places]), &x.device());
        let rows_of_all = x.swap_dims(1, 2).reshape([rows * length, heads * width]);
        rows_of_all.select(0, indices).reshape([rows, places, heads, width]).swap_dims(1, 2).reshape(shape)
    }
}

impl SequenceProjection {
    /// Creates a linear projection of shape `[P, k, L]`.
    pub fn new(shape: [usize; 3], init: ProjectionInit, trainable: bool, key: &RandomKey, device: &Device) -> Self {
        let [_, rank, max_length] = shape;
        let init = match init {
            // Twice the fans halve the variance: a gain of 1/sqrt(2).
            ProjectionInit::Xavier => Init::XavierUniform { fan_in: 2 * max_length, fan_out: 2 * rank },
            ProjectionInit::Normal => Init::Normal((rank as f32).powf(-0.5)),
        };
        Self::of_matrix(ProjectionKind::Linear, shape, Some(init.tensor(shape, key, device)), trainable)
    }

    /// Creates a window projection of shape `[P, k, L]`. Weights of a convolution, for head width `d_head`, are Xavier-uniform with gain `1/sqrt(2)`.
    ///
    /// # Panics
    /// If the kind has no windows.
    pub fn of_windows(kind: ProjectionKind, shape: [usize; 3], d_head: usize, trainable: bool, key: &RandomKey, device: &Device) -> Self {
        assert!(kind.has_windows(), "a linear projection has no windows");
        let [matrices, rank, max_length] = shape;
        let inputs = window_of(max_length, rank) * d_head;
        let init = Init::XavierUniform { fan_in: 2 * inputs, fan_out: 2 * d_head };
        let kernel = (kind == ProjectionKind::Convolution).then(|| init.tensor([matrices, inputs, d_head], key, device));
        Self::of_matrix(kind, shape, kernel, trainable)
    }

    fn of_matrix(kind: ProjectionKind, sizes: [usize; 3], matrix: Option<Tensor<3>>, trainable: bool) -> Self {
        let (trained, frozen) = if trainable { (matrix, None) } else { (None, matrix) };
        Self { matrix: trained.map(Param::from_tensor), frozen_matrix: frozen.map(RunningState::new), kind, sizes }
    }

    fn value(&self) -> Tensor<3> {
        match (&self.matrix, &self.frozen_matrix) {
            (Some(matrix), _) => matrix.val(),
            (None, Some(matrix)) => matrix.value(),
            (None, None) => unreachable!("a projection that does not pool has one of its two matrices"),
        }
    }

    /// `[P, k, L]`.
    pub fn shape(&self) -> [usize; 3] {
        if self.kind.has_windows() { self.sizes } else { self.value().dims() }
    }

    /// Kind of the projection.
    pub fn kind(&self) -> ProjectionKind {
        self.kind
    }

    /// Whether this projection can be exchanged for another.
    pub fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.shape() == other.shape() && self.matrix.is_some() == other.matrix.is_some()
    }

    /// Projects `[B, P, N, D]` to `[B, P, k, D]`, using only the `seen` positions of each row. A sequence shorter than `L` uses the first columns, counted in
    /// each row from its first real token.
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

    /// Projects `[B, H, N, D]` to one slot per window, `[B, H, w, D]`, using only the `seen` positions of each row. Also returns the number of these positions
    /// per slot, `[B w]`. An empty slot is 0. Positions are counted in each row from its first real token.
    ///
    /// # Panics
    /// If the projection has no windows, or a row without its padding on the left is longer than `L`.
    pub fn forward_windows(&self, x: Tensor<4>, seen: &[Vec<bool>], positions: &Positions) -> (Tensor<4>, Vec<f32>) {
        let [batch, heads, length, width] = x.dims();
        let [_, rank, limit] = self.sizes;
        let windows = Windows::new(window_of(limit, rank), seen, positions);
        let first = positions.left_padding.iter().flat_map(|counts| counts.iter().copied()).min().unwrap_or(0);
        assert!(length - first <= limit, "{} keys lie beyond the maximal length {limit} of this attention", length - first);
        let (counts, size) = (windows.seen(), windows.size);
        let is_whole = counts.iter().all(|&count| count == size as f32);
        let shown = (!is_whole).then(|| windows.tensor(windows.shown.clone(), &x));
        let of_slots = |number: fn(f32) -> f32| windows.tensor(counts.iter().map(|&count| number(count)).collect(), &x);
        let has_key = (!is_whole).then(|| of_slots(|count| count.min(1.0)));
        let arranged = windows.arranged(x.clone());
        let slots = match self.kind {
            ProjectionKind::Linear => panic!("a linear projection has no windows"),
            ProjectionKind::MeanPooling => shown_of(arranged, shown).sum_dim(3) / of_slots(|count| count.max(1.0)),
            ProjectionKind::MaxPooling => {
                let least = hidden_logit(x.dtype());
                // Hidden positions are less than all visible ones.
                let arranged = match shown {
                    Some(shown) => arranged * shown.clone() + (shown * -1.0 + 1.0) * least,
                    None => arranged,
                };
                shown_of(arranged.max_dim(3), has_key)
            }
            ProjectionKind::Convolution => {
                let kernel = self.value().unsqueeze_dim::<4>(0).expand([batch, heads, size * width, width]);
                let joined = shown_of(arranged, shown).reshape([batch, heads, windows.count, size * width]);
                return (joined.matmul(kernel), counts);
            }
        };
        (slots.reshape([batch, heads, windows.count, width]), counts)
    }
}

/// Multiplies by 1 at visible positions and by 0 elsewhere.
fn shown_of(x: Tensor<5>, shown: Option<Tensor<5>>) -> Tensor<5> {
    match shown {
        Some(shown) => x * shown,
        None => x,
    }
}
