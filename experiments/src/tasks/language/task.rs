//! Training and scoring.

use std::borrow::Cow;

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use heedful_metrics::{LikelihoodTotal, TextUnit};
use heedful_models::architectures::language_model::LanguageModel;
use heedful_models::block::segment::SegmentMemory;
use rand::RngExt;

use crate::tasks::prelude::*;
use crate::tasks::scoring::score_batches;
use crate::train::batch::{EvaluationWindow, evaluation_windows};

use super::blocks::TextBlocks;
use super::positions::PositionLosses;
use super::spans;
use super::{BITS_PER_BYTE, Language, LanguageConfig, LanguageData, LanguageDataset};

/// Training a language model on a text.
#[derive(Debug)]
pub struct LanguageTask<'a> {
    config: Cow<'a, LanguageConfig>,
    dataset: &'a LanguageDataset,
}

/// What one batch hands to the next where there is a memory.
#[derive(Debug, Default)]
pub enum LanguageCarried {
    /// Nothing: an epoch begins.
    #[default]
    Nothing,
    /// What a checkpoint holds, which becomes a memory where the model is.
    Saved(Vec<(String, TensorData)>),
    /// What the model remembers.
    Memory(SegmentMemory),
}

/// Name of the numbers of remembered positions in a checkpoint; the layers have their number.
const REMEMBERED: &str = "remembered";

impl LanguageCarried {
    /// The memory for a batch of `rows` rows of at most `length` positions, on the device of `model`.
    fn memory(self, rows: usize, length: usize, model: &LanguageModel) -> SegmentMemory {
        match self {
            Self::Memory(memory) => memory,
            Self::Nothing => SegmentMemory::new(rows, length),
            Self::Saved(state) => {
                let device = model.embedding.tokens.weight.device();
                let (counts, mut layers): (Vec<_>, Vec<_>) = state.into_iter().partition(|(name, _)| name == REMEMBERED);
                layers.sort_by_key(|(name, _)| name.parse::<usize>().unwrap_or(usize::MAX));
                let remembered = counts.iter().flat_map(|(_, counts)| counts.iter::<i64>()).map(|count| count as usize).collect();
                let layers = layers.into_iter().map(|(_, data)| Tensor::from_data(data, &device)).collect();
                SegmentMemory::holding(length, layers, remembered)
            }
        }
    }
}

/// Inputs and the tokens that follow them, row by row.
#[derive(Debug)]
pub struct LanguageBatch {
    inputs: Vec<i32>,
    targets: Vec<i32>,
    rows: usize,
}

impl<'a> LanguageTask<'a> {
    /// Training on the text of a data set.
    pub fn new(config: &'a LanguageConfig, dataset: &'a LanguageDataset) -> Self {
        Self { config: Cow::Borrowed(config), dataset }
    }

    /// The same with a configuration of its own.
    pub(crate) fn owning(config: LanguageConfig, dataset: &'a LanguageDataset) -> Self {
        Self { config: Cow::Owned(config), dataset }
    }

    /// Perplexity of the test text; `None` if the interrupt was raised meanwhile.
    pub(crate) fn test_perplexity(&self, model: &LanguageModel, interrupt: &Interrupt) -> Option<f64> {
        let total = self.likelihood(model, &self.dataset.test, Details::default(), interrupt)?;
        Some(total.perplexity().unwrap_or(f64::NAN))
    }

