//! Which pairs of queries and keys a pattern hides in training sequences.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use heedful_attention::prelude::*;
use heedful_attention::softmax_attention::pattern::Pattern;
use rand::RngExt;

/// Most positions of a sequence whose pairs are looked at.
const SAMPLED: usize = 512;
/// So many of the last positions are all looked at: what is nearly as long as a sequence hides keys from these alone.
const LAST: usize = 64;

/// What a pattern hides of the pairs that causality shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Hidden {
    /// Pairs that are hidden, times the training sequences that have them.
    pub(super) hidden: f64,
    /// All pairs, times the training sequences that have them.
    pub(super) all: f64,
    /// Digests of which pairs are hidden, by head: one if all heads have the same.
    pub(super) digests: Vec<u64>,
}

impl Hidden {
    /// Counts the pairs of sequences, of which there are so many of each length. The positions before `first_query` are no queries.
    pub(super) fn by(pattern: &dyn Pattern, role: Role, heads: usize, lengths: &BTreeMap<usize, usize>, first_query: usize) -> Self {
        let longest = lengths.keys().next_back().copied().unwrap_or_default();
        let positions = sampled(first_query..longest.max(first_query));
        let mut sum = Self::default();
        for head in 0..if pattern.depends_on_head() { heads } else { 1 } {
            let mut digest = DefaultHasher::new();
            // The pairs whose later position is `last` are those that a sequence has more than one of `last` positions.
            for &(last, stands_for) in &positions {
                let sequences = lengths.range(last + 1..).map(|(_, count)| *count).sum::<usize>();
                let weight = (sequences * stands_for) as f64;
                let mut pairs = Pairs::default();
                (0..=last).for_each(|key| pairs.add(pattern.sees(head, last, key), &mut digest));
                if role == Role::Encoder {
                    (0..last).for_each(|query| pairs.add(pattern.sees(head, query, last), &mut digest));
                }
                digest.write_u64(pairs.word);
                sum.hidden += weight * pairs.hidden as f64;
                sum.all += weight * pairs.all as f64;
            }
            sum.digests.push(digest.finish());
        }
        if sum.digests.iter().all(|digest| *digest == sum.digests[0]) {
            sum.digests.truncate(1);
        }
        sum
    }
}

/// Pairs that are counted, of which those that fill no word yet are in no digest.
#[derive(Default)]
struct Pairs {
    word: u64,
    hidden: usize,
    all: usize,
}

impl Pairs {
    fn add(&mut self, is_seen: bool, digest: &mut DefaultHasher) {
        self.word = self.word << 1 | u64::from(is_seen);
        self.hidden += usize::from(!is_seen);
        self.all += 1;
        if self.all.is_multiple_of(64) {
            digest.write_u64(self.word);
        }
    }
}

/// Positions among these, ascending, and how many of them each stands for: all of the last ones, and a random one of each stretch before. Positions at even
/// distances would all stand at the same place of blocks that are as long as the distance.
fn sampled(positions: Range<usize>) -> Vec<(usize, usize)> {
    let last = positions.end.saturating_sub(LAST).max(positions.start);
    let stretch = (last - positions.start).div_ceil(SAMPLED - LAST).max(1);
    let mut rng = RandomKey::from_seed(0).named("sampled positions").rng();
    let stretches = (positions.start..last).step_by(stretch).map(|begin| begin..(begin + stretch).min(last));
    let drawn = stretches.map(|stretch| (rng.random_range(stretch.clone()), stretch.len()));
    drawn.chain((last..positions.end).map(|position| (position, 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_stand_for_all_and_at_every_place_of_blocks() {
        for positions in [0..0, 3..40, 0..512, 0..1024, 100..4096, 0..16384] {
            let sampled = sampled(positions.clone());
            assert!(sampled.len() <= SAMPLED && sampled.is_sorted_by(|(one, _), (other, _)| one < other), "{positions:?}");
            assert!(sampled.iter().all(|(position, _)| positions.contains(position)), "{positions:?}");
            assert_eq!(sampled.iter().map(|(_, stands_for)| stands_for).sum::<usize>(), positions.len());
            if positions.len() <= SAMPLED {
                assert_eq!(sampled.len(), positions.len());
                continue;
            }
            // Those before the last are drawn, and blocks of a stretch are met at every place.
            let drawn = &sampled[..sampled.len() - LAST];
            let block = drawn[0].1;
            let places: std::collections::BTreeSet<usize> = drawn.iter().map(|(position, _)| position % block).collect();
            assert_eq!(places.len(), block, "{positions:?}");
        }
    }
}
