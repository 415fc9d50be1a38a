//! Takes the times.

use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use heedful_attention::prelude::*;
use heedful_models::kernels::precision::Precision;
use indicatif::ProgressBar;

use super::crossover::DENSE;
use super::estimate;
use super::memory::{Measure, Meter};
use super::options::Contender;
use super::outcome::{Point, sequences};
use super::point::{Layer, Pass, Work, difference};
use crate::markdown::significant;
use crate::statistics::exponent;
use crate::workload::{Sizes, wait};

/// Largest difference from the reference engine, relative to the largest value, with which something is timed: sums of some thousand numbers of 24 bits.
pub const TOLERANCE: f64 = 1e-4;

/// [`TOLERANCE`] of a backend and the numbers it computes with.
fn tolerance(backend: &str, precision: Precision) -> f64 {
    match precision {
        // Products of 32-bit floats on CUDA have factors of 11 bits (TF32).
        Precision::F32 if backend == "cuda" => 5e-3,
        Precision::F32 => TOLERANCE,
        // Weights of attention have 11 or 8 bits, and so have projections.
        Precision::F16 => 1e-2,
        Precision::Bf16 => 8e-2,
    }
}

/// How a backend is measured.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Name of the backend.
    pub backend: String,
    /// Its device, without autodiff.
    pub device: Device,
    /// The mechanisms.
    pub attentions: Vec<Contender>,
    /// Tokens at once, by which the sequences of a length are counted.
    pub tokens: Option<usize>,
    /// Type of weights and activations.
    pub precision: Precision,
    /// Whether positions attend to those after them too.
    pub is_bidirectional: bool,
    /// Sizes of the layer; the length is that of [`measure`](Self::measure).
    pub sizes: Sizes,
    /// Rounds, in each of which everything of a length and a pass runs once.
    pub rounds: usize,
    /// Seconds of a run beyond which longer sequences are left out.
    pub seconds: f64,
    /// Bytes of its peak beyond which they are.
    pub bytes: u64,
    /// Greatest length at which the result is compared with the reference engine.
    pub check: usize,
}

/// A point with what is run for it.
struct Candidate {
    point: Point,
    work: Work,
}

impl Sweep {
    /// Runs before the first round, beside the one in which memory is measured.
    const WARM_UP_RUNS: usize = 1;
    /// Rest before each run: threads may look for work some time after theirs is done.
    const PAUSE: Duration = Duration::from_millis(5);

    /// Measures one pass of all mechanisms at a length. `shorter` are the points of shorter lengths, by which what would take too much is left out.
    pub fn measure(&self, pass: Pass, length: usize, shorter: &[Point], progress: &ProgressBar) -> Vec<Point> {
        let batch = sequences(self.sizes.batch, self.tokens, length);
        let sizes = Sizes { length, batch, ..self.sizes };
        let mut points = Vec::new();
        let mut candidates = Vec::new();
        let held_before = Meter::new(&self.device).now();
        for contender in &self.attentions {
            progress.set_message(format!("{}: {pass} at {length}: {}", self.backend, contender.name));
            match self.prepare(pass, contender, sizes, shorter, held_before) {
                Ok(candidate) => candidates.push(candidate),
                Err(point) => points.push(*point),
            }
            progress.inc(1);
        }
        let mut yardstick = Yardstick::new(&self.device);
        for round in 0..self.rounds {
            progress.set_message(format!("{}: {pass} at {length}: round {} of {}", self.backend, round + 1, self.rounds));
            let spent = yardstick.run();
            let mut order: Vec<&mut Candidate> = candidates.iter_mut().collect();
            // Every second round is reversed, so that none always follows the same other.
            if round % 2 == 1 {
                order.reverse();
            }
            for Candidate { point, work } in order {
                thread::sleep(Self::PAUSE);
                point.seconds.push(seconds(|| work.run()));
                point.yardstick.push(spent);
            }
        }
        points.extend(candidates.into_iter().map(|candidate| candidate.point));
        // In the order in which they were asked for.
        points.sort_by_key(|point| self.attentions.iter().position(|contender| contender.name == point.attention));
        points
    }

