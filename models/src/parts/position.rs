//! Position vectors, which encode the order of the input.
//!
//! `sinusoidal` is that of Vaswani et al. 2017, section 3.5: `PE(p, 2i) = sin(p / 10000^(2i/d))`, `PE(p, 2i+1) = cos(p / 10000^(2i/d))`, sines and cosines
//! interleaved. (tensor2tensor puts all sines before all cosines and spaces the wavelengths slightly differently.) `learned` is a table of vectors, `per-layer`
//! one table per layer, `grid` one table per coordinate.

mod grid;

use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::prelude::*;
use rand::RngExt;
use serde::{Deserialize, Serialize};

pub use self::grid::{GridConfig, GridEncoding, Join};

/// Position vectors added to the embedded tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PositionConfig {
    /// Fixed sinusoids (the paper). Needs an even `d_model`.
    #[default]
    Sinusoidal,
    /// A trained table, drawn with standard deviation `d_model^-0.5`.
    Learned,
    /// A trained table per layer, added before it, since deep stacks lose information that is added only once (Al-Rfou et al. 2018, section 3). Requires layers
    /// with separate weights that are not reversible.
    PerLayer,
    /// Trained tables, one per grid coordinate: images, and long texts read as grids.
    Grid(GridConfig),
    /// No position vectors.
    None,
}

/// Adds a vector per position.
///
/// Should be created with [`PositionConfig`].
#[derive(Module, Debug)]
pub struct PositionEncoding {
    /// Fixed vectors `[max_length, C]`.
    pub sinusoids: Option<Tensor<2>>,
    /// Trained vectors `[max_length, C]`.
    pub learned: Option<Param<Tensor<2>>>,
    /// Trained vectors of coordinates.
    pub grid: Option<GridEncoding>,
    max_length: usize,
    offset: usize,
}

impl PositionConfig {
    pub(crate) fn validate(&self, check: &Check, d_model: usize, max_length: usize) -> Result<(), ConfigError> {
        match self {
            Self::Sinusoidal if d_model % 2 == 1 => {
                let remedy = "sinusoids come in pairs of sine and cosine: give an even number, or positions = \"learned\"";
                Err(check.refuse("d_model", d_model, remedy))
            }
            Self::Grid(grid) => grid.validate(check, d_model, max_length),
            _ => Ok(()),
        }
    }

    /// Initialises the vectors of positions `0..max_length`.
    pub fn init(&self, max_length: usize, d_model: usize, key: &RandomKey, device: &Device) -> PositionEncoding {
        self.init_from(0, max_length, d_model, key, device)
    }

    /// Initialises the vectors of `max_length` positions, starting with the sinusoids of position `first`.
    pub(crate) fn init_from(&self, first: usize, max_length: usize, d_model: usize, key: &RandomKey, device: &Device) -> PositionEncoding {
        let shape = [max_length, d_model];
        let deviation = (d_model as f32).powf(-0.5);
        PositionEncoding {
            sinusoids: (*self == Self::Sinusoidal)
                .then(|| Tensor::from_data(TensorData::new(sinusoids(first..first + max_length, d_model), shape), device)),
            learned: matches!(self, Self::Learned | Self::PerLayer)
                .then(|| Init::Normal(deviation).parameter(shape, &key.named("learned"), device)),
            grid: match self {
                Self::Grid(grid) => Some(grid.init(d_model, &key.named("grid"), device)),
                _ => None,
            },
            max_length,
            offset: 0,
        }
    }
}

/// The sinusoids of positions, row by row, computed in double precision.
fn sinusoids(positions: Range<usize>, d_model: usize) -> Vec<f32> {
    let angle = |position: usize, channel: usize| {
        let exponent = (channel / 2 * 2) as f64 / d_model as f64;
        position as f64 / 10_000f64.powf(exponent)
    };
    positions
        .flat_map(|position| {
            (0..d_model).map(move |channel| {
                let angle = angle(position, channel);
                (if channel % 2 == 0 { angle.sin() } else { angle.cos() }) as f32
            })
        })
        .collect()
}

