//! Shared code of delta-rule mechanisms (Schlag et al. 2021; Yang et al. 2024b; Yang et al. 2025).
//!
//! `S_t = S' + b_t k_t (v_t - S'^T k_t)^T`, `S' = a_t S_(t-1)`, `o_t = S_t^T q_t / sqrt(K)`: the update moves the value stored under a key towards the new
//! value, by the fraction `b_t = sigmoid(x_t w)`. Queries, keys and values pass through short convolutions and a SiLU. Queries and keys have length 1: longer
//! keys would let the state grow without bound.

use burn::tensor::activation::sigmoid;

use crate::description::formula::{sigmoid as plain_sigmoid, softplus as plain_softplus};
use crate::engine::heads::repeat_heads;
use crate::engine::recurrence::{Recurrence, in_32_bits};
use crate::engine::row_norm::{RowNorm, Scale};
use crate::mechanisms::gated_recurrence::{self, GatedRecurrence, HeadOptions, Rule};
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{PlainRecurrence, RecurrentAttention};
use crate::mechanisms::selective_decay::SelectiveDecay;

/// Epsilon that the released code adds to squared lengths.
const LENGTH_EPSILON: f64 = 1e-6;

/// Options and sizes of a delta-rule state.
#[derive(Clone, Copy, Debug)]
pub struct DeltaOptions {
    /// Sizes and options of heads.
    pub heads: HeadOptions,
    /// Largest write strength, 1 or 2: strengths beyond 1 let the state change its sign along a key.
    pub greatest: f64,
    /// Whether the state decays.
    pub decay: bool,
}

/// State updates by the delta rule.
#[derive(Module, Debug)]
pub struct DeltaRule {
    /// Map to write strengths, `[C, H]`.
    pub strength: Linear,
    /// Decay of the state; the state does not decay if absent.
    pub decay: Option<SelectiveDecay>,
    greatest: f64,
}

impl DeltaOptions {
    /// Adds projections without biases, convolutions, normalisation and gate around the rule.
    pub(super) fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<GatedRecurrence<DeltaRule>> {
        let rule = DeltaRule {
            strength: init::linear(spec.d_model, spec.heads, false, &key.named("strength"), device),
            decay: self.decay.then(|| SelectiveDecay::new(0.0, spec, &key.named("decay"), device)),
            greatest: self.greatest,
        };
        self.heads.around(rule, spec, key, device)
    }
}

/// `[B, H, N, K]` scaled to length `length` over the last dimension; 0 stays 0.
fn of_length(length: f64, x: Tensor<4>) -> Tensor<4> {
    let scale = Scale { averages: false, epsilon: LENGTH_EPSILON, factor: length };
    RowNorm { x: in_32_bits(x), scale, gain: None, gate: None }.execute()
}

impl Rule for DeltaRule {
    const DELTA: bool = true;

    fn recurrence(&self, [queries, keys, values]: [Tensor<4>; 3], x: &Tensor<3>, _: usize) -> Recurrence {
        let ([.., width], heads) = (keys.dims(), values.dims()[1]);
        let strengths = sigmoid(split_heads(linear(x.clone(), &self.strength), heads));
        Recurrence {
            queries: repeat_heads(of_length((width as f64).powf(-0.5), queries), heads),
            keys: repeat_heads(of_length(1.0, keys), heads),
            values,
            log_decay: self.decay.as_ref().map(|decay| decay.log_decay(decay.steps(x.clone()))),
            strengths: Some(if self.greatest == 1.0 { strengths } else { strengths * self.greatest }),
            normalised: false,
        }
    }
}

/// Description of the write-strength weights.
pub(super) const STRENGTH: (&str, &str) = ("strength.weight", "map to the write strengths [d_in, heads]");

/// Yang et al. 2024b, equations 1 to 3, and Yang et al. 2025, equation 10, pair by pair.
pub(super) fn formula<'a>(options: impl Fn(&LayerSpec) -> DeltaOptions + Copy + 'a) -> Formula<'a> {
    let rule = move |query: &Query, heads: PlainRecurrence| {
        let DeltaOptions { greatest, decay, .. } = options(query.spec());
        let (width, all) = (heads.query.len(), || 0..query.keys());
        let unit = |x: &Vec<f64>| -> Vec<f64> {
            let length = (x.iter().map(|x| x * x).sum::<f64>() + LENGTH_EPSILON).sqrt();
            x.iter().map(|x| x / length).collect()
        };
        let of_head = |map: &str, index: usize| query.mapped(map, query.attended(index))[query.head];
        let log_decay = |index: usize| {
            let step = plain_softplus(of_head("mixer.decay.step", index));
            vec![-query.parameter("mixer.decay.a_log").values[query.head].exp() * step; width]
        };
        PlainRecurrence {
            query: unit(&heads.query).iter().map(|x| x / (width as f64).sqrt()).collect(),
            keys: heads.keys.iter().map(unit).collect(),
            log_decay: if decay { all().map(log_decay).collect() } else { heads.log_decay },
            strengths: Some(all().map(|index| greatest * plain_sigmoid(of_head("mixer.strength", index))).collect()),
            ..heads
        }
    };
    gated_recurrence::formula(move |spec| options(spec).heads, rule)
}
