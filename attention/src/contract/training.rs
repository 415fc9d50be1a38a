//! Training mode of a module, and its keys of random numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use burn::module::{Flag, Module, Param};
use burn::tensor::Device;
use heedful_random::RandomKey;

use crate::contract::Losses;

/// Training mode as in Burn's layers: active on devices with autodiff, unless the module was frozen or created by [`valid`](Module::valid).
#[derive(Module, Debug)]
pub struct Training {
    flag: Param<Flag>,
    #[module(skip)]
    stream: Arc<Stream>,
}

/// Keys of random numbers. Clones of a module, also on other devices, draw from one stream.
#[derive(Debug)]
struct Stream {
    key: RandomKey,
    calls: AtomicU64,
    has_warned: AtomicBool,
}

impl Stream {
    fn new(key: &RandomKey) -> Arc<Self> {
        Arc::new(Self { key: *key, calls: AtomicU64::new(0), has_warned: AtomicBool::new(false) })
    }
}

impl Training {
    /// Starts the stream of keys at `key`.
    pub fn new(key: &RandomKey) -> Self {
        Self { flag: Param::from_bool(true), stream: Stream::new(key) }
    }

    /// Starts a new stream that no clone shares.
    pub fn restart(&mut self, key: &RandomKey) {
        self.stream = Stream::new(key);
    }

    /// Whether a module on this device is in training mode.
    pub fn is_on(&self, device: &Device) -> bool {
        // Burn's dropout requires both: a device with gradients, and a module that is not frozen.
        self.flag.is_enabled() && device.is_autodiff()
    }

    /// Next key of the stream, if a module on this device is in training mode.
    pub fn next_key(&self, device: &Device) -> Option<RandomKey> {
        self.is_on(device).then(|| self.stream.key.numbered(self.stream.calls.fetch_add(1, Ordering::Relaxed)))
    }

    /// Warns once if a call in training discards these losses; `remedy` names the call that returns them.
    pub fn warn_of_lost(&self, losses: &Losses, device: &Device, remedy: &str) {
        if self.is_on(device) && losses.iter().next().is_some() && !self.stream.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("there are auxiliary losses, which training needs: call `{remedy}`");
        }
    }
}
