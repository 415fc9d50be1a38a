//! Llama, Mistral and Qwen-3: `LlamaForCausalLM`, `MistralForCausalLM` and `Qwen3ForCausalLM`.

use heedful_attention::mechanisms::qk_norm::QkNorm;
use heedful_attention::prelude::*;
use serde_json::{Value, json};

use super::error::PretrainedError;
use super::fields::Fields;
use super::key_mapping::{Names, Place, Row};
use super::rotary::{longest, rotary};
use crate::architectures::language_model::LanguageModelConfig;
use crate::block::BlockConfig;
use crate::block::initialisation::Initialisation;
use crate::block::layout::LayerAttention;
use crate::parts::embedding::EmbeddingScale;
use crate::parts::norm::{NormConfig, NormKind};
use crate::parts::position::PositionConfig;
use crate::parts::residual::NormOrder;

/// Files of 2023 contain rotary frequencies among the tensors.
pub(super) const NAMES: Names = Names { prefix: "", others: &[], is_skipped: |name| name.ends_with(".rotary_emb.inv_freq") };

pub(super) const LAYER: &[Row] = &[
    ("decoder.layers.{}.self_attention_residual.norm.gamma", "model.layers.{}.input_layernorm.weight", Place::Same),
    ("decoder.layers.{}.self_attention.Softmax.logits.query.weight", "model.layers.{}.self_attn.q_proj.weight", Place::Transposed),
    ("decoder.layers.{}.self_attention.Softmax.logits.key.weight", "model.layers.{}.self_attn.k_proj.weight", Place::Transposed),
    ("decoder.layers.{}.self_attention.Softmax.value.weight", "model.layers.{}.self_attn.v_proj.weight", Place::Transposed),
    ("decoder.layers.{}.self_attention.Softmax.output.weight", "model.layers.{}.self_attn.o_proj.weight", Place::Transposed),
    ("decoder.layers.{}.feed_forward.input.weight", "model.layers.{}.mlp.gate_proj.weight", Place::Transposed),
    ("decoder.layers.{}.feed_forward.gate.weight", "model.layers.{}.mlp.up_proj.weight", Place::Transposed),
    ("decoder.layers.{}.feed_forward.output.weight", "model.layers.{}.mlp.down_proj.weight", Place::Transposed),
];

/// Norms other than that before attention.
pub(super) const NORM: &[Row] =
    &[("decoder.layers.{}.feed_forward_residual.norm.gamma", "model.layers.{}.post_attention_layernorm.weight", Place::Same)];

/// Rows with `attention_bias`.
pub(super) const ATTENTION_BIASES: &[Row] = &[
    ("decoder.layers.{}.self_attention.Softmax.logits.query.bias", "model.layers.{}.self_attn.q_proj.bias", Place::Same),
    ("decoder.layers.{}.self_attention.Softmax.logits.key.bias", "model.layers.{}.self_attn.k_proj.bias", Place::Same),
    ("decoder.layers.{}.self_attention.Softmax.value.bias", "model.layers.{}.self_attn.v_proj.bias", Place::Same),
    ("decoder.layers.{}.self_attention.Softmax.output.bias", "model.layers.{}.self_attn.o_proj.bias", Place::Same),
];

/// Rows with `mlp_bias`.
pub(super) const FEED_FORWARD_BIASES: &[Row] = &[
    ("decoder.layers.{}.feed_forward.input.bias", "model.layers.{}.mlp.gate_proj.bias", Place::Same),
    ("decoder.layers.{}.feed_forward.gate.bias", "model.layers.{}.mlp.up_proj.bias", Place::Same),
    ("decoder.layers.{}.feed_forward.output.bias", "model.layers.{}.mlp.down_proj.bias", Place::Same),
];

/// Rows of Qwen-3.
pub(super) const QK_NORM: &[Row] = &[
    ("decoder.layers.{}.self_attention.Softmax.logits.query_norm.gamma", "model.layers.{}.self_attn.q_norm.weight", Place::Same),
    ("decoder.layers.{}.self_attention.Softmax.logits.key_norm.gamma", "model.layers.{}.self_attn.k_norm.weight", Place::Same),
];

