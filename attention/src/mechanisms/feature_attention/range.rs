//! Features outside the range of 32-bit floats, such as exponentials of large numbers.
//!
//! Weights are ratios of feature products. A factor common to all features of one query cancels, as does a factor `exp(-c_r)` of feature `r` of all keys, if
//! queries have its inverse. With log features `l`, keys become `exp(l_j - c_r)` and queries `exp(l_i + c_r - max)`, where `c_r` is the largest `l_j` of the
//! visible keys. Sums of weights are then neither near 0 nor infinite, and gradients stay finite.
//!
//! In causal attention `c_r` is the running maximum, carried with the state. When it grows, the state is multiplied by the exponential of the difference, as in
//! online softmax (Milakov and Gimelshein 2018): a decay per feature. A maximum over all keys would let later keys change earlier results. `c_r` is rounded, so
//! that it grows rarely.
//!
//! This path takes more time than plain features and serves only inputs that need it: calls with features [within range](are_within) skip it.

use burn::tensor::{Tensor, TensorData};

use crate::engine::recurrence::Recurrence;
use crate::tensors::read::read;

/// Log feature of a missing key.
const NONE: f32 = -1e30;

/// Step to which [`Running::causal`] rounds the largest log features; exponentials of half a step are far from the ends of the range.
const STEP: f64 = 32.0;

/// Log difference below which features do not contribute to a 32-bit sum.
const FURTHEST: f64 = -200.0;

/// Minimum sum of weights, and the inverse of the maximum: gradients divide by its square.
const LEAST_SUM: f64 = 1e-18;

/// Maximum product of features, since sums cover many of them.
const GREATEST_PRODUCT: f64 = 1e12;

/// Minimum query feature of decoding steps that read a state of plain features.
const LEAST_QUERY: f64 = 1e-15;

/// Minimum product of features that are scaled to a maximum of 1 per query and key; smaller products carry no information.
const LEAST_PRODUCT: f64 = 1e-30;

/// Maximum number of values materialised for feature-wise pairs.
const MOST_AT_ONCE: usize = 1 << 22;

/// Numbers of each batch row from columns `[B, 1]`, in one device read.
fn numbers<const N: usize>(columns: [Tensor<2>; N]) -> Vec<[f64; N]> {
    let numbers: Vec<f64> = read(Tensor::cat(columns.into(), 1)).iter::<f64>().collect();
    numbers.as_chunks::<N>().0.to_vec()
}

/// The numbers of each batch row, `[B, .]`.
fn rows(x: &Tensor<4>) -> Tensor<2> {
    let [batch, heads, length, width] = x.dims();
    x.clone().detach().reshape([batch, heads * length * width])
}

fn greatest(features: &Tensor<4>) -> Tensor<2> {
    rows(features).max_dim(1)
}

/// Minimum over queries of the largest feature.
fn least_query(queries: &Tensor<4>) -> Tensor<2> {
    rows(&queries.clone().detach().max_dim(3)).min_dim(1)
}

/// Per batch row: whether weights of queries `[B, H, Q, R]` and keys `[B, H, K, R]` can be computed from plain features. `firsts` `[B, H, 1, R]` are features
/// of keys visible to every query: the first key of each row, or the maximum per feature. Each row is decided separately, since no row may change the result of
/// another.
pub(super) fn are_within(queries: &Tensor<4>, keys: &Tensor<4>, firsts: Tensor<4>) -> Vec<bool> {
    let columns = [greatest(queries), greatest(keys), least_query(queries), rows(&firsts).min_dim(1)];
    let is_within =
        |[query, key, least_query, least_key]: [f64; 4]| query * key <= GREATEST_PRODUCT && least_query * least_key >= LEAST_SUM;
    numbers(columns).into_iter().map(is_within).collect()
}

/// Whether all keys that later queries read can stay plain.
pub(super) fn keys_are_within(keys: &Tensor<4>, firsts: Tensor<4>) -> bool {
    let is_within = |[key, least]: [f64; 2]| key <= GREATEST_PRODUCT.sqrt() && least >= LEAST_SUM.sqrt();
    numbers([greatest(keys), rows(&firsts).min_dim(1)]).into_iter().all(is_within)
}

