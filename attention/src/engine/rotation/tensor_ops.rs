//! The operator as tensor operations.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{Shape, Slice};

use super::PairLayout;

pub(super) fn rotated<B: Backend>(x: FloatTensor<B>, cos: FloatTensor<B>, sin: FloatTensor<B>, layout: PairLayout) -> FloatTensor<B> {
    let [batch, length, heads, width] = x.shape().dims();
    let [_, pairs] = cos.shape().dims();
    // Dimension along which the two channels of a pair are adjacent.
    let (shape, table, dim) = match layout {
        PairLayout::Half => ([batch, length, heads, 2, pairs], [1, length, 1, 1, pairs], 3),
        PairLayout::Interleaved => ([batch, length, heads, pairs, 2], [1, length, 1, pairs, 1], 4),
    };
    let [cos, sin] = [cos, sin].map(|numbers| B::float_reshape(numbers, Shape::new(table)));
    let channels = |from: usize, to: usize| {
        let all = Slice::from(..);
        B::float_slice(x.clone(), &[all, all, all, Slice::from(from..to)])
    };
    let paired = B::float_reshape(channels(0, 2 * pairs), Shape::new(shape));
    let one_of_each = |index: usize| {
        let mut slices = [Slice::from(..); 5];
        slices[dim] = Slice::from(index..index + 1);
        B::float_slice(paired.clone(), &slices)
    };
    let (a, b) = (one_of_each(0), one_of_each(1));
    let times = |x: &FloatTensor<B>, table: &FloatTensor<B>| B::float_mul(x.clone(), table.clone());
    let turned = vec![B::float_sub(times(&a, &cos), times(&b, &sin)), B::float_add(times(&a, &sin), times(&b, &cos))];
    let turned = B::float_reshape(B::float_cat(turned, dim), Shape::new([batch, length, heads, 2 * pairs]));
    if 2 * pairs == width { turned } else { B::float_cat(vec![turned, channels(2 * pairs, width)], 3) }
}
