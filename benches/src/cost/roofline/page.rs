//! What was measured, as the files `roofline.json` and `roofline.md`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use heedful_host::exit::ProgramError;
use heedful_host::machine::Machine;
use heedful_host::provenance::Provenance;
use heedful_host::whole_files::write_atomically;
use heedful_models::kernels::precision::Precision;
use serde::{Deserialize, Serialize};

use super::kernels::{Kernel, PRODUCT, Times};
use super::model::{Amdahl, Bound, Peaks};
use crate::markdown::{significant, table};
use crate::provenance::code;
use crate::statistics::{Quartiles, ratios};

/// Numbers of threads that the model is asked for.
const MORE_THREADS: [usize; 2] = [16, 64];

/// How many times as fast a training step should be with two threads.
const GOAL: f64 = 1.8;

/// The kernels of the CPU engine on one machine: the file `roofline.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// The command.
    pub command: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Processes that ran or waited before the first run, on average of a minute; `None` where the system does not report it.
    pub load: Option<f64>,
    /// Version of heedful.
    pub version: String,
    /// Provenance of the measurement.
    pub provenance: Option<Provenance>,
    /// A large square product, whose best time is the peak of arithmetic.
    pub product: Kernel,
    /// A triad of large arrays, whose best time is the peak of memory.
    pub triad: Kernel,
    /// The kernels, and the training step as the last one.
    pub kernels: Vec<Kernel>,
}

impl Kernel {
    /// Floating-point operations: a multiplication comes with an addition.
    pub fn operations(&self) -> f64 {
        2.0 * self.multiplications
    }

    /// Its name, with the numbers if they are not 32-bit floats.
    fn title(&self) -> String {
        match self.precision {
            Precision::F32 => self.name.clone(),
            Precision::F16 => format!("{}, in f16", self.name),
            Precision::Bf16 => format!("{}, in bf16", self.name),
        }
    }

    /// Its time over that of the same kernel in 32 bits, round by round.
    fn beside(&self, in_32_bits: &Kernel, threads: usize) -> Option<Quartiles> {
        Quartiles::of(&ratios(&self.of(threads)?.seconds, &in_32_bits.of(threads)?.seconds))
    }

    fn of(&self, threads: usize) -> Option<&Times> {
        self.times.iter().find(|times| times.threads == threads)
    }

    /// Quartiles of its seconds with so many threads.
    fn quartiles(&self, threads: usize) -> Option<Quartiles> {
        Quartiles::of(&self.of(threads)?.seconds)
    }

    /// The time with one thread over that with `threads`, round by round.
    pub fn scaling(&self, threads: usize) -> Option<Quartiles> {
        Quartiles::of(&ratios(&self.of(1)?.seconds, &self.of(threads)?.seconds))
    }

    /// The model of the medians with one thread and with two.
    pub fn model(&self) -> Option<Amdahl> {
        Some(Amdahl::fit(self.quartiles(1)?.median, self.quartiles(2)?.median, 2))
    }

    /// The serial share of the time of each round, as its quartiles: how well two numbers of threads tell it.
    fn serial_share(&self) -> Option<Quartiles> {
        let (one, two) = (&self.of(1)?.seconds, &self.of(2)?.seconds);
        Quartiles::of(&one.iter().zip(two).map(|(&one, &two)| Amdahl::fit(one, two, 2).serial_share()).collect::<Vec<_>>())
    }

    /// How many times as fast as with one thread it is with so many, by the model, and not faster than memory of this bandwidth allows; and whether that is the
    /// limit. It is none where a measured time is shorter already: then the operands are in a cache.
    fn modelled_scaling(&self, threads: usize, bandwidth: f64) -> Option<(f64, bool)> {
        let [one, two] = [self.quartiles(1)?.median, self.quartiles(2)?.median];
        let (seconds, memory) = (self.model()?.seconds(threads, &self.limits), self.bytes / bandwidth);
        let is_memory = memory > seconds && memory <= one.min(two);
        Some((one / if is_memory { memory } else { seconds }, is_memory))
    }
}

impl Roofline {
    /// What the machine can do with each number of threads that was measured, by the best times.
    pub fn peaks(&self) -> Vec<Peaks> {
        let best = |kernel: &Kernel, threads| kernel.of(threads)?.seconds.iter().copied().reduce(f64::min);
        let of = |times: &Times| {
            let threads = times.threads;
            let operations = self.product.operations() / best(&self.product, threads)?;
            Some(Peaks { threads, operations, bandwidth: self.triad.bytes / best(&self.triad, threads)? })
        };
        self.product.times.iter().filter_map(of).collect()
    }

