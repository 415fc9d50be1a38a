//! Pretrained models of Hugging Face: folders with `config.json` and `model.safetensors`, as one file or as indexed shards.
//!
//! ```no_run
//! use burn::tensor::Device;
//! use heedful_models::pretrained::Pretrained;
//!
//! let folder = Pretrained::open("gpt2")?;
//! let model = folder.language_model(&Device::flex())?;
//! // .. fine-tune it ..
//! folder.write(&model, "gpt2-mine")?;
//! # Ok::<(), heedful_models::pretrained::PretrainedError>(())
//! ```
//!
//! | `model_type` | classes | read as |
//! |---|---|---|
//! | `gemma2` | `Gemma2ForCausalLM`; `Gemma2ForSequenceClassification` | [`LanguageModel`]; [`Classifier`] |
//! | `gpt2` | `GPT2LMHeadModel`; `GPT2ForSequenceClassification` | [`LanguageModel`]; [`Classifier`] |
//! | `llama` | `LlamaForCausalLM`; `LlamaForSequenceClassification` | [`LanguageModel`]; [`Classifier`] |
//! | `mistral` | `MistralForCausalLM`; `MistralForSequenceClassification` | [`LanguageModel`]; [`Classifier`] |
//! | `qwen3` | `Qwen3ForCausalLM`; `Qwen3ForSequenceClassification` | [`LanguageModel`]; [`Classifier`] |
//! | `bert` | `BertForSequenceClassification`; `BertForMaskedLM` with its [head](Pretrained::with_masked_head); of others the encoder, and a [new output](Pretrained::with_new_output) | [`Classifier`] |
//! | `roberta` | `RobertaForSequenceClassification`; `RobertaForMaskedLM` with its [head](Pretrained::with_masked_head); of `RobertaModel` the encoder, and a new output | [`Classifier`] |
//! | `t5` | `T5ForConditionalGeneration` | [`Seq2SeqTransformer`] |
//! | `vit` | `ViTForImageClassification`; of `ViTModel` the encoder, and a new output | [`VisionTransformer`] |
//!
//! Logits equal those of transformers; the tests compare them, and gradients, with folders written by transformers. Every configuration field is read:
//! unsupported fields that change a model's computation are refused by name, as are unknown fields. Dropout is that of the configuration and active only in
//! training. To change it, or another option, change the configuration and read into the model that it builds:
//!
//! ```no_run
//! # use burn::tensor::Device;
//! # use heedful_models::pretrained::Pretrained;
//! let folder = Pretrained::open("gpt2")?;
//! let config = folder.language_model_config()?.clone().with_dropout(0.0).with_attention_dropout(0.0).with_seed(1);
//! let model = folder.read_into(config.build(&Device::flex())?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! 16-bit weights are converted to 32 bits in memory, and [`write`](Pretrained::write) rounds them back to their type. Tensors are read and written one by one,
//! so at most one of them is in memory besides the model.
//!
//! A decoder becomes a classifier on the state of its last token by a [new output](Pretrained::with_new_output), or is already one in the files. Its output is
//! a projection without biases.
//!
//! BERT and RoBERTa add a segment vector to every token, also for single texts. In RoBERTa all tokens have segment 0. Pass
//! [`Sentences`](crate::architectures::classifier::Sentences) with zero `segments`. Without segments, as in [`Classifier::forward`], no vector is added, and
//! logits differ from those of transformers.

pub mod presets;
pub mod swap;
pub mod torch;

mod architecture;
mod bert;
mod decoder;
mod error;
mod fields;
mod gemma2;
mod gpt2;
mod key_mapping;
mod llama;
mod reading;
mod roberta;
mod rotary;
mod shards;
mod t5;
mod vit;
mod writing;

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use heedful_attention::contract::error::ConfigError;
use serde_json::{Map, Value};

pub use self::architecture::Architecture;
pub use self::error::PretrainedError;
use self::fields::Fields;
use self::key_mapping::{Row, Table, Tied};
use self::shards::{Shards, without_mark};
use crate::architectures::classifier::{Classifier, ClassifierConfig};
use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
use crate::architectures::seq2seq::{Seq2SeqConfig, Seq2SeqTransformer};
use crate::architectures::vision::{VisionConfig, VisionTransformer};
use crate::block::initialisation::Initialisation;
use crate::pretrained::presets::PresetModel;

