//! Results as tables.

use std::fmt::Write;

use heedful_models::kernels::precision::Precision;

use super::crossover::{Crossover, DENSE};
use super::memory::Measure;
use super::outcome::{Outcome, Point};
use super::point::Pass;
use crate::markdown::{significant, table};
use crate::provenance::code;
use crate::statistics::exponent;

/// Lengths, the longest ones, over which exponents are fitted.
const FITTED: usize = 3;

impl Outcome {
    /// What a reader must know to make use of the figures.
    pub fn header(&self) -> String {
        let devices: Vec<String> = self.devices.iter().map(|(backend, device)| format!("{backend}: {device}")).collect();
        let shared = self.kv_heads.map_or_else(String::new, |heads| format!(" ({heads} of keys and values)"));
        let load = self.load.map_or_else(String::new, |load| format!(", load {load:.1} before"));
        let kind = if self.is_bidirectional { "Bidirectional" } else { "Causal" };
        format!(
            "heedful {}, commit {}, {}, {} threads, {}{load}. {kind} self-attention of width {} with {} heads{shared}, projections included, {}. {}.\n\n    {}\n",
            self.version,
            code(self.provenance.as_ref()),
            self.machine.cpu,
            self.machine.cores,
            self.machine.os,
            self.d_model,
            self.heads,
            self.amount(),
            devices.join("; "),
            self.command,
        )
    }

    /// Sequences at once, and the numbers if they are not 32-bit floats.
    fn amount(&self) -> String {
        let sequences = match self.tokens {
            Some(tokens) => format!("as many sequences as make {tokens} tokens"),
            None => format!("batch {}", self.batch),
        };
        match self.precision {
            Precision::F32 => sequences,
            Precision::F16 => format!("{sequences}, in f16"),
            Precision::Bf16 => format!("{sequences}, in bf16"),
        }
    }

    /// For every backend and pass: milliseconds by mechanism and length, exponents, crossovers; and what was left out.
    pub fn summary(&self) -> String {
        let mut text = self.header();
        for (backend, pass) in self.groups() {
            let points = self.of(&backend, pass);
            let lengths = lengths(&points);
            let _ = write!(text, "\n## {backend}, {}: milliseconds\n\n", pass.title());
            let mut head = vec!["attention".to_owned()];
            head.extend(lengths.iter().map(usize::to_string));
            head.extend(["exponent".to_owned(), format!("faster than {DENSE} from")]);
            let row = |name: &String| {
                let own: Vec<&Point> = points.iter().copied().filter(|point| &point.attention == name).collect();
                let cell = |length: &usize| {
                    let median = own.iter().find(|point| point.length == *length).and_then(|point| point.median());
                    median.map_or_else(|| "–".to_owned(), |seconds| significant(1e3 * seconds))
                };
                let mut row = vec![name.clone()];
                row.extend(lengths.iter().map(cell));
                row.push(time_exponent(&own).map_or_else(String::new, |exponent| format!("{exponent:.2}")));
                row.push(Crossover::of(&points, name).map_or_else(String::new, |crossover| crossover.to_string()));
                row
            };
            text.push_str(&table(&head, &names(&points).iter().map(row).collect::<Vec<_>>()));
            text.push_str(&left_out(&points));
        }
        let _ = write!(
            text,
            "\nTimes are medians of runs in turn, exponents slopes over the {FITTED} longest lengths. Quartiles, memory and multiplications of every point: \
             cost.md and cost.csv in the folder of --out.\n"
        );
        text
    }

    /// The lengths from which on each mechanism is faster than dot-product attention, by backend and pass; nothing without dot-product attention.
    pub fn crossovers(&self) -> String {
        let groups = self.groups();
        let names = names(&self.points.iter().collect::<Vec<_>>());
        let row = |name: &String| {
            let cell = |(backend, pass): &(String, Pass)| {
                Crossover::of(&self.of(backend, *pass), name).map_or_else(String::new, |at| at.to_string())
            };
            std::iter::once(name.clone()).chain(groups.iter().map(cell)).collect::<Vec<_>>()
        };
        let rows: Vec<_> = names.iter().filter(|name| *name != DENSE).map(row).collect();
        if rows.iter().all(|row| row[1..].iter().all(String::is_empty)) {
            return String::new();
        }
        let header: Vec<String> = std::iter::once("attention".to_owned())
            .chain(groups.iter().map(|(backend, pass)| format!("{backend}, {}", pass.title())))
            .collect();
        format!("\n## Faster than {DENSE} from length\n\n{}", table(&header, &rows))
    }

