//! The IMDB reviews of Maas et al. 2011 (`aclImdb_v1.tar.gz`), unpacked or packed.
//!
//! Each review is a file `{train,test}/{neg,pos}/ID_RATING.txt`; they are taken class by class in the order of their ids, in a folder as in an archive, so
//! that both give the same data. The unlabelled reviews and other files are passed over. `<br />` marks are kept. An archive is read without unpacking it to
//! the disk.

use std::fs;
use std::path::Path;

use super::{LabelledText, Parts};
use crate::files::{self, TextFile};
use crate::{DataError, packed};

const SPLITS: [&str; 2] = ["train", "test"];
const CLASSES: [&str; 2] = ["neg", "pos"];

/// Where a review belongs: split, class, id. The derived order is that of the data.
type Place = (usize, usize, u64);

/// Reads the folder `root` that has `train` and `test`.
pub(super) fn from_folder(root: &Path) -> Result<Parts, DataError> {
    let mut reviews = Vec::new();
    for split in SPLITS {
        for class in CLASSES {
            let dir = root.join(split).join(class);
            for (name, forms) in files::list(&dir, "a folder of reviews (ID_RATING.txt)")? {
                let name = format!("{split}/{class}/{name}");
                let Some(place) = place(&name) else { continue };
                if let Some(path) = files::only(forms, "the same review")? {
                    let file = TextFile::read(&path, "a review")?;
                    reviews.push((place, TextFile { name, ..file }));
                }
            }
        }
    }
    parts(reviews, root)
}

/// Reads the archive at `path`, `.tar` or compressed.
pub(super) fn from_archive(path: &Path) -> Result<Parts, DataError> {
    let stored = fs::read(path).map_err(|cause| DataError::Unreadable { path: path.to_path_buf(), cause })?;
    parts(packed_reviews(path, &stored)?, path)
}

fn packed_reviews(path: &Path, stored: &[u8]) -> Result<Vec<(Place, TextFile)>, DataError> {
    let review = |(place, name, bytes): (Place, String, Vec<u8>)| {
        let (_, file_name) = name.rsplit_once('/').unwrap_or(("", &name));
        let inner_name = format!("{}/{}/{file_name}", SPLITS[place.0], CLASSES[place.1]);
        Ok((place, TextFile::from_bytes(path.join(&name), inner_name, &bytes)?))
    };
    packed::files(path, stored, place)?.into_iter().map(review).collect()
}

/// Where the file of this name belongs, if it is a labelled review.
fn place(name: &str) -> Option<Place> {
    let mut parts = name.rsplit('/');
    let (file, class, split) = (parts.next()?, parts.next()?, parts.next()?);
    let (id, rating) = file.strip_suffix(".txt")?.split_once('_')?;
    rating.parse::<u8>().ok()?;
    let index = |names: [&str; 2], name: &str| names.iter().position(|other| *other == name);
    Some((index(SPLITS, split)?, index(CLASSES, class)?, id.parse().ok()?))
}

