//! Folders written by transformers: `tests/fixtures/pretrained.py`.

mod configurations;
mod optional_fields;
mod refusals;
mod written;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::key_mapping::Entry;
use super::*;
use crate::architectures::classifier::Sentences;
use crate::architectures::language_model::LanguageModel;
use crate::architectures::seq2seq::Padded;

const DECODERS: [&str; 5] = ["gemma2", "gpt2", "llama", "mistral", "qwen3"];
/// The same as classifiers.
const DECODING_CLASSIFIERS: [&str; 5] =
    ["gemma2-classifier", "gpt2-classifier", "llama-classifier", "mistral-classifier", "qwen3-classifier"];
/// Padding of the rows of padded inputs.
const PADDING: [usize; 2] = [0, 3];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pretrained").join(name)
}

/// Inputs, and the results of transformers.
struct Expected(Vec<u8>);

impl Expected {
    fn of(name: &str) -> Self {
        Self(fs::read(fixture(name).join("expected.safetensors")).unwrap())
    }

    fn file(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).unwrap()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let file = self.file();
        let view = file.tensor(name).unwrap();
        assert_eq!(view.dtype(), Dtype::F32, "{name}");
        view.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    }

    fn tensor<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D> {
        let shape: [usize; D] = self.file().tensor(name).unwrap().shape().try_into().unwrap();
        Tensor::from_data(TensorData::new(self.floats(name), shape), device)
    }

    fn tokens(&self, name: &str, device: &Device) -> Tensor<2, Int> {
        let file = self.file();
        let view = file.tensor(name).unwrap();
        assert_eq!(view.dtype(), Dtype::I32, "{name}");
        let ids: Vec<i32> = view.data().as_chunks::<4>().0.iter().map(|&bytes| i32::from_le_bytes(bytes)).collect();
        let shape: [usize; 2] = view.shape().try_into().unwrap();
        Tensor::from_data(TensorData::new(ids, shape), device)
    }

    /// Names of the tensors with recorded gradients.
    fn gradients(&self) -> Vec<String> {
        self.file().names().into_iter().filter_map(|name| name.strip_prefix("gradient.")).map(str::to_owned).collect()
    }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    read(tensor).iter::<f32>().collect()
}

/// Asserts that no number differs by more than a hundred-thousandth of the largest one.
fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let greatest = expected.iter().fold(0.0f32, |greatest, number| greatest.max(number.abs()));
    assert!(greatest > 0.05, "{what}: numbers of this size show nothing: {greatest}");
    let difference = found.iter().zip(expected).fold(0.0f32, |difference, (a, b)| difference.max((a - b).abs()));
    assert!(difference <= 1e-5 * greatest, "{what}: {difference} of {greatest}");
}

/// A folder modified by a test.
struct Copied(TempDir);

impl Copied {
    fn of(name: &str) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(fixture(name)).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap() != "expected.safetensors" {
                fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
            }
        }
        Self(copy)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Changes the fields of a JSON file.
    fn edit(self, file: &str, change: impl FnOnce(&mut Map<String, Value>)) -> Self {
        let path = self.path().join(file);
        let mut fields = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut fields);
        fs::write(path, serde_json::to_string(&fields).unwrap()).unwrap();
        self
    }

    /// Changes fields of `config.json`; null removes one.
    fn with(self, changes: Value) -> Self {
        self.edit(CONFIG, |fields| {
            for (field, value) in changes.as_object().unwrap().clone() {
                if value.is_null() {
                    fields.remove(&field);
                } else {
                    fields.insert(field, value);
                }
            }
        })
    }

    /// Changes the tensors of a file.
    fn with_tensors(self, file: &str, change: impl FnOnce(&mut BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>)) -> Self {
        let path = self.path().join(file);
        let bytes = fs::read(&path).unwrap();
        let own = |(name, view): (&str, TensorView)| (name.to_owned(), (view.dtype(), view.shape().to_vec(), view.data().to_vec()));
        let mut tensors = SafeTensors::deserialize(&bytes).unwrap().iter().map(own).collect();
        change(&mut tensors);
        let views = tensors.iter().map(|(name, (dtype, shape, data))| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
        fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
        self
    }

    /// Renames tensors of the single file.
    fn renamed(self, name: impl Fn(&str) -> String) -> Self {
        self.with_tensors("model.safetensors", |tensors| {
            *tensors = std::mem::take(tensors).into_iter().map(|(old, tensor)| (name(&old), tensor)).collect();
        })
    }
}

