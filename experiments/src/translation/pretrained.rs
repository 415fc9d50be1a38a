//! Going on from a pretrained encoder-decoder of Hugging Face.

use std::path::Path;

use heedful_models::generation::SpecialTokens;
use heedful_models::layout::AttentionLayout;
use heedful_models::seq2seq::{Seq2SeqConfig, Seq2SeqTransformer};
use toml::{Table, Value};

use super::{Translation, TranslationConfig, TranslationData};
use crate::error::ExperimentError;
use crate::experiment::Attention;
use crate::model::ModelSettings;
use crate::pretrained::{
    Checksums, check_attentions, check_model, check_tokeniser, configuration, name, opened, refused, tokeniser as tokeniser_of, training,
};
use crate::settings::Settings;
use crate::text_to_text::Frame;
use crate::tokenise::Tokeniser;

/// Names of the scores of weights before training.
pub(super) const BEFORE: &str = "BLEU before";
pub(super) const PERPLEXITY_BEFORE: &str = "valid perplexity before";

/// The languages of T5's translations, whose names are in its prefixes (Raffel et al. 2020, appendix D).
const LANGUAGES: [(&str, &str); 4] = [("en", "English"), ("de", "German"), ("fr", "French"), ("ro", "Romanian")];

/// What T5 was given before each source.
fn prefix(data: &TranslationData) -> Option<String> {
    let named = |code: &str| LANGUAGES.iter().find(|(own, _)| *own == code).map(|(_, name)| *name);
    Some(format!("translate {} to {}: ", named(&data.source)?, named(&data.target)?))
}

/// What a folder says of the configuration.
pub(super) fn beneath(folder: &Path, given: &TranslationConfig) -> Result<Table, ExperimentError> {
    let folder = opened(folder)?;
    let config = folder.seq2seq_config().map_err(refused)?;
    let tying = Value::try_from(config.tying).map_err(refused)?;
    // The languages of the built-in corpus have no names.
    let prefix = given.run.data.is_some().then(|| prefix(&given.own.data)).flatten();
    let further = [("tying", tying), ("label_smoothing", Value::Float(0.0))].into_iter();
    let further = further.chain(prefix.map(|prefix| ("prefix", Value::String(prefix))));
    let encoder = &config.attention.encoder;
    configuration((name(encoder), encoder), &ModelSettings::of_encoder_decoder(config), &training(300, 100, 1e-4), further)
}

/// Checks that configuration and folder are for each other.
pub(super) fn check(settings: &Settings<TranslationConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
    let TranslationConfig { run, own: Translation { pretrained, tokeniser, prefix, tying, data, .. }, .. } = &settings.value;
    check_tokeniser(settings, tokeniser, pretrained.is_some())?;
    let Some(folder) = pretrained else { return Ok(()) };
    let opened = opened(folder)?;
    let config = opened.seq2seq_config().map_err(refused)?;
    check_model(settings, folder, &ModelSettings::of_encoder_decoder(config))?;
    settings.require("tying", *tying == config.tying, format!("the weights of `{}` are tied otherwise; leave it out", folder.display()))?;
    let remedy = format!(
        "the names of {} and {} in English are not known; give prefix='translate SOURCE to TARGET: ', or prefix='' for none",
        data.source, data.target
    );
    settings.require("prefix", prefix.is_some() || run.data.is_none(), remedy)?;
    let own = name(&config.attention.encoder);
    check_attentions(settings, folder, &own, attentions, |layout| {
        [&layout.encoder, &layout.decoder].iter().all(|layers| name(layers) == own) && layout.cross == AttentionLayout::default().cross
    })
}

/// What is read of a folder with the data.
pub(super) struct Read {
    pub(super) tokeniser: Tokeniser,
    pub(super) frame: Frame,
    /// Tokens that the model has vectors for.
    pub(super) vocabulary: usize,
    pub(super) checksums: Checksums,
}

impl Read {
    pub(super) fn of(folder: &Path, prefix: Option<&str>) -> Result<Self, ExperimentError> {
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
        Ok(Self { tokeniser, frame, vocabulary, checksums: Checksums::of(folder)? })
    }
}

/// The model with the weights of a folder.
pub(super) fn read(folder: &Path, model: Seq2SeqTransformer) -> Result<Seq2SeqTransformer, ExperimentError> {
    opened(folder)?.read_into(model).map_err(refused)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use heedful_models::pretrained::Pretrained;

    use super::*;
    use crate::comparison;
    use crate::settings::Assignment;

    #[test]
    fn the_configuration_of_a_folder_is_that_of_its_model() {
        for (name, tied) in [("t5", true), ("t5-gated", false)] {
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/pretrained").join(name);
            let given = vec![Assignment::option("--pretrained", "pretrained", path.to_string_lossy().into_owned())];
            let settings = Settings::<TranslationConfig>::read(None, given).unwrap();
            let beneath = beneath(&path, &settings.value).unwrap();
            let config = settings.over_table(beneath).unwrap().value;
            assert_eq!((config.model.layers, config.model.decoder_layers, config.own.prefix.as_deref()), (2, Some(3), None));
            let attention = comparison::attention(&config, &config.run.attention[0]).unwrap();
            let pretrained = Pretrained::open(&path).unwrap();
            let expected = pretrained.seq2seq_config().unwrap();
            assert_eq!(config.model(expected.source_vocabulary, &attention), *expected, "{name}");
            assert_eq!(expected.tying == heedful_models::seq2seq::Tying::ThreeWay, tied, "{name}");
            assert_eq!((pretrained.first_token(), pretrained.last_token()), (Some(0), Some(1)), "{name}");
        }
    }

    #[test]
    fn prefixes_name_the_languages_of_t5() {
        let of = |source: &str, target: &str| {
            prefix(&TranslationData { source: source.to_owned(), target: target.to_owned(), ..TranslationData::default() })
        };
        assert_eq!(of("en", "de").unwrap(), "translate English to German: ");
        assert_eq!(of("fr", "en").unwrap(), "translate French to English: ");
        assert_eq!(of("en", "vi"), None);
    }
}
