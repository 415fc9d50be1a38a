//! Statistics of attention weights, spans, buckets, gates and halting steps.
//!
//! A row of weights `w` of a query at position `i` has, with `p_j = w_j / sum_j w_j`, the entropy `-sum p_j ln p_j` (in nats; divided by `ln` of the number of
//! visible keys: relative), the distance `sum p_j |i - j|` (in tokens) and shares `p_j` of single keys. A key is visible if its weight is not 0: masks, windows
//! and spans give exactly 0 (and so does a softmax whose weight is too small for single precision). Rows in which no key is visible are left out. Distance and
//! the shares of neighbours exist for self-attention alone, a share only for queries that have such a neighbour, the relative entropy only for rows with two
//! visible keys.
//!
//! Every query of every text counts once. Histograms of weights at initialisation and after training: Tay et al., "Synthesizer" (2005.00743), qualitative
//! analysis; hidden keys are not in them.

use std::collections::BTreeMap;

use super::histogram::Histogram;
use super::image::ImageDistances;
use super::record::{Kind, Observed, State};
use crate::session::experiment::seen_image::SeenImage;

/// An arithmetic mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    pub(super) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// The mean, if there are values.
    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Mean, least and greatest of values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extent {
    /// The mean.
    pub mean: Mean,
    /// The least value; 0 without values.
    pub least: f64,
    /// The greatest value; 0 without values.
    pub greatest: f64,
}

impl Extent {
    fn add(&mut self, value: f64) {
        let is_first = self.mean.count == 0;
        self.least = if is_first { value } else { self.least.min(value) };
        self.greatest = if is_first { value } else { self.greatest.max(value) };
        self.mean.add(value);
    }
}

/// Statistics of the weights of a head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadStatistics {
    /// Sum of a row: 1 for a softmax.
    pub total: Mean,
    /// Entropy of a row, in nats.
    pub entropy: Mean,
    /// Entropy of a row as a part of that of equal weights on its visible keys, in `[0, 1]`.
    pub relative_entropy: Mean,
    /// Largest weight of a row.
    pub largest: Mean,
    /// Distance between query and key, in tokens.
    pub distance: Mean,
    /// Share of the query's own token.
    pub itself: Mean,
    /// Share of the token before.
    pub previous: Mean,
    /// Share of the token after.
    pub next: Mean,
    /// Share of the first key or slot.
    pub first: Mean,
    /// Number of weights that are 0.
    pub hidden: u64,
    /// Histogram of the weights that are not 0.
    pub weights: Histogram,
    /// Histogram of their decimal logarithms.
    pub logarithms: Histogram,
}

impl Default for HeadStatistics {
    fn default() -> Self {
        let mean = Mean::default;
        Self {
            total: mean(),
            entropy: mean(),
            relative_entropy: mean(),
            largest: mean(),
            distance: mean(),
            itself: mean(),
            previous: mean(),
            next: mean(),
            first: mean(),
            hidden: 0,
            weights: Histogram::new(0.0, 1.0, 50),
            logarithms: Histogram::new(-8.0, 0.0, 40),
        }
    }
}

impl HeadStatistics {
    /// Adds the weights of a query, at `position` of the keys if it is one of them.
    fn add(&mut self, row: &[f32], position: Option<usize>) {
        let total: f64 = row.iter().map(|&weight| f64::from(weight)).sum();
        let visible = row.iter().filter(|&&weight| weight > 0.0);
        self.hidden += (row.len() - visible.clone().count()) as u64;
        if total == 0.0 {
            return;
        }
        let (mut entropy, mut count) = (0.0, 0);
        for &weight in visible {
            self.weights.add(f64::from(weight));
            self.logarithms.add(f64::from(weight).log10());
            let share = f64::from(weight) / total;
            entropy -= share * share.ln();
            count += 1;
        }
        self.total.add(total);
        self.entropy.add(entropy);
        if count > 1 {
            self.relative_entropy.add(entropy / f64::from(count).ln());
        }
        self.largest.add(f64::from(row.iter().copied().fold(0.0, f32::max)));
        let share = |key: usize| row.get(key).map(|&weight| f64::from(weight) / total);
        share(0).into_iter().for_each(|share| self.first.add(share));
        let Some(position) = position else { return };
        self.distance.add(row.iter().enumerate().map(|(key, &weight)| f64::from(weight) / total * position.abs_diff(key) as f64).sum());
        share(position).into_iter().for_each(|share| self.itself.add(share));
        position.checked_sub(1).and_then(share).into_iter().for_each(|share| self.previous.add(share));
        share(position + 1).into_iter().for_each(|share| self.next.add(share));
    }
}

