//! Batches on the host: which examples go together, rows of one width, and the windows of a language model.
//!
//! Everything here is arithmetic on indices and token ids; no tensor is made. [`token_budget_batches`] groups examples of like length so
//! that little of a batch is padding, [`sequential_batches`] does the same without randomness for evaluation, [`fixed_size_batches`]
//! ignores lengths. A language model is scored on [`evaluation_windows`], which predict each token once and do not know of batches.

use heedful_random::RandomKey;
use rand::seq::SliceRandom;

/// Tokens that the largest batch within a budget has at least, of examples of these lengths.
pub(crate) fn at_least_in_a_batch(lengths: impl Iterator<Item = usize>, budget: usize) -> usize {
    // A batch is closed before the example that would exceed its budget, which is at most as long as all that is in it.
    lengths.fold(0, usize::saturating_add).min(budget) / 2
}

/// The examples that are sorted together, as a number of batches: enough that neighbours are of like length, few enough that batches differ
/// from epoch to epoch.
const POOL_BATCHES: usize = 100;

/// Random batches of examples of like length, each within a budget of padded tokens.
///
/// `lengths` gives the tokens of each example's source and target (give the same number twice, or 0, where there is one side). A batch of
/// `n` examples takes `n` times the longest of its lengths on either side, and that is at most `budget`; an example that is longer than the
/// budget forms a batch of its own. Examples are shuffled, sorted by length in pools of about 100 batches (examples of one length stay in
/// shuffled order), cut, and the order of the batches is shuffled. The result holds each index once and depends on the arguments only.
///
/// # Panics
/// If `budget` is 0.
pub fn token_budget_batches(lengths: &[(usize, usize)], budget: usize, key: &RandomKey) -> Vec<Vec<usize>> {
    assert!(budget > 0, "the token budget of a batch must be positive");
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.shuffle(&mut key.named("examples").rng());
    let mut batches = Vec::new();
    let mut rest = order.as_mut_slice();
    while !rest.is_empty() {
        let in_pool = rest.iter().scan(0, |tokens, &index| {
            let room = *tokens < POOL_BATCHES.saturating_mul(budget);
            *tokens += larger_side(lengths[index]);
            room.then_some(())
        });
        let size = in_pool.count();
        let (pool, after) = rest.split_at_mut(size);
        pool.sort_by_key(|&index| by_length(lengths[index]));
        batches.extend(cut(pool, lengths, budget));
        rest = after;
    }
    batches.shuffle(&mut key.named("batches").rng());
    batches
}

/// Batches for evaluation: all examples sorted by length, those of one length by index, cut by the same budget as in
/// [`token_budget_batches`].
///
/// # Panics
/// If `budget` is 0.
pub fn sequential_batches(lengths: &[(usize, usize)], budget: usize) -> Vec<Vec<usize>> {
    assert!(budget > 0, "the token budget of a batch must be positive");
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| by_length(lengths[index]));
    cut(&order, lengths, budget)
}

/// Random batches of `size` examples out of `count`, whatever their lengths; the last may be smaller. Each index occurs once.
///
/// # Panics
/// If `size` is 0.
pub fn fixed_size_batches(count: usize, size: usize, key: &RandomKey) -> Vec<Vec<usize>> {
    assert!(size > 0, "the size of a batch must be positive");
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut key.named("examples").rng());
    order.chunks(size).map(<[usize]>::to_vec).collect()
}

/// An empty example still costs a row.
fn larger_side((source, target): (usize, usize)) -> usize {
    source.max(target).max(1)
}

/// The side that decides the cost comes first; the other orders examples of the same cost, so that it is padded little too.
fn by_length(sides: (usize, usize)) -> (usize, usize) {
    (larger_side(sides), sides.0.min(sides.1))
}

