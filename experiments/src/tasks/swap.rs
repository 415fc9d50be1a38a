//! Another attention in a trained language model: the experiment `swap`.
//!
//! All contenders start from one trained model, from a folder of `lm` or trained first as `lm` does. Each replaces the attention of chosen layers, keeps every
//! weight that still has a place ([`heedful_models::pretrained::swap`]), and trains on. The scores show the model before the swap, right after it and at the
//! end, and which share of the attention's weights was kept. The contender `unchanged` replaces nothing and is trained for as many steps.

mod config;
pub(crate) mod contender;
pub(crate) mod replacement;
mod start;

use std::path::Path;

use burn::module::Module;
use heedful_host::checksum::sha256_hex;
use heedful_models::architectures::language_model::LanguageModel;
use heedful_models::block::auxiliary::AuxiliaryLossesConfig;
use heedful_models::pretrained::swap::Swappable;

use crate::session::experiment::definition::{Prepare, UNCHANGED};
use crate::tasks::language::{Language, LanguageConfig, LanguageData, LanguageDataset, LanguageTask, ReadsText, check_data, reading_rules};
use crate::tasks::prelude::*;

pub use config::{Swap, SwapConfig, SwapStart};
use replacement::{Beginning, beginning};
use start::RunStart;
pub(crate) use start::{FOLDER, best};

/// Perplexity of the model that all begin with.
const BEFORE: &str = "perplexity before";
/// Perplexity right after the swap.
const SWAPPED: &str = "perplexity after the swap";

/// A text, and what all contenders begin with.
#[derive(Debug)]
pub struct SwapDataset {
    language: LanguageDataset,
    sha256: String,
    /// A run of `lm`; none if a model is trained first.
    run: Option<RunStart>,
}

impl ReadsText for Swap {
    fn text(&self) -> &LanguageData {
        &self.data
    }

    fn auxiliary(&self) -> Option<AuxiliaryLossesConfig> {
        self.auxiliary
    }
}

