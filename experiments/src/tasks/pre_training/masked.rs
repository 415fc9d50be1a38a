//! Finding hidden tokens.

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use heedful_data::TextCorpus;
use heedful_models::architectures::classifier::{Classifier, ClassifierConfig, Pooling, Sentences};
use heedful_models::block::Hidden;
use serde::{Deserialize, Serialize};

use super::config::{SpecialTokens, defaults};
use super::{
    DATA, FLOPS_PER_STEP, LOG_PERPLEXITY, PreTrainingData, PreTrainingDataset, PreTrainingOptions, batch_tokens, batches, card, check,
    columns, evaluated, fits, flops, open, pretrained, trivial,
};
use crate::tasks::prelude::*;
use crate::tasks::pretrained::score_before;
use crate::tasks::scoring::score_batches;
use crate::tasks::token_losses::token_losses;

/// Complete configuration of `mlm`.
pub type PreTrainingConfig = Config<MaskedModelling>;

/// The comparison of attentions on finding hidden tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MaskedModelling(pub PreTrainingOptions);

impl PreTrainingConfig {
    /// An encoder that can tell two texts from each other, as it may have to when it is fine-tuned.
    fn encoder(&self, vocabulary: usize, attention: &Attention) -> ClassifierConfig {
        let classifier = self.model.classifier(vocabulary, 1, &attention.layout.encoder).with_segments(true);
        match self.own.0.pretrained {
            Some(_) => classifier.with_pooler(true).with_masked_head(true),
            None => classifier.with_pooling(Pooling::Mean),
        }
    }
}

