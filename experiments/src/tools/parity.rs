//! One part of a model with given weights on given inputs: for comparison with code in another framework.
//!
//! A safetensors file provides the weights, under the paths of the module's fields (`logits.query.weight`), and the inputs. Another receives what the part
//! returns and shows, and the gradients of the sum of outputs times their cotangents. Paths leave out which of several variants a field holds, so that they are
//! the same wherever a mechanism stands; they are part of the interface and do not change.

mod attention;
mod block;
pub mod config;
mod gate;
mod halting;
mod inputs;
mod memory_limit;
mod parameter_docs;
mod parameters;
pub mod part;
mod pass;
mod runnable;
mod tensor_file;
mod validation;

use std::path::Path;

use heedful_attention::description::Card;
use heedful_backends::Backend;
use heedful_backends::device_failure::guarded;
use heedful_runs::markup::columns;

use self::attention::OneAttention;
use self::block::{OneBlock, OneStack};
pub use self::config::ParityConfig;
use self::gate::OneGate;
use self::halting::OneHalting;
pub use self::part::Part;
use self::runnable::AnyPart;
use self::tensor_file::write;
use crate::model::mechanisms;
use crate::session::error::{Completion, ExperimentError, print_line};

/// Columns that the lines of [`describe`] fit in.
const COLUMNS: usize = 120;
/// Columns that the lines of [`list`] fit in.
const LIST_COLUMNS: usize = 80;

fn part(config: &ParityConfig) -> Box<dyn AnyPart + '_> {
    match (config.part, config.part.gate()) {
        (_, Some(kind)) => Box::new(OneGate { config, kind }),
        (Part::Halting, _) => Box::new(OneHalting(config)),
        (Part::Block, _) => Box::new(OneBlock(config)),
        (part, _) if part.is_stack() => Box::new(OneStack(config)),
        _ => Box::new(OneAttention(config)),
    }
}

/// Tables of all parts and all mechanisms, and how they are chosen.
pub fn list() -> String {
    let parts = Part::ALL.iter().map(|(part, meaning)| vec![part.name(), (*meaning).to_owned()]).collect();
    format!(
        "{}\n\n{}\n\
         Options: --attention NAME --set attention.OPTION=VALUE,\n\
         e.g. --attention synthesizer-random --set attention.trainable=false\n\n\
         --part NAME --describe shows the options and tensors of a part.",
        columns(LIST_COLUMNS, &["part", "what it is"], parts),
        mechanisms::tables()
    )
}

/// Prints what the attention does and where it is from, the configuration with its defaults, and every tensor of both files, with shape and meaning.
///
/// # Errors
/// A configuration that TOML cannot express.
pub fn describe(config: &ParityConfig) -> Result<Completion, ExperimentError> {
    let toml = toml::to_string(&config.used()?).map_err(|error| ExperimentError::failure(error.to_string()))?;
    let head = ["tensor", "shape", "meaning"];
    let [inputs, outputs] = part(config).tables();
    let attention = config.part.has_attention().then(|| {
        let Card { description, source, .. } = config.attention.card();
        format!("# {}: {description}\n# Paper: {source}\n\n", config.attention)
    });
    print_line(format!(
        "{}# The configuration, complete with defaults\n{toml}\n# Inputs: float32 or float64\n{}\n\n# Output: float32\n{}",
        attention.unwrap_or_default(),
        columns(COLUMNS, &head, inputs),
        columns(COLUMNS, &head, outputs)
    ))?;
    Ok(Completion::Finished)
}

/// Writes inputs with drawn numbers and weights, which [`run`] can read.
///
/// # Errors
/// A file that cannot be written.
pub fn example(config: &ParityConfig, file: &Path) -> Result<Completion, ExperimentError> {
    write(file, &part(config).example(&config.key()))?;
    Ok(Completion::Finished)
}

/// Runs the part of `config` on `inputs` and writes `output`.
///
/// # Errors
/// A backend that is refused, or an engine in whose place another ran (usage); a file that cannot be read or written, a tensor that is missing, not known, of
/// another shape, or not finite (failure).
pub fn run(config: &ParityConfig, inputs: &Path, output: &Path, backend: &str) -> Result<Completion, ExperimentError> {
    let backend: Backend = backend.parse().map_err(ExperimentError::usage)?;
    let device = backend.device().map_err(ExperimentError::usage)?.autodiff();
    let computed =
        guarded(backend, "if its memory is too small, give smaller sizes, or --backend flex", || part(config).compute(inputs, &device))?;
    write(output, &computed)?;
    Ok(Completion::Finished)
}

#[cfg(test)]
mod tests {
    use heedful_runs::settings::Assignment;

    use super::*;

    /// The error of a run on an example without padding.
    fn error_of(attention: &str, part: &str, engine: &str) -> Option<(u8, String)> {
        let folder = tempfile::tempdir().unwrap();
        let option = |field: &str, value: &str| Assignment::option("--set", field, value);
        let table: toml::Value = toml::from_str(attention).unwrap();
        let sizes = [("d_model", 8), ("max_length", 16)].map(|(field, value)| Assignment::option("--set", field, value));
        let mut assignments = vec![Assignment::option("--attention", "attention", table), option("role", "decoder")];
        assignments.extend([option("part", part), option("engine", engine)]);
        assignments.extend(sizes);
        let config = ParityConfig::read(None, assignments).unwrap();
        let [inputs, output] = ["in.safetensors", "out.safetensors"].map(|name| folder.path().join(name));
        let key = config.key();
        let mut tensors = self::part(&config).example(&key);
        tensors.retain(|(name, _)| !name.contains("padding"));
        write(&inputs, &tensors).unwrap();
        run(&config, &inputs, &output, "flex").err().map(|error| (error.exit_code(), error.to_string()))
    }

    #[test]
    fn an_engine_in_whose_place_another_ran_is_refused() {
        let refused = |attention: &str, part: &str, engine: &str, says: &str| {
            let (code, message) = error_of(attention, part, engine).unwrap_or_else(|| panic!("{attention}, {part}: {engine} is taken"));
            assert_eq!(code, 2, "{message}");
            assert!(message.contains(says) && message.contains("leave the engine out"), "{message}");
        };
        refused("name = \"aft\"", "step", "fused", "`engine = fused`: the reference engine ran in its place");
        let lsh = "name = \"lsh\"\nchunk = 2\nbuckets = 4\nfull_attention_below = 0";
        refused(lsh, "step", "fused", "`engine = fused`: the reference engine ran in its place");
        refused(
            "name = \"linear-attention\"",
            "step",
            "reference",
            "`engine = reference`: the execution without a matrix of pairs ran in its place",
        );
    }

    #[test]
    fn an_engine_that_ran_is_taken() {
        let lsh = "name = \"lsh\"\nfull_attention_below = 16";
        for (attention, part) in
            [("name = \"dot-product\"", "attention"), ("name = \"aft\"", "attention"), (lsh, "attention"), (lsh, "step")]
        {
            for engine in ["auto", "fused", "reference"] {
                assert_eq!(error_of(attention, part, engine), None, "{attention}, {part}, {engine}");
            }
        }
    }
}
