//! Text files as lines, plain or gzip, with the checksum of what was stored.
//!
//! A name that ends in `.gz` is decompressed, to a hundred times its size or 16 MB at most; the checksum is always that of the bytes as stored. A line ends with
//! LF or CRLF; the last one may lack its line end. A UTF-8 byte order mark at the start of the file is dropped. What macOS adds beside files (`._NAME`) is passed
//! over. Not covered: other encodings and other compressions.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use heedful_host::checksum::sha256_hex;
use sha2::{Digest, Sha256};

use super::{DataError, columns};
use crate::bounded::{Budget, limit_in_memory};

/// A text file that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Name inside its folder, with `.gz` where it has it.
    pub name: String,
    /// The lines without their line ends.
    pub lines: Vec<String>,
    /// SHA-256 of the bytes as stored, in lower-case hexadecimal.
    pub sha256: String,
}

impl TextFile {
    /// Reads the file at `path`; `looked_for` says in the error message what should have been there. The rows of a Parquet file become lines of JSON.
    ///
    /// # Errors
    /// [`DataError::NotFound`], [`DataError::Unreadable`], [`DataError::InvalidUtf8`]; for a `.gz` that is cut or damaged [`DataError::Gzip`], and for one
    /// that holds more than its size makes plausible [`DataError::TooLarge`]; for a damaged Parquet file [`DataError::Parquet`].
    pub fn read(path: &Path, looked_for: &str) -> Result<Self, DataError> {
        let stored = stored(path, looked_for)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(".parquet.gz") {
            let (what, remedy) = ("Parquet compressed as a whole", "decompress it: Parquet compresses its own columns".to_owned());
            return Err(DataError::NotRead { path: path.to_path_buf(), what, remedy });
        }
        if name.ends_with(".parquet") {
            let sha256 = sha256_hex(&stored);
            return Ok(Self { lines: columns::json_lines_of_parquet(path, stored)?, path: path.to_path_buf(), name, sha256 });
        }
        Self::from_bytes(path.to_path_buf(), name, &stored)
    }

    /// Reads a file called `name` from its stored bytes; errors name `path`.
    ///
    /// # Errors
    /// Those of [`TextFile::read`], except for file-system errors.
    pub fn from_bytes(path: PathBuf, name: String, stored: &[u8]) -> Result<Self, DataError> {
        let sha256 = sha256_hex(stored);
        let lines = if name.ends_with(".gz") { lines(&path, &decompress(&path, stored)?) } else { lines(&path, stored) }?;
        Ok(Self { lines, path, name, sha256 })
    }

    /// The error for the line with this index, whose `field` does not have the `expected` value.
    pub fn wrong(&self, index: usize, field: &str, value: &str, expected: &str) -> DataError {
        DataError::FieldValue {
            path: self.path.clone(),
            line: index + 1,
            field: field.into(),
            value: value.into(),
            expected: expected.into(),
        }
    }
}

/// The bytes of a file as stored; `looked_for` as in [`TextFile::read`].
///
/// # Errors
/// [`DataError::NotFound`] or [`DataError::Unreadable`].
pub(super) fn stored(path: &Path, looked_for: &str) -> Result<Vec<u8>, DataError> {
    fs::read(path).map_err(|cause| unread(path, looked_for, cause))
}

/// The error of a file or folder that the system does not read.
fn unread(path: &Path, looked_for: &str, cause: std::io::Error) -> DataError {
    match cause.kind() {
        ErrorKind::NotFound => DataError::NotFound { path: path.to_path_buf(), looked_for: looked_for.to_string() },
        _ => DataError::Unreadable { path: path.to_path_buf(), cause },
    }
}

/// Whether a file or folder of this name is one that macOS puts beside those of a data set.
pub(super) fn is_added_by_macos(name: &str) -> bool {
    name.starts_with("._") || name == "__MACOSX"
}

/// The SHA-256 of a data set: that of the sorted lines `<hex>  <file name>`, each with an LF, of its files.
pub fn combined_sha256<'a>(files: impl IntoIterator<Item = &'a TextFile>) -> String {
    combined(files.into_iter().map(|file| (&file.sha256, &file.name)))
}

/// The same of checksums and names.
pub(super) fn combined<'a>(files: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let mut entries: Vec<String> = files.map(|(sha256, name)| format!("{sha256}  {name}")).collect();
    entries.sort();
    entries.dedup();
    sha256_of_lines(entries)
}

