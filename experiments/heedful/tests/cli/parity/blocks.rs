//! Blocks, stacks of them, and stacks that read segments.

use super::case::{BACKENDS, Case, Tensor, Tensors, differences, drawn, same, tensor};
use super::formula::{each, followed, layer_norm, linear, part, scores, sigmoid, softmax, sum, weighted};

const SIZES: &str = "d_model = 4\nheads = 2\nmax_length = 10\nblock = { d_ff = 6 OPTIONS }\n";
const HEADS: usize = 2;

fn case(name: &str, options: &str, further: &str) -> (Case, Tensors) {
    // Stacks that read segments are causal always.
    let role = if name == "segments" { "" } else { "role = \"decoder\"\n" };
    let case = Case::of(&format!("part = \"{name}\"\n{role}{}{further}", SIZES.replace(" OPTIONS", options)));
    let mut tensors = case.example();
    tensors.retain(|name, _| {
        !["left_padding", "lengths", "carried", "memory", "remembered"].contains(&name.as_str()) && !name.starts_with("cotangent.")
    });
    for (name, tensor) in &mut tensors {
        if name != "segments" {
            *tensor = drawn(name, &tensor.shape.clone());
        }
    }
    (case, tensors)
}

/// The sublayers of the block whose parameters begin with `block`.
struct Block<'a> {
    tensors: &'a Tensors,
    block: &'a str,
}

impl Block<'_> {
    fn parameter(&self, name: &str) -> &Tensor {
        &self.tensors[&format!("{}{name}", self.block)]
    }

    fn norm(&self, sublayer: &str, x: &Tensor) -> Tensor {
        let parameter = |name: &str| self.parameter(&format!("{sublayer}_residual.norm.{name}"));
        layer_norm(x, parameter("gamma"), parameter("beta"))
    }

    /// Causal attention from `x` to what was before and to itself.
    fn attention(&self, x: &Tensor, before: Option<&Tensor>) -> Tensor {
        let all = before.map_or_else(|| x.clone(), |before| followed(before, x));
        let start = all.shape[1] - x.shape[1];
        let map = |x: &Tensor, name: &str| linear(x, self.parameter(&format!("self_attention.{name}.weight")), None);
        let (query, key) = (map(x, "logits.query"), map(&all, "logits.key"));
        let score = scores(&query, &key, HEADS);
        let weights = softmax([x.shape[0], HEADS, x.shape[1], all.shape[1]], |b, h, i, j| (j <= i + start).then(|| score(b, h, i, j)));
        map(&weighted(&weights, &map(&all, "value")), "output")
    }

    fn feed_forward(&self, x: &Tensor) -> Tensor {
        let map = |x: &Tensor, name: &str| {
            linear(x, self.parameter(&format!("feed_forward.{name}.weight")), Some(self.parameter(&format!("feed_forward.{name}.bias"))))
        };
        map(&each(&map(x, "input"), |x| x.max(0.0)), "output")
    }

    fn post(&self, x: &Tensor) -> Tensor {
        let x = self.norm("self_attention", &sum(x, &self.attention(x, None)));
        self.norm("feed_forward", &sum(&x, &self.feed_forward(&x)))
    }

    fn pre(&self, x: &Tensor, before: Option<&Tensor>) -> Tensor {
        let norm = |x: &Tensor| self.norm("self_attention", x);
        let x = sum(x, &self.attention(&norm(x), before.map(norm).as_ref()));
        sum(&x, &self.feed_forward(&self.norm("feed_forward", &x)))
    }
}

fn final_norm(tensors: &Tensors, x: &Tensor) -> Tensor {
    layer_norm(x, &tensors["norm.gamma"], &tensors["norm.beta"])
}

/// Asserts the output on all backends, and that the gradients by some tensors are the differences of the formula.
#[track_caller]
fn assert_is(case: &Case, tensors: &Tensors, names: &[&str], formula: impl Fn(&Tensors) -> Tensor) {
    case.write(tensors);
    for backend in BACKENDS {
        let found = case.results(&["--backend", backend]);
        same(&format!("output on {backend}"), &found["output"], &formula(tensors), 2e-5);
        for name in names {
            let expected = differences(tensors, name, &formula);
            same(&format!("grad.{name} on {backend}"), &found[&format!("grad.{name}")], &expected, 2e-5);
        }
    }
}

#[test]
fn blocks_are_their_formulas_with_normalisation_after_and_before() {
    let (post, tensors) = case("block", ", norm_order = \"post\"", "");
    assert_is(&post, &tensors, &["x", "feed_forward.input.weight"], |tensors| Block { tensors, block: "" }.post(&tensors["x"]));
    let (pre, mut tensors) = case("block", "", "memory_gradient = true");
    tensors.insert("carried".into(), drawn("carried", &[2, 3, 4]));
    let formula = |tensors: &Tensors| Block { tensors, block: "" }.pre(&tensors["x"], Some(&tensors["carried"]));
    assert_is(&pre, &tensors, &["x", "carried", "self_attention_residual.norm.gamma"], formula);
}

