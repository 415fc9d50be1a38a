//! Attention sinks among the keys of a call: for them, a query stands at its index in a cache (Xiao et al. 2023, section 3.2).
//!
//! Distances to all other keys in the cache equal those in the sequence. So scores have two parts: those of the sinks, with shifted query positions, and those
//! of all other keys. The sink part is a product of thin factors, whose key factor has one channel per sink.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use crate::contract::visibility::Span;
use crate::contract::{Positions, SinkCache};
use crate::engine::LogitTerms;

/// Sinks among the keys of a span, and the query positions relative to them.
#[derive(Clone, Debug)]
pub(crate) struct SinkColumns {
    cache: SinkCache,
    span: Span,
    /// Left padding of each batch row, or of all.
    counts: Vec<usize>,
}

impl SinkColumns {
    /// Sinks of a span, unless all queries stand relative to them as in the sequence.
    pub(crate) fn new(cache: SinkCache, span: Span, positions: &Positions) -> Option<Self> {
        let counts = positions.left_padding.as_deref().unwrap_or(&[0]).to_vec();
        let last = span.query_start + span.queries - 1;
        let stands_elsewhere = |&count: &usize| last >= count && cache.index(last - count) < last - count;
        let has_sinks = |&count: &usize| span.key_start < count + cache.sinks;
        (counts.iter().any(stands_elsewhere) && counts.iter().any(has_sinks)).then_some(Self { cache, span, counts })
    }

    /// The cache.
    pub(crate) fn cache(&self) -> SinkCache {
        self.cache
    }

    /// Number of distinct batch rows.
    pub(crate) fn rows(&self) -> usize {
        self.counts.len()
    }

    /// Positions of the queries of a batch row, from its first real token on; 0 on padding.
    pub(crate) fn positions(&self, row: usize) -> impl Iterator<Item = usize> {
        let count = self.counts[row];
        (self.span.query_start..self.span.query_start + self.span.queries).map(move |index| index.saturating_sub(count))
    }

    /// Query positions relative to the sinks, including padding, batch row after batch row.
    pub(crate) fn places(&self) -> Vec<usize> {
        let of_row = |row: usize| self.positions(row).map(move |position| self.counts[row] + self.cache.index(position));
        (0..self.rows()).flat_map(of_row).collect()
    }

    /// Indices of the sinks of a batch row among the keys of the span; `None` outside its keys.
    fn indices(&self, row: usize) -> impl Iterator<Item = Option<usize>> {
        let first = self.counts[row];
        let Span { key_start, keys, .. } = self.span;
        (first..first + self.cache.sinks).map(move |sink| sink.checked_sub(key_start).filter(|&index| index < keys))
    }

