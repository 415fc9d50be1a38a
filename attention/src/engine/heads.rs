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

/// Repeats each of `G` heads `[B, G, N, D]` for its query heads, adjacent: `[B, H, N, D]`. The engine reads shared heads without such copies; they serve
/// mechanisms that transform each head differently.
///
/// # Panics
/// If the number of heads is not a multiple of `G`.
pub fn repeat_heads(x: Tensor<4>, heads: usize) -> Tensor<4> {
    let [batch, shared, length, width] = x.dims();
    let group = group_of(heads, shared);
    match [shared, group] {
        [_, 1] => x,
        [1, _] => x.expand([batch, heads, length, width]),
        _ => x.unsqueeze_dim::<5>(2).expand([batch, shared, group, length, width]).reshape([batch, heads, length, width]),
    }
}

/// Number of heads, out of `heads`, per shared head, out of `shared`: head `h` reads head `h / group`.
///
/// # Panics
/// If the number of heads is not a multiple of `shared`.
pub(crate) fn group_of(heads: usize, shared: usize) -> usize {
    assert_eq!(heads % shared, 0, "{heads} heads cannot share {shared} heads of keys and values");
    heads / shared
}

/// Stacks the rows of heads `[B, H, N, D]` that share a head: `[B, G, H / G N, D]`, the left factor of a product with shared heads.
pub(crate) fn by_shared_head(x: Tensor<4>, shared: usize) -> Tensor<4> {
    let [batch, heads, length, width] = x.dims();
    match group_of(heads, shared) {
        1 => x,
        group => x.reshape([batch, shared, group * length, width]),
    }
}

/// `[B, G, H / G N, D]` to `[B, H, N, D]`: the reverse of [`by_shared_head`].
pub(crate) fn by_own_head(x: Tensor<4>, heads: usize) -> Tensor<4> {
    let [batch, shared, rows, width] = x.dims();
    match group_of(heads, shared) {
        1 => x,
        group => x.reshape([batch, heads, rows / group, width]),
    }
}

/// `[B, H, N, D]` to `[B, N, H * D]`.
pub fn merge_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, length, width] = x.dims();
    x.swap_dims(1, 2).reshape([batch, length, heads * width])
}
