//! The same training on every backend: losses side by side, and what a step costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Device;
use clap::Args;
use heedful_attention::description::AnyMechanism;
use heedful_backends::Backend;
use heedful_host::exit::ProgramError;
use heedful_host::machine::Machine;
use heedful_host::provenance::Provenance;
use heedful_host::whole_files::write_atomically;
use heedful_models::kernels::precision::Precision;
use indicatif::ProgressBar;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use crate::markdown::{significant, table};
use crate::peers::options::{ModelOptions, positive};
use crate::provenance::code;
use crate::statistics::Quartiles;
use crate::training_step::{ModelSizes, Numerics, TrainingStep};

/// Which training, on which backends.
#[derive(Args, Clone, Debug)]
pub struct BackendsOptions {
    /// Backends; losses are compared with those of the first
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',', default_value = "flex,ndarray,wgpu")]
    pub backend: Vec<Backend>,

    /// Attention of the model
    #[arg(long, value_name = "NAME", default_value = "dot-product")]
    pub attention: AnyMechanism,

    /// Steps
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..))]
    pub steps: u64,

    /// Rows of the batch
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive())]
    pub batch: usize,

    /// Tokens of a row
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive())]
    pub length: usize,

    /// Type of activations: f32, f16 or bf16, if the backend supports it
    #[arg(long, value_name = "f32|f16|bf16", default_value = "f32", value_parser = precision)]
    pub precision: Precision,

    /// Dropout probability of activations and attention weights
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub dropout: f64,

    /// Sizes of the model.
    #[command(flatten)]
    pub model: ModelOptions,

    /// Instead of training, count the kernels that a step launches on accelerators, by name and layer, and the memory of their results
    #[arg(long)]
    pub launches: bool,

    /// Folder for backends.json, backends.csv, backends.md and losses.svg, or for launches.md
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl BackendsOptions {
    /// A step of training with `layers` layers, on a device of the backend without autodiff.
    ///
    /// # Errors
    /// If the model is impossible, or the device does not compute with its numbers.
    pub fn step(&self, layers: usize, backend: Backend, device: &Device) -> Result<TrainingStep, ProgramError> {
        refuse_missing(self.precision, backend, device)?;
        let numerics = Numerics { precision: self.precision, dropout: self.dropout };
        let sizes = ModelSizes { layers, ..self.model.sizes() };
        if !backend.is_accelerator() {
            ModelSizes::check_memory(&[sizes], self.batch.saturating_mul(self.length))?;
        }
        TrainingStep::with(&self.attention, sizes, [self.batch, self.length], numerics, device).map_err(ProgramError::usage)
    }
}

/// A precision by its name.
pub(crate) fn precision(name: &str) -> Result<Precision, String> {
    match name {
        "f32" => Ok(Precision::F32),
        "f16" => Ok(Precision::F16),
        "bf16" => Ok(Precision::Bf16),
        _ => Err(format!("`{name}` is none of f32, f16 and bf16")),
    }
}

/// Refuses a precision that a backend's device does not have.
///
/// # Errors
/// A usage error that names the option.
pub fn refuse_missing(precision: Precision, backend: Backend, device: &Device) -> Result<(), ProgramError> {
    if precision.is_supported(device) {
        return Ok(());
    }
    let name = format!("{precision:?}").to_lowercase();
    Err(ProgramError::usage(format!("--precision {name}: the device of {backend} does not compute with it; use f32")))
}

/// The trainings: the file `backends.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The command.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// Version of heedful.
    pub version: String,
    /// Provenance of the measurement; unknown for files of earlier versions.
    #[serde(default)]
    pub provenance: Option<Provenance>,
    /// Tokens of a step.
    pub tokens: usize,
    /// On each backend.
    pub trainings: Vec<Training>,
}

/// One training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// Backend.
    pub backend: String,
    /// What its device calls itself.
    pub device: String,
    /// Seconds until the device was open and the model and its batch were there.
    pub build_seconds: f64,
    /// Loss per token before each step, in nats.
    pub losses: Vec<f32>,
    /// Seconds of each step.
    pub seconds: Vec<f64>,
}

impl Training {
    /// Steps that are warm-up: the first compiles shaders and chooses kernels, the second is the first with all of the optimiser's state.
    const WARM_UP: usize = 2;

