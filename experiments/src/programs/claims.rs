//! Tests published claims again.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use heedful_host::display::duration;
use heedful_host::interrupt::Interrupt;
use heedful_runs::markup::left_aligned;

use crate::session::error::{Completion, ExperimentError, print_line};
use crate::session::jobs::{Jobs, Shard};
use crate::session::options::{PathInConfiguration, not_utf8};
use crate::tools::claims::{ClaimsReport, Ledger, PlannedBlock, RunOptions, Smoke, Verdicts, pilot, run};

const EXAMPLES: &str = "\
Examples:
  heedful claims list
  heedful claims plan C05,C12
  heedful claims pilot G1
  heedful claims run C05 --data DIR --jobs 2
  heedful claims run --all --data DIR --resume
  heedful claims run --smoke
  heedful claims verdict
  heedful claims report --results experiments/results/claims --out report

Exit codes: 0 done, 1 runs failed or known effects do not show, 2 the command was refused, 130 stopped by Ctrl-C or SIGTERM (continue with --resume).";

/// Test published claims about attention again: runs, verdicts and a report, by rules that are fixed in advance.
///
/// The ledger has a file for each claim, with its sentence, its source and the tests that decide, and one for each block of runs that claims share. Verdicts are
/// computed from the records of finished runs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Show all claims: their blocks of runs, and what some of them wait for
    List(LedgerOptions),
    /// Show which blocks are to be run, in which order, and about how long that takes
    Plan(PlanOptions),
    /// Run the blocks of claims, the most informative per hour of computing first
    Run(Box<RunTask>),
    /// Train the baseline of each block with half, once and twice its learning rate, and report the best on the validation set
    Pilot(PilotTask),
    /// Compute the verdict of every claim from the records of finished runs
    Verdict(VerdictOptions),
    /// Write the verdicts as Markdown and as a page with a card for each claim
    Report(ReportOptions),
}

#[derive(Args)]
struct LedgerOptions {
    /// Folder of a ledger of your own [default: that of the program]
    #[arg(long, value_name = "DIR")]
    ledger: Option<PathBuf>,
}

#[derive(Args)]
struct ResultOptions {
    #[command(flatten)]
    ledger: LedgerOptions,

    /// Folder of the runs, with a folder for each block
    #[arg(long, value_name = "DIR", default_value = "runs/claims")]
    results: PathBuf,
}

#[derive(Args)]
struct PlanOptions {
    /// Claims, or blocks of runs, separated by commas or blanks [default: all]
    #[arg(value_name = "NAME", value_delimiter = ',')]
    names: Vec<String>,

    #[command(flatten)]
    results: ResultOptions,

    /// Also time a few steps of each contender on this machine
    #[arg(long)]
    measure: bool,

    /// Folder that the data sets lie in, for --measure [default: that of the variable HEEDFUL_DATA]
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration, requires = "measure")]
    data: Option<PathBuf>,
}

#[derive(Args)]
struct RunTask {
    /// Claims, or blocks of runs, separated by commas or blanks
    #[arg(value_name = "NAME", value_delimiter = ',', required_unless_present_any = ["all", "smoke"])]
    names: Vec<String>,

    /// All claims
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// Check known effects in small runs on built-in data: twenty minutes on one thread
    #[arg(long, conflicts_with_all = ["names", "all", "jobs", "shard", "slurm", "ledger", "data"])]
    smoke: bool,

    #[command(flatten)]
    ledger: LedgerOptions,

    /// Folder of the runs, with a folder for each block [default: runs/claims, with --smoke runs/claims-smoke]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Folder that the data sets lie in: multi30k/raw, ptb, glue and so on [default: that of the variable HEEDFUL_DATA]
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration)]
    data: Option<PathBuf>,

    /// Number of parallel runs, which share the threads; auto: as many as threads and memory allow
    #[arg(long, value_name = "N|auto")]
    jobs: Option<Jobs>,

    /// Do only every N-th run, from the K-th on
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,

    /// Write scripts for Slurm into the folder of each block, and run nothing
    #[arg(long, conflicts_with = "shard")]
    slurm: bool,

    /// Continue: keep finished runs, and resume interrupted ones
    #[arg(long)]
    resume: bool,

    /// Number of parallel runs of a block, each in a process of its own with one thread
    #[arg(long, value_name = "N", conflicts_with_all = ["jobs", "shard", "slurm", "smoke"], value_parser = clap::value_parser!(u64).range(1..=1024))]
    processes: Option<u64>,

    /// Copy the program when a block begins, and finish the block with the copy, whatever is built meanwhile; the program must be built from a commit without
    /// changes
    #[arg(long, conflicts_with_all = ["slurm", "smoke"])]
    keep_programs: bool,
}

