//! Validation of the optimiser's constants: their ranges, and their update rules.

use super::{OptimiserConfig, OptimiserError, OptimiserKind, ensure};

impl OptimiserKind {
    /// Its name in configurations.
    fn name(self) -> &'static str {
        match self {
            Self::Adam => "adam",
            Self::AdamW => "adam-w",
            Self::Adagrad => "adagrad",
            Self::Sgd => "sgd",
            Self::Adafactor => "adafactor",
        }
    }

    /// Configuration fields of specific rules that this rule supports.
    fn own_fields(self) -> &'static [&'static str] {
        match self {
            Self::Adam | Self::AdamW => &["betas", "epsilon"],
            Self::Adagrad => &["epsilon", "lr_decay"],
            Self::Sgd => &["momentum", "dampening", "nesterov"],
            Self::Adafactor => &["epsilon", "clip_threshold", "decay_rate", "scale_parameter", "epsilon_2", "relative_step"],
        }
    }
}

impl OptimiserConfig {
    /// Effective epsilon: the given one, or the default of the update rule.
    pub fn effective_epsilon(&self) -> f64 {
        self.epsilon.unwrap_or(match self.kind {
            OptimiserKind::Adam => 1e-9,
            OptimiserKind::AdamW | OptimiserKind::Sgd => 1e-8,
            OptimiserKind::Adagrad => 1e-10,
            OptimiserKind::Adafactor => 1e-30,
        })
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range, of another update rule, or an invalid regular expression.
    pub fn validate(&self) -> Result<(), OptimiserError> {
        let (beta_1, beta_2) = self.betas;
        let share = |value: f64| (0.0..1.0).contains(&value);
        ensure(share(beta_1) && share(beta_2), "betas", || format!("({beta_1}, {beta_2}) are not both at least 0 and below 1"))?;
        for (field, value) in [("momentum", self.momentum), ("dampening", self.dampening)] {
            ensure(value.is_none_or(share), field, || format!("{} is not at least 0 and below 1", value.unwrap_or_default()))?;
        }
        // In the 32 bits of the update's computation.
        let positive = |value: f64| value.is_finite() && value as f32 > 0.0 && (value as f32).is_finite();
        for (field, value) in
            [("epsilon", Some(self.effective_epsilon())), ("clip_threshold", self.clip_threshold), ("epsilon_2", self.epsilon_2)]
        {
            ensure(value.is_none_or(positive), field, || format!("{} is not a positive number", value.unwrap_or_default()))?;
        }
        for (field, value) in [("lr_decay", self.lr_decay), ("weight_decay", Some(self.weight_decay))] {
            let holds = value.is_none_or(|value| (value as f32).is_finite() && value >= 0.0);
            ensure(holds, field, || format!("{} is not a number of 0 or more", value.unwrap_or_default()))?;
        }
        let exponent = self.decay_rate;
        ensure(exponent.is_none_or(|exponent| exponent.is_finite() && exponent < 0.0), "decay_rate", || {
            format!("{} is not a number below 0", exponent.unwrap_or_default())
        })?;
        self.check_effects()?;
        self.exempt().map(drop)
    }

    /// Refuses options without effect.
    fn check_effects(&self) -> Result<(), OptimiserError> {
        let own = self.kind.own_fields();
        for (field, is_given) in [
            ("betas", self.betas != Self::default().betas),
            ("epsilon", self.epsilon.is_some()),
            ("lr_decay", self.lr_decay.is_some()),
            ("momentum", self.momentum.is_some()),
            ("dampening", self.dampening.is_some()),
            ("nesterov", self.nesterov.is_some()),
            ("clip_threshold", self.clip_threshold.is_some()),
            ("decay_rate", self.decay_rate.is_some()),
            ("scale_parameter", self.scale_parameter.is_some()),
            ("epsilon_2", self.epsilon_2.is_some()),
            ("relative_step", self.relative_step.is_some()),
        ] {
            ensure(!is_given || own.contains(&field), field, || {
                format!("it has no effect with `kind = \"{}\"`, whose own options are {}; leave it out", self.kind.name(), own.join(", "))
            })?;
        }
        let has_momentum = self.momentum.is_some_and(|momentum| momentum > 0.0);
        let is_dampened = self.dampening.is_some_and(|dampening| dampening > 0.0);
        for (field, is_given) in [("dampening", is_dampened), ("nesterov", self.nesterov == Some(true))] {
            ensure(!is_given || has_momentum, field, || "it has no effect without `momentum`; give one above 0, or leave it out".into())?;
        }
        let both = self.nesterov == Some(true) && is_dampened;
        ensure(!both, "dampening", || "`nesterov` is defined without it; leave one of the two out".into())?;
        let scales = self.scale_parameter.unwrap_or(true);
        ensure(scales || self.epsilon_2.is_none(), "epsilon_2", || "it has no effect with `scale_parameter = false`; leave it out".into())
    }
}
