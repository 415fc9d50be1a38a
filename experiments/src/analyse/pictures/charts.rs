//! Bars of each head and histograms of each module.

use super::canvas::{Anchor, Canvas, FAINT, INK, Style, shortened, width};
use super::number;
use crate::analyse::histogram::Histogram;
use crate::analyse::record::State;

const MARGIN: f64 = 16.0;
const PANEL_WIDTH: f64 = 300.0;
const PANEL_HEIGHT: f64 = 110.0;
/// Room for the numbers beside an axis.
const AXIS: f64 = 46.0;

/// The colour of what was observed at initialisation and after training.
fn colour(state: State) -> &'static str {
    match state {
        State::Initial => "#b9b4cc",
        State::Trained => "#2c718e",
    }
}

/// A bar, with a line from the least to the greatest of the values it is the mean of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    pub mean: f64,
    pub range: Option<[f64; 2]>,
}

/// The bars of a module: of each head, and for it of each state.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Panel {
    pub title: String,
    pub heads: Vec<Vec<(State, Bar)>>,
}

/// Bars of all modules on one scale that starts at 0.
pub(super) fn bars(title: &str, unit: &str, panels: &[Panel]) -> String {
    const BESIDE: usize = 3;
    let all = || panels.iter().flat_map(|panel| panel.heads.iter().flatten());
    let top_value = top(all().map(|(_, bar)| bar.range.map_or(bar.mean, |[_, greatest]| greatest)).fold(0.0, f64::max));
    let states: Vec<State> = State::ALL.into_iter().filter(|state| all().any(|(own, _)| own == state)).collect();

    let mut canvas = Canvas::default();
    canvas.text([MARGIN, 28.0], title, Style::title(16.0));
    canvas.text([MARGIN, 46.0], unit, Style::plain(Anchor::Start, 11.0));
    let mut x = MARGIN;
    for state in &states {
        canvas.rectangle([x, 56.0, 12.0, 12.0], colour(*state));
        canvas.text([x + 18.0, 66.0], &state.to_string(), Style::plain(Anchor::Start, 11.0));
        x += 150.0;
    }
    for (at, panel) in panels.iter().enumerate() {
        let left = MARGIN + AXIS + (at % BESIDE) as f64 * (PANEL_WIDTH + AXIS + 16.0);
        let above = 104.0 + (at / BESIDE) as f64 * (PANEL_HEIGHT + 58.0);
        canvas.text([left, above - 8.0], &shortened(&panel.title, 12.0, PANEL_WIDTH), Style::title(12.0));
        axes(&mut canvas, [left, above], PANEL_WIDTH, top_value);
        head_bars(&mut canvas, [left, above], panel, top_value);
    }
    let beside = panels.len().clamp(1, BESIDE) as f64;
    let right = (MARGIN + beside * (PANEL_WIDTH + AXIS + 16.0)).max(2.0 * MARGIN + width(unit, 11.0).max(width(title, 16.0)));
    canvas.finish(title, [right, 104.0 + panels.len().div_ceil(BESIDE) as f64 * (PANEL_HEIGHT + 58.0) - 16.0])
}

fn head_bars(canvas: &mut Canvas, [left, above]: [f64; 2], panel: &Panel, top_value: f64) {
    let group = (PANEL_WIDTH / panel.heads.len() as f64).min(48.0);
    // A number of two digits needs so much.
    let label_step = (16.0 / group).ceil().max(1.0) as usize;
    let height = |value: f64| value / top_value * PANEL_HEIGHT;
    for (head, bars) in panel.heads.iter().enumerate() {
        let start = left + head as f64 * group;
        let thickness = group * 0.8 / bars.len().max(1) as f64;
        for (at, (state, bar)) in bars.iter().enumerate() {
            let x = start + group * 0.1 + at as f64 * thickness;
            canvas.rectangle([x, above + PANEL_HEIGHT - height(bar.mean), thickness, height(bar.mean)], colour(*state));
            if let Some([least, greatest]) = bar.range {
                let middle = x + thickness / 2.0;
                canvas.line([middle, above + PANEL_HEIGHT - height(least)], [middle, above + PANEL_HEIGHT - height(greatest)], INK);
            }
        }
        if head % label_step == 0 {
            canvas.text([start + group / 2.0, above + PANEL_HEIGHT + 14.0], &head.to_string(), Style::plain(Anchor::Middle, 10.0));
        }
    }
    let middle = left + group * panel.heads.len() as f64 / 2.0;
    canvas.text([middle, above + PANEL_HEIGHT + 28.0], "head", Style::plain(Anchor::Middle, 10.0));
}

