//! What an attention shows and what it is asked beside its output: memory, left padding, steps, losses, engines.

use super::case::{BACKENDS, Case, Tensor, Tensors, differences, drawn, same, tensor};
use super::formula::{followed, linear, scores, softmax, weighted};
use crate::command::{refused, stdout, succeeded};

const SIZES: &str = "d_model = 4\nheads = 2\nmax_length = 16\n";
const HEADS: usize = 2;

/// The example's tensors without any padding and cotangent, and with a sequence and a memory of the given lengths.
fn inputs(case: &Case, length: usize, memory: usize) -> Tensors {
    let mut tensors = case.example();
    tensors.retain(|name, _| !name.contains("padding") && !name.starts_with("cotangent") && name != "memory" && name != "steps");
    tensors.insert("x".into(), drawn("x", &[2, length, 4]));
    if memory > 0 {
        tensors.insert("memory".into(), drawn("memory", &[2, memory, 4]));
    }
    tensors
}

fn counts(values: &[usize]) -> Tensor {
    tensor(&[values.len()], values.iter().map(|&value| value as f64).collect())
}

#[test]
fn weights_have_a_column_for_each_key_with_0_for_those_out_of_reach() {
    for (attention, reach) in [
        ("{ name = \"local-1d\", query_block = 2, memory_block = 3 }", 4),
        ("{ name = \"relative\", same_length = 3 }", 3),
        ("{ name = \"adaptive-span\", max_span = 3, ramp = 2, initial = 0.5 }", 3),
        ("{ name = \"lightweight-conv\", kernel = 4, glu = false }", 3),
        ("{ name = \"lightweight-conv\", kernel = 4, glu = false, execution = \"expanded\" }", 3),
        ("{ name = \"dot-product\" }", 14),
    ] {
        let case = Case::of(&format!("{SIZES}attention = {attention}\nrole = \"decoder\""));
        let tensors = inputs(&case, 5, 10);
        case.write(&tensors);
        for backend in BACKENDS {
            let found = case.results(&["--backend", backend]);
            let weights = &found["weights"];
            assert_eq!(weights.shape, [2, HEADS, 5, 15], "{attention} on {backend}");
            for (at, weight) in weights.values.iter().enumerate() {
                let (i, j) = (10 + at / 15 % 5, at % 15);
                let is_reached = j <= i && j + reach >= i;
                assert!(is_reached || *weight == 0.0, "{attention} on {backend}: query {i} gives key {j} the weight {weight}");
            }
            // The weights are those that make the output, key by key.
            let all = followed(&tensors["memory"], &tensors["x"]);
            let (value, bias) = match tensors.get("value.weight") {
                Some(value) => (value, None),
                None => (&tensors["input.weight"], tensors.get("input.bias")),
            };
            let mixed = weighted(weights, &linear(&all, value, bias));
            same(attention, &found["output"], &linear(&mixed, &tensors["output.weight"], tensors.get("output.bias")), 1e-5);
        }
    }
}

/// The logits of `synthesizer-random` for rows that begin with padding: positions count from the first real element.
fn random(tensors: &Tensors, keys: usize, paddings: [usize; 2]) -> Tensor {
    let table = &tensors["logits.table"];
    let limit = table.shape[2];
    let logit = |b: usize, h: usize, i: usize, j: usize| {
        let padding = paddings[b];
        (j <= i && j >= padding).then(|| table.values[(h * limit + i - padding) * limit + j - padding])
    };
    softmax([2, HEADS, keys, keys], logit)
}

#[test]
fn positions_count_from_the_end_of_left_padding_in_one_pass_and_in_steps() {
    for part in ["attention", "step"] {
        let case = Case::of(&format!("{SIZES}part = \"{part}\"\nattention = \"synthesizer-random\"\nrole = \"decoder\""));
        let mut tensors = inputs(&case, 5, 0);
        tensors.insert("left_padding".into(), counts(&[2, 0]));
        if part == "step" {
            tensors.insert("steps".into(), counts(&[1, 3, 1]));
        }
        case.write(&tensors);
        let weights = random(&tensors, 5, [2, 0]);
        let output = linear(&weighted(&weights, &linear(&tensors["x"], &tensors["value.weight"], None)), &tensors["output.weight"], None);
        for backend in BACKENDS {
            let found = case.results(&["--backend", backend]);
            same(&format!("{part}, weights on {backend}"), &found["weights"], &weights, 1e-5);
            same(&format!("{part}, output on {backend}"), &found["output"], &output, 1e-5);
        }
        tensors.insert("left_padding".into(), counts(&[5, 0]));
        case.refuses_instead(&tensors, &["`left_padding`: element [0] is 5; give numbers from 0 to 4"]);
    }
}

