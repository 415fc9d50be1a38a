//! How long the sequences are that models learn from.

use std::collections::BTreeMap;

use heedful_models::prelude::*;

/// The lengths of the training sequences, as batches hold them, and the attentions that read them.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingLengths {
    /// The mechanisms of the model, with the options that follow from the data.
    pub layout: AttentionLayout,
    /// Longest sequence of the model.
    pub max_length: usize,
    encoder: BTreeMap<usize, usize>,
    decoder: BTreeMap<usize, usize>,
    carried: usize,
}

impl TrainingLengths {
    /// The lengths for a model of at most `max_length` positions, without sequences yet.
    pub fn new(layout: &AttentionLayout, max_length: usize) -> Self {
        Self { layout: layout.clone(), max_length, encoder: BTreeMap::new(), decoder: BTreeMap::new(), carried: 0 }
    }

    /// The lengths that the self-attentions of an encoder read, of some training sequences or of all.
    pub fn encoder(self, lengths: impl IntoIterator<Item = usize>) -> Self {
        Self { encoder: counted(lengths), ..self }
    }

    /// The lengths that the self-attentions of a decoder read.
    pub fn decoder(self, lengths: impl IntoIterator<Item = usize>) -> Self {
        Self { decoder: counted(lengths), ..self }
    }

    /// Prepends `carried` positions from earlier segments to the decoder's sequences; these positions are not queries.
    pub fn carried(self, carried: usize) -> Self {
        Self { carried, ..self }
    }

    /// The mechanisms of a decoder.
    pub fn decoder_attention(self, attention: LayerAttention) -> Self {
        Self { layout: AttentionLayout { decoder: attention, ..self.layout }, ..self }
    }

    /// How many sequences there are of each length that the attentions of a role attend to.
    pub fn of(&self, role: Role) -> &BTreeMap<usize, usize> {
        match role {
            Role::Encoder | Role::Cross => &self.encoder,
            Role::Decoder => &self.decoder,
        }
    }

    /// The first position that is a query of an attention of a role.
    pub(crate) fn first_query(&self, role: Role) -> usize {
        if role == Role::Decoder { self.carried } else { 0 }
    }
}

fn counted(lengths: impl IntoIterator<Item = usize>) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    lengths.into_iter().filter(|&length| length > 0).for_each(|length| *counts.entry(length).or_default() += 1);
    counts
}
