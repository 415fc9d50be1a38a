//! Bad input gets one message that names the file and the remedy: exit code 2 for the command, 1 for folders and files.

use std::fs;

use crate::folder::{compare, record, results, stderr};

#[track_caller]
fn refused(folder: &std::path::Path, arguments: &[&str], code: i32, parts: &[&str]) {
    let output = compare(folder, arguments);
    let errors = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert_eq!(errors.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{errors}");
    for part in parts {
        assert!(errors.contains(part), "`{part}` is missing in: {errors}");
    }
    assert!(output.stdout.is_empty() && !errors.contains("panicked"), "{errors}");
}

#[test]
fn what_is_no_run_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("empty")).unwrap();
    fs::write(path.join("file"), "").unwrap();
    refused(path, &["nowhere"], 1, &["nowhere", "not a folder", "--out"]);
    refused(path, &["file"], 1, &["file", "not a folder"]);
    refused(path, &["empty"], 1, &["empty", "no results.json"]);
    refused(path, &[], 2, &["<RUN>"]);
}

#[test]
fn damaged_files_are_named_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    results(&path.join("good"), &[record("dense", 1, 1.0)]);
    results(&path.join("bad"), &[]);
    refused(path, &["good", "bad"], 1, &["bad/results.json", "no finished run"]);
    fs::write(path.join("bad/results.json"), "[\n{\"experiment\": \"mt\",\n").unwrap();
    refused(path, &["good", "bad"], 1, &["bad/results.json:3", "leave the folder out"]);
    fs::create_dir(path.join("good/dense-seed1")).unwrap();
    fs::write(path.join("good/dense-seed1/log.jsonl"), "{\"step\": 1, \"loss\": 2.0}\nnonsense\n").unwrap();
    refused(path, &["good", "--out", "out"], 1, &["good/dense-seed1/log.jsonl:2", "delete the log"]);
    assert!(compare(path, &["good"]).status.success(), "without --out no curve is drawn");
}

#[test]
fn names_and_numbers_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    results(&path.join("a"), &[record("dot-product", 1, 1.0)]);
    refused(path, &["a", "--metric", "BLUE"], 2, &["BLUE", "did you mean `BLEU`?"]);
    refused(path, &["a", "--baseline", "dot-prodcut"], 2, &["dot-prodcut", "did you mean `dot-product`?"]);
    refused(path, &["a", "--test", "welsh"], 2, &["welsh", "welch"]);
    refused(path, &["a", "--confidence", "95"], 2, &["--confidence", "less than 1"]);
    refused(path, &["a", "--resamples", "0"], 2, &["--resamples"]);
}

#[test]
fn an_output_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    results(&folder.path().join("a"), &[record("dot-product", 1, 1.0)]);
    fs::write(folder.path().join("file"), "").unwrap();
    refused(folder.path(), &["a", "--out", "file/out"], 1, &["file/out"]);
}
