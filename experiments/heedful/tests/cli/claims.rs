//! The program `claims`: a ledger of one's own that is run, decided and shown; and the documents that are made of the recorded runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use heedful_experiments::tools::claims::{ClaimsReport, Ledger, Verdicts};

use crate::command::{Run, binary, places, stderr, stdout, succeeded};
use crate::documents::{book, root};
use crate::pretrained;

const BLOCK: &str = r#"
title = "words of a small language"
experiment = "lm"
seeds = 3
minutes = 0.1
order = 1

[config]
data = { context = 16, stride = 8, batch = 4, generated_words = 400 }
model = { layers = 1, d_model = 16, heads = 2, d_ff = 32, max_length = 16 }
training = { steps = 4, evaluate_every = 4, checkpoint_every = 4, log_every = 1 }
run = { attention = ["dot-product", "uniform"] }
"#;

const CLAIM: &str = r#"
sentence = "Four steps make no difference of a nat"
source = "nobody"
deviations = "none"
beware = "nothing"
published = [{ where = "nowhere", note = "No numbers." }]

[[test]]
kind = "no-loss"
name = "dot product against uniform"
margin = 1.0
both_sides = true

[test.of]
block = "S1"
metric = "bits per unit"
unit = "bits a word"
plus = ["uniform"]
minus = ["dot-product"]
"#;

/// A command in a folder, without a folder of data in its environment.
fn claims(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = binary("claims");
    command.args(arguments).current_dir(folder).env_remove("HEEDFUL_DATA");
    command
}

fn ledger(folder: &Path, claim: &str) {
    fs::create_dir_all(folder.join("blocks")).unwrap();
    fs::write(folder.join("features.toml"), "").unwrap();
    fs::write(folder.join("blocks/S1.toml"), BLOCK).unwrap();
    fs::write(folder.join("C01.toml"), claim).unwrap();
}

#[test]
fn a_ledger_is_planned_run_continued_decided_and_shown() {
    let (folder, [own]) = places(["ledger"]);
    ledger(&own, CLAIM);
    let claims = |arguments: &[&str]| claims(folder.path(), &[arguments, &["--ledger", own.to_str().unwrap()]].concat());
    let plan = claims(&["plan"]).succeeds();
    assert!(stdout(&plan).contains("6 of 6"), "{}", stdout(&plan));
    let verdict = claims(&["verdict", "--why"]).output().unwrap();
    assert!(stdout(&verdict).contains("not run") && stdout(&verdict).contains("S1 has not been run"), "{}", stdout(&verdict));
    claims(&["run", "C01"]).succeeds();
    claims(&["run", "--all", "--resume", "--jobs", "2"]).succeeds();
    let verdict = claims(&["verdict", "C01", "--why"]).succeeds();
    assert!(stdout(&verdict).contains("reproduced") && stdout(&verdict).contains("paired bootstrap over 3 seeds"), "{}", stdout(&verdict));
    assert!(stdout(&claims(&["plan"]).succeeds()).contains("0 of 6"));
    claims(&["report", "--out", "report"]).succeeds();
    let [text, page] = ["report.md", "report.html"].map(|name| fs::read_to_string(folder.path().join("report").join(name)).unwrap());
    assert!(text.contains("[C01](#c01)") && text.contains("Verdict: **reproduced**"), "{text}");
    assert!(page.contains("<svg") && page.contains("class=\"card reproduced\"") && page.contains("dot-product"), "{page}");

    // Another recipe under the same name is no run of the ledger.
    fs::write(own.join("blocks/S1.toml"), BLOCK.replace("steps = 4,", "steps = 5,")).unwrap();
    let verdict = claims(&["verdict", "--why"]).output().unwrap();
    assert!(stdout(&verdict).contains("`training.steps`: 4 there, 5 here"), "{}", stdout(&verdict));
}

