//! Tests of the difference between a row and the baseline.

use heedful_host::display::grouped;
use heedful_metrics::Combination;
use heedful_metrics::MetricColumn;
use heedful_metrics::significance::{Difference, PairedOutputs, mcnemar, randomisation, welch};
use heedful_random::RandomKey;

use super::group::{Group, Row};
use super::items::{ItemOutputs, Missing};
use super::options::{CompareOptions, Test};

/// What is known of one row and metric.
#[derive(Clone, Debug, PartialEq)]
pub enum TestOutcome {
    /// The row is the baseline.
    Baseline,
    /// The difference was tested.
    Tested {
        /// The outcome, in the unit of the table.
        difference: Difference,
        /// The test with its sizes.
        test: String,
        /// Whether it is of the items of a test set, and not of seeds.
        of_items: bool,
    },
    /// There is no test, and why.
    Untested(&'static str),
}

/// Tests the differences of all rows of `group` from row `baseline`. What cannot be used is added to `warnings`.
pub fn against(
    group: &Group<'_>,
    baseline: usize,
    metric: &MetricColumn,
    options: &CompareOptions,
    warnings: &mut Vec<String>,
) -> Vec<TestOutcome> {
    let mut tests = Tests { baseline: &group.rows[baseline], metric, options, baseline_outputs: None, warnings };
    let judge = |(index, row): (usize, &Row<'_>)| if index == baseline { TestOutcome::Baseline } else { tests.judge(row) };
    group.rows.iter().enumerate().map(judge).collect()
}

/// The tests of one metric against one baseline.
struct Tests<'a> {
    baseline: &'a Row<'a>,
    metric: &'a MetricColumn,
    options: &'a CompareOptions,
    /// Read when first needed.
    baseline_outputs: Option<Result<ItemOutputs, Missing>>,
    warnings: &'a mut Vec<String>,
}

/// Why single runs without items are not tested.
const ONE_SEED: &str = "one seed";

impl Tests<'_> {
    fn judge(&mut self, row: &Row<'_>) -> TestOutcome {
        let (values, others) = (row.values(self.metric), self.baseline.values(self.metric));
        if values.is_empty() || others.is_empty() {
            return TestOutcome::Untested(if row.is_scored(self.metric) && self.baseline.is_scored(self.metric) {
                "undefined"
            } else {
                "no score"
            });
        }
        let several = values.len() > 1 && others.len() > 1;
        match self.options.test {
            Test::Auto if !several => self.of_items(row, Self::bootstrap).unwrap_or(TestOutcome::Untested(ONE_SEED)),
            Test::Auto | Test::Welch | Test::Randomisation if !several => TestOutcome::Untested(ONE_SEED),
            Test::Auto | Test::Welch => {
                let test = format!("Welch's t-test, {} and {} seeds", values.len(), others.len());
                match welch(&values, &others, self.options.confidence) {
                    Some(difference) => TestOutcome::Tested { difference, test, of_items: false },
                    None => TestOutcome::Untested("no spread"),
                }
            }
            Test::Randomisation => {
                let resamples = self.options.randomisation_resamples();
                let difference = randomisation(&values, &others, resamples, &self.key("seeds")).expect("both have values");
                let how = difference.resamples.map_or_else(|| "exact".to_owned(), |count| format!("{} resamples", grouped(count as u64)));
                let test = format!("randomisation of {} and {} seeds, {how}", values.len(), others.len());
                TestOutcome::Tested { difference, test, of_items: false }
            }
            Test::Bootstrap => self.of_items(row, Self::bootstrap).unwrap_or_else(|missing| TestOutcome::Untested(reason(&missing))),
            Test::ItemRandomisation => {
                self.of_items(row, Self::item_randomisation).unwrap_or_else(|missing| TestOutcome::Untested(reason(&missing)))
            }
            Test::Mcnemar => self.of_items(row, Self::mcnemar).unwrap_or_else(|missing| TestOutcome::Untested(reason(&missing))),
        }
    }

