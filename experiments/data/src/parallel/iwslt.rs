//! Talks as the campaigns of IWSLT distribute them (2015 to 2017, Cettolo et al. 2012): text with tags for training, XML for development and test sets.
//!
//! `train.tags.en-de.en` and `train.tags.en-de.de` have a line of text for each sentence, and between talks lines with tags (`<url>`, `<title>`,
//! `<description>` and others), which are left out on both sides. In `IWSLT17.TED.dev2010.en-de.en.xml` each sentence is a segment, `<seg id="1"> text </seg>`,
//! on a line; entities are decoded there, and nothing else of XML is read. A folder that has no text for one direction is read for the other, whose pair stands
//! in its names. Spaces around a sentence are dropped. A set in one language alone, as those of the year of the campaign, is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Listed, Pair, ParallelCorpus, SkippedPairs, check_test_pairs, same_number};
use crate::files::{self, TextFile};
use crate::{DataError, text_pairs};

const TRAINING: &str = "train.tags.";
/// What the lines that are no text begin with, after `<` or `</`.
const TAGS: [&str; 9] = ["doc", "url", "keywords", "speaker", "talkid", "title", "description", "reviewer", "translator"];
const ENTITIES: [(&str, &str); 5] = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];

/// Whether a folder has training text of IWSLT.
pub(super) fn is_in(listed: &Listed) -> bool {
    listed.keys().any(|name| name.starts_with(TRAINING))
}

/// Reads the folder, whose files are `listed`.
pub(super) fn read(dir: &Path, listed: &Listed, source: &str, target: &str) -> Result<ParallelCorpus, DataError> {
    let pairs = [format!("{source}-{target}"), format!("{target}-{source}")];
    let is_of = |pair: &&String| listed.keys().any(|name| name.starts_with(&format!("{TRAINING}{pair}.")));
    let pair = pairs.iter().find(is_of).unwrap_or(&pairs[0]);
    let mut read = Vec::new();
    let mut skipped = Vec::new();
    let files = [source, target].map(|language| training_file(dir, listed, pair, language));
    let [source_file, target_file] = files;
    let train = training(
        TextFile::read(&source_file?, "training text")?,
        TextFile::read(&target_file?, "training text")?,
        &mut read,
        &mut skipped,
    )?;
    let (mut valid, mut tests) = (Vec::new(), Vec::new());
    for (name, [source_forms, target_forms]) in sets(listed, pair, [source, target]) {
        let files = (files::only(source_forms, &name)?, files::only(target_forms, &name)?);
        let (Some(source_file), Some(target_file)) = files else { continue };
        let files = [TextFile::read(&source_file, "a set of IWSLT")?, TextFile::read(&target_file, "a set of IWSLT")?];
        let pairs = aligned(&files)?;
        if is_development(&name) {
            valid.append(&mut text_pairs::usable(&files[0], pairs, &mut skipped)?);
        } else {
            let pairs = text_pairs::without_lines(pairs);
            check_test_pairs(&pairs, &files)?;
            tests.push((name, pairs));
        }
        read.extend(files);
    }
    if valid.is_empty() {
        let expected = format!("IWSLT17.TED.dev2010.{pair}.{source}.xml and .{target}.xml, of any campaign and year");
        return Err(DataError::missing(dir, format!("the validation text in `{source}` and `{target}`"), expected));
    }
    let sha256 = files::combined_sha256(&read);
    Ok(ParallelCorpus { source_language: source.to_owned(), target_language: target.to_owned(), train, valid, tests, skipped, sha256 })
}

fn is_development(set: &str) -> bool {
    set.rsplit('.').next().is_some_and(|last| last.starts_with("dev"))
}

/// The training text in a language: that with tags, or another that would do as well.
fn training_file(dir: &Path, listed: &Listed, pair: &str, language: &str) -> Result<PathBuf, DataError> {
    let with_tags = |name: &str| name == format!("{TRAINING}{pair}.{language}");
    let plain = |name: &str| name.starts_with("train.") && !name.starts_with(TRAINING) && name.ends_with(&format!(".{language}"));
    let forms = files::fitting(listed, |name| with_tags(name) || plain(name));
    files::only(forms, &format!("the training text in language `{language}`"))?.ok_or_else(|| {
        let found = listed.keys().filter(|name| name.starts_with(TRAINING)).filter_map(|name| name.rsplit('.').next());
        let found: BTreeSet<&str> = found.collect();
        if found.contains(language) {
            return DataError::missing(dir, format!("the training text in language `{language}`"), format!("{TRAINING}{pair}.{language}"));
        }
        let found = found.into_iter().map(str::to_owned).collect();
        DataError::MissingLanguage { dir: dir.to_path_buf(), language: language.to_owned(), found }
    })
}

