//! Means of values by the weights `exp(k_j + w_ij)`, per channel. A number per query, key and channel is materialised only for arbitrary pairs.
//!
//! The largest scores are subtracted before the exponential: per channel for keys, per row for biases. Results of a causal query come only from blocks of
//! earlier keys, so no later key affects the subtracted number. All computation is in 32 bits.
//!
//! Dimension letters: `B` batch rows, `N` positions, `Q` queries, `K` keys, `C` channels, `P` blocks.

use burn::tensor::{DType, Int, Tensor, TensorData};

use crate::contract::visibility::{DenseMask, hidden_logit, least_visible_logit};

/// The score of a hidden key.
pub(super) const HIDDEN: f32 = hidden_logit(DType::F32);

/// Means of values, and their divisors: sums of weights, relative to the exponentials of the largest scores. Without a visible key the mean is 0, the sum 1 and
/// the score about [`HIDDEN`]. The largest scores carry no gradient; the sums carry all of it.
#[derive(Clone, Debug)]
pub(super) struct Means<const D: usize> {
    pub(super) values: Tensor<D>,
    sums: Tensor<D>,
    greatest: Tensor<D>,
}

impl<const D: usize> Means<D> {
    /// One mean per key.
    fn of_one(values: Tensor<D>, scores: Tensor<D>) -> Self {
        let greatest = scores.clone().detach();
        Self { values, sums: (scores - greatest.clone()).exp(), greatest }
    }

    /// The score of a single key with the same weight.
    pub(super) fn score(&self) -> Tensor<D> {
        self.sums.clone().log() + self.greatest.clone()
    }

    /// Means over the keys of both operands.
    fn joined(self, other: Self) -> Self {
        let greatest = self.greatest.clone().max_pair(other.greatest.clone());
        let own = self.sums * (self.greatest - greatest.clone()).exp();
        let others = other.sums * (other.greatest - greatest.clone()).exp();
        let sums = own + others.clone();
        Self { values: self.values.clone() + (other.values - self.values) * (others / sums.clone()), sums, greatest }
    }

    fn map<const E: usize>(&self, map: impl Fn(Tensor<D>) -> Tensor<E>) -> Means<E> {
        let Self { values, sums, greatest } = self;
        Means { values: map(values.clone()), sums: map(sums.clone()), greatest: map(greatest.clone()) }
    }

    fn zip<const E: usize>(self, other: Self, zip: impl Fn(Tensor<D>, Tensor<D>) -> Tensor<E>) -> Means<E> {
        Means { values: zip(self.values, other.values), sums: zip(self.sums, other.sums), greatest: zip(self.greatest, other.greatest) }
    }
}

/// Replaces entries whose scores are those of hidden keys by 0.
fn without_hidden<const D: usize>(x: Tensor<D>, scores: Tensor<D>) -> Tensor<D> {
    x.mask_fill(scores.lower_elem(least_visible_logit(DType::F32)), 0.0)
}

/// Maximum along a dimension. With fusion, Burn 0.22.1 generates a kernel that does not compile for a reduction over one element.
fn greatest<const D: usize>(x: Tensor<D>, dim: usize) -> Tensor<D> {
    if x.dims()[dim] == 1 { x } else { x.max_dim(dim) }
}

fn sum<const D: usize>(x: Tensor<D>, dim: usize) -> Tensor<D> {
    if x.dims()[dim] == 1 { x } else { x.sum_dim(dim) }
}

/// `[B|1, P, Q, K]` times `[B, P, K, C]`.
fn product(factors: Tensor<4>, x: Tensor<4>) -> Tensor<4> {
    let [rows, blocks, queries, keys] = factors.dims();
    let batch = x.dims()[0];
    if keys == 1 {
        return factors * x;
    }
    let factors = if rows == batch { factors } else { factors.expand([batch, blocks, queries, keys]) };
    factors.matmul(x)
}

