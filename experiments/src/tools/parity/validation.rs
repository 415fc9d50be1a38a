//! Which configurations are refused.

use std::path::Path;

use burn::tensor::Device;
use heedful_models::block::layer_sharing::SharedConfig;
use heedful_models::prelude::*;
use heedful_runs::settings::{Assignment, Settings, SettingsError, complete};
use toml::Table;

use super::config::{BlockOptions, HaltingOptions, NamedAttention, ParityConfig};
use super::part::Part;
use crate::session::error::ExperimentError;

impl ParityConfig {
    /// Lays a file, if there is one, and then assignments over the defaults, and checks them.
    ///
    /// # Errors
    /// A usage error with the line or option, the field and the remedy.
    pub fn read(file: Option<&Path>, assignments: Vec<Assignment>) -> Result<Self, ExperimentError> {
        let settings = Settings::<Self>::read(file, assignments)?;
        let config = &settings.value;
        for (field, value) in [("d_model", config.d_model), ("max_length", config.max_length), ("layers", config.layers)] {
            if value == 0 {
                return Err(settings.refuse(field, "give at least 1").into());
            }
        }
        if config.layer >= config.layers {
            let problem = format!("layer {} of {}: layers count from 0; set layers as well", config.layer, config.layers);
            return Err(settings.refuse("layer", problem).into());
        }
        config.refuse_unused(&settings)?;
        config.refuse_too_large(&settings)?;
        config.refuse_impossible(&settings)?;
        Ok(settings.value)
    }

    /// Refuses what is not as by default and means nothing to the part.
    fn refuse_unused(&self, settings: &Settings<Self>) -> Result<(), ExperimentError> {
        let (own, defaults) = (complete(self)?, complete(&Self::default())?);
        let unused = |field: &&String| own.get(*field) != defaults.get(*field) && !self.part.uses(field, self.role);
        if let Some(field) = own.keys().find(unused) {
            let role =
                if *field == "memory_gradient" && self.role == Role::Cross { " as cross-attention, which returns it always" } else { "" };
            let problem = format!("has no effect on the part `{}`{role}; leave it out", self.part.name());
            return Err(settings.refuse(field, problem).into());
        }
        if let (Part::Halting, Some(options)) = (self.part, self.halting) {
            let defaults = HaltingOptions::default();
            for (field, is_default) in
                [("freeze", options.freeze == defaults.freeze), ("ponder_weight", options.ponder_weight == defaults.ponder_weight)]
            {
                if !is_default {
                    let problem = "has no effect where the updates are given; leave it out, or take the part `stack:shared`";
                    return Err(settings.refuse(&format!("halting.{field}"), problem).into());
                }
            }
        }
        Ok(())
    }

    fn refuse_impossible(&self, settings: &Settings<Self>) -> Result<(), ExperimentError> {
        let refuse = |field: &str, problem: &str| -> Result<(), ExperimentError> { Err(settings.refuse(field, problem).into()) };
        let part = self.part;
        if part == Part::Step && self.role == Role::Encoder {
            return refuse("role", "an encoder takes no steps; give decoder or cross");
        }
        if !matches!(part, Part::Attention | Part::Step) && self.role == Role::Cross {
            return refuse("role", "blocks attend to themselves; give encoder or decoder, and `cross` for attention to another sequence");
        }
        if self.engine != Engine::Auto && !self.attention.has_engines() {
            return refuse("engine", "this attention has one execution; leave it out");
        }
        if part.reads_segments() && self.block.separable_feed_forward {
            return refuse("block.separable_feed_forward", "separable networks do not remember the segment before; leave it out");
        }
        if matches!(part, Part::Stack | Part::Segments) && !matches!(self.positions, PositionConfig::PerLayer | PositionConfig::None) {
            return refuse("positions", "layers with weights of their own add `per-layer` vectors or `none`");
        }
        if !part.has_attention() {
            return self.refuse_model(settings);
        }
        let attention = |field: &'static str, config: &AnyMechanism, spec: LayerSpec| {
            config.validate(&spec).map_err(|error| {
                let of_sizes = match error {
                    ConfigError::Option { option: option @ ("heads" | "kv_heads" | "head_width" | "qkv_bias" | "output_bias"), .. } => {
                        option
                    }
                    _ => field,
                };
                settings.refuse(of_sizes, error)
            })
        };
        for layer in self.placed_layers() {
            attention("attention", &self.attention, self.spec(self.self_role(), layer))?;
            if let Some(NamedAttention(cross)) = &self.cross {
                attention("cross", cross, self.spec(Role::Cross, layer))?;
            }
        }
        if part == Part::Step {
            let abilities = self.init_attention(&Device::flex()).abilities();
            if !abilities.steps || (self.role == Role::Decoder && abilities.causality == Causality::Impossible) {
                return refuse("attention", "takes no steps in this role");
            }
        }
        self.refuse_model(settings)
    }

    /// The checks of models.
    fn refuse_model(&self, settings: &Settings<Self>) -> Result<(), ExperimentError> {
        let has_attention = self.part.has_attention();
        let (heads, max_length) = if has_attention { (self.heads, self.max_length) } else { (1, 1) };
        let is_alone = !self.part.is_stack() && self.part != Part::Block;
        let block = BlockConfig { heads, max_length, ..self.block_config() };
        let depth = match self.part {
            Part::Halting => DepthConfig::Shared(SharedConfig { step_signal: PositionConfig::None, halting: self.halting.map(Into::into) }),
            _ => self.depth(),
        };
        let config = LanguageModelConfig {
            vocabulary: 1,
            attention: AnyMechanism::default().into(),
            layers: self.layers,
            block: if is_alone { BlockConfig { gate: None, parallel: None, norm_order: NormOrder::Post, ..block } } else { block },
            positions: self.positions,
            depth,
            ..LanguageModelConfig::default()
        };
        let Err(error) = config.validate() else { return Ok(()) };
        let field = match &error {
            ConfigError::Option { option, .. } => self.path_of(option),
            _ => "block".to_owned(),
        };
        let problem = match error {
            ConfigError::Option { value, remedy, .. } => format!("is {value}: {remedy}"),
            other => other.to_string(),
        };
        Err(settings.refuse(&field, problem).into())
    }

    /// The path of an option of a model.
    fn path_of(&self, option: &str) -> String {
        let field = option.split_once('.').map_or(option, |(table, _)| table);
        let is_in = |fields: Result<Table, SettingsError>| fields.is_ok_and(|fields| fields.contains_key(field));
        if is_in(complete(&BlockOptions::default())) {
            format!("block.{option}")
        } else if is_in(complete(&HaltingOptions::default())) {
            format!("halting.{option}")
        } else {
            option.to_owned()
        }
    }
}
