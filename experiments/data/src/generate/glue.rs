//! Artificial tasks in the form of GLUE.
//!
//! Five tasks are made, each after the question that its namesake asks, in sentences of a small vocabulary:
//! - **CoLA**: does the verb agree in number with the head of its subject, across phrases and clauses with nouns of either number?
//! - **SST-2**: is the opinion positive, after `not` in the same clause turned it, but not a `not` in the other clause?
//! - **MRPC**: does the second sentence say the same in other words and another order, or with the roles exchanged or a word replaced?
//! - **RTE**: does a combination of who, what and whom follow from the facts, or are its parts taken from different facts?
//! - **STS-B**: how many of the five content words of two sentences mean the same (0 to 5), synonyms and order aside?
//!
//! Every label is equally frequent (in each split, up to one example). In the first four tasks the label depends on how words belong together, so that
//! counting words does not solve them. Not covered: the other tasks of the benchmark.

use heedful_random::RandomKey;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Seen, Sizes, pick};
use crate::files::sha256_of_lines;
use crate::{DataError, Example, GlueData, GlueTask, Label, Target, Unlabelled};

/// The tasks that can be generated.
pub const GENERATED: [GlueTask; 5] = [GlueTask::Cola, GlueTask::Sst2, GlueTask::Mrpc, GlueTask::Rte, GlueTask::StsB];

/// So many draws in a row without a new example mean that there are no more.
const PATIENCE: usize = 10_000;

/// Generates `sizes` examples of `task`; all examples differ.
///
/// # Errors
/// [`DataError::NotGenerated`] for a task not in [`GENERATED`], [`DataError::TooManyWanted`] if there are not enough different examples.
pub fn glue(task: GlueTask, key: &RandomKey, sizes: Sizes) -> Result<GlueData, DataError> {
    let draw = match task {
        GlueTask::Cola => acceptability,
        GlueTask::Sst2 => sentiment,
        GlueTask::Mrpc => paraphrase,
        GlueTask::Rte => entailment,
        GlueTask::StsB => similarity,
        _ => return Err(DataError::NotGenerated { task }),
    };
    let key = key.named("glue").named(task.name());
    let mut seen = Seen::default();
    let mut split = |name: &str, size: usize| split(task, name, size, key.named(name).rng(), &mut seen, draw);
    let test = split("test", sizes.test)?;
    let dev = split("dev", sizes.valid)?;
    let train = split("train", sizes.train)?;
    let line = |example: &Example| format!("{}\t{}\t{:?}", example.first, example.second.as_deref().unwrap_or_default(), example.label);
    let sha256 = sha256_of_lines([&train, &dev, &test].into_iter().flatten().map(line));
    let unlabelled = |(index, example): (usize, Example)| Unlabelled::new(index, example.first, example.second);
    let test: Vec<Unlabelled> = test.into_iter().enumerate().map(unlabelled).collect();
    Ok(GlueData {
        task,
        train,
        dev: vec![("dev".to_string(), dev)],
        labelled_test: None,
        test: if test.is_empty() { Vec::new() } else { vec![("test".to_string(), test)] },
        without_gold_label: Vec::new(),
        sha256,
    })
}

type Sentences = (String, Option<String>);

/// `size` examples that are not in `seen`, in random order; `draw` makes sentences for a label.
fn split(
    task: GlueTask,
    name: &str,
    size: usize,
    mut rng: ChaCha8Rng,
    seen: &mut Seen,
    draw: fn(&mut ChaCha8Rng, usize) -> Sentences,
) -> Result<Vec<Example>, DataError> {
    let mut examples = Vec::with_capacity(size);
    let mut repeated = 0;
    while examples.len() < size {
        let label = balanced_label(task, examples.len());
        let (first, second) = draw(&mut rng, number_of(label));
        if seen.is_new(&format!("{first}\t{}", second.as_deref().unwrap_or_default())) {
            examples.push(Example::new(first, second, label));
            repeated = 0;
        } else {
            repeated += 1;
            if repeated > PATIENCE {
                return Err(DataError::TooManyWanted { found: examples.len(), wanted: size, what: format!("{name} examples of {task}") });
            }
        }
    }
    examples.shuffle(&mut rng);
    Ok(examples)
}

fn balanced_label(task: GlueTask, index: usize) -> Label {
    match task.target() {
        Target::Classes(classes) => Label::Class(index % classes),
        Target::Range(_, high) => Label::Score((index % (high as usize + 1)) as f32),
    }
}

