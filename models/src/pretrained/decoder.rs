//! Shared code of GPT-2, Llama, Mistral, Qwen-3 and Gemma-2: a body with a token output or a class output.
//!
//! Classifiers are the `…ForSequenceClassification` of transformers: a projection without biases, `score`, of the state of the last token that is not padding.

use super::architecture::Architecture;
use super::key_mapping::{Place, Row, Table};
use super::shards::Shards;
use super::{gemma2, gpt2, llama};
use crate::architectures::classifier::{ClassifierConfig, Pooling};
use crate::architectures::language_model::LanguageModelConfig;
use crate::block::BlockConfig;
use crate::block::layout::LayerAttention;

/// Class output.
pub(super) const SCORE: &[Row] = &[("output.weight", "score.weight", Place::Transposed)];

/// Token output, and the name of the embedding.
pub(super) fn output(architecture: Architecture) -> (Row, &'static str) {
    if architecture == Architecture::Gpt2 { (gpt2::OUTPUT, gpt2::EMBEDDING) } else { (llama::OUTPUT, llama::EMBEDDING) }
}

/// Adds the parameters below the output: layers with this attention, and the surrounding modules.
pub(super) fn add_body(
    table: &mut Table,
    architecture: Architecture,
    (layers, attention, block): (usize, &LayerAttention, &BlockConfig),
    files: &Shards,
) {
    let names = architecture.names();
    if architecture == Architecture::Gpt2 {
        names.add_layers(table, layers, attention, &[gpt2::LAYER], files);
        return names.add(table, gpt2::REST, files);
    }
    let norms = if architecture == Architecture::Gemma2 { gemma2::NORMS } else { llama::NORM };
    let mut rows = vec![llama::LAYER, norms];
    rows.extend(block.qkv_bias.then_some(llama::ATTENTION_BIASES));
    rows.extend(block.feed_forward_bias.then_some(llama::FEED_FORWARD_BIASES));
    rows.extend((architecture == Architecture::Qwen3).then_some(llama::QK_NORM));
    names.add_layers(table, layers, attention, &rows, files);
    names.add(table, llama::REST, files);
}

/// The classifier with the body of a language model.
pub(super) fn classifier(config: &LanguageModelConfig, outputs: usize) -> ClassifierConfig {
    let &LanguageModelConfig { vocabulary, layers, block, positions, embedding_scale, embedding_norm, depth, initialisation, .. } = config;
    ClassifierConfig {
        vocabulary,
        outputs,
        attention: config.attention.clone(),
        layers,
        block,
        positions,
        embedding_scale,
        embedding_norm,
        depth,
        initialisation,
        pooling: Pooling::LastToken,
        output_bias: false,
        causal: true,
        ..ClassifierConfig::default()
    }
}
