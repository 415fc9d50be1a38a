//! The least memory that training a model takes, estimated before the model is built, against the memory that there is.
//!
//! Counted are the parameters of attentions, feed-forward networks, embeddings and position tables, with their gradients and the moments of the optimiser,
//! and the [`activations`] that the layers keep of a batch for the backward pass. All else is left out, so that the estimate is a lower bound and refuses
//! nothing that fits. The gradient of a weight appears when the activations that it is computed from may go: the greater of both sums counts, beside the
//! weights and their moments. A model on a GPU has these in the memory of the device, and in main memory no more than its modules.
//!
//! Main memory is what `/proc/meminfo` calls available, or the limits of the process's control groups (cgroup v2) if they are lower. Elsewhere than on Linux
//! it is not checked. The memory of a device is all that it has, as its driver states it. It is not checked where the driver is not asked, as by wgpu alone.

mod activations;
#[cfg(all(test, target_os = "linux"))]
mod measured;

use heedful_attention::description::parameter_formula::ParameterCount;
use heedful_attention::mechanisms::linformer::Sharing;
use heedful_backends::Backend;
use heedful_host::machine::available_memory;
use heedful_models::kernels::precision::Precision;
use heedful_models::prelude::*;
use heedful_runs::settings::Settings;

use crate::model::ModelSettings;
use crate::model::attention::Attention;
use crate::session::error::ExperimentError;
use crate::session::experiment::definition::{Candidate, Config, Experiment};
use crate::session::jobs::Jobs;
use crate::session::slurm::SlurmSettings;

/// Bytes of a number of 32 bits.
const NUMBER: u128 = 4;
/// Bytes that a layer takes in main memory, wherever its numbers are: less than its modules do.
const LAYER: u128 = 1024;

/// Equal blocks and the position vectors of their inputs.
pub(crate) struct Blocks {
    pub number: u128,
    /// Of each block.
    pub attention: ParameterCount,
    pub d_model: usize,
    /// 0 for blocks without a feed-forward network.
    pub d_ff: usize,
    pub gated_feed_forward: bool,
    pub max_length: usize,
    pub positions: PositionConfig,
}

impl Blocks {
    /// Parameters of attentions, feed-forward networks and position tables: all that grow with a product of sizes.
    pub(crate) fn parameters(&self) -> ParameterCount {
        let [d_model, d_ff, max_length] = [self.d_model, self.d_ff, self.max_length].map(|size| size as u128);
        let ParameterCount { trained, fixed } = self.attention;
        let maps = if self.gated_feed_forward { 3 } else { 2 };
        let of_block = trained.saturating_add(d_model.saturating_mul(d_ff).saturating_mul(maps));
        let table = max_length.saturating_mul(d_model);
        let (learned, sinusoids) = match self.positions {
            PositionConfig::Learned => (table, 0),
            PositionConfig::PerLayer => (table.saturating_mul(self.number), 0),
            PositionConfig::Sinusoidal => (0, table),
            PositionConfig::Grid(_) | PositionConfig::None => (0, 0),
        };
        ParameterCount {
            trained: of_block.saturating_mul(self.number).saturating_add(learned),
            fixed: fixed.saturating_mul(self.number).saturating_add(sinusoids),
        }
    }

    /// Least bytes of main memory that the blocks take before anything is computed.
    pub(crate) fn bytes(&self) -> u128 {
        let ParameterCount { trained, fixed } = self.parameters();
        trained.saturating_add(fixed).saturating_mul(NUMBER).saturating_add(self.number.saturating_mul(LAYER))
    }
}

/// What the memory of training follows from.
struct Model<'a> {
    settings: &'a ModelSettings,
    /// Of its mechanisms the least one is counted for all layers.
    attention: &'a Attention,
    stacks: usize,
    /// Vectors of the width of the model that the tokens have.
    vocabulary: usize,
    /// Tokens of a training batch.
    tokens: usize,
    precision: Precision,
    /// Numbers of the optimiser for each weight.
    moments: u128,
    share: Share,
}

/// The part of a model that is in the memory that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// All of it: main memory, of a model on a CPU backend.
    All,
    /// Its modules: main memory, of a model on an accelerator.
    Modules,
    /// Its tensors: the memory of the accelerator.
    Tensors,
}

