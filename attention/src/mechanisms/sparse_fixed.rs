//! Sparse Transformer, fixed (Child et al. 2019, section 4.3).
//!
//! The sequence is cut into blocks of `l` positions, and the last `s` positions of each block summarise it. Factor `A1_i = { j <= i : j div l = i div l }` is
//! the query's own block, and factor `A2_i = { j <= i : j mod l >= l - s }` all summaries. In two steps, `A1` before `A2`, every position reaches every
//! position of later blocks.
//!
//! With separate summaries, the heads that see summaries use different sub-blocks of `s` positions, from the block's end backwards, then again from the end.
//! The paper found this better than a common sub-block, and the released code does the same. `A2` always contains the query's own position, since it would be
//! empty in the first block otherwise. In an encoder a query sees its whole block and all summaries.
//!
//! The option `factors` sets the number `p` of factors (section 4.2). Factor `m = 2, .., p - 1` sees, within the query's own `l^m` positions, the last `s` of
//! every `l^(m - 1)`. The last factor sees the last `s` of every `l^(p - 1)` of the whole sequence. In `p` steps, in this order, every position reaches every
//! position of later blocks. Layers with interleaved factors accept a `ratio`: `[3, 1]` puts three layers of blocks before each layer of summaries.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
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
    /// Stride `l`, the number of positions in a block, at least 1. Default with two factors: 128 from a maximal length of 512 on, below that the integer square
    /// root of the maximal length. Default with `p` factors: the integer `p`-th root, or 128 if `128^(p - 1)` is at most a quarter of the maximal length.
    #[setters(into)]
    pub stride: Option<usize>,
    /// Number of summary positions of a block, `s`, from 1 to the stride (default: 8, or a quarter of the stride if that is less).
    #[setters(into)]
    pub summary: Option<usize>,
    /// Whether heads use separate summaries, as far as the block has room (default: yes). The first head that sees summaries uses the end of the block.
    pub separate_summaries: bool,
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
    /// Stride in a model with this maximal length.
    pub fn stride_at(&self, max_length: usize) -> usize {
        self.stride.unwrap_or_else(|| near_root(max_length, self.factors, 128))
    }

    /// Number of summary positions of a block in a model with this maximal length.
    pub fn summary_at(&self, max_length: usize) -> usize {
        self.summary.unwrap_or_else(|| quarter(self.stride_at(max_length), 8))
    }

    /// The pattern.
    pub fn pattern(&self, spec: &LayerSpec) -> Factorised {
        let (stride, summary, count) = (self.stride_at(spec.max_length), self.summary_at(spec.max_length), self.factors);
        // Split over heads, each round of the factors uses one sub-block.
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
        description: "Restricts queries to their block and the last positions of all blocks (interleaved, merged or by heads), over any logits.",
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
    /// If the stride is 0, the number of summary positions is 0 or exceeds the block, the number of factors is out of range, or a ratio does not belong to
    /// interleaved factors.
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
            // Split over heads, the heads of one round of the factors share a sub-block.
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

/// Second factor, `A2`: keys that summarise their block, and the query's own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summaries {
    /// Positions in a block, `l`, at least 1.
    pub stride: usize,
    /// Positions in a summary, `c`.
    pub summary: usize,
    /// Number of different sub-blocks of `s` positions that heads use in turn, counted from the block's end; at least 1, at most as many as fit.
    pub sub_blocks: usize,
    /// Number of successive heads with the same sub-block: 1, or the number of factors if heads use the factors in turn.
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

/// A middle factor of more than two: keys that summarise blocks within the query's own range of positions, and the query's own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummariesWithin {
    /// Summaries of `l^(m - 1)` positions each, for factor `m`.
    pub summaries: Summaries,
    /// `l^m` for factor `m`, a multiple of the summarised size; for the last factor more than the sequence length.
    pub within: usize,
    /// Number of successive queries executed together, at least 1.
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
