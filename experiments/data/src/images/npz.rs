//! The downsampled ImageNet of Chrabaszcz et al. (2017) in its `.npz` files.
//!
//! `train_data_batch_1.npz` and so on, as many of the ten as the folder has, and `val_data.npz`, which is the test set. A file is an archive whose `data.npy`
//! has a row of bytes for each image: its red values, row by row, then the green and the blue ones. The side of the square images follows from the length of a
//! row. The 1,000 classes are not kept: every label is 0. The last tenth of the training images, at most 10,000, is the dev set. The same data as pickled
//! Python objects, in files without `.npz`, are not read.

use std::io::{Cursor, Read};
use std::path::Path;

use zip::ZipArchive;

use super::stored::{StoredFile, combined_sha256};
use super::{ImageSet, Images, Listed};
use crate::bounded::{Budget, limit_in_memory};
use crate::{DataError, files, packed};

/// A file by whose name the format is known.
pub(super) const EXPECTED: &str = "train_data_batch_1.npz";

const TEST: &str = "val_data";
const TRAINING: &str = "train_data_batch_";
const EXTENSION: &str = ".npz";
const CHANNELS: usize = 3;
/// Most images of the dev set, and which part of the training images it is at most.
const DEV: usize = 10_000;
const DEV_PART: usize = 10;

/// Whether a file of this name (without `.gz`) belongs to the format, or to the same data as pickled objects.
pub(super) fn is_part(name: &str) -> bool {
    let stem = name.strip_suffix(EXTENSION).unwrap_or(name);
    stem == TEST || number(stem).is_some()
}

/// The number of a training file.
fn number(stem: &str) -> Option<usize> {
    stem.strip_prefix(TRAINING)?.parse().ok()
}

/// Reads a folder.
pub(super) fn read(dir: &Path, listed: &Listed) -> Result<Images, DataError> {
    if let Some((_, forms)) = listed.iter().find(|(name, _)| is_part(name) && !name.ends_with(EXTENSION)) {
        let remedy = "fetch the .npz files of the same data (Imagenet32_train_npz.zip, Imagenet32_val_npz.zip)".to_owned();
        return Err(DataError::NotRead { path: forms[0].clone(), what: "a pickled Python object", remedy });
    }
    let mut training: Vec<_> =
        listed.iter().filter_map(|(name, forms)| Some((number(name.strip_suffix(EXTENSION)?)?, name, forms))).collect();
    training.sort();
    if training.is_empty() {
        return Err(DataError::missing(dir, "the training images", EXPECTED));
    }
    let (mut read, mut side) = (Vec::new(), None);
    let mut train = ImageSet::default();
    for (_, name, forms) in training {
        if let Some(path) = files::only(forms.clone(), name)? {
            read.push(append(&mut train, StoredFile::read(&path, "training images")?, &mut side)?);
        }
    }
    let test_name = format!("{TEST}{EXTENSION}");
    let path = super::file(dir, listed, "the test images", &test_name, |name| name == test_name)?;
    let mut test = ImageSet::default();
    read.push(append(&mut test, StoredFile::read(&path, "test images")?, &mut side)?);
    if train.len() < DEV_PART {
        return Err(DataError::empty(dir, format!("{} training images", train.len()), format!("put at least {DEV_PART} there")));
    }
    let dev = train.split_off(train.len() - DEV.min(train.len() / DEV_PART));
    let (sha256, side) = (combined_sha256(&read), side.unwrap_or_default());
    let name = super::name_of(dir);
    Ok(Images { name, height: side, width: side, channels: CHANNELS, levels: 256, classes: 1, train, dev, test, sha256 })
}

/// Appends the images of a file, whose side is that of the files before.
fn append(set: &mut ImageSet, mut file: StoredFile, side: &mut Option<usize>) -> Result<StoredFile, DataError> {
    let bytes = file.content(u64::MAX - 1)?;
    let array = array(&file, &bytes)?;
    let (count, width, values) = rows(&file, &array)?;
    let own = (width / CHANNELS).isqrt();
    let expected = *side.get_or_insert(own);
    if own == 0 || own * own * CHANNELS != width || own != expected {
        let expected = if own == expected { "three times a square".to_owned() } else { format!("{}", expected * expected * CHANNELS) };
        return Err(file.wrong("length of a row", width, expected));
    }
    let plane = own * own;
    for image in values.chunks_exact(width) {
        set.pixels.extend((0..plane).flat_map(|pixel| (0..CHANNELS).map(move |channel| image[channel * plane + pixel])));
    }
    set.labels.resize(set.labels.len() + count, 0);
    Ok(file)
}

/// The file `data.npy` of an archive.
fn array(file: &StoredFile, bytes: &[u8]) -> Result<Vec<u8>, DataError> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|cause| file.wrong("archive", cause, "that of a .npz file"))?;
    let name = archive.file_names().find(|name| packed::plain_name(name).as_deref() == Some("data.npy")).unwrap_or("data.npy").to_owned();
    let entry = archive.by_name(&name).map_err(|cause| file.wrong("array `data`", cause, "in the archive"))?;
    let budget = Budget::new(limit_in_memory(bytes.len()));
    let mut array = Vec::new();
    budget.reader(entry).read_to_end(&mut array).map_err(|cause| match budget.is_exceeded() {
        true => DataError::TooLarge { path: file.path().to_path_buf(), limit: budget.limit(), remedy: "write it again with numpy.savez" },
        false => file.wrong("array `data`", cause, "complete"),
    })?;
    Ok(array)
}

