//! CIFAR-10 and CIFAR-100 (Krizhevsky 2009) in their binary version: colour images of 32 rows and 32 columns.
//!
//! A file is a row of records without a header, so their number follows from the file's length. A record of CIFAR-10 is one byte with the label (0 to 9)
//! and 3,072 bytes with the values: 1,024 red, 1,024 green and 1,024 blue ones, each plane row by row. A record of CIFAR-100 begins with two labels, the
//! coarse one (0 to 19) and the fine one (0 to 99), of which the fine one is kept.
//!
//! CIFAR-10 is `data_batch_1.bin` to at most `data_batch_5.bin` without a gap, in this order, and `test_batch.bin`; CIFAR-100 is `train.bin` and
//! `test.bin`; each file plain or with `.gz`. The last tenth of the training images is the dev set.

use std::path::Path;

use super::stored::{StoredFile, combined_sha256};
use super::{ImageSet, Images, Listed};
use crate::DataError;

/// A file by whose name CIFAR-10 is known.
pub(super) const EXPECTED_10: &str = "data_batch_1.bin";
/// A file by whose name CIFAR-100 is known.
pub(super) const EXPECTED_100: &str = "train.bin";

const SIDE: usize = 32;
const CHANNELS: usize = 3;
const PLANE: usize = SIDE * SIDE;
const BATCHES: usize = 5;
/// The dev set is one of so many parts of the training images.
const DEV_PART: usize = 10;
/// Most images of a file: as many as the largest one has, `train.bin` of CIFAR-100.
const MOST_IMAGES: usize = 50_000;

const COARSE: (&str, u8) = ("coarse label", 20);
const FINE: (&str, u8) = ("fine label", 100);
const LABEL: (&str, u8) = ("label", 10);

/// Whether a file of this name (without `.gz`) belongs to CIFAR-10.
pub(super) fn is_part_of_10(name: &str) -> bool {
    name == "test_batch.bin" || (1..=BATCHES).any(|number| name == batch(number))
}

/// Whether a file of this name (without `.gz`) belongs to CIFAR-100.
pub(super) fn is_part_of_100(name: &str) -> bool {
    ["train.bin", "test.bin"].contains(&name)
}

fn batch(number: usize) -> String {
    format!("data_batch_{number}.bin")
}

/// Reads a folder of CIFAR-10.
pub(super) fn read_10(dir: &Path, listed: &Listed) -> Result<Images, DataError> {
    let last = (1..=BATCHES).rev().find(|&number| listed.contains_key(&batch(number))).unwrap_or(1);
    let names: Vec<String> = (1..=last).map(batch).collect();
    images(dir, listed, &names, "test_batch.bin", &[LABEL])
}

/// Reads a folder of CIFAR-100.
pub(super) fn read_100(dir: &Path, listed: &Listed) -> Result<Images, DataError> {
    images(dir, listed, &["train.bin".to_owned()], "test.bin", &[COARSE, FINE])
}

fn images(dir: &Path, listed: &Listed, train_names: &[String], test_name: &str, labels: &[(&str, u8)]) -> Result<Images, DataError> {
    let file = |part: &str, expected: &str| StoredFile::read(&super::file(dir, listed, part, expected, |name| name == expected)?, part);
    let train_files = train_names.iter().map(|name| file("training images", name)).collect::<Result<Vec<_>, _>>()?;
    let test_file = file("test images", test_name)?;
    let sha256 = combined_sha256(train_files.iter().chain([&test_file]));
    let mut train = ImageSet::default();
    for file in train_files {
        append(&mut train, file, labels)?;
    }
    let mut test = ImageSet::default();
    append(&mut test, test_file, labels)?;
    if train.len() < DEV_PART {
        return Err(DataError::empty(
            dir,
            format!("{} training images", train.len()),
            format!("put at least {DEV_PART} there, a tenth is for the dev set"),
        ));
    }
    let dev = train.split_off(train.len() - train.len() / DEV_PART);
    let classes = labels.last().map_or(0, |&(_, classes)| usize::from(classes));
    Ok(Images { name: super::name_of(dir), height: SIDE, width: SIDE, channels: CHANNELS, levels: 256, classes, train, dev, test, sha256 })
}