/// Causal scaled dot products with `left` padding.
fn causal(tensors: &Tensors, x: &Tensor, sees: impl Fn(usize, usize, usize) -> bool) -> (Tensor, Tensor) {
    let map = |name: &str| linear(x, &tensors[name], None);
    let (query, key) = (map("logits.query.weight"), map("logits.key.weight"));
    let score = scores(&query, &key, HEADS);
    let weights = softmax([2, HEADS, x.shape[1], x.shape[1]], |b, h, i, j| sees(b, i, j).then(|| score(b, h, i, j)));
    let output = linear(&weighted(&weights, &map("value.weight")), &tensors["output.weight"], None);
    (output, weights)
}

#[test]
fn steps_of_any_size_are_the_causal_formula() {
    let case = Case::of(&format!("{SIZES}part = \"step\"\nrole = \"decoder\""));
    let mut tensors = inputs(&case, 6, 0);
    tensors.insert("left_padding".into(), counts(&[0, 1]));
    let mut hidden = vec![0.0; 12];
    hidden[3] = 1.0;
    tensors.insert("key_padding".into(), tensor(&[2, 6], hidden));
    let x = tensors["x"].clone();
    let sees = |b: usize, i: usize, j: usize| j <= i && j >= b && !(b == 0 && j == 3);
    for steps in [&[6][..], &[1, 2, 3], &[1; 6]] {
        tensors.insert("steps".into(), counts(steps));
        case.write(&tensors);
        let (output, weights) = causal(&tensors, &x, sees);
        for backend in BACKENDS {
            let found = case.results(&["--backend", backend]);
            same(&format!("output in {steps:?} on {backend}"), &found["output"], &output, 1e-5);
            same(&format!("weights in {steps:?} on {backend}"), &found["weights"], &weights, 1e-5);
            assert_eq!(found.keys().collect::<Vec<_>>(), ["output", "weights"]);
        }
    }
    for wrong in [&[1, 2][..], &[6, 0], &[7]] {
        tensors.insert("steps".into(), counts(wrong));
        case.refuses_instead(&tensors, &["`steps`", "sum to the 6 positions"]);
    }
    tensors.insert("steps".into(), tensor(&[2], vec![2.5, 3.5]));
    case.refuses_instead(&tensors, &["`steps`: element [0] is 2.5, not a whole number"]);
}

#[test]
fn the_gradient_reaches_what_is_carried_over_where_that_is_wanted() {
    let case = Case::of(&format!("{SIZES}role = \"decoder\"\nmemory_gradient = true"));
    let mut tensors = inputs(&case, 3, 2);
    tensors.insert("cotangent".into(), drawn("cotangent", &[2, 3, 4]));
    case.write(&tensors);
    let formula = |tensors: &Tensors| {
        let all = followed(&tensors["memory"], &tensors["x"]);
        super::formula::part(&causal(tensors, &all, |_, i, j| j <= i).0, 2, 3)
    };
    for backend in BACKENDS {
        let found = case.results(&["--backend", backend]);
        same("output", &found["output"], &formula(&tensors), 1e-5);
        for name in ["memory", "x"] {
            same(name, &found[&format!("grad.{name}")], &differences(&tensors, name, formula), 1e-4);
        }
    }
}

