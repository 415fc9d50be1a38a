//! Passes the version of the compiler to the package, for the records of runs.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var("RUSTC").ok().and_then(|rustc| version(Command::new(rustc).arg("--version"))).unwrap_or_default();
    println!("cargo::rustc-env=HEEDFUL_COMPILER={compiler}");
}

fn version(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
