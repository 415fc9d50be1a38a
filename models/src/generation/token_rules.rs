//! Permitted tokens and end of a sequence.

use std::fmt;
use std::sync::Arc;

use super::SpecialTokens;

/// Permitted tokens and end conditions. By default all tokens are permitted, without an end condition.
#[derive(Clone, Default)]
pub struct Rules {
    never: Vec<u32>,
    end: Option<u32>,
    stop: Option<Arc<Stop>>,
}

/// Whether a generated sequence is complete.
type Stop = dyn Fn(&[u32]) -> bool + Send + Sync;

impl From<SpecialTokens> for Rules {
    fn from(special: SpecialTokens) -> Self {
        Self { never: vec![special.padding, special.begin], end: Some(special.end), stop: None }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { never, end, stop } = self;
        f.debug_struct("Rules").field("never", never).field("end", end).field("stop", &stop.is_some()).finish()
    }
}

impl Rules {
    /// Sets the end token, which is not part of the result.
    pub fn with_end(mut self, token: u32) -> Self {
        self.end = Some(token);
        self
    }

    /// Adds tokens that are never generated.
    pub fn without(mut self, tokens: impl IntoIterator<Item = u32>) -> Self {
        self.never.extend(tokens);
        self
    }

    /// Sets a stop condition. It is evaluated after each token on all generated tokens of the row, which the result keeps.
    pub fn with_stop(mut self, stop: impl Fn(&[u32]) -> bool + Send + Sync + 'static) -> Self {
        self.stop = Some(Arc::new(stop));
        self
    }

    pub(super) fn may_be_generated(&self, token: u32) -> bool {
        !self.never.contains(&token)
    }

    pub(super) fn is_end(&self, token: u32) -> bool {
        self.end == Some(token)
    }

    pub(super) fn stop_after(&self, generated: &[u32]) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop(generated))
    }
}
