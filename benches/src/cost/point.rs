//! One thing that is timed: a pass of a mechanism at a length on a backend.

use std::fmt;

use burn::tensor::{Device, FloatDType, Tensor};
use clap::ValueEnum;
use heedful_attention::arithmetic;
use heedful_attention::engine::Engine;
use heedful_attention::error::ConfigError;
use heedful_attention::placement::Role;
use heedful_attention::registry::{AnyAttention, AnyMechanism};
use heedful_models::precision::Precision;
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

    /// Multiplications of an attention in this pass, causal if it can be: an estimate.
    pub fn multiplications(self, config: &AnyMechanism, attention: &AnyAttention, sizes: Sizes) -> u64 {
        let role = if config.can_be_causal() { Role::Decoder } else { Role::Encoder };
        let queries = if self == Self::Decode { sizes.length - 1..sizes.length } else { 0..sizes.length };
        let of_a_row = arithmetic::multiplications(attention, &sizes.placement(role), queries, sizes.length);
        (sizes.batch as f64 * if self == Self::Training { of_a_row.training() } else { of_a_row.forward() }) as u64
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
    /// Builds the pass for a device without autodiff. A step of decoding can be run `runs` times.
    ///
    /// # Errors
    /// If the mechanism is impossible with these sizes.
    pub fn new(
        pass: Pass,
        attention: &AnyMechanism,
        sizes: Sizes,
        runs: usize,
        engine: Engine,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        Ok(match pass {
            Pass::Decode => Self::Step(Box::new(DecodeStep::new(attention, sizes, runs, engine, precision, device)?)),
            _ => {
                let workload = Box::new(Workload::with(attention, sizes, engine, precision, device)?);
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
/// If the mechanism is impossible with these sizes.
pub fn difference(pass: Pass, attention: &AnyMechanism, sizes: Sizes, precision: Precision, device: &Device) -> Result<f64, ConfigError> {
    let result = |engine| {
        let mut work = Work::new(pass, attention, sizes, 1, engine, precision, device)?;
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

    #[test]
    fn every_pass_of_every_mechanism_is_what_the_reference_engine_says() {
        let sizes = Sizes { batch: 1, length: 24, d_model: 16, heads: 2, kv_heads: None };
        for config in AnyMechanism::all() {
            for &pass in Pass::value_variants() {
                if pass == Pass::Decode && !config.can_be_causal() {
                    continue;
                }
                let found = difference(pass, &config, sizes, Precision::F32, &Device::flex()).unwrap();
                assert!(found < super::super::sweep::TOLERANCE, "{config} {pass}: {found}");
            }
        }
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
