//! The tables of GLUE.
//!
//! Fields are separated by one tab and never quoted: a `"` is an ordinary character. The first line names the columns, but for CoLA's training and
//! development file, which have no header.

use super::super::files::TextFile;
use super::{DataError, Example, GlueTask, Label, Target, Unlabelled};

/// The labelled rows, and how many were left out for lack of a gold label.
pub(super) fn labelled(file: &TextFile, task: GlueTask) -> Result<(Vec<Example>, usize), DataError> {
    labelled_rows(Table::new(file, task, implied_columns(task)))
}

/// The rows of the labelled test file of the task's original distribution.
pub(super) fn original_test(file: &TextFile, task: GlueTask) -> Result<Vec<Example>, DataError> {
    if task != GlueTask::StsB {
        return labelled_rows(Table::new(file, task, None)).map(|(examples, _)| examples);
    }
    const COLUMNS: [&str; 7] = ["genre", "filename", "year", "old_index", "score", "sentence1", "sentence2"];
    // Some rows say behind the sentences where these are from.
    let without_sources = |line: &String| line.split('\t').take(COLUMNS.len()).collect::<Vec<_>>().join("\t");
    let file = TextFile { lines: file.lines.iter().map(without_sources).collect(), ..file.clone() };
    labelled_rows(Table::new(&file, task, Some(&COLUMNS))).map(|(examples, _)| examples)
}

fn labelled_rows(table: Table) -> Result<(Vec<Example>, usize), DataError> {
    let task = table.task;
    let label_column = table.column(task.label_column())?;
    let sentence_columns = table.sentence_columns()?;
    let mut examples = Vec::new();
    let mut skipped = 0;
    for row in table.rows()? {
        if task == GlueTask::Mnli && row.fields[label_column] == "-" {
            skipped += 1;
            continue;
        }
        let (first, second) = row.sentences(&sentence_columns);
        examples.push(Example::new(first, second, table.label(&row, label_column)?));
    }
    Ok((examples, skipped))
}

/// The rows of a test file.
pub(super) fn unlabelled(file: &TextFile, task: GlueTask) -> Result<Vec<Unlabelled>, DataError> {
    let table = Table::new(file, task, None);
    let index_column = table.column(index_column(task))?;
    let sentence_columns = table.sentence_columns()?;
    let mut examples = Vec::new();
    for row in table.rows()? {
        let index = row.fields[index_column];
        let index = index.parse().map_err(|_| table.wrong(&row, index_column, "a whole number"))?;
        let (first, second) = row.sentences(&sentence_columns);
        examples.push(Unlabelled::new(index, first, second));
    }
    Ok(examples)
}

fn index_column(task: GlueTask) -> &'static str {
    if task == GlueTask::Qqp { "id" } else { "index" }
}

/// The columns of labelled files that have no header.
fn implied_columns(task: GlueTask) -> Option<&'static [&'static str]> {
    (task == GlueTask::Cola).then_some(&["source", "label", "star", "sentence"])
}

struct Table<'a> {
    task: GlueTask,
    file: &'a TextFile,
    columns: Vec<String>,
    first_row: usize,
}

struct Row<'a> {
    line: usize,
    fields: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// The table of a file; its first line names the columns unless they are implied.
    fn new(file: &'a TextFile, task: GlueTask, implied_columns: Option<&[&str]>) -> Self {
        let columns = match implied_columns {
            Some(columns) => columns.iter().map(|column| column.to_string()).collect(),
            None => file.lines.first().map(|header| header.split('\t').map(str::to_string).collect()).unwrap_or_default(),
        };
        Self { task, file, columns, first_row: usize::from(implied_columns.is_none()) }
    }

    fn column(&self, name: &str) -> Result<usize, DataError> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| DataError::MissingColumn {
            path: self.file.path.clone(),
            task: self.task,
            column: name.to_string(),
            found: self.columns.clone(),
        })
    }

    fn sentence_columns(&self) -> Result<Vec<usize>, DataError> {
        self.task.sentence_columns().iter().map(|name| self.column(name)).collect()
    }

    fn rows(&self) -> Result<Vec<Row<'a>>, DataError> {
        let expected = self.columns.len();
        let row = |(line, text): (usize, &'_ String)| -> Result<usize, DataError> {
            let found = text.split('\t').count();
            if found == expected {
                return Ok(line);
            }
            let field = self.columns[found.min(expected - 1)].clone();
            Err(DataError::FieldCount { path: self.file.path.clone(), line, found, expected, field, columns: self.columns.clone() })
        };
        let numbered = (1..).zip(&self.file.lines).skip(self.first_row);
        numbered.map(|(line, text)| row((line, text)).map(|line| Row { line, fields: text.split('\t').collect() })).collect()
    }

    fn label(&self, row: &Row, column: usize) -> Result<Label, DataError> {
        let value = row.fields[column];
        match self.task.target() {
            Target::Classes(_) => {
                let values = self.task.label_values();
                let class = values.iter().position(|known| *known == value);
                class.map(Label::Class).ok_or_else(|| self.wrong(row, column, &format!("a label of {} ({})", self.task, values.join(", "))))
            }
            Target::Range(low, high) => match value.parse::<f32>() {
                Ok(score) if (low..=high).contains(&score) => Ok(Label::Score(score)),
                _ => Err(self.wrong(row, column, &format!("a number from {low} to {high}"))),
            },
        }
    }

    fn wrong(&self, row: &Row, column: usize, expected: &str) -> DataError {
        DataError::FieldValue {
            path: self.file.path.clone(),
            line: row.line,
            field: self.columns[column].clone(),
            value: row.fields[column].to_string(),
            expected: expected.to_string(),
        }
    }
}

