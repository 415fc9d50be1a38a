//! Constraints on parameters that hold after every step of an optimiser.

use std::any::Any;
use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::Tensor;

use crate::registry;

/// Moves every constrained parameter of the module to the nearest allowed value: parameters in [`Card::fractions`](crate::description::Card::fractions) are
/// clamped to `[0, 1]`, such as the spans of Sukhbaatar et al. 2019 (section 2.2). Parameters keep their identities. Call it after every optimiser step.
pub fn apply<M: Module>(module: M) -> M {
    module.map(&mut Constraints { fractions: registry::fractions(), place: Vec::new() })
}

struct Constraints {
    /// Parameters that are fractions, by module type and field name.
    fractions: Vec<(&'static str, &'static str)>,
    /// Names and types of the modules around the current parameter.
    place: Vec<(String, String)>,
}

impl ModuleMapper for Constraints {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.place.push((container_type.to_owned(), name.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.place.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let is_fraction = self.place.last().is_some_and(|(container, name)| self.fractions.contains(&(container, name)));
        if !is_fraction {
            return param;
        }
        param.map(|fraction| {
            let is_trained = fraction.is_require_grad();
            let fraction = fraction.detach().clamp(0.0, 1.0).detach();
            if is_trained { fraction.require_grad() } else { fraction }
        })
    }
}

/// Ties floating-point parameters with the same identity: each takes the value and the graph node of the first, so the gradient of the first is that of all. An
/// optimiser updates only the first, a file stores each separately, and a move to another device separates them: call it after all of these.
pub fn tie<M: Module>(module: M) -> M {
    module.map(&mut Tie::default())
}

#[derive(Default)]
struct Tie {
    /// The first parameter of each identity, a `Param<Tensor<D>>`.
    first: HashMap<ParamId, Box<dyn Any>>,
}

impl ModuleMapper for Tie {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let first = self.first.entry(param.id).or_insert_with(|| Box::new(param.clone()));
        first.downcast_ref::<Param<Tensor<D>>>().expect("parameters of one identity have one rank").clone()
    }
}

#[cfg(test)]
mod tests {
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData};
    use heedful_random::RandomKey;

    use super::*;
    use crate::contract::layer_spec::{LayerSpec, Role};
    use crate::description::AnyAttention;
    use crate::description::AnyMechanism;
    use crate::mechanisms::adaptive_span::AdaptiveSpan;

    /// Two layers, the second with an adaptive span.
    fn layers(spans: [f32; 2], device: &Device) -> Vec<AnyAttention> {
        let spec = LayerSpec::new(Role::Decoder, 4, 2).at_layer(0, 2).with_max_length(8);
        let layer = |name: &str| {
            let config: AnyMechanism = name.parse().unwrap();
            config.init(&spec, &RandomKey::from_seed(1), device)
        };
        let (first, mut second) = (layer("dot-product"), layer("adaptive-span"));
        second.logits_mut::<AdaptiveSpan>().unwrap().span = Some(Param::from_data(TensorData::from(spans), device));
        vec![first, second]
    }

    fn span(layers: &[AnyAttention]) -> &Param<Tensor<1>> {
        layers[1].logits::<AdaptiveSpan>().unwrap().span.as_ref().unwrap()
    }

    fn weight(layers: &[AnyAttention]) -> TensorData {
        layers[0].as_softmax().unwrap().value.weight.val().into_data()
    }

    #[test]
    fn spans_are_cut_to_fractions_and_nothing_else_changes() {
        for device in [Device::flex(), Device::flex().autodiff()] {
            for (given, kept) in [([-0.25, 1.5], [0.0, 1.0]), ([0.25, 0.75], [0.25, 0.75])] {
                let before = layers(given, &device);
                let after = apply(before.clone());
                assert_eq!(span(&after).val().into_data().try_to_vec::<f32>().unwrap(), kept);
                assert_eq!(span(&after).id, span(&before).id);
                assert_eq!(span(&after).val().is_require_grad(), device.is_autodiff(), "a span stays a parameter that is trained");
                assert_eq!(weight(&after), weight(&before), "negative weights stay as they are");
            }
        }
    }

    #[derive(Module, Debug)]
    struct Shared {
        first: Param<Tensor<2>>,
        second: Param<Tensor<2>>,
    }

    #[test]
    fn tied_parameters_have_the_value_of_the_first_and_one_gradient() {
        let device = Device::flex().autodiff();
        let first = Param::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
        // Two graph leaves with one identity.
        let second = Param::initialized(first.id, Tensor::<2>::ones([2, 2], &device).require_grad());
        let module = Shared { first, second };
        let gradient = |module: &Shared| {
            let loss = module.first.val().sum() + module.second.val().sum().mul_scalar(2.0);
            let gradients = GradientsParams::from_grads(loss.backward(), module);
            gradients.get::<2>(module.first.id).unwrap().into_data().try_to_vec::<f32>().unwrap()
        };
        assert_ne!(gradient(&module), [3.0; 4]);
        let module = tie(module);
        assert_eq!(module.second.val().into_data(), module.first.val().into_data());
        assert_eq!(module.second.id, module.first.id);
        assert_eq!(gradient(&module), [3.0; 4]);
    }
}
