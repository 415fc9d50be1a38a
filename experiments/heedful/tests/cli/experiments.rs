//! The other experiments: pre-training and going on from it, texts, images, memory, and what is said of trained models.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::command::{Run, binary, final_weights, places, records, refused, small_model, stderr, stdout, succeeded, text_folder};

fn run(name: &str, out: &Path, further: &[&str]) -> Output {
    let training = "training={steps = 8, evaluate_every = 4, checkpoint_every = 2, log_every = 1}";
    binary(name).args(["--set", small_model(name), "--set", training]).arg("--out").arg(out).args(further).output().unwrap()
}

/// The only record of a run, all of whose scores are numbers.
fn record(output: &Output, out: &Path) -> Value {
    succeeded(output);
    let mut records = records(out);
    assert_eq!(records.len(), 1);
    let record = records.remove(0);
    for (name, value) in record["metrics"].as_object().unwrap() {
        assert!(value.as_f64().is_some_and(f64::is_finite), "{name} is {value}");
    }
    record
}

#[test]
fn an_encoder_is_pre_trained_and_fine_tuned() {
    let (data, (folder, [mlm, tuned, afresh])) = (text_folder(), places(["mlm", "tuned", "afresh"]));
    let text = data.path().to_str().unwrap();
    let output = run("mlm", &mlm, &["--data", text, "--attention", "dot-product", "--set", "data={context = 16, batch = 4}"]);
    let found = record(&output, &mlm);
    assert!(found["metrics"]["log perplexity"].as_f64().unwrap() > 0.0 && found["metrics"]["steps per second"].as_f64().unwrap() > 0.0);

    let glue = ["--task", "MRPC", "--attention", "dot-product", "--set", "data.generated_examples=50"];
    let init = mlm.to_str().unwrap();
    // The tokeniser of the pre-training may be named, which changes nothing.
    let output = run("glue", &tuned, &[&glue[..], &["--init", init, "--set", "tokeniser={kind='word', min-frequency=1}"]].concat());
    let notes = record(&output, &tuned)["notes"].to_string();
    assert!(notes.contains("began with the weights of") && notes.contains(init), "{notes}");
    record(&run("glue", &afresh, &glue), &afresh);
    // The vocabulary is that of the pre-training.
    assert_eq!(fs::read(mlm.join("tokenizer.json")).unwrap(), fs::read(tuned.join("tokenizer.json")).unwrap());
    assert_ne!(fs::read(mlm.join("tokenizer.json")).unwrap(), fs::read(afresh.join("tokenizer.json")).unwrap());

    let refuse = |further: &[&str], parts: &[&str]| {
        refused(&run("glue", &folder.path().join("refused"), &[&glue[..], further].concat()), 2, parts);
    };
    refuse(&["--init", "nowhere"], &["nowhere", "tokenizer.json"]);
    refuse(&["--init", init, "--attention", "gaussian"], &["gaussian", "pre-train"]);
    refuse(&["--init", init, "--set", "model.d_model=8"], &["model.safetensors", "model settings"]);
    refuse(&["--init", init, "--set", "tokeniser={kind='character'}"], &["tokeniser", "those of the pre-training, --init", "leave it out"]);
}

#[test]
fn spans_are_filled_in_and_tasks_mixed() {
    let (data, (_folder, [spans, tuned, mixed])) = (text_folder(), places(["spans", "tuned", "mixed"]));
    let text = data.path().to_str().unwrap();
    let further = ["--objective", "spans", "--data", text, "--attention", "synthesizer-random", "--set", "data={context = 16, batch = 4}"];
    assert_eq!(record(&run("mlm", &spans, &further), &spans)["experiment"], "mlm-spans");
    binary("analyse").arg(&spans).args(["--texts", "1", "--pictured", "1"]).succeeds();
    let weights = fs::read_to_string(spans.join("analysis/synthesizer-random-seed1/weights.csv")).unwrap();
    assert!(weights.contains("<extra_id_0>"), "no gap is shown: {weights}");
    let init = ["--init", spans.to_str().unwrap(), "--task", "MRPC", "--attention", "synthesizer-random"];
    let notes = record(&run("glue", &tuned, &[&init[..], &["--set", "data.generated_examples=50"]].concat()), &tuned)["notes"].to_string();
    assert!(notes.contains("began with the weights of"), "{notes}");
    let further = ["--mixture", "--task", "CoLA,MRPC", "--attention", "dot-product", "--set", "data.generated_examples=40"];
    let metrics = record(&run("glue", &mixed, &further), &mixed)["metrics"].clone();
    let mean = (metrics["CoLA/matthews"].as_f64().unwrap()
        + (metrics["MRPC/f1"].as_f64().unwrap() + metrics["MRPC/accuracy"].as_f64().unwrap()) / 2.0)
        / 2.0;
    assert!((metrics["average"].as_f64().unwrap() - mean).abs() < 1e-12, "{metrics}");
}

