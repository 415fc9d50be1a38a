//! A product by the processor's instruction for `bfloat16`, to compare with products in 32 bits.
//!
//! `vdpbf16ps` (AVX512-BF16) multiplies 32 pairs of numbers of 16 bits, and adds two products to each of 16 sums of 32 bits. Operands and result have 32 bits: to
//! narrow and to arrange the operands is part of the product, as it would be of a layer whose weights and sums have 32 bits. Burn has no such product.

use rayon::prelude::*;

/// Numbers that an instruction narrows at once, and its sums.
const SUMS: usize = 16;

/// Columns of a tile of the product, two instructions wide, and its rows: each of its sums has a register.
const COLUMNS: usize = 2 * SUMS;
const ROWS: usize = 8;

/// Rows that a thread computes at once.
const STRIP: usize = 8 * ROWS;

/// What the instructions do, of which a value says that the processor has them.
trait Lanes: Copy + Sync {
    /// Sums of 32 bits.
    type Sums: Copy;
    /// A pair of numbers for each sum.
    type Pairs: Copy;

    /// A multiple of 16 numbers, rounded to 16 bits.
    fn narrow(self, numbers: &[f32]) -> Vec<u16>;
    fn zeros(self) -> Self::Sums;
    fn pairs(self, numbers: &[[u16; 2]; SUMS]) -> Self::Pairs;
    /// The same pair for each sum.
    fn repeated(self, pair: [u16; 2]) -> Self::Pairs;
    fn added(self, sums: Self::Sums, a: Self::Pairs, b: Self::Pairs) -> Self::Sums;
    fn numbers(self, sums: Self::Sums) -> [f32; SUMS];
    /// Runs a computation where the compiler may use the instructions.
    fn run(self, strip: Strip);
}

/// Rows of the left operand, and where their products go.
struct Strip<'a> {
    rows: &'a [f32],
    /// [`packed`].
    packed: &'a [[u16; 2]],
    columns: usize,
    product: &'a mut [f32],
}

/// The product of row-major matrices `[R, K]` and `[K, C]`.
///
/// # Panics
/// If `R`, `K` and `C` are not multiples of 8, 16 and 32.
fn multiplied<L: Lanes>(lanes: L, a: &[f32], b: &[f32], inner: usize) -> Vec<f32> {
    let (rows, columns) = (a.len() / inner, b.len() / inner);
    assert!(a.len() == rows * inner && b.len() == inner * columns, "operands have whole rows");
    assert!(rows.is_multiple_of(ROWS) && inner.is_multiple_of(SUMS) && columns.is_multiple_of(COLUMNS), "tiles fill the product");
    let packed = packed(lanes, b, columns);
    let mut product = vec![0.0; rows * columns];
    let strips = product.par_chunks_mut(STRIP * columns).zip(a.par_chunks(STRIP * inner));
    strips.for_each(|(product, rows)| lanes.run(Strip { rows, packed: &packed, columns, product }));
    product
}

/// The right operand for each tile of columns: pair of rows by pair of rows, the numbers of a column side by side.
fn packed<L: Lanes>(lanes: L, b: &[f32], columns: usize) -> Vec<[u16; 2]> {
    let narrowed = lanes.narrow(b);
    let mut packed = Vec::with_capacity(b.len() / 2);
    for tile in (0..columns).step_by(COLUMNS) {
        for rows in narrowed.chunks_exact(2 * columns) {
            let (even, odd) = rows.split_at(columns);
            packed.extend(even[tile..][..COLUMNS].iter().zip(&odd[tile..][..COLUMNS]).map(|(&even, &odd)| [even, odd]));
        }
    }
    packed
}

