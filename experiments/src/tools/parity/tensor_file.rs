//! Named tensors in a file, checked against what is wanted of them.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use heedful_host::names::nearest;
use heedful_host::whole_files::{FileError, write_atomically};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

/// Why a file of tensors cannot be used: which, why and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct TensorFileError(String);

/// One size of a shape that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Exactly this.
    Is(usize),
    /// The same in all tensors whose shapes have this name.
    Free(&'static str),
    /// The first, which is the sum of the others, of which those count that are there.
    Sum(&'static str, &'static [&'static str]),
}

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(size) => write!(f, "{size}"),
            Self::Free(name) | Self::Sum(name, _) => f.write_str(name),
        }
    }
}

/// A shape as it is shown, `[batch, length, 64]`.
pub(super) fn shape(sizes: &[Size]) -> String {
    format!("[{}]", sizes.iter().map(Size::to_string).collect::<Vec<_>>().join(", "))
}

/// What the names of sizes stand for in a file.
#[derive(Default)]
pub(super) struct Sizes(BTreeMap<&'static str, usize>);

impl Sizes {
    /// Sizes by name.
    pub(super) fn new(sizes: &[(&'static str, usize)]) -> Self {
        Self(sizes.iter().copied().collect())
    }

    /// A size, if it is decided.
    fn known(&self, size: &Size) -> Option<usize> {
        match size {
            Size::Is(size) => Some(*size),
            Size::Free(name) => self.0.get(name).copied(),
            Size::Sum(_, names) => Some(names.iter().filter_map(|name| self.0.get(name)).sum()),
        }
    }

    /// A shape of which all sizes are decided.
    ///
    /// # Panics
    /// If one is not.
    pub(super) fn shape(&self, wanted: &[Size]) -> Vec<usize> {
        wanted.iter().map(|size| self.known(size).unwrap_or_else(|| panic!("the size `{size}` is not decided"))).collect()
    }

    /// Whether a shape is as wanted; if so, it decides the sizes that were open.
    fn fit(&mut self, found: &[usize], wanted: &[Size]) -> bool {
        let fits = |(&found, wanted): (&usize, &Size)| found > 0 && self.known(wanted).is_none_or(|wanted| wanted == found);
        if found.len() != wanted.len() || !found.iter().zip(wanted).all(fits) {
            return false;
        }
        for (&found, wanted) in found.iter().zip(wanted) {
            if let Size::Free(name) = wanted {
                self.0.insert(name, found);
            }
        }
        true
    }

    /// A shape that is wanted, with the sizes that are decided: `[batch = 2, length, 64]`.
    fn shown(&self, wanted: &[Size]) -> String {
        let size = |size: &Size| match size {
            Size::Free(name) | Size::Sum(name, _) => {
                self.known(size).map_or_else(|| (*name).to_owned(), |value| format!("{name} = {value}"))
            }
            Size::Is(size) => size.to_string(),
        };
        format!("[{}]", wanted.iter().map(size).collect::<Vec<_>>().join(", "))
    }
}

/// The tensors of a file.
pub(super) struct TensorFile {
    path: PathBuf,
    tensors: BTreeMap<String, Stored>,
}

struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    /// `None` for a type that is not read.
    values: Option<Vec<f64>>,
}

impl TensorFile {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, TensorFileError> {
        let place = path.display();
        let bytes = fs::read(path).map_err(|source| TensorFileError(format!("cannot read `{place}`: {source}")))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|source| {
            let problem = format!("is no whole safetensors file: {source}; write it again with safetensors' save_file");
            TensorFileError(format!("`{place}` {problem}"))
        })?;
        let stored = |view: TensorView<'_>| Stored { dtype: view.dtype(), shape: view.shape().to_vec(), values: values(&view) };
        Ok(Self { path: path.into(), tensors: tensors.tensors().into_iter().map(|(name, view)| (name, stored(view))).collect() })
    }

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The error for a tensor with which something is wrong.
    pub(super) fn refuse(&self, name: &str, problem: impl Display) -> TensorFileError {
        TensorFileError(format!("{}: `{name}`: {problem}", self.path.display()))
    }

    /// Refuses a tensor that has none of the known names; suggests the nearest of those that are missing.
    pub(super) fn refuse_others(&self, known: &[&str]) -> Result<(), TensorFileError> {
        let Some(other) = self.tensors.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
        let missing = known.iter().copied().filter(|name| !self.has(name));
        let problem = match nearest(other, missing) {
            Some(near) => format!("no tensor of this name is known; did you mean `{near}`? (--describe shows all)"),
            None => "no tensor of this name is known; leave it out (--describe shows all)".to_owned(),
        };
        Err(self.refuse(other, problem))
    }

    fn of_shape(&self, name: &str, wanted: &[Size], sizes: &mut Sizes) -> Result<&Stored, TensorFileError> {
        let wanted_text = sizes.shown(wanted);
        let missing = || self.refuse(name, format!("is missing; it has the shape {wanted_text} (--describe shows all tensors)"));
        let stored = self.tensors.get(name).ok_or_else(missing)?;
        if sizes.fit(&stored.shape, wanted) {
            return Ok(stored);
        }
        Err(self.refuse(name, format!("has the shape {:?}, and not {wanted_text}", stored.shape)))
    }

    /// A tensor of finite numbers, as 32-bit floats.
    pub(super) fn numbers(&self, name: &str, wanted: &[Size], sizes: &mut Sizes) -> Result<TensorData, TensorFileError> {
        let stored = self.of_shape(name, wanted, sizes)?;
        let (Dtype::F32 | Dtype::F64, Some(values)) = (stored.dtype, &stored.values) else {
            return Err(self.refuse(name, format!("is of type {}; save it as F32 or F64 (tensor.float() in PyTorch)", stored.dtype)));
        };
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(self.refuse(name, format!("element {:?} is {}, not a finite 32-bit number", index(at, &stored.shape), values[at])));
        }
        Ok(TensorData::new(values, stored.shape.clone()))
    }

    /// A tensor of zeros and ones of any type, as booleans.
    pub(super) fn booleans(&self, name: &str, wanted: &[Size], sizes: &mut Sizes) -> Result<Vec<bool>, TensorFileError> {
        let stored = self.of_shape(name, wanted, sizes)?;
        let Some(values) = &stored.values else {
            return Err(self.refuse(name, format!("is of type {}; save it as BOOL, an integer type, F32 or F64", stored.dtype)));
        };
        if let Some(at) = values.iter().position(|&value| value != 0.0 && value != 1.0) {
            return Err(self.refuse(name, format!("element {:?} is {}, neither 0 nor 1", index(at, &stored.shape), values[at])));
        }
        Ok(values.iter().map(|&value| value == 1.0).collect())
    }

    /// A tensor of whole numbers of at least 0, of any type.
    pub(super) fn counts(&self, name: &str, wanted: &[Size], sizes: &mut Sizes) -> Result<Vec<usize>, TensorFileError> {
        let stored = self.of_shape(name, wanted, sizes)?;
        let Some(values) = &stored.values else {
            return Err(self.refuse(name, format!("is of type {}; save it as an integer type, F32 or F64", stored.dtype)));
        };
        let is_count = |&value: &f64| value >= 0.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0;
        if let Some(at) = values.iter().position(|value| !is_count(value)) {
            return Err(
                self.refuse(name, format!("element {:?} is {}, not a whole number of at least 0", index(at, &stored.shape), values[at]))
            );
        }
        Ok(values.iter().map(|&value| value as usize).collect())
    }
}

