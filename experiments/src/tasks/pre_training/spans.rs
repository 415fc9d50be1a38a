//! Filling gaps.

use heedful_data::TextCorpus;
use heedful_models::architectures::seq2seq::{Seq2SeqConfig, Seq2SeqTransformer, Tying};
use heedful_models::architectures::span_corruption::Corrupted;
use serde::{Deserialize, Serialize};

use super::config::defaults;
use super::{
    DATA, FLOPS_PER_STEP, LOG_PERPLEXITY, PreTrainingDataset, PreTrainingOptions, batch_tokens, batches, card, check, columns, evaluated,
    fits, flops, open, trivial,
};
use crate::tasks::prelude::*;
use crate::tasks::text_to_text::{self, AddPair, OWN_FRAME, TextToTextBatch, TextToTextTask, TokenPair};

/// The comparison of attentions on filling gaps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpanModelling(pub PreTrainingOptions);

impl Config<SpanModelling> {
    /// An encoder-decoder, with tokens for the spans after those of the vocabulary.
    fn encoder_decoder(&self, vocabulary: usize, attention: &Attention) -> Seq2SeqConfig {
        let options = &self.own.0;
        let vocabulary = vocabulary + options.spans(vocabulary).sentinels(options.data.context);
        self.model.encoder_decoder(vocabulary, attention.layout.clone(), Tying::ThreeWay)
    }
}

