//! The cost of every mechanism, by length, on every backend.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::backends::{device_name, refuse_missing};
use crate::cost::baseline::Unit;
use crate::cost::depth::DepthRounds;
use crate::cost::halting::HaltingRounds;
use crate::cost::options::CostOptions;
use crate::cost::outcome::{Outcome, Point};
use crate::cost::roofline::RooflineOptions;
use crate::cost::sweep::Sweep;
use crate::cost::{baseline, report as cost_report};
use crate::markdown::significant;
use crate::peers::comparison::{compare, prepare, warn_if_busy};
use crate::peers::cores::one_for_each;
use crate::peers::options::{LayerOptions, MeasuringOptions, PackagesOptions, defaults};
use crate::peers::outcome;
use crate::peers::protocol::serve_standard_input;
use crate::provenance;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use heedful_backends::device_failure::guarded;
use heedful_host::allocator::keep_freed_memory;
use heedful_host::command::command_line;
use heedful_host::exit::{Completion, ProgramError, main_with, print_line};
use heedful_host::machine::{Machine, load};
use heedful_host::rounds::{Rounds, Series};
use heedful_host::threads::among_workers;
use indicatif::{ProgressBar, ProgressStyle};

/// Measure the cost of attention: time, memory and multiplications by mechanism, length and backend.
///
/// Compares every mechanism with the reference engine before timing it. Mechanisms run in turn, round after round. Lengths that exceed the limits on time or
/// memory are skipped and named. The tables end with fitted exponents, and with the length from which each mechanism is faster than dot-product attention.
#[derive(Parser)]
#[command(name = "cost", after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<What>,

    #[command(flatten)]
    cost: CostOptions,
}

#[derive(Subcommand)]
enum What {
    /// Draw tables and pictures of results that are there: of each cost.json, beside PyTorch's layer from a peers.jsonl of benches/gpu
    Report {
        /// Folder of results, looked through with all folders in it
        folder: PathBuf,
    },
    /// Measure how the memory of a model grows with its depth, in rounds: activations kept, computed again, or reversible
    Depth(DepthRounds),
    /// Measure how the time of a Universal Transformer falls as its positions halt earlier, in rounds
    Halting(HaltingRounds),
    /// Measure the kernels of the CPU engine beside the peaks of this machine: arithmetic, memory, threads
    Roofline(RooflineOptions),
    /// Answer requests on standard input: our side of a comparison
    #[command(hide = true)]
    Worker,
}

const EXAMPLES: &str = "Examples:
  heedful cost
  heedful cost --backend flex,ndarray,wgpu --attention all --lengths 128..16384 --out costs
  heedful cost --attention dot-product,local-1d,lsh --pass training --lengths 1024..16384
  heedful cost --attention 'dot-product,linformer{rank=128}' --bidirectional --lengths 512..16384
  heedful cost --baseline costs/cost.json      (is anything slower than it was?)
  heedful cost --peers --python venv/bin/python
  heedful cost --baseline costs/cost.json --unit dot-product      (the same for another machine with this kind of processor)
  heedful cost roofline --out costs            (how near are kernels to the peaks of this machine?)
  heedful cost depth --layers 2,32 --activations reversible,kept --out depth
  heedful cost halting --out halting           (does a model take less time where positions halt earlier?)
  heedful cost report costs                    (tables and pictures again)

Exit codes: 0 done, 1 a measurement failed or something became slower, 2 the command was refused.";

/// The command `cost`.
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the command `cost`. It reports memory if the program that calls it has
/// [`PeakAlloc`](peak_alloc::PeakAlloc) as its allocator.
pub fn main(matches: &ArgMatches) -> ExitCode {
    let Options { command, cost } = Options::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    keep_freed_memory();
    main_with(|| {
        match command {
            Some(What::Report { folder }) => {
                let sweeps = cost_report::write(&folder)?;
                print_line(format!("{sweeps} sweeps: {}", folder.join("report.md").display()))?;
            }
            Some(What::Depth(options)) => among_workers(|| rounds(options.about(), || options.measure(), options.out.as_deref()))?,
            Some(What::Halting(options)) => among_workers(|| rounds(options.about(), || options.measure(), options.out.as_deref()))?,
            Some(What::Roofline(options)) => roofline(&options)?,
            Some(What::Worker) => serve_standard_input().map_err(ProgramError::failure)?,
            None => among_workers(|| run(&cost))?,
        }
        Ok(Completion::Finished)
    })
}

