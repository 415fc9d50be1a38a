//! What the heads of an attention give: of logits their one softmax, of other mechanisms several of them together.

use std::sync::{Arc, Mutex};

use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;
use heedful_random::RandomKey;

use super::{Weighing, seen_pairs};
use crate::contract::engine::Engine;
use crate::contract::init::Init;
use crate::contract::probe::{Observation, Probe};
use crate::contract::visibility::{Span, Visibility};
use crate::contract::{Losses, Pairs, Positions, SinkCache};
use crate::softmax_attention::logits::{LogitFacts, Logits};

/// What was seen at the latest call. Steps of training ask for the same again and again, and masks and tiles are kept with what they are of.
pub(crate) type Latest = Arc<Mutex<Option<Visibility>>>;

/// How the heads of a [`SoftmaxAttention`](super::SoftmaxAttention) come about from what is remembered of keys, and values.
///
/// All [`Logits`] are heads: sums of values that are weighed by their scores. A type that makes heads in another way, such as of the sums of several logits,
/// implements this trait itself and gets the projections, masks and decoding state.
pub trait Heads: Module + ModuleDisplay + 'static {
    /// Facts, as of [`Logits::facts`].
    fn head_facts(&self) -> LogitFacts;

    /// Whether there are weights of keys to be shown: not negative, and 0 where hidden. Default: no.
    fn have_weights(&self) -> bool {
        false
    }

    /// Whether the projections of values and output have biases. Default: no.
    fn head_biases(&self) -> bool {
        false
    }

    /// As [`Logits::sink`]. Default: none.
    fn head_sink(&self) -> Option<Init> {
        None
    }

    /// What is remembered of each position beside its value, as of [`Logits::keys`], `[B, G, K, R]` from `[B, K, C]`.
    fn head_keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>>;

    /// What the heads give, `[B, H, Q, D]`.
    fn attend(&self, call: HeadCall, probe: &mut Probe) -> Tensor<4>;

    /// As [`Logits::reach`]. Default: none.
    fn head_reach(&self) -> Option<usize> {
        None
    }

    /// As [`Logits::cache`]. Default: none.
    fn head_cache(&self) -> Option<SinkCache> {
        None
    }

    /// As [`Logits::losses`]. Default: none.
    fn head_losses(&self, _query: &Tensor<3>) -> Losses {
        Losses::default()
    }

    /// As [`Logits::sharing_with`]. Default: nothing is shared.
    fn heads_sharing_with(self, _earlier: &Self) -> Self {
        self
    }

    /// As [`Logits::takes_any_queries`]. Default: no.
    fn head_takes_any_queries(&self) -> bool {
        false
    }

    /// Multiplications of scores and weighted sums for one sequence. Default: a score and a weighted value for each pair.
    fn head_multiplications(&self, pairs: &Pairs) -> f64 {
        pairs.dense() * 2.0 * pairs.d_head()
    }
}

impl<L: Logits> Heads for L {
    fn head_facts(&self) -> LogitFacts {
        Logits::facts(self)
    }

    fn have_weights(&self) -> bool {
        true
    }

    fn head_biases(&self) -> bool {
        Logits::projections_have_biases(self)
    }

    fn head_sink(&self) -> Option<Init> {
        Logits::sink(self)
    }

    fn head_keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        Logits::keys(self, memory, positions)
    }

    fn attend(&self, call: HeadCall, probe: &mut Probe) -> Tensor<4> {
        let gate = self.gate(&call.query);
        if let Some(open) = &gate {
            probe.observe(|| Observation::HeadGates(open.clone()));
        }
        let context = call.weighed_by(self, probe);
        match gate {
            Some(open) => context * open,
            None => context,
        }
    }

    fn head_reach(&self) -> Option<usize> {
        Logits::reach(self)
    }

    fn head_cache(&self) -> Option<SinkCache> {
        Logits::cache(self)
    }

    fn head_losses(&self, query: &Tensor<3>) -> Losses {
        Logits::losses(self, query)
    }

    fn heads_sharing_with(self, earlier: &Self) -> Self {
        Logits::sharing_with(self, earlier)
    }

    fn head_takes_any_queries(&self) -> bool {
        Logits::takes_any_queries(self)
    }

    fn head_multiplications(&self, pairs: &Pairs) -> f64 {
        let d_head = pairs.d_head();
        seen_pairs(pairs, self) * (Logits::multiplications(self, d_head) + d_head)
    }
}

/// What heads are given: queries, what is remembered of keys and values, and what is seen of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeadCall<'a> {
    /// `[B, Q, C]`.
    pub query: Tensor<3>,
    /// What [`Heads::head_keys`] gave, `[B, G, K, R]`.
    pub keys: Option<Tensor<4>>,
    /// `[B, G, K, D]`.
    pub values: Tensor<4>,
    /// Index of the first key.
    pub key_start: usize,
    /// Which keys each query sees, whatever logits hide.
    pub visibility: Visibility,
    /// Positions of the queries.
    pub positions: Positions,
    /// Key of the random numbers of this call; dropout is on exactly if it is present.
    pub random: Option<RandomKey>,
    /// How it is computed where there is a choice.
    pub engine: Engine,
    pub(super) heads: usize,
    pub(super) dropout: f64,
    /// Logits of the sinks, `[1, H, 1, 1]`.
    pub(super) sink: Option<Tensor<4>>,
    pub(super) latest: &'a Latest,
}

impl<'a> HeadCall<'a> {
    /// The values weighed by the scores of logits, `[B, H, Q, D]`, without their gates. The keys have to be those of the logits.
    pub fn weighed_by<L: Logits>(self, logits: &L, probe: &mut Probe) -> Tensor<4> {
        Weighing { logits, heads: self.heads, dropout: self.dropout, latest: self.latest }.attend(self, probe)
    }

    /// The values weighed by the scores of logits, and if somebody listens, the weights `[B|1, H, Q, K]` of all keys of the sequence before dropout. Only the
    /// execution is handed out.
    pub(crate) fn weighed_and_shown<L: Logits>(self, logits: &L, probe: &mut Probe) -> (Tensor<4>, Option<Tensor<4>>) {
        if !probe.is_listening() {
            return (self.weighed_by(logits, &mut Probe::off()), None);
        }
        let mut weights = None;
        let mut listener = |_: &str, observation: Observation| match observation {
            Observation::Weights(found) => weights = Some(found),
            Observation::Executed(executed) => probe.executed(executed),
            _ => {}
        };
        let context = self.weighed_by(logits, &mut Probe::listening(&mut listener));
        (context, weights)
    }

    /// The same with a visibility of its own that is kept for the next call.
    pub(crate) fn keeping(self, latest: &'a Latest) -> Self {
        Self { latest, ..self }
    }

    /// Which keys queries see of those that logits show.
    pub(crate) fn seen_through<L: Logits>(&self, logits: &L) -> Visibility {
        let weighing = Weighing { logits, heads: self.heads, dropout: self.dropout, latest: self.latest };
        weighing.seen(self.visibility.clone(), &self.positions)
    }

    /// The part of the plane of queries and keys that the call covers.
    pub fn span(&self) -> Span {
        Span { query_start: self.positions.start, queries: self.query.dims()[1], key_start: self.key_start, keys: self.values.dims()[2] }
    }

    /// Number of heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Probability that a weight is dropped where the call has a key of random numbers.
    pub fn dropout(&self) -> f64 {
        self.dropout
    }
}
