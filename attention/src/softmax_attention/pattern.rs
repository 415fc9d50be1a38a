//! Visibility patterns: pure functions of head and positions that define the visible keys of a query and the grouping of queries, so that only visible keys are
//! scored.
//!
//! A pattern uses positions in the unpadded sequence and does not handle the future: the model adds causality.
//! [`Restricted`](crate::description::restricted::Restricted) puts a pattern over logits.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::query_blocks::Grouping;
use crate::contract::Check;
use crate::contract::error::ConfigError;

mod query_blocks;

/// Visible keys of a query, as a pure function, and the grouping of queries for execution.
///
/// # Example
/// ```
/// use heedful_attention::softmax_attention::pattern::Pattern;
///
/// /// Every query sees the keys of its own colour on a chequered strip.
/// #[derive(Debug)]
/// struct Chequered;
///
/// impl Pattern for Chequered {
///     fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
///         (i + j) % 2 == 0
///     }
///
///     fn block(&self, _head: usize, i: usize) -> usize {
///         i % 2
///     }
/// }
///
/// assert!(Chequered.sees(0, 4, 2) && !Chequered.sees(0, 4, 1));
/// ```
pub trait Pattern: Debug + Send + Sync {
    /// Whether query `i` of a head may see key `j`.
    fn sees(&self, head: usize, i: usize, j: usize) -> bool;

    /// Block in which query `i` is executed. The more the keys of a block's queries overlap, the less computation is wasted.
    fn block(&self, head: usize, i: usize) -> usize;

    /// Keys among `keys`, ascending, that include every key visible to the queries of one block. The queries are ascending, at least one. Keys visible to no
    /// query are removed later; omitting them saves time. Default: all.
    fn candidates(&self, _head: usize, _queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        keys.collect()
    }

    /// Maximum distance between a query and an earlier visible key, if limited. Default: none.
    fn reach(&self) -> Option<usize> {
        None
    }

    /// Disjoint patterns whose union is this pattern. Each part is executed in its own blocks, and the results are joined to one softmax. For patterns without
    /// a single efficient grouping. Default: none, the pattern is executed whole.
    fn parts(&self) -> Vec<Arc<dyn Pattern>> {
        Vec::new()
    }

    /// Whether heads differ. Default: yes, which is always safe.
    fn depends_on_head(&self) -> bool {
        true
    }
}

/// Integration of factors, which only together connect all positions, into a model (Child et al. 2019, section 5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Integration {
    /// Layers use the factors in turn: with two factors, even layers (from 0) use the first and odd layers the second.
    Interleaved,
    /// Every head uses the union of all factors: with two factors, one layer reaches nearly all positions, two layers reach all.
    #[default]
    Merged,
    /// Heads use the factors in turn: with two factors, even heads (from 0) use the first and odd heads the second. Remaining heads, fewer than the factors,
    /// use the union.
    Heads,
}

/// Maximum number of factors of a pattern.
const MOST_FACTORS: usize = 16;

impl Integration {
    /// Validates the number of factors and the ratio of layers.
    ///
    /// # Errors
    /// If there are fewer than two or more than 16 factors, or the ratio has no effect or does not list one number of layers per factor.
    pub(crate) fn validate(self, factors: usize, ratio: Option<&[usize]>, check: &Check) -> Result<(), ConfigError> {
        if !(2..=MOST_FACTORS).contains(&factors) {
            return Err(check.refuse("factors", factors, format!("give a number from 2 to {MOST_FACTORS}")));
        }
        let Some(ratio) = ratio else { return Ok(()) };
        if self != Self::Interleaved {
            return Err(check.refuse("ratio", format!("{ratio:?}"), "leave it out, or set integration to interleaved"));
        }
        if ratio.len() != factors || ratio.contains(&0) {
            let remedy = format!("give a number of layers, at least 1, for each of the {factors} factors");
            return Err(check.refuse("ratio", format!("{ratio:?}"), remedy));
        }
        Ok(())
    }

    /// Reason why an option of factors has no effect.
    pub(crate) fn without_effect(self, option: &str) -> Option<&'static str> {
        (option == "ratio" && self != Self::Interleaved).then_some("ratio is for integration = \"interleaved\"")
    }
}

/// Factor of a layer if `ratio[0]` successive layers use the first factor, `ratio[1]` the second, and so on, cyclically. Without a ratio, returns the layer
/// index itself, which selects the factors in turn.
pub(crate) fn turn(ratio: Option<&[usize]>, layer: usize) -> usize {
    let Some(ratio) = ratio else { return layer };
    let place = layer % ratio.iter().fold(0, |sum: usize, layers| sum.saturating_add(*layers)).max(1);
    let ends = ratio.iter().scan(0usize, |end, layers| {
        *end = end.saturating_add(*layers);
        Some(*end)
    });
    ends.take_while(|&end| end <= place).count()
}

/// Keys near their query, on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Maximum distance of a key.
    pub farthest: usize,
    /// Number of successive queries executed together, at least 1.
    pub block: usize,
}

