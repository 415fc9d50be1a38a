//! Vectors of words in the text format of GloVe: on each line a word and its numbers, separated by spaces.
//!
//! Plain or `.gz`. The numbers are the last fields of a line, as many as most lines end in, so that a word may have spaces (`. . .` in GloVe 840B). The format
//! of word2vec is the same after a first line with the numbers of words and of dimensions, which is skipped. The last part of a word may look like one more number
//! (`version 1.5`): a warning counts such lines, and a file that has many is refused. Not covered: binary formats.

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
    /// [`DataError::FieldValue`] for a field that is not a number, for fewer numbers than the others have and where more than a third of the lines have one
    /// more before them, [`DataError::Empty`] if there is no vector, and those of [`TextFile::read`].
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let file = TextFile::read(path, "a file of word vectors")?;
        let head = file.lines.first().and_then(|line| head(line));
        let lines = || file.lines.iter().enumerate().skip(usize::from(head.is_some())).filter(|(_, line)| !line.trim_ascii().is_empty());
        let width = head.unwrap_or_else(|| most_frequent(lines().map(|(_, line)| numbers_at_the_end(line))));
        let mut vectors = HashMap::with_capacity(file.lines.len());
        let (mut count, mut doubtful) = (0, Vec::new());
        for (index, line) in lines() {
            let (word, vector) =
                divided(line, width).map_err(|Problem { word, value, expected }| file.wrong(index, word, &value, &expected))?;
            count += 1;
            if ends_in_a_fraction(word) {
                doubtful.push((index, word));
            }
            vectors.insert(word.to_owned(), vector);
        }
        if let Some(&(index, word)) = doubtful.first() {
            if 3 * doubtful.len() > count {
                let first = word.split_ascii_whitespace().next().unwrap_or_default();
                return Err(file.wrong(index, first, &format!("{} numbers", width + 1), &format!("{width} numbers, as most lines have")));
            }
            let (path, line) = (file.path.display(), index + 1);
            tracing::warn!(
                "{path}: words of {} lines end in a number, such as `{word}` in line {line}: vectors have {width}",
                doubtful.len()
            );
        }
        if vectors.is_empty() {
            return Err(DataError::empty(&file.path, "no vector", "give a file in the text format of GloVe"));
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

/// The width of the vectors, if the line is a first one of word2vec: the number of words and that of dimensions.
fn head(line: &str) -> Option<usize> {
    let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<usize>().ok());
    let (_, width) = (fields.next()??, fields.next()??);
    (fields.next().is_none() && width > 0).then_some(width)
}

fn number(field: &str) -> Option<f32> {
    field.parse::<f32>().ok().filter(|number| number.is_finite())
}

/// How many fields are numbers without a break to the end, the first field left out.
fn numbers_at_the_end(line: &str) -> usize {
    let fields = line.split_ascii_whitespace().count();
    line.split_ascii_whitespace().rev().take(fields.saturating_sub(1)).take_while(|field| number(field).is_some()).count()
}

/// The value that occurs most often, of several the first; 1 if there is none but 0.
fn most_frequent(values: impl Iterator<Item = usize>) -> usize {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for value in values.filter(|value| *value > 0) {
        match counts.iter_mut().find(|(known, _)| *known == value) {
            Some((_, count)) => *count += 1,
            None => counts.push((value, 1)),
        }
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map_or(1, |(value, _)| value)
}

/// What is wrong with a line.
struct Problem<'l> {
    word: &'l str,
    value: String,
    expected: String,
}

/// The word and the vector of a line.
fn divided(line: &str, width: usize) -> Result<(&str, Vec<f32>), Problem<'_>> {
    let mut rest = line.trim_ascii();
    let first = rest.split_ascii_whitespace().next().unwrap_or_default();
    let mut vector = Vec::with_capacity(width);
    for _ in 0..width {
        // A word stands before the numbers, be it one that looks like a number.
        let Some((before, field)) = rest.rsplit_once(|character: char| character.is_ascii_whitespace()) else {
            let (value, expected) = (format!("{} numbers", vector.len()), format!("a word and {width} numbers, as most lines have"));
            return Err(Problem { word: first, value, expected });
        };
        let Some(number) = number(field) else {
            return Err(Problem { word: first, value: field.to_owned(), expected: "a finite number".to_owned() });
        };
        vector.push(number);
        rest = before.trim_ascii_end();
    }
    vector.reverse();
    Ok((rest, vector))
}

/// Whether the last part of a word may be one more number of its vector: a part of a word may be a number ("route 66"), but seldom a fraction.
fn ends_in_a_fraction(word: &str) -> bool {
    word.rsplit_once(' ').is_some_and(|(_, last)| last.contains('.') && number(last).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::{folder, refused};

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
    fn a_word_may_have_spaces_and_look_like_a_number() {
        let lines =
            [". . . 0.3 0.4", "the 0.1 0.2", "at name@domain.com 0.5 0.6", "2 0.7 -0.8", "route 66 1e-3 9", "\u{a0} 1 2", "1.5 3 4"];
        for first in 0..lines.len() {
            let mut lines = lines;
            lines.rotate_left(first);
            let vectors = read(&(lines.join("\n") + "\n")).unwrap();
            for (word, vector) in [
                (". . .", [0.3, 0.4]),
                ("the", [0.1, 0.2]),
                ("at name@domain.com", [0.5, 0.6]),
                ("2", [0.7, -0.8]),
                ("route 66", [1e-3, 9.0]),
                ("\u{a0}", [1.0, 2.0]),
                ("1.5", [3.0, 4.0]),
            ] {
                assert_eq!(vectors.of(word), Some(&vector[..]), "{word}, {} first", lines[0]);
            }
            assert_eq!((vectors.of("."), vectors.of("at")), (None, None));
        }
    }

    #[test]
    fn a_word_may_end_in_a_fraction_where_other_lines_settle_the_width() {
        let text = "version 1.5 0.1 0.2\nthe 0.3 0.4\nof 0.5 -0.6\nversion 2.0 0.7 0.8\na 1 2\nand 3 4\n";
        for head in ["", "6 2\n"] {
            let vectors = read(&format!("{head}{text}")).unwrap();
            assert_eq!(vectors.of("version 1.5"), Some(&[0.1, 0.2][..]));
            assert_eq!((vectors.of("version 2.0"), vectors.of("version")), (Some(&[0.7, 0.8][..]), None));
        }
    }

    #[test]
    fn what_is_no_vector_is_refused_with_its_line() {
        for (text, parts) in [
            ("a 1 2\nb 1\n", &["line 2", "`b`", "2 numbers"][..]),
            ("a 1 x\n", &["line 1", "`a`", "`x`"]),
            ("a 1 inf\n", &["line 1", "`inf`"]),
            ("a 1 2\nb 1 x 2\nc 1 2\n", &["line 2", "`b`", "`x`", "finite"]),
            ("a 1 2\nb 0.5 1 2\nc 1 2\nd 0.7 3 4\n", &["line 2", "`b`", "3 numbers", "2 numbers"]),
            ("a 1 2\n1 2\nc 1 2\n", &["line 2", "`1`", "1 numbers", "a word and 2"]),
            ("2 3\na 1 2\nb 1 2\n", &["line 2", "`a`", "2 numbers", "a word and 3"]),
            ("a\n", &["line 1", "`a`", "0 numbers"]),
            ("\n", &["no vector"]),
        ] {
            refused(read(text), parts);
        }
    }
}