#[test]
fn the_runs_of_a_block_begin_with_the_pretrained_model_that_it_names() {
    let (data, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (folder, name) in [(pretrained::folder("gpt2"), "model"), (pretrained::texts(), "text")] {
        fs::rename(folder.path(), data.path().join(name)).unwrap();
    }
    let config = "data = { context = 12, stride = 6, batch = 2 }\ntraining = { steps = 2, evaluate_every = 2, checkpoint_every = 2 }";
    let block = |fields: &str, config: &str| {
        let head = "title = \"further training\"\nexperiment = \"lm\"\nseeds = 1\nminutes = 0.1\norder = 1";
        fs::create_dir_all(own.path().join("blocks")).unwrap();
        fs::write(own.path().join("blocks/F1.toml"), format!("{head}\n{fields}\n[config]\n{config}\n")).unwrap();
    };
    let claims = |arguments: &[&str]| {
        let mut command = binary("claims");
        command.args(arguments).arg("--ledger").arg(own.path()).current_dir(own.path()).env("HEEDFUL_DATA", data.path());
        command
    };
    block("data = \"text\"\npretrained = \"model\"", config);
    claims(&["run", "F1", "--out", "runs"]).succeeds();
    let report = fs::read_to_string(own.path().join("runs/F1/report.md")).unwrap();
    assert!(report.contains("began with the weights of"), "{report}");
    let plan = claims(&["plan", "--results", "runs"]).succeeds();
    assert!(stdout(&plan).contains("finished"), "{}", stdout(&plan));
    block("data = \"text\"\npretrained = \"model\"", "pretrained = \"model\"");
    claims(&["plan"]).refuses(2, &["F1.toml", "write `pretrained` above it"]);
    block("pretrained = \"model\"", config);
    claims(&["plan"]).refuses(2, &["F1.toml", "`pretrained` is a folder beside `data`"]);
}

#[test]
fn blocks_without_claims_are_a_queue_that_processes_work_off_together() {
    let (folder, [own]) = places(["queue"]);
    fs::create_dir_all(own.join("blocks")).unwrap();
    for (name, order) in [("Q1", "order = 2"), ("Q2", "order = 1")] {
        let block = BLOCK.replace("seeds = 3", "seeds = 1").replace("order = 1", order);
        fs::write(own.join(format!("blocks/{name}.toml")), block).unwrap();
    }
    let claims = |arguments: &[&str]| claims(folder.path(), &[arguments, &["--ledger", own.to_str().unwrap()]].concat());
    let states = || {
        let text = stdout(&claims(&["plan"]).succeeds());
        let of = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(text.find("Q2") < text.find("Q1"), "in the order of the blocks: {text}");
        [of("Q1"), of("Q2")]
    };
    assert!(states().iter().all(|line| line.contains("waiting") && line.contains("2 of 2")));
    claims(&["run", "Q2", "--processes", "2"]).succeeds();
    let [first, second] = states();
    assert!(first.contains("waiting") && second.contains("finished") && second.contains("0 of 2"), "{first}\n{second}");
    claims(&["run", "--all", "--processes", "2", "--resume"]).succeeds();
    assert!(states().iter().all(|line| line.contains("finished")));
    claims(&["run", "Q1", "--processes", "2", "--jobs", "2"]).refuses(2, &["--processes", "--jobs"]);
    // What a claim tests by has seeds enough.
    fs::write(own.join("C01.toml"), CLAIM.replace("\"S1\"", "\"Q1\"")).unwrap();
    claims(&["plan"]).refuses(2, &["Q1.toml", "`seeds` must be at least 3", "C01"]);
}

#[test]
fn what_claims_cannot_do_is_refused_or_left_out_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let claims = |arguments: &[&str]| claims(folder.path(), arguments);
    claims(&["run", "C99"]).refuses(2, &["no claim `C99`", "claims list"]);
    claims(&["verdict", "C99"]).refuses(2, &["no claim `C99`"]);
    let left_out = claims(&["run", "P1"]).refuses(1, &["P1"]);
    assert!(stdout(&left_out).contains("it reads `ptb`; give --data"), "{}{}", stdout(&left_out), stderr(&left_out));
    // The smoke subset reads no data.
    claims(&["run", "--smoke", "--data", "data"]).refuses(2, &["--smoke", "--data"]);
    let own = folder.path().join("ledger");
    ledger(&own, &CLAIM.replace("uniform\"]", "unifrom\"]"));
    claims(&["run", "--all", "--ledger", own.to_str().unwrap()]).refuses(2, &["C01.toml", "did you mean `uniform`?"]);
    let list = claims(&["list"]).succeeds();
    assert!(stdout(&list).contains("C36"), "{}", stdout(&list));
    ledger(&own, &CLAIM.replace("margin = 1.0", "margin = 1.0\nmissing = [\"F1\"]"));
    fs::write(own.join("features.toml"), "F1 = \"something\"\n").unwrap();
    let list = claims(&["list", "--ledger", own.to_str().unwrap()]).succeeds();
    assert!(stdout(&list).contains("F1: something"), "{}", stdout(&list));
}

#[cfg(unix)]
#[test]
fn a_folder_of_data_that_no_configuration_can_name_is_refused_before_any_block() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let (folder, name) = (tempfile::tempdir().unwrap(), OsStr::from_bytes(b"sets\xff"));
    for task in [&["run", "P1", "X1"][..], &["pilot", "P1"], &["plan", "--measure"]] {
        claims(folder.path(), task).arg("--data").arg(name).refuses(2, &["--data", "is not UTF-8"]);
        claims(folder.path(), task).env("HEEDFUL_DATA", name).refuses(2, &["is not UTF-8"]);
        assert!(!folder.path().join("runs").exists(), "{task:?}");
    }
}

#[test]
fn the_folder_of_the_environment_is_that_of_a_plan_that_measures() {
    let (folder, [own]) = places(["ledger"]);
    ledger(&own, CLAIM);
    fs::write(own.join("blocks/S1.toml"), BLOCK.replace("seeds = 3", "data = \"text\"\nseeds = 3").replace(", generated_words = 400", ""))
        .unwrap();
    let plan = |further: &[&str]| {
        let mut command = claims(folder.path(), &["plan", "--ledger"]);
        command.arg(&own).args(further).env("HEEDFUL_DATA", folder.path().join("sets")).output().unwrap()
    };
    let measured = plan(&["--measure"]);
    assert!(!stdout(&measured).contains("give --data") && stdout(&measured).contains("sets/text"), "{}", stdout(&measured));
    // It is no option that plans without measurements would have to refuse.
    succeeded(&plan(&[]));
    let unmeasured = plan(&["--data", "data"]);
    assert!(unmeasured.status.code() == Some(2) && stderr(&unmeasured).contains("--measure"), "{}", stderr(&unmeasured));
}

#[test]
fn the_documents_are_those_of_the_recorded_runs() {
    let ledger = Ledger::built_in().unwrap();
    let verdicts = Verdicts::compute(&ledger, &root().join("experiments/results/claims")).unwrap();
    let chapter = ClaimsReport::of(&ledger, &verdicts).unwrap().chapter();
    let kept = fs::read_to_string(book().join("claims.md")).unwrap();
    assert!(
        kept == chapter,
        "claims.md is not what the records say; run claims report --results experiments/results/claims --book docs/book/src"
    );
}
