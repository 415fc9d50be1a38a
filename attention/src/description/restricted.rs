//! Logits under a pattern of visibility.
//!
//! A pattern is a mechanism that only hides keys; other logits score the visible keys. So every pattern combines with all logits, including mixtures and other
//! patterns (which intersect).

use std::sync::{Arc, Mutex};

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use heedful_random::RandomKey;
use serde::{Deserialize, Serialize};

use crate::contract::layer_spec::LayerSpec;
use crate::contract::visibility::{Span, Visibility};
use crate::contract::{Positions, SinkCache};
use crate::description::{AnyLogits, AnyMechanism};
use crate::engine::LogitTerms;
use crate::engine::blocked::Blocks;
use crate::engine::fused::Part;
use crate::softmax_attention::logits::{LogitAbilities, Logits, LogitsRef, shared_in_order};
use crate::softmax_attention::pattern::{Grouping, Pattern};

/// Execution of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternExecution {
    /// Computes all weights and masks most of them: saves nothing.
    Masked,
    /// Scores each block of queries only against its visible keys.
    #[default]
    Blocked,
}

/// Logits restricted by a pattern.
///
/// Should be created with the configuration of a mechanism, or with [`Restricted::new`] for custom logits and patterns.
#[derive(Module, Debug)]
pub struct Restricted<L: Logits = AnyLogits> {
    /// The scored logits, exactly one entry.
    // A list, because a module cannot contain itself otherwise.
    pub logits: Vec<L>,
    #[module(skip)]
    pattern: Arc<dyn Pattern>,
    #[module(skip)]
    shown: Visibility,
    #[module(skip)]
    parts: Vec<(Arc<dyn Pattern>, Visibility)>,
    #[module(skip)]
    execution: PatternExecution,
    #[module(skip)]
    cache: Option<SinkCache>,
    #[module(skip)]
    latest_blocks: Latest<(DType, Device, bool), Vec<Blocks>>,
    #[module(skip)]
    latest_parts: Latest<(), Arc<[Part]>>,
}

/// Latest result with its inputs. Training steps repeat the same request.
type Latest<K, M> = Arc<Mutex<Option<Made<K, M>>>>;

#[derive(Clone, Debug)]
struct Made<K, M> {
    seen: Visibility,
    span: Span,
    positions: Positions,
    heads: usize,
    key: K,
    made: M,
}

/// The `latest` result if its inputs are equal, otherwise that of `make`.
fn made_once<K: PartialEq, M: Clone>(latest: &Latest<K, M>, asked: Asked, key: K, make: impl FnOnce() -> M) -> M {
    let Asked { seen, span, positions, heads } = asked;
    let locked = || latest.lock().expect("no panic happens while the latest is locked");
    let same = |made: &&Made<K, M>| {
        made.span == span && made.positions == *positions && made.heads == heads && made.key == key && made.seen.equals(seen)
    };
    if let Some(made) = locked().as_ref().filter(same) {
        return made.made.clone();
    }
    // Custom patterns are evaluated here and may panic.
    let made = make();
    *locked() = Some(Made { seen: seen.clone(), span, positions: positions.clone(), heads, key, made: made.clone() });
    made
}

/// Inputs of blocks.
#[derive(Clone, Copy)]
struct Asked<'a> {
    seen: &'a Visibility,
    span: Span,
    positions: &'a Positions,
    heads: usize,
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
    pub fn new(logits: L, pattern: Arc<dyn Pattern>, execution: PatternExecution) -> Self {
        let shown = shown_by(&pattern);
        let parts = pattern.parts().into_iter().map(|part| {
            let shown = shown_by(&part);
            (part, shown)
        });
        Self {
            logits: vec![logits],
            parts: parts.collect(),
            shown,
            pattern,
            execution,
            cache: None,
            latest_blocks: Arc::default(),
            latest_parts: Arc::default(),
        }
    }

    /// For a pattern that equals such a cache's visibility, over logits with positions inside the cache: decoding then caches only these keys.
    pub(crate) fn keeping(self, cache: Option<SinkCache>) -> Self {
        Self { cache, ..self }
    }

    /// Groupings of the pattern's parts, or of the whole pattern.
    fn groupings(&self, asked: Asked) -> Vec<Grouping> {
        let Asked { seen, span, positions, heads } = asked;
        if self.parts.is_empty() {
            return vec![Grouping::new(&*self.pattern, seen, span, positions, heads)];
        }
        let grouping = |(pattern, shown): &(Arc<dyn Pattern>, Visibility)| {
            let shown = match &positions.left_padding {
                Some(counts) => shown.clone().shifted(counts.clone()),
                None => shown.clone(),
            };
            Grouping::new(&**pattern, &seen.clone().and(shown), span, positions, heads)
        };
        self.parts.iter().map(grouping).collect()
    }
}

impl Restricted {
    /// Restricts the logits of a configuration.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub(crate) fn over(
        logits: &AnyMechanism,
        pattern: impl Pattern + 'static,
        execution: PatternExecution,
        spec: &LayerSpec,
        key: &RandomKey,
        device: &Device,
    ) -> Self {
        let logits = logits.init_logits(spec, key, device).expect("validated: what is restricted has logits");
        Self::new(logits, Arc::new(pattern), execution)
    }
}

impl<L: Logits> Logits for Restricted<L> {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, ..self.logits[0].abilities() }
    }

    fn inner(&self) -> Option<LogitsRef<'_>> {
        Some(&self.logits[0])
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        self.logits[0].terms(query, keys, span, positions)
    }

    fn visibility(&self) -> Option<Visibility> {
        let shown = self.shown.clone();
        Some(match self.logits[0].visibility() {
            Some(inner) => shown.and(inner),
            None => shown,
        })
    }

    fn reach(&self) -> Option<usize> {
        [self.pattern.reach(), self.logits[0].reach()].into_iter().flatten().min()
    }

    fn cache(&self) -> Option<SinkCache> {
        // Other patterns use positions in the sequence.
        self.cache.filter(|_| self.logits[0].visibility().is_none())
    }

    fn blocks(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize, values: &Tensor<4>) -> Option<Vec<Blocks>> {
        let (dtype, device) = (values.dtype(), values.device());
        let asked = Asked { seen, span, positions, heads };
        let key = (dtype, device.clone(), device.is_autodiff());
        let make = || self.groupings(asked).into_iter().map(|grouping| grouping.blocks(dtype, &device)).collect();
        (self.execution == PatternExecution::Blocked).then(|| made_once(&self.latest_blocks, asked, key, make))
    }

    fn parts(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize) -> Option<Arc<[Part]>> {
        let asked = Asked { seen, span, positions, heads };
        let make = || self.groupings(asked).iter().map(Grouping::part).collect();
        (self.execution == PatternExecution::Blocked).then(|| made_once(&self.latest_parts, asked, (), make))
    }

    fn pattern(&self) -> Option<&dyn Pattern> {
        Some(&*self.pattern)
    }

    fn sharing_with(self, earlier: &Self) -> Self {
        Self { logits: shared_in_order(self.logits, &earlier.logits), ..self }
    }
}
