//! The same training on every backend.

use std::fs;
use std::process::ExitCode;

use crate::backends::{BackendsOptions, Outcome, Training};
#[cfg(feature = "wgpu")]
use crate::launches::page as launches;
use crate::provenance;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use heedful_backends::device_failure::guarded;
use heedful_host::allocator::keep_freed_memory;
use heedful_host::command::command_line;
use heedful_host::exit::{Completion, ProgramError, main_with, print_line};
use heedful_host::machine::Machine;
use heedful_host::threads::among_workers;
use heedful_host::whole_files::write_atomically;
use indicatif::{ProgressBar, ProgressStyle};

/// Train the same language model from equal weights on every backend.
///
/// Shows the losses side by side, their largest difference, and the time of a step without building and warm-up.
#[derive(Parser)]
#[command(name = "backends", after_help = EXAMPLES)]
struct Options {
    #[command(flatten)]
    options: BackendsOptions,
}

const EXAMPLES: &str = "Examples:
  heedful backends
  heedful backends --backend flex,cuda --attention lsh --length 1024 --steps 50
  heedful backends --out backends
  heedful backends --backend wgpu --launches

Exit codes: 0 done, 1 a training failed, 2 the command was refused.";

/// The command `backends`.
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the command `backends`.
pub fn main(matches: &ArgMatches) -> ExitCode {
    let Options { options } = Options::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    keep_freed_memory();
    main_with(|| among_workers(|| run(&options)).map(|()| Completion::Finished))
}

fn run(options: &BackendsOptions) -> Result<(), ProgramError> {
    let BackendsOptions { backend, steps, batch, length, out, .. } = options;
    // Refuses heads that do not divide the width before anything is built.
    options.model.layer.sizes(*batch, *length)?;
    if options.launches {
        let page = launches(options)?;
        if let Some(folder) = out {
            fs::create_dir_all(folder).map_err(|error| ProgramError::failure(format!("cannot make `{}`: {error}", folder.display())))?;
            write_atomically(&folder.join("launches.md"), page.as_bytes())?;
        }
        return print_line(page);
    }
    let mut outcome = Outcome {
        command: command_line(),
        machine: Machine::here(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        provenance: Some(provenance::here()),
        tokens: batch * length,
        trainings: Vec::new(),
    };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} [{elapsed_precise}] {msg}").expect("the template is well formed");
    let progress = ProgressBar::new(steps * backend.len() as u64).with_style(style);
    for &backend in backend {
        let remedy = "if its memory is too small, give a smaller batch or a smaller model; the trainings before are in the folder of --out";
        outcome.trainings.push(guarded(backend, remedy, || Training::run(backend, options, &progress))?);
        if let Some(folder) = out {
            outcome.write(folder)?;
        }
    }
    progress.finish_and_clear();
    print_line(outcome.markdown())
}

#[cfg(not(feature = "wgpu"))]
fn launches(_options: &BackendsOptions) -> Result<String, ProgramError> {
    Err(ProgramError::usage("--launches: this program was built without accelerators; build it with `--features wgpu`"))
}
