//! What a part reads: tensors that it declares by name, shape and meaning, checked before anything is computed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use burn::tensor::TensorData;
use heedful_attention::prelude::*;

use super::tensor_file::{Size, Sizes, TensorFile, TensorFileError};

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Finite numbers.
    Numbers,
    /// Zeros and ones.
    Flags,
    /// Whole numbers of at least 0.
    Counts,
}

/// A tensor that is read.
#[derive(Clone, Debug)]
pub(super) struct Input {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<Size>,
    /// What it means.
    pub meaning: String,
    /// Whether its gradient is written.
    pub has_gradient: bool,
    kind: Kind,
    is_optional: bool,
    /// Counts of the example.
    example: Vec<usize>,
}

impl Input {
    fn new(name: &str, shape: &[Size], meaning: &str, kind: Kind) -> Self {
        let (name, meaning) = (name.to_owned(), meaning.to_owned());
        Self { name, shape: shape.to_vec(), meaning, has_gradient: false, kind, is_optional: false, example: Vec::new() }
    }

    /// Numbers.
    pub(super) fn numbers(name: &str, shape: &[Size], meaning: &str) -> Self {
        Self::new(name, shape, meaning, Kind::Numbers)
    }

    /// Zeros and ones.
    pub(super) fn flags(name: &str, shape: &[Size], meaning: &str) -> Self {
        Self::new(name, shape, meaning, Kind::Flags)
    }

    /// Whole numbers of at least 0; `example` are such.
    pub(super) fn counts(name: &str, shape: &[Size], meaning: &str, example: &[usize]) -> Self {
        Self { example: example.to_vec(), ..Self::new(name, shape, meaning, Kind::Counts) }
    }

    /// That may be left out.
    pub(super) fn optional(self) -> Self {
        let meaning = format!("optional: {}", self.meaning);
        Self { is_optional: true, meaning, ..self }
    }

    /// Whose gradient is written, if so.
    pub(super) fn with_gradient(self, has_gradient: bool) -> Self {
        Self { has_gradient, ..self }
    }

    /// Drawn numbers, no padding, the example's counts.
    pub(super) fn example(&self, sizes: &Sizes, key: &RandomKey) -> TensorData {
        let shape = match self.kind {
            Kind::Counts => vec![self.example.len()],
            _ => sizes.shape(&self.shape),
        };
        let count = shape.iter().product();
        let values = match self.kind {
            Kind::Numbers => Init::Normal(0.5).values(count, &key.named(&self.name)),
            Kind::Flags => vec![0.0; count],
            Kind::Counts => self.example.iter().map(|&count| count as f32).collect(),
        };
        TensorData::new(values, shape)
    }
}

enum Value {
    Numbers(TensorData),
    Flags(Vec<bool>),
    Counts(Vec<usize>),
}

/// The tensors of an input file.
pub(super) struct Inputs {
    file: TensorFile,
    values: BTreeMap<String, Value>,
}

impl Inputs {
    /// Reads a file that holds what is declared and nothing else.
    ///
    /// # Errors
    /// A file that cannot be read; a tensor that is missing, not known, of another shape or type, or not finite.
    pub(super) fn read(path: &Path, declared: &[Input]) -> Result<Self, TensorFileError> {
        let file = TensorFile::read(path)?;
        file.refuse_others(&declared.iter().map(|input| input.name.as_str()).collect::<Vec<_>>())?;
        let mut sizes = Sizes::default();
        let mut values = BTreeMap::new();
        for Input { name, shape, kind, is_optional, .. } in declared {
            if *is_optional && !file.has(name) {
                continue;
            }
            let value = match kind {
                Kind::Numbers => Value::Numbers(file.numbers(name, shape, &mut sizes)?),
                Kind::Flags => Value::Flags(file.booleans(name, shape, &mut sizes)?),
                Kind::Counts => Value::Counts(file.counts(name, shape, &mut sizes)?),
            };
            values.insert(name.clone(), value);
        }
        Ok(Self { file, values })
    }

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The numbers of a tensor, if it is there.
    pub(super) fn numbers(&self, name: &str) -> Option<&TensorData> {
        match self.values.get(name)? {
            Value::Numbers(data) => Some(data),
            _ => panic!("`{name}` holds no numbers"),
        }
    }

    /// The size of a tensor of numbers in a dimension; 0 if it is not there.
    pub(super) fn size(&self, name: &str, dim: usize) -> usize {
        self.numbers(name).map_or(0, |data| data.shape()[dim])
    }

    /// Zeros and ones as booleans, if they are there.
    pub(super) fn flags(&self, name: &str) -> Option<&[bool]> {
        match self.values.get(name)? {
            Value::Flags(flags) => Some(flags),
            _ => panic!("`{name}` holds no flags"),
        }
    }

    /// Whole numbers, if they are there.
    pub(super) fn counts(&self, name: &str) -> Option<&[usize]> {
        match self.values.get(name)? {
            Value::Counts(counts) => Some(counts),
            _ => panic!("`{name}` holds no counts"),
        }
    }

    /// Refuses sizes of parts that are 0 or do not sum to `length`.
    pub(super) fn check_parts(&self, name: &str, length: usize) -> Result<(), TensorFileError> {
        let parts = self.counts(name).unwrap_or_default();
        if parts.contains(&0) || parts.iter().sum::<usize>() != length {
            return Err(self.refuse(name, format!("is {parts:?}; give sizes of at least 1 that sum to the {length} positions of `x`")));
        }
        Ok(())
    }

    /// Refuses counts that are not within bounds, both included.
    pub(super) fn check_counts(&self, name: &str, least: usize, most: usize) -> Result<(), TensorFileError> {
        match self.counts(name).unwrap_or_default().iter().position(|count| !(least..=most).contains(count)) {
            Some(at) => {
                let count = self.counts(name).unwrap_or_default()[at];
                Err(self.refuse(name, format!("element [{at}] is {count}; give numbers from {least} to {most}")))
            }
            None => Ok(()),
        }
    }

    /// The error for a tensor with which something is wrong.
    pub(super) fn refuse(&self, name: &str, problem: impl Display) -> TensorFileError {
        self.file.refuse(name, problem)
    }
}
