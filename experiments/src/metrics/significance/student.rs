//! Student's t distribution.

/// The probability that Student's t with `freedom` degrees of freedom is at least as far from zero as `t`.
pub(super) fn tails(t: f64, freedom: f64) -> f64 {
    let square = t * t;
    regularised_beta(freedom / (freedom + square), square / (freedom + square), freedom / 2.0, 0.5)
}

/// The distance from zero within which Student's t lies with probability `confidence`.
pub(super) fn quantile(confidence: f64, freedom: f64) -> f64 {
    let is_beyond = |t: f64| tails(t, freedom) <= 1.0 - confidence;
    let (mut low, mut high) = (0.0, 1.0);
    while !is_beyond(high) && high < f64::MAX / 2.0 {
        (low, high) = (high, 2.0 * high);
    }
    // More halvings than a number has bits.
    for _ in 0..100 {
        let middle = low + (high - low) / 2.0;
        if is_beyond(middle) { high = middle } else { low = middle }
    }
    high
}

/// The regularised incomplete beta function `I_x(a, b)`; `y` is `1 − x`, which is known more exactly than it can be computed from `x`.
fn regularised_beta(x: f64, y: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if y <= 0.0 {
        return 1.0;
    }
    let front = (a * x.ln() + b * y.ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp();
    // The continued fraction converges fast on this side of the mean; the other side follows by symmetry.
    if x < (a + 1.0) / (a + b + 2.0) { front * beta_fraction(x, a, b) / a } else { 1.0 - front * beta_fraction(y, b, a) / b }
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..10_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut last = 1.0;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            last = c * d;
            fraction *= last;
        }
        if (last - 1.0_f64).abs() < f64::EPSILON {
            break;
        }
    }
    fraction
}

/// The logarithm of the gamma function of `x > 0`, by Lanczos' approximation with `g = 7` and nine terms (relative error below 1e-14).
fn ln_gamma(x: f64) -> f64 {
    const FIRST: f64 = 0.999_999_999_999_809_9;
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Euler's reflection.
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let sum = TERMS.iter().enumerate().fold(FIRST, |sum, (index, term)| sum + term / (x + index as f64 + 1.0));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct Tails {
        t: f64,
        freedom: f64,
        p: f64,
    }

    #[test]
    fn the_tails_of_student_agree_with_scipy() {
        let cases: Vec<Tails> = load("student");
        assert!(cases.len() > 100);
        for Tails { t, freedom, p } in cases {
            assert_agrees(tails(t, freedom), p, &format!("t = {t}, {freedom} degrees of freedom"));
        }
    }

    #[test]
    fn the_quantile_is_where_the_tails_have_their_share() {
        for (confidence, freedom) in [(0.5, 1.0), (0.95, 2.0), (0.95, 3.7), (0.999_999, 1.0), (0.01, 40.0)] {
            let share = super::tails(quantile(confidence, freedom), freedom);
            assert!((share - (1.0 - confidence)).abs() < 1e-12, "{confidence}: {share}");
        }
    }
}
