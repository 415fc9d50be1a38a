//! Differential attention of the Differential Transformer (Ye et al. 2025, section 2.1).
//!
//! `o_h = (1 - λ_init) RMSNorm((softmax(logits1_h) - λ softmax(logits2_h)) V_h)`: each head subtracts one softmax from another, each over scores of half the
//! head's width, so that common attention noise cancels. `λ = exp(λ_q1 · λ_k1) - exp(λ_q2 · λ_k2) + λ_init` is one scalar per layer, with four trained vectors.
//! Here `λ_init = 0.8 - 0.6 exp(-0.3 (l - 1))` in layer `l = 1, 2, ...`. The norm covers the channels of a head, with one gain for all heads.
//!
//! Queries and keys of the two softmaxes together have the width and the parameters of one softmax. The paper halves the number of heads of its baseline, so
//! queries and keys have the baseline's width and values twice that width: set `heads` accordingly. An odd width is divided unevenly.
//!
//! Any mechanism can supply the scores, with separate parameters for each softmax: `alibi@differential`, `dot-product@local-1d@differential`, or `differential`
//! for `dot-product@differential`. Dropout acts on each softmax separately.
//!
//! Magnitudes of the attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/differential.svg")]

use burn::nn::{RmsNorm, RmsNormConfig};

use crate::description::formula::softmax;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::LogitsRef;
use crate::softmax_attention::{HeadCall, Heads, LatestVisibility, seen_pairs};

/// Epsilon that the norm adds to the mean square.
const EPSILON: f64 = 1e-5;

/// Configuration of [`Differential`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct DifferentialConfig {
    /// Initial `λ` before random variation, `λ_init`, at least 0 and less than 1 (default: `0.8 - 0.6 exp(-0.3 (l - 1))` in layer `l`, counted from 1).
    pub lambda_init: Option<f64>,
    /// Whether head outputs are normalised and multiplied by `1 - λ_init` (default: yes).
    pub norm: bool,
    /// Mechanism that scores the keys for both softmaxes: an attention with scores, a mixture of such attentions, or a pattern over them, for heads of any
    /// width (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Default for DifferentialConfig {
    fn default() -> Self {
        Self { lambda_init: None, norm: true, logits: AnyMechanism::default() }
    }
}

/// Heads that subtract one softmax from another.
///
/// Should be created with [`DifferentialConfig`].
#[derive(Module, Debug)]
pub struct Differential {
    /// Scores of the first softmax.
    pub first: AnyLogits,
    /// Scores of the subtracted softmax.
    pub second: AnyLogits,
    /// `[D1]`, where `D1` is the head width of the first scores.
    pub lambda_q1: Param<Tensor<1>>,
    /// `[D1]`.
    pub lambda_k1: Param<Tensor<1>>,
    /// `[D2]`, where `D2` is the head width of the second scores.
    pub lambda_q2: Param<Tensor<1>>,
    /// `[D2]`.
    pub lambda_k2: Param<Tensor<1>>,
    /// Norm over the channels of a head, `[D]`.
    pub head_norm: Option<RmsNorm>,
    lambda_init: f64,
    widths: [usize; 2],
    #[module(skip)]
    latest: [LatestVisibility; 2],
}

/// `λ_init` of the layer with this index, counted from 0.
pub fn lambda_init(layer: usize) -> f64 {
    0.8 - 0.6 * (-0.3 * layer as f64).exp()
}

/// Specifications for the scores of each softmax: heads of half the width.
fn halves(spec: &LayerSpec) -> [LayerSpec; 2] {
    let width = spec.d_head();
    [width.div_ceil(2), width / 2].map(|half| spec.with_head_width(Some(half)))
}

impl DifferentialConfig {
    fn lambda_init_at(&self, spec: &LayerSpec) -> f64 {
        self.lambda_init.unwrap_or_else(|| lambda_init(spec.layer))
    }
}

