//! An artificial translation pair.
//!
//! English-like sentences are translated into an invented language by rules that are exact, so that each source sentence has one translation.
//! - **Order**: verb-final, with its particle joined (`takes the old lamp off` becomes one word at the end); adjectives follow their noun; words of time
//!   and place move from either end of the source to the end of the target.
//! - **Agreement**: determiners and adjectives agree with the gender and number of their noun; the auxiliary, which follows the whole subject, agrees
//!   with its first noun (not with those of the phrases in between) and shows the tense, which only the time word at either end of the sentence tells.
//! - **Ambiguity**: nouns such as `bank` have two readings of different gender; the place that is named at either end of the sentence decides. The
//!   determiner, which comes first, depends on the reading already. A separable verb depends on the particle behind its objects.
//!
//! The deciding word is known by its content and stands at a varying distance, so that a self-attention of fixed positions cannot find it. Learned cross
//! attention can: a decoder of two such layers looks the word up by itself, whatever the self-attention (You et al. 2020 found the same for hard-coded
//! self-attention in natural translation), so that encoders differ most under a decoder of one layer and early in training. Source sentences have 5 to 18
//! words; the vocabularies have about 80 and 130 words.

use heedful_attention::random::RandomKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Seen, Sizes};
use crate::data::files::sha256_of_lines;
use crate::data::{Pair, ParallelCorpus};

const LONGEST_SOURCE: usize = 18;

/// Source singular, source plural, target stem; six of each gender in turn.
const NOUNS: [[&str; 3]; 18] = [
    ["dog", "dogs", "brun"],
    ["cat", "cats", "milt"],
    ["horse", "horses", "karv"],
    ["farmer", "farmers", "doste"],
    ["sailor", "sailors", "navre"],
    ["child", "children", "pelim"],
    ["table", "tables", "tosk"],
    ["lamp", "lamps", "lurn"],
    ["book", "books", "skriv"],
    ["house", "houses", "hoff"],
    ["wheel", "wheels", "rund"],
    ["bottle", "bottles", "flask"],
    ["flower", "flowers", "zinne"],
    ["stone", "stones", "grad"],
    ["cloud", "clouds", "volk"],
    ["apple", "apples", "pomme"],
    ["letter", "letters", "brevi"],
    ["window", "windows", "fenst"],
];
/// Source word and the target stems of its readings in nature and in town. The readings differ in gender (see [`reading_gender`]).
const AMBIGUOUS_NOUNS: [[&str; 3]; 6] = [
    ["bank", "ufra", "kassel"],
    ["bat", "fladd", "slagor"],
    ["seal", "robbe", "stempa"],
    ["crane", "kranik", "hevar"],
    ["trunk", "stamme", "koffra"],
    ["plant", "vexta", "fabrik"],
];
const ADJECTIVES: [[&str; 2]; 8] = [
    ["old", "gamm"],
    ["small", "litt"],
    ["red", "rodd"],
    ["heavy", "tung"],
    ["quiet", "still"],
    ["new", "nyv"],
    ["broken", "kaputt"],
    ["clean", "rein"],
];
const PLAIN_VERBS: [[&str; 2]; 8] = [
    ["see", "voiren"],
    ["find", "finnen"],
    ["carry", "boren"],
    ["like", "gusten"],
    ["paint", "malen"],
    ["follow", "segen"],
    ["hide", "gomen"],
    ["wash", "renen"],
];
const SEPARABLE_VERBS: [&str; 3] = ["turn", "take", "put"];
const PARTICLES: [&str; 3] = ["on", "off", "up"];
/// Target verb by separable verb and particle.
const JOINED_VERBS: [[&str; 3]; 3] =
    [["anduren", "usduren", "opduren"], ["antagen", "ustagen", "optagen"], ["anlegen", "uslegen", "oplegen"]];
const PREPOSITIONS: [[&str; 2]; 3] = [["with", "med"], ["near", "vid"], ["behind", "bak"]];
/// The first two tell the past, the others the present.
const TIMES: [[&str; 2]; 4] = [["yesterday", "igar"], ["once", "fordom"], ["today", "idag"], ["now", "nuva"]];
/// The first two are nature, the others town.
const PLACES: [[&str; 2]; 4] = [["river", "flumen"], ["forest", "silva"], ["market", "torget"], ["office", "kontor"]];
/// Auxiliary by tense (past, present), number (singular, plural) and gender of the subject.
const AUXILIARIES: [[[&str; 3]; 2]; 2] =
    [[["vara", "varo", "vari"], ["veran", "veron", "verin"]], [["esta", "esto", "esti"], ["sonan", "sonon", "sonin"]]];
