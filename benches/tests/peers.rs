//! The binary `peers` at tiny sizes, alone and with a side in Python that computes nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use heedful_benches::peers::measure::{CaseResult, Measurement};
use heedful_benches::peers::outcome::Outcome;

const LAYER: [&str; 4] = ["--d-model", "16", "--heads", "2"];
const MODEL: [&str; 6] = ["--layers", "1", "--d-ff", "16", "--vocabulary", "11"];
const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fake_peers.py");

fn peers(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(arguments).args(["--rounds", "2", "--threads", "1", "--out"]).arg(out);
    command.output().expect("the binary runs")
}

/// The results of a comparison that succeeds.
#[track_caller]
fn measured(what: &str, arguments: &[&[&str]]) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let output = peers(&[&[what], &arguments.concat()[..]].concat(), folder.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let page = fs::read_to_string(folder.path().join("README.md")).unwrap();
    let outcome: Outcome = serde_json::from_str(&fs::read_to_string(folder.path().join(format!("{what}.json"))).unwrap()).unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&outcome.title) && page.contains(&outcome.title));
    let provenance = outcome.provenance.as_ref().expect("it records what computed it");
    assert!(page.contains(&format!("; commit of heedful: {}.", provenance.code())) && provenance.threads == 1, "{page}");
    outcome
}

#[track_caller]
fn find<'a>(case: &'a CaseResult, name: &str) -> &'a Measurement {
    case.find(name).unwrap_or_else(|| panic!("{name} is not among {case:?}"))
}

/// All of ours were timed in both rounds, none of the others.
#[track_caller]
fn is_ours_alone(outcome: &Outcome) {
    for measurement in outcome.cases.iter().flat_map(|case| &case.measurements) {
        let Measurement { name, seconds, missing, .. } = measurement;
        if name.starts_with("heedful") {
            assert_eq!((seconds.len(), missing), (2, &None), "{name}");
            assert!(name.ends_with("operator") || seconds.iter().all(|&seconds| seconds > 0.0), "{name}: {seconds:?}");
        } else {
            assert_eq!((seconds.len(), missing.as_deref()), (0, Some("left out")), "{name}");
        }
    }
}

#[test]
fn heedful_is_measured_without_python() {
    let alone = ["--without-python", "--without-memory"];
    let mechanisms = measured("mechanisms", &[&LAYER, &alone, &["--lengths", "128,256"]]);
    is_ours_alone(&mechanisms);
    assert_eq!(mechanisms.cases.iter().map(|case| case.length).collect::<Vec<_>>(), [128, 256]);
    is_ours_alone(&measured("recurrences", &[&LAYER, &alone, &["--lengths", "64"]]));
    is_ours_alone(&measured("positions", &[&LAYER, &alone, &["--lengths", "64"]]));
    is_ours_alone(&measured("convolutions", &[&LAYER, &alone, &["--lengths", "16", "--tokens", "32", "--kernel", "3"]]));
    is_ours_alone(&measured("dropout", &[&LAYER, &alone, &["--lengths", "16"]]));
    is_ours_alone(&measured("inference", &[&LAYER, &alone, &["--lengths", "16", "--tokens", "64"]]));
    is_ours_alone(&measured("attention", &[&LAYER, &alone, &["--lengths", "16"]]));
    let step = measured("step", &[&LAYER, &MODEL, &alone, &["--batch", "2", "--length", "8"]]);
    is_ours_alone(&step);
    let names = ["length 8, batch 2", "classifier, sentences, 4 of 1 to 8", "encoder-decoder, pairs, 4 of 1 to 8"];
    assert_eq!(step.cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), names);
    step.cases[1..].iter().for_each(|case| assert!(find(case, "heedful, unpadded").seconds.len() == 2));
    let decoding = ["--tokens", "4", "--prefixes", "2", "--batch", "2", "--attention", "dot-product,lsh"];
    let decode = measured("decode", &[&LAYER, &MODEL, &alone, &decoding]);
    is_ours_alone(&decode);
    assert_eq!(decode.cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), ["dot-product, batch 2", "lsh, batch 2"]);
}

#[test]
fn layers_that_no_memory_holds_are_left_out_and_the_others_are_kept() {
    let alone = ["--without-python", "--memory", "0.01", "--tokens", "16"];
    let attention = measured("attention", &[&LAYER, &alone, &["--lengths", "16,2048,1000000000"]]);
    let [short, long, longest] = &attention.cases[..] else { panic!("{:?}", attention.cases) };
    let ours = |case: &'static str, of: &CaseResult| {
        let own = of.measurements.iter().filter(|measurement| measurement.name.starts_with("heedful")).cloned();
        let own: Vec<Measurement> = own.collect();
        assert!(!own.is_empty(), "{case}");
        own
    };
    assert!(ours("short", short).iter().all(|measurement| measurement.seconds.len() == 2 && measurement.missing.is_none()));
    let no_memory = |Measurement { name, missing, .. }: &Measurement| {
        let reason = missing.as_deref().unwrap_or_else(|| panic!("{name} is measured"));
        assert!(reason.starts_with("left out: about"), "{name}: {reason}");
        reason.contains("GiB are allowed; give shorter --lengths")
    };
    assert!(no_memory(find(long, "heedful reference")));
    let longest = ours("longest", longest);
    assert!(longest.iter().filter(|measurement| no_memory(measurement)).count() >= 2, "{longest:?}");
}

