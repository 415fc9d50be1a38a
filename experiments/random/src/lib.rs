//! Named random streams, the same on every backend.
//!
//! A run has one seed. Every use of randomness (initial weights, data order, dropout, hashing) draws from a key of its own that is derived from that
//! seed by names and numbers, never from a generator shared with other uses. A key is a value: forking it or drawing from it changes nothing, so a
//! computation that is repeated with the same key (a resumed run, a reversible block) sees the same numbers, on every backend.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The golden section of 2^64.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The factors of SplitMix64's finaliser, by which keys and kernels mix.
pub const FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// A point in the tree of random streams.
///
/// # Example
/// ```
/// use heedful_random::RandomKey;
///
/// let run = RandomKey::from_seed(42);
/// let dropout = run.named("dropout").numbered(17);
/// assert_eq!(dropout, RandomKey::from_seed(42).named("dropout").numbered(17));
/// assert_ne!(dropout, run.named("init").numbered(17));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomKey([u64; 2]);

impl RandomKey {
    /// The root of all streams of a run.
    pub fn from_seed(seed: u64) -> Self {
        Self([0x6865_6564_6675_6c21, 0]).absorb(seed)
    }

    /// The child stream called `name`.
    pub fn named(&self, name: &str) -> Self {
        // The length keeps "ab" + "c" apart from "a" + "bc" when names are chained.
        let mut key = self.absorb(name.len() as u64 ^ (1 << 63));
        for chunk in name.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            key = key.absorb(u64::from_le_bytes(word));
        }
        key
    }

    /// The child stream with the given number (a step, a layer, a batch).
    pub fn numbered(&self, number: u64) -> Self {
        self.absorb(0).absorb(number)
    }

    /// A generator positioned at the start of this stream.
    pub fn rng(&self) -> ChaCha8Rng {
        generator(self.seed())
    }

    /// What the generator of this stream is seeded with, as kernels take it.
    pub fn seed(&self) -> [u32; 8] {
        let mut seed = [0; 8];
        let mut key = *self;
        for half in seed.as_chunks_mut::<4>().0 {
            let [a, b] = key.0;
            *half = [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32];
            key = key.absorb(u64::MAX);
        }
        seed
    }

    /// Sixty-four random bits of this key, other than those that its generator gives.
    pub fn word(&self) -> u64 {
        self.0[0]
    }

    fn absorb(self, word: u64) -> Self {
        let [a, b] = self.0;
        let a = mix(a ^ word.wrapping_mul(GOLDEN));
        Self([a, mix(b.rotate_left(23) ^ a.wrapping_add(0xd1b5_4a32_d192_ed03))])
    }
}

/// A generator positioned at the start of the stream with a seed.
pub fn generator(seed: [u32; 8]) -> ChaCha8Rng {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(seed) {
        *bytes = word.to_le_bytes();
    }
    ChaCha8Rng::from_seed(bytes)
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every input bit reaches every output bit.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(FACTORS[0]);
    z = (z ^ (z >> 27)).wrapping_mul(FACTORS[1]);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use rand::Rng;

    #[test]
    fn keys_of_different_paths_differ() {
        let root = RandomKey::from_seed(1);
        let mut seen = HashSet::new();
        for name in ["", "a", "ab", "abc", "init", "dropout", "a-name-of-more-than-eight-bytes"] {
            assert!(seen.insert(root.named(name)), "{name} collides");
            for number in 0..100 {
                assert!(seen.insert(root.named(name).numbered(number)), "{name}/{number} collides");
            }
        }
        assert_ne!(root.named("ab").named("c"), root.named("a").named("bc"));
        assert_ne!(root.numbered(1).numbered(2), root.numbered(2).numbered(1));
    }

    #[test]
    fn a_key_always_draws_the_same_numbers() {
        let key = RandomKey::from_seed(7).named("init");
        assert_eq!(key.rng().next_u64(), key.rng().next_u64());
    }

    #[test]
    fn streams_stay_what_they_are() {
        let mut bytes = [0; 32];
        let mut key = RandomKey::from_seed(7);
        for half in bytes.chunks_mut(16) {
            half[..8].copy_from_slice(&key.0[0].to_le_bytes());
            half[8..].copy_from_slice(&key.0[1].to_le_bytes());
            key = key.absorb(u64::MAX);
        }
        assert_eq!(ChaCha8Rng::from_seed(bytes), RandomKey::from_seed(7).rng());
    }

    #[test]
    fn draws_of_sibling_keys_are_uncorrelated() {
        let key = RandomKey::from_seed(7);
        let bits: u32 = (0..1000).map(|n| (key.numbered(n).rng().next_u64() ^ key.numbered(n + 1).rng().next_u64()).count_ones()).sum();
        let mean = f64::from(bits) / 1000.0;
        assert!((mean - 32.0).abs() < 0.5, "mean Hamming distance {mean}");
    }
}