#[test]
fn texts_are_generated_classified_and_analysed() {
    let (folder, [textgen, classify]) = places(["textgen", "classify"]);
    let small = ["--attention", "dot-product", "--set", "data.generated_pairs=60", "--set", "decoding={beam = 1, extra_length = 2}"];
    let output = run("textgen", &textgen, &[&small[..], &["--set", "data.test=8"]].concat());
    succeeded(&output);
    let table = stdout(&output);
    assert!(["ROUGE-Lsum", "BLEU-4", "METEOR", "CIDEr"].iter().all(|metric| table.contains(metric)), "{table}");
    let found = records(&textgen);
    assert_eq!(found.len(), 2, "summaries and replies");
    for record in &found {
        assert!((0.0..=1.0).contains(&record["metrics"]["METEOR"].as_f64().unwrap()), "{record}");
        assert!(record["signatures"]["METEOR"].as_str().unwrap().contains("|stages:exact+stem|"), "{record}");
        assert_eq!(record["items"]["METEOR"]["combination"], "mean");
    }
    let replies = textgen.join("built-in%20dialogue/dot-product-seed1/hypotheses");
    let lines = |name: &str| fs::read_to_string(replies.join(name)).unwrap().lines().count();
    assert_eq!((lines("test.txt"), lines("test.reference.txt")), (8, 8));

    let analyse = |further: &[&str]| binary("analyse").arg(&textgen).args(further).output().unwrap();
    let reports = || ["report.md", "report.html"].map(|name| fs::read_to_string(textgen.join(name)).unwrap());
    let dialogue = ["--dataset", "built-in dialogue", "--texts", "2", "--pictured", "1"];
    let before = reports();
    let elsewhere = folder.path().join("elsewhere").to_string_lossy().into_owned();
    succeeded(&analyse(&[&dialogue[..], &["--out", &elsewhere]].concat()));
    assert!(reports() == before && !before[1].contains("data:image/svg"), "an analysis elsewhere is none of this folder");
    succeeded(&analyse(&dialogue));
    let [markdown, html] = reports();
    assert!(markdown == before[0] && html.contains("alt=\"dot-product-seed1: text0-decoder.layers.0.cross_attention\""), "{html}");
    let page = fs::read_to_string(textgen.join("analysis/dot-product-seed1/analyse.md")).unwrap();
    assert!(page.contains("decoder.layers.0.cross_attention") && page.contains("spans"), "{page}");
    refused(&analyse(&["--attention", "gaussian"]), 2, &["gaussian", "dot-product"]);
    binary("analyse").arg(folder.path()).refuses(2, &["results.json"]);

    let output = run("classify", &classify, &["--attention", "linformer", "--set", "data.generated_texts=60"]);
    assert!(record(&output, &classify)["metrics"]["accuracy"].as_f64().is_some());
}

