//! The examples of a user's own experiments, as commands: all common options, resumption, reports, `compare` and `analyse`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Run, TINY, binary, example, parallel_folder, places, records, stdout, translate};

/// Runs an example with little data, and returns its folder.
fn run(name: &str, out: &Path, further: &[&str]) -> PathBuf {
    example(name).args(TINY).arg("--quiet").args(further).arg("--out").arg(out).succeeds();
    out.to_owned()
}

#[test]
fn own_experiments_have_reports_comparisons_and_analyses() {
    let folder = tempfile::tempdir().unwrap();
    let experiments = [
        ("brackets", "# Depth of brackets", "accuracy"),
        ("sort", "# Sorting letters", "token accuracy"),
        ("series", "# Continuing time series", "MSE"),
    ];
    for (name, title, score) in experiments {
        let out = run(name, &folder.path().join(name), &["--attention", "dot-product,gaussian", "--seeds", "2"]);
        let report = fs::read_to_string(out.join("report.md")).unwrap();
        for part in [title, "| dot-product | 2 |", "| gaussian | 2 |", score] {
            assert!(report.contains(part), "{name}: {report}");
        }
        assert!(records(&out).iter().all(|record| record["metrics"][score].is_f64()), "{name}");
        let compared = binary("compare").arg(&out).args(["--metric", score]).succeeds();
        assert!(stdout(&compared).contains("gaussian"), "{name}: {}", stdout(&compared));
    }
    let brackets = folder.path().join("brackets");
    assert!(brackets.join("dot-product-seed1/items/test.json").exists() && brackets.join("trivial.json").exists());
    example("brackets").arg("analyse").arg(&brackets).args(["--text", "([])", "--attention", "gaussian"]).succeeds();
    let analysis = folder.path().join("analysis");
    let sort = folder.path().join("sort");
    example("sort").arg("analyse").arg(&sort).args(["--texts", "2", "--out"]).arg(&analysis).succeeds();
    assert!(analysis.join("analyse.md").exists());
    let page = fs::read_to_string(sort.join("report.html")).unwrap();
    assert!(page.contains("<h1>Sorting letters</h1>") && page.contains("differences from dot-product"), "{page}");
    example("series").arg("analyse").arg(folder.path().join("series")).args(["--text", "1"]).refuses(2, &["series"]);
}

#[test]
fn own_experiments_resume_and_refuse_as_the_others_do() {
    let (_folder, [whole, resumed]) = places(["whole", "resumed"]);
    run("series", &whole, &["--seeds", "2"]);
    run("series", &resumed, &[]);
    run("series", &resumed, &["--seeds", "2", "--resume"]);
    let scores = |out: &Path| records(out).iter().map(|record| record["metrics"]["MSE"].clone()).collect::<Vec<_>>();
    assert_eq!(scores(&whole), scores(&resumed));
    let refusal = |arguments: &[&str], parts: &[&str]| example("sort").args(arguments).refuses(2, parts);
    refusal(&["--set", "leters=4"], &["leters", "did you mean `letters`?", "training"]);
    refusal(&["--set", "letters=40"], &["--set letters=40", "half of model.max_length"]);
    refusal(&["--set", "batch_tokens=0"], &["--set batch_tokens=0", "at least 1"]);
    refusal(&["--attention", "gausian"], &["gausian", "gaussian"]);
    let printed = example("sort").args(["--print-config", "--set", "letters=5"]).succeeds();
    assert!(stdout(&printed).contains("letters = 5") && stdout(&printed).contains("[training]"), "{}", stdout(&printed));
}

#[test]
fn the_help_of_an_own_experiment_is_its_own() {
    let output = example("sort").arg("--help").succeeds();
    let help = stdout(&output);
    assert!(help.starts_with("Sorting letters\n") && !help.contains("a binary adds") && !help.contains("# Example"), "{help}");
}

#[test]
fn an_analysis_without_the_mechanism_of_a_run_says_what_to_do() {
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    translate(data.path(), &out, &[]).succeeds();
    let config = out.join("config.toml");
    let text = fs::read_to_string(&config).unwrap() + "\n[mechanisms.distance-power]\nslope = 1.0\n";
    fs::write(&config, text).unwrap();
    binary("analyse").arg(&out).refuses(2, &["`distance-power`", "registers it", "`heedful::main()`"]);
}