    /// Writes both files into a folder, which is made if it is not there.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ProgramError> {
        fs::create_dir_all(folder).map_err(|error| ProgramError::failure(format!("cannot make `{}`: {error}", folder.display())))?;
        let json = serde_json::to_string_pretty(self).map_err(ProgramError::failure)?;
        write_atomically(&folder.join("roofline.json"), format!("{json}\n").as_bytes())?;
        Ok(write_atomically(&folder.join("roofline.md"), self.markdown().as_bytes())?)
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let load = self.load.map_or_else(String::new, |load| format!(", load {load:.1} before"));
        let (Machine { cpu, cores, os }, commit) = (&self.machine, code(self.provenance.as_ref()));
        let caches = self.provenance.as_ref().map_or_else(String::new, |provenance| provenance.caches.join(", "));
        let mut text = format!(
            "# Kernels beside what the machine can do\n\nheedful {}, commit {commit}, {cpu}, {cores} threads, {os}{load}. Caches: {caches}. {INTRODUCTION}\n\n    {}\n",
            self.version, self.command
        );
        let peaks = self.peaks();
        let _ = write!(text, "\n## Peaks\n\n{}\n{}", self.of_peaks(), table(&PEAKS_HEADER, &peaks.iter().map(peak).collect::<Vec<_>>()));
        if let (Some(one), Some(all)) = (peaks.first(), peaks.last()) {
            let rows: Vec<_> = self.kernels.iter().map(|kernel| beside_bounds(kernel, one, all)).collect();
            let _ = write!(text, "\n## Bounds\n\n{BOUNDS}\n\n{}", table(&bounds_header(all.threads), &rows));
            if all.threads > 1 {
                let rows: Vec<_> = self.kernels.iter().map(|kernel| by_threads(kernel, all)).collect();
                let _ = write!(text, "\n## Threads\n\n{THREADS}\n\n{}\n{}", table(&threads_header(all.threads), &rows), self.goal());
            }
        }
        let counts: Vec<usize> = peaks.iter().map(|peaks| peaks.threads).collect();
        text.push_str(&self.in_16_bits(&counts));
        text
    }

    /// What has 16 bits beside the same in 32, and whether it is faster; nothing if nothing has.
    fn in_16_bits(&self, counts: &[usize]) -> String {
        let in_32_bits = |kernel: &Kernel| {
            self.kernels.iter().find(|other| other.precision == Precision::F32 && (&other.name, other.pass) == (&kernel.name, kernel.pass))
        };
        let pairs: Vec<(&Kernel, &Kernel)> = self
            .kernels
            .iter()
            .filter(|kernel| kernel.precision != Precision::F32)
            .filter_map(|kernel| Some((kernel, in_32_bits(kernel)?)))
            .collect();
        if pairs.is_empty() {
            return String::new();
        }
        let mut header = ["kernel", "pass"].map(str::to_owned).to_vec();
        header.extend(counts.iter().map(|count| format!("relative time, {count} thread{}", if *count == 1 { "" } else { "s" })));
        let row = |&(kernel, base): &(&Kernel, &Kernel)| {
            let ratios = counts.iter().map(|&count| kernel.beside(base, count).map_or_else(|| "–".to_owned(), |ratio| ratio.to_string()));
            [kernel.title(), kernel.pass.title().to_owned()].into_iter().chain(ratios).collect::<Vec<_>>()
        };
        let all = counts.last().copied().unwrap_or(1);
        let faster = pairs.iter().filter(|(kernel, base)| kernel.beside(base, all).is_some_and(|ratio| ratio.third < 1.0));
        let faster: Vec<String> = faster.map(|(kernel, _)| format!("{} ({})", kernel.title(), kernel.pass.title())).collect();
        let verdict = if faster.is_empty() {
            "Computing in 16 bits does not pay on this processor: nothing is faster in three of four rounds.".to_owned()
        } else {
            format!("Faster in 16 bits, in three of four rounds with all threads: {}.", faster.join("; "))
        };
        let instruction = if pairs.iter().any(|(kernel, _)| kernel.name.starts_with(PRODUCT)) { "" } else { NO_INSTRUCTION };
        let rows: Vec<_> = pairs.iter().map(row).collect();
        format!("\n## 16 bits\n\n{SIXTEEN_BITS}{instruction}\n\n{}\n{verdict}\n", table(&header, &rows))
    }

    fn of_peaks(&self) -> String {
        format!("Of the best round: {}, {}.\n", self.product.name, self.triad.name)
    }

    /// Whether the training step goes as much faster with two threads as it should.
    fn goal(&self) -> String {
        let Some((step, scaling)) = self.kernels.last().and_then(|step| Some((step, step.scaling(2)?))) else { return String::new() };
        let verdict = if scaling.median >= GOAL { "reached" } else { "missed" };
        format!("The goal is that two threads make the {} {GOAL} times as fast. It is {verdict}: {scaling}.\n", step.name)
    }
}

