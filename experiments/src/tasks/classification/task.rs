//! Training and scoring.

use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use heedful_attention::contract::Losses;
use heedful_attention::tensors::read::read;
use heedful_data::glue::{Label, Target};
use heedful_data::tokenise::PAD;
use heedful_models::architectures::classifier::{Classifier, Sentences};
use heedful_models::parts::loss::{cross_entropy, squared_error};
use rand::seq::SliceRandom;

use crate::tasks::prelude::*;
use crate::tasks::scoring::score_batches;
use crate::train::batch::{pad, sequential_batches, token_budget_batches};

use super::examples::{Part, TokenExample};
use super::items::items;
use super::scoring::{class, metrics, score};

/// The mean over tasks of the mean of their metrics, as the benchmarks report it.
pub(crate) const AVERAGE: &str = "average";

/// Training a classifier on one task, or on several whose batches take turns: each task has outputs of its own.
#[derive(Debug)]
pub struct ClassificationTask<'a> {
    pub(crate) parts: &'a [Part],
    /// Tokens in a batch, padding included.
    pub(crate) batch_tokens: usize,
    /// Whether tokens are told which of two texts they belong to.
    pub(crate) segments: bool,
}

/// The metrics of a set, its items, and how metrics are made of these.
pub(super) type Scored = (Vec<(&'static str, f64)>, Option<(ItemTable, Vec<(&'static str, ItemScore)>)>);

/// Padded sequences of one task and their labels.
#[derive(Debug)]
pub struct ClassificationBatch {
    part: usize,
    ids: Vec<i32>,
    segments: Vec<i32>,
    lengths: Vec<usize>,
    labels: Vec<Label>,
}