    /// Every point with all that was measured.
    pub fn details(&self) -> String {
        let mut text = String::new();
        for (backend, pass) in self.groups() {
            let points = self.of(&backend, pass);
            let _ = write!(text, "\n## {backend}, {}\n\n", pass.title());
            let memory = match points.iter().find_map(|point| point.measure) {
                Some(Measure::Reserved) => "MiB reserved",
                _ => "peak MiB",
            };
            let mut head: Vec<String> =
                ["attention", "length", "ms (quartiles)", "tokens/s", memory, "million multiplications"].map(str::to_owned).into();
            if pass == Pass::Decode {
                head.push("state KiB".to_owned());
            }
            let row = |point: &&Point| {
                let mebibytes = |bytes: u64| significant(bytes as f64 / f64::from(1 << 20));
                let milliseconds = point.quartiles().map(|quartiles| quartiles.milliseconds().to_string());
                let mut row = vec![
                    point.attention.clone(),
                    point.length.to_string(),
                    milliseconds.or_else(|| point.missing.clone()).unwrap_or_default(),
                    self.tokens_per_second(point).map_or_else(String::new, |speed| format!("{speed:.0}")),
                    point.peak_bytes.map_or_else(String::new, mebibytes),
                    point.multiplications.map_or_else(String::new, |count| significant(count as f64 / 1e6)),
                ];
                if pass == Pass::Decode {
                    row.push(point.state_bytes.map_or_else(String::new, |bytes| significant(bytes as f64 / 1024.0)));
                }
                row
            };
            text.push_str(&table(&head, &points.iter().map(row).collect::<Vec<_>>()));
        }
        text
    }
}

/// Lengths of the points, ascending.
pub(super) fn lengths(points: &[&Point]) -> Vec<usize> {
    let mut lengths: Vec<usize> = points.iter().map(|point| point.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Mechanisms of the points, in their order.
pub(super) fn names(points: &[&Point]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for point in points {
        if !names.contains(&point.attention) {
            names.push(point.attention.clone());
        }
    }
    names
}

/// The power of the length that the times of a mechanism grow with, over the longest lengths.
pub(super) fn time_exponent(points: &[&Point]) -> Option<f64> {
    let mut times: Vec<(f64, f64)> = points.iter().filter_map(|point| Some((point.length as f64, point.median()?))).collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    if times.len() < FITTED { None } else { exponent(&times[times.len() - FITTED..]) }
}

/// What has no times, and why: each reason once, with the first length that it holds for.
fn left_out(points: &[&Point]) -> String {
    let mut lines = String::new();
    for name in names(points) {
        let missing = points.iter().find(|point| point.attention == name && point.missing.is_some());
        if let Some((point, reason)) = missing.and_then(|point| Some((point, point.missing.as_ref()?))) {
            let _ = write!(lines, "\n- {name} from {} on: {reason}", point.length);
        }
    }
    if lines.is_empty() { lines } else { format!("{lines}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::outcome::tests::outcome;

    #[test]
    fn tables_show_times_exponents_crossovers_and_what_is_missing() {
        let summary = outcome().summary();
        for part in ["| dot-product | 0.410", "2.00", "1.00", "181 (128 to 256)", "relative from 64 on: left out: about 9 s"] {
            assert!(summary.contains(part), "{part} is missing in {summary}");
        }
        let crossovers = outcome().crossovers();
        assert!(crossovers.contains("| local-1d  | 181 (128 to 256)") && !crossovers.contains("| dot-product"), "{crossovers}");
        assert!(outcome().header().contains(". Causal self-attention of width 16"));
        assert!(Outcome { is_bidirectional: true, ..outcome() }.header().contains(". Bidirectional self-attention of width 16"));
        let details = outcome().details();
        assert!(details.contains("| local-1d    | 512"), "{details}");
    }
}
