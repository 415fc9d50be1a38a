//! The tools beside the experiments, in one program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use heedful_host::threads::among_workers;

use crate::error::{Completion, main_with};
use crate::options::{CommonOptions, parse, print_completions};

use super::{analyse, compare, data, measure, parity, status};

/// Tools of the heedful toolkit: show how far runs are, compare, analyse and measure finished ones, fetch data sets, check mechanisms against other code.
#[derive(Parser)]
#[command(name = "heedful", version)]
struct Options {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    Analyse(analyse::Options),
    Compare(compare::Options),
    Data(data::Options),
    Measure(measure::Options),
    Parity(Box<parity::Options>),
    Status(status::Options),
    /// Print the script with which a shell completes options
    Completions {
        shell: Shell,
    },
}

/// The program `heedful`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { tool } = parse::<Options>();
    main_with(|| {
        CommonOptions::default().start_logging()?;
        match &tool {
            Tool::Analyse(options) => among_workers(|| analyse::run(options)),
            Tool::Compare(options) => compare::run(options),
            Tool::Data(options) => data::run(options),
            Tool::Measure(options) => among_workers(|| measure::run(options)),
            Tool::Parity(options) => parity::run(options),
            Tool::Status(options) => status::run(options),
            Tool::Completions { shell } => {
                print_completions(*shell, &mut Options::command(), "heedful")?;
                Ok(Completion::Finished)
            }
        }
    })
}
