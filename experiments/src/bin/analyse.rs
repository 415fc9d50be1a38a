//! Shows what the attention of a trained model does.

use std::process::ExitCode;

use clap::Parser;
use heedful_experiments::algorithmic::Algorithmic;
use heedful_experiments::analyse::{self, AnalyseOptions};
use heedful_experiments::classification::Classification;
use heedful_experiments::comparison::Comparison;
use heedful_experiments::error::{Completion, ExperimentError, main_with};
use heedful_experiments::image::ImageModelling;
use heedful_experiments::language::Language;
use heedful_experiments::options::CommonOptions;
use heedful_experiments::pre_training::MaskedModelling;
use heedful_experiments::results::Results;
use heedful_experiments::run_folder::RunFolder;
use heedful_experiments::text_classification::TextClassification;
use heedful_experiments::text_generation::TextGeneration;
use heedful_experiments::threads::among_workers;
use heedful_experiments::translation::Translation;

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

pub(crate) fn main() -> ExitCode {
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
