//! Comparisons as one page (`report.html`, `compare.html`), which needs no other file and no network.
//!
//! The page shows what `compare` says of the runs: tables that sort, seeds as dots, learning curves, differences from a baseline, costs, published numbers,
//! pictures that models made, maps of attention where `analyse` has drawn them, configuration and provenance. It depends on the files of the folder alone, not
//! on when, where or by which program it is made.
//!
//! Whatever comes from results is text to the template, which escapes it. Only pictures that this program draws are markup. A policy in the page itself forbids
//! browsers to load anything, and to run any script but the one of the page.

mod pictures;
mod tables;

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use heedful_host::display::distinct;
use heedful_host::exit::ProgramError;
use heedful_metrics::MetricColumn;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use sha2::{Digest, Sha256};

use self::pictures::{Figure, Gallery};
use self::tables::{Table, provenance, published, runs};
use super::circumstances::circumstances;
use super::group::Group;
use super::runs::RunSource;
use super::table::{Comparison, SINGLE_SEED};
use crate::published::PublishedNumbers;

const TEMPLATE: &str = include_str!("page/page.html.jinja");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// A part of a report that only one experiment has, as Markdown.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Markdown below it.
    pub body: String,
}

/// What a page shows.
pub(crate) struct Content<'a> {
    pub(crate) title: &'a str,
    /// What the rows are: `attention` or `model`.
    pub(crate) subject: &'a str,
    pub(crate) comparisons: &'a [Comparison<'a>],
    pub(crate) sections: &'a [Section],
    pub(crate) published: &'a PublishedNumbers,
}

impl Content<'_> {
    /// The page.
    ///
    /// # Errors
    /// A picture that cannot be drawn or read.
    pub(crate) fn html(&self) -> Result<String, ProgramError> {
        let page = Page::of(self)?;
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        // Templates of this ending escape all that they are given.
        environment.render_named_str("page.html", TEMPLATE, Serde(&page)).map_err(ProgramError::failure)
    }

    fn groups(&self) -> impl Iterator<Item = &Group<'_>> {
        self.comparisons.iter().map(|comparison| &comparison.group)
    }

    /// The folders of the runs, each once.
    fn sources(&self) -> Vec<&RunSource> {
        let mut sources: Vec<&RunSource> = Vec::new();
        for row in self.groups().flat_map(|group| &group.rows) {
            if !sources.iter().any(|source| source.path == row.source.path) {
                sources.push(row.source);
            }
        }
        sources
    }
}

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    style: &'static str,
    script: &'static str,
    /// SHA-256 of the script, as policies have it.
    script_hash: String,
    circumstances: Vec<(&'static str, String)>,
    parts: Vec<Part>,
    sections: Vec<Prose<'a>>,
    galleries: Vec<Gallery>,
    published_note: &'a str,
    published: Option<Table>,
    provenance: Table,
    commands: Vec<String>,
    configurations: Vec<Configuration>,
}

impl<'a> Page<'a> {
    fn of(content: &Content<'a>) -> Result<Self, ProgramError> {
        let mut room = pictures::MOST_BYTES;
        let part = |comparison| Part::of(comparison, content.subject, &mut room);
        let parts = content.comparisons.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let records = || content.groups().flat_map(Group::records);
        let sources = content.sources();
        Ok(Self {
            title: content.title,
            style: STYLE,
            script: SCRIPT,
            script_hash: BASE64_STANDARD.encode(Sha256::digest(SCRIPT)),
            circumstances: circumstances(records, str::to_owned, str::to_owned).into(),
            parts,
            sections: content.sections.iter().map(Prose::of).collect(),
            galleries: pictures::galleries(&sources)?,
            published_note: &content.published.note,
            published: (!content.published.numbers.is_empty()).then(|| published(&content.published.numbers)),
            provenance: provenance(content.comparisons),
            commands: distinct(records().map(|record| record.command.clone())),
            configurations: sources.iter().filter_map(|source| Configuration::of(source)).collect(),
        })
    }
}

/// One comparison.
#[derive(Serialize)]
struct Part {
    title: String,
    /// The verdict in a few lines, each below a label.
    summary: Vec<(String, String)>,
    table: Table,
    /// How to read the table.
    legend: Vec<String>,
    warnings: Vec<String>,
    seeds: Vec<Figure>,
    curves: Vec<Figure>,
    costs: Vec<Figure>,
    /// Pictures that models made.
    made: Vec<Gallery>,
    baseline: Option<String>,
    differences: Option<Table>,
    /// How to read the tests.
    test_legend: Vec<String>,
    metrics: Vec<Metric>,
    notes: Vec<String>,
    runs: Table,
}

