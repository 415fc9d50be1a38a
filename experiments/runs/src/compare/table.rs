//! The comparison of one group: what its tables show.

use std::fmt::Write;

use heedful_host::display::{duration, grouped, memory};
use heedful_host::provenance::Provenance;
use heedful_metrics::significance::Difference;
use heedful_metrics::{MetricColumn, Spread};

use crate::record::ResultRecord;

use super::group::{Group, Row, mean};
use super::options::CompareOptions;
use super::significance::{TestOutcome, against};
use super::warnings::warnings;

/// What is to be known of a row with one run.
pub(crate) const SINGLE_SEED: &str =
    "A single seed has no deviation: a difference between single runs may be chance (--seeds N gives more).";

/// One group with its metrics and what is known of the differences between its rows.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The rows.
    pub group: Group<'a>,
    /// The metrics that are shown.
    pub metrics: Vec<MetricColumn>,
    /// Names of those that are not.
    pub left_out: Vec<String>,
    /// The row that the others are tested against; `None` if the one asked for is not here.
    pub baseline: Option<usize>,
    /// For each metric, the outcomes of each row; empty where nothing is tested.
    pub outcomes: Vec<Vec<TestOutcome>>,
    /// Why the rows are less comparable than they look.
    pub warnings: Vec<String>,
    confidence: f64,
}

impl<'a> Comparison<'a> {
    /// Compares the rows of `group`, and names those that other code than `own`, that of this program, has computed: none if that is unknown.
    pub fn of(own: &Provenance, mut group: Group<'a>, options: &CompareOptions) -> Self {
        if options.no_trivial_baseline {
            group.trivial.clear();
        }
        let known = group.columns();
        let metrics = shown(&group, &known, &options.metric);
        let left_out = group.metrics().into_iter().filter(|name| !metrics.iter().any(|metric| metric.name == *name)).collect();
        let baseline = group.baseline(options.baseline.as_deref());
        let mut warnings = warnings(own, &group, &metrics);
        if let (None, Some(name)) = (baseline, &options.baseline) {
            warnings.push(format!("The baseline {name} is not among these rows: no test."));
        }
        let tested = |metric: &MetricColumn| {
            // A metric without a direction describes a run (a context length, a number of steps) and does not judge it.
            let judges = metric.higher_is_better.is_some() || !known.iter().any(|column| column.name == metric.name);
            judges && group.rows.len() > 1
        };
        let mut outcomes = |metric: &MetricColumn| match baseline.filter(|_| tested(metric)) {
            Some(baseline) => against(&group, baseline, metric, options, &mut warnings),
            None => Vec::new(),
        };
        let outcomes = metrics.iter().map(&mut outcomes).collect();
        Self { group, metrics, left_out, baseline, outcomes, warnings, confidence: options.confidence }
    }

    /// The rows as they are, without tests and warnings.
    pub fn without_tests(group: Group<'a>) -> Self {
        let metrics = shown(&group, &group.columns(), &[]);
        let (outcomes, confidence) = (vec![Vec::new(); metrics.len()], CompareOptions::default().confidence);
        Self { group, metrics, left_out: Vec::new(), baseline: None, outcomes, warnings: Vec::new(), confidence }
    }

    /// The main table; `subject` is what its rows are. Trivial baselines stand at its end.
    pub fn table(&self, subject: &str) -> Vec<Vec<Cell>> {
        self.columns(subject, true)
    }

    /// The main table without the columns of tests, and without columns in which no trained row has a value.
    pub(super) fn narrow_table(&self, subject: &str) -> Vec<Vec<Cell>> {
        let mut table = self.columns(subject, false);
        let trained = 1..=self.group.rows.len();
        let is_kept: Vec<bool> = (0..table[0].len())
            .map(|column| trained.is_empty() || table[trained.clone()].iter().any(|row| row[column].text != "–"))
            .collect();
        for row in &mut table {
            let mut is_kept = is_kept.iter();
            row.retain(|_| is_kept.next() == Some(&true));
        }
        table
    }

    /// The score of `row` with its deviation.
    pub(super) fn score_text(&self, metric: &MetricColumn, row: &Row<'_>) -> String {
        score_cell(metric, row.spread(metric).as_ref(), &row.records)
    }