/// The XML files of each set in both languages, by names such as `TED.tst2010`.
fn sets(listed: &Listed, pair: &str, languages: [&str; 2]) -> BTreeMap<String, [Vec<PathBuf>; 2]> {
    let mut sets: BTreeMap<String, [Vec<PathBuf>; 2]> = BTreeMap::new();
    for (name, forms) in listed {
        let parts = name
            .strip_suffix(".xml")
            .and_then(|name| name.rsplit_once('.'))
            .and_then(|(name, language)| Some((name.rsplit_once('.')?, language)));
        let Some(((set, of_pair), language)) = parts else { continue };
        let side = languages.iter().position(|known| *known == language);
        if let Some(side) = side.filter(|_| of_pair == pair) {
            // The campaign, which is first, is the same for all.
            let set = set.split_once('.').map_or(set, |(_, set)| set);
            sets.entry(set.to_owned()).or_default()[side].extend(forms.iter().cloned());
        }
    }
    sets
}

fn training(source: TextFile, target: TextFile, read: &mut Vec<TextFile>, skipped: &mut Vec<SkippedPairs>) -> Result<Vec<Pair>, DataError> {
    let texts = |file: &TextFile| -> Vec<(usize, String)> {
        (1..).zip(&file.lines).filter(|(_, line)| !is_tag(line)).map(|(number, line)| (number, line.trim().to_owned())).collect()
    };
    let (source_texts, target_texts) = (texts(&source), texts(&target));
    same_number("lines of text", [&source, &target], source_texts.len(), target_texts.len())?;
    let pairs = source_texts.into_iter().zip(target_texts);
    let pairs = pairs.map(|((line, source), (_, target))| (line, Pair { source, target })).collect();
    let pairs = text_pairs::usable(&source, pairs, skipped)?;
    read.extend([source, target]);
    Ok(pairs)
}

/// Whether a line of training text is about a talk.
fn is_tag(line: &str) -> bool {
    let Some(rest) = line.trim_start().strip_prefix('<') else { return false };
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    let name = rest.split(|character: char| !character.is_ascii_alphanumeric()).next().unwrap_or_default();
    TAGS.contains(&name)
}

/// A sentence of a set: its line from 1, which of the talks it belongs to, its id and its text.
struct Segment<'t> {
    line: usize,
    talk: usize,
    id: &'t str,
    text: String,
}

/// The pairs of a set, with the lines of the source file.
fn aligned(files: &[TextFile; 2]) -> Result<Vec<text_pairs::LinePair>, DataError> {
    let [source, target] = files;
    let (source_segments, target_segments) = (segments(source)?, segments(target)?);
    same_number("segments", [source, target], source_segments.len(), target_segments.len())?;
    let pair = |(source_segment, target_segment): (Segment, Segment)| {
        if (source_segment.talk, source_segment.id) != (target_segment.talk, target_segment.id) {
            let place = |segment: &Segment| format!("{} of talk {}", segment.id, segment.talk);
            let expected = format!("{}, which line {} of {} has", place(&source_segment), source_segment.line, source.name);
            return Err(target.wrong(target_segment.line - 1, "seg id", &place(&target_segment), &expected));
        }
        Ok((source_segment.line, Pair { source: source_segment.text, target: target_segment.text }))
    };
    source_segments.into_iter().zip(target_segments).map(pair).collect()
}

