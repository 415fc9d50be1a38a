//! The evidence of the runs on one test, before its decision.

use heedful_host::display::{distinct, grouped};
use heedful_metrics::significance::{Contrast, ItemStatistics, Margin, Resampled, Term, mcnemar, paired_t, welch, within_margin};
use heedful_random::RandomKey;

use super::claim::{NoLoss, Test};
use super::cost;
use super::ledger::Ledger;
use super::runs::{Contender, Reason, Runs, SEED_TEST, waits_for};
use super::sum::Sum;

/// Resamples of every randomised test and interval.
const RESAMPLES: usize = 10_000;

/// The evidence of the runs on a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The contrast, or the ratio of costs.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Its 95 % interval.
    pub interval_95: [f64; 2],
    /// Its 99 % interval; of costs none.
    pub interval_99: Option<[f64; 2]>,
    /// The p-value of the claim's test, unadjusted; of costs none.
    pub p: Option<f64>,
    /// Whether every seed agrees with the claim, where the decision requires that beside the p-value.
    pub every_seed: Option<bool>,
    /// The contrast of each seed; none of costs.
    pub by_seed: Vec<f64>,
    /// What was computed, in words.
    pub method: String,
    /// The p-value of Welch's test of the two contenders, which decides nothing.
    pub welch: Option<f64>,
    /// The contenders, as far as they have scores.
    pub contenders: Vec<ContenderScores>,
}

/// A contender's scores.
#[derive(Clone, Debug, PartialEq)]
pub struct ContenderScores {
    /// Its name, with what tells it from others.
    pub label: String,
    /// By seed, in the unit of the contrast; runs that failed have none. For costs, by round.
    pub values: Vec<f64>,
    /// The unit of costs, and of the scores in a ratio; none where it is that of the contrast.
    pub unit: Option<String>,
    /// The largest number of trained values; none of costs.
    pub parameters: Option<u64>,
}

impl Evidence {
    /// What the runs say about a test of the claim `claim`.
    pub(super) fn of(ledger: &Ledger, runs: &Runs<'_>, costs: &cost::Costs, claim: &str, test: &Test) -> Result<Self, Reason> {
        if !test.missing().is_empty() {
            return Err(Reason::NotRun(waits_for(ledger, test.missing())));
        }
        let key = RandomKey::from_seed(0).named("claims").named(claim).named(test.name());
        match test {
            Test::Cost(cost) => costs.evidence(ledger, cost, &key),
            Test::Difference(test) => {
                let measured = Measured::of(runs.contenders(&test.of, false)?, &test.of)?;
                measured.difference(&test.of, &key)
            }
            Test::NoLoss(test) => {
                let measured = Measured::of(runs.contenders(&test.of, false)?, &test.of)?;
                Ok(measured.no_loss(test, &key))
            }
            Test::Failures(test) => failures(runs.contenders(&test.of, true)?, test.below, &key),
        }
    }

    /// A secondary contrast: value and intervals, without a test.
    pub(super) fn described(runs: &Runs<'_>, claim: &str, name: &str, sum: &Sum) -> Result<Self, Reason> {
        let key = RandomKey::from_seed(0).named("claims").named(claim).named(name);
        let measured = Measured::of(runs.contenders(sum, false)?, sum)?;
        Ok(measured.evidence(sum, &key).0)
    }
}

/// A score, from sums of the statistics of items.
type Score = Box<dyn Fn(&[f64]) -> f64 + Sync>;

/// The contenders of a sum with the statistics of their runs.
struct Measured {
    contenders: Vec<Contender>,
    statistics: Vec<Vec<ItemStatistics>>,
    scores: Vec<Score>,
    sets: Vec<usize>,
    /// How many contenders stand in the sum itself; the others in what it is divided by.
    terms: usize,
    items: String,
    runs: usize,
}

