//! Presets of data sets: the configurations in `experiments/presets`, which are part of the program.
//!
//! The comment at the head of a file describes what it trains, and the commands to use.

use std::path::PathBuf;

use heedful_host::names::unknown;
use heedful_runs::settings::{Assignment, Configuration, Settings, SettingsError};

use crate::session::error::ExperimentError;

/// A configuration that is part of the program.
#[derive(Debug)]
pub(crate) struct PresetFile {
    /// Its name on the command line, that of the file.
    pub(crate) name: &'static str,
    /// The configuration, in TOML.
    text: &'static str,
}

macro_rules! preset_files {
    ($($name:literal)*) => {
        &[$(PresetFile { name: $name, text: include_str!(concat!("../../presets/", $name, ".toml")) }),*]
    };
}

/// All of them, by name.
const PRESET_FILES: &[PresetFile] = preset_files! {
    "ag-news"
    "algorithmic"
    "babi"
    "baselines-ptb"
    "baselines-shakespeare"
    "baselines-wikitext-2"
    "duplication"
    "glue"
    "glue-after-mlm"
    "glue-pretrained"
    "imdb"
    "list-ops"
    "memory-gap"
    "memory-maze"
    "mnist"
    "mnist-super-resolution"
    "multi30k"
    "numpad"
    "personachat"
    "ptb"
    "ptb-all"
    "ptb-quick"
    "recall-panels"
    "shakespeare"
    "shakespeare-models"
    "small-parallel-enja"
    "sst-2-all"
    "universal-multi30k"
    "wikitext-2-mlm"
};

impl PresetFile {
    /// Those of a command, such as `mt`.
    pub(crate) fn of(command: &str) -> impl Iterator<Item = &'static Self> {
        PRESET_FILES.iter().filter(move |preset| preset.command().split(' ').nth(1) == Some(command))
    }

    /// The preset of this name.
    ///
    /// # Errors
    /// A usage error with the nearest name, if there is none.
    pub(crate) fn named(name: &str) -> Result<&'static Self, ExperimentError> {
        let names: Vec<&str> = PRESET_FILES.iter().map(|preset| preset.name).collect();
        let found = PRESET_FILES.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| unknown("preset", name, &names, "--list-presets shows those of a command").into())
    }

    /// What it trains: the head of the file up to its command.
    pub(crate) fn title(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("# ")).take_while(|line| !line.starts_with(' '));
        lines.collect::<Vec<_>>().join(" ").trim_end_matches([':', '.']).to_owned()
    }

    /// The first command of its head.
    pub(crate) fn command(&self) -> &'static str {
        self.text.lines().find_map(|line| line.strip_prefix("#   ")).unwrap_or_default()
    }

    /// The settings of this preset with `assignments` over them.
    ///
    /// # Errors
    /// As for [`Settings::read`].
    pub(crate) fn settings<T: Configuration>(&self, assignments: Vec<Assignment>) -> Result<Settings<T>, SettingsError> {
        Settings::of_text(PathBuf::from(format!("the preset {}", self.name)), self.text.to_owned(), assignments)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_file_is_part_of_the_program_and_says_its_command() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
        let name = |file: fs::DirEntry| file.path().file_stem().unwrap().to_string_lossy().into_owned();
        let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|file| name(file.unwrap())).collect();
        names.sort();
        assert_eq!(names, PRESET_FILES.iter().map(|preset| preset.name).collect::<Vec<_>>());
        for preset in PRESET_FILES {
            let command: Vec<&str> = preset.command().split(' ').collect();
            let given = command.iter().position(|word| *word == "--preset").map(|at| command[at + 1]);
            assert_eq!((command[0], given), ("heedful", Some(preset.name)));
            assert!(preset.title().len() > 20, "{}: {}", preset.name, preset.title());
            assert!(PresetFile::of(command[1]).any(|other| other.name == preset.name));
        }
        assert!(PresetFile::named("multi30k").is_ok());
        assert!(PresetFile::named("multi-30k").unwrap_err().to_string().contains("did you mean `multi30k`"));
    }
}
