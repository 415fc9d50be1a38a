//! The scores of the most frequent class and of linear models of counted words.

use heedful_data::glue::Target;
use heedful_metrics::baselines::linear::{Linear, SparseRows, Targets};
use heedful_metrics::baselines::tf_idf::{Texts, TfIdf, bounded};

use super::examples::{Part, Question, TokenExample};
use super::scoring::{class, metrics, score};
use super::task::ClassificationTask;
use crate::tasks::prelude::*;
use crate::tasks::scoring::first_greatest;

/// Weights of a linear model, at most.
const MOST_WEIGHTS: usize = 1 << 20;
/// Terms, at most.
const MOST_TERMS: usize = 1 << 18;
/// The weights of the loss that are tried, scikit-learn's `C`, the default first.
const WEIGHTS_OF_LOSS: [f64; 3] = [1.0, 10.0, 100.0];
/// One in so many training examples chooses among them.
const HELD_OUT: usize = 10;

/// The most frequent class, and linear models of weighted counts; `None` if the interrupt was raised meanwhile.
pub(crate) fn baselines(task: &ClassificationTask<'_>, interrupt: &Interrupt) -> Option<Vec<TrivialBaseline>> {
    let mut baselines = Vec::new();
    let has_classes = task.parts.iter().any(|part| matches!(part.question.target, Target::Classes(_)));
    if has_classes {
        let outputs: Vec<Vec<f32>> = task.parts.iter().map(most_frequent).collect();
        let baseline = TrivialBaseline::new("majority class", "always the most frequent class of the training set.");
        baselines.push(with_scores(baseline, task, |part, examples| vec![outputs[part].clone(); examples.len()])?);
    }
    let models = task.parts.iter().map(|part| Counted::learn(part, interrupt)).collect::<Option<Vec<_>>>()?;
    let is_regression = |part: &Part| matches!(part.question.target, Target::Range(..));
    let kind = match task.parts.iter().filter(|part| is_regression(part)).count() {
        0 => "logistic regression",
        all if all == task.parts.len() => "ridge regression",
        _ => "logistic regression, and ridge regression of scores,",
    };
    let of_pairs = if models.iter().any(|model| model.features.is_of_pairs()) {
        " A pair of texts has features of each, the share of common words and the cosine."
    } else {
        ""
    };
    let all: usize = task.parts.iter().map(|part| part.train.len()).sum();
    let seen = match models.iter().map(|model| model.examples).sum::<usize>() {
        seen if seen < all => seen.to_string(),
        _ => format!("all {all}"),
    };
    let description = format!(
        "{kind} on TF-IDF of lower-case words and pairs of neighbours; texts are cut to the length that models read. C is 1, 10 or 100, the best on \
         a tenth of the training examples, of which {seen} are read.{of_pairs}"
    );
    let counted = TrivialBaseline::new("TF-IDF", description);
    baselines.push(with_scores(counted, task, |part, examples| models[part].outputs(examples))?);
    Some(baselines)
}

/// The baseline with the scores of outputs, which are given the number of a task and examples.
fn with_scores(
    baseline: TrivialBaseline,
    task: &ClassificationTask<'_>,
    outputs: impl Fn(usize, &[TokenExample]) -> Vec<Vec<f32>>,
) -> Option<TrivialBaseline> {
    let of_split = |split: Split| -> Option<Scores> {
        task.scores(split, |part, examples, _| {
            let shown: Vec<&TokenExample> = examples.iter().collect();
            Some((metrics(&task.parts[part].question, &shown, &outputs(part, examples)), None))
        })
    };
    Some(baseline.scores(of_split(Split::Test)?.metrics).devs(of_split(Split::Valid)?.metrics))
}

/// The outputs that always tell the most frequent class of the training set, the first of equals.
fn most_frequent(part: &Part) -> Vec<f32> {
    let Target::Classes(classes) = part.question.target else { return vec![0.0] };
    let mut counts = vec![0_u32; classes];
    part.train.iter().for_each(|example| counts[class(example.label)] += 1);
    let most = first_greatest(&counts);
    (0..classes).map(|class| f32::from(u8::from(class == most))).collect()
}

fn texts<'e>(examples: &[&'e TokenExample]) -> Vec<Texts<'e>> {
    examples.iter().map(|example| example.words()).collect()
}

/// A linear model of weighted counts.
struct Counted {
    features: TfIdf,
    model: Linear,
    examples: usize,
}

/// What is to be predicted of examples.
enum Answers {
    Classes(Vec<usize>, usize),
    Scores(Vec<f64>),
}

impl Answers {
    fn of(question: &Question, examples: &[&TokenExample]) -> Self {
        match question.target {
            Target::Classes(count) => Self::Classes(examples.iter().map(|example| class(example.label)).collect(), count),
            Target::Range(..) => Self::Scores(examples.iter().map(|example| f64::from(score(example.label))).collect()),
        }
    }

