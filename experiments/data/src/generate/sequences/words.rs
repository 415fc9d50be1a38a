//! Word problems of groups (Merrill, Petty, Sabharwal 2024, arXiv 2404.08819) and parity (Grazzi et al. 2024, arXiv 2411.12537, section 5).
//!
//! A sequence is of elements of a group; after each the product of all so far is expected, in the order of reading: `p_t = p_{t-1} x_t`, as permutations first
//! `p_{t-1}`. Products in S5 and A5, which are not solvable, are complete for NC1: no Transformer of constant depth and no diagonal linear recurrence
//! computes them at every length. Parity is the group of two elements.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::group::{Group, GroupName};
use super::{Generator, Level, Purpose, ScoredSequence, SequenceTaskError, ensure, ensure_lengths};

/// Which positions have targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scored {
    /// The result so far, after each token.
    #[default]
    Prefixes,
    /// The result alone, at a mark after the last token.
    Last,
}

/// Options of parity: bits, and whether there were an odd number of ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParityConfig {
    /// At which positions parity is expected: `prefixes` or `last`.
    pub scored: Scored,
    /// Least number of bits of a sequence.
    pub shortest: usize,
    /// Most bits of a sequence of training; lengths are even between both.
    pub length: usize,
    /// Greater lengths that are also tested; all sequences of such a length have exactly this many bits.
    pub longer: Vec<usize>,
}

impl Default for ParityConfig {
    fn default() -> Self {
        Self { scored: Scored::Prefixes, shortest: 3, length: 40, longer: vec![64, 128, 256] }
    }
}

/// Options of word problems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WordsConfig {
    /// The group: `s2` to `s5`, `a3` to `a5`, `z2` to `z120`, `a4xz5`.
    pub group: GroupName,
    /// Most points that an element of a sequence may move, in groups of permutations; 2 allows the identity and swaps. By default all elements occur.
    pub moved: Option<usize>,
    /// At which positions a product is expected: `prefixes` or `last`.
    pub scored: Scored,
    /// Least number of elements of a sequence.
    pub shortest: usize,
    /// Most elements of a sequence of training; lengths are even between both.
    pub length: usize,
    /// Greater lengths that are also tested; all sequences of such a length have exactly this many elements.
    pub longer: Vec<usize>,
}

impl Default for WordsConfig {
    fn default() -> Self {
        let group = GroupName::Symmetric(5);
        Self { group, moved: None, scored: Scored::Prefixes, shortest: 16, length: 16, longer: vec![32, 64] }
    }
}

/// Fails unless lengths of a range and those beyond it are possible.
pub(super) fn ensure_range(shortest: usize, length: usize, longer: &[usize], least: usize) -> Result<(), SequenceTaskError> {
    ensure_lengths(length, longer, least)?;
    ensure((least..=length).contains(&shortest), "shortest", || format!("{shortest} is not between {least} and length = {length}"))
}

/// The levels of a range of lengths and of those beyond it, each with so many marks at the end.
pub(super) fn levels_of_range(length: usize, longer: &[usize], marks: usize) -> Vec<Level> {
    Level::lengths(length, longer).into_iter().map(|level| Level { length: level.length + marks, ..level }).collect()
}

/// A sequence of `letters`, which are elements of `group`.
fn word(rng: &mut ChaCha8Rng, group: &Group, letters: &[u32], length: usize, scored: Scored) -> ScoredSequence {
    let mut tokens: Vec<u32> = (0..length).map(|_| letters[rng.random_range(0..letters.len())]).collect();
    let mut product = 0;
    let mut targets = Vec::with_capacity(length);
    for (at, &token) in tokens.iter().enumerate() {
        product = group.product(product, token);
        targets.push((at, product));
    }
    if scored == Scored::Last {
        tokens.push(group.order() as u32);
        targets = vec![(length, product)];
    }
    ScoredSequence { tokens, targets }
}

impl Scored {
    fn marks(self) -> usize {
        usize::from(self == Self::Last)
    }
}

impl Generator for ParityConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure_range(self.shortest, self.length, &self.longer, 1)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (2 + self.scored.marks(), levels_of_range(self.length, &self.longer, self.scored.marks()))
    }

    fn draw(&self, level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let length = length_of(rng, self.shortest, self.length, &self.longer, level);
        word(rng, &Group::new(GroupName::Cyclic(2)), &[0, 1], length, self.scored)
    }
}

