//! How a language model reads its text: fields that `lm` and `swap` have by the same names.

use heedful_models::block::auxiliary::AuxiliaryLossesConfig;
use heedful_models::block::layer_sharing::DepthConfig;

use super::LanguageData;
use crate::tasks::prelude::*;

/// An experiment whose models read a text as those of `lm`.
pub(crate) trait ReadsText: Experiment {
    /// Which text, and how it is read.
    fn text(&self) -> &LanguageData;

    /// Losses beside that of the next token.
    fn auxiliary(&self) -> Option<AuxiliaryLossesConfig>;
}

/// What these experiments say of the fields.
pub(crate) fn rules<E: ReadsText>() -> Vec<Rule<E>> {
    vec![
        Rule::counts(&["data.batch", "data.generated_words"]),
        Rule::made(&["data.generated_words"], "with --data no words are generated; leave it out"),
        Rule::used(
            &["auxiliary.target_weight"],
            |candidate| candidate.config.own.auxiliary().is_some_and(|losses| losses.has_further_targets()),
            "it weights the targets after the next token, and there are none; leave it out, or give auxiliary.targets of at least 2",
        ),
        Rule::used(
            &["auxiliary.intermediate_layers"],
            |candidate| candidate.config.model.layers > 1,
            "the model has one layer and none below it; leave it out, or give more model.layers",
        ),
        Rule::used(
            &["data.stride"],
            |Candidate { config, .. }| {
                let data = config.own.text();
                // Where the default is longer than the context, one has to be given whatever the models are.
                data.evaluation_memory() == 0 || data.context < LanguageData::default().stride
            },
            "evaluation has a memory and no moving window; leave it out, or give data.evaluation_memory=0",
        ),
    ]
}

/// Checks the fields that say how a language model reads its text. Theirs are the names of `lm` in every experiment.
///
/// # Errors
/// A usage error that names the field and the remedy.
pub(crate) fn check_data<E: ReadsText>(settings: &Settings<Config<E>>) -> Result<(), ExperimentError> {
    let Config { model, own, .. } = &settings.value;
    let (data, auxiliary) = (own.text(), own.auxiliary());
    let farthest = auxiliary.map_or(0, |auxiliary| auxiliary.targets);
    let remedy = format!("no sequence has a token so far ahead; give at most data.context = {}", data.context);
    settings.require("auxiliary.targets", farthest <= data.context, remedy)?;
    let adds_loss = auxiliary.is_none_or(|losses| losses.has_effect(model.layers));
    let remedy = "it adds no loss to the model's own; give more targets, multiple_positions=false, or intermediate_layers=true in a model of \
                  more than one layer, or leave it out";
    settings.require("auxiliary", adds_loss, remedy)?;
    let remedy = format!(
        "{} tokens are not between 1 and model.max_length = {}, the maximal length of every attention here; \
         give a smaller context or --set model.max_length={}",
        data.context, model.max_length, data.context
    );
    settings.require("data.context", (1..=model.max_length).contains(&data.context), remedy)?;
    let is_stride = data.evaluation_memory() > 0 || (1..=data.context).contains(&data.stride);
    settings.require("data.stride", is_stride, format!("{} is not between 1 and data.context = {}", data.stride, data.context))?;
    let remembers = data.memory.max(data.evaluation_memory()) > 0;
    let remedy = "a reversible model keeps no inputs of its layers that it could remember; give 0, or another model.depth";
    settings.require("data.memory", !remembers || model.depth != DepthConfig::Reversible, remedy)?;
    let remedy = "separable feed-forward networks do not remember the segment before; give 0, or model.separable_feed_forward=false";
    settings.require("data.memory", !remembers || !model.separable_feed_forward, remedy)?;
    Ok(())
}