impl Pattern for Near {
    fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
        i.abs_diff(j) <= self.farthest
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        i / self.block
    }

    fn candidates(&self, _head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        let (first, last) = (queries[0].saturating_sub(self.farthest), queries[queries.len() - 1].saturating_add(self.farthest));
        (first.max(keys.start)..last.saturating_add(1).min(keys.end)).collect()
    }

    fn reach(&self) -> Option<usize> {
        Some(self.farthest)
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}

/// Share of a head in the factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// The factor of this index.
    One(usize),
    All,
}

/// Patterns with one factor per layer or head, or the union of all factors.
#[derive(Clone, Debug)]
pub struct Factorised {
    factors: Vec<Arc<dyn Pattern>>,
    joint_block: usize,
    /// Shares of the heads; a single entry applies to all heads.
    shares: Vec<Share>,
    executed_apart: bool,
}

/// Difference of one pattern and others.
#[derive(Clone, Debug)]
struct Without {
    pattern: Arc<dyn Pattern>,
    others: Vec<Arc<dyn Pattern>>,
}

impl Factorised {
    /// Share of one layer in several factors. If a head uses all factors, `joint_block` successive queries are executed together.
    ///
    /// # Panics
    /// If there is no factor.
    pub fn new(
        factors: impl Into<Vec<Arc<dyn Pattern>>>,
        integration: Integration,
        layer: usize,
        heads: usize,
        joint_block: usize,
    ) -> Self {
        let factors = factors.into();
        let count = factors.len();
        assert!(count > 0, "a factorised pattern has factors");
        let shares = match integration {
            Integration::Interleaved => vec![Share::One(layer % count)],
            Integration::Merged => vec![Share::All],
            Integration::Heads => {
                let in_turn = heads / count * count;
                (0..heads).map(|head| if head < in_turn { Share::One(head % count) } else { Share::All }).collect()
            }
        };
        Self { factors, joint_block, shares, executed_apart: false }
    }

    /// Executes the factors one after another if all heads use all factors: for factors that group queries differently.
    pub fn executed_apart(mut self) -> Self {
        self.executed_apart = true;
        self
    }

    fn share(&self, head: usize) -> Share {
        self.shares[if self.shares.len() == 1 { 0 } else { head }]
    }
}

impl Pattern for Factorised {
    fn sees(&self, head: usize, i: usize, j: usize) -> bool {
        match self.share(head) {
            Share::One(factor) => self.factors[factor].sees(head, i, j),
            Share::All => self.factors.iter().any(|factor| factor.sees(head, i, j)),
        }
    }

    fn block(&self, head: usize, i: usize) -> usize {
        match self.share(head) {
            Share::One(factor) => self.factors[factor].block(head, i),
            Share::All => i / self.joint_block,
        }
    }

    fn candidates(&self, head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        match self.share(head) {
            Share::One(factor) => self.factors[factor].candidates(head, queries, keys),
            Share::All => {
                let of_factor = |factor: &Arc<dyn Pattern>| factor.candidates(head, queries, keys.clone());
                let mut any: Vec<usize> = self.factors.iter().flat_map(of_factor).collect();
                any.sort_unstable();
                any.dedup();
                any
            }
        }
    }

    fn reach(&self) -> Option<usize> {
        let farthest =
            |reaches: Vec<Option<usize>>| -> Option<usize> { reaches.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max() };
        let reach = |share: &Share| match share {
            Share::One(factor) => self.factors[*factor].reach(),
            Share::All => farthest(self.factors.iter().map(|factor| factor.reach()).collect()),
        };
        // One head without a limit suffices.
        farthest(self.shares.iter().map(reach).collect())
    }

    fn parts(&self) -> Vec<Arc<dyn Pattern>> {
        if !self.executed_apart || self.shares != [Share::All] {
            return Vec::new();
        }
        let without_earlier = |(index, factor): (usize, &Arc<dyn Pattern>)| -> Arc<dyn Pattern> {
            match &self.factors[..index] {
                [] => factor.clone(),
                earlier => Arc::new(Without { pattern: factor.clone(), others: earlier.to_vec() }),
            }
        };
        self.factors.iter().enumerate().map(without_earlier).collect()
    }

    fn depends_on_head(&self) -> bool {
        let is_used = |index: usize| self.shares.iter().any(|&share| share == Share::All || share == Share::One(index));
        self.shares.len() > 1 || self.factors.iter().enumerate().any(|(index, factor)| is_used(index) && factor.depends_on_head())
    }
}

impl Pattern for Without {
    fn sees(&self, head: usize, i: usize, j: usize) -> bool {
        self.pattern.sees(head, i, j) && !self.others.iter().any(|other| other.sees(head, i, j))
    }

    fn block(&self, head: usize, i: usize) -> usize {
        self.pattern.block(head, i)
    }

    fn candidates(&self, head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        self.pattern.candidates(head, queries, keys)
    }

    fn reach(&self) -> Option<usize> {
        self.pattern.reach()
    }

    fn depends_on_head(&self) -> bool {
        self.pattern.depends_on_head() || self.others.iter().any(|other| other.depends_on_head())
    }
}
