//! Logit terms that are not operands, computed on the device: host uploads grow with the number of queries or keys, never with both.

use std::array::from_fn;
use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, FloatDType, IntDType, Shape, TensorData};

use super::masks::{MASKS, Strip};
use super::tensors::{is_positive, part};
use crate::contract::visibility::hidden_logit;
use crate::engine::fused::plan::Part;
use crate::engine::gaussian_weights::LEAST_EXPONENT;
use crate::engine::{GaussianWeights, Ramp};

/// Distance from a centre, in deviations, beyond which weights vanish: the square is finite, and half of it far beyond the smallest exponent.
const FARTHEST_DEVIATION: f32 = 100.0;

/// Creates the terms of an attention with `keys` keys.
pub(super) struct Terms<B: Backend> {
    keys: usize,
    device: B::Device,
    dtype: DType,
    /// `[1, 1, 1, K]`, created on demand.
    key_indices: OnceCell<FloatTensor<B>>,
}

impl<B: Backend> Terms<B> {
    pub(super) fn new(keys: usize, device: B::Device, dtype: DType) -> Self {
        Self { keys, device, dtype, key_indices: OnceCell::new() }
    }

    pub(super) fn hidden(&self) -> f32 {
        hidden_logit(self.dtype)
    }

    pub(super) fn zeros(&self, shape: [usize; 4]) -> FloatTensor<B> {
        B::float_zeros(Shape::new(shape), &self.device, self.dtype.into())
    }

    /// Additive mask of a plan's parts, `[B|1, H|1, queries, keys]`.
    pub(super) fn mask(&self, parts: &Arc<[Part]>, chunk: &Range<usize>) -> FloatTensor<B> {
        MASKS.mask::<B>(parts, Strip { queries: chunk, keys: self.keys, device: &self.device, dtype: self.dtype })
    }

    /// Levels of a ramp, and 1 for keys within the query's range, otherwise 0; both `[1, 1, queries, keys]`. Levels outside the range are arbitrary.
    pub(super) fn levels(&self, ramp: &Ramp, chunk: &Range<usize>) -> [FloatTensor<B>; 2] {
        let first = chunk.start as i64 + ramp.offset as i64;
        let queries = self.indices(first..first + chunk.len() as i64, [1, 1, chunk.len(), 1]);
        let distances = B::float_abs(B::float_sub(queries, self.key_indices()));
        let opposite = B::float_neg(distances.clone());
        // Distances are whole numbers, so a limit offset by one half separates them.
        let is_far_enough = is_positive::<B>(B::float_add_scalar(distances, (0.5 - ramp.nearest as f32).into()));
        let is_near_enough = is_positive::<B>(B::float_add_scalar(opposite.clone(), (ramp.farthest as f32 + 0.5).into()));
        let levels = B::float_add_scalar(opposite, ramp.origin.into());
        [levels, B::float_mul(is_far_enough, is_near_enough)].map(|numbers| self.converted(numbers))
    }

    /// Log closed-form weights of the queries of a chunk, `[B|1, H, queries, keys]`.
    pub(super) fn gaussians(&self, gaussians: &GaussianWeights, heads: usize, chunk: &Range<usize>) -> FloatTensor<B> {
        let rows = gaussians.rows();
        let queries =
            (0..rows * heads).flat_map(|plane| chunk.clone().map(move |query| gaussians.row(plane / heads, plane % heads, query)));
        let numbers: Vec<[f32; 5]> = queries.map(|row| row.numbers()).collect();
        let numbers = TensorData::new(numbers.into_flattened(), [rows, heads, chunk.len(), 5]);
        let numbers = B::float_from_data(numbers, &self.device);
        let [nearest, fraction, sharpness, height, window] = from_fn(|number| part::<B>(&numbers, 3, number..number + 1));

        let distances = B::float_sub(self.key_indices(), nearest);
        let deviations = B::float_mul(B::float_sub(distances.clone(), fraction), sharpness);
        let deviations = B::float_clamp(deviations, (-FARTHEST_DEVIATION).into(), FARTHEST_DEVIATION.into());
        let exponents = B::float_mul_scalar(B::float_mul(deviations.clone(), deviations), (-0.5).into());
        let is_beyond = is_positive::<B>(B::float_sub(B::float_abs(distances), window));
        let is_held = is_positive::<B>(B::float_sub_scalar(exponents.clone(), LEAST_EXPONENT.into()));
        let has_weight = B::float_clamp_min(B::float_sub(is_held, is_beyond), 0.0.into());
        let logits = B::float_mul(B::float_add(exponents, height), has_weight.clone());
        let hidden = B::float_mul_scalar(B::float_sub_scalar(has_weight, 1.0.into()), (-self.hidden()).into());
        self.converted(B::float_add(logits, hidden))
    }

