//! The comparison of finished runs: a table for the terminal, and `report.md` with all that is needed to judge it; `report.html` shows the same as a page, with
//! pictures and tests of differences.
//!
//! A row is an attention mechanism or a model; a score is the mean over seeds with the sample standard deviation and the number of seeds. Runs on different
//! data sets or backends stand in different tables. The best mean of a column is marked, which says nothing about significance. Published numbers follow
//! in a table of their own, never in a row with measured ones.

mod circumstances;
mod page;
mod pictures;
mod tables;

use std::fmt::Write;
use std::path::Path;

use self::circumstances::circumstances;
pub(crate) use self::page::Content;
use crate::markup::{self, code};
use crate::metrics::{MetricColumn, Spread};
use crate::published::PublishedNumbers;
use crate::record::ResultRecord;
use crate::run_folder::{RunFolder, RunFolderError, RunPaths, write_atomically};

/// What is to be known of a row with one run.
const SINGLE_SEED: &str = "A single seed has no deviation: a difference between single runs may be chance (--seeds N gives more).";

/// A part of the report that only one experiment has, as Markdown.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Markdown below it.
    pub body: String,
}

/// A comparison of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Report<'a> {
    /// Title, such as `Machine translation`.
    pub title: String,
    /// What the rows are: `attention` or `model`.
    pub subject: &'static str,
    /// The finished runs.
    pub records: &'a [ResultRecord],
    /// The metrics to show, in this order.
    pub metrics: Vec<MetricColumn>,
    /// What papers report on the same task.
    pub published: PublishedNumbers,
    /// Further parts, placed before the published numbers.
    pub sections: Vec<Section>,
}

/// The runs that may be compared: one experiment, data set and backend, in rows of one mechanism and configuration.
struct Comparison<'a> {
    name: String,
    rows: Vec<Vec<&'a ResultRecord>>,
}

impl<'a> Report<'a> {
    /// The tables as aligned plain text, without a line break at the end.
    pub fn terminal(&self) -> String {
        let mut text = String::new();
        for comparison in self.comparisons() {
            let cells = self.cells(&comparison, |cell| format!("{cell} *"), |cell| format!("{cell}  "));
            let _ = write!(text, "{}\n\n{}\n", markup::one_line(&comparison.name), aligned(&cells));
        }
        text.push_str(self.legend("*").trim_end());
        text
    }

    /// The report as Markdown, for itself: it points to no files of runs.
    pub fn markdown(&self) -> String {
        self.markdown_beside(&[])
    }

    /// The report as Markdown, beside the folders of these runs.
    fn markdown_beside(&self, runs: &[RunPaths]) -> String {
        let mut text = format!("# {}\n", self.title);
        for comparison in self.comparisons() {
            let mut cells = self.cells(&comparison, |cell| format!("**{cell}**"), |cell| cell);
            cells[1..].iter_mut().for_each(|row| row[0] = markup::markdown(&row[0]));
            let _ = write!(text, "\n## {}\n\n{}", markup::markdown(&comparison.name), markdown_table(&cells, "---:"));
        }
        let _ = write!(text, "\n{}", self.legend("bold"));
        self.definitions(&mut text, runs);
        self.circumstances(&mut text);
        for section in &self.sections {
            let _ = write!(text, "\n## {}\n\n{}\n", section.title, section.body.trim());
        }
        self.published_table(&mut text);
        text
    }

    /// Writes the Markdown into the folder of the runs, whole or not at all.
    ///
    /// # Errors
    /// [`RunFolderError`] when the folder cannot be listed or the file not be written.
    pub fn write(&self, path: &Path) -> Result<(), RunFolderError> {
        let runs = path.parent().map_or_else(|| Ok(Vec::new()), |folder| RunFolder::at(folder).runs())?;
        write_atomically(path, self.markdown_beside(&runs).as_bytes())
    }

