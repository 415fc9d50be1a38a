//! The commands `cost` and `backends` at tiny sizes.

#[allow(dead_code, reason = "the tests in `cli` use the rest")]
#[path = "cli/documents.rs"]
mod documents;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use heedful_benches::backends;
use heedful_benches::cost::outcome::Outcome;
use heedful_benches::cost::point::Pass;
use heedful_benches::cost::roofline::page::Roofline;
use heedful_host::rounds::Rounds;

const TINY: [&str; 6] = ["--d-model", "16", "--heads", "2", "--rounds", "3"];

const TINY_MODEL: [&str; 14] =
    ["--layers", "1", "--d-model", "16", "--heads", "2", "--d-ff", "16", "--vocabulary", "50", "--batch", "2", "--length", "16"];

fn heedful(command: &str) -> Command {
    let mut heedful = Command::new(env!("CARGO_BIN_EXE_heedful"));
    heedful.arg(command);
    heedful
}

fn cost(arguments: &[&str]) -> Output {
    heedful("cost").args(TINY).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The points of a sweep that succeeds.
#[track_caller]
fn measured(arguments: &[&str], out: &Path) -> Outcome {
    succeeded(&cost(&[arguments, &["--out", out.to_str().unwrap()]].concat()));
    Outcome::read(&out.join("cost.json")).unwrap()
}

/// The cells of the rows of the table after a line.
fn rows<'a>(text: &'a str, line: &str) -> Vec<Vec<&'a str>> {
    let after = text.split_once(line).unwrap_or_else(|| panic!("there is no line {line}")).1;
    let table = after.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|')).skip(2);
    table.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn the_book_shows_every_mechanism_that_was_measured() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let (chapter, measured) = (read("../../docs/book/src/cost.md"), read("../../benches/results/cost-long/cost.md"));
    let shown = rows(&chapter, "# What it costs");
    let measured = rows(&measured, "## flex, forward and backward: milliseconds");
    assert_eq!(shown.len(), measured.len());
    for (shown, mut measured) in shown.into_iter().zip(measured) {
        let exponent = format!("n^{}", measured[6]);
        measured[6] = &exponent;
        assert_eq!(shown, measured);
    }
}

/// The commands of a program in all documents.
fn commands_of(program: &str) -> Vec<Vec<String>> {
    let documents = documents::documents();
    let commands = documents.iter().flat_map(|document| documents::commands(document));
    let read = commands.filter_map(|command| documents::arguments_of_heedful(&documents::words(&command)));
    read.filter(|arguments| arguments[0] == program).map(|arguments| arguments[1..].to_vec()).collect()
}

#[test]
fn the_commands_of_the_documents_run() {
    // Of reports and rooflines there are tests of their own.
    let is_sweep = |arguments: &Vec<String>| !["report", "roofline"].contains(&arguments[0].as_str());
    let commands: Vec<_> = commands_of("cost").into_iter().filter(is_sweep).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for mut arguments in commands {
        let lengths = arguments.iter().position(|argument| argument == "--lengths").expect("it is brief with other lengths");
        arguments[lengths + 1] = "16..32".to_owned();
        if !arguments.iter().any(|argument| argument == "--attention") {
            arguments.extend(["--attention", "dot-product,local-1d"].map(str::to_owned));
        }
        let folder = tempfile::tempdir().unwrap();
        let output = heedful("cost").args(TINY).args(&arguments).current_dir(folder.path()).output();
        let printed = succeeded(&output.unwrap());
        let outcome = Outcome::read(&folder.path().join("costs/cost.json")).unwrap();
        let backends = arguments.iter().position(|argument| argument == "--backend").map_or("flex", |at| &arguments[at + 1]);
        for backend in backends.split(',') {
            assert!(outcome.points.iter().any(|point| point.backend == backend), "{backend}: {printed}");
        }
    }
    for arguments in commands_of("backends") {
        succeeded(&heedful("backends").args(TINY_MODEL).args(arguments).output().unwrap());
    }
}

