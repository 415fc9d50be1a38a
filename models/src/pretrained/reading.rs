//! From files into models.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorData};
use heedful_attention::tensors::read::read;

use super::Pretrained;
use super::error::PretrainedError;
use super::key_mapping::Entry;

impl Pretrained {
    /// Reads the weights of the files into `model`. Its device and trainability do not change.
    ///
    /// # Errors
    /// If the model's parameters are not those of [the configuration](Self::model); a tensor is missing, has no place in the configuration, or differs in shape
    /// or type; or a file cannot be read.
    pub fn read_into<M: Module>(&self, model: M) -> Result<M, PretrainedError> {
        self.check(&Parameters::of(&model))?;
        let mut reading = Reading { of: self, path: Vec::new(), error: None };
        let model = model.map(&mut reading);
        reading.error.map_or(Ok(model), Err)
    }

    /// Checks that these are the configuration's parameters, and that the files contain exactly their tensors.
    pub(super) fn check(&self, parameters: &Parameters) -> Result<(), PretrainedError> {
        let (entries, given) = (&self.table.entries, &parameters.0);
        let surplus: Vec<String> = given.keys().filter(|name| !entries.contains_key(*name) && !self.is_new(name)).cloned().collect();
        let missing: Vec<String> = entries.keys().filter(|name| !given.contains_key(*name)).cloned().collect();
        if !(surplus.is_empty() && missing.is_empty()) {
            return Err(PretrainedError::Model { folder: self.folder.clone(), surplus, missing });
        }
        for (parameter, Entry { tensor, place }) in entries {
            if !self.files.has(tensor) {
                let remedy = match parameter.as_str() {
                    "output.weight" if tensor.starts_with("lm_head") => {
                        "set tie_word_embeddings to true if the embedding is the output too"
                    }
                    "output.weight" | "output.bias" | "pooler.weight" | "pooler.bias" => "ask for new outputs: with_new_output",
                    parameter if parameter.starts_with("masked_head.") => {
                        "take the files of a BertForMaskedLM, BertForPreTraining or RobertaForMaskedLM, which have a masked-LM head"
                    }
                    _ => "take config.json and weights of the same model",
                };
                return Err(PretrainedError::Missing { path: self.files.list.clone(), tensor: tensor.clone(), remedy });
            }
            self.files.expect(tensor, &place.shape(&given[parameter].shape))?;
        }
        self.table.check(self.architecture.names(), &self.files, self.has_new_output)
    }
}

/// A parameter of a model.
pub(super) struct Parameter {
    pub(super) shape: Vec<usize>,
    /// Copies its numbers to the host.
    pub(super) values: Box<dyn Fn() -> Vec<f32>>,
}

/// The parameters of a model, by their paths.
pub(super) struct Parameters(pub(super) BTreeMap<String, Parameter>);

impl Parameters {
    pub(super) fn of<M: Module>(model: &M) -> Self {
        let mut collecting = Collecting::default();
        model.visit(&mut collecting);
        Self(collecting.parameters)
    }
}

#[derive(Default)]
struct Collecting {
    path: Vec<String>,
    parameters: BTreeMap<String, Parameter>,
}

impl ModuleVisitor for Collecting {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let shape = tensor.dims().to_vec();
        let values = Box::new(move || read(tensor.clone()).iter::<f32>().collect());
        self.parameters.insert(self.path.join("."), Parameter { shape, values });
    }
}

struct Reading<'a> {
    of: &'a Pretrained,
    path: Vec<String>,
    error: Option<PretrainedError>,
}

impl ModuleMapper for Reading<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(Entry { tensor, place }) = self.of.table.entries.get(&self.path.join(".")).filter(|_| self.error.is_none()) else {
            return param;
        };
        let shape = param.dims();
        match self.of.files.values(tensor) {
            Ok(values) => {
                let data = TensorData::new(place.read(values, &shape), shape);
                let (device, dtype) = (param.device(), param.dtype());
                // A mapped parameter is tracked only if the new tensor says so.
                param.map(|old| Tensor::from_data(data, (&device, dtype)).set_require_grad(old.is_require_grad()))
            }
            Err(error) => {
                self.error = Some(error);
                param
            }
        }
    }
}
