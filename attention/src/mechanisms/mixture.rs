//! Mixtures of logits (Tay et al. 2021, section 3.3).
//!
//! `logits = sum_m α_m logits_m`, summed *before* the softmax. The paper trains `α` per head, normalised by a softmax. Alternatives are a plain sum and, for
//! two members, one scalar per layer: `(1 - σ(a)) logits_1 + σ(a) logits_2`, initially `a = 0`. The time, state and parameters below are those of a mixture of
//! the random Synthesizer and dot-product attention.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/synthesizer-random-and-dot-product.svg")]

use burn::tensor::activation::{sigmoid, softmax};

use super::synthesizer_random::SynthesizerRandomConfig;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::shared_in_order;

/// How the members of a mixture are weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MixtureWeights {
    /// Trained per head and normalised by a softmax (the paper).
    #[default]
    Softmax,
    /// All weights 1 (`*_plus` in the released code).
    Sum,
    /// `1 - σ(a)` and `σ(a)` with one trained scalar per layer (`*_plus_alpha` in the released code); two members.
    Sigmoid,
}

/// Configuration of [`Mixture`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct MixtureConfig {
    /// Members: two or more attentions with logits, in the order of their weights.
    pub members: Vec<AnyMechanism>,
    /// Weighting of the members (default: softmax-normalised weights per head).
    #[serde(default)]
    pub weights: MixtureWeights,
}

/// Weighted sum of the logits of its members.
///
/// Should be created with [`MixtureConfig`].
#[derive(Module, Debug)]
pub struct Mixture {
    /// The members.
    pub members: Vec<AnyLogits>,
    /// Logits of the weights `[members, H]`, for [`MixtureWeights::Softmax`].
    pub head_weights: Option<Param<Tensor<2>>>,
    /// `a`, `[1]`, for [`MixtureWeights::Sigmoid`].
    pub layer_weight: Option<Param<Tensor<1>>>,
    d_head: usize,
}

impl Mechanism for MixtureConfig {
    type Module = LogitsOf<Mixture>;
    const NAME: &'static str = "mixture";
    const CARD: Card = Card {
        variant: "Mixture",
        description: "Sums the logits of several mechanisms before the softmax: names joined by `+`.",
        source: "Tay et al. 2021, section 3.3",
        links: &[
            "https://arxiv.org/abs/2005.00743",
            "https://github.com/tensorflow/mesh/blob/master/mesh_tensorflow/transformer/attention.py",
        ],
        kind: Kind::Mixture,
        cross: true,
        differences: &[
            "The released code supports a plain sum (`random_plus`, `dense_plus`; `weights = \"sum\"`) and, for two members, one scalar per layer (`random_plus_alpha`, `dense_plus_alpha`; `weights = \"sigmoid\"`). The default here is the paper's softmax.",
        ],
        tensors: &[
            ("head_weights", "weights of the members before their softmax [members, heads]"),
            ("layer_weight", "a of the weights 1 - sigmoid(a), sigmoid(a)"),
        ],
        ..Card::DEFAULT
    };

    fn named() -> Vec<(&'static str, Self)> {
        Vec::new()
    }

    fn examples() -> Vec<Self> {
        let members = vec![SynthesizerRandomConfig::default().into(), AnyMechanism::default()];
        vec![Self { members, ..Self::default() }]
    }

    fn name(&self) -> String {
        self.members.iter().map(AnyMechanism::name).collect::<Vec<_>>().join("+")
    }

    fn members(&self) -> Vec<&AnyMechanism> {
        self.members.iter().collect()
    }

    fn resolved(self, max_length: usize) -> Self {
        Self { members: self.members.iter().map(|member| member.resolved(max_length)).collect(), ..self }
    }

    fn joining(members: &[AnyMechanism]) -> Option<Self> {
        Some(Self { members: members.to_vec(), ..Self::default() })
    }

