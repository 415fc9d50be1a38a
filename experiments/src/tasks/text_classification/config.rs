//! Configuration of the experiment.

use heedful_data::generate::Sizes;
use heedful_data::tokenise::TokeniserConfig;
use heedful_models::architectures::classifier::{ClassifierConfig, Pooling};
use serde::{Deserialize, Serialize};

use crate::tasks::prelude::*;

/// Complete configuration of `classify`.
pub type TextClassificationConfig = Config<TextClassification>;

/// The comparison of attentions on the classification of texts: the options that only it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextClassification {
    /// Which texts.
    pub data: TextClassificationData,
    /// How texts are cut into tokens.
    pub tokeniser: TokeniserConfig,
    /// How hidden states become one vector: `class-token`, `mean`, or `mean-embeddings`, which leaves the layers out.
    pub pooling: Pooling,
    /// Whether that vector passes a linear map and a hyperbolic tangent before the output, as in BERT.
    pub pooler: bool,
}

/// The texts of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextClassificationData {
    /// Tokens in a batch, padding included.
    pub batch_tokens: usize,
    /// Training texts at most; by default all.
    pub train: Option<usize>,
    /// Test texts at most; by default all.
    pub test: Option<usize>,
    /// Training texts that are made where none are read.
    pub generated_texts: usize,
}

impl Default for TextClassification {
    fn default() -> Self {
        Self {
            data: TextClassificationData::default(),
            tokeniser: TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            pooling: Pooling::Mean,
            pooler: false,
        }
    }
}

impl Default for TextClassificationData {
    fn default() -> Self {
        Self { batch_tokens: 1500, train: None, test: None, generated_texts: Sizes::LABELLED.train }
    }
}

impl TextClassificationConfig {
    pub(crate) fn model(&self, vocabulary: usize, outputs: usize, attention: &Attention) -> ClassifierConfig {
        let TextClassification { pooler, pooling, .. } = self.own;
        self.model.classifier(vocabulary, outputs, &attention.layout.encoder).with_pooler(pooler).with_pooling(pooling)
    }
}
