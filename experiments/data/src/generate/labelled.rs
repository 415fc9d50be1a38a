//! Artificial reports of four classes, told by content in more than one place.
//!
//! A report has a sentence with a topic (`people discussed the match .`), one with the nationality of somebody (`the french writer spoke today .`), one with a
//! town (`it happened in rome .`) and up to three others, in any order. A topic word of sport or business decides the class. Any other topic word leaves it to
//! the two remaining sentences: `home` if the town lies in the country of the nationality, else `world`. Every report has all three sentences, so that
//! nothing but these words tells the classes apart, and each nationality and each town is as frequent in `home` as in `world`. Counting words therefore ends at
//! an accuracy of 3/4; for the rest, a nationality and a town that stand 5 to 40 words apart must be compared. The vocabulary has about 100 words.

use heedful_random::RandomKey;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Seen, Sizes, pick};
use crate::files::sha256_of_lines;
use crate::{DataError, LabelledText, LabelledTexts};

/// Names of the classes.
pub const CLASSES: [&str; 4] = ["sport", "business", "home", "world"];

const SPORT: usize = 0;
const BUSINESS: usize = 1;
const HOME: usize = 2;

/// Nationality and town of each country. More countries make the comparison longer to learn.
const COUNTRIES: [[&str; 2]; 6] =
    [["french", "paris"], ["german", "berlin"], ["italian", "rome"], ["spanish", "madrid"], ["greek", "athens"], ["polish", "warsaw"]];
const PEOPLE: [&str; 8] = ["minister", "writer", "judge", "doctor", "mayor", "actor", "teacher", "painter"];
const DEEDS: [&str; 6] = ["spoke", "waited", "smiled", "arrived", "slept", "sang"];
const TIMES: [&str; 6] = ["today", "yesterday", "at noon", "last night", "this week", "on monday"];
const CROWDS: [&str; 4] = ["people", "many", "all", "some"];
const TALKS: [&str; 4] = ["discussed", "remembered", "praised", "expected"];
/// Topic words of sport, of business, and of neither.
const TOPICS: [[&str; 8]; 3] = [
    ["match", "league", "goal", "trophy", "race", "coach", "striker", "referee"],
    ["market", "merger", "profit", "shares", "loan", "tariff", "dividend", "factory"],
    ["bridge", "library", "storm", "museum", "school", "park", "festival", "road"],
];
const EVENTS: [&str; 4] = ["it happened", "the talks were held", "a meeting took place", "the story began"];
const SCENERY: [&str; 6] = ["sky", "crowd", "street", "evening", "hall", "weather"];
const QUALITIES: [&str; 6] = ["grey", "quiet", "warm", "long", "full", "bright"];

/// Generates `sizes` reports; all differ, and the classes are equally frequent in every split, up to one report.
///
/// # Errors
/// [`DataError::TooManyWanted`] if there are not enough different reports.
pub fn labelled(key: &RandomKey, sizes: Sizes) -> Result<LabelledTexts, DataError> {
    let key = key.named("labelled");
    let mut seen = Seen::default();
    let mut split = |name: &str, size: usize| {
        let mut rng = key.named(name).rng();
        let mut texts = seen.distinct(&format!("{name} reports"), size, |index| {
            let class = index % CLASSES.len();
            let text = report(&mut rng, class);
            (text.clone(), LabelledText { text, class })
        })?;
        texts.shuffle(&mut rng);
        Ok(texts)
    };
    let test = split("test", sizes.test)?;
    let dev = split("dev", sizes.valid)?;
    let train = split("train", sizes.train)?;
    let sha256 = sha256_of_lines([&train, &dev, &test].into_iter().flatten().map(|text| format!("{}\t{}", text.class, text.text)));
    Ok(LabelledTexts {
        name: "built-in reports".to_owned(),
        classes: CLASSES.map(str::to_owned).to_vec(),
        train,
        dev,
        test,
        split: "generated: no report is in two splits".to_owned(),
        sha256,
    })
}