const INTRODUCTION: &str = "Forward passes have no graph for gradients; backward passes begin at the sum of the output, which is counted in the time. \
A multiplication comes with an addition, so that there are twice as many operations. Bytes are those of operands and results, each read or written once for \
a direction: backward, operands and the gradient of the results are read, and gradients of the operands are written; a training step has ten numbers for each \
weight. Copies and results in between are not counted.\n\n\
Multiplications are counted as the code does them: backward, a linear map has two products; the fused operator scores again and has two products for each of \
its two, 5 to 2 forward (relative scores: 8 to 3); a random table has two products to 1; the convolution sums again and has two gradients, 3 to 1. Of chunks of \
recurrences and of layers the rule of `heedful_attention::description::multiplications` is taken: 2.5 times the pairs, twice the maps. Pairs are visible ones; those that \
the code computes beside them in tiles on the diagonal, and all exponentials, count against it.";

const BOUNDS: &str = "A kernel takes at least the time of its operations at the peak, and at least that of its bytes at the bandwidth: its bound is the \
greater one. The share is the bound over the median. Bytes come from main memory in this bound: a share above 1 says that the operands were in a cache.";

const THREADS: &str = "How many times as fast as with one thread: measured, and by a plain model. As many threads as there are cores are bound to a core each. \
The model's time with `p` threads is `serial + parallel / p`. Both parts come from the medians with one and two threads. The time is at least that of the bytes at the bandwidth of all threads of this \
machine (*memory*), unless a measured time is shorter already because the operands were in a cache. Where the code divides work among few threads (one head of a \
recurrence, a group of keys in the backward pass of the fused operator, four sums in the gradient of a small weight), that share is divided by no more than \
those. **Figures for 16 and 64 threads are an extrapolation** from one and two: nothing of other processors, of more memory channels or of waiting for more \
threads is in it.\n\n\
Two numbers of threads determine both parts, so that only two things can be checked here. The quartiles of the serial share are those of the single rounds: \
where they lie far apart, the extrapolation is uncertain. A kernel that is more than twice as fast with two threads, or slower than with one, contradicts the model, which then has \
no serial part or nothing else. Where more threads were measured, the check is the time that the model says of all of them over the median.";

const SIXTEEN_BITS: &str = "The same kernels with operands and results of bfloat16, over those of 32 bits in the same round: below 1 is faster. Linear maps and the \
fused operator convert to 32 bits, compute, and round. A product of rows in bfloat16 has operands and a result of 32 bits, as weights and sums of training have, and \
converts the operands itself. It multiplies by the instruction of the processor (AVX512-BF16), which nothing else here does.";

const NO_INSTRUCTION: &str = " This processor has no such instruction, so that there is no such product.";

const PEAKS_HEADER: [&str; 4] = ["threads", "GFLOP/s", "GB/s", "FLOP/byte of the ridge"];

fn peak(peaks: &Peaks) -> [String; 4] {
    let Peaks { threads, operations, bandwidth } = *peaks;
    [threads.to_string(), significant(operations / 1e9), significant(bandwidth / 1e9), significant(peaks.ridge())]
}

fn bounds_header(all: usize) -> Vec<String> {
    let mut header = ["kernel", "pass", "million multiplications", "MiB", "FLOP/byte"].map(str::to_owned).to_vec();
    for threads in if all > 1 { vec![1, all] } else { vec![1] } {
        let on = |what: &str| format!("{what}, {threads} thread{}", if threads == 1 { "" } else { "s" });
        header.extend([on("ms (quartiles)"), on("share of peak FLOP/s"), on("bound"), on("bound ms"), on("share of bound")]);
    }
    header
}

fn beside_bounds(kernel: &Kernel, one: &Peaks, all: &Peaks) -> Vec<String> {
    let operations = kernel.operations();
    let mut row = vec![
        kernel.title(),
        kernel.pass.title().to_owned(),
        significant(kernel.multiplications / 1e6),
        significant(kernel.bytes / f64::from(1 << 20)),
        significant(operations / kernel.bytes),
    ];
    for peaks in if all.threads > 1 { vec![one, all] } else { vec![one] } {
        let (bound, least) = peaks.bound(operations, kernel.bytes);
        let quartiles = kernel.quartiles(peaks.threads);
        let cell = |value: &dyn Fn(f64) -> f64| quartiles.map_or_else(|| "–".to_owned(), |found| significant(value(found.median)));
        row.extend([
            quartiles.map_or_else(|| "–".to_owned(), |found| found.milliseconds().to_string()),
            cell(&|median| operations / peaks.operations / median),
            bound.to_string(),
            significant(1e3 * least),
            cell(&|median| least / median),
        ]);
    }
    row
}