    fn comparisons(&self) -> Vec<Comparison<'a>> {
        let mut comparisons: Vec<Comparison<'a>> = Vec::new();
        for record in self.records {
            let name = format!("{}: {}, backend {}", record.experiment, record.dataset, record.backend);
            let index = comparisons.iter().position(|other| other.name == name).unwrap_or_else(|| {
                comparisons.push(Comparison { name, rows: Vec::new() });
                comparisons.len() - 1
            });
            let rows = &mut comparisons[index].rows;
            let same = |row: &&mut Vec<&ResultRecord>| row[0].attention == record.attention && row[0].configuration == record.configuration;
            match rows.iter_mut().find(same) {
                Some(row) => row.push(record),
                None => rows.push(vec![record]),
            }
        }
        comparisons
    }

    fn cells(&self, comparison: &Comparison<'_>, best: impl Fn(String) -> String, other: impl Fn(String) -> String) -> Vec<Vec<String>> {
        let rows = &comparison.rows;
        let mut cells = vec![vec![self.subject.to_string(), "seeds".into()]];
        cells.extend(rows.iter().map(|row| {
            let own = &row[0].attention;
            let name = match rows.iter().filter(|other| other[0].attention == *own).count() {
                1 => own.clone(),
                _ => format!("{own} [{}]", short(&row[0].configuration)),
            };
            vec![name, row.len().to_string()]
        }));
        let mut push = |column: Vec<String>| cells.iter_mut().zip(column).for_each(|(row, cell)| row.push(cell));
        // A metric of other data sets only is left out rather than shown empty.
        let records = || rows.iter().flatten().copied();
        for metric in self.metrics.iter().filter(|metric| is_scored_in(metric, records())) {
            let spreads: Vec<Option<Spread>> = rows.iter().map(|row| Spread::of(&values(row, metric))).collect();
            // A mechanism that failed on some seed is not the best by the mean of the others.
            let complete = |(row, spread): (&Vec<&ResultRecord>, &Option<Spread>)| spread.filter(|spread| spread.runs == row.len());
            let complete: Vec<Option<Spread>> = rows.iter().zip(&spreads).map(complete).collect();
            let best_mean = best_of(metric, &complete);
            let mut column = vec![other(metric.heading())];
            column.extend(rows.iter().zip(spreads.iter().zip(&complete)).map(|(row, (spread, complete))| {
                let cell = score_cell(metric, spread.as_ref(), row);
                match complete {
                    Some(complete) if best_mean.as_ref() == Some(&rounded(metric, complete)) => best(cell),
                    _ => other(cell),
                }
            }));
            push(column);
        }
        let mut cost = |heading: &str, show: &dyn Fn(&[&ResultRecord]) -> Option<String>| {
            let mut column = vec![heading.to_string()];
            column.extend(rows.iter().map(|row| show(row).unwrap_or_else(|| "–".into())));
            push(column);
        };
        cost("parameters", &|row| Some(grouped(row.iter().map(|record| record.parameters).max()?)));
        cost("tokens/s", &|row| mean(row.iter().filter_map(|record| record.speed())).map(|speed| grouped(speed.round() as u64)));
        cost("peak memory", &|row| row.iter().filter_map(|record| record.peak_memory_bytes).max().map(memory));
        cost("time/run", &|row| mean(row.iter().filter_map(|record| record.seconds())).map(duration));
        cells
    }

    fn legend(&self, mark: &str) -> String {
        let mark = if mark == "bold" { "bold".to_string() } else { format!("`{mark}`") };
        let mut text = format!(
            "Scores are means over seeds ± sample standard deviation; {mark} marks the best mean of a column, not a significant difference. \
             Peak memory is the largest, time the mean of the runs.\n"
        );
        if self.records.iter().any(|record| record.disturbed) {
            text.push_str("Runs that shared their cores with other runs or programs show no speeds and times.\n");
        }
        if self.comparisons().iter().flat_map(|comparison| &comparison.rows).any(|row| row.len() == 1) {
            let _ = writeln!(text, "{SINGLE_SEED}");
        }
        text
    }

    fn definitions(&self, text: &mut String, runs: &[RunPaths]) {
        if self.metrics.is_empty() {
            return;
        }
        text.push_str("\n## Metrics\n\n");
        for metric in self.metrics.iter().filter(|metric| is_scored_in(metric, self.records.iter())) {
            let direction = match metric.higher_is_better {
                Some(true) => ", higher is better",
                Some(false) => ", lower is better",
                None => "",
            };
            let _ = write!(text, "- **{}** (`{}`{direction})", metric.label, metric.name);
            if !metric.definition.is_empty() {
                let _ = write!(text, ": {}", metric.definition);
            }
            if let Some(file) = metric.file.as_ref().filter(|file| runs.iter().any(|run| run.root().join(file).is_file())) {
                let _ = write!(text, "; {} of the run shows them", code(file));
            }
            for signature in distinct(self.records.iter().filter_map(|record| record.signatures.get(&metric.name).cloned())) {
                let _ = write!(text, "; signature {}", code(&signature));
            }
            text.push('\n');
        }
        let notes = self.records.iter().flat_map(|record| record.notes.iter().map(move |note| format!("{}: {note}", record.key())));
        for note in distinct(notes) {
            let _ = writeln!(text, "- note, {}", markup::markdown(&note));
        }
    }

    fn circumstances(&self, text: &mut String) {
        text.push_str("\n## How it was measured\n\n");
        for (name, value) in circumstances(|| self.records.iter(), markup::markdown, code) {
            let _ = writeln!(text, "- {name}: {value}");
        }
        text.push_str("- Command:\n\n");
        for command in distinct(self.records.iter().map(|record| record.command.clone())) {
            for line in command.lines() {
                let _ = writeln!(text, "      {}", markup::one_line(line));
            }
        }
        text.push_str("\nThe values of every single run are in results.json, the learning curves in the log.jsonl of each run.\n");
    }

    fn published_table(&self, text: &mut String) {
        if self.published.numbers.is_empty() {
            return;
        }
        let _ = write!(text, "\n## Published numbers (from papers, not measured here)\n\n{}\n", self.published.note);
        text.push_str("Values marked unconfirmed were not found in the paper or in a public account of it.\n\n");
        let heading = ["paper", "table", "data set", "model", "attention here", "metric", "published value", "evidence"];
        let mut cells = vec![heading.map(String::from).to_vec()];
        cells.extend(self.published.numbers.iter().map(|row| {
            let here = row.attention.as_ref().map_or("–".into(), |name| format!("`{name}`"));
            let value = row.value.to_string();
            let evidence = row.evidence().to_string();
            vec![row.paper.clone(), row.table.clone(), row.dataset.clone(), row.model.clone(), here, row.metric.clone(), value, evidence]
        }));
        text.push_str(&markdown_table(&cells, "---"));
    }
}

