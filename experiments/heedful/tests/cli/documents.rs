//! The documents of the repository, and the commands and links in them.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The chapters of the book.
pub fn book() -> PathBuf {
    root().join("docs/book/src")
}

/// All documents that a reader begins with: those at the root, of the packages, of `docs`, and the chapters of the book.
pub fn documents() -> Vec<PathBuf> {
    let folders = ["", "attention", "models", "experiments", "docs"].map(|folder| root().join(folder));
    let mut documents: Vec<PathBuf> = folders.iter().flat_map(|folder| listed(folder)).filter(|path| is_document(path)).collect();
    documents.extend(chapters(&book()));
    documents.sort();
    documents
}

/// The documents of a folder and of those in it.
fn chapters(folder: &Path) -> Vec<PathBuf> {
    let within = |path: PathBuf| if path.is_dir() { chapters(&path) } else { vec![path] };
    listed(folder).into_iter().flat_map(within).filter(|path| is_document(path)).collect()
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The commands in the blocks ` ```sh ` of a document, each in one line.
pub fn commands(document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap().replace("\\\n", " ");
    let mut commands = Vec::new();
    let mut is_shell = false;
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("```") {
            Some(language) => is_shell = language == "sh",
            None if is_shell && !line.is_empty() && !line.starts_with('#') => commands.push(line.to_owned()),
            None => {}
        }
    }
    commands
}

/// The words of a command, as a shell would cut it: quotes hold words together, and what follows ` #` is a comment.
pub fn words(command: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut is_inside, mut quote) = (false, None);
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                if !is_inside {
                    words.push(String::new());
                }
                is_inside = true;
            }
            (None, '#') if !is_inside => break,
            (None, _) if letter.is_whitespace() => is_inside = false,
            _ if is_inside => words.last_mut().unwrap().push(letter),
            _ => {
                words.push(letter.to_string());
                is_inside = true;
            }
        }
    }
    words
}

/// The arguments of the program `heedful` in a command: `cargo heedful ...`, or `heedful ...`.
pub fn arguments_of_heedful(words: &[String]) -> Option<Vec<String>> {
    let rest = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cargo", "heedful", ..] => &words[2..],
        ["heedful", ..] => &words[1..],
        _ => return None,
    };
    Some(rest.to_vec())
}
