//! Sparse Transformer, fixed (Child et al. 2019, section 4.3).
//!
//! The sequence is cut into blocks of `l` positions, of which the last `s` summarise their block: `A1_i = { j <= i : j div l = i div l }`, the own block,
//! and `A2_i = { j <= i : j mod l >= l - s }`, all summaries. In two steps, `A1` before `A2`, every position reaches every position of later blocks.
//!
//! With separate summaries the heads that see summaries take different sub-blocks of `s` positions, from the block's end backwards and then again from the
//! end; the paper found this better than one sub-block for all, and the released code does so. `A2` always holds the query's own position, since in the
//! first block it would be empty otherwise. In an encoder, which sees ahead, a query sees its whole block and the summaries of all.
//!
//! The option `factors` gives any number `p` of them (section 4.2): factor `m = 2, .., p - 1` sees, within the query's own `l^m` positions, the last `s` of every
//! `l^(m - 1)`; the last factor sees the last `s` of every `l^(p - 1)` of the whole sequence. In `p` steps, in their order, every position reaches every position of
//! later blocks. Layers that have the factors in turn can have them at a `ratio`: with `[3, 1]` there are three layers of blocks for each one of summaries.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/sparse-fixed.svg")]

use std::ops::Range;
use std::sync::Arc;

use crate::mechanisms::local_1d::LocalOneD;
use crate::mechanisms::prelude::*;
use crate::mechanisms::sparse_strided::factors;

/// Configuration of the fixed Sparse Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SparseFixedConfig {
    /// The stride `l`: positions in a block, at least 1 (default with two factors: 128 from a maximal length of 512 on, below the whole square root of the maximal
    /// length; with `p` factors the whole `p`-th root, or 128 where `128^(p - 1)` is at most a quarter of the maximal length).
    #[setters(into)]
    pub stride: Option<usize>,
    /// Positions of a block that summarise it, `s`, from 1 to the stride (default: 8, or a quarter of the stride if that is less).
    #[setters(into)]
    pub summary: Option<usize>,
    /// Whether heads have summaries of their own, as far as the block has room (default: yes). The first head that sees summaries has the block's last.
    pub separate_summaries: bool,
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

impl Default for SparseFixedConfig {
    fn default() -> Self {
        Self {
            stride: None,
            summary: None,
            separate_summaries: true,
            factors: 2,
            integration: Integration::default(),
            ratio: None,
            execution: PatternExecution::default(),
            logits: AnyMechanism::default(),
        }
    }
}

impl SparseFixedConfig {
    /// The stride in a model of this maximal length.
    pub fn stride_at(&self, max_length: usize) -> usize {
        self.stride.unwrap_or_else(|| near_root(max_length, self.factors, 128))
    }

    /// Positions that summarise a block in a model of this maximal length.
    pub fn summary_at(&self, max_length: usize) -> usize {
        self.summary.unwrap_or_else(|| quarter(self.stride_at(max_length), 8))
    }

    /// The pattern alone.
    pub fn pattern(&self, spec: &LayerSpec) -> Factorised {
        let (stride, summary, count) = (self.stride_at(spec.max_length), self.summary_at(spec.max_length), self.factors);
        // Split over heads, each turn of the factors has one sub-block.
        let apart = if self.integration == Integration::Heads { count } else { 1 };
        let seeing = spec.heads.div_ceil(apart);
        let sub_blocks = if self.separate_summaries { seeing.min(stride / summary) } else { 1 };
        let factor = |index: usize| -> Arc<dyn Pattern> {
            let block = stride.saturating_pow(index as u32);
            let summaries = Summaries { stride: block, summary, sub_blocks, apart };
            match index {
                // `A1`: the keys of the query's block.
                0 => Arc::new(LocalOneD { query_block: stride, memory_block: 0 }),
                1 if count == 2 => Arc::new(summaries),
                last if last + 1 == count => Arc::new(SummariesWithin { summaries, within: usize::MAX, together: stride }),
                _ => Arc::new(SummariesWithin { summaries, within: block.saturating_mul(stride), together: stride }),
            }
        };
        let (factors, layer) = ((0..count).map(factor).collect::<Vec<_>>(), turn(self.ratio.as_deref(), spec.layer));
        Factorised::new(factors, self.integration, layer, spec.heads, stride)
    }
}

