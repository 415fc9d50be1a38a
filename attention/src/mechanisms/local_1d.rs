//! Local attention in one dimension (Parmar et al. 2018, Image Transformer, section 3.3).
//!
//! The sequence is cut into blocks of `l_q` queries. All queries of block `b` share one memory block: the block itself and `l_m` positions before it. A query
//! sees the generated positions within it: `{ j : b l_q - l_m <= j <= i }`. This differs from a sliding window: depending on its place in the block, a query
//! sees between `l_m` and `l_q - 1 + l_m` positions back.
//!
//! In an encoder the memory block extends `l_m` positions to either side, as in the unmasked form of the authors' code.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/local-1d.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of local attention in one dimension.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct LocalOneDConfig {
    /// Queries per block, `l_q`, at least 1 (default: 256 from a maximal length of 1024 on, below that the integer square root of the maximal length).
    pub query_block: Option<usize>,
    /// Visible positions before the block, `l_m` (default: the block size). With 0, queries see only their own block.
    pub memory_block: Option<usize>,
    /// Execution (default: blocked).
    pub execution: PatternExecution,
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

/// The pattern of local attention in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalOneD {
    /// Queries in a block, `l_q`, at least 1.
    pub query_block: usize,
    /// Positions beside the block, `l_m`.
    pub memory_block: usize,
}

impl LocalOneDConfig {
    /// The pattern in a model with this maximal length.
    pub fn pattern(&self, max_length: usize) -> LocalOneD {
        let query_block = self.query_block.unwrap_or_else(|| near_square_root(max_length, 256));
        LocalOneD { query_block, memory_block: self.memory_block.unwrap_or(query_block) }
    }
}

impl Mechanism for LocalOneDConfig {
    type Module = LogitsOf<Restricted>;
    const NAME: &'static str = "local-1d";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "LocalOneD",
        description: "Restricts queries to their block and the positions before it, over any logits.",
        source: "Parmar et al. 2018, section 3.3",
        links: &[
            "https://arxiv.org/abs/1802.05751",
            "https://github.com/tensorflow/tensor2tensor/blob/master/tensor2tensor/layers/common_attention.py",
        ],
        time: "n (l_q + l_m) d",
        state: "2 (l_q + l_m) d",
        letters: &[
            ("l_q", "queries of a block, option `query_block`, by default 256 or near the square root of `L`"),
            ("l_m", "positions before a block, option `memory_block`"),
        ],
        differences: &[
            "The authors' masked form always uses `l_m = l_q`, and treats a sequence of less than two blocks as one block, which is the same set.",
        ],
        sizes: &["query_block", "memory_block"],
        ..Card::PATTERN
    };

    fn drawn(self) -> Self {
        Self { query_block: Some(8), ..self }
    }

    fn resolved(self, max_length: usize) -> Self {
        let LocalOneD { query_block, memory_block } = self.pattern(max_length);
        let logits = self.logits.resolved(max_length);
        Self { query_block: Some(query_block), memory_block: Some(memory_block), logits, ..self }
    }

    /// # Errors
    /// If a block is empty.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        spec.check(Self::NAME).at_least_one_if_given("query_block", self.query_block)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Restricted {
        Restricted::over(&self.logits, self.pattern(spec.max_length), self.execution, spec, key, device)
    }

    /// Parmar et al. 2018: the block, and `l_m` positions to either side of any of its positions.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().shows(|query, key| {
            let (i, j) = (query.position(), query.position_of(key));
            let LocalOneD { query_block, memory_block } = self.pattern(query.spec().max_length);
            let mut block = (0..=i + query_block).filter(|p| p / query_block == i / query_block);
            block.any(|p| p.abs_diff(j) <= memory_block)
        }))
    }
}

impl Pattern for LocalOneD {
    fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
        let start = i / self.query_block * self.query_block;
        j.saturating_add(self.memory_block) >= start && j < start.saturating_add(self.query_block).saturating_add(self.memory_block)
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        i / self.query_block
    }

    fn candidates(&self, _head: usize, queries: &[usize], keys: std::ops::Range<usize>) -> Vec<usize> {
        let start = queries[0] / self.query_block * self.query_block;
        let end = start.saturating_add(self.query_block).saturating_add(self.memory_block);
        (start.saturating_sub(self.memory_block).max(keys.start)..end.min(keys.end)).collect()
    }

    fn reach(&self) -> Option<usize> {
        Some((self.query_block - 1).saturating_add(self.memory_block))
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}
