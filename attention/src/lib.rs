//! Attention mechanisms of the literature behind one contract, for [Burn](burn).
//!
//! Every mechanism is a Burn module that implements [`Attention`](contract::Attention) and names no backend. It
//! lowers its input to a description ([`AttentionProgram`](engine::AttentionProgram)):
//! how keys are scored, which are visible, how weights are normalised, which values are summed; the [`engine`] executes it. Choose a mechanism by
//! configuration ([`AnyMechanism`](any::AnyMechanism)) or by type.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use heedful_attention::registry::AnyMechanism;
//! use heedful_attention::contract::{Attention, AttentionInput};
//! use heedful_attention::placement::{Placement, Role};
//! use heedful_attention::probe::Probe;
//! use heedful_attention::random::RandomKey;
//! use heedful_attention::visibility::Visibility;
//!
//! let config: AnyMechanism = "synthesizer-random+dot-product".parse()?;
//! let placement = Placement { role: Role::Decoder, layer: 0, layers: 1, d_model: 8, heads: 2, max_length: 16, dropout: 0.1 };
//! config.validate(&placement)?;
//! let device = Device::flex();
//! let attention = config.init(&placement, &RandomKey::from_seed(1), &device);
//!
//! let sequence = Tensor::ones([1, 5, 8], &device);
//! let input = AttentionInput::self_attention(sequence).visibility(Visibility::causal());
//! let output = attention.forward(input, &mut Probe::off());
//! assert_eq!(output.context.dims(), [1, 5, 8]);
//! # Ok::<(), heedful_attention::error::ConfigError>(())
//! ```
//!
//! # A mechanism of your own
//!
//! Implement [`Logits`](logits::Logits), which leaves projections, masks, softmax and stepwise decoding to
//! [`SoftmaxAttention`](softmax_attention::SoftmaxAttention), or [`Attention`](contract::Attention) itself. The [`conformance`] suite then asks it for all
//! that models rely on, from causality to the gradients, and reports what it is asked, what holds and what does not:
//!
//! ```
//! use burn::module::Module;
//! use burn::tensor::{Device, Tensor};
//! use heedful_attention::conformance::Subject;
//! use heedful_attention::contract::Positions;
//! use heedful_attention::engine::LogitTerms;
//! use heedful_attention::logits::{LogitFacts, Logits};
//! use heedful_attention::placement::{Placement, Role};
//! use heedful_attention::softmax_attention::SoftmaxAttention;
//! use heedful_attention::visibility::Span;
//!
//! /// Twice as much weight on the position itself as on any other.
//! #[derive(Module, Debug)]
//! struct Selfish;
//!
//! impl Logits for Selfish {
//!     fn facts(&self) -> LogitFacts {
//!         LogitFacts { cross_attention: false, max_length: None, remembers_keys: false, auxiliary_losses: false }
//!     }
//!
//!     fn keys(&self, _memory: Tensor<3>) -> Option<Tensor<4>> {
//!         None
//!     }
//!
//!     fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, _positions: &Positions) -> LogitTerms {
//!         let diagonal = (span.query_start - span.key_start) as i64;
//!         let itself = Tensor::<2>::ones([span.queries, span.keys], &query.device()).triu(diagonal).tril(diagonal);
//!         LogitTerms::bias(itself.unsqueeze() * 2f64.ln())
//!     }
//! }
//!
//! let placement = Placement { role: Role::Decoder, layer: 0, layers: 1, d_model: 4, heads: 2, max_length: 8, dropout: 0.3 };
//! let subject = Subject::new(placement, |place, key, device| SoftmaxAttention::new(Selfish, place, key, device), &Device::flex());
//! println!("{}", subject.check()?);
//! # Ok::<(), heedful_attention::conformance::Report>(())
//! ```
//!
//! `models/examples/own_mechanism.rs` does the same with a mechanism that learns, and trains it in a language model.

// Tests of one backend read where they compare.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod abilities;
pub mod arithmetic;
pub mod conformance;
pub mod constraints;
pub mod contract;
pub mod dropout;
pub mod engine;
pub mod error;
pub mod exponential;
#[cfg(feature = "cube")]
#[doc(hidden)]
pub mod extension;
pub mod heads;
pub mod init;
pub mod kernel_attention;
pub mod linear;
pub mod logits;
pub mod main_memory;
pub mod mechanisms;
pub mod memory;
pub mod parameter_formula;
pub mod pattern;
pub mod placement;
pub mod probe;
pub mod progress;
pub mod random;
pub mod read;
pub mod registry;
pub mod restricted;
pub mod sequence_projection;
pub mod softmax_attention;
pub mod visibility;
