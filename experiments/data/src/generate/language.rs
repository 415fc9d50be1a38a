//! Artificial running text with long-range agreement, for language models.
//!
//! A line is a paragraph. Its first sentence introduces a noun that belongs to one of four classes; every pronoun of the paragraph has the form of that
//! class, however many other nouns stand between. Each verb has the ending of the class of its subject, and relative clauses, nested up to two deep, put
//! other subjects with their own verbs between a subject and its verb (`the dog that the lamp that the sea likus findas runis`). A model must find the
//! governing noun by content and nesting; its distance varies. Around this skeleton stand plain bigram preferences (a verb for its objects and adverbs, a
//! preposition for its places) that any model can learn. The vocabulary has about 200 words.
//!
//! The grammar is unambiguous, so the probability of a text is the product of the choices that made it, and no model can reach a lower perplexity than
//! [`Language::valid_perplexity`] says. It is about 6.7 per word (line ends counted as words) for [`Sizes::LANGUAGE`]; a model that knows all but the
//! classes stays above it by the factor that the unknown endings cost.

use heedful_random::RandomKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Seen, Sizes};
use crate::TextCorpus;
use crate::files::sha256_of_lines;

const CLASSES: usize = 4;
const DEEPEST_NESTING: usize = 2;

/// Nouns; the class of noun n is n mod 4.
const NOUNS: [&str; 40] = [
    "dog", "lamp", "river", "song", "cat", "chair", "sea", "story", "horse", "door", "lake", "dream", "bird", "clock", "rain", "letter",
    "fox", "wheel", "cloud", "name", "king", "knife", "wind", "dance", "child", "bell", "snow", "word", "wolf", "ship", "fire", "game",
    "mouse", "coin", "storm", "joke", "judge", "rope", "wave", "plan",
];
const VERB_STEMS: [&str; 16] =
    ["run", "find", "lik", "hold", "mov", "call", "push", "watch", "reach", "turn", "help", "lift", "meet", "join", "mark", "pass"];
const VERB_ENDINGS: [&str; CLASSES] = ["as", "os", "is", "us"];
const ADJECTIVE_STEMS: [&str; 8] = ["old", "red", "small", "loud", "dark", "warm", "new", "wild"];
const ADJECTIVE_ENDINGS: [&str; CLASSES] = ["a", "o", "i", "u"];
const PRONOUNS: [&str; CLASSES] = ["za", "zo", "zi", "zu"];
const ADVERBS: [&str; 16] = [
    "slowly", "often", "gladly", "never", "soon", "twice", "softly", "again", "always", "early", "alone", "badly", "gently", "rarely",
    "quickly", "late",
];
const PREPOSITIONS: [&str; 4] = ["in", "under", "near", "behind"];
const PLACES: [&str; 16] = [
    "town", "forest", "garden", "tower", "valley", "market", "castle", "field", "harbour", "kitchen", "school", "bridge", "meadow",
    "cellar", "attic", "station",
];
const CONNECTIVES: [&str; 6] = ["then", "later", "so", "still", "but", "now"];

/// How often a favourite of the given rank is chosen.
const PREFERENCE: [f64; 4] = [0.4, 0.3, 0.2, 0.1];
const RELATIVE_CLAUSE: f64 = 0.6;
const OBJECT_RELATIVE: f64 = 0.6;
const ADJECTIVE: f64 = 0.25;
const OBJECT: f64 = 0.5;
const ADVERB: f64 = 0.3;
const PLACE: f64 = 0.25;
const CONNECTIVE: f64 = 0.3;
const PRONOUN_SUBJECT: f64 = 0.4;
const ANOTHER_SENTENCE: f64 = 0.7;

/// A generated text and the limit that its grammar sets to every model.
#[derive(Clone, Debug, PartialEq)]
pub struct Language {
    /// The text.
    pub corpus: TextCorpus,
    /// Lowest perplexity per word that is possible in expectation, on the validation text; a line end counts as a word.
    pub valid_perplexity: f64,
    /// The same on the test text.
    pub test_perplexity: f64,
}

