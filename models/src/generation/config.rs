//! Generation in one call.

use burn::tensor::{Int, Tensor};
use heedful_attention::prelude::*;

use super::{BeamSearch, Hypothesis, Prompts, Rules, Sampling, SpecialTokens, StepDecoder, beam_search, greedy, sample};

/// Options of [`LanguageModel::generate`](crate::architectures::language_model::LanguageModel::generate) and
/// [`Seq2SeqTransformer::generate`](crate::architectures::seq2seq::Seq2SeqTransformer::generate): greedy by default, or sampling or beam search.
///
/// # Example
/// ```
/// use heedful_models::prelude::*;
///
/// let to_the_full_stop = GenerationConfig::new(50).with_stop(|tokens| tokens.last() == Some(&46));
/// let nucleus = GenerationConfig::new(50).with_sampling(Sampling { top_p: 0.9, ..Default::default() }).with_seed(1);
/// let translation = GenerationConfig::new(50).with_beam(BeamSearch::default()).with_end(2).without([0, 1]);
/// # assert!([to_the_full_stop, nucleus, translation].iter().all(|config| config.validate().is_ok()));
/// ```
#[derive(Clone, Debug)]
pub struct GenerationConfig {
    max_tokens: usize,
    strategy: Strategy,
    rules: Rules,
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Strategy {
    Greedy,
    Sample(Sampling),
    Beam(BeamSearch),
}

impl GenerationConfig {
    /// Greedy generation of at most `max_tokens` tokens, including the end token; the maximal length of the model may reduce it.
    pub fn new(max_tokens: usize) -> Self {
        Self { max_tokens, strategy: Strategy::Greedy, rules: Rules::default(), seed: None }
    }

    /// Samples each token.
    pub fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.strategy = Strategy::Sample(sampling);
        self
    }

    /// Uses beam search.
    pub fn with_beam(mut self, beam: BeamSearch) -> Self {
        self.strategy = Strategy::Beam(beam);
        self
    }

    /// Sets the end token (default: none).
    pub fn with_end(mut self, token: u32) -> Self {
        self.rules = self.rules.with_end(token);
        self
    }

    /// Sets a stop condition (default: none). It is evaluated after each token on all generated tokens of the row, which the result keeps.
    pub fn with_stop(mut self, stop: impl Fn(&[u32]) -> bool + Send + Sync + 'static) -> Self {
        self.rules = self.rules.with_stop(stop);
        self
    }

    /// Adds tokens that are never generated (default: none).
    pub fn without(mut self, tokens: impl IntoIterator<Item = u32>) -> Self {
        self.rules = self.rules.without(tokens);
        self
    }

    /// Sets the end token and excludes padding and begin tokens.
    pub fn with_special(self, special: SpecialTokens) -> Self {
        self.with_end(special.end).without([special.padding, special.begin])
    }

    /// Sets the seed of sampling (default: drawn from the device's generator). The numbers of row `b` do not depend on other rows.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    /// If the number of tokens is 0, or an option of sampling or beam search is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Check::of("generation").at_least_one("max_tokens", self.max_tokens)?;
        match &self.strategy {
            Strategy::Greedy => Ok(()),
            Strategy::Sample(sampling) => sampling.validate(),
            Strategy::Beam(beam) => beam.validate(),
        }
    }
}

