//! A claim with its verdict, in words and numbers, as tables, pages and the book show it.

use heedful_host::display::grouped;
use heedful_metrics::Spread;
use heedful_runs::plot::{Axis, Dots, dots, dots_height, picture};
use serde::Serialize;

use super::claim::{Claim, Published, Test};
use super::evidence::{ContenderScores, Evidence};
use super::ledger::Ledger;
use super::runs::Reason;
use super::verdict::{ClaimVerdict, DescribedValue, TestVerdict, Verdicts};
use crate::session::error::ExperimentError;

/// The width of a picture in pixels.
const WIDTH: u32 = 760;

/// Everything that is shown of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Card {
    pub(super) name: String,
    pub(super) sentence: String,
    pub(super) source: String,
    pub(super) verdict: String,
    /// The kind of verdict, for its colour: `reproduced`, `contradicted`, `inconclusive`, `mixed`, `partly-run`, `void` or `not-run`.
    pub(super) kind: String,
    pub(super) tests: Vec<TestRow>,
    pub(super) described: Vec<[String; 2]>,
    pub(super) published: Vec<String>,
    pub(super) contenders: Vec<[String; 4]>,
    pub(super) deviations: String,
    pub(super) beware: String,
    pub(super) command: String,
    pub(super) pictures: Vec<String>,
}

/// A test of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TestRow {
    pub(super) name: String,
    /// What must hold.
    pub(super) rule: String,
    pub(super) decision: String,
    /// Estimate with interval.
    pub(super) value: String,
    pub(super) p: String,
    /// How it was tested, or why there is no result.
    pub(super) why: String,
}

impl Card {
    /// # Errors
    /// A picture that cannot be drawn.
    pub(super) fn of(claim: &Claim, verdict: &ClaimVerdict, is_provisional: bool) -> Result<Self, ExperimentError> {
        let tests = claim.tests.iter().zip(&verdict.tests).map(|(test, verdict)| TestRow::of(test, verdict));
        let mut contenders: Vec<[String; 4]> = Vec::new();
        let mut pictures = Vec::new();
        for Evidence { contenders: of_test, unit, .. } in verdict.tests.iter().filter_map(|test| test.evidence.as_ref()) {
            for contender in of_test {
                let row = row(contender, unit);
                if !contenders.contains(&row) {
                    contenders.push(row);
                }
            }
            if let Some(drawn) = drawn(of_test, unit)?
                && !pictures.contains(&drawn)
            {
                pictures.push(drawn);
            }
        }
        let name = verdict.verdict.name();
        let is_decided = ["reproduced", "contradicted", "inconclusive", "mixed", "partly run"].iter().any(|kind| name.starts_with(kind));
        Ok(Self {
            name: claim.name.clone(),
            sentence: claim.sentence.clone(),
            source: claim.source.clone(),
            kind: name.split(':').next().unwrap_or_default().replace(' ', "-"),
            verdict: if is_decided && is_provisional { format!("{name} (provisional)") } else { name },
            tests: tests.collect(),
            described: verdict.described.iter().map(described).collect(),
            published: claim.published.iter().map(published).collect(),
            contenders,
            deviations: claim.deviations.clone(),
            beware: claim.beware.clone(),
            command: format!("heedful claims run {} --data DIR", claim.name),
            pictures,
        })
    }

    /// The reasons of what has no result, each once.
    pub(super) fn reasons(&self) -> String {
        let mut reasons: Vec<&str> =
            self.tests.iter().filter(|test| ["void", "not run"].contains(&&*test.decision)).map(|test| &*test.why).collect();
        reasons.dedup();
        reasons.join("; ")
    }

    /// Estimates of all tests in one line.
    pub(super) fn values(&self) -> String {
        let values: Vec<&str> = self.tests.iter().map(|test| &*test.value).filter(|value| !value.is_empty()).collect();
        values.join("; ")
    }
}

/// The cards of all claims.
///
/// # Errors
/// A picture that cannot be drawn.
pub(super) fn cards(ledger: &Ledger, verdicts: &Verdicts) -> Result<Vec<Card>, ExperimentError> {
    ledger.claims.iter().zip(&verdicts.claims).map(|(claim, verdict)| Card::of(claim, verdict, verdicts.are_provisional)).collect()
}

impl TestRow {
    fn of(test: &Test, verdict: &TestVerdict) -> Self {
        let TestVerdict { name, decision, evidence, adjusted } = verdict;
        let why = match (decision.reason(), evidence) {
            (Some(reason), _) => reason.to_owned(),
            (None, Some(evidence)) => {
                let every_seed = match evidence.every_seed {
                    Some(true) => "; every seed agrees with the claim",
                    Some(false) => "; not every seed agrees with the claim",
                    None => "",
                };
                let welch = evidence.welch.map_or_else(String::new, |p| format!("; Welch's test beside it: p-value {}", p_value(p)));
                format!("{}{every_seed}{welch}", evidence.method)
            }
            (None, None) => String::new(),
        };
        Self {
            name: name.clone(),
            rule: rule(test),
            decision: decision.name().to_owned(),
            value: evidence.as_ref().map(value).unwrap_or_default(),
            p: adjusted.map(p_value).unwrap_or_default(),
            why,
        }
    }
}