impl Share {
    /// In main memory.
    fn of_main(backend: Backend) -> Self {
        if backend.is_accelerator() { Self::Modules } else { Self::All }
    }
}

/// The least memory of training, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Footprint {
    /// Weights with their moments, or the modules of the layers where nothing else is known.
    held: u128,
    /// Gradients of the weights.
    gradients: u128,
    /// What layers keep for the backward pass.
    activations: u128,
}

impl Footprint {
    fn total(self) -> u128 {
        self.held.saturating_add(self.gradients.max(self.activations))
    }

    /// What the total is made of: nothing that is not known, or not part of it.
    fn parts(self) -> String {
        let Self { held, gradients, activations } = self;
        if gradients == 0 && activations == 0 {
            format!("modules of the layers {}", amount(held))
        } else if activations > gradients {
            format!("weights and moments {}, activations of a batch {}", amount(held), amount(activations))
        } else {
            format!("weights, gradients and moments {}", amount(held.saturating_add(gradients)))
        }
    }
}

impl Model<'_> {
    fn footprint(&self) -> Footprint {
        let layers = self.layers(|layers| layers);
        if self.share == Share::Modules {
            return Footprint { held: layers.saturating_mul(LAYER), gradients: 0, activations: 0 };
        }
        let ParameterCount { trained, fixed } = self.parameters();
        let numbers = trained.saturating_mul(1 + self.moments).saturating_add(fixed);
        let blocks = self.layers(|layers| self.settings.depth.blocks(layers));
        let modules = if self.share == Share::All { blocks.saturating_mul(LAYER) } else { 0 };
        Footprint {
            held: numbers.saturating_mul(NUMBER).saturating_add(modules),
            gradients: trained.saturating_mul(NUMBER),
            activations: self.activations(),
        }
    }

    /// What of the layers of a stack counts, over all stacks.
    fn layers(&self, counted: impl Fn(usize) -> usize) -> u128 {
        let stacks = [self.settings.layers, self.settings.decoder_layers()];
        stacks.into_iter().take(self.stacks).map(|layers| counted(layers) as u128).sum()
    }

    fn parameters(&self) -> ParameterCount {
        let Self { settings, .. } = self;
        let blocks = self.layers(|layers| settings.depth.blocks(layers));
        let own = Blocks {
            number: blocks,
            attention: self.attention_parameters(),
            d_model: settings.d_model,
            d_ff: settings.counted_d_ff(),
            gated_feed_forward: settings.gated_feed_forward,
            max_length: settings.max_length,
            positions: settings.positions,
        };
        let ParameterCount { trained, fixed } = own.parameters();
        let embedding = (settings.d_model as u128).saturating_mul(self.vocabulary as u128);
        ParameterCount { trained: trained.saturating_add(embedding), fixed }
    }

    /// Parameters of one attention: of the one that has the fewest.
    fn attention_parameters(&self) -> ParameterCount {
        let place = self.place();
        let counts = self_attentions(self.attention).map(|attention| {
            let counted = match attention.get::<LinformerConfig>() {
                // All layers share its projections, which are not counted at all.
                Some(linformer) if linformer.sharing == Sharing::Layerwise => &AnyMechanism::default(),
                _ => attention,
            };
            let ParameterCount { trained, fixed } = counted.parameters_at(&place).unwrap_or_default();
            // What all layers have in common is little, and not counted at all.
            let common = counted.shared_parameters_at(&place);
            ParameterCount { trained: trained - common.trained, fixed: fixed - common.fixed }
        });
        counts.min_by_key(|count| count.trained + count.fixed).unwrap_or_default()
    }

    fn place(&self) -> LayerSpec {
        self.settings.block().spec(Role::Encoder, 0, 1, self.settings.heads)
    }

    /// Of one stack: that of the other may have fewer tokens.
    fn activations(&self) -> u128 {
        let d_model = self.settings.d_model as u128;
        let width = d_model.min(self.place().query_width() as u128);
        // A mechanism with two maps of this width keeps what they map: values, or what is compared with keys, and the heads side by side.
        let maps_twice = self.attention_parameters().trained >= d_model.saturating_mul(width).saturating_mul(2);
        let without_dropout = ModelSettings { dropout: 0.0, feed_forward_dropout: 0.0, ..self.settings.clone() };
        // Accelerators draw the factors of dropout again.
        let settings = if self.share == Share::Tensors { &without_dropout } else { self.settings };
        let numbers = activations::of_batch(settings, if maps_twice { width.saturating_mul(2) } else { 0 }, self.tokens as u128);
        numbers.saturating_mul(if self.precision == Precision::F32 { NUMBER } else { NUMBER / 2 })
    }
}

