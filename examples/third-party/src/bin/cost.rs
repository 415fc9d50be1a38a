//! The program `cost`, which knows the mechanism.

fn main() -> std::process::ExitCode {
    third_party::register();
    heedful_benches::programs::cost::main()
}