    fn columns(&self, subject: &str, with_tests: bool) -> Vec<Vec<Cell>> {
        let rows = &self.group.rows;
        let mut table = vec![vec![Cell::plain(subject), Cell::plain("seeds")]];
        table.extend(rows.iter().map(|row| vec![Cell::plain(&row.name), Cell::of(row.records.len() as f64, row.records.len())]));
        let trivial = &self.group.trivial;
        table.extend(trivial.iter().map(|(name, _)| vec![Cell { trivial: true, ..Cell::plain(name) }, Cell::plain("–")]));
        let last = table.len() - 1;
        // Of a trivial baseline some columns say nothing.
        let mut push = |column: Vec<Cell>| {
            let cells = column.into_iter().chain(std::iter::repeat_n(Cell::plain("–"), last));
            table.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
        };
        for (metric, outcomes) in self.metrics.iter().zip(&self.outcomes) {
            push(self.score_column(metric));
            if with_tests && outcomes.iter().any(|outcome| matches!(outcome, TestOutcome::Tested { .. })) {
                let cells = outcomes.iter().map(|outcome| self.p_cell(outcome));
                push([Cell::plain("p")].into_iter().chain(cells).collect());
            }
        }
        let shown =
            |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or_else(|| Cell::plain("–"), |value| Cell::of(value, show(value)));
        let mut cost = |heading: &str, of: &dyn Fn(&Row<'_>) -> Option<f64>, show: &dyn Fn(f64) -> String| {
            push([Cell::plain(heading)].into_iter().chain(rows.iter().map(|row| shown(of(row), show))).collect());
        };
        cost("parameters", &|row| row.parameters(), &|count| grouped(count as u64));
        cost("tokens/s", &|row| mean(row.records.iter().filter_map(|record| record.speed())), &|speed| grouped(speed.round() as u64));
        let peak = |row: &Row<'_>| row.records.iter().filter_map(|record| record.peak_memory_bytes).max().map(|bytes| bytes as f64);
        cost("peak memory", &peak, &|bytes| memory(bytes as u64));
        let times = rows.iter().map(Row::seconds).chain(trivial.iter().map(|(_, baseline)| Some(baseline.seconds)));
        push([Cell::plain("time/run")].into_iter().chain(times.map(|seconds| shown(seconds, &duration))).collect());
        table
    }

    fn score_column(&self, metric: &MetricColumn) -> Vec<Cell> {
        let rows = &self.group.rows;
        let spreads: Vec<_> = rows.iter().map(|row| row.spread(metric)).collect();
        // A mechanism that failed on some seed is not the best by the mean of the others.
        let complete: Vec<_> =
            rows.iter().zip(&spreads).map(|(row, spread)| spread.filter(|spread| spread.runs == row.records.len())).collect();
        let best = best_of(metric, &complete);
        let cells = rows.iter().zip(&spreads).zip(&complete).map(|((row, spread), complete)| Cell {
            text: score_cell(metric, spread.as_ref(), &row.records),
            value: spread.as_ref().map(|spread| spread.mean),
            best: best.is_some() && complete.as_ref().map(|spread| rounded(metric, spread)) == best,
            trivial: false,
        });
        let trivial = self.group.trivial.iter().map(|(_, baseline)| match baseline.metrics.get(&metric.name) {
            Some(Some(value)) => Cell::of(value * metric.factor, format!("{:.*}", metric.digits, value * metric.factor)),
            Some(None) => Cell::plain("undefined"),
            None => Cell::plain("–"),
        });
        [Cell::plain(metric.heading())].into_iter().chain(cells).chain(trivial).collect()
    }

    fn p_cell(&self, outcome: &TestOutcome) -> Cell {
        match outcome {
            TestOutcome::Baseline => Cell::plain("baseline"),
            TestOutcome::Tested { difference, .. } => Cell::of(difference.p, self.p_text(difference)),
            TestOutcome::Untested(reason) => Cell::plain(format!("{reason}: no test")),
        }
    }

    fn p_text(&self, Difference { p, .. }: &Difference) -> String {
        let text = if *p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") };
        if self.is_significant(*p) { format!("{text} †") } else { text }
    }

    /// The share of intervals that hold what they are of.
    pub(super) fn confidence(&self) -> f64 {
        self.confidence
    }

