//! The results of a sweep, and their files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::ValueEnum;
use heedful_host::exit::ProgramError;
use heedful_host::machine::Machine;
use heedful_host::provenance::Provenance;
use heedful_host::whole_files::write_atomically;
use heedful_models::kernels::precision::Precision;
use serde::{Deserialize, Serialize};

use super::memory::Measure;
use super::plot;
use super::point::Pass;
use crate::statistics::Quartiles;

/// Results of a sweep: the file `cost.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The command.
    pub command: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Processes that ran or waited before the first run, on average of a minute; `None` where the system does not report it.
    pub load: Option<f64>,
    /// Version of heedful.
    pub version: String,
    /// Provenance of the measurement; unknown for files of earlier versions.
    #[serde(default)]
    pub provenance: Option<Provenance>,
    /// Devices by backend.
    pub devices: BTreeMap<String, String>,
    /// Width of the layer.
    pub d_model: usize,
    /// Its heads.
    pub heads: usize,
    /// Heads of keys and values, where they are fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    /// Sequences at once, where they are as many at each length.
    pub batch: usize,
    /// Tokens at once, where sequences are counted by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// Type of weights and activations.
    #[serde(default)]
    pub precision: Precision,
    /// Whether positions attend to those after them too; otherwise layers are causal where mechanisms can be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_bidirectional: bool,
    /// Everything that was measured or left out.
    pub points: Vec<Point>,
}

/// Sequences at once at a length: as many as make so many tokens, if they are counted by them.
pub(super) fn sequences(batch: usize, tokens: Option<usize>, length: usize) -> usize {
    tokens.map_or(batch, |tokens| (tokens / length).max(1))
}

/// One pass of a mechanism at a length on a backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Backend.
    pub backend: String,
    /// Mechanism.
    pub attention: String,
    /// What was run.
    pub pass: Pass,
    /// Elements of a sequence; of one step of decoding, elements before it.
    pub length: usize,
    /// Why there are no times.
    pub missing: Option<String>,
    /// Seconds of each round.
    pub seconds: Vec<f64>,
    /// Seconds of the yardstick, a product of two matrices, in the same rounds.
    pub yardstick: Vec<f64>,
    /// Seconds of the first run, which compiles shaders where there are any.
    pub first_seconds: Option<f64>,
    /// Growth of memory in a run: allocated memory without weights, input and state, or reserved memory with them.
    pub peak_bytes: Option<u64>,
    /// Memory of the state of decoding.
    pub state_bytes: Option<u64>,
    /// How memory was measured.
    pub measure: Option<Measure>,
    /// Multiplications, an estimate.
    pub multiplications: Option<u64>,
    /// Length at which the result was compared with that of the reference engine.
    pub checked_at: Option<usize>,
    /// Largest difference found there, relative to the largest value.
    pub difference: Option<f64>,
}

/// A row of `cost.csv`.
#[derive(Serialize)]
struct Row<'a> {
    backend: &'a str,
    attention: &'a str,
    pass: &'a str,
    length: usize,
    median_ms: Option<f64>,
    first_quartile_ms: Option<f64>,
    third_quartile_ms: Option<f64>,
    tokens_per_second: Option<f64>,
    peak_bytes: Option<u64>,
    state_bytes: Option<u64>,
    memory: Option<Measure>,
    multiplications: Option<u64>,
    first_run_ms: Option<f64>,
    checked_at: Option<usize>,
    difference: Option<f64>,
    missing: Option<&'a str>,
}

impl Point {
    /// A point that nothing is known of yet.
    pub fn new(backend: &str, attention: &str, pass: Pass, length: usize) -> Self {
        Self { backend: backend.to_owned(), attention: attention.to_owned(), pass, length, ..Self::default() }
    }

    /// Whether another is the same thing, measured at another time.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.backend, &self.attention, self.pass, self.length) == (&other.backend, &other.attention, other.pass, other.length)
    }

    /// Median and quartiles of its seconds.
    pub fn quartiles(&self) -> Option<Quartiles> {
        Quartiles::of(&self.seconds)
    }

    /// Median of its seconds.
    pub fn median(&self) -> Option<f64> {
        self.quartiles().map(|quartiles| quartiles.median)
    }
}

