//! The files of a task's folder, each in the form that its name says.

use std::path::{Path, PathBuf};

use super::super::files::{self, TextFile};
use super::super::{Columns, columns};
use super::{DataError, Example, GlueTask, Unlabelled, hugging_face, super_glue, tsv, wic};

/// A form in which a set is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A table; GLUE.
    Tsv,
    /// A JSON object a line; SuperGLUE.
    JsonLines,
    /// A table without header beside a file of labels; WiC's authors.
    WicText,
    /// A JSON object a line with word and sentences in one text; WiC as prompts of language models have it.
    WicPrompts,
}

impl Form {
    fn of(task: GlueTask) -> &'static [Self] {
        match task {
            GlueTask::Rte => &[Self::Tsv, Self::JsonLines],
            GlueTask::Wic => &[Self::JsonLines, Self::WicText, Self::WicPrompts],
            GlueTask::BoolQ | GlueTask::Cb | GlueTask::Copa | GlueTask::MultiRc | GlueTask::Record | GlueTask::Wsc => &[Self::JsonLines],
            _ => &[Self::Tsv],
        }
    }

    fn file_name(self, set: &str) -> String {
        match self {
            Self::Tsv => format!("{set}.tsv"),
            Self::JsonLines => format!("{}.jsonl", if set == "dev" { "val" } else { set }),
            Self::WicText => format!("{set}.data.txt"),
            Self::WicPrompts => format!("{}_text.jsonl", if set == "dev" { "val" } else { set }),
        }
    }
}

/// The folder of a task and what was read from it.
pub(super) struct Folder<'c> {
    task: GlueTask,
    columns: &'c Columns,
    dir: PathBuf,
    /// By the name without `.gz`.
    files: files::Listed,
    pub(super) read: Vec<TextFile>,
    pub(super) without_gold_label: Vec<(String, usize)>,
}

impl<'c> Folder<'c> {
    pub(super) fn open(dir: &Path, task: GlueTask, columns: &'c Columns) -> Result<Self, DataError> {
        let mut files = files::list(dir, &looked_for(task))?;
        if task == GlueTask::Wic {
            // The archive of WiC's authors has a folder for each set.
            for inner in ["train", "dev", "test"].map(|set| dir.join(set)).iter().filter(|inner| inner.is_dir()) {
                for (name, forms) in files::list(inner, &looked_for(task))? {
                    files.entry(name).or_default().extend(forms);
                }
            }
        }
        Ok(Self { task, columns, dir: dir.to_path_buf(), files, read: Vec::new(), without_gold_label: Vec::new() })
    }

    /// The examples of a set that must be there.
    pub(super) fn labelled(&mut self, set: &str) -> Result<Vec<Example>, DataError> {
        let task = self.task;
        if let Some(files) = self.in_columns(set)? {
            let read = files.iter().map(|file| hugging_face::labelled(file, task, self.columns)).collect::<Result<Vec<_>, _>>()?.concat();
            if read.is_empty() {
                return Err(DataError::empty(&files[0].path, "no labelled example", "restore it"));
            }
            self.read.extend(files);
            return Ok(read);
        }
        let (form, file) = self.find(set)?.ok_or_else(|| {
            let mut names: Vec<String> = Form::of(task).iter().map(|form| form.file_name(set)).collect();
            if names.iter().any(|name| name.ends_with(".tsv")) {
                names.push(format!("{set}.parquet"));
            }
            self.missing(&format!("the {set} set of {task}"), &names)
        })?;
        let examples = match form {
            Form::Tsv => {
                let (examples, skipped) = tsv::labelled(&file, task)?;
                if skipped > 0 {
                    tracing::warn!("{}: left out {skipped} rows without a gold label", file.name);
                    self.without_gold_label.push((set.to_string(), skipped));
                }
                examples
            }
            Form::JsonLines => super_glue::read(&file, task)?,
            Form::WicPrompts => wic::prompts(&file)?,
            Form::WicText => {
                let name = format!("{set}.gold.txt");
                let part = format!("the labels of the {set} set of {task}");
                let path = self.only(&[&name], &part)?.ok_or_else(|| self.missing(&part, std::slice::from_ref(&name)))?;
                let gold = TextFile::read(&path, &looked_for(task))?;
                let examples = wic::labelled(&file, &gold)?;
                self.read.push(gold);
                examples
            }
        };
        if examples.is_empty() {
            return Err(DataError::empty(&file.path, "no labelled example", "restore it"));
        }
        self.read.push(file);
        Ok(examples)
    }

