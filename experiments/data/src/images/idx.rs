//! IDX, the format of MNIST (LeCun et al. 1998) and of the sets that are stored like it, such as Fashion-MNIST.
//!
//! ```text
//! images    2051 (four bytes)    count    rows    columns    then one byte for each value, 0 is black, row by row
//! labels    2049                 count                       then one byte for each label
//! ```
//!
//! All numbers of a header have four bytes, the most significant first. A folder holds four files: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`
//! and the same with `t10k` (or `test`) for `train`; a dot or an underscore may stand for any hyphen, and `.gz` after the name. Every length and count is
//! compared with the others before anything is kept. The last 10,000 training images become the dev set, or the last sixth where that is less. The
//! number of classes is one more than the greatest label.

use std::path::Path;

use super::stored::{StoredFile, combined_sha256};
use super::{ImageSet, Images, Listed};
use crate::DataError;

/// A file by whose name the format is known.
pub(super) const EXPECTED: &str = "train-images-idx3-ubyte";

const IMAGES: u32 = 2051;
const LABELS: u32 = 2049;
/// Most images of the dev set.
const DEV: usize = 10_000;
/// The dev set is at most one of so many parts of the training images.
const DEV_PART: usize = 6;
/// Most bytes that a compressed file may hold, whatever its header says: more than twenty times those of MNIST.
const MOST_BYTES: u64 = 1 << 30;

const PARTS: [(&[&str], &str); 4] = [
    (&["train-images-idx3-ubyte"], "the training images"),
    (&["train-labels-idx1-ubyte"], "the labels of the training images"),
    (&["t10k-images-idx3-ubyte", "test-images-idx3-ubyte"], "the test images"),
    (&["t10k-labels-idx1-ubyte", "test-labels-idx1-ubyte"], "the labels of the test images"),
];

/// Whether a file of this name (without `.gz`) belongs to the format.
pub(super) fn is_part(name: &str) -> bool {
    PARTS.iter().any(|(names, _)| fits(name, names))
}

fn fits(name: &str, names: &[&str]) -> bool {
    names.contains(&name.replace(['.', '_'], "-").as_str())
}

/// Reads a folder.
pub(super) fn read(dir: &Path, listed: &Listed) -> Result<Images, DataError> {
    let file = |(names, part): (&[&str], &str)| {
        let path = super::file(dir, listed, part, names[0], |name| fits(name, names))?;
        StoredFile::read(&path, part)
    };
    let [train_images, train_labels, test_images, test_labels] = PARTS.map(file);
    let (mut train_images, mut train_labels) = (train_images?, train_labels?);
    let (mut test_images, mut test_labels) = (test_images?, test_labels?);
    let sha256 = combined_sha256([&train_images, &train_labels, &test_images, &test_labels]);
    let (mut train, shape) = set(&mut train_images, &mut train_labels)?;
    let (test, test_shape) = set(&mut test_images, &mut test_labels)?;
    if test_shape != shape {
        let text = |[rows, columns]: [usize; 2]| format!("{rows} x {columns}");
        let expected = format!("{}, as in `{}`", text(shape), train_images.path().display());
        return Err(test_images.wrong("rows and columns", text(test_shape), expected));
    }
    if train.len() < DEV_PART {
        return Err(train_images.wrong("number of images", train.len(), format!("at least {DEV_PART}, of which one is for the dev set")));
    }
    let dev = train.split_off(train.len() - DEV.min(train.len() / DEV_PART));
    let greatest = [&train, &dev, &test].into_iter().flat_map(|set| &set.labels).max();
    let classes = greatest.map_or(0, |&label| usize::from(label) + 1);
    let [height, width] = shape;
    Ok(Images { name: super::name_of(dir), height, width, channels: 1, levels: 256, classes, train, dev, test, sha256 })
}

/// The images and labels of two files that belong together, with the rows and columns of an image.
fn set(images: &mut StoredFile, labels: &mut StoredFile) -> Result<(ImageSet, [usize; 2]), DataError> {
    let ([_, rows, columns], pixels) = content(images, IMAGES, ["number of images", "number of rows", "number of columns"])?;
    let ([_], label_bytes) = content(labels, LABELS, ["number of labels"])?;
    let count = pixels.len() / (rows * columns);
    if label_bytes.len() != count {
        let expected = format!("{count}, the number of images in `{}`", images.path().display());
        return Err(labels.wrong("number of labels", label_bytes.len(), expected));
    }
    Ok((ImageSet { pixels, labels: label_bytes }, [rows, columns]))
}

