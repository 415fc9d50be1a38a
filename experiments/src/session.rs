//! A command from its options to its reports: settings, candidates, runs one after another or in parallel, and their resources.

pub mod comparison;
pub mod error;
pub mod experiment;
pub(crate) mod footprint;
pub mod jobs;
pub mod logging;
pub mod mixture_weights;
pub mod options;
pub(crate) mod preset_files;
pub mod presets;
pub mod provenance;
pub mod slurm;
