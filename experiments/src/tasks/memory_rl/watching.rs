//! Watching a policy: what its layers show in an episode that it has played.

use burn::tensor::{Tensor, TensorData};
use heedful_models::architectures::policy::Policy;

use super::MemoryData;
use super::rollout::look;
use super::task::EVALUATION_SEED;
use crate::tasks::prelude::*;

/// An episode that a policy has played.
struct Played {
    /// What was seen, `[T, O]`.
    observations: Vec<f32>,
    /// Number and action of each step.
    steps: Vec<String>,
}

/// The number of the episode that a text asks for.
fn number(text: &str) -> Result<u64, ExperimentError> {
    text.trim().parse().map_err(|_| ExperimentError::usage(format!("--text {text:?}: it is no episode; give its number, from 0 on")))
}

/// Plays an episode whose world is the same for all policies. Actions are drawn from the policy, which remembers as much as in an evaluation.
fn play(policy: &Policy, data: &MemoryData, number: u64) -> Played {
    let key = RandomKey::from_seed(EVALUATION_SEED).named("watching").numbered(number);
    let mut environments = data.play(1, &key);
    let mut state = policy.start(1, data.memory + data.unroll);
    let mut played = Played { observations: Vec::new(), steps: Vec::new() };
    for step in 0.. {
        played.observations.extend(environments.observations());
        let actions = look(policy, environments.observations(), &mut state).draw(&mut key.named("actions").numbered(step).rng());
        played.steps.push(format!("{step}:{}", actions[0]));
        let outcome = environments.step(&actions);
        if outcome.terminated[0] || outcome.truncated[0] {
            break;
        }
    }
    played
}

/// Lets a policy play the episode that `text` asks for, and hands what it shows of it to `show` in segments as long as an unroll, each with the memory that
/// training gives it.
pub(super) fn watch(policy: &Policy, data: &MemoryData, text: &str, show: &mut ShowSegment<'_>) -> Result<(), ExperimentError> {
    let Played { observations, steps } = play(policy, data, number(text)?);
    let (size, device) = (observations.len() / steps.len(), policy.observation.weight.device());
    let mut state = policy.start(1, data.memory);
    for (index, segment) in steps.chunks(data.unroll).enumerate() {
        let start = index * data.unroll;
        let seen = TensorData::new(observations[start * size..(start + segment.len()) * size].to_vec(), [1, segment.len(), size]);
        let memory = &steps[start - start.min(data.memory)..start];
        show(&mut |probe| {
            policy.read(Tensor::from_data(seen.clone(), &device), &mut state, probe);
            Ok(Reading { decoder: segment.to_vec(), memory: memory.to_vec(), ..Reading::default() })
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use heedful_attention::contract::probe::Observation;
    use heedful_models::architectures::policy::Core;
    use heedful_models::parts::position::PositionConfig;
    use heedful_models::parts::residual_gate::{GateConfig, GateKind};

    use super::*;
    use crate::tasks::memory_rl::environment::{EnvironmentConfig, RepeatPreviousConfig};
    use crate::tasks::memory_rl::{MemoryConfig, MemoryRl};

    fn policy(core: Core) -> (Policy, MemoryData) {
        let environment = EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig::default());
        let data = MemoryData { environment, unroll: 12, memory: 8, ..MemoryData::default() };
        let model = ModelSettings {
            d_model: 8,
            heads: 2,
            d_ff: 16,
            dropout: 0.0,
            positions: PositionConfig::None,
            gate: Some(GateConfig::new(GateKind::Gru)),
            ..ModelSettings::default()
        };
        let config = MemoryConfig { model, own: MemoryRl { data: data.clone(), core, ..MemoryRl::default() }, ..MemoryConfig::default() };
        let policy = config.model(&Attention::new("relative".parse().unwrap()));
        policy.validate().unwrap();
        (policy.init(&RandomKey::from_seed(1), &Device::flex()), data)
    }

    /// The paths and shapes of gates and weights.
    type Shown = Vec<(String, Vec<usize>)>;

    /// The reading of each segment, and what is shown of it.
    fn watched(core: Core, text: &str) -> Result<Vec<(Reading, Shown)>, ExperimentError> {
        let (policy, data) = policy(core);
        let mut segments = Vec::new();
        watch(&policy, &data, text, &mut |read| {
            let mut shown = Vec::new();
            let mut listener = |path: &str, observation: Observation| match observation {
                Observation::Gate(open) => shown.push((path.to_owned(), open.dims().to_vec())),
                Observation::Weights(weights) => shown.push((path.to_owned(), weights.dims().to_vec())),
                _ => {}
            };
            let reading = read(&mut Probe::listening(&mut listener))?;
            segments.push((reading, shown));
            Ok(())
        })?;
        Ok(segments)
    }

    #[test]
    fn gates_and_weights_of_each_layer_are_shown_of_a_whole_episode() {
        let segments = watched(Core::Transformer, "3").unwrap();
        assert!(segments.len() > 2, "{} segments", segments.len());
        let steps: Vec<&String> = segments.iter().flat_map(|(reading, _)| &reading.decoder).collect();
        assert!(steps.iter().enumerate().all(|(number, step)| step.starts_with(&format!("{number}:"))), "{steps:?}");
        for (index, (Reading { decoder, memory, encoder, .. }, shown)) in segments.iter().enumerate() {
            assert!(encoder.is_empty());
            assert_eq!(memory.len(), if index == 0 { 0 } else { 8 });
            assert!(memory.iter().eq(steps[index * 12 - memory.len()..index * 12].iter().copied()));
            let [gates, weights] = [true, false].map(|is_gate| {
                let of_kind = shown.iter().filter(|(path, _)| path.ends_with("gate") == is_gate);
                of_kind.map(|(_, shape)| shape.clone()).collect::<Vec<_>>()
            });
            // Two layers with a gate behind the attention and one behind the feed-forward network.
            assert_eq!(gates, vec![vec![1, decoder.len(), 8]; 4], "{shown:?}");
            assert_eq!(weights, vec![vec![1, 2, decoder.len(), memory.len() + decoder.len()]; 2], "{shown:?}");
        }
    }

    #[test]
    fn an_episode_is_the_same_each_time_and_others_differ() {
        let steps = |text: &str| -> Vec<String> {
            watched(Core::Transformer, text).unwrap().into_iter().flat_map(|(reading, _)| reading.decoder).collect()
        };
        assert_eq!(steps("3"), steps(" 3 "));
        assert_ne!(steps("3"), steps("4"));
        let error = watched(Core::Transformer, "left right").unwrap_err().to_string();
        assert!(error.contains("left right") && error.contains("number"), "{error}");
    }

    #[test]
    fn an_lstm_plays_and_shows_nothing() {
        let segments = watched(Core::Lstm, "0").unwrap();
        assert!(segments.len() > 2 && segments.iter().all(|(_, shown)| shown.is_empty()));
    }
}
