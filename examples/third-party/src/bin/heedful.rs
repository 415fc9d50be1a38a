//! The program `heedful`, which knows the mechanism.

fn main() -> std::process::ExitCode {
    third_party::register();
    heedful_experiments::programs::heedful::main()
}