/// The same for queries and keys `[B, H, N, R]` of a step from a state of plain features.
pub(super) fn step_is_within(queries: &Tensor<4>, keys: &Tensor<4>) -> bool {
    let is_within = |[query, key, least]: [f64; 3]| query * key <= GREATEST_PRODUCT && least >= LEAST_QUERY;
    numbers([greatest(queries), greatest(keys), least_query(queries)]).into_iter().all(is_within)
}

/// The same for queries that read a state written by plain keys.
pub(super) fn queries_are_within(queries: &Tensor<4>) -> bool {
    let is_within = |[query, least]: [f64; 2]| query <= GREATEST_PRODUCT.sqrt() && least >= LEAST_QUERY;
    numbers([greatest(queries), least_query(queries)]).into_iter().all(is_within)
}

/// Features `[B, H, 1, R]` of the first real key of each row, by flags `[B|1, N]`; 1 in rows without real keys.
pub(super) fn first_real(keys: &Tensor<4>, real: &[bool]) -> Tensor<4> {
    let [batch, heads, length, width] = keys.dims();
    let firsts: Vec<Option<usize>> = real.chunks(length).map(|row| row.iter().position(|&real| real)).collect();
    let at = |rows: Tensor<4>, first: Option<usize>| match first {
        Some(first) => rows.narrow(2, first, 1),
        None => Tensor::ones([rows.dims()[0], heads, 1, width], (&rows.device(), rows.dtype())),
    };
    if firsts.iter().all(|first| *first == firsts[0]) {
        return at(keys.clone(), firsts[0]);
    }
    Tensor::cat((0..batch).map(|row| at(keys.clone().narrow(0, row, 1), firsts[row])).collect(), 0)
}

/// Whether every row of `length` flags contains a real position.
pub(super) fn all_have_one(real: &[bool], length: usize) -> bool {
    real.chunks(length).all(|row| row.contains(&true))
}

/// Maximum per feature over the visible keys, `[B|1, K]`: `[B, H, 1, R]`; 1 in rows without visible keys.
pub(super) fn greatest_seen(keys: &Tensor<4>, seen: &[bool]) -> Tensor<4> {
    let has_one: Vec<f32> = seen.chunks(keys.dims()[2]).map(|row| if row.contains(&true) { 0.0 } else { 1.0 }).collect();
    let none = Tensor::<4>::from_data(TensorData::new(has_one.clone(), [has_one.len(), 1, 1, 1]), (&keys.device(), keys.dtype()));
    let keys = keys.clone().detach();
    let keys = match hidden(&keys, seen) {
        // Features are not negative.
        Some(hidden) => keys.mask_fill(hidden, 0.0),
        None => keys,
    };
    keys.max_dim(2) + none
}

/// `true` at hidden keys of `[B, H, K, R]`, by the visibility `[B|1, K]`; `None` if all are visible.
fn hidden(keys: &Tensor<4>, seen: &[bool]) -> Option<Tensor<4, burn::tensor::Bool>> {
    if seen.iter().all(|&seen| seen) {
        return None;
    }
    let shape = keys.dims();
    let rows = seen.len() / shape[2];
    let flags = TensorData::new(seen.iter().map(|&seen| if seen { 0i32 } else { 1 }).collect(), [rows, 1, shape[2], 1]);
    let flags = Tensor::<4, burn::tensor::Int>::from_data(flags, &keys.device());
    Some(flags.equal_elem(1).expand(shape))
}

fn without_hidden(keys: Tensor<4>, seen: &[bool]) -> Tensor<4> {
    match hidden(&keys, seen) {
        Some(hidden) => keys.mask_fill(hidden, NONE),
        None => keys,
    }
}

/// Log features of queries `[B, H, Q, R]`, up to a constant per query, and of keys `[B, H, K, R]`.
pub(super) struct Logarithms {
    pub queries: Tensor<4>,
    pub keys: Tensor<4>,
}

