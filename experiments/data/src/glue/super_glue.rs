//! The JSON lines of SuperGLUE.
//!
//! Positions are counted in characters (Unicode scalar values) or in words between white space, as the official files do. ReCoRD's spans include
//! their last character, WiC's do not.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::super::files::TextFile;
use super::marked_spans::{marked, words};
use super::{DataError, Entity, Example, GlueTask, Label, Unlabelled};
use crate::json::{self, Field};

/// The examples of a line may take so many times its size. Every candidate repeats its question, which in the real files makes them a few times
/// larger; a line that was made to fill the memory is refused before it does.
const GROWTH: usize = 100;

/// How early releases of MultiRC number the sentences of a paragraph.
static SENTENCE_NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new("<b>Sent [0-9]+: </b>").expect("the pattern is well formed"));

/// An example without what is known of its answer.
pub(super) struct Texts {
    first: Arc<str>,
    second: Option<String>,
    group: Option<usize>,
    entity: Option<Entity>,
}

/// An example with a label, or one with an index to submit an answer under.
pub(super) trait Known: Sized {
    const LABELLED: bool;

    /// `label` is called where there is one; `record` has the field `idx` where there is none.
    fn of(texts: Texts, record: &Field, label: impl FnOnce() -> Result<Label, DataError>) -> Result<Self, DataError>;
}

impl Known for Example {
    const LABELLED: bool = true;

    fn of(texts: Texts, _record: &Field, label: impl FnOnce() -> Result<Label, DataError>) -> Result<Self, DataError> {
        let Texts { first, second, group, entity } = texts;
        Ok(Self { first, second, label: label()?, group, entity })
    }
}

impl Known for Unlabelled {
    const LABELLED: bool = false;

    fn of(texts: Texts, record: &Field, _label: impl FnOnce() -> Result<Label, DataError>) -> Result<Self, DataError> {
        let Texts { first, second, group, entity } = texts;
        Ok(Self { index: record.key("idx")?.number()?, first, second, group, entity: entity.map(|entity| entity.text) })
    }
}

/// The examples of a file of `task`, which is one of SuperGLUE.
pub(super) fn read<E: Known>(file: &TextFile, task: GlueTask) -> Result<Vec<E>, DataError> {
    let mut made = Made { examples: Vec::new(), groups: 0, room: 0 };
    for (index, line) in file.lines.iter().enumerate() {
        let object = json::object(file, index)?;
        let record = Field::of_line(file, index, &object);
        made.room = GROWTH * line.len();
        match task {
            GlueTask::Copa => choices(&record, &mut made)?,
            GlueTask::MultiRc => answers(&record, &mut made)?,
            GlueTask::Record => entities(&record, &mut made)?,
            _ => {
                let (first, second) = texts(&record, task)?;
                let texts = Texts { first: first.into(), second, group: None, entity: None };
                made.add(texts, &record, || record.key("label")?.label(task))?;
            }
        }
    }
    Ok(made.examples)
}

struct Made<E> {
    examples: Vec<E>,
    groups: usize,
    /// Bytes that the examples of the line may still take.
    room: usize,
}

impl<E: Known> Made<E> {
    fn add(&mut self, texts: Texts, record: &Field, label: impl FnOnce() -> Result<Label, DataError>) -> Result<(), DataError> {
        let second = texts.second.as_ref().map_or(0, String::len);
        let size = size_of::<E>() + second + texts.entity.as_ref().map_or(0, |entity| entity.text.len());
        let expected = || format!("small enough: the examples of the line would take more than {GROWTH} times its size");
        self.room = self.room.checked_sub(size).ok_or_else(|| record.wrong(&expected()))?;
        self.examples.push(E::of(texts, record, label)?);
        Ok(())
    }
}