const CONFIG: &str = "config.json";

/// Folder of a pretrained model. Its weights stay in the files until a model reads them.
#[derive(Clone, Debug)]
pub struct Pretrained {
    folder: PathBuf,
    architecture: Architecture,
    model: PresetModel,
    files: Shards,
    table: Table,
    first_token: Option<u32>,
    last_token: Option<u32>,
    /// Whether a new output replaces that of the files.
    has_new_output: bool,
}

impl Pretrained {
    /// Reads the configuration of a folder and the headers of its files.
    ///
    /// # Errors
    /// A missing or incomplete file; a field of `config.json` that is missing, unknown or unsupported. The message names file, field and remedy.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, PretrainedError> {
        let folder = folder.as_ref();
        let path = folder.join(CONFIG);
        let text = fs::read_to_string(&path).map_err(PretrainedError::read(&path))?;
        let values: Map<String, Value> = serde_json::from_str(without_mark(&text)).map_err(|error| PretrainedError::Format {
            path: path.clone(),
            reason: format!("it is no table of JSON: {error}"),
            remedy: "fetch the file again",
        })?;
        let fields = Fields::new(&path, &values);
        let architecture = Architecture::named(&fields)?;
        let model = architecture.model(fields)?;
        model.validate().map_err(|source| PretrainedError::Configuration { path, source: source.into() })?;
        let files = Shards::open(folder)?;
        let table = match &model {
            PresetModel::Seq2Seq(config) => t5::table(config, t5::is_scaled(&values), &files),
            model => table(architecture, model, &files, true),
        };
        let token = |field: &str| match values.get(field)? {
            Value::Array(several) => several.first()?.as_u64(),
            one => one.as_u64(),
        };
        let either = |field, other| token(field).or_else(|| token(other)).and_then(|token| u32::try_from(token).ok());
        let (first_token, last_token) = match &model {
            // Defaults are those of transformers.
            PresetModel::Seq2Seq(_) => {
                (either("decoder_start_token_id", "pad_token_id").or(Some(0)), either("eos_token_id", "eos_token_id").or(Some(1)))
            }
            _ => (either("bos_token_id", "eos_token_id"), either("eos_token_id", "bos_token_id")),
        };
        Ok(Self { folder: folder.into(), architecture, model, files, table, first_token, last_token, has_new_output: false })
    }

    /// The folder with a new output of `outputs` classes (1: regression), replacing that of the files, if any. It is initialised by the configuration, like the
    /// pooler of a BERT without one in its files. A language model becomes a [`classifier`](Self::classifier) on the state of its last token, whose output has
    /// no biases, like `GPT2ForSequenceClassification` and `LlamaForSequenceClassification` of transformers.
    ///
    /// # Panics
    /// If the number is 0.
    pub fn with_new_output(mut self, outputs: usize) -> Self {
        assert!(outputs > 0, "a new output has at least 1 class");
        match &mut self.model {
            PresetModel::Classifier(config) => (config.outputs, config.masked_head) = (outputs, false),
            PresetModel::Vision(config) => config.classes = outputs,
            PresetModel::LanguageModel(config) => self.model = PresetModel::Classifier(decoder::classifier(config, outputs)),
            PresetModel::Seq2Seq(_) => return self,
        }
        self.table = table(self.architecture, &self.model, &self.files, false);
        self.has_new_output = true;
        self
    }

    /// The folder of a BERT or RoBERTa as a [masked language model](crate::architectures::masked): its [`classifier`](Self::classifier) has the
    /// [head](crate::architectures::masked::MaskedHead) of the files (`BertForMaskedLM`, `BertForPreTraining` or `RobertaForMaskedLM`), and
    /// [`masked_logits`](Classifier::masked_logits) equal those of transformers. The class output, missing in such files, and a missing pooler are initialised
    /// by the configuration; [`write`](Self::write) omits both.
    ///
    /// # Errors
    /// If it is another architecture.
    pub fn with_masked_head(mut self) -> Result<Self, PretrainedError> {
        match &mut self.model {
            PresetModel::Classifier(config) if matches!(self.architecture, Architecture::Bert | Architecture::Roberta) => {
                config.masked_head = true;
            }
            _ => return Err(self.other("masked language model")),
        }
        self.table = table(self.architecture, &self.model, &self.files, false);
        self.has_new_output = false;
        Ok(self)
    }

    /// Architecture of the model.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// Whether its files contain the output of a classifier.
    pub fn has_output(&self) -> bool {
        let mut output = self.architecture.output().iter();
        output.len() > 0 && output.all(|(_, tensor, _)| self.files.has(tensor))
    }

    /// Its weight files.
    pub fn weight_files(&self) -> impl Iterator<Item = &Path> {
        self.files.files.iter().map(|file| file.path.as_path())
    }

    /// First token of texts, if the configuration defines one: `bos_token_id`, or else the first of `eos_token_id`. For an encoder-decoder, the first token of
    /// targets: `decoder_start_token_id`, or else the padding token.
    pub fn first_token(&self) -> Option<u32> {
        self.first_token
    }

    /// Last token of texts, if the configuration defines one: the first of `eos_token_id`, or else `bos_token_id`. Sources and targets of an encoder-decoder
    /// end with it.
    pub fn last_token(&self) -> Option<u32> {
        self.last_token
    }

    /// Configuration of its model.
    pub fn model(&self) -> &PresetModel {
        &self.model
    }

    /// Configuration of its language model.
    ///
    /// # Errors
    /// If it is another kind of model.
    pub fn language_model_config(&self) -> Result<&LanguageModelConfig, PretrainedError> {
        match &self.model {
            PresetModel::LanguageModel(config) => Ok(config),
            _ => Err(self.other("language model")),
        }
    }

    /// Configuration of its classifier.
    ///
    /// # Errors
    /// If it is another kind of model.
    pub fn classifier_config(&self) -> Result<&ClassifierConfig, PretrainedError> {
        match &self.model {
            PresetModel::Classifier(config) => Ok(config),
            _ => Err(self.other("classifier of texts")),
        }
    }

    /// Configuration of its encoder-decoder.
    ///
    /// # Errors
    /// If it is another kind of model.
    pub fn seq2seq_config(&self) -> Result<&Seq2SeqConfig, PretrainedError> {
        match &self.model {
            PresetModel::Seq2Seq(config) => Ok(config),
            _ => Err(self.other("encoder-decoder")),
        }
    }

    /// Configuration of its image classifier.
    ///
    /// # Errors
    /// If it is another kind of model.
    pub fn vision_config(&self) -> Result<&VisionConfig, PretrainedError> {
        match &self.model {
            PresetModel::Vision(config) => Ok(config),
            _ => Err(self.other("classifier of images")),
        }
    }

    /// The language model with its weights.
    ///
    /// # Errors
    /// If it is another kind of model, or as [`read_into`](Self::read_into).
    pub fn language_model(&self, device: &Device) -> Result<LanguageModel, PretrainedError> {
        let config = self.language_model_config()?;
        let drawn = LanguageModelConfig { initialisation: self.drawn(config.initialisation), ..config.clone() };
        self.read_into(drawn.build(device).map_err(|source| self.configuration(source))?)
    }

    /// The classifier with its weights.
    ///
    /// # Errors
    /// If it is another kind of model, or as [`read_into`](Self::read_into).
    pub fn classifier(&self, device: &Device) -> Result<Classifier, PretrainedError> {
        let config = self.classifier_config()?;
        let drawn = ClassifierConfig { initialisation: self.drawn(config.initialisation), ..config.clone() };
        self.read_into(drawn.build(device).map_err(|source| self.configuration(source))?)
    }

    /// The encoder-decoder with its weights.
    ///
    /// # Errors
    /// If it is another kind of model, or as [`read_into`](Self::read_into).
    pub fn seq2seq(&self, device: &Device) -> Result<Seq2SeqTransformer, PretrainedError> {
        let config = self.seq2seq_config()?;
        let drawn = Seq2SeqConfig { initialisation: self.drawn(config.initialisation), ..config.clone() };
        self.read_into(drawn.build(device).map_err(|source| self.configuration(source))?)
    }

    /// The image classifier with its weights.
    ///
    /// # Errors
    /// If it is another kind of model, or as [`read_into`](Self::read_into).
    pub fn vision(&self, device: &Device) -> Result<VisionTransformer, PretrainedError> {
        let config = self.vision_config()?;
        let drawn = VisionConfig { initialisation: self.drawn(config.initialisation), ..config.clone() };
        self.read_into(drawn.build(device).map_err(|source| self.configuration(source))?)
    }

    /// Initialisation of weights that are overwritten immediately, unless some stay: the module defaults, which take the least time.
    fn drawn(&self, of_config: Initialisation) -> Initialisation {
        if self.draws_outputs() { of_config } else { Initialisation::Xavier }
    }

    /// Whether outputs may be missing in the files.
    fn draws_outputs(&self) -> bool {
        self.has_new_output || matches!(&self.model, PresetModel::Classifier(config) if config.masked_head)
    }

    fn configuration(&self, source: ConfigError) -> PretrainedError {
        PretrainedError::Configuration { path: self.folder.join(CONFIG), source: source.into() }
    }

    fn other(&self, wanted: &'static str) -> PretrainedError {
        let remedy = match &self.model {
            PresetModel::LanguageModel(_) => "call language_model, or classifier after with_new_output",
            PresetModel::Seq2Seq(_) => "call seq2seq",
            PresetModel::Classifier(_) => "call classifier",
            PresetModel::Vision(_) => "call vision",
        };
        PretrainedError::Kind { path: self.folder.join(CONFIG), found: self.architecture.to_string(), wanted, remedy }
    }

    /// Whether a parameter keeps its initial value.
    fn is_new(&self, parameter: &str) -> bool {
        self.draws_outputs()
            && !self.table.entries.contains_key(parameter)
            && (parameter.starts_with("output.") || parameter.starts_with("pooler."))
    }
}