    pub(super) fn is_significant(&self, p: f64) -> bool {
        // 1 − 0.95 is a little more than 0.05.
        p < 1.0 - self.confidence - 1e-12
    }

    /// The differences from the baseline that were tested, below a heading; empty if there are none.
    pub fn differences(&self) -> Vec<Vec<String>> {
        let interval = format!("{} % interval", (1000.0 * self.confidence).round() / 10.0);
        let mut table = vec![["attention", "metric", "difference", &interval, "p", "test"].map(str::to_owned).to_vec()];
        for (index, row) in self.group.rows.iter().enumerate() {
            for (metric, outcomes) in self.metrics.iter().zip(&self.outcomes) {
                let Some(TestOutcome::Tested { difference, test, .. }) = outcomes.get(index) else { continue };
                // One more decimal than the scores have.
                let digits = metric.digits + 1;
                let ends = difference.interval.map_or_else(|| "–".to_owned(), |[low, high]| format!("{low:+.digits$} to {high:+.digits$}"));
                let value = format!("{:+.digits$}", difference.value);
                table.push(vec![row.name.clone(), metric.label.clone(), value, ends, self.p_text(difference), test.clone()]);
            }
        }
        if table.len() > 1 { table } else { Vec::new() }
    }

    /// The row that the others are tested against, by name.
    pub fn baseline_name(&self) -> Option<&str> {
        self.baseline.map(|baseline| self.group.rows[baseline].name.as_str())
    }

    /// How to read the tables, in sentences; `mark` is what marks the best.
    pub fn legend(&self, mark: &str) -> Vec<String> {
        let [scores, trivial] = self.score_legend(mark);
        [scores, self.test_legend(), trivial].concat()
    }

    /// How to read the scores; and what to know of trivial baselines and of metrics that are left out.
    pub(super) fn score_legend(&self, mark: &str) -> [Vec<String>; 2] {
        let scores = vec![format!(
            "Scores are means over seeds ± sample standard deviation; {mark} marks the best mean of a column. Peak memory is the largest, time the mean \
             of the runs."
        )];
        let mut others = self.trivial_notes();
        if !self.left_out.is_empty() {
            others.push(format!("Not shown: {} (--metric).", self.left_out.join(", ")));
        }
        [scores, others]
    }

    /// How to read the tests.
    pub(super) fn test_legend(&self) -> Vec<String> {
        let mut legend = Vec::new();
        let all = || self.outcomes.iter().flatten();
        if let (true, Some(baseline)) = (all().any(|outcome| matches!(outcome, TestOutcome::Tested { .. })), self.baseline_name()) {
            legend.push(format!(
                "p says how often chance alone makes as large a difference from {baseline}, in either direction; that of a bootstrap is sacreBLEU's, which \
                 counts one direction. † marks p < {}. It is not corrected for several comparisons.",
                (1e6 * (1.0 - self.confidence)).round() / 1e6
            ));
        }
        if all().any(|outcome| matches!(outcome, TestOutcome::Tested { of_items: true, .. })) {
            legend.push("A test over items of a test set speaks of these trained models on other items, not of other seeds.".to_owned());
        }
        legend.extend(self.untested());
        legend
    }

