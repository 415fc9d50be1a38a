//! Several commands on one output folder.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::command::{Run, TINY, binary, final_weights, places, records, refused, stderr, succeeded, text_folder, wait_until};

/// Language models of some seconds each.
fn train(data: &Path, out: &Path, further: &[&str]) -> Command {
    let mut command = binary("lm");
    command.args(TINY).args(["--set", "data={context = 16, stride = 8, batch = 4}", "--steps", "400", "--resume"]);
    command.arg("--data").arg(data).arg("--out").arg(out).args(further);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Begins a command and waits until it works on a run.
fn begun(command: &mut Command, run: &Path) -> Child {
    let mut child = command.spawn().unwrap();
    wait_until(&mut child, || run.join("lock.json").exists());
    child
}

fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

/// Attention, seed and perplexity of every record, sorted.
fn scores(out: &Path) -> Vec<(String, u64, String)> {
    let mut scores: Vec<_> = records(out)
        .iter()
        .map(|record| {
            let attention = record["attention"].as_str().unwrap().to_owned();
            (attention, record["seed"].as_u64().unwrap(), record["metrics"]["perplexity"].to_string())
        })
        .collect();
    scores.sort();
    scores
}

/// Locks and files that are not whole.
fn left_behind(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.contains("partial") || name.contains("lock") {
                found.push(name);
            }
            if path.is_dir() {
                pending.push(path);
            }
        }
    }
    found
}

#[test]
fn two_commands_with_other_runs_keep_the_results_of_both() {
    let (data, (_folder, [out])) = (text_folder(), places(["shared"]));
    let slow = begun(&mut train(data.path(), &out, &["--attention", "dot-product"]), &out.join("dot-product-seed1"));
    let other = begun(&mut train(data.path(), &out, &["--attention", "gaussian"]), &out.join("gaussian-seed1"));
    // Both knew of no results when they began.
    assert!(!out.join("results.json").exists());
    for child in [slow, other] {
        succeeded(&ended(child));
    }
    assert_eq!(scores(&out).iter().map(|(attention, ..)| attention.as_str()).collect::<Vec<_>>(), ["dot-product", "gaussian"]);
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("| dot-product | 1 |") && report.contains("| gaussian | 1 |"), "{report}");
    assert!(left_behind(&out).is_empty(), "{:?}", left_behind(&out));
}

#[test]
fn two_commands_with_the_same_runs_share_them() {
    let (data, (_folder, [alone, shared])) = (text_folder(), places(["alone", "shared"]));
    let further = ["--attention", "dot-product,gaussian", "--seeds", "2"];
    train(data.path(), &alone, &further).succeeds();
    let first = begun(&mut train(data.path(), &shared, &further), &shared.join("dot-product-seed1"));
    let second = begun(&mut train(data.path(), &shared, &further), &shared.join("gaussian-seed1"));
    for output in [first, second].map(ended) {
        // Who ends while the other works on the last run says so.
        if !output.status.success() {
            refused(&output, 1, &["left to other commands", "lock.json", "--resume"]);
        }
    }
    assert_eq!(scores(&shared), scores(&alone));
    assert_eq!(records(&shared).len(), 4);
    for run in ["dot-product-seed1", "gaussian-seed1", "dot-product-seed2", "gaussian-seed2"] {
        assert_eq!(final_weights(&shared.join(run)), final_weights(&alone.join(run)), "{run}");
        let log = fs::read_to_string(shared.join(run).join("log.jsonl")).unwrap();
        let steps = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64()).count();
        let wanted = fs::read_to_string(alone.join(run).join("log.jsonl")).unwrap();
        let wanted = wanted.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64()).count();
        assert_eq!(steps, wanted, "{run} was trained by two processes");
    }
    assert!(left_behind(&shared).is_empty(), "{:?}", left_behind(&shared));
}

#[test]
fn a_run_that_another_command_works_on_is_left_to_it() {
    let (data, (_folder, [out])) = (text_folder(), places(["shared"]));
    let further = ["--attention", "dot-product"];
    let first = begun(&mut train(data.path(), &out, &further), &out.join("dot-product-seed1"));
    let holder = first.id().to_string();
    train(data.path(), &out, &further).refuses(1, &["dot-product, seed 1: process", &holder, "lock.json", "--resume"]);
    succeeded(&ended(first));
    let before = fs::read(out.join("results.json")).unwrap();
    train(data.path(), &out, &further).succeeds();
    assert_eq!(fs::read(out.join("results.json")).unwrap(), before);
    // What is derived comes back without training.
    fs::remove_file(out.join("results.json")).unwrap();
    let reports = || ["report.md", "report.html"].map(|name| fs::read(out.join(name)).unwrap());
    let derived = reports();
    fs::remove_file(out.join("report.html")).unwrap();
    train(data.path(), &out, &further).succeeds();
    assert!(fs::read(out.join("results.json")).unwrap() == before && reports() == derived);
}

