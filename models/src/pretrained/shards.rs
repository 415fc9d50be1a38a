//! Tensors of a folder: in one file, or in several indexed files.
//!
//! Only the headers stay in memory. The bytes of a tensor are read when they are needed.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use burn::tensor::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;

use super::error::PretrainedError;

pub(super) const SINGLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";
const AGAIN: &str = "fetch the file again, or write it again with save_pretrained";
/// Maximum header size of the format, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// All tensors of a folder.
#[derive(Clone, Debug)]
pub(super) struct Shards {
    /// File that lists the tensors.
    pub(super) list: PathBuf,
    /// The files.
    pub(super) files: Vec<Shard>,
    tensors: BTreeMap<String, usize>,
}

/// A safetensors file.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) metadata: Option<HashMap<String, String>>,
    /// Byte offset of its tensors.
    start: u64,
    tensors: HashMap<String, TensorInfo>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Removes a leading byte order mark, which some editors write.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

impl Shards {
    /// Reads the headers of a folder's files.
    ///
    /// # Errors
    /// If files are missing, of another format or incomplete, or an index does not fit them.
    pub(super) fn open(folder: &Path) -> Result<Self, PretrainedError> {
        let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
        if !(single.is_file() || index.is_file()) {
            let reason = format!("there is neither {SINGLE} nor {INDEX}");
            let remedy = "write the weights with save_pretrained, which makes one of them, instead of another format";
            return Err(PretrainedError::Format { path: folder.into(), reason, remedy });
        }
        if single.is_file() {
            let file = Shard::open(&single)?;
            let tensors = file.tensors.keys().map(|name| (name.clone(), 0)).collect();
            return Ok(Self { list: single, files: vec![file], tensors });
        }
        let wrong = |reason: String, remedy| PretrainedError::Format { path: index.clone(), reason, remedy };
        let text = fs::read_to_string(&index).map_err(PretrainedError::read(&index))?;
        let map = serde_json::from_str::<Index>(without_mark(&text))
            .map_err(|error| wrong(format!("it is no index: {error}"), AGAIN))?
            .weight_map;
        let (mut files, mut tensors) = (Vec::<Shard>::new(), BTreeMap::new());
        for (tensor, name) in map {
            if Path::new(&name).file_name().is_none_or(|last| last != name.as_str()) {
                return Err(wrong(format!("`{tensor}` is in `{name}`"), "name files of the same folder"));
            }
            let path = folder.join(&name);
            let at = match files.iter().position(|file| file.path == path) {
                Some(at) => at,
                None => {
                    files.push(Shard::open(&path)?);
                    files.len() - 1
                }
            };
            if !files[at].tensors.contains_key(&tensor) {
                let remedy = "the index says that it is in this file: fetch both again";
                return Err(PretrainedError::Missing { path, tensor, remedy });
            }
            tensors.insert(tensor, at);
        }
        for (at, file) in files.iter().enumerate() {
            if let Some(name) = file.tensors.keys().find(|&name| tensors.get(name) != Some(&at)) {
                return Err(wrong(format!("it does not say that `{name}` is in `{}`", file.path.display()), "fetch both again"));
            }
        }
        Ok(Self { list: index, files, tensors })
    }

    /// Names of all tensors.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(super) fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    /// First dimension of a tensor, if it exists.
    pub(super) fn rows(&self, tensor: &str) -> Option<usize> {
        self.has(tensor).then(|| self.info(tensor).1.shape.first().copied()).flatten()
    }

    fn info(&self, tensor: &str) -> (&Shard, &TensorInfo) {
        let file = &self.files[self.tensors[tensor]];
        (file, &file.tensors[tensor])
    }

    /// Checks shape and type of an existing tensor.
    ///
    /// # Errors
    /// A shape other than `expected`, or a type without 32 or 16 bits.
    pub(super) fn expect(&self, tensor: &str, expected: &[usize]) -> Result<(), PretrainedError> {
        let (file, info) = self.info(tensor);
        let path = || file.path.clone();
        if decoder(info.dtype).is_none() {
            return Err(PretrainedError::Type { path: path(), tensor: tensor.into(), dtype: format!("{:?}", info.dtype) });
        }
        if info.shape != expected {
            let (found, expected) = (info.shape.clone(), expected.to_vec());
            return Err(PretrainedError::Shape { path: path(), tensor: tensor.into(), found, expected });
        }
        Ok(())
    }

    /// Numbers of an existing tensor.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// # Panics
    /// If the type is not one that [`expect`](Self::expect) accepts.
    pub(super) fn values(&self, tensor: &str) -> Result<Vec<f32>, PretrainedError> {
        let (file, info) = self.info(tensor);
        let decode = decoder(info.dtype).expect("types are checked before numbers are read");
        Ok(decode(&file.bytes(tensor)?))
    }

