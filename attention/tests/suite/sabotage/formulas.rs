//! A sound mechanism that states its formula wrongly in one way each: the property that compares them has to notice.

use burn::tensor::Device;
use heedful_attention::conformance::{Property, Subject};
use heedful_attention::description::formula::{distribution, dot, softmax};
use heedful_attention::description::{Formula, Query};
use heedful_attention::mechanisms::dot_product::DotProduct;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use crate::backends::flex;
use crate::variants::{parse, spec};

/// What the formula says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Fault {
    #[default]
    Nothing,
    /// There is none.
    NotGiven,
    /// Logits are not divided by `sqrt(D)`.
    ScaleMissing,
    /// The query is scored with its own key.
    OtherKey,
    /// A query does not see itself.
    OwnPositionHidden,
    /// Weights are those of scores twice as high.
    SharperWeights,
    /// The values of all keys are that of the query.
    OtherValue,
    /// Each head gives the negative of what it should.
    HeadNegated,
}

/// Dot-product attention.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Misstated {
    fault: Fault,
}

impl Mechanism for Misstated {
    type Module = LogitsOf<DotProduct>;
    const NAME: &'static str = "misstated";
    const CARD: Card = DotProductConfig::CARD;

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> DotProduct {
        DotProductConfig::default().init(spec, key, device)
    }

    fn formula(&self) -> Option<Formula<'_>> {
        let fault = self.fault;
        let weights = move |query: &Query| {
            let sharpness = if fault == Fault::SharperWeights { 2.0 } else { 1.0 };
            softmax(&query.scores().into_iter().map(|score| score.map(|score| sharpness * score)).collect::<Vec<_>>())
        };
        let formula = Formula::default()
            .logit(move |query, key| {
                let key = if fault == Fault::OtherKey { query.index.min(query.keys() - 1) } else { key };
                let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
                let scale = if fault == Fault::ScaleMissing { 1.0 } else { (q.len() as f64).sqrt() };
                dot(&q, &k) / scale
            })
            .shows(move |query, key| fault != Fault::OwnPositionHidden || query.position() != query.position_of(key))
            .weights(weights)
            .value(move |query, key| {
                query.projected("value", if fault == Fault::OtherValue { query.element() } else { query.attended(key) })
            });
        match fault {
            Fault::NotGiven => None,
            Fault::HeadNegated => Some(formula.head(move |query| {
                let mut sum = vec![0.0; query.spec().d_head()];
                for (key, weight) in weights(query).into_iter().enumerate() {
                    sum.iter_mut().zip(query.projected("value", query.attended(key))).for_each(|(sum, value)| *sum -= weight * value);
                }
                sum
            })),
            _ => Some(formula),
        }
    }
}

fn subject(fault: Fault, role: Role) -> Subject<AnyAttention> {
    Subject::of(&Misstated { fault }.into(), spec(role, 2), &flex().device)
}

#[test]
fn a_wrong_formula_is_noticed_and_a_right_one_is_not() {
    let faults =
        [Fault::ScaleMissing, Fault::OtherKey, Fault::OwnPositionHidden, Fault::SharperWeights, Fault::OtherValue, Fault::HeadNegated];
    for role in [Role::Encoder, Role::Decoder, Role::Cross] {
        assert_eq!(Property::Formula.check(&subject(Fault::Nothing, role)), Ok(()), "{role:?}");
        for fault in faults {
            let error = Property::Formula.check(&subject(fault, role)).expect_err(&format!("{fault:?} in {role:?} was not noticed"));
            assert!(!error.starts_with("panic"), "{fault:?} in {role:?}: {error}");
        }
    }
}

#[test]
fn a_wrong_formula_is_noticed_in_what_is_made_of_the_mechanism() {
    let over = |fault| -> [AnyMechanism; 4] {
        let member: AnyMechanism = Misstated { fault }.into();
        [
            MixtureConfig::default().with_members(vec![parse("random"), member.clone()]).into(),
            SlidingWindowConfig::default().with_window(3).with_logits(member.clone()).into(),
            parse("softmax-plus-one").over(SlidingWindowConfig::default().with_window(3).with_logits(member.clone()).into()).unwrap(),
            parse("output-gate").over(member).unwrap(),
        ]
    };
    let check = |mechanism: &AnyMechanism| {
        let subject = Subject::of(mechanism, spec(Role::Decoder, 2), &flex().device).unnormalised();
        (Property::Formula.is_asked_of(&subject), Property::Formula.check(&subject))
    };
    for mechanism in over(Fault::Nothing) {
        assert_eq!(check(&mechanism), (true, Ok(())), "{mechanism}");
    }
    for mechanism in over(Fault::ScaleMissing) {
        assert!(check(&mechanism).1.is_err(), "{mechanism}");
    }
    // A formula of which a part is not known is not asked.
    for mechanism in over(Fault::NotGiven) {
        assert_eq!(check(&mechanism), (false, Ok(())), "{mechanism}");
    }
}

#[test]
fn weights_are_shares_of_their_sum_unless_that_is_zero() {
    assert_eq!(distribution(vec![1.0, 3.0]), [0.25, 0.75]);
    assert_eq!(distribution(vec![0.0, 0.0]), [0.0, 0.0]);
    assert_eq!(softmax(&[None, Some(7.0), None, Some(7.0)]), [0.0, 0.5, 0.0, 0.5]);
    assert_eq!(softmax(&[None, None]), [0.0, 0.0]);
}
