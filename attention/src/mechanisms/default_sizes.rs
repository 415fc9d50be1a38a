//! Default sizes of windows, blocks, chunks, strides and ranks.
//!
//! Defaults depend on the maximal length of the model ([`LayerSpec::max_length`](crate::contract::layer_spec::LayerSpec::max_length)), never on the length of a
//! batch. So a forward pass and decoding steps agree, and a stored configuration reproduces the model. The papers' sizes are for long sequences: in a model for
//! 64 positions a window of 256 hides nothing. So a paper's size applies from four times its length on; shorter models have at least four windows, chunks or
//! blocks. [`AnyMechanism::resolved`](crate::description::AnyMechanism::resolved) returns the numbers.

/// Minimum number of windows, blocks or chunks per sequence.
const PARTS: usize = 4;

/// Default window, chunk or rank: the paper's size, or a quarter of the maximal length if that is less. The result is at least 2, since a window of 1 shows the
/// query alone, but no more than the maximal length, and at least 1.
///
/// ```
/// use heedful_attention::mechanisms::default_sizes::quarter;
///
/// assert_eq!([64, 1024, 4096].map(|max_length| quarter(max_length, 256)), [16, 256, 256]);
/// ```
pub fn quarter(max_length: usize, of_paper: usize) -> usize {
    of_paper.min(max_length / PARTS).max(max_length.clamp(1, 2))
}

/// Default stride or block: the paper's size from four times its length on, otherwise the integer square root of the maximal length; at least 2.
///
/// ```
/// use heedful_attention::mechanisms::default_sizes::near_square_root;
///
/// assert_eq!([40, 64, 512].map(|max_length| near_square_root(max_length, 128)), [6, 8, 128]);
/// ```
pub fn near_square_root(max_length: usize, of_paper: usize) -> usize {
    near_root(max_length, 2, of_paper)
}

/// As [`near_square_root`], for patterns with `factors` factors, whose strides are powers of the first. The paper's stride applies if the last power leaves
/// four columns; otherwise the integer root of that order. At least 2, since a stride of 1 hides nothing.
pub fn near_root(max_length: usize, factors: usize, of_paper: usize) -> usize {
    let power = |stride: usize, factors: usize| stride.saturating_pow(factors.try_into().unwrap_or(u32::MAX));
    if power(of_paper, factors.saturating_sub(1)) <= max_length / PARTS {
        return of_paper;
    }
    let is_within = |root: &usize| power(*root, factors) <= max_length;
    (2..=of_paper).take_while(is_within).last().unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_paper_is_taken_where_it_fits_four_times() {
        for of_paper in [4, 64, 100] {
            for size in [quarter, near_square_root] {
                assert_eq!(size(4 * of_paper, of_paper), of_paper);
                assert_eq!(size(usize::MAX, of_paper), of_paper);
                assert!(size(4 * of_paper - 4, of_paper) < of_paper, "{of_paper}");
            }
        }
        assert_eq!((near_root(4 * 16 * 16, 3, 16), near_root(4 * 16 * 16 - 4, 3, 16)), (16, 10));
    }

    #[test]
    fn shorter_models_have_at_least_four_parts() {
        for max_length in 16..400 {
            let sizes = [quarter(max_length, 1000), near_square_root(max_length, 1000)];
            assert!(sizes.iter().all(|size| max_length / size >= 4), "{max_length}: {sizes:?}");
            let root = near_square_root(max_length, 1000);
            assert!(root * root <= max_length && (root + 1) * (root + 1) > max_length, "{max_length}: {root}");
        }
    }

    #[test]
    fn no_length_is_too_short() {
        for max_length in 0..16 {
            assert!((1..=max_length.max(1)).contains(&quarter(max_length, 256)));
            assert!((2..=3).contains(&near_square_root(max_length, 256)) && near_root(max_length, 16, 128) == 2);
        }
    }
}
