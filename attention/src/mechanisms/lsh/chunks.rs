//! Sorting by bucket, cutting into chunks, and attention within chunks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::DType;
use burn::tensor::activation::softmax;
use rayon::prelude::*;

use super::buckets::Buckets;
use crate::contract::visibility::{TILE, TileLevels, TileMapBuilder, hidden_logit};
use crate::engine::Dropout;
use crate::engine::dropout::dropout;
use crate::engine::fused::{Order, Part};
use crate::mechanisms::prelude::*;
use crate::tensors::read::read;

/// Maximum number of meetings of a pair that one byte can represent.
pub(super) const MOST_MEETINGS: usize = 255;

/// Penalty for the logit of a query's own position. It hides the position unless the query sees nothing else, since hidden logits are lower still.
pub(super) fn self_penalty(dtype: DType) -> f32 {
    if dtype == DType::F16 { -1.0e3 } else { -1.0e5 }
}

/// Rules for cutting sorted positions into chunks and for the candidates of a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunking {
    pub size: usize,
    pub before: usize,
    pub after: usize,
    pub wrap: bool,
    /// Whether the chunks of all rounds form one sequence, instead of one sequence per round.
    pub across_rounds: bool,
    pub bucket_mask: bool,
    pub duplicate_correction: bool,
}

/// The positions of one batch row and head in one round.
struct Sorted<'a> {
    buckets: &'a [u32],
    /// Positions by bucket.
    order: Vec<usize>,
    /// Chunk of each position.
    chunk: Vec<usize>,
    chunks: usize,
    /// Range of each position's bucket in the order of live positions.
    bucket: Vec<Range<usize>>,
}