    fn targets(&self) -> Targets<'_> {
        match self {
            Self::Classes(classes, count) => Targets::Classes(classes, *count),
            Self::Scores(scores) => Targets::Scores(scores),
        }
    }

    /// How many classes are told wrong, or the sum of the squared errors of scores.
    fn error(&self, outputs: &[Vec<f32>]) -> f64 {
        match self {
            Self::Classes(classes, _) => classes.iter().zip(outputs).filter(|(class, row)| first_greatest(row) != **class).count() as f64,
            Self::Scores(scores) => scores.iter().zip(outputs).map(|(score, row)| (score - f64::from(row[0])).powi(2)).sum(),
        }
    }
}

impl Counted {
    fn learn(part: &Part, interrupt: &Interrupt) -> Option<Self> {
        let examples = bounded(&part.train, |example| example.words().concat().len());
        let of_tenth = |is_held_out: bool| -> Vec<&TokenExample> {
            let chosen = examples.iter().enumerate().filter(|(number, _)| (number % HELD_OUT == HELD_OUT - 1) == is_held_out);
            chosen.map(|(_, example)| *example).collect()
        };
        let (rest, held_out) = (of_tenth(false), of_tenth(true));
        let mut best = (f64::INFINITY, WEIGHTS_OF_LOSS[0]);
        if !held_out.is_empty() {
            let answers = Answers::of(&part.question, &held_out);
            let (features, rows, targets) = Self::features(&part.question, &rest);
            let held_out = features.features(&texts(&held_out));
            for c in WEIGHTS_OF_LOSS {
                let error = answers.error(&Linear::fit(&rows, targets.targets(), c, interrupt)?.outputs(&held_out));
                best = if error < best.0 { (error, c) } else { best };
            }
        }
        let (features, rows, targets) = Self::features(&part.question, &examples);
        let model = Linear::fit(&rows, targets.targets(), best.1, interrupt)?;
        Some(Self { features, model, examples: examples.len() })
    }

    fn features(question: &Question, examples: &[&TokenExample]) -> (TfIdf, SparseRows, Answers) {
        let (texts, answers) = (texts(examples), Answers::of(question, examples));
        let is_of_pairs = texts.iter().any(|[_, second]| !second.is_empty());
        let most = (MOST_WEIGHTS / Linear::vectors(answers.targets())).min(MOST_TERMS) / if is_of_pairs { 2 } else { 1 };
        let features = TfIdf::fit(&texts, most);
        let rows = features.features(&texts);
        (features, rows, answers)
    }

    fn outputs(&self, examples: &[TokenExample]) -> Vec<Vec<f32>> {
        self.model.outputs(&self.features.features(&texts(&examples.iter().collect::<Vec<_>>())))
    }
}

#[cfg(test)]
mod tests {
    use heedful_data::glue::GlueTask;

    use super::*;
    use crate::tasks::classification::{Classification, ClassificationConfig};

    fn of(tasks: &[GlueTask], mixture: bool) -> Vec<TrivialBaseline> {
        let mut config = ClassificationConfig::default();
        (config.own.data.tasks, config.own.data.mixture, config.own.data.generated_examples) = (tasks.to_vec(), mixture, 300);
        let data = Classification::open(&config).unwrap().remove(0);
        Classification::trivial_baselines(&config, &data, &Interrupt::new()).unwrap().unwrap()
    }

    #[test]
    fn single_texts_and_pairs_have_the_majority_and_a_model_of_counts() {
        for task in [GlueTask::Sst2, GlueTask::Mrpc] {
            let baselines = of(&[task], false);
            let [majority, counted] = &baselines[..] else { panic!("{baselines:?}") };
            assert_eq!((majority.name.as_str(), counted.name.as_str()), ("majority class", "TF-IDF"));
            let accuracy = |baseline: &TrivialBaseline| baseline.metric("accuracy").unwrap();
            assert!((0.2..0.8).contains(&accuracy(majority)) && accuracy(counted) >= accuracy(majority), "{task}: {baselines:?}");
            assert_eq!(counted.description.contains("A pair of texts has"), task == GlueTask::Mrpc);
            assert!(counted.dev.contains_key("accuracy"));
        }
    }

    #[test]
    fn scores_have_a_regression_and_no_majority() {
        let baselines = of(&[GlueTask::StsB], false);
        let [counted] = &baselines[..] else { panic!("{baselines:?}") };
        assert!(counted.metric("pearson").unwrap() > 0.3 && counted.description.starts_with("ridge regression"), "{counted:?}");
    }

    #[test]
    fn each_task_of_a_mixture_has_a_model_of_its_own() {
        let baselines = of(&[GlueTask::Sst2, GlueTask::StsB], true);
        let counted = baselines.last().unwrap();
        assert!(counted.metric("SST-2/accuracy").is_some() && counted.metric("STS-B/pearson").is_some(), "{counted:?}");
        assert!(counted.metric("average").is_some());
    }
}