fn decoder(folder: &Path, device: &Device) -> LanguageModel {
    Pretrained::open(folder).unwrap().language_model(device).unwrap()
}

fn logits(model: &LanguageModel, tokens: Tensor<2, Int>, padding: &[usize]) -> Vec<f32> {
    numbers(model.forward_with(tokens, padding, None, &mut Probe::off()).logits)
}

fn sentences(expected: &Expected, lengths: &[usize], folder: &Path, device: &Device) -> Tensor<2> {
    let model = Pretrained::open(folder).unwrap().classifier(device).unwrap();
    let [tokens, segments] = ["input.input_ids", "input.token_type_ids"].map(|name| expected.tokens(name, device));
    model.forward_with(Sentences { tokens, segments: Some(segments), lengths }, None, &mut Probe::off()).logits
}

/// Logits `[2, classes]` of a decoder classifier, for right-padded rows.
fn classes(model: &Classifier, expected: &Expected, lengths: &[usize], device: &Device) -> Tensor<2> {
    let tokens = expected.tokens("input.input_ids", device);
    model.forward_with(Sentences { tokens, segments: None, lengths }, None, &mut Probe::off()).logits
}

/// A BERT with its masked-LM head.
fn masked(folder: &Path, device: &Device) -> Classifier {
    Pretrained::open(folder).unwrap().with_masked_head().unwrap().classifier(device).unwrap()
}

/// Logits `[2, 9, V]` of the tokens at all positions.
fn masked_logits(model: &Classifier, expected: &Expected, lengths: &[usize], device: &Device) -> Tensor<3> {
    let [tokens, segments] = ["input.input_ids", "input.token_type_ids"].map(|name| expected.tokens(name, device));
    let read = Sentences { tokens, segments: Some(segments), lengths };
    model.masked_logits(model.hidden(read, None, &mut Probe::off()).states)
}

/// Logits `[2, 5, V]` of an encoder-decoder, for sources with these numbers of real tokens.
fn seq2seq_logits(model: &Seq2SeqTransformer, name: &str, lengths: &[usize]) -> Tensor<3> {
    let device = &model.source.tokens.weight.device();
    let [source, target] = ["input.input_ids", "input.decoder_input_ids"].map(|input| Expected::of(name).tokens(input, device));
    let source = Padded { tokens: source, lengths };
    model.forward_with(source, Padded { tokens: target, lengths: &[5, 5] }, None, &mut Probe::off()).logits
}

fn images(expected: &Expected, folder: &Path, device: &Device) -> Tensor<2> {
    let model = Pretrained::open(folder).unwrap().vision(device).unwrap();
    model.forward_with(expected.tensor("input.pixel_values", device), None, &mut Probe::off()).logits
}

#[test]
fn logits_are_those_of_transformers() {
    let device = Device::flex();
    for name in DECODERS {
        let expected = Expected::of(name);
        let model = decoder(&fixture(name), &device);
        let tokens = expected.tokens("input.input_ids", &device);
        assert_close(&logits(&model, tokens, &[]), &expected.floats("logits"), name);
    }
    for name in DECODING_CLASSIFIERS {
        let expected = Expected::of(name);
        let model = Pretrained::open(fixture(name)).unwrap().classifier(&device).unwrap();
        assert_close(&numbers(classes(&model, &expected, &[9, 9], &device)), &expected.floats("logits"), name);
        let lengths = PADDING.map(|padding| 9 - padding);
        let padded = numbers(classes(&model, &expected, &lengths, &device));
        assert_close(&padded, &expected.floats("padded_logits"), &format!("{name}, padded"));
        assert_ne!(expected.floats("padded_logits"), expected.floats("logits"), "{name}");
    }
    for name in ["bert", "roberta"] {
        let expected = Expected::of(name);
        assert_close(&numbers(sentences(&expected, &[9, 9], &fixture(name), &device)), &expected.floats("logits"), name);
    }
    for name in ["bert-masked", "roberta-masked"] {
        let expected = Expected::of(name);
        let found = masked_logits(&masked(&fixture(name), &device), &expected, &[9, 9], &device);
        assert_close(&numbers(found), &expected.floats("logits"), name);
    }
    for name in ["t5", "t5-gated"] {
        let (expected, model) = (Expected::of(name), Pretrained::open(fixture(name)).unwrap().seq2seq(&device).unwrap());
        assert_close(&numbers(seq2seq_logits(&model, name, &[9, 9])), &expected.floats("logits"), name);
        let lengths = PADDING.map(|padding| 9 - padding);
        assert_close(&numbers(seq2seq_logits(&model, name, &lengths)), &expected.floats("padded_logits"), &format!("{name}, padded"));
    }
    let expected = Expected::of("vit");
    assert_close(&numbers(images(&expected, &fixture("vit"), &device)), &expected.floats("logits"), "vit");
}

