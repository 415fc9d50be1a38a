//! JSON Schemas of configurations, with which editors complete and check TOML files.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde::Serialize;
use serde_json::{Value, json};

use super::{SettingsError, UNSET};

/// The JSON Schema of a configuration with these defaults: all fields, with their types and defaults.
///
/// # Errors
/// [`SettingsError::Inexpressible`] if a default cannot be written as JSON.
pub fn schema<T: Serialize>(defaults: &T, title: &str) -> Result<String, SettingsError> {
    let inexpressible = |error: serde_json::Error| SettingsError::Inexpressible(error.to_string());
    let generator = SchemaSettings::draft07().into_generator();
    let mut schema = generator.into_root_schema_for_value(defaults).map_err(inexpressible)?;
    RecursiveTransform(widen).transform(&mut schema);
    schema.remove("examples");
    schema.insert("title".to_owned(), json!(title));
    schema.insert("additionalProperties".to_owned(), json!(false));
    add_defaults(schema.ensure_object(), &serde_json::to_value(defaults).map_err(inexpressible)?);
    serde_json::to_string_pretty(&schema).map_err(inexpressible)
}

/// Accepts all that a field may hold, of which its default shows one form: the name of a choice where others are tables, or a number that can be left unset.
fn widen(schema: &mut Schema) {
    let widened = match schema.get("type").and_then(Value::as_str) {
        Some("string") => json!({ "type": ["string", "array", "object"] }),
        Some(number @ ("integer" | "number")) => json!({ "type": [number, "string"], "pattern": format!("^{UNSET}$") }),
        _ => return,
    };
    schema.ensure_object().extend(widened.as_object().cloned().into_iter().flatten());
}

/// Writes the default of each field into its schema; those of a table stand at its fields.
fn add_defaults(schema: &mut serde_json::Map<String, Value>, defaults: &Value) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for (name, property) in properties {
        let default = &defaults[name.as_str()];
        if property == &json!(true) {
            *property = json!({});
        }
        let Value::Object(property) = property else { continue };
        if default.is_object() {
            add_defaults(property, default);
        } else {
            property.insert("default".to_owned(), if default.is_null() { json!(UNSET) } else { default.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Defaults {
        rate: f64,
        patience: Option<u64>,
        schedule: &'static str,
        data: Data,
    }

    #[derive(Serialize)]
    struct Data {
        batch: usize,
        shuffled: bool,
    }

    #[test]
    fn a_schema_has_all_fields_with_types_and_defaults() {
        let defaults = Defaults { rate: 0.1, patience: None, schedule: "cosine", data: Data { batch: 8, shuffled: true } };
        let schema: Value = serde_json::from_str(&schema(&defaults, "small").unwrap()).unwrap();
        assert_eq!((&schema["title"], &schema["additionalProperties"]), (&json!("small"), &json!(false)));
        let field = |name: &str| &schema["properties"][name];
        assert_eq!(field("rate"), &json!({ "type": ["number", "string"], "pattern": "^unset$", "default": 0.1 }));
        assert_eq!(field("patience"), &json!({ "default": "unset" }));
        assert_eq!(field("schedule"), &json!({ "type": ["string", "array", "object"], "default": "cosine" }));
        assert_eq!(field("data")["properties"]["batch"]["type"], json!(["integer", "string"]));
        assert_eq!(field("data")["properties"]["shuffled"], json!({ "type": "boolean", "default": true }));
        assert!(schema.get("examples").is_none() && field("data").get("default").is_none(), "{schema:#}");
    }
}
