//! What the runs say about the difference of a row from the baseline.

use heedful_attention::random::RandomKey;

use crate::metrics::MetricColumn;
use crate::metrics::significance::{Difference, PairedOutputs, randomisation, welch};
use crate::report::grouped;

use super::group::{Group, Row};
use super::options::{CompareOptions, Test};
use super::sentences::{Missing, Translations};

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
    let mut tests = Tests { baseline: &group.rows[baseline], metric, options, baseline_translations: None, warnings };
    let judge = |(index, row): (usize, &Row<'_>)| if index == baseline { TestOutcome::Baseline } else { tests.judge(row) };
    group.rows.iter().enumerate().map(judge).collect()
}

/// The tests of one metric against one baseline.
struct Tests<'a> {
    baseline: &'a Row<'a>,
    metric: &'a MetricColumn,
    options: &'a CompareOptions,
    /// Read when first needed.
    baseline_translations: Option<Result<Translations, Missing>>,
    warnings: &'a mut Vec<String>,
}

/// Why single runs without translations are not tested.
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
            Test::Auto if !several => match self.of_sentences(row, Self::bootstrap) {
                Ok(outcome) => outcome,
                Err(_) => TestOutcome::Untested(ONE_SEED),
            },
            Test::Auto | Test::Welch | Test::Randomisation if !several => TestOutcome::Untested(ONE_SEED),
            Test::Auto | Test::Welch => {
                let test = format!("Welch's t-test, {} and {} seeds", values.len(), others.len());
                match welch(&values, &others, self.options.confidence) {
                    Some(difference) => TestOutcome::Tested { difference, test },
                    None => TestOutcome::Untested("no spread"),
                }
            }
            Test::Randomisation => {
                let resamples = self.options.randomisation_resamples();
                let difference = randomisation(&values, &others, resamples, &self.key("seeds")).expect("both have values");
                let how = difference.resamples.map_or_else(|| "exact".to_owned(), |count| format!("{} resamples", grouped(count as u64)));
                let test = format!("randomisation of {} and {} seeds, {how}", values.len(), others.len());
                TestOutcome::Tested { difference, test }
            }
            Test::Bootstrap => self.of_sentences(row, Self::bootstrap).unwrap_or_else(|missing| TestOutcome::Untested(reason(&missing))),
            Test::SentenceRandomisation => {
                self.of_sentences(row, Self::sentence_randomisation).unwrap_or_else(|missing| TestOutcome::Untested(reason(&missing)))
            }
        }
    }

    /// The outcome of `test`, which is given the translations of the row and of the baseline.
    fn of_sentences(
        &mut self,
        row: &Row<'_>,
        test: fn(&Self, &Translations, &Translations) -> TestOutcome,
    ) -> Result<TestOutcome, Missing> {
        let mut read = |row: &Row<'_>| {
            Translations::read(row, &self.metric.name).inspect_err(|missing| {
                if let Missing::Damaged(problem) = missing {
                    self.warnings.push(format!("{problem}: no test of its sentences."));
                }
            })
        };
        let baseline = match self.baseline_translations.take() {
            Some(read) => read,
            None => read(self.baseline),
        };
        let outcome = match &baseline {
            Err(missing) => Err(missing.clone()),
            Ok(baseline) => read(row).map(|own| match own.references == baseline.references && own.metric == baseline.metric {
                // Equal translations would get the smallest p there is from sacreBLEU's count.
                true if own.statistics == baseline.statistics => TestOutcome::Untested("equal"),
                true => test(self, &own, baseline),
                false => TestOutcome::Untested("other references"),
            }),
        };
        self.baseline_translations = Some(baseline);
        outcome
    }

    fn bootstrap(&self, own: &Translations, baseline: &Translations) -> TestOutcome {
        let score = |sum: &[f64]| self.metric.factor * own.metric.score(sum);
        let outputs = PairedOutputs { system: &own.statistics, baseline: &baseline.statistics, score: &score };
        let resamples = self.options.bootstrap_resamples();
        let difference = outputs.bootstrap(self.options.confidence, resamples, &self.key("bootstrap"));
        let sentences = grouped(own.references.len() as u64);
        TestOutcome::Tested {
            difference,
            test: format!("paired bootstrap of {sentences} sentences, {} resamples", grouped(resamples as u64)),
        }
    }

    fn sentence_randomisation(&self, own: &Translations, baseline: &Translations) -> TestOutcome {
        let seeds: Vec<u64> = own.seeds.iter().copied().filter(|seed| baseline.seeds.contains(seed)).collect();
        if seeds.is_empty() {
            return TestOutcome::Untested("no seed in common");
        }
        let of_seeds = |side: &Translations| {
            let runs = side.seeds.iter().zip(&side.statistics);
            runs.filter(|(seed, _)| seeds.contains(seed)).map(|(_, statistics)| statistics.clone()).collect::<Vec<_>>()
        };
        let score = |sum: &[f64]| self.metric.factor * own.metric.score(sum);
        let (system, baseline) = (of_seeds(own), of_seeds(baseline));
        let resamples = self.options.randomisation_resamples();
        let difference =
            PairedOutputs { system: &system, baseline: &baseline, score: &score }.randomisation(resamples, &self.key("sentences"));
        let (sentences, resamples) = (grouped(own.references.len() as u64), grouped(resamples as u64));
        TestOutcome::Tested { difference, test: format!("paired randomisation of {sentences} sentences, {resamples} resamples") }
    }

    /// All rows and metrics are resampled alike.
    fn key(&self, test: &str) -> RandomKey {
        RandomKey::from_seed(self.options.seed).named("compare").named(test)
    }
}

fn reason(missing: &Missing) -> &'static str {
    match missing {
        Missing::NotOfSentences => "not a score of sentences",
        Missing::Hypotheses => "no hypotheses",
        Missing::References => "no references",
        Missing::Damaged(_) => "damaged",
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::groups;
    use super::super::group::tests::{record, source};
    use super::super::options::tests::options;
    use super::super::runs::RunSource;
    use super::super::sentences::tests::{REFERENCES, translated};
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
        let TestOutcome::Tested { difference, test } = &outcomes[1] else { panic!("{outcomes:?}") };
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
        assert_eq!(why(&seeds(&[("a", &[1.0, 1.1]), ("b", &[1.0, 1.3])]), &["--test", "bootstrap"]), "not a score of sentences");
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
        let (swapped, _) = judged(&source, "news/chrF2", &["--test", "sentence-randomisation"]);
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
        let randomised = |source: &RunSource| judged(source, "BLEU", &["--test", "sentence-randomisation"]).0[1].clone();
        assert_eq!(randomised(&source), TestOutcome::Untested("no seed in common"));
        let mut other = source.clone();
        let paths = source.folder.run("gaussian", 2).unwrap();
        paths.write_references("news", &worse).unwrap();
        other.records[1].metrics.insert("BLEU".into(), Some(100.0));
        other.records[1].metrics.insert("news/chrF2".into(), Some(100.0));
        let (outcomes, _) = judged(&other, "BLEU", &["--test", "bootstrap"]);
        assert_eq!(outcomes[1], TestOutcome::Untested("other references"));
    }
}
