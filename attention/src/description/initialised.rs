//! Results of initialisation: logits, heads or a whole attention.

use std::marker::PhantomData;

use burn::tensor::Device;
use heedful_random::RandomKey;

use super::{AnyAttention, AnyLogits, AnyMechanism, Mechanism};
use crate::contract::Attention;
use crate::contract::layer_spec::LayerSpec;
use crate::softmax_attention::logits::Logits;
use crate::softmax_attention::{Heads, SoftmaxAttention};

/// Result type of a [`Mechanism`]'s initialisation: [`LogitsOf`] for logits, [`HeadsOf`] for heads, [`AttentionOf`] for an attention, each of one type;
/// [`AnyLogits`] and [`AnyAttention`] for any type.
pub trait Initialised: Sized {
    /// Return type of [`Mechanism::init`].
    type Module;

    /// The logits, if available: [`Mechanism::logits`].
    fn logits<M: Mechanism<Module = Self>>(_config: &M, _spec: &LayerSpec, _key: &RandomKey, _device: &Device) -> Option<AnyLogits> {
        None
    }

    /// The attention: [`Mechanism::attention`].
    fn attention<M: Mechanism<Module = Self>>(config: &M, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        let logits = AnyMechanism::from(config.clone())
            .init_logits(spec, &key.named("logits"), device)
            .expect("what is no whole attention has logits");
        AnyAttention::softmax(SoftmaxAttention::new(logits, spec, key, device))
    }
}

/// Logits of one type, to be wrapped in the shared projections and the softmax.
#[derive(Debug)]
pub struct LogitsOf<L>(PhantomData<L>);

/// Heads of one type, to be wrapped in the shared projections.
#[derive(Debug)]
pub struct HeadsOf<H>(PhantomData<H>);

/// An attention of one type.
#[derive(Debug)]
pub struct AttentionOf<A>(PhantomData<A>);

impl<L: Logits> Initialised for LogitsOf<L> {
    type Module = L;

    fn logits<M: Mechanism<Module = Self>>(config: &M, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        Some(AnyLogits::new(config.init(spec, key, device)))
    }
}

impl Initialised for AnyLogits {
    type Module = Self;

    fn logits<M: Mechanism<Module = Self>>(config: &M, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        Some(config.init(spec, key, device))
    }
}

impl<H: Heads> Initialised for HeadsOf<H> {
    type Module = H;

    fn attention<M: Mechanism<Module = Self>>(config: &M, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        let heads = config.init(spec, &key.named("logits"), device);
        AnyAttention::new(SoftmaxAttention::new(heads, spec, key, device))
    }
}

impl<A: Attention> Initialised for AttentionOf<A> {
    type Module = A;

    fn attention<M: Mechanism<Module = Self>>(config: &M, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        AnyAttention::new(config.init(spec, key, device))
    }
}

impl Initialised for AnyAttention {
    type Module = Self;

    fn attention<M: Mechanism<Module = Self>>(config: &M, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        config.init(spec, key, device)
    }
}
