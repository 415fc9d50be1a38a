//! Whether a module is in training, and the keys of the random numbers that it draws there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use burn::module::{Flag, Module, Param};
use burn::tensor::Device;
use heedful_random::RandomKey;

use crate::contract::Losses;

/// Training as Burn's own layers understand it: on devices with autodiff, unless the module was frozen or made by [`valid`](Module::valid).
#[derive(Module, Debug)]
pub struct Training {
    flag: Param<Flag>,
    #[module(skip)]
    stream: Arc<Stream>,
}

/// Keys of random numbers. Clones of a module, those on other devices too, draw from one stream.
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
    /// `key` begins the stream of keys.
    pub fn new(key: &RandomKey) -> Self {
        Self { flag: Param::from_bool(true), stream: Stream::new(key) }
    }

    /// Begins a stream anew, which no clone shares.
    pub fn restart(&mut self, key: &RandomKey) {
        self.stream = Stream::new(key);
    }

    /// Whether a module on this device is in training.
    pub fn is_on(&self, device: &Device) -> bool {
        // Burn's dropout asks for both: the device says that there can be a gradient, the flag that this module takes part in it.
        self.flag.is_enabled() && device.is_autodiff()
    }

    /// The next key of the stream, if a module on this device is in training.
    pub fn next_key(&self, device: &Device) -> Option<RandomKey> {
        self.is_on(device).then(|| self.stream.key.numbered(self.stream.calls.fetch_add(1, Ordering::Relaxed)))
    }

    /// Warns once if a call in training returns no place for these losses; `remedy` is what to call instead.
    pub fn warn_of_lost(&self, losses: &Losses, device: &Device, remedy: &str) {
        if self.is_on(device) && losses.iter().next().is_some() && !self.stream.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("there are auxiliary losses, which training needs: call `{remedy}`");
        }
    }
}