pub(super) const REST: &[Row] =
    &[("embedding.tokens.weight", EMBEDDING, Place::Same), ("decoder.norm.gamma", "model.norm.weight", Place::Same)];

pub(super) const OUTPUT: Row = ("output.weight", "lm_head.weight", Place::Transposed);
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";

/// Shared configuration of the three and Gemma-2, and the ε of norms.
pub(super) fn shared(fields: &Fields) -> Result<(LanguageModelConfig, f64), PretrainedError> {
    let (d_model, heads) = (fields.size("hidden_size")?, fields.size("num_attention_heads")?);
    let epsilon = fields.number_or("rms_norm_eps", 1e-6)?;
    let config = LanguageModelConfig {
        vocabulary: fields.size("vocab_size")?,
        layers: fields.layers("num_hidden_layers")?,
        block: BlockConfig {
            d_model,
            heads,
            kv_heads: Some(fields.optional_size("num_key_value_heads")?.unwrap_or(heads)),
            d_ff: fields.size("intermediate_size")?,
            activation: fields.activation("hidden_act", "silu")?,
            gated_feed_forward: true,
            feed_forward_bias: false,
            norm: NormConfig::new(NormKind::Rms).with_epsilon(epsilon),
            norm_order: NormOrder::Pre,
            dropout: 0.0,
            attention_dropout: fields.number_or("attention_dropout", 0.0)?,
            max_length: fields.size("max_position_embeddings")?,
            ..BlockConfig::default()
        },
        positions: PositionConfig::None,
        embedding_scale: EmbeddingScale::None,
        initialisation: Initialisation::NormalTables { deviation: fields.number_or("initializer_range", 0.02)?, scaled_branches: false },
        tied: fields.flag_or("tie_word_embeddings", false)?,
        ..LanguageModelConfig::default()
    };
    Ok((config, epsilon))
}

/// Head width, if it is not the model width divided by the heads.
pub(super) fn head_width(block: &BlockConfig, given: Option<usize>) -> Option<usize> {
    given.filter(|width| width * block.heads != block.d_model)
}

/// The default of transformers for the number of key and value heads suits only one model.
pub(super) fn says_kv_heads(fields: &Fields) -> Result<(), PretrainedError> {
    let field = "num_key_value_heads";
    if fields.is_given(field) { Ok(()) } else { Err(fields.wrong(field, "give the number of heads of keys and values")) }
}

fn windowed(window: usize, logits: AnyMechanism) -> AnyMechanism {
    SlidingWindowConfig::default().with_window(window).with_logits(logits).into()
}

/// Window size of windowed layers. Null means no window, and a missing field the window of the first Mistral, of Gemma-2 and of Qwen-3.
pub(super) fn window(fields: &Fields) -> Result<Option<usize>, PretrainedError> {
    if fields.is_given("sliding_window") { fields.optional_size("sliding_window") } else { Ok(Some(4096)) }
}

/// Whether each layer has a window, if `layer_types` is present.
pub(super) fn layer_types(fields: &Fields, layers: usize) -> Result<Option<Vec<bool>>, PretrainedError> {
    let Some(types) = fields.get("layer_types") else { return Ok(None) };
    let wrong = || fields.wrong("layer_types", format!("give full_attention or sliding_attention for each of the {layers} layers"));
    let is_windowed = |kind: &Value| match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => Err(wrong()),
    };
    let types = types.as_array().filter(|types| types.len() == layers).ok_or_else(wrong)?;
    types.iter().map(is_windowed).collect::<Result<_, _>>().map(Some)
}

/// Attention of layers with and without windows: the shortest list that repeats over them.
pub(super) fn layered(is_windowed: &[bool], window: Option<usize>, logits: AnyMechanism) -> LayerAttention {
    let layers = is_windowed.len();
    let repeats = |period: usize| layers.is_multiple_of(period) && (period..layers).all(|at| is_windowed[at] == is_windowed[at - period]);
    let period = (1..=layers).find(|&period| repeats(period)).unwrap_or(layers);
    let layer = |is_windowed: &bool| match window.filter(|_| *is_windowed) {
        Some(window) => windowed(window, logits.clone()),
        None => logits.clone(),
    };
    match &is_windowed[..period] {
        [all] => layer(all).into(),
        list => LayerAttention::Each(list.iter().map(layer).collect()),
    }
}

