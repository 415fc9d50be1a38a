//! Training an encoder-decoder on pairs of texts, and generating the second from the first.

pub(crate) mod models;
pub(crate) mod pretrained;

use std::fmt;

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::contract::Losses;
use heedful_data::parallel::Pair;
use heedful_data::tokenise::{BEGIN, END, PAD, Tokeniser};
use heedful_metrics::{LikelihoodTotal, TextUnit};
use heedful_models::architectures::seq2seq::{Padded, Seq2SeqTransformer};
use heedful_models::generation::{BeamSearch, Prompts, SpecialTokens, beam_search};
use heedful_models::parts::loss::{CrossEntropy, real_states};
use serde::{Deserialize, Serialize};

use crate::tasks::prelude::*;
use crate::tasks::scoring::score_batches;
use crate::tasks::token_losses::token_losses;
use crate::train::batch::{PaddedBatch, at_least_in_a_batch, pad, sequential_batches, token_budget_batches};

/// Live hypotheses of a sentence, at most.
const MOST_HYPOTHESES: usize = 1000;

/// Tokens and text around sources and targets.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Tokens of padding, and before and after targets.
    pub special: SpecialTokens,
    /// Text before each source.
    pub prefix: String,
    /// Whether sources end with the token that targets end with.
    pub ends_sources: bool,
}

/// The frame of tokenisers that are trained here.
pub static OWN_FRAME: Frame =
    Frame { special: SpecialTokens { padding: PAD, begin: BEGIN, end: END }, prefix: String::new(), ends_sources: false };

impl Frame {
    /// The tokens of a source; none of an empty one.
    ///
    /// # Errors
    /// If a tokeniser that was not trained here has no token for a part of it.
    pub fn source(&self, tokeniser: &Tokeniser, text: &str) -> Result<Vec<u32>, ExperimentError> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let mut tokens = tokeniser.try_encode(&format!("{}{text}", self.prefix)).map_err(ExperimentError::usage)?;
        tokens.extend(self.ends_sources.then_some(self.special.end));
        Ok(tokens)
    }

    /// Source and target.
    ///
    /// # Errors
    /// As those of [`source`](Self::source).
    pub fn pair(&self, tokeniser: &Tokeniser, [source, target]: [&str; 2]) -> Result<TokenPair, ExperimentError> {
        let target = tokeniser.try_encode(target).map_err(ExperimentError::usage)?;
        Ok(TokenPair { source: self.source(tokeniser, source)?, target })
    }
}

/// A tokenised pair: source, and target without begin and end.
#[derive(Clone, Debug)]
pub struct TokenPair {
    /// What is given.
    pub source: Vec<u32>,
    /// What is to be generated.
    pub target: Vec<u32>,
}

impl TokenPair {
    /// Whether both sides have tokens, and fewer than `most`.
    fn is_within(&self, most: usize) -> bool {
        [&self.source, &self.target].iter().all(|tokens| (1..most).contains(&tokens.len()))
    }
}

/// Lengths of pairs, whose targets have a begin or an end beside their tokens.
pub(crate) fn lengths(pairs: &[TokenPair], max_length: usize, attention: &Attention) -> TrainingLengths {
    let lengths = TrainingLengths::new(&attention.layout, max_length).encoder(pairs.iter().map(|pair| pair.source.len()));
    lengths.decoder(pairs.iter().map(|pair| pair.target.len() + 1))
}

/// Tokens that the largest batch within a budget has at least.
pub(crate) fn batch_tokens(pairs: &[TokenPair], budget: usize) -> usize {
    at_least_in_a_batch(pairs.iter().map(|pair| pair.source.len().min(pair.target.len())), budget)
}

/// Some pairs of the test sets that have fewer tokens than `most`, at most `count`, each with a tab between its sides.
pub(crate) fn texts(tests: &[(String, Vec<Pair>)], frame: &Frame, tokeniser: &Tokeniser, most: usize, count: usize) -> Vec<String> {
    let fits = |pair: &&Pair| frame.pair(tokeniser, [&pair.source, &pair.target]).is_ok_and(|pair| pair.is_within(most));
    let pairs = tests.iter().flat_map(|(_, pairs)| pairs);
    pairs.filter(fits).take(count).map(|pair| format!("{}\t{}", pair.source, pair.target)).collect()
}