#[test]
fn a_byte_order_mark_before_a_configuration_does_not_matter() {
    let copy = Copied::of("bert");
    let path = copy.path().join(CONFIG);
    fs::write(&path, format!("\u{feff}{}", fs::read_to_string(&path).unwrap())).unwrap();
    let config = |path: &Path| format!("{:?}", Pretrained::open(path).unwrap().classifier_config().unwrap());
    assert_eq!(config(copy.path()), config(&fixture("bert")));
}

#[test]
fn logits_of_padded_rows_are_those_of_transformers() {
    let device = Device::flex();
    for name in DECODERS {
        let expected = Expected::of(name);
        let tokens = expected.tokens("input.input_ids", &device);
        let [_, length] = tokens.dims();
        let found = decoder(&fixture(name), &device).forward_with(tokens, &PADDING, None, &mut Probe::off()).logits;
        let padded: Tensor<3> = expected.tensor("padded_logits", &device);
        for (row, padding) in PADDING.into_iter().enumerate() {
            let real = |logits: &Tensor<3>| numbers(logits.clone().slice([row..row + 1, padding..length]));
            assert_close(&real(&found), &real(&padded), &format!("{name}, row {row}"));
        }
    }
    let lengths = PADDING.map(|padding| 9 - padding);
    for name in ["bert", "roberta"] {
        let expected = Expected::of(name);
        assert_close(&numbers(sentences(&expected, &lengths, &fixture(name), &device)), &expected.floats("padded_logits"), name);
    }
    for name in ["bert-masked", "roberta-masked"] {
        let expected = Expected::of(name);
        let found = masked_logits(&masked(&fixture(name), &device), &expected, &lengths, &device);
        let padded: Tensor<3> = expected.tensor("padded_logits", &device);
        for (row, length) in lengths.into_iter().enumerate() {
            let real = |logits: &Tensor<3>| numbers(logits.clone().slice([row..row + 1, 0..length]));
            assert_close(&real(&found), &real(&padded), &format!("{name}, row {row}"));
        }
    }
}

#[test]
fn logits_of_steps_are_those_of_transformers() {
    let device = Device::flex();
    for name in DECODERS {
        let expected = Expected::of(name);
        let tokens = expected.tokens("input.input_ids", &device);
        let model = decoder(&fixture(name), &device);
        for chunk in [1, 4] {
            let mut state = model.start(2, &[]);
            let steps = (0..9).step_by(chunk).map(|start| {
                let step = tokens.clone().narrow(1, start, chunk.min(9 - start));
                model.step(step, &mut state, &mut Probe::off()).logits
            });
            let found = Tensor::cat(steps.collect(), 1);
            assert_close(&numbers(found), &expected.floats("logits"), &format!("{name}, steps of {chunk}"));
        }
    }
}

/// Gradients of parameters, in the layout of their tensors.
struct OfTensors<'a> {
    table: &'a Table,
    gradients: &'a Gradients,
    path: Vec<String>,
    found: BTreeMap<String, Vec<f32>>,
}

