//! Sparse Transformer, strided (Child et al. 2019, section 4.3).
//!
//! Two factors with stride `l`: `A1_i = { j : i - l <= j <= i }`, the neighbourhood, and `A2_i = { j <= i : (i - j) mod l = 0 }`, the column of a sequence
//! that is written in rows of `l`. In two steps, in either order, every position reaches every later one. The time is least with `l` about `sqrt(n)`.
//!
//! The option `factors` gives any number `p` of them (section 4.2): factor `m = 1, .., p - 1` sees at most `l` steps of `l^(m - 1)` positions back, the last one
//! all steps of `l^(p - 1)`. In `p` steps, in any order, every position reaches every later one, and the time is least with `l` about the `p`-th root of `n`.
//! Layers that have the factors in turn can have them at a `ratio`: with `[3, 1]` there are three layers of neighbourhoods for each one of columns.
//!
//! Made for data with the period `l` (images: `l` elements in a row); on text the authors found the fixed pattern far better. In an encoder, which
//! sees ahead, both factors hold to both sides.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
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
    /// The stride `l`, at least 1 (default with two factors: 128 from a maximal length of 512 on, below the whole square root of the maximal length; with `p`
    /// factors the whole `p`-th root, or 128 where `128^(p - 1)` is at most a quarter of the maximal length).
    #[setters(into)]
    pub stride: Option<usize>,
    /// Number of factors `p`, from 2 to 16 (default 2).
    pub factors: usize,
    /// How the factors are brought into the model (default: merged).
    pub integration: Integration,
    /// How many successive layers have each factor, at least 1 of each, where factors are interleaved (default: 1 of each).
    #[setters(into)]
    pub ratio: Option<Vec<usize>>,
    /// How it is computed (default: blocked).
    pub execution: PatternExecution,
    /// What scores the keys (default: dot-product attention).
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
    /// The stride in a model of this maximal length.
    pub fn stride_at(&self, max_length: usize) -> usize {
        self.stride.unwrap_or_else(|| near_root(max_length, self.factors, 128))
    }

    /// The pattern alone.
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
        // A block of s queries that has both factors meets about l + s + s n / l keys: a few queries of different columns cost little more than one. Far
        // less is computed where neighbours are executed in rows and columns in columns.
        Factorised::new(factors, self.integration, layer, spec.heads, stride.isqrt()).executed_apart()
    }
}

impl Mechanism for SparseStridedConfig {
    type Module = LogitsOf<Restricted>;
    const NAME: &'static str = "sparse-strided";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "SparseStrided",
        description: "Restricts queries to their neighbourhood and to every l-th position (interleaved, merged or by heads), over any logits.",
        source: "Child et al. 2019, section 4.3",
        links: &["https://arxiv.org/abs/1904.10509", "https://github.com/openai/sparse_attention"],
        time: "n (l + n / l) d",
        letters: &[("l", "the option `stride`, by default 128 or near the square root of `L`")],
        differences: &[
            "The neighbourhood has `l + 1` keys, as in the paper's formula; in the released code it has `l`.",
            "The released mode called `strided` is the second factor alone.",
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
    /// If the stride is 0, there are too few or too many factors, or a ratio is not one of interleaved factors.
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

/// Whether a head has each of `count` factors, as Child et al. 2019 say in section 5.1.
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
        in_columns(queries, self.stride, keys)
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}

/// Keys in the columns of some queries, in a sequence that is written in rows of `width`.
fn in_columns(queries: &[usize], width: usize, keys: Range<usize>) -> Vec<usize> {
    let mut columns: Vec<usize> = queries.iter().map(|i| i % width).collect();
    columns.sort_unstable();
    columns.dedup();
    keys.filter(|j| columns.binary_search(&(j % width)).is_ok()).collect()
}

/// A factor between the first and the last: keys a multiple of `step` away, and at most `stride` times as far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearColumn {
    /// Positions of a step, `l^(m - 1)` of factor `m`, at least 1.
    pub step: usize,
    /// Most steps, `l`, at least 1.
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

    /// As many successive positions of one column as are within reach.
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
