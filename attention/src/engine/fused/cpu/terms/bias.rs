//! The gradient of a bias.

use super::super::layout::Places;
use super::{Bias, Terms, TileIndex};
use crate::contract::visibility::TILE;

/// Gradient of a bias shared by planes.
pub(crate) struct BiasOfPlanes<'a> {
    /// `[Q, K]`.
    pub numbers: &'a mut [f32],
    /// Gradient of the scale, by key: `[K]`, or empty without a scale.
    pub scale: &'a mut [f32],
}

impl BiasOfPlanes<'_> {
    /// Splits into groups of `group` key tiles.
    pub(crate) fn groups(&mut self, keys: usize, tiles: usize, group: usize) -> Vec<BiasOfGroup<'_>> {
        let mut scales = self.scale.chunks_mut(group * TILE);
        let empty = |first| BiasOfGroup { first, rows: Vec::new(), scale: scales.next().unwrap_or_default() };
        let mut groups: Vec<BiasOfGroup> = (0..tiles).step_by(group).map(empty).collect();
        for row in self.numbers.chunks_mut(keys) {
            row.chunks_mut(group * TILE).zip(&mut groups).for_each(|(row, group)| group.rows.push(row));
        }
        groups
    }
}

/// Part of [`BiasOfPlanes`] for a key group in order.
pub(crate) struct BiasOfGroup<'a> {
    /// First key tile.
    pub first: usize,
    /// The group's keys in each query row; each tile is written once.
    pub rows: Vec<&'a mut [f32]>,
    /// Gradient of the scale, by key.
    pub scale: &'a mut [f32],
}

impl Terms<'_> {
    /// Adds the bias to the logits of a tile.
    #[inline(always)]
    pub(super) fn add_bias(&self, TileIndex { queries, keys, height }: TileIndex, logits: &mut [f32]) {
        let ([query_places, key_places], Some(Bias { numbers, scale })) = (self.places, self.bias) else { return };
        for (at, logits) in logits.chunks_exact_mut(TILE).take(height).enumerate() {
            let bias = &numbers[query_places.index(queries * TILE + at) * self.keys..][..self.keys];
            match (key_places, scale) {
                (Places::InOrder(_), None) => logits.iter_mut().zip(&bias[keys * TILE..]).for_each(|(logit, bias)| *logit += bias),
                (Places::InOrder(_), Some(scale)) => {
                    logits.iter_mut().zip(&bias[keys * TILE..]).for_each(|(logit, bias)| *logit += bias * scale);
                }
                (Places::Listed(_), _) => {
                    let scale = scale.unwrap_or(1.0);
                    key_places.each(keys, |place, key| logits[place] += bias[key] * scale);
                }
            }
        }
    }

    /// Adds the logit gradients `slopes` of a tile to those of the bias.
    #[inline(always)]
    pub(crate) fn add_to_bias(&self, TileIndex { queries, keys, height }: TileIndex, slopes: &[f32], of: &mut BiasOfPlanes) {
        let ([query_places, key_places], Some(Bias { numbers, scale })) = (self.places, self.bias) else { return };
        for (at, slopes) in slopes.chunks_exact(TILE).take(height).enumerate() {
            let first = query_places.index(queries * TILE + at) * self.keys;
            let (bias, of_bias) = (&numbers[first..][..self.keys], &mut of.numbers[first..][..self.keys]);
            match scale {
                Some(scale) => key_places.each(keys, |place, key| {
                    of_bias[key] += slopes[place] * scale;
                    of.scale[key] += slopes[place] * bias[key];
                }),
                None => key_places.each(keys, |place, key| of_bias[key] += slopes[place]),
            }
        }
    }

    /// Writes the bias gradient of a tile with places in order, from the logit gradients `slopes`.
    #[inline(always)]
    pub(crate) fn write_to_bias(&self, TileIndex { queries, keys, .. }: TileIndex, slopes: &[f32], of: &mut BiasOfGroup) {
        let Some(Bias { numbers, scale }) = self.bias else { return };
        let first = (keys - of.first) * TILE;
        let rows = of.rows[queries * TILE..].iter_mut().enumerate();
        for ((at, row), slopes) in rows.zip(slopes.chunks_exact(TILE)) {
            let row = &mut row[first..];
            let count = row.len().min(TILE);
            let (row, slopes) = (&mut row[..count], &slopes[..count]);
            let Some(scale) = scale else {
                row.copy_from_slice(slopes);
                continue;
            };
            row.iter_mut().zip(slopes).for_each(|(gradient, slope)| *gradient = slope * scale);
            let bias = &numbers[(queries * TILE + at) * self.keys + keys * TILE..][..count];
            let of_scale = &mut of.scale[first..][..count];
            of_scale.iter_mut().zip(slopes).zip(bias).for_each(|((sum, slope), bias)| *sum += slope * bias);
        }
    }
}
