//! What the comparisons are to reach.

use super::measure::CaseResult;
use super::outcome::Outcome;
use super::plan::{PYTORCH_CACHE, operator};
use crate::statistics::{Quartiles, exponent};

/// A bound on numbers that were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What is to hold.
    pub text: String,
    /// The bound.
    pub bound: Bound,
    /// The numbers, and where each was measured.
    pub measured: Vec<(String, f64)>,
}

/// On which side of a number the others must lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
}

impl Target {
    /// Whether all numbers keep the bound, and if not by what part of it the worst of them misses it; nothing if nothing was measured.
    pub fn verdict(&self) -> Option<String> {
        let miss = |value: f64| match self.bound {
            Bound::AtMost(bound) => value / bound - 1.0,
            // How much more is needed, as a part of what there is: that of an upper bound on the inverse.
            Bound::AtLeast(bound) => bound / value - 1.0,
        };
        let worst = self.measured.iter().map(|(_, value)| miss(*value)).reduce(f64::max)?;
        Some(if worst <= 0.0 { "met".into() } else { format!("missed by {:.0} %", 100.0 * worst.max(0.005)) })
    }
}

/// The targets of a comparison with what it measured for them.
pub fn targets(outcome: &Outcome) -> Vec<Target> {
    let cases = &outcome.cases;
    match outcome.what.as_str() {
        "attention" => attention(cases),
        "step" => step(cases),
        "mechanisms" => mechanisms(outcome),
        "memory" => memory(cases),
        "inference" => inference(cases),
        "decode" => decode(cases),
        _ => Vec::new(),
    }
}

fn at_most(text: impl Into<String>, bound: f64, measured: Vec<(String, f64)>) -> Target {
    Target { text: text.into(), bound: Bound::AtMost(bound), measured }
}

fn at_least(text: impl Into<String>, bound: f64, measured: Vec<(String, f64)>) -> Target {
    Target { text: text.into(), bound: Bound::AtLeast(bound), measured }
}

/// Median ratio of times in each case that satisfies a condition.
fn times(cases: &[CaseResult], wanted: impl Fn(&CaseResult) -> bool, name: &str, baseline: &str) -> Vec<(String, f64)> {
    let ratio = |case: &CaseResult| Some((case.name.clone(), case.time_ratios(name, baseline)?.median));
    cases.iter().filter(|case| wanted(case)).filter_map(ratio).collect()
}

fn peaks(cases: &[CaseResult], name: &str, baseline: &str) -> Vec<(String, f64)> {
    cases.iter().filter_map(|case| Some((case.name.clone(), case.peak_ratio(name, baseline)?))).collect()
}

fn attention(cases: &[CaseResult]) -> Vec<Target> {
    let long = |case: &CaseResult| case.length >= 512;
    let (ours, theirs) = ("heedful fused", "PyTorch SDPA");
    vec![
        at_most("from length 512: time of the fused layer, of PyTorch SDPA's at most 1", 1.0, times(cases, long, ours, theirs)),
        at_most("peak memory of the fused layer, of PyTorch SDPA's at most 1", 1.0, peaks(cases, ours, theirs)),
    ]
}

fn step(cases: &[CaseResult]) -> Vec<Target> {
    vec![
        at_most("time, of PyTorch eager's at most 1", 1.0, times(cases, |_| true, "heedful", "PyTorch")),
        at_most("peak memory, of PyTorch eager's at most 0.8", 0.8, peaks(cases, "heedful", "PyTorch")),
    ]
}

