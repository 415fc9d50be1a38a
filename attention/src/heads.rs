//! Layout of heads.

use burn::tensor::Tensor;

/// `[B, N, H * D]` to `[B, H, N, D]`.
///
/// # Panics
/// If the width is not a multiple of the number of heads.
pub fn split_heads(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, length, width] = x.dims();
    assert_eq!(width % heads, 0, "width {width} cannot be split into {heads} heads");
    x.reshape([batch, length, heads, width / heads]).swap_dims(1, 2)
}

/// `[B, H, N, D]` to `[B, N, H * D]`.
pub fn merge_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, length, width] = x.dims();
    x.swap_dims(1, 2).reshape([batch, length, heads * width])
}
