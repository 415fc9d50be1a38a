//! Rotary positions in `config.json`: `rope_parameters` of transformers 5, or `rope_theta` and `rope_scaling` of earlier versions.

use heedful_attention::mechanisms::rotary::{RotaryConfig, RotaryScaling};
use serde_json::json;

use super::error::PretrainedError;
use super::fields::Fields;

/// The base where none is given.
const BASE: f64 = 10_000.0;

/// The rotary positions that a configuration describes, of a model with sequences of at most `max_length`.
pub(super) fn rotary(fields: &Fields, max_length: usize) -> Result<RotaryConfig, PretrainedError> {
    fields.only("partial_rotary_factor", &json!(1.0))?;
    let base = fields.optional_number("rope_theta")?;
    let (earlier, table) = (fields.table("rope_scaling")?, fields.table("rope_parameters")?);
    if earlier.is_some() && table.is_some() {
        return Err(fields.wrong("rope_scaling", "give rope_scaling or rope_parameters, not both"));
    }
    let Some(table) = earlier.or(table) else { return Ok(RotaryConfig::default().with_base(base.unwrap_or(BASE))) };
    table.only("partial_rotary_factor", &json!(1.0))?;
    let base = table.optional_number("rope_theta")?.or(base).unwrap_or(BASE);
    let scaling = scaling(&table, max_length)?;
    table.finish(&[])?;
    Ok(RotaryConfig::default().with_base(base).with_scaling(scaling))
}

fn scaling(table: &Fields, max_length: usize) -> Result<RotaryScaling, PretrainedError> {
    let number =
        |field: &str| -> Result<f64, PretrainedError> { table.optional_number(field)?.ok_or_else(|| table.wrong(field, "give a number")) };
    let original =
        || -> Result<usize, PretrainedError> { Ok(table.optional_size("original_max_position_embeddings")?.unwrap_or(max_length)) };
    // Both names occur; the later one counts.
    let (earlier, later) = (table.text("type")?, table.text("rope_type")?);
    let name = if later.is_some() { "rope_type" } else { "type" };
    match later.or(earlier).unwrap_or("default") {
        "default" => Ok(RotaryScaling::None),
        "linear" => Ok(RotaryScaling::Linear { factor: number("factor")? }),
        "llama3" => Ok(RotaryScaling::Llama3 {
            factor: number("factor")?,
            low_freq_factor: number("low_freq_factor")?,
            high_freq_factor: number("high_freq_factor")?,
            original_max_position_embeddings: original()?,
        }),
        "yarn" => {
            for field in ["mscale", "mscale_all_dim"] {
                if table.get(field).is_some() {
                    return Err(table.wrong(field, "it is not supported: give attention_factor, which it computes"));
                }
            }
            Ok(RotaryScaling::Yarn {
                factor: number("factor")?,
                original_max_position_embeddings: original()?,
                beta_fast: table.number_or("beta_fast", 32.0)?,
                beta_slow: table.number_or("beta_slow", 1.0)?,
                attention_factor: table.optional_number("attention_factor")?,
                truncate: table.flag_or("truncate", true)?,
            })
        }
        _ => Err(table.wrong(name, "only default, linear, llama3 and yarn are supported")),
    }
}
