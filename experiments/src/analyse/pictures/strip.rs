//! Halting steps of a text: a coloured square for each token, with its number of steps and the token below it.

use super::canvas::{Anchor, Canvas, Style, TOKEN_SIZE, shortened, visible, width};
use super::colours::{hexadecimal, ink_on, viridis};
use super::number;
use crate::analyse::record::Observed;

const MARGIN: f64 = 16.0;
const CELL: f64 = 24.0;
/// Tokens of a line.
const PER_LINE: usize = 48;
const LONGEST_LABEL: f64 = 96.0;

/// Draws the halting steps of the modules of one text, on one scale of colours.
pub(super) fn draw(observations: &[&Observed], title: &str) -> String {
    let greatest = observations.iter().flat_map(|observed| &observed.values).copied().fold(1.0, f32::max);
    let mut canvas = Canvas::default();
    canvas.text([MARGIN, 28.0], title, Style::title(16.0));
    let explanation = format!(
        "A number is that of the steps after which its token halted; the brightest colour is that of {} steps.",
        number(greatest.into())
    );
    canvas.text([MARGIN, 46.0], &explanation, Style::plain(Anchor::Start, 11.0));
    let mut y = 64.0;
    let mut right = width(title, 16.0).max(width(&explanation, 11.0));
    for observed in observations {
        canvas.text([MARGIN, y + 12.0], super::named(&observed.module), Style::title(12.0));
        y += 22.0;
        let tokens: Vec<String> = observed.queries.iter().map(|token| shortened(&visible(token), TOKEN_SIZE, LONGEST_LABEL)).collect();
        for (tokens, steps) in tokens.chunks(PER_LINE).zip(observed.values.chunks(PER_LINE)) {
            for (at, (token, &steps)) in tokens.iter().zip(steps).enumerate() {
                let x = MARGIN + at as f64 * CELL;
                let colour = viridis(f64::from(steps / greatest));
                canvas.rectangle([x, y, CELL - 1.0, CELL - 1.0], &hexadecimal(colour));
                let style = Style { ink: ink_on(colour), ..Style::plain(Anchor::Middle, 10.0) };
                canvas.text([x + CELL / 2.0 - 0.5, y + CELL / 2.0 + 3.0], &number(steps.into()), style);
                canvas.text([x + CELL / 2.0 + 3.0, y + CELL + 4.0], token, Style { is_upright: true, ..Style::token(Anchor::End) });
            }
            right = right.max(tokens.len() as f64 * CELL);
            y += CELL + tokens.iter().map(|token| width(token, TOKEN_SIZE)).fold(0.0, f64::max) + 16.0;
        }
    }
    canvas.finish(title, [right + 2.0 * MARGIN, y + 8.0])
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::texts;
    use super::*;
    use crate::analyse::record::Kind;
    use crate::analyse::record::tests::observed;

    #[test]
    fn every_token_has_its_steps_and_the_colour_of_them() {
        let steps = observed(Kind::HaltingSteps, "<pad> a & b", &[4], &[0.0, 3.0, 6.0, 3.0]);
        let svg = draw(&[&steps], "Halting");
        let texts = texts(&svg);
        let found: Vec<&str> = texts.iter().map(String::as_str).skip(3).collect();
        assert_eq!(found, ["0", "<pad>", "3", "a", "6", "&", "3", "b"]);
        for (part, times) in [(0.0, 1), (0.5, 2), (1.0, 1)] {
            assert_eq!(svg.matches(&format!("fill=\"{}\"", hexadecimal(viridis(part)))).count(), times, "{part}");
        }
    }

    #[test]
    fn a_long_text_takes_several_lines() {
        let long = vec!["word"; 100].join(" ");
        let svg = draw(&[&observed(Kind::HaltingSteps, &long, &[100], &[2.0; 100])], "Halting");
        assert_eq!(texts(&svg).iter().filter(|text| *text == "word").count(), 100);
        let lines: std::collections::BTreeSet<&str> = svg
            .lines()
            .filter(|line| line.contains(">2<"))
            .map(|line| line.split("y=\"").nth(1).unwrap().split('"').next().unwrap())
            .collect();
        assert_eq!(lines.len(), 3);
    }
}