/// What must hold, in words.
fn rule(test: &Test) -> String {
    let unit = test.sum().map(|sum| format!(" {}", sum.unit)).unwrap_or_default();
    match test {
        Test::Difference(test) => format!("at least {}{unit}", test.least),
        Test::NoLoss(test) if test.both_sides => format!("within {}{unit} on both sides", test.margin),
        Test::NoLoss(test) => format!("no more than {}{unit} worse", test.margin),
        Test::Failures(test) => format!("at least {} points more failed runs", test.least),
        Test::Cost(test) => match test.claimed {
            super::claim::Side::AtLeast => format!("a ratio of at least {}", test.ratio),
            super::claim::Side::AtMost => format!("a ratio of at most {}", test.ratio),
        },
    }
}

/// The estimate with its intervals.
fn value(evidence: &Evidence) -> String {
    let [low, high] = evidence.interval_95.map(number);
    let wide = evidence.interval_99.map(|ends| ends.map(number)).map(|[low, high]| format!(", 99 %: {low} to {high}")).unwrap_or_default();
    format!("{} {} (95 %: {low} to {high}{wide})", number(evidence.value), evidence.unit)
}

fn described(described: &DescribedValue) -> [String; 2] {
    let shown = match &described.evidence {
        Ok(evidence) => value(evidence),
        Err(Reason::NotRun(reason) | Reason::Void(reason)) => reason.clone(),
    };
    [described.name.clone(), shown]
}

fn row(contender: &ContenderScores, unit: &str) -> [String; 4] {
    let ContenderScores { label, values, unit: own, parameters } = contender;
    let unit = own.as_deref().unwrap_or(unit);
    let spread = Spread::of(values).map_or_else(String::new, |spread| match spread.deviation {
        Some(deviation) => format!("{} ± {} {unit}", number(spread.mean), number(deviation)),
        None => format!("{} {unit}", number(spread.mean)),
    });
    let values: Vec<String> = values.iter().copied().map(number).collect();
    [label.clone(), spread, values.join(" "), parameters.map(grouped).unwrap_or_default()]
}

fn published(published: &Published) -> String {
    let Published { r#where, verified, recalled, note } = published;
    let list = |numbers: &std::collections::BTreeMap<String, f64>| {
        numbers.iter().map(|(model, value)| format!("{model} {value}")).collect::<Vec<_>>().join(", ")
    };
    let mut parts = Vec::new();
    if !verified.is_empty() {
        parts.push(list(verified));
    }
    if !recalled.is_empty() {
        parts.push(format!("{} (from memory)", list(recalled)));
    }
    let numbers = parts.join("; ");
    let separator = if numbers.is_empty() { "" } else { ": " };
    let note = if note.is_empty() { String::new() } else { format!(". {note}") };
    format!("{}{separator}{numbers}{note}", r#where)
}

/// The scores of contenders below each other; none if there are none.
fn drawn(contenders: &[ContenderScores], unit: &str) -> Result<Option<String>, ExperimentError> {
    let rows: Vec<Dots> = contenders
        .iter()
        .enumerate()
        .filter(|(_, contender)| !contender.values.is_empty())
        .map(|(colour, contender)| Dots { name: contender.label.clone(), colour, values: contender.values.clone() })
        .collect();
    let name = contenders.first().and_then(|contender| contender.unit.as_deref()).unwrap_or(unit);
    let Some(axis) = Axis::over(name, rows.iter().flat_map(|row| row.values.iter().copied())) else { return Ok(None) };
    let axis = axis.with_margin();
    let drawn = picture((WIDTH, dots_height(rows.len())), |area| dots(area, &axis, &rows))
        .map_err(|error| ExperimentError::failure(error.to_string()))?;
    Ok(Some(drawn))
}

/// A number with four digits that say something, and at most four after the point.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "∞".to_owned() } else { "-∞".to_owned() };
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let digits = (3 - magnitude).clamp(0, 4) as usize;
    let text = format!("{value:.digits$}");
    if text.trim_start_matches('-').chars().all(|digit| "0.".contains(digit)) { text.trim_start_matches('-').to_owned() } else { text }
}

fn p_value(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_shown_in_their_own_unit() {
        let of = |unit: Option<&str>| ContenderScores {
            label: "a".into(),
            values: vec![2.0, 4.0],
            unit: unit.map(str::to_owned),
            parameters: unit.is_none().then_some(1000),
        };
        assert_eq!(row(&of(Some("bytes")), "ratio of bytes")[1], "3.000 ± 1.414 bytes");
        assert_eq!(row(&of(None), "BLEU")[1..], ["3.000 ± 1.414 BLEU", "2.000 4.000", "1,000"]);
        assert!(drawn(&[of(Some("bytes"))], "ratio of bytes").unwrap().unwrap().contains("bytes"));
    }

    #[test]
    fn numbers_show_four_digits_and_no_negative_zero() {
        let shown = [0.0, -0.00001, 27.666, -1.25, 12345.6, 0.01234, 98.5, f64::NEG_INFINITY].map(number);
        assert_eq!(shown, ["0.000", "0.0000", "27.67", "-1.250", "12346", "0.0123", "98.50", "-∞"]);
        assert_eq!([p_value(0.00001), p_value(0.0312)], ["< 0.0001", "0.0312"]);
    }
}
