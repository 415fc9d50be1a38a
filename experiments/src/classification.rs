//! GLUE-style classification and regression of sentences and pairs: the experiment `glue`.

mod config;
mod task;

use burn::tensor::Device;
use heedful_attention::random::RandomKey;
use heedful_models::classifier::Classifier;

use crate::comparison::{Attention, Comparison, Dataset, Scores};
use crate::data::generate::{self, Sizes};
use crate::data::glue::{Example, GlueData, GlueTask, Label};
use crate::error::ExperimentError;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::tokenise::{CLASSIFY, SEPARATE, Tokeniser};
use crate::train::Interrupt;

pub use config::{ClassificationConfig, ClassificationData};
pub use task::{ClassificationBatch, ClassificationTask};

/// `<cls> first <sep>` or `<cls> first <sep> second <sep>` (Devlin et al. 2019), and which of the two sentences each token belongs to.
#[derive(Clone, Debug)]
struct TokenExample {
    tokens: Vec<u32>,
    /// Length of the part that belongs to the first sentence.
    first: usize,
    label: Label,
}

/// A tokenised task.
#[derive(Debug)]
pub struct ClassificationDataset {
    name: String,
    data: GlueData,
    tokeniser: Tokeniser,
    train: Vec<TokenExample>,
    dev: Vec<(String, Vec<TokenExample>)>,
    truncated: usize,
}

impl Dataset for ClassificationDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sha256(&self) -> &str {
        &self.data.sha256
    }

    fn description(&self) -> String {
        let dev: Vec<_> = self.dev.iter().map(|(name, examples)| format!("{name} {}", examples.len())).collect();
        let unlabelled: usize = self.data.without_gold_label.iter().map(|(_, rows)| rows).sum();
        format!(
            "{} training examples; development sets: {} ({unlabelled} rows without a gold label left out, {} examples over the maximal length \
             cut off); {} tokens in the vocabulary",
            self.train.len(),
            dev.join(", "),
            self.truncated,
            self.tokeniser.vocabulary_size()
        )
    }

    fn tokeniser(&self) -> &Tokeniser {
        &self.tokeniser
    }
}

/// The comparison of attentions on GLUE tasks, each model trained from scratch on one task.
#[derive(Debug)]
pub struct Classification;