    /// The scores of a split; losses of the test text by position are added to `positions`. `None` if the interrupt was raised meanwhile.
    pub(super) fn scores(
        &self,
        model: &LanguageModel,
        split: Split,
        positions: Option<&mut PositionLosses>,
        interrupt: &Interrupt,
    ) -> Option<Scores> {
        let LanguageConfig { run, own: Language { data, .. }, .. } = &*self.config;
        let memory = data.evaluation_memory();
        let stride = if memory > 0 { data.context } else { data.stride };
        let signature = |total: &LikelihoodTotal| {
            let LikelihoodTotal { unit, units, .. } = total;
            format!("unit:{unit}|context:{}|stride:{stride}|memory:{memory}|ends of lines:scored|units:{units}", data.context)
        };
        let add_perplexity = |scores: &mut Scores, name: &str, total: &LikelihoodTotal| {
            scores.push(name, total.perplexity().unwrap_or(f64::NAN), signature(total));
        };
        let mut scores = Scores::default();
        if split == Split::Valid {
            add_perplexity(&mut scores, "perplexity", &self.likelihood(model, &self.dataset.valid, Details::default(), interrupt)?);
            return Some(scores);
        }
        let mut blocks = TextBlocks::new(self.dataset.test.len() - 1);
        let test = self.likelihood(model, &self.dataset.test, Details { blocks: Some(&mut blocks), positions }, interrupt)?;
        add_perplexity(&mut scores, "perplexity", &test);
        scores.push("bits per unit", test.bits_per_unit().unwrap_or(f64::NAN), signature(&test));
        if test.unit == TextUnit::Character {
            let of_bytes = test.counted_per(TextUnit::Byte, self.dataset.corpus.test_bytes() as u64);
            scores.push(BITS_PER_BYTE, of_bytes.bits_per_unit().unwrap_or(f64::NAN), signature(&of_bytes));
        }
        scores.push_items("perplexity", ItemScore::new("test", "blocks", Combination::ExpRatio, &["nats", "units"]));
        scores.push_items("bits per unit", ItemScore::new("test", "blocks", Combination::Ratio, &["bits", "units"]));
        scores.items.push(blocks.table());
        add_perplexity(&mut scores, "valid perplexity", &self.likelihood(model, &self.dataset.valid, Details::default(), interrupt)?);
        spans::add(&mut scores, model, &self.dataset.test, data.context);
        if !run.models.is_empty() {
            let sizes = [("context", data.context), ("memory", data.memory)];
            scores.metrics.extend(sizes.map(|(name, tokens)| (name.to_owned(), tokens as f64)));
        }
        Some(scores)
    }

    /// Scores the first `count` tokens of the test text, or all that it has, as evaluation does, and returns how many were scored; `None` if the interrupt was
    /// raised meanwhile.
    pub(crate) fn score_tokens(&self, model: &LanguageModel, count: usize, interrupt: &Interrupt) -> Option<u64> {
        let tokens = &self.dataset.test[..self.dataset.test.len().min(count.saturating_add(1))];
        Some(self.likelihood(model, tokens, Details::default(), interrupt)?.units)
    }

    /// Scores each token once; `None` if the interrupt was raised meanwhile.
    fn likelihood(
        &self,
        model: &LanguageModel,
        tokens: &[u32],
        mut details: Details<'_>,
        interrupt: &Interrupt,
    ) -> Option<LikelihoodTotal> {
        let LanguageData { context, stride, batch, .. } = self.config.own.data;
        let mut total = LikelihoodTotal::new(self.config.own.unit());
        let memory = self.config.own.data.evaluation_memory();
        if memory > 0 {
            // Each token is scored with all that the memory holds of what is before it, which only a single stream offers.
            let mut memory = SegmentMemory::new(1, memory);
            let windows = evaluation_windows(tokens.len(), context, context);
            score_batches(("scoring", windows.len()), windows, interrupt, |window| {
                // The last window reaches back over tokens that the memory has read already.
                let new = window.unscored()..window.end - window.start;
                let inputs = integers([&window.inputs(tokens)[new.clone()]]);
                let inputs = Tensor::<2, Int>::from_data(TensorData::new(inputs, [1, new.len()]), &model.embedding.tokens.weight.device());
                let hidden = model.segment(inputs, &mut memory, None, &mut Probe::off()).states;
                let columns: Vec<usize> = (0..new.len()).collect();
                let targets = integers([&window.targets(tokens)[new]]);
                record(&mut total, &mut details, model, hidden.squeeze_dim(0), (targets, &columns));
                1
            })?;
            return Some(total);
        }
        let device = model.embedding.tokens.weight.device();
        let windows = evaluation_windows(tokens.len(), context, stride);
        score_batches(("scoring", windows.len()), windows.chunks(batch), interrupt, |windows| {
            let width = windows[0].end - windows[0].start;
            let inputs = integers(windows.iter().map(|window| window.inputs(tokens)));
            let inputs = Tensor::<2, Int>::from_data(TensorData::new(inputs, [windows.len(), width]), &device);
            let hidden = model.hidden(inputs, &[], None, &mut Probe::off()).states;
            // Only what is scored is projected to the vocabulary.
            let scored = |window: &EvaluationWindow| window.unscored()..width;
            let columns: Vec<usize> = windows.iter().flat_map(scored).collect();
            let rows = windows.iter().enumerate().flat_map(|(row, window)| scored(window).map(move |_| row));
            let indices: Vec<i32> = rows.zip(&columns).map(|(row, column)| (row * width + column) as i32).collect();
            let count = indices.len();
            let [_, _, d_model] = hidden.dims();
            let hidden = hidden
                .reshape([windows.len() * width, d_model])
                .select(0, Tensor::<1, Int>::from_data(TensorData::new(indices, [count]), &device));
            let targets = integers(windows.iter().map(|window| &window.targets(tokens)[scored(window)]));
            record(&mut total, &mut details, model, hidden, (targets, &columns));
            windows.len()
        })?;
        Some(total)
    }
}

