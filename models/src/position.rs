//! What tells a model the order of its input.
//!
//! `sinusoidal` is that of Vaswani et al. 2017, section 3.5: `PE(p, 2i) = sin(p / 10000^(2i/d))`, `PE(p, 2i+1) = cos(p / 10000^(2i/d))`, sines and cosines
//! interleaved. (tensor2tensor puts all sines before all cosines and spaces the wavelengths slightly differently.) `learned` is a table of vectors.

use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::contract::Positions;
use heedful_attention::init::Init;
use heedful_attention::random::RandomKey;
use serde::{Deserialize, Serialize};

use crate::error::{Check, ConfigError};

/// Which position vectors are added to the embedded tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PositionConfig {
    /// Fixed sinusoids (the paper). Needs an even `d_model`.
    #[default]
    Sinusoidal,
    /// A trained table, drawn with standard deviation `d_model^-0.5`.
    Learned,
    /// Nothing.
    None,
}

/// Adds a vector for each position.
///
/// Should be created with [`PositionConfig`].
#[derive(Module, Debug)]
pub struct PositionEncoding {
    /// Fixed vectors `[max_length, C]`.
    pub sinusoids: Option<Tensor<2>>,
    /// Trained vectors `[max_length, C]`.
    pub learned: Option<Param<Tensor<2>>>,
    max_length: usize,
}

impl PositionConfig {
    pub(crate) fn validate(self, check: &Check, d_model: usize) -> Result<(), ConfigError> {
        if self == Self::Sinusoidal && d_model % 2 == 1 {
            let remedy = "sinusoids come in pairs of sine and cosine: give an even number, or positions = \"learned\"";
            return Err(check.wrong("d_model", d_model, remedy));
        }
        Ok(())
    }

    /// Initialises the vectors of positions `0..max_length`.
    pub fn init(&self, max_length: usize, d_model: usize, key: &RandomKey, device: &Device) -> PositionEncoding {
        let shape = [max_length, d_model];
        let deviation = (d_model as f32).powf(-0.5);
        PositionEncoding {
            sinusoids: (*self == Self::Sinusoidal)
                .then(|| Tensor::from_data(TensorData::new(sinusoids(max_length, d_model), shape), device)),
            learned: (*self == Self::Learned).then(|| Init::Normal(deviation).parameter(shape, &key.named("learned"), device)),
            max_length,
        }
    }
}

/// The sinusoids of positions `0..max_length`, row by row, computed in double precision.
fn sinusoids(max_length: usize, d_model: usize) -> Vec<f32> {
    let angle = |position: usize, channel: usize| {
        let exponent = (channel / 2 * 2) as f64 / d_model as f64;
        position as f64 / 10_000f64.powf(exponent)
    };
    (0..max_length)
        .flat_map(|position| {
            (0..d_model).map(move |channel| {
                let angle = angle(position, channel);
                (if channel % 2 == 0 { angle.sin() } else { angle.cos() }) as f32
            })
        })
        .collect()
}

impl PositionEncoding {
    /// `x` `[B, N, C]` plus the vectors of its positions. The first real element of a row that is padded on the left has position 0.
    ///
    /// # Panics
    /// If a position lies beyond the maximal length.
    pub fn forward(&self, x: Tensor<3>, positions: &Positions) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let last = positions.start + length;
        assert!(last <= self.max_length, "{last} positions exceed the model's max_length {}", self.max_length);
        let table = match (&self.sinusoids, &self.learned) {
            (Some(table), _) => table.clone(),
            (None, Some(table)) => table.val(),
            (None, None) => return x,
        };
        let Some(counts) = &positions.left_padding else {
            return x + table.narrow(0, positions.start, length).unsqueeze();
        };
        assert_eq!(counts.len(), batch, "left padding of {} rows for a batch of {batch}", counts.len());
        let indices: Vec<i32> =
            counts.iter().flat_map(|&count| (positions.start..last).map(move |index| index.saturating_sub(count) as i32)).collect();
        let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [batch * length]), &x.device());
        x + table.select(0, indices).reshape([batch, length, width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(max_length: usize, d_model: usize) -> Vec<Vec<f64>> {
        sinusoids(max_length, d_model).chunks(d_model).map(|row| row.iter().map(|&v| f64::from(v)).collect()).collect()
    }

    fn product(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn sinusoids_have_the_values_of_the_paper() {
        let rows = rows(4, 4);
        let expected = [3f64.sin(), 3f64.cos(), 0.03f64.sin(), 0.03f64.cos()];
        assert!(rows[3].iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-7), "{:?}", rows[3]);
        assert_eq!(rows[0], [0.0, 1.0, 0.0, 1.0]);
    }

    #[test]
    fn every_sinusoid_vector_has_the_same_length() {
        for row in rows(300, 64) {
            assert!((product(&row, &row) - 32.0).abs() < 1e-5);
        }
    }

    #[test]
    fn products_of_sinusoid_vectors_depend_on_the_distance_only() {
        let rows = rows(200, 32);
        for distance in [1, 7, 50] {
            let expected = product(&rows[0], &rows[distance]);
            for start in [1, 20, 149] {
                assert!((product(&rows[start], &rows[start + distance]) - expected).abs() < 1e-5);
            }
        }
        assert!((product(&rows[0], &rows[1]) - product(&rows[0], &rows[2])).abs() > 0.1);
    }

    #[test]
    fn a_row_padded_on_the_left_starts_at_position_zero() {
        let device = Device::flex();
        for config in [PositionConfig::Sinusoidal, PositionConfig::Learned] {
            let encoding = config.init(8, 4, &RandomKey::from_seed(1), &device);
            let plain = encoding.forward(Tensor::zeros([1, 3, 4], &device), &Positions::default());
            let padded = Positions::default().with_left_padding(vec![2, 0]);
            let padded = encoding.forward(Tensor::zeros([2, 5, 4], &device), &padded);
            assert_eq!(padded.clone().slice([0..1, 2..5]).into_data(), plain.clone().into_data(), "{config:?}");
            assert_eq!(padded.slice([1..2, 0..3]).into_data(), plain.into_data(), "{config:?}");
        }
    }

    #[test]
    fn later_steps_continue_where_the_first_stopped() {
        let device = Device::flex();
        let encoding = PositionConfig::Learned.init(8, 4, &RandomKey::from_seed(1), &device);
        let whole = encoding.forward(Tensor::zeros([1, 5, 4], &device), &Positions::default());
        let tail = encoding.forward(Tensor::zeros([1, 2, 4], &device), &Positions::from_start(3));
        assert_eq!(whole.slice([0..1, 3..5]).into_data(), tail.into_data());
    }

    #[test]
    fn no_position_vectors_leave_the_input_alone() {
        let device = Device::flex();
        let encoding = PositionConfig::None.init(8, 4, &RandomKey::from_seed(1), &device);
        let x = Tensor::ones([1, 2, 4], &device);
        assert_eq!(encoding.forward(x.clone(), &Positions::default()).into_data(), x.into_data());
    }

    #[test]
    #[should_panic(expected = "9 positions exceed the model's max_length 8")]
    fn positions_beyond_the_maximal_length_panic() {
        let device = Device::flex();
        let encoding = PositionConfig::None.init(8, 4, &RandomKey::from_seed(1), &device);
        encoding.forward(Tensor::ones([1, 9, 4], &device), &Positions::default());
    }
}
