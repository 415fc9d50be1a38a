//! Generation of texts from texts: the experiment `textgen`, summaries and replies in dialogues.
//!
//! An encoder-decoder learns as in translation; the data, the shortening of long sources, and the scores differ.

mod config;
mod scoring;
mod trivial;

use std::path::Path;

use heedful_data::generate::{self, Sizes};
use heedful_data::parallel::Pair;
use heedful_data::text_pairs::TextPairs;
use heedful_data::tokenise::Tokeniser;
use heedful_data::word_vectors::WordVectors;
use heedful_data::{dialogue, summary, synonyms};
use heedful_metrics::Synonyms;
use heedful_models::architectures::seq2seq::Seq2SeqTransformer;
use heedful_models::pretrained::presets::Preset;

use crate::session::comparison::folder_name;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{Checksums, read_into};
use crate::tasks::text_to_text::models::{self, MODELS};
use crate::tasks::text_to_text::pretrained::{self, PERPLEXITY_BEFORE, Read};
use crate::tasks::text_to_text::{self, Frame, TextToTextTask, TokenPair};

use self::scoring::{Found, Items, items, metrics};

pub use config::{GenerationConfig, GenerationData, GenerationTask, TextGeneration};

/// A tokenised task.
#[derive(Debug)]
pub struct GenerationDataset {
    name: String,
    task: GenerationTask,
    pairs: TextPairs,
    tokeniser: Tokeniser,
    frame: Frame,
    /// Vocabulary size of models. A pretrained model may have more tokens than its tokeniser.
    vocabulary: usize,
    /// The checksums of the pretrained model, if there is one.
    pretrained: Option<Checksums>,
    train: Vec<TokenPair>,
    valid: Vec<TokenPair>,
    /// Training pairs that lost a part of their source or of their target.
    shortened: usize,
    vectors: Option<WordVectors>,
    synonyms: Option<Synonyms>,
}

/// What T5 was given before documents (Raffel et al. 2020, appendix D).
const SUMMARIZE: &str = "summarize: ";
/// Name of the score of weights before training.
const BEFORE: &str = "score before";

impl GenerationDataset {
    /// The test sets, as far as texts are generated for them: name, pairs, and what is to be generated.
    fn tests<'d>(&'d self, config: &GenerationConfig) -> impl Iterator<Item = (&'d str, &'d [Pair], Vec<[&'d str; 1]>)> {
        let most = config.own.data.test;
        self.pairs.corpus.tests.iter().map(move |(name, pairs)| {
            let pairs = &pairs[..most.unwrap_or(pairs.len()).min(pairs.len())];
            (name.as_str(), pairs, pairs.iter().map(|pair| [pair.target.as_str()]).collect())
        })
    }

    /// The tokens of the sources of pairs, as far as a model can read them.
    fn sources(&self, config: &GenerationConfig, pairs: &[Pair]) -> Result<Vec<Vec<u32>>, ExperimentError> {
        pairs.iter().map(|pair| kept_source(config, self.task, (&self.frame, &self.tokeniser), pair)).collect()
    }
}

