//! Shows how far the runs of an output folder are.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use crate::session::error::{Completion, ExperimentError, print_line};
use clap::Args;
use heedful_runs::status::FolderStatus;

const EXAMPLES: &str = "\
Examples:
  heedful status runs/mt
  heedful status runs/mt --watch
  heedful status runs/mt --json

Exit codes: 0 done, 1 the folder cannot be read, 2 the command was refused.";

/// Erases the terminal and goes to its first line.
const ERASE: &str = "\x1b[H\x1b[2J";
/// The width of a table that goes to a file or another program, in characters.
const PIPED_WIDTH: usize = 160;

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

    /// Show the table again every SECONDS, until all runs are finished or have failed, or Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", conflicts_with = "json", value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
}

pub(super) fn run(options: &Options) -> Result<Completion, ExperimentError> {
    let is_terminal = io::stdout().is_terminal();
    loop {
        let status = FolderStatus::read(&options.folder)?;
        if options.json {
            print_line(serde_json::to_string_pretty(&status).map_err(ExperimentError::failure)?)?;
            return Ok(Completion::Finished);
        }
        let width = terminal_size::terminal_size().filter(|_| is_terminal).map_or(PIPED_WIDTH, |(width, _)| usize::from(width.0));
        let erase = if is_terminal && options.watch.is_some() { ERASE } else { "" };
        print_line(format!("{erase}{}", status.in_words(width)))?;
        match options.watch {
            Some(seconds) if !status.has_ended() => std::thread::sleep(Duration::from_secs(seconds)),
            _ => return Ok(Completion::Finished),
        }
    }
}