/// The Llama of a configuration.
pub(super) fn llama(fields: Fields) -> Result<LanguageModelConfig, PretrainedError> {
    // Number of parts of a computed product: 0 is equivalent to 1.
    if fields.get("pretraining_tp").and_then(Value::as_f64) != Some(0.0) {
        fields.only_or_null("pretraining_tp", &json!(1))?;
    }
    fields.only_or_null("rope_interleaved", &json!(false))?;
    let (mut config, _) = shared(&fields)?;
    config.block.head_width = head_width(&config.block, fields.optional_size("head_dim")?);
    config.block.qkv_bias = fields.flag_or("attention_bias", false)?;
    config.block.attention_output_bias = config.block.qkv_bias;
    config.block.feed_forward_bias = fields.flag_or("mlp_bias", false)?;
    let rotary = rotary(&fields, config.block.max_length)?;
    config.block.max_length = longest(&rotary, config.block.max_length);
    config.attention = AnyMechanism::from(rotary).into();
    fields.finish(&["id2label", "num_labels"])?;
    Ok(config)
}

/// The Mistral of a configuration.
pub(super) fn mistral(fields: Fields) -> Result<LanguageModelConfig, PretrainedError> {
    let (mut config, _) = shared(&fields)?;
    says_kv_heads(&fields)?;
    config.block.head_width = head_width(&config.block, fields.optional_size("head_dim")?);
    let rotary = rotary(&fields, config.block.max_length)?;
    config.block.max_length = longest(&rotary, config.block.max_length);
    let logits = AnyMechanism::from(rotary);
    fields.only("attention_bias", &json!(false))?;
    fields.only("mlp_bias", &json!(false))?;
    config.attention = match window(&fields)? {
        Some(window) => windowed(window, logits).into(),
        None => logits.into(),
    };
    fields.finish(&["id2label", "num_labels"])?;
    Ok(config)
}

/// The Qwen-3 of a configuration.
pub(super) fn qwen3(fields: Fields) -> Result<LanguageModelConfig, PretrainedError> {
    let (mut config, epsilon) = shared(&fields)?;
    says_kv_heads(&fields)?;
    config.block.head_width = head_width(&config.block, Some(fields.size_or("head_dim", 128)?));
    config.block.qkv_bias = fields.flag_or("attention_bias", false)?;
    config.block.attention_output_bias = config.block.qkv_bias;
    fields.only("mlp_bias", &json!(false))?;
    let rotary = rotary(&fields, config.block.max_length)?.with_qk_norm(QkNorm::Rms);
    config.block.max_length = longest(&rotary, config.block.max_length);
    // By default that of the norms.
    let rotary = if epsilon == 1e-6 { rotary } else { rotary.with_qk_norm_epsilon(epsilon) };
    config.attention = qwen3_layers(&fields, config.layers, rotary.into())?;
    fields.finish(&["id2label", "num_labels"])?;
    Ok(config)
}

/// Layers with windowed attention: those in `layer_types`, or those from `max_window_layers` on.
fn qwen3_layers(fields: &Fields, layers: usize, logits: AnyMechanism) -> Result<LayerAttention, PretrainedError> {
    let is_used = fields.flag_or("use_sliding_window", false)?;
    let window = if is_used { window(fields)? } else { fields.get("sliding_window").and(None) };
    let first = fields.number_or("max_window_layers", 28.0)?;
    if first < 0.0 || first.fract() != 0.0 {
        return Err(fields.wrong("max_window_layers", "give a number of layers"));
    }
    let is_windowed = layer_types(fields, layers)?;
    let is_windowed = is_windowed.unwrap_or_else(|| (0..layers).map(|layer| window.is_some() && layer as f64 >= first).collect());
    if window.is_none() && is_windowed.contains(&true) {
        return Err(fields.wrong("layer_types", "sliding_attention needs use_sliding_window and a sliding_window"));
    }
    Ok(layered(&is_windowed, window, logits))
}
