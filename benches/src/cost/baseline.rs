//! Comparison with an earlier run, which shows whether something became slower.
//!
//! Times are compared in units of a reference in the same rounds, so that a slower machine does not look like slower code, and by their medians.

use std::fmt;

use clap::ValueEnum;

use super::crossover::DENSE;
use super::outcome::{Outcome, Point};
use crate::markdown::significant;
use crate::statistics::{Quartiles, ratios};

/// The unit of compared times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// The product of two matrices, for an earlier run of the same machine
    #[default]
    Yardstick,
    /// Dot-product attention, and the yardstick for dot-product attention itself: the earlier run may be of another machine with this kind of processor
    DotProduct,
}

impl Unit {
    /// Seconds below which a point, or dot-product attention beside it, is not compared with another machine: what interrupts a run takes tens of microseconds.
    const SHORTEST: f64 = 1e-4;

    /// The median over rounds of a time in this unit, and the name of the unit; none if the point was not measured, or cannot be compared.
    fn of(self, outcome: &Outcome, point: &Point) -> Option<(f64, &'static str)> {
        let median = |seconds: &[f64]| Quartiles::of(seconds).map(|quartiles| quartiles.median);
        let in_yardsticks = || Some((median(&ratios(&point.seconds, &point.yardstick))?, "the yardstick"));
        let is_long = |seconds: &[f64]| median(seconds).is_some_and(|seconds| seconds >= Self::SHORTEST);
        match self {
            Self::Yardstick => in_yardsticks(),
            Self::DotProduct if point.attention == DENSE => in_yardsticks().filter(|_| is_long(&point.seconds)),
            Self::DotProduct => {
                let like = Point::new(&point.backend, DENSE, point.pass, point.length);
                let dense = outcome.points.iter().find(|other| other.is_like(&like))?;
                let is_long = is_long(&point.seconds) && is_long(&dense.seconds);
                is_long.then(|| Some((median(&ratios(&point.seconds, &dense.seconds))?, DENSE))).flatten()
            }
        }
    }
}

/// A point in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What was measured.
    pub point: Point,
    /// Its time now, in units.
    pub now: f64,
    /// That of the earlier run, in its units.
    pub before: f64,
    /// The unit.
    pub unit: &'static str,
}

impl Change {
    /// The time now over that of the earlier run, both in units.
    pub fn ratio(&self) -> f64 {
        self.now / self.before
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point: Point { backend, attention, pass, length, .. }, unit, .. } = self;
        let [now, before] = [self.now, self.before].map(significant);
        write!(f, "{backend}, {pass}, {attention} at {length}: {now} times as long as {unit}, and {before} times in the baseline")
    }
}

/// The changes of all points that both runs have; none if their sizes or numbers differ.
pub fn changes(now: &Outcome, earlier: &Outcome, unit: Unit) -> Vec<Change> {
    if !now.is_comparable(earlier) {
        return Vec::new();
    }
    let change = |point: &Point| {
        let before = earlier.points.iter().find(|other| other.is_like(point))?;
        let ((now, name), (before, _)) = (unit.of(now, point)?, unit.of(earlier, before)?);
        Some(Change { point: point.clone(), now, before, unit: name })
    };
    now.points.iter().filter_map(change).collect()
}

/// The changes that pass `threshold`, the greatest first.
pub fn regressions(changes: &[Change], threshold: f64) -> Vec<&Change> {
    let mut slower: Vec<&Change> = changes.iter().filter(|change| change.ratio() >= threshold).collect();
    slower.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    slower
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::outcome::tests::outcome;

    /// The same on a machine that takes `machine` times as long, where some points take longer still.
    fn slowed(machine: f64, by: impl Fn(&Point) -> f64) -> Outcome {
        let mut now = outcome();
        for point in &mut now.points {
            let factor = by(point);
            point.seconds.iter_mut().for_each(|seconds| *seconds *= machine * factor);
            point.yardstick.iter_mut().for_each(|seconds| *seconds *= machine);
        }
        now
    }

    #[test]
    fn what_became_slower_is_found_on_a_slower_machine_too() {
        let now = slowed(3.0, |point| if point.attention == "local-1d" && point.length == 256 { 2.0 } else { 1.0 });
        for unit in [Unit::Yardstick, Unit::DotProduct] {
            let changes = changes(&now, &outcome(), unit);
            assert_eq!(changes.len(), 8, "what has no times is not compared");
            let slower = regressions(&changes, 1.3);
            assert_eq!(slower.len(), 1, "{unit:?}");
            assert!((slower[0].ratio() - 2.0).abs() < 1e-9 && slower[0].point.length == 256);
            assert!(regressions(&changes, 2.5).is_empty());
        }
    }

    #[test]
    fn a_machine_that_is_slower_at_everything_but_products_does_not_look_like_slower_code() {
        let mut now = slowed(5.0, |_| 1.0);
        now.points.iter_mut().for_each(|point| point.yardstick.iter_mut().for_each(|seconds| *seconds /= 4.0));
        assert_eq!(regressions(&changes(&now, &outcome(), Unit::Yardstick), 2.0).len(), 8);
        let by_ratios = changes(&now, &outcome(), Unit::DotProduct);
        let names: Vec<&str> = regressions(&by_ratios, 2.0).iter().map(|change| change.point.attention.as_str()).collect();
        assert_eq!((by_ratios.len(), names), (8, vec![DENSE; 4]), "it is compared with the product itself");
    }

    #[test]
    fn slower_dot_product_attention_is_found_and_does_not_hide_behind_its_own_ratio() {
        let changes = changes(&slowed(1.0, |point| if point.attention == DENSE { 4.0 } else { 1.0 }), &outcome(), Unit::DotProduct);
        let slower = regressions(&changes, 2.0);
        assert!(slower.len() == 4 && slower.iter().all(|change| change.point.attention == DENSE && change.unit == "the yardstick"));
        assert!(changes.iter().any(|change| change.unit == DENSE && (change.ratio() - 0.25).abs() < 1e-9));
    }

    #[test]
    fn points_that_an_interruption_changes_are_not_compared_by_ratios() {
        let now = slowed(1.0, |point| if point.attention == "local-1d" && point.length == 64 { 0.05 } else { 1.0 });
        let compared = |unit| changes(&now, &outcome(), unit).len();
        assert_eq!((compared(Unit::DotProduct), compared(Unit::Yardstick)), (7, 8), "it takes 58 microseconds");
    }

    #[test]
    fn a_change_names_the_point_and_both_ratios() {
        let now = slowed(1.0, |point| if point.attention == "local-1d" { 3.0 } else { 1.0 });
        let changes = changes(&now, &outcome(), Unit::DotProduct);
        let text = regressions(&changes, 2.0).iter().find(|change| change.point.length == 512).unwrap().to_string();
        let expected = "flex, training, local-1d at 512: 1.06 times as long as dot-product, and 0.354 times in the baseline";
        assert_eq!(text, expected);
    }
}
