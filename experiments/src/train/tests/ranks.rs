//! Several ranks train one model.

use heedful_models::kernels::precision::Precision;

use super::super::parallel::tests::on_ranks;
use super::*;

type End = Result<Option<Outcome<Classifier>>, TrainingError>;

fn independent() -> Points {
    Points { has_trace: false, ..Points::new() }
}

/// Six batches in an epoch, so that its second step has two micro-batches only.
fn four_at_once() -> TrainingConfig {
    TrainingConfig { accumulate: 4, ..config() }
}

/// How the ranks end a run in one folder, each with a task and an interrupt of its own. Those that follow write nothing.
fn ends(size: usize, config: &TrainingConfig, folder: &Path, seed: u64, task: impl Fn(usize) -> Points + Sync) -> Vec<End> {
    on_ranks(size, |ranks| {
        let task = task(ranks.rank());
        let nowhere = folder.join("nowhere");
        let place = if ranks.is_first() { folder } else { &nowhere };
        let trainer = trainer(&task, config, place).resume(true).ranks(ranks);
        let model = Classifier::new(seed);
        let end = if ranks.is_first() { trainer.run(model).map(Some) } else { trainer.follow(model).map(|()| None) };
        if let Err(error) = &end {
            ranks.fail(error.to_string(), 1);
        }
        assert!(!nowhere.exists(), "a rank that follows has written");
        end
    })
}

fn of_first(mut ends: Vec<End>) -> Result<Outcome<Classifier>, TrainingError> {
    for end in ends.drain(1..) {
        assert!(matches!(end, Ok(None)), "{end:?}");
    }
    ends.remove(0).map(|end| end.expect("the first rank has an outcome"))
}

fn trained(size: usize, config: &TrainingConfig, folder: &Path) -> Traces {
    traces(folder, finished(of_first(ends(size, config, folder, 1, |_| independent()))))
}

fn plainly_trained(config: &TrainingConfig, folder: &Path) -> Traces {
    traces(folder, run(&independent(), config, folder))
}

#[test]
fn any_number_of_ranks_leaves_the_bits_of_one_process() {
    for config in [
        four_at_once(),
        TrainingConfig { average: 3, max_gradient_norm: None, ..four_at_once() },
        TrainingConfig { accumulate: 6, minutes: Some(60.0), ..config() },
        TrainingConfig { precision: Precision::Bf16, ..four_at_once() },
        // The first scales of the loss are too large.
        TrainingConfig { precision: Precision::F16, ..four_at_once() },
    ] {
        let whole = tempfile::tempdir().unwrap();
        let expected = plainly_trained(&config, whole.path());
        let last = CheckpointFolder::new(whole.path(), DIGEST).load(config.steps).unwrap().state;
        assert!(last.loss_scale.is_none_or(|scale| scale.scale < config.loss_scaling.initial), "no step was left out");
        for size in 1..=4 {
            let folder = tempfile::tempdir().unwrap();
            assert_eq!(trained(size, &config, folder.path()), expected, "{size} ranks");
        }
    }
    // Of other micro-batches the weights are others.
    let [four, two] = [4, 2].map(|accumulate| {
        let folder = tempfile::tempdir().unwrap();
        trained(2, &TrainingConfig { accumulate, ..config() }, folder.path()).weights
    });
    assert_ne!(four, two);
}

#[test]
fn a_stopped_run_goes_on_with_another_number_of_ranks() {
    let config = four_at_once();
    let whole = tempfile::tempdir().unwrap();
    let expected = plainly_trained(&config, whole.path());
    for (stops, sizes) in [([1, 3, 2], [2, 1, 4]), ([4, 1, 1], [1, 3, 2]), ([2, 2, 2], [3, 4, 1])] {
        let folder = tempfile::tempdir().unwrap();
        let mut done = 0;
        for (stop, size) in stops.into_iter().zip(sizes) {
            done += stop;
            // The last rank is asked to stop, and no other.
            let task = |rank: usize| Points { stop_after: (rank == size - 1).then_some(stop), ..independent() };
            // Once there is a checkpoint, initial weights do not matter.
            match of_first(ends(size, &config, folder.path(), if done == stop { 1 } else { 2 }, task)).unwrap() {
                Outcome::Interrupted { step, checkpoint } => assert_eq!((step, checkpoint.exists()), (done, true)),
                Outcome::Finished(_) => panic!("{size} ranks did not stop after {stop} steps"),
            }
        }
        let result = finished(of_first(ends(2, &config, folder.path(), 2, |_| independent())));
        assert_eq!(traces(folder.path(), result), expected, "{sizes:?} ranks were stopped after {stops:?} steps");
    }
}

