//! The pictures of the page: those that it draws, and those that runs and analyses have left behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use heedful_host::exit::ProgramError;
use heedful_host::whole_files::{FileError, listed_if_there as listed};
use heedful_metrics::MetricColumn;
use serde::Serialize;

use crate::compare::curve;
use crate::compare::figure::{Against, Curves};
use crate::compare::group::Row;
use crate::compare::runs::RunSource;
use crate::compare::table::Comparison;
use crate::markup;
use crate::plot::{self, Area, Axis, Curve, CurvePoint, Dots, PlotError};
use crate::record::STATE_BYTES;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Width of a frame in pixels.
const WIDTH: u32 = 640;
/// Height of a frame of costs in pixels.
const HEIGHT: u32 = 320;
/// A page holds at most so many bytes of pictures that runs have drawn, and as many of analyses.
pub(super) const MOST_BYTES: u64 = 8 << 20;

/// A picture that the page has drawn.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) caption: String,
    /// The same for readers that do not see it.
    pub(super) text: String,
    /// SVG without its first tag's name, so that the page can add attributes.
    pub(super) svg: String,
}

impl Figure {
    fn drawn(
        caption: String,
        text: String,
        size: (u32, u32),
        draw: impl FnOnce(&Area<'_>) -> Result<(), PlotError>,
    ) -> Result<Self, ProgramError> {
        let picture = plot::picture(size, draw).map_err(|error| ProgramError::failure(error.to_string()))?;
        Ok(Self::of(caption, text, &picture))
    }

    fn of(caption: String, text: String, picture: &str) -> Self {
        Self { caption, text, svg: picture.strip_prefix("<svg").unwrap_or(picture).to_owned() }
    }
}

/// The metrics that judge a run; where there are none, all.
fn judging<'m>(comparison: &'m Comparison<'_>) -> Vec<&'m MetricColumn> {
    let judging: Vec<_> = comparison.metrics.iter().filter(|metric| metric.higher_is_better.is_some()).collect();
    if judging.is_empty() { comparison.metrics.iter().collect() } else { judging }
}

/// For each metric, the value of every seed.
pub(super) fn seeds(comparison: &Comparison<'_>) -> Result<Vec<Figure>, ProgramError> {
    let mut figures = Vec::new();
    for metric in judging(comparison) {
        let row = |(colour, row): (usize, &Row<'_>)| Dots { name: markup::one_line(&row.name), colour, values: row.values(metric) };
        let rows: Vec<Dots> = comparison.group.rows.iter().enumerate().map(row).collect();
        let all = rows.iter().flat_map(|row| row.values.iter().copied());
        let Some(x) = Axis::over(&markup::one_line(&metric.label), all).map(Axis::with_margin) else { continue };
        let told = |row: &Dots| {
            let values: Vec<String> = row.values.iter().map(|value| format!("{value:.*}", metric.digits)).collect();
            format!("{}: {}", row.name, if values.is_empty() { "none".to_owned() } else { values.join(", ") })
        };
        let text = format!("{} of each seed. {}.", metric.label, rows.iter().map(told).collect::<Vec<_>>().join("; "));
        let width = WIDTH + plot::legend_width(rows.iter().map(|row| row.name.as_str()));
        let size = (width, plot::dots_height(rows.len()));
        figures.push(Figure::drawn(metric.heading(), text, size, |area| plot::dots(area, &x, &rows))?);
    }
    Ok(figures)
}

/// The learning curves, and a sentence on rows that have none.
pub(super) fn learning(comparison: &Comparison<'_>) -> Result<(Vec<Figure>, Option<String>), ProgramError> {
    let group = &comparison.group;
    // A damaged log must not take the scores of all runs from the page.
    let logs = curve::logs(group).unwrap_or_else(|_| group.rows.iter().map(|row| vec![None; row.records.len()]).collect());
    let quantities: BTreeSet<&str> =
        logs.iter().flatten().flatten().flat_map(|log| log.quantities()).map(|quantity| quantity.title()).collect();
    let quantities = quantities.into_iter().collect::<Vec<_>>().join(", ");
    let curves = Curves::of(group, &logs);
    // What disturbed runs took says nothing.
    let is_disturbed = group.records().any(|record| record.disturbed);
    let mut figures = Vec::new();
    for against in Against::ALL.into_iter().filter(|against| !is_disturbed || *against != Against::Seconds) {
        let picture = curves.draw(against).map_err(|error| ProgramError::failure(error.to_string()))?;
        let text = format!("Curves over {}: {quantities}. Lines are means over seeds.", against.name());
        figures.extend(picture.map(|picture| Figure::of(format!("Against {}", against.name()), text, &picture)));
    }
    Ok((figures, curves.warning()))
}

/// What the runs cost, each against the first metric that judges them.
pub(super) fn costs(comparison: &Comparison<'_>) -> Result<Vec<Figure>, ProgramError> {
    let rows = &comparison.group.rows;
    let Some(metric) = judging(comparison).into_iter().next().cloned() else { return Ok(Vec::new()) };
    let names: Vec<String> = rows.iter().map(|row| markup::one_line(&row.name)).collect();
    let state = MetricColumn::new(STATE_BYTES, STATE_BYTES);
    let costs: [(&str, Vec<Option<f64>>); 3] = [
        ("parameters", rows.iter().map(|row| row.parameters()).collect()),
        ("seconds of a run", rows.iter().map(|row| row.seconds()).collect()),
        ("bytes of state", rows.iter().map(|row| row.spread(&state).map(|spread| spread.mean)).collect()),
    ];
    let mut figures = Vec::new();
    for (cost, of_rows) in costs {
        // The seeds of a row stand above each other, and a line joins them.
        let curve = |(colour, cost): (usize, &Option<f64>)| {
            let mut values = cost.map(|_| rows[colour].values(&metric)).unwrap_or_default();
            values.sort_by(f64::total_cmp);
            let x = cost.unwrap_or_default();
            Curve { colour, points: values.into_iter().map(|y| CurvePoint { x, y, low: y, high: y }).collect(), dashed: false }
        };
        let curves: Vec<Curve> = of_rows.iter().enumerate().map(curve).filter(|curve| !curve.points.is_empty()).collect();
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let axis = |name: &str, of: fn(&CurvePoint) -> f64| Axis::over(name, points().map(of)).map(Axis::with_margin);
        let (Some(x), Some(y)) = (axis(cost, |point| point.x), axis(&markup::one_line(&metric.label), |point| point.y)) else { continue };
        let mean = |row: &Row<'_>| row.spread(&metric).map(|spread| spread.mean);
        let places = of_rows.iter().zip(rows).filter_map(|(cost, row)| Some(((*cost)?, mean(row)?))).collect();
        let front = front(places, metric.higher_is_better != Some(false));
        let shown = || curves.iter().map(|curve| (curve.colour, names[curve.colour].as_str()));
        let told = |curve: &Curve| {
            let mean = curve.points.iter().map(|point| point.y).sum::<f64>() / curve.points.len() as f64;
            format!("{}: {mean:.*} for {:.0}", names[curve.colour], metric.digits, curve.points[0].x)
        };
        let text = format!("{} against {cost}. {}.", metric.label, curves.iter().map(told).collect::<Vec<_>>().join("; "));
        let width = WIDTH + plot::legend_width(shown().map(|(_, name)| name));
        let size = (width, HEIGHT.max(plot::legend_height(curves.len())));
        figures.push(Figure::drawn(format!("{} against {cost}", metric.label), text, size, |area| {
            let (left, right) = area.split_horizontally(WIDTH);
            plot::curves(&left, None, (&x, &y), &curves, &front)?;
            plot::legend(&right, shown())
        })?);
    }
    Ok(figures)
}

/// Of costs and scores those that no other one beats in the score at no more cost, by rising cost: the Pareto front.
fn front(mut places: Vec<(f64, f64)>, higher_is_better: bool) -> Vec<(f64, f64)> {
    let worth = |score: f64| if higher_is_better { score } else { -score };
    places.sort_by(|a, b| a.0.total_cmp(&b.0).then(worth(b.1).total_cmp(&worth(a.1))));
    let mut best = f64::NEG_INFINITY;
    places.retain(|&(_, score)| {
        let is_better = worth(score) > best;
        best = best.max(worth(score));
        is_better
    });
    places
}

/// The pictures of one run or analysis.
#[derive(Debug, Serialize)]
pub(super) struct Gallery {
    name: String,
    pictures: Vec<Drawing>,
    /// What is not shown, if anything is.
    left_out: Option<String>,
}

/// A picture that a run or an analysis has drawn.
#[derive(Debug, Serialize)]
struct Drawing {
    name: String,
    address: String,
}

/// The pictures of all analyses of the folders.
pub(super) fn galleries(sources: &[&RunSource]) -> Result<Vec<Gallery>, FileError> {
    let mut room = MOST_BYTES;
    let mut galleries = Vec::new();
    for source in sources {
        for folder in listed(&source.folder.analyses())?.into_iter().filter(|path| path.is_dir()) {
            let name = Path::new(&source.label).join(folder.file_name().unwrap_or_default()).display().to_string();
            let files = of_kind([listed(&folder)?, listed(&folder.join("maps"))?].concat(), "svg");
            galleries.extend(gallery(name, "analysis", &files, &mut room)?);
        }
    }
    Ok(galleries)
}

/// The pictures that the runs of a comparison have drawn of what their models made, as far as there is `room` for their bytes.
pub(super) fn made(comparison: &Comparison<'_>, room: &mut u64) -> Result<Vec<Gallery>, FileError> {
    let mut galleries = Vec::new();
    for (row, record) in comparison.group.runs() {
        let Some(run) = row.source.folder_of(record) else { continue };
        let files = of_kind(listed(run.root())?, "png");
        galleries.extend(gallery(format!("{}-seed{}", row.name, record.seed), "run", &files, room)?);
    }
    Ok(galleries)
}

fn of_kind(mut files: Vec<PathBuf>, ending: &str) -> Vec<PathBuf> {
    files.retain(|path| path.extension().is_some_and(|own| own == ending));
    files
}

/// The pictures in the files of `what`, a run or an analysis, as far as there is `room` for their bytes; `None` if there are no files.
fn gallery(name: String, what: &str, files: &[PathBuf], room: &mut u64) -> Result<Option<Gallery>, FileError> {
    if files.is_empty() {
        return Ok(None);
    }
    let (mut pictures, mut left_out) = (Vec::new(), 0);
    for path in files {
        let bytes = fs::read(path).map_err(|source| FileError::read(path.clone(), source))?;
        match room.checked_sub(bytes.len() as u64) {
            Some(less) => {
                *room = less;
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let kind = if path.extension().is_some_and(|ending| ending == "svg") { "svg+xml" } else { "png" };
                pictures.push(Drawing { name, address: format!("data:image/{kind};base64,{}", BASE64_STANDARD.encode(&bytes)) });
            }
            None => left_out += 1,
        }
    }
    let sentence = format!(
        "{left_out} further pictures of this {what} are in its folder alone: a page holds at most {} MiB of them.",
        MOST_BYTES >> 20
    );
    Ok(Some(Gallery { name, pictures, left_out: (left_out > 0).then_some(sentence) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_has_what_nothing_cheaper_beats() {
        let places = vec![(4.0, 5.0), (1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (3.0, 3.0), (5.0, 4.0)];
        assert_eq!(front(places.clone(), true), [(1.0, 1.0), (2.0, 3.0), (4.0, 5.0)]);
        assert_eq!(front(places, false), [(1.0, 1.0)]);
        assert_eq!(front(Vec::new(), true), []);
    }

    #[test]
    fn pictures_of_an_analysis_are_shown_as_far_as_there_is_room_and_the_others_counted() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("maps")).unwrap();
        for (file, bytes) in [("entropy.svg", 10), ("maps/a.svg", 50), ("maps/b.svg", 20), ("maps/b.png", 1)] {
            fs::write(place.path().join(file), vec![b'x'; bytes]).unwrap();
        }
        let shown = |room: u64| {
            let mut room = room;
            let files = [listed(place.path()).unwrap(), listed(&place.path().join("maps")).unwrap()].concat();
            let Gallery { pictures, left_out, .. } = gallery("a".into(), "analysis", &of_kind(files, "svg"), &mut room).unwrap().unwrap();
            (pictures.into_iter().map(|picture| picture.name).collect::<Vec<_>>(), left_out)
        };
        assert_eq!(shown(80), (["entropy", "a", "b"].map(str::to_owned).to_vec(), None));
        let (names, left_out) = shown(40);
        assert_eq!(names, ["entropy", "b"]);
        assert!(left_out.unwrap().starts_with("1 further pictures of this analysis are in its folder alone: a page holds at most 8 MiB"));
        assert!(gallery("a".into(), "analysis", &listed(&place.path().join("nowhere")).unwrap(), &mut 80).unwrap().is_none());
    }
}