/// The files of a folder by the name they have without `.gz`, each with every stored form, in name order.
pub type Listed = BTreeMap<String, Vec<PathBuf>>;

/// The files of a folder. Folders in it are left out.
///
/// # Errors
/// [`DataError::NotFound`] or [`DataError::Unreadable`] for the folder; `looked_for` as in [`TextFile::read`].
pub fn list(dir: &Path, looked_for: &str) -> Result<Listed, DataError> {
    let unreadable = |cause| DataError::Unreadable { path: dir.to_path_buf(), cause };
    let entries = fs::read_dir(dir).map_err(|cause| unread(dir, looked_for, cause))?;
    let mut files = Listed::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file()
            && let Some(name) = path.file_name().and_then(|name| name.to_str())
            && !is_added_by_macos(name)
        {
            files.entry(name.strip_suffix(".gz").unwrap_or(name).to_string()).or_default().push(path);
        }
    }
    for forms in files.values_mut() {
        forms.sort();
    }
    Ok(files)
}

/// Every form of the files whose names fit.
pub(super) fn fitting(listed: &Listed, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    listed.iter().filter(|(name, _)| fits(name)).flat_map(|(_, forms)| forms.clone()).collect()
}

/// The single file among `candidates`, or `None` if there is none.
///
/// # Errors
/// [`DataError::Ambiguous`] with the description `part` if there are several.
pub fn only(mut candidates: Vec<PathBuf>, part: &str) -> Result<Option<PathBuf>, DataError> {
    if candidates.len() > 1 {
        candidates.sort();
        return Err(DataError::Ambiguous { part: part.to_string(), files: candidates });
    }
    Ok(candidates.pop())
}

/// SHA-256 of generated lines, as if they stood in a file with LF line ends.
pub(super) fn sha256_of_lines(lines: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut digest = Sha256::new();
    for line in lines {
        digest.update(line.as_ref());
        digest.update(b"\n");
    }
    hex::encode(digest.finalize())
}

/// The text that `stored` is the compressed form of.
pub(super) fn decompress(path: &Path, stored: &[u8]) -> Result<Vec<u8>, DataError> {
    let damaged = |cause| DataError::Gzip { path: path.to_path_buf(), cause };
    let budget = Budget::new(limit_in_memory(stored.len()));
    let too_large =
        || DataError::TooLarge { path: path.to_path_buf(), limit: budget.limit(), remedy: "decompress it first and give the plain file" };
    // The decoder takes an empty stream for a complete one of zero members.
    if stored.is_empty() {
        return Err(damaged(std::io::Error::new(ErrorKind::UnexpectedEof, "the file is empty")));
    }
    let mut bytes = Vec::new();
    let read = budget.reader(MultiGzDecoder::new(stored)).read_to_end(&mut bytes);
    read.map_err(|cause| if budget.is_exceeded() { too_large() } else { damaged(cause) })?;
    // Lines become strings, of which an empty one takes more than the byte that ends it.
    let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
    if (bytes.len() + lines * size_of::<String>()) as u64 > budget.limit() {
        return Err(too_large());
    }
    Ok(bytes)
}

/// The text of a file with these bytes, without a byte order mark.
///
/// # Errors
/// [`DataError::InvalidUtf8`].
pub(super) fn text<'b>(path: &Path, bytes: &'b [u8]) -> Result<&'b str, DataError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let before = valid.iter().rev().take_while(|&&byte| byte != b'\n').count();
        DataError::InvalidUtf8 { path: path.to_path_buf(), line, byte: before + 1 }
    })
}