/// How the hash of a head sorts positions into buckets. Each round of each text counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BucketStatistics {
    /// Number of buckets that hold a position.
    pub used: Mean,
    /// Positions in such a bucket; each bucket counts once.
    pub size: Mean,
    /// Positions in the fullest bucket.
    pub largest: Mean,
    /// Share of the pairs of positions that are in one bucket.
    pub together: Mean,
    /// Agreement of rounds: of the pairs of positions that one of two rounds puts into one bucket, the share that both do; over all pairs of rounds.
    pub agreement: Mean,
}

impl BucketStatistics {
    /// Adds the buckets `[rounds, positions]` of a text.
    fn add(&mut self, buckets: &[f32], positions: usize) {
        let rounds: Vec<&[f32]> = buckets.chunks_exact(positions).collect();
        let mut met = Vec::new();
        for round in &rounds {
            let sizes = sizes(round.iter().map(|&bucket| bucket as u64));
            self.used.add(sizes.len() as f64);
            sizes.iter().for_each(|&size| self.size.add(size as f64));
            self.largest.add(sizes.iter().copied().max().unwrap_or(0) as f64);
            if positions > 1 {
                self.together.add(pairs(&sizes) / pairs(&[positions]));
            }
            met.push(pairs(&sizes));
        }
        for (later, round) in rounds.iter().enumerate() {
            for (earlier, other) in rounds[..later].iter().enumerate() {
                let both = pairs(&sizes(round.iter().zip(*other).map(|(&one, &two)| (one as u64) << 32 | two as u64)));
                let either = met[later] + met[earlier] - both;
                if either > 0.0 {
                    self.agreement.add(both / either);
                }
            }
        }
    }
}

/// How many positions each bucket holds that holds any.
fn sizes(buckets: impl Iterator<Item = u64>) -> Vec<usize> {
    let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
    buckets.for_each(|bucket| *sizes.entry(bucket).or_default() += 1);
    sizes.into_values().collect()
}

/// Pairs of positions that share a bucket.
fn pairs(sizes: &[usize]) -> f64 {
    sizes.iter().map(|&size| size as f64 * (size as f64 - 1.0) / 2.0).sum()
}

/// How far a gate is open, over channels, positions and texts.
#[derive(Clone, Debug, PartialEq)]
pub struct GateStatistics {
    mean: Mean,
    squares: f64,
    /// Histogram of all openings.
    pub openings: Histogram,
}

impl Default for GateStatistics {
    fn default() -> Self {
        Self { mean: Mean::default(), squares: 0.0, openings: Histogram::new(0.0, 1.0, 20) }
    }
}

impl GateStatistics {
    fn add(&mut self, opening: f64) {
        self.mean.add(opening);
        self.squares += opening * opening;
        self.openings.add(opening);
    }

    /// The mean opening.
    pub fn mean(&self) -> Mean {
        self.mean
    }

    /// The standard deviation (divisor `n`) of the openings.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean.value()?;
        Some((self.squares / self.mean.count as f64 - mean * mean).max(0.0).sqrt())
    }
}

/// Where a statistic is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// When the model was observed.
    pub state: State,
    /// What was observed.
    pub kind: Kind,
    /// Path of the module.
    pub module: String,
    /// The head, counted from 0; 0 for what has no heads.
    pub head: usize,
}

