//! Options that only one experiment's command has.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use heedful_runs::settings::Assignment;

use crate::session::options::PathInConfiguration;

/// An option, and the configuration field that it sets.
#[derive(Clone, Copy, Debug)]
pub struct CommandOption {
    /// Name, without the dashes.
    pub name: &'static str,
    /// Dotted path of the field.
    pub field: &'static str,
    /// The value that it takes.
    pub value: OptionValue,
    /// Text of `--help`.
    pub help: &'static str,
    /// Options that it requires.
    pub requires: &'static [&'static str],
    /// Options that exclude it.
    pub conflicts: &'static [&'static str],
}

/// The value of an option.
#[derive(Clone, Copy, Debug)]
pub enum OptionValue {
    /// Nothing: the field becomes `true`.
    Flag,
    /// A word: its placeholder in `--help`, and the accepted words; an empty list leaves the check to the experiment.
    Word(&'static str, &'static [&'static str]),
    /// Words, separated by commas: the accepted ones; an empty list leaves the check to the experiment.
    Words(&'static [&'static str]),
    /// A file or folder: its placeholder in `--help`.
    Path(&'static str),
    /// A seed.
    Seed,
    /// Texts: the placeholder of each in `--help`, and the fields that they set; the option may be repeated.
    Texts(&'static str, fn(&[String]) -> Vec<Assignment>),
}

impl CommandOption {
    /// An option that all others may accompany.
    pub const fn new(name: &'static str, field: &'static str, value: OptionValue, help: &'static str) -> Self {
        Self { name, field, value, help, requires: &[], conflicts: &[] }
    }

    /// The same, refused without these options.
    pub const fn requires(self, requires: &'static [&'static str]) -> Self {
        Self { requires, ..self }
    }

    /// The same, refused beside these options.
    pub const fn conflicts(self, conflicts: &'static [&'static str]) -> Self {
        Self { conflicts, ..self }
    }

    /// A folder of a pretrained model.
    pub const fn pretrained(help: &'static str) -> Self {
        Self::new("pretrained", "pretrained", OptionValue::Path("DIR"), help)
    }

    /// The argument of the command line.
    pub(crate) fn argument(&self) -> Arg {
        let argument = Arg::new(self.name).long(self.name).help(self.help).requires_all(self.requires).conflicts_with_all(self.conflicts);
        let of_words = |argument: Arg, known: &'static [&'static str]| match known {
            [] => argument,
            known => argument.value_parser(PossibleValuesParser::new(known)),
        };
        match self.value {
            OptionValue::Flag => argument.action(ArgAction::SetTrue),
            OptionValue::Word(placeholder, known) => of_words(argument.value_name(placeholder), known),
            OptionValue::Words(known) => {
                of_words(argument.value_name("NAME[,NAME...]").value_delimiter(',').action(ArgAction::Append), known)
            }
            OptionValue::Path(placeholder) => argument.value_name(placeholder).value_parser(PathInConfiguration),
            OptionValue::Seed => argument.value_name("S").value_parser(value_parser!(u64).range(0..=i64::MAX as u64)),
            OptionValue::Texts(placeholder, _) => argument.value_name(placeholder).action(ArgAction::Append),
        }
    }

    /// Whether the command line has it.
    pub(crate) fn is_given(&self, matches: &ArgMatches) -> bool {
        matches.value_source(self.name).is_some_and(|source| source == clap::parser::ValueSource::CommandLine)
    }

    /// The fields that it sets on this command line.
    pub(crate) fn assignments(&self, matches: &ArgMatches) -> Vec<Assignment> {
        if !self.is_given(matches) {
            return Vec::new();
        }
        let option = format!("--{}", self.name);
        let set = |value: toml::Value| Assignment::option(&option, self.field, value);
        let texts = || matches.get_many::<String>(self.name).into_iter().flatten().cloned().collect::<Vec<_>>();
        match self.value {
            OptionValue::Flag => vec![set(true.into())],
            OptionValue::Word(..) => texts().into_iter().map(|text| set(text.into())).collect(),
            OptionValue::Words(_) => vec![set(texts().into())],
            OptionValue::Path(_) => {
                matches.get_one::<PathBuf>(self.name).map(|path| set(path.to_string_lossy().into_owned().into())).into_iter().collect()
            }
            OptionValue::Seed => matches.get_one::<u64>(self.name).map(|&seed| set((seed as i64).into())).into_iter().collect(),
            OptionValue::Texts(_, of_texts) => of_texts(&texts()),
        }
    }
}