/// Takes a pair with the losses of its target tokens.
pub(crate) type AddPair<'a> = dyn FnMut(&TokenPair, &[f64]) + 'a;

/// The search for targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Decoding {
    /// Live hypotheses per sentence; 1 is greedy search.
    pub beam: usize,
    /// Exponent of the length penalty `((5 + length) / 6)^α`.
    pub length_penalty: f64,
    /// Tokens by which a target may be longer than its source.
    pub extra_length: usize,
    /// Source tokens in a batch of sentences.
    pub batch_tokens: usize,
}

impl Default for Decoding {
    fn default() -> Self {
        let BeamSearch { beam, length_penalty } = BeamSearch::default();
        Self { beam, length_penalty, extra_length: 50, batch_tokens: 2000 }
    }
}

impl fmt::Display for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { beam, length_penalty, extra_length, .. } = self;
        write!(f, "beam {beam}, length penalty {length_penalty} (Wu et al. 2016), at most {extra_length} tokens longer than the source")
    }
}

/// Adds a score of the test set of this number among those of so many: under the name of the set where there are several, and of the first by itself. `of` says
/// of what it is.
pub(crate) fn push_of_set(
    scores: &mut Scores,
    (number, sets, name): (usize, usize, &str),
    (metric, value, signature): (&str, f64, &str),
    of: &str,
    made_of: ItemScore,
) {
    if sets > 1 {
        let metric = format!("{name}/{metric}");
        scores.push(&metric, value, signature.to_owned());
        scores.push_items(&metric, made_of.clone());
    }
    if number == 0 {
        scores.push(metric, value, format!("{signature}, test set {name}, {of}"));
        scores.push_items(metric, made_of);
    }
}

impl Decoding {
    /// Checks the smoothing of labels and the options of the search.
    ///
    /// # Errors
    /// A usage error that names the field.
    pub(crate) fn check<E>(&self, settings: &Settings<Config<E>>, label_smoothing: f64) -> Result<(), ExperimentError> {
        settings.require("label_smoothing", (0.0..1.0).contains(&label_smoothing), "it must be at least 0 and less than 1")?;
        self.search().validate().map_err(|error| settings.refuse("decoding", error))?;
        Ok(settings.require(
            "decoding.beam",
            self.beam <= MOST_HYPOTHESES,
            format!("a search keeps at most {MOST_HYPOTHESES} hypotheses; give fewer"),
        )?)
    }

    /// The search.
    pub fn search(&self) -> BeamSearch {
        BeamSearch { beam: self.beam, length_penalty: self.length_penalty }
    }
}

/// Training an encoder-decoder.
#[derive(Debug)]
pub struct TextToTextTask<'a> {
    /// Pairs of the training set.
    pub train: &'a [TokenPair],
    /// Pairs of the validation set.
    pub valid: &'a [TokenPair],
    /// What cut them into tokens.
    pub tokeniser: &'a Tokeniser,
    /// What stands around them.
    pub frame: &'a Frame,
    /// Tokens of the longer side in a batch, padding included.
    pub batch_tokens: usize,
    /// ε of label smoothing.
    pub label_smoothing: f64,
    /// How targets are searched.
    pub decoding: &'a Decoding,
}

/// Padded source, target input (begin token first) and target output (end token last).
#[derive(Debug)]
pub struct TextToTextBatch {
    source: PaddedBatch,
    input: PaddedBatch,
    output: PaddedBatch,
}

/// Row-major ids as a tensor.
fn tensor(batch: &PaddedBatch, device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(TensorData::new(batch.ids.clone(), [batch.rows, batch.width]), device)
}

fn cross_entropy(model: &Seq2SeqTransformer, states: Tensor<2>, targets: Vec<i32>, smoothing: f64) -> CrossEntropy {
    let count = targets.len();
    let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [count]), &states.device());
    model.cross_entropy(states, targets, None, smoothing)
}

