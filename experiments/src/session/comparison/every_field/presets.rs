//! Presets give no field that has no effect.

use std::fs;
use std::path::Path;

use heedful_runs::settings::{Assignment, Settings};
use tempfile::TempDir;

use super::super::candidate::{candidates, check_effects};
use crate::session::experiment::definition::{Config, Experiment};
use crate::session::footprint::Memory;
use crate::tasks::testing::bert;

/// What the program of an experiment refuses of a preset, before it reads data.
pub(super) fn refusal<E: Experiment>(path: &Path, command: &str) -> Option<String> {
    let data = command.contains("--data").then(|| Assignment::option("--data", "run.data", "data"));
    let encoder = command.contains("--pretrained").then(long_bert);
    let pretrained = encoder.as_ref().map(|folder| Assignment::option("--pretrained", "pretrained", folder.path().display().to_string()));
    let mut settings = Settings::<Config<E>>::read(Some(path), data.into_iter().chain(pretrained).collect()).unwrap();
    if let Some(table) = E::beneath(&settings.value).unwrap() {
        settings = settings.over_table(table).unwrap();
    }
    let checked = candidates::<E>(&mut settings, Memory::of_finished()).and_then(|candidates| check_effects::<E>(&settings, &candidates));
    checked.err().map(|error| error.to_string())
}

/// A BERT that reads as many tokens as published ones. Its weights are not read.
fn long_bert() -> TempDir {
    let folder = bert();
    let config = folder.path().join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    let long = text.replace("\"max_position_embeddings\": 12", "\"max_position_embeddings\": 512");
    assert_ne!(text, long);
    fs::write(&config, long).unwrap();
    folder
}

/// The presets with the commands in their heads.
pub(super) fn all() -> Vec<(std::path::PathBuf, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
    let preset = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let command = text.lines().find_map(|line| line.strip_prefix("#   ")).unwrap_or_else(|| panic!("{path:?} names no command"));
        let command = command.to_owned();
        (path, command)
    };
    fs::read_dir(folder).unwrap().map(|entry| preset(entry.unwrap().path())).collect()
}
