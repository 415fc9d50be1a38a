//! Questions with one right answer, for language models: exercises as tokens, and the task of answering them.
//!
//! A model reads a question and continues with its answer; only the answer counts. Batches are padded on the left.

use std::collections::BTreeMap;

use burn::tensor::{Int, Tensor};
use heedful_data::tokenise::PAD;
use heedful_models::architectures::language_model::LanguageModel;
use heedful_models::block::Hidden;

use super::prelude::*;
use super::scoring::{Tally, are_right, integers, of_items, score_batches};
use crate::train::batch::{at_least_in_a_batch, sequential_batches, token_budget_batches};

/// What the test set is called.
pub(crate) const TEST_SET: &str = "test set";

/// A question and its answer.
#[derive(Clone, Debug)]
pub struct TokenExercise {
    pub(crate) tokens: Vec<u32>,
    /// Length of the question.
    pub(crate) question: usize,
}

/// What items of questions are called.
pub(crate) const QUESTIONS: &str = "questions";

impl TokenExercise {
    /// What tells it apart from others.
    pub(crate) fn identity(&self) -> Vec<i64> {
        self.tokens.iter().map(|&token| i64::from(token)).chain([self.question as i64]).collect()
    }

    /// A question of at least one token, and its answer.
    ///
    /// # Panics
    /// If either is empty.
    pub fn new(question: &[u32], answer: &[u32]) -> Self {
        assert!(!question.is_empty() && !answer.is_empty(), "a question and an answer have at least one token each");
        Self { tokens: [question, answer].concat(), question: question.len() }
    }
}

/// Exercises for each purpose.
#[derive(Clone, Debug, Default)]
pub struct ExerciseSets {
    /// For training.
    pub train: Vec<TokenExercise>,
    /// For choosing the best checkpoint.
    pub valid: Vec<TokenExercise>,
    /// For the scores.
    pub test: Vec<TokenExercise>,
    /// For further scores: longer than those of training; may be empty.
    pub longer: Vec<TokenExercise>,
}

impl ExerciseSets {
    /// Tokens that the largest training batch has at least, for a budget of tokens in a batch.
    pub fn batch_tokens(&self, budget: usize) -> usize {
        at_least_in_a_batch(self.lengths(), budget)
    }

    /// Tokens of each training exercise.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.train.iter().map(|exercise| exercise.tokens.len())
    }
}

/// Training a language model to answer.
#[derive(Clone, Copy, Debug)]
pub struct Answering<'a> {
    /// The exercises.
    pub exercises: &'a ExerciseSets,
    /// Tokens in a batch, padding included.
    pub batch_tokens: usize,
}

/// The scores of [`Answering`] as columns of a table: accuracy of the answers' tokens, each given the right ones before it, and of whole answers.
pub fn accuracy_columns() -> Vec<MetricColumn> {
    let accuracy = |name: &str, label: &str| MetricColumn::new(name, label).percent().higher_is_better();
    vec![
        accuracy("token accuracy", "tokens"),
        accuracy("sequence accuracy", "sequences"),
        accuracy("longer token accuracy", "longer: tokens"),
        accuracy("longer sequence accuracy", "longer: sequences"),
    ]
}

/// Sequences, padded on the left, and the answers to predict.
#[derive(Debug)]
pub struct AnswersBatch {
    inputs: Vec<i32>,
    left_padding: Vec<usize>,
    /// Where in the inputs, row after row, a token of an answer is to be predicted, and the token.
    predicted: Vec<(i32, i32)>,
    /// How many of them each row has.
    answers: Vec<usize>,
}

