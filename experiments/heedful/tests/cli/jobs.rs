//! Several runs at once, and runs that several commands share.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command::{
    Run, TINY, binary, final_weights, parallel_folder, places, records, stderr, stdout, text_folder, translate, wait_until,
};

const NAMES: [&str; 3] = ["dot-product", "gaussian", "synthesizer-dense"];

/// Language models of three attentions and two seeds.
fn train(data: &Path, out: &Path, steps: &str, further: &[&str]) -> Command {
    let mut command = binary("lm");
    command.args(TINY).args(["--set", "data={context = 16, stride = 8, batch = 4}", "--steps", steps]);
    command.args(["--attention", &NAMES.join(","), "--seeds", "2"]);
    command.arg("--data").arg(data).arg("--out").arg(out).args(further);
    command
}

/// Weights and scores of all runs, in the order of their folders; speeds apart.
fn outcome(out: &Path) -> Vec<(String, Vec<u8>, Value)> {
    let mut outcome: Vec<_> = records(out)
        .into_iter()
        .map(|record| {
            let run = format!("{}-seed{}", record["attention"].as_str().unwrap(), record["seed"]);
            let mut scores = record["metrics"].clone();
            scores.as_object_mut().unwrap().remove("steps per second").unwrap();
            let weights = final_weights(&out.join(&run));
            (run, weights, scores)
        })
        .collect();
    outcome.sort_by(|one, other| one.0.cmp(&other.0));
    outcome
}

#[test]
fn runs_side_by_side_give_the_digits_of_runs_one_after_another() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let out = |name: &str| folder.path().join(name);
    for (name, jobs) in [("one", "1"), ("three", "3"), ("auto", "auto")] {
        train(data.path(), &out(name), "8", &["--jobs", jobs]).env("RAYON_NUM_THREADS", "2").succeeds();
    }
    let one = outcome(&out("one"));
    assert_eq!(one.len(), 6);
    assert!(one == outcome(&out("three")) && one == outcome(&out("auto")), "other weights or scores");
    for record in records(&out("one")) {
        // Whether these are disturbed depends on what else runs on the machine.
        assert!(record["peak_memory_bytes"].is_u64() && record["provenance"]["threads"] == 2, "{record}");
    }
    for record in records(&out("three")) {
        assert!(record["disturbed"] == true && record["peak_memory_bytes"].is_null() && record["provenance"]["threads"] == 1, "{record}");
    }
    let report = fs::read_to_string(out("three").join("report.md")).unwrap();
    assert!(
        report.contains("shared their cores with other runs or programs")
            && report.lines().filter(|line| line.ends_with("| – | – | – |")).count() == 3,
        "{report}"
    );
    // Another seed shows.
    train(data.path(), &out("other"), "8", &["--jobs", "2", "--seed", "2"]).succeeds();
    assert!(one.iter().zip(&outcome(&out("other"))).all(|(one, other)| one.1 != other.1));
}

#[cfg(unix)]
#[test]
fn all_runs_at_once_are_stopped_and_resumed() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let (out, whole) = (folder.path().join("stopped"), folder.path().join("whole"));
    let long = |out: &Path, further: &[&str]| train(data.path(), out, "400", &[&["--jobs", "2"], further].concat());
    let mut child = long(&out, &[]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Both jobs have a run.
    wait_until(&mut child, || ["dot-product-seed1", "gaussian-seed1"].iter().all(|run| out.join(run).join("checkpoint").exists()));
    Command::new("kill").args(["-TERM", &child.id().to_string()]).succeeds();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    for run in ["dot-product-seed1", "gaussian-seed1"] {
        assert!(!out.join(run).join("result.json").exists() && !out.join(run).join("lock.json").exists(), "{run}");
    }
    long(&out, &["--resume"]).succeeds();
    train(data.path(), &whole, "400", &[]).succeeds();
    assert!(outcome(&out) == outcome(&whole), "other weights or scores");
}