/// Determiner by definiteness (the; a, some), number and gender.
const DETERMINERS: [[[&str; 3]; 2]; 2] = [[["la", "lo", "li"], ["las", "los", "lis"]], [["una", "uno", "uni"], ["unas", "unos", "unis"]]];
const ADJECTIVE_ENDINGS: [&str; 3] = ["a", "o", "i"];

/// Generates `sizes` pairs of source sentences and their translations; all source sentences differ.
pub fn parallel(key: &RandomKey, sizes: Sizes) -> ParallelCorpus {
    let key = key.named("parallel");
    let mut seen = Seen::default();
    let mut split = |name: &str, size: usize| {
        let mut rng = key.named(name).rng();
        let mut pairs = Vec::with_capacity(size);
        while pairs.len() < size {
            let sentence = Sentence::draw(&mut rng);
            let source = sentence.source();
            if source.split(' ').count() <= LONGEST_SOURCE && seen.is_new(&source) {
                pairs.push(Pair { source, target: sentence.target() });
            }
        }
        pairs
    };
    let test = split("test", sizes.test);
    let valid = split("valid", sizes.valid);
    let train = split("train", sizes.train);
    let lines: Vec<String> =
        [&train, &valid, &test].into_iter().flatten().map(|pair| format!("{}\t{}", pair.source, pair.target)).collect();
    ParallelCorpus {
        source_language: "english-like".to_string(),
        target_language: "invented".to_string(),
        train,
        valid,
        tests: vec![("test".to_string(), test)],
        skipped: Vec::new(),
        sha256: sha256_of_lines(lines.iter().map(String::as_str)),
    }
}

#[derive(Clone, Copy)]
enum Noun {
    Plain(usize),
    Ambiguous(usize),
}

struct NounPhrase {
    definite: bool,
    plural: bool,
    adjective: Option<usize>,
    noun: Noun,
}

enum Verb {
    Plain(usize),
    Separable { verb: usize, particle: usize },
}

/// An adverbial and whether it opens the source sentence (or else closes it).
struct Adverbial {
    index: usize,
    opens: bool,
}

struct Sentence {
    time: Adverbial,
    place: Option<Adverbial>,
    subject: NounPhrase,
    modifiers: Vec<(usize, NounPhrase)>,
    verb: Verb,
    objects: Vec<NounPhrase>,
}

/// Gender of an ambiguous noun in a reading (0 nature, 1 town): every noun has two different ones.
fn reading_gender(noun: usize, reading: usize) -> usize {
    (noun + reading * (1 + noun / 3)) % 3
}

impl NounPhrase {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let ambiguous = rng.random_bool(0.35);
        let noun = if ambiguous {
            Noun::Ambiguous(rng.random_range(0..AMBIGUOUS_NOUNS.len()))
        } else {
            Noun::Plain(rng.random_range(0..NOUNS.len()))
        };
        Self {
            definite: rng.random_bool(0.5),
            plural: !ambiguous && rng.random_bool(0.5),
            adjective: rng.random_bool(0.4).then(|| rng.random_range(0..ADJECTIVES.len())),
            noun,
        }
    }

    fn gender(&self, reading: usize) -> usize {
        match self.noun {
            Noun::Plain(noun) => noun % 3,
            Noun::Ambiguous(noun) => reading_gender(noun, reading),
        }
    }

    fn source(&self, words: &mut Vec<String>) {
        words.push(
            if self.definite {
                "the"
            } else if self.plural {
                "some"
            } else {
                "a"
            }
            .to_string(),
        );
        words.extend(self.adjective.map(|adjective| ADJECTIVES[adjective][0].to_string()));
        words.push(match self.noun {
            Noun::Plain(noun) => NOUNS[noun][usize::from(self.plural)].to_string(),
            Noun::Ambiguous(noun) => AMBIGUOUS_NOUNS[noun][0].to_string(),
        });
    }

    fn target(&self, reading: usize, words: &mut Vec<String>) {
        let gender = self.gender(reading);
        words.push(DETERMINERS[usize::from(!self.definite)][usize::from(self.plural)][gender].to_string());
        words.push(match self.noun {
            Noun::Plain(noun) => format!("{}{}", NOUNS[noun][2], if self.plural { "ne" } else { "" }),
            Noun::Ambiguous(noun) => AMBIGUOUS_NOUNS[noun][1 + reading].to_string(),
        });
        words.extend(self.adjective.map(|adjective| format!("{}{}", ADJECTIVES[adjective][1], ADJECTIVE_ENDINGS[gender])));
    }
}

