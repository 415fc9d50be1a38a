//! Tiles in shared memory, and their products in the registers of planes.
//!
//! A result fragment, 16 x 8, is two pairs of numbers per unit: unit `l` of a plane has columns `2 (l mod 4)` and the next one, of rows `l div 4` and
//! `l div 4 + 8`.

use cubecl::cmma::{MatrixIdent, MmaDefinition};
use cubecl::prelude::*;

use super::super::products::Rows;
use crate::contract::visibility::TILE;

/// Planes per cube.
pub(super) const PLANES: usize = 4;

/// Tile rows per plane.
const OWN: usize = TILE / PLANES;

/// Units per cube.
const UNITS: usize = 32 * PLANES;

/// Eight 16-bit numbers, in words: a unit's copy size, and a row for `ldmatrix`. As numbers, each would be copied separately.
pub(super) type Eight = Vector<u32, Const<4>>;

/// Two neighbouring numbers of a row.
pub(super) type Two<F> = Vector<F, Const<2>>;

/// Distance of tile rows in shared memory, in eights: odd, so that eight rows use different banks.
fn pitch(wide: usize) -> usize {
    wide / 8 + 1
}

/// Eights of a tile of `wide` columns in shared memory.
pub(super) fn eights(wide: usize) -> usize {
    TILE * pitch(wide)
}

/// Bytes of shared memory of the largest kernel: two tiles of each width, and two numbers per query.
pub(super) fn room(factor: usize, value: usize) -> usize {
    2 * (eights(factor) + eights(value)) * 16 + 2 * TILE * size_of::<f32>()
}

/// Row `i`, 0 or 1, of this unit.
#[cube]
pub(super) fn own_row(#[comptime] i: usize) -> usize {
    UNIT_POS_Y as usize * OWN + UNIT_POS_X as usize / 4 + comptime!(8 * i)
}

/// Column `k`, 0 or 1, of this unit in fragment `j`.
#[cube]
pub(super) fn own_column(#[comptime] j: usize, #[comptime] k: usize) -> usize {
    UNIT_POS_X as usize % 4 * 2 + comptime!(8 * j + k)
}

/// Eights of a tile copied per unit.
pub(super) fn share(wide: usize) -> usize {
    TILE * wide / 8 / UNITS
}

/// Reads this unit's share of a tile, with 0 for missing numbers. Kernels fetch one tile ahead, so that memory reads overlap with products.
#[cube]
pub(super) fn fetch(share_of_unit: &mut Array<Eight>, source: &Tensor<Eight>, rows: &Rows, #[comptime] wide: usize) {
    let width = source.shape(3);
    #[unroll]
    for step in 0..comptime!(share(wide)) {
        let index = UNIT_POS as usize + comptime!(step * UNITS);
        let (row, eight) = (index / comptime!(wide / 8), index % comptime!(wide / 8));
        share_of_unit[step] = Eight::new(0u32);
        if row < rows.count && eight * 8 < width {
            share_of_unit[step] = source[rows.at(row, eight * 8) / 8];
        }
    }
}

/// Writes this unit's share of a tile to shared memory.
#[cube]
pub(super) fn put(target: &mut Shared<[Eight]>, share_of_unit: &Array<Eight>, #[comptime] wide: usize) {
    #[unroll]
    for step in 0..comptime!(share(wide)) {
        let index = UNIT_POS as usize + comptime!(step * UNITS);
        let (row, eight) = (index / comptime!(wide / 8), index % comptime!(wide / 8));
        target[row * comptime!(pitch(wide)) + eight] = share_of_unit[step];
    }
}

/// Copies a tile into shared memory.
#[cube]
pub(super) fn copy_tile(target: &mut Shared<[Eight]>, source: &Tensor<Eight>, rows: &Rows, #[comptime] wide: usize) {
    let mut share_of_unit = Array::<Eight>::new(comptime!(share(wide)));
    fetch(&mut share_of_unit, source, rows, wide);
    put(target, &share_of_unit, wide);
}

