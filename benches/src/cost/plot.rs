//! Costs against length as pictures, both axes logarithmic.

use std::path::Path;

use heedful_host::exit::ProgramError;
use heedful_host::whole_files::write_atomically;
use plotters::prelude::*;

use super::crossover::Crossover;
use super::outcome::{Outcome, Point};
use super::point::Pass;
use super::table::{lengths, names, time_exponent};
use crate::markdown::significant;

const SIZE: (u32, u32) = (1100, 640);
/// Width of the list of names on the right.
const LEGEND: u32 = 330;
/// Height of its lines.
const LINE: i32 = 24;

/// What is drawn against the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Milliseconds of a run, with crossovers.
    Time,
    /// Mebibytes of its peak.
    Memory,
}

impl Quantity {
    fn of(self, point: &Point) -> Option<f64> {
        let value = match self {
            Self::Time => point.median().map(|seconds| 1e3 * seconds),
            Self::Memory => point.peak_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)),
        };
        value.filter(|&value| value > 0.0)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Memory => "memory",
        }
    }

    fn axis(self) -> &'static str {
        match self {
            Self::Time => "length; a circle marks where a line meets that of dot-product",
            Self::Memory => "length",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Time => "milliseconds",
            Self::Memory => "MiB",
        }
    }
}

/// Draws every backend and pass of `outcome` into `folder`; returns the names of the files.
///
/// # Errors
/// If a file cannot be written.
pub fn write(outcome: &Outcome, folder: &Path) -> Result<Vec<String>, ProgramError> {
    let mut files = Vec::new();
    for (backend, pass) in outcome.groups() {
        let points = outcome.of(&backend, pass);
        for quantity in [Quantity::Time, Quantity::Memory] {
            let title = format!("{backend}, {}", pass.title());
            if let Some(picture) = draw(&points, quantity, &title).map_err(ProgramError::failure)? {
                let file = format!("{}-{backend}-{}.svg", quantity.name(), Pass::name(pass));
                write_atomically(&folder.join(&file), picture.as_bytes())?;
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// The picture as SVG; none if there is nothing to draw.
///
/// # Errors
/// Those of the drawing library.
pub fn draw(points: &[&Point], quantity: Quantity, title: &str) -> Result<Option<String>, String> {
    let values: Vec<f64> = points.iter().filter_map(|point| quantity.of(point)).collect();
    let lengths = lengths(points);
    let (Some(&shortest), Some(&longest)) = (lengths.first(), lengths.last()) else { return Ok(None) };
    if values.is_empty() || shortest == longest {
        return Ok(None);
    }
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min) / 1.3;
    let highest = values.iter().copied().fold(0.0, f64::max) * 1.3;
    let mut picture = String::new();
    {
        let area = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
        let fail = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
        area.fill(&WHITE).map_err(fail)?;
        let (left, right) = area.split_horizontally(SIZE.0 - LEGEND);
        let mut chart = ChartBuilder::on(&left)
            .caption(title, ("sans-serif", 22))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d((shortest as f64..longest as f64).log_scale().base(2.0), (lowest..highest).log_scale())
            .map_err(fail)?;
        chart
            .configure_mesh()
            .x_desc(quantity.axis())
            .y_desc(quantity.unit())
            .x_label_formatter(&|length| format!("{length:.0}"))
            .y_label_formatter(&|value| significant(*value))
            .label_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .draw()
            .map_err(fail)?;
        for (index, name) in names(points).iter().enumerate() {
            let own: Vec<&Point> = points.iter().copied().filter(|point| &point.attention == name).collect();
            let line: Vec<(f64, f64)> = own.iter().filter_map(|point| Some((point.length as f64, quantity.of(point)?))).collect();
            let colour = colour(index);
            chart.draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2))).map_err(fail)?;
            chart.draw_series(line.iter().map(|&place| Circle::new(place, 3, colour.filled()))).map_err(fail)?;
            if quantity == Quantity::Time
                && let Some(Crossover::Between { at, .. }) = Crossover::of(points, name)
                && let Some(height) = height(&line, at)
            {
                chart.draw_series([Circle::new((at, height), 8, colour.stroke_width(2))]).map_err(fail)?;
            }
            let exponent = if quantity == Quantity::Time { time_exponent(&own) } else { None };
            let exponent = exponent.map_or_else(String::new, |exponent| format!("  n^{exponent:.2}"));
            let y = 48 + LINE * index as i32;
            right.draw(&PathElement::new(vec![(4, y), (28, y)], colour.stroke_width(3))).map_err(fail)?;
            let label = Text::new(format!("{name}{exponent}"), (36, y - 8), ("sans-serif", 15).into_font());
            right.draw(&label).map_err(fail)?;
        }
        area.present().map_err(fail)?;
    }
    Ok(Some(picture))
}

/// The height of a line of powers at `x`.
fn height(line: &[(f64, f64)], x: f64) -> Option<f64> {
    let &[(x0, y0), (x1, y1)] = line.windows(2).find(|pair| pair[0].0 <= x && x <= pair[1].0)? else { return None };
    let share = (x / x0).ln() / (x1 / x0).ln();
    Some(y0 * (y1 / y0).powf(share))
}

/// Colours that are told apart, dark ones and light ones in turn.
fn colour(index: usize) -> HSLColor {
    // Multiples of the golden section are spread evenly around the circle.
    let hue = (index as f64 * 0.618_033_988_749_895).fract();
    HSLColor(hue, 0.75, if index.is_multiple_of(2) { 0.36 } else { 0.55 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::outcome::tests::outcome;

    #[test]
    fn pictures_name_mechanisms_exponents_and_mark_crossovers() {
        let outcome = outcome();
        let points = outcome.of("flex", Pass::Training);
        let picture = draw(&points, Quantity::Time, "flex").unwrap().unwrap();
        for part in ["dot-product  n^2.00", "local-1d  n^1.00", "milliseconds"] {
            assert!(picture.contains(part), "{part} is missing in {picture}");
        }
        // Of a radius that points do not have.
        assert_eq!(picture.matches("r=\"8\"").count(), 1);
        assert_eq!(draw(&points[..1], Quantity::Time, "flex").unwrap(), None, "one length is no line");
        assert_eq!(draw(&points, Quantity::Memory, "flex").unwrap().unwrap().matches("r=\"8\"").count(), 0);
    }

    #[test]
    fn files_have_the_names_of_what_they_show() {
        let folder = tempfile::tempdir().unwrap();
        let files = write(&outcome(), folder.path()).unwrap();
        assert_eq!(files, ["time-flex-training.svg", "memory-flex-training.svg"]);
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["memory-flex-training.svg", "time-flex-training.svg"]);
    }
}
