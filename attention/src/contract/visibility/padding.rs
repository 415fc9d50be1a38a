//! Visibilities whose construction determines them: causal visibility over the real positions, as in recurrences, and others whose visible keys per row form a
//! range.

use std::ops::Range;
use std::sync::Arc;

use super::{Rule, Span, Visibility};

/// Key range of each row, and whether later keys are hidden, as determined by construction.
struct Ranges {
    is_causal: bool,
    /// One range per row, or one for all rows.
    rows: Vec<Range<usize>>,
}

impl Ranges {
    fn of(visibility: &Visibility) -> Option<Self> {
        let everything = 0..usize::MAX;
        let of_rows = |rows: Vec<Range<usize>>| Some(Self { is_causal: false, rows });
        match &*visibility.rule {
            Rule::All => of_rows(vec![everything]),
            Rule::Causal => Some(Self { is_causal: true, rows: vec![everything] }),
            Rule::Padding(lengths) => of_rows(lengths.iter().map(|&length| 0..length).collect()),
            Rule::LeftPadding(counts) => of_rows(counts.iter().map(|&count| count..usize::MAX).collect()),
            Rule::And(a, b) => {
                let (a, b) = (Self::of(a)?, Self::of(b)?);
                let rows = a.rows.len().max(b.rows.len());
                let row = |of: &[Range<usize>], row: usize| of[if of.len() == 1 { 0 } else { row }].clone();
                let joint = |index| {
                    let (a, b) = (row(&a.rows, index), row(&b.rows, index));
                    a.start.max(b.start)..a.end.min(b.end)
                };
                Some(Self { is_causal: a.is_causal || b.is_causal, rows: (0..rows).map(joint).collect() })
            }
            Rule::Shifted { inner, counts } => {
                let inner = Self::of(inner)?;
                let shifted = |(row, &count): (usize, &usize)| {
                    let range = &inner.rows[if inner.rows.len() == 1 { 0 } else { row }];
                    range.start.saturating_add(count)..range.end.saturating_add(count)
                };
                Some(Self { is_causal: inner.is_causal, rows: counts.iter().enumerate().map(shifted).collect() })
            }
            _ => None,
        }
    }
}

/// Visible keys per row, for queries that see all of them or all of them up to themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowKeys {
    /// Whether no query sees later keys.
    pub is_causal: bool,
    /// Number of distinct batch rows.
    pub rows: usize,
    /// Keys visible to some query, `[rows, keys]`; `None` if all are.
    pub live: Option<Vec<bool>>,
}

impl Visibility {
    /// Keys of a span that starts at the first key, if the construction of the visibility determines them; otherwise `None`.
    pub(crate) fn row_keys(&self, span: Span) -> Option<RowKeys> {
        let Ranges { is_causal, rows } = Ranges::of(self)?;
        // A range does not express that padding before a shifted sequence sees nothing; with a hidden future, padding has no key.
        if !is_causal && self.is_shifted() {
            return None;
        }
        let end = if is_causal { span.query_start + span.queries } else { usize::MAX };
        let live: Vec<bool> = rows.iter().flat_map(|row| (0..span.keys).map(move |key| key < end && row.contains(&key))).collect();
        Some(RowKeys { is_causal, rows: rows.len(), live: live.contains(&false).then_some(live) })
    }

    /// Index from which keys are hidden from every query, for each of `batch` rows, if the construction of the visibility determines it.
    pub(crate) fn key_ends(&self, batch: usize) -> Option<Arc<[usize]>> {
        let Ranges { rows, .. } = Ranges::of(self)?;
        Some((0..batch).map(|row| rows[if rows.len() == 1 { 0 } else { row }].end).collect())
    }

    fn is_shifted(&self) -> bool {
        match &*self.rule {
            Rule::Shifted { .. } => true,
            Rule::And(a, b) | Rule::Or(a, b) => a.is_shifted() || b.is_shifted(),
            _ => false,
        }
    }

