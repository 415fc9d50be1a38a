//! Running blocks: each part is a command of the experiment's program, which lies beside this one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use heedful_host::interrupt::Interrupt;
use heedful_host::machine::load;
use heedful_host::whole_files::{file_name, write_atomically};
use heedful_runs::settings::table_text;
use toml::Table;

use super::block::{Block, block_in_braces};
use super::cost;
use super::programs::program_of;
use super::runs::folder;
use crate::session::error::{Completion, ExperimentError, INTERRUPTED_EXIT, print_line};
use crate::session::jobs::Shard;

/// The longest that a measurement of costs waits for an idle machine.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// How blocks are run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The folder of all blocks' runs.
    pub out: PathBuf,
    /// The folder that data sets lie in; without it blocks that read one are left out.
    pub data: Option<PathBuf>,
    /// Runs at once, as the programs take it.
    pub jobs: Option<String>,
    /// The share of the runs.
    pub shard: Option<Shard>,
    /// Whether folders that are there are continued.
    pub resume: bool,
    /// Whether scripts for Slurm are written and nothing is run.
    pub slurm: bool,
    /// Whether only estimates are shown.
    pub dry_run: bool,
    /// Whether a block is run by copies of the programs, of a commit without changes, that it was begun with.
    pub keep_programs: bool,
    /// Commands that share the runs of a block, on one thread each; `None`: one, on all threads.
    pub processes: Option<usize>,
}

