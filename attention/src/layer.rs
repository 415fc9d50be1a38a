//! Attention as a layer in Burn's manner: a configuration, `init`, `forward`.
//!
//! A layer knows what the full contract ([`Attention`]) asks for at each call: its role, its dropout and the keys of its random numbers, the positions of a
//! sequence that is decoded. [`AttentionLayer::forward_with`] is the full form.

mod cache;
mod config;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use heedful_random::RandomKey;

pub use self::cache::Cache;
pub use self::config::{AttentionConfig, Choice};
use crate::contract::engine::Engine;
use crate::contract::layer_spec::{LayerSpec, Role};
use crate::contract::mask::{Mask, Sizes};
use crate::contract::probe::{Observation, Probe};
use crate::contract::training::Training;
use crate::contract::{Attention, AttentionInput, AttentionOutput, Losses, Positions};
use crate::description::AnyAttention;
use crate::softmax_attention::SoftmaxAttention;
use crate::softmax_attention::logits::Logits;

/// Attention of a sequence to itself, or of a sequence to another one.
///
/// Should be created with [`AttentionConfig`], or with [`from_attention`](Self::from_attention) and [`from_logits`](AttentionLayer::from_logits) for a mechanism of
/// one's own. Dropout follows Burn's: it is on where the input's device has autodiff and the layer was neither frozen nor made by
/// [`valid`](Module::valid). Each such call takes the next key of a stream that the configuration's seed begins, so the same calls give the same numbers.
/// Clones of a layer, those on other devices too, draw from one stream.
///
/// Dimension letters: `B` batch rows, `N` or `Q` queries, `K` keys, `C` = `d_model`, `H` heads.
///
/// # Example
///
/// As a part of a module:
/// ```
/// use burn::module::Module;
/// use burn::nn::{LayerNorm, LayerNormConfig};
/// use burn::tensor::{Device, Tensor};
/// use heedful_attention::prelude::*;
///
/// #[derive(Module, Debug)]
/// struct Block {
///     norm: LayerNorm,
///     attention: AttentionLayer,
/// }
///
/// let device = Device::flex();
/// let attention = AttentionConfig::new("relative", 16, 2).with_causal(true).init(&device)?;
/// let block = Block { norm: LayerNormConfig::new(16).init(&device), attention };
///
/// let x = Tensor::<3>::ones([1, 5, 16], &device);
/// let y = x.clone() + block.attention.forward(block.norm.forward(x), &Mask::none());
/// assert_eq!(y.dims(), [1, 5, 16]);
/// # Ok::<(), ConfigError>(())
/// ```
///
/// Saved and loaded as any module of Burn:
/// ```
/// # use burn::{module::Module, tensor::{Device, Tensor}};
/// # use heedful_attention::prelude::*;
/// # let device = Device::flex();
/// # let config = AttentionConfig::new("dot-product", 16, 2);
/// # let attention = config.init(&device)?;
/// # let x = Tensor::<3>::ones([1, 5, 16], &device).cumsum(2);
/// # let y = attention.forward(x.clone(), &Mask::none()).into_data();
/// # let path = std::env::temp_dir().join(format!("heedful-layer-{}.bpk", std::process::id()));
/// attention.save_file(&path)?;
/// let attention = config.init(&device)?.load_file(&path);
/// # assert_eq!(attention.forward(x, &Mask::none()).into_data(), y);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Module, Debug)]
pub struct AttentionLayer<A: Attention = AnyAttention> {
    /// The mechanism.
    pub attention: A,
    /// Whether to drop weights, and the keys for it.
    pub training: Training,
    #[module(skip)]
    spec: LayerSpec,
    #[module(skip)]
    engine: Engine,
    /// The same in clones, moved and loaded ones too: whose caches it takes.
    #[module(skip)]
    identity: Arc<()>,
}

