//! Going on from a pre-trained encoder: a run folder of `mlm`, or the encoder of one of `mlm --objective spans`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use burn::store::{ModuleSnapshot, SafetensorsStore};
use heedful_data::tokenise::Tokeniser;
use heedful_host::checksum::sha256_hex;
use heedful_host::whole_files::file_name;
use heedful_models::architectures::classifier::Classifier;
use heedful_models::training::weights::unfit;
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;
use heedful_runs::settings::{Settings, UNSET, complete, completed};
use safetensors::tensor::TensorView;
use safetensors::{SafeTensorError, SafeTensors};
use toml::Table;

use super::ClassificationConfig;
use super::pretrained::{Read, beneath_init};
use crate::session::error::ExperimentError;
use crate::train::{Checkpoint, CheckpointFolder, MODEL};

/// The table of the tokeniser in a configuration.
const TOKENISER: &str = "tokeniser";
/// Segment vectors of a classifier.
const SEGMENTS: &str = "embedding.segments";
/// Tokens of an encoder-decoder, those of the gaps after those of the vocabulary.
const SOURCE: &str = "source.tokens.weight";
/// Where an encoder has them.
const TOKENS: &str = "embedding.tokens.weight";

/// The output folder of a finished pre-training.
#[derive(Clone, Debug)]
pub(crate) struct PreTrained {
    folder: PathBuf,
    /// Folder of the pretrained model that it began with.
    pretrained: Option<PathBuf>,
}

impl fmt::Display for PreTrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folder.display().fmt(f)
    }
}

impl PreTrained {
    /// The folder, if it is one of a run.
    pub(crate) fn open(folder: &Path) -> Result<Self, ExperimentError> {
        let run = Self::at(folder);
        if !run.tokeniser_file().is_file() {
            return Err(ExperimentError::usage(format!(
                "--init {run}: `{}` is missing; give the output folder of `mlm`, of one data set",
                run.tokeniser_file().display()
            )));
        }
        Ok(run)
    }

    /// The folder, whatever it holds.
    pub(super) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), pretrained: Self::began_with(folder) }
    }

    /// Folder of the pretrained model of Hugging Face that the runs of an output folder began with, as its configuration says: they have its tokens and sizes.
    pub(super) fn began_with(folder: &Path) -> Option<PathBuf> {
        configuration(folder)?.get("pretrained")?.as_str().filter(|path| *path != UNSET).map(PathBuf::from)
    }

    /// Refuses a tokeniser that is given and is not that of the pre-training, whose tokens are read in any case.
    ///
    /// # Errors
    /// A usage error that names the field.
    pub(super) fn check_tokeniser(&self, settings: &Settings<ClassificationConfig>) -> Result<(), ExperimentError> {
        let given = settings.given(&ClassificationConfig::default())?;
        let Some(field) = given.iter().find(|path| path.first().is_some_and(|table| table == TOKENISER)) else { return Ok(()) };
        let of_run = |mut table: Table| {
            table.retain(|name, _| name == TOKENISER);
            completed::<ClassificationConfig>(&table)?.remove(TOKENISER)
        };
        let Some(theirs) = configuration(&self.folder).and_then(of_run) else { return Ok(()) };
        let is_same = complete(&settings.value)?.get(TOKENISER) == Some(&theirs);
        Ok(settings.require(&field.join("."), is_same, format!("the tokens are those of the pre-training, --init {self}; leave it out"))?)
    }

    /// What is read of the pretrained model that it began with, if it did.
    ///
    /// # Errors
    /// A usage error for a folder that is no longer there or cannot be used.
    pub(super) fn pretrained(&self) -> Result<Option<Read>, ExperimentError> {
        self.pretrained.as_deref().map(|folder| Read::of(folder).map_err(|error| self.of_pretrained(folder, error))).transpose()
    }

    fn of_pretrained(&self, folder: &Path, error: ExperimentError) -> ExperimentError {
        let problem = "whose configuration and tokeniser are still needed";
        ExperimentError::usage(format!("--init {self}: it began with the pretrained model of `{}`, {problem}: {error}", folder.display()))
    }

    /// What the pretrained model that it began with says of the configuration, if it did.
    ///
    /// # Errors
    /// As [`pretrained`](Self::pretrained).
    pub(super) fn beneath(&self) -> Result<Option<Table>, ExperimentError> {
        let of_folder = |folder: &Path| beneath_init(folder).map_err(|error| self.of_pretrained(folder, error));
        self.pretrained.as_deref().map(of_folder).transpose()
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

    /// The best checkpoint of the finished run with this attention and seed, if there is one.
    fn existing(&self, attention: &str, seed: u64) -> Result<Option<Checkpoint>, ExperimentError> {
        let folder = RunFolder::at(&self.folder);
        let results = Results::read(&folder)?;
        if !results.records().iter().any(|record| record.attention == attention && record.seed == seed) {
            return Ok(None);
        }
        let found = folder.existing_run("", attention, seed);
        let checkpoint = found.map(|paths| CheckpointFolder::of_any_configuration(paths.root()).best()).transpose();
        Ok(checkpoint.map_err(ExperimentError::failure)?.flatten())
    }

    fn best(&self, attention: &str, seed: u64) -> Result<Checkpoint, ExperimentError> {
        if let Some(checkpoint) = self.existing(attention, seed)? {
            return Ok(checkpoint);
        }
        let seeds = self.seeds(attention)?;
        let Some(first) = seeds.first() else {
            return Err(ExperimentError::usage(format!(
                "--init {self}: there is no trained model with attention {attention} there; give an attention that was pre-trained, or pre-train this one"
            )));
        };
        let known: Vec<String> = seeds.iter().map(u64::to_string).collect();
        Err(ExperimentError::usage(format!(
            "--init {self}: there is no trained model with attention {attention} and seed {seed} there, only with seed {}; pre-train this seed as well, give \
             --seed and --seeds among those, or begin all seeds with one of them: --init-seed {first}",
            known.join(", ")
        )))
    }

    /// The seeds of the finished runs with this attention, ascending.
    fn seeds(&self, attention: &str) -> Result<Vec<u64>, ExperimentError> {
        let start = format!("{}-seed", file_name(attention));
        let unreadable = |error| ExperimentError::failure(format!("cannot list `{self}`: {error}"));
        let mut seeds = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let seed = name.to_str().and_then(|name| name.strip_prefix(&start)?.parse().ok());
            if let Some(seed) = seed
                && self.existing(attention, seed)?.is_some()
            {
                seeds.push(seed);
            }
        }
        seeds.sort_unstable();
        Ok(seeds)
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
        let vocabulary = model.embedding.tokens.weight.dims()[0];
        let bytes = of_encoder(bytes, vocabulary).map_err(|error| refuse(error.to_string()))?;
        let mut store = SafetensorsStore::from_bytes(Some(bytes)).with_regex("^(embedding|encoder)").allow_partial(true).validate(false);
        let result = model.load_from(&mut store).map_err(|error| refuse(error.to_string()))?;
        if let Some(reason) = unfit(&result.errors) {
            return Err(refuse(reason));
        }
        // An encoder of single texts knows no segments, and those of a pair then begin with what they are initialised with. Pre-training has no pooler.
        let is_new = |name: &str| name.starts_with("output") || name.starts_with("pooler") || name == SEGMENTS;
        let missing: Vec<&str> = result.missing.iter().map(|(name, _)| name.as_str()).filter(|name| !is_new(name)).collect();
        let is_other = |name: &&str| ["output", "pooler", "masked_head"].iter().any(|other| name.starts_with(other));
        let unused: Vec<&str> = result.unused.iter().map(String::as_str).filter(|name| !is_other(name)).collect();
        let problems: Vec<String> = [("it has no", missing), ("the model here has no", unused)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(problem, names)| format!("{problem} {}", names.join(", ")))
            .collect();
        if !problems.is_empty() {
            return Err(refuse(problems.join("; ")));
        }
        Ok(model)
    }
}

