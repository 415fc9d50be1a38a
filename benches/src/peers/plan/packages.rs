//! Comparisons of layers with those of packages, and with what is written in plain operations of PyTorch.

use heedful_attention::contract::engine::Engine;
use heedful_host::exit::ProgramError;
use serde_json::{Value, json};

use super::{DENSE, Layers, PROJECTIONS, PYTORCH_SDPA, PYTORCH_TABLE, Plan, check_multiple};
use crate::peers::options::{ConvolutionsOptions, MechanismsOptions, PackagesOptions, RecurrencesOptions, TablesOptions};
use crate::peers::side::Maker;

impl TablesOptions {
    /// Forward and backward of mechanisms whose logits are a table.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            let layers = Layers { sizes: self.layer.sizes((self.tokens / length).max(1), length)?, training: true };
            let ours = |name: &str, config: Value| layers.ours(name, &config, Engine::Auto);
            let random = || json!({ "name": "synthesizer-random" });
            let mixture = json!({ "name": "mixture", "members": [random(), { "name": "dot-product" }] });
            Ok(layers.sizes.case(vec![
                ours("synthesizer-random", random()).against(PYTORCH_TABLE),
                layers.theirs(PYTORCH_TABLE, json!({ "name": "random-synthesizer" })),
                ours("synthesizer-random-fixed", json!({ "name": "synthesizer-random", "trainable": false })).against(DENSE),
                ours("synthesizer-random+dot-product", mixture).against(DENSE),
                ours("dot-product", json!({ "name": "dot-product" })),
            ]))
        };
        Ok(Plan {
            what: "tables",
            title: "Random synthesizers, forward and backward",
            about: format!(
                "A causal layer of width {} with {} heads, projections included. PyTorch's is the formula in plain operations: the softmax of a masked table of \
                 logits, times the values.",
                self.layer.d_model, self.layer.heads,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl PackagesOptions {
    /// Slots of linformer.
    const SLOTS: usize = 64;

    /// Forward and backward of each mechanism that a package has.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            let layers = Layers { sizes: self.layer.sizes(1, length)?, training: true };
            check_multiple(length, 2 * MechanismsOptions::CHUNK)?;
            let ours = |config: Value| layers.ours(config["name"].as_str().unwrap_or_default(), &config, Engine::Auto);
            let theirs = |name: &str, method: Value, ours: &str| layers.theirs(name, method).against(&format!("heedful {ours}"));
            let (bucket, rounds) = (MechanismsOptions::CHUNK, MechanismsOptions::ROUNDS);
            let window = MechanismsOptions::WINDOW;
            Ok(layers.sizes.case(vec![
                ours(json!({ "name": "dot-product" })),
                theirs(PYTORCH_SDPA, json!({ "name": "sdpa" }), "dot-product"),
                theirs("nn.MultiheadAttention", json!({ "name": "multihead-attention" }), "dot-product"),
                theirs("x-transformers", json!({ "name": "x-transformers" }), "dot-product"),
                ours(json!({ "name": "local-1d", "query_block": window })),
                theirs("local-attention", json!({ "name": "local-attention", "window": window }), "local-1d"),
                ours(json!({ "name": "lsh", "chunk": bucket, "rounds": rounds })),
                theirs("reformer-pytorch", json!({ "name": "reformer-pytorch", "bucket": bucket, "rounds": rounds }), "lsh"),
                theirs("transformers Reformer", json!({ "name": "transformers-reformer", "bucket": bucket, "rounds": rounds }), "lsh"),
                ours(json!({ "name": "linformer", "rank": Self::SLOTS })),
                theirs("linformer", json!({ "name": "linformer", "rank": Self::SLOTS }), "linformer"),
            ]))
        };
        Ok(Plan {
            what: "packages",
            title: "Mechanisms beside packages on PyTorch, forward and backward",
            about: format!(
                "A causal layer (linformer: one that sees everything) of width {} with {} heads, projections included, batch 1. Ratios are those of a package to \
                 ours. Options as in the table before; linformer has {} slots. `transformers Reformer` is its LSH attention, without an output projection.",
                self.layer.d_model,
                self.layer.heads,
                Self::SLOTS,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl ConvolutionsOptions {
    /// Forward and backward of both convolutions, beside the ways to write them in PyTorch.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            let layers = Layers { sizes: self.layer.sizes((self.tokens / length).max(1), length)?, training: true };
            let ours = |config: Value| layers.ours(config["name"].as_str().unwrap_or_default(), &config, Engine::Auto);
            let convolution = |name: &str| ours(json!({ "name": name, "kernel": self.kernel })).against(DENSE);
            let theirs = |name: &str, execution: &str| {
                let method = json!({ "name": name, "execution": execution, "kernel": self.kernel });
                layers.theirs(&format!("PyTorch {name}, {execution}"), method).against(&format!("heedful {name}"))
            };
            Ok(layers.sizes.case(vec![
                convolution("lightweight-conv"),
                theirs("lightweight-conv", "unfold"),
                theirs("lightweight-conv", "shifted"),
                theirs("lightweight-conv", "conv1d"),
                convolution("dynamic-conv"),
                theirs("dynamic-conv", "unfold"),
                theirs("dynamic-conv", "shifted"),
                ours(json!({ "name": "dot-product" })),
            ]))
        };
        Ok(Plan {
            what: "convolutions",
            title: "Convolutions beside operations of PyTorch, forward and backward",
            about: format!(
                "A causal layer of width {} with {} heads and kernels of {} taps, projections included: a gated linear unit, the weighted sum over the taps and an \
                 output projection. PyTorch's sum is that of fairseq, which multiplies the windows of all positions (`unfold`); one shifted copy of the sequence for \
                 each tap (`shifted`); or one convolution with a group for each channel (`conv1d`), which cannot have kernels of each position. Our layers are \
                 compared with our dot-product attention, PyTorch's with ours.",
                self.layer.d_model, self.layer.heads, self.kernel,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl RecurrencesOptions {
    /// Chunk of the packages.
    const CHUNK: usize = 64;

    /// Forward and backward of each recurrence that a package has in plain PyTorch.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            check_multiple(length, Self::CHUNK)?;
            let layers = Layers { sizes: self.layer.sizes(1, length)?, training: true };
            let ours = |name: &str, maps: usize| {
                let ours = layers.ours(name, &json!({ "name": name }), Engine::Auto).against(DENSE);
                ours.less(&format!("heedful, {maps} projections"))
            };
            let theirs = |name: &str, method: Value, ours: &str, maps: usize| {
                layers.theirs(name, method).against(&format!("heedful {ours}")).less(&format!("PyTorch, {maps} projections"))
            };
            let delta = |package: &str| json!({ "name": "gated-delta-net", "package": package });
            Ok(layers.sizes.case(vec![
                ours("dot-product", 4),
                ours("linear-attention", 4),
                theirs("fla linear attention", json!({ "name": "linear-attention" }), "linear-attention", 4),
                ours("simple-gla", 5),
                theirs("fla simple GLA", json!({ "name": "simple-gla" }), "simple-gla", 5),
                ours("gated-delta-net", 6),
                theirs("fla gated delta rule", delta("fla"), "gated-delta-net", 6),
                theirs("transformers gated delta rule", delta("transformers"), "gated-delta-net", 6),
                layers.projections(Maker::Heedful, 4),
                layers.projections(Maker::Peer, 4),
                layers.projections(Maker::Heedful, 5),
                layers.projections(Maker::Peer, 5),
                layers.projections(Maker::Heedful, 6),
                layers.projections(Maker::Peer, 6),
            ]))
        };
        Ok(Plan {
            what: "recurrences",
            title: "Recurrences beside packages on PyTorch, forward and backward",
            about: format!(
                "A causal layer of width {} with {} heads, projections included, batch 1. The packages have functions in plain PyTorch (fla: \
                 `naive_chunk_linear_attn`, `naive_chunk_simple_gla` and `naive_chunk_gated_delta_rule`; transformers: `torch_chunk_gated_delta_rule`), in chunks of \
                 {}; around them PyTorch computes the same features, projections, short convolutions, normalisation and gate as our layers. Ratios are those of \
                 ours to our dot-product attention and of a package to ours. {PROJECTIONS} Those of `simple-gla` and `gated-delta-net` still have the convolutions, the normalisation and the gate; the maps of \
                 `gated-delta-net` are counted as six of the layer's width, which take as many multiplications.",
                self.layer.d_model,
                self.layer.heads,
                Self::CHUNK,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}
