//! The outputs of a row's runs for the items of a test set, where their folders store them.

use std::fs;
use std::io;
use std::path::Path;

use heedful_host::checksum::sha256_hex;
use heedful_metrics::significance::ItemStatistics;
use heedful_metrics::{Combination, CorpusMetric, ItemScore, ItemTable};

use crate::run_folder::RunPaths;

use super::group::Row;

/// The outputs of a row's runs for the items of one test set, as one metric counts them.
#[derive(Clone, Debug)]
pub struct ItemOutputs {
    /// How the metric is computed from the items.
    pub score: ItemScore,
    /// A checksum of what the items are.
    pub identity: String,
    /// The seed of each run, ascending.
    pub seeds: Vec<u64>,
    /// The statistics of each run.
    pub statistics: Vec<ItemStatistics>,
}

/// Why there are no outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// According to the record, the metric is not computed from items.
    NotOfItems,
    /// A run folder holds no statistics of items.
    Items,
    /// A run folder holds no hypotheses.
    Hypotheses,
    /// A run folder holds no references.
    References,
    /// What is there cannot be used; one sentence that names the file.
    Damaged(String),
}

/// What one run gave: where it stands, what the items are, and the terms of the score; or what is wrong with it.
type Found = Result<(String, ItemStatistics), String>;

impl ItemOutputs {
    /// Reads what `metric` (its name in the records) was computed from.
    ///
    /// # Errors
    /// [`Missing`] if a run lacks files, if they do not belong together, or if they do not reproduce the recorded score.
    pub fn read(row: &Row<'_>, metric: &str) -> Result<Self, Missing> {
        let score = row.records[0].items.get(metric).ok_or(Missing::NotOfItems)?;
        let of_texts = score.is_of_texts();
        let mut read: Option<Self> = None;
        for record in &row.records {
            let missing = if of_texts { Missing::Hypotheses } else { Missing::Items };
            let paths = row.source.folder_of(record).ok_or(missing)?;
            let (path, found) = match score.combination {
                Combination::Texts(corpus_metric) => (paths.hypotheses(&score.set), of_texts_in(&paths, &score.set, &corpus_metric)?),
                _ => (paths.items(&score.set), of_items_in(&paths, score)?),
            };
            let damaged = |problem: String| Missing::Damaged(format!("`{}` {problem}", path.display()));
            let (identity, statistics) = found.map_err(damaged)?;
            if record.items.get(metric) != Some(score) {
                return Err(damaged(format!("is of a {metric} that is made in another way than that of other seeds")));
            }
            // The score of other outputs, or of other options of the metric, must not be tested as this one.
            let value = score.combination.score(&statistics.total());
            if let Some(recorded) = record.metrics.get(metric).copied().flatten()
                && (value.is_nan() || (value - recorded).abs() > 1e-6 * recorded.abs().max(1.0))
            {
                return Err(damaged(format!("gives the {metric} {value:.4}, {recorded:.4} was recorded")));
            }
            let read = read.get_or_insert_with(|| Self {
                score: score.clone(),
                identity: identity.clone(),
                seeds: Vec::new(),
                statistics: Vec::new(),
            });
            if read.identity != identity || read.items() != statistics.items() && !read.statistics.is_empty() {
                return Err(damaged(format!("has other {} than other seeds", if of_texts { "references" } else { "items" })));
            }
            read.seeds.push(record.seed);
            read.statistics.push(statistics);
        }
        read.ok_or(Missing::NotOfItems)
    }

    /// The number of items.
    pub fn items(&self) -> usize {
        self.statistics.first().map_or(0, ItemStatistics::items)
    }
}

/// The statistics of items in a run folder.
fn of_items_in(paths: &RunPaths, score: &ItemScore) -> Result<Found, Missing> {
    let text = text(&paths.items(&score.set), Missing::Items)?;
    Ok(ItemTable::from_json(&score.set, &text).map_err(|problem| format!("is not the items of a test set: {problem}")).and_then(|table| {
        let terms = table.terms(score).ok_or_else(|| format!("has no {} that a score can be made of", score.statistics.join(" and ")))?;
        Ok((table.identity().to_owned(), terms))
    }))
}

/// The statistics of generated texts in a run folder; what they are is told by their references.
fn of_texts_in(paths: &RunPaths, set: &str, metric: &CorpusMetric) -> Result<Found, Missing> {
    let hypotheses = text(&paths.hypotheses(set), Missing::Hypotheses)?;
    let references = text(&paths.references(set), Missing::References)?;
    let identity = sha256_hex(references.as_bytes());
    let [hypotheses, references] = [&hypotheses, &references].map(|text| text.lines().collect::<Vec<_>>());
    if hypotheses.is_empty() || hypotheses.len() != references.len() {
        return Ok(Err(format!("has {} lines, its references have {}", hypotheses.len(), references.len())));
    }
    Ok(Ok((identity, metric.statistics(&hypotheses, &references))))
}

