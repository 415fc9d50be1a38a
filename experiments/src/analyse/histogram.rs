//! Counts of values in bins of equal width.

/// Counts of values in bins of equal width, and of those outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    from: f64,
    to: f64,
    counts: Vec<u64>,
    below: u64,
    above: u64,
}

impl Histogram {
    /// `bins` bins from `from` to `to`; a bin holds its lower end, the last one both.
    ///
    /// # Panics
    /// If `from` is not less than `to` or there are no bins.
    pub fn new(from: f64, to: f64, bins: usize) -> Self {
        assert!(from < to && bins > 0, "a histogram has a range and bins");
        Self { from, to, counts: vec![0; bins], below: 0, above: 0 }
    }

    pub(super) fn add(&mut self, value: f64) {
        if value < self.from {
            self.below += 1;
        } else if value > self.to {
            self.above += 1;
        } else {
            let bin = (value - self.from) / (self.to - self.from) * self.counts.len() as f64;
            let last = self.counts.len() - 1;
            self.counts[(bin as usize).min(last)] += 1;
        }
    }

    /// Adds the counts of a histogram with the same bins.
    pub(super) fn merge(&mut self, other: &Self) {
        debug_assert_eq!((self.from, self.to, self.counts.len()), (other.from, other.to, other.counts.len()));
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, others)| *own += others);
        self.below += other.below;
        self.above += other.above;
    }

    /// The ends of the range.
    pub fn range(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// The number of values in each bin.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The number of values below the range.
    pub fn below(&self) -> u64 {
        self.below
    }

    /// The number of values above the range.
    pub fn above(&self) -> u64 {
        self.above
    }

    /// The number of all values, those outside the range among them.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.below + self.above
    }

    /// The Jensen-Shannon divergence of the shares of two histograms with the same bins, in nats: 0 for equal shares, `ln 2` where they have no bin in common.
    /// Values outside the range make up two bins more. `None` if one of the two is empty.
    pub fn divergence(&self, other: &Self) -> Option<f64> {
        debug_assert_eq!((self.from, self.to, self.counts.len()), (other.from, other.to, other.counts.len()));
        let (own, others) = (self.total() as f64, other.total() as f64);
        if own == 0.0 || others == 0.0 {
            return None;
        }
        // What a bin adds to the divergence of one from the mean of both.
        let part = |share: f64, other: f64| if share > 0.0 { 0.5 * share * (2.0 * share / (share + other)).ln() } else { 0.0 };
        let shares = self.bins().zip(other.bins()).map(|((.., one), (.., two))| (one as f64 / own, two as f64 / others));
        Some(shares.map(|(one, two)| part(one, two) + part(two, one)).sum::<f64>().max(0.0))
    }

    /// The ends and the count of each bin; open ends (`None`) are those of the values outside the range.
    pub fn bins(&self) -> impl Iterator<Item = (Option<f64>, Option<f64>, u64)> {
        let bins = self.counts.len();
        let end = move |bin: usize| Some(self.from + (self.to - self.from) * bin as f64 / bins as f64);
        let inside = self.counts.iter().enumerate().map(move |(bin, &count)| (end(bin), end(bin + 1), count));
        [(None, end(0), self.below)].into_iter().chain(inside).chain([(end(bins), None, self.above)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_falls_into_its_bin() {
        let mut histogram = Histogram::new(0.0, 1.0, 4);
        [-0.1, 0.0, 0.24, 0.25, 0.99, 1.0, 1.01, 2.0].into_iter().for_each(|value| histogram.add(value));
        assert_eq!(histogram.counts(), [2, 1, 0, 2]);
        assert_eq!((histogram.below(), histogram.above(), histogram.total()), (1, 2, 8));
        let bins: Vec<_> = histogram.bins().collect();
        assert_eq!(bins.len(), 6);
        assert_eq!(bins[0], (None, Some(0.0), 1));
        assert_eq!(bins[2], (Some(0.25), Some(0.5), 1));
        assert_eq!(bins[5], (Some(1.0), None, 2));
    }

    #[test]
    fn divergences_are_those_of_shares() {
        let of = |values: &[f64]| {
            let mut histogram = Histogram::new(0.0, 1.0, 2);
            values.iter().for_each(|value| histogram.add(*value));
            histogram
        };
        let half = of(&[0.2, 0.8]);
        assert_eq!(half.divergence(&of(&[0.1, 0.9, 0.3, 0.7])), Some(0.0), "counts differ, shares do not");
        let apart = of(&[0.2]).divergence(&of(&[0.8, 2.0])).unwrap();
        assert!((apart - 2_f64.ln()).abs() < 1e-12, "{apart}");
        // Shares of 1/2, 1/2 and 1, 0 have the mean 3/4, 1/4.
        let expected = 0.5 * (0.5 * (2.0_f64 / 3.0).ln() + 0.5 * 2_f64.ln() + (4.0_f64 / 3.0).ln());
        let found = half.divergence(&of(&[0.3])).unwrap();
        assert!((found - expected).abs() < 1e-12 && (of(&[0.3]).divergence(&half).unwrap() - found).abs() < 1e-12, "{found}");
        assert_eq!(half.divergence(&of(&[])), None);
    }

    #[test]
    fn merging_adds_counts() {
        let mut one = Histogram::new(-8.0, 0.0, 2);
        let mut two = one.clone();
        [-9.0, -5.0].into_iter().for_each(|value| one.add(value));
        [-5.0, -1.0, 1.0].into_iter().for_each(|value| two.add(value));
        one.merge(&two);
        assert_eq!((one.counts(), one.below(), one.above()), ([2, 1].as_slice(), 1, 1));
    }
}
