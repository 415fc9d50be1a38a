//! The GLUE benchmark (Wang et al. 2019) in the TSV files of its download script.
//!
//! A task is a folder with `train.tsv`, one or more development files and unlabelled test files. Fields are separated by one tab and never quoted: a `"`
//! is an ordinary character. The first line names the columns, but for CoLA's training and development file, which have no header. Covered: the nine
//! tasks and what must be known to train on them ([`GlueTask`]). Not covered: the diagnostic set (no labels) and the labelled originals that some
//! distributions add.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::DataError;
use super::files::{self, TextFile};

/// A task of the benchmark; written and parsed by its official name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GlueTask {
    /// Linguistic acceptability of one sentence.
    #[serde(rename = "CoLA")]
    Cola,
    /// Sentiment of one sentence.
    #[serde(rename = "SST-2")]
    Sst2,
    /// Whether two sentences are paraphrases.
    #[serde(rename = "MRPC")]
    Mrpc,
    /// Whether the first sentence entails the second.
    #[serde(rename = "RTE")]
    Rte,
    /// Similarity of two sentences from 0 to 5.
    #[serde(rename = "STS-B")]
    StsB,
    /// Whether a sentence with its pronoun replaced follows.
    #[serde(rename = "WNLI")]
    Wnli,
    /// Whether a sentence answers a question.
    #[serde(rename = "QNLI")]
    Qnli,
    /// Whether two questions are duplicates.
    #[serde(rename = "QQP")]
    Qqp,
    /// Entailment, neutral or contradiction between two sentences.
    #[serde(rename = "MNLI")]
    Mnli,
}

/// What a task asks a model to predict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// One of this many classes.
    Classes(usize),
    /// A score between the two bounds, both included.
    Range(f32, f32),
}

impl GlueTask {
    /// All tasks.
    pub const ALL: [Self; 9] = [Self::Cola, Self::Sst2, Self::Mrpc, Self::Rte, Self::StsB, Self::Wnli, Self::Qnli, Self::Qqp, Self::Mnli];

    /// Official name, which is also the name of the task's folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cola => "CoLA",
            Self::Sst2 => "SST-2",
            Self::Mrpc => "MRPC",
            Self::Rte => "RTE",
            Self::StsB => "STS-B",
            Self::Wnli => "WNLI",
            Self::Qnli => "QNLI",
            Self::Qqp => "QQP",
            Self::Mnli => "MNLI",
        }
    }

    /// The column or the two columns with the sentences.
    pub fn sentence_columns(self) -> &'static [&'static str] {
        match self {
            Self::Cola | Self::Sst2 => &["sentence"],
            Self::Mrpc => &["#1 String", "#2 String"],
            Self::Qnli => &["question", "sentence"],
            Self::Qqp => &["question1", "question2"],
            Self::Rte | Self::StsB | Self::Wnli | Self::Mnli => &["sentence1", "sentence2"],
        }
    }

    /// The column with the label.
    pub fn label_column(self) -> &'static str {
        match self {
            Self::Mrpc => "Quality",
            Self::StsB => "score",
            Self::Qqp => "is_duplicate",
            Self::Mnli => "gold_label",
            Self::Cola | Self::Sst2 | Self::Rte | Self::Wnli | Self::Qnli => "label",
        }
    }

    /// The labels as the files write them, in the order of the class numbers; none for a regression task.
    pub fn label_values(self) -> &'static [&'static str] {
        match self {
            Self::Cola | Self::Sst2 | Self::Mrpc | Self::Wnli | Self::Qqp => &["0", "1"],
            Self::Rte | Self::Qnli => &["entailment", "not_entailment"],
            Self::Mnli => &["entailment", "neutral", "contradiction"],
            Self::StsB => &[],
        }
    }

    /// What the classes mean, in the order of the class numbers; none for a regression task.
    pub fn label_names(self) -> &'static [&'static str] {
        match self {
            Self::Cola => &["unacceptable", "acceptable"],
            Self::Sst2 => &["negative", "positive"],
            Self::Mrpc => &["not_equivalent", "equivalent"],
            Self::Wnli => &["not_entailment", "entailment"],
            Self::Qqp => &["not_duplicate", "duplicate"],
            Self::Rte | Self::Qnli | Self::Mnli | Self::StsB => self.label_values(),
        }
    }

    /// Number of classes, or the range of scores.
    pub fn target(self) -> Target {
        match self {
            Self::StsB => Target::Range(0.0, 5.0),
            _ => Target::Classes(self.label_values().len()),
        }
    }

    /// The official metrics; the benchmark reports their mean where there are two.
    pub fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Cola => &["matthews"],
            Self::Mrpc | Self::Qqp => &["f1", "accuracy"],
            Self::StsB => &["pearson", "spearman"],
            Self::Sst2 | Self::Rte | Self::Wnli | Self::Qnli | Self::Mnli => &["accuracy"],
        }
    }

    /// Names of the development sets, which are their file names without `.tsv`.
    pub fn dev_sets(self) -> &'static [&'static str] {
        if self == Self::Mnli { &["dev_matched", "dev_mismatched"] } else { &["dev"] }
    }

    /// Names of the test sets, which are their file names without `.tsv`.
    pub fn test_sets(self) -> &'static [&'static str] {
        if self == Self::Mnli { &["test_matched", "test_mismatched"] } else { &["test"] }
    }

    fn index_column(self) -> &'static str {
        if self == Self::Qqp { "id" } else { "index" }
    }

    /// The columns of labelled files that have no header.
    fn implied_columns(self) -> Option<&'static [&'static str]> {
        (self == Self::Cola).then_some(&["source", "label", "star", "sentence"])
    }
}