/// The texts of a task whose examples stand alone.
fn texts(record: &Field, task: GlueTask) -> Result<(String, Option<String>), DataError> {
    let text = |key: &str| record.key(key)?.text();
    match task {
        GlueTask::Wic => {
            let sentence = |number: usize| {
                let sentence = text(&format!("sentence{number}"))?;
                let [start, end] = ["start", "end"].map(|border| record.key(&format!("{border}{number}")));
                Ok(marked(sentence, &[(characters(&borders(sentence), &start?, &end?, 0)?, '*')]))
            };
            Ok((format!("{} : {}", text("word")?, sentence(1)?), Some(sentence(2)?)))
        }
        GlueTask::Wsc => {
            let whole = text("text")?;
            let target = record.key("target")?;
            let words = words(whole);
            let span = |name: &str| phrase(whole, &words, &target.key(&format!("{name}_index"))?, &target.key(&format!("{name}_text"))?);
            Ok((marked(whole, &[(span("span1")?, '*'), (span("span2")?, '#')]), None))
        }
        // Its columns have other names in GLUE.
        GlueTask::Rte => Ok((text("premise")?.to_string(), Some(text("hypothesis")?.to_string()))),
        _ => {
            let keys = task.sentence_columns();
            let second = keys.get(1).map(|key| text(key).map(str::to_string)).transpose()?;
            Ok((text(keys[0])?.to_string(), second))
        }
    }
}

/// COPA: an example for each of the two choices.
fn choices<E: Known>(record: &Field, made: &mut Made<E>) -> Result<(), DataError> {
    let asked = record.key("question")?;
    let question = match asked.text()? {
        "cause" => "What was the cause?",
        "effect" => "What happened as a result?",
        _ => return Err(asked.wrong("`cause` or `effect`")),
    };
    let first: Arc<str> = format!("{} {question}", record.key("premise")?.text()?.trim()).into();
    for (class, key) in ["choice1", "choice2"].into_iter().enumerate() {
        let second = Some(record.key(key)?.text()?.to_string());
        let texts = Texts { first: first.clone(), second, group: Some(made.groups), entity: None };
        made.add(texts, record, || {
            let right = record.key("label")?.label(GlueTask::Copa)?;
            Ok(Label::Class(usize::from(right == Label::Class(class))))
        })?;
    }
    made.groups += 1;
    Ok(())
}

/// MultiRC: an example for each answer to each question.
fn answers<E: Known>(record: &Field, made: &mut Made<E>) -> Result<(), DataError> {
    let passage = record.key("passage")?;
    let paragraph = SENTENCE_NUMBER.replace_all(passage.key("text")?.text()?, "").replace("<br>", " ");
    let first: Arc<str> = paragraph.trim().into();
    for question in passage.key("questions")?.list()? {
        let asked = question.key("question")?.text()?;
        for answer in question.key("answers")?.list()? {
            let second = Some(format!("{} {}", asked.trim(), answer.key("text")?.text()?.trim()));
            let texts = Texts { first: first.clone(), second, group: Some(made.groups), entity: None };
            made.add(texts, &answer, || answer.key("label")?.label(GlueTask::MultiRc))?;
        }
        made.groups += 1;
    }
    Ok(())
}

/// ReCoRD: an example for each different entity in each query.
fn entities<E: Known>(record: &Field, made: &mut Made<E>) -> Result<(), DataError> {
    const GAP: &str = "@placeholder";
    let passage = record.key("passage")?;
    let text = passage.key("text")?.text()?;
    let borders = borders(text);
    let mut seen = HashSet::new();
    let mut candidates = Vec::new();
    for entity in passage.key("entities")?.list()? {
        let candidate = &text[characters(&borders, &entity.key("start")?, &entity.key("end")?, 1)?];
        candidates.extend(seen.insert(candidate).then_some(candidate));
    }
    let first: Arc<str> = flattened(text).into();
    for query in record.key("qas")?.list()? {
        let sentence = query.key("query")?;
        if !sentence.text()?.contains(GAP) {
            return Err(sentence.wrong(&format!("a query with {GAP}")));
        }
        let answers: Arc<[String]> = if E::LABELLED {
            let answers = query.key("answers")?.list()?;
            answers.iter().map(|answer| Ok(answer.key("text")?.text()?.to_string())).collect::<Result<_, DataError>>()?
        } else {
            Arc::default()
        };
        for candidate in &candidates {
            let second = Some(sentence.text()?.replace(GAP, candidate));
            let entity = Entity { text: candidate.to_string(), answers: answers.clone() };
            let is_right = answers.iter().any(|answer| answer == candidate);
            let texts = Texts { first: first.clone(), second, group: Some(made.groups), entity: Some(entity) };
            made.add(texts, &query, || Ok(Label::Class(usize::from(is_right))))?;
        }
        made.groups += 1;
    }
    Ok(())
}

