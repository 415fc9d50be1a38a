//! Logits under a pattern of visibility.
//!
//! A pattern is a mechanism of its own only by what it hides; how the rest is scored is the business of other logits. So every pattern goes with all logits,
//! mixtures and other patterns (which intersect) included.

use std::sync::{Arc, Mutex};

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::any::{AnyLogits, AttentionConfig};
use crate::contract::{Losses, Positions};
use crate::engine::LogitTerms;
use crate::engine::blocked::Blocks;
use crate::error::ConfigError;
use crate::logits::{LogitFacts, Logits};
use crate::pattern::{Pattern, blocks};
use crate::placement::Placement;
use crate::random::RandomKey;
use crate::visibility::{Span, Visibility};

/// How a pattern is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Execution {
    /// All weights are computed and most of them hidden: nothing is saved.
    Masked,
    /// Each block of queries meets the keys that it can see.
    #[default]
    Blocked,
}

/// Logits of which a query sees those that a pattern shows.
///
/// Should be created with the configuration of a mechanism, or with [`Restricted::new`] for logits and patterns of one's own.
#[derive(Module, Debug)]
pub struct Restricted<L: Logits = AnyLogits> {
    /// The one member: what scores the keys.
    // A list, because a module cannot hold itself otherwise.
    pub logits: Vec<L>,
    #[module(skip)]
    pattern: Arc<dyn Pattern>,
    #[module(skip)]
    shown: Visibility,
    #[module(skip)]
    parts: Vec<(Arc<dyn Pattern>, Visibility)>,
    #[module(skip)]
    execution: Execution,
    #[module(skip)]
    latest: Arc<Mutex<Option<Made>>>,
}

/// Blocks and what they were made from. Steps of training ask for the same again and again.
#[derive(Clone, Debug)]
struct Made {
    seen: Visibility,
    span: Span,
    positions: Positions,
    heads: usize,
    dtype: DType,
    device: Device,
    blocks: Vec<Blocks>,
}

fn shown_by(pattern: &Arc<dyn Pattern>) -> Visibility {
    let sees = pattern.clone();
    if pattern.depends_on_head() {
        Visibility::pattern(move |head, i, j| sees.sees(head, i, j))
    } else {
        Visibility::relation(move |i, j| sees.sees(0, i, j))
    }
}

impl<L: Logits> Restricted<L> {
    /// Restricts logits by a pattern.
    pub fn new(logits: L, pattern: Arc<dyn Pattern>, execution: Execution) -> Self {
        let shown = shown_by(&pattern);
        let parts = pattern.parts().into_iter().map(|part| {
            let shown = shown_by(&part);
            (part, shown)
        });
        Self { logits: vec![logits], parts: parts.collect(), shown, pattern, execution, latest: Arc::default() }
    }

    /// The pattern.
    pub fn pattern(&self) -> &dyn Pattern {
        &*self.pattern
    }

    fn inner(&self) -> &L {
        &self.logits[0]
    }
}

impl Restricted {
    /// Restricts the logits of a configuration.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub(crate) fn over(
        logits: &AttentionConfig,
        pattern: impl Pattern + 'static,
        execution: Execution,
        placement: &Placement,
        key: &RandomKey,
        device: &Device,
    ) -> Self {
        let logits = logits.init_logits(placement, key, device).expect("validated: what is restricted has logits");
        Self::new(logits, Arc::new(pattern), execution)
    }
}

/// Checks what the mechanism called `attention` restricts.
pub(crate) fn validate_logits(attention: &str, logits: &AttentionConfig, placement: &Placement) -> Result<(), ConfigError> {
    if !logits.can_be_restricted() {
        let remedy = "restrict an attention that has logits, a mixture of such, or another pattern";
        return Err(placement.check(attention).wrong("logits", logits.name(), remedy));
    }
    logits.validate(placement)
}

impl<L: Logits> Logits for Restricted<L> {
    fn facts(&self) -> LogitFacts {
        LogitFacts { cross_attention: false, ..self.inner().facts() }
    }

    fn keys(&self, memory: Tensor<3>) -> Option<Tensor<4>> {
        self.inner().keys(memory)
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        self.inner().terms(query, keys, span, positions)
    }

    fn visibility(&self) -> Option<Visibility> {
        let shown = self.shown.clone();
        Some(match self.inner().visibility() {
            Some(inner) => shown.and(inner),
            None => shown,
        })
    }

    fn soft_span(&self, query: &Tensor<3>, span: Span) -> Option<Tensor<4>> {
        self.inner().soft_span(query, span)
    }

    fn reach(&self) -> Option<usize> {
        [self.pattern.reach(), self.inner().reach()].into_iter().flatten().min()
    }

    fn blocks(&self, seen: &Visibility, span: Span, positions: &Positions, values: &Tensor<4>) -> Option<Vec<Blocks>> {
        if self.execution == Execution::Masked {
            return None;
        }
        let (heads, dtype, device) = (values.dims()[1], values.dtype(), values.device());
        let same = |made: &Made| {
            made.span == span
                && made.positions == *positions
                && (made.heads, made.dtype) == (heads, dtype)
                && made.device == device
                && made.device.is_autodiff() == device.is_autodiff()
                && made.seen.equals(seen)
        };
        let unbroken = "no panic happens while the latest blocks are locked";
        if let Some(made) = self.latest.lock().expect(unbroken).as_ref().filter(|made| same(made)) {
            return Some(made.blocks.clone());
        }
        let make = |pattern: &dyn Pattern, seen: &Visibility| blocks(pattern, seen, span, positions, values);
        let blocks = if self.parts.is_empty() {
            vec![make(&*self.pattern, seen)]
        } else {
            let part = |(pattern, shown): &(Arc<dyn Pattern>, Visibility)| {
                let shown = match &positions.left_padding {
                    Some(counts) => shown.clone().shifted(counts.clone()),
                    None => shown.clone(),
                };
                make(&**pattern, &seen.clone().and(shown))
            };
            self.parts.iter().map(part).collect()
        };
        let made = Made { seen: seen.clone(), span, positions: positions.clone(), heads, dtype, device, blocks: blocks.clone() };
        *self.latest.lock().expect(unbroken) = Some(made);
        Some(blocks)
    }

    fn time(&self) -> &'static str {
        match self.execution {
            Execution::Masked => self.inner().time(),
            Execution::Blocked => self.pattern.time(),
        }
    }

    fn losses(&self, query: &Tensor<3>) -> Losses {
        self.inner().losses(query)
    }
}
