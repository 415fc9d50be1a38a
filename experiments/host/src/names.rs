//! Names that were listed, and names that were mistyped.

use crate::exit::ProgramError;

/// Splits a text at the commas that stand in no list and no table, and trims the parts.
pub fn listed(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// The known name that `name` was most likely meant to be, or none if none is near.
///
/// Nearness counts edits (Damerau-Levenshtein, relative to length); the order of the words of a hyphenated name does not matter, and a name that
/// consists of some of the words of exactly one known name is taken for it. Of equally near names the first wins.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR: f64 = 0.6;
    let known: Vec<&str> = known.into_iter().collect();
    let name = name.to_lowercase();
    let similarity = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        let direct = strsim::normalized_damerau_levenshtein(&name, &candidate);
        direct.max(strsim::normalized_damerau_levenshtein(&words(&name).join(" "), &words(&candidate).join(" ")))
    };
    let mut best: Option<(&str, f64)> = None;
    for candidate in &known {
        let near = similarity(candidate);
        if near >= NEAR && best.is_none_or(|(_, so_far)| near > so_far) {
            best = Some((candidate, near));
        }
    }
    best.map(|(candidate, _)| candidate).or_else(|| {
        let parts = words(&name);
        let mut containing = known.iter().filter(|candidate| {
            let candidate = candidate.to_lowercase();
            let whole = words(&candidate);
            !parts.is_empty() && parts.iter().all(|part| whole.contains(part))
        });
        containing.next().copied().filter(|_| containing.next().is_none())
    })
}

/// ``; did you mean `NAME`?`` with the [nearest] known name, to be appended to an error; nothing if none is near.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// The words of a hyphenated or underscored name in alphabetical order.
fn words(name: &str) -> Vec<&str> {
    let mut words: Vec<&str> = name.split(['-', '_', ' ']).filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words
}

/// The usage error for an unknown name: ``unknown attention `x`; did you mean `y`? (--list shows all)``.
pub fn unknown(what: &str, name: &str, known: &[&str], remedy: &str) -> ProgramError {
    ProgramError::usage(format!("unknown {what} `{name}`{} ({remedy})", suggestion(name, known.iter().copied())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MECHANISMS: [&str; 5] = ["dot-product", "synthesizer-dense", "synthesizer-random", "synthesizer-factorized-random", "gaussian"];

    #[test]
    fn suggestions_bear_with_typing_errors_word_order_and_missing_words() {
        let near = |name| nearest(name, MECHANISMS);
        assert_eq!(near("sythesizer-random"), Some("synthesizer-random"));
        assert_eq!(near("random-synthesizer"), Some("synthesizer-random"));
        assert_eq!(near("Synthesizer_Dense"), Some("synthesizer-dense"));
        assert_eq!(near("gausian"), Some("gaussian"));
        assert_eq!(near("dotproduct"), Some("dot-product"));
        assert_eq!(near("factorized"), Some("synthesizer-factorized-random"));
        assert_eq!(near("reformer"), None);
        assert_eq!(near("random"), None, "two mechanisms have the word");
        assert_eq!(near(""), None);
        assert_eq!(nearest("block-3", ["block-1", "block-2"]), Some("block-1"), "of equally near names the first");
    }
}
