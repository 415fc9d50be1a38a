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

/// Each of `G` heads `[B, G, N, D]` as often as there are queries' heads for it, side by side: `[B, H, N, D]`.
///
/// # Panics
/// If the number of heads is not a multiple of `G`.
pub(crate) fn repeat_heads(x: Tensor<4>, heads: usize) -> Tensor<4> {
    let [batch, shared, length, width] = x.dims();
    if shared == heads {
        return x;
    }
    assert_eq!(heads % shared, 0, "{heads} heads cannot share {shared} heads of keys and values");
    let group = heads / shared;
    x.unsqueeze_dim::<5>(2).expand([batch, shared, group, length, width]).reshape([batch, heads, length, width])
}

/// `[B, H, N, D]` to `[B, N, H * D]`.
pub fn merge_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, length, width] = x.dims();
    x.swap_dims(1, 2).reshape([batch, length, heads * width])
}