    /// The examples of the labelled test set of the original distribution, a table in one of these files.
    pub(super) fn original_test(&mut self, names: &[&str]) -> Result<Vec<Example>, DataError> {
        let forms = names.iter().flat_map(|name| [(*name).to_string(), format!("{name}.gz")]);
        let found: Vec<PathBuf> = forms.map(|name| self.dir.join(name)).filter(|path| path.is_file()).collect();
        let part = format!("the labelled test set of {}", self.task);
        let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
        let path = files::only(found, &part)?.ok_or_else(|| self.missing(&part, &names))?;
        let file = TextFile::read(&path, &looked_for(self.task))?;
        let examples = tsv::original_test(&file, self.task)?;
        self.read.push(file);
        Ok(examples)
    }

    /// The examples of a test set, if it is there.
    pub(super) fn unlabelled(&mut self, set: &str) -> Result<Option<Vec<Unlabelled>>, DataError> {
        if let Some(files) = self.in_columns(set)? {
            let mut read = Vec::new();
            for file in &files {
                read.extend(hugging_face::unlabelled(file, self.task, self.columns, read.len())?);
            }
            self.read.extend(files);
            return Ok(Some(read));
        }
        let Some((form, file)) = self.find(set)? else { return Ok(None) };
        let examples = match form {
            Form::Tsv => tsv::unlabelled(&file, self.task)?,
            Form::JsonLines => super_glue::read(&file, self.task)?,
            Form::WicText => wic::unlabelled(&file)?,
            // Prompts come with their answers.
            Form::WicPrompts => return Ok(None),
        };
        self.read.push(file);
        Ok(Some(examples))
    }

