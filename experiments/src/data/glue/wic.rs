//! WiC in the form of its authors (Pilehvar and Camacho-Collados 2019): `<set>.data.txt` and, line by line, `<set>.gold.txt`.
//!
//! A line of data is `word`, part of speech, the word's positions in the two sentences (`3-0`, counted in words from 0) and the sentences, separated
//! by tabs. A line of labels is `T` or `F`.

use super::super::files::TextFile;
use super::marked_spans::{marked, words};
use super::{DataError, Example, Label, Unlabelled};

const COLUMNS: [&str; 5] = ["word", "part of speech", "positions", "sentence1", "sentence2"];

/// The pairs of a file with labels from another.
pub(super) fn labelled(data: &TextFile, gold: &TextFile) -> Result<Vec<Example>, DataError> {
    let lines = data.lines.len().min(gold.lines.len());
    if data.lines.len() != gold.lines.len() {
        let (shorter, field) = if lines == data.lines.len() { (data, "word") } else { (gold, "label") };
        return Err(DataError::MissingField { path: shorter.path.clone(), line: lines + 1, field: field.to_string() });
    }
    let labelled = |index: usize| {
        let (first, second) = texts(data, index)?;
        let label = match gold.lines[index].as_str() {
            "F" => Label::Class(0),
            "T" => Label::Class(1),
            other => return Err(gold.wrong(index, "label", other, "T or F")),
        };
        Ok(Example::new(first, Some(second), label))
    };
    (0..lines).map(labelled).collect()
}

/// The pairs of a file; the index of each is that of its line, from 0.
pub(super) fn unlabelled(data: &TextFile) -> Result<Vec<Unlabelled>, DataError> {
    let unlabelled = |index: usize| texts(data, index).map(|(first, second)| Unlabelled::new(index, first, Some(second)));
    (0..data.lines.len()).map(unlabelled).collect()
}

fn texts(data: &TextFile, index: usize) -> Result<(String, String), DataError> {
    let fields: Vec<&str> = data.lines[index].split('\t').collect();
    let [word, _, positions, first, second] = fields[..] else {
        return Err(DataError::FieldCount {
            path: data.path.clone(),
            line: index + 1,
            found: fields.len(),
            expected: COLUMNS.len(),
            field: COLUMNS[fields.len().min(COLUMNS.len() - 1)].to_string(),
            columns: COLUMNS.map(str::to_string).to_vec(),
        });
    };
    let sentence = |position: &str, sentence: &str| {
        let span = words(sentence).get(position.parse::<usize>().ok()?)?.clone();
        Some(marked(sentence, &[(span, '*')]))
    };
    let marked = positions.split_once('-').and_then(|(one, other)| Some((sentence(one, first)?, sentence(other, second)?)));
    let (first, second) =
        marked.ok_or_else(|| data.wrong(index, "positions", positions, "the position of a word in each sentence (as in 3-0)"))?;
    Ok((format!("{word} : {first}"), second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> TextFile {
        TextFile::from_bytes(name.into(), name.to_string(), text.as_bytes()).unwrap()
    }

    const DATA: &str =
        "board\tN\t2-5\tRoom and board .\tHe nailed boards across the windows .\nbeat\tV\t0-1\tBeat eggs .\tWe beat them .\n";

    #[test]
    fn the_words_at_the_positions_are_marked() {
        let data = file("train.data.txt", &DATA.replace("2-5", "2-2"));
        let examples = labelled(&data, &file("train.gold.txt", "F\nT\n")).unwrap();
        let [first, second] = ["board : Room and * board * .", "He nailed * boards * across the windows ."];
        assert_eq!(examples[0], Example::new(first, Some(second.to_string()), Label::Class(0)));
        assert_eq!(examples[1], Example::new("beat : * Beat * eggs .", Some("We * beat * them .".to_string()), Label::Class(1)));
        let test = unlabelled(&data).unwrap();
        assert_eq!(test[1], Unlabelled::new(1, "beat : * Beat * eggs .", Some("We * beat * them .".to_string())));
    }

    #[test]
    fn a_wrong_line_is_an_error_with_file_line_and_field() {
        let good = DATA.replace("2-5", "2-2");
        for (data, gold, parts) in [
            (good.replace("\tV\t", "\t"), "F\nT\n", ["train.data.txt`, line 2", "`sentence2`"]),
            (good.replace("We beat", "We\tbeat"), "F\nT\n", ["train.data.txt`, line 2", "6 tab-separated"]),
            (good.replace("2-2", "2-7"), "F\nT\n", ["train.data.txt`, line 1, field `positions`", "`2-7`"]),
            (good.replace("2-2", "-1-2"), "F\nT\n", ["train.data.txt`, line 1, field `positions`", "`-1-2`"]),
            (good.replace("2-2", "2"), "F\nT\n", ["train.data.txt`, line 1, field `positions`", "`2`"]),
            (good.clone(), "F\nT \n", ["train.gold.txt`, line 2, field `label`", "`T ` is not T or F"]),
            (good.clone(), "F\n", ["train.gold.txt`, line 2", "no field `label`"]),
            (good.clone(), "F\nT\nT\n", ["train.data.txt`, line 3", "no field `word`"]),
        ] {
            let message = labelled(&file("train.data.txt", &data), &file("train.gold.txt", gold)).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
