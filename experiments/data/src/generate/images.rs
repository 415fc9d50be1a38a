//! Small images whose lower half follows from their upper half.
//!
//! The upper half shows one to three squares, crosses or discs, or stripes, of random places, sizes and colours on a ground of a random colour; then one of
//! eight pixels is replaced by one of a random colour. The lower half is the upper one again, either mirrored (row `r` is row `height - 1 - r`, so that the
//! distance grows from one row to all) or repeated (row `r` is row `r - height / 2`).
//!
//! Neighbours do not predict the random pixels. No model can predict those of the upper half; a model that sees the row they are copied from can predict those
//! of the lower half. Given the label, the values of the lower half cost no bit at all, and without it at most one bit per image. A model that sees only near
//! pixels pays for the random ones again. The label names the shape and how the lower half was made ([`CLASSES`]); labels are equally frequent (in each split,
//! up to one image).

use heedful_host::checksum::sha256_hex;
use heedful_random::RandomKey;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Seen, Sizes};
use crate::DataError;
use crate::images::{ImageSet, Images};

/// The meaning of each label: a shape, and how the lower half follows from the upper one. Even labels are mirrored, odd ones repeated.
pub const CLASSES: [&str; 8] = [
    "squares mirrored",
    "squares repeated",
    "crosses mirrored",
    "crosses repeated",
    "discs mirrored",
    "discs repeated",
    "stripes mirrored",
    "stripes repeated",
];

const LEAST_HEIGHT: usize = 12;
const LEAST_WIDTH: usize = 6;
const MOST_SHAPES: usize = 3;
/// With a smaller one, a cross and a disc are the same.
const LEAST_RADIUS: usize = 2;
const LONGEST_PERIOD: usize = 6;
const RANDOM_PIXEL: f64 = 0.125;

/// The size of images and the number of their colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageShape {
    /// Rows, an even number of at least 12.
    pub height: usize,
    /// Columns, at least 6.
    pub width: usize,
    /// Values of a pixel: 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// Number of different values, 2 to 256.
    pub levels: usize,
}

impl Default for ImageShape {
    fn default() -> Self {
        Self { height: 16, width: 16, channels: 1, levels: 16 }
    }
}

/// The values of a pixel; grey images have the first one only.
type Colour = [u8; 3];

impl ImageShape {
    fn check(&self) -> Result<(), DataError> {
        let refuse = |field: &str, value, expected: String| Err(DataError::ImageSetting { field: field.into(), value, expected });
        match *self {
            Self { height, .. } if height < LEAST_HEIGHT || height % 2 == 1 => {
                refuse("height", height, format!("an even number of at least {LEAST_HEIGHT}"))
            }
            Self { width, .. } if width < LEAST_WIDTH => refuse("width", width, format!("at least {LEAST_WIDTH}")),
            Self { channels, .. } if ![1, 3].contains(&channels) => refuse("channels", channels, "1 or 3".into()),
            Self { levels, .. } if !(2..=256).contains(&levels) => refuse("levels", levels, "2 to 256".into()),
            _ => Ok(()),
        }
    }
}

/// Makes images; all of them differ.
///
/// # Errors
/// [`DataError::ImageSetting`] for a shape that is not possible.
pub fn images(key: &RandomKey, shape: ImageShape, sizes: Sizes) -> Result<Images, DataError> {
    shape.check()?;
    let key = key.named("images");
    let mut seen = Seen::default();
    let mut split = |name: &str, size: usize| split(size, shape, key.named(name).rng(), &mut seen);
    // The other splits come first, so that they stay the same when the size of the training set changes.
    let test = split("test", sizes.test);
    let dev = split("dev", sizes.valid);
    let train = split("train", sizes.train);
    let bytes = [&train, &dev, &test].map(|set| [set.labels.as_slice(), &set.pixels].concat()).concat();
    let ImageShape { height, width, channels, levels } = shape;
    let (name, sha256) = ("built in".to_owned(), sha256_hex(&bytes));
    Ok(Images { name, height, width, channels, levels, classes: CLASSES.len(), train, dev, test, sha256 })
}

