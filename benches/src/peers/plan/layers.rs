//! Comparisons of single layers.

use heedful_attention::engine::Engine;
use heedful_host::exit::ProgramError;
use serde_json::{Value, json};

use super::{Layers, PROJECTIONS, PYTORCH_SDPA, Plan};
use crate::peers::options::{AttentionOptions, MechanismsOptions, PackagesOptions, RecurrencesOptions, TablesOptions};
use crate::peers::side::Maker;

/// How many matrices of 32-bit numbers over all pairs of positions a backward pass by the formula holds at once, roughly.
const MATRICES: f64 = 6.0;

impl AttentionOptions {
    /// Forward and backward of a layer, fused and by its formula, on both sides.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            let sizes = self.layer.sizes((self.tokens / length).max(1), length)?;
            let layers = Layers { sizes, training: true };
            let dot_product = json!({ "name": "dot-product" });
            let mut candidates = vec![
                layers.ours("fused", &dot_product, Engine::Fused).against(PYTORCH_SDPA).less("heedful, 4 projections"),
                layers.theirs(PYTORCH_SDPA, json!({ "name": "sdpa" })).less("PyTorch, 4 projections"),
                layers.ours("reference", &dot_product, Engine::Reference).against(PYTORCH_SDPA),
                layers.theirs("PyTorch naive", json!({ "name": "naive" })).against(PYTORCH_SDPA),
                layers.projections(Maker::Heedful, 4),
                layers.projections(Maker::Peer, 4),
            ];
            let gibibytes = MATRICES * (4 * sizes.batch * sizes.heads * length * length) as f64 / (1u64 << 30) as f64;
            if gibibytes > self.matrices {
                let reason = format!("left out: about {gibibytes:.0} GiB of matrices");
                candidates.iter_mut().skip(2).take(2).for_each(|candidate| candidate.left_out = Some(reason.clone()));
            }
            Ok(sizes.case(candidates))
        };
        Ok(Plan {
            what: "attention",
            title: "Causal attention, forward and backward",
            about: format!(
                "A multi-head layer of width {} with {} heads, projections included: forward, and backward to the input and all weights. PyTorch has one product \
                 for queries, keys and values. {PROJECTIONS}",
                self.layer.d_model, self.layer.heads,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl MechanismsOptions {
    /// Blocks, summaries and chunks of the mechanisms.
    const WINDOW: usize = 128;
    const STRIDE: usize = 128;
    const CHUNK: usize = 64;
    const ROUNDS: usize = 4;

    /// Forward and backward of each mechanism.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            check_multiple(length, 2 * MechanismsOptions::CHUNK)?;
            let sizes = self.layer.sizes(1, length)?;
            let layers = Layers { sizes, training: true };
            let (four, three) = ("heedful, 4 projections", "heedful, 3 projections");
            let ours = |config: Value| {
                let name = config["name"].as_str().unwrap_or_default();
                layers.ours(name, &config, Engine::Fused).against("heedful dot-product").less(if name == "lsh" { three } else { four })
            };
            Ok(sizes.case(vec![
                ours(json!({ "name": "dot-product" })),
                ours(json!({ "name": "local-1d", "query_block": Self::WINDOW })),
                ours(json!({ "name": "sparse-strided", "stride": Self::STRIDE })),
                ours(json!({ "name": "sparse-fixed", "stride": Self::STRIDE })),
                ours(json!({ "name": "lsh", "chunk": Self::CHUNK, "rounds": Self::ROUNDS })),
                layers.theirs("local-attention", json!({ "name": "local-attention", "window": Self::WINDOW })).against("heedful local-1d"),
                layers
                    .theirs("reformer-pytorch", json!({ "name": "reformer-pytorch", "bucket": Self::CHUNK, "rounds": Self::ROUNDS }))
                    .against("heedful lsh"),
                layers.projections(Maker::Heedful, 4),
                layers.projections(Maker::Heedful, 3),
            ]))
        };
        Ok(Plan {
            what: "mechanisms",
            title: "Sub-quadratic mechanisms, forward and backward",
            about: format!(
                "A causal layer of width {} with {} heads, projections included, batch 1: `local-1d` with blocks of {} (a query sees its block and the one \
                 before, as in local-attention), `sparse-strided` and `sparse-fixed` with l = {}, `lsh` with chunks of {} and {} rounds. Ours are compared \
                 with our dense attention, the packages with what they have in common with us. {PROJECTIONS}",
                self.layer.d_model,
                self.layer.heads,
                Self::WINDOW,
                Self::STRIDE,
                Self::CHUNK,
                Self::ROUNDS,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl TablesOptions {
    /// Forward and backward of mechanisms whose logits are a table.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        const NAIVE: &str = "PyTorch random synthesizer";
        const DENSE: &str = "heedful dot-product";
        let case = |&length: &usize| {
            let layers = Layers { sizes: self.layer.sizes((self.tokens / length).max(1), length)?, training: true };
            let ours = |name: &str, config: Value| layers.ours(name, &config, Engine::Auto);
            let random = || json!({ "name": "synthesizer-random" });
            let mixture = json!({ "name": "mixture", "members": [random(), { "name": "dot-product" }] });
            Ok(layers.sizes.case(vec![
                ours("synthesizer-random", random()).against(NAIVE),
                layers.theirs(NAIVE, json!({ "name": "random-synthesizer" })),
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
                layers.ours(name, &json!({ "name": name }), Engine::Auto).less(&format!("heedful, {maps} projections"))
            };
            let theirs = |name: &str, method: Value, ours: &str, maps: usize| {
                layers.theirs(name, method).against(&format!("heedful {ours}")).less(&format!("PyTorch, {maps} projections"))
            };
            let delta = |package: &str| json!({ "name": "gated-delta-net", "package": package });
            Ok(layers.sizes.case(vec![
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
                 {}; around them PyTorch computes the same features, projections, short convolutions, normalisation and gate as our layers. Ratios are those of a \
                 package to ours. {PROJECTIONS} Those of `simple-gla` and `gated-delta-net` still have the convolutions, the normalisation and the gate; the maps of \
                 `gated-delta-net` are counted as six of the layer's width, which take as many multiplications.",
                self.layer.d_model,
                self.layer.heads,
                Self::CHUNK,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

/// The packages cut sequences into chunks without a rest.
fn check_multiple(length: usize, of: usize) -> Result<(), ProgramError> {
    if length.is_multiple_of(of) {
        return Ok(());
    }
    Err(ProgramError::usage(format!("--lengths {length} is no multiple of {of}, which the peers need")))
}