impl Experiment for SpanModelling {
    const NAME: &'static str = "mlm-spans";
    const TITLE: &'static str = "Span corruption";
    const DATA: &'static [&'static str] = DATA;
    const BATCH: &'static str = "data.batch";
    const READS_FILES: bool = true;
    const COLUMNS: &'static [&'static str] = TextCorpus::COLUMNS;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = PreTrainingDataset;
    type Model = Seq2SeqTransformer;
    type Task<'a> = SpanTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        defaults(config);
    }

    fn rules() -> Vec<Rule<Self>> {
        let mut rules = super::rules::<Self>();
        rules.push(Rule::counts(&["decoding.batch_tokens"]));
        rules.push(Rule::used(&["masking"], |_| false, "it applies to the other objective; leave it out, or give --objective tokens"));
        let search = &["decoding.beam", "decoding.length_penalty", "decoding.extra_length"];
        rules.push(Rule::used(search, |_| false, "this objective searches no text; leave it out"));
        rules
    }

    fn check(settings: &Settings<Config<Self>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let options = &settings.value.own.0;
        check(settings, &options.data)?;
        settings.require("pretrained", options.pretrained.is_none(), "a pretrained encoder is for --objective tokens; leave it out")?;
        options.spans(0).validate().map_err(ExperimentError::usage)?;
        for attention in attentions {
            settings.value.encoder_decoder(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &Config<Self>) -> Result<Vec<PreTrainingDataset>, ExperimentError> {
        open(&config.run, &config.own.0)
    }

    fn card(data: &PreTrainingDataset) -> Card<'_> {
        card(data)
    }

    fn fits(setup: Setup<'_, Self>) -> Result<(), ExperimentError> {
        fits(&setup.config.own.0.data, setup.data)
    }

    fn batch_tokens(config: &Config<Self>, data: &PreTrainingDataset) -> usize {
        // Gaps are not among the tokens of either side.
        batch_tokens(&config.own.0.data, data) / 4
    }

    /// Of some sequences, with the gaps that chance makes.
    fn lengths(Setup { config, data, attention }: Setup<'_, Self>) -> TrainingLengths {
        let options = &config.own.0;
        let (context, key) = (options.data.context, RandomKey::from_seed(0).named("lengths"));
        let of_item = |item: usize| pair(options, data, &data.train, item * context, &key.numbered(item as u64));
        let pairs: Vec<TokenPair> = (0..(data.train.len() / context).min(COUNTED)).map(of_item).collect();
        text_to_text::lengths(&pairs, config.model.max_length, attention)
    }

    fn task(Setup { config, data, attention }: Setup<'_, Self>) -> SpanTask<'_> {
        let options = &config.own.0;
        let model = config.encoder_decoder(data.tokeniser.vocabulary_size(), attention);
        SpanTask { options, dataset: data, model, valid: scored(options, data, Split::Valid), test: scored(options, data, Split::Test) }
    }

    fn model(
        Setup { config, data, attention }: Setup<'_, Self>,
        key: &RandomKey,
        device: &Device,
    ) -> Result<Seq2SeqTransformer, ExperimentError> {
        Ok(config.encoder_decoder(data.tokeniser.vocabulary_size(), attention).init(key, device))
    }

    fn columns() -> Vec<MetricColumn> {
        columns()
    }

    fn trivial_baselines(config: &Config<Self>, data: &PreTrainingDataset, interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        let options = &config.own.0;
        let key = RandomKey::from_seed(0).named("trivial");
        let count = data.train.len() / options.data.context;
        let train = (0..count).map(|item| pair(options, data, &data.train, item * options.data.context, &key.numbered(item as u64)));
        let [valid, test] = [Split::Valid, Split::Test].map(|split| scored(options, data, split));
        let size = data.tokeniser.vocabulary_size();
        let vocabulary = size + options.spans(size).sentinels(options.data.context);
        Ok(trivial::n_gram_of_targets(train, [&valid, &test], vocabulary, interrupt).map(|baseline| vec![baseline]))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::pre_training()
    }

    fn texts(Setup { config, data, .. }: Setup<'_, Self>, count: usize) -> Vec<String> {
        let fits = |line: &&String| (4..=config.own.0.data.context).contains(&data.tokeniser.encode(line).len());
        data.corpus.test.iter().filter(fits).take(count).cloned().collect()
    }

    /// The model is given the text with gaps, the same whenever it is read, and what fills them.
    fn read(
        Setup { config, data, .. }: Setup<'_, Self>,
        model: &Seq2SeqTransformer,
        text: &str,
        probe: &mut Probe,
    ) -> Result<Reading, ExperimentError> {
        let tokens = data.tokeniser.encode(text);
        // Longer texts have more gaps than there are tokens for.
        check_length(text, tokens.len(), config.own.0.data.context)?;
        let vocabulary = data.tokeniser.vocabulary_size();
        let Corrupted { source, target } = config.own.0.spans(vocabulary).corrupt(&tokens, &RandomKey::from_seed(0).named("read"));
        check_length(text, target.len() + 1, config.model.max_length)?;
        let pair = TokenPair { source, target };
        TextToTextTask::hidden(model, &TextToTextTask::pad(OWN_FRAME.special, std::iter::once(&pair)), None, probe);
        let word = |&token: &u32| match (token as usize).checked_sub(vocabulary) {
            Some(gap) => format!("<extra_id_{gap}>"),
            None => data.tokeniser.words(&[token]).concat(),
        };
        let decoder: Vec<u32> = std::iter::once(OWN_FRAME.special.begin).chain(pair.target).collect();
        let [encoder, decoder] = [&pair.source, &decoder].map(|tokens| tokens.iter().map(word).collect());
        Ok(Reading { encoder, decoder, ..Reading::default() })
    }
}

/// Most sequences whose lengths are looked at.
const COUNTED: usize = 256;

/// The sequences that a model is scored on, with gaps that are the same for all.
fn scored(options: &PreTrainingOptions, dataset: &PreTrainingDataset, split: Split) -> Vec<TokenPair> {
    let text = split.of(&dataset.valid, &dataset.test);
    let starts = evaluated(&options.data, text.len(), options.data.context);
    let key = RandomKey::from_seed(0).named("spans");
    starts.iter().enumerate().map(|(item, &start)| pair(options, dataset, text, start, &key.numbered(item as u64))).collect()
}

/// A sequence of a text with gaps, and what fills them.
fn pair(options: &PreTrainingOptions, dataset: &PreTrainingDataset, text: &[u32], start: usize, key: &RandomKey) -> TokenPair {
    let spans = options.spans(dataset.tokeniser.vocabulary_size());
    let corrupted = spans.corrupt(&text[start..start + options.data.context], key);
    TokenPair { source: corrupted.source, target: corrupted.target }
}

/// Training an encoder-decoder to fill gaps.
#[derive(Debug)]
pub struct SpanTask<'a> {
    options: &'a PreTrainingOptions,
    dataset: &'a PreTrainingDataset,
    model: Seq2SeqConfig,
    valid: Vec<TokenPair>,
    test: Vec<TokenPair>,
}