/// Number and length of the rows of an array in NumPy's format, and its bytes.
fn rows<'a>(file: &StoredFile, array: &'a [u8]) -> Result<(usize, usize, &'a [u8]), DataError> {
    let wrong = |found: &str| file.wrong("array `data`", found, "a two-dimensional array of bytes (uint8) in the order of C");
    let (header, values) = header(array).ok_or_else(|| wrong("without a header of NumPy"))?;
    let field = |name: &str, end: char| Some(header.split_once(&format!("'{name}': "))?.1.split_once(end)?.0.trim());
    let shape = field("shape", ')').and_then(|shape| shape.strip_prefix('(')).unwrap_or_default();
    let sides: Option<Vec<usize>> = shape.split(',').map(|side| integer(side.trim())).collect();
    match (field("descr", ','), field("fortran_order", ','), sides.as_deref()) {
        (Some("'|u1'"), Some("False"), Some(&[count, width])) if count.checked_mul(width) == Some(values.len()) && width > 0 => {
            Ok((count, width, values))
        }
        _ => Err(wrong(&format!("{} of {} bytes", header.trim(), values.len()))),
    }
}

/// An integer of Python, which Python 2 may have written as a long one (`30L`).
fn integer(text: &str) -> Option<usize> {
    text.strip_suffix('L').unwrap_or(text).parse().ok()
}

/// The header of an array in NumPy's format, version 1 to 3, and what follows.
fn header(array: &[u8]) -> Option<(&str, &[u8])> {
    let rest = array.strip_prefix(b"\x93NUMPY")?;
    let (&[version, _], rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = if version == 1 {
        let (length, rest) = rest.split_first_chunk::<2>()?;
        (usize::from(u16::from_le_bytes(*length)), rest)
    } else {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        (u32::from_le_bytes(*length) as usize, rest)
    };
    let (header, values) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(header).ok()?, values))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;
    use crate::files::tests::folder;
    use crate::images;

    fn npz(name: &str, header: &str, values: &[u8]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        let length = (header.len() as u16).to_le_bytes();
        writer.write_all(&[b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), values].concat()).unwrap();
        writer.finish().unwrap().into_inner()
    }

    /// Images of two rows and columns whose red values begin with `first` and so on.
    fn batch(count: usize, first: u8) -> Vec<u8> {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, 12), }}\n");
        let values: Vec<u8> = (0..count as u8).flat_map(|n| (0..12).map(move |place| first + n + 20 * (place / 4) + place % 4)).collect();
        npz("data.npy", &header, &values)
    }

    #[test]
    fn planes_become_pixels_and_batches_follow_by_their_numbers() {
        let files = [("train_data_batch_10.npz", batch(4, 30)), ("train_data_batch_2.npz", batch(16, 0)), ("val_data.npz", batch(1, 100))];
        let files = files.each_ref().map(|(name, bytes)| (*name, bytes.as_slice()));
        let images = images::read(folder(&files).path()).unwrap();
        assert_eq!([images.height, images.width, images.channels, images.classes], [2, 2, 3, 1]);
        assert_eq!([images.train.len(), images.dev.len(), images.test.len()], [18, 2, 1]);
        assert_eq!(images.train.image(0), [0, 20, 40, 1, 21, 41, 2, 22, 42, 3, 23, 43]);
        assert_eq!((images.train.image(16)[0], images.test.image(0)[..3].to_vec()), (30, vec![100, 120, 140]));
    }

    #[test]
    fn a_header_of_python_2_is_that_of_python_3() {
        let of = |suffix: &str| {
            let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': (12{suffix}, 12{suffix}), }}\n");
            let bytes = npz("./data.npy", &header, &(0..144).collect::<Vec<u8>>());
            let images = images::read(folder(&[(EXPECTED, &bytes), ("val_data.npz", &bytes)]).path()).unwrap();
            (images.train.pixels, images.test.pixels)
        };
        assert_eq!(of("L"), of(""));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_file_and_remedy() {
        let good = batch(12, 0);
        let message = |files: &[(&str, &[u8])]| images::read(folder(files).path()).unwrap_err().to_string();
        let with = |bytes: &[u8]| message(&[(EXPECTED, &good), ("val_data.npz", bytes)]);
        let header =
            |descr: &str, order: &str, shape: &str| format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let array = |header: &str| npz("data.npy", header, &[0; 12]);
        for (message, parts) in [
            (
                message(&[("train_data_batch_1", b"\x80\x02"), ("val_data", b"")]),
                &["train_data_batch_1` is a pickled Python object", "npz"][..],
            ),
            (message(&[(EXPECTED, &good)]), &["the test images", "expected val_data.npz"]),
            (message(&[("val_data.npz", &good)]), &["the training images", "train_data_batch_1.npz"]),
            (message(&[(EXPECTED, &batch(9, 0)), ("val_data.npz", &good)]), &["9 training images", "at least 10"]),
            (with(b"PK"), &["val_data.npz`, archive"]),
            (with(&npz("labels.npy", "", &[])), &["val_data.npz`, array `data`"]),
            (with(&array(&header("<i8", "False", "(1, 12)"))), &["array `data`", "<i8", "uint8"]),
            (with(&array(&header("|u1", "True", "(1, 12)"))), &["True", "in the order of C"]),
            (with(&array(&header("|u1", "False", "(2, 12)"))), &["(2, 12)", "of 12 bytes"]),
            (with(&array(&header("|u1", "False", "(1LL, 12)"))), &["(1LL, 12)"]),
            (with(&array(&header("|u1", "False", "(12,)"))), &["(12,)", "two-dimensional"]),
            (with(&array(&header("|u1", "False", "(4, 3)"))), &["length of a row: 3 is not 12"]),
        ] {
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        let odd = npz("data.npy", &header("|u1", "False", "(2, 6)"), &[0; 12]);
        let odd = message(&[(EXPECTED, &odd), ("val_data.npz", &good)]);
        assert!(odd.contains("length of a row: 6 is not three times a square"), "{odd}");
    }
}