fn parts(mut reviews: Vec<(Place, TextFile)>, place: &Path) -> Result<Parts, DataError> {
    reviews.sort_by_key(|(place, _)| *place);
    if let Some(two) = reviews.windows(2).find(|two| two[0].0 == two[1].0) {
        let files = two.iter().map(|(_, file)| file.path.clone()).collect();
        return Err(DataError::Ambiguous { part: "one review".to_owned(), files });
    }
    let sha256 = files::combined_sha256(reviews.iter().map(|(_, file)| file));
    let mut texts = [Vec::new(), Vec::new()];
    for ((split, class, _), file) in reviews {
        let text = file.lines.join("\n").trim().to_owned();
        if text.is_empty() {
            return Err(file.wrong(0, "text", "", "a review"));
        }
        texts[split].push(LabelledText { text, class });
    }
    let [train, test] = texts;
    let source = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Parts { name: "IMDB".to_owned(), classes: CLASSES.map(str::to_owned).to_vec(), train, dev: None, test: Some(test), source, sha256 })
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;
    use rand::RngExt;

    use super::super::LabelledTexts;
    use super::super::tests::{message, read};
    use super::*;
    use crate::files::tests::{folder, gzip, refused};
    use crate::text_pairs::tests::damaged;

    fn entries() -> Vec<(String, String)> {
        let mut entries = vec![("README".to_owned(), "about".to_owned()), ("train/unsup/0_0.txt".to_owned(), "no class".to_owned())];
        for id in (0..12).rev() {
            entries.push((format!("train/pos/{id}_9.txt"), format!("good {id}<br /><br />as gold")));
            entries.push((format!("train/neg/{id}_2.txt"), format!("bad {id}\n")));
            entries.push((format!("test/neg/{id}_1.txt"), format!("worse {id}")));
        }
        entries.push(("test/pos/0_10.txt".to_owned(), "bad 3".to_owned()));
        entries
    }

    fn tar(entries: &[(String, String)]) -> Vec<u8> {
        files::tests::tar(entries.iter().map(|(name, text)| (format!("aclImdb/{name}"), text.as_str())))
    }

    #[test]
    fn folders_and_archives_hold_the_same_in_the_order_of_classes_and_ids() {
        let archive = read(&[("aclImdb_v1.tar.gz", &tar(&entries()))]).unwrap();
        assert_eq!((archive.name.as_str(), archive.classes.join(" ")), ("IMDB", "neg pos".to_owned()));
        assert_eq!([archive.train.len(), archive.dev.len(), archive.test.len()], [22, 2, 13]);
        assert_eq!(archive.test[2], LabelledText { text: "worse 2".into(), class: 0 });
        assert_eq!(archive.test[12], LabelledText { text: "bad 3".into(), class: 1 });
        assert!(archive.train.iter().any(|text| text.text == "good 11<br /><br />as gold" && text.class == 1));
        assert!(archive.split.contains("aclImdb_v1.tar.gz; 1 training texts"), "{}", archive.split);

        let entries = entries();
        for prefix in ["aclImdb/", ""] {
            let named: Vec<(String, &[u8])> = entries.iter().map(|(name, text)| (format!("{prefix}{name}"), text.as_bytes())).collect();
            let files: Vec<(&str, &[u8])> = named.iter().map(|(name, text)| (name.as_str(), *text)).collect();
            let unpacked = read(&files).unwrap();
            assert_eq!((&unpacked.train, &unpacked.dev, &unpacked.test), (&archive.train, &archive.dev, &archive.test));
            assert_eq!(unpacked.sha256, archive.sha256);
        }
        let dir = folder(&[("reviews.tar", &tar(&entries))]);
        let direct = LabelledTexts::read(&dir.path().join("reviews.tar"), &RandomKey::from_seed(1)).unwrap();
        assert_eq!(direct.train, archive.train, "the archive itself is as good as its folder");
    }

    #[test]
    fn a_review_that_is_empty_or_there_twice_is_refused_by_name() {
        let mut twice = entries();
        twice.push(("train/pos/3_8.txt".to_owned(), "again".to_owned()));
        let error = message(&[("a.tar.gz", &tar(&twice))]);
        assert!(error.contains("train/pos/3_9.txt`") && error.contains("train/pos/3_8.txt`"), "{error}");
        let mut empty = entries();
        empty[5].1 = " \n".to_owned();
        let error = message(&[("a.tar", &tar(&empty))]);
        assert!(error.contains(&empty[5].0) && error.contains("not a review"), "{error}");
    }

    #[test]
    fn an_archive_cut_inside_a_review_is_refused() {
        let whole = tar(&entries());
        // The last entry is the last 512 bytes of content before the two empty blocks at the end.
        let cut = &whole[..whole.len() - 1_024 - 510];
        for (name, bytes) in [("a.tar", cut.to_vec()), ("a.tar.gz", cut.to_vec())] {
            let error = message(&[(name, &bytes)]);
            assert!(error.contains("complete"), "{error}");
        }
        let packed = gzip(&whole);
        let dir = folder(&[("a.tgz", &packed[..packed.len() / 2])]);
        assert!(matches!(LabelledTexts::read(dir.path(), &RandomKey::from_seed(1)), Err(DataError::Gzip { .. })));
    }

    #[test]
    fn a_sparse_file_that_claims_a_huge_length_takes_no_memory() {
        let mut header = tar::Header::new_gnu();
        header.set_path("aclImdb/train/pos/7_7.txt").unwrap();
        header.set_entry_type(tar::EntryType::GNUSparse);
        header.set_size(0);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.set_real_size(1 << 62);
        gnu.sparse[0].offset = *b"\x80\0\0\0\x40\0\0\0\0\0\0\0";
        gnu.sparse[0].numbytes = [b'0'; 12];
        header.set_cksum();
        let bytes = [header.as_bytes().as_slice(), &[0; 1_024]].concat();
        refused(packed_reviews(Path::new("a.tar"), &bytes), &["aclImdb/train/pos/7_7.txt`: it is a sparse file", "unpack it"]);
    }

    #[test]
    fn damaged_archives_are_read_within_bounds_or_refused() {
        let mut rng = RandomKey::from_seed(1).named("fuzz").rng();
        let original = tar(&entries());
        let compressed = gzip(&original);
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..2_000 {
            let (bytes, largest) = match rng.random_range(0..3) {
                0 => (damaged(&mut rng, &compressed), 2 * original.len()),
                _ => {
                    let bytes = damaged(&mut rng, &original);
                    let length = bytes.len();
                    (bytes, length)
                }
            };
            match packed_reviews(Path::new("a.tar"), &bytes).and_then(|reviews| parts(reviews, Path::new("a.tar"))) {
                Ok(parts) => {
                    accepted += 1;
                    let length: usize = parts.train.iter().chain(parts.test.iter().flatten()).map(|text| text.text.len()).sum();
                    assert!(length <= largest, "{length} bytes from {}", bytes.len());
                }
                Err(_) => refused += 1,
            }
        }
        assert!(accepted > 50 && refused > 100, "{accepted} accepted, {refused} refused");
    }
}
