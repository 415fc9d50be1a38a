//! What may stand in one table: the runs of one experiment on one data set.

use heedful_host::display::{distinct, short};
use heedful_metrics::{MetricColumn, Spread};

use crate::record::ResultRecord;
use crate::trivial::TrivialBaseline;

use super::candidates::BASELINE;
use super::runs::RunSource;

/// The runs of one experiment on one data set.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Experiment by the name of its binary.
    pub experiment: &'a str,
    /// Data set by name.
    pub dataset: &'a str,
    /// The rows, in the order of folders and records.
    pub rows: Vec<Row<'a>>,
    /// The trivial baselines, each under its name in the table.
    pub trivial: Vec<(String, &'a TrivialBaseline)>,
}

/// The runs of one mechanism or model in one run folder, over seeds.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The folder.
    pub source: &'a RunSource,
    /// What the table calls it; unique in its group.
    pub name: String,
    /// One for each seed, ascending.
    pub records: Vec<&'a ResultRecord>,
}

impl Row<'_> {
    /// The mechanism or model.
    pub fn attention(&self) -> &str {
        &self.records[0].attention
    }

    /// The values of a metric by seed, where it is defined, in the unit of the table.
    pub fn values(&self, metric: &MetricColumn) -> Vec<f64> {
        self.records.iter().filter_map(|record| record.metric(&metric.name).flatten()).map(|value| value * metric.factor).collect()
    }

    /// Mean and deviation of a metric over the seeds where it is defined.
    pub fn spread(&self, metric: &MetricColumn) -> Option<Spread> {
        Spread::of(&self.values(metric))
    }

    /// The largest number of trained values; `None` without runs.
    pub fn parameters(&self) -> Option<f64> {
        self.records.iter().map(|record| record.parameters as f64).reduce(f64::max)
    }

    /// Mean seconds of the runs that were not disturbed, if there are any.
    pub fn seconds(&self) -> Option<f64> {
        mean(self.records.iter().filter_map(|record| record.seconds()))
    }

    /// Whether any run has the metric, if only as undefined.
    pub fn is_scored(&self, metric: &MetricColumn) -> bool {
        self.records.iter().any(|record| record.metric(&metric.name).is_some())
    }
}

/// The mean of those that are finite, if there are any.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    Spread::of(&values).map(|spread| spread.mean)
}

/// The groups of `sources`, in the order of their first record.
pub fn groups(sources: &[RunSource]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (source, record) in sources.iter().flat_map(|source| source.records.iter().map(move |record| (source, record))) {
        let (experiment, dataset) = (record.experiment.as_str(), record.dataset.as_str());
        let index = groups.iter().position(|group| (group.experiment, group.dataset) == (experiment, dataset)).unwrap_or_else(|| {
            groups.push(Group { experiment, dataset, rows: Vec::new(), trivial: Vec::new() });
            groups.len() - 1
        });
        let rows = &mut groups[index].rows;
        let belongs = |row: &&mut Row<'_>| {
            let first = row.records[0];
            row.source.label == source.label
                && (&first.attention, &first.backend, &first.configuration) == (&record.attention, &record.backend, &record.configuration)
        };
        match rows.iter_mut().find(belongs) {
            Some(row) => row.records.push(record),
            None => rows.push(Row { source, name: String::new(), records: vec![record] }),
        }
    }
    for group in &mut groups {
        group.rows.iter_mut().for_each(|row| row.records.sort_by_key(|record| record.seed));
        let names: Vec<String> = group.rows.iter().map(|row| group.name(row, sources.len() > 1)).collect();
        group.rows.iter_mut().zip(names).for_each(|(row, name)| row.name = name);
        group.trivial = trivial(sources, group.experiment, group.dataset);
    }
    groups
}

