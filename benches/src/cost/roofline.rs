//! The kernels of the CPU engine beside what the machine can do: `cost roofline`.
//!
//! [`mod@kernels`] is what is run and what it has to do, [`model`] are bounds and the model of more threads, and [`page`] shows them. Each kernel runs on each
//! number of threads once a round, in a pool of that size which flex, its products of matrices and heedful's kernels take their threads from.

#[cfg(any(test, target_arch = "x86_64"))]
mod bfloat16;
pub mod kernels;
pub mod model;
mod operators;
pub mod page;
mod peaks;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use burn::tensor::Device;
use clap::Args;
use heedful_host::command::command_line;
use heedful_host::exit::ProgramError;
use heedful_host::machine::{Machine, load};
use heedful_host::rounds::in_turn;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::{ThreadPool, ThreadPoolBuilder};

use self::kernels::{Candidate, Kernel, Scale, Times, kernels};
use self::page::Roofline;
use super::sweep::seconds;
use crate::peers::comparison::warn_if_busy;
use crate::peers::cores::bind_workers;
use crate::peers::options::positive;
use crate::provenance;
use crate::training_step::ModelSizes;

/// How the kernels are measured.
#[derive(Args, Clone, Debug)]
pub struct RooflineOptions {
    /// Rounds; in each, every kernel runs once on each number of threads, in turn
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = positive())]
    pub rounds: usize,

    /// Try it at tiny sizes, of which the figures mean nothing
    #[arg(long)]
    pub test: bool,

    /// Folder for roofline.json and roofline.md
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl RooflineOptions {
    /// Rest before each run: threads of the other pools may look for work some time after theirs is done.
    const PAUSE: Duration = Duration::from_millis(5);

    fn scale(&self) -> Scale {
        if self.test {
            let model = ModelSizes { vocabulary: 50, layers: 1, d_model: 16, heads: 2, d_ff: 16 };
            Scale { width: 32, heads: 2, lengths: [64, 128, 192], length: 128, product: 64, model, rows: [2, 16] }
        } else {
            Scale {
                width: 256,
                heads: 4,
                lengths: [512, 2048, 8192],
                length: 2048,
                product: 2048,
                model: ModelSizes::default(),
                rows: [8, 256],
            }
        }
    }

    /// Numbers of an array of the triad: twice what the largest cache holds, and at least 64 MiB.
    fn array(&self, largest_cache: usize) -> usize {
        let bytes = if self.test { 1 << 16 } else { (2 * largest_cache).max(64 << 20) };
        bytes / size_of::<f32>()
    }

    /// Measures everything with 1 thread, with 2, and with as many as `RAYON_NUM_THREADS` says or the machine has. To be called from a thread that computes
    /// nothing itself.
    ///
    /// # Errors
    /// A failure where threads cannot be started or sizes are impossible.
    pub fn measure(&self) -> Result<Roofline, ProgramError> {
        let load = load();
        warn_if_busy(load);
        let counts = thread_counts(rayon::current_num_threads());
        let pools = counts.iter().map(|&count| ThreadPoolBuilder::new().num_threads(count).build());
        let pools: Vec<ThreadPool> = pools.collect::<Result<_, _>>().map_err(ProgramError::failure)?;
        pools.iter().for_each(|pool| pool.install(bind_workers));
        let every = pools.last().expect("there is a number of threads");
        let provenance = every.install(provenance::here);
        let array = self.array(peaks::largest_cache(&provenance.caches));
        let device = Device::flex();
        let of_machine = every.install(|| kernels::peaks(self.scale(), array, &device));
        let mut candidates: Vec<Candidate> = of_machine.into();
        candidates.extend(kernels(self.scale(), &device).map_err(ProgramError::failure)?);
        let mut measured = run_in_turn(&mut candidates, &pools, &counts, self.rounds)?.into_iter();
        let mut next = || measured.next().expect("the peaks were measured first");
        Ok(Roofline {
            command: command_line(),
            machine: Machine::here(),
            load,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provenance: Some(provenance),
            product: next(),
            triad: next(),
            kernels: measured.collect(),
        })
    }
}