impl Sentence {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let subject = NounPhrase::draw(rng);
        let modifier_count = [0, 0, 0, 0, 0, 1, 1, 1, 2, 2][rng.random_range(0..10)];
        let modifiers: Vec<_> = (0..modifier_count).map(|_| (rng.random_range(0..PREPOSITIONS.len()), NounPhrase::draw(rng))).collect();
        let verb = if rng.random_bool(0.6) {
            Verb::Plain(rng.random_range(0..PLAIN_VERBS.len()))
        } else {
            Verb::Separable { verb: rng.random_range(0..SEPARABLE_VERBS.len()), particle: rng.random_range(0..PARTICLES.len()) }
        };
        let object_count = [0, 1, 1, 1, 1, 1, 2, 2][rng.random_range(0..8)];
        let objects: Vec<NounPhrase> = (0..object_count).map(|_| NounPhrase::draw(rng)).collect();
        let is_ambiguous = |phrase: &NounPhrase| matches!(phrase.noun, Noun::Ambiguous(_));
        let needs_place = modifiers.iter().map(|(_, phrase)| phrase).chain([&subject]).chain(&objects).any(is_ambiguous);
        let place = (needs_place || rng.random_bool(0.4))
            .then(|| Adverbial { index: rng.random_range(0..PLACES.len()), opens: rng.random_bool(0.5) });
        let time = Adverbial { index: rng.random_range(0..TIMES.len()), opens: rng.random_bool(0.5) };
        Self { time, place, subject, modifiers, verb, objects }
    }

    fn source(&self) -> String {
        let mut words = Vec::new();
        let time = TIMES[self.time.index][0].to_string();
        let place = |opens| self.place.iter().filter(move |place| place.opens == opens).flat_map(|place| ["by", PLACES[place.index][0]]);
        if self.time.opens {
            words.push(time.clone());
        }
        words.extend(place(true).map(str::to_string));
        self.subject.source(&mut words);
        for (preposition, phrase) in &self.modifiers {
            words.push(PREPOSITIONS[*preposition][0].to_string());
            phrase.source(&mut words);
        }
        words.push(match self.verb {
            Verb::Plain(verb) => PLAIN_VERBS[verb][0].to_string(),
            Verb::Separable { verb, .. } => SEPARABLE_VERBS[verb].to_string(),
        });
        for (index, object) in self.objects.iter().enumerate() {
            if index > 0 {
                words.push("and".to_string());
            }
            object.source(&mut words);
        }
        if let Verb::Separable { particle, .. } = self.verb {
            words.push(PARTICLES[particle].to_string());
        }
        words.extend(place(false).map(str::to_string));
        if !self.time.opens {
            words.push(time);
        }
        words.push(".".to_string());
        words.join(" ")
    }

    fn target(&self) -> String {
        let mut words = Vec::new();
        let reading = self.place.as_ref().map_or(0, |place| place.index / 2);
        self.subject.target(reading, &mut words);
        for (preposition, phrase) in &self.modifiers {
            words.push(PREPOSITIONS[*preposition][1].to_string());
            phrase.target(reading, &mut words);
        }
        words.push(AUXILIARIES[self.time.index / 2][usize::from(self.subject.plural)][self.subject.gender(reading)].to_string());
        for (index, object) in self.objects.iter().enumerate() {
            if index > 0 {
                words.push("ok".to_string());
            }
            object.target(reading, &mut words);
        }
        words.push(
            match self.verb {
                Verb::Plain(verb) => PLAIN_VERBS[verb][1],
                Verb::Separable { verb, particle } => JOINED_VERBS[verb][particle],
            }
            .to_string(),
        );
        words.push(TIMES[self.time.index][1].to_string());
        if let Some(place) = &self.place {
            words.extend(["pa", PLACES[place.index][1]].map(str::to_string));
        }
        words.push(".".to_string());
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn corpus() -> ParallelCorpus {
        parallel(&RandomKey::from_seed(1), Sizes::PARALLEL)
    }

    fn all(corpus: &ParallelCorpus) -> impl Iterator<Item = &Pair> {
        corpus.train.iter().chain(&corpus.valid).chain(&corpus.tests[0].1)
    }

    fn index<const N: usize>(table: &[[&str; N]], column: usize, word: &str) -> Option<usize> {
        table.iter().position(|row| row[column] == word)
    }

    /// Where the deciding words stand in a source sentence, found without the generator.
    fn reading_of(words: &[&str]) -> Option<(usize, usize)> {
        words.iter().enumerate().find_map(|(position, word)| index(&PLACES, 0, word).map(|place| (position, place / 2)))
    }

    /// Translates one noun phrase of the source at `words[*at..]`; gives gender and number.
    fn noun_phrase(words: &[&str], at: &mut usize, reading: usize, out: &mut Vec<String>) -> (usize, usize) {
        let indefinite = usize::from(words[*at] != "the");
        *at += 1;
        let adjective = index(&ADJECTIVES, 0, words[*at]);
        *at += usize::from(adjective.is_some());
        let noun = words[*at];
        *at += 1;
        let (gender, number, stem) = if let Some(n) = index(&NOUNS, 0, noun) {
            (n % 3, 0, NOUNS[n][2].to_string())
        } else if let Some(n) = index(&NOUNS, 1, noun) {
            (n % 3, 1, format!("{}ne", NOUNS[n][2]))
        } else {
            let n = index(&AMBIGUOUS_NOUNS, 0, noun).unwrap_or_else(|| panic!("{noun} is no noun"));
            (reading_gender(n, reading), 0, AMBIGUOUS_NOUNS[n][1 + reading].to_string())
        };
        out.extend([DETERMINERS[indefinite][number][gender].to_string(), stem]);
        out.extend(adjective.map(|n| format!("{}{}", ADJECTIVES[n][1], ["a", "o", "i"][gender])));
        (gender, number)
    }

    /// A translator that sees the source text only.
    fn translate(source: &str) -> String {
        let words: Vec<&str> = source.split(' ').collect();
        let time = words.iter().find_map(|word| index(&TIMES, 0, word)).expect("a word of time");
        let place = words.iter().find_map(|word| index(&PLACES, 0, word));
        let reading = place.map_or(usize::MAX, |place| place / 2);
        let mut at = usize::from(index(&TIMES, 0, words[0]).is_some());
        if words[at] == "by" {
            at += 2;
        }
        let mut out = Vec::new();
        let (gender, number) = noun_phrase(&words, &mut at, reading, &mut out);
        while let Some(n) = index(&PREPOSITIONS, 0, words[at]) {
            out.push(PREPOSITIONS[n][1].to_string());
            at += 1;
            noun_phrase(&words, &mut at, reading, &mut out);
        }
        out.push(AUXILIARIES[time / 2][number][gender].to_string());
        let verb = words[at];
        at += 1;
        while ["the", "a", "some", "and"].contains(&words[at]) {
            if words[at] == "and" {
                out.push("ok".to_string());
                at += 1;
            }
            noun_phrase(&words, &mut at, reading, &mut out);
        }
        out.push(match index(&PLAIN_VERBS, 0, verb) {
            Some(n) => PLAIN_VERBS[n][1].to_string(),
            None => {
                let n = SEPARABLE_VERBS.iter().position(|known| *known == verb).expect("a verb");
                JOINED_VERBS[n][PARTICLES.iter().position(|known| *known == words[at]).expect("a particle")].to_string()
            }
        });
        out.push(TIMES[time][1].to_string());
        out.extend(place.into_iter().flat_map(|place| ["pa".to_string(), PLACES[place][1].to_string()]));
        out.push(".".to_string());
        out.join(" ")
    }

    #[test]
    fn every_translation_follows_from_the_source_text_alone() {
        let corpus = corpus();
        for pair in all(&corpus) {
            assert_eq!(translate(&pair.source), pair.target, "{}", pair.source);
        }
    }

    #[test]
    fn the_same_key_gives_the_same_corpus_and_another_key_another_one() {
        assert_eq!(corpus(), corpus());
        let other = parallel(&RandomKey::from_seed(2), Sizes::PARALLEL);
        assert_ne!(other.sha256, corpus().sha256);
        let common = all(&other).map(|pair| &pair.source).collect::<BTreeSet<_>>();
        assert!(corpus().train.iter().filter(|pair| common.contains(&pair.source)).count() < 400);
    }

    #[test]
    fn sizes_are_met_and_no_source_sentence_occurs_twice() {
        let corpus = corpus();
        assert_eq!((corpus.train.len(), corpus.valid.len(), corpus.tests[0].1.len()), (8_000, 200, 400));
        assert_eq!(all(&corpus).map(|pair| &pair.source).collect::<BTreeSet<_>>().len(), 8_600);
    }

    #[test]
    fn the_test_set_does_not_depend_on_the_size_of_the_training_set() {
        let small = parallel(&RandomKey::from_seed(1), Sizes { train: 10, ..Sizes::PARALLEL });
        assert_eq!((small.valid, small.tests), (corpus().valid, corpus().tests));
    }

    #[test]
    fn lengths_and_vocabularies_are_as_documented() {
        let corpus = corpus();
        let lengths: BTreeSet<usize> = all(&corpus).map(|pair| pair.source.split(' ').count()).collect();
        assert_eq!(lengths, (5..=18).collect());
        let words = |side: fn(&Pair) -> &String, pairs: &mut dyn Iterator<Item = &Pair>| -> BTreeSet<String> {
            pairs.flat_map(|pair| side(pair).split(' ').map(str::to_string).collect::<Vec<_>>()).collect()
        };
        for (side, range) in [((|pair| &pair.source) as fn(&Pair) -> &String, 75..=90), (|pair| &pair.target, 120..=140)] {
            let everything = words(side, &mut all(&corpus));
            assert!(range.contains(&everything.len()), "{} words", everything.len());
            assert_eq!(words(side, &mut corpus.train.iter()), everything, "training text has every word");
        }
    }

    #[test]
    fn both_readings_are_equally_frequent_and_differ_in_gender() {
        let corpus = corpus();
        let mut readings: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        for pair in &corpus.train {
            let words: Vec<&str> = pair.source.split(' ').collect();
            for word in &words {
                if let Some(n) = index(&AMBIGUOUS_NOUNS, 0, word) {
                    let (_, reading) = reading_of(&words).expect("an ambiguous noun has a place that decides");
                    readings.entry(AMBIGUOUS_NOUNS[n][0]).or_default()[reading] += 1;
                    assert_ne!(reading_gender(n, 0), reading_gender(n, 1));
                }
            }
        }
        assert_eq!(readings.len(), AMBIGUOUS_NOUNS.len());
        for (noun, [nature, town]) in readings {
            let share = nature as f64 / (nature + town) as f64;
            assert!((share - 0.5).abs() < 0.05, "{noun}: {nature} and {town}");
        }
    }

    /// Mean, standard deviation and number of different values.
    fn spread(distances: &[f64]) -> (f64, f64, usize) {
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        let variance = distances.iter().map(|distance| (distance - mean).powi(2)).sum::<f64>() / distances.len() as f64;
        (mean, variance.sqrt(), distances.iter().map(|&distance| distance as i64).collect::<BTreeSet<_>>().len())
    }

    #[test]
    fn the_deciding_word_stands_before_and_after_at_varying_distance() {
        let corpus = corpus();
        let (mut ambiguity, mut tense, mut subject, mut particle) = (vec![], vec![], vec![], vec![]);
        for pair in &corpus.train {
            let words: Vec<&str> = pair.source.split(' ').collect();
            let is_verb = |word: &&str| index(&PLAIN_VERBS, 0, word).is_some() || SEPARABLE_VERBS.contains(word);
            let is_noun = |word: &&str| index(&NOUNS, 0, word).or(index(&NOUNS, 1, word)).or(index(&AMBIGUOUS_NOUNS, 0, word)).is_some();
            let verb = words.iter().position(is_verb).unwrap() as f64;
            let time = words.iter().position(|word| index(&TIMES, 0, word).is_some()).unwrap() as f64;
            tense.push(time - verb);
            subject.push(words.iter().position(is_noun).unwrap() as f64 - verb);
            particle.extend(words.iter().position(|word| PARTICLES.contains(word)).map(|position| position as f64 - verb));
            for (position, word) in words.iter().enumerate() {
                if index(&AMBIGUOUS_NOUNS, 0, word).is_some() {
                    ambiguity.push(reading_of(&words).unwrap().0 as f64 - position as f64);
                }
            }
        }
        for (name, distances, least_deviation, least_values) in
            [("place", &ambiguity, 5.0, 20), ("time", &tense, 5.0, 15), ("subject", &subject, 1.5, 5), ("particle", &particle, 1.5, 6)]
        {
            let (mean, deviation, values) = spread(distances);
            assert!(deviation > least_deviation && values >= least_values, "{name}: {mean:.2} ± {deviation:.2}, {values} distances");
        }
        let far = ambiguity.iter().filter(|distance| distance.abs() > 6.0).count() as f64 / ambiguity.len() as f64;
        let before = ambiguity.iter().filter(|distance| **distance < 0.0).count() as f64 / ambiguity.len() as f64;
        assert!(far > 0.2 && (0.4..0.6).contains(&before), "{far:.2} are farther than six words, {before:.2} stand before");
    }
}
