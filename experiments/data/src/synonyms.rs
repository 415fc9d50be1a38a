//! Sets of synonyms: on each line the words of one set, separated by white space.
//!
//! Plain or `.gz`. Case is ignored, and empty lines are skipped. A word that WordNet writes with an underscore stands for several words, which no word of a
//! text is equal to. Not covered: the files of WordNet.

use std::path::Path;

use super::DataError;
use super::files::TextFile;

/// What a file of synonyms holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynonymSets {
    /// The name of the file.
    pub name: String,
    /// The words of each set.
    pub sets: Vec<Vec<String>>,
}

/// Reads a file.
///
/// # Errors
/// [`DataError::FieldValue`] for a line with a single word, [`DataError::Empty`] if there is no set, and those of [`TextFile::read`].
pub fn read(path: &Path) -> Result<SynonymSets, DataError> {
    let file = TextFile::read(path, "a file of synonyms")?;
    let mut sets: Vec<Vec<String>> = Vec::with_capacity(file.lines.len());
    for (index, line) in file.lines.iter().enumerate() {
        let set: Vec<&str> = line.split_whitespace().collect();
        match set[..] {
            [] => {}
            [word] => return Err(file.wrong(index, "set of synonyms", word, "two words or more, separated by spaces")),
            _ => sets.push(set.into_iter().map(str::to_owned).collect()),
        }
    }
    if sets.is_empty() {
        return Err(DataError::empty(&file.path, "no set of synonyms", "give a file with one set of words on each line"));
    }
    Ok(SynonymSets { name: file.name, sets })
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::files::tests::{folder, refused};

    fn read(text: &str) -> Result<SynonymSets, DataError> {
        let folder = folder(&[("synonyms.txt", text.as_bytes())]);
        super::read(&folder.path().join("synonyms.txt"))
    }

    #[test]
    fn each_line_is_a_set() {
        let synonyms = read("big\tvast  Huge\n\ncar auto\n").unwrap();
        assert_eq!(synonyms.name, "synonyms.txt");
        assert_eq!(synonyms.sets, [vec!["big", "vast", "Huge"], vec!["car", "auto"]]);
    }

    #[test]
    fn what_is_no_set_is_refused_with_its_line() {
        for (text, parts) in [
            ("a b\nword\n", &["synonyms.txt", "line 2", "`word`", "two words"][..]),
            ("\n \n", &["synonyms.txt", "no set", "on each line"]),
        ] {
            refused(read(text), parts);
        }
    }
}
