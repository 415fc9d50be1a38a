//! Conversations in the text format of ParlAI, in which PersonaChat (Zhang et al. 2018) and ConvAI2 (Dinan et al. 2019) are distributed.
//!
//! The lines of a dialogue are numbered from 1. The first lines state facts about one speaker (`1 your persona: i have two dogs.`). The other lines are
//! exchanges (`5 hi ! how are you ?<TAB>i am great .`): the partner's utterance, a tab, and the reply of the speaker with the facts. The reward and the
//! candidates that may follow after further tabs are not used. Every exchange is a pair: its source is the facts and the last utterances up to the partner's,
//! its target is the reply. Each part of the source begins with a one-character mark that the texts do not contain and that every tokeniser keeps apart:
//! `* i have two dogs. > hi ! how are you ? < i am great . > what do you like ?`.
//!
//! A folder holds the files of one or more kinds, as `train_self_original_no_cands.txt` is one of kind `self_original`. Not covered: the kinds with the
//! partner's facts (`other`, `both`), and choosing among candidates.

use std::path::Path;

use super::DataError;
use super::files::{self, TextFile};
use super::parallel::{Pair, ParallelCorpus};
use super::text_pairs::{self, LinePair, TextPairs};

/// The kind of files that results are usually reported on: the own facts in their original words.
pub const USUAL_KIND: &str = "self_original";

/// Begins a fact in the source.
pub const FACT: &str = "*";
/// Begins an utterance of the partner in the source.
pub const PARTNER: &str = ">";
/// Begins an own utterance in the source.
pub const OWN: &str = "<";

/// Each exchange repeats the facts, so without a limit a small file could fill the memory. PersonaChat's dialogues have at most about twenty.
const MOST_EXCHANGES: usize = 100;
const MOST_FIELDS: usize = 4;

/// The exchanges of a dialogue as pairs, each with its line.
type Dialogue = Vec<LinePair>;