    /// Flags `[rows, length]` of real positions, with [`rows`](Self::rows) rows, if each position sees exactly the real positions up to itself in all heads;
    /// otherwise `None`. Recurrences support no other visibility. If the construction does not determine it, every pair of positions is evaluated on the host.
    pub fn real_positions(&self, length: usize, heads: usize) -> Option<Vec<bool>> {
        if let Some(Ranges { is_causal, rows }) = Ranges::of(self) {
            // The first of two real positions sees the second.
            let sees_later = |row: &Range<usize>| row.end.min(length).saturating_sub(row.start) > 1;
            let is_prefix = is_causal || !rows.iter().any(sees_later);
            return is_prefix.then(|| rows.iter().flat_map(|row| (0..length).map(|position| row.contains(&position))).collect());
        }
        let (rows, heads) = (self.rows(), if self.depends_on_head() { heads } else { 1 });
        let seen = self.booleans(Span::whole(length, length), rows, heads);
        let real = |row: usize, position: usize| seen[((row * heads) * length + position) * length + position];
        let is_prefix = |(index, &seen): (usize, &bool)| {
            let (key, query, row) = (index % length, index / length % length, index / (length * length * heads));
            seen == (key <= query && real(row, key))
        };
        let is_prefix = seen.iter().enumerate().all(is_prefix);
        is_prefix.then(|| (0..rows).flat_map(|row| (0..length).map(move |position| real(row, position))).collect())
    }

