//! Scores of what a model said of a set of examples.

use heedful_data::glue::{Label, Target};
use heedful_metrics::grouped::{Candidate, answer_scores, choice_accuracy, text_scores};
use heedful_metrics::{ConfusionMatrix, pearson, spearman};

use super::examples::{Question, TokenExample};
use crate::tasks::scoring::first_greatest;

/// The official metrics of a question, as fractions, and accuracy beside them where classes are told. `outputs` are the numbers that the model gave for each
/// example.
pub(super) fn metrics(question: &Question, examples: &[&TokenExample], outputs: &[Vec<f32>]) -> Vec<(&'static str, f64)> {
    if question.is_grouped {
        return of_groups(question, examples, outputs);
    }
    let Target::Classes(classes) = question.target else {
        let actual: Vec<f64> = examples.iter().map(|example| f64::from(score(example.label))).collect();
        let predicted: Vec<f64> = outputs.iter().map(|row| f64::from(row[0])).collect();
        let undefined = |value: Option<f64>| value.unwrap_or(f64::NAN);
        return vec![("pearson", undefined(pearson(&actual, &predicted))), ("spearman", undefined(spearman(&actual, &predicted)))];
    };
    let actual: Vec<usize> = examples.iter().map(|example| class(example.label)).collect();
    let predicted: Vec<usize> = outputs.iter().map(|row| first_greatest(row)).collect();
    let confusion = ConfusionMatrix::from_labels(classes, &actual, &predicted);
    let value = |metric: &&'static str| match *metric {
        "matthews" => confusion.matthews_correlation().value,
        "f1" => confusion.binary_scores(1).f1,
        "macro_f1" => confusion.macro_f1().unwrap_or(f64::NAN),
        _ => confusion.accuracy().unwrap_or(f64::NAN),
    };
    let mut metrics: Vec<_> = question.metrics.iter().map(|metric| (*metric, value(metric))).collect();
    if !question.metrics.contains(&"accuracy") {
        metrics.push(("accuracy", value(&"accuracy")));
    }
    metrics
}

/// Metrics of questions whose examples are candidate answers.
fn of_groups(question: &Question, examples: &[&TokenExample], outputs: &[Vec<f32>]) -> Vec<(&'static str, f64)> {
    let candidates = candidates(examples, outputs);
    let undefined = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let texts = texts(examples).and_then(|texts| text_scores(&candidates, &texts));
    let answers = answer_scores(&candidates);
    let value = |metric: &&'static str| match *metric {
        "f1a" => undefined(answers.map(|scores| scores.f1)),
        "f1" => undefined(texts.map(|scores| scores.f1)),
        "em" => undefined(texts.map(|scores| scores.exact_match).or(answers.map(|scores| scores.exact_match))),
        _ => undefined(choice_accuracy(&candidates)),
    };
    question.metrics.iter().map(|metric| (*metric, value(metric))).collect()
}

/// The candidate answers and what the model said of them.
pub(super) fn candidates(examples: &[&TokenExample], outputs: &[Vec<f32>]) -> Vec<Candidate> {
    let candidate = |(example, row): (&&TokenExample, &Vec<f32>)| Candidate {
        group: example.group.expect("a candidate answer belongs to a question"),
        score: f64::from(row[1]) - f64::from(row[0]),
        is_right: class(example.label) == 1,
    };
    examples.iter().zip(outputs).map(candidate).collect()
}

/// The texts of candidate answers and the right answers, where answers are texts.
pub(super) fn texts<'e>(examples: &[&'e TokenExample]) -> Option<Vec<(&'e str, &'e [String])>> {
    examples.iter().map(|example| example.entity.as_ref().map(|entity| (entity.text.as_str(), &*entity.answers))).collect()
}

pub(super) fn class(label: Label) -> usize {
    match label {
        Label::Class(class) => class,
        Label::Score(_) => unreachable!("the reader gives classes for a task that has them"),
    }
}

pub(super) fn score(label: Label) -> f32 {
    match label {
        Label::Score(score) => score,
        Label::Class(_) => unreachable!("the reader gives scores for a task that has them"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use heedful_data::glue::{Entity, GlueTask};

    use super::*;

    fn example(label: usize, group: Option<usize>, entity: Option<&str>) -> TokenExample {
        let entity = entity.map(|text| Entity { text: text.to_owned(), answers: Arc::from(["The Rhine".to_owned()]) });
        TokenExample { tokens: vec![1], first: 1, separators: 1, words: Default::default(), label: Label::Class(label), group, entity }
    }

    fn scored(task: GlueTask, examples: &[TokenExample], outputs: &[[f32; 2]]) -> Vec<(&'static str, f64)> {
        let outputs: Vec<Vec<f32>> = outputs.iter().map(|row| row.to_vec()).collect();
        metrics(&task.into(), &examples.iter().collect::<Vec<_>>(), &outputs)
    }

    #[test]
    fn candidates_of_a_question_are_scored_together() {
        let copa = [example(0, Some(0), None), example(1, Some(0), None), example(1, Some(1), None), example(0, Some(1), None)];
        // Both candidates of the first question look wrong, the right one less so.
        let outputs = [[3.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]];
        assert_eq!(scored(GlueTask::Copa, &copa, &outputs), [("accuracy", 0.5)]);
        assert_eq!(scored(GlueTask::MultiRc, &copa, &outputs), [("f1a", 0.5), ("em", 0.0)]);
        let record = [example(0, Some(0), Some("Mosel")), example(1, Some(0), Some("Rhine"))];
        assert_eq!(scored(GlueTask::Record, &record, &[[0.0, 1.0], [0.0, 2.0]]), [("f1", 1.0), ("em", 1.0)]);
        assert_eq!(scored(GlueTask::Record, &record, &[[0.0, 2.0], [0.0, 1.0]]), [("f1", 0.0), ("em", 0.0)]);
    }

    #[test]
    fn other_examples_are_scored_one_by_one() {
        let examples = [example(0, None, None), example(1, None, None), example(1, None, None), example(0, None, None)];
        let outputs = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]];
        let found = scored(GlueTask::Mrpc, &examples, &outputs);
        assert_eq!(found, [("f1", 2.0 / 3.0), ("accuracy", 0.75)]);
        assert_eq!(scored(GlueTask::Cola, &examples, &outputs).last(), Some(&("accuracy", 0.75)));
    }
}
