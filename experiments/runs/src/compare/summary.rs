//! What a table shows, in a few lines: the best row, the rows that seeds do not separate from it, the trivial baseline, and costs.

use heedful_host::display::{duration, grouped};
use heedful_metrics::MetricColumn;
use heedful_metrics::significance::{holm, welch};

use super::group::Row;
use super::table::Comparison;
use super::trivial::judges_higher;

impl Comparison<'_> {
    /// Labels with what belongs to them, for the first metric that judges the rows; empty where none does.
    ///
    /// The unit of inference is the run: items of a test set decide nothing here.
    pub fn summary(&self) -> Vec<(String, String)> {
        let Some((metric, higher)) = self.metrics.iter().find_map(|metric| Some((metric, judges_higher(metric)?))) else {
            return Vec::new();
        };
        let Some(best) = self.best(metric, higher) else { return Vec::new() };
        let (score, seeds) = (self.score_text(metric, best), best.records.len());
        let seeds = if seeds == 1 { "one seed".to_owned() } else { format!("mean of {seeds} seeds") };
        let mut lines = vec![(format!("Best {}", metric.label), format!("{}: {score} ({seeds})", best.name))];
        if self.group.rows.len() > 1 {
            lines.push(("Not separable from it".to_owned(), self.not_separable(metric, best)));
        }
        if let Some(unbeaten) = self.unbeaten(metric) {
            let (all, left) = (unbeaten.scored, unbeaten.rows.len());
            let who = match all - left {
                0 => "no candidate beats it".to_owned(),
                _ if left == 0 => "every candidate beats it".to_owned(),
                some => format!("{some} of {all} candidates beat it"),
            };
            lines.push(("Trivial baseline".to_owned(), format!("{}: {}; {who}", unbeaten.name, unbeaten.score)));
        }
        lines.extend(self.cost(best).map(|cost| ("Cost".to_owned(), cost)));
        lines
    }

    /// The row with the best mean over all of its seeds; the first of equals.
    fn best(&self, metric: &MetricColumn, higher: bool) -> Option<&Row<'_>> {
        let sign = if higher { 1.0 } else { -1.0 };
        let complete = |row: &Row<'_>| row.spread(metric).filter(|spread| spread.runs == row.records.len());
        let scored = self.group.rows.iter().filter_map(|row| Some((sign * complete(row)?.mean, row)));
        scored.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, row)| row)
    }

    /// The rows that Welch's t-tests over seeds do not tell from `best`, and those that have too few seeds for one.
    fn not_separable(&self, metric: &MetricColumn, best: &Row<'_>) -> String {
        let values = best.values(metric);
        let others = self.group.rows.iter().filter(|row| row.name != best.name);
        let (mut tested, mut untested) = (Vec::new(), Vec::new());
        for row in others {
            match welch(&row.values(metric), &values, self.confidence()) {
                Some(difference) => tested.push((row.name.as_str(), difference.p)),
                None => untested.push(row.name.as_str()),
            }
        }
        if tested.is_empty() {
            return "unknown: tests need two seeds per candidate".to_owned();
        }
        let corrected = holm(&tested.iter().map(|(_, p)| *p).collect::<Vec<_>>());
        let equals: Vec<&str> =
            tested.iter().zip(corrected).filter(|(_, p)| !self.is_significant(*p)).map(|((name, _), _)| *name).collect();
        let equals = if equals.is_empty() { "none".to_owned() } else { equals.join(", ") };
        let mut text = format!("{equals} (Welch's t-tests over seeds, Holm's correction)");
        if !untested.is_empty() {
            text.push_str(&format!("; not tested: {}", untested.join(", ")));
        }
        text
    }

    /// What the best row costs, and which row is the fastest where times are known.
    fn cost(&self, best: &Row<'_>) -> Option<String> {
        let mut text = format!("{} parameters", grouped(best.parameters()? as u64));
        if let Some(seconds) = best.seconds() {
            text.push_str(&format!(", {} per run", duration(seconds)));
            let timed = self.group.rows.iter().filter_map(|row| Some((row.seconds()?, row)));
            if let Some((fastest, row)) = timed.reduce(|least, other| if other.0 < least.0 { other } else { least })
                && row.name != best.name
            {
                text.push_str(&format!("; fastest: {}, {}", row.name, duration(fastest)));
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::{record, source};
    use super::super::runs::RunSource;
    use super::super::table::tests::comparison;
    use crate::record::ResultRecord;
    use crate::trivial::TrivialBaseline;

    fn seeds(name: &str, values: &[f64]) -> Vec<ResultRecord> {
        values.iter().zip(1..).map(|(bleu, seed)| record(name, seed, &[("BLEU", *bleu)])).collect()
    }

    fn summary(records: Vec<ResultRecord>, trivial: Option<f64>) -> Vec<String> {
        let trivial = trivial.map(|bleu| {
            let baseline = TrivialBaseline::new("copy", "It learns nothing.").score("BLEU", bleu);
            TrivialBaseline { experiment: "mt".into(), dataset: "invented".into(), ..baseline }
        });
        let sources = [RunSource { trivial: trivial.into_iter().collect(), ..source("a", &records) }];
        comparison(&sources, &[]).summary().into_iter().map(|(label, text)| format!("{label} | {text}")).collect()
    }

    #[test]
    fn seeds_decide_what_is_not_separable_from_the_best() {
        let mut records = [
            seeds("dot-product", &[30.0, 30.2, 30.1]),
            seeds("dense", &[30.0, 30.3, 29.9]),
            seeds("gaussian", &[20.0, 20.2, 20.1]),
            seeds("lsh", &[25.0]),
        ]
        .concat();
        for record in records.iter_mut().filter(|record| record.attention == "gaussian") {
            record.wall_seconds = 30.0;
        }
        assert_eq!(
            summary(records, Some(20.15)),
            [
                "Best BLEU | dot-product: 30.10 ± 0.10 (mean of 3 seeds)",
                "Not separable from it | dense (Welch's t-tests over seeds, Holm's correction); not tested: lsh",
                "Trivial baseline | copy (trivial): 20.15; 3 of 4 candidates beat it",
                "Cost | 1,234,567 parameters, 1 min 1 s per run; fastest: gaussian, 30.0 s",
            ]
        );
        let apart = [seeds("dot-product", &[30.0, 30.2]), seeds("dense", &[20.0, 20.2])].concat();
        assert_eq!(summary(apart, None)[1], "Not separable from it | none (Welch's t-tests over seeds, Holm's correction)");
    }

    #[test]
    fn holm_corrects_for_the_number_of_candidates() {
        let best = seeds("dot-product", &[30.0, 31.0, 32.0]);
        let near = seeds("dense", &[27.0, 28.0, 29.0]);
        let others = [seeds("gaussian", &[27.0, 28.0, 29.5]), seeds("lsh", &[27.0, 28.0, 28.9])].concat();
        assert!(summary([best.clone(), near.clone()].concat(), None)[1].contains("| none"));
        assert!(summary([best, near, others].concat(), None)[1].contains("| dense, gaussian"));
    }

    #[test]
    fn single_seeds_are_not_tested() {
        let records = [seeds("dot-product", &[30.0]), seeds("dense", &[2.0])].concat();
        let lines = summary(records, Some(40.0));
        assert_eq!(lines[0], "Best BLEU | dot-product: 30.00 (one seed)");
        assert_eq!(lines[1], "Not separable from it | unknown: tests need two seeds per candidate");
        assert_eq!(lines[2], "Trivial baseline | copy (trivial): 40.00; no candidate beats it");
        assert_eq!(summary(seeds("dense", &[2.0]), None).len(), 2);
    }

    #[test]
    fn a_row_with_an_undefined_score_is_not_the_best() {
        let mut records = [seeds("dot-product", &[30.0, 31.0]), seeds("dense", &[40.0, 41.0])].concat();
        records[3].metrics.insert("BLEU".into(), None);
        assert!(summary(records, None)[0].contains("dot-product"));
    }
}
