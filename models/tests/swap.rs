//! Another attention in layers of a model: what is kept, and that it is.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::mechanisms::none::NoAttention;
use heedful_attention::tensors::read::read;
use heedful_models::block::Context;
use heedful_models::prelude::*;
use heedful_models::pretrained::swap::{Kept, LayerPattern, Reason, SwapError, SwapReport, Swapped, swap_attention};
use heedful_models::training::weights::{WeightsError, to_bytes};
use safetensors::SafeTensors;

fn config(attention: &str) -> LanguageModelConfig {
    LanguageModelConfig {
        vocabulary: 11,
        attention: LayerAttention::All(attention.parse().unwrap()),
        layers: 3,
        block: BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..BlockConfig::default() },
        positions: PositionConfig::Learned,
        ..LanguageModelConfig::default()
    }
}

fn built(config: &LanguageModelConfig) -> LanguageModel {
    config.validate().unwrap();
    config.init(&RandomKey::from_seed(5), &Device::flex())
}

/// The swap of a model of this configuration, whose new parameters are drawn from another key than those of the model.
fn swapped(config: &LanguageModelConfig, layers: &str, attention: &str) -> Swapped {
    swap_attention(built(config), config, &layers.parse().unwrap(), attention, &RandomKey::from_seed(6)).unwrap()
}

fn logits(model: &LanguageModel) -> TensorData {
    read(model.forward(Tensor::<2, Int>::from_data([[2, 5, 7, 1, 9, 3, 4], [0, 0, 2, 8, 8, 10, 6]], &Device::flex())))
}

/// Names, shapes and bytes of parameters.
type Numbers = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn parameters(model: &LanguageModel) -> Numbers {
    let bytes = to_bytes(model);
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.iter().map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), view.data().to_vec()))).collect()
}

/// The end of names after the place of the attention, without repetition.
fn own<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut own: Vec<_> = names.map(|name| name.split_once("self_attention.").unwrap().1).collect();
    own.sort_unstable();
    own.dedup();
    own
}

#[test]
fn an_attention_in_place_of_itself_keeps_everything_bit_for_bit() {
    let config = config("dot-product");
    let (before, after) = (built(&config), swapped(&config, "layers.*.attention", "dot-product"));
    assert_eq!(logits(&after.model), logits(&before));
    assert_eq!(parameters(&after.model), parameters(&before));
    let SwapReport { layers, kept, new, dropped } = &after.report;
    assert_eq!((&layers[..], kept.len(), new.len(), dropped.len()), (&[0, 1, 2][..], 3 * 4, 0, 0));
    assert_eq!((after.report.kept_share(), after.report.kept_parameters()), (Some(1.0), 3 * 4 * 64));
    // A model with other weights gives other logits, so that equality says something.
    assert_ne!(logits(&config.init(&RandomKey::from_seed(6), &Device::flex())), logits(&before));
}

