//! The entries of the catalogue and the rules they keep.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The catalogue of the program.
const BUILT_IN: &str = include_str!("catalogue.toml");

/// All data sets that can be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The data sets, in the order they are listed.
    #[serde(rename = "set")]
    pub sets: Vec<DataSet>,
}

/// A data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSet {
    /// Its name, which is also that of its folder.
    pub name: String,
    /// What it is.
    pub about: String,
    /// What reads it, with `DIR` for the folder that data sets are fetched into.
    pub used_by: String,
    /// Its licence, or that none is stated.
    pub licence: String,
    /// Where the licence is stated.
    pub licence_evidence: String,
    /// Its page.
    pub home: String,
    /// What else must be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What is made from its files when they are there; known: `mrpc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub make: Option<Make>,
    /// Its files.
    #[serde(rename = "file")]
    pub files: Vec<SourceFile>,
}

/// What is made from the files of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Make {
    /// The tables of GLUE's task MRPC.
    Mrpc,
}

/// A file that is downloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// The part of the data set it belongs to, which can be fetched alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Where it is published; the next one is tried if one does not have it.
    pub addresses: Vec<String>,
    /// Whether no publication was found that states the address.
    #[serde(default)]
    pub unverified: bool,
    /// Path in the folder of the data set, if it is not the last part of the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_as: Option<String>,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Most bytes that are downloaded where the size is not known; [`MOST_BYTES`](crate::catalogue::download::MOST_BYTES) without this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_bytes: Option<u64>,
    /// SHA-256 in lower-case hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where address, size and checksum are published.
    pub evidence: String,
    /// How it is unpacked; a file without this is kept as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpack: Option<Unpack>,
    /// Only entries of the archive whose path contains this are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Whether the entries lose their folders.
    #[serde(default)]
    pub flatten: bool,
    /// New paths of entries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rename: BTreeMap<String, String>,
    /// Most bytes that the archive may hold; [`crate::catalogue::archive::default_limit`] without this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpacked_limit: Option<u64>,
}

/// A kind of archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unpack {
    /// Zip.
    #[serde(rename = "zip")]
    Zip,
    /// Tar compressed by gzip.
    #[serde(rename = "tar.gz")]
    TarGz,
    /// A single file compressed by gzip.
    #[serde(rename = "gz")]
    Gz,
}

/// Why a catalogue cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// It is not TOML of the right form.
    #[error("the catalogue `{name}` cannot be understood: {cause}")]
    Form {
        /// The catalogue's file.
        name: String,
        /// What is wrong, with line and column.
        cause: String,
    },
    /// An entry breaks a rule.
    #[error("the catalogue `{name}`, data set `{set}`: {problem}")]
    Rule {
        /// The catalogue's file.
        name: String,
        /// The data set.
        set: String,
        /// The rule and what breaks it.
        problem: String,
    },
}

impl Catalogue {
    /// The catalogue of the program.
    ///
    /// # Panics
    /// Never: a test reads it.
    pub fn built_in() -> Self {
        Self::parse("built in", BUILT_IN).expect("the built-in catalogue keeps the rules")
    }

    /// Reads a catalogue; `name` is that of its file, for messages.
    ///
    /// # Errors
    /// [`CatalogueError`] for an unknown field, a name or path that leaves its folder, an address that is not http or https, a checksum that is none, and
    /// two files of one place.
    pub fn parse(name: &str, text: &str) -> Result<Self, CatalogueError> {
        let catalogue: Self =
            toml::from_str(text).map_err(|cause| CatalogueError::Form { name: name.to_string(), cause: cause.to_string() })?;
        let mut names = BTreeSet::new();
        for set in &catalogue.sets {
            let problem = if names.insert(&set.name) { set.problem() } else { Some("the name stands twice".to_string()) };
            if let Some(problem) = problem {
                return Err(CatalogueError::Rule { name: name.to_string(), set: set.name.clone(), problem });
            }
        }
        Ok(catalogue)
    }

    /// The data set of this name.
    pub fn set(&self, name: &str) -> Option<&DataSet> {
        self.sets.iter().find(|set| set.name == name)
    }
}

impl DataSet {
    /// Size of all files, if it is known of each.
    pub fn bytes(&self) -> Option<u64> {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Names of its parts, in the order of the catalogue.
    pub fn parts(&self) -> Vec<&str> {
        let mut parts: Vec<&str> = self.files.iter().filter_map(|file| file.part.as_deref()).collect();
        parts.dedup();
        parts
    }

    fn problem(&self) -> Option<String> {
        if self.name.is_empty() || !self.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
            return Some("a name consists of small letters, digits and hyphens".to_string());
        }
        if self.files.is_empty() {
            return Some("it has no file".to_string());
        }
        let mut places = BTreeSet::new();
        self.files.iter().find_map(|file| {
            let place = file.path();
            file.problem().or_else(|| (!places.insert(place.clone())).then(|| format!("two files are saved as `{}`", place.display())))
        })
    }
}

impl SourceFile {
    /// Path in the folder of the data set.
    pub fn path(&self) -> PathBuf {
        match &self.save_as {
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(self.addresses.first().map(|address| last_part(address)).unwrap_or_default()),
        }
    }

