//! What a table says of trivial baselines: what they are, and which of its rows are no better.

use heedful_metrics::MetricColumn;
use heedful_metrics::significance::mean_interval;

use super::candidates::AVERAGING;
use super::group::Row;
use super::table::Comparison;

impl Comparison<'_> {
    /// Sentences on the trivial baselines below the table; none where there are no such rows.
    pub fn trivial_notes(&self) -> Vec<String> {
        let trivial = &self.group.trivial;
        if trivial.is_empty() {
            return Vec::new();
        }
        let what = trivial.iter().map(|(name, baseline)| format!("{name}: {}", baseline.description));
        let mut notes = vec![format!("Rows marked (trivial) are no trained models. {}", what.collect::<Vec<_>>().join(" "))];
        notes.extend(self.metrics.iter().filter_map(|metric| self.no_better(metric)));
        let is_averaging = |row: &Row<'_>| row.attention() == AVERAGING || row.records[0].is_model;
        if !self.group.rows.iter().any(is_averaging) {
            notes.push(format!(
                "The candidate {AVERAGING} is missing (--attention {AVERAGING}): the same model that averages shows what attention adds to it."
            ));
        }
        notes
    }

    /// A sentence on the rows that are not better in `metric` than the best trivial baseline, whatever it is; none if all are.
    fn no_better(&self, metric: &MetricColumn) -> Option<String> {
        let Unbeaten { name, score, rows, .. } = self.unbeaten(metric)?;
        (!rows.is_empty()).then(|| format!("{}: not better than {name} with {score}: {}.", metric.label, rows.join(", ")))
    }

    /// The best trivial baseline of `metric`; `None` without one, and for scores that chose the checkpoint.
    pub(super) fn unbeaten(&self, metric: &MetricColumn) -> Option<Unbeaten<'_>> {
        let higher = judges_higher(metric)?;
        let is_better = |one: f64, other: f64| if higher { one > other } else { one < other };
        let values = self.group.trivial.iter().filter_map(|(name, baseline)| Some((name, baseline.metric(&metric.name)? * metric.factor)));
        let (name, best) = values.reduce(|best, other| if is_better(other.1, best.1) { other } else { best })?;
        let percent = (1000.0 * self.confidence()).round() / 10.0;
        let shown = |value: f64| format!("{value:.*}", metric.digits);
        let told = |row: &Row<'_>| {
            let values = row.values(metric);
            let spread = row.spread(metric)?;
            let (is_beaten, evidence) = match mean_interval(&values, self.confidence()) {
                Some([low, high]) => (
                    is_better(low, best) && is_better(high, best),
                    format!("{percent} % interval over seeds {} to {}", shown(low), shown(high)),
                ),
                None => (is_better(spread.mean, best), if values.len() == 1 { "one seed" } else { "all seeds equal" }.to_owned()),
            };
            (!is_beaten).then(|| format!("{} ({}, {evidence})", row.name, shown(spread.mean)))
        };
        let scored = self.group.rows.iter().filter(|row| row.spread(metric).is_some()).count();
        Some(Unbeaten { name, score: shown(best), scored, rows: self.group.rows.iter().filter_map(told).collect() })
    }
}

/// Whether more is better in a metric that judges rows; `None` for others. Scores of a validation set chose the checkpoint, and those of its test set are beside
/// them.
pub(super) fn judges_higher(metric: &MetricColumn) -> Option<bool> {
    metric.higher_is_better.filter(|_| !metric.name.starts_with("valid "))
}

