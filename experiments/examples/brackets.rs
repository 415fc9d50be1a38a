//! A classification of one's own: how deeply brackets of two kinds are nested. Scores are kept by item, so that `compare` can test a single run, and `analyse`
//! shows what a trained model attends to.

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::contract::Losses;
use heedful_attention::tensors::read::read;
use heedful_experiments::prelude::*;
use heedful_experiments::session::error::Interruptible;
use heedful_experiments::session::experiment::{Reading, check_length};
use heedful_models::architectures::classifier::{Classifier, ClassifierConfig, Pooling, Sentences};
use heedful_models::parts::loss::cross_entropy;
use heedful_runs::trivial::TrivialBaseline;
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// The tokens, by their numbers.
const SIGNS: [char; 4] = ['(', ')', '[', ']'];
/// Classes: depths from 1 on; what is deeper belongs to the last.
const CLASSES: usize = 6;

/// Options of this experiment alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Brackets {
    /// Pairs of brackets in a sequence.
    pairs: usize,
    /// Sequences in a batch.
    batch: usize,
}

impl Default for Brackets {
    fn default() -> Self {
        Self { pairs: 12, batch: 32 }
    }
}

/// A sequence of tokens and its class.
#[derive(Clone, Debug)]
pub struct Example {
    tokens: Vec<i32>,
    class: usize,
}

impl Example {
    fn new(tokens: Vec<i32>) -> Self {
        let depths = tokens.iter().scan(0usize, |depth, token| {
            *depth = if token % 2 == 0 { *depth + 1 } else { depth.saturating_sub(1) };
            Some(*depth)
        });
        let class = depths.max().unwrap_or(1).clamp(1, CLASSES) - 1;
        Self { tokens, class }
    }

    /// Brackets that close in the right order, drawn by a generator.
    fn drawn(pairs: usize, rng: &mut impl RngExt) -> Self {
        let (mut tokens, mut open) = (Vec::with_capacity(2 * pairs), Vec::new());
        while tokens.len() < 2 * pairs {
            let left = 2 * pairs - tokens.len();
            if open.is_empty() || open.len() < left && rng.random_bool(0.5) {
                open.push(2 * rng.random_range(0..2));
                tokens.extend(open.last());
            } else {
                tokens.extend(open.pop().map(|kind| kind + 1));
            }
        }
        Self::new(tokens)
    }
}

/// Examples for training, validation and test, and their SHA-256.
#[derive(Debug)]
pub struct Sets {
    train: Vec<Example>,
    valid: Vec<Example>,
    test: Vec<Example>,
    sha256: String,
}

fn model(config: &Config<Brackets>, attention: &Attention) -> ClassifierConfig {
    config.model.classifier(SIGNS.len(), CLASSES, &attention.layout.encoder).with_pooling(Pooling::Mean)
}

impl Experiment for Brackets {
    const NAME: &'static str = "brackets";
    const TITLE: &'static str = "Depth of brackets";
    const DATA: &'static [&'static str] = &["pairs"];
    const BATCH: &'static str = "batch";
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = Sets;
    type Model = Classifier;
    type Task<'a> = Nesting<'a>;

    fn defaults(config: &mut Config<Brackets>) {
        config.training.steps = 600;
    }

    fn check(settings: &Settings<Config<Brackets>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let Config { own: Brackets { pairs, .. }, model: sizes, .. } = &settings.value;
        settings.require("pairs", (1..=sizes.max_length / 2).contains(pairs), "give 1 to half of model.max_length")?;
        attentions.iter().try_for_each(|attention| Ok(model(&settings.value, attention).validate()?))
    }

    fn open(config: &Config<Brackets>) -> Result<Vec<Sets>, ExperimentError> {
        let mut rng = RandomKey::from_seed(0).named("brackets").rng();
        let [train, valid, test] = [8192, 512, 512].map(|count| (0..count).map(|_| Example::drawn(config.own.pairs, &mut rng)).collect());
        let sha256 = sha256_hex(format!("{train:?}{valid:?}{test:?}").as_bytes());
        Ok(vec![Sets { train, valid, test, sha256 }])
    }

    fn card(Sets { train, test, sha256, .. }: &Sets) -> Card<'_> {
        let description = format!("{} training and {} test sequences", train.len(), test.len());
        Card { vocabulary: SIGNS.len(), ..Card::new("brackets", sha256, description) }
    }

    fn task(setup: Setup<'_, Brackets>) -> Nesting<'_> {
        Nesting { sets: setup.data, batch: setup.config.own.batch }
    }

    fn model(setup: Setup<'_, Brackets>, key: &RandomKey, device: &Device) -> Result<Classifier, ExperimentError> {
        Ok(model(setup.config, setup.attention).init(key, device))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![MetricColumn::new("accuracy", "accuracy").percent().higher_is_better()]
    }

    /// The most frequent class of the training sequences.
    fn trivial_baselines(_: &Config<Brackets>, sets: &Sets, _: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        let count = |examples: &[Example], class| examples.iter().filter(|example| example.class == class).count();
        let class = (0..CLASSES).max_by_key(|&class| count(&sets.train, class)).unwrap_or_default();
        let share = |examples: &[Example]| count(examples, class) as f64 / examples.len() as f64;
        let majority = TrivialBaseline::new("majority", "the most frequent class of the training sequences.");
        Ok(Some(vec![majority.score("accuracy", share(&sets.test)).dev("accuracy", share(&sets.valid))]))
    }

    /// What `analyse` shows.
    fn texts(setup: Setup<'_, Brackets>, count: usize) -> Vec<String> {
        let text = |example: &Example| example.tokens.iter().map(|&token| SIGNS[token as usize]).collect();
        setup.data.test.iter().take(count).map(text).collect()
    }

    /// Shows a text to a model, and names its tokens.
    fn read(setup: Setup<'_, Brackets>, model: &Classifier, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        check_length(text, text.chars().count(), setup.config.model.max_length)?;
        let number = |sign| SIGNS.iter().position(|&known| known == sign).map(|token| token as i32);
        let tokens: Option<Vec<i32>> = text.chars().map(number).collect();
        let tokens = tokens.ok_or_else(|| ExperimentError::usage(format!("--text {text:?}: give brackets alone, ( ) [ ]")))?;
        Nesting::logits(model, &[Example::new(tokens)], None, probe);
        Ok(Reading { encoder: text.chars().map(String::from).collect(), ..Reading::default() })
    }
}

