//! TOML values as serde's input, such that an error knows the path of its field and [`UNSET`] is no value.

use std::fmt::Display;

use heedful_host::names::suggestion;
use serde::de::{self, Deserializer, IntoDeserializer, Unexpected, Visitor};
use toml::{Table, Value};

use super::UNSET;

/// The field that says which of several things a table is.
const NAME: &str = "name";

/// Name of the type of tables that are kept as they stand, [`UNSET`] included: what they hold is read when they are laid over another.
const LAYER: &str = "Layer";

/// A value of the configuration.
pub struct Setting(pub Value);

/// What serde refused; `path` is collected from the field outwards, `field` is one that is unknown or missing in the table at `path`.
#[derive(Debug)]
pub struct Problem {
    pub(super) path: Vec<String>,
    pub(super) field: Option<String>,
    words: String,
    known: Option<Vec<&'static str>>,
}

impl Problem {
    fn new(words: String) -> Self {
        Self { path: Vec::new(), field: None, words, known: None }
    }

    fn within(mut self, part: impl Into<String>) -> Self {
        self.path.push(part.into());
        self
    }

    /// The problem where the table also has fields that are read elsewhere.
    pub fn beside(mut self, others: &[&'static str]) -> Self {
        if let (true, Some(_), Some(known)) = (self.path.is_empty(), &self.field, &mut self.known) {
            known.extend(others);
        }
        self
    }

    /// The message for a problem met at `path` (from the top inwards).
    pub(super) fn describe(&self, path: &[String]) -> String {
        let path = path.join(".");
        let mut text = match (&self.field, path.is_empty()) {
            (Some(_), true) => self.words.clone(),
            (Some(_), false) => format!("{} in `{path}`", self.words),
            (None, true) => format!("{} (at the top)", self.words),
            (None, false) => format!("`{path}`: {}", self.words),
        };
        if let (Some(_), Some([])) = (&self.field, self.known.as_deref()) {
            text.push_str("; this choice has no options");
        } else if let (Some(name), Some(known)) = (self.words.split('`').nth(1), &self.known) {
            text.push_str(&format!("{} (known: {})", suggestion(name, known.iter().copied()), known.join(", ")));
        }
        text
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<M: Display>(message: M) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(met: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = match expected.to_string().as_str() {
            "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0".into(),
            "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
            "f32" | "f64" => "a number".into(),
            "a boolean" => "true or false".into(),
            other => other.to_string(),
        };
        Self::new(format!("{met} is not {expected}"))
    }

    fn invalid_value(met: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(met, expected)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self { field: Some(field.into()), known: Some(known.to_vec()), ..Self::new(format!("unknown field `{field}`")) }
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self { known: Some(known.to_vec()), ..Self::new(format!("unknown value `{variant}`")) }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { field: Some(field.into()), ..Self::new(format!("missing field `{field}`")) }
    }
}

impl<'de> IntoDeserializer<'de, Problem> for Setting {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Setting {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            // Reached for a text only inside a table chosen by `kind`, which serde buffers before it knows the type of the field.
            Value::String(text) if text == UNSET => visitor.visit_unit(),
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Boolean(truth) => visitor.visit_bool(truth),
            Value::Datetime(time) => visitor.visit_string(time.to_string()),
            Value::Array(values) => visitor.visit_seq(Elements { values: values.into_iter(), index: 0 }),
            Value::Table(table) => {
                // What a table is comes before what it holds, so that a reader knows the types of the other fields.
                let (name, others): (Table, Table) = table.into_iter().partition(|(key, _)| key == NAME);
                let fields: Table = name.into_iter().chain(others).collect();
                visitor.visit_map(Fields { fields: fields.into_iter(), pending: None })
            }
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            other => Setting(other).deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.0 {
            Value::String(text) if text == UNSET => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Problem> {
        if name == LAYER {
            return visitor.visit_newtype_struct(self.0).map_err(|error: toml::de::Error| de::Error::custom(error.message()));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _: &'static str, _: &'static [&'static str], visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.into_deserializer()),
            // Serde would read the first of several and drop the others.
            Value::Table(table) if table.len() != 1 => {
                let given: Vec<&str> = table.keys().map(String::as_str).collect();
                Err(de::Error::custom(format!(
                    "a choice with its options is a table of one name, not of {} ({}); give one",
                    table.len(),
                    given.join(", ")
                )))
            }
            Value::Table(table) => {
                visitor.visit_enum(de::value::MapAccessDeserializer::new(Fields { fields: table.into_iter(), pending: None }))
            }
            other => Setting(other).deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Elements {
    values: std::vec::IntoIter<Value>,
    index: usize,
}

impl<'de> de::SeqAccess<'de> for Elements {
    type Error = Problem;

    fn next_element_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Problem> {
        let Some(value) = self.values.next() else { return Ok(None) };
        self.index += 1;
        seed.deserialize(Setting(value)).map(Some).map_err(|problem| problem.within((self.index - 1).to_string()))
    }
}

struct Fields {
    fields: toml::map::IntoIter<String, Value>,
    pending: Option<(String, Value)>,
}

impl<'de> de::MapAccess<'de> for Fields {
    type Error = Problem;

    fn next_key_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Problem> {
        self.pending = self.fields.next();
        match &self.pending {
            Some((key, _)) => seed.deserialize(key.as_str().into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Problem> {
        match self.pending.take() {
            Some((key, value)) => seed.deserialize(Setting(value)).map_err(|problem| problem.within(key)),
            None => Err(de::Error::custom("a value was asked for before its field")),
        }
    }
}
