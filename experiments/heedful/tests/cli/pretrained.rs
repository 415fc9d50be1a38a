//! Scoring and fine-tuning pretrained models: `lm --pretrained`, `mlm --pretrained`, `mt --pretrained`, `classify --images --pretrained`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use heedful_models::prelude::*;
use heedful_models::pretrained::Pretrained;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::command::{Run, binary, final_weights, places, refused, stdout, succeeded};

const LETTERS: &str = "\n acdeghnorst0123456789";
/// Short enough for one window.
const TEST: &str = "the cat 1";

/// The folder of a small model that transformers wrote.
pub fn copied(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tests/fixtures/pretrained").join(name);
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

/// The same with a tokeniser whose tokens are letters.
pub fn folder(name: &str) -> TempDir {
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

pub fn texts() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lines = |count: usize| (0..count).map(|n| format!("the {n} cat sees a {} dog\n", 7 * n)).collect::<String>();
    for (split, text) in [("train", lines(40)), ("valid", lines(2)), ("test", format!("{TEST}\n"))] {
        fs::write(folder.path().join(format!("small.{split}.txt")), text).unwrap();
    }
    folder
}

/// Four steps of an experiment that begins with a pretrained model.
fn short(program: &str, pretrained: &Path, data: &Path, out: &Path) -> Command {
    let mut command = binary(program);
    command.arg("--pretrained").arg(pretrained).arg("--data").arg(data).arg("--out").arg(out).args(["--steps", "4"]);
    command.args(["--set", "training={learning_rate = 5e-2, evaluate_every = 2, checkpoint_every = 2}"]);
    command
}

fn lm(pretrained: &Path, data: &Path, out: &Path) -> Command {
    let mut command = short("lm", pretrained, data, out);
    command.args(["--set", "data={context = 12, stride = 6, batch = 2}"]);
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

fn says_where_it_began(out: &Path) {
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("began with the weights of") && report.contains(".safetensors has the SHA-256"), "{report}");
}

/// What a run that says where it began, and what the pretrained weights score, has recorded.
fn scored(command: &mut Command, out: &Path) -> Value {
    let output = command.succeeds();
    assert!(stdout(&output).contains("before"), "{}", stdout(&output));
    says_where_it_began(out);
    metrics(out)
}

/// Asserts that the written configuration repeats a run.
fn is_repeated(program: &[&str], first: &Path, scores: &[&str]) {
    let second = first.with_file_name("second");
    binary(program[0]).args(&program[1..]).arg("--config").arg(first.join("config.toml")).arg("--out").arg(&second).succeeds();
    for score in scores {
        assert_eq!(metrics(&second)[score], metrics(first)[score], "{}: {score}", first.display());
    }
    assert_eq!(final_weights(&run_of(&second)), final_weights(&run_of(first)), "{}", first.display());
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
        let found = scored(&mut lm(folder.path(), data.path(), &first), &first);
        let before = found["perplexity before"].as_f64().unwrap();
        assert!((before / perplexity(folder.path()) - 1.0).abs() < 1e-4, "{name}: {before} and {}", perplexity(folder.path()));
        assert!(found["perplexity"].as_f64().unwrap() < 0.9 * before, "{name}: {found}");
        is_repeated(&["lm"], &first, &["perplexity"]);
    }
}

/// A masked language model that transformers wrote, with a tokeniser whose tokens are these and words.
fn masked(name: &str, special: &[&str]) -> TempDir {
    let folder = copied(name);
    let vocabulary: Map<String, Value> =
        special.iter().chain(&["the", "cat", "sees", "a", "dog"]).enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
    let unknown = if name.starts_with("bert") { "[UNK]" } else { "<unk>" };
    let tokeniser = json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
    });
    fs::write(folder.path().join("tokenizer.json"), tokeniser.to_string()).unwrap();
    folder
}

