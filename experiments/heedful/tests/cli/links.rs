//! The book has all of its chapters, and links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::documents::{book, documents, root};

/// Where documents name files of the repository that are no part of the book.
const REPOSITORY: [&str; 2] = ["https://github.com/heedful/heedful/blob/main/", "https://github.com/heedful/heedful/tree/main/"];

/// The text of a document without code.
fn prose(document: &Path) -> String {
    let text = fs::read_to_string(document).unwrap();
    let mut prose = String::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            // What stands between backticks is no link.
            let plain: String = line.split('`').enumerate().map(|(index, part)| if index % 2 == 0 { part } else { "code" }).collect();
            prose.push_str(&plain);
        }
        prose.push('\n');
    }
    prose
}

/// The blocks of code that a document quotes, each below a line `<!-- from PATH -->`, with the path from the root of the repository.
fn quoted(text: &str) -> Vec<(&str, &str)> {
    let after = text.split("\n<!-- from ").skip(1);
    after
        .map(|rest| {
            let (path, rest) = rest.split_once(" -->\n").expect("the line ends behind the path");
            let (_, code) = rest.strip_prefix("```").and_then(|rest| rest.split_once('\n')).expect("a block follows");
            (path, code.split_once("\n```").expect("the block ends").0)
        })
        .collect()
}

/// The targets of the links in a text.
fn links(prose: &str) -> Vec<&str> {
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.split(' ').next().unwrap()).collect()
}

/// The anchors that headings have.
fn anchors(document: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(document).unwrap();
    text.lines().filter(|line| line.starts_with('#')).map(|line| slug(line.trim_start_matches('#'))).collect()
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

/// A code host shows a chapter as it is, mdBook what it makes of it: nothing may depend on one of them.
#[test]
fn chapters_are_whole_on_a_code_host_and_in_mdbook() {
    for document in documents().iter().filter(|path| path.starts_with(book())) {
        let text = fs::read_to_string(document).unwrap();
        assert!(!text.contains("{{#"), "{}: a code host does not include files", document.display());
        assert!(!prose(document).contains("<svg"), "{}: a code host leaves out drawings within a page", document.display());
        let is_whole = text.starts_with("# ") && text.matches("\n```").count().is_multiple_of(2);
        assert!(is_whole, "{}: it has no title, or a block that does not end", document.display());
    }
}

#[test]
fn quoted_code_is_that_of_the_files() {
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (path, code) in quoted(&text) {
            let file = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {path}: {error}", document.display()));
            assert!(file.contains(code), "{}: {path} has other code than the block that quotes it", document.display());
            count += 1;
        }
    }
    assert!(count > 3, "{count} blocks");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let (readme, chapter) = (root().join("README.md"), book().join("masks-and-decoding.md"));
    for (document, link) in [
        (&readme, "docs/nowhere.md"),
        (&readme, "README.md#no-such-heading"),
        (&chapter, "no-such-chapter.md"),
        (&chapter, "../../../README.md"),
        (&chapter, "https://github.com/heedful/heedful/blob/main/no-such-file.md"),
    ] {
        assert!(problem(document, link).is_some(), "{link} passes");
    }
    for (document, link) in [(&readme, "docs/book/src/gpu.md"), (&readme, "#quick-start"), (&chapter, "parity.md#other-parts-of-models")] {
        assert_eq!(problem(document, link), None);
    }
}