impl<L: Logits> AttentionLayer<SoftmaxAttention<L>> {
    /// Multi-head softmax attention over logits of one's own. `key` draws the projections.
    ///
    /// # Example
    /// ```
    /// use burn::module::Module;
    /// use burn::tensor::{Device, Tensor};
    /// use heedful_attention::prelude::*;
    ///
    /// /// Less weight on what is far away.
    /// #[derive(Module, Debug)]
    /// struct Near;
    ///
    /// impl Logits for Near {
    ///     fn abilities(&self) -> LogitAbilities {
    ///         LogitAbilities::default()
    ///     }
    ///     fn terms(&self, query: Tensor<3>, _: Option<Tensor<4>>, span: Span, _: &Positions) -> LogitTerms {
    ///         let indices = |start: usize, n: usize| Tensor::arange(start as i64..(start + n) as i64, &query.device()).float();
    ///         let queries = indices(span.query_start, span.queries).reshape([1, 1, span.queries, 1]);
    ///         LogitTerms::bias((queries - indices(span.key_start, span.keys).reshape([1, 1, 1, span.keys])).abs().neg())
    ///     }
    /// }
    ///
    /// let (device, place) = (Device::flex(), LayerSpec::new(Role::Decoder, 4, 2));
    /// let layer = AttentionLayer::from_logits(Near, &place, &RandomKey::from_seed(1), &device);
    /// let y = layer.forward(Tensor::ones([1, 5, 4], &device), &Mask::none());
    /// # assert_eq!(y.dims(), [1, 5, 4]);
    /// ```
    pub fn from_logits(logits: L, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Self {
        Self::from_attention(SoftmaxAttention::new(logits, spec, key, device), spec, &key.named("dropout"))
    }
}

impl<A: Attention> AttentionLayer<A> {
    /// The layer around an attention that was made for `spec`. `key` begins the stream of its dropout.
    pub fn from_attention(attention: A, spec: &LayerSpec, key: &RandomKey) -> Self {
        Self { attention, training: Training::new(key), spec: *spec, engine: Engine::default(), identity: Arc::new(()) }
    }

    /// How it is computed where there is a choice (default: what is fastest).
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Begins a stream of random numbers anew, which no clone shares: with a key of the training step, a run that is resumed there repeats itself.
    pub fn with_random(mut self, key: &RandomKey) -> Self {
        self.training.restart(key);
        self
    }

    /// This layer with what its mechanism shares with an earlier layer ([`Attention::sharing_with`]). Call it for each pair of layers of a stack.
    pub fn sharing_with(self, earlier: &Self) -> Self {
        Self { attention: self.attention.sharing_with(&earlier.attention), ..self }
    }

    /// Where the layer stands.
    pub fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    /// Whether no query sees what comes after it, whatever the mask.
    pub fn is_causal(&self) -> bool {
        self.spec.role == Role::Decoder
    }

    /// The sequence `[B, N, C]` attends to itself, `[B, N, C]`.
    ///
    /// Auxiliary losses are not part of it: mechanisms that have them (adaptive spans) are trained with [`forward_with_losses`](Self::forward_with_losses). A call
    /// that loses some in training says so once in the log.
    ///
    /// # Panics
    /// If the layer attends to another sequence ([`cross`](Self::cross)), shapes or the mask do not fit, or the sequence is longer than the maximal length of a
    /// mechanism that has one.
    pub fn forward(&self, x: Tensor<3>, mask: &Mask) -> Tensor<3> {
        let input = self.own(x, mask);
        self.context(input)
    }

    /// As [`forward`](Self::forward), with the auxiliary losses of the call, which are to be added to the training loss ([`Losses::total`]).
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_with_losses(&self, x: Tensor<3>, mask: &Mask) -> (Tensor<3>, Losses) {
        let AttentionOutput { context, losses } = self.forward_with(self.own(x, mask), &mut Probe::off());
        (context, losses)
    }

    /// As [`forward`](Self::forward), with the weights `[B, H, N, N]` before dropout. Of mechanisms that combine several softmaxes they may be negative.
    ///
    /// # Panics
    /// As [`forward`](Self::forward), and if the mechanism has no weights of pairs: Linformer, whose slots a [`Probe`] shows.
    pub fn forward_with_weights(&self, x: Tensor<3>, mask: &Mask) -> (Tensor<3>, Tensor<4>) {
        self.with_weights(self.own(x, mask))
    }

    /// The sequence `[B, Q, C]` attends to another one, `[B, K, C]`: `[B, Q, C]`. The mask says which of the `K` keys are seen.
    ///
    /// # Example
    /// ```
    /// # use burn::tensor::{Device, Tensor};
    /// # use heedful_attention::prelude::*;
    /// # let device = Device::flex();
    /// # let (x, memory) = (Tensor::<3>::ones([2, 3, 16], &device), Tensor::<3>::ones([2, 7, 16], &device));
    /// let attention = AttentionConfig::new(LinformerConfig::default().with_rank(4), 16, 2).with_cross(true).init(&device)?;
    /// let y = attention.cross(x, memory, &Mask::padding(&[7, 5], 7)); // [2, 3, 16]
    /// # assert_eq!(y.dims(), [2, 3, 16]);
    /// # Ok::<(), ConfigError>(())
    /// ```
    ///
    /// # Panics
    /// If the layer attends to its own sequence ([`AttentionConfig::with_cross`]), or shapes or the mask do not fit.
    pub fn cross(&self, x: Tensor<3>, memory: Tensor<3>, mask: &Mask) -> Tensor<3> {
        self.context(self.other(x, memory, mask))
    }

