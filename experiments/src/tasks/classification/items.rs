//! What each example, or each question with its candidate answers, contributes to the scores.

use std::collections::BTreeMap;

use heedful_data::glue::{Label, Target};
use heedful_metrics::grouped::{Candidate, answer_scores, choice_accuracy, text_scores};
use heedful_metrics::{Combination, ConfusionScore, ItemScore, ItemTable};

use super::examples::{Question, TokenExample};
use super::scoring::{candidates, class, score, texts};
use crate::tasks::scoring::first_greatest;

/// The statistics of the items of a set, in its order, and how each metric is made of them. `order` says which example of the set each of `examples` is.
pub(super) fn items(
    set: &str,
    question: &Question,
    order: &[usize],
    examples: &[&TokenExample],
    outputs: &[Vec<f32>],
) -> (ItemTable, Vec<(&'static str, ItemScore)>) {
    if question.is_grouped {
        return of_groups(set, question, examples, outputs);
    }
    let is_class = matches!(question.target, Target::Classes(_));
    let mut table = ItemTable::new(set, if is_class { &["actual", "predicted", "right"] } else { &["actual", "predicted"] });
    let mut rows: Vec<usize> = (0..order.len()).collect();
    rows.sort_by_key(|&row| order[row]);
    for row in rows {
        let (example, output) = (examples[row], &outputs[row]);
        if is_class {
            let (actual, predicted) = (class(example.label), first_greatest(output));
            table.push_tokens(identity(example), &[actual as f64, predicted as f64, f64::from(u8::from(actual == predicted))]);
        } else {
            table.push_tokens(identity(example), &[f64::from(score(example.label)), f64::from(output[0])]);
        }
    }
    let of = |combination, statistics: &[&str]| ItemScore::new(set, "examples", combination, statistics);
    let made_of = |metric: &&'static str| {
        let labels = |classes, score| of(Combination::Confusion { classes, score }, &["actual", "predicted"]);
        let made_of = match (question.target, *metric) {
            (Target::Range(..), "pearson") => of(Combination::Pearson, &["actual", "predicted"]),
            // Ranks change with the items that are drawn.
            (Target::Range(..), _) => return None,
            (Target::Classes(classes), "matthews") => labels(classes, ConfusionScore::Matthews),
            (Target::Classes(classes), "f1") => labels(classes, ConfusionScore::F1),
            (Target::Classes(classes), "macro_f1") => labels(classes, ConfusionScore::MacroF1),
            (Target::Classes(_), _) => of(Combination::Mean, &["right"]),
        };
        Some((*metric, made_of))
    };
    let beside = (is_class && !question.metrics.contains(&"accuracy")).then_some(&"accuracy");
    let made_of = question.metrics.iter().chain(beside).filter_map(made_of).collect();
    (table, made_of)
}

/// Items are questions: their candidate answers stand and fall together.
fn of_groups(
    set: &str,
    question: &Question,
    examples: &[&TokenExample],
    outputs: &[Vec<f32>],
) -> (ItemTable, Vec<(&'static str, ItemScore)>) {
    let all = candidates(examples, outputs);
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    all.iter().enumerate().for_each(|(index, candidate)| groups.entry(candidate.group).or_default().push(index));
    // Twice the right answers that were taken for right, and the answers that are right or were taken for right: F1 is their ratio.
    let statistics = |metric: &'static str| match metric {
        "f1a" => vec!["shared", "taken and right"],
        "accuracy" => vec!["right"],
        other => vec![other],
    };
    let names: Vec<&str> = question.metrics.iter().flat_map(|metric| statistics(metric)).collect();
    let mut table = ItemTable::new(set, &names);
    for indices in groups.values() {
        let own: Vec<Candidate> = indices.iter().map(|&index| all[index]).collect();
        let own_examples: Vec<&TokenExample> = indices.iter().map(|&index| examples[index]).collect();
        let texts = texts(&own_examples).and_then(|texts| text_scores(&own, &texts));
        let values = question.metrics.iter().flat_map(|metric| match *metric {
            "f1a" => {
                let count = |is_counted: &dyn Fn(&Candidate) -> bool| own.iter().filter(|candidate| is_counted(candidate)).count() as f64;
                let taken = |candidate: &Candidate| candidate.score > 0.0;
                let shared = count(&|candidate| candidate.is_right && taken(candidate));
                vec![2.0 * shared, count(&|candidate| candidate.is_right) + count(&taken)]
            }
            "f1" => vec![texts.map_or(f64::NAN, |scores| scores.f1)],
            "em" => {
                let answers = || answer_scores(&own).map(|scores| scores.exact_match);
                vec![texts.map(|scores| scores.exact_match).or_else(answers).unwrap_or(f64::NAN)]
            }
            _ => vec![choice_accuracy(&own).unwrap_or(f64::NAN)],
        });
        // Candidates come in the order of batches, which the model does not decide.
        table.push_tokens(own_examples.iter().flat_map(|example| identity(example)), &values.collect::<Vec<_>>());
    }
    let made_of = question.metrics.iter().map(|metric| {
        let combination = if *metric == "f1a" { Combination::Ratio } else { Combination::Mean };
        (*metric, ItemScore::new(set, "questions", combination, &statistics(metric)))
    });
    (table, made_of.collect())
}

