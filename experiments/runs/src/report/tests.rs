mod page;

use super::*;
use crate::markup::tests::{HOSTILE, assert_harmless};
use heedful_host::machine::Machine;

use crate::record::Budget;

fn record(attention: &str, seed: u64, bleu: f64, perplexity: f64) -> ResultRecord {
    let mut record = ResultRecord {
        parameters: 1_234_567,
        tokens_per_second: Some(12_345.6),
        peak_memory_bytes: Some(400 << 20),
        wall_seconds: 61.0,
        command: "mt --attention 'a b' --seeds 2".into(),
        version: "0.1.0".into(),
        data_sha256: "feed".into(),
        machine: Machine { cpu: "Some CPU".into(), cores: 2, os: "linux x86_64".into() },
        configuration: "0123456789abcdef".into(),
        budget: Budget { steps: Some(1500), minutes: None },
        ..crate::record::tests::record(attention, seed, bleu)
    };
    record.signatures.insert("bleu".into(), "nrefs:1|tok:13a".into());
    record.score("perplexity", perplexity);
    record
}

fn columns() -> Vec<MetricColumn> {
    vec![
        MetricColumn::new("bleu", "BLEU").higher_is_better().defined_as("corpus BLEU of the test set"),
        MetricColumn::new("perplexity", "perplexity").lower_is_better(),
    ]
}

fn report(records: &[ResultRecord]) -> Report<'_> {
    Report {
        title: "Machine translation".into(),
        subject: "attention",
        records,
        trivial: Vec::new(),
        metrics: columns(),
        published: PublishedNumbers::default(),
        sections: Vec::new(),
    }
}

fn row<'t>(text: &'t str, start: &str) -> &'t str {
    text.lines().find(|line| line.trim_start_matches("| ").starts_with(start)).unwrap_or_else(|| panic!("no row {start} in\n{text}"))
}

#[test]
fn a_row_shows_mean_and_sample_deviation_over_seeds_and_what_the_runs_cost() {
    let records = [record("dot-product", 1, 27.0, 9.0), record("dot-product", 2, 28.0, 9.0), record("dense", 1, 20.0, 8.0)];
    let text = report(&records).markdown();
    assert_eq!(
        row(&text, "dot-product"),
        "| dot-product | 2 | **27.50 ± 0.71** | 9.00 ± 0.00 | 1,234,567 | 12,346 | 400 MiB | 1 min 1 s |"
    );
    assert_eq!(row(&text, "dense"), "| dense | 1 | 20.00 | **8.00** | 1,234,567 | 12,346 | 400 MiB | 1 min 1 s |");
}

#[test]
fn means_that_look_equal_are_marked_alike_and_a_single_row_is_not_marked() {
    let tie = [record("a", 1, 27.001, 1.0), record("b", 1, 27.004, 2.0)];
    let text = report(&tie).markdown();
    assert!(row(&text, "a ").contains("**27.00**") && row(&text, "b ").contains("**27.00**"), "{text}");
    assert!(!row(&text, "b ").contains("**2.00**"), "{text}");
    assert!(!row(&report(&tie[..1]).markdown(), "a ").contains("**"));
}

#[test]
fn undefined_scores_are_counted_and_never_averaged_or_marked() {
    let records = [record("a", 1, f64::NAN, f64::NAN), record("a", 2, 10.0, f64::NAN), record("b", 1, 9.0, 5.0)];
    let text = report(&records).markdown();
    assert!(row(&text, "a ").contains("| 10.00 (1 of 2 defined) | undefined |"), "{text}");
    assert!(text.contains("note, mt / invented / a / flex / seed 1: bleu is NaN, recorded as undefined"), "{text}");
}

#[test]
fn runs_on_other_data_backends_or_configurations_are_not_averaged_together() {
    let mut records = vec![record("a", 1, 1.0, 1.0), record("a", 1, 3.0, 1.0), record("a", 1, 5.0, 1.0), record("a", 2, 7.0, 1.0)];
    records[1].dataset = "other".into();
    records[2].backend = "wgpu".into();
    records[3].configuration = "fedcba9876543210".into();
    let text = report(&records).markdown();
    for title in ["## mt: invented, backend flex", "## mt: other, backend flex", "## mt: invented, backend wgpu"] {
        assert!(text.contains(title), "{text}");
    }
    assert!(row(&text, "a [0123456789ab]").contains("1.00") && row(&text, "a [fedcba987654]").contains("7.00"), "{text}");
}

