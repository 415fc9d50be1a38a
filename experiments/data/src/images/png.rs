//! Pictures in rows, as one PNG file: what a model saw, what it made of it, and what was right.
//!
//! Every cell of the grid has the size of the largest picture; a smaller one (the input of super-resolution beside its output) is enlarged by the greatest
//! whole number that fits. A single colour picture makes the file one in colour. What a model has yet to complete is drawn as grey stripes.

use std::path::Path;

use ::png::{BitDepth, ColorType, Encoder, EncodingError};
use heedful_host::whole_files::{FileError, write_atomically};

const BACKGROUND: u8 = 255;
/// The two greys of what is not shown, and how wide their stripes are.
const HIDDEN: [u8; 2] = [112, 144];
const STRIPE: usize = 2;
/// Most bytes of a drawing before compression.
const MOST_BYTES: usize = 1 << 30;

/// Why no file was written.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// There is nothing to draw, too much, or a picture has values that its size or its levels do not allow. The message says what to do.
    #[error("{0}")]
    Picture(String),
    /// The encoder refused the drawing.
    #[error("the drawing cannot be encoded as PNG: {0}")]
    Encoding(#[from] EncodingError),
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] FileError),
}

/// Values to be drawn, in the order row, column, channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Values of a pixel: 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// Number of different values, 2 to 256; the greatest is white.
    pub levels: usize,
    /// All values.
    pub pixels: &'a [u8],
    /// Number of leading values that are shown; a pixel with missing values is not shown.
    pub shown: usize,
}

impl Picture<'_> {
    /// The picture with only its first `count` values shown: the given part of a completion.
    pub fn first(self, count: usize) -> Self {
        Self { shown: count, ..self }
    }

    fn check(&self) -> Result<(), (String, String)> {
        if ![1, 3].contains(&self.channels) || !(2..=256).contains(&self.levels) {
            return Err((format!("{} channels and {} levels", self.channels, self.levels), "1 or 3 channels and 2 to 256 levels".into()));
        }
        let [height, width, channels] = [self.height, self.width, self.channels];
        if self.pixels.is_empty() || Some(self.pixels.len()) != height.checked_mul(width).and_then(|area| area.checked_mul(channels)) {
            return Err((format!("{} values", self.pixels.len()), format!("{height} x {width} x {channels}, and at least one,")));
        }
        match self.pixels.iter().find(|&&value| usize::from(value) >= self.levels) {
            Some(value) => Err((format!("the value {value}"), format!("values of 0 to {}", self.levels - 1))),
            None => Ok(()),
        }
    }

    /// Red, green and blue of the pixel that covers this point of the enlarged picture.
    fn colour(&self, y: usize, x: usize, scale: usize) -> [u8; 3] {
        let first = (y / scale * self.width + x / scale) * self.channels;
        if first + self.channels > self.shown {
            return [HIDDEN[(y + x) / STRIPE % 2]; 3];
        }
        std::array::from_fn(|colour| {
            let value = usize::from(self.pixels[first + colour.min(self.channels - 1)]);
            (value * 255 / (self.levels - 1)) as u8
        })
    }
}

/// How a grid of pictures is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows and columns of the file per row and column of the largest picture; at least 1.
    pub scale: usize,
    /// Rows and columns between the pictures and around them.
    pub gap: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self { scale: 4, gap: 4 }
    }
}

