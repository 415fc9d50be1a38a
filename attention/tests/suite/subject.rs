//! What the properties are checked on: an attention on a device, and inputs for it.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor};
use heedful_attention::contract::{Attention, AttentionInput};
use heedful_attention::placement::{Placement, Role};
use heedful_attention::probe::{Observation, Probe};

use crate::array::Array;
use crate::backends::Backend;

/// An attention, twice with the same weights: on a device without and with autodiff.
pub struct Subject<A> {
    pub attention: A,
    pub tracked: A,
    pub device: Device,
    pub placement: Placement,
    /// Whether the weights of a row with a visible key sum to 1.
    pub normalised: bool,
    /// By how much numbers may differ of which the contract says that they do not move.
    pub unmoved: f64,
}

/// Queries and, for cross-attention, what they attend to.
#[derive(Clone)]
pub struct Case {
    pub query: Array,
    pub memory: Option<Array>,
}

impl<A: Attention> Subject<A> {
    pub fn new(build: impl Fn(&Device) -> A, placement: Placement, normalised: bool, backend: &Backend) -> Self {
        let device = backend.device.clone();
        Self {
            attention: build(&device),
            tracked: build(&device.clone().autodiff()),
            device,
            placement,
            normalised,
            unmoved: if backend.bitwise { 0.0 } else { 1e-6 },
        }
    }

    pub fn is_cross(&self) -> bool {
        self.placement.role == Role::Cross
    }

    /// A random case: `batch` rows of `length` queries, and for cross-attention a memory of six keys.
    pub fn case(&self, name: &str, batch: usize, length: usize) -> Case {
        let memory = self.is_cross().then(|| Array::random(&format!("{name}, memory"), &[batch, 6, self.placement.d_model]));
        Case { query: Array::random(name, &[batch, length, self.placement.d_model]), memory }
    }

    /// Context of an input.
    pub fn forward(&self, input: AttentionInput) -> Array {
        Array::read(self.attention.forward(input, &mut Probe::off()).context)
    }

    /// Context and all weights that were shown.
    pub fn observed(&self, input: AttentionInput) -> (Array, Vec<Array>) {
        let mut shown = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Weights(weights) = observation {
                shown.push(Array::read(weights));
            }
        };
        let context = self.attention.forward(input, &mut Probe::listening(&mut listener)).context;
        (Array::read(context), shown)
    }

    /// Gradients of `sum(context * coefficients)`.
    pub fn gradients(&self, case: &Case, prepare: impl Fn(AttentionInput) -> AttentionInput) -> CaseGradients {
        let device = self.device.clone().autodiff();
        let query = case.query.tensor::<3>(&device).require_grad();
        let memory = case.memory.as_ref().map(|memory| memory.tensor::<3>(&device).require_grad());
        let mut input = AttentionInput::self_attention(query.clone());
        input.memory = memory.clone();
        let context = self.tracked.forward(prepare(input), &mut Probe::off()).context;
        let coefficients = coefficients(&context.dims());
        let gradients = (context * coefficients.tensor(&device)).sum().backward();
        let read = |tensor: &Tensor<3>| match tensor.grad(&gradients) {
            Some(gradient) => Array::read(gradient),
            None => Array { shape: tensor.dims().to_vec(), values: vec![0.0; tensor.dims().iter().product()] },
        };
        CaseGradients { query: read(&query), memory: memory.as_ref().map(read), parameters: parameters(&self.tracked, Some(&gradients)) }
    }
}

/// Fixed coefficients by which outputs are weighted into a loss.
pub fn coefficients(shape: &[usize]) -> Array {
    Array::random("coefficients", shape)
}

/// Gradients of the inputs and of every parameter that has one.
pub struct CaseGradients {
    pub query: Array,
    pub memory: Option<Array>,
    pub parameters: BTreeMap<String, Array>,
}

impl Case {
    pub fn input(&self, device: &Device) -> AttentionInput {
        let input = AttentionInput::self_attention(self.query.tensor(device));
        AttentionInput { memory: self.memory.as_ref().map(|memory| memory.tensor(device)), ..input }
    }

    pub fn batch(&self) -> usize {
        self.query.shape[0]
    }

    pub fn length(&self) -> usize {
        self.query.shape[1]
    }

    /// What is attended to.
    pub fn attended(&mut self) -> &mut Array {
        self.memory.as_mut().unwrap_or(&mut self.query)
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.memory.as_ref().unwrap_or(&self.query).shape[1]
    }

    /// The given batch rows.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self { query: self.query.select(rows), memory: self.memory.as_ref().map(|memory| memory.select(rows)) }
    }

    /// The same memory, and only the given queries.
    pub fn queries(&self, range: Range<usize>) -> Self {
        Self { query: self.query.slice(range), memory: self.memory.clone() }
    }
}

/// All float parameters of a module by their path, or the gradients of those that have one.
pub fn parameters<M: Module>(module: &M, gradients: Option<&Gradients>) -> BTreeMap<String, Array> {
    struct Collector<'a> {
        path: Vec<String>,
        gradients: Option<&'a Gradients>,
        found: BTreeMap<String, Array>,
    }
    impl ModuleVisitor for Collector<'_> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let values = match self.gradients {
                Some(gradients) => param.val().grad(gradients),
                None => Some(param.val()),
            };
            if let Some(values) = values {
                self.found.insert(self.path.join("."), Array::read(values));
            }
        }
    }
    let mut collector = Collector { path: Vec::new(), gradients, found: BTreeMap::new() };
    module.visit(&mut collector);
    collector.found
}
