//! The contract that every mechanism fulfils.

pub mod abilities;
mod check;
pub mod decoding_position;
pub mod engine;
pub mod error;
pub mod init;
pub mod layer_spec;
pub mod mask;
pub mod probe;
mod query_key_pairs;
pub mod random;
mod sink_cache;
pub mod training;
pub mod unit_variant;
pub mod visibility;

pub use self::check::Check;
pub use self::query_key_pairs::QueryKeyPairs;
pub use self::sink_cache::SinkCache;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;
use heedful_random::RandomKey;

use crate::contract::abilities::Abilities;
use crate::contract::decoding_position::DecodingStart;
use crate::contract::engine::Engine;
use crate::contract::probe::Probe;
use crate::contract::visibility::Visibility;

/// A module that mixes positions: scores keys for each query and returns the weighted values.
///
/// A type of a user's own that implements this trait drops into every model of heedful in the place of
/// [`AnyAttention`](crate::description::AnyAttention).
///
/// Dimension letters: `B` batch rows, `Q` queries, `K` keys, `C` = `d_model`.
pub trait Attention: Module + ModuleDisplay + 'static {
    /// What stepwise decoding carries from step to step: where it stands ([`Progress`](crate::contract::decoding_position::Progress)) and what it remembers, bounded by the
    /// capacity that it was made with, and free of gradients.
    type State: Clone + Debug + Send + 'static;

    /// What this mechanism can do.
    fn abilities(&self) -> Abilities;

    /// Attends from all queries of the input to all keys, `[B, Q, C]`. In the place of a decoder's self-attention
    /// ([`LayerSpec::limit`](crate::contract::layer_spec::LayerSpec::limit)) no query sees what comes after it, whatever the input's visibility.
    ///
    /// # Panics
    /// If shapes do not fit or the input is longer than [`Abilities::max_length`].
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput;

    /// A state before the first step. Every step attends to the memory that `start` gives (cross-attention), or else to the steps so far.
    fn state(&self, start: &DecodingStart) -> Self::State;

    /// Attends from the next one or more positions `[B, N, C]`, without dropout, and remembers them. The state knows where they stand and what they see.
    ///
    /// # Panics
    /// If the state's capacity is exceeded.
    fn step(&self, query: Tensor<3>, state: &mut Self::State, probe: &mut Probe) -> AttentionOutput;

    /// Keeps the given batch rows of a state, in the given order: reordering of beams, shrinking of a batch.
    fn select(&self, state: &mut Self::State, rows: &[usize]);

    /// Bytes of the numbers that a state holds between two steps, at 4 bytes a number, room for more apart; `None` (default) if the mechanism does not say.
    fn state_bytes(&self, _state: &Self::State) -> Option<usize> {
        None
    }

    /// This attention with those parameters of an attention in an earlier layer, in the same role, that the mechanism shares among layers. Models call
    /// it for every pair of layers before they are used. Default: nothing is shared.
    ///
    /// A shared parameter keeps its identity ([`ParamId`](burn::module::ParamId)); whoever trains has to treat equal identities as one.
    fn sharing_with(self, _earlier: &Self) -> Self {
        self
    }

    /// What a query may see at most, if the queries of [`forward`](Self::forward) may be any positions of the sequence that they attend to, given as its memory:
    /// what comes out for a query depends on its own content, the memory and the visibility that it is given, and neither on its index nor on other queries. The
    /// visibility is then that of [`Visibility::of_queries`]. Models use it to leave out queries that have no use. Default: `None`, queries follow each other.
    fn any_queries(&self) -> Option<Visibility> {
        None
    }

    /// Multiplications of a forward pass for one sequence that depend on pairs of a query and a key: scores and weighted sums, but no linear maps.
    /// Default: a score and a weighted value for each pair.
    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        pairs.dense() * 2.0 * pairs.d_head()
    }
}

/// Positions of the queries, and where each batch row begins and ends.
///
/// Mechanisms that are tied to absolute positions (synthesizers) need to know at which index a left-padded row begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Index of the first query in the padded sequence.
    pub start: usize,
    /// Number of padding elements before the first real one, per batch row; absent if no row is padded on the left.
    pub left_padding: Option<Arc<[usize]>>,
    /// Index after the last real query, per batch row, if nobody reads what queries give that are padding: an attention may leave these out, and give any finite
    /// numbers for them. Absent (default) if all are computed. It hides no keys: that is for the [`Visibility`].
    pub ends: Option<Arc<[usize]>>,
}

impl Positions {
    /// Positions from `start` on, without left padding.
    pub fn from_start(start: usize) -> Self {
        Self { start, ..Self::default() }
    }

    /// The same positions in a batch whose row `b` begins with `counts[b]` padding elements.
    pub fn with_left_padding(mut self, counts: impl Into<Arc<[usize]>>) -> Self {
        let counts = counts.into();
        self.left_padding = counts.iter().any(|&count| count > 0).then_some(counts);
        self
    }

