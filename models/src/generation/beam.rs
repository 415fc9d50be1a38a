//! Beam search.
//!
//! Each sentence has up to `beam` live hypotheses; at each step all their continuations are ranked by probability. Ended ones among the first `beam` are
//! finished; the first `beam` that have not ended stay live. The search ends when `beam` hypotheses are finished, no live one can beat the best finished one,
//! or the limit is reached. A beam of 1 equals greedy decoding.

use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::{HostLogits, Hypothesis, Prompts, Rules, StepDecoder, best_tokens, room, tokens_of};

/// Options of beam search. The defaults are those of Vaswani et al. 2017.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BeamSearch {
    /// Number of live hypotheses per sentence (default 4).
    pub beam: usize,
    /// Exponent α of the [`length_penalty`], at least 0 (default 0.6).
    pub length_penalty: f64,
}

impl Default for BeamSearch {
    fn default() -> Self {
        Self { beam: 4, length_penalty: 0.6 }
    }
}

impl BeamSearch {
    /// Checks the options.
    ///
    /// # Errors
    /// If an option is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("beam search");
        check.at_least_one("beam", self.beam)?;
        if !(self.length_penalty.is_finite() && self.length_penalty >= 0.0) {
            return Err(check.refuse("length_penalty", self.length_penalty, "give a number of at least 0"));
        }
        Ok(())
    }
}

/// `((5 + length) / 6)^α` (Wu et al. 2016, section 7), the divisor of log probabilities. `length` counts the end token.
pub fn length_penalty(length: usize, exponent: f64) -> f64 {
    ((5 + length) as f64 / 6.0).powf(exponent)
}

/// Returns the hypotheses with the highest scores for each prompt, best first: at least one, at most `beam`.
///
/// Unfinished hypotheses are returned only if none is finished at the limit.
///
/// # Panics
/// If the options are not valid, the prompts do not fit the decoder, or all logits are NaN.
pub fn beam_search<D: StepDecoder>(
    decoder: &D,
    mut state: D::State,
    prompts: Prompts,
    rules: impl Into<Rules>,
    options: &BeamSearch,
) -> Vec<Vec<Hypothesis>> {
    let rules = rules.into();
    if let Err(error) = options.validate() {
        panic!("{error}");
    }
    let room = room(decoder, &state, &prompts);
    let device = decoder.device();
    let mut sentences: Vec<Sentence> = prompts.limits.iter().map(|&limit| Sentence::new(limit.min(room))).collect();
    let mut tokens = prompts.tokens;
    while sentences.iter().any(|sentence| !sentence.done) {
        let logits = HostLogits::read(decoder.next_logits(tokens, &mut state));
        // Live hypotheses occupy the rows of the state, sentence by sentence.
        let (mut first_row, mut parents, mut last_tokens) = (0, Vec::new(), Vec::new());
        for sentence in &mut sentences {
            let rows = sentence.live.len();
            if !sentence.done {
                sentence.advance(&logits, first_row, &rules, options);
            }
            first_row += rows;
            if sentence.done {
                sentence.live.clear();
            }
            parents.extend(sentence.live.iter().map(|live| live.row));
            last_tokens.extend(sentence.live.iter().filter_map(|live| live.tokens.last()));
        }
        if parents.is_empty() {
            break;
        }
        if !parents.iter().copied().eq(0..first_row) {
            decoder.select(&mut state, &parents);
        }
        tokens = tokens_of(last_tokens, 1, &device);
    }
    sentences.into_iter().map(Sentence::into_hypotheses).collect()
}

/// An unfinished hypothesis.
struct Live {
    tokens: Vec<u32>,
    log_probability: f64,
    /// Row of the state that it continues.
    row: usize,
}

struct Sentence {
    live: Vec<Live>,
    finished: Vec<Hypothesis>,
    limit: usize,
    done: bool,
}

