//! Inline options after a mechanism's name: `linformer{rank=16}`.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::contract::error::ConfigError;
use crate::description::AnyMechanism;

/// Table field with the mechanism's name.
const NAME: &str = "name";

impl AnyMechanism {
    /// Splits `name{options}` into the name and the options with braces, without blanks and quotes; a plain name has no options.
    pub fn split_options(text: &str) -> (&str, Option<String>) {
        let Some(begin) = text.find('{').filter(|&begin| begin > 0 && text.ends_with('}')) else { return (text, None) };
        let options = text[begin..].chars().filter(|c| !c.is_whitespace() && !['"', '\''].contains(c));
        (text[..begin].trim_end(), Some(options.collect()))
    }

    /// This mechanism with `options` such as `{rank=16,sharing=headwise}`: configuration fields whose words need no quotes.
    ///
    /// ```
    /// use heedful_attention::mechanisms::linformer::LinformerConfig;
    /// use heedful_attention::description::AnyMechanism;
    ///
    /// let linformer: AnyMechanism = "linformer{rank=16}".parse()?;
    /// assert_eq!(linformer.get::<LinformerConfig>().unwrap().rank, Some(16));
    /// # Ok::<(), heedful_attention::contract::error::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the text is not a list of options, or an option is unknown or of the wrong type.
    pub fn with_options(&self, options: &str) -> Result<Self, ConfigError> {
        let refuse = |problem: String| ConfigError::Options { attention: self.name(), options: options.to_owned(), problem };
        let given: Map<String, Value> = serde_json::from_str(&json(options))
            .map_err(|_| refuse("write {option=value,option=value} behind the whole name, such as linformer{rank=16}".to_owned()))?;
        if given.contains_key(NAME) {
            return Err(refuse("the name stands before the options".to_owned()));
        }
        let mut table = match serde_json::to_value(self) {
            Ok(Value::Object(table)) => table,
            Ok(_) | Err(_) => return Err(refuse("its configuration is no table".to_owned())),
        };
        table.extend(given);
        Self::deserialize(Value::Object(table)).map_err(|error| refuse(error.to_string()))
    }

    /// Names of the options in such a text, as far as it can be parsed.
    pub fn option_names(options: &str) -> Vec<String> {
        serde_json::from_str::<Map<String, Value>>(&json(options))
            .map(|given| given.into_iter().map(|(name, _)| name).collect())
            .unwrap_or_default()
    }
}

/// Converts unquoted options to JSON, with quoted words and colons.
fn json(options: &str) -> String {
    let word_of = |rest: &str| rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_+-@.".contains(c))).unwrap_or(rest.len());
    let mut json = String::new();
    let mut rest = options;
    while let Some(first) = rest.chars().next() {
        let (word, behind) = rest.split_at(word_of(rest).max(first.len_utf8()));
        rest = behind;
        let is_key = behind.trim_start().starts_with('=');
        match word {
            "=" => json.push(':'),
            word if word_of(word) == 0 => json.push_str(word),
            word if !is_key && serde_json::from_str::<Value>(word).is_ok() => json.push_str(word),
            word => json.push_str(&Value::from(word).to_string()),
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::adaptive_span::AdaptiveSpanConfig;
    use crate::mechanisms::linformer::{LinformerConfig, Sharing};
    use crate::mechanisms::lsh::LshConfig;

    #[test]
    fn options_stand_behind_the_name() {
        let linformer: AnyMechanism = "linformer{rank=16, sharing=layerwise}".parse().unwrap();
        let expected = LinformerConfig { rank: Some(16), sharing: Sharing::Layerwise, ..LinformerConfig::default() };
        assert_eq!(linformer, expected.into());
        let lsh: AnyMechanism = "lsh{buckets=[16,16]}".parse().unwrap();
        assert_ne!(lsh, LshConfig::default().into());
        let mixture: AnyMechanism = "synthesizer-random+dot-product{weights='sum'}".parse().unwrap();
        assert_ne!(mixture, "synthesizer-random+dot-product".parse().unwrap());
        let short: AnyMechanism = "random{trainable=false}".parse().unwrap();
        assert_eq!(short, "synthesizer-random-fixed".parse().unwrap());
        assert_ne!(AnyMechanism::from(AdaptiveSpanConfig::default()), "adaptive-span{max_span=32}".parse().unwrap());
    }

    #[test]
    fn other_texts_are_refused_with_what_is_wrong() {
        for (text, parts) in [
            ("linformer{rnk=16}", &["linformer", "unknown field `rnk`", "rank"][..]),
            ("linformer{rank=high}", &["rank=high", "invalid type"]),
            ("linformer{rank}", &["{option=value", "linformer{rank=16}"]),
            ("linformer{rank=16}+dot-product{}", &["behind the whole name"]),
            ("linformer{name=lsh}", &["stands before"]),
            ("linfromer{rank=16}", &["unknown attention `linfromer`"]),
        ] {
            let message = text.parse::<AnyMechanism>().unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
    }
}