    /// The same positions in a batch whose row `b` ends before index `ends[b]`, where nobody reads what queries give that are padding.
    pub fn with_ends(mut self, ends: impl Into<Arc<[usize]>>) -> Self {
        self.ends = Some(ends.into());
        self
    }

    /// The positions of queries whose outputs are read, in ranges of the rows `[B N]` of all queries, in ascending order; `None` if all are.
    ///
    /// # Panics
    /// If there is not one end for each batch row.
    pub(crate) fn real_rows(&self, batch: usize, length: usize) -> Option<Vec<Range<usize>>> {
        let ends = self.ends.as_ref()?;
        assert_eq!(ends.len(), batch, "ends of rows of a batch");
        let within = |index: usize| index.saturating_sub(self.start).min(length);
        let rows = ends.iter().enumerate().map(|(row, &end)| {
            let begin = self.left_padding.as_ref().map_or(0, |counts| within(counts[row]));
            row * length + begin..row * length + within(end).max(begin)
        });
        let rows: Vec<Range<usize>> = rows.collect();
        let is_whole = rows.iter().all(|row| row.len() == length);
        (!is_whole).then(|| rows.into_iter().filter(|row| !row.is_empty()).collect())
    }
}

/// Input of [`Attention::forward`].
#[derive(Clone, Debug)]
pub struct AttentionInput {
    /// `[B, Q, C]`.
    pub query: Tensor<3>,
    /// What is attended to, `[B, K, C]`; absent for self-attention within one segment.
    pub memory: Option<Tensor<3>>,
    /// Which keys each query sees.
    pub visibility: Visibility,
    /// Positions of the queries.
    pub positions: Positions,
    /// Key of the random numbers of this call; dropout is on exactly if it is present.
    pub random: Option<RandomKey>,
    /// How it is computed where there is a choice. Without dropout results differ by rounding alone; with it, which weights are dropped may differ too.
    pub engine: Engine,
}

impl AttentionInput {
    /// The sequence attends to itself.
    pub fn self_attention(sequence: Tensor<3>) -> Self {
        Self {
            query: sequence,
            memory: None,
            visibility: Visibility::all(),
            positions: Positions::default(),
            random: None,
            engine: Engine::default(),
        }
    }

    /// The sequence `[B, N, C]` attends to what was carried over from earlier segments, `[B, M, C]`, and to itself. No gradient reaches the carried part.
    /// Indices, of [`Visibility`] too, count from the first carried element on.
    pub fn segment(sequence: Tensor<3>, carried: Tensor<3>) -> Self {
        let positions = Positions::from_start(carried.dims()[1]);
        let memory = Tensor::cat(vec![carried.detach(), sequence.clone()], 1);
        Self { memory: Some(memory), positions, ..Self::self_attention(sequence) }
    }

    /// The queries attend to another sequence.
    pub fn cross_attention(query: Tensor<3>, memory: Tensor<3>) -> Self {
        Self { memory: Some(memory), ..Self::self_attention(query) }
    }

    /// Sets which keys each query sees.
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// Sets the positions of the queries.
    pub fn positions(mut self, positions: Positions) -> Self {
        self.positions = positions;
        self
    }

    /// Sets how it is computed where there is a choice.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Sets the key of random numbers and thereby turns dropout on.
    pub fn random(mut self, key: impl Into<Option<RandomKey>>) -> Self {
        self.random = key.into();
        self
    }
}

/// Output of [`Attention::forward`] and [`Attention::step`].
#[derive(Clone, Debug)]
pub struct AttentionOutput {
    /// `[B, Q, C]`.
    pub context: Tensor<3>,
    /// Auxiliary losses of this call.
    pub losses: Losses,
}

impl AttentionOutput {
    /// An output without auxiliary losses.
    pub fn new(context: Tensor<3>) -> Self {
        Self { context, losses: Losses::default() }
    }
}

/// Named auxiliary losses (span penalty, ponder cost), each of shape `[1]`, to be added to the training loss.
#[derive(Clone, Debug, Default)]
pub struct Losses(Vec<(&'static str, Tensor<1>)>);

impl Losses {
    /// Adds a loss.
    pub fn push(&mut self, name: &'static str, loss: Tensor<1>) {
        self.0.push((name, loss));
    }

    /// Adds all losses of another part of the model.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Sum of all losses, or `None` if there are none.
    pub fn total(&self) -> Option<Tensor<1>> {
        self.0.iter().map(|(_, loss)| loss.clone()).reduce(|a, b| a + b)
    }

    /// The losses with their names.
    pub fn iter(&self) -> impl Iterator<Item = &(&'static str, Tensor<1>)> {
        self.0.iter()
    }
}
