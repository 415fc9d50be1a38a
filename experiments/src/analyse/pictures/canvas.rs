//! A drawing in SVG: rectangles, lines, text and embedded pixels, in units of a pixel.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt::{self, Display, Write};

/// The ink of text and axes.
pub(super) const INK: &str = "#222222";
/// The ink of frames and grids.
pub(super) const FAINT: &str = "#bbbbbb";

/// Where a text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub anchor: Anchor,
    pub size: f64,
    pub is_bold: bool,
    /// Whether all characters are of one width, as the labels of tokens are.
    pub is_token: bool,
    /// Whether the text runs upwards.
    pub is_upright: bool,
    pub ink: &'static str,
}

impl Style {
    /// Plain text.
    pub(super) const fn plain(anchor: Anchor, size: f64) -> Self {
        Self { anchor, size, is_bold: false, is_token: false, is_upright: false, ink: INK }
    }

    /// A title.
    pub(super) const fn title(size: f64) -> Self {
        Self { is_bold: true, ..Self::plain(Anchor::Start, size) }
    }

    /// The label of a token.
    pub(super) const fn token(anchor: Anchor) -> Self {
        Self { is_token: true, ..Self::plain(anchor, TOKEN_SIZE) }
    }
}

/// Font size of the labels of tokens.
pub(super) const TOKEN_SIZE: f64 = 10.0;

/// A coordinate with two decimals at most.
struct Units(f64);

impl Display for Units {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The sum turns -0 into 0.
        write!(formatter, "{}", (self.0 * 100.0).round() / 100.0 + 0.0)
    }
}

/// A drawing that grows downwards.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    body: String,
}

