//! The weights of all heads of a module for one text, as pictures beside each other.

use std::io;

use super::canvas::{Anchor, Canvas, Style, TOKEN_SIZE, shortened, visible, width};
use super::colours::{HIDDEN, hexadecimal, stops};
use super::number;
use super::pixels::Pixels;
use crate::analyse::record::Observed;

/// The side of the picture of a head, in pixels; more if there are more tokens.
const SIDE: usize = 640;
/// Room for a line of labels.
const LINE: usize = 11;
/// The largest square of a weight.
const LARGEST_CELL: usize = 18;
/// Up to so many tokens each has its label.
const MOST_LABELLED: usize = 64;
/// Room for the longest label.
const LONGEST_LABEL: f64 = 96.0;
/// Width of the page that heads are to fit in.
const PAGE: f64 = 1500.0;
/// Room for the name of a head.
const LEAST_WIDTH: f64 = 56.0;
const MARGIN: f64 = 16.0;
const GAP: f64 = 20.0;

/// The pictures of a module and a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Map {
    /// With tokens, heads and scale.
    pub svg: String,
    /// Squares alone.
    pub png: Vec<u8>,
}

/// Draws weights or slot weights.
///
/// # Errors
/// If the picture is too large for a PNG file.
pub(super) fn draw(observed: &Observed, title: &str) -> io::Result<Map> {
    let columns = observed.columns();
    let cell = cell(observed.queries.len().max(columns.len()));
    let greatest = observed.values.iter().copied().fold(0.0, f32::max);
    let heads: Vec<Pixels> = observed.heads().map(|(_, weights)| Pixels::of_weights(weights, observed.width(), greatest, cell)).collect();
    let [head_width, head_height] = heads[0].size().map(|length| length as f64);

    let (rows, columns) = (labels(&observed.queries, cell), labels(&columns, cell));
    let (left, above) = (room(&rows), room(&columns));
    let step_right = head_width.max(LEAST_WIDTH) + GAP;
    let fitting = (((PAGE - left) / step_right) as usize).clamp(1, heads.len());
    // As many rows as needed, all about equally long.
    let beside = heads.len().div_ceil(heads.len().div_ceil(fitting));
    let range = format!("weights from 0 to {}", number(f64::from(greatest)));
    let png = Pixels::tiled(&heads, beside, 8).encoded(&format!("{title}; {range}"))?;

    let mut canvas = Canvas::default();
    canvas.text([MARGIN, 28.0], title, Style::title(16.0));
    canvas.text([MARGIN, 46.0], "A row is a query, a column is a key.", Style::plain(Anchor::Start, 11.0));
    scale(&mut canvas, [MARGIN, 56.0], f64::from(greatest));
    let step = cell as f64;
    let (mut right, mut top) = (MARGIN + width(title, 16.0).max(480.0), 100.0);
    for (row, line) in heads.chunks(beside).enumerate() {
        for (column, head) in line.iter().enumerate() {
            let [x, y] = [MARGIN + left + column as f64 * step_right, top + 18.0 + above];
            canvas.text([x, top + 11.0], &format!("head {}", row * beside + column), Style::title(12.0));
            for (at, label) in &columns {
                let middle = x + (*at as f64 + 0.5) * step;
                canvas.text([middle + 3.5, y - 4.0], label, Style { is_upright: true, ..Style::token(Anchor::Start) });
            }
            if column == 0 {
                for (at, label) in &rows {
                    canvas.text([x - 4.0, y + (*at as f64 + 0.5) * step + 3.5], label, Style::token(Anchor::End));
                }
            }
            canvas.pixels([x, y, head_width, head_height], &head.encoded("")?);
            canvas.frame([x, y, head_width, head_height]);
            right = right.max(x + head_width.max(LEAST_WIDTH));
        }
        top += 18.0 + above + head_height + GAP;
    }
    Ok(Map { svg: canvas.finish(&format!("{title}; {range}"), [right + MARGIN, top]), png })
}

/// The side of the square of a weight, in pixels.
fn cell(tokens: usize) -> usize {
    let least = if tokens <= MOST_LABELLED { LINE } else { 1 };
    (SIDE / tokens).clamp(least, LARGEST_CELL)
}