/// Draws the pictures, row by row, into a PNG file, which is replaced whole or not at all.
///
/// # Errors
/// [`PngError`]; an old file is then intact.
pub fn write(path: &Path, rows: &[Vec<Picture<'_>>], layout: Layout) -> Result<(), PngError> {
    Ok(write_atomically(path, &encode(rows, layout)?)?)
}

/// The bytes of the file that [`write()`] writes.
///
/// # Errors
/// [`PngError`], but for [`PngError::Write`].
pub fn encode(rows: &[Vec<Picture<'_>>], layout: Layout) -> Result<Vec<u8>, PngError> {
    for (row, pictures) in rows.iter().enumerate() {
        for (column, picture) in pictures.iter().enumerate() {
            let check = picture.check();
            check.map_err(|(found, expected)| {
                let problem = format!("has {found} where {expected} belong; draw it with the size and levels of its images");
                PngError::Picture(format!("picture {} of row {} {problem}", column + 1, row + 1))
            })?;
        }
    }
    let all = || rows.iter().flatten();
    let nothing = || PngError::Picture("there is no picture to draw; give at least one row with a picture".into());
    let largest = |side: fn(&Picture<'_>) -> usize| all().map(side).max().ok_or_else(nothing);
    let (cell_height, cell_width) = (largest(|picture| picture.height)?, largest(|picture| picture.width)?);
    let (scale, gap) = (layout.scale.max(1), layout.gap);
    let length = |cell: usize, count: usize| cell.saturating_mul(scale).saturating_add(gap).saturating_mul(count).saturating_add(gap);
    let height = length(cell_height, rows.len());
    let width = length(cell_width, rows.iter().map(Vec::len).max().unwrap_or(0));
    let colours = all().map(|picture| picture.channels).max().unwrap_or(1);
    let bytes = height.saturating_mul(width).saturating_mul(colours);
    if bytes > MOST_BYTES {
        let problem = format!("a drawing of {height} x {width} pixels is too large; draw fewer pictures or take a smaller scale");
        return Err(PngError::Picture(problem));
    }
    let mut drawing = vec![BACKGROUND; bytes];
    for (row, pictures) in rows.iter().enumerate() {
        for (column, picture) in pictures.iter().enumerate() {
            let enlarged = scale * (cell_height / picture.height).min(cell_width / picture.width);
            let (top, left) = (gap + row * (cell_height * scale + gap), gap + column * (cell_width * scale + gap));
            for y in 0..picture.height * enlarged {
                for x in 0..picture.width * enlarged {
                    let place = ((top + y) * width + left + x) * colours;
                    drawing[place..place + colours].copy_from_slice(&picture.colour(y, x, enlarged)[..colours]);
                }
            }
        }
    }
    compressed(&drawing, height as u32, width as u32, colours)
}

fn compressed(drawing: &[u8], height: u32, width: u32, colours: usize) -> Result<Vec<u8>, PngError> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(if colours == 1 { ColorType::Grayscale } else { ColorType::Rgb });
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(drawing)?;
    writer.finish()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::refused;

    fn picture(height: usize, width: usize, channels: usize, pixels: &[u8]) -> Picture<'_> {
        Picture { height, width, channels, levels: 256, pixels, shown: pixels.len() }
    }

    /// Height, width, values of a pixel and all values of a file.
    fn decoded(file: &[u8]) -> ([usize; 3], Vec<u8>) {
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        pixels.truncate(info.buffer_size());
        ([info.height as usize, info.width as usize, info.color_type.samples()], pixels)
    }

    #[test]
    fn pictures_lie_in_rows_with_gaps_and_are_enlarged() {
        let (a, b) = ([0, 10], [20, 30]);
        let rows = [vec![picture(1, 2, 1, &a), picture(1, 2, 1, &b)], vec![picture(1, 2, 1, &b)]];
        let (shape, pixels) = decoded(&encode(&rows, Layout { scale: 1, gap: 1 }).unwrap());
        assert_eq!(shape, [5, 7, 1]);
        let w = 255;
        assert_eq!(pixels.chunks(7).nth(1).unwrap(), [w, 0, 10, w, 20, 30, w]);
        assert_eq!(pixels.chunks(7).nth(3).unwrap(), [w, 20, 30, w, w, w, w]);
        assert!([0, 2, 4].into_iter().all(|row| pixels[row * 7..][..7] == [w; 7]));
        let (shape, pixels) = decoded(&encode(&rows[1..], Layout { scale: 2, gap: 0 }).unwrap());
        assert_eq!((shape, pixels), ([2, 4, 1], vec![20, 20, 30, 30, 20, 20, 30, 30]));
    }

    #[test]
    fn smaller_pictures_fill_their_cell_and_one_colour_picture_colours_all() {
        let (small, large) = ([7], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let (shape, pixels) =
            decoded(&encode(&[vec![picture(1, 1, 1, &small), picture(2, 2, 3, &large)]], Layout { scale: 1, gap: 0 }).unwrap());
        assert_eq!(shape, [2, 4, 3]);
        assert_eq!(pixels[..12], [7, 7, 7, 7, 7, 7, 1, 2, 3, 4, 5, 6]);
        assert_eq!(pixels[12..], [7, 7, 7, 7, 7, 7, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn the_greatest_level_is_white_and_what_is_not_shown_is_grey() {
        let values = [0, 1, 2, 3, 3, 3];
        let grey = Picture { levels: 4, ..picture(1, 6, 1, &values) };
        let (_, pixels) = decoded(&encode(&[vec![grey.first(4)]], Layout { scale: 1, gap: 0 }).unwrap());
        assert_eq!(pixels, [0, 85, 170, 255, HIDDEN[0], HIDDEN[0]]);
        let coloured = Picture { levels: 4, ..picture(1, 2, 3, &values) };
        let (_, pixels) = decoded(&encode(&[vec![coloured.first(5)]], Layout { scale: 1, gap: 0 }).unwrap());
        assert_eq!(pixels[3..], [HIDDEN[0]; 3], "a pixel without its blue is not shown");
    }

    #[test]
    fn pictures_with_other_values_than_their_size_and_levels_say_are_refused() {
        let pixels = [0, 5];
        let good = picture(1, 2, 1, &pixels);
        for (bad, part) in [
            (Picture { width: 3, ..good }, "2 values where 1 x 3 x 1"),
            (Picture { width: usize::MAX, height: 2, ..good }, "2 values"),
            (Picture { channels: 2, ..good }, "2 channels"),
            (Picture { levels: 1, ..good }, "1 levels"),
            (Picture { levels: 5, ..good }, "the value 5"),
            (Picture { width: 0, pixels: &[], ..good }, "0 values"),
        ] {
            refused(encode(&[vec![good], vec![good, bad]], Layout::default()), &["picture 2 of row 2", part]);
        }
        refused(encode(&[], Layout::default()), &["no picture to draw"]);
        refused(encode(&[Vec::new()], Layout::default()), &["no picture to draw"]);
        for layout in [Layout { scale: usize::MAX, gap: 1 }, Layout { scale: 1, gap: usize::MAX }, Layout { scale: 100_000, gap: 0 }] {
            refused(encode(&[vec![good]], layout), &["too large"]);
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.png");
        write(&path, &[vec![picture(1, 1, 1, &[9])]], Layout { scale: 1, gap: 0 }).unwrap();
        assert_eq!(decoded(&std::fs::read(&path).unwrap()), ([1, 1, 1], vec![9]));
        assert!(write(&path, &[], Layout::default()).is_err());
        assert_eq!(decoded(&std::fs::read(&path).unwrap()).1, [9]);
        let error =
            write(&dir.path().join("missing/samples.png"), &[vec![picture(1, 1, 1, &[9])]], Layout::default()).unwrap_err().to_string();
        assert!(error.contains("samples.png"), "{error}");
    }
}
