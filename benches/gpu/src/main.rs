//! The programs of heedful in one file, for a machine with a GPU and nothing else: a folder of programs would hold the same code many times over.
//!
//! `heedful-gpu lm --help` is `lm --help`. Called by the name of a program, by a link for instance, it is that program.

mod devices;
mod kernels;
mod products;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use heedful_benches::programs::{backends, cost};
use heedful_experiments::programs::{algorithmic, heedful, lm, mt};
use peak_alloc::PeakAlloc;

/// What `cost` reads the memory in use from.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// A program.
type Main = fn() -> ExitCode;

/// The programs with their names.
const PROGRAMS: [(&str, Main); 9] = [
    ("algorithmic", algorithmic::main),
    ("backends", backends::main),
    ("cost", cost::main),
    ("devices", devices::main),
    ("heedful", heedful::main),
    ("kernels", kernels::main),
    ("lm", lm::main),
    ("mt", mt::main),
    ("products", products::main),
];

fn program(name: &str) -> Option<Main> {
    PROGRAMS.iter().find(|(known, _)| *known == name).map(|(_, main)| *main)
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
        eprintln!("heedful-gpu: give the name of a program: {}", PROGRAMS.map(|(name, _)| name).join(", "));
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