fn segments(file: &TextFile) -> Result<Vec<Segment<'_>>, DataError> {
    let (mut segments, mut talk) = (Vec::new(), 0);
    for (index, line) in file.lines.iter().enumerate() {
        let line = line.trim();
        talk += usize::from(line.starts_with("<doc "));
        let Some(rest) = line.strip_prefix("<seg ") else { continue };
        let parts = rest.split_once('>').and_then(|(attributes, rest)| {
            let id = attributes.split_once("id=\"")?.1.split_once('"')?.0;
            Some((id, rest.trim_end().strip_suffix("</seg>")?.trim()))
        });
        let (id, text) =
            parts.ok_or_else(|| file.wrong(index, "seg", line, "a segment on one line, such as `<seg id=\"1\"> text </seg>`"))?;
        let text = ENTITIES.iter().fold(text.to_owned(), |text, (entity, character)| text.replace(entity, character));
        segments.push(Segment { line: index + 1, talk, id, text });
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::super::tests::pair;
    use super::*;
    use crate::files::tests::folder;

    const TRAIN_EN: &str = "<url>http://a</url>\n<keywords>k</keywords>\n<title>A title</title>\n<description>About</description>\n One &amp; two. \n\
                            <b> is no tag\n\
                            <reviewer href=\"x\">R</reviewer>\n<url>http://b</url>\n\nLast.\n";
    const TRAIN_DE: &str =
        "<url>http://a</url>\n<title>Ein Titel</title>\nEins &amp; zwei.\n<b> ist keins\n<url>http://b</url>\nAllein.\nEnde.\n";

    fn set(first: &str, second: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<mteval>\n<srcset setid=\"s\" srclang=\"x\">\n<doc docid=\"1\" genre=\"lectures\">\n\
             <title>T</title>\n<seg id=\"1\"> {first} </seg>\n<seg id=\"2\">{second}</seg>\n</doc>\n</srcset>\n</mteval>\n"
        )
    }

    fn files() -> Vec<(&'static str, String)> {
        vec![
            ("train.tags.en-de.en", TRAIN_EN.to_owned()),
            ("train.tags.en-de.de", TRAIN_DE.to_owned()),
            ("IWSLT17.TED.dev2010.en-de.en.xml", set("a &amp;lt; b", "c")),
            ("IWSLT17.TED.dev2010.en-de.de.xml", set("&quot;A&quot; &gt; B", "C")),
            ("IWSLT17.TED.tst2010.en-de.en.xml", set("d", "")),
            ("IWSLT17.TED.tst2010.en-de.de.xml", set("D", "E")),
            ("IWSLT17.TED.tst2017.en-de.en.xml", set("f", "g")),
            ("README", "about".to_owned()),
        ]
    }

    fn read(files: &[(&str, String)], source: &str, target: &str) -> Result<ParallelCorpus, DataError> {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        ParallelCorpus::read(folder(&files).path(), source, target)
    }

    #[test]
    fn lines_with_tags_are_left_out_and_segments_are_sentences() {
        let corpus = read(&files(), "en", "de").unwrap();
        assert_eq!(
            corpus.train,
            [pair("One &amp; two.", "Eins &amp; zwei."), pair("<b> is no tag", "<b> ist keins"), pair("Last.", "Ende.")]
        );
        assert_eq!(corpus.skipped[0].lines, [9], "the line of the source file whose text is empty");
        assert_eq!(corpus.valid, [pair("a &lt; b", "\"A\" > B"), pair("c", "C")]);
        assert_eq!(corpus.tests, [("TED.tst2010".to_owned(), vec![pair("d", "D"), pair("", "E")])]);
    }

    #[test]
    fn a_folder_of_one_direction_serves_the_other_and_one_of_both_its_own() {
        let (there, back) = (read(&files(), "en", "de").unwrap(), read(&files(), "de", "en").unwrap());
        assert_eq!(back.valid[1], pair("C", "c"));
        assert_eq!((there.sha256, there.train.len()), (back.sha256, back.train.len()));
        let further = [
            ("train.tags.de-en.en", "other\n".to_owned()),
            ("train.tags.de-en.de", "anderes\n".to_owned()),
            ("IWSLT17.TED.dev2010.de-en.en.xml", set("x", "y")),
            ("IWSLT17.TED.dev2010.de-en.de.xml", set("X", "Y")),
        ];
        let both = [files(), further.to_vec()].concat();
        assert_eq!(read(&both, "en", "de").unwrap().valid[1], pair("c", "C"));
        let back = read(&both, "de", "en").unwrap();
        assert_eq!((&back.train[..], &back.valid[1]), (&[pair("anderes", "other")][..], &pair("Y", "y")));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_file_line_and_remedy() {
        let with = |name: &'static str, text: &str| {
            let mut files: Vec<_> = files().into_iter().filter(|(other, _)| *other != name).collect();
            if !text.is_empty() {
                files.push((name, text.to_owned()));
            }
            read(&files, "en", "de").unwrap_err().to_string()
        };
        let dev = "IWSLT17.TED.dev2010.en-de.de.xml";
        for (message, parts) in [
            (with("train.tags.en-de.de", "<url>u</url>\nEins.\n"), &["train.tags.en-de.en` has 4 lines of text", "de` has 1"][..]),
            (with("train.tags.en-de.de", ""), &["no text in language `de`", "languages found: en"]),
            (with(dev, ""), &["the validation text", "dev2010.en-de.en.xml"]),
            (with(dev, "<doc docid=\"1\">\n<seg id=\"1\"> A </seg>\n"), &["en.xml` has 2 segments", "de.xml` has 1"]),
            (
                with(dev, "<doc docid=\"1\">\n<seg id=\"1\"> A\n</seg>\n"),
                &["de.xml`, line 2", "`<seg id=\"1\"> A` is not a segment on one line"],
            ),
            (
                with(dev, "<doc docid=\"1\">\n<seg id=\"1\"> A </seg>\n<seg id=\"3\"> A </seg>\n"),
                &["de.xml`, line 3, field `seg id`: `3 of talk 1` is not 2 of talk 1", "line 7 of IWSLT17.TED.dev2010.en-de.en.xml"],
            ),
            (with("train.en", "a\n"), &["train.en`", "train.tags.en-de.en`", "keep one"]),
        ] {
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
