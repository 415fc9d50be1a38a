//! What is compared with what.

use heedful_attention::engine::Engine;
use heedful_attention::registry::AnyMechanism;
use heedful_host::exit::ProgramError;
use serde_json::{Value, json};

use super::options::{
    AttentionOptions, DecodeOptions, DepthOptions, InferenceOptions, LayerOptions, MechanismsOptions, MemoryOptions, PackagesOptions,
    StepOptions, TablesOptions,
};
use super::side::Maker;
use super::work::Work;
use crate::depth::Activations;
use crate::training_step::ModelSizes;
use crate::workload::Sizes;

/// A comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name: the command, and the name of its file.
    pub what: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What a reader of the table must know.
    pub about: String,
    /// One after the other.
    pub cases: Vec<Case>,
}

/// Candidates that are timed in turn, at one size.
#[derive(Clone, Debug)]
pub struct Case {
    /// The size in words.
    pub name: String,
    /// Length of a sequence.
    pub length: usize,
    /// Tokens of a run, all rows together.
    pub tokens: usize,
    /// In the order in which they run.
    pub candidates: Vec<Candidate>,
    /// Whether times are measured, and not peaks alone.
    pub is_timed: bool,
}

/// A program that does the work of a case.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Who, in words.
    pub name: String,
    /// Whose process it runs in.
    pub maker: Maker,
    /// What is run.
    pub work: Work,
    /// The candidate that it is compared with.
    pub baseline: Option<String>,
    /// The candidate whose time is taken off to get that of the operator alone.
    pub projections: Option<String>,
    /// Whether its peak memory is measured.
    pub has_peak: bool,
    /// Why it is left out, if it is.
    pub left_out: Option<String>,
}

impl Candidate {
    fn new(name: impl Into<String>, maker: Maker, work: Work) -> Self {
        Self { name: name.into(), maker, work, baseline: None, projections: None, has_peak: true, left_out: None }
    }

    fn against(mut self, baseline: &str) -> Self {
        self.baseline = (self.name != baseline).then(|| baseline.to_owned());
        self
    }

    fn less(mut self, projections: &str) -> Self {
        self.projections = Some(projections.to_owned());
        self
    }

    fn without_peak(mut self) -> Self {
        self.has_peak = false;
        self
    }
}

/// Name of a candidate's time without its projections.
pub fn operator(name: &str) -> String {
    format!("{name}, operator")
}

/// Layers of one size, trained or not.
#[derive(Clone, Copy)]
struct Layers {
    sizes: Sizes,
    training: bool,
}

impl Layers {
    fn ours(self, name: &str, config: &Value, engine: Engine) -> Candidate {
        let Self { sizes, training } = self;
        let work = Work::Attention { method: config.clone(), engine, sizes, training };
        Candidate::new(format!("heedful {name}"), Maker::Heedful, work)
    }

    fn theirs(self, name: &str, method: Value) -> Candidate {
        let Self { sizes, training } = self;
        Candidate::new(name, Maker::Peer, Work::Attention { method, engine: Engine::default(), sizes, training })
    }

    fn projections(self, maker: Maker, count: usize) -> Candidate {
        let Self { sizes, training } = self;
        let name = match maker {
            Maker::Heedful => format!("heedful, {count} projections"),
            Maker::Peer => format!("PyTorch, {count} projections"),
        };
        Candidate::new(name, maker, Work::Projections { count, sizes, training }).without_peak()
    }
}

const PYTORCH_SDPA: &str = "PyTorch SDPA";
const PROJECTIONS: &str = "Rows that end in `operator` are the layer less its linear maps alone, round by round.";

impl LayerOptions {
    /// The sizes of a layer.
    ///
    /// # Errors
    /// A usage error if the heads do not divide the width.
    pub fn sizes(&self, batch: usize, length: usize) -> Result<Sizes, ProgramError> {
        let Self { d_model, heads } = *self;
        if !d_model.is_multiple_of(heads) {
            return Err(ProgramError::usage(format!("--heads {heads} does not divide --d-model {d_model}; give a divisor")));
        }
        Ok(Sizes { batch, length, d_model, heads })
    }
}

