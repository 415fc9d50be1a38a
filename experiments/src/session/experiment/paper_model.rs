//! The form of a paper's model in an experiment, and of attentions in configurations.

use heedful_models::prelude::*;
use heedful_models::pretrained::presets::{Preset, PresetModel};
use heedful_runs::settings::{self, MECHANISMS};
use serde::Serialize;
use toml::{Table, Value};

use crate::model::ModelSettings;
use crate::session::error::ExperimentError;

/// The form of a preset in an experiment.
#[derive(Clone, Debug)]
pub struct PaperModel {
    /// Name of its attention.
    pub(crate) attention: String,
    /// The mechanisms whose options the name does not say.
    mechanisms: Vec<AnyMechanism>,
    model: ModelSettings,
    /// Fields of the configuration that only the experiment has.
    further: Table,
}

impl PaperModel {
    /// A model with one stack of layers.
    pub fn new(attention: &LayerAttention, model: ModelSettings) -> Self {
        Self { attention: name(attention), mechanisms: attention.mechanisms().to_vec(), model, further: Table::new() }
    }

    /// A classifier, if the preset is one.
    pub fn of_classifier(preset: &Preset) -> Option<Self> {
        let PresetModel::Classifier(config) = &preset.model else { return None };
        let model = Self::new(&config.attention, ModelSettings::of_classifier(config));
        Some(model.with("pooling", config.pooling).with("pooler", config.pooler))
    }

    /// A model with an encoder and a decoder, if the preset is one.
    pub fn of_encoder_decoder(preset: &Preset) -> Option<Self> {
        let PresetModel::Seq2Seq(config) = &preset.model else { return None };
        Some(Self::of_layout(&config.attention, ModelSettings::of_encoder_decoder(config)).with("tying", config.tying))
    }

    /// A model with an encoder and a decoder: the same self-attention in both, or a layout that has a name.
    ///
    /// # Panics
    /// If the layout is another one.
    pub fn of_layout(layout: &AttentionLayout, model: ModelSettings) -> Self {
        let AttentionLayout { encoder, decoder, cross } = layout;
        if encoder == decoder && *cross == AttentionLayout::default().cross {
            return Self::new(encoder, model);
        }
        let mut names = AttentionLayout::names();
        let name = names.find(|name| AttentionLayout::named(name).as_ref() == Some(layout));
        let attention = name.expect("the layouts of presets have names").to_owned();
        // The layout says all options of its mechanisms.
        Self { attention, mechanisms: Vec::new(), model, further: Table::new() }
    }

    /// Adds a field that only the experiment has.
    ///
    /// # Panics
    /// If TOML cannot express it.
    pub fn with(mut self, field: &str, value: impl Serialize) -> Self {
        self.further.insert(field.to_owned(), Value::try_from(value).expect("fields of presets are those of TOML"));
        self
    }

    /// The fields that it sets, without those, by their dotted paths, that say which data there are.
    pub(crate) fn table(&self, data: &[&str]) -> Result<Table, ExperimentError> {
        let mut model = settings::complete(&self.model)?;
        model.retain(|field, _| !data.iter().any(|path| path.strip_prefix("model.") == Some(field)));
        let mut mechanisms = Table::new();
        self.mechanisms.iter().try_for_each(|mechanism| add_options(mechanism, &mut mechanisms))?;
        let mut table = self.further.clone();
        table.insert("model".to_owned(), Value::Table(model));
        table.insert(MECHANISMS.to_owned(), Value::Table(mechanisms));
        Ok(table)
    }
}

/// The name that `--attention` has for the attention of layers.
pub(crate) fn name(attention: &LayerAttention) -> String {
    match attention {
        LayerAttention::All(attention) => attention.name(),
        LayerAttention::Each(list) => format!("[{}]", list.iter().map(AnyMechanism::name).collect::<Vec<_>>().join(",")),
    }
}

/// Adds the options of a mechanism and of those within it, a table for each.
pub(crate) fn add_options(mechanism: &AnyMechanism, tables: &mut Table) -> Result<(), ExperimentError> {
    let mut table = Table::try_from(mechanism).map_err(ExperimentError::usage)?;
    // These stand in the name of the attention.
    for field in ["name", "logits"] {
        table.remove(field);
    }
    tables.insert(mechanism.family().to_owned(), Value::Table(table));
    mechanism.members().into_iter().try_for_each(|member| add_options(member, tables))
}
