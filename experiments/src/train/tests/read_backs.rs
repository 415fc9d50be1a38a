//! How often training waits for numbers from an accelerator.

use std::sync::atomic::{AtomicUsize, Ordering};

use ::log::{LevelFilter, Log, Metadata, Record, set_logger, set_max_level};
use heedful_attention::conformance::{TEST_DEVICE, test_device};
use heedful_attention::prelude::*;
use heedful_runs::settings::{Assignment, Settings};

use super::*;
use crate::session::experiment::{Attention, Experiment, Setup};
use crate::tasks::language::Language;
use crate::tasks::translation::Translation;

const STEPS: usize = 20;

static READ_BACKS: AtomicUsize = AtomicUsize::new(0);

/// Counts the buffers that are mapped for reading by the log of wgpu, which names each of them. CubeCL maps one for each tensor that it reads, whichever
/// operation of Burn asks for it: `into_data` and `into_scalar`, but also a sort, which runs on the host.
struct MappedBuffers;

impl Log for MappedBuffers {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "wgpu_core::device::global"
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) && record.args().to_string().starts_with("Buffer::map_async") {
            READ_BACKS.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn flush(&self) {}
}

/// The tensors that each step reads, with a line of the log after every so many steps.
fn read_backs<E: Experiment>(mechanism: AnyMechanism, log_every: usize, further: &[&str]) -> Vec<usize> {
    let small = ["model.d_model=16", "model.d_ff=32", "model.heads=2", "model.layers=2", "model.attention_dropout=0.1"];
    let logged = [format!("training.steps={STEPS}"), format!("training.log_every={log_every}")];
    let all = small.iter().chain(further).copied().chain(logged.iter().map(String::as_str));
    let assignments = all.map(|text| Assignment::parse(text).unwrap()).collect();
    let config = Settings::read(None, assignments).unwrap().value;
    let (data, attention) = (E::open(&config).unwrap().remove(0), Attention::new(mechanism));
    let setup = Setup { config: &config, data: &data, attention: &attention };
    let (task, key) = (E::task(setup), RandomKey::from_seed(1));
    let model = E::model(setup, &key, &test_device().autodiff()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut run, mut model) = Trainer::new(&task, &config.training, folder.path(), DIGEST, key).begin(model).unwrap();
    let mut of_steps = Vec::new();
    for _ in 0..STEPS {
        let before = READ_BACKS.load(Ordering::SeqCst);
        model = run.advance(model).unwrap();
        of_steps.push(READ_BACKS.load(Ordering::SeqCst) - before);
    }
    of_steps
}

#[test]
fn a_line_of_the_log_reads_from_the_device_once() {
    // What the CUDA driver is asked for is not logged.
    if std::env::var(TEST_DEVICE).is_ok_and(|device| device == "cuda") {
        return;
    }
    // The log is that of the process, and other tests read as well.
    if runs_alone("train::tests::read_backs::a_line_of_the_log_reads_from_the_device_once") {
        return;
    }
    set_logger(&MappedBuffers).unwrap();
    set_max_level(LevelFilter::Trace);
    // Losses and norms of gradients come together, in one tensor. A larger number is a line that waits twice, and none is a log that no longer names buffers.
    // LSH attention sorts the positions of every step.
    let lsh = || LshConfig::default().with_chunk(2).with_full_attention_below(0);
    for (log_every, mechanism) in [(1, "dot-product".parse().unwrap()), (5, AnyMechanism::from(lsh()))] {
        let expected: Vec<_> = (1..=STEPS).map(|step| usize::from(step.is_multiple_of(log_every))).collect();
        let of_language = read_backs::<Language>(mechanism.clone(), log_every, &["data.batch=2", "data.context=8", "data.stride=8"]);
        assert_eq!(of_language, expected, "lm with {}", mechanism.name());
        let of_translation = read_backs::<Translation>(mechanism.clone(), log_every, &["data.batch_tokens=64"]);
        assert_eq!(of_translation, expected, "mt with {}", mechanism.name());
    }
}
