//! The translations of a row and their references, where its run folder holds them.

use std::fs;
use std::io;
use std::path::Path;

use crate::metrics::significance::{CorpusMetric, SentenceStatistics};
use crate::metrics::{Bleu, ChrF};
use crate::record::ResultRecord;

use super::group::Row;

/// What the runs of a row said to the sentences of one test set, as one metric counts it.
#[derive(Clone, Debug)]
pub struct Translations {
    /// The metric with its options.
    pub metric: CorpusMetric,
    /// The references, one for each sentence.
    pub references: Vec<String>,
    /// The seed of each run, ascending.
    pub seeds: Vec<u64>,
    /// The statistics of each run.
    pub statistics: Vec<SentenceStatistics>,
}

/// Why there are no translations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The metric is not computed from translations.
    NotOfSentences,
    /// A run folder holds no hypotheses.
    Hypotheses,
    /// A run folder holds no references, as those of earlier versions.
    References,
    /// What is there cannot be used; one sentence that names the file.
    Damaged(String),
}

impl Translations {
    /// Reads what `metric` (its name in the records) was computed from.
    ///
    /// # Errors
    /// [`Missing`] if a run lacks hypotheses or references, if they do not belong together, or if they do not give the score that was recorded.
    pub fn read(row: &Row<'_>, metric: &str) -> Result<Self, Missing> {
        let first = row.records[0];
        let (set, kind) = match metric.rsplit_once('/') {
            Some((set, kind)) => (set, kind),
            None => (first_test_set(first, metric).ok_or(Missing::NotOfSentences)?, metric),
        };
        let corpus_metric = match kind {
            "BLEU" => CorpusMetric::Bleu(bleu(&row.source.folder.config())),
            "chrF2" => CorpusMetric::ChrF(ChrF::default()),
            _ => return Err(Missing::NotOfSentences),
        };
        let mut read = Self { metric: corpus_metric, references: Vec::new(), seeds: Vec::new(), statistics: Vec::new() };
        for record in &row.records {
            let paths = row.source.folder.existing_run(&record.dataset, &record.attention, record.seed).ok_or(Missing::Hypotheses)?;
            let path = paths.hypotheses(set);
            let hypotheses = lines(&path, Missing::Hypotheses)?;
            let references = lines(&paths.references(set), Missing::References)?;
            let damaged = |problem: String| Err(Missing::Damaged(format!("`{}` {problem}", path.display())));
            if hypotheses.is_empty() || hypotheses.len() != references.len() {
                return damaged(format!("has {} lines, its references have {}", hypotheses.len(), references.len()));
            }
            if !read.references.is_empty() && read.references != references {
                return damaged("has other references than other seeds".to_owned());
            }
            let statistics = corpus_metric.statistics(&hypotheses, &references);
            let score = corpus_metric.score(&statistics.total());
            // The score of other translations, or of other options of the metric, must not be tested as this one.
            if let Some(recorded) = record.metrics.get(metric).copied().flatten()
                && (score - recorded).abs() > 1e-6
            {
                return damaged(format!("gives a {metric} of {score:.4}, {recorded:.4} was recorded"));
            }
            read.references = references;
            read.seeds.push(record.seed);
            read.statistics.push(statistics);
        }
        Ok(read)
    }
}

/// The test set that a score without one in its name belongs to, from its signature: `..., test set <name>, ...`.
fn first_test_set<'r>(record: &'r ResultRecord, metric: &str) -> Option<&'r str> {
    let (_, after) = record.signatures.get(metric)?.split_once(", test set ")?;
    after.split(',').next()
}

/// The options of BLEU in a configuration; the usual ones if it has none, which the recorded score then has to confirm.
fn bleu(config: &Path) -> Bleu {
    let text = fs::read_to_string(config).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    table.get("bleu").and_then(|options| options.clone().try_into().ok()).unwrap_or_default()
}

