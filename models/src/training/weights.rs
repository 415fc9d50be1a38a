//! Model weights in safetensors files. `docs/book/src/weights.md` lists the tensor names.
//!
//! ```
//! use burn::tensor::Device;
//! use heedful_models::prelude::*;
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let device = Device::flex();
//! # let config = LanguageModelConfig::new(11).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16);
//! let model = config.build(&device)?;
//! save(&model, &path)?;
//! let same = load(config.build(&device)?, &path, Match::Exact)?;
//! # assert_eq!(same.embedding.tokens.weight.val().into_data(), model.embedding.tokens.weight.val().into_data());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::store::{ApplyError, ModuleSnapshot, SafetensorsStore};
use thiserror::Error;

/// Weights that cannot be written or loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The file cannot be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The bytes are not a safetensors file, or a tensor differs in shape or type from the parameter of its name.
    #[error("these weights cannot be used: {0}")]
    Format(String),
    /// The file and the model have different tensors.
    #[error("{}", mismatch(missing, unused))]
    Mismatch {
        /// Model parameters missing in the file.
        missing: Vec<String>,
        /// File tensors without a model parameter.
        unused: Vec<String>,
    },
}

fn mismatch(missing: &[String], unused: &[String]) -> String {
    let mut text = String::new();
    for (names, what) in [(missing, "parameters of the model are not in the file"), (unused, "tensors of the file are not in the model")] {
        if !names.is_empty() {
            let _ = write!(text, "{} {what}: {}; ", names.len(), names.join(", "));
        }
    }
    text + "build the model from the configuration that the weights were saved with"
}

/// Required match of names between file and model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Match {
    /// The names equal those of the model's parameters.
    #[default]
    Exact,
    /// Parameters missing in the file keep their values, and tensors without a parameter are ignored.
    Partial,
}

/// Writes the weights of a model, replacing an existing file.
///
/// # Errors
/// If the file cannot be written; an existing file is then unchanged.
pub fn save<M: Module>(model: &M, path: impl AsRef<Path>) -> Result<(), WeightsError> {
    let path = path.as_ref();
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".partial");
    let temporary = PathBuf::from(temporary);
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(&to_bytes(model))?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| WeightsError::File { action: "write", path: path.into(), source })
}

/// Loads the weights of a file into `model`. Its device and trainability do not change.
///
/// # Errors
/// If the file cannot be read, a tensor differs in shape from the model's, or names violate [`Match`].
pub fn load<M: Module>(model: M, path: impl AsRef<Path>, names: Match) -> Result<M, WeightsError> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(|source| WeightsError::File { action: "read", path: path.into(), source })?;
    from_bytes(model, bytes, names)
}

/// Returns the bytes that [`save`] writes. Equal weights produce equal bytes.
pub fn to_bytes<M: Module>(model: &M) -> Vec<u8> {
    // The store's default metadata is written in an order that changes from process to process.
    let mut store = SafetensorsStore::from_bytes(None).clear_metadata();
    model.save_into(&mut store).expect("parameters can be read from their device");
    store.get_bytes().expect("the store was just written")
}

/// [`load`] from the bytes of a file.
///
/// # Errors
/// As [`load`].
pub fn from_bytes<M: Module>(model: M, bytes: Vec<u8>, names: Match) -> Result<M, WeightsError> {
    let (model, Differences { missing, unused }) = partly_from_bytes(model, bytes)?;
    if names == Match::Exact && !(missing.is_empty() && unused.is_empty()) {
        return Err(WeightsError::Mismatch { missing, unused });
    }
    Ok(model)
}

/// Reason why file tensors do not fit the parameters of their names, in one sentence about the first; `None` if all fit.
pub fn unfit(errors: &[ApplyError]) -> Option<String> {
    let first = match errors.first()? {
        ApplyError::ShapeMismatch { path, expected, found } => {
            format!("`{path}` has the shape {:?}, where the model's has {:?}", found.as_slice(), expected.as_slice())
        }
        ApplyError::DTypeMismatch { path, expected, found } => {
            format!("`{path}` has numbers of type {}, where the model's are {}", found.name(), expected.name())
        }
        ApplyError::AdapterError { path, message } | ApplyError::LoadError { path, message } => format!("`{path}`: {message}"),
    };
    Some(match errors.len() {
        1 => first,
        all => format!("{first}, and {} other tensors do not fit either", all - 1),
    })
}

/// Differences between the names of a file and a model, each in order.
pub(crate) struct Differences {
    /// Model parameters missing in the file.
    pub(crate) missing: Vec<String>,
    /// File tensors without a model parameter.
    pub(crate) unused: Vec<String>,
}

/// The model with the file's weights for its parameters.
pub(crate) fn partly_from_bytes<M: Module>(mut model: M, bytes: Vec<u8>) -> Result<(M, Differences), WeightsError> {
    // Mismatches are described more briefly than by the store.
    let mut store = SafetensorsStore::from_bytes(Some(bytes)).allow_partial(true).validate(false);
    let found = model.load_from(&mut store).map_err(|error| WeightsError::Format(error.to_string()))?;
    if let Some(reason) = unfit(&found.errors) {
        return Err(WeightsError::Format(reason));
    }
    let mut missing: Vec<String> = found.missing.into_iter().map(|(name, _)| name).collect();
    let mut unused = found.unused;
    missing.sort();
    unused.sort();
    Ok((model, Differences { missing, unused }))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use heedful_random::RandomKey;

    use super::*;
    use crate::architectures::language_model::LanguageModelConfig;

    #[test]
    fn weights_of_another_width_are_refused_in_one_sentence() {
        let model = |d_model: usize| {
            let config = LanguageModelConfig::new(11).with_layers(4).with_d_model(d_model).with_n_heads(2).with_d_ff(16);
            config.init(&RandomKey::from_seed(1), &Device::flex())
        };
        let message = from_bytes(model(16), to_bytes(&model(8)), Match::Exact).unwrap_err().to_string();
        assert!(message.contains("embedding.tokens.weight` has the shape [11, 8], where the model's has [11, 16]"), "{message}");
        assert!(message.contains("other tensors do not fit") && message.len() < 250, "{message}");
    }
}