/// Means for queries that all see the keys of their own block: keys and values `[B, P, K, C]`, biases `[B|1, P, Q, K]`. Without biases all queries share the
/// means `[B, P, 1, C]`.
///
/// If two biases of one query are more than 80 apart, the smaller bias is lost even where its key is the heavier.
pub(super) fn over_blocks(keys: Tensor<4>, values: Tensor<4>, biases: Option<Tensor<4>>) -> Means<4> {
    let top = greatest(keys.clone().detach(), 2);
    let weights = without_hidden((keys.clone() - top.clone()).exp(), keys);
    let weighted = weights.clone() * values;
    let (sums, weighted, top) = match biases {
        None => (sum(weights, 2), sum(weighted, 2), top),
        Some(biases) => {
            let greatest = greatest(biases.clone().detach(), 3);
            let factors = (biases - greatest.clone()).exp();
            (product(factors.clone(), weights), product(factors, weighted), top + greatest)
        }
    };
    let is_empty = sums.clone().equal_elem(0.0);
    let sums = sums.mask_fill(is_empty.clone(), 1.0);
    let shape = weighted.dims();
    Means { values: weighted / sums.clone(), sums, greatest: top.expand(shape).mask_fill(is_empty, HIDDEN) }
}

/// Means for queries that all see the same keys: keys and values `[B, K, C]`, biases `[B|1, Q, K]`. Returns `[B, Q, C]`, or `[B, 1, C]` without biases.
pub(super) fn over_all(keys: Tensor<3>, values: Tensor<3>, biases: Option<Tensor<3>>) -> Tensor<3> {
    let block = |x: Tensor<3>| x.unsqueeze_dim::<4>(1);
    over_blocks(block(keys), block(values), biases.map(block)).values.squeeze_dim(1)
}

/// Means over each position and all positions before it: keys and values `[B, N, C]`, biases `[B|1, N, N]`.
pub(super) fn over_past(keys: Tensor<3>, values: Tensor<3>, biases: Option<Tensor<3>>) -> Means<3> {
    let positions = keys.dims()[1];
    let length = positions.next_power_of_two();
    let keys = followed_by(keys, 1, length, HIDDEN);
    let values = without_hidden(followed_by(values, 1, length, 0.0), keys.clone());
    let means = match biases {
        None => prefixes(Means::of_one(values, keys)),
        Some(biases) => in_rounds(keys, values, followed_by(followed_by(biases, 1, length, 0.0), 2, length, 0.0)),
    };
    if length == positions { means } else { means.map(|x| x.narrow(1, 0, positions)) }
}

/// Prefix means over `N` positions, a power of two, from the means of single positions, in `O(N)` time and memory. Pairs are joined recursively; the prefix of
/// a pair is that of its second position.
fn prefixes(each: Means<3>) -> Means<3> {
    let [batch, length, width] = each.values.dims();
    if length == 1 {
        return each;
    }
    let half = length / 2;
    let pairs = each.map(|x| x.reshape([batch, half, 2, width]));
    let [first, second] = [0, 1].map(|place| pairs.map(|x| x.narrow(2, place, 1).reshape([batch, half, width])));
    let second = prefixes(first.clone().joined(second));
    let behind = |number: f32, x: &Tensor<3>| {
        let nothing = Tensor::full([batch, 1, width], number, (&x.device(), x.dtype()));
        Tensor::cat(vec![nothing, x.clone()], 1).narrow(1, 0, half)
    };
    let before = Means { values: behind(0.0, &second.values), sums: behind(1.0, &second.sums), greatest: behind(HIDDEN, &second.greatest) };
    before.joined(first).zip(second, |first, second| Tensor::stack::<4>(vec![first, second], 2).reshape([batch, length, width]))
}

/// Prefix means over `N` positions with biases, `N` a power of two. Each of `log2 N` rounds adds the first half of each block to its second half, then doubles
/// the block length.
fn in_rounds(keys: Tensor<3>, values: Tensor<3>, biases: Tensor<3>) -> Means<3> {
    let [batch, length, width] = keys.dims();
    let mut means = Means::of_one(values.clone(), keys.clone() + diagonal(biases.clone()));
    let mut half = 1;
    while half < length {
        let blocks = length / (2 * half);
        let part = |x: Tensor<3>, start: usize| x.reshape([batch, blocks, 2 * half, width]).narrow(2, start, half);
        let before = over_blocks(part(keys.clone(), 0), part(values.clone(), 0), Some(of_halves(biases.clone(), half)));
        let (first, second) = (means.map(|x| part(x, 0)), means.map(|x| part(x, half)).joined(before));
        means = first.zip(second, |first, second| Tensor::cat(vec![first, second], 2).reshape([batch, length, width]));
        half *= 2;
    }
    means
}

