//! GPT-2: `GPT2LMHeadModel`.

use heedful_attention::description::AnyMechanism;
use serde_json::json;

use super::error::PretrainedError;
use super::fields::Fields;
use super::key_mapping::{Names, Place, Row};
use crate::architectures::language_model::LanguageModelConfig;
use crate::block::BlockConfig;
use crate::block::initialisation::Initialisation;
use crate::parts::embedding::EmbeddingScale;
use crate::parts::norm::NormConfig;
use crate::parts::position::PositionConfig;
use crate::parts::residual::NormOrder;

/// Released files have no prefix, and contain masks among the tensors.
pub(super) const NAMES: Names =
    Names { prefix: "transformer.", others: &[], is_skipped: |name| name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") };

pub(super) const LAYER: &[Row] = &[
    ("decoder.layers.{}.self_attention_residual.norm.*", "transformer.h.{}.ln_1.*", Place::Same),
    ("decoder.layers.{}.self_attention.Softmax.logits.query.*", "transformer.h.{}.attn.c_attn.*", Place::Third(0)),
    ("decoder.layers.{}.self_attention.Softmax.logits.key.*", "transformer.h.{}.attn.c_attn.*", Place::Third(1)),
    ("decoder.layers.{}.self_attention.Softmax.value.*", "transformer.h.{}.attn.c_attn.*", Place::Third(2)),
    ("decoder.layers.{}.self_attention.Softmax.output.*", "transformer.h.{}.attn.c_proj.*", Place::Same),
    ("decoder.layers.{}.feed_forward_residual.norm.*", "transformer.h.{}.ln_2.*", Place::Same),
    ("decoder.layers.{}.feed_forward.input.*", "transformer.h.{}.mlp.c_fc.*", Place::Same),
    ("decoder.layers.{}.feed_forward.output.*", "transformer.h.{}.mlp.c_proj.*", Place::Same),
];

pub(super) const REST: &[Row] = &[
    ("embedding.tokens.weight", "transformer.wte.weight", Place::Same),
    ("embedding.positions.learned", "transformer.wpe.weight", Place::Same),
    ("decoder.norm.gamma", "transformer.ln_f.weight", Place::Same),
    ("decoder.norm.beta", "transformer.ln_f.bias", Place::Same),
];

pub(super) const OUTPUT: Row = ("output.weight", "lm_head.weight", Place::Transposed);
pub(super) const EMBEDDING: &str = "transformer.wte.weight";

/// The model of a configuration.
pub(super) fn config(fields: Fields) -> Result<LanguageModelConfig, PretrainedError> {
    fields.only("scale_attn_weights", &json!(true))?;
    fields.only("scale_attn_by_inverse_layer_idx", &json!(false))?;
    let d_model = fields.size("n_embd")?;
    let config = LanguageModelConfig {
        vocabulary: fields.size("vocab_size")?,
        attention: AnyMechanism::default().into(),
        layers: fields.layers("n_layer")?,
        block: BlockConfig {
            d_model,
            heads: fields.size("n_head")?,
            qkv_bias: true,
            attention_output_bias: true,
            d_ff: fields.optional_size("n_inner")?.unwrap_or(4 * d_model),
            activation: fields.activation("activation_function", "gelu_new")?,
            norm: NormConfig::default().with_epsilon(fields.number_or("layer_norm_epsilon", 1e-5)?),
            norm_order: NormOrder::Pre,
            dropout: fields.one_dropout(&["resid_pdrop", "embd_pdrop"], 0.1)?,
            attention_dropout: fields.number_or("attn_pdrop", 0.1)?,
            max_length: fields.size("n_positions")?,
            ..BlockConfig::default()
        },
        positions: PositionConfig::Learned,
        embedding_scale: EmbeddingScale::None,
        initialisation: Initialisation::NormalTables { deviation: fields.number_or("initializer_range", 0.02)?, scaled_branches: true },
        tied: fields.flag_or("tie_word_embeddings", true)?,
        ..LanguageModelConfig::default()
    };
    // 32-bit scores only change rounding; summaries belong to other classes; n_ctx repeats n_positions.
    let summary = ["summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"];
    fields.finish(
        &[&summary[..], &["_num_labels", "id2label", "n_ctx", "num_labels", "predict_special_tokens", "reorder_and_upcast_attn"]].concat(),
    )?;
    Ok(config)
}
