//! Several runs at once, and several commands that share the runs.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many runs a command works on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jobs {
    /// This many.
    Number(NonZeroUsize),
    /// As many as there are runs, threads, and memory for; one on a GPU.
    Auto,
}

impl Default for Jobs {
    fn default() -> Self {
        Self::Number(NonZeroUsize::MIN)
    }
}

impl FromStr for Jobs {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        match text {
            "auto" => Ok(Self::Auto),
            number => number.parse().map(Self::Number).map_err(|_| OptionError::Jobs),
        }
    }
}

/// Every `of`-th run, from the `number`-th on. Commands with the shards `1/of` to `of/of`, on one machine or on several, do all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to `of`.
    number: usize,
    of: usize,
}

impl Shard {
    /// Whether the run of this index, from 0, belongs to it.
    pub fn has(self, index: usize) -> bool {
        Self::of_index(index, self.of) == self.number
    }

    /// The number of the one among `of` shards that has the run of this index, from 0.
    pub(crate) fn of_index(index: usize, of: usize) -> usize {
        index % of + 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let parts = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err(OptionError::Shard),
        }
    }
}

/// Why a text is no [`Jobs`] or no [`Shard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Not a number of jobs.
    #[error("give a number from 1 on, or auto")]
    Jobs,
    /// Not a share.
    #[error("give K/N with K from 1 to N, such as 2/5")]
    Shard,
}

/// Works on items in their order, on `jobs` of them at once. After the first that fails or breaks off, no further item is begun. The jobs divide the threads that
/// compute on a CPU among their pools. Returns the results of the items that were begun, in the order of the items.
///
/// # Errors
/// The first error, in the order of the items.
///
/// # Panics
/// If the work does.
pub(crate) fn side_by_side<T: Sync, R: Send, E: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<ControlFlow<R, R>, E> + Sync,
) -> Result<Vec<R>, E> {
    let queue = Queue { next: AtomicUsize::new(0), is_closed: AtomicBool::new(false), done: Mutex::new(Vec::new()) };
    let job = || {
        let _guard = CloseOnPanic(&queue.is_closed);
        while let Some((index, item)) = queue.next(items) {
            let outcome = work(item);
            if !matches!(outcome, Ok(ControlFlow::Continue(_))) {
                queue.is_closed.store(true, Ordering::SeqCst);
            }
            queue.done.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome));
        }
    };
    let jobs = jobs.min(items.len());
    if jobs <= 1 {
        job();
    } else {
        let threads = rayon::current_num_threads();
        let pool = |number: usize| {
            let own = (threads / jobs + usize::from(number < threads % jobs)).max(1);
            rayon::ThreadPoolBuilder::new().num_threads(own).build().expect("the system starts threads")
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..jobs).map(|number| scope.spawn(move || pool(number).install(job))).collect();
            for job in running {
                job.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
    }
    let mut done = queue.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome.map(|(ControlFlow::Continue(end) | ControlFlow::Break(end))| end)).collect()
}

struct Queue<R> {
    next: AtomicUsize,
    is_closed: AtomicBool,
    done: Mutex<Vec<(usize, R)>>,
}

impl<R> Queue<R> {
    fn next<'t, T>(&self, items: &'t [T]) -> Option<(usize, &'t T)> {
        if self.is_closed.load(Ordering::SeqCst) {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::SeqCst);
        items.get(index).map(|item| (index, item))
    }
}

struct CloseOnPanic<'a>(&'a AtomicBool);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    type Outcome = Result<ControlFlow<usize, usize>, String>;

    #[test]
    fn jobs_work_at_once_and_their_ends_are_in_order() {
        // None goes on before the other has begun.
        let both = Barrier::new(2);
        let work = |item: &usize| -> Outcome {
            if *item < 2 {
                both.wait();
            }
            Ok(ControlFlow::Continue(item * 10))
        };
        assert_eq!(side_by_side(2, &[0, 1, 2, 3, 4], work).unwrap(), [0, 10, 20, 30, 40]);
        assert_eq!(side_by_side(9, &[5], work).unwrap(), [50]);
        assert_eq!(side_by_side(3, &[], work).unwrap(), [0; 0]);
    }

    #[test]
    fn jobs_share_the_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
        let both = Barrier::new(2);
        let work = |_: &usize| -> Outcome {
            both.wait();
            Ok(ControlFlow::Continue(rayon::current_num_threads()))
        };
        let mut threads = pool.install(|| side_by_side(2, &[0, 1], work)).unwrap();
        threads.sort_unstable();
        assert_eq!(threads, [2, 3]);
    }

    #[test]
    fn after_an_error_or_an_end_nothing_is_begun() {
        for jobs in [1, 2] {
            let failing = |item: &usize| -> Outcome {
                match item {
                    0 => Err("no".to_owned()),
                    1 if jobs == 2 => Ok(ControlFlow::Continue(1)),
                    _ => panic!("it was begun"),
                }
            };
            let items = if jobs == 1 { vec![0, 1, 2] } else { vec![0, 1] };
            assert_eq!(side_by_side(jobs, &items, failing).unwrap_err(), "no");
        }
        let ending = |item: &usize| -> Outcome { Ok(ControlFlow::Break(*item)) };
        assert_eq!(side_by_side(1, &[7, 8, 9], ending).unwrap(), [7]);
    }

    #[test]
    fn a_panic_of_a_job_is_that_of_the_command() {
        let work = |item: &usize| -> Outcome {
            assert!(*item != 1, "item 1 is bad");
            Ok(ControlFlow::Continue(0))
        };
        let panic = std::panic::catch_unwind(|| side_by_side(2, &[0, 1, 2], work)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"item 1 is bad"));
    }

    #[test]
    fn shards_deal_the_runs_in_turn() {
        let shard = |text: &str| text.parse::<Shard>();
        let (first, second) = (shard("1/2").unwrap(), shard("2/2").unwrap());
        assert_eq!((0..5).map(|index| (first.has(index), second.has(index))).filter(|(a, b)| a != b).count(), 5);
        assert!(first.has(0) && second.has(3) && shard("1/1").unwrap().has(7));
        for wrong in ["0/2", "3/2", "2", "1/0", "a/b", "-1/2", "1/2/3"] {
            assert_eq!(shard(wrong), Err(OptionError::Shard), "{wrong}");
        }
    }

    #[test]
    fn jobs_are_a_number_or_auto() {
        assert_eq!("auto".parse(), Ok(Jobs::Auto));
        assert_eq!("1".parse(), Ok(Jobs::default()));
        for wrong in ["0", "-1", "many", "1.5", ""] {
            assert_eq!(wrong.parse::<Jobs>(), Err(OptionError::Jobs), "{wrong}");
        }
    }
}
