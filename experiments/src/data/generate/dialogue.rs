//! Artificial dialogues in which the reply repeats one fact of a persona.
//!
//! A persona has four facts of four kinds (`i have three cats .`, `my boat is green .`, `my aunt is a baker .`, `i play chess on friday .`). At least two are of
//! the kind that the partner asks about, with different things: to answer `how many cats do you have ?` with `i have three cats .`, the fact must be found by
//! the thing (its kind alone leaves two or more) and its value copied. An exchange about another fact may stand before the question, so that neither the last
//! reply nor a fixed place is the answer. Sources have the form of [`crate::data::dialogue`] and 30 to 60 words; the vocabulary has about 75.

use heedful_attention::random::RandomKey;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Seen, Sizes, pick};
use crate::data::dialogue::source;
use crate::data::files::sha256_of_lines;
use crate::data::{DataError, Pair, ParallelCorpus, TextPairs};

const FACTS: usize = 4;
const EARLIER_EXCHANGE: f64 = 0.5;
const REMARK: f64 = 0.3;
const REMARKS: [&str; 3] = ["hello !", "nice .", "i see ."];

/// A fact and the question for it, with `THING` and `VALUE` for what changes.
struct Kind {
    fact: &'static str,
    question: &'static str,
    things: [&'static str; 6],
    values: [&'static str; 6],
}

const KINDS: [Kind; 4] = [
    Kind {
        fact: "i have VALUE THING .",
        question: "how many THING do you have ?",
        things: ["cats", "dogs", "birds", "books", "hats", "cousins"],
        values: ["two", "three", "four", "five", "six", "seven"],
    },
    Kind {
        fact: "my THING is VALUE .",
        question: "what colour is your THING ?",
        things: ["boat", "coat", "door", "bike", "lamp", "tent"],
        values: ["red", "green", "blue", "white", "black", "grey"],
    },
    Kind {
        fact: "my THING is a VALUE .",
        question: "what is the job of your THING ?",
        things: ["aunt", "uncle", "mother", "father", "sister", "brother"],
        values: ["baker", "doctor", "pilot", "sailor", "teacher", "farmer"],
    },
    Kind {
        fact: "i play THING on VALUE .",
        question: "when do you play THING ?",
        things: ["chess", "tennis", "cards", "golf", "darts", "hockey"],
        values: ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday"],
    },
];

/// Generates `sizes` pairs of the persona and the last `turns` utterances with the reply; all sources differ.
///
/// # Errors
/// [`DataError::TooManyWanted`] if there are not so many different dialogues.
pub fn dialogue(key: &RandomKey, turns: usize, sizes: Sizes) -> Result<TextPairs, DataError> {
    let key = key.named("dialogue");
    let mut seen = Seen::default();
    let mut split = |name: &str, size: usize| {
        let mut rng = key.named(name).rng();
        seen.distinct(&format!("{name} dialogues"), size, |_| {
            let pair = exchange(&mut rng, turns);
            (pair.source.clone(), pair)
        })
    };
    let test = split("test", sizes.test)?;
    let valid = split("valid", sizes.valid)?;
    let train = split("train", sizes.train)?;
    let lines: Vec<String> =
        [&train, &valid, &test].into_iter().flatten().map(|pair| format!("{}\t{}", pair.source, pair.target)).collect();
    let corpus = ParallelCorpus {
        source_language: "persona and history".to_owned(),
        target_language: "reply".to_owned(),
        train,
        valid,
        tests: vec![("test".to_owned(), test)],
        skipped: Vec::new(),
        sha256: sha256_of_lines(lines.iter().map(String::as_str)),
    };
    Ok(TextPairs { corpus, split: "generated: no source is in two splits".to_owned() })
}

/// A thing of a kind and its value.
struct Fact {
    kind: usize,
    thing: &'static str,
    value: &'static str,
}

impl Fact {
    fn text(&self) -> String {
        KINDS[self.kind].fact.replace("THING", self.thing).replace("VALUE", self.value)
    }

    fn question(&self, rng: &mut ChaCha8Rng) -> String {
        let question = KINDS[self.kind].question.replace("THING", self.thing);
        if rng.random_bool(REMARK) { format!("{} {question}", pick(rng, &REMARKS)) } else { question }
    }
}

fn exchange(rng: &mut ChaCha8Rng, turns: usize) -> Pair {
    let asked_kind = rng.random_range(0..KINDS.len());
    let mut facts: Vec<Fact> = Vec::with_capacity(FACTS);
    while facts.len() < FACTS {
        let kind = if facts.len() < 2 { asked_kind } else { rng.random_range(0..KINDS.len()) };
        let (thing, value) = (pick(rng, &KINDS[kind].things), pick(rng, &KINDS[kind].values));
        if facts.iter().all(|fact| fact.thing != thing) {
            facts.push(Fact { kind, thing, value });
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

    use super::*;
    use crate::data::dialogue::{FACT, OWN, PARTNER};

    const TURNS: usize = 3;
    const SIZES: Sizes = Sizes { train: 2_000, ..Sizes::TEXT_PAIRS };

    fn pairs() -> ParallelCorpus {
        dialogue(&RandomKey::from_seed(1), TURNS, SIZES).unwrap().corpus
    }

    fn all(corpus: &ParallelCorpus) -> impl Iterator<Item = &Pair> {
        corpus.train.iter().chain(&corpus.valid).chain(&corpus.tests[0].1)
    }

    fn things(text: &str) -> Vec<&'static str> {
        let every = KINDS.iter().flat_map(|kind| kind.things);
        every.filter(|thing| text.split(' ').any(|word| word == *thing)).collect()
    }

    /// The facts of a source and the last question, found by the marks.
    fn parts(source: &str) -> (Vec<&str>, &str) {
        let (before, question) = source.rsplit_once(&format!("{PARTNER} ")).unwrap();
        let facts = before.split([PARTNER, OWN].map(|mark| mark.chars().next().unwrap())).next().unwrap();
        (facts.split(FACT).map(str::trim).filter(|fact| !fact.is_empty()).collect(), question)
    }

    #[test]
    fn the_reply_is_the_one_fact_about_the_thing_that_is_asked_for() {
        for pair in all(&pairs()) {
            let (facts, question) = parts(&pair.source);
            let asked = things(question);
            assert_eq!((facts.len(), asked.len()), (FACTS, 1), "{}", pair.source);
            let fitting: Vec<_> = facts.iter().filter(|fact| things(fact) == asked).collect();
            assert_eq!(fitting, [&pair.target.as_str()], "{}", pair.source);
        }
    }

    #[test]
    fn at_least_two_facts_are_of_the_kind_that_is_asked_for() {
        let kind = |text: &str| KINDS.iter().position(|kind| kind.things.iter().any(|thing| things(text).contains(thing)));
        for pair in all(&pairs()) {
            let (facts, question) = parts(&pair.source);
            assert!(facts.iter().filter(|fact| kind(fact) == kind(question)).count() >= 2, "{}", pair.source);
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
        let corpus = pairs();
        assert_eq!(pairs(), corpus);
        assert_ne!(dialogue(&RandomKey::from_seed(2), TURNS, SIZES).unwrap().corpus.sha256, corpus.sha256);
        let small = dialogue(&RandomKey::from_seed(1), TURNS, Sizes { train: 10, ..SIZES }).unwrap().corpus;
        assert_eq!((&small.valid, &small.tests), (&corpus.valid, &corpus.tests));
        assert_eq!(all(&corpus).map(|pair| &pair.source).collect::<BTreeSet<_>>().len(), 2_600);
        let single = dialogue(&RandomKey::from_seed(1), 1, Sizes { train: 10, ..SIZES }).unwrap().corpus;
        assert!(all(&single).all(|pair| !pair.source.contains(OWN)));
    }

    #[test]
    fn sizes_of_sources_and_vocabulary_are_as_documented() {
        let corpus = pairs();
        let lengths = all(&corpus).map(|pair| pair.source.split(' ').count()).collect::<BTreeSet<_>>();
        assert!(lengths.first() >= Some(&30) && lengths.last() <= Some(&60), "{lengths:?}");
        let words = all(&corpus).flat_map(|pair| pair.source.split(' ')).collect::<BTreeSet<_>>();
        assert!((70..=85).contains(&words.len()), "{}", words.len());
    }
}
