//! Generation of one sequence per row: greedy, or sampled.

use heedful_attention::prelude::*;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::{HostLogits, Hypothesis, Prompts, Rules, StepDecoder, best_tokens, nothing_to_choose, room, tokens_of};

/// Sampling options. Logits are divided by the temperature, then restricted to the `top_k` best tokens, then to the smallest set of best tokens with at least
/// `top_p` of the remaining probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Temperature, the divisor of logits, greater than 0 (default 1).
    pub temperature: f64,
    /// Number of candidate tokens, at least 1 (default: all).
    pub top_k: Option<usize>,
    /// Probability mass of the candidates (nucleus sampling, Holtzman et al. 2020), in `(0, 1]` (default 1).
    pub top_p: f64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0 }
    }
}

impl Sampling {
    /// Checks the options.
    ///
    /// # Errors
    /// If an option is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("sampling");
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            let remedy = "give a number greater than 0, or decode greedily";
            return Err(check.refuse("temperature", self.temperature, remedy));
        }
        if self.top_k == Some(0) {
            return Err(check.refuse("top_k", 0, "give a number of at least 1, or leave it out"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(check.refuse("top_p", self.top_p, "give a number greater than 0 and at most 1"));
        }
        Ok(())
    }

    /// Samples a token by a uniform number in `[0, 1)`.
    pub(super) fn draw(&self, logits: &[f32], rules: &Rules, uniform: f64) -> u32 {
        let tokens = best_tokens_sorted(logits, self.top_k.unwrap_or(logits.len()), rules);
        let best = f64::from(logits[tokens[0] as usize]);
        if best == f64::NEG_INFINITY {
            // No token has positive probability: the first one, as in greedy decoding.
            return tokens[0];
        }
        let mut cumulated = 0.0;
        let masses: Vec<f64> = tokens
            .iter()
            .map(|&token| {
                cumulated += ((f64::from(logits[token as usize]) - best) / self.temperature).exp();
                cumulated
            })
            .collect();
        let nucleus = masses.partition_point(|&mass| mass < self.top_p * cumulated).min(tokens.len() - 1);
        let point = uniform * masses[nucleus];
        tokens[masses[..nucleus].partition_point(|&mass| mass <= point)]
    }
}

/// As [`best_tokens`], which is fast only for few tokens.
pub(super) fn best_tokens_sorted(logits: &[f32], count: usize, rules: &Rules) -> Vec<u32> {
    if count <= 64 {
        return best_tokens(logits, count, rules);
    }
    let finite = |&token: &u32| rules.may_be_generated(token) && !logits[token as usize].is_nan();
    let mut tokens: Vec<u32> = (0..logits.len() as u32).filter(finite).collect();
    if tokens.is_empty() {
        nothing_to_choose(logits, rules);
    }
    tokens.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    tokens.truncate(count);
    tokens
}

/// Generates the most probable token at each step.
///
/// # Panics
/// If the prompts do not fit the decoder, or all logits are NaN.
pub fn greedy<D: StepDecoder>(decoder: &D, state: D::State, prompts: Prompts, rules: impl Into<Rules>) -> Vec<Hypothesis> {
    let rules = rules.into();
    decode(decoder, state, prompts, &rules, |_, _, logits| best_tokens(logits, 1, &rules)[0])
}

/// Samples a token at each step. Row `b` draws only from `keys[b]`, so a sample does not depend on the other rows of its batch.
///
/// # Panics
/// If the options are not valid, the prompts do not fit the decoder, the number of keys differs from the number of rows, or all logits are NaN.
pub fn sample<D: StepDecoder>(
    decoder: &D,
    state: D::State,
    prompts: Prompts,
    rules: impl Into<Rules>,
    sampling: &Sampling,
    keys: &[RandomKey],
) -> Vec<Hypothesis> {
    if let Err(error) = sampling.validate() {
        panic!("{error}");
    }
    assert_eq!(keys.len(), prompts.limits.len(), "one key for each prompt");
    let rules = rules.into();
    decode(decoder, state, prompts, &rules, |row, step, logits| {
        sampling.draw(logits, &rules, keys[row].numbered(step as u64).rng().random())
    })
}

