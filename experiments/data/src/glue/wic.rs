//! WiC in the form of its authors (Pilehvar and Camacho-Collados 2019): `<set>.data.txt` and, line by line, `<set>.gold.txt`.
//!
//! There is also a form that prompts of language models are made of, `<set>_text.jsonl`: a line is an object with `label` (0 or 1) and `text`, `Word: W. Sentence 1:
//! S Sentence 2: T`. It does not say where the word stands: the word of each sentence is marked that is W, or begins with the most letters of W. In the development set
//! of the usual form this finds all 1,276 marks. Where no word begins as W does (`be`, `is`), none is marked.
//!
//! A line of data is `word`, part of speech, the word's positions in the two sentences (`3-0`, counted in words from 0) and the sentences, separated
//! by tabs. A line of labels is `T` or `F`.

use std::cmp::Reverse;
use std::ops::Range;

use super::super::files::TextFile;
use super::marked_spans::{marked, words};
use super::{DataError, Example, GlueTask, Label, Unlabelled};
use crate::json::{Field, object};

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

/// The pairs of a file of prompts.
pub(super) fn prompts(file: &TextFile) -> Result<Vec<Example>, DataError> {
    let example = |index: usize| {
        let object = object(file, index)?;
        let line = Field::of_line(file, index, &object);
        let (field, label) = (line.key("text")?, line.key("label")?);
        let parts = field.text()?.strip_prefix("Word: ").and_then(|text| {
            let (word, rest) = text.split_once(". Sentence 1: ")?;
            let (first, second) = rest.split_once(" Sentence 2: ")?;
            Some((word, first, second))
        });
        let (word, first, second) = parts.ok_or_else(|| field.wrong("of the form `Word: W. Sentence 1: S Sentence 2: T`"))?;
        let label = match label.number() {
            Ok(class @ 0..=1) => Label::Class(class),
            Ok(_) => return Err(label.wrong("0 or 1")),
            Err(_) => label.label(GlueTask::Wic)?,
        };
        let [first, second] = [first, second].map(|sentence| match most_alike(word, sentence) {
            Some(span) => marked(sentence, &[(span, '*')]),
            None => sentence.to_string(),
        });
        Ok(Example::new(format!("{word} : {first}"), Some(second), label))
    };
    (0..file.lines.len()).map(example).collect()
}

/// The word of a sentence that is `word`, or begins with the most of its letters; of several the one whose length is nearest, and of these the first.
fn most_alike(word: &str, sentence: &str) -> Option<Range<usize>> {
    let word = word.to_lowercase();
    let within = |span: Range<usize>| {
        let text = &sentence[span.clone()];
        let inner = text.trim_start_matches(|sign: char| !sign.is_alphanumeric());
        let start = span.start + text.len() - inner.len();
        start..start + inner.trim_end_matches(|sign: char| !sign.is_alphanumeric()).len()
    };
    let likeness = |span: &Range<usize>| {
        let text = sentence[span.clone()].to_lowercase();
        let common = text.chars().zip(word.chars()).take_while(|(one, other)| one == other).count();
        (text == word, common, Reverse(text.chars().count().abs_diff(word.chars().count())))
    };
    let spans = words(sentence).into_iter().map(within).filter(|span| likeness(span).1 > 0);
    // The first of those that are as much alike.
    spans.rev().max_by_key(likeness)
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
    use crate::files::tests::refused;

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
    fn the_word_of_a_prompt_that_is_most_alike_is_marked() {
        for (word, sentence, expected) in [
            ("board", "Room and board .", "Room and * board * ."),
            ("board", "He nailed Boards across the windows.", "He nailed * Boards * across the windows."),
            ("begin", "The first tourists began to be bored .", "The first tourists * began * to be bored ."),
            ("run", "We ran a ruin, runs and all .", "We ran a ruin, * runs * and all ."),
            ("class", "In class a class.", "In * class * a class."),
            ("be", "3 times 5 is fifteen .", "3 times 5 is fifteen ."),
        ] {
            let line = serde_json::json!({"label": 0, "text": format!("Word: {word}. Sentence 1: {sentence} Sentence 2: None .")});
            let found = prompts(&file("train_text.jsonl", &line.to_string())).unwrap().remove(0);
            assert_eq!((&*found.first, found.label), (&*format!("{word} : {expected}"), Label::Class(0)));
        }
        for (line, part) in [
            (r#"{"label": 2, "text": "Word: a. Sentence 1: b Sentence 2: c"}"#, "`2` is not 0 or 1"),
            (r#"{"label": 1, "text": "Word: a. Sentence 1: b"}"#, "Word: W. Sentence 1: S Sentence 2: T"),
            (r#"{"text": "Word: a. Sentence 1: b Sentence 2: c"}"#, "no field `label`"),
        ] {
            refused(prompts(&file("train_text.jsonl", line)), &["train_text.jsonl`, line 1", part]);
        }
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
            refused(labelled(&file("train.data.txt", &data), &file("train.gold.txt", gold)), &parts);
        }
    }
}
