//! Sparse Transformer, strided (Child et al. 2019, section 4.3).
//!
//! Two factors with stride `l`: the neighbourhood `A1_i = { j : i - l <= j <= i }`, and the column `A2_i = { j <= i : (i - j) mod l = 0 }` of a sequence
//! written in rows of `l`. In two steps, in either order, every position reaches every later position. Time is minimal for `l` about `sqrt(n)`.
//!
//! The option `factors` sets the number `p` of factors (section 4.2). Factor `m = 1, .., p - 1` sees at most `l` steps of `l^(m - 1)` positions back; the last
//! factor sees all steps of `l^(p - 1)`. In `p` steps, in any order, every position reaches every later position; time is minimal for `l` about the `p`-th root
//! of `n`. Layers with interleaved factors accept a `ratio`: `[3, 1]` puts three layers of neighbourhoods before each layer of columns.
//!
//! The pattern suits data with period `l` (images: `l` elements per row). On text, the authors found the fixed pattern far better. In an encoder both factors
//! are two-sided.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/sparse-strided.svg")]

use std::ops::Range;
use std::sync::Arc;

use crate::mechanisms::prelude::*;

/// Configuration of the strided Sparse Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SparseStridedConfig {
    /// Stride `l`, at least 1. Default with two factors: 128 from a maximal length of 512 on, below that the integer square root of the maximal length. Default
    /// with `p` factors: the integer `p`-th root, or 128 if `128^(p - 1)` is at most a quarter of the maximal length.
    #[setters(into)]
    pub stride: Option<usize>,
    /// Number of factors `p`, from 2 to 16 (default 2).
    pub factors: usize,
    /// Integration of the factors into the model (default: merged).
    pub integration: Integration,
    /// Number of successive layers per factor, at least 1 each, for interleaved factors (default: 1 each).
    #[setters(into)]
    pub ratio: Option<Vec<usize>>,
    /// Execution (default: blocked).
    pub execution: PatternExecution,
    /// Mechanism that scores the keys (default: dot-product attention).
    #[setters(into)]
    pub logits: AnyMechanism,
}

impl Default for SparseStridedConfig {
    fn default() -> Self {
        Self {
            stride: None,
            factors: 2,
            integration: Integration::default(),
            ratio: None,
            execution: PatternExecution::default(),
            logits: AnyMechanism::default(),
        }
    }
}

impl SparseStridedConfig {
    /// Stride in a model with this maximal length.
    pub fn stride_at(&self, max_length: usize) -> usize {
        self.stride.unwrap_or_else(|| near_root(max_length, self.factors, 128))
    }

    /// The pattern.
    pub fn pattern(&self, spec: &LayerSpec) -> Factorised {
        let (stride, count) = (self.stride_at(spec.max_length), self.factors);
        let factor = |index: usize| -> Arc<dyn Pattern> {
            let step = stride.saturating_pow(index as u32);
            match index {
                // `A1`: keys at most one stride away.
                0 => Arc::new(Near { farthest: stride, block: stride }),
                last if last + 1 == count => Arc::new(Column { stride: step }),
                _ => Arc::new(NearColumn { step, stride }),
            }
        };
        let (factors, layer) = ((0..count).map(factor).collect::<Vec<_>>(), turn(self.ratio.as_deref(), spec.layer));
        // A block of s queries with both factors meets about l + s + s n / l keys: a few queries of different columns cost little more than one. Executing
        // neighbours in rows and columns in columns computes far less.
        Factorised::new(factors, self.integration, layer, spec.heads, stride.isqrt()).executed_apart()
    }
}