#[test]
fn images_are_drawn_completed_and_sharpened() {
    let folder = tempfile::tempdir().unwrap();
    let small = ["--attention", "local-2d", "--set", "data={generated_images = 20, valid = 4, test = 4, batch = 4, samples = 2}"];
    let [drawn, sharpened] = ["drawn", "sharpened"].map(|name| folder.path().join(name));
    let found = record(&run("image", &drawn, &small), &drawn);
    assert!((0.5..8.0).contains(&found["metrics"]["bits per dimension"].as_f64().unwrap()), "{found}");
    let is_png = |path: &Path| assert!(fs::read(path).unwrap().starts_with(b"\x89PNG"), "{}", path.display());
    for name in ["samples.png", "completions.png"] {
        is_png(&drawn.join("local-2d-seed1").join(name));
    }
    binary("analyse").arg(&drawn).args(["--texts", "1", "--pictured", "1"]).succeeds();
    let maps = drawn.join("analysis/local-2d-seed1/maps");
    assert!(fs::read_dir(&maps).unwrap().count() > 0, "{}", maps.display());
    let pixels = |folder: &Path| -> Vec<String> {
        let names = fs::read_dir(folder.join("maps")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with("-pixel.svg")).collect()
    };
    let analysis = drawn.join("analysis/local-2d-seed1");
    assert_eq!(pixels(&analysis), ["text0-decoder.layers.0.self_attention-pixel.svg"]);
    assert!(analysis.join("row-distance.svg").is_file() && analysis.join("column-distance.svg").is_file());
    let distances = fs::read_to_string(analysis.join("image-distance.csv")).unwrap();
    assert!(distances.contains("trained,decoder.layers.0.self_attention,0,"), "{distances}");
    let other = folder.path().join("other");
    let analysed =
        |further: &[&str]| binary("analyse").arg(&drawn).args(["--texts", "1"]).args(further).arg("--out").arg(&other).output().unwrap();
    succeeded(&analysed(&["--pixel", "2,5", "--layers", "0"]));
    let picture = fs::read_to_string(other.join("maps").join(&pixels(&other)[0])).unwrap();
    assert!(picture.contains("Row 2, column 5"), "{picture}");
    refused(&analysed(&["--pixel", "12,0"]), 2, &["--pixel 12,0", "0 to 11"]);
    refused(&analysed(&["--layers", "3"]), 2, &["--layers 3", "are 0"]);
    refused(&analysed(&["--pixel", "middle"]), 2, &["--pixel", "row and column"]);
    binary("analyse").arg(&drawn).args(["--text", "0 1 9"]).refuses(2, &["144 values", "0 to 3"]);
    let further = [&small[..], &["--super-resolution"]].concat();
    assert_eq!(record(&run("image", &sharpened, &further), &sharpened)["experiment"], "image-super-resolution");
    is_png(&sharpened.join("local-2d-seed1/samples.png"));
    let html = fs::read_to_string(sharpened.join("report.html")).unwrap();
    assert!(html.contains("alt=\"local-2d-seed1: samples\""), "the page has no samples");
    binary("analyse").arg(&sharpened).args(["--texts", "2", "--pictured", "1"]).succeeds();
    let weights = fs::read_to_string(sharpened.join("analysis/local-2d-seed1/weights.csv")).unwrap();
    for module in ["encoder.layers.0.self_attention", "decoder.layers.0.self_attention", "decoder.layers.0.cross_attention"] {
        assert!(weights.contains(module), "{module} is missing");
    }
    let output = run("image", &folder.path().join("refused"), &[&small[..], &["--set", "mechanisms.local-2d.query_block=[5,4]"]].concat());
    refused(&output, 2, &["query_block", "12 rows"]);
    let block = ["--set", "model.positions={grid={rows = 12, columns = 12, block = [4, 4]}}"];
    let output = run("image", &folder.path().join("refused"), &[&small[..], &block].concat());
    refused(&output, 2, &["model.positions.grid.block", "local-2d", "leave it out"]);
}