/// A trivial baseline and the rows that do not beat it.
pub(super) struct Unbeaten<'a> {
    /// What the table calls the baseline.
    pub(super) name: &'a str,
    /// Its score as printed.
    pub(super) score: String,
    /// How many rows have the score.
    pub(super) scored: usize,
    /// The rows with their scores and the evidence.
    pub(super) rows: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::{record, source};
    use super::super::options::tests::options;
    use super::super::runs::RunSource;
    use super::super::significance::TestOutcome;
    use super::super::table::tests::comparison;
    use super::super::{CompareOptions, group, render};
    use super::*;
    use crate::trivial::TrivialBaseline;

    fn baseline(name: &str, bleu: f64) -> TrivialBaseline {
        let baseline = TrivialBaseline::new(name, "It learns nothing.").score("BLEU", bleu).score("accuracy", 0.3);
        TrivialBaseline { experiment: "mt".into(), dataset: "invented".into(), seconds: 2.0, ..baseline }
    }

    fn sources() -> [RunSource; 1] {
        let mut records: Vec<_> =
            [(1, 20.0), (2, 21.0), (3, 22.0)].map(|(seed, bleu)| record("dot-product", seed, &[("BLEU", bleu)])).into();
        records.extend([(1, 12.0), (2, 18.0), (3, 16.0)].map(|(seed, bleu)| record("dense", seed, &[("BLEU", bleu)])));
        records.push(record("gaussian", 1, &[("BLEU", 14.5)]));
        records.push(record("lsh", 1, &[("BLEU", 15.5)]));
        let trivial = vec![baseline("copy", 3.0), baseline("words", 15.0)];
        [RunSource { trivial, ..source("a", &records) }]
    }

    #[test]
    fn a_trivial_baseline_is_a_marked_row_at_the_end_that_is_never_the_best_and_never_tested() {
        let mut sources = sources();
        sources[0].trivial[0].metrics.insert("BLEU".into(), Some(99.0));
        let with = comparison(&sources, &[]);
        let table = with.table("attention");
        let texts: Vec<Vec<&str>> = table.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect();
        assert_eq!(texts.len(), 1 + 4 + 2);
        assert_eq!(texts[5], ["copy (trivial)", "–", "99.00", "–", "–", "–", "–", "2.0 s"]);
        assert_eq!(texts[6][..3], ["words (trivial)", "–", "15.00"]);
        assert!(table[1][2].best && table[5..].iter().flatten().all(|cell| !cell.best));
        assert_eq!(table.iter().map(|row| row[0].trivial).collect::<Vec<_>>(), [false, false, false, false, false, true, true]);
        let without = [RunSource { trivial: Vec::new(), ..sources[0].clone() }];
        let without = comparison(&without, &[]);
        assert_eq!(table[..5], without.table("attention")[..], "what is trained is as it was");
        assert_eq!((with.differences(), &with.warnings), (without.differences(), &without.warnings));
        let tested = |outcome: &&TestOutcome| matches!(outcome, TestOutcome::Tested { .. });
        assert_eq!(with.outcomes[0].iter().filter(tested).count(), 1);
        assert!(without.trivial_notes().is_empty());
    }

    #[test]
    fn what_does_not_beat_the_best_trivial_baseline_over_seeds_is_said_in_words() {
        let sources = sources();
        let notes = comparison(&sources, &[]).trivial_notes();
        assert!(notes[0].contains("no trained models. copy (trivial): It learns nothing. words (trivial): It"), "{notes:?}");
        assert_eq!(
            notes[1],
            "BLEU: not better than words (trivial) with 15.00: dense (15.33, 95 % interval over seeds 7.74 to 22.92), gaussian (14.50, one seed)."
        );
        assert!(notes[2].starts_with("The candidate uniform is missing"));
        assert_eq!(notes.len(), 3);
        let mut averaging = sources.clone();
        averaging[0].records.push(record("uniform", 1, &[("BLEU", 30.0)]));
        assert_eq!(comparison(&averaging, &[]).trivial_notes().len(), 2);
    }

    #[test]
    fn what_should_be_small_is_beaten_by_less() {
        let mut sources = sources();
        for record in &mut sources[0].records {
            record.columns[0].higher_is_better = Some(false);
        }
        let notes = comparison(&sources, &[]).trivial_notes();
        assert!(notes[1].starts_with("BLEU: not better than copy (trivial) with 3.00: dot-product (21.00, "), "{notes:?}");
    }

    #[test]
    fn several_folders_show_an_equal_baseline_once_and_each_that_differs() {
        let [a] = sources();
        let mut b = RunSource { label: "b".into(), ..a.clone() };
        b.trivial[1].metrics.insert("BLEU".into(), Some(16.0));
        let both = [a, b];
        let names = |name: &(String, &TrivialBaseline)| name.0.clone();
        let groups = group::groups(&both);
        assert_eq!(groups[0].trivial.iter().map(names).collect::<Vec<_>>(), ["copy (trivial)", "a/words (trivial)", "b/words (trivial)"]);
    }

    #[test]
    fn every_output_has_the_row_unless_it_is_left_out() {
        let sources = sources();
        let of = |arguments: &[&str]| {
            let options: CompareOptions = options(&[&["a"], arguments].concat());
            vec![Comparison::of(&heedful_host::provenance::Provenance::default(), group::groups(&sources).remove(0), &options)]
        };
        let with = of(&[]);
        let texts = [render::terminal(&with), render::markdown(&with, &[], "", &[]), render::latex(&with), render::csv(&with).unwrap()];
        assert!(texts.iter().all(|text| text.contains("words (trivial)")), "{texts:?}");
        let csv: Vec<&str> = texts[3].lines().filter(|line| line.contains("words (trivial)")).collect();
        assert!(csv[0].starts_with("mt,invented,,words (trivial),,,0,BLEU,15,,1,"), "{csv:?}");
        let without = of(&["--no-trivial-baseline"]);
        assert!(!render::terminal(&without).contains("(trivial)"));
    }
}