fn run(options: &CostOptions) -> Result<(), ProgramError> {
    options.validate()?;
    let sizes = options.sizes(0)?;
    let attentions = options.attentions()?;
    let earlier = options.baseline.as_deref().map(Outcome::read).transpose()?;
    // Before anything here adds to it.
    let load = load();
    warn_if_busy(load);
    let mut outcome = Outcome {
        command: command_line(),
        machine: Machine::here(),
        load,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        provenance: Some(provenance::here()),
        d_model: options.d_model,
        heads: options.heads,
        kv_heads: options.kv_heads.filter(|&shared| shared != options.heads),
        batch: options.batch,
        tokens: options.tokens,
        precision: options.precision,
        is_bidirectional: options.bidirectional,
        ..Outcome::default()
    };
    if let Some(earlier) = &earlier {
        refuse_other_threads(&outcome, earlier, options)?;
        warn_of_other_processors(&outcome, earlier);
    }
    let mut devices = Vec::new();
    for &backend in &options.backend {
        let device = backend.device().map_err(ProgramError::usage)?;
        refuse_missing(options.precision, backend, &device)?;
        outcome.devices.insert(backend.name().to_owned(), device_name(&device));
        devices.push((backend, device));
    }
    let (lengths, passes) = (options.lengths(), options.passes());
    let total = devices.len() * lengths.len() * passes.len() * attentions.len();
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} [{elapsed_precise}] {msg}").expect("the template is well formed");
    let progress = ProgressBar::new(total as u64).with_style(style);
    let mut sweeps = Vec::new();
    for (backend, device) in devices {
        let sweep = Sweep {
            backend: backend.name().to_owned(),
            device,
            attentions: attentions.clone(),
            tokens: options.tokens,
            precision: options.precision,
            is_bidirectional: options.bidirectional,
            sizes,
            rounds: options.rounds,
            seconds: options.seconds,
            bytes: (options.memory * f64::from(1 << 30)) as u64,
            check: options.check,
        };
        guarded(backend, "leave out what it failed at, or give a smaller --memory; the points before are in the folder of --out", || {
            for &pass in &passes {
                let begun = outcome.points.len();
                for &length in &lengths {
                    let measured = sweep.measure(pass, length, &outcome.points[begun..], &progress);
                    tell(&measured, &progress);
                    outcome.points.extend(measured);
                    if let Some(folder) = &options.out {
                        outcome.write(folder)?;
                    }
                }
            }
            Ok::<_, ProgramError>(())
        })?;
        sweeps.push(sweep);
    }
    progress.finish_and_clear();
    print_line(outcome.summary())?;
    if let Some(folder) = &options.out {
        write(&outcome, folder)?;
    }
    if options.peers {
        peers(options)?;
    }
    if let Some(earlier) = earlier {
        judge(&outcome, &earlier, options, &sweeps)?;
    }
    if outcome.points.iter().all(|point| point.seconds.is_empty()) {
        return Err(ProgramError::failure("nothing could be measured; the lines above say why"));
    }
    Ok(())
}

/// Says what was measured, so that it is not lost with what ends the program later.
fn tell(points: &[Point], progress: &ProgressBar) {
    progress.suspend(|| {
        for point in points {
            let found = match (point.median(), point.peak_bytes) {
                (Some(seconds), Some(bytes)) => {
                    format!("{} s, {} MiB", significant(seconds), significant(bytes as f64 / f64::from(1 << 20)))
                }
                (Some(seconds), None) => format!("{} s", significant(seconds)),
                (None, _) => point.missing.clone().unwrap_or_default(),
            };
            let Point { backend, pass, length, attention, .. } = point;
            // A reader that has gone away is no reason to stop measuring.
            let _ = writeln!(io::stderr(), "{backend}, {pass} at {length}, {attention}: {found}");
        }
    });
}

/// Measures series in rounds, shows them and writes them into the folder `out`.
fn rounds(about: String, measure: impl FnOnce() -> Result<Vec<Series>, ProgramError>, out: Option<&Path>) -> Result<(), ProgramError> {
    let load = load();
    warn_if_busy(load);
    let rounds = Rounds {
        command: command_line(),
        about,
        machine: Machine::here(),
        load,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        provenance: Some(provenance::here()),
        series: measure()?,
    };
    print_line(rounds.table())?;
    if let Some(folder) = out {
        rounds.write(folder)?;
    }
    Ok(())
}