/// Cuts examples, in their order, wherever one more would exceed the budget.
fn cut(order: &[usize], lengths: &[(usize, usize)], budget: usize) -> Vec<Vec<usize>> {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut longest = 0;
    for &index in order {
        let length = larger_side(lengths[index]);
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * longest.max(length) <= budget => {
                batch.push(index);
                longest = longest.max(length);
            }
            _ => {
                batches.push(vec![index]);
                longest = length;
            }
        }
    }
    batches
}

/// Rows of token ids, padded to one width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaddedBatch {
    /// The ids, `[rows, width]` row by row.
    pub ids: Vec<i32>,
    /// The number of rows.
    pub rows: usize,
    /// The length of the longest row.
    pub width: usize,
    /// The length of each row before padding.
    pub lengths: Vec<usize>,
}

/// Puts `rows` under one another, each filled up at its end with `pad` to the length of the longest.
///
/// # Panics
/// If an id does not fit an `i32`.
pub fn pad(rows: &[Vec<u32>], pad: u32) -> PaddedBatch {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let padding = std::iter::repeat(&pad);
    let ids = rows.iter().flat_map(|row| row.iter().chain(padding.clone()).take(width)).map(|&id| signed(id)).collect();
    PaddedBatch { ids, rows: rows.len(), width, lengths: rows.iter().map(Vec::len).collect() }
}

/// Tensors of integers hold signed numbers.
fn signed(id: u32) -> i32 {
    i32::try_from(id).unwrap_or_else(|_| panic!("token id {id} does not fit an i32"))
}

/// A stretch of a text that a language model reads at once, and the part of it that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationWindow {
    /// The position of the first input token.
    pub start: usize,
    /// The position after the last input token, which is also the position of the last target.
    pub end: usize,
    /// The position of the first target that is scored; those before it were scored in earlier windows.
    pub first_scored: usize,
}

impl EvaluationWindow {
    /// The window's inputs in the text that it was made for.
    pub fn inputs<'a>(&self, ids: &'a [u32]) -> &'a [u32] {
        &ids[self.start..self.end]
    }

    /// The token after each input.
    pub fn targets<'a>(&self, ids: &'a [u32]) -> &'a [u32] {
        &ids[self.start + 1..=self.end]
    }

    /// How many of the [`targets`](Self::targets), from the front, are not scored.
    pub fn unscored(&self) -> usize {
        self.first_scored - self.start - 1
    }
}