/// Generates text of `sizes` words; lines are added to a split until it has at least as many (line ends not counted). All lines differ.
pub fn language(key: &RandomKey, sizes: Sizes) -> TextCorpus {
    Language::generate(key, sizes).corpus
}

impl Language {
    /// As [`language`], with the lowest possible perplexities.
    ///
    /// They are exact for the text as drawn but for the rejection of lines that occurred before, which concerns a few short lines.
    pub fn generate(key: &RandomKey, sizes: Sizes) -> Self {
        let key = key.named("language");
        let mut seen = Seen::default();
        let mut split = |name: &str, size: usize| {
            let mut rng = key.named(name).rng();
            let (mut lines, mut words, mut nats) = (Vec::new(), 0, 0.0);
            while words < size {
                let paragraph = Paragraph::draw(&mut rng);
                let line = paragraph.words.join(" ");
                if seen.is_new(&line) {
                    words += paragraph.words.len();
                    nats += paragraph.nats;
                    lines.push(line);
                }
            }
            let perplexity = (nats / (words + lines.len()) as f64).exp();
            (lines, perplexity)
        };
        let (test, test_perplexity) = split("test", sizes.test);
        let (valid, valid_perplexity) = split("valid", sizes.valid);
        let (train, _) = split("train", sizes.train);
        let sha256 = sha256_of_lines([&train, &valid, &test].into_iter().flatten());
        let split = format!(
            "generated: {} / {} / {} words at least; no model can reach a lower word perplexity than {valid_perplexity:.3} (valid), {test_perplexity:.3} (test)",
            sizes.train, sizes.valid, sizes.test
        );
        Self {
            corpus: TextCorpus { train, valid, test, open_ends: [false; 3], split, last_words: false, sha256 },
            valid_perplexity,
            test_perplexity,
        }
    }
}

/// A paragraph in the making, with the negative logarithm of the probability of the choices so far.
struct Paragraph<'a> {
    rng: &'a mut ChaCha8Rng,
    words: Vec<String>,
    nats: f64,
}

impl<'a> Paragraph<'a> {
    fn draw(rng: &'a mut ChaCha8Rng) -> Self {
        let mut paragraph = Self { rng, words: Vec::new(), nats: 0.0 };
        let hero = paragraph.subject("a", 0);
        paragraph.predicate(hero);
        while paragraph.happens(ANOTHER_SENTENCE) {
            if paragraph.happens(CONNECTIVE) {
                let connective = paragraph.uniform(CONNECTIVES.len());
                paragraph.word(CONNECTIVES[connective]);
            }
            if paragraph.happens(PRONOUN_SUBJECT) {
                paragraph.word(PRONOUNS[hero]);
                paragraph.predicate(hero);
            } else {
                let class = paragraph.subject("the", 0);
                paragraph.predicate(class);
            }
        }
        paragraph
    }

    /// `ARTICLE NOUN [ADJECTIVE] [that ...]`; gives the class of the noun.
    fn subject(&mut self, article: &str, depth: usize) -> usize {
        self.word(article);
        let class = self.noun();
        if self.happens(ADJECTIVE) {
            let stem = self.uniform(ADJECTIVE_STEMS.len());
            self.word(&format!("{}{}", ADJECTIVE_STEMS[stem], ADJECTIVE_ENDINGS[class]));
        }
        if depth < DEEPEST_NESTING && self.happens(RELATIVE_CLAUSE) {
            self.word("that");
            if self.happens(OBJECT_RELATIVE) {
                let inner = self.subject("the", depth + 1);
                self.verb(inner);
            } else {
                let verb = self.verb(class);
                self.object(verb);
            }
            self.place();
        }
        class
    }

    fn predicate(&mut self, class: usize) {
        let verb = self.verb(class);
        if self.happens(OBJECT) {
            self.object(verb);
        }
        if self.happens(ADVERB) {
            let adverb = self.favourite(verb, 5, ADVERBS.len());
            self.word(ADVERBS[adverb]);
        }
        self.place();
        self.word(".");
    }