    /// Flags `[rows, positions]` of real positions in a range, for decoding steps; see [`real_positions`](Self::real_positions). `None` if a position does not
    /// see exactly the real positions up to itself.
    pub fn real_positions_of_step(&self, positions: Range<usize>, heads: usize) -> Option<Vec<bool>> {
        if let Some(Ranges { is_causal: true, rows }) = Ranges::of(self) {
            return Some(rows.iter().flat_map(|row| positions.clone().map(|position| row.contains(&position))).collect());
        }
        let (rows, heads) = (self.rows(), if self.depends_on_head() { heads } else { 1 });
        let real = |row: usize, position: usize| self.is_visible(row, 0, position, position);
        let sees_prefix = |row: usize, head: usize, query: usize| {
            (0..positions.end).all(|key| self.is_visible(row, head, query, key) == (key <= query && real(row, key)))
        };
        let is_prefix = (0..rows).all(|row| (0..heads).all(|head| positions.clone().all(|query| sees_prefix(row, head, query))));
        is_prefix.then(|| (0..rows).flat_map(|row| positions.clone().map(move |position| real(row, position))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An equal visibility whose construction does not determine it.
    fn told_by_pairs(visibility: &Visibility) -> Visibility {
        let told = visibility.clone();
        let booleans = (0..visibility.rows()).map(|row| {
            Visibility::relation({
                let told = told.clone();
                move |i, j| told.is_visible(row, 0, i, j)
            })
        });
        booleans.reduce(Visibility::and).expect("there is a row")
    }

    #[test]
    fn what_is_told_by_the_way_of_making_is_what_all_pairs_tell() {
        let counts = |counts: &[usize]| counts.to_vec();
        let visibilities = [
            Visibility::causal(),
            Visibility::causal().and(Visibility::padding(counts(&[3]))),
            Visibility::left_padding(counts(&[2])).and(Visibility::all()).and(Visibility::causal()),
            Visibility::causal().and(Visibility::padding(counts(&[4]))).shifted(vec![1].into()),
            Visibility::all().shifted(vec![6].into()).and(Visibility::causal()),
        ];
        for visibility in visibilities {
            let pairs = told_by_pairs(&visibility);
            assert_eq!(visibility.real_positions(5, 2), pairs.real_positions(5, 2), "{visibility:?}");
            assert!(visibility.real_positions(5, 2).is_some(), "{visibility:?}");
            for step in [0..1, 2..4, 4..5] {
                let expected = visibility.real_positions(5, 2).map(|real| real[step.clone()].to_vec());
                assert_eq!(visibility.real_positions_of_step(step.clone(), 2), expected, "{visibility:?}, {step:?}");
                assert_eq!(pairs.real_positions_of_step(step.clone(), 2), expected, "{visibility:?}, {step:?}, by pairs");
            }
        }
    }

    #[test]
    fn keys_of_rows_show_what_single_pairs_show() {
        let padding = || Visibility::padding(vec![6, 3]);
        let shifted = |inner: Visibility| inner.shifted(vec![2, 0].into());
        let told = [
            Visibility::all(),
            Visibility::causal(),
            padding(),
            padding().and(Visibility::causal()),
            Visibility::left_padding(vec![0, 4]),
            shifted(Visibility::causal()),
            shifted(padding()).and(Visibility::causal()),
        ];
        for visibility in told {
            for span in [Span::whole(6, 6), Span { query_start: 3, queries: 2, key_start: 0, keys: 6 }] {
                let RowKeys { is_causal, rows, live } = visibility.row_keys(span).expect("the way tells it");
                assert_eq!(rows, visibility.rows());
                let queries = || span.query_start..span.query_start + span.queries;
                for (row, key) in (0..rows).flat_map(|row| (0..6).map(move |key| (row, key))) {
                    let is_live = live.as_ref().is_none_or(|live| live[row * 6 + key]);
                    assert_eq!(
                        is_live,
                        queries().any(|query| visibility.is_visible(row, 0, query, key)),
                        "{visibility:?}, {span:?}: key {key}"
                    );
                    for query in queries() {
                        let sees = is_live && (!is_causal || key <= query);
                        assert_eq!(
                            sees,
                            visibility.is_visible(row, 0, query, key),
                            "{visibility:?}, {span:?}: {query} and {key} of row {row}"
                        );
                    }
                }
            }
        }
        for other in [shifted(Visibility::all()), shifted(padding()), Visibility::window(1, 0), Visibility::relation(|i, j| j < i)] {
            assert_eq!(other.row_keys(Span::whole(6, 6)), None, "{other:?}");
        }
    }

    #[test]
    fn keys_end_where_none_is_seen_any_more() {
        let padding = Visibility::padding(vec![6, 3]);
        assert_eq!(padding.key_ends(2).as_deref(), Some(&[6, 3][..]));
        assert_eq!(padding.and(Visibility::causal()).key_ends(2).as_deref(), Some(&[6, 3][..]));
        assert_eq!(Visibility::all().key_ends(2).as_deref(), Some(&[usize::MAX; 2][..]));
        assert_eq!(Visibility::window(1, 0).key_ends(2), None);
    }

    #[test]
    fn rows_have_their_own_real_positions() {
        let visibility = Visibility::padding(vec![1, 3]).and(Visibility::causal());
        assert_eq!(visibility.real_positions(3, 1), Some(vec![true, false, false, true, true, true]));
        assert_eq!(visibility.real_positions_of_step(1..2, 1), Some(vec![false, true]));
    }

    #[test]
    fn what_no_recurrence_sees_has_no_real_positions() {
        for other in [
            Visibility::all(),
            Visibility::window(1, 0),
            Visibility::relation(|i, j| j < i),
            Visibility::pattern(|h, i, j| j <= i && h == 0),
        ] {
            assert_eq!(other.real_positions(4, 2), None, "{other:?}");
        }
        assert_eq!(Visibility::all().real_positions(3, 1), None);
        assert_eq!(Visibility::all().real_positions(1, 1), Some(vec![true]));
        assert_eq!(Visibility::padding(vec![1, 0]).real_positions(2, 1), Some(vec![true, false, false, false]));
        assert_eq!(Visibility::padding(vec![1, 2]).real_positions(2, 1), None);
        assert_eq!(Visibility::window(1, 0).real_positions_of_step(3..4, 1), None);
        assert_eq!(Visibility::window(1, 0).real_positions_of_step(1..2, 1), Some(vec![true]));
    }
}