fn number_of(label: Label) -> usize {
    match label {
        Label::Class(class) => class,
        Label::Score(score) => score as usize,
    }
}

const COUNTED_NOUNS: [[&str; 2]; 12] = [
    ["key", "keys"],
    ["boat", "boats"],
    ["letter", "letters"],
    ["tree", "trees"],
    ["window", "windows"],
    ["bird", "birds"],
    ["chair", "chairs"],
    ["road", "roads"],
    ["bottle", "bottles"],
    ["picture", "pictures"],
    ["house", "houses"],
    ["wheel", "wheels"],
];
const STATES: [&str; 8] = ["old", "small", "new", "clean", "heavy", "broken", "red", "dusty"];
const BETWEEN: [&str; 4] = ["near", "behind", "beside", "under"];

/// Label 1: the verb has the number of the head noun; 0: it has the other one.
fn acceptability(rng: &mut ChaCha8Rng, label: usize) -> Sentences {
    let verb_number = rng.random_range(0..2);
    let head_number = if label == 1 { verb_number } else { 1 - verb_number };
    let noun = |rng: &mut ChaCha8Rng, number: usize| COUNTED_NOUNS[rng.random_range(0..COUNTED_NOUNS.len())][number];
    let mut words = vec!["the", noun(rng, head_number)];
    for _ in 0..rng.random_range(0..3) {
        let number = rng.random_range(0..2);
        words.extend([pick(rng, &BETWEEN), "the"]);
        if rng.random_bool(0.3) {
            words.push(pick(rng, &STATES));
        }
        words.push(noun(rng, number));
    }
    words.extend([pick(rng, &[["is", "was"], ["are", "were"]][verb_number]), pick(rng, &STATES)]);
    if rng.random_bool(0.3) {
        words.extend(["and", pick(rng, &STATES)]);
    }
    words.push(".");
    (words.join(" "), None)
}

const PRAISED: [&str; 10] = ["film", "story", "acting", "music", "ending", "plot", "dialogue", "camera", "cast", "script"];
const POSITIVE: [&str; 8] = ["good", "moving", "clever", "charming", "funny", "brilliant", "fresh", "warm"];
const NEGATIVE: [&str; 8] = ["bad", "boring", "stupid", "clumsy", "dull", "awful", "stale", "cold"];
const SCENERY: [&str; 6] = ["cinema", "hall", "theatre", "screen", "street", "evening"];
const NEUTRAL: [&str; 6] = ["full", "large", "dark", "late", "quiet", "wet"];

/// Label 1: a positive word without `not` in its clause, or a negative one with it.
fn sentiment(rng: &mut ChaCha8Rng, label: usize) -> Sentences {
    let negated = rng.random_bool(0.5);
    let words = if (label == 1) != negated { &POSITIVE } else { &NEGATIVE };
    let clause = |rng: &mut ChaCha8Rng, things: &[&'static str], negated: bool, words: &[&'static str]| {
        let mut clause = vec!["the", pick(rng, things), "was"];
        clause.extend(negated.then_some("not"));
        clause.extend(rng.random_bool(0.3).then(|| pick(rng, &["very", "really", "so"])));
        clause.push(pick(rng, words));
        clause.join(" ")
    };
    let opinion = clause(rng, &PRAISED, negated, words);
    let other_negated = rng.random_bool(0.5);
    let other = clause(rng, &SCENERY, other_negated, &NEUTRAL);
    let link = pick(rng, &["and", "but", ","]);
    let text = if rng.random_bool(0.5) { format!("{opinion} {link} {other} .") } else { format!("{other} {link} {opinion} .") };
    (text, None)
}

const PEOPLE: [&str; 6] = ["farmer", "teacher", "sailor", "baker", "doctor", "painter"];
/// Verbs in pairs of synonyms, in a form that serves as past and as participle.
const SYNONYMS: [[&str; 2]; 6] = [
    ["helped", "assisted"],
    ["called", "phoned"],
    ["liked", "admired"],
    ["followed", "pursued"],
    ["found", "discovered"],
    ["hit", "struck"],
];
const OCCASIONS: [&str; 6] = ["yesterday", "in town", "at night", "by chance", "at work", "in spring"];