#[test]
fn images_are_drawn_and_completed_given_their_class() {
    let folder = tempfile::tempdir().unwrap();
    let small = ["--attention", "local-1d", "--set", "data={generated_images = 20, valid = 4, test = 4, batch = 4, samples = 2}"];
    let told = [&small[..], &["--set", "conditions=class"]].concat();
    let [plain, of_classes] = ["plain", "classes"].map(|name| folder.path().join(name));
    let without = record(&run("image", &plain, &small), &plain);
    let with = record(&run("image", &of_classes, &told), &of_classes);
    let number = |record: &Value, field: &str| record[field].as_u64().unwrap();
    assert_eq!(number(&with, "parameters"), number(&without, "parameters") + 8 * 16, "a vector for each of 8 classes");
    let signature = |record: &Value| record["signatures"]["bits per dimension"].as_str().unwrap().to_owned();
    assert!(signature(&with).contains("given the class") && !signature(&without).contains("class"));
    assert!(with["notes"].to_string().contains("one class") && !without["notes"].to_string().contains("class"), "{with}");
    // Eight rows of two images of 12 by 12 values, enlarged four times.
    let size = |run: &Path| {
        let file = fs::read(run.join("local-1d-seed1/samples.png")).unwrap();
        [16, 20].map(|at| u32::from_be_bytes(file[at..at + 4].try_into().unwrap()))
    };
    assert_eq!((size(&of_classes), size(&plain)), ([4 + 2 * 52, 4 + 8 * 52], [4 + 2 * 52, 4 + 52]));
    binary("analyse").arg(&of_classes).args(["--texts", "1", "--pictured", "1"]).succeeds();
    let values = vec!["0"; 144].join(" ");
    let text = |text: &str| binary("analyse").arg(&of_classes).args(["--pictured", "0", "--text", text]).output().unwrap();
    succeeded(&text(&format!("7: {values}")));
    refused(&text(&format!("8: {values}")), 2, &["class from 0 to 7"]);
    refused(&text(&values), 2, &["class from 0 to 7"]);

    let sharpened = [&told[..], &["--super-resolution"]].concat();
    refused(&run("image", &folder.path().join("refused"), &sharpened), 2, &["conditions", "super-resolution"]);
    let output = run("image", &folder.path().join("refused"), &[&small[..], &["--set", "conditions=label"]].concat());
    refused(&output, 2, &["conditions", "class"]);
}

#[test]
fn images_are_classified_by_their_patches() {
    let folder = tempfile::tempdir().unwrap();
    let few = ["--images", "--set", "data={generated_images = 40, valid = 8, test = 8, batch = 8}"];
    let out = folder.path().join("run");
    let found = record(&run("classify", &out, &[&few[..], &["--attention", "synthesizer-random"]].concat()), &out);
    assert_eq!(found["experiment"], "classify-images");
    assert!(found["metrics"]["accuracy"].is_number() && found["signatures"]["accuracy"] == "8 test images", "{found}");
    binary("analyse").arg(&out).refuses(2, &["classify-images", "read no texts"]);
    let named = folder.path().join("named");
    let found = record(&run("classify", &named, &[&few[..], &["--model", "vit-b16-tiny"]].concat()), &named);
    assert_eq!(found["attention"], "vit-b16-tiny");
    let refuse = |further: &[&str], parts: &[&str]| {
        refused(&run("classify", &folder.path().join("refused"), &[&few[..], further].concat()), 2, parts);
    };
    refuse(&["--model", "vit-b16"], &["patch = 16", "12 by 12", "--set patch=N"]);
    refuse(&["--set", "data.samples=4"], &["data.samples", "leave it out"]);
    refuse(&["--set", "model.embedding_scale=none"], &["model.embedding_scale", "leave it out"]);
    refuse(&["--set", "model.positions={grid={rows=3, columns=3}}"], &["model.positions", "learned"]);
}

#[test]
fn coloured_images_are_drawn_pixel_by_pixel_from_mixtures() {
    let (folder, [out]) = places(["run"]);
    let small = ["--logistic-mixture", "--attention", "local-2d"];
    let few = ["--set", "data={generated_images = 20, valid = 4, test = 4, batch = 4, samples = 2}", "--set", "components=3"];
    let found = record(&run("image", &out, &[&small[..], &few].concat()), &out);
    assert_eq!(found["experiment"], "image-logistic-mixture");
    assert!(found["signatures"]["bits per dimension"].as_str().unwrap().starts_with("12x12x3, 256 values, mixtures of 3 logistics"));
    for name in ["samples.png", "completions.png"] {
        assert!(fs::read(out.join("local-2d-seed1").join(name)).unwrap().starts_with(b"\x89PNG"), "{name}");
    }
    binary("analyse").arg(&out).args(["--texts", "1", "--pictured", "1"]).succeeds();
    assert!(fs::read_to_string(out.join("analysis/local-2d-seed1/weights.csv")).unwrap().contains("decoder.layers.0.self_attention"));
    let refuse = |further: &[&str], parts: &[&str]| {
        let output = run("image", &folder.path().join("refused"), &[&small[..], &few, further].concat());
        refused(&output, 2, parts);
    };
    refuse(&["--set", "components=0"], &["components", "from 1 to 1000"]);
    refuse(&["--set", "tied=true"], &["tied"]);
    refuse(&["--super-resolution"], &["--super-resolution"]);
}

