//! The plans of the comparisons.

mod layers;
mod models;
mod packages;

use heedful_attention::contract::engine::Engine;
use heedful_host::exit::ProgramError;
use serde_json::Value;

pub use self::models::{PYTORCH_CACHE, UNPADDED};
use super::options::LayerOptions;
use super::side::Maker;
use super::work::Work;
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

    /// A layer that drops weights of attention with this probability.
    fn with_dropout(mut self, probability: f64) -> Self {
        if let Work::Attention { dropout, .. } = &mut self.work {
            *dropout = probability;
        }
        self
    }

    /// A layer that is given a memory as long as the sequence.
    fn with_memory(mut self) -> Self {
        if let Work::Attention { has_memory, .. } = &mut self.work {
            *has_memory = true;
        }
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
        let work = Work::attention(config.clone(), engine, sizes, training);
        Candidate::new(format!("heedful {name}"), Maker::Heedful, work)
    }

    fn theirs(self, name: &str, method: Value) -> Candidate {
        let Self { sizes, training } = self;
        Candidate::new(name, Maker::Peer, Work::attention(method, Engine::default(), sizes, training))
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

/// Our softmax attention, which others of ours are compared with.
pub const DENSE: &str = "heedful dot-product";
/// PyTorch with its fused attention.
pub const PYTORCH_SDPA: &str = "PyTorch SDPA";
/// PyTorch with the random synthesizer in plain operations.
pub const PYTORCH_TABLE: &str = "PyTorch random synthesizer";

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
        Ok(Sizes { batch, length, d_model, heads, kv_heads: None })
    }
}

impl Sizes {
    fn case(&self, candidates: Vec<Candidate>) -> Case {
        let Self { batch, length, .. } = *self;
        Case { name: format!("length {length}, batch {batch}"), length, tokens: batch.saturating_mul(length), candidates, is_timed: true }
    }
}

/// The packages cut sequences into chunks without a rest.
fn check_multiple(length: usize, of: usize) -> Result<(), ProgramError> {
    if length.is_multiple_of(of) {
        return Ok(());
    }
    Err(ProgramError::usage(format!("--lengths {length} is no multiple of {of}, which the peers need")))
}