#[inline(always)]
fn strip_multiplied<L: Lanes>(lanes: L, Strip { rows, packed, columns, product }: Strip) {
    let pairs = packed.len() / columns;
    let narrowed = lanes.narrow(rows);
    let rows = narrowed.as_chunks::<2>().0;
    for (tile, packed) in packed.chunks_exact(COLUMNS * pairs).enumerate() {
        for (block, rows) in rows.chunks_exact(ROWS * pairs).enumerate() {
            let rows: [&[[u16; 2]]; ROWS] = std::array::from_fn(|row| &rows[row * pairs..][..pairs]);
            let mut sums = [[lanes.zeros(); 2]; ROWS];
            for (pair, packed) in packed.as_chunks::<SUMS>().0.as_chunks::<2>().0.iter().enumerate() {
                let b = [lanes.pairs(&packed[0]), lanes.pairs(&packed[1])];
                for (row, sums) in rows.iter().zip(&mut sums) {
                    let a = lanes.repeated(row[pair]);
                    *sums = [lanes.added(sums[0], a, b[0]), lanes.added(sums[1], a, b[1])];
                }
            }
            for (row, sums) in sums.into_iter().enumerate() {
                let place = (block * ROWS + row) * columns + tile * COLUMNS;
                for (half, sums) in sums.into_iter().enumerate() {
                    product[place + half * SUMS..][..SUMS].copy_from_slice(&lanes.numbers(sums));
                }
            }
        }
    }
}

/// A product of a processor that has the instruction.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
pub(super) struct Product {
    lanes: avx::Avx512,
    a: Vec<f32>,
    b: Vec<f32>,
    inner: usize,
}

#[cfg(target_arch = "x86_64")]
impl Product {
    /// Of so many rows of `width` numbers with a square matrix, if the processor has the instruction.
    pub(super) fn new(rows: usize, width: usize) -> Option<Self> {
        let numbers = |count: usize| (0..count).map(|index| (index % 17) as f32 / 8.0 - 1.0).collect();
        Some(Self { lanes: avx::Avx512::here()?, a: numbers(rows * width), b: numbers(width * width), inner: width })
    }