fn mechanisms(outcome: &Outcome) -> Vec<Target> {
    let cases = &outcome.cases;
    let at_8192 = |case: &CaseResult| case.length == 8192;
    let compared = |case: &CaseResult| matches!(case.length, 2048 | 8192);
    let ours = |name: &str| operator(&format!("heedful {name}"));
    let faster = |name: &str| times(cases, at_8192, &ours("dot-product"), &ours(name));
    let fitted = |name: &str| time_exponent(cases, &ours(name)).map(|slope| (name.to_owned(), slope)).into_iter().collect::<Vec<_>>();
    let mut targets = vec![
        at_least("at 8192: dense operator's time, of local-1d's at least 10", 10.0, faster("local-1d")),
        at_least("at 8192: dense operator's time, of sparse-strided's at least 5", 5.0, faster("sparse-strided")),
        at_least("at 8192: dense operator's time, of sparse-fixed's at least 5", 5.0, faster("sparse-fixed")),
        at_least("at 8192: dense operator's time, of lsh's at least 1", 1.0, faster("lsh")),
        at_most("fitted exponent of the time of local-1d, at most 1.2", 1.2, fitted("local-1d")),
        at_most("fitted exponent of the time of sparse-strided, at most 1.6", 1.6, fitted("sparse-strided")),
        at_most("fitted exponent of the time of sparse-fixed, at most 1.6", 1.6, fitted("sparse-fixed")),
    ];
    for (name, peer) in [("local-1d", "local-attention"), ("lsh", "reformer-pytorch")] {
        let ratios = times(cases, compared, &format!("heedful {name}"), peer);
        targets.push(at_most(format!("at 2048 and 8192: layer's time of {name}, of {peer}'s at most 1"), 1.0, ratios));
    }
    targets
}

fn memory(cases: &[CaseResult]) -> Vec<Target> {
    let names = cases.first().into_iter().flat_map(|case| &case.measurements).map(|measurement| &measurement.name);
    let fitted =
        names.filter(|name| !name.contains("synthesizer-random")).filter_map(|name| Some((name.clone(), peak_exponent(cases, name)?)));
    let text =
        "fitted exponent of the peak memory, at most 1.1 (random synthesizers, whose own parameters are a matrix of all pairs, aside)";
    vec![at_most(text, 1.1, fitted.collect())]
}

fn inference(cases: &[CaseResult]) -> Vec<Target> {
    let target = |name: &str| {
        let ratios = times(cases, |_| true, &format!("heedful {name}"), "heedful dot-product");
        at_most(format!("time of {name}, of dot-product's at most 1"), 1.0, ratios)
    };
    ["synthesizer-random", "gaussian", "gaussian, banded"].map(target).into()
}

fn decode(cases: &[CaseResult]) -> Vec<Target> {
    let speed_up = |over: &str| {
        let ratio = |case: &CaseResult| {
            let ours = &case.measurements.first()?.name;
            Some((case.name.clone(), case.time_ratios(&over.replace("OURS", ours), ours)?.median))
        };
        cases.iter().filter_map(ratio).collect()
    };
    vec![
        at_least("tokens per second by steps, of those by recomputing at least 1", 1.0, speed_up("OURS, recomputed")),
        at_least("tokens per second by steps, of PyTorch's with a cache at least 1", 1.0, speed_up(PYTORCH_CACHE)),
    ]
}

/// Fitted exponent of a candidate's median time over the length.
pub fn time_exponent(cases: &[CaseResult], name: &str) -> Option<f64> {
    let point = |case: &CaseResult| Some((case.length as f64, Quartiles::of(&case.find(name)?.seconds)?.median));
    exponent(&cases.iter().filter_map(point).collect::<Vec<_>>())
}

