//! Set-up that the tests of experiments share.

use std::path::{Path, PathBuf};

use heedful_runs::settings::Assignment;
use tempfile::TempDir;

use super::prelude::*;

/// The first data set of a configuration, and an attention for it.
pub(crate) struct Case<E: Experiment> {
    pub(crate) config: Config<E>,
    pub(crate) data: E::Data,
    pub(crate) attention: Attention,
}

impl<E: Experiment> Case<E> {
    /// With the options of the configuration for the attention.
    pub(crate) fn new(config: Config<E>, attention: &str) -> Self {
        let named = E::attention_named(&config, attention).map(Result::unwrap);
        let attention = named.unwrap_or_else(|| Attention::new(config.mechanisms.attention(attention).unwrap()));
        Self { data: E::open(&config).unwrap().remove(0), config, attention }
    }

    pub(crate) fn setup(&self) -> Setup<'_, E> {
        Setup { config: &self.config, data: &self.data, attention: &self.attention }
    }

    pub(crate) fn model(&self, seed: u64, device: &Device) -> E::Model {
        E::model(self.setup(), &RandomKey::from_seed(seed), device).unwrap()
    }
}

/// The settings of a command with these options, `--pretrained` among them, over those of the pretrained model.
pub(crate) fn settings<E: Experiment>(pretrained: Option<&Path>, options: &[&str]) -> Settings<Config<E>> {
    let given = pretrained.map(|folder| Assignment::option("--pretrained", "pretrained", folder.to_string_lossy().into_owned()));
    let options = options.iter().map(|text| Assignment::parse(text).unwrap());
    let settings = Settings::<Config<E>>::read(None, given.into_iter().chain(options).collect()).unwrap();
    match E::beneath(&settings.value).unwrap() {
        Some(table) => settings.over_table(table).unwrap(),
        None => settings,
    }
}

/// The folder of a tiny model in the form of Hugging Face.
pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/pretrained").join(name)
}

/// A tiny BERT with a tokeniser.
pub(crate) fn bert() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("bert").join(file), folder.path().join(file)).unwrap();
    }
    let tokeniser = r#"{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel",
        "vocab": {"[UNK]": 0, "[PAD]": 1, "[SEP]": 2, "the": 3, "was": 4, "[CLS]": 5}, "unk_token": "[UNK]"}}"#;
    std::fs::write(folder.path().join("tokenizer.json"), tokeniser).unwrap();
    folder
}
