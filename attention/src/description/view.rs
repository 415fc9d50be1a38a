//! Visibility of a case, as the crate's value and as a plain function.

use crate::contract::abilities::Causality;
use crate::contract::layer_spec::Role;
use crate::contract::visibility::Visibility;
use crate::contract::{Attention, AttentionInput, Positions};
use crate::description::Case;

/// Whether (batch row, head, query, key) is visible.
type Visible = dyn Fn(usize, usize, usize, usize) -> bool;

/// Visibility as the crate's value and as a plain function.
pub struct View {
    /// Name in messages.
    pub name: &'static str,
    /// Visibility passed to the attention.
    pub visibility: Visibility,
    /// Whether (batch row, head, query, key) is visible.
    pub visible: Box<Visible>,
    /// Padding elements before the first query of each batch row.
    pub left: Vec<usize>,
}

impl View {
    fn new(name: &'static str, visibility: Visibility, visible: impl Fn(usize, usize, usize, usize) -> bool + 'static) -> Self {
        Self { name, visibility, visible: Box::new(visible), left: Vec::new() }
    }

    /// The input under this view.
    pub fn apply(&self, input: AttentionInput) -> AttentionInput {
        input.visibility(self.visibility.clone()).positions(Positions::default().with_left_padding(self.left.clone()))
    }

    /// Whether an attention supports this view: without a causal form, all queries must see the same keys.
    pub fn suits<A: Attention>(&self, attention: &A, case: &Case, heads: usize) -> bool {
        let seen = |b, h, i| (0..case.keys()).map(|j| (self.visible)(b, h, i, j)).collect::<Vec<_>>();
        attention.abilities().causality != Causality::Impossible
            || (0..case.batch()).all(|b| (0..heads).all(|h| (0..case.length()).all(|i| seen(b, h, i) == seen(b, 0, 0))))
    }

    /// Padding elements before the first query of a batch row.
    pub fn padding(&self, row: usize) -> usize {
        self.left.get(row).copied().unwrap_or(0)
    }
}

/// Views of a batch: full, causal, padded, with empty rows, different per head, left-padded. In a decoder no query sees later positions, although only some of
/// the crate's values declare it.
pub fn views(case: &Case, role: Role) -> Vec<View> {
    let (batch, queries, keys) = (case.batch(), case.length(), case.keys());
    let lengths: Vec<usize> = (0..batch).map(|b| keys.saturating_sub(2 * b)).collect();
    let counts: Vec<usize> = (0..batch).map(|b| (2 * b).min(queries - 1)).collect();
    let padding = Visibility::padding(lengths.clone());
    let seen = lengths.clone();
    let mut views = vec![
        View::new("all", Visibility::all(), |_, _, _, _| true),
        View::new("causal", Visibility::causal(), |_, _, i, j| j <= i),
        View::new("padding", padding.clone(), move |b, _, _, j| j < seen[b]),
        View::new("causal and padding", Visibility::causal().and(padding), move |b, _, i, j| j <= i && j < lengths[b]),
        View::new("by head", Visibility::pattern(|h, i, j| (h + i + 2 * j) % 3 != 0), |_, h, i, j| (h + i + 2 * j) % 3 != 0),
        View::new("strictly before", Visibility::pattern(|_, i, j| j < i), |_, _, i, j| j < i),
    ];
    let hidden = counts.clone();
    if case.memory.is_none() {
        let real = counts.clone();
        let whole = View::new("left padding, whole", Visibility::all().shifted(counts.clone().into()), move |b, _, i, j| {
            i >= real[b] && j >= real[b]
        });
        views.push(View { left: counts.clone(), ..whole });
    }
    let left = if case.memory.is_some() {
        View::new("left padding of queries", Visibility::all(), |_, _, _, _| true)
    } else {
        let visibility = Visibility::causal().and(Visibility::left_padding(counts.clone()));
        View::new("left padding", visibility, move |b, _, i, j| j <= i && j >= hidden[b])
    };
    views.push(View { left: counts, ..left });
    let in_decoder = |view: View| View { visible: Box::new(move |b, h, i, j| j <= i && (view.visible)(b, h, i, j)), ..view };
    if role == Role::Decoder { views.into_iter().map(in_decoder).collect() } else { views }
}
