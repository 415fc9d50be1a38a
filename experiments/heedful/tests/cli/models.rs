//! Whole models: `lm --model` and `algorithmic`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command::{
    Run, binary, final_weights, parallel_folder, places, records, refused, stderr, stdout, text_folder, translate, wait_until,
};

/// Settings of models that train in well under a second.
const TINY: [&str; 8] = [
    "--set",
    "model={layers = 2, d_model = 16, heads = 2, d_ff = 32, max_length = 32}",
    "--set",
    "training={steps = 8, evaluate_every = 4, checkpoint_every = 2, log_every = 1}",
    "--set",
    "tokeniser.kind=word",
    "--set",
    "data={context = 16, batch = 4, stride = 8}",
];
/// A chunk for the short texts here.
const CHUNK: [&str; 2] = ["--set", "mechanisms.lsh.chunk=4"];

fn language(data: &Path, out: &Path, further: &[&str]) -> Command {
    let mut command = binary("lm");
    command.args(TINY).arg("--data").arg(data).arg("--out").arg(out).args(further);
    command
}

#[test]
fn every_model_trains_and_says_its_context_and_memory() {
    let (data, (_folder, [out])) = (text_folder(), places(["run"]));
    let names =
        "transformer,transformer-xl,gtrxl,adaptive-span,universal,reformer,reformer-mixed,sparse,gpt2,llama-3,mistral,qwen-3,gemma-2";
    let output = language(data.path(), &out, &[&["--model", names, "--steps", "2"][..], &CHUNK].concat()).succeeds();
    let table = stdout(&output);
    assert!(table.contains("model") && table.contains("memory") && !table.contains("attention"), "{table}");
    let records = records(&out);
    let memories: Vec<_> =
        records.iter().map(|record| (record["attention"].as_str().unwrap(), record["metrics"]["memory"].as_f64().unwrap())).collect();
    let expected = [
        ("transformer", 0.0),
        ("transformer-xl", 128.0),
        ("gtrxl", 128.0),
        ("adaptive-span", 128.0),
        ("universal", 0.0),
        ("reformer", 0.0),
        ("reformer-mixed", 0.0),
        ("sparse", 0.0),
        ("gpt2", 0.0),
        ("llama-3", 0.0),
        ("mistral", 0.0),
        ("qwen-3", 0.0),
        ("gemma-2", 0.0),
    ];
    assert_eq!(memories, expected);
    let signature = records[1]["signatures"]["perplexity"].as_str().unwrap();
    assert!(signature.contains("context:16") && signature.contains("memory:128"), "{signature}");
    // The universal one has one block for both layers.
    let parameters = |index: usize| records[index]["parameters"].as_u64().unwrap();
    assert!(parameters(4) < parameters(0));
}

#[test]
fn models_of_papers_train_by_name_and_are_listed() {
    let (data, (folder, [out])) = (text_folder(), places(["run"]));
    let names = "transformer-xl-enwik8-tiny,sparse-enwik8-tiny,gpt2-paper-tiny";
    language(data.path(), &out, &["--model", names, "--steps", "2"]).succeeds();
    let found = records(&out);
    assert_eq!(found.iter().map(|record| record["attention"].as_str().unwrap()).collect::<Vec<_>>().join(","), names);
    assert_eq!(found[0]["metrics"]["memory"], 16.0);
    for (program, name) in [("lm", "sparse-enwik8"), ("mt", "hc-sa-iwslt"), ("textgen", "synthesizer-base"), ("glue", "bert-base")] {
        let output = binary(program).arg("--list").succeeds();
        assert!(stdout(&output).contains(name), "{program} does not list {name}");
    }
    binary("mt").args(["--model", "hc-sa-iwlst"]).arg("--out").arg(folder.path().join("mt")).refuses(2, &["unknown model", "hc-sa-iwslt"]);
}

