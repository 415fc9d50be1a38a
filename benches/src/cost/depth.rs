//! How memory grows with the depth of a model, in rounds: what forward and backward take beside weights and their gradients, which grow with it in any case.
//!
//! Kitaev et al., "Reformer" (2001.04451): activations of reversible layers do not grow with depth.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::Device;
use clap::Args;
use heedful_host::exit::ProgramError;
use heedful_host::rounds::{Series, in_turn};

use super::memory::Meter;
use crate::depth::{Activations, Deep};
use crate::peers::options::{DepthOptions, positive};
use crate::training_step::ModelSizes;

/// Which models are measured, and how.
#[derive(Args, Clone, Debug)]
pub struct DepthRounds {
    /// Their sizes.
    #[command(flatten)]
    pub models: DepthOptions,

    /// How activations are treated
    #[arg(long, value_name = "NAME[,NAME...]", value_enum, value_delimiter = ',', default_value = "kept,checkpointed,reversible")]
    pub activations: Vec<Activations>,

    /// Rounds; in each, every model runs once, in turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = positive())]
    pub rounds: usize,

    /// Folder for rounds.json and rounds.md
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// A model with its name.
struct Candidate {
    name: String,
    deep: Deep,
}

impl DepthRounds {
    /// What a reader must know of the models.
    pub fn about(&self) -> String {
        let DepthOptions { length, d_model, .. } = self.models;
        format!(
            "Forward and backward of a causal language model of width {d_model} with dot-product attention, one row of {length} tokens, on flex. Bytes are what \
             is allocated at the peak beyond the weights, less the size of their gradients."
        )
    }

    /// Bytes and seconds of every model, round by round.
    ///
    /// # Errors
    /// A usage error for sizes that contradict each other, and a failure where the program does not count what it allocates: it has to have
    /// [`PeakAlloc`](peak_alloc::PeakAlloc) as its allocator.
    pub fn measure(&self) -> Result<Vec<Series>, ProgramError> {
        let device = Device::flex();
        let (mut layers, mut activations) = (self.models.layers.clone(), self.activations.clone());
        layers.sort_unstable();
        layers.dedup();
        activations.sort_unstable_by_key(|activations| *activations as u8);
        activations.dedup();
        let sizes: Vec<_> = activations.iter().flat_map(|_| layers.iter().map(|&layers| self.models.model(layers))).collect();
        ModelSizes::check_memory(&sizes, self.models.length)?;
        let mut candidates = Vec::new();
        for &activations in &activations {
            for &layers in &layers {
                let deep =
                    Deep::new(activations, self.models.model(layers), 1, self.models.length, &device).map_err(ProgramError::usage)?;
                // What code and threads allocate once is there before the first round.
                deep.forward_backward();
                candidates.push(Candidate { name: format!("{activations}, {layers} layers"), deep });
            }
        }
        let meter = Meter::new(&device);
        let mut seconds = vec![Vec::new(); candidates.len()];
        let bytes = in_turn(self.rounds, candidates.len(), |_, index| {
            let deep = &candidates[index].deep;
            let begun = Instant::now();
            let (gradients, peak) = meter.peak_growth(meter.start(), || deep.forward_backward());
            drop(gradients);
            seconds[index].push(begun.elapsed().as_secs_f64());
            match peak.checked_sub(deep.gradient_bytes()).filter(|&bytes| bytes > 0) {
                Some(bytes) => Ok(Some(bytes as f64)),
                None => Err(ProgramError::failure("this program does not count what it allocates")),
            }
        })?;
        let names = || candidates.iter().map(|candidate| candidate.name.clone());
        let series = |values: Vec<Vec<f64>>, unit: &str| {
            names().zip(values).map(|(name, values)| Series { name, unit: unit.to_owned(), values }).collect::<Vec<_>>()
        };
        Ok([series(bytes.unwrap_or_default(), "bytes"), series(seconds, "seconds")].concat())
    }
}