#[test]
fn every_mechanism_is_measured_on_both_cpu_backends_in_one_call() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = measured(&["--backend", "flex,ndarray", "--lengths", "16..64"], folder.path());
    assert_eq!(outcome.groups().len(), 6);
    let code = outcome.provenance.as_ref().expect("it records what computed it").code();
    let page = fs::read_to_string(folder.path().join("cost.md")).unwrap();
    assert!(page.contains(&format!(", commit {code}, ")) && outcome.provenance.as_ref().unwrap().threads > 0, "{code}: {page}");
    for point in &outcome.points {
        let is_missing = point.pass == Pass::Decode && ["linformer", "fnet", "mlp-mixer"].contains(&&*point.attention);
        assert_eq!(point.missing.is_some(), is_missing, "{point:?}");
        if is_missing {
            continue;
        }
        assert_eq!(point.seconds.len(), 3);
        assert!(point.difference.unwrap() < 1e-4 && point.multiplications.unwrap() > 0, "{point:?}");
        assert!(point.peak_bytes.unwrap() > 0, "the program counts what it allocates: {point:?}");
        assert_eq!(point.state_bytes.is_some(), point.pass == Pass::Decode);
    }
    let bytes = |attention: &str, length: usize| {
        let found =
            outcome.points.iter().find(|point| point.attention == attention && point.length == length && point.pass == Pass::Decode);
        found.unwrap().state_bytes.unwrap()
    };
    assert!(bytes("dot-product", 64) > bytes("dot-product", 16), "a state of keys and values grows");
    for file in ["cost.csv", "cost.md"] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
    assert!(fs::read_to_string(folder.path().join("cost.md")).unwrap().contains("faster than dot-product from"));
}

#[test]
fn heads_that_share_keys_and_values_have_a_smaller_state() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |heads: &[&str], name: &str| {
        let arguments = ["--attention", "dot-product,rotary", "--lengths", "64", "--pass", "decode"];
        let outcome = measured(&[&arguments[..], heads].concat(), &folder.path().join(name));
        assert_eq!(outcome.kv_heads.is_some(), name == "shared");
        ["dot-product", "rotary"]
            .map(|attention| outcome.points.iter().find(|point| point.attention == attention).unwrap().state_bytes.unwrap())
    };
    let (own, shared) = (bytes(&[], "own"), bytes(&["--kv-heads", "1"], "shared"));
    // Keys and values of 64 positions, 8 numbers less of each; the rest of a state does not depend on heads.
    assert_eq!(own, shared.map(|bytes| bytes + 2 * 64 * 8 * 4));
    let page = fs::read_to_string(folder.path().join("shared/cost.md")).unwrap();
    assert!(page.contains("with 2 heads (1 of keys and values)"), "{page}");
    let refused = cost(&["--kv-heads", "3"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--kv-heads 3 does not divide --heads 2"), "{}", text(&refused.stderr));
}

#[test]
fn bidirectional_layers_are_measured_without_steps_of_decoding() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--attention", "dot-product,linformer{rank=4},gla", "--lengths", "64", "--bidirectional"];
    let outcome = measured(&arguments, folder.path());
    assert!(outcome.is_bidirectional && outcome.points.iter().all(|point| point.pass != Pass::Decode));
    let point = |outcome: &Outcome, attention: &str| outcome.points.iter().find(|point| point.attention == attention).unwrap().clone();
    for attention in ["dot-product", "linformer{rank=4}"] {
        assert_eq!(point(&outcome, attention).seconds.len(), 3, "{attention}");
    }
    let reason = point(&outcome, "gla").missing.expect("it has no bidirectional form");
    assert!(reason.contains("gla"), "{reason}");
    let page = fs::read_to_string(folder.path().join("cost.md")).unwrap();
    assert!(page.contains("Bidirectional self-attention of width"), "{page}");
    let causal = measured(&arguments[..4], &folder.path().join("causal"));
    let multiplications = |outcome: &Outcome| point(outcome, "dot-product").multiplications.unwrap();
    assert!(multiplications(&outcome) > multiplications(&causal), "a causal layer has half of the pairs");
    assert!(causal.points.iter().any(|point| point.pass == Pass::Decode) && !causal.is_bidirectional);
}