/// Whether a record has a value of the metric, or says that it is undefined.
pub(crate) fn is_scored_in<'r>(metric: &MetricColumn, mut records: impl Iterator<Item = &'r ResultRecord>) -> bool {
    records.any(|record| record.metric(&metric.name).is_some())
}

pub(crate) fn values(row: &[&ResultRecord], metric: &MetricColumn) -> Vec<f64> {
    row.iter().filter_map(|record| record.metric(&metric.name).flatten()).map(|value| value * metric.factor).collect()
}

/// The best mean as it is printed: means that look equal are equally good.
pub(crate) fn best_of(metric: &MetricColumn, spreads: &[Option<Spread>]) -> Option<String> {
    let higher = metric.higher_is_better?;
    let known: Vec<&Spread> = spreads.iter().flatten().collect();
    // The best of one is no distinction.
    if known.len() < 2 {
        return None;
    }
    let order = |a: &&&Spread, b: &&&Spread| if higher { a.mean.total_cmp(&b.mean) } else { b.mean.total_cmp(&a.mean) };
    known.iter().max_by(order).map(|spread| rounded(metric, spread))
}

pub(crate) fn rounded(metric: &MetricColumn, spread: &Spread) -> String {
    format!("{:.*}", metric.digits, spread.mean)
}

