//! Runs of experiments, without models: layered [settings], [records](record) of scores and provenance, the [run folder](run_folder) and its [locks](run_lock),
//! the [`status`] of runs, and their presentation: [`report`], [`compare`] and [`plot`], beside [published numbers](published) and [trivial
//! baselines](trivial).

#![warn(unreachable_pub)]

pub mod compare;
pub mod markup;
pub mod plot;
pub mod published;
pub mod record;
pub mod report;
pub mod results;
pub mod run_folder;
pub mod run_lock;
pub mod settings;
pub mod status;
pub mod trivial;
