//! What `forward` of the models knows that `forward_with` is given: whether to drop, and with which random numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use burn::module::{Flag, Module, Param};
use burn::tensor::Device;
use heedful_attention::contract::Losses;
use heedful_attention::random::RandomKey;

/// Dropout as Burn's own layers have it: on devices with autodiff, unless the model was frozen or made by [`valid`](Module::valid).
#[derive(Module, Debug)]
pub(crate) struct Plain {
    training: Param<Flag>,
    #[module(skip)]
    stream: Arc<Stream>,
}

/// The keys of random numbers. Clones of a model draw from one stream.
#[derive(Debug)]
struct Stream {
    key: RandomKey,
    calls: AtomicU64,
    lost_losses: AtomicBool,
}

impl Plain {
    /// `key` begins the stream.
    pub(crate) fn new(key: &RandomKey) -> Self {
        let stream = Stream { key: *key, calls: AtomicU64::new(0), lost_losses: AtomicBool::new(false) };
        Self { training: Param::from_bool(true), stream: Arc::new(stream) }
    }

    /// The next key of the stream, if the model with weights on this device is trained.
    pub(crate) fn next_key(&self, device: &Device) -> Option<RandomKey> {
        let is_trained = self.training.is_enabled() && device.is_autodiff();
        is_trained.then(|| self.stream.key.numbered(self.stream.calls.fetch_add(1, Ordering::Relaxed)))
    }

    /// Says once that a pass in training, which had a key, lost these losses.
    pub(crate) fn lose(&self, random: Option<RandomKey>, losses: &Losses) {
        if random.is_some() && losses.iter().next().is_some() && !self.stream.lost_losses.swap(true, Ordering::Relaxed) {
            tracing::warn!("this model has auxiliary losses, which training needs: call `forward_with`");
        }
    }
}