    fn problem(&self) -> Option<String> {
        if self.addresses.is_empty() {
            return Some("a file has no address".to_string());
        }
        if let Some(address) = self.addresses.iter().find(|address| !is_address(address)) {
            return Some(format!("`{address}` is not an http or https address"));
        }
        let paths = [Some(self.path())].into_iter().flatten().chain(self.rename.values().map(PathBuf::from));
        if let Some(path) = paths.into_iter().find(|path| !stays_inside(path)) {
            return Some(format!("`{}` is not a path inside the folder", path.display()));
        }
        if self.bytes.is_some() && self.most_bytes.is_some() {
            return Some("a file whose `bytes` are known needs no `most_bytes`".to_string());
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match &self.sha256 {
            Some(sha256) if sha256.len() != 64 || !sha256.bytes().all(is_digit) => {
                Some(format!("`{sha256}` is not a SHA-256 in lower-case hexadecimal"))
            }
            _ => None,
        }
    }
}

/// Whether something is an http or https address with a host.
pub(super) fn is_address(address: &str) -> bool {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace))
}

/// The last part of an address, without what follows a `?` or `#`.
pub(super) fn last_part(address: &str) -> &str {
    let path = address.split(['?', '#']).next().unwrap_or(address);
    path.rsplit('/').next().unwrap_or(path)
}

fn stays_inside(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::refused;

    const MINIMAL: &str = "[[set]]\nname = \"a\"\nabout = \"\"\nused_by = \"\"\nlicence = \"\"\nlicence_evidence = \"\"\nhome = \"\"\n";

    fn with_file(file: &str) -> Result<Catalogue, CatalogueError> {
        Catalogue::parse("test.toml", &format!("{MINIMAL}[[set.file]]\nevidence = \"\"\n{file}"))
    }

    #[test]
    fn the_built_in_catalogue_keeps_its_rules_and_says_where_everything_is_published() {
        let catalogue = Catalogue::built_in();
        for name in [
            "multi30k",
            "iwslt15-en-vi",
            "iwslt17-en-de",
            "wmt14-en-de",
            "ptb",
            "wikitext-2",
            "wikitext-103",
            "enwik8",
            "text8",
            "lm1b",
            "lambada",
            "glue",
            "superglue",
            "cnn-dailymail",
            "all-minilm-l6-v2",
        ] {
            assert!(catalogue.set(name).is_some(), "{name}");
        }
        for set in &catalogue.sets {
            assert!(
                [&set.about, &set.used_by, &set.licence, &set.licence_evidence, &set.home].iter().all(|text| !text.is_empty()),
                "{}",
                set.name
            );
            assert!(set.files.iter().all(|file| !file.evidence.is_empty()), "{}", set.name);
        }
        assert_eq!(catalogue.set("glue").unwrap().parts().len(), 10);
        // Readers know these files by the names that they have in their archives.
        assert!(["enwik8", "text8"].iter().all(|name| catalogue.set(name).unwrap().files[0].rename.is_empty()));
    }

    #[test]
    fn every_data_set_names_the_command_that_reads_it() {
        const PROGRAMS: [&str; 7] = ["mt", "lm", "glue", "classify", "image", "textgen", "algorithmic"];
        for DataSet { name, used_by, .. } in &Catalogue::built_in().sets {
            let program = used_by.split(' ').next().unwrap();
            let is_read = ["data", "pretrained"].iter().any(|option| used_by.contains(&format!("--{option} DIR/{name}")));
            assert!(PROGRAMS.contains(&program) && is_read, "{name}: {used_by}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused_with_its_name_and_line() {
        refused(with_file("addresses = [\"http://a/b\"]\nchecksum = \"1\"\n"), &["test.toml", "checksum", "line 11"]);
    }

    #[test]
    fn a_path_that_leaves_its_folder_an_odd_address_and_a_wrong_checksum_are_refused() {
        for (file, part) in [
            ("addresses = [\"http://a/b\"]\nsave_as = \"../b\"", "../b"),
            ("addresses = [\"http://a/b\"]\nsave_as = \"/etc/b\"", "/etc/b"),
            ("addresses = [\"http://a/\"]", "not a path"),
            ("addresses = [\"ftp://a/b\"]", "ftp://a/b"),
            ("addresses = [\"file:///etc/passwd\"]", "file:"),
            ("addresses = []", "no address"),
            ("addresses = [\"http://a/b\"]\nsha256 = \"12\"", "SHA-256"),
            ("addresses = [\"http://a/b\"]\nbytes = 1\nmost_bytes = 2", "most_bytes"),
            ("addresses = [\"http://a/b\"]\nrename = { b = \"../c\" }", "../c"),
            ("addresses = [\"http://a/b\"]\n[[set.file]]\nevidence = \"\"\naddresses = [\"http://c/b\"]", "two files"),
        ] {
            refused(with_file(file), &[part]);
        }
        assert!(with_file("addresses = [\"http://a/b\"]").is_ok());
    }

    #[test]
    fn the_last_part_of_an_address_has_no_query() {
        assert_eq!(last_part("https://host/folder/a.zip?raw=1#top"), "a.zip");
    }
}
