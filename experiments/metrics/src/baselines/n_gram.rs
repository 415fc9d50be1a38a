//! N-gram language models of orders 1 to 5 with interpolated modified Kneser-Ney smoothing.
//!
//! Chen and Goodman, "An empirical study of smoothing techniques for language modeling" (1999), section 4.1.6 and equation 26. The highest order counts
//! occurrences; lower orders count the different tokens before an n-gram. The unigram is interpolated with the uniform distribution. Where counts of counts give no
//! discounts, as those of few characters, they are 0.5, 1 and 1.5, as KenLM's fallback has them.
//!
//! The n-grams of a training text are sorted once, in 16 bytes a token. No table of all n-grams is made: what the tokens to be scored need is counted in one pass
//! over the sorted ones, so that memory is bounded by the number of training tokens and the size of a block of scored ones.

use std::collections::{HashMap, HashSet};

use heedful_host::interrupt::Interrupt;

/// The longest n-grams.
pub const ORDERS: usize = 5;
/// More training tokens than these are not read: sorting them takes 16 bytes each.
pub const MOST_TOKENS: usize = 20_000_000;
/// Tokens that are scored at once: the n-grams of each take up to a kilobyte.
const BLOCK: usize = 1 << 18;
/// Bits of a token in a packed n-gram.
const BITS: u32 = 25;
/// What is before the beginning of a text.
const NOTHING: u128 = 0;

/// A token with up to four tokens before it. The token itself has the highest bits, so that n-grams that end alike are neighbours when sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(u128);

impl Event {
    /// The token `target` after `history`, of which the last tokens count.
    ///
    /// # Panics
    /// If an id has more than 24 bits.
    pub fn new(history: &[u32], target: u32) -> Self {
        let before = history.iter().rev().map(|&id| packed(id)).chain(std::iter::repeat(NOTHING)).take(ORDERS - 1);
        Self(before.fold(packed(target), |key, id| key << BITS | id))
    }

    /// The n-gram of this order that ends with the token.
    fn gram(self, order: usize) -> u128 {
        self.0 >> (BITS * (ORDERS - order) as u32)
    }
}

fn packed(id: u32) -> u128 {
    assert!(id < 1 << (BITS - 1), "the id {id} has more than {} bits", BITS - 1);
    u128::from(id) + 1
}

/// What stands before the last token of an n-gram of this order.
fn context(gram: u128, order: usize) -> u128 {
    gram & ((1 << (BITS * (order as u32 - 1))) - 1)
}

/// Every token of a text but the first, after those before it.
pub fn events(text: &[u32]) -> impl Iterator<Item = Event> {
    (1..text.len()).map(|end| Event::new(&text[end.saturating_sub(ORDERS - 1)..end], text[end]))
}

/// How often n-grams occur: as themselves, and after how many different tokens.
const KINDS: usize = 2;
/// Occurrences, for the highest order.
const OCCURRENCES: usize = 0;
/// Different tokens before an n-gram, for lower orders.
const CONTINUATIONS: usize = 1;

/// What is subtracted from counts of 1, of 2, and of 3 or more.
type Discounts = [f64; 3];

/// A model of a training text.
#[derive(Debug)]
pub struct KneserNey {
    /// The n-grams of the highest order, sorted.
    sorted: Vec<u128>,
    vocabulary: usize,
    /// By kind and order.
    discounts: [[Discounts; ORDERS]; KINDS],
}

/// What follows a context.
#[derive(Clone, Copy, Debug, Default)]
struct Followers {
    total: u64,
    /// How many different tokens follow it once, twice, and more often.
    by_count: [u64; 3],
}

impl KneserNey {
    /// The model of the first [`MOST_TOKENS`] of a text, whose first token is given. `vocabulary` is the number of tokens that could occur.
    pub fn train(text: &[u32], vocabulary: usize) -> Self {
        Self::of_events(events(text), vocabulary)
    }

