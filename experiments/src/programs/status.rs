//! Shows how far the runs of an output folder are.

use std::path::PathBuf;

use crate::session::error::{Completion, ExperimentError, print_line};
use clap::Args;
use heedful_runs::status::FolderStatus;

const EXAMPLES: &str = "\
Examples:
  heedful status runs/mt
  heedful status runs/mt --json

Exit codes: 0 done, 1 the folder cannot be read, 2 the command was refused.";

/// Show how far the runs of an output folder are: finished, running, failed, interrupted, waiting.
///
/// Reads the files of the folder, whoever works in it: other commands, shards, or the tasks of a Slurm job. A process of another machine is taken to run as long
/// as its lock is there.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// Output folder of an experiment
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<Completion, ExperimentError> {
    let status = FolderStatus::read(&options.folder)?;
    match options.json {
        true => print_line(serde_json::to_string_pretty(&status).map_err(ExperimentError::failure)?)?,
        false => print_line(status.in_words())?,
    }
    Ok(Completion::Finished)
}
