//! The ledger with its verdicts as Markdown, as one HTML page, and as a page of the book.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use heedful_host::whole_files::write_atomically;
use heedful_runs::markup::{code, left_aligned, markdown, markdown_table};
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::card::{Card, cards};
use super::ledger::Ledger;
use super::verdict::Verdicts;
use crate::session::error::ExperimentError;

const TEMPLATE: &str = include_str!("page/page.html.jinja");
const STYLE: &str = include_str!("page/page.css");

/// What the book says before its table.
const INTRODUCTION: &str = "Most of these verdicts compare test sentences of two trained models, not mechanisms over seeds; the claims are still to be judged by \
                            runs. The claims are published ones, tested at the size of one machine by rules that were fixed before the first run. `heedful claims \
                            report` writes this page from the records.";

/// The verdicts of a ledger, to be shown.
pub struct ClaimsReport {
    cards: Vec<Card>,
    summary: String,
}

#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    summary: &'a str,
    cards: &'a [Card],
}

impl ClaimsReport {
    /// The report of these verdicts.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn of(ledger: &Ledger, verdicts: &Verdicts) -> Result<Self, ExperimentError> {
        let cards = cards(ledger, verdicts)?;
        let kinds = ["reproduced", "contradicted", "inconclusive", "mixed", "partly-run", "void", "not-run"];
        let counts = kinds.map(|kind| (cards.iter().filter(|card| card.kind == kind).count(), kind));
        let counts: Vec<String> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {}", kind.replace('-', " "))).collect();
        let level = match verdicts.are_provisional {
            true => format!(
                "While tests of the ledger have not run, verdicts are provisional: each p-value is multiplied by {}.",
                verdicts.adjusted_tests
            ),
            false => format!("p-values are adjusted by Holm's procedure over {} tests.", verdicts.adjusted_tests),
        };
        let summary = format!("{} claims: {}. {level}", cards.len(), counts.join(", "));
        Ok(Self { cards, summary })
    }

    /// The table of all claims, one line each; `link` makes the name of a claim a link.
    fn table(&self, link: &dyn Fn(&str) -> String) -> String {
        let head = ["claim", "", "verdict", "estimate, or why there is none"].map(str::to_owned).to_vec();
        let row = |card: &Card| {
            let why = [card.values(), card.reasons()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
            vec![link(&card.name), markdown(&card.sentence), card.verdict.clone(), markdown(&why)]
        };
        markdown_table(&std::iter::once(head).chain(self.cards.iter().map(row)).collect::<Vec<_>>(), "---")
    }

    /// A table for the terminal of the claims of these names, by default all; with `why` each test and how it was decided.
    pub fn terminal(&self, names: &[String], why: bool) -> String {
        let cards = self.cards.iter().filter(|card| names.is_empty() || names.contains(&card.name));
        let mut rows = vec![["claim", "verdict", "sentence"].map(str::to_owned).to_vec()];
        for card in cards {
            rows.push(vec![card.name.clone(), card.verdict.clone(), card.sentence.clone()]);
            for test in card.tests.iter().filter(|_| why) {
                let p = if test.p.is_empty() { String::new() } else { format!(", adjusted p {}", test.p) };
                let value = if test.value.is_empty() { String::new() } else { format!("{}{p}; ", test.value) };
                rows.push(vec![String::new(), test.decision.clone(), format!("  {} ({}): {value}{}", test.name, test.rule, test.why)]);
            }
        }
        format!("{}{}", left_aligned(&rows), self.summary)
    }

    /// Markdown with the table and a section for each claim.
    pub fn markdown(&self) -> String {
        self.document("")
    }

    /// The page of the book: the same behind an introduction.
    pub fn chapter(&self) -> String {
        self.document(&format!("{INTRODUCTION}\n\n"))
    }

    fn document(&self, introduction: &str) -> String {
        let anchor = |name: &str| format!("[{name}](#{})", name.to_lowercase());
        let mut text = format!("# Claims\n\n{introduction}{}\n\n{}", self.summary, self.table(&anchor));
        for card in &self.cards {
            let _ = write!(text, "\n## {}\n\n{}", card.name, section(card));
        }
        text
    }

    /// One page that needs no other file and no network.
    ///
    /// # Errors
    /// A template that does not fit, which tests exclude.
    pub fn html(&self) -> Result<String, ExperimentError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let page = Page { style: STYLE, summary: &self.summary, cards: &self.cards };
        // Templates of this ending escape all that they are given.
        environment.render_named_str("page.html", TEMPLATE, Serde(&page)).map_err(ExperimentError::failure)
    }

    /// Writes `report.md` and `report.html` into a folder.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ExperimentError> {
        make_folder(folder)?;
        write_atomically(&folder.join("report.md"), self.markdown().as_bytes())?;
        Ok(write_atomically(&folder.join("report.html"), self.html()?.as_bytes())?)
    }

    /// Writes `claims.md` into the book's folder.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write_chapter(&self, folder: &Path) -> Result<(), ExperimentError> {
        Ok(write_atomically(&folder.join("claims.md"), self.chapter().as_bytes())?)
    }
}

fn make_folder(folder: &Path) -> Result<(), ExperimentError> {
    fs::create_dir_all(folder).map_err(|error| ExperimentError::failure(format!("cannot make `{}`: {error}", folder.display())))
}

/// What Markdown says of a claim below its heading.
fn section(card: &Card) -> String {
    let mut text = format!("**{}.** {}\n\nVerdict: **{}**\n", markdown(&card.sentence), markdown(&card.source), card.verdict);
    let head = ["test", "reproduced if", "verdict", "estimate", "adjusted p", "how, or why not"].map(str::to_owned).to_vec();
    let rows = card
        .tests
        .iter()
        .map(|test| [&test.name, &test.rule, &test.decision, &test.value, &test.p, &test.why].map(|cell| markdown(cell)).to_vec());
    let _ = write!(text, "\n{}", markdown_table(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), "---"));
    if !card.contenders.is_empty() {
        let head = ["contender", "mean", "by seed or round", "parameters"].map(str::to_owned).to_vec();
        let rows = card.contenders.iter().map(|row| row.clone().map(|cell| markdown(&cell)).to_vec());
        let _ = write!(text, "\n{}", markdown_table(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), "---"));
    }
    if !card.described.is_empty() {
        let _ = write!(text, "\nBeside it, without a test:\n\n");
        for [name, value] in &card.described {
            let _ = writeln!(text, "* {}: {}", markdown(name), markdown(value));
        }
    }
    let _ = write!(text, "\nPublished:\n\n");
    for published in &card.published {
        let _ = writeln!(text, "* {}", markdown(published));
    }
    let _ = write!(
        text,
        "\nUnlike the paper: {}\n\nBeware: {}\n\nTo repeat it: {}\n",
        markdown(&card.deviations),
        markdown(&card.beware),
        code(&card.command)
    );
    text
}