/// The trivial baselines of a data set. What several folders have is there once; what differs has the label of its folder.
fn trivial<'a>(sources: &'a [RunSource], experiment: &str, dataset: &str) -> Vec<(String, &'a TrivialBaseline)> {
    let of_source = |source: &'a RunSource| source.trivial.iter().map(move |baseline| (source, baseline));
    let here =
        |(_, baseline): &(&RunSource, &TrivialBaseline)| (baseline.experiment.as_str(), baseline.dataset.as_str()) == (experiment, dataset);
    let mut distinct: Vec<(&RunSource, &TrivialBaseline)> = Vec::new();
    for (source, baseline) in sources.iter().flat_map(of_source).filter(here) {
        let is_same =
            |other: &TrivialBaseline| (&other.name, &other.metrics, &other.dev) == (&baseline.name, &baseline.metrics, &baseline.dev);
        if !distinct.iter().any(|(_, other)| is_same(other)) {
            distinct.push((source, baseline));
        }
    }
    let named = |(source, baseline): &(&RunSource, &'a TrivialBaseline)| {
        let is_alone = distinct.iter().filter(|(_, other)| other.name == baseline.name).count() == 1;
        let name = baseline.row_name();
        (if is_alone { name } else { format!("{}/{name}", source.label) }, *baseline)
    };
    distinct.iter().map(named).collect()
}

impl<'a> Group<'a> {
    /// Experiment and data set.
    pub fn title(&self) -> String {
        format!("{}: {}", self.experiment, self.dataset)
    }

    /// The same with the backend, if all runs have the same one.
    pub fn title_with_backend(&self) -> String {
        match &distinct(self.records().map(|record| record.backend.clone()))[..] {
            [backend] => format!("{}, backend {backend}", self.title()),
            _ => self.title(),
        }
    }

