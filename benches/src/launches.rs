//! Demands of a training step on an accelerator: the kernels that it launches, by name and for each layer, and the memory of their results.
//!
//! A second model with twice as many layers separates the layers from the rest. The memory is that of all buffers of a step, as CubeCL's log names them.
//! Kernels write at least this much: those that write into an input take no buffer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, TypeNameFormatLevel, type_name_format};
use cubecl::logging::{LaunchObservation, LaunchObserver};
use heedful_backends::device_failure::guarded;
use heedful_host::command::command_line;
use heedful_host::exit::ProgramError;
use heedful_host::machine::Machine;
use log::{LevelFilter, Log, Metadata, Record};
use serde_json::json;

use crate::backends::{BackendsOptions, device_name};
use crate::markdown::{significant, table};
use crate::provenance::{self, code};
use crate::training_step::TrainingStep;

/// Steps before the one that is looked at: the first compile kernels and make the state of the optimiser.
const WARM_UP: usize = 2;

/// Bytes that CubeCL has handed out of the memory of devices.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Adds up what CubeCL's log says of memory.
struct Reservations;

impl Log for Reservations {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "cubecl::memory"
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            BYTES.fetch_add(reserved(&record.args().to_string()).unwrap_or_default(), Ordering::SeqCst);
        }
    }

    fn flush(&self) {}
}

/// Bytes of a line such as `[Main GPU Memory] Reserved memory 1.50 KB using dynamic pool`.
fn reserved(line: &str) -> Option<u64> {
    let (amount, _) = line.strip_prefix("[Main GPU Memory] Reserved memory ")?.split_once(" using")?;
    let (number, unit) = amount.split_once(' ').unwrap_or((amount, "B"));
    let power = ["B", "KB", "MB", "GB", "TB"].iter().position(|known| *known == unit)?;
    Some((number.parse::<f64>().ok()? * 1000_f64.powi(power as i32)).round() as u64)
}

/// The launches of a step on each accelerator among the backends of `options`.
///
/// # Errors
/// If there is none, a device fails, or one was opened before.
pub fn page(options: &BackendsOptions) -> Result<String, ProgramError> {
    let accelerators: Vec<_> = options.backend.iter().copied().filter(|backend| backend.is_accelerator()).collect();
    if accelerators.is_empty() {
        return Err(ProgramError::usage("--launches: there is no accelerator among the backends; give --backend wgpu"));
    }
    listen()?;
    let layers = options.model.layers;
    let mut page = format!(
        "# What a training step launches\n\nheedful {}, commit {}, {}. {layers} layers with `{}`, beside twice as many.\n\n    {}\n",
        env!("CARGO_PKG_VERSION"),
        code(Some(&provenance::here())),
        Machine::here().cpu,
        options.attention.name(),
        command_line(),
    );
    for backend in accelerators {
        let device = backend.device().map_err(ProgramError::usage)?;
        let table = guarded(backend, "if its memory is too small, give a smaller batch or a smaller model", || {
            let demand = |layers| Ok::<_, ProgramError>(Demand::of(&mut options.step(layers, backend, &device)?));
            Ok::<_, ProgramError>(demand(layers)?.table(&demand(2 * layers)?, layers))
        })?;
        let _ = write!(page, "\n## {backend}: {}\n\n{table}", device_name(&device));
    }
    Ok(page)
}

/// Has CubeCL tell of its memory. It asks once, when its first device is opened.
fn listen() -> Result<(), ProgramError> {
    let config = json!({ "memory": { "logger": { "level": "full", "log": "info" } } });
    let config: CubeClRuntimeConfig = serde_json::from_value(config).map_err(ProgramError::failure)?;
    if !CubeClRuntimeConfig::try_set(config.override_from_env()) {
        return Err(ProgramError::failure("CubeCL is at work already: its log comes too late"));
    }
    log::set_logger(&Reservations).map_err(|error| ProgramError::failure(error.to_string()))?;
    log::set_max_level(LevelFilter::Info);
    Ok(())
}

/// The kernel and its first two strategies, without the types of arguments, which make names of matrix products hundreds of letters long.
fn short_name(name: &str) -> String {
    let is_argument = |part: &&str| *part == "()" || *part == "TensorArgs" || part.starts_with("Dynamic") || part.starts_with("__");
    name.split(" | ").filter(|part| !is_argument(part)).take(3).collect::<Vec<_>>().join(" / ")
}

