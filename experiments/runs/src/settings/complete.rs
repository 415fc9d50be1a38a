//! Complete configurations: as tables, as text, their digests and differences.

use heedful_host::checksum::sha256_hex;
use serde::Serialize;
use toml::{Table, Value};

use super::{SettingsError, UNSET, same_variant};

/// The first line of the complete configuration that a run leaves behind.
const HEADING: &str = "# The complete configuration of the run. --config with this file repeats it.";

/// What stands before the checksum of all lines below it; earlier versions wrote none.
const CHECKSUM: &str = "# SHA-256 of the lines below: ";

/// Whether a file is the complete configuration that a run has left behind, as it was written.
pub(super) fn is_of_run(text: &str) -> bool {
    let is_edited = |text: &str| text.split_once('\n').is_some_and(|(digest, rest)| digest != sha256_hex(rest.as_bytes()));
    text.strip_prefix(HEADING).is_some_and(|rest| !rest.trim_start().strip_prefix(CHECKSUM).is_some_and(is_edited))
}

/// The configuration as a table with every field, optional fields without a value as [`UNSET`].
///
/// # Errors
/// [`SettingsError::Inexpressible`] for integers above 2^63 - 1.
pub fn complete<T: Serialize>(configuration: &T) -> Result<Table, SettingsError> {
    let mut table = Table::try_from(configuration).map_err(|error| SettingsError::Inexpressible(error.to_string()))?;
    // TOML leaves fields without a value out; JSON keeps them as null.
    let json = serde_json::to_value(configuration).map_err(|error| SettingsError::Inexpressible(error.to_string()))?;
    name_unset(&mut table, &json);
    Ok(table)
}

fn name_unset(table: &mut Table, json: &serde_json::Value) {
    for (key, inner) in json.as_object().into_iter().flatten() {
        match table.get_mut(key) {
            Some(value) => name_unset_within(value, inner),
            None if inner.is_null() => {
                table.insert(key.clone(), Value::String(UNSET.into()));
            }
            None => {}
        }
    }
}

fn name_unset_within(value: &mut Value, json: &serde_json::Value) {
    match value {
        Value::Table(table) => name_unset(table, json),
        Value::Array(values) => {
            for (value, json) in values.iter_mut().zip(json.as_array().into_iter().flatten()) {
                name_unset_within(value, json);
            }
        }
        _ => {}
    }
}

/// The complete configuration, defaults included, as TOML; [`Settings::read`](super::Settings::read) of a file with it gives an equal value.
///
/// # Errors
/// [`SettingsError::Inexpressible`] as for [`complete`].
pub fn complete_text<T: Serialize>(configuration: &T) -> Result<String, SettingsError> {
    table_text(&complete(configuration)?)
}

/// A table as TOML, with a heading and a checksum.
///
/// # Errors
/// [`SettingsError::Inexpressible`].
pub fn table_text(table: &Table) -> Result<String, SettingsError> {
    let text = toml::to_string(table).map_err(|error| SettingsError::Inexpressible(error.to_string()))?;
    let text = format!("\n{text}");
    Ok(format!("{HEADING}\n{CHECKSUM}{}\n{text}", sha256_hex(text.as_bytes())))
}

/// SHA-256 (hexadecimal) of the configuration in a form that does not depend on the order of fields, without the top-level tables in `except`
/// (such as [`crate::run_folder::RUN_TABLES`]).
///
/// # Errors
/// [`SettingsError::Inexpressible`] as for [`complete`].
pub fn digest<T: Serialize>(configuration: &T, except: &[&str]) -> Result<String, SettingsError> {
    Ok(table_digest(complete(configuration)?, except))
}

/// [`digest`] of a configuration that is a table already.
pub fn table_digest(mut table: Table, except: &[&str]) -> String {
    table.retain(|key, _| !except.contains(&key));
    sha256_hex(canonical(&Value::Table(table)).as_bytes())
}

fn canonical(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let mut fields: Vec<_> = table.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("{key:?}:{}", canonical(value))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::String(text) => format!("{text:?}"),
        Value::Float(number) => format!("{number:?}"),
        other => other.to_string(),
    }
}

/// The fields of `changed` that differ from those of `base`, without the top-level tables in `except`.
///
/// # Errors
/// [`SettingsError::Inexpressible`] as for [`complete`].
pub fn changes<T: Serialize>(base: &T, changed: &T, except: &[&str]) -> Result<Table, SettingsError> {
    let (base, mut changed) = (complete(base)?, complete(changed)?);
    changed.retain(|key, _| !except.contains(&key));
    Ok(differing("", &base, changed))
}

fn differing(name: &str, base: &Table, changed: Table) -> Table {
    let field = |(key, value): (String, Value)| match (base.get(&key), value) {
        (Some(below), value) if *below == value => None,
        (Some(Value::Table(below)), Value::Table(above)) if same_variant(name, below, &above) => {
            let inner = differing(&key, below, above);
            Some((key, Value::Table(inner)))
        }
        (_, value) => Some((key, value)),
    };
    changed.into_iter().filter_map(field).collect()
}

/// The first field in which two complete configurations differ, as `` `a.b`: 1 there, 2 here ``.
pub fn first_difference(there: &Table, here: &Table) -> Option<String> {
    difference(there, here, "")
}

fn difference(there: &Table, here: &Table, prefix: &str) -> Option<String> {
    let added = here.keys().filter(|key| !there.contains_key(*key));
    there.keys().chain(added).find_map(|key| match (there.get(key), here.get(key)) {
        (Some(Value::Table(there)), Some(Value::Table(here))) => difference(there, here, &format!("{prefix}{key}.")),
        (there, here) if there == here => None,
        (there, here) => {
            let shown = |value: Option<&Value>| value.map_or("absent".into(), Value::to_string);
            Some(format!("`{prefix}{key}`: {} there, {} here", shown(there), shown(here)))
        }
    })
}
