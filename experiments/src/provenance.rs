//! What a run was computed by.

use std::path::Path;

pub use heedful_host::provenance::Provenance;

/// That of this process: the commit is the latest one that changed what the programs of the experiments are built of; sources of one's own in the checkout that
/// it does not hold count as changes. Call it where the CPU backends compute, see
/// [`crate::threads::among_workers`].
pub fn here() -> Provenance {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let built = Provenance::built_from(env!("HEEDFUL_COMMIT"), env!("HEEDFUL_SOURCES"));
    if is_copy(&built.commit) { built } else { built.beside_own_sources(Path::new(root)) }
}

/// The file beside a copy of a program that says of which commit it is. What was copied had no changes, whatever the checkout has become since.
pub(crate) const COPIED: &str = "copied";

/// Whether this program is a copy that was made while it had no changes.
fn is_copy(commit: &str) -> bool {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(COPIED));
    beside.and_then(|path| std::fs::read_to_string(path).ok()).is_some_and(|copied| copied.trim() == commit)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// In a checkout the commit is one of it, and holds what was built if nothing was changed.
    #[test]
    fn the_commit_is_that_of_the_checkout() {
        let git = |arguments: &[&str]| {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
            Command::new("git").arg("-C").arg(root).args(arguments).output().is_ok_and(|output| output.status.success())
        };
        let Provenance { commit, is_clean, .. } = here();
        if git(&["ls-files", "--error-unmatch", "experiments/build.rs"]) {
            assert!(git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]), "{commit}");
            let sources = ["attention/src", "models/src", "experiments/host/src", "experiments/src"];
            assert!(is_clean == Some(false) || git(&[&["diff", "--quiet", &commit, "--"], &sources[..]].concat()), "{commit}");
        } else {
            assert_eq!((commit.as_str(), is_clean), ("unknown", None));
        }
    }

    /// What the record of a run names is what heedful-host knows: a feature of this package has to reach it. `default`, `gpu` and `cube` stand for others, and
    /// with `mpi` and `train` nothing computes.
    #[test]
    fn all_features_of_the_manifest_are_known() {
        let manifest: toml::Table = include_str!("../Cargo.toml").parse().unwrap();
        let written = manifest["features"].as_table().unwrap();
        let computing: Vec<_> =
            written.iter().filter(|(name, _)| !["default", "gpu", "cube", "mpi", "train"].contains(&name.as_str())).collect();
        assert_eq!(computing.len(), 10);
        for (name, others) in computing {
            assert!(others.as_array().unwrap().contains(&format!("heedful-host/{name}").into()), "{name}");
        }
    }
}
