//! Written folders.

use burn::tensor::Shape;
use heedful_attention::mechanisms::t5_bias::T5Bias;
use serde_json::json;

use super::*;

/// Reads a folder and writes it to another one.
fn rewritten(folder: &Path, to: &Path) {
    let (device, folder) = (Device::flex(), Pretrained::open(folder).unwrap());
    let result = match folder.model() {
        PresetModel::LanguageModel(_) => folder.write(&folder.language_model(&device).unwrap(), to),
        PresetModel::Classifier(_) => folder.write(&folder.classifier(&device).unwrap(), to),
        PresetModel::Seq2Seq(_) => folder.write(&folder.seq2seq(&device).unwrap(), to),
        _ => folder.write(&folder.vision(&device).unwrap(), to),
    };
    result.unwrap();
}

/// Names and contents of the files of a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |path: PathBuf| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap());
    fs::read_dir(folder).unwrap().map(|entry| file(entry.unwrap().path())).collect()
}

#[test]
fn what_was_read_is_written_byte_by_byte() {
    for name in ["bert", "roberta", "t5", "t5-gated", "vit"].into_iter().chain(DECODERS).chain(DECODING_CLASSIFIERS) {
        let folder = Copied::of(name);
        fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        let to = tempfile::tempdir().unwrap();
        rewritten(folder.path(), &to.path().join("new"));
        let (old, new) = (contents(folder.path()), contents(&to.path().join("new")));
        assert_eq!(new.keys().collect::<Vec<_>>(), old.keys().collect::<Vec<_>>(), "{name}");
        for (file, bytes) in &old {
            assert!(new[file] == *bytes, "{name}, {file}");
        }
    }
}

#[test]
fn tensors_that_are_no_parameters_are_written_too() {
    let gpt2 = Copied::of("gpt2").renamed(|name| name.replace("transformer.", "")).with_tensors("model.safetensors", |tensors| {
        tensors.insert("h.0.attn.bias".into(), (Dtype::U8, vec![1, 1, 2, 2], vec![1, 0, 1, 1]));
        tensors.insert("lm_head.weight".into(), tensors["wte.weight"].clone());
    });
    let to = tempfile::tempdir().unwrap();
    rewritten(gpt2.path(), to.path());
    assert!(contents(to.path()) == contents(gpt2.path()));
}

#[test]
fn masked_language_models_are_written_byte_by_byte() {
    let device = Device::flex();
    for folder in [Copied::of("bert-masked"), Copied::of("roberta-masked"), of_pre_training()] {
        let opened = Pretrained::open(folder.path()).unwrap().with_masked_head().unwrap();
        let to = tempfile::tempdir().unwrap();
        opened.write(&opened.classifier(&device).unwrap(), to.path()).unwrap();
        assert!(contents(to.path()) == contents(folder.path()));
    }
}

#[test]
fn changed_heads_are_those_that_are_read_again() {
    let device = Device::flex();
    let folder = of_pre_training();
    let opened = Pretrained::open(folder.path()).unwrap().with_masked_head().unwrap();
    let mut model = opened.classifier(&device).unwrap();
    model.embedding.tokens.weight = model.embedding.tokens.weight.map(|table| table * 1.5);
    let head = model.masked_head.as_mut().unwrap();
    head.bias = head.bias.clone().map(|bias| bias + 0.25);
    head.transform.weight = head.transform.weight.clone().map(|weight| weight * 0.5);
    let to = tempfile::tempdir().unwrap();
    opened.write(&model, to.path()).unwrap();
    let expected = Expected::of("bert-masked");
    let logits = |model: &Classifier| numbers(masked_logits(model, &expected, &[9, 9], &device));
    assert_eq!(logits(&masked(to.path(), &device)), logits(&model));
    assert_ne!(logits(&model), logits(&masked(folder.path(), &device)));
}

#[test]
fn tables_of_layers_that_became_different_are_not_written() {
    let folder = Pretrained::open(fixture("t5")).unwrap();
    let mut model = folder.seq2seq(&Device::flex()).unwrap();
    let table = |model: &mut Seq2SeqTransformer, layer: usize, scale: f32| {
        let attention = model.decoder.layers[layer].self_attention.get_mut::<SoftmaxAttention<AnyLogits>>().unwrap();
        let logits = attention.logits.get_mut::<T5Bias>().unwrap();
        logits.relative_attention_bias = logits.relative_attention_bias.clone().map(|table| table * scale);
    };
    table(&mut model, 0, 2.0);
    let to = tempfile::tempdir().unwrap();
    let refused = folder.write(&model, to.path()).unwrap_err().to_string();
    assert!(refused.contains("`decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight`"), "{refused}");
    assert!(refused.contains("own format") && contents(to.path()).is_empty(), "{refused}");
    (1..3).for_each(|layer| table(&mut model, layer, 2.0));
    folder.write(&model, to.path()).unwrap();
    let again = Pretrained::open(to.path()).unwrap().seq2seq(&Device::flex()).unwrap();
    assert_eq!(numbers(seq2seq_logits(&again, "t5", &[9, 9])), numbers(seq2seq_logits(&model, "t5", &[9, 9])));
}

