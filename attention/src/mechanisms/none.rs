//! No attention: the sublayer is removed, and its residual branch adds nothing.
//!
//! `Y = 0`: only the residual connection of the sublayer remains. With pre-normalisation the stream passes unchanged, `x`; with post-normalisation the norm
//! still acts, `norm(x)`, so that a trained model keeps its scale. There are no parameters, not even value and output projections, and no position sees
//! another. The loss in quality against a full model measures the contribution of attention.
//!
//! This is an ablation, not a mechanism: lists, pages, costs and pictures of all mechanisms omit it. For a decoder's cross-attention, a layout reads `none` as
//! a layer without that sublayer, normalisation included.

use crate::mechanisms::prelude::*;

/// Configuration of [`NoAttention`], without options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NoneConfig {}

/// Returns zeros for any input.
///
/// Should be created with [`NoneConfig`].
#[derive(Module, Debug, Default)]
pub struct NoAttention {}

impl Mechanism for NoneConfig {
    type Module = AttentionOf<NoAttention>;
    const NAME: &'static str = "none";
    const CARD: Card = Card {
        variant: "NoAttention",
        description: "Removes the attention sublayer: its residual branch adds nothing.",
        source: "the ablation of attention itself",
        kind: Kind::Whole,
        time: "0",
        state: "0",
        has_engines: false,
        positioning: Some(Positioning::None),
        ..Card::DEFAULT
    };

    /// Lists of all mechanisms omit this ablation: it has no weights, no cost and no paper.
    fn examples() -> Vec<Self> {
        Vec::new()
    }

    fn init(&self, _spec: &LayerSpec, _key: &RandomKey, _device: &Device) -> NoAttention {
        NoAttention {}
    }

    /// Zeros.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(|query: &Query| vec![0.0; query.spec().d_head()]))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::none())
    }
}

/// Maximum and current number of positions.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    length: usize,
    capacity: usize,
}

impl Attention for NoAttention {
    type State = Passed;

    fn abilities(&self) -> Abilities {
        Abilities::new(Causality::ByConstruction)
    }

    fn forward(&self, input: AttentionInput, _: &mut Probe) -> AttentionOutput {
        AttentionOutput::new(nothing(input.query))
    }

    /// # Panics
    /// If a memory is given.
    fn state(&self, start: &DecodingStart) -> Passed {
        assert!(start.memory().is_none(), "a layer without attention is not over another sequence");
        Passed { length: 0, capacity: start.capacity() }
    }

    fn step(&self, query: Tensor<3>, state: &mut Passed, _: &mut Probe) -> AttentionOutput {
        state.length += query.dims()[1];
        assert!(state.length <= state.capacity, "{} positions exceed the state's capacity {}", state.length, state.capacity);
        AttentionOutput::new(nothing(query))
    }

    fn select(&self, _state: &mut Passed, _rows: &[usize]) {}

    fn state_bytes(&self, _state: &Passed) -> Option<usize> {
        Some(0)
    }

    fn multiplications(&self, _pairs: &QueryKeyPairs) -> f64 {
        0.0
    }
}

/// Zeros in the shape of `x`, as a differentiable product with gradient 0.
fn nothing(x: Tensor<3>) -> Tensor<3> {
    x * 0.0
}