fn self_attentions(attention: &Attention) -> impl Iterator<Item = &AnyMechanism> {
    [&attention.layout.encoder, &attention.layout.decoder].into_iter().flat_map(|layers| layers.mechanisms())
}

/// The memory that a run can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Main memory in bytes, if it is known.
    main: Option<u64>,
    /// How to get more of it.
    remedy: &'static str,
    /// That of the device in bytes, if its driver tells.
    device: Option<u64>,
}

impl Memory {
    /// What is available on this machine.
    pub(crate) fn here() -> Self {
        Self { main: available_memory(), remedy: "run it on a machine with more memory", device: None }
    }

    /// What a task of Slurm gets, as far as the settings say so. Where they do not, each task refuses on its own node what it cannot hold.
    pub(crate) fn of_task(slurm: &SlurmSettings) -> Self {
        Self { main: slurm.memory_in_bytes(), remedy: "ask for more with slurm.memory", device: None }
    }

    /// That of runs which are done already.
    pub(crate) fn of_finished() -> Self {
        Self { main: None, remedy: "", device: None }
    }

    /// The same with the memory of a device, in bytes, if its driver tells.
    pub(crate) fn with_device(self, device: Option<u64>) -> Self {
        Self { device, ..self }
    }
}

/// Refuses a candidate whose training takes more than `memory`; `dataset` if it is known.
///
/// # Errors
/// A usage error with both amounts and the field that is to be made smaller.
pub(crate) fn check<E: Experiment>(
    settings: &Settings<Config<E>>,
    config: &Config<E>,
    attention: &Attention,
    dataset: Option<&E::Data>,
    memory: Memory,
) -> Result<(), ExperimentError> {
    let Ok(backend) = config.run.backend.parse() else { return Ok(()) };
    let of_device = "run it on a device with more memory";
    for (available, remedy, share) in [(memory.main, memory.remedy, Share::of_main(backend)), (memory.device, of_device, Share::Tensors)] {
        if let Some(available) = available {
            refuse_beyond::<E>((available, remedy), settings, config, attention, dataset, share)?;
        }
    }
    Ok(())
}

/// Bytes that a run takes at least, on a GPU in main memory.
pub(crate) fn least<E: Experiment>(candidate: &Candidate<E>, dataset: &E::Data, backend: Backend) -> u128 {
    needed::<E>(candidate, dataset, Share::of_main(backend))
}

fn needed<E: Experiment>(Candidate { attention, config, .. }: &Candidate<E>, dataset: &E::Data, share: Share) -> u128 {
    model::<E>(&E::sizes(config), config, attention, Some(dataset), share).footprint().total()
}

/// How many runs may be worked on at once in this memory.
///
/// # Errors
/// A usage error if a number is given and a memory does not suffice for the largest run so many times.
pub(crate) fn jobs<E: Experiment>(
    asked: Jobs,
    candidates: &[Candidate<E>],
    datasets: &[E::Data],
    backend: Backend,
    memory: Memory,
) -> Result<usize, ExperimentError> {
    let greatest = |share| {
        let needed = candidates.iter().flat_map(|candidate| datasets.iter().map(move |dataset| needed::<E>(candidate, dataset, share)));
        needed.max().unwrap_or_default().max(1)
    };
    let main = Room { available: memory.main, needed: greatest(Share::of_main(backend)) };
    let device = Room { available: memory.device, needed: greatest(Share::Tensors) };
    jobs_within([main, device], asked, backend)
}

/// A memory, where it is known, beside what a run needs of it.
#[derive(Clone, Copy, Debug)]
struct Room {
    available: Option<u64>,
    needed: u128,
}

impl Room {
    /// Runs that it suffices for.
    fn runs(self) -> usize {
        self.available.map_or(usize::MAX, |available| usize::try_from(u128::from(available) / self.needed).unwrap_or(usize::MAX))
    }
}