fn threads_header(all: usize) -> Vec<String> {
    let mut header = ["kernel", "pass", "2 threads (quartiles)", "serial share (quartiles)"].map(str::to_owned).to_vec();
    if all > 2 {
        header.extend([format!("{all} threads (quartiles)"), "check: model over measured".to_owned()]);
    }
    header.extend(MORE_THREADS.map(|threads| format!("{threads} threads, extrapolated")));
    header
}

fn by_threads(kernel: &Kernel, all: &Peaks) -> Vec<String> {
    let shown = |quartiles: Option<Quartiles>| quartiles.map_or_else(|| "–".to_owned(), |quartiles| quartiles.to_string());
    let mut row = vec![kernel.title(), kernel.pass.title().to_owned(), shown(kernel.scaling(2)), shown(kernel.serial_share())];
    if all.threads > 2 {
        let check = kernel.model().zip(kernel.quartiles(all.threads));
        let check = check.map(|(model, measured)| model.seconds(all.threads, &kernel.limits) / measured.median);
        row.extend([shown(kernel.scaling(all.threads)), check.map_or_else(|| "–".to_owned(), significant)]);
    }
    row.extend(MORE_THREADS.map(|threads| match kernel.modelled_scaling(threads, all.bandwidth) {
        Some((scaling, true)) => format!("{} ({})", significant(scaling), Bound::Memory),
        Some((scaling, false)) => significant(scaling),
        None => "–".to_owned(),
    }));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::point::Pass;
    use crate::cost::roofline::model::Limit;

    fn kernel(name: &str, multiplications: f64, bytes: f64, times: &[(usize, [f64; 3])]) -> Kernel {
        let times = times.iter().map(|&(threads, seconds)| Times { threads, seconds: seconds.into() }).collect();
        Kernel { name: name.into(), pass: Pass::Training, multiplications, bytes, times, ..Kernel::default() }
    }

    /// A machine with 100 and 200 GFLOP/s, and with 10 and 15 GB/s.
    fn roofline(kernels: Vec<Kernel>) -> Roofline {
        Roofline {
            product: kernel("product", 50e9, 1e9, &[(1, [1.2, 1.0, 1.1]), (2, [0.5, 0.6, 0.7])]),
            triad: kernel("triad", 1e9, 30e9, &[(1, [3.0, 3.5, 4.0]), (2, [2.5, 2.0, 2.2])]),
            kernels,
            ..Roofline::default()
        }
    }

    #[test]
    fn peaks_are_those_of_the_best_rounds() {
        let [one, two] = roofline(Vec::new()).peaks()[..] else { panic!("two numbers of threads") };
        assert_eq!((one.threads, one.operations, one.bandwidth), (1, 100e9, 10e9));
        assert_eq!((two.threads, two.operations, two.bandwidth), (2, 200e9, 15e9));
    }

    #[test]
    fn kernels_stand_beside_their_bounds() {
        let compute = kernel("maps", 5e9, 1e9, &[(1, [0.3, 0.2, 0.1]), (2, [0.1, 0.1, 0.1])]);
        let memory = kernel("taps", 0.5e9, 1e9, &[(1, [0.4, 0.4, 0.4]), (2, [0.25, 0.25, 0.25])]);
        let page = roofline(vec![memory, compute]).markdown();
        let row = |name: &str| {
            let line = page.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(row("maps")[2..10], ["5000", "954", "10.0", "200 (150 to 250)", "0.500", "compute", "100", "0.500"]);
        assert_eq!(row("taps")[6..10], ["0.025", "memory", "100", "0.250"]);
        assert!(page.contains("the maps 1.8 times as fast. It is reached: 2.00 (1.50 to 2.50)"), "{page}");
    }

    #[test]
    fn what_has_16_bits_stands_beside_the_same_in_32() {
        let in_16_bits = |kernel: Kernel| Kernel { precision: Precision::Bf16, ..kernel };
        let maps = |two: [f64; 3]| kernel("maps", 1e9, 1e6, &[(1, [1.0, 2.0, 4.0]), (2, two)]);
        let forward = Kernel { pass: Pass::Forward, ..maps([9.0; 3]) };
        let page = |two: [f64; 3]| roofline(vec![forward.clone(), maps([1.0; 3]), in_16_bits(maps(two))]).markdown();
        let slower = page([2.0, 1.5, 3.0]);
        // Round by round, and beside the same pass.
        assert!(slower.contains("relative time, 1 thread ") && slower.contains("relative time, 2 threads"), "{slower}");
        assert!(slower.contains("| maps, in bf16 | forward and backward | 1.00 (1.00 to 1.00)     | 2.00 (1.75 to 2.50)"), "{slower}");
        assert!(slower.contains("does not pay on this processor") && slower.contains("has no such instruction"), "{slower}");
        let faster = page([0.5, 0.9, 0.9]);
        assert!(faster.contains("with all threads: maps, in bf16 (forward and backward)."), "{faster}");
        // In one of the rounds it is no faster.
        assert!(page([0.5, 0.9, 1.2]).contains("does not pay"));
        let product = kernel(&format!("{PRODUCT} 8 rows of 4"), 1e9, 1e6, &[(1, [1.0; 3]), (2, [1.0; 3])]);
        assert!(!roofline(vec![product.clone(), in_16_bits(product)]).markdown().contains("has no such instruction"));
        assert!(!roofline(vec![forward]).markdown().contains("## 16 bits"));
    }

    #[test]
    fn kernels_of_files_without_a_type_have_32_bits() {
        let mut file = serde_json::to_value(kernel("maps", 1e9, 1e6, &[])).unwrap();
        file.as_object_mut().unwrap().remove("precision").expect("it says of what its numbers are");
        assert_eq!(serde_json::from_value::<Kernel>(file).unwrap(), kernel("maps", 1e9, 1e6, &[]));
    }

    #[test]
    fn a_step_that_two_threads_help_too_little_misses_the_goal() {
        let step = |two: f64| roofline(vec![kernel("step", 1e9, 1e6, &[(1, [1.8; 3]), (2, [two; 3])])]).markdown();
        assert!(step(1.0).contains("It is reached: 1.80") && step(1.01).contains("It is missed: 1.78"));
    }

    #[test]
    fn more_threads_are_modelled_up_to_the_bandwidth_and_what_the_code_divides() {
        let mut found = kernel("maps", 1e9, 1e8, &[(1, [1.0; 3]), (2, [0.55; 3])]);
        let near = |kernel: &Kernel, threads, bandwidth, expected: f64| {
            let (scaling, is_memory) = kernel.modelled_scaling(threads, bandwidth).unwrap();
            assert!((scaling - expected).abs() < 1e-9, "{scaling} is not {expected}");
            is_memory
        };
        assert!(!near(&found, 16, 1e12, 1.0 / (0.1 + 0.9 / 16.0)));
        assert!(near(&found, 16, 4e8, 4.0), "0.25 seconds of bytes");
        assert!(!near(&found, 16, 1e7, 1.0 / (0.1 + 0.9 / 16.0)), "of what was in a cache");
        found.limits = vec![Limit { share: 1.0, threads: 4.0 }];
        assert!(!near(&found, 64, 1e12, 1.0 / (0.1 + 0.9 / 4.0)));
        assert_eq!(kernel("alone", 1.0, 1.0, &[(1, [1.0; 3])]).modelled_scaling(16, 1.0), None);
    }

    #[test]
    fn the_model_is_checked_where_more_than_two_threads_were_measured() {
        let times = [(1, [1.0; 3]), (2, [0.55; 3]), (4, [0.25; 3])];
        let four = Roofline {
            product: kernel("product", 50e9, 1e9, &[(1, [1.0; 3]), (2, [0.5; 3]), (4, [0.25; 3])]),
            triad: kernel("triad", 1e9, 30e9, &[(1, [3.0; 3]), (2, [2.0; 3]), (4, [2.0; 3])]),
            kernels: vec![kernel("maps", 1e9, 1e6, &times)],
            ..Roofline::default()
        };
        let page = four.markdown();
        // 0.1 + 0.9 / 4 seconds by the model.
        assert!(page.contains("check: model over measured") && page.contains("| 1.30 "), "{page}");
        assert!(!roofline(four.kernels).markdown().contains("check: model over measured"));
    }

    #[test]
    fn files_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("new");
        let written = roofline(vec![kernel("maps", 1e9, 1e6, &[(1, [1.0; 3]), (2, [0.5; 3])])]);
        written.write(&place).unwrap();
        let json = fs::read_to_string(place.join("roofline.json")).unwrap();
        assert_eq!(serde_json::from_str::<Roofline>(&json).unwrap(), written);
        assert_eq!(fs::read_to_string(place.join("roofline.md")).unwrap(), written.markdown());
    }
}
