//! Runs a comparison from its plan to its table.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use heedful_host::exit::{ProgramError, print_line};
use indicatif::{ProgressBar, ProgressStyle};

use super::measure::{Alternation, Measurement};
use super::options::MeasuringOptions;
use super::outcome::Outcome;
use super::plan::Plan;
use super::side::{Maker, Sides};

/// Processes that run or wait, on average of a minute, beyond which the machine has something else to do. PyTorch's threads, which wait for each other
/// without sleeping, suffer from company more than ours.
const BUSY: f64 = 0.5;

/// Warns on standard error that a measurement on a busy machine is not worth keeping.
pub fn warn_if_busy(load: Option<f64>) {
    if let Some(load) = load.filter(|&load| load > BUSY) {
        eprintln!("warning: the machine is busy (load {load:.1}): what is measured now is not worth keeping");
    }
}

/// Finds out who can be measured, and their versions. `worker` are the arguments by which this program is our side.
///
/// # Errors
/// If our own side cannot be started.
pub fn prepare(
    measuring: &MeasuringOptions,
    worker: &'static [&'static str],
) -> Result<(Alternation, BTreeMap<String, String>), ProgramError> {
    let MeasuringOptions { threads, rounds, budget, memory, without_memory, python, peers, without_python, .. } = measuring;
    let heedful = std::env::current_exe().map_err(ProgramError::failure)?;
    let peer = (!without_python).then(|| (python.clone(), peers.clone()));
    let mut sides = Sides { heedful, worker, peer, threads: *threads };
    let versions = |maker| sides.start(maker).and_then(|mut side| side.versions());
    let mut found = versions(Maker::Heedful).map_err(ProgramError::failure)?;
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
    let most_bytes = memory.map(|memory| (memory * f64::from(1 << 30)) as u64);
    Ok((Alternation { sides, rounds: *rounds, budget, has_peaks: !without_memory, most_bytes }, found))
}

/// Measures a comparison, prints its tables, and writes the results so far after each size. `blank` holds the circumstances of the measurement.
///
/// # Errors
/// If nothing could be measured, or a file cannot be written.
pub fn compare(plan: &Plan, alternation: &Alternation, blank: &Outcome, out: Option<&Path>) -> Result<(), ProgramError> {
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
        return Err(ProgramError::failure("nothing could be measured; the table says why"));
    }
    Ok(())
}