#[test]
fn the_terminal_table_is_aligned_and_marks_the_best_mean() {
    let records = [record("dot-product", 1, 27.0, 9.0), record("dot-product", 2, 28.0, 9.0), record("dense", 1, 20.0, 8.0)];
    let text = report(&records).terminal();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "mt: invented, backend flex");
    let widths: Vec<usize> = lines[2..6].iter().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    assert!(row(&text, "dot-product").contains("27.50 ± 0.71 *") && row(&text, "dense").contains("8.00 *"), "{text}");
    assert!(text.contains("may be chance"), "{text}");
}

#[test]
fn percent_and_digits_are_a_matter_of_the_column() {
    let mut run = record("a", 1, 1.0, 1.0);
    run.score("accuracy", 0.5);
    let records = [run, record("b", 1, 1.0, 1.0)];
    let metrics = vec![MetricColumn::new("accuracy", "accuracy (%)").percent().digits(1), MetricColumn::new("absent", "absent")];
    let text = Report { metrics, ..report(&records) }.markdown();
    assert!(row(&text, "a ").starts_with("| a | 1 | 50.0 |"), "{text}");
    assert!(row(&text, "b ").starts_with("| b | 1 | – |"), "{text}");
    assert!(!text.contains("absent"), "a metric that no run has is left out: {text}");
}

