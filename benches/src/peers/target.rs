//! Targets of the comparisons.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::measure::CaseResult;
use super::outcome::Outcome;
use super::plan::{DENSE, PYTORCH_CACHE, PYTORCH_SDPA, PYTORCH_TABLE, UNPADDED, operator};
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

/// The targets of a comparison with the numbers measured for them.
pub fn targets(outcome: &Outcome) -> Vec<Target> {
    let cases = &outcome.cases;
    match outcome.what.as_str() {
        "attention" => attention(cases),
        "step" => step(cases),
        "mechanisms" => mechanisms(outcome),
        "positions" => positions(cases),
        "packages" => packages(cases),
        "recurrences" => recurrences(cases),
        "tables" => tables(cases),
        "convolutions" => convolutions(cases),
        "memory" => memory(cases),
        "inference" => inference(cases),
        "decode" => decode(cases),
        _ => Vec::new(),
    }
}

/// A target whose text ends in its bound.
fn at_most(text: impl Display, bound: f64, measured: Vec<(String, f64)>) -> Target {
    Target { text: format!("{text} at most {bound}"), bound: Bound::AtMost(bound), measured }
}

fn at_least(text: impl Display, bound: f64, measured: Vec<(String, f64)>) -> Target {
    Target { text: format!("{text} at least {bound}"), bound: Bound::AtLeast(bound), measured }
}

/// Median ratio of times in each case that satisfies a condition.
fn times(cases: &[CaseResult], wanted: impl Fn(&CaseResult) -> bool, name: &str, baseline: &str) -> Vec<(String, f64)> {
    let ratio = |case: &CaseResult| Some((case.name.clone(), case.time_ratios(name, baseline)?.median));
    cases.iter().filter(|case| wanted(case)).filter_map(ratio).collect()
}

fn peaks(cases: &[CaseResult], name: &str, baseline: &str) -> Vec<(String, f64)> {
    cases.iter().filter_map(|case| Some((case.name.clone(), case.peak_ratio(name, baseline)?))).collect()
}

fn everywhere(_: &CaseResult) -> bool {
    true
}

fn attention(cases: &[CaseResult]) -> Vec<Target> {
    let (ours, theirs) = ("heedful fused", "PyTorch SDPA");
    let within = |lengths: RangeInclusive<usize>, bound| {
        let text = format!("from length {} to {}: time of the fused layer, of PyTorch SDPA's", lengths.start(), lengths.end());
        at_most(text, bound, times(cases, |case| lengths.contains(&case.length), ours, theirs))
    };
    vec![
        within(128..=256, 0.9),
        within(512..=4096, 0.8),
        within(8192..=16384, 0.85),
        at_most("peak memory of the fused layer, of PyTorch SDPA's", 0.9, peaks(cases, ours, theirs)),
    ]
}

fn step(cases: &[CaseResult]) -> Vec<Target> {
    // The best of theirs is what ours is largest beside.
    let against_best = |ratio: &dyn Fn(&CaseResult, &str) -> Option<f64>| {
        let worst = |case: &CaseResult| {
            let theirs = case.measurements.iter().filter(|measurement| measurement.name.starts_with("PyTorch"));
            Some((case.name.clone(), theirs.filter_map(|measurement| ratio(case, &measurement.name)).reduce(f64::max)?))
        };
        cases.iter().filter_map(worst).collect()
    };
    let of = |text: &str, ours: &str| {
        let time = |case: &CaseResult, theirs: &str| Some(case.time_ratios(ours, theirs)?.median);
        let peak = |case: &CaseResult, theirs: &str| case.peak_ratio(ours, theirs);
        [
            at_most(format!("time{text}, of the fastest of PyTorch's"), 0.7, against_best(&time)),
            at_most(format!("peak memory{text}, of the least of PyTorch's"), 0.6, against_best(&peak)),
        ]
    };
    [of("", "heedful"), of(" without padding", UNPADDED)].concat()
}

