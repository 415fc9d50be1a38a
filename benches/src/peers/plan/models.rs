//! Comparisons of models.

use heedful_attention::prelude::*;
use heedful_host::exit::ProgramError;
use serde_json::{Value, json};

use super::{Candidate, Case, DENSE, Layers, PROJECTIONS, PYTORCH_SDPA, Plan};
use crate::depth::Activations;
use crate::peers::options::{DecodeOptions, DepthOptions, InferenceOptions, LayerOptions, MemoryOptions, StepOptions};
use crate::peers::side::Maker;
use crate::peers::work::Work;
use crate::training_step::{ModelSizes, spread};

impl StepOptions {
    /// Classes of the classifier.
    const CLASSES: usize = 3;

    /// Training steps with AdamW.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other, or no memory holds the model.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let Self { batch, length, .. } = *self;
        let sizes = self.model.layer.sizes(batch, length)?;
        let model = self.model.sizes();
        ModelSizes::check_memory(&[model], batch.saturating_mul(length))?;
        let language_model = |method| Work::TrainingStep { method, model, batch, length };
        let (sentences, targets) = (self.lengths(0), self.lengths(1));
        let (shortest, rows, real) = (self.shortest(), sentences.len(), sentences.iter().sum::<usize>());
        let classifier = |unpadded| {
            let lengths = sentences.clone();
            move |method| Work::ClassifierStep { method, model, classes: Self::CLASSES, lengths: lengths.clone(), unpadded }
        };
        let translation = |unpadded| {
            let (source, target) = (sentences.clone(), targets.clone());
            move |method| Work::TranslationStep { method, model, source: source.clone(), target: target.clone(), unpadded }
        };
        let padded = |name: &str, tokens, candidates| Case {
            name: format!("{name}, {rows} of {shortest} to {length}"),
            tokens,
            ..sizes.case(candidates)
        };
        Ok(Plan {
            what: "step",
            title: "A training step of a language model, a classifier and an encoder-decoder",
            about: format!(
                "{} layers of width {} with {} heads and {} hidden units, normalised before each sublayer, {} tokens, tied output, no dropout, AdamW. PyTorch \
                 is eager and has scaled_dot_product_attention, one product for queries, keys and values, and either its default AdamW or its fused one; or code made \
                 of the loss and its gradients by torch.compile, and the fused AdamW. What the compiler takes of memory would count in the last one's peak, which is not \
                 measured. The classifier reads {rows} sentences of {shortest} to {length} tokens, padded to the longest, and the encoder-decoder, with as many \
                 layers in each stack, so many pairs of such lengths; PyTorch has a mask of the padding, and neither maps padding to logits. `heedful, \
                 unpadded` leaves the padding out of feed-forward networks, of linear maps of attention and of its tiles.",
                model.layers, model.d_model, model.heads, model.d_ff, model.vocabulary,
            ),
            cases: vec![
                sizes.case(contenders(language_model)),
                padded("classifier, sentences", real, with_unpadded(contenders(classifier(false)), classifier(true))),
                padded(
                    "encoder-decoder, pairs",
                    real + targets.iter().sum::<usize>(),
                    with_unpadded(contenders(translation(false)), translation(true)),
                ),
            ],
        })
    }

    /// Lengths of padded sequences, spread evenly. Twice as many rows as in the other batch hold about as many real tokens.
    fn lengths(&self, part: usize) -> Vec<usize> {
        let (rows, shortest) = (2 * self.batch, self.shortest());
        let length = |index: usize| shortest + (spread(index) * (self.length - shortest + 1) as f64) as usize;
        (part * rows..(part + 1) * rows).map(length).collect()
    }

    fn shortest(&self) -> usize {
        self.length.div_ceil(16)
    }
}

/// Ours and PyTorch's ways to compute a step.
fn contenders(step: impl Fn(Value) -> Work) -> Vec<Candidate> {
    let theirs = |name: &str, is_fused: bool, is_compiled: bool| {
        Candidate::new(name, Maker::Peer, step(json!({ "name": "sdpa", "fused": is_fused, "compiled": is_compiled }))).against("PyTorch")
    };
    vec![
        Candidate::new("heedful", Maker::Heedful, step(json!({ "name": "dot-product" }))).against("PyTorch"),
        theirs("PyTorch", false, false),
        theirs("PyTorch, fused AdamW", true, false),
        theirs("PyTorch, compiled", true, true).without_peak(),
    ]
}

/// The name of ours that leaves out padding.
pub const UNPADDED: &str = "heedful, unpadded";

/// These, and after the first one ours without padding.
fn with_unpadded(mut contenders: Vec<Candidate>, step: impl Fn(Value) -> Work) -> Vec<Candidate> {
    contenders.insert(1, Candidate::new(UNPADDED, Maker::Heedful, step(json!({ "name": "dot-product" }))).against("PyTorch"));
    contenders
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
            let ours = |name: &str, config: Value| layers.ours(name, &config, Engine::Fused).against(DENSE);
            let (four, two) = ("heedful, 4 projections", "heedful, 2 projections");
            Ok(sizes.case(vec![
                ours("dot-product", json!({ "name": "dot-product" })).less(four),
                ours("synthesizer-random", json!({ "name": "synthesizer-random" })).less(two),
                ours("gaussian", json!({ "name": "gaussian" })).less(two),
                ours("gaussian, banded", json!({ "name": "gaussian", "execution": "banded" })).less(two),
                layers.theirs(PYTORCH_SDPA, json!({ "name": "sdpa" })).against(DENSE),
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
                Ok(layers.ours(&config.name(), &method, Engine::Fused).against(DENSE))
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
    /// Sizes of a model of so many layers.
    pub fn model(&self, layers: usize) -> ModelSizes {
        ModelSizes { vocabulary: 100, layers, d_model: self.d_model, heads: 2, d_ff: 4 * self.d_model }
    }

    /// Forward and backward of models of growing depth.
    ///
    /// # Errors
    /// A usage error if the sizes contradict each other, or no memory holds the models.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let Self { length, d_model, .. } = *self;
        let sizes = LayerOptions { d_model, heads: 2 }.sizes(1, length)?;
        // The candidates of a case are there at once.
        self.layers.iter().try_for_each(|&layers| ModelSizes::check_memory(&[self.model(layers); 3], length))?;
        let case = |&layers: &usize| {
            let model = self.model(layers);
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
    /// A usage error for an unknown mechanism, one that cannot be causal, sizes that contradict each other, or a model that no memory holds.
    pub fn plan(&self) -> Result<Plan, ProgramError> {
        let model = self.model.sizes();
        let tokens = self.tokens;
        let mut cases = Vec::new();
        for &batch in &self.batch {
            self.model.layer.sizes(batch, tokens)?;
            // The prefixes that are computed again are half as long on average.
            ModelSizes::check_memory(&[model], batch.saturating_mul(tokens.div_ceil(2)))?;
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
                    tokens: batch.saturating_mul(tokens),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::options::defaults;

    #[test]
    fn padded_rows_hold_about_as_many_tokens_as_full_ones() {
        let options = defaults::<StepOptions>();
        let [sentences, targets] = [0, 1].map(|part| options.lengths(part));
        assert!(sentences.len() == 16 && sentences != targets);
        for lengths in [sentences, targets] {
            assert!(lengths.iter().all(|length| (16..=256).contains(length)), "{lengths:?}");
            let real: usize = lengths.iter().sum();
            assert!((1900..2400).contains(&real), "{real}");
        }
    }
}
