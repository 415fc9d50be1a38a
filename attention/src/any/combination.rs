//! What can be combined with what, and where each mechanism can stand.

use burn::tensor::Device;

use super::{AnyLogits, AttentionConfig};
use crate::error::ConfigError;
use crate::placement::{Placement, Role};
use crate::random::RandomKey;

impl AttentionConfig {
    /// Of a mechanism that is a pattern of visibility, the attention whose logits it restricts.
    pub fn restricted(&self) -> Option<&Self> {
        match self {
            Self::LocalOneD(config) => Some(&config.logits),
            Self::LocalTwoD(config) => Some(&config.logits),
            Self::SparseStrided(config) => Some(&config.logits),
            Self::SparseFixed(config) => Some(&config.logits),
            _ => None,
        }
    }

    /// The same pattern over other logits; `None` if the mechanism is not a pattern.
    pub fn over(mut self, logits: Self) -> Option<Self> {
        let restricted = match &mut self {
            Self::LocalOneD(config) => &mut config.logits,
            Self::LocalTwoD(config) => &mut config.logits,
            Self::SparseStrided(config) => &mut config.logits,
            Self::SparseFixed(config) => &mut config.logits,
            _ => return None,
        };
        **restricted = logits;
        Some(self)
    }

    /// Whether the mechanism is a softmax over logits that can be mixed with others. The Gaussian counts: the softmax of its logarithm is its
    /// renormalised density. A pattern does not: its logits can be mixed, what it hides cannot.
    pub fn has_logits(&self) -> bool {
        !matches!(
            self,
            Self::Mixture(_) | Self::AdaptiveSpan(_) | Self::Lsh(_) | Self::Linformer(_) | Self::LightweightConv(_) | Self::DynamicConv(_)
        ) && self.restricted().is_none()
    }

    /// Whether the mechanism can be restricted by a pattern: logits, mixtures of logits, and patterns, which then intersect.
    pub fn can_be_restricted(&self) -> bool {
        self.has_logits() || matches!(self, Self::Mixture(_)) || self.restricted().is_some()
    }

    /// Whether the mechanism can be kept from seeing the future: without that it is for encoders and cross-attention only.
    pub fn can_be_causal(&self) -> bool {
        !matches!(self, Self::Linformer(_))
    }

    /// The logits alone, for mechanisms that have them.
    pub fn init_logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        match self {
            Self::Gaussian(config) => Some(AnyLogits::Gaussian(config.init_logits(placement))),
            _ => self.init_own_logits(placement, key, device),
        }
    }

    /// Checks the options, and whether the mechanism is defined for its place in the model.
    ///
    /// # Errors
    /// An impossible option or place, naming both and the remedy. After `Ok`, building does not fail.
    pub fn validate(&self, placement: &Placement) -> Result<(), ConfigError> {
        let name = self.name();
        let check = placement.check(&name);
        if placement.heads == 0 || !placement.d_model.is_multiple_of(placement.heads) {
            return Err(check.wrong("heads", placement.heads, format!("give a divisor of d_model = {}", placement.d_model)));
        }
        if !(0.0..1.0).contains(&placement.dropout) {
            return Err(check.wrong("dropout", placement.dropout, "give a probability of at least 0 and less than 1"));
        }
        self.validate_options(placement)?;
        if placement.role == Role::Cross && !self.can_cross() {
            return Err(ConfigError::Unable {
                place: placement.to_string(),
                attention: self.name(),
                wanted: "used as cross-attention",
                remedy: "use dot-product, gaussian, linformer or uniform there; the others are tied to the positions of one sequence",
            });
        }
        if placement.role == Role::Decoder && !self.can_be_causal() {
            return Err(ConfigError::Unable {
                place: placement.to_string(),
                attention: self.name(),
                wanted: "causal",
                remedy: "each of its slots mixes the future in; use it in encoders and as cross-attention, and another mechanism here",
            });
        }
        Ok(())
    }

    fn can_cross(&self) -> bool {
        match self {
            Self::DotProduct(_) | Self::Uniform(_) | Self::Gaussian(_) | Self::Linformer(_) => true,
            Self::Mixture(mixture) => mixture.members.iter().all(Self::can_cross),
            _ => false,
        }
    }
}
