//! Fields of `config.json`.
//!
//! Every field is read, declared to have no effect on the model's computation, or refused: an ignored field could matter.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

use serde_json::{Map, Value};

use super::error::PretrainedError;
use crate::parts::feed_forward::Activation;

/// Fields without effect on the computation, for all architectures: names, training, generation, and the library's own metadata.
const WITHOUT_EFFECT: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
];

/// Upper bound for the number of layers: that many tensor names fit into memory.
const MOST_LAYERS: usize = 65_536;

/// Fields of a file, or of a table in it.
pub(super) struct Fields<'a> {
    path: &'a Path,
    /// Prefix of names in messages: empty, or the name of the table and a point.
    table: String,
    values: &'a Map<String, Value>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Fields<'a> {
    /// Fields of a whole file.
    pub(super) fn new(path: &'a Path, values: &'a Map<String, Value>) -> Self {
        Self { path, table: String::new(), values, read: RefCell::default() }
    }

    /// A field that is present and not null.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(field.to_owned());
        self.values.get(field).filter(|value| !value.is_null())
    }

    /// Whether a field is present, possibly as null.
    pub(super) fn is_given(&self, field: &str) -> bool {
        self.values.contains_key(field)
    }

    /// Error for an invalid field.
    pub(super) fn wrong(&self, field: &str, remedy: impl Into<String>) -> PretrainedError {
        let value = self.values.get(field).map_or_else(|| "not given".to_owned(), Value::to_string);
        PretrainedError::Field { path: self.path.into(), field: format!("{}{field}", self.table), value, remedy: remedy.into() }
    }

    /// Fields of a table, if present.
    pub(super) fn table(&self, field: &str) -> Result<Option<Self>, PretrainedError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let values = value.as_object().ok_or_else(|| self.wrong(field, "give a table"))?;
        Ok(Some(Self { path: self.path, table: format!("{}{field}.", self.table), values, read: RefCell::default() }))
    }

    /// A field, if present, that cannot be null: transformers refuses null, or its models fail.
    fn given(&self, field: &str, default: impl Display) -> Result<Option<&'a Value>, PretrainedError> {
        match self.get(field) {
            None if self.is_given(field) => {
                Err(self.wrong(field, format!("null stands for nothing here; take it out, and it is {default}")))
            }
            value => Ok(value),
        }
    }

    /// A number of at least 1, if present and not null.
    pub(super) fn optional_size(&self, field: &str) -> Result<Option<usize>, PretrainedError> {
        let size = |value: &Value| {
            // Products of two do not overflow.
            let size = value.as_u64().filter(|size| (1..=u64::from(u32::MAX)).contains(size)).and_then(|size| usize::try_from(size).ok());
            size.ok_or_else(|| self.wrong(field, "give a whole number of at least 1 and at most 4294967295"))
        };
        self.get(field).map(size).transpose()
    }

    /// A number of at least 1.
    pub(super) fn size(&self, field: &str) -> Result<usize, PretrainedError> {
        self.optional_size(field)?.ok_or_else(|| self.wrong(field, "give a whole number of at least 1"))
    }

    /// A number of layers.
    pub(super) fn layers(&self, field: &str) -> Result<usize, PretrainedError> {
        let layers = self.size(field)?;
        if layers > MOST_LAYERS { Err(self.wrong(field, format!("give at most {MOST_LAYERS}"))) } else { Ok(layers) }
    }

    /// A number of at least 1, or the default of transformers.
    pub(super) fn size_or(&self, field: &str, default: usize) -> Result<usize, PretrainedError> {
        self.given(field, default)?;
        Ok(self.optional_size(field)?.unwrap_or(default))
    }

    /// A number, if present and not null.
    pub(super) fn optional_number(&self, field: &str) -> Result<Option<f64>, PretrainedError> {
        self.get(field).map(|value| value.as_f64().ok_or_else(|| self.wrong(field, "give a number"))).transpose()
    }

    /// A number, or the default of transformers.
    pub(super) fn number_or(&self, field: &str, default: f64) -> Result<f64, PretrainedError> {
        self.given(field, default)?;
        Ok(self.optional_number(field)?.unwrap_or(default))
    }

    /// A number other than 0, or the default of transformers if missing, null or 0.
    pub(super) fn nonzero_or(&self, field: &str, default: f64) -> Result<f64, PretrainedError> {
        Ok(self.optional_number(field)?.filter(|&number| number != 0.0).unwrap_or(default))
    }

    /// A flag, or the default of transformers.
    pub(super) fn flag_or(&self, field: &str, default: bool) -> Result<bool, PretrainedError> {
        let flag = |value: &Value| value.as_bool().ok_or_else(|| self.wrong(field, "give true or false"));
        self.given(field, default)?.map_or(Ok(default), flag)
    }

    /// A string, if present. It is not null.
    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>, PretrainedError> {
        if self.is_given(field) && self.get(field).is_none() {
            return Err(self.wrong(field, "give a text, or take it out"));
        }
        self.get(field).map(|value| value.as_str().ok_or_else(|| self.wrong(field, "give a text"))).transpose()
    }

    /// Refuses any value of a field other than this one, the default.
    pub(super) fn only(&self, field: &str, supported: &Value) -> Result<(), PretrainedError> {
        self.given(field, supported)?;
        self.only_or_null(field, supported)
    }

    /// Refuses any value of a field other than this one, the default, or null.
    pub(super) fn only_or_null(&self, field: &str, supported: &Value) -> Result<(), PretrainedError> {
        match self.get(field) {
            Some(value) if value != supported && value.as_f64().is_none_or(|value| supported.as_f64() != Some(value)) => {
                Err(self.wrong(field, format!("only {supported} is supported")))
            }
            _ => Ok(()),
        }
    }

    /// Dropout probabilities that are one option here: the first, which all others must equal.
    pub(super) fn one_dropout(&self, fields: &[&str], default: f64) -> Result<f64, PretrainedError> {
        let (first, others) = fields.split_first().expect("at least one field is named");
        let dropout = self.number_or(first, default)?;
        for field in others {
            if self.number_or(field, default)? != dropout {
                let remedy = format!("give the value of {}{first}, {dropout}: both places have one dropout here", self.table);
                return Err(self.wrong(field, remedy));
            }
        }
        Ok(dropout)
    }

    /// A non-linearity, or the named default of transformers.
    pub(super) fn activation(&self, field: &str, default: &str) -> Result<Activation, PretrainedError> {
        self.named_activation(field, self.text(field)?.unwrap_or(default))
    }

    /// The non-linearity with this name.
    pub(super) fn named_activation(&self, field: &str, name: &str) -> Result<Activation, PretrainedError> {
        match name {
            "gelu" | "gelu_python" => Ok(Activation::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" | "gelu_accurate" => Ok(Activation::GeluTanh),
            "quick_gelu" => Ok(Activation::QuickGelu),
            "relu" => Ok(Activation::Relu),
            "silu" | "swish" => Ok(Activation::Silu),
            _ => Err(self.wrong(field, "only gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu and silu are supported")),
        }
    }

    /// Number of classes: that of the labels, or 2.
    pub(super) fn labels(&self) -> Result<usize, PretrainedError> {
        match self.get("id2label") {
            Some(labels) => {
                let count = labels.as_object().map(Map::len).filter(|&count| count > 0);
                count.ok_or_else(|| self.wrong("id2label", "give a table with a name for each class"))
            }
            None => Ok(self.optional_size("num_labels")?.unwrap_or(2)),
        }
    }

    /// Refuses fields that were not read and are not known to have no effect.
    pub(super) fn finish(self, without_effect: &[&str]) -> Result<(), PretrainedError> {
        if !self.read.borrow().contains("is_encoder_decoder") {
            self.only_or_null("is_encoder_decoder", &Value::Bool(false))?;
        }
        self.only_or_null("add_cross_attention", &Value::Bool(false))?;
        self.only_or_null("is_decoder", &Value::Bool(false))?;
        self.only_or_null("pruned_heads", &Value::Object(Map::new()))?;
        let read = self.read.borrow();
        let is_known =
            |name: &str| read.contains(name) || without_effect.contains(&name) || self.table.is_empty() && WITHOUT_EFFECT.contains(&name);
        match self.values.iter().find(|(name, value)| !value.is_null() && !is_known(name)) {
            Some((name, _)) => Err(self.wrong(name, "it is not known here; take it out if it changes nothing of what the model computes")),
            None => Ok(()),
        }
    }
}
