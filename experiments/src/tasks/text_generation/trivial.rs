//! Baselines: the beginning of a document, and the most frequent reply.

use std::collections::HashMap;

use heedful_data::parallel::Pair;
use heedful_data::summary;
use heedful_metrics::{Rouge, RougeVariant};
use heedful_runs::trivial::TrivialBaseline;

use super::scoring::{Found, metrics};
use super::{GenerationConfig, GenerationDataset, GenerationTask};
use crate::tasks::scoring::first_greatest;

/// Most sentences of a summary.
const MOST_SENTENCES: usize = 3;

/// The lead sentences of documents, or the most frequent reply.
pub(super) fn baseline(config: &GenerationConfig, data: &GenerationDataset) -> TrivialBaseline {
    let corpus = &data.pairs.corpus;
    match data.task {
        GenerationTask::Summary => {
            let rouge = Rouge { variant: RougeVariant::Rouge1, stemmer: config.own.data.stemmer };
            let of_count = |count: usize| {
                let statistics =
                    corpus.valid.iter().map(|pair| rouge.statistics(&lead(&pair.source, count), &[summary::with_line_ends(&pair.target)]));
                statistics.map(|statistics| statistics.f_measure).sum::<f64>()
            };
            let found: Vec<f64> = (1..=MOST_SENTENCES).map(of_count).collect();
            let count = 1 + first_greatest(&found);
            let what = format!(
                "the first sentences of each document, as many (1 to {MOST_SENTENCES}) as are best in ROUGE-1 on the validation set."
            );
            scored(TrivialBaseline::new(&format!("lead-{count}"), what), (config, data), |pair| lead(&pair.source, count))
        }
        GenerationTask::Dialogue => {
            let reply = most_frequent(corpus.train.iter().map(|pair| pair.target.as_str())).unwrap_or_default();
            let what = format!("always the most frequent reply of the training set, {reply:?}.");
            scored(TrivialBaseline::new("most frequent reply", what), (config, data), |_| reply.to_owned())
        }
    }
}

/// The baseline with the scores of what it says to the test sets.
fn scored(
    baseline: TrivialBaseline,
    (config, data): (&GenerationConfig, &GenerationDataset),
    say: impl Fn(&Pair) -> String,
) -> TrivialBaseline {
    let sets = data.pairs.corpus.tests.len();
    let mut scores = Vec::new();
    for (index, (name, pairs, references)) in data.tests(config).enumerate() {
        let hypotheses: Vec<String> = pairs.iter().map(&say).collect();
        for Found { metric, value, .. } in metrics(config, data, &hypotheses, &references) {
            if sets > 1 {
                scores.push((format!("{name}/{metric}"), value));
            }
            if index == 0 {
                scores.push((metric.to_owned(), value));
            }
        }
    }
    baseline.scores(scores)
}

/// The first sentences of a text, one on each line.
fn lead(text: &str, count: usize) -> String {
    let marked = summary::with_line_ends(text);
    let sentences: Vec<&str> = marked.lines().flat_map(sentences).collect();
    sentences[..count.min(sentences.len())].join("\n")
}

/// A line cut behind full stops, question and exclamation marks that white space follows.
fn sentences(line: &str) -> Vec<&str> {
    let (mut sentences, mut rest) = (Vec::new(), line);
    while let Some(end) = rest.match_indices(['.', '?', '!']).map(|(at, _)| at + 1).find(|&at| rest[at..].starts_with(char::is_whitespace))
    {
        let (sentence, after) = rest.split_at(end);
        sentences.push(sentence.trim());
        rest = after.trim_start();
    }
    sentences.push(rest.trim());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

/// The first of the most frequent texts.
fn most_frequent<'t>(texts: impl Iterator<Item = &'t str>) -> Option<&'t str> {
    let mut counts: HashMap<&str, (usize, usize)> = HashMap::new();
    for (place, text) in texts.enumerate() {
        counts.entry(text).or_insert((0, place)).0 += 1;
    }
    counts.into_iter().max_by_key(|(_, (count, place))| (*count, std::cmp::Reverse(*place))).map(|(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::experiment::Experiment;
    use crate::tasks::text_generation::TextGeneration;

    #[test]
    fn sentences_end_behind_marks_or_where_lines_do() {
        assert_eq!(lead("One is 1.5 m. Is two? Three!", 2), "One is 1.5 m.\nIs two?");
        assert_eq!(lead("<t> a first . </t> <t> the second . </t>", 1), "a first .");
        assert_eq!(lead("no mark", 3), "no mark");
        assert_eq!(lead("", 3), "");
    }

    #[test]
    fn the_first_of_the_most_frequent_texts_is_taken() {
        assert_eq!(most_frequent(["c", "a", "b", "b", "a"].into_iter()), Some("a"));
        assert_eq!(most_frequent([].into_iter()), None);
    }

    #[test]
    fn summaries_and_replies_have_the_scores_of_models() {
        let mut config = GenerationConfig::default();
        config.own.data.generated_pairs = 60;
        for (task, name, metric) in [(GenerationTask::Summary, "lead-", "ROUGE-1"), (GenerationTask::Dialogue, "most frequent", "BLEU-1")] {
            config.own.data.tasks = vec![task];
            let data = TextGeneration::open(&config).unwrap().remove(0);
            let baseline = baseline(&config, &data);
            assert!(baseline.name.starts_with(name), "{baseline:?}");
            assert!((0.01..0.99).contains(&baseline.metric(metric).unwrap()), "{baseline:?}");
        }
    }
}