impl Mechanism for DifferentialConfig {
    type Module = HeadsOf<Differential>;
    const NAME: &'static str = "differential";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "Differential",
        description: "Subtracts one softmax from another to cancel common attention noise, over any logits and pattern.",
        source: "Ye et al. 2025, section 2.1",
        links: &["https://arxiv.org/abs/2410.05258", "https://github.com/microsoft/unilm/tree/master/Diff-Transformer"],
        kind: Kind::Heads,
        cross: true,
        differences: &[
            "The released code uses one query projection and one key projection for both softmaxes, with paired heads side by side; here each softmax has its own projections.",
            "With shared key heads, one released file lets both softmaxes of a head read the same keys; here, as in the other files, each softmax reads its own keys.",
            "The released code applies rotary positions; here positions are part of the scores.",
        ],
        tensors: &[
            ("lambda_q1", "vector of the first term of lambda [width of the first softmax]"),
            ("lambda_k1", "vector of the first term of lambda [width of the first softmax]"),
            ("lambda_q2", "vector of the second term of lambda [width of the second softmax]"),
            ("lambda_k2", "vector of the second term of lambda [width of the second softmax]"),
            ("head_norm.gamma", "gain of the norm of heads [d_head]"),
        ],
        without_decay: &[r"\.lambda_[qk][12]$"],
        ..Card::DEFAULT
    };

    /// # Errors
    /// If `lambda_init` is out of its range.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        match self.lambda_init.filter(|lambda| !(0.0..1.0).contains(lambda)) {
            Some(lambda) => {
                let remedy = "give a number of at least 0 and less than 1, or leave it out";
                Err(spec.check(Self::NAME).refuse("lambda_init", lambda, remedy))
            }
            None => Ok(()),
        }
    }

    /// Validates the scores for heads of half the width.
    ///
    /// # Errors
    /// If heads are one channel wide, or the scores are invalid, missing or restricted to one head width.
    fn validate_inner(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        self.logits.check_under(Self::NAME, Kind::Heads, spec)?;
        if !self.logits.has_free_heads() {
            let able = AnyMechanism::families_that(|able| able.has_one_softmax() && able.has_free_heads());
            let remedy = format!("give an attention that has scores and heads of any width, which are halved: {able}");
            return Err(check.refuse("logits", self.logits.name(), remedy));
        }
        if spec.d_head() < 2 {
            return Err(check.refuse("heads", spec.heads, "give fewer heads, or wider ones: both softmaxes need a channel"));
        }
        halves(spec).iter().try_for_each(|half| self.logits.validate(half))
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Differential {
        let [one, other] = halves(spec);
        let widths = [one.d_head(), other.d_head()];
        let logits = |place: &LayerSpec, name| {
            let logits = self.logits.init_logits(place, &key.named(name), device);
            logits.expect("validated: both softmaxes have scores")
        };
        let vector = |name, width| Init::Normal(0.1).parameter([width], &key.named(name), device);
        let norm = || RmsNormConfig::new(spec.d_head()).with_epsilon(EPSILON).init(device);
        Differential {
            first: logits(&one, "first"),
            second: logits(&other, "second"),
            lambda_q1: vector("lambda_q1", widths[0]),
            lambda_k1: vector("lambda_k1", widths[0]),
            lambda_q2: vector("lambda_q2", widths[1]),
            lambda_k2: vector("lambda_k2", widths[1]),
            head_norm: self.norm.then(norm),
            lambda_init: self.lambda_init_at(spec),
            widths,
            latest: Default::default(),
        }
    }

    /// Ye et al. 2025, section 2.1, equations 1 to 3.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(|query| {
            let [one, other] = halves(query.spec());
            let weights = |place: &str, half: LayerSpec| {
                let placed: Query = query.placed(half);
                let is_seen = |key: usize| query.sees(key) && query.shows(&self.logits, key);
                softmax(&(0..query.keys()).map(|key| is_seen(key).then(|| placed.logit(&self.logits, place, key))).collect::<Vec<_>>())
            };
            let [q1, k1, q2, k2] = ["q1", "k1", "q2", "k2"].map(|name| &query.parameter(&format!("logits.lambda_{name}")).values[..]);
            let initial = self.lambda_init.unwrap_or(0.8 - 0.6 * (-0.3 * query.spec().layer as f64).exp());
            let lambda = dot(q1, k1).exp() - dot(q2, k2).exp() + initial;
            let mut head = vec![0.0; query.spec().d_head()];
            for (key, (kept, subtracted)) in weights("logits.first", one).into_iter().zip(weights("logits.second", other)).enumerate() {
                let value = query.projected("value", query.attended(key));
                head.iter_mut().zip(value).for_each(|(sum, value)| *sum += (kept - lambda * subtracted) * value);
            }
            if self.norm {
                let gain = &query.parameter("logits.head_norm.gamma").values;
                let root = (dot(&head, &head) / head.len() as f64 + EPSILON).sqrt();
                head.iter_mut().zip(gain).for_each(|(number, gain)| *number *= (1.0 - initial) * gain / root);
            }
            head
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let own = ParameterFormula::trained(&[(if self.norm { 3 } else { 2 }, "D")]);
        Some(self.logits.parameters()?.of_halves()?.plus(own))
    }
}