/// The values of a tensor, if it is of a type that is read.
fn values(view: &TensorView<'_>) -> Option<Vec<f64>> {
    fn all<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Option<Vec<f64>> {
        Some(bytes.as_chunks().0.iter().map(|&chunk| number(chunk)).collect())
    }
    let bytes = view.data();
    match view.dtype() {
        Dtype::BOOL | Dtype::U8 => all(bytes, |[byte]| f64::from(byte)),
        Dtype::I8 => all(bytes, |bytes| f64::from(i8::from_le_bytes(bytes))),
        Dtype::I16 => all(bytes, |bytes| f64::from(i16::from_le_bytes(bytes))),
        Dtype::U16 => all(bytes, |bytes| f64::from(u16::from_le_bytes(bytes))),
        Dtype::I32 => all(bytes, |bytes| f64::from(i32::from_le_bytes(bytes))),
        Dtype::U32 => all(bytes, |bytes| f64::from(u32::from_le_bytes(bytes))),
        Dtype::I64 => all(bytes, |bytes| i64::from_le_bytes(bytes) as f64),
        Dtype::U64 => all(bytes, |bytes| u64::from_le_bytes(bytes) as f64),
        Dtype::F32 => all(bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
        Dtype::F64 => all(bytes, f64::from_le_bytes),
        _ => None,
    }
}

/// The index of the element at a place in row-major order.
fn index(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<_> = shape
        .iter()
        .rev()
        .map(|size| {
            let own = at % size;
            at /= size;
            own
        })
        .collect();
    index.reverse();
    index
}

/// Writes tensors as 32-bit floats, whole or not at all.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(path: &Path, tensors: &[(String, TensorData)]) -> Result<(), FileError> {
    let bytes: Vec<(&str, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, data)| (name.as_str(), data.shape().to_vec(), data.iter::<f32>().flat_map(f32::to_le_bytes).collect()))
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor has as many numbers as its shape says");
        (*name, view)
    });
    let file = safetensors::serialize(views, None).expect("views of whole tensors are written to memory");
    write_atomically(path, &file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_by_name_is_the_same_in_all_shapes() {
        let mut sizes = Sizes::default();
        let wanted = [Size::Free("batch"), Size::Free("length"), Size::Is(4)];
        assert!(!sizes.fit(&[2, 3], &wanted) && !sizes.fit(&[2, 3, 5], &wanted) && !sizes.fit(&[2, 0, 4], &wanted));
        assert!(sizes.fit(&[2, 3, 4], &wanted) && sizes.fit(&[2, 3, 4], &wanted));
        assert!(!sizes.fit(&[2, 4, 4], &wanted));
        assert_eq!(sizes.shown(&[Size::Free("batch"), Size::Free("keys"), Size::Is(4)]), "[batch = 2, keys, 4]");
        assert_eq!(shape(&wanted), "[batch, length, 4]");
        let keys = [Size::Free("batch"), Size::Sum("keys", &["carried", "length"])];
        assert!(sizes.fit(&[2, 3], &keys) && !sizes.fit(&[2, 5], &keys));
        assert!(sizes.fit(&[2], &[Size::Free("carried")]) && sizes.fit(&[2, 5], &keys));
        assert_eq!((sizes.shown(&keys), shape(&keys)), ("[batch = 2, keys = 5]".into(), "[batch, keys]".into()));
    }

    #[test]
    fn places_become_indices() {
        assert_eq!(index(0, &[2, 3]), [0, 0]);
        assert_eq!(index(5, &[2, 3]), [1, 2]);
        assert_eq!(index(23, &[2, 3, 4]), [1, 2, 3]);
    }
}