impl fmt::Display for GlueTask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for GlueTask {
    type Err = DataError;

    /// Parses an official name, in any case.
    fn from_str(name: &str) -> Result<Self, DataError> {
        let task = Self::ALL.into_iter().find(|task| task.name().eq_ignore_ascii_case(name));
        task.ok_or_else(|| DataError::UnknownTask { name: name.to_string() })
    }
}

/// The official names of `tasks`, for a message.
pub(super) fn names(tasks: &[GlueTask]) -> String {
    tasks.iter().map(|task| task.name()).collect::<Vec<_>>().join(", ")
}

/// The right answer of an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label {
    /// Class number, an index into [`GlueTask::label_names`].
    Class(usize),
    /// Score inside the range of [`Target::Range`].
    Score(f32),
}

/// A labelled sentence or pair of sentences.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// The first or only sentence.
    pub first: String,
    /// The second sentence, for tasks on pairs.
    pub second: Option<String>,
    /// The right answer.
    pub label: Label,
}

/// A sentence or pair of sentences whose label is kept by the benchmark's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlabelled {
    /// The index that a submission repeats.
    pub index: usize,
    /// The first or only sentence.
    pub first: String,
    /// The second sentence, for tasks on pairs.
    pub second: Option<String>,
}

/// The data of one task.
#[derive(Clone, Debug, PartialEq)]
pub struct GlueData {
    /// The task.
    pub task: GlueTask,
    /// Training examples, in file order.
    pub train: Vec<Example>,
    /// Development sets by name (see [`GlueTask::dev_sets`]).
    pub dev: Vec<(String, Vec<Example>)>,
    /// The unlabelled test sets that are there, by name.
    pub test: Vec<(String, Vec<Unlabelled>)>,
    /// Rows left out because their annotators did not agree (MNLI's label `-`), by set; sets without such rows are not listed.
    pub without_gold_label: Vec<(String, usize)>,
    /// Combined SHA-256 of the files read (see [`files::combined_sha256`]).
    pub sha256: String,
}

