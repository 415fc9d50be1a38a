//! Machine translation: the experiment `mt`.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::generation::{BeamSearch, Prompts, SpecialTokens, beam_search};
use heedful_models::layout::AttentionLayout;
use heedful_models::loss::{cross_entropy, real_states};
use heedful_models::seq2seq::{Seq2SeqConfig, Seq2SeqTransformer, Source, Tying};
use serde::{Deserialize, Serialize};

use crate::batch::{PaddedBatch, pad, sequential_batches, token_budget_batches};
use crate::comparison::{Attention, Comparison, Dataset, ExperimentConfig, Scores, first_non_finite_activation, scoring_bar};
use crate::data::generate::{self, Sizes};
use crate::data::parallel::{Pair, ParallelCorpus};
use crate::error::ExperimentError;
use crate::mechanisms::MechanismOptions;
use crate::metrics::{Bleu, ChrF, LikelihoodTotal, TextUnit};
use crate::model::ModelSettings;
use crate::options::RunSettings;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::tokenise::{BEGIN, END, PAD, Tokeniser, TokeniserConfig};
use crate::train::{Interrupt, Objective, OptimiserConfig, ScheduleConfig, Selection, TrainingConfig};

const SPECIAL: SpecialTokens = SpecialTokens { padding: PAD, begin: BEGIN, end: END };

/// Complete configuration of `mt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationConfig {
    /// Which runs.
    pub run: RunSettings,
    /// Which text.
    pub data: TranslationData,
    /// How it is cut into tokens: one vocabulary for both languages.
    pub tokeniser: TokeniserConfig,
    /// The model.
    pub model: ModelSettings,
    /// Which matrices are one: `three-way`, `output` or `none`.
    pub tying: Tying,
    /// Options of the mechanisms.
    pub mechanisms: MechanismOptions,
    /// How it is trained.
    pub training: TrainingConfig,
    /// ε of label smoothing, in `[0, 1)`.
    pub label_smoothing: f64,
    /// How translations are searched.
    pub decoding: Decoding,
    /// How BLEU is computed.
    pub bleu: Bleu,
}

/// The text of a translation experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationData {
    /// Source language, the extension of the source files.
    pub source: String,
    /// Target language.
    pub target: String,
    /// Tokens of the longer side in a batch, padding included.
    pub batch_tokens: usize,
    /// Training pairs of the built-in corpus.
    pub generated_pairs: usize,
}

/// How translations are searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Decoding {
    /// Live hypotheses per sentence; 1 is greedy search.
    pub beam: usize,
    /// Exponent of the length penalty `((5 + length) / 6)^α`.
    pub length_penalty: f64,
    /// How many tokens a translation may be longer than its source.
    pub extra_length: usize,
    /// Source tokens in a batch of sentences.
    pub batch_tokens: usize,
}

impl Default for TranslationConfig {
    fn default() -> Self {
        Self {
            run: RunSettings {
                attention: [
                    "dot-product",
                    "synthesizer-dense",
                    "synthesizer-random",
                    "synthesizer-factorized-random",
                    "synthesizer-random+dot-product",
                    "gaussian",
                ]
                .map(str::to_owned)
                .to_vec(),
                ..RunSettings::default()
            },
            data: TranslationData::default(),
            tokeniser: TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            // One layer: a second one in the decoder could do with cross-attention what is asked of self-attention here.
            model: ModelSettings { layers: 1, ..ModelSettings::default() },
            tying: Tying::ThreeWay,
            mechanisms: MechanismOptions::default(),
            training: TrainingConfig {
                steps: 600,
                learning_rate: 4e-3,
                schedule: ScheduleConfig::Linear { warmup: 60, end: 1e-4 },
                optimiser: OptimiserConfig::default(),
                evaluate_every: 200,
                checkpoint_every: 200,
                log_every: 50,
                ..TrainingConfig::default()
            },
            label_smoothing: 0.1,
            decoding: Decoding::default(),
            bleu: Bleu::default(),
        }
    }
}

