//! Pictures of learning curves.

use std::collections::BTreeMap;

use crate::plot::{self, Axis, Curve, CurvePoint, PlotError};

use super::curve::{Log, Quantity, StepSpread, over_seeds};
use super::group::Group;
use super::warnings::some;

/// Width of a frame.
const WIDTH: u32 = 760;
/// Height of a frame.
const HEIGHT: u32 = 300;
/// More points than a curve has pixels tell nothing more.
const LONGEST: usize = 1000;

/// What curves are drawn against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Optimiser steps.
    Steps,
    /// Seconds since the start of training.
    Seconds,
}

impl Against {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Steps, Self::Seconds];

    /// The name of the axis and in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Seconds => "seconds",
        }
    }

    fn of(self, point: &StepSpread) -> Option<f64> {
        match self {
            Self::Steps => Some(point.step as f64),
            Self::Seconds => point.seconds,
        }
    }
}

/// The learning curves of one group.
#[derive(Clone, Debug)]
pub struct Curves<'l> {
    title: String,
    names: Vec<String>,
    /// For each row the logs of its runs.
    logs: Vec<Vec<&'l Log>>,
    /// Names of trivial baselines, with their scores of the development set.
    trivial: Vec<(String, BTreeMap<String, f64>)>,
    /// Names of rows with a run that has no log; they have no curve.
    pub without_log: Vec<String>,
}

impl<'l> Curves<'l> {
    /// The curves of `group` from the `logs` of its runs, as [`logs`](super::curve::logs) returns them.
    pub fn of(group: &Group<'_>, logs: &'l [Vec<Option<Log>>]) -> Self {
        let trivial = group.trivial.iter().map(|(name, baseline)| (name.clone(), baseline.dev.clone())).collect();
        let mut curves = Self { title: group.title(), names: Vec::new(), logs: Vec::new(), trivial, without_log: Vec::new() };
        for (row, logs) in group.rows.iter().zip(logs) {
            // A mean of some of the seeds beside a score of all of them would mislead.
            let all: Option<Vec<&Log>> = logs.iter().map(Option::as_ref).collect();
            if all.is_none() {
                curves.without_log.push(row.name.clone());
            }
            curves.names.push(row.name.clone());
            curves.logs.push(all.unwrap_or_default());
        }
        curves
    }

    /// A sentence on rows that have no curve, if there are any.
    pub fn warning(&self) -> Option<String> {
        let rows = &self.without_log;
        (!rows.is_empty()).then(|| format!("No learning curve of {}: not every run has a log.jsonl.", some(rows)))
    }

    /// The picture as SVG: one frame for each quantity; `None` if there is nothing to draw.
    ///
    /// # Errors
    /// Those of the drawing library.
    pub fn draw(&self, against: Against) -> Result<Option<String>, PlotError> {
        let mut quantities: Vec<&Quantity> = self.logs.iter().flatten().flat_map(|log| log.quantities()).collect();
        quantities.sort();
        quantities.dedup();
        let frames: Vec<Frame> = quantities.into_iter().filter_map(|quantity| self.frame(quantity, against)).collect();
        let places = frames.iter().flat_map(|frame| &frame.curves).flat_map(|curve| &curve.points).map(|point| point.x);
        // Frames share an axis, so that what happened at one time stands below each other.
        let Some(x) = Axis::over(against.name(), places).map(Axis::from_zero).filter(|axis| !axis.is_point()) else { return Ok(None) };
        // A row without a log is not listed but keeps its number, and with it the others their colours.
        let drawn = |number: &usize| frames.iter().flat_map(|frame| &frame.curves).any(|curve| curve.colour == *number);
        let names = || self.names.iter().chain(self.trivial.iter().map(|(name, _)| name)).map(String::as_str).enumerate();
        let named = || names().filter(|(number, _)| self.logs.get(*number).map_or_else(|| drawn(number), |logs| !logs.is_empty()));
        let height = (HEIGHT * frames.len() as u32).max(plot::legend_height(named().count()));
        let picture = plot::picture((WIDTH + plot::legend_width(named().map(|(_, name)| name)), height), |area| {
            let (left, right) = area.split_horizontally(WIDTH);
            for (index, frame) in frames.iter().enumerate() {
                let place = left.clone().shrink((0, HEIGHT as i32 * index as i32), (WIDTH, HEIGHT));
                plot::curves(&place, (index == 0).then_some(self.title.as_str()), (&x, &frame.y), &frame.curves, &[])?;
            }
            plot::legend(&right, named())
        })?;
        Ok(Some(picture))
    }

    fn frame(&self, quantity: &Quantity, against: Against) -> Option<Frame> {
        let curve = |(row, logs): (usize, &Vec<&Log>)| {
            let spreads = over_seeds(logs, quantity);
            let every = spreads.len().div_ceil(LONGEST).max(1);
            let point =
                |spread: &StepSpread| Some(CurvePoint { x: against.of(spread)?, y: spread.mean, low: spread.low, high: spread.high });
            // Steps are counted from the end: what a run came to is what is looked for.
            let mut points: Vec<CurvePoint> = spreads.iter().rev().step_by(every).filter_map(point).collect();
            points.reverse();
            Curve { colour: row, points, dashed: false }
        };
        let mut curves: Vec<Curve> = self.logs.iter().enumerate().map(curve).filter(|curve| !curve.points.is_empty()).collect();
        curves.extend(self.level_lines(quantity, &curves));
        let heights = curves.iter().flat_map(|curve| &curve.points).flat_map(|point| [point.low, point.high]);
        let y = Axis::over(quantity.title(), heights)?.with_margin();
        Some(Frame { y, curves })
    }
}

