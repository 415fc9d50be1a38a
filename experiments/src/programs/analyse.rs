//! Shows what the attention of a trained model does.

use crate::analyse::AnalyseOptions;
use crate::session::error::{Completion, ExperimentError};
use crate::table::Row;
use clap::Args;
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;

const EXAMPLES: &str = "\
Examples:
  heedful analyse runs/mt
  heedful analyse runs/lm --attention synthesizer-random --text 'the cat sat on the mat'
  heedful analyse runs/algorithmic --attention universal-act --dataset 'built-in reverse' --texts 50

Exit codes: 0 done, 1 a run or file cannot be used, 2 the command was refused.";

/// Show the attention of a trained model: maps, distances, entropies, spans, gates, halting, buckets.
///
/// Reads a run of an experiment with its data, runs the initial and the trained model on test texts, and writes tables (CSV), pictures (SVG, PNG) and a page
/// that links them. The page also says which observations the mechanism does not have.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    #[command(flatten)]
    analyse: AnalyseOptions,
}

pub(super) fn run(Options { analyse: options }: &Options) -> Result<Completion, ExperimentError> {
    let folder = RunFolder::at(&options.run);
    let results = Results::read(&folder)?;
    let Some(record) = results.records().first() else {
        let path = folder.results();
        return Err(ExperimentError::usage(format!("`{}` has no finished run; give the output folder of an experiment", path.display())));
    };
    let name = &record.experiment;
    let Some(row) = Row::named(name) else {
        return Err(ExperimentError::usage(format!(
            "`{0}` is a run of {name}, which this program does not know; if that is an experiment of your own, its program analyses it: `{name} analyse {0}`",
            options.run.display()
        )));
    };
    let Some(analyse) = row.analyse else {
        return Err(ExperimentError::usage(format!("`{}` is a run of {name}, whose models read no texts", options.run.display())));
    };
    analyse(options)?;
    Ok(Completion::Finished)
}
