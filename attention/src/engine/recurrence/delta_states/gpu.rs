//! The kernel on CubeCL: a cube computes some columns of one head's states, kept in shared memory, from chunk to chunk.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl::prelude::*;

use super::operator::DeltaStates;

/// Columns per cube.
const COLUMNS: usize = 16;

/// Units that share a column, with interleaved rows.
const LANES: usize = 16;

impl DeltaStates for CubeBackend {
    fn delta_states(values: CubeTensor, erasing: CubeTensor, behind: CubeTensor, decays: CubeTensor, state: CubeTensor) -> CubeTensor {
        let ([batch, chunks, chunk, value], width) = (values.shape().dims(), erasing.shape()[3]);
        let values = Self::float_reshape(values, Shape::new([batch, chunks * chunk, value]));
        let state = Self::float_reshape(state, Shape::new([batch, width, value]));
        swept(values, Some(state), erasing, behind, decays)
    }

    fn delta_states_backward(gradient: CubeTensor, erasing: CubeTensor, behind: CubeTensor, decays: CubeTensor) -> CubeTensor {
        swept(gradient, None, erasing, behind, decays)
    }
}

fn swept(given: CubeTensor, state: Option<CubeTensor>, erasing: CubeTensor, behind: CubeTensor, decays: CubeTensor) -> CubeTensor {
    let ([batch, chunks, chunk, width], value) = (erasing.shape().dims(), given.shape()[2]);
    let (client, count) = (given.client.clone(), chunks * chunk + (chunks + 1) * width);
    let rows = empty_device_contiguous_dtype(client.clone(), given.device.clone(), Shape::new([batch, count, value]), DType::F32);
    // The rows of the largest tensor can have gaps.
    let widest = value.max(chunk).max(width).next_multiple_of(256);
    sweep::launch(
        &client,
        CubeCount::Static(value.div_ceil(COLUMNS) as u32, batch as u32, 1),
        CubeDim::new_1d((COLUMNS * LANES) as u32),
        AddressType::from_len(batch * count * widest),
        given.into_tensor_arg(),
        state.map(CubeTensor::into_tensor_arg).into(),
        erasing.into_tensor_arg(),
        behind.into_tensor_arg(),
        decays.into_tensor_arg(),
        rows.clone().into_tensor_arg(),
        chunk,
        width,
    );
    rows
}

/// Whether a device has room for some columns of a state and of a chunk's writes.
pub(super) fn has_room(device: &CubeDevice, chunk: usize, width: usize) -> bool {
    let client = device.client();
    let hardware = &client.properties().hardware;
    let rows = chunk.next_multiple_of(LANES) + width.next_multiple_of(LANES);
    CubeBackend::supports_dtype(device, DType::F32)
        && hardware.max_shared_memory_size >= rows * COLUMNS * size_of::<f32>()
        && hardware.max_units_per_cube as usize >= COLUMNS * LANES
}