impl Canvas {
    /// A filled rectangle.
    pub(super) fn rectangle(&mut self, [x, y, width, height]: [f64; 4], fill: &str) {
        let (x, y, width, height) = (Units(x), Units(y), Units(width), Units(height));
        self.push(format_args!(r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>"#));
    }

    /// The outline of a rectangle.
    pub(super) fn frame(&mut self, [x, y, width, height]: [f64; 4]) {
        let (x, y, width, height) = (Units(x), Units(y), Units(width), Units(height));
        self.push(format_args!(r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="none" stroke="{FAINT}"/>"#));
    }

    /// A straight line.
    pub(super) fn line(&mut self, [from_x, from_y]: [f64; 2], [to_x, to_y]: [f64; 2], ink: &str) {
        let (x1, y1, x2, y2) = (Units(from_x), Units(from_y), Units(to_x), Units(to_y));
        self.push(format_args!(r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{ink}"/>"#));
    }

    /// A line of text; `y` is its base line, or `x` for upright text.
    pub(super) fn text(&mut self, [x, y]: [f64; 2], text: &str, style: Style) {
        let (x, y, size) = (Units(x), Units(y), Units(style.size));
        let anchor = match style.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if style.is_bold { r#" font-weight="bold""# } else { "" };
        let class = if style.is_token { r#" class="token""# } else { "" };
        let turn = if style.is_upright { format!(r#" transform="rotate(-90 {x} {y})""#) } else { String::new() };
        let (ink, text) = (style.ink, escaped(text));
        self.push(format_args!(
            r#"<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{ink}"{weight}{class}{turn}>{text}</text>"#
        ));
    }

    /// Pixels of a PNG file, stretched without blur.
    pub(super) fn pixels(&mut self, [x, y, width, height]: [f64; 4], png: &[u8]) {
        let (x, y, width, height, data) = (Units(x), Units(y), Units(width), Units(height), BASE64_STANDARD.encode(png));
        self.push(format_args!(
            r#"<image x="{x}" y="{y}" width="{width}" height="{height}" style="image-rendering:pixelated" xlink:href="data:image/png;base64,{data}"/>"#
        ));
    }

    /// A rectangle whose colour changes from left to right, through equally spaced `stops`.
    pub(super) fn gradient(&mut self, place: [f64; 4], stops: &[String]) {
        let last = stops.len().saturating_sub(1).max(1) as f64;
        let stop = |(index, colour): (usize, &String)| format!(r#"<stop offset="{}" stop-color="{colour}"/>"#, Units(index as f64 / last));
        let stops: String = stops.iter().enumerate().map(stop).collect();
        self.push(format_args!(r#"<linearGradient id="scale">{stops}</linearGradient>"#));
        self.rectangle(place, "url(#scale)");
    }

    /// The file: everything drawn, on white, with a title for readers that do not see it.
    pub(super) fn finish(self, title: &str, [width, height]: [f64; 2]) -> String {
        let (width, height, title) = (width.ceil(), height.ceil(), escaped(title));
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{0}" height="{1}" viewBox="0 0 {0} {1}" "#,
                r#"font-family="DejaVu Sans, Verdana, Helvetica, Arial, sans-serif">"#,
                "\n<title>{2}</title>\n<style>.token {{ font-family: DejaVu Sans Mono, Menlo, Consolas, monospace }}</style>\n",
                r#"<rect width="{0}" height="{1}" fill="white"/>"#,
                "\n{3}</svg>\n"
            ),
            width, height, title, self.body
        )
    }

    fn push(&mut self, element: fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{element}");
    }
}

/// How wide a text is at most, by guess: letters of other scripts than Latin, Greek, Cyrillic, Hebrew and Arabic are taken for square.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| if (character as u32) < 0x1100 { 0.62 } else { 1.05 }).sum::<f64>() * size
}

/// The beginning of a text that is at most so wide, with an ellipsis if that is not all.
pub(super) fn shortened(text: &str, size: f64, most: f64) -> String {
    if width(text, size) <= most {
        return text.to_owned();
    }
    let mut short = String::new();
    for character in text.chars() {
        short.push(character);
        if width(&short, size) + 0.62 * size > most {
            short.pop();
            break;
        }
    }
    short + "…"
}

/// A token with its white space made visible.
pub(super) fn visible(token: &str) -> String {
    let character = |character: char| match character {
        ' ' => '␣',
        '\n' => '⏎',
        '\t' => '⇥',
        other => other,
    };
    token.chars().map(character).collect()
}

/// Text of XML. What XML 1.0 cannot hold, such as control characters, becomes U+FFFD.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The texts of a drawing, after a check that its tags are closed in order and its text is escaped.
    pub(crate) fn texts(svg: &str) -> Vec<String> {
        let (mut open, mut texts) = (Vec::new(), Vec::new());
        let mut rest = svg;
        while let Some(at) = rest.find('<') {
            let (text, tag) = rest.split_at(at);
            assert!(!text.contains('>'), "a stray > in {text}");
            for entity in text.split('&').skip(1) {
                assert!(["lt;", "gt;", "amp;", "quot;"].iter().any(|known| entity.starts_with(known)), "&{entity}");
            }
            assert!(text.chars().all(|character| !character.is_control() || character == '\n'), "{text:?}");
            if open.last() == Some(&"text") {
                texts.push(text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"));
            }
            let end = tag.find('>').expect("a tag is closed");
            let inside = &tag[1..end];
            assert!(inside.matches('"').count().is_multiple_of(2) && !inside.contains('<'), "{inside}");
            match inside.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if inside.ends_with('/') => {}
                None => open.push(inside.split(' ').next().expect("a tag has a name")),
            }
            rest = &tag[end + 1..];
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
        texts
    }

    #[test]
    fn what_would_break_the_file_is_escaped() {
        let mut canvas = Canvas::default();
        canvas.text([0.0, 0.0], "a<b & \"c\">\u{1}\u{ffff}</text>", Style::plain(Anchor::Start, 12.0));
        let svg = canvas.finish("<title> & more", [10.0, 10.0]);
        assert_eq!(texts(&svg), ["a<b & \"c\">\u{fffd}\u{fffd}</text>"]);
        assert!(svg.contains("<title>&lt;title&gt; &amp; more</title>"), "{svg}");
    }

    #[test]
    fn coordinates_have_two_decimals_at_most() {
        assert_eq!([1.0, 0.125, -0.001, 1e7].map(|value| Units(value).to_string()), ["1", "0.13", "0", "10000000"]);
    }

    #[test]
    fn texts_are_cut_to_their_room() {
        assert_eq!(shortened("short", 10.0, 100.0), "short");
        let cut = shortened("a long text of many words", 10.0, 50.0);
        assert!(cut.ends_with('…') && cut.starts_with("a long"), "{cut}");
        assert!(width(&shortened("漢字漢字漢字", 10.0, 40.0), 10.0) <= 50.0);
        assert_eq!(visible("a b\n\t"), "a␣b⏎⇥");
    }
}
