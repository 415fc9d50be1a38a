//! Variants without options in internally tagged enums.

use serde::{Deserialize, Deserializer};

/// Reads a variant without fields of an internally tagged enum and refuses any other field.
///
/// Serde ignores other fields for such a variant, even under `deny_unknown_fields`. Apply this function to each of them:
///
/// ```
/// use serde::Deserialize;
///
/// #[derive(Debug, Deserialize)]
/// #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
/// enum Schedule {
///     #[serde(deserialize_with = "heedful_attention::contract::unit_variant::without_options")]
///     Constant,
///     Linear { warmup: u64 },
/// }
///
/// assert!(serde_json::from_str::<Schedule>(r#"{"kind": "constant"}"#).is_ok());
/// let error = serde_json::from_str::<Schedule>(r#"{"kind": "constant", "warmup": 10}"#).unwrap_err();
/// assert!(error.to_string().contains("unknown field `warmup`"));
/// ```
///
/// # Errors
/// The first field beside the tag.
pub fn without_options<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoOptions {}
    NoOptions::deserialize(deserializer).map(|NoOptions {}| ())
}