impl Experiment for TextGeneration {
    const NAME: &'static str = "textgen";
    const TITLE: &'static str = "Summaries and replies";
    const ABOUT: &'static str = "\
        Compare attention mechanisms, or whole models, on summaries and on replies in dialogues.\n\nTrains an encoder-decoder for each task, each \
        attention or model of --model, and each seed, and prints a table: ROUGE and METEOR for summaries, BLEU-1 to BLEU-4, ROUGE-L, METEOR, CIDEr \
        and, with word vectors, their similarity for replies. --data takes a folder of documents and summaries (train.source, train.target and so on) \
        or of PersonaChat; without it texts are generated. With --pretrained it begins with the weights of a pretrained T5 and scores them before and \
        after training.";
    const OPTIONS: &'static [CommandOption] = &[
        CommandOption::pretrained("Folder of a pretrained T5 of Hugging Face with its tokenizer.json: score it, and fine-tune it. --set prefix='summarize: ' sets the text \
            before each source [default: that with --task summary, otherwise none]").conflicts(&["model"]),
        CommandOption::new("task", "data.tasks", OptionValue::Words(&GenerationTask::NAMES), "Tasks, comma separated: summary, dialogue"),
    ];
    const MODELS: &'static [NamedModel] = MODELS;
    const DATA: &'static [&'static str] = &[
        "tokeniser",
        "pretrained",
        "prefix",
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
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = GenerationDataset;
    type Model = Seq2SeqTransformer;
    type Task<'a> = TextToTextTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        let attentions = "dot-product,synthesizer-dense,synthesizer-random,synthesizer-dense+dot-product,synthesizer-random+dot-product";
        config.compare(attentions, "");
        (config.model.layers, config.model.max_length) = (1, 96);
        let schedule = ScheduleConfig::Linear { warmup: 120, end: 1e-4 };
        config.training = TrainingConfig { steps: 1200, learning_rate: 4e-3, schedule, ..TrainingConfig::every(300) };
    }

    fn beneath(config: &Config<Self>) -> Result<Option<Table>, ExperimentError> {
        let prefix = || (config.own.data.tasks == [GenerationTask::Summary]).then(|| SUMMARIZE.to_owned());
        config.own.pretrained.as_deref().map(|folder| pretrained::beneath(folder, prefix())).transpose()
    }

    fn fit_model(name: &str, plain: &Config<Self>, own: &mut Config<Self>, attention: &Attention) -> Result<(), ExperimentError> {
        let tying = own.own.tying;
        models::fit(name, &plain.model, &mut own.model, |model| model.encoder_decoder(1, attention.layout.clone(), tying))
    }

    fn preset(preset: &Preset) -> Option<PaperModel> {
        PaperModel::of_encoder_decoder(preset)
    }

    fn rules() -> Vec<Rule<Self>> {
        vec![
            Rule::counts(&["data.batch_tokens", "data.turns", "data.test", "data.generated_pairs", "decoding.batch_tokens"]),
            Rule::used(
                &["prefix"],
                |candidate| candidate.config.own.pretrained.is_some(),
                "only sources of a pretrained model have a prefix; leave it out, or give --pretrained DIR",
            ),
            Rule::made(&["data.generated_pairs"], "with --data no pairs are generated; leave it out"),
            Rule::used(
                &["data.turns", "data.cider", "data.word_vectors"],
                |candidate| candidate.config.own.data.tasks.contains(&GenerationTask::Dialogue),
                "it applies to dialogues only; leave it out, or give --task dialogue",
            ),
            Rule::used(
                &["data.personas"],
                |candidate| candidate.config.run.data.is_some() && candidate.config.own.data.tasks.contains(&GenerationTask::Dialogue),
                "it selects the files of PersonaChat, and none are read; leave it out, or give --data DIR",
            ),
        ]
    }

    fn check(settings: &Settings<Config<Self>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let config = &settings.value;
        let Self { data, label_smoothing, decoding, pretrained, tokeniser, tying, .. } = &config.own;
        settings.require("data.tasks", !data.tasks.is_empty(), "no task is named; known are summary and dialogue")?;
        let has_one = data.tasks.len() <= 1 || config.run.data.is_none();
        settings.require("data.tasks", has_one, "a folder has the data of one task; name it with --task")?;
        decoding.check(settings, *label_smoothing)?;
        pretrained::check(settings, pretrained.as_deref(), (tokeniser, *tying), attentions)?;
        for attention in attentions {
            config.model(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &Config<Self>) -> Result<Vec<GenerationDataset>, ExperimentError> {
        config.own.data.tasks.iter().map(|&task| dataset(config, task)).collect()
    }

    fn card(data: &GenerationDataset) -> Card<'_> {
        let GenerationDataset { name, pairs: TextPairs { corpus, split }, tokeniser, vocabulary, train, valid, shortened, .. } = data;
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
        Card { vocabulary: *vocabulary, ..Card::of_texts(name, &corpus.sha256, description, tokeniser) }
    }

    fn batch_tokens(config: &Config<Self>, data: &GenerationDataset) -> usize {
        text_to_text::batch_tokens(&data.train, config.own.data.batch_tokens)
    }

    fn lengths(setup: Setup<'_, Self>) -> TrainingLengths {
        text_to_text::lengths(&setup.data.train, setup.config.model.max_length, setup.attention)
    }

    fn task(setup: Setup<'_, Self>) -> TextToTextTask<'_> {
        let GenerationDataset { train, valid, tokeniser, frame, .. } = setup.data;
        let Self { data, label_smoothing, decoding, .. } = &setup.config.own;
        TextToTextTask { train, valid, tokeniser, frame, batch_tokens: data.batch_tokens, label_smoothing: *label_smoothing, decoding }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Seq2SeqTransformer, ExperimentError> {
        let model = setup.config.model(setup.data.vocabulary, setup.attention).init(key, device);
        read_into(setup.config.own.pretrained.as_deref(), model)
    }

    fn score(setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let Setup { config, data: dataset, .. } = setup;
        let mut scores = Scores::default();
        let sets = dataset.pairs.corpus.tests.len();
        for (index, (name, pairs, references)) in dataset.tests(config).enumerate() {
            let sources = dataset.sources(config, pairs)?;
            let Some(hypotheses) = task.generate(model, &sources, "generating", interrupt) else { return Ok(None) };
            paths.write_hypotheses(name, &hypotheses)?;
            paths.write_references(name, &references.concat())?;
            let found = metrics(config, dataset, &hypotheses, &references);
            scores.items.push(items(name, &found, &references));
            let of = format!("{} texts, {}", pairs.len(), config.own.decoding);
            for Found { metric, value, signature, items } in found {
                let made_of = match items {
                    Items::Values(_) => ItemScore::new(name, "texts", Combination::Mean, &[metric]),
                    Items::Texts(kind) => ItemScore::of_texts(name, kind),
                };
                text_to_text::push_of_set(&mut scores, (index, sets, name), (metric, value, &signature), &of, made_of);
            }
        }
        if let (Some(checksums), Some((name, pairs, references))) = (&dataset.pretrained, dataset.tests(config).next()) {
            scores.notes.push(checksums.to_string());
            let before = Self::model(setup, &RandomKey::from_seed(0), &model.source.tokens.weight.device())?;
            let Some(perplexity) = task.perplexity(&before, interrupt) else { return Ok(None) };
            scores.push(PERPLEXITY_BEFORE, perplexity, "per token, of the pretrained weights");
            let sources = dataset.sources(config, pairs)?;
            let Some(hypotheses) = task.generate(&before, &sources, "generating", interrupt) else { return Ok(None) };
            if let Some(Found { metric, value, signature, .. }) = metrics(config, dataset, &hypotheses, &references).into_iter().next() {
                let signature = format!("{metric}, {signature}, test set {name}, {} texts, {}", pairs.len(), config.own.decoding);
                scores.push(BEFORE, value, signature);
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
        let before = percent(BEFORE).defined_as("the first metric, of the pretrained weights");
        names.map(percent).into_iter().chain([before, valid]).collect()
    }

    fn trivial_baselines(
        config: &GenerationConfig,
        data: &GenerationDataset,
        _interrupt: &Interrupt,
    ) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(Some(vec![trivial::baseline(config, data)]))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::text_generation()
    }

    fn texts(Setup { config, data, .. }: Setup<'_, Self>, count: usize) -> Vec<String> {
        text_to_text::texts(&data.pairs.corpus.tests, &data.frame, &data.tokeniser, config.model.max_length, count)
    }

    fn read(setup: Setup<'_, Self>, model: &Seq2SeqTransformer, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        Self::task(setup).read(model, text, setup.config.model.max_length, probe)
    }
}

fn dataset(config: &GenerationConfig, task: GenerationTask) -> Result<GenerationDataset, ExperimentError> {
    let GenerationData { turns, personas, generated_pairs, word_vectors, synonyms, .. } = &config.own.data;
    let (name, mut pairs) = match &config.run.data {
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
    let texts = pairs.corpus.train.iter().flat_map(|pair| [pair.source.as_str(), pair.target.as_str()]);
    let (folder, prefix) = (config.own.pretrained.as_deref(), config.own.prefix.as_deref());
    let Read { tokeniser, frame, vocabulary, checksums: pretrained } = Read::of(folder, prefix, &config.own.tokeniser, texts)?;
    if let Some(checksums) = &pretrained {
        pairs.corpus.sha256 = checksums.with_data(&pairs.corpus.sha256);
    }
    let mut shortened = 0;
    let mut encode = |pairs: &[Pair]| -> Result<Vec<TokenPair>, ExperimentError> {
        let encode = |pair: &Pair| {
            let source = kept_source(config, task, (&frame, &tokeniser), pair)?;
            let mut target = tokeniser.try_encode(&pair.target).map_err(ExperimentError::usage)?;
            let was_longer = target.len() >= config.model.max_length || source.len() == config.model.max_length;
            target.truncate(config.model.max_length - 1);
            shortened += usize::from(was_longer);
            Ok(TokenPair { source, target })
        };
        pairs.iter().map(encode).collect()
    };
    let valid = encode(&pairs.corpus.valid)?;
    let train = encode(&pairs.corpus.train)?;
    let vectors = word_vectors.as_deref().map(|path: &Path| WordVectors::read(path)).transpose().map_err(ExperimentError::failure)?;
    let synonyms = synonyms.as_deref().map(synonyms::read).transpose().map_err(ExperimentError::failure)?;
    let synonyms = synonyms.map(|file| Synonyms::new(&file.name, file.sets));
    Ok(GenerationDataset { name, task, pairs, tokeniser, frame, vocabulary, pretrained, train, valid, shortened, vectors, synonyms })
}

/// The tokens of a source that a model can read: of a document the first, since news begin with what matters, of a dialogue the last.
/// What stands around it stays.
fn kept_source(
    config: &GenerationConfig,
    task: GenerationTask,
    (frame, tokeniser): (&Frame, &Tokeniser),
    pair: &Pair,
) -> Result<Vec<u32>, ExperimentError> {
    let mut source = frame.source(tokeniser, &pair.source)?;
    let excess = source.len().saturating_sub(config.model.max_length);
    if excess > 0 {
        let last = source.len() - excess - usize::from(frame.ends_sources);
        let first = match task {
            GenerationTask::Summary => last,
            GenerationTask::Dialogue => tokeniser.try_encode(frame.prefix.trim_end()).map_err(ExperimentError::usage)?.len().min(last),
        };
        source.drain(first..first + excess);
    }
    Ok(source)
}
