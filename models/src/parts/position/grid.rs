//! Trained vectors of grid coordinates.
//!
//! For a grid read row by row with channels innermost, position `p` has the coordinates `channel = p mod channels`, `column = (p / channels) mod columns` and
//! `row = p / (columns channels)`. Each coordinate has its own table of vectors: rows, columns and colour channels of images (Parmar et al. 2018; Child et al.
//! 2019, section 5.1). A long text is read as a grid whose row length is the stride of its attention (Child et al. 2019), or with any two sizes whose product
//! is the length (axial positions of the Reformer's released code, which concatenates the vectors). A grid can also be read block by block; a position then has
//! the row, column and channel of its cell (Parmar et al. 2018, section 3.3).
//!
//! In the released code of Parmar et al. and of the Reformer, and in Child et al. (section 6), position vectors have about the magnitude of token vectors. Here
//! this holds with [`EmbeddingScale::None`](crate::parts::embedding::EmbeddingScale::None) or
//! [`Initialisation::Scaled`](crate::block::initialisation::Initialisation::Scaled). The defaults scale only tokens by the square root of the width.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use heedful_attention::mechanisms::local_2d::BlockRaster;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::selected;

/// Combination of the vectors of a position's coordinates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Join {
    /// Their sum.
    #[default]
    Sum,
    /// Concatenation in equal widths; the last one also takes the remainder.
    Concatenated,
}

/// Sizes of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridConfig {
    /// Number of rows.
    pub rows: usize,
    /// Elements per row.
    pub columns: usize,
    /// Channels per element (default 1: without channel vectors).
    #[serde(default = "one")]
    pub channels: usize,
    /// Combination of the vectors (default: sum).
    #[serde(default)]
    pub join: Join,
    /// Rows, and columns times channels, of blocks that are read one after another, each row by row, as in
    /// [`LocalTwoDConfig::query_block`](heedful_attention::mechanisms::local_2d::LocalTwoDConfig::query_block) (default: none, the grid is read row by row).
    #[serde(default)]
    pub block: Option<[usize; 2]>,
}

fn one() -> usize {
    1
}

impl GridConfig {
    /// A grid of one channel, read row by row, with summed vectors.
    pub fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns, channels: one(), join: Join::default(), block: None }
    }

    /// Number of positions of the grid.
    pub fn positions(&self) -> usize {
        self.rows * self.columns * self.channels
    }

    /// Positions in a row.
    fn row(&self) -> usize {
        self.columns * self.channels
    }

    pub(crate) fn validate(&self, check: &Check, d_model: usize, max_length: usize) -> Result<(), ConfigError> {
        for (option, value) in [("positions.rows", self.rows), ("positions.columns", self.columns), ("positions.channels", self.channels)] {
            check.at_least_one(option, value)?;
        }
        if self.positions() < max_length {
            let remedy = format!("give a grid of at least max_length = {max_length} positions; this one has {}", self.positions());
            return Err(check.refuse("positions.rows", self.rows, remedy));
        }
        if let Some(block @ [rows, columns]) = self.block
            && !(self.rows.is_multiple_of(rows) && self.row().is_multiple_of(columns))
        {
            let remedy = format!("give divisors of {} rows and of {} columns times channels", self.rows, self.row());
            return Err(check.refuse("positions.block", format!("{block:?}"), remedy));
        }
        let tables = self.sizes().count();
        if self.join == Join::Concatenated && d_model < tables {
            return Err(check.refuse("d_model", d_model, format!("give at least {tables}: {tables} vectors share it")));
        }
        Ok(())
    }

    /// Name and size of each coordinate with vectors.
    fn sizes(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let channels = (self.channels > 1).then_some(("channels", self.channels));
        [Some(("rows", self.rows)), Some(("columns", self.columns)), channels].into_iter().flatten()
    }

    /// Vector width of a coordinate.
    fn width(&self, index: usize, d_model: usize) -> usize {
        let count = self.sizes().count();
        match self.join {
            Join::Sum => d_model,
            Join::Concatenated if index + 1 < count => d_model / count,
            Join::Concatenated => d_model - (count - 1) * (d_model / count),
        }
    }

    /// Parameter count of the tables.
    pub(crate) fn parameters(&self, d_model: usize) -> u128 {
        self.sizes().enumerate().map(|(index, (_, size))| (size as u128).saturating_mul(self.width(index, d_model) as u128)).sum()
    }

    /// Initialises the tables with standard deviation `(d_model t)^-0.5` for `t` summed tables, so that their sum has the deviation of a learned table.
    pub fn init(&self, d_model: usize, key: &RandomKey, device: &Device) -> GridEncoding {
        let shared = if self.join == Join::Sum { self.sizes().count() } else { 1 };
        let table = |(index, (name, size)): (usize, (&str, usize))| {
            let width = self.width(index, d_model);
            let deviation = ((d_model * shared) as f32).powf(-0.5);
            Init::Normal(deviation).parameter([size, width], &key.named(name), device)
        };
        GridEncoding { tables: self.sizes().enumerate().map(table).collect(), config: *self }
    }
}

/// One table per coordinate.
///
/// Should be created with [`GridConfig`].
#[derive(Module, Debug)]
pub struct GridEncoding {
    /// Tables of rows, columns and, if several, channels: `[size, C]`, or a part of `C` each.
    pub tables: Vec<Param<Tensor<2>>>,
    #[module(skip)]
    config: GridConfig,
}

