//! The models that `algorithmic --model` compares: their defining settings, at whatever size the rest of the configuration sets.

use crate::session::experiment::NamedModel;

/// LSH attention, as the duplication task of Reformer has it.
const CHUNK: &str = "mechanisms.lsh.chunk = 8";

pub(super) const MODELS: &[NamedModel] = &[
    NamedModel::new("transformer", "layers with weights of their own", "dot-product", &[]),
    NamedModel::new(
        "universal",
        "one block for all layers, as many steps for all positions (Dehghani et al. 2018)",
        "dot-product",
        &[r#"model.depth = { kind = "shared", step_signal = "sinusoidal" }"#],
    ),
    NamedModel::new(
        "universal-act",
        "one block for all layers, positions halt by themselves",
        "dot-product",
        &[r#"model.depth = { kind = "shared", step_signal = "sinusoidal", halting = { ponder_weight = 0.01 } }"#],
    ),
    NamedModel::new(
        "lsh-full",
        "shared queries and keys, all pairs",
        "lsh",
        &[CHUNK, "mechanisms.lsh.rounds = 1", "mechanisms.lsh.full_attention_below = 1000000"],
    ),
    NamedModel::new("lsh-1", "LSH attention, 1 round (Kitaev et al. 2020)", "lsh", &[CHUNK, "mechanisms.lsh.rounds = 1"]),
    NamedModel::new("lsh-2", "LSH attention, 2 rounds", "lsh", &[CHUNK, "mechanisms.lsh.rounds = 2"]),
    NamedModel::new("lsh-4", "LSH attention, 4 rounds", "lsh", &[CHUNK, "mechanisms.lsh.rounds = 4"]),
];
