//! Going on from a pretrained model of Hugging Face.

use std::path::Path;

use heedful_data::tokenise::Tokeniser;
use heedful_models::parts::position::PositionConfig;

use super::{Language, LanguageConfig};
use crate::session::experiment::paper_model::name;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{
    check_attentions, check_model, check_tokeniser, configuration, opened, refused, tokeniser as tokeniser_of, training,
};

/// Name of the score of weights before training.
pub(super) const BEFORE: &str = "perplexity before";

/// What a folder says of the configuration.
pub(super) fn beneath(folder: &Path) -> Result<Table, ExperimentError> {
    let folder = opened(folder)?;
    let config = folder.language_model_config().map_err(refused)?;
    let attention = (name(&config.attention), &config.attention);
    let bound = config.logit_softcap.map(|bound| ("logit_softcap", Value::Float(bound)));
    let further = [("tied", Value::Boolean(config.tied))].into_iter().chain(bound);
    configuration(attention, &ModelSettings::of_language_model(config), &training(300, 100, 5e-5), further)
}

/// Checks that configuration and folder are for each other.
pub(super) fn check(settings: &Settings<LanguageConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
    let Language { pretrained, tokeniser, .. } = &settings.value.own;
    check_tokeniser(settings, tokeniser, pretrained.is_some())?;
    let Some(folder) = pretrained else { return Ok(()) };
    let opened = opened(folder)?;
    let config = opened.language_model_config().map_err(refused)?;
    check_model(settings, folder, &ModelSettings::of_language_model(config))?;
    // The table of learned positions has as many as it has.
    let LanguageConfig { model, own: Language { data, .. }, .. } = &settings.value;
    let fits = config.positions != PositionConfig::Learned || data.reach() <= model.max_length;
    let remedy =
        format!("with data.context it is longer than the {} positions of the pretrained model; give a smaller one", model.max_length);
    settings.require("data.memory", fits, remedy)?;
    let own = name(&config.attention);
    check_attentions(settings, folder, &own, attentions, |layout| name(&layout.decoder) == own)
}

/// The tokeniser of a folder, the tokens that its model has vectors for, and the token that its texts begin with.
pub(super) fn tokeniser(folder: &Path) -> Result<(Tokeniser, usize, u32), ExperimentError> {
    let opened = opened(folder)?;
    let vocabulary = opened.language_model_config().map_err(refused)?.vocabulary;
    let tokeniser = tokeniser_of(folder, vocabulary)?;
    let start = opened.first_token().filter(|&token| (token as usize) < vocabulary);
    let start = start.ok_or_else(|| {
        refused(format!("`{}` has no bos_token_id and no eos_token_id of the model; add one of them", folder.join("config.json").display()))
    })?;
    Ok((tokeniser, vocabulary, start))
}

#[cfg(test)]
mod tests {
    use heedful_models::block::layout::{AttentionLayout, LayerAttention};
    use heedful_models::pretrained::Pretrained;

    use super::*;
    use crate::tasks::testing::{fixture, settings};

    #[test]
    fn the_configuration_of_a_folder_is_that_of_its_model() {
        for name in ["gemma2", "gpt2", "llama", "mistral", "qwen3"] {
            let path = fixture(name);
            let config = settings::<Language>(Some(&path), &[]).value;
            // The list of a model whose layers differ.
            let names = config.run.attention[0].trim_matches(['[', ']']).split(',');
            let layers: Vec<_> = names.map(|name| config.mechanisms.attention(name).unwrap()).collect();
            let layers = if let [one] = &layers[..] { LayerAttention::All(one.clone()) } else { LayerAttention::Each(layers) };
            let layout = AttentionLayout { decoder: layers, ..AttentionLayout::default() };
            let attention = Attention { name: config.run.attention[0].clone(), layout };
            let pretrained = Pretrained::open(&path).unwrap();
            let expected = pretrained.language_model_config().unwrap();
            let data = &config.own.data;
            let mut found = config.model(expected.vocabulary, &attention);
            assert_eq!(found.block.max_length, expected.block.max_length.max(data.reach()), "{name}");
            found.block.max_length = expected.block.max_length;
            assert_eq!(found, *expected, "{name}");
        }
    }
}