impl ClassificationTask<'_> {
    fn pad<'e>(&self, part: usize, examples: impl Iterator<Item = &'e TokenExample> + Clone) -> ClassificationBatch {
        let padded = pad(&examples.clone().map(|example| example.tokens.clone()).collect::<Vec<_>>(), PAD);
        let segments = examples
            .clone()
            .flat_map(|example| {
                (0..padded.width).map(move |index| i32::from(index >= example.second_segment() && index < example.tokens.len()))
            })
            .collect();
        let labels = examples.map(|example| example.label).collect();
        ClassificationBatch { part, ids: padded.ids, segments, lengths: padded.lengths, labels }
    }

    /// Logits of the classes, or the prediction, `[B, outputs]`, and the auxiliary losses.
    fn outputs(&self, model: &Classifier, batch: &ClassificationBatch, key: Option<RandomKey>, probe: &mut Probe) -> (Tensor<2>, Losses) {
        let device = model.embedding.tokens.weight.device();
        let rows = batch.lengths.len();
        let shape = [rows, batch.ids.len() / rows];
        let ids = |values: &[i32]| Tensor::<2, Int>::from_data(TensorData::new(values.to_vec(), shape), &device);
        let segments = self.segments.then(|| ids(&batch.segments));
        let scores = model.forward_with(Sentences { tokens: ids(&batch.ids), segments, lengths: &batch.lengths }, key, probe);
        let Part { first_output, question, .. } = &self.parts[batch.part];
        let own = scores.logits.narrow(1, *first_output, question.outputs());
        (own.cast(FloatDType::F32), scores.losses)
    }

    /// Shows an example of the first task to a model.
    pub(crate) fn show(&self, model: &Classifier, example: &TokenExample, probe: &mut Probe) {
        self.outputs(model, &self.pad(0, std::iter::once(example)), None, probe);
    }

    /// The metrics of a task on a set, and what its items contribute to them if it is given a name; `None` if the interrupt was raised meanwhile.
    fn metrics(
        &self,
        model: &Classifier,
        part: usize,
        examples: &[TokenExample],
        set: Option<&str>,
        interrupt: &Interrupt,
    ) -> Option<Scored> {
        let lengths: Vec<_> = examples.iter().map(|example| (example.tokens.len(), 0)).collect();
        let batches = sequential_batches(&lengths, self.batch_tokens);
        let order: Vec<usize> = batches.concat();
        let shown: Vec<&TokenExample> = order.iter().map(|&item| &examples[item]).collect();
        let mut outputs = Vec::with_capacity(examples.len());
        score_batches(("scoring", batches.len()), batches, interrupt, |items| {
            let batch = self.pad(part, items.iter().map(|&item| &examples[item]));
            let (rows, _) = self.outputs(model, &batch, None, &mut Probe::off());
            let width = rows.dims()[1];
            let values: Vec<f32> = read(rows).iter::<f32>().collect();
            outputs.extend(values.chunks(width).map(<[f32]>::to_vec));
            1
        })?;
        let question = &self.parts[part].question;
        Some((metrics(question, &shown, &outputs), set.map(|set| items(set, question, &order, &shown, &outputs))))
    }

    /// The scores of a split of all tasks. `scored_by` is given the number of a task, examples, and the name of their set where items are kept; `None` where it
    /// gives none.
    pub(super) fn scores(
        &self,
        split: Split,
        mut scored_by: impl FnMut(usize, &[TokenExample], Option<&str>) -> Option<Scored>,
    ) -> Option<Scores> {
        let mut scores = Scores::default();
        let mut means = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            let scored = match split {
                Split::Valid => &part.sets[..1],
                Split::Test => &part.sets[part.scored_from..],
            };
            for (index, (name, examples)) in scored.iter().enumerate() {
                let set = (split == Split::Test).then(|| self.named(part, name));
                let (found, items) = scored_by(number, examples, set.as_deref())?;
                if index == 0 {
                    means.push(mean_of(part, &found));
                }
                if let Some((table, made_of)) = items {
                    for (metric, score) in made_of {
                        let metric = self.named(part, metric);
                        if scored.len() > 1 {
                            scores.push_items(&format!("{name}/{metric}"), score.clone());
                        }
                        if index == 0 {
                            scores.push_items(&metric, score);
                        }
                    }
                    scores.items.push(table);
                }
                for (metric, value) in found {
                    let signature = format!("{name}, {} examples", examples.len());
                    let metric = self.named(part, metric);
                    if scored.len() > 1 {
                        scores.push(&format!("{name}/{metric}"), value, signature.clone());
                    }
                    if index == 0 {
                        scores.push(&metric, value, signature);
                    }
                }
            }
        }
        if self.parts.len() > 1 {
            let tasks: Vec<_> = self.parts.iter().map(|part| part.name.as_str()).collect();
            scores.push(AVERAGE, mean(&means), format!("mean over {} of the means of their metrics", tasks.join(", ")));
        }
        Some(scores)
    }

    /// The name of a metric: that of its task stands before it where there are several.
    fn named(&self, part: &Part, metric: &str) -> String {
        if self.parts.len() == 1 { metric.to_owned() } else { format!("{}/{metric}", part.name) }
    }
}