impl ModuleVisitor for OfTensors<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // Outputs missing in the files.
        let Some(Entry { tensor, place }) = self.table.entries.get(&self.path.join(".")) else { return };
        let gradient = param.val().grad(self.gradients).unwrap_or_else(|| panic!("{tensor} has no gradient"));
        let shape = gradient.dims();
        place.write(numbers(gradient), &shape, self.found.entry(tensor.clone()).or_default());
    }
}

fn assert_gradients<M: Module>(name: &str, folder: &Pretrained, model: &M, logits: Tensor<3>, expected: &Expected) {
    let factors: Tensor<3> = Tensor::from_data(TensorData::new(expected.floats("factors"), logits.dims()), &logits.device());
    let gradients = (logits * factors).sum().backward();
    let mut found = OfTensors { table: &folder.table, gradients: &gradients, path: Vec::new(), found: BTreeMap::new() };
    model.visit(&mut found);
    let names = expected.gradients();
    assert_eq!(names.len(), 5, "{name}");
    for tensor in names {
        assert_close(&found.found[&tensor], &expected.floats(&format!("gradient.{tensor}")), &format!("{name}, {tensor}"));
    }
}

#[test]
fn gradients_are_those_of_transformers() {
    let device = Device::flex().autodiff();
    for name in DECODERS {
        let expected = Expected::of(name);
        let folder = Pretrained::open(fixture(name)).unwrap();
        let model = folder.language_model(&device).unwrap();
        let tokens = expected.tokens("input.input_ids", &device);
        let logits = model.forward_with(tokens, &[], None, &mut Probe::off()).logits;
        assert_gradients(name, &folder, &model, logits, &expected);
    }
    for name in DECODING_CLASSIFIERS {
        let expected = Expected::of(name);
        let folder = Pretrained::open(fixture(name)).unwrap();
        let model = folder.classifier(&device).unwrap();
        let logits = classes(&model, &expected, &[9, 9], &device);
        assert_gradients(name, &folder, &model, logits.unsqueeze(), &expected);
    }
    for name in ["bert", "roberta"] {
        let expected = Expected::of(name);
        let folder = Pretrained::open(fixture(name)).unwrap();
        let model = folder.classifier(&device).unwrap();
        let [tokens, segments] = ["input.input_ids", "input.token_type_ids"].map(|name| expected.tokens(name, &device));
        let read = Sentences { tokens, segments: Some(segments), lengths: &[9, 9] };
        let logits = model.forward_with(read, None, &mut Probe::off()).logits;
        assert_gradients(name, &folder, &model, logits.unsqueeze(), &expected);
    }
    for name in ["bert-masked", "roberta-masked"] {
        let expected = Expected::of(name);
        let folder = Pretrained::open(fixture(name)).unwrap().with_masked_head().unwrap();
        let model = folder.classifier(&device).unwrap();
        let logits = masked_logits(&model, &expected, &[9, 9], &device);
        assert_gradients(name, &folder, &model, logits, &expected);
    }
    for name in ["t5", "t5-gated"] {
        let (expected, folder) = (Expected::of(name), Pretrained::open(fixture(name)).unwrap());
        let model = folder.seq2seq(&device).unwrap();
        let logits = seq2seq_logits(&model, name, &[9, 9]);
        assert_gradients(name, &folder, &model, logits, &expected);
    }
    let expected = Expected::of("vit");
    let folder = Pretrained::open(fixture("vit")).unwrap();
    let model = folder.vision(&device).unwrap();
    let logits = model.forward_with(expected.tensor("input.pixel_values", &device), None, &mut Probe::off()).logits;
    assert_gradients("vit", &folder, &model, logits.unsqueeze(), &expected);
}