fn jobs_within(rooms: [Room; 2], asked: Jobs, backend: Backend) -> Result<usize, ExperimentError> {
    let [main, device] = rooms;
    let narrower = if device.runs() < main.runs() { device } else { main };
    let fitting = narrower.runs();
    match asked {
        Jobs::Auto if backend.is_accelerator() => Ok(1),
        Jobs::Auto => Ok(rayon::current_num_threads().min(fitting).max(1)),
        Jobs::Number(number) if number.get() > fitting.max(1) => Err(ExperimentError::usage(format!(
            "--jobs {number}: a run needs at least {} of memory{}, and {} are available; give at most {}",
            amount(narrower.needed),
            if fitting < main.runs() { " on the device" } else { "" },
            amount(u128::from(narrower.available.unwrap_or_default())),
            fitting.max(1)
        ))),
        Jobs::Number(number) => Ok(number.get()),
    }
}

fn refuse_beyond<E: Experiment>(
    (available, remedy): (u64, &str),
    settings: &Settings<Config<E>>,
    config: &Config<E>,
    attention: &Attention,
    dataset: Option<&E::Data>,
    share: Share,
) -> Result<(), ExperimentError> {
    let own = E::sizes(config);
    let model = model::<E>(&own, config, attention, dataset, share);
    let needed = model.footprint();
    if needed.total() <= u128::from(available) {
        return Ok(());
    }
    let field = field_at_fault(&model, E::BATCH);
    let problem = format!(
        "training {} needs at least {} of memory{} ({}), and {} are available; give a smaller {field}, or {remedy}",
        attention.name,
        amount(needed.total()),
        if share == Share::Tensors { " on the device" } else { "" },
        needed.parts(),
        amount(u128::from(available)),
    );
    Err(settings.refuse(field, problem).into())
}

/// What a candidate trains, with the sizes `own`.
fn model<'a, E: Experiment>(
    own: &'a ModelSettings,
    config: &Config<E>,
    attention: &'a Attention,
    dataset: Option<&E::Data>,
    share: Share,
) -> Model<'a> {
    Model {
        settings: own,
        attention,
        stacks: E::STACKS,
        vocabulary: dataset.map_or(1, |data| E::full_vectors(config, data)),
        tokens: dataset.map_or(0, |dataset| E::batch_tokens(config, dataset)),
        precision: config.training.precision,
        moments: config.training.optimiser.moments() as u128,
        share,
    }
}

/// The field that saves most if it has an ordinary value.
fn field_at_fault(model: &Model<'_>, batch: &'static str) -> &'static str {
    let ordinary = ModelSettings::default();
    let settings = model.settings;
    let smaller = [
        ("model.layers", ModelSettings { layers: ordinary.layers.min(settings.layers), ..settings.clone() }),
        ("model.decoder_layers", ModelSettings { decoder_layers: None, ..settings.clone() }),
        ("model.d_model", ModelSettings { d_model: ordinary.d_model.min(settings.d_model), ..settings.clone() }),
        ("model.d_ff", ModelSettings { d_ff: ordinary.d_ff.min(settings.d_ff), ..settings.clone() }),
        ("model.max_length", ModelSettings { max_length: ordinary.max_length.min(settings.max_length), ..settings.clone() }),
    ];
    let of_settings = smaller.iter().map(|(field, settings)| (Model { settings, ..*model }.footprint().total(), *field));
    let of_batch = (Model { tokens: model.tokens.min(1000), ..*model }.footprint().total(), batch);
    let of_vocabulary = (Model { vocabulary: model.vocabulary.min(10_000), ..*model }.footprint().total(), "tokeniser.vocabulary");
    of_settings.chain([of_batch, of_vocabulary]).min_by_key(|(left, _)| *left).map_or("model.layers", |(_, field)| field)
}

