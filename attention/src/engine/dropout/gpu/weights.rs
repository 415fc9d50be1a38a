//! [`WeightDropout`] on CubeCL: the hash of [`RandomKey`](heedful_random::RandomKey) in 32-bit words, the longest in WGSL.

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;
use heedful_random::{FACTORS, GOLDEN};

use crate::engine::dropout::WeightDropout;

/// Units per cube.
const UNITS: usize = 256;

/// Drops `weights` `[B, H, Q, K]` of the queries from `first` on. `kept` is the factor of kept weights.
pub(super) fn dropped(weights: CubeTensor, dropout: &WeightDropout, first: usize, kept: f32) -> CubeTensor {
    let weights = into_contiguous(weights);
    let (client, dtype) = (weights.client.clone(), weights.dtype);
    let [batch, heads, queries, _] = weights.meta.shape().dims();
    let words = draw_words(dropout, [batch, heads, queries], first, &weights);
    let output = empty_device_contiguous_dtype(client.clone(), weights.device.clone(), weights.meta.shape().clone(), dtype);
    let units = CubeDim::new_1d(UNITS as u32);
    drop_weights::launch(
        &client,
        calculate_cube_count_elemwise(&client, weights.meta.num_elements(), units),
        units,
        // Padding cubes compute addresses past the end.
        AddressType::from_len(2 * (weights.meta.num_elements() + UNITS)),
        weights.into_tensor_arg(),
        words.into_tensor_arg(),
        output.clone().into_tensor_arg(),
        DropoutLaunch::new(dropout.threshold_and_factor().0, kept),
        dtype_to_storage_type(dtype),
    );
    output
}

#[cube(launch, address_type = "dynamic")]
fn drop_weights<F: Float>(
    weights: &Tensor<F>,
    words: &Tensor<u32>,
    output: &mut Tensor<F>,
    dropout: Dropout,
    #[define(F)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS;
    if place < output.len() {
        let keys = output.shape(3);
        let draws = draws_of(words, place / keys, true);
        output[place] = weights[place] * F::cast_from(factor(&dropout, &draws, place % keys));
    }
}

/// Two words per row of weights for the queries from `first` on, `[B, H, Q, 2]`: those of [`RowDropout`](crate::engine::dropout::RowDropout).
pub(crate) fn draw_words(dropout: &WeightDropout, [batch, heads, queries]: [usize; 3], first: usize, place: &CubeTensor) -> CubeTensor {
    let shape = Shape::new([batch, heads, queries, 2]);
    let words = empty_device_contiguous_dtype(place.client.clone(), place.device.clone(), shape, DType::U32);
    let word = dropout.word();
    words_of_rows::launch(
        &place.client,
        CubeCount::Static(queries.div_ceil(UNITS) as u32, heads as u32, batch as u32),
        CubeDim::new_1d(UNITS as u32),
        words.clone().into_tensor_arg(),
        word as u32,
        (word >> 32) as u32,
        first as u32,
    );
    words
}

/// A 64-bit number.
#[derive(CubeType, Clone, Copy)]
struct Wide {
    low: u32,
    high: u32,
}

#[cube(launch)]
fn words_of_rows(words: &mut Tensor<u32>, low: u32, high: u32, first: u32) {
    let (row, head) = (CUBE_POS_Z as usize, CUBE_POS_Y as usize);
    let query = ABSOLUTE_POS_X as usize;
    let (heads, queries) = (words.shape(1), words.shape(2));
    if query < queries {
        let of_row = numbered(Wide { low, high }, row as u32);
        let of_head = numbered(of_row, head as u32);
        let of_query = numbered(of_head, first + query as u32);
        let place = 2 * ((row * heads + head) * queries + query);
        words[place] = of_query.low;
        words[place + 1] = of_query.high;
    }
}

/// The first word of `RandomKey::numbered`.
#[cube]
fn numbered(key: Wide, number: u32) -> Wide {
    let key = mixed(key);
    let number = product(Wide { low: number, high: 0u32 }, GOLDEN);
    mixed(Wide { low: key.low ^ number.low, high: key.high ^ number.high })
}

