//! Features that leave the range of 32-bit floats, such as exponentials of large numbers.
//!
//! Weights are ratios of products of features. A factor of all features of one query cancels, and so does a factor of one feature of all keys, `exp(-c_r)`, if
//! queries have its inverse. With `l` for logarithms of features, keys become `exp(l_j - c_r)` and queries `exp(l_i + c_r - max)`, where `c_r` is the greatest
//! `l_j` of the keys that are seen. Sums of weights are then neither near 0 nor infinite, and no gradient is.
//!
//! In causal attention `c_r` is the greatest one so far, which is carried with the state. What was written before it grows is multiplied by the exponential of the
//! difference, as online softmax does (Milakov and Gimelshein 2018): a decay of each feature. A maximum over all keys would let later keys change what comes
//! before them. `c_r` is rounded, so that it grows rarely.
//!
//! This takes more time than plain features, and is for inputs which need it: calls whose features are [within range](are_within) do not.

use burn::tensor::{Tensor, TensorData};

use crate::engine::recurrence::Recurrence;
use crate::read::read;

/// Stands for the logarithm of a feature of no key.
const NONE: f32 = -1e30;

/// What [`Running::causal`] rounds the greatest logarithms to: exponentials of half of it are far from the ends of the range.
const STEP: f64 = 32.0;

/// Features of a greater difference than this have no part in a sum of 32-bit floats.
const FURTHEST: f64 = -200.0;

/// Sums of weights must not be less, nor greater than the inverse: gradients divide by their squares.
const LEAST_SUM: f64 = 1e-18;

/// Products of features must not be greater: sums are over many of them.
const GREATEST_PRODUCT: f64 = 1e12;

/// Queries of steps that read from a state of plain features must have one that is not less.
const LEAST_QUERY: f64 = 1e-15;

/// Numbers of each batch row, which are read together, from columns `[B, 1]`.
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

/// The least of the greatest features of each query.
fn least_query(queries: &Tensor<4>) -> Tensor<2> {
    rows(&queries.clone().detach().max_dim(3)).min_dim(1)
}

/// In which batch rows weights of queries `[B, H, Q, R]` and keys `[B, H, K, R]` can be computed from their features as they are. `firsts` `[B, H, 1, R]` are
/// features of keys that every query sees at least: the first key of each row, or of each feature the greatest. It is asked of each row by itself, since no row
/// may change what another one gives.
pub(super) fn are_within(queries: &Tensor<4>, keys: &Tensor<4>, firsts: Tensor<4>) -> Vec<bool> {
    let columns = [greatest(queries), greatest(keys), least_query(queries), rows(&firsts).min_dim(1)];
    let is_within =
        |[query, key, least_query, least_key]: [f64; 4]| query * key <= GREATEST_PRODUCT && least_query * least_key >= LEAST_SUM;
    numbers(columns).into_iter().map(is_within).collect()
}

/// Whether all keys can be as they are that queries read later.
pub(super) fn keys_are_within(keys: &Tensor<4>, firsts: Tensor<4>) -> bool {
    let is_within = |[key, least]: [f64; 2]| key <= GREATEST_PRODUCT.sqrt() && least >= LEAST_SUM.sqrt();
    numbers([greatest(keys), rows(&firsts).min_dim(1)]).into_iter().all(is_within)
}

/// The same of queries and keys `[B, H, N, R]` of a step from a state of plain features.
pub(super) fn step_is_within(queries: &Tensor<4>, keys: &Tensor<4>) -> bool {
    let is_within = |[query, key, least]: [f64; 3]| query * key <= GREATEST_PRODUCT && least >= LEAST_QUERY;
    numbers([greatest(queries), greatest(keys), least_query(queries)]).into_iter().all(is_within)
}

/// The same of queries that read what plain keys wrote.
pub(super) fn queries_are_within(queries: &Tensor<4>) -> bool {
    let is_within = |[query, least]: [f64; 2]| query <= GREATEST_PRODUCT.sqrt() && least >= LEAST_QUERY;
    numbers([greatest(queries), least_query(queries)]).into_iter().all(is_within)
}

/// Features of the first key of each row `[B, H, 1, R]` that is real, `[B|1, N]`; 1 in rows without one.
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

/// Whether every row of `length` flags has a real position.
pub(super) fn all_have_one(real: &[bool], length: usize) -> bool {
    real.chunks(length).all(|row| row.contains(&true))
}

/// The greatest feature of the keys that are seen, `[B|1, K]`, `[B, H, 1, R]`; 1 in rows that see none.
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

/// `true` where keys `[B, H, K, R]` are not seen, `[B|1, K]`, if there are such.
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

/// Logarithms of features of queries `[B, H, Q, R]`, up to a number for each query, and of keys `[B, H, K, R]`.
pub(super) struct Logarithms {
    pub queries: Tensor<4>,
    pub keys: Tensor<4>,
}

/// Features `[B, H, Q, R]` of queries that read sums which lack the factors `exp(scales)`, `[B, H, Q|1, R]`: the greatest of a query is 1.
pub(super) fn scaled_queries(logarithms: Tensor<4>, scales: Tensor<4>) -> Tensor<4> {
    let logarithms = logarithms + scales;
    let greatest = logarithms.clone().detach().max_dim(3);
    (logarithms - greatest).exp()
}

impl Logarithms {
    /// The recurrence in which real positions `[B|1, K]` see the real ones up to themselves, from a state whose sums lack the factors `exp(scales)`,
    /// `[B, H, 1, R]`, and the scales of the state after it. Queries are the last ones of the positions.
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

    /// Features of keys of which all queries of a row see the same ones, `[B|1, K]`, and the scales `[B, H, 1, R]` that their sums lack.
    pub(super) fn seen(keys: Tensor<4>, seen: &[bool]) -> (Tensor<4>, Tensor<4>) {
        let keys = without_hidden(keys, seen);
        let scales = keys.clone().detach().max_dim(2);
        ((keys - scales.clone()).exp(), scales)
    }

    /// Logarithms of the weights of all pairs, `[B, H, Q, K]`, up to a number for each query. Time and memory `n^2 R`.
    pub(super) fn of_pairs(self) -> Tensor<4> {
        let sums = self.queries.unsqueeze_dim::<5>(3) + self.keys.unsqueeze_dim::<5>(2);
        let greatest = sums.clone().detach().max_dim(4);
        ((sums - greatest.clone()).exp().sum_dim(4).log() + greatest).squeeze_dim(4)
    }
}

/// In which batch rows sums of weights `[B, H, Q, 1]` can be divided by, of queries with a key: 1 of `has_key`, and all if it is absent.
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