fn split(size: usize, shape: ImageShape, mut rng: ChaCha8Rng, seen: &mut Seen) -> ImageSet {
    let mut labels: Vec<u8> = (0..size).map(|index| (index % CLASSES.len()) as u8).collect();
    labels.shuffle(&mut rng);
    let mut pixels = Vec::with_capacity(size * shape.height * shape.width * shape.channels);
    for &label in &labels {
        // The search ends: every pixel of an upper half can be random, so that there are at least 2^36 images of a label.
        let image = loop {
            let image = image(&mut rng, shape, label);
            if seen.is_new(&image.iter().copied().map(char::from).collect::<String>()) {
                break image;
            }
        };
        pixels.extend(image);
    }
    ImageSet { pixels, labels }
}

fn image(rng: &mut ChaCha8Rng, shape: ImageShape, label: u8) -> Vec<u8> {
    let row = shape.width * shape.channels;
    let mut pixels = upper_half(rng, shape, label / 2);
    let upper = pixels.clone();
    match label % 2 {
        0 => pixels.extend(upper.chunks_exact(row).rev().flatten()),
        _ => pixels.extend(upper),
    }
    pixels
}

fn upper_half(rng: &mut ChaCha8Rng, shape: ImageShape, kind: u8) -> Vec<u8> {
    let (rows, columns) = (shape.height / 2, shape.width);
    let ground = colour(rng, shape);
    let mut pixels = vec![ground; rows * columns];
    match kind {
        3 => {
            let paint = other_colour(rng, shape, ground);
            stripes(rng, &mut pixels, columns, paint);
        }
        _ => {
            for _ in 0..rng.random_range(1..=MOST_SHAPES) {
                let paint = other_colour(rng, shape, ground);
                let radius = rng.random_range(LEAST_RADIUS..=(rows.min(columns) - 1) / 2);
                let centre = [rng.random_range(radius..rows - radius), rng.random_range(radius..columns - radius)];
                let covered =
                    |index: usize| covers(kind, radius, (index / columns).abs_diff(centre[0]), (index % columns).abs_diff(centre[1]));
                (0..pixels.len()).filter(|&index| covered(index)).for_each(|index| pixels[index] = paint);
            }
        }
    }
    for pixel in &mut pixels {
        if rng.random_bool(RANDOM_PIXEL) {
            *pixel = colour(rng, shape);
        }
    }
    pixels.iter().flat_map(|pixel| &pixel[..shape.channels]).copied().collect()
}

/// Whether a square (0), cross (1) or disc (2) covers a pixel so many rows and columns from its centre.
fn covers(kind: u8, radius: usize, rows: usize, columns: usize) -> bool {
    match kind {
        0 => rows.max(columns) <= radius,
        1 => rows.max(columns) <= radius && rows.min(columns) <= radius / 3,
        _ => rows * rows + columns * columns <= radius * radius,
    }
}

fn stripes(rng: &mut ChaCha8Rng, pixels: &mut [Colour], columns: usize, paint: Colour) {
    let [down, across] = [[1, 0], [0, 1], [1, 1]][rng.random_range(0..3)];
    let period = rng.random_range(2..=LONGEST_PERIOD);
    let phase = rng.random_range(0..period);
    for (index, pixel) in pixels.iter_mut().enumerate() {
        if (down * (index / columns) + across * (index % columns) + phase) % period < period / 2 {
            *pixel = paint;
        }
    }
}

fn colour(rng: &mut ChaCha8Rng, shape: ImageShape) -> Colour {
    let mut colour = [0; 3];
    colour[..shape.channels].fill_with(|| rng.random_range(0..shape.levels) as u8);
    colour
}