/// Pads the tensor with a number along a dimension to `length`.
fn followed_by(x: Tensor<3>, dim: usize, length: usize, number: f32) -> Tensor<3> {
    let mut shape = x.dims();
    if shape[dim] == length {
        return x;
    }
    shape[dim] = length - shape[dim];
    let further = Tensor::full(shape, number, (&x.device(), x.dtype()));
    Tensor::cat(vec![x, further], dim)
}

/// Diagonal `[R, N, 1]` of `[R, N, N]`.
fn diagonal(x: Tensor<3>) -> Tensor<3> {
    let [rows, length, _] = x.dims();
    let indices = (0..length).map(|index| (index * (length + 1)) as i32).collect();
    let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [length]), &x.device());
    x.reshape([rows, length * length]).select(1, indices).reshape([rows, length, 1])
}

/// Biases `[R, N, N]` between the second halves of blocks of `2 half` positions and the first halves of the same blocks, `[R, P, half, half]`.
fn of_halves(biases: Tensor<3>, half: usize) -> Tensor<4> {
    let [rows, length, _] = biases.dims();
    let blocks = length / (2 * half);
    let halves = biases.reshape([rows, blocks, 2 * half, blocks, 2 * half]).narrow(2, half, half).narrow(4, 0, half);
    if blocks == 1 {
        return halves.reshape([rows, 1, half, half]);
    }
    let indices = (0..blocks).map(|block| (block * (blocks + 1)) as i32).collect();
    let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [blocks]), &halves.device());
    halves.swap_dims(2, 3).reshape([rows, blocks * blocks, half, half]).select(1, indices)
}

