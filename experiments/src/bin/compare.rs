//! Compares finished runs of several commands.

use std::process::ExitCode;

use clap::Parser;
use heedful_experiments::algorithmic::Algorithmic;
use heedful_experiments::classification::Classification;
use heedful_experiments::compare::{self, CompareOptions};
use heedful_experiments::comparison::Comparison;
use heedful_experiments::error::main_with;
use heedful_experiments::image::{ImageModelling, SuperResolution};
use heedful_experiments::language::Language;
use heedful_experiments::memory_rl::MemoryRl;
use heedful_experiments::options::CommonOptions;
use heedful_experiments::pre_training::{MaskedModelling, SpanModelling};
use heedful_experiments::report::MetricColumn;
use heedful_experiments::text_classification::TextClassification;
use heedful_experiments::text_generation::TextGeneration;
use heedful_experiments::translation::Translation;

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

pub(crate) fn main() -> ExitCode {
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