    /// A sentence for each reason why a whole column has no test.
    fn untested(&self) -> Vec<String> {
        let mut reasons: Vec<(Vec<&'static str>, Vec<&str>)> = Vec::new();
        for (metric, outcomes) in self.metrics.iter().zip(&self.outcomes) {
            let mut why: Vec<&'static str> = Vec::new();
            for outcome in outcomes {
                match outcome {
                    TestOutcome::Tested { .. } => why.clear(),
                    TestOutcome::Untested(reason) if !why.contains(reason) => why.push(reason),
                    _ => {}
                }
            }
            let is_tested = outcomes.iter().any(|outcome| matches!(outcome, TestOutcome::Tested { .. }));
            if is_tested || why.is_empty() {
                continue;
            }
            match reasons.iter_mut().find(|(other, _)| *other == why) {
                Some((_, metrics)) => metrics.push(&metric.label),
                None => reasons.push((why, vec![&metric.label])),
            }
        }
        reasons.iter().map(|(why, metrics)| format!("{}: {}: no test.", metrics.join(", "), why.join(" or "))).collect()
    }
}

/// The metrics asked for, or those that are known, or all, as far as a row has them.
fn shown(group: &Group<'_>, known: &[MetricColumn], asked: &[String]) -> Vec<MetricColumn> {
    let there = group.metrics();
    let column = |name: &String| {
        // A score of one of several test sets is like the score without its name.
        let kind = name.rsplit_once('/').map_or(name.as_str(), |(_, kind)| kind);
        let same = |wanted: &str| known.iter().find(|column| column.name == wanted).cloned();
        same(name)
            .or_else(|| same(kind).map(|column| MetricColumn { name: name.clone(), label: name.clone(), ..column }))
            .unwrap_or_else(|| MetricColumn::new(name, name).digits(4))
    };
    if !asked.is_empty() {
        return asked.iter().filter(|name| there.contains(name)).map(column).collect();
    }
    let usual: Vec<MetricColumn> = known.iter().filter(|column| there.contains(&column.name)).cloned().collect();
    if usual.is_empty() { there.iter().map(column).collect() } else { usual }
}

/// The best mean as it is printed: means that look equal are equally good.
fn best_of(metric: &MetricColumn, spreads: &[Option<Spread>]) -> Option<String> {
    let higher = metric.higher_is_better?;
    let known: Vec<&Spread> = spreads.iter().flatten().collect();
    // The best of one is no distinction.
    if known.len() < 2 {
        return None;
    }
    let order = |a: &&&Spread, b: &&&Spread| if higher { a.mean.total_cmp(&b.mean) } else { b.mean.total_cmp(&a.mean) };
    known.iter().max_by(order).map(|spread| rounded(metric, spread))
}

fn rounded(metric: &MetricColumn, spread: &Spread) -> String {
    format!("{:.*}", metric.digits, spread.mean)
}

fn score_cell(metric: &MetricColumn, spread: Option<&Spread>, row: &[&ResultRecord]) -> String {
    let Some(spread) = spread else {
        let measured = row.iter().any(|record| record.metric(&metric.name).is_some());
        return if measured { "undefined".into() } else { "–".into() };
    };
    let mut cell = rounded(metric, spread);
    if let Some(deviation) = spread.deviation {
        let _ = write!(cell, " ± {deviation:.*}", metric.digits);
    }
    if spread.runs < row.len() {
        let _ = write!(cell, " ({} of {} defined)", spread.runs, row.len());
    }
    cell
}

/// A cell of the main table.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What stands in it.
    pub text: String,
    /// The same as a number, if it is one.
    pub value: Option<f64>,
    /// Whether it is the best of its column.
    pub best: bool,
    /// Whether it names a row that is a trivial baseline.
    pub trivial: bool,
}

impl Cell {
    fn plain(text: impl ToString) -> Self {
        Self { text: text.to_string(), value: None, best: false, trivial: false }
    }

    fn of(value: f64, text: impl ToString) -> Self {
        Self { value: Some(value), ..Self::plain(text) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::group::groups;
    use super::super::group::tests::{record, source};
    use super::super::options::tests::options;
    use super::super::runs::RunSource;
    use super::*;

    /// Three mechanisms, two of them with three seeds.
    pub(crate) fn runs() -> Vec<RunSource> {
        let scores = [("dot-product", [27.0, 27.5, 27.25]), ("dense", [26.0, 26.25, 26.5])];
        let mut records = Vec::new();
        for (attention, values) in scores {
            let of_seed = |(seed, &value): (usize, &f64)| {
                record(attention, seed as u64 + 1, &[("BLEU", value), ("accuracy", value / 100.0), ("news/BLEU", value), ("context", 8.0)])
            };
            records.extend(values.iter().enumerate().map(of_seed));
        }
        records.push(record("gaussian", 1, &[("BLEU", 30.0), ("accuracy", 0.2), ("context", 8.0)]));
        vec![source("a", &records)]
    }

    pub(crate) fn comparison<'a>(sources: &'a [RunSource], arguments: &[&str]) -> Comparison<'a> {
        Comparison::of(&Provenance::default(), groups(sources).remove(0), &options(&[&["a"], arguments].concat()))
    }

    fn texts(row: &[Cell]) -> Vec<&str> {
        row.iter().map(|cell| cell.text.as_str()).collect()
    }