impl GridEncoding {
    /// Vectors of positions, `[positions, C]`.
    pub(super) fn vectors(&self, positions: &[usize]) -> Tensor<2> {
        let GridConfig { channels, join, block, .. } = self.config;
        let width = self.config.row();
        let order = BlockRaster { width, block: block.unwrap_or([1, width]) };
        let cells: Vec<[usize; 2]> = positions.iter().map(|&position| order.cell(position)).collect();
        let coordinates: [fn(usize, [usize; 2]) -> usize; 3] =
            [|_, [row, _]| row, |channels, [_, place]| place / channels, |channels, [_, place]| place % channels];
        let vectors = self.tables.iter().zip(coordinates).map(|(table, coordinate)| {
            let rows: Vec<usize> = cells.iter().map(|&cell| coordinate(channels, cell)).collect();
            selected(table.val(), &rows)
        });
        match join {
            Join::Sum => vectors.reduce(|a, b| a + b).expect("a grid has rows"),
            Join::Concatenated => Tensor::cat(vectors.collect(), 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::parts::position::PositionConfig;

    fn encoded(config: GridConfig, x: [usize; 3], positions: &Positions) -> Vec<Vec<f32>> {
        let encoding = PositionConfig::Grid(config).init(config.positions(), x[2], &RandomKey::from_seed(1), &Device::flex());
        let all = encoding.forward(Tensor::zeros(x, &Device::flex()), positions);
        all.into_data().try_to_vec::<f32>().unwrap().chunks(x[2]).map(<[f32]>::to_vec).collect()
    }

    fn tables(config: GridConfig, width: usize) -> Vec<Vec<Vec<f32>>> {
        let encoding = config.init(width, &RandomKey::from_seed(1).named("grid"), &Device::flex());
        let rows = |table: &Param<Tensor<2>>| {
            let width = table.dims()[1];
            table.val().into_data().try_to_vec::<f32>().unwrap().chunks(width).map(<[f32]>::to_vec).collect()
        };
        encoding.tables.iter().map(rows).collect()
    }

    #[test]
    fn vectors_of_coordinates_are_added() {
        let config = GridConfig { channels: 3, ..GridConfig::new(2, 4) };
        let (found, tables) = (encoded(config, [1, 24, 6], &Positions::default()), tables(config, 6));
        for row in 0..2 {
            for column in 0..4 {
                for channel in 0..3 {
                    let wanted = (0..6).map(|at| tables[0][row][at] + tables[1][column][at] + tables[2][channel][at]);
                    let found = &found[(row * 4 + column) * 3 + channel];
                    assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6));
                }
            }
        }
    }

    #[test]
    fn positions_of_blocks_have_the_row_column_and_channel_of_their_cell() {
        let config = GridConfig { channels: 2, block: Some([2, 4]), ..GridConfig::new(4, 6) };
        let (found, tables) = (encoded(config, [1, 48, 6], &Positions::default()), tables(config, 6));
        // Three blocks of two columns stand side by side.
        let cells = (0..4).flat_map(|row| (0..12).map(move |place| (row, place)));
        for (row, place) in cells {
            let position = row / 2 * 24 + place / 4 * 8 + row % 2 * 4 + place % 4;
            let wanted = (0..6).map(|at| tables[0][row][at] + tables[1][place / 2][at] + tables[2][place % 2][at]);
            assert!(found[position].iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6), "row {row}, place {place}");
        }
    }

    #[test]
    fn vectors_of_coordinates_stand_side_by_side() {
        let config = GridConfig { join: Join::Concatenated, ..GridConfig::new(3, 4) };
        let (found, tables) = (encoded(config, [1, 12, 5], &Positions::default()), tables(config, 5));
        for (position, found) in found.iter().enumerate() {
            assert_eq!(*found, [tables[0][position / 4].clone(), tables[1][position % 4].clone()].concat());
        }
        assert_eq!([tables[0][0].len(), tables[1][0].len()], [2, 3]);
    }

    #[test]
    fn rows_padded_on_the_left_and_later_steps_have_positions_of_their_own() {
        let config = GridConfig::new(3, 2);
        let plain = encoded(config, [1, 6, 4], &Positions::default());
        let later = encoded(config, [1, 2, 4], &Positions::from_start(3));
        assert_eq!(later, plain[3..5]);
        let padded = encoded(config, [2, 4, 4], &Positions::default().with_left_padding(vec![1, 0]));
        assert_eq!([&padded[1..4], &padded[4..8]], [&plain[0..3], &plain[0..4]]);
    }

    #[test]
    fn impossible_grids_are_refused() {
        let check = Check::of("model");
        let grid = GridConfig { join: Join::Concatenated, ..GridConfig::new(4, 4) };
        assert!(grid.validate(&check, 8, 16).is_ok());
        for (grid, d_model, option) in [
            (GridConfig { columns: 0, ..grid }, 8, "positions.columns"),
            (GridConfig { rows: 3, ..grid }, 8, "positions.rows"),
            (GridConfig { block: Some([3, 2]), ..grid }, 8, "positions.block"),
            (GridConfig { block: Some([2, 3]), ..grid }, 8, "positions.block"),
            (GridConfig { block: Some([0, 2]), ..grid }, 8, "positions.block"),
            (grid, 1, "d_model"),
        ] {
            let error = grid.validate(&check, d_model, 16).unwrap_err().to_string();
            assert!(error.contains(&format!("`{option}`")), "{error}");
        }
    }
}
