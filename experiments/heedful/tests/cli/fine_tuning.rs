//! Fine-tuning pretrained encoders, with another attention in some of their layers: `glue --pretrained`.

use std::fs;
use std::path::Path;
use std::process::Command;

use heedful_host::checksum::sha256_hex;
use safetensors::SafeTensors;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::command::{Run, binary, final_weights, places, records, stdout};
use crate::pretrained::copied;

/// Words of the built-in SST-2.
const WORDS: &str = "the was not very really so and but , . film story acting music ending plot dialogue camera cast script good moving clever charming \
    funny brilliant fresh warm bad boring stupid clumsy dull awful stale cold cinema hall theatre screen street evening full large dark late quiet wet";
const SPECIAL: [&str; 4] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];

/// The folder of a small BERT that transformers wrote, with a tokeniser whose tokens are words, beside these special ones.
fn with_words(special: &[&str]) -> TempDir {
    model_with_words("bert", special)
}

/// The same of any model.
fn model_with_words(name: &str, special: &[&str]) -> TempDir {
    let folder = copied(name);
    let vocabulary: Map<String, Value> =
        special.iter().copied().chain(WORDS.split_whitespace()).enumerate().map(|(id, word)| (word.to_owned(), json!(id))).collect();
    let tokeniser = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    });
    fs::write(folder.path().join("tokenizer.json"), tokeniser.to_string()).unwrap();
    folder
}

pub fn bert() -> TempDir {
    with_words(&SPECIAL)
}

fn glue(pretrained: &Path, out: &Path, tasks: &str, steps: usize) -> Command {
    let mut command = binary("glue");
    command.arg("--pretrained").arg(pretrained).arg("--out").arg(out).args(["--task", tasks, "--steps", &steps.to_string()]);
    let schedule = "{kind = 'linear', warmup = 2, end = 1e-4}";
    let times = format!("evaluate_every = {0}, checkpoint_every = {0}, log_every = {1}", steps / 2, steps.div_ceil(30));
    command.args(["--set", &format!("training={{learning_rate = 3e-3, schedule = {schedule}, {times}}}")]);
    command.args(["--set", "data={generated_examples = 60, batch_tokens = 200}"]);
    command
}

/// The record of a contender on a task.
fn of<'r>(records: &'r [Value], task: &str, attention: &str) -> &'r Value {
    let is_wanted = |record: &&Value| record["attention"] == attention && record["dataset"] == format!("built-in {task}");
    records.iter().find(is_wanted).unwrap_or_else(|| panic!("there is no run of {attention} on {task} in {records:?}"))
}

#[test]
fn encoders_are_fine_tuned() {
    let (folder, (out, [first])) = (bert(), places(["first"]));
    let output = glue(folder.path(), &first, "SST-2", 300).succeeds();
    assert!(stdout(&output).contains("unchanged"), "{}", stdout(&output));
    let all = records(&first);
    let record = of(&all, "SST-2", "unchanged");
    assert!(record["metrics"]["accuracy"].as_f64().is_some() && record["metrics"]["score before"].is_null(), "{record}");
    let checksum = sha256_hex(&fs::read(folder.path().join("model.safetensors")).unwrap());
    assert!(record["notes"].to_string().contains(&format!("model.safetensors has the SHA-256 {checksum}")), "{record}");
    // 2 layers of 4 projections and a feed-forward network with biases and norms; 67 tokens, 12 positions, 2 segments, a norm; pooler and new output.
    let layer = 4 * (16 * 16 + 16) + (2 * 16 * 24 + 24 + 16) + 2 * 2 * 16;
    assert_eq!(record["parameters"], 2 * layer + (67 + 12 + 2 + 2) * 16 + (16 * 16 + 16) + (16 * 2 + 2));
    let log = fs::read_to_string(first.join("unchanged-seed1/log.jsonl")).unwrap();
    let losses: Vec<f64> = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64()).collect();
    assert!(losses.len() >= 30 && losses[losses.len() - 1] < 0.8 * losses[0], "{losses:?}");
    // The written configuration repeats the run.
    let second = out.path().join("second");
    binary("glue").arg("--config").arg(first.join("config.toml")).arg("--out").arg(&second).succeeds();
    assert_eq!(records(&second)[0]["metrics"]["accuracy"], record["metrics"]["accuracy"]);
    assert_eq!(final_weights(&second.join("unchanged-seed1")), final_weights(&first.join("unchanged-seed1")));
    // Another encoder is another task.
    fs::write(folder.path().join("tokenizer.json"), fs::read_to_string(folder.path().join("tokenizer.json")).unwrap() + " ").unwrap();
    glue(folder.path(), &first, "SST-2", 300).arg("--resume").refuses(2, &["SHA-256", "choose another --out"]);
}