#[test]
fn images_are_sharpened_by_any_attention_in_each_part() {
    let folder = tempfile::tempdir().unwrap();
    let layout = "{encoder=linformer,decoder=[local-1d,dot-product],cross=uniform}";
    let small = ["--super-resolution", "--set", "data={generated_images = 20, valid = 4, test = 4, batch = 4, samples = 2}"];
    let out = folder.path().join("run");
    let further = [&small[..], &["--attention", layout, "--set", "mechanisms.linformer.rank=4", "--set", "model.layers=2"]].concat();
    let found = record(&run("image", &out, &further), &out);
    assert_eq!(found["attention"], layout);
    let page = |out: &Path| -> String {
        binary("analyse").arg(out).args(["--texts", "1", "--pictured", "1"]).succeeds();
        let analyses: Vec<_> = fs::read_dir(out.join("analysis")).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [analysis] = &analyses[..] else { panic!("one analysis: {analyses:?}") };
        fs::read_to_string(analysis.join("analyse.md")).unwrap()
    };
    let said = page(&out);
    for module in ["encoder.layers.1.self_attention", "decoder.layers.0.self_attention", "decoder.layers.1.self_attention"] {
        assert!(said.contains(module), "{module} is missing in\n{said}");
    }
    // The small image has rows of three values.
    let blocks = "{encoder={name=local-2d,query_block=[1,3],memory=[1,0]},decoder={name=local-2d,query_block=[4,4],memory=[4,4]}}";
    let out = folder.path().join("blocks");
    record(&run("image", &out, &[&small[..], &["--attention", blocks]].concat()), &out);
    let wrong = "{encoder={name=local-2d,query_block=[2,3],memory=[1,0]}}";
    let output = run("image", &folder.path().join("refused"), &[&small[..], &["--attention", wrong]].concat());
    refused(&output, 2, &["query_block = [2, 3]", "3 rows of 3 values"]);
    let output = run("image", &folder.path().join("refused"), &[&small[..], &["--attention", "{decoder=linformer}"]].concat());
    refused(&output, 2, &["linformer"]);
}

#[test]
fn spans_of_a_language_model_are_analysed_for_each_head_of_each_layer() {
    let (data, (_folder, [out])) = (text_folder(), places(["run"]));
    let text = ["--data", data.path().to_str().unwrap(), "--set", "data={context = 16, batch = 4, stride = 8}"];
    succeeded(&run("lm", &out, &[&text[..], &["--attention", "adaptive-span", "--set", "model.layers=2"]].concat()));
    binary("analyse").arg(&out).args(["--texts", "2", "--pictured", "0"]).succeeds();
    let analysis = out.join("analysis/adaptive-span-seed1");
    let spans = fs::read_to_string(analysis.join("spans.csv")).unwrap();
    for state in ["initial", "trained"] {
        for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let place = format!("{state},decoder.layers.{layer}.self_attention,{head},");
            assert_eq!(spans.lines().filter(|row| row.starts_with(&place)).count(), 1, "{place} in\n{spans}");
        }
    }
    assert!(analysis.join("spans.svg").is_file());
}

#[test]
fn mixtures_say_what_their_members_weigh_in_report_and_analysis() {
    let (data, (_folder, [out])) = (text_folder(), places(["run"]));
    let text = ["--data", data.path().to_str().unwrap(), "--set", "data={context = 16, batch = 4, stride = 8}"];
    let name = "synthesizer-random+dot-product";
    succeeded(&run("lm", &out, &[&text[..], &["--attention", name]].concat()));
    let notes = records(&out)[0]["notes"].to_string();
    assert!(notes.contains("decoder.layers.0.self_attention synthesizer-random 0."), "{notes}");
    for report in ["report.md", "report.html"] {
        let report = fs::read_to_string(out.join(report)).unwrap();
        assert!(report.contains("weights of the members of mixtures"), "{report}");
    }
    binary("analyse").arg(&out).args(["--texts", "1", "--pictured", "0"]).succeeds();
    let analysis = out.join(format!("analysis/{name}-seed1"));
    let weights = fs::read_to_string(analysis.join("mixtures.csv")).unwrap();
    assert!(weights.contains("initial,decoder.layers.0.self_attention,0,dot-product,0.5\n"), "{weights}");
    assert!(fs::read_to_string(analysis.join("analyse.md")).unwrap().contains("## Mixtures, after training"));
    binary("analyse").arg(&out).args(["--pixel", "0,0"]).refuses(2, &["--pixel", "no images"]);
}

