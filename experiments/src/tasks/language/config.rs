//! Configuration of the experiment.

use std::path::PathBuf;

use heedful_data::generate::Sizes;
use heedful_data::tokenise::TokeniserConfig;
use heedful_metrics::TextUnit;
use heedful_models::architectures::language_model::LanguageModelConfig;
use heedful_models::block::auxiliary::AuxiliaryLossesConfig;
use heedful_models::parts::adaptive_softmax::AdaptiveConfig;
use serde::{Deserialize, Serialize};

use crate::tasks::prelude::*;

/// Complete configuration of `lm`.
pub type LanguageConfig = Config<Language>;

/// Language modelling: the options that only `lm` has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Language {
    /// Which text, and in which pieces.
    pub data: LanguageData,
    /// How it is cut into tokens: `word`, `character`, `bpe` or `word-piece`; `pretrained` is that of the pretrained model.
    pub tokeniser: TokeniserConfig,
    /// Folder of a pretrained model of Hugging Face, from whose weights training goes on; by default none. It sets `tokeniser`, the attention,
    /// `tied`, `logit_softcap` and the fields of the table `model`.
    pub pretrained: Option<PathBuf>,
    /// Adaptive input vectors and an adaptive softmax, for large vocabularies of words or characters; by default none. `cutoffs` lists the first token of each
    /// cluster of rarer ones, and `div` divides the width of vectors from cluster to cluster. With `tied` both share their vectors.
    pub adaptive: Option<AdaptiveConfig>,
    /// Whether the output projection is the embedding's matrix.
    pub tied: bool,
    /// Whether the logits have biases.
    pub output_bias: bool,
    /// Soft bound of the logits (Gemma 2), by default none.
    pub logit_softcap: Option<f64>,
    /// Losses of intermediate layers and of further targets that are added in training, by default none. With `multiple_positions = false` only the last
    /// position of each sequence is trained.
    pub auxiliary: Option<AuxiliaryLossesConfig>,
    /// Test texts on which the histograms of the attention's weights before and after training are compared (0: none).
    pub histogram_texts: usize,
    /// Whether the folder of a run receives the loss of the test text by the position in the window, as a table and a picture.
    pub loss_by_position: bool,
}

/// The text of a language-modelling experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageData {
    /// Tokens that the model reads at once, at most `model.max_length`.
    pub context: usize,
    /// Sequences of `context` tokens in a batch.
    pub batch: usize,
    /// Tokens by which the window moves in evaluation, 1 to `context`: every token is scored once, with at least `context - stride` tokens before it.
    /// Evaluation with a memory has no moving window.
    pub stride: usize,
    /// Tokens before the context whose states the layers remember (0: none). The rows of a batch are then streams: each is a part of the text that is read from
    /// its beginning to its end.
    pub memory: usize,
    /// The same in evaluation, which reads the text as one stream; by default as in training.
    pub evaluation_memory: Option<usize>,
    /// Training words of the built-in text.
    pub generated_words: usize,
}

impl Default for Language {
    fn default() -> Self {
        let tokeniser = TokeniserConfig::Word { vocabulary: None, min_frequency: 1 };
        Self {
            data: LanguageData::default(),
            tokeniser,
            pretrained: None,
            adaptive: None,
            tied: true,
            output_bias: false,
            logit_softcap: None,
            auxiliary: None,
            histogram_texts: 0,
            loss_by_position: false,
        }
    }
}

impl Default for LanguageData {
    fn default() -> Self {
        Self { context: 64, batch: 16, stride: 32, memory: 0, evaluation_memory: None, generated_words: Sizes::LANGUAGE.train }
    }
}

impl LanguageData {
    /// Tokens whose states are remembered in evaluation.
    pub fn evaluation_memory(&self) -> usize {
        self.evaluation_memory.unwrap_or(self.memory)
    }

    /// Most tokens that attention looks over at once.
    pub fn reach(&self) -> usize {
        self.context.saturating_add(self.memory.max(self.evaluation_memory()))
    }
}

impl LanguageConfig {
    /// Memory lengthens what attention looks over, which the size of the context says nothing about.
    pub(crate) fn max_length(&self) -> usize {
        self.model.max_length.max(self.own.data.reach())
    }

    pub(crate) fn model(&self, vocabulary: usize, attention: &Attention) -> LanguageModelConfig {
        let Language { adaptive, tied, output_bias, logit_softcap, auxiliary, .. } = &self.own;
        let settings = ModelSettings { max_length: self.max_length(), ..self.model.clone() };
        LanguageModelConfig {
            adaptive: adaptive.clone(),
            output_bias: *output_bias,
            logit_softcap: *logit_softcap,
            auxiliary: *auxiliary,
            tied: *tied,
            ..settings.language_model(vocabulary, &attention.layout.decoder)
        }
    }
}

impl Language {
    pub(super) fn unit(&self) -> TextUnit {
        match self.tokeniser {
            TokeniserConfig::Word { .. } => TextUnit::Word,
            TokeniserConfig::Character {} => TextUnit::Character,
            TokeniserConfig::Bpe { .. } | TokeniserConfig::WordPiece { .. } | TokeniserConfig::Pretrained {} => TextUnit::Subword,
        }
    }
}