impl Chunking {
    /// Sorts by bucket and position. Only `live` positions take a place.
    fn sorted<'a>(&self, buckets: &'a [u32], live: &[bool]) -> Sorted<'a> {
        let chunks = live.iter().filter(|&&live| live).count().div_ceil(self.size).max(1);
        let mut order: Vec<usize> = (0..live.len()).collect();
        order.sort_by_key(|&position| buckets[position]);
        let (mut rank, mut chunk) = (0, vec![0; live.len()]);
        let mut bucket = vec![0..0; live.len()];
        for members in order.chunk_by(|&a, &b| buckets[a] == buckets[b]) {
            let first = rank;
            for &position in members {
                chunk[position] = (rank / self.size).min(chunks - 1);
                rank += usize::from(live[position]);
            }
            members.iter().for_each(|&position| bucket[position] = first..rank);
        }
        Sorted { buckets, order, chunk, chunks, bucket }
    }

    fn looks_at(&self, from: usize, to: usize, chunks: usize) -> bool {
        if self.wrap {
            (from + chunks - to) % chunks <= self.before || (to + chunks - from) % chunks <= self.after
        } else {
            (from.saturating_sub(self.before)..=from.saturating_add(self.after)).contains(&to)
        }
    }

    /// Chunks that a chunk [looks at](Self::looks_at), without repetition.
    fn looked_at(&self, from: usize, chunks: usize) -> impl Iterator<Item = usize> + use<> {
        let (before, after) = (self.before.min(chunks), self.after.min(chunks));
        let seen = if !self.wrap {
            from.saturating_sub(before)..(from + after + 1).min(chunks)
        } else if before + after >= chunks {
            0..chunks
        } else {
            from + chunks - before..from + chunks + after + 1
        };
        seen.map(move |to| to % chunks)
    }

    /// Chunks that a chunk of a round looks at, without repetition, as rounds and chunk indices within them.
    fn met_by(&self, round: usize, from: usize, rounds: &[Sorted]) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (chunks, across) = (rounds[round].chunks, self.across_rounds);
        let (first, all) = if across { (round * chunks, rounds.len() * chunks) } else { (0, chunks) };
        self.looked_at(first + from, all).map(move |to| if across { (to / chunks, to % chunks) } else { (round, to) })
    }

    fn is_candidate(&self, round: &Sorted, i: usize, j: usize) -> bool {
        (!self.bucket_mask || round.buckets[i] == round.buckets[j]) && self.looks_at(round.chunk[i], round.chunk[j], round.chunks)
    }

    /// Number of meetings of a pair, the divisor of its weight at each meeting; 1 without duplicate correction.
    fn meetings(&self, rounds: &[Sorted], i: usize, j: usize) -> usize {
        if !self.duplicate_correction || rounds.len() == 1 {
            return 1;
        }
        if !self.across_rounds {
            return rounds.iter().filter(|round| self.is_candidate(round, i, j)).count();
        }
        let meets = |&(other, chunk): &(usize, usize)| rounds[other].chunk[j] == chunk;
        (0..rounds.len()).map(|round| self.met_by(round, rounds[round].chunk[i], rounds).filter(meets).count()).sum()
    }

    /// Maximum number of meetings of a pair in `rounds` rounds.
    pub(super) fn most_meetings(&self, rounds: usize) -> usize {
        if self.across_rounds { rounds * rounds } else { rounds }
    }

    /// Pairs of rounds in which chunks of the first can look at chunks of the second.
    fn neighbours(&self, rounds: usize) -> Vec<[usize; 2]> {
        let all = (0..rounds).flat_map(|round| (0..rounds).map(move |other| [round, other]));
        all.filter(|[round, other]| self.across_rounds || round == other).collect()
    }

    /// Pairs of every round, sorted by bucket, and pairs between the ends of neighbouring rounds.
    pub(super) fn parts(&self, buckets: &Buckets, span: Span, visibility: &Visibility) -> Arc<[Part]> {
        let [batch, heads, rounds, _] = buckets.shape;
        let shifts: Vec<f32> = (2..=self.most_meetings(rounds)).map(|meetings| -(meetings as f32).ln()).collect();
        let planes = (0..batch * heads).into_par_iter();
        let planes: Vec<Vec<Plane>> = planes.map(|plane| self.planes(buckets, span, visibility, [plane / heads, plane % heads])).collect();
        let mut planes: Vec<_> = planes.into_iter().map(Vec::into_iter).collect();
        let of_rounds = |[round, other]: [usize; 2]| {
            let mut builder = TileMapBuilder::new(batch, heads, &shifts);
            let (mut queries, mut keys) = (Vec::new(), Vec::new());
            let of_planes: Vec<Plane> = planes.iter_mut().map(|parts| parts.next().expect("there is a plane for each part")).collect();
            let has_pairs = of_planes.iter().flat_map(|plane| &plane.tiles).any(|tiles| !tiles.is_empty());
            if round != other && !has_pairs {
                return None;
            }
            for plane in of_planes {
                builder.begin_plane();
                for (queries, levels) in plane.queries.chunks(TILE).zip(plane.tiles) {
                    builder.push(queries.len(), levels);
                }
                queries.push(plane.queries);
                keys.push(plane.keys);
            }
            let [queries, keys] = [queries, keys].map(|indices| Some(Order::new(heads, indices)));
            Some(Part { tiles: builder.finish().into(), queries, keys })
        };
        self.neighbours(rounds).into_iter().filter_map(of_rounds).collect()
    }

    /// Pairs of one batch row and head, for each two [neighbouring](Self::neighbours) rounds. The level of a pair is its number of meetings.
    fn planes(&self, buckets: &Buckets, span: Span, visibility: &Visibility, [row, head]: [usize; 2]) -> Vec<Plane> {
        let queries = span.query_start..span.query_start + span.queries;
        let sees = |i, j| visibility.is_visible(row % visibility.rows(), head, i, j);
        let live = live(span, sees);
        let rounds: Vec<Sorted> = (0..buckets.shape[2]).map(|round| self.sorted(buckets.of(row, head, round), &live)).collect();
        let members_of = |round: &Sorted| -> Vec<usize> { round.order.iter().copied().filter(|&position| live[position]).collect() };
        let members: Vec<Vec<usize>> = rounds.iter().map(members_of).collect();
        let candidates = |[round, other]: [usize; 2], i: usize| {
            let (chunk, members) = (rounds[round].chunk[i], &members[other]);
            let bucket = if self.bucket_mask { rounds[round].bucket[i].clone() } else { 0..members.len() };
            let places = move |(_, to): (usize, usize)| (to * self.size).max(bucket.start)..((to + 1) * self.size).min(bucket.end);
            let places = self.met_by(round, chunk, &rounds).filter(move |(of, _)| *of == other).flat_map(places);
            places.map(|place| (place, members[place])).filter(move |&(_, j)| sees(i, j))
        };
        let neighbours = self.neighbours(rounds.len());
        // A query sees itself only if it sees nothing else.
        let is_alone = |i: usize| neighbours.iter().all(|&of| candidates(of, i).all(|(_, j)| i == j));
        let alone: Vec<bool> = queries.clone().map(is_alone).collect();
        let plane = |&[round, other]: &[usize; 2]| {
            let askers: Vec<usize> = rounds[round].order.iter().copied().filter(|position| queries.contains(position)).collect();
            let tiles = askers.chunks(TILE).map(|askers| {
                let mut tiles: BTreeMap<u32, Box<TileLevels>> = BTreeMap::new();
                for (at, &i) in askers.iter().enumerate() {
                    for (place, j) in candidates([round, other], i).filter(|&(_, j)| i != j || alone[i - span.query_start]) {
                        let levels = tiles.entry((place / TILE) as u32).or_insert_with(|| Box::new([0; TILE * TILE]));
                        levels[at * TILE + place % TILE] = self.meetings(&rounds, i, j) as u8;
                    }
                }
                tiles
            });
            Plane {
                tiles: tiles.collect(),
                queries: askers.iter().map(|i| (i - span.query_start) as u32).collect(),
                keys: members[other].iter().map(|&j| j as u32).collect(),
            }
        };
        neighbours.iter().map(plane).collect()
    }

    /// Cuts the positions of every batch row, head and round.
    pub(super) fn blocks(&self, buckets: &Buckets, span: Span, visibility: &Visibility, dtype: DType) -> Blocks {
        let [batch, heads, rounds, keys] = buckets.shape;
        let queries = span.query_start..span.query_start + span.queries;
        let (hidden, penalty) = (hidden_logit(dtype), self_penalty(dtype));
        let mut blocks =
            Blocks { shape: [batch, heads, rounds, span.queries, keys], list: Vec::new(), slots: Vec::new(), has_key: Vec::new() };
        blocks.slots = vec![(0, 0); rounds * batch * heads * span.queries];
        blocks.has_key = vec![0.0; batch * heads * span.queries];
        for (row, head) in (0..batch).flat_map(|row| (0..heads).map(move |head| (row, head))) {
            let sees = |i, j| visibility.is_visible(row % visibility.rows(), head, i, j);
            let live = live(span, sees);
            let sorted: Vec<Sorted> = (0..rounds).map(|round| self.sorted(buckets.of(row, head, round), &live)).collect();
            let first = row * heads + head;
            let members_of = |round: &Sorted| {
                let mut members = vec![Vec::new(); round.chunks];
                (0..keys).filter(|&j| live[j]).for_each(|j| members[round.chunk[j]].push(j));
                members
            };
            let members: Vec<Vec<Vec<usize>>> = sorted.iter().map(members_of).collect();
            for (number, round) in sorted.iter().enumerate() {
                let mut askers = vec![Vec::new(); round.chunks];
                queries.clone().for_each(|i| askers[round.chunk[i]].push(i));
                for (from, askers) in askers.iter().enumerate() {
                    let within = self.met_by(number, from, &sorted);
                    // Chunks that span several rounds meet a query several times.
                    let mut candidates: Vec<usize> = within.flat_map(|(of, to)| members[of][to].iter().copied()).collect();
                    // In position order, sums do not depend on the buckets of zero-weight keys.
                    candidates.sort_unstable();
                    for askers in askers.chunks(self.size) {
                        let mut bias = Vec::with_capacity(askers.len() * candidates.len());
                        for (at, &i) in askers.iter().enumerate() {
                            let query = first * span.queries + i - span.query_start;
                            blocks.slots[number * batch * heads * span.queries + query] = (blocks.list.len(), at);
                            for &j in &candidates {
                                let is_met = self.across_rounds || self.is_candidate(round, i, j);
                                if !is_met || !sees(i, j) {
                                    bias.push(hidden);
                                    continue;
                                }
                                blocks.has_key[query] = 1.0;
                                let meetings = self.meetings(&sorted, i, j);
                                bias.push(if i == j { penalty } else { 0.0 } - (meetings as f32).ln());
                            }
                        }
                        blocks.list.push(Block {
                            queries: askers.iter().map(|i| (first * span.queries + i - span.query_start) as i32).collect(),
                            keys: candidates.iter().map(|j| (first * keys + j) as i32).collect(),
                            bias,
                        });
                    }
                }
            }
        }
        blocks.padded(hidden)
    }
}

