//! Sparse Transformer, strided (Child et al. 2019, section 4.3).
//!
//! Two factors with stride `l`: `A1_i = { j : i - l <= j <= i }`, the neighbourhood, and `A2_i = { j <= i : (i - j) mod l = 0 }`, the column of a sequence
//! that is written in rows of `l`. In two steps, in either order, every position reaches every later one. The time is least with `l` about `sqrt(n)`.
//!
//! Made for data with the period `l` (images: `l` elements in a row); on text the authors found the fixed pattern far better. In an encoder, which
//! sees ahead, both factors hold to both sides.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/sparse-strided.svg")]

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Device;
use derive_setters::Setters;
use serde::{Deserialize, Serialize};

use crate::conformance::formula::{Formula, Query};
use crate::error::ConfigError;
use crate::pattern::{Factorised, Integration, Pattern};
use crate::placement::Placement;
use crate::random::RandomKey;
use crate::registry::{AnyLogits, AnyMechanism, Card, Kind, Mechanism};
use crate::restricted::{Execution, Restricted, validate_logits};

/// Configuration of the strided Sparse Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SparseStridedConfig {
    /// The stride `l`, at least 1 (default 128).
    pub stride: usize,
    /// How the two factors are brought into the model (default: merged).
    pub integration: Integration,
    /// How it is computed (default: blocked).
    pub execution: Execution,
    /// What scores the keys (default: dot-product attention).
    #[setters(into)]
    pub logits: AnyMechanism,
}

impl Default for SparseStridedConfig {
    fn default() -> Self {
        Self { stride: 128, integration: Integration::default(), execution: Execution::default(), logits: AnyMechanism::default() }
    }
}

impl SparseStridedConfig {
    /// The pattern alone.
    pub fn pattern(&self, placement: &Placement) -> Factorised {
        let stride = self.stride;
        let factors: [Arc<dyn Pattern>; 2] = [Arc::new(Neighbourhood { stride }), Arc::new(Column { stride })];
        // A block of s queries that has both factors meets about l + s + s n / l keys: a few queries of different columns cost little more than one. Far
        // less is computed where neighbours are executed in rows and columns in columns.
        Factorised::new(factors, self.integration, placement.layer, placement.heads, stride.isqrt()).executed_apart()
    }

    /// Initialises the logits.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Restricted {
        Restricted::over(&self.logits, self.pattern(placement), self.execution, placement, key, device)
    }
}

impl Mechanism for SparseStridedConfig {
    const NAME: &'static str = "sparse-strided";

    fn card() -> Card {
        Card {
            variant: "SparseStrided",
            description: "Restricts queries to their neighbourhood and to every l-th position (interleaved, merged or by heads), over any logits.",
            source: "Child et al. 2019, section 4.3",
            kind: Kind::Pattern,
            cross: false,
            causal: true,
            time: "n (l + n / l) d",
            state: "2 n d",
            letters: &[("l", "the option `stride`")],
            differences: &[
                "The neighbourhood has `l + 1` keys, as in the paper's formula; in the released code it has `l`.",
                "The released mode called `strided` is the second factor alone.",
            ],
        }
    }

    fn drawn(self) -> Self {
        Self { stride: 6, integration: Integration::Heads, ..self }
    }

    fn members(&self) -> Vec<&AnyMechanism> {
        vec![&self.logits]
    }

    fn over(self, logits: AnyMechanism) -> Option<Self> {
        Some(Self { logits, ..self })
    }

    /// # Errors
    /// If the stride is 0, or what is restricted has no logits or is wrong itself.
    fn validate(&self, placement: &Placement) -> Result<(), ConfigError> {
        placement.check(Self::NAME).at_least_one("stride", self.stride)?;
        validate_logits(Self::NAME, &self.logits, placement)
    }

    fn logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        Some(AnyLogits::new(self.init(placement, key, device)))
    }

    /// Child et al. 2019, section 4.3.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().shows(|query, key| {
            let [near, column] = factors(self.integration, query);
            let (i, j) = (query.position(), query.position_of(key));
            (near && i.abs_diff(j) <= self.stride) || (column && i % self.stride == j % self.stride)
        }))
    }
}

/// Whether a head has the first and the second factor, as Child et al. 2019 say in section 5.1.
pub(super) fn factors(integration: Integration, query: &Query) -> [bool; 2] {
    let Placement { layer, heads, .. } = *query.placement();
    match integration {
        Integration::Interleaved => [layer.is_multiple_of(2), !layer.is_multiple_of(2)],
        Integration::Merged => [true, true],
        Integration::Heads => [query.head.is_multiple_of(2), query.head % 2 == 1 || query.head + 1 == heads],
    }
}

/// The first factor, `A1`: keys at most one stride away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbourhood {
    /// The stride `l`, at least 1.
    pub stride: usize,
}

impl Pattern for Neighbourhood {
    fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
        i.abs_diff(j) <= self.stride
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        i / self.stride
    }

    fn candidates(&self, _head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        let (first, last) = (queries[0].saturating_sub(self.stride), queries[queries.len() - 1].saturating_add(self.stride));
        (first.max(keys.start)..last.saturating_add(1).min(keys.end)).collect()
    }

    fn reach(&self) -> Option<usize> {
        Some(self.stride)
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}

/// The second factor, `A2`: keys a multiple of the stride away. Queries of one column see the same keys and are executed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The stride `l`, at least 1.
    pub stride: usize,
}

impl Pattern for Column {
    fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
        i.abs_diff(j).is_multiple_of(self.stride)
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        i % self.stride
    }

    fn candidates(&self, _head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        let mut columns: Vec<usize> = queries.iter().map(|i| i % self.stride).collect();
        columns.sort_unstable();
        columns.dedup();
        keys.filter(|j| columns.binary_search(&(j % self.stride)).is_ok()).collect()
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}