fn report(rng: &mut ChaCha8Rng, class: usize) -> String {
    let topics = &TOPICS[class.min(HOME)];
    let is_home = if matches!(class, SPORT | BUSINESS) { rng.random() } else { class == HOME };
    let country = rng.random_range(0..COUNTRIES.len());
    let other = (country + rng.random_range(1..COUNTRIES.len())) % COUNTRIES.len();
    let [nationality, _] = COUNTRIES[country];
    let [_, town] = COUNTRIES[if is_home { country } else { other }];
    let mut sentences = vec![
        format!("the {nationality} {} {}", pick(rng, &PEOPLE), pick(rng, &DEEDS)),
        format!("{} {} the {}", pick(rng, &CROWDS), pick(rng, &TALKS), pick(rng, topics)),
        format!("{} in {town}", pick(rng, &EVENTS)),
    ];
    for _ in 0..rng.random_range(0..4) {
        sentences.push(format!("the {} was {}", pick(rng, &SCENERY), pick(rng, &QUALITIES)));
    }
    sentences.shuffle(rng);
    let ended = |sentence: String| if rng.random() { format!("{sentence} {} .", pick(rng, &TIMES)) } else { format!("{sentence} .") };
    sentences.into_iter().map(ended).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn data() -> LabelledTexts {
        labelled(&RandomKey::from_seed(1), Sizes::LABELLED).unwrap()
    }

    /// Places of nationality and town with their countries, and the kind of topic.
    fn found(text: &str) -> ([(usize, usize); 2], usize) {
        let words: Vec<&str> = text.split(' ').collect();
        let country = |side: usize| {
            let of = |word: &str| COUNTRIES.iter().position(|country| country[side] == word);
            let found: Vec<_> = words.iter().enumerate().filter_map(|(at, word)| Some((at, of(word)?))).collect();
            assert_eq!(found.len(), 1, "{text}");
            found[0]
        };
        let topics: Vec<_> = words.iter().filter_map(|word| TOPICS.iter().position(|topics| topics.contains(word))).collect();
        assert_eq!(topics.len(), 1, "{text}");
        ([country(0), country(1)], topics[0])
    }

    fn class(text: &str) -> usize {
        match found(text) {
            ([(_, one), (_, other)], HOME) => HOME + usize::from(one != other),
            (_, topic) => topic,
        }
    }

    #[test]
    fn every_class_follows_from_topic_nationality_and_town() {
        let data = data();
        for text in [&data.train, &data.dev, &data.test].into_iter().flatten() {
            assert_eq!(class(&text.text), text.class, "{}", text.text);
        }
    }

    #[test]
    fn the_words_to_compare_stand_at_varying_distance() {
        let distances: BTreeSet<usize> =
            data().train.iter().map(|text| found(&text.text).0).map(|[(a, _), (b, _)]| a.abs_diff(b)).collect();
        assert!(distances.len() >= 25 && distances.contains(&5) && distances.last() >= Some(&30), "{distances:?}");
    }

    #[test]
    fn classes_are_balanced_and_no_report_occurs_twice() {
        let data = data();
        for texts in [&data.train, &data.dev, &data.test] {
            let counts = CLASSES.map(|class| texts.iter().filter(|text| data.classes[text.class] == class).count());
            assert!(counts.iter().all(|count| *count == texts.len() / 4), "{counts:?}");
        }
        let all: BTreeSet<&str> = [&data.train, &data.dev, &data.test].into_iter().flatten().map(|text| text.text.as_str()).collect();
        assert_eq!(all.len(), 8_800);
    }

    #[test]
    fn the_same_key_gives_the_same_reports_and_evaluation_does_not_depend_on_the_training_size() {
        assert_eq!(data(), data());
        assert_ne!(labelled(&RandomKey::from_seed(2), Sizes::LABELLED).unwrap().sha256, data().sha256);
        let small = labelled(&RandomKey::from_seed(1), Sizes { train: 10, ..Sizes::LABELLED }).unwrap();
        assert_eq!((small.dev, small.test), (data().dev, data().test));
    }

    /// Accuracy on the development set of naive Bayes over the words.
    fn naive_bayes(data: &LabelledTexts) -> f64 {
        let mut counts: BTreeMap<&str, [f64; 4]> = BTreeMap::new();
        let mut totals = [0.0; 4];
        for text in &data.train {
            for word in text.text.split(' ') {
                counts.entry(word).or_insert([1.0; 4])[text.class] += 1.0;
                totals[text.class] += 1.0;
            }
        }
        let right = data.dev.iter().filter(|text| {
            let known: Vec<_> = text.text.split(' ').filter_map(|word| counts.get(word)).collect();
            let score = |class: usize| known.iter().map(|counts| (counts[class] / totals[class]).ln()).sum::<f64>();
            let occurring = (0..4).filter(|class| totals[*class] > 0.0);
            occurring.max_by(|a, b| score(*a).total_cmp(&score(*b))) == Some(text.class)
        });
        right.count() as f64 / data.dev.len() as f64
    }

    #[test]
    fn counting_words_solves_the_classes_of_a_topic_and_no_more() {
        let mut data = data();
        let accuracy = naive_bayes(&data);
        assert!((0.68..0.82).contains(&accuracy), "{accuracy}");
        let by_topic = |text: &mut LabelledText| text.class = text.class.min(HOME);
        data.train.iter_mut().chain(&mut data.dev).for_each(by_topic);
        assert!(naive_bayes(&data) > 0.99);
    }

    #[test]
    fn more_reports_than_there_are_is_an_error() {
        let error = Seen::default().distinct("reports", 7, |index| ((index % 6).to_string(), index)).unwrap_err();
        assert!(matches!(error, DataError::TooManyWanted { found: 6, wanted: 7, .. }), "{error}");
    }
}
