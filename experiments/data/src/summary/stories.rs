//! CNN/DailyMail as Hermann et al. (2015) distribute it: a news article and its highlights in each `.story` file.
//!
//! An article is its paragraphs, and its summary the highlights, each of which follows a line `@highlight`; a summary is written `<t> first </t> <t> second
//! </t>`, the marks that [`with_line_ends`](super::with_line_ends) knows. Paragraphs are joined by spaces. Nothing else is changed: there is neither the
//! tokenisation nor the lower case of See et al. (2017), and no full stop is added to a highlight without one.
//!
//! Stories are in the folder, in folders up to two levels below it (`cnn/stories`, `dailymail/stories`), or in archives beside it (`cnn_stories.tgz`). The
//! splits are those of See et al. (2017) where their lists of addresses are in the folder or in `url_lists`: `all_train.txt`, `all_val.txt` and `all_test.txt`,
//! in whose order stories come; a story's name is the SHA-1 of its address. Without lists stories are cut 80/10/10 in the order of their names, which is as
//! good as random.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use super::COLUMNS;
use crate::files::{self, TextFile};
use crate::parallel::{Pair, ParallelCorpus, SkippedPairs};
use crate::text_pairs::{self, TextPairs};
use crate::{DataError, packed};

const EXTENSION: &str = ".story";
const HIGHLIGHT: &str = "@highlight";
const LISTS: [&str; 3] = ["all_train.txt", "all_val.txt", "all_test.txt"];
const LIST_FOLDER: &str = "url_lists";
/// Folders below the one that is given.
const DEPTH: usize = 2;

/// Whether a file of this name (without `.gz`) is a list of stories.
pub(crate) fn is_list(name: &str) -> bool {
    LISTS.contains(&name)
}

/// Reads the stories of a folder; `None` if there is none.
pub(super) fn read(dir: &Path) -> Result<Option<TextPairs>, DataError> {
    let mut stories = BTreeMap::new();
    for file in story_files(dir)? {
        let (name, path) = (file.name.trim_end_matches(".gz").to_owned(), file.path.clone());
        if let Some(other) = stories.insert(name, Story::of(file)) {
            let part = format!("the story {}", other.file.name);
            return Err(DataError::Ambiguous { part, files: vec![other.file.path, path] });
        }
    }
    if stories.is_empty() {
        return Ok(None);
    }
    let mut skipped = Vec::new();
    let (train, valid, test, split, mut read) = match lists(dir)? {
        Some(lists) => {
            let [train, valid, test] = [0, 1, 2].map(|index| listed(&lists[index], &stories));
            let train = usable(&lists[0], train?, &mut skipped)?;
            let valid = usable(&lists[1], valid?, &mut skipped)?;
            (train, valid, pairs(test?), format!("as listed: {}", LISTS.join(", ")), Vec::from(lists))
        }
        None => {
            let names = TextFile::from_bytes(dir.join("*.story"), "*.story".to_owned(), b"")?;
            let [train, valid, test] = text_pairs::cut(&names, "stories", stories.values().collect())?;
            let split = format!("cut 80/10/10 in the order of their names: {} / {} / {} stories", train.len(), valid.len(), test.len());
            let (train, valid) = (usable(&names, train, &mut skipped)?, usable(&names, valid, &mut skipped)?);
            (train, valid, pairs(test), split, Vec::new())
        }
    };
    read.extend(stories.into_values().map(|story| story.file));
    let [source_language, target_language] = COLUMNS.map(str::to_owned);
    let sha256 = files::combined_sha256(&read);
    let corpus = ParallelCorpus { source_language, target_language, train, valid, tests: vec![("test".to_owned(), test)], skipped, sha256 };
    Ok(Some(TextPairs { corpus, split }))
}

/// A story and the file it comes from, whose lines are gone.
struct Story {
    file: TextFile,
    pair: Pair,
}

impl Story {
    fn of(mut file: TextFile) -> Self {
        let (mut article, mut highlights, mut is_highlight) = (Vec::new(), Vec::new(), false);
        let lines = std::mem::take(&mut file.lines);
        for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
            match line {
                HIGHLIGHT => is_highlight = true,
                _ if is_highlight => highlights.push(format!("<t> {line} </t>")),
                _ => article.push(line),
            }
        }
        Self { pair: Pair { source: article.join(" "), target: highlights.join(" ") }, file }
    }
}

fn pairs(stories: Vec<&Story>) -> Vec<Pair> {
    stories.into_iter().map(|story| story.pair.clone()).collect()
}

