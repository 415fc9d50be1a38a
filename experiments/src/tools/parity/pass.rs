//! One pass through a part, what it shows, and the gradients of what it returns.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Gradients, Tensor, TensorData};
use heedful_attention::contract::engine::Executed;
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;

use super::inputs::{Input, Inputs};
use super::parameters;

/// The tensors that go into a part and those that come out of it.
pub(super) struct Pass<'a> {
    inputs: &'a Inputs,
    declared: &'a [Input],
    device: &'a Device,
    leaves: Vec<(String, GradientOf)>,
    outputs: Vec<(String, TensorData)>,
    objective: Option<Tensor<1>>,
    executed: Vec<Executed>,
}

/// The gradient of a tensor, 0 where nothing depends on it.
type GradientOf = Box<dyn Fn(&Gradients) -> TensorData>;

/// The tensor of the input file that is the gradient by an output.
pub(super) fn cotangent(output: &str) -> String {
    if output == "output" { "cotangent".to_owned() } else { format!("cotangent.{output}") }
}

/// The output for an auxiliary loss.
pub(super) fn loss(name: &str) -> String {
    format!("loss.{name}")
}

impl<'a> Pass<'a> {
    /// A pass on what was declared and read.
    pub(super) fn new(inputs: &'a Inputs, declared: &'a [Input], device: &'a Device) -> Self {
        Self { inputs, declared, device, leaves: Vec::new(), outputs: Vec::new(), objective: None, executed: Vec::new() }
    }

    /// What was read.
    pub(super) fn inputs(&self) -> &'a Inputs {
        self.inputs
    }

    /// Where it is computed.
    pub(super) fn device(&self) -> &'a Device {
        self.device
    }

    /// A tensor of numbers.
    ///
    /// # Panics
    /// If it is not there.
    pub(super) fn tensor<const D: usize>(&mut self, name: &str) -> Tensor<D> {
        self.given(name).unwrap_or_else(|| panic!("`{name}` was declared as one that is always there"))
    }

    /// A tensor of numbers, if it is there.
    pub(super) fn given<const D: usize>(&mut self, name: &str) -> Option<Tensor<D>> {
        let tensor = Tensor::<D>::from_data(self.inputs.numbers(name)?.clone(), self.device);
        if !self.declared.iter().any(|input| input.name == name && input.has_gradient) {
            return Some(tensor);
        }
        let tensor = tensor.require_grad();
        // Gradients need a graph also where an output depends on nothing.
        self.add(tensor.clone().sum() * 0.0);
        let leaf = tensor.clone();
        let gradient =
            move |gradients: &Gradients| read(leaf.grad(gradients).unwrap_or_else(|| leaf.clone().without_autodiff().zeros_like()));
        self.leaves.push((name.to_owned(), Box::new(gradient)));
        Some(tensor)
    }

    /// Flags as a tensor of another shape, if they are there.
    pub(super) fn flags<const D: usize>(&self, name: &str, shape: [usize; D]) -> Option<Tensor<D, Bool>> {
        let flags = self.inputs.flags(name)?.to_vec();
        Some(Tensor::from_data(TensorData::new(flags, shape), self.device))
    }

    /// Writes an output, whose product with its cotangent is differentiated if there is one.
    pub(super) fn output<const D: usize>(&mut self, name: &str, tensor: Tensor<D>) {
        self.show(name, tensor.clone());
        if let Some(cotangent) = self.inputs.numbers(&cotangent(name)) {
            self.add((tensor * Tensor::from_data(cotangent.clone(), self.device)).sum());
        }
    }

    /// Writes auxiliary losses; those of one name are one.
    pub(super) fn losses(&mut self, losses: &Losses) {
        let mut sums: BTreeMap<&str, Tensor<1>> = BTreeMap::new();
        for (name, loss) in losses.iter() {
            let sum = match sums.remove(name) {
                Some(sum) => sum + loss.clone(),
                None => loss.clone(),
            };
            sums.insert(name, sum);
        }
        for (name, sum) in sums {
            self.output(&loss(name), sum);
        }
    }

    /// Writes a tensor of which nothing is differentiated.
    pub(super) fn show<const D: usize, K: Basic>(&mut self, name: &str, tensor: Tensor<D, K>) {
        self.outputs.push((name.to_owned(), read(tensor)));
    }

    /// Runs `run` with a probe, and writes what it shows of `batch` rows of `length` queries; what is shown more than once under a name comes from successive
    /// queries.
    pub(super) fn listening<T>(&mut self, [batch, length]: [usize; 2], run: impl FnOnce(&mut Probe) -> T) -> T {
        let mut shown: Vec<(String, Vec<TensorData>)> = Vec::new();
        let executed = &mut self.executed;
        let mut listener = |path: &str, observation: Observation| {
            if let Observation::Executed(how) = observation {
                executed.push(how);
            }
            let Some((kind, data)) = plain(observation, batch) else { return };
            let name = if path.is_empty() { kind.to_owned() } else { format!("{kind}.{path}") };
            match shown.iter_mut().find(|(other, _)| *other == name) {
                Some((_, parts)) if kind == "buckets" => *parts = vec![data],
                Some((_, parts)) => parts.push(data),
                None => shown.push((name, vec![data])),
            }
        };
        let result = run(&mut Probe::listening(&mut listener));
        self.outputs.extend(shown.into_iter().map(|(name, parts)| {
            let all = joined(&parts);
            let is_shared = name.starts_with("spans") && all.shape()[2] != length;
            (name, if is_shared { repeated(&parts[0], length) } else { all })
        }));
        result
    }

    fn add(&mut self, term: Tensor<1>) {
        self.objective = Some(match self.objective.take() {
            Some(objective) => objective + term,
            None => term,
        });
    }

    /// Why what was computed is not of the engine that was asked for, if one was.
    ///
    /// # Errors
    /// Which execution ran in its place.
    pub(super) fn check_engine(&self, engine: Engine) -> Result<(), String> {
        let is_asked = |executed: &&Executed| (**executed == Executed::Reference) == (engine == Engine::Reference);
        let (asked, other) = match (engine, self.executed.iter().find(|executed| !is_asked(executed))) {
            (Engine::Auto, _) | (_, None) => return Ok(()),
            (Engine::Fused, Some(_)) => ("fused", "the reference engine"),
            (Engine::Reference, Some(_)) => ("reference", "the execution without a matrix of pairs"),
        };
        Err(format!(
            "`engine = {asked}`: {other} ran in its place, since this attention has no other for these inputs; leave the engine out"
        ))
    }

    /// All that the output file holds: with a cotangent, the gradients by tensors and by the parameters of `module`.
    pub(super) fn finish<M: Module>(self, module: &M) -> Vec<(String, TensorData)> {
        let Self { inputs, mut outputs, leaves, objective, .. } = self;
        let has_cotangent = self.declared.iter().any(|input| input.name.starts_with("cotangent") && inputs.has(&input.name));
        if let Some(objective) = objective.filter(|_| has_cotangent) {
            let gradients = objective.backward();
            outputs.extend(leaves.into_iter().map(|(name, gradient)| (format!("grad.{name}"), gradient(&gradients))));
            let of_parameters = parameters::gradients(module, &gradients);
            outputs.extend(of_parameters.into_iter().map(|(path, gradient)| (format!("grad.{path}"), gradient)));
        }
        outputs
    }
}