const MASKED: [(&str, &[&str]); 2] =
    [("bert-masked", &["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]), ("roberta-masked", &["<s>", "<pad>", "</s>", "<unk>", "<mask>"])];

fn mlm(pretrained: &Path, data: &Path, out: &Path) -> Command {
    let mut command = short("mlm", pretrained, data, out);
    // All tokens are hidden, so that what is scored is not drawn.
    command.args(["--set", "data={context = 8, batch = 2}", "--set", "masking={probability = 1.0, masked = 1.0, random = 0.0}"]);
    command
}

/// Nats for each token of the text that is no special one, in sequences of six between the tokens of class and separator, all of which are hidden.
fn masked_nats(folder: &Path, text: &[i32], [classify, separate, mask]: [i32; 3], ordinary: impl Fn(i32) -> bool) -> f64 {
    let device = Device::flex();
    let model = Pretrained::open(folder).unwrap().with_masked_head().unwrap().classifier(&device).unwrap();
    let (mut nats, mut count) = (0.0, 0);
    for piece in text.chunks_exact(6) {
        let hidden: Vec<i32> = piece.iter().map(|&token| if ordinary(token) { mask } else { token }).collect();
        let tokens = [&[classify][..], &hidden, &[separate]].concat();
        let tokens: Tensor<2, Int> = Tensor::<1, Int>::from_data(&tokens[..], &device).unsqueeze();
        let sentences = Sentences { segments: Some(tokens.zeros_like()), tokens, lengths: &[8] };
        let logits = read(model.masked_logits(model.hidden(sentences, None, &mut Probe::off()).states));
        let logits: Vec<f64> = logits.iter::<f64>().collect();
        for (place, &token) in piece.iter().enumerate().filter(|(_, token)| ordinary(**token)) {
            let row = &logits[67 * (place + 1)..67 * (place + 2)];
            nats += row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[token as usize];
            count += 1;
        }
    }
    nats / f64::from(count)
}

#[test]
fn pretrained_masked_language_models_are_scored_and_trained_on() {
    let data = texts();
    // Lines of five words that the tokeniser knows, and of numbers that it does not.
    fs::write(data.path().join("small.test.txt"), "the cat sees a dog\na dog sees the 7 cat\nthe the\n").unwrap();
    for (name, special) in MASKED {
        let (folder, out) = (masked(name, special), tempfile::tempdir().unwrap());
        let first = out.path().join("first");
        let found = scored(&mut mlm(folder.path(), data.path(), &first), &first);
        let (before, after) = (found["log perplexity before"].as_f64().unwrap(), found["log perplexity"].as_f64().unwrap());
        let (words, unknown) = (
            [5, 6, 7, 8, 9, 8, 9, 7, 5, -1, 6, 5, 5],
            special.iter().position(|token| token.to_lowercase().contains("unk")).unwrap() as i32,
        );
        let text = words.map(|word| if word < 0 { unknown } else { word });
        let ids = if name == "bert-masked" { [2, 3, 4] } else { [0, 2, 4] };
        let expected = masked_nats(folder.path(), &text, ids, |token| token >= 5);
        assert!((before / expected - 1.0).abs() < 1e-4, "{name}: {before} and {expected}");
        assert!(after < before - 0.05, "{name}: {found}");
        is_repeated(&["mlm"], &first, &["log perplexity"]);
    }
}

#[test]
fn a_pre_training_that_began_with_a_pretrained_model_is_fine_tuned() {
    let (data, out) = (texts(), tempfile::tempdir().unwrap());
    fs::write(data.path().join("small.test.txt"), "the cat sees a dog\na dog sees the 7 cat\nthe the\n").unwrap();
    for (name, special) in MASKED {
        let (folder, run, tuned) = (masked(name, special), out.path().join(name), out.path().join(format!("{name}-tuned")));
        mlm(folder.path(), data.path(), &run).succeeds();
        let glue = |out: &Path| {
            let mut command = binary("glue");
            command.arg("--init").arg(&run).arg("--out").arg(out).args(["--task", "MRPC", "--steps", "2", "--quiet"]);
            command.args(["--set", "data.generated_examples=8", "--set", "training={evaluate_every = 2, checkpoint_every = 2}"]);
            command
        };
        glue(&tuned).succeeds();
        let config = fs::read_to_string(tuned.join("config.toml")).unwrap();
        assert!(config.contains("kind = \"pretrained\"") && config.contains("d_model = 16"), "{config}");
        let [own, theirs] = [tuned.join("tokenizer.json"), folder.path().join("tokenizer.json")].map(|path| {
            let tokeniser: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
            tokeniser["model"]["vocab"].clone()
        });
        assert_eq!(own, theirs, "{name}");
        // The written configuration repeats the run.
        let again = out.path().join(format!("{name}-again"));
        binary("glue").arg("--config").arg(tuned.join("config.toml")).args(["--quiet", "--out"]).arg(&again).succeeds();
        let [first, second] = [&tuned, &again].map(|out| final_weights(&out.join("dot-product-seed1")));
        assert!(first == second, "{name}");

        let refuse = |further: &[&str], parts: &[&str]| {
            glue(&out.path().join("refused")).args(further).refuses(2, parts);
        };
        refuse(&["--set", "tokeniser={kind='word'}"], &["tokeniser", "leave it out"]);
        refuse(&["--set", "model.d_model=32"], &["model.d_model", "for 16; leave it out"]);
        drop(folder);
        refuse(&[], &["--init", "began with the pretrained model of", "still needed", "config.json"]);
    }
}

#[test]
fn folders_that_are_no_masked_language_models_are_refused() {
    let (data, (_folder, [out])) = (texts(), places(["run"]));
    for split in ["valid", "test"] {
        fs::write(data.path().join(format!("small.{split}.txt")), "the cat sees a dog\n".repeat(10)).unwrap();
    }
    let (name, special) = MASKED[0];
    let folder = masked(name, special);
    let refuse = |folder: &Path, further: &[&str], parts: &[&str]| {
        mlm(folder, data.path(), &out).args(further).refuses(2, parts);
    };
    refuse(masked("bert", special).path(), &[], &["--pretrained", "cls.predictions", "BertForMaskedLM"]);
    refuse(self::folder("gpt2").path(), &[], &["--pretrained", "gpt2", "no masked language model"]);
    refuse(folder.path(), &["--attention", "relative"], &["run.attention", "leave --attention out"]);
    refuse(folder.path(), &["--set", "model.d_model=32"], &["model.d_model", "for 16; leave it out"]);
    refuse(folder.path(), &["--set", "data.context=13"], &["data.context", "max_length"]);
    refuse(folder.path(), &["--objective", "spans"], &["pretrained", "--objective tokens"]);
    refuse(masked(name, &special[..4]).path(), &[], &["--pretrained", "tokenizer.json", "no token [MASK]"]);
}

/// What a swap has recorded of a contender, and what became of its parameters.
fn swapped(out: &Path, contender: &str) -> (Value, Option<Value>) {
    let records: Value = serde_json::from_str(&fs::read_to_string(out.join("results.json")).unwrap()).unwrap();
    let record = records.as_array().unwrap().iter().find(|record| record["attention"] == contender).unwrap();
    let parameters = fs::read_to_string(out.join(contender.replace('=', "%3D") + "-seed1/swap.json"));
    (record["metrics"].clone(), parameters.ok().map(|text| serde_json::from_str(&text).unwrap()))
}

#[test]
fn the_attention_of_a_fine_tuned_pretrained_model_is_swapped() {
    let data = texts();
    // Of each layer: parameters of the attention with what its projections are, biases and norms of queries and keys, and those that linear attention keeps,
    // whose projections are 16 by 16. Keys and values of two heads of 8 have the shape of those of four heads of 4.
    for (name, before, kept) in [
        ("gemma2", 2 * 16 * 32 + 2 * 16 * 16, 2 * 16 * 16),
        ("gpt2", 4 * 16 * 16 + 4 * 16, 4 * 16 * 16),
        ("llama", 2 * 16 * 16 + 2 * 16 * 8 + 2 * 16 + 2 * 8, 2 * 16 * 16),
        ("mistral", 2 * 16 * 32 + 2 * 16 * 16, 2 * 16 * 16),
        ("qwen3", 2 * 16 * 32 + 2 * 16 * 16 + 2 * 8, 2 * 16 * 16),
    ] {
        let (folder, out) = (folder(name), tempfile::tempdir().unwrap());
        let [first, second, third] = ["first", "second", "third"].map(|run| out.path().join(run));
        lm(folder.path(), data.path(), &first).succeeds();
        let swap = |to: &Path, further: &[&str]| {
            let mut command = binary("swap");
            command
                .arg("--run")
                .arg(&first)
                .arg("--out")
                .arg(to)
                .args(["--set", "training={steps = 2, evaluate_every = 2, checkpoint_every = 2}"]);
            command.args(["--swap", "layers.*=linear-attention", "--swap", "layers.1=linear-attention"]).args(further).output().unwrap()
        };
        succeeded(&swap(&second, &[]));
        let of_run = &metrics(&first)["perplexity"];
        for (contender, layers) in [("unchanged", 0), ("linear-attention", 2), ("layers.1=linear-attention", 1)] {
            let (metrics, parameters) = swapped(&second, contender);
            assert_eq!(&metrics["perplexity before"], of_run, "{name}, {contender}");
            assert_eq!(metrics["perplexity after the swap"] == *of_run, layers == 0, "{name}, {contender}");
            let Some(parameters) = parameters else {
                assert_eq!(layers, 0, "{name}, {contender}");
                continue;
            };
            let counted = |list: &str| -> u64 {
                let size = |one: &Value| one["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).product::<u64>();
                parameters[list].as_array().unwrap().iter().map(size).sum()
            };
            assert_eq!((counted("kept"), counted("kept") + counted("dropped")), (layers * kept, layers * before), "{name}, {contender}");
        }
        // The written configuration repeats the runs, with the tokeniser of the folder.
        binary("swap").arg("--config").arg(second.join("config.toml")).arg("--out").arg(&third).succeeds();
        let perplexity = |out: &Path| swapped(out, "linear-attention").0["perplexity"].clone();
        assert_eq!(perplexity(&third), perplexity(&second), "{name}");
        let refuse = |further: &[&str], parts: &[&str]| {
            let to = out.path().join("refused");
            refused(&swap(&to, further), 2, parts);
            assert!(!to.exists(), "{further:?}");
        };
        refuse(&["--set", "start.pretrained=elsewhere"], &["start.pretrained", "began with", "leave it out"]);
        refuse(&["--set", "tokeniser={kind='word'}"], &["tokeniser.kind", "leave it out"]);
        drop(folder);
        refuse(&[], &["--run", "began with the pretrained model of", "put it back"]);
    }
}

#[test]
fn folders_and_options_that_do_not_fit_are_refused() {
    let (data, out, gpt2) = (texts(), tempfile::tempdir().unwrap(), folder("gpt2"));
    let out = out.path().join("run");
    let refuse = |folder: &Path, further: &[&str], parts: &[&str]| {
        lm(folder, data.path(), &out).args(further).refuses(2, parts);
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
    // Without an unknown token, a word that it lacks is none of its own.
    let words = json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"the": 0, "cat": 1}, "unk_token": "<unk>"},
    });
    fs::write(without.path().join("tokenizer.json"), words.to_string()).unwrap();
    refuse(without.path(), &[], &["--pretrained", "tokenizer.json", "no token for \"0\"", "add one of them"]);

    let set = ["--set", "tokeniser={kind='pretrained'}"];
    binary("lm").args(set).arg("--out").arg(&out).refuses(2, &["tokeniser.kind", "--pretrained DIR"]);
    binary("mt").args(set).arg("--out").arg(&out).refuses(2, &["tokeniser.kind", "give --pretrained DIR"]);
}

/// Pairs of sentences for training, validation and test.
fn pairs() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (part, count) in [("train", 24), ("val", 2), ("test", 3)] {
        for (language, text) in [("en", "the cat"), ("de", "an hose"), ("nl", "de kat")] {
            fs::write(folder.path().join(format!("{part}.{language}")), (0..count).map(|n| format!("{text} {n}\n")).collect::<String>())
                .unwrap();
        }
    }
    folder
}