impl Experiment for Swap {
    const NAME: &'static str = "swap";
    const TITLE: &'static str = "Swapping the attention of a trained language model";
    const ABOUT: &'static str = "\
        Replace the attention of chosen layers of a trained language model, and train on.\n\nThe swap keeps every weight that still has a place: \
        the projections of values and output, and those of queries and keys where the new mechanism has them. The table shows the perplexity before \
        the swap, right after it and after the training that follows, and how much of the attention was kept; swap.json in the folder of a run \
        lists each parameter. The contender `unchanged` is the model without a swap, trained for as many steps. Without --run the model is first \
        trained as `lm` does.";
    const EXAMPLES: &'static [&'static str] = &[
        "--run runs/lm --swap 'layers.*.attention=sliding-window,linear-attention' --swap layers.0,1=uniform",
        "--attention dot-product --set training.learning_rate=3e-4 --steps 500",
        "--config runs/comparison/config.toml --out runs/again",
    ];
    const OPTIONS: &'static [CommandOption] = &[
        CommandOption::new(
            "run",
            "start.run",
            OptionValue::Path("RUN"),
            "Output folder of `lm` with the trained model to start from [default: train one first]",
        ),
        CommandOption::new(
            "run-model",
            "start.model",
            OptionValue::Word("NAME", &[]),
            "Which attention or model of that folder [default: its first]",
        )
        .requires(&["run"]),
        CommandOption::new(
            "run-seed",
            "start.seed",
            OptionValue::Seed,
            "Seed of the model for all seeds [default: each seed starts from the run of the same seed]",
        )
        .requires(&["run"]),
        CommandOption::new(
            "swap",
            "run.attention",
            OptionValue::Texts("LAYERS=NAME[,NAME...]", contender::assignments),
            "Layers and their new mechanisms, one contender for each mechanism: 'layers.*.attention=alibi,uniform', layers.0,2=uniform, \
            layers.1-3=uniform; names alone apply to all layers. May be repeated; the unchanged model is compared with them",
        )
        .conflicts(&["attention"]),
    ];
    const DATA: &'static [&'static str] = &["tokeniser", "data.generated_words", "start"];
    const BATCH: &'static str = "data.batch";
    const READS_FILES: bool = true;
    const HAS_PADDING: bool = false;
    const COLUMNS: &'static [&'static str] = Language::COLUMNS;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = SwapDataset;
    type Model = LanguageModel;
    type Task<'a> = LanguageTask<'a>;

    fn defaults(config: &mut SwapConfig) {
        config.compare(&format!("{UNCHANGED},sliding-window,linear-attention,synthesizer-random,uniform"), "");
        let schedule = ScheduleConfig::Linear { warmup: 30, end: 1e-4 };
        config.training = TrainingConfig { steps: 300, learning_rate: 3e-3, schedule, log_every: 25, ..TrainingConfig::every(100) };
    }

    fn beneath(config: &SwapConfig) -> Result<Option<Table>, ExperimentError> {
        start::settings_of_run(&config.own.start)
    }

    fn within(config: &mut SwapConfig, out: &Path) {
        config.own.start.place = Some(out.join(FOLDER));
    }

    fn max_length(config: &SwapConfig) -> usize {
        config.language().max_length()
    }

    fn attention_named(config: &SwapConfig, name: &str) -> Option<Result<Attention, ExperimentError>> {
        let own = contender::base(config).map(|base| base.layout.decoder);
        Some(own.and_then(|own| contender::attention(&config.language(), &own, name)))
    }

    fn rules() -> Vec<Rule<Self>> {
        reading_rules()
    }

    fn check(settings: &Settings<SwapConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        check_data(settings)?;
        settings.value.own.start.check(settings)?;
        let language = settings.value.language();
        for attention in attentions {
            // The attention that replaces another one may not be able to have its biases or heads.
            language.model(1, attention).fitted_to_attention().validate().map_err(ExperimentError::usage)?;
        }
        Ok(language.model(1, &contender::base(&settings.value)?).validate()?)
    }

    fn sizes(config: &SwapConfig) -> ModelSettings {
        ModelSettings { max_length: config.model.max_length.max(config.own.data.reach()), ..config.model.clone() }
    }

    fn open(config: &SwapConfig) -> Result<Vec<SwapDataset>, ExperimentError> {
        let run = config.own.start.run.as_deref().map(RunStart::open).transpose()?;
        // A pretrained model brings its own.
        let trained = run.as_ref().filter(|_| config.own.start.pretrained.is_none());
        let tokeniser = trained.map(RunStart::tokeniser).transpose()?;
        let language = LanguageDataset::open(&config.language(), tokeniser)?;
        let of_text = Language::card(&language).sha256.to_owned();
        let sha256 = match &run {
            // Another model to begin with is another task.
            Some(run) => sha256_hex(format!("{of_text} {}", run.sha256()?).as_bytes()),
            None => of_text,
        };
        Ok(vec![SwapDataset { language, sha256, run }])
    }

    fn card(data: &SwapDataset) -> Card<'_> {
        Card { sha256: &data.sha256, ..Language::card(&data.language) }
    }

    fn fits(setup: Setup<'_, Self>) -> Result<(), ExperimentError> {
        let Setup { config, data, attention } = setup;
        Language::fits(Setup { config: &config.language(), data: &data.language, attention })?;
        let Some(run) = &data.run else { return Ok(()) };
        config.run.seeds().try_for_each(|seed| run.checkpoint(config, seed).map(drop))
    }

    fn batch_tokens(config: &SwapConfig, data: &SwapDataset) -> usize {
        Language::batch_tokens(&config.language(), &data.language)
    }

    fn lengths(Setup { config, data, attention }: Setup<'_, Self>) -> TrainingLengths {
        Language::lengths(Setup { config: &config.language(), data: &data.language, attention })
    }

    fn refuses_slurm(config: &SwapConfig) -> Option<&'static str> {
        config
            .own
            .start
            .run
            .is_none()
            .then_some("all runs begin with a model that has to be trained already; give --run RUN of a finished `lm`")
    }

    fn prepare(preparation: &impl Prepare<Self>) -> Result<Completion, ExperimentError> {
        let (config, [data]) = (preparation.config(), preparation.datasets()) else { unreachable!("there is one text") };
        match &data.run {
            Some(_) => Ok(Completion::Finished),
            None => preparation.first::<Language>(config.first(), std::slice::from_ref(&data.language), FOLDER),
        }
    }

    fn task(setup: Setup<'_, Self>) -> LanguageTask<'_> {
        LanguageTask::owning(setup.config.language(), &setup.data.language)
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<LanguageModel, ExperimentError> {
        let start = start::model(setup.config, setup.data, device)?;
        beginning(start.model, &start.config, setup.attention, key, false).map(|beginning| beginning.model)
    }

    fn of_seed(config: &SwapConfig, seed: u64) -> SwapConfig {
        let mut own = config.clone();
        own.run.seed = seed;
        own
    }

    fn score(setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let Some(mut scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        let device = model.embedding.tokens.weight.device();
        let key = RandomKey::from_seed(setup.config.run.seed).named("init");
        let start = start::model(setup.config, setup.data, &device)?;
        let before = start.model.clone();
        let Beginning { model: swapped, report } = beginning(start.model, &start.config, setup.attention, &key, false)?;
        let signature = scores.signatures.get("perplexity").cloned().unwrap_or_default();
        for (name, model) in [(BEFORE, before.valid()), (SWAPPED, swapped.valid())] {
            let Some(perplexity) = task.test_perplexity(&model, interrupt) else { return Ok(None) };
            scores.push(name, perplexity, signature.clone());
        }
        scores.notes.push(start.description);
        if let Some(report) = report {
            replacement::record(&report, &mut scores, paths)?;
        }
        Ok(Some(scores))
    }

    fn trivial_baselines(config: &SwapConfig, data: &SwapDataset, interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Language::trivial_baselines(&config.language(), &data.language, interrupt)
    }

    fn columns() -> Vec<MetricColumn> {
        let perplexities = [
            MetricColumn::new(BEFORE, "ppl before").defined_as("of the test text, by the model that all begin with"),
            MetricColumn::new(SWAPPED, "ppl swapped").lower_is_better().defined_as("of the test text, right after the swap"),
            MetricColumn::new("perplexity", "test ppl").lower_is_better().defined_as("after the training that follows"),
            MetricColumn::new("valid perplexity", "valid ppl").lower_is_better(),
        ];
        perplexities.into_iter().chain(replacement::columns()).collect()
    }

    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        Language::texts(Setup { config: &setup.config.language(), data: &setup.data.language, attention: setup.attention }, count)
    }

    fn read(setup: Setup<'_, Self>, model: &LanguageModel, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        let config = setup.config.language();
        Language::read(Setup { config: &config, data: &setup.data.language, attention: setup.attention }, model, text, probe)
    }

    fn read_segments(setup: Setup<'_, Self>, model: &LanguageModel, text: &str, show: &mut ShowSegment<'_>) -> Result<(), ExperimentError> {
        let config: LanguageConfig = setup.config.language();
        Language::read_segments(Setup { config: &config, data: &setup.data.language, attention: setup.attention }, model, text, show)
    }
}

#[cfg(test)]
mod tests;