    /// Raw bytes of an existing tensor.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn bytes(&self, tensor: &str) -> Result<Vec<u8>, PretrainedError> {
        self.info(tensor).0.bytes(tensor)
    }

    /// Type of the first numeric tensor.
    pub(super) fn type_of_first(&self) -> Dtype {
        self.names().map(|name| self.info(name).1.dtype).find(|&dtype| decoder(dtype).is_some()).unwrap_or(Dtype::F32)
    }

    /// File of an existing tensor.
    pub(super) fn path(&self, tensor: &str) -> &Path {
        &self.info(tensor).0.path
    }
}

impl Shard {
    fn open(path: &Path) -> Result<Self, PretrainedError> {
        let unreadable = |source| PretrainedError::read(path)(source);
        let wrong = |reason: String| PretrainedError::Format { path: path.into(), reason, remedy: AGAIN };
        let mut file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        if size < 8 {
            return Err(wrong(format!("it has {size} bytes, and the length of the header alone takes 8")));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(unreadable)?;
        let length = u64::from_le_bytes(length);
        if length > LONGEST_HEADER || length > size - 8 {
            return Err(wrong(format!("its header has {length} bytes, and the file {size}")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(unreadable)?;
        let header: Metadata = serde_json::from_slice(&header).map_err(|error| wrong(format!("its header is not readable: {error}")))?;
        let start = 8 + length;
        let expected = start + header.data_len() as u64;
        if size != expected {
            let cut = header.tensors().into_iter().filter(|(_, info)| start + info.data_offsets.1 as u64 > size).map(|(name, _)| name);
            let first = cut.min_by_key(|name| header.info(name).map(|info| info.data_offsets));
            let first = first.map_or(String::new(), |name| format!(", so that the numbers of `{name}` are not all there"));
            return Err(wrong(format!("it has {size} bytes instead of {expected}{first}")));
        }
        let metadata = header.metadata().clone();
        let tensors = header.tensors().into_iter().map(|(name, info)| (name, info.clone())).collect();
        Ok(Self { path: path.into(), metadata, start, tensors })
    }

    /// Its tensors.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(name, info)| (name.as_str(), info))
    }

    fn bytes(&self, tensor: &str) -> Result<Vec<u8>, PretrainedError> {
        let (begin, end) = self.tensors[tensor].data_offsets;
        let mut bytes = vec![0; end - begin];
        let mut read = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.start + begin as u64))?;
            file.read_exact(&mut bytes)
        };
        read().map_err(PretrainedError::read(&self.path))?;
        Ok(bytes)
    }
}

/// Decoder from the bytes of a type to numbers.
type Decode = fn(&[u8]) -> Vec<f32>;

/// Decoder of a type, if supported.
fn decoder(dtype: Dtype) -> Option<Decode> {
    match dtype {
        Dtype::F32 => Some(|bytes| bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()),
        Dtype::F16 => Some(|bytes| bytes.as_chunks::<2>().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32()).collect()),
        Dtype::BF16 => Some(|bytes| bytes.as_chunks::<2>().0.iter().map(|&bytes| bf16::from_le_bytes(bytes).to_f32()).collect()),
        _ => None,
    }
}

/// Encodes numbers in a supported type, rounded to nearest; `None` if a finite number would become infinite.
pub(super) fn encoded(values: &[f32], dtype: Dtype) -> Option<Vec<u8>> {
    fn rounded<const N: usize>(values: &[f32], round: impl Fn(f32) -> (f32, [u8; N])) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(N * values.len());
        for &value in values {
            let (rounded, own) = round(value);
            if rounded.is_infinite() && value.is_finite() {
                return None;
            }
            bytes.extend_from_slice(&own);
        }
        Some(bytes)
    }
    match dtype {
        Dtype::F16 => rounded(values, |value| (f16::from_f32(value).to_f32(), f16::from_f32(value).to_le_bytes())),
        Dtype::BF16 => rounded(values, |value| (bf16::from_f32(value).to_f32(), bf16::from_f32(value).to_le_bytes())),
        _ => rounded(values, |value| (value, value.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest_of_their_type() {
        // Just above and below the middle between neighbours, the middle itself, which rounds to even, and the largest F16 number.
        let values = [1.0 + 0.75 / 128.0, 1.0 + 0.25 / 128.0, 1.0 + 1.5 / 128.0, -65504.0];
        let read = |dtype| decoder(dtype).unwrap()(&encoded(&values, dtype).unwrap());
        assert_eq!(read(Dtype::BF16), [1.0 + 1.0 / 128.0, 1.0, 1.0 + 2.0 / 128.0, -65536.0]);
        assert_eq!(read(Dtype::F16), values);
        assert_eq!(read(Dtype::F32), values);
        assert_eq!(encoded(&[65520.0], Dtype::F16), None);
        assert_eq!(encoded(&[f32::MAX], Dtype::BF16), None);
        assert!(read_one(f32::INFINITY).is_infinite() && read_one(f32::NAN).is_nan());
    }

    fn read_one(value: f32) -> f32 {
        decoder(Dtype::F16).unwrap()(&encoded(&[value], Dtype::F16).unwrap())[0]
    }
}