#[test]
fn an_error_of_one_run_stops_those_beside_it() {
    let (data, (_folder, [out])) = (text_folder(), places(["out"]));
    // Of a shard without runs only the folder remains.
    train(data.path(), &out, "400", &["--shard", "7/7"]).succeeds();
    // No file can be written in the place of a folder.
    fs::create_dir_all(out.join("gaussian-seed1/log.jsonl")).unwrap();
    train(data.path(), &out, "400", &["--jobs", "2"]).refuses(1, &["gaussian-seed1", "log.jsonl"]);
    let other = out.join("dot-product-seed1");
    assert!(other.join("checkpoint").exists() && !other.join("result.json").exists(), "it goes on, or lost its steps");
    fs::remove_dir(out.join("gaussian-seed1/log.jsonl")).unwrap();
    train(data.path(), &out, "400", &["--jobs", "2", "--resume"]).succeeds();
    assert_eq!(records(&out).len(), 6);
}

#[cfg(unix)]
#[test]
fn the_report_has_what_was_finished_before_a_run_failed_or_the_command_was_stopped() {
    let (data, (_folder, [out])) = (text_folder(), places(["out"]));
    let reported = || {
        let report = fs::read_to_string(out.join("report.md")).unwrap();
        NAMES.map(|name| report.contains(&format!("| {name} | 1 |")))
    };
    train(data.path(), &out, "400", &["--shard", "7/7"]).succeeds();
    fs::create_dir_all(out.join("gaussian-seed1/log.jsonl")).unwrap();
    train(data.path(), &out, "400", &[]).refuses(1, &["gaussian-seed1", "log.jsonl"]);
    assert_eq!((records(&out).len(), reported()), (1, [true, false, false]));
    fs::remove_dir(out.join("gaussian-seed1/log.jsonl")).unwrap();
    let mut child = train(data.path(), &out, "400", &["--resume"]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_until(&mut child, || out.join("synthesizer-dense-seed1/checkpoint").exists());
    // It is complete before a report is drawn.
    assert_eq!(records(&out).len(), 2);
    Command::new("kill").args(["-TERM", &child.id().to_string()]).succeeds();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!((records(&out).len(), reported()), (2, [true, true, false]));
}

#[test]
fn shards_share_the_runs_and_the_last_reports_all() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let (whole, shared) = (folder.path().join("whole"), folder.path().join("shared"));
    train(data.path(), &whole, "8", &[]).succeeds();
    let mut count = 0;
    for shard in ["2/3", "3/3", "1/3"] {
        train(data.path(), &shared, "8", &["--shard", shard]).succeeds();
        count += 2;
        assert_eq!(records(&shared).len(), count, "{shard}");
    }
    assert!(outcome(&whole) == outcome(&shared), "other weights or scores");
    let table = |out: &Path| {
        let report = fs::read_to_string(out.join("report.md")).unwrap();
        report.lines().filter(|line| NAMES.iter().any(|name| line.contains(name))).filter(|line| line.contains('±')).count()
    };
    assert_eq!((table(&whole), table(&shared)), (3, 3));
    // The last shard to end has the first of the runs.
    let order = |out: &Path| records(out).iter().map(|run| format!("{} {}", run["seed"], run["attention"])).collect::<Vec<_>>();
    assert_eq!(order(&shared), order(&whole));
}

#[test]
fn impossible_jobs_and_shards_are_refused() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let refuse = |further: &[&str], parts: &[&str]| {
        translate(data.path(), &folder.path().join("out"), further).refuses(2, parts);
    };
    refuse(&["--jobs", "0"], &["--jobs", "from 1 on, or auto"]);
    refuse(&["--shard", "3/2"], &["--shard", "K/N"]);
    refuse(&["--jobs", "1000000000"], &["--jobs 1000000000", "give at most"]);
}

/// Everything below a folder.
fn files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