/// Statistics by their place, in the order of the forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Places<T>(Vec<(Place, T)>);

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> Places<T> {
    fn of(&mut self, place: Place) -> &mut T {
        let at = self.0.iter().position(|(known, _)| *known == place).unwrap_or_else(|| {
            self.0.push((place, T::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl<T> Places<T> {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &T)> {
        self.0.iter().map(|(place, statistic)| (place, statistic))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The statistic of a head.
    pub fn get(&self, state: State, module: &str, head: usize) -> Option<&T> {
        self.iter().find(|(place, _)| place.state == state && place.module == module && place.head == head).map(|(_, statistic)| statistic)
    }

    /// The modules, each once.
    pub fn modules(&self) -> Vec<&str> {
        let mut modules: Vec<&str> = Vec::new();
        for (place, _) in self.iter() {
            if !modules.contains(&place.module.as_str()) {
                modules.push(&place.module);
            }
        }
        modules
    }

    /// The number of heads of a module.
    pub fn heads(&self, module: &str) -> usize {
        self.iter().filter(|(place, _)| place.module == module).map(|(place, _)| place.head + 1).max().unwrap_or(0)
    }
}

/// Statistics of all observations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Statistics of weights and slot weights.
    pub heads: Places<HeadStatistics>,
    /// Statistics of spans, in positions.
    pub spans: Places<Extent>,
    /// Statistics of buckets.
    pub buckets: Places<BucketStatistics>,
    /// Statistics of gates.
    pub gates: Places<GateStatistics>,
    /// Statistics of halting steps.
    pub halting: Places<Extent>,
    /// Statistics of weights between the elements of images.
    pub image: Places<ImageDistances>,
}

impl Statistics {
    /// How far the weights of each head have moved since the beginning: the divergence, in nats, between their histograms after training and at initialisation,
    /// by the place of the former. Heads that were observed in only one of the two states have none.
    pub fn divergences(&self) -> Vec<(&Place, f64)> {
        let trained = self.heads.iter().filter(|(place, _)| place.state == State::Trained);
        let divergence = |place: &Place, head: &HeadStatistics| {
            let beginning = Place { state: State::Initial, ..place.clone() };
            let (_, before) = self.heads.iter().find(|(other, _)| **other == beginning)?;
            head.weights.divergence(&before.weights)
        };
        trained.filter_map(|(place, head)| Some((place, divergence(place, head)?))).collect()
    }

    /// Adds the distances of weights within an image.
    pub(super) fn add_distances(&mut self, image: &SeenImage, observed: &Observed) {
        for (head, weights) in observed.heads() {
            let place = Place { state: observed.state, kind: observed.kind, module: observed.module.clone(), head };
            image.add_distances(weights, self.image.of(place));
        }
    }

    /// Adds a checked observation.
    pub(super) fn add(&mut self, observed: &Observed) {
        let place = |head: usize| Place { state: observed.state, kind: observed.kind, module: observed.module.clone(), head };
        let values = || observed.values.iter().map(|&value| f64::from(value));
        match observed.kind {
            Kind::Weights | Kind::SlotWeights => {
                let start = observed.query_start.filter(|_| observed.kind == Kind::Weights);
                for (head, weights) in observed.heads() {
                    let statistics = self.heads.of(place(head));
                    for (query, row) in weights.chunks_exact(observed.width()).enumerate() {
                        statistics.add(row, start.map(|start| start + query));
                    }
                }
            }
            Kind::Spans => {
                for (head, spans) in observed.heads() {
                    let extent = self.spans.of(place(head));
                    spans.iter().for_each(|&span| extent.add(f64::from(span)));
                }
            }
            Kind::Buckets => observed.heads().for_each(|(head, buckets)| self.buckets.of(place(head)).add(buckets, observed.width())),
            Kind::Gate => {
                let gate = self.gates.of(place(0));
                values().for_each(|opening| gate.add(opening));
            }
            Kind::HaltingSteps => {
                let extent = self.halting.of(place(0));
                values().for_each(|steps| extent.add(steps));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::record::tests::{observed, tokens};

    fn statistics(observations: &[Observed]) -> Statistics {
        let mut statistics = Statistics::default();
        for observed in observations {
            observed.check().unwrap();
            statistics.add(observed);
        }
        statistics
    }

    fn head(observed: &Observed, head: usize) -> HeadStatistics {
        statistics(std::slice::from_ref(observed)).heads.get(observed.state, &observed.module, head).unwrap().clone()
    }

    fn assert_near(mean: Mean, expected: f64) {
        let value = mean.value().unwrap();
        assert!((value - expected).abs() < 1e-7, "{value} instead of {expected}");
    }

    #[test]
    fn equal_weights_have_the_entropy_of_a_uniform_distribution() {
        let uniform = head(&observed(Kind::Weights, "a b c d", &[1, 4, 4], &[0.25; 16]), 0);
        assert_near(uniform.entropy, 4_f64.ln());
        assert_near(uniform.relative_entropy, 1.0);
        assert_near(uniform.largest, 0.25);
        // Distances to the four keys add up to 6, 4, 4 and 6.
        assert_near(uniform.distance, 20.0 / 16.0);
        for share in [uniform.itself, uniform.previous, uniform.next, uniform.first] {
            assert_near(share, 0.25);
        }
        assert_eq!((uniform.itself.count(), uniform.previous.count(), uniform.next.count(), uniform.hidden), (4, 3, 3, 0));
    }

    #[test]
    fn a_head_that_looks_at_its_own_token_has_no_entropy_and_no_distance() {
        let identity = head(&observed(Kind::Weights, "a b", &[1, 2, 2], &[1.0, 0.0, 0.0, 1.0]), 0);
        assert_near(identity.entropy, 0.0);
        assert_eq!(identity.relative_entropy.value(), None, "a single visible key leaves no choice");
        assert_near(identity.distance, 0.0);
        assert_near(identity.itself, 1.0);
        assert_near(identity.previous, 0.0);
        assert_near(identity.next, 0.0);
        assert_near(identity.first, 0.5);
        assert_eq!(identity.hidden, 2);
    }

    #[test]
    fn a_head_that_looks_at_the_token_before_has_distance_1() {
        let weights = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        let previous = head(&observed(Kind::Weights, "a b c", &[1, 3, 3], &weights), 0);
        assert_near(previous.previous, 1.0);
        assert_near(previous.itself, 1.0 / 3.0);
        assert_near(previous.distance, 2.0 / 3.0);
        assert_near(previous.first, 2.0 / 3.0);
        assert_near(previous.next, 0.0);
    }

    #[test]
    fn hidden_keys_do_not_count_in_the_relative_entropy() {
        let weights = [1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.5, 0.25, 0.25];
        let causal = head(&observed(Kind::Weights, "a b c", &[1, 3, 3], &weights), 0);
        let last = 1.5 * 2_f64.ln();
        assert_near(causal.entropy, (2_f64.ln() + last) / 3.0);
        assert_near(causal.relative_entropy, (1.0 + last / 3_f64.ln()) / 2.0);
        assert_eq!(causal.relative_entropy.count(), 2);
        assert_near(causal.largest, 2.0 / 3.0);
        assert_near(causal.distance, (0.5 + 1.25) / 3.0);
        assert_near(causal.first, 2.0 / 3.0);
        assert_eq!((causal.hidden, causal.weights.total(), causal.logarithms.total()), (3, 6, 6));
    }

    #[test]
    fn rows_are_shares_of_their_sum_and_empty_rows_are_left_out() {
        let weights = [3.0, 1.0, 0.0, 0.0];
        let density = head(&observed(Kind::Weights, "a b", &[1, 2, 2], &weights), 0);
        assert_near(density.total, 4.0);
        assert_near(density.itself, 0.75);
        assert_near(density.distance, 0.25);
        assert_near(density.largest, 3.0);
        assert_eq!((density.total.count(), density.hidden), (1, 2));
        assert_eq!(density.weights.above(), 1);
    }

    #[test]
    fn queries_behind_a_memory_stand_at_their_own_keys() {
        let mut behind = observed(Kind::Weights, "m a b", &[1, 2, 3], &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        behind.queries = tokens("a b");
        behind.query_start = Some(1);
        let behind = head(&behind, 0);
        assert_near(behind.itself, 0.5);
        assert_near(behind.distance, 1.0);
    }

    #[test]
    fn attention_to_another_text_and_to_slots_has_no_distances() {
        let mut cross = observed(Kind::Weights, "a b", &[1, 2, 2], &[0.5, 0.5, 1.0, 0.0]);
        cross.query_start = None;
        let slots = observed(Kind::SlotWeights, "a b", &[1, 2, 2], &[0.5, 0.5, 1.0, 0.0]);
        for observed in [cross, slots] {
            let head = head(&observed, 0);
            assert_near(head.first, 0.75);
            assert_near(head.entropy, 2_f64.ln() / 2.0);
            assert_eq!([head.distance, head.itself, head.previous, head.next], [Mean::default(); 4]);
        }
    }

    #[test]
    fn heads_modules_and_states_are_kept_apart_and_texts_added_up() {
        let one = observed(Kind::Weights, "a", &[2, 1, 1], &[1.0, 0.5]);
        let other = Observed { module: "decoder".into(), ..one.clone() };
        let before = Observed { state: State::Initial, ..one.clone() };
        let statistics = statistics(&[one.clone(), other, before, Observed { text: 1, ..one }]);
        let heads = &statistics.heads;
        assert_eq!(heads.modules(), ["encoder.layers.0.self_attention", "decoder"]);
        assert_eq!(heads.iter().count(), 6);
        assert_eq!(heads.heads("decoder"), 2);
        let second = heads.get(State::Trained, "encoder.layers.0.self_attention", 1).unwrap();
        assert_near(second.total, 0.5);
        assert_eq!(second.total.count(), 2);
        assert_eq!(heads.get(State::Initial, "decoder", 0), None);
    }

    #[test]
    fn heads_diverge_from_what_they_were_at_the_beginning() {
        let after = observed(Kind::Weights, "a b", &[2, 2, 2], &[0.5, 0.5, 0.5, 0.5, 0.9, 0.1, 0.1, 0.9]);
        let before = Observed { state: State::Initial, values: vec![0.5; 8], ..after.clone() };
        let alone = Observed { module: "decoder".into(), ..after.clone() };
        let statistics = statistics(&[before, after, alone]);
        let found: Vec<(&str, usize, f64)> =
            statistics.divergences().into_iter().map(|(place, divergence)| (place.module.as_str(), place.head, divergence)).collect();
        let module = "encoder.layers.0.self_attention";
        assert_eq!(found, [(module, 0, 0.0), (module, 1, found[1].2)]);
        assert!((found[1].2 - 2_f64.ln()).abs() < 1e-12, "the second head has no weight of a half any more: {found:?}");
    }

    #[test]
    fn spans_steps_and_gates_have_mean_and_extremes() {
        let spans = observed(Kind::Spans, "a b", &[2, 2], &[1.0, 4.0, 7.0, 7.0]);
        let steps = observed(Kind::HaltingSteps, "a b c", &[3], &[3.0, 2.0, 4.0]);
        let gate = observed(Kind::Gate, "a b", &[2, 2], &[0.25, 0.25, 0.75, 0.75]);
        let statistics = statistics(&[spans, steps, gate]);
        let extents: Vec<_> = statistics.spans.iter().chain(statistics.halting.iter()).map(|(_, extent)| *extent).collect();
        assert_eq!(extents.iter().map(|extent| extent.mean.value().unwrap()).collect::<Vec<_>>(), [2.5, 7.0, 3.0]);
        assert_eq!(extents.iter().map(|extent| (extent.least, extent.greatest)).collect::<Vec<_>>(), [(1.0, 4.0), (7.0, 7.0), (2.0, 4.0)]);
        let (_, gate) = statistics.gates.iter().next().unwrap();
        assert_eq!((gate.mean().value(), gate.deviation()), (Some(0.5), Some(0.25)));
        assert_eq!(gate.openings.counts()[5], 2);
    }

    #[test]
    fn buckets_are_counted_and_rounds_compared() {
        // First round: {0, 1, 2} and {3}; second: {0, 1} and {2, 3}; the pair 0, 1 is in both.
        let buckets = observed(Kind::Buckets, "a b c d", &[1, 2, 4], &[5.0, 5.0, 5.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
        let statistics = statistics(&[buckets]);
        let (_, buckets) = statistics.buckets.iter().next().unwrap();
        assert_near(buckets.used, 2.0);
        assert_near(buckets.size, 2.0);
        assert_near(buckets.largest, 2.5);
        assert_near(buckets.together, (3.0 / 6.0 + 2.0 / 6.0) / 2.0);
        assert_near(buckets.agreement, 1.0 / 4.0);
        assert_eq!((buckets.used.count(), buckets.size.count(), buckets.agreement.count()), (2, 4, 1));
    }

    #[test]
    fn a_single_position_or_round_has_no_pairs() {
        let statistics =
            statistics(&[observed(Kind::Buckets, "a", &[1, 2, 1], &[3.0, 3.0]), observed(Kind::Buckets, "a b", &[2, 1, 2], &[0.0; 4])]);
        let (_, first) = statistics.buckets.iter().next().unwrap();
        assert_eq!((first.together.value(), first.agreement.value(), first.used.value()), (Some(1.0), None, Some(1.0)));
        let (_, second) = statistics.buckets.iter().nth(1).unwrap();
        assert_eq!((second.together.count(), second.agreement.value()), (1, None));
    }
}
