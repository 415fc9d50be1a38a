//! Runs one part of a model with given weights on given inputs.

use std::path::PathBuf;

use crate::session::error::{Completion, ExperimentError, print_line};
use crate::tools::parity::{self, ParityConfig};
use clap::Args;
use heedful_attention::description::AnyMechanism;
use heedful_runs::settings::Assignment;

const EXAMPLES: &str = "\
mechanism.toml, with the defaults of the part `attention`:
  attention = { name = \"dot-product\" }  # and its options; --list shows the names
  role = \"encoder\"                      # decoder: causal; cross: attends to `memory`
  d_model = 64
  heads = 4
  max_length = 64                       # size of tables that are tied to positions
  layer = 0                             # from 0
  layers = 1
  seed = 1                              # of random draws other than weights
  engine = \"auto\"                       # fused, reference
  memory_gradient = false               # whether the gradient reaches the memory of an earlier segment

Examples:
  heedful parity --list
  heedful parity --config mechanism.toml --describe
  heedful parity --config mechanism.toml --inputs in.safetensors --output out.safetensors
  heedful parity --part gate:gru --set d_model=8 --describe
  heedful parity --part gate:gru --set d_model=8 --example in.safetensors
  heedful parity --part gate:gru --set d_model=8 --inputs in.safetensors --output out.safetensors
  heedful parity --part step --attention lsh --set role=decoder --describe
  heedful parity --part block --set block.gate=gru --set cross=dot-product --describe

Exit codes: 0 done, 1 a file or tensor cannot be used, 2 the command or configuration was refused.";

/// Run one part of a model with given weights on given inputs, for comparison with other code.
///
/// Reads the weights and inputs of an attention, a gate, a halting unit, a block or a stack of blocks from a safetensors file. Writes its outputs, its
/// attention weights, and the gradients of the sum of outputs times their cotangents to another.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// Part, attention and sizes in TOML [default: as shown below]
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,

    /// Which part of a model [default: attention]
    #[arg(long, value_name = "NAME")]
    part: Option<String>,

    /// Which attention [default: dot-product]
    #[arg(long, value_name = "NAME")]
    attention: Option<String>,

    /// Execution of an attention, where there is a choice: auto, fused or reference [default: auto]
    #[arg(long, value_name = "auto|fused|reference")]
    engine: Option<String>,

    /// Set any field of the configuration, e.g. d_model=8 or attention.window=3; may be repeated
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    assignments: Vec<String>,

    /// Weights and inputs
    #[arg(long, value_name = "FILE.safetensors", required_unless_present_any = ["describe", "example", "list"])]
    inputs: Option<PathBuf>,

    /// File for outputs and gradients
    #[arg(long, value_name = "FILE.safetensors", required_unless_present_any = ["describe", "example", "list"])]
    output: Option<PathBuf>,

    /// Show the configuration with its defaults, and every tensor of both files with its shape and meaning, then exit
    #[arg(long, conflicts_with_all = ["inputs", "output", "example"])]
    describe: bool,

    /// Write random inputs and weights for --inputs, then exit
    #[arg(long, value_name = "FILE.safetensors", conflicts_with_all = ["inputs", "output"])]
    example: Option<PathBuf>,

    /// Backend: flex or ndarray (CPU), wgpu (GPU), or another GPU backend that is compiled in
    #[arg(long, value_name = "flex|ndarray|wgpu|vulkan|metal|webgpu|cuda|rocm", default_value = "flex")]
    backend: String,

    /// List parts and attention mechanisms with their abilities, then exit
    #[arg(long)]
    list: bool,
}

pub(super) fn run(options: &Options) -> Result<Completion, ExperimentError> {
    if options.list {
        print_line(parity::list())?;
        return Ok(Completion::Finished);
    }
    let config = ParityConfig::read(options.config.as_deref(), options.assignments()?)?;
    match (&options.inputs, &options.output, &options.example) {
        (Some(inputs), Some(output), _) => parity::run(&config, inputs, output, &options.backend),
        (_, _, Some(file)) => parity::example(&config, file),
        _ => parity::describe(&config),
    }
}

impl Options {
    fn assignments(&self) -> Result<Vec<Assignment>, ExperimentError> {
        let mut all = Vec::new();
        all.extend(self.part.as_deref().map(|part| Assignment::option("--part", "part", part)));
        if let Some(name) = &self.attention {
            let config: AnyMechanism = name.parse().map_err(|error| ExperimentError::usage(format!("--attention: {error}")))?;
            // A table, so that --set can change its options.
            let table = toml::Value::try_from(&config).map_err(|error| ExperimentError::usage(format!("--attention: {error}")))?;
            all.push(Assignment::option("--attention", "attention", table));
        }
        all.extend(self.engine.as_deref().map(|engine| Assignment::option("--engine", "engine", engine)));
        for text in &self.assignments {
            all.push(Assignment::parse(text)?);
        }
        Ok(all)
    }
}
