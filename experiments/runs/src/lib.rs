//! Runs of experiments, as far as no model is needed: [settings] from layers, [records](record) of what a run reached and was computed by, the
//! [folder](run_folder) that holds them and [who works on it](run_lock), how far runs are ([`status`]), and what is said of them: [`report`], [`compare`],
//! [`plot`], beside [published numbers](published) and [trivial baselines](trivial).

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