/// The pairs of one batch row, head and round.
struct Plane {
    /// Queries in place order.
    queries: Vec<u32>,
    /// Keys in place order.
    keys: Vec<u32>,
    /// Levels of the pairs, by tile of queries.
    tiles: Vec<BTreeMap<u32, Box<TileLevels>>>,
}

/// Keys visible to some query.
fn live(span: Span, sees: impl Fn(usize, usize) -> bool) -> Vec<bool> {
    let queries = span.query_start..span.query_start + span.queries;
    // Most visible keys are also visible to themselves.
    (0..span.keys).map(|j| queries.contains(&j) && sees(j, j) || queries.clone().any(|i| sees(i, j))).collect()
}

/// Queries of one chunk, and their candidates.
struct Block {
    /// Indices into all queries of the batch, heads included.
    queries: Vec<i32>,
    /// Indices into all keys of the batch, heads included.
    keys: Vec<i32>,
    /// Biases added to the logits, query by query.
    bias: Vec<f32>,
}

/// All chunks of all rounds.
pub(super) struct Blocks {
    /// Batch rows, heads, rounds, queries, keys.
    shape: [usize; 5],
    list: Vec<Block>,
    /// Block and row of each query in each round.
    slots: Vec<(usize, usize)>,
    /// 1 for queries with a visible key, otherwise 0.
    has_key: Vec<f32>,
}