#[test]
fn a_random_synthesizer_keeps_exactly_the_projections_of_values_and_output() {
    let config = config("dot-product");
    let (before, after) = (built(&config), swapped(&config, "layers.*", "synthesizer-random"));
    let SwapReport { kept, new, dropped, .. } = &after.report;
    assert_eq!(own(kept.iter().map(|kept| &kept.name)), ["Softmax.output.weight", "Softmax.value.weight"]);
    assert_eq!(own(new.iter().map(|new| &new.name)), ["Softmax.logits.SynthesizerRandom.table"]);
    let of_scores = ["Softmax.logits.DotProduct.key.weight", "Softmax.logits.DotProduct.query.weight"];
    assert_eq!(own(dropped.iter().map(|dropped| &dropped.name)), of_scores);
    assert!(dropped.iter().all(|dropped| dropped.why == Reason::NoPlace));
    assert_eq!((kept.len(), new.len(), dropped.len()), (6, 3, 6));
    let (old, now) = (parameters(&before), parameters(&after.model));
    for Kept { name, before, .. } in kept {
        assert_eq!(old[before], now[name], "{name}");
    }
    let others = |all: &Numbers| -> Numbers {
        all.iter().filter(|(name, _)| !name.contains("self_attention.")).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    assert_eq!(others(&old), others(&now));
    assert!(others(&old).len() > 10);
    assert_ne!(logits(&after.model), logits(&before));
    let said = after.report.to_string();
    assert!(
        said.starts_with("layers 0, 1, 2: kept 384 of 768 parameters (0.50): Softmax.output.weight [8, 8], Softmax.value.weight"),
        "{said}"
    );
    assert!(said.contains("; new 1536: Softmax.logits.SynthesizerRandom.table [2, 16, 16]; dropped 384: "), "{said}");
}

#[test]
fn layers_that_are_not_chosen_stay_as_they_are() {
    let config = config("dot-product");
    let (before, after) = (built(&config), swapped(&config, "layers.0,2", "synthesizer-random"));
    let families: Vec<_> = (0..3).map(|layer| after.config.attention.at(layer).family()).collect();
    assert_eq!(families, ["synthesizer-random", "dot-product", "synthesizer-random"]);
    let of_one = |all: BTreeMap<String, (Vec<usize>, Vec<u8>)>| -> Vec<_> {
        all.into_iter().filter(|(name, _)| name.starts_with("decoder.layers.1.")).collect()
    };
    assert_eq!(of_one(parameters(&after.model)), of_one(parameters(&before)));
    assert!(after.report.kept.iter().all(|kept| !kept.name.contains(".layers.1.")));
    // A list is one for each layer of the model.
    let list = ["uniform", "dot-product", "synthesizer-random"];
    let mixed = swap_attention(built(&config), &config, &"layers.0-1".parse().unwrap(), list, &RandomKey::from_seed(6)).unwrap();
    let families: Vec<_> = (0..3).map(|layer| mixed.config.attention.at(layer).family()).collect();
    assert_eq!(families, ["uniform", "dot-product", "dot-product"]);
}

#[test]
fn biases_go_where_an_attention_cannot_have_them() {
    let mut config = config("dot-product");
    (config.block.qkv_bias, config.block.attention_output_bias) = (true, true);
    let one = swapped(&config, "layers.1", "uniform");
    assert!(one.config.block.qkv_bias && one.config.block.attention_output_bias);
    assert_eq!(own(one.report.kept.iter().map(|kept| &kept.name)), ["Softmax.output.weight", "Softmax.value.weight"]);
    assert!(one.report.dropped.iter().any(|dropped| dropped.name.ends_with("value.bias")), "{}", one.report);
    let biases = |layer: usize| {
        let of_layer = format!("decoder.layers.{layer}.self_attention.");
        parameters(&one.model).keys().filter(|name| name.starts_with(&of_layer) && name.ends_with(".bias")).count()
    };
    assert_eq!([0, 1, 2].map(biases), [4, 0, 4]);
    let all = swapped(&config, "layers.*", "uniform");
    assert!(!all.config.block.qkv_bias && !all.config.block.attention_output_bias);
    // What has no place for a bias anywhere is still refused where it is asked for.
    config.attention = "uniform".parse::<AnyMechanism>().unwrap().into();
    assert!(config.validate().unwrap_err().to_string().contains("`qkv_bias`"));
}

#[test]
fn heads_are_usual_where_an_attention_cannot_share_them_or_have_another_width() {
    let block = BlockConfig { kv_heads: Some(1), ..config("dot-product").block };
    let mut grouped = LanguageModelConfig { block, ..config("dot-product") };
    let shape = |swapped: &Swapped, layer: usize, end: &str| {
        let of_layer = format!("decoder.layers.{layer}.self_attention.");
        let all = parameters(&swapped.model);
        let (_, (shape, _)) = all.iter().find(|(name, _)| name.starts_with(&of_layer) && name.ends_with(end)).unwrap();
        shape.clone()
    };
    let one = swapped(&grouped, "layers.1", "linear-attention");
    assert_eq!(one.config.block.kv_heads, Some(1));
    assert_eq!([0, 1, 2].map(|layer| shape(&one, layer, "key.weight")), [[8, 4], [8, 8], [8, 4]].map(Vec::from));
    let kept = own(one.report.kept.iter().map(|kept| &kept.name));
    let is_kept = |end: &str| kept.iter().any(|name| name.ends_with(end));
    assert!(kept.len() == 2 && is_kept("output.weight") && is_kept("query.weight"), "{kept:?}");
    assert!(one.report.to_string().contains("value.weight [8, 4] which is [8, 8] now"), "{}", one.report);
    let counted = one.config.parameters().unwrap();
    let built: usize = parameters(&one.model).values().map(|(shape, _)| shape.iter().product::<usize>()).sum();
    assert_eq!(counted.trained, built as u128);
    assert!(logits(&one.model).iter::<f32>().all(f32::is_finite));

    let all = swapped(&grouped, "layers.*", "linear-attention");
    assert_eq!((all.config.block.kv_heads, all.report.kept.len(), all.report.dropped.len()), (None, 6, 6));
    // No weight of wider heads has a place.
    grouped.block = BlockConfig { kv_heads: None, head_width: Some(6), ..grouped.block };
    let narrow = swapped(&grouped, "layers.0", "linear-attention");
    assert_eq!((narrow.config.block.head_width, narrow.report.kept_share()), (Some(6), Some(0.0)));
    assert_eq!([0, 1].map(|layer| shape(&narrow, layer, "output.weight")), [[8, 8], [12, 8]].map(Vec::from));
    assert_eq!(swapped(&grouped, "layers.*", "linear-attention").config.block.head_width, None);
    // Where no attention can have them, they are still refused.
    grouped.attention = "linear-attention".parse::<AnyMechanism>().unwrap().into();
    assert!(grouped.validate().unwrap_err().to_string().contains("kv_heads and head_width"));
}

#[test]
fn queries_and_keys_are_kept_wherever_the_scores_have_them() {
    for attention in
        ["alibi", "rotary", "dot-product@sliding-window", "linear-attention", "synthesizer-random+dot-product", "dot-product@sigmoid"]
    {
        let report = swapped(&config("dot-product"), "layers.*", attention).report;
        assert_eq!(report.kept_share(), Some(1.0), "{attention}: {report}");
    }
    // Of a mixture the member of the same kind has them.
    let report = swapped(&config("dot-product"), "layers.0", "relative+dot-product").report;
    let queries: Vec<_> = report.kept.iter().filter(|kept| kept.name.ends_with("query.weight")).collect();
    assert!(queries.len() == 1 && queries[0].name.contains("DotProduct.query"), "{report}");
    // Two softmaxes have none that is the old one.
    let report = swapped(&config("dot-product"), "layers.0", "differential").report;
    let of_query = report.dropped.iter().find(|dropped| dropped.name.ends_with("query.weight")).unwrap();
    assert!(matches!(&of_query.why, Reason::SeveralPlaces { places } if places.len() == 2), "{report}");
}

#[test]
fn biases_grouped_heads_and_widths_of_heads_decide_what_has_a_place() {
    let block =
        BlockConfig { qkv_bias: true, attention_output_bias: true, kv_heads: Some(1), head_width: Some(6), ..config("rotary").block };
    let grouped = LanguageModelConfig { block, ..config("rotary") };
    let after = swapped(&grouped, "layers.*", "dot-product");
    let shapes: BTreeMap<_, _> = after.report.kept.iter().map(|kept| (kept.name.as_str(), &kept.shape[..])).collect();
    assert_eq!(shapes["decoder.layers.1.self_attention.Softmax.logits.DotProduct.query.weight"], [8, 12]);
    assert_eq!(shapes["decoder.layers.1.self_attention.Softmax.logits.DotProduct.key.bias"], [6]);
    assert_eq!((after.report.kept_share(), shapes.len()), (Some(1.0), 3 * 8));
    // A model with biases in an attention that has none of its own.
    let biased =
        LanguageModelConfig { attention: LayerAttention::All(DotProductConfig::default().with_bias(true).into()), ..config("dot-product") };
    let report = swapped(&biased, "layers.2", "linear-attention").report;
    assert!(report.dropped.iter().all(|dropped| dropped.name.ends_with(".bias") && dropped.why == Reason::NoPlace), "{report}");
    assert_eq!((report.dropped.len(), report.kept.len()), (4, 4), "{report}");
}

#[test]
fn a_weight_of_another_shape_is_reported_with_both() {
    let report = swapped(&config("dot-product"), "layers.1", "gla").report;
    let of_key = report.dropped.iter().find(|dropped| dropped.name.ends_with("key.weight")).unwrap();
    let place = report.new.iter().find(|new| new.name.ends_with("mixer.key.weight")).unwrap();
    assert_eq!((&of_key.shape[..], &place.shape[..], place.was.as_deref()), (&[8, 8][..], &[8, 4][..], Some(&[8, 8][..])));
    assert!(matches!(&of_key.why, Reason::OtherShape { shape, place: name } if shape[..] == [8, 4] && *name == place.name));
    let said = report.to_string();
    assert!(said.contains("[8, 8] which is [8, 4] now") && said.contains("[8, 4] in place of [8, 8]"), "{said}");
}

#[test]
fn every_parameter_of_every_mechanism_is_accounted_for() {
    let before = config("dot-product");
    let old = parameters(&built(&before));
    for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
        let after = swap_attention(built(&before), &before, &LayerPattern::ALL, attention.clone(), &RandomKey::from_seed(6)).unwrap();
        let (now, report) = (parameters(&after.model), &after.report);
        let in_attention = |all: &BTreeMap<String, (Vec<usize>, Vec<u8>)>| -> Vec<String> {
            all.keys().filter(|name| name.contains("self_attention.")).cloned().collect()
        };
        let mut names: Vec<_> = report.kept.iter().map(|kept| &kept.name).chain(report.new.iter().map(|new| &new.name)).cloned().collect();
        names.sort();
        assert_eq!(names, in_attention(&now), "{attention}");
        let of_old = report.kept.iter().map(|kept| &kept.before).chain(report.dropped.iter().map(|dropped| &dropped.name));
        let mut names: Vec<_> = of_old.cloned().collect();
        names.sort();
        assert_eq!(names, in_attention(&old), "{attention}");
        assert!(report.kept.iter().all(|kept| now[&kept.name] == old[&kept.before]), "{attention}");
        // A new parameter is the one that a model of the new configuration begins with.
        let initial = parameters(&after.config.init(&RandomKey::from_seed(6), &Device::flex()));
        assert!(report.new.iter().all(|new| now[&new.name] == initial[&new.name]), "{attention}");
        assert!(logits(&after.model).iter::<f32>().all(f32::is_finite), "{attention}");
    }
}

