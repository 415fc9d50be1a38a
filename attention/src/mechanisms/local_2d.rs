//! Local attention in two dimensions (Parmar et al. 2018, Image Transformer, section 3.3).
//!
//! An image has rows of `width` elements (pixels times channels). It is cut into blocks of `h_q x w_q` queries and **generated block by block**: blocks in raster
//! order, and raster order within a block. All queries of a block share one memory block: the block itself, `h_m` rows above it and `w_m` columns to either
//! side. A query sees the generated part of the memory block: the rows above (also top left and top right), the columns to the left, and the preceding positions
//! of its own block. It sees nothing to the right.
//!
//! Position `p` of the sequence is the `p`-th element in generation order, not raster order; in raster order the top right would be the future. [`BlockRaster`]
//! converts between the orders. In an encoder the memory block also has `h_m` rows below, as in the unmasked form of the authors' code.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/local-2d.svg")]

use std::ops::Range;

use crate::mechanisms::prelude::*;

/// Configuration of local attention in two dimensions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct LocalTwoDConfig {
    /// Elements per image row: pixels times channels (default: 96, that is 32 pixels of 3 channels, from a maximal length of 32 such rows on; below that about
    /// the square root of the maximal length, a multiple of `w_q`).
    pub width: Option<usize>,
    /// Rows and columns of a query block, `[h_q, w_q]`; `w_q` divides the width. Default: `[8, 32]` for the paper's image; otherwise about the square roots of
    /// the row count at the maximal length and of the width, preferably divisors of them.
    pub query_block: Option<[usize; 2]>,
    /// Visible rows above and columns at each side of the block, `[h_m, w_m]` (default: the rows of a block, and half its columns, rounded up).
    pub memory: Option<[usize; 2]>,
    /// Execution (default: blocked).
    pub execution: PatternExecution,
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

/// Rows of the paper's images, and elements per row.
const IMAGE: [usize; 2] = [32, 96];
/// Rows and columns of the paper's blocks.
const BLOCK: [usize; 2] = [8, 32];

/// Generation order of an image, block by block.
///
/// # Example
/// ```
/// use heedful_attention::mechanisms::local_2d::BlockRaster;
///
/// let order = BlockRaster { width: 4, block: [2, 2] };
/// assert_eq!(order.generation_order(2), [0, 1, 4, 5, 2, 3, 6, 7]);
/// assert_eq!(order.raster_order(2), [0, 1, 4, 5, 2, 3, 6, 7]);
/// assert_eq!(order.cell(4), [0, 2]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRaster {
    /// Elements in a row, a multiple of the block's columns.
    pub width: usize,
    /// Rows and columns of a block, at least 1 each.
    pub block: [usize; 2],
}

impl BlockRaster {
    /// Row and column of the element generated at `position`.
    pub fn cell(&self, position: usize) -> [usize; 2] {
        let [height, width] = self.block;
        let [block_row, block_column] = self.block_of(position);
        let within = position % (height * width);
        [block_row * height + within / width, block_column * width + within % width]
    }

    /// Position at which the element in a row and column is generated.
    pub fn position(&self, [row, column]: [usize; 2]) -> usize {
        let [height, width] = self.block;
        let block = row / height * (self.width / width) + column / width;
        block * height * width + row % height * width + column % width
    }

    /// Raster index for each position in generation order, for an image with `rows` rows: indices to gather from a raster sequence.
    ///
    /// # Panics
    /// If `rows` is not a multiple of the block's rows.
    pub fn generation_order(&self, rows: usize) -> Vec<usize> {
        self.check(rows);
        let raster = |[row, column]: [usize; 2]| row * self.width + column;
        (0..rows * self.width).map(|position| raster(self.cell(position))).collect()
    }

    /// Position in generation order for each raster index, for an image with `rows` rows: indices to gather from a generated sequence.
    ///
    /// # Panics
    /// If `rows` is not a multiple of the block's rows.
    pub fn raster_order(&self, rows: usize) -> Vec<usize> {
        self.check(rows);
        (0..rows * self.width).map(|index| self.position([index / self.width, index % self.width])).collect()
    }

    fn check(&self, rows: usize) {
        let height = self.block[0];
        assert!(rows.is_multiple_of(height), "an image of {rows} rows is not made of blocks of {height} rows: pad it");
    }

    /// Row and column of the block of `position`, counted in blocks.
    fn block_of(&self, position: usize) -> [usize; 2] {
        let [height, width] = self.block;
        let (block, across) = (position / (height * width), self.width / width);
        [block / across, block % across]
    }
}

/// The pattern of local attention in two dimensions, over positions in generation order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTwoD {
    /// Generation order.
    pub order: BlockRaster,
    /// Visible rows above and below, and columns at each side of a block.
    pub memory: [usize; 2],
}

impl LocalTwoDConfig {
    /// Generation order in a model with this maximal length.
    pub fn order(&self, max_length: usize) -> BlockRaster {
        let has_image = max_length >= IMAGE[0] * IMAGE[1];
        let width = self.width.unwrap_or_else(|| {
            let side = max_length.isqrt();
            let columns = self.query_block.map_or(side.isqrt(), |[_, columns]| columns).max(1);
            match has_image {
                true if self.query_block.is_none() || IMAGE[1].is_multiple_of(columns) => IMAGE[1],
                _ => (side / columns).max(1) * columns,
            }
        });
        let block = self.query_block.unwrap_or_else(|| {
            if has_image && width == IMAGE[1] {
                return BLOCK;
            }
            let rows = max_length.div_ceil(width.max(1));
            let divisor = |length: usize| (2..=length.isqrt()).rev().find(|&part| length.is_multiple_of(part));
            // Images need blocks that divide their rows; other sequences may end within a block.
            [divisor(rows).unwrap_or(rows.isqrt().max(1)), divisor(width).unwrap_or(1)]
        });
        BlockRaster { width, block }
    }

