//! BERT: `BertForSequenceClassification`, the encoder of other classes, and the masked-LM head of `BertForMaskedLM` and `BertForPreTraining`.

use heedful_attention::description::AnyMechanism;
use serde_json::json;

use super::error::PretrainedError;
use super::fields::Fields;
use super::key_mapping::{Names, Place, Row, Tied};
use crate::architectures::classifier::{ClassifierConfig, Pooling};
use crate::block::BlockConfig;
use crate::block::initialisation::Initialisation;
use crate::parts::embedding::EmbeddingScale;
use crate::parts::norm::NormConfig;
use crate::parts::position::PositionConfig;
use crate::parts::residual::NormOrder;

/// Files of 2018 use other names for the norm parameters. Pre-training outputs (`cls.`) are not part of a classifier, and the next-sentence output is not part
/// of a masked language model either.
pub(super) const NAMES: Names = Names {
    prefix: "bert.",
    others: &[&[("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")]],
    is_skipped: |name| name.ends_with("embeddings.position_ids") || name.starts_with("cls."),
};

/// Rows of a layer under a prefix, shared with RoBERTa.
macro_rules! layer {
    ($prefix:literal) => {
        &[
            (
                "encoder.layers.{}.self_attention.Softmax.logits.query.*",
                concat!($prefix, "encoder.layer.{}.attention.self.query.*"),
                Place::Transposed,
            ),
            (
                "encoder.layers.{}.self_attention.Softmax.logits.key.*",
                concat!($prefix, "encoder.layer.{}.attention.self.key.*"),
                Place::Transposed,
            ),
            (
                "encoder.layers.{}.self_attention.Softmax.value.*",
                concat!($prefix, "encoder.layer.{}.attention.self.value.*"),
                Place::Transposed,
            ),
            (
                "encoder.layers.{}.self_attention.Softmax.output.*",
                concat!($prefix, "encoder.layer.{}.attention.output.dense.*"),
                Place::Transposed,
            ),
            (
                "encoder.layers.{}.self_attention_residual.norm.*",
                concat!($prefix, "encoder.layer.{}.attention.output.LayerNorm.*"),
                Place::Same,
            ),
            ("encoder.layers.{}.feed_forward.input.*", concat!($prefix, "encoder.layer.{}.intermediate.dense.*"), Place::Transposed),
            ("encoder.layers.{}.feed_forward.output.*", concat!($prefix, "encoder.layer.{}.output.dense.*"), Place::Transposed),
            ("encoder.layers.{}.feed_forward_residual.norm.*", concat!($prefix, "encoder.layer.{}.output.LayerNorm.*"), Place::Same),
        ]
    };
}
pub(super) use layer;

pub(super) const LAYER: &[Row] = layer!("bert.");

pub(super) const REST: &[Row] = &[
    ("embedding.tokens.weight", "bert.embeddings.word_embeddings.weight", Place::Same),
    ("embedding.positions.learned", "bert.embeddings.position_embeddings.weight", Place::Same),
    ("embedding.segments", "bert.embeddings.token_type_embeddings.weight", Place::Same),
    ("embedding.norm.gamma", "bert.embeddings.LayerNorm.weight", Place::Same),
    ("embedding.norm.beta", "bert.embeddings.LayerNorm.bias", Place::Same),
    ("pooler.weight", "bert.pooler.dense.weight", Place::Transposed),
    ("pooler.bias", "bert.pooler.dense.bias", Place::Same),
];

/// Rows of the masked-LM head.
pub(super) const MASKED_HEAD: &[Row] = &[
    ("masked_head.transform.weight", "cls.predictions.transform.dense.weight", Place::Transposed),
    ("masked_head.transform.bias", "cls.predictions.transform.dense.bias", Place::Same),
    ("masked_head.norm.gamma", "cls.predictions.transform.LayerNorm.weight", Place::Same),
    ("masked_head.norm.beta", "cls.predictions.transform.LayerNorm.bias", Place::Same),
    ("masked_head.bias", "cls.predictions.bias", Place::Same),
];

/// Tensors tied to the head's projection, if the files contain them.
pub(super) const MASKED_HEAD_TIES: [Tied; 2] = [
    Tied { tensor: "cls.predictions.decoder.weight", original: "bert.embeddings.word_embeddings.weight", remedy: UNTIED },
    Tied { tensor: "cls.predictions.decoder.bias", original: "cls.predictions.bias", remedy: UNTIED },
];

const UNTIED: &str = "a masked-LM head whose projection is not the embedding's matrix is not supported";

/// The encoder of a configuration, for BERT or RoBERTa.
pub(super) fn encoder(fields: &Fields) -> Result<ClassifierConfig, PretrainedError> {
    let dropout = fields.number_or("hidden_dropout_prob", 0.1)?;
    Ok(ClassifierConfig {
        vocabulary: fields.size("vocab_size")?,
        outputs: fields.labels()?,
        attention: AnyMechanism::default().into(),
        layers: fields.layers("num_hidden_layers")?,
        block: BlockConfig {
            d_model: fields.size("hidden_size")?,
            heads: fields.size("num_attention_heads")?,
            qkv_bias: true,
            attention_output_bias: true,
            d_ff: fields.size("intermediate_size")?,
            activation: fields.activation("hidden_act", "gelu")?,
            norm: NormConfig::default().with_epsilon(fields.number_or("layer_norm_eps", 1e-12)?),
            norm_order: NormOrder::Post,
            // Null means the dropout of the layers.
            dropout: fields
                .optional_number("classifier_dropout")?
                .map_or(Ok(dropout), |_| fields.one_dropout(&["hidden_dropout_prob", "classifier_dropout"], 0.1))?,
            attention_dropout: fields.number_or("attention_probs_dropout_prob", 0.1)?,
            max_length: fields.size("max_position_embeddings")?,
            ..BlockConfig::default()
        },
        positions: PositionConfig::Learned,
        embedding_scale: EmbeddingScale::None,
        embedding_norm: true,
        initialisation: Initialisation::NormalTables { deviation: fields.number_or("initializer_range", 0.02)?, scaled_branches: false },
        pooling: Pooling::ClassToken,
        pooler: true,
        segments: true,
        ..ClassifierConfig::default()
    })
}

/// The model of a configuration.
pub(super) fn config(fields: Fields) -> Result<ClassifierConfig, PretrainedError> {
    fields.only("position_embedding_type", &json!("absolute"))?;
    fields.only("type_vocab_size", &json!(2))?;
    let config = encoder(&fields)?;
    // Pooler sizes are from an earlier library; tied embeddings concern pre-training.
    let pooler = ["pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"];
    fields.finish(&[&pooler[..], &["directionality", "num_labels", "tie_word_embeddings"]].concat())?;
    Ok(config)
}
