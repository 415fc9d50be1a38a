//! The models that `lm --model` compares: their defining settings, at whatever size the rest of the configuration sets. Windows, strides and chunks follow the
//! maximal length, as those of mechanisms do.

use crate::session::experiment::NamedModel;

/// Where sublayers are normalised.
const PRE: &str = r#"model.norm_order = "pre""#;
const POST: &str = r#"model.norm_order = "post""#;
/// Positions are known to the attention alone.
const NO_POSITIONS: &str = r#"model.positions = "none""#;
const MEMORY: &str = "data.memory = 128";
const UNTIED: &str = "tied = false";
const REVERSIBLE: &str = r#"
    model.depth = { kind = "reversible" }
    model.feed_forward_chunk = 64
"#;
/// What decoders of today share.
const GATED: &str = r#"
    model.positions = "none"
    model.gated_feed_forward = true
    model.feed_forward_bias = false
    model.initialisation = { kind = "normal-tables", deviation = 0.02 }
"#;
/// RMSNorm first, SwiGLU.
const LLAMA: &str = r#"
    model.norm.kind = "rms"
    model.norm_order = "pre"
    model.embedding_scale = "none"
    model.activation = "silu"
"#;

pub(super) const MODELS: &[NamedModel] = &[
    NamedModel::new(
        "transformer",
        "layer normalisation first, sinusoidal positions",
        "dot-product",
        &[PRE, r#"model.positions = "sinusoidal""#],
    ),
    NamedModel::new(
        "gpt2",
        "learned positions, biases in all maps, tanh GELU (Radford et al. 2019)",
        "dot-product",
        &[
            PRE,
            r#"
                model.norm = { kind = "layer", epsilon = 1e-5 }
                model.positions = "learned"
                model.embedding_scale = "none"
                model.qkv_bias = true
                model.attention_output_bias = true
                model.activation = "gelu-tanh"
                model.initialisation = { kind = "normal-tables", deviation = 0.02, scaled_branches = true }
            "#,
        ],
    ),
    NamedModel::new(
        "llama-3",
        "rotary positions, RMSNorm, SwiGLU, no biases (Grattafiori et al. 2024)",
        "rotary",
        &[GATED, LLAMA, UNTIED, "model.norm.epsilon = 1e-5", "mechanisms.rotary.base = 500000.0"],
    ),
    NamedModel::new(
        "mistral",
        "as llama-3, and all layers see a window of the last positions (Jiang et al. 2023)",
        "rotary@sliding-window",
        &[GATED, LLAMA, UNTIED, "model.norm.epsilon = 1e-5"],
    ),
    NamedModel::new(
        "qwen-3",
        "as llama-3, queries and keys normalised, tied (Yang et al. 2025)",
        "rotary",
        &[GATED, LLAMA, "model.norm.epsilon = 1e-6", r#"mechanisms.rotary = { base = 1000000.0, qk_norm = "rms" }"#],
    ),
    NamedModel::new(
        "gemma-2",
        "rotary positions, windows in every second layer, sandwiches of RMSNorm, bounded scores and logits (Gemma Team 2024)",
        "[rotary@soft-cap@sliding-window,rotary@soft-cap]",
        &[
            GATED,
            r#"
                logit_softcap = 30.0
                model.norm = { kind = "rms-plus-one", epsilon = 1e-6 }
                model.norm_order = "sandwich"
                model.embedding_scale = "sqrt"
                model.activation = "gelu-tanh"
            "#,
        ],
    ),
    NamedModel::new(
        "transformer-xl",
        "memory of the segments before, relative positions (Dai et al. 2019)",
        "relative",
        &[POST, NO_POSITIONS, MEMORY, r#"model.initialisation = { kind = "normal", deviation = 0.02 }"#],
    ),
    NamedModel::new(
        "gtrxl",
        "Transformer-XL with gates for residual connections (Parisotto et al. 2020)",
        "relative",
        &[
            PRE,
            NO_POSITIONS,
            MEMORY,
            r#"
                model.final_norm = false
                model.gate = { kind = "gru", bias = 2.0 }
                model.relu_before_residual = true
            "#,
        ],
    ),
    NamedModel::new(
        "adaptive-span",
        "memory, each head learns how far back it looks (Sukhbaatar et al. 2019)",
        "adaptive-span",
        &[POST, NO_POSITIONS, MEMORY],
    ),
    NamedModel::new(
        "universal",
        "one block for all layers, positions halt by themselves (Dehghani et al. 2018)",
        "dot-product",
        &[r#"
            model.positions = "sinusoidal"
            model.depth = { kind = "shared", step_signal = "sinusoidal", halting = { ponder_weight = 0.01 } }
        "#],
    ),
    NamedModel::new("reformer", "LSH attention, reversible layers, chunked feed-forward (Kitaev et al. 2020)", "lsh", &[PRE, REVERSIBLE]),
    NamedModel::new(
        "reformer-mixed",
        "as reformer, every second layer local; local layers share queries and keys, unlike the released code of Kitaev et al. 2020",
        "[shared-qk@local-1d,lsh]",
        &[PRE, REVERSIBLE],
    ),
    NamedModel::new(
        "sparse",
        "fixed sparse attention, scaled initial weights (Child et al. 2019)",
        "sparse-fixed",
        &[
            PRE,
            UNTIED,
            r#"
                model.positions = "learned"
                model.activation = "quick-gelu"
                model.initialisation = { kind = "scaled" }
            "#,
        ],
    ),
];

#[cfg(test)]
mod tests {
    use heedful_attention::prelude::*;
    use heedful_runs::settings::{Assignment, Settings};

    use super::*;
    use crate::session::comparison::candidates;
    use crate::session::footprint::Memory;
    use crate::tasks::language::Language;

    #[test]
    fn windows_strides_and_chunks_of_models_hide_something_at_every_length() {
        for length in [32usize, 64, 1024] {
            let mut sizes = 0;
            for model in MODELS {
                let options = [
                    format!("run.models=[{{name='{}'}}]", model.name),
                    "run.attention=[]".to_owned(),
                    format!("model.max_length={length}"),
                    format!("data.context={length}"),
                ];
                let assignments = options.iter().map(|option| Assignment::parse(option).unwrap()).collect();
                let candidates = candidates::<Language>(&mut Settings::read(None, assignments).unwrap(), Memory::here()).unwrap();
                for mechanism in candidates[0].attention.layout.decoder.mechanisms() {
                    let parts = [
                        mechanism.get::<SlidingWindowConfig>().map(|config| config.size(length)),
                        mechanism.get::<LocalOneDConfig>().map(|config| config.pattern(length).query_block),
                        mechanism.get::<SparseFixedConfig>().map(|config| config.stride_at(length)),
                        mechanism.get::<LshConfig>().map(|config| config.chunk_at(length)),
                    ];
                    for size in parts.into_iter().flatten() {
                        assert!(4 * size <= length, "{}: {size} of {length}", model.name);
                        sizes += 1;
                    }
                    if let Some(lsh) = mechanism.get::<LshConfig>() {
                        assert!(lsh.longest_full_attention(length) < length, "{} does not hash at {length}", model.name);
                    }
                }
            }
            assert_eq!(
                sizes, 6,
                "windows of Mistral and Gemma 2, blocks of the Sparse Transformer and a Reformer, chunks of both Reformers"
            );
        }
    }
}
