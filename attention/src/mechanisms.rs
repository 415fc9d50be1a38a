//! The mechanisms, one file each, with the names of their papers, and shared parts: [`convolution_attention`] of the convolutions, [`sequence_projection`] of
//! Linformer, [`qk_norm`] of queries and keys, [`feature_attention`] of linear attention, [`recurrent_attention`], [`gated_recurrence`], [`delta_rule`],
//! [`selective_decay`], [`short_convolution`] and [`gated_norm`] of recurrences. Each configuration starts with the defaults and has a setter per option:
//! `LinformerConfig::default().with_rank(64)`. If an option sets no size, [`default_sizes`] derives it from the model's maximal length.

// A list beside that of `built_in!`: the formatter, and editors, find no file that a macro declares.

pub mod adaptive_span;
pub mod aft;
pub mod alibi;
pub mod base_conv;
pub mod convolution_attention;
pub mod cosformer;
pub mod default_sizes;
pub mod delta_net;
pub mod delta_rule;
pub mod differential;
pub mod dot_product;
pub mod dynamic_conv;
pub mod entmax;
pub mod feature_attention;
pub mod fnet;
pub mod forgetting;
pub mod gated_delta_net;
pub mod gated_norm;
pub mod gated_recurrence;
pub mod gaussian;
pub mod gla;
pub mod gmlp;
pub mod learned_relative;
pub mod learned_sink;
pub mod lightweight_conv;
pub mod linear_attention;
pub mod linformer;
pub mod local_1d;
pub mod local_2d;
pub mod lsh;
pub mod mamba_2;
pub mod mixture;
pub mod mla;
pub mod mlp_mixer;
pub mod none;
pub mod output_gate;
pub mod performer;
mod prelude;
pub mod qk_norm;
pub mod recurrent_attention;
pub mod relative;
pub mod relu;
pub mod retnet;
pub mod rotary;
pub mod selective_decay;
pub mod sequence_projection;
pub mod shared_qk;
pub mod shaw;
pub mod short_convolution;
pub mod sigmoid;
pub mod simple_gla;
pub mod sliding_window;
pub mod soft_cap;
pub mod softmax_plus_one;
pub mod softpick;
pub mod sparse_fixed;
pub mod sparse_strided;
pub mod streaming_llm;
pub mod synthesizer_dense;
pub mod synthesizer_factorized_dense;
pub mod synthesizer_factorized_random;
pub mod synthesizer_random;
pub mod t5_bias;
pub mod talking_heads;
pub mod uniform;
