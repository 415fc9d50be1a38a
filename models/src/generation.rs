//! Step-by-step generation: greedy, beam search, or sampling.
//!
//! ```
//! # use burn::tensor::Device;
//! # use heedful_models::prelude::*;
//! # let model = LanguageModelConfig::new(11).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16).build(&Device::flex())?;
//! let config = GenerationConfig::new(20).with_sampling(Sampling { top_p: 0.9, ..Default::default() }).with_end(2);
//! let found = model.generate(&[vec![3, 5, 7], vec![4]], &config);
//! println!("{:?} with probability {}", found[0].tokens, found[0].log_probability.exp());
//! # assert_eq!(found.len(), 2);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! All methods use [`StepDecoder`], which returns next-token logits and can reorder its rows. Scores are computed on the host in double precision. Ties are
//! broken by the lower token id, so results do not depend on evaluation order. Finished rows leave the batch.
//!
//! A model's `generate` runs without gradients. Call the functions here with a model without gradients (`model.valid()`): on an autodiff device every step
//! would grow the graph.

mod beam;
mod config;
mod sampling;
mod token_rules;

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use rayon::prelude::*;

pub use beam::{BeamSearch, beam_search, length_penalty};
pub use config::{GenerationConfig, generate};
pub use sampling::{Sampling, greedy, sample};
pub use token_rules::Rules;

/// A decoder that runs step by step.
pub trait StepDecoder {
    /// State carried from step to step.
    type State: Clone;

    /// Device of the token ids.
    fn device(&self) -> Device;

    /// Number of further tokens that fit into the state.
    fn remaining(&self, state: &Self::State) -> usize;

    /// Reads the next tokens `[B, N]` and returns the logits `[B, V]` of the token after the last one.
    ///
    /// # Panics
    /// If the tokens do not fit into the state.
    fn next_logits(&self, tokens: Tensor<2, Int>, state: &mut Self::State) -> Tensor<2>;

    /// Keeps the given batch rows of a state, in the given order.
    fn select(&self, state: &mut Self::State, rows: &[usize]);
}

/// Special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Padding token, never generated.
    pub padding: u32,
    /// Begin token, never generated.
    pub begin: u32,
    /// End token.
    pub end: u32,
}

/// Start of generation: prompts, and limits of the continuations.
#[derive(Clone, Debug)]
pub struct Prompts {
    /// Undecoded token ids `[B, P]`, at least one per row, left-padded as declared in the state.
    pub tokens: Tensor<2, Int>,
    /// Maximum number of generated tokens per row, including the end token; the decoder's maximal length may reduce it.
    pub limits: Vec<usize>,
}

impl Prompts {
    /// Begin tokens of translations, which may be `extra` tokens longer than their sources (50 in Vaswani et al. 2017).
    pub fn begin(special: SpecialTokens, source_lengths: &[usize], extra: usize, device: &Device) -> Self {
        let limits: Vec<usize> = source_lengths.iter().map(|&length| length + extra).collect();
        Self { tokens: tokens_of(vec![special.begin; limits.len()], 1, device), limits }
    }
}

/// A generated sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// The generated tokens, without prompt and end token.
    pub tokens: Vec<u32>,
    /// Log probability of the tokens, and of the end token if finished.
    pub log_probability: f64,
    /// Ranking score: the log probability, divided by the length penalty in beam search.
    pub score: f64,
    /// Whether the sequence ended by the end token or a stop condition rather than the limit.
    pub finished: bool,
}

/// Left-pads prompts to one batch: token ids `[B, P]` and the padding of each row.
///
/// # Panics
/// If a prompt is empty.
pub fn left_padded(prompts: &[impl AsRef<[u32]>], padding: u32, device: &Device) -> (Tensor<2, Int>, Vec<usize>) {
    let prompts: Vec<&[u32]> = prompts.iter().map(AsRef::as_ref).collect();
    let width = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
    assert!(prompts.iter().all(|prompt| !prompt.is_empty()), "a prompt holds at least one token, for example the begin token");
    let counts: Vec<usize> = prompts.iter().map(|prompt| width - prompt.len()).collect();
    let ids = prompts.iter().zip(&counts).flat_map(|(prompt, &count)| std::iter::repeat_n(padding, count).chain(prompt.iter().copied()));
    (tokens_of(ids.collect(), width, device), counts)
}

