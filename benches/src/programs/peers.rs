//! Compares heedful with PyTorch and packages on it, in time and memory.

use std::process::ExitCode;

use crate::peers::comparison::{compare, prepare, warn_if_busy};
use crate::peers::cores::one_for_each;
use crate::peers::options::{
    AttentionOptions, ConvolutionsOptions, DecodeOptions, DepthOptions, DropoutOptions, InferenceOptions, MeasuringOptions,
    MechanismsOptions, MemoryOptions, PackagesOptions, PositionsOptions, RecurrencesOptions, StepOptions, TablesOptions, defaults,
};
use crate::peers::outcome::Outcome;
use crate::peers::protocol::serve_standard_input;
use crate::peers::report::write_page;
use crate::provenance;
use clap::{Parser, Subcommand};
use heedful_host::allocator::keep_freed_memory;
use heedful_host::exit::{Completion, ProgramError, main_with};
use heedful_host::machine::{Machine, load};
use heedful_host::provenance::Provenance;

/// Compare heedful with PyTorch and its packages, in time and memory.
///
/// Runs of both sides alternate on the same cores, with a core for each thread where --threads is the number of cores. Without Python or its packages (`pip
/// install -r benches/peers/requirements.txt`) only heedful is measured.
#[derive(Parser)]
#[command(name = "peers", version, after_help = EXAMPLES)]
struct Options {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    measuring: MeasuringOptions,
}

const EXAMPLES: &str = "Examples:
  peers step
  taskset -c 0,1 peers step      (both sides on the same two of many cores)
  peers attention --lengths 512,2048 --python venv/bin/python
  peers mechanisms --without-python --threads 8
  peers all --out benches/results

Exit codes: 0 done, 1 a measurement failed, 2 the command was refused.";

#[derive(Subcommand)]
enum What {
    /// Dense causal attention, forward and backward, by length
    Attention(AttentionOptions),
    /// A whole training step of a language model
    Step(StepOptions),
    /// Local, sparse and LSH attention, forward and backward, by length
    Mechanisms(MechanismsOptions),
    /// Peak memory of every mechanism, forward and backward, by length
    Memory(MemoryOptions),
    /// Time and peak memory of models of growing depth, with activations kept, recomputed, or in reversible layers
    Depth(DepthOptions),
    /// Random synthesizer and Gaussian attention, inference, by length
    Inference(InferenceOptions),
    /// Stepwise decoding, by mechanism
    Decode(DecodeOptions),
    /// Our mechanisms that PyTorch packages have too, forward and backward, by length
    Packages(PackagesOptions),
    /// Linear attention, simple GLA and Gated DeltaNet beside those of packages, forward and backward, by length
    Recurrences(RecurrencesOptions),
    /// Random synthesizers beside plain code on PyTorch, forward and backward, by length
    Tables(TablesOptions),
    /// Lightweight and dynamic convolutions beside operations of PyTorch, forward and backward, by length
    Convolutions(ConvolutionsOptions),
    /// Relative positions, spans and patterns beside our dot-product attention, forward and backward, by length
    Positions(PositionsOptions),
    /// Dropout of attention's weights, forward and backward, by length
    Dropout(DropoutOptions),
    /// All of the above with their defaults
    All,
    /// Write README.md of the results in --out again
    Report,
    /// Answer requests on standard input: our side of a comparison
    #[command(hide = true)]
    Worker,
}

/// The program `peers`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { what, measuring } = Options::parse();
    main_with(|| run(&what, &measuring).map(|()| Completion::Finished))
}

fn run(what: &What, measuring: &MeasuringOptions) -> Result<(), ProgramError> {
    let plans = match what {
        What::Attention(options) => vec![options.plan()?],
        What::Step(options) => vec![options.plan()?],
        What::Mechanisms(options) => vec![options.plan()?],
        What::Memory(options) => vec![options.plan()?],
        What::Depth(options) => vec![options.plan()?],
        What::Inference(options) => vec![options.plan()?],
        What::Decode(options) => vec![options.plan()?],
        What::Packages(options) => vec![options.plan()?],
        What::Recurrences(options) => vec![options.plan()?],
        What::Tables(options) => vec![options.plan()?],
        What::Convolutions(options) => vec![options.plan()?],
        What::Positions(options) => vec![options.plan()?],
        What::Dropout(options) => vec![options.plan()?],
        What::All => vec![
            defaults::<AttentionOptions>().plan()?,
            defaults::<StepOptions>().plan()?,
            defaults::<MechanismsOptions>().plan()?,
            defaults::<MemoryOptions>().plan()?,
            defaults::<DepthOptions>().plan()?,
            defaults::<InferenceOptions>().plan()?,
            defaults::<DecodeOptions>().plan()?,
            defaults::<PackagesOptions>().plan()?,
            defaults::<RecurrencesOptions>().plan()?,
            defaults::<TablesOptions>().plan()?,
            defaults::<ConvolutionsOptions>().plan()?,
            defaults::<PositionsOptions>().plan()?,
            defaults::<DropoutOptions>().plan()?,
        ],
        What::Report => {
            let folder = measuring.out.as_ref().ok_or_else(|| ProgramError::usage("report needs --out DIR, the folder of the results"))?;
            return write_page(folder);
        }
        What::Worker => {
            keep_freed_memory();
            return serve_standard_input().map_err(ProgramError::failure);
        }
    };
    // Before anything here adds to it.
    let load = load();
    warn_if_busy(load);
    let (alternation, versions) = prepare(measuring, &["worker"])?;
    // The sides are processes of their own, with as many threads as the options say.
    let provenance = Some(Provenance { threads: measuring.threads, ..provenance::here() });
    let bound = one_for_each(measuring.threads).is_some();
    let blank = Outcome { machine: Machine::here(), load, threads: measuring.threads, bound, versions, provenance, ..Outcome::default() };
    plans.iter().try_for_each(|plan| compare(plan, &alternation, &blank, measuring.out.as_deref()))
}