#[test]
fn models_can_be_changed_and_the_written_configuration_repeats_them() {
    let (data, (_folder, [first, second, mine])) = (text_folder(), places(["first", "second", "mine"]));
    let changed = ["--model", "transformer-xl", "--set", "data.memory=24", "--set", "model.norm_order=pre"];
    language(data.path(), &first, &changed).succeeds();
    assert_eq!(records(&first)[0]["metrics"]["memory"], 24.0);
    binary("lm").arg("--config").arg(first.join("config.toml")).arg("--out").arg(&second).succeeds();
    let weights = |out: &Path, name: &str| final_weights(&out.join(format!("{name}-seed1")));
    assert_eq!(weights(&first, "transformer-xl"), weights(&second, "transformer-xl"));
    assert_eq!(fs::read_to_string(first.join("config.toml")).unwrap(), fs::read_to_string(second.join("config.toml")).unwrap());

    let models = "run.models=[{name = 'mine', attention = 'relative', set = {data = {memory = 8}, model = {layers = 1}}}]";
    language(data.path(), &mine, &["--set", "run.attention=['dot-product']", "--set", models, "--steps", "2"]).succeeds();
    let records = records(&mine);
    assert_eq!(records.len(), 2, "an attention and a model");
    assert_eq!((records[1]["attention"].as_str(), records[1]["metrics"]["memory"].as_f64()), (Some("mine"), Some(8.0)));
}

#[test]
fn a_trained_model_is_scored_again_with_another_memory() {
    let (data, (folder, [out])) = (text_folder(), places(["run"]));
    let again = |name: &str, memory: usize| {
        let set = format!("{{data = {{memory = 8, evaluation_memory = {memory}}}}}");
        format!("{{name = '{name}', attention = 'relative', weights_of = 'trained', set = {set}}}")
    };
    // Those that are scored again stand first and still come last.
    let trained = "{name = 'trained', attention = 'relative', set = {data = {memory = 8}}}";
    let models = format!("run.models=[{}, {}, {trained}]", again("same", 8), again("longer", 24));
    let arguments = ["--set", "run.attention=[]", "--set", &models, "--set", "training.learning_rate=1e-2", "--seeds", "2"];
    language(data.path(), &out, &arguments).succeeds();
    let records = records(&out);
    assert_eq!(records.len(), 6);
    let perplexity = |name: &str, seed: u64| {
        let record = records.iter().find(|record| record["attention"] == name && record["seed"] == seed).unwrap();
        let is_trained = !record["notes"].to_string().contains("nothing was trained");
        assert_eq!(is_trained, name == "trained", "{record}");
        assert_eq!(record["steps"], 8);
        record["metrics"]["perplexity"].as_f64().unwrap()
    };
    for seed in [1, 2] {
        assert_eq!(perplexity("same", seed), perplexity("trained", seed));
        assert_ne!(perplexity("longer", seed), perplexity("trained", seed));
    }
    assert_ne!(perplexity("same", 1), perplexity("same", 2));
    assert!(!out.join("same-seed1/log.jsonl").exists());
    let unknown = "run.models=[{name = 'a', attention = 'relative', weights_of = 'b', set = {}}]";
    let output = language(data.path(), &folder.path().join("refused"), &["--set", unknown]).output().unwrap();
    refused(&output, 2, &["run.models.0.weights_of", "`a` can take the weights of a model that this command trains"]);
}

#[test]
fn impossible_models_are_refused() {
    let (data, out) = (text_folder(), tempfile::tempdir().unwrap());
    let refuse = |further: &[&str], parts: &[&str]| {
        language(data.path(), &out.path().join("run"), further).refuses(2, parts);
    };
    refuse(&["--model", "transfomer-xl"], &["transfomer-xl", "did you mean `transformer-xl`"]);
    refuse(&["--model", "reformer", "--set", "data.memory=16"], &["data.memory", "reversible"]);
    refuse(&["--model", "gtrxl", "--set", "model.norm_order=post"], &["norm_order", "gate"]);
    refuse(&["--model", "gtrxl,gtrxl"], &["gtrxl", "twice"]);
    refuse(&["--model", "transformer,gtrxl", "--set", "data.batch=100"], &["data.context", "100 streams"]);
    refuse(&["--set", "run.models=[{name = 'mine', set = {}}]"], &["run.models.0", "`lm` knows no model `mine`", "attention"]);
    refuse(&["--set", "run.models=[{name = 'mine', attention = 'relative', set = {modle = 1}}]"], &["modle", "model"]);
    let mut classification = binary("classify");
    classification.args(["--set", "run.models=[{name = 'universal'}]"]).arg("--out").arg(out.path().join("classify"));
    classification.refuses(2, &["unknown model `universal`", "--list"]);
}

