//! Tar, as far as data sets use it: files, folders, and the long names of GNU and PAX.
//!
//! Headers are read one by one, because a reader that collects long names by itself takes as much memory as an archive asks for.

use std::io::{self, Read};

use tar::{Archive, EntryType};

use super::{ArchiveError, Kind, Unpacking};

/// The longest header that only says something about the next entry.
const LONGEST_EXTENSION: u64 = 1 << 16;

impl Unpacking<'_> {
    pub(super) fn tar(&mut self, decoded: &mut dyn Read) -> Result<(), ArchiveError> {
        {
            let mut archive = Archive::new(&mut *decoded);
            let mut long_name: Option<Vec<u8>> = None;
            for entry in archive.entries().map_err(|error| self.stopped(&error))?.raw(true) {
                let mut entry = entry.map_err(|error| self.stopped(&error))?;
                let size = entry.header().entry_size().map_err(|error| self.stopped(&error))?;
                let own_name = entry.path_bytes().into_owned();
                let shown = String::from_utf8_lossy(long_name.as_ref().unwrap_or(&own_name)).into_owned();
                let kind = match entry.header().entry_type() {
                    EntryType::XGlobalHeader => continue,
                    EntryType::GNULongName => {
                        long_name = Some(until_nul(self.extension(&shown, size, &mut entry)?));
                        continue;
                    }
                    EntryType::XHeader => {
                        let extension = self.extension(&shown, size, &mut entry)?;
                        long_name = self.pax_name(&shown, &extension)?.or(long_name);
                        continue;
                    }
                    // The long name of a link's target, which the link is refused for.
                    EntryType::GNULongLink => continue,
                    EntryType::Directory => Kind::Folder,
                    EntryType::Regular | EntryType::Continuous if shown.ends_with('/') => Kind::Folder,
                    EntryType::Regular | EntryType::Continuous => Kind::File,
                    EntryType::Symlink => Kind::Other("a symbolic link"),
                    EntryType::Link => Kind::Other("a hard link"),
                    EntryType::GNUSparse => Kind::Other("a sparse file"),
                    _ => Kind::Other("a device"),
                };
                let name = long_name.take().unwrap_or(own_name);
                let name = String::from_utf8(name).map_err(|_| self.packed.refused(&shown, "its name is not UTF-8".to_string()))?;
                self.entry(&name, kind, size, &mut entry)?;
            }
        }
        // The rest holds the checksum of the compressed stream.
        io::copy(decoded, &mut io::sink()).map_err(|error| self.stopped(&error))?;
        Ok(())
    }

    fn extension(&self, name: &str, size: u64, entry: &mut dyn Read) -> Result<Vec<u8>, ArchiveError> {
        if size > LONGEST_EXTENSION {
            return Err(self.packed.refused(name, format!("its name is given in more than {LONGEST_EXTENSION} bytes")));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(|error| self.stopped(&error))?;
        Ok(bytes)
    }

    fn pax_name(&self, name: &str, extension: &[u8]) -> Result<Option<Vec<u8>>, ArchiveError> {
        let mut path = None;
        let mut rest = extension;
        while !rest.is_empty() && rest[0] != 0 {
            let (key, value, after) = pax_record(rest).ok_or_else(|| self.packed.damaged("a PAX header is malformed".to_string()))?;
            match key {
                b"path" => path = Some(value.to_vec()),
                // Both would make the header that follows say something else about where the next one begins.
                b"size" => return Err(self.packed.refused(name, "its size is given apart from its header".to_string())),
                key if key.starts_with(b"GNU.sparse") => return Err(self.packed.refused(name, "it is a sparse file".to_string())),
                _ => {}
            }
            rest = after;
        }
        Ok(path)
    }
}

/// Key and value of the record `LENGTH KEY=VALUE\n` that bytes begin with, and what follows it. The length is that of the whole record.
fn pax_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().position(|&byte| byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &bytes[length..]))
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
