//! Checkpoints that cannot be used, and what stops a run.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{Run, latest_checkpoint, parallel_folder, places, refused, stderr, translate};

const RUN: &str = "dot-product-seed1";

/// A finished run whose result is forgotten, so that the next command has to read its checkpoint.
fn forgotten_run(data: &Path, out: &Path, further: &[&str]) {
    translate(data, out, further).succeeds();
    fs::remove_file(out.join("results.json")).unwrap();
    fs::remove_file(out.join(RUN).join("result.json")).unwrap();
}

#[test]
fn a_truncated_checkpoint_is_refused_with_a_command_that_goes_on_without_it() {
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    forgotten_run(data.path(), &out, &[]);
    let weights = latest_checkpoint(&out.join(RUN)).join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    let output = translate(data.path(), &out, &["--resume"]).output().unwrap();
    refused(&output, 1, &["model.safetensors", "then the same command with --resume"]);
    let message = stderr(&output);
    let begin = message.find("rm -r ").or_else(|| message.find("echo ")).expect("a command is offered");
    let command = message[begin..].split(", then").next().unwrap();
    assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
    translate(data.path(), &out, &["--resume"]).succeeds();
}

#[test]
fn a_checkpoint_of_another_configuration_is_refused() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    forgotten_run(data.path(), &first, &[]);
    forgotten_run(data.path(), &second, &["--set", "training.learning_rate=1e-4"]);
    fs::remove_dir_all(second.join(RUN)).unwrap();
    fs::rename(first.join(RUN), second.join(RUN)).unwrap();
    translate(data.path(), &second, &["--resume", "--set", "training.learning_rate=1e-4"]).refuses(2, &["configuration", "checkpoint"]);
}

#[test]
fn a_run_that_goes_on_without_being_asked_to_says_so() {
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    for (further, is_told) in [(&[][..], true), (&["--resume"], false)] {
        forgotten_run(data.path(), &out, &["--resume"]);
        let output = translate(data.path(), &out, further).succeeds();
        let told = stderr(&output);
        assert_eq!(told.contains("was begun by an earlier command and goes on after step"), is_told, "{further:?}: {told}");
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_named_with_the_remedy_and_leaves_no_half_written_file() {
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    let run = translate(data.path(), &out, &[]);
    // A limit of 8 blocks of 512 or 1024 bytes on each file stands for a disk that is full after them.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
    limited.refuses(1, &["free space", "--out"]);
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
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    let blow_up = ["--steps", "200", "--set", "training.learning_rate=1e30", "--set", "training.max_gradient_norm=unset"];
    let blow_up = [&blow_up[..], &["--set", "training.schedule={kind = \"constant\"}"]].concat();
    translate(data.path(), &out, &blow_up).refuses(1, &["step", "checkpoint", "learning rate"]);
}
