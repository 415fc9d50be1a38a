//! What comes out of an archive lies in its folder, and is no more than it should be.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use heedful_data::catalogue::Unpack;
use heedful_data::catalogue::archive::{ArchiveError, Packed, Unpacked, default_limit, unpack};
use heedful_host::checksum::sha256_hex;
use heedful_host::interrupt::Interrupt;
use indicatif::ProgressBar;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tar::{EntryType, Header};
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A folder with an archive in it, and an empty folder to unpack into.
struct Place {
    folder: TempDir,
    archive: PathBuf,
    kind: Unpack,
}

impl Place {
    fn new(kind: Unpack, bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = match kind {
            Unpack::Zip => "a.zip",
            Unpack::TarGz => "a.tar.gz",
            Unpack::Gz => "a.txt.gz",
        };
        let archive = folder.path().join(name);
        fs::write(&archive, bytes).unwrap();
        fs::create_dir(folder.path().join("into")).unwrap();
        Self { folder, archive, kind }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("into")
    }

    fn packed<'a>(&'a self, rename: &'a BTreeMap<String, String>) -> Packed<'a> {
        Packed { path: &self.archive, kind: self.kind, only: None, flatten: false, rename, limit: Some(10_000_000) }
    }

    fn unpack(&self) -> Result<Vec<Unpacked>, ArchiveError> {
        self.unpack_as(self.packed(&BTreeMap::new()))
    }

    fn unpack_as(&self, packed: Packed<'_>) -> Result<Vec<Unpacked>, ArchiveError> {
        unpack(&packed, &self.target(), &Interrupt::new(), &ProgressBar::hidden())
    }

    /// All files of the place but the archive, with their content.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        collect(self.folder.path(), self.folder.path(), &mut files);
        files.retain(|(name, _)| !name.starts_with("a."));
        files.sort();
        files
    }
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            files.push((name, fs::read(&path).unwrap_or_default()));
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        if name.ends_with('/') {
            writer.add_directory(*name, SimpleFileOptions::default()).unwrap();
        } else {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}

/// An entry of a tar archive: kind, name, target of a link, content.
type TarEntry<'a> = (EntryType, &'a str, &'a str, &'a [u8]);

/// A compressed tar archive with names that `tar` itself would not write.
fn tar(entries: &[TarEntry<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, name, target, content) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o777);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    gzip(&bytes)
}

fn file<'a>(name: &'a str, content: &'a [u8]) -> TarEntry<'a> {
    (EntryType::Regular, name, "", content)
}

/// Asserts that an archive is refused with its name and the parts, and that nothing lies outside its folder.
#[track_caller]
fn refused(kind: Unpack, bytes: &[u8], parts: &[&str]) {
    let place = Place::new(kind, bytes);
    let message = place.unpack().unwrap_err().to_string();
    for part in parts.iter().copied().chain([place.archive.to_str().unwrap()]) {
        assert!(message.contains(part), "`{part}` is missing in: {message}");
    }
    assert!(place.files().iter().all(|(name, _)| name.starts_with("into/")), "{:?}", place.files());
}

#[test]
fn files_come_out_with_their_folders_sizes_and_checksums() {
    let zipped = zip(&[("data/", b""), ("data/a.txt", b"one"), ("./data/inner/b.txt", b"two")]);
    let tarred = tar(&[(EntryType::Directory, "data/", "", b""), file("data/a.txt", b"one"), file("./data/inner/b.txt", b"two")]);
    for (kind, bytes) in [(Unpack::Zip, zipped), (Unpack::TarGz, tarred)] {
        let place = Place::new(kind, &bytes);
        let unpacked = place.unpack().unwrap();
        let expected = [("data/a.txt", "one"), ("data/inner/b.txt", "two")];
        let expected = expected.map(|(path, text)| Unpacked { path: path.into(), bytes: 3, sha256: sha256_hex(text.as_bytes()) });
        assert_eq!(unpacked, expected);
        assert_eq!(place.files(), [("into/data/a.txt".into(), b"one".to_vec()), ("into/data/inner/b.txt".into(), b"two".to_vec())]);
    }
    let place = Place::new(Unpack::Gz, &gzip(b"text"));
    place.unpack().unwrap();
    assert_eq!(place.files(), [("into/a.txt".into(), b"text".to_vec())]);
}

