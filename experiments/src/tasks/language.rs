//! Language modelling: the experiment `lm`.

mod adaptive;
mod blocks;
mod change;
mod config;
mod last_words;
mod models;
mod positions;
mod pretrained;
mod reading;
mod spans;
mod task;
mod trivial;

use burn::tensor::{Int, Tensor, TensorData};
use heedful_data::generate::{self, Sizes};
use heedful_data::text::TextCorpus;
use heedful_data::tokenise::{END, Tokeniser};
use heedful_models::architectures::language_model::LanguageModel;
use heedful_models::block::auxiliary::AuxiliaryLossesConfig;
use heedful_models::block::segment::SegmentMemory;
use heedful_models::parts::adaptive_softmax::AdaptiveConfig;
use heedful_models::pretrained::presets::{Preset, PresetModel};

use crate::session::comparison::folder_name;
use crate::session::presets::is_of_images;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{Checksums, read_into, refused, score_before, tokens_of_texts};

use self::positions::PositionLosses;

pub(crate) use reading::{ReadsText, check_data, rules as reading_rules};

pub use config::{Language, LanguageConfig, LanguageData};
pub use task::{LanguageBatch, LanguageCarried, LanguageTask};

/// The score of the same text by its bytes, beside that by its characters.
const BITS_PER_BYTE: &str = "bits per byte";

/// A tokenised text. Each split is one sequence that begins with an end-of-line token or, for a pretrained model, with the token that its texts begin with.
/// That token is given and not scored.
#[derive(Debug)]
pub struct LanguageDataset {
    name: String,
    corpus: TextCorpus,
    tokeniser: Tokeniser,
    /// Vocabulary size of models.
    vocabulary: usize,
    /// What a text begins with.
    start: u32,
    /// The checksums of the pretrained model, if there is one. The text then has the tokens of that model, in which ends of lines are characters.
    pretrained: Option<Checksums>,
    train: Vec<u32>,
    valid: Vec<u32>,
    test: Vec<u32>,
}

impl LanguageDataset {
    /// Reads or generates the text. It is cut into tokens by `tokeniser`, or by one that is trained on it.
    ///
    /// # Errors
    /// Data that is missing or malformed, or that the tokeniser cannot be trained on.
    pub(crate) fn open(config: &LanguageConfig, tokeniser: Option<Tokeniser>) -> Result<Self, ExperimentError> {
        let (name, mut corpus) = match &config.run.data {
            Some(dir) => (folder_name(dir), TextCorpus::read_columns(dir, &config.run.column_names()).map_err(ExperimentError::failure)?),
            None => {
                let sizes = Sizes { train: config.own.data.generated_words, ..Sizes::LANGUAGE };
                ("built-in".to_owned(), generate::language(&RandomKey::from_seed(0).named("language data"), sizes))
            }
        };
        let (tokeniser, vocabulary, start) = match (&config.own.pretrained, tokeniser) {
            (Some(folder), _) => pretrained::tokeniser(folder)?,
            (None, given) => {
                let lines = corpus.train.iter().map(String::as_str);
                let train = || Tokeniser::train(&config.own.tokeniser, lines).map_err(ExperimentError::usage);
                let tokeniser = given.map_or_else(train, Ok)?;
                let vocabulary = tokeniser.vocabulary_size();
                (tokeniser, vocabulary, END)
            }
        };
        let pretrained = config.own.pretrained.as_deref().map(Checksums::of).transpose()?;
        if let Some(checksums) = &pretrained {
            corpus.sha256 = checksums.with_data(&corpus.sha256);
        }
        let tokens = tokens_of_texts(&corpus, &tokeniser, pretrained.is_some())?;
        let [train, valid, test] = tokens.map(|tokens| std::iter::once(start).chain(tokens).collect());
        Ok(Self { name, corpus, tokeniser, vocabulary, start, pretrained, train, valid, test })
    }
}

impl ReadsText for Language {
    fn text(&self) -> &LanguageData {
        &self.data
    }

    fn auxiliary(&self) -> Option<AuxiliaryLossesConfig> {
        self.auxiliary
    }
}