impl TextToTextTask<'_> {
    /// Pairs as a batch.
    pub(crate) fn pad<'p>(special: SpecialTokens, pairs: impl Iterator<Item = &'p TokenPair> + Clone) -> TextToTextBatch {
        let SpecialTokens { padding, begin, end } = special;
        let rows = |row: &dyn Fn(&TokenPair) -> Vec<u32>| pad(&pairs.clone().map(row).collect::<Vec<_>>(), padding);
        TextToTextBatch {
            source: rows(&|pair| pair.source.clone()),
            input: rows(&|pair| std::iter::once(begin).chain(pair.target.iter().copied()).collect()),
            output: rows(&|pair| pair.target.iter().copied().chain([end]).collect()),
        }
    }

    /// Hidden states `[N, C]` of the target tokens of a batch, pair by pair and without padding, those tokens `[N]`, and the losses of the layers.
    pub(crate) fn hidden(
        model: &Seq2SeqTransformer,
        batch: &TextToTextBatch,
        key: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Tensor<2>, Vec<i32>, Losses) {
        let device = model.source.tokens.weight.device();
        let padded = |batch| Padded { tokens: tensor(batch, &device), lengths: &batch.lengths };
        let hidden = model.hidden(padded(&batch.source), padded(&batch.input), key, probe);
        let states = real_states(hidden.states, &batch.output.lengths);
        let rows = batch.output.ids.chunks(batch.output.width).zip(&batch.output.lengths);
        let targets = rows.flat_map(|(row, &real)| &row[..real]).copied().collect();
        (states, targets, hidden.losses)
    }

    /// Loss with label smoothing and auxiliary losses, summed over the target tokens.
    pub(crate) fn loss_of(
        model: &Seq2SeqTransformer,
        batch: &TextToTextBatch,
        smoothing: f64,
        key: Option<RandomKey>,
        probe: &mut Probe,
    ) -> TrainingLoss {
        let (states, targets, losses) = Self::hidden(model, batch, key, probe);
        let count = targets.len();
        TrainingLoss::new(cross_entropy(model, states, targets, smoothing).loss, &losses, count)
    }

    /// Perplexity of the validation set, per token of the vocabulary and without label smoothing.
    pub fn perplexity(&self, model: &Seq2SeqTransformer, interrupt: &Interrupt) -> Option<f64> {
        self.perplexity_of_pairs(model, None, interrupt)
    }

    /// [`perplexity`](Self::perplexity), where `add` is given each pair with the losses of its target tokens.
    pub(crate) fn perplexity_of_pairs(
        &self,
        model: &Seq2SeqTransformer,
        mut add: Option<&mut AddPair<'_>>,
        interrupt: &Interrupt,
    ) -> Option<f64> {
        let lengths: Vec<_> = self.valid.iter().map(|pair| (pair.source.len(), pair.target.len() + 1)).collect();
        let mut total = LikelihoodTotal::new(TextUnit::Subword);
        for items in sequential_batches(&lengths, self.decoding.batch_tokens) {
            if interrupt.is_raised() {
                return None;
            }
            let pairs: Vec<&TokenPair> = items.iter().map(|&item| &self.valid[item]).collect();
            let batch = Self::pad(self.frame.special, pairs.iter().copied());
            let (states, targets, _) = Self::hidden(model, &batch, None, &mut Probe::off());
            if let Some(add) = &mut add {
                let losses = token_losses(&states, &targets, |states| model.project(states));
                let mut rest = &losses[..];
                for (pair, &count) in pairs.iter().zip(&batch.output.lengths) {
                    add(pair, rest.split_off(..count).expect("each target token has a loss"));
                }
            }
            let units = targets.len() as u64;
            let nats = cross_entropy(model, states, targets, 0.0).negative_log_likelihood;
            total.record(f64::from(nats.into_scalar::<f32>()), units);
        }
        Some(total.perplexity().unwrap_or(f64::NAN))
    }

    /// Reads a source and, behind a tab, its target; without one, the model generates it.
    ///
    /// # Errors
    /// If a side has no token, or more than `most`.
    pub(crate) fn read(&self, model: &Seq2SeqTransformer, text: &str, most: usize, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        let (source, target) = text.split_once('\t').map_or((text, None), |(source, target)| (source, Some(target)));
        let source = self.frame.source(self.tokeniser, source)?;
        check_length(text, source.len(), most)?;
        let target = match target {
            Some(target) => target.to_owned(),
            None => {
                let found = self.generate(model, std::slice::from_ref(&source), "generating", &Interrupt::new());
                found.expect("it is not interrupted").remove(0)
            }
        };
        let target = self.tokeniser.try_encode(&target).map_err(ExperimentError::usage)?;
        check_length(text, target.len() + 1, most)?;
        let pair = TokenPair { source, target };
        let special = self.frame.special;
        Self::hidden(model, &Self::pad(special, std::iter::once(&pair)), None, probe);
        let decoder: Vec<u32> = std::iter::once(special.begin).chain(pair.target).collect();
        let [encoder, decoder] = [&pair.source, &decoder].map(|tokens| self.tokeniser.words(tokens));
        Ok(Reading { encoder, decoder, ..Reading::default() })
    }

    /// Targets in the order of the sources; `None` if the interrupt was raised meanwhile.
    pub fn generate(
        &self,
        model: &Seq2SeqTransformer,
        tokens: &[Vec<u32>],
        label: &'static str,
        interrupt: &Interrupt,
    ) -> Option<Vec<String>> {
        let mut generated = vec![String::new(); tokens.len()];
        // What comes from nothing is nothing.
        let present: Vec<usize> = (0..tokens.len()).filter(|&index| !tokens[index].is_empty()).collect();
        let lengths: Vec<_> = present.iter().map(|&index| (tokens[index].len(), 0)).collect();
        let Decoding { beam, extra_length, batch_tokens, .. } = *self.decoding;
        let options = self.decoding.search();
        score_batches((label, present.len()), sequential_batches(&lengths, batch_tokens.div_ceil(beam)), interrupt, |items| {
            let rows: Vec<_> = items.iter().map(|&item| tokens[present[item]].clone()).collect();
            let source = pad(&rows, self.frame.special.padding);
            let device = model.source.tokens.weight.device();
            let state = model.start(Padded { tokens: tensor(&source, &device), lengths: &source.lengths });
            let special = self.frame.special;
            let prompts = Prompts::begin(special, &source.lengths, extra_length, &device);
            for (item, hypotheses) in items.iter().zip(beam_search(model, state, prompts, special, &options)) {
                generated[present[*item]] = self.tokeniser.decode(&hypotheses[0].tokens);
            }
            items.len()
        })?;
        Some(generated)
    }
}

impl Task for TextToTextTask<'_> {
    type Model = Seq2SeqTransformer;
    type Batch = TextToTextBatch;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let lengths: Vec<_> = self.train.iter().map(|pair| (pair.source.len(), pair.target.len() + 1)).collect();
        token_budget_batches(&lengths, self.batch_tokens, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> TextToTextBatch {
        Self::pad(self.frame.special, items.iter().map(|&item| &self.train[item]))
    }

    fn units(&self, batch: &TextToTextBatch) -> usize {
        batch.output.lengths.iter().sum()
    }

    fn loss(&self, model: &Seq2SeqTransformer, batch: &TextToTextBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        Self::loss_of(model, batch, self.label_smoothing, Some(pass.key), probe)
    }

    /// The perplexity of the validation set, whatever the split: test sets are scored by what is generated, which goes into files.
    fn evaluate(&self, model: &Seq2SeqTransformer, _split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let perplexity = self.perplexity(model, interrupt)?;
        Some(Scores::of("perplexity", perplexity, "per token of the vocabulary, without label smoothing"))
    }

    fn selection(&self) -> Selection {
        Selection::lowest("perplexity")
    }
}