#[test]
fn a_roberta_is_fine_tuned_on_pairs_with_two_separators() {
    let (folder, out) = (model_with_words("roberta", &["<s>", "<pad>", "</s>", "[UNK]"]), tempfile::tempdir().unwrap());
    glue(folder.path(), out.path(), "SST-2,MRPC", 20).succeeds();
    let all = records(out.path());
    // As a BERT of this size, with 12 positions and two copies of the vector of its one segment.
    let layer = 4 * (16 * 16 + 16) + (2 * 16 * 24 + 24 + 16) + 2 * 2 * 16;
    for task in ["SST-2", "MRPC"] {
        assert_eq!(of(&all, task, "unchanged")["parameters"], 2 * layer + (67 + 12 + 2 + 2) * 16 + (16 * 16 + 16) + (16 * 2 + 2));
    }
    let without = model_with_words("roberta", &["[PAD]", "[UNK]", "[CLS]", "[SEP]"]);
    glue(without.path(), &out.path().join("other"), "SST-2", 4).refuses(2, &["tokenizer.json", "no token <s>"]);
}

/// The share of values and output in an attention of four maps of 16 by 16 with biases, [`rounded`].
const KEPT: f64 = 0.470_588;

/// To six digits: numbers that were read from JSON can differ in the last one.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[test]
fn attentions_are_replaced_before_fine_tuning() {
    let (folder, (_folder, [out])) = (bert(), places(["run"]));
    glue(folder.path(), &out, "SST-2", 4).args(["--attention", "unchanged,dot-product,layers.1=uniform"]).succeeds();
    let all = records(&out);
    let [unchanged, same, uniform] = ["unchanged", "dot-product", "layers.1=uniform"].map(|name| of(&all, "SST-2", name));
    assert!(unchanged["metrics"]["attention kept"].is_null() && !out.join("start").exists());
    assert_eq!(same["metrics"]["attention kept"], 1.0);
    assert_eq!(uniform["metrics"]["attention kept"].as_f64().map(rounded), Some(KEPT));
    assert!(uniform["metrics"]["score before"].is_null(), "outputs are new: {uniform}");
    let weights = |name: &str| final_weights(&out.join(name));
    assert_eq!(weights("unchanged-seed1"), weights("dot-product-seed1"), "a swap by the same mechanism is none");
}

#[test]
fn attentions_of_fine_tuned_encoders_are_swapped() {
    let (folder, (_folder, [out])) = (bert(), places(["run"]));
    let swap = || {
        let mut command = glue(folder.path(), &out, "SST-2,MRPC", 20);
        command.args(["--swap", "layers.*.attention=dot-product,synthesizer-random", "--swap", "layers.1=uniform"]);
        command
    };
    let planned = swap().arg("--dry-run").succeeds();
    assert!(stdout(&planned).contains("layers.1=uniform") && !out.exists(), "{}", stdout(&planned));
    swap().args(["--shard", "1/2"]).refuses(2, &["--shard 1/2", "trained first", "start"]);
    swap().arg("--resume").succeeds();
    let (first, all) = (records(&out.join("start")), records(&out));
    assert_eq!((first.len(), all.len()), (2, 8));
    for (task, metric) in [("SST-2", "accuracy"), ("MRPC", "f1")] {
        let before = &of(&first, task, "unchanged")["metrics"][metric];
        assert!(before.as_f64().is_some());
        let [unchanged, same, random, uniform] =
            ["unchanged", "dot-product", "synthesizer-random", "layers.1=uniform"].map(|name| of(&all, task, name));
        // All begin with the weights that the record of the fine-tuning scores, to the last digit.
        for record in [unchanged, same, random, uniform] {
            assert_eq!(&record["metrics"]["score before"], before, "{record}");
            assert!(record["metrics"][metric].as_f64().is_some(), "{record}");
            assert!(record["signatures"]["score before"].as_str().unwrap().starts_with(metric), "{record}");
        }
        for record in [unchanged, same] {
            assert_eq!(&record["metrics"]["score after the swap"], before, "{record}");
        }
        assert_eq!(same["metrics"][metric], unchanged["metrics"][metric]);
        // Projections of 16 by 16 with biases, which neither attention has; the table of 4 heads is as wide and high as the longest text.
        let counts = |record: &Value| {
            ["attention kept", "new parameters", "dropped parameters"].map(|name| record["metrics"][name].as_f64().map(rounded))
        };
        assert_eq!(counts(unchanged), [None; 3]);
        assert_eq!(counts(same), [Some(1.0), Some(0.0), Some(0.0)]);
        assert_eq!(counts(random), [Some(KEPT), Some(2.0 * 4.0 * 12.0 * 12.0), Some(2.0 * 576.0)]);
        assert_eq!(counts(uniform), [Some(KEPT), Some(0.0), Some(576.0)]);
    }
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    for part in ["| before |", "swapped", "kept %", "`swap.json` of the run shows them", "fine-tuned first, with seed 1"] {
        assert!(report.contains(part), "`{part}` is missing in: {report}");
    }
    let trained = fs::metadata(out.join("start/results.json")).unwrap().modified().unwrap();
    swap().arg("--resume").succeeds();
    assert_eq!(fs::metadata(out.join("start/results.json")).unwrap().modified().unwrap(), trained, "the encoder is not fine-tuned again");
    binary("analyse").arg(&out).args(["--attention", "layers.1=uniform", "--texts", "1"]).succeeds();
}

