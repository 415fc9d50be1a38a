//! The same training on every backend.

use std::process::ExitCode;

use crate::backends::{BackendsOptions, Outcome, Training};
use crate::provenance;
use clap::Parser;
use heedful_host::allocator::keep_freed_memory;
use heedful_host::command::command_line;
use heedful_host::device_failure::guarded;
use heedful_host::exit::{Completion, ProgramError, main_with, print_line};
use heedful_host::machine::Machine;
use heedful_host::threads::among_workers;
use indicatif::{ProgressBar, ProgressStyle};

/// Train the same language model from equal weights on every backend.
///
/// Shows the losses side by side, their largest difference, and the time of a step without building and warm-up.
#[derive(Parser)]
#[command(name = "backends", version, after_help = EXAMPLES)]
struct Options {
    #[command(flatten)]
    options: BackendsOptions,
}

const EXAMPLES: &str = "Examples:
  backends
  backends --backend flex,cuda --attention lsh --length 1024 --steps 50
  backends --out backends

Exit codes: 0 done, 1 a training failed, 2 the command was refused.";

/// The program `backends`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { options } = Options::parse();
    keep_freed_memory();
    main_with(|| among_workers(|| run(&options)).map(|()| Completion::Finished))
}

fn run(options: &BackendsOptions) -> Result<(), ProgramError> {
    let BackendsOptions { backend, steps, batch, length, out, .. } = options;
    // Refuses heads that do not divide the width before anything is built.
    options.model.layer.sizes(*batch, *length)?;
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