/// The length of a sequence of a level.
pub(super) fn length_of(rng: &mut ChaCha8Rng, shortest: usize, length: usize, longer: &[usize], level: usize) -> usize {
    if level == 0 { rng.random_range(shortest..=length) } else { longer[level - 1] }
}

impl Generator for WordsConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        if let Some(moved) = self.moved {
            let points = match self.group {
                GroupName::Symmetric(points) | GroupName::Alternating(points) => points,
                GroupName::Cyclic(_) | GroupName::AlternatingFourAndFive => 0,
            };
            let least = if matches!(self.group, GroupName::Symmetric(_)) { 2 } else { 3 };
            ensure((least..points).contains(&moved), "moved", || {
                let group = self.group;
                format!(
                    "{moved} leaves no element of {group} but the identity, or leaves all; give {least} to less than the points, or leave it out"
                )
            })?;
        }
        ensure_range(self.shortest, self.length, &self.longer, 1)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (Group::new(self.group).order() + self.scored.marks(), levels_of_range(self.length, &self.longer, self.scored.marks()))
    }

    fn draw(&self, level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let group = Group::new(self.group);
        let letters = group.moving_at_most(self.moved.unwrap_or(usize::MAX));
        let length = length_of(rng, self.shortest, self.length, &self.longer, level);
        word(rng, &group, &letters, length, self.scored)
    }
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;

    use super::*;

    #[test]
    fn parity_is_that_of_the_ones_so_far_and_as_often_odd_as_even() {
        let (config, key) = (ParityConfig::default(), RandomKey::from_seed(10));
        let (mut lengths, mut odd, mut all) = ([0; 41], 0, 0);
        for number in 0..3800 {
            let ScoredSequence { tokens, targets } = config.draw(0, Purpose::Training, &mut key.numbered(number).rng());
            lengths[tokens.len()] += 1;
            for &(at, parity) in &targets {
                assert_eq!(tokens[..=at].iter().sum::<u32>() % 2, parity);
                odd += parity;
                all += 1;
            }
            assert_eq!(targets.len(), tokens.len());
        }
        assert!(lengths[..3] == [0; 3] && lengths[3..].iter().all(|&count| (60..=150).contains(&count)), "{lengths:?}");
        assert!((f64::from(odd) / f64::from(all) - 0.5).abs() < 0.01);
        let last = ParityConfig { scored: Scored::Last, ..config };
        let ScoredSequence { tokens, targets } = last.draw(2, Purpose::Scoring, &mut key.rng());
        let (vocabulary, levels) = last.extent();
        assert_eq!((tokens.len(), tokens[128], levels[2].length, vocabulary), (129, 2, 129, 3));
        assert_eq!(targets, [(128, tokens[..128].iter().sum::<u32>() % 2)]);
    }

    #[test]
    fn what_is_expected_is_the_product_from_the_left() {
        let (config, key) = (WordsConfig::default(), RandomKey::from_seed(11));
        let group = Group::new(config.group);
        let mut counts = vec![0; 120];
        for number in 0..600 {
            let ScoredSequence { tokens, targets } = config.draw(0, Purpose::Training, &mut key.numbered(number).rng());
            assert_eq!(tokens.len(), 16);
            for &(at, product) in &targets {
                assert_eq!(tokens[..=at].iter().copied().reduce(|a, b| group.product(a, b)), Some(product));
            }
            tokens.iter().for_each(|&token| counts[token as usize] += 1);
        }
        assert!(counts.iter().all(|count| (40..=125).contains(count)), "{counts:?}");
    }

    #[test]
    fn letters_may_be_swaps_alone_and_impossible_ones_are_refused() {
        let swaps = WordsConfig { moved: Some(2), ..WordsConfig::default() };
        swaps.validate().unwrap();
        let letters = Group::new(swaps.group).moving_at_most(2);
        let drawn = swaps.draw(1, Purpose::Training, &mut RandomKey::from_seed(1).rng());
        assert!(
            drawn.tokens.iter().all(|token| letters.contains(token)) && drawn.targets.iter().any(|target| !letters.contains(&target.1))
        );
        for (group, moved) in [("s5", 1), ("s5", 5), ("a5", 2), ("z60", 2)] {
            let config = WordsConfig { group: group.parse().unwrap(), moved: Some(moved), ..WordsConfig::default() };
            assert_eq!(config.validate().unwrap_err().field, "moved", "{group}, {moved}");
        }
        assert_eq!(WordsConfig { shortest: 17, ..WordsConfig::default() }.validate().unwrap_err().field, "shortest");
    }
}
