//! Artificial dialogues in which the reply repeats one fact of a persona.
//!
//! A persona has four facts of three kinds (`i have three poodles .`, `i play the oboe .`, `i eat plums .`), two or more of which are of the kind that the
//! partner asks about. He asks by a more general word: to answer `how many dogs do you have ?` with `i have three poodles .`, the fact must be found by what
//! its thing is (the form of the question leaves two or more), and copied with its number. An exchange about another fact may stand before the question, so
//! that neither the last reply nor a fixed place is the answer. A question by the very word of the fact (`how many poodles`) would be much harder to learn
//! for a small model, which first has to find out that equal words are to be compared. Sources have the form of [`crate::dialogue`] and 27 to 52
//! words; the vocabulary has about 80.

use heedful_random::RandomKey;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Sizes, distinct_pairs, pick};
use crate::dialogue::source;
use crate::{DataError, Pair, TextPairs};

const FACTS: usize = 4;
const EARLIER_EXCHANGE: f64 = 0.5;
const REMARK: f64 = 0.3;
const REMARKS: [&str; 3] = ["hello !", "nice .", "i see ."];

/// A fact and the question for it, with `THING`, `SORT` and `NUMBER` for what changes.
struct Kind {
    fact: &'static str,
    question: &'static str,
    /// Sorts of things with the things of each.
    sorts: [(&'static str, [&'static str; 3]); 4],
}

const KINDS: [Kind; 3] = [
    Kind {
        fact: "i have NUMBER THING .",
        question: "how many SORT do you have ?",
        sorts: [
            ("dogs", ["poodles", "terriers", "beagles"]),
            ("birds", ["parrots", "finches", "canaries"]),
            ("fish", ["carps", "guppies", "eels"]),
            ("plants", ["ferns", "roses", "cacti"]),
        ],
    },
    Kind {
        fact: "i play the THING .",
        question: "which SORT instrument do you play ?",
        sorts: [
            ("wind", ["flute", "oboe", "clarinet"]),
            ("string", ["violin", "cello", "guitar"]),
            ("keyboard", ["piano", "organ", "spinet"]),
            ("percussion", ["gong", "triangle", "timpani"]),
        ],
    },
    Kind {
        fact: "i eat THING .",
        question: "what SORT do you eat ?",
        sorts: [
            ("fruit", ["apples", "pears", "plums"]),
            ("vegetables", ["carrots", "beans", "leeks"]),
            ("meat", ["beef", "lamb", "pork"]),
            ("cake", ["muffins", "tarts", "brownies"]),
        ],
    },
];
const NUMBERS: [&str; 6] = ["two", "three", "four", "five", "six", "seven"];

/// Generates `sizes` pairs of the persona and the last `turns` utterances with the reply; all sources differ.
///
/// # Errors
/// [`DataError::TooManyWanted`] if there are not enough different dialogues.
pub fn dialogue(key: &RandomKey, turns: usize, sizes: Sizes) -> Result<TextPairs, DataError> {
    let sides = ["persona and history", "reply"];
    let corpus = distinct_pairs(sides, "dialogues", &key.named("dialogue"), sizes, |rng| exchange(rng, turns))?;
    Ok(TextPairs { corpus, split: "generated: no source is in two splits".to_owned() })
}

/// What somebody has, plays or eats.
struct Fact {
    kind: usize,
    sort: &'static str,
    thing: &'static str,
    number: &'static str,
}

impl Fact {
    fn draw(rng: &mut ChaCha8Rng, kind: usize) -> Self {
        let (sort, things) = &KINDS[kind].sorts[rng.random_range(0..4)];
        Self { kind, sort, thing: pick(rng, things), number: pick(rng, &NUMBERS) }
    }

    fn text(&self) -> String {
        KINDS[self.kind].fact.replace("THING", self.thing).replace("NUMBER", self.number)
    }

    fn question(&self, rng: &mut ChaCha8Rng) -> String {
        let question = KINDS[self.kind].question.replace("SORT", self.sort);
        if rng.random_bool(REMARK) { format!("{} {question}", pick(rng, &REMARKS)) } else { question }
    }
}

