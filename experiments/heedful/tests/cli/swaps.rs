//! Swapping the attention of a trained language model.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{Run, binary, final_weights, places, records, refused, stdout, succeeded, text_folder};

const SHORT: [&str; 4] = [
    "--set",
    "training={steps = 6, evaluate_every = 3, checkpoint_every = 2, log_every = 1}",
    "--set",
    "data={context = 16, stride = 8, batch = 4}",
];
const SMALL: [&str; 2] = ["--set", "model={layers = 2, d_model = 16, heads = 2, d_ff = 32, max_length = 32}"];

fn metric(record: &Value, name: &str) -> f64 {
    record["metrics"][name].as_f64().unwrap_or_else(|| panic!("{name} is missing in {record}"))
}

/// The record of a contender.
fn of(records: &[Value], attention: &str, seed: u64) -> Value {
    let found = records.iter().find(|record| record["attention"] == attention && record["seed"] == seed);
    found.unwrap_or_else(|| panic!("there is no run of {attention} with seed {seed} in {records:?}")).clone()
}

/// A text, and a folder with a run of `lm` on it.
struct Trained {
    data: TempDir,
    folder: TempDir,
}

impl Trained {
    fn new(further: &[&str]) -> Self {
        let trained = Self { data: text_folder(), folder: tempfile::tempdir().unwrap() };
        let data = trained.data.path().to_str().unwrap();
        let command = ["--data", data, "--out", &trained.path("lm"), "--quiet"];
        binary("lm").args(SMALL).args(SHORT).args(command).args(further).succeeds();
        trained
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// `swap` of the run; text and model are said by the run alone.
    fn swap(&self, out: &str, further: &[&str]) -> Output {
        let training = &SHORT[..2];
        binary("swap").args(training).args(["--run", &self.path("lm"), "--out", &self.path(out)]).args(further).output().unwrap()
    }

    fn records(&self, out: &str) -> Vec<Value> {
        records(&self.folder.path().join(out))
    }
}

#[test]
fn contenders_begin_with_the_trained_model_and_keep_what_has_a_place() {
    let trained = Trained::new(&["--attention", "dot-product"]);
    let output = trained.swap("swap", &["--swap", "layers.*.attention=dot-product,synthesizer-random", "--swap", "layers.1=uniform"]);
    succeeded(&output);
    let all = trained.records("swap");
    let before = metric(&of(&trained.records("lm"), "dot-product", 1), "perplexity");
    let [unchanged, same, random, uniform] =
        ["unchanged", "dot-product", "synthesizer-random", "layers.1=uniform"].map(|name| of(&all, name, 1));
    // All begin with the weights that the record of `lm` scores, to the last digit.
    for record in [&unchanged, &same, &random, &uniform] {
        assert_eq!(metric(record, "perplexity before"), before, "{}", record["attention"]);
    }
    // A swap by the same mechanism is none: right after it, and after the same training.
    for record in [&unchanged, &same] {
        assert_eq!(metric(record, "perplexity after the swap"), before, "{}", record["attention"]);
    }
    assert_eq!(metric(&same, "perplexity"), metric(&unchanged, "perplexity"));
    assert_ne!(metric(&unchanged, "perplexity"), before, "training changes it");
    for record in [&random, &uniform] {
        assert_ne!(metric(record, "perplexity after the swap"), before, "{}", record["attention"]);
        assert_ne!(metric(record, "perplexity"), metric(record, "perplexity after the swap"), "{}", record["attention"]);
    }
    // Projections of 16 by 16; the table of 2 heads is as wide and high as the longest text.
    let counts = |record: &Value| ["attention kept", "new parameters", "dropped parameters"].map(|name| metric(record, name));
    assert_eq!(counts(&same), [1.0, 0.0, 0.0]);
    assert_eq!(counts(&random), [0.5, 2.0 * 2.0 * 32.0 * 32.0, 2.0 * 2.0 * 256.0]);
    assert_eq!(counts(&uniform), [0.5, 0.0, 2.0 * 256.0]);
    assert!(unchanged["metrics"]["attention kept"].is_null());
    let [more, fewer] =
        [&random, &uniform].map(|record| record["parameters"].as_f64().unwrap() - unchanged["parameters"].as_f64().unwrap());
    assert_eq!((more, fewer), (4096.0 - 1024.0, -512.0));

    let parameters = trained.folder.path().join("swap/synthesizer-random-seed1/swap.json");
    let named: Value = serde_json::from_str(&fs::read_to_string(parameters).unwrap()).unwrap();
    let names = |list: &str| -> Vec<&str> { named[list].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect() };
    let place = |layer: usize, end: &str| format!("decoder.layers.{layer}.self_attention.Softmax.{end}");
    let expected = [place(0, "output.weight"), place(0, "value.weight"), place(1, "output.weight"), place(1, "value.weight")];
    assert_eq!(names("kept"), expected);
    assert_eq!(names("new"), [place(0, "logits.SynthesizerRandom.table"), place(1, "logits.SynthesizerRandom.table")]);
    assert_eq!(names("dropped").len(), 4);
    let report = fs::read_to_string(trained.folder.path().join("swap/report.md")).unwrap();
    for part in [
        "ppl before",
        "ppl swapped",
        "kept %",
        "| 50.0 |",
        "`swap.json` of the run shows them",
        "dropped 512: ",
        "began with dot-product of",
    ] {
        assert!(report.contains(part), "`{part}` is missing in: {report}");
    }
    assert!(stdout(&output).contains("layers.1=uniform") && stdout(&output).contains("are the same model"), "{}", stdout(&output));
    binary("analyse").arg(trained.path("swap")).args(["--attention", "layers.1=uniform", "--texts", "1"]).succeeds();
}

#[test]
fn a_quiet_command_prints_the_table_of_the_swap_alone() {
    let (data, out) = (text_folder(), tempfile::tempdir().unwrap());
    let printed = |name: &str, further: &[&str]| {
        let mut command = binary("swap");
        command.args(SMALL).args(SHORT).args(["--set", "start.steps=2", "--swap", "uniform"]).arg("--data").arg(data.path());
        let output = command.arg("--out").arg(out.path().join(name)).args(further).succeeds();
        stdout(&output).lines().filter(|line| line.starts_with("Report: ")).count()
    };
    assert_eq!((printed("quiet", &["--quiet"]), printed("usual", &[])), (1, 2));
}

#[test]
fn seeds_models_and_configurations_of_the_run_are_those_of_the_swap() {
    let models = ["--model", "llama-3", "--attention", "alibi", "--seed", "2", "--seeds", "2"];
    let trained = Trained::new(&models);
    let of_run = trained.records("lm");
    let seeds = ["--seed", "2", "--seeds", "2", "--swap", "uniform"];
    succeeded(&trained.swap("own", &[&seeds[..], &["--run-model", "llama-3"]].concat()));
    succeeded(&trained.swap("one", &[&seeds[..], &["--run-model", "llama-3", "--run-seed", "3"]].concat()));
    succeeded(&trained.swap("first", &["--seed", "2", "--swap", "uniform"]));
    let before = |out: &str, seed: u64| metric(&of(&trained.records(out), "uniform", seed), "perplexity before");
    let [two, three] = [2, 3].map(|seed| metric(&of(&of_run, "llama-3", seed), "perplexity"));
    assert_ne!(two, three);
    assert_eq!([before("own", 2), before("own", 3), before("one", 2), before("one", 3)], [two, three, three, three]);
    assert_eq!(before("first", 2), metric(&of(&of_run, "alibi", 2), "perplexity"));
    let config = fs::read_to_string(trained.path("own/config.toml")).unwrap();
    for part in ["attention = \"rotary\"", "model = \"llama-3\"", "tied = false", "gated_feed_forward = true", "context = 16"] {
        assert!(config.contains(part), "`{part}` is missing in: {config}");
    }
    assert_eq!(fs::read(trained.path("lm/tokenizer.json")).unwrap(), fs::read(trained.path("own/tokenizer.json")).unwrap());

    // The file repeats the runs.
    let again = ["--config", &trained.path("own/config.toml"), "--out", &trained.path("again")];
    binary("swap").args(again).succeeds();
    let weights = |out: &str| final_weights(&trained.folder.path().join(out).join("uniform-seed2"));
    assert!(weights("again") == weights("own") && weights("own") != weights("one"));
    assert_eq!(before("again", 3), three);

    let refuse = |further: &[&str], parts: &[&str]| {
        refused(&trained.swap("refused", further), 2, parts);
        assert!(!trained.folder.path().join("refused").exists(), "{further:?}");
    };
    refuse(&["--seed", "1"], &["no finished run of alibi with seed 1, only with seed 2, 3", "--run-seed 2"]);
    refuse(&["--seed", "2", "--run-model", "gpt2"], &["no run of `gpt2`", "--run-model", "alibi, llama-3"]);
    refuse(&["--seed", "2", "--set", "start.steps=4"], &["start.steps", "leave it out"]);
}

#[test]
fn models_with_adaptive_vectors_are_trained_by_lm_and_refused_as_a_start() {
    let of_lm = ["--attention", "dot-product", "--set", "adaptive={cutoffs=[9, 13], div=2.0}", "--set", "loss_by_position=true"];
    let trained = Trained::new(&of_lm);
    let record = of(&trained.records("lm"), "dot-product", 1);
    // Of 17 tokens 9, 4 and 4 have vectors of the widths 16, 8 and 4. The projections of tails are shared, and two tails are classes of the head.
    let adaptive = (9 * 16 + 4 * 8 + 4 * 4) + (16 + 8 + 4) * 16 + 2 * 16;
    let plain = Trained::new(&of_lm[..2]);
    let plain = of(&plain.records("lm"), "dot-product", 1);
    let [with, without] = [&record, &plain].map(|record| record["parameters"].as_u64().unwrap());
    assert_eq!(with + 17 * 16, without + adaptive);
    assert!(
        metric(&record, "perplexity").is_finite() && trained.folder.path().join("lm/dot-product-seed1/positions.csv").is_file(),
        "{record}"
    );
    refused(&trained.swap("refused", &["--swap", "uniform"]), 2, &["`adaptive`", "give a run without"]);
    assert!(!trained.folder.path().join("refused").exists());
}

#[test]
fn impossible_swaps_are_refused_before_anything_is_trained() {
    let trained = Trained::new(&["--attention", "dot-product"]);
    let out = trained.path("refused");
    let refuse = |arguments: &[&str], parts: &[&str]| {
        let lm = trained.path("lm");
        for run in [&["--run", lm.as_str()][..], &[]] {
            let command = [&["--out", out.as_str()][..], run, arguments].concat();
            binary("swap").args(SMALL).args(SHORT).args(command).refuses(2, parts);
            assert!(!Path::new(&out).exists(), "{arguments:?}");
        }
    };
    refuse(&["--swap", "layers.2=uniform"], &["`layers.2`", "no layer 2", "0 to 1"]);
    refuse(&["--swap", "blocks.*=uniform"], &["`blocks.*`", "layers.0,2"]);
    refuse(&["--swap", "layers.1-0=uniform"], &["ends before it begins"]);
    refuse(&["--swap", "layers.*.attention=unifrom"], &["unknown attention `unifrom`", "did you mean `uniform`?"]);
    refuse(&["--swap", "layers.*.attention=linformer"], &["linformer"]);
    refuse(&["--swap", "uniform", "--swap", "layers.*=uniform"], &["`uniform` is named twice"]);
    refuse(&["--swap", "uniform", "--set", "mechanisms.gaussian.window=3"], &["mechanisms.gaussian.window", "would change no model"]);

    let refuse = |arguments: &[&str], parts: &[&str]| binary("swap").args(["--out", &out]).args(arguments).refuses(2, parts);
    refuse(&["--run", "nowhere"], &["--run nowhere", "config.toml", "output folder of `lm`"]);
    refuse(&["--set", "start.seed=2"], &["start.seed", "--run RUN"]);
    refuse(&["--slurm"], &["--slurm", "--run RUN"]);
    let algorithmic = trained.path("algorithmic");
    let other =
        ["--attention", "dot-product", "--steps", "1", "--task", "copy", "--set", "data={generated_examples = 40, generated_test = 8}"];
    binary("algorithmic").args(SMALL).args(other).args(["--quiet", "--out", &algorithmic]).succeeds();
    refuse(&["--run", &algorithmic], &["its runs are of `algorithmic`", "output folder of `lm`"]);
    let both = binary("swap").args(["--swap", "uniform", "--attention", "alibi"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2));
    // A model that is not that of the run.
    let wider = trained.swap("wider", &["--swap", "uniform", "--set", "model.d_ff=48"]);
    refused(&wider, 2, &["model.safetensors", "feed_forward", "as the run of `lm` has them"]);
}

#[test]
fn without_a_run_a_model_is_trained_first_and_once() {
    let (folder, [out]) = places(["swap"]);
    let swap = |further: &[&str]| {
        let own = ["--set", "start.steps=4", "--set", "data.generated_words=300", "--seeds", "2", "--out", out.to_str().unwrap()];
        binary("swap").args(SMALL).args(SHORT).args(own).args(further).output().unwrap()
    };
    let planned = swap(&["--swap", "uniform", "--dry-run"]);
    succeeded(&planned);
    assert!(stdout(&planned).contains("dot-product") && stdout(&planned).contains("uniform") && !out.exists(), "{}", stdout(&planned));
    refused(&swap(&["--swap", "uniform", "--shard", "1/2"]), 2, &["--shard 1/2", "trained first", "start"]);
    succeeded(&swap(&["--swap", "uniform", "--resume"]));
    let start = out.join("start");
    let (first, all) = (records(&start), records(&out));
    assert_eq!((first.len(), all.len()), (2, 4));
    assert!(first.iter().all(|record| record["experiment"] == "lm" && record["steps"] == 4), "{first:?}");
    for seed in [1, 2] {
        let before = metric(&of(&first, "dot-product", seed), "perplexity");
        for name in ["unchanged", "uniform"] {
            assert_eq!(metric(&of(&all, name, seed), "perplexity before"), before, "{name}, seed {seed}");
        }
    }
    let trained = fs::metadata(start.join("results.json")).unwrap().modified().unwrap();
    let more = swap(&["--swap", "alibi", "--resume"]);
    succeeded(&more);
    assert_eq!(fs::metadata(start.join("results.json")).unwrap().modified().unwrap(), trained, "the model is not trained again");
    assert_eq!(records(&out).len(), 6);
    // What was trained first is a run of `lm` like any other.
    let from =
        ["--run", start.to_str().unwrap(), "--swap", "uniform", "--seeds", "2", "--out", folder.path().join("from").to_str().unwrap()]
            .map(str::to_owned);
    binary("swap").args(&SHORT[..2]).args(from).succeeds();
    assert_eq!(
        metric(&of(&records(&folder.path().join("from")), "uniform", 2), "perplexity"),
        metric(&of(&all, "uniform", 2), "perplexity")
    );
}
