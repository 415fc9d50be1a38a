//! Verdicts: decisions on the evidence by the rules of the ledger.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use heedful_metrics::significance::holm;

use super::claim::{Claim, Cost, Difference, Failures, NoLoss, Pitfall, Side, Test};
use super::cost::Costs;
use super::evidence::Evidence;
use super::ledger::Ledger;
use super::pitfalls;
use super::runs::{Reason, Runs};
use crate::session::error::ExperimentError;

/// The level of all adjusted tests together.
const LEVEL: f64 = 0.05;

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The claim holds here by its rule.
    Reproduced,
    /// The contrary holds here by its rule.
    Contradicted,
    /// Neither holds.
    Inconclusive,
    /// The result would mean nothing, with the reason.
    Void(String),
    /// There is no result, and why.
    NotRun(String),
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What became of its only test, or of all of them alike.
    All(Decision),
    /// Its tests differ: how many have each decision.
    Mixed(String),
    /// Some of its tests have not been run: how many have each decision.
    PartlyRun(String),
}

/// A test with its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct TestVerdict {
    /// What is compared.
    pub name: String,
    /// What became of it.
    pub decision: Decision,
    /// The evidence of the runs; none where they are missing.
    pub evidence: Option<Evidence>,
    /// The p-value adjusted for all tests of the ledger, where there is one.
    pub adjusted: Option<f64>,
}

/// A secondary contrast with the evidence of the runs.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedValue {
    /// What is compared.
    pub name: String,
    /// The evidence of the runs, or the reason why there is none.
    pub evidence: Result<Evidence, Reason>,
}

/// A claim with its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimVerdict {
    /// Its name.
    pub name: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Its tests.
    pub tests: Vec<TestVerdict>,
    /// Its secondary contrasts.
    pub described: Vec<DescribedValue>,
}

/// The verdicts of a ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdicts {
    /// One for each claim, in their order.
    pub claims: Vec<ClaimVerdict>,
    /// Whether tests of the ledger have not run: adjusted p-values are then those of the strictest step.
    pub are_provisional: bool,
    /// The number of tests that are adjusted for each other.
    pub adjusted_tests: usize,
}

impl Verdicts {
    /// Computes all verdicts from the runs below `root`, where each block has a folder of its name.
    ///
    /// # Errors
    /// Records or measurements that are damaged, and blocks that no program would run.
    pub fn compute(ledger: &Ledger, root: &Path) -> Result<Self, ExperimentError> {
        let (runs, costs) = (Runs::read(ledger, root)?, Costs::read(ledger, root)?);
        let found: Vec<Vec<Found>> = ledger.claims.iter().map(|claim| found(ledger, &runs, &costs, claim)).collect();
        let adjusted = Adjusted::of(ledger, &found);
        let mut claims = Vec::new();
        for (claim, found) in ledger.claims.iter().zip(found) {
            let tests = claim.tests.iter().zip(found).enumerate().map(|(index, (test, found))| {
                let adjusted = adjusted.p.get(&(claim.name.clone(), index)).copied();
                let decision = match &found.reason {
                    Some(Reason::NotRun(reason)) => Decision::NotRun(reason.clone()),
                    Some(Reason::Void(reason)) => Decision::Void(reason.clone()),
                    None => decide(test, found.evidence.as_ref().expect("there is evidence or a reason"), adjusted),
                };
                TestVerdict { name: test.name().to_owned(), decision, evidence: found.evidence, adjusted }
            });
            let described = claim.described.iter().map(|described| DescribedValue {
                name: described.name.clone(),
                evidence: Evidence::described(&runs, &claim.name, &described.name, &described.of),
            });
            let tests: Vec<TestVerdict> = tests.collect();
            claims.push(ClaimVerdict { name: claim.name.clone(), verdict: together(&tests), tests, described: described.collect() });
        }
        let mut verdicts = Self { claims, are_provisional: adjusted.are_provisional, adjusted_tests: ledger.adjusted_tests() };
        verdicts.look_at_required(ledger);
        Ok(verdicts)
    }

    /// The verdict of a claim.
    pub fn of(&self, name: &str) -> Option<&ClaimVerdict> {
        self.claims.iter().find(|claim| claim.name == name)
    }

    /// Voids the tests of claims that mean something only if another one is reproduced.
    fn look_at_required(&mut self, ledger: &Ledger) {
        for claim in &ledger.claims {
            for pitfall in &claim.pitfalls {
                let Pitfall::Requires { claim: required } = pitfall else { continue };
                let reason = match self.of(required).map(|other| &other.verdict) {
                    Some(Verdict::All(Decision::Reproduced)) => continue,
                    Some(Verdict::All(Decision::NotRun(_))) | None => Decision::NotRun(format!("waits for the verdict of {required}")),
                    Some(other) => Decision::Void(format!("{required} is {}", other.name())),
                };
                let Some(own) = self.claims.iter_mut().find(|own| own.name == claim.name) else { continue };
                for test in own.tests.iter_mut().filter(|test| !matches!(test.decision, Decision::NotRun(_))) {
                    test.decision = reason.clone();
                }
                own.verdict = together(&own.tests);
            }
        }
    }
}