fn mechanisms(outcome: &Outcome) -> Vec<Target> {
    let cases = &outcome.cases;
    let at_8192 = |case: &CaseResult| case.length == 8192;
    let compared = |case: &CaseResult| matches!(case.length, 2048 | 8192);
    let ours = |name: &str| operator(&format!("heedful {name}"));
    let faster = |name: &str| times(cases, at_8192, &ours("dot-product"), &ours(name));
    let fitted = |name: &str| time_exponent(cases, &ours(name)).map(|slope| (name.to_owned(), slope)).into_iter().collect::<Vec<_>>();
    let mut targets = vec![
        at_least("at 8192: dense operator's time, of local-1d's", 10.0, faster("local-1d")),
        at_least("at 8192: dense operator's time, of sparse-strided's", 5.0, faster("sparse-strided")),
        at_least("at 8192: dense operator's time, of sparse-fixed's", 5.0, faster("sparse-fixed")),
        at_least("at 8192: dense operator's time, of lsh's", 1.0, faster("lsh")),
        at_most("fitted exponent of the time of local-1d,", 1.2, fitted("local-1d")),
        at_most("fitted exponent of the time of sparse-strided,", 1.6, fitted("sparse-strided")),
        at_most("fitted exponent of the time of sparse-fixed,", 1.6, fitted("sparse-fixed")),
        at_most("fitted exponent of the time of lsh,", 1.15, fitted("lsh")),
    ];
    for (name, peer, bound) in [("local-1d", "local-attention", 1.0), ("lsh", "reformer-pytorch", 0.6)] {
        let ratios = times(cases, compared, &format!("heedful {name}"), peer);
        targets.push(at_most(format!("at 2048 and 8192: layer's time of {name}, of {peer}'s"), bound, ratios));
    }
    targets
}

fn positions(cases: &[CaseResult]) -> Vec<Target> {
    let relative = |text: &str, ours: &str, dense: &str| {
        at_most(format!("time of relative{text}, of dot-product's"), 1.35, times(cases, everywhere, ours, dense))
    };
    let of_local = |name: &str| {
        at_most(format!("time of {name}, of local-1d's"), 1.2, times(cases, everywhere, &format!("heedful {name}"), "heedful local-1d"))
    };
    let spans = times(cases, |case| case.length == 4096, "heedful adaptive-span", DENSE);
    vec![
        relative("", "heedful relative", DENSE),
        relative(" with a memory", "heedful relative, memory", "heedful dot-product, memory"),
        at_most("at 4096: time of adaptive-span, of dot-product's", 0.6, spans),
        of_local("local-2d"),
        of_local("sparse-strided"),
    ]
}

fn packages(cases: &[CaseResult]) -> Vec<Target> {
    let layer = |name: &str, package: &str, bound| {
        at_most(format!("time of {name}, of the package {package}'s"), bound, times(cases, everywhere, &format!("heedful {name}"), package))
    };
    vec![layer("linformer", "linformer", 0.8), layer("lsh", "reformer-pytorch", 0.6)]
}

fn recurrences(cases: &[CaseResult]) -> Vec<Target> {
    let layer = |name: &str, package: &str| {
        let ratios = times(cases, everywhere, &format!("heedful {name}"), package);
        at_most(format!("time of {name}, of {package}'s"), 0.5, ratios)
    };
    let of_dense = |name: &str, from: usize, bound| {
        let ratios = times(cases, |case| case.length >= from, &format!("heedful {name}"), DENSE);
        at_most(format!("from length {from}: time of {name}, of dot-product's"), bound, ratios)
    };
    let names = ["linear-attention", "simple-gla", "gated-delta-net"];
    let fitted = |exponent: fn(&[CaseResult], &str) -> Option<f64>| {
        names.iter().filter_map(|name| Some(((*name).to_owned(), exponent(cases, &format!("heedful {name}"))?))).collect::<Vec<_>>()
    };
    vec![
        layer("linear-attention", "fla linear attention"),
        layer("simple-gla", "fla simple GLA"),
        layer("gated-delta-net", "fla gated delta rule"),
        layer("gated-delta-net", "transformers gated delta rule"),
        of_dense("linear-attention", 1024, 1.0),
        of_dense("gated-delta-net", 2048, 1.0),
        of_dense("linear-attention", 8192, 0.25),
        of_dense("gated-delta-net", 8192, 0.25),
        at_most("fitted exponent of the time,", 1.05, fitted(time_exponent)),
        at_most("fitted exponent of the peak memory,", 1.05, fitted(peak_exponent)),
    ]
}

fn tables(cases: &[CaseResult]) -> Vec<Target> {
    let of_dense = |name: &str, bound| {
        let ratios = times(cases, everywhere, &format!("heedful {name}"), DENSE);
        at_most(format!("time of {name}, of dot-product's"), bound, ratios)
    };
    let naive = times(cases, |case| case.length == 2048, "heedful synthesizer-random", PYTORCH_TABLE);
    vec![
        of_dense("synthesizer-random", 1.0),
        of_dense("synthesizer-random-fixed", 1.0),
        of_dense("synthesizer-random+dot-product", 1.4),
        at_most("at 2048: time of synthesizer-random, of PyTorch's", 0.35, naive),
    ]
}

