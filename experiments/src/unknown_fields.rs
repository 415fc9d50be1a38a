//! Every enum whose variants a field selects refuses fields that its variants do not have.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use heedful_attention::mechanisms::rotary::RotaryScaling;
use heedful_data::generate::sequences::SequenceTask;
use heedful_data::generate::vectors::VectorTask;
use heedful_data::tokenise::TokeniserConfig;
use heedful_models::block::initialisation::Initialisation;
use heedful_models::block::layer_sharing::DepthConfig;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use heedful_runs::settings::{Assignment, Setting, Settings};

use crate::session::experiment::Config;
use crate::tasks::language::Language;
use crate::tasks::memory_rl::environment::EnvironmentConfig;
use crate::tools::claims::{Pitfall, Test};
use crate::train::ScheduleConfig;

/// What a table of this `kind` with a field that nothing knows is refused with, by the reader of configurations and by that of TOML.
fn refusals<T: DeserializeOwned>(kind: &str) -> [String; 2] {
    let table = format!("kind = '{kind}'\ncolour = 1").parse::<Table>().unwrap();
    let accepted = || format!("`{kind}` accepts the field `colour`");
    [
        T::deserialize(Setting(Value::Table(table.clone()))).err().map_or_else(accepted, |problem| problem.to_string()),
        table.try_into::<T>().err().map_or_else(accepted, |error| error.to_string()),
    ]
}

/// The variants of an enum that do not refuse the field.
fn faults<T: DeserializeOwned>() -> Vec<String> {
    // Serde names all variants where there is none of this name.
    let [_, unknown] = refusals::<T>("?");
    let unknown = unknown.lines().next().unwrap_or_default();
    let variants: Vec<&str> = unknown.split('`').skip(3).step_by(2).collect();
    assert!(variants.len() > 1, "{unknown}");
    let words = "unknown field `colour`";
    variants.into_iter().flat_map(refusals::<T>).filter(|message| !message.contains(words)).collect()
}

/// Enums of the sources that are read and have a tag, with their package.
fn tagged_enums(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tagged_enums(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut attributes = String::new();
            for line in text.lines().take_while(|line| *line != "#[cfg(test)]").map(str::trim) {
                let name = line.split_once("enum ").and_then(|(_, rest)| rest.split([' ', '<']).next());
                match name {
                    _ if line.starts_with("#[") => attributes.push_str(line),
                    Some(name) if attributes.contains("serde(tag") && attributes.contains("Deserialize") => {
                        found.insert(name.to_owned());
                    }
                    _ if line.starts_with("//") => {}
                    _ => attributes.clear(),
                }
            }
        }
    }
}

#[test]
fn every_variant_of_every_tagged_enum_refuses_an_unknown_field() {
    type Faults = fn() -> Vec<String>;
    let enums: [(&str, Faults); 10] = [
        ("DepthConfig", faults::<DepthConfig>),
        ("EnvironmentConfig", faults::<EnvironmentConfig>),
        ("Initialisation", faults::<Initialisation>),
        ("Pitfall", faults::<Pitfall>),
        ("RotaryScaling", faults::<RotaryScaling>),
        ("ScheduleConfig", faults::<ScheduleConfig>),
        ("SequenceTask", faults::<SequenceTask>),
        ("Test", faults::<Test>),
        ("TokeniserConfig", faults::<TokeniserConfig>),
        ("VectorTask", faults::<VectorTask>),
    ];
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut found = BTreeSet::new();
    for package in [
        "attention",
        "models",
        "experiments/backends",
        "experiments/data",
        "experiments/host",
        "experiments/metrics",
        "experiments/runs",
        "experiments",
    ] {
        tagged_enums(&root.join(package).join("src"), &mut found);
    }
    assert_eq!(found, enums.iter().map(|(name, _)| (*name).to_owned()).collect(), "the list of this test has all of them");
    let faults: Vec<(&str, Vec<String>)> =
        enums.into_iter().map(|(name, faults)| (name, faults())).filter(|(_, faults)| !faults.is_empty()).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_choice_without_options_says_that_it_has_none() {
    let refusal = |text: &str| Settings::<Config<Language>>::read(None, vec![Assignment::parse(text).unwrap()]).unwrap_err().to_string();
    for (text, words) in [
        ("model.initialisation={kind='xavier', deviation=0.02}", "unknown field `deviation` in `model.initialisation`"),
        ("model.depth={kind='stacked', halting={}}", "unknown field `halting` in `model.depth`"),
        ("training.schedule={kind='constant', warmup=4}", "unknown field `warmup` in `training.schedule`"),
    ] {
        let message = refusal(text);
        assert!(message.contains(words) && message.contains("has no options") && !message.contains("known: )"), "{message}");
    }
    // One of two names of a choice would win.
    let message = refusal("model.positions={grid={rows=8, columns=8}, learned={}}");
    assert!(message.contains("`model.positions`") && message.contains("one"), "{message}");
}