    /// Measures points of this backend again, beside dot-product attention where that is one of the mechanisms.
    pub fn again(&self, points: &[&Point]) -> Vec<Point> {
        let mut places: Vec<(Pass, usize)> = Vec::new();
        for point in points.iter().filter(|point| point.backend == self.backend) {
            if !places.contains(&(point.pass, point.length)) {
                places.push((point.pass, point.length));
            }
        }
        let at = |(pass, length): (Pass, usize)| {
            let is_asked = |contender: &&Contender| {
                let like = Point::new(&self.backend, &contender.name, pass, length);
                contender.name == DENSE || points.iter().any(|point| point.is_like(&like))
            };
            let attentions = self.attentions.iter().filter(is_asked).cloned().collect();
            Self { attentions, ..self.clone() }.measure(pass, length, &[], &ProgressBar::hidden())
        };
        places.into_iter().flat_map(at).collect()
    }

    /// Bytes at the peak of a pass, weights and input included, if they are counted: pools of a device grow by whole pages, which tell nothing of a small input.
    fn peak(&self, pass: Pass, layer: Layer<'_>, meter: &Meter) -> Option<u64> {
        if meter.measure() == Measure::Reserved {
            return None;
        }
        let before = meter.now();
        let mut work = Work::new(pass, layer, 1, Engine::default(), &self.device).ok()?;
        work.begin();
        let (_, peak) = meter.peak_growth(before, || seconds(|| work.run()));
        Some(peak).filter(|&peak| peak > 0)
    }

    /// Why a length is left out that would take so many bytes.
    fn left_out(&self, bytes: f64, length: usize) -> String {
        let gibibytes = |bytes: f64| significant(bytes / f64::from(1 << 30));
        format!("left out: about {} GiB at {length}, and {} GiB are allowed", gibibytes(bytes), gibibytes(self.bytes as f64))
    }

    /// Checks a mechanism and builds it, or says why it is left out. What others hold that were built after `held_before` bytes counts as well.
    fn prepare(
        &self,
        pass: Pass,
        contender: &Contender,
        sizes: Sizes,
        shorter: &[Point],
        held_before: u64,
    ) -> Result<Candidate, Box<Point>> {
        let Contender { name, mechanism: config } = contender;
        let mut point = Point::new(&self.backend, name, pass, sizes.length);
        let missing = |point: Point, reason: String| Box::new(Point { missing: Some(reason), ..point });
        if pass == Pass::Decode && !config.can_be_causal() {
            return Err(missing(point, "it has no causal form, so it cannot decode".into()));
        }
        let shorter: Vec<&Point> = shorter.iter().filter(|other| other.attention == point.attention && other.pass == pass).collect();
        if let Some(reason) = self.too_much(&shorter, sizes.length) {
            return Err(missing(point, reason));
        }
        let layer = Layer { attention: config, sizes, precision: self.precision, is_bidirectional: self.is_bidirectional };
        let checked_at = sizes.length.min(self.check);
        let earlier = shorter.iter().find(|other| other.checked_at == Some(checked_at)).and_then(|other| other.difference);
        let meter = Meter::new(&self.device);
        let held = meter.now().saturating_sub(held_before);
        let expected = estimate::bytes(sizes, |small| self.peak(pass, Layer { sizes: small, ..layer }, &meter), self.bytes);
        if let Some(bytes) = expected.map(|bytes| bytes.saturating_add(held)).filter(|&bytes| bytes > self.bytes) {
            return Err(missing(point, self.left_out(bytes as f64, sizes.length)));
        }
        let found = match earlier {
            Some(difference) => difference,
            None => match difference(
                pass,
                Layer { sizes: estimate::checked(Sizes { length: checked_at, ..sizes }, self.bytes), ..layer },
                &self.device,
            ) {
                Ok(difference) => difference,
                Err(error) => return Err(missing(point, error.to_string())),
            },
        };
        (point.checked_at, point.difference) = (Some(checked_at), Some(found));
        if found > tolerance(&self.backend, self.precision) {
            let reason = format!("not timed: at {checked_at} it differs from the reference engine by {found:.1e} of the largest value");
            return Err(missing(point, reason));
        }
        let empty = meter.start();
        let runs = self.rounds + Self::WARM_UP_RUNS + 1;
        let mut work = match Work::new(pass, layer, runs, Engine::default(), &self.device) {
            Ok(work) => work,
            Err(error) => return Err(missing(point, error.to_string())),
        };
        let before = meter.now();
        work.begin();
        if pass == Pass::Decode && meter.measure() == Measure::Allocated {
            point.state_bytes = Some(meter.now().saturating_sub(before));
        }
        // A run may find room in the pages that weights and input were put in, so those count.
        let before = if meter.measure() == Measure::Reserved { empty } else { meter.now() };
        let (first, peak) = meter.peak_growth(before, || seconds(|| work.run()));
        (point.first_seconds, point.peak_bytes, point.measure) = (Some(first), Some(peak), Some(meter.measure()));
        point.multiplications = Some(pass.multiplications(layer, work.attention()));
        for _ in 0..Self::WARM_UP_RUNS {
            work.run();
        }
        Ok(Candidate { point, work })
    }