    /// The model of the first [`MOST_TOKENS`] of `events`. `vocabulary` is the number of tokens that could occur.
    pub fn of_events(events: impl Iterator<Item = Event>, vocabulary: usize) -> Self {
        let mut sorted: Vec<u128> = events.take(MOST_TOKENS).map(|event| event.0).collect();
        sorted.sort_unstable();
        let mut model = Self { sorted, vocabulary, discounts: [[[0.0; 3]; ORDERS]; KINDS] };
        // How many n-grams occur once, twice, three and four times.
        let mut counts = [[[0_u64; 4]; ORDERS]; KINDS];
        model.each_gram(|order, _, found| {
            for (kind, found) in found.into_iter().enumerate() {
                if let count @ 1..=4 = found {
                    counts[kind][order - 1][count as usize - 1] += 1;
                }
            }
        });
        model.discounts = counts.map(|orders| orders.map(discounts));
        model
    }

    /// Training tokens.
    pub fn tokens(&self) -> usize {
        self.sorted.len()
    }

    /// The most frequent token, and of each of `before` the token that follows it most often, if any does; of equals that with the smallest id.
    pub fn most_frequent(&self, before: &HashSet<u32>) -> (Option<u32>, HashMap<u32, u32>) {
        let token = |packed: u128| (packed as u32).checked_sub(1);
        let (mut most, mut followers) = ((0, None), HashMap::<u32, (u64, u32)>::new());
        self.each_gram(|order, gram, [count, _]| match order {
            1 if count > most.0 => most = (count, token(gram)),
            2 => {
                let (Some(before_it), Some(target)) = (token(context(gram, 2)), token(gram >> BITS)) else { return };
                if before.contains(&before_it) {
                    let best = followers.entry(before_it).or_default();
                    *best = if count > best.0 { (count, target) } else { *best };
                }
            }
            _ => {}
        });
        (most.1, followers.into_iter().map(|(before, (_, target))| (before, target)).collect())
    }

    /// Calls `each` for every n-gram of the text with its order and its counts by kind.
    fn each_gram(&self, mut each: impl FnMut(usize, u128, [u64; KINDS])) {
        let mut counts = [[0_u64; KINDS]; ORDERS + 1];
        let mut end = |key: u128, least: usize, counts: &mut [[u64; KINDS]; ORDERS + 1]| {
            for order in (least..=ORDERS).rev() {
                each(order, Event(key).gram(order), counts[order]);
                counts[order] = [0; KINDS];
                counts[order - 1][CONTINUATIONS] += 1;
            }
        };
        let mut before = None;
        for &key in &self.sorted {
            let differs = |before: u128| (1..=ORDERS).find(|&order| Event(key).gram(order) != Event(before).gram(order));
            if let Some((before, least)) = before.and_then(|before| Some((before, differs(before)?))) {
                end(before, least, &mut counts);
            }
            counts[1..].iter_mut().for_each(|counts| counts[OCCURRENCES] += 1);
            before = Some(key);
        }
        if let Some(before) = before {
            end(before, 1, &mut counts);
        }
    }

    /// The sum of negative log-likelihoods of `events` in nats, by the order of the model; `None` if the interrupt was raised meanwhile.
    pub fn total_nats(&self, events: impl Iterator<Item = Event>, interrupt: &Interrupt) -> Option<[f64; ORDERS]> {
        let mut total = [0.0; ORDERS];
        let mut events = events.peekable();
        while events.peek().is_some() {
            let block: Vec<Event> = events.by_ref().take(BLOCK).collect();
            for nats in self.nats(&block, interrupt)? {
                total.iter_mut().zip(nats).for_each(|(total, nats)| *total += nats);
            }
        }
        Some(total)
    }

    /// The negative log-likelihood of each event in nats, by the order of the model; `None` if the interrupt was raised meanwhile.
    pub fn nats(&self, events: &[Event], interrupt: &Interrupt) -> Option<Vec<[f64; ORDERS]>> {
        Some(events.chunks(BLOCK).map(|block| self.block(block, interrupt)).collect::<Option<Vec<_>>>()?.concat())
    }

