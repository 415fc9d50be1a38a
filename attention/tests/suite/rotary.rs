//! Scores that depend on where a key stands by itself: rotated keys, remembered as they were rotated.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use heedful_attention::conformance::{Property, Subject};
use heedful_attention::mechanisms::rotary::Rotary;
use heedful_attention::prelude::*;

use crate::backends::flex;
use crate::variants::spec;

#[derive(Module, Debug)]
struct Forgetful {
    logits: Rotary,
    /// Whether positions of keys count from 0 again in each step.
    forgets: bool,
}

impl Logits for Forgetful {
    fn abilities(&self) -> LogitAbilities {
        self.logits.abilities()
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        let forgotten = Positions::default();
        self.logits.keys(memory, if self.forgets { &forgotten } else { positions })
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        self.logits.terms(query, keys, span, positions)
    }
}

#[test]
fn keys_that_are_rotated_from_the_beginning_at_each_step_are_noticed() {
    for forgets in [false, true] {
        let build = move |place: &LayerSpec, key: &RandomKey, device: &Device| {
            let logits = RotaryConfig::default().init(place, &key.named("logits"), device);
            SoftmaxAttention::new(Forgetful { logits, forgets }, place, key, device)
        };
        let subject = Subject::new(spec(Role::Decoder, 2).with_d_model(8), build, &flex().device);
        assert_eq!(Property::Steps.check(&subject).is_err(), forgets);
    }
}
