//! Artificial documents with summaries: the key sentences, compressed.
//!
//! A document has four or five sentences such as `on monday the old baker found the red lamp in the garden .`. Its summary has the key sentences in their order,
//! each reduced to who did what: `baker found lamp .` What is key is told in one of two ways. One or two sentences begin with a cue (`importantly ,`), and all
//! sentences are about different persons. Or there is no cue, one person is in two sentences and the others are in one each: the two are key. The first needs
//! a look at a word known by itself, the second a comparison of all sentences. Documents have 30 to 60 words; the vocabulary has about 60.

use heedful_random::RandomKey;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Sizes, distinct_pairs, pick};
use crate::{DataError, Pair, TextPairs};

const CUED: f64 = 0.6;
const TWO_CUES: f64 = 0.5;
const DETAIL: f64 = 0.4;

/// Fewer persons make the comparison quicker to learn.
const PERSONS: [&str; 8] = ["baker", "doctor", "pilot", "sailor", "teacher", "farmer", "painter", "judge"];
const DEEDS: [&str; 8] = ["found", "sold", "lost", "bought", "broke", "painted", "hid", "washed"];
const THINGS: [&str; 8] = ["lamp", "chair", "boat", "clock", "piano", "table", "wheel", "bottle"];
const QUALITIES: [&str; 6] = ["old", "red", "small", "new", "heavy", "quiet"];
const TIMES: [&str; 6] = ["on monday", "on friday", "at noon", "at night", "in spring", "in winter"];
const PLACES: [&str; 6] = ["in the garden", "by the river", "at the market", "in the town", "near the forest", "at the harbour"];
const CUES: [&str; 3] = ["importantly ,", "above all ,", "note that"];

/// Generates `sizes` pairs of a document and its summary; all documents differ.
///
/// # Errors
/// [`DataError::TooManyWanted`] if there are not enough different documents.
pub fn summary(key: &RandomKey, sizes: Sizes) -> Result<TextPairs, DataError> {
    let corpus = distinct_pairs(["document", "summary"], "documents", &key.named("summary"), sizes, document)?;
    Ok(TextPairs { corpus, split: "generated: no document is in two splits".to_owned() })
}

fn document(rng: &mut ChaCha8Rng) -> Pair {
    let mut persons = PERSONS;
    persons.shuffle(rng);
    let count = rng.random_range(4..=5);
    let mut places: Vec<usize> = (0..count).collect();
    places.shuffle(rng);
    let is_cued = rng.random_bool(CUED);
    let keys = if is_cued && !rng.random_bool(TWO_CUES) { &places[..1] } else { &places[..2] };
    if !is_cued {
        persons[keys[1]] = persons[keys[0]];
    }
    let (mut sentences, mut summary) = (Vec::new(), Vec::new());
    for (place, person) in persons.into_iter().enumerate().take(count) {
        let (deed, thing) = (pick(rng, &DEEDS), pick(rng, &THINGS));
        let mut words = Vec::new();
        if keys.contains(&place) {
            words.extend(is_cued.then(|| pick(rng, &CUES)));
            summary.push(format!("{person} {deed} {thing} ."));
        }
        words.extend(detail(rng, &TIMES));
        words.push("the");
        words.extend(detail(rng, &QUALITIES));
        words.extend([person, deed, "the"]);
        words.extend(detail(rng, &QUALITIES));
        words.push(thing);
        words.extend(detail(rng, &PLACES));
        words.push(".");
        sentences.push(words.join(" "));
    }
    Pair { source: sentences.join(" "), target: summary.join(" ") }
}

fn detail(rng: &mut ChaCha8Rng, details: &[&'static str]) -> Option<&'static str> {
    rng.random_bool(DETAIL).then(|| pick(rng, details))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::tests::{all, assert_made_by_the_key};
    use super::*;
    use crate::ParallelCorpus;

    const SIZES: Sizes = Sizes { train: 2_000, ..Sizes::TEXT_PAIRS };

    fn pairs() -> ParallelCorpus {
        summary(&RandomKey::from_seed(1), SIZES).unwrap().corpus
    }

    /// The sentences of a document: whether cued, the person, and the compression.
    fn sentences(document: &str) -> Vec<(bool, &str, String)> {
        document
            .split_inclusive(" .")
            .map(|sentence| {
                let sentence = sentence.trim();
                let words: Vec<&str> = sentence.split(' ').collect();
                let one = |list: &[&str]| {
                    let found: Vec<&str> = words.iter().copied().filter(|word| list.contains(word)).collect();
                    assert_eq!(found.len(), 1, "{sentence}");
                    found[0]
                };
                let (person, deed, thing) = (one(&PERSONS), one(&DEEDS), one(&THINGS));
                (CUES.iter().any(|cue| sentence.starts_with(cue)), person, format!("{person} {deed} {thing} ."))
            })
            .collect()
    }

    #[test]
    fn every_summary_follows_from_its_document() {
        let mut cases = BTreeMap::new();
        for pair in all(&pairs()) {
            let sentences = sentences(&pair.source);
            let is_cued = sentences.iter().any(|(cued, ..)| *cued);
            let mentions = |person: &str| sentences.iter().filter(|(_, other, _)| *other == person).count();
            let is_key = |(cued, person, _): &&(bool, &str, String)| if is_cued { *cued } else { mentions(person) == 2 };
            let key: Vec<&str> = sentences.iter().filter(is_key).map(|(.., short)| short.as_str()).collect();
            assert_eq!(key.join(" "), pair.target, "{}", pair.source);
            assert!(!is_cued || sentences.iter().all(|(_, person, _)| mentions(person) == 1), "{}", pair.source);
            *cases.entry((is_cued, key.len())).or_insert(0) += 1;
        }
        assert_eq!(cases.keys().copied().collect::<Vec<_>>(), [(false, 2), (true, 1), (true, 2)]);
        assert!(cases.values().all(|count| *count > 600), "{cases:?}");
    }

    #[test]
    fn the_key_sentence_stands_at_every_place() {
        let corpus = pairs();
        for place in 0..5 {
            let here = |pair: &&Pair| sentences(&pair.source).get(place).is_some_and(|(.., short)| pair.target.contains(short.as_str()));
            assert!(all(&corpus).filter(here).count() > 300, "place {place}");
        }
    }

    #[test]
    fn the_same_key_gives_the_same_documents_and_evaluation_does_not_depend_on_the_training_size() {
        assert_made_by_the_key(SIZES, |key, sizes| summary(key, sizes).unwrap().corpus);
    }

    #[test]
    fn sizes_of_documents_and_vocabulary_are_as_documented() {
        let corpus = pairs();
        let lengths = all(&corpus).map(|pair| pair.source.split(' ').count()).collect::<BTreeSet<_>>();
        assert!(lengths.first() >= Some(&24) && lengths.last() <= Some(&64), "{lengths:?}");
        let words = all(&corpus).flat_map(|pair| pair.source.split(' ')).collect::<BTreeSet<_>>();
        assert!((55..=70).contains(&words.len()), "{}", words.len());
    }
}
