//! The Vision Transformer: `ViTForImageClassification`, and the encoder of other classes.

use heedful_attention::description::AnyMechanism;

use super::error::PretrainedError;
use super::fields::Fields;
use super::key_mapping::{Names, Place, Row, Table};
use crate::architectures::classifier::Pooling;
use crate::architectures::vision::VisionConfig;
use crate::block::BlockConfig;
use crate::block::initialisation::Initialisation;
use crate::parts::norm::NormConfig;
use crate::parts::residual::NormOrder;
use crate::pretrained::shards::Shards;

/// transformers 5 uses other layer names in memory, which saved files may contain.
pub(super) const NAMES: Names = Names {
    prefix: "vit.",
    others: &[&[
        ("vit.encoder.layer.", "vit.layers."),
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.attention.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
        ("intermediate.dense", "mlp.fc1"),
        ("output.dense", "mlp.fc2"),
    ]],
    is_skipped: |name| name.ends_with("pooler.dense.weight") || name.ends_with("pooler.dense.bias"),
};

pub(super) const LAYER: &[Row] = &[
    ("encoder.layers.{}.self_attention_residual.norm.*", "vit.encoder.layer.{}.layernorm_before.*", Place::Same),
    (
        "encoder.layers.{}.self_attention.Softmax.logits.query.weight",
        "vit.encoder.layer.{}.attention.attention.query.weight",
        Place::Transposed,
    ),
    (
        "encoder.layers.{}.self_attention.Softmax.logits.key.weight",
        "vit.encoder.layer.{}.attention.attention.key.weight",
        Place::Transposed,
    ),
    ("encoder.layers.{}.self_attention.Softmax.value.weight", "vit.encoder.layer.{}.attention.attention.value.weight", Place::Transposed),
    ("encoder.layers.{}.self_attention.Softmax.output.*", "vit.encoder.layer.{}.attention.output.dense.*", Place::Transposed),
    ("encoder.layers.{}.feed_forward_residual.norm.*", "vit.encoder.layer.{}.layernorm_after.*", Place::Same),
    ("encoder.layers.{}.feed_forward.input.*", "vit.encoder.layer.{}.intermediate.dense.*", Place::Transposed),
    ("encoder.layers.{}.feed_forward.output.*", "vit.encoder.layer.{}.output.dense.*", Place::Transposed),
];

/// Rows with `qkv_bias`.
pub(super) const QKV_BIASES: &[Row] = &[
    ("encoder.layers.{}.self_attention.Softmax.logits.query.bias", "vit.encoder.layer.{}.attention.attention.query.bias", Place::Same),
    ("encoder.layers.{}.self_attention.Softmax.logits.key.bias", "vit.encoder.layer.{}.attention.attention.key.bias", Place::Same),
    ("encoder.layers.{}.self_attention.Softmax.value.bias", "vit.encoder.layer.{}.attention.attention.value.bias", Place::Same),
];

const REST: &[Row] = &[
    ("embedding.class_token", "vit.embeddings.cls_token", Place::OneMore),
    ("embedding.positions.learned", "vit.embeddings.position_embeddings", Place::OneMore),
    ("embedding.patches.bias", "vit.embeddings.patch_embeddings.projection.bias", Place::Same),
    ("encoder.norm.gamma", "vit.layernorm.weight", Place::Same),
    ("encoder.norm.beta", "vit.layernorm.bias", Place::Same),
];

/// Adds rows outside of layers.
pub(super) fn add_rest(table: &mut Table, config: &VisionConfig, files: &Shards) {
    let place = Place::Patches { channels: config.channels, size: config.patch };
    NAMES.add(table, REST, files);
    NAMES.add(table, &[("embedding.patches.weight", "vit.embeddings.patch_embeddings.projection.weight", place)], files);
}

/// Rows and columns from a field with one or two numbers.
fn sides(fields: &Fields, field: &str) -> Result<[usize; 2], PretrainedError> {
    let Some(list) = fields.get(field).and_then(|value| value.as_array()) else {
        return Ok([fields.size(field)?; 2]);
    };
    let sides: Vec<usize> = list.iter().filter_map(|side| usize::try_from(side.as_u64()?).ok()).collect();
    match sides[..] {
        [rows, columns] if list.len() == 2 && rows > 0 && columns > 0 => Ok([rows, columns]),
        _ => Err(fields.wrong(field, "give a whole number of at least 1, or one for rows and one for columns")),
    }
}

/// The model of a configuration.
pub(super) fn config(fields: Fields) -> Result<VisionConfig, PretrainedError> {
    let [height, width] = sides(&fields, "image_size")?;
    let [patch, columns] = sides(&fields, "patch_size")?;
    if patch != columns {
        return Err(fields.wrong("patch_size", "only squares are supported"));
    }
    let config = VisionConfig {
        height,
        width,
        channels: fields.size_or("num_channels", 3)?,
        patch,
        classes: fields.labels()?,
        attention: AnyMechanism::default().into(),
        layers: fields.layers("num_hidden_layers")?,
        block: BlockConfig {
            d_model: fields.size("hidden_size")?,
            heads: fields.size("num_attention_heads")?,
            qkv_bias: fields.flag_or("qkv_bias", true)?,
            attention_output_bias: true,
            d_ff: fields.size("intermediate_size")?,
            activation: fields.activation("hidden_act", "gelu")?,
            norm: NormConfig::default().with_epsilon(fields.number_or("layer_norm_eps", 1e-12)?),
            norm_order: NormOrder::Pre,
            dropout: fields.number_or("hidden_dropout_prob", 0.0)?,
            attention_dropout: fields.number_or("attention_probs_dropout_prob", 0.0)?,
            ..BlockConfig::default()
        },
        initialisation: Initialisation::NormalTables { deviation: fields.number_or("initializer_range", 0.02)?, scaled_branches: false },
        pooling: Pooling::ClassToken,
        ..VisionConfig::default()
    };
    // These belong to the pooler and masked image modelling, not to classifiers.
    fields.finish(&["encoder_stride", "num_labels", "pooler_act", "pooler_output_size", "tie_word_embeddings"])?;
    let max_length = config.length();
    Ok(config.with_max_length(max_length))
}
