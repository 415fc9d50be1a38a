//! The same run on every backend.

use std::fs;

use crate::command::{Run, parallel_folder, places, translate};

/// Losses of 20 steps from equal weights, without dropout.
fn losses(backend: &str) -> Vec<f64> {
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    let further = ["--backend", backend, "--steps", "20", "--set", "model.dropout=0", "--set", "training.evaluate_every=20"];
    let attention = ["--attention", "synthesizer-random+dot-product", "--set", "training.checkpoint_every=20"];
    translate(data.path(), &out, &[&further[..], &attention].concat()).succeeds();
    let log = fs::read_to_string(out.join("synthesizer-random+dot-product-seed1/log.jsonl")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter_map(|line| line["loss"].as_f64()).collect()
}

#[track_caller]
fn assert_equal_to_flex(backend: &str) {
    let (flex, other) = (losses("flex"), losses(backend));
    assert_eq!(flex.len(), 20);
    assert!(flex[19] < flex[0] - 0.1, "20 steps learn something: {flex:?}");
    for (step, (flex, other)) in flex.iter().zip(&other).enumerate() {
        assert!((flex - other).abs() < 1e-4 * flex.abs(), "step {}: {flex} on flex, {other} on {backend}", step + 1);
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn ndarray_gives_the_losses_of_flex() {
    assert_equal_to_flex("ndarray");
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_gives_the_losses_of_flex() {
    assert_equal_to_flex("wgpu");
}
