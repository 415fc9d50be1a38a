//! The finished runs of an output folder.
//!
//! The process that finishes a run writes `<run>/result.json`. Any process derives `results.json` and the report from these files, with the same result: records
//! are in the order of the command's runs, whichever was finished first. Folders of earlier versions have `results.json` alone; its records are kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use heedful_host::whole_files::{read_if_there, write_atomically};
use serde::de::DeserializeOwned;

use crate::record::{RecordError, ResultRecord, RunKey};
use crate::run_folder::{RunFolder, RunPaths};

/// The order of a command's runs: data set by data set, in each seed by seed, and of each seed candidate by candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOrder {
    /// Data sets by name.
    pub datasets: Vec<String>,
    /// Attentions and models by name.
    pub candidates: Vec<String>,
}

/// The records of a folder.
#[derive(Clone, Debug)]
pub struct Results {
    folder: RunFolder,
    records: Vec<ResultRecord>,
    /// Each record as its own file has it: a number that is read and written again may lose its last digit.
    texts: Vec<String>,
    /// What `results.json` held when it was last read or written, as text and as records.
    derived: Option<(String, Vec<ResultRecord>)>,
    /// The runs' own records that were read, by the folders of the runs. A finished run is not repeated, so none is read twice.
    own: BTreeMap<PathBuf, (String, ResultRecord)>,
    /// Whether something was read that the records lack, since what was to be read after it is damaged.
    is_unmerged: bool,
}

impl Results {
    /// The records of all finished runs of `folder`; none if there are none yet. They are in the order of `results.json`; those that it lacks follow in the order
    /// in which they were finished.
    ///
    /// # Errors
    /// [`RecordError`] when a file cannot be read or holds no record.
    pub fn read(folder: &RunFolder) -> Result<Self, RecordError> {
        let mut results = Self {
            folder: folder.clone(),
            records: Vec::new(),
            texts: Vec::new(),
            derived: None,
            own: BTreeMap::new(),
            is_unmerged: false,
        };
        results.look_again()?;
        Ok(results)
    }

    /// Takes over what other processes have finished or written since the folder was read.
    fn look_again(&mut self) -> Result<(), RecordError> {
        let path = self.folder.results();
        let there = read_if_there(&path)?;
        if there.as_ref() != self.derived.as_ref().map(|(text, _)| text) {
            self.derived = there.map(|text| parsed(&path, &text).map(|records| (text, records))).transpose()?;
            self.is_unmerged = true;
        }
        for run in self.folder.runs()? {
            self.read_own(&run)?;
        }
        self.merge()
    }

    /// Takes over the record of a run, if another process has finished it since the folder was read.
    ///
    /// # Errors
    /// [`RecordError`] when its file cannot be read or holds no record.
    pub fn look_at(&mut self, run: &RunPaths) -> Result<(), RecordError> {
        self.read_own(run)?;
        self.merge()
    }

    fn read_own(&mut self, run: &RunPaths) -> Result<(), RecordError> {
        let path = run.result();
        if self.own.contains_key(run.root()) {
            return Ok(());
        }
        let Some(text) = read_if_there(&path)? else { return Ok(()) };
        let record = parsed(&path, &text)?;
        self.own.insert(run.root().to_owned(), (text, record));
        self.is_unmerged = true;
        Ok(())
    }

    /// Puts together what was read.
    fn merge(&mut self) -> Result<(), RecordError> {
        if !self.is_unmerged {
            return Ok(());
        }
        let path = self.folder.results();
        let mut own: BTreeMap<RunKey, &(String, ResultRecord)> = self.own.values().map(|entry| (entry.1.key(), entry)).collect();
        let of_file = self.derived.iter().flat_map(|(_, records)| records).map(|record| match own.remove(&record.key()) {
            Some(entry) => Ok(entry.clone()),
            None => Ok((pretty(&path, record)?, record.clone())),
        });
        let mut entries = of_file.collect::<Result<Vec<_>, RecordError>>()?;
        // What the file lacks was finished after it was written.
        let mut later: Vec<_> = own.into_values().cloned().collect();
        later.sort_by_key(|(_, record)| (record.finished_ms, record.key()));
        entries.extend(later);
        (self.texts, self.records) = entries.into_iter().unzip();
        self.is_unmerged = false;
        Ok(())
    }

    /// All records.
    pub fn records(&self) -> &[ResultRecord] {
        &self.records
    }

    /// The record of a run that need not be repeated: finished, with this configuration digest.
    ///
    /// # Errors
    /// [`RecordError::OtherConfiguration`] when the run is there but was made with another configuration, which must not be mixed with this one.
    pub fn finished(&self, run: &RunKey, configuration: &str) -> Result<Option<&ResultRecord>, RecordError> {
        match self.records.iter().find(|record| record.key() == *run) {
            Some(record) if record.configuration != configuration => {
                Err(RecordError::OtherConfiguration { path: self.folder.results(), run: run.to_string() })
            }
            found => Ok(found),
        }
    }

