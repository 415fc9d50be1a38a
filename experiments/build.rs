//! Passes the commit of the programs to the compiler, for the records of their runs.

mod checkout;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=checkout.rs");
    let own = [
        "experiments/Cargo.toml",
        "experiments/build.rs",
        "experiments/checkout.rs",
        "experiments/claims",
        "experiments/src",
        "experiments/data/Cargo.toml",
        "experiments/data/src",
        "experiments/heedful/Cargo.toml",
        "experiments/heedful/src",
        "experiments/metrics/Cargo.toml",
        "experiments/metrics/src",
        "experiments/runs/Cargo.toml",
        "experiments/runs/published",
        "experiments/runs/src",
    ];
    checkout::tell(&[&checkout::SHARED[..], &own].concat());
}