/// Both passes share one form: with `A` and `B` the matrices `-W` and `K`, backward `K^T` and `-W^T`, a chunk writes `U + A S`, and the next state is
/// `d S + B (U + A S)`, plus, backward, the gradient of that state. `given` contains the rows of all `U` and, backward, where there is no first state, those of
/// all states after them.
#[cube(launch, address_type = "dynamic")]
fn sweep(
    given: &Tensor<f32>,
    first: ComptimeOption<&Tensor<f32>>,
    erasing: &Tensor<f32>,
    behind: &Tensor<f32>,
    decays: &Tensor<f32>,
    rows: &mut Tensor<f32>,
    #[comptime] chunk: usize,
    #[comptime] width: usize,
) {
    let backward = comptime!(first.is_none());
    let own_rows = comptime!(chunk.div_ceil(LANES));
    let own_states = comptime!(width.div_ceil(LANES));
    let mut room = Shared::<[f32]>::new_slice(comptime!((chunk.next_multiple_of(LANES) + width.next_multiple_of(LANES)) * COLUMNS));
    let of_state = comptime!(chunk.next_multiple_of(LANES) * COLUMNS);
    let head = CUBE_POS_Y as usize;
    let (lane, own) = (UNIT_POS as usize / COLUMNS, UNIT_POS as usize % COLUMNS);
    let column = CUBE_POS_X as usize * COLUMNS + own;
    let (first_row, value) = (head * rows.shape(1), rows.shape(2));
    let exists = column < value;
    // Units past the last column recompute it and write nothing.
    let column = select(exists, column, value - 1);
    let chunks = erasing.shape(1);
    let first_state = chunks * chunk;
    let mut state = Array::<f32>::new(own_states);
    let to = if comptime!(backward) { first_state + chunks * width } else { first_state };
    #[unroll]
    for i in 0..own_states {
        let row = lane + i * LANES;
        let number = if comptime!(backward) {
            number_of(given, head, to + last(row, width), column)
        } else {
            number_of(first.unwrap(), head, last(row, width), column)
        };
        state[i] = number;
        room[of_state + row * COLUMNS + own] = number;
        if exists && row < width {
            rows[(first_row + to + row) * value + column] = number;
        }
    }
    sync_cube();
    for step in 0..chunks {
        let at = if comptime!(backward) { chunks - 1 - step } else { step };
        let mut written = Array::<f32>::new(own_rows);
        #[unroll]
        for i in 0..own_rows {
            written[i] = number_of(given, head, at * chunk + last(lane + i * LANES, chunk), column);
        }
        for inner in 0..width {
            let factor = room[of_state + inner * COLUMNS + own];
            #[unroll]
            for i in 0..own_rows {
                let row = last(lane + i * LANES, chunk);
                if comptime!(backward) {
                    written[i] += behind[element_of(behind, head, at, inner, row)] * factor;
                } else {
                    written[i] -= erasing[element_of(erasing, head, at, row, inner)] * factor;
                }
            }
        }
        #[unroll]
        for i in 0..own_rows {
            let row = lane + i * LANES;
            room[row * COLUMNS + own] = written[i];
            if exists && row < chunk {
                rows[(first_row + at * chunk + row) * value + column] = written[i];
            }
        }
        sync_cube();
        let next = if comptime!(backward) { first_state + at * width } else { first_state + (at + 1) * width };
        #[unroll]
        for i in 0..own_states {
            let row = last(lane + i * LANES, width);
            let channel = select(decays.shape(2) == 1, 0, row);
            state[i] *= decays[element_of(decays, head, at, channel, 0)];
            if comptime!(backward) {
                state[i] += number_of(given, head, next + row, column);
            }
        }
        for inner in 0..chunk {
            let factor = room[inner * COLUMNS + own];
            #[unroll]
            for i in 0..own_states {
                let row = last(lane + i * LANES, width);
                if comptime!(backward) {
                    state[i] -= erasing[element_of(erasing, head, at, inner, row)] * factor;
                } else {
                    state[i] += behind[element_of(behind, head, at, row, inner)] * factor;
                }
            }
        }
        #[unroll]
        for i in 0..own_states {
            let row = lane + i * LANES;
            room[of_state + row * COLUMNS + own] = state[i];
            if exists && row < width {
                rows[(first_row + next + row) * value + column] = state[i];
            }
        }
        sync_cube();
    }
}

/// A row, clamped to the last one; results of clamped units are not written.
#[cube]
fn last(row: usize, #[comptime] count: usize) -> usize {
    select(row < count, row, comptime!(count - 1).runtime())
}

#[cube]
fn number_of(rows: &Tensor<f32>, head: usize, row: usize, column: usize) -> f32 {
    rows[head * rows.stride(0) + row * rows.stride(1) + column * rows.stride(2)]
}

/// Address of an element of a chunk's matrix.
#[cube]
fn element_of(matrices: &Tensor<f32>, head: usize, chunk: usize, row: usize, column: usize) -> usize {
    head * matrices.stride(0) + chunk * matrices.stride(1) + row * matrices.stride(2) + column * matrices.stride(3)
}