impl Blocks {
    /// Pads all blocks to one size. Padding is hidden or never read.
    fn padded(mut self, hidden: f32) -> Self {
        let height = self.list.iter().map(|block| block.queries.len()).max().unwrap_or(0);
        let width = self.list.iter().map(|block| block.keys.len()).max().unwrap_or(0).max(1);
        for block in &mut self.list {
            let keys = block.keys.len();
            let mut bias = vec![hidden; height * width];
            for at in 0..block.queries.len() {
                bias[at * width..][..keys].copy_from_slice(&block.bias[at * keys..][..keys]);
            }
            block.bias = bias;
            block.queries.resize(height, 0);
            block.keys.resize(width, 0);
        }
        self
    }

    /// Context `[B, H, Q, D]` of scaled queries `[B, H, Q, D]`, unit keys `[B, H, K, D]` and values.
    pub(super) fn attend(
        self,
        queries: Tensor<4>,
        keys: Tensor<4>,
        values: Tensor<4>,
        drop: Option<Dropout>,
        probe: &mut Probe,
    ) -> Tensor<4> {
        let [batch, heads, rounds, length, _] = self.shape;
        let (device, dtype) = (values.device(), values.dtype());
        let (count, height, width) = (self.list.len(), self.list[0].queries.len(), self.list[0].keys.len());
        let float = |values: Vec<f32>, shape: [usize; 3]| Tensor::<3>::from_data(TensorData::new(values, shape), (&device, dtype));
        let int = |values: Vec<i32>| Tensor::<1, Int>::from_data(TensorData::from(values.as_slice()), &device);
        let taken = |x: Tensor<4>, of: fn(&Block) -> &[i32]| {
            let [batch, heads, length, size] = x.dims();
            let indices = self.list.iter().flat_map(of).copied().collect();
            x.reshape([batch * heads * length, size]).select(0, int(indices)).reshape([count as i64, -1, size as i64])
        };
        let bias = float(self.list.iter().flat_map(|block| &block.bias).copied().collect(), [count, height, width]);
        let logits = taken(queries, |block| &block.queries).matmul(taken(keys, |block| &block.keys).swap_dims(1, 2)) + bias;
        let top = logits.clone().detach().max_dim(2);
        let exponentials = (logits - top.clone()).exp();
        let sums = exponentials.clone().sum_dim(2);
        let weights = exponentials / sums.clone();
        let slots: Vec<i32> = self.slots.iter().map(|(block, row)| (block * height + row) as i32).collect();
        let slots = int(slots);
        let of_rounds = |x: Tensor<3>| {
            let size = x.dims()[2];
            x.reshape([count * height, size]).select(0, slots.clone()).reshape([rounds, batch * heads * length, size])
        };
        // A round in which a query sees nothing has a log-partition of about the hidden logit, and so no share.
        let shares = softmax(of_rounds(sums.log() + top), 0);
        probe.observe(|| Observation::Weights(self.dense(weights.clone(), shares.clone())));
        let weights = match drop {
            Some(drop) => dropout(weights, drop.probability, Some(&drop.key)),
            None => weights,
        };
        let context = of_rounds(weights.matmul(taken(values, |block| &block.keys)));
        // A single round has the whole share. On CUDA, a product with it and a sum over one round returned wrong contexts for heads of width 3.
        let context = if rounds == 1 { context } else { (context * shares).sum_dim(0) };
        let size = context.dims()[2];
        let has_key = float(self.has_key, [1, batch * heads * length, 1]);
        (context * has_key).reshape([batch, heads, length, size])
    }