impl Measured {
    fn of(contenders: Vec<Contender>, sum: &Sum) -> Result<Self, Reason> {
        let runs = contenders.iter().map(|contender| contender.values.len()).min().unwrap_or_default();
        if contenders.iter().any(|contender| contender.values.len() != runs) {
            return Err(Reason::NotRun("the blocks of the contenders have unequal numbers of seeds".to_owned()));
        }
        let are_items = contenders.iter().all(|contender| contender.items.is_some());
        if !are_items && runs < SEED_TEST {
            let without = contenders.iter().find(|contender| contender.items.is_none()).map_or("", |contender| contender.label.as_str());
            return Err(Reason::NotRun(format!("with {runs} seeds the test is over items, and the runs of {without} hold none")));
        }
        let identities = distinct(contenders.iter().map(identity));
        let sets = contenders.iter().map(|contender| identities.iter().position(|other| *other == identity(contender)).unwrap_or_default());
        let sets = if are_items { sets.collect() } else { vec![0; contenders.len()] };
        let mut scores: Vec<Score> = Vec::new();
        let mut statistics = Vec::new();
        for contender in &contenders {
            match contender.items.as_ref().filter(|_| are_items) {
                Some(items) => {
                    let (scale, combination) = (items.scale, items.combination);
                    scores.push(Box::new(move |sum| scale * combination.score(sum)));
                    statistics.push(items.statistics.clone());
                }
                None => {
                    scores.push(Box::new(|sum| sum[0]));
                    let single = |value: &Option<f64>| ItemStatistics::new([vec![value.unwrap_or(f64::NAN)]]);
                    statistics.push(contender.values.iter().map(single).collect());
                }
            }
        }
        let counted = |set: usize| statistics.get(set).and_then(|runs| runs.first()).map_or(0, ItemStatistics::items);
        let items = match contenders[0].items.as_ref().filter(|_| are_items) {
            Some(items) => format!(" and {} {}", grouped(counted(0) as u64), items.unit),
            None => String::new(),
        };
        Ok(Self { contenders, statistics, scores, sets, terms: sum.plus.len() + sum.minus.len(), items, runs })
    }

    fn contrast(&self) -> Contrast<'_> {
        let term = |index: usize| Term {
            weight: self.contenders[index].weight,
            set: self.sets[index],
            runs: &self.statistics[index],
            score: &*self.scores[index],
        };
        Contrast { terms: (0..self.terms).map(term).collect(), divisor: (self.terms..self.contenders.len()).map(term).collect() }
    }

    /// Value and intervals; what decides is still to be filled in.
    fn evidence(&self, sum: &Sum, key: &RandomKey) -> (Evidence, Resampled) {
        let contrast = self.contrast();
        let resampled = contrast.bootstrap(RESAMPLES, &key.named("bootstrap"));
        let scores = |contender: &Contender| ContenderScores {
            label: contender.label.clone(),
            values: contender.values.iter().copied().flatten().collect(),
            // A ratio of scores is no score.
            unit: sum.is_ratio().then(|| sum.metric.clone()),
            parameters: Some(contender.parameters),
        };
        let contenders: Vec<ContenderScores> = self.contenders.iter().map(scores).collect();
        let is_pair = self.contenders.len() == 2 && self.contenders[0].weight == -self.contenders[1].weight;
        let welch = is_pair.then(|| welch(&contenders[0].values, &contenders[1].values, 0.95)).flatten().map(|difference| difference.p);
        let evidence = Evidence {
            value: contrast.value(),
            unit: sum.unit.clone(),
            interval_95: resampled.interval(0.95),
            interval_99: Some(resampled.interval(0.99)),
            p: None,
            every_seed: None,
            by_seed: contrast.by_seed(),
            method: format!("paired bootstrap over {} seeds{}", self.runs, self.items),
            welch,
            contenders,
        };
        (evidence, resampled)
    }

    fn difference(&self, sum: &Sum, key: &RandomKey) -> Result<Evidence, Reason> {
        let (evidence, _) = self.evidence(sum, key);
        if self.runs >= SEED_TEST {
            let p = of_constant(
                &evidence.by_seed,
                |differences| paired_t(differences, 0.95).map(|difference| difference.p),
                |value| value == 0.0,
            );
            return Ok(Evidence { p: Some(p), method: format!("paired t-test over {} seeds", self.runs), ..evidence });
        }
        let test = self.contrast().randomisation(RESAMPLES, &key.named("randomisation"));
        let test = test.ok_or_else(|| Reason::NotRun("contenders that are to swap were tested on other items".to_owned()))?;
        let method = format!(
            "randomisation of{}, {} swaps, and the sign of every seed",
            self.items.trim_start_matches(" and"),
            grouped(RESAMPLES as u64)
        );
        let every_seed = Some(evidence.by_seed.iter().all(|difference| *difference > 0.0));
        Ok(Evidence { p: Some(test.p), every_seed, method, ..evidence })
    }

    fn no_loss(&self, test: &NoLoss, key: &RandomKey) -> Evidence {
        let margin = if test.both_sides { Margin::Equivalent(test.margin) } else { Margin::NoWorse(test.margin) };
        let (evidence, resampled) = self.evidence(&test.of, key);
        if self.runs >= SEED_TEST {
            let is_beyond = |value: f64| value <= -test.margin || test.both_sides && value >= test.margin;
            let p = of_constant(&evidence.by_seed, |differences| within_margin(differences, margin), is_beyond);
            return Evidence { p: Some(p), method: format!("one-sided paired t-tests over {} seeds", self.runs), ..evidence };
        }
        let is_near = |difference: &f64| *difference >= -2.0 * test.margin && (!test.both_sides || *difference <= 2.0 * test.margin);
        let every_seed = Some(evidence.by_seed.iter().all(is_near));
        let method = format!("{}, {} resamples, and the range of every seed", evidence.method, grouped(RESAMPLES as u64));
        Evidence { p: Some(resampled.within_margin(margin)), every_seed, method, ..evidence }
    }
}

