//! Generation of texts from texts: the experiment `textgen`, summaries and replies in dialogues.
//!
//! An encoder-decoder learns as in translation; what differs is the data, which of a long source is kept, and the scores.

mod config;

use std::path::Path;

use burn::tensor::Device;
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::presets::{Preset, PresetModel};
use heedful_models::seq2seq::Seq2SeqTransformer;

use crate::batch::at_least_in_a_batch;
use crate::comparison::folder_name;
use crate::data::generate::{self, Sizes};
use crate::data::parallel::Pair;
use crate::data::text_pairs::TextPairs;
use crate::data::word_vectors::WordVectors;
use crate::data::{dialogue, summary, synonyms};
use crate::error::ExperimentError;
use crate::experiment::{Attention, Card, Config, Experiment, NamedModel, Reading, Rule, Scores, Setup, TrainingLengths};
use crate::metrics::{
    Cider, Combination, CorpusMetric, DialogueBleu, EmbeddingSimilarity, EmbeddingStatistics, ItemScore, ItemTable, Meteor,
    MeteorStatistics, MetricColumn, Rouge, RougeStatistics, RougeVariant, Synonyms,
};
use crate::model::ModelSettings;
use crate::presets::PaperModel;
use crate::published::PublishedNumbers;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::text_to_text::models::{self, MODELS};
use crate::text_to_text::{self, OWN_FRAME, TextToTextTask, TokenPair};
use crate::tokenise::Tokeniser;
use crate::train::Interrupt;

pub use config::{GenerationConfig, GenerationData, GenerationTask, TextGeneration};

/// A tokenised task.
#[derive(Debug)]
pub struct GenerationDataset {
    name: String,
    task: GenerationTask,
    pairs: TextPairs,
    tokeniser: Tokeniser,
    train: Vec<TokenPair>,
    valid: Vec<TokenPair>,
    /// Training pairs that lost a part of their source or of their target.
    shortened: usize,
    vectors: Option<WordVectors>,
    synonyms: Option<Synonyms>,
}

