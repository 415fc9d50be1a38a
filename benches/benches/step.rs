//! Time of one training step of a language model, by backend.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use heedful_attention::description::AnyMechanism;
use heedful_backends::Backend;
use heedful_benches::training_step::{ModelSizes, TrainingStep};
use heedful_host::allocator::keep_freed_memory;

const BATCH: usize = 8;
const LENGTH: usize = 256;

fn step(criterion: &mut Criterion) {
    keep_freed_memory();
    let mut group = criterion.benchmark_group("step");
    group.throughput(Throughput::Elements((BATCH * LENGTH) as u64)).sample_size(10);
    for backend in Backend::ALL {
        // What is not compiled in, or has no device here, cannot be timed.
        let Ok(device) = backend.device() else { continue };
        group.bench_function(backend.name(), |bencher| {
            let step = TrainingStep::new(&AnyMechanism::default(), ModelSizes::default(), BATCH, LENGTH, &device);
            let mut step = step.expect("the sizes are possible");
            bencher.iter(|| black_box(step.run()));
        });
    }
    group.finish();
}

criterion_group!(benches, step);
criterion_main!(benches);
