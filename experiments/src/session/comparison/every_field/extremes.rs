//! Extreme values are refused before the first step, or runs end with them.

use heedful_attention::description::AnyMechanism;
use heedful_runs::settings::MECHANISMS;
use toml::Value;

use super::Variety;
use super::leaves::{configuration, extremes, leaves, options};
use super::trial::{End, run};
use crate::session::experiment::definition::Experiment;

/// Walks over the fields of an experiment's configuration, and names all at once that break the rule.
pub(super) fn walk<E: Experiment>(variety: &Variety) {
    let mut faults = Vec::new();
    let further = variety.contexts.iter().chain(variety.choices).map(|(further, fields)| (*further, Some(*fields)));
    for (further, fields) in std::iter::once((&[][..], None)).chain(further) {
        let base = variety.with(further);
        for (path, value) in leaves("", &configuration::<E>(&base)) {
            let is_meant = match fields {
                None => !variety.is_elsewhere(&path) && !variety.is_model_elsewhere(&path),
                Some(fields) => fields.iter().any(|field| path == *field || path.starts_with(&format!("{field}."))),
            };
            if is_meant {
                faults.extend(faults_of::<E>(&base, &path, &value));
            }
        }
    }
    assert!(faults.is_empty(), "{} values of {}:\n{}", faults.len(), E::NAME, faults.join("\n"));
}

/// Walks over the options of each mechanism in a model that has it.
pub(super) fn mechanisms<E: Experiment>(variety: &Variety) {
    let mut faults = Vec::new();
    for family in AnyMechanism::families() {
        let base = variety.with(&[format!("run.attention=['{family}']").as_str()]);
        for (path, value) in leaves(&format!("{MECHANISMS}.{family}"), &options::<E>(&base, family)) {
            faults.extend(faults_of::<E>(&base, &path, &value));
        }
    }
    assert!(faults.is_empty(), "{} options:\n{}", faults.len(), faults.join("\n"));
}

/// The extreme values of a field with which a command ends otherwise than it should.
fn faults_of<E: Experiment>(base: &[String], path: &str, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for extreme in extremes::<E>(base, path, value) {
        // So many steps would not end, and no limit of time holds for the model that all begin with.
        if path == "start.steps" && extreme.len() > 9 {
            continue;
        }
        let given = format!("{path}={extreme}");
        let limit = (path == "training.steps").then(|| "training.minutes=0.001".to_owned());
        match run::<E>(&base.iter().cloned().chain(limit).chain([given.clone()]).collect::<Vec<_>>()) {
            End::Mistyped(_) | End::Refused(_) | End::Done(_) => {}
            // A model may diverge.
            End::Failed(words) if words.contains("not finite") => {}
            End::Failed(words) => faults.push(format!("{given} fails: {words}")),
            End::Panicked(words) => faults.push(format!("{given} panics: {words}")),
        }
    }
    faults
}
