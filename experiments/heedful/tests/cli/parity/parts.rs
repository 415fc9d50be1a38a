//! Gates, halting, and what all parts have in common.

use std::collections::BTreeSet;
use std::fs;

use safetensors::tensor::Dtype;

use super::case::{BACKENDS, Case, Tensor, Tensors, differences, drawn, same, tensor};
use super::formula::{each, linear, sigmoid, sum, zipped};
use crate::command::{Run, binary, stdout, succeeded};

const SHAPE: [usize; 3] = [2, 3, 4];

fn inputs(case: &Case) -> Tensors {
    let mut tensors = case.example();
    for (name, tensor) in &mut tensors {
        *tensor = if tensor.shape == [2, 6, 4] { drawn(name, &SHAPE) } else { drawn(name, &tensor.shape.clone()) };
    }
    tensors
}

/// Output of a gate and how far it is open, from the paper.
fn gate(kind: &str, tensors: &Tensors) -> (Tensor, Tensor) {
    let (x, y) = (&tensors["x"], &tensors["y"]);
    let map = |x: &Tensor, name: &str| linear(x, &tensors[name], None);
    let bias = |x: &Tensor, sign: f64| {
        let bias = &tensors["bias"].values;
        tensor(&x.shape, x.values.iter().enumerate().map(|(at, x)| x + sign * bias[at % bias.len()]).collect())
    };
    let product = |a: &Tensor, b: &Tensor| zipped(a, b, |a, b| a * b);
    match kind {
        "input" => {
            let open = each(&map(x, "gate.weight"), sigmoid);
            (sum(&product(&open, x), y), open)
        }
        "output" => {
            let open = each(&bias(&map(x, "gate.weight"), -1.0), sigmoid);
            (sum(x, &product(&open, y)), open)
        }
        "highway" => {
            let carry = each(&bias(&map(x, "gate.weight"), 1.0), sigmoid);
            let open = each(&carry, |carry| 1.0 - carry);
            (sum(&product(&carry, x), &product(&open, y)), open)
        }
        "sig-tanh" => {
            let open = each(&bias(&map(y, "gate.weight"), -1.0), sigmoid);
            (sum(x, &product(&open, &each(&map(y, "update.weight"), f64::tanh))), open)
        }
        "gru" => {
            let both = |name: &str, x: &Tensor| sum(&map(y, &format!("{name}.0.weight")), &map(x, &format!("{name}.1.weight")));
            let reset = each(&both("reset", x), sigmoid);
            let open = each(&bias(&both("update", x), -1.0), sigmoid);
            let candidate = each(&both("candidate", &product(&reset, x)), f64::tanh);
            (sum(&product(&each(&open, |z| 1.0 - z), x), &product(&open, &candidate)), open)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn gates_are_their_formulas_and_their_gradients_are_the_differences() {
    for kind in ["input", "output", "highway", "sig-tanh", "gru"] {
        let case = Case::of(&format!("part = \"gate:{kind}\"\nd_model = 4"));
        let tensors = inputs(&case);
        case.write(&tensors);
        let (output, open) = gate(kind, &tensors);
        // Both outputs have a cotangent.
        let objective = |tensors: &Tensors| {
            let (output, open) = gate(kind, tensors);
            let own = zipped(&open, &tensors["cotangent.open"], |open, cotangent| open * cotangent);
            zipped(&output, &zipped(&own, &tensors["cotangent"], |own, cotangent| own / cotangent), |output, own| output + own)
        };
        for backend in BACKENDS {
            let found = case.results(&["--backend", backend]);
            same(&format!("{kind} on {backend}"), &found["output"], &output, 1e-5);
            same(&format!("{kind} on {backend}, open"), &found["open"], &open, 1e-5);
            let names: Vec<_> = tensors.keys().filter(|name| !name.starts_with("cotangent")).collect();
            for name in &names {
                let expected = differences(&tensors, name, objective);
                same(&format!("{kind} on {backend}, grad.{name}"), &found[&format!("grad.{name}")], &expected, 1e-4);
            }
            assert_eq!(found.len(), 2 + names.len(), "{kind}: {:?}", found.keys());
        }
    }
}

struct Halted {
    output: Tensor,
    cost: Tensor,
    steps: Tensor,
}

/// Graves 2016 position by position.
fn halt(tensors: &Tensors, interpolated: bool, before_update: bool, remainder_at_limit: bool) -> Halted {
    let updates = &tensors["updates"];
    let [limit, batch, length, width] = updates.shape[..] else { panic!("{:?}", updates.shape) };
    let (mut output, mut cost, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for position in 0..batch * length {
        let state = |step: usize| &updates.values[(step * batch * length + position) * width..][..width];
        let probability = |step: usize| {
            let read = match (before_update, step) {
                (false, step) => state(step),
                (true, 0) => &tensors["x"].values[position * width..][..width],
                (true, step) => state(step - 1),
            };
            sigmoid(read.iter().zip(&tensors["unit.weight"].values).map(|(x, w)| x * w).sum::<f64>() + tensors["unit.bias"].values[0])
        };
        let (mut halting, mut blended, mut taken, mut remainder) = (0.0, vec![0.0; width], 0, 0.0);
        let is_real = tensors.get("padding").is_none_or(|padding| padding.values[position] == 0.0);
        for step in (0..limit).take_while(|_| is_real) {
            let own = probability(step);
            let halts = halting + own >= 0.99 || (remainder_at_limit && step + 1 == limit);
            let weight = if halts { 1.0 - halting } else { own };
            let kept = if interpolated { 1.0 - weight } else { 1.0 };
            blended = blended.iter().zip(state(step)).map(|(old, new)| kept * old + weight * new).collect();
            taken += 1;
            if halts {
                remainder = 1.0 - halting;
                break;
            }
            halting += own;
        }
        output.extend(blended);
        cost.push(f64::from(taken) + remainder);
        steps.push(f64::from(taken));
    }
    let of_positions = |values| tensor(&[batch, length], values);
    Halted { output: tensor(&[batch, length, width], output), cost: of_positions(cost), steps: of_positions(steps) }
}

#[test]
fn halting_is_its_formula_and_its_gradients_are_the_differences() {
    for (options, interpolated, before_update, remainder_at_limit) in [
        ("", false, false, true),
        ("blend = \"interpolated\"", true, false, true),
        ("blend = \"interpolated\", remainder_at_limit = false, before_update = true", true, true, false),
    ] {
        let case = Case::of(&format!("part = \"halting\"\nd_model = 4\nhalting = {{ {options} }}"));
        let mut tensors = case.example();
        for (name, tensor) in &mut tensors {
            *tensor = drawn(name, &tensor.shape.clone());
        }
        let mut padding = vec![0.0; 12];
        padding[11] = 1.0;
        tensors.insert("padding".into(), Tensor { dtype: Dtype::BOOL, ..tensor(&[2, 6], padding) });
        case.write(&tensors);
        let halted = |tensors: &Tensors| halt(tensors, interpolated, before_update, remainder_at_limit);
        let Halted { output, cost, steps } = halted(&tensors);
        assert!(steps.values.contains(&2.0) && steps.values.contains(&4.0) && steps.values[11] == 0.0, "{steps:?}");
        let objective = |tensors: &Tensors| {
            let Halted { output, cost, .. } = halted(tensors);
            let cotangent = &tensors["cotangent"].values;
            // The cost is joined to the first channel of its position.
            let joined = output.values.iter().enumerate().map(|(at, output)| match at % 4 {
                0 => output + cost.values[at / 4] * tensors["cotangent.cost"].values[at / 4] / cotangent[at],
                _ => *output,
            });
            tensor(&output.shape, joined.collect())
        };
        let names: Vec<_> = ["updates", "unit.weight", "unit.bias"].into_iter().chain(before_update.then_some("x")).collect();
        for backend in BACKENDS {
            let found = case.results(&["--backend", backend]);
            same(&format!("output on {backend}"), &found["output"], &output, 1e-5);
            same(&format!("cost on {backend}"), &found["cost"], &cost, 1e-5);
            assert_eq!(found["halting_steps"], steps, "{backend}");
            for name in &names {
                let expected = differences(&tensors, name, objective);
                same(&format!("{options}, grad.{name} on {backend}"), &found[&format!("grad.{name}")], &expected, 2e-6);
            }
            assert_eq!(found.len(), 3 + names.len(), "{:?}", found.keys());
        }
    }
}

/// The parts of `--list` with what they need to run.
fn parts() -> Vec<(String, Vec<&'static str>)> {
    let list = stdout(&binary("parity").arg("--list").output().unwrap());
    let names = list.lines().skip(1).take_while(|line| !line.is_empty()).map(|line| line.split(' ').next().unwrap().to_owned());
    let parts: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    assert_eq!(parts.len(), 14, "{parts:?}");
    let further = |name: &str| match name {
        "step" => vec!["--set", "role=decoder"],
        "block" => vec!["--set", "block.gate=gru", "--set", "cross=dot-product", "--set", "role=decoder"],
        "stack" => vec!["--attention", "adaptive-span", "--set", "layers=2", "--set", "role=decoder", "--set", "positions=per-layer"],
        "stack:shared" => vec!["--set", "layers=3", "--set", "halting={}", "--set", "positions=learned"],
        "stack:reversible" => {
            vec!["--attention", "lsh", "--set", "attention={full_attention_below=0, chunk=2, name=\"lsh\"}", "--set", "layers=2"]
        }
        "segments" => vec!["--attention", "relative", "--set", "layers=2", "--set", "memory_length=4"],
        "segments:shared" => vec!["--set", "layers=2", "--set", "halting={}"],
        _ => Vec::new(),
    };
    parts
        .into_iter()
        .map(|name| {
            let further = further(&name);
            (name, further)
        })
        .collect()
}

/// Names and ranks of the tensors that a table of `--describe` has.
fn described(table: &str) -> BTreeSet<(String, usize)> {
    let rows = table.lines().filter_map(|line| {
        // Lines that go on with a meaning have no name.
        let (name, rest) = line.split_once("  ").filter(|(name, _)| !name.is_empty())?;
        let shape = rest.trim_start().strip_prefix('[')?.split_once(']')?.0;
        Some((name.to_owned(), shape.split(',').count()))
    });
    rows.collect()
}

fn found(tensors: &Tensors) -> BTreeSet<(String, usize)> {
    // Segments are described once for all.
    let general = |name: &str| {
        let parts = name.split('.').collect::<Vec<_>>();
        let is_number = |at: usize| at > 0 && parts[at - 1] == "segments";
        (0..parts.len()).map(|at| if is_number(at) { "NUMBER" } else { parts[at] }).collect::<Vec<_>>().join(".")
    };
    tensors.iter().map(|(name, tensor)| (general(name), tensor.shape.len())).collect()
}

#[test]
fn every_part_runs_on_its_example_alike_on_all_backends_and_is_described_as_it_is() {
    for (part, further) in parts() {
        let case = Case::of(&format!("part = \"{part}\"\nd_model = 8"));
        let run = |own: &[&str]| {
            let output = case.run(&[own, &further].concat());
            eprintln!("{part} {own:?}");
            succeeded(&output);
            output
        };
        let text = stdout(&run(&["--describe"]));
        let (inputs, outputs) = text.split_once("# Inputs").unwrap().1.split_once("# Output").unwrap();
        run(&["--example", "in.safetensors"]);
        assert_eq!(found(&case.read("in.safetensors")), described(inputs), "{part}");
        let mut results = Vec::new();
        for backend in BACKENDS {
            run(&["--inputs", "in.safetensors", "--output", "out.safetensors", "--backend", backend]);
            results.push(case.read("out.safetensors"));
        }
        assert_eq!(found(&results[0]), described(outputs), "{part}");
        for (backend, other) in BACKENDS.iter().zip(&results).skip(1) {
            assert_eq!(results[0].len(), other.len());
            for (name, expected) in &results[0] {
                let size = expected.values.iter().fold(1.0, |most: f64, value| most.max(value.abs()));
                same(&format!("{part} on {backend}: {name}"), &other[name], expected, 1e-4 * size);
            }
        }
    }
}

#[test]
fn what_means_nothing_to_a_part_is_refused() {
    let refuse = |arguments: &[&str], parts: &[&str]| {
        binary("parity").arg("--describe").args(arguments).refuses(2, parts);
    };
    refuse(&["--part", "gate:gur"], &["`--part gate:gur`", "did you mean `gate:gru`?"]);
    refuse(&["--part", "gate:gru", "--attention", "lsh"], &["`attention`", "no effect on the part `gate:gru`", "leave it out"]);
    refuse(&["--part", "gate:gru", "--engine", "fused"], &["`--engine fused`", "no effect on the part"]);
    refuse(&["--part", "halting", "--set", "halting.freeze=false"], &["`--set halting.freeze=false`", "where the updates are given"]);
    refuse(&["--part", "halting", "--set", "halting.epsilon=2"], &["`halting.epsilon`", "is 2", "probability"]);
    refuse(&["--part", "step"], &["`role`", "an encoder takes no steps"]);
    refuse(&["--part", "step", "--set", "role=cross", "--attention", "lsh"], &["cross-attention"]);
    refuse(&["--part", "block", "--set", "role=cross"], &["`role`", "attend to themselves"]);
    refuse(&["--part", "block", "--set", "block.gate=gru", "--set", "block.norm_order=post"], &["`block.norm_order`", "give pre"]);
    refuse(&["--part", "stack:reversible", "--set", "block.norm_order=post"], &["`--set block.norm_order=post`", "give pre"]);
    refuse(&["--part", "stack", "--set", "halting={}"], &["`halting`", "no effect on the part `stack`"]);
    refuse(&["--part", "stack", "--set", "positions=learned"], &["`positions`", "per-layer"]);
    refuse(&["--part", "segments", "--set", "block.separable_feed_forward=true"], &["do not remember"]);
    refuse(&["--set", "role=cross", "--set", "memory_gradient=true"], &["`memory_gradient`", "returns it always"]);
    refuse(&["--attention", "gausian"], &["--attention", "gausian"]);
    refuse(&["--set", "d_model"], &["`--set d_model`", "there is no `=`"]);
}

#[test]
fn the_commands_of_the_document_run() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/parity.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut run = BTreeSet::new();
    for command in text.lines().filter_map(|line| line.trim().strip_prefix("heedful parity ")) {
        let words: Vec<_> = command.split_whitespace().collect();
        eprintln!("heedful parity {command}");
        binary("parity").args(&words).current_dir(folder.path()).succeeds();
        if words.contains(&"--inputs") {
            run.extend(words.iter().position(|word| *word == "--part").map(|at| words[at + 1].to_owned()));
        }
    }
    let missing: Vec<_> = parts().into_iter().map(|(part, _)| part).filter(|part| part != "attention" && !run.contains(part)).collect();
    assert!(missing.is_empty(), "the document has no command for {missing:?}");
}