/// Windows that score each token of a text of `len` tokens once, with as much left context as the model can read.
///
/// The first token is never predicted, so put the token in front of the text that the model is given there (the beginning or the end of a
/// line). A window reads `context` tokens (all windows do, unless the text is shorter) and moves on by `stride`: with `stride == context`
/// windows are disjoint and the first prediction of each sees one token; with a smaller stride each prediction but those of the first
/// window sees at least `context - stride + 1` tokens, at `context / stride` times the cost. Windows do not depend on one another, so
/// scores do not depend on how they are batched.
///
/// # Panics
/// If `stride` is 0 or greater than `context`.
pub fn evaluation_windows(len: usize, context: usize, stride: usize) -> Vec<EvaluationWindow> {
    assert!((1..=context).contains(&stride), "the stride must be between 1 and the context {context}, not {stride}");
    let inputs = len.saturating_sub(1);
    let mut windows = Vec::new();
    let mut scored = 0;
    while scored < inputs {
        let end = inputs.min(if scored == 0 { context } else { scored + stride });
        windows.push(EvaluationWindow { start: end.saturating_sub(context), end, first_scored: scored + 1 });
        scored = end;
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    /// Log-normal lengths, as those of sentences are: median 16, one in a thousand beyond 140.
    fn skewed_lengths(count: usize) -> Vec<(usize, usize)> {
        let mut rng = RandomKey::from_seed(3).named("lengths").rng();
        let mut length = |median: f64, spread: f64| {
            let normal = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            (median * (spread * normal).exp()).round().max(1.0) as usize
        };
        (0..count)
            .map(|_| {
                let source = length(16.0, 0.7);
                (source, length(1.1 * source as f64, 0.15))
            })
            .collect()
    }

    fn key() -> RandomKey {
        RandomKey::from_seed(11)
    }

    fn assert_each_once(batches: &[Vec<usize>], count: usize) {
        let mut seen: Vec<usize> = batches.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
        assert!(batches.iter().all(|batch| !batch.is_empty()));
    }

    fn padded(batch: &[usize], side: impl Fn(usize) -> usize) -> usize {
        batch.len() * batch.iter().map(|&index| side(index)).max().unwrap()
    }

    #[test]
    fn every_pair_is_in_one_batch() {
        for count in [0, 1, 2, 5000] {
            let lengths = skewed_lengths(count);
            assert_each_once(&token_budget_batches(&lengths, 500, &key()), count);
            assert_each_once(&sequential_batches(&lengths, 500), count);
            assert_each_once(&fixed_size_batches(count, 32, &key()), count);
        }
    }

    #[test]
    fn the_budget_is_exceeded_by_single_examples_only() {
        let lengths = skewed_lengths(5000);
        for budget in [1, 60, 500, 4000] {
            for batches in [token_budget_batches(&lengths, budget, &key()), sequential_batches(&lengths, budget)] {
                let over: Vec<_> = batches
                    .iter()
                    .filter(|batch| padded(batch, |index| lengths[index].0).max(padded(batch, |index| lengths[index].1)) > budget)
                    .collect();
                assert!(over.iter().all(|batch| batch.len() == 1), "budget {budget}: {over:?}");
                let long = lengths.iter().filter(|(source, target)| source.max(target) > &budget).count();
                assert_eq!(over.len(), long);
            }
        }
    }

    #[test]
    fn empty_examples_are_batched_too() {
        let batches = token_budget_batches(&[(0, 0); 25], 10, &key());
        assert_each_once(&batches, 25);
        assert!(batches.iter().all(|batch| batch.len() <= 10));
    }

    #[test]
    fn the_same_key_gives_the_same_batches() {
        let lengths = skewed_lengths(2000);
        let batches = |key: &RandomKey| token_budget_batches(&lengths, 500, key);
        assert_eq!(batches(&key().numbered(1)), batches(&key().numbered(1)));
        assert_ne!(batches(&key().numbered(1)), batches(&key().numbered(2)));
        assert_eq!(fixed_size_batches(100, 7, &key()), fixed_size_batches(100, 7, &key()));
        assert_ne!(fixed_size_batches(100, 7, &key()), fixed_size_batches(100, 7, &key().numbered(1)));
    }

    #[test]
    fn batches_of_another_epoch_group_other_examples() {
        let lengths = skewed_lengths(5000);
        let grouped = |number: u64| {
            let mut batches = token_budget_batches(&lengths, 500, &key().numbered(number));
            batches.iter_mut().for_each(|batch| batch.sort_unstable());
            batches.sort_unstable();
            batches
        };
        let (first, second) = (grouped(1), grouped(2));
        let shared = first.iter().filter(|batch| batch.len() > 1 && second.contains(batch)).count();
        assert!(shared * 20 < first.len(), "{shared} of {} batches are the same", first.len());
    }

    #[test]
    fn the_order_of_batches_does_not_follow_their_length() {
        let lengths = skewed_lengths(5000);
        let widths: Vec<usize> = token_budget_batches(&lengths, 500, &key()).iter().map(|batch| larger_side(lengths[batch[0]])).collect();
        let rising = widths.windows(2).filter(|pair| pair[0] <= pair[1]).count();
        assert!((0.4..0.6).contains(&(rising as f64 / widths.len() as f64)), "{rising} of {} steps rise", widths.len());
    }

    #[test]
    fn less_than_15_percent_of_skewed_batches_is_padding() {
        for (count, budget) in [(1000, 1000), (5000, 500), (20000, 2000)] {
            let lengths = skewed_lengths(count);
            let tokens: usize = lengths.iter().map(|(source, target)| source + target).sum();
            let waste = |batches: &[Vec<usize>]| {
                let padded: usize =
                    batches.iter().map(|batch| padded(batch, |index| lengths[index].0) + padded(batch, |index| lengths[index].1)).sum();
                1.0 - tokens as f64 / padded as f64
            };
            for waste in [waste(&token_budget_batches(&lengths, budget, &key())), waste(&sequential_batches(&lengths, budget))] {
                assert!(waste < 0.15, "{count} examples, budget {budget}: {waste:.3} of the tokens are padding");
            }
            assert!(waste(&fixed_size_batches(count, 32, &key())) > 0.4, "the lengths are not skewed enough to test anything");
        }
    }

    #[test]
    fn sequential_batches_rise_in_length_and_then_index() {
        let lengths = [(5, 1), (2, 2), (1, 5), (2, 2), (3, 3)];
        assert_eq!(sequential_batches(&lengths, 6), [vec![1, 3], vec![4], vec![0], vec![2]]);
        assert_eq!(sequential_batches(&lengths, 1000), [vec![1, 3, 4, 0, 2]]);
    }

    #[test]
    fn only_the_last_batch_of_fixed_size_is_smaller() {
        let sizes: Vec<usize> = fixed_size_batches(23, 5, &key()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [5, 5, 5, 5, 3]);
    }

    #[test]
    fn rows_are_padded_at_their_end() {
        let batch = pad(&[vec![7, 8, 9], vec![], vec![5]], 0);
        assert_eq!(batch, PaddedBatch { ids: vec![7, 8, 9, 0, 0, 0, 5, 0, 0], rows: 3, width: 3, lengths: vec![3, 0, 1] });
        assert_eq!(pad(&[], 0), PaddedBatch { ids: vec![], rows: 0, width: 0, lengths: vec![] });
    }

    #[test]
    fn evaluation_windows_score_each_target_once() {
        for len in 0..=50 {
            for context in 1..=12 {
                for stride in 1..=context {
                    let windows = evaluation_windows(len, context, stride);
                    let scored: Vec<usize> = windows.iter().flat_map(|window| window.first_scored..=window.end).collect();
                    assert_eq!(scored, (1..len).collect::<Vec<_>>(), "length {len}, context {context}, stride {stride}");
                    for (number, window) in windows.iter().enumerate() {
                        assert_eq!(window.end - window.start, context.min(len - 1));
                        assert!(window.first_scored > window.start);
                        let seen = window.first_scored - window.start;
                        assert!(number == 0 || seen > context - stride, "a target sees {seen} tokens only");
                    }
                }
            }
        }
    }

    #[test]
    fn scores_do_not_depend_on_the_batch_size() {
        let ids: Vec<u32> = (0..101).map(|n| n * n % 31).collect();
        // A causal stand-in for a model: what it says of a target depends on the inputs before it in the row, and on nothing else.
        let score = |inputs: &[i32], target: i32| {
            inputs.iter().fold(f64::from(target), |score, &input| (1.3 * score + f64::from(input)).rem_euclid(17.0))
        };
        let scores = |batch: usize| {
            let mut scores = vec![None; ids.len()];
            for windows in evaluation_windows(ids.len(), 8, 3).chunks(batch) {
                let inputs = pad(&windows.iter().map(|window| window.inputs(&ids).to_vec()).collect::<Vec<_>>(), 0);
                let targets = pad(&windows.iter().map(|window| window.targets(&ids).to_vec()).collect::<Vec<_>>(), 0);
                for (row, window) in windows.iter().enumerate() {
                    let start = row * inputs.width;
                    for column in window.unscored()..inputs.lengths[row] {
                        let position = window.start + 1 + column;
                        assert_eq!(targets.ids[start + column] as u32, ids[position]);
                        let earlier = scores[position].replace(score(&inputs.ids[start..=start + column], targets.ids[start + column]));
                        assert!(earlier.is_none(), "position {position} is scored twice");
                    }
                }
            }
            scores
        };
        let alone = scores(1);
        assert!(alone[1..].iter().all(Option::is_some));
        for batch in [2, 7, 100] {
            assert_eq!(scores(batch), alone);
        }
    }
}