    /// The files of a set that has named columns, of a task that SuperGLUE does not have in a form of its own.
    fn in_columns(&self, set: &str) -> Result<Option<Vec<TextFile>>, DataError> {
        let names = match set.strip_prefix("dev") {
            Some("") => columns::DEVELOPMENT.map(str::to_owned).to_vec(),
            Some(kind) => vec![format!("validation{kind}"), set.to_owned()],
            None => vec![set.to_owned()],
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let forms = Form::of(self.task);
        let own: Vec<(Form, &Vec<PathBuf>)> =
            forms.iter().filter_map(|form| Some((*form, self.files.get(&form.file_name(set))?))).collect();
        let is_task_of_tables = forms.contains(&Form::Tsv);
        let is_json_lines = own.iter().any(|(form, _)| *form == Form::JsonLines);
        let found = if is_task_of_tables && !is_json_lines { columns::find_split(&self.files, &names)? } else { Vec::new() };
        match (found.is_empty(), own.is_empty()) {
            (false, false) => {
                let files = found.into_iter().chain(own.into_iter().flat_map(|(_, paths)| paths.clone())).collect();
                Err(DataError::Ambiguous { part: format!("the {set} set of {}", self.task), files })
            }
            (true, false) => self.columns.refuse_without_columns(&self.dir).map(|()| None),
            (_, true) => columns::read_split(&self.files, if is_task_of_tables { &names } else { &[] }),
        }
    }

    fn find(&self, set: &str) -> Result<Option<(Form, TextFile)>, DataError> {
        let forms = Form::of(self.task);
        let names: Vec<String> = forms.iter().map(|form| form.file_name(set)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let Some(path) = self.only(&names, &format!("the {set} set of {}", self.task))? else { return Ok(None) };
        let file = TextFile::read(&path, &looked_for(self.task))?;
        let form = forms.iter().zip(names).find(|(_, name)| file.name.strip_suffix(".gz").unwrap_or(&file.name) == *name);
        Ok(form.map(|(form, _)| (*form, file)))
    }

    /// The only file with one of the names.
    fn only(&self, names: &[&str], part: &str) -> Result<Option<PathBuf>, DataError> {
        files::only(names.iter().filter_map(|name| self.files.get(*name)).flatten().cloned().collect(), part)
    }

    fn missing(&self, part: &str, names: &[String]) -> DataError {
        let inside = names.iter().map(|name| format!("{}/{name}", self.task));
        let expected = names.iter().cloned().chain(inside).collect::<Vec<_>>().join(" or ");
        DataError::missing(&self.dir, part, expected)
    }
}

fn looked_for(task: GlueTask) -> String {
    format!("the folder of the GLUE task {task} with {}", Form::of(task)[0].file_name("train"))
}

#[cfg(test)]
mod tests {
    use super::super::super::files::tests::{folder, refused};
    use super::super::{GlueData, Label};
    use super::*;

    const TSV: &[u8] = b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n";
    const LINES: &[u8] = br#"{"premise": "a", "hypothesis": "b", "label": "not_entailment", "idx": 0}"#;
    const WORDS: &[u8] = b"beat\tV\t0-1\tBeat eggs .\tWe beat them .\n";
    const PROMPTS: &[u8] = br#"{"label": 1, "text": "Word: beat. Sentence 1: Beat eggs . Sentence 2: We beat them ."}"#;
    const WORD_LINES: &[u8] =
        br#"{"word": "w", "sentence1": "w", "sentence2": "w", "start1": 0, "end1": 1, "start2": 0, "end2": 1, "label": true, "idx": 3}"#;

    #[test]
    fn rte_is_read_in_either_form() {
        let read = |files: &[(&str, &[u8])]| GlueData::read(folder(files).path(), GlueTask::Rte).unwrap();
        let table = read(&[("RTE/train.tsv", TSV), ("RTE/dev.tsv", TSV)]);
        let lines = read(&[("train.jsonl.gz", LINES), ("val.jsonl", LINES), ("test.jsonl", LINES)]);
        assert_eq!((table.train[0].label, lines.train[0].label), (Label::Class(0), Label::Class(1)));
        assert_eq!(lines.train[0], Example::new("a", Some("b".to_string()), Label::Class(1)));
        assert_eq!((&lines.dev[0].0, lines.dev[0].1.len()), (&"dev".to_string(), 1));
        assert_eq!(lines.test, [("test".to_string(), vec![Unlabelled::new(0, "a", Some("b".to_string()))])]);
    }

    #[test]
    fn a_set_in_two_forms_is_an_error_that_names_both() {
        for (task, files) in [
            (GlueTask::Rte, [("train.tsv", TSV), ("train.jsonl", LINES), ("dev.tsv", TSV)]),
            (GlueTask::Rte, [("train.tsv", TSV), ("dev.tsv", TSV), ("val.jsonl.gz", LINES)]),
            (GlueTask::Cb, [("train.jsonl", LINES), ("train.jsonl.gz", LINES), ("val.jsonl", LINES)]),
            (GlueTask::Wic, [("train.jsonl", WORD_LINES), ("train/train.data.txt", WORDS), ("train.gold.txt", b"T")]),
            (GlueTask::Wic, [("train.data.txt", WORDS), ("train/train.data.txt", WORDS), ("train.gold.txt", b"T")]),
            (GlueTask::Wic, [("train.jsonl", WORD_LINES), ("train_text.jsonl", PROMPTS), ("val.jsonl", WORD_LINES)]),
            (GlueTask::Wic, [("train.data.txt", WORDS), ("train.gold.txt", b"T"), ("train/train.gold.txt.gz", b"T")]),
        ] {
            let error = GlueData::read(folder(&files).path(), task).unwrap_err();
            assert!(matches!(&error, DataError::Ambiguous { files, .. } if files.len() == 2), "{task}: {error}");
        }
    }

    #[test]
    fn wic_is_read_in_the_form_of_its_authors_flat_or_in_folders() {
        let flat: [(&str, &[u8]); 5] = [
            ("train.data.txt.gz", WORDS),
            ("train.gold.txt", b"T\n"),
            ("dev.data.txt", WORDS),
            ("dev.gold.txt", b"F\n"),
            ("test.data.txt", WORDS),
        ];
        let inside = flat.map(|(name, text)| (format!("WiC/{}/{name}", name.split('.').next().unwrap()), text));
        let inside = inside.each_ref().map(|(name, text)| (name.as_str(), *text));
        let read = |files: &[(&str, &[u8])]| GlueData::read(folder(files).path(), GlueTask::Wic).unwrap();
        let data = read(&flat);
        assert_eq!((data.train[0].label, data.dev[0].1[0].label), (Label::Class(1), Label::Class(0)));
        assert_eq!(&*data.test[0].1[0].first, "beat : * Beat * eggs .");
        assert_eq!(read(&inside), data);
        let relabelled = flat.map(|(name, text)| (name, if name == "dev.gold.txt" { b"T\n" } else { text }));
        assert_ne!(read(&relabelled).sha256, data.sha256, "the labels count");
    }

    #[test]
    fn wic_is_read_as_prompts_beside_the_usual_form() {
        let data = GlueData::read(folder(&[("train_text.jsonl", PROMPTS), ("val.jsonl", WORD_LINES)]).path(), GlueTask::Wic).unwrap();
        assert_eq!(data.train, [Example::new("beat : * Beat * eggs .", Some("We * beat * them .".to_string()), Label::Class(1))]);
        assert_eq!(data.dev[0].1[0].label, Label::Class(1));
    }

    #[test]
    fn a_labelled_test_set_is_read_where_it_is_asked_for() {
        const MRPC: &[u8] = b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\ta b\tc \"d\n";
        const STS: &[u8] =
            b"main-captions\tMSRvid\t2012test\t0024\t2.500\tA girl.\tA boy.\nmain-news\theadlines\t2015\t7\t0\tx\ty\tsource\tother\n";
        const STS_TRAIN: &[u8] = b"index\tsentence1\tsentence2\tscore\n0\ta\tb\t5.0\n";
        let mrpc = folder(&[("train.tsv", MRPC), ("dev.tsv", MRPC), ("msr_paraphrase_test.txt", MRPC)]);
        let plain = GlueData::read(mrpc.path(), GlueTask::Mrpc).unwrap();
        let with_test = GlueData::read_with_labelled_test(mrpc.path(), GlueTask::Mrpc, &Columns::default()).unwrap();
        assert_eq!((&plain.labelled_test, &with_test.labelled_test), (&None, &Some(("test".to_string(), plain.train.clone()))));
        assert_ne!(plain.sha256, with_test.sha256, "the file counts");
        let sts = folder(&[("STS-B/train.tsv", STS_TRAIN), ("STS-B/dev.tsv", STS_TRAIN), ("STS-B/original/sts-test.tsv", STS)]);
        let (_, test) = GlueData::read_with_labelled_test(sts.path(), GlueTask::StsB, &Columns::default()).unwrap().labelled_test.unwrap();
        let [girl, news] = &test[..] else { panic!("{test:?}") };
        assert_eq!(*girl, Example::new("A girl.", Some("A boy.".to_string()), Label::Score(2.5)));
        assert_eq!(*news, Example::new("x", Some("y".to_string()), Label::Score(0.0)), "sources behind the sentences are passed over");
        let without = folder(&[("train.tsv", MRPC), ("dev.tsv", MRPC)]);
        refused(
            GlueData::read_with_labelled_test(without.path(), GlueTask::Mrpc, &Columns::default()),
            &["the labelled test set of MRPC", "msr_paraphrase_test.txt"],
        );
        let cola: &[u8] = b"a\t1\t\tA cat sat.\n";
        let cola = folder(&[("train.tsv", cola), ("dev.tsv", cola)]);
        assert_eq!(GlueData::read_with_labelled_test(cola.path(), GlueTask::Cola, &Columns::default()).unwrap().labelled_test, None);
    }

    #[test]
    fn a_missing_part_is_an_error_that_names_what_is_accepted() {
        for (task, files, parts) in [
            (GlueTask::BoolQ, vec![("val.jsonl", LINES)], ["the train set of BoolQ", "train.jsonl or BoolQ/train.jsonl"]),
            (
                GlueTask::Rte,
                vec![("dev.tsv", TSV)],
                [
                    "the train set of RTE",
                    "train.tsv or train.jsonl or train.parquet or RTE/train.tsv or RTE/train.jsonl or RTE/train.parquet",
                ],
            ),
            (
                GlueTask::Wic,
                vec![("words.jsonl", WORD_LINES)],
                ["the train set of WiC", "train.jsonl or train.data.txt or train_text.jsonl"],
            ),
            (GlueTask::Wic, vec![("train.data.txt", WORDS)], ["the labels of the train set of WiC", "expected train.gold.txt"]),
        ] {
            refused(GlueData::read(folder(&files).path(), task), &parts);
        }
        let cb = br#"{"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 0}"#;
        refused(
            GlueData::read(folder(&[("train.jsonl", cb), ("dev.jsonl", cb)]).path(), GlueTask::Cb),
            &["the dev set of CB; expected val.jsonl"],
        );
        refused(GlueData::read(Path::new("nowhere"), GlueTask::Wsc), &["the folder of the GLUE task WSC with train.jsonl"]);
    }

    #[test]
    fn a_file_without_examples_is_an_error() {
        refused(GlueData::read(folder(&[("train.jsonl", b"")]).path(), GlueTask::Wsc), &["train.jsonl` holds no labelled example"]);
    }
}