/// A passage whose highlights follow it as sentences.
fn flattened(passage: &str) -> String {
    let mut pieces = passage.split("\n@highlight\n");
    let mut text = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        text.push_str(if text.ends_with(['.', '?', '!', '"', '\'']) { " " } else { ". " });
        text.push_str(piece);
    }
    text
}

/// Where the characters of a text begin, in bytes, and where it ends.
fn borders(text: &str) -> Vec<usize> {
    text.char_indices().map(|(start, _)| start).chain([text.len()]).collect()
}

/// The bytes of a span of characters; `beyond` is what the end in the file lacks to the end of the span.
fn characters(borders: &[usize], start: &Field, end: &Field, beyond: usize) -> Result<Range<usize>, DataError> {
    let (from, to) = (start.number()?, end.number()?.saturating_add(beyond));
    if from >= to || to >= borders.len() {
        return Err(end.wrong(&format!("the end of a span from character {from} in a text of {} characters", borders.len() - 1)));
    }
    Ok(borders[from]..borders[to])
}

/// The bytes of a phrase that begins with the word number `index`.
///
/// Some phrases of the official files differ from their texts in case, punctuation or white space; so many words of the text are taken as the phrase
/// has, as the benchmark's own baselines do.
fn phrase(text: &str, words: &[Range<usize>], index: &Field, phrase: &Field) -> Result<Range<usize>, DataError> {
    let expected = || format!("the number of a word, from 0, with which the phrase fits into a text of {} words", words.len());
    let (first, written) = (index.number()?, phrase.text()?.trim());
    let start = words.get(first).ok_or_else(|| index.wrong(&expected()))?.start;
    let mut rest = text[start..].chars();
    let fits = written.chars().all(|wanted| rest.next().is_some_and(|found| found.to_lowercase().eq(wanted.to_lowercase())));
    let rest = rest.as_str();
    if written.is_empty() {
        return Err(phrase.wrong("a phrase"));
    }
    if fits && !rest.starts_with(char::is_alphanumeric) {
        return Ok(start..text.len() - rest.len());
    }
    let last = first.saturating_add(written.split_whitespace().count() - 1);
    Ok(start..words.get(last).ok_or_else(|| index.wrong(&expected()))?.end)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use rand_chacha::ChaCha8Rng;
    use serde_json::{Value, json};

    use heedful_random::RandomKey;

    use super::*;
    use crate::files::tests::refused;

    const TASKS: [GlueTask; 8] =
        [GlueTask::BoolQ, GlueTask::Cb, GlueTask::Rte, GlueTask::Copa, GlueTask::Wic, GlueTask::MultiRc, GlueTask::Record, GlueTask::Wsc];

    /// A labelled line in the form of the official file.
    fn line(task: GlueTask) -> Value {
        match task {
            GlueTask::BoolQ => json!({"question": "is it wet", "passage": "Water -- It is.", "idx": 4, "label": true}),
            GlueTask::Cb => json!({"premise": "He left.", "hypothesis": "he left", "label": "neutral", "idx": 4}),
            GlueTask::Rte => json!({"premise": "He left.", "hypothesis": "He is here.", "label": "not_entailment", "idx": 4}),
            GlueTask::Copa => json!({
                "premise": "It rained. ", "choice1": "It got wet.", "choice2": "It got dry.", "question": "effect", "label": 1, "idx": 4
            }),
            GlueTask::Wic => json!({
                "word": "class", "sentence1": "A real class.", "sentence2": "Naïve classes met.", "idx": 4, "label": false,
                "start1": 7, "start2": 6, "end1": 12, "end2": 13, "version": 1.1
            }),
            GlueTask::MultiRc => json!({"idx": 9, "version": 1.1, "passage": {"text": "Ann ran. Bo sat. ", "questions": [
                {"question": "Who ran?", "idx": 5, "answers": [{"text": "Ann", "idx": 1, "label": 1}, {"text": "Bo ", "idx": 2, "label": 0}]},
                {"question": "Who sat?", "idx": 6, "answers": [{"text": "Bo", "idx": 3, "label": 1}]}
            ]}}),
            GlueTask::Record => json!({"source": "CNN", "idx": 8, "passage": {
                "text": "Zoë Ash met Bo\n@highlight\nNEW: Ash left!\n@highlight\nBo stayed",
                "entities": [{"start": 0, "end": 6}, {"start": 12, "end": 13}, {"start": 31, "end": 33}, {"start": 52, "end": 53}]
            }, "qas": [
                {"query": "@placeholder went.", "idx": 7, "answers": [
                    {"start": 0, "end": 6, "text": "Zoë Ash"}, {"start": 31, "end": 33, "text": "Ash"}
                ]},
                {"query": "Who is @placeholder?", "idx": 2, "answers": [{"start": 12, "end": 13, "text": "Bo"}]}
            ]}),
            GlueTask::Wsc => json!({"text": "The dog saw Bo, and he ran.", "idx": 4, "label": true, "target": {
                "span1_index": 3, "span1_text": "Bo", "span2_index": 5, "span2_text": "He"
            }}),
            other => panic!("{other} is no task of SuperGLUE"),
        }
    }

    fn file(lines: &str) -> TextFile {
        TextFile::from_bytes("train.jsonl".into(), "train.jsonl".into(), lines.as_bytes()).unwrap()
    }

    fn examples(task: GlueTask, line: &Value) -> Vec<Example> {
        read(&file(&line.to_string()), task).unwrap()
    }

    fn message(task: GlueTask, line: &Value) -> String {
        read::<Example>(&file(&line.to_string()), task).unwrap_err().to_string()
    }

    fn class(first: &str, second: &str, class: usize) -> Example {
        Example::new(first, Some(second.to_string()), Label::Class(class))
    }

    fn candidate(group: usize, first: &str, second: &str, label: usize) -> Example {
        Example { group: Some(group), ..class(first, second, label) }
    }

    /// `line` with the value at a path such as `/passage/text` replaced, or removed if there is none.
    fn changed(task: GlueTask, path: &str, value: Option<Value>) -> Value {
        let mut line = line(task);
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = line.pointer_mut(parent).unwrap();
        match (value, parent) {
            (Some(value), Value::Array(values)) => values[key.parse::<usize>().unwrap()] = value,
            (Some(value), parent) => parent[key] = value,
            (None, parent) => drop(parent.as_object_mut().unwrap().remove(key).unwrap()),
        }
        line
    }

    #[test]
    fn pairs_are_taken_as_they_are() {
        assert_eq!(examples(GlueTask::BoolQ, &line(GlueTask::BoolQ)), [class("is it wet", "Water -- It is.", 1)]);
        assert_eq!(examples(GlueTask::Cb, &line(GlueTask::Cb)), [class("He left.", "he left", 2)]);
        assert_eq!(examples(GlueTask::Rte, &line(GlueTask::Rte)), [class("He left.", "He is here.", 1)]);
    }

    #[test]
    fn copa_makes_an_example_of_each_choice() {
        let effect = "It rained. What happened as a result?";
        let wanted = [candidate(0, effect, "It got wet.", 0), candidate(0, effect, "It got dry.", 1)];
        assert_eq!(examples(GlueTask::Copa, &line(GlueTask::Copa)), wanted);
        let mut cause = changed(GlueTask::Copa, "/question", Some(json!("cause")));
        cause["label"] = json!(0);
        let both = format!("{}\n{cause}\n", line(GlueTask::Copa));
        let read: Vec<Example> = read(&file(&both), GlueTask::Copa).unwrap();
        assert_eq!(read[..2], wanted);
        let cause = "It rained. What was the cause?";
        assert_eq!(read[2..], [candidate(1, cause, "It got wet.", 1), candidate(1, cause, "It got dry.", 0)]);
    }

    #[test]
    fn wic_marks_the_word_by_its_characters() {
        let wanted = class("class : A real * class * .", "Naïve * classes * met.", 0);
        assert_eq!(examples(GlueTask::Wic, &line(GlueTask::Wic)), [wanted]);
    }

    #[test]
    fn multirc_makes_an_example_of_each_answer() {
        let text = "Ann ran. Bo sat.";
        let wanted = [candidate(0, text, "Who ran? Ann", 1), candidate(0, text, "Who ran? Bo", 0), candidate(1, text, "Who sat? Bo", 1)];
        assert_eq!(examples(GlueTask::MultiRc, &line(GlueTask::MultiRc)), wanted);
        let numbered = "<b>Sent 1: </b>Ann ran.<br><b>Sent 12: </b>Bo sat.<br>";
        assert_eq!(examples(GlueTask::MultiRc, &changed(GlueTask::MultiRc, "/passage/text", Some(json!(numbered)))), wanted);
    }

    #[test]
    fn record_makes_an_example_of_each_different_entity() {
        let text = "Zoë Ash met Bo. NEW: Ash left! Bo stayed";
        let entity = |group, query: &str, entity: &str, label, answers: &[&str]| Example {
            entity: Some(Entity { text: entity.to_string(), answers: answers.iter().map(|answer| answer.to_string()).collect() }),
            ..candidate(group, text, &query.replace('_', entity), label)
        };
        let went = [("Zoë Ash", 1), ("Bo", 0), ("Ash", 1)].map(|(name, label)| entity(0, "_ went.", name, label, &["Zoë Ash", "Ash"]));
        let who = [("Zoë Ash", 0), ("Bo", 1), ("Ash", 0)].map(|(name, label)| entity(1, "Who is _?", name, label, &["Bo"]));
        assert_eq!(examples(GlueTask::Record, &line(GlueTask::Record)), [went, who].concat());
    }

    #[test]
    fn wsc_marks_the_phrase_and_the_pronoun() {
        let of = |index: usize, text: &str| {
            let mut line = line(GlueTask::Wsc);
            line["target"]["span1_index"] = json!(index);
            line["target"]["span1_text"] = json!(text);
            examples(GlueTask::Wsc, &line).remove(0).first.to_string()
        };
        assert_eq!(of(3, "Bo"), "The dog saw * Bo * , and # he # ran.");
        assert_eq!(of(0, "the Dog"), "* The dog * saw Bo, and # he # ran.");
        assert_eq!(of(6, "ran."), "The dog saw Bo, and # he # * ran. *");
        // As in some official lines: so many words as the phrase has, whatever they are.
        assert_eq!(of(0, "A\ncat"), "* The dog * saw Bo, and # he # ran.");
        assert_eq!(of(0, "Th"), "* The * dog saw Bo, and # he # ran.");
        assert_eq!(examples(GlueTask::Wsc, &line(GlueTask::Wsc))[0].label, Label::Class(1));
    }

    #[test]
    fn a_test_file_needs_no_labels_and_gives_the_indices_to_submit() {
        let indices = |task: GlueTask, paths: &[&str]| {
            let mut unlabelled = line(task);
            for path in paths {
                let (parent, key) = path.rsplit_once('/').unwrap();
                unlabelled.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
            }
            let read: Vec<Unlabelled> = read(&file(&unlabelled.to_string()), task).unwrap();
            let texts: Vec<_> =
                examples(task, &line(task)).into_iter().map(|example| (example.first, example.second, example.group)).collect();
            assert_eq!(read.iter().map(|test| (test.first.clone(), test.second.clone(), test.group)).collect::<Vec<_>>(), texts, "{task}");
            let entities: Vec<_> = read.iter().filter_map(|test| test.entity.clone()).collect();
            assert_eq!(entities.len(), if task == GlueTask::Record { 6 } else { 0 });
            read.into_iter().map(|test| test.index).collect::<Vec<_>>()
        };
        for task in [GlueTask::BoolQ, GlueTask::Cb, GlueTask::Rte, GlueTask::Wic, GlueTask::Wsc] {
            assert_eq!(indices(task, &["/label"]), [4], "{task}");
        }
        assert_eq!(indices(GlueTask::Copa, &["/label"]), [4, 4]);
        let answers = ["0/answers/0", "0/answers/1", "1/answers/0"].map(|answer| format!("/passage/questions/{answer}/label"));
        assert_eq!(indices(GlueTask::MultiRc, &answers.each_ref().map(String::as_str)), [1, 2, 3]);
        assert_eq!(indices(GlueTask::Record, &["/qas/0/answers", "/qas/1/answers"]), [7, 7, 7, 2, 2, 2]);
        let without = changed(GlueTask::Cb, "/idx", None);
        refused(read::<Unlabelled>(&file(&without.to_string()), GlueTask::Cb), &["train.jsonl`, line 1: no field `idx`"]);
    }

    #[test]
    fn a_wrong_value_is_an_error_with_file_line_and_field() {
        use GlueTask::*;
        for (task, path, value, part) in [
            (BoolQ, "/label", json!("maybe"), "field `label`: `\"maybe\"` is not a label of BoolQ (false, true)"),
            (BoolQ, "/passage", json!(7), "field `passage`: `7` is not a text"),
            (Cb, "/label", json!("Neutral"), "a label of CB (entailment, contradiction, neutral)"),
            (Rte, "/premise", json!(null), "field `premise`: `null`"),
            (Copa, "/question", json!("reason"), "field `question`: `\"reason\"` is not `cause` or `effect`"),
            (Copa, "/label", json!(2), "field `label`: `2` is not a label of COPA (0, 1)"),
            (Copa, "/choice2", json!([]), "field `choice2`"),
            (Wic, "/end1", json!(14), "field `end1`: `14` is not the end of a span from character 7 in a text of 13 characters"),
            (Wic, "/end2", json!(6), "field `end2`: `6` is not the end of a span from character 6"),
            (Wic, "/start1", json!(-1), "field `start1`: `-1` is not a whole number"),
            (Wic, "/start2", json!(1.5), "field `start2`: `1.5`"),
            (Wic, "/start2", json!(u64::MAX), "field `end2`"),
            (MultiRc, "/passage/questions/1/answers/0/label", json!(true), "field `passage.questions[1].answers[0].label`: `true`"),
            (MultiRc, "/passage/questions/0/answers/1", json!("Bo"), "field `passage.questions[0].answers[1]`: `\"Bo\"` is not an object"),
            (MultiRc, "/passage/questions/0/answers", json!([]), "field `passage.questions[0].answers`: `[]`"),
            (MultiRc, "/passage/questions", json!({}), "field `passage.questions`: `{}` is not a list"),
            (MultiRc, "/passage", json!("text"), "field `passage`: `\"text\"` is not an object"),
            (
                Record,
                "/passage/entities/3/end",
                json!(62),
                "field `passage.entities[3].end`: `62` is not the end of a span from character 52 in a text of 61",
            ),
            (Record, "/passage/entities/1/end", json!(11), "field `passage.entities[1].end`: `11`"),
            (Record, "/passage/entities/1/end", json!(u64::MAX), "field `passage.entities[1].end`"),
            (Record, "/qas/0/query", json!("He went."), "field `qas[0].query`: `\"He went.\"` is not a query with @placeholder"),
            (Record, "/qas/1/answers", json!([]), "field `qas[1].answers`: `[]`"),
            (Record, "/qas/1/answers/0/text", json!(1), "field `qas[1].answers[0].text`"),
            (Wsc, "/target/span1_index", json!(7), "field `target.span1_index`: `7` is not the number of a word"),
            (Wsc, "/target/span2_text", json!("he ran off"), "field `target.span2_index`: `5` is not the number of a word"),
            (Wsc, "/target/span2_text", json!(" "), "field `target.span2_text`: `\" \"` is not a phrase"),
        ] {
            let lines = format!("{}\n{}\n", line(task), changed(task, path, Some(value)));
            refused(read::<Example>(&file(&lines), task), &["train.jsonl`, line 2, ", part]);
        }
    }

    #[test]
    fn every_field_that_is_used_is_missed() {
        use GlueTask::*;
        for (task, paths) in [
            (BoolQ, &["/question", "/passage", "/label"][..]),
            (Cb, &["/premise", "/hypothesis", "/label"]),
            (Rte, &["/premise", "/hypothesis", "/label"]),
            (Copa, &["/premise", "/choice1", "/choice2", "/question", "/label"]),
            (Wic, &["/word", "/sentence1", "/sentence2", "/start1", "/start2", "/end1", "/end2", "/label"]),
            (MultiRc, &["/passage", "/passage/text", "/passage/questions", "/passage/questions/0/question"]),
            (MultiRc, &["/passage/questions/1/answers", "/passage/questions/0/answers/1/text", "/passage/questions/0/answers/1/label"]),
            (Record, &["/passage", "/passage/text", "/passage/entities", "/passage/entities/2/start", "/passage/entities/2/end"]),
            (Record, &["/qas", "/qas/1/query", "/qas/1/answers", "/qas/0/answers/1/text"]),
            (
                Wsc,
                &["/text", "/target", "/target/span1_index", "/target/span1_text", "/target/span2_index", "/target/span2_text", "/label"],
            ),
        ] {
            for path in paths {
                let error = message(task, &changed(task, path, None));
                let key = path.rsplit_once('/').unwrap().1;
                assert!(
                    error.contains("train.jsonl`, line 1: no field `") && error.contains(&format!("{key}`;")),
                    "{task} {path}: {error}"
                );
            }
        }
    }

    #[test]
    fn a_line_whose_examples_would_fill_the_memory_is_refused() {
        let mut many = line(GlueTask::Record);
        many["passage"]["text"] = json!("ab".repeat(1000));
        many["passage"]["entities"] = (0..500).map(|start| json!({"start": start, "end": start + 1000})).collect();
        many["qas"] = (0..100).map(|idx| json!({"query": "@placeholder @placeholder", "idx": idx, "answers": [{"text": "ab"}]})).collect();
        // Half of the entities are the same letters; 25,000 and more queries of 2,000 characters are left.
        many["passage"]["text"] = json!((0..2000).map(|index| char::from(b'a' + (index * index % 23) as u8)).collect::<String>());
        let error = message(GlueTask::Record, &many);
        assert!(error.contains("field `qas[") && error.contains("more than 100 times its size"), "{error}");
        let mut many = line(GlueTask::MultiRc);
        many["passage"]["questions"][0]["question"] = json!("why ".repeat(10_000));
        many["passage"]["questions"][0]["answers"] = (0..1000).map(|idx| json!({"text": "", "idx": idx, "label": 0})).collect();
        let error = message(GlueTask::MultiRc, &many);
        assert!(error.contains("field `passage.questions[0].answers[") && error.contains("100 times"), "{error}");
    }

    /// A value like those that stand in the files, or near them.
    fn value(rng: &mut ChaCha8Rng) -> Value {
        match rng.random_range(0..9) {
            0 => json!(null),
            1 => json!(rng.random_bool(0.5)),
            2 => json!(rng.random_range(-2_i64..70)),
            3 => json!([u64::MAX, i64::MAX as u64, u64::MAX - 1][rng.random_range(0..3)]),
            4 => json!(rng.random_range(-1.0..2.0)),
            5 => json!(["", " ", "@placeholder", "é\u{301}", "Bo", "cause", "neutral", "\u{2003}a\n@highlight\n"][rng.random_range(0..8)]),
            6 => json!([]),
            7 => json!({}),
            _ => json!([{"text": "x", "start": 0, "end": 0, "label": 1, "idx": 0}]),
        }
    }

    /// The value number `at` of those inside `inner`, itself first.
    fn nth<'a>(inner: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
        if *at == 0 {
            return Some(inner);
        }
        *at -= 1;
        match inner {
            Value::Array(values) => values.iter_mut().find_map(|value| nth(value, at)),
            Value::Object(fields) => fields.values_mut().find_map(|value| nth(value, at)),
            _ => None,
        }
    }

    #[test]
    fn a_mutated_line_is_read_or_refused_with_file_and_line() {
        let mut rng = RandomKey::from_seed(1).named("super glue").rng();
        for task in TASKS {
            let (mut accepted, mut refused) = (0, 0);
            for _ in 0..2_000 {
                let mut mutated = line(task);
                for _ in 0..rng.random_range(0..3) {
                    let mut at = rng.random_range(0..40);
                    if let Some(found) = nth(&mut mutated, &mut at) {
                        *found = value(&mut rng);
                    }
                }
                let mut text: Vec<char> = mutated.to_string().chars().collect();
                for _ in 0..rng.random_range(0..3) {
                    let at = rng.random_range(0..text.len());
                    match rng.random_range(0..3) {
                        0 => drop(text.remove(at)),
                        1 => text.insert(at, ['"', '{', ']', '\\', '9', 'ü', ' '][rng.random_range(0..7)]),
                        _ => text[at] = ['0', '"', ',', ':', 'x', '-', '\u{a0}'][rng.random_range(0..7)],
                    }
                    if text.is_empty() {
                        break;
                    }
                }
                let file = file(&text.into_iter().collect::<String>());
                let outcomes = [read::<Example>(&file, task).map(drop), read::<Unlabelled>(&file, task).map(drop)];
                for outcome in outcomes {
                    match outcome {
                        Ok(()) => accepted += 1,
                        Err(error) => {
                            assert!(error.to_string().contains("train.jsonl`, line 1"), "{error}");
                            refused += 1;
                        }
                    }
                }
            }
            assert!(accepted > 200 && refused > 200, "{task}: {accepted} accepted, {refused} refused");
        }
    }
}
