//! Classification and regression of sentences and pairs, as in GLUE and SuperGLUE: the experiment `glue`.

mod config;
mod controls;
pub(crate) mod examples;
mod held_out;
mod initial;
mod items;
mod pretrained;
mod scoring;
mod task;
mod trivial;

use std::path::Path;

use burn::module::Module;
use heedful_data::generate::{self, Sizes};
use heedful_data::glue::{Example, GlueData, GlueTask, Label};
use heedful_data::tokenise::Tokeniser;
use heedful_host::checksum::sha256_hex;
use heedful_models::architectures::classifier::Classifier;
use heedful_models::pretrained::presets::Preset;
use heedful_runs::settings::Assignment;

use crate::session::experiment::definition::Prepare;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::Checksums;
use crate::tasks::swap::{FOLDER, contender};
use crate::train::batch::at_least_in_a_batch;

use self::examples::{Encoder, Frame, Part, Question, TokenExample};
pub use config::{Classification, ClassificationConfig, ClassificationData, Frozen};
pub(crate) use controls::check_pooling;
pub(crate) use initial::PreTrained;
pub(crate) use task::AVERAGE;
pub use task::{ClassificationBatch, ClassificationTask};
pub(crate) use trivial::baselines;

/// What models begin with.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// Initial weights.
    Afresh,
    /// Those of a pre-training.
    Run(PreTrained),
    /// Those of a pretrained model of Hugging Face.
    Folder(Checksums),
}

/// One or several tokenised tasks for one model.
#[derive(Debug)]
pub struct ClassificationDataset {
    pub(crate) name: String,
    pub(crate) sha256: String,
    pub(crate) tokeniser: Tokeniser,
    pub(crate) frame: Frame,
    /// Vocabulary size of models.
    pub(crate) vocabulary: usize,
    pub(crate) parts: Vec<Part>,
    /// Whether texts are told from each other: some task has pairs of them.
    pub(crate) segments: bool,
    pub(crate) truncated: usize,
    /// What else is to be said of the data.
    pub(crate) remark: String,
    pub(crate) start: Start,
}

impl ClassificationDataset {
    pub(crate) fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.question.outputs()).sum()
    }

    /// Tokens that the largest training batch has at least, where batches have so many at most.
    pub(crate) fn batch_tokens(&self, most: usize) -> usize {
        let of_part = |part: &Part| at_least_in_a_batch(part.train.iter().map(|example| example.tokens().len()), most);
        self.parts.iter().map(of_part).max().unwrap_or_default()
    }

    /// Tokens of each training example.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().flat_map(|part| &part.train).map(|example| example.tokens().len())
    }

    /// Training on it in batches of so many tokens.
    pub(crate) fn task(&self, batch_tokens: usize) -> ClassificationTask<'_> {
        ClassificationTask { parts: &self.parts, batch_tokens, segments: self.segments }
    }

    pub(crate) fn card(&self) -> Card<'_> {
        let part = |part: &Part| {
            let sets: Vec<_> = part.sets.iter().map(|(name, examples)| format!("{name} {}", examples.len())).collect();
            let name = if self.parts.len() == 1 { String::new() } else { format!("{}: ", part.name) };
            format!("{name}{} training examples; sets: {}", part.train.len(), sets.join(", "))
        };
        let parts: Vec<_> = self.parts.iter().map(part).collect();
        let description = format!(
            "{} ({}, {} examples over the maximal length cut off); {} tokens in the vocabulary",
            parts.join("; "),
            self.remark,
            self.truncated,
            self.tokeniser.vocabulary_size()
        );
        Card { vocabulary: self.vocabulary, ..Card::of_texts(&self.name, &self.sha256, description, &self.tokeniser) }
    }

    /// Texts of the last set of the first task, those of a pair with a tab between them.
    pub(crate) fn texts(&self, count: usize) -> Vec<String> {
        let Some((_, examples)) = self.parts.first().and_then(|part| part.sets.last()) else { return Vec::new() };
        let text = |example: &TokenExample| {
            let [first, second] = example.texts().map(|tokens| self.tokeniser.decode(tokens));
            if second.is_empty() { first } else { format!("{first}\t{second}") }
        };
        examples.iter().take(count).map(text).collect()
    }

    /// Shows a text, or two with a tab between them, to a model.
    ///
    /// # Errors
    /// If it is empty.
    pub(crate) fn read(
        &self,
        task: &ClassificationTask,
        model: &Classifier,
        text: &str,
        max_length: usize,
        probe: &mut Probe,
    ) -> Result<Reading, ExperimentError> {
        let (first, second) = text.split_once('\t').map_or((text, None), |(first, second)| (first, Some(second.to_owned())));
        let mut encoder = Encoder { tokeniser: &self.tokeniser, frame: self.frame, max_length, truncated: 0 };
        // What the answer is makes no difference.
        let example = &encoder.encode(&[Example::new(first, second, Label::Class(0))]).map_err(ExperimentError::usage)?[0];
        check_length(text, example.tokens().len().saturating_sub(2), max_length)?;
        task.show(model, example, probe);
        Ok(Reading { encoder: self.tokeniser.words(example.tokens()), ..Reading::default() })
    }
}

