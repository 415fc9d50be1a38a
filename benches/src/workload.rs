//! One self-attention of any mechanism, forward or with its backward pass.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use heedful_attention::prelude::*;
use heedful_models::kernels::precision::{Precision, cast};
use serde::{Deserialize, Serialize};

/// Sizes of a self-attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Sequences at once, `B`.
    pub batch: usize,
    /// Elements of a sequence, `N`.
    pub length: usize,
    /// Width of the model, `C`.
    pub d_model: usize,
    /// Heads, `H`, a divisor of the width.
    pub heads: usize,
    /// Heads of keys and values, a divisor of the heads; as many as heads if there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
}

impl Sizes {
    /// A sequence `[B, N, C]` of normally distributed numbers, the same in every run.
    pub fn sequence(&self, device: &Device) -> Tensor<3> {
        Init::Normal(1.0).tensor([self.batch, self.length, self.d_model], &RandomKey::from_seed(1), device)
    }

    /// Where an attention of these sizes stands: alone.
    pub fn spec(&self, role: Role) -> LayerSpec {
        LayerSpec::new(role, self.d_model, self.heads).with_kv_heads(self.kv_heads).with_max_length(self.length)
    }
}

/// A self-attention and a sequence for it.
#[derive(Debug)]
pub struct Workload {
    attention: AnyAttention,
    without_autodiff: AnyAttention,
    sequence: Tensor<3>,
    /// What an earlier segment left.
    memory: Option<Tensor<3>>,
    visibility: Visibility,
    /// What says which weights are dropped in training.
    dropped: Option<RandomKey>,
    engine: Engine,
}

impl Workload {
    /// The mechanism, causal if it can be, and a random sequence, on a device with autodiff.
    ///
    /// # Errors
    /// If the mechanism is impossible with these sizes.
    pub fn new(attention: &AnyMechanism, sizes: Sizes, engine: Engine, device: &Device) -> Result<Self, ConfigError> {
        Self::with_dropout(attention, sizes, 0.0, engine, device)
    }

    /// The same, which drops weights in training with a probability.
    ///
    /// # Errors
    /// If the mechanism is impossible with these sizes.
    pub fn with_dropout(
        attention: &AnyMechanism,
        sizes: Sizes,
        dropout: f64,
        engine: Engine,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        let role = if attention.can_be_causal() { Role::Decoder } else { Role::Encoder };
        Self::at(attention, sizes, &sizes.spec(role).with_dropout(dropout), engine, Precision::F32, device)
    }

    /// The same with weights and a sequence of other numbers, causal in a decoder and bidirectional elsewhere.
    ///
    /// # Errors
    /// If the mechanism is impossible with these sizes.
    pub fn with(
        attention: &AnyMechanism,
        sizes: Sizes,
        role: Role,
        engine: Engine,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        Self::at(attention, sizes, &sizes.spec(role), engine, precision, device)
    }

    fn at(
        attention: &AnyMechanism,
        sizes: Sizes,
        spec: &LayerSpec,
        engine: Engine,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        let visibility = if spec.role == Role::Decoder { Visibility::causal() } else { Visibility::all() };
        attention.validate(spec)?;
        let device = device.clone().autodiff();
        let attention = cast(attention.init(spec, &RandomKey::from_seed(0), &device), precision.dtype());
        let sequence = sizes.sequence(&device).cast(precision.dtype());
        let dropped = (spec.dropout > 0.0).then(|| RandomKey::from_seed(2));
        Ok(Self { without_autodiff: attention.valid(), attention, sequence, memory: None, visibility, dropped, engine })
    }

    /// The same behind a segment as long as the sequence, which the attention remembers.
    pub fn after_segment(self) -> Self {
        Self { memory: Some(self.sequence.clone().flip([1])), ..self }
    }

    /// The layer, on a device with autodiff.
    pub fn attention(&self) -> &AnyAttention {
        &self.attention
    }

    /// Runs the attention, without a graph for its gradients, and waits for the result.
    pub fn forward(&self) -> Tensor<3> {
        let memory = self.memory.clone().map(Tensor::inner);
        let context = self.attend(&self.without_autodiff, self.sequence.clone().inner(), memory, None);
        wait(&context);
        context
    }

    /// Runs the attention and its backward pass, and waits for the gradient of the sequence.
    pub fn forward_backward(&self) -> Tensor<3> {
        gradient_of(&self.sequence, |sequence| self.attend(&self.attention, sequence, self.memory.clone(), self.dropped))
    }

    fn attend(&self, attention: &AnyAttention, sequence: Tensor<3>, memory: Option<Tensor<3>>, dropped: Option<RandomKey>) -> Tensor<3> {
        let input = match memory {
            Some(memory) => AttentionInput::segment(sequence, memory),
            None => AttentionInput::self_attention(sequence),
        };
        let input = input.visibility(self.visibility.clone()).engine(self.engine).random(dropped);
        attention.forward(input, &mut Probe::off()).context
    }
}

/// Runs `module` forward and backward from the sum of its output, and waits for the gradient of the sequence.
pub(crate) fn gradient_of(sequence: &Tensor<3>, module: impl FnOnce(Tensor<3>) -> Tensor<3>) -> Tensor<3> {
    let sequence = sequence.clone().detach().require_grad();
    let gradient = sequence.grad(&module(sequence.clone()).sum().backward()).expect("the sequence requires a gradient");
    wait(&gradient);
    gradient
}

pub(crate) fn wait<const D: usize>(x: &Tensor<D>) {
    x.device().sync().expect("the device finishes its work");
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Sizes = Sizes { batch: 2, length: 8, d_model: 16, heads: 4, kv_heads: None };

    #[test]
    fn every_mechanism_runs_forward_and_backward() {
        for config in AnyMechanism::all() {
            let workload = Workload::new(&config, TINY, Engine::Fused, &Device::flex()).unwrap();
            assert_eq!(workload.forward().dims(), [2, 8, 16]);
            let slopes = workload.forward_backward().abs().sum().into_scalar::<f32>();
            assert!(slopes > 0.0, "{config}: the gradient is {slopes}");
        }
    }

    #[test]
    fn a_memory_is_attended_to_and_weights_are_dropped_in_training_alone() {
        let workload = |dropout| Workload::with_dropout(&AnyMechanism::default(), TINY, dropout, Engine::Auto, &Device::flex()).unwrap();
        let differs = |a: Tensor<3>, b: Tensor<3>| (a - b).abs().max().into_scalar::<f32>() > 1e-4;
        assert!(differs(workload(0.0).after_segment().forward(), workload(0.0).forward()));
        assert!(differs(workload(0.0).after_segment().forward_backward(), workload(0.0).forward_backward()));
        assert!(differs(workload(0.5).forward_backward(), workload(0.0).forward_backward()));
        assert!(!differs(workload(0.5).forward(), workload(0.0).forward()));
    }

    #[test]
    fn an_impossible_size_is_refused() {
        let odd = Sizes { heads: 3, ..TINY };
        assert!(Workload::new(&AnyMechanism::default(), odd, Engine::Fused, &Device::flex()).is_err());
    }
}
