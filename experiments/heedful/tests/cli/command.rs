//! Running the binaries on small data.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub use crate::output::{refused, stderr, stdout};

/// Settings of a model that trains in well under a second.
pub const TINY: [&str; 12] = [
    "--set",
    "model={layers = 1, d_model = 16, heads = 2, d_ff = 32, max_length = 32}",
    "--set",
    "training.evaluate_every=4",
    "--set",
    "training.checkpoint_every=2",
    "--set",
    "training.log_every=1",
    "--set",
    "training.steps=8",
    "--set",
    "run.attention=[\"dot-product\"]",
];

/// The assignment of `--set` to a model that trains in well under a second. Those of recall and tracking have no feed-forward networks.
pub fn small_model(program: &str) -> &'static str {
    match program {
        "recall" | "track" => "model={layers = 1, d_model = 16, heads = 2, max_length = 64}",
        _ => "model={layers = 1, d_model = 16, heads = 2, d_ff = 32, max_length = 64}",
    }
}

/// The program, alone or with the command of an experiment or tool.
pub fn binary(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heedful"));
    command.env_remove("RUST_LOG").args((name != "heedful").then_some(name));
    command
}

/// An example of heedful-experiments, which Cargo builds beside the programs.
pub fn example(name: &str) -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_heedful")).parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "`{}` is built by `cargo test --workspace` without --test", path.display());
    let mut command = Command::new(path);
    command.env_remove("RUST_LOG");
    command
}

/// Runs `mt` on a data folder, with the tiny model and further arguments.
pub fn translate(data: &Path, out: &Path, further: &[&str]) -> Command {
    let mut command = binary("mt");
    command.args(TINY).args(["--set", "decoding.extra_length=2"]);
    command.arg("--data").arg(data).arg("--out").arg(out).args(further);
    command
}

#[track_caller]
pub fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

/// A command that is run.
pub trait Run {
    /// Asserts that it succeeds. What it wrote.
    fn succeeds(&mut self) -> Output;
    /// Asserts that it is [refused](refused). What it wrote.
    fn refuses(&mut self, code: i32, parts: &[&str]) -> Output;
}

impl Run for Command {
    #[track_caller]
    fn succeeds(&mut self) -> Output {
        let output = self.output().unwrap();
        succeeded(&output);
        output
    }

    #[track_caller]
    fn refuses(&mut self, code: i32, parts: &[&str]) -> Output {
        let output = self.output().unwrap();
        refused(&output, code, parts);
        output
    }
}

/// The records of an output folder.
pub fn records(out: &Path) -> Vec<Value> {
    serde_json::from_str(&fs::read_to_string(out.join("results.json")).unwrap()).unwrap()
}

/// A folder, and paths of these names in it, where nothing is yet.
pub fn places<const N: usize>(names: [&str; N]) -> (TempDir, [PathBuf; N]) {
    let folder = tempfile::tempdir().unwrap();
    let paths = names.map(|name| folder.path().join(name));
    (folder, paths)
}

/// A folder with a parallel corpus of numbers.
pub fn parallel_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (split, first, count) in [("train", 0, 60), ("val", 60, 8), ("test_numbers", 68, 6)] {
        let sentences = |words: [&str; 4]| {
            let line = |n: usize| format!("{} {} {}\n", words[n % 4], words[n / 4 % 4], words[n / 16 % 4]);
            (first..first + count).map(line).collect::<String>()
        };
        fs::write(folder.path().join(format!("{split}.en")), sentences(["one", "two", "three", "four"])).unwrap();
        fs::write(folder.path().join(format!("{split}.de")), sentences(["eins", "zwei", "drei", "vier"])).unwrap();
    }
    folder
}

/// A folder with a text for a language model.
pub fn text_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (split, lines) in [("train", 60), ("valid", 20), ("test", 20)] {
        let text: String = (0..lines).map(|n| format!("the {} cat sees a {} dog\n", n % 3, n % 5)).collect();
        fs::write(folder.path().join(format!("small.{split}.txt")), text).unwrap();
    }
    folder
}

/// Waits until something holds, for as long as the process runs: no clock says how long that takes on a busy machine.
#[track_caller]
pub fn wait_until(child: &mut Child, holds: impl Fn() -> bool) {
    while !holds() {
        let has_ended = child.try_wait().unwrap().is_some();
        assert!(!has_ended || holds(), "the process ended first");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The weights of a run's latest checkpoint.
pub fn final_weights(run: &Path) -> Vec<u8> {
    fs::read(latest_checkpoint(run).join("model.safetensors")).unwrap()
}

pub fn latest_checkpoint(run: &Path) -> PathBuf {
    let folder = run.join("checkpoint");
    folder.join(fs::read_to_string(folder.join("latest")).unwrap().trim())
}