#[test]
fn gates_of_an_agent_are_analysed_in_each_layer() {
    let (_folder, [out]) = places(["run"]);
    agent(&out).args(["--set", "model.layers=2"]).succeeds();
    binary("analyse").arg(&out).args(["--texts", "3", "--pictured", "1"]).succeeds();
    let analysis = out.join("analysis/gtrxl-seed1");
    let gates = fs::read_to_string(analysis.join("gates.csv")).unwrap();
    for layer in 0..2 {
        for part in ["self_attention", "feed_forward"] {
            let rows = gates.lines().filter(|row| row.contains(&format!("layers.{layer}.{part}")));
            assert_eq!(rows.count(), 2, "initial and trained {part} of layer {layer} in\n{gates}");
        }
    }
    assert!(analysis.join("gates.svg").is_file());
    binary("analyse").arg(&out).args(["--text", "north"]).refuses(2, &["north", "number"]);
}

/// Settings of an agent that learns for a moment.
const AGENT: [&str; 12] = [
    "--model",
    "gtrxl",
    "--set",
    "model={layers = 1, d_model = 16, heads = 2, d_ff = 16}",
    "--set",
    "data={copies = 4, unroll = 16, memory = 16, evaluation_episodes = 4, test_episodes = 4}",
    "--set",
    "training={steps = 16, evaluate_every = 8, checkpoint_every = 8, log_every = 4}",
    "--set",
    "ppo.parts=2",
    "--environment",
    "repeat-previous",
];

fn agent(out: &Path) -> Command {
    let mut command = binary("memory-rl");
    command.args(AGENT).arg("--out").arg(out);
    command
}

#[test]
fn agents_that_diverge_are_counted_where_hyper_parameters_are_drawn() {
    let (folder, [out]) = places(["run"]);
    let steep = ["--set", "search.learning_rate=[1e30,1e35]", "--seeds", "2", "--steps", "16", "--set", "training.max_gradient_norm=1e30"];
    let output = agent(&out).args(steep).succeeds();
    let diverged: Vec<_> = records(&out).iter().map(|record| record["metrics"]["diverged"].as_f64().unwrap()).collect();
    assert_eq!(diverged, [1.0, 1.0]);
    assert!(stdout(&output).contains("diverged"), "{}", stdout(&output));
    agent(&folder.path().join("other")).args(["--set", "search.learning_rate=[1e-4,1e-3]", "--seeds", "2", "--steps", "4"]).succeeds();
    let records = records(&folder.path().join("other"));
    assert_eq!(records[0]["configuration"], records[1]["configuration"], "one comparison");
    assert_ne!(records[0]["notes"], records[1]["notes"]);
}

#[test]
fn impossible_agents_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |further: &[&str], parts: &[&str]| agent(&folder.path().join("run")).args(further).refuses(2, parts);
    refuse(&["--set", "ppo.parts=3"], &["ppo.parts", "data.copies = 4"]);
    refuse(&["--set", "ppo.clip=0"], &["ppo.clip"]);
    refuse(&["--data", "."], &["run.data"]);
    refuse(&["--set", "data.environment.length=0"], &["length"]);
    let output = binary("memory-rl").args(["--environment", "chess"]).output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("t-maze"), "{}", stderr(&output));
}

/// A tensor of the weights that a run ended with.
fn final_tensor(run: &Path, name: &str) -> Vec<u8> {
    let weights = final_weights(run);
    safetensors::SafeTensors::deserialize(&weights).unwrap().tensor(name).unwrap().data().to_vec()
}

