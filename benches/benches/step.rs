//! Time of one training step of a language model.

use burn::tensor::Device;
use divan::Bencher;
use heedful_attention::any::AttentionConfig;
use heedful_benches::training_step::{ModelSizes, TrainingStep};
use heedful_experiments::allocator::keep_freed_memory;

fn main() {
    keep_freed_memory();
    divan::main();
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn flex(bencher: Bencher) {
    let attention = AttentionConfig::default();
    let mut step = TrainingStep::new(&attention, ModelSizes::default(), 8, 256, &Device::flex()).expect("the sizes are possible");
    step.run();
    bencher.bench_local(|| step.run());
}
