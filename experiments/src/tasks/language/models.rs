//! The models that `lm --model` compares: what makes each what it is, at whatever size the rest of the configuration says. Windows, strides and chunks follow the
//! maximal length, as those of mechanisms do.

use crate::session::experiment::NamedModel;

pub(super) const MODELS: &[NamedModel] = &[
    NamedModel {
        name: "transformer",
        description: "layer normalisation first, sinusoidal positions",
        attention: "dot-product",
        settings: r#"
            [model]
            norm_order = "pre"
            positions = "sinusoidal"
        "#,
    },
    NamedModel {
        name: "gpt2",
        description: "learned positions, biases in all maps, tanh GELU (Radford et al. 2019)",
        attention: "dot-product",
        settings: r#"
            [model]
            norm = { kind = "layer", epsilon = 1e-5 }
            norm_order = "pre"
            positions = "learned"
            embedding_scale = "none"
            qkv_bias = true
            attention_output_bias = true
            activation = "gelu-tanh"
            initialisation = { kind = "normal-tables", deviation = 0.02, scaled_branches = true }
        "#,
    },
    NamedModel {
        name: "llama-3",
        description: "rotary positions, RMSNorm, SwiGLU, no biases (Grattafiori et al. 2024)",
        attention: "rotary",
        settings: r#"
            tied = false
            [model]
            norm = { kind = "rms", epsilon = 1e-5 }
            norm_order = "pre"
            positions = "none"
            embedding_scale = "none"
            activation = "silu"
            gated_feed_forward = true
            feed_forward_bias = false
            initialisation = { kind = "normal-tables", deviation = 0.02 }
            [mechanisms.rotary]
            base = 500000.0
        "#,
    },
    NamedModel {
        name: "mistral",
        description: "as llama-3, and all layers see a window of the last positions (Jiang et al. 2023)",
        attention: "rotary@sliding-window",
        settings: r#"
            tied = false
            [model]
            norm = { kind = "rms", epsilon = 1e-5 }
            norm_order = "pre"
            positions = "none"
            embedding_scale = "none"
            activation = "silu"
            gated_feed_forward = true
            feed_forward_bias = false
            initialisation = { kind = "normal-tables", deviation = 0.02 }
        "#,
    },
    NamedModel {
        name: "qwen-3",
        description: "as llama-3, queries and keys normalised, tied (Yang et al. 2025)",
        attention: "rotary",
        settings: r#"
            [model]
            norm = { kind = "rms", epsilon = 1e-6 }
            norm_order = "pre"
            positions = "none"
            embedding_scale = "none"
            activation = "silu"
            gated_feed_forward = true
            feed_forward_bias = false
            initialisation = { kind = "normal-tables", deviation = 0.02 }
            [mechanisms.rotary]
            base = 1000000.0
            qk_norm = "rms"
        "#,
    },
    NamedModel {
        name: "gemma-2",
        description: "rotary positions, windows in every second layer, sandwiches of RMSNorm, bounded scores and logits (Gemma Team 2024)",
        attention: "[rotary@soft-cap@sliding-window,rotary@soft-cap]",
        settings: r#"
            logit_softcap = 30.0
            [model]
            norm = { kind = "rms-plus-one", epsilon = 1e-6 }
            norm_order = "sandwich"
            positions = "none"
            embedding_scale = "sqrt"
            activation = "gelu-tanh"
            gated_feed_forward = true
            feed_forward_bias = false
            initialisation = { kind = "normal-tables", deviation = 0.02 }
        "#,
    },
    NamedModel {
        name: "transformer-xl",
        description: "memory of the segments before, relative positions (Dai et al. 2019)",
        attention: "relative",
        settings: r#"
            [data]
            memory = 128
            [model]
            norm_order = "post"
            positions = "none"
            initialisation = { kind = "normal", deviation = 0.02 }
        "#,
    },
    NamedModel {
        name: "gtrxl",
        description: "Transformer-XL with gates for residual connections (Parisotto et al. 2020)",
        attention: "relative",
        settings: r#"
            [data]
            memory = 128
            [model]
            norm_order = "pre"
            final_norm = false
            positions = "none"
            gate = { kind = "gru", bias = 2.0 }
            relu_before_residual = true
        "#,
    },
    NamedModel {
        name: "adaptive-span",
        description: "memory, each head learns how far back it looks (Sukhbaatar et al. 2019)",
        attention: "adaptive-span",
        settings: r#"
            [data]
            memory = 128
            [model]
            norm_order = "post"
            positions = "none"
        "#,
    },
    NamedModel {
        name: "universal",
        description: "one block for all layers, positions halt by themselves (Dehghani et al. 2018)",
        attention: "dot-product",
        settings: r#"
            [model]
            positions = "sinusoidal"
            depth = { kind = "shared", step_signal = "sinusoidal", halting = { ponder_weight = 0.01 } }
        "#,
    },
    NamedModel {
        name: "reformer",
        description: "LSH attention, reversible layers, chunked feed-forward (Kitaev et al. 2020)",
        attention: "lsh",
        settings: r#"
            [model]
            norm_order = "pre"
            depth = { kind = "reversible" }
            feed_forward_chunk = 64
        "#,
    },
    NamedModel {
        name: "reformer-mixed",
        description: "as reformer, every second layer local with shared queries and keys (released configurations of Kitaev et al. 2020)",
        attention: "[shared-qk@local-1d,lsh]",
        settings: r#"
            [model]
            norm_order = "pre"
            depth = { kind = "reversible" }
            feed_forward_chunk = 64
        "#,
    },
    NamedModel {
        name: "sparse",
        description: "fixed sparse attention, scaled initial weights (Child et al. 2019)",
        attention: "sparse-fixed",
        settings: r#"
            tied = false
            [model]
            norm_order = "pre"
            positions = "learned"
            activation = "quick-gelu"
            initialisation = { kind = "scaled" }
        "#,
    },
];

#[cfg(test)]
mod tests {
    use heedful_attention::mechanisms::local_1d::LocalOneDConfig;
    use heedful_attention::mechanisms::lsh::LshConfig;
    use heedful_attention::mechanisms::sliding_window::SlidingWindowConfig;
    use heedful_attention::mechanisms::sparse_fixed::SparseFixedConfig;
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
                        mechanism.get::<SlidingWindowConfig>().map(|config| config.window_at(length)),
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
