//! One attention with given weights on given inputs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

use crate::command::{binary, refused, stderr, stdout, succeeded};

const BATCH: usize = 2;
const LENGTH: usize = 3;
const MEMORY: usize = 4;
const WIDTH: usize = 4;
const HEADS: usize = 2;

#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    values: Vec<f64>,
}

type Tensors = BTreeMap<String, Tensor>;

fn tensor(shape: &[usize], values: Vec<f64>) -> Tensor {
    Tensor { dtype: Dtype::F32, shape: shape.to_vec(), values }
}

/// Numbers between -1 and 1 that differ from name to name, exact in 32 bits.
fn drawn(name: &str, shape: &[usize]) -> Tensor {
    let mut state = name.bytes().fold(17u64, |state, byte| state.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let number = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 44) as f64 / f64::from(1 << 19) - 1.0
    };
    tensor(shape, (0..shape.iter().product::<usize>()).map(number).collect())
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    let number = |&value: &f64| match tensor.dtype {
        Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
        Dtype::F64 => value.to_le_bytes().to_vec(),
        Dtype::I64 => (value as i64).to_le_bytes().to_vec(),
        Dtype::F16 => vec![0; 2],
        Dtype::BOOL | Dtype::U8 => vec![value as u8],
        other => panic!("{other} is not written here"),
    };
    tensor.values.iter().flat_map(number).collect()
}

/// A folder with a configuration, in which files of tensors are made.
struct Case {
    folder: TempDir,
}

impl Case {
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sizes = format!("d_model = {WIDTH}\nheads = {HEADS}\nmax_length = 6\n");
        fs::write(folder.path().join("mechanism.toml"), format!("{sizes}{config}")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, tensors: &Tensors) {
        let stored: Vec<_> = tensors.iter().map(|(name, tensor)| (name, tensor, bytes(tensor))).collect();
        let views = stored.iter().map(|(name, tensor, bytes)| (name, TensorView::new(tensor.dtype, tensor.shape.clone(), bytes).unwrap()));
        fs::write(self.path("in.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    }

    fn run(&self, further: &[&str]) -> Output {
        let mut command = binary("parity");
        command.current_dir(self.folder.path()).args(["--config", "mechanism.toml"]).args(further);
        command.output().unwrap()
    }

    fn compute(&self, further: &[&str]) -> Output {
        self.run(&[&["--inputs", "in.safetensors", "--output", "out.safetensors"], further].concat())
    }

    fn results(&self, further: &[&str]) -> Tensors {
        succeeded(&self.compute(further));
        let bytes = fs::read(self.path("out.safetensors")).unwrap();
        let read = |view: TensorView<'_>| {
            assert_eq!(view.dtype(), Dtype::F32);
            let values = view.data().chunks(4).map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()))).collect();
            tensor(view.shape(), values)
        };
        SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter().map(|(name, view)| (name, read(view))).collect()
    }

    /// Asserts that these tensors are refused, each part of the message named, and that nothing is written.
    #[track_caller]
    fn refuses(&self, tensors: &Tensors, parts: &[&str]) {
        self.write(tensors);
        refused(&self.compute(&[]), 1, &[&["in.safetensors"], parts].concat());
        assert!(!self.path("out.safetensors").exists(), "nothing is written");
    }
}

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

#[track_caller]
fn same(name: &str, found: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(found.shape, expected.shape, "{name}");
    for (at, (found, expected)) in found.values.iter().zip(&expected.values).enumerate() {
        assert!((found - expected).abs() < tolerance, "{name}, element {at}: {found}, expected {expected}");
    }
}

/// Central differences of `sum(output * cotangent)` by a tensor.
fn differences(tensors: &Tensors, name: &str, output: impl Fn(&Tensors) -> Tensor) -> Tensor {
    const STEP: f64 = 1e-5;
    let loss = |tensors: &Tensors| -> f64 { output(tensors).values.iter().zip(&tensors["cotangent"].values).map(|(y, c)| y * c).sum() };
    let derivative = |at: usize| {
        let moved = |by: f64| {
            let mut tensors = tensors.clone();
            tensors.get_mut(name).unwrap().values[at] += by;
            loss(&tensors)
        };
        (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
    };
    tensor(&tensors[name].shape, (0..tensors[name].values.len()).map(derivative).collect())
}

#[test]
fn dot_product_is_its_formula_and_its_gradients_are_the_differences_of_the_formula() {
    for role in ["encoder", "decoder"] {
        let case = Case::new(&format!("attention = {{ name = \"dot-product\" }}\nrole = \"{role}\""));
        let mut tensors = dot_product_inputs();
        tensors.insert("key_padding".into(), padding(LENGTH, Dtype::BOOL));
        case.write(&tensors);
        let found = case.results(&[]);
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
        same("output", &found["output"], &output, 1e-5);
        same("weights", &found["weights"], &weights, 1e-5);
        let named: Vec<_> = PROJECTIONS.iter().chain(&["x"]).copied().collect();
        for name in &named {
            let expected = differences(&tensors, name, |tensors| formula(tensors).0);
            same(&format!("{role}: grad.{name}"), &found[&format!("grad.{name}")], &expected, 1e-4);
        }
        assert_eq!(found.len(), 2 + named.len(), "{:?}", found.keys());
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
fn another_backend_gives_the_same_numbers() {
    let case = Case::new("");
    case.write(&dot_product_inputs());
    let (flex, other) = (case.results(&[]), case.results(&["--backend", "ndarray"]));
    assert_eq!(flex.len(), other.len());
    for (name, expected) in flex {
        same(&name, &other[&name], &expected, 1e-5);
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
fn the_list_of_mechanisms_is_that_of_the_experiments() {
    let [parity, mt] = ["parity", "mt"].map(|name| binary(name).arg("--list").output().unwrap());
    succeeded(&parity);
    let list = stdout(&parity);
    assert!(stdout(&mt).starts_with(&list), "{}", stderr(&mt));
    assert!(list.contains("4 d^2 + H L^2") && list.contains("262,144"), "{list}");
}
