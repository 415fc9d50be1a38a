//! Running `data`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use heedful_host::checksum::sha256_hex;
use tempfile::TempDir;

pub use crate::output::{refused, stderr, stdout};

/// The binary, away from any proxy.
pub fn data() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heedful"));
    command.arg("data");
    for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(variable).env_remove(variable.to_uppercase());
    }
    command.env_remove("RUST_LOG");
    command
}

/// A folder with a catalogue of one data set, `small`.
pub struct Workplace {
    pub folder: TempDir,
}

impl Workplace {
    /// `files` are the tables of the files, without their heads.
    pub fn new(files: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let set = "[[set]]\nname = \"small\"\nabout = \"a small set\"\nused_by = \"tests\"\nlicence = \"CC0\"\nlicence_evidence = \"LICENCE\"\nhome = \"http://h\"\n";
        let files: String = files.iter().map(|file| format!("[[set.file]]\nevidence = \"none\"\n{file}\n")).collect();
        fs::write(folder.path().join("catalogue.toml"), format!("{set}{files}")).unwrap();
        Self { folder }
    }

    /// `data fetch small` with quick attempts and further arguments.
    pub fn fetch(&self, further: &[&str]) -> Command {
        self.fetch_named("small", further)
    }

    pub fn fetch_named(&self, name: &str, further: &[&str]) -> Command {
        let mut command = data();
        command.args(["fetch", name, "--timeout", "60", "--retries", "1", "--pause", "0.01"]);
        command.arg("--catalogue").arg(self.folder.path().join("catalogue.toml")).arg("--out").arg(self.folder.path().join("data"));
        command.args(further);
        command
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("data/small")
    }

    /// Names of the files of the data set, with `/`, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.root(), &self.root(), &mut names);
        names.sort();
        names
    }
}

fn collect(root: &Path, dir: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, names);
        } else {
            names.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
        }
    }
}

/// The table of a file with its size and checksum.
pub fn published(address: &str, content: &[u8], further: &str) -> String {
    format!("addresses = [\"{address}\"]\nbytes = {}\nsha256 = \"{}\"\n{further}", content.len(), sha256_hex(content))
}

/// Asserts success and that each part stands in standard output.
#[track_caller]
pub fn succeeded(output: &Output, parts: &[&str]) {
    assert!(output.status.success(), "{}", stderr(output));
    let told = stdout(output);
    for part in parts {
        assert!(told.contains(part), "`{part}` is missing in: {told}");
    }
}
