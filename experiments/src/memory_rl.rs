//! Reinforcement learning that needs memory: the experiment `memory-rl`.
//!
//! What an agent must do depends on what it saw long ago. Policies that differ in their memory alone learn from one proximal policy optimisation, with
//! generalised advantages and what they remember carried from unroll to unroll (Parisotto et al. 2020; there V-MPO).

pub mod advantage;
mod config;
pub mod environment;
mod models;
mod rollout;
mod task;

use burn::tensor::Device;
use heedful_attention::random::RandomKey;
use heedful_models::policy::{Core, Policy};
use heedful_models::position::PositionConfig;

use crate::comparison::{Attention, Comparison, Dataset, NamedModel, Scores};
use crate::error::ExperimentError;
use crate::model::ModelSettings;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::{RunPaths, sha256_hex};
use crate::settings::Settings;
use crate::train::Interrupt;

pub use config::{MemoryConfig, MemoryData, PpoConfig, SearchConfig};
pub use task::{MemoryBatch, MemoryTask};

/// An environment.
#[derive(Debug)]
pub struct MemoryDataset {
    name: String,
    sha256: String,
    best: Option<f64>,
    without_memory: Option<f64>,
    description: String,
}

impl Dataset for MemoryDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sha256(&self) -> &str {
        &self.sha256
    }

    fn description(&self) -> String {
        self.description.clone()
    }
}

/// The comparison of memories.
#[derive(Debug)]
pub struct MemoryRl;

