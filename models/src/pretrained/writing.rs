//! From models into files.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use burn::module::Module;
use safetensors::tensor::{SafeTensorError, View};
use safetensors::{Dtype, serialize_to_file};
use serde_json::{Map, Value, json};

use super::error::PretrainedError;
use super::key_mapping::{Place, is_of_output};
use super::reading::{Parameter, Parameters};
use super::shards::{INDEX, Shard, encoded};
use super::{CONFIG, Pretrained};
use crate::pretrained::presets::PresetModel;

/// Files that are copied along with the weights.
const BESIDE: [&str; 12] = [
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "merges.txt",
    "preprocessor_config.json",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

impl Pretrained {
    /// Writes a folder like this one with the weights of `model`, for transformers and for [`open`](Self::open): the same files with the same tensors and
    /// types, and the accompanying files (tokenisers). 32-bit weights are rounded where files have 16 bits; unchanged weights keep their original bytes.
    /// Tensors that are not parameters are copied. A [new output](Self::with_new_output) also enters the configuration.
    ///
    /// The folder is created if missing. It must differ from this one, whose files may still be read.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into); if it is the folder that was read, a number is too large for its type, or a file cannot be written. An existing
    /// folder is then unchanged.
    pub fn write<M: Module>(&self, model: &M, folder: impl AsRef<Path>) -> Result<(), PretrainedError> {
        let folder = folder.as_ref();
        let parameters = Parameters::of(model);
        self.check(&parameters)?;
        fs::create_dir_all(folder).map_err(PretrainedError::write(folder))?;
        if fs::canonicalize(folder).is_ok_and(|folder| fs::canonicalize(&self.folder).is_ok_and(|own| own == folder)) {
            return Err(PretrainedError::InUse { folder: folder.into() });
        }
        let mut made = Partial::default();
        let (mut map, mut size) = (Map::new(), 0);
        for (at, file) in self.files.files.iter().enumerate() {
            let name = file.path.file_name().expect("a file has a name");
            let failed = RefCell::new(None);
            let tensors = self.tensors(file, at == 0, &parameters, &failed);
            for (tensor, written) in &tensors {
                map.insert(tensor.clone(), json!(name.to_string_lossy()));
                size += written.data_len();
            }
            let path = made.add(folder.join(name));
            let result = serialize_to_file(tensors, file.metadata.clone(), &path);
            if let Some(error) = failed.into_inner() {
                return Err(error);
            }
            result
                .map_err(|error| match error {
                    SafeTensorError::IoError(error) => error,
                    other => io::Error::other(other),
                })
                .map_err(PretrainedError::write(&path))?;
        }
        let beside = BESIDE.into_iter().chain(self.files.list.ends_with(INDEX).then_some(INDEX)).chain([CONFIG]);
        for name in beside.filter(|name| self.folder.join(name).is_file()) {
            let (from, to) = (self.folder.join(name), made.add(folder.join(name)));
            let text = fs::read(&from).map_err(PretrainedError::read(&from))?;
            let text = match (self.has_new_output, name) {
                (true, CONFIG) => edited(&from, &text, |fields| self.name_classes(fields))?,
                (true, INDEX) => edited(&from, &text, |fields| {
                    fields.insert("metadata".into(), json!({ "total_size": size }));
                    fields.insert("weight_map".into(), Value::Object(map.clone()));
                })?,
                _ => text,
            };
            fs::write(&to, text).map_err(PretrainedError::write(&to))?;
        }
        made.rename()
    }

    /// Contents of a file.
    fn tensors<'a>(
        &'a self,
        file: &'a Shard,
        is_first: bool,
        parameters: &'a Parameters,
        failed: &'a RefCell<Option<PretrainedError>>,
    ) -> Vec<(String, Written<'a>)> {
        let mut sources: BTreeMap<&str, Vec<(Place, &Parameter)>> = BTreeMap::new();
        for (parameter, entry) in &self.table.entries {
            sources.entry(&entry.tensor).or_default().push((entry.place, &parameters.0[parameter]));
        }
        for (copy, original) in self.table.copies_in(self.architecture.names(), &self.files) {
            let source = sources.get(original.as_str()).cloned().unwrap_or_default();
            sources.insert(copy.tensor, source);
        }
        let written =
            |tensor: &str, dtype, shape: Vec<usize>, parts| Written { of: self, tensor: tensor.to_owned(), dtype, shape, parts, failed };
        let stays = |tensor: &str| !self.has_new_output || !is_of_output(tensor) || sources.contains_key(tensor);
        let own = file.tensors().filter(|(tensor, _)| stays(tensor)).map(|(tensor, info)| {
            (self.written_name(tensor), written(tensor, info.dtype, info.shape.clone(), sources.get(tensor).cloned()))
        });
        let mut tensors: Vec<_> = own.collect();
        if is_first && self.has_new_output {
            let new = self
                .architecture
                .output()
                .iter()
                .chain(self.architecture.poolers())
                .filter(|(parameter, ..)| self.is_new(parameter) && parameters.0.contains_key(*parameter));
            tensors.extend(new.map(|&(parameter, tensor, place)| {
                let parameter = &parameters.0[parameter];
                let written = written(tensor, self.files.type_of_first(), place.shape(&parameter.shape), Some(vec![(place, parameter)]));
                (tensor.to_owned(), written)
            }));
        }
        tensors
    }

    /// Written name of a tensor: names differ between a body and a model with an output.
    fn written_name(&self, tensor: &str) -> String {
        let prefix = self.architecture.names().prefix;
        if self.has_new_output && !tensor.starts_with(prefix) && !is_of_output(tensor) {
            format!("{prefix}{tensor}")
        } else {
            tensor.to_owned()
        }
    }

    /// Adds the classes of a new output to the fields of a configuration.
    fn name_classes(&self, fields: &mut Map<String, Value>) {
        let outputs = match &self.model {
            PresetModel::Classifier(config) => config.outputs,
            PresetModel::Vision(config) => config.classes,
            PresetModel::LanguageModel(_) | PresetModel::Seq2Seq(_) => return,
        };
        let label = |class: usize| format!("LABEL_{class}");
        let names: Map<String, Value> = (0..outputs).map(|class| (class.to_string(), json!(label(class)))).collect();
        let numbers: Map<String, Value> = (0..outputs).map(|class| (label(class), json!(class))).collect();
        fields.insert("architectures".into(), json!([self.architecture.classes()[0]]));
        fields.insert("id2label".into(), Value::Object(names));
        fields.insert("label2id".into(), Value::Object(numbers));
        for field in ["num_labels", "problem_type"] {
            fields.remove(field);
        }
    }
}