impl Differential {
    /// Weight of the subtracted softmax, `[1]`.
    pub fn lambda(&self) -> Tensor<1> {
        let term = |q: &Param<Tensor<1>>, k: &Param<Tensor<1>>| (q.val() * k.val()).sum().exp();
        term(&self.lambda_q1, &self.lambda_k1) - term(&self.lambda_q2, &self.lambda_k2) + self.lambda_init
    }

    /// Cached width per position of the first scores.
    fn first_width(&self) -> usize {
        if self.first.abilities().remembers_keys { self.first.key_width(self.widths[0]) } else { 0 }
    }
}

impl Heads for Differential {
    fn scores(&self) -> Vec<LogitsRef<'_>> {
        vec![&self.first, &self.second]
    }

    fn attend(&self, call: HeadCall, probe: &mut Probe) -> Tensor<4> {
        let keys = call.keys.clone().map(|keys| {
            let (first, width) = (self.first_width(), keys.dims()[3]);
            [keys.clone().narrow(3, 0, first), keys.narrow(3, first, width - first)]
        });
        let mut weighed = |logits: &AnyLogits, place: usize, name: &str| {
            let mut call = call.clone().keeping(&self.latest[place]);
            call.random = call.random.map(|key| key.named(name));
            call.keys = keys.as_ref().map(|keys| keys[place].clone());
            call.weighed_and_shown(logits, probe)
        };
        let (kept, weights) = weighed(&self.first, 0, "first");
        let (subtracted, other_weights) = weighed(&self.second, 1, "second");
        let lambda = self.lambda().reshape([1, 1, 1, 1]);
        if let Some((weights, other)) = weights.zip(other_weights) {
            probe.observe(|| Observation::SignedWeights(weights - other * lambda.clone()));
        }
        let head = kept - subtracted * lambda;
        match &self.head_norm {
            Some(norm) => norm.forward(head) * (1.0 - self.lambda_init),
            None => head,
        }
    }

    fn head_multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let of = |logits: &AnyLogits, width: usize| seen_pairs(pairs, logits) * (logits.multiplications(width as f64) + pairs.d_head());
        of(&self.first, self.widths[0]) + of(&self.second, self.widths[1])
    }

    fn heads_sharing_with(self, earlier: &Self) -> Self {
        Self { first: self.first.sharing_with(&earlier.first), second: self.second.sharing_with(&earlier.second), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, place: LayerSpec) -> String {
        name.parse::<AnyMechanism>().unwrap().validate(&place).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_single_softmax_is_refused() {
        let place = LayerSpec::new(Role::Encoder, 8, 2).with_max_length(8);
        for name in ["sigmoid", "output-gate", "adaptive-span", "linformer", "differential", "dot-product@softmax-plus-one"] {
            let error = refused(&format!("{name}@differential"), place);
            assert!(error.contains("`logits` is") && error.contains("give an attention that has scores"), "{error}");
        }
        let error = refused("gaussian@differential", place);
        assert!(error.contains("heads of any width") && error.contains("dot-product"), "{error}");
    }

    #[test]
    fn wrong_widths_and_lambdas_are_refused() {
        assert!(refused("differential", LayerSpec::new(Role::Encoder, 4, 4)).contains("both softmaxes need a channel"));
        for lambda in [-0.1, 1.0, f64::NAN] {
            let config = DifferentialConfig::default().with_lambda_init(lambda);
            let error = AnyMechanism::from(config).validate(&LayerSpec::new(Role::Encoder, 8, 2)).unwrap_err().to_string();
            assert!(error.contains("`lambda_init` is"), "{error}");
        }
    }

    #[test]
    fn halves_of_an_odd_width_are_uneven() {
        let widths = |width| halves(&LayerSpec::new(Role::Encoder, width, 1)).map(|half| half.d_head());
        assert_eq!([widths(8), widths(7), widths(2)], [[4, 4], [4, 3], [1, 1]]);
    }
}