pub(crate) fn score_cell(metric: &MetricColumn, spread: Option<&Spread>, row: &[&ResultRecord]) -> String {
    let Some(spread) = spread else {
        let measured = row.iter().any(|record| record.metric(&metric.name).is_some());
        return if measured { "undefined".into() } else { "–".into() };
    };
    let mut cell = rounded(metric, spread);
    if let Some(deviation) = spread.deviation {
        let _ = write!(cell, " ± {deviation:.*}", metric.digits);
    }
    if spread.runs < row.len() {
        let _ = write!(cell, " ({} of {} defined)", spread.runs, row.len());
    }
    cell
}

pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    Spread::of(&values).map(|spread| spread.mean)
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// In one unit up to 10 GiB, so that the rows of a column compare; indicatif changes it at every 1024.
pub(crate) fn memory(bytes: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let mib = bytes as f64 / MIB;
    if mib < 10.0 * 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// With two units, or tenths of a second; indicatif rounds to one.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

pub(crate) fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

pub(crate) fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Columns padded to equal width, the first flush left and the others flush right.
pub(crate) fn aligned(cells: &[Vec<String>]) -> String {
    let cells: Vec<Vec<String>> = cells.iter().map(|row| row.iter().map(|cell| markup::one_line(cell)).collect()).collect();
    let columns = cells.first().map_or(0, Vec::len);
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in cells.iter().enumerate() {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  ").trim_end());
        if index == 0 {
            let _ = writeln!(text, "{}", "─".repeat(widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1)));
        }
    }
    text
}

