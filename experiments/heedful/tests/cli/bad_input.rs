//! Bad input gets one message that names file, line, field and remedy: exit code 2 for usage, 1 for failure.

use std::fs;

use crate::command::{Run, TINY, binary, parallel_folder, refused, text_folder, translate};

fn out() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_missing_folder_and_a_missing_file_are_named() {
    let out = out();
    let missing = out.path().join("nowhere");
    translate(&missing, &out.path().join("run"), &[]).refuses(1, &["nowhere"]);
    assert!(!out.path().join("run").exists(), "nothing is left behind");

    let data = parallel_folder();
    fs::remove_file(data.path().join("train.de")).unwrap();
    translate(data.path(), &out.path().join("run"), &[]).refuses(1, &["train", "de"]);
}

#[test]
fn a_language_that_is_not_there_is_refused_with_those_that_are() {
    let (data, out) = (parallel_folder(), out());
    translate(data.path(), &out.path().join("run"), &["--target", "fr"]).refuses(1, &["fr", "de", "en"]);
}

#[test]
fn files_of_different_length_are_named_with_their_lines() {
    let (data, out) = (parallel_folder(), out());
    let path = data.path().join("train.de");
    fs::write(&path, fs::read_to_string(&path).unwrap() + "fünf\n").unwrap();
    translate(data.path(), &out.path().join("run"), &[]).refuses(1, &["train.en", "train.de", "60", "61"]);
}

#[test]
fn invalid_utf_8_is_refused_with_file_and_line() {
    let (data, out) = (parallel_folder(), out());
    fs::write(data.path().join("val.en"), b"one\ntwo \xff two\nthree\n").unwrap();
    translate(data.path(), &out.path().join("run"), &[]).refuses(1, &["val.en", "line 2", "UTF-8"]);
}

#[test]
fn a_malformed_row_is_refused_with_file_line_and_field() {
    let (data, out) = (out(), out());
    let folder = data.path().join("RTE");
    fs::create_dir(&folder).unwrap();
    let header = "index\tsentence1\tsentence2\tlabel\n";
    fs::write(folder.join("train.tsv"), format!("{header}0\ta b\tb a\tentailment\n1\ta\tb\tperhaps\n")).unwrap();
    fs::write(folder.join("dev.tsv"), format!("{header}0\ta b\tb a\tentailment\n")).unwrap();
    let run = || {
        let mut command = binary("glue");
        command.args(TINY).args(["--task", "RTE"]).arg("--data").arg(data.path()).arg("--out").arg(out.path().join("run"));
        command.output().unwrap()
    };
    refused(&run(), 1, &["train.tsv", "line 3", "label", "perhaps"]);
    fs::write(folder.join("train.tsv"), format!("{header}0\ta b\tb a\n")).unwrap();
    refused(&run(), 1, &["train.tsv", "line 2"]);
}

#[test]
fn an_unknown_option_is_a_usage_error() {
    let output = binary("mt").arg("--atention").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(crate::command::stderr(&output).contains("--attention"), "the nearest option is suggested");
}