#[cfg(target_os = "linux")]
#[test]
fn wgpu_says_what_its_pools_reserve_and_who_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = measured(&["--backend", "wgpu", "--attention", "dot-product", "--lengths", "16", "--pass", "forward"], folder.path());
    assert!(!outcome.devices["wgpu"].is_empty() && outcome.devices["wgpu"] != "the processor", "{:?}", outcome.devices);
    assert_eq!(outcome.points[0].seconds.len(), 3);
}

#[test]
fn what_takes_too_long_is_left_out_and_named() {
    let output = cost(&["--attention", "dot-product", "--lengths", "64,128", "--pass", "training", "--seconds", "1e-7"]);
    let table = succeeded(&output);
    assert!(table.contains("dot-product from 128 on: left out: about") && table.contains("–"), "{table}");
}

#[test]
fn a_run_that_is_slower_than_its_baseline_fails() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = ["--attention", "dot-product,uniform", "--lengths", "64", "--pass", "forward"];
    let mut earlier = measured(&sweep, folder.path());
    let path = folder.path().join("cost.json");
    let compared = |threshold: &str| {
        let output = cost(&[&sweep[..], &["--baseline", path.to_str().unwrap(), "--threshold", threshold]].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, table, _) = compared("1000");
    assert!(code == Some(0) && table.contains("2 points were compared"), "{table}");
    // As if it had taken a millionth of the time.
    earlier.points[0].seconds.iter_mut().for_each(|seconds| *seconds /= 1e6);
    earlier.write(folder.path()).unwrap();
    let (code, _, errors) = compared("1000");
    assert!(code == Some(1) && errors.contains("1 of 2 points"), "{errors}");
    assert!(errors.contains("flex, forward, dot-product at 64: ") && errors.contains(" times as long as the yardstick"), "{errors}");
    fs::write(&path, "{}").unwrap();
    let (code, _, errors) = compared("2");
    assert!(code == Some(2) && errors.contains("--baseline"), "{errors}");
}

