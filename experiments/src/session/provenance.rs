//! What computed a run.

use std::path::Path;

use heedful_host::provenance::Provenance;

/// The provenance of this process. The commit is the latest one that changed the sources of the experiments' programs; own sources in the checkout that it does
/// not contain count as changes. Call it where the CPU backends compute, see [`heedful_host::threads::among_workers`].
pub fn here() -> Provenance {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let built = Provenance::built_from(env!("HEEDFUL_COMMIT"), env!("HEEDFUL_SOURCES"), heedful_backends::features::compiled());
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
            let sources = ["attention/src", "models/src", "experiments/src", ":(glob)experiments/*/src/**"];
            assert!(is_clean == Some(false) || git(&[&["diff", "--quiet", &commit, "--"], &sources[..]].concat()), "{commit}");
        } else {
            assert_eq!((commit.as_str(), is_clean), ("unknown", None));
        }
    }

    /// Another commit of a package that the programs are built of is another version of them.
    #[test]
    fn the_commit_is_that_of_all_packages() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let manifest = |path: &Path| std::fs::read_to_string(path.join("Cargo.toml")).unwrap().parse::<toml::Table>().unwrap();
        let workspace = manifest(root)["workspace"]["dependencies"].as_table().unwrap().clone();
        let place = |name: &str| workspace.get(name)?.get("path")?.as_str().map(str::to_owned);
        let sources = concat!(include_str!("../../checkout.rs"), include_str!("../../build.rs"));
        let (mut open, mut seen) = (vec!["experiments".to_owned()], 0);
        while let Some(package) = open.pop() {
            for file in ["Cargo.toml", "src"] {
                assert!(sources.contains(&format!("\"{package}/{file}\"")), "{package}/{file} is missing in checkout.rs and build.rs");
            }
            open.extend(manifest(&root.join(&package))["dependencies"].as_table().unwrap().keys().filter_map(|name| place(name)));
            seen += 1;
        }
        assert!(seen > 8, "{seen} packages");
    }

    /// What the record of a run names is what heedful-backends knows: a feature of this package has to reach it. `default`, `gpu` and `cube` stand for others,
    /// and with `mpi` and `train` nothing computes.
    #[test]
    fn all_features_of_the_manifest_are_known() {
        let manifest: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
        let written = manifest["features"].as_table().unwrap();
        let computing: Vec<_> =
            written.iter().filter(|(name, _)| !["default", "gpu", "cube", "mpi", "train"].contains(&name.as_str())).collect();
        assert_eq!(computing.len(), 10);
        for (name, others) in computing {
            assert!(others.as_array().unwrap().contains(&format!("heedful-backends/{name}").into()), "{name}");
        }
    }
}