/// The frame of a panel with numbers beside it, from 0 to `top_value`.
fn axes(canvas: &mut Canvas, [left, above]: [f64; 2], width: f64, top_value: f64) {
    for part in [0.0, 0.5, 1.0] {
        let y = above + PANEL_HEIGHT * (1.0 - part);
        canvas.line([left, y], [left + width, y], FAINT);
        canvas.text([left - 5.0, y + 3.5], &number(part * top_value), Style::plain(Anchor::End, 10.0));
    }
    canvas.line([left, above], [left, above + PANEL_HEIGHT], INK);
    canvas.line([left, above + PANEL_HEIGHT], [left + width, above + PANEL_HEIGHT], INK);
}

/// The least of 1, 2, 2.5 and 5 times a power of ten that is not below a value.
fn top(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0].map(|factor| factor * power).into_iter().find(|top| *top >= value * (1.0 - 1e-12)).unwrap_or(10.0 * power)
}

/// What the histograms below each other count.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub heading: String,
    /// The names of the two ends and the middle of the range.
    pub ticks: [&'static str; 3],
    /// Histograms of one group in one row are drawn on one scale, for comparison.
    pub group: usize,
    pub state: State,
}

/// The histograms of a module, one for each column that has one, each with a remark.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub title: String,
    pub histograms: Vec<Option<(Histogram, String)>>,
}