/// A Markdown table whose columns after the first are aligned by `rule` (`---` left, `---:` right).
pub(crate) fn markdown_table(cells: &[Vec<String>], rule: &str) -> String {
    let line = |row: &[String]| {
        let escaped: Vec<String> = row.iter().map(|cell| markup::one_line(cell).replace('|', "\\|")).collect();
        format!("| {} |\n", escaped.join(" | "))
    };
    let Some((heading, rows)) = cells.split_first() else { return String::new() };
    let rule: Vec<&str> = (0..heading.len()).map(|column| if column == 0 { "---" } else { rule }).collect();
    let mut text = format!("{}| {} |\n", line(heading), rule.join(" | "));
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markup::tests::{HOSTILE, assert_harmless};
    use crate::record::{Budget, Machine};

    pub(super) fn record(attention: &str, seed: u64, bleu: f64, perplexity: f64) -> ResultRecord {
        let mut record = ResultRecord {
            experiment: "mt".into(),
            dataset: "invented".into(),
            attention: attention.into(),
            backend: "flex".into(),
            seed,
            parameters: 1_234_567,
            tokens_per_second: Some(12_345.6),
            peak_memory_bytes: Some(400 << 20),
            wall_seconds: 61.0,
            command: "mt --attention 'a b' --seeds 2".into(),
            version: "0.1.0".into(),
            data_sha256: "feed".into(),
            machine: Machine { cpu: "Some CPU".into(), cores: 2, os: "linux x86_64".into() },
            configuration: "0123456789abcdef".into(),
            budget: Budget { steps: Some(1500), minutes: None },
            ..Default::default()
        };
        record.signatures.insert("bleu".into(), "nrefs:1|tok:13a".into());
        record.score("bleu", bleu);
        record.score("perplexity", perplexity);
        record
    }

    pub(super) fn columns() -> Vec<MetricColumn> {
        vec![
            MetricColumn::new("bleu", "BLEU").higher_is_better().defined_as("corpus BLEU of the test set"),
            MetricColumn::new("perplexity", "perplexity").lower_is_better(),
        ]
    }

    pub(super) fn report(records: &[ResultRecord]) -> Report<'_> {
        Report {
            title: "Machine translation".into(),
            subject: "attention",
            records,
            metrics: columns(),
            published: PublishedNumbers::default(),
            sections: Vec::new(),
        }
    }

    fn row<'t>(text: &'t str, start: &str) -> &'t str {
        text.lines().find(|line| line.trim_start_matches("| ").starts_with(start)).unwrap_or_else(|| panic!("no row {start} in\n{text}"))
    }

    #[test]
    fn a_row_shows_mean_and_sample_deviation_over_seeds_and_what_the_runs_cost() {
        let records = [record("dot-product", 1, 27.0, 9.0), record("dot-product", 2, 28.0, 9.0), record("dense", 1, 20.0, 8.0)];
        let text = report(&records).markdown();
        assert_eq!(
            row(&text, "dot-product"),
            "| dot-product | 2 | **27.50 ± 0.71** | 9.00 ± 0.00 | 1,234,567 | 12,346 | 400 MiB | 1 min 1 s |"
        );
        assert_eq!(row(&text, "dense"), "| dense | 1 | 20.00 | **8.00** | 1,234,567 | 12,346 | 400 MiB | 1 min 1 s |");
    }

    #[test]
    fn means_that_look_equal_are_marked_alike_and_a_single_row_is_not_marked() {
        let tie = [record("a", 1, 27.001, 1.0), record("b", 1, 27.004, 2.0)];
        let text = report(&tie).markdown();
        assert!(row(&text, "a ").contains("**27.00**") && row(&text, "b ").contains("**27.00**"), "{text}");
        assert!(!row(&text, "b ").contains("**2.00**"), "{text}");
        assert!(!row(&report(&tie[..1]).markdown(), "a ").contains("**"));
    }

    #[test]
    fn undefined_scores_are_counted_and_never_averaged_or_marked() {
        let records = [record("a", 1, f64::NAN, f64::NAN), record("a", 2, 10.0, f64::NAN), record("b", 1, 9.0, 5.0)];
        let text = report(&records).markdown();
        assert!(row(&text, "a ").contains("| 10.00 (1 of 2 defined) | undefined |"), "{text}");
        assert!(text.contains("note, mt / invented / a / flex / seed 1: bleu is NaN, recorded as undefined"), "{text}");
    }

    #[test]
    fn runs_on_other_data_backends_or_configurations_are_not_averaged_together() {
        let mut records = vec![record("a", 1, 1.0, 1.0), record("a", 1, 3.0, 1.0), record("a", 1, 5.0, 1.0), record("a", 2, 7.0, 1.0)];
        records[1].dataset = "other".into();
        records[2].backend = "wgpu".into();
        records[3].configuration = "fedcba9876543210".into();
        let text = report(&records).markdown();
        for title in ["## mt: invented, backend flex", "## mt: other, backend flex", "## mt: invented, backend wgpu"] {
            assert!(text.contains(title), "{text}");
        }
        assert!(row(&text, "a [0123456789ab]").contains("1.00") && row(&text, "a [fedcba987654]").contains("7.00"), "{text}");
    }

    #[test]
    fn the_terminal_table_is_aligned_and_marks_the_best_mean() {
        let records = [record("dot-product", 1, 27.0, 9.0), record("dot-product", 2, 28.0, 9.0), record("dense", 1, 20.0, 8.0)];
        let text = report(&records).terminal();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "mt: invented, backend flex");
        let widths: Vec<usize> = lines[2..6].iter().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
        assert!(row(&text, "dot-product").contains("27.50 ± 0.71 *") && row(&text, "dense").contains("8.00 *"), "{text}");
        assert!(text.contains("may be chance"), "{text}");
    }

    #[test]
    fn percent_and_digits_are_a_matter_of_the_column() {
        let mut run = record("a", 1, 1.0, 1.0);
        run.score("accuracy", 0.5);
        let records = [run, record("b", 1, 1.0, 1.0)];
        let metrics = vec![MetricColumn::new("accuracy", "accuracy (%)").percent().digits(1), MetricColumn::new("absent", "absent")];
        let text = Report { metrics, ..report(&records) }.markdown();
        assert!(row(&text, "a ").starts_with("| a | 1 | 50.0 |"), "{text}");
        assert!(row(&text, "b ").starts_with("| b | 1 | – |"), "{text}");
        assert!(!text.contains("absent"), "a metric that no run has is left out: {text}");
    }

    #[test]
    fn the_markdown_tells_how_the_runs_were_made() {
        let records = [record("a", 1, 1.0, 1.0)];
        let sections = vec![Section { title: "Figures".into(), body: "![curves](curves.svg)".into() }];
        let text = Report { sections, ..report(&records) }.markdown();
        for part in [
            "corpus BLEU of the test set; signature `nrefs:1|tok:13a`",
            "higher is better",
            "invented, SHA-256 `feed`",
            "Some CPU, up to 2 threads, linux x86_64",
            "Version: 0.1.0",
            "Commit: unknown",
            "1,500 steps",
            "      mt --attention 'a b' --seeds 2",
            "## Figures\n\n![curves](curves.svg)",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn a_report_points_to_a_file_that_a_run_has_and_to_no_other() {
        let mut run = record("a", 1, 1.0, 1.0);
        run.score("steps", 2.0);
        let records = [run];
        let metrics = vec![MetricColumn::new("steps", "steps").defined_as("of each position").shown_in("halting.txt")];
        let report = Report { metrics, ..report(&records) };
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::at(folder.path()).run("a", 1).unwrap();
        let written = || {
            report.write(&folder.path().join("report.md")).unwrap();
            std::fs::read_to_string(folder.path().join("report.md")).unwrap()
        };
        assert!(written().contains("- **steps** (`steps`): of each position\n") && !written().contains("halting.txt"), "{}", written());
        std::fs::write(run.root().join("halting.txt"), "1 2 2").unwrap();
        assert!(written().contains("of each position; `halting.txt` of the run shows them\n"), "{}", written());
        assert!(!report.markdown().contains("halting.txt"));
    }

    #[test]
    fn the_markdown_names_code_build_and_what_was_used_of_the_machine() {
        use crate::provenance::Provenance;
        let provenance = Provenance {
            commit: "0123456789abcdef".into(),
            is_clean: Some(false),
            compiler: "rustc 1.95.0".into(),
            features: vec!["ndarray".into(), "wgpu".into()],
            instruction_set: "x86-64-v3".into(),
            cpu_features: vec!["avx2".into(), "fma".into()],
            caches: Vec::new(),
            threads: 1,
            ranks: Some(2),
        };
        let records = [record("a", 1, 1.0, 1.0), ResultRecord { provenance: Some(provenance), ..record("b", 1, 1.0, 1.0) }];
        let text = report(&records).markdown();
        for part in [
            "- Machine: Some CPU, up to 2 threads, linux x86_64; Some CPU, 2 processes with 1 of 2 threads each, linux x86_64, x86-64-v3",
            "- Processor features: unknown; avx2, fma",
            "- Commit: unknown; 0123456789ab with changes",
            "- Build: unknown; rustc 1.95.0, features ndarray, wgpu",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn speeds_of_disturbed_runs_are_left_out() {
        let records = [ResultRecord { disturbed: true, ..record("a", 1, 1.0, 1.0) }, record("b", 1, 2.0, 1.0)];
        let text = report(&records).markdown();
        assert!(row(&text, "a ").ends_with("| 1,234,567 | – | 400 MiB | – |"), "{text}");
        assert!(row(&text, "b ").ends_with("| 1,234,567 | 12,346 | 400 MiB | 1 min 1 s |"), "{text}");
        assert!(text.contains("shared their cores with other runs or programs"), "{text}");
        assert!(!report(&records[1..]).markdown().contains("shared their cores"));
    }

    #[test]
    fn published_numbers_stand_in_a_table_of_their_own_with_their_evidence() {
        let records = [record("synthesizer-random", 1, 1.0, 1.0)];
        let text = Report { published: PublishedNumbers::machine_translation(), ..report(&records) }.markdown();
        let (measured, published) = text.split_once("## Published numbers (from papers, not measured here)").unwrap();
        assert!(!measured.contains("27.27") && !measured.contains("2005.00743"));
        assert!(
            published.contains("| Synthesizer (2005.00743) | 2 | WMT14 En-De | Random | `synthesizer-random` | BLEU | 27.27 | verified |"),
            "{published}"
        );
        assert!(published.contains("| HC-SA | `gaussian` | BLEU | 30.3 | unconfirmed |"), "{published}");
        assert!(!report(&records).markdown().contains("## Published"));
    }

    #[test]
    fn numbers_are_shown_with_sensible_units() {
        assert_eq!([grouped(0), grouped(999), grouped(1000), grouped(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([memory(3 << 20), memory(20 << 30)], ["3 MiB", "20.0 GiB"]);
        assert_eq!([duration(0.25), duration(59.4), duration(59.6), duration(3725.0)], ["0.2 s", "59.4 s", "1 min 0 s", "1 h 2 min"]);
    }

    #[test]
    fn a_bar_in_a_name_does_not_break_the_table() {
        let records = [record("a|b", 1, 1.0, 1.0)];
        assert!(report(&records).markdown().contains("| a&#124;b | 1 |"));
    }

    #[test]
    fn configuration_results_and_report_of_an_experiment_work_together() {
        use crate::options::RunSettings;
        use crate::results::{Results, write_result};
        use crate::run_folder::{RUN_TABLES, RunFolder};
        use crate::settings::{Assignment, Settings, digest};
        use std::collections::BTreeMap;

        #[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Configuration {
            run: RunSettings,
            training: BTreeMap<String, u64>,
        }

        fn run(root: &Path, seeds: u64, steps: u64, resume: bool) -> Result<usize, crate::error::ExperimentError> {
            let given = ["run.attention=[\"dot-product\"]".to_string(), format!("run.seeds={seeds}"), format!("training.steps={steps}")];
            let given = given.iter().map(|text| Assignment::parse(text)).collect::<Result<Vec<_>, _>>()?;
            let settings = Settings::<Configuration>::read(None, given)?;
            settings.value.run.check(&settings, &["dot-product"], &["flex"])?;
            let folder = RunFolder::open(root, &settings.value, resume)?;
            folder.choose_runs(&settings.value)?;
            let configuration = digest(&settings.value, &RUN_TABLES)?;
            let results = Results::read(&folder)?;
            let mut trained = 0;
            for seed in settings.value.run.seeds() {
                let scored = record("dot-product", seed, 20.0 + seed as f64, 5.0);
                let done = ResultRecord { configuration: configuration.clone(), finished_ms: Some(seed), ..scored };
                if results.finished(&done.key(), &configuration)?.is_none() {
                    write_result(&folder.run("dot-product", seed)?, &done)?;
                    trained += 1;
                }
            }
            Results::derive(&folder, |results| Ok::<_, crate::error::ExperimentError>(report(results.records()).write(&folder.report())?))?;
            Ok(trained)
        }

        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("out");
        assert_eq!(run(&root, 2, 100, false).unwrap(), 2);
        assert_eq!(run(&root, 3, 100, true).unwrap(), 1, "two of the three runs are finished");
        assert_eq!(run(&root, 3, 200, true).unwrap_err().exit_code(), 2);
        let text = std::fs::read_to_string(root.join("report.md")).unwrap();
        assert!(row(&text, "dot-product").starts_with("| dot-product | 3 | 22.00 ± 1.00 |"), "{text}");
        let again = Settings::<Configuration>::read(Some(&root.join("config.toml")), Vec::new()).unwrap().value;
        assert_eq!((again.run.seeds, again.training["steps"]), (3, 100));
    }

    #[test]
    fn hostile_names_are_text_in_the_report() {
        let mut hostile = record(HOSTILE, 1, 1.0, 2.0);
        hostile.dataset = HOSTILE.into();
        hostile.backend = HOSTILE.into();
        hostile.machine.cpu = HOSTILE.into();
        hostile.command = HOSTILE.into();
        hostile.notes = vec![HOSTILE.into()];
        hostile.signatures.insert("bleu".into(), "a`b\n# g".into());
        let records = [hostile, record("dense", 1, 2.0, 1.0)];
        let report = report(&records);
        let text = report.markdown();
        let (before, command) = text.split_once("- Command:").unwrap();
        assert_harmless(before);
        assert!(before.contains("signature ``a`b # g``"), "{before}");
        let command: Vec<&str> =
            command.lines().take_while(|line| !line.contains("every single run")).filter(|line| !line.is_empty()).collect();
        assert!(command.iter().all(|line| line.starts_with("      ")) && command.len() > 1, "a line leaves the block of code: {command:?}");
        assert!(!report.terminal().contains('\u{1b}'));
    }
}