/// Label 1: the second sentence means the same; 0: its roles are exchanged or one of its people is another one.
fn paraphrase(rng: &mut ChaCha8Rng, label: usize) -> Sentences {
    let [agent, patient, stranger] = three(rng, &PEOPLE);
    let verb = SYNONYMS[rng.random_range(0..SYNONYMS.len())];
    let occasion = pick(rng, &OCCASIONS);
    let second_roles = match (label, rng.random_range(0..4)) {
        (1, _) => (agent, patient),
        (_, 0) => (stranger, patient),
        (_, 1) => (agent, stranger),
        _ => (patient, agent),
    };
    let sentence = |rng: &mut ChaCha8Rng, (agent, patient): (&str, &str)| {
        let verb = pick(rng, &verb);
        let core = if rng.random_bool(0.5) {
            format!("the {agent} {verb} the {patient}")
        } else {
            format!("the {patient} was {verb} by the {agent}")
        };
        if rng.random_bool(0.5) { format!("{core} {occasion} .") } else { format!("{occasion} {core} .") }
    };
    (sentence(rng, (agent, patient)), Some(sentence(rng, second_roles)))
}

const NAMES: [&str; 6] = ["anna", "boris", "clara", "david", "emma", "felix"];
const DEEDS: [&str; 4] = ["bought", "sold", "painted", "lost"];
const GOODS: [&str; 6] = ["lamp", "chair", "boat", "clock", "piano", "table"];

/// Label 0 (`entailment`): the hypothesis is one of the facts; 1: its person and its thing stand in two different facts, or one is in none.
fn entailment(rng: &mut ChaCha8Rng, label: usize) -> Sentences {
    let names = three(rng, &NAMES);
    let goods = three(rng, &GOODS);
    let deeds: [&str; 3] = [(); 3].map(|()| pick(rng, &DEEDS));
    let count = rng.random_range(2..4);
    let facts: Vec<String> = (0..count).map(|fact| format!("{} {} the {}", names[fact], deeds[fact], goods[fact])).collect();
    let premise = format!("{} .", facts.join(pick(rng, &[" and ", " while ", " , "])));
    let fact = rng.random_range(0..count);
    let other = (fact + rng.random_range(1..count)) % count;
    let absent = |rng: &mut ChaCha8Rng, all: &[&'static str], taken: &[&str]| loop {
        let word = pick(rng, all);
        if !taken.contains(&word) {
            break word;
        }
    };
    let (name, thing) = match (label, rng.random_range(0..4)) {
        (0, _) => (names[fact], goods[fact]),
        (_, 0) => (absent(rng, &NAMES, &names), goods[fact]),
        (_, 1) => (names[fact], absent(rng, &GOODS, &goods)),
        _ => (names[other], goods[fact]),
    };
    (premise, Some(format!("{name} {} the {thing} .", deeds[fact])))
}

/// Words in pairs of synonyms for the five places of a sentence: adjective, agent, verb, adjective, patient.
const FIVE_PLACES: [&[[&str; 2]]; 5] = [
    &[["big", "large"], ["young", "youthful"], ["rich", "wealthy"], ["happy", "glad"], ["tired", "weary"]],
    &[["man", "fellow"], ["doctor", "physician"], ["child", "kid"], ["thief", "robber"], ["soldier", "warrior"], ["actor", "player"]],
    &[
        ["saw", "noticed"],
        ["bought", "purchased"],
        ["wanted", "desired"],
        ["took", "grabbed"],
        ["hid", "concealed"],
        ["found", "discovered"],
    ],
    &[["small", "little"], ["old", "ancient"], ["quick", "fast"], ["strange", "odd"], ["pretty", "beautiful"]],
    &[["stone", "rock"], ["boat", "ship"], ["rabbit", "hare"], ["present", "gift"], ["coat", "jacket"], ["road", "street"]],
];

/// The score is the number of places that mean the same.
fn similarity(rng: &mut ChaCha8Rng, score: usize) -> Sentences {
    let mut places = [0, 1, 2, 3, 4];
    places.shuffle(rng);
    let meanings = FIVE_PLACES.map(|words| rng.random_range(0..words.len()));
    let mut second = meanings;
    for &place in &places[score..] {
        let count = FIVE_PLACES[place].len();
        second[place] = (meanings[place] + rng.random_range(1..count)) % count;
    }
    let sentence = |rng: &mut ChaCha8Rng, meanings: [usize; 5]| {
        let word = |place: usize, rng: &mut ChaCha8Rng| pick(rng, &FIVE_PLACES[place][meanings[place]]);
        let [quality, agent, verb, other_quality, patient] = [0, 1, 2, 3, 4].map(|place| word(place, rng));
        if rng.random_bool(0.5) {
            format!("the {quality} {agent} {verb} the {other_quality} {patient} .")
        } else {
            format!("it was the {other_quality} {patient} that the {quality} {agent} {verb} .")
        }
    };
    (sentence(rng, meanings), Some(sentence(rng, second)))
}

