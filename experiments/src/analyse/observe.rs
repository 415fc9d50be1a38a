//! Showing texts to a trained model, and to the same model before its training.

use std::collections::BTreeMap;
use std::path::PathBuf;

use heedful_attention::contract::probe::{Observation, Probe};
use heedful_attention::engine::heads::merge_heads;
use heedful_attention::tensors::read::read;
use heedful_backends::Backend;
use heedful_backends::device_failure::guarded;
use heedful_runs::run_folder::RunFolder;

use super::image::layer;
use super::{Analysis, Kind, Observed, PixelChoice, State};
use crate::session::comparison::{Reloaded, reload, scoring_bar, write_page};
use crate::session::error::{ExperimentError, print_line};
use crate::session::experiment::definition::{Experiment, ReadSegment, Reading, Setup};
use crate::session::mixture_weights;

/// Which model is shown what.
#[derive(Clone, Debug, clap::Args)]
pub struct AnalyseOptions {
    /// Output folder of a finished command, such as runs/mt
    pub run: PathBuf,

    /// Attention or model of the run [default: the first]
    #[arg(long, value_name = "NAME")]
    pub attention: Option<String>,

    /// Seed of the run [default: the first]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,

    /// Data set of the run, where it has several [default: the first]
    #[arg(long, value_name = "NAME")]
    pub dataset: Option<String>,

    /// A text to show, of the experiment's kind (translation: source, or source TAB target; image: its values row by row, after CLASS: in a class-conditional
    /// model; memory-rl: the number of an episode); may be repeated [default: test texts]
    #[arg(long, value_name = "TEXT")]
    pub text: Vec<String>,

    /// Number of test texts to show if --text is not given
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub texts: u64,

    /// Number of texts, or of segments in models with a memory, for which pictures and all weights are written
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub pictured: usize,

    /// Images: the pixel whose weights are drawn over the image, row and column from 0 [default: the middle one]
    #[arg(long, value_name = "ROW,COLUMN", value_parser = pixel)]
    pub pixel: Option<[usize; 2]>,

    /// Images: the layers whose weights are drawn over the image, from 0, separated by commas [default: all]
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',')]
    pub layers: Vec<usize>,

    /// Where tensors are computed
    #[arg(long, value_name = "flex|ndarray|wgpu|vulkan|metal|webgpu|cuda|rocm", default_value = "flex")]
    pub backend: Backend,

    /// Folder of the analysis [default: RUN/analysis/ATTENTION-seedS]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Row and column of a pixel.
fn pixel(text: &str) -> Result<[usize; 2], String> {
    let numbers = text.split_once(',').and_then(|(row, column)| Some([row.trim().parse().ok()?, column.trim().parse().ok()?]));
    numbers.ok_or_else(|| "give row and column from 0, such as 4,7".to_owned())
}

/// Refuses a pixel or layers that are laid over no image.
fn check_choice(analysis: &Analysis, PixelChoice { pixel, layers }: &PixelChoice) -> Result<(), ExperimentError> {
    let option = match (pixel, layers.is_empty()) {
        (None, true) => return Ok(()),
        (Some(_), _) => "--pixel",
        (None, false) => "--layers",
    };
    if analysis.images.is_empty() {
        return Err(ExperimentError::usage(format!("{option}: the models of this run read no images; leave it out")));
    }
    if let Some([row, column]) = pixel
        && let Some(image) = analysis.images.values().find(|image| *row >= image.height || *column >= image.width)
    {
        let (rows, columns) = (image.height - 1, image.width - 1);
        return Err(ExperimentError::usage(format!(
            "--pixel {row},{column}: rows are 0 to {rows} and columns 0 to {columns}; give others"
        )));
    }
    let known: Vec<usize> = analysis.statistics.image.modules().into_iter().filter_map(layer).collect();
    match layers.iter().find(|layer| !known.contains(layer)) {
        None => Ok(()),
        Some(layer) if known.is_empty() => {
            Err(ExperimentError::usage(format!("--layers {layer}: no layer of this model shows weights of pixels; leave it out")))
        }
        Some(layer) => {
            let known = known.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            Err(ExperimentError::usage(format!("--layers {layer}: the layers that show weights of pixels are {known}; give some of them")))
        }
    }
}

/// Analyses a model of an experiment whose models read texts.
///
/// # Errors
/// A run that is missing or cannot be read, a text that is too long, or a file that cannot be written.
pub fn run<E: Experiment>(options: &AnalyseOptions) -> Result<(), ExperimentError> {
    guarded(options.backend, "if its memory is too small, give shorter texts, or --backend flex", || analyse::<E>(options))
}

