//! Inputs of an attention as plain arrays, and values of its parameters.

use std::collections::BTreeMap;

use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor};

use crate::contract::AttentionInput;
use crate::description::array::Array;

/// Queries and, for cross-attention, the memory.
#[derive(Clone, Debug)]
pub struct Case {
    /// `[B, Q, C]`.
    pub query: Array,
    /// Memory `[B, K, C]`; absent for self-attention.
    pub memory: Option<Array>,
}

impl Case {
    /// The case as an input with full visibility.
    pub fn input(&self, device: &Device) -> AttentionInput {
        let input = AttentionInput::self_attention(self.query.tensor(device));
        AttentionInput { memory: self.memory.as_ref().map(|memory| memory.tensor(device)), ..input }
    }

    /// Number of batch rows.
    pub fn batch(&self) -> usize {
        self.query.shape[0]
    }

    /// Number of queries.
    pub fn length(&self) -> usize {
        self.query.shape[1]
    }

    /// The attended sequence.
    pub fn attended(&mut self) -> &mut Array {
        self.memory.as_mut().unwrap_or(&mut self.query)
    }

    /// Number of keys.
    pub fn keys(&self) -> usize {
        self.memory.as_ref().unwrap_or(&self.query).shape[1]
    }

    /// The given batch rows.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self { query: self.query.select(rows), memory: self.memory.as_ref().map(|memory| memory.select(rows)) }
    }

    /// The same memory with a range of the queries.
    pub fn queries(&self, range: Range<usize>) -> Self {
        Self { query: self.query.slice(range), memory: self.memory.clone() }
    }
}

/// All float parameters of a module by path, or their gradients where available.
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