impl Curves<'_> {
    /// A line across the curves for each trivial baseline with this score.
    fn level_lines(&self, quantity: &Quantity, curves: &[Curve]) -> Vec<Curve> {
        let Quantity::Dev(metric) = quantity else { return Vec::new() };
        let end = curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).fold(0.0, f64::max);
        let line = |(number, (_, dev)): (usize, &(String, BTreeMap<String, f64>))| {
            let &y = dev.get(metric)?;
            let points = [0.0, end].map(|x| CurvePoint { x, y, low: y, high: y }).into();
            Some(Curve { colour: self.names.len() + number, points, dashed: true })
        };
        self.trivial.iter().enumerate().filter_map(line).collect()
    }
}

/// One quantity.
struct Frame {
    y: Axis,
    curves: Vec<Curve>,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::curve::logs;
    use super::super::curve::tests::log_text;
    use super::super::group::groups;
    use super::super::group::tests::{record, source_at};
    use super::super::runs::RunSource;
    use super::*;
    use crate::markup::tests::assert_holds;
    use crate::record::ResultRecord;
    use crate::run_folder::RunFolder;
    use crate::trivial::TrivialBaseline;

    /// Draws the curves of a folder with these records, logs and trivial baselines.
    fn with_curves(
        records: &[ResultRecord],
        logged: &[(&str, u64, String)],
        trivial: Vec<TrivialBaseline>,
        check: impl FnOnce(&Curves<'_>),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (attention, seed, text) in logged {
            fs::write(RunFolder::at(folder.path()).run(attention, *seed).unwrap().log(), text).unwrap();
        }
        let sources = [RunSource { trivial, ..source_at(folder.path(), records) }];
        let groups = groups(&sources);
        check(&Curves::of(&groups[0], &logs(&groups[0]).unwrap()));
    }

    #[test]
    fn a_picture_has_a_frame_for_each_quantity_and_a_band_where_there_are_seeds() {
        let records = [record("dense", 1, &[]), record("dense", 2, &[]), record("gaussian", 1, &[]), record("silent", 1, &[])];
        let text = |loss: f64| log_text(&[1, 2, 3], loss) + &log_text(&[4, 5], loss + 1.0);
        let logged = [("dense", 1, text(8.0)), ("dense", 2, text(6.0)), ("gaussian", 1, text(5.0))];
        with_curves(&records, &logged, Vec::new(), |curves| {
            assert_eq!(curves.without_log, ["silent"]);
            for against in Against::ALL {
                let picture = curves.draw(against).unwrap().unwrap();
                assert_holds(&picture, &["mt: invented", "training loss", "perplexity", "dense", "gaussian", against.name()]);
                assert_eq!(picture.matches("<polygon").count(), 2, "a band of loss and one of perplexity");
                assert!(!picture.contains("silent"), "what has no curve is not listed");
                assert!(!picture.contains("f1"), "what is undefined everywhere has no frame");
            }
        });
    }

    #[test]
    fn a_long_curve_is_thinned_and_keeps_its_end() {
        let steps: Vec<u64> = (1..=4321).collect();
        with_curves(&[record("dense", 1, &[])], &[("dense", 1, log_text(&steps, 8.0))], Vec::new(), |curves| {
            let points = &curves.frame(&Quantity::Loss, Against::Steps).unwrap().curves[0].points;
            assert!(points.len() <= LONGEST && points.len() > LONGEST / 2, "{}", points.len());
            assert_eq!(points.last().unwrap().x, 4321.0);
            assert!(points.is_sorted_by(|a, b| a.x < b.x));
        });
    }

    #[test]
    fn a_trivial_baseline_is_a_dashed_line_across_the_curves_of_its_score() {
        let of = |name: &str| TrivialBaseline { experiment: "mt".into(), dataset: "invented".into(), ..TrivialBaseline::new(name, "") };
        let trivial = vec![of("silent"), of("words").dev("perplexity", 7.0)];
        with_curves(&[record("dense", 1, &[])], &[("dense", 1, log_text(&[1, 2, 3], 8.0))], trivial, |curves| {
            let frame = curves.frame(&Quantity::Dev("perplexity".into()), Against::Steps).unwrap();
            let line = frame.curves.last().unwrap();
            assert_eq!((frame.curves.len(), line.colour, line.dashed), (2, 2, true));
            assert_eq!(line.points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>(), [(0.0, 7.0), (3.0, 7.0)]);
            assert_eq!(curves.frame(&Quantity::Loss, Against::Steps).unwrap().curves.len(), 1);
            let picture = curves.draw(Against::Steps).unwrap().unwrap();
            assert!(picture.contains("words (trivial)") && !picture.contains("silent"), "{picture}");
        });
    }

    #[test]
    fn without_logs_there_is_no_picture() {
        with_curves(&[record("dense", 1, &[])], &[], Vec::new(), |curves| {
            assert_eq!(curves.draw(Against::Steps).unwrap(), None);
        });
    }
}
