//! Shared parts of pictures: distinguishable colours, a frame with two axes, curves with bands, rows of dots, and a list of names on the right. All pictures
//! are SVG text.

use heedful_metrics::Spread;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// The part of a picture that is drawn on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Why something cannot be drawn.
pub type PlotError = DrawingAreaErrorKind<std::io::Error>;

/// Height of a line of the list of names.
const LINE: u32 = 24;
/// Width of a letter of it, on average.
const LETTER: u32 = 8;

/// The colour of a front.
const FRONT: RGBColor = RGBColor(150, 150, 150);

/// The colour of the thing number `index`, dark ones and light ones in turn.
pub fn colour(index: usize) -> HSLColor {
    // Multiples of the golden section are spread evenly around the circle.
    let hue = (index as f64 * 0.618_033_988_749_895).fract();
    HSLColor(hue, 0.75, if index.is_multiple_of(2) { 0.36 } else { 0.55 })
}

/// A picture of `width` and `height` pixels as SVG text, drawn on white.
///
/// # Errors
/// Those of `draw` and of the drawing library.
pub fn picture(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), PlotError>) -> Result<String, PlotError> {
    let mut picture = String::new();
    {
        let area = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    Ok(picture)
}

/// The width in pixels that [`legend`] needs for `names`.
pub fn legend_width<'n>(names: impl IntoIterator<Item = &'n str>) -> u32 {
    let longest = names.into_iter().map(|name| name.chars().count()).max().unwrap_or(0);
    48 + LETTER * longest as u32
}

/// The height in pixels that [`legend`] needs for so many names.
pub fn legend_height(names: usize) -> u32 {
    48 + LINE * names as u32
}

/// Lists names, each beside a line in the colour of its number.
///
/// # Errors
/// Those of the drawing library.
pub fn legend<'n>(area: &Area<'_>, names: impl IntoIterator<Item = (usize, &'n str)>) -> Result<(), PlotError> {
    for (place, (index, name)) in names.into_iter().enumerate() {
        let y = 48 + LINE as i32 * place as i32;
        area.draw(&PathElement::new(vec![(4, y), (28, y)], colour(index).stroke_width(3)))?;
        area.draw(&Text::new(name.to_owned(), (36, y - 8), ("sans-serif", 15).into_font()))?;
    }
    Ok(())
}

/// One axis: what it shows and from where to where.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is shown, with its unit.
    pub name: String,
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// An axis that ends at the least and the greatest of `values`; `None` if no value is a number.
    pub fn over(name: &str, values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let ends = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let finite = values.into_iter().filter(|value| value.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        (low <= high).then(|| Self { name: name.to_owned(), low, high, logarithmic: false })
    }

    /// The same from zero on.
    pub fn from_zero(self) -> Self {
        Self { low: self.low.min(0.0), ..self }
    }

    /// Whether it begins where it ends.
    pub fn is_point(&self) -> bool {
        self.low == self.high
    }

    /// The same with a margin at both ends, in powers of ten where the greatest value is many times the least.
    pub fn with_margin(self) -> Self {
        const MANY: f64 = 20.0;
        if self.low > 0.0 && self.high > MANY * self.low {
            return Self { low: self.low / 1.15, high: self.high * 1.15, logarithmic: true, ..self };
        }
        let length = if self.is_point() { self.low.abs().max(1.0) } else { self.high - self.low };
        let margin = 0.05 * length;
        Self { low: self.low - margin, high: self.high + margin, ..self }
    }
}

/// A line with a band around it. Points follow each other from left to right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Number of its colour.
    pub colour: usize,
    /// The places it passes.
    pub points: Vec<CurvePoint>,
    /// Whether the line is dashed and its places are not marked.
    pub dashed: bool,
}

/// A place of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// From left to right.
    pub x: f64,
    /// The height of the line.
    pub y: f64,
    /// The lower edge of the band.
    pub low: f64,
    /// The upper edge of the band.
    pub high: f64,
}

/// Draws curves in a frame with two axes, below a title if there is one, and in grey a line through the places of `front`.
///
/// # Errors
/// Those of the drawing library.
pub fn curves(
    area: &Area<'_>,
    title: Option<&str>,
    (x, y): (&Axis, &Axis),
    curves: &[Curve],
    front: &[(f64, f64)],
) -> Result<(), PlotError> {
    // Powers of two where those of ten are too few to read a place from.
    let logarithmic = |axis: &Axis| {
        let base = if axis.high < 1000.0 * axis.low { 2.0 } else { 10.0 };
        (axis.low..axis.high).log_scale().base(base)
    };
    let even = |axis: &Axis| axis.low..axis.high;
    match (x.logarithmic, y.logarithmic) {
        (false, false) => draw(area, title, (x, even(x)), (y, even(y)), curves, front),
        (false, true) => draw(area, title, (x, even(x)), (y, logarithmic(y)), curves, front),
        (true, false) => draw(area, title, (x, logarithmic(x)), (y, even(y)), curves, front),
        (true, true) => draw(area, title, (x, logarithmic(x)), (y, logarithmic(y)), curves, front),
    }
}

