//! The gradients of a whole model as one vector: its norm, and scaling it.

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};
use heedful_models::kernels::adam::sum_of_squares;

use super::parameter::{EachParameter, visited};

/// The sum of squares of every gradient, with the path of its parameter, in the order in which the module is visited (so sums over them are
/// reproducible). A parameter that appears twice (tied weights) has one gradient, under its first path. Each is a tensor of one 32-bit element, still on the
/// device.
pub fn squared_norms<M: Module>(model: &M, gradients: &GradientsParams) -> Vec<(String, Tensor<1>)> {
    visited(model, SquaredNorms { gradients, seen: HashSet::new(), norms: Vec::new() }).norms
}

/// Every gradient multiplied by `factor`, in 32 bits.
pub fn scale<M: Module>(model: &M, gradients: GradientsParams, factor: f64) -> GradientsParams {
    scale_by(model, gradients, Factor::Number(factor))
}

/// The same with a factor on the device, `[1]`.
pub(super) fn scale_on_device<M: Module>(model: &M, gradients: GradientsParams, factor: &Tensor<1>) -> GradientsParams {
    scale_by(model, gradients, Factor::OnDevice(factor))
}

fn scale_by<M: Module>(model: &M, gradients: GradientsParams, factor: Factor<'_>) -> GradientsParams {
    let mut visitor = Scale { gradients, factor, scaled: GradientsParams::new() };
    model.visit(&mut visitor);
    visitor.scaled
}

/// The factor that turns a gradient of norm `norm` into one of norm at most `bound`: exactly `bound / norm` above the bound, 1 up to it.
pub fn clipping_factor(norm: f64, bound: Option<f64>) -> f64 {
    match bound {
        Some(bound) if norm > bound => bound / norm,
        _ => 1.0,
    }
}

struct SquaredNorms<'a> {
    gradients: &'a GradientsParams,
    seen: HashSet<ParamId>,
    norms: Vec<(String, Tensor<1>)>,
}

impl EachParameter for SquaredNorms<'_> {
    fn visit<const D: usize>(&mut self, path: &[String], param: &Param<Tensor<D>>) {
        if self.seen.insert(param.id)
            && let Some(gradient) = self.gradients.get::<D>(param.id)
        {
            self.norms.push((path.join("."), sum_of_squares(gradient.cast(FloatDType::F32))));
        }
    }
}

#[derive(Clone, Copy)]
enum Factor<'a> {
    Number(f64),
    OnDevice(&'a Tensor<1>),
}

struct Scale<'a> {
    gradients: GradientsParams,
    factor: Factor<'a>,
    scaled: GradientsParams,
}

impl ModuleVisitor for Scale<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.remove::<D>(param.id) {
            let gradient = gradient.cast(FloatDType::F32);
            let scaled = match self.factor {
                Factor::Number(factor) => gradient.mul_scalar(factor),
                Factor::OnDevice(factor) => gradient * factor.clone().reshape([1; D]),
            };
            self.scaled.register(param.id, scaled);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::super::parameter::read_scalars;
    use super::*;

    fn model_with_gradients() -> (Linear, GradientsParams) {
        let device = Device::flex().autodiff();
        let mut model = LinearConfig::new(2, 2).init(&device);
        model.weight = Param::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
        model.bias = Some(Param::from_data([5.0, 6.0], &device));
        let factors = Tensor::<2>::from_data([[1.0, -2.0], [2.0, 4.0]], &device);
        let loss = (model.weight.val() * factors).sum() + model.bias.as_ref().unwrap().val().mul_scalar(12.0).slice(0..1).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        (model, gradients)
    }

    #[test]
    fn the_norm_is_that_of_all_gradients_together() {
        let (model, gradients) = model_with_gradients();
        let (paths, norms): (Vec<_>, Vec<_>) = squared_norms(&model, &gradients).into_iter().unzip();
        let squares = read_scalars(norms);
        assert_eq!(paths, ["weight", "bias"]);
        assert_eq!(squares, [25.0, 144.0]);
        assert_eq!(squares.iter().sum::<f64>().sqrt(), 13.0);
    }

    #[test]
    fn clipping_scales_every_gradient_by_the_same_factor() {
        let (model, gradients) = model_with_gradients();
        let clipped = scale(&model, gradients, clipping_factor(13.0, Some(6.5)));
        let weight = clipped.get::<2>(model.weight.id).unwrap().into_data();
        assert_eq!(weight.as_slice::<f32>().unwrap(), [0.5, -1.0, 1.0, 2.0]);
        let bias = clipped.get::<1>(model.bias.as_ref().unwrap().id).unwrap().into_data();
        assert_eq!(bias.as_slice::<f32>().unwrap(), [6.0, 0.0]);
    }

    #[test]
    fn a_norm_up_to_the_bound_is_left_alone() {
        assert_eq!(clipping_factor(2.0, Some(2.0)), 1.0);
        assert_eq!(clipping_factor(2.0, None), 1.0);
        assert_eq!(clipping_factor(2.0, Some(0.5)), 0.25);
        assert_eq!(clipping_factor(0.0, Some(1.0)), 1.0);
    }
}
