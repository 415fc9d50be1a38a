//! Marks around spans of a text, for the tasks that ask about a word in it.

use std::cmp::Reverse;
use std::ops::Range;

/// A span in bytes and the mark to put on both sides of it.
pub(super) type Span = (Range<usize>, char);

/// `text` with every span between two marks. A mark is a word of its own: white space is added where there is none.
///
/// Spans lie on the borders of characters; they may touch, hold and cross each other.
pub(super) fn marked(text: &str, spans: &[Span]) -> String {
    // At one place the marks of inner spans stand inside, and what ends there comes before what begins.
    let mut marks: Vec<_> = spans.iter().map(|(span, mark)| (span.end, false, Reverse(span.start), *mark)).collect();
    marks.extend(spans.iter().map(|(span, mark)| (span.start, true, Reverse(span.end), *mark)));
    marks.sort();
    let mut out = String::with_capacity(text.len() + 4 * marks.len());
    let mut done = 0;
    for (at, _, _, mark) in marks {
        push_apart(&mut out, &text[done..at]);
        push_apart(&mut out, mark.encode_utf8(&mut [0; 4]));
        done = at;
    }
    push_apart(&mut out, &text[done..]);
    out
}

/// Appends `piece` with white space before it.
fn push_apart(out: &mut String, piece: &str) {
    let joins =
        out.chars().next_back().is_some_and(|last| !last.is_whitespace()) && piece.starts_with(|first: char| !first.is_whitespace());
    if joins {
        out.push(' ');
    }
    out.push_str(piece);
}

/// Byte ranges of the words between white space.
pub(super) fn words(text: &str) -> Vec<Range<usize>> {
    let mut next = 0;
    let word = |piece: &str| {
        let start = next;
        next += piece.len();
        let word = piece.trim_end();
        (!word.is_empty()).then(|| start..start + word.len())
    };
    text.split_inclusive(char::is_whitespace).filter_map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, spans: &[(&str, char)]) -> String {
        let span = |&(part, mark): &(&str, char)| text.find(part).map(|start| (start..start + part.len(), mark)).unwrap();
        marked(text, &spans.iter().map(span).collect::<Vec<_>>())
    }

    #[test]
    fn a_mark_is_a_word_of_its_own() {
        assert_eq!(of("A real class.", &[("class", '*')]), "A real * class * .");
        assert_eq!(of("class", &[("class", '*')]), "* class *");
        assert_eq!(of("Mark told Pete.", &[("Pete", '#'), ("Mark", '*')]), "* Mark * told # Pete # .");
        assert_eq!(of("reöpen", &[("öp", '*')]), "re * öp * en");
        assert_eq!(of("a\tb  c", &[("b", '*')]), "a\t* b *  c", "white space that is there stays");
    }

    #[test]
    fn spans_may_hold_and_touch_each_other() {
        assert_eq!(of("his dog ran", &[("his", '#'), ("his dog", '*')]), "* # his # dog * ran");
        assert_eq!(of("see his dog", &[("his dog", '*'), ("dog", '#')]), "see * his # dog # *");
        assert_eq!(of("ab", &[("a", '*'), ("b", '#')]), "* a * # b #");
    }

    #[test]
    fn words_are_what_stands_between_white_space() {
        let text = " a  bä\u{2003}c\n";
        assert_eq!(words(text).into_iter().map(|word| &text[word]).collect::<Vec<_>>(), ["a", "bä", "c"]);
        assert!(words(" \t").is_empty() && words("").is_empty());
    }
}