impl Mechanism for SparseStridedConfig {
    type Module = LogitsOf<Restricted>;
    const NAME: &'static str = "sparse-strided";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "SparseStrided",
        description: "Restricts queries to their neighbourhood and every l-th position (interleaved, merged or by heads), over any logits.",
        source: "Child et al. 2019, section 4.3",
        links: &["https://arxiv.org/abs/1904.10509", "https://github.com/openai/sparse_attention"],
        time: "n (l + n / l) d",
        letters: &[("l", "the option `stride`, by default 128 or near the square root of `L`")],
        differences: &[
            "The neighbourhood contains `l + 1` keys, as in the paper's formula; `l` in the released code.",
            "The released mode `strided` is only the second factor.",
        ],
        sizes: &["stride"],
        ..Card::PATTERN
    };

    fn drawn(self) -> Self {
        Self { stride: Some(6), integration: Integration::Heads, ..self }
    }

    fn resolved(self, max_length: usize) -> Self {
        Self { stride: Some(self.stride_at(max_length)), logits: self.logits.resolved(max_length), ..self }
    }

    /// # Errors
    /// If the stride is 0, the number of factors is out of range, or a ratio does not belong to interleaved factors.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one_if_given("stride", self.stride)?;
        self.integration.validate(self.factors, self.ratio.as_deref(), &check)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.integration.without_effect(option)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Restricted {
        Restricted::over(&self.logits, self.pattern(spec), self.execution, spec, key, device)
    }

    /// Child et al. 2019, sections 4.2 and 4.3.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().shows(|query, key| {
            let (distance, stride) = (query.distance(key), self.stride_at(query.spec().max_length));
            let mut step = 1usize;
            for (m, has) in factors(self.factors, self.integration, &self.ratio, query).into_iter().enumerate() {
                let is_near = m + 1 == self.factors || distance <= step.saturating_mul(stride);
                if has && distance.is_multiple_of(step) && is_near {
                    return true;
                }
                step = step.saturating_mul(stride);
            }
            false
        }))
    }
}

/// Whether a head uses each of `count` factors, by Child et al. 2019, section 5.1.
pub(super) fn factors(count: usize, integration: Integration, ratio: &Option<Vec<usize>>, query: &Query) -> Vec<bool> {
    let LayerSpec { layer, heads, .. } = *query.spec();
    let only = |factor: usize| -> Vec<bool> { (0..count).map(|other| other == factor).collect() };
    match integration {
        Integration::Interleaved => {
            let layers_of = |factor: usize| ratio.as_ref().map_or(1, |ratio| ratio[factor]);
            let in_turn: Vec<usize> = (0..count).flat_map(|factor| vec![factor; layers_of(factor)]).collect();
            only(in_turn[layer % in_turn.len()])
        }
        Integration::Heads if query.head / count < heads / count => only(query.head % count),
        Integration::Merged | Integration::Heads => vec![true; count],
    }
}

/// Second factor, `A2`: keys a multiple of the stride away. Queries of one column see the same keys and are executed together.
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
        in_columns(queries, self.stride, keys)
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}

/// Keys in the columns of some queries, in a sequence written in rows of `width`.
fn in_columns(queries: &[usize], width: usize, keys: Range<usize>) -> Vec<usize> {
    let mut columns: Vec<usize> = queries.iter().map(|i| i % width).collect();
    columns.sort_unstable();
    columns.dedup();
    keys.filter(|j| columns.binary_search(&(j % width)).is_ok()).collect()
}

/// A middle factor: keys a multiple of `step` away, at most `stride` steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearColumn {
    /// Positions per step, `l^(m - 1)` for factor `m`, at least 1.
    pub step: usize,
    /// Maximum number of steps, `l`, at least 1.
    pub stride: usize,
}

impl NearColumn {
    fn farthest(&self) -> usize {
        self.step.saturating_mul(self.stride)
    }
}

impl Pattern for NearColumn {
    fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
        let distance = i.abs_diff(j);
        distance <= self.farthest() && distance.is_multiple_of(self.step)
    }

    /// The successive positions of one column within reach.
    fn block(&self, _head: usize, i: usize) -> usize {
        i % self.step + self.step * (i / self.farthest())
    }

    fn candidates(&self, _head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        let (first, last) = (queries[0].saturating_sub(self.farthest()), queries[queries.len() - 1].saturating_add(self.farthest()));
        in_columns(queries, self.step, first.max(keys.start)..last.saturating_add(1).min(keys.end))
    }

    fn reach(&self) -> Option<usize> {
        Some(self.farthest())
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}