    /// Row and column of the element generated at a position, found by enumeration: the formula shares no code with [`BlockRaster`].
    fn generated(BlockRaster { width: row_width, block }: BlockRaster, position: usize) -> [usize; 2] {
        let [height, width] = block;
        let blocks = (0..).flat_map(|row| (0..row_width / width).map(move |column| [row * height, column * width]));
        let cells =
            blocks.flat_map(|[top, left]| (top..top + height).flat_map(move |row| (left..left + width).map(move |column| [row, column])));
        cells.into_iter().nth(position).expect("the rows of an image do not end here")
    }

    /// The pattern in a model with this maximal length.
    pub fn pattern(&self, max_length: usize) -> LocalTwoD {
        let order = self.order(max_length);
        let [rows, columns] = order.block;
        LocalTwoD { order, memory: self.memory.unwrap_or([rows, columns.div_ceil(2)]) }
    }
}

impl Mechanism for LocalTwoDConfig {
    type Module = LogitsOf<Restricted>;
    const NAME: &'static str = "local-2d";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "LocalTwoD",
        description: "Restricts queries to blocks of rows and columns of an image, over any logits.",
        source: "Parmar et al. 2018, section 3.3",
        links: &[
            "https://arxiv.org/abs/1802.05751",
            "https://github.com/tensorflow/tensor2tensor/blob/master/tensor2tensor/layers/common_attention.py",
        ],
        time: "n (h_q + h_m) (w_q + 2 w_m) d",
        state: "2 (h_m X + h_q (w_q + w_m)) d",
        letters: &[
            ("h_q", "rows of a block of queries"),
            ("w_q", "columns of a block of queries"),
            ("h_m", "rows above a block, rounded up to whole blocks in the state"),
            ("w_m", "columns beside a block, rounded up to whole blocks in the state"),
            ("X", "elements in a row of the image, option `width`, by default 96 or near the square root of `L`"),
        ],
        differences: &["The authors' code detects padding by all-zero elements; here the mask defines padding."],
        sizes: &["query_block", "memory"],
        ..Card::PATTERN
    };

    fn drawn(self) -> Self {
        Self { width: Some(8), query_block: Some([2, 4]), memory: Some([1, 2]), ..self }
    }

    fn resolved(self, max_length: usize) -> Self {
        let LocalTwoD { order: BlockRaster { width, block }, memory } = self.pattern(max_length);
        let logits = self.logits.resolved(max_length);
        Self { width: Some(width), query_block: Some(block), memory: Some(memory), logits, ..self }
    }

    /// # Errors
    /// If a block is empty or does not divide the width.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let BlockRaster { width, block: [rows, columns] } = self.order(spec.max_length);
        let check = spec.check(Self::NAME);
        if rows == 0 || columns == 0 {
            return Err(check.refuse("query_block", format!("[{rows}, {columns}]"), "give at least one row and one column"));
        }
        if width == 0 || !width.is_multiple_of(columns) {
            let remedy = format!("give a multiple of the {columns} columns of a block, or other blocks");
            return Err(check.refuse("width", width, remedy));
        }
        Ok(())
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Restricted {
        Restricted::over(&self.logits, self.pattern(spec.max_length), self.execution, spec, key, device)
    }

    /// Parmar et al. 2018: keys near any element of the block in both directions, since the block is a rectangle.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().shows(|query, key| {
            let LocalTwoD { order, memory } = self.pattern(query.spec().max_length);
            let block_of = |[row, column]: [usize; 2]| [row / order.block[0], column / order.block[1]];
            let generated = |position| Self::generated(order, position);
            let (own, [row, column]) = (block_of(generated(query.position())), generated(query.position_of(key)));
            let area = order.block[0] * order.width;
            let mut block = (0..(query.position() / area + 1) * area).map(generated).filter(|&cell| block_of(cell) == own);
            block.any(|[r, c]| r.abs_diff(row) <= memory[0] && c.abs_diff(column) <= memory[1])
        }))
    }
}

impl LocalTwoD {
    /// Rows and columns of the memory block that belongs to a query.
    fn region(&self, i: usize) -> [Range<usize>; 2] {
        let block = self.order.block_of(i);
        [0, 1].map(|axis| {
            let start = block[axis] * self.order.block[axis];
            let end = (start + self.order.block[axis]).saturating_add(self.memory[axis]);
            start.saturating_sub(self.memory[axis])..end
        })
    }
}

impl Pattern for LocalTwoD {
    fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
        let [rows, columns] = self.region(i);
        let [row, column] = self.order.cell(j);
        rows.contains(&row) && columns.contains(&column)
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        let [rows, columns] = self.order.block;
        i / (rows * columns)
    }

    fn candidates(&self, _head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        // Whole rows of blocks are successive positions.
        let [rows, _] = self.region(queries[0]);
        let [height, _] = self.order.block;
        let row_of_blocks = height * self.order.width;
        let first = rows.start / height * row_of_blocks;
        let last = rows.end.div_ceil(height).saturating_mul(row_of_blocks);
        let block_rows = first.max(keys.start)..last.min(keys.end);
        block_rows.filter(|&j| self.sees(0, queries[0], j)).collect()
    }

    fn reach(&self) -> Option<usize> {
        let [rows, columns] = self.order.block;
        let (blocks_up, blocks_left) = (self.memory[0].div_ceil(rows), self.memory[1].div_ceil(columns));
        let above = blocks_up.saturating_mul(rows * self.order.width);
        Some(above.saturating_add(blocks_left.saturating_add(1).saturating_mul(rows * columns)) - 1)
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}
