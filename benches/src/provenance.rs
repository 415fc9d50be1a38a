//! What made a measurement.

use std::path::Path;

use heedful_host::provenance::Provenance;

/// The provenance of this process: the commit is the latest one that changed the benchmarks or anything that they measure. Call it where the CPU backends
/// compute.
pub fn here() -> Provenance {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    Provenance::built_from(env!("HEEDFUL_COMMIT"), env!("HEEDFUL_SOURCES"), heedful_backends::features::compiled())
        .beside_own_sources(Path::new(root))
}

/// The commit in a few letters, `unknown` for measurements of earlier versions.
pub fn code(provenance: Option<&Provenance>) -> String {
    provenance.map_or_else(|| "unknown".to_owned(), Provenance::code)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_commit_of_the_benchmarks_alone_is_another_one() {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").args(["-C", concat!(env!("CARGO_MANIFEST_DIR"), "/..")]).args(arguments).output();
            output.ok().filter(|output| output.status.success()).map(|output| String::from_utf8(output.stdout).unwrap())
        };
        let Provenance { commit, is_clean, .. } = here();
        if git(&["ls-files", "--error-unmatch", "experiments/build.rs"]).is_none() {
            assert_eq!((commit.as_str(), is_clean), ("unknown", None));
            return;
        }
        let range = format!("{commit}..HEAD");
        let later = git(&[
            "log",
            "--format=%H",
            &range,
            "--",
            "benches/src",
            "experiments/host/src",
            "experiments/backends/src",
            "models/src",
            "attention/src",
        ]);
        assert!(is_clean == Some(false) || later.as_deref() == Some(""), "{commit} is not the latest: {later:?}");
    }

    #[test]
    fn measurements_of_earlier_versions_have_an_unknown_commit() {
        assert_eq!(code(None), "unknown");
        assert_eq!(code(Some(&Provenance { commit: "0123456789abcdef".into(), ..Provenance::default() })), "0123456789ab");
    }
}
