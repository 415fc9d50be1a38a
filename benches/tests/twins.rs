//! The twins of experiments in Python: what they say of themselves, with whatever packages are installed.

use std::path::Path;
use std::process::Command;

const TWINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/twins");

/// Without PyTorch, this leaves out what trains; the script says so.
#[test]
fn the_checks_of_the_twins_pass() {
    let output = Command::new("python3").arg(Path::new(TWINS).join("check.py")).output().expect("this test needs `python3`");
    let [said, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{said}{errors}");
    for check in ["student_and_equivalence", "verdicts", "presets_and_refusals", "words_and_pieces", "budgets"] {
        assert!(said.contains(&format!("{check}: as it should be")), "{said}");
    }
}
