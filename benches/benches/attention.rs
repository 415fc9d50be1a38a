//! Time of one causal self-attention, by mechanism, length, pass and backend.
//!
//! `cargo bench --workspace --bench attention -- flex/forward` runs a part of it. Results are under target/criterion, `new/estimates.json` of each.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use heedful_attention::prelude::*;
use heedful_backends::Backend;
use heedful_benches::cost::point::{Layer, Pass, Work};
use heedful_benches::workload::Sizes;
use heedful_host::allocator::keep_freed_memory;
use heedful_models::kernels::precision::Precision;

const LENGTHS: [usize; 2] = [256, 1024];
const PASSES: [Pass; 2] = [Pass::Forward, Pass::Training];

fn attention(criterion: &mut Criterion) {
    keep_freed_memory();
    for backend in Backend::ALL {
        // What is not compiled in, or has no device here, cannot be timed.
        let Ok(device) = backend.device() else { continue };
        for pass in PASSES {
            let mut group = criterion.benchmark_group(format!("{backend}/{pass}"));
            for config in AnyMechanism::all() {
                for length in LENGTHS {
                    let sizes = Sizes { batch: 1, length, d_model: 128, heads: 4, kv_heads: None };
                    let id = BenchmarkId::new(config.name(), length);
                    group.throughput(Throughput::Elements(length as u64));
                    group.bench_function(id, |bencher| {
                        let layer = Layer { attention: &config, sizes, precision: Precision::F32, is_bidirectional: false };
                        let work = Work::new(pass, layer, 0, Engine::default(), &device);
                        let mut work = work.expect("the mechanism is possible with these sizes");
                        bencher.iter(|| black_box(work.run()));
                    });
                }
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(1));
    targets = attention
}
criterion_main!(benches);
