//! Hashing of positions to buckets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::mechanisms::prelude::*;
use crate::tensors::read::read;

/// Criterion for the bucket of a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hashing {
    /// The direction of its query.
    #[default]
    Angular,
    /// A random direction per position and round, independent of content: the null hypothesis.
    Random,
}

/// The hash `argmax([x R; -x R])` of Andoni et al. 2015, or two of them.
#[derive(Clone, Debug)]
pub(super) struct Hash {
    /// Even numbers of values, one per hash.
    pub factors: Vec<usize>,
    pub hashing: Hashing,
    pub directions: Directions,
}

/// Fixed normal vectors per round, head and position, the input of random hashing. They are cached for decoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Directions(Arc<Mutex<BTreeMap<[usize; 2], Vec<f32>>>>);

impl Directions {
    /// Vectors `[B|1, H, length, D]` for the positions from `positions.start` on.
    fn of(&self, round: usize, [heads, length, width]: [usize; 3], positions: &Positions, device: &Device) -> Tensor<4> {
        let end = positions.start + length;
        let round_key = RandomKey::from_seed(0).named("lsh-random").numbered(round as u64);
        let mut all = self.0.lock().expect("no panic happens while directions are locked");
        let paddings = positions.left_padding.as_deref().unwrap_or(&[0]);
        let mut numbers = Vec::with_capacity(paddings.len() * heads * length * width);
        for padding in paddings {
            for head in 0..heads {
                let drawn = all.entry([round, head]).or_default();
                if drawn.len() < end * width {
                    // All earlier vectors are drawn again, so the length doubles to keep redraws rare.
                    *drawn = Init::Normal(1.0).values(end.next_power_of_two() * width, &round_key.numbered(head as u64));
                }
                let rows = (positions.start..end).map(|index| index.saturating_sub(*padding));
                rows.for_each(|row| numbers.extend_from_slice(&drawn[row * width..][..width]));
            }
        }
        Tensor::from_data(TensorData::new(numbers, [paddings.len(), heads, length, width]), device)
    }
}

impl Hash {
    /// Buckets of vectors `[B, H, K, D]` at positions from `positions.start` on, under rotations `[rounds, H, D, b / 2]`, computed without gradient. Returns
    /// `[B, H, rounds, K]` on the device.
    pub(super) fn buckets(&self, shared: Tensor<4>, rotations: Tensor<4>, positions: &Positions) -> Tensor<4, Int> {
        let [batch, heads, length, width] = shared.dims();
        let [rounds, _, _, columns] = rotations.dims();
        let half: usize = self.factors.iter().sum::<usize>() / 2;
        assert_eq!(columns, half, "rotations with {columns} columns for hashes with {:?} values", self.factors);
        let shared = shared.detach();
        let of_round = |round: usize| {
            let hashed = match self.hashing {
                Hashing::Angular => shared.clone(),
                Hashing::Random => {
                    let own = self.directions.of(round, [heads, length, width], positions, &shared.device()).cast(shared.dtype());
                    let rows = own.dims()[0];
                    if rows == 1 { own.expand([batch, heads, length, width]) } else { own }
                }
            };
            let rotation = rotations.clone().narrow(0, round, 1).cast(shared.dtype()).expand([batch, heads, width, columns]);
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
        Tensor::cat((0..rounds).map(of_round).collect(), 2)
    }
}

/// Buckets on the host.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    /// Batch rows, heads, rounds and positions.
    pub shape: [usize; 4],
    values: Vec<u32>,
}

impl Buckets {
    /// Copies buckets from a device.
    pub(super) fn read(buckets: Tensor<4, Int>) -> Self {
        Self { shape: buckets.dims(), values: read(buckets).iter::<u32>().collect() }
    }

    /// `[B, H, rounds, K]`.
    pub(super) fn tensor(&self, device: &Device) -> Tensor<4, Int> {
        let values: Vec<i32> = self.values.iter().map(|&bucket| bucket as i32).collect();
        Tensor::from_data(TensorData::new(values, self.shape), device)
    }

    /// Appends the buckets of later positions.
    pub(super) fn followed_by(self, later: &Self) -> Self {
        let [batch, heads, rounds, length] = self.shape;
        let lists = self.values.chunks(length).zip(later.values.chunks(later.shape[3]));
        let values = lists.flat_map(|(old, new)| [old, new]).collect::<Vec<_>>().concat();
        Self { shape: [batch, heads, rounds, length + later.shape[3]], values }
    }

    /// Selects batch rows in the given order.
    pub(super) fn select(self, rows: &[usize]) -> Self {
        let [batch, heads, rounds, length] = self.shape;
        let size = self.values.len() / batch;
        let values = rows.iter().flat_map(|row| &self.values[row * size..][..size]).copied().collect();
        Self { shape: [rows.len(), heads, rounds, length], values }
    }

    /// Buckets of all positions.
    pub(super) fn of(&self, row: usize, head: usize, round: usize) -> &[u32] {
        let [_, heads, rounds, length] = self.shape;
        &self.values[((row * heads + head) * rounds + round) * length..][..length]
    }

    /// Number of rounds in which a position shares a bucket with each position.
    pub(super) fn meetings(&self, row: usize, head: usize, i: usize) -> Vec<usize> {
        let [_, _, rounds, length] = self.shape;
        let mut meetings = vec![0; length];
        for buckets in (0..rounds).map(|round| self.of(row, head, round)) {
            let own = buckets[i];
            meetings.iter_mut().zip(buckets).for_each(|(meetings, &bucket)| *meetings += usize::from(bucket == own));
        }
        meetings
    }
}
