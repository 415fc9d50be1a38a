//! How much memory a pass would take, before it is begun at its full size.

use crate::workload::Sizes;

/// Tokens of an input that is small whatever is done with it.
const SMALL_TOKENS: usize = 1024;
/// Length from which on lengths are approached by doubling.
const SMALL_LENGTH: usize = 256;
/// Bytes of a number.
const NUMBER: u64 = 4;
/// Matrices of all pairs that the reference engine holds at once in a pass with gradients: scores, masks, weights, and the gradients of these.
const PAIRS: u64 = 8;

/// Sequences of the width of the model that a pass holds at once, generously.
const SEQUENCES: u64 = 256;

/// Whether a pass fits into `limit` bytes whatever executes it, so that nothing smaller need be measured first.
pub(crate) fn fits(sizes: Sizes, limit: u64) -> bool {
    let Sizes { batch, length, d_model, heads, .. } = sizes;
    let [batch, length, d_model, heads] = [batch, length, d_model, heads].map(|size| size as u64);
    let of_row = (2 * PAIRS * heads).saturating_mul(length).saturating_add(SEQUENCES.saturating_mul(d_model));
    of_row.saturating_mul(length).saturating_mul(batch).saturating_mul(NUMBER) <= limit
}

/// Bytes of a pass with an input of these sizes, of which `measured` says what smaller inputs take. `None` for a small input, which may as well be tried.
///
/// What grows with the batch grows in proportion, so that two small batches tell of a large one. Lengths are approached by doubling, as long as the next one is
/// expected to stay below `limit`: as a power of the length, at first its square, then that of the last two. What lies beyond counts by the same power.
pub(crate) fn bytes(sizes: Sizes, mut measured: impl FnMut(Sizes) -> Option<u64>, limit: u64) -> Option<u64> {
    let Sizes { batch, length, d_model, .. } = sizes;
    if length <= SMALL_LENGTH && batch.saturating_mul(length) <= SMALL_TOKENS {
        return None;
    }
    // The input and the output.
    let least = 2 * NUMBER * (batch as u64).saturating_mul(length as u64).saturating_mul(d_model as u64);
    if least > limit {
        return Some(least);
    }
    let mut at = length.min(SMALL_LENGTH);
    let mut one = measured(Sizes { batch: 1, length: at, ..sizes })?;
    let mut power = 2.0;
    let grown = |bytes: u64, from: usize, to: usize, power: f64| (bytes as f64 * (to as f64 / from as f64).powf(power)) as u64;
    if grown(one, at, length, power).saturating_mul(batch as u64) <= limit {
        return None;
    }
    while at < length {
        let next = at.saturating_mul(2).min(length);
        if grown(one, at, next, power) > limit {
            return Some(grown(one, at, length, power));
        }
        let longer = measured(Sizes { batch: 1, length: next, ..sizes })?;
        power = ((longer as f64 / one as f64).ln() / (next as f64 / at as f64).ln()).clamp(0.0, 2.5);
        (one, at) = (longer, next);
    }
    if batch == 1 {
        return Some(one);
    }
    if one.saturating_mul(2) > limit {
        return Some(one.saturating_mul(2));
    }
    let of_row = measured(Sizes { batch: 2, ..sizes })?.saturating_sub(one);
    Some(one.saturating_add(of_row.saturating_mul(batch as u64 - 1)).max(least))
}

/// Sizes at which a mechanism is compared with the reference engine, which holds matrices of all pairs: as many sequences of these as fit into `limit` bytes,
/// and at least one.
pub(super) fn checked(sizes: Sizes, limit: u64) -> Sizes {
    let Sizes { batch, length, heads, .. } = sizes;
    let of_row = PAIRS * NUMBER * (heads as u64).saturating_mul(length as u64).saturating_mul(length as u64);
    Sizes { batch: batch.min(usize::try_from(limit / of_row.max(1)).unwrap_or(usize::MAX)).max(1), ..sizes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(batch: usize, length: usize) -> Sizes {
        Sizes { batch, length, d_model: 8, heads: 2, kv_heads: None }
    }

    /// What is expected of a pass that takes `law(batch, length)` bytes, and the sizes at which it was tried.
    fn expected(sizes: Sizes, limit: u64, law: impl Fn(u64, u64) -> u64) -> (Option<u64>, Vec<(usize, usize)>) {
        let mut tried = Vec::new();
        let measured = |Sizes { batch, length, .. }: Sizes| {
            tried.push((batch, length));
            Some(law(batch as u64, length as u64))
        };
        (bytes(sizes, measured, limit), tried)
    }

    #[test]
    fn a_large_batch_is_expected_from_two_small_ones() {
        // Weights, and what each row takes.
        let law = |batch: u64, length: u64| 1_000_000 + batch * length * 1000;
        let (found, tried) = expected(sizes(2048, 512), 1 << 30, law);
        assert_eq!((found, tried), (Some(law(2048, 512)), vec![(1, 256), (1, 512), (2, 512)]));
    }

    #[test]
    fn a_length_is_approached_and_never_tried_where_it_may_exceed_the_limit() {
        let law = |batch: u64, length: u64| batch * length * length * 16;
        let limit = 1 << 26;
        let (found, tried) = expected(sizes(1, 1 << 14), limit, law);
        assert_eq!(found, Some(law(1, 1 << 14)));
        assert!(tried.iter().all(|&(batch, length)| law(batch as u64, length as u64) <= limit), "{tried:?}");
        // What is linear in the length is not left out by mistake.
        let (found, _) = expected(sizes(1, 1 << 14), limit, |batch, length| batch * length * 4000);
        assert_eq!(found, Some(4000 << 14));
    }

    #[test]
    fn what_is_small_or_fits_by_the_square_law_is_tried_at_once() {
        assert_eq!(expected(sizes(4, 256), 1, |_, _| unreachable!()), (None, vec![]));
        assert_eq!(expected(sizes(1, 4096), 1 << 30, |_, length| length * 1000).0, None);
        let whole = expected(sizes(1 << 30, 1 << 20), 1 << 30, |_, _| unreachable!());
        assert_eq!(whole, (Some((2 * 4 * 8) << 50), vec![]), "input and output alone");
    }

    #[test]
    fn a_pass_that_fits_with_room_to_spare_needs_no_estimate() {
        assert!(fits(sizes(8, 256), 1 << 30) && !fits(sizes(8, 1 << 15), 1 << 30));
        assert!(!fits(sizes(usize::MAX, usize::MAX), 1 << 30));
    }

    #[test]
    fn the_reference_engine_is_given_as_many_rows_as_fit() {
        assert_eq!(checked(sizes(3, 16), 1 << 30), sizes(3, 16));
        assert_eq!(checked(sizes(2048, 512), 1 << 30).batch, 64);
        assert_eq!(checked(sizes(2048, 1 << 20), 1 << 30).batch, 1);
    }
}