/// A JSON file with edited fields.
///
/// # Errors
/// If it is not a JSON table, although it was when the folder was opened.
fn edited(path: &Path, text: &[u8], edit: impl FnOnce(&mut Map<String, Value>)) -> Result<Vec<u8>, PretrainedError> {
    let changed = |error: serde_json::Error| {
        let reason = format!("it has changed since the folder was opened: {error}");
        PretrainedError::Format { path: path.into(), reason, remedy: "let no other program write to the folder" }
    };
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let mut fields = serde_json::from_slice(text).map_err(changed)?;
    edit(&mut fields);
    serde_json::to_vec_pretty(&fields).map_err(changed)
}

/// Files that are renamed once all of them are written, and otherwise removed.
#[derive(Default)]
struct Partial(Vec<(PathBuf, PathBuf)>);

impl Partial {
    /// Temporary path for a file's contents.
    fn add(&mut self, path: PathBuf) -> PathBuf {
        let mut temporary = OsString::from(&path);
        temporary.push(".partial");
        self.0.push((PathBuf::from(&temporary), path));
        temporary.into()
    }

    fn rename(mut self) -> Result<(), PretrainedError> {
        while let Some((temporary, path)) = self.0.first() {
            let finish = || {
                File::open(temporary)?.sync_all()?;
                fs::rename(temporary, path)
            };
            finish().map_err(PretrainedError::write(path))?;
            self.0.remove(0);
        }
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        for (temporary, _) in &self.0 {
            // It may not exist yet, and the original error is more informative.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A tensor that is created when written.
struct Written<'a> {
    of: &'a Pretrained,
    /// Its name in the source files.
    tensor: String,
    dtype: Dtype,
    shape: Vec<usize>,
    /// Its parameters; otherwise it is copied.
    parts: Option<Vec<(Place, &'a Parameter)>>,
    failed: &'a RefCell<Option<PretrainedError>>,
}

impl Written<'_> {
    fn bytes(&self) -> Result<Vec<u8>, PretrainedError> {
        let Some(parts) = &self.parts else { return self.of.files.bytes(&self.tensor) };
        let is_part = parts.iter().any(|(place, _)| place.is_part());
        let mut values = if is_part { self.of.files.values(&self.tensor)? } else { Vec::new() };
        for (at, (place, parameter)) in parts.iter().enumerate() {
            let own = (parameter.values)();
            if *place == Place::Shared && at > 0 && own != values {
                return Err(PretrainedError::Contradiction {
                    path: self.of.files.list.clone(),
                    tensor: self.tensor.clone(),
                    reason: "is one for several parameters of the model, which have become different".to_owned(),
                    remedy: "keep the model in its own format",
                });
            }
            place.write(own, &parameter.shape, &mut values);
        }
        encoded(&values, self.dtype).ok_or_else(|| PretrainedError::Contradiction {
            path: self.of.files.list.clone(),
            tensor: self.tensor.clone(),
            reason: format!("has the type {:?}, which is too small for numbers of the model", self.dtype),
            remedy: "convert the folder to BF16 or F32 and write like that one",
        })
    }
}

impl View for Written<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        // The writer asks for bytes and accepts no error.
        Cow::Owned(self.bytes().unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            vec![0; self.data_len()]
        }))
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}