#[test]
fn changed_weights_are_those_that_are_read_again() {
    let device = Device::flex();
    let folder = Copied::of("gpt2").with_tensors("model.safetensors", |tensors| {
        tensors.insert("lm_head.weight".into(), tensors["transformer.wte.weight"].clone());
    });
    let folder = Pretrained::open(folder.path()).unwrap();
    let mut model = folder.language_model(&device).unwrap();
    model.embedding.tokens.weight = model.embedding.tokens.weight.map(|table| table * 1.5);
    let attention = model.decoder.layers[1].self_attention.get_mut::<SoftmaxAttention<AnyLogits>>().unwrap();
    attention.value.weight = attention.value.weight.clone().map(|weight| weight + 0.25);
    let to = tempfile::tempdir().unwrap();
    folder.write(&model, to.path()).unwrap();
    let tokens = Expected::of("gpt2").tokens("input.input_ids", &device);
    let again = logits(&decoder(to.path(), &device), tokens.clone(), &[]);
    assert_eq!(again, logits(&model, tokens.clone(), &[]));
    assert_ne!(again, logits(&decoder(&fixture("gpt2"), &device), tokens, &[]));
}

#[test]
fn a_new_output_is_written_for_its_classes() {
    let device = Device::flex();
    let encoder = |name: &str, prefix: &'static str| {
        let copy = Copied::of(name).renamed(|name| name.strip_prefix(prefix).unwrap_or(name).to_owned());
        copy.with_tensors("model.safetensors", |tensors| {
            tensors.retain(|name, _| !name.starts_with("classifier.") && !name.starts_with("pooler."))
        })
    };
    for (name, folder, classes) in [
        ("bert", Copied::of("bert"), 7),
        ("bert", encoder("bert", "bert."), 4),
        ("roberta", Copied::of("roberta"), 7),
        ("roberta", encoder("roberta", "roberta."), 4),
    ] {
        let folder = Pretrained::open(folder.path()).unwrap().with_new_output(classes);
        let model = folder.classifier(&device).unwrap();
        let to = tempfile::tempdir().unwrap();
        folder.write(&model, to.path()).unwrap();
        let expected = Expected::of(name);
        let [tokens, segments] = ["input.input_ids", "input.token_type_ids"].map(|name| expected.tokens(name, &device));
        let read = Sentences { tokens, segments: Some(segments), lengths: &[9, 9] };
        let own = model.forward_with(read, None, &mut Probe::off()).logits;
        assert_eq!(own.shape(), Shape::new([2, classes]));
        assert_eq!(numbers(sentences(&expected, &[9, 9], to.path(), &device)), numbers(own));
    }
    // Language models, one without prefixes, and one with an untied token output in shards.
    let bare = Copied::of("gpt2").renamed(|name| name.replace("transformer.", ""));
    for (folder, name, class) in
        [(bare, "gpt2", "GPT2ForSequenceClassification"), (Copied::of("llama"), "llama", "LlamaForSequenceClassification")]
    {
        let folder = Pretrained::open(folder.path()).unwrap().with_new_output(5);
        let model = folder.classifier(&device).unwrap();
        let to = tempfile::tempdir().unwrap();
        folder.write(&model, to.path()).unwrap();
        let again = Pretrained::open(to.path()).unwrap();
        assert!(again.files.has("score.weight") && !again.files.has("lm_head.weight"), "{name}");
        let expected = Expected::of(name);
        let found = |model: &Classifier| numbers(classes(model, &expected, &[9, 6], &device));
        // A 16-bit Llama has a 16-bit output.
        let difference =
            found(&again.classifier(&device).unwrap()).iter().zip(found(&model)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(if name == "gpt2" { difference == 0.0 } else { difference < 1e-2 }, "{name}: {difference}");
        let config: Value = serde_json::from_slice(&contents(to.path())[CONFIG]).unwrap();
        assert_eq!(config["architectures"], json!([class]));
    }
    let folder = encoder("vit", "vit.").with(json!({"architectures": ["ViTModel"]}));
    let folder = Pretrained::open(folder.path()).unwrap().with_new_output(3);
    let model = folder.vision(&device).unwrap();
    let to = tempfile::tempdir().unwrap();
    folder.write(&model, to.path()).unwrap();
    let expected = Expected::of("vit");
    let own = model.forward_with(expected.tensor("input.pixel_values", &device), None, &mut Probe::off()).logits;
    assert_eq!(numbers(images(&expected, to.path(), &device)), numbers(own));
    let config: Value = serde_json::from_slice(&contents(to.path())[CONFIG]).unwrap();
    assert_eq!(config["architectures"], json!(["ViTForImageClassification"]));
    assert_eq!(config["id2label"], json!({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}));
}