    /// The outcome of `test`, which is given the outputs of the row and of the baseline.
    fn of_items(&mut self, row: &Row<'_>, test: fn(&Self, &ItemOutputs, &ItemOutputs) -> TestOutcome) -> Result<TestOutcome, Missing> {
        let mut read = |row: &Row<'_>| {
            ItemOutputs::read(row, &self.metric.name).inspect_err(|missing| {
                if let Missing::Damaged(problem) = missing {
                    self.warnings.push(format!("{problem}: no test of its items."));
                }
            })
        };
        let baseline = match self.baseline_outputs.take() {
            Some(read) => read,
            None => read(self.baseline),
        };
        let outcome = match &baseline {
            Err(missing) => Err(missing.clone()),
            Ok(baseline) => read(row).map(|own| match own.identity == baseline.identity && own.score == baseline.score {
                // Equal outputs would get the smallest p there is from sacreBLEU's count.
                true if own.statistics == baseline.statistics => TestOutcome::Untested("equal"),
                true => test(self, &own, baseline),
                false if own.score.is_of_texts() => TestOutcome::Untested("other references"),
                false => TestOutcome::Untested("other items"),
            }),
        };
        self.baseline_outputs = Some(baseline);
        outcome
    }

    fn bootstrap(&self, own: &ItemOutputs, baseline: &ItemOutputs) -> TestOutcome {
        let score = |sum: &[f64]| self.metric.factor * own.score.combination.score(sum);
        let outputs = PairedOutputs { system: &own.statistics, baseline: &baseline.statistics, score: &score };
        let resamples = self.options.bootstrap_resamples();
        let difference = outputs.bootstrap(self.options.confidence, resamples, &self.key("bootstrap"));
        let test = format!("paired bootstrap of {}, {} resamples", counted(own), grouped(resamples as u64));
        TestOutcome::Tested { difference, test, of_items: true }
    }

    fn item_randomisation(&self, own: &ItemOutputs, baseline: &ItemOutputs) -> TestOutcome {
        let seeds: Vec<u64> = own.seeds.iter().copied().filter(|seed| baseline.seeds.contains(seed)).collect();
        if seeds.is_empty() {
            return TestOutcome::Untested("no seed in common");
        }
        let of_seeds = |side: &ItemOutputs| {
            let runs = side.seeds.iter().zip(&side.statistics);
            runs.filter(|(seed, _)| seeds.contains(seed)).map(|(_, statistics)| statistics.clone()).collect::<Vec<_>>()
        };
        let score = |sum: &[f64]| self.metric.factor * own.score.combination.score(sum);
        let (system, baseline) = (of_seeds(own), of_seeds(baseline));
        let resamples = self.options.randomisation_resamples();
        let difference =
            PairedOutputs { system: &system, baseline: &baseline, score: &score }.randomisation(resamples, &self.key("sentences"));
        let test = format!("paired randomisation of {}, {} resamples", counted(own), grouped(resamples as u64));
        TestOutcome::Tested { difference, test, of_items: true }
    }

    fn mcnemar(&self, own: &ItemOutputs, baseline: &ItemOutputs) -> TestOutcome {
        let ([system], [other]) = (&own.statistics[..], &baseline.statistics[..]) else {
            return TestOutcome::Untested("several seeds");
        };
        let pairs = || system.rows().zip(other.rows()).map(|(system, other)| [system[0], other[0]]);
        if own.score.combination != Combination::Mean || pairs().flatten().any(|value| value != 0.0 && value != 1.0) {
            return TestOutcome::Untested("not right or wrong");
        }
        let only = |side: usize| pairs().filter(|pair| pair[side] > pair[1 - side]).count();
        let [gained, lost] = [only(0), only(1)];
        let value = self.metric.factor * (gained as f64 - lost as f64) / own.items() as f64;
        let p = mcnemar(gained as u64, lost as u64);
        let [gained, lost] = [gained, lost].map(|count| grouped(count as u64));
        let test = format!("McNemar's exact test of {}, {gained} gained and {lost} lost", counted(own));
        TestOutcome::Tested { difference: Difference { value, interval: None, p, resamples: None }, test, of_items: true }
    }

    /// All rows and metrics are resampled alike.
    fn key(&self, test: &str) -> RandomKey {
        RandomKey::from_seed(self.options.seed).named("compare").named(test)
    }
}

/// How many items there are, and what they are.
fn counted(outputs: &ItemOutputs) -> String {
    format!("{} {}", grouped(outputs.items() as u64), outputs.score.unit)
}

