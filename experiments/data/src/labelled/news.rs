//! AG News and the other sets of Zhang, Zhao and LeCun 2015 as comma-separated values.
//!
//! A record stands on one line: the number of the class, from 1, and one or more texts (title and description for AG News), quoted, with `""` for a quote.
//! `classes.txt` names the classes in order, one on each line. The texts of a record are joined by a blank. A header `Class Index,...`, which some copies have,
//! is passed over. A line end within a text becomes a blank. AG News writes it as a backslash, which also marks the sign behind it; each becomes a blank there.
//! The other sets (Yelp, Amazon, Yahoo, DBpedia, Sogou) write it as `\n`, a quotation mark as `\"` and a backslash as `\\`; another backslash is itself.
//!
//! The part of AG News has a description, a tab and the name of a class on each line, quoted in the same way where it contains quotes. It has no titles, so
//! those of the test set are left out for it. Results then are not comparable with those of the full set.

use std::path::Path;

use csv::StringRecord;

use super::{DEVELOPMENT_NAMES, Folder, LabelledText, Parts, names};
use crate::DataError;
use crate::files::{self, TextFile};

/// Reads the set whose training file is `train`.
pub(super) fn read(folder: &Folder, train: &Path) -> Result<Parts, DataError> {
    let classes_file = class_file(folder)?;
    let classes = class_names(&classes_file)?;
    let train_file = TextFile::read(train, "labelled texts")?;
    let dev_file = folder.optional(&names(&DEVELOPMENT_NAMES, &["csv"]))?;
    let test_file = test_file(folder)?;
    let escapes = Escapes::of(&classes);
    let texts = |file: &TextFile| numbered(file, &classes, 1, escapes);
    let files = [Some(&train_file), dev_file.as_ref(), Some(&test_file), Some(&classes_file)];
    let read: Vec<&TextFile> = files.into_iter().flatten().collect();
    Ok(Parts {
        name: set_name(folder, &classes),
        train: texts(&train_file)?,
        dev: dev_file.as_ref().map(texts).transpose()?,
        test: Some(texts(&test_file)?),
        source: read.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(", "),
        sha256: files::combined_sha256(read),
        classes,
    })
}

/// Reads the part of AG News whose training file is `train`.
pub(super) fn read_descriptions(folder: &Folder, train: &Path) -> Result<Parts, DataError> {
    let classes_file = class_file(folder)?;
    let classes = class_names(&classes_file)?;
    let train_file = TextFile::read(train, "labelled texts")?;
    let test_file = test_file(folder)?;
    let described = |(index, record): (usize, StringRecord)| {
        let wrong = |value: &str| train_file.wrong(index, "class", value, &format!("one of {}", classes.join(", ")));
        let class = classes.iter().position(|class| *class == record[1]).ok_or_else(|| wrong(&record[1]))?;
        labelled(&train_file, index, [&record[0]], class, Escapes::Backslash)
    };
    let columns = ["description", "class"].map(str::to_owned);
    Ok(Parts {
        name: format!("{}, part, descriptions only", set_name(folder, &classes)),
        train: records(&train_file, b'\t', Some(&columns))?.into_iter().map(described).collect::<Result<_, _>>()?,
        dev: None,
        test: Some(numbered(&test_file, &classes, 2, Escapes::Backslash)?),
        source: format!("{} and {}, of which titles are left out", train_file.name, test_file.name),
        sha256: files::combined_sha256([&train_file, &test_file, &classes_file]),
        classes,
    })
}

/// How line ends and quotation marks within texts are written.
#[derive(Clone, Copy)]
enum Escapes {
    /// As in AG News, where `\networks` is the word `networks` on a new line.
    Backslash,
    /// As in the other sets, where `\n` is a line end.
    BackslashN,
}

impl Escapes {
    /// Those of the set with these classes.
    fn of(classes: &[String]) -> Self {
        let is_ag_news =
            classes.len() == 4 && ["world", "sports", "business"].iter().zip(classes).all(|(own, class)| class.eq_ignore_ascii_case(own));
        if is_ag_news { Self::Backslash } else { Self::BackslashN }
    }

    /// A text with blanks for line ends.
    fn resolved(self, text: &str) -> String {
        if let Self::Backslash = self {
            return text.replace('\\', " ");
        }
        let mut resolved = String::with_capacity(text.len());
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let meant = match (character, characters.peek()) {
                ('\\', Some('n')) => Some(' '),
                ('\\', Some(&sign @ ('"' | '\\'))) => Some(sign),
                _ => None,
            };
            if meant.is_some() {
                characters.next();
            }
            resolved.push(meant.unwrap_or(character));
        }
        resolved
    }
}

fn class_file(folder: &Folder) -> Result<TextFile, DataError> {
    folder.required("the names of the classes", &["classes.txt".to_owned()])
}