#[test]
fn auxiliary_losses_train_with_a_memory_and_with_reversible_layers() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let run = |name: &str, further: &[&str]| {
        let out = folder.path().join(name);
        let models = ["--model", "transformer-xl,reformer", "--steps", "4"];
        language(data.path(), &out, &[&models[..], &CHUNK, further].concat()).succeeds();
        assert!(records(&out).iter().all(|record| record["metrics"]["perplexity"].as_f64().unwrap() < 100.0));
        ["transformer-xl-seed1", "reformer-seed1"].map(|run| final_weights(&out.join(run)))
    };
    let (plain, auxiliary) = (run("plain", &[]), run("auxiliary", &["--set", "auxiliary={}"]));
    assert!(plain.iter().zip(&auxiliary).all(|(plain, auxiliary)| plain != auxiliary));
    run("f16", &["--set", "auxiliary={}", "--set", "training.precision=f16"]);
}

#[test]
fn encoder_decoders_are_universal_with_the_weights_of_the_stack() {
    let (data, (_folder, [out, again])) = (parallel_folder(), places(["run", "again"]));
    let models = ["--attention", "dot-product", "--model", "universal,universal-act,universal-wide,universal-act-wide"];
    let sizes = ["--set", "model.layers=3", "--set", "decoding.beam=2"];
    translate(data.path(), &out, &[&models[..], &sizes].concat()).succeeds();
    let found = records(&out);
    let parameters: Vec<u64> = found.iter().map(|record| record["parameters"].as_u64().unwrap()).collect();
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|record| record["metrics"]["BLEU"].as_f64().is_some_and(|bleu| (0.0..=100.0).contains(&bleu))));
    // A hidden unit of each of two networks of width 16 has 33 parameters; the nearest number of them is taken.
    assert!(parameters[3..].iter().all(|wide| wide.abs_diff(parameters[0]) <= 33), "{parameters:?}");
    assert!(parameters[1..3].iter().all(|narrow| 2 * narrow < parameters[0]), "{parameters:?}");
    // What is written down names the width, so that it repeats the runs.
    let written = fs::read_to_string(out.join("config.toml")).unwrap();
    assert!(written.contains("universal-wide") && written.contains("d_ff"), "{written}");
    binary("mt").arg("--config").arg(out.join("config.toml")).arg("--out").arg(&again).succeeds();
    let weights = |out: &Path| final_weights(&out.join("universal-act-wide-seed1"));
    assert_eq!(weights(&out), weights(&again));
}

#[test]
fn a_memory_survives_the_end_of_the_process() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    let long =
        ["--model", "transformer-xl", "--steps", "300", "--set", "training.evaluate_every=300", "--set", "training.checkpoint_every=5"];
    language(data.path(), &whole, &long).succeeds();
    let mut child = language(data.path(), &killed, &long).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let latest = killed.join("transformer-xl-seed1/checkpoint/latest");
    wait_until(&mut child, || latest.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!killed.join("results.json").exists(), "the run was killed before its end");
    language(data.path(), &killed, &long).arg("--resume").succeeds();
    let weights = |out: &Path| final_weights(&out.join("transformer-xl-seed1"));
    assert_eq!(weights(&whole), weights(&killed));
}

/// Settings of exercises that are learnt in no time, if at all.
const EXERCISES: [&str; 6] = [
    "--set",
    "model={layers = 2, d_model = 16, heads = 2, d_ff = 32, max_length = 64}",
    "--set",
    "training={steps = 4, evaluate_every = 4, checkpoint_every = 4, log_every = 1}",
    "--set",
    "data={length = 6, longer = 12, generated_examples = 300, generated_test = 20}",
];

#[test]
fn exercises_are_compared_in_tables_of_their_own() {
    let (_folder, [out]) = places(["run"]);
    let mut command = binary("algorithmic");
    let output = command.args(EXERCISES).args(["--task", "reverse,addition,list-ops"]).arg("--out").arg(&out).succeeds();
    let table = stdout(&output);
    for part in ["built-in reverse", "built-in addition", "built-in list-ops", "universal-act", "longer: sequences", "steps"] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    let map = fs::read_to_string(out.join("built-in%20reverse/universal-act-seed1/halting.txt")).unwrap();
    let mut lines = map.lines();
    let (words, steps) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(words.contains('=') && words.split_whitespace().count() == steps.split_whitespace().count(), "{map}");
    assert!(steps.split_whitespace().all(|steps| (1..=2).contains(&steps.parse::<u32>().unwrap())), "{map}");
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("`halting.txt` of the run shows them"), "{report}");
}