/// Features `[B, H, Q, R]` of queries that read sums without the factors `exp(scales)`, `[B, H, Q|1, R]`; the maximum per query is 1.
pub(super) fn scaled_queries(logarithms: Tensor<4>, scales: Tensor<4>) -> Tensor<4> {
    let logarithms = logarithms + scales;
    let greatest = logarithms.clone().detach().max_dim(3);
    (logarithms - greatest).exp()
}

impl Logarithms {
    /// Recurrence with causal visibility over real positions `[B|1, K]`, from a state whose sums lack the factors `exp(scales)`, `[B, H, 1, R]`. Also returns
    /// the scales of the final state. Queries are the last positions.
    pub(super) fn causal(self, values: Tensor<4>, real: &[bool], scales: Option<Tensor<4>>) -> (Recurrence, Tensor<4>) {
        let [batch, heads, length, width] = self.keys.dims();
        let keys = without_hidden(self.keys, real);
        let before = scales.unwrap_or_else(|| Tensor::full([batch, heads, 1, width], NONE, (&keys.device(), keys.dtype())));
        let rounded = (keys.clone().detach() / STEP).round() * STEP;
        let running = Tensor::cat(vec![before.detach(), rounded], 2).cummax(2);
        let current = running.clone().narrow(2, 1, length);
        let log_decay = (running.narrow(2, 0, length) - current.clone()).clamp_min(FURTHEST);
        let queries = self.queries.dims()[2];
        let recurrence = Recurrence {
            queries: scaled_queries(self.queries, current.clone().narrow(2, length - queries, queries)),
            keys: (keys - current.clone()).exp(),
            values,
            log_decay: Some(log_decay),
            strengths: None,
            normalised: true,
        };
        (recurrence, current.narrow(2, length - 1, 1))
    }

    /// Features of keys that are visible to all queries of a row, `[B|1, K]`, and the scales `[B, H, 1, R]` missing from their sums.
    pub(super) fn seen(keys: Tensor<4>, seen: &[bool]) -> (Tensor<4>, Tensor<4>) {
        let keys = without_hidden(keys, seen);
        let scales = keys.clone().detach().max_dim(2);
        ((keys - scales.clone()).exp(), scales)
    }

    /// Log weights of all pairs, `[B, H, Q, K]`, up to a constant per query.
    ///
    /// They are products of features that are scaled to a maximum of 1 per query and key. Queries with a pair whose product is too small are computed feature
    /// by feature, a few queries at a time, so peak memory is `n^2`, not `n^2 R`.
    pub(super) fn of_pairs(self) -> Tensor<4> {
        let Self { queries, keys } = self;
        let of_greatest_1 = |x: &Tensor<4>| {
            let greatest = x.clone().detach().max_dim(3);
            ((x.clone() - greatest.clone()).exp(), greatest)
        };
        let ((scaled_queries, of_queries), (scaled_keys, of_keys)) = (of_greatest_1(&queries), of_greatest_1(&keys));
        let products = scaled_queries.matmul(scaled_keys.swap_dims(2, 3));
        let is_small = products.clone().detach().lower_elem(LEAST_PRODUCT);
        let logarithms = products.clone().mask_fill(is_small.clone(), 1.0).log() + of_queries + of_keys.swap_dims(2, 3);
        let least: Vec<f64> = read(products.detach().min_dim(3).min_dim(1).min_dim(0)).iter::<f64>().collect();
        if least.iter().all(|&least| least >= LEAST_PRODUCT) {
            return logarithms;
        }
        let [batch, heads, length, width] = keys.dims();
        let at_once = (MOST_AT_ONCE / (batch * heads * length * width)).max(1);
        let by_feature = |first: usize, count: usize| {
            let sums = queries.clone().narrow(2, first, count).unsqueeze_dim::<5>(3) + keys.clone().unsqueeze_dim::<5>(2);
            let greatest = sums.clone().detach().max_dim(4);
            ((sums - greatest.clone()).exp().sum_dim(4).log() + greatest).squeeze_dim::<4>(4)
        };
        let (mut parts, mut first) = (Vec::new(), 0);
        // The choice of method for a pair depends only on its own query and key.
        for run in least.chunk_by(|one, other| (*one >= LEAST_PRODUCT) == (*other >= LEAST_PRODUCT)) {
            let end = first + run.len();
            let at_once = if run[0] >= LEAST_PRODUCT { run.len() } else { at_once };
            for first in (first..end).step_by(at_once) {
                let count = at_once.min(end - first);
                let part = logarithms.clone().narrow(2, first, count);
                let small = is_small.clone().narrow(2, first, count);
                parts.push(if run[0] >= LEAST_PRODUCT { part } else { part.mask_where(small, by_feature(first, count)) });
            }
            first = end;
        }
        Tensor::cat(parts, 2)
    }
}

