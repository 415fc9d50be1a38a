//! Missing, null or 0 optional fields, compared with the defaults of transformers: `tests/fixtures/optional_fields.py`.

use std::str::FromStr;

use serde_json::json;

use super::*;

/// Refused here although transformers accepts them: the value suits only one model, has no use, or cannot be computed here.
const REFUSED: &[(&str, &[&str])] = &[
    // Without a scale numbers may be divided by 0; drawn weights are 0.
    ("zero", &["initializer_range", "layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps"]),
    // Scores become 0, as do sines and cosines.
    ("zero", &["attn_logit_softcapping", "rope_parameters.attention_factor"]),
    ("zero", &["num_decoder_layers", "num_labels", "rope_parameters.original_max_position_embeddings", "scale_attn_weights"]),
    // The value of one released model.
    ("missing", &["num_key_value_heads"]),
    // Two places share one dropout option here.
    ("zero", &["classifier_dropout", "embd_pdrop", "hidden_dropout_prob", "resid_pdrop"]),
    // Distances of this fixture end within the single-distance buckets.
    ("missing", &["relative_attention_num_buckets"]),
    // Other fields of the table would have no effect.
    ("missing", &["rope_parameters.rope_type"]),
    // Less than 1: lengths of this fixture would be shortened.
    ("null", &["rope_parameters.factor"]),
];

/// Value used for null.
type Taken = fn() -> Value;

/// Null in fields that version 5 refuses, with the values of version 4, whose files exist.
const NULL_IN_VERSION_4: &[(&str, &str, Taken)] = &[
    ("bert", "num_labels", || json!(2)),
    ("gpt2", "add_cross_attention", || json!(false)),
    ("mistral", "num_key_value_heads", || json!(4)),
    ("roberta", "num_labels", || json!(2)),
    ("vit", "num_labels", || json!(2)),
];

/// Names of fields in messages about their model.
const NAMES: &[(&str, &str)] = &[
    ("rope_theta", "base"),
    ("initializer_range", "deviation"),
    ("high_freq_factor", "high_freq_factor"),
    ("low_freq_factor", "low_freq_factor"),
    ("factor", "scaling.factor"),
    ("original_max_position_embeddings", "original_max_position_embeddings"),
];

/// Fields whose absence lets another one take effect.
const WITHOUT: &[(&str, &str)] = &[
    ("max_window_layers", "layer_types"),
    ("num_labels", "id2label"),
    ("sliding_window", "layer_types"),
    ("tie_word_embeddings", "scale_decoder_outputs"),
    ("use_sliding_window", "layer_types"),
];

/// A folder with a field that is missing (`None`) or has a value.
fn with_field(architecture: &str, field: &str, value: Option<Value>) -> Copied {
    Copied::of(architecture).edit(CONFIG, |fields| {
        for (_, other) in WITHOUT.iter().filter(|(name, _)| *name == field) {
            fields.remove(*other);
        }
        let (table, last) = match field.split_once('.') {
            Some((table, last)) => (fields[table].as_object_mut().unwrap(), last),
            None => (fields, field),
        };
        match value {
            Some(value) => table.insert(last.to_owned(), value),
            None => table.remove(last),
        };
    })
}

fn opened(architecture: &str, field: &str, value: Option<Value>) -> Result<PresetModel, String> {
    Pretrained::open(with_field(architecture, field, value).path()).map(|folder| folder.model().clone()).map_err(|error| error.to_string())
}

