//! The programs of heedful in one file, for a machine with a GPU and nothing else: a folder of programs would hold the same code many times over.
//!
//! `heedful-gpu lm --help` is `lm --help`. Called by the name of a program, by a link for instance, it is that program.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Lists the programs: a module each, with the file and the name.
macro_rules! programs {
    ($($module:ident $name:literal $path:literal,)*) => {
        $(#[path = $path] mod $module;)*

        const NAMES: &[&str] = &[$($name),*];

        fn program(name: &str) -> Option<fn() -> ExitCode> {
            match name {
                $($name => Some($module::main),)*
                _ => None,
            }
        }
    };
}

programs! {
    algorithmic "algorithmic" "../../../experiments/src/bin/algorithmic.rs",
    backends "backends" "../../src/bin/backends.rs",
    compare "compare" "../../../experiments/src/bin/compare.rs",
    cost "cost" "../../src/bin/cost.rs",
    devices "devices" "devices.rs",
    kernels "kernels" "kernels.rs",
    lm "lm" "../../../experiments/src/bin/lm.rs",
    mt "mt" "../../../experiments/src/bin/mt.rs",
    parity "parity" "../../../experiments/src/bin/parity.rs",
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default().to_string_lossy();
    if let Some(main) = program(&called) {
        return main();
    }
    let name = arguments.next().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if program(&name).is_none() {
        eprintln!("heedful-gpu: give the name of a program: {}", NAMES.join(", "));
        return ExitCode::from(2);
    }
    // The same file under the other name, so that options and messages are those of the program.
    let error = match std::env::current_exe() {
        Ok(file) => Command::new(file).arg0(&name).args(arguments).exec(),
        Err(error) => error,
    };
    eprintln!("heedful-gpu: {name} cannot be started: {error}");
    ExitCode::FAILURE
}
