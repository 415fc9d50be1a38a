//! Compares heedful with PyTorch and packages on it, in time and memory.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, FromArgMatches, Parser, Subcommand};
use heedful_benches::peers::measure::{Alternation, Measurement};
use heedful_benches::peers::options::{
    AttentionOptions, DecodeOptions, DepthOptions, InferenceOptions, MeasuringOptions, MechanismsOptions, MemoryOptions, StepOptions,
};
use heedful_benches::peers::plan::Plan;
use heedful_benches::peers::protocol::serve;
use heedful_benches::peers::report::{Outcome, load, write_page};
use heedful_benches::peers::side::{Maker, Sides};
use heedful_experiments::allocator::keep_freed_memory;
use heedful_experiments::error::{Completion, ExperimentError, main_with, print_line};
use heedful_experiments::record::Machine;
use heedful_experiments::threads::among_workers;
use indicatif::{ProgressBar, ProgressStyle};

/// Compare heedful with PyTorch, local-attention and reformer-pytorch, in time and memory.
///
/// Runs of both sides alternate on the same cores. Without Python or its packages (`pip install -r benches/peers/requirements.txt`) heedful is
/// measured alone.
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
    /// Time and peak memory of models of growing depth, with activations kept, computed again, or reversible
    Depth(DepthOptions),
    /// Random synthesizer and Gaussian attention, inference, by length
    Inference(InferenceOptions),
    /// Decoding step by step, by mechanism
    Decode(DecodeOptions),
    /// All of the above with their defaults
    All,
    /// Write README.md of the results in --out again
    Report,
    /// Answer requests on standard input: our side of a comparison
    #[command(hide = true)]
    Worker,
}

fn main() -> ExitCode {
    let Options { what, measuring } = Options::parse();
    main_with(|| run(&what, &measuring).map(|()| Completion::Finished))
}

fn run(what: &What, measuring: &MeasuringOptions) -> Result<(), ExperimentError> {
    let plans = match what {
        What::Attention(options) => vec![options.plan()?],
        What::Step(options) => vec![options.plan()?],
        What::Mechanisms(options) => vec![options.plan()?],
        What::Memory(options) => vec![options.plan()?],
        What::Depth(options) => vec![options.plan()?],
        What::Inference(options) => vec![options.plan()?],
        What::Decode(options) => vec![options.plan()?],
        What::All => vec![
            defaults::<AttentionOptions>().plan()?,
            defaults::<StepOptions>().plan()?,
            defaults::<MechanismsOptions>().plan()?,
            defaults::<MemoryOptions>().plan()?,
            defaults::<DepthOptions>().plan()?,
            defaults::<InferenceOptions>().plan()?,
            defaults::<DecodeOptions>().plan()?,
        ],
        What::Report => {
            let folder =
                measuring.out.as_ref().ok_or_else(|| ExperimentError::usage("report needs --out DIR, the folder of the results"))?;
            return write_page(folder);
        }
        What::Worker => {
            keep_freed_memory();
            return among_workers(|| serve(io::stdin().lock(), io::stdout().lock())).map_err(ExperimentError::failure);
        }
    };
    // Before anything here adds to it.
    let load = load();
    if let Some(load) = load.filter(|&load| load > BUSY) {
        eprintln!("warning: the machine is busy (load {load:.1}): what is measured now is not worth keeping");
    }
    let (alternation, versions) = prepare(measuring)?;
    let blank = Outcome { machine: Machine::here(), load, threads: measuring.threads, versions, ..Outcome::default() };
    plans.iter().try_for_each(|plan| compare(plan, &alternation, &blank, measuring.out.as_ref()))
}

/// Processes that run or wait, on average of a minute, beyond which the machine has something else to do. PyTorch's threads, which wait for each other
/// without sleeping, suffer from company more than ours.
const BUSY: f64 = 0.5;

/// The options of a command that is given none.
fn defaults<T: Args + FromArgMatches>() -> T {
    let matches = T::augment_args(clap::Command::new("defaults")).get_matches_from(["defaults"]);
    T::from_arg_matches(&matches).expect("every option has a default")
}

/// Finds out who can be measured, and their versions.
fn prepare(measuring: &MeasuringOptions) -> Result<(Alternation, BTreeMap<String, String>), ExperimentError> {
    let MeasuringOptions { threads, rounds, budget, without_memory, python, peers, without_python, .. } = measuring;
    let heedful = std::env::current_exe().map_err(ExperimentError::failure)?;
    let peer = (!without_python).then(|| (python.clone(), peers.clone()));
    let mut sides = Sides { heedful, peer, threads: *threads };
    let versions = |maker| sides.start(maker).and_then(|mut side| side.versions());
    let mut found = versions(Maker::Heedful).map_err(ExperimentError::failure)?;
    if sides.peer.is_some() {
        match versions(Maker::Peer) {
            Ok(theirs) => found.extend(theirs),
            Err(error) => {
                eprintln!("warning: heedful is measured alone, since its peers cannot run: {error}");
                eprintln!("         install them by `pip install -r benches/peers/requirements.txt`, and name the interpreter by --python");
                sides.peer = None;
            }
        }
    }
    let budget = Duration::from_secs(*budget);
    Ok((Alternation { sides, rounds: *rounds, budget, has_peaks: !without_memory }, found))
}

/// Measures a comparison, prints its tables, and writes what there is after each size. `blank` says where and with what it is measured.
fn compare(plan: &Plan, alternation: &Alternation, blank: &Outcome, out: Option<&PathBuf>) -> Result<(), ExperimentError> {
    let Plan { what, title, about, .. } = plan.clone();
    let mut outcome = Outcome { what: what.into(), title: title.into(), about, ..blank.clone() };
    let style = ProgressStyle::with_template("{prefix} {pos}/{len} [{elapsed_precise}] {msg}").expect("the template is well formed");
    let progress = ProgressBar::new(plan.cases.len() as u64).with_style(style).with_prefix(plan.what);
    for case in &plan.cases {
        outcome.cases.push(alternation.measure(case, &progress));
        progress.inc(1);
        if let Some(folder) = out {
            outcome.write(folder)?;
        }
    }
    progress.finish_and_clear();
    let is_empty = |measurement: &Measurement| measurement.seconds.is_empty() && measurement.peak_bytes.is_none();
    let failed = outcome.cases.iter().flat_map(|case| &case.measurements).all(is_empty);
    print_line(outcome.markdown())?;
    if failed {
        return Err(ExperimentError::failure("nothing could be measured; the table says why"));
    }
    Ok(())
}
