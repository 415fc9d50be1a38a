//! Statistics of alternated runs.

use std::fmt;

use crate::markdown::significant;

/// Quartiles of a sample: first, median, third, interpolated linearly between elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// First quartile.
    pub first: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub third: f64,
}

impl Quartiles {
    /// Those of a sample; none if it is empty.
    pub fn of(sample: &[f64]) -> Option<Self> {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = share * last as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self { first: at(0.25), median: at(0.5), third: at(0.75) })
    }

    /// Those of seconds, in milliseconds.
    pub fn milliseconds(self) -> Self {
        Self { first: 1e3 * self.first, median: 1e3 * self.median, third: 1e3 * self.third }
    }
}

impl fmt::Display for Quartiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, median, third] = [self.first, self.median, self.third].map(significant);
        write!(f, "{median} ({first} to {third})")
    }
}

/// The ratios of two samples, element by element: runs of the same round, which met the same machine.
pub fn ratios(sample: &[f64], baseline: &[f64]) -> Vec<f64> {
    sample.iter().zip(baseline).map(|(value, base)| value / base).collect()
}

/// The least-squares slope of `ln y` over `ln x`: the exponent `k` of `y = c x^k`. None with fewer than two `x`, or if a value is not positive.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    if points.iter().any(|&(x, y)| x <= 0.0 || y <= 0.0) {
        return None;
    }
    let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) = (logs.iter().map(|p| p.0).sum::<f64>() / count, logs.iter().map(|p| p.1).sum::<f64>() / count);
    let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    slope.is_finite().then_some(slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_sorted_elements() {
        assert_eq!(Quartiles::of(&[4.0, 1.0, 3.0, 2.0, 5.0]), Some(Quartiles { first: 2.0, median: 3.0, third: 4.0 }));
        assert_eq!(Quartiles::of(&[1.0, 2.0]), Some(Quartiles { first: 1.25, median: 1.5, third: 1.75 }));
        assert_eq!(Quartiles::of(&[]), None);
        assert_eq!(Quartiles::of(&[0.01, 0.02, 0.04]).unwrap().milliseconds().to_string(), "20.0 (15.0 to 30.0)");
    }

    #[test]
    fn ratios_are_those_of_a_round() {
        assert_eq!(ratios(&[2.0, 9.0], &[4.0, 3.0]), [0.5, 3.0]);
    }

    #[test]
    fn the_exponent_of_a_power_is_found() {
        let power = |k: f64| [1024.0, 2048.0, 16384.0].map(|x: f64| (x, 3.0 * x.powf(k)));
        assert!((exponent(&power(1.5)).unwrap() - 1.5).abs() < 1e-9);
        assert_eq!(exponent(&[(1.0, 2.0)]), None);
        assert_eq!(exponent(&[(1.0, 2.0), (2.0, -1.0)]), None);
    }
}
