//! From which length on a mechanism is faster than dot-product attention.

use std::fmt;

use super::outcome::Point;

/// What every mechanism is compared with.
pub const DENSE: &str = "dot-product";

/// Where a mechanism overtakes dot-product attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crossover {
    /// It is faster at every length that was measured.
    Always,
    /// It is slower at the greatest length that was measured.
    NotUpTo(usize),
    /// It is faster from about `at` on: it was slower at `after` and faster at `before` and beyond.
    Between {
        /// The greatest length at which it was slower.
        after: usize,
        /// The length at which the times are equal if both are powers of the length in between.
        at: f64,
        /// The next length, at which it was faster.
        before: usize,
    },
}

impl Crossover {
    /// The crossover of the mechanism's points and those of dot-product attention; `None` if they have no length in common, or if the mechanism is dot-product
    /// attention.
    pub fn of(points: &[&Point], attention: &str) -> Option<Self> {
        let median = |name: &str, length: usize| points.iter().find(|point| point.attention == name && point.length == length)?.median();
        if attention == DENSE {
            return None;
        }
        let mut lengths: Vec<usize> = points.iter().filter(|point| point.attention == attention).map(|point| point.length).collect();
        lengths.sort_unstable();
        let ratio = |&length: &usize| Some((length, median(attention, length)? / median(DENSE, length)?));
        let ratios: Vec<(usize, f64)> = lengths.iter().filter_map(ratio).collect();
        // Behind the last length at which it is slower.
        match ratios.iter().rposition(|&(_, ratio)| ratio >= 1.0) {
            None => (!ratios.is_empty()).then_some(Self::Always),
            Some(last) if last + 1 == ratios.len() => Some(Self::NotUpTo(ratios[last].0)),
            Some(last) => {
                let ((after, slower), (before, faster)) = (ratios[last], ratios[last + 1]);
                let share = slower.ln() / (slower.ln() - faster.ln());
                let at = (after as f64).ln() + share * ((before as f64).ln() - (after as f64).ln());
                Some(Self::Between { after, at: at.exp(), before })
            }
        }
    }
}

impl fmt::Display for Crossover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::NotUpTo(length) => write!(f, "not up to {length}"),
            Self::Between { after, at, before } => write!(f, "{at:.0} ({after} to {before})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::outcome::tests::outcome;
    use crate::cost::point::Pass;

    #[test]
    fn powers_cross_where_they_are_equal() {
        let outcome = outcome();
        let points = outcome.of("flex", Pass::Training);
        let Some(Crossover::Between { after, at, before }) = Crossover::of(&points, "local-1d") else { panic!() };
        assert!((after, before) == (128, 256) && (at - 181.0).abs() < 0.5, "{at}");
        assert_eq!(Crossover::of(&points[..2], "local-1d"), Some(Crossover::NotUpTo(64)));
        assert_eq!(Crossover::of(&points[4..], "local-1d"), Some(Crossover::Always));
        assert_eq!(Crossover::of(&points, "relative"), None);
    }
}
