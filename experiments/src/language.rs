//! Language modelling: the experiment `lm`.

mod config;
mod models;
mod task;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::depth::DepthConfig;
use heedful_models::language_model::LanguageModel;

use crate::analyse::{Legible, Reading, check_length};
use crate::comparison::{Attention, Comparison, Dataset, NamedModel, Scores, folder_name};
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

    fn tokeniser(&self) -> Option<&Tokeniser> {
        Some(&self.tokeniser)
    }
}

/// The comparison of attentions on language modelling.
#[derive(Debug)]
pub struct Language;

impl Comparison for Language {
    const NAME: &'static str = "lm";
    const TITLE: &'static str = "Language modelling";
    const MODELS: &'static [NamedModel] = models::MODELS;
    const DATA: &'static [&'static str] = &["tokeniser", "data.generated_words"];
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
        if data.memory.max(data.evaluation_memory()) > 0 {
            let refuse = |problem: &str| Err(settings.refuse("data.memory", problem).into());
            if model.depth == DepthConfig::Reversible {
                return refuse("a reversible model keeps no inputs of its layers that it could remember; give 0, or another model.depth");
            }
            if model.separable_feed_forward {
                return refuse(
                    "separable feed-forward networks do not remember the segment before; give 0, or model.separable_feed_forward=false",
                );
            }
        }
        if data.memory > 0 && settings.value.auxiliary.is_some() {
            let problem = "auxiliary losses are for contexts without a memory; leave them out, or give --set data.memory=0";
            return Err(settings.refuse("auxiliary", problem).into());
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
        Ok(vec![LanguageDataset { name, corpus, tokeniser, train, valid, test }])
    }

    fn fits(config: &LanguageConfig, dataset: &LanguageDataset, _attention: &Attention) -> Result<(), ExperimentError> {
        let LanguageData { context, batch, memory, .. } = config.data;
        let streams = if memory > 0 { batch } else { 1 };
        if dataset.train.len() <= streams * context + 1 {
            let tokens = dataset.train.len();
            return Err(ExperimentError::usage(format!(
                "data.context = {context}: the training text has only {tokens} tokens for {streams} {}; give --set data.context=N with a smaller N",
                if streams == 1 { "sequence" } else { "streams (data.batch)" }
            )));
        }
        Ok(())
    }

    fn task<'a>(config: &'a LanguageConfig, dataset: &'a LanguageDataset, _attention: &Attention) -> LanguageTask<'a> {
        LanguageTask::new(config, dataset)
    }

    fn model(
        config: &LanguageConfig,
        dataset: &LanguageDataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Result<LanguageModel, ExperimentError> {
        Ok(config.model(dataset.tokeniser.vocabulary_size(), attention).init(key, device))
    }

    fn score(
        _config: &LanguageConfig,
        _dataset: &LanguageDataset,
        task: &LanguageTask,
        model: &LanguageModel,
        _paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let mut scores = Scores::default();
        for (split, tokens) in [("test", &task.dataset.test), ("valid", &task.dataset.valid)] {
            let Some(total) = task.likelihood(model, tokens, Some(interrupt)) else { return Ok(None) };
            let LanguageData { context, stride, .. } = task.config.data;
            let memory = task.config.data.evaluation_memory();
            let stride = if memory > 0 { context } else { stride };
            let signature =
                format!("unit:{}|context:{context}|stride:{stride}|memory:{memory}|ends of lines:scored|units:{}", total.unit, total.units);
            if split == "test" {
                scores.push("perplexity", total.perplexity().unwrap_or(f64::NAN), signature.clone());
                scores.push("bits per unit", total.bits_per_unit().unwrap_or(f64::NAN), signature);
                continue;
            }
            scores.push("valid perplexity", total.perplexity().unwrap_or(f64::NAN), signature);
        }
        if let Some(auxiliary) = &model.auxiliary {
            scores.notes.push(format!("{} of the parameters are of auxiliary losses and serve training alone", auxiliary.num_params()));
        }
        if !task.config.run.models.is_empty() {
            let LanguageData { context, memory, .. } = task.config.data;
            scores.metrics.extend([("context", context), ("memory", memory)].map(|(name, tokens)| (name.to_owned(), tokens as f64)));
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![
            MetricColumn::new("perplexity", "test ppl").lower_is_better(),
            MetricColumn::new("bits per unit", "test bits").digits(3).lower_is_better(),
            MetricColumn::new("valid perplexity", "valid ppl").lower_is_better(),
            MetricColumn::new("context", "context").digits(0).defined_as("tokens that are read at once in training"),
            MetricColumn::new("memory", "memory").digits(0).defined_as("tokens before them whose states are remembered in training"),
        ]
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::language_modelling()
    }
}

impl Legible for Language {
    fn texts(config: &LanguageConfig, dataset: &LanguageDataset, count: usize) -> Vec<String> {
        let fits = |line: &&String| (2..config.data.context).contains(&dataset.tokeniser.encode(line).len());
        dataset.corpus.test.iter().filter(fits).take(count).cloned().collect()
    }

    fn read(
        config: &LanguageConfig,
        dataset: &LanguageDataset,
        _attention: &Attention,
        model: &LanguageModel,
        text: &str,
        probe: &mut Probe,
    ) -> Result<Reading, ExperimentError> {
        let tokens: Vec<u32> = std::iter::once(END).chain(dataset.tokeniser.encode(text)).collect();
        check_length(text, tokens.len(), config.data.context)?;
        let device = model.embedding.tokens.weight.device();
        let ids: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
        model.hidden(Tensor::from_data(TensorData::new(ids, [1, tokens.len()]), &device), &[], None, probe);
        Ok(Reading { decoder: dataset.tokeniser.words(&tokens), ..Reading::default() })
    }
}