/// Means for arbitrary pairs: keys and values `[B, H, K, D]`, biases `[B|1, Q, K]`. Returns `[B, H, Q, D]`; materialises a number per query, key and channel.
pub(super) fn over_pairs(
    keys: Tensor<4>,
    values: Tensor<4>,
    biases: Option<Tensor<3>>,
    mask: Option<DenseMask>,
    queries: usize,
) -> Tensor<4> {
    let [batch, heads, length, width] = keys.dims();
    let mut scores = keys.unsqueeze_dim::<5>(2).expand([batch, heads, queries, length, width]);
    if let Some(biases) = biases {
        let rows = biases.dims()[0];
        scores = scores + biases.reshape([rows, 1, queries, length, 1]);
    }
    if let Some(mask) = &mask {
        scores = scores + mask.bias.clone().unsqueeze_dim::<5>(4);
    }
    let top = greatest(scores.clone().detach(), 3);
    let weights = (scores - top).exp();
    let weighted = sum(weights.clone() * values.unsqueeze_dim::<5>(2), 3);
    let means = (weighted / sum(weights, 3)).squeeze_dim::<4>(3);
    match mask.and_then(|mask| mask.has_key) {
        Some(has_key) => means * has_key,
        None => means,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    use crate::description::array::{Array, same};

    /// Softmax by plain loops over the keys visible by `sees`.
    fn plain(keys: &Array, values: &Array, biases: Option<&Array>, sees: impl Fn(usize, usize) -> bool) -> Array {
        let [length, width] = keys.shape[1..] else { unreachable!() };
        Array::from_fn([1, length, width], |[_, i, c]| {
            let seen: Vec<usize> = (0..length).filter(|&j| sees(i, j)).collect();
            let score = |j: usize| keys.at(&[0, j, c]) + biases.map_or(0.0, |biases| biases.at(&[0, i, j]));
            let top = seen.iter().map(|&j| score(j)).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = seen.iter().map(|&j| (score(j) - top).exp()).sum();
            let weighted: f64 = seen.iter().map(|&j| (score(j) - top).exp() * values.at(&[0, j, c])).sum();
            if seen.is_empty() { 0.0 } else { weighted / sum }
        })
    }

    fn scaled(mut x: Array, factor: f64) -> Array {
        x.values.iter_mut().for_each(|x| *x *= factor);
        x
    }

    #[test]
    fn means_are_those_of_plain_loops_however_large_keys_are() {
        let device = Device::flex();
        for (length, factor) in [1, 2, 3, 4, 7, 8, 13].into_iter().flat_map(|length| [1.0, 100.0, 1e4].map(|factor| (length, factor))) {
            let keys = scaled(Array::random("keys", &[1, length, 3]), factor);
            let (values, biases) = (Array::random("values", &[1, length, 3]), scaled(Array::random("biases", &[1, length, length]), 4.0));
            let tensor = |x: &Array| x.tensor::<3>(&device);
            // A score is rounded to about 1e-7 of its magnitude.
            let tolerance = 1e-6 * f64::max(factor, 10.0);
            for biases in [None, Some(&biases)] {
                let what = format!("length {length}, keys times {factor}, biases {}", biases.is_some());
                let found = over_past(tensor(&keys), tensor(&values), biases.map(tensor)).values;
                let expected = plain(&keys, &values, biases, |i, j| j <= i);
                same(&format!("{what}, past"), &Array::read(found).values, &expected.values, tolerance).unwrap();
                let found = over_all(tensor(&keys), tensor(&values), biases.map(tensor));
                let found = found.expand([1, length, 3]);
                let expected = plain(&keys, &values, biases, |_, _| true);
                same(&format!("{what}, all"), &Array::read(found).values, &expected.values, tolerance).unwrap();
                let heads = |x: &Array| x.tensor::<3>(&device).unsqueeze_dim::<4>(1);
                let found = over_pairs(heads(&keys), heads(&values), biases.map(tensor), None, length);
                same(&format!("{what}, pairs"), &Array::read(found).values, &expected.values, tolerance).unwrap();
            }
        }
    }

    #[test]
    fn a_later_key_moves_no_bit_of_a_mean() {
        let device = Device::flex();
        let (keys, values) = (Array::random("keys", &[1, 11, 3]), Array::random("values", &[1, 11, 3]));
        let biases = Array::random("biases", &[1, 11, 11]);
        let run = |keys: &Array| Array::read(over_past(keys.tensor(&device), values.tensor(&device), Some(biases.tensor(&device))).values);
        let before = run(&keys);
        for changed in 1..11 {
            let mut other = keys.clone();
            other.row_mut(&[0, changed]).iter_mut().for_each(|key| *key = 90.0);
            assert_eq!(run(&other).slice(0..changed), before.slice(0..changed), "key {changed}");
        }
    }

    #[test]
    fn hidden_keys_have_no_weight_and_gradients_are_finite() {
        let device = Device::flex().autodiff();
        let hidden = |j: usize| j != 2;
        let mut keys = Array::random("keys", &[1, 4, 3]);
        (0..4).filter(|&j| hidden(j)).for_each(|j| keys.row_mut(&[0, j]).fill(f64::from(HIDDEN)));
        let values = Array::random("values", &[1, 4, 3]);
        let (k, v) = (keys.tensor::<3>(&device).require_grad(), values.tensor::<3>(&device).require_grad());
        let found = over_past(k.clone(), v.clone(), None).values;
        let gradients = found.clone().sum().backward();
        let found = Array::read(found.inner());
        assert!(found.row(&[0, 0]).iter().chain(found.row(&[0, 1])).all(|&mean| mean == 0.0), "{found:?}");
        assert_eq!((found.row(&[0, 2]), found.row(&[0, 3])), (values.row(&[0, 2]), values.row(&[0, 2])));
        let of_values = Array::read(v.grad(&gradients).unwrap());
        assert_eq!(of_values.values, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0]);
        assert!(Array::read(k.grad(&gradients).unwrap()).values.iter().all(|gradient| *gradient == 0.0));
    }
}
