//! An artificial translation pair.
//!
//! English-like sentences are translated into an invented language by rules that are exact, so that each source sentence has one translation.
//! - **Binding**: two or three persons are introduced by one word each for role and name (`meet baker-tom and pilot-anna`) and called by the bare name
//!   elsewhere (`tom sees anna`). The target language has no names: a mention is rendered by the role that the person has in this sentence, in the form of
//!   subject or object. Any name may have any role, so that only the introduction tells, at either side and at a varying distance.
//! - **Agreement**: the auxiliary and the adjectives agree with the gender of the role (so that they depend on the binding too), the determiners and
//!   adjectives of things with the gender of the thing. The auxiliary shows the tense, which only the time word tells.
//! - **Ambiguity**: things such as `crane` have two readings of different gender; the place that is named elsewhere decides.
//! - **Order**: verb-final, with its particle joined (`takes the old lamp off` has one word for `takes off` at the end); adjectives follow their noun;
//!   words of time and place move to the end.
//!
//! Ambiguity and tense need one look at a word known by its content, which learned cross-attention does by itself, whatever the encoder (You et al. 2020
//! found the same for hard-coded self-attention in natural translation). Binding needs two: from the place in the target to the mention, and from the
//! mention to the introduction of the same name. In a model of one layer per stack the second look must be the encoder's, and self-attention of fixed
//! positions cannot take it: it is left to guess among the persons of the sentence. About a third of the target words hang on the binding. Deeper
//! decoders can take both looks and narrow the gap. Source sentences have 10 to 16 words; the vocabularies have about 70 and 75 words.

use std::convert::Infallible;

use heedful_random::RandomKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Seen, Sizes};
use crate::{Pair, ParallelCorpus};

const LONGEST_SOURCE: usize = 16;

/// Fewer names make the matching quicker to learn: with these it takes a model of width 64 a few hundred steps.
const NAMES: [&str; 4] = ["tom", "anna", "max", "lena"];
/// Source word, target as subject or in the introduction, target as object; the gender of role n is n mod 3.
const ROLES: [[&str; 3]; 6] = [
    ["baker", "bagar", "bagaren"],
    ["doctor", "lekin", "lekinen"],
    ["pilot", "flyg", "flygen"],
    ["sailor", "navret", "navreten"],
    ["teacher", "skoll", "skollen"],
    ["farmer", "doste", "dosten"],
];
/// Source and target; the gender of thing n is n mod 3.
const THINGS: [[&str; 2]; 6] =
    [["table", "tosk"], ["lamp", "lurn"], ["book", "skriv"], ["wheel", "rund"], ["bottle", "flask"], ["letter", "brevi"]];
/// Source word and its readings in nature and in town, which differ in gender (see [`reading_gender`]).
const AMBIGUOUS_THINGS: [[&str; 3]; 3] = [["crane", "kranik", "hevar"], ["trunk", "stamme", "koffra"], ["plant", "vexta", "fabrik"]];
const ADJECTIVES: [[&str; 2]; 6] =
    [["old", "gamm"], ["small", "litt"], ["quiet", "still"], ["new", "nyv"], ["red", "rodd"], ["clean", "rein"]];
const PLAIN_VERBS: [[&str; 2]; 6] =
    [["sees", "voiren"], ["finds", "finnen"], ["carries", "boren"], ["paints", "malen"], ["follows", "segen"], ["hides", "gomen"]];
const SEPARABLE_VERBS: [&str; 2] = ["takes", "puts"];
const PARTICLES: [&str; 2] = ["off", "up"];
/// Target verb by separable verb and particle.
const JOINED_VERBS: [[&str; 2]; 2] = [["ustagen", "optagen"], ["uslegen", "oplegen"]];
/// The first two tell the past, the others the present.
const TIMES: [[&str; 2]; 4] = [["yesterday", "igar"], ["once", "fordom"], ["today", "idag"], ["now", "nuva"]];
/// The first two are nature, the others town.
const PLACES: [[&str; 2]; 4] = [["river", "flumen"], ["forest", "silva"], ["market", "torget"], ["office", "kontor"]];
/// Auxiliary by tense (past, present) and gender of the subject.
const AUXILIARIES: [[&str; 3]; 2] = [["vara", "varo", "vari"], ["esta", "esto", "esti"]];
/// Determiner by definiteness (the, a) and gender.
const DETERMINERS: [[&str; 3]; 2] = [["la", "lo", "li"], ["una", "uno", "uni"]];
const ADJECTIVE_ENDINGS: [&str; 3] = ["a", "o", "i"];

