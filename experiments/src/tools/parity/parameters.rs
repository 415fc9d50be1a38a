//! The parameters of a mechanism by path: their shapes and meanings, loading them, and their gradients.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor, TensorData};
use heedful_attention::tensors::read::read;

/// A parameter of a mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    /// Path of its field.
    pub path: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Whether training changes it.
    pub trained: bool,
}

/// The path of a field, without the variants of enums on the way.
#[derive(Default)]
struct FieldPath(Vec<String>);

impl FieldPath {
    fn enter(&mut self, name: &str, container: &str) {
        if !is_enum(container) {
            self.0.push(name.to_owned());
        }
    }

    fn exit(&mut self, container: &str) {
        if !is_enum(container) {
            self.0.pop();
        }
    }

    fn joined(&self) -> String {
        self.0.join(".")
    }
}

fn is_enum(container: &str) -> bool {
    container.starts_with("Enum:")
}

/// All parameters, in the order of the module's fields.
pub(super) fn list<M: Module>(module: &M) -> Vec<Parameter> {
    #[derive(Default)]
    struct List {
        path: FieldPath,
        parameters: Vec<Parameter>,
    }
    impl ModuleVisitor for List {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }

        fn exit_module(&mut self, _name: &str, container: &str) {
            self.path.exit(container);
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let (path, shape) = (self.path.joined(), param.dims().to_vec());
            self.parameters.push(Parameter { path, shape, trained: param.is_require_grad() });
        }
    }
    let mut list = List::default();
    module.visit(&mut list);
    list.parameters
}

/// The module with the given values in place of its own.
///
/// # Panics
/// If a parameter has no value, or one of another shape.
pub(super) fn load<M: Module>(module: M, values: Vec<(String, TensorData)>) -> M {
    struct Load {
        path: FieldPath,
        values: BTreeMap<String, TensorData>,
    }
    impl ModuleMapper for Load {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }

        fn exit_module(&mut self, _name: &str, container: &str) {
            self.path.exit(container);
        }

        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let path = self.path.joined();
            let value = self.values.remove(&path).unwrap_or_else(|| panic!("there is no value for {path}"));
            let (id, device) = (param.id, param.lazy_device());
            param.transform_for_load(Tensor::from_data(value, &device), id)
        }
    }
    module.map(&mut Load { path: FieldPath::default(), values: values.into_iter().collect() })
}

/// The gradients of all trained parameters; zero for one on which the loss does not depend.
pub(super) fn gradients<M: Module>(module: &M, gradients: &Gradients) -> Vec<(String, TensorData)> {
    struct Collect<'a> {
        path: FieldPath,
        gradients: &'a Gradients,
        found: Vec<(String, TensorData)>,
    }
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }

        fn exit_module(&mut self, _name: &str, container: &str) {
            self.path.exit(container);
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.is_require_grad() {
                let value = param.val();
                let gradient = value.grad(self.gradients).unwrap_or_else(|| value.without_autodiff().zeros_like());
                self.found.push((self.path.joined(), read(gradient)));
            }
        }
    }
    let mut collect = Collect { path: FieldPath::default(), gradients, found: Vec::new() };
    module.visit(&mut collect);
    collect.found
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Bool, Device, Int};
    use heedful_attention::contract::layer_spec::{LayerSpec, Role};
    use heedful_attention::description::AnyAttention;
    use heedful_attention::description::AnyMechanism;
    use heedful_random::RandomKey;

    use super::*;
    use crate::tools::parity::parameter_docs::meaning;

    const PLACEMENT: LayerSpec = LayerSpec::new(Role::Encoder, 8, 2).with_max_length(8);

    fn all() -> Vec<(String, AnyAttention)> {
        let device = Device::flex().autodiff();
        let further = ["dot-product+gaussian+random", "synthesizer-random-fixed+dot-product"].map(|name| name.parse().unwrap());
        let sigmoid: AnyMechanism =
            toml::from_str("name = \"mixture\"\nweights = \"sigmoid\"\nmembers = [{ name = \"uniform\" }, { name = \"dot-product\" }]")
                .unwrap();
        let configs = AnyMechanism::all().into_iter().chain(further).chain([sigmoid]);
        configs.map(|config| (config.name(), config.init(&PLACEMENT, &RandomKey::from_seed(1), &device))).collect()
    }

    #[test]
    fn every_parameter_of_every_mechanism_has_a_meaning_and_a_path_of_its_own() {
        for (name, attention) in all() {
            let parameters = list(&attention);
            for (index, Parameter { path, .. }) in parameters.iter().enumerate() {
                assert!(meaning(path).is_some(), "{name}: {path} has no meaning");
                assert!(parameters[..index].iter().all(|other| other.path != *path), "{name}: {path} twice");
            }
        }
        assert_eq!(meaning("logits.frozen_table"), Some("logits at their initial values [heads, query position, key position]"));
        assert_eq!(meaning("logits.stable"), None);
    }

    #[test]
    fn every_parameter_is_a_float_tensor() {
        struct OnlyFloats;
        impl ModuleVisitor for OnlyFloats {
            fn visit_int<const D: usize>(&mut self, _: &Param<Tensor<D, Int>>) {
                panic!("a parameter of integers cannot be given");
            }

            fn visit_bool<const D: usize>(&mut self, _: &Param<Tensor<D, Bool>>) {
                panic!("a parameter of booleans cannot be given");
            }
        }
        for (_, attention) in all() {
            attention.visit(&mut OnlyFloats);
        }
    }

    #[test]
    fn paths_are_those_of_fields() {
        let paths = |name: &str| {
            let config: AnyMechanism = name.parse().unwrap();
            let attention = config.init(&PLACEMENT, &RandomKey::from_seed(1), &Device::flex().autodiff());
            let paths: Vec<_> = list(&attention).into_iter().map(|parameter| (parameter.path, parameter.trained)).collect();
            paths
        };
        let trained = |paths: &[&str]| paths.iter().map(|path| ((*path).to_owned(), true)).collect::<Vec<_>>();
        assert_eq!(paths("dot-product"), trained(&["logits.query.weight", "logits.key.weight", "value.weight", "output.weight"]));
        assert_eq!(paths("gaussian"), trained(&["value.weight", "output.weight"]));
        assert_eq!(paths("random-fixed")[0], ("logits.frozen_table".to_owned(), false));
        let mixture = ["logits.members.0.table", "logits.members.1.query.weight", "logits.members.1.key.weight", "logits.head_weights"];
        assert_eq!(paths("random+dot-product")[..4], trained(&mixture));
    }

    #[test]
    fn what_is_loaded_is_what_the_module_holds_frozen_tables_included() {
        for (name, attention) in all() {
            let before = list(&attention);
            let values = |parameter: &Parameter| {
                let count = parameter.shape.iter().product::<usize>();
                TensorData::new((0..count).map(|index| index as f32).collect::<Vec<_>>(), parameter.shape.clone())
            };
            let attention = load(attention, before.iter().map(|parameter| (parameter.path.clone(), values(parameter))).collect());
            assert_eq!(list(&attention), before, "{name}");
            struct Held(Vec<TensorData>);
            impl ModuleVisitor for Held {
                fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                    self.0.push(param.val().into_data());
                }
            }
            let mut held = Held(Vec::new());
            attention.visit(&mut held);
            assert_eq!(held.0, before.iter().map(values).collect::<Vec<_>>(), "{name}");
        }
    }
}