/// Per batch row: whether sums of weights `[B, H, Q, 1]` are safe divisors, for queries with a visible key: 1 in `has_key`, or all if absent.
pub(super) fn sums_are_within(sums: Tensor<4>, has_key: Option<&Tensor<4>>) -> Vec<bool> {
    let sums = sums.detach();
    let sums = match has_key {
        Some(has_key) => sums * has_key.clone() + (has_key.clone().neg() + 1.0),
        None => sums,
    };
    let is_within = |[least, greatest, total]: [f64; 3]| least >= LEAST_SUM && greatest <= LEAST_SUM.recip() && total.is_finite();
    let sums = rows(&sums);
    numbers([sums.clone().min_dim(1), sums.clone().max_dim(1), sums.sum_dim(1)]).into_iter().map(is_within).collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    fn logarithms(shape: [usize; 4], spread: f64, device: &Device) -> Logarithms {
        let random = |shape| Tensor::<4>::random(shape, Distribution::Uniform(-spread, spread), device);
        Logarithms { queries: random(shape), keys: random(shape) }
    }

    fn numbers(x: Tensor<4>) -> Vec<f64> {
        read(x).iter::<f64>().collect()
    }

    #[test]
    fn logarithms_of_weights_are_those_of_sums_over_features() {
        // Small products in no query, in some and in nearly all.
        for spread in [1.0, 60.0, 120.0, 4000.0] {
            let device = Device::flex().autodiff();
            let Logarithms { queries, keys } = logarithms([2, 2, 5, 3], spread, &device);
            let (queries, keys) = (queries.require_grad(), keys.require_grad());
            let found = Logarithms { queries: queries.clone(), keys: keys.clone() }.of_pairs();
            let (q, k) = (numbers(queries.clone()), numbers(keys.clone()));
            for (at, found) in numbers(found.clone()).into_iter().enumerate() {
                let (place, query, key) = (at / 25, at / 5 % 5, at % 5);
                let terms: Vec<f64> = (0..3).map(|r| q[(place * 5 + query) * 3 + r] + k[(place * 5 + key) * 3 + r]).collect();
                let greatest = terms.iter().copied().fold(f64::MIN, f64::max);
                let expected = greatest + terms.iter().map(|term| (term - greatest).exp()).sum::<f64>().ln();
                assert!((found - expected).abs() < 1e-6 * (spread + 3.0), "{spread}: {found} is not {expected}");
            }
            // The slopes are the shares of features in the weights: per query they sum to the number of keys.
            let slopes = numbers(queries.grad(&found.sum().backward()).unwrap().sum_dim(3));
            assert!(slopes.iter().all(|sum| (sum - 5.0).abs() < 1e-4), "{spread}: {slopes:?}");
        }
    }

    #[test]
    fn weights_of_pairs_take_no_memory_for_each_feature() {
        // Every feature of every pair at the same time would take 17 GB.
        let Logarithms { queries, keys } = logarithms([1, 1, 4096, 256], 1.0, &Device::flex());
        let of_pairs = Logarithms { queries, keys }.of_pairs();
        assert_eq!(of_pairs.dims(), [1, 1, 4096, 4096]);
        assert!(of_pairs.sum().into_scalar::<f32>().is_finite());
    }
}