/// Reads the dialogues of `kind` (such as [`USUAL_KIND`]) from the folder `dir`, with the last `turns` utterances in each source, at least one.
///
/// Files are `SPLIT_KIND_no_cands.txt` or `SPLIT_KIND.txt`, which hold the same exchanges; the first is read if both are there. Without a test file the
/// validation file is the test set (ConvAI2's own is hidden), and the last tenth of the training dialogues is for validation, as it is without a validation
/// file. A single training or validation file is cut by dialogue, 80/10/10 in file order. Where a training file holds each dialogue from both sides, one
/// held out for validation may be in training from its other side.
///
/// # Errors
/// [`DataError::MissingPart`], [`DataError::Ambiguous`] (a file in two forms), [`DataError::FieldValue`] (a line that is not of the format),
/// [`DataError::FieldCount`], [`DataError::Empty`] (no usable pair, or too few dialogues to be divided), and those of [`TextFile::read`].
pub fn read(dir: &Path, kind: &str, turns: usize) -> Result<TextPairs, DataError> {
    let listed = files::list(dir, "a folder of dialogues (train_self_original.txt, ...)")?;
    let file = |split: &str| -> Result<Option<TextFile>, DataError> {
        let names = [format!("{split}_{kind}_no_cands.txt"), format!("{split}_{kind}.txt")];
        let Some(forms) = names.iter().find_map(|name| listed.get(name)) else { return Ok(None) };
        let path = files::only(forms.clone(), &format!("the {split} dialogues of kind `{kind}`"))?;
        path.map(|path| TextFile::read(&path, "dialogues")).transpose()
    };
    let (train, valid, test) = (file("train")?, file("valid")?, file("test")?);
    let read: Vec<&TextFile> = [&train, &valid, &test].into_iter().flatten().collect();
    let sha256 = files::combined_sha256(read.iter().copied());
    let names = read.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(", ");
    let ([train, valid, test], test_name, split) = match (&train, &valid, &test) {
        (Some(train), Some(valid), Some(test)) => {
            let parts = [(train, dialogues(train, turns)?), (valid, dialogues(valid, turns)?), (test, dialogues(test, turns)?)];
            (parts, "test", format!("as distributed: {names}"))
        }
        (Some(train), Some(other), None) | (Some(train), None, Some(other)) => {
            let mut kept = dialogues(train, turns)?;
            let held_out = text_pairs::last_tenth(train, "dialogues", &mut kept)?;
            let split = format!("{names}: the last tenth of the training dialogues is for validation, {} is the test set", other.name);
            let parts = [(train, kept), (train, held_out), (other, dialogues(other, turns)?)];
            (parts, if valid.is_some() { "valid" } else { "test" }, split)
        }
        (Some(file), None, None) | (None, Some(file), None) => {
            let parts = text_pairs::cut(file, "dialogues", dialogues(file, turns)?)?;
            let [train, valid, test] = parts.each_ref().map(Vec::len);
            let split = format!("{names} cut 80/10/10 by dialogue in file order: {train} / {valid} / {test} dialogues");
            (parts.map(|part| (file, part)), "test", split)
        }
        _ => {
            return Err(DataError::missing(
                dir,
                format!("the training dialogues of kind `{kind}`"),
                format!("train_{kind}_no_cands.txt or train_{kind}.txt"),
            ));
        }
    };
    let mut skipped = Vec::new();
    let mut usable = |(file, dialogues): (&TextFile, Vec<Dialogue>)| {
        let pairs = dialogues.into_iter().flatten().collect();
        text_pairs::usable(file, pairs, &mut skipped)
    };
    let (train, valid) = (usable(train)?, usable(valid)?);
    let tests = vec![(test_name.to_owned(), text_pairs::without_lines(test.1.into_iter().flatten().collect()))];
    let [source_language, target_language] = ["persona and history", "reply"].map(str::to_owned);
    Ok(TextPairs { corpus: ParallelCorpus { source_language, target_language, train, valid, tests, skipped, sha256 }, split })
}

/// The source of a reply: the facts and the last `turns` utterances, at least one. The speakers of `history` take turns and the partner speaks last.
pub fn source(facts: &[String], history: &[String], turns: usize) -> String {
    let facts = facts.iter().map(|fact| format!("{FACT} {fact}"));
    let first = history.len().saturating_sub(turns.max(1));
    let utterance = |(index, utterance): (usize, &String)| {
        let speaker = if (history.len() - index) % 2 == 1 { PARTNER } else { OWN };
        format!("{speaker} {utterance}")
    };
    facts.chain(history.iter().enumerate().skip(first).map(utterance)).collect::<Vec<_>>().join(" ")
}