impl SpanTask<'_> {
    /// What is done with pairs, of which these are evaluated.
    fn pairs<'t>(&'t self, evaluated: &'t [TokenPair]) -> TextToTextTask<'t> {
        TextToTextTask {
            frame: &OWN_FRAME,
            train: &[],
            valid: evaluated,
            tokeniser: &self.dataset.tokeniser,
            batch_tokens: self.options.decoding.batch_tokens,
            label_smoothing: 0.0,
            decoding: &self.options.decoding,
        }
    }
}

impl Task for SpanTask<'_> {
    type Model = Seq2SeqTransformer;
    type Batch = TextToTextBatch;
    type Carried = ();

    /// Items are the first positions of sequences.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        batches(self.dataset.train.len(), self.options.data.context, self.options.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, key: &RandomKey) -> TextToTextBatch {
        let pair = |(row, &start): (usize, &usize)| pair(self.options, self.dataset, &self.dataset.train, start, &key.numbered(row as u64));
        let pairs: Vec<TokenPair> = items.iter().enumerate().map(pair).collect();
        TextToTextTask::pad(OWN_FRAME.special, pairs.iter())
    }

    fn units(&self, batch: &TextToTextBatch) -> usize {
        self.pairs(&self.valid).units(batch)
    }

    fn loss(&self, model: &Seq2SeqTransformer, batch: &TextToTextBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        self.pairs(&self.valid).loss(model, batch, pass, probe)
    }

    fn evaluate(&self, model: &Seq2SeqTransformer, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let (pairs, name) = split.of((&self.valid, "validation"), (&self.test, "test"));
        let PreTrainingOptions { data, spans, .. } = self.options;
        let signature = format!(
            "targets of {} {name} sequences of {} tokens, {} of them in spans of {}, sentinels and end included",
            pairs.len(),
            data.context,
            spans.density,
            spans.mean_span
        );
        let mut table = ItemTable::new(name, &["nats", "tokens"]);
        let mut add = |pair: &TokenPair, losses: &[f64]| {
            let identity = pair.source.iter().chain(&pair.target).map(|&token| i64::from(token));
            table.push_tokens(identity, &[losses.iter().sum(), losses.len() as f64]);
        };
        let add: Option<&mut AddPair<'_>> = (split == Split::Test).then_some(&mut add);
        let perplexity = self.pairs(pairs).perplexity_of_pairs(model, add, interrupt)?;
        let mut scores = Scores::of(LOG_PERPLEXITY, perplexity.ln(), signature);
        if split == Split::Test {
            scores.push_items(LOG_PERPLEXITY, ItemScore::new(name, "sequences", Combination::Ratio, &["nats", "tokens"]));
            scores.items.push(table);
            let mean = |length: fn(&TokenPair) -> usize| pairs.iter().map(length).sum::<usize>().div_ceil(pairs.len());
            let (source, target, batch) = (mean(|pair| pair.source.len()), mean(|pair| pair.target.len()), data.batch);
            let signature = format!("counted: {batch} pairs of {source} and {target} tokens, forward and backward");
            scores.push(FLOPS_PER_STEP, flops(self.model.multiplications(model, source, target), batch), signature);
        }
        Some(scores)
    }

    fn selection(&self) -> Selection {
        Selection::lowest(LOG_PERPLEXITY)
    }
}