    #[test]
    fn a_row_has_scores_with_their_evidence_and_costs() {
        let sources = runs();
        let comparison = comparison(&sources, &[]);
        let table = comparison.table("attention");
        assert_eq!(
            texts(&table[0]),
            ["attention", "seeds", "BLEU ↑", "p", "accuracy (%) ↑", "p", "context", "parameters", "tokens/s", "peak memory", "time/run"]
        );
        let costs = ["8 ± 0", "1,234,567", "1,000", "400 MiB", "1 min 1 s"];
        assert_eq!(texts(&table[1])[..6], ["dot-product", "3", "27.25 ± 0.25", "baseline", "27.25 ± 0.25", "baseline"]);
        assert_eq!(texts(&table[1])[6..], costs);
        assert_eq!(texts(&table[2])[..4], ["dense", "3", "26.25 ± 0.25", "0.008 †"]);
        assert_eq!(texts(&table[3])[..4], ["gaussian", "1", "30.00", "one seed: no test"]);
        assert!(table[3][2].best && !table[1][2].best && table[1][4].best, "the best of each column");
        let differences = comparison.differences();
        assert_eq!(differences[0][3], "95 % interval");
        assert_eq!(differences[1][..3], ["dense", "BLEU", "-1.000"].map(str::to_owned));
        assert!(differences[1][3].starts_with("-1.567 to -0.433"), "{differences:?}");
        assert_eq!(differences.len(), 3, "one for each metric");
    }

    #[test]
    fn the_narrow_table_has_no_tests_and_no_empty_columns() {
        let mut sources = runs();
        sources[0].records.iter_mut().for_each(|record| record.tokens_per_second = None);
        let table = comparison(&sources, &[]).narrow_table("attention");
        let heading = ["attention", "seeds", "BLEU ↑", "accuracy (%) ↑", "context", "parameters", "peak memory", "time/run"];
        assert_eq!(texts(&table[0]), heading);
        assert_eq!(texts(&table[1]), ["dot-product", "3", "27.25 ± 0.25", "27.25 ± 0.25", "8 ± 0", "1,234,567", "400 MiB", "1 min 1 s"]);
    }

    #[test]
    fn the_mark_of_significance_follows_the_confidence() {
        let sources = runs();
        let at = |confidence: &str| comparison(&sources, &["--confidence", confidence]).table("attention")[2][3].text.clone();
        assert_eq!([at("0.99"), at("0.999")], ["0.008 †", "0.008"].map(str::to_owned));
    }

    #[test]
    fn a_column_without_any_test_gives_way_to_a_sentence() {
        let sources = [source("a", &[record("dot-product", 1, &[("BLEU", 1.0)]), record("dense", 1, &[("BLEU", 2.0)])])];
        let comparison = comparison(&sources, &[]);
        assert_eq!(texts(&comparison.table("attention")[0])[..4], ["attention", "seeds", "BLEU ↑", "parameters"]);
        assert!(comparison.legend("*").contains(&"BLEU: one seed: no test.".to_owned()), "{:?}", comparison.legend("*"));
        assert!(comparison.differences().is_empty());
    }

    #[test]
    fn metrics_are_those_asked_for_or_those_of_the_experiment_or_all() {
        let sources = runs();
        let names = |arguments: &[&str]| comparison(&sources, arguments).metrics.iter().map(|metric| metric.heading()).collect::<Vec<_>>();
        assert_eq!(names(&[]), ["BLEU ↑", "accuracy (%) ↑", "context"]);
        assert_eq!(names(&["--metric", "news/BLEU,context"]), ["news/BLEU ↑", "context"]);
        assert_eq!(comparison(&sources, &[]).left_out, ["news/BLEU"]);
        let records = sources[0].records.iter().map(|record| ResultRecord { columns: Vec::new(), ..record.clone() });
        let unknown = [source("a", &records.collect::<Vec<_>>())];
        assert_eq!(comparison(&unknown, &[]).metrics.len(), 4, "runs of earlier versions");
    }

    #[test]
    fn a_baseline_that_is_not_there_is_said_and_nothing_tested() {
        let sources = runs();
        let comparison = comparison(&sources, &["--baseline", "lsh"]);
        assert_eq!(comparison.warnings.last().unwrap(), "The baseline lsh is not among these rows: no test.");
        assert!(comparison.differences().is_empty() && comparison.table("attention")[0].iter().all(|cell| cell.text != "p"));
    }
}