    fn block(&self, events: &[Event], interrupt: &Interrupt) -> Option<Vec<[f64; ORDERS]>> {
        let mut grams: [HashMap<u128, [u64; KINDS]>; ORDERS] = Default::default();
        let mut contexts: [HashMap<u128, [Followers; KINDS]>; ORDERS] = Default::default();
        for event in events {
            for order in 1..=ORDERS {
                let gram = event.gram(order);
                grams[order - 1].insert(gram, [0; KINDS]);
                contexts[order - 1].insert(context(gram, order), [Followers::default(); KINDS]);
            }
        }
        if interrupt.is_raised() {
            return None;
        }
        self.each_gram(|order, gram, counts| {
            let Some(followers) = contexts[order - 1].get_mut(&context(gram, order)) else { return };
            for (followers, count) in followers.iter_mut().zip(counts) {
                followers.total += count;
                if count > 0 {
                    followers.by_count[(count.min(3) - 1) as usize] += 1;
                }
            }
            if let Some(there) = grams[order - 1].get_mut(&gram) {
                *there = counts;
            }
        });
        if interrupt.is_raised() {
            return None;
        }
        let of_event = |event: &Event| {
            let mut lower = 1.0 / self.vocabulary as f64;
            std::array::from_fn(|index| {
                let gram = event.gram(index + 1);
                let (counts, followers) = (grams[index][&gram], contexts[index][&context(gram, index + 1)]);
                let interpolated = |kind: usize| interpolated(&self.discounts[kind][index], counts[kind], &followers[kind], lower);
                let nats = -interpolated(OCCURRENCES).ln();
                lower = interpolated(CONTINUATIONS);
                nats
            })
        };
        Some(events.iter().map(of_event).collect())
    }
}

/// The probability of a token that follows a context `count` times, where the shorter context gives it that of `lower`.
fn interpolated(discounts: &Discounts, count: u64, followers: &Followers, lower: f64) -> f64 {
    if followers.total == 0 {
        return lower;
    }
    let total = followers.total as f64;
    let kept = if count == 0 { 0.0 } else { count as f64 - discounts[(count.min(3) - 1) as usize] };
    let freed: f64 = discounts.iter().zip(followers.by_count).map(|(discount, tokens)| discount * tokens as f64).sum();
    kept / total + freed / total * lower
}