/// Continues prompts `[B, P]`, left-padded as declared in the state, and returns the best hypothesis per row.
///
/// # Panics
/// If the options are not valid, the prompts do not fit the decoder, or all logits are NaN.
pub fn generate<D: StepDecoder>(decoder: &D, state: D::State, prompts: Tensor<2, Int>, config: &GenerationConfig) -> Vec<Hypothesis> {
    if let Err(error) = config.validate() {
        panic!("{error}");
    }
    let GenerationConfig { max_tokens, strategy, rules, seed } = config;
    let rows = prompts.dims()[0];
    let prompts = Prompts { tokens: prompts, limits: vec![*max_tokens; rows] };
    match strategy {
        Strategy::Greedy => greedy(decoder, state, prompts, rules.clone()),
        Strategy::Sample(sampling) => {
            let key = seed.map_or_else(|| heedful_attention::contract::random::drawn_key(&decoder.device()), RandomKey::from_seed);
            let keys: Vec<RandomKey> = (0..rows as u64).map(|row| key.numbered(row)).collect();
            sample(decoder, state, prompts, rules.clone(), sampling, &keys)
        }
        Strategy::Beam(beam) => {
            let found = beam_search(decoder, state, prompts, rules.clone(), beam);
            found.into_iter().map(|hypotheses| hypotheses.into_iter().next().expect("there is one at least")).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::architectures::seq2seq::{Padded, Seq2SeqConfig};
    use crate::generation::left_padded;

    const SPECIAL: SpecialTokens = SpecialTokens { padding: 0, begin: 1, end: 2 };

    fn model(seed: u64, device: &Device) -> LanguageModel {
        let config = LanguageModelConfig::new(9).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16).with_max_length(16);
        config.with_seed(seed).build(device).unwrap()
    }

    fn texts(hypotheses: &[Hypothesis]) -> Vec<Vec<u32>> {
        hypotheses.iter().map(|hypothesis| hypothesis.tokens.clone()).collect()
    }

    #[test]
    fn a_model_continues_prompts_as_the_functions_do() {
        let prompts: [&[u32]; 3] = [&[1], &[1, 4, 5], &[1, 7]];
        for seed in 0..5 {
            let model = model(seed, &Device::flex());
            let (tokens, padding) = left_padded(&prompts, 0, &Device::flex());
            let asked = Prompts { tokens, limits: vec![8; 3] };
            let config = GenerationConfig::new(8).with_special(SPECIAL);
            let start = || model.start(3, &padding);
            assert_eq!(model.generate(&prompts, &config), greedy(&model, start(), asked.clone(), SPECIAL));
            let options = BeamSearch { beam: 3, length_penalty: 0.6 };
            let best = beam_search(&model, start(), asked.clone(), SPECIAL, &options).into_iter().map(|found| found[0].clone());
            assert_eq!(model.generate(&prompts, &config.clone().with_beam(options)), best.collect::<Vec<_>>());
            let keys: Vec<_> = (0..3).map(|row| RandomKey::from_seed(7).numbered(row)).collect();
            let drawn = sample(&model, start(), asked, SPECIAL, &Sampling::default(), &keys);
            assert_eq!(model.generate(&prompts, &config.clone().with_sampling(Sampling::default()).with_seed(7)), drawn);
            let trained = self::model(seed, &Device::flex().autodiff());
            assert_eq!(texts(&trained.generate(&prompts, &config)), texts(&model.generate(&prompts, &config)), "no gradients, no dropout");
        }
        assert_eq!(model(1, &Device::flex()).generate::<[u32; 1]>(&[], &GenerationConfig::new(8)), []);
    }

    #[test]
    fn without_special_tokens_every_token_is_generated_up_to_the_limit() {
        let model = model(1, &Device::flex());
        let config = GenerationConfig::new(10).with_sampling(Sampling { temperature: 100.0, ..Sampling::default() });
        let found = (0..20).flat_map(|seed| model.generate(&[[3, 4]], &config.clone().with_seed(seed))).collect::<Vec<_>>();
        assert!(found.iter().all(|hypothesis| hypothesis.tokens.len() == 10 && !hypothesis.finished));
        assert!((0..9).all(|token| found.iter().any(|hypothesis| hypothesis.tokens.contains(&token))));
        assert_ne!(found[0].tokens, found[1].tokens);
    }

    #[test]
    fn a_condition_ends_a_row_and_what_met_it_stays() {
        for strategy in [Strategy::Greedy, Strategy::Sample(Sampling::default()), Strategy::Beam(BeamSearch::default())] {
            let model = model(2, &Device::flex());
            let config = GenerationConfig { strategy, ..GenerationConfig::new(9).with_seed(3) };
            let stopped = model.generate(&[[3], [4]], &config.clone().with_stop(|tokens| tokens.len() == 4));
            assert!(stopped.iter().all(|hypothesis| hypothesis.finished && hypothesis.tokens.len() == 4), "{strategy:?}: {stopped:?}");
            let free = model.generate(&[[3], [4]], &config);
            assert!(free.iter().all(|hypothesis| !hypothesis.finished && hypothesis.tokens.len() == 9), "{strategy:?}: {free:?}");
        }
    }

    #[test]
    fn a_translation_begins_with_its_token() {
        let config = Seq2SeqConfig::new(9, 9).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16).with_max_length(16);
        let model = config.with_seed(3).build(&Device::flex()).unwrap();
        let source = Tensor::<2, Int>::from_data([[5, 7, 3], [8, 4, 0]], &Device::flex());
        let state = model.start(Padded { tokens: source.clone(), lengths: &[3, 2] });
        let prompts = Prompts::begin(SPECIAL, &[3, 2], 5, &Device::flex());
        let expected = greedy(&model, state, Prompts { limits: vec![6; 2], ..prompts }, SPECIAL);
        let found = model.generate(source, &Mask::padding(&[3, 2], 3), SPECIAL.begin, &GenerationConfig::new(6).with_special(SPECIAL));
        assert_eq!(found, expected);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let error = |config: GenerationConfig| config.validate().unwrap_err().to_string();
        assert!(error(GenerationConfig::new(0)).contains("max_tokens"));
        assert!(error(GenerationConfig::new(1).with_beam(BeamSearch { beam: 0, length_penalty: 0.0 })).contains("beam"));
        assert!(error(GenerationConfig::new(1).with_sampling(Sampling { top_p: 0.0, ..Sampling::default() })).contains("top_p"));
    }
}
