//! Segment recurrence (Dai et al. 2019, section 3.2): a stack's memory of earlier segments.
//!
//! A long sequence is read segment by segment. Each layer attends to its own inputs in the current segment and in the last `M` positions before it, which are
//! cached without gradients. So a model of `N` layers looks back `N M` positions, at the cost of one segment per step. Stacks with pre-normalisation normalise
//! the memory together with the segment, with the current weights.
//!
//! Rows can be cleared at different times, as episodes end at different times: cleared positions act like left padding.

use std::sync::Arc;

use burn::tensor::Tensor;
use heedful_attention::prelude::*;

/// Layer inputs of a stack in the last positions of each batch row.
#[derive(Clone, Debug)]
pub struct SegmentMemory {
    /// `[B, M', C]` per layer, `M' <= M`; empty before the first segment.
    layers: Vec<Tensor<3>>,
    /// Number of positions that each row remembers.
    remembered: Vec<usize>,
    length: usize,
}

impl SegmentMemory {
    /// Empty memory of `batch` rows, for at most `length` positions each.
    pub fn new(batch: usize, length: usize) -> Self {
        Self { layers: Vec::new(), remembered: vec![0; batch], length }
    }

    /// Memory of at most `length` positions, restored from another memory's [`layers`](Self::layers) and [`remembered`](Self::remembered).
    ///
    /// # Panics
    /// If the tensors differ in shape, the number of batch rows differs from the number of counts, or the tensors hold more than `length` positions or fewer
    /// than are remembered.
    pub fn holding(length: usize, layers: Vec<Tensor<3>>, remembered: Vec<usize>) -> Self {
        let held = layers.first().map_or(0, |layer| layer.dims()[1]);
        let expected = layers.first().map(|layer| [remembered.len(), held, layer.dims()[2]]);
        for layer in &layers {
            assert_eq!(Some(layer.dims()), expected, "shape of a layer's memory, for {} rows", remembered.len());
        }
        assert!(held <= length, "{held} positions in a memory of {length}");
        assert!(remembered.iter().all(|&remembered| remembered <= held), "{remembered:?} positions remembered of {held}");
        Self { layers, remembered, length }
    }

    /// Maximum number of remembered positions per row.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Layer inputs, `[B, M', C]` without gradients; empty if nothing is remembered.
    pub fn layers(&self) -> &[Tensor<3>] {
        &self.layers
    }

