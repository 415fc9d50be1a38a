//! Interruption, resumption, and checkpoints that cannot be used.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{final_weights, latest_checkpoint, parallel_folder, refused, stderr, succeeded, translate};

const RUN: &str = "dot-product-seed1";
/// Steps of a run long enough to be caught in the middle.
const LONG: [&str; 6] = ["--steps", "400", "--set", "training.evaluate_every=100", "--set", "training.checkpoint_every=5"];

fn spawn(command: &mut Command) -> Child {
    command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the run has written its first checkpoint, and a little longer.
fn wait_for_checkpoint(out: &Path, further: Duration) {
    let latest = out.join(RUN).join("checkpoint/latest");
    let begun = Instant::now();
    while !latest.exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no checkpoint appears");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(further);
}

#[test]
fn a_run_that_is_killed_and_resumed_ends_with_the_weights_of_one_that_was_not() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    succeeded(&translate(data.path(), &whole, &LONG).output().unwrap());
    for wait in [0, 40, 90] {
        let mut child = spawn(translate(data.path(), &killed, &LONG).arg("--resume"));
        wait_for_checkpoint(&killed, Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(!killed.join("results.json").exists(), "the run was killed before its end");
    succeeded(&translate(data.path(), &killed, &LONG).arg("--resume").output().unwrap());
    assert_eq!(final_weights(&whole.join(RUN)), final_weights(&killed.join(RUN)));
    let without_time = |out: &Path| -> Vec<(u64, f64)> {
        let log = fs::read_to_string(out.join(RUN).join("log.jsonl")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter_map(|line| Some((line["step"].as_u64()?, line["loss"].as_f64()?))).collect()
    };
    assert_eq!(without_time(&whole), without_time(&killed));
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_a_checkpoint_and_exits_with_130() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let child = spawn(&mut translate(data.path(), &out, &LONG));
    wait_for_checkpoint(&out, Duration::from_millis(30));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("--resume"), "{}", stderr(&output));
    succeeded(&translate(data.path(), &out, &LONG).arg("--resume").output().unwrap());
}

/// A finished run whose result is forgotten, so that the next command has to read its checkpoint.
fn forgotten_run(data: &Path, out: &Path, further: &[&str]) {
    succeeded(&translate(data, out, further).output().unwrap());
    fs::remove_file(out.join("results.json")).unwrap();
}

#[test]
fn a_truncated_checkpoint_is_refused() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    forgotten_run(data.path(), &out, &[]);
    let weights = latest_checkpoint(&out.join(RUN)).join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    refused(&translate(data.path(), &out, &["--resume"]).output().unwrap(), 1, &["model.safetensors"]);
}

#[test]
fn a_checkpoint_of_another_configuration_is_refused() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    forgotten_run(data.path(), &first, &[]);
    forgotten_run(data.path(), &second, &["--set", "training.learning_rate=1e-4"]);
    fs::remove_dir_all(second.join(RUN)).unwrap();
    fs::rename(first.join(RUN), second.join(RUN)).unwrap();
    let output = translate(data.path(), &second, &["--resume", "--set", "training.learning_rate=1e-4"]).output().unwrap();
    refused(&output, 2, &["configuration", "checkpoint"]);
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_named_with_the_remedy_and_leaves_no_half_written_file() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let run = translate(data.path(), &out, &[]);
    // A limit of 8 blocks of 512 or 1024 bytes on each file stands for a disk that is full after them.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
    refused(&limited.output().unwrap(), 1, &["free space", "--out"]);
    let mut pending = vec![out];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap().path();
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!name.contains("tmp") && !name.contains("partial"), "{name} is left behind");
            if entry.is_dir() {
                pending.push(entry);
            }
        }
    }
}

#[test]
fn a_loss_that_is_not_a_number_stops_the_run_with_step_and_last_checkpoint() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let blow_up = ["--steps", "200", "--set", "training.learning_rate=1e30", "--set", "training.max_gradient_norm=unset"];
    let blow_up = [&blow_up[..], &["--set", "training.schedule={kind = \"constant\"}"]].concat();
    refused(&translate(data.path(), &out, &blow_up).output().unwrap(), 1, &["step", "checkpoint", "learning rate"]);
}
