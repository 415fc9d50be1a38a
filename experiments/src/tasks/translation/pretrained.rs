//! Going on from a pretrained encoder-decoder of Hugging Face.

use std::path::Path;

use super::{Translation, TranslationConfig, TranslationData};
use crate::tasks::prelude::*;
use crate::tasks::text_to_text::pretrained as text_to_text;

/// Name of the score of weights before training.
pub(super) const BEFORE: &str = "BLEU before";

/// The languages of T5's translations, whose names are in its prefixes (Raffel et al. 2020, appendix D).
const LANGUAGES: [(&str, &str); 4] = [("en", "English"), ("de", "German"), ("fr", "French"), ("ro", "Romanian")];

/// What T5 was given before each source.
fn prefix(data: &TranslationData) -> Option<String> {
    let named = |code: &str| LANGUAGES.iter().find(|(own, _)| *own == code).map(|(_, name)| *name);
    Some(format!("translate {} to {}: ", named(&data.source)?, named(&data.target)?))
}

/// What a folder says of the configuration.
pub(super) fn beneath(folder: &Path, given: &TranslationConfig) -> Result<Table, ExperimentError> {
    // The languages of the built-in corpus have no names.
    text_to_text::beneath(folder, given.run.data.is_some().then(|| prefix(&given.own.data)).flatten())
}

/// Checks that configuration and folder are for each other.
pub(super) fn check(settings: &Settings<TranslationConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
    let TranslationConfig { run, own: Translation { pretrained, tokeniser, prefix, tying, data, .. }, .. } = &settings.value;
    text_to_text::check(settings, pretrained.as_deref(), (tokeniser, *tying), attentions)?;
    let remedy = format!(
        "the names of {} and {} in English are not known; give prefix='translate SOURCE to TARGET: ', or prefix='' for none",
        data.source, data.target
    );
    Ok(settings.require("prefix", pretrained.is_none() || prefix.is_some() || run.data.is_none(), remedy)?)
}

#[cfg(test)]
mod tests {
    use heedful_models::pretrained::Pretrained;

    use super::*;
    use crate::session::comparison;
    use crate::tasks::testing::{fixture, settings};

    #[test]
    fn the_configuration_of_a_folder_is_that_of_its_model() {
        for (name, tied) in [("t5", true), ("t5-gated", false)] {
            let path = fixture(name);
            let config = settings::<Translation>(Some(&path), &[]).value;
            assert_eq!((config.model.layers, config.model.decoder_layers, config.own.prefix.as_deref()), (2, Some(3), None));
            let attention = comparison::attention(&config, &config.run.attention[0]).unwrap();
            let pretrained = Pretrained::open(&path).unwrap();
            let expected = pretrained.seq2seq_config().unwrap();
            assert_eq!(config.model(expected.source_vocabulary, &attention), *expected, "{name}");
            assert_eq!(expected.tying == heedful_models::architectures::seq2seq::Tying::ThreeWay, tied, "{name}");
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