impl Experiment for Language {
    const NAME: &'static str = "lm";
    const TITLE: &'static str = "Language modelling";
    const ABOUT: &'static str = "\
        Compare attention mechanisms, or whole models, on language modelling.\n\nTrains a decoder-only Transformer for each attention, or each model \
        of --model, and each seed, and prints a table of perplexity and bits per unit with parameters, speed and memory. Without --data it uses a \
        built-in text. With --pretrained it begins with the weights of a pretrained model and scores them before and after training.";
    const OPTIONS: &'static [CommandOption] = &[
        CommandOption::pretrained("Folder of a pretrained model of Hugging Face (Gemma-2, GPT-2, Llama, Mistral, Qwen-3) with its tokenizer.json: score it, and fine-tune it").conflicts(&["model"]),
    ];
    const MODELS: &'static [NamedModel] = models::MODELS;
    const DATA: &'static [&'static str] = &["tokeniser", "pretrained", "data.generated_words"];
    const BATCH: &'static str = "data.batch";
    const READS_FILES: bool = true;
    const HAS_PADDING: bool = false;
    const COLUMNS: &'static [&'static str] = TextCorpus::COLUMNS;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = LanguageDataset;
    type Model = LanguageModel;
    type Task<'a> = LanguageTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        let attentions =
            "dot-product,synthesizer-dense,synthesizer-random,synthesizer-factorized-random,synthesizer-random+dot-product,gaussian";
        config.compare(attentions, "");
        let schedule = ScheduleConfig::Linear { warmup: 150, end: 1e-4 };
        config.training = TrainingConfig { steps: 1600, learning_rate: 1e-2, schedule, ..TrainingConfig::every(400) };
    }

    fn beneath(config: &Config<Self>) -> Result<Option<Table>, ExperimentError> {
        config.own.pretrained.as_deref().map(pretrained::beneath).transpose()
    }

    /// All language models but those of images.
    fn preset(preset: &Preset) -> Option<PaperModel> {
        let Preset { context, memory, .. } = *preset;
        let PresetModel::LanguageModel(config) = &preset.model else { return None };
        if is_of_images(preset) {
            return None;
        }
        let model = PaperModel::new(&config.attention, ModelSettings::of_language_model(config))
            .with("tied", config.tied)
            .with("output_bias", config.output_bias);
        let model = config.logit_softcap.into_iter().fold(model, |model, bound| model.with("logit_softcap", bound));
        // The default stride is longer than the context of a twin.
        let stride = LanguageData::default().stride.min(context.div_ceil(2));
        let fields = [("context", context), ("memory", memory), ("stride", stride)];
        let table = fields.map(|(field, value)| (field.to_owned(), Value::Integer(value as i64)));
        Some(model.with("data", Table::from_iter(table)))
    }

    fn rules() -> Vec<Rule<Self>> {
        let mut rules = reading_rules::<Self>();
        rules.push(Rule::used(
            &["model.position_offset"],
            |candidate| candidate.config.model.max_length > candidate.config.own.data.context,
            "sequences are as long as model.max_length, so that positions cannot move; leave it out, or give a larger model.max_length",
        ));
        rules
    }

    fn check(settings: &Settings<Config<Self>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let Self { adaptive, .. } = &settings.value.own;
        check_data(settings)?;
        pretrained::check(settings, attentions)?;
        adaptive::check(settings)?;
        // How many there are is known with the text.
        let least = adaptive.iter().flat_map(|adaptive| &adaptive.cutoffs).max().map_or(1, |last| last.saturating_add(1));
        for attention in attentions {
            settings.value.model(least, attention).validate().map_err(ExperimentError::usage)?;
        }
        change::check(settings, attentions)
    }

    fn open(config: &Config<Self>) -> Result<Vec<LanguageDataset>, ExperimentError> {
        Ok(vec![LanguageDataset::open(config, None)?])
    }

    fn card(data: &LanguageDataset) -> Card<'_> {
        let LanguageDataset { name, corpus, tokeniser, vocabulary, train, valid, test, .. } = data;
        let description = format!(
            "{} training, {} validation and {} test tokens, ends of lines included; {} types; splits: {}",
            train.len() - 1,
            valid.len() - 1,
            test.len() - 1,
            tokeniser.vocabulary_size(),
            corpus.split
        );
        Card { vocabulary: *vocabulary, ..Card::of_texts(name, &corpus.sha256, description, tokeniser) }
    }

    fn fits(setup: Setup<'_, Self>) -> Result<(), ExperimentError> {
        if setup.config.own.adaptive.is_some() {
            setup.config.model(setup.data.vocabulary, setup.attention).validate().map_err(ExperimentError::usage)?;
        }
        let LanguageData { context, batch, memory, .. } = setup.config.own.data;
        let streams = if memory > 0 { batch } else { 1 };
        let tokens = setup.data.train.len();
        if tokens <= streams * context + 1 {
            return Err(ExperimentError::usage(format!(
                "data.context = {context}: the training text has only {tokens} tokens for {streams} {}; give --set data.context=N with a smaller N",
                if streams == 1 { "sequence" } else { "streams (data.batch)" }
            )));
        }
        Ok(())
    }

    fn sizes(config: &Config<Self>) -> ModelSettings {
        ModelSettings { max_length: config.model.max_length.max(config.own.data.reach()), ..config.model.clone() }
    }

    fn full_vectors(config: &Config<Self>, data: &LanguageDataset) -> usize {
        let d_model = config.model.d_model.max(1);
        let numbers = |adaptive: &AdaptiveConfig| adaptive.embedding_parameters(data.vocabulary, d_model) / d_model as u128;
        config.own.adaptive.as_ref().map_or(data.vocabulary, |adaptive| usize::try_from(numbers(adaptive)).unwrap_or(usize::MAX))
    }

    fn batch_tokens(config: &Config<Self>, data: &LanguageDataset) -> usize {
        let LanguageData { context, batch, .. } = config.own.data;
        // The first window may begin later, which leaves one less.
        batch.min((data.train.len() / context.max(1)).saturating_sub(1)).saturating_mul(context)
    }

    fn lengths(Setup { config, attention, .. }: Setup<'_, Self>) -> TrainingLengths {
        let LanguageData { context, memory, .. } = config.own.data;
        let max_length = config.model.max_length.max(config.own.data.reach());
        TrainingLengths::new(&attention.layout, max_length).decoder([context + memory]).carried(memory)
    }

    fn max_length(config: &LanguageConfig) -> usize {
        config.max_length()
    }

    fn task(setup: Setup<'_, Self>) -> LanguageTask<'_> {
        LanguageTask::new(setup.config, setup.data)
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<LanguageModel, ExperimentError> {
        let model = setup.config.model(setup.data.vocabulary, setup.attention).init(key, device);
        read_into(setup.config.own.pretrained.as_deref(), model)
    }

    /// Where training began with pretrained weights, the perplexity that these have as well.
    fn score(setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let Language { data, loss_by_position, .. } = &setup.config.own;
        let mut positions = loss_by_position.then(|| PositionLosses::new(data.context));
        let Some(mut scores) = task.scores(model, Split::Test, positions.as_mut(), interrupt) else { return Ok(None) };
        if let Some(positions) = positions {
            positions.write(paths)?;
        }
        spans::add_multiplications(&mut scores, setup, model);
        if setup.data.corpus.last_words && !last_words::add(&mut scores, setup.data, data, model, interrupt)? {
            return Ok(None);
        }
        if let Some(checksums) = &setup.data.pretrained {
            let device = model.embedding.tokens.weight.device();
            let what = (checksums, "perplexity", pretrained::BEFORE);
            return Ok(score_before(setup, task, what, (&mut scores, &device), interrupt)?.then_some(scores));
        }
        Ok(Some(scores))
    }

    /// The divergence of the weights' histograms, if texts are asked for.
    fn score_change(
        setup: Setup<'_, Self>,
        model: &LanguageModel,
        initial: &dyn Fn() -> Result<LanguageModel, ExperimentError>,
        scores: &mut Scores,
    ) -> Result<(), ExperimentError> {
        if setup.config.own.histogram_texts > 0 {
            change::add(scores, setup, &initial()?, model)?;
        }
        Ok(())
    }

    fn columns() -> Vec<MetricColumn> {
        let mut columns = vec![
            MetricColumn::new("perplexity", "test ppl").lower_is_better(),
            MetricColumn::new(pretrained::BEFORE, "before").lower_is_better().defined_as("test ppl of the pretrained weights"),
            MetricColumn::new("bits per unit", "test bits").digits(3).lower_is_better().shown_in(positions::PICTURE),
            MetricColumn::new(BITS_PER_BYTE, "test bits/byte").digits(3).lower_is_better(),
            MetricColumn::new("valid perplexity", "valid ppl").lower_is_better(),
            MetricColumn::new("context", "context").digits(0).defined_as("tokens that are read at once in training"),
            MetricColumn::new("memory", "memory").digits(0).defined_as("tokens before them whose states are remembered in training"),
        ];
        columns.extend(last_words::columns());
        columns.extend(spans::columns());
        columns.push(change::column());
        columns
    }

    fn trivial_baselines(config: &Config<Self>, data: &LanguageDataset, interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(trivial::n_gram(data, config.own.unit(), interrupt).map(|baseline| vec![baseline]))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::language_modelling()
    }

    /// Lines of the test text. Where there is a memory they are joined to texts that fill it.
    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        let LanguageDataset { corpus, tokeniser, .. } = setup.data;
        let data = &setup.config.own.data;
        let (context, memory) = (data.context, data.evaluation_memory());
        if memory == 0 {
            let fits = |line: &&String| tokeniser.try_encode(line).is_ok_and(|tokens| (2..context).contains(&tokens.len()));
            return corpus.test.iter().filter(fits).take(count).cloned().collect();
        }
        let (mut texts, mut text, mut tokens) = (Vec::new(), Vec::new(), 1);
        for line in &corpus.test {
            tokens += tokeniser.try_encode(line).map_or(0, |tokens| tokens.len()) + 1;
            text.push(line.as_str());
            if tokens > memory + context {
                texts.push(std::mem::take(&mut text).join("\n"));
                tokens = 1;
            }
        }
        if texts.is_empty() && !text.is_empty() {
            texts.push(text.join("\n"));
        }
        texts.truncate(count);
        texts
    }

    fn read(setup: Setup<'_, Self>, model: &LanguageModel, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        let tokens = tokens_of(setup.data, text)?;
        check_length(text, tokens.len(), setup.config.own.data.context)?;
        model.hidden(row(&tokens, model), &[], None, probe);
        Ok(Reading { decoder: setup.data.tokeniser.words(&tokens), ..Reading::default() })
    }

    /// As evaluation reads: where there is a memory, segments of the length of the context, each with what is remembered of those before it.
    fn read_segments(setup: Setup<'_, Self>, model: &LanguageModel, text: &str, show: &mut ShowSegment<'_>) -> Result<(), ExperimentError> {
        let Setup { config, data: dataset, .. } = setup;
        let length = config.own.data.evaluation_memory();
        if length == 0 {
            return show(&mut |probe| Self::read(setup, model, text, probe));
        }
        let tokens = tokens_of(dataset, text)?;
        let mut memory = SegmentMemory::new(1, length);
        for (index, segment) in tokens.chunks(config.own.data.context).enumerate() {
            let start = index * config.own.data.context;
            show(&mut |probe| {
                let remembered = &tokens[start - memory.remembered()[0]..start];
                model.segment(row(segment, model), &mut memory, None, probe);
                let [decoder, memory] = [segment, remembered].map(|tokens| dataset.tokeniser.words(tokens));
                Ok(Reading { decoder, memory, ..Reading::default() })
            })?;
        }
        Ok(())
    }
}