#[test]
fn auxiliary_losses_and_their_gradients_are_those_of_the_formula() {
    let attention = "{ name = \"adaptive-span\", max_span = 8, penalty = 0.25, initial = 0.5 }";
    let case = Case::of(&format!("{SIZES}attention = {attention}\nrole = \"decoder\""));
    let mut tensors = inputs(&case, 3, 0);
    tensors.insert("logits.span".into(), tensor(&[HEADS], vec![0.25, 0.625]));
    tensors.insert("cotangent.loss.span".into(), tensor(&[1], vec![3.0]));
    case.write(&tensors);
    for backend in BACKENDS {
        let found = case.results(&["--backend", backend]);
        same("loss.span", &found["loss.span"], &tensor(&[1], vec![0.25 * 8.0 * (0.25 + 0.625) / 2.0]), 1e-6);
        same("grad", &found["grad.logits.span"], &tensor(&[HEADS], vec![3.0 * 0.25 * 8.0 / 2.0; HEADS]), 1e-6);
        let spans = [0.25, 0.625, 0.25, 0.625].into_iter().flat_map(|span| [span * 8.0; 3]).collect();
        same("spans", &found["spans"], &tensor(&[2, HEADS, 3], spans), 1e-6);
        assert!(found["grad.x"].values.iter().all(|&gradient| gradient == 0.0), "the output has no cotangent");
    }
    let mut other = tensors.clone();
    other.insert("cotangent.loss.ponder".into(), tensor(&[1], vec![1.0]));
    case.refuses_instead(&other, &["`cotangent.loss.ponder`: no tensor of this name is known"]);
}

#[test]
fn buckets_are_the_greatest_of_the_rotated_queries_and_slots_have_weights() {
    let case = Case::of(&format!(
        "{SIZES}attention = {{ name = \"lsh\", chunk = 2, rounds = 2, buckets = 4, full_attention_below = 0 }}\nrole = \"decoder\""
    ));
    let tensors = inputs(&case, 8, 0);
    case.write(&tensors);
    let shared = linear(&tensors["x"], &tensors["query_key.weight"], None);
    let rotations = &tensors["rotations"];
    assert_eq!(rotations.shape, [2, HEADS, 2, 2]);
    let mut buckets = Vec::new();
    for (b, h, round) in (0..2).flat_map(|b| (0..HEADS).flat_map(move |h| (0..2).map(move |round| (b, h, round)))) {
        for position in 0..8 {
            let rotated = |column: usize| -> f64 {
                (0..2)
                    .map(|c| {
                        shared.values[(b * 8 + position) * 4 + h * 2 + c] * rotations.values[((round * HEADS + h) * 2 + c) * 2 + column]
                    })
                    .sum()
            };
            let all = [rotated(0), rotated(1), -rotated(0), -rotated(1)];
            buckets.push((0..4).max_by(|&a, &b| all[a].total_cmp(&all[b])).unwrap() as f64);
        }
    }
    for backend in BACKENDS {
        assert_eq!(case.results(&["--backend", backend])["buckets"], tensor(&[2, HEADS, 2, 8], buckets.clone()), "{backend}");
    }

    let case = Case::of(&format!("{SIZES}attention = {{ name = \"linformer\", rank = 3 }}"));
    case.write(&inputs(&case, 5, 0));
    let found = case.results(&[]);
    assert_eq!(found["slot_weights"].shape, [2, HEADS, 5, 3]);
    assert!(found["slot_weights"].values.chunks(3).all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-6));
    assert!(!found.contains_key("weights"));
}

#[test]
fn short_sequences_reach_the_fused_engine_by_name() {
    let case = Case::of("role = \"decoder\"");
    let mut tensors = case.example();
    tensors.retain(|name, _| !name.contains("padding") && name != "memory");
    case.write(&tensors);
    let run = |engine: &str| case.results(&["--engine", engine]);
    let (auto, fused, reference) = (run("auto"), run("fused"), run("reference"));
    assert_ne!(auto["output"], fused["output"], "6 queries are too few for tiles, which round otherwise");
    for (name, expected) in &reference {
        same(name, &auto[name], expected, 1e-4);
        same(name, &fused[name], expected, 1e-4);
    }
    refused(&case.run(&["--describe", "--engine", "fast"]), 2, &["`--engine fast`", "`engine`", "known: auto, fused, reference"]);
    refused(&case.run(&["--describe", "--attention", "lightweight-conv", "--engine", "fused"]), 2, &["`--engine fused`", "one execution"]);
    let describe = case.run(&["--describe", "--engine", "fused"]);
    succeeded(&describe);
    assert!(stdout(&describe).contains("engine = \"fused\""));
}