fn lines(path: &Path, missing: Missing) -> Result<Vec<String>, Missing> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing),
        Err(error) => Err(Missing::Damaged(format!("`{}` cannot be read: {error}", path.display()))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tempfile::TempDir;

    use super::super::group::groups;
    use super::super::group::tests::record;
    use super::super::runs::RunSource;
    use super::*;
    use crate::run_folder::RunFolder;

    pub(crate) const REFERENCES: [&str; 6] = [
        "a cat sat on the mat .",
        "two dogs run on a beach .",
        "it is 3.5 !",
        "no one knows it .",
        "we met in may .",
        "the old tower is high .",
    ];

    /// A folder with the translations of a test set `news` by several mechanisms, one seed each, and the records that belong to them.
    pub(crate) fn translated(folder: &TempDir, systems: &[(&str, u64, [&str; 6])]) -> RunSource {
        let mut records = Vec::new();
        let at = RunFolder::at(folder.path());
        for (attention, seed, hypotheses) in systems {
            let paths = at.run(attention, *seed).unwrap();
            paths.write_hypotheses("news", &hypotheses.map(str::to_owned)).unwrap();
            paths.write_references("news", &REFERENCES).unwrap();
            let score = |metric: CorpusMetric| metric.score(&metric.statistics(hypotheses, &REFERENCES).total());
            let bleu = score(CorpusMetric::Bleu(Bleu::default()));
            let chrf = score(CorpusMetric::ChrF(ChrF::default()));
            let mut record = record(attention, *seed, &[("BLEU", bleu), ("news/chrF2", chrf), ("valid perplexity", 9.0)]);
            record.signatures.insert("BLEU".into(), "nrefs:1|tok:13a, test set news, beam 4".into());
            records.push(record);
        }
        RunSource { label: "a".into(), path: folder.path().into(), folder: at, records }
    }

    fn read(source: &RunSource, metric: &str) -> Result<Translations, Missing> {
        Translations::read(&groups(std::slice::from_ref(source))[0].rows[0], metric)
    }

    #[test]
    fn translations_are_found_by_the_name_of_the_metric_or_its_signature() {
        let folder = tempfile::tempdir().unwrap();
        let source = translated(&folder, &[("dense", 1, REFERENCES), ("dense", 2, REFERENCES.map(|line| &line[2..]))]);
        for metric in ["BLEU", "news/chrF2"] {
            let read = read(&source, metric).unwrap();
            assert_eq!((read.seeds, read.statistics.len(), read.references.len()), (vec![1, 2], 2, 6));
        }
        for metric in ["chrF2", "valid perplexity", "news/TER"] {
            assert_eq!(read(&source, metric).unwrap_err(), Missing::NotOfSentences, "{metric}");
        }
        assert_eq!(read(&source, "other/BLEU").unwrap_err(), Missing::Hypotheses);
    }

    #[test]
    fn translations_that_do_not_belong_to_the_record_are_not_tested() {
        let folder = tempfile::tempdir().unwrap();
        let source = translated(&folder, &[("dense", 1, REFERENCES)]);
        let paths = source.folder.run("dense", 1).unwrap();
        let damaged = || match read(&source, "BLEU") {
            Err(Missing::Damaged(message)) => message,
            other => panic!("{other:?}"),
        };
        fs::write(paths.hypotheses("news"), "one\n").unwrap();
        assert!(damaged().contains("news.txt` has 1 lines, its references have 6"), "{}", damaged());
        fs::write(paths.hypotheses("news"), "one\n".repeat(6)).unwrap();
        assert!(damaged().contains("gives a BLEU of 0.0000, 100.0000 was recorded"), "{}", damaged());
        fs::write(paths.hypotheses("news"), b"\xff\n").unwrap();
        assert!(damaged().contains("news.txt` cannot be read"), "{}", damaged());
        fs::remove_file(paths.references("news")).unwrap();
        fs::write(paths.hypotheses("news"), "one\n").unwrap();
        assert_eq!(read(&source, "BLEU").unwrap_err(), Missing::References);
    }

    #[test]
    fn the_options_of_bleu_are_those_of_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        assert_eq!(bleu(&config), Bleu::default());
        fs::write(&config, "[bleu]\nlowercase = true\nsmoothing = { floor = 0.1 }\n").unwrap();
        let read = bleu(&config);
        assert!(read.lowercase && read.smoothing == crate::metrics::Smoothing::Floor(0.1), "{read:?}");
    }
}
