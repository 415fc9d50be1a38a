//! Hashing of positions into buckets.

use burn::tensor::{Device, Int, Tensor, TensorData};

use super::Hashing;
use crate::contract::Positions;
use crate::init::Init;
use crate::logits::rows_at;
use crate::random::RandomKey;

/// The hash `argmax([x R; -x R])` of Andoni et al. 2015, or two of them.
#[derive(Clone, Debug)]
pub(super) struct Hash {
    /// Even numbers of values.
    pub factors: Vec<usize>,
    pub hashing: Hashing,
}

impl Hash {
    /// Buckets of vectors `[B, H, K, D]` at positions from `positions.start` on, under rotations `[rounds, H, D, b / 2]`. No gradient
    /// flows.
    pub fn buckets(&self, shared: Tensor<4>, rotations: Tensor<4>, positions: &Positions) -> Buckets {
        let [batch, heads, length, width] = shared.dims();
        let [rounds, _, _, columns] = rotations.dims();
        let half: usize = self.factors.iter().sum::<usize>() / 2;
        assert_eq!(columns, half, "rotations with {columns} columns for hashes with {:?} values", self.factors);
        let shared = shared.detach();
        let of_round = |round: usize| {
            let hashed = match self.hashing {
                Hashing::Angular => shared.clone(),
                Hashing::Random => {
                    let own =
                        rows_at(random_directions(round, heads, positions.start + length, &shared), positions.start, length, positions);
                    let rows = own.dims()[0];
                    if rows == 1 { own.expand([batch, heads, length, width]) } else { own }
                }
            };
            let rotation = rotations.clone().narrow(0, round, 1).expand([batch, heads, width, columns]);
            let projected = hashed.matmul(rotation);
            let (mut start, mut stride, mut bucket) = (0, 1, None);
            for &factor in &self.factors {
                let part = projected.clone().narrow(3, start, factor / 2);
                let value = Tensor::cat(vec![part.clone(), -part], 3).argmax(3) * stride;
                bucket = Some(bucket.map_or(value.clone(), |bucket: Tensor<4, Int>| bucket + value));
                start += factor / 2;
                stride *= factor as i32;
            }
            bucket.expect("there is a hash").reshape([batch, heads, 1, length])
        };
        let buckets = Tensor::cat((0..rounds).map(of_round).collect(), 2);
        Buckets { shape: buckets.dims(), values: buckets.into_data().iter::<u32>().collect() }
    }
}

/// Normal vectors `[1, H, length, D]`, those of each round, head and position always the same.
fn random_directions(round: usize, heads: usize, length: usize, like: &Tensor<4>) -> Tensor<4> {
    let width = like.dims()[3];
    let key = RandomKey::from_seed(0).named("lsh-random").numbered(round as u64);
    let of_head = |head| Init::Normal(1.0).tensor([1, 1, length, width], &key.numbered(head as u64), &like.device());
    Tensor::cat((0..heads).map(of_head).collect(), 1).cast(like.dtype())
}

/// Buckets on the host.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    /// Batch rows, heads, rounds, positions.
    pub shape: [usize; 4],
    values: Vec<u32>,
}

impl Buckets {
    /// `[B, H, rounds, K]`.
    pub fn tensor(&self, device: &Device) -> Tensor<4, Int> {
        let values: Vec<i32> = self.values.iter().map(|&bucket| bucket as i32).collect();
        Tensor::from_data(TensorData::new(values, self.shape), device)
    }

    /// Those of more positions.
    pub fn followed_by(self, later: &Self) -> Self {
        let [batch, heads, rounds, length] = self.shape;
        let lists = self.values.chunks(length).zip(later.values.chunks(later.shape[3]));
        let values = lists.flat_map(|(old, new)| [old, new].concat()).collect();
        Self { shape: [batch, heads, rounds, length + later.shape[3]], values }
    }

    /// The given batch rows, in the given order.
    pub fn select(self, rows: &[usize]) -> Self {
        let [batch, heads, rounds, length] = self.shape;
        let size = self.values.len() / batch;
        let values = rows.iter().flat_map(|row| &self.values[row * size..][..size]).copied().collect();
        Self { shape: [rows.len(), heads, rounds, length], values }
    }

    /// Buckets of all positions.
    pub fn of(&self, row: usize, head: usize, round: usize) -> &[u32] {
        let [_, heads, rounds, length] = self.shape;
        &self.values[((row * heads + head) * rounds + round) * length..][..length]
    }

    /// In how many rounds two positions share a bucket.
    pub fn meetings(&self, row: usize, head: usize, i: usize, j: usize) -> usize {
        (0..self.shape[2]).filter(|&round| self.of(row, head, round)[i] == self.of(row, head, round)[j]).count()
    }
}