impl Sizes {
    fn case(&self, candidates: Vec<Candidate>) -> Case {
        let Self { batch, length, .. } = *self;
        Case { name: format!("length {length}, batch {batch}"), length, tokens: batch * length, candidates, is_timed: true }
    }
}

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

/// How many matrices of 32-bit numbers over all pairs of positions a backward pass by the formula holds at once, roughly.
const MATRICES: f64 = 6.0;

impl StepOptions {
    /// A training step with AdamW.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let Self { batch, length, .. } = *self;
        let sizes = self.model.layer.sizes(batch, length)?;
        let model = self.model.sizes();
        let step = |name: &str, maker, method| Candidate::new(name, maker, Work::TrainingStep { method, model, batch, length });
        let candidates = vec![
            step("heedful", Maker::Heedful, json!({ "name": "dot-product" })).against("PyTorch"),
            step("PyTorch", Maker::Peer, json!({ "name": "sdpa", "fused": false })),
            step("PyTorch, fused AdamW", Maker::Peer, json!({ "name": "sdpa", "fused": true })).against("PyTorch"),
        ];
        Ok(Plan {
            what: "step",
            title: "A training step of a language model",
            about: format!(
                "{} layers of width {} with {} heads and {} hidden units, normalised before each sublayer, {} tokens, tied output, no dropout, AdamW. PyTorch \
                 is eager and has scaled_dot_product_attention, one product for queries, keys and values, and either its default AdamW or its fused one.",
                model.layers, model.d_model, model.heads, model.d_ff, model.vocabulary,
            ),
            cases: vec![sizes.case(candidates)],
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
            check_chunks(length)?;
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
            check_chunks(length)?;
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

/// The packages cut sequences into chunks without a rest.
fn check_chunks(length: usize) -> Result<(), ProgramError> {
    let chunks = 2 * MechanismsOptions::CHUNK;
    if length.is_multiple_of(chunks) {
        return Ok(());
    }
    Err(ProgramError::usage(format!("--lengths {length} is no multiple of {chunks}, which the peers need")))
}

impl InferenceOptions {
    /// Inference of mechanisms whose weights do not depend on the input.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let case = |&length: &usize| {
            let sizes = self.layer.sizes((self.tokens / length).max(1), length)?;
            let layers = Layers { sizes, training: false };
            let ours = |name: &str, config: Value| layers.ours(name, &config, Engine::Fused).against("heedful dot-product");
            let (four, two) = ("heedful, 4 projections", "heedful, 2 projections");
            Ok(sizes.case(vec![
                ours("dot-product", json!({ "name": "dot-product" })).less(four),
                ours("synthesizer-random", json!({ "name": "synthesizer-random" })).less(two),
                ours("gaussian", json!({ "name": "gaussian" })).less(two),
                ours("gaussian, banded", json!({ "name": "gaussian", "execution": "banded" })).less(two),
                layers.theirs(PYTORCH_SDPA, json!({ "name": "sdpa" })).against("heedful dot-product"),
                layers.projections(Maker::Heedful, 4),
                layers.projections(Maker::Heedful, 2),
            ]))
        };
        Ok(Plan {
            what: "inference",
            title: "Attention without queries and keys, inference",
            about: format!(
                "A causal layer of width {} with {} heads, projections included (four for dot products, two for the others), without autodiff. {PROJECTIONS}",
                self.layer.d_model, self.layer.heads,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl MemoryOptions {
    /// Forward and backward of each mechanism, for its peak alone.
    ///
    /// # Errors
    /// A usage error for an unknown mechanism, one that cannot be causal, or sizes that contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let mechanisms = causal(&self.attention)?;
        let case = |&length: &usize| {
            let sizes = self.layer.sizes(1, length)?;
            let layers = Layers { sizes, training: true };
            let candidate = |config: &AnyMechanism| {
                let method = serde_json::to_value(config).map_err(ProgramError::failure)?;
                Ok(layers.ours(&config.name(), &method, Engine::Fused).against("heedful dot-product"))
            };
            let candidates = mechanisms.iter().map(candidate).collect::<Result<_, ProgramError>>()?;
            Ok(Case { is_timed: false, ..sizes.case(candidates) })
        };
        Ok(Plan {
            what: "memory",
            title: "Peak memory of every mechanism, forward and backward",
            about: format!(
                "A causal layer of width {} with {} heads, projections included, batch 1, default options.",
                self.layer.d_model, self.layer.heads,
            ),
            cases: self.lengths.iter().map(case).collect::<Result<_, ProgramError>>()?,
        })
    }
}

impl DepthOptions {
    /// Forward and backward of models of growing depth.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let Self { length, d_model, .. } = *self;
        let sizes = LayerOptions { d_model, heads: 2 }.sizes(1, length)?;
        let case = |&layers: &usize| {
            let model = ModelSizes { vocabulary: 100, layers, d_model, heads: 2, d_ff: 4 * d_model };
            let candidate = |name: &str, activations| {
                Candidate::new(name, Maker::Heedful, Work::Depth { activations, model, batch: 1, length }).against("kept")
            };
            let candidates = vec![
                candidate("kept", Activations::Kept),
                candidate("checkpointed", Activations::Checkpointed),
                candidate("reversible", Activations::Reversible),
            ];
            Case { name: format!("{layers} layers"), ..sizes.case(candidates) }
        };
        Ok(Plan {
            what: "depth",
            title: "Activations in depth, forward and backward",
            about: format!(
                "A language model of width {d_model} with 2 heads and {} hidden units, dropout on, one row of {length} tokens. The weights of a layer and their \
                 gradients, which are in the peaks too, take {:.2} MiB.",
                4 * d_model,
                2.0 * 4.0 * 12.0 * (d_model * d_model) as f64 / f64::from(1 << 20),
            ),
            cases: self.layers.iter().map(case).collect(),
        })
    }
}

impl DecodeOptions {
    /// Greedy decoding with each mechanism.
    ///
    /// # Errors
    /// A usage error for an unknown mechanism, one that cannot be causal, or sizes that contradict each other.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let model = self.model.sizes();
        let tokens = self.tokens;
        let mut cases = Vec::new();
        for &batch in &self.batch {
            self.model.layer.sizes(batch, tokens)?;
            for config in causal(&self.attention)? {
                let work = |method, recomputed_at| Work::Decoding { method, model, batch, tokens, recomputed_at };
                let candidate = |name: String, maker, work| Candidate::new(name, maker, work).without_peak();
                let name = config.name();
                let method = serde_json::to_value(&config).map_err(ProgramError::failure)?;
                let recomputed = format!("heedful {name}, recomputed");
                let candidates = vec![
                    candidate(format!("heedful {name}"), Maker::Heedful, work(method.clone(), None)).against(&recomputed),
                    candidate(recomputed, Maker::Heedful, work(method, Some(self.prefixes))),
                    candidate(PYTORCH_CACHE.into(), Maker::Peer, work(json!({ "name": "sdpa" }), None)).against(&format!("heedful {name}")),
                ];
                cases.push(Case {
                    name: format!("{name}, batch {batch}"),
                    length: tokens,
                    tokens: batch * tokens,
                    candidates,
                    is_timed: true,
                });
            }
        }
        Ok(Plan {
            what: "decode",
            title: "Decoding step by step",
            about: format!(
                "Greedy decoding of {tokens} tokens for each row by a language model of {} layers of width {} with {} heads and {} hidden units, {} tokens \
                 in its vocabulary. `recomputed` computes the whole prefix again for each token; it is timed at {} evenly spaced lengths of the prefix, and \
                 their mean counts for all. PyTorch has dot-product attention, and a cache that is as large as needed from the start.",
                model.layers, model.d_model, model.heads, model.d_ff, model.vocabulary, self.prefixes,
            ),
            cases,
        })
    }
}

/// PyTorch with a cache of keys and values.
pub const PYTORCH_CACHE: &str = "PyTorch with a cache";

/// Mechanisms by name, or all that can be causal.
fn causal(names: &[String]) -> Result<Vec<AnyMechanism>, ProgramError> {
    if names.is_empty() {
        return Ok(AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal).collect());
    }
    let parse = |name: &String| {
        let config: AnyMechanism = name.parse().map_err(ProgramError::usage)?;
        if config.can_be_causal() {
            Ok(config)
        } else {
            Err(ProgramError::usage(format!("--attention {name}: it cannot be causal, as all are here; leave it out")))
        }
    };
    names.iter().map(parse).collect()
}
