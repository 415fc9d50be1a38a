//! Mechanisms from tables.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::description::AnyMechanism;

/// Table field with the mechanism's name.
const NAME: &str = "name";

impl AnyMechanism {
    /// Reads the options of a family: the fields beside `name`.
    ///
    /// Unlike [`Deserialize`], which may read a whole table before it finds the family, this function passes each option to the format's own deserialiser, so
    /// errors report the option's location.
    ///
    /// # Errors
    /// An unknown family or option, or a value of the wrong type.
    pub fn deserialize_options<'de, D: Deserializer<'de>>(family: &str, options: D) -> Result<Self, D::Error> {
        super::deserialize(family, options)
    }
}

impl<'de> Deserialize<'de> for AnyMechanism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;
        impl<'de> Visitor<'de> for Table {
            type Value = AnyMechanism;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a table with the name of an attention and its options")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyMechanism, A::Error> {
                let mut options = serde_json::Map::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key != NAME {
                        options.insert(key, map.next_value()?);
                        continue;
                    }
                    let family: String = map.next_value()?;
                    if options.is_empty() {
                        return AnyMechanism::deserialize_options(&family, MapAccessDeserializer::new(map));
                    }
                    while let Some((key, value)) = map.next_entry()? {
                        options.insert(key, value);
                    }
                    let options = serde_json::Value::Object(options).into_deserializer();
                    return AnyMechanism::deserialize_options(&family, options).map_err(A::Error::custom);
                }
                let keys: Vec<_> = options.keys().map(|key| format!("`{key}`")).collect();
                Err(A::Error::custom(format!("the table of an attention has the key `{NAME}`; this one has {}", keys.join(", "))))
            }
        }
        deserializer.deserialize_map(Table)
    }
}

impl Default for AnyMechanism {
    fn default() -> Self {
        (super::BUILT_IN[0].default)()
    }
}