    /// Puts the records into the order of a command. What the command does not name, such as the attentions of an earlier one, keeps its place among them.
    fn arrange(&mut self, order: &RunOrder) {
        let datasets = merged(self.records.iter().map(|record| record.dataset.as_str()), &order.datasets);
        let candidates = merged(self.records.iter().map(|record| record.attention.as_str()), &order.candidates);
        let place = |names: &[String], name: &str| names.iter().position(|other| other == name);
        let mut entries: Vec<_> = std::mem::take(&mut self.texts).into_iter().zip(std::mem::take(&mut self.records)).collect();
        // The sort is stable.
        entries.sort_by_key(|(_, record)| (place(&datasets, &record.dataset), record.seed, place(&candidates, &record.attention)));
        (self.texts, self.records) = entries.into_iter().unzip();
    }

    /// Brings what is derived up to date: `results.json`, and what `report` writes from the records, both in the order of the command.
    ///
    /// Several processes may do so at once: each looks again after it has written, so that the last one to write knew all runs.
    ///
    /// # Errors
    /// [`RecordError`], or the error of `report`.
    pub fn derive<E: From<RecordError>>(&mut self, order: &RunOrder, report: impl Fn(&Self) -> Result<(), E>) -> Result<(), E> {
        self.look_again()?;
        self.arrange(order);
        loop {
            self.write()?;
            report(self)?;
            let known = self.records.len();
            self.look_again()?;
            // The same records in the order of another command are nothing new: the two would write in turn for ever.
            if self.records.len() == known {
                return Ok(());
            }
            self.arrange(order);
        }
    }

    /// A file that holds these records already stays as it is, byte for byte.
    fn write(&mut self) -> Result<(), RecordError> {
        if self.derived.as_ref().map_or(self.records.is_empty(), |(_, there)| *there == self.records) {
            return Ok(());
        }
        let texts: Vec<String> = self.texts.iter().map(|text| text.trim_end().replace('\n', "\n  ")).collect();
        let text = format!("[\n  {}\n]\n", texts.join(",\n  "));
        write_atomically(&self.folder.results(), text.as_bytes())?;
        self.derived = Some((text, self.records.clone()));
        Ok(())
    }
}

/// The distinct names that are there, each where it stands first; those that are wanted stand in their own order in the places of those that are wanted.
fn merged<'n>(there: impl Iterator<Item = &'n str>, wanted: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in there {
        if names.iter().all(|other| other != name) {
            names.push(name.to_owned());
        }
    }
    let mut in_order: Vec<String> = wanted.iter().filter(|name| names.contains(name)).cloned().collect();
    in_order.reverse();
    let place = |name: String| if wanted.contains(&name) { in_order.pop().unwrap_or(name) } else { name };
    names.into_iter().map(place).collect()
}

/// Records a finished run in its own folder.
///
/// # Errors
/// [`RecordError::File`].
pub fn write_result(run: &RunPaths, record: &ResultRecord) -> Result<(), RecordError> {
    let path = run.result();
    Ok(write_atomically(&path, format!("{}\n", pretty(&path, record)?).as_bytes())?)
}

fn pretty(path: &Path, record: &ResultRecord) -> Result<String, RecordError> {
    serde_json::to_string_pretty(record).map_err(|source| RecordError::Format { path: path.into(), source })
}