impl Experiment for TextGeneration {
    const NAME: &'static str = "textgen";
    const TITLE: &'static str = "Summaries and replies";
    const MODELS: &'static [NamedModel] = MODELS;
    const DATA: &'static [&'static str] = &[
        "tokeniser",
        "data.tasks",
        "data.test",
        "data.turns",
        "data.personas",
        "data.word_vectors",
        "data.synonyms",
        "data.generated_pairs",
        "model.max_length",
    ];
    const READS_FILES: bool = true;
    const STACKS: usize = 2;
    const BATCH: &'static str = "data.batch_tokens";
    type Data = GenerationDataset;
    type Model = Seq2SeqTransformer;
    type Task<'a> = TextToTextTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        config::defaults(config);
    }

    fn fit_model(name: &str, plain: &Config<Self>, own: &mut Config<Self>, attention: &Attention) -> Result<(), ExperimentError> {
        let tying = own.own.tying;
        models::fit(name, &plain.model, &mut own.model, |model| model.encoder_decoder(1, attention.layout.clone(), tying))
    }

    fn preset(preset: &Preset) -> Option<PaperModel> {
        let PresetModel::Seq2Seq(config) = &preset.model else { return None };
        Some(PaperModel::of_layout(&config.attention, ModelSettings::of_encoder_decoder(config)).with("tying", config.tying))
    }

    fn rules() -> Vec<Rule<Self>> {
        vec![
            Rule::counts(&["data.batch_tokens", "data.turns", "data.test", "data.generated_pairs", "decoding.batch_tokens"]),
            Rule::used(
                &["data.generated_pairs"],
                |candidate| candidate.config.run.data.is_none(),
                "the pairs are those of --data; leave it out",
            ),
            Rule::used(
                &["data.turns", "data.cider", "data.word_vectors"],
                |candidate| candidate.config.own.data.tasks.contains(&GenerationTask::Dialogue),
                "it is for dialogues, and there are none; leave it out, or give --task dialogue",
            ),
            Rule::used(
                &["data.personas"],
                |candidate| candidate.config.run.data.is_some() && candidate.config.own.data.tasks.contains(&GenerationTask::Dialogue),
                "it says which files of PersonaChat are read, and none are; leave it out, or give --data DIR",
            ),
        ]
    }

    fn check(settings: &Settings<Config<Self>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let config = &settings.value;
        let Self { data, label_smoothing, decoding, .. } = &config.own;
        if data.tasks.is_empty() {
            return Err(settings.refuse("data.tasks", "no task is named; known are summary and dialogue").into());
        }
        if data.tasks.len() > 1 && config.run.data.is_some() {
            return Err(settings.refuse("data.tasks", "a folder has the data of one task; name it with --task").into());
        }
        if !(0.0..1.0).contains(label_smoothing) {
            return Err(settings.refuse("label_smoothing", "it must be at least 0 and less than 1").into());
        }
        decoding.check(settings)?;
        for attention in attentions {
            config.model(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &Config<Self>) -> Result<Vec<GenerationDataset>, ExperimentError> {
        config.own.data.tasks.iter().map(|&task| dataset(config, task)).collect()
    }

    fn card(data: &GenerationDataset) -> Card<'_> {
        let GenerationDataset { name, pairs: TextPairs { corpus, split }, tokeniser, train, valid, shortened, .. } = data;
        let tests: Vec<_> = corpus.tests.iter().map(|(name, pairs)| format!("{name} {}", pairs.len())).collect();
        let description = format!(
            "{} to {}: {} training pairs ({shortened} of them shortened to model.max_length), {} for validation; \
             test sets: {}; {split}; {} tokens in the joint vocabulary",
            corpus.source_language,
            corpus.target_language,
            train.len(),
            valid.len(),
            tests.join(", "),
            tokeniser.vocabulary_size()
        );
        Card::of_texts(name, &corpus.sha256, description, tokeniser)
    }

    fn batch_tokens(config: &Config<Self>, data: &GenerationDataset) -> usize {
        at_least_in_a_batch(data.train.iter().map(|pair| pair.source.len().min(pair.target.len())), config.own.data.batch_tokens)
    }

    fn lengths(setup: Setup<'_, Self>) -> TrainingLengths {
        text_to_text::lengths(&setup.data.train, setup.config.model.max_length, setup.attention)
    }

    fn task(setup: Setup<'_, Self>) -> TextToTextTask<'_> {
        let GenerationDataset { train, valid, tokeniser, .. } = setup.data;
        let Self { data, label_smoothing, decoding, .. } = &setup.config.own;
        let (frame, batch_tokens) = (&OWN_FRAME, data.batch_tokens);
        TextToTextTask { train, valid, tokeniser, frame, batch_tokens, label_smoothing: *label_smoothing, decoding }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Seq2SeqTransformer, ExperimentError> {
        Ok(setup.config.model(setup.data.tokeniser.vocabulary_size(), setup.attention).init(key, device))
    }

    fn score(
        setup: Setup<'_, Self>,
        task: &TextToTextTask,
        model: &Seq2SeqTransformer,
        paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let Setup { config, data: dataset, .. } = setup;
        let mut scores = Scores::default();
        let tests = &dataset.pairs.corpus.tests;
        for (index, (name, pairs)) in tests.iter().enumerate() {
            let pairs = &pairs[..config.own.data.test.unwrap_or(pairs.len()).min(pairs.len())];
            let sources: Vec<_> = pairs.iter().map(|pair| kept_source(config, dataset.task, &dataset.tokeniser, pair)).collect();
            let Some(hypotheses) = task.generate(model, &sources, "generating", interrupt) else { return Ok(None) };
            let references: Vec<[&str; 1]> = pairs.iter().map(|pair| [pair.target.as_str()]).collect();
            paths.write_hypotheses(name, &hypotheses)?;
            paths.write_references(name, &references.concat())?;
            let found = metrics(setup, &hypotheses, &references);
            scores.items.push(items(name, &found, &references));
            for Found { metric, value, signature, items } in found {
                let made_of = match items {
                    Items::Values(_) => ItemScore::new(name, "texts", Combination::Mean, &[metric]),
                    Items::Texts(kind) => ItemScore::of_texts(name, kind),
                };
                if tests.len() > 1 {
                    let metric = format!("{name}/{metric}");
                    scores.push(&metric, value, signature.clone());
                    scores.push_items(&metric, made_of.clone());
                }
                if index == 0 {
                    scores.push(metric, value, format!("{signature}, test set {name}, {} texts, {}", pairs.len(), config.own.decoding));
                    scores.push_items(metric, made_of);
                }
            }
        }
        let Some(perplexity) = task.perplexity(model, interrupt) else { return Ok(None) };
        scores.push("valid perplexity", perplexity, "per token of the joint vocabulary, without label smoothing");
        if dataset.task == GenerationTask::Dialogue && dataset.vectors.is_none() {
            scores.notes.push("no similarity of word vectors: data.word_vectors names no file".to_owned());
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        let percent = |name: &str| MetricColumn::new(name, name).percent().higher_is_better();
        let names =
            ["ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "CIDEr", "embedding average"];
        let valid = MetricColumn::new("valid perplexity", "valid ppl").lower_is_better();
        names.map(percent).into_iter().chain([valid]).collect()
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::text_generation()
    }

    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        let most = setup.config.model.max_length;
        let fits =
            |pair: &&Pair| [&pair.source, &pair.target].iter().all(|text| (1..most).contains(&setup.data.tokeniser.encode(text).len()));
        let pairs = setup.data.pairs.corpus.tests.iter().flat_map(|(_, pairs)| pairs);
        pairs.filter(fits).take(count).map(|pair| format!("{}\t{}", pair.source, pair.target)).collect()
    }

    fn read(setup: Setup<'_, Self>, model: &Seq2SeqTransformer, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        Self::task(setup).read(model, text, setup.config.model.max_length, probe)
    }
}

fn dataset(config: &GenerationConfig, task: GenerationTask) -> Result<GenerationDataset, ExperimentError> {
    let GenerationData { turns, personas, generated_pairs, word_vectors, synonyms, .. } = &config.own.data;
    let (name, pairs) = match &config.run.data {
        Some(dir) => {
            let read = match task {
                GenerationTask::Summary => summary::read(dir),
                GenerationTask::Dialogue => dialogue::read(dir, personas, *turns),
            };
            (folder_name(dir), read.map_err(ExperimentError::failure)?)
        }
        None => {
            let sizes = Sizes { train: *generated_pairs, ..Sizes::TEXT_PAIRS };
            let key = RandomKey::from_seed(0).named("text pairs");
            let made = match task {
                GenerationTask::Summary => generate::summary(&key, sizes),
                GenerationTask::Dialogue => generate::dialogue(&key, *turns, sizes),
            };
            (format!("built-in {task}"), made.map_err(ExperimentError::usage)?)
        }
    };
    let lines = pairs.corpus.train.iter().flat_map(|pair| [pair.source.as_str(), pair.target.as_str()]);
    let tokeniser = Tokeniser::train(&config.own.tokeniser, lines).map_err(ExperimentError::usage)?;
    let mut shortened = 0;
    let mut encode = |pairs: &[Pair]| -> Vec<TokenPair> {
        let encode = |pair: &Pair| {
            let source = kept_source(config, task, &tokeniser, pair);
            let mut target = tokeniser.encode(&pair.target);
            let was_longer = target.len() >= config.model.max_length || source.len() == config.model.max_length;
            target.truncate(config.model.max_length - 1);
            shortened += usize::from(was_longer);
            TokenPair { source, target }
        };
        pairs.iter().map(encode).collect()
    };
    let valid = encode(&pairs.corpus.valid);
    let train = encode(&pairs.corpus.train);
    let vectors = word_vectors.as_deref().map(|path: &Path| WordVectors::read(path)).transpose().map_err(ExperimentError::failure)?;
    let synonyms = synonyms.as_deref().map(synonyms::read).transpose().map_err(ExperimentError::failure)?;
    Ok(GenerationDataset { name, task, pairs, tokeniser, train, valid, shortened, vectors, synonyms })
}

/// The tokens of a source that a model can read: of a document the first, since news begin with what matters, of a dialogue the last.
fn kept_source(config: &GenerationConfig, task: GenerationTask, tokeniser: &Tokeniser, pair: &Pair) -> Vec<u32> {
    let mut source = tokeniser.encode(&pair.source);
    let excess = source.len().saturating_sub(config.model.max_length);
    match task {
        GenerationTask::Summary => source.truncate(config.model.max_length),
        GenerationTask::Dialogue => drop(source.drain(..excess)),
    }
    source
}

/// A score of a task, as a fraction.
struct Found {
    metric: &'static str,
    value: f64,
    signature: String,
    items: Items,
}

/// What a score is made of.
enum Items {
    /// The mean of these values of the texts.
    Values(Vec<f64>),
    /// Counts over all texts.
    Texts(CorpusMetric),
}

/// The values of the texts of a test set, which are told apart by their references.
fn items(set: &str, found: &[Found], references: &[[&str; 1]]) -> ItemTable {
    let values = found.iter().filter_map(|found| match &found.items {
        Items::Values(values) => Some((found.metric, values)),
        Items::Texts(_) => None,
    });
    let (names, values): (Vec<_>, Vec<_>) = values.unzip();
    let mut table = ItemTable::new(set, &names);
    for (index, [reference]) in references.iter().enumerate() {
        table.push(reference.as_bytes(), &values.iter().map(|values| values[index]).collect::<Vec<_>>());
    }
    table
}

/// The scores of a task.
fn metrics(setup: Setup<'_, TextGeneration>, hypotheses: &[String], references: &[[&str; 1]]) -> Vec<Found> {
    let GenerationData { stemmer, cider, .. } = setup.config.own.data;
    let of_rouge = |metric, rouge: Rouge, statistics: Vec<RougeStatistics>| Found {
        metric,
        value: rouge.score(&statistics.iter().copied().sum()).f_measure,
        signature: rouge.signature(Some(1)),
        items: Items::Values(statistics.iter().map(|statistics| statistics.f_measure).collect()),
    };
    let meteor = Meteor { synonyms: setup.data.synonyms.as_ref(), ..Meteor::default() };
    let of_meteor = |statistics: Vec<MeteorStatistics>| Found {
        metric: "METEOR",
        value: meteor.score(&statistics.iter().copied().sum()).score,
        signature: meteor.signature(Some(1)),
        items: Items::Values(statistics.iter().map(|statistics| statistics.score).collect()),
    };
    if setup.data.task == GenerationTask::Summary {
        // Marks of sentences are no words of a summary.
        let lines = |text: &str| summary::with_line_ends(text);
        let summaries: Vec<String> = hypotheses.iter().map(|text| lines(text)).collect();
        let of_references: Vec<[String; 1]> = references.iter().map(|[text]| [lines(text)]).collect();
        let variants = [
            ("ROUGE-1", RougeVariant::Rouge1),
            ("ROUGE-2", RougeVariant::Rouge2),
            ("ROUGE-L", RougeVariant::RougeL),
            ("ROUGE-Lsum", RougeVariant::RougeLsum),
        ];
        let rouge = |(metric, variant)| {
            let rouge = Rouge { variant, stemmer };
            of_rouge(metric, rouge, rouge.corpus_statistics(&summaries, &of_references))
        };
        let mut found: Vec<_> = variants.map(rouge).into();
        found.push(of_meteor(meteor.corpus_statistics(&summaries, &of_references)));
        return found;
    }
    let bleu = DialogueBleu::default();
    let scores = bleu.corpus_score(hypotheses, references).bleu;
    let of_order = |((metric, value), order)| {
        let items = Items::Texts(CorpusMetric::DialogueBleu { bleu, order });
        Found { metric, value, signature: bleu.signature(Some(1)), items }
    };
    let mut found: Vec<_> = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"].into_iter().zip(scores).zip(1..).map(of_order).collect();
    let rouge = Rouge { variant: RougeVariant::RougeL, stemmer };
    found.push(of_rouge("ROUGE-L", rouge, rouge.corpus_statistics(hypotheses, references)));
    found.push(of_meteor(meteor.corpus_statistics(hypotheses, references)));
    let cider = Cider { variant: cider, ..Cider::default() };
    let statistics = cider.corpus_statistics(hypotheses, references);
    found.push(Found {
        metric: "CIDEr",
        value: cider.score(&statistics.iter().copied().sum()).score,
        signature: cider.signature(Some(1)),
        items: Items::Values(statistics.iter().map(|statistics| statistics.score).collect()),
    });
    if let Some(vectors) = &setup.data.vectors {
        let similarity = EmbeddingSimilarity::new(vectors.name(), |word: &str| vectors.of(word));
        let statistics = similarity.corpus_statistics(hypotheses, references);
        let score = similarity.score(&statistics.iter().copied().sum());
        type Of = fn(&EmbeddingStatistics) -> f64;
        let values: [(_, _, Of); 3] = [
            ("embedding average", score.average, |statistics| statistics.average),
            ("greedy matching", score.greedy, |statistics| statistics.greedy),
            ("vector extrema", score.extrema, |statistics| statistics.extrema),
        ];
        found.extend(values.map(|(metric, value, of)| Found {
            metric,
            value,
            signature: similarity.signature(Some(1)),
            items: Items::Values(statistics.iter().map(of).collect()),
        }));
    }
    found
}