impl Mechanism for SparseFixedConfig {
    type Module = LogitsOf<Restricted>;
    const NAME: &'static str = "sparse-fixed";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "SparseFixed",
        description: "Restricts queries to their block and to the last positions of all blocks (interleaved, merged or by heads), over any logits.",
        source: "Child et al. 2019, section 4.3",
        links: &["https://arxiv.org/abs/1904.10509", "https://github.com/openai/sparse_attention"],
        time: "n (l + s n / l) d",
        letters: &[
            ("l", "the option `stride`, by default 128 or near the square root of `L`"),
            ("s", "positions that summarise a block, option `summary`, by default 8, at most `l / 4`"),
        ],
        sizes: &["stride", "summary"],
        ..Card::PATTERN
    };

    fn drawn(self) -> Self {
        Self { stride: Some(8), summary: Some(2), integration: Integration::Heads, ..self }
    }

    fn resolved(self, max_length: usize) -> Self {
        let (stride, summary) = (Some(self.stride_at(max_length)), Some(self.summary_at(max_length)));
        Self { stride, summary, logits: self.logits.resolved(max_length), ..self }
    }

    /// # Errors
    /// If the stride is 0, a block has no summary or more summaries than positions, there are too few or too many factors, or a ratio is not one of interleaved
    /// factors.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one_if_given("stride", self.stride)?;
        let (stride, summary) = (self.stride_at(spec.max_length), self.summary_at(spec.max_length));
        if !(1..=stride).contains(&summary) {
            return Err(check.refuse("summary", summary, format!("give a number from 1 to the stride {stride}")));
        }
        self.integration.validate(self.factors, self.ratio.as_deref(), &check)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Restricted {
        Restricted::over(&self.logits, self.pattern(spec), self.execution, spec, key, device)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.integration.without_effect(option)
    }

    /// Child et al. 2019, sections 4.2 and 4.3.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().shows(|query, key| {
            let (i, j, p, max_length) = (query.position(), query.position_of(key), self.factors, query.spec().max_length);
            let (l, s) = (self.stride_at(max_length), self.summary_at(max_length));
            // Split over heads, those that have the factors once share a sub-block.
            let apart = if self.integration == Integration::Heads { p } else { 1 };
            let different = if self.separate_summaries { query.spec().heads.div_ceil(apart).min(l / s) } else { 1 };
            let from_end = (query.head / apart % different) * s;
            let has = factors(p, self.integration, &self.ratio, query);
            let mut block = l;
            for (m, has) in has.into_iter().enumerate() {
                let shown = if m == 0 {
                    i / l == j / l
                } else {
                    let last = block - from_end;
                    let blocks = block.saturating_mul(l);
                    let summarises = (m + 1 == p || i / blocks == j / blocks) && (last - s..last).contains(&(j % block));
                    block = blocks;
                    i == j || summarises
                };
                if has && shown {
                    return true;
                }
            }
            false
        }))
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
    /// How many successive heads have the same sub-block: 1, or the number of factors where heads have these in turn.
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

/// A factor of more than two: the keys that summarise blocks within the query's own positions of some number, and the query's own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummariesWithin {
    /// The summaries of `l^(m - 1)` positions each, of factor `m`.
    pub summaries: Summaries,
    /// `l^m` of factor `m`, a multiple of what is summarised; more than the sequence is long for the last factor.
    pub within: usize,
    /// Successive queries that are executed together, at least 1.
    pub together: usize,
}

impl Pattern for SummariesWithin {
    fn sees(&self, head: usize, i: usize, j: usize) -> bool {
        i == j || i / self.within == j / self.within && self.summaries.summarises(head, j)
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        i / self.together
    }

    fn candidates(&self, head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        self.summaries.candidates(head, queries, keys)
    }

    fn reach(&self) -> Option<usize> {
        (self.within < usize::MAX).then(|| self.within - 1)
    }

    fn depends_on_head(&self) -> bool {
        self.summaries.depends_on_head()
    }
}
