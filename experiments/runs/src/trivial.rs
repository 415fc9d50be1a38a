//! Trivial baselines: scores on a data set without attention or without learning.
//!
//! They put scores into perspective: what do word counts alone reach? Each experiment provides baselines for its data, scored on the same split in the same
//! units. They are computed once per run folder and stored in its `trivial.json`. Reports mark their rows, and significance tests leave them out.
//!
//! The methods are those of [`heedful_metrics::baselines`].

use std::collections::BTreeMap;

use heedful_host::whole_files::{read_if_there, write_atomically};
use serde::{Deserialize, Serialize};

use crate::record::RecordError;
use crate::run_folder::RunFolder;

/// The scores of one trivial baseline on one data set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrivialBaseline {
    /// Experiment by the name of its program.
    pub experiment: String,
    /// Data set by name.
    pub dataset: String,
    /// Its name in tables.
    pub name: String,
    /// Its method and its data, in one sentence.
    pub description: String,
    /// Scores of the test set by the names of the experiment's metrics; `None` where one is undefined.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Scores of the development set by their names in the logs of runs, for learning curves.
    pub dev: BTreeMap<String, f64>,
    /// Seconds that all trivial baselines of the data set took together.
    pub seconds: f64,
    /// SHA-256 of the data set (hexadecimal).
    pub data_sha256: String,
    /// Version of heedful.
    pub version: String,
    /// The code that it was computed by, as records name it.
    pub code: String,
}

impl TrivialBaseline {
    /// A baseline without scores; `description` is a sentence.
    pub fn new(name: &str, description: impl Into<String>) -> Self {
        Self { name: name.to_owned(), description: description.into(), ..Self::default() }
    }

    /// The same with a score of the test set, undefined if it is not finite.
    pub fn score(mut self, metric: &str, value: f64) -> Self {
        self.metrics.insert(metric.to_owned(), value.is_finite().then_some(value));
        self
    }

    /// The same with a score of the development set, left out if it is not finite.
    pub fn dev(mut self, metric: &str, value: f64) -> Self {
        self.dev.extend(value.is_finite().then(|| (metric.to_owned(), value)));
        self
    }

    /// The same with all of these scores of the test set.
    pub fn scores(self, scores: impl IntoIterator<Item = (String, f64)>) -> Self {
        scores.into_iter().fold(self, |baseline, (metric, value)| baseline.score(&metric, value))
    }

    /// The same with all of these scores of the development set.
    pub fn devs(self, scores: impl IntoIterator<Item = (String, f64)>) -> Self {
        scores.into_iter().fold(self, |baseline, (metric, value)| baseline.dev(&metric, value))
    }

    /// A metric of the test set, where it is defined.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied().flatten()
    }

    /// What tables call it.
    pub fn row_name(&self) -> String {
        format!("{} (trivial)", self.name)
    }

    /// The trivial baselines of a folder, in their order; none if it has no such file.
    ///
    /// # Errors
    /// [`RecordError`] when the file cannot be read or holds something else.
    pub fn read(folder: &RunFolder) -> Result<Vec<Self>, RecordError> {
        let path = folder.trivial();
        let Some(text) = read_if_there(&path)? else { return Ok(Vec::new()) };
        serde_json::from_str(&text).map_err(|source| RecordError::Format { path, source })
    }

    /// Stores these in a folder in place of the earlier ones.
    ///
    /// # Errors
    /// [`RecordError::File`].
    pub fn write(folder: &RunFolder, all: &[Self]) -> Result<(), RecordError> {
        let path = folder.trivial();
        let text = serde_json::to_string_pretty(all).map_err(|source| RecordError::Format { path: path.clone(), source })?;
        Ok(write_atomically(&path, format!("{text}\n").as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_come_back_from_their_file_and_a_folder_without_one_has_none() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        assert_eq!(TrivialBaseline::read(&folder).unwrap(), []);
        let baseline = TrivialBaseline::new("unigram", "Counts of words.").score("perplexity", 3.5).score("BLEU", f64::NAN);
        let baseline = baseline.dev("perplexity", 3.25).dev("BLEU", f64::INFINITY);
        assert_eq!((baseline.metric("perplexity"), baseline.metric("BLEU"), baseline.dev.len()), (Some(3.5), None, 1));
        assert!(baseline.metrics.contains_key("BLEU"), "an undefined score is one that was measured");
        let all = [baseline, TrivialBaseline { dataset: "other".into(), ..TrivialBaseline::default() }];
        TrivialBaseline::write(&folder, &all).unwrap();
        assert_eq!(TrivialBaseline::read(&folder).unwrap(), all);
        std::fs::write(folder.trivial(), "{}").unwrap();
        assert!(TrivialBaseline::read(&folder).unwrap_err().to_string().contains("trivial.json"));
    }
}
