//! Images as PNG files, one each: CelebA (Liu et al. 2015) and the downsampled ImageNet of van den Oord et al. (2016).
//!
//! CelebA is `list_eval_partition.txt`, on each line the name of an image and its split (0 training, 1 dev, 2 test), and the images in `img_align_celeba_png`,
//! in `img_align_celeba` or beside the list. The original images are JPEG files, which are not read: another program makes PNG files of them, usually smaller
//! ones. An image `000001.jpg` of the list is `000001.png` then. ImageNet is the folders `train_32x32` and `valid_32x32` (or 64x64), of which the second is the
//! test set, as in published results; the last tenth of the training images, at most 10,000, is the dev set.
//!
//! All images have one size, grey or in colour. Sixteen bits are reduced to eight; transparency is refused. There are no classes: every label is 0.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use ::png::{ColorType, Decoder, Transformations};

use super::stored::{StoredFile, combined_sha256};
use super::{ImageSet, Images, Listed};
use crate::DataError;
use crate::files::{self, TextFile};

/// A file by whose name CelebA is known.
pub(super) const PARTITION: &str = "list_eval_partition.txt";

const CELEBA_FOLDERS: [&str; 2] = ["img_align_celeba_png", "img_align_celeba"];
/// The sides of ImageNet's images.
const SIDES: [&str; 2] = ["32x32", "64x64"];
/// Most images of ImageNet's dev set, and which part of the training images it is at most.
const DEV: usize = 10_000;
const DEV_PART: usize = 10;
/// Most values of an image: 1,024 rows and columns in colour.
const MOST_VALUES: usize = 3 << 20;

/// Whether a file of this name (without `.gz`) belongs to CelebA.
pub(super) fn is_part(name: &str) -> bool {
    name == PARTITION
}

/// The folder of ImageNet's training images, if there is one.
pub(super) fn training_images(dir: &Path) -> Option<PathBuf> {
    SIDES.iter().map(|side| dir.join(format!("train_{side}"))).find(|folder| folder.is_dir())
}

/// Reads a folder of CelebA.
pub(super) fn read_celeba(dir: &Path, listed: &Listed) -> Result<Images, DataError> {
    let list = TextFile::read(&super::file(dir, listed, "the list of splits", PARTITION, is_part)?, "the list of splits")?;
    let folder = CELEBA_FOLDERS.iter().map(|name| dir.join(name)).find(|folder| folder.is_dir()).unwrap_or_else(|| dir.to_path_buf());
    let mut decoded = Decoded::default();
    let mut sets: [ImageSet; 3] = Default::default();
    for (index, line) in list.lines.iter().enumerate() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (name, split) = match fields[..] {
            [] => continue,
            [name, split] => (name, ["0", "1", "2"].iter().position(|known| *known == split)),
            _ => ("", None),
        };
        let split = split.ok_or_else(|| list.wrong(index, "image and split", line, "the name of an image and 0, 1 or 2"))?;
        let path = folder.join(format!("{}.png", name.rsplit_once('.').map_or(name, |(stem, _)| stem)));
        let original = folder.join(name);
        if !path.exists() && original.exists() {
            let remedy = "make PNG files of one size beside it, such as by `magick mogrify -resize 64x64! -format png *.jpg`".to_owned();
            return Err(DataError::NotRead { path: original, what: "an image that is no PNG file", remedy });
        }
        decoded.add(&path, &mut sets[split])?;
    }
    if let Some(split) = sets.iter().position(ImageSet::is_empty) {
        return Err(DataError::empty(&list.path, format!("no image of split {split}"), "restore it"));
    }
    decoded.images(dir, sets)
}

