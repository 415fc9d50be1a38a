//! Formulas in double precision, in plain loops.

use super::case::{Tensor, tensor};

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Elements of two tensors joined.
pub(super) fn zipped(a: &Tensor, b: &Tensor, join: impl Fn(f64, f64) -> f64) -> Tensor {
    assert_eq!(a.shape, b.shape);
    tensor(&a.shape, a.values.iter().zip(&b.values).map(|(&a, &b)| join(a, b)).collect())
}

pub(super) fn each(x: &Tensor, change: impl Fn(f64) -> f64) -> Tensor {
    tensor(&x.shape, x.values.iter().map(|&x| change(x)).collect())
}

pub(super) fn sum(a: &Tensor, b: &Tensor) -> Tensor {
    zipped(a, b, |a, b| a + b)
}

/// `x W + b` over the last dimension, `W` `[in, out]`.
pub(super) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let [rows, columns] = weight.shape[..] else { panic!("{:?}", weight.shape) };
    let at = |row: &[f64], out: usize| (0..rows).map(|c| row[c] * weight.values[c * columns + out]).sum::<f64>();
    let one = |row: &[f64]| (0..columns).map(|out| at(row, out) + bias.map_or(0.0, |bias| bias.values[out])).collect::<Vec<_>>();
    let mut shape = x.shape.clone();
    *shape.last_mut().unwrap() = columns;
    tensor(&shape, x.values.chunks(rows).flat_map(one).collect())
}

/// `(x - mean) / sqrt(variance + 1e-6) γ + β` over the last dimension.
pub(super) fn layer_norm(x: &Tensor, gamma: &Tensor, beta: &Tensor) -> Tensor {
    let width = gamma.values.len();
    let one = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let norm = |c: usize| (row[c] - mean) / (variance + 1e-6).sqrt() * gamma.values[c] + beta.values[c];
        (0..width).map(norm).collect::<Vec<_>>()
    };
    tensor(&x.shape, x.values.chunks(width).flat_map(one).collect())
}

/// Rows of `a` and then rows of `b` along the second of three dimensions.
pub(super) fn followed(a: &Tensor, b: &Tensor) -> Tensor {
    let [batch, first, width] = a.shape[..] else { panic!("{:?}", a.shape) };
    let rows = a.values.chunks(first * width).zip(b.values.chunks(b.shape[1] * width));
    tensor(&[batch, first + b.shape[1], width], rows.flat_map(|(a, b)| [a, b].concat()).collect())
}

/// Positions `from .. from + count`.
pub(super) fn part(x: &Tensor, from: usize, count: usize) -> Tensor {
    let [batch, length, width] = x.shape[..] else { panic!("{:?}", x.shape) };
    let rows = x.values.chunks(length * width).flat_map(|row| row[from * width..(from + count) * width].to_vec());
    tensor(&[batch, count, width], rows.collect())
}

/// Weights `[B, H, Q, K]` of the softmax over the keys that have a logit, and 0 where a query has none.
pub(super) fn softmax(shape: [usize; 4], logit: impl Fn(usize, usize, usize, usize) -> Option<f64>) -> Tensor {
    let [batch, heads, queries, keys] = shape;
    let mut weights = Vec::with_capacity(batch * heads * queries * keys);
    for (b, h, i) in (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..queries).map(move |i| (b, h, i)))) {
        let exponentials: Vec<f64> = (0..keys).map(|j| logit(b, h, i, j).map_or(0.0, f64::exp)).collect();
        let sum: f64 = exponentials.iter().sum();
        weights.extend(exponentials.iter().map(|exponential| if sum == 0.0 { 0.0 } else { exponential / sum }));
    }
    tensor(&shape, weights)
}

/// Values `[B, K, C]` weighted, heads side by side in `C`.
pub(super) fn weighted(weights: &Tensor, values: &Tensor) -> Tensor {
    let [batch, heads, queries, keys] = weights.shape[..] else { panic!("{:?}", weights.shape) };
    let width = values.shape[2];
    let of_head = width / heads;
    let mut mixed = tensor(&[batch, queries, width], vec![0.0; batch * queries * width]);
    for (at, weight) in weights.values.iter().enumerate() {
        let (j, i, h, b) = (at % keys, at / keys % queries, at / keys / queries % heads, at / keys / queries / heads);
        for c in h * of_head..(h + 1) * of_head {
            mixed.values[(b * queries + i) * width + c] += weight * values.values[(b * keys + j) * width + c];
        }
    }
    mixed
}

/// Scaled products of queries and keys, heads side by side.
pub(super) fn scores<'a>(query: &'a Tensor, key: &'a Tensor, heads: usize) -> impl Fn(usize, usize, usize, usize) -> f64 + 'a {
    let width = query.shape[2];
    let of_head = width / heads;
    let at = move |x: &Tensor, b: usize, row: usize, c: usize| x.values[(b * x.shape[1] + row) * width + c];
    move |b, h, i, j| {
        let channels = h * of_head..(h + 1) * of_head;
        channels.map(|c| at(query, b, i, c) * at(key, b, j, c)).sum::<f64>() / (of_head as f64).sqrt()
    }
}
