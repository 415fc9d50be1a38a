//! The models that `memory-rl --model` compares: their defining settings, at whatever size the rest of the configuration sets.

use crate::session::experiment::NamedModel;

/// A Transformer-XL whose sublayers are normalised first.
const XL: &str = r#"
    model.norm_order = "pre"
    model.final_norm = false
    model.positions = "none"
    model.relu_before_residual = true
"#;

/// A Transformer-XL with what joins its sublayers to the stream.
const fn xl(name: &'static str, description: &'static str, settings: &'static [&'static str]) -> NamedModel {
    NamedModel::new(name, description, "relative", settings)
}

pub(super) const MODELS: &[NamedModel] = &[
    xl("gtrxl", "Transformer-XL with gates, the GRU one (Parisotto et al. 2020)", &[XL, r#"model.gate = { kind = "gru" }"#]),
    xl("gtrxl-output", "the same with output gates", &[XL, r#"model.gate = { kind = "output" }"#]),
    xl("gtrxl-highway", "the same with highway gates", &[XL, r#"model.gate = { kind = "highway" }"#]),
    xl("gtrxl-sigtanh", "the same with sigmoid-tanh gates", &[XL, r#"model.gate = { kind = "sig-tanh" }"#]),
    xl("gtrxl-input", "the same with input gates", &[XL, r#"model.gate = { kind = "input" }"#]),
    xl("trxl-i", "Transformer-XL with normalisation before the sublayers, and no gates", &[XL]),
    xl(
        "transformer-xl",
        "memory of the steps before, relative positions (Dai et al. 2019)",
        &[r#"model.norm_order = "post""#, r#"model.positions = "none""#],
    ),
    NamedModel::new("lstm", "LSTM layers in place of the Transformer's", "dot-product", &[r#"core = "lstm""#]),
    NamedModel::new(
        "no-memory",
        "a Transformer that sees the present step alone",
        "local-1d",
        &[r#"
            data.memory = 0
            model.norm_order = "pre"
            model.positions = "none"
            mechanisms.local-1d = { query_block = 1, memory_block = 0 }
        "#],
    ),
];
