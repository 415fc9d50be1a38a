//! Maps along a sequence, `n` positions to `k` slots: linear ones, and pooling or a convolution of windows that do not overlap.

use burn::module::RunningState;

use crate::contract::visibility::hidden_logit;
use crate::engine::columns_from;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::starts;

/// How positions become slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProjectionKind {
    /// A matrix from all positions to all slots.
    #[default]
    Linear,
    /// Each slot is the mean of a window of successive positions.
    MeanPooling,
    /// Each slot has the greatest number of a window in each channel.
    MaxPooling,
    /// Each slot is a linear map of a window, the same for all windows: a convolution whose stride is as long as its kernel.
    Convolution,
}

impl ProjectionKind {
    /// Whether slots are those of windows.
    pub fn has_windows(self) -> bool {
        self != Self::Linear
    }

    /// Whether there is nothing to train.
    pub fn is_pooling(self) -> bool {
        matches!(self, Self::MeanPooling | Self::MaxPooling)
    }
}

/// Positions of a window where the longest sequence has `rank` windows at most.
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
    /// Normal with variance `1/k`, for which the bounds hold that the paper derives from Johnson and Lindenstrauss (Wang et al. 2020, section 4).
    Normal,
}

/// A map of the positions of a sequence to slots, trained or frozen.
///
/// Dimension letters: `P` matrices (one, or one for each head), `k` slots, `L` greatest length, `s` positions of a window, `D` width of a head.
#[derive(Module, Debug)]
pub struct SequenceProjection {
    /// Trained matrix `[P, k, L]`; of a convolution, `[P, s D, D]`, earliest position first.
    pub matrix: Option<Param<Tensor<3>>>,
    /// Frozen matrix of the same shape.
    pub frozen_matrix: Option<RunningState<Tensor<3>>>,
    #[module(skip)]
    kind: ProjectionKind,
    /// `P`, `k` and `L`.
    #[module(skip)]
    sizes: [usize; 3],
}

/// Where the positions of a sequence stand in windows.
struct Windows {
    /// Positions of a window, `s`.
    size: usize,
    /// Windows, `w`.
    count: usize,
    /// Padding elements before the first position of each row, if there are any.
    padding: Option<Vec<usize>>,
    /// 1 for positions that are seen and 0 for others, `[B, w, s]`.
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

    /// How many positions of each window are seen, `[B w]`.
    fn seen(&self) -> Vec<f32> {
        self.shown.chunks(self.size).map(|window| window.iter().sum()).collect()
    }

    /// `[B, 1, w, s or 1, 1]`.
    fn tensor(&self, numbers: Vec<f32>, like: &Tensor<4>) -> Tensor<5> {
        let [rows, ..] = like.dims();
        let last = numbers.len() / (rows * self.count);
        Tensor::from_data(TensorData::new(numbers, [rows, 1, self.count, last, 1]), (&like.device(), like.dtype()))
    }

    /// The positions of `x` `[B, H, N, D]` in their windows, `[B, H, w, s, D]`.
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
    /// Draws a projection of shape `[P, k, L]`.
    pub fn new(shape: [usize; 3], init: ProjectionInit, trainable: bool, key: &RandomKey, device: &Device) -> Self {
        let [_, rank, max_length] = shape;
        let init = match init {
            // Twice the fans halve the variance: a gain of 1/sqrt(2).
            ProjectionInit::Xavier => Init::XavierUniform { fan_in: 2 * max_length, fan_out: 2 * rank },
            ProjectionInit::Normal => Init::Normal((rank as f32).powf(-0.5)),
        };
        Self::of_matrix(ProjectionKind::Linear, shape, Some(init.tensor(shape, key, device)), trainable)
    }

    /// A projection of windows to `[P, k, L]`; that of a convolution, of channels of heads `d_head` wide, is drawn Xavier-uniform with gain `1/sqrt(2)`.
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

    /// How positions become slots.
    pub fn kind(&self) -> ProjectionKind {
        self.kind
    }

    /// Whether another projection could stand in the place of this one.
    pub fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.shape() == other.shape() && self.matrix.is_some() == other.matrix.is_some()
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

    /// `[B, H, N, D]` to one slot for each window, `[B, H, w, D]`, taking only the positions of each row that are `seen`, and for each slot how many these are,
    /// `[B w]`. A slot of none is 0. Positions are counted in each row from its first real element.
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
                // What is hidden is less than anything that is seen.
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

/// The numbers times 1 where they are shown and 0 elsewhere.
fn shown_of(x: Tensor<5>, shown: Option<Tensor<5>>) -> Tensor<5> {
    match shown {
        Some(shown) => x * shown,
        None => x,
    }
}