    /// Why the next length would take too much time or memory, judged by the lengths before: as a power of the length, of their last exponent. A single length
    /// before has none: there the exponent is 2, or 1 if longer sequences are fewer. Memory that pools reserve has none either: they grow by whole pages, which
    /// the mechanisms that run later use as well.
    fn too_much(&self, shorter: &[&Point], length: usize) -> Option<String> {
        if let Some(left_out) = shorter.iter().find_map(|point| point.missing.clone()) {
            return Some(left_out);
        }
        let unknown = if self.tokens.is_some() { 1.0 } else { 2.0 };
        let expected = |has_exponent: bool, value: &dyn Fn(&Point) -> Option<f64>| {
            let values: Vec<(f64, f64)> = shorter.iter().filter_map(|point| Some((point.length as f64, value(point)?))).collect();
            let &(last_length, last) = values.last()?;
            let slope = if has_exponent && values.len() >= 2 {
                exponent(&values[values.len() - 2..]).unwrap_or(unknown).clamp(0.0, 2.5)
            } else {
                unknown
            };
            Some(last * (length as f64 / last_length).powf(slope))
        };
        let seconds = expected(true, &|point| point.median());
        if let Some(seconds) = seconds.filter(|&seconds| seconds > self.seconds) {
            return Some(format!("left out: about {} s for a run at {length}, and {} s are allowed", significant(seconds), self.seconds));
        }
        let is_allocated = shorter.iter().all(|point| point.measure != Some(Measure::Reserved));
        let bytes = expected(is_allocated, &|point| point.peak_bytes.map(|bytes| bytes as f64));
        bytes.filter(|&bytes| bytes > self.bytes as f64).map(|bytes| self.left_out(bytes, length))
    }
}

/// A product of two matrices: what the same device can do at the same time with work that does not change.
struct Yardstick(Tensor<2>);

impl Yardstick {
    const WIDTH: usize = 512;

    fn new(device: &Device) -> Self {
        let mut yardstick = Self(Init::Normal(1.0).tensor([Self::WIDTH, Self::WIDTH], &RandomKey::from_seed(2), device));
        yardstick.run();
        yardstick
    }

    /// The shortest of three runs.
    fn run(&mut self) -> f64 {
        let product = || {
            let product = self.0.clone().matmul(self.0.clone());
            wait(&product);
            product
        };
        (0..3).map(|_| seconds(product)).fold(f64::INFINITY, f64::min)
    }
}

