//! Refusals and their messages.

use serde_json::json;

use super::*;

fn opened(folder: &Copied) -> String {
    Pretrained::open(folder.path()).unwrap_err().to_string()
}

fn read_error(folder: &Copied) -> String {
    let folder = Pretrained::open(folder.path()).unwrap();
    let device = Device::flex();
    match folder.model() {
        PresetModel::LanguageModel(_) => folder.language_model(&device).unwrap_err().to_string(),
        PresetModel::Classifier(_) => folder.classifier(&device).unwrap_err().to_string(),
        PresetModel::Seq2Seq(_) => folder.seq2seq(&device).unwrap_err().to_string(),
        _ => folder.vision(&device).unwrap_err().to_string(),
    }
}

/// Asserts that a message contains these parts.
fn assert_says(message: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn fields_that_are_not_supported_are_refused_by_name() {
    let refused = |name: &str, changes: Value, parts: &[&str]| {
        let message = opened(&Copied::of(name).with(changes.clone()));
        assert_says(&message, &["config.json"]);
        assert_says(&message, parts);
    };
    refused(
        "llama",
        json!({"model_type": "mamba"}),
        &["`model_type` is \"mamba\"", "bert, gemma2, gpt2, llama, mistral, qwen3, roberta, t5, vit"],
    );
    refused("llama", json!({"model_type": null}), &["`model_type` is not given"]);
    refused("llama", json!({"architectures": ["LlamaForTokenClassification"]}), &["`architectures`", "LlamaForCausalLM"]);
    refused("llama", json!({"pretraining_tp": 2}), &["`pretraining_tp` is 2", "only 1"]);
    refused(
        "llama",
        json!({"rope_parameters": {"rope_type": "longrope"}}),
        &["`rope_parameters.rope_type` is \"longrope\"", "proportional, llama3 and yarn"],
    );
    refused(
        "llama",
        json!({"rope_parameters": null, "rope_scaling": {"type": "longrope", "factor": 2.0}}),
        &["`rope_scaling.type` is \"longrope\""],
    );
    let share = json!({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.1}});
    refused("llama", share, &["`scaling.partial_rotary_factor` is 0.1", "4 channels"]);
    refused("llama", json!({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}}), &["only 1.0"]);
    refused("llama", json!({"rope_scaling": {"type": "linear", "factor": 2.0}}), &["`rope_scaling`", "not both"]);
    refused("llama", json!({"rope_parameters": {"rope_type": "linear"}}), &["`rope_parameters.factor` is not given"]);
    refused("llama", json!({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "beta": 3}}), &["`rope_parameters.beta` is 3"]);
    refused("llama", json!({"partial_rotary_factor": 0.5}), &["`partial_rotary_factor` is 0.5"]);
    refused("llama", json!({"hidden_act": "mish"}), &["`hidden_act` is \"mish\"", "silu"]);
    refused("llama", json!({"hidden_size": 0}), &["`hidden_size` is 0", "at least 1"]);
    refused("llama", json!({"hidden_size": u64::MAX}), &["`hidden_size` is 18446744073709551615", "at most 4294967295"]);
    refused("qwen3", json!({"num_hidden_layers": 4_000_000_000u64}), &["`num_hidden_layers` is 4000000000", "at most 65536"]);
    refused("llama", json!({"vocab_size": null}), &["`vocab_size` is not given"]);
    refused("llama", json!({"attention_bias": "yes"}), &["`attention_bias` is \"yes\"", "true or false"]);
    refused("llama", json!({"quantization_config": {"bits": 4}}), &["`quantization_config`", "take it out"]);
    refused("llama", json!({"num_key_value_heads": 3}), &["config.json", "kv_heads"]);
    refused("mistral", json!({"num_key_value_heads": null}), &["`num_key_value_heads` is not given"]);
    refused("mistral", json!({"attention_bias": true}), &["`attention_bias` is true"]);
    refused("mistral", json!({"layer_types": ["full_attention", "full_attention"]}), &["`layer_types`"]);
    refused("qwen3", json!({"layer_types": ["full_attention"]}), &["`layer_types`", "each of the 2 layers"]);
    refused("qwen3", json!({"layer_types": ["full_attention", "chunked_attention"]}), &["`layer_types`", "sliding_attention"]);
    refused("qwen3", json!({"use_sliding_window": false}), &["`layer_types`", "use_sliding_window"]);
    refused("gemma2", json!({"use_bidirectional_attention": true}), &["`use_bidirectional_attention` is true", "only false"]);
    refused("gemma2", json!({"query_pre_attn_scalar": 0}), &["`query_pre_attn_scalar` is 0", "greater than 0"]);
    refused("gemma2", json!({"attn_logit_softcapping": 0.0}), &["`attn_logit_softcapping` is 0.0", "null for no bound"]);
    refused("gemma2", json!({"final_logit_softcapping": -30}), &["`final_logit_softcapping` is -30", "null for no bound"]);
    refused("gemma2", json!({"hidden_activation": "mish"}), &["`hidden_activation` is \"mish\""]);
    refused("gemma2", json!({"num_key_value_heads": null}), &["`num_key_value_heads` is not given"]);
    refused("gemma2", json!({"layer_types": ["sliding_attention"]}), &["`layer_types`", "each of the 2 layers"]);
    refused("gemma2", json!({"mlp_bias": true}), &["`mlp_bias` is true", "take it out"]);
    let windowless = Copied::of("gemma2").edit(CONFIG, |fields| fields["sliding_window"] = Value::Null);
    assert_says(&opened(&windowless), &["`sliding_window` is null", "sliding_attention"]);
    refused("gpt2", json!({"scale_attn_by_inverse_layer_idx": true}), &["`scale_attn_by_inverse_layer_idx` is true", "only false"]);
    refused("gpt2", json!({"scale_attn_weights": false}), &["`scale_attn_weights` is false", "only true"]);
    refused("gpt2", json!({"add_cross_attention": true}), &["`add_cross_attention` is true"]);
    refused("gpt2", json!({"embd_pdrop": 0.2}), &["`embd_pdrop` is 0.2", "resid_pdrop, 0.1"]);
    refused("bert", json!({"position_embedding_type": "relative_key"}), &["`position_embedding_type` is \"relative_key\"", "absolute"]);
    refused("bert", json!({"type_vocab_size": 1}), &["`type_vocab_size` is 1", "only 2"]);
    refused("bert", json!({"classifier_dropout": 0.5}), &["`classifier_dropout` is 0.5", "hidden_dropout_prob, 0.1"]);
    refused("bert", json!({"is_decoder": true}), &["`is_decoder` is true"]);
    refused("roberta", json!({"type_vocab_size": 3}), &["`type_vocab_size` is 3", "only 1 and 2"]);
    refused("roberta", json!({"pad_token_id": 0}), &["`pad_token_id` is 0", "only 1"]);
    refused("roberta", json!({"max_position_embeddings": 2}), &["`max_position_embeddings` is 2", "2 rows"]);
    refused("t5", json!({"is_encoder_decoder": false}), &["`is_encoder_decoder` is false", "only true"]);
    refused("t5", json!({"feed_forward_proj": "gated-mish"}), &["`feed_forward_proj` is \"gated-mish\""]);
    refused("vit", json!({"patch_size": [2, 4]}), &["`patch_size` is [2,4]", "squares"]);
    refused("vit", json!({"image_size": [8, 10]}), &["config.json", "width"]);
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_name() {
    let file = "model.safetensors";
    let gone = |name: &'static str, tensor: &'static str| {
        Copied::of(name).with_tensors(file, |tensors| {
            tensors.remove(tensor).unwrap();
        })
    };
    assert_says(&read_error(&gone("gpt2", "transformer.h.1.ln_2.bias")), &[file, "no tensor `transformer.h.1.ln_2.bias`", "same model"]);
    assert_says(&read_error(&gone("mistral", "lm_head.weight")), &[file, "no tensor `lm_head.weight`", "tie_word_embeddings"]);
    assert_says(&read_error(&gone("bert", "classifier.weight")), &[file, "no tensor `classifier.weight`", "with_new_output"]);

    let norm = "model.layers.1.post_feedforward_layernorm.weight";
    assert_says(&read_error(&gone("gemma2", norm)), &[file, &format!("no tensor `{norm}`"), "same model"]);
    // A Llama has fewer norms.
    let llama = Copied::of("gemma2").with(json!({
        "model_type": "llama", "architectures": null, "attn_logit_softcapping": null, "final_logit_softcapping": null, "hidden_activation": null,
        "layer_types": null, "query_pre_attn_scalar": null, "sliding_window": null,
    }));
    assert_says(&read_error(&llama), &[file, "no place for", "`model.layers.0.post_feedforward_layernorm.weight`"]);

    let wrong_shape = Copied::of("vit").with(json!({"intermediate_size": 20}));
    assert_says(&read_error(&wrong_shape), &[file, "`vit.encoder.layer.0.intermediate.dense.bias`", "[24] instead of [20]"]);
    let wrong_type = Copied::of("gpt2").with_tensors(file, |tensors| {
        tensors.insert("transformer.ln_f.bias".into(), (Dtype::F64, vec![16], vec![0; 128]));
    });
    assert_says(&read_error(&wrong_type), &[file, "`transformer.ln_f.bias` has the type F64", "F32, F16 or BF16"]);

    let surplus = Copied::of("gpt2").with_tensors(file, |tensors| {
        tensors.insert("score.weight".into(), (Dtype::F32, vec![1], vec![0; 4]));
    });
    assert_says(&read_error(&surplus), &[file, "no place for `score.weight`"]);
    // Biases absent from the configuration would be dropped.
    let biases = Copied::of("llama").with(json!({"mlp_bias": false}));
    assert_says(&read_error(&biases), &["index.json", "no place for `model.layers.0.mlp.down_proj.bias`"]);
    // By default one matrix is embedding and output.
    let tied = Copied::of("t5-gated").with(json!({"tie_word_embeddings": true}));
    assert_says(&read_error(&tied), &[file, "`lm_head.weight` differs from `shared.weight`", "tie_word_embeddings to false"]);
    let untied = Copied::of("mistral").with(json!({"tie_word_embeddings": true}));
    assert_says(&read_error(&untied), &[file, "`lm_head.weight` differs from `model.embed_tokens.weight`", "tie_word_embeddings to false"]);
}

