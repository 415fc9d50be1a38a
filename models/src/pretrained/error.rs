//! Errors of pretrained folders.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use heedful_attention::contract::error::ConfigError;

/// A pretrained folder that cannot be read or written, with the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PretrainedError {
    /// A file cannot be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file with another format than its name implies, or an incomplete one.
    #[error("`{}` cannot be used: {reason}; {remedy}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Error of the reader.
        reason: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// A field of `config.json` that is missing, invalid or unsupported.
    #[error("`{}`: the field `{field}` is {value}: {remedy}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Name of the field; fields of a table are prefixed by its name and a point.
        field: String,
        /// Its value.
        value: String,
        /// Remedy.
        remedy: String,
    },
    /// The fields of `config.json` do not form a valid model.
    #[error("`{}`: {source}", path.display())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// The configuration error.
        source: Box<ConfigError>,
    },
    /// A tensor of the architecture is missing in the files.
    #[error("`{}`: there is no tensor `{tensor}`: {remedy}", path.display())]
    Missing {
        /// The file that lists the tensors.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// A tensor differs in shape from the fields of `config.json`.
    #[error("`{}`: the tensor `{tensor}` has the shape {found:?} instead of {expected:?}: take config.json and weights of the same model", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The required shape.
        expected: Vec<usize>,
    },
    /// A tensor of a type other than float32, float16 or bfloat16.
    #[error("`{}`: the tensor `{tensor}` has the type {dtype}: convert the weights to F32, F16 or BF16", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// Its type.
        dtype: String,
    },
    /// A tensor whose values contradict others.
    #[error("`{}`: the tensor `{tensor}` {reason}; {remedy}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// The contradiction.
        reason: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// Tensors that are not part of the architecture.
    #[error("`{}`: the model that config.json describes has no place for {}: {remedy}", path.display(), quoted(tensors))]
    Unused {
        /// The file that lists the tensors.
        path: PathBuf,
        /// Their names.
        tensors: Vec<String>,
        /// Remedy.
        remedy: &'static str,
    },
    /// A model with other parameters than the files.
    #[error("the model is not that of `{}`: {}; build it from the configuration that the folder gives", folder.display(), difference(surplus, missing))]
    Model {
        /// The folder.
        folder: PathBuf,
        /// Model parameters without a tensor.
        surplus: Vec<String>,
        /// Parameters with a tensor that are missing in the model.
        missing: Vec<String>,
    },
    /// The output folder equals the input folder.
    #[error("`{}` is the folder that was read, whose files are still in use: write to another one", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder with another kind of model than requested.
    #[error("`{}` holds a model of the type {found}, which is no {wanted}: {remedy}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// The architecture.
        found: String,
        /// Requested kind.
        wanted: &'static str,
        /// Method to call instead.
        remedy: &'static str,
    },
}

impl PretrainedError {
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { action: "read", path: path.into(), source }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { action: "write", path: path.into(), source }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn difference(surplus: &[String], missing: &[String]) -> String {
    let part = |names: &[String], what: &str| (!names.is_empty()).then(|| format!("{what} {}", quoted(names)));
    let parts = [part(surplus, "no tensor is for"), part(missing, "it lacks")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
