//! Weights as pixels of a PNG file.

use std::io;

use super::colours::{HIDDEN, viridis};

/// Index of the colour of keys that a query does not see.
const HIDDEN_INDEX: u8 = 0;
/// Index of the ground between the pictures of heads.
const GROUND_INDEX: u8 = 1;
/// Index of the colour of the least weight.
const FIRST_INDEX: u8 = 2;

/// A picture of colours from the palette of weights.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pixels {
    width: usize,
    height: usize,
    indices: Vec<u8>,
}

impl Pixels {
    /// Weights `[rows, columns]` as squares of `cell` by `cell` pixels. Weights from 0 to `greatest` go through the whole scale of colours; 0 itself has the
    /// colour of what is not visible.
    pub(super) fn of_weights(weights: &[f32], columns: usize, greatest: f32, cell: usize) -> Self {
        let index = |weight: f32| match weight {
            0.0 => HIDDEN_INDEX,
            _ => FIRST_INDEX + (weight / greatest * f32::from(u8::MAX - FIRST_INDEX)).round() as u8,
        };
        let mut indices = Vec::with_capacity(weights.len() * cell * cell);
        for row in weights.chunks_exact(columns) {
            let line: Vec<u8> = row.iter().flat_map(|&weight| std::iter::repeat_n(index(weight), cell)).collect();
            (0..cell).for_each(|_| indices.extend_from_slice(&line));
        }
        Self { width: columns * cell, height: weights.len() / columns * cell, indices }
    }

    /// Pictures of one size in rows of `columns`, with `gap` pixels of white between them.
    ///
    /// # Panics
    /// If there is no picture or no column.
    pub(super) fn tiled(parts: &[Self], columns: usize, gap: usize) -> Self {
        let (width, height) = (parts[0].width, parts[0].height);
        let (columns, rows) = (columns.min(parts.len()), parts.len().div_ceil(columns));
        let mut whole = Self { width: columns * (width + gap) - gap, height: rows * (height + gap) - gap, indices: Vec::new() };
        whole.indices = vec![GROUND_INDEX; whole.width * whole.height];
        for (at, part) in parts.iter().enumerate() {
            let (left, top) = (at % columns * (width + gap), at / columns * (height + gap));
            for (y, line) in part.indices.chunks_exact(width).enumerate() {
                whole.indices[(top + y) * whole.width + left..][..width].copy_from_slice(line);
            }
        }
        whole
    }

    /// Width and height in pixels.
    pub(super) fn size(&self) -> [usize; 2] {
        [self.width, self.height]
    }

    /// The PNG file, which carries `title` as text.
    ///
    /// # Errors
    /// If the picture is larger than the format allows.
    pub(super) fn encoded(&self, title: &str) -> io::Result<Vec<u8>> {
        let side =
            |length: usize| u32::try_from(length).map_err(|_| io::Error::other("a picture has at most 2^32 - 1 pixels on each side"));
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, side(self.width)?, side(self.height)?);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(palette());
        encoder.add_itxt_chunk("Title".into(), title.into())?;
        encoder.write_header()?.write_image_data(&self.indices)?;
        Ok(file)
    }
}

fn palette() -> Vec<u8> {
    let last = f64::from(u8::MAX - FIRST_INDEX);
    let scale = (FIRST_INDEX..=u8::MAX).map(|index| viridis(f64::from(index - FIRST_INDEX) / last));
    [HIDDEN, [255; 3]].into_iter().chain(scale).flatten().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Size and pixels of a PNG file, in RGB.
    pub(crate) fn decoded(file: &[u8]) -> ([u32; 2], Vec<[u8; 3]>) {
        let mut decoder = png::Decoder::new(io::Cursor::new(file));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!(info.color_type, png::ColorType::Rgb);
        ([info.width, info.height], bytes[..info.buffer_size()].chunks_exact(3).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
    }

    #[test]
    fn a_file_decodes_to_the_colours_of_its_weights() {
        let heads = [[0.8, 0.0, 0.4, 0.2_f32], [0.0, 0.8, 0.8, 0.0]].map(|weights| Pixels::of_weights(&weights, 2, 0.8, 2));
        let file = Pixels::tiled(&heads, 2, 1).encoded("weights from 0 to 0.8").unwrap();
        let ([width, height], pixels) = decoded(&file);
        assert_eq!([width, height], [9, 4]);
        let (most, least, white) = (viridis(1.0), HIDDEN, [255; 3]);
        let [half, quarter] = [127, 63].map(|level| viridis(f64::from(level) / 253.0));
        let upper = [most, most, least, least, white, least, least, most, most];
        let lower = [half, half, quarter, quarter, white, most, most, least, least];
        assert_eq!(pixels, [upper, upper, lower, lower].concat());
        assert!(file.windows(21).any(|bytes| bytes == b"weights from 0 to 0.8"));
    }

    #[test]
    fn rows_of_heads_follow_each_other() {
        let heads = [1.0, 0.0, 1.0_f32].map(|weight| Pixels::of_weights(&[weight], 1, 1.0, 1));
        let (size, pixels) = decoded(&Pixels::tiled(&heads, 2, 1).encoded("").unwrap());
        let (most, white) = (viridis(1.0), [255; 3]);
        assert_eq!(size, [3, 3]);
        assert_eq!(pixels, [most, white, HIDDEN, white, white, white, most, white, white]);
    }
}