/// Name and numbers of an observation, those that all rows share repeated for each.
fn plain(observation: Observation, batch: usize) -> Option<(&'static str, TensorData)> {
    let of_rows = |x: Tensor<4>| {
        let [_, heads, queries, keys] = x.dims();
        read(x.expand([batch, heads, queries, keys]))
    };
    Some(match observation {
        Observation::Weights(weights) => ("weights", of_rows(weights)),
        Observation::SlotWeights(weights) => ("slot_weights", of_rows(weights)),
        Observation::Spans(spans) => {
            let [_, heads, queries] = spans.dims();
            ("spans", read(spans.expand([batch, heads, queries])))
        }
        Observation::Buckets(buckets) => ("buckets", read(buckets.float())),
        Observation::SignedWeights(weights) => ("signed_weights", of_rows(weights)),
        Observation::HeadGates(open) => ("head_gates", of_rows(open)),
        Observation::Gate(open) => ("gate", read(open)),
        Observation::HaltingSteps(steps) => ("halting_steps", read(steps)),
        Observation::Activation(states) => ("activation", read(states)),
        _ => return None,
    })
}

/// What successive positions showed, `[batch, heads, queries, ..]` each, as one. The last dimension is that of the last, which saw most keys; those that
/// others did not see have 0.
fn joined(parts: &[TensorData]) -> TensorData {
    let [.., last] = parts else { unreachable!("what is shown is shown once at least") };
    if parts.len() == 1 {
        return last.clone();
    }
    let shape = last.shape().to_vec();
    let (rows, width) = (shape[0] * shape[1], shape.get(3).copied().unwrap_or(1));
    let numbers: Vec<(Vec<f32>, usize, usize)> =
        parts.iter().map(|part| (part.iter::<f32>().collect(), part.shape()[2], part.shape().get(3).copied().unwrap_or(1))).collect();
    let queries = numbers.iter().map(|(_, queries, _)| queries).sum();
    let mut all = Vec::with_capacity(rows * queries * width);
    for row in 0..rows {
        for (numbers, queries, own) in &numbers {
            for query in numbers[row * queries * own..][..queries * own].chunks(*own) {
                all.extend_from_slice(query);
                all.resize(all.len() + width - own, 0.0);
            }
        }
    }
    let shape: Vec<usize> = [shape[0], shape[1], queries].into_iter().chain(shape.get(3).copied()).collect();
    TensorData::new(all, shape)
}

/// What all queries share, `[batch, heads, 1]`, for each of them.
fn repeated(shared: &TensorData, queries: usize) -> TensorData {
    let all: Vec<f32> = shared.iter::<f32>().flat_map(|number| std::iter::repeat_n(number, queries)).collect();
    TensorData::new(all, [shared.shape()[0], shared.shape()[1], queries])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_successive_positions_are_joined_and_missing_keys_are_0() {
        let first = TensorData::new(vec![1.0f32, 2.0], [2, 1, 1, 1]);
        let second = TensorData::new((3..11).map(|n| n as f32).collect::<Vec<_>>(), [2, 1, 2, 2]);
        let all = joined(&[first, second]);
        assert_eq!(all.shape().to_vec(), [2, 1, 3, 2]);
        assert_eq!(all.iter::<f32>().collect::<Vec<_>>(), [1.0, 0.0, 3.0, 4.0, 5.0, 6.0, 2.0, 0.0, 7.0, 8.0, 9.0, 10.0]);
        let spans = [[1.0f32, 2.0], [3.0, 4.0]].map(|spans| TensorData::new(spans.to_vec(), [1, 2, 1]));
        assert_eq!(joined(&spans), TensorData::new(vec![1.0f32, 3.0, 2.0, 4.0], [1, 2, 2]));
    }
}