fn draw<X, Y>(
    area: &Area<'_>,
    title: Option<&str>,
    (x, x_range): (&Axis, X),
    (y, y_range): (&Axis, Y),
    curves: &[Curve],
    front: &[(f64, f64)],
) -> Result<(), PlotError>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut builder = ChartBuilder::on(area);
    if let Some(title) = title {
        builder.caption(title, ("sans-serif", 18));
    }
    let mut chart = builder.margin(10).x_label_area_size(42).y_label_area_size(70).build_cartesian_2d(x_range, y_range)?;
    chart
        .configure_mesh()
        .x_desc(&x.name)
        .y_desc(&y.name)
        .x_labels(8)
        .y_labels(7)
        .x_label_formatter(&|value| short_number(*value))
        .y_label_formatter(&|value| short_number(*value))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 16))
        .max_light_lines(0)
        .draw()?;
    if front.len() > 1 {
        chart.draw_series(LineSeries::new(front.iter().copied(), FRONT.stroke_width(2)))?;
    }
    // Few points are measurements that the eye should find.
    let is_dotted = curves.iter().all(|curve| curve.points.len() <= 30);
    for Curve { colour: index, points, dashed } in curves {
        let colour = colour(*index);
        if *dashed {
            let places = points.iter().map(|point| (point.x, point.y));
            chart.draw_series(DashedLineSeries::new(places, 6, 5, colour.stroke_width(2)))?;
            continue;
        }
        if points.iter().any(|point| point.low < point.high) {
            let upper = points.iter().map(|point| (point.x, point.high));
            let lower = points.iter().rev().map(|point| (point.x, point.low));
            chart.draw_series([Polygon::new(upper.chain(lower).collect::<Vec<_>>(), colour.mix(0.18).filled())])?;
        }
        chart.draw_series(LineSeries::new(points.iter().map(|point| (point.x, point.y)), colour.stroke_width(2)))?;
        // A single point would be invisible as a line.
        if is_dotted || points.len() == 1 {
            chart.draw_series(points.iter().map(|point| Circle::new((point.x, point.y), 3, colour.filled())))?;
        }
    }
    Ok(())
}

/// Values of one row, in the colour of its number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dots {
    /// What the row is called.
    pub name: String,
    /// Number of its colour.
    pub colour: usize,
    /// The values; their order says nothing.
    pub values: Vec<f64>,
}

/// The height in pixels that [`dots`] needs for so many rows.
pub fn dots_height(rows: usize) -> u32 {
    80 + LINE * rows as u32
}

/// Draws rows of values below each other: each value is a dot, their mean a stroke.
///
/// # Errors
/// Those of the drawing library.
pub fn dots(area: &Area<'_>, x: &Axis, rows: &[Dots]) -> Result<(), PlotError> {
    let width = legend_width(rows.iter().map(|row| row.name.as_str()));
    let mut builder = ChartBuilder::on(area);
    let height = -0.5..rows.len() as f64 - 0.5;
    let mut chart = builder.margin(10).margin_left(width).x_label_area_size(42).build_cartesian_2d(x.low..x.high, height)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&x.name).x_labels(8).x_label_formatter(&|value| short_number(*value)).disable_y_mesh().disable_y_axis();
    mesh.label_style(("sans-serif", 14)).axis_desc_style(("sans-serif", 16)).max_light_lines(0).draw()?;
    for (place, row) in rows.iter().rev().enumerate() {
        let (y, colour) = (place as f64, colour(row.colour));
        let (_, middle) = chart.backend_coord(&(x.low, y));
        area.draw(&Text::new(row.name.clone(), (10, middle - 8), ("sans-serif", 15).into_font()))?;
        chart.draw_series(row.values.iter().map(|value| Circle::new((*value, y), 5, colour.mix(0.6).filled())))?;
        if let Some(Spread { mean, .. }) = Spread::of(&row.values) {
            chart.draw_series([PathElement::new(vec![(mean, y - 0.35), (mean, y + 0.35)], colour.stroke_width(3))])?;
        }
    }
    Ok(())
}