#[test]
fn models_that_no_memory_holds_are_refused_before_they_are_built() {
    let (wide, out) = (["--d-model", "4000000"], tempfile::tempdir().unwrap());
    for arguments in [["step", "--heads", "2"], ["depth", "--layers", "2"], ["decode", "--heads", "2"]] {
        let output = peers(&[&arguments[..], &wide].concat(), out.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("GiB are available; give smaller sizes"), "{errors}");
    }
}

#[test]
fn python_is_asked_for_the_same_work_and_its_errors_are_reported() {
    let python = ["--python", "python3", "--peers", FAKE, "--without-memory"];
    let attention = measured("attention", &[&LAYER, &python, &["--lengths", "8,32", "--tokens", "16"]]);
    let threads = attention.versions.get("threads-of-fake").map(String::as_str);
    assert_eq!(threads, Some("1"), "this test needs `python3`, without packages");
    for (case, seconds) in attention.cases.iter().zip([8.0, 16.0]) {
        assert_eq!(find(case, "PyTorch SDPA").seconds, [seconds; 2], "{}", case.name);
        assert_eq!(find(case, "PyTorch SDPA, operator").seconds, [0.0; 2]);
        assert_eq!(find(case, "PyTorch naive").missing.as_deref(), Some("no such package: naive"));
        assert_eq!(find(case, "heedful fused").seconds.len(), 2);
    }
    let recurrences = measured("recurrences", &[&LAYER, &python, &["--lengths", "64"]]);
    let case = &recurrences.cases[0];
    for (package, ours) in [
        ("fla linear attention", "heedful linear-attention"),
        ("fla simple GLA", "heedful simple-gla"),
        ("fla gated delta rule", "heedful gated-delta-net"),
        ("transformers gated delta rule", "heedful gated-delta-net"),
    ] {
        assert_eq!((find(case, package).seconds.as_slice(), find(case, package).baseline.as_deref()), (&[32.0; 2][..], Some(ours)));
        assert_eq!(find(case, &format!("{package}, operator")).seconds, [0.0; 2]);
        assert_eq!(find(case, ours).seconds.len(), 2);
    }
    let convolutions = measured("convolutions", &[&LAYER, &python, &["--lengths", "8", "--tokens", "16"]]);
    let unfolded = find(&convolutions.cases[0], "PyTorch dynamic-conv, unfold");
    assert_eq!((unfolded.seconds.as_slice(), unfolded.baseline.as_deref()), (&[8.0; 2][..], Some("heedful dynamic-conv")));
}

#[cfg(target_os = "linux")]
#[test]
fn the_peak_of_memory_grows_with_the_work() {
    let long = ["--without-python", "--batch", "4", "--length", "256"];
    let outcome = measured("step", &[&LAYER, &["--layers", "1", "--d-ff", "16", "--vocabulary", "2000"], &long]);
    // The logits of the batch alone, which the tiny step before does not have.
    assert!(find(&outcome.cases[0], "heedful").peak_bytes.unwrap() > 4 * 256 * 2000 * 4);

    let alone = ["--without-python", "--attention", "gaussian,local-1d", "--lengths", "512,2048"];
    let outcome = measured("memory", &[&LAYER, &alone]);
    let [short, long] = [0, 1].map(|case| find(&outcome.cases[case], "heedful local-1d"));
    assert!(short.seconds.is_empty() && long.peak_bytes.unwrap() > short.peak_bytes.unwrap(), "{short:?} {long:?}");
}

#[test]
fn matrices_that_are_too_large_are_left_out() {
    let outcome = measured("attention", &[&LAYER, &["--without-python", "--without-memory", "--lengths", "64", "--matrices", "1e-6"]]);
    assert!(find(&outcome.cases[0], "heedful reference").missing.as_ref().unwrap().starts_with("left out: about"));
    assert!(find(&outcome.cases[0], "heedful fused").missing.is_none());
    let outcome = measured("dropout", &[&LAYER, &["--without-python", "--without-memory", "--lengths", "64", "--matrices", "1e-6"]]);
    assert!(find(&outcome.cases[0], "PyTorch SDPA").missing.as_ref().unwrap().starts_with("left out: about"));
}

#[test]
fn without_a_python_heedful_is_measured_alone_and_the_remedy_named() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = ["attention", "--lengths", "16", "--without-memory", "--python", "/no/such/python"];
    let output = peers(&[&tiny[..], &LAYER].concat(), folder.path());
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("pip install -r benches/peers/requirements.txt"));
}

#[test]
fn what_cannot_be_meant_is_refused_with_2() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (&["attention", "--heads", "3"][..], "--heads"),
        (&["mechanisms", "--lengths", "100"], "--lengths"),
        (&["recurrences", "--lengths", "100"], "--lengths"),
        (&["decode", "--attention", "linformer"], "linformer"),
        (&["decode", "--attention", "no-such"], "no-such"),
        (&["step", "--rounds", "0"], "--rounds"),
        (&["dropout", "--dropout", "1"], "--dropout"),
        (&["report"], "--out"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_peers")).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(word), "{arguments:?}: {errors}");
    }
    assert_eq!(peers(&["report"], folder.path()).status.code(), Some(2), "an empty folder");
}