/// The numbers of a header, of which none is zero, and the bytes that follow it.
fn content<const N: usize>(file: &mut StoredFile, magic: u32, fields: [&str; N]) -> Result<([usize; N], Vec<u8>), DataError> {
    let header_length = 4 + 4 * N;
    // The longest header has four numbers.
    let beginning = file.beginning::<16>()?;
    let header = beginning.get(..header_length).ok_or_else(|| {
        let expected = format!("the {header_length} bytes of a header or more");
        file.wrong("length", format!("{} bytes", beginning.len()), expected)
    })?;
    let number = |index: usize| u32::from_be_bytes(std::array::from_fn(|byte| header[4 * index + byte]));
    if number(0) != magic {
        return Err(file.wrong("magic number", number(0), magic));
    }
    let numbers: [u32; N] = std::array::from_fn(|index| number(index + 1));
    if let Some(index) = numbers.iter().position(|&number| number == 0) {
        return Err(file.wrong(fields[index], 0, "at least 1"));
    }
    let length = header_length as u128 + numbers.iter().map(|&number| u128::from(number)).product::<u128>();
    if file.is_compressed() && length > u128::from(MOST_BYTES) {
        return Err(file.wrong("header", format!("the announcement of {length} bytes"), format!("one of at most {MOST_BYTES} bytes")));
    }
    let mut bytes = file.content(length as u64)?;
    if bytes.len() as u128 != length {
        let more = if file.is_compressed() && bytes.len() as u128 > length { " or more" } else { "" };
        let product = numbers.map(|number| number.to_string()).join(" x ");
        let expected = format!("the {length} bytes that its header announces ({header_length} + {product})");
        return Err(file.wrong("length", format!("{} bytes{more}", bytes.len()), expected));
    }
    bytes.drain(..header_length);
    Ok((numbers.map(|number| number as usize), bytes))
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::files::tests::{folder, gzip, refused};
    use crate::images;

    fn bytes(header: &[u32], body: impl IntoIterator<Item = u8>) -> Vec<u8> {
        header.iter().flat_map(|number| number.to_be_bytes()).chain(body).collect()
    }

    /// Twelve training images of 2 x 3 and two test images, with `.gz` for some.
    fn small(names: [&str; 4]) -> tempfile::TempDir {
        folder(&[
            (names[0], &bytes(&[2051, 12, 2, 3], 0..72)),
            (names[1], &bytes(&[2049, 12], (0..12).map(|label| label % 4))),
            (names[2], &bytes(&[2051, 2, 2, 3], 100..112)),
            (names[3], &bytes(&[2049, 2], [4, 0])),
        ])
    }

    const NAMES: [&str; 4] = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

    #[test]
    fn images_and_labels_are_read_and_the_last_sixth_is_the_dev_set() {
        let data = small(NAMES);
        let images = images::read(data.path()).unwrap();
        assert_eq!([images.height, images.width, images.channels, images.levels, images.classes], [2, 3, 1, 256, 5]);
        assert_eq!([images.train.len(), images.dev.len(), images.test.len()], [10, 2, 2]);
        assert_eq!(images.train.image(1), [6, 7, 8, 9, 10, 11]);
        assert_eq!(images.dev.image(0), [60, 61, 62, 63, 64, 65]);
        assert_eq!((images.train.labels, images.dev.labels), (vec![0, 1, 2, 3, 0, 1, 2, 3, 0, 1], vec![2, 3]));
        assert_eq!((images.test.image(1), images.test.labels.as_slice()), (&[106, 107, 108, 109, 110, 111][..], &[4, 0][..]));
        assert_eq!(images.name, data.path().file_name().unwrap().to_string_lossy());
    }

    #[test]
    fn other_spellings_and_compressed_files_hold_the_same() {
        let plain = images::read(small(NAMES).path()).unwrap();
        for names in [
            ["train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"],
            ["train-images-idx3-ubyte.gz", "train_labels_idx1_ubyte", "test-images-idx3-ubyte", "test-labels-idx1-ubyte.gz"],
        ] {
            let other = images::read(small(names).path()).unwrap();
            assert_eq!((&other.train, &other.dev, &other.test), (&plain.train, &plain.dev, &plain.test));
            assert_ne!(other.sha256, plain.sha256);
        }
    }

    #[test]
    fn missing_and_doubled_files_are_named() {
        let data = small(NAMES);
        std::fs::remove_file(data.path().join(NAMES[1])).unwrap();
        refused(images::read(data.path()), &["the labels of the training images", NAMES[1]]);
        std::fs::write(data.path().join("train-images.idx3-ubyte.gz"), b"").unwrap();
        refused(images::read(data.path()), &["train-images.idx3-ubyte.gz", NAMES[0]]);
    }

    /// The error of a data set one of whose files has these bytes.
    fn error_of(part: usize, content: &[u8], compressed: bool) -> String {
        let data = small(NAMES);
        std::fs::remove_file(data.path().join(NAMES[part])).unwrap();
        let (name, content) =
            if compressed { (format!("{}.gz", NAMES[part]), gzip(content)) } else { (NAMES[part].to_owned(), content.to_vec()) };
        std::fs::write(data.path().join(&name), content).unwrap();
        let error = images::read(data.path()).unwrap_err().to_string();
        assert!(error.contains(&name), "{error}");
        error
    }

    #[test]
    fn a_wrong_header_or_length_is_refused_with_its_field() {
        for compressed in [false, true] {
            for (part, content, parts) in [
                (0, bytes(&[2049, 12, 2, 3], 0..72), ["magic number", "2049 is not 2051"]),
                (1, bytes(&[2051, 12], 0..12), ["magic number", "2051 is not 2049"]),
                (0, bytes(&[2051, 12, 2], []), ["length", "12 bytes is not the 16 bytes of a header"]),
                (0, bytes(&[2051, 12, 2, 3], 0..71), ["length", "87 bytes is not the 88 bytes"]),
                (0, bytes(&[2051, 12, 2, 3], 0..73), ["length", "is not the 88 bytes that its header announces (16 + 12 x 2 x 3)"]),
                (0, bytes(&[2051, 0, 2, 3], []), ["number of images", "at least 1"]),
                (0, bytes(&[2051, 12, 0, 3], []), ["number of rows", "at least 1"]),
                (1, bytes(&[2049, 0], []), ["number of labels", "at least 1"]),
                (1, bytes(&[2049, 11], 0..11), ["number of labels: 11 is not 12", "number of images in"]),
                (2, bytes(&[2051, 2, 3, 2], 0..12), ["rows and columns", "3 x 2 is not 2 x 3, as in"]),
            ] {
                let error = error_of(part, &content, compressed);
                assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            }
        }
    }

    #[test]
    fn a_header_that_announces_more_than_there_is_or_can_be_is_refused() {
        for (header, compressed, part) in [
            ([2051, u32::MAX, 28, 28], false, "length: 17 bytes is not the 3367254359296 bytes"),
            ([2051, u32::MAX, u32::MAX, u32::MAX], false, "length: 17 bytes is not the 79228162458924105385300197391 bytes"),
            ([2051, u32::MAX, u32::MAX, u32::MAX], true, "header: the announcement of 79228162458924105385300197391 bytes"),
            ([2051, u32::MAX, 28, 28], true, "one of at most 1073741824 bytes"),
            ([2051, 1_000_000, 28, 28], true, "length: 17 bytes is not the 784000016 bytes"),
        ] {
            let error = error_of(0, &bytes(&header, [0]), compressed);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_compressed_file_with_more_than_its_header_announces_is_not_read_to_its_end() {
        let bomb = bytes(&[2051, 12, 2, 3], std::iter::repeat_n(0, 50_000_000));
        let error = error_of(0, &bomb, true);
        assert!(error.contains("length: 89 bytes or more is not the 88 bytes"), "{error}");
    }

    #[test]
    fn fewer_images_than_a_dev_set_needs_are_refused() {
        let error = {
            let data = small(NAMES);
            std::fs::write(data.path().join(NAMES[0]), bytes(&[2051, 5, 2, 3], 0..30)).unwrap();
            std::fs::write(data.path().join(NAMES[1]), bytes(&[2049, 5], 0..5)).unwrap();
            images::read(data.path()).unwrap_err().to_string()
        };
        assert!(error.contains("number of images: 5 is not at least 6"), "{error}");
    }

    #[test]
    fn mutated_cut_and_random_files_are_refused_or_read_whole() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let whole = [bytes(&[2051, 12, 2, 3], 0..72), bytes(&[2049, 12], 0..12)];
        let mut accepted = 0;
        for round in 0..20_000 {
            let mut damaged = whole.clone();
            let target = &mut damaged[rng.random_range(0..2)];
            let (at, header) = (rng.random_range(0..target.len()), if target.len() > 50 { 16 } else { 8 });
            match round % 4 {
                0 => target.truncate(at),
                1 => target[at] ^= 1 << rng.random_range(0..8),
                2 => target[at % header] = rng.random(),
                _ => {
                    *target = vec![0; rng.random_range(0..200)];
                    rng.fill_bytes(target);
                }
            }
            let compressed = rng.random_bool(0.3);
            let [images, labels] = damaged;
            let length = images.len();
            let file = |name: &str, content: Vec<u8>| match compressed {
                true => {
                    let mut stored = gzip(&content);
                    let at = rng.clone().random_range(0..2 * stored.len());
                    stored.get_mut(at).into_iter().for_each(|byte| *byte ^= 4);
                    StoredFile::from_bytes(format!("{name}.gz").into(), stored)
                }
                false => StoredFile::from_bytes(name.into(), content),
            };
            if let Ok((set, [rows, columns])) = set(&mut file("images", images), &mut file("labels", labels)) {
                assert_eq!(set.pixels.len(), set.len() * rows * columns);
                assert_eq!(set.pixels.len(), length - 16);
                assert!(set.pixels.capacity() <= 2 * length.max(32));
                accepted += 1;
            }
        }
        assert!((1000..10_000).contains(&accepted), "{accepted} accepted");
    }
}