/// Histograms of modules below each other, of states beside each other; the height of a bar is its share of all values.
pub(super) fn histograms(title: &str, explanation: &str, columns: &[Column], rows: &[Row]) -> String {
    const WIDTH: f64 = 240.0;
    let mut canvas = Canvas::default();
    canvas.text([MARGIN, 28.0], title, Style::title(16.0));
    canvas.text([MARGIN, 46.0], explanation, Style::plain(Anchor::Start, 11.0));
    let left = |column: usize| MARGIN + AXIS + column as f64 * (WIDTH + AXIS + 16.0);
    let mut above = 118.0;
    for row in rows {
        canvas.text([MARGIN + AXIS, above - 30.0], &row.title, Style::title(12.0));
        let share = |histogram: &Histogram, count: u64| count as f64 / histogram.total().max(1) as f64;
        let greatest = |group: usize| {
            let of_group = columns.iter().zip(&row.histograms).filter(|(column, _)| column.group == group);
            let shares = of_group
                .filter_map(|(_, own)| own.as_ref())
                .map(|(own, _)| own.counts().iter().map(|&count| share(own, count)).fold(0.0, f64::max));
            top(shares.fold(0.0, f64::max))
        };
        for (at, (column, own)) in columns.iter().zip(&row.histograms).enumerate() {
            let Some((histogram, remark)) = own else { continue };
            let (left, top_share) = (left(at), greatest(column.group));
            canvas.text([left, above - 8.0], &column.heading, Style::plain(Anchor::Start, 11.0));
            canvas.text([left + WIDTH, above + PANEL_HEIGHT + 28.0], remark, Style::plain(Anchor::End, 10.0));
            axes(&mut canvas, [left, above], WIDTH, top_share);
            let thickness = WIDTH / histogram.counts().len() as f64;
            for (bin, &count) in histogram.counts().iter().enumerate().filter(|(_, count)| **count > 0) {
                let height = share(histogram, count) / top_share * PANEL_HEIGHT;
                let place = [left + bin as f64 * thickness, above + PANEL_HEIGHT - height, thickness * 0.92, height];
                canvas.rectangle(place, colour(column.state));
            }
            for (part, tick) in [0.0, 0.5, 1.0].into_iter().zip(column.ticks) {
                canvas.text([left + part * WIDTH, above + PANEL_HEIGHT + 14.0], tick, Style::plain(Anchor::Middle, 10.0));
            }
        }
        above += PANEL_HEIGHT + 82.0;
    }
    let longest =
        rows.iter().map(|row| AXIS + width(&row.title, 12.0)).chain([width(title, 16.0), width(explanation, 11.0)]).fold(0.0, f64::max);
    canvas.finish(title, [(left(columns.len()) - AXIS + 8.0).max(longest + 2.0 * MARGIN), above - 40.0])
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::texts;
    use super::*;

    fn bar(mean: f64) -> Bar {
        Bar { mean, range: None }
    }

    /// Heights of the filled rectangles of a colour.
    fn heights(svg: &str, colour: &str) -> Vec<f64> {
        let filled = svg.lines().filter(|line| line.starts_with("<rect") && line.contains(&format!("fill=\"{colour}\"")));
        filled.map(|line| line.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn bars_are_as_high_as_their_values_on_one_scale() {
        let both = |initial, trained| vec![(State::Initial, bar(initial)), (State::Trained, bar(trained))];
        let panels = [
            Panel { title: "layer <0>".into(), heads: vec![both(1.0, 2.0), both(0.0, 0.5)] },
            Panel { title: "layer 1".into(), heads: vec![vec![(State::Trained, Bar { mean: 1.0, range: Some([0.5, 1.5]) })]] },
        ];
        let svg = bars("Distance", "tokens", &panels);
        let texts = texts(&svg);
        for text in ["Distance", "tokens", "layer <0>", "layer 1", "at initialisation", "after training", "0", "1", "2"] {
            assert!(texts.iter().any(|found| found == text), "{text} is missing in {texts:?}");
        }
        // The first is that of the legend.
        assert_eq!(heights(&svg, colour(State::Trained)), [12.0, PANEL_HEIGHT, PANEL_HEIGHT / 4.0, PANEL_HEIGHT / 2.0]);
        assert_eq!(heights(&svg, colour(State::Initial)), [12.0, PANEL_HEIGHT / 2.0, 0.0]);
    }

    #[test]
    fn histograms_of_one_group_share_their_scale() {
        let mut even = Histogram::new(0.0, 1.0, 2);
        [0.1, 0.9].into_iter().for_each(|value| even.add(value));
        let mut uneven = Histogram::new(0.0, 1.0, 2);
        uneven.add(0.1);
        let column = |state, group| Column { heading: state_heading(state), ticks: ["0", "0.5", "1"], group, state };
        let rows = [Row { title: "a & b".into(), histograms: vec![Some((even, String::new())), Some((uneven, "2 % above 1".into()))] }];
        let together = histograms("Weights", "shares", &[column(State::Initial, 0), column(State::Trained, 0)], &rows);
        assert_eq!(heights(&together, colour(State::Initial)), [PANEL_HEIGHT / 2.0; 2]);
        assert_eq!(heights(&together, colour(State::Trained)), [PANEL_HEIGHT]);
        let apart = histograms("Weights", "shares", &[column(State::Initial, 0), column(State::Trained, 1)], &rows);
        assert_eq!(heights(&apart, colour(State::Initial)), [PANEL_HEIGHT; 2]);
        let texts = texts(&apart);
        for text in ["a & b", "2 % above 1", "weights at initialisation", "weights after training"] {
            assert!(texts.iter().any(|found| found == text), "{text} is missing in {texts:?}");
        }
    }

    fn state_heading(state: State) -> String {
        format!("weights {state}")
    }

    #[test]
    fn scales_end_in_round_numbers() {
        for (value, expected) in
            [(0.0, 1.0), (0.03, 0.05), (0.9, 1.0), (1.0, 1.0), (1.2, 2.0), (2.1, 2.5), (3.0, 5.0), (7.0, 10.0), (180.0, 200.0)]
        {
            assert!((top(value) - expected).abs() < 1e-12, "{value}: {}", top(value));
        }
    }
}
