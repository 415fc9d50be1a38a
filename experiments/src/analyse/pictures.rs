//! Pictures of an analysis, as SVG; those of weights also as PNG.
//!
//! The squares of weights, of which there may be millions, are pixels of an embedded PNG file; the rest is lines and text.

mod canvas;
mod charts;
mod colours;
mod map;
mod overlay;
mod pixels;
mod strip;

use std::io::Write;

use heedful_host::whole_files::{FileError, file_name};

use self::charts::{Bar, Column, Panel, Row};
use super::histogram::Histogram;
use super::image::ImageDistances;
use super::record::{Observed, State};
use super::statistics::{HeadStatistics, Mean, Places};
use super::{Analysis, Files, named};

/// Draws what was observed.
pub(super) fn write(analysis: &Analysis, files: &mut Files<'_>) -> Result<(), FileError> {
    let statistics = &analysis.statistics;
    let of_heads =
        |mean: fn(&HeadStatistics) -> Mean| panels(&statistics.heads, |head| Some(Bar { mean: mean(head).value()?, range: None }));
    let of_image = |distance: fn(&ImageDistances) -> Mean| {
        panels(&statistics.image, |distances| Some(Bar { mean: distance(distances).value()?, range: None }))
    };
    let in_pixels = "In pixels, weighted by the attention weights.";
    let spans = panels(&statistics.spans, |span| Some(Bar { mean: span.mean.value()?, range: Some([span.least, span.greatest]) }));
    for (name, sentence, unit, panels) in [
        (
            "entropy.svg",
            "Entropy of the attention of each head, mean over queries.",
            "In nats: 0 for one key, ln n for equal weights on n keys.",
            of_heads(|head| head.entropy),
        ),
        (
            "distance.svg",
            "Distance between query and key in each head of self-attention, mean over queries.",
            "In tokens, weighted by the attention weights.",
            of_heads(|head| head.distance),
        ),
        (
            "spans.svg",
            "The span of each head.",
            "In tokens; the bar is the mean, the line runs from the least to the greatest span.",
            spans,
        ),
        (
            "row-distance.svg",
            "Rows between a pixel that is generated and those that a head looks at, mean over pixels.",
            in_pixels,
            of_image(|distances| distances.rows),
        ),
        (
            "column-distance.svg",
            "Columns between a pixel that is generated and those that a head looks at, mean over pixels.",
            in_pixels,
            of_image(|distances| distances.columns),
        ),
    ] {
        if !panels.is_empty() {
            svg(files, name, sentence, &charts::bars(sentence.trim_end_matches('.'), unit, &panels))?;
        }
    }
    let states: Vec<State> = State::ALL.into_iter().filter(|state| analysis.has(*state)).collect();
    if !statistics.heads.is_empty() {
        let sentence = "Attention weights that are not 0, on two scales.";
        let picture = weight_histograms(&statistics.heads, sentence.trim_end_matches('.'), &states);
        svg(files, "histogram.svg", sentence, &picture)?;
    }
    if !statistics.gates.is_empty() {
        let sentence = "How far each gate is open, from 0 to 1.";
        svg(files, "gates.svg", sentence, &gate_histograms(analysis, sentence.trim_end_matches('.'), &states))?;
    }
    halting(analysis, files)?;
    maps(analysis, files)?;
    overlays(analysis, files)
}

fn svg(files: &mut Files<'_>, name: &str, sentence: &str, picture: &str) -> Result<(), FileError> {
    files.write(name, sentence, |file| file.write_all(picture.as_bytes()))
}

/// The bars of all modules that have any.
fn panels<T>(places: &Places<T>, bar: impl Fn(&T) -> Option<Bar>) -> Vec<Panel> {
    let panel = |module: &str| {
        let of_head = |head: usize| {
            let of_state = |state: State| Some((state, bar(places.get(state, module, head)?)?));
            State::ALL.into_iter().filter_map(of_state).collect()
        };
        Panel { title: named(module).into(), heads: (0..places.heads(module)).map(of_head).collect() }
    };
    places.modules().into_iter().map(panel).filter(|panel| panel.heads.iter().any(|bars| !bars.is_empty())).collect()
}

fn weight_histograms(heads: &Places<HeadStatistics>, title: &str, states: &[State]) -> String {
    type Scale = (&'static str, [&'static str; 3], fn(&HeadStatistics) -> &Histogram);
    let scales: [Scale; 2] =
        [("weight", ["0", "0.5", "1"], |head| &head.weights), ("log10 of weight", ["-8", "-4", "0"], |head| &head.logarithms)];
    let columns = scales.iter().enumerate().flat_map(|(group, (name, ticks, _))| {
        states.iter().map(move |&state| Column { heading: format!("{name}, {state}"), ticks: *ticks, group, state })
    });
    let row = |module: &str| {
        let of = |histogram: fn(&HeadStatistics) -> &Histogram, state: State| {
            let mut of_heads = (0..heads.heads(module)).filter_map(|head| heads.get(state, module, head)).map(histogram);
            let mut sum = of_heads.next()?.clone();
            of_heads.for_each(|other| sum.merge(other));
            let remark = outside(&sum);
            Some((sum, remark))
        };
        let histograms = scales.iter().flat_map(|(_, _, histogram)| states.iter().map(move |&state| of(*histogram, state))).collect();
        Row { title: named(module).into(), histograms }
    };
    let rows: Vec<Row> = heads.modules().into_iter().map(row).collect();
    let explanation = "Height: share of the weights of all heads. Keys that a query does not see are left out.";
    charts::histograms(title, explanation, &columns.collect::<Vec<_>>(), &rows)
}