#[test]
fn impossible_swaps_are_refused_and_named() {
    let config = config("dot-product");
    let refused = |layers: &str, attention: &str| {
        swap_attention(built(&config), &config, &layers.parse().unwrap(), attention, &RandomKey::from_seed(6)).unwrap_err().to_string()
    };
    assert!(refused("layers.3", "uniform").contains("no layer 3"));
    assert!(refused("layers.*", "dot-produkt").contains("dot-produkt"));
    assert!(refused("layers.*", "linformer").contains("linformer"));
    let two = ["uniform", "dot-product"];
    let list = swap_attention(built(&config), &config, &LayerPattern::ALL, two, &RandomKey::from_seed(6)).unwrap_err().to_string();
    assert!(list.contains("a list of 2"), "{list}");
    // A model of another configuration than it is said to be.
    let wider = LanguageModelConfig { tied: false, ..config.clone() };
    let error = swap_attention(built(&config), &wider, &LayerPattern::ALL, "uniform", &RandomKey::from_seed(6)).unwrap_err();
    assert!(matches!(&error, SwapError::Model(WeightsError::Mismatch { missing, .. }) if missing[..] == ["output.weight"]), "{error}");
    let error = swap_attention(built(&wider), &config, &LayerPattern::ALL, "uniform", &RandomKey::from_seed(6)).unwrap_err();
    assert!(matches!(&error, SwapError::Model(WeightsError::Mismatch { unused, .. }) if unused[..] == ["output.weight"]), "{error}");
}

