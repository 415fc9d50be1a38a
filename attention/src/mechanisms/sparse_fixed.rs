//! Sparse Transformer, fixed (Child et al. 2019, section 4.3).
//!
//! The sequence is cut into blocks of `l` positions, of which the last `s` summarise their block: `A1_i = { j <= i : j div l = i div l }`, the own block,
//! and `A2_i = { j <= i : j mod l >= l - s }`, all summaries. In two steps, `A1` before `A2`, every position reaches every position of later blocks.
//!
//! With separate summaries the heads that see summaries take different sub-blocks of `s` positions, from the block's end backwards and then again from the
//! end; the paper found this better than one sub-block for all, and the released code does so. `A2` always holds the query's own position, since in the
//! first block it would be empty otherwise. In an encoder, which sees ahead, a query sees its whole block and the summaries of all.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/sparse-fixed.svg")]

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Device;
use derive_setters::Setters;
use serde::{Deserialize, Serialize};

use crate::conformance::formula::Formula;
use crate::error::ConfigError;
use crate::mechanisms::sparse_strided::factors;
use crate::pattern::{Factorised, Integration, Pattern};
use crate::placement::Placement;
use crate::random::RandomKey;
use crate::registry::{AnyLogits, AnyMechanism, Card, Kind, Mechanism};
use crate::restricted::{Execution, Restricted, validate_logits};

/// Configuration of the fixed Sparse Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SparseFixedConfig {
    /// The stride `l`: positions in a block, at least 1 (default 128).
    pub stride: usize,
    /// Positions of a block that summarise it, `s`, from 1 to the stride (default 8).
    pub summary: usize,
    /// Whether heads have summaries of their own, as far as the block has room (default: yes). The first head that sees summaries has the block's last.
    pub separate_summaries: bool,
    /// How the two factors are brought into the model (default: merged).
    pub integration: Integration,
    /// How it is computed (default: blocked).
    pub execution: Execution,
    /// What scores the keys (default: dot-product attention).
    #[setters(into)]
    pub logits: AnyMechanism,
}

impl Default for SparseFixedConfig {
    fn default() -> Self {
        Self {
            stride: 128,
            summary: 8,
            separate_summaries: true,
            integration: Integration::default(),
            execution: Execution::default(),
            logits: AnyMechanism::default(),
        }
    }
}

impl SparseFixedConfig {
    /// The pattern alone.
    pub fn pattern(&self, placement: &Placement) -> Factorised {
        let Self { stride, summary, .. } = *self;
        // Split over heads, only every second one sees summaries.
        let apart = if self.integration == Integration::Heads { 2 } else { 1 };
        let seeing = placement.heads.div_ceil(apart);
        let sub_blocks = if self.separate_summaries { seeing.min(stride / summary) } else { 1 };
        let factors: [Arc<dyn Pattern>; 2] = [Arc::new(OwnBlock { stride }), Arc::new(Summaries { stride, summary, sub_blocks, apart })];
        Factorised::new(factors, self.integration, placement.layer, placement.heads, stride)
    }

    /// Initialises the logits.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Restricted {
        Restricted::over(&self.logits, self.pattern(placement), self.execution, placement, key, device)
    }
}

impl Mechanism for SparseFixedConfig {
    const NAME: &'static str = "sparse-fixed";

    fn card() -> Card {
        Card {
            variant: "SparseFixed",
            description: "Restricts queries to their block and to the last positions of all blocks (interleaved, merged or by heads), over any logits.",
            source: "Child et al. 2019, section 4.3",
            kind: Kind::Pattern,
            cross: false,
            causal: true,
            time: "n (l + s n / l) d",
            state: "2 n d",
            letters: &[("l", "the option `stride`"), ("s", "positions that summarise a block, option `summary`")],
            differences: &[],
        }
    }

    fn drawn(self) -> Self {
        Self { stride: 8, summary: 2, integration: Integration::Heads, ..self }
    }

    fn members(&self) -> Vec<&AnyMechanism> {
        vec![&self.logits]
    }

    fn over(self, logits: AnyMechanism) -> Option<Self> {
        Some(Self { logits, ..self })
    }

    /// # Errors
    /// If the stride is 0, a block has no summary or more summaries than positions, or what is restricted has no logits or is wrong itself.
    fn validate(&self, placement: &Placement) -> Result<(), ConfigError> {
        let check = placement.check(Self::NAME);
        check.at_least_one("stride", self.stride)?;
        if !(1..=self.stride).contains(&self.summary) {
            let remedy = format!("give a number from 1 to the stride {}", self.stride);
            return Err(check.wrong("summary", self.summary, remedy));
        }
        validate_logits(Self::NAME, &self.logits, placement)
    }

    fn logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        Some(AnyLogits::new(self.init(placement, key, device)))
    }

    /// Child et al. 2019, section 4.3.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().shows(|query, key| {
            let [block, summaries] = factors(self.integration, query);
            let (i, j, l, s) = (query.position(), query.position_of(key), self.stride, self.summary);
            // Split over heads, every second one sees summaries.
            let apart = if self.integration == Integration::Heads { 2 } else { 1 };
            let different = if self.separate_summaries { query.placement().heads.div_ceil(apart).min(l / s) } else { 1 };
            let last = l - (query.head / apart % different) * s;
            (block && i / l == j / l) || (summaries && (i == j || (last - s..last).contains(&(j % l))))
        }))
    }
}

/// The first factor, `A1`: the keys of the query's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnBlock {
    /// Positions in a block, at least 1.
    pub stride: usize,
}

impl Pattern for OwnBlock {
    fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
        i / self.stride == j / self.stride
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        i / self.stride
    }

    fn candidates(&self, _head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        let start = queries[0] / self.stride * self.stride;
        (start.max(keys.start)..start.saturating_add(self.stride).min(keys.end)).collect()
    }

    fn reach(&self) -> Option<usize> {
        Some(self.stride - 1)
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}

/// The second factor, `A2`: the keys that summarise their block, and the query's own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summaries {
    /// Positions in a block, `l`, at least 1.
    pub stride: usize,
    /// Positions in a summary, `c`.
    pub summary: usize,
    /// How many different sub-blocks of `s` positions heads take in turn, counted from the block's end; at least 1, and not more than fit.
    pub sub_blocks: usize,
    /// Every how many heads one sees summaries: 1 or 2.
    pub apart: usize,
}

impl Summaries {
    fn summarises(&self, head: usize, j: usize) -> bool {
        let after = head / self.apart % self.sub_blocks * self.summary;
        let from_end = self.stride - 1 - j % self.stride;
        (after..after + self.summary).contains(&from_end)
    }
}

impl Pattern for Summaries {
    fn sees(&self, head: usize, i: usize, j: usize) -> bool {
        i == j || self.summarises(head, j)
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        i / self.stride
    }

    fn candidates(&self, head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        keys.filter(|j| self.summarises(head, *j) || queries.binary_search(j).is_ok()).collect()
    }

    fn depends_on_head(&self) -> bool {
        self.sub_blocks > 1
    }
}
