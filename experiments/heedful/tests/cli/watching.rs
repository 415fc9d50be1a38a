//! Log lines, traces, and the status of a folder that is watched.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::command::{Run, TINY, binary, places, stdout, text_folder};

#[test]
fn a_trace_has_the_spans_of_a_step_and_a_log_says_what_was_decided() {
    let (data, (_folder, [out, trace, log])) = (text_folder(), places(["run", "trace.json", "log.jsonl"]));
    let mut command = binary("lm");
    command.args(TINY).args(["--set", "data={context = 16, stride = 8, batch = 4}", "--steps", "2", "--attention", "sliding-window"]);
    command.arg("--data").arg(data.path()).arg("--out").arg(&out).arg("--trace").arg(&trace).arg("--log").arg(&log);
    command.args(["--log-format", "json"]).succeeds();

    let events: Vec<Value> = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    let names: BTreeSet<&str> = events.iter().filter_map(|event| event["name"].as_str()).collect();
    for name in ["data", "run", "epoch", "step", "batch", "forward", "attention", "backward", "update", "evaluation", "checkpoint"] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let text = fs::read_to_string(log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |message: &str| lines.iter().find(|line| line["fields"]["message"] == message).unwrap_or_else(|| panic!("{message}: {text}"));
    assert_eq!(of("training begins")["fields"]["steps"], 2);
    assert_eq!(of("evaluated")["span"]["name"], "evaluation");
    assert_eq!(of("evaluated")["spans"][0]["attention"], "sliding-window");
    let options = of("initialising")["fields"]["options"].as_str().unwrap();
    assert!(options.contains("window: Some("), "the size that follows the maximal length is not in {options}");
}

#[test]
fn a_watched_folder_is_shown_until_its_runs_have_ended() {
    let (data, (_folder, [out])) = (text_folder(), places(["run"]));
    let mut command = binary("lm");
    command.args(TINY).args(["--set", "data={context = 16, stride = 8, batch = 4}", "--steps", "2", "--attention", "dot-product"]);
    command.arg("--data").arg(data.path()).arg("--out").arg(&out).succeeds();
    let shown = stdout(&binary("status").arg(&out).args(["--watch", "1"]).succeeds());
    assert!(shown.contains("dot-product-seed1") && shown.contains("2/2") && shown.ends_with("1 runs: 1 finished\n"), "{shown}");
    binary("status").arg(&out).args(["--watch", "0"]).refuses(2, &["--watch"]);
}