/// Three different items in random order.
fn three(rng: &mut ChaCha8Rng, items: &[&'static str; 6]) -> [&'static str; 3] {
    let mut items = *items;
    items.shuffle(rng);
    [items[0], items[1], items[2]]
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::files::tests::refused;

    fn data(task: GlueTask) -> GlueData {
        glue(task, &RandomKey::from_seed(1), Sizes { test: 100, ..Sizes::GLUE }).unwrap()
    }

    fn words(sentence: &str) -> Vec<&str> {
        sentence.split(' ').collect()
    }

    fn index_of(table: &[[&str; 2]], word: &str) -> Option<(usize, usize)> {
        table.iter().enumerate().find_map(|(row, forms)| forms.iter().position(|form| *form == word).map(|column| (row, column)))
    }

    /// The label, worked out from the sentences alone.
    fn judge(task: GlueTask, first: &str, second: Option<&str>) -> Label {
        let one = words(first);
        let two = words(second.unwrap_or_default());
        match task {
            GlueTask::Cola => {
                let (_, head) = index_of(&COUNTED_NOUNS, one[1]).unwrap();
                let verb = one.iter().find_map(|word| ["is", "was", "are", "were"].iter().position(|verb| verb == word)).unwrap();
                Label::Class(usize::from(head == verb / 2))
            }
            GlueTask::Sst2 => {
                let opinion = one.iter().position(|word| POSITIVE.contains(word) || NEGATIVE.contains(word)).unwrap();
                let clause = one[..opinion].iter().rposition(|word| *word == "the").unwrap();
                let negated = one[clause..opinion].contains(&"not");
                Label::Class(usize::from(POSITIVE.contains(&one[opinion]) != negated))
            }
            GlueTask::Mrpc => {
                let roles = |words: &[&str]| {
                    let people: Vec<String> = words.iter().filter(|word| PEOPLE.contains(word)).map(|word| word.to_string()).collect();
                    let verb = words.iter().find_map(|word| index_of(&SYNONYMS, word)).unwrap().0;
                    let passive = words.contains(&"was");
                    (people[usize::from(passive)].clone(), people[usize::from(!passive)].clone(), verb)
                };
                Label::Class(usize::from(roles(&one) == roles(&two)))
            }
            GlueTask::Rte => Label::Class(usize::from(!one.windows(4).any(|fact| fact == &two[..4]))),
            GlueTask::StsB => {
                let meanings = |words: &[&str]| FIVE_PLACES.map(|table| words.iter().find_map(|word| index_of(table, word)).unwrap().0);
                Label::Score(meanings(&one).iter().zip(meanings(&two)).filter(|(a, b)| **a == *b).count() as f32)
            }
            other => panic!("{other} is not generated"),
        }
    }

    #[test]
    fn every_label_follows_from_the_sentences_alone() {
        for task in GENERATED {
            let data = data(task);
            for example in data.train.iter().chain(&data.dev[0].1) {
                assert_eq!(judge(task, &example.first, example.second.as_deref()), example.label, "{task}: {example:?}");
            }
        }
    }

    #[test]
    fn labels_are_balanced_in_every_split() {
        for task in GENERATED {
            let data = data(task);
            for examples in [&data.train, &data.dev[0].1] {
                let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
                for example in examples {
                    *counts.entry(number_of(example.label)).or_default() += 1;
                }
                let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
                assert!(most - least <= 1 && counts.len() == if task == GlueTask::StsB { 6 } else { 2 }, "{task}: {counts:?}");
            }
        }
    }

    #[test]
    fn the_same_key_gives_the_same_data_and_another_key_other_data() {
        for task in GENERATED {
            assert_eq!(data(task), data(task));
            assert_ne!(glue(task, &RandomKey::from_seed(2), Sizes::GLUE).unwrap().sha256, data(task).sha256);
            let small = glue(task, &RandomKey::from_seed(1), Sizes { train: 10, test: 100, ..Sizes::GLUE }).unwrap();
            assert_eq!(
                (small.dev, small.test),
                (data(task).dev, data(task).test),
                "sets for evaluation do not depend on the training size"
            );
        }
    }

    #[test]
    fn sizes_are_met_and_no_example_occurs_twice() {
        for task in GENERATED {
            let data = data(task);
            assert_eq!((data.train.len(), data.dev[0].1.len(), data.test[0].1.len()), (4_000, 400, 100));
            let labelled = data.train.iter().chain(&data.dev[0].1).map(|example| (&example.first, &example.second));
            let all: BTreeSet<_> = labelled.chain(data.test[0].1.iter().map(|example| (&example.first, &example.second))).collect();
            assert_eq!(all.len(), 4_500, "{task}");
            assert!(data.train.iter().all(|example| example.second.is_some() == (task.sentence_columns().len() == 2)));
        }
    }

    /// Accuracy on the development set of naive Bayes over the words of each sentence.
    fn naive_bayes(data: &GlueData) -> f64 {
        let features = |example: &Example| -> Vec<String> {
            let second = example.second.as_deref().unwrap_or_default();
            example.first.split(' ').map(|word| format!("1 {word}")).chain(second.split(' ').map(|word| format!("2 {word}"))).collect()
        };
        let mut counts: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        let mut totals = [0.0; 2];
        for example in &data.train {
            for feature in features(example) {
                counts.entry(feature).or_insert([1.0; 2])[number_of(example.label)] += 1.0;
                totals[number_of(example.label)] += 1.0;
            }
        }
        let dev = &data.dev[0].1;
        let right = dev.iter().filter(|example| {
            let known = features(example).into_iter().filter_map(|feature| counts.get(&feature).copied());
            let odds: f64 = known.map(|[zero, one]| (one / totals[1]).ln() - (zero / totals[0]).ln()).sum();
            usize::from(odds > 0.0) == number_of(example.label)
        });
        right.count() as f64 / dev.len() as f64
    }

    #[test]
    fn counting_words_does_not_solve_the_structural_tasks() {
        for task in [GlueTask::Cola, GlueTask::Sst2, GlueTask::Mrpc, GlueTask::Rte] {
            let accuracy = naive_bayes(&data(task));
            assert!(accuracy < 0.75, "{task}: {accuracy}");
        }
    }

    #[test]
    fn the_baseline_that_counts_words_solves_a_task_of_words() {
        let mut data = data(GlueTask::Sst2);
        let relabel = |example: &mut Example| {
            let positive = words(&example.first).iter().any(|word| POSITIVE.contains(word));
            example.label = Label::Class(usize::from(positive));
        };
        data.train.iter_mut().for_each(relabel);
        data.dev[0].1.iter_mut().for_each(relabel);
        assert!(naive_bayes(&data) > 0.99, "or else the test above shows nothing");
    }

    #[test]
    fn the_deciding_words_stand_at_varying_distance() {
        let cola = data(GlueTask::Cola);
        let verb = |example: &Example| words(&example.first).iter().position(|word| ["is", "was", "are", "were"].contains(word)).unwrap();
        let distances: BTreeSet<usize> = cola.train.iter().map(|example| verb(example) - 1).collect();
        assert!(distances.len() >= 6 && distances.contains(&1), "{distances:?}");
        let sst2 = data(GlueTask::Sst2);
        let opinions = sst2
            .train
            .iter()
            .map(|example| words(&example.first).iter().position(|word| POSITIVE.contains(word) || NEGATIVE.contains(word)));
        assert!(opinions.collect::<BTreeSet<_>>().len() >= 6);
    }

    #[test]
    fn a_task_without_generator_is_an_error_that_names_those_with_one() {
        refused(glue(GlueTask::Mnli, &RandomKey::from_seed(1), Sizes::GLUE), &["MNLI", "CoLA, SST-2, MRPC, RTE, STS-B"]);
    }

    #[test]
    fn more_examples_than_there_are_is_an_error() {
        let draw = |rng: &mut ChaCha8Rng, label: usize| (format!("{label} {}", rng.random_range(0..3)), None);
        let rng = || RandomKey::from_seed(1).rng();
        assert_eq!(split(GlueTask::Cola, "train", 6, rng(), &mut Seen::default(), draw).unwrap().len(), 6);
        let error = split(GlueTask::Cola, "train", 7, rng(), &mut Seen::default(), draw).unwrap_err();
        assert!(matches!(error, DataError::TooManyWanted { found: 6, wanted: 7, .. }), "{error}");
    }
}
