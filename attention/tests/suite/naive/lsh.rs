//! LSH attention (Kitaev, Kaiser and Levskaya 2020, section 2): the set of candidates of each query in each round, and one softmax over their union.

use burn::tensor::Tensor;
use heedful_attention::init::Init;
use heedful_attention::mechanisms::lsh::{BucketCount, Hashing, LshConfig, Scale};
use heedful_attention::placement::Role;
use heedful_attention::random::RandomKey;

use super::{Naive, View};
use crate::array::Array;
use crate::backends::flex;
use crate::subject::Case;

impl Naive {
    /// Bucket of each position of a batch row in one round.
    pub fn lsh_buckets(&self, config: &LshConfig, case: &Case, view: &View, b: usize, h: usize, round: usize) -> Vec<usize> {
        let rotations = self.parameter("rotations");
        let (width, columns) = (rotations.shape[2], rotations.shape[3]);
        let shift = view.left.get(b).copied().unwrap_or(0);
        let directions: Tensor<2> = Init::Normal(1.0).tensor(
            [case.length(), width],
            &RandomKey::from_seed(0).named("lsh-random").numbered(round as u64).numbered(h as u64),
            &flex().device,
        );
        let directions = Array::read(directions);
        let halves = match config.buckets {
            Some(BucketCount::Factorised([a, b])) => vec![a / 2, b / 2],
            _ => vec![columns],
        };
        let bucket = |i: usize| {
            let x = match config.hashing {
                Hashing::Angular => self.projected("query_key", case.query.row(&[b, i]), h),
                Hashing::Random => directions.row(&[i.saturating_sub(shift)]).to_vec(),
            };
            let column = |c: usize| (0..width).map(|d| x[d] * rotations.at(&[round, h, d, c])).sum::<f64>();
            let (mut first, mut stride, mut bucket) = (0, 1, 0);
            for half in &halves {
                let signed: Vec<f64> =
                    (0..2 * half).map(|v| if v < *half { column(first + v) } else { -column(first + v - half) }).collect();
                let value = (0..signed.len()).fold(0, |best, v| if signed[v] > signed[best] { v } else { best });
                bucket += stride * value;
                (first, stride) = (first + half, stride * 2 * half);
            }
            bucket
        };
        (0..case.length()).map(bucket).collect()
    }

    /// Candidates of query `i` in one round, visible or not.
    #[allow(clippy::too_many_arguments)]
    fn lsh_candidates(&self, config: &LshConfig, case: &Case, view: &View, b: usize, h: usize, i: usize, round: usize) -> Vec<usize> {
        let length = case.length();
        let after = config.after.unwrap_or(if self.placement.role == Role::Encoder { 1 } else { 0 });
        let buckets = self.lsh_buckets(config, case, view, b, h, round);
        let live: Vec<usize> = (0..length).filter(|&j| (0..length).any(|i| (view.visible)(b, h, i, j))).collect();
        let chunks = live.len().div_ceil(config.chunk).max(1);
        // The rank of a position is the number of keys that are sorted before it.
        let chunk = |p: usize| {
            let rank = live.iter().filter(|&&j| (buckets[j], j) < (buckets[p], p)).count();
            (rank / config.chunk).min(chunks - 1) as i64
        };
        let near = |j: usize| {
            let distances = if config.wrap { vec![-(chunks as i64), 0, chunks as i64] } else { vec![0] };
            distances.iter().any(|round_trip| {
                let distance = chunk(j) - chunk(i) + round_trip;
                (-(config.before as i64)..=after as i64).contains(&distance)
            })
        };
        live.iter().copied().filter(|&j| near(j) && (!config.bucket_mask || buckets[i] == buckets[j])).collect()
    }

    /// Weights of all keys for a query.
    pub(super) fn lsh_weights(&self, config: &LshConfig, case: &Case, view: &View, b: usize, h: usize, i: usize) -> Vec<f64> {
        let length = case.length();
        let shared = |j: usize| self.projected("query_key", case.query.row(&[b, j]), h);
        let mut meetings = vec![0usize; length];
        if length <= config.full_attention_below.unwrap_or(2 * config.chunk) {
            meetings.fill(1);
        } else {
            let rounds = self.parameter("rotations").shape[0];
            (0..rounds).flat_map(|round| self.lsh_candidates(config, case, view, b, h, i, round)).for_each(|j| meetings[j] += 1);
        }
        let seen: Vec<bool> = (0..length).map(|j| meetings[j] > 0 && (view.visible)(b, h, i, j)).collect();
        if !seen.contains(&true) {
            return vec![0.0; length];
        }
        let q = shared(i);
        let scale = if config.scale == Scale::Paper { (q.len() as f64).sqrt() } else { 1.0 };
        let logit = |j: usize| {
            let k = shared(j);
            let norm = k.iter().map(|k| k * k).sum::<f64>().sqrt();
            q.iter().zip(&k).map(|(q, k)| q * k).sum::<f64>() / (norm * scale)
        };
        let alone = (0..length).all(|j| !seen[j] || j == i);
        let weight = |j: usize| match meetings[j] {
            _ if !seen[j] || (j == i && !alone) => 0.0,
            _ if config.duplicate_correction => logit(j).exp(),
            meetings => meetings as f64 * logit(j).exp(),
        };
        let weights: Vec<f64> = (0..length).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }
}