impl<'a> Row<'a> {
    fn sentences(&self, columns: &[usize]) -> (&'a str, Option<String>) {
        (self.fields[columns[0]], columns.get(1).map(|&column| self.fields[column].to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::super::files::tests::{folder, refused};
    use super::super::GlueData;
    use super::*;

    fn one(first: &str, label: Label) -> Example {
        Example::new(first, None, label)
    }

    fn two(first: &str, second: &str, label: Label) -> Example {
        Example::new(first, Some(second.to_string()), label)
    }

    fn read(task: GlueTask, train: &str, dev: &str) -> Result<GlueData, DataError> {
        let dir = folder(&[("train.tsv", train.as_bytes()), ("dev.tsv", dev.as_bytes())]);
        GlueData::read(dir.path(), task)
    }

    #[test]
    fn cola_has_no_header_but_in_its_test_file() {
        let dir = folder(&[
            ("CoLA/train.tsv.gz", b"gj04\t1\t\tHe \"left.\ngj04\t0\t*\tHe leave\"s."),
            ("CoLA/dev.tsv", b"x\t1\t\tFine.\n"),
            ("CoLA/test.tsv", b"index\tsentence\n7\tWhat?\n"),
        ]);
        let data = GlueData::read(dir.path(), GlueTask::Cola).unwrap();
        assert_eq!(data.train, [one("He \"left.", Label::Class(1)), one("He leave\"s.", Label::Class(0))]);
        assert_eq!(data.dev, [("dev".to_string(), vec![one("Fine.", Label::Class(1))])]);
        let test = Unlabelled::new(7, "What?", None);
        assert_eq!(data.test, [("test".to_string(), vec![test])]);
        assert_eq!(GlueData::read(&dir.path().join("CoLA"), GlueTask::Cola).unwrap(), data, "the task folder itself is as good");
    }

    #[test]
    fn pair_tasks_find_their_columns_by_the_header() {
        let cases: [(GlueTask, &str, Example); 7] = [
            (GlueTask::Mrpc, "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta \"\tb\n", two("a \"", "b", Label::Class(1))),
            (GlueTask::Rte, "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n", two("a", "b", Label::Class(1))),
            (GlueTask::Qnli, "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n", two("a", "b", Label::Class(0))),
            (GlueTask::Wnli, "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n", two("a", "b", Label::Class(1))),
            (GlueTask::Qqp, "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n5\t1\t2\ta\tb\t0\n", two("a", "b", Label::Class(0))),
            (GlueTask::StsB, "index\tgenre\tsentence1\tsentence2\tscore\n0\tg\ta\tb\t3.800\n", two("a", "b", Label::Score(3.8))),
            (GlueTask::Sst2, "sentence\tlabel\na\t0\n", one("a", Label::Class(0))),
        ];
        for (task, file, example) in cases {
            let data = read(task, file, file).unwrap();
            assert_eq!(data.train, [example], "{task}");
        }
    }

    #[test]
    fn mnli_has_two_development_sets_and_skips_rows_without_gold_label() {
        let header = "index\tsentence1\tsentence2\tlabel1\tgold_label\n";
        let train = format!("{header}0\ta\tb\tneutral\tneutral\n");
        let matched = format!("{header}0\ta\tb\tneutral\t-\n1\tc\td\tneutral\tcontradiction\n2\te\tf\tneutral\t-\n");
        let dir = folder(&[
            ("train.tsv", train.as_bytes()),
            ("dev_matched.tsv", matched.as_bytes()),
            ("dev_mismatched.tsv", train.as_bytes()),
            ("test_mismatched.tsv", b"index\tsentence1\tsentence2\n3\tx\ty\n"),
        ]);
        let data = GlueData::read(dir.path(), GlueTask::Mnli).unwrap();
        assert_eq!(data.dev[0], ("dev_matched".to_string(), vec![two("c", "d", Label::Class(2))]));
        assert_eq!(data.dev[1], ("dev_mismatched".to_string(), vec![two("a", "b", Label::Class(1))]));
        assert_eq!(data.without_gold_label, [("dev_matched".to_string(), 2)]);
        assert_eq!(data.test[0].0, "test_mismatched");
        assert_eq!(data.test[0].1[0].second.as_deref(), Some("y"));
    }

    #[test]
    fn a_row_with_a_wrong_number_of_fields_is_an_error_with_file_line_and_field() {
        let good = "sentence\tlabel\na\t0\n";
        for (row, found, what) in [("b", 1, "missing"), ("b\t1\t2", 3, "fits"), ("", 1, "missing")] {
            let error = read(GlueTask::Sst2, &format!("{good}{row}\n"), good).unwrap_err();
            assert!(matches!(error, DataError::FieldCount { line: 3, found: count, .. } if count == found), "{error}");
            let message = error.to_string();
            assert!(message.contains("train.tsv`, line 3") && message.contains("`label`") && message.contains(what), "{message}");
        }
    }

    #[test]
    fn an_unknown_label_is_an_error_with_file_line_field_and_value() {
        let rte = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n";
        let message = read(GlueTask::Rte, rte, &format!("{rte}1\ta\tb\tmaybe\n")).unwrap_err().to_string();
        for part in ["dev.tsv`, line 3", "field `label`", "`maybe`", "entailment, not_entailment"] {
            assert!(message.contains(part), "{message}");
        }
        // The label `-` is known in MNLI only.
        assert!(matches!(read(GlueTask::Rte, &format!("{rte}1\ta\tb\t-\n"), rte), Err(DataError::FieldValue { line: 3, .. })));
        // A line number counts from the file's start where there is no header, too.
        assert!(matches!(read(GlueTask::Cola, "x\t1\t\ta\nx\t2\t\tb\n", "x\t1\t\ta\n"), Err(DataError::FieldValue { line: 2, .. })));
    }

    #[test]
    fn a_score_that_is_no_number_in_range_is_an_error() {
        let header = "sentence1\tsentence2\tscore\n";
        for value in ["many", "5.1", "-0.1", "NaN", "inf", ""] {
            let error = read(GlueTask::StsB, &format!("{header}a\tb\t{value}\n"), header).unwrap_err();
            assert!(matches!(&error, DataError::FieldValue { line: 2, field, .. } if field == "score"), "{value}: {error}");
        }
    }

    #[test]
    fn a_test_index_that_is_no_number_is_an_error() {
        let good = "sentence\tlabel\na\t0\n";
        let dir = folder(&[("train.tsv", good.as_bytes()), ("dev.tsv", good.as_bytes()), ("test.tsv", b"index\tsentence\nx\ta\n")]);
        refused(GlueData::read(dir.path(), GlueTask::Sst2), &["test.tsv`, line 2, field `index`: `x`"]);
    }

    #[test]
    fn a_missing_column_file_or_folder_is_an_error_that_says_what_was_expected() {
        refused(read(GlueTask::Sst2, "text\tlabel\na\t0\n", ""), &["no column `sentence` (it has: text, label)"]);
        let dir = folder(&[("train.tsv", b"sentence\tlabel\na\t0\n")]);
        refused(GlueData::read(dir.path(), GlueTask::Sst2), &["no file for the dev set of SST-2"]);
        assert!(matches!(GlueData::read(Path::new("nowhere"), GlueTask::Rte), Err(DataError::NotFound { .. })));
    }

    #[test]
    fn a_file_in_two_forms_or_without_examples_is_an_error() {
        let good = b"sentence\tlabel\na\t0\n";
        let dir = folder(&[("train.tsv", good), ("train.tsv.gz", good), ("dev.tsv", good)]);
        assert!(matches!(GlueData::read(dir.path(), GlueTask::Sst2), Err(DataError::Ambiguous { .. })));
        refused(read(GlueTask::Sst2, "sentence\tlabel\n", ""), &["train.tsv` holds no labelled example"]);
    }
}
