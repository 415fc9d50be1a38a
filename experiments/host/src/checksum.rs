//! Checksums.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Bytes of a file that are read at once.
const PIECE: usize = 1 << 20;

/// The SHA-256 checksum of `bytes` as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The SHA-256 checksum of a file, which is read piece by piece, in the same form.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_of_file(path: &Path) -> io::Result<String> {
    let (mut file, mut digest) = (File::open(path)?, Sha256::new());
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex::encode(digest.finalize())),
            count => digest.update(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_equals_the_published_test_vector() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_file_of_several_pieces_has_the_checksum_of_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = (folder.path().join("file"), (0..PIECE + 3).map(|index| (index % 251) as u8).collect::<Vec<_>>());
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(sha256_of_file(&path).unwrap(), sha256_hex(&bytes));
        assert!(sha256_of_file(&folder.path().join("other")).is_err());
    }
}