#[test]
fn heads_that_do_not_fit_are_refused_by_name() {
    let file = "model.safetensors";
    let refused = |folder: &Copied| {
        let folder = Pretrained::open(folder.path()).unwrap().with_masked_head().unwrap();
        folder.classifier(&Device::flex()).unwrap_err().to_string()
    };
    assert_says(&refused(&Copied::of("bert")), &[file, "no tensor `cls.predictions.bias`", "BertForMaskedLM"]);
    let without = Copied::of("bert-masked").with_tensors(file, |tensors| {
        tensors.remove("cls.predictions.transform.LayerNorm.bias").unwrap();
    });
    assert_says(&refused(&without), &[file, "no tensor `cls.predictions.transform.LayerNorm.bias`"]);
    let untied = |name: &'static str, shape: Vec<usize>| {
        Copied::of("bert-masked").with_tensors(file, |tensors| {
            let bytes = vec![0; 4 * shape.iter().product::<usize>()];
            tensors.insert(name.into(), (Dtype::F32, shape, bytes));
        })
    };
    let [weight, bias] = ["cls.predictions.decoder.weight", "cls.predictions.decoder.bias"];
    let table = format!("`{weight}` differs from `bert.embeddings.word_embeddings.weight`");
    assert_says(&refused(&untied(weight, vec![67, 16])), &[&table, "not supported"]);
    assert_says(&refused(&untied(bias, vec![67])), &[&format!("`{bias}` differs from `cls.predictions.bias`"), "not supported"]);
    let other = Pretrained::open(fixture("llama")).unwrap().with_masked_head().unwrap_err().to_string();
    assert_says(&other, &["llama", "no masked language model", "call language_model"]);
}

