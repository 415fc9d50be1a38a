//! Keys of random streams, also with a seed from a device.

use burn::tensor::{Device, Distribution, Tensor};
pub use heedful_random::RandomKey;

use crate::tensors::read::read;

/// Root key of streams with a seed from the device's own generator, which also draws the weights of Burn's layers. `Device::seed` makes it reproducible.
pub fn drawn_key(device: &Device) -> RandomKey {
    let drawn = Tensor::<1>::random([4], Distribution::Uniform(0.0, 1.0), &device.clone().inner());
    let seed = read(drawn).iter::<f64>().fold(0, |seed: u64, number| seed.rotate_left(16) ^ (number * f64::from(1 << 24)) as u64);
    RandomKey::from_seed(seed)
}