fn roofline(options: &RooflineOptions) -> Result<(), ProgramError> {
    let roofline = options.measure()?;
    print_line(roofline.markdown())?;
    match &options.out {
        Some(folder) => roofline.write(folder),
        None => Ok(()),
    }
}

fn write(outcome: &Outcome, folder: &Path) -> Result<(), ProgramError> {
    outcome.write(folder)?;
    outcome.draw(folder)?;
    let mut files: Vec<_> = fs::read_dir(folder).map_err(ProgramError::failure)?.flatten().map(|entry| entry.file_name()).collect();
    files.sort();
    let files: Vec<_> = files.iter().map(|name| name.to_string_lossy()).collect();
    eprintln!("{} holds {}", folder.display(), files.join(", "));
    Ok(())
}

/// Packages on PyTorch beside ours.
fn peers(options: &CostOptions) -> Result<(), ProgramError> {
    let CostOptions { d_model, heads, rounds, python, .. } = options;
    let measuring = MeasuringOptions { rounds: *rounds, python: python.clone(), threads: Machine::here().cores, ..defaults() };
    let layer = LayerOptions { d_model: *d_model, heads: *heads };
    let plan = PackagesOptions { lengths: options.lengths(), layer }.plan()?;
    let (alternation, versions) = prepare(&measuring, &["cost", "worker"])?;
    let blank = outcome::Outcome {
        machine: Machine::here(),
        load: load(),
        threads: measuring.threads,
        bound: one_for_each(measuring.threads).is_some(),
        versions,
        provenance: Some(provenance::here()),
        ..outcome::Outcome::default()
    };
    compare(&plan, &alternation, &blank, options.out.as_deref())
}

/// Ratios of mechanisms depend on the number of threads, on which some go further than others.
fn refuse_other_threads(outcome: &Outcome, earlier: &Outcome, options: &CostOptions) -> Result<(), ProgramError> {
    let threads = |outcome: &Outcome| outcome.provenance.as_ref().map(|provenance| provenance.threads);
    match (threads(outcome), threads(earlier)) {
        (Some(now), Some(before)) if options.unit == Unit::DotProduct && now != before => Err(ProgramError::usage(format!(
            "--baseline: the earlier run has {before} threads and this one {now}, with which ratios differ; set RAYON_NUM_THREADS={before}"
        ))),
        _ => Ok(()),
    }
}

/// Ratios also depend on the processor: what reads large matrices takes two to five times as long beside dot-product attention on some as on others.
fn warn_of_other_processors(outcome: &Outcome, earlier: &Outcome) {
    if let (Some(now), Some(before)) = (&outcome.provenance, &earlier.provenance) {
        for difference in before.other_numerics(now) {
            eprintln!("warning: ratios to the baseline may differ by more than the code: {difference}");
        }
    }
}

/// Says what became slower, and fails if something did: what seems so is measured again, since a machine may be busy for a moment.
fn judge(outcome: &Outcome, earlier: &Outcome, options: &CostOptions, sweeps: &[Sweep]) -> Result<(), ProgramError> {
    let CostOptions { unit, threshold, .. } = *options;
    let compared = baseline::changes(outcome, earlier, unit);
    if compared.is_empty() {
        return Err(ProgramError::usage(format!(
            "--baseline: the earlier run has none of these points; give the options of its command, {}",
            earlier.command
        )));
    }
    let measured = outcome.points.iter().filter(|point| !point.seconds.is_empty()).count();
    if compared.len() < measured {
        eprintln!("{} of {measured} points were not compared: they are not in the baseline, or too short.", measured - compared.len());
    }
    let suspects: Vec<&Point> = baseline::regressions(&compared, threshold).into_iter().map(|change| &change.point).collect();
    let points = sweeps.iter().flat_map(|sweep| sweep.again(&suspects)).collect();
    let again = baseline::changes(&Outcome { points, ..outcome.clone() }, earlier, unit);
    let is_suspect = |change: &&baseline::Change| suspects.iter().any(|point| point.is_like(&change.point));
    let slower: Vec<String> =
        baseline::regressions(&again, threshold).into_iter().filter(is_suspect).map(|change| format!("  {change}\n")).collect();
    if slower.is_empty() {
        return print_line(format!("{} points were compared with the baseline; none takes {threshold} times as long.", compared.len()));
    }
    Err(ProgramError::failure(format!(
        "{} of {} points take at least {threshold} times as long as in the baseline, twice:\n{}If that is meant, record the baseline anew: {}",
        slower.len(),
        compared.len(),
        slower.concat(),
        earlier.command
    )))
}
