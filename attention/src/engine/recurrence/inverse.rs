//! Inverses of triangular matrices.

use burn::tensor::Tensor;

/// `(I + A)^-1` of matrices `[.., .., C, C]` with numbers only below the diagonal.
///
/// Halves are inverted first: `[[I + A, 0], [B, I + D]]^-1 = [[A', 0], [-D' B A', D']]` with the inverses `A'` and `D'` of the halves. All intermediate values
/// are parts of the result and their products with `B`. The series `I - A + A^2 - ..` and products of its powers have terms that exceed the result by orders of
/// magnitude if keys repeat.
pub(super) fn inverse_of_unit_lower(below: Tensor<4>) -> Tensor<4> {
    let [rows, matrices, size, _] = below.dims();
    if size == 1 {
        return below * 0.0 + 1.0;
    }
    let (count, padded) = (rows * matrices, size.next_power_of_two());
    let blocks = below.reshape([count, 1, size, size]);
    let mut blocks = if padded == size { blocks } else { blocks.pad([(0, padded - size), (0, padded - size)], 0.0) };
    // From the whole to blocks of two: the entries below the diagonal blocks of half the size.
    let mut corners = Vec::new();
    let mut half = padded / 2;
    loop {
        let part = |row: usize, column: usize| blocks.clone().narrow(2, row * half, half).narrow(3, column * half, half);
        corners.push(part(1, 0));
        if half == 1 {
            break;
        }
        let diagonal = Tensor::stack::<5>(vec![part(0, 0), part(1, 1)], 2);
        blocks = diagonal.reshape([count, padded / half, half, half]);
        half /= 2;
    }
    let corner = corners.pop().expect("a matrix of two rows has a corner");
    let one = corner.clone() * 0.0 + 1.0;
    let mut inverse = joined(one.clone(), -corner, one);
    while let Some(corner) = corners.pop() {
        let [_, pairs, half, _] = corner.dims();
        let halves = inverse.reshape([count, pairs, 2, half, half]);
        let part = |index: usize| halves.clone().narrow(2, index, 1).reshape([count, pairs, half, half]);
        let (first, last) = (part(0), part(1));
        inverse = joined(first.clone(), -last.clone().matmul(corner).matmul(first), last);
    }
    let inverse = inverse.reshape([rows, matrices, padded, padded]);
    if padded == size { inverse } else { inverse.narrow(2, 0, size).narrow(3, 0, size) }
}

/// `[[first, 0], [corner, last]]`.
fn joined(first: Tensor<4>, corner: Tensor<4>, last: Tensor<4>) -> Tensor<4> {
    let zero = first.clone() * 0.0;
    Tensor::cat(vec![Tensor::cat(vec![first, zero], 3), Tensor::cat(vec![corner, last], 3)], 2)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    /// Tolerance of the product of a matrix and its inverse, in double precision.
    fn check(what: &str, size: usize, below: impl Fn(usize, usize) -> f64, tolerance: f64) {
        let matrix = |i: usize, j: usize| if j < i { below(i, j) } else { 0.0 };
        let numbers = (0..size * size).map(|flat| matrix(flat / size, flat % size) as f32).collect();
        let below = Tensor::<4>::from_data(TensorData::new(numbers, [1, 1, size, size]), &Device::flex());
        let inverse: Vec<f32> = inverse_of_unit_lower(below).into_data().try_to_vec().unwrap();
        for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
            let row = |l: usize| if l == i { 1.0 } else { f64::from(matrix(i, l) as f32) };
            let product: f64 = (0..size).map(|l| row(l) * f64::from(inverse[l * size + j])).sum();
            assert!((product - f64::from(i == j)).abs() < tolerance, "{what}, size {size}: {product} at {i}, {j}");
        }
    }

    #[test]
    fn matrices_of_all_sizes_are_inverted_whatever_keys_repeat() {
        for size in [1, 2, 3, 5, 8, 16, 33, 64] {
            check("nothing", size, |_, _| 0.0, 1e-12);
            check("equal keys", size, |_, _| 1.0, 1e-5);
            check("two keys in turn", size, |i, j| if (i + j) % 2 == 0 { 1.0 } else { -0.3 }, 1e-5);
            check("equal keys, strengths between 0 and 1", size, |i, _| (i * 7 % 10) as f64 / 10.0, 1e-5);
            check("equal keys of strength 2", size, |_, _| 2.0, 1e-4);
        }
    }
}
