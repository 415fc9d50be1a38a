//! Training and scoring.

use std::fmt::Write;

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::mechanisms::lsh::Lsh;
use heedful_attention::probe::{Observation, Probe};
use heedful_attention::random::RandomKey;
use heedful_attention::read::read;
use heedful_models::block::Hidden;
use heedful_models::language_model::LanguageModel;
use heedful_models::loss::with_auxiliary;

use crate::batch::{sequential_batches, token_budget_batches};
use crate::comparison::{first_non_finite_activation, scoring_bar};
use crate::tokenise::PAD;
use crate::train::{Interrupt, Objective, Selection};

use super::{AlgorithmicConfig, AlgorithmicDataset, TokenExercise};

/// Training a language model to answer.
#[derive(Debug)]
pub struct AlgorithmicTask<'a> {
    pub(super) config: &'a AlgorithmicConfig,
    pub(super) dataset: &'a AlgorithmicDataset,
}

/// Sequences, padded on the left, and the answers to predict.
#[derive(Debug)]
pub struct AlgorithmicBatch {
    inputs: Vec<i32>,
    left_padding: Vec<usize>,
    /// Where in the inputs, row after row, a token of an answer is to be predicted, and the token.
    predicted: Vec<(i32, i32)>,
    /// How many of them each row has.
    answers: Vec<usize>,
}

/// Fractions of what was answered right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Answers {
    tokens: usize,
    right_tokens: usize,
    sequences: usize,
    right_sequences: usize,
}

impl Answers {
    /// Of the tokens, each given the right ones before it.
    pub(super) fn token_accuracy(self) -> f64 {
        self.right_tokens as f64 / self.tokens as f64
    }

    /// Of the answers. One whose tokens are all right given the right ones before them is what greedy decoding writes.
    pub(super) fn sequence_accuracy(self) -> f64 {
        self.right_sequences as f64 / self.sequences as f64
    }

    fn row(&mut self, right: &[bool]) {
        self.tokens += right.len();
        self.right_tokens += right.iter().filter(|&&right| right).count();
        self.sequences += 1;
        self.right_sequences += usize::from(right.iter().all(|&right| right));
    }
}

