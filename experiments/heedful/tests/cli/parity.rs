//! One part of a model with given weights on given inputs.

mod attention;
mod blocks;
mod case;
mod formula;
mod parts;

use std::fs;

use safetensors::tensor::Dtype;

use self::case::{BACKENDS, BATCH, Case, HEADS, LENGTH, MEMORY, Tensor, Tensors, WIDTH, differences, drawn, same, tensor};
use crate::command::{Run, binary, refused, stderr, stdout, succeeded};

const PROJECTIONS: [&str; 4] = ["logits.query.weight", "logits.key.weight", "value.weight", "output.weight"];

fn dot_product_inputs() -> Tensors {
    let mut tensors: Tensors = PROJECTIONS.iter().map(|name| ((*name).to_owned(), drawn(name, &[WIDTH, WIDTH]))).collect();
    for name in ["x", "cotangent"] {
        tensors.insert(name.to_owned(), drawn(name, &[BATCH, LENGTH, WIDTH]));
    }
    tensors
}

fn padding(keys: usize, dtype: Dtype) -> Tensor {
    let values = (0..BATCH * keys).map(|at| f64::from(u8::from(at == 0 || at == BATCH * keys - 1))).collect();
    Tensor { dtype, ..tensor(&[BATCH, keys], values) }
}

/// Scaled dot-product attention in loops: its output and weights. `memory` holds what is attended to.
fn dot_product(tensors: &Tensors, memory: &Tensor, sees: impl Fn(usize, usize, usize) -> bool) -> (Tensor, Tensor) {
    let project = |x: &Tensor, weight: &str| {
        let weight = &tensors[weight].values;
        let rows = x.values.chunks(WIDTH);
        let row = |x: &[f64]| (0..WIDTH).map(|out| (0..WIDTH).map(|c| x[c] * weight[c * WIDTH + out]).sum()).collect::<Vec<f64>>();
        tensor(&x.shape, rows.flat_map(row).collect())
    };
    let x = &tensors["x"];
    let (queries, keys) = (x.shape[1], memory.shape[1]);
    let (query, key, value) = (project(x, "logits.query.weight"), project(memory, "logits.key.weight"), project(memory, "value.weight"));
    let width = WIDTH / HEADS;
    let mut weights = tensor(&[BATCH, HEADS, queries, keys], vec![0.0; BATCH * HEADS * queries * keys]);
    let mut mixed = tensor(&x.shape, vec![0.0; x.values.len()]);
    for b in 0..BATCH {
        for h in 0..HEADS {
            for i in 0..queries {
                let exponential = |j: usize| {
                    let at = |x: &Tensor, row: usize, c: usize| x.values[(b * x.shape[1] + row) * WIDTH + h * width + c];
                    let logit: f64 = (0..width).map(|c| at(&query, i, c) * at(&key, j, c)).sum();
                    if sees(b, i, j) { (logit / (width as f64).sqrt()).exp() } else { 0.0 }
                };
                let exponentials: Vec<f64> = (0..keys).map(exponential).collect();
                let sum: f64 = exponentials.iter().sum();
                for (j, exponential) in exponentials.iter().enumerate() {
                    let weight = exponential / sum;
                    weights.values[((b * HEADS + h) * queries + i) * keys + j] = weight;
                    for c in h * width..(h + 1) * width {
                        mixed.values[(b * queries + i) * WIDTH + c] += weight * value.values[(b * keys + j) * WIDTH + c];
                    }
                }
            }
        }
    }
    (project(&mixed, "output.weight"), weights)
}

#[test]
fn dot_product_is_its_formula_and_its_gradients_are_the_differences_of_the_formula() {
    for role in ["encoder", "decoder"] {
        let case = Case::new(&format!("attention = {{ name = \"dot-product\" }}\nrole = \"{role}\""));
        let mut tensors = dot_product_inputs();
        tensors.insert("key_padding".into(), padding(LENGTH, Dtype::BOOL));
        case.write(&tensors);
        // The first key of the first row is padding, so that its first query sees nothing when it is causal.
        let hidden = |b: usize, j: usize| b * LENGTH + j == 0 || b * LENGTH + j == BATCH * LENGTH - 1;
        let sees = |b: usize, i: usize, j: usize| !hidden(b, j) && (role == "encoder" || j <= i);
        let formula = |tensors: &Tensors| {
            let (mut output, mut weights) = dot_product(tensors, &tensors["x"], sees);
            for values in [&mut output.values, &mut weights.values] {
                values.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = 0.0);
            }
            (output, weights)
        };
        let (output, weights) = formula(&tensors);
        let named: Vec<_> = PROJECTIONS.iter().chain(&["x"]).copied().collect();
        for backend in BACKENDS {
            let found = case.results(&["--backend", backend]);
            same("output", &found["output"], &output, 1e-5);
            same("weights", &found["weights"], &weights, 1e-5);
            for name in &named {
                let expected = differences(&tensors, name, |tensors| formula(tensors).0);
                same(&format!("{role}: grad.{name}"), &found[&format!("grad.{name}")], &expected, 1e-4);
            }
            assert_eq!(found.len(), 2 + named.len(), "{:?}", found.keys());
        }
    }
}

