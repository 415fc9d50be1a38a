//! Heads of a user's own, which are made of two softmaxes.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use heedful_attention::conformance::{Property, Subject};
use heedful_attention::mechanisms::dot_product::DotProduct;
use heedful_attention::mechanisms::uniform::Uniform;
use heedful_attention::prelude::*;
use heedful_attention::softmax_attention::logits::LogitsRef;
use heedful_attention::softmax_attention::{HeadCall, Heads};

use crate::backends::backends;

/// The mean of dot-product attention and of the mean of all values.
#[derive(Module, Debug)]
struct Mean {
    content: DotProduct,
    all: Uniform,
}

impl Heads for Mean {
    fn scores(&self) -> Vec<LogitsRef<'_>> {
        vec![&self.content, &self.all]
    }

    fn attend(&self, call: HeadCall, _: &mut Probe) -> Tensor<4> {
        let mut other = call.clone();
        other.keys = None;
        other.random = other.random.map(|key| key.named("all"));
        (call.weighed_by(&self.content, &mut Probe::off()) + other.weighed_by(&self.all, &mut Probe::off())) / 2.0
    }
}

fn subject(role: Role, device: &Device) -> Subject<SoftmaxAttention<Mean>> {
    let spec = LayerSpec::new(role, 8, 4).with_kv_heads(Some(2)).with_max_length(8).with_dropout(0.3);
    let build = |place: &LayerSpec, key: &RandomKey, device: &Device| {
        let content = DotProductConfig::default().init(place, &key.named("content"), device);
        let heads = Mean { content, all: UniformConfig::default().init(place, key, device) };
        SoftmaxAttention::new(heads, place, key, device)
    };
    Subject::new(spec, build, device)
}

#[test]
fn heads_of_two_softmaxes_do_all_that_an_attention_must_do() {
    for backend in backends() {
        for role in [Role::Encoder, Role::Decoder, Role::Cross] {
            let subject = subject(role, &backend.device).unmoved_within(backend.unmoved()).rounding(backend.rounding);
            assert!(!Property::Weights.is_asked_of(&subject), "they show none");
            subject.check().unwrap_or_else(|report| panic!("{role:?} on {}: {report}", backend.name));
        }
    }
}