fn lines(path: &Path, bytes: &[u8]) -> Result<Vec<String>, DataError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let ended_lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
    let line = |(index, line): (usize, &[u8])| {
        let line = if index < ended_lines { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        match std::str::from_utf8(line) {
            Ok(line) => Ok(line.to_string()),
            Err(error) => Err(DataError::InvalidUtf8 { path: path.to_path_buf(), line: index + 1, byte: error.valid_up_to() + 1 }),
        }
    };
    body.split(|&byte| byte == b'\n').enumerate().map(line).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// A temporary folder with the given files; names in `.gz` are compressed.
    pub(crate) fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let stored = if name.ends_with(".gz") { gzip(content) } else { content.to_vec() };
            fs::write(path, stored).unwrap();
        }
        dir
    }

    /// Asserts that something is refused with a message that has these parts.
    #[track_caller]
    pub(crate) fn refused<T, E: std::error::Error>(result: Result<T, E>, parts: &[&str]) {
        let Err(error) = result else { panic!("it is accepted") };
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }

    pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// A tar archive of the given files, whose names stand in it as they are.
    pub(crate) fn tar<'f>(files: impl IntoIterator<Item = (impl AsRef<str>, &'f str)>) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let (mut header, name) = (tar::Header::new_gnu(), name.as_ref().as_bytes());
            header.as_old_mut().name[..name.len()].copy_from_slice(name);
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append(&header, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn read(content: &[u8]) -> Result<Vec<String>, DataError> {
        let dir = folder(&[("a.txt", content)]);
        TextFile::read(&dir.path().join("a.txt"), "a text").map(|file| file.lines)
    }

    #[test]
    fn plain_and_compressed_files_give_the_same_lines() {
        let content = "eins\nzwei drei\n\nvier ü".as_bytes();
        let dir = folder(&[("a.txt", content), ("b.txt.gz", content)]);
        let plain = TextFile::read(&dir.path().join("a.txt"), "a text").unwrap();
        let compressed = TextFile::read(&dir.path().join("b.txt.gz"), "a text").unwrap();
        assert_eq!(plain.lines, ["eins", "zwei drei", "", "vier ü"]);
        assert_eq!(plain.lines, compressed.lines);
        assert_ne!(plain.sha256, compressed.sha256, "the checksum is that of the stored bytes");
    }

    #[test]
    fn lf_and_crlf_end_a_line_and_a_lone_carriage_return_does_not() {
        assert_eq!(read(b"a\r\nb\nc\rd\r\n").unwrap(), ["a", "b", "c\rd"]);
        assert_eq!(read(b"a\n\n").unwrap(), ["a", ""]);
        assert_eq!(read(b"").unwrap(), [""; 0]);
        assert_eq!(read(b"\n").unwrap(), [""]);
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_start_only() {
        assert_eq!(read("\u{feff}a\n\u{feff}b\n".as_bytes()).unwrap(), ["a", "\u{feff}b"]);
    }

    #[test]
    fn several_gzip_members_are_one_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gz");
        fs::write(&path, [gzip(b"a\nb"), gzip(b"c\n")].concat()).unwrap();
        assert_eq!(TextFile::read(&path, "a text").unwrap().lines, ["a", "bc"]);
    }

    #[test]
    fn invalid_utf8_is_an_error_with_file_line_and_byte() {
        let error = read(b"good\nxy\xff\n").unwrap_err();
        assert!(matches!(error, DataError::InvalidUtf8 { line: 2, byte: 3, .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("a.txt`, line 2: byte 3") && message.contains("convert"), "{message}");
    }

    #[test]
    fn a_missing_file_error_names_the_file_and_what_was_looked_for() {
        refused(
            TextFile::read(Path::new("nowhere/train.en"), "the English training text"),
            &["nowhere/train.en", "the English training text"],
        );
        assert!(matches!(list(Path::new("nowhere"), "x"), Err(DataError::NotFound { .. })));
    }

    #[test]
    fn a_folder_in_place_of_a_file_is_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(TextFile::read(dir.path(), "a text"), Err(DataError::Unreadable { .. })));
    }

    #[test]
    fn a_gzip_file_cut_anywhere_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gz");
        let whole = gzip("a line of text\n".repeat(50).as_bytes());
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let result = TextFile::read(&path, "a text");
            assert!(matches!(result, Err(DataError::Gzip { .. })), "{length} of {} bytes were accepted", whole.len());
        }
        fs::write(&path, b"not compressed").unwrap();
        assert!(TextFile::read(&path, "a text").unwrap_err().to_string().contains("not a complete gzip file"));
    }

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let dir = folder(&[("b", b"abc"), ("a", b"")]);
        let b = TextFile::read(&dir.path().join("b"), "b").unwrap();
        let a = TextFile::read(&dir.path().join("a"), "a").unwrap();
        // From `printf abc | sha256sum` and `printf '' | sha256sum`; the combination from `sha256sum b a | sort | sha256sum`.
        assert_eq!(b.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(a.sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(combined_sha256([&b, &a]), "42199b7d8f3c16dee5184f3701720e18edc4464ded47d2f09c97c4e21125cd7f");
        assert_eq!(combined_sha256([&a, &b]), combined_sha256([&b, &a]));
    }
}