/// Appends the images of a file, each of whose records begins with these labels; the last one counts.
fn append(set: &mut ImageSet, mut file: StoredFile, labels: &[(&str, u8)]) -> Result<(), DataError> {
    let length = labels.len() + CHANNELS * PLANE;
    let most = MOST_IMAGES * length;
    let bytes = file.content(most as u64)?;
    if bytes.len() > most || bytes.is_empty() || !bytes.len().is_multiple_of(length) {
        let more = if bytes.len() > most && file.is_compressed() { " or more" } else { "" };
        let expected = format!("1 to {MOST_IMAGES} records of {length} bytes");
        return Err(file.wrong("length", format!("{} bytes{more}", bytes.len()), expected));
    }
    set.pixels.reserve(bytes.len());
    for (index, record) in bytes.chunks_exact(length).enumerate() {
        let (record_labels, planes) = record.split_at(labels.len());
        for (&label, (field, classes)) in record_labels.iter().zip(labels) {
            if label >= *classes {
                return Err(file.wrong(&format!("{field} of record {}", index + 1), label, format!("one of 0 to {}", classes - 1)));
            }
        }
        set.labels.extend(record_labels.last());
        set.pixels.extend((0..PLANE).flat_map(|pixel| (0..CHANNELS).map(move |channel| planes[channel * PLANE + pixel])));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::files::tests::{folder, gzip, refused};
    use crate::images;

    /// A record whose red values are `first`, green ones `first + 1` and blue ones `first + 2`, but for the second pixel, whose values are 200 to 202.
    fn record(labels: &[u8], first: u8) -> Vec<u8> {
        let mut record = labels.to_vec();
        for channel in 0..3 {
            record.extend([first + channel; PLANE]);
            record[labels.len() + usize::from(channel) * PLANE + 1] = 200 + channel;
        }
        record
    }

    fn batch(count: u8, first: u8) -> Vec<u8> {
        (0..count).flat_map(|index| record(&[(first + index) % 10], first + index)).collect()
    }

    #[test]
    fn planes_become_pixels_and_batches_follow_each_other() {
        let data = folder(&[
            ("data_batch_2.bin", &batch(12, 50)),
            ("data_batch_1.bin.gz", &batch(8, 10)),
            ("test_batch.bin", &batch(1, 90)),
            ("batches.meta.txt", b"airplane"),
        ]);
        let images = images::read(data.path()).unwrap();
        assert_eq!([images.height, images.width, images.channels, images.levels, images.classes], [32, 32, 3, 256, 10]);
        assert_eq!([images.train.len(), images.dev.len(), images.test.len()], [18, 2, 1]);
        assert_eq!(images.train.image(0)[..7], [10, 11, 12, 200, 201, 202, 10]);
        assert_eq!(images.train.image(8)[3069..], [50, 51, 52]);
        assert_eq!((&images.train.labels[6..10], &images.dev.labels[..]), (&[6, 7, 0, 1][..], &[0, 1][..]));
        assert_eq!(images.test.image(0)[..3], [90, 91, 92]);
    }

    #[test]
    fn of_the_two_labels_of_cifar_100_the_fine_one_counts() {
        let train: Vec<u8> = (0..10).flat_map(|index| record(&[19 - index, 90 + index], index)).collect();
        let data = folder(&[("train.bin", &train), ("test.bin", &record(&[3, 42], 7))]);
        let images = images::read(data.path()).unwrap();
        assert_eq!((images.classes, &images.train.labels[..2], &images.test.labels[..]), (100, &[90, 91][..], &[42][..]));
        assert_eq!(images.test.image(0)[..4], [7, 8, 9, 200]);
    }

    #[test]
    fn a_missing_doubled_or_wrong_file_is_named() {
        let (good, test) = (batch(10, 0), batch(1, 0));
        let mut wrong_label = good.clone();
        wrong_label[3 * 3073] = 10;
        type Files<'a> = &'a [(&'a str, &'a [u8])];
        let cases: [(Files, [&str; 2]); 7] = [
            (&[("data_batch_1.bin", &good)], ["test images", "test_batch.bin"]),
            (
                &[("data_batch_1.bin", &good), ("data_batch_3.bin", &good), ("test_batch.bin", &test)],
                ["training images", "data_batch_2.bin"],
            ),
            (
                &[("data_batch_1.bin", &good), ("data_batch_1.bin.gz", &good), ("test_batch.bin", &test)],
                ["data_batch_1.bin.gz", "keep one"],
            ),
            (&[("data_batch_1.bin", &good[1..]), ("test_batch.bin", &test)], ["data_batch_1.bin`, length", "30729 bytes"]),
            (
                &[("data_batch_1.bin", &good), ("test_batch.bin", b"")],
                ["test_batch.bin`, length", "0 bytes is not 1 to 50000 records of 3073"],
            ),
            (&[("data_batch_1.bin", &wrong_label), ("test_batch.bin", &test)], ["label of record 4", "10 is not one of 0 to 9"]),
            (&[("data_batch_1.bin", &good[..9 * 3073]), ("test_batch.bin", &test)], ["9 training images", "at least 10"]),
        ];
        for (files, parts) in cases {
            refused(images::read(folder(files).path()), &parts);
        }
    }

    #[test]
    fn files_of_more_images_than_any_original_are_refused() {
        let error = |name: &str, stored: Vec<u8>| {
            let refused = append(&mut ImageSet::default(), StoredFile::from_bytes(name.into(), stored), &[LABEL]);
            refused.unwrap_err().to_string()
        };
        let plain = error("a", vec![0; 3073 * 50_001]);
        assert!(plain.contains("length: 153653073 bytes is not 1 to 50000 records"), "{plain}");
        let compressed = error("a.gz", gzip(&vec![0; 3073 * 50_001]));
        assert!(compressed.contains("holds more than 16000000 bytes once decompressed"), "{compressed}");
    }

    #[test]
    fn mutated_cut_and_random_files_are_refused_or_read_whole() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut accepted = 0;
        for round in 0..500 {
            let mut bytes = batch(3, 4);
            let at = rng.random_range(0..bytes.len());
            match round % 4 {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << rng.random_range(0..8),
                2 => bytes[at / 3073 * 3073] = rng.random(),
                _ => {
                    bytes.truncate(rng.random_range(0..4) * 3073);
                    rng.fill_bytes(&mut bytes);
                }
            }
            let compressed = rng.random_bool(0.5);
            let length = bytes.len();
            let mut stored = if compressed { gzip(&bytes) } else { bytes };
            if compressed && rng.random_bool(0.5) {
                let at = rng.random_range(0..stored.len());
                stored[at] = rng.random();
            }
            let mut set = ImageSet::default();
            if append(&mut set, StoredFile::from_bytes(if compressed { "a.gz" } else { "a" }.into(), stored), &[LABEL]).is_ok() {
                assert_eq!((set.len(), set.pixels.len()), (length / 3073, length / 3073 * 3072));
                assert!(set.labels.iter().all(|&label| label < 10));
                accepted += 1;
            }
        }
        assert!((50..400).contains(&accepted), "{accepted} accepted");
    }
}
