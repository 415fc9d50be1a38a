//! The compared attentions: the mechanisms of a model under one name.

use heedful_models::prelude::*;

/// An attention under the name that was asked for.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Name in options, folders and tables.
    pub name: String,
    /// The mechanism of each part and layer. A model without an encoder has that of the decoder, and one without a decoder that of the encoder.
    pub layout: AttentionLayout,
}

impl Attention {
    /// The mechanism in all self-attentions, under its name.
    pub fn new(mechanism: AnyMechanism) -> Self {
        Self { name: mechanism.name(), layout: AttentionLayout::for_attention(mechanism) }
    }
}