/// Adds the products of this plane's rows of `own` and the rows of `other` from `first` on, 8 per fragment, to the fragments `sums`.
#[cube]
pub(super) fn add_products_of_rows<F: Float>(
    sums: &mut Array<Two<f32>>,
    own: &Shared<[Eight]>,
    other: &Shared<[Eight]>,
    #[comptime] first: usize,
    #[comptime] fragments: usize,
    #[comptime] wide: usize,
) {
    let product = MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let unit = UNIT_POS_X as usize;
    #[unroll]
    for step in 0..comptime!(wide / 16) {
        let row = UNIT_POS_Y as usize * OWN + unit % 16;
        let at = row * comptime!(pitch(wide)) + unit / 16 + comptime!(2 * step);
        let a = operands::<F>(&product, own, at, MatrixIdent::A, false);
        #[unroll]
        for pair in 0..comptime!(fragments / 2) {
            let row = unit / 16 * 8 + unit % 8 + comptime!(first + 16 * pair);
            let at = row * comptime!(pitch(wide)) + unit / 8 % 2 + comptime!(2 * step);
            let b = operands::<F>(&product, other, at, MatrixIdent::B, false);
            #[unroll]
            for half in 0..2usize {
                add_fragment::<F>(&product, sums, comptime!(2 * pair + half), &a, b[comptime!(2 * half)], b[comptime!(2 * half + 1)]);
            }
        }
    }
}

/// Adds the product of this plane's `weights` and the rows of `other` from `first` on to the fragments `sums`, `wide / 8` of them. The columns of weights are
/// those of `fragments` fragments.
#[cube]
pub(super) fn add_product_of_weights<F: Float>(
    sums: &mut Array<Two<f32>>,
    weights: &Array<Two<f32>>,
    other: &Shared<[Eight]>,
    #[comptime] first: usize,
    #[comptime] fragments: usize,
    #[comptime] wide: usize,
) {
    let product = MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let unit = UNIT_POS_X as usize;
    #[unroll]
    for step in 0..comptime!(fragments / 2) {
        // Adjacent result fragments form an operand.
        let mut a = Array::<Two<F>>::new(4usize);
        #[unroll]
        for register in 0..4usize {
            a[register] = Two::<F>::cast_from(weights[comptime!(4 * step + register)]);
        }
        let row = unit % 16 + comptime!(first + 16 * step);
        #[unroll]
        for pair in 0..comptime!(wide / 16) {
            let at = row * comptime!(pitch(wide)) + unit / 16 + comptime!(2 * pair);
            let b = operands::<F>(&product, other, at, MatrixIdent::B, true);
            #[unroll]
            for half in 0..2usize {
                add_fragment::<F>(&product, sums, comptime!(2 * pair + half), &a, b[comptime!(2 * half)], b[comptime!(2 * half + 1)]);
            }
        }
    }
}

/// Reads four matrices of 8 x 8 numbers. `at` of unit `l` is the address of row `l mod 8` of matrix `l div 8`.
#[cube]
#[allow(unsafe_code, reason = "words in shared memory are read as the numbers that they hold")]
fn operands<F: Float>(
    product: &MmaDefinition<F, F, f32>,
    source: &Shared<[Eight]>,
    at: usize,
    #[comptime] ident: MatrixIdent,
    #[comptime] transpose: bool,
) -> Array<Two<F>> {
    let row = &source[at..at + 1];
    let row = unsafe { row.downcast_unchecked::<Vector<F, Const<8>>>() };
    product.load_matrix::<Vector<F, Const<8>>, Const<2>>(row, ident, 4usize, transpose)
}

/// Adds a product to fragment `fragment`.
#[cube]
fn add_fragment<F: Float>(
    product: &MmaDefinition<F, F, f32>,
    sums: &mut Array<Two<f32>>,
    #[comptime] fragment: usize,
    a: &Array<Two<F>>,
    upper: Two<F>,
    lower: Two<F>,
) {
    let mut b = Array::<Two<F>>::new(2usize);
    b[0] = upper;
    b[1] = lower;
    let mut sum = Array::<Two<f32>>::new(2usize);
    #[unroll]
    for i in 0..2usize {
        sum[i] = sums[comptime!(2 * fragment + i)];
    }
    product.execute_inplace(a, &b, &mut sum);
    #[unroll]
    for i in 0..2usize {
        sums[comptime!(2 * fragment + i)] = sum[i];
    }
}

/// Writes fragments, `wide / 8` of them, to `count` rows of a contiguous tensor, from row `start` on.
#[cube]
pub(super) fn write_rows<F: Float>(
    target: &mut Tensor<Two<F>>,
    start: usize,
    count: usize,
    fragments: &Array<Two<f32>>,
    #[comptime] wide: usize,
) {
    let width = target.shape(3);
    #[unroll]
    for i in 0..2usize {
        #[unroll]
        for j in 0..comptime!(wide / 8) {
            let (row, column) = (own_row(i), own_column(j, 0usize));
            if row < count && column < width {
                target[((start + row) * width + column) / 2] = Two::<F>::cast_from(fragments[comptime!(2 * j + i)]);
            }
        }
    }
}
