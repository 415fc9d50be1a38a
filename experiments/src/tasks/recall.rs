//! Recall and the tracking of states: the experiments `recall` and `track`.
//!
//! A decoder reads generated sequences ([`sequences`](heedful_data::generate::sequences)) and predicts a target token at some of their positions; loss and
//! accuracy cover only these positions. Both experiments are one, [`Sequences`], over different tasks.

mod config;
mod rebuilding;
mod task;

use heedful_attention::description::AnyMechanism;
use heedful_data::generate::sequences::{Purpose, ScoredSequence, SequenceTask};
use heedful_host::checksum::sha256_hex;
use heedful_models::parts::position::PositionConfig;
use heedful_runs::record::STATE_BYTES;

use crate::session::footprint::{self, Memory};
use crate::tasks::prelude::*;

pub use config::{Family, Recall, RecallFamily, SequenceData, Sequences, Track, TrackFamily};
pub use rebuilding::{Reader, Rebuilding};
pub use task::{SequenceBatch, SequenceLearning};
use task::{columns, row};

/// Training sequences that the checksum of a data set is of, beside all others.
const CHECKED: usize = 64;

/// The sequences of a task. Those of training are drawn when they are needed.
#[derive(Debug)]
pub struct SequenceSet {
    task: SequenceTask,
    /// What sequences are drawn from.
    key: RandomKey,
    train: usize,
    valid: Vec<ScoredSequence>,
    /// Name, whether it is longer than those of training, and sequences of each level.
    test: Vec<(String, bool, Vec<ScoredSequence>)>,
    name: String,
    sha256: String,
    description: String,
}

impl SequenceSet {
    fn new(data: &SequenceData) -> Result<Self, ExperimentError> {
        let SequenceData { ref task, train, valid, test, .. } = *data;
        let name = match task {
            SequenceTask::Words(words) => format!("words {}", words.group),
            task => task.name().to_owned(),
        };
        let key = RandomKey::from_seed(0).named("sequences").named(task.name());
        let levels = task.levels();
        let drawn = |split: &str, level: usize, count: usize| -> Vec<ScoredSequence> {
            let key = key.named(split).numbered(level as u64);
            (0..count).map(|index| task.draw(level, Purpose::Scoring, &key.numbered(index as u64))).collect()
        };
        let trained = levels.iter().filter(|level| !level.longer).count();
        let set = Self {
            valid: (0..trained).flat_map(|level| drawn("valid", level, valid)).collect(),
            test: levels.iter().enumerate().map(|(index, level)| (level.name.clone(), level.longer, drawn("test", index, test))).collect(),
            task: task.clone(),
            key: key.named("train"),
            train,
            name,
            sha256: String::new(),
            description: String::new(),
        };
        let written = serde_json::to_string(task).map_err(ExperimentError::failure)?;
        let names: Vec<&str> = levels.iter().map(|level| level.name.as_str()).collect();
        let description = format!(
            "the task {written}; {train} training sequences, for each of {trained} levels {valid} validation sequences, {test} test sequences of each level \
             ({}); {} tokens; whoever always tells the most frequent of those that are asked for is right {:.1} % of the time{}",
            names.join("; "),
            task.vocabulary(),
            100.0 * set.most_frequent(),
            match task {
                SequenceTask::Mqar(_) => ", and whoever tells any value of the sequence, 1 time in n",
                _ => "",
            }
        );
        let first: Vec<ScoredSequence> = (0..CHECKED.min(train)).map(|index| set.training(index)).collect();
        let sha256 = sha256_hex(format!("{description} {first:?} {:?} {:?}", set.valid, set.test).as_bytes());
        Ok(Self { sha256, description, ..set })
    }

    /// The share of the most frequent token among those that are asked for in the tests of levels of training.
    fn most_frequent(&self) -> f64 {
        let mut counts = vec![0u64; self.task.vocabulary()];
        let trained = self.test.iter().filter(|(_, longer, _)| !longer).flat_map(|(.., sequences)| sequences);
        trained.flat_map(|sequence| &sequence.targets).for_each(|&(_, token)| counts[token as usize] += 1);
        counts.iter().copied().max().unwrap_or_default() as f64 / counts.iter().sum::<u64>() as f64
    }

    /// Levels that are trained on.
    fn trained(&self) -> usize {
        self.test.iter().filter(|(_, longer, _)| !longer).count()
    }

    /// Most tokens of a sequence of training.
    fn length(&self) -> usize {
        self.task.levels().iter().filter(|level| !level.longer).map(|level| level.length).max().unwrap_or(1)
    }

    /// The training sequence of this number; levels take turns.
    fn training(&self, index: usize) -> ScoredSequence {
        self.task.draw(index % self.trained(), Purpose::Training, &self.key.numbered(index as u64))
    }
}

