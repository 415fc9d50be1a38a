//! The models that `memory-rl --model` compares: what makes each what it is, at whatever size the rest of the configuration says.

use crate::session::experiment::NamedModel;

/// A Transformer-XL whose sublayers are normalised first, and joined to the stream by a gate.
macro_rules! gtrxl {
    ($name:literal, $description:literal, $kind:literal) => {
        NamedModel {
            name: $name,
            description: $description,
            attention: "relative",
            settings: concat!(
                "[model]\nnorm_order = \"pre\"\nfinal_norm = false\npositions = \"none\"\nrelu_before_residual = true\ngate = { kind = \"",
                $kind,
                "\" }\n"
            ),
        }
    };
}

pub(super) const MODELS: &[NamedModel] = &[
    gtrxl!("gtrxl", "Transformer-XL with gates, the GRU one (Parisotto et al. 2020)", "gru"),
    gtrxl!("gtrxl-output", "the same with output gates", "output"),
    gtrxl!("gtrxl-highway", "the same with highway gates", "highway"),
    gtrxl!("gtrxl-sigtanh", "the same with sigmoid-tanh gates", "sig-tanh"),
    gtrxl!("gtrxl-input", "the same with input gates", "input"),
    NamedModel {
        name: "trxl-i",
        description: "Transformer-XL with normalisation before the sublayers, and no gates",
        attention: "relative",
        settings: r#"
            [model]
            norm_order = "pre"
            final_norm = false
            positions = "none"
            relu_before_residual = true
        "#,
    },
    NamedModel {
        name: "transformer-xl",
        description: "memory of the steps before, relative positions (Dai et al. 2019)",
        attention: "relative",
        settings: r#"
            [model]
            norm_order = "post"
            positions = "none"
        "#,
    },
    NamedModel {
        name: "lstm",
        description: "LSTM layers in place of the Transformer's",
        attention: "dot-product",
        settings: r#"core = "lstm""#,
    },
    NamedModel {
        name: "no-memory",
        description: "a Transformer that sees the present step alone",
        attention: "local-1d",
        settings: r#"
            [data]
            memory = 0
            [model]
            norm_order = "pre"
            positions = "none"
            [mechanisms.local-1d]
            query_block = 1
            memory_block = 0
        "#,
    },
];
