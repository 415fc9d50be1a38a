//! Presets give no field that has no effect.

use std::fs;
use std::path::Path;

use heedful_runs::settings::{Assignment, Settings};

use super::super::candidate::{candidates, check_effects};
use crate::session::experiment::definition::{Config, Experiment};
use crate::session::footprint::Memory;

/// What the program of an experiment refuses of a preset, before it reads data.
pub(super) fn refusal<E: Experiment>(path: &Path, command: &str) -> Option<String> {
    let data = command.contains("--data").then(|| Assignment::option("--data", "run.data", "data"));
    let mut settings = Settings::<Config<E>>::read(Some(path), data.into_iter().collect()).unwrap();
    let checked = candidates::<E>(&mut settings, Memory::of_finished()).and_then(|candidates| check_effects::<E>(&settings, &candidates));
    checked.err().map(|error| error.to_string())
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