impl Default for TranslationData {
    fn default() -> Self {
        Self { source: "en".to_owned(), target: "de".to_owned(), batch_tokens: 1000, generated_pairs: Sizes::PARALLEL.train }
    }
}

impl Default for Decoding {
    fn default() -> Self {
        let BeamSearch { beam, length_penalty } = BeamSearch::default();
        Self { beam, length_penalty, extra_length: 50, batch_tokens: 2000 }
    }
}

impl ExperimentConfig for TranslationConfig {
    fn run(&self) -> &RunSettings {
        &self.run
    }

    fn mechanisms(&self) -> &MechanismOptions {
        &self.mechanisms
    }

    fn training(&self) -> &TrainingConfig {
        &self.training
    }
}

impl TranslationConfig {
    fn model(&self, vocabulary: usize, attention: &Attention) -> Seq2SeqConfig {
        let ModelSettings { layers, d_model, heads, d_ff, activation, norm_order, positions, max_length, .. } = self.model;
        let layout = match attention.layout {
            Some("hc-all") => AttentionLayout::hc_all(self.mechanisms.gaussian.length_ratio),
            Some(name) => AttentionLayout::named(name).expect("the layouts of this experiment have names"),
            None => AttentionLayout::for_attention(attention.config.clone()),
        };
        Seq2SeqConfig {
            source_vocabulary: vocabulary,
            target_vocabulary: vocabulary,
            attention: layout,
            encoder_layers: layers,
            decoder_layers: layers,
            d_model,
            heads,
            d_ff,
            activation,
            norm_order,
            positions,
            max_length,
            tying: self.tying,
            dropout: self.model.dropout,
            attention_dropout: self.model.attention_dropout,
            feed_forward_dropout: self.model.feed_forward_dropout,
        }
    }
}

/// A tokenised pair: source, and target without begin and end.
#[derive(Clone, Debug)]
struct TokenPair {
    source: Vec<u32>,
    target: Vec<u32>,
}

/// A tokenised parallel corpus.
#[derive(Debug)]
pub struct TranslationDataset {
    name: String,
    corpus: ParallelCorpus,
    tokeniser: Tokeniser,
    train: Vec<TokenPair>,
    valid: Vec<TokenPair>,
    too_long: usize,
}

impl Dataset for TranslationDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sha256(&self) -> &str {
        &self.corpus.sha256
    }

    fn description(&self) -> String {
        let ParallelCorpus { source_language, target_language, tests, skipped, .. } = &self.corpus;
        let tests: Vec<_> = tests.iter().map(|(name, pairs)| format!("{name} {}", pairs.len())).collect();
        let skipped: usize = skipped.iter().map(|skipped| skipped.lines.len()).sum();
        format!(
            "{source_language} to {target_language}: {} training pairs ({skipped} with an empty side and {} over the maximal length left out), \
             {} for validation; test sets: {}; {} tokens in the joint vocabulary",
            self.train.len(),
            self.too_long,
            self.valid.len(),
            tests.join(", "),
            self.tokeniser.vocabulary_size()
        )
    }

    fn save(&self, folder: &Path) -> Result<(), ExperimentError> {
        self.tokeniser.save(&folder.join("tokenizer.json")).map_err(ExperimentError::failure)
    }
}

/// The comparison of attentions on machine translation.
#[derive(Debug)]
pub struct Translation;

