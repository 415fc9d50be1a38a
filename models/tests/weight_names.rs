//! The names of weights in files are those that `docs/book/src/weights.md` lists.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::tensors::read::read;
use heedful_models::parts::residual_gate::{GateConfig, GateKind};
use heedful_models::prelude::*;
use heedful_models::training::weights::to_bytes;
use safetensors::SafeTensors;

const DOCUMENT: &str = include_str!("../../docs/book/src/weights.md");

/// The lines of the block that begins with this fence.
fn listed(fence: &str) -> Vec<String> {
    let after = DOCUMENT.split_once(&format!("```{fence}\n")).unwrap_or_else(|| panic!("there is no block {fence}")).1;
    after.split_once("```").unwrap().0.lines().map(str::to_owned).collect()
}

/// Names and shapes in the file of a module, in their order.
fn stored<M: Module>(module: &M) -> Vec<String> {
    let bytes = to_bytes(module);
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names: Vec<String> = file.iter().map(|(name, view)| format!("{name} {:?}", view.shape())).collect();
    names.sort();
    names
}

fn block() -> BlockConfig {
    BlockConfig { d_model: 4, heads: 2, d_ff: 6, max_length: 8, ..BlockConfig::default() }
}

fn language_model() -> LanguageModelConfig {
    let gate = Some(GateConfig::new(GateKind::Gru));
    LanguageModelConfig {
        vocabulary: 5,
        layers: 1,
        block: BlockConfig { gate, norm_order: NormOrder::Pre, gated_feed_forward: true, ..block() },
        positions: PositionConfig::Learned,
        tied: false,
        ..LanguageModelConfig::default()
    }
}

#[test]
fn names_are_those_of_the_document() {
    let key = RandomKey::from_seed(1);
    let translation = Seq2SeqConfig {
        source_vocabulary: 5,
        target_vocabulary: 5,
        encoder_layers: 1,
        decoder_layers: 1,
        block: block(),
        ..Seq2SeqConfig::default()
    };
    assert_eq!(stored(&translation.init(&key, &Device::flex())), listed("names-of-seq2seq"));
    assert_eq!(stored(&language_model().init(&key, &Device::flex())), listed("names-of-language-model"));
}

#[test]
fn names_of_blocks_of_released_models_are_those_of_the_document() {
    let key = RandomKey::from_seed(1);
    let classifier = ClassifierConfig {
        vocabulary: 5,
        outputs: 3,
        layers: 1,
        block: BlockConfig { qkv_bias: true, attention_output_bias: true, ..block() },
        positions: PositionConfig::Learned,
        embedding_norm: true,
        pooler: true,
        masked_head: true,
        segments: true,
        ..ClassifierConfig::default()
    };
    assert_eq!(stored(&classifier.init(&key, &Device::flex())), listed("names-of-classifier"));
    let sandwich = LanguageModelConfig {
        vocabulary: 5,
        layers: 1,
        block: BlockConfig {
            norm: NormConfig::new(NormKind::RmsPlusOne),
            norm_order: NormOrder::Sandwich,
            gated_feed_forward: true,
            feed_forward_bias: false,
            ..block()
        },
        positions: PositionConfig::None,
        output_bias: true,
        ..LanguageModelConfig::default()
    };
    assert_eq!(stored(&sandwich.init(&key, &Device::flex())), listed("names-of-sandwich"));
    let vision = VisionConfig::new(3).with_image(4, 4, 3).with_patch(2).with_layers(1).with_block(block());
    let mut names = stored(&vision.init(&key, &Device::flex()));
    names.retain(|name| !name.starts_with("encoder."));
    assert_eq!(names, listed("names-of-vision"));
}

#[test]
fn names_of_adaptive_vectors_are_those_of_the_document() {
    let adaptive = Some(AdaptiveConfig::new([2, 4]).with_div(2.0));
    let config = LanguageModelConfig { adaptive, positions: PositionConfig::None, ..language_model() };
    let mut names = stored(&config.init(&RandomKey::from_seed(1), &Device::flex()));
    names.retain(|name| !name.starts_with("decoder."));
    assert_eq!(names, listed("names-of-adaptive"));
    let tied = LanguageModelConfig { tied: true, ..config };
    let mut names = stored(&tied.init(&RandomKey::from_seed(1), &Device::flex()));
    names.retain(|name| !name.starts_with("decoder."));
    let own = listed("names-of-adaptive").into_iter().filter(|name| !name.starts_with("adaptive.own."));
    assert_eq!(names, own.collect::<Vec<_>>());
}

#[test]
fn what_was_saved_can_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let device = Device::flex();
    let saved = language_model().init(&RandomKey::from_seed(1), &device);
    save(&saved, &path).unwrap();
    let loaded = load(language_model().init(&RandomKey::from_seed(2), &device), &path, Match::Exact).unwrap();
    let tokens = || Tensor::<2, Int>::from_data([[1, 4, 2]], &device);
    let logits = |model: &heedful_models::architectures::language_model::LanguageModel| {
        read(model.forward_with(tokens(), &[], None, &mut Probe::off()).logits)
    };
    assert_eq!(logits(&loaded), logits(&saved));
}