/// The finaliser of SplitMix64.
#[cube]
fn mixed(z: Wide) -> Wide {
    let (golden_low, golden_high) = comptime!((GOLDEN as u32, (GOLDEN >> 32) as u32));
    let low = z.low + golden_low;
    let carry = select(low < golden_low, 1u32, 0u32);
    let z = Wide { low, high: z.high + golden_high + carry };
    let z = product(folded(z, 30u32), comptime!(FACTORS[0]));
    let z = product(folded(z, 27u32), comptime!(FACTORS[1]));
    folded(z, 31u32)
}

/// `z ^ (z >> by)`.
#[cube]
fn folded(z: Wide, #[comptime] by: u32) -> Wide {
    Wide { low: z.low ^ ((z.low >> by) | (z.high << comptime!(32 - by))), high: z.high ^ (z.high >> by) }
}

/// The lower 64 bits of a product.
#[cube]
fn product(z: Wide, #[comptime] factor: u64) -> Wide {
    let (low, high) = comptime!((factor as u32, (factor >> 32) as u32));
    Wide { low: z.low * low, high: z.low.mul_hi(low.runtime()) + z.low * high + z.high * low }
}

/// Dropout of the weights, as in [`crate::engine::dropout::RowDropout`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Dropout {
    /// A weight is dropped if its draw, of 2^16, is below this threshold.
    pub threshold: u32,
    /// Factor of the other weights.
    pub kept: f32,
}

/// Initial values of the draws for a query's weights.
#[derive(CubeType)]
pub(crate) struct Draws {
    first: u32,
    second: u32,
}

/// Draws of query `query`, counted over all heads of the batch.
#[cube]
pub(crate) fn draws_of(offsets: &Tensor<u32>, query: usize, #[comptime] drops: bool) -> Draws {
    let mut draws = Draws { first: 0u32, second: 0u32 };
    if drops {
        draws.first = offsets[2 * query];
        draws.second = offsets[2 * query + 1];
    }
    draws
}

/// Factor of the weight of key `key`.
#[cube]
pub(crate) fn factor(dropout: &Dropout, draws: &Draws, key: usize) -> f32 {
    let mut x = key as u32 + draws.first;
    x = ((x ^ (x >> 16u32)) * 0x7feb_352du32) ^ draws.second;
    x = (x ^ (x >> 15u32)) * 0x846c_a68bu32;
    select(((x >> 16u32) ^ (x & 0xffffu32)) < dropout.threshold, 0.0f32, dropout.kept)
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::backend::Backend;
    use burn::backend::tensor::{FloatTensor, IntTensor};
    use burn::tensor::FloatDType;
    use burn_cubecl::CubeBackend;
    use heedful_random::RandomKey;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::conformance::cube_test_device;

    fn on_device<B: Backend>(device: &B::Device) -> FloatTensor<B> {
        B::float_zeros(Shape::new([1]), device, FloatDType::F32)
    }

    fn read<B: Backend>(words: IntTensor<B>) -> Vec<u32> {
        let data = burn::tensor::try_read_sync(B::int_into_data(words)).expect("the device answers").expect("the kernel has run");
        data.iter().collect()
    }

    #[test]
    fn words_of_the_device_are_those_of_the_host() {
        let place = on_device::<CubeBackend>(&cube_test_device());
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let of_device =
            |dropout: &WeightDropout, sizes, first| -> Vec<u32> { read::<CubeBackend>(draw_words(dropout, sizes, first, &place)) };
        for first in (0..20).map(|index| 7 * index) {
            let dropout = WeightDropout::new(0.3, RandomKey::from_seed(rng.random())).expect("it drops something");
            let [batch, heads, queries] = [2, 3, 300];
            let expected: Vec<u32> = (0..batch * heads * queries)
                .flat_map(|index| dropout.row(index / (heads * queries), index / queries % heads, first + index % queries).offsets())
                .collect();
            assert_eq!(of_device(&dropout, [batch, heads, queries], first), expected);
        }
        let [one, other] = [1, 2].map(|seed| WeightDropout::new(0.3, RandomKey::from_seed(seed)).expect("it drops something"));
        assert_ne!(of_device(&one, [1, 1, 10], 0), of_device(&other, [1, 1, 10], 0));
        assert_ne!(of_device(&one, [1, 1, 10], 0), of_device(&one, [1, 1, 10], 1));
    }
}
