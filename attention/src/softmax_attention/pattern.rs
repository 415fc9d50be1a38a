//! Patterns of visibility: pure functions of head and positions that say which keys a query may see, and how queries are grouped so that only those keys
//! are ever scored.
//!
//! A pattern counts positions in the sequence without padding, and says nothing about the future: causality is the model's, and both hold together.
//! [`Restricted`](crate::restricted::Restricted) puts a pattern over logits.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::grouping::Grouping;

mod grouping;

/// Which keys a query may see, as a pure function, and which queries are executed together.
///
/// # Example
/// ```
/// use heedful_attention::pattern::Pattern;
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

    /// Keys among `keys`, ascending, which hold all that the given queries of one block may see. Those that none of them sees are sorted out later; not to
    /// name them saves time. Default: all.
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

/// How two factors, which only together connect all positions, are brought into a model (Child et al. 2019, section 5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Integration {
    /// Even layers, counted from 0, have the first factor, odd ones the second.
    Interleaved,
    /// Every head sees what either factor shows: one layer reaches nearly all, two reach all.
    #[default]
    Merged,
    /// Even heads, counted from 0, have the first factor, odd ones the second. The last of an odd number of heads has both.
    Heads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Factor {
    First,
    Second,
    Both,
}

/// Two patterns of which a layer or a head has the first, the second, or what either shows.
#[derive(Clone, Debug)]
pub struct Factorised {
    first: Arc<dyn Pattern>,
    second: Arc<dyn Pattern>,
    joint_block: usize,
    /// Factors of the heads; of all heads, if there is only one.
    factors: Vec<Factor>,
    executed_apart: bool,
}

/// What one pattern shows and another does not.
#[derive(Clone, Debug)]
struct Without {
    pattern: Arc<dyn Pattern>,
    other: Arc<dyn Pattern>,
}

impl Factorised {
    /// The share of one layer in two factors. Where a head has both, `joint_block` successive queries are executed together.
    pub fn new(factors: [Arc<dyn Pattern>; 2], integration: Integration, layer: usize, heads: usize, joint_block: usize) -> Self {
        let [first, second] = factors;
        let factors = match integration {
            Integration::Interleaved if layer.is_multiple_of(2) => vec![Factor::First],
            Integration::Interleaved => vec![Factor::Second],
            Integration::Merged => vec![Factor::Both],
            Integration::Heads => (0..heads)
                .map(|head| match head % 2 {
                    1 => Factor::Second,
                    _ if head + 1 == heads => Factor::Both,
                    _ => Factor::First,
                })
                .collect(),
        };
        Self { first, second, joint_block, factors, executed_apart: false }
    }

    /// Where all heads have both factors, executes these one after the other: for factors that group queries in different ways.
    pub fn executed_apart(mut self) -> Self {
        self.executed_apart = true;
        self
    }

    fn factor(&self, head: usize) -> Factor {
        self.factors[if self.factors.len() == 1 { 0 } else { head }]
    }
}

impl Pattern for Factorised {
    fn sees(&self, head: usize, i: usize, j: usize) -> bool {
        match self.factor(head) {
            Factor::First => self.first.sees(head, i, j),
            Factor::Second => self.second.sees(head, i, j),
            Factor::Both => self.first.sees(head, i, j) || self.second.sees(head, i, j),
        }
    }

    fn block(&self, head: usize, i: usize) -> usize {
        match self.factor(head) {
            Factor::First => self.first.block(head, i),
            Factor::Second => self.second.block(head, i),
            Factor::Both => i / self.joint_block,
        }
    }

    fn candidates(&self, head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        match self.factor(head) {
            Factor::First => self.first.candidates(head, queries, keys),
            Factor::Second => self.second.candidates(head, queries, keys),
            Factor::Both => {
                let mut either = self.first.candidates(head, queries, keys.clone());
                either.extend(self.second.candidates(head, queries, keys));
                either.sort_unstable();
                either.dedup();
                either
            }
        }
    }

    fn reach(&self) -> Option<usize> {
        let reach = |factor: &Factor| match factor {
            Factor::First => self.first.reach(),
            Factor::Second => self.second.reach(),
            Factor::Both => Some(self.first.reach()?.max(self.second.reach()?)),
        };
        // One head without a limit is enough.
        self.factors.iter().map(reach).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn parts(&self) -> Vec<Arc<dyn Pattern>> {
        if !self.executed_apart || self.factors != [Factor::Both] {
            return Vec::new();
        }
        vec![self.first.clone(), Arc::new(Without { pattern: self.second.clone(), other: self.first.clone() })]
    }

    fn depends_on_head(&self) -> bool {
        let uses = |unused| self.factors.iter().any(|&factor| factor != unused);
        self.factors.len() > 1
            || (uses(Factor::Second) && self.first.depends_on_head())
            || (uses(Factor::First) && self.second.depends_on_head())
    }
}

impl Pattern for Without {
    fn sees(&self, head: usize, i: usize, j: usize) -> bool {
        self.pattern.sees(head, i, j) && !self.other.sees(head, i, j)
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
        self.pattern.depends_on_head() || self.other.depends_on_head()
    }
}