fn other_colour(rng: &mut ChaCha8Rng, shape: ImageShape, than: Colour) -> Colour {
    loop {
        let colour = colour(rng, shape);
        if colour != than {
            return colour;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::files::tests::refused;

    const SIZES: Sizes = Sizes { train: 160, valid: 24, test: 40 };
    const COLOURED: ImageShape = ImageShape { height: 12, width: 10, channels: 3, levels: 4 };

    fn made(shape: ImageShape) -> Images {
        images(&RandomKey::from_seed(1), shape, SIZES).unwrap()
    }

    fn all(images: &Images) -> impl Iterator<Item = (&[u8], u8)> {
        [&images.train, &images.dev, &images.test]
            .into_iter()
            .flat_map(|set| (0..set.len()).map(|index| (set.image(index), set.labels[index])))
    }

    #[test]
    fn the_lower_half_follows_from_the_upper_half_as_the_label_says() {
        for shape in [ImageShape::default(), COLOURED] {
            let row = shape.width * shape.channels;
            for (image, label) in all(&made(shape)) {
                assert_eq!(image.len(), shape.height * row);
                for (r, below) in image.chunks_exact(row).enumerate().skip(shape.height / 2) {
                    let source =
                        if CLASSES[usize::from(label)].ends_with("mirrored") { shape.height - 1 - r } else { r - shape.height / 2 };
                    assert_eq!(below, &image[source * row..][..row], "row {r} of {}", CLASSES[usize::from(label)]);
                }
            }
        }
    }

    #[test]
    fn neighbours_do_not_tell_every_pixel() {
        let shape = ImageShape::default();
        let (mut foreseen, mut pixels) = (0, 0);
        for (image, _) in all(&made(shape)) {
            for r in 1..shape.height {
                for c in 1..shape.width {
                    let at = |r: usize, c: usize| image[r * shape.width + c];
                    foreseen += usize::from([at(r - 1, c), at(r, c - 1), at(r - 1, c - 1)].contains(&at(r, c)));
                    pixels += 1;
                }
            }
        }
        let share = foreseen as f64 / pixels as f64;
        assert!((0.75..0.93).contains(&share), "{share} of the pixels equal a neighbour");
    }

    #[test]
    fn shapes_are_what_the_labels_say() {
        let drawn = |kind: u8, radius: usize| -> String {
            let at = |place: usize| place.abs_diff(radius);
            let line = |r: usize| (0..=2 * radius).map(|c| if covers(kind, radius, at(r), at(c)) { '#' } else { '.' }).collect::<String>();
            (0..=2 * radius).map(line).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(drawn(0, 2), "##### ##### ##### ##### #####");
        assert_eq!(drawn(1, 2), "..#.. ..#.. ##### ..#.. ..#..");
        assert_eq!(drawn(2, 2), "..#.. .###. ##### .###. ..#..");
        assert_eq!(drawn(1, 3), "..###.. ..###.. ####### ####### ####### ..###.. ..###..");
    }

    #[test]
    fn labels_are_balanced_and_values_are_in_range() {
        for shape in [ImageShape::default(), COLOURED] {
            let images = made(shape);
            for (set, each) in [(&images.train, 20), (&images.dev, 3), (&images.test, 5)] {
                let counts: Vec<_> = (0..8).map(|label| set.labels.iter().filter(|&&found| found == label).count()).collect();
                assert_eq!(counts, [each; 8]);
                assert!(!set.labels.is_sorted());
            }
            let values: HashSet<u8> = all(&images).flat_map(|(image, _)| image).copied().collect();
            assert_eq!(values, (0..shape.levels as u8).collect());
        }
    }

    #[test]
    fn no_image_is_there_twice() {
        // So small that some are drawn again and again.
        let shape = ImageShape { height: 12, width: 6, channels: 1, levels: 2 };
        let images = images(&RandomKey::from_seed(1), shape, Sizes { train: 2000, ..SIZES }).unwrap();
        assert_eq!(all(&images).map(|(image, _)| image).collect::<HashSet<_>>().len(), 2064);
    }

    #[test]
    fn splits_do_not_depend_on_the_sizes_of_others() {
        let fewer = made(COLOURED);
        let more = images(&RandomKey::from_seed(1), COLOURED, Sizes { train: 200, ..SIZES }).unwrap();
        assert_eq!((&fewer.test, &fewer.dev), (&more.test, &more.dev));
        assert_ne!(fewer.sha256, more.sha256);
        let tested_more = images(&RandomKey::from_seed(1), COLOURED, Sizes { test: 48, ..SIZES }).unwrap();
        assert_eq!((&fewer.train, &fewer.dev), (&tested_more.train, &tested_more.dev));
        assert_eq!(fewer, made(COLOURED));
        assert_ne!(fewer.test, images(&RandomKey::from_seed(2), COLOURED, SIZES).unwrap().test);
    }

    #[test]
    fn impossible_shapes_are_refused_with_the_field() {
        for (shape, parts) in [
            (ImageShape { height: 13, ..COLOURED }, ["height", "13"]),
            (ImageShape { height: 10, ..COLOURED }, ["height", "10"]),
            (ImageShape { width: 5, ..COLOURED }, ["width", "at least 6"]),
            (ImageShape { channels: 2, ..COLOURED }, ["channels", "1 or 3"]),
            (ImageShape { levels: 1, ..COLOURED }, ["levels", "2 to 256"]),
            (ImageShape { levels: 257, ..COLOURED }, ["levels", "2 to 256"]),
        ] {
            refused(images(&RandomKey::from_seed(1), shape, SIZES), &parts);
        }
    }
}
