//! The work of a candidate, in a form that both sides can read.

use std::time::Instant;

use burn::tensor::Device;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decoding::Decoding;
use crate::depth::{Activations, Deep};
use crate::padded_step::{ClassifierStep, TranslationStep};
use crate::projections::Projections;
use crate::training_step::{ModelSizes, TrainingStep};
use crate::workload::{Sizes, Workload};

/// The work of a candidate. Its `method` is a table with a `name` and options: an [`AnyMechanism`] of ours, or the name that benches/peers uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    /// A causal self-attention layer, projections included.
    Attention {
        /// Which attention.
        method: Value,
        /// How ours is executed.
        engine: Engine,
        /// Sizes of the layer and its input.
        sizes: Sizes,
        /// Forward and backward, or inference.
        training: bool,
        /// Probability with which weights are dropped in training.
        #[serde(default)]
        dropout: f64,
        /// Whether it attends to a memory as long as the sequence too.
        #[serde(default)]
        has_memory: bool,
    },
    /// The projections of such a layer alone.
    Projections {
        /// How many there are.
        count: usize,
        /// Sizes of the layer and its input.
        sizes: Sizes,
        /// Forward and backward, or inference.
        training: bool,
    },
    /// One step of training a language model.
    TrainingStep {
        /// Which attention and which optimiser.
        method: Value,
        /// Sizes of the model.
        model: ModelSizes,
        /// Rows of the batch.
        batch: usize,
        /// Tokens of a row.
        length: usize,
    },
    /// One step of training a classifier.
    ClassifierStep {
        /// Which attention and which optimiser.
        method: Value,
        /// Sizes of the model.
        model: ModelSizes,
        /// Number of classes.
        classes: usize,
        /// Real tokens of each row.
        lengths: Vec<usize>,
        /// Whether ours leaves out the padding in its position-wise parts and maps.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unpadded: bool,
    },
    /// One step of training an encoder-decoder.
    TranslationStep {
        /// Which self-attention and which optimiser.
        method: Value,
        /// Sizes of the model, whose layers both stacks have.
        model: ModelSizes,
        /// Real tokens of each source.
        source: Vec<usize>,
        /// Real tokens of each target.
        target: Vec<usize>,
        /// Whether ours leaves out the padding in its position-wise parts and maps.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unpadded: bool,
    },
    /// Forward and backward of a language model.
    Depth {
        /// How activations are treated.
        activations: Activations,
        /// Sizes of the model.
        model: ModelSizes,
        /// Rows of the batch.
        batch: usize,
        /// Tokens of a row.
        length: usize,
    },
    /// Greedy decoding.
    Decoding {
        /// Which attention.
        method: Value,
        /// Sizes of the model.
        model: ModelSizes,
        /// Rows that are decoded at once.
        batch: usize,
        /// Tokens that are decoded for each row.
        tokens: usize,
        /// Without a state: each token from its whole prefix, timed at so many lengths and scaled up. Otherwise step by step.
        recomputed_at: Option<usize>,
    },
}

impl Work {
    /// A causal self-attention layer without dropout and memory.
    pub fn attention(method: Value, engine: Engine, sizes: Sizes, training: bool) -> Self {
        Self::Attention { method, engine, sizes, training, dropout: 0.0, has_memory: false }
    }

    /// Sizes of the layer and its input, of which a layer alone consists.
    pub fn layer_sizes(&self) -> Option<Sizes> {
        match self {
            Self::Attention { sizes, .. } | Self::Projections { sizes, .. } => Some(*sizes),
            _ => None,
        }
    }

    /// The same with another input of a layer.
    pub(super) fn with_layer_sizes(mut self, other: Sizes) -> Self {
        if let Self::Attention { sizes, .. } | Self::Projections { sizes, .. } = &mut self {
            *sizes = other;
        }
        self
    }