/// The p-value of a test over seeds; where they do not vary, 1 if the null hypothesis says what they are and 0 else.
fn of_constant(differences: &[f64], test: impl Fn(&[f64]) -> Option<f64>, is_null: impl Fn(f64) -> bool) -> f64 {
    test(differences).unwrap_or_else(|| if is_null(differences[0]) { 1.0 } else { 0.0 })
}

fn identity(contender: &Contender) -> String {
    contender.items.as_ref().map_or_else(String::new, |items| items.identity.clone())
}

/// McNemar's exact test of failed runs over equal draws, which the seeds are.
fn failures(contenders: Vec<Contender>, below: f64, key: &RandomKey) -> Result<Evidence, Reason> {
    let [more, fewer] = &contenders[..] else {
        return Err(Reason::NotRun("failures are compared of two contenders".to_owned()));
    };
    let failed =
        |contender: &Contender| contender.values.iter().map(|value| value.is_none_or(|value| value < below)).collect::<Vec<bool>>();
    let (first, second) = (failed(more), failed(fewer));
    if first.len() != second.len() {
        return Err(Reason::NotRun("the contenders have unequal numbers of draws".to_owned()));
    }
    let alone = |one: &[bool], other: &[bool]| one.iter().zip(other).filter(|(one, other)| **one && !**other).count() as u64;
    let (gained, lost) = (alone(&first, &second), alone(&second, &first));
    let shares =
        |failed: &[bool]| failed.iter().map(|failed| ItemStatistics::new([vec![100.0 * f64::from(u8::from(*failed))]])).collect::<Vec<_>>();
    let runs = [shares(&first), shares(&second)];
    let single = |sum: &[f64]| sum[0];
    let term = |index: usize| Term { weight: [1.0, -1.0][index], set: 0, runs: &runs[index], score: &single };
    let contrast = Contrast { terms: vec![term(0), term(1)], divisor: Vec::new() };
    let resampled = contrast.bootstrap(RESAMPLES, &key.named("bootstrap"));
    let scores = |(contender, failed): (&Contender, &Vec<bool>)| ContenderScores {
        label: format!("{} ({} of {} failed)", contender.label, failed.iter().filter(|failed| **failed).count(), failed.len()),
        values: contender.values.iter().copied().flatten().collect(),
        unit: None,
        parameters: Some(contender.parameters),
    };
    Ok(Evidence {
        value: contrast.value(),
        unit: "points of failed runs".to_owned(),
        interval_95: resampled.interval(0.95),
        interval_99: Some(resampled.interval(0.99)),
        p: Some(mcnemar(gained, lost)),
        every_seed: None,
        by_seed: contrast.by_seed(),
        method: format!("McNemar's exact test over {} draws, {gained} failed in the first alone and {lost} in the second", first.len()),
        welch: None,
        contenders: contenders.iter().zip([&first, &second]).map(scores).collect(),
    })
}