    /// As [`cross`](Self::cross), with the auxiliary losses of the call.
    ///
    /// # Panics
    /// As [`cross`](Self::cross).
    pub fn cross_with_losses(&self, x: Tensor<3>, memory: Tensor<3>, mask: &Mask) -> (Tensor<3>, Losses) {
        let AttentionOutput { context, losses } = self.forward_with(self.other(x, memory, mask), &mut Probe::off());
        (context, losses)
    }

    /// As [`cross`](Self::cross), with the weights `[B, H, Q, K]` before dropout.
    ///
    /// # Panics
    /// As [`cross`](Self::cross) and [`forward_with_weights`](Self::forward_with_weights).
    pub fn cross_with_weights(&self, x: Tensor<3>, memory: Tensor<3>, mask: &Mask) -> (Tensor<3>, Tensor<4>) {
        self.with_weights(self.other(x, memory, mask))
    }

    /// The full form: memory, positions, engine and the key of random numbers are those of the input, and nothing is drawn from the layer's own stream.
    ///
    /// # Panics
    /// As [`Attention::forward`].
    pub fn forward_with(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        self.attention.forward(input, probe)
    }

    fn own(&self, x: Tensor<3>, mask: &Mask) -> AttentionInput {
        assert!(self.spec.role != Role::Cross, "this layer attends to another sequence: call `cross`");
        let [batch, length, _] = self.checked(&x);
        mask.check(Sizes { batch, heads: self.spec.heads, queries: Some(length), keys: length });
        let positions = Positions { left_padding: mask.padding_before(), ..Positions::default() };
        let visibility = if self.is_causal() { mask.without_future() } else { mask.visibility() };
        let random = self.next_key(&x);
        AttentionInput::self_attention(x).visibility(visibility.clone()).positions(positions).engine(self.engine).random(random)
    }

    fn other(&self, x: Tensor<3>, memory: Tensor<3>, mask: &Mask) -> AttentionInput {
        let [batch, queries, _] = self.checked(&x);
        let keys = self.checked_memory(&memory);
        assert!(keys[0] == batch, "{batch} rows of queries attend to {} rows of keys", keys[0]);
        mask.check(Sizes { batch, heads: self.spec.heads, queries: Some(queries), keys: keys[1] });
        let random = self.next_key(&x);
        AttentionInput::cross_attention(x, memory).visibility(mask.visibility().clone()).engine(self.engine).random(random)
    }

    fn checked(&self, x: &Tensor<3>) -> [usize; 3] {
        let (dims, d_model) = (x.dims(), self.spec.d_model);
        assert!(dims[2] == d_model, "the layer was made for width {d_model}: {dims:?}");
        dims
    }

    fn checked_memory(&self, memory: &Tensor<3>) -> [usize; 3] {
        assert!(self.spec.role == Role::Cross, "this layer attends to its own sequence: make it with `with_cross(true)`");
        self.checked(memory)
    }

    /// The next key of the stream, if numbers are to be drawn.
    fn next_key(&self, x: &Tensor<3>) -> Option<RandomKey> {
        let draws = self.spec.dropout > 0.0 || self.attention.abilities().randomness;
        if draws { self.training.next_key(&x.device()) } else { None }
    }

    fn context(&self, input: AttentionInput) -> Tensor<3> {
        let AttentionOutput { context, losses } = self.forward_with(input, &mut Probe::off());
        self.training.warn_of_lost(&losses, &context.device(), "forward_with_losses");
        context
    }

    fn with_weights(&self, input: AttentionInput) -> (Tensor<3>, Tensor<4>) {
        let mut shown: Option<Tensor<4>> = None;
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Weights(weights) | Observation::SignedWeights(weights) = observation {
                shown = Some(weights);
            }
        };
        let context = self.forward_with(input, &mut Probe::listening(&mut listener)).context;
        let weights = shown.expect("this mechanism has no weights of pairs of positions: look at it with `forward_with` and a probe");
        let [_, heads, queries, keys] = weights.dims();
        (context.clone(), weights.expand([context.dims()[0], heads, queries, keys]))
    }
}
