//! Files of tar archives, plain or compressed by gzip, read without unpacking them to the disk.
//!
//! All readers normalise names alike: `./` and similar parts are dropped, and the files that macOS adds (`._NAME`, `__MACOSX`) are skipped. Readers match the
//! end of a name, so that outer folders do not matter.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use super::{DataError, files};
use crate::bounded::{Budget, limit_in_memory};

/// What to do about an archive that is refused.
const REMEDY: &str = "unpack it and give the folder";

/// The files of an archive that `place` gives a place to by their names, with these names, in the archive's order. `stored` are the bytes of the archive, for
/// which errors name `path`.
///
/// # Errors
/// [`DataError::Gzip`] for an archive that is cut or damaged, [`DataError::TooLarge`] for one that holds more than its size makes plausible, and
/// [`DataError::ArchiveEntry`] for an entry that has a place and is not an ordinary file: of a sparse one a few bytes can claim any length.
pub(super) fn files<P>(path: &Path, stored: &[u8], place: impl Fn(&str) -> Option<P>) -> Result<Vec<(P, String, Vec<u8>)>, DataError> {
    let budget = Budget::new(limit_in_memory(stored.len()));
    let stopped = |cause| match budget.is_exceeded() {
        true => DataError::TooLarge { path: path.to_path_buf(), limit: budget.limit(), remedy: REMEDY },
        false => DataError::Gzip { path: path.to_path_buf(), cause },
    };
    let is_compressed = stored.starts_with(&[0x1f, 0x8b]) || path.extension().is_some_and(|extension| extension == "gz");
    let decoded: Box<dyn Read> = if is_compressed { Box::new(MultiGzDecoder::new(stored)) } else { Box::new(stored) };
    let mut archive = Archive::new(budget.reader(decoded));
    let mut found = Vec::new();
    for entry in archive.entries().map_err(stopped)? {
        let mut entry = entry.map_err(stopped)?;
        let Some(name) = plain_name(&entry.path().map_err(stopped)?.to_string_lossy()) else { continue };
        let Some(place) = place(&name) else { continue };
        let kind = entry.header().entry_type();
        let what = match kind {
            EntryType::GNUSparse => Some("a sparse file"),
            EntryType::Regular | EntryType::Continuous if is_sparse(&mut entry).map_err(stopped)? => Some("a sparse file"),
            EntryType::Regular | EntryType::Continuous => None,
            _ => Some("no ordinary file"),
        };
        if let Some(what) = what {
            return Err(DataError::ArchiveEntry { path: path.to_path_buf(), entry: name.escape_debug().to_string(), what, remedy: REMEDY });
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(stopped)?;
        if bytes.len() as u64 != entry.size() {
            return Err(stopped(ErrorKind::UnexpectedEof.into()));
        }
        found.push((place, name, bytes));
    }
    Ok(found)
}

/// A name without the parts that say nothing; `None` for what no reader reads.
pub(super) fn plain_name(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let is_read = !parts.is_empty() && parts.iter().all(|part| !files::is_added_by_macos(part));
    is_read.then(|| parts.join("/"))
}

/// Whether PAX headers say that what follows is a map of holes and then the rest of a file.
fn is_sparse<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<bool> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(false) };
    let keys = extensions.map(|extension| Ok(extension?.key_bytes().starts_with(b"GNU.sparse")));
    Ok(keys.collect::<io::Result<Vec<bool>>>()?.contains(&true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_neither_points_nor_what_macos_adds() {
        for (name, plain) in [
            ("./a/b.txt", Some("a/b.txt")),
            ("a//./b.txt", Some("a/b.txt")),
            ("/a/b.txt", Some("a/b.txt")),
            ("a/../b.txt", Some("a/../b.txt")),
            ("./a/._b.txt", None),
            ("__MACOSX/a/b.txt", None),
            ("./", None),
        ] {
            assert_eq!(plain_name(name).as_deref(), plain, "{name}");
        }
    }
}
