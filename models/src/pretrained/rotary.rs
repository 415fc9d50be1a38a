//! Rotary positions in `config.json`: `rope_parameters` of transformers 5, or `rope_theta` and `rope_scaling` of earlier versions.

use heedful_attention::mechanisms::rotary::{RotaryConfig, RotaryScaling};
use serde_json::json;

use super::error::PretrainedError;
use super::fields::Fields;

/// Default base.
const BASE: f64 = 10_000.0;

/// Rotary positions of a configuration, for a model with sequences of at most `max_length`.
pub(super) fn rotary(fields: &Fields, max_length: usize) -> Result<RotaryConfig, PretrainedError> {
    let base = fields.number_or("rope_theta", BASE)?;
    let (earlier, table) = (fields.table("rope_scaling")?, fields.table("rope_parameters")?);
    if earlier.is_some() && table.is_some() {
        return Err(fields.wrong("rope_scaling", "give rope_scaling or rope_parameters, not both"));
    }
    let Some(table) = earlier.or(table) else {
        fields.only_or_null("partial_rotary_factor", &json!(1.0))?;
        return Ok(RotaryConfig::default().with_base(base));
    };
    let base = table.number_or("rope_theta", base)?;
    let scaling = scaling(&table, max_length)?;
    if let RotaryScaling::Proportional { factor, .. } = scaling {
        // If both are present, the table's value applies.
        let outside = fields.optional_number("partial_rotary_factor")?.unwrap_or(1.0);
        let partial_rotary_factor = table.optional_number("partial_rotary_factor")?.unwrap_or(outside);
        table.finish(&[])?;
        return Ok(RotaryConfig::default().with_base(base).with_scaling(RotaryScaling::Proportional { factor, partial_rotary_factor }));
    }
    fields.only_or_null("partial_rotary_factor", &json!(1.0))?;
    table.only_or_null("partial_rotary_factor", &json!(1.0))?;
    table.finish(&[])?;
    Ok(RotaryConfig::default().with_base(base).with_scaling(scaling))
}

/// Maximum sequence length of a model with these positions and a training length of at most `max_length`.
pub(super) fn longest(rotary: &RotaryConfig, max_length: usize) -> usize {
    match rotary.scaling {
        // Dynamic angles extend the training length by the factor.
        RotaryScaling::Dynamic { factor, .. } => (factor * max_length as f64).min(f64::from(u32::MAX)) as usize,
        _ => max_length,
    }
}

fn scaling(table: &Fields, max_length: usize) -> Result<RotaryScaling, PretrainedError> {
    let number =
        |field: &str| -> Result<f64, PretrainedError> { table.optional_number(field)?.ok_or_else(|| table.wrong(field, "give a number")) };
    let original = || table.size_or("original_max_position_embeddings", max_length);
    // Both names occur; the later one applies.
    let (earlier, later) = (table.text("type")?, table.text("rope_type")?);
    let name = if later.is_some() { "rope_type" } else { "type" };
    match later.or(earlier).unwrap_or("default") {
        "default" => Ok(RotaryScaling::None),
        "linear" => Ok(RotaryScaling::Linear { factor: number("factor")? }),
        // The training length is that of the model, regardless of other entries of the table.
        "dynamic" => {
            table.get("original_max_position_embeddings");
            Ok(RotaryScaling::Dynamic { factor: number("factor")?, original_max_position_embeddings: max_length })
        }
        "proportional" => Ok(RotaryScaling::Proportional { factor: table.number_or("factor", 1.0)?, partial_rotary_factor: 1.0 }),
        "llama3" => Ok(RotaryScaling::Llama3 {
            factor: number("factor")?,
            low_freq_factor: number("low_freq_factor")?,
            high_freq_factor: number("high_freq_factor")?,
            original_max_position_embeddings: original()?,
        }),
        "yarn" => {
            let original_max_position_embeddings = original()?;
            // Null means the ratio of the lengths.
            let implied = || max_length as f64 / original_max_position_embeddings as f64;
            let factor =
                if table.is_given("factor") { table.optional_number("factor")?.unwrap_or_else(implied) } else { number("factor")? };
            let attention_factor = table.optional_number("attention_factor")?;
            // DeepSeek's models specify the two numbers of its formula, where 0 counts as missing.
            let weight = |name| table.nonzero_or(name, 0.0);
            let weights = Some((weight("mscale")?, weight("mscale_all_dim")?)).filter(|(own, of_all)| *own != 0.0 && *of_all != 0.0);
            let (mscale, mscale_all_dim) = weights.filter(|_| attention_factor.is_none()).unzip();
            Ok(RotaryScaling::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast: table.nonzero_or("beta_fast", 32.0)?,
                beta_slow: table.nonzero_or("beta_slow", 1.0)?,
                attention_factor,
                mscale,
                mscale_all_dim,
                // Null counts as false.
                truncate: if table.is_given("truncate") && table.get("truncate").is_none() {
                    false
                } else {
                    table.flag_or("truncate", true)?
                },
            })
        }
        _ => Err(table.wrong(name, "only default, linear, dynamic, proportional, llama3 and yarn are supported")),
    }
}