/// The labels that fit beside squares of a side of `cell`, with their places; thinned out, they begin with their number.
fn labels(tokens: &[String], cell: usize) -> Vec<(usize, String)> {
    let step = LINE.div_ceil(cell);
    let label = |(at, token): (usize, &String)| {
        let token = visible(token);
        let label = if step == 1 { token } else { format!("{at} {token}") };
        (at, shortened(&label, TOKEN_SIZE, LONGEST_LABEL))
    };
    tokens.iter().enumerate().step_by(step).map(label).collect()
}

fn room(labels: &[(usize, String)]) -> f64 {
    labels.iter().map(|(_, label)| width(label, TOKEN_SIZE)).fold(0.0, f64::max) + 8.0
}

/// The colours of weights from 0 to `greatest`, and that of hidden keys.
fn scale(canvas: &mut Canvas, [x, y]: [f64; 2], greatest: f64) {
    const LENGTH: f64 = 200.0;
    canvas.gradient([x, y, LENGTH, 12.0], &stops());
    for (part, anchor) in [(0.0, Anchor::Start), (0.5, Anchor::Middle), (1.0, Anchor::End)] {
        canvas.text([x + part * LENGTH, y + 24.0], &number(part * greatest), Style::plain(anchor, 10.0));
    }
    canvas.rectangle([x + LENGTH + 24.0, y, 12.0, 12.0], &hexadecimal(HIDDEN));
    canvas.text([x + LENGTH + 42.0, y + 10.0], "weight 0, as of hidden keys", Style::plain(Anchor::Start, 10.0));
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::texts;
    use super::super::pixels::tests::decoded;
    use super::*;
    use crate::analyse::record::Kind;
    use crate::analyse::record::tests::observed;

    #[test]
    fn a_map_shows_heads_tokens_and_the_range_of_weights() {
        let observation = observed(Kind::Weights, "<s> R&D", &[2, 2, 2], &[0.8, 0.0, 0.4, 0.4, 0.0, 0.8, 0.8, 0.0]);
        let map = draw(&observation, "layer 0, text \"1\"").unwrap();
        let texts = texts(&map.svg);
        for text in ["layer 0, text \"1\"", "head 0", "head 1", "0", "0.4", "0.8"] {
            assert!(texts.iter().any(|found| found == text), "{text} is missing in {texts:?}");
        }
        // Keys above both heads, queries beside the first.
        for token in ["<s>", "R&D"] {
            assert_eq!(texts.iter().filter(|text| *text == token).count(), 3, "{token}");
        }
        assert_eq!(map.svg.matches("<image ").count(), 2);
        let ([width, height], _) = decoded(&map.png);
        assert_eq!([width, height], [2 * 36 + 8, 36]);
    }

    #[test]
    fn labels_of_a_long_text_are_thinned_out_and_numbered() {
        let short: Vec<String> = (0..64).map(|at| format!("t{at}")).collect();
        assert_eq!(labels(&short, cell(64)).len(), 64);
        let long: Vec<String> = (0..640).map(|at| format!("t{at}")).collect();
        let labels = labels(&long, cell(640));
        assert_eq!(labels.len(), 59);
        assert_eq!(labels[1], (11, "11 t11".to_string()));
        assert_eq!([cell(1), cell(64), cell(65), cell(10_000)], [18, 11, 9, 1]);
    }

    #[test]
    fn heads_stand_in_rows_of_about_equal_length() {
        let text = vec!["word"; 25].join(" ");
        let map = draw(&observed(Kind::Weights, &text, &[4, 25, 25], &vec![0.1; 4 * 625]), "four heads").unwrap();
        let side = 25 * 18;
        assert_eq!(decoded(&map.png).0, [2 * side + 8, 2 * side + 8], "two rows of two, although three fit beside each other");
    }

    #[test]
    fn slots_are_numbered() {
        let map = draw(&observed(Kind::SlotWeights, "a", &[1, 1, 3], &[0.25, 0.25, 0.5]), "slots").unwrap();
        assert!(texts(&map.svg).contains(&"slot-2".to_string()));
    }

    #[test]
    fn weights_that_are_all_0_are_drawn_as_hidden() {
        let map = draw(&observed(Kind::Weights, "a", &[1, 1, 1], &[0.0]), "nothing").unwrap();
        assert!(decoded(&map.png).1.iter().all(|pixel| *pixel == HIDDEN));
    }
}