impl Outcome {
    /// The points of a backend and a pass, in the order in which they were measured.
    pub fn of(&self, backend: &str, pass: Pass) -> Vec<&Point> {
        self.points.iter().filter(|point| point.backend == backend && point.pass == pass).collect()
    }

    /// Backends, in the order in which they were asked for, and passes that have points.
    pub fn groups(&self) -> Vec<(String, Pass)> {
        let mut backends: Vec<&String> = Vec::new();
        for point in &self.points {
            if !backends.contains(&&point.backend) {
                backends.push(&point.backend);
            }
        }
        let all = backends.into_iter().flat_map(|backend| Pass::value_variants().iter().map(move |&pass| (backend.clone(), pass)));
        all.filter(|(backend, pass)| self.points.iter().any(|point| &point.backend == backend && point.pass == *pass)).collect()
    }

    /// Reads a file of results.
    ///
    /// # Errors
    /// If it is missing or something else.
    pub fn read(path: &Path) -> Result<Self, ProgramError> {
        let fail = |error: String| {
            ProgramError::usage(format!("--baseline {}: {error}; give a cost.json of `heedful cost --out DIR`", path.display()))
        };
        Self::parse(path).map_err(fail)
    }

    /// What a file of results holds, or why it is none.
    pub(super) fn parse(path: &Path) -> Result<Self, String> {
        let json = fs::read_to_string(path).map_err(|error| error.to_string())?;
        serde_json::from_str(&json).map_err(|error| error.to_string())
    }

