//! Translation word by word with the lexicon of IBM model 1.
//!
//! Brown et al., "The mathematics of statistical machine translation" (1993), section 4.2: each target word comes from one source word, or from none, and any is as
//! likely as any other to be it. Expectation-maximisation finds `t(target | source)`; it has one optimum, so that it can begin anywhere. A source word then
//! becomes its likeliest target word, in its place; one that was never seen stays as it is.

use std::collections::HashMap;

use heedful_host::interrupt::Interrupt;

/// Rounds of expectation-maximisation; more change the lexicon little.
pub const ROUNDS: usize = 5;
/// Pairs of a source and a target word of one sentence are read up to this number: each takes up to 20 bytes.
pub const MOST_WORD_PAIRS: usize = 20_000_000;
/// The source word of target words that come from none.
const NONE: u32 = 0;

/// The likeliest target word of each source word.
#[derive(Clone, Debug)]
pub struct Lexicon {
    words: HashMap<String, String>,
    /// Sentence pairs that it was learnt from.
    pub pairs: usize,
}

/// Numbers for words.
#[derive(Default)]
struct Numbers {
    of: HashMap<String, u32>,
    words: Vec<String>,
}

impl Numbers {
    fn of(&mut self, word: &str) -> u32 {
        if let Some(&number) = self.of.get(word) {
            return number;
        }
        let number = self.words.len() as u32;
        self.of.insert(word.to_owned(), number);
        self.words.push(word.to_owned());
        number
    }
}

impl Lexicon {
    /// Learns from sentence pairs that are cut into words, as many of the first as have [`MOST_WORD_PAIRS`]; `None` if the interrupt was raised meanwhile.
    pub fn learn<'w, W: AsRef<str> + 'w>(pairs: impl Iterator<Item = (Vec<W>, Vec<W>)>, interrupt: &Interrupt) -> Option<Self> {
        let (mut sources, mut targets) = (Numbers::default(), Numbers::default());
        sources.of("");
        let (mut sentences, mut together) = (Vec::new(), 0);
        for (source, target) in pairs {
            let source: Vec<u32> = std::iter::once(NONE).chain(source.iter().map(|word| sources.of(word.as_ref()))).collect();
            let target: Vec<u32> = target.iter().map(|word| targets.of(word.as_ref())).collect();
            together += source.len() * target.len();
            if together > MOST_WORD_PAIRS {
                break;
            }
            sentences.push((source, target));
        }
        let table = Table::learn(&sentences, sources.words.len(), interrupt)?;
        let likeliest = |(number, word): (usize, &String)| Some((word.clone(), targets.words[table.likeliest(number)? as usize].clone()));
        let words = sources.words.iter().enumerate().skip(1).filter_map(likeliest).collect();
        Some(Self { words, pairs: sentences.len() })
    }

    /// The words of a sentence, each translated.
    pub fn translate<'w>(&'w self, source: &[&'w str]) -> Vec<&'w str> {
        source.iter().map(|&word| self.words.get(word).map_or(word, String::as_str)).collect()
    }
}

/// `t(target | source)` of all words that occur together.
struct Table {
    /// Where the target words of each source word begin.
    begins: Vec<usize>,
    targets: Vec<u32>,
    probabilities: Vec<f64>,
}

impl Table {
    fn learn(sentences: &[(Vec<u32>, Vec<u32>)], sources: usize, interrupt: &Interrupt) -> Option<Self> {
        let of_sentence = |(source, target): &(Vec<u32>, Vec<u32>)| -> Vec<(u32, u32)> {
            source.iter().flat_map(|&source| target.iter().map(move |&target| (source, target))).collect()
        };
        let mut together: Vec<(u32, u32)> = sentences.iter().flat_map(of_sentence).collect();
        together.sort_unstable();
        together.dedup();
        let begins: Vec<usize> = (0..=sources).map(|source| together.partition_point(|pair| (pair.0 as usize) < source)).collect();
        let targets: Vec<u32> = together.into_iter().map(|(_, target)| target).collect();
        let mut table = Self { probabilities: vec![1.0; targets.len()], begins, targets };
        for _ in 0..ROUNDS {
            if interrupt.is_raised() {
                return None;
            }
            table.probabilities = table.expected(sentences);
            for bounds in table.begins.windows(2) {
                let of_source = &mut table.probabilities[bounds[0]..bounds[1]];
                let sum: f64 = of_source.iter().sum();
                of_source.iter_mut().for_each(|probability| *probability /= sum);
            }
        }
        Some(table)
    }

