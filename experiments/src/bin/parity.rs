//! Runs one attention with given weights on given inputs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use heedful_experiments::error::{Completion, ExperimentError, main_with, print_line};
use heedful_experiments::options::CommonOptions;
use heedful_experiments::{mechanisms, parity};

const EXAMPLES: &str = "\
mechanism.toml, with the defaults:
  attention = { name = \"dot-product\" }  # and its options; --list shows the names
  role = \"encoder\"                      # decoder: causal; cross: attends to `memory`
  d_model = 64
  heads = 4
  max_length = 64                       # size of tables that are tied to positions
  layer = 0                             # from 0
  layers = 1
  seed = 1                              # of what is drawn and no weight

Examples:
  parity --list
  parity --config mechanism.toml --describe
  parity --config mechanism.toml --inputs in.safetensors --output out.safetensors

Exit codes: 0 done, 1 a file or tensor cannot be used, 2 the command or configuration was refused.";

/// Run one attention with given weights on given inputs, for comparison with other code.
///
/// Reads the weights and inputs of one attention from a safetensors file and writes its output, its attention weights and the gradients of
/// sum(output * cotangent) to another.
#[derive(Parser)]
#[command(name = "parity", version, after_help = EXAMPLES)]
struct Options {
    /// The attention and its sizes, in TOML
    #[arg(long, value_name = "FILE.toml", required_unless_present = "list")]
    config: Option<PathBuf>,

    /// Weights and inputs
    #[arg(long, value_name = "FILE.safetensors", required_unless_present_any = ["describe", "list"])]
    inputs: Option<PathBuf>,

    /// Where output and gradients are written
    #[arg(long, value_name = "FILE.safetensors", required_unless_present_any = ["describe", "list"])]
    output: Option<PathBuf>,

    /// Show the configuration with its defaults, and every tensor of both files with its shape and meaning, then exit
    #[arg(long, conflicts_with_all = ["inputs", "output"])]
    describe: bool,

    /// Where tensors are computed: flex (CPU), ndarray (CPU), wgpu (GPU) or cuda (GPU, if built in)
    #[arg(long, value_name = "flex|ndarray|wgpu|cuda", default_value = "flex")]
    backend: String,

    /// List the attention mechanisms and what each can do, then exit
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    main_with(|| run(&Options::parse()))
}

fn run(options: &Options) -> Result<Completion, ExperimentError> {
    CommonOptions::default().start_logging()?;
    if options.list {
        print_line(mechanisms::list())?;
        return Ok(Completion::Finished);
    }
    let Options { config: Some(config), inputs, output, .. } = options else { unreachable!("clap asks for --config") };
    match (inputs, output) {
        (Some(inputs), Some(output)) => parity::run(config, inputs, output, &options.backend),
        _ => parity::describe(config),
    }
}
