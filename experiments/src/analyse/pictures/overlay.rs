//! The weights of one pixel laid over the image, a picture for each head.

use std::io;

use super::canvas::{Anchor, Canvas, Style, width};
use super::number;
use crate::analyse::record::Observed;
use crate::session::experiment::seen_image::SeenImage;

/// The side of the picture of a head, in pixels, at most.
const SIDE: usize = 192;
const MARGIN: f64 = 16.0;
const GAP: f64 = 20.0;
/// Room for the name of a head and what stands below it.
const LEAST_WIDTH: f64 = 150.0;
/// Width of the page that heads are to fit in.
const PAGE: f64 = 1200.0;
/// How bright an image is beneath its weights.
const DIMMED: f64 = 0.4;
/// Of the pixel that is generated.
const MARK: [u8; 3] = [232, 62, 48];

/// The picture as SVG. `pixel` is the row and column of one of the image.
///
/// # Errors
/// If the picture is too large for a PNG file.
///
/// # Panics
/// If the pixel is not one of the image.
pub(super) fn draw(observed: &Observed, image: &SeenImage, pixel: [usize; 2], title: &str) -> io::Result<String> {
    let position = image.position(pixel).expect("the pixel is one of the image");
    let cell = (SIDE / image.height.max(image.width)).max(1);
    let size = [image.width, image.height].map(|length| (length * cell) as f64);
    let mut canvas = Canvas::default();
    canvas.text([MARGIN, 28.0], title, Style::title(16.0));
    let [row, column] = pixel;
    let explanation = format!(
        "Row {row}, column {column}, red, is being generated. White: weights of a head up to its greatest; black: not there yet; the image is dimmed."
    );
    canvas.text([MARGIN, 46.0], &explanation, Style::plain(Anchor::Start, 11.0));
    let step = size[0].max(LEAST_WIDTH) + GAP;
    let heads = observed.shape[0];
    let beside = ((PAGE / step) as usize).clamp(1, heads);
    let (mut right, mut bottom) = (MARGIN + width(&explanation, 11.0).max(width(title, 16.0)), 60.0);
    for (head, weights) in observed.heads() {
        let weights = &weights[position * observed.width()..][..observed.width()];
        let over = image.over_pixels(weights, position);
        let greatest = over.iter().flatten().copied().fold(0.0, f64::max);
        let [x, y] = [MARGIN + (head % beside) as f64 * step, 84.0 + (head / beside) as f64 * (size[1] + 56.0)];
        canvas.text([x, y - 6.0], &format!("head {head}"), Style::title(12.0));
        canvas.pixels([x, y, size[0], size[1]], &encoded(image, &over, greatest, row * image.width + column, cell)?);
        canvas.frame([x, y, size[0], size[1]]);
        let remark = format!("greatest {}, beginning {}", number(greatest), number(f64::from(weights[0])));
        canvas.text([x, y + size[1] + 14.0], &remark, Style::plain(Anchor::Start, 10.0));
        right = right.max(x + step - GAP);
        bottom = y + size[1] + 24.0;
    }
    Ok(canvas.finish(title, [right + MARGIN, bottom + MARGIN]))
}

/// The colour of each pixel.
fn colours(image: &SeenImage, over: &[Option<f64>], greatest: f64, generated: usize) -> Vec<[u8; 3]> {
    let white = (image.levels.max(2) - 1) as f64;
    let colour = |(pixel, weight): (usize, &Option<f64>)| {
        let Some(weight) = weight else { return if pixel == generated { MARK } else { [0; 3] } };
        if pixel == generated {
            return MARK;
        }
        let values = &image.values[pixel * image.channels..][..image.channels];
        let open = if greatest > 0.0 { weight / greatest } else { 0.0 };
        std::array::from_fn(|channel| {
            let value = f64::from(values[channel.min(values.len() - 1)]) / white * DIMMED;
            (255.0 * (value + (1.0 - value) * open)).round() as u8
        })
    };
    over.iter().enumerate().map(colour).collect()
}

fn encoded(image: &SeenImage, over: &[Option<f64>], greatest: f64, generated: usize, cell: usize) -> io::Result<Vec<u8>> {
    let colours = colours(image, over, greatest, generated);
    let mut bytes = Vec::with_capacity(colours.len() * cell * cell * 3);
    for row in colours.chunks_exact(image.width) {
        let line: Vec<u8> = row.iter().flat_map(|colour| std::iter::repeat_n(*colour, cell)).flatten().collect();
        (0..cell).for_each(|_| bytes.extend_from_slice(&line));
    }
    let side =
        |length: usize| u32::try_from(length * cell).map_err(|_| io::Error::other("a picture has at most 2^32 - 1 pixels on each side"));
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side(image.width)?, side(image.height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::texts;
    use super::*;
    use crate::analyse::image::tests::{image, looking};

    #[test]
    fn pixels_that_are_looked_at_are_white_and_those_to_come_black() {
        let image = image();
        // Position 4 foresees the pixel in the middle of the second row and looks at the one above, key 2.
        let over = image.over_pixels(&looking([0, 0, 0, 0, 2, 0]).values[24..30], 4);
        let found = colours(&image, &over, 1.0, 4);
        let grey = |value: u8| [(255.0 * f64::from(value) / 3.0 * DIMMED).round() as u8; 3];
        assert_eq!(found, [grey(0), [255; 3], grey(2), grey(3), MARK, [0; 3]]);
        // Half of the greatest weight is half way to white.
        let half = colours(&image, &[Some(0.5), Some(1.0), None, None, None, None], 1.0, 5);
        assert_eq!(half[0], [128; 3]);
    }

    #[test]
    fn the_picture_names_pixel_heads_and_the_weight_of_the_beginning() {
        let svg = draw(&looking([0, 0, 0, 0, 2, 0]), &image(), [1, 1], "layer 1").unwrap();
        let texts = texts(&svg);
        assert!(texts.iter().any(|text| text == "head 0") && texts.iter().any(|text| text == "greatest 1, beginning 0"), "{texts:?}");
        assert!(texts.iter().any(|text| text.starts_with("Row 1, column 1")), "{texts:?}");
        assert_eq!(svg.matches("<image ").count(), 1);
    }
}