fn exchange(rng: &mut ChaCha8Rng, turns: usize) -> Pair {
    let asked_kind = rng.random_range(0..KINDS.len());
    let mut facts: Vec<Fact> = Vec::with_capacity(FACTS);
    while facts.len() < FACTS {
        let kind = if facts.len() < 2 { asked_kind } else { rng.random_range(0..KINDS.len()) };
        let fact = Fact::draw(rng, kind);
        if facts.iter().all(|other| other.sort != fact.sort) {
            facts.push(fact);
        }
    }
    let mut history = Vec::new();
    if rng.random_bool(EARLIER_EXCHANGE) {
        let other = &facts[rng.random_range(1..FACTS)];
        history.extend([other.question(rng), other.text()]);
    }
    history.push(facts[0].question(rng));
    let target = facts[0].text();
    facts.shuffle(rng);
    let facts: Vec<String> = facts.iter().map(Fact::text).collect();
    Pair { source: source(&facts, &history, turns), target }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::{all, assert_made_by_the_key};
    use super::*;
    use crate::ParallelCorpus;
    use crate::dialogue::{FACT, OWN, PARTNER};

    const TURNS: usize = 3;
    const SIZES: Sizes = Sizes { train: 2_000, ..Sizes::TEXT_PAIRS };

    fn pairs() -> ParallelCorpus {
        dialogue(&RandomKey::from_seed(1), TURNS, SIZES).unwrap().corpus
    }

    /// The sorts that a text names or has a thing of, each with its kind.
    fn sorts(text: &str) -> Vec<(usize, &'static str)> {
        let has = |word: &str| text.split(' ').any(|other| other == word);
        let every = KINDS.iter().enumerate().flat_map(|(number, kind)| kind.sorts.iter().map(move |sort| (number, sort)));
        every
            .filter(|(_, (sort, things))| has(sort) || things.iter().any(|thing| has(thing)))
            .map(|(kind, (sort, _))| (kind, *sort))
            .collect()
    }

    /// The facts of a source and the last question, found by the marks.
    fn parts(source: &str) -> (Vec<&str>, &str) {
        let (before, question) = source.rsplit_once(&format!("{PARTNER} ")).unwrap();
        let facts = before.split([PARTNER, OWN].map(|mark| mark.chars().next().unwrap())).next().unwrap();
        (facts.split(FACT).map(str::trim).filter(|fact| !fact.is_empty()).collect(), question)
    }

    #[test]
    fn the_reply_is_the_one_fact_about_the_sort_that_is_asked_for() {
        for pair in all(&pairs()) {
            let (facts, question) = parts(&pair.source);
            let asked = sorts(question);
            assert_eq!((facts.len(), asked.len()), (FACTS, 1), "{}", pair.source);
            let fitting: Vec<_> = facts.iter().filter(|fact| sorts(fact) == asked).collect();
            assert_eq!(fitting, [&pair.target.as_str()], "{}", pair.source);
        }
    }

    #[test]
    fn at_least_two_facts_are_of_the_kind_that_is_asked_for() {
        for pair in all(&pairs()) {
            let (facts, question) = parts(&pair.source);
            assert!(facts.iter().filter(|fact| sorts(fact)[0].0 == sorts(question)[0].0).count() >= 2, "{}", pair.source);
        }
    }

    #[test]
    fn neither_a_place_nor_the_last_reply_is_the_answer() {
        let corpus = pairs();
        let places: Vec<usize> =
            (0..FACTS).map(|place| all(&corpus).filter(|pair| parts(&pair.source).0[place] == pair.target).count()).collect();
        let even = all(&corpus).count() / FACTS;
        assert!(places.iter().all(|count| count.abs_diff(even) < even / 10), "{places:?}");
        assert!(all(&corpus).all(|pair| !pair.source.contains(&format!("{OWN} {}", pair.target))));
        assert!(all(&corpus).filter(|pair| pair.source.contains(OWN)).count() > even);
    }

    #[test]
    fn the_same_key_gives_the_same_dialogues_and_evaluation_does_not_depend_on_the_training_size() {
        assert_made_by_the_key(SIZES, |key, sizes| dialogue(key, TURNS, sizes).unwrap().corpus);
        let single = dialogue(&RandomKey::from_seed(1), 1, Sizes { train: 10, ..SIZES }).unwrap().corpus;
        assert!(all(&single).all(|pair| !pair.source.contains(OWN)));
    }

    #[test]
    fn sizes_of_sources_and_vocabulary_are_as_documented() {
        let corpus = pairs();
        let lengths = all(&corpus).map(|pair| pair.source.split(' ').count()).collect::<BTreeSet<_>>();
        assert!(lengths.first() >= Some(&27) && lengths.last() <= Some(&52), "{lengths:?}");
        let words = all(&corpus).flat_map(|pair| pair.source.split(' ')).collect::<BTreeSet<_>>();
        assert!((75..=90).contains(&words.len()), "{}", words.len());
    }
}