impl Comparison for MemoryRl {
    const NAME: &'static str = "memory-rl";
    const TITLE: &'static str = "Reinforcement learning that needs memory";
    const MODELS: &'static [NamedModel] = models::MODELS;
    const DATA: &'static [&'static str] = &["data.environment", "data.feedback"];
    const BATCH: &'static str = "data.copies";
    type Config = MemoryConfig;
    type Dataset = MemoryDataset;
    type Model = Policy;
    type Task<'a> = MemoryTask<'a>;

    fn check(settings: &Settings<MemoryConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let config = &settings.value;
        let MemoryConfig { data, ppo, .. } = config;
        if config.run.data.is_some() {
            return Err(settings.refuse("run.data", "environments are made here and read no files; leave --data out").into());
        }
        data.environment.validate().map_err(|error| settings.refuse(&format!("data.environment.{}", error.field), error.reason))?;
        let at_least_one = [
            ("data.copies", data.copies),
            ("data.unroll", data.unroll),
            ("data.evaluation_episodes", data.evaluation_episodes),
            ("data.test_episodes", data.test_episodes),
            ("ppo.passes", ppo.passes),
            ("ppo.parts", ppo.parts),
        ];
        for (field, value) in at_least_one {
            if value == 0 {
                return Err(settings.refuse(field, "it must be at least 1").into());
            }
        }
        if !data.copies.is_multiple_of(ppo.parts) {
            let problem = format!("{} does not divide data.copies = {}; give a divisor", ppo.parts, data.copies);
            return Err(settings.refuse("ppo.parts", problem).into());
        }
        for (field, value) in [("ppo.discount", ppo.discount), ("ppo.decay", ppo.decay)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(settings.refuse(field, format!("{value} is not a number from 0 to 1")).into());
            }
        }
        if !(ppo.clip > 0.0 && ppo.clip < 1.0) {
            return Err(settings.refuse("ppo.clip", format!("{} is not a number between 0 and 1", ppo.clip)).into());
        }
        if let Some(SearchConfig { learning_rate, entropy_weight, clip }) = config.search {
            for (name, interval) in [("learning_rate", learning_rate), ("entropy_weight", entropy_weight), ("clip", clip)] {
                if interval.is_some_and(|[least, greatest]| !(least > 0.0 && greatest >= least && greatest.is_finite())) {
                    let problem = "give a least value greater than 0 and a greatest one that is not less";
                    return Err(settings.refuse(&format!("search.{name}"), problem).into());
                }
            }
        }
        for attention in attentions {
            config.model(attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn datasets(config: &MemoryConfig) -> Result<Vec<MemoryDataset>, ExperimentError> {
        let environment = &config.data.environment;
        let written = serde_json::to_string(environment).map_err(ExperimentError::failure)?;
        let (best, without_memory) = (environment.best_reward(), environment.memoryless_reward());
        let known = |value: Option<f64>| value.map_or_else(|| "an unknown return".to_owned(), |value| format!("{value:.3}"));
        let description = format!(
            "the environment {written}, {}; at best {} in the mean, without memory {}",
            if config.data.feedback { "with the last action and reward among the observations" } else { "observed alone" },
            known(best),
            known(without_memory),
        );
        let sha256 = sha256_hex(format!("{written} {}", config.data.feedback).as_bytes());
        Ok(vec![MemoryDataset { name: environment.name().to_owned(), sha256, best, without_memory, description }])
    }

    fn sizes(config: &MemoryConfig) -> ModelSettings {
        match config.core {
            Core::Transformer => config.model.clone(),
            // Its layers have no feed-forward networks and no dropout, and more weights than attention.
            Core::Lstm => ModelSettings { d_ff: 0, dropout: 0.0, positions: PositionConfig::None, ..config.model.clone() },
        }
    }

    fn batch_tokens(config: &Self::Config, _dataset: &Self::Dataset) -> usize {
        let MemoryData { copies, unroll, .. } = config.data;
        (copies / config.ppo.parts.max(1)).saturating_mul(unroll)
    }

    fn task<'a>(config: &'a MemoryConfig, dataset: &'a MemoryDataset, _attention: &Attention) -> MemoryTask<'a> {
        MemoryTask::new(config, dataset)
    }

    fn model(
        config: &MemoryConfig,
        _dataset: &MemoryDataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Result<Policy, ExperimentError> {
        Ok(config.model(attention).init(key, device))
    }

    fn of_seed(config: &MemoryConfig, seed: u64) -> MemoryConfig {
        config.drawn(seed)
    }

    fn score(
        _config: &MemoryConfig,
        _dataset: &MemoryDataset,
        task: &MemoryTask,
        model: &Policy,
        _paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let MemoryData { test_episodes, .. } = task.config.data;
        let Some([total, length]) = task.evaluate(model, "test", test_episodes, Some(interrupt)) else { return Ok(None) };
        let mut scores = Scores::default();
        let signature = format!("mean of {test_episodes} episodes, actions drawn from the policy");
        scores.push("return", total, signature.clone());
        if let (Some(best), Some(without_memory)) = (task.dataset.best, task.dataset.without_memory) {
            let share = (total - without_memory) / (best - without_memory);
            scores.push(
                "memory gain",
                share,
                "return, 0 where that of the best policy without memory lies and 1 where the best of all does".to_owned(),
            );
        }
        scores.push("episode length", length, signature);
        if task.config.search.is_some() {
            scores.push("diverged", 0.0, "share of the seeds whose loss or weights ceased to be numbers".to_owned());
            scores.notes.push(format!(
                "learning rate {:.2e}, entropy weight {:.2e}, clip {:.2}",
                task.config.training.learning_rate, task.config.ppo.entropy_weight, task.config.ppo.clip
            ));
        }
        Ok(Some(scores))
    }

    fn diverged(config: &MemoryConfig) -> Option<Scores> {
        config.search.map(|_| {
            let mut scores = Scores::default();
            scores.push("diverged", 1.0, "share of the seeds whose loss or weights ceased to be numbers".to_owned());
            scores
        })
    }

    fn columns() -> Vec<MetricColumn> {
        vec![
            MetricColumn::new("return", "return").digits(3).higher_is_better(),
            MetricColumn::new("memory gain", "memory gain")
                .percent()
                .higher_is_better()
                .defined_as("the return, 0 where that of the best policy without memory lies and 100 where the best of all does"),
            MetricColumn::new("episode length", "steps").digits(1),
            MetricColumn::new("diverged", "diverged").percent().lower_is_better(),
        ]
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::memory()
    }
}