fn mt(pretrained: &Path, data: &Path, out: &Path) -> Command {
    let mut command = short("mt", pretrained, data, out);
    command.args(["--set", "data.batch_tokens=200", "--set", "decoding={beam=2, extra_length=2}", "--quiet"]);
    command
}

/// The perplexity of targets, from the logits of a T5: its decoder begins with the token of padding, sources and targets end with that of the end.
fn perplexity_of_pairs(folder: &Path, pairs: &[[String; 2]]) -> f64 {
    let device = Device::flex();
    let model = Pretrained::open(folder).unwrap().seq2seq(&device).unwrap();
    let id = |letter: char| LETTERS.chars().position(|known| known == letter).map_or(5, |place| place as i32 + 4);
    let (mut nats, mut count) = (0.0, 0);
    for pair in pairs {
        let [source, target] = pair.each_ref().map(|text| text.chars().map(id).chain([1]).collect::<Vec<i32>>());
        let given: Vec<i32> = std::iter::once(0).chain(target[..target.len() - 1].iter().copied()).collect();
        let [source, given] = [source, given].map(|tokens| Tensor::<1, Int>::from_data(&tokens[..], &device).unsqueeze());
        let logits: Vec<f64> = read(model.forward(source, given, &Mask::none())).iter::<f64>().collect();
        let rows = logits.chunks(logits.len() / target.len()).zip(&target);
        nats += rows.map(|(row, &token)| row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[token as usize]).sum::<f64>();
        count += target.len();
    }
    (nats / count as f64).exp()
}