    /// Number of stored positions, remembered or not.
    pub fn held(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.dims()[1])
    }

    /// Number of last positions that each row remembers.
    pub fn remembered(&self) -> &[usize] {
        &self.remembered
    }

    /// Clears the marked rows.
    ///
    /// # Panics
    /// If the number of marks differs from the number of rows.
    pub fn forget(&mut self, marked: &[bool]) {
        assert_eq!(marked.len(), self.remembered.len(), "marks for rows of the memory");
        for (remembered, _) in self.remembered.iter_mut().zip(marked).filter(|(_, marked)| **marked) {
            *remembered = 0;
        }
        if self.remembered.iter().all(|&remembered| remembered == 0) {
            self.layers.clear();
        }
    }

    /// Positions of the next segment. Positions that a row does not remember act as left padding.
    pub fn positions(&self) -> Positions {
        let held = self.held();
        let forgotten: Arc<[usize]> = self.remembered.iter().map(|remembered| held - remembered).collect();
        Positions::from_start(held).with_left_padding(forgotten)
    }

    /// Memory of a layer, `[B, M', C]`, if any.
    pub(crate) fn layer(&self, layer: usize) -> Option<Tensor<3>> {
        self.layers.get(layer).cloned()
    }

    /// Checks that a stack with `layers` layers can read segments like `x` `[B, N, C]`.
    ///
    /// # Panics
    /// If it cannot.
    pub(crate) fn check(&self, layers: usize, x: &Tensor<3>) {
        let [batch, _, width] = x.dims();
        assert_eq!(self.remembered.len(), batch, "rows of the memory for a segment of {batch} rows");
        if let Some(layer) = self.layers.first() {
            let of_memory = [self.layers.len(), layer.dims()[2]];
            assert_eq!(of_memory, [layers, width], "layers and width of the memory, for a stack of {layers} layers of width {width}");
        }
    }

    /// Stores the inputs of all layers in a segment, `[B, N, C]` each.
    pub(crate) fn remember(&mut self, inputs: Vec<Tensor<3>>) {
        let segment = inputs[0].dims()[1];
        let held = (self.held() + segment).min(self.length);
        let last = |old: Option<Tensor<3>>, new: Tensor<3>| {
            let all = match old {
                Some(old) => Tensor::cat(vec![old, new.detach()], 1),
                None => new.detach(),
            };
            let length = all.dims()[1];
            all.narrow(1, length - held, held)
        };
        let mut old = std::mem::take(&mut self.layers).into_iter();
        if held > 0 {
            self.layers = inputs.into_iter().map(|input| last(old.next(), input)).collect();
        }
        for remembered in &mut self.remembered {
            *remembered = (*remembered + segment).min(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Int};

    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::block::BlockConfig;
    use crate::block::layer_sharing::{DepthConfig, SharedConfig};
    use crate::parts::position::PositionConfig;
    use crate::parts::residual::NormOrder;

    fn model(attention: AnyMechanism, change: impl FnOnce(LanguageModelConfig) -> LanguageModelConfig, device: &Device) -> LanguageModel {
        let block = BlockConfig {
            d_model: 8,
            heads: 2,
            d_ff: 16,
            max_length: 32,
            dropout: 0.0,
            norm_order: NormOrder::Pre,
            ..BlockConfig::default()
        };
        let config =
            LanguageModelConfig { vocabulary: 11, attention: attention.into(), layers: 2, block, ..LanguageModelConfig::default() };
        let config = change(config);
        config.validate().unwrap();
        config.init(&RandomKey::from_seed(5), device)
    }

    fn plain(attention: AnyMechanism) -> LanguageModel {
        model(attention, |config| config, &Device::flex())
    }

    fn relative() -> AnyMechanism {
        "relative".parse().unwrap()
    }

    fn without_positions(config: LanguageModelConfig) -> LanguageModelConfig {
        LanguageModelConfig { positions: PositionConfig::None, ..config }
    }

    fn tokens(device: &Device) -> Tensor<2, Int> {
        Tensor::from_data([[2, 5, 7, 1, 3, 8, 9, 4, 2], [6, 9, 4, 4, 6, 2, 1, 3, 5]], device)
    }

    fn read(model: &LanguageModel, memory: &mut SegmentMemory, tokens: Tensor<2, Int>) -> Tensor<3> {
        model.segment(tokens, memory, None, &mut Probe::off()).states
    }

    fn difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
        (a - b).abs().max().into_scalar()
    }

    #[test]
    fn segments_that_remember_everything_are_one_sequence() {
        let tokens = tokens(&Device::flex());
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
            for depth in [DepthConfig::Stacked, DepthConfig::Shared(SharedConfig::default())] {
                let model = model(attention.clone(), |config| LanguageModelConfig { depth, ..config }, &Device::flex());
                let whole = model.hidden(tokens.clone(), &[], None, &mut Probe::off()).states;
                let mut memory = SegmentMemory::new(2, 9);
                let parts = [0..3, 3..4, 4..9].map(|part| read(&model, &mut memory, tokens.clone().narrow(1, part.start, part.len())));
                let found = difference(Tensor::cat(parts.to_vec(), 1), whole);
                assert!(found < 1e-4, "{attention}, {depth:?}: {found}");
            }
        }
    }

    #[test]
    fn models_look_back_one_memory_for_each_layer() {
        let device = Device::flex();
        for layers in [1, 2, 3] {
            let model = model(relative(), |config| LanguageModelConfig { layers, ..config }, &device);
            let last = |first: i32, distance: usize| {
                let mut memory = SegmentMemory::new(1, 1);
                let tokens = std::iter::once(first).chain(3..).take(distance + 1);
                tokens.map(|token| read(&model, &mut memory, Tensor::from_data([[token]], &device))).last().unwrap()
            };
            assert!(difference(last(1, layers), last(2, layers)) > 1e-5, "{layers} layers");
            assert_eq!(difference(last(1, layers + 1), last(2, layers + 1)), 0.0, "{layers} layers");
        }
    }

    #[test]
    fn no_gradient_reaches_earlier_segments() {
        let device = Device::flex().autodiff();
        let model = model(relative(), without_positions, &device);
        let mut memory = SegmentMemory::new(2, 3);
        let x = || model.embedding.forward(tokens(&device).narrow(1, 0, 3), &Positions::default(), None).detach().require_grad();
        let (first, second) = (x(), x());
        model.decoder.segment(first.clone(), &mut memory, None, &mut Probe::off());
        let loss = model
            .decoder
            .segment(second.clone(), &mut memory, None, &mut Probe::off())
            .states
            .powi_scalar(2)
            .slice([0..2, 0..3, 0..3])
            .sum();
        let gradients = loss.backward();
        assert!(first.grad(&gradients).is_none() && second.grad(&gradients).is_some());
    }

    #[test]
    fn rows_forget_on_their_own() {
        let model = plain(relative());
        let tokens = tokens(&Device::flex());
        let mut memory = SegmentMemory::new(2, 5);
        read(&model, &mut memory, tokens.clone().narrow(1, 0, 3));
        memory.forget(&[false, true]);
        let after = read(&model, &mut memory, tokens.clone().narrow(1, 3, 3));
        assert_eq!(memory.remembered(), [5, 3]);
        let later = read(&model, &mut memory, tokens.clone().narrow(1, 6, 3));
        let row = |row: usize, start: usize| {
            let mut memory = SegmentMemory::new(1, 5);
            let tokens = tokens.clone().narrow(0, row, 1);
            let parts: Vec<_> = (start..3).map(|part| read(&model, &mut memory, tokens.clone().narrow(1, part * 3, 3))).collect();
            Tensor::cat(parts[1 - start..].to_vec(), 1)
        };
        // Sinusoids of absolute positions start at each row's own beginning.
        let found = Tensor::cat(vec![after, later], 1);
        assert!(difference(found.clone().narrow(0, 0, 1), row(0, 0)) < 1e-5);
        assert!(difference(found.narrow(0, 1, 1), row(1, 1)) < 1e-5);
    }

    #[test]
    fn a_memory_of_nothing_is_no_memory() {
        let model = plain(relative());
        let tokens = tokens(&Device::flex());
        let mut memory = SegmentMemory::new(2, 0);
        for part in [0, 3] {
            let tokens = tokens.clone().narrow(1, part, 3);
            let alone = model.hidden(tokens.clone(), &[], None, &mut Probe::off()).states;
            assert!(difference(read(&model, &mut memory, tokens), alone) < 1e-6);
        }
    }

    #[test]
    fn memories_hold_no_more_after_many_segments_of_training() {
        let device = Device::flex().autodiff();
        let mut model = model(relative(), without_positions, &device);
        let mut optimiser = burn::optim::AdamConfig::new().init();
        let mut memory = SegmentMemory::new(2, 7);
        for _ in 0..200 {
            let states = read(&model, &mut memory, tokens(&device).narrow(1, 0, 3));
            let gradients = burn::optim::GradientsParams::from_grads(states.powi_scalar(2).mean().backward(), &model);
            model = optimiser.step(1e-3, model, gradients);
            assert!(memory.held() <= 7 && memory.layers.iter().all(|layer| layer.dims()[1] == memory.held()));
        }
        assert_eq!(memory.held(), 7);
    }

    #[test]
    #[should_panic(expected = "rows of the memory for a segment of 2 rows")]
    fn a_memory_of_another_batch_is_refused() {
        read(&plain(relative()), &mut SegmentMemory::new(3, 7), tokens(&Device::flex()));
    }

    #[test]
    #[should_panic(expected = "layers and width of the memory")]
    fn a_memory_of_another_stack_is_refused() {
        let tokens = tokens(&Device::flex());
        let mut memory = SegmentMemory::new(2, 7);
        read(&plain(relative()), &mut memory, tokens.clone());
        let deeper = model(relative(), |config| LanguageModelConfig { layers: 3, ..config }, &Device::flex());
        read(&deeper, &mut memory, tokens);
    }
}
