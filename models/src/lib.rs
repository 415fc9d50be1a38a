//! Transformer models over any attention mechanism, for [Burn](burn).
//!
//! A language model, from tokens to logits:
//!
//! ```
//! # use burn::tensor::{Device, Int, Tensor};
//! use heedful_models::prelude::*;
//!
//! # let device = Device::flex();
//! # let tokens = Tensor::<2, Int>::from_data([[2, 5, 7], [2, 9, 4]], &device);
//! let config = LanguageModelConfig::new(11).with_attention("relative").with_layers(2).with_d_model(64).with_n_heads(4);
//! let model = config.with_seed(1).build(&device)?;
//! let logits = model.forward(tokens); // [2, 3, 11]
//! # assert_eq!(logits.dims(), [2, 3, 11]);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! Continuing prompts; special tokens are optional:
//!
//! ```
//! # use burn::tensor::Device;
//! # use heedful_models::prelude::*;
//! # let model = LanguageModelConfig::new(11).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16).build(&Device::flex())?;
//! let config = GenerationConfig::new(20).with_sampling(Sampling { top_p: 0.9, ..Default::default() }).with_end(0);
//! let found = model.generate(&[vec![2, 5, 7], vec![4]], &config);
//! println!("{:?}", found[0].tokens);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! Saving and loading:
//!
//! ```
//! # use burn::tensor::Device;
//! # use heedful_models::prelude::*;
//! # let (device, folder) = (Device::flex(), tempfile::tempdir()?);
//! # let path = folder.path().join("model.safetensors");
//! # let config = LanguageModelConfig::new(11).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16);
//! # let model = config.build(&device)?;
//! save(&model, &path)?;
//! let model = load(config.build(&device)?, &path, Match::Exact)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An encoder-decoder model with different mechanisms by role and a padded source:
//!
//! ```
//! # use burn::tensor::{Device, Int, Tensor};
//! # use heedful_models::prelude::*;
//! # let device = Device::flex();
//! # let source = Tensor::<2, Int>::from_data([[5, 7, 1], [4, 6, 0]], &device);
//! # let target = Tensor::<2, Int>::from_data([[2, 4], [2, 5]], &device);
//! let config = Seq2SeqConfig::new(11, 11).with_encoder_attention(LinformerConfig::default()).with_cross_attention("gaussian");
//! # let config = config.with_d_model(64).with_n_heads(4).with_layers(1);
//! let model = config.build(&device)?;
//! let logits = model.forward(source, target, &Mask::padding(&[3, 2], 3)); // [2, 2, 11]
//! # assert_eq!(logits.dims(), [2, 2, 11]);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! A classifier:
//!
//! ```
//! # use burn::tensor::{Device, Int, Tensor};
//! # use heedful_models::prelude::*;
//! # let device = Device::flex();
//! # let tokens = Tensor::<2, Int>::from_data([[1, 7, 3], [1, 6, 0]], &device);
//! # let lengths = [3, 2];
//! let config = ClassifierConfig::new(11, 4).with_attention("dynamic-conv").with_layers(2).with_d_model(64).with_n_heads(4);
//! let model = config.build(&device)?;
//! let logits = model.forward(tokens, &Mask::padding(&lengths, 3)); // [2, 4]
//! # assert_eq!(logits.dims(), [2, 4]);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! Different mechanisms per layer, by name or configuration; a shorter list repeats:
//!
//! ```
//! # use burn::tensor::Device;
//! # use heedful_models::prelude::*;
//! # let device = Device::flex();
//! let local = LocalOneDConfig::default().with_query_block(16);
//! let config = LanguageModelConfig::new(11).with_attention([AnyMechanism::from(local), RelativeConfig::default().into()]);
//! let model = config.with_layers(4).with_d_model(64).with_n_heads(4).build(&device)?;
//! # assert_eq!(model.decoder.layers.len(), 4);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! [`presets`] define the models of papers: `presets::transformer_base(Size::Full).model.build(&device)?`.
//!
//! # An attention of your own
//!
//! All models are generic over [`Attention`]. `build_with` calls a closure for the attention of each place, here a custom type in the first layer and
//! dot-product attention in the others:
//!
//! ```
//! use burn::module::Module;
//! use burn::tensor::{Device, Int, Tensor};
//! use heedful_models::prelude::*;
//!
//! /// Less weight on what is far away.
//! #[derive(Module, Debug)]
//! struct Near;
//!
//! impl Logits for Near {
//!     fn abilities(&self) -> LogitAbilities {
//!         LogitAbilities::default()
//!     }
//!     fn terms(&self, query: Tensor<3>, _: Option<Tensor<4>>, span: Span, _: &Positions) -> LogitTerms {
//!         let indices = |start: usize, n: usize| Tensor::arange(start as i64..(start + n) as i64, &query.device()).float();
//!         let queries = indices(span.query_start, span.queries).reshape([1, 1, span.queries, 1]);
//!         LogitTerms::bias((queries - indices(span.key_start, span.keys).reshape([1, 1, 1, span.keys])).abs().neg())
//!     }
//! }
//!
//! # let device = Device::flex();
//! let config = LanguageModelConfig::new(11).with_layers(2).with_d_model(16).with_n_heads(2);
//! let model = config.build_with(&device, |place, key, device| match place.layer {
//!     0 => AnyAttention::new(SoftmaxAttention::new(Near, place, key, device)).named("Near"),
//!     _ => DotProductConfig::default().attention(place, key, device),
//! })?;
//! # let logits = model.forward(Tensor::<2, Int>::from_data([[2, 5, 7]], &device));
//! # assert_eq!(logits.dims(), [1, 3, 11]);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! A closure that returns its own type instead of [`AnyAttention`] builds a model over that type alone. A mechanism with a configuration that implements
//! [`Mechanism`] can be passed to `with_attention` like the built-in ones; `examples/own_mechanism.rs` defines one, checks it with the conformance suite, and
//! trains it.
//!
//! # The full form
//!
//! A model's `forward_with` takes the arguments of experiments: left padding, segments, the key of its random numbers, and a probe for weights and activations.
//! It also returns auxiliary losses, and applies dropout if and only if a key is given. `init` takes a [`RandomKey`] instead of a seed. Initial weights are
//! equal on every backend. If `validate` returns `Ok`, `init` cannot fail.
//!
//! # What else there is
//!
//! One [`Block`](block::Block) serves encoders and decoders, and one [`Stack`](block::stack::Stack) of blocks serves four models: [`Seq2SeqTransformer`],
//! [`LanguageModel`], [`Classifier`] and [`VisionTransformer`]. [`layout`](mod@block::layout) sets the attention of each part and layer, in code and in files.
//!
//! Residual connections, normalisations and gates surround attentions ([`residual`](mod@parts::residual), [`norm`](mod@parts::norm),
//! [`gate`](mod@parts::residual_gate)). Layers have separate weights, share one block, halt position by position, or are reversible
//! ([`depth`](mod@block::layer_sharing), [`halting`](mod@block::halting)). Activations can be recomputed in the backward pass
//! ([`recomputation`](mod@block::recomputation)) or stored in 16 bits ([`precision`](mod@kernels::precision)), and models read long sequences segment by
//! segment ([`segment`](mod@block::segment)). [`recurrent`](mod@architectures::recurrent) implements adaptive computation time in its original form, for
//! recurrent networks.
//!
//! Training minimises the cross-entropy of next, [`masked`](mod@architectures::masked) or target tokens, of corrupted spans
//! ([`span_corruption`](mod@architectures::span_corruption), [`loss`](mod@parts::loss)) or of pixels ([`pixels`](mod@architectures::logistic_mixture), with an
//! image decoder). Options are the [`auxiliary`](mod@block::auxiliary) losses of deep character models, an [`adaptive`](mod@parts::adaptive_softmax) softmax
//! for large vocabularies, and the loss of a policy and its values ([`actor_critic`](mod@architectures::actor_critic), [`policy`](mod@architectures::policy)).
//! [`optimiser`](mod@training::optimiser) implements Adam and AdamW. [`pretrained`] reads and writes Hugging Face folders (GPT-2, Llama, Mistral, Qwen-3,
//! Gemma-2, BERT, ViT), [`torch`](mod@pretrained::torch) reads weights of `torch.nn.Transformer`, and [`swap`](mod@pretrained::swap) replaces the attention in
//! layers of a trained model. [`arithmetic`](mod@training::multiplications) counts multiplications, [`parameters`](mod@training::parameter_count) parameters.
//! With the feature `train`, `learner` trains models in Burn's own training loop.

#![warn(unreachable_pub)]
// Tests of one backend read where they compare.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod architectures;
pub mod block;
pub mod generation;
pub mod kernels;
pub mod parts;
pub mod prelude;
pub mod pretrained;
pub mod training;

#[doc(no_inline)]
pub use self::prelude::*;