    fn place(&mut self) {
        if self.happens(PLACE) {
            let preposition = self.uniform(PREPOSITIONS.len());
            self.word(PREPOSITIONS[preposition]);
            let place = self.favourite(preposition, 12, PLACES.len());
            self.word(PLACES[place]);
        }
    }

    fn noun(&mut self) -> usize {
        let noun = self.uniform(NOUNS.len());
        self.word(NOUNS[noun]);
        noun % CLASSES
    }

    fn verb(&mut self, class: usize) -> usize {
        let stem = self.uniform(VERB_STEMS.len());
        self.word(&format!("{}{}", VERB_STEMS[stem], VERB_ENDINGS[class]));
        stem
    }

    fn object(&mut self, verb: usize) {
        self.word("the");
        let noun = self.favourite(verb, 7, NOUNS.len());
        self.word(NOUNS[noun]);
    }

    fn word(&mut self, word: &str) {
        self.words.push(word.to_string());
    }

    fn happens(&mut self, probability: f64) -> bool {
        let happens = self.rng.random_bool(probability);
        self.nats -= if happens { probability } else { 1.0 - probability }.ln();
        happens
    }

    fn uniform(&mut self, count: usize) -> usize {
        self.nats += (count as f64).ln();
        self.rng.random_range(0..count)
    }