/// Bytes in the unit that fits; indicatif takes 64 bits, which the models of a mistyped configuration exceed.
pub(crate) fn amount(bytes: u128) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value >= 1e6 { format!("{value:.1e} {}", UNITS[unit]) } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::session::experiment::definition::Setup;
    use crate::tasks::language::{Language, LanguageConfig};
    use crate::train::ParameterCount as Built;

    const GIB: u64 = 1 << 30;

    pub(super) fn settings(assignments: &[&str]) -> Settings<LanguageConfig> {
        Settings::set(assignments).unwrap()
    }

    pub(super) fn attention(name: &str) -> Attention {
        Attention::new(name.parse().unwrap())
    }

    fn refusal(name: &str, assignments: &[&str], share: Share) -> Option<String> {
        let settings = settings(assignments);
        let outcome = refuse_beyond::<Language>((16 * GIB, "buy more"), &settings, &settings.value, &attention(name), None, share);
        outcome.err().map(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn models_that_no_machine_holds_are_refused_with_both_amounts_and_the_option() {
        let greatest = i64::MAX;
        for (name, option) in [
            ("dot-product", "model.layers=1000000000".to_owned()),
            ("dot-product", format!("model.layers={greatest}")),
            ("dot-product", format!("model.d_model={greatest}")),
            ("gaussian", format!("model.d_ff={greatest}")),
            ("synthesizer-random", "model.max_length=1000000".to_owned()),
            ("synthesizer-random-fixed", format!("model.max_length={greatest}")),
            ("lsh", "model.max_length=10000000000".to_owned()),
        ] {
            let message = refusal(name, &[&option], Share::All).unwrap_or_else(|| panic!("{name} with {option} is not refused"));
            let field = option.split('=').next().unwrap();
            assert!(message.starts_with(&format!("`--set {option}`: `{field}`")), "{message}");
            assert!(
                message.contains("needs at least") && message.contains("16.0 GiB are available") && message.contains("smaller"),
                "{message}"
            );
            assert!(
                message.contains("(weights, gradients and moments ") && !message.contains("activations"),
                "no batch is known: {message}"
            );
        }
        let message = refusal("dot-product", &["model.d_model=100000"], Share::Tensors).expect("they lie on the device");
        assert!(message.contains("of memory on the device (weights, gradients and moments "), "{message}");
        let message =
            refusal("dot-product", &["model.layers=1000000000"], Share::of_main(Backend::Wgpu)).expect("modules lie in main memory");
        assert!(message.contains("(modules of the layers 953.7 GiB)"), "{message}");
    }

    #[test]
    fn ordinary_models_are_not_refused() {
        for assignments in [&[][..], &["model.layers=48", "model.d_model=1024", "model.d_ff=4096", "model.max_length=4096"]] {
            for config in AnyMechanism::all() {
                // Tables of all pairs of positions.
                let has_tables = config.parameter_formula().is_some_and(|formula| formula.to_string().contains("L^2"));
                if has_tables && !assignments.is_empty() {
                    continue;
                }
                assert_eq!(refusal(&config.name(), assignments, Share::All), None);
            }
        }
        // Nothing is as long as this without a table.
        assert_eq!(refusal("dot-product", &["model.max_length=10000000000", "model.positions=none"], Share::All), None);
        assert_eq!(refusal("dot-product", &["model.layers=10000", "model.depth.kind=shared"], Share::All), None);
    }

    #[test]
    fn a_batch_that_is_too_large_names_its_field() {
        let settings = settings(&["data.batch=1000000", "data.context=16", "data.stride=16"]);
        let dataset = Language::open(&settings.value).unwrap().remove(0);
        let attention = attention("dot-product");
        let with = |available| {
            refuse_beyond::<Language>((available, "buy more"), &settings, &settings.value, &attention, Some(&dataset), Share::All)
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(with(GIB), None, "the text is the batch");
        let message = with(GIB / 256).unwrap();
        assert!(message.starts_with("`--set data.batch=1000000`: `data.batch`"), "{message}");
        assert!(message.contains("(weights and moments ") && message.contains(", activations of a batch "), "{message}");
    }

    #[test]
    fn a_device_whose_memory_is_too_small_is_refused_before_the_start() {
        let settings = settings(&["run.backend=wgpu", "model.layers=8"]);
        let dataset = Language::open(&settings.value).unwrap().remove(0);
        let check = |memory| {
            let outcome = check::<Language>(
                &settings,
                &settings.value,
                &attention("dot-product"),
                Some(&dataset),
                Memory::of_finished().with_device(memory),
            );
            outcome.err().map(|error| (error.exit_code(), error.to_string()))
        };
        assert_eq!(check(None), None, "its driver tells no size");
        assert_eq!(check(Some(GIB)), None);
        let (code, message) = check(Some(GIB / 1024)).unwrap();
        assert!(code == 2 && message.contains("of memory on the device (") && message.contains("1.0 MiB are available"), "{message}");
    }

    #[test]
    fn tensors_on_a_device_take_less_than_a_model_in_main_memory() {
        let settings = settings(&["model.dropout=0.1", "model.feed_forward_dropout=0.1"]);
        let (dataset, own) = (Language::open(&settings.value).unwrap().remove(0), Language::sizes(&settings.value));
        let attention = attention("dot-product");
        let of = |share| model::<Language>(&own, &settings.value, &attention, Some(&dataset), share).footprint();
        let (all, tensors, modules) = (of(Share::All), of(Share::Tensors), of(Share::Modules));
        assert_eq!(tensors.gradients, all.gradients);
        assert_eq!(all.held - tensors.held, modules.held, "the modules are in main memory");
        assert!(0 < tensors.activations && tensors.activations < all.activations, "factors of dropout are not kept");
    }

    #[test]
    fn no_model_has_fewer_parameters_than_are_counted() {
        for assignments in [
            &["model.layers=3"][..],
            &["model.positions=learned", "model.gated_feed_forward=true", "model.layers=2"],
            &["adaptive={cutoffs=[12, 30]}"],
        ] {
            let settings = settings(assignments);
            let dataset = Language::open(&settings.value).unwrap().remove(0);
            for config in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
                let attention = attention(&config.name());
                let device = burn::tensor::Device::flex().autodiff();
                let setup = Setup { config: &settings.value, data: &dataset, attention: &attention };
                let built = Language::model(setup, &RandomKey::from_seed(1), &device).unwrap();
                let own = Language::sizes(&settings.value);
                let model = Model {
                    settings: &own,
                    attention: &attention,
                    stacks: 1,
                    vocabulary: Language::full_vectors(&settings.value, &dataset),
                    tokens: 0,
                    precision: Precision::F32,
                    moments: 2,
                    share: Share::All,
                };
                let (counted, trained) = (model.parameters().trained, Built::of(&built).trainable as u128);
                assert!(counted <= trained && trained < counted + counted / 10, "{}: {counted} of {trained}", attention.name);
            }
        }
    }

    #[test]
    fn jobs_are_as_many_as_threads_and_memory_allow() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        let jobs_of = |rooms: [Option<u64>; 2], asked: &str, backend| {
            pool.install(|| jobs_within(rooms.map(|available| Room { available, needed: 10 }), asked.parse().unwrap(), backend))
        };
        let jobs = |available, asked: &str, backend| jobs_of([available, None], asked, backend);
        assert_eq!(jobs(Some(35), "auto", Backend::Flex).unwrap(), 3);
        assert_eq!(jobs(Some(1000), "auto", Backend::Flex).unwrap(), 4);
        assert_eq!(jobs(Some(9), "auto", Backend::Flex).unwrap(), 1, "whether one fits was checked before");
        assert_eq!(jobs(None, "auto", Backend::Wgpu).unwrap(), 1);
        assert_eq!(jobs(Some(35), "3", Backend::Flex).unwrap(), 3);
        assert_eq!(jobs(None, "9", Backend::Wgpu).unwrap(), 9);
        let error = jobs(Some(35), "4", Backend::Flex).unwrap_err();
        assert!(
            error.exit_code() == 2 && error.to_string().contains("--jobs 4") && error.to_string().contains("give at most 3"),
            "{error}"
        );
        assert_eq!(jobs_of([Some(35), Some(25)], "2", Backend::Wgpu).unwrap(), 2);
        let error = jobs_of([Some(35), Some(25)], "3", Backend::Wgpu).unwrap_err().to_string();
        assert!(error.contains("10.0 B of memory on the device, and 25.0 B are available; give at most 2"), "{error}");
    }

    #[test]
    fn amounts_are_in_units_that_can_be_read() {
        assert_eq!(amount(512), "512.0 B");
        assert_eq!(amount(3 << 29), "1.5 GiB");
        assert_eq!(amount(u128::MAX), "3.0e20 EiB");
    }
}
