//! The estimate beside the memory that training allocates, each time in a process of its own: memory that other tests allocate would hide it.
//!
//! Bytes are counted as the program asks for them, on one thread. What a process occupies depends on the allocator, the kernel and the load besides.

use std::process::Command;

use heedful_attention::prelude::*;
use peak_alloc::PeakAlloc;

use super::tests::{attention, settings};
use super::*;
use crate::session::experiment::definition::Setup;
use crate::tasks::language::Language;
use crate::train::Trainer;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What a process is to train: a mechanism and assignments, one a line.
const GIVEN: &str = "HEEDFUL_FOOTPRINT";
/// What the line with the result begins with.
const RESULT: &str = "estimated and measured: ";

/// 2,048 tokens, and the two steps of which the second has moments of its weights.
const TRAINING: [&str; 5] =
    ["data.batch=32", "data.context=64", "training.steps=2", "training.evaluate_every=2", "training.checkpoint_every=2"];

/// Bytes of the estimate, and by how many those that the process holds grew at most.
fn measure(name: &str, assignments: &[&str]) -> (u64, u64) {
    let given = [&[name], &TRAINING[..], assignments].concat().join("\n");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "session::footprint::measured::a_process_that_trains", "--nocapture"]).env(GIVEN, given);
    // On one thread a peak is the same in every run. On several it depends on which of them wait.
    command.env("RAYON_NUM_THREADS", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().find_map(|line| line.split_once(RESULT)).unwrap_or_else(|| panic!("{name}, {assignments:?}: {output:?}")).1;
    let [estimated, measured] = result.split(' ').map(|bytes| bytes.parse().unwrap()).collect::<Vec<u64>>()[..] else { panic!("{result}") };
    (estimated, measured)
}

/// Does nothing where no other test here has begun it, each time in a process of its own.
#[test]
fn a_process_that_trains() {
    let Ok(given) = std::env::var(GIVEN) else { return };
    let (name, assignments) = given.split_once('\n').unwrap();
    let (settings, attention) = (settings(&assignments.lines().collect::<Vec<_>>()), attention(name));
    let config = &settings.value;
    let dataset = Language::open(config).unwrap().remove(0);
    let folder = tempfile::tempdir().unwrap();
    let own = Language::sizes(config);
    let estimated = model::<Language>(&own, config, &attention, Some(&dataset), Share::All).footprint().total();

    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let device = burn::tensor::Device::flex().autodiff();
    let setup = Setup { config, data: &dataset, attention: &attention };
    let model = Language::model(setup, &RandomKey::from_seed(1), &device).unwrap();
    let task = Language::task(setup);
    Trainer::new(&task, &config.training, folder.path(), "0123", RandomKey::from_seed(1)).run(model).unwrap();
    println!("{RESULT}{estimated} {}", ALLOCATOR.peak_usage() - before);
}

#[test]
fn training_takes_what_is_estimated_and_not_much_more() {
    let dot_product = AnyMechanism::all().remove(0).name();
    let wide = ["model.d_model=64", "model.d_ff=4096", "model.layers=2"];
    for (factor, further) in [
        (2, &[][..]),
        (2, &["model.gated_feed_forward=true"]),
        (2, &["model.gated_feed_forward=true", "model.activation=silu", "model.feed_forward_dropout=0.1"]),
        (2, &["model.activation=gelu", "model.norm_order=post"]),
        (2, &["model.feed_forward_dropout=0.1", "model.dropout=0"]),
        (2, &["model.feed_forward_chunk=100"]),
        (2, &["model.checkpoint=true", "model.layers=6"]),
        (2, &["model.depth.kind=reversible", "model.layers=6"]),
        // Weights, gradients and moments: a checkpoint and the best model so far hold them once more.
        (3, &["data.batch=1", "model.d_model=256", "model.layers=4"]),
    ] {
        let assignments = [&wide[..], further].concat();
        let (estimated, measured) = measure(&dot_product, &assignments);
        assert!(estimated > 30 << 20, "{assignments:?}: {estimated} bytes are lost among what a process takes anyway");
        let found = format!("{assignments:?}: estimated {} MiB, measured {} MiB", estimated >> 20, measured >> 20);
        println!("{found}");
        assert!(estimated <= measured && measured <= factor * estimated, "{found}");
    }
}

#[test]
fn no_mechanism_takes_less_than_is_estimated() {
    for mechanism in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
        let sizes = ["model.d_model=256", "model.d_ff=32", "model.layers=2"];
        let (estimated, measured) = measure(&mechanism.name(), &sizes);
        println!("{mechanism}: estimated {} MiB, measured {} MiB", estimated >> 20, measured >> 20);
        assert!(estimated <= measured, "{mechanism}: estimated {estimated}, measured {measured}");
    }
}