/// The discounts that fit how many n-grams occur once, twice, three and four times.
fn discounts(counts: [u64; 4]) -> Discounts {
    let [one, two, three, four] = counts.map(|count| count as f64);
    let share = one / (one + 2.0 * two);
    let fitted = [1.0 - 2.0 * share * two / one, 2.0 - 3.0 * share * three / two, 3.0 - 4.0 * share * four / three];
    let is_possible = (1..).zip(fitted).all(|(count, discount)| (0.0..=f64::from(count)).contains(&discount));
    if is_possible { fitted } else { [0.5, 1.0, 1.5] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random ids with repetitions: a walk whose next id depends on the two before it.
    fn walk(length: usize, vocabulary: u32, seed: u32) -> Vec<u32> {
        let (mut text, mut state) = (vec![3], seed);
        while text.len() < length {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let before = text[text.len() - 1] + 2 * text[text.len().saturating_sub(2)];
            let drawn = if state >> 30 == 0 { state >> 20 } else { before * 5 + (state >> 28) };
            text.push(3 + drawn % (vocabulary - 3));
        }
        text
    }

    fn nats(model: &KneserNey, events: &[Event]) -> Vec<[f64; ORDERS]> {
        model.nats(events, &Interrupt::new()).unwrap()
    }

    #[test]
    fn probabilities_of_all_tokens_add_up_to_one_in_seen_and_unseen_contexts() {
        let text = walk(3000, 20, 1);
        let model = KneserNey::train(&text, 20);
        for history in [&text[100..104], &[3, 19, 3, 18], &[5], &[], &[19, 19, 19, 19]] {
            let events: Vec<Event> = (0..20).map(|target| Event::new(history, target)).collect();
            let all = nats(&model, &events);
            for order in 0..ORDERS {
                let sum: f64 = all.iter().map(|nats| (-nats[order]).exp()).sum();
                assert!((sum - 1.0).abs() < 1e-12, "order {} after {history:?}: {sum}", order + 1);
            }
        }
    }

    #[test]
    fn likelihoods_are_those_of_an_independent_program() {
        let (train, test) = (walk(3000, 20, 1), walk(400, 20, 7));
        let model = KneserNey::train(&train, 20);
        let found = model.total_nats(events(&test), &Interrupt::new()).unwrap();
        // By dictionaries of a Python program, straight from the formulas of the paper.
        let expected = [1133.6712339102103, 1160.5359408480633, 1174.6586287942055, 1175.8907320543829, 1187.251207875457];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-9, "{found:?} and {expected:?}");
        }
    }

    #[test]
    fn a_bigram_is_that_computed_by_hand() {
        // a b a b a c, after the given a: bigrams ab 2, ba 2, ac 1; the fallback discounts 0.5, 1 and 1.5 hold.
        let model = KneserNey::train(&[0, 1, 0, 1, 0, 2], 3);
        let of = |history: &[u32], target| nats(&model, &[Event::new(history, target)])[0].map(|nats| (-nats).exp());
        // Unigrams: b 2, a 2, c 1 of 5; discounts free (1 + 1 + 0.5) / 5 = 0.5 for the uniform distribution.
        let unigram = |count: f64, discount: f64| (count - discount) / 5.0 + 0.5 / 3.0;
        assert!((of(&[], 1)[0] - unigram(2.0, 1.0)).abs() < 1e-12 && (of(&[], 2)[0] - unigram(1.0, 0.5)).abs() < 1e-12);
        // Each of the three follows one token alone: 1 of 3, of which 0.5 is freed each.
        let lower = 0.5 / 3.0 + 0.5 / 3.0;
        // After a: b 2 and c 1 of 3; freed are 1 and 0.5.
        assert!((of(&[0], 1)[1] - (1.0 / 3.0 + 0.5 * lower)).abs() < 1e-12);
        assert!((of(&[0], 2)[1] - (0.5 / 3.0 + 0.5 * lower)).abs() < 1e-12);
        assert!((of(&[0], 0)[1] - 0.5 * lower).abs() < 1e-12);
    }

    #[test]
    fn the_most_frequent_token_and_followers_are_counted() {
        let model = KneserNey::train(&[9, 1, 2, 1, 2, 1, 3, 1], 10);
        let (most, followers) = model.most_frequent(&HashSet::from([1, 2, 7]));
        assert_eq!(most, Some(1));
        let mut followers: Vec<_> = followers.into_iter().collect();
        followers.sort_unstable();
        assert_eq!(followers, [(1, 2), (2, 1)]);
    }

    #[test]
    fn discounts_follow_the_counts_of_counts_or_fall_back() {
        let [one, two, three] = discounts([100, 40, 20, 12]);
        let share = 100.0 / 180.0;
        assert!((one - (1.0 - 2.0 * share * 0.4)).abs() < 1e-12 && (two - (2.0 - 3.0 * share * 0.5)).abs() < 1e-12);
        assert!((three - (3.0 - 4.0 * share * 0.6)).abs() < 1e-12);
        for counts in [[0, 0, 0, 0], [5, 0, 3, 1], [9, 1, 9, 1]] {
            assert_eq!(discounts(counts), [0.5, 1.0, 1.5], "{counts:?}");
        }
    }

    #[test]
    fn blocks_of_scored_tokens_add_up() {
        let (train, test) = (walk(500, 9, 2), walk(90, 9, 3));
        let model = KneserNey::train(&train, 9);
        let all: Vec<Event> = events(&test).collect();
        let parts: f64 = all.chunks(7).flat_map(|part| nats(&model, part)).map(|nats| nats[3]).sum();
        let whole = model.total_nats(all.into_iter(), &Interrupt::new()).unwrap()[3];
        assert!((parts / whole - 1.0).abs() < 1e-12);
        assert_eq!(KneserNey::train(&train, 9).tokens(), 499);
    }
}
