//! Gemma-2: `Gemma2ForCausalLM`. Norms use `1 + weight`, and the files store the weight, so values do not change.

use heedful_attention::prelude::*;
use serde_json::json;

use super::error::PretrainedError;
use super::fields::Fields;
use super::key_mapping::{Place, Row};
use super::llama::{head_width, layer_types, layered, shared, window};
use super::rotary::{longest, rotary};
use crate::architectures::language_model::LanguageModelConfig;
use crate::parts::embedding::EmbeddingScale;
use crate::parts::norm::{NormConfig, NormKind};
use crate::parts::residual::NormOrder;

/// Before and after both sublayers; the norm before attention has the same name as in Llama.
pub(super) const NORMS: &[Row] = &[
    ("decoder.layers.{}.self_attention_residual.output_norm.gamma", "model.layers.{}.post_attention_layernorm.weight", Place::Same),
    ("decoder.layers.{}.feed_forward_residual.norm.gamma", "model.layers.{}.pre_feedforward_layernorm.weight", Place::Same),
    ("decoder.layers.{}.feed_forward_residual.output_norm.gamma", "model.layers.{}.post_feedforward_layernorm.weight", Place::Same),
];

/// The Gemma-2 of a configuration.
pub(super) fn config(fields: Fields) -> Result<LanguageModelConfig, PretrainedError> {
    fields.only_or_null("use_bidirectional_attention", &json!(false))?;
    let (mut config, epsilon) = shared(&fields)?;
    fields.size("num_key_value_heads")?;
    let width = fields.size_or("head_dim", 256)?;
    config.block.head_width = head_width(&config.block, Some(width));
    config.block.qkv_bias = fields.flag_or("attention_bias", false)?;
    config.block.attention_output_bias = config.block.qkv_bias;
    // Files also contain hidden_act, which transformers does not read.
    config.block.activation = fields.activation("hidden_activation", "gelu_pytorch_tanh")?;
    config.block.norm = NormConfig::new(NormKind::RmsPlusOne).with_epsilon(epsilon);
    config.block.norm_order = NormOrder::Sandwich;
    config.embedding_scale = EmbeddingScale::Sqrt;
    config.logit_softcap = cap(&fields, "final_logit_softcapping", 30.0)?;
    config.tied = fields.flag_or("tie_word_embeddings", true)?;
    let rotary = rotary(&fields, config.block.max_length)?;
    config.block.max_length = longest(&rotary, config.block.max_length);
    let scalar = fields.number_or("query_pre_attn_scalar", 256.0)?;
    if scalar <= 0.0 {
        return Err(fields.wrong("query_pre_attn_scalar", "give a number greater than 0"));
    }
    let scale = (scalar != width as f64).then(|| scalar.powf(-0.5));
    let logits = AnyMechanism::from(rotary.with_score_scale(scale));
    let logits = match cap(&fields, "attn_logit_softcapping", 50.0)? {
        Some(cap) => SoftCapConfig::default().with_cap(cap).with_logits(logits).into(),
        None => logits,
    };
    let window = window(&fields)?;
    let is_windowed = layer_types(&fields, config.layers)?;
    // Without a list, every second layer, starting with the first.
    let is_windowed = is_windowed.unwrap_or_else(|| (0..config.layers).map(|layer| layer % 2 == 0).collect());
    if window.is_none() && is_windowed.contains(&true) {
        return Err(fields.wrong("sliding_window", "give the number of positions that layers of sliding_attention see"));
    }
    config.attention = layered(&is_windowed, window, logits);
    // The cache type of decoding, and a window that no code reads.
    fields.finish(&["cache_implementation", "id2label", "num_labels", "sliding_window_size"])?;
    Ok(config)
}

/// A soft cap, if any: null means none, and a missing field this default.
fn cap(fields: &Fields, field: &str, default: f64) -> Result<Option<f64>, PretrainedError> {
    let cap = if fields.is_given(field) { fields.optional_number(field)? } else { Some(default) };
    match cap {
        Some(cap) if cap <= 0.0 => Err(fields.wrong(field, "give a number greater than 0, or null for no bound")),
        cap => Ok(cap),
    }
}
