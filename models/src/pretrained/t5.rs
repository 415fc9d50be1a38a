//! T5: `T5ForConditionalGeneration`, version 1.0 with ReLU and one matrix for embeddings and output, and version 1.1 with gates and two matrices.
//!
//! Files contain the relative position table once per stack, in the first layer; here each layer has its own, and [`write`](super::Pretrained::write) requires
//! them to be equal. T5 does not divide scores by the root of the head width. Self-attention here does the same; the queries of cross-attention, which is
//! dot-product attention here, are multiplied by that root instead. If the output is the embedding matrix, T5 divides states by the root of the model width;
//! here the gain of the decoder's last norm is divided.

use heedful_attention::prelude::*;
use serde_json::{Map, Value, json};

use super::error::PretrainedError;
use super::fields::Fields;
use super::key_mapping::{Names, Place, Row, Table, Tied};
use super::llama::head_width;
use super::shards::Shards;
use crate::architectures::seq2seq::{Seq2SeqConfig, Tying};
use crate::block::BlockConfig;
use crate::block::layout::{AttentionLayout, CrossLayout};
use crate::parts::embedding::EmbeddingScale;
use crate::parts::feed_forward::Activation;
use crate::parts::norm::{NormConfig, NormKind};
use crate::parts::position::PositionConfig;
use crate::parts::residual::NormOrder;