impl Comparison for Classification {
    const NAME: &'static str = "glue";
    const TITLE: &'static str = "GLUE, from scratch";
    const DATA: &'static [&'static str] = &["tokeniser", "data.tasks", "data.generated_examples", "model.max_length"];
    type Config = ClassificationConfig;
    type Dataset = ClassificationDataset;
    type Model = Classifier;
    type Task<'a> = ClassificationTask<'a>;

    fn check(settings: &Settings<ClassificationConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let ClassificationConfig { data, model, .. } = &settings.value;
        if data.tasks.is_empty() {
            let names: Vec<_> = GlueTask::ALL.iter().map(|task| task.name()).collect();
            return Err(settings.refuse("data.tasks", format!("no task is named; known are {}", names.join(", "))).into());
        }
        for (index, task) in data.tasks.iter().enumerate() {
            if data.tasks[..index].contains(task) {
                return Err(settings.refuse("data.tasks", format!("{} is named twice", task.name())).into());
            }
        }
        for (field, value) in [("data.batch_tokens", data.batch_tokens), ("data.generated_examples", data.generated_examples)] {
            if value == 0 {
                return Err(settings.refuse(field, "it must be at least 1").into());
            }
        }
        if model.max_length < 5 {
            let problem = "the class token, two separators and a token of each sentence need at least 5";
            return Err(settings.refuse("model.max_length", problem).into());
        }
        for attention in attentions {
            settings.value.model(1, data.tasks[0], attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn datasets(config: &ClassificationConfig) -> Result<Vec<ClassificationDataset>, ExperimentError> {
        config.data.tasks.iter().map(|&task| dataset(config, task)).collect()
    }

    fn task<'a>(config: &'a ClassificationConfig, dataset: &'a ClassificationDataset) -> ClassificationTask<'a> {
        ClassificationTask { config, dataset }
    }

    fn model(
        config: &ClassificationConfig,
        dataset: &ClassificationDataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Classifier {
        config.model(dataset.tokeniser.vocabulary_size(), dataset.data.task, attention).init(key, device)
    }

    fn score(
        task: &ClassificationTask,
        model: &Classifier,
        _paths: &RunPaths,
        _interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let mut scores = Scores::default();
        for (index, (name, examples)) in task.dataset.dev.iter().enumerate() {
            for (metric, value) in task.metrics(model, examples) {
                let signature = format!("{name}, {} examples", examples.len());
                if task.dataset.dev.len() > 1 {
                    scores.push(&format!("{name}/{metric}"), value, signature.clone());
                }
                if index == 0 {
                    scores.push(metric, value, signature);
                }
            }
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        let column = |name| MetricColumn::new(name, name).percent().higher_is_better();
        ["matthews", "accuracy", "f1", "pearson", "spearman", "dev_mismatched/accuracy"].map(column).to_vec()
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::glue()
    }
}

fn dataset(config: &ClassificationConfig, task: GlueTask) -> Result<ClassificationDataset, ExperimentError> {
    let (name, data) = match &config.run.data {
        Some(dir) => (task.name().to_owned(), GlueData::read(dir, task).map_err(ExperimentError::failure)?),
        None => {
            let sizes = Sizes { train: config.data.generated_examples, ..Sizes::GLUE };
            let key = RandomKey::from_seed(0).named("glue data");
            (format!("built-in {}", task.name()), generate::glue(task, &key, sizes).map_err(ExperimentError::usage)?)
        }
    };
    let lines = data.train.iter().flat_map(|example| std::iter::once(example.first.as_str()).chain(example.second.as_deref()));
    let tokeniser = Tokeniser::train(&config.tokeniser, lines).map_err(ExperimentError::usage)?;
    let mut truncated = 0;
    let mut encode = |examples: &[Example]| -> Vec<TokenExample> {
        examples
            .iter()
            .map(|example| {
                let second = example.second.as_deref().map(|second| tokeniser.encode(second));
                let (tokens, was_cut) = compose(tokeniser.encode(&example.first), second, config.model.max_length);
                truncated += usize::from(was_cut);
                let first = tokens.iter().position(|&token| token == SEPARATE).map_or(tokens.len(), |at| at + 1);
                TokenExample { tokens, first, label: example.label }
            })
            .collect()
    };
    let train = encode(&data.train);
    let dev = data.dev.iter().map(|(name, examples)| (name.clone(), encode(examples))).collect();
    if truncated > 0 {
        tracing::warn!(
            "{name}: {truncated} examples are longer than model.max_length = {} tokens and are cut off",
            config.model.max_length
        );
    }
    Ok(ClassificationDataset { name, data, tokeniser, train, dev, truncated })
}

/// The token sequence of an example, and whether it had to be cut to `max_length`: the longer sentence loses its last tokens first.
fn compose(mut first: Vec<u32>, second: Option<Vec<u32>>, max_length: usize) -> (Vec<u32>, bool) {
    let mut second = second;
    let special = if second.is_some() { 3 } else { 2 };
    let mut was_cut = false;
    while first.len() + second.as_ref().map_or(0, Vec::len) + special > max_length {
        match &mut second {
            Some(second) if second.len() > first.len() => second.pop(),
            _ => first.pop(),
        };
        was_cut = true;
    }
    let mut tokens = vec![CLASSIFY];
    tokens.append(&mut first);
    tokens.push(SEPARATE);
    if let Some(mut second) = second {
        tokens.append(&mut second);
        tokens.push(SEPARATE);
    }
    (tokens, was_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_framed_by_class_token_and_separators() {
        assert_eq!(compose(vec![10, 11], None, 8), (vec![CLASSIFY, 10, 11, SEPARATE], false));
        assert_eq!(compose(vec![10], Some(vec![20]), 8), (vec![CLASSIFY, 10, SEPARATE, 20, SEPARATE], false));
    }

    #[test]
    fn the_longer_sentence_is_cut_first() {
        let (tokens, was_cut) = compose(vec![10, 11], Some(vec![20, 21, 22, 23]), 7);
        assert_eq!(tokens, [CLASSIFY, 10, 11, SEPARATE, 20, 21, SEPARATE]);
        assert!(was_cut);
    }
}