/// Reads a folder of ImageNet.
pub(super) fn read_imagenet(dir: &Path, _: &Listed) -> Result<Images, DataError> {
    let train_folder = training_images(dir).unwrap_or_else(|| dir.join("train_32x32"));
    let test_folder = dir.join(train_folder.file_name().unwrap_or_default().to_string_lossy().replace("train", "valid"));
    let mut decoded = Decoded::default();
    let mut set = |folder: &Path, least: usize| -> Result<ImageSet, DataError> {
        let mut set = ImageSet::default();
        for (name, forms) in files::list(folder, "a folder of PNG files")? {
            if name.ends_with(".png")
                && let Some(path) = files::only(forms, "the same image")?
            {
                decoded.add(&path, &mut set)?;
            }
        }
        if set.len() < least {
            return Err(DataError::empty(folder, format!("{} images", set.len()), format!("put at least {least} PNG files there")));
        }
        Ok(set)
    };
    let (mut train, test) = (set(&train_folder, DEV_PART)?, set(&test_folder, 1)?);
    let dev = train.split_off(train.len() - DEV.min(train.len() / DEV_PART));
    decoded.images(dir, [train, dev, test])
}

/// The files of images of one size, and the size: rows, columns and channels.
#[derive(Default)]
struct Decoded {
    files: Vec<StoredFile>,
    shape: [usize; 3],
}

impl Decoded {
    /// Appends the image of a file to a set.
    fn add(&mut self, path: &Path, set: &mut ImageSet) -> Result<(), DataError> {
        let mut file = StoredFile::read(path, "an image (PNG)")?;
        let bytes = file.content(u64::MAX - 1)?;
        let (shape, pixels) = decode(&file, &bytes)?;
        match self.files.first() {
            None => self.shape = shape,
            Some(first) if shape != self.shape => {
                let text = |[rows, columns, channels]: [usize; 3]| format!("{rows} x {columns} x {channels}");
                let expected = format!("{}, as of `{}`", text(self.shape), first.path().display());
                return Err(file.wrong("rows, columns and channels", text(shape), expected));
            }
            Some(_) => {}
        }
        set.pixels.extend(pixels);
        set.labels.push(0);
        self.files.push(file);
        Ok(())
    }

    fn images(self, dir: &Path, [train, dev, test]: [ImageSet; 3]) -> Result<Images, DataError> {
        let [height, width, channels] = self.shape;
        let sha256 = combined_sha256(&self.files);
        Ok(Images { name: super::name_of(dir), height, width, channels, levels: 256, classes: 1, train, dev, test, sha256 })
    }
}

/// Rows, columns and channels of a PNG file, and its values.
fn decode(file: &StoredFile, bytes: &[u8]) -> Result<([usize; 3], Vec<u8>), DataError> {
    let broken = |cause: ::png::DecodingError| file.wrong("PNG", cause, "an image that can be decoded");
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(broken)?;
    let (columns, rows) = reader.info().size();
    let channels = match reader.output_color_type().0 {
        ColorType::Grayscale => 1,
        ColorType::Rgb => 3,
        other => return Err(file.wrong("colours", format!("{other:?}"), "grey or RGB without transparency")),
    };
    let shape = [rows as usize, columns as usize, channels];
    let values = shape.iter().try_fold(1, |values: usize, &side| values.checked_mul(side)).filter(|&values| values <= MOST_VALUES);
    let mut pixels = vec![0; values.ok_or_else(|| file.wrong("size", format!("{rows} x {columns}"), "of at most 1024 x 1024 pixels"))?];
    reader.next_frame(&mut pixels).map_err(broken)?;
    Ok((shape, pixels))
}

#[cfg(test)]
mod tests {
    use ::png::{BitDepth, Encoder};

    use super::*;
    use crate::files::tests::{folder, refused};
    use crate::images;