    /// Weights `[B, H, Q, K]` from the block weights `[blocks, height, width]` and the shares of the rounds `[rounds, B H Q, 1]`.
    fn dense(&self, weights: Tensor<3>, shares: Tensor<3>) -> Tensor<4> {
        let [batch, heads, _, queries, keys] = self.shape;
        let [_, height, width] = weights.dims();
        let (device, dtype) = (weights.device(), weights.dtype());
        let weights: Vec<f32> = read(weights).iter::<f32>().collect();
        let mut dense = vec![0.0; batch * heads * queries * keys];
        for (at, (share, &(block, row))) in read(shares).iter::<f32>().zip(&self.slots).enumerate() {
            let query = at % self.has_key.len();
            for (&key, weight) in self.list[block].keys.iter().zip(&weights[(block * height + row) * width..]) {
                dense[query * keys + key as usize % keys] += self.has_key[query] * share * weight;
            }
        }
        Tensor::from_data(TensorData::new(dense, [batch, heads, queries, keys]), (&device, dtype))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_looks_at_its_neighbours_once_each() {
        for (chunks, before, after, wrap) in (1..7).flat_map(|chunks| {
            let sizes = (0..4).flat_map(|before| (0..4).map(move |after| (before, after)));
            sizes.flat_map(move |(before, after)| [false, true].map(|wrap| (chunks, before, after, wrap)))
        }) {
            let chunking = Chunking { size: 1, before, after, wrap, across_rounds: false, bucket_mask: false, duplicate_correction: false };
            for from in 0..chunks {
                let mut found: Vec<usize> = chunking.looked_at(from, chunks).collect();
                found.sort_unstable();
                let wanted: Vec<usize> = (0..chunks).filter(|&to| chunking.looks_at(from, to, chunks)).collect();
                assert_eq!(found, wanted, "chunk {from} of {chunks} with {before} before and {after} after, wrap {wrap}");
            }
        }
    }
}
