//! What is printed and written.

use std::fs;
use std::path::Path;

use crate::folder::{classified, compare, log, record, results, stderr, stdout, translations};

/// Two mechanisms with three seeds each in one folder.
fn seeds(folder: &Path) {
    let scores = [("dot-product", [30.0, 30.5, 30.25]), ("gaussian", [32.0, 32.25, 32.5])];
    let records: Vec<_> =
        scores.iter().flat_map(|(attention, values)| (1..).zip(values).map(move |(seed, bleu)| record(attention, seed, *bleu))).collect();
    results(folder, &records);
    for (attention, values) in scores {
        (1..).zip(values).for_each(|(seed, bleu)| log(&folder.join(format!("{attention}-seed{seed}")), bleu));
    }
}

fn row<'t>(text: &'t str, start: &str) -> &'t str {
    text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no row {start} in\n{text}"))
}

#[test]
fn one_folder_with_several_seeds_is_tested_and_printed() {
    let folder = tempfile::tempdir().unwrap();
    seeds(&folder.path().join("a"));
    let text = stdout(&compare(folder.path(), &["a", "--format", "markdown"]));
    assert!(text.contains("## mt: small en-de\n\n| attention | seeds | BLEU ↑ | p | valid ppl ↓ | p | parameters |"), "{text}");
    assert!(row(&text, "| dot-product").contains("| 3 | 30.25 ± 0.25 | baseline |"), "{text}");
    assert!(row(&text, "| gaussian").contains("| 3 | **32.25 ± 0.25** | <0.001 † |"), "{text}");
    assert!(text.contains("| gaussian | BLEU | +2.000 | +1.433 to +2.567 | <0.001 † | Welch's t-test, 3 and 3 seeds |"), "{text}");
    let other = stdout(&compare(folder.path(), &["a", "--baseline", "gaussian", "--metric", "BLEU", "--test", "randomisation"]));
    assert!(row(&other, "dot-product").contains("0.100") && row(&other, "gaussian").contains("baseline"), "{other}");
    assert!(!other.contains("ppl"), "{other}");
}

#[test]
fn several_folders_stand_in_one_table_with_a_warning_of_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    seeds(&folder.path().join("old/mt"));
    let mut newer = record("gaussian", 1, 33.0);
    newer["version"] = "0.2.0".into();
    newer["data_sha256"] = "f00d".into();
    results(&folder.path().join("new/mt"), &[newer]);
    let text = stdout(&compare(folder.path(), &["old/mt", "new/mt"]));
    assert!(row(&text, "new/mt/gaussian").contains("one seed: no test"), "{text}");
    assert!(row(&text, "old/mt/gaussian").contains("<0.001 †"), "{text}");
    assert!(
        text.contains("Warning: The versions of heedful differ: 0.1.0 (old/mt/dot-product, old/mt/gaussian); 0.2.0 (new/mt/gaussian)."),
        "{text}"
    );
    assert!(text.contains("Warning: The data differ, although their name is the same"), "{text}");
}

#[test]
fn one_seed_without_translations_has_no_test() {
    let folder = tempfile::tempdir().unwrap();
    results(&folder.path().join("a"), &[record("dot-product", 1, 30.0), record("gaussian", 1, 32.0)]);
    let text = stdout(&compare(folder.path(), &["a"]));
    assert!(text.contains("BLEU, valid ppl: one seed: no test."), "{text}");
    assert!(!text.contains("p says how often"), "{text}");
}

/// Whether what is warned of is that these records name no commit, and nothing else.
fn of_versions_alone(text: &str) -> bool {
    text.lines().filter(|line| line.to_lowercase().contains("warn")).all(|line| line.contains("Not known to be computed by the code"))
}

#[test]
fn translations_of_single_runs_are_tested_by_resampling_and_the_seed_decides_what_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let references = ["a cat sat on the mat .", "two dogs run on a beach .", "we met again in early may .", "the old tower is very high ."];
    let [first, second, third, fourth] = references;
    let worse = ["a cat sat on a mat .", second, "we met in may .", "tower ."];
    let better = [first, "two dogs run at a beach .", third, fourth];
    // What sacreBLEU 2.6 gives them.
    let (low, high) = (46.736060530563066, 86.64117636413181);
    results(&folder.path().join("a"), &[record("dot-product", 1, low), record("gaussian", 1, high)]);
    translations(&folder.path().join("a/dot-product-seed1"), &worse, &references);
    translations(&folder.path().join("a/gaussian-seed1"), &better, &references);
    let run = |further: &[&str]| stdout(&compare(folder.path(), &[&["a", "--metric", "BLEU", "--resamples", "300"], further].concat()));
    let text = run(&[]);
    assert!(text.contains("paired bootstrap of 4 sentences, 300 resamples"), "{text}");
    assert!(of_versions_alone(&text), "{text}");
    assert_eq!(run(&[]), text);
    assert_ne!(run(&["--seed", "2"]), text);
    assert!(run(&["--test", "item-randomisation"]).contains("paired randomisation of 4 sentences, 300 resamples"));

    translations(&folder.path().join("a/gaussian-seed1"), &worse, &references);
    let text = run(&[]);
    assert!(text.contains("Warning: ") && text.contains("gives the BLEU 46.7361, 86.6412 was recorded: no test of its items."), "{text}");
    assert!(text.contains("BLEU: one seed: no test."), "{text}");
}