#[test]
fn a_field_that_is_missing_null_or_zero_is_what_transformers_takes() {
    let text = fs::read_to_string(fixture("../optional_fields.json")).unwrap();
    let versions: Value = serde_json::from_str(&text).unwrap();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (architecture, fields) in versions["5"].as_object().unwrap() {
        for (field, cases) in fields.as_object().unwrap() {
            let zero = match &cases["zero"][0] {
                Value::Null => json!(0),
                value => value.clone(),
            };
            for (case, value) in [("missing", None), ("null", Some(Value::Null)), ("zero", Some(zero))] {
                let (found, what) = (opened(architecture, field, value), format!("{architecture}, {field}, {case}"));
                let in_version_4 = NULL_IN_VERSION_4.iter().find(|(a, f, _)| (*a, *f, "null") == (architecture, field, case));
                let expected = match (&cases[case], in_version_4) {
                    (Value::Null, Some((.., value))) => Some(value()),
                    (entry, _) => entry.get(0).cloned(),
                };
                let is_refused = REFUSED.iter().any(|(of, fields)| *of == case && fields.contains(&field.as_str()));
                checked += 1;
                match (expected, found) {
                    (None, Ok(_)) => wrong.push(format!("{what}: accepted")),
                    (None, Err(message))
                        if !NAMES.iter().any(|(of, name)| field.ends_with(of) && message.contains(name)) && !message.contains(field) =>
                    {
                        wrong.push(format!("{what}: {message}"));
                    }
                    (None, Err(_)) => {}
                    (Some(_), Err(_)) if is_refused => {}
                    (Some(_), Err(message)) => wrong.push(format!("{what}: {message}")),
                    (Some(value), Ok(model)) => {
                        if opened(architecture, field, Some(value.clone())) != Ok(model) {
                            wrong.push(format!("{what}: not as {value}"));
                        }
                    }
                }
                // Version 4 uses the same default.
                let entry = &versions["4"][architecture][field]["missing"][0];
                if case == "missing" && !entry.is_null() && !cases[case].is_null() {
                    assert_eq!(*entry, cases[case][0], "{what}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 200, "{checked}");
}

#[test]
fn a_qwen_3_without_the_width_of_its_window_has_that_of_its_class() {
    let window = |value: Option<Value>| {
        let folder = with_field("qwen3", "sliding_window", value);
        let folder = Pretrained::open(folder.path()).unwrap();
        folder.language_model_config().unwrap().attention.at(1).clone()
    };
    let named = |name: &str| AnyMechanism::from_str(name).unwrap();
    assert!(named("sliding-window").name() != named("rotary").name());
    assert_eq!(window(None), window(Some(json!(4096))));
    assert!(window(None).name().contains("4096") || format!("{:?}", window(None)).contains("4096"), "{:?}", window(None));
    assert_ne!(window(None), window(Some(Value::Null)));
    assert_ne!(window(None), window(Some(json!(4))));
    // An unused window is not read.
    let unused = with_field("qwen3", "use_sliding_window", Some(json!(false))).with(json!({"sliding_window": 0}));
    let layers = Pretrained::open(unused.path()).unwrap().language_model_config().unwrap().attention.clone();
    assert!((0..2).all(|layer| layers.at(layer) == &window(Some(Value::Null))));
}

#[test]
fn the_factor_of_attention_is_computed_from_two_numbers() {
    let device = Device::flex();
    let tokens = Expected::of("mistral").tokens("input.input_ids", &device);
    let of = |table: Value| {
        let folder = Copied::of("mistral").edit(CONFIG, |fields| {
            let own = fields["rope_parameters"].as_object_mut().unwrap();
            own.insert("factor".into(), json!(40.0));
            own.extend(table.as_object().unwrap().clone());
        });
        logits(&decoder(folder.path(), &device), tokens.clone(), &[])
    };
    // DeepSeek-V2 specifies 0.707 twice, a factor of 1.
    assert_eq!(of(json!({"mscale": 0.707, "mscale_all_dim": 0.707})), of(json!({"attention_factor": 1.0})));
    // (0.1 ln 40 + 1) / (0.05 ln 40 + 1)
    let ratio = (0.1 * 40f64.ln() + 1.0) / (0.1 * 0.5 * 40f64.ln() + 1.0);
    assert_eq!(of(json!({"mscale": 1.0, "mscale_all_dim": 0.5})), of(json!({"attention_factor": ratio})));
    assert_ne!(of(json!({"mscale": 1.0, "mscale_all_dim": 0.5})), of(json!({})));
    // An explicit value applies; one number alone, or 0, does not.
    assert_eq!(of(json!({"mscale": 2.0, "mscale_all_dim": 1.0, "attention_factor": 1.5})), of(json!({"attention_factor": 1.5})));
    for alone in [json!({"mscale": 2.0}), json!({"mscale": 2.0, "mscale_all_dim": 0.0}), json!({"mscale_all_dim": 2.0})] {
        assert_eq!(of(alone), of(json!({})));
    }
}
