//! The scale of the loss with 16-bit floats (Micikevicius et al. 2018, section 3.2), found during training: it doubles after many steps with finite gradients,
//! and halves at each gradient that is not finite, whose step is skipped.

use serde::{Deserialize, Serialize};

use super::configuration_error::{ConfigurationError, ensure};

/// How the scale changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossScaling {
    /// The initial scale, at least 1.
    pub initial: f64,
    /// Steps with finite gradients after which it doubles, at least 1.
    pub growth_interval: u64,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { initial: 65_536.0, growth_interval: 2000 }
    }
}

impl LossScaling {
    pub(super) fn validate(&self) -> Result<(), ConfigurationError> {
        let Self { initial, growth_interval } = *self;
        ensure(initial.is_finite() && initial >= 1.0, "loss_scaling.initial", || format!("{initial} is not a number of at least 1"))?;
        ensure(growth_interval >= 1, "loss_scaling.growth_interval", || "must be at least 1".into())
    }
}

/// The scale and how long it has held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// What the loss is multiplied by.
    pub scale: f64,
    /// Steps since it changed.
    pub steps: u64,
}

impl LossScale {
    pub(super) fn new(scaling: &LossScaling) -> Self {
        Self { scale: scaling.initial, steps: 0 }
    }

    /// After a gradient that is not finite: whether a smaller scale may help.
    pub(super) fn shrink(&mut self) -> bool {
        let may_help = self.scale > 1.0;
        *self = Self { scale: (self.scale / 2.0).max(1.0), steps: 0 };
        may_help
    }

    /// After a step.
    pub(super) fn hold(&mut self, scaling: &LossScaling) {
        self.steps += 1;
        if self.steps >= scaling.growth_interval {
            *self = Self { scale: self.scale * 2.0, steps: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_doubles_after_a_while_and_halves_at_once() {
        let scaling = LossScaling { initial: 8.0, growth_interval: 3 };
        let mut scale = LossScale::new(&scaling);
        for _ in 0..3 {
            assert_eq!(scale.scale, 8.0);
            scale.hold(&scaling);
        }
        assert_eq!(scale, LossScale { scale: 16.0, steps: 0 });
        scale.hold(&scaling);
        assert!(scale.shrink());
        assert_eq!(scale, LossScale { scale: 8.0, steps: 0 });
        let helped: Vec<bool> = (0..4).map(|_| scale.shrink()).collect();
        assert_eq!((helped, scale.scale), (vec![true, true, true, false], 1.0));
    }
}