#[test]
fn a_folder_has_runs_on_one_set_of_data_and_one_backend() {
    let (data, other, folder) = (text_folder(), text_folder(), tempfile::tempdir().unwrap());
    let train_text = other.path().join("small.train.txt");
    fs::write(&train_text, fs::read_to_string(&train_text).unwrap().replace("cat", "bird")).unwrap();
    let out = folder.path().join("out");
    let dot_product = ["--attention", "dot-product"];
    train(data.path(), &out, &dot_product).succeeds();
    let files =
        || ["config.toml", "tokenizer.json", "results.json", "report.md", "report.html"].map(|name| fs::read(out.join(name)).unwrap());
    let before = files();
    let refuse = |data: &Path, further: &[&str], parts: &[&str]| {
        train(data, &out, &[&["--attention", "gaussian"], further].concat()).refuses(2, parts);
        assert!(files() == before && !out.join("gaussian-seed1").exists());
    };
    refuse(other.path(), &[], &["another --out", other.path().to_str().unwrap(), data.path().to_str().unwrap()]);
    refuse(data.path(), &["--backend", "ndarray"], &["backend flex", "ndarray", "another --out"]);

    // The same data elsewhere, and other data in the same place.
    let moved = folder.path().join(data.path().file_name().unwrap());
    fs::create_dir(&moved).unwrap();
    for entry in fs::read_dir(data.path()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, moved.join(path.file_name().unwrap())).unwrap();
    }
    train(&moved, &out, &["--attention", "gaussian"]).succeeds();
    assert_eq!(records(&out).len(), 2);
    fs::copy(&train_text, moved.join("small.train.txt")).unwrap();
    train(&moved, &out, &["--attention", "uniform"]).refuses(2, &["SHA-256", "another --out"]);
    binary("analyse").arg(&out).refuses(2, &["SHA-256", "restore them"]);
}

#[test]
fn a_folder_of_an_earlier_version_is_gone_on_with() {
    let (data, (_folder, [now, then])) = (text_folder(), places(["now", "then"]));
    let further = ["--attention", "dot-product"];
    train(data.path(), &now, &further).succeeds();
    // Fields and tables that earlier versions did not have.
    let config: String = fs::read_to_string(now.join("config.toml")).unwrap();
    let earlier: String = config.split("\n[").filter(|table| !table.starts_with("mechanisms.alibi]")).collect::<Vec<_>>().join("\n[");
    let earlier: String = earlier.lines().filter(|line| !line.starts_with("head_width")).map(|line| format!("{line}\n")).collect();
    assert!(earlier.len() + 20 < config.len());
    fs::create_dir(&then).unwrap();
    fs::write(then.join("config.toml"), &earlier).unwrap();
    train(data.path(), &then, &further).succeeds();
    assert_eq!(fs::read_to_string(then.join("config.toml")).unwrap(), earlier);
    let output = train(data.path(), &then, &[&further[..], &["--seeds", "2"]].concat()).succeeds();
    assert!(stderr(&output).contains("1 runs in"), "{}", stderr(&output));
    assert_eq!(records(&then).len(), 2);
    assert!(!fs::read_to_string(then.join("config.toml")).unwrap().contains("head_width"));
    assert_eq!(final_weights(&then.join("dot-product-seed1")), final_weights(&now.join("dot-product-seed1")));
}

#[test]
fn the_recorded_results_can_be_gone_on_with() {
    let recorded = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../results/built-in-mt"));
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.toml", "results.json"] {
        fs::copy(recorded.join(file), folder.path().join(file)).unwrap();
    }
    let output = binary("mt").arg("--config").arg(recorded.join("config.toml")).arg("--out").arg(folder.path()).arg("--resume").succeeds();
    assert!(stderr(&output).contains("6 runs in"), "{}", stderr(&output));
}

#[test]
fn a_lock_of_another_machine_is_named_with_the_remedy() {
    let (data, (_folder, [out])) = (text_folder(), places(["shared"]));
    let further = ["--attention", "dot-product"];
    let lock = out.join("dot-product-seed1/lock.json");
    train(data.path(), &out, &["--attention", "gaussian"]).succeeds();
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, r#"{"host": "node7", "machine": "0", "id": 7, "started": "1"}"#).unwrap();
    train(data.path(), &out, &further).refuses(1, &["process 7 on node7", "delete `", "lock.json"]);
    assert!(lock.exists());
    fs::remove_file(&lock).unwrap();
    train(data.path(), &out, &further).succeeds();
    assert_eq!(records(&out).len(), 2);
}