#[test]
fn a_dry_run_shows_the_runs_that_are_left_and_writes_nothing() {
    let (data, (_folder, [out])) = (text_folder(), places(["out"]));
    let shown = |further: &[&str]| {
        let output = train(data.path(), &out, "40", &[&["--dry-run"], further].concat()).succeeds();
        stdout(&output)
    };
    let text = shown(&[]);
    assert!(text.contains("6 of 6 runs are left") && !out.exists(), "{text}");
    for (name, parameters) in [("dot-product", "2,464"), ("gaussian", "1,952"), ("synthesizer-dense", "2,720")] {
        let row = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no row of {name}: {text}"));
        assert!(row.contains("1 to 2") && row.contains("2 of 2") && row.contains(parameters) && row.contains(" ms"), "{row}");
    }
    let part = shown(&["--shard", "2/4", "--jobs", "2"]);
    assert!(part.contains("2 of 2 runs are left") && part.contains("2 at once"), "{part}");
    train(data.path(), &out, "40", &["--shard", "2/4"]).succeeds();
    let before = files(&out);
    let text = shown(&[]);
    assert!(text.contains("4 of 6 runs are left") && files(&out) == before, "{text}");
    train(data.path(), &out, "40", &["--dry-run", "--attention", "linformer"]).refuses(2, &["linformer"]);
}

#[test]
fn the_printed_configuration_is_that_of_the_run() {
    let (data, (_folder, [out])) = (text_folder(), places(["out"]));
    let printed = train(data.path(), &out, "8", &["--print-config"]).succeeds();
    assert!(!out.exists());
    train(data.path(), &out, "8", &["--shard", "7/7"]).succeeds();
    assert_eq!(stdout(&printed), fs::read_to_string(out.join("config.toml")).unwrap());
    train(data.path(), &out, "8", &["--print-config", "--dry-run"]).refuses(2, &["--print-config", "--dry-run"]);
}

#[test]
fn the_schema_has_the_fields_of_the_configuration() {
    let output = binary("lm").arg("--print-schema").succeeds();
    let schema: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let steps = &schema["properties"]["training"]["properties"]["steps"];
    assert!(steps["default"].is_u64() && steps["type"][0] == "integer", "{steps}");
    assert!(schema["properties"]["mechanisms"]["properties"]["sparse-strided"]["properties"]["stride"].is_object(), "{schema:#}");
    for without_effect in [&["--list"][..], &["--steps", "3"]] {
        binary("lm").arg("--print-schema").args(without_effect).refuses(2, &["--print-schema", "cannot be used"]);
    }
}

#[test]
fn shells_get_the_options_of_every_experiment() {
    for name in ["algorithmic", "classify", "glue", "image", "lm", "memory-rl", "mlm", "mt", "ponder", "recall", "swap", "textgen", "track"]
    {
        for shell in ["bash", "zsh", "fish"] {
            let output = binary(name).args(["--completions", shell]).succeeds();
            let script = stdout(&output);
            assert!(script.contains(name) && script.contains("print-config"), "{name}, {shell}: {script}");
        }
    }
    let script = stdout(&binary("heedful").args(["completions", "bash"]).output().unwrap());
    assert!(script.contains("compare") && script.contains("--baseline"), "{script}");
    let script = stdout(&binary("mt").args(["--completions", "bash"]).output().unwrap());
    let typed = format!("{script}\nCOMP_WORDS=(heedful mt --sha) COMP_CWORD=2\n_heedful heedful --sha mt\necho \"${{COMPREPLY[@]}}\"");
    let completed = Command::new("bash").args(["-c", &typed]).output().unwrap();
    assert_eq!(stdout(&completed).trim(), "--shard", "{}", stderr(&completed));
    binary("mt").args(["--completions", "basic"]).refuses(2, &["basic"]);
}

#[cfg(target_os = "linux")]
#[test]
fn texts_for_a_reader_that_is_gone_or_a_full_disk_end_without_a_panic() {
    let texts = [
        ("mt", &["--completions", "bash"][..]),
        ("heedful", &["completions", "bash"]),
        ("lm", &["--help"]),
        ("heedful", &["compare", "--help"]),
        ("heedful", &["--version"]),
        ("lm", &["--list"]),
        ("mt", &["--print-config"]),
        ("mt", &["--print-schema"]),
        ("claims", &["list"]),
    ];
    for (name, arguments) in texts {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        binary(name).args(arguments).stdout(full).refuses(1, &["standard output"]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = binary(name).args(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{name} {arguments:?}: {}", stderr(&output));
    }
}