/// What `--swap` sets.
fn swapped(swaps: &[String]) -> Vec<Assignment> {
    [vec![Assignment::option("--swap", "swap", true)], contender::assignments(swaps)].concat()
}

impl Experiment for Classification {
    const NAME: &'static str = "glue";
    const TITLE: &'static str = "GLUE and SuperGLUE";
    const ABOUT: &'static str = "\
        Compare attention mechanisms on GLUE and SuperGLUE tasks, from scratch, after pre-training or in a pretrained encoder.\n\nTrains an encoder \
        for each task, attention and seed, and prints a table of each task's metrics on its development set with parameters, speed and memory. With \
        --mixture one model learns all tasks; with --init it starts from the weights of `mlm`, with --pretrained from those of a BERT, of a RoBERTa or \
        of a decoder. Without --data it uses built-in tasks of the same kinds.";
    const OPTIONS: &'static [CommandOption] = &[
        CommandOption::new("task", "data.tasks", OptionValue::Words(&[]), "Tasks, comma separated: CoLA, SST-2, MRPC, RTE, STS-B, WNLI, QNLI, QQP, MNLI; BoolQ, CB, COPA, WiC, MultiRC, ReCoRD, WSC"),
        CommandOption::new("mixture", "data.mixture", OptionValue::Flag, "Train one model on all tasks in turn"),
        CommandOption::new("init", "init", OptionValue::Path("RUN"), "Output folder of `mlm`: start from its weights and vocabulary"),
        CommandOption::new("init-seed", "init_seed", OptionValue::Seed, "Seed of the pre-training for all seeds [default: each seed starts from the run of the same seed]").requires(&["init"]),
        CommandOption::pretrained("Folder of a pretrained model of Hugging Face (BERT, Gemma-2, GPT-2, Llama, Mistral, Qwen-3, RoBERTa) with its tokenizer.json: fine-tune \
            it. --attention then replaces the attention of its layers before fine-tuning: uniform, layers.1-3=uniform [default: unchanged]").conflicts(&["init", "init-seed", "model"]),
        CommandOption::new("freeze", "freeze", OptionValue::Word("PART", &[]), "Part of the model that is not trained: encoder, so that only pooler and output are trained").conflicts(&["swap"]),
        CommandOption::new("reinitialise", "reinitialise", OptionValue::Flag, "Start the attentions that replace those of the pretrained model with initial weights in all projections, even where they could keep the model's").requires(&["pretrained"]),
        CommandOption::new("swap", "swap", OptionValue::Texts("LAYERS=NAME[,NAME...]", swapped), "Fine-tune the pretrained model first, then replace the attention of layers, and train for as many steps again: \
            'layers.*.attention=uniform,sliding-window', layers.0,2=uniform, layers.1-3=uniform; names alone apply to all layers. May be repeated; the \
            unchanged model is compared with them").conflicts(&["attention", "model", "slurm"]),
    ];
    const DATA: &'static [&'static str] = &[
        "tokeniser",
        "init",
        "init_seed",
        "pretrained",
        "swap",
        "data.tasks",
        "data.mixture",
        "data.held_out",
        "data.labelled_tests",
        "data.generated_examples",
        "model.max_length",
    ];
    const BATCH: &'static str = "data.batch_tokens";
    const READS_FILES: bool = true;
    const COLUMNS: &'static [&'static str] = GlueData::COLUMNS;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = ClassificationDataset;
    type Model = Classifier;
    type Task<'a> = ClassificationTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        config.compare("dot-product,synthesizer-dense,synthesizer-random,synthesizer-random+dot-product,gaussian", "");
        let schedule = ScheduleConfig::Linear { warmup: 80, end: 1e-5 };
        config.training = TrainingConfig { steps: 800, learning_rate: 3e-3, schedule, log_every: 25, ..TrainingConfig::every(100) };
    }

    fn beneath(config: &ClassificationConfig) -> Result<Option<Table>, ExperimentError> {
        match (&config.own.pretrained, &config.own.init) {
            (Some(folder), _) => pretrained::beneath(folder).map(Some),
            (None, Some(init)) => PreTrained::at(init).beneath(),
            (None, None) => Ok(None),
        }
    }

    fn within(config: &mut ClassificationConfig, out: &Path) {
        config.own.place = Some(out.join(FOLDER));
    }

    fn attention_named(config: &ClassificationConfig, name: &str) -> Option<Result<Attention, ExperimentError>> {
        match &config.own.pretrained {
            Some(folder) => Some(pretrained::attention(config, folder, name)),
            None if config.own.swap => {
                let problem = "--swap: the attention of a pretrained model is replaced, and there is none; give --pretrained DIR";
                Some(Err(ExperimentError::usage(problem)))
            }
            None => None,
        }
    }

    fn preset(preset: &Preset) -> Option<PaperModel> {
        PaperModel::of_classifier(preset)
    }

    fn rules() -> Vec<Rule<Self>> {
        vec![
            Rule::counts(&["data.batch_tokens", "data.generated_examples"]),
            Rule::used(
                &["data.mixture"],
                |candidate| candidate.config.own.data.tasks.len() > 1,
                "one task is no mixture; leave it out, or name more of them in data.tasks",
            ),
            Rule::made(&["data.generated_examples"], "with --data no examples are generated; leave it out"),
        ]
    }

    fn check(settings: &Settings<ClassificationConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let Config { model, own: Classification { data, init, init_seed, .. }, .. } = &settings.value;
        let names: Vec<_> = GlueTask::ALL.iter().map(|task| task.name()).collect();
        settings.require("data.tasks", !data.tasks.is_empty(), format!("no task is named; known are {}", names.join(", ")))?;
        for (index, task) in data.tasks.iter().enumerate() {
            settings.require("data.tasks", !data.tasks[..index].contains(task), format!("{} is named twice", task.name()))?;
        }
        let remedy = "only a pre-training has such a seed; give --init RUN, or leave it out";
        settings.require("init_seed", init.is_some() || init_seed.is_none(), remedy)?;
        let remedy = "the class token, two separators and a token of each sentence need at least 5";
        settings.require("model.max_length", model.max_length >= 5, remedy)?;
        controls::check(settings, attentions)?;
        pretrained::check(settings)?;
        for attention in attentions {
            settings.value.model(1, 2, true, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &ClassificationConfig) -> Result<Vec<ClassificationDataset>, ExperimentError> {
        let read = config.own.data.tasks.iter().map(|&task| read(config, task)).collect::<Result<Vec<_>, _>>()?;
        if config.own.data.mixture {
            return dataset(config, &read).map(|dataset| vec![dataset]);
        }
        read.iter().map(|task| dataset(config, std::slice::from_ref(task))).collect()
    }

    fn card(data: &ClassificationDataset) -> Card<'_> {
        data.card()
    }

    fn fits(Setup { config, data, attention }: Setup<'_, Self>) -> Result<(), ExperimentError> {
        let Start::Run(run) = &data.start else { return Ok(()) };
        config.run.seeds().try_for_each(|seed| run.check(&attention.name, config.seed_of_init(seed)))
    }

    fn batch_tokens(config: &ClassificationConfig, data: &ClassificationDataset) -> usize {
        data.batch_tokens(config.own.data.batch_tokens)
    }

    fn prepare(preparation: &impl Prepare<Self>) -> Result<Completion, ExperimentError> {
        let config = preparation.config();
        if config.own.swap { preparation.first(config.first(), preparation.datasets(), FOLDER) } else { Ok(Completion::Finished) }
    }

    fn lengths(Setup { config, data, attention }: Setup<'_, Self>) -> TrainingLengths {
        TrainingLengths::new(&attention.layout, config.model.max_length).encoder(data.lengths())
    }

    fn task(Setup { config, data, .. }: Setup<'_, Self>) -> ClassificationTask<'_> {
        data.task(config.own.data.batch_tokens)
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Classifier, ExperimentError> {
        let Setup { config, data, attention } = setup;
        let initial = || config.model(data.vocabulary, data.outputs(), data.segments, attention).init(key, device);
        let mut model = match &data.start {
            Start::Afresh => initial(),
            Start::Run(run) => run.load(initial(), &attention.name, config.seed_of_init(config.run.seed))?,
            Start::Folder(checksums) => pretrained::model(setup, checksums.folder(), key, device)?,
        };
        if config.own.freeze == Some(Frozen::Encoder) {
            model.embedding = model.embedding.freeze();
            model.encoder = model.encoder.freeze();
        }
        Ok(model)
    }

    fn of_seed(config: &ClassificationConfig, seed: u64) -> ClassificationConfig {
        let mut own = config.clone();
        own.run.seed = seed;
        own
    }

    fn score(setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let Setup { config, data, .. } = setup;
        let Some(mut scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        match &data.start {
            Start::Afresh => {}
            Start::Run(run) => {
                let seed = config.seed_of_init(config.run.seed);
                let all = if config.own.init_seed.is_some() { ", as all seeds did" } else { "" };
                scores.notes.push(format!("began with the weights of {run}, seed {seed}{all}"));
            }
            Start::Folder(checksums) => {
                scores.notes.push(checksums.to_string());
                let device = model.embedding.tokens.weight.device();
                let folder = checksums.folder();
                if !pretrained::score(setup, folder, (task, &mut scores), (&device, paths), interrupt)? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        let column = |name: &str| MetricColumn::new(name, name).percent().higher_is_better();
        let single = ["matthews", "accuracy", "f1", "macro_f1", "f1a", "em", "pearson", "spearman", "dev_mismatched/accuracy", AVERAGE];
        let of_tests = ["test/f1", "test/accuracy", "test/pearson", "test/spearman"];
        // Of a mixture each task has its own.
        let of_task = |task: GlueTask| task.metrics().iter().map(move |metric| column(&format!("{task}/{metric}")));
        let (before, after) = pretrained::columns();
        let tasks = single.into_iter().chain(of_tests).map(column).chain(GlueTask::ALL.into_iter().flat_map(of_task));
        before.into_iter().chain(tasks).chain(after).collect()
    }

    fn trivial_baselines(
        config: &ClassificationConfig,
        data: &ClassificationDataset,
        interrupt: &Interrupt,
    ) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(baselines(&data.task(config.own.data.batch_tokens), interrupt))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::glue()
    }

    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        setup.data.texts(count)
    }

    fn read(setup: Setup<'_, Self>, model: &Classifier, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        setup.data.read(&Self::task(setup), model, text, setup.config.model.max_length, probe)
    }
}

fn read(config: &ClassificationConfig, task: GlueTask) -> Result<GlueData, ExperimentError> {
    match &config.run.data {
        Some(dir) => {
            let columns = config.run.column_names();
            let read = if config.own.data.labelled_tests { GlueData::read_with_labelled_test } else { GlueData::read_columns };
            read(dir, task, &columns).map_err(ExperimentError::failure)
        }
        None => {
            let sizes = Sizes { train: config.own.data.generated_examples, ..Sizes::GLUE };
            let key = RandomKey::from_seed(0).named("glue data");
            generate::glue(task, &key, sizes).map_err(ExperimentError::usage)
        }
    }
}

/// The data set of one task, or of several for one model.
fn dataset(config: &ClassificationConfig, read: &[GlueData]) -> Result<ClassificationDataset, ExperimentError> {
    let tasks: Vec<_> = read.iter().map(|data| data.task.name()).collect();
    let prefix = if config.run.data.is_some() { "" } else { "built-in " };
    let (name, sha256) = match read {
        [only] => (format!("{prefix}{}", only.task), only.sha256.clone()),
        _ => {
            let all: Vec<_> = read.iter().map(|data| format!("{} {}", data.task, data.sha256)).collect();
            (format!("{prefix}mixture of {}", tasks.join(", ")), sha256_hex(all.join("\n").as_bytes()))
        }
    };
    // A model that goes on from another has all that the other had.
    let has_pairs = read.iter().any(|data| data.task.sentence_columns().len() == 2);
    let (start, tokeniser, frame, vocabulary, segments) = match (&config.own.pretrained, &config.own.init) {
        (Some(folder), _) => {
            let pretrained::Read { tokeniser, frame, vocabulary, segments, checksums } = pretrained::Read::of(folder)?;
            (Start::Folder(checksums), tokeniser, frame, vocabulary, segments)
        }
        (None, Some(init)) => {
            let run = PreTrained::open(init)?;
            match run.pretrained()? {
                Some(pretrained::Read { tokeniser, frame, vocabulary, segments, .. }) => {
                    (Start::Run(run), tokeniser, frame, vocabulary, segments)
                }
                None => {
                    let tokeniser = run.tokeniser()?;
                    let vocabulary = tokeniser.vocabulary_size();
                    (Start::Run(run), tokeniser, Frame::OWN, vocabulary, true)
                }
            }
        }
        (None, None) => {
            let examples = read.iter().flat_map(|data| &data.train);
            let lines = examples.flat_map(|example| std::iter::once(&*example.first).chain(example.second.as_deref()));
            let tokeniser = Tokeniser::train(&config.own.tokeniser, lines).map_err(ExperimentError::usage)?;
            let vocabulary = tokeniser.vocabulary_size();
            (Start::Afresh, tokeniser, Frame::OWN, vocabulary, has_pairs)
        }
    };
    let mut encoder = Encoder { tokeniser: &tokeniser, frame, max_length: config.model.max_length, truncated: 0 };
    let mut encode = |examples: &[Example]| encoder.encode(examples).map_err(ExperimentError::usage);
    let mut parts: Vec<Part> = Vec::with_capacity(read.len());
    let share = config.own.data.held_out;
    for data in read {
        let (train, chosen) = held_out::divided(encode(&data.train)?, share, data.task.name())?;
        let scored = data.dev.iter().chain(&data.labelled_test).map(|(name, examples)| Ok((name.clone(), encode(examples)?)));
        let scored = scored.collect::<Result<Vec<_>, ExperimentError>>()?;
        parts.push(Part {
            name: data.task.name().to_owned(),
            question: Question::from(data.task),
            first_output: parts.last().map_or(0, |part| part.first_output + part.question.outputs()),
            train,
            scored_from: usize::from(chosen.is_some()),
            sets: chosen.into_iter().map(|examples| (held_out::SET.to_owned(), examples)).chain(scored).collect(),
        });
    }
    let truncated = encoder.truncated;
    if truncated > 0 {
        tracing::warn!(
            "{name}: {truncated} examples are longer than model.max_length = {} tokens and are cut off",
            config.model.max_length
        );
    }
    let unlabelled: usize = read.iter().flat_map(|data| &data.without_gold_label).map(|(_, rows)| rows).sum();
    let remark = format!("{unlabelled} rows without a gold label left out");
    let sha256 = match &start {
        Start::Afresh => sha256,
        Start::Run(run) => sha256_hex(format!("{sha256} {}", run.sha256()?).as_bytes()),
        Start::Folder(checksums) => checksums.with_data(&sha256),
    };
    Ok(ClassificationDataset { name, sha256, tokeniser, frame, vocabulary, parts, segments, truncated, remark, start })
}
