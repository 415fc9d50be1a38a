//! The processes of a command that train each model together: how they find each other, and what those do that the first one leads.

use std::path::Path;

use burn::tensor::Device;
use heedful_host::exit::{ProgramError, reported};
use heedful_host::interrupt::Interrupt;
use heedful_host::provenance::Provenance;
use heedful_random::RandomKey;
use heedful_runs::settings;
use serde::{Deserialize, Serialize};

use super::sweep::attempts;
use crate::session::error::{Completion, ExperimentError, INTERRUPTED_EXIT};
use crate::session::experiment::definition::{Candidate, Config, Experiment, Setup};
use crate::session::provenance;
use crate::train::{RankError, Ranks, Topic, Trainer, TrainingError, Watcher};

/// The processes that train together: those that MPI has started with this one, or this one alone.
pub(super) fn start(data_parallel: bool) -> Result<Ranks, ExperimentError> {
    if data_parallel { connected() } else { Ok(Ranks::alone()) }
}

#[cfg(not(feature = "mpi"))]
fn connected() -> Result<Ranks, ExperimentError> {
    Err(ExperimentError::usage(
        "--data-parallel: this program was built without MPI; build it with --features heedful-experiments/mpi (on Debian, first install libopenmpi-dev, \
         openmpi-bin and libclang-dev)",
    ))
}

#[cfg(feature = "mpi")]
fn connected() -> Result<Ranks, ExperimentError> {
    // MPI adds variables of its own.
    let launched = launched(|name| std::env::var(name).ok());
    let mpi = crate::train::Mpi::start();
    let mpi = mpi.ok_or_else(|| ExperimentError::failure("--data-parallel: this MPI cannot be used by a program of several threads"))?;
    let ranks = Ranks::of(Box::new(mpi));
    if let Some(launched) = launched {
        launched.check(ranks.rank(), ranks.size()).map_err(ExperimentError::usage)?;
    }
    Ok(ranks)
}

/// What the environment says of the processes that were started with this one.
#[cfg(any(feature = "mpi", test))]
#[derive(Debug, PartialEq, Eq)]
struct Launched {
    variables: [&'static str; 2],
    rank: usize,
    size: usize,
}

/// The launcher that is nearest to this process: `mpirun` inside a job of Slurm starts other processes than Slurm does.
#[cfg(any(feature = "mpi", test))]
fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let pairs = [
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        ["PMI_RANK", "PMI_SIZE"],
        ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
        ["SLURM_PROCID", "SLURM_NTASKS"],
    ];
    let number = |name: &str| variable(name)?.parse().ok();
    pairs.into_iter().find_map(|variables| Some(Launched { variables, rank: number(variables[0])?, size: number(variables[1])? }))
}

#[cfg(any(feature = "mpi", test))]
impl Launched {
    fn check(&self, rank: usize, size: usize) -> Result<(), String> {
        let Self { variables: [rank_name, size_name], rank: expected, size: started } = self;
        if (rank, size) == (*expected, *started) {
            return Ok(());
        }
        Err(format!(
            "--data-parallel: MPI says that this is process {rank} of {size}, and the environment that it is {expected} of {started} ({rank_name}, {size_name}); \
             start the program by the mpirun of the MPI that it was built with, or by `srun --mpi=pmix`"
        ))
    }
}

/// Checks that all ranks are to do the same, with the same digits.
pub(super) fn agree<E: Experiment>(ranks: &Ranks, config: &Config<E>, datasets: &[E::Data]) -> Result<(), ExperimentError> {
    let Provenance { commit, is_clean, compiler, features, instruction_set, cpu_features, caches, .. } = provenance::here();
    ranks.agree("program", || format!("{commit} {is_clean:?} {compiler} {features:?}").into_bytes())?;
    ranks.agree("processor", || format!("{instruction_set} {cpu_features:?} {caches:?}").into_bytes())?;
    let text = settings::complete_text(config)?;
    ranks.agree("configuration", || text.into_bytes())?;
    ranks.agree("data", || datasets.iter().map(|data| E::card(data).sha256).collect::<Vec<_>>().join(" ").into_bytes())?;
    Ok(())
}

/// What the first rank asks the others to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// To train a model of this attention on this data set.
    Train {
        dataset: String,
        attention: String,
        seed: u64,
        /// Which of the learning rates that are tried; none if none are.
        rate: Option<usize>,
    },
    /// To end, with this exit code.
    End { exit: u8 },
}

impl Word {
    /// Says it to the others.
    pub(super) fn tell(self, ranks: &Ranks) -> Result<(), RankError> {
        ranks.of_first(Topic::Word, || self).map(drop)
    }

    fn hear(ranks: &Ranks) -> Result<Self, RankError> {
        ranks.of_first(Topic::Word, || unreachable!("the first rank has nothing to hear"))
    }
}

