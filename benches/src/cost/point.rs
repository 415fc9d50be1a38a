//! One timed measurement: a pass of a mechanism at a length on a backend.

use std::fmt;

use burn::tensor::{Device, FloatDType, Tensor};
use clap::ValueEnum;
use heedful_attention::description::multiplications::multiplications;
use heedful_attention::prelude::*;
use heedful_models::kernels::precision::Precision;
use serde::{Deserialize, Serialize};

use crate::decode_step::DecodeStep;
use crate::workload::{Sizes, Workload};

/// What is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pass {
    /// All positions, without a graph for gradients
    #[default]
    Forward,
    /// All positions, forward and backward to the input
    Training,
    /// One position after as many others
    Decode,
}

impl Pass {
    /// The name that options and results use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Training => "training",
            Self::Decode => "decode",
        }
    }

    /// A heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Training => "forward and backward",
            Self::Decode => "one step of decoding",
        }
    }

    /// Multiplications of an attention in this pass, as `layer` has it: an estimate.
    pub fn multiplications(self, layer: Layer<'_>, attention: &AnyAttention) -> u64 {
        let sizes = layer.sizes;
        let queries = if self == Self::Decode { sizes.length - 1..sizes.length } else { 0..sizes.length };
        let of_a_row = multiplications(attention, &sizes.spec(layer.role()), queries, sizes.length);
        (sizes.batch as f64 * if self == Self::Training { of_a_row.training() } else { of_a_row.forward() }) as u64
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A layer of self-attention, as it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// Its mechanism.
    pub attention: &'a AnyMechanism,
    /// Its sizes and those of the sequence.
    pub sizes: Sizes,
    /// Type of weights and activations.
    pub precision: Precision,
    /// Whether positions attend to those after them too. Otherwise it is causal if the mechanism can be.
    pub is_bidirectional: bool,
}

impl Layer<'_> {
    /// Where it stands: in a decoder if it is causal.
    pub fn role(&self) -> Role {
        if self.attention.can_be_causal() && !self.is_bidirectional { Role::Decoder } else { Role::Encoder }
    }
}

/// A pass that can be run again and again.
#[derive(Debug)]
pub enum Work {
    /// All positions.
    Whole {
        /// The layer.
        workload: Box<Workload>,
        /// With the backward pass.
        training: bool,
    },
    /// One position.
    Step(Box<DecodeStep>),
}

impl Work {
    /// Builds the pass for a device without autodiff. A step of decoding, which is causal, can be run `runs` times.
    ///
    /// # Errors
    /// If the mechanism is impossible with these sizes, or cannot be bidirectional where the layer is.
    pub fn new(pass: Pass, layer: Layer<'_>, runs: usize, engine: Engine, device: &Device) -> Result<Self, ConfigError> {
        let Layer { attention, sizes, precision, .. } = layer;
        Ok(match pass {
            Pass::Decode => Self::Step(Box::new(DecodeStep::new(attention, sizes, runs, engine, precision, device)?)),
            _ => {
                let workload = Box::new(Workload::with(attention, sizes, layer.role(), engine, precision, device)?);
                Self::Whole { workload, training: pass == Pass::Training }
            }
        })
    }

    /// Reads what a step of decoding comes after; to be called once before the first run.
    pub fn begin(&mut self) {
        if let Self::Step(step) = self {
            step.begin();
        }
    }

    /// The layer that is run.
    pub fn attention(&self) -> &AnyAttention {
        match self {
            Self::Whole { workload, .. } => workload.attention(),
            Self::Step(step) => step.attention(),
        }
    }

    /// Runs it and waits for the output, or the gradient of the input.
    pub fn run(&mut self) -> Tensor<3> {
        match self {
            Self::Whole { workload, training: true } => workload.forward_backward(),
            Self::Whole { workload, training: false } => workload.forward(),
            Self::Step(step) => step.run(),
        }
    }
}

