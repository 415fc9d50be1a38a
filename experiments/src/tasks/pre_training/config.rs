//! Configuration of the experiments.

use std::path::PathBuf;

use heedful_data::generate::Sizes;
use heedful_data::tokenise::{CLASSIFY, MASK, SEPARATE, SPECIAL_TOKENS, TokeniserConfig};
use heedful_models::architectures::masked::MaskingConfig;
use heedful_models::architectures::span_corruption::SpanCorruptionConfig;
use serde::{Deserialize, Serialize};

use crate::session::experiment::Config;
use crate::tasks::text_to_text::Decoding;
use crate::train::{ScheduleConfig, TrainingConfig};

/// What only the experiments of pre-training have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreTrainingOptions {
    /// Which text, and in which pieces.
    pub data: PreTrainingData,
    /// How it is cut into tokens.
    pub tokeniser: TokeniserConfig,
    /// Folder of a pretrained BERT or RoBERTa of Hugging Face with its masked-LM head, from whose weights the training of an encoder goes on; by default none. It
    /// sets `tokeniser`, the attention and the fields of the table `model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretrained: Option<PathBuf>,
    /// What is hidden from an encoder.
    pub masking: Masking,
    /// What is hidden from an encoder-decoder.
    pub spans: Spans,
    /// Encoder-decoder: tokens in an evaluation batch. There is no search.
    pub decoding: Decoding,
}

/// The text of a pre-training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreTrainingData {
    /// Tokens of a sequence, at most `model.max_length`; the first and the last token of an encoder are those of class and end.
    pub context: usize,
    /// Sequences in a batch.
    pub batch: usize,
    /// Validation and test sequences at most, by default all.
    pub evaluated: Option<usize>,
    /// Training words of the built-in text.
    pub generated_words: usize,
}

/// The share of hidden tokens and their replacements (Devlin et al. 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Masking {
    /// Share of the tokens that the model predicts.
    pub probability: f64,
    /// Share of these that the mask token replaces.
    pub masked: f64,
    /// Share of these that a random token replaces.
    pub random: f64,
}

/// How much is hidden, and in which spans (Raffel et al. 2020).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spans {
    /// Share of the tokens that is hidden.
    pub density: f64,
    /// Mean length of a span.
    pub mean_span: f64,
}

/// Tokens that stand around the text of an encoder, and for what is hidden of it.
#[derive(Clone, Debug)]
pub(super) struct SpecialTokens {
    /// Before the text.
    pub(super) classify: u32,
    /// After the text.
    pub(super) separate: u32,
    pub(super) mask: u32,
    /// How many tokens, from 0 on, are never hidden and never drawn.
    pub(super) first: usize,
    /// Others that are never hidden.
    pub(super) kept: Vec<u32>,
}

impl SpecialTokens {
    /// Those of tokenisers that are trained here.
    pub(super) const OWN: Self = Self { classify: CLASSIFY, separate: SEPARATE, mask: MASK, first: SPECIAL_TOKENS.len(), kept: Vec::new() };
}

impl Default for PreTrainingOptions {
    fn default() -> Self {
        Self {
            data: PreTrainingData::default(),
            tokeniser: TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            pretrained: None,
            masking: Masking::default(),
            spans: Spans::default(),
            decoding: Decoding::default(),
        }
    }
}

impl Default for PreTrainingData {
    fn default() -> Self {
        Self { context: 64, batch: 32, evaluated: None, generated_words: Sizes::LANGUAGE.train }
    }
}

impl Default for Masking {
    fn default() -> Self {
        let MaskingConfig { probability, masked, random, .. } = MaskingConfig::default();
        Self { probability, masked, random }
    }
}

impl Default for Spans {
    fn default() -> Self {
        let SpanCorruptionConfig { density, mean_span, .. } = SpanCorruptionConfig::default();
        Self { density, mean_span }
    }
}

/// Changes the defaults that all experiments share.
pub(super) fn defaults<E>(config: &mut Config<E>) {
    config.compare(
        "dot-product,synthesizer-dense,synthesizer-random,synthesizer-dense+dot-product,synthesizer-random+dot-product,lightweight-conv,dynamic-conv",
        "",
    );
    config.model.dropout = 0.0;
    let schedule = ScheduleConfig::Linear { warmup: 60, end: 1e-4 };
    config.training = TrainingConfig { steps: 600, learning_rate: 4e-3, schedule, ..TrainingConfig::every(200) };
}

impl PreTrainingOptions {
    pub(super) fn masking(&self, vocabulary: usize, tokens: &SpecialTokens) -> MaskingConfig {
        let Masking { probability, masked, random } = self.masking;
        let SpecialTokens { mask, first, ref kept, .. } = *tokens;
        MaskingConfig { vocabulary, mask, special: first, kept: kept.clone(), probability, masked, random }
    }

    pub(super) fn spans(&self, vocabulary: usize) -> SpanCorruptionConfig {
        let Spans { density, mean_span } = self.spans;
        SpanCorruptionConfig { sentinel: vocabulary as u32, density, mean_span }
    }
}
