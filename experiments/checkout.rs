//! Which commit a package is built from: a part of the build scripts of the experiments and of the benchmarks.
//!
//! The commit is the latest one that changed the sources of a package, so that a commit of documents alone makes no new version and rebuilds nothing. Where
//! these files were changed since, the script runs again after the next commit.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What experiments and benchmarks are both built of, below the root of the repository.
pub const SHARED: [&str; 15] = [
    "Cargo.toml",
    "Cargo.lock",
    "attention/Cargo.toml",
    "attention/build.rs",
    "attention/src",
    "models/Cargo.toml",
    "models/build.rs",
    "models/src",
    "experiments/random/Cargo.toml",
    "experiments/random/src",
    "experiments/host/Cargo.toml",
    "experiments/host/build.rs",
    "experiments/host/src",
    "experiments/backends/Cargo.toml",
    "experiments/backends/src",
];

/// Tells the compiler of the package which commit changed any of `sources` last (`HEEDFUL_COMMIT`), and whether they were changed since (`HEEDFUL_SOURCES`).
pub fn tell(sources: &[&str]) {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    for path in sources.iter().map(|path| manifest.join("..").join(path)) {
        // Cargo takes a path that is missing for one that has changed.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let (commit, state) = match manifest.parent().and_then(Checkout::at) {
        Some(checkout) => checkout.built_from(sources),
        None => ("unknown".to_owned(), "unknown"),
    };
    println!("cargo::rustc-env=HEEDFUL_COMMIT={commit}");
    println!("cargo::rustc-env=HEEDFUL_SOURCES={state}");
}

/// Standard output of a command that succeeds, without the line break at its end.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}

struct Checkout<'a> {
    root: &'a Path,
}

impl<'a> Checkout<'a> {
    /// The checkout of this repository at `root`: not that of another one, into which the package was unpacked.
    fn at(root: &'a Path) -> Option<Self> {
        let checkout = Self { root };
        let top = PathBuf::from(checkout.git(&["rev-parse", "--show-toplevel"])?);
        let is_root = top.canonicalize().ok()? == root.canonicalize().ok()?;
        (is_root && checkout.git(&["ls-files", "--error-unmatch", "experiments/build.rs"]).is_some()).then_some(checkout)
    }

    fn git(&self, arguments: &[&str]) -> Option<String> {
        // Without locks, a build leaves alone what another command does to the index meanwhile.
        output(Command::new("git").arg("--no-optional-locks").arg("-C").arg(self.root).args(arguments))
    }

    /// The commit, and whether nothing was changed since.
    fn built_from(&self, sources: &[&str]) -> (String, &'static str) {
        let commit = self.git(&[&["log", "-1", "--format=%H", "--"], sources].concat()).filter(|commit| !commit.is_empty());
        let changes = self.git(&[&["status", "--porcelain", "--untracked-files=all", "--"], sources].concat());
        let is_clean = changes.is_some_and(|changes| changes.is_empty());
        let log = self.git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists());
        if let (false, Some(log)) = (is_clean, log) {
            println!("cargo::rerun-if-changed={log}");
        }
        (commit.unwrap_or_else(|| "unknown".to_owned()), if is_clean { "clean" } else { "changed" })
    }
}