/// What is kept of a text that is scored beside its likelihood.
#[derive(Debug, Default)]
struct Details<'d> {
    /// Its blocks.
    blocks: Option<&'d mut TextBlocks>,
    /// Losses by position.
    positions: Option<&'d mut PositionLosses>,
}

/// Adds the likelihood of the targets that follow hidden states `[N, C]`, at these indices of their windows.
fn record(
    total: &mut LikelihoodTotal,
    details: &mut Details<'_>,
    model: &LanguageModel,
    hidden: Tensor<2>,
    (targets, columns): (Vec<i32>, &[usize]),
) {
    let count = targets.len();
    if let Some(positions) = &mut details.positions {
        positions.add(model, &hidden, &targets, columns);
    }
    let nats_of = |hidden: Tensor<2>, targets: &[i32]| {
        let targets = Tensor::<1, Int>::from_data(TensorData::new(targets.to_vec(), [targets.len()]), &hidden.device());
        let nll = model.cross_entropy(hidden, targets, None, 0.0).negative_log_likelihood;
        f64::from(nll.into_scalar::<f32>())
    };
    let nats = nats_of(hidden.clone(), &targets);
    total.record(nats, count as u64);
    if let Some(blocks) = &mut details.blocks {
        // The last part has what the others leave, so that the blocks add up to the score.
        let (mut begun, mut rest) = (0, nats);
        for length in blocks.parts(count) {
            let part = begun..begun + length;
            let tokens = &targets[part.clone()];
            let nats = if part.end == count { rest } else { nats_of(hidden.clone().slice(part), tokens) };
            blocks.add(tokens, nats);
            (begun, rest) = (begun + length, rest - nats);
        }
    }
}

/// Tokens one part after another, as tensors take them.
fn integers<'t>(parts: impl IntoIterator<Item = &'t [u32]>) -> Vec<i32> {
    parts.into_iter().flatten().map(|&id| id as i32).collect()
}

