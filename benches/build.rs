//! Tells the benchmarks of which commit they were built, for what they record.

#[path = "../experiments/checkout.rs"]
mod checkout;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let own = ["benches/Cargo.toml", "benches/build.rs", "benches/src", "experiments/checkout.rs"];
    checkout::tell(&[&checkout::SHARED[..], &own].concat());
}
