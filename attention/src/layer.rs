//! Attention as a Burn layer: configuration, `init`, `forward`.
//!
//! A layer supplies the arguments that the full contract ([`Attention`]) requires at each call: role, dropout, keys of random numbers, and positions in
//! decoding. [`AttentionLayer::forward_with`] is the full form.

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

/// Self-attention, or attention to another sequence.
///
/// Should be created with [`AttentionConfig`], or with [`from_attention`](Self::from_attention) and [`from_logits`](AttentionLayer::from_logits) for a custom
/// mechanism. Dropout follows Burn: it is active if the input's device has autodiff and the layer was neither frozen nor created by [`valid`](Module::valid).
/// Each such call takes the next key of a stream that the configuration's seed starts, so equal calls draw equal numbers. Clones of a layer, also on other
/// devices, draw from one stream.
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
    /// Training mode, with the keys of dropout.
    pub training: Training,
    #[module(skip)]
    spec: LayerSpec,
    #[module(skip)]
    engine: Engine,
    /// Identity, shared by clones, moved and loaded layers: a layer accepts caches of its own identity.
    #[module(skip)]
    identity: Arc<()>,
}

impl<L: Logits> AttentionLayer<SoftmaxAttention<L>> {
    /// Multi-head softmax attention over custom logits. `key` draws the projections.
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
    /// Creates the layer from an attention that was built for `spec`. `key` starts the stream of its dropout.
    pub fn from_attention(attention: A, spec: &LayerSpec, key: &RandomKey) -> Self {
        Self { attention, training: Training::new(key), spec: *spec, engine: Engine::default(), identity: Arc::new(()) }
    }

    /// Sets the engine (default: the fastest).
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Starts a new stream of random numbers that no clone shares. With a key of the training step, a resumed run reproduces its numbers.
    pub fn with_random(mut self, key: &RandomKey) -> Self {
        self.training.restart(key);
        self
    }

    /// Shares the mechanism's cross-layer parameters with an earlier layer ([`Attention::sharing_with`]). Call it for each pair of layers of a stack.
    pub fn sharing_with(self, earlier: &Self) -> Self {
        Self { attention: self.attention.sharing_with(&earlier.attention), ..self }
    }

    /// Place of the layer.
    pub fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    /// Whether no query sees later positions, for any mask.
    pub fn is_causal(&self) -> bool {
        self.spec.role == Role::Decoder
    }

    /// Self-attention of the sequence `[B, N, C]`; returns `[B, N, C]`.
    ///
    /// The result excludes auxiliary losses: train mechanisms with such losses (adaptive spans) with [`forward_with_losses`](Self::forward_with_losses). A
    /// training call that discards losses logs one warning.
    ///
    /// # Panics
    /// If the layer attends to another sequence ([`cross`](Self::cross)), shapes or the mask do not fit, or the sequence exceeds the mechanism's maximal
    /// length.
    pub fn forward(&self, x: Tensor<3>, mask: &Mask) -> Tensor<3> {
        let input = self.own(x, mask);
        self.context(input)
    }

    /// As [`forward`](Self::forward), with the auxiliary losses of the call, to add to the training loss ([`Losses::total`]).
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_with_losses(&self, x: Tensor<3>, mask: &Mask) -> (Tensor<3>, Losses) {
        let AttentionOutput { context, losses } = self.forward_with(self.own(x, mask), &mut Probe::off());
        (context, losses)
    }

    /// As [`forward`](Self::forward), with the weights `[B, H, N, N]` before dropout. Weights of mechanisms that combine several softmaxes can be negative.
    ///
    /// # Panics
    /// As [`forward`](Self::forward), and if the mechanism has no pairwise weights: Linformer, whose slot weights a [`Probe`] reports.
    pub fn forward_with_weights(&self, x: Tensor<3>, mask: &Mask) -> (Tensor<3>, Tensor<4>) {
        self.with_weights(self.own(x, mask))
    }

    /// Attention of the sequence `[B, Q, C]` to another one, `[B, K, C]`; returns `[B, Q, C]`. The mask hides some of the `K` keys.
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

    /// The full form: memory, positions, engine and the key of random numbers come from the input; the layer's own stream is not used.
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

    /// Next key of the stream, if random numbers are needed.
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
