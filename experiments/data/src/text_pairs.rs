//! Pairs of source and target text for what is generated other than translations: replies ([`super::dialogue`]) and summaries ([`super::summary`]).

use super::DataError;
use super::files::TextFile;
use super::parallel::{Pair, ParallelCorpus, SkippedPairs};

/// Pairs, and how their splits came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPairs {
    /// The pairs; the two "languages" name their sides, such as `document` and `summary`.
    pub corpus: ParallelCorpus,
    /// How the splits came about, in words.
    pub split: String,
}

/// A pair and the line, from 1, that it comes from.
pub(super) type LinePair = (usize, Pair);

/// The pairs with text on both sides; those without go to `skipped`.
pub(super) fn usable(file: &TextFile, pairs: Vec<LinePair>, skipped: &mut Vec<SkippedPairs>) -> Result<Vec<Pair>, DataError> {
    let (kept, empty): (Vec<LinePair>, Vec<LinePair>) = pairs.into_iter().partition(|(_, pair)| !pair.has_empty_side());
    if kept.is_empty() {
        return Err(DataError::empty(&file.path, "no pair that has text on both sides", "restore the original file"));
    }
    if let Some((first, _)) = empty.first() {
        tracing::warn!("{}: skipped {} pairs with an empty side, the first in line {first}", file.name, empty.len());
        let lines = empty.into_iter().map(|(line, _)| line).collect();
        skipped.push(SkippedPairs { source_file: file.name.clone(), target_file: file.name.clone(), lines });
    }
    Ok(without_lines(kept))
}

/// The pairs alone.
pub(super) fn without_lines(pairs: Vec<LinePair>) -> Vec<Pair> {
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

/// Takes the last tenth of `items` away. `what` names them in the error for fewer than ten.
pub(super) fn last_tenth<T>(file: &TextFile, what: &str, items: &mut Vec<T>) -> Result<Vec<T>, DataError> {
    if items.len() < 10 {
        return Err(DataError::empty(&file.path, format!("too few {what} to be divided ({})", items.len()), "use a longer file"));
    }
    Ok(items.split_off(items.len() - items.len() / 10))
}

/// Cuts `items` in their order into eight tenths for training, one for validation and one for the test.
pub(super) fn cut<T>(file: &TextFile, what: &str, mut items: Vec<T>) -> Result<[Vec<T>; 3], DataError> {
    let tenth = items.len() / 10;
    let test = last_tenth(file, what, &mut items)?;
    let valid = items.split_off(items.len() - tenth);
    Ok([items, valid, test])
}

#[cfg(test)]
pub(super) mod tests {
    use heedful_random::RandomKey;
    use rand::RngExt;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// `original` with up to eight random changes: bytes set, taken out, put in, copied elsewhere, or the end cut off; now and then random bytes alone.
    pub(crate) fn damaged(rng: &mut ChaCha8Rng, original: &[u8]) -> Vec<u8> {
        const TELLING: &[u8] = b"\n\t \"',:|\\0123<>/\r\xff\xc3";
        let any = |rng: &mut ChaCha8Rng| if rng.random() { TELLING[rng.random_range(0..TELLING.len())] } else { rng.random() };
        if rng.random_bool(0.1) {
            return (0..rng.random_range(0..200)).map(|_| any(rng)).collect();
        }
        let mut bytes = original.to_vec();
        for _ in 0..rng.random_range(1..=8) {
            let at = rng.random_range(0..=bytes.len());
            let end = (at + rng.random_range(0..20)).min(bytes.len());
            match rng.random_range(0..5) {
                0 if at < bytes.len() => bytes[at] = any(rng),
                1 => drop(bytes.drain(at..end)),
                2 => bytes.insert(at, any(rng)),
                3 => {
                    let piece = bytes[at..end].to_vec();
                    let place = rng.random_range(0..=bytes.len());
                    bytes.splice(place..place, piece);
                }
                4 if rng.random_bool(0.2) => bytes.truncate(at),
                _ => {}
            }
        }
        bytes
    }

    /// Reads damaged copies of `original`. Some of them are refused; of the others, what was read has, by `size`, at most `times` as many bytes as the copy.
    pub(crate) fn survives(original: &str, times: usize, size: impl Fn(&TextFile) -> Result<usize, DataError>) {
        let mut rng = RandomKey::from_seed(1).named("fuzz").rng();
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..3_000 {
            let bytes = damaged(&mut rng, original.as_bytes());
            let Ok(file) = TextFile::from_bytes("a".into(), "a".into(), &bytes) else { continue };
            match size(&file) {
                Ok(length) => {
                    accepted += 1;
                    assert!(length <= times * bytes.len(), "{length} bytes from {}", bytes.len());
                }
                Err(_) => refused += 1,
            }
        }
        assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
    }

    #[test]
    fn a_cut_keeps_every_item_in_order() {
        let file = TextFile::from_bytes("a".into(), "a".into(), b"").unwrap();
        for count in [10, 19, 1_000] {
            let parts = cut(&file, "lines", (0..count).collect()).unwrap();
            assert_eq!(parts.concat(), (0..count).collect::<Vec<_>>());
            assert_eq!(parts.map(|part| part.len()), [count - 2 * (count / 10), count / 10, count / 10]);
        }
        let error = cut(&file, "lines", vec![0; 9]).unwrap_err().to_string();
        assert!(error.contains("too few lines") && error.contains("(9)"), "{error}");
    }
}