impl Comparison for Translation {
    const NAME: &'static str = "mt";
    const TITLE: &'static str = "Machine translation";
    const LAYOUTS: &'static [&'static str] = &["hc-sa", "hc-all", "sh-x"];
    type Config = TranslationConfig;
    type Dataset = TranslationDataset;
    type Model = Seq2SeqTransformer;
    type Task<'a> = TranslationTask<'a>;

    fn check(settings: &Settings<Self::Config>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let config = &settings.value;
        if !(0.0..1.0).contains(&config.label_smoothing) {
            return Err(settings.refuse("label_smoothing", "it must be at least 0 and less than 1").into());
        }
        for (field, value) in [("data.batch_tokens", config.data.batch_tokens), ("decoding.batch_tokens", config.decoding.batch_tokens)] {
            if value == 0 {
                return Err(settings.refuse(field, "at least one token is needed").into());
            }
        }
        if config.data.generated_pairs == 0 {
            return Err(settings.refuse("data.generated_pairs", "at least one pair is needed").into());
        }
        BeamSearch { beam: config.decoding.beam, length_penalty: config.decoding.length_penalty }
            .validate()
            .map_err(ExperimentError::usage)?;
        for attention in attentions {
            // The vocabulary is not known before the data is read and does not matter here.
            config.model(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn datasets(config: &Self::Config) -> Result<Vec<Self::Dataset>, ExperimentError> {
        let TranslationData { source, target, generated_pairs, .. } = &config.data;
        let (name, corpus) = match &config.run.data {
            Some(dir) => {
                let corpus = ParallelCorpus::read(dir, source, target).map_err(ExperimentError::failure)?;
                (format!("{} {source}-{target}", crate::comparison::folder_name(dir)), corpus)
            }
            None => {
                let sizes = Sizes { train: *generated_pairs, ..Sizes::PARALLEL };
                ("built-in".to_owned(), generate::parallel(&RandomKey::from_seed(0).named("translation data"), sizes))
            }
        };
        let lines = corpus.train.iter().flat_map(|pair| [pair.source.as_str(), pair.target.as_str()]);
        let tokeniser = Tokeniser::train(&config.tokeniser, lines).map_err(ExperimentError::usage)?;
        let encode = |pair: &Pair| TokenPair { source: tokeniser.encode(&pair.source), target: tokeniser.encode(&pair.target) };
        let max_length = config.model.max_length;
        let fits = |pair: &TokenPair| pair.source.len() <= max_length && pair.target.len() < max_length;
        let mut train: Vec<_> = corpus.train.iter().map(encode).collect();
        let all = train.len();
        train.retain(fits);
        let too_long = all - train.len();
        if too_long > 0 {
            tracing::warn!("{too_long} of {all} training pairs are longer than model.max_length = {max_length} tokens and are left out");
        }
        if train.is_empty() {
            return Err(ExperimentError::usage(format!(
                "model.max_length = {max_length}: every training pair is longer; give --set model.max_length=N with a larger N"
            )));
        }
        let valid: Vec<_> = corpus.valid.iter().map(encode).collect();
        let tests =
            corpus.tests.iter().flat_map(|(name, pairs)| pairs.iter().enumerate().map(move |(line, pair)| (name.as_str(), line, pair)));
        let longest = valid.iter().enumerate().map(|(line, pair)| ("valid", line, pair.source.len().max(pair.target.len() + 1)));
        let longest = longest.chain(tests.map(|(name, line, pair)| (name, line, tokeniser.encode(&pair.source).len())));
        for (set, line, length) in longest {
            if length > max_length {
                return Err(ExperimentError::usage(format!(
                    "{set}: sentence {} has {length} tokens, more than model.max_length = {max_length}, the maximal length of every attention here; \
                     give --set model.max_length={}",
                    line + 1,
                    length.next_power_of_two()
                )));
            }
        }
        Ok(vec![TranslationDataset { name, corpus, tokeniser, train, valid, too_long }])
    }

    fn task<'a>(config: &'a Self::Config, dataset: &'a Self::Dataset) -> TranslationTask<'a> {
        TranslationTask { config, dataset }
    }

    fn model(
        config: &Self::Config,
        dataset: &Self::Dataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Seq2SeqTransformer {
        config.model(dataset.tokeniser.vocabulary_size(), attention).init(key, device)
    }

    fn score(
        task: &TranslationTask,
        model: &Seq2SeqTransformer,
        paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let mut scores = Scores::default();
        let (bleu, chrf) = (task.config.bleu, ChrF::default());
        for (index, (name, pairs)) in task.dataset.corpus.tests.iter().enumerate() {
            let sources: Vec<&str> = pairs.iter().map(|pair| pair.source.as_str()).collect();
            let Some(hypotheses) = task.translate(model, &sources, interrupt) else { return Ok(None) };
            paths.write_hypotheses(name, &hypotheses)?;
            let references: Vec<[&str; 1]> = pairs.iter().map(|pair| [pair.target.as_str()]).collect();
            let values = [
                ("BLEU", bleu.corpus_score(&hypotheses, &references).score, bleu.signature(Some(1))),
                ("chrF2", chrf.corpus_score(&hypotheses, &references).score, chrf.signature(Some(1))),
            ];
            for (metric, value, signature) in values {
                if task.dataset.corpus.tests.len() > 1 {
                    scores.push(&format!("{name}/{metric}"), value, signature.clone());
                }
                if index == 0 {
                    scores.push(metric, value, format!("{signature}, test set {name}, {}", task.decoding()));
                }
            }
        }
        let perplexity = task.perplexity(model);
        scores.push("valid perplexity", perplexity, "per token of the joint vocabulary, without label smoothing".to_owned());
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![
            MetricColumn::new("BLEU", "BLEU").higher_is_better(),
            MetricColumn::new("chrF2", "chrF2").higher_is_better(),
            MetricColumn::new("valid perplexity", "valid ppl").lower_is_better(),
        ]
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::machine_translation()
    }
}

/// Training a translation model on a corpus.
#[derive(Debug)]
pub struct TranslationTask<'a> {
    config: &'a TranslationConfig,
    dataset: &'a TranslationDataset,
}

/// Padded source, target input (begin token first) and target output (end token last).
#[derive(Debug)]
pub struct TranslationBatch {
    source: PaddedBatch,
    input: PaddedBatch,
    output: PaddedBatch,
}

/// Row-major ids as a tensor.
fn tensor(batch: &PaddedBatch, device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(TensorData::new(batch.ids.clone(), [batch.rows, batch.width]), device)
}

impl TranslationTask<'_> {
    fn pad<'p>(&self, pairs: impl Iterator<Item = &'p TokenPair> + Clone) -> TranslationBatch {
        let rows = |row: &dyn Fn(&TokenPair) -> Vec<u32>| pad(&pairs.clone().map(row).collect::<Vec<_>>(), PAD);
        TranslationBatch {
            source: rows(&|pair| pair.source.clone()),
            input: rows(&|pair| std::iter::once(BEGIN).chain(pair.target.iter().copied()).collect()),
            output: rows(&|pair| pair.target.iter().copied().chain([END]).collect()),
        }
    }

    fn losses(
        &self,
        model: &Seq2SeqTransformer,
        batch: &TranslationBatch,
        smoothing: f64,
        key: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Tensor<1>, Tensor<1>) {
        let device = model.source.tokens.weight.device();
        let source = Source { tokens: tensor(&batch.source, &device), lengths: &batch.source.lengths };
        let hidden = model.hidden(source, tensor(&batch.input, &device), key, probe);
        let logits = model.project(real_states(hidden.states, &batch.output.lengths));
        let rows = batch.output.ids.chunks(batch.output.width).zip(&batch.output.lengths);
        let targets: Vec<i32> = rows.flat_map(|(row, &real)| &row[..real]).copied().collect();
        let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [self.units(batch)]), &device);
        let cross_entropy = cross_entropy(logits, targets, None, smoothing);
        let loss = match hidden.losses.total() {
            // An auxiliary loss is per token, as the main loss is after division by the number of tokens.
            Some(auxiliary) => cross_entropy.loss + auxiliary * self.units(batch) as f64,
            None => cross_entropy.loss,
        };
        (loss, cross_entropy.negative_log_likelihood)
    }

    fn perplexity(&self, model: &Seq2SeqTransformer) -> f64 {
        let lengths: Vec<_> = self.dataset.valid.iter().map(|pair| (pair.source.len(), pair.target.len() + 1)).collect();
        let mut total = LikelihoodTotal::new(TextUnit::Subword);
        for items in sequential_batches(&lengths, self.config.decoding.batch_tokens) {
            let batch = self.pad(items.iter().map(|&item| &self.dataset.valid[item]));
            let (_, nll) = self.losses(model, &batch, 0.0, None, &mut Probe::off());
            total.record(f64::from(nll.into_scalar::<f32>()), self.units(&batch) as u64);
        }
        total.perplexity().unwrap_or(f64::NAN)
    }

    fn decoding(&self) -> String {
        let Decoding { beam, length_penalty, extra_length, .. } = self.config.decoding;
        format!("beam {beam}, length penalty {length_penalty} (Wu et al. 2016), at most {extra_length} tokens longer than the source")
    }

    /// Translations in the order of the sources; `None` if the interrupt was raised meanwhile.
    fn translate(&self, model: &Seq2SeqTransformer, sources: &[&str], interrupt: &Interrupt) -> Option<Vec<String>> {
        let tokens: Vec<_> = sources.iter().map(|source| self.dataset.tokeniser.encode(source)).collect();
        let mut translations = vec![String::new(); sources.len()];
        // A sentence without a token has an empty translation.
        let present: Vec<usize> = (0..sources.len()).filter(|&index| !tokens[index].is_empty()).collect();
        let lengths: Vec<_> = present.iter().map(|&index| (tokens[index].len(), 0)).collect();
        let Decoding { beam, length_penalty, extra_length, batch_tokens } = self.config.decoding;
        let options = BeamSearch { beam, length_penalty };
        let bar = scoring_bar("translating", present.len());
        for items in sequential_batches(&lengths, batch_tokens.div_ceil(beam)) {
            if interrupt.is_raised() {
                return None;
            }
            let rows: Vec<_> = items.iter().map(|&item| tokens[present[item]].clone()).collect();
            let source = pad(&rows, PAD);
            let device = model.source.tokens.weight.device();
            let state = model.start(Source { tokens: tensor(&source, &device), lengths: &source.lengths });
            let prompts = Prompts::begin(SPECIAL, &source.lengths, extra_length, &device);
            for (item, hypotheses) in items.iter().zip(beam_search(model, state, prompts, SPECIAL, &options)) {
                translations[present[*item]] = self.dataset.tokeniser.decode(&hypotheses[0].tokens);
            }
            bar.inc(items.len() as u64);
        }
        bar.finish_and_clear();
        Some(translations)
    }
}

impl Objective for TranslationTask<'_> {
    type Model = Seq2SeqTransformer;
    type Batch = TranslationBatch;

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let lengths: Vec<_> = self.dataset.train.iter().map(|pair| (pair.source.len(), pair.target.len() + 1)).collect();
        token_budget_batches(&lengths, self.config.data.batch_tokens, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> TranslationBatch {
        self.pad(items.iter().map(|&item| &self.dataset.train[item]))
    }

    fn units(&self, batch: &TranslationBatch) -> usize {
        batch.output.lengths.iter().sum()
    }

    fn loss(&self, model: &Seq2SeqTransformer, batch: &TranslationBatch, key: RandomKey) -> Tensor<1> {
        self.losses(model, batch, self.config.label_smoothing, Some(key), &mut Probe::off()).0
    }

    fn evaluate(&self, model: &Seq2SeqTransformer) -> Vec<(String, f64)> {
        vec![("perplexity".to_owned(), self.perplexity(model))]
    }

    fn selection(&self) -> Selection {
        Selection::lowest("perplexity")
    }

    fn locate_non_finite(&self, model: &Seq2SeqTransformer, batch: &TranslationBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            self.losses(model, batch, self.config.label_smoothing, Some(key), probe);
        })
    }
}