    /// Trains on a backend.
    ///
    /// # Errors
    /// If it has no device, or the model is impossible.
    pub fn run(backend: Backend, options: &BackendsOptions, progress: &ProgressBar) -> Result<Self, ProgramError> {
        let begun = Instant::now();
        let device = backend.device().map_err(ProgramError::usage)?;
        let mut step = options.step(options.model.layers, backend, &device)?;
        let build_seconds = begun.elapsed().as_secs_f64();
        let mut training = Self { backend: backend.name().to_owned(), device: device_name(&device), build_seconds, ..Self::default() };
        for number in 1..=options.steps {
            progress.set_message(format!("{backend}: step {number} of {}", options.steps));
            let begun = Instant::now();
            // Reading the loss waits for the step.
            training.losses.push(step.run());
            training.seconds.push(begun.elapsed().as_secs_f64());
            progress.inc(1);
        }
        Ok(training)
    }

    /// Seconds of the steps after the warm-up.
    pub fn steady(&self) -> Option<Quartiles> {
        Quartiles::of(self.seconds.get(Self::WARM_UP..)?)
    }

    /// Seconds that the warm-up took beyond the same number of later steps.
    pub fn warm_up(&self) -> Option<f64> {
        let expected = self.steady()?.median * Self::WARM_UP as f64;
        Some((self.seconds[..Self::WARM_UP].iter().sum::<f64>() - expected).max(0.0))
    }

    /// The largest difference of a loss from that of another training.
    pub fn difference(&self, other: &Self) -> f32 {
        let differences = self.losses.iter().zip(&other.losses).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, |largest, difference| if difference.is_nan() { f32::INFINITY } else { largest.max(difference) })
    }
}

impl Outcome {
    /// Losses whose lines the table shows.
    const SHOWN: usize = 8;

    /// The tables.
    pub fn markdown(&self) -> String {
        let Some(first) = self.trainings.first() else { return String::new() };
        let Machine { cpu, cores, os } = &self.machine;
        let mut text = format!(
            "heedful {}, commit {}, {cpu}, {cores} threads, {os}.\n\n    {}\n\n",
            self.version,
            code(self.provenance.as_ref()),
            self.command
        );
        let seconds = |seconds: f64| format!("{} s", significant(seconds));
        let row = |training: &Training| {
            let steady = training.steady();
            [
                training.backend.clone(),
                training.device.clone(),
                seconds(training.build_seconds),
                training.warm_up().map_or_else(String::new, seconds),
                steady.map_or_else(String::new, |quartiles| format!("{} ms", quartiles.milliseconds())),
                steady.map_or_else(String::new, |quartiles| format!("{:.0}", self.tokens as f64 / quartiles.median)),
                format!("{:.1e}", training.difference(first)),
            ]
        };
        let differing = format!("largest difference of a loss from {}", first.backend);
        let header = ["backend", "device", "build", "warm-up", "step", "tokens/s", &differing];
        text.push_str(&table(&header, &self.trainings.iter().map(row).collect::<Vec<_>>()));
        text.push_str("\nLosses, in nats per token:\n\n");
        let steps = first.losses.len();
        let every = steps.div_ceil(Self::SHOWN).max(1);
        let header: Vec<String> =
            std::iter::once("step".to_owned()).chain(self.trainings.iter().map(|training| training.backend.clone())).collect();
        let line = |step: usize| {
            let losses =
                self.trainings.iter().map(|training| training.losses.get(step).map_or_else(String::new, |loss| format!("{loss:.6}")));
            std::iter::once((step + 1).to_string()).chain(losses).collect::<Vec<_>>()
        };
        let shown: Vec<_> = (0..steps).filter(|step| step % every == 0 || step + 1 == steps).map(line).collect();
        text.push_str(&table(&header, &shown));
        text.push_str("\nWarm-up is what the first two steps took beyond two later ones: compiling shaders, choosing kernels, making the optimiser's state.\n");
        text
    }

