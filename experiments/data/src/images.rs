//! Images with labels: MNIST and what is stored like it ([`idx`]), CIFAR ([`cifar`]), the downsampled ImageNet (`npz.rs`, or as PNG files) and CelebA as PNG
//! files (`folders.rs`), or made without any file ([`generate::images`]).
//!
//! The values of an image lie one after the other in the order row, column, channel: the value of row `r`, column `c` and channel `k` of an image of
//! `width` columns and `channels` channels has the index `(r * width + c) * channels + k`. In this order an Image Transformer generates them
//! (Parmar et al. 2018). [`Reductions`] makes images smaller, grey or coarser, and [`png`] draws them. Not covered: images of varying size, and formats
//! with lossy compression.
//!
//! [`generate::images`]: mod@super::generate::images

use std::fs;
use std::path::{Path, PathBuf};

use super::files::Listed;
use super::{DataError, files};

pub mod cifar;
mod folders;
pub mod idx;
mod npz;
pub mod png;
mod reduce;
mod stored;

pub use png::Picture;
pub use reduce::Reductions;

/// Images of one size in three splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// What they are called: the name of the folder they were read from.
    pub name: String,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// Values of a pixel: 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// Number of intensity levels, 2 to 256: every value is below it, and the greatest is white.
    pub levels: usize,
    /// Number of classes: every label is less.
    pub classes: usize,
    /// For training.
    pub train: ImageSet,
    /// For choosing the best checkpoint.
    pub dev: ImageSet,
    /// For the reported scores.
    pub test: ImageSet,
    /// Combined SHA-256 of the files, or that of the generated images. [`Reductions`] leave it as it is.
    pub sha256: String,
}

/// Images of one split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSet {
    /// The values of all images, one image after the other.
    pub pixels: Vec<u8>,
    /// The class of each image.
    pub labels: Vec<u8>,
}

impl ImageSet {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The values of an image.
    ///
    /// # Panics
    /// Panics if there is no image of this index.
    pub fn image(&self, index: usize) -> &[u8] {
        let size = self.pixels.len() / self.len();
        &self.pixels[index * size..(index + 1) * size]
    }

    /// Keeps the first `count` images and returns the others.
    fn split_off(&mut self, count: usize) -> Self {
        let size = self.pixels.len() / self.len();
        Self { pixels: self.pixels.split_off(count * size), labels: self.labels.split_off(count) }
    }
}

impl Images {
    /// Number of values of an image: height times width times channels.
    pub fn size(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Images of this size and these levels, and none of them.
    pub fn without_images(&self) -> Self {
        let none = ImageSet::default;
        Self { name: self.name.clone(), sha256: self.sha256.clone(), train: none(), dev: none(), test: none(), ..*self }
    }

    /// Values of this size and these levels as a picture to be drawn: an image of a split or one that a model made.
    pub fn picture<'a>(&self, pixels: &'a [u8]) -> Picture<'a> {
        Picture { height: self.height, width: self.width, channels: self.channels, levels: self.levels, pixels, shown: pixels.len() }
    }
}

/// A format: what it is called, which file names it has, and how a folder of it is read.
type Format = (fn(&str) -> bool, fn(&Path, &Listed) -> Result<Images, DataError>);

const FORMATS: [Format; 5] = [
    (idx::is_part, idx::read),
    (cifar::is_part_of_10, cifar::read_10),
    (cifar::is_part_of_100, cifar::read_100),
    (npz::is_part, npz::read),
    (folders::is_part, folders::read_celeba),
];

/// Whether a folder has a folder of images, which is part of it.
pub(crate) fn has_folder(dir: &Path) -> bool {
    folders::training_images(dir).is_some()
}

/// Whether a file of this name (without `.gz`) belongs to ImageNet or to CelebA.
pub(crate) fn is_imagenet_or_celeba(name: &str) -> bool {
    npz::is_part(name) || folders::is_part(name)
}

/// Reads a folder of MNIST, CIFAR-10 or CIFAR-100 files (plain or gzip), of ImageNet or of CelebA; the file names decide which.
///
/// # Errors
/// A missing folder or file, files of two formats or two forms of one file ([`DataError::Ambiguous`]), a file that is cut, damaged or not of its format
/// ([`DataError::Gzip`], [`DataError::Binary`], [`DataError::NotRead`]).
pub fn read(dir: &Path) -> Result<Images, DataError> {
    let listed = files::list(dir, "a folder of images")?;
    let fitting = |is_part: fn(&str) -> bool| listed.iter().find(|(name, _)| is_part(name)).and_then(|(_, forms)| forms.first());
    let mut found: Vec<_> = FORMATS.iter().filter_map(|(is_part, read)| Some((fitting(*is_part)?.clone(), *read))).collect();
    found.extend(folders::training_images(dir).map(|folder| (folder, folders::read_imagenet as _)));
    match found[..] {
        [] => Err(DataError::missing(
            dir,
            "images",
            format!(
                "{} (MNIST), {} (CIFAR-10), {} (CIFAR-100), {} or a folder train_32x32 (ImageNet), or {} (CelebA)",
                idx::EXPECTED,
                cifar::EXPECTED_10,
                cifar::EXPECTED_100,
                npz::EXPECTED,
                folders::PARTITION
            ),
        )),
        [(_, read)] => read(dir, &listed),
        _ => {
            Err(DataError::Ambiguous { part: "the format of the images".into(), files: found.into_iter().map(|(file, _)| file).collect() })
        }
    }
}

/// What a folder is called, also where its path does not say so, such as `.`.
fn name_of(dir: &Path) -> String {
    let whole = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    whole.file_name().map_or_else(|| "images".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The only form of the file whose name fits.
fn file(dir: &Path, listed: &Listed, part: &str, expected: &str, fits: impl Fn(&str) -> bool) -> Result<PathBuf, DataError> {
    files::only(files::fitting(listed, fits), part)?.ok_or_else(|| DataError::missing(dir, part, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::{folder, refused};

    #[test]
    fn an_image_is_found_by_its_index() {
        let mut set = ImageSet { pixels: (0..12).collect(), labels: vec![7, 8, 9] };
        assert_eq!(set.image(1), [4, 5, 6, 7]);
        let rest = set.split_off(2);
        assert_eq!((rest.image(0), rest.labels.as_slice(), set.len(), rest.len()), (&[8, 9, 10, 11][..], &[9][..], 2, 1));
    }

    #[test]
    fn a_folder_without_images_or_with_two_formats_is_refused() {
        let error = read(folder(&[("images.txt", b"")]).path()).unwrap_err().to_string();
        assert!(["train-images-idx3-ubyte", "data_batch_1.bin", "train.bin"].iter().all(|name| error.contains(name)), "{error}");
        refused(read(folder(&[("train.bin", b""), ("test_batch.bin.gz", b"")]).path()), &["train.bin", "test_batch.bin.gz", "keep one"]);
        assert!(matches!(read(Path::new("nowhere")), Err(DataError::NotFound { .. })));
    }

    #[test]
    fn a_folder_has_a_name_also_where_its_path_has_none() {
        assert_eq!(name_of(Path::new("some/mnist")), "mnist");
        let here = std::env::current_dir().unwrap();
        assert_eq!(name_of(Path::new(".")), here.file_name().unwrap().to_string_lossy());
    }
}