impl GlueData {
    /// Reads `task` from `dir`, which holds a folder of the task's official name or is that folder. Files are plain or `.gz`.
    ///
    /// # Errors
    /// [`DataError::MissingPart`], [`DataError::Ambiguous`], [`DataError::MissingColumn`], [`DataError::FieldCount`], [`DataError::FieldValue`] (an
    /// unknown label, a score that is no number in range), [`DataError::Empty`], and those of [`TextFile::read`].
    pub fn read(dir: &Path, task: GlueTask) -> Result<Self, DataError> {
        let inner = dir.join(task.name());
        let mut reader =
            Reader { task, dir: if inner.is_dir() { inner } else { dir.to_path_buf() }, read: Vec::new(), without_gold_label: Vec::new() };
        let train = reader.labelled("train")?;
        let dev = task.dev_sets().iter().map(|set| Ok((set.to_string(), reader.labelled(set)?))).collect::<Result<_, DataError>>()?;
        let mut test = Vec::new();
        for set in task.test_sets() {
            if let Some(examples) = reader.unlabelled(set)? {
                test.push((set.to_string(), examples));
            }
        }
        let sha256 = files::combined_sha256(&reader.read);
        Ok(Self { task, train, dev, test, without_gold_label: reader.without_gold_label, sha256 })
    }
}

struct Reader {
    task: GlueTask,
    dir: PathBuf,
    read: Vec<TextFile>,
    without_gold_label: Vec<(String, usize)>,
}

impl Reader {
    fn labelled(&mut self, set: &str) -> Result<Vec<Example>, DataError> {
        let table = self.table(set, self.task.implied_columns())?.ok_or_else(|| DataError::MissingPart {
            dir: self.dir.clone(),
            part: format!("the {set} set of {}", self.task),
            expected: format!("{set}.tsv or {}/{set}.tsv", self.task),
        })?;
        let label_column = table.column(self.task.label_column())?;
        let sentence_columns = table.sentence_columns()?;
        let mut examples = Vec::new();
        let mut skipped = 0;
        for row in table.rows()? {
            if self.task == GlueTask::Mnli && row.fields[label_column] == "-" {
                skipped += 1;
                continue;
            }
            let (first, second) = row.sentences(&sentence_columns);
            examples.push(Example { first, second, label: table.label(&row, label_column)? });
        }
        if skipped > 0 {
            tracing::warn!("{}: left out {skipped} rows without a gold label", table.file.name);
            self.without_gold_label.push((set.to_string(), skipped));
        }
        if examples.is_empty() {
            let remedy = "restore it".to_string();
            return Err(DataError::Empty { path: table.file.path, found: "no labelled example".to_string(), remedy });
        }
        self.read.push(table.file);
        Ok(examples)
    }

    fn unlabelled(&mut self, set: &str) -> Result<Option<Vec<Unlabelled>>, DataError> {
        let Some(table) = self.table(set, None)? else { return Ok(None) };
        let index_column = table.column(self.task.index_column())?;
        let sentence_columns = table.sentence_columns()?;
        let mut examples = Vec::new();
        for row in table.rows()? {
            let index = row.fields[index_column];
            let index = index.parse().map_err(|_| table.wrong(&row, index_column, "a whole number"))?;
            let (first, second) = row.sentences(&sentence_columns);
            examples.push(Unlabelled { index, first, second });
        }
        self.read.push(table.file);
        Ok(Some(examples))
    }

    fn table(&self, set: &str, implied_columns: Option<&[&str]>) -> Result<Option<Table>, DataError> {
        let looked_for = format!("the folder of the GLUE task {} with train.tsv", self.task);
        let forms = files::list(&self.dir, &looked_for)?.remove(&format!("{set}.tsv")).unwrap_or_default();
        let Some(path) = files::only(forms, &format!("the {set} set of {}", self.task))? else { return Ok(None) };
        let file = TextFile::read(&path, &looked_for)?;
        let columns = match implied_columns {
            Some(columns) => columns.iter().map(|column| column.to_string()).collect(),
            None => file.lines.first().map(|header| header.split('\t').map(str::to_string).collect()).unwrap_or_default(),
        };
        Ok(Some(Table { task: self.task, first_row: usize::from(implied_columns.is_none()), columns, file }))
    }
}