#[test]
fn a_pretrained_t5_is_scored_and_fine_tuned() {
    let data = pairs();
    for name in ["t5", "t5-gated"] {
        let (folder, out) = (folder(name), tempfile::tempdir().unwrap());
        let first = out.path().join("first");
        let found = scored(&mut mt(folder.path(), data.path(), &first), &first);
        let [before, after] = ["valid perplexity before", "valid perplexity"].map(|metric| found[metric].as_f64().unwrap());
        let expected = perplexity_of_pairs(
            folder.path(),
            &[0, 1].map(|n| [format!("translate English to German: the cat {n}"), format!("an hose {n}")]),
        );
        assert!((before / expected - 1.0).abs() < 1e-4, "{name}: {before} and {expected}");
        assert!(after < 0.9 * before && found["BLEU before"].is_number() && found["BLEU"].is_number(), "{name}: {found}");
        let config = fs::read_to_string(first.join("config.toml")).unwrap();
        assert!(config.contains("prefix = \"translate English to German: \"") && config.contains("decoder_layers = 3"), "{config}");
        is_repeated(&["mt"], &first, &["BLEU", "BLEU before", "valid perplexity"]);
        // Without a prefix the model reads other sources.
        let plain = out.path().join("plain");
        mt(folder.path(), data.path(), &plain).args(["--set", "prefix=''", "--target", "nl"]).succeeds();
        assert_ne!(metrics(&plain)["valid perplexity before"], found["valid perplexity before"], "{name}");
    }
}

