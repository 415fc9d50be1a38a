//! Baselines that copy sources, and that translate them word by word.

use heedful_host::display::grouped;
use heedful_metrics::Tokeniser;
use heedful_metrics::baselines::word_translation::{Lexicon, ROUNDS};

use super::{TranslationConfig, TranslationDataset, add_scores};
use crate::tasks::prelude::*;

/// Copies, and translations by IBM model 1; `None` if the interrupt was raised meanwhile.
pub(super) fn baselines(config: &TranslationConfig, data: &TranslationDataset, interrupt: &Interrupt) -> Option<Vec<TrivialBaseline>> {
    let corpus = &data.corpus;
    // The words that BLEU counts. What is cut into words already is cut no further.
    let of_targets = config.own.bleu.tokeniser;
    let of_sources = match of_targets {
        Tokeniser::Whitespace => of_targets,
        _ => Tokeniser::of_language(&corpus.source_language),
    };
    let pairs = corpus.train.iter().map(|pair| (of_sources.words(&pair.source), of_targets.words(&pair.target)));
    let lexicon = Lexicon::learn(pairs, interrupt)?;
    let translate = |source: &str| {
        let words = of_sources.words(source);
        lexicon.translate(&words.iter().map(String::as_str).collect::<Vec<_>>()).join(" ")
    };
    let of_all = |translate: &dyn Fn(&str) -> String| {
        let mut scores = Scores::default();
        for (index, (_, pairs)) in corpus.tests.iter().enumerate() {
            let hypotheses: Vec<String> = pairs.iter().map(|pair| translate(&pair.source)).collect();
            add_scores(config, data, index, &hypotheses, &mut scores);
        }
        scores.metrics
    };
    let learnt = format!(
        "each word by the likeliest one of the lexicon of IBM model 1, in its place; {ROUNDS} rounds of expectation-maximisation on {} of {} training pairs.",
        grouped(lexicon.pairs as u64),
        grouped(corpus.train.len() as u64)
    );
    Some(vec![
        TrivialBaseline::new("copy", "the source as it is.").scores(of_all(&str::to_owned)),
        TrivialBaseline::new("word by word", learnt).scores(of_all(&translate)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::translation::Translation;

    #[test]
    fn words_in_their_places_translate_better_than_copies_and_have_the_scores_of_models() {
        let mut config = TranslationConfig::default();
        config.own.data.generated_pairs = 400;
        let data = Translation::open(&config).unwrap().remove(0);
        let baselines = baselines(&config, &data, &Interrupt::new()).unwrap();
        let [copy, words] = &baselines[..] else { panic!("{baselines:?}") };
        let of = |baseline: &TrivialBaseline, metric: &str| baseline.metric(metric).unwrap();
        assert!(of(words, "BLEU") > 2.0 + of(copy, "BLEU") && of(words, "chrF2") > 20.0 + of(copy, "chrF2"), "{baselines:?}");
        assert!(of(words, "BLEU") < 90.0, "order and agreement are not in a lexicon: {baselines:?}");
        assert!(words.description.contains("5 rounds") && words.description.contains("of 400 training pairs"), "{}", words.description);
        assert_eq!(copy.metrics.keys().collect::<Vec<_>>(), words.metrics.keys().collect::<Vec<_>>());
    }
}
