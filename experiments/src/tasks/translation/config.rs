//! Configuration of the experiment.

use std::path::PathBuf;

use heedful_data::generate::Sizes;
use heedful_metrics::Bleu;
use heedful_models::architectures::seq2seq::{Seq2SeqConfig, Tying};
use serde::{Deserialize, Serialize};

use heedful_data::tokenise::TokeniserConfig;
#[cfg(doc)]
use heedful_metrics::Tokeniser;

use crate::tasks::prelude::*;
use crate::tasks::text_to_text::Decoding;

/// Complete configuration of `mt`.
pub type TranslationConfig = Config<Translation>;

/// The comparison of attentions on machine translation: its own options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Translation {
    /// Which text.
    pub data: TranslationData,
    /// How it is cut into tokens: one vocabulary for both languages; `pretrained` is the tokeniser of the pretrained model.
    pub tokeniser: TokeniserConfig,
    /// Folder of a pretrained T5 of Hugging Face, from whose weights training goes on; by default none. It sets `tokeniser`, `prefix`, the attention, `tying`,
    /// `label_smoothing` and the fields of the table `model`.
    pub pretrained: Option<PathBuf>,
    /// Text before each source of a pretrained model, which names its task: by default, between languages of T5 (`en`, `de`, `fr`, `ro`),
    /// `translate English to German: ` with their names, and none for the built-in corpus.
    pub prefix: Option<String>,
    /// Weight tying: `three-way`, `output` or `none`.
    pub tying: Tying,
    /// ε of label smoothing, in `[0, 1)`.
    pub label_smoothing: f64,
    /// The search for translations.
    pub decoding: Decoding,
    /// How BLEU is computed. Without a `tokeniser`, it uses the one that sacreBLEU chooses for the target language ([`Tokeniser::of_language`]).
    pub bleu: Bleu,
}

/// The text of a translation experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationData {
    /// Source language, the extension of the source files.
    pub source: String,
    /// Target language.
    pub target: String,
    /// Tokens of the longer side in a batch, padding included.
    pub batch_tokens: usize,
    /// File of synonyms for METEOR, a set of words on each line; by default none. METEOR is computed where the target language is `en`.
    pub synonyms: Option<PathBuf>,
    /// Training pairs of the built-in corpus.
    pub generated_pairs: usize,
}

impl Default for Translation {
    fn default() -> Self {
        Self {
            data: TranslationData::default(),
            tokeniser: TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            pretrained: None,
            prefix: None,
            tying: Tying::ThreeWay,
            label_smoothing: 0.1,
            decoding: Decoding::default(),
            bleu: Bleu::default(),
        }
    }
}

impl Default for TranslationData {
    fn default() -> Self {
        Self {
            source: "en".to_owned(),
            target: "de".to_owned(),
            batch_tokens: 1000,
            synonyms: None,
            generated_pairs: Sizes::PARALLEL.train,
        }
    }
}

impl TranslationConfig {
    pub(crate) fn model(&self, vocabulary: usize, attention: &Attention) -> Seq2SeqConfig {
        self.model.encoder_decoder(vocabulary, attention.layout.clone(), self.own.tying)
    }
}