/// Seconds of a run, the dropping of its result included.
pub(super) fn seconds<T>(run: impl FnOnce() -> T) -> f64 {
    let begun = Instant::now();
    drop(run());
    begun.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn sweep(names: &[&str]) -> Sweep {
        Sweep {
            backend: "flex".into(),
            device: Device::flex(),
            attentions: names.iter().map(|name| name.parse().unwrap()).collect(),
            tokens: None,
            precision: Precision::F32,
            is_bidirectional: false,
            sizes: Sizes { batch: 1, length: 0, d_model: 16, heads: 2, kv_heads: None },
            rounds: 3,
            seconds: 10.0,
            bytes: 1 << 30,
            check: 16,
        }
    }

    #[test]
    fn every_round_runs_everything_and_the_yardstick() {
        for &pass in Pass::value_variants() {
            let points = sweep(&["dot-product", "linformer", "local-1d"]).measure(pass, 24, &[], &ProgressBar::hidden());
            assert_eq!(points.iter().map(|point| point.attention.as_str()).collect::<Vec<_>>(), ["dot-product", "linformer", "local-1d"]);
            for point in points {
                let is_missing = pass == Pass::Decode && point.attention == "linformer";
                assert_eq!(point.missing.is_some(), is_missing, "{point:?}");
                assert_eq!((point.seconds.len(), point.yardstick.len()), if is_missing { (0, 0) } else { (3, 3) });
                assert_eq!(point.checked_at, (!is_missing).then_some(16));
            }
        }
    }

    #[test]
    fn points_are_measured_again_beside_dot_product_attention_and_nothing_else() {
        let sweep = sweep(&["dot-product", "linformer", "local-1d", "uniform"]);
        let of = |backend: &str, attention: &str, pass, length| Point::new(backend, attention, pass, length);
        let asked = [
            of("flex", "uniform", Pass::Training, 24),
            of("flex", "local-1d", Pass::Forward, 16),
            of("flex", "linformer", Pass::Training, 24),
            of("wgpu", "local-1d", Pass::Training, 24),
        ];
        let found = sweep.again(&asked.iter().collect::<Vec<_>>());
        let named: Vec<_> = found.iter().map(|point| (point.pass, point.length, point.attention.as_str())).collect();
        let expected = [
            (Pass::Training, 24, "dot-product"),
            (Pass::Training, 24, "linformer"),
            (Pass::Training, 24, "uniform"),
            (Pass::Forward, 16, "dot-product"),
            (Pass::Forward, 16, "local-1d"),
        ];
        assert_eq!(named, expected);
        assert!(found.iter().all(|point| point.seconds.len() == 3));
    }

    #[test]
    fn a_first_length_that_would_take_too_much_is_not_begun() {
        for &pass in Pass::value_variants() {
            // The input and the output alone have more bytes.
            let sizes = Sizes { batch: 1 << 24, d_model: 64, ..sweep(&[]).sizes };
            let sweep = Sweep { sizes, check: 128, ..sweep(&["dot-product"]) };
            let points = sweep.measure(pass, 128, &[], &ProgressBar::hidden());
            let reason = points[0].missing.clone().expect("it was measured");
            assert!(reason.contains("left out: about") && reason.contains("1.00 GiB are allowed"), "{reason}");
        }
    }

    #[test]
    fn what_would_take_too_much_is_left_out_from_there_on() {
        let sweep = Sweep { seconds: 0.5, ..sweep(&["dot-product"]) };
        let point = |length: usize, seconds: f64| Point {
            seconds: vec![seconds],
            peak_bytes: Some(length as u64),
            ..Point::new("flex", "dot-product", Pass::Forward, length)
        };
        let (first, second) = (point(16, 0.05), point(32, 0.2));
        assert_eq!(sweep.too_much(&[&first], 32), None);
        let reason = sweep.too_much(&[&first, &second], 64).unwrap();
        assert!(reason.contains("0.800 s") && reason.contains("0.5 s are allowed"), "{reason}");
        let after = Point { missing: Some(reason.clone()), ..Point::new("flex", "dot-product", Pass::Forward, 64) };
        assert_eq!(sweep.too_much(&[&first, &second, &after], 128), Some(reason));
        let alone = [&point(16, 0.15)];
        assert!(sweep.too_much(&alone, 32).is_some());
        // Twice as long sequences are half as many.
        assert_eq!(Sweep { tokens: Some(64), ..sweep.clone() }.too_much(&alone, 32), None);
        let small = Sweep { bytes: 100, ..sweep };
        assert!(small.too_much(&[&point(16, 1e-3), &point(64, 1e-3)], 128).unwrap().contains("GiB"));
    }

    #[test]
    fn the_growth_of_a_pool_is_no_exponent_of_memory() {
        let sweep = Sweep { bytes: 100, tokens: Some(256), ..sweep(&["dot-product"]) };
        let point = |length: usize, peak_bytes: u64, measure: Measure| Point {
            seconds: vec![1e-3],
            peak_bytes: Some(peak_bytes),
            measure: Some(measure),
            ..Point::new("cuda", "dot-product", Pass::Forward, length)
        };
        let left_out = |measure: Measure| sweep.too_much(&[&point(64, 1, measure), &point(128, 40, measure)], 256);
        assert!(left_out(Measure::Allocated).is_some());
        assert_eq!(left_out(Measure::Reserved), None);
        // What is reserved already counts.
        assert!(sweep.too_much(&[&point(128, 60, Measure::Reserved)], 256).is_some());
    }
}
