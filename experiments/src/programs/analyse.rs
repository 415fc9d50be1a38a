//! Shows what the attention of a trained model does.

use crate::algorithmic::Algorithmic;
use crate::analyse::{self, AnalyseOptions};
use crate::classification::Classification;
use crate::error::{Completion, ExperimentError};
use crate::experiment::Experiment;
use crate::image::{ImageMixtures, ImageModelling, SuperResolution};
use crate::language::Language;
use crate::memory_rl::MemoryRl;
use crate::pre_training::{MaskedModelling, SpanModelling};
use crate::recall::{Recall, Track};
use crate::swap::Swap;
use crate::text_classification::TextClassification;
use crate::text_generation::TextGeneration;
use crate::translation::Translation;
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
/// Reads a run of mt, lm, glue, algorithmic, mlm (both objectives), textgen, classify, image, memory-rl, recall, track or swap with its data, runs the initial and the trained
/// model on test texts, and writes tables (CSV), pictures (SVG, PNG) and a page that links them. The page also says which observations the mechanism does not
/// have.
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
    let analyse = match record.experiment.as_str() {
        Algorithmic::NAME => analyse::run::<Algorithmic>,
        Classification::NAME => analyse::run::<Classification>,
        ImageModelling::NAME => analyse::run::<ImageModelling>,
        Language::NAME => analyse::run::<Language>,
        ImageMixtures::NAME => analyse::run::<ImageMixtures>,
        SuperResolution::NAME => analyse::run::<SuperResolution>,
        MemoryRl::NAME => analyse::run::<MemoryRl>,
        MaskedModelling::NAME => analyse::run::<MaskedModelling>,
        SpanModelling::NAME => analyse::run::<SpanModelling>,
        Recall::NAME => analyse::run::<Recall>,
        Swap::NAME => analyse::run::<Swap>,
        TextClassification::NAME => analyse::run::<TextClassification>,
        TextGeneration::NAME => analyse::run::<TextGeneration>,
        Track::NAME => analyse::run::<Track>,
        Translation::NAME => analyse::run::<Translation>,
        other => {
            return Err(ExperimentError::usage(format!(
                "`{0}` is a run of {other}, whose models read no texts here; if that is an experiment of your own, its program analyses it: `{other} analyse {0}`",
                options.run.display()
            )));
        }
    };
    analyse(options)?;
    Ok(Completion::Finished)
}
