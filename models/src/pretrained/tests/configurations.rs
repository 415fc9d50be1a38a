//! Configurations of released models match the presets.

use heedful_attention::prelude::*;
use serde_json::json;

use super::*;
use crate::pretrained::presets::{self, Size};

/// The model of a configuration.
fn model(config: &Value) -> PresetModel {
    let fields = config.as_object().unwrap();
    let fields = Fields::new(Path::new(CONFIG), fields);
    let architecture = Architecture::named(&fields).unwrap();
    architecture.model(fields).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn configurations_of_released_models_are_those_of_the_presets() {
    // As in the files, without fields common to all.
    let gpt2 = json!({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1,
        "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
        "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
        "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257,
    });
    assert_eq!(model(&gpt2), PresetModel::LanguageModel(presets::gpt2(Size::Full).model));
    let bert = json!({
        "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": false, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
        "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522,
    });
    assert_eq!(model(&bert), PresetModel::Classifier(presets::bert_base(Size::Full).model));
    let llama = json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 8192,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
        "rms_norm_eps": 1e-5, "rope_scaling": null, "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.0.dev0", "use_cache": true, "vocab_size": 128256,
    });
    assert_eq!(model(&llama), PresetModel::LanguageModel(presets::llama_3_8b(Size::Full).model));
    let mistral = json!({
        "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
        "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 4096,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000,
    });
    assert_eq!(model(&mistral), PresetModel::LanguageModel(presets::mistral_7b(Size::Full).model));
    let qwen = json!({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
        "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
        "vocab_size": 151936,
    });
    assert_eq!(model(&qwen), PresetModel::LanguageModel(presets::qwen_3_0_6b(Size::Full).model));
    let gemma = json!({
        "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "bos_token_id": 2,
        "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02, "intermediate_size": 9216,
        "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
        "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 4096,
        "torch_dtype": "float32", "transformers_version": "4.42.4", "use_cache": true, "vocab_size": 256000,
    });
    assert_eq!(model(&gemma), PresetModel::LanguageModel(presets::gemma_2_2b(Size::Full).model));
    let labels: Map<String, Value> = (0..1000).map(|class| (class.to_string(), json!(format!("class {class}")))).collect();
    let vit = json!({
        "architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0, "encoder_stride": 16, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0, "hidden_size": 768, "id2label": labels, "image_size": 224, "initializer_range": 0.02, "intermediate_size": 3072,
        "label2id": {}, "layer_norm_eps": 1e-12, "model_type": "vit", "num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12,
        "patch_size": 16, "qkv_bias": true, "transformers_version": "4.13.0.dev0",
    });
    assert_eq!(model(&vit), PresetModel::Vision(presets::vit_b16(Size::Full).model));
}

#[test]
fn rotary_positions_of_earlier_versions_are_the_same() {
    let (new, old) = (Copied::of("llama"), Copied::of("llama"));
    let scaling =
        json!({"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8});
    let old = old.with(json!({"rope_parameters": null, "rope_theta": 500000.0, "rope_scaling": scaling}));
    let config = |folder: &Copied| Pretrained::open(folder.path()).unwrap().model().clone();
    assert_eq!(config(&old), config(&new));
    let plain = Copied::of("llama").with(json!({"rope_parameters": null, "rope_theta": 500000.0}));
    assert_ne!(config(&plain), config(&new));
    let default = Copied::of("llama").with(json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}));
    assert_eq!(config(&default), config(&plain));
}

/// `tests/fixtures/scaled_rotary.py`.
#[test]
fn scaled_rotary_positions_are_those_of_transformers() {
    let device = Device::flex();
    let text = fs::read_to_string(fixture("../scaled_rotary.json")).unwrap();
    let cases: Map<String, Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(cases.keys().collect::<Vec<_>>(), ["dynamic", "proportional", "yarn"]);
    let tokens = Expected::of("llama").tokens("input.input_ids", &device);
    for (name, case) in &cases {
        let folder = Copied::of("llama").with(case["changes"].clone());
        let model = decoder(folder.path(), &device);
        let logits = model.forward_with(tokens.clone(), &[], None, &mut Probe::off()).logits;
        let [_, length, vocabulary] = logits.dims();
        let expected: Vec<f32> = case["logits"].as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap() as f32).collect();
        let found = numbers(logits.narrow(1, length - 1, 1));
        assert_close(&found, &expected, name);
        assert!(differ(&expected, &numbers(plain(&tokens, &device).narrow(1, length - 1, 1))), "{name} changes nothing");
        assert_eq!(expected.len(), 2 * vocabulary);
    }
}

