//! The book has all of its chapters, and links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::documents::{book, documents, root};

/// Where documents name files of the repository that are no part of the book.
const REPOSITORY: [&str; 2] = ["https://github.com/heedful/heedful/blob/main/", "https://github.com/heedful/heedful/tree/main/"];

/// The text of a document as a reader of the book has it: with what it includes, and without code.
fn prose(document: &Path) -> String {
    let text = fs::read_to_string(document).unwrap();
    let mut prose = String::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            assert_included(document, line);
        } else if let Some(included) = included(document, line) {
            prose.push_str(&self::prose(&included));
        } else {
            // What stands between backticks is no link.
            let plain: String = line.split('`').enumerate().map(|(index, part)| if index % 2 == 0 { part } else { "code" }).collect();
            prose.push_str(&plain);
        }
        prose.push('\n');
    }
    prose
}

/// The file that a line includes.
fn included(document: &Path, line: &str) -> Option<PathBuf> {
    let path = line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?;
    let (path, anchor) = path.split_once(':').unwrap_or((path, ""));
    let path = document.parent().unwrap().join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{} includes {}: {error}", document.display(), path.display()));
    let has_anchor = anchor.is_empty() || text.contains(&format!("ANCHOR: {anchor}"));
    assert!(has_anchor, "{} includes {anchor} of {}, which is not there", document.display(), path.display());
    Some(path)
}

fn assert_included(document: &Path, line: &str) {
    included(document, line);
}

/// The targets of the links in a text.
fn links(prose: &str) -> Vec<&str> {
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.split(' ').next().unwrap()).collect()
}

/// The anchors that headings have.
fn anchors(document: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(document).unwrap();
    let own = text.lines().filter(|line| line.starts_with('#')).map(|line| slug(line.trim_start_matches('#')));
    let inner = text.lines().filter_map(|line| included(document, line)).flat_map(|path| anchors(&path));
    own.chain(inner).collect()
}

fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn problem(document: &Path, link: &str) -> Option<String> {
    if let Some(path) = REPOSITORY.iter().find_map(|repository| link.strip_prefix(repository)) {
        let path = path.split('#').next().unwrap();
        return (!root().join(path).exists()).then(|| format!("there is no {path}"));
    }
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { document.to_owned() } else { document.parent().unwrap().join(path) };
    if !target.exists() {
        return Some(format!("there is no {path}"));
    }
    let is_in_book = |path: &Path| path.canonicalize().unwrap().starts_with(book());
    if is_in_book(document) && !is_in_book(&target) {
        return Some(format!("{path} is no part of the book; name it by {}", REPOSITORY[0]));
    }
    (!anchor.is_empty() && !anchors(&target).contains(anchor)).then(|| format!("{} has no heading {anchor}", target.display()))
}

#[test]
fn links_of_documents_lead_somewhere() {
    let mut problems = Vec::new();
    for document in documents() {
        let prose = prose(&document);
        for link in links(&prose) {
            problems.extend(problem(&document, link).map(|problem| format!("{}: {link}: {problem}", document.display())));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_summary_names_every_chapter_once() {
    let summary = fs::read_to_string(book().join("SUMMARY.md")).unwrap();
    let mut named = links(&summary);
    named.sort_unstable();
    let mut chapters: Vec<String> = documents()
        .iter()
        .filter_map(|path| path.strip_prefix(book()).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|name| name != "SUMMARY.md")
        .collect();
    chapters.sort();
    assert_eq!(named, chapters);
}

#[test]
fn every_document_is_a_chapter() {
    let included: BTreeSet<PathBuf> = documents()
        .iter()
        .filter(|path| path.starts_with(book()))
        .flat_map(|path| {
            let text = fs::read_to_string(path).unwrap();
            text.lines().filter_map(|line| included(path, line)).map(|path| path.canonicalize().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    for document in documents().iter().filter(|path| path.parent() == Some(&root().join("docs"))) {
        assert!(included.contains(document), "no chapter includes {}", document.display());
    }
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let (readme, chapter) = (root().join("README.md"), book().join("masks.md"));
    for (document, link) in [
        (&readme, "docs/nowhere.md"),
        (&readme, "README.md#no-such-heading"),
        (&chapter, "no-such-chapter.md"),
        (&chapter, "../../../README.md"),
        (&chapter, "https://github.com/heedful/heedful/blob/main/no-such-file.md"),
    ] {
        assert!(problem(document, link).is_some(), "{link} passes");
    }
    for (document, link) in [(&readme, "docs/gpu.md"), (&readme, "#quick-start"), (&chapter, "parity.md#other-parts-of-models")] {
        assert_eq!(problem(document, link), None);
    }
}