impl Experiment for MaskedModelling {
    const NAME: &'static str = "mlm";
    const TITLE: &'static str = "Masked language modelling";
    const ABOUT: &'static str = "\
        Compare attention mechanisms in pre-training on text.\n\nTrains an encoder to find masked tokens, or an encoder-decoder to fill gaps, for each \
        attention and seed, and prints a table of log-perplexities with steps per second, parameters and memory. `glue --init` fine-tunes the encoder. \
        --data takes a folder of running text, as `lm` does; without it the text is generated. With --pretrained the encoder begins with the weights \
        of a BERT or RoBERTa, which are scored too.";
    const OPTIONS: &'static [CommandOption] = &[CommandOption::pretrained(
        "Folder of a pretrained encoder of Hugging Face with a masked-LM head (BERT, RoBERTa) and its tokenizer.json: score it, and continue its training",
    )];
    const DATA: &'static [&'static str] = DATA;
    const BATCH: &'static str = "data.batch";
    const READS_FILES: bool = true;
    const HAS_PADDING: bool = false;
    const COLUMNS: &'static [&'static str] = TextCorpus::COLUMNS;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = PreTrainingDataset;
    type Model = Classifier;
    type Task<'a> = MaskedTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        defaults(config);
    }

    fn rules() -> Vec<Rule<Self>> {
        let mut rules = super::rules::<Self>();
        rules.push(Rule::used(
            &["model.position_offset"],
            |candidate| candidate.config.model.max_length > candidate.config.own.0.data.context,
            "sequences are as long as model.max_length, so that positions cannot move; leave it out, or give a larger model.max_length",
        ));
        rules.push(Rule::used(
            &["spans", "decoding"],
            |_| false,
            "it applies to the other objective; leave it out, or give --objective spans",
        ));
        rules
    }

    fn beneath(config: &Config<Self>) -> Result<Option<Table>, ExperimentError> {
        config.own.0.pretrained.as_deref().map(pretrained::beneath).transpose()
    }

    fn check(settings: &Settings<Config<Self>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let options = &settings.value.own.0;
        check(settings, &options.data)?;
        // The size of the vocabulary is not known before the text is read.
        options.masking(usize::MAX, &SpecialTokens::OWN).validate().map_err(ExperimentError::usage)?;
        pretrained::check(settings, attentions)?;
        for attention in attentions {
            settings.value.encoder(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &Config<Self>) -> Result<Vec<PreTrainingDataset>, ExperimentError> {
        open(&config.run, &config.own.0)
    }

    fn card(data: &PreTrainingDataset) -> Card<'_> {
        card(data)
    }

    fn fits(setup: Setup<'_, Self>) -> Result<(), ExperimentError> {
        fits(&setup.config.own.0.data, setup.data)
    }

    fn batch_tokens(config: &Config<Self>, data: &PreTrainingDataset) -> usize {
        batch_tokens(&config.own.0.data, data)
    }

    fn lengths(Setup { config, attention, .. }: Setup<'_, Self>) -> TrainingLengths {
        TrainingLengths::new(&attention.layout, config.model.max_length).encoder([config.own.0.data.context])
    }

    fn task(Setup { config, data, attention }: Setup<'_, Self>) -> MaskedTask<'_> {
        MaskedTask { options: &config.own.0, dataset: data, model: config.encoder(data.vocabulary, attention) }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Classifier, ExperimentError> {
        let model = Self::task(setup).model.init(key, device);
        match &setup.config.own.0.pretrained {
            Some(folder) => pretrained::read(folder, model),
            None => Ok(model),
        }
    }

    /// Where training began with pretrained weights, the log-perplexity that these have as well.
    fn score(setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, .. } = trained;
        let Some(mut scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        if let Some(checksums) = &setup.data.pretrained {
            let device = model.embedding.tokens.weight.device();
            let what = (checksums, LOG_PERPLEXITY, pretrained::BEFORE);
            return Ok(score_before(setup, task, what, (&mut scores, &device), interrupt)?.then_some(scores));
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        let mut columns = columns();
        let before = MetricColumn::new(pretrained::BEFORE, "before").digits(3).lower_is_better();
        columns.insert(1, before.defined_as("log ppl of the pretrained weights"));
        columns
    }

    fn trivial_baselines(config: &Config<Self>, data: &PreTrainingDataset, interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(trivial::baselines(&config.own.0, data, interrupt))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::pre_training()
    }

    fn texts(Setup { config, data, .. }: Setup<'_, Self>, count: usize) -> Vec<String> {
        let length = 2..config.own.0.data.context - 2;
        let fits = |line: &&String| data.tokeniser.try_encode(line).is_ok_and(|tokens| length.contains(&tokens.len()));
        data.corpus.test.iter().filter(fits).take(count).cloned().collect()
    }

    fn read(
        Setup { config, data, .. }: Setup<'_, Self>,
        model: &Classifier,
        text: &str,
        probe: &mut Probe,
    ) -> Result<Reading, ExperimentError> {
        let piece = data.tokeniser.try_encode(text).map_err(ExperimentError::usage)?;
        check_length(text, piece.len(), config.model.max_length - 2)?;
        let tokens: Vec<u32> = std::iter::once(data.tokens.classify).chain(piece).chain([data.tokens.separate]).collect();
        let batch =
            MaskedBatch { tokens: tokens.iter().map(|&token| token as i32).collect(), rows: 1, positions: vec![0], targets: vec![0] };
        MaskedTask::hidden(model, &batch, None, probe);
        Ok(Reading { encoder: data.tokeniser.words(&tokens), ..Reading::default() })
    }
}

/// Training an encoder to find hidden tokens.
#[derive(Debug)]
pub struct MaskedTask<'a> {
    options: &'a PreTrainingOptions,
    dataset: &'a PreTrainingDataset,
    model: ClassifierConfig,
}

/// Sequences with hidden tokens.
#[derive(Debug, Default)]
pub struct MaskedBatch {
    tokens: Vec<i32>,
    rows: usize,
    /// Where the hidden tokens lie in the sequences, which stand one after the other.
    positions: Vec<i32>,
    targets: Vec<i32>,
}

/// Tokens of the text in a sequence: the others are those of class and end.
fn length(options: &PreTrainingOptions) -> usize {
    options.data.context - 2
}

fn assemble(
    options: &PreTrainingOptions,
    dataset: &PreTrainingDataset,
    (text, starts): (&[u32], &[usize]),
    key: impl Fn(usize) -> RandomKey,
) -> MaskedBatch {
    let special = &dataset.tokens;
    let masking = options.masking(dataset.tokeniser.vocabulary_size(), special);
    let mut batch = MaskedBatch { rows: starts.len(), ..MaskedBatch::default() };
    for (row, &start) in starts.iter().enumerate() {
        let piece = &text[start..start + length(options)];
        let sequence: Vec<u32> = std::iter::once(special.classify).chain(piece.iter().copied()).chain([special.separate]).collect();
        let masked = masking.mask(&sequence, &key(row));
        batch.positions.extend(masked.positions.iter().map(|&at| (row * sequence.len() + at) as i32));
        batch.targets.extend(masked.targets.iter().map(|&token| token as i32));
        batch.tokens.extend(masked.tokens.iter().map(|&token| token as i32));
    }
    batch
}

/// What every evaluation shows of a split, with the same tokens hidden each time: its batches, and how many sequences they have.
fn evaluation<'d>(
    options: &'d PreTrainingOptions,
    dataset: &'d PreTrainingDataset,
    split: Split,
) -> (usize, impl Iterator<Item = MaskedBatch> + 'd) {
    let text = split.of(&dataset.valid, &dataset.test);
    let starts = evaluated(&options.data, text.len(), length(options));
    let (count, rows) = (starts.len(), options.data.batch);
    let key = RandomKey::from_seed(0).named("masking");
    let batch = move |number: usize| {
        let starts = &starts[number * rows..count.min((number + 1) * rows)];
        assemble(options, dataset, (text, starts), |row| key.numbered((number * rows + row) as u64))
    };
    (count, (0..count.div_ceil(rows)).map(batch))
}

/// A hidden token, and what a model sees to its left: `None` at the beginning of a sequence and where that token is hidden as well.
pub(super) struct HiddenToken {
    pub(super) left: Option<u32>,
    pub(super) token: u32,
}

/// The tokens that every evaluation of a split hides.
pub(super) fn hidden_tokens<'d>(
    options: &'d PreTrainingOptions,
    dataset: &'d PreTrainingDataset,
    split: Split,
) -> impl Iterator<Item = HiddenToken> + 'd {
    let SpecialTokens { classify, mask, .. } = dataset.tokens;
    let of_batch = move |batch: MaskedBatch| {
        let hidden = batch.positions.iter().zip(&batch.targets).map(|(&position, &target)| {
            let left = batch.tokens[position as usize - 1] as u32;
            HiddenToken { left: (left != classify && left != mask).then_some(left), token: target as u32 }
        });
        hidden.collect::<Vec<_>>()
    };
    evaluation(options, dataset, split).1.flat_map(of_batch)
}

