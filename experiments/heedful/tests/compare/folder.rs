//! Run folders that were made up.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Runs `compare` in `folder`.
pub fn compare(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heedful")).arg("compare").current_dir(folder).args(arguments).env_remove("RUST_LOG").output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A finished run of the experiment `mt`.
pub fn record(attention: &str, seed: u64, bleu: f64) -> Value {
    json!({
        "experiment": "mt", "dataset": "small en-de", "attention": attention, "backend": "flex", "seed": seed, "parameters": 1000, "steps": 20,
        "metrics": {"BLEU": bleu, "valid perplexity": 100.0 / bleu},
        "signatures": {"BLEU": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:heedful-0.1.0, test set news, beam 4"},
        "items": {"BLEU": {"set": "news", "unit": "sentences", "combination": {"texts": {"bleu": {}}}}},
        "tokens_per_second": 500.0, "peak_memory_bytes": 1 << 28, "wall_seconds": 30.0, "version": "0.1.0", "data_sha256": "feed",
        "configuration": "c1",
        "columns": [
            {"name": "BLEU", "label": "BLEU", "digits": 2, "higher_is_better": true, "factor": 1.0, "definition": "", "file": null},
            {"name": "valid perplexity", "label": "valid ppl", "digits": 2, "higher_is_better": false, "factor": 1.0, "definition": "", "file": null}
        ]
    })
}

/// Writes the results of a run folder.
pub fn results(folder: &Path, records: &[Value]) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("results.json"), serde_json::to_string(records).unwrap()).unwrap();
}

/// Writes the log of a run, with losses that fall from `loss`.
pub fn log(run: &Path, loss: f64) {
    let line = |step: u64| json!({"step": step, "epoch": 1, "loss": loss / step as f64, "seconds": step as f64}).to_string() + "\n";
    let evaluation = |step: u64| {
        json!({"step": step, "epoch": 1, "seconds": step as f64, "dev": {"perplexity": loss + 9.0 / step as f64}}).to_string() + "\n"
    };
    fs::create_dir_all(run).unwrap();
    fs::write(run.join("log.jsonl"), (1..=4).map(|step| line(step) + &evaluation(step)).collect::<String>()).unwrap();
}

/// Writes the translations of the test set `news` and their references.
pub fn translations(run: &Path, hypotheses: &[&str], references: &[&str]) {
    let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    fs::create_dir_all(run.join("hypotheses")).unwrap();
    fs::write(run.join("hypotheses/news.txt"), text(hypotheses)).unwrap();
    fs::write(run.join("hypotheses/news.reference.txt"), text(references)).unwrap();
}

/// Makes a record that of a classification of the examples in `items`, which are right (1) or wrong (0), and writes these into the folder of the run.
pub fn classified(folder: &Path, record: &mut Value, right: &[u8]) {
    let accuracy = f64::from(right.iter().sum::<u8>()) / right.len() as f64;
    record["experiment"] = "classify".into();
    record["metrics"] = json!({"accuracy": accuracy});
    record["signatures"] = json!({"accuracy": format!("test, {} examples", right.len())});
    record["columns"] = json!([
        {"name": "accuracy", "label": "accuracy", "digits": 2, "higher_is_better": true, "factor": 100.0, "definition": "", "file": null}
    ]);
    record["items"] = json!({"accuracy": {"set": "test", "unit": "examples", "statistics": ["right"], "combination": "mean"}});
    let run = folder.join(format!("{}-seed{}/items", record["attention"].as_str().unwrap(), record["seed"]));
    fs::create_dir_all(&run).unwrap();
    let rows: Vec<[u8; 1]> = right.iter().map(|&right| [right]).collect();
    fs::write(run.join("test.json"), json!({"items": "feed", "statistics": ["right"], "rows": rows}).to_string()).unwrap();
}
