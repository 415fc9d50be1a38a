//! What holds of every environment, and how tests play them.

use rand::RngExt;

use super::*;

/// An episode that was played.
pub(super) struct Played {
    pub(super) total: f64,
    pub(super) steps: usize,
}

/// What an agent sees.
pub(super) fn seen(environment: &impl Environment) -> Vec<f32> {
    let mut observation = vec![f32::NAN; environment.observation_size()];
    environment.observe(&mut observation);
    observation
}

/// Plays the episode of `key`.
pub(super) fn play<E: Environment>(environment: &mut E, key: &RandomKey, mut policy: impl FnMut(&E, &[f32]) -> usize) -> Played {
    environment.reset(key);
    let mut played = Played { total: 0.0, steps: 0 };
    loop {
        let action = policy(environment, &seen(environment));
        let step = environment.step(action);
        played.total += f64::from(step.reward);
        played.steps += 1;
        if step.is_last() {
            return played;
        }
    }
}

/// The mean return of so many episodes.
pub(super) fn mean_return<E: Environment>(environment: &mut E, episodes: u64, mut policy: impl FnMut(&E, &[f32]) -> usize) -> f64 {
    let key = RandomKey::from_seed(1).named("mean");
    (0..episodes).map(|episode| play(environment, &key.numbered(episode), &mut policy).total).sum::<f64>() / episodes as f64
}

/// Tasks with usual and extreme options.
pub(super) fn configs() -> Vec<EnvironmentConfig> {
    vec![
        EnvironmentConfig::TMaze(TMazeConfig::default()),
        EnvironmentConfig::TMaze(TMazeConfig { length: 1, limit: 2, noise: 0.0, penalty: 0.0 }),
        EnvironmentConfig::TMaze(TMazeConfig { length: 5, limit: 40, noise: 1.0, penalty: 2.5 }),
        EnvironmentConfig::MemoryMaze(MemoryMazeConfig::default()),
        EnvironmentConfig::MemoryMaze(MemoryMazeConfig { rooms: 2, openings: 0.0, view: 8, mazes: 0, limit: 90 }),
        EnvironmentConfig::MemoryMaze(MemoryMazeConfig { rooms: 8, openings: 1.0, view: 2, mazes: 4, limit: 1 }),
        EnvironmentConfig::Numpad(NumpadConfig::default()),
        EnvironmentConfig::Numpad(NumpadConfig { side: 8, length: 2, limit: 200 }),
        EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig::default()),
        EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig { k: 50, decks: 1 }),
        EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig { k: 0, decks: 2 }),
    ]
}

#[test]
fn random_actions_never_leave_the_rules() {
    for config in configs() {
        let mut environment = config.build().unwrap();
        let mut rng = RandomKey::from_seed(2).rng();
        let (size, actions, limit) = (environment.observation_size(), environment.actions(), environment.episode_limit());
        for episode in 0..50 {
            environment.reset(&RandomKey::from_seed(episode));
            let mut ended = false;
            for step in 1..=limit {
                let now = seen(&environment);
                assert_eq!(now.len(), size);
                assert!(now.iter().all(|number| (0.0..=1.0).contains(number)), "{config:?}: {now:?}");
                let last = environment.step(rng.random_range(0..actions));
                assert!((-4.0..=4.0).contains(&last.reward), "{config:?}: {last:?}");
                assert!(!(last.terminated && last.truncated), "{config:?}");
                assert!(!last.truncated || step == limit, "{config:?}: cut at step {step}");
                if last.is_last() {
                    ended = true;
                    break;
                }
            }
            assert!(ended, "{config:?}: no end after {limit} steps");
        }
    }
}

#[test]
fn the_same_key_and_actions_make_the_same_episode_whatever_came_before() {
    for config in configs() {
        let mut used = config.build().unwrap();
        for episode in 0..20 {
            let mut new = config.build().unwrap();
            let key = RandomKey::from_seed(episode);
            new.reset(&key);
            used.reset(&key);
            let mut rng = key.named("actions").rng();
            loop {
                assert_eq!(seen(&used), seen(&new), "{config:?}");
                let action = rng.random_range(0..new.actions());
                let step = new.step(action);
                assert_eq!(used.step(action), step, "{config:?}");
                if step.is_last() {
                    break;
                }
            }
        }
    }
}

