//! The tool `measure` on small runs: each model once a round, in turn, and files that the verdicts on claims read.

use std::fs;
use std::path::Path;

use heedful_host::rounds::Rounds;

use crate::command::{Run, TINY, binary, parallel_folder, places, text_folder, translate};

/// What was measured: names, units and how many positive values there are.
fn measured(arguments: &[&str], run: &Path, out: &Path) -> Vec<(String, String, usize)> {
    binary("measure").args([arguments[0]]).arg(run).args(&arguments[1..]).arg("--out").arg(out).succeeds();
    let rounds = Rounds::read(out).unwrap().unwrap();
    let page = fs::read_to_string(out.join("rounds.md")).unwrap();
    assert!(rounds.command.contains("measure") && rounds.provenance.is_some(), "{rounds:?}");
    let series = rounds.series.into_iter().map(|series| {
        assert!(page.contains(&format!("| {} | {} |", series.name, series.unit)), "{page}");
        let positive = series.values.iter().filter(|value| **value > 0.0).count();
        (series.name, series.unit, positive)
    });
    series.collect()
}

fn names(series: &[(String, String, usize)]) -> Vec<&str> {
    series.iter().map(|series| series.0.as_str()).collect()
}

#[test]
fn scoring_takes_longer_with_a_window_that_moves_by_one_and_losses_stand_by_position() {
    let (data, (folder, [out])) = (text_folder(), places(["run"]));
    let models = "run.models=[{name = 'memory', attention = 'relative', set = {data = {memory = 8}}}, \
        {name = 'longer', attention = 'relative', weights_of = 'memory', set = {data = {memory = 8, evaluation_memory = 24}}}, \
        {name = 'window', attention = 'relative', set = {}}]";
    let mut command = binary("lm");
    command.args(TINY).args(["--set", "data.context=8", "--set", "data.stride=4", "--set", "data.batch=2"]);
    command.args(["--set", "run.attention=[]", "--set", models, "--set", "loss_by_position=true", "--set", "histogram_texts=3"]);
    command.arg("--data").arg(data.path()).arg("--out").arg(&out).succeeds();

    for name in ["memory", "longer", "window"] {
        let run = out.join(format!("{name}-seed1"));
        let table = fs::read_to_string(run.join("positions.csv")).unwrap();
        assert!(table.starts_with("position,tokens,nats\n1,") && table.lines().count() == 9, "{name}: {table}");
        assert!(fs::read_to_string(run.join("positions.svg")).unwrap().contains("Loss by position"));
        let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(run.join("result.json")).unwrap()).unwrap();
        let divergence = record["metrics"]["histogram divergence"].as_f64().unwrap();
        assert!(divergence > 0.0 && divergence < 0.7 && run.join("items/heads.json").exists(), "{record}");
    }
    assert!(fs::read_to_string(out.join("report.md")).unwrap().contains("positions.svg"));

    let at = folder.path().join("scoring");
    let found = measured(&["scoring", "--tokens", "60", "--stride", "1,8", "--rounds", "3"], &out, &at);
    // In the order of the command.
    assert_eq!(names(&found), ["memory, memory 8", "longer, memory 24", "window, stride 1", "window, stride 8"]);
    assert!(found.iter().all(|(_, unit, positive)| unit == "seconds" && *positive == 3), "{found:?}");
    let seconds = |name: &str| {
        let rounds = Rounds::read(&at).unwrap().unwrap();
        rounds.series.iter().find(|series| series.name == name).unwrap().median().unwrap()
    };
    assert!(seconds("window, stride 1") > seconds("window, stride 8"), "it reads eight times as many tokens");
    let one = measured(&["scoring", "--attention", "window", "--tokens", "20", "--rounds", "1"], &out, &folder.path().join("one"));
    assert_eq!(names(&one), ["window, stride 4"], "as it is configured");

    let refuse = |arguments: &[&str], code: i32, parts: &[&str]| {
        binary("measure").arg(arguments[0]).arg(&out).args(&arguments[1..]).refuses(code, parts);
    };
    refuse(&["scoring", "--attention", "memory,longer", "--stride", "1"], 2, &["--stride", "leave it out"]);
    refuse(&["scoring", "--stride", "9"], 2, &["--stride 9", "8 tokens"]);
    refuse(&["scoring", "--attention", "windoe"], 2, &["windoe", "window"]);
    refuse(&["decoding"], 2, &["is a run of lm", "`mt`"]);
}

#[test]
fn translations_are_timed_and_the_largest_batch_within_a_memory_is_found() {
    let (data, (folder, [out])) = (parallel_folder(), places(["run"]));
    let further = ["--set", "run.attention=[\"dot-product\", \"gaussian\"]"];
    translate(data.path(), &out, &further).succeeds();

    let arguments = ["decoding", "--sentences", "6", "--at-once", "1,4", "--rounds", "3"];
    let found = measured(&arguments, &out, &folder.path().join("decoding"));
    assert_eq!(names(&found), ["dot-product, 1 at once", "dot-product, 4 at once", "gaussian, 1 at once", "gaussian, 4 at once"]);
    assert!(found.iter().all(|(_, unit, positive)| unit == "sentences per second" && *positive == 3), "{found:?}");

    let refuse = |arguments: &[&str], parts: &[&str]| {
        binary("measure").arg("batch").arg(&out).args(arguments).refuses(2, parts);
    };
    refuse(&["--memory", "0"], &["--memory 0", "greater than 0"]);
    #[cfg(target_os = "linux")]
    {
        let at = |gibibytes: &str| {
            let place = folder.path().join(format!("batch-{gibibytes}"));
            let found = measured(&["batch", "--attention", "dot-product", "--memory", gibibytes, "--rounds", "1"], &out, &place);
            assert_eq!((names(&found), found[0].1.as_str()), (vec!["dot-product"], "tokens"));
            Rounds::read(&place).unwrap().unwrap().series[0].values[0]
        };
        let (less, more) = (at("0.03"), at("0.06"));
        assert!(more > 1.3 * less, "twice the memory holds about twice the tokens: {less} and {more}");
    }
}