fn decode<D: StepDecoder>(
    decoder: &D,
    mut state: D::State,
    prompts: Prompts,
    rules: &Rules,
    mut choose: impl FnMut(usize, usize, &[f32]) -> u32,
) -> Vec<Hypothesis> {
    let room = room(decoder, &state, &prompts);
    let device = decoder.device();
    let empty = Hypothesis { tokens: Vec::new(), log_probability: 0.0, score: 0.0, finished: false };
    let mut hypotheses = vec![empty; prompts.limits.len()];
    // Hypothesis of each row of the state.
    let mut active: Vec<usize> = (0..hypotheses.len()).collect();
    let mut tokens = prompts.tokens;
    for step in 0.. {
        let under_way = |hypothesis: &Hypothesis, limit: usize| !hypothesis.finished && step < limit.min(room);
        let rows: Vec<usize> = (0..active.len()).filter(|&row| under_way(&hypotheses[active[row]], prompts.limits[active[row]])).collect();
        if rows.is_empty() {
            break;
        }
        if rows.len() < active.len() {
            decoder.select(&mut state, &rows);
            tokens = tokens.select(0, row_indices(&rows, &device));
            active = rows.iter().map(|&row| active[row]).collect();
        }
        let logits = HostLogits::read(decoder.next_logits(tokens, &mut state));
        let mut chosen = Vec::with_capacity(active.len());
        for (row, &index) in active.iter().enumerate() {
            let hypothesis = &mut hypotheses[index];
            let token = choose(index, step, logits.row(row));
            hypothesis.log_probability += logits.log_probability(row, token);
            hypothesis.score = hypothesis.log_probability;
            if rules.is_end(token) {
                hypothesis.finished = true;
            } else {
                hypothesis.tokens.push(token);
                hypothesis.finished = rules.stop_after(&hypothesis.tokens);
            }
            chosen.push(token);
        }
        tokens = tokens_of(chosen, 1, &device);
    }
    hypotheses
}