/// The largest difference between the pass as it is timed and by the reference engine, relative to the largest value of the latter.
///
/// # Errors
/// As [`Work::new`].
pub fn difference(pass: Pass, layer: Layer<'_>, device: &Device) -> Result<f64, ConfigError> {
    let result = |engine| {
        let mut work = Work::new(pass, layer, 1, engine, device)?;
        work.begin();
        Ok(work.run())
    };
    Ok(relative_difference(result(Engine::default())?, result(Engine::Reference)?))
}

/// Infinite where a number is missing: NaN must not pass for a small difference.
fn relative_difference(found: Tensor<3>, expected: Tensor<3>) -> f64 {
    let [found, expected] = [found, expected].map(|x| x.cast(FloatDType::F32));
    let scale = expected.clone().abs().max().into_scalar::<f32>();
    let difference = (found - expected).abs().max().into_scalar::<f32>();
    if difference.is_nan() { f64::INFINITY } else { f64::from(difference) / f64::from(scale).max(f64::MIN_POSITIVE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(attention: &AnyMechanism, is_bidirectional: bool) -> Layer<'_> {
        let sizes = Sizes { batch: 1, length: 24, d_model: 16, heads: 2, kv_heads: None };
        Layer { attention, sizes, precision: Precision::F32, is_bidirectional }
    }

    #[test]
    fn every_pass_of_every_mechanism_is_what_the_reference_engine_says() {
        for config in AnyMechanism::all() {
            for &pass in Pass::value_variants() {
                if pass == Pass::Decode && !config.can_be_causal() {
                    continue;
                }
                let found = difference(pass, layer(&config, false), &Device::flex()).unwrap();
                assert!(found < super::super::sweep::TOLERANCE, "{config} {pass}: {found}");
            }
            if config.can_see_ahead() {
                let found = difference(Pass::Training, layer(&config, true), &Device::flex()).unwrap();
                assert!(found < super::super::sweep::TOLERANCE, "{config}, bidirectional: {found}");
            }
        }
    }

    #[test]
    fn a_bidirectional_layer_sees_what_comes_after_a_position_and_a_causal_one_does_not() {
        let first = |name: &str, is_bidirectional| {
            let config: AnyMechanism = name.parse().unwrap();
            let output = |length| {
                let mut layer = layer(&config, is_bidirectional);
                // Longer sequences begin otherwise, so the shorter one is a part of the longer.
                layer.sizes.length = length;
                Work::new(Pass::Forward, layer, 0, Engine::default(), &Device::flex()).map(|mut work| work.run().narrow(1, 0, 1))
            };
            Ok::<_, ConfigError>(relative_difference(output(12)?, output(24)?))
        };
        assert!(first("dot-product", false).unwrap() < 1e-5);
        assert!(first("dot-product", true).unwrap() > 1e-3);
        let by_construction = AnyMechanism::all().into_iter().find(|config| !config.can_see_ahead()).unwrap();
        assert!(first(&by_construction.name(), true).is_err() && first(&by_construction.name(), false).is_ok());
        let multiplications = |is_bidirectional| {
            let config = AnyMechanism::default();
            let layer = layer(&config, is_bidirectional);
            let work = Work::new(Pass::Forward, layer, 0, Engine::default(), &Device::flex()).unwrap();
            Pass::Forward.multiplications(layer, work.attention())
        };
        assert!(multiplications(true) > multiplications(false), "it has twice as many pairs");
    }

    #[test]
    fn a_wrong_result_is_not_timed() {
        let of = |values: [f32; 2]| Tensor::<3>::from_data([[values]], &Device::flex());
        let expected = || of([1.0, -4.0]);
        assert_eq!(relative_difference(expected(), expected()), 0.0);
        assert_eq!(relative_difference(of([1.0, -3.0]), expected()), 0.25);
        assert_eq!(relative_difference(of([1.0, f32::NAN]), expected()), f64::INFINITY);
        assert!(relative_difference(of([1.001, -4.0]), expected()) > super::super::sweep::TOLERANCE);
    }
}
