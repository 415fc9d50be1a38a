//! The comparison of finished runs: a table for the terminal, and `report.md` with all that is needed to judge it; `report.html` shows the same as a page, with
//! pictures and tests of differences.
//!
//! A row is an attention mechanism or a model; a score is the mean over seeds with the sample standard deviation and the number of seeds. Runs on different
//! data sets or backends stand in different tables. The best mean of a column is marked, which says nothing about significance. Published numbers follow
//! in a table of their own, never in a row with measured ones.

use std::fmt::Write;
use std::path::Path;

use heedful_host::display::distinct;
use heedful_host::exit::ProgramError;
use heedful_host::provenance::Provenance;
use heedful_host::whole_files::write_atomically;
use heedful_metrics::MetricColumn;

use crate::compare::circumstances::circumstances;
use crate::compare::group::{Group, groups};
use crate::compare::page::Content;
pub use crate::compare::page::Section;
use crate::compare::runs::RunSource;
use crate::compare::table::{Comparison, SINGLE_SEED};
use crate::compare::{CompareOptions, render};
use crate::markup::{self, code, markdown_table};
use crate::published::PublishedNumbers;
use crate::record::ResultRecord;
use crate::run_folder::{RunFolder, RunFolderError, RunPaths};
use crate::trivial::TrivialBaseline;

/// A comparison of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Report<'a> {
    /// Title, such as `Machine translation`.
    pub title: String,
    /// What the rows are: `attention` or `model`.
    pub subject: &'static str,
    /// The finished runs.
    pub records: &'a [ResultRecord],
    /// Scores without attention or without learning.
    pub trivial: Vec<TrivialBaseline>,
    /// The metrics to show, in this order.
    pub metrics: Vec<MetricColumn>,
    /// What papers report on the same task.
    pub published: PublishedNumbers,
    /// Further parts, placed before the published numbers.
    pub sections: Vec<Section>,
}

impl Report<'_> {
    /// The tables as aligned plain text, without a line break at the end.
    pub fn terminal(&self) -> String {
        let mut text = String::new();
        let sources = self.sources(&no_folder());
        for comparison in comparisons(&sources, Comparison::without_tests) {
            let title = markup::one_line(&comparison.group.title_with_backend());
            let _ = writeln!(text, "{title}\n\n{}", render::aligned_table(&comparison, self.subject));
            for sentence in comparison.trivial_notes() {
                let _ = writeln!(text, "{}", markup::one_line(&sentence));
            }
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
        let sources = self.sources(&no_folder());
        for comparison in comparisons(&sources, Comparison::without_tests) {
            let title = markup::markdown(&comparison.group.title_with_backend());
            let _ = write!(text, "\n## {title}\n\n{}", render::markdown_of(&comparison, self.subject));
            for sentence in comparison.trivial_notes() {
                let _ = write!(text, "\n{}\n", markup::markdown(&sentence));
            }
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
        Ok(write_atomically(path, self.markdown_beside(&runs).as_bytes())?)
    }

    /// The report as one HTML page, with what the folder of the runs has beside their results: learning curves, configuration, pictures of analyses.
    ///
    /// # Errors
    /// A file of an analysis that cannot be read, or a picture that cannot be drawn.
    pub fn html(&self, folder: &RunFolder) -> Result<String, ProgramError> {
        let sources = self.sources(folder);
        // Reports are equal, whichever program makes them.
        let nobody = Provenance::default();
        let comparisons = comparisons(&sources, |group| {
            let mut comparison = Comparison::of(&nobody, group, &CompareOptions::default());
            comparison.left_out.clear();
            comparison
        });
        let Self { title, subject, sections, published, .. } = self;
        Content { title, subject, comparisons: &comparisons, sections, published }.html()
    }

    /// Writes the page into the folder of the runs, whole or not at all.
    ///
    /// # Errors
    /// Those of [`html`](Self::html), and a page that cannot be written.
    pub fn write_page(&self, folder: &RunFolder) -> Result<(), ProgramError> {
        Ok(write_atomically(&folder.page(), self.html(folder)?.as_bytes())?)
    }

    /// The runs of each experiment, data set and backend, which stand in a table of their own.
    fn sources(&self, folder: &RunFolder) -> Vec<RunSource> {
        let mut sources: Vec<RunSource> = Vec::new();
        for record in self.records {
            let of = |record: &ResultRecord| [&record.experiment, &record.dataset, &record.backend].map(String::clone);
            let index = sources.iter().position(|source| of(&source.records[0]) == of(record)).unwrap_or_else(|| {
                let (path, folder, trivial) = (folder.root().to_owned(), folder.clone(), self.trivial.clone());
                sources.push(RunSource { label: String::new(), path, folder, records: Vec::new(), trivial });
                sources.len() - 1
            });
            sources[index].records.push(ResultRecord { columns: self.metrics.clone(), ..record.clone() });
        }
        sources
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
        let sources = self.sources(&no_folder());
        if comparisons(&sources, Comparison::without_tests)
            .iter()
            .flat_map(|comparison| &comparison.group.rows)
            .any(|row| row.records.len() == 1)
        {
            let _ = writeln!(text, "{SINGLE_SEED}");
        }
        text
    }

    fn definitions(&self, text: &mut String, runs: &[RunPaths]) {
        if self.metrics.is_empty() {
            return;
        }
        text.push_str("\n## Metrics\n\n");
        for metric in self.metrics.iter().filter(|metric| self.records.iter().any(|record| record.metric(&metric.name).is_some())) {
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

/// One comparison for each table.
fn comparisons<'s>(sources: &'s [RunSource], of: impl Fn(Group<'s>) -> Comparison<'s>) -> Vec<Comparison<'s>> {
    sources.iter().flat_map(|source| groups(std::slice::from_ref(source))).map(of).collect()
}

/// Tables without tests read no file of the runs.
fn no_folder() -> RunFolder {
    RunFolder::at(Path::new(""))
}

#[cfg(test)]
mod tests;