/// Training a classifier of depths.
pub struct Nesting<'a> {
    sets: &'a Sets,
    batch: usize,
}

impl Nesting<'_> {
    /// Logits `[B, classes]` of sequences of one length, and what the attentions add to the loss.
    fn logits(model: &Classifier, examples: &[Example], key: Option<RandomKey>, probe: &mut Probe) -> (Tensor<2>, Losses) {
        let (rows, length) = (examples.len(), examples[0].tokens.len());
        let tokens: Vec<i32> = examples.iter().flat_map(|example| &example.tokens).copied().collect();
        let tokens = Tensor::<2, Int>::from_data(TensorData::new(tokens, [rows, length]), &model.output.weight.device());
        let scores = model.forward_with(Sentences { tokens, segments: None, lengths: &vec![length; rows] }, key, probe);
        (scores.logits, scores.losses)
    }
}

impl Task for Nesting<'_> {
    type Model = Classifier;
    type Batch = Vec<Example>;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.sets.train.len(), self.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> Vec<Example> {
        items.iter().map(|&item| self.sets.train[item].clone()).collect()
    }

    fn units(&self, batch: &Vec<Example>) -> usize {
        batch.len()
    }

    fn lengths(&self) -> Option<Vec<usize>> {
        Some(self.sets.train.iter().map(|example| example.tokens.len()).collect())
    }

    fn loss(&self, model: &Classifier, batch: &Vec<Example>, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (logits, losses) = Self::logits(model, batch, Some(pass.key), probe);
        let classes: Vec<i32> = batch.iter().map(|example| example.class as i32).collect();
        let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [batch.len()]), &logits.device());
        TrainingLoss::new(cross_entropy(logits, classes, None, 0.0).loss, &losses, batch.len())
    }

    fn evaluate(&self, model: &Classifier, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let (name, examples) = split.of(("validation", &self.sets.valid), ("test", &self.sets.test));
        let mut items = ItemTable::new(name, &["right"]);
        let mut right = 0;
        for batch in examples.chunks(128) {
            if interrupt.is_raised() {
                return None;
            }
            let logits = Self::logits(model, batch, None, &mut Probe::off()).0;
            let found: Vec<i64> = read(logits.argmax(1)).iter::<i64>().collect();
            for (example, found) in batch.iter().zip(found) {
                let is_right = found == example.class as i64;
                right += usize::from(is_right);
                items.push_tokens(example.tokens.iter().map(|&token| i64::from(token)), &[f64::from(u8::from(is_right))]);
            }
        }
        let mut scores = Scores::of("accuracy", right as f64 / examples.len() as f64, format!("{name} set, {} sequences", examples.len()));
        if split == Split::Test {
            scores.push_items("accuracy", ItemScore::new(name, "sequences", Combination::Mean, &["right"]));
            scores.items.push(items);
        }
        Some(scores)
    }

    fn selection(&self) -> Selection {
        Selection::highest("accuracy")
    }
}

fn main() -> std::process::ExitCode {
    experiment::main::<Brackets>()
}
