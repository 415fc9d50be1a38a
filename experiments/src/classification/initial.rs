//! Going on from a pre-trained encoder: a run folder of `mlm`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use burn::store::{ModuleSnapshot, SafetensorsStore};
use heedful_models::classifier::Classifier;

use crate::error::ExperimentError;
use crate::run_folder::{RunFolder, sha256_hex};
use crate::tokenise::Tokeniser;
use crate::train::{Checkpoint, CheckpointFolder, MODEL};

/// The output folder of a finished pre-training.
#[derive(Clone, Debug)]
pub(crate) struct PreTrained {
    folder: PathBuf,
}

impl fmt::Display for PreTrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folder.display().fmt(f)
    }
}

impl PreTrained {
    /// The folder, if it is one of a run.
    pub(crate) fn open(folder: &Path) -> Result<Self, ExperimentError> {
        let run = Self { folder: folder.to_owned() };
        if !run.tokeniser_file().is_file() {
            return Err(ExperimentError::usage(format!(
                "--init {run}: `{}` is missing; give the output folder of `mlm`, of one data set",
                run.tokeniser_file().display()
            )));
        }
        Ok(run)
    }

    fn tokeniser_file(&self) -> PathBuf {
        self.folder.join("tokenizer.json")
    }

    /// What cut its texts into tokens.
    pub(crate) fn tokeniser(&self) -> Result<Tokeniser, ExperimentError> {
        Tokeniser::load(&self.tokeniser_file()).map_err(ExperimentError::failure)
    }

    /// Digest of its configuration and results.
    pub(crate) fn sha256(&self) -> Result<String, ExperimentError> {
        let path = self.folder.join("results.json");
        let results = fs::read(&path).map_err(|error| {
            ExperimentError::usage(format!("--init {self}: cannot read `{}` ({error}); give a folder with a finished run", path.display()))
        })?;
        Ok(sha256_hex(&results))
    }

    /// The best checkpoint of the run with this attention: that of the seed, or the first if there is none of it.
    fn best(&self, attention: &str, seed: u64) -> Result<Checkpoint, ExperimentError> {
        let folder = RunFolder::at(&self.folder);
        let found = folder.existing_run("", attention, seed).or_else(|| folder.existing_run("", attention, 1));
        let checkpoint = found.map(|paths| CheckpointFolder::of_any_configuration(paths.root()).best()).transpose();
        checkpoint.map_err(ExperimentError::failure)?.flatten().ok_or_else(|| {
            ExperimentError::usage(format!(
                "--init {self}: there is no trained model with attention {attention} there; give an attention that was pre-trained, or pre-train this one"
            ))
        })
    }

    /// Whether there are weights for this attention.
    pub(crate) fn check(&self, attention: &str, seed: u64) -> Result<(), ExperimentError> {
        self.best(attention, seed).map(|_| ())
    }

    /// A model whose embedding and layers have the weights of the run. The output stays as it is.
    pub(crate) fn load(&self, mut model: Classifier, attention: &str, seed: u64) -> Result<Classifier, ExperimentError> {
        let checkpoint = self.best(attention, seed)?;
        let (path, bytes) =
            checkpoint.file(MODEL).ok_or_else(|| ExperimentError::failure(format!("`{}` has no {MODEL}", checkpoint.folder.display())))?;
        let refuse = |reason: String| {
            ExperimentError::usage(format!("--init {}: {reason}; give the model settings of the pre-training", path.display()))
        };
        let mut store = SafetensorsStore::from_bytes(Some(bytes.to_vec())).with_regex("^(embedding|encoder)").allow_partial(true);
        let result = model.load_from(&mut store).map_err(|error| refuse(error.to_string()))?;
        let missing: Vec<_> = result.missing.iter().filter(|(name, _)| !name.starts_with("output")).collect();
        if let Some((name, _)) = missing.first() {
            return Err(refuse(format!("it has no {name}")));
        }
        if let Some(name) = result.unused.iter().find(|name| !name.starts_with("output")) {
            return Err(refuse(format!("the model here has no {name}")));
        }
        Ok(model)
    }
}
