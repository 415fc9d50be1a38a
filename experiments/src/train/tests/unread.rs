//! Numbers of steps that are read later.

use super::*;

#[test]
fn numbers_that_are_read_later_are_the_same() {
    for bound in [None, Some(0.25)] {
        let of = |is_deferred: bool| {
            let folder = tempfile::tempdir().unwrap();
            let config = TrainingConfig { max_gradient_norm: bound, log_every: 4, evaluate_every: 100, checkpoint_every: 100, ..config() };
            let (task, model) = (Points::plain(4), Classifier::new(1));
            let (mut run, mut model) = trainer(&task, &config, folder.path()).begin(model).unwrap();
            run.is_deferred = is_deferred;
            for step in 1..=4 {
                model = run.advance(model).unwrap();
                assert_eq!(run.unread.len(), if is_deferred { step % 4 } else { 0 });
            }
            let line = log_lines(folder.path()).remove(0);
            (["loss", "gradient_norm", "tokens"].map(|name| line[name].as_f64().unwrap()), tensors_by_path(&model))
        };
        let (at_once, later) = (of(false), of(true));
        for (at_once, later) in at_once.0.iter().zip(later.0) {
            assert!((at_once - later).abs() <= 1e-6 * at_once, "{at_once} against {later}");
        }
        for (path, tensor) in &at_once.1 {
            for (at_once, later) in tensor.iter::<f64>().zip(later.1[path].iter::<f64>()) {
                assert!((at_once - later).abs() < 1e-5, "{path}: {at_once} against {later}");
            }
        }
    }
}

#[test]
fn a_loss_that_is_not_finite_is_found_with_its_step_later() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainingConfig { log_every: 4, evaluate_every: 100, checkpoint_every: 100, ..config() };
    let task = Points { spoil_loss_at: Some(6), ..Points::new() };
    let (mut run, mut model) = trainer(&task, &config, folder.path()).begin(Classifier::new(1)).unwrap();
    run.is_deferred = true;
    for _ in 1..=7 {
        model = run.advance(model).unwrap();
    }
    let Err(TrainingError::NonFinite { step, quantity, .. }) = run.advance(model) else {
        panic!("the loss of step 6 was taken for a number")
    };
    assert_eq!((step, quantity), (6, "loss"));
}