impl Sentence {
    fn new(limit: usize) -> Self {
        let finished =
            if limit > 0 { Vec::new() } else { vec![Hypothesis { tokens: Vec::new(), log_probability: 0.0, score: 0.0, finished: false }] };
        // A sentence with a limit of 0 tokens still has its row in the first step.
        let live = vec![Live { tokens: Vec::new(), log_probability: 0.0, row: 0 }];
        Self { live, finished, limit, done: limit == 0 }
    }

    /// Continues the live hypotheses, whose logits start at `first_row`, by one token.
    fn advance(&mut self, logits: &HostLogits, first_row: usize, rules: &Rules, options: &BeamSearch) {
        let BeamSearch { beam, length_penalty: exponent } = *options;
        // Each live hypothesis has at most one continuation by the end token, so `beam` continuations without it suffice.
        let mut continuations = Vec::with_capacity(self.live.len() * 2 * beam);
        for (index, live) in self.live.iter().enumerate() {
            let row = first_row + index;
            for token in best_tokens(logits.row(row), beam + 1, rules) {
                let log_probability = live.log_probability + f64::from(logits.row(row)[token as usize]) - logits.totals[row];
                if log_probability > f64::NEG_INFINITY {
                    continuations.push((log_probability, index, token));
                }
            }
        }
        continuations.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));

        let mut live = Vec::with_capacity(beam);
        for (rank, (log_probability, index, token)) in continuations.into_iter().enumerate() {
            let tokens = &self.live[index].tokens;
            let is_end = rules.is_end(token);
            let tokens: Vec<u32> = tokens.iter().copied().chain((!is_end).then_some(token)).collect();
            if !is_end && !rules.stop_after(&tokens) {
                live.push(Live { tokens, log_probability, row: first_row + index });
            } else if rank < beam {
                let score = log_probability / length_penalty(tokens.len() + usize::from(is_end), exponent);
                self.finished.push(Hypothesis { tokens, log_probability, score, finished: true });
            }
            if live.len() == beam {
                break;
            }
        }
        self.live = live;
        self.finish(beam, exponent);
    }

    /// Ends the search if continuing cannot improve the result.
    fn finish(&mut self, beam: usize, exponent: f64) {
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        let length = self.live.first().map_or(self.limit, |live| live.tokens.len());
        // Probabilities only decrease, and no penalty exceeds that of the longest hypothesis.
        let hope = self.live.first().map_or(f64::NEG_INFINITY, |live| live.log_probability / length_penalty(self.limit, exponent));
        let unbeatable = self.finished.first().is_some_and(|best| best.score >= hope);
        self.done = self.finished.len() >= beam || length >= self.limit || unbeatable;
        if self.done && self.finished.is_empty() {
            self.finished = self
                .live
                .iter()
                .map(|live| Hypothesis {
                    tokens: live.tokens.clone(),
                    log_probability: live.log_probability,
                    score: live.log_probability / length_penalty(live.tokens.len(), exponent),
                    finished: false,
                })
                .collect();
        }
        self.finished.truncate(beam);
    }

    fn into_hypotheses(self) -> Vec<Hypothesis> {
        self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Int, Tensor};

    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::block::BlockConfig;
    use crate::generation::{SpecialTokens, greedy, left_padded};

    const SPECIAL: SpecialTokens = SpecialTokens { padding: 0, begin: 1, end: 2 };

    fn model(seed: u64) -> LanguageModel {
        let config = LanguageModelConfig {
            vocabulary: 6,
            layers: 1,
            block: BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..Default::default() },
            ..Default::default()
        };
        config.init(&RandomKey::from_seed(seed), &Device::flex())
    }

    fn search(model: &LanguageModel, prompts: &[Vec<u32>], limit: usize, options: &BeamSearch) -> Vec<Vec<Hypothesis>> {
        let (tokens, padding) = left_padded(prompts, 0, &Device::flex());
        let state = model.start(prompts.len(), &padding);
        beam_search(model, state, Prompts { tokens, limits: vec![limit; prompts.len()] }, SPECIAL, options)
    }

    /// `ln p` of the continuation and the end token, by a forward pass.
    fn log_probability(model: &LanguageModel, continuation: &[u32]) -> f64 {
        let ids: Vec<i32> = [1].into_iter().chain(continuation.iter().map(|&token| token as i32)).collect();
        let length = ids.len();
        let tokens = Tensor::<1, Int>::from_data(ids.as_slice(), &Device::flex()).reshape([1, length]);
        let logits = model.forward_with(tokens, &[], None, &mut Probe::off()).logits;
        let logits = HostLogits::read(logits.reshape([length, 6]));
        let targets = continuation.iter().copied().chain([SPECIAL.end]);
        targets.enumerate().map(|(row, token)| logits.log_probability(row, token)).sum()
    }

    /// All permitted continuations of up to `length` tokens.
    fn continuations(length: usize) -> Vec<Vec<u32>> {
        let mut all = vec![vec![]];
        let mut longest = vec![vec![]];
        for _ in 0..length {
            longest = longest.iter().flat_map(|start: &Vec<u32>| [3, 4, 5].map(|token| [start.as_slice(), &[token]].concat())).collect();
            all.extend(longest.clone());
        }
        all
    }

    #[test]
    fn a_beam_that_holds_everything_finds_the_best_sequence() {
        for seed in 0..6 {
            let model = model(seed);
            for exponent in [0.0, 0.6, 2.0] {
                let options = BeamSearch { beam: 4usize.pow(4), length_penalty: exponent };
                let found = &search(&model, &[vec![1]], 4, &options)[0][0];
                let score = |tokens: &Vec<u32>| log_probability(&model, tokens) / length_penalty(tokens.len() + 1, exponent);
                let best = continuations(3).into_iter().max_by(|a, b| score(a).total_cmp(&score(b))).unwrap();
                assert!(found.finished);
                assert_eq!(found.tokens, best, "seed {seed}, exponent {exponent}");
                assert!((found.score - score(&best)).abs() < 1e-5);
                assert!((found.log_probability - log_probability(&model, &best)).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn a_beam_of_one_is_greedy_decoding() {
        let prompts: Vec<Vec<u32>> = vec![vec![1], vec![1, 3, 5], vec![1, 4]];
        for seed in 0..10 {
            let model = model(seed);
            let (tokens, padding) = left_padded(&prompts, 0, &Device::flex());
            let greedy = greedy(&model, model.start(3, &padding), Prompts { tokens, limits: vec![8; 3] }, SPECIAL);
            let beams = search(&model, &prompts, 8, &BeamSearch { beam: 1, length_penalty: 0.6 });
            for (greedy, beam) in greedy.iter().zip(&beams) {
                assert_eq!((&greedy.tokens, greedy.finished), (&beam[0].tokens, beam[0].finished), "seed {seed}");
                assert!((greedy.log_probability - beam[0].log_probability).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn a_sentence_is_searched_alike_alone_and_in_a_batch() {
        let prompts: Vec<Vec<u32>> = vec![vec![1], vec![1, 3, 5, 5], vec![1, 4]];
        for seed in 0..5 {
            let model = model(seed);
            let together = search(&model, &prompts, 6, &BeamSearch::default());
            for (prompt, found) in prompts.iter().zip(&together) {
                let alone = &search(&model, std::slice::from_ref(prompt), 6, &BeamSearch::default())[0];
                let texts = |list: &[Hypothesis]| list.iter().map(|h| h.tokens.clone()).collect::<Vec<_>>();
                assert_eq!(texts(found), texts(alone), "seed {seed}");
            }
        }
    }

    #[test]
    fn hypotheses_are_ordered_and_hold_no_control_tokens() {
        for seed in 0..5 {
            for found in search(&model(seed), &[vec![1], vec![1, 5]], 5, &BeamSearch::default()) {
                assert!((1..=4).contains(&found.len()));
                assert!(found.is_sorted_by(|a, b| a.score >= b.score));
                assert!(found.iter().all(|h| h.tokens.len() <= 5 && h.tokens.iter().all(|&token| token > 2)));
                assert!(found.iter().all(|h| h.finished) || found.iter().all(|h| !h.finished && h.tokens.len() == 5));
            }
        }
    }

    #[test]
    fn only_the_first_of_all_continuations_may_finish() {
        let live = |tokens: Vec<u32>, probability: f64, row| Live { tokens, log_probability: probability.ln(), row };
        let mut sentence = Sentence::new(9);
        sentence.live = vec![live(vec![3], 0.6, 0), live(vec![4], 0.4, 1)];
        // Joint probabilities: 3-end 0.30, 3-3 0.24, 4-end 0.22, 4-4 0.18, 3-4 0.06.
        let rows = [[0.0, 0.0, 0.5, 0.4, 0.1], [0.0, 0.0, 0.55, 0.0, 0.45]];
        let logits = HostLogits::new(rows.concat().iter().map(|p: &f32| p.ln()).collect(), 5);
        sentence.advance(&logits, 0, &SPECIAL.into(), &BeamSearch { beam: 2, length_penalty: 1.0 });
        let finished: Vec<_> = sentence.finished.iter().map(|hypothesis| hypothesis.tokens.clone()).collect();
        let live: Vec<_> = sentence.live.iter().map(|live| (live.tokens.clone(), live.row)).collect();
        assert_eq!(finished, [vec![3]], "the end of the second comes third, behind a beam of 2");
        assert_eq!(live, [(vec![3, 3], 0), (vec![4, 4], 1)]);
        assert!(!sentence.done, "0.24 can still overtake 0.30 by its length");
    }

    #[test]
    fn a_larger_penalty_favours_longer_sequences() {
        let length = |exponent| -> usize {
            let options = BeamSearch { beam: 64, length_penalty: exponent };
            (0..10).map(|seed| search(&model(seed), &[vec![1]], 6, &options)[0][0].tokens.len()).sum()
        };
        let (without, with) = (length(0.0), length(5.0));
        assert!(without < with, "{without} tokens without a penalty, {with} with one");
    }

    #[test]
    fn limits_hold_for_each_sentence_and_the_decoder_is_not_overrun() {
        let model = model(3);
        let (tokens, padding) = left_padded(&[vec![1, 3], vec![1, 3], vec![1, 3]], 0, &Device::flex());
        let prompts = Prompts { tokens, limits: vec![0, 2, 1000] };
        let greedy = greedy(&model, model.start(3, &padding), prompts.clone(), SPECIAL);
        let beams = beam_search(&model, model.start(3, &padding), prompts, SPECIAL, &BeamSearch { beam: 3, length_penalty: 0.0 });
        let longest = |list: &[Hypothesis]| list.iter().map(|h| h.tokens.len()).max().unwrap();
        assert!(greedy[0].tokens.is_empty() && !greedy[0].finished && longest(&beams[0]) == 0 && beams[0].len() == 1);
        assert!(greedy[1].tokens.len() <= 2 && longest(&beams[1]) <= 2);
        assert!(greedy[2].tokens.len() <= 15 && longest(&beams[2]) <= 15);
    }

    #[test]
    fn the_length_penalty_is_that_of_the_formula() {
        assert_eq!(length_penalty(1, 0.6), 1.0);
        assert_eq!(length_penalty(7, 1.0), 2.0);
        assert!((length_penalty(20, 0.6) - (25.0f64 / 6.0).powf(0.6)).abs() < 1e-12);
        assert_eq!(length_penalty(99, 0.0), 1.0);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let error = |options: BeamSearch| options.validate().unwrap_err().to_string();
        assert!(error(BeamSearch { beam: 0, ..BeamSearch::default() }).contains("`beam` is 0"));
        assert!(error(BeamSearch { length_penalty: -1.0, ..BeamSearch::default() }).contains("length_penalty"));
        assert!(error(BeamSearch { length_penalty: f64::NAN, ..BeamSearch::default() }).contains("length_penalty"));
    }
}
