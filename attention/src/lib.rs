//! Attention mechanisms of the literature behind one contract, for [Burn](burn).
//!
//! Every mechanism is a Burn module that implements [`Attention`](contract::Attention) and names no backend. It
//! lowers its input to a description ([`AttentionProgram`](engine::AttentionProgram)):
//! how keys are scored, which are visible, how weights are normalised, which values are summed; the [`engine`] executes it. Choose a mechanism by
//! configuration ([`AttentionConfig`](any::AttentionConfig)) or by type.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use heedful_attention::any::AttentionConfig;
//! use heedful_attention::contract::{Attention, AttentionInput};
//! use heedful_attention::placement::{Placement, Role};
//! use heedful_attention::probe::Probe;
//! use heedful_attention::random::RandomKey;
//! use heedful_attention::visibility::Visibility;
//!
//! let config: AttentionConfig = "synthesizer-random+dot-product".parse()?;
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

pub mod abilities;
pub mod any;
pub mod contract;
pub mod dropout;
pub mod engine;
pub mod error;
pub mod heads;
pub mod init;
pub mod logits;
pub mod mechanisms;
pub mod memory;
pub mod parameter_formula;
pub mod placement;
pub mod probe;
pub mod random;
pub mod softmax_attention;
pub mod visibility;