    fn png([width, height]: [u32; 2], colour: ColorType, depth: BitDepth, values: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, width, height);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        encoder.write_header().unwrap().write_image_data(values).unwrap();
        bytes
    }

    fn coloured(first: u8) -> Vec<u8> {
        png([2, 1], ColorType::Rgb, BitDepth::Eight, &[first, 1, 2, 3, 4, 5])
    }

    const LIST: &[u8] = b"000001.jpg 0\n000002.jpg 2\n000003.jpg 1\n000004.jpg 0\n";

    #[test]
    fn celeba_is_read_by_its_list() {
        let files: Vec<(String, Vec<u8>)> = (1..5).map(|n| (format!("img_align_celeba/00000{n}.png"), coloured(n))).collect();
        let mut all: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        all.push((PARTITION, LIST));
        let images = images::read(folder(&all).path()).unwrap();
        assert_eq!([images.height, images.width, images.channels, images.levels, images.classes], [1, 2, 3, 256, 1]);
        assert_eq!((images.train.image(0), images.train.image(1)), (&[1, 1, 2, 3, 4, 5][..], &[4, 1, 2, 3, 4, 5][..]));
        assert_eq!((images.dev.pixels[0], images.test.pixels[0], images.test.labels), (3, 2, vec![0]));
    }

    #[test]
    fn imagenet_is_two_folders_in_the_order_of_their_names() {
        let files: Vec<(String, Vec<u8>)> = (0..20)
            .map(|n| (format!("train_32x32/{n:07}.png"), png([2, 1], ColorType::Grayscale, BitDepth::Eight, &[n, 9])))
            .chain([("valid_32x32/1.png".to_owned(), png([2, 1], ColorType::Grayscale, BitDepth::Sixteen, &[7, 255, 8, 0]))])
            .collect();
        let all: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let images = images::read(folder(&all).path()).unwrap();
        assert_eq!([images.train.len(), images.dev.len(), images.test.len(), images.channels], [18, 2, 1, 1]);
        assert_eq!((images.dev.image(1), images.test.image(0)), (&[19, 9][..], &[7, 8][..]));
        refused(images::read(folder(&all[..9]).path()), &["train_32x32` holds 9 images", "at least 10"]);
        refused(images::read(folder(&all[..20]).path()), &["valid_32x32` does not exist"]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_file_and_remedy() {
        let message = |list: &[u8], images: [&[u8]; 2], extension: &str| {
            let names = ["1", "2"].map(|stem| format!("{stem}.{extension}"));
            let files = [(PARTITION, list), (names[0].as_str(), images[0]), (names[1].as_str(), images[1])];
            images::read(folder(&files).path()).unwrap_err().to_string()
        };
        let (good, list) = (coloured(0), b"1.jpg 0\n2.jpg 1\n");
        let clear = png([2, 1], ColorType::Rgba, BitDepth::Eight, &[0; 8]);
        let grey = png([2, 1], ColorType::Grayscale, BitDepth::Eight, &[0; 2]);
        let large = png([2000, 2000], ColorType::Grayscale, BitDepth::Eight, &[0; 4_000_000]);
        for (message, parts) in [
            (
                message(b"1.jpg 0\n2.jpg\n", [&good; 2], "png"),
                &["list_eval_partition.txt`, line 2", "`2.jpg` is not the name of an image and 0, 1 or 2"][..],
            ),
            (message(b"1.jpg 0\n2.jpg 3\n", [&good; 2], "png"), &["line 2", "0, 1 or 2"]),
            (message(list, [&good; 2], "png"), &["list_eval_partition.txt` holds no image of split 2"]),
            (message(list, [&good; 2], "jpg"), &["1.jpg` is an image that is no PNG file, which is not read", "mogrify"]),
            (message(list, [&good, &good[..40]], "png"), &["2.png`, PNG", "can be decoded"]),
            (message(list, [&good, b"JFIF"], "png"), &["2.png`, PNG"]),
            (message(list, [&good, &clear], "png"), &["2.png`, colours: Rgba"]),
            (message(list, [&good, &grey], "png"), &["2.png`, rows, columns and channels: 1 x 2 x 1 is not 1 x 2 x 3, as of"]),
            (message(list, [&large, &grey], "png"), &["1.png`, size: 2000 x 2000", "1024 x 1024"]),
            (message(b"3.jpg 0\n", [&good; 2], "png"), &["3.png` does not exist"]),
        ] {
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