/// What tells an example from others: its tokens and its right answer.
fn identity(example: &TokenExample) -> impl Iterator<Item = i64> {
    let label = match example.label {
        Label::Class(class) => class as i64,
        Label::Score(score) => i64::from(score.to_bits()),
    };
    example.tokens.iter().map(|&token| i64::from(token)).chain([-1, label])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use heedful_data::glue::{Entity, GlueTask};
    use heedful_random::RandomKey;
    use rand::RngExt;
    use rand::seq::SliceRandom;

    use super::super::scoring::metrics;
    use super::*;

    #[test]
    fn items_make_the_metrics_of_all_tasks_in_any_order_of_batches() {
        let tasks = [
            GlueTask::Cola,
            GlueTask::Mrpc,
            GlueTask::StsB,
            GlueTask::Mnli,
            GlueTask::Cb,
            GlueTask::Copa,
            GlueTask::MultiRc,
            GlueTask::Record,
        ];
        let mut rng = RandomKey::from_seed(1).rng();
        for task in tasks {
            let question = Question::from(task);
            let example = |index: usize, rng: &mut dyn FnMut() -> f32| TokenExample {
                tokens: vec![index as u32],
                first: 1,
                separators: 1,
                words: Default::default(),
                label: match question.target {
                    Target::Classes(classes) => Label::Class((rng() * classes as f32) as usize % classes),
                    Target::Range(..) => Label::Score(5.0 * rng()),
                },
                group: question.is_grouped.then_some(index / 3),
                entity: (task == GlueTask::Record).then(|| Entity {
                    text: ["Rhine", "the Main", "Mosel"][index % 3].to_owned(),
                    answers: Arc::from(["Rhine and Main".to_owned()]),
                }),
            };
            let mut draw = || rng.random::<f32>();
            let examples: Vec<TokenExample> = (0..60).map(|index| example(index, &mut draw)).collect();
            let outputs: Vec<Vec<f32>> = examples.iter().map(|_| (0..question.outputs()).map(|_| draw() - 0.5).collect()).collect();
            let mut order: Vec<usize> = (0..60).collect();
            let tables = [0, 1].map(|_| {
                let shown: Vec<&TokenExample> = order.iter().map(|&index| &examples[index]).collect();
                let told: Vec<Vec<f32>> = order.iter().map(|&index| outputs[index].clone()).collect();
                let (table, made_of) = items("dev", &question, &order, &shown, &told);
                let found = metrics(&question, &shown, &told);
                let names = |list: &[&'static str]| list.iter().copied().filter(|name| *name != "spearman").collect::<Vec<_>>();
                assert_eq!(
                    made_of.iter().map(|(metric, _)| *metric).collect::<Vec<_>>(),
                    names(&found.iter().map(|(metric, _)| *metric).collect::<Vec<_>>()),
                    "{task}"
                );
                for (metric, score) in made_of {
                    let expected = found.iter().find(|(other, _)| *other == metric).unwrap().1;
                    let value = score.combination.score(&table.terms(&score).unwrap().total());
                    assert!((value - expected).abs() < 1e-9, "{task}, {metric}: {value} instead of {expected}");
                }
                order.shuffle(&mut RandomKey::from_seed(2).rng());
                table
            });
            if !question.is_grouped {
                assert_eq!(tables[0], tables[1], "{task}");
            }
        }
    }
}
