//! Comparison with an earlier run, which tells whether something became slower.
//!
//! Times are compared in units of the yardstick of the same rounds, so that a machine that is slower today does not look like code that is, and by their
//! medians.

use super::outcome::{Outcome, Point};
use crate::markdown::{self, significant};
use crate::statistics::{Quartiles, ratios};

/// A point in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What was measured.
    pub point: Point,
    /// Its time now over that of the earlier run, both in units of the yardstick.
    pub ratio: f64,
}

/// The changes of all points that both runs have; none if their sizes or numbers differ.
pub fn changes(now: &Outcome, earlier: &Outcome) -> Vec<Change> {
    if !now.is_comparable(earlier) {
        return Vec::new();
    }
    let relative = |point: &Point| Quartiles::of(&ratios(&point.seconds, &point.yardstick)).map(|quartiles| quartiles.median);
    let change = |point: &Point| {
        let before = relative(earlier.points.iter().find(|other| other.is_like(point))?)?;
        Some(Change { point: point.clone(), ratio: relative(point)? / before })
    };
    now.points.iter().filter_map(change).collect()
}

/// The changes that pass `threshold`, the greatest first.
pub fn regressions(changes: &[Change], threshold: f64) -> Vec<&Change> {
    let mut slower: Vec<&Change> = changes.iter().filter(|change| change.ratio >= threshold).collect();
    slower.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    slower
}

/// A table of changes.
pub fn table(changes: &[&Change]) -> String {
    let row = |change: &&Change| {
        let Point { backend, attention, pass, length, .. } = &change.point;
        [backend.clone(), pass.title().to_owned(), attention.clone(), length.to_string(), significant(change.ratio)]
    };
    markdown::table(&["backend", "pass", "attention", "length", "time of baseline"], &changes.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::outcome::tests::outcome;

    #[test]
    fn what_became_slower_is_found_on_a_slower_machine_too() {
        let earlier = outcome();
        let mut now = outcome();
        for point in &mut now.points {
            let factor = if point.attention == "local-1d" && point.length == 256 { 2.0 } else { 1.0 };
            // The whole machine takes three times as long.
            point.seconds.iter_mut().for_each(|seconds| *seconds *= 3.0 * factor);
            point.yardstick.iter_mut().for_each(|seconds| *seconds *= 3.0);
        }
        let changes = changes(&now, &earlier);
        assert_eq!(changes.len(), 8, "what has no times is not compared");
        let slower = regressions(&changes, 1.3);
        assert_eq!(slower.len(), 1);
        assert!((slower[0].ratio - 2.0).abs() < 1e-9 && slower[0].point.length == 256);
        assert!(table(&slower).contains("| flex"));
        assert!(regressions(&changes, 2.5).is_empty());
    }
}