#[test]
fn lsh_attention_is_tested_with_other_numbers_of_rounds() {
    let out = tempfile::tempdir().unwrap();
    let mut command = binary("algorithmic");
    command.args(EXERCISES).args(["--task", "duplication", "--model", "transformer,lsh-full,lsh-2", "--set", "data.length=20"]);
    let output = command.arg("--out").arg(out.path().join("run")).succeeds();
    let records = records(&out.path().join("run"));
    let of = |index: usize, name: &str| records[index]["metrics"][name].as_f64();
    assert_eq!(of(0, "token accuracy with 4 rounds"), None);
    assert_eq!(of(1, "token accuracy"), of(1, "token accuracy with full attention"));
    assert_eq!(of(2, "token accuracy"), of(2, "token accuracy with 2 rounds"));
    assert!([1, 2, 4, 8].iter().all(|rounds| of(1, &format!("token accuracy with {rounds} rounds")).is_some()));
    assert!(stdout(&output).contains("LSH-8"), "{}", stdout(&output));
}

#[test]
fn stories_and_lists_are_read_from_files() {
    let (data, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let story = "1 Mary went home.\n2 John slept.\n3 Where is Mary? \thome\t1\n";
    fs::write(data.path().join("qa1_facts_train.txt"), story.repeat(40)).unwrap();
    fs::write(data.path().join("qa1_facts_test.txt"), story).unwrap();
    fs::write(data.path().join("test_d20s.tsv"), "9\t( ( ( [MAX 9 ) 1 ) ] )\n").unwrap();
    let mut command = binary("algorithmic");
    command.args(EXERCISES).args(["--task", "babi-1,list-ops", "--model", "transformer"]).arg("--data").arg(data.path());
    let output = command.arg("--out").arg(out.path().join("run")).succeeds();
    assert!(stdout(&output).contains("babi-1") && stdout(&output).contains("list-ops"), "{}", stdout(&output));

    let refuse = |arguments: &[&str], code: i32, parts: &[&str]| {
        binary("algorithmic").args(&EXERCISES[..4]).args(arguments).arg("--out").arg(out.path().join("refused")).refuses(code, parts);
    };
    let folder = data.path().to_str().unwrap();
    refuse(&["--task", "babi-2", "--data", folder], 1, &["qa2_", "train"]);
    refuse(&["--task", "babi-1"], 2, &["babi-1", "--data"]);
    refuse(&["--task", "copy", "--data", folder], 2, &["copy", "leave --data out"]);
    refuse(&["--set", "data.tasks=[\"sort\"]"], 2, &["data.tasks", "sort", "babi-N"]);
    refuse(&["--set", "model.max_length=3"], 2, &["max_length"]);
    let output = binary("algorithmic").args(["--task", "sort"]).output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("duplication"), "{}", stderr(&output));
}

#[test]
fn activations_may_have_16_bits_where_the_backend_has_them() {
    let data = text_folder();
    for precision in ["f16", "bf16"] {
        let (folder, [out]) = places(["run"]);
        let setting = format!("training.precision={precision}");
        let scaling: &[&str] = if precision == "f16" { &["--set", "training.loss_scaling.initial=1e9"] } else { &[] };
        let further = [&["--model", "transformer,reformer", "--steps", "4", "--set", &setting], scaling].concat();
        language(data.path(), &out, &[&further[..], &CHUNK].concat()).succeeds();
        assert!(records(&out).iter().all(|record| record["metrics"]["perplexity"].as_f64().unwrap() < 100.0));
        let state = fs::read_to_string(crate::command::latest_checkpoint(&out.join("transformer-seed1")).join("state.json")).unwrap();
        let scale = serde_json::from_str::<Value>(&state).unwrap()["state"]["loss_scale"]["scale"].as_f64();
        // Of gradients times a thousand million some exceed 16 bits: the scale has gone down.
        assert!(if precision == "f16" { scale.unwrap() < 1e9 } else { scale.is_none() }, "{state}");
        let refuse = ["--set", &setting, "--backend", "ndarray", "--model", "transformer"];
        language(data.path(), &folder.path().join("refused"), &refuse).refuses(2, &["training.precision", "ndarray", "f32"]);
    }
}
