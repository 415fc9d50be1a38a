//! Time of one causal self-attention, by mechanism, length and backend.

use burn::tensor::Device;
use divan::Bencher;
use heedful_attention::engine::Engine;
use heedful_benches::workload::{Sizes, Workload};

const ATTENTIONS: [&str; 7] = [
    "dot-product",
    "synthesizer-dense",
    "synthesizer-random",
    "synthesizer-factorized-dense",
    "synthesizer-factorized-random",
    "synthesizer-random+dot-product",
    "gaussian",
];
const LENGTHS: [usize; 3] = [64, 256, 1024];

fn main() {
    divan::main();
}

fn cases() -> impl Iterator<Item = Case> {
    ATTENTIONS.into_iter().flat_map(|attention| LENGTHS.map(|length| Case { attention, length }))
}

struct Case {
    attention: &'static str,
    length: usize,
}

impl Case {
    fn workload(&self) -> Workload {
        let attention = self.attention.parse().expect("the benchmark names a known mechanism");
        let sizes = Sizes { batch: 1, length: self.length, d_model: 128, heads: 4 };
        Workload::new(&attention, sizes, Engine::Fused, &Device::flex()).expect("the mechanism is possible with these sizes")
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.attention, self.length)
    }
}

#[divan::bench(args = cases())]
fn flex_forward(bencher: Bencher, case: &Case) {
    let workload = case.workload();
    bencher.bench_local(|| workload.forward());
}

#[divan::bench(args = cases())]
fn flex_forward_backward(bencher: Bencher, case: &Case) {
    let workload = case.workload();
    bencher.bench_local(|| workload.forward_backward());
}
