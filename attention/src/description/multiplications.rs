//! Multiplication counts of an attention, computed without running it.
//!
//! The counts include linear maps, scores of visible pairs and weighted sums of values, but not exponentials, normalisation and copies. They are estimates:
//! patterns are sampled at some queries, and the cost of a backward pass follows a rule of thumb. Each multiplication comes with an addition, so floating-point
//! operations are twice as many.

use std::iter::Sum;
use std::ops::{Add, Range};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::contract::Attention;
use crate::contract::layer_spec::{LayerSpec, Role};

pub use crate::contract::QueryKeyPairs;

/// Linear maps applied to the memory, not to the queries.
const OF_MEMORY: [&str; 2] = ["key", "value"];

/// Multiplications, grouped by their backward cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Multiplications {
    /// Query-key pairs: scores and weighted sums. A backward pass adds 2.5 times as many, since it recomputes the scores.
    pub pairs: f64,
    /// Linear maps. A backward pass adds twice as many.
    pub maps: f64,
}

impl Multiplications {
    /// Multiplications of a forward pass.
    pub fn forward(self) -> f64 {
        self.pairs + self.maps
    }

    /// Multiplications of a forward and a backward pass.
    pub fn training(self) -> f64 {
        3.5 * self.pairs + 3.0 * self.maps
    }
}

impl Add for Multiplications {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { pairs: self.pairs + other.pairs, maps: self.maps + other.maps }
    }
}

impl Sum for Multiplications {
    fn sum<I: Iterator<Item = Self>>(terms: I) -> Self {
        terms.fold(Self::default(), Add::add)
    }
}

/// Multiplications of an attention at a place for one sequence: for the given queries over `keys` keys. A decoder's self-attention is causal. Cross-attention
/// maps all memory tokens; self-attention maps only the queries.
pub fn multiplications<A: Attention>(attention: &A, place: &LayerSpec, queries: Range<usize>, keys: usize) -> Multiplications {
    let mapped = if place.role == Role::Cross { keys } else { queries.len() } as f64;
    let Maps { of_queries, of_memory, .. } = Maps::of(attention);
    let maps = queries.len() as f64 * of_queries as f64 + mapped * of_memory as f64;
    let pairs = QueryKeyPairs { queries, keys, causal: place.role == Role::Decoder, heads: place.heads, d_head: place.d_head() };
    Multiplications { pairs: attention.multiplications(&pairs), maps }
}

/// Number of weights in the linear maps of a module: its multiplications for a token that passes them all.
pub fn weights_of_maps<M: Module>(module: &M) -> usize {
    let Maps { of_queries, of_memory, .. } = Maps::of(module);
    of_queries + of_memory
}

/// Weights of linear maps, grouped by their inputs.
#[derive(Default)]
struct Maps {
    /// Types and names of the modules around the current parameter.
    place: Vec<(String, String)>,
    of_queries: usize,
    of_memory: usize,
}

impl Maps {
    fn of<M: Module>(module: &M) -> Self {
        let mut maps = Self::default();
        module.visit(&mut maps);
        maps
    }
}

impl ModuleVisitor for Maps {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.push((container.to_owned(), name.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.place.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.place.last().is_some_and(|(container, name)| container == "Struct:Linear" && name == "weight") {
            // A module is entered by its name in the enclosing module.
            let is_of_memory = self.place.iter().rev().nth(1).is_some_and(|(_, name)| OF_MEMORY.contains(&name.as_str()));
            let weights = if is_of_memory { &mut self.of_memory } else { &mut self.of_queries };
            *weights += param.shape().num_elements();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use heedful_random::RandomKey;

    use crate::description::{AnyMechanism, Mechanism};
    use crate::mechanisms::lsh::{Lsh, LshConfig};

    const LENGTH: usize = 256;
    const WIDTH: f64 = 16.0;
    const MAPS: f64 = WIDTH * WIDTH;

    fn of(name: &str, role: Role, queries: Range<usize>, keys: usize) -> Multiplications {
        let config: AnyMechanism = name.parse().unwrap();
        let place = LayerSpec::new(role, 16, 4).with_max_length(keys.max(LENGTH));
        let attention = config.init(&place, &RandomKey::from_seed(0), &Device::flex());
        multiplications(&attention, &place, queries, keys)
    }

    #[test]
    fn the_counts_are_those_of_the_formulas() {
        let length = LENGTH as f64;
        let causal = length * (length + 1.0) / 2.0;
        let decoder = of("dot-product", Role::Decoder, 0..LENGTH, LENGTH);
        assert_eq!(decoder, Multiplications { pairs: causal * 2.0 * WIDTH, maps: length * 4.0 * MAPS });
        assert_eq!(decoder.forward(), causal * 2.0 * WIDTH + length * 4.0 * MAPS);
        assert_eq!(decoder.training(), 3.5 * causal * 2.0 * WIDTH + 3.0 * length * 4.0 * MAPS);
        let step = of("dot-product", Role::Decoder, LENGTH - 1..LENGTH, LENGTH);
        assert_eq!(step, Multiplications { pairs: length * 2.0 * WIDTH, maps: 4.0 * MAPS });
        let encoder = of("dot-product", Role::Encoder, 0..LENGTH, LENGTH);
        assert_eq!(encoder, Multiplications { pairs: length * length * 2.0 * WIDTH, maps: length * 4.0 * MAPS });
        // Values and output, without scores.
        let random = of("synthesizer-random", Role::Decoder, 0..LENGTH, LENGTH);
        assert_eq!(random, Multiplications { pairs: causal * WIDTH, maps: length * 2.0 * MAPS });
    }

    #[test]
    fn keys_and_values_of_a_memory_are_made_of_its_elements() {
        let found = of("dot-product", Role::Cross, 0..10, 100);
        assert_eq!(found, Multiplications { pairs: 1000.0 * 2.0 * WIDTH, maps: (2.0 * 10.0 + 2.0 * 100.0) * MAPS });
    }

    #[test]
    fn hashes_and_chunks_are_those_that_the_mechanism_has() {
        // 16 buckets of 64 positions in chunks of 8, by 8 directions; 4 rounds over a chunk and the one before it.
        let config = LshConfig { chunk: Some(8), rounds: 4, ..LshConfig::default() };
        let place = LayerSpec::new(Role::Decoder, 16, 4).with_max_length(64);
        let lsh: Lsh = config.init(&place, &RandomKey::from_seed(0), &Device::flex());
        let directions = lsh.rotations.value().dims()[3];
        assert_eq!(directions, 8);
        let found = multiplications(&lsh, &place, 0..32, 32);
        assert_eq!(found.pairs, (4 * 32 * 4 * (4 * directions + 2 * 8 * 2 * 4)) as f64);
    }

    #[test]
    fn what_sees_less_multiplies_less() {
        for role in [Role::Decoder, Role::Encoder] {
            // Local attention uses blocks of 256.
            let of = |name: &str| of(name, role, 0..4 * LENGTH, 4 * LENGTH).forward();
            let dense = of("dot-product");
            for name in ["local-1d", "sparse-strided", "sparse-fixed", "lightweight-conv"] {
                assert!(of(name) < dense, "{name}");
            }
        }
    }

    #[test]
    fn every_mechanism_is_counted() {
        for config in AnyMechanism::all() {
            let role = if config.can_be_causal() { Role::Decoder } else { Role::Encoder };
            assert!(of(&config.name(), role, 0..LENGTH, LENGTH).forward() > 0.0, "{}", config.name());
        }
    }
}
