//! How the time of a Universal Transformer falls as its positions halt earlier, in rounds.
//!
//! Dehghani et al., "Universal Transformers" (1807.03819), section 2.2. Nothing is trained: the bias of the halting unit decides how many steps random
//! states take.

use std::path::PathBuf;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use clap::Args;
use heedful_host::exit::ProgramError;
use heedful_host::rounds::{Series, in_turn};
use heedful_models::block::halting::HaltingConfig;
use heedful_models::block::layer_sharing::SharedConfig;
use heedful_models::prelude::*;

use crate::peers::options::positive;
use crate::training_step::ModelSizes;

/// Which models are measured, and how.
#[derive(Args, Clone, Debug)]
pub struct HaltingRounds {
    /// Biases of the halting unit: the larger, the fewer steps
    #[arg(long, value_name = "B[,B...]", value_delimiter = ',', allow_hyphen_values = true, default_values_t = [-12.0, -8.0, -4.0, -2.0, 0.0, 2.0])]
    pub biases: Vec<f64>,

    /// Steps that a position takes at most
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive())]
    pub steps: usize,

    /// Rows of a batch
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive())]
    pub batch: usize,

    /// Tokens of a row
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive())]
    pub length: usize,

    /// Width of the model, a multiple of 4
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive())]
    pub d_model: usize,

    /// Rounds; in each, every model runs once, in turn
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = positive())]
    pub rounds: usize,

    /// Folder for rounds.json and rounds.md
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// A model with its batch.
struct Candidate {
    model: LanguageModel,
    tokens: Tensor<2, Int>,
}

impl Candidate {
    /// The mean number of steps that positions take; `None` if they do not halt.
    fn mean_steps(&self) -> Option<f32> {
        let mut mean = None;
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::HaltingSteps(steps) = observation {
                mean = Some(steps.mean().into_scalar());
            }
        };
        self.model.hidden(self.tokens.clone(), &[], None, &mut Probe::listening(&mut listener));
        mean
    }

    /// Seconds of a forward pass without gradients.
    fn inference(&self) -> f64 {
        let begun = Instant::now();
        let _: f32 = self.model.hidden(self.tokens.clone(), &[], None, &mut Probe::off()).states.sum().into_scalar();
        begun.elapsed().as_secs_f64()
    }

    /// Seconds of a forward and a backward pass.
    fn training(&self) -> f64 {
        let (model, tokens) = (self.model.clone().train(), self.tokens.clone().autodiff());
        let begun = Instant::now();
        let hidden = model.hidden(tokens, &[], Some(RandomKey::from_seed(1)), &mut Probe::off());
        let _gradients = hidden.states.powi_scalar(2).mean().backward();
        begun.elapsed().as_secs_f64()
    }
}

impl HaltingRounds {
    /// What a reader must know of the models.
    pub fn about(&self) -> String {
        let Self { steps, batch, length, d_model, .. } = self;
        format!(
            "A causal Universal Transformer of width {d_model} with dot-product attention and random weights, {batch} rows of {length} tokens, at most {steps} \
             steps, on flex. Inference is a forward pass, training forward and backward without dropout and with skip_in_training. Only the bias of the halting \
             unit differs."
        )
    }

    fn candidate(&self, halting: Option<HaltingConfig>) -> Result<Candidate, ProgramError> {
        let &Self { steps, batch, length, d_model, .. } = self;
        let device = Device::flex();
        let sizes = ModelSizes { vocabulary: 1000, layers: steps, d_model, heads: 4, d_ff: 4 * d_model };
        let block = BlockConfig {
            d_model,
            heads: 4,
            d_ff: sizes.d_ff,
            max_length: length,
            norm_order: NormOrder::Pre,
            dropout: 0.0,
            ..BlockConfig::default()
        };
        let depth = DepthConfig::Shared(SharedConfig { halting, ..SharedConfig::default() });
        let config = LanguageModelConfig { vocabulary: sizes.vocabulary, layers: steps, block, depth, ..LanguageModelConfig::default() };
        config.validate().map_err(ProgramError::usage)?;
        // All layers share the weights of one.
        ModelSizes::check_memory(&[ModelSizes { layers: 1, ..sizes }], batch.saturating_mul(length))?;
        Ok(Candidate { model: config.init(&RandomKey::from_seed(0), &device), tokens: sizes.tokens(batch, length, &device) })
    }

    /// Mean steps and seconds of every model, round by round.
    ///
    /// # Errors
    /// A usage error for sizes that contradict each other.
    pub fn measure(&self) -> Result<Vec<Series>, ProgramError> {
        let mut candidates = vec![("without halting".to_owned(), self.candidate(None)?)];
        for &bias in &self.biases {
            let halting = HaltingConfig { bias, skip_in_training: true, ..HaltingConfig::default() };
            candidates.push((format!("bias {bias}"), self.candidate(Some(halting))?));
        }
        let mut series = Vec::new();
        for (name, candidate) in &candidates {
            let steps = candidate.mean_steps().map_or(self.steps as f64, f64::from);
            series.push(Series { name: name.clone(), unit: "mean steps".to_owned(), values: vec![steps] });
            // What code and threads allocate once is there before the first round.
            candidate.training();
        }
        type Pass = fn(&Candidate) -> f64;
        for (unit, pass) in [("seconds of inference", Candidate::inference as Pass), ("seconds of training", Candidate::training)] {
            let seconds = in_turn(self.rounds, candidates.len(), |_, index| Ok::<_, ProgramError>(Some(pass(&candidates[index].1))))?;
            let named = candidates.iter().zip(seconds.unwrap_or_default());
            series.extend(named.map(|((name, _), values)| Series { name: name.clone(), unit: unit.to_owned(), values }));
        }
        Ok(series)
    }
}
