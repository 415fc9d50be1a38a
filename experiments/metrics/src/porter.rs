//! Porter's stemmer in the variant of NLTK, by which the stemming option of ROUGE and the second stage of METEOR are defined.
//!
//! The idea: strip English suffixes in five steps, each only from a stem that is long enough. The length of a stem is its measure `m`, how often a
//! vowel is followed by a consonant in it; a `y` is a vowel after a consonant and a consonant elsewhere.
//!
//! Sources: Porter, "An algorithm for suffix stripping" (Program 14, 1980), whose step numbers the functions carry; NLTK's `PorterStemmer` in its
//! default mode (`NLTK_EXTENSIONS`) for the irregular forms and the rules that are marked as NLTK's. Porter's later algorithm for English ("Porter2",
//! Snowball's `english`) gives other stems and is not covered.

/// Words whose stem is looked up instead of computed; NLTK's.
const IRREGULAR: [(&str, &str); 16] = [
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("innings", "inning"),
    ("inning", "inning"),
    ("outings", "outing"),
    ("outing", "outing"),
    ("cannings", "canning"),
    ("canning", "canning"),
    ("howe", "howe"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

/// The stem of `word`, which is in lower case; whatever is no ASCII letter is a consonant.
pub(super) fn stem(word: &str) -> String {
    const STEPS: [fn(String) -> String; 8] = [step_1a, step_1b, step_1c, step_2, step_3, step_4, step_5a, step_5b];
    if let Some((_, stem)) = IRREGULAR.iter().find(|(form, _)| *form == word) {
        return (*stem).to_owned();
    }
    // Too short to have a suffix; Porter's own programs leave such words alone too.
    if letters(word) <= 2 { word.to_owned() } else { STEPS.iter().fold(word.to_owned(), |word, step| step(word)) }
}

/// Plurals.
fn step_1a(word: String) -> String {
    // NLTK's rule: "dies" becomes "die", while "flies" becomes "fli".
    if letters(&word) == 4 && word.ends_with("ies") {
        return replace(word, &[("s", "")], |_| true);
    }
    replace(word, &[("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")], |_| true)
}

/// Past tense and participles.
fn step_1b(word: String) -> String {
    // NLTK's rule: "died" becomes "die", while "spied" becomes "spi".
    if word.ends_with("ied") {
        let replacement = if letters(&word) == 4 { "ie" } else { "i" };
        return replace(word, &[("ied", replacement)], |_| true);
    }
    if word.ends_with("eed") {
        return replace(word, &[("eed", "ee")], |stem| measure(stem) > 0);
    }
    let stem = word.strip_suffix("ed").or_else(|| word.strip_suffix("ing"));
    let Some(stem) = stem.filter(|stem| consonants(stem).contains(&false)) else { return word };
    if ["at", "bl", "iz"].iter().any(|ending| stem.ends_with(ending)) || (measure(stem) == 1 && ends_in_short_syllable(stem)) {
        return format!("{stem}e");
    }
    let mut stem = stem.to_owned();
    if ends_in_double_consonant(&stem) && !stem.ends_with(['l', 's', 'z']) {
        stem.pop();
    }
    stem
}

/// The letter y at the end. NLTK's condition: it follows a consonant that is not the first letter.
fn step_1c(word: String) -> String {
    replace(word, &[("y", "i")], |stem| letters(stem) > 1 && consonants(stem).ends_with(&[true]))
}

/// Double suffixes.
fn step_2(word: String) -> String {
    // NLTK's rule: what is left of "rationally" can still lose another suffix.
    if let Some(stem) = word.strip_suffix("alli").filter(|stem| measure(stem) > 0) {
        return step_2(format!("{stem}al"));
    }
    // NLTK's rule: the l belongs to the stem here, so that "geology" is treated as "archaeology".
    if word.ends_with("logi") {
        return replace(word, &[("ogi", "og")], |stem| measure(stem) > 0);
    }
    let rules = [
        ("ational", "ate"),
        ("tional", "tion"),
        ("enci", "ence"),
        ("anci", "ance"),
        ("izer", "ize"),
        ("bli", "ble"),
        ("alli", "al"),
        ("entli", "ent"),
        ("eli", "e"),
        ("ousli", "ous"),
        ("ization", "ize"),
        ("ation", "ate"),
        ("ator", "ate"),
        ("alism", "al"),
        ("iveness", "ive"),
        ("fulness", "ful"),
        ("ousness", "ous"),
        ("aliti", "al"),
        ("iviti", "ive"),
        ("biliti", "ble"),
        ("fulli", "ful"),
    ];
    replace(word, &rules, |stem| measure(stem) > 0)
}

/// Suffixes such as -icate, -ful and -ness.
fn step_3(word: String) -> String {
    let rules = [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];
    replace(word, &rules, |stem| measure(stem) > 0)
}

/// Suffixes such as -ance and -ible.
fn step_4(word: String) -> String {
    if word.ends_with("ion") {
        return replace(word, &[("ion", "")], |stem| measure(stem) > 1 && stem.ends_with(['s', 't']));
    }
    let suffixes =
        ["al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism", "ate", "iti", "ous", "ive", "ize"];
    replace(word, &suffixes.map(|suffix| (suffix, "")), |stem| measure(stem) > 1)
}

/// The letter e at the end.
fn step_5a(word: String) -> String {
    replace(word, &[("e", "")], |stem| match measure(stem) {
        0 => false,
        1 => !ends_in_short_syllable(stem),
        _ => true,
    })
}

/// A double l at the end.
fn step_5b(word: String) -> String {
    // The first l belongs to the stem that is measured.
    if word.ends_with("ll") { replace(word, &[("l", "")], |stem| measure(stem) > 1) } else { word }
}

/// Exchanges the first suffix of `rules` that `word` ends with, if the condition holds for what is before it; no further rule is tried then.
fn replace(word: String, rules: &[(&str, &str)], condition: impl Fn(&str) -> bool) -> String {
    for (suffix, replacement) in rules {
        if let Some(stem) = word.strip_suffix(suffix) {
            return if condition(stem) { format!("{stem}{replacement}") } else { word };
        }
    }
    word
}

fn letters(word: &str) -> usize {
    word.chars().count()
}

/// For each letter whether it is a consonant.
fn consonants(stem: &str) -> Vec<bool> {
    let mut consonants: Vec<bool> = Vec::with_capacity(stem.len());
    for letter in stem.chars() {
        consonants.push(match letter {
            'a' | 'e' | 'i' | 'o' | 'u' => false,
            'y' => consonants.last() != Some(&true),
            _ => true,
        });
    }
    consonants
}

/// Porter's `m`.
fn measure(stem: &str) -> usize {
    consonants(stem).windows(2).filter(|pair| pair == &[false, true]).count()
}

/// Porter's condition `*d`.
fn ends_in_double_consonant(stem: &str) -> bool {
    let mut letters = stem.chars().rev();
    let last = letters.next();
    last.is_some() && letters.next() == last && consonants(stem).ends_with(&[true])
}

/// Porter's condition `*o`, and NLTK's addition to it: the whole stem is a vowel and a consonant.
fn ends_in_short_syllable(stem: &str) -> bool {
    let consonants = consonants(stem);
    consonants == [false, true] || (consonants.ends_with(&[true, false, true]) && !stem.ends_with(['w', 'x', 'y']))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::fixtures::load;
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        word: String,
        stem: String,
    }

    #[test]
    fn stems_are_those_of_nltk() {
        let cases: Vec<Case> = load("stems");
        assert!(cases.len() > 500);
        for Case { word, stem: expected } in cases {
            assert_eq!(stem(&word), expected, "{word}");
        }
    }

    #[test]
    fn any_text_has_a_stem() {
        for word in ["", "s", "é", "éed", "naïveté", "猫猫ing", "a\u{90000}ed", "ing", "ied", "ies", "yyyy", "alli", "*ded"] {
            stem(word);
        }
    }
}