fn row_indices(rows: &[usize], device: &burn::tensor::Device) -> burn::tensor::Tensor<1, burn::tensor::Int> {
    tokens_of(rows.iter().map(|&row| row as u32).collect(), rows.len(), device).reshape([rows.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::block::BlockConfig;
    use crate::generation::{SpecialTokens, left_padded};

    fn model(seed: u64) -> LanguageModel {
        let config = LanguageModelConfig {
            vocabulary: 9,
            layers: 1,
            block: BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..Default::default() },
            ..Default::default()
        };
        config.init(&RandomKey::from_seed(seed), &Device::flex())
    }

    fn sampled(model: &LanguageModel, prompts: &[Vec<u32>], sampling: &Sampling, keys: &[RandomKey]) -> Vec<Hypothesis> {
        let (tokens, padding) = left_padded(prompts, 0, &Device::flex());
        let prompts = Prompts { tokens, limits: vec![8; prompts.len()] };
        sample(model, model.start(keys.len(), &padding), prompts, SPECIAL, sampling, keys)
    }

    fn texts(hypotheses: &[Hypothesis]) -> Vec<Vec<u32>> {
        hypotheses.iter().map(|hypothesis| hypothesis.tokens.clone()).collect()
    }

    #[test]
    fn sampling_from_the_best_token_only_is_greedy_decoding() {
        let prompts = [vec![1], vec![1, 4, 5], vec![1, 7]];
        let keys = [1, 2, 3].map(RandomKey::from_seed);
        for seed in 0..5 {
            let model = model(seed);
            let (tokens, padding) = left_padded(&prompts, 0, &Device::flex());
            let best = greedy(&model, model.start(3, &padding), Prompts { tokens, limits: vec![8; 3] }, SPECIAL);
            for sampling in [Sampling { top_k: Some(1), ..Sampling::default() }, Sampling { top_p: 1e-9, ..Sampling::default() }] {
                assert_eq!(sampled(&model, &prompts, &sampling, &keys), best, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_sample_depends_on_its_key_and_not_on_its_batch() {
        let model = model(1);
        let prompts = [vec![1], vec![1, 4, 5], vec![1, 7]];
        let keys = [1, 2, 3].map(RandomKey::from_seed);
        let together = sampled(&model, &prompts, &Sampling::default(), &keys);
        for row in 0..3 {
            let alone = sampled(&model, &prompts[row..=row], &Sampling::default(), &keys[row..=row]);
            assert_eq!(texts(&alone)[0], together[row].tokens);
        }
        let others = [4, 5, 6].map(RandomKey::from_seed);
        assert_ne!(texts(&together), texts(&sampled(&model, &prompts, &Sampling::default(), &others)));
    }

    #[test]
    fn control_tokens_are_never_generated_and_the_probability_is_that_of_the_tokens() {
        let model = model(2);
        for seed in 0..20 {
            let found = &sampled(&model, &[vec![1]], &Sampling::default(), &[RandomKey::from_seed(seed)])[0];
            assert!(found.tokens.len() <= 8 && found.tokens.iter().all(|&token| token > 2));
            assert!(found.finished || found.tokens.len() == 8);
            assert!(found.log_probability < 0.0 && found.log_probability.is_finite());
        }
    }

    const SPECIAL: SpecialTokens = SpecialTokens { padding: 0, begin: 1, end: 2 };

    /// Counts of tokens sampled for evenly spaced uniform numbers.
    fn drawn(sampling: &Sampling, logits: &[f32]) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for n in 0..10_000 {
            counts[sampling.draw(logits, &SPECIAL.into(), f64::from(n) / 10_000.0) as usize] += 1;
        }
        counts
    }

    /// Probabilities 0.5, 0.3, 0.15 and 0.05 for the tokens 4, 2, 5 and 3; most mass on excluded tokens.
    fn logits() -> Vec<f32> {
        [50.0, 50.0, 0.3, 0.05, 0.5, 0.15].iter().map(|p: &f32| p.ln()).collect()
    }

    #[test]
    fn tokens_are_drawn_with_their_probabilities() {
        let counts = drawn(&Sampling::default(), &logits());
        for (count, expected) in counts.iter().zip([0i32, 0, 3000, 500, 5000, 1500]) {
            assert!((*count as i32 - expected).abs() <= 1, "{counts:?}");
        }
    }

    #[test]
    fn top_k_keeps_the_best_tokens() {
        let counts = drawn(&Sampling { top_k: Some(2), ..Sampling::default() }, &logits());
        assert!(counts[4].abs_diff(6250) <= 1 && counts[2].abs_diff(3750) <= 1, "{counts:?}");
    }

    #[test]
    fn top_p_keeps_the_smallest_set_that_holds_the_share() {
        let kept = |top_p| drawn(&Sampling { top_p, ..Sampling::default() }, &logits()).iter().filter(|&&n| n > 0).count();
        assert_eq!([0.01, 0.45, 0.55, 0.75, 0.85, 0.96, 1.0].map(kept), [1, 1, 2, 2, 3, 4, 4]);
    }

    #[test]
    fn a_low_temperature_sharpens_and_a_high_one_flattens() {
        let share = |temperature| drawn(&Sampling { temperature, ..Sampling::default() }, &logits())[4];
        assert!(share(0.1) > 9900 && share(100.0) < 2600);
    }

    #[test]
    fn long_and_short_rankings_agree() {
        let logits: Vec<f32> = (0..500).map(|n| ((n * 37) % 101) as f32).collect();
        assert_eq!(best_tokens_sorted(&logits, 64, &SPECIAL.into()), best_tokens_sorted(&logits, 65, &SPECIAL.into())[..64]);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let error = |sampling: Sampling| sampling.validate().unwrap_err().to_string();
        assert!(error(Sampling { temperature: 0.0, ..Sampling::default() }).contains("temperature"));
        assert!(error(Sampling { top_k: Some(0), ..Sampling::default() }).contains("top_k"));
        assert!(error(Sampling { top_p: f64::NAN, ..Sampling::default() }).contains("top_p"));
        assert!(Sampling { top_k: Some(1), top_p: 0.5, temperature: 2.0 }.validate().is_ok());
    }
}