/// Early files contain an unused cross-attention table.
pub(super) const NAMES: Names =
    Names { prefix: "", others: &[], is_skipped: |name| name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight" };

const ENCODER: &[Row] = &[
    ("encoder.layers.{}.self_attention.Softmax.logits.query.weight", "encoder.block.{}.layer.0.SelfAttention.q.weight", Place::Transposed),
    ("encoder.layers.{}.self_attention.Softmax.logits.key.weight", "encoder.block.{}.layer.0.SelfAttention.k.weight", Place::Transposed),
    ("encoder.layers.{}.self_attention.Softmax.value.weight", "encoder.block.{}.layer.0.SelfAttention.v.weight", Place::Transposed),
    ("encoder.layers.{}.self_attention.Softmax.output.weight", "encoder.block.{}.layer.0.SelfAttention.o.weight", Place::Transposed),
    (
        "encoder.layers.{}.self_attention.Softmax.logits.relative_attention_bias",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        Place::Shared,
    ),
    ("encoder.layers.{}.self_attention_residual.norm.gamma", "encoder.block.{}.layer.0.layer_norm.weight", Place::Same),
    ("encoder.layers.{}.feed_forward.output.weight", "encoder.block.{}.layer.1.DenseReluDense.wo.weight", Place::Transposed),
    ("encoder.layers.{}.feed_forward_residual.norm.gamma", "encoder.block.{}.layer.1.layer_norm.weight", Place::Same),
];

const DECODER: &[Row] = &[
    ("decoder.layers.{}.self_attention.Softmax.logits.query.weight", "decoder.block.{}.layer.0.SelfAttention.q.weight", Place::Transposed),
    ("decoder.layers.{}.self_attention.Softmax.logits.key.weight", "decoder.block.{}.layer.0.SelfAttention.k.weight", Place::Transposed),
    ("decoder.layers.{}.self_attention.Softmax.value.weight", "decoder.block.{}.layer.0.SelfAttention.v.weight", Place::Transposed),
    ("decoder.layers.{}.self_attention.Softmax.output.weight", "decoder.block.{}.layer.0.SelfAttention.o.weight", Place::Transposed),
    (
        "decoder.layers.{}.self_attention.Softmax.logits.relative_attention_bias",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        Place::Shared,
    ),
    ("decoder.layers.{}.self_attention_residual.norm.gamma", "decoder.block.{}.layer.0.layer_norm.weight", Place::Same),
    ("decoder.layers.{}.feed_forward.output.weight", "decoder.block.{}.layer.2.DenseReluDense.wo.weight", Place::Transposed),
    ("decoder.layers.{}.feed_forward_residual.norm.gamma", "decoder.block.{}.layer.2.layer_norm.weight", Place::Same),
    ("decoder.layers.{}.cross_attention.Softmax.value.weight", "decoder.block.{}.layer.1.EncDecAttention.v.weight", Place::Transposed),
    ("decoder.layers.{}.cross_attention.Softmax.output.weight", "decoder.block.{}.layer.1.EncDecAttention.o.weight", Place::Transposed),
    ("decoder.layers.{}.cross_attention_residual.norm.gamma", "decoder.block.{}.layer.1.layer_norm.weight", Place::Same),
];

const PLAIN: [&[Row]; 2] = [
    &[("encoder.layers.{}.feed_forward.input.weight", "encoder.block.{}.layer.1.DenseReluDense.wi.weight", Place::Transposed)],
    &[("decoder.layers.{}.feed_forward.input.weight", "decoder.block.{}.layer.2.DenseReluDense.wi.weight", Place::Transposed)],
];

const GATED: [&[Row]; 2] = [
    &[
        ("encoder.layers.{}.feed_forward.input.weight", "encoder.block.{}.layer.1.DenseReluDense.wi_0.weight", Place::Transposed),
        ("encoder.layers.{}.feed_forward.gate.weight", "encoder.block.{}.layer.1.DenseReluDense.wi_1.weight", Place::Transposed),
    ],
    &[
        ("decoder.layers.{}.feed_forward.input.weight", "decoder.block.{}.layer.2.DenseReluDense.wi_0.weight", Place::Transposed),
        ("decoder.layers.{}.feed_forward.gate.weight", "decoder.block.{}.layer.2.DenseReluDense.wi_1.weight", Place::Transposed),
    ],
];

const EMBEDDING: &str = "shared.weight";
const OUTPUT: &str = "lm_head.weight";
const UNTIED: &str = "set tie_word_embeddings to false";
/// Copies of the embedding, if the files contain them.
const COPIES: [Tied; 3] = [
    Tied { tensor: "encoder.embed_tokens.weight", original: EMBEDDING, remedy: ONE },
    Tied { tensor: "decoder.embed_tokens.weight", original: EMBEDDING, remedy: ONE },
    Tied { tensor: OUTPUT, original: EMBEDDING, remedy: UNTIED },
];
const ONE: &str = "source and target with matrices of their own are not supported";

/// Location of a model's parameters in its files.
pub(super) fn table(config: &Seq2SeqConfig, scaled: bool, files: &Shards) -> Table {
    let Seq2SeqConfig { encoder_layers, decoder_layers, block, tying, .. } = config;
    let mut table = Table::default();
    let inner = if block.gated_feed_forward { GATED } else { PLAIN };
    for layer in 0..*encoder_layers {
        [ENCODER, inner[0]].iter().for_each(|rows| NAMES.add_layer(&mut table, rows, layer, "logits.T5Bias", files));
    }
    let width = block.head_width.unwrap_or(block.d_model / block.heads);
    let cross = [
        (
            "decoder.layers.{}.cross_attention.Softmax.logits.query.weight",
            "decoder.block.{}.layer.1.EncDecAttention.q.weight",
            Place::TimesRoot(width),
        ),
        (
            "decoder.layers.{}.cross_attention.Softmax.logits.key.weight",
            "decoder.block.{}.layer.1.EncDecAttention.k.weight",
            Place::Transposed,
        ),
    ];
    for layer in 0..*decoder_layers {
        [DECODER, inner[1]].iter().for_each(|rows| NAMES.add_layer(&mut table, rows, layer, "logits.T5Bias", files));
        NAMES.add_layer(&mut table, &cross, layer, "logits.DotProduct", files);
    }
    let last = if scaled { Place::OverRoot(block.d_model) } else { Place::Same };
    let rest = [
        ("source.tokens.weight", EMBEDDING, Place::Same),
        ("encoder.norm.gamma", "encoder.final_layer_norm.weight", Place::Same),
        ("decoder.norm.gamma", "decoder.final_layer_norm.weight", last),
    ];
    NAMES.add(&mut table, &rest, files);
    if *tying == Tying::None {
        NAMES.add(&mut table, &[("output.weight", OUTPUT, Place::Transposed), ("target.tokens.weight", EMBEDDING, Place::Shared)], files);
        table.entries.insert("source.tokens.weight".into(), super::key_mapping::Entry { tensor: EMBEDDING.into(), place: Place::Shared });
    }
    let copies = if *tying == Tying::None { &COPIES[..2] } else { &COPIES[..] };
    table.copies.extend(copies);
    table
}

/// Record of `tie_word_embeddings` in transformers 5.
const SCALED: &str = "scale_decoder_outputs";

/// Whether states are divided by the root of the model width before the output: with one matrix for embedding and output.
pub(super) fn is_scaled(values: &Map<String, Value>) -> bool {
    let no = Some(&Value::Bool(false));
    values.get(SCALED).map_or_else(|| values.get("tie_word_embeddings") != no, |scaled| Some(scaled) != no)
}

/// The model of a configuration.
pub(super) fn config(fields: Fields) -> Result<Seq2SeqConfig, PretrainedError> {
    fields.only_or_null("is_encoder_decoder", &json!(true))?;
    let (d_model, heads) = (fields.size_or("d_model", 512)?, fields.size_or("num_heads", 8)?);
    let layers = fields.layers("num_layers")?;
    // Null means as many as in the encoder.
    let decoder_layers = if fields.get("num_decoder_layers").is_some() { fields.layers("num_decoder_layers")? } else { layers };
    let (activation, gated) = match fields.text("feed_forward_proj")? {
        None => (Activation::Relu, false),
        // In T5 the name gelu means the approximation.
        Some("gated-gelu") => (Activation::GeluTanh, true),
        Some(kind) => {
            let name = kind.strip_prefix("gated-");
            (fields.named_activation("feed_forward_proj", name.unwrap_or(kind))?, name.is_some())
        }
    };
    let dropout = fields.number_or("dropout_rate", 0.1)?;
    let self_attention = AnyMechanism::from(
        T5BiasConfig::default()
            .with_buckets(fields.size_or("relative_attention_num_buckets", 32)?)
            .with_max_distance(fields.size_or("relative_attention_max_distance", 128)?),
    );
    // Null is not false.
    let tied = fields.get("tie_word_embeddings") != Some(&Value::Bool(false));
    // Read with the tensors.
    fields.get(SCALED);
    let vocabulary = fields.size("vocab_size")?;
    let mut block = BlockConfig {
        d_model,
        heads,
        d_ff: fields.size("d_ff")?,
        activation,
        gated_feed_forward: gated,
        feed_forward_bias: false,
        norm: NormConfig::new(NormKind::Rms).with_epsilon(fields.number_or("layer_norm_epsilon", 1e-6)?),
        norm_order: NormOrder::Pre,
        dropout,
        attention_dropout: dropout,
        feed_forward_dropout: dropout,
        // Distances are unlimited; this is the training length.
        max_length: fields.optional_size("n_positions")?.unwrap_or(512),
        ..BlockConfig::default()
    };
    block.head_width = head_width(&block, Some(fields.size_or("d_kv", 64)?));
    let config = Seq2SeqConfig {
        source_vocabulary: vocabulary,
        target_vocabulary: vocabulary,
        attention: AttentionLayout {
            encoder: self_attention.clone().into(),
            decoder: self_attention.into(),
            cross: CrossLayout::default(),
        },
        encoder_layers: layers,
        decoder_layers,
        block,
        positions: PositionConfig::None,
        embedding_scale: EmbeddingScale::None,
        tying: if tied { Tying::ThreeWay } else { Tying::None },
        ..Seq2SeqConfig::default()
    };
    fields.finish(&["classifier_dropout", "dense_act_fn", "id2label", "initializer_factor", "is_gated_act", "num_labels"])?;
    Ok(config)
}