#[test]
fn reversible_stacks_are_their_formula() {
    let (case, tensors) = case("stack:reversible", "", "layers = 2");
    assert_is(&case, &tensors, &["x", "layers.0.feed_forward.output.bias", "layers.1.self_attention.value.weight"], |tensors| {
        let (mut first, mut second) = (tensors["x"].clone(), tensors["x"].clone());
        for block in ["layers.0.", "layers.1."] {
            let block = Block { tensors, block };
            first = sum(&first, &block.attention(&block.norm("self_attention", &second), None));
            second = sum(&second, &block.feed_forward(&block.norm("feed_forward", &first)));
        }
        final_norm(tensors, &each(&sum(&first, &second), |x| x / 2.0))
    });
}

#[test]
fn shared_stacks_halt_position_by_position() {
    let (case, mut tensors) =
        case("stack:shared", ", final_norm = false", "layers = 3\nstep_signal = \"none\"\nhalting = { ponder_weight = 0.5 }");
    tensors.insert("cotangent.loss.ponder".into(), tensor(&[1], vec![2.0]));
    tensors.insert("halting.unit.bias".into(), tensor(&[1], vec![-0.2]));
    let run = |tensors: &Tensors| {
        let block = Block { tensors, block: "layers.0." };
        let mut states = tensors["x"].clone();
        let mut output = each(&states, |_| 0.0);
        let (mut halting, mut cost, mut is_running) = (vec![0.0; 12], vec![0.0; 12], vec![true; 12]);
        for step in 0..3 {
            let updated = block.pre(&states, None);
            let unit = each(&linear(&updated, &tensors["halting.unit.weight"], Some(&tensors["halting.unit.bias"])), sigmoid);
            for position in (0..12).filter(|&position| is_running[position]).collect::<Vec<_>>() {
                let halts = halting[position] + unit.values[position] >= 0.99 || step == 2;
                let weight = if halts { 1.0 - halting[position] } else { unit.values[position] };
                for at in position * 4..position * 4 + 4 {
                    output.values[at] += weight * updated.values[at];
                    states.values[at] = updated.values[at];
                }
                cost[position] += 1.0 + if halts { 1.0 - halting[position] } else { 0.0 };
                halting[position] += unit.values[position];
                is_running[position] = !halts;
            }
        }
        (output, cost.iter().sum::<f64>() * 0.5 / 12.0)
    };
    let formula = |tensors: &Tensors| {
        let (mut output, ponder) = run(tensors);
        // The loss is joined to the first element.
        output.values[0] += ponder * 2.0 / tensors["cotangent"].values[0];
        output
    };
    case.write(&tensors);
    let (output, ponder) = run(&tensors);
    for backend in BACKENDS {
        let found = case.results(&["--backend", backend]);
        assert!(found["halting_steps"].values.contains(&2.0), "{:?}", found["halting_steps"]);
        same("output", &found["output"], &output, 2e-5);
        same("loss.ponder", &found["loss.ponder"], &tensor(&[1], vec![ponder]), 1e-5);
        for name in ["x", "halting.unit.weight", "layers.0.feed_forward.output.weight"] {
            same(name, &found[&format!("grad.{name}")], &differences(&tensors, name, formula), 2e-5);
        }
    }
}

#[test]
fn segments_remember_the_inputs_of_the_layers_without_gradients() {
    let (case, mut tensors) = case("segments", "", "layers = 2\nmemory_length = 3");
    tensors.insert("segments".into(), tensor(&[3], vec![2.0, 1.0, 3.0]));
    tensors.insert("memory".into(), drawn("memory", &[2, 2, 2, 4]));
    // What is remembered has no gradient, so that it is taken from `kept`.
    let run = |tensors: &Tensors, kept: &Tensors| {
        let (mut start, mut outputs) = (0, None::<Tensor>);
        let of_layer = |layer: usize| tensor(&[2, 2, 4], kept["memory"].values[layer * 16..(layer + 1) * 16].to_vec());
        let mut memory = [of_layer(0), of_layer(1)];
        for length in [2, 1, 3] {
            let (mut x, mut detached) = (part(&tensors["x"], start, length), part(&kept["x"], start, length));
            for (layer, memory) in memory.iter_mut().enumerate() {
                let name = format!("layers.{layer}.");
                let before = memory.clone();
                let all = followed(memory, &detached);
                *memory = part(&all, all.shape[1] - 3, 3);
                x = Block { tensors, block: &name }.pre(&x, Some(&before));
                detached = Block { tensors: kept, block: &name }.pre(&detached, Some(&before));
            }
            outputs = Some(outputs.map_or_else(|| x.clone(), |outputs| followed(&outputs, &x)));
            start += length;
        }
        (final_norm(tensors, &outputs.unwrap()), memory)
    };
    assert_is(&case, &tensors, &["x", "layers.1.self_attention.logits.key.weight"], |moved| run(moved, &tensors).0);
    let [first, second] = run(&tensors, &tensors).1;
    same("memory", &case.results(&[])["memory"], &tensor(&[2, 2, 3, 4], [first.values, second.values].concat()), 2e-5);
    tensors.insert("segments".into(), tensor(&[1], vec![5.0]));
    case.refuses_instead(&tensors, &["`segments`", "sum to the 6 positions"]);
    tensors.insert("segments".into(), tensor(&[1], vec![6.0]));
    tensors.insert("memory".into(), drawn("memory", &[2, 2, 4, 4]));
    case.refuses_instead(&tensors, &["`memory`: 4 positions exceed memory_length = 3"]);
}
