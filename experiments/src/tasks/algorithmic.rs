//! Questions with one correct answer: the experiment `algorithmic`.
//!
//! A decoder-only Transformer reads a question and continues with its answer; only the answer counts in training. Tasks are those that Universal Transformers
//! and Reformer are known by, ListOps and bAbI.

mod config;
mod models;
mod scoring;

use heedful_attention::mechanisms::lsh::LshConfig;
use heedful_data::exercise::{Exercise, ExerciseTask, Exercises};
use heedful_data::tokenise::{END, Tokeniser, TokeniserConfig};
use heedful_data::{babi, generate, list_ops};
use heedful_host::whole_files::write_atomically;
use heedful_models::architectures::language_model::LanguageModel;

use crate::tasks::answers::{Answering, ExerciseSets, QUESTIONS, TEST_SET, TokenExercise, accuracy_columns};
use crate::tasks::prelude::*;
use crate::tasks::scoring::Tally;

use config::ROUNDS;
pub use config::{Algorithmic, AlgorithmicConfig, AlgorithmicData};
use scoring::{HaltingSteps, halting, with_rounds};

/// Exercises of the test set whose halting steps are written down.
const HALTING_SHOWN: usize = 50;
/// Where a run shows them.
const HALTING_FILE: &str = "halting.txt";
/// Their mean over the positions of questions, stories included.
const QUESTION_STEPS: &str = "halting steps of questions";
/// The file of its items.
const HALTING_SET: &str = "halting steps";

/// A tokenised task.
#[derive(Debug)]
pub struct AlgorithmicDataset {
    name: String,
    sha256: String,
    source: String,
    tokeniser: Tokeniser,
    exercises: ExerciseSets,
    /// Exercises that lost the beginning of their question, and those that were left out, because they are too long.
    shortened: usize,
    left_out: usize,
}

