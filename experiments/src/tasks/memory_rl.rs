//! Reinforcement learning that needs memory: the experiment `memory-rl`.
//!
//! The right action depends on observations long ago. Policies that differ only in their memory learn by the same proximal policy optimisation, with
//! generalised advantages and a memory that is carried from unroll to unroll (Parisotto et al. 2020; there V-MPO).

pub mod advantage;
mod config;
pub mod environment;
mod models;
mod rollout;
mod task;
mod watching;

use heedful_host::checksum::sha256_hex;
use heedful_models::architectures::policy::{Core, Policy};
use heedful_models::parts::embedding::EmbeddingScale;
use heedful_models::parts::position::PositionConfig;

use self::environment::EnvironmentConfig;
use crate::tasks::prelude::*;

pub use config::{MemoryConfig, MemoryData, MemoryRl, PpoConfig, SearchConfig};
pub use task::{MemoryBatch, MemoryTask, Playing};

/// An environment.
#[derive(Debug)]
pub struct MemoryDataset {
    name: String,
    sha256: String,
    best: Option<f64>,
    without_memory: Option<f64>,
    description: String,
}

impl Experiment for MemoryRl {
    const NAME: &'static str = "memory-rl";
    const TITLE: &'static str = "Reinforcement learning that needs memory";
    const ABOUT: &'static str = "\
        Compare memories in reinforcement learning: GTrXL and its gates, Transformer-XL, an LSTM, and no memory.\n\nTrains a policy by proximal policy \
        optimisation for each model of --model or attention of --attention, and each seed, and prints a table of returns beside those of the best \
        policies with and without memory. With --set search.learning_rate=[1e-4,1e-2] each seed draws its own learning rate, and the table counts the \
        seeds that diverge.";
    const OPTIONS: &'static [CommandOption] = &[CommandOption::new(
        "environment",
        "data.environment.kind",
        OptionValue::Word("NAME", &EnvironmentConfig::NAMES),
        "Environment: t-maze, memory-maze, numpad or repeat-previous; its options are set with --set data.environment.NAME=VALUE",
    )];
    const MODELS: &'static [NamedModel] = models::MODELS;
    const DATA: &'static [&'static str] = &["data.environment", "data.feedback"];
    const BATCH: &'static str = "data.copies";
    const HAS_PADDING: bool = false;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = MemoryDataset;
    type Model = Policy;
    type Task<'a> = MemoryTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        config.compare("", "gtrxl,trxl-i,transformer-xl,lstm,no-memory");
        config.model = ModelSettings { d_model: 32, d_ff: 64, dropout: 0.0, ..ModelSettings::default() };
        // A step is an update with a part of the copies.
        config.training = TrainingConfig {
            steps: 1600,
            learning_rate: 1e-3,
            schedule: ScheduleConfig::Linear { warmup: 16, end: 1e-5 },
            max_gradient_norm: Some(0.5),
            log_every: 16,
            ..TrainingConfig::every(160)
        };
    }

    fn rules() -> Vec<Rule<Self>> {
        vec![
            Rule::within(&["data.copies"], 1.0, 1e6),
            Rule::within(&["data.unroll", "data.evaluation_episodes", "data.test_episodes", "ppo.passes", "ppo.parts"], 1.0, 1e6),
            Rule::within(&["data.memory"], 0.0, 1e6),
            Rule::within(&["ppo.discount", "ppo.decay"], 0.0, 1.0),
            Rule::within(&["ppo.value_weight", "ppo.entropy_weight"], 0.0, f64::MAX),
            Rule::used(
                &["data.memory"],
                |candidate| candidate.config.own.core == Core::Transformer,
                "an LSTM has a state and remembers no steps; leave it out",
            ),
            Rule::used(&["model.depth"], |_| false, "a policy has stacked layers with their own weights; leave it out"),
            Rule::used(
                &["model.dropout", "model.attention_dropout", "model.feed_forward_dropout", "model.position_offset"],
                |_| false,
                "episodes are played without dropout and without moved positions, and learning must match; leave it out",
            ),
            Rule::used(
                &[
                    "model.heads",
                    "model.kv_heads",
                    "model.head_width",
                    "model.qkv_bias",
                    "model.attention_output_bias",
                    "model.feed_forward_in",
                    "model.d_ff",
                    "model.activation",
                    "model.gated_feed_forward",
                    "model.feed_forward_bias",
                    "model.feed_forward_chunk",
                    "model.norm",
                    "model.norm_order",
                    "model.parallel",
                    "model.gate",
                    "model.relu_before_residual",
                    "model.checkpoint",
                    "model.final_norm",
                    "model.positions",
                    "model.max_length",
                ],
                |candidate| candidate.config.own.core == Core::Transformer,
                "it applies to Transformers and not to an LSTM; leave it out",
            ),
            Rule::used(
                &["training.learning_rate"],
                |candidate| candidate.config.own.search.is_none_or(|search| search.learning_rate.is_none()),
                "each seed draws it from search.learning_rate; leave one of them out",
            ),
            Rule::used(
                &["ppo.entropy_weight"],
                |candidate| candidate.config.own.search.is_none_or(|search| search.entropy_weight.is_none()),
                "each seed draws it from search.entropy_weight; leave one of them out",
            ),
            Rule::used(
                &["ppo.clip"],
                |candidate| candidate.config.own.search.is_none_or(|search| search.clip.is_none()),
                "each seed draws it from search.clip; leave one of them out",
            ),
        ]
    }

    fn check(settings: &Settings<MemoryConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let config = &settings.value;
        let MemoryRl { data, ppo, search, .. } = &config.own;
        data.environment.validate().map_err(|error| settings.refuse(&format!("data.environment.{}", error.field), error.reason))?;
        let remedy = format!("{} does not divide data.copies = {}; give a divisor", ppo.parts, data.copies);
        settings.require("ppo.parts", data.copies.is_multiple_of(ppo.parts), remedy)?;
        let remedy = format!("{} is not a number between 0 and 1", ppo.clip);
        settings.require("ppo.clip", ppo.clip > 0.0 && ppo.clip < 1.0, remedy)?;
        settings.require("search", *search != Some(SearchConfig::default()), "it has no interval; give one, or leave it out")?;
        if let Some(SearchConfig { learning_rate, entropy_weight, clip }) = *search {
            let is_free = learning_rate.is_none() || config.training.learning_rates.is_empty() && config.training.tune.is_none();
            let problem = "training.learning_rates or those of --tune are tried in its place; leave one of them out";
            settings.require("search.learning_rate", is_free, problem)?;
            for (name, interval) in [("learning_rate", learning_rate), ("entropy_weight", entropy_weight), ("clip", clip)] {
                let is_too_great = interval.is_some_and(|[_, greatest]| name == "clip" && greatest >= 1.0);
                settings.require("search.clip", !is_too_great, "the greatest value must be less than 1, as that of ppo.clip")?;
                let is_interval = interval.is_none_or(|[least, greatest]| least > 0.0 && greatest >= least && greatest.is_finite());
                let remedy = "give a least value greater than 0 and a greatest one that is not less";
                settings.require(&format!("search.{name}"), is_interval, remedy)?;
            }
        }
        let remedy = "a policy needs a memory of steps, which separable feed-forward networks do not support; leave it out";
        settings.require("model.separable_feed_forward", !config.model.separable_feed_forward, remedy)?;
        let remedy = "observations are no tokens and have no embeddings; leave it out";
        settings.require("model.embedding_scale", config.model.embedding_scale == EmbeddingScale::default(), remedy)?;
        let remedy = "observations are no tokens and have no embeddings; leave it out";
        settings.require("model.embedding_norm", !config.model.embedding_norm, remedy)?;
        for attention in attentions {
            config.model(attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &MemoryConfig) -> Result<Vec<MemoryDataset>, ExperimentError> {
        let MemoryData { environment, feedback, .. } = &config.own.data;
        let written = serde_json::to_string(environment).map_err(ExperimentError::failure)?;
        let (best, without_memory) = (environment.best_reward(), environment.memoryless_reward());
        let known = |value: Option<f64>| value.map_or_else(|| "an unknown return".to_owned(), |value| format!("{value:.3}"));
        let description = format!(
            "the environment {written}, {}; at best {} in the mean, without memory {}",
            if *feedback { "with the last action and reward among the observations" } else { "observed alone" },
            known(best),
            known(without_memory),
        );
        let sha256 = sha256_hex(format!("{written} {feedback}").as_bytes());
        Ok(vec![MemoryDataset { name: environment.name().to_owned(), sha256, best, without_memory, description }])
    }

    fn card(data: &MemoryDataset) -> Card<'_> {
        Card::new(&data.name, &data.sha256, data.description.clone())
    }

    fn max_length(config: &MemoryConfig) -> usize {
        config.max_length()
    }

    fn sizes(config: &MemoryConfig) -> ModelSettings {
        match config.own.core {
            Core::Transformer => config.model.clone(),
            // Its layers have no feed-forward networks and no dropout, and more weights than attention.
            Core::Lstm => ModelSettings { d_ff: 0, dropout: 0.0, positions: PositionConfig::None, ..config.model.clone() },
        }
    }

    fn batch_tokens(config: &MemoryConfig, _data: &MemoryDataset) -> usize {
        let MemoryRl { data, ppo, .. } = &config.own;
        (data.copies / ppo.parts.max(1)).saturating_mul(data.unroll)
    }

    /// A network without attention reads none.
    fn lengths(Setup { config, attention, .. }: Setup<'_, Self>) -> TrainingLengths {
        let (MemoryData { memory, unroll, .. }, has_attention) = (&config.own.data, config.own.core == Core::Transformer);
        let lengths = TrainingLengths::new(&attention.layout, config.model.max_length.max(memory + unroll + 1)).carried(*memory);
        lengths.decoder(has_attention.then_some(memory + unroll))
    }

    fn task(setup: Setup<'_, Self>) -> MemoryTask<'_> {
        MemoryTask { config: setup.config, dataset: setup.data }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Policy, ExperimentError> {
        Ok(setup.config.model(setup.attention).init(key, device))
    }

    fn of_seed(config: &MemoryConfig, seed: u64) -> MemoryConfig {
        config.drawn(seed)
    }

    fn diverged(config: &MemoryConfig) -> Option<Scores> {
        config.own.search.map(|_| Scores::of("diverged", 1.0, task::DIVERGED))
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

    fn trivial_baselines(_config: &MemoryConfig, data: &MemoryDataset, _interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        let of = |value: f64| {
            let baseline =
                TrivialBaseline::new("no memory", "the best policy that sees the present observation and nothing else, computed.");
            let baseline = baseline.score("return", value).dev("return", value);
            if data.best.is_some() { baseline.score("memory gain", 0.0) } else { baseline }
        };
        Ok(Some(data.without_memory.map(of).into_iter().collect()))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::memory()
    }

    /// Numbers of episodes.
    fn texts(_setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        (0..count).map(|number| number.to_string()).collect()
    }

    /// Each model plays the episode itself. Positions show the number of the step and the action that was taken in it.
    fn read_segments(setup: Setup<'_, Self>, model: &Policy, text: &str, show: &mut ShowSegment<'_>) -> Result<(), ExperimentError> {
        watching::watch(model, &setup.config.own.data, text, show)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::memory_rl::environment::{EnvironmentConfig, RepeatPreviousConfig};

    #[test]
    fn the_best_policy_without_memory_gains_nothing_and_has_its_return() {
        let mut config = MemoryConfig::default();
        config.own.data.environment = EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig::default());
        let data = MemoryRl::open(&config).unwrap().remove(0);
        let baselines = MemoryRl::trivial_baselines(&config, &data, &Interrupt::new()).unwrap().unwrap();
        assert_eq!(baselines.len(), 1);
        assert_eq!((baselines[0].metric("return"), baselines[0].metric("memory gain")), (data.without_memory, Some(0.0)));
        let unknown = MemoryDataset { without_memory: None, ..data };
        assert!(MemoryRl::trivial_baselines(&config, &unknown, &Interrupt::new()).unwrap().unwrap().is_empty());
    }
}
