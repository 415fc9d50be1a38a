//! Replacing the attention of the model that a contender begins with, and what records say of it.

use heedful_host::whole_files::write_atomically;
use heedful_models::pretrained::swap::{SwapReport, Swappable, reinitialise_attention, swap_attention};

use super::contender::Contender;
use crate::tasks::prelude::*;

/// The share of the replaced attentions' parameters that was kept.
const KEPT: &str = "attention kept";
/// Parameters of the new attentions with initial values.
const NEW: &str = "new parameters";
/// Parameters of the replaced attentions that are gone.
const DROPPED: &str = "dropped parameters";
/// The file in the folder of a run that names them.
const PARAMETERS: &str = "swap.json";

/// A model after the swap.
pub(crate) struct Beginning<M> {
    pub(crate) model: M,
    /// Nothing for a contender that replaces nothing.
    pub(crate) report: Option<SwapReport>,
}

/// The model that the runs of a contender begin with, made of the one that all begin with, which has this configuration. New attentions keep what they can of the
/// old ones, unless `reinitialise` says that all of them is to be initial.
pub(crate) fn beginning<C: Swappable>(
    model: C::Model,
    config: &C,
    attention: &Attention,
    key: &RandomKey,
    reinitialise: bool,
) -> Result<Beginning<C::Model>, ExperimentError> {
    match attention.name.parse::<Contender>()? {
        Contender::Unchanged => Ok(Beginning { model, report: None }),
        Contender::Swap { layers, .. } => {
            let replace = if reinitialise { reinitialise_attention } else { swap_attention };
            let swapped = replace(model, config, &layers, attention.layout.decoder.clone(), key);
            let swapped = swapped.map_err(ExperimentError::usage)?;
            Ok(Beginning { model: swapped.model, report: Some(swapped.report) })
        }
    }
}

/// Adds to the scores of a run what was kept, and writes the names of all parameters into its folder.
pub(crate) fn record(report: &SwapReport, scores: &mut Scores, paths: &RunPaths) -> Result<(), ExperimentError> {
    scores.metrics.extend(report.kept_share().map(|share| (KEPT.to_owned(), share)));
    let counts = [(NEW, report.new_parameters()), (DROPPED, report.dropped_parameters())];
    scores.metrics.extend(counts.map(|(name, count)| (name.to_owned(), count as f64)));
    scores.notes.push(report.to_string());
    let text = serde_json::to_string_pretty(report).map_err(ExperimentError::failure)?;
    Ok(write_atomically(&paths.root().join(PARAMETERS), text.as_bytes())?)
}

/// The columns of what was kept.
pub(crate) fn columns() -> [MetricColumn; 3] {
    [
        MetricColumn::new(KEPT, "kept %")
            .percent()
            .digits(1)
            .defined_as("share of the parameters of the replaced attentions that the new ones have")
            .shown_in(PARAMETERS),
        MetricColumn::new(NEW, "new").digits(0).defined_as("parameters of the new attentions with initial values").shown_in(PARAMETERS),
        MetricColumn::new(DROPPED, "dropped")
            .digits(0)
            .defined_as("parameters of the replaced attentions that are gone")
            .shown_in(PARAMETERS),
    ]
}
