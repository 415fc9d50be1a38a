//! One step of decoding by an attention whose state holds a sequence.

use burn::tensor::{Device, Tensor};
use heedful_attention::description::AnyState;
use heedful_attention::prelude::*;
use heedful_models::kernels::precision::{Precision, cast};

use crate::workload::{Sizes, wait};

/// A causal attention with the state of a sequence that it has read.
#[derive(Debug)]
pub struct DecodeStep {
    attention: AnyAttention,
    state: Option<AnyState>,
    sequence: Tensor<3>,
    capacity: usize,
    engine: Engine,
}

impl DecodeStep {
    /// Positions that are read at once before the steps.
    const CHUNK: usize = 256;

    /// The mechanism and a random sequence, after which there is room for `steps` steps, on a device without autodiff.
    ///
    /// # Errors
    /// If the mechanism is impossible with these sizes.
    pub fn new(
        attention: &AnyMechanism,
        sizes: Sizes,
        steps: usize,
        engine: Engine,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, ConfigError> {
        let capacity = sizes.length + steps;
        let spec = Sizes { length: capacity, ..sizes }.spec(Role::Decoder);
        attention.validate(&spec)?;
        let attention = cast(attention.init(&spec, &RandomKey::from_seed(0), device), precision.dtype());
        let sequence = sizes.sequence(device).cast(precision.dtype());
        Ok(Self { attention, state: None, sequence, capacity, engine })
    }

    /// The layer.
    pub fn attention(&self) -> &AnyAttention {
        &self.attention
    }

    /// Makes a state and reads the sequence.
    pub fn begin(&mut self) {
        let [batch, length, _] = self.sequence.dims();
        let start = DecodingStart::self_attention(batch, self.capacity).with_engine(self.engine);
        self.state = Some(self.attention.state(&start));
        for start in (0..length).step_by(Self::CHUNK) {
            self.read(self.sequence.clone().narrow(1, start, Self::CHUNK.min(length - start)));
        }
    }

    /// Attends from the next position, whose input is the last element of the sequence again, to all before it, and waits for the result `[B, 1, C]`.
    ///
    /// # Panics
    /// If it has not [begun](Self::begin), or there is no more room.
    pub fn run(&mut self) -> Tensor<3> {
        let length = self.sequence.dims()[1];
        let context = self.read(self.sequence.clone().narrow(1, length - 1, 1));
        wait(&context);
        context
    }

    fn read(&mut self, chunk: Tensor<3>) -> Tensor<3> {
        let state = self.state.as_mut().expect("the sequence was read");
        self.attention.step(chunk, state, &mut Probe::off()).context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_attends_to_the_whole_sequence() {
        let sizes = Sizes { batch: 2, length: 8, d_model: 16, heads: 4, kv_heads: None };
        // Where LSH attention hashes, later elements shift the borders of chunks.
        let all_pairs = |config: AnyMechanism| match config.get::<LshConfig>() {
            Some(lsh) => lsh.clone().with_full_attention_below(16).into(),
            None => config,
        };
        for config in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal).map(all_pairs) {
            let mut step = DecodeStep::new(&config, sizes, 2, Engine::default(), Precision::F32, &Device::flex()).unwrap();
            step.begin();
            let found = step.run();
            let longer = Tensor::cat(vec![step.sequence.clone(), step.sequence.clone().narrow(1, 7, 1)], 1);
            let whole = AttentionInput::self_attention(longer).visibility(Visibility::causal());
            let expected = step.attention.forward(whole, &mut Probe::off()).context.narrow(1, 8, 1);
            let difference = (found - expected).abs().max().into_scalar::<f32>();
            assert!(difference < 1e-5, "{config}: {difference}");
        }
    }
}