const TWO_PERSONS: f64 = 0.2;
const ONE_CLAUSE: f64 = 0.6;
const PERSON_AS_OBJECT: f64 = 0.7;
const SEPARABLE_VERB: f64 = 0.25;
const AMBIGUOUS_THING: f64 = 0.3;
const ADJECTIVE: f64 = 0.25;

/// Generates `sizes` pairs of source sentences and their translations; all source sentences differ.
pub fn parallel(key: &RandomKey, sizes: Sizes) -> ParallelCorpus {
    let key = key.named("parallel");
    let mut seen = Seen::default();
    let corpus = super::corpus(["english-like", "invented"], sizes, |name, size| {
        let mut rng = key.named(name).rng();
        let mut pairs = Vec::with_capacity(size);
        while pairs.len() < size {
            let sentence = Sentence::draw(&mut rng);
            let source = sentence.source();
            if source.split(' ').count() <= LONGEST_SOURCE && seen.is_new(&source) {
                pairs.push(Pair { source, target: sentence.target() });
            }
        }
        Ok::<_, Infallible>(pairs)
    });
    let Ok(corpus) = corpus;
    corpus
}

/// A person of the cast, introduced by one word for role and name.
struct Person {
    name: usize,
    role: usize,
}

/// A person of the cast (by place in the list) called by the bare name.
struct Mention {
    person: usize,
    adjective: Option<usize>,
}

#[derive(Clone, Copy)]
enum Noun {
    Plain(usize),
    Ambiguous(usize),
}

struct Thing {
    definite: bool,
    adjective: Option<usize>,
    noun: Noun,
}

enum Object {
    Person(Mention),
    Thing(Thing),
}

enum Verb {
    Plain(usize),
    Separable { verb: usize, particle: usize },
}

struct Clause {
    subject: Mention,
    verb: Verb,
    object: Object,
}

/// `introduces_first` says whether the introduction stands before the clauses, in both languages.
struct Sentence {
    cast: Vec<Person>,
    introduces_first: bool,
    clauses: Vec<Clause>,
    time: usize,
    place: Option<usize>,
    time_before_place: bool,
}

/// Gender of an ambiguous noun in a reading (0 nature, 1 town): every noun has two different ones.
fn reading_gender(noun: usize, reading: usize) -> usize {
    (noun + reading * (1 + noun % 2)) % 3
}

fn agreeing(adjective: usize, gender: usize) -> String {
    format!("{}{}", ADJECTIVES[adjective][1], ADJECTIVE_ENDINGS[gender])
}

fn draw_adjective(rng: &mut ChaCha8Rng) -> Option<usize> {
    rng.random_bool(ADJECTIVE).then(|| rng.random_range(0..ADJECTIVES.len()))
}

impl Mention {
    fn draw(person: usize, rng: &mut ChaCha8Rng) -> Self {
        Self { person, adjective: draw_adjective(rng) }
    }

    fn source(&self, cast: &[Person], words: &mut Vec<String>) {
        words.extend(self.adjective.map(|adjective| ADJECTIVES[adjective][0].to_string()));
        words.push(NAMES[cast[self.person].name].to_string());
    }

    /// Renders the mention in the given column of [`ROLES`]; returns the gender.
    fn target(&self, cast: &[Person], form: usize, words: &mut Vec<String>) -> usize {
        let role = cast[self.person].role;
        let gender = role % 3;
        words.push(ROLES[role][form].to_string());
        words.extend(self.adjective.map(|adjective| agreeing(adjective, gender)));
        gender
    }
}