#[test]
fn an_evaluation_that_is_interrupted_stops_all_ranks_and_is_made_again() {
    let config = TrainingConfig { average: 2, ..four_at_once() };
    let whole = tempfile::tempdir().unwrap();
    let expected = plainly_trained(&config, whole.path());
    // The last evaluation is that of the mean, which the other ranks do not wait for.
    for (number, step) in [(1, 2), (3, 6), (6, 9)] {
        let folder = tempfile::tempdir().unwrap();
        let task = |rank: usize| Points { stop_in_evaluation: (rank == 0).then_some(number), ..independent() };
        match of_first(ends(3, &config, folder.path(), 1, task)).unwrap() {
            Outcome::Interrupted { step: found, .. } => assert_eq!(found, step),
            Outcome::Finished(_) => panic!("evaluation {number} was not interrupted"),
        }
        let result = finished(of_first(ends(2, &config, folder.path(), 2, |_| independent())));
        assert_eq!(traces(folder.path(), result), expected, "interrupted in evaluation {number}");
    }
}

#[test]
fn all_ranks_report_a_loss_or_gradient_that_is_not_finite() {
    let spoil_loss = || Points { spoil_loss_at: Some(2), ..independent() };
    let spoil_gradient = || Points { spoil_gradient: true, ..independent() };
    for (task, quantity) in [(&spoil_loss as &(dyn Fn() -> Points + Sync), "loss"), (&spoil_gradient, "gradient")] {
        let alone = tempfile::tempdir().unwrap();
        let expected = trainer(&task(), &four_at_once(), alone.path()).run(Classifier::new(1)).unwrap_err().to_string();
        assert!(expected.contains(quantity), "{expected}");
        let folder = tempfile::tempdir().unwrap();
        for end in ends(3, &four_at_once(), folder.path(), 1, |_| task()) {
            assert_eq!(end.unwrap_err().to_string(), expected);
        }
    }
}

#[test]
fn a_loss_that_is_not_finite_on_one_rank_ends_all() {
    let folder = tempfile::tempdir().unwrap();
    let task = |rank: usize| Points { spoil_loss_at: (rank == 1).then_some(2), ..independent() };
    for end in ends(3, &four_at_once(), folder.path(), 1, task) {
        let error = end.unwrap_err();
        assert!(matches!(error, TrainingError::NonFinite { step: 2, quantity: "loss", .. }), "{error}");
    }
}

#[test]
fn a_disk_that_is_full_ends_all_ranks_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let config = four_at_once();
    let mut ends = on_ranks(2, |ranks| {
        let task = independent();
        let disk = Arc::new(FaultyDisk::new(Fault::Full, 0));
        let checkpoints = CheckpointFolder::on(folder.path(), DIGEST, Box::new(disk));
        let trainer = trainer(&task, &config, folder.path()).ranks(ranks).checkpoints(checkpoints);
        let model = Classifier::new(1);
        let error = if ranks.is_first() { trainer.run(model).map(drop) } else { trainer.follow(model) }.unwrap_err();
        ranks.fail(error.to_string(), 1);
        error.to_string()
    });
    let (told, reason) = (ends.remove(1), ends.remove(0));
    assert!(reason.contains("free space"), "{reason}");
    assert_eq!(told, format!("rank 0: {reason}"));
}

#[test]
fn ranks_that_begin_with_other_weights_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let messages = on_ranks(2, |ranks| {
        let (task, config) = (independent(), four_at_once());
        let trainer = trainer(&task, &config, folder.path()).ranks(ranks);
        let model = Classifier::new(ranks.rank() as u64);
        let error = if ranks.is_first() { trainer.run(model).map(drop) } else { trainer.follow(model) }.unwrap_err();
        ranks.fail(error.to_string(), 1);
        error.to_string()
    });
    assert!(messages.iter().all(|message| message.starts_with("rank 1 differs from rank 0 in its weights")), "{messages:?}");
}

#[test]
fn what_cannot_be_divided_is_refused_before_anything_is_touched() {
    let few = TrainingConfig { accumulate: 2, ..config() };
    let carrying = || Points::new();
    let cases: [(&(dyn Fn() -> Points + Sync), TrainingConfig, &str); 2] = [
        (&independent, few, "training.accumulate = 2 micro-batches to divide among them; give --set training.accumulate=3"),
        (&carrying, TrainingConfig { accumulate: 3, ..config() }, "a trace of the inputs; give no trace"),
    ];
    for (task, config, message) in cases {
        let folder = tempfile::tempdir().unwrap();
        for end in ends(3, &config, folder.path(), 1, |_| task()) {
            let error = end.unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(message), "{error}");
        }
        assert!(names(folder.path()).is_empty());
        finished(of_first(ends(1, &config, folder.path(), 1, |_| task())));
    }
}
