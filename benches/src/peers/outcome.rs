//! The results of a comparison.

use std::collections::BTreeMap;

use heedful_host::machine::Machine;
use heedful_host::provenance::Provenance;
use serde::{Deserialize, Serialize};

use super::measure::CaseResult;

/// The results of a comparison: a file of the results folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name: the command, and the name of its file.
    pub what: String,
    /// Heading.
    pub title: String,
    /// What a reader of the table must know.
    pub about: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Processes that ran or waited before the first comparison, on average of a minute; `None` where the system does not report it.
    pub load: Option<f64>,
    /// Threads of each side.
    pub threads: usize,
    /// Whether each thread had a core of its own; not so in files of earlier versions.
    #[serde(default)]
    pub bound: bool,
    /// Versions of what was measured, by name.
    pub versions: BTreeMap<String, String>,
    /// Provenance of the measurement; unknown for files of earlier versions.
    #[serde(default)]
    pub provenance: Option<Provenance>,
    /// Results, size by size.
    pub cases: Vec<CaseResult>,
}