/// The tokens of a text of one or more lines, after the end of a line, or what texts of a pretrained model begin with.
fn tokens_of(dataset: &LanguageDataset, text: &str) -> Result<Vec<u32>, ExperimentError> {
    if dataset.pretrained.is_some() {
        return Ok(std::iter::once(dataset.start).chain(dataset.tokeniser.try_encode(text).map_err(refused)?).collect());
    }
    Ok(text.split('\n').flat_map(|line| std::iter::once(END).chain(dataset.tokeniser.encode(line))).collect())
}

/// Tokens as a batch of one row.
fn row(tokens: &[u32], model: &LanguageModel) -> Tensor<2, Int> {
    let ids: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
    Tensor::from_data(TensorData::new(ids, [1, tokens.len()]), &model.embedding.tokens.weight.device())
}

#[cfg(test)]
mod tests {
    use heedful_attention::contract::probe::Observation;

    use super::*;
    use crate::tasks::testing::Case;

    fn config(memory: usize) -> LanguageConfig {
        let data = LanguageData { context: 8, stride: 8, batch: 2, memory, generated_words: 300, ..LanguageData::default() };
        LanguageConfig {
            model: ModelSettings { d_model: 16, heads: 2, d_ff: 32, max_length: 8, ..ModelSettings::default() },
            own: Language { data, ..Language::default() },
            ..LanguageConfig::default()
        }
    }

