//! The script that repeats recorded results.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::command::{binary, parallel_folder, refused, stderr, stdout, succeeded, translate};

const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/results");

fn remake(out: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(Path::new(RESULTS).join("remake"));
    let programs = Path::new(binary("mt").get_program()).parent().unwrap().to_owned();
    command.args(arguments).arg("--out").arg(out).arg("--bin").arg(programs).env_remove("RAYON_NUM_THREADS").env_remove("HEEDFUL_DATA");
    command.output().unwrap()
}

fn records(folder: &Path) -> Vec<Value> {
    serde_json::from_str(&fs::read_to_string(folder.join("results.json")).unwrap()).unwrap()
}

#[test]
fn recorded_runs_are_repeated_compared_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    // As a person keeps results: without checkpoints, from data that lie elsewhere now.
    let data = parallel_folder();
    fs::create_dir_all(place("sets")).unwrap();
    std::os::unix::fs::symlink(data.path(), place("sets/numbers")).unwrap();
    succeeded(&translate(Path::new("sets/numbers"), &place("made"), &["--seeds", "2"]).current_dir(folder.path()).output().unwrap());
    let kept = place("results/small");
    fs::create_dir_all(&kept).unwrap();
    for file in ["config.toml", "results.json", "report.md"] {
        fs::copy(place("made").join(file), kept.join(file)).unwrap();
    }
    let config = fs::read_to_string(kept.join("config.toml")).unwrap();
    assert!(config.contains("data = \"sets/numbers\""), "{config}");
    fs::write(kept.join("config.toml"), config.replace("sets/numbers", "data/numbers")).unwrap();
    let [results, sets] = ["results", "sets"].map(|name| place(name).to_string_lossy().into_owned());
    let given = ["--results", &results, "small"];

    refused(&remake(&place("out"), &given), 2, &["small reads numbers", "--data"]);
    refused(&remake(&place("out"), &["--results", &results, "absent"]), 2, &["absent", "--list"]);
    let given = [&given[..], &["--data", &sets]].concat();
    let same = remake(&place("out"), &given);
    succeeded(&same);
    for part in ["small: the same scores", "2 runs have the same scores, digit for digit"] {
        assert!(stdout(&same).contains(part), "{part} is missing in {}", stdout(&same));
    }
    let again = remake(&place("out"), &given);
    assert_eq!(again.status.code(), Some(1));
    assert!(stdout(&again).contains("--resume"), "{}", stdout(&again));

    // A digit of a score that was recorded is another one.
    let mut recorded = records(&kept);
    let perplexity = recorded[1]["metrics"]["valid perplexity"].as_f64().unwrap();
    recorded[1]["metrics"]["valid perplexity"] = Value::from(perplexity + 1e-9);
    fs::write(kept.join("results.json"), serde_json::to_string_pretty(&recorded).unwrap()).unwrap();
    let differs = remake(&place("other"), &[&given[..], &["--replace"]].concat());
    assert_eq!(differs.status.code(), Some(1), "{}", stderr(&differs));
    for part in ["small: differs", "seed 2: valid perplexity: ", "1 of 2 runs differ"] {
        assert!(stdout(&differs).contains(part), "{part} is missing in {}", stdout(&differs));
    }
    assert_eq!(records(&kept)[1]["metrics"]["valid perplexity"].as_f64(), Some(perplexity), "replaced");
    assert!(kept.join("dot-product-seed2/log.jsonl").exists() && !kept.join("dot-product-seed2/checkpoint").exists());
    for file in ["config.toml", "results.json", "report.md"] {
        let text = fs::read_to_string(kept.join(file)).unwrap();
        assert!(!text.contains(&*folder.path().to_string_lossy()), "{file} holds a path of this machine");
    }
    succeeded(&remake(&place("last"), &given));
}

/// Another instruction set or version may give other digits, which the script then tells.
#[test]
fn the_quickest_recorded_run_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let output = remake(folder.path(), &["built-in-mt", "--attention", "gaussian"]);
    let told = stdout(&output);
    let runs = folder.path().join("runs/built-in-mt");
    let [new, recorded] = [runs, Path::new(RESULTS).join("built-in-mt")].map(|folder| records(&folder));
    let score = |records: &[Value]| {
        let record = records.iter().find(|record| record["attention"] == "gaussian").unwrap();
        record["metrics"]["BLEU"].as_f64().unwrap()
    };
    assert_eq!(new.len(), 1);
    assert!((score(&new) - score(&recorded)).abs() < 5.0, "{told}");
    assert!(told.contains("1 of the 6 runs were repeated."), "{told}{}", stderr(&output));
    let is_same = told.contains("built-in-mt: the same scores");
    assert_eq!((output.status.success(), told.contains("built-in-mt: differs")), (is_same, !is_same), "{told}");
    if is_same {
        assert_eq!(score(&new), score(&recorded));
    }
}
