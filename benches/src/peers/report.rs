//! Results as tables, and the results page.

use std::fs;
use std::path::Path;

use heedful_host::exit::ProgramError;
use heedful_host::machine::Machine;
use heedful_host::whole_files::write_atomically;

use super::measure::{CaseResult, Measurement};
use super::outcome::Outcome;
use super::target::{peak_exponent, targets, time_exponent};
use crate::markdown::{significant, table};
use crate::provenance::code;
use crate::statistics::Quartiles;

/// Comparisons in the order of the page.
const ORDER: [&str; 13] = [
    "attention",
    "step",
    "mechanisms",
    "positions",
    "packages",
    "recurrences",
    "tables",
    "convolutions",
    "memory",
    "dropout",
    "depth",
    "inference",
    "decode",
];

/// What stands in the results folder beside the files, and on the page after the tables: notes on what the figures mean.
const NOTES: &str = "notes.md";

impl Outcome {
    /// The comparison as a section of Markdown.
    pub fn markdown(&self) -> String {
        let versions: Vec<_> = self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let load = self.load.map_or_else(String::new, |load| format!(", load {load:.1} before"));
        let bound = if self.bound { ", each bound to a core" } else { "" };
        let Machine { cpu, cores, os } = &self.machine;
        let mut text = format!(
            "## {}\n\n{}\n\n{cpu}, {cores} cores, {os}, {} threads on each side{bound}{load}. {}; commit of heedful: {}.\n\n",
            self.title,
            self.about,
            self.threads,
            versions.join(", "),
            code(self.provenance.as_ref()),
        );
        text.push_str(&table(&HEADER, &self.cases.iter().flat_map(rows).collect::<Vec<_>>()));
        let fitted = self.exponents();
        if !fitted.is_empty() {
            text.push_str("\nFitted exponents over the lengths of the table (time and peak memory grow as length to this power):\n\n");
            text.push_str(&table(&["", "time", "peak memory"], &fitted));
        }
        let judged: Vec<_> = targets(self)
            .into_iter()
            .map(|target| {
                let verdict = target.verdict().unwrap_or_else(|| "not measured".into());
                [target.text, places(target.measured), verdict]
            })
            .collect();
        if !judged.is_empty() {
            text.push('\n');
            text.push_str(&table(&["target", "measured", "verdict"], &judged));
        }
        text
    }

    /// Name, exponent of time and exponent of peak memory of each candidate; nothing unless the table is one of lengths at one batch size.
    fn exponents(&self) -> Vec<[String; 3]> {
        let is_series = matches!(self.what.as_str(), "mechanisms" | "positions" | "recurrences" | "memory") && self.cases.len() > 2;
        let Some(last) = self.cases.last().filter(|_| is_series) else { return Vec::new() };
        let shown = |slope: Option<f64>| slope.map_or_else(String::new, |slope| format!("{slope:.2}"));
        let fitted = |measurement: &Measurement| {
            let name = &measurement.name;
            [name.clone(), shown(time_exponent(&self.cases, name)), shown(peak_exponent(&self.cases, name))]
        };
        last.measurements.iter().map(fitted).collect()
    }

    /// Writes the results to `folder`, and its page anew.
    ///
    /// # Errors
    /// If the folder cannot be written, or holds something else under the name of a result.
    pub fn write(&self, folder: &Path) -> Result<(), ProgramError> {
        fs::create_dir_all(folder).map_err(|error| ProgramError::failure(format!("cannot make `{}`: {error}", folder.display())))?;
        let json = serde_json::to_string_pretty(self).map_err(ProgramError::failure)?;
        write_atomically(&folder.join(format!("{}.json", self.what)), format!("{json}\n").as_bytes())?;
        write_page(folder)
    }
}