#[test]
fn names_of_released_files_are_read() {
    let device = Device::flex();
    // GPT-2 without a prefix, with masks and with a tied output; BERT of 2018; ViT as named in memory by transformers 5.
    let gpt2 = Copied::of("gpt2").renamed(|name| name.replace("transformer.", "")).with_tensors("model.safetensors", |tensors| {
        tensors.insert("h.0.attn.bias".into(), (Dtype::U8, vec![1, 1, 2, 2], vec![1, 0, 1, 1]));
        tensors.insert("h.0.attn.masked_bias".into(), (Dtype::F32, vec![], vec![0; 4]));
        tensors.insert("lm_head.weight".into(), tensors["wte.weight"].clone());
    });
    let expected = Expected::of("gpt2");
    let found = logits(&decoder(gpt2.path(), &device), expected.tokens("input.input_ids", &device), &[]);
    assert_close(&found, &expected.floats("logits"), "gpt2");
    let early = |name: &str| name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    let bert = Copied::of("bert").renamed(early).with_tensors("model.safetensors", |tensors| {
        tensors.insert("bert.embeddings.position_ids".into(), (Dtype::I64, vec![1, 1], vec![0; 8]));
        tensors.insert("cls.predictions.bias".into(), (Dtype::F32, vec![1], vec![0; 4]));
    });
    let expected = Expected::of("bert");
    assert_close(&numbers(sentences(&expected, &[9, 9], bert.path(), &device)), &expected.floats("logits"), "bert");
    let pre_training = of_pre_training();
    let expected = Expected::of("bert-masked");
    let model = masked(pre_training.path(), &device);
    assert_close(&numbers(masked_logits(&model, &expected, &[9, 9], &device)), &expected.floats("logits"), "bert of pre-training");
    let [weight, bias] = [0.5, 0.25].map(|value| move |number: &f32| *number == value);
    let pooler = model.pooler.as_ref().unwrap();
    assert!(numbers(pooler.weight.val()).iter().all(weight) && numbers(pooler.bias.as_ref().unwrap().val()).iter().all(bias));
    let in_memory = |name: &str| {
        let new = name.replace("encoder.layer.", "layers.").replace("attention.attention.query", "attention.q_proj");
        let new = new.replace("attention.attention.key", "attention.k_proj").replace("attention.attention.value", "attention.v_proj");
        let new = new.replace("attention.output.dense", "attention.o_proj").replace("intermediate.dense", "mlp.fc1");
        new.replace("output.dense", "mlp.fc2")
    };
    let vit = Copied::of("vit").renamed(in_memory);
    for name in ["t5", "t5-gated"] {
        let (expected, model) = (Expected::of(name), Pretrained::open(fixture(name)).unwrap().seq2seq(&device).unwrap());
        assert_close(&numbers(seq2seq_logits(&model, name, &[9, 9])), &expected.floats("logits"), name);
        let lengths = PADDING.map(|padding| 9 - padding);
        assert_close(&numbers(seq2seq_logits(&model, name, &lengths)), &expected.floats("padded_logits"), &format!("{name}, padded"));
    }
    let expected = Expected::of("vit");
    assert_close(&numbers(images(&expected, vit.path(), &device)), &expected.floats("logits"), "vit");
}

/// The BERT of `BertForPreTraining` of 2018, with a pooler, a separate projection of the masked-LM head, and next-sentence outputs.
fn of_pre_training() -> Copied {
    let early = |name: &str| name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    let folder = Copied::of("bert-masked").renamed(early).with_tensors("model.safetensors", |tensors| {
        let constant = |value: f32, shape: Vec<usize>| {
            let numbers = vec![value; shape.iter().product()];
            (Dtype::F32, shape, numbers.into_iter().flat_map(f32::to_le_bytes).collect())
        };
        tensors.insert("cls.predictions.decoder.weight".into(), tensors["bert.embeddings.word_embeddings.weight"].clone());
        tensors.insert("cls.predictions.decoder.bias".into(), tensors["cls.predictions.bias"].clone());
        tensors.insert("cls.seq_relationship.weight".into(), constant(1.0, vec![2, 16]));
        tensors.insert("cls.seq_relationship.bias".into(), constant(2.0, vec![2]));
        tensors.insert("bert.pooler.dense.weight".into(), constant(0.5, vec![16, 16]));
        tensors.insert("bert.pooler.dense.bias".into(), constant(0.25, vec![16]));
    });
    folder.with(serde_json::json!({"architectures": ["BertForPreTraining"]}))
}

