//! Configuration of the experiment.

use heedful_models::language_model::LanguageModelConfig;
use serde::{Deserialize, Serialize};

use crate::comparison::{Attention, experiment_config};
use crate::data::exercise::ExerciseTask;
use crate::data::generate::Sizes;
use crate::data::generate::algorithmic::Shape;
use crate::mechanisms::MechanismOptions;
use crate::model::ModelSettings;
use crate::options::{ModelRun, RunSettings};
use crate::train::{ScheduleConfig, TrainingConfig};

/// Numbers of rounds that models with LSH attention are tested with; 0 stands for full attention.
pub(super) const ROUNDS: [usize; 5] = [0, 8, 4, 2, 1];

/// Complete configuration of `algorithmic`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlgorithmicConfig {
    /// Which runs.
    pub run: RunSettings,
    /// Which tasks.
    pub data: AlgorithmicData,
    /// The model.
    pub model: ModelSettings,
    /// Whether the output projection is the embedding's matrix.
    pub tied: bool,
    /// Options of the mechanisms.
    pub mechanisms: MechanismOptions,
    /// How it is trained.
    pub training: TrainingConfig,
}

/// The tasks of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlgorithmicData {
    /// Tasks by name: `copy`, `reverse`, `addition`, `duplication`, `list-ops`, `babi-1` to `babi-20`; each is a data set of its own.
    pub tasks: Vec<ExerciseTask>,
    /// Most symbols of a question of training, where questions are made here.
    pub length: usize,
    /// Most symbols of a question of the longer test set, all of whose questions have more than `length`. No more than that: there is no such set.
    pub longer: usize,
    /// Different symbols of `copy`, `reverse` and `duplication`.
    pub symbols: usize,
    /// The folder of bAbI's archive from which its tasks are taken, such as `en` or `en-10k`.
    pub babi_set: String,
    /// Tokens in a batch, padding included.
    pub batch_tokens: usize,
    /// Training questions of each task that is made here.
    pub generated_examples: usize,
    /// Test questions of each task that is made here.
    pub generated_test: usize,
    /// Models with LSH attention are tested with these numbers of rounds as well; 0 stands for full attention. The table shows those that are here by
    /// default, `results.json` all.
    pub rounds: Vec<usize>,
}

impl Default for AlgorithmicConfig {
    fn default() -> Self {
        Self {
            run: RunSettings {
                models: ["transformer", "universal", "universal-act"]
                    .map(|name| ModelRun { name: name.to_owned(), ..ModelRun::default() })
                    .to_vec(),
                ..RunSettings::default()
            },
            data: AlgorithmicData::default(),
            model: ModelSettings { layers: 4, max_length: 128, dropout: 0.0, ..ModelSettings::default() },
            tied: true,
            mechanisms: MechanismOptions::default(),
            training: TrainingConfig {
                steps: 1000,
                learning_rate: 2e-3,
                schedule: ScheduleConfig::Linear { warmup: 100, end: 1e-5 },
                evaluate_every: 250,
                checkpoint_every: 250,
                log_every: 25,
                ..TrainingConfig::default()
            },
        }
    }
}

impl Default for AlgorithmicData {
    fn default() -> Self {
        Self {
            tasks: vec![ExerciseTask::Copy, ExerciseTask::Reverse, ExerciseTask::Addition],
            length: 10,
            longer: 20,
            symbols: 10,
            babi_set: "en".to_owned(),
            batch_tokens: 1000,
            generated_examples: Sizes::EXERCISES.train,
            generated_test: Sizes::EXERCISES.test,
            rounds: ROUNDS.to_vec(),
        }
    }
}

experiment_config!(AlgorithmicConfig);

impl AlgorithmicData {
    pub(super) fn shape(&self) -> Shape {
        Shape { length: self.length, longer: self.longer, symbols: self.symbols }
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes { train: self.generated_examples, test: self.generated_test, ..Sizes::EXERCISES }
    }
}

impl AlgorithmicConfig {
    pub(super) fn model(&self, vocabulary: usize, attention: &Attention) -> LanguageModelConfig {
        self.model.language_model(vocabulary, &attention.layout.decoder, self.tied)
    }
}