#[test]
fn cross_attention_has_a_gradient_for_what_it_attends_to() {
    let case = Case::new("role = \"cross\"");
    let mut tensors = dot_product_inputs();
    tensors.insert("memory".into(), drawn("memory", &[BATCH, MEMORY, WIDTH]));
    tensors.insert("key_padding".into(), padding(MEMORY, Dtype::I64));
    case.write(&tensors);
    let found = case.results(&[]);
    let sees = |b: usize, _: usize, j: usize| !(b * MEMORY + j == 0 || b * MEMORY + j == BATCH * MEMORY - 1);
    let formula = |tensors: &Tensors| dot_product(tensors, &tensors["memory"], sees);
    same("output", &found["output"], &formula(&tensors).0, 1e-5);
    same("weights", &found["weights"], &formula(&tensors).1, 1e-5);
    for name in ["x", "memory", "logits.key.weight"] {
        let expected = differences(&tensors, name, |tensors| formula(tensors).0);
        same(name, &found[&format!("grad.{name}")], &expected, 1e-4);
    }
}

#[test]
fn a_carried_memory_is_attended_to_before_the_sequence_without_a_gradient() {
    let case = Case::new("role = \"decoder\"");
    let mut tensors = dot_product_inputs();
    let (x, memory) = (tensors["x"].clone(), drawn("memory", &[BATCH, 2, WIDTH]));
    tensors.insert("memory".into(), memory.clone());
    case.write(&tensors);
    let found = case.results(&[]);
    let rows = memory.values.chunks(2 * WIDTH).zip(x.values.chunks(LENGTH * WIDTH));
    let whole = tensor(&[BATCH, 2 + LENGTH, WIDTH], rows.flat_map(|(memory, x)| [memory, x].concat()).collect());
    same("output", &found["output"], &dot_product(&tensors, &whole, |_, i, j| j <= i + 2).0, 1e-5);
    assert!(!found.contains_key("grad.memory") && found.contains_key("grad.x"));
}

#[test]
fn frozen_tables_are_given_like_weights_and_have_no_gradient() {
    let case = Case::new("attention = \"synthesizer-random-fixed\"\n");
    let mut tensors = dot_product_inputs();
    tensors.retain(|name, _| !name.starts_with("logits."));
    tensors.insert("logits.frozen_table".into(), tensor(&[HEADS, 6, 6], vec![0.5; HEADS * 36]));
    case.write(&tensors);
    let found = case.results(&[]);
    // Equal logits give equal weights.
    same("weights", &found["weights"], &tensor(&[BATCH, HEADS, LENGTH, LENGTH], vec![1.0 / 3.0; BATCH * HEADS * 9]), 1e-6);
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["grad.output.weight", "grad.value.weight", "grad.x", "output", "weights"]);
}

#[test]
fn padding_may_be_of_any_type_and_numbers_of_64_bits() {
    let case = Case::new("");
    let mut tensors = dot_product_inputs();
    let mut outputs = Vec::new();
    for dtype in [Dtype::BOOL, Dtype::U8, Dtype::I64, Dtype::F32, Dtype::F64] {
        tensors.insert("key_padding".into(), padding(LENGTH, dtype));
        case.write(&tensors);
        outputs.push(case.results(&[]));
    }
    tensors.values_mut().for_each(|tensor| tensor.dtype = Dtype::F64);
    case.write(&tensors);
    outputs.push(case.results(&[]));
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    tensors.remove("cotangent");
    case.write(&tensors);
    assert_eq!(case.results(&[]).into_keys().collect::<Vec<_>>(), ["output", "weights"]);
}

#[cfg(feature = "ndarray")]
#[test]
fn ndarray_gives_the_same_numbers() {
    let case = Case::new("");
    case.write(&dot_product_inputs());
    let (flex, other) = (case.results(&[]), case.results(&["--backend", "ndarray"]));
    assert_eq!(flex.len(), other.len());
    for (name, expected) in flex {
        same(&name, &other[&name], &expected, 1e-5);
    }
}

#[test]
fn a_cotangent_changes_no_output_on_any_backend() {
    let case = Case::new("");
    let mut tensors = dot_product_inputs();
    for backend in BACKENDS {
        case.write(&tensors);
        let with = case.results(&["--backend", backend]);
        let cotangent = tensors.remove("cotangent").unwrap();
        case.write(&tensors);
        let without = case.results(&["--backend", backend]);
        assert!(without.len() < with.len());
        for (name, expected) in without {
            assert_eq!(with[&name], expected, "{name} on {backend}");
        }
        tensors.insert("cotangent".into(), cotangent);
    }
}