impl Task for LanguageTask<'_> {
    type Model = LanguageModel;
    type Batch = LanguageBatch;
    type Carried = LanguageCarried;

    /// Items are the first positions of windows. They lie end to end, from an offset that changes with the epoch, so that windows do not repeat. Where there is
    /// a memory, each row of the batches is a part of the text, window after window.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let LanguageData { context, batch, memory, .. } = self.config.own.data;
        let targets = self.dataset.train.len() - 1;
        let streams = if memory > 0 { batch } else { 1 };
        let offset = key.rng().random_range(0..=(targets - streams * context).min(context - 1));
        if memory > 0 {
            let steps = (targets - offset) / (streams * context);
            return (0..steps).map(|step| (0..streams).map(|stream| offset + (stream * steps + step) * context).collect()).collect();
        }
        let count = (targets - offset) / context;
        let batches = crate::train::batch::fixed_size_batches(count, batch, key);
        batches.into_iter().map(|items| items.into_iter().map(|item| offset + item * context).collect()).collect()
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> LanguageBatch {
        let context = self.config.own.data.context;
        let cut = |shift: usize| {
            let tokens = items.iter().flat_map(|&start| &self.dataset.train[start + shift..start + shift + context]);
            tokens.map(|&id| id as i32).collect()
        };
        LanguageBatch { inputs: cut(0), targets: cut(1), rows: items.len() }
    }

    /// The targets of the loss: where the last position alone predicts, one of each row.
    fn units(&self, batch: &LanguageBatch) -> usize {
        let has_all = self.config.own.auxiliary.is_none_or(|losses| losses.multiple_positions);
        if has_all { batch.targets.len() } else { batch.rows }
    }

    fn loss(&self, model: &LanguageModel, batch: &LanguageBatch, pass: Pass<'_, LanguageCarried>, probe: &mut Probe) -> TrainingLoss {
        let device = model.embedding.tokens.weight.device();
        let Pass { key, step, steps, carried, .. } = pass;
        let shape = [batch.rows, batch.inputs.len() / batch.rows];
        let inputs = Tensor::<2, Int>::from_data(TensorData::new(batch.inputs.clone(), shape), &device);
        let targets = Tensor::<2, Int>::from_data(TensorData::new(batch.targets.clone(), shape), &device);
        let auxiliary = (targets.clone(), (step - 1) as f64 / steps as f64);
        let hidden = match self.config.own.data.memory {
            0 => model.hidden_with_auxiliary(inputs, auxiliary, Some(key), probe),
            length => {
                let mut memory = std::mem::take(carried).memory(batch.rows, length, model);
                let hidden = model.segment_with_auxiliary(inputs, auxiliary, &mut memory, Some(key), probe);
                *carried = LanguageCarried::Memory(memory);
                hidden
            }
        };
        let (states, targets) = model.predicting(hidden.states, targets);
        let loss = model.cross_entropy(states, targets, None, 0.0).loss;
        TrainingLoss::new(loss, &hidden.losses, self.units(batch))
    }

    /// The classifiers of auxiliary losses serve training alone.
    fn without_training_parts(&self, mut model: LanguageModel) -> LanguageModel {
        model.auxiliary = None;
        model
    }

    fn carries(&self) -> Option<&'static str> {
        (self.config.own.data.memory > 0).then_some("a memory of the segment before; give --set data.memory=0")
    }

    fn evaluate(&self, model: &LanguageModel, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        self.scores(model, split, None, interrupt)
    }

    fn selection(&self) -> Selection {
        Selection::lowest("perplexity")
    }

    fn start_epoch(&self, carried: &mut LanguageCarried) {
        *carried = LanguageCarried::Nothing;
    }

    fn save(&self, carried: &LanguageCarried) -> Vec<(String, TensorData)> {
        match carried {
            LanguageCarried::Nothing => Vec::new(),
            LanguageCarried::Saved(state) => state.clone(),
            LanguageCarried::Memory(memory) => {
                let counts: Vec<i64> = memory.remembered().iter().map(|&count| count as i64).collect();
                let rows = counts.len();
                let layers = memory.layers().iter().enumerate().map(|(layer, states)| (layer.to_string(), read(states.clone())));
                layers.chain([(REMEMBERED.to_owned(), TensorData::new(counts, [rows]))]).collect()
            }
        }
    }

    fn restore(&self, saved: Vec<(String, TensorData)>) -> LanguageCarried {
        LanguageCarried::Saved(saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::model::mechanisms::MechanismOptions;
    use crate::train::ParameterCount;

    fn config(context: usize, memory: usize) -> LanguageConfig {
        let data = LanguageData { context, stride: context, batch: 3, memory, generated_words: 300, ..LanguageData::default() };
        LanguageConfig {
            model: ModelSettings { d_model: 16, heads: 2, d_ff: 32, max_length: 16, ..ModelSettings::default() },
            own: Language { data, ..Language::default() },
            ..LanguageConfig::default()
        }
    }

    fn dataset() -> LanguageDataset {
        let mut dataset = Language::open(&config(16, 0)).unwrap().remove(0);
        dataset.valid.truncate(90);
        dataset
    }

    fn model(config: &LanguageConfig, dataset: &LanguageDataset, attention: &str, device: &Device) -> LanguageModel {
        let attention = Attention::new(MechanismOptions::default().attention(attention).unwrap());
        Language::model(Setup { config, data: dataset, attention: &attention }, &RandomKey::from_seed(1), device).unwrap()
    }

    /// The loss of the first epoch's batch of these items, at a step of 100.
    fn loss(
        task: &LanguageTask,
        model: &LanguageModel,
        items: &[usize],
        (key, step): (RandomKey, u64),
        carried: &mut LanguageCarried,
    ) -> f32 {
        let batch = task.batch(items, 1, &key);
        let pass = Pass { key, epoch_key: key, step, steps: 100, carried };
        task.loss(model, &batch, pass, &mut Probe::off()).total().into_scalar::<f32>()
    }

    #[test]
    fn streaming_with_a_memory_of_everything_scores_as_the_whole_text_at_once() {
        let dataset = dataset();
        // Where LSH attention hashes, later tokens shift the borders of chunks.
        for attention in ["dot-product", "relative", "lsh{full_attention_below=128}"] {
            let of = |context: usize, memory: usize| {
                let config = config(context, memory);
                // The weights must not depend on the length that the model is made for.
                let longest = LanguageConfig { model: ModelSettings { max_length: 128, ..config.model.clone() }, ..config.clone() };
                let model = model(&longest, &dataset, attention, &Device::flex());
                LanguageTask::new(&config, &dataset).likelihood(&model, &dataset.valid, Details::default(), &Interrupt::new()).unwrap()
            };
            let (whole, streamed, forgetful) = (of(96, 0), of(16, 96), of(16, 4));
            assert_eq!((whole.units, streamed.units), (89, 89), "{attention}");
            let [whole, streamed, forgetful] = [whole, streamed, forgetful].map(|total| total.perplexity().unwrap());
            assert!((streamed / whole - 1.0).abs() < 1e-4, "{attention}: {streamed} and {whole}");
            assert!((forgetful / whole - 1.0).abs() > 1e-4, "{attention}: a short memory makes no difference");
        }
    }

    #[test]
    fn characters_are_scored_by_their_bytes_too() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["text8", "input.txt"] {
            std::fs::write(folder.path().join(name), "äbc défg 漢字\n".repeat(20).trim_end()).unwrap();
            let mut config = config(16, 0);
            config.run.data = Some(folder.path().into());
            config.own.tokeniser = heedful_data::tokenise::TokeniserConfig::Character {};
            let dataset = Language::open(&config).unwrap().remove(0);
            let of_file = dataset.corpus.test_bytes();
            let model = model(&config, &dataset, "dot-product", &Device::flex());
            let scores = LanguageTask::new(&config, &dataset).scores(&model, Split::Test, None, &Interrupt::new()).unwrap();
            let metric = |name: &str| scores.metrics.iter().find(|(known, _)| known == name).unwrap().1;
            let characters = dataset.test.len() - 1;
            assert!(of_file > characters, "{of_file} bytes, {characters} characters");
            let ratio = metric(BITS_PER_BYTE) / metric("bits per unit");
            assert!((ratio - characters as f64 / of_file as f64).abs() < 1e-12, "{name}: {ratio}");
            assert!(
                scores.signatures[BITS_PER_BYTE]
                    .contains(&format!("unit:byte|context:16|stride:16|memory:0|ends of lines:scored|units:{of_file}"))
            );
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
        let words = dataset();
        let model = model(&config(16, 0), &words, "dot-product", &Device::flex());
        let scores = LanguageTask::new(&config(16, 0), &words).scores(&model, Split::Test, None, &Interrupt::new()).unwrap();
        assert!(scores.metrics.iter().all(|(name, _)| name != BITS_PER_BYTE), "of words there are none");
    }

    #[test]
    fn losses_by_position_add_up_to_the_likelihood_with_and_without_a_memory() {
        let dataset = dataset();
        for (memory, stride, expected) in [(0, 4, vec![(1, 1), (13, 19), (16, 20)]), (16, 16, vec![(1, 6), (9, 6), (16, 5)])] {
            let mut config = config(16, memory);
            config.own.data.stride = stride;
            let model = model(&config, &dataset, "dot-product", &Device::flex());
            let mut positions = PositionLosses::new(16);
            let details = Details { blocks: None, positions: Some(&mut positions) };
            let total = LanguageTask::new(&config, &dataset).likelihood(&model, &dataset.valid, details, &Interrupt::new()).unwrap();
            let means: Vec<(usize, u64, f64)> = positions.means().collect();
            let nats: f64 = means.iter().map(|(_, tokens, nats)| *tokens as f64 * nats).sum();
            let tokens: u64 = means.iter().map(|(_, tokens, _)| tokens).sum();
            assert!(tokens == total.units && (nats / total.nats - 1.0).abs() < 1e-5, "{nats} and {}", total.nats);
            let counts = |position: usize| means.iter().find(|mean| mean.0 == position).map_or(0, |mean| mean.1);
            for (position, count) in expected {
                assert_eq!(counts(position), count, "position {position} with a memory of {memory}");
            }
        }
    }

    #[test]
    fn items_are_the_same_with_and_without_a_memory_and_at_any_stride() {
        let dataset = dataset();
        let found = [(0, 4), (0, 16), (16, 16)].map(|(memory, stride)| {
            let mut config = config(16, memory);
            config.own.data.stride = stride;
            let model = model(&config, &dataset, "dot-product", &Device::flex());
            let mut blocks = TextBlocks::new(dataset.test.len() - 1);
            let details = Details { blocks: Some(&mut blocks), positions: None };
            let total = LanguageTask::new(&config, &dataset).likelihood(&model, &dataset.test, details, &Interrupt::new()).unwrap();
            let table = blocks.table();
            let terms = table.terms(&ItemScore::new("test", "blocks", Combination::Ratio, &["bits", "units"])).unwrap();
            let [bits, units] = terms.total()[..] else { panic!("a ratio has two terms") };
            assert!(units == total.units as f64 && (bits / units / total.bits_per_unit().unwrap() - 1.0).abs() < 1e-12);
            (table.identity().to_owned(), table.to_json())
        });
        assert!(found.iter().all(|(identity, _)| *identity == found[0].0));
        assert_ne!(found[0].1, found[1].1);
    }

    #[test]
    fn auxiliary_losses_follow_the_progress_of_training() {
        let dataset = dataset();
        let mut config = config(16, 0);
        config.own.auxiliary = Some(Default::default());
        let device = Device::flex().autodiff();
        let (task, key) = (LanguageTask::new(&config, &dataset), RandomKey::from_seed(2));
        let model = model(&config, &dataset, "dot-product", &device);
        let items = &task.epoch(1, &key)[0];
        let at = |step: u64| loss(&task, &model, items, (key, step), &mut LanguageCarried::Nothing);
        // Of two layers the first falls silent after a quarter.
        let (begin, quarter, end) = (at(1), at(26), at(100));
        assert!(begin > 1.5 * quarter && quarter == end, "{begin}, {quarter}, {end}");
        let mut plain = model.clone();
        plain.auxiliary = None;
        let plain = loss(&task, &plain, items, (key, 100), &mut LanguageCarried::Nothing);
        assert!(end > 1.3 * plain, "{end} and {plain}");
    }

    #[test]
    fn without_multiple_positions_the_last_one_of_each_row_is_the_loss() {
        let dataset = dataset();
        let device = Device::flex().autodiff();
        for memory in [0, 16] {
            let mut config = config(16, memory);
            config.model.dropout = 0.0;
            let plain = config.clone();
            let last = heedful_models::block::auxiliary::AuxiliaryLossesConfig {
                multiple_positions: false,
                intermediate_layers: false,
                targets: 1,
                ..Default::default()
            };
            config.own.auxiliary = Some(last);
            let key = RandomKey::from_seed(2);
            let task = LanguageTask::new(&config, &dataset);
            let items = &task.epoch(1, &key)[0];
            let batch = task.batch(items, 1, &key);
            let all = LanguageTask::new(&plain, &dataset);
            assert_eq!((task.units(&batch), all.units(&batch)), (3, 3 * 16));
            let model = model(&config, &dataset, "relative", &device);
            let found = loss(&task, &model, items, (key, 1), &mut LanguageCarried::Nothing);
            // By hand: the loss of the target that follows each row.
            let inputs = Tensor::<2, Int>::from_data(TensorData::new(batch.inputs.clone(), [3, 16]), &device);
            let states = model.hidden(inputs, &[], None, &mut Probe::off()).states.narrow(1, 15, 1).squeeze_dim(1);
            let targets: Vec<i32> = batch.targets.chunks(16).map(|row| row[15]).collect();
            let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [3]), &device);
            let expected = model.cross_entropy(states, targets, None, 0.0).loss.into_scalar::<f32>();
            assert!((found / expected - 1.0).abs() < 1e-5, "{found} and {expected}");
        }
    }

    #[test]
    fn classifiers_of_auxiliary_losses_are_in_no_trained_model() {
        let dataset = dataset();
        let plain = config(16, 0);
        let mut with = plain.clone();
        with.own.auxiliary = Some(Default::default());
        let count = |config: &LanguageConfig| {
            let task = LanguageTask::new(config, &dataset);
            ParameterCount::of(&task.without_training_parts(model(config, &dataset, "dot-product", &Device::flex())))
        };
        assert_eq!(count(&with), count(&plain));
        assert!(ParameterCount::of(&model(&with, &dataset, "dot-product", &Device::flex())).total > count(&plain).total);
    }

    #[test]
    fn segments_have_auxiliary_losses_too() {
        let dataset = dataset();
        let mut config = config(16, 16);
        config.own.auxiliary = Some(Default::default());
        let device = Device::flex().autodiff();
        let (task, key) = (LanguageTask::new(&config, &dataset), RandomKey::from_seed(2));
        let model = model(&config, &dataset, "relative", &device);
        let mut plain = model.clone();
        plain.auxiliary = None;
        let epoch = task.epoch(1, &key);
        let of = |model: &LanguageModel, step: u64| {
            let mut carried = LanguageCarried::Nothing;
            [&epoch[0], &epoch[1]].map(|items| loss(&task, model, items, (key, step), &mut carried))
        };
        let (begin, end, without) = (of(&model, 1), of(&model, 100), of(&plain, 1));
        for segment in 0..2 {
            assert!(begin[segment] > 1.5 * end[segment] && end[segment] > 1.3 * without[segment], "{begin:?}, {end:?}, {without:?}");
        }
    }

    #[test]
    fn batches_continue_each_other_row_by_row() {
        let (config, dataset) = (config(16, 16), dataset());
        let task = LanguageTask::new(&config, &dataset);
        let epoch = task.epoch(1, &RandomKey::from_seed(2));
        assert!(epoch.len() > 3 && epoch.iter().all(|items| items.len() == 3));
        for pair in epoch.windows(2) {
            assert!(pair[0].iter().zip(&pair[1]).all(|(before, after)| before + 16 == *after));
        }
        assert_eq!(epoch[0][1], epoch[epoch.len() - 1][0] + 16, "the second stream begins where the first ends");
        assert!(epoch[epoch.len() - 1][2] + 17 <= dataset.train.len());
    }

    #[test]
    fn what_is_carried_over_comes_back_from_a_checkpoint() {
        let (config, dataset) = (config(16, 24), dataset());
        let device = Device::flex().autodiff();
        let model = model(&config, &dataset, "relative", &device);
        let (task, key) = (LanguageTask::new(&config, &dataset), RandomKey::from_seed(2));
        let epoch = task.epoch(1, &key);
        let loss = |carried: &mut LanguageCarried, step: usize| {
            loss(&task, &model, &epoch[step], (key.numbered(step as u64), step as u64 + 1), carried)
        };
        let mut carried = LanguageCarried::Nothing;
        let first = loss(&mut carried, 0);
        loss(&mut carried, 1);
        let mut resumed = task.restore(task.save(&carried));
        assert_eq!(task.save(&resumed).len(), 3, "two layers and the counts");
        let third = loss(&mut carried, 2);
        assert_eq!(loss(&mut resumed, 2), third);
        assert_ne!(loss(&mut LanguageCarried::Nothing, 2), third);
        task.start_epoch(&mut carried);
        assert!(task.save(&carried).is_empty());
        assert_eq!(loss(&mut carried, 0), first);
    }
}