#[test]
fn the_markdown_tells_how_the_runs_were_made() {
    let records = [record("a", 1, 1.0, 1.0)];
    let sections = vec![Section { title: "Figures".into(), body: "![curves](curves.svg)".into() }];
    let text = Report { sections, ..report(&records) }.markdown();
    for part in [
        "corpus BLEU of the test set; signature `nrefs:1|tok:13a`",
        "higher is better",
        "invented, SHA-256 `feed`",
        "Some CPU, up to 2 threads, linux x86_64",
        "Version: 0.1.0",
        "Commit: unknown",
        "1,500 steps",
        "      mt --attention 'a b' --seeds 2",
        "## Figures\n\n![curves](curves.svg)",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn a_report_points_to_a_file_that_a_run_has_and_to_no_other() {
    let mut run = record("a", 1, 1.0, 1.0);
    run.score("steps", 2.0);
    let records = [run];
    let metrics = vec![MetricColumn::new("steps", "steps").defined_as("of each position").shown_in("halting.txt")];
    let report = Report { metrics, ..report(&records) };
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::at(folder.path()).run("a", 1).unwrap();
    let written = || {
        report.write(&folder.path().join("report.md")).unwrap();
        std::fs::read_to_string(folder.path().join("report.md")).unwrap()
    };
    assert!(written().contains("- **steps** (`steps`): of each position\n") && !written().contains("halting.txt"), "{}", written());
    std::fs::write(run.root().join("halting.txt"), "1 2 2").unwrap();
    assert!(written().contains("of each position; `halting.txt` of the run shows them\n"), "{}", written());
    assert!(!report.markdown().contains("halting.txt"));
}

#[test]
fn the_markdown_names_code_build_and_what_was_used_of_the_machine() {
    use heedful_host::provenance::Provenance;
    let provenance = Provenance {
        commit: "0123456789abcdef".into(),
        is_clean: Some(false),
        compiler: "rustc 1.95.0".into(),
        features: vec!["ndarray".into(), "wgpu".into()],
        instruction_set: "x86-64-v3".into(),
        cpu_features: vec!["avx2".into(), "fma".into()],
        caches: Vec::new(),
        threads: 1,
        ranks: Some(2),
    };
    let records = [record("a", 1, 1.0, 1.0), ResultRecord { provenance: Some(provenance), ..record("b", 1, 1.0, 1.0) }];
    let text = report(&records).markdown();
    for part in [
        "- Machine: Some CPU, up to 2 threads, linux x86_64; Some CPU, 2 processes with 1 of 2 threads each, linux x86_64, x86-64-v3",
        "- Processor features: unknown; avx2, fma",
        "- Commit: unknown; 0123456789ab with changes",
        "- Build: unknown; rustc 1.95.0, features ndarray, wgpu",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn speeds_of_disturbed_runs_are_left_out() {
    let records = [ResultRecord { disturbed: true, ..record("a", 1, 1.0, 1.0) }, record("b", 1, 2.0, 1.0)];
    let text = report(&records).markdown();
    assert!(row(&text, "a ").ends_with("| 1,234,567 | – | 400 MiB | – |"), "{text}");
    assert!(row(&text, "b ").ends_with("| 1,234,567 | 12,346 | 400 MiB | 1 min 1 s |"), "{text}");
    assert!(text.contains("shared their cores with other runs or programs"), "{text}");
    assert!(!report(&records[1..]).markdown().contains("shared their cores"));
}

#[test]
fn published_numbers_stand_in_a_table_of_their_own_with_their_evidence() {
    let records = [record("synthesizer-random", 1, 1.0, 1.0)];
    let text = Report { published: PublishedNumbers::machine_translation(), ..report(&records) }.markdown();
    let (measured, published) = text.split_once("## Published numbers (from papers, not measured here)").unwrap();
    assert!(!measured.contains("27.27") && !measured.contains("2005.00743"));
    assert!(
        published.contains("| Synthesizer (2005.00743) | 2 | WMT14 En-De | Random | `synthesizer-random` | BLEU | 27.27 | verified |"),
        "{published}"
    );
    assert!(published.contains("| HC-SA | `gaussian` | BLEU | 30.3 | unconfirmed |"), "{published}");
    assert!(!report(&records).markdown().contains("## Published"));
}

#[test]
fn a_bar_in_a_name_does_not_break_the_table() {
    let records = [record("a|b", 1, 1.0, 1.0)];
    assert!(report(&records).markdown().contains("| a&#124;b | 1 |"));
}

#[test]
fn configuration_results_and_report_of_an_experiment_work_together() {
    use crate::results::{Results, RunOrder, write_result};
    use crate::run_folder::RUN_TABLES;
    use crate::settings::{Settings, digest};
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Wanted {
        attention: Vec<String>,
        seeds: u64,
    }

    #[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Configuration {
        run: Wanted,
        training: BTreeMap<String, u64>,
    }

    fn run(root: &Path, seeds: u64, steps: u64, resume: bool) -> Result<usize, ProgramError> {
        let given = ["run.attention=[\"dot-product\"]".to_string(), format!("run.seeds={seeds}"), format!("training.steps={steps}")];
        let settings = Settings::<Configuration>::set(&given.each_ref().map(String::as_str))?;
        let folder = RunFolder::open(root, &settings.value, resume, |_, _| {})?;
        folder.choose_runs(&settings.value)?;
        let configuration = digest(&settings.value, &RUN_TABLES)?;
        let mut results = Results::read(&folder)?;
        let mut trained = 0;
        for seed in 1..=settings.value.run.seeds {
            let scored = record("dot-product", seed, 20.0 + seed as f64, 5.0);
            let done = ResultRecord { configuration: configuration.clone(), finished_ms: Some(seed), ..scored };
            if results.finished(&done.key(), &configuration)?.is_none() {
                write_result(&folder.run("dot-product", seed)?, &done)?;
                trained += 1;
            }
        }
        let write = |results: &Results| Ok::<_, ProgramError>(report(results.records()).write(&folder.report())?);
        results.derive(&RunOrder::default(), write)?;
        Ok(trained)
    }

    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("out");
    assert_eq!(run(&root, 2, 100, false).unwrap(), 2);
    assert_eq!(run(&root, 3, 100, true).unwrap(), 1, "two of the three runs are finished");
    assert_eq!(run(&root, 3, 200, true).unwrap_err().exit_code(), 2);
    let text = std::fs::read_to_string(root.join("report.md")).unwrap();
    assert!(row(&text, "dot-product").starts_with("| dot-product | 3 | 22.00 ± 1.00 |"), "{text}");
    let again = Settings::<Configuration>::read(Some(&root.join("config.toml")), Vec::new()).unwrap().value;
    assert_eq!((again.run.seeds, again.training["steps"]), (3, 100));
}

#[test]
fn hostile_names_are_text_in_the_report() {
    let mut hostile = record(HOSTILE, 1, 1.0, 2.0);
    hostile.dataset = HOSTILE.into();
    hostile.backend = HOSTILE.into();
    hostile.machine.cpu = HOSTILE.into();
    hostile.command = HOSTILE.into();
    hostile.notes = vec![HOSTILE.into()];
    hostile.signatures.insert("bleu".into(), "a`b\n# g".into());
    let records = [hostile, record("dense", 1, 2.0, 1.0)];
    let report = report(&records);
    let text = report.markdown();
    let (before, command) = text.split_once("- Command:").unwrap();
    assert_harmless(before);
    assert!(before.contains("signature ``a`b # g``"), "{before}");
    let command: Vec<&str> =
        command.lines().take_while(|line| !line.contains("every single run")).filter(|line| !line.is_empty()).collect();
    assert!(command.iter().all(|line| line.starts_with("      ")) && command.len() > 1, "a line leaves the block of code: {command:?}");
    assert!(!report.terminal().contains('\u{1b}'));
}