#[derive(Args)]
struct PilotTask {
    /// Claims, or blocks of runs, separated by commas or blanks
    #[arg(value_name = "NAME", value_delimiter = ',', required = true)]
    names: Vec<String>,

    #[command(flatten)]
    ledger: LedgerOptions,

    /// Folder of the runs; pilots are below it in `pilots`
    #[arg(long, value_name = "DIR", default_value = "runs/claims")]
    out: PathBuf,

    /// Folder that the data sets lie in: multi30k/raw, ptb, glue and so on
    #[arg(long, value_name = "DIR", env = "HEEDFUL_DATA", value_parser = PathInConfiguration)]
    data: Option<PathBuf>,

    /// Continue: keep finished runs, and resume interrupted ones
    #[arg(long)]
    resume: bool,
}

#[derive(Args)]
struct VerdictOptions {
    /// Claims, separated by commas or blanks [default: all]
    #[arg(value_name = "NAME", value_delimiter = ',')]
    names: Vec<String>,

    #[command(flatten)]
    results: ResultOptions,

    /// Show how each test was decided
    #[arg(long)]
    why: bool,
}

#[derive(Args)]
struct ReportOptions {
    #[command(flatten)]
    results: ResultOptions,

    /// Folder for report.md and report.html
    #[arg(long, value_name = "DIR", required_unless_present = "book")]
    out: Option<PathBuf>,

    /// Folder of the book's pages: writes the page of the claims
    #[arg(long, value_name = "DIR")]
    book: Option<PathBuf>,
}

pub(super) fn run_task(Options { command }: &Options) -> Result<Completion, ExperimentError> {
    match command {
        Task::List(options) => list(&options.ledger()?),
        Task::Plan(options) => plan(options),
        Task::Run(options) => run_blocks(options),
        Task::Pilot(options) => pilot_blocks(options),
        Task::Verdict(options) => verdict(options),
        Task::Report(options) => report(options),
    }
}

impl LedgerOptions {
    fn ledger(&self) -> Result<Ledger, ExperimentError> {
        let ledger = match &self.ledger {
            Some(folder) => Ledger::read(folder)?,
            None => Ledger::built_in()?,
        };
        Ok(ledger)
    }
}

/// The folder of `--data`, or that of the environment, which is no option and conflicts with none.
///
/// # Errors
/// A usage error if that of the environment is not UTF-8: the configurations of blocks could not have it.
fn data_folder(given: Option<&PathBuf>) -> Result<Option<PathBuf>, ExperimentError> {
    if given.is_some() {
        return Ok(given.cloned());
    }
    let of_environment = std::env::var_os("HEEDFUL_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if let Some(folder) = of_environment.as_deref().filter(|folder| folder.to_str().is_none()) {
        return Err(ExperimentError::usage(format!("HEEDFUL_DATA: {}", not_utf8(folder.as_os_str()))));
    }
    Ok(of_environment)
}

fn list(ledger: &Ledger) -> Result<Completion, ExperimentError> {
    ledger.check()?;
    let mut rows = vec![["claim", "blocks", "tests", "waits for", "sentence"].map(str::to_owned).to_vec()];
    for claim in &ledger.claims {
        let waiting = claim.tests.iter().filter(|test| !test.missing().is_empty()).count();
        let waits = match claim.missing().join(" ") {
            none if none.is_empty() => String::new(),
            missing if waiting == claim.tests.len() => missing,
            missing => format!("{missing} ({waiting} test)"),
        };
        rows.push(vec![claim.name.clone(), claim.blocks().join(" "), claim.tests.len().to_string(), waits, claim.sentence.clone()]);
    }
    print_line(left_aligned(&rows))?;
    for (feature, what) in &ledger.features {
        print_line(format!("{feature}: {what}"))?;
    }
    Ok(Completion::Finished)
}