#[test]
fn entries_are_chosen_flattened_and_renamed() {
    let place = Place::new(Unpack::Zip, &zip(&[("x/one/a.txt", b"1"), ("x/two/b.txt", b"2"), ("x/two/c.txt", b"3")]));
    let rename = BTreeMap::from([("x/two/c.txt".to_string(), "d.txt".to_string())]);
    place.unpack_as(Packed { only: Some("/two/"), flatten: true, ..place.packed(&rename) }).unwrap();
    assert_eq!(place.files(), [("into/b.txt".into(), b"2".to_vec()), ("into/d.txt".into(), b"3".to_vec())]);
    let place = Place::new(Unpack::Zip, &zip(&[("x/a.txt", b"1")]));
    let message = place.unpack_as(Packed { only: Some("/two/"), ..place.packed(&BTreeMap::new()) }).unwrap_err().to_string();
    assert!(message.contains("/two/"), "{message}");
}

#[test]
fn a_backslash_divides_folders_as_windows_means_it() {
    let place = Place::new(Unpack::Zip, &zip(&[("data\\inner\\a.txt", b"1")]));
    place.unpack().unwrap();
    assert_eq!(place.files(), [("into/data/inner/a.txt".into(), b"1".to_vec())]);
}

#[test]
fn an_entry_whose_path_leads_out_is_refused() {
    for name in ["../evil", "a/../../evil", "a/..", "..\\evil", "/evil", "\\evil", "C:\\evil", "c:evil", "//host/evil"] {
        let shown = name.escape_debug().to_string();
        refused(Unpack::Zip, &zip(&[("good", b"1"), (name, b"2")]), &[&shown]);
        refused(Unpack::TarGz, &tar(&[file("good", b"1"), file(name, b"2")]), &[&shown]);
    }
}

#[test]
fn a_link_is_refused_before_anything_is_written_through_it() {
    for target in ["..", "/tmp", "inside"] {
        refused(Unpack::TarGz, &tar(&[(EntryType::Symlink, "link", target, b""), file("link/evil", b"2")]), &["`link`", "symbolic link"]);
        refused(Unpack::TarGz, &tar(&[(EntryType::Link, "link", target, b""), file("link", b"2")]), &["`link`", "hard link"]);
    }
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.add_symlink("link", "..", SimpleFileOptions::default()).unwrap();
    writer.start_file("link/evil", SimpleFileOptions::default()).unwrap();
    refused(Unpack::Zip, &writer.finish().unwrap().into_inner(), &["`link`", "symbolic link"]);
}

#[test]
fn devices_and_pipes_are_refused() {
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        refused(Unpack::TarGz, &tar(&[(kind, "node", "", b"")]), &["`node`", "device"]);
    }
    refused(Unpack::TarGz, &tar(&[(EntryType::GNUSparse, "holes", "", b"")]), &["`holes`", "sparse"]);
}

#[test]
fn a_name_that_stands_twice_is_refused() {
    for second in ["a", "./a", "a/b", "x\\..\\a"] {
        refused(Unpack::TarGz, &tar(&[file("a", b"1"), file(second, b"2")]), &[&second.escape_debug().to_string()]);
    }
    let place = Place::new(Unpack::Zip, &zip(&[("x/a", b"1"), ("y/a", b"2")]));
    let message = place.unpack_as(Packed { flatten: true, ..place.packed(&BTreeMap::new()) }).unwrap_err().to_string();
    assert!(message.contains("`y/a`") && message.contains("twice"), "{message}");
}

#[test]
fn a_bomb_is_stopped_at_the_limit() {
    let zeros = vec![0; 5_000_000];
    let bombs = [(Unpack::Zip, zip(&[("zeros", &zeros)])), (Unpack::TarGz, tar(&[file("zeros", &zeros)])), (Unpack::Gz, gzip(&zeros))];
    for (kind, bytes) in bombs {
        let place = Place::new(kind, &bytes);
        let error = place.unpack_as(Packed { limit: Some(1_000_000), ..place.packed(&BTreeMap::new()) }).unwrap_err();
        assert!(matches!(error, ArchiveError::TooLarge { limit: 1_000_000, .. }), "{error}");
        assert!(place.files().iter().all(|(_, content)| content.len() <= 1_000_000), "written beyond the limit");
        assert_eq!(Place::new(kind, &bytes).unpack().unwrap()[0].bytes, 5_000_000, "another limit lets it pass");
    }
    // Many entries count together, and so do those that are not wanted.
    let many: Vec<TarEntry<'_>> = ["a", "b", "c"].iter().map(|name| file(name, &zeros[..500_000])).collect();
    let place = Place::new(Unpack::TarGz, &tar(&many));
    let rename = BTreeMap::new();
    let packed = Packed { limit: Some(1_000_000), only: Some("c"), ..place.packed(&rename) };
    assert!(matches!(place.unpack_as(packed), Err(ArchiveError::TooLarge { .. })));
}