#[test]
fn a_pretrained_t5_summarises_what_it_can_read_of_a_document() {
    let (folder, data, out) = (folder("t5"), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (part, count) in [("train", 12), ("val", 2), ("test", 2)] {
        let write = |side: &str, text: &str| {
            let lines: String = (0..count).map(|n| format!("{n} {text}\n")).collect();
            fs::write(data.path().join(format!("{part}.{side}")), lines).unwrap();
        };
        write("source", "the cat sat on the dog and the hen");
        write("target", "cat on dog");
    }
    let mut command = short("textgen", folder.path(), data.path(), &out.path().join("run"));
    command.args(["--task", "summary", "--set", "model.max_length=32", "--set", "decoding={beam=2, extra_length=2}", "--quiet"]).succeeds();
    let found = metrics(&out.path().join("run"));
    // The last of 32 tokens is that of the end.
    let pairs = [0, 1].map(|n| {
        let source: String = format!("summarize: {n} the cat sat on the dog and the hen").chars().take(31).collect();
        [source, format!("{n} cat on dog")]
    });
    let [before, after] = ["valid perplexity before", "valid perplexity"].map(|metric| found[metric].as_f64().unwrap());
    let expected = perplexity_of_pairs(folder.path(), &pairs);
    assert!((before / expected - 1.0).abs() < 1e-4, "{before} and {expected}");
    assert!(after < 0.9 * before && found["score before"].is_number(), "{found}");
}

#[test]
fn encoder_decoders_and_options_that_do_not_fit_are_refused() {
    let (data, out, t5) = (pairs(), tempfile::tempdir().unwrap(), folder("t5"));
    let out = out.path().join("run");
    let refuse = |folder: &Path, further: &[&str], parts: &[&str]| {
        mt(folder, data.path(), &out).args(further).refuses(2, parts);
        assert!(!out.exists(), "{further:?}");
    };
    refuse(folder("bert").path(), &[], &["--pretrained", "bert", "no encoder-decoder"]);
    refuse(t5.path(), &["--target", "nl"], &["prefix", "en and nl", "prefix=''"]);
    refuse(t5.path(), &["--attention", "dot-product"], &["run.attention", "for t5-bias", "leave --attention out"]);
    refuse(t5.path(), &["--set", "model.decoder_layers=2"], &["model.decoder_layers", "for 3; leave it out"]);
    refuse(t5.path(), &["--set", "tying='none'"], &["tying", "leave it out"]);
    refuse(t5.path(), &["--set", "tokeniser={kind='word'}"], &["tokeniser.kind", "leave it out"]);
    let mut plain = binary("mt");
    plain.arg("--data").arg(data.path()).arg("--out").arg(&out).args(["--set", "prefix='translate: '"]);
    plain.refuses(2, &["prefix", "--pretrained DIR"]);
    let mut language = binary("lm");
    language.arg("--out").arg(&out).args(["--set", "model.decoder_layers=1"]);
    language.refuses(2, &["model.decoder_layers", "one stack"]);
}

/// The mean and the deviation of each channel.
const NORMALISATION: [[f32; 2]; 3] = [[0.5, 0.5], [0.4, 0.25], [0.3, 0.5]];

/// A Vision Transformer for five classes of images of 8 rows, 12 columns and 3 channels, and what it is given of an image.
fn vision() -> TempDir {
    let folder = copied("vit");
    let [mean, deviation] = [0, 1].map(|part| NORMALISATION.map(|channel| channel[part]));
    let preprocessor = json!({
        "do_normalize": true, "do_rescale": true, "do_resize": true, "image_mean": mean, "image_processor_type": "ViTImageProcessor",
        "image_std": deviation, "resample": 2, "rescale_factor": 1.0 / 255.0, "size": {"height": 8, "width": 12},
    });
    fs::write(folder.path().join("preprocessor_config.json"), preprocessor.to_string()).unwrap();
    folder
}

/// A value of a grey image: the brightness of rows says the class.
fn pixel(image: usize, row: usize, column: usize, classes: usize) -> u8 {
    (40 * ((image % classes + row) % 5) + 7 * (column % 3) + image % 11) as u8
}

/// Grey images of this size in the format of MNIST: 36 for training and validation, and 30 for the test.
fn images([rows, columns]: [usize; 2], classes: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let header = |numbers: &[usize]| numbers.iter().flat_map(|&number| (number as u32).to_be_bytes()).collect::<Vec<u8>>();
    for (part, count) in [("train", 36), ("t10k", 30)] {
        let values = (0..count * rows * columns).map(|at| {
            let (image, place) = (at / (rows * columns), at % (rows * columns));
            pixel(image, place / columns * 8 / rows, place % columns * 12 / columns, classes)
        });
        let images = [header(&[2051, count, rows, columns]), values.collect()].concat();
        fs::write(folder.path().join(format!("{part}-images-idx3-ubyte")), images).unwrap();
        let labels = [header(&[2049, count]), (0..count).map(|image| (image % classes) as u8).collect()].concat();
        fs::write(folder.path().join(format!("{part}-labels-idx1-ubyte")), labels).unwrap();
    }
    folder
}

fn classify(pretrained: &Path, data: &Path, out: &Path) -> Command {
    let mut command = binary("classify");
    command.arg("--images").arg("--pretrained").arg(pretrained).arg("--data").arg(data).arg("--out").arg(out);
    command.args(["--set", "data.batch=6", "--steps", "40", "--quiet"]);
    command.args(["--set", "training={learning_rate = 1e-2, evaluate_every = 20, checkpoint_every = 20}"]);
    command
}

/// The share of the test images whose class a Vision Transformer finds. Each of its channels is given the values of the grey image.
fn accuracy(folder: &Path) -> f64 {
    let device = Device::flex();
    let model = Pretrained::open(folder).unwrap().vision(&device).unwrap();
    let right = (0..30).filter(|&image| {
        let of_channel = |[mean, deviation]: [f32; 2]| {
            (0..96).map(move |at| (f32::from(pixel(image, at / 12, at % 12, 5)) / 255.0 - mean) / deviation).collect::<Vec<_>>()
        };
        let values = NORMALISATION.map(of_channel).concat();
        let logits = read(model.forward(Tensor::from_data(TensorData::new(values, [1, 3, 8, 12]), &device)));
        let logits: Vec<f64> = logits.iter::<f64>().collect();
        (0..5).all(|class| logits[class] <= logits[image % 5])
    });
    right.count() as f64 / 30.0
}

#[test]
fn a_pretrained_vision_transformer_is_scored_and_fine_tuned() {
    let (folder, data, out) = (vision(), images([8, 12], 5), tempfile::tempdir().unwrap());
    let first = out.path().join("first");
    let found = scored(&mut classify(folder.path(), data.path(), &first), &first);
    let [before, after] = ["accuracy before", "accuracy"].map(|metric| found[metric].as_f64().unwrap());
    assert_eq!(before, accuracy(folder.path()));
    assert!(after > before + 0.3, "{found}");
    is_repeated(&["classify", "--images"], &first, &["accuracy"]);
    // Larger images are made smaller, and other classes have a new output.
    let (larger, third) = (images([16, 24], 3), out.path().join("third"));
    classify(folder.path(), larger.path(), &third).args(["--set", "data.reductions.shrink=2"]).succeeds();
    let found = metrics(&third);
    assert!(found["accuracy"].as_f64().unwrap() > 0.6 && found.get("accuracy before").is_none(), "{found}");
    assert!(fs::read_to_string(third.join("report.md")).unwrap().contains("the output is a new one"));
}

#[test]
fn vision_transformers_and_images_that_do_not_fit_are_refused() {
    let (data, out, vit) = (images([8, 12], 5), tempfile::tempdir().unwrap(), vision());
    let out = out.path().join("run");
    let refuse = |folder: &Path, data: &TempDir, further: &[&str], parts: &[&str]| {
        classify(folder, data.path(), &out).args(further).refuses(2, parts);
        assert!(!out.exists(), "{further:?}");
    };
    refuse(folder("bert").path(), &data, &[], &["--pretrained", "bert", "no classifier of images"]);
    refuse(vit.path(), &images([16, 24], 5), &[], &["8 by 12 pixels", "16 by 24", "--set data.reductions.shrink=2"]);
    refuse(vit.path(), &images([10, 10], 5), &[], &["8 by 12 pixels", "10 by 10", "image_size is [10, 10]"]);
    refuse(vit.path(), &data, &["--attention", "uniform"], &["run.attention", "for dot-product", "leave --attention out"]);
    refuse(vit.path(), &data, &["--set", "patch=2"], &["patch", "leave it out"]);
    refuse(vit.path(), &data, &["--set", "model.d_model=32"], &["model.d_model", "for 16; leave it out"]);
    refuse(copied("vit").path(), &data, &[], &["preprocessor_config.json", "save_pretrained of the image processor"]);
    fs::write(vit.path().join("preprocessor_config.json"), json!({"image_mean": [0.5, 0.5]}).to_string()).unwrap();
    refuse(vit.path(), &data, &[], &["preprocessor_config.json", "image_mean", "3 channels"]);
    binary("classify").arg("--pretrained").arg(vit.path()).refuses(2, &["--pretrained", "--images"]);
}
