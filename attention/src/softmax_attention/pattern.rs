//! Patterns of visibility: pure functions of head and positions that say which keys a query may see, and how queries are grouped so that only those keys
//! are ever scored.
//!
//! A pattern counts positions in the sequence without padding, and says nothing about the future: causality is the model's, and both hold together.
//! [`Restricted`](crate::description::restricted::Restricted) puts a pattern over logits.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::query_blocks::Grouping;
use crate::contract::Check;
use crate::contract::error::ConfigError;

mod query_blocks;

/// Which keys a query may see, as a pure function, and which queries are executed together.
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

    /// Number of the block that query `i` is executed in. The less the keys of a block's queries differ, the less is computed in vain.
    fn block(&self, head: usize, i: usize) -> usize;

    /// Keys among `keys`, ascending, which hold all that the queries of one block may see. The queries are ascending, at least one. Keys that none sees are sorted
    /// out later; leaving them out saves time. Default: all.
    fn candidates(&self, _head: usize, _queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        keys.collect()
    }

    /// The greatest distance between a query and a key before it that it may see, if there is one. Default: none.
    fn reach(&self) -> Option<usize> {
        None
    }

    /// Patterns that together show what this one shows, and no pair twice: each is executed in blocks of its own, and their results are joined to one
    /// softmax. For patterns that no one grouping of queries serves. Default: none, the pattern is executed whole.
    fn parts(&self) -> Vec<Arc<dyn Pattern>> {
        Vec::new()
    }

    /// Whether heads differ. Default: yes, which is never wrong.
    fn depends_on_head(&self) -> bool {
        true
    }
}

/// How factors, which only together connect all positions, are brought into a model (Child et al. 2019, section 5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Integration {
    /// Layers have the factors in turn: of two factors, even layers, counted from 0, have the first and odd ones the second.
    Interleaved,
    /// Every head sees what any factor shows: of two factors one layer reaches nearly all, two reach all.
    #[default]
    Merged,
    /// Heads have the factors in turn: of two factors, even heads, counted from 0, have the first and odd ones the second. Heads that are left over, fewer than
    /// there are factors, have all of them.
    Heads,
}

/// Most factors of a pattern.
const MOST_FACTORS: usize = 16;

impl Integration {
    /// Checks the number of factors, and the ratio at which layers have them.
    ///
    /// # Errors
    /// If there are fewer than two factors or more than 16, or if a ratio is given that has no effect or not a number of layers for each factor.
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

    /// Why an option of factors changes nothing.
    pub(crate) fn without_effect(self, option: &str) -> Option<&'static str> {
        (option == "ratio" && self != Self::Interleaved).then_some("ratio is for integration = \"interleaved\"")
    }
}

/// The factor that a layer has where `ratio[0]` successive layers have the first factor, `ratio[1]` the second, and so on, and then the first again. Without a
/// ratio one layer has each: what is returned is the layer itself, which stands for its factor in turn.
pub(crate) fn turn(ratio: Option<&[usize]>, layer: usize) -> usize {
    let Some(ratio) = ratio else { return layer };
    let place = layer % ratio.iter().fold(0, |sum: usize, layers| sum.saturating_add(*layers)).max(1);
    let ends = ratio.iter().scan(0usize, |end, layers| {
        *end = end.saturating_add(*layers);
        Some(*end)
    });
    ends.take_while(|&end| end <= place).count()
}

/// Keys that are near their query, on either side of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// The greatest distance of a key.
    pub farthest: usize,
    /// Successive queries that are executed together, at least 1.
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

/// What a head has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// The factor of this index.
    One(usize),
    All,
}

/// Patterns of which a layer or a head has one, or what any of them shows.
#[derive(Clone, Debug)]
pub struct Factorised {
    factors: Vec<Arc<dyn Pattern>>,
    joint_block: usize,
    /// Shares of the heads; of all heads, if there is only one.
    shares: Vec<Share>,
    executed_apart: bool,
}

/// What one pattern shows and others do not.
#[derive(Clone, Debug)]
struct Without {
    pattern: Arc<dyn Pattern>,
    others: Vec<Arc<dyn Pattern>>,
}

impl Factorised {
    /// The share of one layer in several factors. Where a head has all, `joint_block` successive queries are executed together.
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

    /// Where all heads have all factors, executes these one after the other: for factors that group queries in different ways.
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
        // One head without a limit is enough.
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
