//! The contract of every mechanism.

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

/// A module that mixes positions: it scores keys for each query and returns the weighted values.
///
/// A custom type that implements this trait can replace [`AnyAttention`](crate::description::AnyAttention) in every model of heedful.
///
/// Dimension letters: `B` batch rows, `Q` queries, `K` keys, `C` = `d_model`.
pub trait Attention: Module + ModuleDisplay + 'static {
    /// State of decoding: its position ([`Progress`](crate::contract::decoding_position::Progress)) and its cache. It is bounded by the initial capacity and
    /// carries no gradients.
    type State: Clone + Debug + Send + 'static;

    /// Capabilities of this mechanism.
    fn abilities(&self) -> Abilities;

    /// Attends from all queries of the input to all keys, `[B, Q, C]`. In a decoder's self-attention
    /// ([`LayerSpec::limit`](crate::contract::layer_spec::LayerSpec::limit)) no query sees later positions, for any visibility of the input.
    ///
    /// # Panics
    /// If shapes do not fit or the input is longer than [`Abilities::max_length`].
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput;

    /// Creates the state before the first step. Every step attends to the memory of `start` (cross-attention), otherwise to the steps so far.
    fn state(&self, start: &DecodingStart) -> Self::State;

    /// Attends from the next one or more positions `[B, N, C]`, without dropout, and appends them to the state. The state determines their positions and
    /// visibility.
    ///
    /// # Panics
    /// If the state's capacity is exceeded.
    fn step(&self, query: Tensor<3>, state: &mut Self::State, probe: &mut Probe) -> AttentionOutput;

    /// Keeps the given batch rows of a state, in the given order, to reorder beams or shrink a batch.
    fn select(&self, state: &mut Self::State, rows: &[usize]);

    /// Bytes of the numbers stored in a state between two steps, at 4 bytes per number, without spare room; `None` (default) if the mechanism does not report
    /// it.
    fn state_bytes(&self, _state: &Self::State) -> Option<usize> {
        None
    }

    /// Shares parameters with an attention in an earlier layer of the same role, if the mechanism shares parameters across layers. Models call it for every
    /// pair of layers before use. Default: nothing is shared.
    ///
    /// A shared parameter keeps its identity ([`ParamId`](burn::module::ParamId)); a trainer must treat equal identities as one parameter.
    fn sharing_with(self, _earlier: &Self) -> Self {
        self
    }

    /// Upper bound of the visibility, if the queries of [`forward`](Self::forward) may be arbitrary positions of the sequence that is given as memory. The
    /// output of a query must then depend only on its own content, the memory and its visibility, not on its index or on other queries. The visibility is that
    /// of [`Visibility::of_queries`]. Models use this to skip unused queries. Default: `None`, queries are consecutive.
    fn any_queries(&self) -> Option<Visibility> {
        None
    }

    /// Multiplications of a forward pass for one sequence that depend on query-key pairs: scores and weighted sums, without linear maps. Default: a score and a
    /// weighted value per pair.
    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        pairs.dense() * 2.0 * pairs.d_head()
    }
}

/// Positions of the queries, and the start and end of each batch row.
///
/// Mechanisms with absolute positions (synthesizers) need the start index of a left-padded row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Index of the first query in the padded sequence.
    pub start: usize,
    /// Number of padding tokens before the first real token, per batch row; absent if no row is left-padded.
    pub left_padding: Option<Arc<[usize]>>,
    /// Index after the last real query, per batch row, if the outputs of padding queries are unused: an attention may skip these and return any finite numbers
    /// for them. Absent (default) if all queries are computed. It hides no keys; the [`Visibility`] does.
    pub ends: Option<Arc<[usize]>>,
}

impl Positions {
    /// Positions from `start` on, without left padding.
    pub fn from_start(start: usize) -> Self {
        Self { start, ..Self::default() }
    }

    /// The same positions in a batch whose row `b` begins with `counts[b]` padding tokens.
    pub fn with_left_padding(mut self, counts: impl Into<Arc<[usize]>>) -> Self {
        let counts = counts.into();
        self.left_padding = counts.iter().any(|&count| count > 0).then_some(counts);
        self
    }

    /// The same positions in a batch whose row `b` ends before index `ends[b]`; the outputs of padding queries are then unused.
    pub fn with_ends(mut self, ends: impl Into<Arc<[usize]>>) -> Self {
        self.ends = Some(ends.into());
        self
    }

    /// Ranges of the rows `[B N]` of all queries whose outputs are used, in ascending order; `None` if all are.
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
    /// Attended sequence, `[B, K, C]`; absent for self-attention within one segment.
    pub memory: Option<Tensor<3>>,
    /// Visible keys of each query.
    pub visibility: Visibility,
    /// Positions of the queries.
    pub positions: Positions,
    /// Key of the random numbers of this call; dropout is active if and only if it is present.
    pub random: Option<RandomKey>,
    /// Requested engine. Without dropout, engines differ only by rounding; with dropout, they may also drop different weights.
    pub engine: Engine,
}

impl AttentionInput {
    /// Self-attention of a sequence.
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

    /// Attention of a sequence `[B, N, C]` to itself and to earlier segments `[B, M, C]`. No gradient reaches the earlier segments. Indices, including those of
    /// [`Visibility`], start at the first carried token.
    pub fn segment(sequence: Tensor<3>, carried: Tensor<3>) -> Self {
        let positions = Positions::from_start(carried.dims()[1]);
        let memory = Tensor::cat(vec![carried.detach(), sequence.clone()], 1);
        Self { memory: Some(memory), positions, ..Self::self_attention(sequence) }
    }

    /// Attention of queries to another sequence.
    pub fn cross_attention(query: Tensor<3>, memory: Tensor<3>) -> Self {
        Self { memory: Some(memory), ..Self::self_attention(query) }
    }

    /// Sets the visible keys of each query.
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// Sets the positions of the queries.
    pub fn positions(mut self, positions: Positions) -> Self {
        self.positions = positions;
        self
    }

    /// Sets the engine.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Sets the key of random numbers, which activates dropout.
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
