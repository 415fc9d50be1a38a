//! The tables of the page.

use heedful_host::display::{grouped, short};
use heedful_metrics::MetricColumn;
use serde::Serialize;

use crate::compare::circumstances::provenance_in_words;
use crate::compare::table::{Cell, Comparison};
use crate::published::PublishedNumber;
use crate::record::ResultRecord;

/// A table that can be sorted.
#[derive(Serialize)]
pub(super) struct Table {
    /// What it shows; its accessible name.
    name: String,
    pub(super) columns: Vec<Column>,
    rows: Vec<Vec<Entry>>,
}

#[derive(Serialize)]
pub(super) struct Column {
    pub(super) heading: String,
    is_number: bool,
    pub(super) begins_descending: bool,
    /// Number of the metric that it shows.
    pub(super) metric: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Entry {
    text: String,
    /// What it is sorted by, if that is not its text.
    value: Option<String>,
    best: bool,
    /// Whether it names a row that is a trivial baseline.
    trivial: bool,
}

impl Table {
    /// The first of `cells` are headings.
    pub(super) fn of(name: &str, mut cells: Vec<Vec<Cell>>) -> Self {
        let headings = cells.remove(0);
        let is_number = |column: usize| cells.iter().any(|row| row[column].value.is_some());
        let columns = headings.into_iter().enumerate().map(|(column, Cell { text, .. })| Column {
            heading: text,
            is_number: is_number(column),
            begins_descending: false,
            metric: None,
        });
        let columns = columns.collect();
        let entry = |Cell { text, value, best, trivial }| Entry { text, value: value.map(|value: f64| value.to_string()), best, trivial };
        Self { name: name.to_owned(), columns, rows: cells.into_iter().map(|row| row.into_iter().map(entry).collect()).collect() }
    }

    /// The texts in the columns `numbers` begin with one.
    pub(super) fn of_texts(name: &str, texts: Vec<Vec<String>>, numbers: &[usize]) -> Self {
        let number = |text: &str| text.trim_start_matches('<').split(' ').next()?.replace(',', "").parse().ok();
        let cell = |(column, text): (usize, String)| Cell {
            value: numbers.contains(&column).then(|| number(&text)).flatten(),
            text,
            best: false,
            trivial: false,
        };
        Self::of(name, texts.into_iter().map(|row| row.into_iter().enumerate().map(cell).collect()).collect())
    }
}

/// The scores of every single run.
pub(super) fn runs(comparison: &Comparison<'_>, subject: &str, title: &str) -> Table {
    let mut texts = vec![[subject, "seed", "steps"].map(str::to_owned).to_vec()];
    texts[0].extend(comparison.metrics.iter().map(MetricColumn::heading));
    texts[0].extend(["parameters", "peak memory (bytes)", "seconds"].map(str::to_owned));
    let score = |record: &ResultRecord, metric: &MetricColumn| match record.metric(&metric.name) {
        Some(Some(value)) => format!("{:.*}", metric.digits, value * metric.factor),
        Some(None) => "undefined".to_owned(),
        None => "–".to_owned(),
    };
    for (row, record) in comparison.group.runs() {
        let mut line = vec![row.name.clone(), record.seed.to_string(), grouped(record.steps)];
        line.extend(comparison.metrics.iter().map(|metric| score(record, metric)));
        let known = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        line.extend([
            grouped(record.parameters),
            known(record.peak_memory_bytes.map(grouped)),
            known(record.seconds().map(|seconds| format!("{seconds:.2}"))),
        ]);
        texts.push(line);
    }
    let numbers: Vec<usize> = (1..texts[0].len()).collect();
    Table::of_texts(&format!("Every run, {title}"), texts, &numbers)
}

/// What every single run was computed by and from.
pub(super) fn provenance(comparisons: &[Comparison<'_>]) -> Table {
    let heading =
        ["run", "seed", "commit", "version", "machine", "build", "processor features", "data (SHA-256)", "configuration", "backend"];
    let mut texts = vec![heading.map(str::to_owned).to_vec()];
    for Comparison { group, .. } in comparisons {
        for (row, record) in group.runs() {
            let [build, features] = provenance_in_words(record);
            texts.push(vec![
                format!("{}, {}", group.title(), row.name),
                record.seed.to_string(),
                record.code(),
                record.version.clone(),
                record.machine_in_words(),
                build,
                features,
                short(&record.data_sha256).to_owned(),
                short(&record.configuration).to_owned(),
                record.backend.clone(),
            ]);
        }
    }
    Table::of_texts("Provenance of every run", texts, &[1])
}

/// What papers report.
pub(super) fn published(numbers: &[PublishedNumber]) -> Table {
    let heading = ["model", "paper", "table", "data set", "attention here", "metric", "published value", "evidence"];
    let row = |number: &PublishedNumber| {
        let here = number.attention.clone().unwrap_or_else(|| "–".into());
        let (value, evidence) = (number.value.to_string(), number.evidence().to_owned());
        let PublishedNumber { model, paper, table, dataset, metric, .. } = number.clone();
        vec![model, paper, table, dataset, here, metric, value, evidence]
    };
    let texts = std::iter::once(heading.map(str::to_owned).to_vec()).chain(numbers.iter().map(row)).collect();
    Table::of_texts("Published numbers", texts, &[6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_sorted_by_the_numbers_that_they_begin_with() {
        let rows = ["number", "1,234 ± 5", "<0.001 †", "-1.5 to 2", "undefined", "8bit"].map(|text| vec!["x".to_owned(), text.to_owned()]);
        let table = Table::of_texts("a table", rows.to_vec(), &[1]);
        let values: Vec<_> = table.rows.iter().map(|row| row[1].value.as_deref()).collect();
        assert_eq!(values, [Some("1234"), Some("0.001"), Some("-1.5"), None, None]);
        assert_eq!([table.columns[0].is_number, table.columns[1].is_number], [false, true]);
    }
}
