//! The parameters of a model as a list of named tensors: identities that survive the process, counts, and a check for finite values.

use heedful_attention::tensors::read::read;
use std::collections::{BTreeMap, HashMap, HashSet};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Bool, FloatDType, Int, Tensor};
use sha2::{Digest, Sha256};

/// Gives every parameter the identity that follows from its path (`encoder.layers.0.norm.gamma`).
///
/// Burn draws identities at random, and optimiser state is filed under them; with identities that follow from the path a state finds its parameter
/// again in another process. Parameters that shared an identity keep sharing one, that of the first path. Lazily initialised parameters are
/// initialised, in visiting order.
pub fn assign_parameter_ids<M: Module>(model: M) -> M {
    model.map(&mut AssignIds::default())
}

/// What is done with each floating-point parameter of a module, given the names on the path to it.
pub(crate) trait EachParameter {
    /// Does it with this one.
    fn visit<const D: usize>(&mut self, path: &[String], param: &Param<Tensor<D>>);
}

struct WithPath<V> {
    path: Vec<String>,
    visitor: V,
}

impl<V: EachParameter> ModuleVisitor for WithPath<V> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.visitor.visit(&self.path, param);
    }
}

/// The visitor after it was shown all floating-point parameters of a model, in the order of its fields.
pub(crate) fn visited<M: Module, V: EachParameter>(model: &M, visitor: V) -> V {
    let mut visitor = WithPath { path: Vec::new(), visitor };
    model.visit(&mut visitor);
    visitor.visitor
}

#[derive(Default)]
struct AssignIds {
    path: Vec<String>,
    assigned: HashMap<ParamId, ParamId>,
}

impl AssignIds {
    fn id(&mut self, old: ParamId) -> ParamId {
        let path = self.path.join(".");
        *self.assigned.entry(old).or_insert_with(|| {
            let digest = Sha256::digest(path.as_bytes());
            ParamId::from(u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes")))
        })
    }
}

impl ModuleMapper for AssignIds {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, mut param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.val();
        param.id = self.id(param.id);
        param
    }

    fn map_int<const D: usize>(&mut self, mut param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        param.val();
        param.id = self.id(param.id);
        param
    }

    fn map_bool<const D: usize>(&mut self, mut param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        param.val();
        param.id = self.id(param.id);
        param
    }
}

/// How many floating-point parameters a model has. A parameter that appears twice (tied weights) counts once, where it appears first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterCount {
    /// The parts (fields of the outermost module), in the order of their first parameter, with all their parameters, trained or fixed.
    pub parts: Vec<(String, usize)>,
    /// Parameters that training changes.
    pub trainable: usize,
    /// All parameters: the sum of the parts.
    pub total: usize,
}

impl ParameterCount {
    /// Counts the parameters of a model, whether it is in training or in evaluation mode.
    pub fn of<M: Module>(model: &M) -> Self {
        let count = Count { seen: HashSet::new(), count: Self { parts: Vec::new(), trainable: 0, total: 0 } };
        // In evaluation mode no tensor requires a gradient; training mode restores which ones do.
        visited(&model.clone().train(), count).count
    }
}

struct Count {
    seen: HashSet<ParamId>,
    count: ParameterCount,
}

impl EachParameter for Count {
    fn visit<const D: usize>(&mut self, path: &[String], param: &Param<Tensor<D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let elements = param.shape().num_elements();
        self.count.total += elements;
        if param.is_require_grad() {
            self.count.trainable += elements;
        }
        let part = path.first().map_or("", String::as_str);
        match self.count.parts.iter_mut().find(|(name, _)| name == part) {
            Some((_, count)) => *count += elements,
            None => self.count.parts.push((part.to_string(), elements)),
        }
    }
}

/// The path of the first parameter that holds an infinite value or NaN.
///
/// # Panics
/// If the device cannot be read.
pub fn first_non_finite_parameter<M: Module>(model: &M) -> Option<String> {
    let (paths, checks): (Vec<_>, Vec<_>) = visited(model, Finite(Vec::new())).0.into_iter().unzip();
    let values = read_scalars(checks);
    paths.into_iter().zip(values).find(|(_, value)| !value.is_finite()).map(|(path, _)| path)
}

