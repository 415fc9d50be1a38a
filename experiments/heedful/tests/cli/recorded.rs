//! What the documents say of the recorded results, beside the records.

use std::fs;
use std::path::{Path, PathBuf};

use heedful_experiments::session::experiment::Experiment;
use heedful_experiments::tasks::translation::Translation;
use heedful_runs::published::PublishedNumbers;
use heedful_runs::record::ResultRecord;
use heedful_runs::report::Report;
use heedful_runs::run_folder::RunFolder;

use crate::documents::root;

/// The folders of recorded results that have records, those of the claims too.
pub fn folders() -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            match entry.file_type().unwrap().is_dir() {
                true => below(&entry.path(), found),
                false if entry.file_name() == "results.json" => found.push(folder.to_path_buf()),
                false => {}
            }
        }
    }
    let mut found = Vec::new();
    below(&root().join("experiments/results"), &mut found);
    found
}

/// Those that have a report: all but the ones of the claims, for which one report is written.
fn folders_with_reports() -> Vec<PathBuf> {
    let claims = root().join("experiments/results/claims");
    folders().into_iter().filter(|folder| !folder.starts_with(&claims)).collect()
}

fn records(folder: &Path) -> Vec<ResultRecord> {
    serde_json::from_str(&fs::read_to_string(folder.join("results.json")).unwrap()).unwrap()
}

/// The rows of the first table after a line that begins so.
fn rows<'t>(text: &'t str, begin: &str) -> Vec<&'t str> {
    let after = text.lines().skip_while(|line| !line.starts_with(begin));
    let rows: Vec<&str> = after.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|')).collect();
    assert!(!rows.is_empty(), "no table after {begin}");
    rows
}

#[test]
fn the_first_table_of_the_readme_is_that_of_the_records() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let records = records(&root().join("experiments/results/built-in-mt"));
    let (metrics, published) = (Translation::columns(), PublishedNumbers::default());
    let (title, sections, trivial) = (String::new(), Vec::new(), Vec::new());
    let report = Report { title, subject: "attention", records: &records, trivial, metrics, published, sections };
    let report = report.markdown();
    let (shown, recorded) = (rows(&readme, "The first command ends with a table"), rows(&report, "## mt: built-in"));
    // The heading, the rule below it, and a row for each record.
    assert_eq!((shown.len(), records.len()), (2 + records.len(), 6));
    for (shown, recorded) in shown.into_iter().zip(recorded) {
        assert_eq!(shown, recorded);
    }
    // Whatever the report does with it, the best score of dot products is what its record has.
    let bleu = records.iter().find(|record| record.attention == "dot-product").unwrap().metric("BLEU").flatten().unwrap();
    assert!(readme.contains(&format!("| dot-product | 1 | {bleu:.2} |")), "{bleu}");
}

#[test]
fn recorded_results_name_the_commits_that_computed_them() {
    let folders = folders();
    assert!(folders.len() > 60, "{folders:?}");
    for folder in folders {
        for record in records(&folder) {
            let is_known = record.provenance.as_ref().is_some_and(|code| code.commit.len() == 40 && code.is_clean == Some(true));
            assert!(is_known, "{}: {}, seed {}: {:?}", folder.display(), record.attention, record.seed, record.provenance);
        }
    }
}

#[test]
fn recorded_reports_name_the_commits_of_their_records() {
    let folders = folders_with_reports();
    assert!(folders.len() > 20, "{folders:?}");
    for folder in folders {
        let mut codes: Vec<String> = Vec::new();
        for code in records(&folder).iter().map(ResultRecord::code) {
            if !codes.contains(&code) {
                codes.push(code);
            }
        }
        let report = fs::read_to_string(folder.join("report.md")).unwrap();
        let named: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("- Commit: ")).collect();
        assert_eq!(named, [codes.join("; ")], "{}", folder.display());
    }
}

#[test]
fn recorded_reports_point_to_no_file_of_a_run_that_was_not_kept() {
    for folder in folders_with_reports() {
        let report = fs::read_to_string(folder.join("report.md")).unwrap();
        for line in report.lines().filter(|line| line.contains(" of the run shows them")) {
            let file = line.split(" of the run shows them").next().unwrap().rsplit(' ').next().unwrap().trim_matches('`');
            let runs = RunFolder::at(&folder).runs().unwrap();
            assert!(runs.iter().any(|run| run.root().join(file).exists()), "{}: {line}", folder.display());
        }
    }
}
