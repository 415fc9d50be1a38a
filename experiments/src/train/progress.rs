//! What a person watching a run sees: a bar on a terminal, plain lines elsewhere, nothing if asked to be quiet. All of it goes to standard error.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Who watches the runs.
#[derive(Clone, Debug, Default)]
pub enum Watcher {
    /// A bar if standard error is a terminal, else plain lines.
    #[default]
    Automatic,
    /// A bar among others, so that whoever else writes to the terminal can suspend them together.
    Bars(MultiProgress),
    /// Plain lines.
    Lines,
    /// Nobody.
    Nobody,
}

/// The steps of one run, as others see them while it is in progress.
#[derive(Clone, Debug)]
pub(crate) struct StepCount(Arc<[AtomicU64; 2]>);

impl StepCount {
    /// Of a run of so many steps.
    pub(crate) fn of(steps: u64) -> Self {
        Self(Arc::new([AtomicU64::new(0), AtomicU64::new(steps)]))
    }

    /// So many steps were done before.
    pub(crate) fn resume(&self, steps: u64) {
        self.0[1].fetch_sub(steps.min(self.left()), Ordering::Relaxed);
    }

    /// A step is done.
    pub(crate) fn step(&self) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
        self.resume(1);
    }

    /// Steps that this process has done.
    pub(crate) fn done(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// Steps that are to be done.
    pub(crate) fn left(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }

    /// Whether it counts the steps of the same run.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The progress of one run.
pub(crate) struct Progress {
    label: String,
    total: u64,
    shown: Shown,
    count: StepCount,
}

enum Shown {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

/// Speed and loss of the last steps.
pub(crate) struct Pace {
    pub(crate) loss: f64,
    pub(crate) learning_rate: f64,
    pub(crate) tokens_per_second: f64,
    /// Seconds of training that are left, by steps or by time, whichever ends first.
    pub(crate) remaining_seconds: f64,
}

impl Progress {
    pub(crate) fn new(watcher: &Watcher, label: &str, done: u64, total: u64, count: StepCount) -> Self {
        count.resume(done);
        let shown = match watcher {
            Watcher::Nobody => Shown::Nothing,
            Watcher::Lines => Shown::Lines,
            Watcher::Automatic if !io::stderr().is_terminal() => Shown::Lines,
            Watcher::Automatic => Shown::Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())),
            Watcher::Bars(bars) if bars.is_hidden() => Shown::Lines,
            // Above the line on all runs, which is the last.
            Watcher::Bars(bars) => Shown::Bar(bars.insert_from_back(1, ProgressBar::no_length())),
        };
        if let Shown::Bar(bar) = &shown {
            let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}").expect("the template is constant");
            bar.set_style(style);
            bar.set_prefix(label.to_string());
            bar.set_length(total);
            bar.set_position(done);
        }
        Self { label: label.to_string(), total, shown, count }
    }

    /// Shows the state after a step; without a bar, only if the step is one that is logged.
    pub(crate) fn step(&self, step: u64, pace: &Pace, is_logged: bool) {
        self.count.step();
        match &self.shown {
            Shown::Bar(bar) => {
                let remaining = clock(pace.remaining_seconds);
                bar.set_message(format!("loss {:.4}  {:.0} tok/s  ETA {remaining}", pace.loss, pace.tokens_per_second));
                bar.set_position(step);
            }
            Shown::Lines if is_logged => {
                self.line(&format!(
                    "step {step}/{}  loss {:.4}  learning rate {:.3e}  {:.0} tok/s  ETA {}",
                    self.total,
                    pace.loss,
                    pace.learning_rate,
                    pace.tokens_per_second,
                    clock(pace.remaining_seconds)
                ));
            }
            _ => {}
        }
    }

    /// Shows a line of text.
    pub(crate) fn line(&self, text: &str) {
        match &self.shown {
            // A reader that has gone away is no reason to stop training.
            Shown::Lines => drop(writeln!(io::stderr(), "{}: {text}", self.label)),
            Shown::Bar(bar) => bar.println(format!("{}: {text}", self.label)),
            Shown::Nothing => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// Seconds as hours, minutes and seconds (`1:02:03`).
pub(crate) fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_hours_minutes_and_seconds() {
        assert_eq!(clock(3723.4), "1:02:03");
        assert_eq!(clock(59.6), "0:01:00");
        assert_eq!(clock(-1.0), "0:00:00");
    }
}
