//! Scoring and fine-tuning pretrained models: `lm --pretrained`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use burn::tensor::{Device, Int, Tensor};
use heedful_attention::read::read;
use heedful_models::pretrained::Pretrained;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::command::{binary, final_weights, refused, stdout, succeeded};

const LETTERS: &str = "\n acdeghnorst0123456789";
/// Short enough for one window.
const TEST: &str = "the cat 1";

/// The folder of a small model that transformers wrote.
pub fn copied(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/pretrained").join(name);
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

/// The same with a tokeniser whose tokens are letters.
fn folder(name: &str) -> TempDir {
    let folder = copied(name);
    let vocabulary: Map<String, Value> =
        LETTERS.chars().enumerate().map(|(index, letter)| (letter.to_string(), json!(index + 4))).collect();
    let tokeniser = json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}, "padding": null,
        "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "FixedLength", "length": 1}, "post_processor": null,
        "decoder": {"type": "Fuse"}, "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": " "},
    });
    fs::write(folder.path().join("tokenizer.json"), tokeniser.to_string()).unwrap();
    folder
}

fn texts() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lines = |count: usize| (0..count).map(|n| format!("the {n} cat sees a {} dog\n", 7 * n)).collect::<String>();
    for (split, text) in [("train", lines(40)), ("valid", lines(2)), ("test", format!("{TEST}\n"))] {
        fs::write(folder.path().join(format!("small.{split}.txt")), text).unwrap();
    }
    folder
}

fn lm(pretrained: &Path, data: &Path, out: &Path) -> Command {
    let mut command = binary("lm");
    command.arg("--pretrained").arg(pretrained).arg("--data").arg(data).arg("--out").arg(out);
    command.args(["--set", "data={context = 12, stride = 6, batch = 2}", "--steps", "4"]);
    command.args(["--set", "training={learning_rate = 5e-2, evaluate_every = 2, checkpoint_every = 2}"]);
    command
}

fn metrics(out: &Path) -> Value {
    let records: Value = serde_json::from_str(&fs::read_to_string(out.join("results.json")).unwrap()).unwrap();
    records[0]["metrics"].clone()
}

/// The perplexity of the test text, from the logits of the model.
fn perplexity(folder: &Path) -> f64 {
    let device = Device::flex();
    let model = Pretrained::open(folder).unwrap().language_model(&device).unwrap();
    let id = |letter: char| LETTERS.chars().position(|known| known == letter).unwrap() as i32 + 4;
    let tokens: Vec<i32> = std::iter::once(1).chain(TEST.chars().chain(['\n']).map(id)).collect();
    let (inputs, targets) = (&tokens[..tokens.len() - 1], &tokens[1..]);
    let logits = read(model.forward(Tensor::<1, Int>::from_data(inputs, &device).unsqueeze()));
    let logits: Vec<f64> = logits.iter::<f64>().collect();
    let vocabulary = logits.len() / targets.len();
    let nats = |(row, target): (&[f64], &i32)| row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[*target as usize];
    (logits.chunks(vocabulary).zip(targets).map(nats).sum::<f64>() / targets.len() as f64).exp()
}

fn run_of(out: &Path) -> PathBuf {
    let runs = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.join("checkpoint").is_dir());
    runs.expect("there is a run")
}

#[test]
fn pretrained_models_are_scored_and_fine_tuned() {
    let data = texts();
    for name in ["gemma2", "gpt2", "llama", "mistral", "qwen3"] {
        let (folder, out) = (folder(name), tempfile::tempdir().unwrap());
        let first = out.path().join("first");
        let output = lm(folder.path(), data.path(), &first).output().unwrap();
        succeeded(&output);
        assert!(stdout(&output).contains("before"), "{}", stdout(&output));
        let found = metrics(&first);
        let before = found["perplexity before"].as_f64().unwrap();
        assert!((before / perplexity(folder.path()) - 1.0).abs() < 1e-4, "{name}: {before} and {}", perplexity(folder.path()));
        assert!(found["perplexity"].as_f64().unwrap() < 0.9 * before, "{name}: {found}");
        let report = fs::read_to_string(first.join("report.md")).unwrap();
        assert!(report.contains("began with the weights of") && report.contains(".safetensors has the SHA-256"), "{report}");
        // The written configuration repeats the run.
        let second = out.path().join("second");
        succeeded(&binary("lm").arg("--config").arg(first.join("config.toml")).arg("--out").arg(&second).output().unwrap());
        assert_eq!(metrics(&second)["perplexity"], found["perplexity"], "{name}");
        assert_eq!(final_weights(&run_of(&second)), final_weights(&run_of(&first)), "{name}");
        let swap = binary("swap").arg("--run").arg(&first).arg("--out").arg(out.path().join("swapped")).output().unwrap();
        refused(&swap, 2, &["--run", "pretrained weights", "without --pretrained"]);
    }
}

#[test]
fn folders_and_options_that_do_not_fit_are_refused() {
    let (data, out, gpt2) = (texts(), tempfile::tempdir().unwrap(), folder("gpt2"));
    let out = out.path().join("run");
    let refuse = |folder: &Path, further: &[&str], parts: &[&str]| {
        refused(&lm(folder, data.path(), &out).args(further).output().unwrap(), 2, parts);
        assert!(!out.exists());
    };
    refuse(Path::new("nowhere"), &[], &["--pretrained", "config.json"]);
    refuse(folder("bert").path(), &[], &["--pretrained", "bert", "no language model"]);
    refuse(gpt2.path(), &["--attention", "relative"], &["run.attention", "for dot-product", "leave --attention out"]);
    refuse(gpt2.path(), &["--set", "tokeniser={kind='word'}"], &["tokeniser.kind", "leave it out"]);
    refuse(gpt2.path(), &["--set", "model.d_model=32"], &["model.d_model", "for 16; leave it out"]);
    refuse(gpt2.path(), &["--set", "data.context=13"], &["data.context", "max_length"]);
    let without = folder("gpt2");
    fs::remove_file(without.path().join("tokenizer.json")).unwrap();
    refuse(without.path(), &[], &["--pretrained", "tokenizer.json"]);
    fs::write(without.path().join("tokenizer.json"), "{}").unwrap();
    refuse(without.path(), &[], &["--pretrained", "tokenizer.json", "not a tokeniser"]);

    let set = ["--set", "tokeniser={kind='pretrained'}"];
    let mut language = binary("lm");
    language.args(set).arg("--out").arg(&out);
    refused(&language.output().unwrap(), 2, &["tokeniser.kind", "--pretrained DIR"]);
    let mut translation = binary("mt");
    translation.args(set).arg("--out").arg(&out);
    refused(&translation.output().unwrap(), 2, &["tokeniser.kind", "lm --pretrained DIR"]);
}
