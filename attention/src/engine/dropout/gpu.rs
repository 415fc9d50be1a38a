//! The operator on CubeCL.
//!
//! A unit draws one block of ChaCha8 (Bernstein 2008), which decides 32 elements. The units of a cube exchange their blocks through shared memory, so that
//! neighbours read and write neighbouring elements.

#[cfg(all(test, feature = "wgpu"))]
mod tests;
pub(crate) mod weights;

use burn::backend::Backend;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, bf16, f16};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

use super::factor_of_kept;
use super::operator::{Draws, DropoutOperator, dropped_by_host};

/// Units per cube.
const UNITS: usize = 64;

/// Words per block.
const WORDS: usize = 16;

/// Elements decided by a block.
const ELEMENTS: usize = 2 * WORDS;

/// Distance of blocks in shared memory: one extra word makes simultaneous writes use different banks.
const PITCH: usize = WORDS + 1;

impl DropoutOperator for CubeBackend {
    fn dropped(x: CubeTensor, draws: Draws) -> CubeTensor {
        let kept = match draws {
            Draws::Stream { threshold, .. } => factor_of_kept(threshold),
            Draws::Weights { dropout, .. } => dropout.threshold_and_factor().1,
        };
        // Devices round to 16 bits differently: this converts the factor to the number in the host's mask.
        let kept = match x.dtype {
            DType::F32 => Some(kept),
            DType::F16 => Some(f16::from_f32(kept).to_f32()),
            DType::BF16 => Some(bf16::from_f32(kept).to_f32()),
            _ => None,
        };
        match kept {
            Some(kept) if x.meta.num_elements() > 0 && Self::supports_dtype(&x.device, x.dtype) => match draws {
                Draws::Stream { seed, first, threshold } => dropped(cubes_of(&x, first), x, seed, first, threshold, kept),
                Draws::Weights { dropout, first_query } => weights::dropped(x, &dropout, first_query, kept),
            },
            _ => dropped_by_host::<Self>(x, draws),
        }
    }
}

/// Enough cubes for the blocks, over as many dimensions as the device needs.
fn cubes_of(x: &CubeTensor, first: u64) -> CubeCount {
    let elements = (first % ELEMENTS as u64) as usize + x.meta.num_elements();
    calculate_cube_count_elemwise(&x.client, elements.div_ceil(ELEMENTS), units())
}

fn units() -> CubeDim {
    CubeDim::new_1d(UNITS as u32)
}

fn dropped(cubes: CubeCount, x: CubeTensor, seed: [u32; 8], first: u64, threshold: u32, kept: f32) -> CubeTensor {
    let x = into_contiguous(x);
    let (client, dtype) = (x.client.clone(), x.dtype);
    let output = empty_device_contiguous_dtype(client.clone(), x.device.clone(), x.meta.shape().clone(), dtype);
    let (block, skipped) = (first / ELEMENTS as u64, first % ELEMENTS as u64);
    drop_elements::launch(
        &client,
        cubes,
        units(),
        // Padding cubes compute addresses past the end.
        AddressType::from_len(2 * (x.meta.num_elements() + UNITS * ELEMENTS)),
        x.into_tensor_arg(),
        output.clone().into_tensor_arg(),
        StreamLaunch::new(seed.into(), block as u32, (block >> 32) as u32, skipped as u32),
        threshold,
        kept,
        dtype_to_storage_type(dtype),
    );
    output
}

/// Start of a tensor's elements in the stream of a seed.
#[derive(CubeType, CubeLaunch)]
struct Stream {
    seed: Sequence<u32>,
    /// Number of the block with the first element, in two halves.
    low: u32,
    high: u32,
    /// Elements of that block before the first one.
    skipped: u32,
}

#[cube(launch, address_type = "dynamic")]
fn drop_elements<F: Float>(
    x: &Tensor<F>,
    output: &mut Tensor<F>,
    stream: Stream,
    threshold: u32,
    kept: f32,
    #[define(F)] _dtype: ElemType,
) {
    let mut block = Array::<u32>::new(WORDS);
    draw(&mut block, &stream, CUBE_POS as u32 * comptime!(UNITS as u32) + UNIT_POS);
    let mut words = Shared::<[u32]>::new_slice(comptime!(UNITS * PITCH));
    #[unroll]
    for i in 0..WORDS {
        words[UNIT_POS as usize * PITCH + i] = block[i];
    }
    sync_cube();
    let skipped = stream.skipped as usize;
    for step in 0..ELEMENTS {
        let own = step * UNITS + UNIT_POS as usize;
        let place = CUBE_POS * comptime!(UNITS * ELEMENTS) + own;
        if place >= skipped && place - skipped < x.len() {
            let word = words[own / ELEMENTS * PITCH + own % ELEMENTS / 2];
            let drawn = (word >> ((own as u32 & 1u32) * 16u32)) & 0xffffu32;
            let factor = select(drawn < threshold, 0.0f32, kept);
            output[place - skipped] = x[place - skipped] * F::cast_from(factor);
        }
    }
}

/// Draws the block `number` after the first one.
#[cube]
fn draw(block: &mut Array<u32>, stream: &Stream, number: u32) {
    let mut start = Array::<u32>::new(WORDS);
    // "expand 32-byte k".
    start[0usize] = 0x6170_7865u32;
    start[1usize] = 0x3320_646eu32;
    start[2usize] = 0x7962_2d32u32;
    start[3usize] = 0x6b20_6574u32;
    #[unroll]
    for i in 0..8usize {
        start[comptime!(4 + i)] = stream.seed[i];
    }
    start[12usize] = stream.low + number;
    start[13usize] = stream.high + select(start[12usize] < number, 1u32, 0u32);
    start[14usize] = 0u32;
    start[15usize] = 0u32;
    #[unroll]
    for i in 0..WORDS {
        block[i] = start[i];
    }
    for _ in 0..4u32 {
        #[unroll]
        for i in 0..4usize {
            quarter_round(block, i, comptime!(4 + i), comptime!(8 + i), comptime!(12 + i));
        }
        #[unroll]
        for i in 0..4usize {
            quarter_round(block, i, comptime!(4 + (i + 1) % 4), comptime!(8 + (i + 2) % 4), comptime!(12 + (i + 3) % 4));
        }
    }
    #[unroll]
    for i in 0..WORDS {
        block[i] += start[i];
    }
}

#[cube]
fn quarter_round(block: &mut Array<u32>, #[comptime] a: usize, #[comptime] b: usize, #[comptime] c: usize, #[comptime] d: usize) {
    add_and_mix(block, a, b, d, 16u32);
    add_and_mix(block, c, d, b, 12u32);
    add_and_mix(block, a, b, d, 8u32);
    add_and_mix(block, c, d, b, 7u32);
}

/// Adds word `from` to word `to`, XORs the sum into word `other`, and rotates it left.
#[cube]
fn add_and_mix(block: &mut Array<u32>, #[comptime] to: usize, #[comptime] from: usize, #[comptime] other: usize, #[comptime] left: u32) {
    let sum = block[to] + block[from];
    let mixed = block[other] ^ sum;
    block[to] = sum;
    block[other] = (mixed << left) | (mixed >> comptime!(32 - left));
}