impl AlgorithmicTask<'_> {
    fn assemble<'e>(exercises: impl Iterator<Item = &'e TokenExercise> + Clone) -> AlgorithmicBatch {
        let width = exercises.clone().map(|exercise| exercise.tokens.len() - 1).max().unwrap_or(0);
        let mut batch = AlgorithmicBatch { inputs: Vec::new(), left_padding: Vec::new(), predicted: Vec::new(), answers: Vec::new() };
        for (row, exercise) in exercises.enumerate() {
            let inputs = &exercise.tokens[..exercise.tokens.len() - 1];
            let padding = width - inputs.len();
            batch.inputs.extend(std::iter::repeat_n(PAD as i32, padding).chain(inputs.iter().map(|&token| token as i32)));
            batch.left_padding.push(padding);
            let answer = exercise.question..exercise.tokens.len();
            batch.answers.push(answer.len());
            batch.predicted.extend(answer.map(|at| ((row * width + padding + at - 1) as i32, exercise.tokens[at] as i32)));
        }
        batch
    }

    /// Hidden states of the sequences, and of those the states `[P, C]` that predict an answer, with the tokens `[P]` that they are to predict.
    fn hidden(
        model: &LanguageModel,
        batch: &AlgorithmicBatch,
        key: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Hidden, Tensor<2>, Tensor<1, Int>) {
        let device = model.embedding.tokens.weight.device();
        let rows = batch.left_padding.len();
        let width = batch.inputs.len() / rows;
        let inputs = Tensor::<2, Int>::from_data(TensorData::new(batch.inputs.clone(), [rows, width]), &device);
        let padding = if batch.left_padding.iter().all(|&count| count == 0) { &[][..] } else { &batch.left_padding };
        let hidden = model.hidden(inputs, padding, key, probe);
        let count = batch.predicted.len();
        let integers = |values: Vec<i32>| Tensor::<1, Int>::from_data(TensorData::new(values, [count]), &device);
        let (at, targets) = batch.predicted.iter().copied().unzip();
        let [_, _, d_model] = hidden.states.dims();
        let answering = hidden.states.clone().reshape([rows * width, d_model]).select(0, integers(at));
        (hidden, answering, integers(targets))
    }

    /// Shows an exercise to a model.
    pub(super) fn show(model: &LanguageModel, exercise: &TokenExercise, probe: &mut Probe) {
        Self::hidden(model, &Self::assemble(std::iter::once(exercise)), None, probe);
    }

    /// Negative log-likelihood of the answers, with the auxiliary losses.
    fn loss(model: &LanguageModel, batch: &AlgorithmicBatch, key: RandomKey, probe: &mut Probe) -> Tensor<1> {
        let (hidden, answering, targets) = Self::hidden(model, batch, Some(key), probe);
        let loss = model.cross_entropy(answering, targets, None, 0.0).loss;
        with_auxiliary(loss, &hidden.losses, batch.predicted.len())
    }

    /// What is answered right; `None` if the interrupt was raised meanwhile.
    pub(super) fn answers(&self, model: &LanguageModel, exercises: &[TokenExercise], interrupt: Option<&Interrupt>) -> Option<Answers> {
        let lengths: Vec<_> = exercises.iter().map(|exercise| (exercise.tokens.len(), 0)).collect();
        let batches = sequential_batches(&lengths, self.config.data.batch_tokens);
        let bar = scoring_bar("scoring", batches.len());
        let mut answers = Answers::default();
        for items in batches {
            if interrupt.is_some_and(Interrupt::is_raised) {
                return None;
            }
            let batch = Self::assemble(items.iter().map(|&item| &exercises[item]));
            let (_, answering, targets) = Self::hidden(model, &batch, None, &mut Probe::off());
            let chosen = model.project(answering).argmax(1).squeeze_dim::<1>(1);
            let right: Vec<bool> = read(chosen.equal(targets)).iter::<bool>().collect();
            let mut rest = right.as_slice();
            for &count in &batch.answers {
                let (row, after) = rest.split_at(count);
                answers.row(row);
                rest = after;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Some(answers)
    }

    /// After how many steps each position of some exercises halted: as text with a line of words and one of steps for each exercise, and the mean. `None` for
    /// models that do not halt.
    pub(super) fn halting(&self, model: &LanguageModel, exercises: &[TokenExercise]) -> Option<(String, f64)> {
        let (mut text, mut total, mut count) = (String::new(), 0.0, 0);
        for exercise in exercises {
            let batch = Self::assemble(std::iter::once(exercise));
            let mut steps: Vec<f32> = Vec::new();
            let mut listener = |_: &str, observation: Observation| {
                if let Observation::HaltingSteps(found) = observation {
                    steps = read(found).iter::<f32>().collect();
                }
            };
            Self::hidden(model, &batch, None, &mut Probe::listening(&mut listener));
            if steps.is_empty() {
                return None;
            }
            let words = exercise.tokens.iter().map(|&token| self.dataset.tokeniser.token(token));
            let cells: Vec<_> = words.zip(&steps).map(|(word, steps)| (word.to_owned(), format!("{steps:.0}"))).collect();
            let line = |of: &dyn Fn(&(String, String)) -> String| {
                let cells = cells.iter().map(|cell| format!("{:>width$}", of(cell), width = cell.0.len().max(cell.1.len())));
                cells.collect::<Vec<_>>().join(" ")
            };
            let _ = writeln!(text, "{}\n{}\n", line(&|cell| cell.0.clone()), line(&|cell| cell.1.clone()));
            total += steps.iter().map(|&steps| f64::from(steps)).sum::<f64>();
            count += steps.len();
        }
        Some((text, total / count as f64))
    }
}

/// The model with `rounds` rounds of hashing for sequences of any length in all its attentions, or full attention for 0 rounds; `None` if they are no LSH
/// attentions.
pub(super) fn with_rounds(model: &LanguageModel, rounds: usize) -> Option<LanguageModel> {
    let mut model = model.clone();
    let key = RandomKey::from_seed(0).named("rounds");
    for (layer, block) in model.decoder.layers.iter_mut().enumerate() {
        let lsh = block.self_attention.get_mut::<Lsh>()?;
        *lsh = match rounds {
            0 => lsh.clone().with_full_attention_below(usize::MAX),
            _ => lsh.clone().with_rounds(rounds, &key.numbered(layer as u64)).with_full_attention_below(0),
        };
    }
    Some(model)
}

impl Objective for AlgorithmicTask<'_> {
    type Model = LanguageModel;
    type Batch = AlgorithmicBatch;

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let lengths: Vec<_> = self.dataset.train.iter().map(|exercise| (exercise.tokens.len(), 0)).collect();
        token_budget_batches(&lengths, self.config.data.batch_tokens, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> AlgorithmicBatch {
        Self::assemble(items.iter().map(|&item| &self.dataset.train[item]))
    }

    fn units(&self, batch: &AlgorithmicBatch) -> usize {
        batch.predicted.len()
    }

    fn loss(&self, model: &LanguageModel, batch: &AlgorithmicBatch, key: RandomKey) -> Tensor<1> {
        Self::loss(model, batch, key, &mut Probe::off())
    }

    fn evaluate(&self, model: &LanguageModel) -> Vec<(String, f64)> {
        let answers = self.answers(model, &self.dataset.valid, None).expect("it is not interrupted");
        vec![("token accuracy".to_owned(), answers.token_accuracy()), ("sequence accuracy".to_owned(), answers.sequence_accuracy())]
    }

    fn selection(&self) -> Selection {
        Selection::highest("token accuracy")
    }

    fn locate_non_finite(&self, model: &LanguageModel, batch: &AlgorithmicBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            Self::loss(model, batch, key, probe);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use heedful_attention::mechanisms::lsh::LshConfig;
    use heedful_attention::registry::AnyMechanism;

    use crate::model::ModelSettings;

    /// The states of 16 different tokens.
    fn states(model: &LanguageModel) -> TensorData {
        let tokens = Tensor::<1, Int>::arange(0..16, &Device::flex()).reshape([1, 16]);
        model.hidden(tokens, &[], None, &mut Probe::off()).states.into_data()
    }

    #[test]
    fn the_rounds_of_all_layers_are_changed() {
        let settings = ModelSettings { d_model: 16, heads: 2, d_ff: 16, ..ModelSettings::default() };
        let hashing = LshConfig::default().with_chunk(2).with_rounds(2).with_full_attention_below(0);
        let init =
            |attention: AnyMechanism| settings.language_model(16, &attention.into(), true).init(&RandomKey::from_seed(1), &Device::flex());
        let model = init(AnyMechanism::from(hashing.clone()));
        let with = |rounds| states(&with_rounds(&model, rounds).unwrap());
        assert_eq!(with(2), states(&model));
        assert_ne!(with(1), with(2));
        assert_ne!(with(4), with(2));
        let unhashed = init(AnyMechanism::from(hashing.with_full_attention_below(64)));
        assert_eq!(with(0), states(&unhashed));
        assert_ne!(with(0), with(2));
        assert!(with_rounds(&init(AnyMechanism::default()), 1).is_none());
    }
}