impl Thing {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let noun = if rng.random_bool(AMBIGUOUS_THING) {
            Noun::Ambiguous(rng.random_range(0..AMBIGUOUS_THINGS.len()))
        } else {
            Noun::Plain(rng.random_range(0..THINGS.len()))
        };
        Self { definite: rng.random_bool(0.5), adjective: draw_adjective(rng), noun }
    }

    fn source(&self, words: &mut Vec<String>) {
        words.push(if self.definite { "the" } else { "a" }.to_string());
        words.extend(self.adjective.map(|adjective| ADJECTIVES[adjective][0].to_string()));
        words.push(
            match self.noun {
                Noun::Plain(noun) => THINGS[noun][0],
                Noun::Ambiguous(noun) => AMBIGUOUS_THINGS[noun][0],
            }
            .to_string(),
        );
    }

    fn target(&self, reading: usize, words: &mut Vec<String>) {
        let (gender, noun) = match self.noun {
            Noun::Plain(noun) => (noun % 3, THINGS[noun][1]),
            Noun::Ambiguous(noun) => (reading_gender(noun, reading), AMBIGUOUS_THINGS[noun][1 + reading]),
        };
        words.push(DETERMINERS[usize::from(!self.definite)][gender].to_string());
        words.push(noun.to_string());
        words.extend(self.adjective.map(|adjective| agreeing(adjective, gender)));
    }
}

impl Clause {
    fn draw(cast: usize, rng: &mut ChaCha8Rng) -> Self {
        let subject = rng.random_range(0..cast);
        let object = if rng.random_bool(PERSON_AS_OBJECT) {
            Object::Person(Mention::draw((subject + rng.random_range(1..cast)) % cast, rng))
        } else {
            Object::Thing(Thing::draw(rng))
        };
        let verb = if rng.random_bool(SEPARABLE_VERB) {
            Verb::Separable { verb: rng.random_range(0..SEPARABLE_VERBS.len()), particle: rng.random_range(0..PARTICLES.len()) }
        } else {
            Verb::Plain(rng.random_range(0..PLAIN_VERBS.len()))
        };
        Self { subject: Mention::draw(subject, rng), verb, object }
    }

    fn source(&self, cast: &[Person], words: &mut Vec<String>) {
        self.subject.source(cast, words);
        words.push(
            match self.verb {
                Verb::Plain(verb) => PLAIN_VERBS[verb][0],
                Verb::Separable { verb, .. } => SEPARABLE_VERBS[verb],
            }
            .to_string(),
        );
        match &self.object {
            Object::Person(mention) => mention.source(cast, words),
            Object::Thing(thing) => thing.source(words),
        }
        if let Verb::Separable { particle, .. } = self.verb {
            words.push(PARTICLES[particle].to_string());
        }
    }

    fn target(&self, cast: &[Person], tense: usize, reading: usize, words: &mut Vec<String>) {
        let gender = self.subject.target(cast, 1, words);
        words.push(AUXILIARIES[tense][gender].to_string());
        match &self.object {
            Object::Person(mention) => {
                mention.target(cast, 2, words);
            }
            Object::Thing(thing) => thing.target(reading, words),
        }
        words.push(
            match self.verb {
                Verb::Plain(verb) => PLAIN_VERBS[verb][1],
                Verb::Separable { verb, particle } => JOINED_VERBS[verb][particle],
            }
            .to_string(),
        );
    }
}

/// `count` different numbers below `limit` in random order.
fn draw_different(count: usize, limit: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..limit).collect();
    for index in 0..count {
        numbers.swap(index, rng.random_range(index..limit));
    }
    numbers.truncate(count);
    numbers
}