/// The numbers of threads that are measured, ascending.
fn thread_counts(all: usize) -> Vec<usize> {
    let mut counts = vec![1, 2.min(all), all];
    counts.dedup();
    counts
}

/// The kernels with their times. Runs of one kernel with different numbers of threads follow each other, so that they meet the same machine.
fn run_in_turn(candidates: &mut [Candidate], pools: &[ThreadPool], counts: &[usize], rounds: usize) -> Result<Vec<Kernel>, ProgramError> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} [{elapsed_precise}] {msg}").expect("the template is well formed");
    let progress = ProgressBar::new((candidates.len() * (1 + rounds * pools.len())) as u64).with_style(style);
    // Packed matrices and freed memory are there before the first round.
    for Candidate { kernel, run } in candidates.iter_mut() {
        progress.set_message(kernel.name.clone());
        pools.iter().for_each(|pool| pool.install(&mut *run));
        progress.inc(1);
    }
    let values = in_turn(rounds, candidates.len() * pools.len(), |_, index| {
        let (place, pool) = (index / pools.len(), index % pools.len());
        let Candidate { kernel, run } = &mut candidates[place];
        progress.set_message(kernel.name.clone());
        progress.inc(1);
        thread::sleep(RooflineOptions::PAUSE);
        // The clock runs on a thread of the pool: to wake one is no part of a kernel.
        Ok::<_, ProgramError>(Some(pools[pool].install(|| seconds(&mut *run))))
    })?;
    progress.finish_and_clear();
    let mut values = values.expect("no run ends the measurement").into_iter();
    let mut of = |kernel: Kernel| {
        let times = counts.iter().map(|&threads| Times { threads, seconds: values.next().expect("everything was measured") }).collect();
        Kernel { times, ..kernel }
    };
    Ok(candidates.iter().map(|candidate| of(candidate.kernel.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_two_and_all_threads_are_measured() {
        assert_eq!([1, 2, 3, 16].map(thread_counts), [vec![1], vec![1, 2], vec![1, 2, 3], vec![1, 2, 16]]);
    }

    #[test]
    fn arrays_do_not_fit_the_largest_cache() {
        let options = RooflineOptions { rounds: 1, test: false, out: None };
        assert_eq!([0, 32 << 20, 256 << 20].map(|cache| options.array(cache) * 4), [64 << 20, 64 << 20, 512 << 20]);
    }

    #[test]
    fn kernels_run_in_pools_of_their_size_and_have_work_to_do() {
        let options = RooflineOptions { rounds: 2, test: true, out: None };
        let pools: Vec<ThreadPool> = [1, 2].map(|count| ThreadPoolBuilder::new().num_threads(count).build().unwrap()).into();
        let (seen, device) = (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), Device::flex());
        let mut candidates: Vec<Candidate> = kernels::peaks(options.scale(), 1000, &device).into();
        candidates.extend(kernels(options.scale(), &device).unwrap());
        for Candidate { kernel: Kernel { name, multiplications, bytes, limits, .. }, .. } in &candidates {
            assert!(*multiplications > 0.0 && *bytes > 0.0, "{name}");
            let share: f64 = limits.iter().map(|limit| limit.share).sum();
            assert!((0.0..=1.0).contains(&share) && limits.iter().all(|limit| limit.threads >= 2.0), "{name}: {limits:?}");
        }
        let noted = seen.clone();
        let run = Box::new(move || noted.lock().unwrap().push(rayon::current_num_threads()));
        candidates.push(Candidate { kernel: Kernel::default(), run });
        let measured = run_in_turn(&mut candidates, &pools, &[1, 2], 2).unwrap();
        assert_eq!(measured.len(), candidates.len());
        for kernel in &measured {
            assert_eq!(kernel.times.iter().map(|times| (times.threads, times.seconds.len())).collect::<Vec<_>>(), [(1, 2), (2, 2)]);
        }
        assert_eq!(*seen.lock().unwrap(), [1, 2, 1, 2, 2, 1], "before the rounds, in order, and in reverse order");
    }
}