    /// Shape and values of the weights of the first layer in each segment, and the tokens it has.
    fn read(setup: Setup<'_, Language>, text: &str) -> Vec<(Vec<usize>, Vec<f32>, Reading)> {
        let model = Language::model(setup, &RandomKey::from_seed(1), &Device::flex()).unwrap();
        let mut segments = Vec::new();
        Language::read_segments(setup, &model, text, &mut |segment| {
            let mut weights = None;
            let mut listener = |path: &str, observation: Observation| {
                if let (true, Observation::Weights(found)) = (path == "decoder.layers.0.self_attention", observation) {
                    weights = Some(found.into_data());
                }
            };
            let reading = segment(&mut Probe::listening(&mut listener))?;
            let weights = weights.expect("attention shows its weights");
            segments.push((weights.shape().to_vec(), weights.iter::<f32>().collect(), reading));
            Ok(())
        })
        .unwrap();
        segments
    }

    #[test]
    fn texts_are_read_in_segments_with_what_is_remembered_of_those_before() {
        let case = Case::<Language>::new(config(12), "dot-product");
        let attentions = ["dot-product", "relative"].map(|name| Attention::new(name.parse().unwrap()));
        let text = &Language::texts(case.setup(), 1)[0];
        let words = case.data.tokeniser.words(&tokens_of(&case.data, text).unwrap());
        assert!(words.len() > 20, "{text}");
        for attention in &attentions {
            let name = &attention.name;
            let segments = read(Setup { attention, ..case.setup() }, text);
            assert_eq!(segments.len(), words.len().div_ceil(8));
            for (index, (shape, values, Reading { decoder, memory, .. })) in segments.iter().enumerate() {
                let start = 8 * index;
                assert_eq!(
                    (&decoder[..], &memory[..]),
                    (&words[start..(start + 8).min(words.len())], &words[start - start.min(12)..start])
                );
                assert_eq!(shape, &[1, 2, decoder.len(), memory.len() + decoder.len()], "{name}");
                let of_memory: f32 = values.chunks(memory.len() + decoder.len()).map(|row| row[..memory.len()].iter().sum::<f32>()).sum();
                assert_eq!(of_memory > 0.1, index > 0, "{name}, segment {index}: {of_memory}");
            }
        }
    }

    #[test]
    fn without_a_memory_a_text_is_a_line_that_is_read_at_once() {
        let case = Case::<Language>::new(config(0), "dot-product");
        let text = &Language::texts(case.setup(), 1)[0];
        let segments = read(case.setup(), text);
        let (shape, _, reading) = &segments[0];
        assert_eq!((segments.len(), reading.memory.len()), (1, 0));
        assert_eq!(shape, &[1, 2, reading.decoder.len(), reading.decoder.len()]);
    }
}