struct Finite(Vec<(String, Tensor<1>)>);

impl EachParameter for Finite {
    fn visit<const D: usize>(&mut self, path: &[String], param: &Param<Tensor<D>>) {
        // 0 times a finite value is 0; 0 times infinity or NaN is NaN, and so is the sum with it.
        let check = param.val().without_autodiff().cast(FloatDType::F32).mul_scalar(0.0).sum();
        self.0.push((path.join("."), check));
    }
}

/// Reads tensors of one 32-bit element each with a single transfer from the device.
pub fn read_scalars(scalars: Vec<Tensor<1>>) -> Vec<f64> {
    if scalars.is_empty() {
        return Vec::new();
    }
    read(Tensor::cat(scalars, 0)).iter::<f64>().collect()
}

/// The floating-point tensors of a model by path, as they are saved.
pub(crate) fn tensors_by_path<M: Module>(model: &M) -> BTreeMap<String, burn::tensor::TensorData> {
    visited(model, Collect(BTreeMap::new())).0
}

struct Collect(BTreeMap<String, burn::tensor::TensorData>);

impl EachParameter for Collect {
    fn visit<const D: usize>(&mut self, path: &[String], param: &Param<Tensor<D>>) {
        let tensor = param.transform_for_save().val();
        self.0.insert(path.join("."), read(tensor));
    }
}

#[cfg(test)]
mod tests {
    use burn::module::RunningState;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;

    #[derive(Module, Debug)]
    struct Tied {
        embedding: Param<Tensor<2>>,
        layers: Vec<Linear>,
        fixed: RunningState<Tensor<1>>,
        output: Param<Tensor<2>>,
    }

    fn tied(device: &Device) -> Tied {
        let embedding = Param::from_data([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device);
        let layers = (0..2).map(|_| LinearConfig::new(2, 2).init(device)).collect();
        Tied { output: embedding.clone(), embedding, layers, fixed: RunningState::new(Tensor::zeros([7], device)) }
    }

    #[derive(Default)]
    struct Ids(Vec<ParamId>);

    impl ModuleVisitor for Ids {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.is_require_grad() {
                self.0.push(param.id);
            }
        }
    }

    fn ids(model: &Tied) -> Vec<ParamId> {
        let mut ids = Ids::default();
        model.visit(&mut ids);
        ids.0
    }

    #[test]
    fn identities_follow_from_paths_and_keep_ties() {
        let device = Device::flex().autodiff();
        let (a, b) = (tied(&device), tied(&device));
        assert_ne!(ids(&a), ids(&b));
        let (a, b) = (ids(&assign_parameter_ids(a)), ids(&assign_parameter_ids(b)));
        assert_eq!(a, b);
        assert_eq!(a.len(), 6);
        assert_eq!(a[0], a[5], "the tie was cut");
        assert_eq!(a.iter().collect::<HashSet<_>>().len(), 5);
        // The identity is part of the checkpoint format.
        assert_eq!(a[0].val(), u64::from_le_bytes(Sha256::digest(b"embedding")[..8].try_into().unwrap()));
    }

    #[test]
    fn tied_weights_count_once_and_fixed_ones_are_not_trainable() {
        let device = Device::flex().autodiff();
        let expected =
            ParameterCount { parts: vec![("embedding".into(), 6), ("layers".into(), 12), ("fixed".into(), 7)], trainable: 18, total: 25 };
        assert_eq!(ParameterCount::of(&tied(&device)), expected);
        assert_eq!(ParameterCount::of(&tied(&device).valid()), expected);
        let frozen = ParameterCount::of(&tied(&device).freeze());
        assert_eq!((frozen.trainable, frozen.total), (0, 25));
    }

    #[test]
    fn the_first_parameter_that_is_not_finite_is_named() {
        let device = Device::flex().autodiff();
        let mut model = tied(&device);
        assert_eq!(first_non_finite_parameter(&model), None);
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            model.layers[1].bias = Some(Param::from_data([0.0, value], &device));
            assert_eq!(first_non_finite_parameter(&model).as_deref(), Some("layers.1.bias"));
        }
    }
}