#[test]
fn a_missing_misspelt_or_unknown_tensor_is_named() {
    let case = Case::new("");
    let mut tensors = dot_product_inputs();
    let query = tensors.remove("logits.query.weight").unwrap();
    case.refuses(&tensors, &["`logits.query.weight`: is missing", "[4, 4]"]);
    tensors.insert("logits.query.wieght".into(), query.clone());
    case.refuses(&tensors, &["`logits.query.wieght`", "did you mean `logits.query.weight`?"]);
    tensors.remove("logits.query.wieght");
    tensors.insert("logits.query.weight".into(), query);
    tensors.insert("in_proj_bias".into(), drawn("bias", &[12]));
    case.refuses(&tensors, &["`in_proj_bias`", "leave it out", "--describe"]);
    tensors.remove("in_proj_bias");
    let x = tensors.remove("x").unwrap();
    case.refuses(&tensors, &["`x`: is missing", "[batch, length, 4]"]);
    tensors.insert("x".into(), x);
    let case = Case::new("role = \"cross\"");
    case.refuses(&tensors, &["`memory`: is missing", "[batch = 2, memory, 4]"]);
}

#[test]
fn a_tensor_of_another_shape_type_or_range_is_named() {
    let case = Case::new("");
    let good = dot_product_inputs();
    let refuse = |name: &str, other: Tensor, parts: &[&str]| {
        let mut tensors = good.clone();
        tensors.insert(name.to_owned(), other);
        case.refuses(&tensors, &[&[format!("`{name}`").as_str()], parts].concat());
    };
    refuse("value.weight", drawn("value", &[4, 8]), &["has the shape [4, 8], and not [4, 4]"]);
    refuse("x", drawn("x", &[LENGTH, WIDTH]), &["has the shape [3, 4], and not [batch, length, 4]"]);
    refuse("x", drawn("x", &[BATCH, 0, WIDTH]), &["has the shape [2, 0, 4]"]);
    refuse("cotangent", drawn("cotangent", &[BATCH, 2, WIDTH]), &["and not [batch = 2, length = 3, 4]"]);
    refuse("key_padding", padding(4, Dtype::BOOL), &["and not [batch = 2, keys = 3]"]);
    let mut other = padding(LENGTH, Dtype::F32);
    other.values[4] = 0.5;
    refuse("key_padding", other, &["element [1, 1] is 0.5, neither 0 nor 1"]);
    for (value, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (1e300, "inf")] {
        let mut other = Tensor { dtype: Dtype::F64, ..good["output.weight"].clone() };
        other.values[6] = value;
        refuse("output.weight", other, &["element [1, 2]", shown, "not a finite"]);
    }
    refuse("x", Tensor { dtype: Dtype::F16, ..good["x"].clone() }, &["is of type F16", "save it as F32"]);
    refuse("x", Tensor { dtype: Dtype::I64, ..good["x"].clone() }, &["is of type I64", "save it as F32"]);
}

#[test]
fn a_sequence_over_the_maximal_length_is_refused() {
    let case = Case::new("attention = { name = \"synthesizer-random\" }");
    let mut tensors = dot_product_inputs();
    tensors.retain(|name, _| !name.starts_with("logits."));
    tensors.insert("logits.table".into(), drawn("table", &[HEADS, 6, 6]));
    tensors.insert("memory".into(), drawn("memory", &[BATCH, 4, WIDTH]));
    case.refuses(&tensors, &["`x`", "7 positions (`memory` and `x`) exceed max_length = 6"]);
}

#[test]
fn a_file_that_is_missing_or_not_whole_is_named() {
    let case = Case::new("");
    refused(&case.compute(&[]), 1, &["cannot read `in.safetensors`"]);
    case.write(&dot_product_inputs());
    let whole = fs::read(case.path("in.safetensors")).unwrap();
    for cut in [0, 5, 100, whole.len() - 1] {
        fs::write(case.path("in.safetensors"), &whole[..cut]).unwrap();
        refused(&case.compute(&[]), 1, &["`in.safetensors` is no whole safetensors file"]);
    }
    fs::write(case.path("in.safetensors"), &whole).unwrap();
    let output = case.run(&["--inputs", "in.safetensors", "--output", "nowhere/out.safetensors"]);
    refused(&output, 1, &["nowhere/out.safetensors"]);
}

