//! The program `mt`, which knows the mechanism.

fn main() -> std::process::ExitCode {
    third_party::register();
    heedful_experiments::programs::mt::main()
}
