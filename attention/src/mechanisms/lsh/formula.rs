//! Kitaev, Kaiser and Levskaya 2020, section 2, in double precision: the candidate set of each query in each round, and one softmax over their union.

use super::buckets::Hashing;
use super::config::{BucketCount, LshConfig};
use crate::description::formula::distribution;
use crate::mechanisms::prelude::*;
use crate::mechanisms::shared_qk::Scale;

pub(super) fn of(config: &LshConfig) -> Formula<'_> {
    Formula::default().weights(|query| weights(config, query))
}

/// Weights of all keys for a query.
fn weights(config: &LshConfig, query: &Query) -> Vec<f64> {
    let length = query.keys();
    let mut meetings = vec![0usize; length];
    let max_length = query.spec().max_length;
    let chunk = config.chunk.unwrap_or((max_length / 4).clamp(2, 64));
    if length <= config.full_attention_below.unwrap_or((2 * chunk).min(max_length / 2)) {
        meetings.fill(1);
    } else {
        let rounds = query.parameter("rotations").shape[0];
        (0..rounds).flat_map(|round| candidates(config, chunk, query, round, rounds)).for_each(|j| meetings[j] += 1);
    }
    let seen: Vec<bool> = (0..length).map(|j| meetings[j] > 0 && query.sees(j)).collect();
    let q = query.projected("query_key", query.element());
    let scale = if config.scale == Scale::Paper { (q.len() as f64).sqrt() } else { 1.0 };
    let logit = |j: usize| {
        let k = query.projected("query_key", query.attended(j));
        dot(&q, &k) / (dot(&k, &k).sqrt() * scale)
    };
    let alone = (0..length).all(|j| !seen[j] || j == query.index);
    let weight = |j: usize| match meetings[j] {
        _ if !seen[j] || (j == query.index && !alone) => 0.0,
        _ if config.duplicate_correction => logit(j).exp(),
        meetings => meetings as f64 * logit(j).exp(),
    };
    distribution((0..length).map(weight).collect())
}

/// Candidates of a query in one round with chunks of `size`, visible or not; includes other rounds if chunks look at them.
fn candidates(config: &LshConfig, size: usize, query: &Query, round: usize, rounds: usize) -> Vec<usize> {
    let length = query.keys();
    let after = config.after.unwrap_or(if query.spec().role == Role::Encoder { 1 } else { 0 }) as i64;
    let before = config.before as i64;
    let live: Vec<usize> = (0..length).filter(|&j| (0..length).any(|i| query.at(i).sees(j))).collect();
    let chunks = live.len().div_ceil(size).max(1);
    // The rank of a position is the number of keys sorted before it; the chunks of a round follow those of the previous round.
    let chunk = |of: usize, buckets: &[usize], p: usize| {
        let rank = live.iter().filter(|&&j| (buckets[j], j) < (buckets[p], p)).count();
        let first = if config.across_rounds { of * chunks } else { 0 };
        (first + (rank / size).min(chunks - 1)) as i64
    };
    let circle = if config.across_rounds { rounds * chunks } else { chunks } as i64;
    let round_trips = if config.wrap { vec![-circle, 0, circle] } else { vec![0] };
    let own_buckets = buckets(config, query, round);
    let own = chunk(round, &own_buckets, query.index);
    let others = if config.across_rounds { 0..rounds } else { round..round + 1 };
    let mut found = Vec::new();
    for other in others {
        let their_buckets = buckets(config, query, other);
        let near = |j: usize| round_trips.iter().any(|trip| (-before..=after).contains(&(chunk(other, &their_buckets, j) - own + trip)));
        let is_candidate = |j: usize| near(j) && (!config.bucket_mask || own_buckets[query.index] == own_buckets[j]);
        found.extend(live.iter().copied().filter(|&j| is_candidate(j)));
    }
    found
}

/// Bucket of each position of the query's row in one round.
fn buckets(config: &LshConfig, query: &Query, round: usize) -> Vec<usize> {
    let rotations = query.parameter("rotations");
    let (width, columns) = (rotations.shape[2], rotations.shape[3]);
    let key = RandomKey::from_seed(0).named("lsh-random").numbered(round as u64).numbered(query.head as u64);
    let directions = match config.hashing {
        Hashing::Angular => Vec::new(),
        Hashing::Random => Init::Normal(1.0).values(query.keys() * width, &key),
    };
    let halves = match config.buckets {
        Some(BucketCount::Factorised([a, b])) => vec![a / 2, b / 2],
        _ => vec![columns],
    };
    let bucket = |i: usize| {
        let x: Vec<f64> = match config.hashing {
            Hashing::Angular => query.projected("query_key", query.attended(i)),
            Hashing::Random => directions[query.position_of(i) * width..][..width].iter().map(|&x| f64::from(x)).collect(),
        };
        let column = |c: usize| (0..width).map(|d| x[d] * rotations.at(&[round, query.head, d, c])).sum::<f64>();
        let (mut first, mut stride, mut bucket) = (0, 1, 0);
        for half in &halves {
            let signed: Vec<f64> = (0..2 * half).map(|v| if v < *half { column(first + v) } else { -column(first + v - half) }).collect();
            let value = (0..signed.len()).fold(0, |best, v| if signed[v] > signed[best] { v } else { best });
            bucket += stride * value;
            (first, stride) = (first + half, stride * 2 * half);
        }
        bucket
    };
    (0..query.keys()).map(bucket).collect()
}