fn analyse<E: Experiment>(options: &AnalyseOptions) -> Result<(), ExperimentError> {
    let device = options.backend.device().map_err(ExperimentError::usage)?;
    let choice = (options.attention.as_deref(), options.seed, options.dataset.as_deref());
    let Reloaded { config, dataset, attention, seed, initial, trained, sections } = reload::<E>(&options.run, choice, &device)?;
    let setup = Setup { config: &config, data: &dataset, attention: &attention };
    let texts = if options.text.is_empty() { E::texts(setup, options.texts as usize) } else { options.text.clone() };
    let subject = format!("{} of {}, seed {seed}", attention.name, options.run.display());
    let choice = PixelChoice { pixel: options.pixel, layers: options.layers.clone() };
    let mut analysis = Analysis::new(&subject, 0..options.pictured).with_pixel(choice.clone());
    read_both(setup, (&initial, &trained), &texts, &mut analysis)?;
    check_choice(&analysis, &choice)?;
    let runs = RunFolder::at(&options.run);
    let folder = options.out.clone().unwrap_or_else(|| runs.analysis(&attention.name, seed));
    analysis.write(&folder).map_err(ExperimentError::failure)?;
    if options.out.is_none() {
        write_page::<E>(&runs, &config, sections)?;
    }
    print_line(format!("Analysis of {} texts: {}", texts.len(), folder.join("analyse.md").display()))
}

/// What a model shows of texts with the weights that it began with, and with those that it has after training.
///
/// # Errors
/// A text that is too long.
pub(crate) fn of_change<E: Experiment>(
    setup: Setup<'_, E>,
    initial: &E::Model,
    trained: &E::Model,
    texts: &[String],
) -> Result<Analysis, ExperimentError> {
    let mut analysis = Analysis::new(&setup.attention.name, []);
    read_both(setup, (initial, trained), texts, &mut analysis)?;
    Ok(analysis)
}

fn read_both<E: Experiment>(
    setup: Setup<'_, E>,
    (initial, trained): (&E::Model, &E::Model),
    texts: &[String],
    analysis: &mut Analysis,
) -> Result<(), ExperimentError> {
    let bar = scoring_bar("reading", 2 * texts.len());
    for (state, model) in [(State::Initial, initial), (State::Trained, trained)] {
        analysis.add_mixtures(state, mixture_weights::of(model));
        // Each segment of a text counts as one.
        let mut number = 0;
        for text in texts {
            E::read_segments(setup, model, text, &mut |read| {
                show(analysis, state, number, read)?;
                number += 1;
                Ok(())
            })?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Adds what a model shows of a text.
fn show(analysis: &mut Analysis, state: State, text: usize, read: &mut ReadSegment<'_>) -> Result<(), ExperimentError> {
    let mut shown: Vec<(String, Kind, Vec<usize>, Vec<f32>)> = Vec::new();
    let mut times: BTreeMap<(String, Kind), usize> = BTreeMap::new();
    let mut listener = |path: &str, observation: Observation| {
        let Some((kind, shape, values)) = plain(observation) else { return };
        // One block for all layers shows itself once for each of them.
        let time = times.entry((path.to_owned(), kind)).and_modify(|time| *time += 1).or_insert(1);
        let module = if *time == 1 { path.to_owned() } else { format!("{path} (time {time})") };
        shown.push((module, kind, shape, values));
    };
    let Reading { encoder, decoder, memory, image } = read(&mut Probe::listening(&mut listener))?;
    if let Some(image) = image {
        analysis.add_image(text, image);
    }
    for (module, kind, shape, values) in shown {
        let is_cross = module.contains("cross_attention");
        let queries = if module.starts_with("encoder") { encoder.clone() } else { decoder.clone() };
        let mut keys = match (is_cross, module.starts_with("encoder")) {
            (true, _) => encoder.clone(),
            (false, true) => queries.clone(),
            (false, false) => [&memory[..], &queries[..]].concat(),
        };
        // Attention that looks back less far than the memory reaches shows no column for what it cannot see.
        if let (false, Kind::Weights | Kind::Buckets, Some(&columns)) = (is_cross, kind, shape.last())
            && (queries.len()..keys.len()).contains(&columns)
        {
            keys.drain(..keys.len() - columns);
        }
        let query_start = (!is_cross).then(|| keys.len() - queries.len());
        analysis
            .add(Observed { state, text, module, queries, keys, query_start, kind, shape, values })
            .map_err(ExperimentError::failure)?;
    }
    Ok(())
}

/// Kind, shape without the batch, and values; nothing for what an analysis does not look at.
fn plain(observation: Observation) -> Option<(Kind, Vec<usize>, Vec<f32>)> {
    let (kind, data) = match observation {
        Observation::Weights(weights) => (Kind::Weights, read(weights)),
        Observation::SlotWeights(weights) => (Kind::SlotWeights, read(weights)),
        Observation::Spans(spans) => (Kind::Spans, read(spans)),
        Observation::Buckets(buckets) => (Kind::Buckets, read(buckets.float())),
        Observation::HeadGates(open) => (Kind::Gate, read(merge_heads(open))),
        Observation::Gate(open) => (Kind::Gate, read(open)),
        Observation::HaltingSteps(steps) => (Kind::HaltingSteps, read(steps)),
        _ => return None,
    };
    let shape = data.shape().to_vec();
    Some((kind, shape[1..].to_vec(), data.iter::<f32>().collect()))
}