#[test]
fn a_wrong_field_of_the_configuration_is_a_usage_error_that_names_it() {
    let refuse = |config: &str, parts: &[&str]| refused(&Case::new(config).run(&["--describe"]), 2, &[&["mechanism.toml"], parts].concat());
    refuse("rolle = \"decoder\"", &["mechanism.toml:4", "`rolle`", "did you mean `role`?"]);
    refuse("role = \"decodr\"", &["`role`", "did you mean `decoder`?"]);
    refuse("attention = { name = \"gausian\" }", &["`attention.name`", "did you mean `gaussian`?"]);
    refuse("attention = { widow = 3, name = \"gaussian\" }", &["unknown field `widow` in `attention`", "did you mean `window`?"]);
    refuse("attention = { window = \"wide\", name = \"gaussian\" }", &["`attention.window`", "whole number"]);
    refuse("attention = { name = \"gaussian\", deviations = [0] }", &["`attention`", "deviations", "greater than 0"]);
    refuse("attention = \"linear\"", &["`attention`", "`linear`", "dot-product"]);
    refuse("attention = \"synthesizer-random\"\nrole = \"cross\"", &["cross-attention"]);
    refuse("layer = 2", &["mechanism.toml:4", "`layer`", "layer 2 of 1"]);
    refuse("layers = 0", &["`layers`", "at least 1"]);
    refuse("seed = -1", &["`seed`", "whole number"]);
    let case = Case::new("");
    let sizes = |text: &str| fs::write(case.path("mechanism.toml"), text).unwrap();
    sizes("d_model = 8\nheads = 3");
    refused(&case.run(&["--describe"]), 2, &["mechanism.toml:2", "`heads` is 3", "divisor of d_model = 8"]);
    sizes("max_length = 0");
    refused(&case.run(&["--describe"]), 2, &["`max_length`", "at least 1"]);
    fs::remove_file(case.path("mechanism.toml")).unwrap();
    refused(&case.run(&["--describe"]), 2, &["mechanism.toml", "--config"]);
}

#[test]
fn a_command_that_cannot_be_meant_is_a_usage_error() {
    let case = Case::new("");
    for further in [&[][..], &["--inputs", "in.safetensors"], &["--describe", "--inputs", "in.safetensors"], &["--descripe"]] {
        assert_eq!(case.run(further).status.code(), Some(2), "{further:?}");
    }
    case.write(&dot_product_inputs());
    refused(&case.compute(&["--backend", "flax"]), 2, &["flax", "did you mean `flex`"]);
    assert_eq!(binary("parity").output().unwrap().status.code(), Some(2));
}

#[test]
fn describe_names_every_tensor_with_its_shape_and_the_defaults_of_the_configuration() {
    let case = Case::new(
        "attention = { name = \"mixture\", members = [{ name = \"synthesizer-random\", trainable = false }, { name = \"dot-product\" }] }",
    );
    let output = case.run(&["--describe"]);
    succeeded(&output);
    let text = stdout(&output);
    let lines = |name: &str| text.lines().filter(|line| line.split_whitespace().next() == Some(name)).collect::<Vec<_>>();
    for (name, shape) in [
        ("logits.members.0.frozen_table", "[2, 6, 6]"),
        ("logits.members.1.query.weight", "[4, 4]"),
        ("logits.head_weights", "[2, 2]"),
        ("x", "[batch, length, 4]"),
        ("key_padding", "[batch, keys]"),
        ("cotangent", "[batch, length, 4]"),
        ("weights", "[batch, 2, length, keys]"),
        ("grad.logits.head_weights", "[2, 2]"),
    ] {
        assert!(lines(name).iter().any(|line| line.contains(shape)), "{name} {shape} is missing in\n{text}");
    }
    assert!(lines("grad.logits.members.0.frozen_table").is_empty());
    assert!(text.contains("init_std = 1.0") && text.contains("layers = 1") && text.contains("role = \"encoder\""), "{text}");
}

#[test]
fn the_list_of_mechanisms_is_that_of_the_experiments_and_advises_options_that_there_are() {
    let [parity, mt] = [binary("parity"), binary("mt")].map(|mut program| program.arg("--list").output().unwrap());
    succeeded(&parity);
    let (list, of_experiments) = (stdout(&parity), stdout(&mt));
    let tables = of_experiments.split("Options:").next().unwrap();
    assert!(tables.contains("4 d^2 + H L^2") && list.contains(tables), "{list}{}", stderr(&mt));
    let help = stdout(&binary("parity").arg("--help").output().unwrap());
    let advised: Vec<_> = list.split_whitespace().filter(|word| word.starts_with("--")).collect();
    assert!(advised.contains(&"--set") && advised.contains(&"--part"), "{list}");
    for option in advised {
        assert!(help.split_whitespace().any(|word| word == option), "{option} is advised and there is no such option\n{help}");
    }
    let example = list.lines().find(|line| line.starts_with("e.g. ")).unwrap();
    let arguments: Vec<_> = example.split_whitespace().skip(1).collect();
    let output = binary("parity").args(&arguments).arg("--describe").succeeds();
    assert!(stdout(&output).contains("logits.frozen_table"), "{}", stdout(&output));
}
