//! What computed a run: the code, its compilation, and its use of the machine.

use std::path::Path;
use std::process::Command;

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
    /// The cargo features that are compiled in. `fusion` and `autotune` are named wherever the GPU backends have them: any other crate of
    /// the program may have switched them on at Burn, whose default features they are.
    pub features: Vec<String>,
    /// The instruction set of the chosen kernels, where kernels are compiled for several.
    pub instruction_set: String,
    /// The processor features by which libraries for matrix products and sums choose their kernels. Burn's flex sums rows with AVX-512 where `instruction_set`,
    /// that of other kernels, is `x86-64-v3`.
    pub cpu_features: Vec<String>,
    /// Kind and size of each cache of a core, which libraries of matrix products divide their sums by; unknown where the system does not tell, and of runs of
    /// earlier versions.
    pub caches: Vec<String>,
    /// Threads that compute on the CPU.
    pub threads: usize,
    /// Processes that trained together, each with this many threads; `None` for one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<usize>,
}

impl Provenance {
    /// That of this process, whose program is built from `commit`, with sources that are `clean`, `changed` or anything else for
    /// unknown, and cargo features that change what computes. Call it where the CPU
    /// backends compute, see [`crate::threads::among_workers`].
    pub fn built_from(commit: &str, sources: &str, features: Vec<String>) -> Self {
        Self {
            commit: commit.to_owned(),
            is_clean: match sources {
                "clean" => Some(true),
                "changed" => Some(false),
                _ => None,
            },
            compiler: env!("HEEDFUL_COMPILER").to_owned(),
            features,
            instruction_set: instruction_set(),
            cpu_features: cpu_features().into_iter().map(str::to_owned).collect(),
            caches: caches(),
            threads: rayon::current_num_threads(),
            ranks: None,
        }
    }

    /// The same where the checkout at `root`, in which the program was built, has Rust sources or manifests that git does not know, or examples that differ from
    /// the commit: the program may be built of them, so that they count as changes.
    pub fn beside_own_sources(self, root: &Path) -> Self {
        if self.is_clean == Some(true) && has_own_sources(root) { Self { is_clean: Some(false), ..self } } else { self }
    }

    /// Circumstances other than the code that change digits and differ in `later`: compiler, instruction set, processor features and caches, such as
    /// `processor features: avx2, now avx2 avx512f`. Where there are none, equal code gives the same digits on a CPU, on any number of threads.
    pub fn other_numerics(&self, later: &Self) -> Vec<String> {
        let named = |it: &Self| {
            [
                ("compiler", it.compiler.clone()),
                ("instruction set", it.instruction_set.clone()),
                ("processor features", it.cpu_features.join(" ")),
                ("caches", it.caches.join(", ")),
            ]
        };
        let known = |words: String| if words.is_empty() { "unknown".to_owned() } else { words };
        let pairs = named(self).into_iter().zip(named(later)).filter(|(own, other)| own != other);
        pairs.map(|((what, own), (_, other))| format!("{what}: {}, now {}", known(own), known(other))).collect()
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

/// Whether a checkout has sources of programs that no commit holds: files that git does not know, and examples that were changed.
fn has_own_sources(root: &Path) -> bool {
    let mut git = Command::new("git");
    git.arg("--no-optional-locks").arg("-C").arg(root).args(["status", "--porcelain", "--untracked-files=all", "--"]);
    let output = git.args(["*.rs", "Cargo.toml", "*/Cargo.toml", "Cargo.lock"]).output();
    let listed = output.ok().filter(|output| output.status.success()).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    listed.is_some_and(|listed| listed.lines().any(|line| line.starts_with("??") || line.contains("examples/")))
}

fn instruction_set() -> String {
    let chosen = format!("{:?}", pulp::Arch::new());
    match chosen.split('(').next().unwrap_or_default() {
        "V3" => "x86-64-v3".to_owned(),
        "V4" => "x86-64-v4".to_owned(),
        other => other.to_lowercase(),
    }
}

/// The caches of the first core, such as `L1 Data 48K`.
fn caches() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache") else { return Vec::new() };
    let read = |folder: &Path, file: &str| std::fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    let described = |folder: &Path| Some(format!("L{} {} {}", read(folder, "level")?, read(folder, "type")?, read(folder, "size")?));
    let mut caches: Vec<String> = entries.flatten().filter_map(|entry| described(&entry.path())).collect();
    caches.sort();
    caches
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
    use super::*;

    fn here() -> Provenance {
        Provenance::built_from("unknown", "unknown", Vec::new())
    }

    #[test]
    fn the_code_is_named_by_its_commit_and_by_changes() {
        let of = |commit: &str, is_clean| Provenance { commit: commit.into(), is_clean, ..Default::default() }.code();
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!([of(commit, Some(true)), of(commit, Some(false))], ["0123456789ab", "0123456789ab with changes"].map(str::to_owned));
        assert_eq!([of("unknown", None), of("", None)], ["unknown", "unknown"].map(str::to_owned));
    }

    #[test]
    fn untracked_sources_and_changed_examples_are_changes() {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            let output = Command::new("git").arg("-C").arg(folder.path()).args(named).args(arguments).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let clean = || Provenance { is_clean: Some(true), ..here() }.beside_own_sources(folder.path()).is_clean.unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        git(&["init", "-q"]);
        write("notes.md", "notes");
        assert!(clean(), "notes are no sources");
        write("examples/brackets.rs", "fn main() {}");
        assert!(!clean(), "an example of one's own");
        git(&["add", "."]);
        git(&["commit", "-qm", "own"]);
        assert!(clean(), "all is committed");
        write("examples/brackets.rs", "fn main() { }");
        assert!(!clean(), "the example was changed");
        git(&["checkout", "-q", "."]);
        write("own/Cargo.toml", "[package]");
        assert!(!clean(), "a package of one's own");
        assert_eq!(Provenance { is_clean: None, ..here() }.beside_own_sources(folder.path()).is_clean, None);
    }

    #[test]
    fn digits_depend_on_compiler_and_instructions_and_not_on_commit_and_threads() {
        let here = here();
        let other = Provenance { commit: "0123".into(), is_clean: None, threads: here.threads + 1, features: Vec::new(), ..here.clone() };
        assert_eq!(here.other_numerics(&other), [""; 0]);
        let later = Provenance {
            compiler: "rustc 1.0.0".into(),
            instruction_set: "scalar?".into(),
            cpu_features: vec!["none".into()],
            caches: Vec::new(),
            ..here.clone()
        };
        let told = here.other_numerics(&later);
        assert_eq!(told.len(), if here.caches.is_empty() { 3 } else { 4 }, "{told:?}");
        assert_eq!(told[0], format!("compiler: {}, now rustc 1.0.0", here.compiler));
        assert!(told[2].starts_with("processor features: ") && told[2].ends_with(", now none"), "{told:?}");
        assert!(here.caches.is_empty() || told[3].ends_with(", now unknown"), "{told:?}");
    }

    #[test]
    fn what_is_compiled_in_and_used_is_told() {
        let here = here();
        assert!(here.threads >= 1 && here.compiler.starts_with("rustc ") && !here.instruction_set.is_empty(), "{here:?}");
        #[cfg(target_arch = "x86_64")]
        assert_eq!(here.instruction_set != "scalar", here.cpu_features.contains(&"avx2".to_owned()), "{here:?}");
    }
}
