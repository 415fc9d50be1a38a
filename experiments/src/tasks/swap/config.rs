//! Configuration of the experiment.

use std::path::PathBuf;

use heedful_data::tokenise::TokeniserConfig;
use heedful_models::block::auxiliary::AuxiliaryLossesConfig;
use serde::{Deserialize, Serialize};

use super::start::RunStart;
use crate::session::options::RunSettings;
use crate::tasks::language::{Language, LanguageConfig, LanguageData};
use crate::tasks::prelude::*;

/// Complete configuration of `swap`.
pub type SwapConfig = Config<Swap>;

/// Swapping the attention of a trained language model: the options that only `swap` has. Options that `lm` also has configure the model that all contenders
/// start from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Swap {
    /// Which text, and in which pieces.
    pub data: LanguageData,
    /// How it is cut into tokens: `word`, `character`, `bpe` or `word-piece`; `pretrained` is the tokeniser of a run that started from a pretrained model.
    pub tokeniser: TokeniserConfig,
    /// Whether the output projection is the embedding's matrix.
    pub tied: bool,
    /// Whether the logits have biases.
    pub output_bias: bool,
    /// The bound of the logits (Gemma 2), by default none.
    pub logit_softcap: Option<f64>,
    /// Losses of intermediate layers and of further targets that are added in training, by default none.
    pub auxiliary: Option<AuxiliaryLossesConfig>,
    /// The model that all contenders start from.
    pub start: SwapStart,
}

/// The model that all contenders start from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwapStart {
    /// Output folder of `lm`, whose configuration lies beneath this one; by default a model is trained first.
    pub run: Option<PathBuf>,
    /// Which attention or model of that folder; by default its first.
    pub model: Option<String>,
    /// Seed of its run for all seeds; by default each seed starts from the run of the same seed.
    pub seed: Option<u64>,
    /// The attention of the model that all contenders start from.
    pub attention: String,
    /// Folder of the pretrained model of Hugging Face that the run started from, whose tokens it reads; the run says which.
    pub pretrained: Option<PathBuf>,
    /// Optimiser steps of a model that is trained first, by default as many as in `lm`; its training is otherwise the same.
    pub steps: Option<u64>,
    /// Where a model that is trained first is; unknown where no command has an output folder yet.
    #[serde(skip)]
    pub(super) place: Option<PathBuf>,
}

impl Default for Swap {
    fn default() -> Self {
        let Language { data, tokeniser, tied, output_bias, logit_softcap, auxiliary, .. } = Language::default();
        Self { data, tokeniser, tied, output_bias, logit_softcap, auxiliary, start: SwapStart::default() }
    }
}

impl Default for SwapStart {
    fn default() -> Self {
        Self { run: None, model: None, seed: None, attention: "dot-product".to_owned(), pretrained: None, steps: None, place: None }
    }
}

impl SwapStart {
    pub(super) fn check(&self, settings: &Settings<SwapConfig>) -> Result<(), ExperimentError> {
        let without_run = "it selects a run of `lm`, and none is given; give --run RUN, or leave it out";
        settings.require("start.model", self.run.is_some() || self.model.is_none(), without_run)?;
        settings.require("start.seed", self.run.is_some() || self.seed.is_none(), without_run)?;
        let trained =
            "the model of a run is trained already; leave it out, or leave --run out (--steps says how long contenders are trained)";
        settings.require("start.steps", self.run.is_none() || self.steps.is_none(), trained)?;
        settings.require("start.steps", self.steps != Some(0), "it must be at least 1")?;
        let begun = self.run.as_deref().map(|run| RunStart::open(run)?.pretrained(self.model.as_deref())).transpose()?.flatten();
        let remedy = match (&self.run, &begun) {
            (None, _) => without_run.to_owned(),
            (Some(run), None) => format!("`{}` began with no pretrained model; leave it out", run.display()),
            (Some(run), Some(begun)) => format!("`{}` began with `{}`; leave it out", run.display(), begun.display()),
        };
        settings.require("start.pretrained", self.pretrained == begun, remedy)?;
        let tokeniser = &settings.value.own.tokeniser;
        let (is_own, is_pretrained) = (*tokeniser == TokeniserConfig::Pretrained {}, begun.is_some());
        let remedy = match &self.run {
            Some(_) => "the model of the run reads only the tokens of the run; leave it out",
            None => "this kind needs a pretrained model; give --run RUN of `lm --pretrained`, or another kind",
        };
        Ok(settings.require("tokeniser.kind", is_own == is_pretrained, remedy)?)
    }

    /// The seed of the model that the runs of a seed begin with.
    pub(super) fn seed_of(&self, seed: u64) -> u64 {
        self.seed.unwrap_or(seed)
    }
}

impl SwapConfig {
    /// The configuration of `lm` that means the same text, model and training.
    pub(super) fn language(&self) -> LanguageConfig {
        let Config { run, model, mechanisms, training, slurm, own } = self.clone();
        let Swap { data, tokeniser, tied, output_bias, logit_softcap, auxiliary, start } = own;
        let own =
            Language { data, tokeniser, tied, output_bias, logit_softcap, auxiliary, pretrained: start.pretrained, ..Language::default() };
        Config { run, model, mechanisms, training, slurm, own }
    }

    /// The runs of `lm` that train what all begin with.
    pub(super) fn first(&self) -> LanguageConfig {
        let SwapStart { attention, steps, .. } = &self.own.start;
        let run = RunSettings { attention: vec![attention.clone()], models: Vec::new(), ..self.run.clone() };
        let usual = LanguageConfig::default().training;
        let training = TrainingConfig { steps: steps.unwrap_or(usual.steps), ..usual };
        LanguageConfig { run, training, ..self.language() }
    }
}
