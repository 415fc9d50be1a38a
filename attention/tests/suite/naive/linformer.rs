//! Wang et al. 2020: `softmax(q (E K)^T / sqrt(d)) (F V)`, one slot at a time.

use heedful_attention::mechanisms::linformer::{LinformerConfig, Sharing};

use super::{Naive, View};
use crate::array::Array;
use crate::subject::Case;

impl Naive {
    /// Context `[B, Q, C]`; there are no weights of keys.
    pub(super) fn linformer(&self, config: &LinformerConfig, case: &Case, view: &View) -> (Array, Array) {
        let name = if config.trainable { "matrix" } else { "frozen_matrix" };
        let e = self.parameter(&format!("key_slots.{name}"));
        let f = match config.sharing {
            Sharing::None | Sharing::Headwise => self.parameter(&format!("value_slots.{name}")),
            Sharing::KeyValue | Sharing::Layerwise => e,
        };
        let (rank, width) = (e.shape[1], self.placement.d_head());
        let memory = case.memory.as_ref().unwrap_or(&case.query);
        let context = self.for_each_output(case, |b, i| {
            let shift = if case.memory.is_some() { 0 } else { view.left.get(b).copied().unwrap_or(0) };
            let mut concatenated = Vec::new();
            for h in 0..self.placement.heads {
                let matrix = if config.sharing == Sharing::None { h } else { 0 };
                let mixed = |mix: &Array, map: &str, slot: usize| {
                    let mut sum = vec![0.0; width];
                    for j in (0..case.keys()).filter(|&j| (view.visible)(b, h, i, j)) {
                        let row = self.projected(map, memory.row(&[b, j]), h);
                        let share = mix.at(&[matrix, slot, j - shift]);
                        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += share * x);
                    }
                    sum
                };
                let query = self.projected("query", case.query.row(&[b, i]), h);
                let score = |slot| query.iter().zip(mixed(e, "key", slot)).map(|(q, k)| q * k).sum::<f64>() / (width as f64).sqrt();
                let scores: Vec<f64> = (0..rank).map(score).collect();
                let sum: f64 = scores.iter().map(|score| score.exp()).sum();
                let mut head = vec![0.0; width];
                for (slot, score) in scores.iter().enumerate() {
                    head.iter_mut().zip(mixed(f, "value", slot)).for_each(|(out, v)| *out += score.exp() / sum * v);
                }
                concatenated.extend(head);
            }
            concatenated
        });
        (context, Array { shape: vec![0], values: Vec::new() })
    }
}