/// Logits `[2, 9, V]` of the unmodified Llama.
fn plain(tokens: &Tensor<2, Int>, device: &Device) -> Tensor<3> {
    decoder(&fixture("llama"), device).forward_with(tokens.clone(), &[], None, &mut Probe::off()).logits
}

fn differ(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-2)
}

#[test]
fn windows_are_in_the_layers_that_the_configuration_says() {
    let attention = |folder: Copied| match Pretrained::open(folder.path()).unwrap().model() {
        PresetModel::LanguageModel(config) => (0..2).map(|layer| config.attention.at(layer).name()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let window = |name: &str| name.contains("sliding-window");
    let both = |folder: Copied| attention(folder).iter().map(|name| window(name)).collect::<Vec<_>>();
    assert_eq!(both(Copied::of("qwen3")), [false, true]);
    // Without a list, layers from max_window_layers on.
    assert_eq!(both(Copied::of("qwen3").with(json!({"layer_types": null}))), [false, true]);
    assert_eq!(both(Copied::of("qwen3").with(json!({"layer_types": null, "max_window_layers": 0}))), [true, true]);
    assert_eq!(both(Copied::of("qwen3").with(json!({"layer_types": null, "use_sliding_window": false}))), [false, false]);
    let list = json!({"layer_types": ["sliding_attention", "full_attention"]});
    assert_eq!(both(Copied::of("qwen3").with(list)), [true, false]);
    // Null means no window, and a missing field the window of the first version.
    let null = Copied::of("mistral").edit(CONFIG, |fields| fields["sliding_window"] = Value::Null);
    assert_eq!(both(null), [false, false]);
    assert_eq!(both(Copied::of("mistral").with(json!({"sliding_window": null}))), [true, true]);
    // Without a list, every second layer, starting with the first.
    assert_eq!(both(Copied::of("gemma2")), [true, false]);
    assert_eq!(both(Copied::of("gemma2").with(json!({"layer_types": null}))), [true, false]);
    assert_eq!(both(Copied::of("gemma2").with(json!({"layer_types": ["full_attention", "sliding_attention"]}))), [false, true]);
    assert_eq!(both(Copied::of("gemma2").with(json!({"layer_types": ["full_attention", "full_attention"]}))), [false, false]);
}

#[test]
fn lists_of_layers_are_as_short_as_they_can_be() {
    let types =
        |windows: &[bool]| windows.iter().map(|&window| if window { "sliding_attention" } else { "full_attention" }).collect::<Vec<_>>();
    let length = |windows: &[bool]| {
        let changes = json!({"num_hidden_layers": windows.len(), "layer_types": types(windows)});
        match Pretrained::open(Copied::of("gemma2").with(changes).path()).unwrap().model() {
            PresetModel::LanguageModel(config) => config.attention.mechanisms().len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(length(&[true, true, true, true]), 1);
    assert_eq!(length(&[true, false, true, false]), 2);
    assert_eq!(length(&[true, false, true, false, true]), 5);
    assert_eq!(length(&[true, true, false, true, true, false]), 3);
}

#[test]
fn bounds_and_scales_are_those_of_the_configuration() {
    let of = |folder: Copied| match Pretrained::open(folder.path()).unwrap().model() {
        PresetModel::LanguageModel(config) => (config.logit_softcap, config.attention.at(1).clone()),
        other => panic!("{other:?}"),
    };
    let rotary = |scale: f64| AnyMechanism::from(RotaryConfig::default().with_score_scale(scale));
    let capped = |cap, logits| AnyMechanism::from(SoftCapConfig::default().with_cap(cap).with_logits(logits));
    let scaled = || Copied::of("gemma2").with(json!({"query_pre_attn_scalar": 4}));
    assert_eq!(of(scaled()), (Some(10.0), capped(3.0, rotary(0.5))));
    // A missing field means the class default, and null no bound.
    let without = scaled().with(json!({"attn_logit_softcapping": null, "final_logit_softcapping": null}));
    assert_eq!(of(without), (Some(30.0), capped(50.0, rotary(0.5))));
    let unbounded = scaled().edit(CONFIG, |fields| {
        for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
            fields[field] = Value::Null;
        }
    });
    assert_eq!(of(unbounded), (None, rotary(0.5)));
    // The default is that of the head width.
    let plain = Copied::of("gemma2").with(json!({"query_pre_attn_scalar": 8}));
    assert_eq!(of(plain).1, capped(3.0, RotaryConfig::default().into()));
}