impl<F: Family> Experiment for Sequences<F> {
    const NAME: &'static str = F::NAME;
    const TITLE: &'static str = F::TITLE;
    const ABOUT: &'static str = F::ABOUT;
    const EXAMPLES: &'static [&'static str] = &[
        "--list",
        "--attention dot-product",
        "--attention dot-product,synthesizer-random,gaussian --seeds 3 --out runs/comparison",
        "--attention dot-product --set training.learning_rates=[3e-4] --steps 500",
        "--config runs/comparison/config.toml --out runs/again",
    ];
    const OPTIONS: &'static [CommandOption] = &[CommandOption::new(
        "task",
        "data.task.kind",
        OptionValue::Word("NAME", F::TASKS),
        "Task; its options are set with --set data.task.NAME=VALUE",
    )];
    const MODELS: &'static [NamedModel] = config::MODELS;
    const DATA: &'static [&'static str] = &["data.task", "data.train", "data.valid", "data.test"];
    const BATCH: &'static str = "data.batch";
    const HAS_PADDING: bool = false;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = SequenceSet;
    type Model = Reader;
    type Task<'a> = SequenceLearning<'a>;

    fn defaults(config: &mut Config<Self>) {
        F::defaults(config);
    }

    fn rules() -> Vec<Rule<Self>> {
        vec![
            Rule::counts(&["data.batch", "data.train", "data.valid", "data.test"]),
            Rule::used(
                &["model.position_offset"],
                |candidate| {
                    let is_plain = |own: &AnyMechanism| own.family() == AnyMechanism::default().family();
                    candidate.config.model.max_length > candidate.config.own.data.task.longest()
                        && (candidate.config.model.positions != PositionConfig::None
                            || !candidate.attention.layout.decoder.mechanisms().iter().all(is_plain))
                },
                "no position is told, or the longest sequence leaves no room; leave it out, or give model.positions and a larger model.max_length",
            ),
        ]
    }

    fn check(settings: &Settings<Config<Self>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let config = &settings.value;
        let SequenceData { task, .. } = &config.own.data;
        let kinds = F::TASKS.join(", ");
        settings.require(
            "data.task.kind",
            F::TASKS.contains(&task.name()),
            format!("{} has the tasks {kinds}; give one of them", F::NAME),
        )?;
        task.validate().map_err(|error| settings.refuse(&format!("data.task.{}", error.field), error.reason))?;
        let is_even = config.model.d_model.is_multiple_of(2);
        settings.require("model.d_model", !task.is_rebuilt() || is_even, "sequences are rebuilt with sinusoids; give an even number")?;
        let has_other_layers = config.own.first_layer.is_none() || config.model.layers > 1;
        settings.require("first_layer", has_other_layers, "there is no other layer; give model.layers at least 2, or first_layer=unset")?;
        if let Some(first) = &config.own.first_layer {
            // The estimate of the whole model does not know of it.
            let single = Config { model: ModelSettings { layers: 1, ..config.model.clone() }, ..config.clone() };
            footprint::check::<Self>(settings, &single, &Attention::new(first.clone()), None, Memory::here())?;
        }
        let mut without_first = config.clone();
        without_first.own.first_layer = None;
        for attention in attentions {
            // What the first layer replaces has to fit as well: a list of three for two layers is a mistake.
            without_first.language_model(attention).validate().map_err(ExperimentError::usage)?;
            config.language_model(attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &Config<Self>) -> Result<Vec<SequenceSet>, ExperimentError> {
        Ok(vec![SequenceSet::new(&config.own.data)?])
    }

    fn card(data: &SequenceSet) -> Card<'_> {
        Card { vocabulary: data.task.vocabulary(), ..Card::new(data.name.as_str(), &data.sha256, data.description.clone()) }
    }

    fn lengths(Setup { config, data, attention }: Setup<'_, Self>) -> TrainingLengths {
        let model = config.language_model(attention);
        let levels = data.task.levels().into_iter().filter(|level| !level.longer).map(|level| level.length);
        TrainingLengths::new(&attention.layout, model.block.max_length).decoder_attention(model.attention).decoder(levels)
    }

    fn max_length(config: &Config<Self>) -> usize {
        config.max_length()
    }

    fn task(setup: Setup<'_, Self>) -> SequenceLearning<'_> {
        SequenceLearning { set: setup.data, batch: setup.config.own.data.batch }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Reader, ExperimentError> {
        Ok(Reader::new(&setup.config.language_model(setup.attention), &setup.data.task, key, device))
    }

    fn score(_setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, .. } = trained;
        let Some(mut scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        let length = task.set.length();
        if let Some(bytes) = model.state_bytes(length) {
            scores.push(STATE_BYTES, bytes as f64, format!("one sequence, after {length} tokens, all layers, 4 bytes a number"));
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        columns()
    }

    fn trivial_baselines(config: &Config<Self>, data: &SequenceSet, _interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(Some(SequenceLearning { set: data, batch: config.own.data.batch }.trivial_baselines()))
    }

    fn published() -> PublishedNumbers {
        F::published()
    }

    /// Tokens by their numbers.
    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        let trained = setup.data.test.iter().filter(|(_, longer, _)| !longer).flat_map(|(.., sequences)| sequences);
        let text = |sequence: &ScoredSequence| sequence.tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        trained.take(count).map(text).collect()
    }

    fn read(setup: Setup<'_, Self>, model: &Reader, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        let vocabulary = setup.data.task.vocabulary();
        let tokens: Option<Vec<u32>> =
            text.split_whitespace().map(|token| token.parse().ok().filter(|&token| (token as usize) < vocabulary)).collect();
        let tokens = tokens.ok_or_else(|| {
            ExperimentError::usage(format!("--text {text:?}: it is no sequence of numbers from 0 to {}; give tokens so", vocabulary - 1))
        })?;
        check_length(text, tokens.len(), setup.config.language_model(setup.attention).block.max_length)?;
        model.language.hidden(row(&tokens, &model.device()), &[], None, probe);
        Ok(Reading { decoder: tokens.iter().map(u32::to_string).collect(), ..Reading::default() })
    }
}

#[cfg(test)]
mod tests;
