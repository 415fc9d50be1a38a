//! Arrays on the host, in double precision.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};
use heedful_random::RandomKey;
use rand::RngExt;

use crate::tensors::read::read;

/// An array of any rank, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Size of each dimension.
    pub shape: Vec<usize>,
    /// The elements, as many as the product of the sizes.
    pub values: Vec<f64>,
}

impl Array {
    /// Numbers in [-1.5, 1.5] that single precision represents exactly; equal names return equal numbers.
    pub fn random(name: &str, shape: &[usize]) -> Self {
        let mut rng = RandomKey::from_seed(20).named(name).rng();
        let values = (0..shape.iter().product()).map(|_| f64::from(rng.random_range(-1.5f32..=1.5))).collect();
        Self { shape: shape.to_vec(), values }
    }

    /// Values of a function of the index.
    pub fn from_fn<const D: usize>(shape: [usize; D], value: impl Fn([usize; D]) -> f64) -> Self {
        let values = (0..shape.iter().product())
            .map(|flat: usize| {
                let mut index = [0; D];
                let mut rest = flat;
                for (at, size) in index.iter_mut().zip(shape).rev() {
                    *at = rest % size;
                    rest /= size;
                }
                value(index)
            })
            .collect();
        Self { shape: shape.to_vec(), values }
    }

    /// Copies a tensor to the host.
    pub fn read<const D: usize>(tensor: Tensor<D>) -> Self {
        let shape = tensor.dims().to_vec();
        Self { shape, values: read(tensor).iter::<f64>().collect() }
    }

    /// Copies to a device, in single precision.
    ///
    /// # Panics
    /// If the rank is not `D`.
    pub fn tensor<const D: usize>(&self, device: &Device) -> Tensor<D> {
        let values: Vec<f32> = self.values.iter().map(|&value| value as f32).collect();
        Tensor::from_data(TensorData::new(values, self.shape.clone()), device)
    }

    fn offset(&self, index: &[usize]) -> usize {
        let inner: usize = self.shape[index.len()..].iter().product();
        let outer = index.iter().zip(&self.shape).fold(0, |flat, (&at, &size)| {
            assert!(at < size, "index {index:?} in an array of shape {:?}", self.shape);
            flat * size + at
        });
        outer * inner
    }

    /// One element.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn at(&self, index: &[usize]) -> f64 {
        assert_eq!(index.len(), self.shape.len());
        self.values[self.offset(index)]
    }

    /// The elements below a leading index.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn row(&self, index: &[usize]) -> &[f64] {
        let length: usize = self.shape[index.len()..].iter().product();
        &self.values[self.offset(index)..][..length]
    }

    /// Mutable access to the elements below a leading index.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn row_mut(&mut self, index: &[usize]) -> &mut [f64] {
        let length: usize = self.shape[index.len()..].iter().product();
        let offset = self.offset(index);
        &mut self.values[offset..][..length]
    }

    /// The given entries of the first dimension.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn select(&self, rows: &[usize]) -> Self {
        let mut shape = self.shape.clone();
        shape[0] = rows.len();
        Self { shape, values: rows.iter().flat_map(|&row| self.row(&[row]).to_vec()).collect() }
    }

    /// A range of the second dimension.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut shape = self.shape.clone();
        shape[1] = range.len();
        let values = (0..self.shape[0]).flat_map(|row| range.clone().flat_map(move |at| self.row(&[row, at]).to_vec())).collect();
        Self { shape, values }
    }
}

/// Checks that all elements differ by at most `tolerance`; with tolerance 0, that they are equal.
///
/// # Errors
/// The label `what` and the first element that differs.
pub fn same(what: &str, found: &[f64], expected: &[f64], tolerance: f64) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{what}: {} elements instead of {}", found.len(), expected.len()));
    }
    let differs = |(a, b): (&f64, &f64)| {
        let distance = (a - b).abs();
        distance.is_nan() || distance > tolerance
    };
    match found.iter().zip(expected).position(differs) {
        Some(at) => Err(format!("{what}: element {at} is {} instead of {} (tolerance {tolerance})", found[at], expected[at])),
        None => Ok(()),
    }
}

/// Checks that all elements are finite.
///
/// # Errors
/// `what` it is about, and the first element that is not.
pub fn finite(what: &str, values: &[f64]) -> Result<(), String> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(format!("{what}: element {at} is {}", values[at])),
        None => Ok(()),
    }
}
