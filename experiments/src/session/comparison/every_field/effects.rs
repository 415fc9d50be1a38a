//! Other values have an effect, change time, memory and files alone, or are refused.

use super::leaves::{configuration, leaves, others};
use super::trial::{End, Found, run};
use super::{Variety, tiny_commands};
use crate::session::experiment::definition::Experiment;

/// Walks over the fields of an experiment's configuration, and names all at once that break the rule.
pub(super) fn walk<E: Experiment>(variety: &Variety) {
    let base = variety.base();
    let mut faults = Vec::new();
    let plain = done::<E>(&base);
    assert_eq!(plain.differences(&done::<E>(&base), 0.0), [""; 0], "the same command gives the same");
    for (path, value) in leaves("", &configuration::<E>(&base)) {
        if variety.is_elsewhere(&path) {
            continue;
        }
        let same = tiny_commands::is_same(&path);
        let allowed = if variety.has_context(&path) { Allowed::Unchanged } else { Allowed::Refused };
        if let Some(fault) = fault::<E>(&base, &plain, &path, others::<E>(&base, &path, &value), same, allowed) {
            faults.push(fault);
        }
    }
    // Where fields have no effect by default, they have one in another configuration.
    for (further, fields) in variety.contexts {
        let base = variety.with(further);
        let plain = done::<E>(&base);
        let all = leaves("", &configuration::<E>(&base));
        for field in *fields {
            let (field, given) = field.split_once('=').map_or((*field, None), |(field, value)| (field, Some(value.to_owned())));
            let mut met = false;
            for (path, value) in all.iter().filter(|(path, _)| path == field || path.starts_with(&format!("{field}."))) {
                met = true;
                // Another choice has other options than those that are set here.
                if path.ends_with(".kind") {
                    continue;
                }
                let values = given.clone().map_or_else(|| others::<E>(&base, path, value), |given| vec![given]);
                faults.extend(
                    fault::<E>(&base, &plain, path, values, tiny_commands::is_same(path), Allowed::Nothing)
                        .map(|fault| format!("{further:?}: {fault}")),
                );
            }
            assert!(met, "there is no field `{field}` with {further:?}");
        }
    }
    assert!(faults.is_empty(), "{} fields of {}:\n{}", faults.len(), E::NAME, faults.join("\n"));
}

/// What a field may do beside having an effect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Nothing.
    Nothing,
    /// It may be refused.
    Refused,
    /// It may be refused or change nothing: its effect is shown in another configuration.
    Unchanged,
}

pub(super) fn done<E: Experiment>(fields: &[String]) -> Found {
    match run::<E>(fields) {
        End::Done(found) => found,
        end => panic!("{fields:?}: {end:?}"),
    }
}

/// Whether a refusal is of a field that has no effect, and not of its value.
fn says_idle(words: &str) -> bool {
    ["no effect", "leave it out", "leave this out", "leave --data out", "in its place"].iter().any(|part| words.contains(part))
}

/// How a field breaks the rule.
pub(super) fn fault<E: Experiment>(
    base: &[String],
    plain: &Found,
    path: &str,
    values: Vec<String>,
    same: bool,
    allowed: Allowed,
) -> Option<String> {
    let (mut unchanged, mut refused, mut mistyped) = (Vec::new(), None, None);
    for value in values {
        match run::<E>(&[base, &[format!("{path}={value}")]].concat()) {
            // Another choice has fields of its own, which are set together with it where its effect is shown.
            End::Mistyped(words) if path.ends_with(".kind") && words.contains("missing") => refused = Some(words),
            End::Mistyped(words) => mistyped = Some(words),
            End::Refused(words) if says_idle(&words) => refused = Some(words),
            // Another value may be one that the field can have.
            End::Refused(words) => mistyped = Some(words),
            End::Panicked(words) => return Some(format!("{path}={value} panics: {words}")),
            End::Failed(words) => return Some(format!("{path}={value} fails: {words}")),
            End::Done(found) => {
                let differences = found.differences(plain, if same { 1e-3 } else { 0.0 });
                match (same, differences.is_empty()) {
                    (true, false) => return Some(format!("{path}={value} changes {}", differences.join(", "))),
                    (false, false) => return None,
                    (_, true) => unchanged.push(value),
                }
            }
        }
    }
    match (same, unchanged.is_empty(), refused) {
        (true, false, _) => None,
        (false, false, _) if allowed == Allowed::Unchanged => None,
        (false, false, _) => Some(format!("{path} has no effect as {}", unchanged.join(", "))),
        (_, true, Some(_)) if allowed != Allowed::Nothing => None,
        (_, true, Some(words)) => Some(format!("{path} is refused: {words}")),
        (_, true, None) if allowed == Allowed::Unchanged => None,
        (_, true, None) => Some(format!("{path}: no value fits: {}", mistyped.unwrap_or_default())),
    }
}
