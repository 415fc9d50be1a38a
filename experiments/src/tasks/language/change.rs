//! How far training has moved the weights of the attention from what they were at the beginning.
//!
//! Tay et al., "Synthesizer" (2005.00743), show histograms of the weights at initialisation and after training. Here each head has the Jensen-Shannon
//! divergence between the two, and a model the mean over its heads.

use burn::tensor::Tensor;
use heedful_attention::contract::probe::Observation;
use heedful_models::architectures::language_model::{LanguageModel, LanguageModelConfig};

use super::{Language, LanguageConfig};
use crate::analyse;
use crate::tasks::prelude::*;

/// Mean divergence of the heads' histograms.
const DIVERGENCE: &str = "histogram divergence";

/// Refuses texts for attentions of which none shows weights. Models under names are checked one by one, so that nothing is known of all of them: their runs have a
/// note.
pub(super) fn check(settings: &Settings<LanguageConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
    let config = &settings.value;
    let is_asked = config.own.histogram_texts > 0 && config.run.models.is_empty() && !attentions.is_empty();
    let is_shown = !is_asked || attentions.iter().any(|attention| shows_weights(config, attention));
    Ok(settings.require("histogram_texts", is_shown, "none of the attentions shows weights; give 0, or another attention")?)
}

/// Whether a model of a single token shows weights of its attention.
fn shows_weights(config: &LanguageConfig, attention: &Attention) -> bool {
    // What the attention shows does not depend on the output.
    let single = LanguageModelConfig { adaptive: None, ..config.model(1, attention) };
    let model = single.init(&RandomKey::from_seed(0), &Device::flex());
    let mut shown = false;
    let mut listener = |_: &str, observation: Observation| {
        shown |= matches!(observation, Observation::Weights(_) | Observation::SlotWeights(_));
    };
    model.hidden(Tensor::zeros([1, 1], &Device::flex()), &[], None, &mut Probe::listening(&mut listener));
    shown
}

/// Adds the mean divergence of the heads, which are its items. A model that shows no weights has a note instead.
pub(super) fn add(
    scores: &mut Scores,
    setup: Setup<'_, Language>,
    initial: &LanguageModel,
    trained: &LanguageModel,
) -> Result<(), ExperimentError> {
    let texts = Language::texts(setup, setup.config.own.histogram_texts);
    let analysis = analyse::of_change(setup, initial, trained, &texts)?;
    let divergences = analysis.statistics().divergences();
    if divergences.is_empty() {
        scores.notes.push(format!("it shows no weights on the test texts, so it has no {DIVERGENCE}"));
        return Ok(());
    }
    let mean = divergences.iter().map(|(_, divergence)| divergence).sum::<f64>() / divergences.len() as f64;
    scores.push(DIVERGENCE, mean, format!("Jensen-Shannon, nats|bins:50 from 0 to 1|texts:{}", texts.len()));
    scores.push_items(DIVERGENCE, ItemScore::new("heads", "heads", Combination::Mean, &["divergence"]));
    let mut table = ItemTable::new("heads", &["divergence"]);
    for (head, (_, divergence)) in divergences.iter().enumerate() {
        table.push_tokens([head as i64], &[*divergence]);
    }
    scores.items.push(table);
    Ok(())
}

/// The column of the score.
pub(super) fn column() -> MetricColumn {
    let definition = "how far the histograms of the heads' weights have moved in training, Jensen-Shannon divergence in nats";
    MetricColumn::new(DIVERGENCE, "change of weights").digits(4).defined_as(definition)
}

#[cfg(test)]
mod tests {
    use heedful_runs::settings::Assignment;

    use super::*;
    use crate::tasks::language::LanguageData;
    use crate::tasks::testing::Case;

    fn scores(name: &str, seeds: [u64; 2]) -> Scores {
        let data = LanguageData { context: 16, stride: 16, generated_words: 300, ..LanguageData::default() };
        let config = LanguageConfig {
            model: ModelSettings { d_model: 16, heads: 2, d_ff: 16, max_length: 16, ..ModelSettings::default() },
            own: Language { data, histogram_texts: 5, ..Language::default() },
            ..LanguageConfig::default()
        };
        let case = Case::new(config, name);
        let [initial, trained] = seeds.map(|seed| case.model(seed, &Device::flex()));
        let mut scores = Scores::default();
        add(&mut scores, case.setup(), &initial, &trained).unwrap();
        scores
    }

    #[test]
    fn models_diverge_from_others_and_not_from_themselves() {
        let Scores { metrics, items, signatures, .. } = scores("synthesizer-random", [1, 2]);
        let [(name, value)] = &metrics[..] else { panic!("{metrics:?}") };
        assert!(name == DIVERGENCE && *value > 0.0 && *value < 2_f64.ln(), "{metrics:?}");
        assert!(signatures[DIVERGENCE].ends_with("texts:5"), "{signatures:?}");
        let table: serde_json::Value = serde_json::from_str(&items[0].to_json()).unwrap();
        assert!(table.to_string().contains("divergence"), "{table}");
        assert_eq!(scores("synthesizer-random", [1, 1]).metrics, [(DIVERGENCE.to_owned(), 0.0)]);
        // Two layers of two heads.
        assert_eq!(items[0].identity(), scores("dot-product", [3, 4]).items[0].identity(), "heads are the same items in all models");
    }

    #[test]
    fn attentions_without_weights_have_a_note_and_alone_are_refused() {
        let Scores { metrics, notes, .. } = scores("gla", [1, 2]);
        assert!(metrics.is_empty() && notes[0].contains("shows no weights"), "{metrics:?} {notes:?}");
        let refused = |names: &[&str]| {
            let settings = Settings::read(None, vec![Assignment::parse("histogram_texts=5").unwrap()]).unwrap();
            let attentions: Vec<Attention> = names.iter().map(|name| Attention::new(name.parse().unwrap())).collect();
            check(&settings, &attentions).err().map(|error| error.to_string())
        };
        assert_eq!(refused(&["gla", "dot-product"]), None);
        let problem = refused(&["gla"]).unwrap();
        assert!(problem.contains("histogram_texts") && problem.contains("shows weights"), "{problem}");
    }
}