#[test]
fn a_block_without_attention_keeps_its_normalisation() {
    let device = Device::flex();
    let x = Tensor::<3>::from_data([[[1.0, 3.0], [2.0, -6.0]]], &device);
    for (norm_order, expected) in [(NormOrder::Pre, [1.0, 3.0, 2.0, -6.0]), (NormOrder::Post, [-1.0, 1.0, 1.0, -1.0])] {
        let block = BlockConfig { d_model: 2, heads: 1, norm_order, feed_forward_in: FeedForwardIn::None, ..BlockConfig::default() };
        let block = block.init(Role::Encoder, NoAttention::default(), None, &RandomKey::from_seed(1), &device);
        for random in [None, Some(RandomKey::from_seed(2))] {
            let found = block.forward(x.clone(), &Context::new(Visibility::all()), random, &mut Probe::off()).states;
            let found = read(found).try_to_vec::<f32>().unwrap();
            assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-4), "{norm_order:?}: {found:?}");
        }
    }
}

#[test]
fn a_swap_that_leaves_attention_out_keeps_nothing_of_it() {
    let config = config("dot-product");
    let Swapped { model, report, .. } = swapped(&config, "layers.0-1", "none");
    assert_eq!((report.kept_parameters(), report.new_parameters(), report.dropped_parameters()), (0, 0, 2 * 4 * 64));
    assert_eq!(report.kept_share(), Some(0.0));
    assert_eq!(model.num_params() + 2 * 4 * 64, built(&config).num_params());
}

