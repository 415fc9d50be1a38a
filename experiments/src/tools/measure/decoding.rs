//! Sentences per second of decoding, by how many are decoded at once.

use std::time::Instant;

use clap::Args;
use heedful_host::interrupt::Interrupt;
use heedful_host::rounds::{Series, in_turn};

use super::models::{ModelOptions, positive};
use crate::session::comparison::Reloaded;
use crate::session::error::ExperimentError;
use crate::session::experiment::{Experiment, Setup};
use crate::tasks::text_to_text::{Decoding, TextToTextTask};
use crate::tasks::translation::Translation;

/// What is translated, and how.
#[derive(Args, Clone, Debug)]
pub struct DecodingOptions {
    #[command(flatten)]
    models: ModelOptions,

    /// Test sentences that are translated
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = positive())]
    sentences: usize,

    /// Sentences that are decoded at once
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_values_t = [1, 16, 128], value_parser = positive())]
    at_once: Vec<usize>,
}

impl DecodingOptions {
    /// Measures the models of a finished command of `mt`, with the search of its configuration.
    ///
    /// # Errors
    /// Runs that cannot be read, or a file that cannot be written.
    pub fn run(&self) -> Result<(), ExperimentError> {
        let models = self.models.models::<Translation>()?;
        let search = models.first().map_or_else(String::new, |model| model.config.own.decoding.to_string());
        let about =
            format!("Translating test sentences with a trained model, on flex, {search}. Sentences of like length are decoded together.");
        self.models.measured(&about, || self.measure(&models))
    }

    fn measure(&self, models: &[Reloaded<Translation>]) -> Result<Vec<Series>, ExperimentError> {
        let cases: Vec<(&Reloaded<Translation>, usize)> =
            models.iter().flat_map(|model| self.at_once.iter().map(move |&at_once| (model, at_once))).collect();
        let sources = models.iter().map(|model| model.dataset.test_sources(self.sentences)).collect::<Result<Vec<_>, _>>()?;
        // What code and threads need once is there before the first round.
        for (model, sources) in models.iter().zip(&sources) {
            translate(model, &sources[..sources.len().min(1)], 1);
        }
        let speeds = in_turn(self.models.rounds, cases.len(), |_, index| {
            let (model, at_once) = cases[index];
            let sources = &sources[index / self.at_once.len()];
            let begun = Instant::now();
            translate(model, sources, at_once);
            Ok::<_, ExperimentError>(Some(sources.len() as f64 / begun.elapsed().as_secs_f64()))
        })?;
        let series = |((model, at_once), values): (&(&Reloaded<Translation>, usize), Vec<f64>)| Series {
            name: format!("{}, {at_once} at once", model.attention.name),
            unit: "sentences per second".to_owned(),
            values,
        };
        Ok(cases.iter().zip(speeds.unwrap_or_default()).map(series).collect())
    }
}

/// Translates sentences, so many at once, and returns the translations.
fn translate(model: &Reloaded<Translation>, sources: &[Vec<u32>], at_once: usize) -> Vec<String> {
    let Reloaded { config, dataset, attention, trained, .. } = model;
    let decoding = Decoding { batch_tokens: usize::MAX, ..config.own.decoding.clone() };
    let task = TextToTextTask { decoding: &decoding, ..Translation::task(Setup { config, data: dataset, attention }) };
    let interrupt = Interrupt::new();
    let batches = sources.chunks(at_once).map(|batch| task.generate(trained, batch, "translating", &interrupt));
    batches.flatten().flatten().collect()
}
