//! The models that `lm --model` compares: what makes each what it is, at whatever size the rest of the configuration says.

use crate::experiment::NamedModel;

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
            [mechanisms.sliding-window]
            window = 32
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
            [mechanisms.sliding-window]
            window = 32
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
            [mechanisms.lsh]
            rounds = 4
            chunk = 32
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
            [mechanisms.local-1d]
            query_block = 32
            [mechanisms.lsh]
            rounds = 4
            chunk = 32
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
            [mechanisms.sparse-fixed]
            stride = 16
            summary = 4
        "#,
    },
];