#[test]
fn ratios_to_dot_product_attention_find_slower_code_and_not_a_slower_machine() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = ["--attention", "dot-product,uniform", "--lengths", "1024", "--pass", "training"];
    let earlier = measured(&sweep, folder.path());
    let path = folder.path().join("cost.json");
    let compared = || {
        let unit = ["--baseline", path.to_str().unwrap(), "--unit", "dot-product", "--threshold", "100"];
        let output = cost(&[&sweep[..], &unit].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let recorded = |uniform: f64, all: f64| {
        let mut recorded = earlier.clone();
        for point in &mut recorded.points {
            let factor = if point.attention == "uniform" { uniform * all } else { all };
            point.seconds.iter_mut().for_each(|seconds| *seconds *= factor);
            point.yardstick.iter_mut().for_each(|seconds| *seconds *= all);
        }
        recorded.write(folder.path()).unwrap();
    };
    // Of a machine that takes a thousand times as long at everything.
    recorded(1.0, 1e3);
    let (code, table, errors) = compared();
    assert!(code == Some(0) && table.contains("2 points were compared"), "{table}{errors}");
    // The same, and `uniform` took a thousandth of its time there.
    recorded(1e-3, 1e4);
    let (code, _, errors) = compared();
    assert!(code == Some(1) && errors.contains("1 of 2 points") && errors.contains("record the baseline anew: "), "{errors}");
    for part in ["flex, training, uniform at 1024: ", " times as long as dot-product, and ", &earlier.command] {
        assert!(errors.contains(part), "{part} is missing in {errors}");
    }
    assert!(!errors.contains("dot-product at 1024"), "{errors}");

    let other = earlier.provenance.as_ref().unwrap().threads + 1;
    let limited = ["--baseline", path.to_str().unwrap(), "--unit", "dot-product"];
    let mut command = heedful("cost");
    let output = command.args(TINY).args(sweep).args(limited).env("RAYON_NUM_THREADS", other.to_string()).output().unwrap();
    let errors = text(&output.stderr);
    assert!(errors.contains(&format!("set RAYON_NUM_THREADS={}", other - 1)), "{errors}");
}

#[test]
fn a_report_shows_what_was_measured_before() {
    let folder = tempfile::tempdir().unwrap();
    measured(&["--attention", "dot-product,local-1d", "--lengths", "16,32", "--pass", "forward"], &folder.path().join("cpu"));
    let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
    let (page, picture) = (read("cpu/cost.md"), read("cpu/time-flex-forward.svg"));
    for file in ["cpu/cost.md", "cpu/time-flex-forward.svg"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let report = || heedful("cost").arg("report").arg(folder.path()).output().unwrap();
    assert!(succeeded(&report()).contains("report.md"));
    assert_eq!((read("cpu/cost.md"), read("cpu/time-flex-forward.svg")), (page, picture));
    let all = read("report.md");
    assert!(all.contains("## cpu\n") && all.contains("| local-1d") && all.contains("(cpu/time-flex-forward.svg)"), "{all}");
    fs::remove_file(folder.path().join("cpu/cost.json")).unwrap();
    let output = report();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("holds no cost.json"), "{}", text(&output.stderr));
}

#[test]
fn memory_grows_with_depth_unless_layers_are_reversible() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["depth", "--layers", "6,2", "--length", "256", "--d-model", "16", "--activations", "kept,reversible", "--rounds", "3"];
    // With several threads it is chance how much memory they use at the same time.
    let mut command = heedful("cost");
    let output = command.args(arguments).arg("--out").arg(folder.path()).env("RAYON_NUM_THREADS", "1").output().unwrap();
    let table = succeeded(&output);
    let rounds = Rounds::read(folder.path()).unwrap().unwrap();
    assert!(
        fs::read_to_string(folder.path().join("rounds.md")).unwrap().contains("| kept, 6 layers | bytes |") && table.contains("width 16")
    );
    let median = |name: &str, unit: &str| {
        let found =
            rounds.series.iter().find(|series| series.name == name && series.unit == unit).unwrap_or_else(|| panic!("{name}: {table}"));
        assert_eq!(found.values.len(), 3);
        found.median().unwrap()
    };
    assert_eq!(rounds.series.len(), 8);
    let growth =
        |activations: &str| median(&format!("{activations}, 6 layers"), "bytes") / median(&format!("{activations}, 2 layers"), "bytes");
    let (kept, reversible) = (growth("kept"), growth("reversible"));
    assert!(kept > 1.8 && reversible < 1.4, "{kept} and {reversible}");
    assert!(median("reversible, 2 layers", "seconds") > 0.0);
    let refused = heedful("cost").args(["depth", "--d-model", "15"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn positions_that_halt_earlier_take_fewer_steps() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["halting", "--biases", "-9,-1,9", "--steps", "5", "--batch", "2", "--length", "16", "--d-model", "16", "--rounds", "3"];
    let output = heedful("cost").args(arguments).arg("--out").arg(folder.path()).output().unwrap();
    let table = succeeded(&output);
    let rounds = Rounds::read(folder.path()).unwrap().unwrap();
    let of_unit = |unit: &str| -> Vec<_> { rounds.series.iter().filter(|series| series.unit == unit).collect() };
    let steps: Vec<f64> = of_unit("mean steps").iter().map(|series| series.values[0]).collect();
    assert!(steps[..2] == [5.0, 5.0] && steps[2] > 1.0 && steps[2] < 5.0 && steps[3] == 1.0, "{table}");
    for unit in ["seconds of inference", "seconds of training"] {
        let names: Vec<&str> = of_unit(unit).iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["without halting", "bias -9", "bias -1", "bias 9"], "{unit}");
        assert!(
            of_unit(unit).iter().all(|series| series.values.len() == 3 && series.values.iter().all(|&seconds| seconds > 0.0)),
            "{table}"
        );
    }
    let refused = heedful("cost").args(["halting", "--d-model", "15"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn kernels_are_measured_beside_the_peaks_of_the_machine_by_the_command_of_the_documents() {
    let commands: Vec<_> = commands_of("cost").into_iter().filter(|arguments| arguments[0] == "roofline").collect();
    assert!(!commands.is_empty());
    for arguments in commands {
        let folder = tempfile::tempdir().unwrap();
        let mut command = heedful("cost");
        command.args(arguments).args(["--test", "--rounds", "3"]).env("RAYON_NUM_THREADS", "3").current_dir(folder.path());
        let page = succeeded(&command.output().unwrap());
        let place = folder.path().join("costs");
        assert_eq!(fs::read_to_string(place.join("roofline.md")).unwrap().trim_end(), page.trim_end());
        let roofline: Roofline = serde_json::from_str(&fs::read_to_string(place.join("roofline.json")).unwrap()).unwrap();
        assert_eq!(roofline.provenance.as_ref().expect("it records what computed it").threads, 3);
        for kernel in roofline.kernels.iter().chain([&roofline.product, &roofline.triad]) {
            let measured: Vec<_> = kernel.times.iter().map(|times| (times.threads, times.seconds.len())).collect();
            assert_eq!(measured, [(1, 3), (2, 3), (3, 3)], "{}", kernel.name);
            assert!(kernel.times.iter().all(|times| times.seconds.iter().all(|&seconds| seconds > 0.0)), "{}", kernel.name);
        }
        let [peaks, bounds, threads] = ["\n## Peaks", "\n## Bounds", "\n## Threads"].map(|heading| rows(&page, heading));
        assert_eq!((peaks.len(), bounds.len(), threads.len()), (3, roofline.kernels.len(), roofline.kernels.len()), "{page}");
        for kernel in [
            "four linear maps",
            "fused operator",
            "random table",
            "relative",
            "chunks of linear-attention",
            "chunks of gated-delta-net",
            "short convolution",
            "layer of local-1d",
            "layer of lsh",
            "layer of dot-product",
        ] {
            let passes: Vec<&str> = bounds.iter().filter(|row| row[0].starts_with(kernel)).map(|row| row[1]).collect();
            assert!(["forward", "forward and backward"].iter().all(|pass| passes.contains(pass)), "{kernel}: {page}");
        }
        let in_16_bits = rows(&page, "\n## 16 bits");
        for kernel in ["four linear maps of 128 rows of 32, in bf16", "layer of dot-product, 128 positions, 2 heads of 16, in bf16"] {
            let passes: Vec<&str> = in_16_bits.iter().filter(|row| row[0] == kernel).map(|row| row[1]).collect();
            assert_eq!(passes, ["forward", "forward and backward"], "{page}");
        }
        assert!(bounds.last().unwrap()[0].starts_with("training step") && page.contains("The goal is"), "{page}");
    }
}

#[test]
fn impossible_commands_are_refused() {
    for (arguments, parts) in [
        (&["--attention", "dot-produkt"][..], &["dot-produkt"][..]),
        (&["--heads", "3"], &["--heads 3", "--d-model"]),
        (&["--lengths", "8..4"], &["8 is more than 4"]),
        (&["--pass", "sideways"], &["forward, training, decode"]),
        (&["--backend", "flux"], &["flux", "flex"]),
        (&["--seconds", "0"], &["--seconds"]),
        (&["--bidirectional", "--pass", "decode"], &["--bidirectional", "leave out --pass decode"]),
        (&["--baseline", "no/such.json"], &["no/such.json", "cost --out"]),
        (&["--unit", "dot-product"], &["--baseline"]),
    ] {
        // A later option takes the place of an earlier one.
        let output = heedful("cost").args(arguments).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(parts.iter().all(|part| errors.contains(part)), "{arguments:?}: {errors}");
    }
}

#[test]
fn backends_train_alike() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = heedful("backends");
    command.args(TINY_MODEL).args(["--backend", "flex,ndarray,wgpu", "--steps", "5", "--out"]).arg(folder.path());
    let table = succeeded(&command.output().unwrap());
    assert!(table.contains("largest difference of a loss from flex"), "{table}");
    let outcome: backends::Outcome = serde_json::from_str(&fs::read_to_string(folder.path().join("backends.json")).unwrap()).unwrap();
    assert_eq!(outcome.trainings.len(), 3);
    assert!(table.contains(&format!(", commit {}, ", outcome.provenance.as_ref().expect("it records what computed it").code())), "{table}");
    let [flex, others @ ..] = &outcome.trainings[..] else { unreachable!() };
    assert!(flex.losses.len() == 5 && flex.losses[4] < flex.losses[0]);
    assert!(others.iter().all(|other| other.difference(flex) < 1e-3), "{table}");
}

#[test]
fn launches_of_a_step_are_told_by_kernel_and_layer() {
    let backends = |further: &[&str]| heedful("backends").args(TINY_MODEL).args(further).output().unwrap();
    let output = backends(&["--backend", "flex", "--launches"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--backend wgpu"), "{}", text(&output.stderr));

    let folder = tempfile::tempdir().unwrap();
    let page = succeeded(&backends(&["--backend", "wgpu", "--launches", "--out", folder.path().to_str().unwrap()]));
    assert_eq!(fs::read_to_string(folder.path().join("launches.md")).unwrap().trim_end(), page.trim_end());
    let numbers: Vec<(&str, Vec<f64>)> =
        rows(&page, "\n## wgpu").iter().map(|row| (row[0], row[1..].iter().map(|cell| cell.parse().unwrap()).collect())).collect();
    let [kernels @ .., (_, all), (_, buffers)] = &numbers[..] else { panic!("{page}") };
    for column in 0..3 {
        let sum: f64 = kernels.iter().map(|(_, numbers)| numbers[column]).sum();
        assert_eq!(sum, all[column], "{page}");
    }
    assert!(all[1] > 10.0 && all[1].fract() == 0.0, "layers are alike: {page}");
    assert!(kernels.iter().any(|(name, _)| name.to_lowercase().contains("attend")), "a layer attends: {page}");
    assert!(buffers[0] > buffers[1] && buffers[1] > 0.0, "{page}");
}

#[test]
fn a_sweep_beyond_its_memory_says_what_it_measured_and_leaves_out_the_rest() {
    let sizes = ["--batch", "64", "--lengths", "16,512,1024", "--memory", "0.005", "--seconds", "1000000"];
    let output = cost(&[&["--attention", "dot-product", "--pass", "training"], &sizes[..]].concat());
    succeeded(&output);
    let told = text(&output.stderr);
    let line = |length: usize| told.lines().find(|line| line.starts_with(&format!("flex, training at {length}, dot-product: "))).unwrap();
    assert!(line(16).ends_with("MiB"), "{told}");
    assert!(line(512).contains("left out: about") && line(1024).contains("GiB are allowed"), "{told}");
}

#[test]
fn models_that_no_memory_holds_are_refused_before_they_are_built() {
    let depth = cost_of(&["depth", "--layers", "2", "--d-model", "4000000"]);
    let halting = cost_of(&["halting", "--d-model", "4000000", "--batch", "1", "--length", "8"]);
    for output in [depth, halting] {
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("GiB are available"), "{}", text(&output.stderr));
    }
}

fn cost_of(arguments: &[&str]) -> Output {
    heedful("cost").args(arguments).output().unwrap()
}