/// Makes README.md of all results in a folder.
///
/// # Errors
/// If there are none, or one cannot be read.
pub fn write_page(folder: &Path) -> Result<(), ProgramError> {
    let mut sections = Vec::new();
    for what in ORDER {
        let path = folder.join(format!("{what}.json"));
        let fail = |error: String| ProgramError::failure(format!("cannot read `{}`: {error}", path.display()));
        if path.exists() {
            let json = fs::read_to_string(&path).map_err(|error| fail(error.to_string()))?;
            sections.push(serde_json::from_str::<Outcome>(&json).map_err(|error| fail(error.to_string()))?.markdown());
        }
    }
    if sections.is_empty() {
        let message = format!("`{}` holds no results; make some with `peers all --out {0}`", folder.display());
        return Err(ProgramError::usage(message));
    }
    if let Ok(notes) = fs::read_to_string(folder.join(NOTES)) {
        sections.push(notes);
    }
    Ok(write_atomically(&folder.join("README.md"), format!("{INTRODUCTION}{}", sections.join("\n")).as_bytes())?)
}

/// What was measured where: all of a few, the extremes of many.
fn places(mut measured: Vec<(String, f64)>) -> String {
    const FEW: usize = 8;
    let shown = |(place, value): &(String, f64)| format!("{place}: {}", significant(*value));
    if measured.len() <= FEW {
        return measured.iter().map(shown).collect::<Vec<_>>().join("; ");
    }
    measured.sort_by(|a, b| a.1.total_cmp(&b.1));
    format!("from {} to {}", shown(&measured[0]), shown(&measured[measured.len() - 1]))
}

const INTRODUCTION: &str = "# heedful beside PyTorch

Made by `cargo run --release --bin peers -- report --out benches/results` from the JSON files beside it, which hold every single run. What they hold is
measured by `cargo run --release --bin peers -- all --out benches/results`, or by `attention`, `step`, `mechanisms`, `positions`, `packages`, `recurrences`, `tables`,
`convolutions`, `memory`, `dropout`, `depth`, `inference` or `decode` in place of `all` one at a time.

Times are medians of runs in turn (quartiles in brackets): in each round every candidate of a size runs once, heedful and Python each in a process of its
own with the same number of threads, and one of them at a time. Where each side has as many threads as it may use cores, each thread is bound to one, ours by
their affinity and PyTorch's by `OMP_PROC_BIND=true` and `OMP_PLACES=cores`: otherwise both threads of a side share a core now and then, for tens of milliseconds
after they slept. Sections say whether it was so. Relative times are medians (and quartiles) of the ratios within rounds: below 1 is faster than what stands behind
*of*. Peak memory is the growth of the resident memory of a process that does nothing else, from before its inputs and weights are made to the peak of its second
run, read by the same code for both. heedful's process has the allocator settings of its experiments, which keep freed memory.

";

const HEADER: [&str; 7] = ["size", "", "ms", "relative time", "tokens/s", "peak MiB", "relative peak"];

fn rows(case: &CaseResult) -> Vec<[String; 7]> {
    case.measurements.iter().map(|measurement| row(case, measurement)).collect()
}