fn reason(missing: &Missing) -> &'static str {
    match missing {
        Missing::NotOfItems => "not a score of items",
        Missing::Items => "no items",
        Missing::Hypotheses => "no hypotheses",
        Missing::References => "no references",
        Missing::Damaged(_) => "damaged",
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::groups;
    use super::super::group::tests::{record, source};
    use super::super::items::tests::{REFERENCES, classified, translated};
    use super::super::options::tests::options;
    use super::super::runs::RunSource;
    use super::*;

    fn judged(source: &RunSource, metric: &str, arguments: &[&str]) -> (Vec<TestOutcome>, Vec<String>) {
        let mut warnings = Vec::new();
        let options = options(&[&["a"], arguments].concat());
        let groups = groups(std::slice::from_ref(source));
        (against(&groups[0], 0, &MetricColumn::new(metric, metric), &options, &mut warnings), warnings)
    }

    fn p(outcome: &TestOutcome) -> f64 {
        match outcome {
            TestOutcome::Tested { difference, .. } => difference.p,
            other => panic!("{other:?}"),
        }
    }

    fn seeds(scores: &[(&str, &[f64])]) -> RunSource {
        let runs =
            scores.iter().flat_map(|(attention, values)| values.iter().enumerate().map(move |(seed, value)| (attention, seed, value)));
        source("a", &runs.map(|(attention, seed, &value)| record(attention, seed as u64, &[("accuracy", value)])).collect::<Vec<_>>())
    }

    #[test]
    fn several_seeds_are_tested_by_welch_and_a_single_one_not_at_all() {
        let source = seeds(&[("dense", &[0.5, 0.52, 0.51]), ("gaussian", &[0.6, 0.63, 0.61]), ("random", &[0.9])]);
        let (outcomes, warnings) = judged(&source, "accuracy", &[]);
        assert_eq!(outcomes[0], TestOutcome::Baseline);
        let TestOutcome::Tested { difference, test, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
        assert!(difference.p < 0.01 && (difference.value - 0.1033).abs() < 1e-3, "{difference:?}");
        assert_eq!(test, "Welch's t-test, 3 and 3 seeds");
        assert_eq!(outcomes[2], TestOutcome::Untested("one seed"));
        assert!(warnings.is_empty());
        let (outcomes, _) = judged(&source, "accuracy", &["--test", "randomisation"]);
        assert_eq!(p(&outcomes[1]), 0.1, "2 of 20 divisions");
    }

    #[test]
    fn what_cannot_be_tested_says_why() {
        let why = |source: &RunSource, arguments: &[&str]| match judged(source, "accuracy", arguments).0.pop() {
            Some(TestOutcome::Untested(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(&seeds(&[("a", &[1.0, 1.0]), ("b", &[1.0, 1.0])]), &[]), "no spread");
        assert_eq!(why(&seeds(&[("a", &[1.0, 1.1]), ("b", &[f64::NAN])]), &[]), "undefined");
        assert_eq!(why(&source("a", &[record("a", 1, &[("accuracy", 1.0)]), record("b", 1, &[])]), &[]), "no score");
        assert_eq!(why(&seeds(&[("a", &[1.0, 1.1]), ("b", &[1.0, 1.3])]), &["--test", "bootstrap"]), "not a score of items");
        assert_eq!(why(&seeds(&[("a", &[1.0]), ("b", &[1.0, 1.3])]), &["--test", "randomisation"]), "one seed");
    }

    #[test]
    fn single_runs_with_translations_are_tested_over_their_sentences() {
        let folder = tempfile::tempdir().unwrap();
        let worse = ["a cat", "two dogs run", "it is 4 !", "no one .", "we met .", "tower ."];
        let source = translated(&folder, &[("dense", 1, REFERENCES), ("gaussian", 1, worse), ("same", 1, REFERENCES)]);
        let (outcomes, warnings) = judged(&source, "BLEU", &["--resamples", "200"]);
        assert!(p(&outcomes[1]) < 0.02, "{outcomes:?}");
        assert!(matches!(&outcomes[1], TestOutcome::Tested { test, .. } if test == "paired bootstrap of 6 sentences, 200 resamples"));
        assert_eq!(outcomes[2], TestOutcome::Untested("equal"));
        assert!(warnings.is_empty(), "{warnings:?}");
        let (swapped, _) = judged(&source, "news/chrF2", &["--test", "item-randomisation"]);
        assert!(p(&swapped[1]) < 0.1, "{swapped:?}");
        assert_eq!(judged(&source, "BLEU", &["--resamples", "200"]).0, outcomes, "the same seed draws the same");
        assert_eq!(judged(&source, "valid perplexity", &[]).0[1], TestOutcome::Untested("one seed"));

        std::fs::write(source.folder.run("gaussian", 1).unwrap().hypotheses("news"), "short\n").unwrap();
        let (outcomes, warnings) = judged(&source, "BLEU", &[]);
        assert_eq!(outcomes[1], TestOutcome::Untested("one seed"));
        assert!(warnings[0].contains("news.txt` has 1 lines, its references have 6: no test"), "{warnings:?}");
        std::fs::remove_file(source.folder.run("gaussian", 1).unwrap().references("news")).unwrap();
        assert_eq!(judged(&source, "BLEU", &["--test", "bootstrap"]).0[1], TestOutcome::Untested("no references"));
    }

    #[test]
    fn other_references_or_no_common_seed_are_no_pairs() {
        let folder = tempfile::tempdir().unwrap();
        let worse = REFERENCES.map(|line| &line[1..]);
        let source = translated(&folder, &[("dense", 1, REFERENCES), ("gaussian", 2, worse)]);
        let randomised = |source: &RunSource| judged(source, "BLEU", &["--test", "item-randomisation"]).0[1].clone();
        assert_eq!(randomised(&source), TestOutcome::Untested("no seed in common"));
        let mut other = source.clone();
        let paths = source.folder.run("gaussian", 2).unwrap();
        paths.write_references("news", &worse).unwrap();
        other.records[1].metrics.insert("BLEU".into(), Some(100.0));
        other.records[1].metrics.insert("news/chrF2".into(), Some(100.0));
        let (outcomes, _) = judged(&other, "BLEU", &["--test", "bootstrap"]);
        assert_eq!(outcomes[1], TestOutcome::Untested("other references"));
    }

    /// Which of two classes is predicted for 40 examples of alternating classes, of which these are wrong.
    fn predicted(wrong: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..40).map(|item| (item % 2) ^ usize::from(wrong(item))).collect()
    }

    #[test]
    fn accuracies_and_f1_of_single_runs_are_tested_over_their_examples() {
        let folder = tempfile::tempdir().unwrap();
        // Of the examples that one has wrong, the other has all but one right.
        let (few, many) = (predicted(|item| item == 39), predicted(|item| item < 12));
        let source = classified(&folder, &[("dense", 1, &many), ("gaussian", 1, &few), ("same", 1, &many)]);
        for metric in ["accuracy", "f1"] {
            let (outcomes, warnings) = judged(&source, metric, &["--resamples", "500"]);
            assert!(p(&outcomes[1]) < 0.03, "{outcomes:?}");
            let TestOutcome::Tested { difference, test, of_items: true } = &outcomes[1] else { panic!("{outcomes:?}") };
            assert_eq!(test, "paired bootstrap of 40 examples, 500 resamples");
            let [low, high] = difference.interval.unwrap();
            assert!(0.0 < low && low < difference.value && difference.value < high, "{difference:?}");
            assert_eq!(outcomes[2], TestOutcome::Untested("equal"));
            assert!(warnings.is_empty(), "{warnings:?}");
            assert!(p(&judged(&source, metric, &["--test", "item-randomisation"]).0[1]) < 0.02);
        }
        let (outcomes, _) = judged(&source, "accuracy", &["--test", "mcnemar"]);
        let TestOutcome::Tested { difference, test, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
        assert_eq!(test, "McNemar's exact test of 40 examples, 12 gained and 1 lost");
        // At most one head or at most one tail of 13 coins.
        assert!((difference.p - 28.0 / 8192.0).abs() < 1e-12 && (difference.value - 11.0 / 40.0).abs() < 1e-12, "{difference:?}");
        assert_eq!(judged(&source, "f1", &["--test", "mcnemar"]).0[1], TestOutcome::Untested("not right or wrong"));
    }

    #[test]
    fn several_seeds_of_items_are_tested_by_their_mean() {
        let folder = tempfile::tempdir().unwrap();
        let (few, many) = (predicted(|item| item == 39), predicted(|item| item < 12));
        let none = predicted(|_| false);
        let runs: [(&str, u64, &[usize]); 4] = [("dense", 1, &many), ("dense", 2, &few), ("gaussian", 1, &none), ("gaussian", 2, &few)];
        let source = classified(&folder, &runs);
        let (outcomes, _) = judged(&source, "accuracy", &["--test", "bootstrap"]);
        let TestOutcome::Tested { difference, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
        assert!((difference.value - 6.0 / 40.0).abs() < 1e-12, "the mean of 12 and 0 of 40: {difference:?}");
        assert_eq!(judged(&source, "accuracy", &["--test", "mcnemar"]).0[1], TestOutcome::Untested("several seeds"));
    }

    #[test]
    fn examples_of_other_data_or_damaged_ones_are_not_tested() {
        let folder = tempfile::tempdir().unwrap();
        let (few, many) = (predicted(|item| item == 39), predicted(|item| item < 12));
        let source = classified(&folder, &[("dense", 1, &many), ("gaussian", 1, &few)]);
        let path = source.folder.run("gaussian", 1).unwrap().items("dev");
        let whole = std::fs::read_to_string(&path).unwrap();
        let first = whole.find("\"items\": \"").unwrap() + 10;
        std::fs::write(&path, format!("{}feed{}", &whole[..first], &whole[first + 4..])).unwrap();
        assert_eq!(judged(&source, "accuracy", &[]).0[1], TestOutcome::Untested("other items"));
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let (outcomes, warnings) = judged(&source, "accuracy", &[]);
        assert_eq!(outcomes[1], TestOutcome::Untested("one seed"));
        assert!(
            warnings[0].contains("dev.json` is not the items of a test set") && warnings[0].ends_with("no test of its items."),
            "{warnings:?}"
        );
        std::fs::remove_file(&path).unwrap();
        assert_eq!(judged(&source, "accuracy", &["--test", "bootstrap"]).0[1], TestOutcome::Untested("no items"));
    }
}