#[test]
fn an_unknown_mechanism_field_backend_or_task_is_refused_with_the_nearest_name() {
    let (data, folder) = (parallel_folder(), out());
    let path = folder.path().join("run");
    let refuse = |further: &[&str], parts: &[&str]| translate(data.path(), &path, further).refuses(2, parts);
    refuse(&["--attention", "sythesizer-random"], &["sythesizer-random", "did you mean `synthesizer-random`"]);
    refuse(&["--attention", "gaussien"], &["did you mean `gaussian`"]);
    refuse(&["--attention", "random+dotproduct"], &["dotproduct", "did you mean `dot-product`"]);
    refuse(&["--set", "model.d_modle=32"], &["d_modle", "d_model"]);
    refuse(&["--set", "mechanisms.gaussian.execution=bandet"], &["mechanisms.gaussian.execution", "did you mean `banded`"]);
    refuse(
        &["--attention", "dot-product", "--set", "mechanisms.gaussian.window=3"],
        &["mechanisms.gaussian.window", "would change no model"],
    );
    refuse(&["--set", "mechanisms.gaussian.window=wide"], &["mechanisms.gaussian.window", "whole number"]);
    refuse(&["--set", "mechanisms.gausian.window=3"], &["unknown field `gausian` in `mechanisms`", "did you mean `gaussian`"]);
    refuse(&["--set", "mechanisms.gaussian.widow=3"], &["unknown field `widow` in `mechanisms.gaussian`", "did you mean `window`"]);
    refuse(&["--backend", "flax"], &["flax", "flex"]);
    let output = binary("glue").args(["--task", "CoLAA"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!path.exists(), "nothing is left behind");
}

#[cfg(feature = "wgpu")]
#[test]
fn a_machine_without_the_adapter_is_told_what_to_install() {
    let (data, folder) = (parallel_folder(), out());
    let path = folder.path().join("run");
    let mut command = translate(data.path(), &path, &["--backend", "wgpu"]);
    // No machine has so many.
    let output = command.env("CUBECL_WGPU_DEFAULT_DEVICE", "DiscreteGpu(4096)").output().unwrap();
    refused(&output, 2, &["--backend wgpu: no device can be opened", "Discrete GPU", "install a Vulkan driver"]);
    assert!(!path.exists(), "nothing is left behind");
}

#[test]
fn a_configuration_file_is_refused_with_file_line_and_field() {
    let (data, folder) = (parallel_folder(), out());
    let config = folder.path().join("mine.toml");
    fs::write(&config, "[training]\nsteps = 10\nlerning_rate = 1e-3\n").unwrap();
    let mut command = translate(data.path(), &folder.path().join("run"), &[]);
    command.arg("--config").arg(&config).refuses(2, &["mine.toml:3", "lerning_rate", "learning_rate"]);
}

#[test]
fn an_impossible_combination_is_refused_before_anything_is_read() {
    let (data, folder) = (parallel_folder(), out());
    let refuse = |further: &[&str], parts: &[&str]| {
        translate(data.path(), &folder.path().join("run"), further).refuses(2, parts);
    };
    refuse(&["--set", "model.heads=3"], &["heads", "3", "d_model"]);
    refuse(&["--set", "model.dropout=1.5"], &["dropout", "1.5"]);
    refuse(&["--set", "training.learning_rate=-1"], &["learning_rate"]);
    refuse(
        &["--attention", "synthesizer-factorized-dense", "--set", "mechanisms.synthesizer-factorized-dense.factors=[2, 3]"],
        &["factors", "32"],
    );
    refuse(&["--attention", "linformer"], &["linformer cannot be causal", "encoders"]);
    refuse(&["--attention", "sparse-strided", "--set", "mechanisms.sparse-strided.stride=0"], &["`stride` is 0", "at least 1"]);
    refuse(&["--attention", "sparse-fixed", "--set", "mechanisms.sparse-fixed.summary=200"], &["`summary` is 200", "the stride 5"]);
    refuse(&["--attention", "lsh", "--set", "mechanisms.lsh.buckets=5"], &["`buckets` is [5]", "even"]);
    refuse(&["--attention", "dot-product+local-1d"], &["`members` is local-1d", "have logits"]);
    refuse(&["--attention", "random@dot-product"], &["@dot-product", "@local-1d"]);
}

#[test]
fn a_sentence_over_the_maximal_length_is_refused_with_its_place() {
    let (data, out) = (parallel_folder(), out());
    let long = "one ".repeat(40);
    let path = data.path().join("test_numbers.en");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\n", &format!("\n{long}\n"), 1)).unwrap();
    let target = data.path().join("test_numbers.de");
    fs::write(&target, fs::read_to_string(&target).unwrap() + "eins\n").unwrap();
    let output = translate(data.path(), &out.path().join("run"), &[]).output().unwrap();
    refused(&output, 2, &["test_numbers", "sentence 2", "40", "model.max_length = 32", "--set model.max_length=64"]);
}

#[test]
fn a_context_over_the_maximal_length_is_refused() {
    let (data, out) = (text_folder(), out());
    let mut command = binary("lm");
    command.args(TINY).args(["--set", "data.context=33"]).arg("--data").arg(data.path()).arg("--out").arg(out.path().join("run"));
    command.refuses(2, &["data.context", "33", "32", "model.max_length"]);
}

#[test]
fn padding_is_left_out_only_where_models_are_told_of_some() {
    let out = out();
    for experiment in ["lm", "mlm", "image", "memory-rl", "recall"] {
        let output = binary(experiment).args(["--set", "model.unpadded=true", "--out"]).arg(out.path().join("run")).output().unwrap();
        refused(&output, 2, &["--set model.unpadded=true", "`model.unpadded`", "has padding", "leave it out"]);
    }
}