fn test_file(folder: &Folder) -> Result<TextFile, DataError> {
    folder.required("the test set", &["test.csv".to_owned()])
}

fn set_name(folder: &Folder, classes: &[String]) -> String {
    if classes == ["World", "Sports", "Business", "Sci/Tech"] { "AG News".to_owned() } else { folder.name() }
}

fn class_names(file: &TextFile) -> Result<Vec<String>, DataError> {
    let class = |(index, line): (usize, &String)| match line.trim() {
        "" => Err(file.wrong(index, "class", line, "the name of a class")),
        name => Ok(name.to_owned()),
    };
    file.lines.iter().enumerate().map(class).collect()
}

/// The texts of a file with the class first, of whose fields those before `first_text` are left out.
fn numbered(file: &TextFile, classes: &[String], first_text: usize, escapes: Escapes) -> Result<Vec<LabelledText>, DataError> {
    let mut records = records(file, b',', None)?;
    if records.first().is_some_and(|(_, record)| record[0].eq_ignore_ascii_case("class index")) {
        records.remove(0);
    }
    let text = |(index, record): (usize, StringRecord)| {
        let number = record[0].parse().ok().filter(|number| (1..=classes.len()).contains(number));
        let wrong = || file.wrong(index, "class", &record[0], &format!("a number from 1 to {}, the lines of classes.txt", classes.len()));
        let class: usize = number.ok_or_else(wrong)?;
        labelled(file, index, record.iter().skip(first_text), class - 1, escapes)
    };
    records.into_iter().map(text).collect()
}

fn labelled<'a>(
    file: &TextFile,
    index: usize,
    texts: impl IntoIterator<Item = &'a str>,
    class: usize,
    escapes: Escapes,
) -> Result<LabelledText, DataError> {
    let text = escapes.resolved(&texts.into_iter().collect::<Vec<_>>().join(" ")).trim().to_owned();
    if text.is_empty() {
        return Err(file.wrong(index, "text", "", "a text"));
    }
    Ok(LabelledText { text, class })
}