/// Location of a model's parameters in its files.
fn table(architecture: Architecture, model: &PresetModel, files: &Shards, with_output: bool) -> Table {
    let names = architecture.names();
    let mut table = Table::default();
    match model {
        PresetModel::LanguageModel(config) => {
            let LanguageModelConfig { layers, attention, block, tied, .. } = config;
            decoder::add_body(&mut table, architecture, (*layers, attention, block), files);
            let (output, embedding) = decoder::output(architecture);
            if *tied {
                let remedy = "set tie_word_embeddings to false";
                table.copies.push(Tied { tensor: output.1, original: embedding, remedy });
            } else {
                names.add(&mut table, &[output], files);
            }
            return table;
        }
        PresetModel::Classifier(config) if architecture == Architecture::Bert => {
            names.add_layers(&mut table, config.layers, &config.attention, &[bert::LAYER], files);
            names.add(&mut table, bert::REST, files);
            if config.masked_head {
                names.add(&mut table, bert::MASKED_HEAD, files);
                table.copies.extend(bert::MASKED_HEAD_TIES);
            }
        }
        PresetModel::Classifier(config) if architecture == Architecture::Roberta => {
            names.add_layers(&mut table, config.layers, &config.attention, &[roberta::LAYER], files);
            names.add(&mut table, roberta::REST, files);
            let [(_, tensor, _), _] = roberta::SEGMENTS;
            let has_one = [tensor, tensor.trim_start_matches(names.prefix)].iter().any(|name| files.rows(name) == Some(1));
            names.add(&mut table, &[roberta::SEGMENTS[usize::from(!has_one)]], files);
            if config.masked_head {
                names.add(&mut table, roberta::MASKED_HEAD, files);
                table.copies.extend(roberta::MASKED_HEAD_TIES);
            }
        }
        PresetModel::Classifier(config) => {
            decoder::add_body(&mut table, architecture, (config.layers, &config.attention, &config.block), files);
            table.rename("decoder.", "encoder.");
        }
        PresetModel::Vision(config) => {
            let rows: &[&[Row]] = if config.block.qkv_bias { &[vit::LAYER, vit::QKV_BIASES] } else { &[vit::LAYER] };
            names.add_layers(&mut table, config.layers, &config.attention, rows, files);
            vit::add_rest(&mut table, config, files);
        }
        PresetModel::Seq2Seq(_) => {}
    }
    if with_output {
        names.add(&mut table, architecture.output(), files);
    } else {
        table.entries.retain(|parameter, entry| !parameter.starts_with("pooler.") || files.has(&entry.tensor));
    }
    table
}

#[cfg(test)]
mod tests;