    /// How often each target word is expected to come from each source word.
    fn expected(&self, sentences: &[(Vec<u32>, Vec<u32>)]) -> Vec<f64> {
        let mut counts = vec![0.0; self.targets.len()];
        let mut places = Vec::new();
        for (source, target) in sentences {
            for &target in target {
                places.clear();
                places.extend(source.iter().map(|&source| self.place(source as usize, target)));
                let sum: f64 = places.iter().map(|&place| self.probabilities[place]).sum();
                places.iter().for_each(|&place| counts[place] += self.probabilities[place] / sum);
            }
        }
        counts
    }

    fn place(&self, source: usize, target: u32) -> usize {
        let begin = self.begins[source];
        begin + self.targets[begin..self.begins[source + 1]].binary_search(&target).expect("the words occur together")
    }

    /// The likeliest target word of a source word, the first of equals; `None` if there is none.
    fn likeliest(&self, source: usize) -> Option<u32> {
        let places = self.begins[source]..self.begins[source + 1];
        let better = |best: usize, place: usize| if self.probabilities[place] > self.probabilities[best] { place } else { best };
        places.reduce(better).map(|place| self.targets[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        text.split(' ').collect()
    }

    const PAIRS: [(&str, &str); 5] = [
        ("das Haus", "the house"),
        ("das Buch", "the book"),
        ("ein Buch", "a book"),
        ("das Haus ist klein", "the house is small"),
        ("ein Haus brennt nicht", "a house is not burning"),
    ];

    #[test]
    fn a_lexicon_is_learnt_from_pairs_without_alignments_and_keeps_unknown_words() {
        let pairs = PAIRS.into_iter().map(|(source, target)| (words(source), words(target)));
        let lexicon = Lexicon::learn(pairs, &Interrupt::new()).unwrap();
        assert_eq!(lexicon.pairs, 5);
        assert_eq!(lexicon.translate(&words("ein Haus das Buch Xylophon")).join(" "), "a house the book Xylophon");
    }

    #[test]
    fn probabilities_are_those_of_an_independent_program() {
        let (mut sources, mut targets) = (Numbers::default(), Numbers::default());
        sources.of("");
        let mut number = |(source, target): (&str, &str)| {
            let source: Vec<u32> = std::iter::once(NONE).chain(source.split(' ').map(|word| sources.of(word))).collect();
            (source, target.split(' ').map(|word| targets.of(word)).collect::<Vec<_>>())
        };
        let sentences: Vec<_> = PAIRS.into_iter().map(&mut number).collect();
        let table = Table::learn(&sentences, sources.words.len(), &Interrupt::new()).unwrap();
        // By dictionaries of a Python program, after five rounds from equal probabilities.
        let expected = [
            ("das", "the", 0.8556632491093032),
            ("Haus", "house", 0.6921213298065724),
            ("", "is", 0.10070351047973618),
            ("nicht", "burning", 0.32973148348848513),
            ("klein", "small", 0.49425479815626144),
        ];
        for (source, target, expected) in expected {
            let found = table.probabilities[table.place(sources.of(source) as usize, targets.of(target))];
            assert!((found - expected).abs() < 1e-12, "{source} {target}: {found}");
        }
        let sum: f64 = table.probabilities[table.begins[1]..table.begins[2]].iter().sum();
        assert!((sum - 1.0).abs() < 1e-12);
    }
}
