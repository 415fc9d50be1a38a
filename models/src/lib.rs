//! Transformer models over any attention mechanism, for [Burn](burn).
//!
//! One [`Block`](block::Block) serves encoders and decoders, one [`Stack`](stack::Stack) of them serves three models:
//! [`Seq2SeqTransformer`](seq2seq::Seq2SeqTransformer), [`LanguageModel`](language_model::LanguageModel) and
//! [`Classifier`](classifier::Classifier). All are generic over [`Attention`](heedful_attention::contract::Attention): by default the mechanism of each
//! layer is chosen by configuration ([`layout`]); a type of a user's own is put in by `init_with`, as
//! `examples/own_mechanism.rs` does with one that it defines and puts through the conformance suite.
//!
//! Around the attentions stand residual connections and gates ([`residual`], [`gate`]), and layers that have weights of their own, share one block, halt by
//! themselves or can be undone ([`depth`], [`halting`]). Activations may be computed again in the backward pass rather than kept ([`recomputation`]), or have 16
//! bits ([`precision`]), and long sequences read segment by segment ([`segment`]). [`recurrent`] is adaptive computation time where it comes from.
//!
//! What is minimised is the cross-entropy of next, [`masked`] or target tokens, or of hidden spans ([`span_corruption`], [`loss`]) or of pixels ([`pixels`]),
//! with the [`auxiliary`] losses of deep character models where they help, or the loss of a policy and its values ([`acting`], [`policy`]). [`presets`] has
//! the models of the papers under their names, [`torch`] reads weights of `torch.nn.Transformer`, [`arithmetic`] counts multiplications. With the feature
//! `train`, `learner` puts models in Burn's own training loop.
//!
//! Configurations are checked by `validate`; after `Ok`, `init` cannot fail. Initial weights come from a
//! [`RandomKey`](heedful_attention::random::RandomKey) and are equal on every backend. Dropout is on exactly where a forward pass is given a key.
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use heedful_attention::probe::Probe;
//! use heedful_attention::random::RandomKey;
//! use heedful_models::block::BlockConfig;
//! use heedful_models::language_model::LanguageModelConfig;
//!
//! let block = BlockConfig { d_model: 8, heads: 2, d_ff: 16, ..Default::default() };
//! let config = LanguageModelConfig { vocabulary: 11, layers: 1, block, ..Default::default() };
//! config.validate()?;
//! let device = Device::flex();
//! let model = config.init(&RandomKey::from_seed(1), &device);
//! let tokens = Tensor::<2, Int>::from_data([[2, 5, 7], [2, 9, 4]], &device);
//! let scores = model.forward_with(tokens, &[0, 0], None, &mut Probe::off());
//! assert_eq!(scores.logits.dims(), [2, 3, 11]);
//! # Ok::<(), heedful_models::error::ConfigError>(())
//! ```

// Tests of one backend read where they compare.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod acting;
pub mod arithmetic;
pub mod auxiliary;
pub mod block;
mod builders;
pub mod classifier;
pub mod depth;
pub mod depthwise;
pub mod embedding;
pub mod error;
pub mod feed_forward;
pub mod fused;
pub mod gate;
pub mod generation;
pub mod halting;
pub mod initialisation;
pub mod language_model;
pub mod layout;
#[cfg(feature = "train")]
pub mod learner;
pub mod loss;
pub mod masked;
pub mod pixels;
mod plain;
pub mod policy;
pub mod position;
pub mod precision;
pub mod prelude;
pub mod presets;
pub mod recomputation;
pub mod recurrent;
pub mod residual;
mod reversible;
pub mod segment;
pub mod seq2seq;
pub mod span_corruption;
pub mod stack;
pub mod torch;
pub mod weights;