#[test]
fn a_new_output_stands_in_the_index_of_shards() {
    let device = Device::flex();
    let sharded = Copied::of("bert");
    let whole = fs::read(sharded.path().join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&whole).unwrap();
    let shard = |name: &str| if name.contains("layer.1") { "two.safetensors" } else { "one.safetensors" };
    for path in ["one.safetensors", "two.safetensors"] {
        let own = file.iter().filter(|(name, _)| shard(name) == path);
        fs::write(sharded.path().join(path), safetensors::serialize(own, None).unwrap()).unwrap();
    }
    fs::remove_file(sharded.path().join("model.safetensors")).unwrap();
    let map: Map<String, Value> = file.names().into_iter().map(|name| (name.to_owned(), json!(shard(name)))).collect();
    fs::write(sharded.path().join(shards::INDEX), json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string()).unwrap();

    let folder = Pretrained::open(sharded.path()).unwrap().with_new_output(4);
    let model = folder.classifier(&device).unwrap();
    let to = tempfile::tempdir().unwrap();
    folder.write(&model, to.path()).unwrap();
    let again = Pretrained::open(to.path()).unwrap().classifier(&device).unwrap();
    assert_eq!(numbers(again.output.weight.val()), numbers(model.output.weight.val()));
    let index: Value = serde_json::from_slice(&contents(to.path())[shards::INDEX]).unwrap();
    let size = |name: &str| model_bytes(&contents(to.path())[name]);
    assert_eq!(index["metadata"]["total_size"], json!(size("one.safetensors") + size("two.safetensors")));
    assert_eq!(index["weight_map"]["classifier.bias"], json!("one.safetensors"));
}

/// Bytes of the tensors of a file.
fn model_bytes(file: &[u8]) -> usize {
    SafeTensors::deserialize(file).unwrap().iter().map(|(_, view)| view.data().len()).sum()
}

#[test]
fn the_folder_that_was_read_is_not_written() {
    let copy = Copied::of("qwen3");
    let before = contents(copy.path());
    let folder = Pretrained::open(copy.path()).unwrap();
    let model = folder.language_model(&Device::flex()).unwrap();
    let refused = folder.write(&model, copy.path().join(".")).unwrap_err().to_string();
    assert!(refused.contains("still in use") && refused.contains("another"), "{refused}");
    assert!(contents(copy.path()) == before);
}

#[test]
fn what_cannot_be_written_leaves_nothing() {
    let device = Device::flex();
    let folder = Pretrained::open(fixture("mistral")).unwrap();
    let mut model = folder.language_model(&device).unwrap();
    let norm = model.decoder.norm.as_mut().unwrap();
    norm.gamma = norm.gamma.clone().map(|gamma| gamma * 1e6);
    let to = tempfile::tempdir().unwrap();
    let refused = folder.write(&model, to.path()).unwrap_err().to_string();
    assert!(refused.contains("`model.norm.weight` has the type F16") && refused.contains("BF16 or F32"), "{refused}");
    assert!(contents(to.path()).is_empty());
    let other = Pretrained::open(fixture("llama")).unwrap();
    let refused = other.write(&model, to.path()).unwrap_err().to_string();
    assert!(refused.contains("it lacks") && refused.contains("decoder.layers.0.feed_forward.input.bias"), "{refused}");
    assert!(contents(to.path()).is_empty());
    let file = to.path().join("file");
    fs::write(&file, "").unwrap();
    let model = folder.language_model(&device).unwrap();
    let refused = folder.write(&model, file.join("folder")).unwrap_err().to_string();
    assert!(refused.contains("cannot write") && refused.contains("folder"), "{refused}");
}