/// Those with an article and a highlight; the others go to `skipped`. `source` says in the error where stories are from.
fn usable(source: &TextFile, stories: Vec<&Story>, skipped: &mut Vec<SkippedPairs>) -> Result<Vec<Pair>, DataError> {
    let (empty, kept): (Vec<&Story>, Vec<&Story>) = stories.into_iter().partition(|story| story.pair.has_empty_side());
    if kept.is_empty() {
        return Err(DataError::empty(&source.path, "no story that has an article and a highlight", "restore the original files"));
    }
    if let Some(first) = empty.first() {
        tracing::warn!(
            "skipped {} stories without an article or a highlight, the first of them {}",
            empty.len(),
            first.file.path.display()
        );
    }
    skipped.extend(empty.into_iter().map(|story| {
        let name = &story.file.name;
        SkippedPairs { source_file: name.clone(), target_file: name.clone(), lines: vec![1] }
    }));
    Ok(pairs(kept))
}

/// The stories of a list.
fn listed<'s>(list: &TextFile, stories: &'s BTreeMap<String, Story>) -> Result<Vec<&'s Story>, DataError> {
    let mut found = Vec::with_capacity(list.lines.len());
    for (index, line) in list.lines.iter().enumerate() {
        let address = line.trim();
        if address.is_empty() {
            continue;
        }
        let name = format!("{}{EXTENSION}", hex::encode(Sha1::digest(address)));
        let story = stories.get(&name);
        let story = story.ok_or_else(|| list.wrong(index, "address", address, &format!("that of a story in the folder ({name})")))?;
        found.push(story);
    }
    Ok(found)
}

/// The lists of the splits; `None` if there is none.
fn lists(dir: &Path) -> Result<Option<[TextFile; 3]>, DataError> {
    let below = dir.join(LIST_FOLDER);
    let mut found = files::list(dir, "lists of stories")?;
    if below.is_dir() {
        for (name, forms) in files::list(&below, "lists of stories")? {
            found.entry(name).or_default().extend(forms);
        }
    }
    if !found.keys().any(|name| is_list(name)) {
        return Ok(None);
    }
    let list = |name: &str| {
        let path = files::only(found.get(name).cloned().unwrap_or_default(), name)?;
        TextFile::read(&path.ok_or_else(|| DataError::missing(dir, "a list of stories", name))?, "a list of stories")
    };
    let [train, valid, test] = LISTS.map(list);
    Ok(Some([train?, valid?, test?]))
}

/// All stories of a folder, of those below it and of its archives.
fn story_files(dir: &Path) -> Result<Vec<TextFile>, DataError> {
    let mut found = Vec::new();
    collect(dir, DEPTH, &mut found)?;
    for (name, forms) in files::list(dir, "a folder of stories")? {
        if name.contains("stories") && [".tgz", ".tar"].iter().any(|extension| name.ends_with(extension)) {
            for path in forms {
                let stored = fs::read(&path).map_err(|cause| DataError::Unreadable { path: path.clone(), cause })?;
                let last_part = |name: &str| name.rsplit('/').next().filter(|last| last.ends_with(EXTENSION)).map(str::to_owned);
                for (last, name, bytes) in packed::files(&path, &stored, last_part)? {
                    found.push(TextFile::from_bytes(path.join(name), last, &bytes)?);
                }
            }
        }
    }
    Ok(found)
}