    /// # Errors
    /// If there are fewer than two members, a member is itself a mixture, a sigmoid mixture does not have exactly two members, or a member's configuration is
    /// invalid.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        if self.members.len() < 2 {
            return Err(check.refuse("members", format!("a list of {}", self.members.len()), "name at least two attentions"));
        }
        if self.weights == MixtureWeights::Sigmoid && self.members.len() != 2 {
            return Err(check.refuse(
                "weights",
                format!("{:?}", self.weights).to_lowercase(),
                "a sigmoid weighs two members; use softmax or sum for more",
            ));
        }
        for member in &self.members {
            if !member.has_logits() {
                let able = AnyMechanism::families_that(AnyMechanism::has_logits);
                let remedy = format!("mix attentions that have logits of their own: {able}");
                return Err(check.refuse("members", member.name(), remedy));
            }
            member.validate(spec)?;
        }
        Ok(())
    }

    /// Initialises the mixture with equal weights.
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Mixture {
        let members = self
            .members
            .iter()
            .enumerate()
            .map(|(index, member)| {
                let logits = member.init_logits(spec, &key.named("member").numbered(index as u64), device);
                logits.expect("validated: members have logits")
            })
            .collect();
        let zero = Init::Constant(0.0);
        let shape = [self.members.len(), spec.heads];
        Mixture {
            members,
            head_weights: (self.weights == MixtureWeights::Softmax).then(|| zero.parameter(shape, key, device)),
            layer_weight: (self.weights == MixtureWeights::Sigmoid).then(|| zero.parameter([1], key, device)),
            d_head: spec.d_head(),
        }
    }

    /// Tay et al. 2021, section 3.3, and the two forms of the released code.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let share = |m: usize| match self.weights {
                MixtureWeights::Sum => 1.0,
                MixtureWeights::Softmax => {
                    let a = |m| query.parameter("head_weights").at(&[m, query.head]).exp();
                    a(m) / (0..self.members.len()).map(a).sum::<f64>()
                }
                MixtureWeights::Sigmoid => {
                    let second = formula::sigmoid(query.parameter("layer_weight").at(&[0]));
                    if m == 0 { 1.0 - second } else { second }
                }
            };
            let logits = self.members.iter().enumerate().map(|(m, member)| share(m) * query.logit(member, &format!("members.{m}"), key));
            logits.sum()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let weights = match self.weights {
            // One per member and head.
            MixtureWeights::Softmax => ParameterFormula::trained(&[(self.members.len(), "H")]),
            MixtureWeights::Sum => ParameterFormula::none(),
            MixtureWeights::Sigmoid => ParameterFormula::trained(&[(1, "1")]),
        };
        let members = self.members.iter().map(AnyMechanism::parameters).collect::<Option<Vec<_>>>()?;
        Some(members.into_iter().fold(ParameterFormula::none(), ParameterFormula::plus).plus(weights))
    }
}

impl Mixture {
    /// Weights of the members, `[members, H | 1]`; `None` if all are 1.
    pub fn weights(&self) -> Option<Tensor<2>> {
        if let Some(weights) = &self.head_weights {
            return Some(softmax(weights.val(), 0));
        }
        let second = sigmoid(self.layer_weight.as_ref()?.val());
        Some(Tensor::stack(vec![second.clone().neg() + 1.0, second], 0))
    }

    /// Cached width of a member per position and key head.
    fn width_of(&self, member: &AnyLogits) -> usize {
        if member.abilities().remembers_keys { member.key_width(self.d_head) } else { 0 }
    }
}

impl Logits for Mixture {
    fn abilities(&self) -> LogitAbilities {
        let abilities = self.members.iter().map(Logits::abilities).reduce(LogitAbilities::joined);
        abilities.expect("a mixture has members")
    }

    fn projections_have_biases(&self) -> bool {
        self.members.iter().any(Logits::projections_have_biases)
    }

    /// Keys of the members, concatenated.
    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        let keys: Vec<_> = self.members.iter().filter_map(|member| member.keys(memory.clone(), positions)).collect();
        (!keys.is_empty()).then(|| Tensor::cat(keys, 3))
    }

    fn key_width(&self, _d_head: usize) -> usize {
        self.members.iter().map(|member| self.width_of(member)).sum()
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let weights = self.weights();
        let (mut sum, mut first) = (LogitTerms::default(), 0);
        for (index, member) in self.members.iter().enumerate() {
            let width = self.width_of(member);
            let own = keys.as_ref().filter(|_| width > 0).map(|keys| keys.clone().narrow(3, first, width));
            first += width;
            let terms = member.terms(query.clone(), own, span, positions);
            let terms = match &weights {
                Some(weights) => {
                    let heads = weights.dims()[1];
                    terms.scaled(weights.clone().narrow(0, index, 1).reshape([1, heads, 1, 1]))
                }
                None => terms,
            };
            sum = sum.plus(terms);
        }
        sum
    }

    /// A key hidden by any member is hidden.
    fn visibility(&self) -> Option<Visibility> {
        self.members.iter().filter_map(Logits::visibility).reduce(Visibility::and)
    }

    fn reach(&self) -> Option<usize> {
        self.members.iter().filter_map(Logits::reach).min()
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        self.members.iter().map(|member| member.multiplications(d_head)).sum()
    }

    fn losses(&self, query: &Tensor<3>) -> Losses {
        let mut losses = Losses::default();
        self.members.iter().for_each(|member| losses.extend(member.losses(query)));
        losses
    }

    fn sharing_with(self, earlier: &Self) -> Self {
        Self { members: shared_in_order(self.members, &earlier.members), ..self }
    }
}
