//! An image as a model reads it.

/// An image that a decoder read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenImage {
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
    /// Values of a pixel: 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// Number of different values; the greatest is white.
    pub levels: usize,
    /// The values, row by row and pixel by pixel.
    pub values: Vec<u8>,
    /// For each position of the decoder, the number of the pixel that it predicts, row by row from 0.
    pub pixels: Vec<usize>,
}
