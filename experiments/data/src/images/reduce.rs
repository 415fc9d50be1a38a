//! Smaller, coarser and fewer images, for super-resolution and for quick runs.

use heedful_random::RandomKey;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::{ImageSet, Images};
use crate::{DataError, Sizes};

/// Reductions of images, in the order of the fields. By default there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reductions {
    /// Whether colours become grey.
    pub grey: bool,
    /// Factor by which rows and columns are reduced; it must divide both.
    pub shrink: usize,
    /// Number of intensity levels, 2 to 256.
    pub levels: usize,
}

impl Default for Reductions {
    fn default() -> Self {
        Self { grey: false, shrink: 1, levels: 256 }
    }
}

impl Images {
    /// Applies the reductions. Images with fewer levels than requested keep theirs.
    ///
    /// # Errors
    /// As of [`shrunk`](Self::shrunk) and [`quantised`](Self::quantised).
    pub fn reduced(self, reductions: &Reductions) -> Result<Self, DataError> {
        let images = if reductions.grey { self.grey() } else { self };
        let images = if reductions.shrink == 1 { images } else { images.shrunk(reductions.shrink)? };
        if (images.levels..=256).contains(&reductions.levels) { Ok(images) } else { images.quantised(reductions.levels) }
    }

    /// Images of which each pixel is the mean of a square of `factor` times `factor` pixels, rounded to the nearest value (half up).
    ///
    /// # Errors
    /// [`DataError::ImageSetting`] if the height or the width is no multiple of the factor.
    pub fn shrunk(&self, factor: usize) -> Result<Self, DataError> {
        if !self.height.is_multiple_of(factor) || !self.width.is_multiple_of(factor) {
            let expected = format!("a divisor of the height {} and the width {}", self.height, self.width);
            return Err(DataError::ImageSetting { field: "shrink".into(), value: factor, expected });
        }
        let (height, width, channels) = (self.height / factor, self.width / factor, self.channels);
        let area = factor * factor;
        let shrink = |image: &[u8], pixels: &mut Vec<u8>| {
            for value in 0..height * width * channels {
                let (row, column, channel) = (value / channels / width, value / channels % width, value % channels);
                let at =
                    |y: usize, x: usize| usize::from(image[((row * factor + y) * self.width + column * factor + x) * channels + channel]);
                let sum: usize = (0..area).map(|place| at(place / factor, place % factor)).sum();
                pixels.push(((sum + area / 2) / area) as u8);
            }
        };
        Ok(Self { height, width, ..self.with_images(shrink) })
    }

    /// Images without colours: each pixel is its luma, 0.299 red + 0.587 green + 0.114 blue (ITU-R BT.601). Grey images stay as they are.
    pub fn grey(self) -> Self {
        if self.channels == 1 {
            return self;
        }
        let luma = |pixel: &[u8]| {
            let [red, green, blue] = std::array::from_fn(|channel| u32::from(pixel[channel]));
            ((299 * red + 587 * green + 114 * blue + 500) / 1000) as u8
        };
        let grey = |image: &[u8], pixels: &mut Vec<u8>| pixels.extend(image.chunks_exact(self.channels).map(luma));
        Self { channels: 1, ..self.with_images(grey) }
    }

    /// Images with `levels` intensity levels: value `v` of `n` becomes `v * levels / n` (rounded down), so that every new value stands for equally many old
    /// ones, up to one.
    ///
    /// # Errors
    /// [`DataError::ImageSetting`] if `levels` is less than 2 or more than there are.
    pub fn quantised(&self, levels: usize) -> Result<Self, DataError> {
        if !(2..=self.levels).contains(&levels) {
            return Err(DataError::ImageSetting { field: "levels".into(), value: levels, expected: format!("2 to {}", self.levels) });
        }
        let quantise = |image: &[u8], pixels: &mut Vec<u8>| {
            pixels.extend(image.iter().map(|&value| (usize::from(value) * levels / self.levels) as u8))
        };
        Ok(Self { levels, ..self.with_images(quantise) })
    }

    /// A subset of each split ([`Sizes::valid`] is the size of the dev set), drawn by the key. With one key, a smaller subset is part of a larger one. The
    /// order is kept. A split with no more images than requested stays whole.
    pub fn subset(&self, key: &RandomKey, sizes: Sizes) -> Self {
        let size = self.size();
        let draw = |set: &ImageSet, name: &str, count: usize| {
            let mut chosen: Vec<usize> = (0..set.len()).collect();
            if count < set.len() {
                chosen.shuffle(&mut key.named(name).rng());
                chosen.truncate(count);
                chosen.sort_unstable();
            }
            let pixels = chosen.iter().flat_map(|&index| &set.pixels[index * size..(index + 1) * size]).copied().collect();
            ImageSet { pixels, labels: chosen.iter().map(|&index| set.labels[index]).collect() }
        };
        let train = draw(&self.train, "train", sizes.train);
        let dev = draw(&self.dev, "dev", sizes.valid);
        let test = draw(&self.test, "test", sizes.test);
        Self { name: self.name.clone(), sha256: self.sha256.clone(), train, dev, test, ..*self }
    }