#[test]
fn an_output_folder_holds_tables_values_and_learning_curves() {
    let folder = tempfile::tempdir().unwrap();
    seeds(&folder.path().join("a"));
    let output = compare(folder.path(), &["a", "--out", "out/deep", "--format", "csv"]);
    let values = stdout(&output);
    let out = folder.path().join("out/deep");
    assert_eq!(fs::read_to_string(out.join("compare.csv")).unwrap().trim_end(), values.trim_end());
    assert_eq!(values.lines().count(), 5, "two rows with two metrics each below the heading");
    let mut names: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let curves = ["curves-mt-small-en-de-seconds.svg", "curves-mt-small-en-de-steps.svg"];
    assert_eq!(names, ["compare.csv", "compare.html", "compare.md", "compare.tex", curves[0], curves[1], "steps.csv"]);
    let steps = fs::read_to_string(out.join("steps.csv")).unwrap();
    assert_eq!(steps.lines().next().unwrap(), "experiment,dataset,run,attention,backend,seed,step,seconds,metric,value");
    let lines = |log: &str| fs::read_to_string(folder.path().join("a").join(log).join("log.jsonl")).unwrap().lines().count();
    let readings = |run: &str| steps.lines().filter(|line| line.contains(run)).count();
    for (run, log) in [(",dot-product,flex,1,", "dot-product-seed1"), (",gaussian,flex,2,", "gaussian-seed2")] {
        assert_eq!(readings(run), lines(log), "{run}: {steps}");
    }
    let page = fs::read_to_string(out.join("compare.html")).unwrap();
    assert!(page.contains("Curves over steps: perplexity, training loss.") && page.contains("differences from dot-product"), "{page}");
    let markdown = fs::read_to_string(out.join("compare.md")).unwrap();
    assert!(curves.iter().all(|name| markdown.contains(&format!("]({name})"))), "{markdown}");
    for name in curves {
        let picture = fs::read_to_string(out.join(name)).unwrap();
        assert!(picture.contains("gaussian") && picture.contains("training loss") && picture.contains("perplexity"), "{name}");
        assert_eq!(picture.matches("<polygon").count(), 4, "a band for each of two mechanisms and two quantities");
    }
    assert!(of_versions_alone(&stderr(&output)), "{}", stderr(&output));
}

#[test]
fn a_folder_without_logs_is_compared_without_curves() {
    let folder = tempfile::tempdir().unwrap();
    results(&folder.path().join("a"), &[record("dot-product", 1, 30.0), record("gaussian", 1, 32.0)]);
    stdout(&compare(folder.path(), &["a", "--out", "out"]));
    let markdown = fs::read_to_string(folder.path().join("out/compare.md")).unwrap();
    assert!(markdown.contains("**Warning:** No learning curve of dot-product, gaussian: not every run has a log.jsonl."), "{markdown}");
    assert!(!markdown.contains(".svg"), "{markdown}");
}

#[test]
fn experiments_and_data_sets_stand_in_tables_of_their_own_and_runs_that_say_nothing_of_their_metrics_show_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut unknown = record("dense", 1, 1.0);
    unknown["experiment"] = "weather".into();
    unknown.as_object_mut().unwrap().remove("columns");
    let mut elsewhere = record("dense", 1, 2.0);
    elsewhere["dataset"] = "other".into();
    results(&folder.path().join("a"), &[record("dense", 1, 3.0), unknown, elsewhere]);
    let text = stdout(&compare(folder.path(), &["a"]));
    for title in ["mt: small en-de\n", "weather: small en-de\n", "mt: other\n"] {
        assert!(text.contains(title), "{text}");
    }
    let weather = text.split("weather: ").nth(1).unwrap();
    assert!(weather.lines().nth(2).unwrap().contains("valid perplexity"), "{weather}");
}

#[test]
fn accuracies_of_single_runs_are_tested_over_their_examples() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("a");
    let mut records = [record("dot-product", 1, 1.0), record("gaussian", 1, 1.0)];
    let worse: Vec<u8> = (0..60).map(|example| u8::from(example >= 14)).collect();
    let better: Vec<u8> = (0..60).map(|example| u8::from(example >= 2)).collect();
    classified(&root, &mut records[0], &worse);
    classified(&root, &mut records[1], &better);
    results(&root, &records);
    let run = |more: &[&str]| stdout(&compare(folder.path(), &[&["a", "--format", "markdown"], more].concat()));
    let text = run(&[]);
    assert!(
        text.contains("| gaussian | accuracy | +20.000 |") && text.contains("paired bootstrap of 60 examples, 1,000 resamples"),
        "{text}"
    );
    assert!(row(&text, "| gaussian | 1 |").contains("| **96.67** | <0.001 † |"), "{text}");
    assert!(text.contains("A test over items of a test set speaks of these trained models"), "{text}");
    // Of 12 coins, all fall on one side.
    let exact = run(&["--test", "mcnemar"]);
    assert!(
        exact.contains("| gaussian | accuracy | +20.000 | – | <0.001 † | McNemar's exact test of 60 examples, 12 gained and 0 lost |"),
        "{exact}"
    );
    let swapped = run(&["--test", "item-randomisation", "--resamples", "200"]);
    assert!(swapped.contains("| 0.005 † | paired randomisation of 60 examples, 200 resamples |"), "{swapped}");
    fs::remove_file(root.join("gaussian-seed1/items/test.json")).unwrap();
    assert!(run(&[]).contains("accuracy: one seed: no test."));
}
