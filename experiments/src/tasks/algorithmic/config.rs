//! Configuration of the experiment.

use heedful_data::exercise::ExerciseTask;
use heedful_data::generate::Sizes;
use heedful_data::generate::algorithmic::Shape;
use heedful_models::architectures::language_model::LanguageModelConfig;
use serde::{Deserialize, Serialize};

use crate::session::experiment::{Attention, Config};

/// Numbers of rounds that models with LSH attention are tested with; 0 stands for full attention.
pub(super) const ROUNDS: [usize; 5] = [0, 8, 4, 2, 1];

/// Complete configuration of `algorithmic`.
pub type AlgorithmicConfig = Config<Algorithmic>;

/// The comparison of models on exercises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Algorithmic {
    /// Which tasks.
    pub data: AlgorithmicData,
    /// Whether the output projection is the embedding's matrix.
    pub tied: bool,
}

/// The tasks of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlgorithmicData {
    /// Tasks by name: `copy`, `reverse`, `addition`, `duplication`, `list-ops`, `babi-1` to `babi-20`; each is a data set of its own.
    pub tasks: Vec<ExerciseTask>,
    /// Most symbols of a generated training question.
    pub length: usize,
    /// Most symbols of a question of the longer test set, whose questions all have more than `length`. A value of at most `length` disables this set.
    pub longer: usize,
    /// Different symbols of `copy`, `reverse` and `duplication`.
    pub symbols: usize,
    /// The folder of bAbI's archive from which its tasks are taken, such as `en` or `en-10k`.
    pub babi_set: String,
    /// Tokens in a batch, padding included.
    pub batch_tokens: usize,
    /// Training questions of each generated task.
    pub generated_examples: usize,
    /// Test questions of each generated task.
    pub generated_test: usize,
    /// Models with LSH attention are also tested with these numbers of rounds; 0 stands for full attention. The table shows the default numbers, `results.json`
    /// all.
    pub rounds: Vec<usize>,
}

impl Default for Algorithmic {
    fn default() -> Self {
        Self { data: AlgorithmicData::default(), tied: true }
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
        self.model.language_model(vocabulary, &attention.layout.decoder).with_tied(self.own.tied)
    }
}