fn collect(dir: &Path, depth: usize, found: &mut Vec<TextFile>) -> Result<(), DataError> {
    for (_, forms) in files::list(dir, "a folder of stories")?.into_iter().filter(|(name, _)| name.ends_with(EXTENSION)) {
        for path in forms {
            found.push(TextFile::read(&path, "a story")?);
        }
    }
    if depth > 0 {
        let unreadable = |cause| DataError::Unreadable { path: dir.to_path_buf(), cause };
        let mut inner: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(dir).map_err(unreadable)? {
            inner.push(entry.map_err(unreadable)?.path());
        }
        inner.iter().filter(|path| path.is_dir()).try_for_each(|path| collect(path, depth - 1, found))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::{folder, gzip, tar};
    use crate::summary;

    /// An address and the name of its story, from `printf http://a/1 | sha1sum` and so on.
    const ADDRESSES: [(&str, &str); 3] = [
        ("http://a/1", "1feefadbc173033154263b26347149f56aa664d6"),
        ("http://a/2", "9474a573557ba1c213807a208f5565e6d591e1e5"),
        ("http://a/3", "c465d0b7f8a0a5aba0486556171d1fdaf465d851"),
    ];

    fn story(text: &str) -> String {
        format!("The {text} .\n\nMore of it .\n\n@highlight\n\n{text} is new\n\n@highlight\n\nMore to come .\n")
    }

    fn files(stories: &[(String, String)], lists: &[(&str, &str)]) -> tempfile::TempDir {
        let stories = stories.iter().map(|(name, text)| (name.as_str(), text.as_bytes()));
        folder(&stories.chain(lists.iter().map(|(name, text)| (*name, text.as_bytes()))).collect::<Vec<_>>())
    }

    fn of_addresses() -> Vec<(String, String)> {
        let place = ["cnn/stories/", "dailymail/stories/", ""];
        ADDRESSES.iter().zip(place).map(|((address, name), place)| (format!("{place}{name}.story"), story(address))).collect()
    }

    const LISTED: [(&str, &str); 3] =
        [("all_train.txt", "http://a/2\n"), ("url_lists/all_val.txt", "http://a/1\n"), ("all_test.txt", "http://a/3\n")];

    #[test]
    fn stories_are_found_by_the_sha_1_of_their_addresses() {
        let TextPairs { corpus, split } = summary::read(files(&of_addresses(), &LISTED).path()).unwrap();
        let target = "<t> http://a/2 is new </t> <t> More to come . </t>".to_owned();
        assert_eq!(corpus.train, [Pair { source: "The http://a/2 . More of it .".to_owned(), target }]);
        assert!(corpus.valid[0].source.contains("http://a/1") && corpus.tests[0].1[0].source.contains("http://a/3"));
        assert_eq!(summary::with_line_ends(&corpus.train[0].target), "http://a/2 is new\nMore to come .");
        assert_eq!(split, "as listed: all_train.txt, all_val.txt, all_test.txt");
    }

    #[test]
    fn archives_are_read_without_unpacking() {
        let added_by_macos = ("._a.story".to_owned(), "\u{5}\u{16}".to_owned());
        let stories = [of_addresses(), vec![added_by_macos]].concat();
        let archive =
            gzip(&tar(stories.iter().map(|(name, text)| (format!("cnn/stories/{}", name.rsplit('/').next().unwrap()), text.as_str()))));
        let lists = LISTED.map(|(name, text)| (name, text.as_bytes()));
        let packed = folder(&[&lists[..], &[("cnn_stories.tgz", &archive)]].concat());
        let unpacked = files(&of_addresses(), &LISTED);
        assert_eq!(summary::read(packed.path()).unwrap(), summary::read(unpacked.path()).unwrap());
    }

    #[test]
    fn without_lists_stories_are_cut_in_the_order_of_their_names_and_empty_ones_left_out() {
        let mut stories: Vec<(String, String)> = (0..20).map(|n| (format!("stories/{n:040x}.story"), story(&n.to_string()))).collect();
        stories[3].1 = "@highlight\n\nNothing else .\n".to_owned();
        let TextPairs { corpus, split } = summary::read(files(&stories, &[]).path()).unwrap();
        assert_eq!([corpus.train.len(), corpus.valid.len(), corpus.tests[0].1.len()], [15, 2, 2]);
        assert!(corpus.valid[0].source.starts_with("The 16 .") && split.contains("16 / 2 / 2 stories"), "{split}");
        let skipped: Vec<&str> = corpus.skipped.iter().map(|skipped| skipped.source_file.as_str()).collect();
        assert_eq!(skipped, [format!("{:040x}.story", 3)]);
    }

    #[test]
    fn missing_doubled_and_mixed_files_are_named() {
        let message =
            |stories: &[(String, String)], lists: &[(&str, &str)]| summary::read(files(stories, lists).path()).unwrap_err().to_string();
        let missing = message(&of_addresses()[1..], &LISTED);
        let expected = ["all_val.txt`, line 1", "`http://a/1`", ADDRESSES[0].1];
        assert!(expected.iter().all(|part| missing.contains(part)), "{missing}");
        let list = message(&of_addresses(), &LISTED[..2]);
        assert!(list.contains("expected all_test.txt"), "{list}");
        let twice = [of_addresses(), vec![(format!("more/{}.story", ADDRESSES[0].1), story("x"))]].concat();
        let twice = message(&twice, &LISTED);
        assert!(twice.contains("cnn/stories/") && twice.contains("more/") && twice.contains("keep one"), "{twice}");
        let few = message(&of_addresses(), &[]);
        assert!(few.contains("too few stories"), "{few}");
    }
}