impl MaskedTask<'_> {
    /// Hidden states, those of the hidden tokens `[N, C]`, and the tokens `[N]`.
    fn hidden(model: &Classifier, batch: &MaskedBatch, key: Option<RandomKey>, probe: &mut Probe) -> (Hidden, Tensor<2>, Tensor<1, Int>) {
        let device = model.embedding.tokens.weight.device();
        let width = batch.tokens.len() / batch.rows;
        let tokens = Tensor::<2, Int>::from_data(TensorData::new(batch.tokens.clone(), [batch.rows, width]), &device);
        let lengths = vec![width; batch.rows];
        let hidden = model.hidden(Sentences { tokens: tokens.clone(), segments: Some(tokens.zeros_like()), lengths: &lengths }, key, probe);
        let integers = |values: &[i32]| Tensor::<1, Int>::from_data(TensorData::new(values.to_vec(), [values.len()]), &device);
        let [_, _, d_model] = hidden.states.dims();
        let states = hidden.states.clone().reshape([batch.rows * width, d_model]).select(0, integers(&batch.positions));
        (hidden, states, integers(&batch.targets))
    }
}

/// Adds each sequence of a batch to the items, with the losses of its hidden tokens and whether they were found.
fn push_sequences(table: &mut ItemTable, batch: &MaskedBatch, losses: &[f64], right: &[bool]) {
    let width = batch.tokens.len() / batch.rows;
    let mut first = 0;
    for (row, tokens) in batch.tokens.chunks(width).enumerate() {
        let hidden = batch.positions[first..].iter().take_while(|&&position| position as usize / width == row).count();
        let own = first..first + hidden;
        let nats = losses[own.clone()].iter().sum();
        let found = right[own.clone()].iter().filter(|&&right| right).count();
        let identity = tokens.iter().chain(&batch.targets[own]).map(|&token| i64::from(token));
        table.push_tokens(identity, &[nats, found as f64, hidden as f64]);
        first += hidden;
    }
}

