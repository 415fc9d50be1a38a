//! Compares finished runs of several commands.

use std::process::ExitCode;

use crate::algorithmic::Algorithmic;
use crate::classification::Classification;
use crate::compare::{self, CompareOptions};
use crate::comparison::Comparison;
use crate::error::main_with;
use crate::image::{ImageModelling, SuperResolution};
use crate::language::Language;
use crate::memory_rl::MemoryRl;
use crate::options::CommonOptions;
use crate::pre_training::{MaskedModelling, SpanModelling};
use crate::report::MetricColumn;
use crate::text_classification::TextClassification;
use crate::text_generation::TextGeneration;
use crate::translation::Translation;
use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  compare runs/mt
  compare runs/lm runs/lm-longer --metric perplexity --baseline lm/dot-product
  compare runs/mt --test bootstrap --resamples 10000 --out comparison
  compare runs/glue --format latex
  compare experiments/results/built-in-mt runs/mt --exactly

Exit codes: 0 done, 1 a folder or file cannot be used or runs differ (--exactly), 2 the command was refused.";

/// Compare finished runs: scores over seeds, significance, costs and learning curves.
///
/// Reads the output folders of mt, lm, glue and the other experiments, and prints a table for each experiment and data set with a row for each folder and
/// attention or model. Differences from a baseline are tested over seeds, or over the sentences of a test set where the folders hold translations and
/// references.
#[derive(Parser)]
#[command(name = "compare", version, after_help = EXAMPLES)]
struct Options {
    #[command(flatten)]
    compare: CompareOptions,
}

/// The program `compare`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { compare } = Options::parse();
    main_with(|| {
        CommonOptions::default().start_logging()?;
        compare::run(&compare, columns)
    })
}

/// The metrics of an experiment's report.
fn columns(experiment: &str) -> Vec<MetricColumn> {
    match experiment {
        Algorithmic::NAME => Algorithmic::columns(),
        Classification::NAME => Classification::columns(),
        ImageModelling::NAME => ImageModelling::columns(),
        Language::NAME => Language::columns(),
        MaskedModelling::NAME => MaskedModelling::columns(),
        MemoryRl::NAME => MemoryRl::columns(),
        SpanModelling::NAME => SpanModelling::columns(),
        SuperResolution::NAME => SuperResolution::columns(),
        TextClassification::NAME => TextClassification::columns(),
        TextGeneration::NAME => TextGeneration::columns(),
        Translation::NAME => Translation::columns(),
        _ => Vec::new(),
    }
}