    /// Writes `cost.md` and the pictures, and returns the names of the latter.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn draw(&self, folder: &Path) -> Result<Vec<String>, ProgramError> {
        let page = format!("# What every mechanism costs\n\n{}{}{}", self.summary(), self.crossovers(), self.details());
        write_atomically(&folder.join("cost.md"), page.as_bytes())?;
        plot::write(self, folder)
    }

    /// Writes `cost.json` and `cost.csv`.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ProgramError> {
        fs::create_dir_all(folder).map_err(|error| ProgramError::failure(format!("cannot make `{}`: {error}", folder.display())))?;
        let json = serde_json::to_string_pretty(self).map_err(ProgramError::failure)?;
        write_atomically(&folder.join("cost.json"), format!("{json}\n").as_bytes())?;
        Ok(write_atomically(&folder.join("cost.csv"), &self.csv()?)?)
    }

    fn csv(&self) -> Result<Vec<u8>, ProgramError> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for point in &self.points {
            writer.serialize(self.row(point)).map_err(ProgramError::failure)?;
        }
        writer.into_inner().map_err(ProgramError::failure)
    }

    fn row<'a>(&self, point: &'a Point) -> Row<'a> {
        let quartiles = point.quartiles();
        let milliseconds = |seconds: fn(Quartiles) -> f64| quartiles.map(|quartiles| 1e3 * seconds(quartiles));
        Row {
            backend: &point.backend,
            attention: &point.attention,
            pass: point.pass.name(),
            length: point.length,
            median_ms: milliseconds(|quartiles| quartiles.median),
            first_quartile_ms: milliseconds(|quartiles| quartiles.first),
            third_quartile_ms: milliseconds(|quartiles| quartiles.third),
            tokens_per_second: self.tokens_per_second(point),
            peak_bytes: point.peak_bytes,
            state_bytes: point.state_bytes,
            memory: point.measure,
            multiplications: point.multiplications,
            first_run_ms: point.first_seconds.map(|seconds| 1e3 * seconds),
            checked_at: point.checked_at,
            difference: point.difference,
            missing: point.missing.as_deref(),
        }
    }

    /// Whether points of both were measured with equal sizes and numbers.
    pub fn is_comparable(&self, other: &Self) -> bool {
        let sizes = |outcome: &Self| (outcome.d_model, outcome.heads, outcome.kv_heads, outcome.batch, outcome.tokens, outcome.precision);
        sizes(self) == sizes(other) && self.is_bidirectional == other.is_bidirectional
    }

    /// Elements that are attended from in a second.
    pub fn tokens_per_second(&self, point: &Point) -> Option<f64> {
        let tokens = sequences(self.batch, self.tokens, point.length) * if point.pass == Pass::Decode { 1 } else { point.length };
        point.median().filter(|&seconds| seconds > 0.0).map(|seconds| tokens as f64 / seconds)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two mechanisms of which the second is linear and becomes faster at 181.
    pub fn outcome() -> Outcome {
        let point = |attention: &str, length: usize, seconds: f64| Point {
            seconds: vec![seconds, seconds * 1.1, seconds * 0.9],
            yardstick: vec![0.01, 0.011, 0.009],
            peak_bytes: Some(length as u64 * 100),
            measure: Some(Measure::Allocated),
            multiplications: Some(1000),
            checked_at: Some(length),
            difference: Some(1e-7),
            ..Point::new("flex", attention, Pass::Training, length)
        };
        let mut points = Vec::new();
        for length in [64_usize, 128, 256, 512] {
            points.push(point("dot-product", length, (length * length) as f64 * 1e-7));
            points.push(point("local-1d", length, length as f64 * 181.0 * 1e-7));
        }
        let missing = Some("left out: about 9 s".to_owned());
        points.push(Point { missing, ..Point::new("flex", "relative", Pass::Training, 64) });
        Outcome { points, d_model: 16, heads: 2, batch: 1, ..Outcome::default() }
    }

    #[test]
    fn sequences_that_are_counted_by_tokens_make_as_many_tokens_at_each_length() {
        let by_tokens = Outcome { tokens: Some(1024), ..outcome() };
        let rate = |outcome: &Outcome, length| {
            let point = Point { seconds: vec![0.5], ..Point::new("flex", "dot-product", Pass::Forward, length) };
            outcome.tokens_per_second(&point).unwrap()
        };
        assert_eq!([64, 1024, 2048].map(|length| rate(&by_tokens, length)), [2048.0, 2048.0, 4096.0]);
        assert_eq!([64, 2048].map(|length| rate(&outcome(), length)), [128.0, 4096.0]);
        assert!(outcome().is_comparable(&outcome()) && !by_tokens.is_comparable(&outcome()));
        assert!(!Outcome { precision: Precision::Bf16, ..outcome() }.is_comparable(&outcome()));
        assert!(!Outcome { is_bidirectional: true, ..outcome() }.is_comparable(&outcome()));
    }

    #[test]
    fn files_hold_every_point() {
        let folder = tempfile::tempdir().unwrap();
        outcome().write(folder.path()).unwrap();
        assert_eq!(Outcome::read(&folder.path().join("cost.json")).unwrap(), outcome());
        let csv = fs::read_to_string(folder.path().join("cost.csv")).unwrap();
        assert_eq!(csv.lines().count(), 10);
        assert!(csv.lines().nth(1).unwrap().starts_with("flex,dot-product,training,64,0.409"), "{csv}");
        assert!(csv.contains("left out: about 9 s"));
        let error = Outcome::read(&folder.path().join("cost.csv")).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("cost.json"));
    }

    #[test]
    fn files_of_earlier_versions_are_read_and_have_no_commit() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = serde_json::to_value(outcome()).unwrap();
        assert!(file.as_object_mut().unwrap().remove("provenance").is_some());
        let path = folder.path().join("cost.json");
        fs::write(&path, file.to_string()).unwrap();
        let earlier = Outcome::read(&path).unwrap();
        assert_eq!(earlier, outcome());
        assert!(earlier.header().starts_with("heedful , commit unknown, "), "{}", earlier.header());
        let commit = "0123456789abcdef".to_owned();
        let provenance = Some(Provenance { commit, is_clean: Some(false), ..Provenance::default() });
        let header = Outcome { provenance, ..outcome() }.header();
        assert!(header.contains(", commit 0123456789ab with changes, "), "{header}");
    }

    #[test]
    fn groups_keep_backends_in_their_order() {
        let point = |backend: &str, pass| Point::new(backend, "dot-product", pass, 8);
        let points = vec![point("wgpu", Pass::Decode), point("wgpu", Pass::Forward), point("flex", Pass::Forward)];
        let groups = Outcome { points, ..Outcome::default() }.groups();
        assert_eq!(groups, [("wgpu".into(), Pass::Forward), ("wgpu".into(), Pass::Decode), ("flex".into(), Pass::Forward)]);
    }
}