/// What is there of a test.
struct Found {
    evidence: Option<Evidence>,
    reason: Option<Reason>,
}

fn found(ledger: &Ledger, runs: &Runs<'_>, costs: &Costs, claim: &Claim) -> Vec<Found> {
    let of_test = |test: &Test| match Evidence::of(ledger, runs, costs, &claim.name, test) {
        Err(reason) => Found { evidence: None, reason: Some(reason) },
        Ok(evidence) => {
            let applies = |pitfall: &&Pitfall| pitfall.test().is_none_or(|name| name == test.name());
            let reason = claim.pitfalls.iter().filter(applies).find_map(|pitfall| pitfalls::reason(runs, pitfall));
            Found { evidence: Some(evidence), reason }
        }
    };
    claim.tests.iter().map(of_test).collect()
}

/// Adjusted p-values, by claim and number of the test.
struct Adjusted {
    p: BTreeMap<(String, usize), f64>,
    are_provisional: bool,
}

impl Adjusted {
    fn of(ledger: &Ledger, found: &[Vec<Found>]) -> Self {
        let mut tests = Vec::new();
        let mut are_provisional = false;
        for (claim, found) in ledger.claims.iter().zip(found) {
            for (index, (_, found)) in claim.tests.iter().zip(found).enumerate().filter(|(_, (test, _))| test.is_adjusted()) {
                // A void test has been looked at, and takes its place among the others without a say.
                let p = match (&found.reason, &found.evidence) {
                    (Some(Reason::Void(_)), _) => Some(1.0),
                    (None, Some(evidence)) => evidence.p,
                    _ => None,
                };
                are_provisional |= p.is_none();
                tests.push(((claim.name.clone(), index), p));
            }
        }
        let all = tests.len() as f64;
        let stepwise = holm(&tests.iter().map(|(_, p)| p.unwrap_or(1.0)).collect::<Vec<_>>());
        let adjusted = |((place, p), stepwise): (((String, usize), Option<f64>), f64)| {
            let p = p?;
            Some((place, if are_provisional { (all * p).min(1.0) } else { stepwise }))
        };
        Self { p: tests.into_iter().zip(stepwise).filter_map(adjusted).collect(), are_provisional }
    }
}

/// What the rule of a test makes of its evidence.
fn decide(test: &Test, evidence: &Evidence, adjusted: Option<f64>) -> Decision {
    let is_significant = adjusted.is_some_and(|p| p < LEVEL) && evidence.every_seed != Some(false);
    let [low, high] = evidence.interval_99.unwrap_or(evidence.interval_95);
    let (is_reproduced, is_contradicted) = match test {
        Test::Difference(Difference { least, .. }) | Test::Failures(Failures { least, .. }) => {
            (is_significant && evidence.value > 0.0 && evidence.value >= *least, high < *least)
        }
        Test::NoLoss(NoLoss { margin, both_sides, .. }) => (is_significant, high < -margin || *both_sides && low > *margin),
        Test::Cost(Cost { ratio, claimed, .. }) => match claimed {
            Side::AtLeast => (low >= *ratio, high < *ratio),
            Side::AtMost => (high <= *ratio, low > *ratio),
        },
    };
    match (is_reproduced, is_contradicted) {
        (true, false) => Decision::Reproduced,
        (false, true) => Decision::Contradicted,
        _ => Decision::Inconclusive,
    }
}

/// What the tests of a claim say together.
fn together(tests: &[TestVerdict]) -> Verdict {
    let names: Vec<&str> = tests.iter().map(|test| test.decision.name()).collect();
    match names.split_first() {
        Some((first, others)) if others.iter().all(|other| other == first) => Verdict::All(tests[0].decision.clone()),
        _ => {
            let kinds = ["reproduced", "contradicted", "inconclusive", "void", "not run"];
            let counts = kinds.map(|kind| (names.iter().filter(|name| **name == kind).count(), kind));
            let counts: Vec<String> =
                counts.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
            let counts = counts.join(", ");
            if names.contains(&"not run") { Verdict::PartlyRun(counts) } else { Verdict::Mixed(counts) }
        }
    }
}

impl Decision {
    /// `reproduced`, `contradicted`, `inconclusive`, `void` or `not run`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Contradicted => "contradicted",
            Self::Inconclusive => "inconclusive",
            Self::Void(_) => "void",
            Self::NotRun(_) => "not run",
        }
    }

    /// Why there is no result.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Void(reason) | Self::NotRun(reason) => Some(reason),
            _ => None,
        }
    }
}

impl Verdict {
    /// The decision's name, or `mixed` or `partly run` with the number of each.
    pub fn name(&self) -> String {
        match self {
            Self::All(decision) => decision.name().to_owned(),
            Self::Mixed(counts) => format!("mixed: {counts}"),
            Self::PartlyRun(counts) => format!("partly run: {counts}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
