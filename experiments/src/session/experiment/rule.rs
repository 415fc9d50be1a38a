//! Allowed values of configuration fields, and where fields have an effect.
//!
//! An experiment states it in [`Experiment::rules`]; every command checks all of it before the first step.

use heedful_models::block::FeedForwardIn;
use heedful_models::kernels::precision::Precision;
use heedful_runs::settings::{self, Settings};
use toml::{Table, Value};

use super::definition::{Candidate, Config, Experiment};
use crate::session::error::ExperimentError;

/// The largest number of things that are made, drawn or read at once: more would be a slip of the pen, and not end.
const MOST: f64 = 1e9;

/// A rule for some fields of a configuration, named by their dotted paths. The path of a table stands for all of its fields.
pub struct Rule<E> {
    fields: &'static [&'static str],
    demand: Demand<E>,
}

enum Demand<E> {
    /// The number, where there is one, is not less and not greater.
    Within(f64, f64),
    /// The fields have an effect where this is true; otherwise they are refused with these words.
    Used(fn(&Candidate<E>) -> bool, &'static str),
}

impl<E: Experiment> Rule<E> {
    /// Numbers of things, from 1 to a billion.
    pub const fn counts(fields: &'static [&'static str]) -> Self {
        Self::within(fields, 1.0, MOST)
    }

    /// Numbers from `least` to `most`, both included.
    pub const fn within(fields: &'static [&'static str], least: f64, most: f64) -> Self {
        Self { fields, demand: Demand::Within(least, most) }
    }

    /// Fields that have an effect on the candidates for which `is_used` holds. If a command has no such candidate, they are refused; `otherwise` gives the
    /// reason and the remedy.
    pub const fn used(fields: &'static [&'static str], is_used: fn(&Candidate<E>) -> bool, otherwise: &'static str) -> Self {
        Self { fields, demand: Demand::Used(is_used, otherwise) }
    }

    /// Fields of generated data; `otherwise` is the message for commands with `--data`.
    pub const fn made(fields: &'static [&'static str], otherwise: &'static str) -> Self {
        Self::used(fields, |candidate| candidate.config.run.data.is_none(), otherwise)
    }
}

/// Refuses numbers that are none, and those outside of their ranges.
///
/// # Errors
/// A usage error that names the field and the range.
pub(crate) fn check_values<E: Experiment>(settings: &Settings<Config<E>>) -> Result<(), ExperimentError> {
    let table = settings::complete(&settings.value)?;
    if let Some((path, number)) = first_not_finite("", &table) {
        return Err(settings.refuse(&path, format!("{number} is not finite; give a finite number")).into());
    }
    for Rule { fields, demand } in shared::<E>().into_iter().chain(E::rules()) {
        let Demand::Within(least, most) = demand else { continue };
        for path in fields {
            let Some(value) = field(&table, path).and_then(number) else { continue };
            let remedy = match most {
                MOST if value > MOST => format!("{value} is too large; give at most {MOST}"),
                MOST | f64::MAX => format!("it must be at least {least}"),
                most => format!("{value} is not a number from {least} to {most}"),
            };
            settings.require(path, (least..=most).contains(&value), remedy)?;
        }
    }
    Ok(())
}

/// Refuses fields that a command or its file gives and that have no effect on any candidate.
///
/// # Errors
/// A usage error that names the field, and why it would change nothing.
pub(crate) fn check_use<E: Experiment>(settings: &Settings<Config<E>>, candidates: &[Candidate<E>]) -> Result<(), ExperimentError> {
    let given = settings.given(&Config::<E>::default())?;
    for Rule { fields, demand } in shared::<E>().into_iter().chain(E::rules()) {
        let Demand::Used(is_used, otherwise) = demand else { continue };
        if candidates.iter().any(is_used) {
            continue;
        }
        for path in fields {
            let parts: Vec<&str> = path.split('.').collect();
            if let Some(given) = given.iter().find(|given| given.iter().map(String::as_str).take(parts.len()).eq(parts.iter().copied())) {
                return Err(settings.refuse(&given.join("."), otherwise).into());
            }
        }
    }
    Ok(())
}

/// What all experiments have in common.
fn shared<E: Experiment>() -> Vec<Rule<E>> {
    vec![
        // Tables of positions are not all counted in the estimate of the memory.
        Rule::within(&["model.max_length"], 0.0, 1e8),
        Rule::within(&["run.match_parameters"], 1.0, 1e6),
        Rule::within(&["tokeniser.vocabulary"], 1.0, 1e7),
        Rule::within(&["model.positions.grid.rows", "model.positions.grid.columns", "model.positions.grid.channels"], 1.0, 1e6),
        Rule::used(
            &["model.decoder_layers"],
            |_| E::STACKS > 1,
            "it applies to mt, textgen and image --super-resolution; models with one stack have only model.layers; leave it out",
        ),
        Rule::used(
            &["run.columns"],
            |candidate| candidate.config.run.data.is_some(),
            "generated data has no columns; leave it out, or give --data with JSON lines or Parquet",
        ),
        Rule::used(&["run.trivial_baseline"], |_| E::HAS_TRIVIAL_BASELINE, "this experiment has no trivial baseline; leave it out"),
        Rule::used(
            &["training.learning_rate"],
            |candidate| candidate.config.training.learning_rates.is_empty(),
            "training.learning_rates are tried in its place; give --set training.learning_rates=[RATE], or [] to try none",
        ),
        Rule::used(
            &["training.loss_scaling"],
            |candidate| candidate.config.training.precision == Precision::F16,
            "the loss is scaled with 16-bit floats alone; leave it out, or give training.precision=f16",
        ),
        Rule::used(
            &["training.optimiser.without_decay"],
            |candidate| candidate.config.training.optimiser.weight_decay > 0.0,
            "there is no weight decay; leave it out, or give training.optimiser.weight_decay",
        ),
        Rule::used(
            &[
                "model.d_ff",
                "model.activation",
                "model.gated_feed_forward",
                "model.feed_forward_bias",
                "model.feed_forward_chunk",
                "model.separable_feed_forward",
                "model.feed_forward_dropout",
            ],
            |candidate| candidate.config.model.feed_forward_in != FeedForwardIn::None,
            "no model of this command has feed-forward networks; leave it out, or give model.feed_forward_in",
        ),
    ]
}

/// The field of this dotted path.
pub(crate) fn field<'t>(table: &'t Table, path: &str) -> Option<&'t Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((name, rest)) => field(table.get(name)?.as_table()?, rest),
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

fn first_not_finite(path: &str, table: &Table) -> Option<(String, f64)> {
    table.iter().find_map(|(name, value)| within(&if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, value))
}

fn within(path: &str, value: &Value) -> Option<(String, f64)> {
    match value {
        Value::Float(number) if !number.is_finite() => Some((path.to_owned(), *number)),
        Value::Table(table) => first_not_finite(path, table),
        Value::Array(values) => values.iter().enumerate().find_map(|(index, value)| within(&format!("{path}.{index}"), value)),
        _ => None,
    }
}