impl Sentence {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let size = if rng.random_bool(TWO_PERSONS) { 2 } else { 3 };
        let names = draw_different(size, NAMES.len(), rng);
        let roles = draw_different(size, ROLES.len(), rng);
        let cast: Vec<Person> = names.into_iter().zip(roles).map(|(name, role)| Person { name, role }).collect();
        let clause_count = if rng.random_bool(ONE_CLAUSE) { 1 } else { 2 };
        let clauses: Vec<Clause> = (0..clause_count).map(|_| Clause::draw(size, rng)).collect();
        let is_ambiguous = |clause: &Clause| matches!(clause.object, Object::Thing(Thing { noun: Noun::Ambiguous(_), .. }));
        let place = (clauses.iter().any(is_ambiguous) || rng.random_bool(0.5)).then(|| rng.random_range(0..PLACES.len()));
        Self {
            cast,
            introduces_first: rng.random_bool(0.5),
            clauses,
            time: rng.random_range(0..TIMES.len()),
            place,
            time_before_place: rng.random_bool(0.5),
        }
    }

    fn source(&self) -> String {
        let mut introduction = vec!["meet".to_string()];
        for (index, person) in self.cast.iter().enumerate() {
            if index > 0 && index + 1 == self.cast.len() {
                introduction.push("and".to_string());
            }
            introduction.push(format!("{}-{}", ROLES[person.role][0], NAMES[person.name]));
        }
        let mut action = Vec::new();
        for (index, clause) in self.clauses.iter().enumerate() {
            if index > 0 {
                action.push("and".to_string());
            }
            clause.source(&self.cast, &mut action);
        }
        let time = vec![TIMES[self.time][0].to_string()];
        let place = self.place.map_or(Vec::new(), |place| ["by", PLACES[place][0]].map(str::to_string).to_vec());
        let middle = if self.time_before_place { [time, place] } else { [place, time] }.concat();
        let (first, last) = if self.introduces_first { (introduction, action) } else { (action, introduction) };
        [first, middle, vec![",".to_string()], last, vec![".".to_string()]].concat().join(" ")
    }

    fn target(&self) -> String {
        let reading = self.place.map_or(0, |place| place / 2);
        let mut introduction = vec!["motan".to_string()];
        introduction.extend(self.cast.iter().map(|person| ROLES[person.role][1].to_string()));
        let mut action = Vec::new();
        for (index, clause) in self.clauses.iter().enumerate() {
            if index > 0 {
                action.push("ok".to_string());
            }
            clause.target(&self.cast, self.time / 2, reading, &mut action);
        }
        let mut words = if self.introduces_first { [introduction, action] } else { [action, introduction] }.concat();
        words.push(TIMES[self.time][1].to_string());
        if let Some(place) = self.place {
            words.extend(["pa", PLACES[place][1]].map(str::to_string));
        }
        words.push(".".to_string());
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::tests::all;
    use super::*;

    fn corpus() -> ParallelCorpus {
        parallel(&RandomKey::from_seed(1), Sizes::PARALLEL)
    }

    fn words_of(text: &str) -> Vec<&str> {
        text.split(' ').collect()
    }

    fn index<const N: usize>(table: &[[&str; N]], column: usize, word: &str) -> Option<usize> {
        table.iter().position(|row| row[column] == word)
    }

    /// Places and roles of the introductions in a source sentence, with the names, found without the generator.
    fn introductions<'a>(words: &[&'a str]) -> Vec<(usize, usize, &'a str)> {
        let read = |(position, word): (usize, &&'a str)| {
            word.split_once('-').map(|(role, name)| (position, index(&ROLES, 0, role).expect("a role"), name))
        };
        words.iter().enumerate().filter_map(read).collect()
    }

    /// One mention in a source sentence.
    struct Found {
        position: usize,
        introduced_at: usize,
        role: usize,
    }

    fn mentions(words: &[&str]) -> Vec<Found> {
        let introduced = introductions(words);
        let find = |(position, word): (usize, &&str)| {
            NAMES.contains(word).then(|| {
                let &(introduced_at, role, _) = introduced.iter().find(|(_, _, name)| name == word).expect("everybody is introduced");
                Found { position, introduced_at, role }
            })
        };
        words.iter().enumerate().filter_map(find).collect()
    }

    fn take_adjective(words: &[&str], at: &mut usize) -> Option<usize> {
        let adjective = index(&ADJECTIVES, 0, words[*at]);
        *at += usize::from(adjective.is_some());
        adjective
    }

    fn push_adjective(adjective: Option<usize>, gender: usize, out: &mut Vec<String>) {
        out.extend(adjective.map(|n| format!("{}{}", ADJECTIVES[n][1], ["a", "o", "i"][gender])));
    }

    /// Translates the mention at `words[*at..]`; gives its gender.
    fn mention(words: &[&str], at: &mut usize, form: usize, out: &mut Vec<String>) -> usize {
        let adjective = take_adjective(words, at);
        let role = introductions(words).iter().find(|(_, _, name)| *name == words[*at]).expect("everybody is introduced").1;
        *at += 1;
        out.push(ROLES[role][form].to_string());
        push_adjective(adjective, role % 3, out);
        role % 3
    }

    /// Translates the thing at `words[*at..]`.
    fn thing(words: &[&str], at: &mut usize, reading: usize, out: &mut Vec<String>) {
        let indefinite = usize::from(words[*at] == "a");
        *at += 1;
        let adjective = take_adjective(words, at);
        let (gender, noun) = match index(&THINGS, 0, words[*at]) {
            Some(n) => (n % 3, THINGS[n][1]),
            None => {
                let n = index(&AMBIGUOUS_THINGS, 0, words[*at]).unwrap_or_else(|| panic!("{} is no thing", words[*at]));
                (reading_gender(n, reading), AMBIGUOUS_THINGS[n][1 + reading])
            }
        };
        *at += 1;
        out.extend([DETERMINERS[indefinite][gender], noun].map(str::to_string));
        push_adjective(adjective, gender, out);
    }

    /// A translator that sees the source text only.
    fn translate(source: &str) -> String {
        let words = words_of(source);
        let time = words.iter().find_map(|word| index(&TIMES, 0, word)).expect("a word of time");
        let place = words.iter().find_map(|word| index(&PLACES, 0, word));
        let reading = place.map_or(usize::MAX, |place| place / 2);
        let mut introduction = vec!["motan".to_string()];
        introduction.extend(introductions(&words).iter().map(|(_, role, _)| ROLES[*role][1].to_string()));
        let introduces_first = words[0] == "meet";
        let mut at = if introduces_first { words.iter().position(|word| *word == ",").expect("a comma") + 1 } else { 0 };
        let mut action = Vec::new();
        loop {
            let gender = mention(&words, &mut at, 1, &mut action);
            action.push(AUXILIARIES[time / 2][gender].to_string());
            let verb = words[at];
            at += 1;
            if ["the", "a"].contains(&words[at]) {
                thing(&words, &mut at, reading, &mut action);
            } else {
                mention(&words, &mut at, 2, &mut action);
            }
            action.push(match index(&PLAIN_VERBS, 0, verb) {
                Some(n) => PLAIN_VERBS[n][1].to_string(),
                None => {
                    let n = SEPARABLE_VERBS.iter().position(|known| *known == verb).expect("a verb");
                    at += 1;
                    JOINED_VERBS[n][PARTICLES.iter().position(|known| *known == words[at - 1]).expect("a particle")].to_string()
                }
            });
            if words[at] != "and" {
                break;
            }
            action.push("ok".to_string());
            at += 1;
        }
        let mut out = if introduces_first { [introduction, action] } else { [action, introduction] }.concat();
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
        let lengths: BTreeSet<usize> = all(&corpus).map(|pair| words_of(&pair.source).len()).collect();
        assert_eq!(lengths, (10..=16).collect());
        let words = |side: fn(&Pair) -> &String, pairs: &mut dyn Iterator<Item = &Pair>| -> BTreeSet<String> {
            pairs.flat_map(|pair| side(pair).split(' ').map(str::to_string).collect::<Vec<_>>()).collect()
        };
        for (side, range) in [((|pair| &pair.source) as fn(&Pair) -> &String, 65..=75), (|pair| &pair.target, 70..=80)] {
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
            let words = words_of(&pair.source);
            for n in words.iter().filter_map(|word| index(&AMBIGUOUS_THINGS, 0, word)) {
                let place = words.iter().find_map(|word| index(&PLACES, 0, word)).expect("an ambiguous thing has a place that decides");
                readings.entry(AMBIGUOUS_THINGS[n][0]).or_default()[place / 2] += 1;
                assert_ne!(reading_gender(n, 0), reading_gender(n, 1));
            }
        }
        assert_eq!(readings.len(), AMBIGUOUS_THINGS.len());
        for (noun, [nature, town]) in readings {
            let share = nature as f64 / (nature + town) as f64;
            assert!((share - 0.5).abs() < 0.08, "{noun}: {nature} and {town}");
        }
    }

    #[test]
    fn about_a_third_of_the_target_words_depend_on_the_binding() {
        let corpus = corpus();
        let (mut dependent, mut total) = (0, 0);
        for pair in &corpus.train {
            // Other roles for the same persons: the words that change are those that only the introduction tells. Its own words are not counted.
            let changed: Vec<String> = words_of(&pair.source)
                .iter()
                .map(|word| match word.split_once('-') {
                    Some((role, name)) => format!("{}-{name}", ROLES[(index(&ROLES, 0, role).expect("a role") + 1) % ROLES.len()][0]),
                    None => word.to_string(),
                })
                .collect();
            let other = translate(&changed.join(" "));
            let differing = words_of(&pair.target).iter().zip(words_of(&other)).filter(|(word, other)| *word != other).count();
            dependent += differing - introductions(&words_of(&pair.source)).len();
            total += words_of(&pair.target).len();
        }
        let share = dependent as f64 / total as f64;
        assert!((0.25..0.40).contains(&share), "{share:.3}");
    }

    #[test]
    fn the_introduction_stands_before_and_after_its_mentions_at_varying_distance() {
        let corpus = corpus();
        let distances: Vec<isize> = corpus
            .train
            .iter()
            .flat_map(|pair| mentions(&words_of(&pair.source)))
            .map(|found| found.introduced_at as isize - found.position as isize)
            .collect();
        let share =
            |wanted: &dyn Fn(isize) -> bool| distances.iter().filter(|&&distance| wanted(distance)).count() as f64 / distances.len() as f64;
        let far = share(&|distance| distance.abs() >= 4);
        let before = share(&|distance| distance < 0);
        assert!(far > 0.9, "{far:.3} are at least four words away");
        assert!((0.4..0.6).contains(&before), "{before:.3} stand before");
        assert!(distances.iter().all(|distance| distance.abs() > 2), "an introduction is a neighbour of its mention");
        for distance in (-13..=13).filter(|distance: &isize| distance.abs() > 3) {
            let common = share(&|other| other == distance);
            assert!(common > 0.0 && common < 0.15, "distance {distance} has a share of {common:.3}");
        }
    }

    /// Share of the test mentions whose role is guessed right from what `clue` sees of the sentence, by the role most frequent with it in training.
    fn guessed_right(corpus: &ParallelCorpus, clue: impl Fn(&[&str], &Found) -> String) -> f64 {
        let mut counts: BTreeMap<String, [usize; ROLES.len()]> = BTreeMap::new();
        let mut roles = [0; ROLES.len()];
        for pair in &corpus.train {
            let words = words_of(&pair.source);
            for found in mentions(&words) {
                counts.entry(clue(&words, &found)).or_default()[found.role] += 1;
                roles[found.role] += 1;
            }
        }
        let (mut right, mut total) = (0, 0);
        for pair in &corpus.tests[0].1 {
            let words = words_of(&pair.source);
            for found in mentions(&words) {
                let seen = counts.get(&clue(&words, &found)).unwrap_or(&roles);
                let guess = (0..ROLES.len()).max_by_key(|&role| seen[role]).expect("there are roles");
                right += usize::from(guess == found.role);
                total += 1;
            }
        }
        right as f64 / total as f64
    }

    #[test]
    fn the_most_frequent_role_of_a_name_is_mostly_wrong() {
        let right = guessed_right(&corpus(), |words, found| words[found.position].to_string());
        assert!(right < 0.25, "{right:.3}");
    }

    #[test]
    fn the_role_of_a_mention_cannot_be_told_from_its_neighbours() {
        let corpus = corpus();
        for reach in [1, 2] {
            let right = guessed_right(&corpus, |words, found| {
                words[found.position.saturating_sub(reach)..(found.position + reach + 1).min(words.len())].join(" ")
            });
            assert!(right < 0.25, "{right:.3} with {reach} words on either side");
        }
    }

    #[test]
    fn the_role_of_a_mention_cannot_be_told_from_the_word_at_a_fixed_place_or_distance() {
        let corpus = corpus();
        let name = |words: &[&str], found: &Found, at: isize| {
            let word = usize::try_from(at).ok().and_then(|at| words.get(at)).unwrap_or(&"");
            format!("{} {word}", words[found.position])
        };
        for place in -16..16 {
            let absolute = guessed_right(&corpus, |words, found| name(words, found, place));
            let from_the_end = guessed_right(&corpus, |words, found| name(words, found, words.len() as isize + place));
            let relative = guessed_right(&corpus, |words, found| name(words, found, found.position as isize + place));
            for (kind, right) in [("place", absolute), ("place from the end", from_the_end), ("distance", relative)] {
                assert!(right < 0.4, "{right:.3} at {kind} {place}");
            }
        }
    }

    #[test]
    fn the_roles_of_a_sentence_without_the_names_leave_a_guess_among_its_persons() {
        let corpus = corpus();
        for nth in 0..3 {
            let (mut right, mut total) = (0, 0);
            for pair in &corpus.tests[0].1 {
                let words = words_of(&pair.source);
                let introduced = introductions(&words);
                for found in mentions(&words) {
                    right += usize::from(introduced[nth.min(introduced.len() - 1)].1 == found.role);
                    total += 1;
                }
            }
            let share = right as f64 / total as f64;
            assert!((0.25..0.45).contains(&share), "person {nth}: {share:.3}");
        }
    }
}