#[test]
fn decoders_are_fine_tuned_and_swapped() {
    for name in ["gpt2", "llama-classifier"] {
        let (folder, out) = (model_with_words(name, &SPECIAL), tempfile::tempdir().unwrap());
        let first = out.path().join("first");
        glue(folder.path(), &first, "SST-2", 300).succeeds();
        let all = records(&first);
        let record = of(&all, "SST-2", "unchanged");
        if name == "gpt2" {
            // 2 layers of 4 projections and a feed-forward network with biases and norms; 67 tokens, 12 positions, a norm, and a new output without biases.
            let layer = 4 * (16 * 16 + 16) + (2 * 16 * 64 + 64 + 16) + 2 * 2 * 16;
            assert_eq!(record["parameters"], 2 * layer + (67 + 12 + 2) * 16 + 16 * 2);
        }
        let log = fs::read_to_string(first.join("unchanged-seed1/log.jsonl")).unwrap();
        let losses: Vec<f64> = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64()).collect();
        assert!(losses.len() >= 30 && losses[losses.len() - 1] < 0.9 * losses[0], "{name}: {losses:?}");
        let config = fs::read_to_string(first.join("config.toml")).unwrap();
        assert!(config.contains("pooling = \"last-token\"") && config.contains("causal = true"), "{config}");

        // Pairs, without segments, and an attention that has neither the biases nor the heads of the model.
        let swapped = out.path().join("swapped");
        glue(folder.path(), &swapped, "MRPC", 4).args(["--swap", "linear-attention", "--swap", "layers.1=linear-attention"]).succeeds();
        let all = records(&swapped);
        let before = |attention: &str| of(&all, "MRPC", attention)["metrics"]["score before"].clone();
        assert!(before("unchanged").as_f64().is_some(), "{name}");
        for attention in ["linear-attention", "layers.1=linear-attention"] {
            let record = of(&all, "MRPC", attention);
            assert_eq!(before(attention), before("unchanged"), "{name}");
            assert!((0.1..1.0).contains(&record["metrics"]["attention kept"].as_f64().unwrap()), "{name}: {record}");
        }
    }
}

#[test]
fn folders_and_options_that_do_not_fit_are_refused() {
    let (folder, (_folder, [out])) = (bert(), places(["run"]));
    let refuse = |folder: &Path, further: &[&str], parts: &[&str]| {
        glue(folder, &out, "SST-2", 4).args(further).refuses(2, parts);
        assert!(!out.exists(), "{further:?}");
    };
    refuse(Path::new("nowhere"), &[], &["--pretrained", "config.json"]);
    refuse(copied("vit").path(), &[], &["--pretrained", "config.json", "type vit", "folder of a BERT, of a RoBERTa or of a decoder"]);
    let nameless = model_with_words("gpt2", &SPECIAL);
    let path = nameless.path().join("config.json");
    let mut fields: Map<String, Value> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    fields.retain(|field, _| field != "bos_token_id" && field != "eos_token_id");
    fs::write(&path, Value::Object(fields).to_string()).unwrap();
    refuse(nameless.path(), &[], &["--pretrained", "config.json", "no bos_token_id and no eos_token_id"]);
    let first = ["--set", "pooling='class-token'"];
    refuse(model_with_words("gpt2", &SPECIAL).path(), &first, &["pooling", "last-token or mean"]);
    refuse(copied("bert").path(), &[], &["--pretrained", "tokenizer.json` is missing", "save_pretrained"]);
    refuse(with_words(&["[PAD]", "[UNK]", "[CLS]"]).path(), &[], &["tokenizer.json", "no token [SEP]", "tokeniser of the encoder"]);
    refuse(folder.path(), &["--set", "model.d_model=32"], &["model.d_model", "for 16; leave it out"]);
    refuse(folder.path(), &["--set", "tokeniser={kind='word'}"], &["tokeniser.kind", "leave it out"]);
    refuse(folder.path(), &["--swap", "layers.2=uniform"], &["`layers.2`", "no layer 2", "0 to 1"]);
    refuse(folder.path(), &["--swap", "layers.*=gla"], &["gla"]);
    refuse(
        folder.path(),
        &["--swap", "uniform", "--set", "mechanisms.gaussian.window=3"],
        &["mechanisms.gaussian.window", "change no model"],
    );
    refuse(folder.path(), &["--init", "runs/mlm"], &["--init", "--pretrained"]);
    refuse(folder.path(), &["--swap", "uniform", "--slurm"], &["--swap", "--slurm"]);
    binary("glue").args(["--swap", "uniform"]).arg("--out").arg(&out).refuses(2, &["--swap", "--pretrained DIR"]);
    let kind = ["--set", "tokeniser={kind='pretrained'}"];
    binary("glue").args(kind).arg("--out").arg(&out).refuses(2, &["tokeniser.kind", "--pretrained DIR"]);

    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let gone = "bert.encoder.layer.1.output.dense.bias";
    fs::write(&path, safetensors::serialize(tensors.iter().filter(|(name, _)| *name != gone), None).unwrap()).unwrap();
    glue(folder.path(), &out, "SST-2", 4).refuses(2, &["model.safetensors", &format!("no tensor `{gone}`"), "of the same model"]);
}