    /// The same on the smallest input that all methods accept: it loads the code and threads of the real input, and uses little memory.
    pub fn tiny(&self) -> Self {
        let short = |sizes: Sizes| Sizes { batch: 1, length: sizes.length.min(256), ..sizes };
        match self.clone() {
            Self::Attention { method, engine, sizes, training, dropout, has_memory } => {
                Self::Attention { method, engine, sizes: short(sizes), training, dropout, has_memory }
            }
            Self::Projections { count, sizes, training } => Self::Projections { count, sizes: short(sizes), training },
            Self::TrainingStep { method, model, .. } => {
                let model = ModelSizes { vocabulary: model.vocabulary.min(100), layers: 1, ..model };
                Self::TrainingStep { method, model, batch: 1, length: 16 }
            }
            Self::ClassifierStep { method, model, classes, unpadded, .. } => {
                let model = ModelSizes { vocabulary: model.vocabulary.min(100), layers: 1, ..model };
                Self::ClassifierStep { method, model, classes, lengths: vec![16, 8], unpadded }
            }
            Self::TranslationStep { method, model, unpadded, .. } => {
                let model = ModelSizes { vocabulary: model.vocabulary.min(100), layers: 1, ..model };
                Self::TranslationStep { method, model, source: vec![16, 8], target: vec![8, 16], unpadded }
            }
            Self::Depth { activations, model, .. } => {
                Self::Depth { activations, model: ModelSizes { layers: 1, ..model }, batch: 1, length: 16 }
            }
            Self::Decoding { method, model, recomputed_at, .. } => Self::Decoding { method, model, batch: 1, tokens: 16, recomputed_at },
        }
    }

    /// Builds what is described, for a device without autodiff, as a function that runs it once and returns the seconds that it took.
    ///
    /// # Errors
    /// If it names no mechanism, or one that is impossible with these sizes.
    pub fn prepare(&self, device: &Device) -> Result<Run, Box<dyn std::error::Error>> {
        Ok(match self {
            Self::Attention { method, engine, sizes, training, dropout, has_memory } => {
                let workload = Workload::with_dropout(&attention(method)?, *sizes, *dropout, *engine, device)?;
                let workload = if *has_memory { workload.after_segment() } else { workload };
                if *training { timed(move || workload.forward_backward()) } else { timed(move || workload.forward()) }
            }
            Self::Projections { count, sizes, training } => {
                let projections = Projections::new(*count, *sizes, device);
                if *training { timed(move || projections.forward_backward()) } else { timed(move || projections.forward()) }
            }
            Self::TrainingStep { method, model, batch, length } => {
                let mut step = TrainingStep::new(&attention(method)?, *model, *batch, *length, device)?;
                timed(move || step.run())
            }
            Self::ClassifierStep { method, model, classes, lengths, unpadded } => {
                let mut step = ClassifierStep::new(&attention(method)?, *model, *classes, lengths, *unpadded, device)?;
                timed(move || step.run())
            }
            Self::TranslationStep { method, model, source, target, unpadded } => {
                let mut step = TranslationStep::new(&attention(method)?, *model, [source, target], *unpadded, device)?;
                timed(move || step.run())
            }
            Self::Depth { activations, model, batch, length } => {
                let deep = Deep::new(*activations, *model, *batch, *length, device)?;
                timed(move || deep.forward_backward())
            }
            Self::Decoding { method, model, batch, tokens, recomputed_at } => {
                let decoding = Decoding::new(&attention(method)?, *model, *batch, *tokens, device)?;
                match *recomputed_at {
                    Some(count) => Box::new(move || decoding.by_recomputing(count)),
                    None => Box::new(move || decoding.by_steps()),
                }
            }
        })
    }
}

/// Runs something once and returns the seconds that it took.
pub type Run = Box<dyn FnMut() -> f64>;

fn timed<T>(mut run: impl FnMut() -> T + 'static) -> Run {
    Box::new(move || {
        let begun = Instant::now();
        // Dropping the result is part of the run, as it is in the other language.
        drop(run());
        begun.elapsed().as_secs_f64()
    })
}

fn attention(method: &Value) -> Result<AnyMechanism, serde_json::Error> {
    AnyMechanism::deserialize(method)
}