fn plan(options: &PlanOptions) -> Result<Completion, ExperimentError> {
    let ledger = options.results.ledger.ledger()?;
    ledger.check()?;
    let blocks = ledger.blocks_for(&options.names)?;
    if options.measure {
        let interrupt = Interrupt::on_signal().map_err(ExperimentError::failure)?;
        let measured = RunOptions {
            out: options.results.results.clone(),
            data: data_folder(options.data.as_ref())?,
            dry_run: true,
            ..RunOptions::default()
        };
        return run(&blocks, &measured, &interrupt);
    }
    let planned = ledger.plan(&blocks, &options.results.results)?;
    let mut rows =
        vec![["block", "experiment", "data", "claims", "state", "runs left", "minutes a run", "left"].map(str::to_owned).to_vec()];
    for planned in &planned {
        let PlannedBlock { block, claims, runs, finished, minutes, is_measured, .. } = planned;
        rows.push(vec![
            block.name.clone(),
            block.experiment.clone(),
            block.data.clone().unwrap_or_else(|| "built-in".to_owned()),
            claims.join(" "),
            planned.state(),
            format!("{} of {runs}", runs - (*finished).min(*runs)),
            format!("{minutes:.1}{}", if *is_measured { " (measured)" } else { "" }),
            duration(60.0 * planned.minutes_left()),
        ]);
    }
    print_line(left_aligned(&rows))?;
    let minutes: f64 = planned.iter().map(PlannedBlock::minutes_left).sum();
    print_line(format!(
        "One after another on one thread: about {}. Minutes that were not measured are those of the ledger, ± 30 %.",
        duration(60.0 * minutes)
    ))?;
    Ok(Completion::Finished)
}

fn run_blocks(options: &RunTask) -> Result<Completion, ExperimentError> {
    let interrupt = Interrupt::on_signal().map_err(ExperimentError::failure)?;
    if options.smoke {
        let smoke = Smoke::built_in()?;
        smoke.check()?;
        let out = options.out.clone().unwrap_or_else(|| "runs/claims-smoke".into());
        return smoke.run(&out, options.resume, &interrupt);
    }
    let ledger = options.ledger.ledger()?;
    ledger.check()?;
    let jobs = options.jobs.map(|jobs| match jobs {
        Jobs::Number(number) => number.to_string(),
        Jobs::Auto => "auto".to_owned(),
    });
    let chosen = RunOptions {
        out: options.out.clone().unwrap_or_else(|| "runs/claims".into()),
        data: data_folder(options.data.as_ref())?,
        jobs,
        shard: options.shard,
        resume: options.resume,
        slurm: options.slurm,
        dry_run: false,
        keep_programs: options.keep_programs,
        processes: options.processes.map(|count| count as usize),
    };
    run(&ledger.blocks_for(&options.names)?, &chosen, &interrupt)
}

fn pilot_blocks(options: &PilotTask) -> Result<Completion, ExperimentError> {
    let interrupt = Interrupt::on_signal().map_err(ExperimentError::failure)?;
    let ledger = options.ledger.ledger()?;
    ledger.check()?;
    let PilotTask { names, out, data, resume, .. } = options;
    let chosen = RunOptions { out: out.clone(), data: data.clone(), resume: *resume, ..RunOptions::default() };
    pilot(&ledger.blocks_for(names)?, &chosen, &interrupt)
}

fn verdict(options: &VerdictOptions) -> Result<Completion, ExperimentError> {
    let ledger = options.results.ledger.ledger()?;
    for name in &options.names {
        ledger.claim(name)?;
    }
    let verdicts = Verdicts::compute(&ledger, &options.results.results)?;
    print_line(ClaimsReport::of(&ledger, &verdicts)?.terminal(&options.names, options.why))?;
    Ok(Completion::Finished)
}

fn report(options: &ReportOptions) -> Result<Completion, ExperimentError> {
    let ledger = options.results.ledger.ledger()?;
    let verdicts = Verdicts::compute(&ledger, &options.results.results)?;
    let report = ClaimsReport::of(&ledger, &verdicts)?;
    if let Some(out) = &options.out {
        report.write(out)?;
        print_line(format!("{} and {}", out.join("report.md").display(), out.join("report.html").display()))?;
    }
    if let Some(book) = &options.book {
        report.write_chapter(book)?;
    }
    Ok(Completion::Finished)
}
