//! Vectors of words in the text format of GloVe: on each line a word and its numbers, separated by spaces.
//!
//! Plain or `.gz`. The format of word2vec is the same after a first line with two numbers, which is skipped. Not covered: binary formats.

use std::collections::HashMap;
use std::path::Path;

use super::DataError;
use super::files::TextFile;

/// Vectors of one width by their words.
#[derive(Clone, Debug, PartialEq)]
pub struct WordVectors {
    name: String,
    vectors: HashMap<String, Vec<f32>>,
}

impl WordVectors {
    /// Reads a file.
    ///
    /// # Errors
    /// [`DataError::FieldValue`] for what is no number or not as wide as the first vector, [`DataError::Empty`] if there is no vector, and those of
    /// [`TextFile::read`].
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let file = TextFile::read(path, "a file of word vectors")?;
        let mut vectors = HashMap::with_capacity(file.lines.len());
        let mut width = None;
        for (index, line) in file.lines.iter().enumerate() {
            let mut fields = line.split_ascii_whitespace();
            let Some(word) = fields.next() else { continue };
            let vector = fields
                .map(|field| {
                    let number = field.parse::<f32>().ok().filter(|number| number.is_finite());
                    number.ok_or_else(|| file.wrong(index, word, field, "a finite number"))
                })
                .collect::<Result<Vec<f32>, _>>()?;
            if index == 0 && vector.len() == 1 {
                continue;
            }
            let expected = *width.get_or_insert(vector.len());
            if vector.len() != expected || expected == 0 {
                let value = format!("{} numbers", vector.len());
                return Err(file.wrong(index, word, &value, &format!("{} numbers, as the first vector has", expected.max(1))));
            }
            vectors.insert(word.to_owned(), vector);
        }
        if vectors.is_empty() {
            let (found, remedy) = ("no vector".to_owned(), "give a file in the text format of GloVe".to_owned());
            return Err(DataError::Empty { path: file.path, found, remedy });
        }
        Ok(Self { name: file.name, vectors })
    }

    /// Name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The vector of a word, if it has one.
    pub fn of(&self, word: &str) -> Option<&[f32]> {
        self.vectors.get(word).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::files::tests::folder;

    fn read(text: &str) -> Result<WordVectors, DataError> {
        let folder = folder(&[("vectors.txt", text.as_bytes())]);
        WordVectors::read(&folder.path().join("vectors.txt"))
    }

    #[test]
    fn vectors_are_found_by_their_words() {
        for head in ["", "2 3\n"] {
            let vectors = read(&format!("{head}the 0.5 -1 2e-1\n, 1 2 3\n")).unwrap();
            assert_eq!(vectors.of("the"), Some(&[0.5, -1.0, 0.2][..]));
            assert_eq!(vectors.of(","), Some(&[1.0, 2.0, 3.0][..]));
            assert_eq!((vectors.of("2"), vectors.name()), (None, "vectors.txt"));
        }
    }

    #[test]
    fn what_is_no_vector_is_refused_with_its_line() {
        for (text, parts) in [
            ("a 1 2\nb 1\n", &["line 2", "`b`", "2 numbers"][..]),
            ("a 1 x\n", &["line 1", "`a`", "`x`"]),
            ("a 1 inf\n", &["line 1", "`inf`"]),
            ("\n", &["no vector"]),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
