//! Whether runs were repeated to the same scores, digit for digit: what `compare --exactly` does.

use heedful_host::exit::{Completion, ProgramError, print_line};

use crate::record::{ResultRecord, STEPS_PER_SECOND};

use super::runs::RunSource;

/// Prints how the runs of `repeated` differ from those of `earlier`.
///
/// # Errors
/// A failure if a run has other scores, or is not among the earlier ones.
pub fn run(earlier: &RunSource, repeated: &RunSource) -> Result<Completion, ProgramError> {
    let mut differing = 0;
    let mut reasons: Vec<String> = Vec::new();
    for record in &repeated.records {
        let differences = match earlier.records.iter().find(|other| other.key() == record.key()) {
            Some(other) => {
                let found = differences(other, record);
                if !found.is_empty() {
                    reasons.extend(other_numerics(other, record));
                }
                found
            }
            None => vec![format!("is not in {}", earlier.path.display())],
        };
        differing += usize::from(!differences.is_empty());
        for difference in differences {
            print_line(format!("{}: {difference}", record.key()))?;
        }
    }
    let [commits, own_commits] = [earlier, repeated].map(|source| commits(&source.records));
    print_line(format!("{}: commit {commits}; {}: commit {own_commits}", earlier.path.display(), repeated.path.display()))?;
    let (all, compared) = (earlier.records.len(), repeated.records.len());
    if compared < all {
        print_line(format!("{compared} of the {all} runs were repeated."))?;
    }
    match differing {
        0 => {
            print_line(format!("{compared} runs have the same scores, digit for digit."))?;
            Ok(Completion::Finished)
        }
        _ => {
            if !reasons.is_empty() {
                let reasons = heedful_host::display::distinct(reasons.into_iter()).join("; ");
                print_line(format!("Digits may differ for these reasons alone: {reasons}."))?;
            }
            Err(ProgramError::failure(format!("{differing} of {compared} runs differ")))
        }
    }
}

/// Reasons for other digits of equal code.
fn other_numerics(earlier: &ResultRecord, repeated: &ResultRecord) -> Vec<String> {
    match (&earlier.provenance, &repeated.provenance) {
        (Some(earlier), Some(repeated)) => earlier.other_numerics(repeated),
        _ => vec!["compiler and processor features were not recorded".to_owned()],
    }
}

/// What is not the same in two records of one run, without what it took.
fn differences(earlier: &ResultRecord, repeated: &ResultRecord) -> Vec<String> {
    let mut found = Vec::new();
    if earlier.data_sha256 != repeated.data_sha256 {
        found.push(format!("the data are others: SHA-256 {}, now {}", earlier.data_sha256, repeated.data_sha256));
    }
    let mut counts = |what: &str, earlier: u64, repeated: u64| {
        if earlier != repeated {
            found.push(format!("{what}: {earlier}, now {repeated}"));
        }
    };
    counts("parameters", earlier.parameters, repeated.parameters);
    counts("steps", earlier.steps, repeated.steps);
    let names = earlier.metrics.keys().chain(repeated.metrics.keys().filter(|name| !earlier.metrics.contains_key(*name)));
    for name in names.filter(|name| *name != STEPS_PER_SECOND) {
        let values = [earlier, repeated].map(|record| record.metrics.get(name).copied());
        let shown = values.map(|value| match value {
            None => "absent".to_owned(),
            Some(None) => "undefined".to_owned(),
            Some(Some(value)) => value.to_string(),
        });
        match values {
            [Some(Some(earlier)), Some(Some(repeated))] if earlier.to_bits() != repeated.to_bits() => {
                found.push(format!("{name}: {}, now {} ({:+.3e})", shown[0], shown[1], repeated - earlier));
            }
            [Some(Some(_)), Some(Some(_))] => {}
            [earlier, repeated] if earlier == repeated => {}
            _ => found.push(format!("{name}: {}, now {}", shown[0], shown[1])),
        }
    }
    found
}

/// The commits of some records, without repetition.
fn commits(records: &[ResultRecord]) -> String {
    heedful_host::display::distinct(records.iter().map(ResultRecord::code)).join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::{record, source};
    use super::*;

    #[test]
    fn equal_runs_pass_whatever_they_took() {
        let earlier = record("dense", 1, &[("BLEU", 0.1 + 0.2), ("x", f64::NAN), (STEPS_PER_SECOND, 3.0)]);
        let mut repeated = ResultRecord { wall_seconds: 1.0, tokens_per_second: None, ..earlier.clone() };
        repeated.score(STEPS_PER_SECOND, 4.0);
        assert_eq!(differences(&earlier, &repeated), Vec::<String>::new());
        assert!(run(&source("a", &[earlier.clone(), record("dense", 2, &[])]), &source("b", &[repeated])).is_ok());
    }

    #[test]
    fn every_digit_counts() {
        let earlier = record("dense", 1, &[("BLEU", 0.1 + 0.2), ("chrF2", 1.0), ("x", 1.0)]);
        let mut repeated = record("dense", 1, &[("BLEU", 0.3), ("chrF2", f64::NAN), ("y", 1.0)]);
        (repeated.steps, repeated.data_sha256) = (7, "f00d".into());
        let found = differences(&earlier, &repeated);
        assert_eq!(found.len(), 6, "{found:?}");
        assert_eq!(found[0], "the data are others: SHA-256 feed, now f00d");
        assert_eq!(found[1], "steps: 0, now 7");
        assert_eq!(found[2], "BLEU: 0.30000000000000004, now 0.3 (-5.551e-17)");
        assert_eq!(found[3..], ["chrF2: 1, now undefined", "x: 1, now absent", "y: absent, now 1"].map(str::to_owned));
        let error = run(&source("a", &[earlier]), &source("b", &[repeated, record("other", 1, &[])])).unwrap_err();
        assert_eq!((error.exit_code(), error.to_string().as_str()), (1, "2 of 2 runs differ"));
    }

    #[test]
    fn records_without_compiler_and_processor_features_are_named_as_such() {
        use heedful_host::provenance::Provenance;
        let by = |provenance| ResultRecord { provenance, ..record("dense", 1, &[]) };
        let here = Provenance::built_from("unknown", "unknown", Vec::new());
        let [known, elsewhere] = [here.clone(), Provenance { cpu_features: vec!["neon?".into()], ..here }].map(|it| by(Some(it)));
        assert_eq!(other_numerics(&known, &known), [""; 0]);
        let told = other_numerics(&known, &elsewhere);
        assert!(told.len() == 1 && told[0].starts_with("processor features: ") && told[0].ends_with(", now neon?"), "{told:?}");
        for unknown in [[&known, &by(None)], [&by(None), &by(None)]] {
            assert_eq!(other_numerics(unknown[0], unknown[1]), ["compiler and processor features were not recorded"]);
        }
    }
}