    /// All runs.
    pub fn records(&self) -> impl Iterator<Item = &'a ResultRecord> {
        self.runs().map(|(_, record)| record)
    }

    /// All runs, each with its row.
    pub fn runs(&self) -> impl Iterator<Item = (&Row<'a>, &'a ResultRecord)> {
        self.rows.iter().flat_map(|row| row.records.iter().map(move |record| (row, *record)))
    }

    /// The names of all metrics that any run has.
    pub fn metrics(&self) -> Vec<String> {
        distinct(self.records().flat_map(|record| record.metrics.keys().filter(move |name| record.metric(name).is_some()).cloned()))
    }

    /// How metrics are shown, as far as the runs record it.
    pub fn columns(&self) -> Vec<MetricColumn> {
        let mut columns: Vec<MetricColumn> = Vec::new();
        for column in self.records().flat_map(|record| &record.columns) {
            if !columns.iter().any(|known| known.name == column.name) {
                columns.push(column.clone());
            }
        }
        columns
    }

    /// The row that `name` means, or by default dot-product, transformer or the first; `None` if there is no row of that name.
    pub fn baseline(&self, name: Option<&str>) -> Option<usize> {
        let of_attention = |name: &str| self.rows.iter().position(|row| row.attention() == name);
        match name {
            Some(name) => self.rows.iter().position(|row| row.name == name).or_else(|| of_attention(name)),
            None => of_attention(BASELINE).or_else(|| of_attention("transformer")).or(Some(0)),
        }
    }

    /// The folder where there are several, the mechanism, and as much more as tells it from other rows of both.
    fn name(&self, row: &Row<'_>, several: bool) -> String {
        let first = row.records[0];
        let mut name = if several { format!("{}/{}", row.source.label, first.attention) } else { first.attention.clone() };
        let namesakes = || {
            let is_namesake = |other: &&Row<'_>| other.source.label == row.source.label && other.attention() == row.attention();
            self.rows.iter().filter(is_namesake).map(|other| other.records[0])
        };
        if namesakes().any(|other| other.backend != first.backend) {
            name.push_str(&format!(" [{}]", first.backend));
        }
        if namesakes().any(|other| other.backend == first.backend && other.configuration != first.configuration) {
            name.push_str(&format!(" [{}]", short(&first.configuration)));
        }
        name
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::run_folder::RunFolder;

    fn known() -> Vec<MetricColumn> {
        vec![
            MetricColumn::new("BLEU", "BLEU").higher_is_better(),
            MetricColumn::new("accuracy", "accuracy (%)").percent().higher_is_better(),
            MetricColumn::new("context", "context").digits(0),
        ]
    }

    /// A record of the experiment `mt` on the data set `invented`.
    pub(crate) fn record(attention: &str, seed: u64, scores: &[(&str, f64)]) -> ResultRecord {
        let mut record = ResultRecord {
            metrics: Default::default(),
            parameters: 1_234_567,
            tokens_per_second: Some(1000.0),
            peak_memory_bytes: Some(400 << 20),
            wall_seconds: 61.0,
            version: "0.1.0".into(),
            data_sha256: "feed".into(),
            configuration: "0123456789abcdef".into(),
            ..crate::record::tests::record(attention, seed, 0.0)
        };
        scores.iter().for_each(|(name, value)| record.score(name, *value));
        record.columns = known().into_iter().filter(|column| record.metrics.contains_key(&column.name)).collect();
        record
    }

    /// A run folder that is nowhere on the disk.
    pub(crate) fn source(label: &str, records: &[ResultRecord]) -> RunSource {
        RunSource { label: label.into(), ..source_at(&Path::new("nowhere").join(label), records) }
    }

    /// A run folder with these records.
    pub(crate) fn source_at(path: &Path, records: &[ResultRecord]) -> RunSource {
        RunSource { label: "a".into(), path: path.into(), folder: RunFolder::at(path), records: records.to_vec(), trivial: Vec::new() }
    }

    fn names(group: &Group<'_>) -> Vec<String> {
        group.rows.iter().map(|row| row.name.clone()).collect()
    }

    #[test]
    fn a_row_holds_the_seeds_of_one_mechanism_in_one_folder() {
        let a = source("a", &[record("dense", 2, &[]), record("dense", 1, &[]), record("gaussian", 1, &[])]);
        let mut elsewhere = record("dense", 1, &[]);
        elsewhere.dataset = "other".into();
        let b = source("b", &[record("dense", 1, &[]), elsewhere]);
        let sources = [a, b];
        let groups = groups(&sources);
        assert_eq!(groups.iter().map(Group::title).collect::<Vec<_>>(), ["mt: invented", "mt: other"]);
        assert_eq!(names(&groups[0]), ["a/dense", "a/gaussian", "b/dense"]);
        assert_eq!(groups[0].rows[0].records.iter().map(|record| record.seed).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(names(&groups[1]), ["b/dense"]);
    }

    #[test]
    fn backends_and_configurations_are_not_averaged_together() {
        let mut records = [record("dense", 1, &[]), record("dense", 1, &[]), record("dense", 2, &[]), record("gaussian", 1, &[])];
        records[1].backend = "wgpu".into();
        records[2].configuration = "fedcba9876543210".into();
        let sources = [source("a", &records)];
        assert_eq!(names(&groups(&sources)[0]), ["dense [flex] [0123456789ab]", "dense [wgpu]", "dense [flex] [fedcba987654]", "gaussian"]);
    }

    #[test]
    fn the_baseline_is_what_is_asked_for_or_what_is_usual_or_the_first() {
        let baseline = |attentions: &[&str], name: Option<&str>| {
            let records: Vec<_> = attentions.iter().map(|attention| record(attention, 1, &[])).collect();
            groups(&[source("a", &records), source("b", &records)])[0].baseline(name)
        };
        assert_eq!(baseline(&["dense", "dot-product"], None), Some(1));
        assert_eq!(baseline(&["dense", "transformer"], None), Some(1));
        assert_eq!(baseline(&["dense", "gaussian"], None), Some(0));
        assert_eq!(baseline(&["dense", "gaussian"], Some("gaussian")), Some(1));
        assert_eq!(baseline(&["dense", "gaussian"], Some("b/gaussian")), Some(3));
        assert_eq!(baseline(&["dense"], Some("absent")), None);
    }
}
