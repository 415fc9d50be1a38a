//! Event files, which TensorBoard shows.
//!
//! A file is a sequence of records, each a length, its checksum, a message `Event` of `tensorboard/compat/proto/event.proto`, and the checksum of that. Only the
//! fields that scalars and texts need are written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

/// Readers that see it drop what an earlier file of the run has from the first step of a session on.
const VERSION: &str = "brain.Event:2";

/// The event file of one session of a run.
#[derive(Debug)]
pub(crate) struct EventFile(File);

impl EventFile {
    /// A new file in `folder`. A session that goes on after `step` steps leaves the files of those before it; one from the beginning deletes them.
    pub(super) fn begin(folder: &Path, step: u64) -> io::Result<Self> {
        if step == 0 {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(START)) {
                    fs::remove_file(path)?;
                }
            }
        }
        let name = format!("{START}{:.6}.{}", now(), std::process::id());
        let mut file = Self(OpenOptions::new().create_new(true).append(true).open(folder.join(name))?);
        file.write(0, &text_field(3, VERSION.as_bytes()))?;
        if step > 0 {
            // SessionLog with the status START.
            file.write(step + 1, &text_field(7, &number_field(1, 1)))?;
        }
        Ok(file)
    }

    /// Writes one file into `folder`, in place of earlier ones: constant values by their names, as horizontal lines up to `steps`.
    pub(crate) fn constants(folder: &Path, steps: u64, values: &[(&str, f64)]) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = Self::begin(folder, 0)?;
        file.scalars(0, values)?;
        file.scalars(steps, values)
    }

    /// Appends values of one step by their names.
    pub(super) fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> io::Result<()> {
        let value = |(name, value): &(&str, f64)| {
            let mut message = text_field(1, name.as_bytes());
            message.push(2 << 3 | 5);
            message.extend((*value as f32).to_le_bytes());
            text_field(1, &message)
        };
        let summary: Vec<u8> = values.iter().flat_map(value).collect();
        self.write(step, &text_field(5, &summary))
    }

    /// Appends a text by its name, in Markdown.
    pub(super) fn text(&mut self, name: &str, text: &str) -> io::Result<()> {
        // A tensor of the type DT_STRING with one element, for the plugin `text`.
        let tensor = [number_field(1, 7), text_field(2, &text_field(2, &number_field(1, 1))), text_field(8, text.as_bytes())].concat();
        let plugin = text_field(1, &text_field(1, b"text"));
        let value = [text_field(1, name.as_bytes()), text_field(8, &tensor), text_field(9, &plugin)].concat();
        self.write(0, &text_field(5, &text_field(1, &value)))
    }

    fn write(&mut self, step: u64, content: &[u8]) -> io::Result<()> {
        let mut event = vec![1 << 3 | 1];
        event.extend(now().to_le_bytes());
        event.extend(number_field(2, step));
        event.extend(content);
        let length = (event.len() as u64).to_le_bytes();
        let record = [&length[..], &masked_checksum(&length), &event, &masked_checksum(&event)].concat();
        self.0.write_all(&record)
    }
}

/// How names of event files begin.
const START: &str = "events.out.tfevents.";

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A field of whole numbers in protobuf's wire format.
fn number_field(field: u8, value: u64) -> Vec<u8> {
    [vec![field << 3], variable(value)].concat()
}

/// A field of bytes, a text or a message in protobuf's wire format.
fn text_field(field: u8, bytes: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], variable(bytes.len() as u64), bytes.to_vec()].concat()
}

/// Seven bits in each byte, the lowest first; the highest bit says that more follow.
fn variable(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 128 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn masked_checksum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(folder: &Path) -> Vec<Vec<Vec<u8>>> {
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|path| split(&fs::read(path).unwrap())).collect()
    }

    /// The messages of a file, whose checksums are right.
    fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_at(8);
            assert_eq!(rest[..4], masked_checksum(length));
            let count = u64::from_le_bytes(length.try_into().unwrap()) as usize;
            let (message, rest) = rest[4..].split_at(count);
            assert_eq!(rest[..4], masked_checksum(message));
            messages.push(message.to_vec());
            bytes = &rest[4..];
        }
        messages
    }

    #[test]
    fn a_file_has_records_with_checksums() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventFile::begin(folder.path(), 0).unwrap();
        file.scalars(300, &[("train/loss", 0.5), ("dev/BLEU", 31.5)]).unwrap();
        let [messages] = &records(folder.path())[..] else { panic!("one file") };
        // The time takes nine bytes.
        assert_eq!(messages[0][9..], [&[16, 0, 26, 13][..], b"brain.Event:2"].concat());
        let loss = [&[10, 17, 10, 10][..], b"train/loss", &[21], &0.5_f32.to_le_bytes()].concat();
        let score = [&[10, 15, 10, 8][..], b"dev/BLEU", &[21], &31.5_f32.to_le_bytes()].concat();
        assert_eq!(messages[1][9..], [&[16, 0xac, 2, 42, 36][..], &loss, &score].concat());
    }

    #[test]
    fn a_constant_is_a_line_of_two_points_and_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("trivial/5-gram");
        for value in [7.0, 2.0] {
            EventFile::constants(&place, 300, &[("dev/perplexity", value)]).unwrap();
        }
        let [messages] = &records(&place)[..] else { panic!("one file") };
        let value = [&[10, 21, 10, 14][..], b"dev/perplexity", &[21], &2.0_f32.to_le_bytes()].concat();
        assert_eq!(messages[1][9..], [&[16, 0, 42, 23][..], &value].concat());
        assert_eq!(messages[2][9..], [&[16, 0xac, 2, 42, 23][..], &value].concat());
    }

    #[test]
    fn a_checksum_is_that_of_the_format() {
        // Of 32 zeros, from RFC 3720, appendix B.4.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(masked_checksum(&[0; 32]), 0x8a91_36aa_u32.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes());
    }

    #[test]
    fn a_session_that_goes_on_has_a_file_of_its_own_and_one_from_the_beginning_deletes_them() {
        let folder = tempfile::tempdir().unwrap();
        EventFile::begin(folder.path(), 0).unwrap();
        EventFile::begin(folder.path(), 40).unwrap();
        let files = records(folder.path());
        assert_eq!(files.len(), 2);
        assert_eq!(files[1][1][9..], [16, 41, 58, 2, 8, 1], "its first step, and START");
        EventFile::begin(folder.path(), 0).unwrap();
        assert_eq!(records(folder.path()).len(), 1);
    }
}
