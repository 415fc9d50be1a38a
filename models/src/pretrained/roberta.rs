//! RoBERTa: `RobertaForSequenceClassification`, the encoder of other classes, and the masked-LM head of `RobertaForMaskedLM`.
//!
//! Positions start at the id after the padding token's; the table rows before are unused. There is one segment, or the second is unused: two separators
//! distinguish paired texts. The map before the class outputs is the pooler here.

use serde_json::json;

use super::bert::{encoder, layer};
use super::error::PretrainedError;
use super::fields::Fields;
use super::key_mapping::{Names, Place, Row, Tied};
use crate::architectures::classifier::ClassifierConfig;

/// The pooler of a body is not part of its classifiers, nor is the masked-LM head.
pub(super) const NAMES: Names = Names {
    prefix: "roberta.",
    others: &[],
    is_skipped: |name| {
        name.ends_with("embeddings.position_ids")
            || name.ends_with("pooler.dense.weight")
            || name.ends_with("pooler.dense.bias")
            || name.starts_with("lm_head.")
    },
};

pub(super) const LAYER: &[Row] = layer!("roberta.");

pub(super) const REST: &[Row] = &[
    ("embedding.tokens.weight", "roberta.embeddings.word_embeddings.weight", Place::Same),
    ("embedding.positions.learned", "roberta.embeddings.position_embeddings.weight", Place::RowsFrom(UNUSED)),
    ("embedding.norm.gamma", "roberta.embeddings.LayerNorm.weight", Place::Same),
    ("embedding.norm.beta", "roberta.embeddings.LayerNorm.bias", Place::Same),
    ("pooler.weight", "classifier.dense.weight", Place::Transposed),
    ("pooler.bias", "classifier.dense.bias", Place::Same),
];

/// Segment vectors: one for both, or one each.
pub(super) const SEGMENTS: [Row; 2] = [
    ("embedding.segments", "roberta.embeddings.token_type_embeddings.weight", Place::OneOfTwo),
    ("embedding.segments", "roberta.embeddings.token_type_embeddings.weight", Place::Same),
];

pub(super) const OUTPUT: &[Row] =
    &[("output.weight", "classifier.out_proj.weight", Place::Transposed), ("output.bias", "classifier.out_proj.bias", Place::Same)];

/// Rows of the masked-LM head.
pub(super) const MASKED_HEAD: &[Row] = &[
    ("masked_head.transform.weight", "lm_head.dense.weight", Place::Transposed),
    ("masked_head.transform.bias", "lm_head.dense.bias", Place::Same),
    ("masked_head.norm.gamma", "lm_head.layer_norm.weight", Place::Same),
    ("masked_head.norm.beta", "lm_head.layer_norm.bias", Place::Same),
    ("masked_head.bias", "lm_head.bias", Place::Same),
];

/// Tensors tied to the head's projection, if the files contain them.
pub(super) const MASKED_HEAD_TIES: [Tied; 2] = [
    Tied { tensor: "lm_head.decoder.weight", original: "roberta.embeddings.word_embeddings.weight", remedy: UNTIED },
    Tied { tensor: "lm_head.decoder.bias", original: "lm_head.bias", remedy: UNTIED },
];

const UNTIED: &str = "a masked-LM head whose projection is not the embedding's matrix is not supported";

/// Number of position rows before the first one: the padding token is the second.
const UNUSED: usize = 2;

/// The model of a configuration.
pub(super) fn config(fields: Fields) -> Result<ClassifierConfig, PretrainedError> {
    fields.only("position_embedding_type", &json!("absolute"))?;
    fields.only("pad_token_id", &json!(1))?;
    let types = fields.size_or("type_vocab_size", 2)?;
    if types > 2 {
        return Err(fields.wrong("type_vocab_size", "only 1 and 2 are supported"));
    }
    let mut config = encoder(&fields)?;
    if config.block.max_length <= UNUSED {
        return Err(fields.wrong("max_position_embeddings", "give more than the 2 rows that are not used"));
    }
    config.block.max_length -= UNUSED;
    // Tied embeddings concern pre-training.
    fields.finish(&["num_labels", "tie_word_embeddings"])?;
    Ok(config)
}