fn convolutions(cases: &[CaseResult]) -> Vec<Target> {
    let of = |name: &str| {
        let ours = format!("heedful {name}");
        let unfold = times(cases, everywhere, &ours, &format!("PyTorch {name}, unfold"));
        let dense = times(cases, |case| case.length >= 256, &ours, DENSE);
        [
            at_most(format!("time of {name}, of PyTorch's by unfolding"), 1.0, unfold),
            at_most(format!("from length 256: time of {name}, of dot-product's"), 1.0, dense),
        ]
    };
    ["lightweight-conv", "dynamic-conv"].into_iter().flat_map(of).collect()
}

fn memory(cases: &[CaseResult]) -> Vec<Target> {
    let names = cases.first().into_iter().flat_map(|case| &case.measurements).map(|measurement| &measurement.name);
    let fitted =
        names.filter(|name| !name.contains("synthesizer-random")).filter_map(|name| Some((name.clone(), peak_exponent(cases, name)?)));
    let text = "fitted exponent of the peak memory (random synthesizers, whose own parameters are a matrix of all pairs, aside),";
    vec![at_most(text, 1.05, fitted.collect())]
}

fn inference(cases: &[CaseResult]) -> Vec<Target> {
    let dense = times(cases, everywhere, DENSE, PYTORCH_SDPA);
    let target = |name: &str| {
        let ratios = times(cases, everywhere, &format!("heedful {name}"), DENSE);
        at_most(format!("time of {name}, of dot-product's"), 1.0, ratios)
    };
    let others = ["synthesizer-random", "gaussian", "gaussian, banded"].map(target);
    [at_most("time of dot-product, of PyTorch SDPA's", 0.9, dense)].into_iter().chain(others).collect()
}