impl Experiment for Algorithmic {
    const NAME: &'static str = "algorithmic";
    const TITLE: &'static str = "Questions with one right answer";
    const ABOUT: &'static str = "\
        Compare models on questions with one correct answer: algorithmic tasks, ListOps and bAbI.\n\nTrains a decoder-only Transformer for each task, \
        each model of --model or attention of --attention, and each seed, and prints a table of accuracies: of answer tokens and of whole answers, on \
        questions of the training lengths and on longer ones. Models that halt also show their mean number of steps. Models with LSH attention are \
        also scored with other numbers of rounds.";
    const OPTIONS: &'static [CommandOption] = &[CommandOption::new(
        "task",
        "data.tasks",
        OptionValue::Words(&[]),
        "Tasks, comma separated: copy, reverse, addition, duplication, list-ops, babi-1 to babi-20 (the last with --data)",
    )];
    const MODELS: &'static [NamedModel] = models::MODELS;
    const DATA: &'static [&'static str] = &[
        "data.tasks",
        "data.length",
        "data.longer",
        "data.symbols",
        "data.babi_set",
        "data.generated_examples",
        "data.generated_test",
        "model.max_length",
    ];
    const BATCH: &'static str = "data.batch_tokens";
    const READS_FILES: bool = true;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = AlgorithmicDataset;
    type Model = LanguageModel;
    type Task<'a> = Answering<'a>;

    fn defaults(config: &mut Config<Self>) {
        config.compare("", "transformer,universal,universal-act");
        config.model = ModelSettings { layers: 4, max_length: 128, dropout: 0.0, ..ModelSettings::default() };
        let schedule = ScheduleConfig::Linear { warmup: 100, end: 1e-5 };
        config.training = TrainingConfig { steps: 1000, learning_rate: 2e-3, schedule, log_every: 25, ..TrainingConfig::every(250) };
    }

    fn rules() -> Vec<Rule<Self>> {
        fn some(candidate: &Candidate<Algorithmic>, is_meant: fn(&ExerciseTask) -> bool) -> bool {
            candidate.config.own.data.tasks.iter().any(is_meant)
        }
        vec![
            Rule::counts(&["data.batch_tokens", "data.generated_examples", "data.generated_test"]),
            Rule::within(&["data.length", "data.symbols"], 2.0, 1e6),
            Rule::within(&["data.longer"], 0.0, 1e6),
            Rule::used(
                &["data.length", "data.longer", "data.generated_examples", "data.generated_test"],
                |candidate| some(candidate, |task| !matches!(task, ExerciseTask::Babi(_))),
                "the questions of bAbI are read; leave it out",
            ),
            Rule::used(
                &["data.symbols"],
                |candidate| some(candidate, |task| matches!(task, ExerciseTask::Copy | ExerciseTask::Reverse | ExerciseTask::Duplication)),
                "it applies to copy, reverse and duplication; leave it out, or name one of them in data.tasks",
            ),
            Rule::used(
                &["data.babi_set"],
                |candidate| some(candidate, |task| matches!(task, ExerciseTask::Babi(_))),
                "it applies to bAbI; leave it out, or name one of its tasks in data.tasks",
            ),
            Rule::used(
                &["data.rounds"],
                |candidate| candidate.attention.layout.decoder.mechanisms().iter().any(|own| own.get::<LshConfig>().is_some()),
                "it applies to LSH attention, which no model of this command has; leave it out, or give --attention lsh",
            ),
        ]
    }

    fn check(settings: &Settings<AlgorithmicConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let Algorithmic { data, .. } = &settings.value.own;
        let problem = format!("no task is named; known are {}", ExerciseTask::NAMES.join(", "));
        settings.require("data.tasks", !data.tasks.is_empty(), problem)?;
        for (index, task) in data.tasks.iter().enumerate() {
            settings.require("data.tasks", !data.tasks[..index].contains(task), format!("{task} is named twice"))?;
        }
        for attention in attentions {
            settings.value.model(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &AlgorithmicConfig) -> Result<Vec<AlgorithmicDataset>, ExperimentError> {
        config.own.data.tasks.iter().map(|&task| dataset(config, task)).collect()
    }

    fn card(data: &AlgorithmicDataset) -> Card<'_> {
        let description = format!(
            "{}; {} training, {} validation, {} test and {} longer test questions ({} lost their first words and {} were left out, being longer than \
             model.max_length); {} tokens in the vocabulary",
            data.source,
            data.exercises.train.len(),
            data.exercises.valid.len(),
            data.exercises.test.len(),
            data.exercises.longer.len(),
            data.shortened,
            data.left_out,
            data.tokeniser.vocabulary_size()
        );
        Card::of_texts(&data.name, &data.sha256, description, &data.tokeniser)
    }

    fn batch_tokens(config: &AlgorithmicConfig, data: &AlgorithmicDataset) -> usize {
        data.exercises.batch_tokens(config.own.data.batch_tokens)
    }

    fn task(setup: Setup<'_, Self>) -> Answering<'_> {
        Answering { exercises: &setup.data.exercises, batch_tokens: setup.config.own.data.batch_tokens }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<LanguageModel, ExperimentError> {
        Ok(setup.config.model(setup.data.tokeniser.vocabulary_size(), setup.attention).init(key, device))
    }

    fn score(setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let Some(mut scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        let AlgorithmicDataset { exercises: ExerciseSets { test, .. }, tokeniser, .. } = setup.data;
        for &rounds in &setup.config.own.data.rounds {
            let Some(model) = with_rounds(model, rounds) else { break };
            let Some(answers) = task.answers(&model, test, interrupt) else { return Ok(None) };
            let signature = format!("token accuracy, test set, {} questions", test.len());
            let metric = rounds_metric(rounds);
            scores.push(&metric, answers.token_accuracy(), signature);
            let set = format!("{TEST_SET}, {metric}");
            scores.push_items(&metric, Tally::of_tokens(&set, QUESTIONS));
            scores.items.push(answers.items(&set, test.iter().map(TokenExercise::identity)));
        }
        let shown = &test[..test.len().min(HALTING_SHOWN)];
        if let Some(HaltingSteps { text, mean, of_questions }) = halting(model, shown, tokeniser) {
            write_atomically(&paths.root().join(HALTING_FILE), text.as_bytes())?;
            scores.push("halting steps", mean, format!("mean over the positions of {} test questions", shown.len()));
            let sum = |column: usize| of_questions.iter().map(|row| row[column]).sum::<f64>();
            let signature = format!("mean over the positions before the answers of {} test questions", shown.len());
            scores.push(QUESTION_STEPS, sum(0) / sum(1), signature);
            scores.push_items(QUESTION_STEPS, ItemScore::new(HALTING_SET, "questions", Combination::Ratio, &["steps", "positions"]));
            let mut table = ItemTable::new(HALTING_SET, &["steps", "positions"]);
            // Questions are told from each other by their numbers, so that those of two tasks can be compared.
            for (number, row) in of_questions.iter().enumerate() {
                table.push_tokens([number as i64], row);
            }
            scores.items.push(table);
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        let mut columns = accuracy_columns();
        columns.push(
            MetricColumn::new("halting steps", "steps").defined_as("of each position, 50 of the test questions").shown_in(HALTING_FILE),
        );
        columns
            .push(MetricColumn::new(QUESTION_STEPS, "question steps").defined_as("of each position before the answer, the same questions"));
        columns.extend(ROUNDS.map(|rounds| {
            let label = if rounds == 0 { "full".to_owned() } else { format!("LSH-{rounds}") };
            let accuracy = MetricColumn::new(&rounds_metric(rounds), &label).percent().higher_is_better();
            accuracy.defined_as("the same weights, tested with so many rounds of hashing")
        }));
        columns
    }

    fn trivial_baselines(
        config: &AlgorithmicConfig,
        data: &AlgorithmicDataset,
        _interrupt: &Interrupt,
    ) -> Interruptible<Vec<TrivialBaseline>> {
        let task = Answering { exercises: &data.exercises, batch_tokens: config.own.data.batch_tokens };
        Ok(Some(vec![task.trivial_baseline()]))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::algorithmic()
    }

    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        let AlgorithmicDataset { tokeniser, exercises, .. } = setup.data;
        let text = |exercise: &TokenExercise| {
            let (question, answer) = exercise.tokens.split_at(exercise.question);
            format!("{}\t{}", tokeniser.decode(question), tokeniser.decode(&answer[..answer.len() - 1]))
        };
        exercises.test.iter().take(count).map(text).collect()
    }

    fn read(setup: Setup<'_, Self>, model: &LanguageModel, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        let tokeniser = &setup.data.tokeniser;
        let (question, answer) = text.split_once('\t').unwrap_or((text, ""));
        let mut tokens = tokeniser.encode(question);
        let question = tokens.len();
        tokens.extend(tokeniser.encode(answer));
        check_length(text, tokens.len(), setup.config.model.max_length)?;
        let words = tokeniser.words(&tokens);
        tokens.push(END);
        Answering::show(model, &TokenExercise { tokens, question }, probe);
        Ok(Reading { decoder: words, ..Reading::default() })
    }
}

/// Name of the accuracy with so many rounds.
fn rounds_metric(rounds: usize) -> String {
    if rounds == 0 { "token accuracy with full attention".to_owned() } else { format!("token accuracy with {rounds} rounds") }
}

fn dataset(config: &AlgorithmicConfig, task: ExerciseTask) -> Result<AlgorithmicDataset, ExperimentError> {
    let exercises = exercises(config, task)?;
    let texts: Vec<String> = exercises.train.iter().map(Exercise::text).collect();
    let tokeniser = TokeniserConfig::Word { vocabulary: None, min_frequency: 1 };
    let tokeniser = Tokeniser::train(&tokeniser, texts.iter().map(String::as_str)).map_err(ExperimentError::usage)?;
    let (mut shortened, mut left_out) = (0, 0);
    let longest = config.model.max_length;
    let mut encode = |exercises: &[Exercise]| -> Vec<TokenExercise> {
        let encoded = exercises.iter().filter_map(|exercise| {
            let mut tokens = tokeniser.encode(&exercise.question.join(" "));
            let question = tokens.len();
            tokens.extend(tokeniser.encode(&exercise.answer.join(" ")));
            tokens.push(END);
            // The end token is predicted and not read.
            let excess = (tokens.len() - 1).saturating_sub(longest);
            match excess {
                0 => Some(TokenExercise { tokens, question }),
                _ if task.can_lose_beginning() && excess < question => {
                    shortened += 1;
                    Some(TokenExercise { tokens: tokens.split_off(excess), question: question - excess })
                }
                _ => {
                    left_out += 1;
                    None
                }
            }
        });
        encoded.collect()
    };
    let [train, valid, test, longer] = [&exercises.train, &exercises.valid, &exercises.test, &exercises.longer].map(|split| encode(split));
    for (split, exercises) in [("training", &train), ("validation", &valid), ("test", &test)] {
        if exercises.is_empty() {
            return Err(ExperimentError::usage(format!(
                "{task}: no {split} question has at most model.max_length = {longest} tokens; give --set model.max_length=N with a greater N"
            )));
        }
    }
    if shortened + left_out > 0 {
        tracing::warn!(
            "{task}: of the questions over model.max_length = {longest} tokens {shortened} lose their first words, {left_out} are left out"
        );
    }
    let name = if config.run.data.is_some() { task.to_string() } else { format!("built-in {task}") };
    let Exercises { sha256, source, .. } = exercises;
    let exercises = ExerciseSets { train, valid, test, longer };
    Ok(AlgorithmicDataset { name, sha256, source, tokeniser, exercises, shortened, left_out })
}

/// The exercises of a task: from files where there are some, or made here.
fn exercises(config: &AlgorithmicConfig, task: ExerciseTask) -> Result<Exercises, ExperimentError> {
    let made = || {
        let key = RandomKey::from_seed(0).named("exercises").named(&task.to_string());
        generate::exercises(task, &key, config.own.data.shape(), config.own.data.sizes()).map_err(ExperimentError::usage)
    };
    match (task, &config.run.data) {
        (ExerciseTask::Babi(number), Some(dir)) => babi::read(dir, &config.own.data.babi_set, number).map_err(ExperimentError::failure),
        (ExerciseTask::ListOps, Some(dir)) => {
            let files = list_ops::read(dir).map_err(ExperimentError::failure)?;
            let Exercises { mut train, mut valid, sha256, .. } = made()?;
            let mut source = "test set read, training made here".to_owned();
            if let Some(read) = files.train {
                train = read;
                valid = files.valid.unwrap_or_else(|| train.split_off(train.len() - train.len() / 10));
                "training and test set read".clone_into(&mut source);
            }
            let sha256 = format!("{} {sha256}", files.sha256);
            Ok(Exercises { train, valid, test: files.test, longer: Vec::new(), source, sha256 })
        }
        (_, None) => made(),
        (_, Some(_)) => Err(ExperimentError::usage(format!("{task} is generated and reads no files; leave --data out"))),
    }
}