fn dialogues(file: &TextFile, turns: usize) -> Result<Vec<Dialogue>, DataError> {
    let mut dialogues: Vec<Dialogue> = Vec::new();
    let (mut facts, mut history) = (Vec::new(), Vec::new());
    let mut last = 0;
    for (index, line) in file.lines.iter().enumerate() {
        let wrong = |field: &str, value: &str, expected: &str| file.wrong(index, field, value, expected);
        let (number, text) = line.split_once(' ').ok_or_else(|| wrong("number", line, "a number and an utterance"))?;
        let number: usize = number.parse().map_err(|_| wrong("number", number, "the number of a line in its dialogue"))?;
        if number == 1 {
            dialogues.push(Vec::new());
            (facts, history) = (Vec::new(), Vec::new());
        } else if dialogues.is_empty() || number != last + 1 {
            return Err(wrong("number", &number.to_string(), &format!("1 or {}", last + 1)));
        }
        last = number;
        let Some(dialogue) = dialogues.last_mut() else { continue };
        if let Some(fact) = text.strip_prefix("your persona: ") {
            if !dialogue.is_empty() {
                return Err(wrong("persona", fact, "before the first exchange of its dialogue"));
            }
            facts.push(fact.trim().to_owned());
            continue;
        }
        let fields: Vec<&str> = text.splitn(MOST_FIELDS + 1, '\t').collect();
        let reply = match fields[..] {
            [_, reply, ..] if fields.len() <= MOST_FIELDS => reply.trim(),
            _ => {
                return Err(wrong(
                    "reply",
                    text,
                    "`your persona: ...`, or an utterance, a tab and the reply (and perhaps reward and candidates)",
                ));
            }
        };
        if dialogue.len() == MOST_EXCHANGES {
            return Err(wrong("number", &number.to_string(), &format!("in a dialogue of at most {MOST_EXCHANGES} exchanges")));
        }
        history.push(fields[0].trim().to_owned());
        dialogue.push((index + 1, Pair { source: source(&facts, &history, turns), target: reply.to_owned() }));
        history.push(reply.to_owned());
    }
    Ok(dialogues)
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::{folder, refused};
    use super::super::text_pairs::tests::survives;
    use super::*;

    const DIALOGUE: &str = "1 your persona: i have two dogs.\n2 your persona: i like cars.\n3 hi ! how are you ?\ti am great .\n4 what do you like ?\tcars .\n\
                            5 nice .\tyes .\n";

    fn of(text: &str, turns: usize) -> Result<Vec<Dialogue>, DataError> {
        dialogues(&TextFile::from_bytes("valid.txt".into(), "valid.txt".into(), text.as_bytes())?, turns)
    }

    fn sources(text: &str, turns: usize) -> Vec<String> {
        of(text, turns).unwrap().concat().into_iter().map(|(_, pair)| pair.source).collect()
    }

    #[test]
    fn a_source_has_the_facts_and_the_last_turns_with_their_speakers() {
        let facts = "* i have two dogs. * i like cars.";
        for (turns, history) in [
            (0, "> nice ."),
            (1, "> nice ."),
            (2, "< cars . > nice ."),
            (4, "< i am great . > what do you like ? < cars . > nice ."),
            (9, "> hi ! how are you ? < i am great . > what do you like ? < cars . > nice ."),
        ] {
            assert_eq!(sources(DIALOGUE, turns)[2], format!("{facts} {history}"), "{turns} turns");
        }
        let pairs = of(DIALOGUE, 1).unwrap().concat();
        assert_eq!(pairs[1], (4, Pair { source: format!("{facts} > what do you like ?"), target: "cars .".into() }));
    }

    #[test]
    fn a_dialogue_begins_anew_with_number_one_and_knows_nothing_of_the_one_before() {
        let two = format!("{DIALOGUE}1 hello .\thi .\t\thi .|bye .\n");
        assert_eq!(of(&two, 9).unwrap().len(), 2);
        assert_eq!(sources(&two, 9)[3], "> hello .");
        assert_eq!(of(&two, 9).unwrap()[1][0].1.target, "hi .");
    }

    #[test]
    fn a_single_file_is_cut_by_dialogue_in_file_order() {
        let text: String = (0..20).map(|n| format!("1 your persona: i am {n} .\n2 hello .\ti am {n} .\n3 really ?\tyes .\n")).collect();
        for name in ["valid_self_original_no_cands.txt.gz", "train_self_original.txt"] {
            let data = read(folder(&[(name, text.as_bytes())]).path(), USUAL_KIND, 3).unwrap();
            let corpus = &data.corpus;
            assert_eq!([corpus.train.len(), corpus.valid.len(), corpus.tests[0].1.len()], [32, 4, 4]);
            assert_eq!(corpus.valid[0].source, "* i am 16 . > hello .");
            assert!(data.split.contains(name) && data.split.contains("16 / 2 / 2 dialogues"), "{}", data.split);
        }
    }

    #[test]
    fn where_a_split_is_missing_a_tenth_of_training_is_held_out_and_the_description_says_so() {
        let ten = DIALOGUE.repeat(10);
        let [train, valid, test] = ["train_self_original.txt", "valid_self_original.txt", "test_self_original.txt"];
        for (evaluated, sizes, set, part) in [
            (vec![valid, test], [30, 3, 3], "test", "as distributed"),
            (vec![valid], [27, 3, 3], "valid", "valid_self_original.txt is the test set"),
            (vec![test], [27, 3, 3], "test", "test_self_original.txt is the test set"),
        ] {
            let mut files = vec![(train, ten.as_bytes()), ("train_self_revised.txt", b"other kind")];
            files.extend(evaluated.into_iter().map(|name| (name, DIALOGUE.as_bytes())));
            let data = read(folder(&files).path(), USUAL_KIND, 3).unwrap();
            assert_eq!([data.corpus.train.len(), data.corpus.valid.len(), data.corpus.tests[0].1.len()], sizes, "{part}");
            assert_eq!(data.corpus.tests[0].0, set);
            assert!(data.split.contains(part), "{}", data.split);
        }
        for name in [test, "train_self_revised.txt"] {
            refused(read(folder(&[(name, DIALOGUE.as_bytes())]).path(), USUAL_KIND, 3), &["train_self_original_no_cands.txt"]);
        }
    }

    #[test]
    fn files_with_and_without_candidates_hold_the_same_pairs() {
        let with = DIALOGUE.replace("great .\n", "great .\t\tno .|yes .|great .\n").repeat(10);
        let without = DIALOGUE.repeat(10);
        let files = [("train_self_original.txt", with.as_bytes()), ("train_self_original_no_cands.txt", without.as_bytes())];
        let both = read(folder(&files).path(), USUAL_KIND, 3).unwrap();
        let one = read(folder(&files[..1]).path(), USUAL_KIND, 3).unwrap();
        assert_eq!(both.corpus.train, one.corpus.train);
        assert!(both.split.contains("no_cands"), "{}", both.split);
    }

    #[test]
    fn exchanges_without_reply_are_skipped_but_stay_in_the_history() {
        let text = "1 hi .\t \n2 well ?\tyes .\n".repeat(10);
        let data = read(folder(&[("valid_self_original.txt", text.as_bytes())]).path(), USUAL_KIND, 3).unwrap();
        assert_eq!(data.corpus.train[0], Pair { source: "> hi . <  > well ?".into(), target: "yes .".into() });
        assert_eq!((data.corpus.train.len(), data.corpus.skipped[0].lines[1]), (8, 3));
        assert_eq!(data.corpus.tests[0].1.len(), 2, "the test set stays whole");
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number_and_field() {
        let long: String = (1..=101).map(|number| format!("{number} a\tb\n")).collect();
        for (text, parts) in [
            ("1 a\tb\n3 a\tb\n", ["line 2, field `number`", "`3` is not 1 or 2"]),
            ("2 a\tb\n", ["line 1", "`2` is not 1 or 1"]),
            ("x a\tb\n", ["line 1", "`x`"]),
            ("1\n", ["line 1", "a number and an utterance"]),
            ("1 a\tb\n2 hello\n", ["line 2, field `reply`", "a tab and the reply"]),
            ("1 a\tb\tc\td\te\n", ["line 1, field `reply`", "a tab and the reply"]),
            ("1 partner's persona: i sing.\n", ["line 1, field `reply`", "your persona"]),
            ("1 a\tb\n2 your persona: late.\n", ["line 2, field `persona`", "before the first exchange"]),
            (long.as_str(), ["line 101", "at most 100 exchanges"]),
        ] {
            refused(of(text, 3), &parts);
        }
    }

    #[test]
    fn damaged_files_are_read_within_bounds_or_refused() {
        survives(&DIALOGUE.repeat(3), 2 * MOST_EXCHANGES, |file| {
            Ok(dialogues(file, 5)?.concat().iter().map(|(_, pair)| pair.source.len() + pair.target.len()).sum())
        });
    }
}
