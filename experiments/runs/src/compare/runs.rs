//! Run folders as they were left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::record::ResultRecord;
use crate::results::Results;
use crate::run_folder::{RunFolder, RunPaths};
use crate::trivial::TrivialBaseline;

use super::error::CompareError;

/// One run folder.
#[derive(Clone, Debug)]
pub struct RunSource {
    /// Its name among the others: the last part of its path, or as many parts as are needed.
    pub label: String,
    /// Its path as it was given.
    pub path: PathBuf,
    /// The folder.
    pub folder: RunFolder,
    /// The finished runs.
    pub records: Vec<ResultRecord>,
    /// The trivial baselines of the folder's data sets, as far as they were computed.
    pub trivial: Vec<TrivialBaseline>,
}

impl RunSource {
    /// The folder of a run, if it is there.
    pub fn folder_of(&self, record: &ResultRecord) -> Option<RunPaths> {
        self.folder.existing_run(&record.dataset, &record.attention, record.seed)
    }
}

/// Reads the results of several run folders. One that is given twice is read once.
///
/// # Errors
/// [`CompareError`] for the first folder that is not that of a run, or whose results are damaged.
pub fn read(paths: &[PathBuf]) -> Result<Vec<RunSource>, CompareError> {
    let mut places: Vec<(PathBuf, &Path)> = Vec::new();
    for path in paths {
        let place = path.canonicalize().ok().filter(|place| place.is_dir()).ok_or_else(|| CompareError::NoFolder { path: path.clone() })?;
        if !places.iter().any(|(other, _)| *other == place) {
            places.push((place, path));
        }
    }
    let labels = labels(&places.iter().map(|(place, _)| place.as_path()).collect::<Vec<_>>());
    let source = |(label, (_, path)): (String, &(PathBuf, &Path))| {
        let folder = RunFolder::at(path);
        let trivial = TrivialBaseline::read(&folder).map_err(CompareError::of_record)?;
        Ok(RunSource { label, path: path.to_path_buf(), folder, records: records(path)?, trivial })
    };
    labels.into_iter().zip(&places).map(source).collect()
}

/// As many last parts of each path as tell all of them apart.
fn labels(places: &[&Path]) -> Vec<String> {
    let parts = |place: &Path| place.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect::<Vec<_>>();
    let parts: Vec<Vec<String>> = places.iter().map(|place| parts(place)).collect();
    let last = |parts: &[String], count: usize| parts[parts.len().saturating_sub(count)..].join("/");
    let deepest = parts.iter().map(Vec::len).max().unwrap_or(1);
    let at = |count: usize| parts.iter().map(|parts| last(parts, count)).collect::<Vec<_>>();
    let count = (1..deepest).find(|&count| at(count).iter().collect::<BTreeSet<_>>().len() == places.len()).unwrap_or(deepest);
    at(count)
}

fn records(folder: &Path) -> Result<Vec<ResultRecord>, CompareError> {
    let folder = RunFolder::at(folder);
    let path = folder.results();
    let records = Results::read(&folder).map_err(CompareError::of_record)?;
    let records = records.records().to_vec();
    if records.is_empty() {
        return Err(if path.exists() { CompareError::NoResults { path } } else { CompareError::NoRun { path: folder.root().into() } });
    }
    let mut runs = BTreeSet::new();
    for (index, record) in records.iter().enumerate() {
        // Every field of a record has a default, for records of earlier versions; these tell rows apart and were always there.
        let needed = [("experiment", &record.experiment), ("dataset", &record.dataset), ("attention", &record.attention)];
        if let Some((field, _)) = needed.into_iter().find(|(_, value)| value.is_empty()) {
            return Err(CompareError::Field { path, number: index + 1, field });
        }
        if !runs.insert(record.key()) {
            return Err(CompareError::Twice { path, run: record.key().to_string() });
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refused(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("results.json"), text).unwrap();
        read(&[folder.path().into()]).unwrap_err().to_string()
    }

    #[test]
    fn folders_are_told_apart_by_the_end_of_their_paths() {
        let labels_of = |places: &[&str]| labels(&places.iter().map(Path::new).collect::<Vec<_>>());
        assert_eq!(labels_of(&["/runs/a", "/runs/b"]), ["a", "b"]);
        assert_eq!(labels_of(&["/old/mt", "/new/mt"]), ["old/mt", "new/mt"]);
        assert_eq!(labels_of(&["/runs/a"]), ["a"]);
        assert_eq!(labels_of(&["/a", "/b/a"]), ["//a", "b/a"]);
    }

    #[test]
    fn what_is_no_run_folder_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let message = read(&[folder.path().into()]).unwrap_err().to_string();
        assert!(message.contains("holds no results.json; give the --out"), "{message}");
        let message = read(&[folder.path().join("nowhere")]).unwrap_err().to_string();
        assert!(message.contains("nowhere` is not a folder"), "{message}");
    }

    #[test]
    fn damaged_results_are_refused_with_their_place() {
        assert!(refused("[\n{\"seed\": 1,\n\"steps\": \"many\"}]").contains("results.json:3: not the results"));
        assert!(refused("[]").contains("holds no finished run"));
        let record = r#"{"experiment": "mt", "dataset": "d", "attention": "a"}"#;
        assert!(refused(&format!("[{record}, {{\"experiment\": \"mt\"}}]")).contains("record 2 has no `dataset`"));
        assert!(refused(&format!("[{record}, {record}]")).contains("the run mt / d / a /  / seed 0 twice"));
    }

    #[test]
    fn cut_and_altered_results_are_read_or_refused_and_never_panic() {
        use rand::RngExt;
        let whole =
            r#"[{"experiment": "mt", "dataset": "d", "attention": "a", "metrics": {"BLEU": 1.5, "x": null}, "budget": {"steps": 1}}]"#;
        let mut rng = heedful_random::RandomKey::from_seed(3).rng();
        for _ in 0..500 {
            let mut bytes = whole.as_bytes().to_vec();
            bytes.truncate(rng.random_range(0..=bytes.len()));
            if let Some(byte) = (!bytes.is_empty()).then(|| rng.random_range(0..bytes.len())) {
                bytes[byte] = rng.random();
            }
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("results.json"), &bytes).unwrap();
            if let Err(error) = read(&[folder.path().into()]) {
                assert!(error.to_string().contains("results.json"), "{error}");
            }
        }
    }

    #[test]
    fn a_folder_that_is_given_twice_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("results.json"), r#"[{"experiment": "mt", "dataset": "d", "attention": "a"}]"#).unwrap();
        let again = folder.path().join(".");
        assert_eq!(read(&[folder.path().into(), again]).unwrap().len(), 1);
    }
}
