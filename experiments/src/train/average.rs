//! The mean of the weights of several checkpoints of one run (Vaswani et al. 2017, section 6.1).

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};

use super::parameter::tensors_by_path;

/// The mean of each floating-point parameter over `models`, summed in their order in 64-bit arithmetic; everything else is that of the last model.
/// `None` for no model.
///
/// One model at a time is held, so the caller may load them as they are asked for.
///
/// # Errors
/// The first error among `models`.
///
/// # Panics
/// If the models differ in paths or shapes of parameters.
pub fn average<M: Module, E>(models: impl IntoIterator<Item = Result<M, E>>) -> Result<Option<M>, E> {
    let mut sums: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut count = 0;
    let mut last = None;
    for model in models {
        let model = model?;
        let tensors = tensors_by_path(&model);
        assert!(count == 0 || sums.len() == tensors.len(), "averaged models have different parameters");
        for (path, tensor) in tensors {
            let values = tensor.iter::<f64>();
            if count == 0 {
                sums.insert(path, values.collect());
                continue;
            }
            let sum = sums.get_mut(&path).unwrap_or_else(|| panic!("parameter {path} is in some averaged models only"));
            assert_eq!(sum.len(), tensor.num_elements(), "parameter {path} has different sizes in averaged models");
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        count += 1;
        last = Some(model);
    }
    for value in sums.values_mut().flatten() {
        *value /= f64::from(count);
    }
    Ok(last.map(|model| model.map(&mut Replace { path: Vec::new(), values: sums })))
}

struct Replace {
    path: Vec<String>,
    values: BTreeMap<String, Vec<f64>>,
}

impl ModuleMapper for Replace {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        let values = self.values.remove(&path).unwrap_or_else(|| panic!("parameter {path} was not averaged"));
        let saved = param.transform_for_save().val();
        let (shape, dtype, device) = (saved.shape(), saved.dtype(), param.lazy_device());
        let mean = Tensor::from_data(TensorData::new(values, shape).convert_dtype(dtype), (&device, dtype));
        let id = param.id;
        param.transform_for_load(mean, id)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;

    fn linear(weight: [[f32; 2]; 2]) -> Linear {
        let device = Device::flex().autodiff();
        let mut linear = LinearConfig::new(2, 2).with_bias(false).init(&device);
        linear.weight = Param::from_data(weight, &device);
        linear
    }

    #[test]
    fn the_mean_is_taken_per_parameter() {
        let models = [[[1.0, 2.0], [3.0, 4.0]], [[3.0, 2.0], [-3.0, 8.0]], [[-1.0, 5.0], [0.0, 0.0]]];
        let mean = average(models.map(|weight| Ok::<_, Infallible>(linear(weight)))).unwrap().unwrap();
        assert_eq!(mean.weight.val().into_data().as_slice::<f32>().unwrap(), [1.0, 3.0, 0.0, 4.0]);
        assert!(mean.weight.is_require_grad());
        let plain = average([Ok::<_, Infallible>(linear([[1.0; 2]; 2]).valid())]).unwrap().unwrap();
        assert!(!plain.weight.is_require_grad() && !plain.devices()[0].is_autodiff());
    }

    #[test]
    fn sums_do_not_lose_small_terms() {
        let models = [1e8f32, 1.0, 1.0, 1.0, -1e8].map(|value| Ok::<_, Infallible>(linear([[value; 2]; 2])));
        let mean = average(models).unwrap().unwrap().weight.val().into_data();
        assert_eq!(mean.as_slice::<f32>().unwrap()[0], 0.6);
    }

    #[test]
    fn nothing_has_no_mean_and_errors_are_passed_on() {
        assert!(average(Vec::<Result<Linear, Infallible>>::new()).unwrap().is_none());
        assert_eq!(average([Ok(linear([[0.0; 2]; 2])), Err("unreadable")]).unwrap_err(), "unreadable");
    }
}
