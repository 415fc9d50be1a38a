//! The models that `algorithmic --model` compares: what makes each what it is, at whatever size the rest of the configuration says.

use crate::session::experiment::NamedModel;

/// A Transformer with LSH attention of so many rounds, and without: what the duplication task of Reformer compares.
const fn lsh(name: &'static str, description: &'static str, settings: &'static str) -> NamedModel {
    NamedModel { name, description, attention: "lsh", settings }
}

pub(super) const MODELS: &[NamedModel] = &[
    NamedModel { name: "transformer", description: "layers with weights of their own", attention: "dot-product", settings: "" },
    NamedModel {
        name: "universal",
        description: "one block for all layers, as many steps for all positions (Dehghani et al. 2018)",
        attention: "dot-product",
        settings: r#"
            [model]
            depth = { kind = "shared", step_signal = "sinusoidal" }
        "#,
    },
    NamedModel {
        name: "universal-act",
        description: "one block for all layers, positions halt by themselves",
        attention: "dot-product",
        settings: r#"
            [model]
            depth = { kind = "shared", step_signal = "sinusoidal", halting = { ponder_weight = 0.01 } }
        "#,
    },
    lsh(
        "lsh-full",
        "shared queries and keys, all pairs",
        r#"
            [mechanisms.lsh]
            rounds = 1
            chunk = 8
            full_attention_below = 1000000
        "#,
    ),
    lsh(
        "lsh-1",
        "LSH attention, 1 round (Kitaev et al. 2020)",
        r#"
            [mechanisms.lsh]
            rounds = 1
            chunk = 8
        "#,
    ),
    lsh(
        "lsh-2",
        "LSH attention, 2 rounds",
        r#"
            [mechanisms.lsh]
            rounds = 2
            chunk = 8
        "#,
    ),
    lsh(
        "lsh-4",
        "LSH attention, 4 rounds",
        r#"
            [mechanisms.lsh]
            rounds = 4
            chunk = 8
        "#,
    ),
];
