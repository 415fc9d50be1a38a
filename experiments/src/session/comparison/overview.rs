//! Progress of all runs of a command: how many are done, running or waiting, here and elsewhere, and the time that is left.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::train::{StepCount, Watcher, clock};

/// The runs of a command. A line below their bars on a terminal, a line after each run elsewhere.
pub(super) struct Overview {
    state: Arc<Mutex<State>>,
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

struct State {
    begun: Instant,
    runs: usize,
    /// Finished now or by an earlier command.
    finished: usize,
    /// Where runs are that other commands work on.
    elsewhere: Vec<String>,
    /// Steps of the runs that nobody has begun.
    waiting_steps: u64,
    running: Vec<StepCount>,
    /// Steps that this command has done in the runs that it has finished.
    done_steps: u64,
}

impl Overview {
    /// Of runs with these numbers of steps.
    pub(super) fn new(watcher: &Watcher, steps: &[u64]) -> Self {
        let state = State {
            begun: Instant::now(),
            runs: steps.len(),
            finished: 0,
            elsewhere: Vec::new(),
            waiting_steps: steps.iter().sum(),
            running: Vec::new(),
            done_steps: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let shown = match watcher {
            Watcher::Nobody => Shown::Nothing,
            // The bar of a single run says it all.
            _ if steps.len() < 2 => Shown::Nothing,
            Watcher::Bars(bars) if !bars.is_hidden() => {
                let state = Arc::clone(&state);
                let write = move |_: &ProgressState, out: &mut dyn fmt::Write| {
                    let _ = write!(out, "{}", *locked(&state));
                };
                let style = ProgressStyle::with_template("{overview}").expect("the template is constant").with_key("overview", write);
                let bar = bars.add(ProgressBar::no_length().with_style(style));
                bar.enable_steady_tick(Duration::from_secs(1));
                Shown::Bar(bar)
            }
            _ => Shown::Lines,
        };
        Self { state, shown }
    }

    /// A run of `steps` steps is begun, which are counted in what is returned.
    pub(super) fn begin(&self, steps: u64) -> StepCount {
        let count = StepCount::of(steps);
        let mut state = locked(&self.state);
        state.waiting_steps -= steps;
        state.running.push(count.clone());
        count
    }

    /// A run was finished earlier.
    pub(super) fn finished_before(&self, steps: u64) {
        let mut state = locked(&self.state);
        state.waiting_steps -= steps;
        state.finished += 1;
    }

    /// Another process works on a run.
    pub(super) fn elsewhere(&self, steps: u64, host: &str) {
        let mut state = locked(&self.state);
        state.waiting_steps -= steps;
        state.elsewhere.push(host.to_owned());
    }

    /// A run of another process is open again.
    pub(super) fn reopen(&self, steps: u64) {
        let mut state = locked(&self.state);
        state.waiting_steps += steps;
        state.elsewhere.pop();
    }

    /// A run was ended that was begun here.
    pub(super) fn finish(&self, count: &StepCount) {
        let text = {
            let mut state = locked(&self.state);
            state.running.retain(|running| !running.is(count));
            state.done_steps += count.done();
            state.finished += 1;
            state.to_string()
        };
        if let Shown::Lines = self.shown {
            // A reader that has gone away is no reason to stop training.
            drop(writeln!(io::stderr(), "{text}"));
        }
    }
}

impl Drop for Overview {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Seconds until all runs of this command are done, if they take as long per step as those so far, evaluation included.
    fn seconds_left(&self, elapsed: f64) -> Option<f64> {
        let done = self.done_steps + self.running.iter().map(StepCount::done).sum::<u64>();
        let left = self.waiting_steps + self.running.iter().map(StepCount::left).sum::<u64>();
        (done > 0).then(|| elapsed * left as f64 / done as f64)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, finished, running, elsewhere, .. } = self;
        write!(f, "{finished} of {runs} runs finished")?;
        if !running.is_empty() {
            write!(f, ", {} at work", running.len())?;
        }
        if !elsewhere.is_empty() {
            let mut hosts = elsewhere.clone();
            hosts.sort();
            hosts.dedup();
            write!(f, ", {} elsewhere ({})", elsewhere.len(), hosts.join(", "))?;
        }
        match runs - finished - running.len() - elsewhere.len() {
            0 => {}
            waiting => write!(f, ", {waiting} waiting")?,
        }
        match self.seconds_left(self.begun.elapsed().as_secs_f64()) {
            Some(seconds) if *finished < *runs => write!(f, "  ETA {}", clock(seconds)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overview_counts_runs_wherever_they_are() {
        let overview = Overview::new(&Watcher::Nobody, &[10, 10, 20, 20, 40]);
        let text = || locked(&overview.state).to_string();
        assert_eq!(text(), "0 of 5 runs finished, 5 waiting");
        overview.finished_before(10);
        overview.elsewhere(20, "node7");
        let count = overview.begin(20);
        assert_eq!(text(), "1 of 5 runs finished, 1 at work, 1 elsewhere (node7), 2 waiting");
        (0..5).for_each(|_| count.step());
        assert_eq!(locked(&overview.state).seconds_left(10.0), Some(10.0 * (15.0 + 50.0) / 5.0));
        overview.finish(&count);
        overview.reopen(20);
        // What an early end leaves out is not to come.
        assert_eq!(locked(&overview.state).seconds_left(10.0), Some(10.0 * 70.0 / 5.0));
        assert!(text().starts_with("2 of 5 runs finished, 3 waiting  ETA 0:0"), "{}", text());
    }

    #[test]
    fn a_resumed_run_has_fewer_steps_left_and_none_done() {
        let count = StepCount::of(20);
        count.resume(12);
        assert_eq!((count.done(), count.left()), (0, 8));
        count.step();
        assert_eq!((count.done(), count.left()), (1, 7));
        assert!(count.is(&count.clone()) && !count.is(&StepCount::of(20)));
    }
}
