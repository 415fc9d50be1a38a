//! Closed-form weights: normal densities around a centre per query.

use std::f64::consts::TAU;
use std::ops::Range;

use burn::tensor::{DType, Device, Tensor, TensorData};

/// Normal densities over keys as weights: `N(j; c, σ²)` for key `j` and a query with centre `c`, up to a distance from the rounded centre, and 0 beyond.
#[derive(Clone, Debug, PartialEq)]
pub struct GaussianWeights {
    shapes: Vec<GaussianShape>,
    queries: usize,
    /// `[B|1, H, Q]`, in key indices.
    centres: Vec<f64>,
    renormalise: bool,
}

/// Normal density of one head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianShape {
    /// Standard deviation σ, greater than 0; infinite for equal weights of 1 within the window.
    pub deviation: f64,
    /// Maximum distance of a key from the rounded centre.
    pub window: f64,
}

/// Exponent below which weights underflow a 32-bit float.
pub(super) const LEAST_EXPONENT: f32 = -87.0;

/// Log weights of one query in 32-bit floats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    nearest: f32,
    fraction: f32,
    sharpness: f32,
    height: f32,
    window: f32,
}

impl GaussianShape {
    /// Factor of the exponential.
    fn scale(&self) -> f64 {
        if self.deviation.is_finite() { 1.0 / (self.deviation * TAU.sqrt()) } else { 1.0 }
    }

    /// Weight of a key for a query with this centre.
    pub(crate) fn weight(&self, centre: f64, key: f64) -> f64 {
        if (key - centre.round()).abs() > self.window {
            return 0.0;
        }
        (-0.5 * ((key - centre) / self.deviation).powi(2)).exp() * self.scale()
    }
}

impl GaussianWeights {
    /// Weights of `queries` queries with the centres `[B|1, H, Q]`, one shape per head, whose rows are divided by their sums over the visible keys if
    /// `renormalise`. Centres must not decrease from one query to the next, so that those of a tile lie between its first and its last.
    ///
    /// # Panics
    /// If the number of centres does not fit the shape, or centres decrease.
    pub fn new(shapes: Vec<GaussianShape>, queries: usize, centres: Vec<f64>, renormalise: bool) -> Self {
        assert!(centres.len().is_multiple_of(shapes.len() * queries), "{} centres for {queries} queries of each head", centres.len());
        assert!(centres.chunks(queries).all(|centres| centres.is_sorted()), "centres fall from one query to the next");
        Self { shapes, queries, centres, renormalise }
    }

    /// Number of queries.
    pub fn queries(&self) -> usize {
        self.queries
    }

    /// Number of heads.
    pub(super) fn heads(&self) -> usize {
        self.shapes.len()
    }

    /// Number of distinct batch rows.
    pub fn rows(&self) -> usize {
        self.centres.len() / (self.shapes.len() * self.queries)
    }

    /// Whether rows are divided by their sum.
    pub(crate) fn are_renormalised(&self) -> bool {
        self.renormalise
    }

    /// Weights of the first `keys` keys, `[B|1, H, Q, K]`.
    pub fn weights(&self, keys: usize, dtype: DType, device: &Device) -> Tensor<4> {
        let heads = self.shapes.len();
        let of = |(index, centre): (usize, &f64)| {
            let (gaussian, centre) = (self.shapes[index / self.queries % heads], *centre);
            (0..keys).map(move |key| gaussian.weight(centre, key as f64) as f32)
        };
        let weights = self.centres.iter().enumerate().flat_map(of).collect();
        Tensor::from_data(TensorData::new(weights, [self.rows(), heads, self.queries, keys]), (device, dtype))
    }

    /// Index of the centre of a query.
    fn index(&self, row: usize, head: usize, query: usize) -> usize {
        let row = if self.rows() == 1 { 0 } else { row };
        (row * self.shapes.len() + head) * self.queries + query
    }

    /// Weights of a query of a batch row and head.
    pub(super) fn row(&self, row: usize, head: usize, query: usize) -> Row {
        let (gaussian, centre) = (self.shapes[head], self.centres[self.index(row, head, query)]);
        let nearest = centre.round();
        Row {
            nearest: nearest as f32,
            fraction: (centre - nearest) as f32,
            sharpness: (1.0 / gaussian.deviation) as f32,
            height: gaussian.scale().ln() as f32,
            window: gaussian.window as f32,
        }
    }

    /// Whether all keys of `keys` have weight 0 for all queries of `queries`.
    pub(super) fn are_beyond(&self, row: usize, head: usize, queries: Range<usize>, keys: Range<usize>) -> bool {
        let GaussianShape { deviation, window } = self.shapes[head];
        let reach = window.min((f64::from(-2.0 * LEAST_EXPONENT)).sqrt() * deviation + 1.0);
        let centre = |query| self.centres[self.index(row, head, query)].round();
        (keys.end as f64 - 1.0) < centre(queries.start) - reach || keys.start as f64 > centre(queries.end - 1) + reach
    }
}

impl Row {
    /// The row without infinities: the key nearest to the centre, the centre's offset from it, the factor of distances, the maximum log weight, and the maximum
    /// distance.
    pub(super) fn numbers(&self) -> [f32; 5] {
        [self.nearest, self.fraction, self.sharpness.min(f32::MAX), self.height, self.window.min(f32::MAX)]
    }

    /// Log weight of a key; negative infinity for weight 0.
    #[inline(always)]
    pub(super) fn logit(&self, key: f32) -> f32 {
        let distance = key - self.nearest;
        let deviations = (distance - self.fraction) * self.sharpness;
        let exponent = -0.5 * deviations * deviations;
        let is_near = distance.abs() <= self.window && exponent > LEAST_EXPONENT;
        if is_near { exponent + self.height } else { f32::NEG_INFINITY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_are_logarithms_of_the_weights_however_far_the_centre() {
        for (deviation, window) in [(1.0, f64::INFINITY), (2.5, 3.0), (f64::INFINITY, 0.0)] {
            let gaussian = GaussianShape { deviation, window };
            for centre in [0.3, 16_000.0, 16_000.7, -4.5] {
                let gaussians = GaussianWeights::new(vec![gaussian], 1, vec![centre], false);
                let row = gaussians.row(0, 0, 0);
                for key in (centre - 20.0).max(0.0) as usize..(centre + 20.0) as usize {
                    let (found, wanted) = (f64::from(row.logit(key as f32)).exp(), gaussian.weight(centre, key as f64));
                    assert!(
                        (found - wanted).abs() <= 1e-5 * wanted + 1e-37,
                        "{gaussian:?} at {centre}: key {key} has {found}, not {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "centres fall")]
    fn centres_that_fall_are_refused() {
        GaussianWeights::new(vec![GaussianShape { deviation: 1.0, window: 1.0 }], 2, vec![1.0, 0.0], false);
    }

    #[test]
    fn tiles_beyond_a_gaussian_have_no_weight_and_those_before_it_may() {
        let centres: Vec<f64> = (0..64).map(f64::from).collect();
        let gaussians = |window| GaussianWeights::new(vec![GaussianShape { deviation: 1.0, window }], 64, centres.clone(), false);
        assert!(gaussians(f64::INFINITY).are_beyond(0, 0, 0..64, 128..192));
        assert!(!gaussians(f64::INFINITY).are_beyond(0, 0, 0..64, 64..128));
        assert!(gaussians(0.0).are_beyond(0, 0, 0..64, 64..128));
        assert!(gaussians(0.0).are_beyond(0, 0, 32..64, 0..32) && !gaussians(1.0).are_beyond(0, 0, 32..64, 0..32));
    }
}
