//! Language modelling: the experiment `lm`.

mod config;
mod task;

use std::path::Path;

use burn::tensor::Device;
use heedful_attention::random::RandomKey;
use heedful_models::language_model::LanguageModel;

use crate::comparison::{Attention, Comparison, Dataset, Scores, folder_name};
use crate::data::generate::{self, Sizes};
use crate::data::text::TextCorpus;
use crate::error::ExperimentError;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::tokenise::{END, Tokeniser};
use crate::train::Interrupt;

pub use config::{LanguageConfig, LanguageData};
pub use task::{LanguageBatch, LanguageTask};

/// A tokenised text. Each split is one sequence that begins with an end-of-line token, which is given and not scored.
#[derive(Debug)]
pub struct LanguageDataset {
    name: String,
    corpus: TextCorpus,
    tokeniser: Tokeniser,
    train: Vec<u32>,
    valid: Vec<u32>,
    test: Vec<u32>,
}

impl Dataset for LanguageDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sha256(&self) -> &str {
        &self.corpus.sha256
    }

    fn description(&self) -> String {
        format!(
            "{} training, {} validation and {} test tokens, ends of lines included; {} types; splits: {}",
            self.train.len() - 1,
            self.valid.len() - 1,
            self.test.len() - 1,
            self.tokeniser.vocabulary_size(),
            self.corpus.split
        )
    }

    fn save(&self, folder: &Path) -> Result<(), ExperimentError> {
        self.tokeniser.save(&folder.join("tokenizer.json")).map_err(ExperimentError::failure)
    }
}

/// The comparison of attentions on language modelling.
#[derive(Debug)]
pub struct Language;

impl Comparison for Language {
    const NAME: &'static str = "lm";
    const TITLE: &'static str = "Language modelling";
    type Config = LanguageConfig;
    type Dataset = LanguageDataset;
    type Model = LanguageModel;
    type Task<'a> = LanguageTask<'a>;

    fn check(settings: &Settings<LanguageConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let LanguageConfig { data, model, .. } = &settings.value;
        if data.batch == 0 {
            return Err(settings.refuse("data.batch", "at least one sequence is needed").into());
        }
        if data.generated_words == 0 {
            return Err(settings.refuse("data.generated_words", "at least one word is needed").into());
        }
        if data.context == 0 || data.context > model.max_length {
            let problem = format!(
                "{} tokens are not between 1 and model.max_length = {}, the maximal length of every attention here; \
                 give a smaller context or --set model.max_length={}",
                data.context, model.max_length, data.context
            );
            return Err(settings.refuse("data.context", problem).into());
        }
        if data.stride == 0 || data.stride > data.context {
            let problem = format!("{} is not between 1 and data.context = {}", data.stride, data.context);
            return Err(settings.refuse("data.stride", problem).into());
        }
        for attention in attentions {
            settings.value.model(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn datasets(config: &LanguageConfig) -> Result<Vec<LanguageDataset>, ExperimentError> {
        let (name, corpus) = match &config.run.data {
            Some(dir) => (folder_name(dir), TextCorpus::read(dir).map_err(ExperimentError::failure)?),
            None => {
                let sizes = Sizes { train: config.data.generated_words, ..Sizes::LANGUAGE };
                ("built-in".to_owned(), generate::language(&RandomKey::from_seed(0).named("language data"), sizes))
            }
        };
        let lines = corpus.train.iter().map(String::as_str);
        let tokeniser = Tokeniser::train(&config.tokeniser, lines).map_err(ExperimentError::usage)?;
        let encode = |lines: &[String]| {
            let tokens = lines.iter().flat_map(|line| tokeniser.encode(line).into_iter().chain([END]));
            std::iter::once(END).chain(tokens).collect::<Vec<_>>()
        };
        let (train, valid, test) = (encode(&corpus.train), encode(&corpus.valid), encode(&corpus.test));
        if train.len() <= config.data.context + 1 {
            return Err(ExperimentError::usage(format!(
                "data.context = {}: the training text has only {} tokens; give --set data.context=N with a smaller N",
                config.data.context,
                train.len()
            )));
        }
        Ok(vec![LanguageDataset { name, corpus, tokeniser, train, valid, test }])
    }

    fn task<'a>(config: &'a LanguageConfig, dataset: &'a LanguageDataset) -> LanguageTask<'a> {
        LanguageTask { config, dataset }
    }

    fn model(config: &LanguageConfig, dataset: &LanguageDataset, attention: &Attention, key: &RandomKey, device: &Device) -> LanguageModel {
        config.model(dataset.tokeniser.vocabulary_size(), attention).init(key, device)
    }

    fn score(
        task: &LanguageTask,
        model: &LanguageModel,
        _paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let mut scores = Scores::default();
        for (split, tokens) in [("test", &task.dataset.test), ("valid", &task.dataset.valid)] {
            let Some(total) = task.likelihood(model, tokens, Some(interrupt)) else { return Ok(None) };
            let LanguageData { context, stride, .. } = task.config.data;
            let signature =
                format!("unit:{}|context:{context}|stride:{stride}|memory:0|ends of lines:scored|units:{}", total.unit, total.units);
            if split == "test" {
                scores.push("perplexity", total.perplexity().unwrap_or(f64::NAN), signature.clone());
                scores.push("bits per unit", total.bits_per_unit().unwrap_or(f64::NAN), signature);
                continue;
            }
            scores.push("valid perplexity", total.perplexity().unwrap_or(f64::NAN), signature);
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![
            MetricColumn::new("perplexity", "test ppl").lower_is_better(),
            MetricColumn::new("bits per unit", "test bits").digits(3).lower_is_better(),
            MetricColumn::new("valid perplexity", "valid ppl").lower_is_better(),
        ]
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::language_modelling()
    }
}
