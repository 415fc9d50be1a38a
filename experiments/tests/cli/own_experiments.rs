//! Runs the example of a user's own experiment.

use std::fs;

use heedful_experiments::options::CommonOptions;

use crate::command::{binary, succeeded};

#[path = "../../examples/own_experiment.rs"]
#[allow(dead_code, reason = "its main reads the options of a command")]
mod example;

#[test]
fn an_own_experiment_leaves_a_report_behind() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("echo");
    let attention = ["dot-product", "gaussian"].map(str::to_owned).to_vec();
    let options = CommonOptions { attention, steps: Some(2), out: Some(out.clone()), quiet: true, ..CommonOptions::default() };
    example::run(&options);
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    for part in ["# Repeating what was read", "| dot-product | 1 |", "| gaussian | 1 |", "letters of the second half, 256 sequences"] {
        assert!(report.contains(part), "{report}");
    }
    succeeded(&binary("compare").arg(&out).output().unwrap());
}
