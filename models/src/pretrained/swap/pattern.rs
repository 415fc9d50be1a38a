//! Selection of layers in a stack.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use thiserror::Error;

/// Accepted forms.
const FORMS: &str =
    "write layers.* for all, layers.0,2 for some or layers.1-3 for a range, with .attention behind it or not; the first layer is 0";

/// An invalid layer selection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerPatternError {
    /// Invalid syntax.
    #[error("layers `{text}`: {problem}; {FORMS}")]
    Syntax {
        /// The given text.
        text: String,
        /// The problem.
        problem: String,
    },
    /// A layer outside of the model.
    #[error("layers `{pattern}`: the model has no layer {layer}; give layers from 0 to {}", count.saturating_sub(1))]
    NoLayer {
        /// The given pattern.
        pattern: LayerPattern,
        /// The layer.
        layer: usize,
        /// Number of layers of the model.
        count: usize,
    },
}

/// Layers of a stack: `layers.*`, `layers.0,2`, `layers.1-3`, or combined, `layers.0,2-4`, with an optional suffix `.attention`. Layers count from 0, and
/// ranges include both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerPattern(Option<Vec<RangeInclusive<usize>>>);

impl LayerPattern {
    /// All layers.
    pub const ALL: Self = Self(None);

    /// Selected layers of a stack of `count` layers, in order.
    ///
    /// # Errors
    /// [`LayerPatternError::NoLayer`] for a layer that does not exist.
    pub fn layers(&self, count: usize) -> Result<Vec<usize>, LayerPatternError> {
        let Some(ranges) = &self.0 else { return Ok((0..count).collect()) };
        let highest = ranges.iter().map(|range| *range.end()).max();
        if let Some(layer) = highest.filter(|highest| *highest >= count) {
            return Err(LayerPatternError::NoLayer { pattern: self.clone(), layer, count });
        }
        Ok((0..count).filter(|layer| ranges.iter().any(|range| range.contains(layer))).collect())
    }
}

impl FromStr for LayerPattern {
    type Err = LayerPatternError;

    fn from_str(text: &str) -> Result<Self, LayerPatternError> {
        let refuse = |problem: String| LayerPatternError::Syntax { text: text.to_owned(), problem };
        let which = text.strip_suffix(".attention").unwrap_or(text);
        let Some(which) = which.strip_prefix("layers.") else { return Err(refuse("it does not begin with `layers.`".to_owned())) };
        if which == "*" {
            return Ok(Self::ALL);
        }
        let number = |digits: &str| match digits.parse::<usize>() {
            Ok(number) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
            _ => Err(refuse(format!("`{digits}` is not the number of a layer"))),
        };
        let range = |part: &str| match part.split_once('-') {
            None => number(part).map(|layer| layer..=layer),
            Some((first, last)) => match (number(first)?, number(last)?) {
                (first, last) if first <= last => Ok(first..=last),
                _ => Err(refuse(format!("the range `{part}` ends before it begins"))),
            },
        };
        which.split(',').map(range).collect::<Result<_, _>>().map(|ranges| Self(Some(ranges)))
    }
}

impl fmt::Display for LayerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ranges) = &self.0 else { return f.write_str("layers.*") };
        for (index, range) in ranges.iter().enumerate() {
            f.write_str(if index == 0 { "layers." } else { "," })?;
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{first}")?,
                (first, last) => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> LayerPattern {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn patterns_mean_all_some_or_a_range_of_layers() {
        for (text, shown, layers) in [
            ("layers.*.attention", "layers.*", vec![0, 1, 2, 3]),
            ("layers.*", "layers.*", vec![0, 1, 2, 3]),
            ("layers.2", "layers.2", vec![2]),
            ("layers.0,2.attention", "layers.0,2", vec![0, 2]),
            ("layers.1-3", "layers.1-3", vec![1, 2, 3]),
            ("layers.3,0-1,1", "layers.3,0-1,1", vec![0, 1, 3]),
        ] {
            let read = pattern(text);
            assert_eq!((read.to_string().as_str(), read.layers(4)), (shown, Ok(layers)), "{text}");
            assert_eq!(pattern(shown), read);
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_forms() {
        for (text, part) in [
            ("layer.*", "begin with `layers.`"),
            ("layers", "begin with `layers.`"),
            ("", "begin with `layers.`"),
            ("layers.", "`` is not the number"),
            ("layers.one", "`one`"),
            ("layers.+1", "`+1`"),
            ("layers.1,", "`` is not the number"),
            ("layers.3-1", "`3-1` ends before it begins"),
            ("layers.-1", "`` is not the number"),
            ("layers.0.feed_forward", "`0.feed_forward`"),
            ("layers.99999999999999999999", "not the number"),
        ] {
            let error = text.parse::<LayerPattern>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("layers.0,2"), "{text}: {error}");
        }
        let error = pattern("layers.0,4").layers(4).unwrap_err().to_string();
        assert!(error.contains("`layers.0,4`") && error.contains("no layer 4") && error.contains("0 to 3"), "{error}");
    }
}
