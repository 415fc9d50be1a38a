//! The operators in terms of tensor operations.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use super::AdamStep;

pub(super) fn adam<B: Backend>(
    parameter: FloatTensor<B>,
    gradient: FloatTensor<B>,
    first: FloatTensor<B>,
    second: FloatTensor<B>,
    step: AdamStep,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let AdamStep { betas: (beta_1, beta_2), rate, epsilon, kept, penalty } = step;
    let times = |x, factor: f32| B::float_mul_scalar(x, factor.into());
    let gradient = if penalty == 0.0 { gradient } else { B::float_add(gradient, times(parameter.clone(), penalty)) };
    let first = B::float_add(times(first, beta_1), times(gradient.clone(), 1.0 - beta_1));
    let square = B::float_mul(gradient.clone(), gradient);
    let second = B::float_add(times(second, beta_2), times(square, 1.0 - beta_2));
    let root = B::float_add_scalar(B::float_sqrt(second.clone()), epsilon.into());
    let parameter = if kept == 1.0 { parameter } else { times(parameter, kept) };
    let parameter = B::float_sub(parameter, times(B::float_div(first.clone(), root), rate));
    (parameter, first, second)
}

pub(super) fn sum_of_squares<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_sum(B::float_mul(x.clone(), x))
}