/// A number with at most three digits after the first that is not zero, and none after the point that say nothing.
fn short_number(value: f64) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let digits = (3.0 - magnitude).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    if text == "-0" { "0".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markup::tests::assert_holds;

    fn points(values: &[(f64, f64, f64, f64)]) -> Vec<CurvePoint> {
        values.iter().map(|&(x, y, low, high)| CurvePoint { x, y, low, high }).collect()
    }

    #[test]
    fn neighbouring_colours_differ_in_hue_and_lightness() {
        for index in 0..20 {
            let (HSLColor(a, _, light), HSLColor(b, _, other)) = (colour(index), colour(index + 1));
            let apart = (a - b).abs();
            assert!(apart.min(1.0 - apart) > 0.2 && light != other);
        }
    }

    #[test]
    fn an_axis_needs_a_number_and_turns_to_powers_where_they_are_far_apart() {
        assert_eq!(Axis::over("x", [f64::NAN, f64::INFINITY]), None);
        let point = Axis::over("x", [f64::NAN, 0.0]).unwrap();
        assert!(point.is_point() && !point.with_margin().is_point());
        let near = Axis::over("x", [1.0, 2.0, f64::NAN]).unwrap().with_margin();
        assert!(!near.logarithmic && near.low < 1.0 && near.high > 2.0);
        assert!(Axis::over("x", [1.0, 21.0]).unwrap().with_margin().logarithmic);
        assert!(!Axis::over("x", [-1.0, 21.0]).unwrap().with_margin().logarithmic);
    }

    #[test]
    fn curves_have_bands_where_seeds_differ_and_names_on_the_right() {
        let single = Curve { colour: 0, points: points(&[(0.0, 3.0, 3.0, 3.0), (10.0, 1.0, 1.0, 1.0)]), dashed: false };
        let several = Curve { colour: 1, points: points(&[(0.0, 3.0, 2.0, 4.0), (10.0, 1.0, 0.5, 1.5)]), dashed: false };
        let axes = (Axis::over("steps", [0.0, 10.0]).unwrap(), Axis::over("loss", [0.5, 4.0]).unwrap().with_margin());
        let draw = |all: &[Curve]| picture((400, 300), |area| curves(area, Some("a title"), (&axes.0, &axes.1), all, &[])).unwrap();
        assert_eq!(draw(std::slice::from_ref(&single)).matches("<polygon").count(), 0);
        let picture_of_both = draw(&[single, several]);
        assert_eq!(picture_of_both.matches("<polygon").count(), 1);
        assert_holds(&picture_of_both, &["a title", "steps", "loss"]);
        let list =
            picture((legend_width(["dot-product", "a"]), legend_height(2)), |area| legend(area, [(0, "dot-product"), (5, "a")])).unwrap();
        assert!(list.contains("dot-product") && list.matches("<polyline").count() == 2, "{list}");
    }

    #[test]
    fn a_front_is_a_grey_line_and_both_axes_may_be_powers() {
        let curve = |x: f64, y: f64| Curve { colour: 0, points: points(&[(x, y, y, y)]), dashed: false };
        let all = [curve(10.0, 1.0), curve(100.0, 50.0), curve(1000.0, 90.0)];
        let axis = |name: &str, of: fn(&Curve) -> f64| Axis::over(name, all.iter().map(of)).unwrap().with_margin();
        let (x, y) = (axis("bytes", |curve| curve.points[0].x), axis("accuracy", |curve| curve.points[0].y));
        assert!(x.logarithmic && y.logarithmic);
        let draw = |front: &[(f64, f64)]| picture((400, 300), |area| curves(area, None, (&x, &y), &all, front)).unwrap();
        let with = draw(&[(10.0, 1.0), (1000.0, 90.0)]);
        assert!(with.contains("#969696") && !draw(&[(10.0, 1.0)]).contains("#969696"), "{with}");
        let places: Vec<f64> = with.split("<circle cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
        let [first, second, third] = places[..] else { panic!("{places:?}") };
        assert!(((second - first) - (third - second)).abs() <= 2.0, "{places:?}");
    }

    #[test]
    fn every_value_of_a_row_is_a_dot_and_their_mean_a_stroke() {
        let row = |name: &str, colour: usize, values: &[f64]| Dots { name: name.into(), colour, values: values.to_vec() };
        let rows = [row("dot-product", 0, &[1.0, 2.0, 4.0]), row("<none>", 1, &[]), row("dense", 2, &[3.0])];
        let x = Axis::over("BLEU", rows.iter().flat_map(|row| row.values.clone())).unwrap().with_margin();
        let drawn = picture((700, dots_height(rows.len())), |area| dots(area, &x, &rows)).unwrap();
        assert_eq!(drawn.matches("<circle").count(), 4);
        assert_eq!(drawn.matches("stroke-width=\"3\"").count(), 2, "{drawn}");
        assert_holds(&drawn, &["BLEU", "dot-product", "&lt;none&gt;", "dense"]);
        let height = |name: &str| {
            let text = drawn.split("<text").find(|text| text.contains(name)).unwrap();
            text.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap()
        };
        assert!(height("dot-product") < height("dense"), "rows stand in their order: {drawn}");
    }

    #[test]
    fn numbers_of_axes_are_short() {
        let texts = [0.0, 1500.0, 0.25, -2.5, 123_456.0, 0.000_123_4, 1.0 / 3.0, -1e-12].map(short_number);
        assert_eq!(texts, ["0", "1500", "0.25", "-2.5", "123456", "0.0001234", "0.3333", "0"]);
    }
}