impl PositionEncoding {
    /// Sets the maximum offset of [`shifted`](Self::shifted).
    pub fn with_offset(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// Positions of `length` tokens, in training shifted by a random offset per batch, so that a model learns positions beyond short sequences (Dehghani et al.
    /// 2018, section 3.3). All vectors of a pass are shifted equally.
    pub fn shifted(&self, positions: &Positions, length: usize, random: Option<&RandomKey>) -> Positions {
        let most = self.offset.min(self.max_length.saturating_sub(positions.start + length));
        match random {
            Some(key) if most > 0 => {
                let offset = key.named("position offset").rng().random_range(0..=most);
                Positions { start: positions.start + offset, ..positions.clone() }
            }
            _ => positions.clone(),
        }
    }

    /// Adds the vectors of its positions to `x` `[B, N, C]`. The first real token of a left-padded row has position 0.
    ///
    /// # Panics
    /// If a position exceeds the maximal length.
    pub fn forward(&self, x: Tensor<3>, positions: &Positions) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let last = positions.start + length;
        assert!(last <= self.max_length, "{last} positions exceed the model's max_length {}", self.max_length);
        let indices = positions.start..last;
        let vectors = match &positions.left_padding {
            None => self.vectors(indices).map(Tensor::unsqueeze),
            Some(counts) => {
                let own: Vec<usize> =
                    counts.iter().flat_map(|&count| indices.clone().map(move |index| index.saturating_sub(count))).collect();
                self.gathered(&own).map(|vectors| vectors.reshape([batch, length, width]))
            }
        };
        vectors.map_or(x.clone(), |vectors| x.clone() + vectors.cast(x.dtype()))
    }

    /// Vectors of successive positions, `[positions, C]`, if any.
    pub(crate) fn vectors(&self, positions: Range<usize>) -> Option<Tensor<2>> {
        match (&self.grid, self.table()) {
            (Some(grid), _) => Some(grid.vectors(&positions.collect::<Vec<_>>())),
            (None, table) => table.map(|table| table.narrow(0, positions.start, positions.len())),
        }
    }

    /// Vectors of positions in any order.
    fn gathered(&self, positions: &[usize]) -> Option<Tensor<2>> {
        match (&self.grid, self.table()) {
            (Some(grid), _) => Some(grid.vectors(positions)),
            (None, table) => table.map(|table| selected(table, positions)),
        }
    }

    fn table(&self) -> Option<Tensor<2>> {
        self.sinusoids.clone().or_else(|| self.learned.as_ref().map(Param::val))
    }
}

/// Rows of a table `[entries, C]`.
fn selected(table: Tensor<2>, rows: &[usize]) -> Tensor<2> {
    let indices: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
    let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [rows.len()]), &table.device());
    table.select(0, indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(max_length: usize, d_model: usize) -> Vec<Vec<f64>> {
        sinusoids(0..max_length, d_model).chunks(d_model).map(|row| row.iter().map(|&v| f64::from(v)).collect()).collect()
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
    fn offsets_are_drawn_in_training_alone_and_stay_within_the_maximal_length() {
        let encoding = PositionConfig::Sinusoidal.init(20, 4, &RandomKey::from_seed(1), &Device::flex()).with_offset(30);
        let start = |seed: u64| encoding.shifted(&Positions::default(), 5, Some(&RandomKey::from_seed(seed))).start;
        let starts: Vec<usize> = (0..200).map(start).collect();
        assert_eq!([starts.iter().min(), starts.iter().max()], [Some(&0), Some(&15)]);
        assert_eq!(start(3), start(3));
        assert_eq!(encoding.shifted(&Positions::from_start(2), 5, None).start, 2);
        let without = PositionConfig::Sinusoidal.init(20, 4, &RandomKey::from_seed(1), &Device::flex());
        assert!((0..20).all(|seed| without.shifted(&Positions::default(), 5, Some(&RandomKey::from_seed(seed))).start == 0));
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