fn decode(cases: &[CaseResult]) -> Vec<Target> {
    // By steps, over another way or the other way round.
    let compared = |ratio: &dyn Fn(&CaseResult, &str) -> Option<Quartiles>| {
        let of = |case: &CaseResult| Some((case.name.clone(), ratio(case, &case.measurements.first()?.name)?.median));
        cases.iter().filter_map(of).collect()
    };
    let recomputed = |case: &CaseResult, ours: &str| case.time_ratios(&format!("{ours}, recomputed"), ours);
    let cached = |case: &CaseResult, ours: &str| case.time_ratios(ours, PYTORCH_CACHE);
    vec![
        at_least("tokens per second by steps, of those by recomputing", 1.0, compared(&recomputed)),
        at_most("time by steps, of PyTorch's with a cache", 0.8, compared(&cached)),
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
    fn a_layer_is_judged_by_its_length_and_the_worst_of_those_alike_counts() {
        let attention = |length, ours, peak| case(length, &[("heedful fused", ours, peak), ("PyTorch SDPA", 1.0, 100)]);
        let cases = vec![attention(256, 0.9, 50), attention(512, 0.5, 50), attention(1024, 1.0, 99), attention(8192, 0.85, 90)];
        assert_eq!(verdicts("attention", cases), [said("met"), said("missed by 25 %"), said("met"), said("missed by 10 %")]);
        let cases = vec![attention(64, 9.0, 50), attention(128, 0.99, 50)];
        assert_eq!(verdicts("attention", cases), [said("missed by 10 %"), None, None, said("met")]);
    }

    #[test]
    fn a_step_is_compared_with_the_best_of_pytorch() {
        let of = [("heedful", 0.7, 60), ("PyTorch", 2.0, 100), ("PyTorch, fused AdamW", 1.0, 120)];
        assert_eq!(verdicts("step", vec![case(256, &of)]), [said("met"), said("met"), None, None]);
        let compiled = [("heedful", 0.7, 60), ("PyTorch", 2.0, 120), ("PyTorch, compiled", 0.5, 80)];
        let missed = [said("missed by 100 %"), said("missed by 25 %"), None, None];
        assert_eq!(verdicts("step", vec![case(256, &of), case(64, &compiled)]), missed);
        let padded = [("heedful", 1.4, 120), (UNPADDED, 0.77, 60), ("PyTorch", 1.0, 100)];
        let expected = [said("missed by 100 %"), said("missed by 100 %"), said("missed by 10 %"), said("met")];
        assert_eq!(verdicts("step", vec![case(256, &padded)]), expected);
    }

    #[test]
    fn layers_are_compared_with_our_dense_one_and_with_those_of_others() {
        let relative = [("heedful dot-product", 1.0, 0), ("heedful relative", 1.3, 0), ("heedful relative, memory", 3.0, 0)];
        let dense = [("heedful dot-product, memory", 2.0, 0)];
        let patterns = [
            ("heedful adaptive-span", 0.75, 0),
            ("heedful local-1d", 1.0, 0),
            ("heedful local-2d", 1.2, 0),
            ("heedful sparse-strided", 1.5, 0),
        ];
        let positions = |length| verdicts("positions", vec![case(length, &[&relative[..], &dense, &patterns].concat())]);
        assert_eq!(positions(512), [said("met"), said("missed by 11 %"), None, said("met"), said("missed by 25 %")]);
        assert_eq!(positions(4096)[2], said("missed by 25 %"));
        let packages = [("heedful linformer", 1.0, 0), ("linformer", 1.0, 0), ("heedful lsh", 1.0, 0), ("reformer-pytorch", 2.0, 0)];
        assert_eq!(verdicts("packages", vec![case(512, &packages)]), [said("missed by 25 %"), said("met")]);
        let tables = [
            ("heedful dot-product", 1.0, 0),
            ("heedful synthesizer-random", 0.9, 0),
            ("heedful synthesizer-random-fixed", 1.1, 0),
            ("heedful synthesizer-random+dot-product", 1.4, 0),
            (PYTORCH_TABLE, 2.0, 0),
        ];
        let expected = [said("met"), said("missed by 10 %"), said("met"), said("missed by 29 %")];
        assert_eq!(verdicts("tables", vec![case(2048, &tables)]), expected);
        let convolutions = |length, dynamic| {
            let lightweight = [("heedful lightweight-conv", 1.0, 0), ("PyTorch lightweight-conv, unfold", 1.0, 0)];
            let others = [("heedful dynamic-conv", dynamic, 0), ("PyTorch dynamic-conv, unfold", 1.0, 0), ("heedful dot-product", 1.0, 0)];
            case(length, &[&lightweight[..], &others].concat())
        };
        let expected = [said("met"), said("met"), said("missed by 50 %"), said("missed by 20 %")];
        assert_eq!(verdicts("convolutions", vec![convolutions(128, 1.5), convolutions(256, 1.2)]), expected);
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
        let expected = ["met", "missed by 150 %", "met", "met", "met", "met", "missed by 25 %", "met", "met", "missed by 150 %"];
        assert_eq!(found, expected.map(said));
    }

    #[test]
    fn recurrences_are_compared_with_packages_and_with_dense_attention() {
        let at = |length: u64| {
            let n = length as f64;
            let of = [
                ("heedful dot-product", n * n, length),
                ("heedful linear-attention", 1000.0 * n, length),
                ("fla linear attention", 4000.0 * n, length),
                ("heedful gated-delta-net", 3000.0 * n, length * length),
                ("fla gated delta rule", 12000.0 * n, length),
                ("transformers gated delta rule", 4000.0 * n, length),
            ];
            case(length as usize, &of)
        };
        let found = verdicts("recurrences", [1024, 2048, 8192].map(at).into());
        let of_packages = [said("met"), None, said("met"), said("missed by 50 %")];
        let of_dense = [said("met"), said("missed by 46 %"), said("met"), said("missed by 46 %")];
        let exponents = [said("met"), said("missed by 90 %")];
        assert_eq!(found, [&of_packages[..], &of_dense, &exponents].concat());
    }

    #[test]
    fn decoding_is_compared_with_both_other_ways() {
        let of = [("heedful dot-product", 2.0, 0), ("heedful dot-product, recomputed", 8.0, 0), (PYTORCH_CACHE, 2.0, 0)];
        assert_eq!(verdicts("decode", vec![case(1024, &of)]), [said("met"), said("missed by 25 %")]);
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
        assert_eq!(verdicts("memory", quadratic), [said("missed by 90 %")]);
    }

    #[test]
    fn what_was_not_measured_has_no_verdict() {
        assert_eq!(verdicts("inference", vec![case(256, &[("heedful dot-product", 1.0, 0)])]), [None, None, None, None]);
    }
}
