//! Seconds of scoring a text: with a memory, or with a window that moves on.
//!
//! Dai et al., "Transformer-XL" (1901.02860), section 4.5 and Table 9: a memory saves what a window that moves by one token computes again.

use std::time::Instant;

use clap::Args;
use heedful_host::interrupt::Interrupt;
use heedful_host::rounds::{Series, in_turn};

use super::models::{ModelOptions, positive};
use crate::session::comparison::Reloaded;
use crate::session::error::ExperimentError;
use crate::tasks::language::{Language, LanguageTask};

/// What is scored, and how.
#[derive(Args, Clone, Debug)]
pub struct ScoringOptions {
    #[command(flatten)]
    models: ModelOptions,

    /// Tokens of the test text that are scored [default: all]
    #[arg(long, value_name = "N", value_parser = positive())]
    tokens: Option<usize>,

    /// By how many tokens the window of models without memory moves [default: as in their configuration]
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive())]
    stride: Vec<usize>,
}

/// A model, how it reads the text, and the name of both.
struct Case<'a> {
    name: String,
    task: LanguageTask<'a>,
    reloaded: &'a Reloaded<Language>,
}

impl ScoringOptions {
    /// Measures the models of a finished command of `lm`.
    ///
    /// # Errors
    /// Runs that cannot be read, a stride that no model can have, or a file that cannot be written.
    pub fn run(&self) -> Result<(), ExperimentError> {
        let models = self.models.models::<Language>()?;
        let about = "Seconds of scoring a part of the test text with a trained language model, on flex.";
        self.models.measured(about, || self.measure(&models))
    }

    fn measure(&self, models: &[Reloaded<Language>]) -> Result<Vec<Series>, ExperimentError> {
        let cases = self.cases(models)?;
        let interrupt = Interrupt::new();
        let score = |case: &Case<'_>, tokens| {
            let begun = Instant::now();
            case.task.score_tokens(&case.reloaded.trained, tokens, &interrupt).map(|_| begun.elapsed().as_secs_f64())
        };
        // What code and threads need once is there before the first round.
        for case in &cases {
            score(case, case.reloaded.config.own.data.context);
        }
        let all = self.tokens.unwrap_or(usize::MAX);
        let seconds = in_turn(self.models.rounds, cases.len(), |_, index| Ok::<_, ExperimentError>(score(&cases[index], all)))?;
        let series = |(case, values): (&Case<'_>, Vec<f64>)| Series { name: case.name.clone(), unit: "seconds".to_owned(), values };
        Ok(cases.iter().zip(seconds.unwrap_or_default()).map(series).collect())
    }

    /// Each model with a memory once, each other one with every stride.
    fn cases<'a>(&self, models: &'a [Reloaded<Language>]) -> Result<Vec<Case<'a>>, ExperimentError> {
        let mut cases = Vec::new();
        for reloaded in models {
            let (own, name) = (&reloaded.config.own.data, &reloaded.attention.name);
            if own.evaluation_memory() > 0 {
                let name = format!("{name}, memory {}", own.evaluation_memory());
                cases.push(Case { name, task: LanguageTask::new(&reloaded.config, &reloaded.dataset), reloaded });
                continue;
            }
            for &stride in if self.stride.is_empty() { std::slice::from_ref(&own.stride) } else { &self.stride } {
                if stride > own.context {
                    let problem = format!("--stride {stride}: the window of {name} has {} tokens; give a smaller number", own.context);
                    return Err(ExperimentError::usage(problem));
                }
                let mut config = reloaded.config.clone();
                config.own.data.stride = stride;
                let task = LanguageTask::owning(config, &reloaded.dataset);
                cases.push(Case { name: format!("{name}, stride {stride}"), task, reloaded });
            }
        }
        if !self.stride.is_empty() && models.iter().all(|model| model.config.own.data.evaluation_memory() > 0) {
            return Err(ExperimentError::usage("--stride: all of these models have a memory and no window; leave it out"));
        }
        Ok(cases)
    }
}