fn text(path: &Path, missing: Missing) -> Result<String, Missing> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing,
        _ => Missing::Damaged(format!("`{}` cannot be read: {error}", path.display())),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use heedful_metrics::{Bleu, ChrF, ConfusionScore};
    use tempfile::TempDir;

    use super::super::group::groups;
    use super::super::group::tests::{record, source_at};
    use super::super::runs::RunSource;
    use super::*;
    use crate::record::ResultRecord;
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
            let metrics = [("BLEU", CorpusMetric::Bleu(Bleu::default())), ("news/chrF2", CorpusMetric::ChrF(ChrF::default()))];
            let [bleu, chrf] = metrics.map(|(name, metric)| (name, score(metric)));
            let mut record = record(attention, *seed, &[bleu, chrf, ("valid perplexity", 9.0)]);
            record.items = metrics.map(|(name, metric)| (name.to_owned(), ItemScore::of_texts("news", metric))).into();
            records.push(record);
        }
        source_at(folder.path(), &records)
    }

    /// A folder with the answers of several mechanisms to questions with two classes, and the records of their accuracy and F1.
    pub(crate) fn classified(folder: &TempDir, systems: &[(&str, u64, &[usize])]) -> RunSource {
        let at = RunFolder::at(folder.path());
        let labels = |predicted: &[usize]| {
            let mut table = ItemTable::new("dev", &["actual", "predicted", "right"]);
            for (item, &predicted) in predicted.iter().enumerate() {
                let actual = item % 2;
                table.push_tokens([item as i64], &[actual as f64, predicted as f64, f64::from(u8::from(actual == predicted))]);
            }
            table
        };
        let f1 = Combination::Confusion { classes: 2, score: ConfusionScore::F1 };
        let scores = [
            ("accuracy", ItemScore::new("dev", "examples", Combination::Mean, &["right"])),
            ("f1", ItemScore::new("dev", "examples", f1, &["actual", "predicted"])),
        ];
        let records = systems.iter().map(|(attention, seed, predicted)| {
            let table = labels(predicted);
            at.run(attention, *seed).unwrap().write_items(&table).unwrap();
            let value = |score: &ItemScore| score.combination.score(&table.terms(score).unwrap().total());
            let values = scores.each_ref().map(|(name, score)| (*name, value(score)));
            let items = scores.iter().map(|(name, score)| ((*name).to_owned(), score.clone())).collect();
            ResultRecord { items, ..record(attention, *seed, &values) }
        });
        source_at(folder.path(), &records.collect::<Vec<_>>())
    }

    fn read(source: &RunSource, metric: &str) -> Result<ItemOutputs, Missing> {
        ItemOutputs::read(&groups(std::slice::from_ref(source))[0].rows[0], metric)
    }

    #[test]
    fn translations_are_found_as_the_record_says() {
        let folder = tempfile::tempdir().unwrap();
        let source = translated(&folder, &[("dense", 1, REFERENCES), ("dense", 2, REFERENCES.map(|line| &line[2..]))]);
        for metric in ["BLEU", "news/chrF2"] {
            let read = read(&source, metric).unwrap();
            assert_eq!((read.items(), read.statistics.len(), read.seeds), (6, 2, vec![1, 2]));
        }
        for metric in ["chrF2", "valid perplexity", "news/TER"] {
            assert_eq!(read(&source, metric).unwrap_err(), Missing::NotOfItems, "{metric}");
        }
        let mut other = source.clone();
        other.records[0].items.get_mut("BLEU").unwrap().set = "other".into();
        assert_eq!(read(&other, "BLEU").unwrap_err(), Missing::Hypotheses);
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
        assert!(damaged().contains("gives the BLEU 0.0000, 100.0000 was recorded"), "{}", damaged());
        fs::write(paths.hypotheses("news"), b"\xff\n").unwrap();
        assert!(damaged().contains("news.txt` cannot be read"), "{}", damaged());
        fs::remove_file(paths.references("news")).unwrap();
        fs::write(paths.hypotheses("news"), "one\n").unwrap();
        assert_eq!(read(&source, "BLEU").unwrap_err(), Missing::References);
    }

    #[test]
    fn items_are_read_for_each_seed_as_the_record_says() {
        let folder = tempfile::tempdir().unwrap();
        let source = classified(&folder, &[("dense", 1, &[0, 1, 0, 0]), ("dense", 2, &[0, 1, 1, 1])]);
        for metric in ["accuracy", "f1"] {
            let read = read(&source, metric).unwrap();
            assert_eq!((read.items(), read.statistics.len(), read.seeds), (4, 2, vec![1, 2]));
        }
        assert_eq!(read(&source, "matthews").unwrap_err(), Missing::NotOfItems);
        let mut other = source.clone();
        other.records[1].items.get_mut("f1").unwrap().combination = Combination::Confusion { classes: 2, score: ConfusionScore::MacroF1 };
        assert!(
            matches!(read(&other, "f1"), Err(Missing::Damaged(message)) if message.contains("in another way than that of other seeds"))
        );
    }

    #[test]
    fn items_that_do_not_belong_to_the_record_are_not_tested() {
        let folder = tempfile::tempdir().unwrap();
        let source = classified(&folder, &[("dense", 1, &[0, 1, 0, 0]), ("dense", 2, &[0, 1, 1, 1])]);
        let path = source.folder.run("dense", 2).unwrap().items("dev");
        let whole = fs::read_to_string(&path).unwrap();
        let damaged = |text: &str| {
            fs::write(&path, text).unwrap();
            match read(&source, "accuracy") {
                Err(Missing::Damaged(message)) if message.contains("dev.json` ") => message,
                other => panic!("{other:?}"),
            }
        };
        let message = damaged(&whole.replace("[0,1,0]", "[0,1,1]"));
        assert!(message.contains("gives the accuracy 1.0000, 0.7500 was recorded"), "{message}");
        let message = damaged(&whole[..whole.len() / 2]);
        assert!(message.contains("is not the items of a test set"), "{message}");
        let message = damaged(&whole.replace("right", "wrong"));
        assert!(message.contains("has no right that a score can be made of"), "{message}");
        let first = whole.find("\"items\": \"").unwrap() + 10;
        let message =
            damaged(&format!("{}{}{}", &whole[..first], if whole[first..].starts_with('0') { 1 } else { 0 }, &whole[first + 1..]));
        assert!(message.contains("has other items than other seeds"), "{message}");
        damaged(r#"{"items": "", "statistics": ["right"], "rows": []}"#);
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&source, "accuracy").unwrap_err(), Missing::Items);
    }
}