    /// The same with images that `change` makes of each, appending its values.
    fn with_images(&self, change: impl Fn(&[u8], &mut Vec<u8>)) -> Self {
        let changed = |set: &ImageSet| {
            let mut pixels = Vec::new();
            set.pixels.chunks_exact(self.size()).for_each(|image| change(image, &mut pixels));
            ImageSet { pixels, labels: set.labels.clone() }
        };
        let (train, dev, test) = (changed(&self.train), changed(&self.dev), changed(&self.test));
        Self { name: self.name.clone(), sha256: self.sha256.clone(), train, dev, test, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::refused;

    /// Images of 2 x 4, two for training and one for each other split.
    fn grey(pixels: [u8; 16]) -> Images {
        let set = |pixels: &[u8]| ImageSet { pixels: pixels.to_vec(), labels: (0..pixels.len() as u8 / 8).collect() };
        Images {
            name: "a".into(),
            height: 2,
            width: 4,
            channels: 1,
            levels: 256,
            classes: 2,
            train: set(&pixels),
            dev: set(&pixels[8..]),
            test: set(&pixels[..8]),
            sha256: "b".into(),
        }
    }

    fn coloured(pixels: [u8; 16]) -> Images {
        let images = grey(pixels);
        let set = |set: &ImageSet| ImageSet {
            pixels: set.pixels.iter().flat_map(|&value| [value, 0, 255 - value]).collect(),
            labels: set.labels.clone(),
        };
        Images { channels: 3, train: set(&images.train), dev: set(&images.dev), test: set(&images.test), ..images }
    }

    const PIXELS: [u8; 16] = [0, 1, 255, 255, 0, 1, 255, 254, 10, 20, 30, 40, 50, 60, 70, 81];

    #[test]
    fn a_smaller_pixel_is_the_mean_of_its_square_in_each_channel() {
        let images = grey(PIXELS).shrunk(2).unwrap();
        assert_eq!([images.height, images.width], [1, 2]);
        assert_eq!(images.train.pixels, [1, 255, 35, 55], "0.5 and 254.75 and 55.25");
        assert_eq!((images.dev.pixels, images.test.pixels), (vec![35, 55], vec![1, 255]));
        let images = coloured(PIXELS).shrunk(2).unwrap();
        assert_eq!(images.train.pixels[6..], [35, 0, 220, 55, 0, 200]);
        assert_eq!(images.train.labels, [0, 1]);
    }

    #[test]
    fn luma_weighs_the_colours() {
        let images = coloured(PIXELS).grey();
        assert_eq!((images.channels, images.train.pixels.len()), (1, 16));
        // 0.299 * 10 + 0.114 * 245 = 30.92.
        assert_eq!((images.train.pixels[0], images.train.pixels[2], images.dev.pixels[0]), (29, 76, 31));
        assert_eq!(grey(PIXELS).grey(), grey(PIXELS));
    }

    #[test]
    fn every_level_stands_for_equally_many_values() {
        for levels in [2, 4, 16, 256] {
            let mut images = grey(PIXELS);
            images.train = ImageSet { pixels: (0..=255).collect(), labels: vec![0; 32] };
            let images = images.quantised(levels).unwrap();
            assert_eq!(images.levels, levels);
            for level in 0..levels {
                assert_eq!(images.train.pixels.iter().filter(|&&value| usize::from(value) == level).count(), 256 / levels);
            }
            assert!(images.train.pixels.is_sorted());
        }
        let few = grey(PIXELS).quantised(16).unwrap();
        assert_eq!(few.quantised(2).unwrap(), grey(PIXELS).quantised(2).unwrap());
    }

    #[test]
    fn reductions_follow_each_other_and_by_default_nothing_is_reduced() {
        assert_eq!(coloured(PIXELS).reduced(&Reductions::default()).unwrap(), coloured(PIXELS));
        let both = coloured(PIXELS).reduced(&Reductions { grey: true, shrink: 2, levels: 4 }).unwrap();
        assert_eq!(both, coloured(PIXELS).grey().shrunk(2).unwrap().quantised(4).unwrap());
        assert_eq!([both.height, both.width, both.channels, both.levels], [1, 2, 1, 4]);
        let few = grey(PIXELS).quantised(4).unwrap();
        assert_eq!(few.clone().reduced(&Reductions::default()).unwrap(), few);
    }

    #[test]
    fn impossible_reductions_are_refused_with_the_setting() {
        for (reductions, parts) in [
            (Reductions { shrink: 0, ..Reductions::default() }, ["shrink", "0"]),
            (Reductions { shrink: 4, ..Reductions::default() }, ["shrink", "height 2 and the width 4"]),
            (Reductions { levels: 1, ..Reductions::default() }, ["levels", "2 to 256"]),
            (Reductions { levels: 257, ..Reductions::default() }, ["levels", "2 to 256"]),
        ] {
            refused(grey(PIXELS).reduced(&reductions), &parts);
        }
        let upright = Images { height: 4, width: 2, ..grey(PIXELS) };
        assert!(upright.shrunk(4).is_err());
    }

    #[test]
    fn a_subset_is_drawn_by_the_key_in_order_and_smaller_ones_are_part_of_larger_ones() {
        let mut images = grey(PIXELS);
        images.train = ImageSet { pixels: (0..200).flat_map(|index| [index; 8]).collect(), labels: (0..200).collect() };
        let key = RandomKey::from_seed(1);
        let sizes = |train: usize| Sizes { train, valid: 1, test: 9 };
        let subset = images.subset(&key, sizes(50));
        assert_eq!([subset.train.len(), subset.dev.len(), subset.test.len()], [50, 1, 1]);
        assert!(subset.train.labels.is_sorted_by(|a, b| a < b));
        assert!((0..50).all(|index| subset.train.image(index) == [subset.train.labels[index]; 8]));
        assert!(subset.train.labels[49] > 100, "not only the first ones");
        let smaller = images.subset(&key, sizes(20));
        assert!(smaller.train.labels.iter().all(|label| subset.train.labels.contains(label)));
        assert_ne!(subset, images.subset(&RandomKey::from_seed(2), sizes(50)));
        assert_eq!(images.subset(&key, Sizes { train: 200, valid: 1, test: 1 }), images);
    }
}