#[test]
fn classifiers_keep_embedding_pooler_and_output() {
    let config = ClassifierConfig {
        vocabulary: 11,
        outputs: 3,
        layers: 2,
        block: BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..BlockConfig::default() },
        pooler: true,
        segments: true,
        ..ClassifierConfig::default()
    };
    let before = config.init(&RandomKey::from_seed(5), &Device::flex());
    let swapped = |layers: &str, attention: &str| {
        swap_attention(before.clone(), &config, &layers.parse().unwrap(), attention, &RandomKey::from_seed(6)).unwrap()
    };
    let logits = |model: &Classifier| {
        let ids = |ids: [[i32; 4]; 2]| Tensor::<2, Int>::from_data(ids, &Device::flex());
        let sentences =
            Sentences { tokens: ids([[4, 5, 6, 9], [4, 2, 3, 0]]), segments: Some(ids([[0, 0, 1, 1], [0; 4]])), lengths: &[4, 3] };
        read(model.forward_with(sentences, None, &mut Probe::off()).logits)
    };
    assert_eq!(logits(&swapped("layers.*", "dot-product").model), logits(&before));
    let after = swapped("layers.1", "synthesizer-random");
    assert_ne!(logits(&after.model), logits(&before));
    assert_eq!(after.config.attention.at(0).family(), "dot-product");
    let SwapReport { layers, kept, new, .. } = &after.report;
    assert_eq!(own(kept.iter().map(|kept| &kept.name)), ["Softmax.output.weight", "Softmax.value.weight"]);
    assert_eq!(own(new.iter().map(|new| &new.name)), ["Softmax.logits.SynthesizerRandom.table"]);
    assert!(layers[..] == [1] && kept.iter().all(|kept| kept.name.starts_with("encoder.layers.1.")), "{kept:?}");
    let weights = |model: &Classifier| [&model.pooler.as_ref().unwrap().weight, &model.output.weight].map(|weight| read(weight.val()));
    assert_eq!(weights(&after.model), weights(&before));
    // A mechanism for decoders alone.
    let error = swap_attention(before.clone(), &config, &LayerPattern::ALL, "gla", &RandomKey::from_seed(6)).unwrap_err();
    assert!(error.to_string().contains("gla"), "{error}");
}
