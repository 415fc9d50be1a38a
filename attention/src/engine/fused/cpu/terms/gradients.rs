//! Gradients of the terms except the bias.

use pulp::Simd;

use super::super::kernel::{Matrix, Sparsity, Transposed, add_product, padded};
use super::super::layout::{Sizes, of_plane};
use super::{STRIP, Scratch, Terms, TileIndex, first_column};
use crate::contract::visibility::TILE;

/// Destination of the term gradients of one batch row and head.
pub(crate) struct TermsOfPlane<'a> {
    /// `[Q, S]`.
    pub relative_queries: &'a mut [f32],
    /// `[Q + K - 1, S]`.
    pub relative_keys: &'a mut [f32],
    /// `[Q, a]`.
    pub left: &'a mut [f32],
    /// `[Q, b]`.
    pub right: &'a mut [f32],
    /// `[Q]` or `[1]`.
    pub spans: &'a mut [f32],
}

/// Gradients of the terms of one batch row and head.
#[derive(Default)]
pub(crate) struct TermGradients {
    /// `[query tiles, TILE, padded S]`.
    relative_queries: Vec<f32>,
    /// `[(strips + 1) TILE, padded S]`.
    relative_rows: Vec<f32>,
    /// `[Q, a]`.
    left: Vec<f32>,
    /// `[Q, b]`.
    right: Vec<f32>,
    /// `[Q]`.
    spans: Vec<f32>,
}

impl TermGradients {
    pub(crate) fn new(terms: &Terms, queries: usize) -> Self {
        let (relative_queries, relative_rows) =
            terms.relative.as_ref().map_or((0, 0), |relative| (relative.query_rows.len(), relative.rows.len()));
        Self {
            relative_queries: vec![0.0; relative_queries],
            relative_rows: vec![0.0; relative_rows],
            left: terms.kronecker.map_or_else(Vec::new, |kronecker| vec![0.0; queries * kronecker.left.stride]),
            right: terms.kronecker.map_or_else(Vec::new, |kronecker| vec![0.0; queries * kronecker.right.stride]),
            spans: vec![0.0; if terms.spans.is_some() { queries } else { 0 }],
        }
    }

    /// Adds the effect of the logit gradients `slopes` of a tile, except on the bias. In a triangle, keys after a query's own place have none.
    #[inline(always)]
    pub(crate) fn add<S: Simd>(
        &mut self,
        simd: S,
        terms: &Terms,
        TileIndex { queries, keys, height }: TileIndex,
        is_triangle: bool,
        slopes: &[f32],
        scratch: &mut Scratch,
    ) {
        let [query_places, key_places] = terms.places;
        let rows = || slopes.chunks_exact(TILE).take(height).enumerate();
        if let Some(relative) = &terms.relative {
            let columns = padded(relative.width);
            let products = &mut scratch.products;
            // The slopes of a query have the same place in all tiles, and all other entries stay 0.
            products.resize(TILE * STRIP, 0.0);
            for (at, slopes) in rows() {
                products[at * STRIP + first_column(at)..][..TILE].copy_from_slice(slopes);
            }
            let products = Matrix { numbers: products, stride: STRIP };
            let met = if is_triangle { TILE } else { STRIP };
            let first = relative.strip([queries, keys]) * TILE * columns;
            let table = Matrix { numbers: &relative.rows[first..][..met * columns], stride: columns };
            let own = Matrix { numbers: of_plane(&relative.query_rows, queries, TILE * columns), stride: columns };
            let of_queries = &mut self.relative_queries[queries * TILE * columns..][..TILE * columns];
            add_product(simd, [height, columns, met], Sparsity::BandOfLeft, products, table, of_queries);
            let of_rows = &mut self.relative_rows[first..][..met * columns];
            add_product(simd, [met, columns, height], Sparsity::BandOfTransposedLeft, Transposed(products), own, of_rows);
        }
        if let Some(kronecker) = terms.kronecker {
            let pairs = kronecker.pairs(key_places, keys);
            for (at, slopes) in rows() {
                let query = query_places.index(queries * TILE + at);
                let [left, right] = kronecker.vectors(query);
                let of_left = &mut self.left[query * left.len()..][..left.len()];
                let of_right = &mut self.right[query * right.len()..][..right.len()];
                for (slope, &[a, b]) in slopes.iter().zip(&pairs) {
                    of_left[a] += slope * right[b];
                    of_right[b] += slope * left[a];
                }
            }
        }
        if let Some(spans) = terms.spans {
            for (at, slopes) in rows() {
                let query = query_places.index(queries * TILE + at);
                let length = spans.length(query);
                let mut sum = 0.0;
                key_places.each(keys, |place, key| {
                    let height = spans.ramp.height(length, query, key);
                    if height > 0.0 && height <= 1.0 {
                        sum += slopes[place] / height;
                    }
                });
                self.spans[query] += sum / spans.ramp.width;
            }
        }
    }

    /// Adds the gradient of a query's span from a key exactly at the end of its ramp; `slope` is the gradient by its factor.
    pub(crate) fn add_end(&mut self, terms: &Terms, query: usize, slope: f32) {
        let width = terms.spans.expect("what ends is a span").ramp.width;
        self.spans[query] += slope / width;
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        let add = |sums: &mut Vec<f32>, numbers: &[f32]| {
            if sums.is_empty() {
                sums.extend_from_slice(numbers);
            } else {
                sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
            }
        };
        add(&mut self.relative_queries, &other.relative_queries);
        add(&mut self.relative_rows, &other.relative_rows);
        add(&mut self.left, &other.left);
        add(&mut self.right, &other.right);
        add(&mut self.spans, &other.spans);
    }

    /// Adds the gradients to those of the whole attention.
    pub(crate) fn finish(&self, Sizes { queries, relative: width, .. }: Sizes, of: TermsOfPlane) {
        let add = |sums: &mut [f32], numbers: &[f32]| sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        let add_rows = |sums: &mut [f32], rows: &[f32]| {
            sums.chunks_mut(width.max(1)).zip(rows.chunks(padded(width).max(1))).for_each(|(sums, row)| add(sums, row));
        };
        add_rows(of.relative_queries, &self.relative_queries);
        let first = (queries.next_multiple_of(TILE) - queries) * padded(width);
        add_rows(of.relative_keys, self.relative_rows.get(first..).unwrap_or_default());
        add(of.left, &self.left);
        add(of.right, &self.right);
        if let [sum] = of.spans {
            *sum += self.spans.iter().sum::<f32>();
        } else {
            add(of.spans, &self.spans);
        }
    }
}