#[test]
fn each_seed_of_fine_tuning_begins_with_the_pre_training_of_its_own() {
    let (data, (folder, [mlm, own, one])) = (text_folder(), places(["mlm", "own", "one"]));
    let seeds = ["--attention", "dot-product", "--seed", "2", "--seeds", "2", "--set", "training.evaluate_every=8"];
    let text = ["--data", data.path().to_str().unwrap(), "--set", "data={context = 16, batch = 4}"];
    succeeded(&run("mlm", &mlm, &[&seeds[..], &text].concat()));
    // Weights that hardly move show what they were.
    let still = [
        "--set",
        "training.learning_rate=1e-30",
        "--set",
        "training.schedule.kind=constant",
        "--set",
        "data.generated_examples=50",
        "--task",
        "MRPC",
        "--init",
        mlm.to_str().unwrap(),
    ];
    let embedding = |folder: &Path, seed: u64| final_tensor(&folder.join(format!("dot-product-seed{seed}")), "embedding.tokens.weight");
    succeeded(&run("glue", &own, &[&seeds[..], &still].concat()));
    assert_ne!(embedding(&mlm, 2), embedding(&mlm, 3));
    for seed in [2, 3] {
        assert!(embedding(&own, seed) == embedding(&mlm, seed), "seed {seed} begins with other weights");
    }
    let notes = records(&own)[1]["notes"].to_string();
    assert!(notes.contains(", seed 3"), "{notes}");

    succeeded(&run("glue", &one, &[&seeds[..], &still, &["--init-seed", "3"]].concat()));
    for seed in [2, 3] {
        assert!(embedding(&one, seed) == embedding(&mlm, 3), "seed {seed} begins with other weights");
    }
    assert!(fs::read_to_string(one.join("config.toml")).unwrap().contains("init_seed = 3"));
    assert!(fs::read_to_string(one.join("report.md")).unwrap().contains("seed 3, as all seeds did"));

    let refuse = |further: &[&str], parts: &[&str]| {
        let refused_folder = folder.path().join("refused");
        refused(&run("glue", &refused_folder, &[&["--attention", "dot-product"], &still[..], further].concat()), 2, parts);
        assert!(!refused_folder.exists());
    };
    refuse(&["--seed", "3", "--seeds", "2"], &["dot-product and seed 4", "only with seed 2, 3", "--init-seed 2"]);
    refuse(&["--init-seed", "7"], &["seed 7", "only with seed 2, 3"]);
    refused(&run("glue", &folder.path().join("refused"), &["--set", "init_seed=2"]), 2, &["init_seed", "--init RUN"]);
    // A run that was stopped has a checkpoint and no record.
    fs::remove_file(mlm.join("dot-product-seed3/result.json")).unwrap();
    let finished: Vec<Value> = records(&mlm).into_iter().filter(|record| record["seed"] == 2).collect();
    fs::write(mlm.join("results.json"), serde_json::to_string(&finished).unwrap()).unwrap();
    refuse(&["--seed", "3"], &["seed 3", "only with seed 2"]);
}

#[test]
fn sequences_are_recalled_tracked_and_analysed() {
    let (folder, [recall, track]) = places(["recall", "track"]);
    let small = ["--attention", "dot-product", "--set", "model.layers=2", "--set", "data={batch = 4, train = 40, valid = 4, test = 4}"];
    let found = record(&run("recall", &recall, &small), &recall);
    for metric in ["token accuracy", "sequence accuracy", "class accuracy", "token accuracy, N=64, n=16", "state bytes"] {
        assert!(found["metrics"][metric].is_f64(), "{metric}: {found}");
    }
    assert_eq!((&found["dataset"], &found["metrics"]["learning rates tried"]), (&"mqar".into(), &4.0.into()));
    let notes = found["notes"].to_string();
    assert!(notes.contains("4 learning rates were tried") && notes.contains("0.03: "), "{notes}");
    let items = fs::read_to_string(recall.join("report.html")).unwrap();
    assert!(
        items.contains("tokens against bytes of state") && items.contains("MAD in-context recall"),
        "published numbers of dot-product attention stand beside"
    );
    assert!(items.contains("values of other models are left out") && !items.contains("RWKV-7"), "those of other mechanisms do not");
    binary("analyse").arg(&recall).args(["--texts", "1", "--pictured", "1"]).succeeds();
    binary("analyse").arg(&recall).args(["--text", "1 256"]).refuses(2, &["0 to 255"]);

    let words = ["--task", "words", "--set", "data.task={group = \"a5\", length = 8, shortest = 4, longer = [12]}"];
    let found = record(&run("track", &track, &[&small[..], &words].concat()), &track);
    assert_eq!((&found["dataset"], &found["experiment"]), (&"words a5".into(), &"track".into()));
    assert!(found["metrics"]["longer token accuracy"].is_f64(), "{found}");

    let refuse = |name: &str, further: &[&str], parts: &[&str]| {
        refused(&run(name, &folder.path().join("refused"), &[&small[..], further].concat()), 2, parts);
    };
    refuse("recall", &["--set", "data.task.segments=[[64,17]]"], &["data.task.segments", "17 pairs", "quarter"]);
    refuse("recall", &["--set", "data.task.kind=parity"], &["data.task.kind", "mqar"]);
    refuse("recall", &["--set", "training.learning_rate=1e-3"], &["training.learning_rate", "training.learning_rates=[RATE]"]);
    refuse("recall", &["--set", "training.learning_rates=[1e-3,0.0]"], &["training.learning_rates", "positive"]);
    refuse("recall", &["--set", "data.train=0"], &["data.train", "at least 1"]);
    refuse("recall", &["--set", "model.layers=1"], &["first_layer", "at least 2", "unset"]);
    refuse("recall", &["--attention", "[gla,gla,gla]"], &["list of 3", "divides 2"]);
    refuse("recall", &["--data", "."], &["run.data", "reads no files"]);
    refuse("track", &["--task", "words", "--set", "data.task.group=m11"], &["m11", "a4xz5"]);
    let output = binary("track").args(["--task", "mqar"]).output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("modular-arithmetic"), "{}", stderr(&output));
}

