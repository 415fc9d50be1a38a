//! Supported architectures.

use std::fmt;

use serde_json::Value;

use super::error::PretrainedError;
use super::fields::Fields;
use super::key_mapping::{Names, Place, Row};
use super::{bert, decoder, gemma2, gpt2, llama, roberta, t5, vit};
use crate::pretrained::presets::PresetModel;

/// Supported architectures: `model_type` in `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Architecture {
    /// `bert` (Devlin et al. 2019).
    Bert,
    /// `gemma2` (Gemma Team 2024).
    Gemma2,
    /// `gpt2` (Radford et al. 2019).
    Gpt2,
    /// `llama` (Touvron et al. 2023).
    Llama,
    /// `mistral` (Jiang et al. 2023).
    Mistral,
    /// `qwen3` (Yang et al. 2025).
    Qwen3,
    /// `roberta` (Liu et al. 2019).
    Roberta,
    /// `t5` (Raffel et al. 2020).
    T5,
    /// `vit` (Dosovitskiy et al. 2021).
    Vit,
}

impl Architecture {
    /// All architectures.
    pub const ALL: [Self; 9] =
        [Self::Bert, Self::Gemma2, Self::Gpt2, Self::Llama, Self::Mistral, Self::Qwen3, Self::Roberta, Self::T5, Self::Vit];

    /// The architecture that `config.json` names.
    pub(super) fn named(fields: &Fields) -> Result<Self, PretrainedError> {
        let name = fields.text("model_type")?;
        let architecture = Self::ALL.into_iter().find(|architecture| Some(architecture.name()) == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            fields.wrong("model_type", format!("only {names} are supported"))
        })?;
        match class(fields) {
            Some(class) if !architecture.classes().contains(&class) => {
                Err(fields.wrong("architectures", format!("only {} are supported", architecture.classes().join(", "))))
            }
            _ => Ok(architecture),
        }
    }

    /// Its `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::Gemma2 => "gemma2",
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen3 => "qwen3",
            Self::Roberta => "roberta",
            Self::T5 => "t5",
            Self::Vit => "vit",
        }
    }

    /// Supported classes of transformers. The first is that of classifiers.
    pub(super) fn classes(self) -> &'static [&'static str] {
        match self {
            Self::Bert => &["BertForSequenceClassification", "BertModel", "BertForPreTraining", "BertForMaskedLM"],
            Self::Gemma2 => &["Gemma2ForSequenceClassification", "Gemma2ForCausalLM"],
            Self::Gpt2 => &["GPT2ForSequenceClassification", "GPT2LMHeadModel", "GPT2Model"],
            Self::Llama => &["LlamaForSequenceClassification", "LlamaForCausalLM"],
            Self::Mistral => &["MistralForSequenceClassification", "MistralForCausalLM"],
            Self::Qwen3 => &["Qwen3ForSequenceClassification", "Qwen3ForCausalLM"],
            Self::Roberta => &["RobertaForSequenceClassification", "RobertaModel", "RobertaForMaskedLM"],
            Self::T5 => &["T5ForConditionalGeneration"],
            Self::Vit => &["ViTForImageClassification", "ViTModel"],
        }
    }

    pub(super) fn names(self) -> &'static Names {
        match self {
            Self::Bert => &bert::NAMES,
            Self::Gpt2 => &gpt2::NAMES,
            Self::Gemma2 | Self::Llama | Self::Mistral | Self::Qwen3 => &llama::NAMES,
            Self::Roberta => &roberta::NAMES,
            Self::T5 => &t5::NAMES,
            Self::Vit => &vit::NAMES,
        }
    }

    /// Rows of its classifier outputs.
    pub(super) fn output(self) -> &'static [Row] {
        match self {
            Self::Bert | Self::Vit => OUTPUT,
            Self::Roberta => roberta::OUTPUT,
            Self::T5 => &[],
            Self::Gemma2 | Self::Gpt2 | Self::Llama | Self::Mistral | Self::Qwen3 => decoder::SCORE,
        }
    }

    /// Rows that include the maps before these outputs.
    pub(super) fn poolers(self) -> &'static [Row] {
        if self == Self::Roberta { roberta::REST } else { bert::REST }
    }

    pub(super) fn model(self, fields: Fields) -> Result<PresetModel, PretrainedError> {
        let outputs = if class(&fields) == Some(self.classes()[0]) { Some(fields.labels()?) } else { None };
        let model = self.body(fields)?;
        Ok(match (model, outputs) {
            (PresetModel::LanguageModel(config), Some(outputs)) => PresetModel::Classifier(decoder::classifier(&config, outputs)),
            (model, _) => model,
        })
    }

    /// The model with its pre-training outputs, for architectures with several.
    fn body(self, fields: Fields) -> Result<PresetModel, PretrainedError> {
        Ok(match self {
            Self::Bert => PresetModel::Classifier(bert::config(fields)?),
            Self::Gemma2 => PresetModel::LanguageModel(gemma2::config(fields)?),
            Self::Gpt2 => PresetModel::LanguageModel(gpt2::config(fields)?),
            Self::Llama => PresetModel::LanguageModel(llama::llama(fields)?),
            Self::Mistral => PresetModel::LanguageModel(llama::mistral(fields)?),
            Self::Qwen3 => PresetModel::LanguageModel(llama::qwen3(fields)?),
            Self::Roberta => PresetModel::Classifier(roberta::config(fields)?),
            Self::T5 => PresetModel::Seq2Seq(t5::config(fields)?),
            Self::Vit => PresetModel::Vision(vit::config(fields)?),
        })
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Outputs of encoder classifiers.
const OUTPUT: &[Row] = &[("output.weight", "classifier.weight", Place::Transposed), ("output.bias", "classifier.bias", Place::Same)];

/// The class of transformers that wrote the files.
fn class<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    fields.get("architectures").and_then(|classes| classes.get(0)).and_then(Value::as_str)
}
