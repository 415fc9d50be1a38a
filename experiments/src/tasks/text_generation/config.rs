//! Configuration of the experiment.

use std::fmt;
use std::path::PathBuf;

use heedful_data::generate::Sizes;
use heedful_data::tokenise::TokeniserConfig;
use heedful_metrics::CiderVariant;
use heedful_models::architectures::seq2seq::{Seq2SeqConfig, Tying};
use serde::{Deserialize, Serialize};

use crate::tasks::prelude::*;
use crate::tasks::text_to_text::Decoding;

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationTask {
    /// A summary of a document.
    Summary,
    /// A reply to an utterance, by a speaker with a description.
    Dialogue,
}

impl GenerationTask {
    /// The names of all tasks.
    pub const NAMES: [&str; 2] = ["summary", "dialogue"];
}

impl fmt::Display for GenerationTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[*self as usize])
    }
}

/// Complete configuration of `textgen`.
pub type GenerationConfig = Config<TextGeneration>;

/// The comparison of attentions on the generation of texts: its own options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextGeneration {
    /// Which task.
    pub data: GenerationData,
    /// How texts are cut into tokens: one vocabulary for both sides; `pretrained` is the tokeniser of the pretrained model.
    pub tokeniser: TokeniserConfig,
    /// Folder of a pretrained T5 of Hugging Face, from whose weights training goes on; by default none. It sets `tokeniser`, `prefix`, the attention, `tying`,
    /// `label_smoothing` and the fields of the table `model`.
    pub pretrained: Option<PathBuf>,
    /// Text before each source of a pretrained model, which names its task: by default `summarize: ` if only summaries are generated, otherwise none.
    pub prefix: Option<String>,
    /// Weight tying: `three-way`, `output` or `none`.
    pub tying: Tying,
    /// ε of label smoothing, in `[0, 1)`.
    pub label_smoothing: f64,
    /// The search for texts.
    pub decoding: Decoding,
}

/// The texts of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerationData {
    /// `summary` or `dialogue`; each is a data set of its own.
    pub tasks: Vec<GenerationTask>,
    /// Tokens of the longer side in a batch, padding included.
    pub batch_tokens: usize,
    /// Most test pairs for which texts are generated; by default all.
    pub test: Option<usize>,
    /// Last utterances of a dialogue in a source.
    pub turns: usize,
    /// Kind of the PersonaChat files that are read: the part of their names after `train_`, such as `self_original`.
    pub personas: String,
    /// Whether ROUGE compares the stems of words (English alone), as papers on summaries do.
    pub stemmer: bool,
    /// Which CIDEr dialogues are scored by: `cider` or `cider-d`.
    pub cider: CiderVariant,
    /// File of word vectors in the text format of GloVe, for the similarity of replies; by default none, and no such scores.
    pub word_vectors: Option<PathBuf>,
    /// File of synonyms for METEOR, a set of words on each line; by default none, and METEOR matches equal words and equal stems.
    pub synonyms: Option<PathBuf>,
    /// Training pairs of each generated task.
    pub generated_pairs: usize,
}

impl Default for TextGeneration {
    fn default() -> Self {
        Self {
            data: GenerationData::default(),
            tokeniser: TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            pretrained: None,
            prefix: None,
            tying: Tying::ThreeWay,
            label_smoothing: 0.1,
            decoding: Decoding::default(),
        }
    }
}

impl Default for GenerationData {
    fn default() -> Self {
        Self {
            tasks: vec![GenerationTask::Summary, GenerationTask::Dialogue],
            batch_tokens: 1500,
            test: None,
            turns: 3,
            personas: "self_original".to_owned(),
            stemmer: true,
            cider: CiderVariant::default(),
            word_vectors: None,
            synonyms: None,
            generated_pairs: Sizes::TEXT_PAIRS.train,
        }
    }
}

impl GenerationConfig {
    pub(crate) fn model(&self, vocabulary: usize, attention: &Attention) -> Seq2SeqConfig {
        self.model.encoder_decoder(vocabulary, attention.layout.clone(), self.own.tying)
    }
}
