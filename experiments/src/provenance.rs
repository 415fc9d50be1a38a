//! What a run was computed by: the code, how it was compiled, and what it used of the machine.

use serde::{Deserialize, Serialize};

/// The program and its use of the machine. Runs of equal code and instruction set, with equal settings and data, give the same digits on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// The latest commit that changed what the program is built of, at the time of the build; `unknown` where it was not built in a checkout.
    pub commit: String,
    /// Whether these files were as in the commit; `None` if that is unknown.
    pub is_clean: Option<bool>,
    /// Version of the compiler.
    pub compiler: String,
    /// The cargo features of the experiments that are compiled in.
    pub features: Vec<String>,
    /// The instruction set for which kernels that are compiled for several of them were chosen.
    pub instruction_set: String,
    /// What libraries of matrix products choose their kernels by, as far as the processor has it.
    pub cpu_features: Vec<String>,
    /// Threads that compute on the CPU.
    pub threads: usize,
}

impl Provenance {
    /// That of this process. Call it where the CPU backends compute, see [`crate::threads::among_workers`].
    pub fn here() -> Self {
        let features = [("ndarray", cfg!(feature = "ndarray")), ("wgpu", cfg!(feature = "wgpu")), ("cuda", cfg!(feature = "cuda"))];
        Self {
            commit: env!("HEEDFUL_COMMIT").to_owned(),
            is_clean: match env!("HEEDFUL_SOURCES") {
                "clean" => Some(true),
                "changed" => Some(false),
                _ => None,
            },
            compiler: env!("HEEDFUL_COMPILER").to_owned(),
            features: features.into_iter().filter(|(_, is_in)| *is_in).map(|(name, _)| name.to_owned()).collect(),
            instruction_set: instruction_set(),
            cpu_features: cpu_features().into_iter().map(str::to_owned).collect(),
            threads: rayon::current_num_threads(),
        }
    }

    /// The code in a few letters: `0123456789ab`, `0123456789ab with changes`, `unknown`.
    pub fn code(&self) -> String {
        let commit = self.commit.get(..12).unwrap_or(&self.commit);
        match self.is_clean {
            _ if commit.is_empty() => "unknown".to_owned(),
            Some(false) => format!("{commit} with changes"),
            _ => commit.to_owned(),
        }
    }
}

fn instruction_set() -> String {
    let chosen = format!("{:?}", pulp::Arch::new());
    match chosen.split('(').next().unwrap_or_default() {
        "V3" => "x86-64-v3".to_owned(),
        "V4" => "x86-64-v4".to_owned(),
        other => other.to_lowercase(),
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn cpu_features() -> Vec<&'static str> {
    use std::arch::is_x86_feature_detected as has;
    let detected = [("avx", has!("avx")), ("avx2", has!("avx2")), ("fma", has!("fma")), ("avx512f", has!("avx512f"))];
    detected.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
}

#[cfg(target_arch = "aarch64")]
fn cpu_features() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected as has;
    let detected = [("neon", has!("neon")), ("fp16", has!("fp16")), ("sve", has!("sve"))];
    detected.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_features() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_code_is_named_by_its_commit_and_by_changes() {
        let of = |commit: &str, is_clean| Provenance { commit: commit.into(), is_clean, ..Default::default() }.code();
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!([of(commit, Some(true)), of(commit, Some(false))], ["0123456789ab", "0123456789ab with changes"].map(str::to_owned));
        assert_eq!([of("unknown", None), of("", None)], ["unknown", "unknown"].map(str::to_owned));
    }

    /// In a checkout the commit is one of it, and holds what was built if nothing was changed.
    #[test]
    fn the_commit_is_that_of_the_checkout() {
        let git = |arguments: &[&str]| {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
            Command::new("git").arg("-C").arg(root).args(arguments).output().is_ok_and(|output| output.status.success())
        };
        let Provenance { commit, is_clean, .. } = Provenance::here();
        if git(&["ls-files", "--error-unmatch", "experiments/build.rs"]) {
            assert!(git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]), "{commit}");
            let sources = ["attention/src", "models/src", "experiments/src"];
            assert!(is_clean == Some(false) || git(&[&["diff", "--quiet", &commit, "--"], &sources[..]].concat()), "{commit}");
        } else {
            assert_eq!((commit.as_str(), is_clean), ("unknown", None));
        }
    }

    #[test]
    fn what_is_compiled_in_and_used_is_told() {
        let here = Provenance::here();
        assert_eq!(here.features.contains(&"wgpu".to_owned()), cfg!(feature = "wgpu"));
        assert!(here.threads >= 1 && here.compiler.starts_with("rustc ") && !here.instruction_set.is_empty(), "{here:?}");
        #[cfg(target_arch = "x86_64")]
        assert_eq!(here.instruction_set != "scalar", here.cpu_features.contains(&"avx2".to_owned()), "{here:?}");
    }
}