    /// Writes `backends.json`, `backends.csv`, `backends.md` and `losses.svg`.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ProgramError> {
        fs::create_dir_all(folder).map_err(|error| ProgramError::failure(format!("cannot make `{}`: {error}", folder.display())))?;
        let json = serde_json::to_string_pretty(self).map_err(ProgramError::failure)?;
        write_atomically(&folder.join("backends.json"), format!("{json}\n").as_bytes())?;
        write_atomically(&folder.join("backends.csv"), &self.csv().map_err(ProgramError::failure)?)?;
        let page = format!("# The same training on every backend\n\n{}", self.markdown());
        write_atomically(&folder.join("backends.md"), page.as_bytes())?;
        if let Some(picture) = self.picture().map_err(ProgramError::failure)? {
            write_atomically(&folder.join("losses.svg"), picture.as_bytes())?;
        }
        Ok(())
    }

    fn csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["backend", "step", "loss", "seconds"])?;
        for training in &self.trainings {
            for (step, (loss, seconds)) in training.losses.iter().zip(&training.seconds).enumerate() {
                writer.serialize((&training.backend, step + 1, loss, seconds))?;
            }
        }
        writer.into_inner().map_err(|error| error.into_error().into())
    }

    /// The losses as lines; none if there are fewer than two.
    fn picture(&self) -> Result<Option<String>, String> {
        let losses = || self.trainings.iter().flat_map(|training| training.losses.iter().copied()).filter(|loss| loss.is_finite());
        let steps = self.trainings.iter().map(|training| training.losses.len()).max().unwrap_or(0);
        if losses().count() == 0 || steps < 2 {
            return Ok(None);
        }
        let (lowest, highest) = (losses().fold(f32::INFINITY, f32::min), losses().fold(f32::NEG_INFINITY, f32::max));
        let margin = 0.05 * (highest - lowest).max(1e-3);
        let mut picture = String::new();
        {
            let fail = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
            let area = SVGBackend::with_string(&mut picture, (800, 480)).into_drawing_area();
            area.fill(&WHITE).map_err(fail)?;
            let mut chart = ChartBuilder::on(&area)
                .caption("loss by step", ("sans-serif", 22))
                .margin(12)
                .x_label_area_size(44)
                .y_label_area_size(64)
                .build_cartesian_2d(1..steps, lowest - margin..highest + margin)
                .map_err(fail)?;
            chart
                .configure_mesh()
                .x_desc("step")
                .y_desc("nats per token")
                .label_style(("sans-serif", 14))
                .light_line_style(WHITE)
                .draw()
                .map_err(fail)?;
            for (index, training) in self.trainings.iter().enumerate() {
                // Lines lie upon each other: the later ones are thinner.
                let style = Palette99::pick(index).stroke_width((2 * (self.trainings.len() - index)) as u32);
                let line = training.losses.iter().enumerate().map(|(step, &loss)| (step + 1, loss));
                chart
                    .draw_series(LineSeries::new(line, style))
                    .map_err(fail)?
                    .label(training.backend.clone())
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
            }
            chart
                .configure_series_labels()
                .border_style(BLACK)
                .background_style(WHITE)
                .label_font(("sans-serif", 14))
                .draw()
                .map_err(fail)?;
            area.present().map_err(fail)?;
        }
        Ok(Some(picture))
    }
}

/// What a device calls itself. Only GPUs have names.
pub fn device_name(device: &Device) -> String {
    #[cfg(feature = "wgpu")]
    if let Some(identity) = device.identity() {
        return identity.name;
    }
    #[cfg(not(feature = "wgpu"))]
    let _ = device;
    "the processor".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn training(backend: &str, losses: &[f32]) -> Training {
        Training {
            backend: backend.into(),
            device: "d".into(),
            build_seconds: 0.5,
            losses: losses.into(),
            seconds: vec![3.0, 1.2, 1.0, 1.0],
        }
    }

    #[test]
    fn warm_up_is_told_from_the_steps_after_it() {
        let found = training("wgpu", &[4.0; 4]);
        assert_eq!(found.steady().unwrap().median, 1.0);
        assert!((found.warm_up().unwrap() - 2.2).abs() < 1e-9);
    }

    #[test]
    fn differences_are_those_of_the_same_step() {
        let (first, second) = (training("flex", &[4.0, 3.0, 2.0, 1.0]), training("wgpu", &[4.0, 3.5, 2.0, 1.25]));
        assert_eq!(second.difference(&first), 0.5);
        assert_eq!(training("wgpu", &[4.0, f32::NAN]).difference(&first), f32::INFINITY);
        let outcome = Outcome { tokens: 64, trainings: vec![first, second], ..Outcome::default() };
        let text = outcome.markdown();
        for part in ["5.0e-1", "2.20 s", "| 4    | 1.000000 | 1.250000 |", "| 64 "] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let folder = tempfile::tempdir().unwrap();
        outcome.write(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("backends.csv")).unwrap().lines().count(), 9);
        for file in ["backends.md", "losses.svg"] {
            assert!(fs::read_to_string(folder.path().join(file)).unwrap().contains("wgpu"), "{file}");
        }
    }
}
