//! The binaries as a person uses them: good and bad input, interruption, resumption, all backends.

mod backends;
mod bad_input;
mod checkpoints;
mod claims;
mod command;
mod documents;
mod experiments;
mod fields;
mod fine_tuning;
mod idle;
mod interruptions;
mod jobs;
mod links;
mod measure;
mod models;
mod output;
mod own_experiments;
mod parity;
mod pretrained;
mod readme;
mod recorded;
#[cfg(unix)]
mod remake;
mod runs;
mod sharing;
#[cfg(target_os = "linux")]
mod slurm;
mod swaps;
mod threads;
mod watching;
