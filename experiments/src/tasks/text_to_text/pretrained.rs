//! Going on from a pretrained encoder-decoder of Hugging Face.

use std::path::Path;

use heedful_data::tokenise::{Tokeniser, TokeniserConfig};
use heedful_models::architectures::seq2seq::{Seq2SeqConfig, Tying};
use heedful_models::block::layout::AttentionLayout;
use heedful_models::generation::SpecialTokens;

use super::{Frame, OWN_FRAME};
use crate::session::experiment::paper_model::name;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{
    Checksums, check_attentions, check_model, check_tokeniser, configuration, opened, refused, tokeniser as tokeniser_of, training,
};

/// Name of the perplexity of weights before training.
pub(crate) const PERPLEXITY_BEFORE: &str = "valid perplexity before";

/// What a folder says of the configuration, with what stands before each source.
pub(crate) fn beneath(folder: &Path, prefix: Option<String>) -> Result<Table, ExperimentError> {
    let folder = opened(folder)?;
    let config = folder.seq2seq_config().map_err(refused)?;
    let tying = Value::try_from(config.tying).map_err(refused)?;
    let further = [("tying", tying), ("label_smoothing", Value::Float(0.0))].into_iter();
    let further = further.chain(prefix.map(|prefix| ("prefix", Value::String(prefix))));
    let encoder = &config.attention.encoder;
    configuration((name(encoder), encoder), &ModelSettings::of_encoder_decoder(config), &training(300, 100, 1e-4), further)
}

/// Checks that configuration and folder, if there is one, are for each other.
pub(crate) fn check<E: Experiment>(
    settings: &Settings<Config<E>>,
    folder: Option<&Path>,
    (tokeniser, tying): (&TokeniserConfig, Tying),
    attentions: &[Attention],
) -> Result<(), ExperimentError> {
    check_tokeniser(settings, tokeniser, folder.is_some())?;
    let Some(folder) = folder else { return Ok(()) };
    let opened = opened(folder)?;
    let config = opened.seq2seq_config().map_err(refused)?;
    check_model(settings, folder, &ModelSettings::of_encoder_decoder(config))?;
    settings.require("tying", tying == config.tying, format!("the weights of `{}` are tied otherwise; leave it out", folder.display()))?;
    let own = name(&config.attention.encoder);
    check_attentions(settings, folder, &own, attentions, |layout| {
        [&layout.encoder, &layout.decoder].iter().all(|layers| name(layers) == own) && layout.cross == AttentionLayout::default().cross
    })
}

/// What cuts texts into tokens.
pub(crate) struct Read {
    pub(crate) tokeniser: Tokeniser,
    pub(crate) frame: Frame,
    /// Vocabulary size of the model.
    pub(crate) vocabulary: usize,
    /// Of a pretrained model.
    pub(crate) checksums: Option<Checksums>,
}

impl Read {
    /// The tokeniser of a folder, or without one a tokeniser that is trained on texts.
    pub(crate) fn of<'t>(
        folder: Option<&Path>,
        prefix: Option<&str>,
        tokeniser: &TokeniserConfig,
        texts: impl Iterator<Item = &'t str>,
    ) -> Result<Self, ExperimentError> {
        let Some(folder) = folder else {
            let tokeniser = Tokeniser::train(tokeniser, texts).map_err(ExperimentError::usage)?;
            let vocabulary = tokeniser.vocabulary_size();
            return Ok(Self { tokeniser, frame: OWN_FRAME.clone(), vocabulary, checksums: None });
        };
        let opened = opened(folder)?;
        let Seq2SeqConfig { source_vocabulary: vocabulary, .. } = *opened.seq2seq_config().map_err(refused)?;
        let tokeniser = tokeniser_of(folder, vocabulary)?;
        let known = |token: Option<u32>| token.filter(|&token| (token as usize) < vocabulary);
        let (Some(begin), Some(end)) = (known(opened.first_token()), known(opened.last_token())) else {
            let path = folder.join("config.json");
            let problem = "decoder_start_token_id or eos_token_id is no token of the model; take config.json and weights of the same model";
            return Err(refused(format!("`{}`: {problem}", path.display())));
        };
        let special = SpecialTokens { padding: begin, begin, end };
        let frame = Frame { special, prefix: prefix.unwrap_or_default().to_owned(), ends_sources: true };
        Ok(Self { tokeniser, frame, vocabulary, checksums: Some(Checksums::of(folder)?) })
    }
}