#[test]
fn episodes_of_different_keys_differ() {
    for config in configs() {
        let mut environment = config.build().unwrap();
        let mut episode = |seed| {
            let mut shown = Vec::new();
            let mut actions = RandomKey::from_seed(3).rng();
            play(&mut environment, &RandomKey::from_seed(seed), |environment, seen| {
                shown.extend_from_slice(seen);
                actions.random_range(0..environment.actions())
            });
            shown
        };
        let first = episode(0);
        assert!((1..20).any(|seed| episode(seed) != first), "{config:?}");
    }
}

#[test]
fn a_step_needs_an_episode_and_an_action_that_exists() {
    for config in configs() {
        let refused = |mut environment: AnyEnvironment, action| {
            let panic = std::panic::catch_unwind(move || environment.step(action)).unwrap_err();
            panic.downcast::<String>().map_or_else(|panic| panic.downcast::<&str>().unwrap().to_string(), |text| *text)
        };
        let mut environment = config.build().unwrap();
        assert_eq!(refused(environment.clone(), 0), "there is no episode; reset the environment first");
        environment.reset(&RandomKey::from_seed(1));
        let actions = environment.actions();
        assert_eq!(refused(environment.clone(), actions), format!("action {actions} of {actions}"));
        play(&mut environment, &RandomKey::from_seed(1), |_, _| 0);
        assert_eq!(refused(environment, 0), "there is no episode; reset the environment first");
    }
}

#[test]
fn memory_is_worth_something_in_every_task() {
    for config in configs() {
        let (best, memoryless) = (config.best_reward(), config.memoryless_reward());
        if let (Some(best), Some(memoryless)) = (best, memoryless) {
            let needed = config != EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig { k: 0, decks: 2 });
            assert_eq!(memoryless < 0.6 * best, needed, "{config:?}: {memoryless} of {best}");
        } else {
            assert_eq!(config.name(), "memory-maze");
        }
    }
}

#[test]
fn tasks_are_read_by_kind_and_keep_the_defaults_of_fields_that_are_not_given() {
    for (config, name) in
        configs().into_iter().zip(["t-maze"; 3].into_iter().chain(["memory-maze"; 3]).chain(["numpad"; 2]).chain(["repeat-previous"; 3]))
    {
        assert_eq!(config.name(), name);
        let text = toml::to_string(&config).unwrap();
        assert!(text.contains(&format!("kind = \"{name}\"")), "{text}");
        assert_eq!(toml::from_str::<EnvironmentConfig>(&text).unwrap(), config);
    }
    let read: EnvironmentConfig = toml::from_str("kind = \"t-maze\"\nlength = 70").unwrap();
    assert_eq!(read, EnvironmentConfig::TMaze(TMazeConfig { length: 70, ..TMazeConfig::default() }));
    assert_eq!(
        EnvironmentConfig::NAMES.map(|name| toml::from_str::<EnvironmentConfig>(&format!("kind = \"{name}\"")).unwrap().name()),
        EnvironmentConfig::NAMES
    );
}

#[test]
fn unknown_kinds_and_fields_are_refused_by_name() {
    for (text, named) in [
        ("kind = \"maze\"", "maze"),
        ("kind = \"numpad\"\nlenght = 3", "lenght"),
        ("kind = \"t-maze\"\nk = 3", "k"),
        ("length = 3", "kind"),
    ] {
        let error = toml::from_str::<EnvironmentConfig>(text).unwrap_err().to_string();
        assert!(error.contains(&format!("`{named}`")), "{text}: {error}");
    }
}

#[test]
fn defaults_are_valid_and_an_invalid_task_is_not_built() {
    for name in EnvironmentConfig::NAMES {
        let config: EnvironmentConfig = toml::from_str(&format!("kind = \"{name}\"")).unwrap();
        assert_eq!(config.validate(), Ok(()));
        assert!(config.build().is_ok());
    }
    let config = EnvironmentConfig::Numpad(NumpadConfig { side: 99, ..NumpadConfig::default() });
    assert_eq!(config.validate().unwrap_err().field, "side");
    assert_eq!(config.build().unwrap_err().to_string(), "environment, `side`: 99 pads on a side; take 2 to 8");
}