/// Fitted exponent of a candidate's peak memory over the length.
pub fn peak_exponent(cases: &[CaseResult], name: &str) -> Option<f64> {
    let point = |case: &CaseResult| Some((case.length as f64, case.find(name)?.peak_bytes? as f64));
    exponent(&cases.iter().filter_map(point).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::measure::Measurement;

    fn case(length: usize, of: &[(&str, f64, u64)]) -> CaseResult {
        let measurements = of
            .iter()
            .map(|&(name, seconds, peak)| Measurement {
                name: name.into(),
                seconds: vec![seconds; 3],
                peak_bytes: Some(peak),
                ..Measurement::default()
            })
            .collect();
        CaseResult { name: format!("length {length}"), length, tokens: length, measurements }
    }

    fn verdicts(what: &str, cases: Vec<CaseResult>) -> Vec<Option<String>> {
        targets(&Outcome { what: what.into(), cases, ..Outcome::default() }).iter().map(Target::verdict).collect()
    }

    fn said(verdict: &str) -> Option<String> {
        Some(verdict.into())
    }

    #[test]
    fn short_sequences_do_not_count_and_the_worst_of_the_others_does() {
        let attention = |length, ours, peak| case(length, &[("heedful fused", ours, peak), ("PyTorch SDPA", 1.0, 100)]);
        let cases = vec![attention(256, 9.0, 50), attention(512, 0.5, 50), attention(1024, 1.25, 60)];
        assert_eq!(verdicts("attention", cases), [said("missed by 25 %"), said("met")]);
        let cases = vec![attention(512, 1.0, 101), attention(1024, 0.9, 100)];
        assert_eq!(verdicts("attention", cases), [said("met"), said("missed by 1 %")]);
    }

    #[test]
    fn a_step_is_compared_with_the_default_optimiser_of_pytorch() {
        let cases = vec![case(256, &[("heedful", 0.9, 90), ("PyTorch", 1.0, 100), ("PyTorch, fused AdamW", 0.1, 1)])];
        assert_eq!(verdicts("step", cases), [said("met"), said("missed by 12 %")]);
    }

    #[test]
    fn mechanisms_are_judged_by_their_operators_and_peers_by_layers() {
        let at = |length: usize| {
            let n = length as f64 / 8192.0;
            case(
                length,
                &[
                    ("heedful dot-product, operator", n * n, 0),
                    ("heedful local-1d, operator", 0.08 * n, 0),
                    ("heedful sparse-strided, operator", 0.5 * n.powf(1.5), 0),
                    ("heedful sparse-fixed, operator", 0.1 * n.powi(2), 0),
                    ("heedful lsh, operator", 0.9 * n, 0),
                    ("heedful local-1d", 1.0, 0),
                    ("local-attention", 2.0, 0),
                    ("heedful lsh", 3.0, 0),
                    ("reformer-pytorch", 2.0, 0),
                ],
            )
        };
        let found = verdicts("mechanisms", [1024, 2048, 8192].map(at).into());
        let expected = ["met", "missed by 150 %", "met", "met", "met", "met", "missed by 25 %", "met", "missed by 50 %"];
        assert_eq!(found, expected.map(said));
    }

    #[test]
    fn decoding_is_compared_in_tokens_per_second() {
        let of = [("heedful dot-product", 2.0, 0), ("heedful dot-product, recomputed", 8.0, 0), (PYTORCH_CACHE, 1.0, 0)];
        assert_eq!(verdicts("decode", vec![case(1024, &of)]), [said("met"), said("missed by 100 %")]);
    }

    #[test]
    fn memory_grows_linearly_but_for_matrices_that_are_parameters() {
        let at = |length: u64| {
            let of = |quadratic| {
                [("heedful dot-product", 0.0, 7 * length), ("heedful synthesizer-random", 0.0, length * length)]
                    .into_iter()
                    .chain([("heedful relative", 0.0, if quadratic { length * length } else { 2 * length })])
                    .collect::<Vec<_>>()
            };
            [false, true].map(|quadratic| case(length as usize, &of(quadratic)))
        };
        let [linear, quadratic]: [Vec<_>; 2] = [0, 1].map(|index| [64, 128, 256].map(|length| at(length)[index].clone()).into());
        assert_eq!(verdicts("memory", linear), [said("met")]);
        assert_eq!(verdicts("memory", quadratic), [said("missed by 82 %")]);
    }

    #[test]
    fn what_was_not_measured_has_no_verdict() {
        assert_eq!(verdicts("inference", vec![case(256, &[("heedful dot-product", 1.0, 0)])]), [None, None, None]);
    }
}
