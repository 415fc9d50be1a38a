//! What does not change a digit: how many threads compute.

use std::path::Path;

use serde_json::{Map, Value};

use crate::command::{Run, binary, final_weights, parallel_folder, records};

/// Weights, scores and the threads that computed them, of one seed of each attention.
fn trained(data: &Path, out: &Path, threads: usize, rate: &str) -> Vec<(Vec<u8>, Map<String, Value>, u64)> {
    let mut command = binary("mt");
    // Wide enough for products and attention to be divided among threads.
    command.args(["--set", "model={layers = 1, d_model = 128, heads = 4, d_ff = 512, max_length = 32}"]);
    command.args(["--set", &format!("training={{steps = 12, learning_rate = {rate}, evaluate_every = 6, checkpoint_every = 6}}")]);
    command.args(["--set", "decoding.extra_length=2"]);
    command.args([
        "--attention",
        "dot-product,synthesizer-dense,synthesizer-random+dot-product,gaussian",
        "--set",
        "tokeniser={kind = \"word\"}",
    ]);
    command.env("RAYON_NUM_THREADS", threads.to_string());
    command.arg("--data").arg(data).arg("--out").arg(out).succeeds();
    let records = records(out);
    let of_record = |record: &Value| {
        let mut scores = record["metrics"].as_object().unwrap().clone();
        assert!(scores.remove("steps per second").is_some());
        assert!(scores["valid perplexity"].is_number() && scores["BLEU"].is_number(), "{scores:?}");
        let run = out.join(format!("{}-seed1", record["attention"].as_str().unwrap()));
        (final_weights(&run), scores, record["provenance"]["threads"].as_u64().unwrap())
    };
    records.iter().map(of_record).collect()
}

#[test]
fn one_and_two_threads_train_the_same_weights_to_the_same_scores() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let run = |name: &str, threads, rate| trained(data.path(), &folder.path().join(name), threads, rate);
    let (one, two) = (run("one", 1, "1e-3"), run("two", 2, "1e-3"));
    assert_eq!(one.len(), 4);
    for ((weights, scores, threads), (others, other_scores, other_threads)) in one.iter().zip(&two) {
        assert_eq!((*threads, *other_threads), (1, 2), "the threads that were asked for");
        assert!(weights == others, "other weights");
        assert_eq!(scores, other_scores);
    }
    // A small difference shows.
    let another = run("another", 1, "1.001e-3");
    assert!(one.iter().zip(&another).all(|(one, another)| one.0 != another.0 && one.1 != another.1));
}