struct Table {
    task: GlueTask,
    file: TextFile,
    columns: Vec<String>,
    first_row: usize,
}

struct Row<'a> {
    line: usize,
    fields: Vec<&'a str>,
}

impl Table {
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

    fn rows(&self) -> Result<Vec<Row<'_>>, DataError> {
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

impl Row<'_> {
    fn sentences(&self, columns: &[usize]) -> (String, Option<String>) {
        (self.fields[columns[0]].to_string(), columns.get(1).map(|&column| self.fields[column].to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::folder;
    use super::*;

    fn one(first: &str, label: Label) -> Example {
        Example { first: first.to_string(), second: None, label }
    }

    fn two(first: &str, second: &str, label: Label) -> Example {
        Example { first: first.to_string(), second: Some(second.to_string()), label }
    }

    fn read(task: GlueTask, train: &str, dev: &str) -> Result<GlueData, DataError> {
        let dir = folder(&[("train.tsv", train.as_bytes()), ("dev.tsv", dev.as_bytes())]);
        GlueData::read(dir.path(), task)
    }

    #[test]
    fn names_are_parsed_in_any_case_and_written_officially() {
        for task in GlueTask::ALL {
            assert_eq!(task.name().to_lowercase().parse::<GlueTask>().unwrap(), task);
            assert_eq!(serde_json::to_string(&task).unwrap(), format!("\"{task}\""));
            assert_eq!(serde_json::from_str::<GlueTask>(&format!("\"{task}\"")).unwrap(), task);
        }
        let message = "SST-3".parse::<GlueTask>().unwrap_err().to_string();
        assert!(message.contains("`SST-3`") && message.contains("SST-2, MRPC"), "{message}");
    }

    #[test]
    fn every_task_has_a_name_for_every_class() {
        for task in GlueTask::ALL {
            let classes = if let Target::Classes(classes) = task.target() { classes } else { 0 };
            assert_eq!((task.label_names().len(), task.label_values().len()), (classes, classes), "{task}");
        }
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
        let test = Unlabelled { index: 7, first: "What?".to_string(), second: None };
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
        let message = GlueData::read(dir.path(), GlueTask::Sst2).unwrap_err().to_string();
        assert!(message.contains("test.tsv`, line 2, field `index`: `x`"), "{message}");
    }

    #[test]
    fn a_missing_column_file_or_folder_is_an_error_that_says_what_was_expected() {
        let message = read(GlueTask::Sst2, "text\tlabel\na\t0\n", "").unwrap_err().to_string();
        assert!(message.contains("no column `sentence` (it has: text, label)"), "{message}");
        let dir = folder(&[("train.tsv", b"sentence\tlabel\na\t0\n")]);
        let message = GlueData::read(dir.path(), GlueTask::Sst2).unwrap_err().to_string();
        assert!(message.contains("no file for the dev set of SST-2"), "{message}");
        assert!(matches!(GlueData::read(Path::new("nowhere"), GlueTask::Rte), Err(DataError::NotFound { .. })));
    }

    #[test]
    fn a_file_in_two_forms_or_without_examples_is_an_error() {
        let good = b"sentence\tlabel\na\t0\n";
        let dir = folder(&[("train.tsv", good), ("train.tsv.gz", good), ("dev.tsv", good)]);
        assert!(matches!(GlueData::read(dir.path(), GlueTask::Sst2), Err(DataError::Ambiguous { .. })));
        let message = read(GlueTask::Sst2, "sentence\tlabel\n", "").unwrap_err().to_string();
        assert!(message.contains("train.tsv` holds no labelled example"), "{message}");
    }
}