fn row(case: &CaseResult, measurement: &Measurement) -> [String; 7] {
    let Measurement { name, baseline, seconds, peak_bytes, missing } = measurement;
    let quartiles = Quartiles::of(seconds);
    let milliseconds = quartiles.map(|quartiles| quartiles.milliseconds().to_string());
    let baseline = baseline.as_deref();
    let relative_time = baseline.and_then(|baseline| Some(format!("{} of {baseline}", case.time_ratios(name, baseline)?)));
    let relative_peak = baseline.and_then(|baseline| case.peak_ratio(name, baseline)).map(significant);
    let speed =
        quartiles.filter(|quartiles| quartiles.median > 0.0).map(|quartiles| format!("{:.0}", case.tokens as f64 / quartiles.median));
    [
        case.name.clone(),
        name.clone(),
        milliseconds.or_else(|| missing.clone()).unwrap_or_default(),
        relative_time.unwrap_or_default(),
        speed.unwrap_or_default(),
        peak_bytes.map(|bytes| significant(bytes as f64 / (1 << 20) as f64)).unwrap_or_default(),
        relative_peak.unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let measurement = |name: &str, baseline: Option<&str>, seconds: &[f64], peak_bytes| Measurement {
            name: name.into(),
            baseline: baseline.map(str::to_owned),
            seconds: seconds.into(),
            peak_bytes,
            missing: seconds.is_empty().then(|| "no such|package".to_owned()),
        };
        let measurements = vec![
            measurement("heedful", Some("PyTorch"), &[0.01, 0.03], Some(1 << 20)),
            measurement("PyTorch", None, &[0.02, 0.02], Some(1 << 21)),
            measurement("PyTorch, fused AdamW", Some("PyTorch"), &[], None),
        ];
        let case = CaseResult { name: "length 4, batch 2".into(), length: 4, tokens: 8, measurements };
        Outcome { what: "step".into(), title: "A step".into(), threads: 2, cases: vec![case], ..Outcome::default() }
    }

    #[test]
    fn a_row_holds_medians_ratios_and_what_is_missing() {
        let case = &outcome().cases[0];
        let rows = rows(case);
        assert_eq!(
            rows[0][1..],
            ["heedful", "20.0 (15.0 to 25.0)", "1.00 (0.750 to 1.25) of PyTorch", "400", "1.00", "0.500"].map(String::from)
        );
        assert_eq!(rows[1][1..], ["PyTorch", "20.0 (20.0 to 20.0)", "", "400", "2.00", ""].map(String::from));
        let text = outcome().markdown();
        assert!(text.contains("no such/package"), "{text}");
        assert!(text.contains("of the least of PyTorch's at most 0.6") && text.contains("met"), "{text}");
    }

    #[test]
    fn of_many_places_the_extremes_are_shown() {
        let at = |values: &[f64]| places(values.iter().map(|&value| (format!("n{value}"), value)).collect());
        assert_eq!(at(&[2.0, 1.0]), "n2: 2.00; n1: 1.00");
        assert_eq!(at(&[2.0, 1.0, 3.0, 4.0, 9.0, 5.0, 6.0, 7.0, 8.0]), "from n1: 1.00 to n9: 9.00");
    }

    #[test]
    fn the_page_is_made_of_all_results_and_the_notes() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(write_page(folder.path()).unwrap_err().exit_code(), 2);
        fs::write(folder.path().join(NOTES), "## Notes\n").unwrap();
        let inference = Outcome { what: "inference".into(), title: "Inference".into(), ..Outcome::default() };
        inference.write(folder.path()).unwrap();
        outcome().write(folder.path()).unwrap();
        let page = fs::read_to_string(folder.path().join("README.md")).unwrap();
        let headings: Vec<_> = page.lines().filter(|line| line.starts_with('#')).collect();
        assert_eq!(headings, ["# heedful beside PyTorch", "## A step", "## Inference", "## Notes"]);
        let read: Outcome = serde_json::from_str(&fs::read_to_string(folder.path().join("step.json")).unwrap()).unwrap();
        assert_eq!(read, outcome());
    }

    /// Files of earlier versions are read, and the page that is kept is what this version makes of them.
    #[test]
    fn the_recorded_page_is_made_of_the_recorded_files() {
        let (recorded, folder) = (Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/results")), tempfile::tempdir().unwrap());
        // What was never measured has no file; the page that is kept shows what was.
        let files = ORDER.map(|what| format!("{what}.json")).into_iter().chain([NOTES.into()]).filter(|name| recorded.join(name).exists());
        for name in files {
            fs::copy(recorded.join(&name), folder.path().join(&name)).unwrap();
        }
        write_page(folder.path()).unwrap();
        let [kept, made] = [recorded, folder.path()].map(|folder| fs::read_to_string(folder.join("README.md")).unwrap());
        for (kept, made) in kept.lines().zip(made.lines()) {
            assert_eq!(kept, made);
        }
        assert!(kept == made && kept.contains("; commit of heedful: unknown."));
    }
}
