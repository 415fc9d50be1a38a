//! What a folder can have that is not read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use heedful_attention::contract::error::ConfigError;

/// A folder of a pretrained model that cannot be read or written, with the remedy.
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
    /// A file has another format than its name says, or is not complete.
    #[error("`{}` cannot be used: {reason}; {remedy}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the reader met.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A field of `config.json` that is missing, impossible or stands for something that is not supported.
    #[error("`{}`: the field `{field}` is {value}: {remedy}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Name of the field; those of a table follow its name and a point.
        field: String,
        /// What it is.
        value: String,
        /// What is needed instead.
        remedy: String,
    },
    /// The fields of `config.json` make no model.
    #[error("`{}`: {source}", path.display())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<ConfigError>,
    },
    /// A tensor that the architecture has is not in the files.
    #[error("`{}`: there is no tensor `{tensor}`: {remedy}", path.display())]
    Missing {
        /// The file that lists the tensors.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A tensor has another shape than the fields of `config.json` say.
    #[error("`{}`: the tensor `{tensor}` has the shape {found:?} instead of {expected:?}: take config.json and weights of the same model", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the model needs.
        expected: Vec<usize>,
    },
    /// A tensor is not of float32, float16 or bfloat16.
    #[error("`{}`: the tensor `{tensor}` has the type {dtype}: convert the weights to F32, F16 or BF16", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// Its type.
        dtype: String,
    },
    /// A tensor whose numbers contradict others.
    #[error("`{}`: the tensor `{tensor}` {reason}; {remedy}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// What it contradicts.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Tensors that the architecture does not have.
    #[error("`{}`: the model that config.json describes has no place for {}: {remedy}", path.display(), quoted(tensors))]
    Unused {
        /// The file that lists the tensors.
        path: PathBuf,
        /// Their names.
        tensors: Vec<String>,
        /// What to do.
        remedy: &'static str,
    },
    /// A model whose parameters are not those of the files.
    #[error("the model is not that of `{}`: {}; build it from the configuration that the folder gives", folder.display(), difference(surplus, missing))]
    Model {
        /// The folder.
        folder: PathBuf,
        /// Parameters of the model that have no tensor.
        surplus: Vec<String>,
        /// Parameters that have a tensor and are not in the model.
        missing: Vec<String>,
    },
    /// A folder that is to be written and was read.
    #[error("`{}` is the folder that was read, whose files are still in use: write to another one", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder of another kind of model than was asked for.
    #[error("`{}` holds a model of the type {found}, which is no {wanted}: {remedy}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// The architecture.
        found: String,
        /// What was asked for.
        wanted: &'static str,
        /// What to call.
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
