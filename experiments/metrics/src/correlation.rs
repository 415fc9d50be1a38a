//! Pearson's and Spearman's correlation of two samples.
//!
//! The idea: Pearson's `r` is the cosine between the centred samples; Spearman's `ρ` is Pearson's `r` of their ranks, where tied values share the mean
//! of the ranks they occupy. Neither exists if a sample does not vary, which a model with constant output shows; that is reported as `None`, never
//! as a number. Definitions as in SciPy (`pearsonr`, `spearmanr`, `rankdata`). Not covered: significance.

/// Pearson's correlation of `x` and `y`, -1 to 1.
///
/// `None` if there are fewer than two points, if one sample is constant (all values equal), or if a value is infinite or not a number.
///
/// # Panics
/// If the samples differ in length.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "a correlation needs pairs of values: {} and {}", x.len(), y.len());
    let (x, y) = (direction(x)?, direction(y)?);
    let cosine: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
    Some(cosine.clamp(-1.0, 1.0))
}

/// Spearman's rank correlation of `x` and `y`, -1 to 1; `None` in the cases of [`pearson`].
///
/// # Panics
/// If the samples differ in length.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "a correlation needs pairs of values: {} and {}", x.len(), y.len());
    // Ranks are always finite, so values that are not must be noticed before.
    if x.iter().chain(y).any(|value| !value.is_finite()) {
        return None;
    }
    pearson(&average_ranks(x), &average_ranks(y))
}

/// The rank of each value from 1 for the smallest; equal values all get the mean of the ranks that they occupy together.
pub fn average_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&left, &right| values[left].total_cmp(&values[right]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    // Comparing with `==` puts -0 and 0, which sort as neighbours, into one group.
    for group in order.chunk_by(|&left, &right| values[left] == values[right]) {
        let rank = first as f64 + (group.len() + 1) as f64 / 2.0;
        for &index in group {
            ranks[index] = rank;
        }
        first += group.len();
    }
    ranks
}

/// The centred sample at unit length, or `None` if it has no direction.
fn direction(values: &[f64]) -> Option<Vec<f64>> {
    let first = *values.first()?;
    if values.iter().any(|value| !value.is_finite()) || values.iter().all(|&value| value == first) {
        return None;
    }
    // The largest magnitude is divided out first, so that sums and squares neither overflow nor vanish.
    let unit = |values: Vec<f64>| {
        let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        values.into_iter().map(|value| value / largest).collect::<Vec<f64>>()
    };
    let scaled = unit(values.to_vec());
    let mean = scaled.iter().sum::<f64>() / scaled.len() as f64;
    let centred = unit(scaled.iter().map(|value| value - mean).collect());
    let norm = centred.iter().map(|value| value * value).sum::<f64>().sqrt();
    Some(centred.into_iter().map(|value| value / norm).collect())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        name: String,
        x: Vec<f64>,
        y: Vec<f64>,
        pearson: Option<f64>,
        spearman: Option<f64>,
        x_ranks: Vec<f64>,
    }

    fn cases() -> Vec<Case> {
        let cases: Vec<Case> = load("correlation");
        assert!(cases.iter().any(|case| case.pearson.is_none()) && cases.len() > 10);
        cases
    }

    fn assert_same(actual: Option<f64>, expected: Option<f64>, what: &str) {
        match (actual, expected) {
            // A correlation of zero comes out of cancellation, so that the error is absolute there.
            (Some(actual), Some(expected)) if expected.abs() < 1e-9 => assert!(actual.abs() < 1e-12, "{what}: {actual}"),
            (Some(actual), Some(expected)) => assert_agrees(actual, expected, what),
            _ => assert_eq!(actual, expected, "{what}"),
        }
    }

    #[test]
    fn correlations_agree_with_scipy() {
        for case in cases() {
            assert_same(pearson(&case.x, &case.y), case.pearson, &format!("Pearson, {}", case.name));
            assert_same(spearman(&case.x, &case.y), case.spearman, &format!("Spearman, {}", case.name));
        }
    }

    #[test]
    fn tied_values_share_the_mean_of_their_ranks_as_in_scipy() {
        for case in cases() {
            assert_eq!(average_ranks(&case.x), case.x_ranks, "{}", case.name);
        }
        assert_eq!(average_ranks(&[0.0, -0.0, -1.0]), [2.5, 2.5, 1.0]);
    }

    #[test]
    fn correlations_are_symmetric() {
        for case in cases() {
            assert_same(pearson(&case.y, &case.x), pearson(&case.x, &case.y), &case.name);
            assert_same(spearman(&case.y, &case.x), spearman(&case.x, &case.y), &case.name);
        }
    }

    #[test]
    fn values_that_are_not_finite_have_no_correlation() {
        for broken in [f64::NAN, f64::INFINITY] {
            assert_eq!(pearson(&[1.0, broken, 3.0], &[1.0, 2.0, 4.0]), None);
            assert_eq!(spearman(&[1.0, 2.0, 4.0], &[1.0, broken, 3.0]), None);
        }
    }

    #[test]
    fn fewer_than_two_points_have_no_correlation() {
        assert_eq!((pearson(&[], &[]), spearman(&[], &[])), (None, None));
        assert_eq!((pearson(&[1.0], &[2.0]), spearman(&[1.0], &[2.0])), (None, None));
    }

    #[test]
    #[should_panic(expected = "pairs of values: 2 and 1")]
    fn samples_of_different_length_are_refused() {
        spearman(&[1.0, 2.0], &[1.0]);
    }
}