/// Runs blocks in their order. A block that fails does not keep the others from being run.
///
/// # Errors
/// A program that is not there, a file that cannot be written, and at the end the blocks that failed or were left out.
pub fn run(blocks: &[&Block], options: &RunOptions, interrupt: &Interrupt) -> Result<Completion, ExperimentError> {
    let mut failed = Vec::new();
    for block in blocks {
        if !block.missing.is_empty() {
            print_line(format!("{}: left out, it waits for {}", block.name, block.missing.join(", ")))?;
            continue;
        }
        if block.is_of_costs() && (options.slurm || options.shard.is_some() || options.dry_run) {
            print_line(format!("{}: left out, costs are measured by one command on an idle machine", block.name))?;
            continue;
        }
        if let (Some(data), None) = (&block.data, &options.data) {
            print_line(format!("{}: left out, it reads `{data}`; give --data with the folder that has it", block.name))?;
            failed.push(block.name.as_str());
            continue;
        }
        for part in block.part_names() {
            if interrupt.is_raised() {
                return Ok(Completion::Interrupted);
            }
            let at = folder(&options.out, block, part);
            if block.is_of_costs() {
                if options.resume && cost::is_measured(&at) {
                    continue;
                }
                if !until_idle(interrupt) {
                    print_line(format!("{}: the machine is not idle; what is measured now will be void", block.name))?;
                }
            }
            let mut command = command(block, part, &at, options)?;
            print_line(format!("{}{}: {}", block.name, part.map(|part| format!(", {part}")).unwrap_or_default(), words(&command)))?;
            let status = match options.processes.filter(|_| !block.is_of_costs()) {
                None => command.status().map_err(|error| cannot_start(&command, &error))?,
                Some(count) => side_by_side(&mut command, count)?,
            };
            if is_interrupted(status) {
                return Ok(Completion::Interrupted);
            }
            if !status.success() && !failed.contains(&block.name.as_str()) {
                failed.push(&block.name);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(Completion::Finished),
        false => {
            Err(ExperimentError::failure(format!("not all of these blocks are there: {}; what failed is said above", failed.join(", "))))
        }
    }
}

/// Runs a command so often at once, on one thread each: they share its runs. One that ends while others still work on runs has left these to them; whether all
/// are there says a last one.
fn side_by_side(command: &mut Command, count: usize) -> Result<ExitStatus, ExperimentError> {
    command.env("RAYON_NUM_THREADS", "1");
    let started: io::Result<Vec<Child>> = (0..count).map(|_| command.spawn()).collect();
    let mut children = started.map_err(|error| cannot_start(command, &error))?;
    let ends: io::Result<Vec<ExitStatus>> = children.iter_mut().map(Child::wait).collect();
    let ends = ends.map_err(|error| cannot_start(command, &error))?;
    match ends.iter().find(|status| is_interrupted(**status)) {
        Some(status) => Ok(*status),
        None if ends.iter().all(ExitStatus::success) => Ok(ends[0]),
        None => command.status().map_err(|error| cannot_start(command, &error)),
    }
}

fn cannot_start(command: &Command, error: &io::Error) -> ExperimentError {
    ExperimentError::failure(format!("cannot start `{}`: {error}", command.get_program().to_string_lossy()))
}

/// The command of a part; writes its configuration beside the folder of its runs.
fn command(block: &Block, part: Option<&str>, at: &Path, options: &RunOptions) -> Result<Command, ExperimentError> {
    let found = block.part_named(part).flatten();
    if block.is_of_costs() {
        let mut command = program_of(block, options)?.command(&block.arguments())?;
        for argument in found.map(|part| &part.arguments[..]).unwrap_or_default() {
            let measured = block_in_braces(argument).filter(|name| block.measured().any(|other| other == *name));
            match measured {
                Some(name) => command.arg(options.out.join(name)),
                None => command.arg(argument),
            };
        }
        command.arg("--out").arg(at);
        return Ok(command);
    }
    let name = part.map_or(block.name.clone(), |part| format!("{}-{}", block.name, file_name(part)));
    configured(block, &name, &block.configuration(found), at, options)
}

/// The command that runs a configuration with the program of a block. The configuration is written as the file `name` into a folder of all configurations.
pub(super) fn configured(block: &Block, name: &str, table: &Table, at: &Path, options: &RunOptions) -> Result<Command, ExperimentError> {
    let mut command = program_of(block, options)?.command(&block.arguments())?;
    let configurations = options.out.join("configurations");
    fs::create_dir_all(&configurations)
        .map_err(|error| ExperimentError::failure(format!("cannot make `{}`: {error}", configurations.display())))?;
    let config = configurations.join(format!("{name}.toml"));
    write_atomically(&config, table_text(table)?.as_bytes())?;
    command.arg("--config").arg(&config).arg("--out").arg(at);
    if let (Some(name), Some(data)) = (&block.data, &options.data) {
        command.arg("--data").arg(data.join(name));
        if let Some(model) = &block.pretrained {
            command.arg("--pretrained").arg(data.join(model));
        }
    }
    if let Some(jobs) = &options.jobs {
        command.arg("--jobs").arg(jobs);
    }
    if let Some(shard) = options.shard {
        command.arg("--shard").arg(shard.to_string());
    }
    for (flag, is_given) in [("--resume", options.resume), ("--slurm", options.slurm), ("--dry-run", options.dry_run)] {
        if is_given {
            command.arg(flag);
        }
    }
    Ok(command)
}

/// A command as a person would type it.
pub(super) fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    heedful_host::command::quoted(words.map(|word| word.to_string_lossy().into_owned()))
}

/// Whether a program stopped since it was asked to.
pub(super) fn is_interrupted(status: ExitStatus) -> bool {
    status.code() == Some(i32::from(INTERRUPTED_EXIT))
}

/// Waits until hardly anything runs on the machine; `false` if that takes too long, or the system does not tell. The load must be a little less than what a
/// measurement may find, since the start of the measurement adds to it.
pub(super) fn until_idle(interrupt: &Interrupt) -> bool {
    let begun = Instant::now();
    loop {
        match load() {
            Some(load) if load <= 0.8 * cost::IDLE => return true,
            None => return false,
            Some(_) if begun.elapsed() > LONGEST_WAIT || interrupt.is_raised() => return false,
            Some(_) => std::thread::sleep(Duration::from_secs(5)),
        }
    }
}
