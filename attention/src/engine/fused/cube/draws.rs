//! What the draws of [`WeightDropout`] begin with, computed on the device: the hash of [`RandomKey`](crate::random::RandomKey) in words of 32 bits, since
//! WGSL has no longer ones.

use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::dropout::WeightDropout;
use crate::random::{FACTORS, GOLDEN};

/// Units of a cube.
const UNITS: usize = 256;

/// Two words for each row of weights, `[B, H, Q, 2]`: those of [`RowDropout`](crate::dropout::RowDropout).
pub(super) fn draw_words(dropout: &WeightDropout, [batch, heads, queries]: [usize; 3], place: &CubeTensor) -> CubeTensor {
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
    );
    words
}

/// A number of 64 bits.
#[derive(CubeType, Clone, Copy)]
struct Wide {
    low: u32,
    high: u32,
}

#[cube(launch)]
fn words_of_rows(words: &mut Tensor<u32>, low: u32, high: u32) {
    let (row, head) = (CUBE_POS_Z as usize, CUBE_POS_Y as usize);
    let query = ABSOLUTE_POS_X as usize;
    let (heads, queries) = (words.shape(1), words.shape(2));
    if query < queries {
        let of_row = numbered(Wide { low, high }, row as u32);
        let of_head = numbered(of_row, head as u32);
        let of_query = numbered(of_head, query as u32);
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

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::backend::Backend;
    use burn::backend::tensor::{FloatTensor, IntTensor};
    use burn::tensor::FloatDType;
    use burn_cubecl::CubeBackend;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::conformance::cube_test_device;
    use crate::random::RandomKey;

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
        let of_device = |dropout: &WeightDropout, sizes| -> Vec<u32> { read::<CubeBackend>(draw_words(dropout, sizes, &place)) };
        for _ in 0..20 {
            let dropout = WeightDropout::new(0.3, RandomKey::from_seed(rng.random())).expect("it drops something");
            let [batch, heads, queries] = [2, 3, 300];
            let expected: Vec<u32> = (0..batch * heads * queries)
                .flat_map(|index| dropout.row(index / (heads * queries), index / queries % heads, index % queries).offsets())
                .collect();
            assert_eq!(of_device(&dropout, [batch, heads, queries]), expected);
        }
        let [one, other] = [1, 2].map(|seed| WeightDropout::new(0.3, RandomKey::from_seed(seed)).expect("it drops something"));
        assert_ne!(of_device(&one, [1, 1, 10]), of_device(&other, [1, 1, 10]));
    }
}