#[test]
fn the_limit_follows_the_size_of_the_archive() {
    assert_eq!(default_limit(1000), 100_000_000);
    assert_eq!(default_limit(10_000_000), 1_000_000_000);
    assert_eq!(default_limit(u64::MAX), 32_000_000_000);
}

#[test]
fn long_names_are_read_and_judged_like_short_ones() {
    let long = format!("{}/a.txt", "folder/".repeat(30).trim_end_matches('/'));
    let gnu = |name: &str| tar(&[(EntryType::GNULongName, "././@LongLink", "", format!("{name}\0").as_bytes()), file("cut", b"1")]);
    let record = |key: &str, value: &str| {
        let body = format!(" {key}={value}\n");
        let length = (body.len()..).find(|length| length.to_string().len() + body.len() == *length).unwrap();
        format!("{length}{body}")
    };
    let pax = |text: String| tar(&[(EntryType::XHeader, "PaxHeader", "", text.as_bytes()), file("cut", b"1")]);
    for bytes in [gnu(&long), pax(record("comment", "two\nlines") + &record("path", &long))] {
        let place = Place::new(Unpack::TarGz, &bytes);
        assert_eq!(place.unpack().unwrap()[0].path, long);
    }
    refused(Unpack::TarGz, &gnu("../evil"), &["../evil"]);
    refused(Unpack::TarGz, &pax(record("path", "../evil")), &["../evil"]);
    refused(Unpack::TarGz, &pax(record("size", "7")), &["size"]);
    refused(Unpack::TarGz, &pax("path=a".to_string()), &["PAX"]);
    refused(Unpack::TarGz, &gnu(&"a".repeat(100_000)), &["65536"]);
}

#[cfg(unix)]
#[test]
fn rights_are_not_taken_from_an_archive() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(Unpack::TarGz, &tar(&[file("tool", b"#!/bin/sh")]));
    place.unpack().unwrap();
    fs::write(place.folder.path().join("ordinary"), "").unwrap();
    let mode = |name: &str| fs::metadata(place.folder.path().join(name)).unwrap().permissions().mode();
    assert_eq!(mode("into/tool"), mode("ordinary"));
}

#[test]
fn a_wish_to_stop_ends_unpacking() {
    let place = Place::new(Unpack::TarGz, &tar(&[file("a", b"1")]));
    let interrupt = Interrupt::new();
    interrupt.raise();
    let error = unpack(&place.packed(&BTreeMap::new()), &place.target(), &interrupt, &ProgressBar::hidden()).unwrap_err();
    assert!(matches!(error, ArchiveError::Interrupted { .. }), "{error}");
}

#[test]
fn what_is_cut_short_is_damaged() {
    let whole = crate::server::content(3000);
    let archives = [(Unpack::Zip, zip(&[("a", &whole)])), (Unpack::TarGz, tar(&[file("a", &whole)])), (Unpack::Gz, gzip(&whole))];
    for (kind, bytes) in archives {
        for keep in [0, 1, 10, bytes.len() / 2, bytes.len() - 1] {
            refused(kind, &bytes[..keep], &["fetch it again"]);
        }
    }
    // The compression is whole, what it holds is not.
    let mut inner = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(tar(&[file("a", &whole)]).as_slice()), &mut inner).unwrap();
    refused(Unpack::TarGz, &gzip(&inner[..2000]), &["`a` has 1488 bytes instead of 3000"]);
}

#[test]
fn no_change_of_a_byte_makes_an_archive_write_outside_or_panic() {
    let whole = crate::server::content(600);
    let archives = [
        (Unpack::Zip, zip(&[("dir/a", &whole), ("dir/b", b"text text text text")])),
        (
            Unpack::TarGz,
            tar(&[(EntryType::GNULongName, "././@LongLink", "", b"dir/long\0"), file("dir/a", &whole), file("dir/b", b"text")]),
        ),
    ];
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut refused, mut changed_tar) = (0, 0);
    for (kind, bytes) in archives {
        for _ in 0..150 {
            let mut bytes = bytes.clone();
            if kind == Unpack::TarGz {
                // Inside the compression, where changes reach the headers.
                let mut inner = Vec::new();
                std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut inner).unwrap();
                let place = random.random_range(0..inner.len());
                inner[place] = random.random();
                bytes = gzip(&inner);
                changed_tar += 1;
            } else {
                let place = random.random_range(0..bytes.len());
                bytes[place] = random.random();
            }
            let place = Place::new(kind, &bytes);
            refused += usize::from(place.unpack().is_err());
            assert!(place.files().iter().all(|(name, _)| name.starts_with("into/")));
        }
    }
    assert!(refused > 50 && changed_tar == 150, "the changes are felt: {refused}");
}