#[test]
fn recurrent_networks_ponder_and_say_how_long() {
    let folder = tempfile::tempdir().unwrap();
    let small = [
        "--set",
        "data={batch = 4, train = 40, valid = 4, test = 6}",
        "--set",
        "network={units = 8, limit = 5}",
        "--set",
        "training={steps = 4, evaluate_every = 4, checkpoint_every = 4, log_every = 1}",
    ];
    let command = |out: &Path, further: &[&str]| {
        let mut command = binary("ponder");
        command.args(small).args(further).arg("--out").arg(out);
        command.output().unwrap()
    };
    for task in ["parity", "logic", "addition", "sort"] {
        let out = folder.path().join(task);
        let output = command(&out, &["--task", task]);
        succeeded(&output);
        let found = records(&out);
        let metric = |index: usize, name: &str| found[index]["metrics"][name].as_f64().unwrap();
        assert_eq!((found[0]["attention"].as_str(), found[1]["attention"].as_str()), (Some("one-step"), Some("act")));
        assert_eq!((metric(0, "ponder steps"), found[0]["dataset"].as_str()), (1.0, Some(task)));
        assert!((1.0..=5.0).contains(&metric(1, "ponder steps")) && metric(1, "ponder cost") > metric(1, "ponder steps"), "{found:?}");
        assert!(stdout(&output).contains("sequences") && stdout(&output).contains("steps"), "{}", stdout(&output));
    }
    let refuse = |further: &[&str], parts: &[&str]| refused(&command(&folder.path().join("refused"), further), 2, parts);
    refuse(&["--attention", "relative"], &["run.attention", "--model"]);
    refuse(&["--set", "model.layers=3"], &["model", "network"]);
    refuse(&["--set", "data.task.size=0"], &["data.task.size", "from 1"]);
    refuse(&["--set", "network.halting.skip_in_training=true"], &["skip_in_training"]);
    refuse(&["--data", "."], &["run.data", "reads no files"]);
}

#[test]
fn a_folder_without_a_test_set_is_scored_on_its_development_set() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lines = |count: usize| (0..count).map(|n| format!("{}\ta {} text\n", n % 2, ["dull", "fine"][n % 2])).collect::<String>();
    fs::write(data.path().join("train.tsv"), lines(40)).unwrap();
    fs::write(data.path().join("dev.tsv"), lines(6)).unwrap();
    let out = folder.path().join("out");
    let arguments = ["--data", data.path().to_str().unwrap(), "--attention", "dot-product"];
    let found = record(&run("classify", &out, &arguments), &out);
    assert!(found["metrics"]["accuracy"].is_number());
    assert_eq!(found["signatures"]["accuracy"], "dev, 6 examples");
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("there is no test set: the development set chooses the checkpoint and is scored as well"), "{report}");
    let refusal = run("classify", &folder.path().join("refused"), &[&arguments[..], &["--set", "data.test=3"]].concat());
    refused(&refusal, 2, &["data.test = 3", "no test set", "leave it out"]);
}