#[test]
fn files_that_are_not_complete_are_refused() {
    let cut = |file: &str, bytes: usize| {
        let folder = Copied::of("llama");
        let path = folder.path().join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - bytes]).unwrap();
        folder
    };
    let second = "model-00002-of-00003.safetensors";
    assert_says(&opened(&cut(second, 1)), &[second, "instead of", "numbers of `model.layers.", "fetch the file again"]);
    let size = fs::metadata(fixture("llama").join(second)).unwrap().len() as usize;
    assert_says(&opened(&cut(second, size - 20)), &[second, "its header has"]);
    assert_says(&opened(&cut(second, size)), &[second, "it has 0 bytes"]);
    assert_says(&opened(&cut(shards::INDEX, 9)), &[shards::INDEX, "it is no index"]);
    assert_says(&opened(&cut(CONFIG, 9)), &[CONFIG, "no table of JSON"]);

    let without = |file: &str| {
        let folder = Copied::of("llama");
        fs::remove_file(folder.path().join(file)).unwrap();
        folder
    };
    assert_says(&opened(&without(second)), &["cannot read", second]);
    assert_says(&opened(&without(CONFIG)), &["cannot read", CONFIG]);
    assert_says(&opened(&without(shards::INDEX)), &["neither", shards::SINGLE, "save_pretrained"]);

    let index = |change: &dyn Fn(&mut Map<String, Value>)| {
        Copied::of("llama").edit(shards::INDEX, |fields| change(fields["weight_map"].as_object_mut().unwrap()))
    };
    let elsewhere = index(&|map| map["model.norm.weight"] = json!(second));
    assert_says(&opened(&elsewhere), &[second, "no tensor `model.norm.weight`", "the index says"]);
    let outside = index(&|map| map["model.norm.weight"] = json!("../model.safetensors"));
    assert_says(&opened(&outside), &[shards::INDEX, "../model.safetensors", "same folder"]);
    let unlisted = index(&|map| {
        map.remove("model.norm.weight").unwrap();
    });
    assert_says(&opened(&unlisted), &[shards::INDEX, "`model.norm.weight`"]);
}

#[test]
fn other_models_are_refused() {
    let device = Device::flex();
    let folder = Pretrained::open(fixture("bert")).unwrap();
    assert_says(&folder.language_model(&device).unwrap_err().to_string(), &["bert", "no language model", "call classifier"]);
    assert_says(&folder.vision_config().unwrap_err().to_string(), &["bert", "no classifier of images"]);
    let folder = Pretrained::open(fixture("llama")).unwrap();
    assert_says(&folder.classifier_config().unwrap_err().to_string(), &["llama", "no classifier of texts", "call language_model"]);
    let other = folder.language_model_config().unwrap().clone().with_attention("dot-product").build(&device).unwrap();
    let message = folder.read_into(other).unwrap_err().to_string();
    let parts = [
        "`decoder.layers.0.self_attention.Softmax.logits.DotProduct.key.weight`",
        "it lacks",
        "logits.Rotary.query.bias`",
        "configuration",
    ];
    assert_says(&message, &parts);
}