impl Part {
    /// `room` is how many bytes of pictures that models made the page still has room for.
    fn of(comparison: &Comparison<'_>, subject: &str, room: &mut u64) -> Result<Self, ProgramError> {
        let Comparison { group, metrics, .. } = comparison;
        let title = group.title_with_backend();
        let mut table = Table::of(&title, comparison.narrow_table(subject));
        for column in &mut table.columns {
            let metric = metrics.iter().enumerate().find(|(_, metric)| metric.heading() == column.heading);
            if let Some((index, metric)) = metric {
                column.metric = Some(index);
                column.begins_descending = metric.higher_is_better == Some(true);
            }
        }
        let (curves, without_curves) = pictures::learning(comparison)?;
        let differences = comparison.differences();
        let differences = (!differences.is_empty()).then(|| Table::of_texts(&format!("Differences, {title}"), differences, &[2, 4]));
        let mut legend = comparison.score_legend("bold").concat();
        if group.rows.iter().any(|row| row.records.len() == 1) {
            legend.push(SINGLE_SEED.to_owned());
        }
        // Where a folder is says nothing of its runs.
        let places = group.rows.iter().map(|row| format!("{}/", row.source.path.display()));
        let named = |warning: &String| places.clone().fold(warning.clone(), |warning, place| warning.replace(&place, ""));
        Ok(Self {
            summary: comparison.summary(),
            table,
            legend,
            warnings: distinct(comparison.warnings.iter().map(named).chain(without_curves)),
            seeds: pictures::seeds(comparison)?,
            curves,
            costs: pictures::costs(comparison)?,
            made: pictures::made(comparison, room)?,
            baseline: comparison.baseline_name().map(str::to_owned),
            differences,
            test_legend: comparison.test_legend(),
            metrics: metrics.iter().map(|metric| Metric::of(metric, group)).collect(),
            notes: distinct(group.records().flat_map(|record| record.notes.iter().map(move |note| format!("{}: {note}", record.key())))),
            runs: runs(comparison, subject, &title),
            title,
        })
    }
}

/// What is known of a metric.
#[derive(Serialize)]
struct Metric {
    heading: String,
    name: String,
    direction: &'static str,
    definition: String,
    signatures: Vec<String>,
    file: Option<String>,
}

impl Metric {
    fn of(metric: &MetricColumn, group: &Group<'_>) -> Self {
        let is_there = |file: &&String| {
            group.runs().any(|(row, record)| row.source.folder_of(record).is_some_and(|run| run.root().join(file).is_file()))
        };
        Self {
            heading: metric.heading(),
            name: metric.name.clone(),
            direction: match metric.higher_is_better {
                Some(true) => "higher is better",
                Some(false) => "lower is better",
                None => "",
            },
            definition: metric.definition.clone(),
            signatures: distinct(group.records().filter_map(|record| record.signatures.get(&metric.name).cloned())),
            file: metric.file.as_ref().filter(is_there).cloned(),
        }
    }
}

/// A section of Markdown, of which lists and paragraphs are shown as such.
#[derive(Serialize)]
struct Prose<'a> {
    title: &'a str,
    lines: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    text: &'a str,
    is_item: bool,
}

impl<'a> Prose<'a> {
    fn of(section: &'a Section) -> Self {
        let line = |line: &'a str| match line.strip_prefix("* ").or_else(|| line.strip_prefix("- ")) {
            Some(text) => Line { text, is_item: true },
            None => Line { text: line, is_item: false },
        };
        Self { title: &section.title, lines: section.body.lines().filter(|line| !line.trim().is_empty()).map(line).collect() }
    }
}

/// The configuration of a folder.
#[derive(Serialize)]
struct Configuration {
    name: String,
    text: String,
}

impl Configuration {
    /// That of `source`, unless it cannot be read.
    fn of(source: &RunSource) -> Option<Self> {
        let path = source.folder.config();
        let name = Path::new(&source.label).join(path.file_name()?).display().to_string();
        Some(Self { name, text: fs::read_to_string(path).ok()? })
    }
}