    /// One of the four of `count` items that go with `head`; `stride` sets the tables of different kinds of words apart.
    fn favourite(&mut self, head: usize, stride: usize, count: usize) -> usize {
        let mut point: f64 = self.rng.random();
        let rank = PREFERENCE.iter().position(|probability| {
            point -= probability;
            point < 0.0
        });
        let rank = rank.unwrap_or(PREFERENCE.len() - 1);
        self.nats -= PREFERENCE[rank].ln();
        (head * stride + rank * 3) % count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn sizes() -> Sizes {
        Sizes { train: 30_000, valid: 5_000, test: 5_000 }
    }

    fn text() -> Language {
        Language::generate(&RandomKey::from_seed(1), sizes())
    }

    fn noun_class(word: &str) -> Option<usize> {
        NOUNS.iter().position(|noun| *noun == word).map(|noun| noun % CLASSES)
    }

    fn verb_class(word: &str) -> Option<usize> {
        let stem = VERB_STEMS.iter().find(|stem| word.starts_with(**stem) && word.len() == stem.len() + 2)?;
        VERB_ENDINGS.iter().position(|ending| *ending == &word[stem.len()..])
    }

    /// Checks one line by a stack of subjects, and gives the distance of each verb and pronoun from the noun that governs it.
    fn distances(line: &str) -> (Vec<usize>, Vec<usize>) {
        let words: Vec<&str> = line.split(' ').collect();
        let hero = noun_class(words[1]).unwrap();
        let (mut verbs, mut pronouns) = (Vec::new(), Vec::new());
        let mut subjects: Vec<(usize, usize)> = vec![];
        let mut after_verb = false;
        for (at, word) in words.iter().enumerate() {
            if let Some(class) = noun_class(word) {
                // A noun behind a verb is its object, any other one is a subject.
                if !after_verb {
                    subjects.push((class, at));
                }
                after_verb = false;
            } else if let Some(class) = PRONOUNS.iter().position(|pronoun| pronoun == word) {
                assert_eq!(class, hero, "{line}");
                pronouns.push(at - 1);
                subjects.push((class, at));
            } else if let Some(class) = verb_class(word) {
                // In a subject relative (`that VERB`) the noun keeps waiting for its main verb.
                let relative = words[at - 1] == "that";
                let (expected, noun) = if relative { *subjects.last().unwrap() } else { subjects.pop().unwrap() };
                assert_eq!(class, expected, "word {at} of {line}");
                verbs.push(at - noun);
                after_verb = words.get(at + 1) == Some(&"the");
            } else if *word == "." {
                assert!(subjects.is_empty(), "{line}");
            }
        }
        (verbs, pronouns)
    }

    #[test]
    fn every_verb_and_pronoun_agrees_with_its_governing_noun_at_varying_distance() {
        let corpus = text().corpus;
        let (mut verbs, mut pronouns) = (BTreeMap::new(), BTreeMap::new());
        for line in corpus.train.iter().chain(&corpus.valid).chain(&corpus.test) {
            let (verb, pronoun) = distances(line);
            verb.into_iter().for_each(|distance| *verbs.entry(distance).or_insert(0) += 1);
            pronoun.into_iter().for_each(|distance| *pronouns.entry(distance).or_insert(0) += 1);
        }
        let total: usize = verbs.values().sum();
        let distant: usize = verbs.iter().filter(|(distance, _)| **distance > 3).map(|(_, count)| count).sum();
        assert!(verbs.len() >= 12 && distant * 5 > total, "{verbs:?}");
        assert!(pronouns.len() >= 30, "{pronouns:?}");
    }

    #[test]
    fn the_same_key_gives_the_same_text_and_another_key_another_one() {
        assert_eq!(text(), text());
        assert_eq!(language(&RandomKey::from_seed(1), sizes()), text().corpus);
        assert_ne!(language(&RandomKey::from_seed(2), sizes()).sha256, text().corpus.sha256);
    }

    #[test]
    fn sizes_are_met_and_no_line_occurs_twice() {
        let corpus = text().corpus;
        let words = |lines: &[String]| lines.iter().map(|line| line.split(' ').count()).sum::<usize>();
        for (lines, size) in [(&corpus.train, 30_000), (&corpus.valid, 5_000), (&corpus.test, 5_000)] {
            assert!((size..size + 300).contains(&words(lines)), "{} words for {size}", words(lines));
        }
        let lines: Vec<&String> = corpus.train.iter().chain(&corpus.valid).chain(&corpus.test).collect();
        assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), lines.len());
    }

    #[test]
    fn the_vocabulary_has_about_two_hundred_words_all_seen_in_training() {
        let corpus = text().corpus;
        let words = |lines: &[String]| -> BTreeSet<String> { lines.iter().flat_map(|line| line.split(' ').map(str::to_string)).collect() };
        let train = words(&corpus.train);
        assert!((180..=220).contains(&train.len()), "{} words", train.len());
        assert!(words(&corpus.valid).is_subset(&train) && words(&corpus.test).is_subset(&train));
    }

    #[test]
    fn the_documented_perplexity_holds_and_a_bigram_model_stays_above_it() {
        let text = Language::generate(&RandomKey::from_seed(1), Sizes::LANGUAGE);
        for perplexity in [text.valid_perplexity, text.test_perplexity] {
            assert!((perplexity - 6.7).abs() < 0.2, "{perplexity}");
        }
        let end = "\n";
        let tokens = |lines: &[String]| -> Vec<String> {
            lines.iter().flat_map(|line| line.split(' ').chain([end]).map(str::to_string).collect::<Vec<_>>()).collect()
        };
        let (train, valid) = (tokens(&text.corpus.train), tokens(&text.corpus.valid));
        let mut counts: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
        for pair in train.windows(2) {
            *counts.entry(&pair[0]).or_default().entry(&pair[1]).or_default() += 1.0;
        }
        let nats = |pair: &[String]| {
            let followers = &counts[pair[0].as_str()];
            let count = followers.get(pair[1].as_str()).copied().unwrap_or(0.0);
            -((count + 0.01) / (followers.values().sum::<f64>() + 0.01 * 200.0)).ln()
        };
        let bigram = (valid.windows(2).map(nats).sum::<f64>() / (valid.len() - 1) as f64).exp();
        assert!(bigram > 1.25 * text.valid_perplexity, "bigram {bigram}, optimum {}", text.valid_perplexity);
    }
}