    pub(super) fn run(&self) -> Vec<f32> {
        multiplied(self.lanes, &self.a, &self.b, self.inner)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx {
    #![allow(unsafe_code, reason = "the instructions have no safe interface in code that is compiled for every processor")]

    use std::arch::x86_64::*;
    use std::mem::transmute;

    use super::{Lanes, SUMS, Strip, strip_multiplied};

    /// Exists where the processor has the instructions.
    #[derive(Clone, Copy, Debug)]
    pub struct Avx512(());

    impl Avx512 {
        pub fn here() -> Option<Self> {
            let has_all =
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512bf16");
            has_all.then_some(Self(()))
        }
    }

    // SAFETY, of all blocks: a value is there only where the processor has the instructions, and arrays are transmuted to vectors of their size.
    impl Lanes for Avx512 {
        type Sums = __m512;
        type Pairs = __m512bh;

        fn narrow(self, numbers: &[f32]) -> Vec<u16> {
            #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
            fn narrow(numbers: &[f32]) -> Vec<u16> {
                let mut narrowed = Vec::with_capacity(numbers.len());
                for numbers in numbers.as_chunks::<SUMS>().0 {
                    let rounded = _mm512_cvtneps_pbh(unsafe { transmute::<[f32; SUMS], __m512>(*numbers) });
                    narrowed.extend_from_slice(&unsafe { transmute::<__m256bh, [u16; SUMS]>(rounded) });
                }
                narrowed
            }
            unsafe { narrow(numbers) }
        }

        #[inline(always)]
        fn zeros(self) -> __m512 {
            unsafe { _mm512_setzero_ps() }
        }

        #[inline(always)]
        fn pairs(self, numbers: &[[u16; 2]; SUMS]) -> __m512bh {
            unsafe { transmute::<[[u16; 2]; SUMS], __m512bh>(*numbers) }
        }

        #[inline(always)]
        fn repeated(self, pair: [u16; 2]) -> __m512bh {
            unsafe { transmute::<__m512i, __m512bh>(_mm512_set1_epi32(transmute::<[u16; 2], i32>(pair))) }
        }

        #[inline(always)]
        fn added(self, sums: __m512, a: __m512bh, b: __m512bh) -> __m512 {
            unsafe { _mm512_dpbf16_ps(sums, a, b) }
        }

        #[inline(always)]
        fn numbers(self, sums: __m512) -> [f32; SUMS] {
            unsafe { transmute::<__m512, [f32; SUMS]>(sums) }
        }

        fn run(self, strip: Strip) {
            #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
            fn run(lanes: Avx512, strip: Strip) {
                strip_multiplied(lanes, strip);
            }
            unsafe { run(self, strip) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The instructions, number by number.
    #[derive(Clone, Copy)]
    struct Plain;

    fn narrowed(number: f32) -> u16 {
        let bits = number.to_bits();
        ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
    }

    fn widened(number: u16) -> f32 {
        f32::from_bits(u32::from(number) << 16)
    }

    impl Lanes for Plain {
        type Sums = [f32; SUMS];
        type Pairs = [[u16; 2]; SUMS];

        fn narrow(self, numbers: &[f32]) -> Vec<u16> {
            numbers.iter().copied().map(narrowed).collect()
        }

        fn zeros(self) -> [f32; SUMS] {
            [0.0; SUMS]
        }

        fn pairs(self, numbers: &[[u16; 2]; SUMS]) -> [[u16; 2]; SUMS] {
            *numbers
        }

        fn repeated(self, pair: [u16; 2]) -> [[u16; 2]; SUMS] {
            [pair; SUMS]
        }

        fn added(self, sums: [f32; SUMS], a: [[u16; 2]; SUMS], b: [[u16; 2]; SUMS]) -> [f32; SUMS] {
            std::array::from_fn(|at| sums[at] + (0..2).map(|side| widened(a[at][side]) * widened(b[at][side])).sum::<f32>())
        }

        fn numbers(self, sums: [f32; SUMS]) -> [f32; SUMS] {
            sums
        }

        fn run(self, strip: Strip) {
            strip_multiplied(self, strip);
        }
    }

    /// Two strips, the second of which is not whole, and two tiles of columns.
    const SIZES: [usize; 3] = [STRIP + ROWS, 48, 2 * COLUMNS];

    fn operands() -> [Vec<f32>; 2] {
        let [rows, inner, columns] = SIZES;
        let numbers = |count: usize, step: usize| (0..count).map(|index| (index * step % 1009) as f32 / 500.0 - 1.0).collect();
        [numbers(rows * inner, 7), numbers(inner * columns, 13)]
    }

    fn is_product(found: &[f32], [a, b]: &[Vec<f32>; 2]) {
        let [rows, inner, columns] = SIZES;
        assert_eq!(found.len(), rows * columns);
        let exact = |number: f32| f64::from(widened(narrowed(number)));
        for (place, &found) in found.iter().enumerate() {
            let (row, column) = (place / columns, place % columns);
            let expected: f64 = (0..inner).map(|at| exact(a[row * inner + at]) * exact(b[at * columns + column])).sum();
            // The sums have 24 bits, and 48 terms of up to 1.02 each.
            assert!((f64::from(found) - expected).abs() < 1e-4, "row {row}, column {column}: {found} is not {expected}");
        }
    }

    #[test]
    fn tiles_make_the_product_of_the_narrowed_operands() {
        let [a, b] = operands();
        is_product(&multiplied(Plain, &a, &b, SIZES[1]), &[a, b]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_instruction_does_what_is_done_number_by_number() {
        // Where the processor does not have it, nothing is measured with it either.
        let Some(lanes) = avx::Avx512::here() else { return };
        let [a, b] = operands();
        is_product(&multiplied(lanes, &a, &b, SIZES[1]), &[a, b]);
    }
}
