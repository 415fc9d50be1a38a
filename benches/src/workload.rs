//! One self-attention of any mechanism, forward or with its backward pass.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Tensor};
use heedful_attention::any::{AnyAttention, AttentionConfig};
use heedful_attention::contract::{Attention, AttentionInput};
use heedful_attention::placement::{Placement, Role};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_attention::visibility::Visibility;

/// Width of the model.
pub const D_MODEL: usize = 128;
/// Heads of the attention.
pub const HEADS: usize = 4;

/// A causal self-attention and a sequence for it.
#[derive(Debug)]
pub struct Workload {
    attention: AnyAttention,
    without_autodiff: AnyAttention,
    sequence: Tensor<3>,
    visibility: Visibility,
}

impl Workload {
    /// The mechanism with default options, causal if it can be, and a random sequence `[batch, length, D_MODEL]`, on a device with autodiff.
    ///
    /// # Panics
    /// If no mechanism has this name.
    pub fn new(attention: &str, batch: usize, length: usize, device: &Device) -> Self {
        let config: AttentionConfig = attention.parse().expect("the benchmark names a known mechanism");
        let (role, visibility) =
            if config.can_be_causal() { (Role::Decoder, Visibility::causal()) } else { (Role::Encoder, Visibility::all()) };
        let placement = Placement { role, layer: 0, layers: 1, d_model: D_MODEL, heads: HEADS, max_length: length, dropout: 0.0 };
        let device = device.clone().autodiff();
        let attention = config.init(&placement, &RandomKey::from_seed(0), &device);
        Self {
            without_autodiff: attention.valid(),
            attention,
            sequence: Tensor::random([batch, length, D_MODEL], Distribution::Default, &device),
            visibility,
        }
    }

    /// Runs the attention, without a graph for its gradients, and waits for the result.
    pub fn forward(&self) -> Tensor<3> {
        let input = AttentionInput::self_attention(self.sequence.clone().inner()).visibility(self.visibility.clone());
        let context = self.without_autodiff.forward(input, &mut Probe::off()).context;
        wait(&context);
        context
    }

    /// Runs the attention and its backward pass, and waits for the gradient of the sequence.
    pub fn forward_backward(&self) {
        let sequence = self.sequence.clone().detach().require_grad();
        let input = AttentionInput::self_attention(sequence.clone()).visibility(self.visibility.clone());
        let context = self.attention.forward(input, &mut Probe::off()).context;
        let gradient = sequence.grad(&context.sum().backward()).expect("the sequence requires a gradient");
        wait(&gradient);
    }
}

fn wait(x: &Tensor<3>) {
    x.device().sync().expect("the device finishes its work");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_runs_forward_and_backward() {
        for config in AttentionConfig::all() {
            let workload = Workload::new(&config.name(), 1, 8, &Device::flex());
            assert_eq!(workload.forward().dims(), [1, 8, D_MODEL]);
            workload.forward_backward();
        }
    }
}