/// The configuration that an output folder holds.
fn configuration(folder: &Path) -> Option<Table> {
    fs::read_to_string(RunFolder::at(folder).config()).ok()?.parse().ok()
}

/// The weights of an encoder of `vocabulary` tokens in a safetensors file: of an encoder-decoder, its encoder; of another model, all.
fn of_encoder(bytes: &[u8], vocabulary: usize) -> Result<Vec<u8>, SafeTensorError> {
    let file = SafeTensors::deserialize(bytes)?;
    let Ok(source) = file.tensor(SOURCE) else { return Ok(bytes.to_vec()) };
    let [tokens, width] = *source.shape() else { return Ok(bytes.to_vec()) };
    let row = source.data().len() / tokens.max(1);
    let kept = tokens.min(vocabulary);
    let embedding = TensorView::new(source.dtype(), vec![kept, width], &source.data()[..kept * row])?;
    let others = file.iter().filter(|(name, _)| *name != SOURCE && (name.starts_with("source.") || name.starts_with("encoder.")));
    let renamed = others.map(|(name, tensor)| (name.replacen("source.", "embedding.", 1), tensor));
    safetensors::serialize([(TOKENS.to_owned(), embedding)].into_iter().chain(renamed), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::Dtype;

    #[test]
    fn of_an_encoder_decoder_the_encoder_and_the_tokens_of_the_vocabulary_are_taken() {
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let (tokens, other) = (bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), bytes(&[7.0, 8.0]));
        let view = |shape: &[usize], bytes: &'static [u8]| TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap();
        let (tokens, other): (&'static [u8], &'static [u8]) = (tokens.leak(), other.leak());
        let names = ["encoder.norm.gamma", "decoder.norm.gamma", "source.positions"];
        let others = names.map(|name| (name, view(&[2], other)));
        let file = safetensors::serialize([(SOURCE, view(&[3, 2], tokens))].into_iter().chain(others), None).unwrap();

        let found = of_encoder(&file, 2).unwrap();
        let found = SafeTensors::deserialize(&found).unwrap();
        let mut names = found.names().into_iter().map(ToString::to_string).collect::<Vec<_>>();
        names.sort();
        assert_eq!(names, ["embedding.positions", TOKENS, "encoder.norm.gamma"]);
        let embedding = found.tensor(TOKENS).unwrap();
        assert_eq!((embedding.shape(), embedding.data()), (&[2, 2][..], &tokens[..16]));
        assert_eq!(found.tensor("encoder.norm.gamma").unwrap().data(), other);

        let encoder = safetensors::serialize([(TOKENS, view(&[3, 2], tokens))], None).unwrap();
        assert_eq!(of_encoder(&encoder, 2).unwrap(), encoder, "an encoder stays as it is");
    }
}
