//! The program of an experiment that has no options but the common ones.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use heedful_host::threads::among_workers;

use crate::analyse::{self, AnalyseOptions};
use crate::comparison::{model_assignments, with_options};
use crate::error::{Completion, main_with};
use crate::experiment::definition::Experiment;
use crate::options::{CommonOptions, examples, parse_with};

#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Program {
    #[command(subcommand)]
    tool: Option<Tool>,

    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

#[derive(Subcommand)]
enum Tool {
    /// Show what the attention of a trained model does
    Analyse(AnalyseOptions),
}

/// The body of an experiment's program: reads its options from the command line and runs. With `analyse RUN` it shows the attention of a trained model.
pub fn main<E: Experiment>() -> ExitCode {
    let command = Program::command().name(E::NAME).about(E::TITLE).after_help(examples(E::NAME));
    let Program { tool, model, common } = parse_with(command.mut_arg("model", |model| model.hide(E::MODELS.is_empty())));
    match tool {
        Some(Tool::Analyse(options)) => main_with(|| {
            CommonOptions::default().start_logging()?;
            among_workers(|| analyse::run::<E>(&options))?;
            Ok(Completion::Finished)
        }),
        None => with_options::<E>(&common, model_assignments(&model, &common)),
    }
}