#[test]
fn a_classifier_is_read_from_a_masked_language_model_without_its_head() {
    let device = Device::flex();
    let folder = Pretrained::open(fixture("bert-masked")).unwrap();
    let refused = folder.classifier(&device).unwrap_err().to_string();
    assert!(refused.contains("with_new_output"), "{refused}");
    let masked = folder.clone().with_masked_head().unwrap();
    let (head, model) = (masked.classifier(&device).unwrap(), masked.with_new_output(3).classifier(&device).unwrap());
    assert!(head.masked_head.is_some() && model.masked_head.is_none());
    let value = |model: &Classifier| numbers(model.encoder.layers[1].self_attention.as_softmax().unwrap().value.weight.val());
    assert_eq!(value(&model), value(&head));
    assert_eq!(model.output.weight.dims(), [16, 3]);
}

#[test]
fn a_new_output_is_drawn_and_the_rest_is_read() {
    let device = Device::flex();
    let folder = Pretrained::open(fixture("bert")).unwrap();
    let (old, new) = (folder.classifier(&device).unwrap(), folder.clone().with_new_output(7).classifier(&device).unwrap());
    assert_eq!(new.output.weight.dims(), [16, 7]);
    assert!(new.output.weight.val().abs().max().into_scalar::<f32>() < 0.2);
    let pooler = |model: &Classifier| numbers(model.pooler.as_ref().unwrap().weight.val());
    assert_eq!(pooler(&new), pooler(&old));
    // A plain encoder has no outputs, and a masked language model no pooler.
    let encoder =
        Copied::of("bert").renamed(|name| name.trim_start_matches("bert.").to_owned()).with_tensors("model.safetensors", |tensors| {
            tensors.retain(|name, _| !name.starts_with("classifier.") && !name.starts_with("pooler."));
        });
    let encoder = Pretrained::open(encoder.path()).unwrap();
    let refused = encoder.classifier(&device).unwrap_err().to_string();
    assert!(refused.contains("`bert.pooler.dense.bias`") || refused.contains("`classifier.bias`"), "{refused}");
    assert!(refused.contains("with_new_output"), "{refused}");
    let model = encoder.with_new_output(4).classifier(&device).unwrap();
    let value = |model: &Classifier| numbers(model.encoder.layers[1].self_attention.as_softmax().unwrap().value.weight.val());
    assert_eq!(value(&model), value(&old));
    assert_ne!(pooler(&model), pooler(&old));
}

#[test]
fn a_classifier_is_read_from_a_language_model_with_a_new_output() {
    let device = Device::flex();
    for name in DECODERS {
        let folder = Pretrained::open(fixture(name)).unwrap();
        let language_model = folder.language_model(&device).unwrap();
        let model = folder.with_new_output(4).classifier(&device).unwrap();
        assert!(model.output.weight.dims() == [16, 4] && model.output.bias.is_none(), "{name}");
        assert!(model.output.weight.val().abs().max().into_scalar::<f32>() < 0.2, "{name}");
        let tokens = Expected::of(name).tokens("input.input_ids", &device);
        let states = language_model.hidden(tokens.clone(), &[], None, &mut Probe::off()).states;
        let found = model.hidden(Sentences { tokens, segments: None, lengths: &[9, 9] }, None, &mut Probe::off()).states;
        assert_close(&numbers(found), &numbers(states), name);
    }
    // A classifier replaces another.
    let folder = Pretrained::open(fixture("gpt2-classifier")).unwrap().with_new_output(6);
    assert_eq!(folder.classifier(&device).unwrap().output.weight.dims(), [16, 6]);
    let refused = folder.with_masked_head().unwrap_err().to_string();
    assert!(refused.contains("gpt2") && refused.contains("call classifier"), "{refused}");
}

#[test]
fn what_is_trainable_and_its_device_stay() {
    let device = Device::flex().autodiff();
    let folder = Pretrained::open(fixture("qwen3")).unwrap();
    let config = folder.language_model_config().unwrap().clone().with_seed(1);
    let mut model = config.build(&device).unwrap();
    model.embedding = model.embedding.freeze();
    let model = folder.read_into(model).unwrap();
    assert!(!model.embedding.tokens.weight.is_require_grad());
    assert!(model.decoder.layers[0].feed_forward.as_ref().unwrap().input.weight.is_require_grad());
    assert!(model.embedding.tokens.weight.device().is_autodiff());
}
