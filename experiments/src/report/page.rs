//! `report.html`: the comparison as one page, which needs no other file and no network.
//!
//! The page shows what `compare` says of the runs: tables that sort, seeds as dots, learning curves, differences from a baseline, costs, published numbers,
//! maps of attention where `analyse` has drawn them, configuration and provenance. It depends on the files of the folder alone, not on when, where or by
//! which program it is made.
//!
//! Whatever comes from results is text to the template, which escapes it. Only pictures that this program draws are markup. A policy in the page itself forbids
//! browsers to load anything, and to run any script but the one of the page.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::circumstances::circumstances;
use super::pictures::{self, Figure, Gallery};
use super::tables::{Table, provenance, published, runs};
use super::{Report, Section, distinct};
use crate::compare::CompareOptions;
use crate::compare::group::{Group, Row, groups};
use crate::compare::runs::RunSource;
use crate::compare::table::Comparison;
use crate::error::ExperimentError;
use crate::metrics::MetricColumn;
use crate::provenance::Provenance;
use crate::published::PublishedNumbers;
use crate::record::ResultRecord;
use crate::run_folder::{RunFolder, write_atomically};

const TEMPLATE: &str = include_str!("page.html.jinja");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl Report<'_> {
    /// The report as one HTML page, with what the folder of the runs has beside their results: learning curves, configuration, pictures of analyses.
    ///
    /// # Errors
    /// A file of an analysis that cannot be read, or a picture that cannot be drawn.
    pub fn html(&self, folder: &RunFolder) -> Result<String, ExperimentError> {
        let known = |record: ResultRecord| ResultRecord { columns: self.metrics.clone(), ..record };
        let source = |comparison: super::Comparison<'_>| RunSource {
            label: String::new(),
            path: folder.root().to_owned(),
            folder: folder.clone(),
            records: comparison.rows.into_iter().flatten().cloned().map(known).collect(),
        };
        let sources: Vec<RunSource> = self.comparisons().into_iter().map(source).collect();
        let groups = sources.iter().flat_map(|source| groups(std::slice::from_ref(source)));
        // Reports are equal, whichever program makes them.
        let nobody = Provenance::default();
        let comparisons: Vec<_> = groups
            .map(|group| {
                let mut comparison = Comparison::by(&nobody, group, &CompareOptions::default());
                comparison.left_out.clear();
                comparison
            })
            .collect();
        let Self { title, subject, sections, published, .. } = self;
        Content { title, subject, comparisons: &comparisons, sections, published }.html()
    }

    /// Writes the page into the folder of the runs, whole or not at all.
    ///
    /// # Errors
    /// Those of [`html`](Self::html), and a page that cannot be written.
    pub fn write_page(&self, folder: &RunFolder) -> Result<(), ExperimentError> {
        Ok(write_atomically(&folder.page(), self.html(folder)?.as_bytes())?)
    }
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
    /// A picture that cannot be drawn, or an analysis that cannot be read.
    pub(crate) fn html(&self) -> Result<String, ExperimentError> {
        let page = Page::of(self)?;
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        // Templates of this ending escape all that they are given.
        environment.render_named_str("page.html", TEMPLATE, Serde(&page)).map_err(ExperimentError::failure)
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
    /// How to read all tables.
    legend: Vec<String>,
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
    fn of(content: &Content<'a>) -> Result<Self, ExperimentError> {
        let mut parts =
            content.comparisons.iter().map(|comparison| Part::of(comparison, content.subject)).collect::<Result<Vec<_>, _>>()?;
        let legend: Vec<String> = match parts.split_first() {
            Some((first, others)) => {
                first.legend.iter().filter(|sentence| others.iter().all(|part| part.legend.contains(sentence))).cloned().collect()
            }
            None => Vec::new(),
        };
        parts.iter_mut().for_each(|part| part.legend.retain(|sentence| !legend.contains(sentence)));
        let records = || content.groups().flat_map(Group::records);
        let sources = content.sources();
        Ok(Self {
            title: content.title,
            style: STYLE,
            script: SCRIPT,
            script_hash: BASE64_STANDARD.encode(Sha256::digest(SCRIPT)),
            circumstances: circumstances(records, str::to_owned, str::to_owned).into(),
            legend,
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
    table: Table,
    legend: Vec<String>,
    warnings: Vec<String>,
    seeds: Vec<Figure>,
    curves: Vec<Figure>,
    costs: Vec<Figure>,
    baseline: Option<String>,
    differences: Option<Table>,
    metrics: Vec<Metric>,
    notes: Vec<String>,
    runs: Table,
}

impl Part {
    fn of(comparison: &Comparison<'_>, subject: &str) -> Result<Self, ExperimentError> {
        let Comparison { group, metrics, .. } = comparison;
        let title = match &distinct(group.records().map(|record| record.backend.clone()))[..] {
            [backend] => format!("{}, backend {backend}", group.title()),
            _ => group.title(),
        };
        let mut cells = comparison.table();
        cells[0][0].text = subject.to_owned();
        let mut table = Table::of(&title, cells);
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
        let mut legend = comparison.legend("bold");
        if group.rows.iter().any(|row| row.records.len() == 1) {
            legend.push(super::SINGLE_SEED.to_owned());
        }
        // Where a folder is says nothing of its runs.
        let places = group.rows.iter().map(|row| format!("{}/", row.source.path.display()));
        let named = |warning: &String| places.clone().fold(warning.clone(), |warning, place| warning.replace(&place, ""));
        Ok(Self {
            table,
            legend,
            warnings: distinct(comparison.warnings.iter().map(named).chain(without_curves)),
            seeds: pictures::seeds(comparison)?,
            curves,
            costs: pictures::costs(comparison)?,
            baseline: comparison.baseline_name().map(str::to_owned),
            differences,
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
        let has_file = |row: &Row<'_>, record: &ResultRecord, file: &String| {
            let run = row.source.folder.existing_run(&record.dataset, &record.attention, record.seed);
            run.is_some_and(|run| run.root().join(file).is_file())
        };
        let is_there = |file: &&String| group.rows.iter().any(|row| row.records.iter().any(|record| has_file(row, record, file)));
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

#[cfg(test)]
mod tests {
    use super::super::tests::{record, report};
    use super::*;
    use crate::markup::tests::HOSTILE;
    use crate::published::PublishedNumber;

    const PICTURE: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";

    fn records() -> Vec<ResultRecord> {
        [("dot-product", 1, 27.0), ("dot-product", 2, 28.0), ("dense", 1, 20.5), ("dense", 2, 20.0)]
            .map(|(attention, seed, bleu)| record(attention, seed, bleu, 9.0 + seed as f64))
            .to_vec()
    }

    /// A folder with logs of the runs, a configuration, and an analysis.
    fn folder(root: &Path, records: &[ResultRecord]) -> RunFolder {
        let folder = RunFolder::at(root);
        for record in records {
            let line = |step: u64| format!("{{\"step\":{step},\"loss\":{},\"seconds\":{step}.5}}\n", record.seed as f64 / step as f64);
            let part = if records.iter().all(|other| other.dataset == record.dataset) {
                folder.clone()
            } else {
                folder.part(&record.dataset).unwrap()
            };
            fs::write(part.run(&record.attention, record.seed).unwrap().log(), [1, 2, 3].map(line).concat()).unwrap();
        }
        fs::write(folder.config(), "[run]\nattention = [\"</code><script>\"]\n").unwrap();
        let analysis = folder.analysis("dot-product", 1);
        fs::create_dir_all(analysis.join("maps")).unwrap();
        for file in ["entropy.svg", "maps/text0-decoder.svg", "maps/text0-decoder.png"] {
            fs::write(analysis.join(file), PICTURE).unwrap();
        }
        folder
    }

    fn page(records: &[ResultRecord]) -> String {
        let place = tempfile::tempdir().unwrap();
        report(records).html(&folder(place.path(), records)).unwrap()
    }

    #[track_caller]
    fn assert_holds(page: &str, parts: &[&str]) {
        for part in parts {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
    }

    #[test]
    fn every_part_stands_in_the_page() {
        let (place, records) = (tempfile::tempdir().unwrap(), records());
        let sections = vec![Section { title: "Data".into(), body: "* small: 7 pairs\nAnd <more>.".into() }];
        let report = Report { sections, published: PublishedNumbers::machine_translation(), ..report(&records) };
        let folder = folder(place.path(), &records);
        let page = report.html(&folder).unwrap();
        assert_holds(
            &page,
            &[
                "<title>Machine translation</title>",
                "mt: invented, backend flex</h2>",
                "<strong>27.50 ± 0.71</strong><span class=\"unseen\"> (best)</span>",
                "data-value=\"1234567\">1,234,567</td>",
                "<th scope=\"col\" class=\"number\" data-first=\"descending\"><button type=\"button\" aria-describedby=\"part-1-metric-0\">BLEU ↑</button></th>",
                "<dd id=\"part-1-metric-0\">corpus BLEU of the test set; higher is better; recorded as <code>bleu</code>; signature <code>nrefs:1|tok:13a</code></dd>",
                "aria-label=\"BLEU of each seed. dot-product: 27.00, 28.00; dense: 20.50, 20.00.\"",
                "aria-label=\"Curves over steps: training loss. Lines are means over seeds.\"",
                "<summary>The same against time</summary>",
                "<h3>Significance: differences from dot-product</h3>",
                "Welch&#x27;s t-test, 2 and 2 seeds",
                "aria-label=\"BLEU against parameters. dot-product: 27.50 for 1234567; dense: 20.25 for 1234567.\"",
                "BLEU against seconds of a run",
                "<p class=\"item\">small: 7 pairs</p>\n<p>And &lt;more&gt;.</p>",
                "<summary>dot-product-seed1</summary>",
                "alt=\"dot-product-seed1: text0-decoder\"",
                "Published numbers (from papers, not measured here)</h2>",
                "<td>synthesizer-random</td>",
                "<dt>Data</dt>\n<dd>invented, SHA-256 feed</dd>",
                "<code>mt --attention &#x27;a b&#x27; --seeds 2</code>",
                "<td>Some CPU, up to 2 threads, linux x86_64</td>",
                "<code>[run]\nattention = [&quot;&lt;&#x2f;code&gt;&lt;script&gt;&quot;]",
            ],
        );
        assert_eq!(page.matches("<svg role=\"img\" aria-label=\"").count(), page.matches("<svg").count(), "each picture has a name");
        assert_eq!(page.matches("<polygon").count(), 4, "two rows with a band, against steps and against seconds");
        assert_eq!(page.matches("<img src=\"data:image/svg+xml;base64,").count(), 2, "pictures for screens of any size alone");
        report.write_page(&folder).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("report.html")).unwrap(), page);
    }

    #[test]
    fn pages_of_the_same_runs_are_equal_wherever_they_lie() {
        assert_eq!(page(&records()), page(&records()));
        let place = tempfile::tempdir().unwrap();
        assert!(!page(&records()).contains(&*place.path().parent().unwrap().to_string_lossy()), "a path of this machine");
    }

    #[test]
    fn each_data_set_has_a_part_of_its_own() {
        let mut records = records();
        records[1].dataset = "other".into();
        records[3].dataset = "other".into();
        let page = page(&records);
        assert_holds(
            &page,
            &["id=\"part-1\"", "mt: invented, backend flex</h2>", "id=\"part-2\"", "mt: other, backend flex</h2>", "#part-2"],
        );
        assert_eq!(page.matches("one seed: no test.").count(), 1, "what is true of all parts is said once");
        assert_eq!(page.matches("<p class=\"note\">No difference was tested.</p>").count(), 2);
        assert_eq!(page.matches("aria-label=\"Curves over steps").count(), 2);
        assert!(!self::page(&[]).contains("id=\"part-1\""));
    }

    #[test]
    fn hostile_names_are_text_in_the_page() {
        let mut hostile = record(HOSTILE, 1, 1.0, 2.0);
        for field in [&mut hostile.dataset, &mut hostile.backend, &mut hostile.machine.cpu, &mut hostile.command, &mut hostile.version] {
            *field = HOSTILE.into();
        }
        (hostile.experiment, hostile.notes) = (HOSTILE.into(), vec![HOSTILE.into()]);
        hostile.signatures.insert("bleu".into(), HOSTILE.into());
        let mut others = [record("dense", 1, 2.0, 1.0), record("\" onload=\"alert(1)", 1, 2.0, 1.0)];
        for other in &mut others {
            (other.dataset, other.backend, other.experiment) = (HOSTILE.into(), HOSTILE.into(), HOSTILE.into());
        }
        let records = [vec![hostile], others.to_vec()].concat();
        let number = PublishedNumber { paper: HOSTILE.into(), model: HOSTILE.into(), ..PublishedNumbers::glue().numbers[0].clone() };
        let report = Report {
            title: HOSTILE.into(),
            metrics: vec![MetricColumn::new("bleu", HOSTILE).defined_as(HOSTILE).higher_is_better()],
            published: PublishedNumbers { note: HOSTILE.into(), numbers: vec![number] },
            sections: vec![Section { title: HOSTILE.into(), body: HOSTILE.into() }],
            ..report(&records)
        };
        let place = tempfile::tempdir().unwrap();
        let folder = folder(place.path(), &records);
        let log = folder.existing_run(HOSTILE, HOSTILE, 1).unwrap().log();
        fs::write(log, format!("{}\n", serde_json::json!({ "step": 1, "dev": { HOSTILE: 1.0 } }))).unwrap();
        let page = report.html(&folder).unwrap();
        assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (1, 1));
        for part in ["<img src=x", "<script src", "\" onload=\"", "\u{1b}[31m</text>"] {
            assert!(!page.contains(part), "{part:?} in\n{page}");
        }
        assert_eq!(page.matches("<img").count(), 2, "those of the analysis");
    }

    #[test]
    fn the_policy_names_the_script_of_the_page_and_nothing_outside_is_named() {
        let page = page(&records());
        let script = page.split_once("<script>").unwrap().1.split_once("</script>").unwrap().0;
        assert_holds(
            &page,
            &[&format!(
                "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{}'",
                BASE64_STANDARD.encode(Sha256::digest(script))
            )],
        );
        for outside in ["src=\"http", "href=\"http", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_damaged_log_takes_its_curves_and_disturbed_runs_their_times() {
        let (place, mut records) = (tempfile::tempdir().unwrap(), records());
        let folder = folder(place.path(), &records);
        records[0].disturbed = true;
        let page = report(&records).html(&folder).unwrap();
        assert_holds(&page, &["Curves over steps", "shared the cores with other runs or programs"]);
        assert!(!page.contains("Curves over seconds"));
        fs::write(folder.run("dense", 2).unwrap().log(), "no log\n").unwrap();
        let page = report(&records).html(&folder).unwrap();
        assert_holds(&page, &["No learning curve of dot-product, dense", "27.50 ± 0.71"]);
        assert!(!page.contains("Learning curves"));
    }
}