    /// Keys of the sinks, `[B, G, S, R]` from `[B, G, K, R]`. A sink outside the span is replaced by another key.
    pub(crate) fn sinks(&self, keys: Tensor<4>) -> Tensor<4> {
        let ([batch, heads, _, width], sinks) = (keys.dims(), self.cache.sinks);
        let indices = (0..self.rows()).flat_map(|row| self.indices(row)).map(|index| index.unwrap_or(0) as i32).collect();
        let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [self.rows() * sinks]), &keys.device());
        if self.rows() == 1 {
            return keys.select(2, indices);
        }
        keys.gather(2, indices.reshape([batch, 1, sinks, 1]).expand([batch, heads, sinks, width]))
    }

    /// 1 where a key is a sink, `[B|1, 1, K, S]`.
    fn choice(&self, device: &Device, dtype: DType) -> Tensor<4> {
        let ([rows, keys, sinks], mut choice) = ([self.rows(), self.span.keys, self.cache.sinks], Vec::new());
        for row in 0..rows {
            let mut numbers = vec![0f32; keys * sinks];
            self.indices(row).enumerate().for_each(|(sink, index)| {
                if let Some(index) = index {
                    numbers[index * sinks + sink] = 1.0;
                }
            });
            choice.extend(numbers);
        }
        Tensor::from_data(TensorData::new(choice, [rows, 1, keys, sinks]), (device, dtype))
    }

    /// Keys `[B, G, K, R]` with those of sinks set to 0.
    pub(crate) fn others(&self, keys: Tensor<4>) -> Tensor<4> {
        let is_other = self.choice(&keys.device(), keys.dtype()).sum_dim(3).neg() + 1.0;
        keys * is_other
    }

    /// Sink logits that depend on head and cache distance, for queries `[B, H, Q, R]`. They are 0 for all other keys, and where the distance equals that in the
    /// sequence.
    pub(crate) fn biased(&self, queries: &Tensor<4>, bias: impl Fn(usize, usize) -> f32) -> LogitTerms {
        let ([_, heads, length, _], SinkCache { sinks, window }) = (queries.dims(), self.cache);
        let mut biases = Vec::new();
        for (row, head) in (0..self.rows()).flat_map(|row| (0..heads).map(move |head| (row, head))) {
            for position in self.positions(row) {
                let index = self.cache.index(position);
                let of_sink = |sink: usize| if position.abs_diff(sink) < window { 0.0 } else { bias(head, index.abs_diff(sink)) };
                biases.extend((0..sinks).map(of_sink));
            }
        }
        let shape = [self.rows(), heads, length, sinks];
        self.scored(Tensor::from_data(TensorData::new(biases, shape), (&queries.device(), queries.dtype())))
    }

    /// Sink logits, `[B|1, H, Q, S]`; those of all other keys are 0.
    pub(crate) fn scored(&self, scores: Tensor<4>) -> LogitTerms {
        let choice = self.choice(&scores.device(), scores.dtype());
        LogitTerms::content(scores, choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::read::read;

    const CACHE: SinkCache = SinkCache { sinks: 2, window: 3 };

    fn span(query_start: usize, queries: usize, key_start: usize, keys: usize) -> Span {
        Span { query_start, queries, key_start, keys }
    }

    fn numbers(x: Tensor<4>) -> Vec<f32> {
        read(x).try_to_vec().unwrap()
    }

    #[test]
    fn queries_stand_at_the_end_of_a_full_cache() {
        let plain = Positions::default();
        let columns = SinkColumns::new(CACHE, span(2, 5, 0, 7), &plain).unwrap();
        assert_eq!(columns.places(), [2, 3, 4, 4, 4]);
        let padded = plain.with_left_padding([0, 3]);
        let columns = SinkColumns::new(CACHE, span(2, 5, 0, 7), &padded).unwrap();
        assert_eq!(columns.places(), [2, 3, 4, 4, 4, 3, 3, 4, 5, 6]);
    }

    #[test]
    fn without_moved_queries_or_sinks_there_are_no_columns() {
        let plain = Positions::default();
        assert!(SinkColumns::new(CACHE, span(0, 5, 0, 5), &plain).is_none(), "the cache is just full");
        assert!(SinkColumns::new(CACHE, span(0, 6, 0, 6), &plain).is_some());
        assert!(SinkColumns::new(CACHE, span(0, 6, 0, 6), &plain.clone().with_left_padding([1, 2])).is_none());
        assert!(SinkColumns::new(CACHE, span(9, 1, 2, 8), &plain).is_none(), "the keys begin behind the sinks");
    }

    #[test]
    fn sinks_are_the_first_real_keys_of_each_row() {
        let keys = Tensor::<4>::from_data([[[[1.0], [2.0], [3.0], [4.0]]], [[[5.0], [6.0], [7.0], [8.0]]]], &Device::flex());
        let columns = SinkColumns::new(CACHE, span(9, 1, 0, 4), &Positions::default().with_left_padding([0, 1])).unwrap();
        assert_eq!(numbers(columns.sinks(keys.clone())), [1.0, 2.0, 6.0, 7.0]);
        assert_eq!(numbers(columns.others(keys.clone())), [0.0, 0.0, 3.0, 4.0, 5.0, 0.0, 0.0, 8.0]);
        let columns = SinkColumns::new(CACHE, span(9, 1, 0, 4), &Positions::default()).unwrap();
        assert_eq!(numbers(columns.sinks(keys)), [1.0, 2.0, 5.0, 6.0]);
    }

    #[test]
    fn scores_are_those_of_sinks_in_the_span() {
        let columns = SinkColumns::new(CACHE, span(9, 1, 1, 3), &Positions::default()).unwrap();
        let scores = Tensor::<4>::from_data([[[[10.0, 20.0]]]], &Device::flex());
        let found = crate::engine::reference::logits(columns.scored(scores), 3);
        assert_eq!(numbers(found), [20.0, 0.0, 0.0]);
    }
}