/// Row-major token ids as a tensor of the given width.
fn tokens_of(ids: Vec<u32>, width: usize, device: &Device) -> Tensor<2, Int> {
    let rows = ids.len().checked_div(width).unwrap_or(0);
    let ids = ids.into_iter().map(|id| id as i32).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(ids, [rows, width]), device)
}

/// Maximum number of generated tokens if the state has room for `remaining` tokens: the prompt, and all generated tokens except the last.
///
/// # Panics
/// If there is no room for the prompt.
fn room<D: StepDecoder>(decoder: &D, state: &D::State, prompts: &Prompts) -> usize {
    let [rows, length] = prompts.tokens.dims();
    assert_eq!(rows, prompts.limits.len(), "one limit for each of {rows} prompts");
    let remaining = decoder.remaining(state);
    assert!(0 < length && length <= remaining, "prompts of {length} tokens for a decoder with room for {remaining}");
    remaining - length + 1
}

/// Logits on the host, row by row.
struct HostLogits {
    values: Vec<f32>,
    vocabulary: usize,
    /// `ln sum exp` of each row.
    totals: Vec<f64>,
}

impl HostLogits {
    /// Minimum number of exponentials per thread: for fewer, waking a thread takes longer.
    const FEWEST: usize = 4096;

    fn read(logits: Tensor<2>) -> Self {
        let vocabulary = logits.dims()[1];
        let logits = read(logits);
        // 32-bit floats are copied directly, others converted one by one.
        let values = logits.try_to_vec().unwrap_or_else(|_| logits.iter::<f32>().collect());
        Self::new(values, vocabulary)
    }

    fn new(values: Vec<f32>, vocabulary: usize) -> Self {
        let rows = values.par_chunks(vocabulary).with_min_len(Self::FEWEST.div_ceil(vocabulary));
        let totals = rows.map(log_sum_exp).collect();
        Self { values, vocabulary, totals }
    }

    /// `ln p` of a token.
    fn log_probability(&self, row: usize, token: u32) -> f64 {
        let logit = f64::from(self.row(row)[token as usize]);
        // If all logits are minus infinity, the difference would be NaN.
        if logit == f64::NEG_INFINITY { logit } else { logit - self.totals[row] }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.vocabulary..(row + 1) * self.vocabulary]
    }
}

/// `ln sum exp` of logits; minus infinity if all are.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY && !logits.iter().any(|logit| logit.is_nan()) {
        return f64::NEG_INFINITY;
    }
    let sum: f64 = logits.iter().map(|&logit| f64::from((logit - max).exp())).sum();
    f64::from(max) + sum.ln()
}

/// The `count` permitted tokens with the highest logits, best first, ties by id.
///
/// # Panics
/// If no token is permitted, or all logits of permitted tokens are NaN.
fn best_tokens(logits: &[f32], count: usize, rules: &Rules) -> Vec<u32> {
    let mut best: Vec<u32> = Vec::with_capacity(count + 1);
    for (token, &logit) in (0..).zip(logits) {
        let last = best.last().map_or(f32::NEG_INFINITY, |&token| logits[token as usize]);
        if !rules.may_be_generated(token) || logit.is_nan() || (best.len() == count && logit <= last) {
            continue;
        }
        best.insert(best.partition_point(|&other| logits[other as usize] >= logit), token);
        best.truncate(count);
    }
    if best.is_empty() && count > 0 {
        nothing_to_choose(logits, rules);
    }
    best
}