/// Trains with the first rank whatever it works on, until it ends.
pub(super) fn follow<E: Experiment>(
    ranks: &Ranks,
    datasets: &[E::Data],
    candidates: &[Candidate<E>],
    device: &Device,
    interrupt: &Interrupt,
) -> Result<Completion, ExperimentError> {
    loop {
        let (name, attention, seed, rate) = match Word::hear(ranks)? {
            Word::Train { dataset, attention, seed, rate } => (dataset, attention, seed, rate),
            Word::End { exit: 0 } => return Ok(Completion::Finished),
            Word::End { exit: INTERRUPTED_EXIT } => return Ok(Completion::Interrupted),
            Word::End { exit } => return Err(ProgramError::Reported(exit).into()),
        };
        let dataset = datasets.iter().find(|dataset| E::card(dataset).name == name).expect("all ranks have the same data sets");
        let candidate = candidates.iter().find(|candidate| candidate.attention.name == attention);
        let Candidate { attention, config, .. } = candidate.expect("all ranks have the same configuration");
        let config = &E::of_seed(config, seed);
        let setup = Setup { config, data: dataset, attention };
        let key = RandomKey::from_seed(seed);
        let task = E::task(setup);
        let model = E::model(setup, &key.named("init"), &device.clone().autodiff())?;
        let attempts = attempts(config, Path::new(""));
        let attempt = attempts.iter().find(|attempt| attempt.rate == rate).expect("all ranks have the same configuration");
        let trainer = Trainer::new(&task, &attempt.training, Path::new(""), "", key).watcher(Watcher::Nobody);
        match trainer.interrupt(interrupt.clone()).ranks(ranks).follow(model) {
            // All ranks have this error, and the first one knows what becomes of it.
            Ok(()) | Err(TrainingError::NonFinite { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends all ranks when one has ended.
pub(super) fn conclude(ranks: &Ranks, outcome: Result<Completion, ExperimentError>) -> Result<Completion, ExperimentError> {
    match outcome {
        Ok(completion) => {
            if ranks.is_first() {
                let exit = if completion == Completion::Interrupted { INTERRUPTED_EXIT } else { 0 };
                Word::End { exit }.tell(ranks)?;
            }
            Ok(completion)
        }
        Err(error) => {
            let exit = ranks.failed_with().unwrap_or(error.exit_code());
            let reason = error.to_string();
            // mpirun ends all ranks when one has ended with an error. The message has to be out before another rank can end.
            let error = match ranks.size() {
                1 => error,
                _ if ranks.is_first() => reported(error.into()).into(),
                _ => ProgramError::Reported(exit).into(),
            };
            ranks.fail(reason, exit);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched_by(variables: &[(&str, &str)]) -> Option<Launched> {
        launched(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn ranks_are_those_of_the_nearest_launcher() {
        let of = |variables: &[(&str, &str)]| launched_by(variables).map(|launched| (launched.rank, launched.size));
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "8"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(of(&[]), None);
        assert_eq!(of(&slurm[..2]), Some((1, 8)));
        assert_eq!(of(&slurm), Some((1, 4)));
        let under_mpirun = [&slurm[..], &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")]].concat();
        // Of mpirun in a job of Slurm, whose variables say how the agents of mpirun were started.
        assert_eq!(of(&under_mpirun), Some((0, 2)));
        assert_eq!(of(&[("SLURM_PROCID", "x"), ("SLURM_NTASKS", "2")]), None);
    }

    #[test]
    fn processes_that_do_not_know_of_each_other_are_refused() {
        let launched = launched_by(&[("SLURM_PROCID", "2"), ("SLURM_NTASKS", "4")]).unwrap();
        assert_eq!(launched.check(2, 4), Ok(()));
        let message = launched.check(0, 1).unwrap_err();
        assert!(message.contains("process 0 of 1") && message.contains("2 of 4 (SLURM_PROCID, SLURM_NTASKS)"), "{message}");
        assert!(message.contains("srun --mpi=pmix"), "{message}");
    }

    #[test]
    fn one_process_needs_nobody() {
        let ranks = start(false).unwrap();
        assert_eq!((ranks.rank(), ranks.size()), (0, 1));
        assert_eq!(conclude(&ranks, Ok(Completion::Interrupted)).unwrap(), Completion::Interrupted);
        let error = conclude(&ranks, Err(ExperimentError::usage("no"))).unwrap_err();
        assert_eq!((error.exit_code(), error.to_string()), (2, "no".to_owned()));
    }

    #[cfg(not(feature = "mpi"))]
    #[test]
    fn a_program_without_mpi_says_how_to_build_one_with_it() {
        let error = start(true).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--features heedful-experiments/mpi"), "{error}");
    }
}
