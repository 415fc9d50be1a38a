//! Shows what the attention of a trained model does.

use std::process::ExitCode;

use crate::algorithmic::Algorithmic;
use crate::analyse::{self, AnalyseOptions};
use crate::classification::Classification;
use crate::error::{Completion, ExperimentError, main_with};
use crate::experiment::Experiment;
use crate::image::ImageModelling;
use crate::language::Language;
use crate::options::CommonOptions;
use crate::pre_training::MaskedModelling;
use crate::results::Results;
use crate::run_folder::RunFolder;
use crate::text_classification::TextClassification;
use crate::text_generation::TextGeneration;
use crate::threads::among_workers;
use crate::translation::Translation;
use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  analyse runs/mt
  analyse runs/lm --attention synthesizer-random --text 'the cat sat on the mat'
  analyse runs/algorithmic --attention universal-act --dataset 'built-in reverse' --texts 50

Exit codes: 0 done, 1 a run or file cannot be used, 2 the command was refused.";

/// Show the attention of a trained model: maps, distances, entropies, spans, gates, halting, buckets.
///
/// Reads a run of mt, lm, glue, algorithmic, mlm, textgen, classify or image with its data, runs the initial and the trained model on test texts, and writes
/// tables (CSV), pictures (SVG, PNG) and a page that links them. The page also says which observations the mechanism does not have.
#[derive(Parser)]
#[command(name = "analyse", version, after_help = EXAMPLES)]
struct Options {
    #[command(flatten)]
    analyse: AnalyseOptions,
}

/// The program `analyse`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { analyse } = Options::parse();
    main_with(|| {
        CommonOptions::default().start_logging()?;
        among_workers(|| run(&analyse))?;
        Ok(Completion::Finished)
    })
}

fn run(options: &AnalyseOptions) -> Result<(), ExperimentError> {
    let folder = RunFolder::at(&options.run);
    let results = Results::read(&folder)?;
    let Some(record) = results.records().first() else {
        let path = folder.results();
        return Err(ExperimentError::usage(format!("`{}` has no finished run; give the output folder of an experiment", path.display())));
    };
    match record.experiment.as_str() {
        Algorithmic::NAME => analyse::run::<Algorithmic>(options),
        Classification::NAME => analyse::run::<Classification>(options),
        ImageModelling::NAME => analyse::run::<ImageModelling>(options),
        Language::NAME => analyse::run::<Language>(options),
        MaskedModelling::NAME => analyse::run::<MaskedModelling>(options),
        TextClassification::NAME => analyse::run::<TextClassification>(options),
        TextGeneration::NAME => analyse::run::<TextGeneration>(options),
        Translation::NAME => analyse::run::<Translation>(options),
        other => Err(ExperimentError::usage(format!("`{}` is a run of {other}, whose models read no texts", options.run.display()))),
    }
}