/// The records of a file with the index of their line; all have the given columns, or else as many as the first one, at least two.
fn records(file: &TextFile, delimiter: u8, columns: Option<&[String]>) -> Result<Vec<(usize, StringRecord)>, DataError> {
    // The reader passes over empty lines and takes a quotation without end to the end of the file. Checked first, neither occurs.
    for (index, line) in file.lines.iter().enumerate() {
        let expected = match line.matches('"').count() {
            _ if line.is_empty() => "a record",
            quotes if quotes % 2 == 1 => "a record in which each quotation ends on its line",
            _ => continue,
        };
        return Err(file.wrong(index, "record", line, expected));
    }
    let text = file.lines.join("\n");
    let reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(text.as_bytes());
    let mut records: Vec<(usize, StringRecord)> = Vec::with_capacity(file.lines.len());
    for (index, record) in reader.into_records().enumerate() {
        let unreadable = |value: &str| file.wrong(index, "record", value, "a record on a line of its own");
        let record = record.map_err(|cause| unreadable(&cause.to_string()))?;
        // A quote inside an unquoted field is no quotation, so that the next one may begin a record of several lines.
        if record.iter().any(|field| field.contains('\n')) {
            return Err(unreadable(&file.lines[index]));
        }
        let expected = columns.map_or_else(|| records.first().map_or(record.len(), |(_, first)| first.len()), <[String]>::len).max(2);
        if record.len() != expected {
            let numbered = || std::iter::once("class".to_owned()).chain((1..expected).map(|n| format!("text {n}"))).collect();
            let names: Vec<String> = columns.map_or_else(numbered, <[String]>::to_vec);
            let expected = format!("{expected} fields ({})", names.join(", "));
            return Err(file.wrong(index, "record", &format!("{} fields", record.len()), &expected));
        }
        records.push((index, record));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{message, read};
    use super::*;
    use crate::text_pairs::tests::survives;

    const CLASSES: &[u8] = b"World\nSports\nBusiness\nSci/Tech\n";
    const CSV: &str =
        "\"3\",\"Fears for T N pension\",\"Unions say \"\"no\"\", and\\more.\"\n\"4\",\"The Race, is On\",\"SPACE.com - \\$10 prize\"\n";

    fn text(text: &str, class: usize) -> LabelledText {
        LabelledText { text: text.to_owned(), class }
    }

    #[test]
    fn title_and_description_are_one_text_without_quotes_and_backslashes() {
        let data = read(&[("train.csv.gz", CSV.repeat(10).as_bytes()), ("test.csv", CSV.as_bytes()), ("classes.txt", CLASSES)]).unwrap();
        assert_eq!(data.name, "AG News");
        assert_eq!(data.classes[3], "Sci/Tech");
        let first = text("Fears for T N pension Unions say \"no\", and more.", 2);
        assert_eq!(data.test, [first, text("The Race, is On SPACE.com -  $10 prize", 3)]);
        assert_eq!([data.train.len(), data.dev.len()], [18, 2]);
    }

    #[test]
    fn a_backslash_and_n_is_a_line_end_but_in_ag_news() {
        let csv = "\"1\",\"nice place\\nloved it, \\\"\"really\\\"\".\\n\\nC:\\\\new \\o/ \\\"\n".repeat(10);
        let of = |classes: &[u8]| {
            let data = read(&[("train.csv", csv.as_bytes()), ("test.csv", csv.as_bytes()), ("classes.txt", classes)]).unwrap();
            assert!(data.train.iter().all(|text| *text == data.test[0]));
            data.test[0].text.clone()
        };
        for classes in [&b"bad\ngood\n"[..], b"1\n2\n3\n4\n5\n", b"World\nSports\nBusiness\n", b"Society & Culture\nHealth\n"] {
            assert_eq!(of(classes), "nice place loved it, \"really\".  C:\\new \\o/ \\");
        }
        assert_eq!(of(CLASSES), "nice place nloved it,  \"really \". n nC:  new  o/");
    }

    #[test]
    fn a_development_file_and_a_header_are_understood() {
        let csv = format!("Class Index,Title,Description\n{CSV}");
        let files = [("train.csv", csv.as_bytes()), ("dev.csv", CSV.as_bytes()), ("test.csv", CSV.as_bytes()), ("classes.txt", CLASSES)];
        let data = read(&files).unwrap();
        assert_eq!((data.train.len(), data.dev), (2, data.test));
    }

    #[test]
    fn the_part_of_ag_news_is_tested_without_titles() {
        let train = "Oil rose.\tBusiness\n\"He said \"\"no\"\".\"\tWorld\n".repeat(5);
        let part = "train_subset_description_only.tsv.gz";
        let data = read(&[(part, train.as_bytes()), ("test.csv", CSV.as_bytes()), ("classes.txt", CLASSES)]).unwrap();
        assert_eq!(data.test[1], text("SPACE.com -  $10 prize", 3));
        assert!(data.train.contains(&text("He said \"no\".", 0)) && data.train.contains(&text("Oil rose.", 2)));
        assert!(data.split.contains(part) && data.split.contains("titles are left out"), "{}", data.split);
        let wrong = message(&[(part, b"a\tWorld\nb\tSport\n"), ("test.csv", CSV.as_bytes()), ("classes.txt", CLASSES)]);
        assert!(wrong.contains("line 2, field `class`: `Sport` is not one of World, Sports"), "{wrong}");
    }

    #[test]
    fn a_wrong_record_is_refused_with_its_line() {
        for (row, parts) in [
            ("\"5\",\"a\",\"b\"", ["field `class`: `5`", "a number from 1 to 4"]),
            ("\"0\",\"a\",\"b\"", ["field `class`: `0`", "a number from 1 to 4"]),
            ("\"1\",\"a\"", ["2 fields", "3 fields (class, text 1, text 2)"]),
            ("\"1\",\"a\",\"b\",\"c\"", ["4 fields", "3 fields"]),
            ("\"1\",\"a\",\"b", ["field `record`", "quotation ends on its line"]),
            ("1,a\"b,\"c", ["field `record`", "on a line of its own"]),
            ("", ["field `record`", "a record"]),
            ("\"1\",\" \",\"\\\"", ["field `text`", "a text"]),
        ] {
            let csv = format!("{CSV}{row}\n{CSV}");
            let files = [("train.csv", csv.as_bytes()), ("test.csv", CSV.as_bytes()), ("classes.txt", CLASSES)];
            let error = message(&files);
            assert!(error.contains("train.csv`, line 3") && parts.iter().all(|part| error.contains(part)), "{row}: {error}");
        }
        let files: [(&str, &[u8]); 3] = [("train.csv", b"1\n"), ("test.csv", CSV.as_bytes()), ("classes.txt", CLASSES)];
        assert!(message(&files).contains("`1 fields` is not 2 fields"), "{}", message(&files));
        assert!(message(&files[..2]).contains("classes.txt"));
        assert!(message(&[files[0], files[2]]).contains("test.csv"));
    }

    #[test]
    fn damaged_records_are_read_within_bounds_or_refused() {
        let classes = ["a", "b", "c", "d"].map(str::to_owned);
        for escapes in [Escapes::Backslash, Escapes::BackslashN] {
            survives(&CSV.repeat(4), 1, |file| {
                let texts = numbered(file, &classes, 1, escapes)?;
                assert!(texts.iter().all(|text| text.class < 4));
                Ok(texts.iter().map(|text| text.text.len()).sum())
            });
        }
    }
}
