//! The fields of a configuration and the values that they can have.

use heedful_runs::settings::{self, Settings, UNSET};
use toml::{Table, Value};

use super::tiny_commands::given;
use super::trial::{End, run};
use crate::model::mechanisms::MechanismOptions;
use crate::session::experiment::definition::{Config, Experiment};
use crate::session::options::CommonOptions;

/// The complete configuration with these fields set, without the options of mechanisms.
pub(super) fn configuration<E: Experiment>(fields: &[String]) -> Table {
    let mut config = read::<E>(fields);
    config.mechanisms = MechanismOptions::default();
    let mut table = settings::complete(&config).unwrap();
    table.remove(settings::MECHANISMS);
    table
}

/// All options of a mechanism, with these fields set.
pub(super) fn options<E: Experiment>(fields: &[String], family: &str) -> Table {
    settings::complete(&read::<E>(fields)).unwrap()[settings::MECHANISMS][family].as_table().unwrap().clone()
}

fn read<E: Experiment>(fields: &[String]) -> Config<E> {
    let options = CommonOptions { assignments: fields.to_vec(), ..CommonOptions::default() };
    Settings::<Config<E>>::read(None, options.assignments().unwrap()).unwrap().value
}

/// Paths of the fields with their values: tables are no fields, what they hold is.
pub(super) fn leaves(path: &str, table: &Table) -> Vec<(String, Value)> {
    let of_field = |(name, value): (&String, &Value)| {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Table(inner) => leaves(&path, inner),
            value => vec![(path, value.clone())],
        }
    };
    table.iter().flat_map(of_field).collect()
}

/// The names that a field can have, where it has one of several.
pub(super) fn names<E: Experiment>(base: &[String], path: &str) -> Vec<String> {
    known::<E>(base, path, "'?'")
}

/// The names that are known where `unknown` is not.
fn known<E: Experiment>(base: &[String], path: &str, unknown: &str) -> Vec<String> {
    let End::Mistyped(words) = run::<E>(&[base, &[format!("{path}={unknown}")]].concat()) else { return Vec::new() };
    let Some((_, known)) = words.rsplit_once("(known: ") else { return Vec::new() };
    known.trim_end_matches(')').split(", ").map(|name| format!("'{name}'")).collect()
}

/// Other values of a field, in TOML; not all of them are of its type.
pub(super) fn others<E: Experiment>(base: &[String], path: &str, value: &Value) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let guessed = match value {
        Value::Boolean(truth) => vec![(!truth).to_string()],
        Value::Integer(number) => {
            [number + 1, number * 2, number / 2, number - 1, 2, 1].iter().filter(|other| *other != number).map(i64::to_string).collect()
        }
        Value::Float(number) => [number * 0.5, number * 2.0, number + 1.0, 0.1, 0.5]
            .iter()
            .filter(|other| *other != number)
            .map(|other| format!("{other:?}"))
            .collect(),
        Value::String(text) => {
            let names: Vec<String> = names::<E>(base, path).into_iter().filter(|name| name.trim_matches('\'') != text).collect();
            let further = if text == UNSET {
                texts(&[
                    "1",
                    "2",
                    "4",
                    "8",
                    "0.5",
                    "true",
                    "false",
                    "{}",
                    "[2, 2]",
                    "{name='uniform'}",
                    "{kind='gru'}",
                    "'other'",
                    "[0.25, 0.5]",
                    "[1e-3, 1e-2]",
                ])
            } else {
                texts(&["'other'"])
            };
            names.into_iter().chain(further).collect()
        }
        Value::Array(values) => {
            let shorter = values.split_last().map(|(_, rest)| Value::Array(rest.to_vec()).to_string());
            let named = known::<E>(base, path, "['?']").into_iter().map(|name| format!("[{name}]"));
            shorter
                .into_iter()
                .chain(named)
                .chain(texts(&["[]", "[0.5, 0.5]", "[1, 2]", "[0.1, 0.2]", "['other']", "[300]", "[600]", "[[256, 8]]"]))
                .filter(|other| *other != Value::Array(values.clone()).to_string())
                .collect()
        }
        Value::Table(_) | Value::Datetime(_) => Vec::new(),
    };
    guessed.into_iter().chain(given(path)).collect()
}

/// Values at and beyond the ends of what the type of a field can hold.
pub(super) fn extremes<E: Experiment>(base: &[String], path: &str, value: &Value) -> Vec<String> {
    let numbers = ["0", "-1", "1e30", "-1e30", "1e-30", "nan", "inf", "-inf", "9223372036854775807"];
    let lists = ["[]", "[0]", "[-1.0, 1e30]", "[nan]", "[inf, inf]", "['']", "[9223372036854775807]", "[0, 0]"];
    let chosen: Vec<&str> = match value {
        Value::Integer(_) => vec!["0", "-1", "1", "9223372036854775807"],
        Value::Float(_) => numbers.to_vec(),
        Value::String(text) if text == UNSET => numbers.iter().chain(&lists).copied().chain(["''", "{}", "true"]).collect(),
        Value::String(_) => vec!["''", "'\\n'", "'a b'"],
        Value::Array(_) => lists.to_vec(),
        Value::Boolean(_) | Value::Table(_) | Value::Datetime(_) => Vec::new(),
    };
    let is_choice = matches!(value, Value::String(text) if text != UNSET) && !names::<E>(base, path).is_empty();
    if is_choice { Vec::new() } else { chosen.into_iter().map(str::to_owned).collect() }
}