    fn key_indices(&self) -> FloatTensor<B> {
        self.key_indices.get_or_init(|| self.indices(0..self.keys as i64, [1, 1, 1, self.keys])).clone()
    }

    /// 32-bit numbers, which represent every index, unlike 16 bits.
    fn indices(&self, range: Range<i64>, shape: [usize; 4]) -> FloatTensor<B> {
        let indices = B::int_arange(range, &self.device, IntDType::I32);
        B::float_reshape(B::int_into_float(indices, FloatDType::F32), Shape::new(shape))
    }

    /// Converts 32-bit numbers to the type of the logits.
    fn converted(&self, numbers: FloatTensor<B>) -> FloatTensor<B> {
        if numbers.dtype() == self.dtype { numbers } else { B::float_cast(numbers, self.dtype.into()) }
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn_cubecl::CubeBackend;

    use super::*;
    use crate::engine::GaussianShape;
    use crate::engine::fused::tensor_ops::tests::{adapter, numbers};

    fn terms(keys: usize) -> Terms<CubeBackend> {
        Terms::new(keys, adapter(), DType::F32)
    }

    #[test]
    fn levels_of_the_device_are_those_of_the_ramp() {
        let ramp = |origin, [nearest, farthest]: [usize; 2], offset| Ramp { width: 3.0, origin, nearest, farthest, offset };
        let ramps = [ramp(0.0, [0, usize::MAX], 0), ramp(0.5, [1, 20], 0), ramp(1.0, [0, 64], 57), ramp(-0.25, [3, 3], -40)];
        let (chunk, keys) = (128..200, 190);
        for ramp in ramps {
            let [levels, is_there] = terms(keys).levels(&ramp, &chunk).map(numbers::<CubeBackend>);
            let mut hidden = 0;
            let pairs = chunk.clone().flat_map(|query| (0..keys).map(move |key| (query, key)));
            for (at, (query, key)) in pairs.enumerate() {
                match ramp.level(query, key) {
                    Some(level) => assert_eq!((levels[at], is_there[at]), (level, 1.0), "{ramp:?}: query {query}, key {key}"),
                    None => {
                        hidden += 1;
                        assert_eq!(is_there[at], 0.0, "{ramp:?}: query {query}, key {key}");
                    }
                }
            }
            assert_eq!(hidden == 0, ramp.farthest == usize::MAX, "{ramp:?} does not hide what it should");
        }
    }

    #[test]
    fn gaussians_of_the_device_are_those_of_the_host() {
        let shapes = [(1.0, f64::INFINITY), (2.5, 3.0), (f64::INFINITY, 0.0), (40.0, f64::INFINITY), (1e-30, 7.5)];
        let shapes = shapes.map(|(deviation, window)| GaussianShape { deviation, window }).to_vec();
        let (heads, queries, keys) = (shapes.len(), 200, 170);
        let centres = (0..2 * heads).flat_map(|plane| (0..queries).map(move |query| query as f64 * 0.9 - 3.3 * plane as f64));
        let gaussians = GaussianWeights::new(shapes, queries, centres.collect(), true);
        let terms = terms(keys);
        for chunk in [0..128, 128..200] {
            let found = numbers::<CubeBackend>(terms.gaussians(&gaussians, heads, &chunk));
            assert_eq!(found.len(), 2 * heads * chunk.len() * keys);
            let mut hidden = 0;
            for (index, found) in found.iter().enumerate() {
                let (plane, query, key) = (index / (chunk.len() * keys), chunk.start + index / keys % chunk.len(), index % keys);
                let wanted = gaussians.row(plane / heads, plane % heads, query).logit(key as f32).max(terms.hidden());
                hidden += usize::from(wanted == terms.hidden());
                let is_same =
                    if wanted == terms.hidden() { *found == wanted } else { (found - wanted).abs() <= 1e-6 * (1.0 + wanted.abs()) };
                assert!(is_same, "plane {plane}, query {query}, key {key}: {found}, not {wanted}");
            }
            assert!(0 < hidden && hidden < found.len());
        }
    }
}