/// The mean of the official metrics of a task.
fn mean_of(part: &Part, found: &[(&'static str, f64)]) -> f64 {
    let official = found.iter().filter(|(metric, _)| part.question.metrics.contains(metric)).map(|(_, value)| *value);
    mean(&official.collect::<Vec<_>>())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Task for ClassificationTask<'_> {
    type Model = Classifier;
    type Batch = ClassificationBatch;
    type Carried = ();

    /// Items are numbers of examples, counted through all tasks. A batch is of one task, and tasks take turns as often as they have batches.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let of_part = |part: &Part, key: &RandomKey| {
            let lengths: Vec<_> = part.train.iter().map(|example| (example.tokens.len(), 0)).collect();
            token_budget_batches(&lengths, self.batch_tokens, key)
        };
        if let [part] = self.parts {
            return of_part(part, key);
        }
        let mut before = 0;
        let mut batches = Vec::new();
        for part in self.parts {
            let own = of_part(part, &key.named(&part.name));
            batches.extend(own.into_iter().map(|items| items.into_iter().map(|item| before + item).collect::<Vec<_>>()));
            before += part.train.len();
        }
        batches.shuffle(&mut key.named("tasks").rng());
        batches
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> ClassificationBatch {
        let (mut part, mut before) = (0, 0);
        while items[0] >= before + self.parts[part].train.len() {
            before += self.parts[part].train.len();
            part += 1;
        }
        self.pad(part, items.iter().map(|&item| &self.parts[part].train[item - before]))
    }

    fn units(&self, batch: &ClassificationBatch) -> usize {
        batch.labels.len()
    }

    fn loss(&self, model: &Classifier, batch: &ClassificationBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (outputs, auxiliary) = self.outputs(model, batch, Some(pass.key), probe);
        let device = outputs.device();
        let rows = batch.labels.len();
        let loss = match self.parts[batch.part].question.target {
            Target::Classes(_) => {
                let classes: Vec<i32> = batch.labels.iter().map(|&label| class(label) as i32).collect();
                let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [rows]), &device);
                cross_entropy(outputs, classes, None, 0.0).loss
            }
            Target::Range(..) => {
                let scores: Vec<f32> = batch.labels.iter().map(|&label| score(label)).collect();
                let scores = Tensor::<1>::from_data(TensorData::new(scores, [rows]), &device);
                squared_error(outputs.reshape([rows]), scores)
            }
        };
        TrainingLoss::new(loss, &auxiliary, rows)
    }

    fn evaluate(&self, model: &Classifier, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        self.scores(split, |part, examples, set| self.metrics(model, part, examples, set, interrupt))
    }

    fn selection(&self) -> Selection {
        match self.parts {
            [part] => Selection::highest(part.question.metrics[0]),
            _ => Selection::highest(AVERAGE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;
    use heedful_data::glue::GlueTask;

    use crate::tasks::classification::{Classification, ClassificationData};
    use crate::tasks::testing::Case;

    #[test]
    fn batches_of_a_mixture_are_of_one_task_and_reach_its_outputs_alone() {
        let config = Config {
            own: Classification {
                data: ClassificationData {
                    tasks: vec![GlueTask::Cola, GlueTask::Mrpc],
                    mixture: true,
                    generated_examples: 40,
                    ..ClassificationData::default()
                },
                ..Classification::default()
            },
            model: ModelSettings { d_model: 8, heads: 2, d_ff: 16, dropout: 0.0, ..ModelSettings::default() },
            ..Config::default()
        };
        let case = Case::<Classification>::new(config, "dot-product");
        let (model, task) = (case.model(1, &Device::flex().autodiff()), Classification::task(case.setup()));
        let epoch = task.epoch(1, &RandomKey::from_seed(2));
        let mut items: Vec<usize> = epoch.concat();
        items.sort_unstable();
        assert_eq!(items, (0..80).collect::<Vec<_>>(), "each example once");
        for items in &epoch {
            let batch = task.batch(items, 1, &RandomKey::from_seed(3));
            let key = RandomKey::from_seed(4);
            let pass = Pass { key, epoch_key: key, step: 1, steps: 1, carried: &mut () };
            let gradients = task.loss(&model, &batch, pass, &mut Probe::off()).total().backward();
            let bias: Vec<f32> = model.output.bias.as_ref().unwrap().grad(&gradients).unwrap().into_data().iter::<f32>().collect();
            let is_first = items[0] < 40;
            assert!(items.iter().all(|&item| (item < 40) == is_first), "{items:?}");
            assert_eq!([bias[0] != 0.0, bias[2] != 0.0], [is_first, !is_first], "{bias:?}");
        }
        let scores = task.evaluate(&model.valid(), Split::Valid, &Interrupt::new()).unwrap();
        let names: Vec<_> = scores.metrics.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["CoLA/matthews", "CoLA/accuracy", "MRPC/f1", "MRPC/accuracy", "average"]);
    }
}
