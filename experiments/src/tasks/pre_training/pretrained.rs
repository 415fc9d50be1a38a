//! Going on from a pretrained encoder of Hugging Face with its masked-LM head.

use std::path::Path;

use heedful_data::tokenise::Tokeniser;
use heedful_models::architectures::classifier::{Classifier, ClassifierConfig};
use heedful_models::pretrained::Pretrained;

use super::config::SpecialTokens;
use super::masked::PreTrainingConfig;
use crate::session::experiment::paper_model::name;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{
    check_attentions, check_model, check_tokeniser, configuration, opened as opened_folder, refused, special_token, special_tokens,
    tokeniser as tokeniser_of, training,
};

/// Name of the score of weights before training.
pub(super) const BEFORE: &str = "log perplexity before";

/// The folder, and the configuration of its masked language model.
fn opened(folder: &Path) -> Result<(Pretrained, ClassifierConfig), ExperimentError> {
    let folder = opened_folder(folder)?.with_masked_head().map_err(refused)?;
    let config = folder.classifier_config().cloned().map_err(refused)?;
    Ok((folder, config))
}

/// What a folder says of the configuration.
pub(super) fn beneath(folder: &Path) -> Result<Table, ExperimentError> {
    let (_, config) = opened(folder)?;
    configuration((name(&config.attention), &config.attention), &ModelSettings::of_classifier(&config), &training(300, 100, 5e-5), [])
}

/// Checks that configuration and folder are for each other.
pub(super) fn check(settings: &Settings<PreTrainingConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
    let options = &settings.value.own.0;
    check_tokeniser(settings, &options.tokeniser, options.pretrained.is_some())?;
    let Some(folder) = &options.pretrained else { return Ok(()) };
    let (_, config) = opened(folder)?;
    check_model(settings, folder, &ModelSettings::of_classifier(&config))?;
    let own = name(&config.attention);
    check_attentions(settings, folder, &own, attentions, |layout| name(&layout.encoder) == own)
}

/// The tokeniser of a folder, the tokens that its model has vectors for, and its special tokens.
pub(super) fn tokeniser(folder: &Path) -> Result<(Tokeniser, usize, SpecialTokens), ExperimentError> {
    let (opened, config) = opened(folder)?;
    let tokeniser = tokeniser_of(folder, config.vocabulary)?;
    let written = special_tokens(&opened);
    let [classify, separate, mask] = written.map(|token| special_token(folder, &tokeniser, token));
    let (classify, separate, mask) = (classify?, separate?, mask?);
    let others = ["[PAD]", "[UNK]", "<pad>", "<unk>"].into_iter().filter_map(|token| tokeniser.id(token));
    let kept = [classify, separate, mask].into_iter().chain(others).collect();
    Ok((tokeniser, config.vocabulary, SpecialTokens { classify, separate, mask, first: 0, kept }))
}

/// The model with the weights of a folder. Its pooler and its outputs of classes, which are not trained, stay as drawn where the files have none.
pub(super) fn read(folder: &Path, model: Classifier) -> Result<Classifier, ExperimentError> {
    opened(folder)?.0.read_into(model).map_err(refused)
}
