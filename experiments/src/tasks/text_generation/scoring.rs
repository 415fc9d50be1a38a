//! The scores of generated texts.

use heedful_data::summary;
use heedful_metrics::{
    Cider, CorpusMetric, DialogueBleu, EmbeddingSimilarity, EmbeddingStatistics, ItemTable, Meteor, MeteorStatistics, Rouge,
    RougeStatistics, RougeVariant, TextMetric,
};

use super::{GenerationConfig, GenerationData, GenerationDataset, GenerationTask};

/// A score of a task, as a fraction.
pub(super) struct Found {
    pub(super) metric: &'static str,
    pub(super) value: f64,
    pub(super) signature: String,
    pub(super) items: Items,
}

/// What a score is made of.
pub(super) enum Items {
    /// The mean of these values of the texts.
    Values(Vec<f64>),
    /// Counts over all texts.
    Texts(CorpusMetric),
}

/// The values of the texts of a test set, which are told apart by their references.
pub(super) fn items(set: &str, found: &[Found], references: &[[&str; 1]]) -> ItemTable {
    let values = found.iter().filter_map(|found| match &found.items {
        Items::Values(values) => Some((found.metric, values)),
        Items::Texts(_) => None,
    });
    let (names, values): (Vec<_>, Vec<_>) = values.unzip();
    let mut table = ItemTable::new(set, &names);
    for (index, [reference]) in references.iter().enumerate() {
        table.push(reference.as_bytes(), &values.iter().map(|values| values[index]).collect::<Vec<_>>());
    }
    table
}

/// The scores of a task.
pub(super) fn metrics(config: &GenerationConfig, data: &GenerationDataset, hypotheses: &[String], references: &[[&str; 1]]) -> Vec<Found> {
    let GenerationData { stemmer, cider, .. } = config.own.data;
    let of_rouge = |metric, rouge: Rouge, statistics: Vec<RougeStatistics>| Found {
        metric,
        value: rouge.score(&rouge.total(statistics.iter().copied())).f_measure,
        signature: rouge.signature(Some(1)),
        items: Items::Values(statistics.iter().map(|statistics| statistics.f_measure).collect()),
    };
    let meteor = Meteor { synonyms: data.synonyms.as_ref(), ..Meteor::default() };
    let of_meteor = |statistics: Vec<MeteorStatistics>| Found {
        metric: "METEOR",
        value: meteor.score(&meteor.total(statistics.iter().copied())).score,
        signature: meteor.signature(Some(1)),
        items: Items::Values(statistics.iter().map(|statistics| statistics.score).collect()),
    };
    if data.task == GenerationTask::Summary {
        // Marks of sentences are no words of a summary.
        let lines = |text: &str| summary::with_line_ends(text);
        let summaries: Vec<String> = hypotheses.iter().map(|text| lines(text)).collect();
        let of_references: Vec<[String; 1]> = references.iter().map(|[text]| [lines(text)]).collect();
        let variants = [
            ("ROUGE-1", RougeVariant::Rouge1),
            ("ROUGE-2", RougeVariant::Rouge2),
            ("ROUGE-L", RougeVariant::RougeL),
            ("ROUGE-Lsum", RougeVariant::RougeLsum),
        ];
        let rouge = |(metric, variant)| {
            let rouge = Rouge { variant, stemmer };
            of_rouge(metric, rouge, rouge.corpus_statistics(&summaries, &of_references))
        };
        let mut found: Vec<_> = variants.map(rouge).into();
        found.push(of_meteor(meteor.corpus_statistics(&summaries, &of_references)));
        return found;
    }
    let bleu = DialogueBleu::default();
    let scores = bleu.corpus_score(hypotheses, references).bleu;
    let of_order = |((metric, value), order)| {
        let items = Items::Texts(CorpusMetric::DialogueBleu { bleu, order });
        Found { metric, value, signature: bleu.signature(Some(1)), items }
    };
    let mut found: Vec<_> = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"].into_iter().zip(scores).zip(1..).map(of_order).collect();
    let rouge = Rouge { variant: RougeVariant::RougeL, stemmer };
    found.push(of_rouge("ROUGE-L", rouge, rouge.corpus_statistics(hypotheses, references)));
    found.push(of_meteor(meteor.corpus_statistics(hypotheses, references)));
    let cider = Cider { variant: cider, ..Cider::default() };
    let statistics = cider.corpus_statistics(hypotheses, references);
    found.push(Found {
        metric: "CIDEr",
        value: cider.score(&cider.total(statistics.iter().copied())).score,
        signature: cider.signature(Some(1)),
        items: Items::Values(statistics.iter().map(|statistics| statistics.score).collect()),
    });
    if let Some(vectors) = &data.vectors {
        let similarity = EmbeddingSimilarity::new(vectors.name(), |word: &str| vectors.of(word));
        let statistics = similarity.corpus_statistics(hypotheses, references);
        let score = similarity.score(&similarity.total(statistics.iter().copied()));
        type Of = fn(&EmbeddingStatistics) -> f64;
        let values: [(_, _, Of); 3] = [
            ("embedding average", score.average, |statistics| statistics.average),
            ("greedy matching", score.greedy, |statistics| statistics.greedy),
            ("vector extrema", score.extrema, |statistics| statistics.extrema),
        ];
        found.extend(values.map(|(metric, value, of)| Found {
            metric,
            value,
            signature: similarity.signature(Some(1)),
            items: Items::Values(statistics.iter().map(of).collect()),
        }));
    }
    found
}
