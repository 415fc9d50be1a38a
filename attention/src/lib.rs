//! Attention mechanisms of the literature behind one contract, for [Burn](burn).
//!
//! ```
//! # use burn::tensor::{Device, Tensor};
//! use heedful_attention::prelude::*;
//!
//! # let device = Device::flex();
//! # let (batch, capacity, n, lengths) = (2, 64, 40, [40, 25]);
//! # let x = Tensor::<3>::ones([batch, n, 512], &device);
//! # let x_t = Tensor::<3>::ones([batch, 1, 512], &device);
//! # let (queries, memory) = (Tensor::<3>::ones([batch, 3, 512], &device), x.clone());
//! // The stride follows the maximal length: 8 for 64 positions.
//! let attention = AttentionConfig::new("sparse-strided", 512, 8).with_causal(true).with_dropout(0.1).with_max_length(64).init(&device)?;
//! let mask = Mask::padding(&lengths, n);
//! let y = attention.forward(x.clone(), &mask);                      // [batch, n, 512]
//! # assert_eq!(y.dims(), [batch, n, 512]);
//! let (y, weights) = attention.forward_with_weights(x, &mask);      // and [batch, 8, n, n]
//! # assert_eq!((y.dims(), weights.dims()), ([batch, n, 512], [batch, 8, n, n]));
//! let hidden = weights.slice([0..1, 0..1, 39..40, 24..31]);         // between 8 and 16 positions back
//! assert_eq!(hidden.sum().into_scalar::<f32>(), 0.0);
//!
//! let mut cache = attention.cache(batch, capacity);                 // owns position and causality
//! let y = attention.step(x_t, &mut cache);                          // cannot be called wrongly
//! # assert_eq!(y.dims(), [batch, 1, 512]);
//!
//! let cross = AttentionConfig::new(DotProductConfig::default(), 512, 8).with_cross(true).init(&device)?;
//! let y = cross.cross(queries, memory, &mask);                      // the mask is that of the memory
//! # assert_eq!(y.dims(), [batch, 3, 512]);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! [`AttentionConfig`] accepts a mechanism's name or configuration; [`Mask`] accepts the masks of Burn and PyTorch. [`AttentionLayer`] is an ordinary Burn
//! module.
//!
//! The full contract, [`Attention`], serves models and experiments: layer specifications, keys of random numbers, probes and engines. A mechanism runs on any
//! backend. It lowers its input to a description ([`AttentionProgram`](engine::AttentionProgram)) of scores, visibility, normalisation and values; the
//! [`engine`] executes it.
//!
//! # A mechanism of your own
//!
//! Implement [`Logits`] and leave projections, masks, softmax and decoding to [`SoftmaxAttention`], or implement [`Attention`] itself. The [`conformance`]
//! suite then checks every property that models rely on, from causality to gradients, and reports the result of each check:
//!
//! ```
//! use burn::module::Module;
//! use burn::tensor::{Device, Tensor};
//! use heedful_attention::conformance::Subject;
//! use heedful_attention::contract::Positions;
//! use heedful_attention::engine::LogitTerms;
//! use heedful_attention::softmax_attention::logits::{LogitAbilities, Logits};
//! use heedful_attention::contract::layer_spec::{LayerSpec, Role};
//! use heedful_attention::softmax_attention::SoftmaxAttention;
//! use heedful_attention::contract::visibility::Span;
//!
//! /// Twice as much weight on the position itself as on any other.
//! #[derive(Module, Debug)]
//! struct Selfish;
//!
//! impl Logits for Selfish {
//!     fn abilities(&self) -> LogitAbilities {
//!         LogitAbilities::default()
//!     }
//!
//!     fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, _positions: &Positions) -> LogitTerms {
//!         let diagonal = (span.query_start - span.key_start) as i64;
//!         let itself = Tensor::<2>::ones([span.queries, span.keys], &query.device()).triu(diagonal).tril(diagonal);
//!         LogitTerms::bias(itself.unsqueeze() * 2f64.ln())
//!     }
//! }
//!
//! let spec = LayerSpec::new(Role::Decoder, 4, 2).with_max_length(8).with_dropout(0.3);
//! let subject = Subject::new(spec, |place, key, device| SoftmaxAttention::new(Selfish, place, key, device), &Device::flex());
//! println!("{}", subject.check()?);
//! # Ok::<(), heedful_attention::conformance::Report>(())
//! ```
//!
//! `models/examples/own_mechanism.rs` does the same with a trainable mechanism, adds it to the [`registry`], and trains it in a language model.

#![warn(unreachable_pub)]
// Unit tests may call `into_data` directly.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod conformance;
pub mod contract;
pub mod description;
pub mod engine;
pub mod layer;
pub mod mechanisms;
pub mod prelude;
pub mod registry;
pub mod softmax_attention;
pub mod tensors;

#[doc(no_inline)]
pub use self::prelude::*;