/// How many values lie outside the range of a histogram, if any do.
fn outside(histogram: &Histogram) -> String {
    let (from, to) = histogram.range();
    let percent = |count: u64| number(100.0 * count as f64 / histogram.total() as f64);
    let below = (histogram.below() > 0).then(|| format!("{} % below {}", percent(histogram.below()), number(from)));
    let above = (histogram.above() > 0).then(|| format!("{} % above {}", percent(histogram.above()), number(to)));
    below.into_iter().chain(above).collect::<Vec<_>>().join(", ")
}

fn gate_histograms(analysis: &Analysis, title: &str, states: &[State]) -> String {
    let gates = &analysis.statistics.gates;
    let columns: Vec<Column> =
        states.iter().map(|&state| Column { heading: state.to_string(), ticks: ["0", "0.5", "1"], group: 0, state }).collect();
    let row = |module: &str| {
        let of = |state: &State| {
            let gate = gates.get(*state, module, 0)?;
            Some((gate.openings.clone(), format!("{:.3} ± {:.3}", gate.mean().value()?, gate.deviation()?)))
        };
        Row { title: named(module).into(), histograms: states.iter().map(of).collect() }
    };
    let rows: Vec<Row> = gates.modules().into_iter().map(row).collect();
    let explanation = "Height: share of the openings of all channels and positions; below it their mean and deviation.";
    charts::histograms(title, explanation, &columns, &rows)
}

fn halting(analysis: &Analysis, files: &mut Files<'_>) -> Result<(), FileError> {
    let state = analysis.shown();
    for &text in &analysis.pictured {
        let of_text: Vec<&Observed> = analysis.halting(state).filter(|observed| observed.text == text).collect();
        if !of_text.is_empty() {
            let title = format!("Halting steps of text {text}, {state}");
            svg(files, &format!("halting-text{text}.svg"), &format!("{title}."), &strip::draw(&of_text, &title))?;
        }
    }
    Ok(())
}

fn maps(analysis: &Analysis, files: &mut Files<'_>) -> Result<(), FileError> {
    for observed in analysis.maps() {
        let (module, text) = (named(&observed.module), observed.text);
        let title = format!("{module}, text {text}, {}", observed.state);
        let name = format!("maps/text{text}-{}", file_name(module));
        let [svg_name, png_name] = ["svg", "png"].map(|ending| format!("{name}.{ending}"));
        let map = map::draw(observed, &title).map_err(|source| FileError::write(files.folder.join(&png_name), source))?;
        svg(files, &svg_name, &format!("Weights of `{module}` for text {text}, with tokens."), &map.svg)?;
        files.write(&png_name, "The same without tokens.", |file| file.write_all(&map.png))?;
    }
    Ok(())
}

/// The weights of one pixel, laid over the image.
fn overlays(analysis: &Analysis, files: &mut Files<'_>) -> Result<(), FileError> {
    for (observed, image) in analysis.overlays() {
        let pixel = analysis.overlaid.pixel_of(image);
        if image.position(pixel).is_none() {
            continue;
        }
        let (module, text) = (named(&observed.module), observed.text);
        let title = format!("{module}, image {text}, {}", observed.state);
        let name = format!("maps/text{text}-{}-pixel.svg", file_name(module));
        let picture = overlay::draw(observed, image, pixel, &title);
        let picture = picture.map_err(|source| FileError::write(files.folder.join(&name), source))?;
        let [row, column] = pixel;
        svg(files, &name, &format!("Weights of `{module}` while row {row}, column {column} of image {text} is generated."), &picture)?;
    }
    Ok(())
}

/// A number with three digits that count, without zeros at its end.
fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (100.0..1e6).contains(&size) {
        return format!("{value:.0}");
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.1e}");
    }
    let decimals = (2.0 - size.log10().floor()) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let values = [0.0, 1.0, 0.5, 0.12345, 12.345, 640.0, 12_345.6, 0.001, 0.00012, 2e7, 9.999, 100.0, -4.0];
        let texts = ["0", "1", "0.5", "0.123", "12.3", "640", "12346", "0.001", "1.2e-4", "2.0e7", "10", "100", "-4"];
        assert_eq!(values.map(number), texts);
    }

    #[test]
    fn values_outside_the_range_are_mentioned() {
        let mut histogram = Histogram::new(-8.0, 0.0, 4);
        [-9.0, -1.0, -2.0, 0.5].into_iter().for_each(|value| histogram.add(value));
        assert_eq!(outside(&histogram), "25 % below -8, 25 % above 0");
        assert_eq!(outside(&Histogram::new(0.0, 1.0, 1)), "");
    }
}