fn parsed<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, RecordError> {
    serde_json::from_str(text).map_err(|source| RecordError::Format { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use heedful_host::machine::Machine;

    use crate::record::Budget;

    fn record(attention: &str, seed: u64, bleu: f64, finished_ms: Option<u64>) -> ResultRecord {
        ResultRecord { finished_ms, ..crate::record::tests::record(attention, seed, bleu) }
    }

    fn finish(folder: &RunFolder, record: &ResultRecord) {
        write_result(&folder.run(&record.attention, record.seed).unwrap(), record).unwrap();
    }

    fn derive(folder: &RunFolder, order: &RunOrder) {
        Results::read(folder).unwrap().derive(order, |_| Ok::<(), RecordError>(())).unwrap();
    }

    fn derived(folder: &RunFolder) -> Vec<ResultRecord> {
        derive(folder, &RunOrder::default());
        serde_json::from_str(&fs::read_to_string(folder.results()).unwrap()).unwrap()
    }

    #[test]
    fn records_come_back_from_their_files_as_they_were_written() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        assert!(Results::read(&folder).unwrap().records().is_empty());
        let mut first = record("synthesizer-random", 1, 0.1 + 0.2, Some(3));
        first.parameters_by_part.insert("encoder".into(), 12);
        first.machine = Machine::here();
        first.budget = Budget { steps: Some(100), minutes: None };
        let second = record("dot-product", 1, 20.0, Some(4));
        finish(&folder, &second);
        finish(&folder.part("another set").unwrap(), &first);
        assert_eq!(Results::read(&folder).unwrap().records(), [first.clone(), second.clone()], "in the order of their ends");
        assert_eq!(derived(&folder), [first, second]);
    }

    #[test]
    fn records_are_in_the_order_of_the_command_whichever_run_ends_first() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        let of_set = |dataset: &str, attention: &str, seed: u64, finished: u64| ResultRecord {
            dataset: dataset.into(),
            ..record(attention, seed, 1.0, Some(finished))
        };
        let order = |candidates: &[&str]| RunOrder {
            datasets: ["first", "second"].map(str::to_owned).into(),
            candidates: candidates.iter().map(|name| (*name).to_owned()).collect(),
        };
        let end = |record: ResultRecord| finish(&folder.part(&record.dataset).unwrap(), &record);
        let told = |order: &RunOrder| {
            derive(&folder, order);
            let read = Results::read(&folder).unwrap();
            let written: Vec<ResultRecord> = serde_json::from_str(&fs::read_to_string(folder.results()).unwrap()).unwrap();
            assert_eq!(read.records(), written);
            let told = |record: &ResultRecord| format!("{} {} {}", record.dataset, record.seed, record.attention);
            written.iter().map(told).collect::<Vec<_>>()
        };
        // The command names b before a; of two jobs, or of two shards, the last run ended first.
        for (finished, (dataset, attention, seed)) in
            [("second", "a", 1), ("first", "a", 2), ("first", "a", 1), ("first", "b", 2), ("second", "b", 1), ("first", "b", 1)]
                .into_iter()
                .enumerate()
        {
            end(of_set(dataset, attention, seed, finished as u64));
            told(&order(&["b", "a"]));
        }
        let whole = ["first 1 b", "first 1 a", "first 2 b", "first 2 a", "second 1 b", "second 1 a"];
        assert_eq!(told(&order(&["b", "a"])), whole);
        // Another command adds to them, and what it does not name keeps its place.
        end(of_set("first", "c", 1, 9));
        end(of_set("first", "0", 1, 8));
        assert_eq!(told(&order(&["b", "c", "0"]))[..5], ["first 1 b", "first 1 a", "first 1 c", "first 1 0", "first 2 b"]);
    }

    #[test]
    fn nothing_is_lost_when_the_derived_files_are_late() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        let [one, other] = [record("dense", 1, 1.0, Some(1)), record("dense", 2, 2.0, Some(2))];
        finish(&folder, &one);
        let late = derived(&folder);
        finish(&folder, &other);
        // Another process, which knew of one run only, writes last.
        fs::write(folder.results(), serde_json::to_string(&late).unwrap()).unwrap();
        assert_eq!(Results::read(&folder).unwrap().records().len(), 2);
        assert_eq!(derived(&folder), [one, other]);
    }

    #[test]
    fn a_command_takes_over_what_others_finish_and_reads_no_record_twice() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        let [one, other, third] = [1, 2, 3].map(|seed| record("dense", seed, 1.0, Some(seed)));
        let mut results = Results::read(&folder).unwrap();
        finish(&folder, &one);
        assert!(results.records().is_empty());
        results.look_at(&folder.run_at("dense", 2)).unwrap();
        results.look_at(&folder.run_at("dense", 1)).unwrap();
        assert_eq!(results.records(), std::slice::from_ref(&one));
        finish(&folder, &other);
        let mut derive = || {
            results.derive(&RunOrder::default(), |_| Ok::<(), RecordError>(())).unwrap();
            let written: Vec<ResultRecord> = serde_json::from_str(&fs::read_to_string(folder.results()).unwrap()).unwrap();
            assert_eq!(results.records(), written);
            written
        };
        assert_eq!(derive(), [one.clone(), other.clone()]);
        fs::write(folder.run_at("dense", 1).result(), "no record").unwrap();
        // Another process, which knew of one run only, writes last.
        fs::write(folder.results(), serde_json::to_string(&[&other]).unwrap()).unwrap();
        finish(&folder, &third);
        assert_eq!(derive(), [one, other, third]);
    }

    #[test]
    fn every_digit_of_a_score_stands_in_the_derived_file() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        let records: Vec<_> = (1..200).map(|seed| record("dense", seed, (seed as f64).sqrt().exp().recip(), Some(seed))).collect();
        records.iter().for_each(|record| finish(&folder, record));
        derived(&folder);
        let text = fs::read_to_string(folder.results()).unwrap();
        assert_eq!(text, format!("{}\n", serde_json::to_string_pretty(&records).unwrap()));
    }

    #[test]
    fn a_run_that_ends_while_the_report_is_written_is_in_the_next_one() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        finish(&folder, &record("dense", 1, 1.0, Some(1)));
        let seen = std::cell::RefCell::new(Vec::new());
        let mut results = Results::read(&folder).unwrap();
        let report = |results: &Results| {
            seen.borrow_mut().push(results.records().len());
            finish(&folder, &record("dense", 2, 2.0, Some(2)));
            Ok::<(), RecordError>(())
        };
        results.derive(&RunOrder::default(), report).unwrap();
        assert_eq!((results.records().len(), seen.into_inner()), (2, vec![1, 2]));
    }

    #[test]
    fn the_same_runs_in_the_order_of_another_command_are_nothing_new() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        for (name, end) in [("a", 1), ("b", 2)] {
            finish(&folder, &record(name, 1, 1.0, Some(end)));
        }
        let order = |candidates: [&str; 2]| RunOrder { datasets: Vec::new(), candidates: candidates.map(str::to_owned).into() };
        let drawn = std::cell::Cell::new(0);
        let report = |_: &Results| {
            drawn.set(drawn.get() + 1);
            assert!(drawn.get() < 9, "it is drawn again and again");
            derive(&folder, &order(["b", "a"]));
            Ok::<(), RecordError>(())
        };
        Results::read(&folder).unwrap().derive(&order(["a", "b"]), report).unwrap();
        assert_eq!(drawn.get(), 1);
    }

    #[test]
    fn what_was_read_before_a_damaged_file_is_not_lost() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        let mut results = Results::read(&folder).unwrap();
        finish(&folder, &record("a", 1, 1.0, Some(1)));
        let damaged = folder.run("b", 1).unwrap().result();
        fs::write(&damaged, "{").unwrap();
        let mut derive = || results.derive(&RunOrder::default(), |_| Ok::<(), RecordError>(()));
        derive().unwrap_err();
        fs::remove_file(&damaged).unwrap();
        derive().unwrap();
        assert_eq!(results.records().len(), 1);
    }

    #[test]
    fn records_of_earlier_versions_are_kept_in_their_order_and_the_file_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        let text = r#"[{"experiment": "mt", "attention": "b", "seed": 1}, {"experiment": "mt", "attention": "a", "seed": 1}]"#;
        fs::write(folder.results(), text).unwrap();
        let names = |records: &[ResultRecord]| records.iter().map(|record| record.attention.clone()).collect::<Vec<_>>();
        assert_eq!(names(&derived(&folder)), ["b", "a"]);
        assert_eq!(fs::read_to_string(folder.results()).unwrap(), text);
        finish(&folder, &record("0", 1, 1.0, Some(1)));
        assert_eq!(names(&derived(&folder)), ["b", "a", "0"]);
    }

    #[test]
    fn the_runs_of_another_output_folder_inside_are_not_taken_for_ones_own() {
        let place = tempfile::tempdir().unwrap();
        let (outer, inner) = (RunFolder::at(place.path()), RunFolder::at(&place.path().join("inner")));
        finish(&inner, &record("dense", 1, 1.0, Some(1)));
        assert_eq!(Results::read(&outer).unwrap().records().len(), 1, "the folder of a data set");
        fs::write(inner.config(), "").unwrap();
        assert!(Results::read(&outer).unwrap().records().is_empty());
    }

    #[test]
    fn a_damaged_file_is_named_with_its_line_and_the_remedy() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        fs::write(folder.results(), "[\n{\"seed\": 1,\n\"steps\": \"many\"}]").unwrap();
        let message = Results::read(&folder).unwrap_err().to_string();
        assert!(message.contains("results.json:3:") && message.contains("choose another --out"), "{message}");
        fs::remove_file(folder.results()).unwrap();
        fs::write(folder.run("dense", 1).unwrap().result(), "{\n\"seed\": -1}").unwrap();
        let message = Results::read(&folder).unwrap_err().to_string();
        assert!(message.contains("result.json:2:"), "{message}");
    }

    #[test]
    fn a_finished_run_is_found_again_and_one_of_another_configuration_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        finish(&folder, &record("dot-product", 1, 1.0, Some(1)));
        let results = Results::read(&folder).unwrap();
        let key = record("dot-product", 1, 1.0, None).key();
        assert!(results.finished(&key, "c1").unwrap().is_some());
        assert!(results.finished(&RunKey { seed: 2, ..key.clone() }, "c1").unwrap().is_none());
        let message = results.finished(&key, "c2").unwrap_err().to_string();
        assert!(message.contains("mt / invented / dot-product / flex / seed 1"), "{message}");
    }
}