impl Task for MaskedTask<'_> {
    type Model = Classifier;
    type Batch = MaskedBatch;
    type Carried = ();

    /// Items are the first positions of sequences.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        batches(self.dataset.train.len(), length(self.options), self.options.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, key: &RandomKey) -> MaskedBatch {
        assemble(self.options, self.dataset, (&self.dataset.train, items), |row| key.numbered(row as u64))
    }

    fn units(&self, batch: &MaskedBatch) -> usize {
        batch.targets.len()
    }

    fn loss(&self, model: &Classifier, batch: &MaskedBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (hidden, states, targets) = Self::hidden(model, batch, Some(pass.key), probe);
        TrainingLoss::new(model.masked_cross_entropy(states, targets).loss, &hidden.losses, batch.targets.len())
    }

    /// What a model finds in a text, with the same tokens hidden each time.
    fn evaluate(&self, model: &Classifier, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let name = split.of("validation", "test");
        let PreTrainingOptions { data, masking, .. } = self.options;
        let PreTrainingData { context, batch: rows, .. } = *data;
        let (sequences, batches) = evaluation(self.options, self.dataset, split);
        let (mut nats, mut right, mut count) = (0.0, 0, 0);
        let mut table = ItemTable::new(name, &["nats", "right", "tokens"]);
        score_batches(("scoring", sequences), batches, interrupt, |batch| {
            let (_, states, targets) = Self::hidden(model, &batch, None, &mut Probe::off());
            let loss = model.masked_cross_entropy(states.clone(), targets.clone()).negative_log_likelihood;
            let chosen = model.masked_logits(states.clone()).argmax(1).squeeze_dim::<1>(1);
            let found: Vec<bool> = read(chosen.equal(targets)).iter::<bool>().collect();
            nats += f64::from(loss.into_scalar::<f32>());
            right += found.iter().filter(|&&found| found).count();
            count += batch.targets.len();
            if split == Split::Test {
                let losses = token_losses(&states, &batch.targets, |states| model.masked_logits(states));
                push_sequences(&mut table, &batch, &losses, &found);
            }
            batch.rows
        })?;
        let signature = format!("{count} tokens of the {name} text, {} of it hidden, context {context}", masking.probability);
        let mut scores = Scores::of(LOG_PERPLEXITY, nats / count as f64, signature.clone());
        scores.push("accuracy", right as f64 / count as f64, signature);
        if split == Split::Test {
            let of = |part| ItemScore::new(name, "sequences", Combination::Ratio, &[part, "tokens"]);
            scores.push_items(LOG_PERPLEXITY, of("nats"));
            scores.push_items("accuracy", of("right"));
            scores.items.push(table);
            let of_a_row = self.model.multiplications(model, context, masking.probability * length(self.options) as f64);
            let signature = format!("counted: {rows} sequences of {context} tokens, forward and backward");
            scores.push(FLOPS_PER_STEP, flops(of_a_row, rows), signature);
        }
        Some(scores)
    }

    fn selection(&self) -> Selection {
        Selection::lowest(LOG_PERPLEXITY)
    }
}