/// Panics with the reason why no token can be chosen.
fn nothing_to_choose(logits: &[f32], rules: &Rules) -> ! {
    let vocabulary = logits.len();
    assert!(
        (0..vocabulary as u32).any(|token| rules.may_be_generated(token)),
        "the rules forbid all {vocabulary} tokens of the vocabulary: allow at least one to be generated"
    );
    panic!("no logit is a number: the model has non-finite weights")
}

#[cfg(test)]
mod tests {
    use super::sampling::best_tokens_sorted;
    use super::*;

    const SPECIAL: SpecialTokens = SpecialTokens { padding: 0, begin: 1, end: 2 };

    #[test]
    fn the_best_tokens_are_ordered_by_logit_and_then_by_id() {
        let logits = [9.0, 8.0, 1.0, 3.0, 2.0, 3.0, f32::NAN];
        assert_eq!(best_tokens(&logits, 3, &SPECIAL.into()), [3, 5, 4]);
        assert_eq!(best_tokens(&logits, 1, &SPECIAL.into()), [3]);
        assert_eq!(best_tokens(&logits, 99, &SPECIAL.into()), [3, 5, 4, 2]);
    }

    #[test]
    #[should_panic(expected = "non-finite weights")]
    fn logits_that_are_no_numbers_are_reported() {
        best_tokens(&[f32::NAN; 4], 1, &SPECIAL.into());
    }

    #[test]
    fn rules_that_forbid_every_token_are_named() {
        let rules = Rules::default().without(0..4);
        let said = |choose: &dyn Fn()| {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(choose)).unwrap_err();
            panic.downcast_ref::<String>().expect("the message has a number").clone()
        };
        let (few, many) = (said(&|| drop(best_tokens(&[1.0; 4], 1, &rules))), said(&|| drop(best_tokens_sorted(&[1.0; 4], 65, &rules))));
        for message in [few, many] {
            assert!(message.contains("the rules forbid all 4 tokens") && !message.contains("non-finite"), "{message}");
        }
    }

    #[test]
    fn logits_that_are_all_minus_infinity_have_no_probability_and_no_nan() {
        let logits = [f32::NEG_INFINITY; 3];
        assert_eq!(log_sum_exp(&logits), f64::NEG_INFINITY);
        assert!(log_sum_exp(&[f32::NAN, f32::NEG_INFINITY]).is_nan());
        let read = HostLogits::new(logits.to_vec(), 3);
        assert_eq!(read.log_probability(0, 1), f64::NEG_INFINITY);
        assert_eq!(Sampling::default().draw(&logits, &Rules::default(), 0.7), 0);
    }

    #[test]
    fn probabilities_of_each_row_add_up_to_one() {
        let (rows, vocabulary) = (5, 3000);
        let values: Vec<f32> = (0..rows * vocabulary).map(|at| (at as f32 * 0.37).sin() * (at / vocabulary) as f32).collect();
        let read = HostLogits::read(Tensor::from_data(TensorData::new(values.clone(), [rows, vocabulary]), &Device::flex()));
        assert_eq!(read.values, values);
        for row in 0..rows {
            assert_eq!(read.totals[row].to_bits(), log_sum_exp(read.row(row)).to_bits());
            let sum: f64 = (0..vocabulary as u32).map(|token| read.log_probability(row, token).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-5, "row {row}: {sum}");
        }
    }

    #[test]
    fn log_sum_exp_withstands_large_logits() {
        assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2f64.ln())).abs() < 1e-9);
        assert!((log_sum_exp(&[f32::NEG_INFINITY, 0.0])).abs() < 1e-9);
    }

    #[test]
    fn prompts_are_aligned_at_their_end() {
        let (tokens, counts) = left_padded(&[vec![5], vec![6, 7, 8]], 0, &Device::flex());
        assert_eq!(counts, [2, 0]);
        assert_eq!(tokens.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 0, 5, 6, 7, 8]);
    }
}