/// Counts launches by the names of kernels.
#[derive(Default)]
struct Counter(Mutex<BTreeMap<String, u64>>);

impl LaunchObserver for Counter {
    fn launched(&self, kernel: &'static str) {
        let name = short_name(&type_name_format(kernel, TypeNameFormatLevel::Balanced));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    }
}

/// The demands of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Launches of kernels by name.
    pub launches: BTreeMap<String, u64>,
    /// Bytes of all buffers together.
    pub bytes: u64,
}

impl Demand {
    /// That of a step, after some others.
    pub fn of(step: &mut TrainingStep) -> Self {
        for _ in 0..WARM_UP {
            step.run();
        }
        let before = settled();
        let counter = Arc::new(Counter::default());
        let watching = LaunchObservation::new(counter.clone());
        // Reading the loss waits for the step.
        step.run();
        drop(watching);
        let launches = counter.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { launches, bytes: settled() - before }
    }

    /// This demand, of a model with `layers` layers, beside `twice`, of one with twice as many, as a table.
    pub fn table(&self, twice: &Self, layers: usize) -> String {
        let row = |name: &str, once: u64, twice: u64, show: &dyn Fn(f64) -> String| {
            let of_layer = (twice as f64 - once as f64) / layers as f64;
            vec![name.to_owned(), show(once as f64), show(of_layer), show(once as f64 - of_layer * layers as f64)]
        };
        let count = |number: f64| if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.2}") };
        let names: BTreeSet<&String> = self.launches.keys().chain(twice.launches.keys()).collect();
        let of = |demand: &Self, name: &String| demand.launches.get(name).copied().unwrap_or_default();
        let mut rows: Vec<_> = names.into_iter().map(|name| (of(self, name), row(name, of(self, name), of(twice, name), &count))).collect();
        rows.sort_by_key(|(launches, _)| std::cmp::Reverse(*launches));
        let mut rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
        rows.push(row("all kernels", self.launches.values().sum(), twice.launches.values().sum(), &count));
        rows.push(row("MB of buffers", self.bytes, twice.bytes, &|bytes| significant(bytes / 1e6)));
        table(&["launches of", "step", "a layer", "the rest"], &rows)
    }
}

/// The bytes so far, once the log, which a thread of its own writes, has come to an end.
fn settled() -> u64 {
    loop {
        let before = BYTES.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
        if BYTES.load(Ordering::SeqCst) == before {
            return before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_are_short() {
        assert_eq!(short_name("KernelBinop | AddOp"), "KernelBinop / AddOp");
        let product =
            "MatmulEntry | TensorArgs | DynamicScalar | __Lhs | SimpleMatmulFamily | UnitPartitioner | () | SyncFullCyclicLoading";
        assert_eq!(short_name(product), "MatmulEntry / SimpleMatmulFamily / UnitPartitioner");
    }

    #[test]
    fn lines_of_the_log_name_bytes_of_the_device() {
        assert_eq!(reserved("[Main GPU Memory] Reserved memory 1.50 KB using dynamic pool"), Some(1500));
        assert_eq!(reserved("[Main GPU Memory] Reserved memory 512 B using dynamic pool"), Some(512));
        assert_eq!(reserved("[Main GPU Memory] Reserved memory 2048 using persistent memory"), Some(2048));
        assert_eq!(reserved("[Uniform GPU Memory] Reserved memory 32 B using dynamic pool"), None);
        assert_eq!(reserved("[Staging CPU Memory] Reserved memory 1.50 KB using dynamic pool"), None);
        assert_eq!(reserved("[Main GPU Memory], Allocated a new memory page, current usage: 1.50 KB"), None);
    }

    #[test]
    fn what_grows_with_the_layers_is_theirs() {
        let demand = |add, softmax, bytes| {
            let launches = [("add", add), ("embed", 1), ("softmax", softmax)].map(|(name, number)| (name.to_owned(), number));
            Demand { launches: launches.into(), bytes }
        };
        let text = demand(9, 4, 10_000_000).table(&demand(17, 8, 16_000_000), 4);
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split('|').map(str::trim).collect()).collect();
        let cells: Vec<&[&str]> = rows.iter().map(|row| &row[1..5]).collect();
        assert_eq!(
            cells,
            [
                ["add", "9", "2", "1"],
                ["softmax", "4", "1", "0"],
                ["embed", "1", "0", "1"],
                ["all kernels", "14", "3", "2"],
                ["MB of buffers", "10.0", "1.50", "4.00"],
            ]
        );
    }
}