impl Answering<'_> {
    fn assemble<'e>(exercises: impl Iterator<Item = &'e TokenExercise> + Clone) -> AnswersBatch {
        let width = exercises.clone().map(|exercise| exercise.tokens.len() - 1).max().unwrap_or(0);
        let mut batch = AnswersBatch { inputs: Vec::new(), left_padding: Vec::new(), predicted: Vec::new(), answers: Vec::new() };
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
        batch: &AnswersBatch,
        key: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Hidden, Tensor<2>, Tensor<1, Int>) {
        let device = model.embedding.tokens.weight.device();
        let rows = batch.left_padding.len();
        let width = batch.inputs.len() / rows;
        let inputs = integers(batch.inputs.clone(), [rows, width], &device);
        let padding = if batch.left_padding.iter().all(|&count| count == 0) { &[][..] } else { &batch.left_padding };
        let hidden = model.hidden(inputs, padding, key, probe);
        let list = |values: Vec<i32>| integers(values, [batch.predicted.len()], &device);
        let (at, targets) = batch.predicted.iter().copied().unzip();
        let [_, _, d_model] = hidden.states.dims();
        let answering = hidden.states.clone().reshape([rows * width, d_model]).select(0, list(at));
        (hidden, answering, list(targets))
    }

    /// Shows an exercise to a model.
    pub fn show(model: &LanguageModel, exercise: &TokenExercise, probe: &mut Probe) {
        Self::hidden(model, &Self::assemble(std::iter::once(exercise)), None, probe);
    }

    /// Accuracy of the most frequent training token at each place of an answer, whatever the question. Where no training answer is so long, it is the most
    /// frequent token of all.
    pub fn trivial_baseline(&self) -> TrivialBaseline {
        let answer = |exercise: &TokenExercise| exercise.tokens[exercise.question..].to_vec();
        let answers: Vec<Vec<u32>> = self.exercises.train.iter().map(answer).collect();
        let longest = answers.iter().map(Vec::len).max().unwrap_or_default();
        let at = |place: usize| most_frequent(answers.iter().filter_map(|answer| answer.get(place).copied()));
        let (by_place, overall) = ((0..longest).map(at).collect::<Vec<_>>(), most_frequent(answers.iter().flatten().copied()));
        let told = |place: usize| by_place.get(place).copied().flatten().or(overall);
        let of = |exercise: &TokenExercise| {
            let answer = &exercise.tokens[exercise.question..];
            [answer.len(), answer.iter().enumerate().filter(|(place, token)| told(*place) == Some(**token)).count()]
        };
        let scores = |split: Split| self.scores(split, |exercises| Some(Tally(exercises.iter().map(of).collect())));
        let [valid, test] = [Split::Valid, Split::Test].map(|split| scores(split).map_or_else(Vec::new, |scores| scores.metrics));
        let what = "the most frequent training token at each place of an answer, whatever the question.";
        TrivialBaseline::new("chance", what).scores(test).devs(valid)
    }

    /// What is answered right; `None` if the interrupt was raised meanwhile.
    pub(crate) fn answers(&self, model: &LanguageModel, exercises: &[TokenExercise], interrupt: &Interrupt) -> Option<Tally> {
        let lengths: Vec<_> = exercises.iter().map(|exercise| (exercise.tokens.len(), 0)).collect();
        let batches = sequential_batches(&lengths, self.batch_tokens);
        let mut answers = Tally(vec![[0; 2]; exercises.len()]);
        score_batches(("scoring", batches.len()), batches, interrupt, |items| {
            let batch = Self::assemble(items.iter().map(|&item| &exercises[item]));
            let (_, answering, targets) = Self::hidden(model, &batch, None, &mut Probe::off());
            let right = are_right(model.project(answering), targets);
            items.iter().zip(of_items(&right, &batch.answers)).for_each(|(&item, counts)| answers.0[item] = counts);
            1
        })?;
        Some(answers)
    }

    /// The scores of a split by what is answered right of its sets.
    fn scores(&self, split: Split, mut answers_of: impl FnMut(&[TokenExercise]) -> Option<Tally>) -> Option<Scores> {
        let ExerciseSets { valid, test, longer, .. } = self.exercises;
        let sets = match split {
            Split::Valid => vec![("", "validation set", valid)],
            Split::Test => vec![("", TEST_SET, test), ("longer ", "longer test set", longer)],
        };
        let mut scores = Scores::default();
        for (prefix, set, exercises) in sets {
            if exercises.is_empty() {
                continue;
            }
            let answers = answers_of(exercises)?;
            let signature = format!("{set}, {} questions, answers given the right tokens before", exercises.len());
            answers.score(&mut scores, prefix, [signature.clone(), signature]);
            if split == Split::Test {
                answers.score_items(&mut scores, prefix, (set, QUESTIONS), exercises.iter().map(TokenExercise::identity));
            }
        }
        Some(scores)
    }
}

/// The most frequent answer, of equals the smallest; `None` without any.
pub(crate) fn most_frequent<A: Ord>(answers: impl Iterator<Item = A>) -> Option<A> {
    let mut counts = BTreeMap::<A, usize>::new();
    answers.for_each(|answer| *counts.entry(answer).or_default() += 1);
    counts.into_iter().rev().max_by_key(|&(_, count)| count).map(|(answer, _)| answer)
}

impl Task for Answering<'_> {
    type Model = LanguageModel;
    type Batch = AnswersBatch;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let lengths: Vec<_> = self.exercises.train.iter().map(|exercise| (exercise.tokens.len(), 0)).collect();
        token_budget_batches(&lengths, self.batch_tokens, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> AnswersBatch {
        Self::assemble(items.iter().map(|&item| &self.exercises.train[item]))
    }

    fn units(&self, batch: &AnswersBatch) -> usize {
        batch.predicted.len()
    }

    fn loss(&self, model: &LanguageModel, batch: &AnswersBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (hidden, answering, targets) = Self::hidden(model, batch, Some(pass.key), probe);
        let loss = model.cross_entropy(answering, targets, None, 0.0).loss;
        TrainingLoss::new(loss, &hidden.losses, batch.predicted.len())
    }

    fn evaluate(&self, model: &LanguageModel, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        self.scores(split, |exercises| self.answers(model, exercises, interrupt))
    }

    fn lengths(&self) -> Option<Vec<usize>> {
        Some(self.exercises.lengths().collect())
    }

    fn selection(&self) -> Selection {
        Selection::highest("token accuracy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_tells_the_most_frequent_token_of_each_place() {
        let exercise = |answer: &[u32]| TokenExercise::new(&[9, 8], answer);
        let train = vec![exercise(&[1, 3]), exercise(&[1, 4]), exercise(&[2, 3])];
        let (test, longer) = (vec![exercise(&[1, 3]), exercise(&[2, 3])], vec![exercise(&[1, 4, 1, 7])]);
        let exercises = ExerciseSets { valid: train.clone(), train, test, longer };
        let baseline = Answering { exercises: &exercises, batch_tokens: 10 }.trivial_baseline();
        let of = |metric: &str| baseline.metric(metric).unwrap();
        assert_eq!((of("token accuracy"), of("sequence accuracy")), (0.75, 0.5));
        // 1 and 3 occur as often, and what is told behind the known places is the smaller one.
        assert_eq!((of("longer token accuracy"), of("longer sequence accuracy")), (0.5, 0.0));
        assert_eq!(baseline.dev["sequence accuracy"], 1.0 / 3.0);
    }
}
