//! The decoder-only Transformer: a language model.

mod classes;
mod config;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::contract::training::Training;
use heedful_attention::prelude::*;

pub use self::classes::{ClassState, OfClasses};
pub use self::config::LanguageModelConfig;
use crate::architectures::seq2seq::{Scores, last_position};
use crate::block::auxiliary::{AuxiliaryClassifiers, LayerLosses};
use crate::block::segment::SegmentMemory;
use crate::block::stack::{Stack, StackState, causal};
use crate::block::{Context, Hidden};
use crate::generation::{GenerationConfig, Hypothesis, StepDecoder, generate, left_padded};
use crate::parts::adaptive_softmax::AdaptiveSoftmax;
use crate::parts::embedding::{TokenEmbedding, output_matrix, project};
use crate::parts::loss::{CrossEntropy, cross_entropy, projected_cross_entropy, with_biases};

/// The decoder-only Transformer.
///
/// Should be created with [`LanguageModelConfig`].
#[derive(Module, Debug)]
pub struct LanguageModel<A: Attention = AnyAttention> {
    /// Embedding, also the output projection if tied.
    pub embedding: TokenEmbedding,
    /// The layers.
    pub decoder: Stack<A>,
    /// Output projection `[C, V]`, if not tied to the embedding.
    pub output: Option<Linear>,
    /// The [adaptive](crate::parts::adaptive_softmax) softmax that replaces it, for adaptive vectors.
    pub adaptive: Option<AdaptiveSoftmax>,
    /// Biases of the logits, `[V]`.
    pub output_bias: Option<Param<Tensor<1>>>,
    /// Classifiers of the [`auxiliary`](crate::block::auxiliary) losses, used only in training.
    pub auxiliary: Option<AuxiliaryClassifiers>,
    logit_softcap: Option<f64>,
    max_length: usize,
    training: Training,
}

impl<A: Attention> LanguageModel<A> {
    /// Logits `[B, N, V]` of the token after each token of `[B, N]`. Shorter rows are padded on the right with any token, which earlier tokens cannot see.
    ///
    /// Dropout follows Burn's layers: it is active if the model is on a device with autodiff and was neither frozen nor created by [`valid`](Module::valid).
    /// Each such call takes the next key of a stream that starts with the model's seed. [`forward_with`](Self::forward_with) is the full form, which also
    /// returns auxiliary losses. Training a mechanism with such losses (adaptive spans) requires it; a training call that discards losses logs one warning.
    ///
    /// # Panics
    /// If the sequences exceed the maximal length of the model.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let random = self.training.next_key(&self.device());
        let Scores { logits, losses } = self.forward_with(tokens, &[], random, &mut Probe::off());
        self.training.warn_of_lost(&losses, &self.device(), "forward_with");
        logits
    }

    /// Full form of [`forward`](Self::forward): logits `[B, N, V]` of the token after each token of `[B, N]`. Row `b` begins with `left_padding[b]` padding
    /// tokens (an empty slice: no padding). Right padding need not be declared, since earlier tokens cannot see it. Dropout is active if and only if a key is
    /// given.
    ///
    /// # Panics
    /// If the sequences exceed `max_length`.
    pub fn forward_with(&self, tokens: Tensor<2, Int>, left_padding: &[usize], random: Option<RandomKey>, probe: &mut Probe) -> Scores<3> {
        let hidden = self.hidden(tokens, left_padding, random, probe);
        Scores { logits: self.project(hidden.states), losses: hidden.losses }
    }

    /// Hidden states before the output projection of [`forward_with`](Self::forward_with), `[B, N, C]`.
    ///
    /// # Panics
    /// If the sequences exceed `max_length`.
    pub fn hidden(&self, tokens: Tensor<2, Int>, left_padding: &[usize], random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let (x, context) = self.embedded(tokens, None, left_padding, random);
        probe.within("decoder", None, |probe| self.decoder.forward(x, &context, random, probe))
    }

    /// Input of the layers for whole sequences, with an optional class for each token.
    fn embedded(
        &self,
        tokens: Tensor<2, Int>,
        classes: Option<Tensor<2, Int>>,
        left_padding: &[usize],
        random: Option<RandomKey>,
    ) -> (Tensor<3>, Context) {
        let positions = Positions::default().with_left_padding(left_padding);
        let x = self.embedding.forward_segments(tokens, classes, &positions, random.map(|key| key.named("embedding")));
        (x, Context { positions: positions.clone(), ..Context::new(causal(&positions)) })
    }

    /// Like [`hidden`](Self::hidden), also returning the output of each layer `[B, N, C]`, for [auxiliary losses](crate::block::auxiliary).
    ///
    /// # Panics
    /// If the sequences exceed `max_length`, or the stack is reversible.
    pub fn hidden_of_layers(
        &self,
        tokens: Tensor<2, Int>,
        left_padding: &[usize],
        random: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Hidden, Vec<Tensor<3>>) {
        let (x, context) = self.embedded(tokens, None, left_padding, random);
        probe.within("decoder", None, |probe| self.decoder.forward_each(x, &context, random, probe))
    }

    /// Like [`hidden`](Self::hidden) for the next segment of sequences; the layers also attend to the earlier segments in the memory.
    ///
    /// # Panics
    /// If memory and segment together exceed `max_length`, or the memory belongs to another batch or model.
    pub fn segment(&self, tokens: Tensor<2, Int>, memory: &mut SegmentMemory, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let x = self.embedding.forward(tokens, &memory.positions(), random.map(|key| key.named("embedding")));
        probe.within("decoder", None, |probe| self.decoder.segment(x, memory, random, probe))
    }

    /// Like [`hidden`](Self::hidden) for sequences without padding; the losses include the model's [auxiliary losses](crate::block::auxiliary), if any, at the
    /// fraction `progress` of training, 0 to 1. `targets` `[B, N]` is the token after each position.
    ///
    /// # Panics
    /// If the sequences exceed `max_length`, or the number of targets differs.
    pub fn hidden_with_auxiliary(
        &self,
        tokens: Tensor<2, Int>,
        (targets, progress): (Tensor<2, Int>, f64),
        random: Option<RandomKey>,
        probe: &mut Probe,
    ) -> Hidden {
        let Some(classifiers) = &self.auxiliary else { return self.hidden(tokens, &[], random, probe) };
        let (x, context) = self.embedded(tokens, None, &[], random);
        let of_layers = LayerLosses::new(classifiers, targets, progress);
        probe.within("decoder", None, |probe| self.decoder.forward_with_losses(x, &context, &of_layers, random, probe))
    }

    /// Number of positions in a row of `length` that contribute to the next-token loss in training: all, or only the last one if the model's [auxiliary
    /// losses](crate::block::auxiliary) disable `multiple_positions`.
    pub fn predicting_positions(&self, length: usize) -> usize {
        let has_all = self.auxiliary.as_ref().is_none_or(AuxiliaryClassifiers::has_multiple_positions);
        if has_all { length } else { length.min(1) }
    }

    /// Hidden states `[N, C]` that predict in training and their targets `[N]`, selected from states `[B, N, C]` and next tokens `[B, N]` by
    /// [`predicting_positions`](Self::predicting_positions).
    ///
    /// # Panics
    /// If there is not a target for each position.
    pub fn predicting(&self, states: Tensor<3>, targets: Tensor<2, Int>) -> (Tensor<2>, Tensor<1, Int>) {
        let [batch, length, width] = states.dims();
        assert_eq!(targets.dims(), [batch, length], "targets for states of {batch} rows of {length}");
        let positions = self.predicting_positions(length);
        let (states, targets) = if positions < length {
            (states.narrow(1, length - positions, positions), targets.narrow(1, length - positions, positions))
        } else {
            (states, targets)
        };
        (states.reshape([batch * positions, width]), targets.reshape([batch * positions]))
    }

    /// Like [`segment`](Self::segment), with the [auxiliary losses](crate::block::auxiliary) of the segment's positions, as in
    /// [`hidden_with_auxiliary`](Self::hidden_with_auxiliary).
    ///
    /// # Panics
    /// As [`segment`](Self::segment), and if the numbers of targets and tokens differ.
    pub fn segment_with_auxiliary(
        &self,
        tokens: Tensor<2, Int>,
        (targets, progress): (Tensor<2, Int>, f64),
        memory: &mut SegmentMemory,
        random: Option<RandomKey>,
        probe: &mut Probe,
    ) -> Hidden {
        let Some(classifiers) = &self.auxiliary else { return self.segment(tokens, memory, random, probe) };
        let x = self.embedding.forward(tokens, &memory.positions(), random.map(|key| key.named("embedding")));
        let (mut hidden, outputs) = probe.within("decoder", None, |probe| self.decoder.segment_each(x, memory, random, probe));
        hidden.losses.extend(LayerLosses::new(classifiers, targets, progress).of_layers(&outputs));
        hidden
    }

    /// Logits `[.., V]` of hidden states `[.., C]`; for an adaptive softmax, log probabilities in 32 bits.
    pub fn project<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        if let Some(adaptive) = &self.adaptive {
            return adaptive.log_probabilities(hidden, &self.embedding);
        }
        let logits = project(hidden, self.output.as_ref(), &self.embedding);
        let logits = match &self.output_bias {
            Some(bias) => logits + bias.val().unsqueeze(),
            None => logits,
        };
        match self.logit_softcap {
            Some(cap) => (logits / cap).tanh() * cap,
            None => logits,
        }
    }

    /// Cross-entropy of hidden states `[N, C]` against the following tokens `[N]`, equal to that of [`project`](Self::project)'s logits. The logits are never
    /// materialised at once ([`projected_cross_entropy`]) unless they are capped, or smoothed with an adaptive softmax. Without smoothing, an [adaptive
    /// softmax](crate::parts::adaptive_softmax) reads the targets and computes each tail only for its own targets.
    ///
    /// # Panics
    /// If `label_smoothing` is not in `[0, 1)` or the number of targets differs.
    pub fn cross_entropy(&self, hidden: Tensor<2>, targets: Tensor<1, Int>, padding: Option<u32>, label_smoothing: f64) -> CrossEntropy {
        if let Some(adaptive) = &self.adaptive
            && label_smoothing == 0.0
        {
            return adaptive.cross_entropy(hidden, &self.embedding, targets, padding);
        }
        if self.logit_softcap.is_some() || self.adaptive.is_some() {
            return cross_entropy(self.project(hidden), targets, padding, label_smoothing);
        }
        let matrix = output_matrix(self.output.as_ref(), &self.embedding);
        let (hidden, matrix) = match &self.output_bias {
            Some(bias) => with_biases(hidden, matrix, bias.val()),
            None => (hidden, matrix),
        };
        projected_cross_entropy(hidden, matrix, targets, padding, label_smoothing)
    }

    /// Generates the best continuation of each prompt; prompts may differ in length. It runs without gradients and dropout.
    ///
    /// # Example
    /// ```
    /// # use burn::tensor::Device;
    /// # use heedful_models::prelude::*;
    /// # let model = LanguageModelConfig::new(11).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16).build(&Device::flex())?;
    /// let found = model.generate(&[[2, 5, 7]], &GenerationConfig::new(20));
    /// assert_eq!(found[0].tokens.len(), 20);
    /// # Ok::<(), ConfigError>(())
    /// ```
    ///
    /// # Panics
    /// If a prompt is empty or exceeds the maximal length of the model, the options are not valid, or all logits are NaN.
    pub fn generate<P: AsRef<[u32]>>(&self, prompts: &[P], config: &GenerationConfig) -> Vec<Hypothesis> {
        if self.device().is_autodiff() {
            return self.valid().generate(prompts, config);
        }
        if prompts.is_empty() {
            return Vec::new();
        }
        // The content of padding is never visible.
        let (tokens, left_padding) = left_padded(prompts, 0, &self.device());
        generate(self, self.start(prompts.len(), &left_padding), tokens, config)
    }

    /// Decoding state for `batch` rows of at most `max_length` tokens, padding included. Row `b` begins with `left_padding[b]` padding tokens (an empty slice:
    /// no padding).
    ///
    /// # Panics
    /// If the number of counts differs from the number of rows.
    pub fn start(&self, batch: usize, left_padding: &[usize]) -> StackState<A::State> {
        self.decoder.state(batch, self.max_length, left_padding, None)
    }

    /// Logits `[B, N, V]` of the token after each of the next tokens `[B, N]`.
    ///
    /// # Panics
    /// If more than `max_length` tokens are decoded.
    pub fn step(&self, tokens: Tensor<2, Int>, state: &mut StackState<A::State>, probe: &mut Probe) -> Scores<3> {
        let x = self.embedding.forward(tokens, &state.positions(), None);
        let hidden = probe.within("decoder", None, |probe| self.decoder.step(x, state, probe));
        Scores { logits: self.project(hidden.states), losses: hidden.losses }
    }
}

impl<A: Attention> StepDecoder for LanguageModel<A> {
    type State = StackState<A::State>;

    fn device(&self) -> Device {
        self.embedding.tokens.weight.device()
    }

    fn remaining(&self, state: &Self::State) -> usize {
        state.remaining()
    }

    fn next_logits(&self, tokens: Tensor<2, Int>, state: &mut Self::State) -> Tensor<2> {
        let x = self.embedding.forward(tokens, &state.positions(), None);
        let states = self.decoder.step(x, state, &mut Probe::off()).states;
        self.project(last_position(states))
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) {
        self.decoder.select(state, rows);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use burn::tensor::TensorData;
    use heedful_attention::contract::decoding_position::Progress;
    use heedful_attention::contract::init;

    use crate::block::layer_sharing::{DepthConfig, SharedConfig};
    use crate::block::layout::LayerAttention;
    use crate::block::{BlockConfig, FeedForwardIn, Parallel};
    use crate::parts::norm::{NormConfig, NormKind};
    use crate::parts::position::PositionConfig;
    use crate::parts::residual::NormOrder;

    /// LSH attention over all pairs. With hashing, later tokens shift the borders of chunks, so steps need not equal a forward pass, and rounding moves tokens
    /// to other buckets.
    pub(crate) fn all_pairs(attention: AnyMechanism) -> AnyMechanism {
        attention.get::<LshConfig>().map(|lsh| lsh.clone().with_full_attention_below(24).into()).unwrap_or(attention)
    }

    fn tiny(attention: impl Into<LayerAttention>) -> LanguageModelConfig {
        LanguageModelConfig {
            vocabulary: 11,
            attention: attention.into(),
            layers: 2,
            block: BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..BlockConfig::default() },
            ..LanguageModelConfig::default()
        }
    }

    fn built(attention: impl Into<LayerAttention>) -> LanguageModel {
        let config = tiny(attention);
        config.validate().unwrap();
        config.init(&RandomKey::from_seed(5), &Device::flex())
    }

    fn tokens<const B: usize, const N: usize>(rows: [[i32; N]; B]) -> Tensor<2, Int> {
        Tensor::from_data(rows, &Device::flex())
    }

    fn logits(model: &LanguageModel, input: Tensor<2, Int>, left_padding: &[usize]) -> Tensor<3> {
        model.forward_with(input, left_padding, None, &mut Probe::off()).logits
    }

    fn largest_difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
        (a - b).abs().max().into_scalar()
    }

    #[test]
    fn stepping_gives_the_logits_of_the_forward_pass_for_every_mechanism() {
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal).map(all_pairs) {
            let model = built(attention.clone());
            let input = tokens([[2, 5, 7, 1, 9, 3, 4], [0, 0, 2, 8, 8, 10, 6]]);
            for padding in [&[][..], &[0, 2]] {
                let whole = logits(&model, input.clone(), padding);
                for chunk in [1, 3, 7] {
                    let mut state = model.start(2, padding);
                    let mut parts = Vec::new();
                    for start in (0..7).step_by(chunk) {
                        let part = input.clone().narrow(1, start, chunk.min(7 - start));
                        parts.push(model.step(part, &mut state, &mut Probe::off()).logits);
                    }
                    // The outputs of padding queries are unused.
                    let first = padding.iter().copied().max().unwrap_or(0);
                    let real = |x: Tensor<3>| x.narrow(1, first, 7 - first);
                    let difference = largest_difference(real(Tensor::cat(parts, 1)), real(whole.clone()));
                    assert!(difference < 1e-5, "{attention}, steps of {chunk}, padding {padding:?}: {difference}");
                }
            }
        }
    }

    #[test]
    fn later_tokens_leave_earlier_logits_bit_identical() {
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
            let model = built(attention.clone());
            let before = logits(&model, tokens([[2, 5, 7, 1, 9]]), &[]);
            let after = logits(&model, tokens([[2, 5, 7, 4, 9]]), &[]);
            let parts = |x: &Tensor<3>, from, count| x.clone().narrow(1, from, count).into_data();
            assert_eq!(parts(&before, 0, 3), parts(&after, 0, 3), "{attention}");
            assert_ne!(parts(&before, 3, 1), parts(&after, 3, 1), "{attention}");
        }
    }

    #[test]
    fn left_padding_equals_no_padding_whatever_it_holds() {
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
            for positions in [PositionConfig::Sinusoidal, PositionConfig::Learned, PositionConfig::PerLayer, PositionConfig::None] {
                let config = LanguageModelConfig { positions, ..tiny(attention.clone()) };
                let model = config.init(&RandomKey::from_seed(5), &Device::flex());
                let alone = logits(&model, tokens([[2, 5, 7]]), &[]);
                let padded = logits(&model, tokens([[0, 0, 2, 5, 7], [4, 9, 2, 5, 7], [1, 2, 3, 4, 5]]), &[2, 2, 0]);
                for row in 0..2 {
                    let difference = largest_difference(alone.clone(), padded.clone().slice([row..row + 1, 2..5]));
                    assert!(difference < 1e-5, "{attention}, {positions:?}: {difference}");
                }
            }
        }
    }

    /// Per layer: keys and values of all tokens, of a window, or the last values of a kernel; and the tails of the convolutions of separable networks.
    #[test]
    fn states_hold_what_later_tokens_can_reach() {
        let (rows, length, width, d_ff) = (2, 13, 8, 16);
        for (name, numbers) in [("dot-product", 2 * length * width), ("sliding-window", 2 * 4 * width), ("lightweight-conv", 3 * width)] {
            let mut attention: AnyMechanism = name.parse().unwrap();
            if name == "sliding-window" {
                attention = toml::from_str::<LanguageModelConfig>("attention = { name = 'sliding-window', window = 4 }")
                    .unwrap()
                    .attention
                    .at(0)
                    .clone();
            }
            for separable in [false, true] {
                let base = tiny(attention.clone());
                let block = BlockConfig { separable_feed_forward: separable, ..base.block };
                let model = LanguageModelConfig { layers: 1, block, ..base }.init(&RandomKey::from_seed(1), &Device::flex());
                let mut state = model.start(rows, &[]);
                let input = tokens([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3], [3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3]]);
                model.step(input.clone().narrow(1, 0, length - 1), &mut state, &mut Probe::off());
                model.step(input.narrow(1, length - 1, 1), &mut state, &mut Probe::off());
                let tails = if separable { 2 * width + 4 * d_ff } else { 0 };
                assert_eq!(model.decoder.state_bytes(&state), Some(4 * rows * (numbers + tails)), "{name}, separable {separable}");
            }
        }
    }

    #[test]
    fn a_block_without_a_feed_forward_network_is_one_whose_network_gives_nothing() {
        let model = |within: FeedForwardIn| {
            let base = tiny(AnyMechanism::default());
            let block = BlockConfig { feed_forward_in: within, norm_order: NormOrder::Pre, ..base.block };
            LanguageModelConfig { block, ..base }.init(&RandomKey::from_seed(1), &Device::flex())
        };
        let (bare, mut silent) = (model(FeedForwardIn::Encoder), model(FeedForwardIn::Decoder));
        assert!(bare.decoder.layers.iter().all(|block| block.feed_forward.is_none() && block.feed_forward_residual.is_none()));
        let input = tokens([[1, 2, 3, 4], [3, 2, 1, 4]]);
        assert!(largest_difference(logits(&bare, input.clone(), &[]), logits(&silent, input.clone(), &[])) > 1e-3);
        for block in &mut silent.decoder.layers {
            let output = &mut block.feed_forward.as_mut().unwrap().output;
            output.weight = Param::from_tensor(output.weight.val().zeros_like());
        }
        let expected = logits(&silent, input.clone(), &[]);
        assert!(largest_difference(logits(&bare, input.clone(), &[]), expected.clone()) < 1e-6);
        let mut state = bare.start(2, &[]);
        let first = bare.step(input.clone().narrow(1, 0, 3), &mut state, &mut Probe::off()).logits;
        let last = bare.step(input.narrow(1, 3, 1), &mut state, &mut Probe::off()).logits;
        assert!(largest_difference(Tensor::cat(vec![first, last], 1), expected) < 1e-5);
    }

    #[test]
    fn a_row_does_not_depend_on_its_batch() {
        let model = built(AnyMechanism::default());
        let alone = logits(&model, tokens([[2, 5, 7]]), &[]);
        let padded = logits(&model, tokens([[1, 9, 3, 4, 4], [2, 5, 7, 0, 0]]), &[]);
        assert!(largest_difference(alone, padded.slice([1..2, 0..3])) < 1e-5);
    }

    #[test]
    fn selecting_rows_of_a_state_is_selecting_rows_of_the_batch() {
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal).map(all_pairs) {
            let model = built(attention.clone());
            let mut state = model.start(3, &[0, 1, 0]);
            model.step(tokens([[2, 5], [0, 7], [3, 9]]), &mut state, &mut Probe::off());
            StepDecoder::select(&model, &mut state, &[2, 1, 1]);
            let stepped = model.step(tokens([[4], [4], [6]]), &mut state, &mut Probe::off()).logits;
            let whole = logits(&model, tokens([[3, 9, 4], [0, 7, 4], [0, 7, 6]]), &[0, 1, 1]);
            let difference = largest_difference(stepped, whole.narrow(1, 2, 1));
            assert!(difference < 1e-5, "{attention}: {difference}");
        }
    }

    #[test]
    fn the_next_logits_are_those_of_the_last_position() {
        let model = built(AnyMechanism::default());
        let whole = logits(&model, tokens([[2, 5, 7]]), &[]).narrow(1, 2, 1).reshape([1, 11]);
        let next = model.next_logits(tokens([[2, 5, 7]]), &mut model.start(1, &[]));
        let difference: f32 = (whole - next).abs().max().into_scalar();
        assert!(difference < 1e-6);
    }

    #[test]
    fn all_orders_of_normalisation_train_every_parameter() {
        let device = Device::flex().autodiff();
        for norm_order in [NormOrder::Post, NormOrder::Pre] {
            for tied in [true, false] {
                let base = tiny(AnyMechanism::default());
                let config = LanguageModelConfig { block: BlockConfig { norm_order, ..base.block }, tied, ..base };
                let model = config.init(&RandomKey::from_seed(1), &device);
                let input = Tensor::from_data([[2, 5, 7]], &device);
                let scores = model.forward_with(input, &[], Some(RandomKey::from_seed(2)), &mut Probe::off());
                let targets = Tensor::from_data([5, 7, 3], &device);
                let loss = crate::parts::loss::cross_entropy(scores.logits.reshape([3, 11]), targets, Some(0), 0.1).loss;
                let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &model);
                let layer = 4 + 4 + 2 + 2;
                let outside = if tied { 1 } else { 2 } + if norm_order == NormOrder::Pre { 2 } else { 0 };
                assert_eq!(gradients.len(), 2 * layer + outside, "{norm_order:?}, tied {tied}");
            }
        }
    }

    #[test]
    fn tying_saves_the_output_matrix() {
        let count = |tied| {
            LanguageModelConfig { tied, ..tiny(AnyMechanism::default()) }.init(&RandomKey::from_seed(1), &Device::flex()).num_params()
        };
        let layer = 4 * 64 + (8 * 16 + 16 + 16 * 8 + 8) + 2 * 16;
        assert_eq!(count(true), 11 * 8 + 2 * layer);
        assert_eq!(count(false), count(true) + 8 * 11);
    }

    #[test]
    fn a_bias_is_added_to_the_logits_and_a_cap_bounds_them() {
        let device = Device::flex();
        for tied in [true, false] {
            let plain = LanguageModelConfig { tied, ..tiny(AnyMechanism::default()) };
            let base = plain.init(&RandomKey::from_seed(5), &device);
            let expected = logits(&base, tokens([[2, 5, 7]]), &[]);
            let mut biased = LanguageModelConfig { output_bias: true, ..plain.clone() }.init(&RandomKey::from_seed(5), &device);
            assert_eq!(biased.num_params(), base.num_params() + 11);
            let bias = init::Init::Normal(1.0).tensor([11], &RandomKey::from_seed(1), &device);
            biased.output_bias = Some(Param::from_tensor(bias.clone()));
            let found = logits(&biased, tokens([[2, 5, 7]]), &[]);
            assert!(largest_difference(found, expected.clone() + bias.unsqueeze()) < 1e-6);
            let capped = LanguageModelConfig { logit_softcap: Some(0.7), ..plain };
            let found = logits(&capped.init(&RandomKey::from_seed(5), &device), tokens([[2, 5, 7]]), &[]);
            assert!(largest_difference(found.clone(), (expected / 0.7).tanh() * 0.7) < 1e-6);
            assert!(found.abs().max().into_scalar::<f32>() < 0.7);
        }
    }

    #[test]
    fn the_loss_is_that_of_the_logits_with_bias_and_cap() {
        let device = Device::flex().autodiff();
        for (tied, output_bias, logit_softcap) in
            [(true, true, None), (false, true, None), (true, false, Some(0.5)), (false, true, Some(0.5))]
        {
            let config = LanguageModelConfig { tied, output_bias, logit_softcap, ..tiny(AnyMechanism::default()) };
            let mut model = config.init(&RandomKey::from_seed(5), &device);
            model.output_bias = model.output_bias.map(|_| init::Init::Normal(1.0).parameter([11], &RandomKey::from_seed(1), &device));
            let targets = || Tensor::from_data([5, 7, 3], &device);
            let states = || model.hidden(Tensor::from_data([[2, 5, 7]], &device), &[], None, &mut Probe::off()).states.reshape([3, 8]);
            let found = model.cross_entropy(states(), targets(), None, 0.1).loss;
            let expected = crate::parts::loss::cross_entropy(model.project(states()), targets(), None, 0.1).loss;
            let gradient = |loss: Tensor<1>| {
                let gradients = loss.backward();
                let of_bias = model.output_bias.as_ref().map(|bias| bias.val().grad(&gradients).unwrap().into_data());
                let of_layer =
                    model.decoder.layers[0].feed_forward.as_ref().unwrap().output.weight.val().grad(&gradients).unwrap().into_data();
                of_bias.into_iter().chain([of_layer]).flat_map(|data| data.iter::<f64>().collect::<Vec<_>>()).collect::<Vec<_>>()
            };
            let [a, b] = [&found, &expected].map(|loss| loss.clone().into_scalar::<f32>());
            assert!((a - b).abs() < 1e-5, "{a} and {b}");
            for (a, b) in gradient(found).into_iter().zip(gradient(expected)) {
                assert!((a - b).abs() < 1e-5, "{config:?}: {a} and {b}");
            }
        }
    }

    #[test]
    fn every_order_and_arrangement_of_normalisations_steps_and_trains() {
        let device = Device::flex().autodiff();
        let kinds = [NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne];
        let orders = [
            (NormOrder::Post, None),
            (NormOrder::Pre, None),
            (NormOrder::Sandwich, None),
            (NormOrder::BranchOutput, None),
            (NormOrder::Pre, Some(Parallel::SharedNorm)),
            (NormOrder::Pre, Some(Parallel::OwnNorms)),
            (NormOrder::Sandwich, Some(Parallel::OwnNorms)),
        ];
        for (kind, (norm_order, parallel)) in kinds.into_iter().flat_map(|kind| orders.map(|order| (kind, order))) {
            let base = tiny(AnyMechanism::default());
            let block = BlockConfig { norm: NormConfig::new(kind), norm_order, parallel, dropout: 0.0, ..base.block };
            let config = LanguageModelConfig { block, ..base };
            config.validate().unwrap();
            let model = config.init(&RandomKey::from_seed(5), &device);
            let input = || Tensor::from_data([[2, 5, 7, 1]], &device);
            let loss = logits(&model, input(), &[]).powi_scalar(2).sum();
            let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &model);
            let parameters = heedful_attention::description::case::parameters(&model, None).len();
            assert_eq!(gradients.len(), parameters, "{kind:?}, {norm_order:?}, {parallel:?}");
            let model = model.valid();
            let whole = logits(&model, tokens([[2, 5, 7, 1]]), &[]);
            let mut state = model.start(1, &[]);
            let parts = [0..3, 3..4]
                .map(|part| model.step(tokens([[2, 5, 7, 1]]).narrow(1, part.start, part.len()), &mut state, &mut Probe::off()).logits);
            assert!(largest_difference(Tensor::cat(parts.to_vec(), 1), whole) < 1e-5, "{kind:?}, {norm_order:?}, {parallel:?}");
        }
    }

    #[test]
    fn weights_and_dropout_are_functions_of_their_keys() {
        let run = |init, dropout: Option<u64>| {
            let model = tiny(AnyMechanism::default()).init(&RandomKey::from_seed(init), &Device::flex());
            model.forward_with(tokens([[2, 5, 7]]), &[], dropout.map(RandomKey::from_seed), &mut Probe::off()).logits.into_data()
        };
        assert_eq!(run(1, Some(1)), run(1, Some(1)));
        assert_ne!(run(1, Some(1)), run(1, Some(2)));
        assert_ne!(run(1, None), run(2, None));
        assert_ne!(run(1, None), run(1, Some(1)));
    }

    #[test]
    fn layers_differ_in_their_weights() {
        let model = built(AnyMechanism::default());
        let weight = |layer: usize| model.decoder.layers[layer].feed_forward.as_ref().unwrap().input.weight.val().into_data();
        assert_ne!(weight(0), weight(1));
    }

    #[test]
    fn probes_see_weights_and_activations_by_the_path_of_their_module() {
        let model = built(AnyMechanism::default());
        let mut seen = Vec::new();
        let mut listener = |path: &str, observation: Observation| {
            let shape = match observation {
                Observation::Weights(weights) => weights.dims().to_vec(),
                Observation::Activation(activation) => activation.dims().to_vec(),
                Observation::Executed(_) => return,
                _ => Vec::new(),
            };
            seen.push((path.to_owned(), shape));
        };
        model.forward_with(tokens([[2, 5, 7]]), &[], None, &mut Probe::listening(&mut listener));
        let expected = [
            ("decoder.layers.0.self_attention", vec![1, 2, 3, 3]),
            ("decoder.layers.0", vec![1, 3, 8]),
            ("decoder.layers.1.self_attention", vec![1, 2, 3, 3]),
            ("decoder.layers.1", vec![1, 3, 8]),
        ];
        assert_eq!(seen, expected.map(|(path, shape)| (path.to_owned(), shape)));
    }

    #[test]
    fn configurations_survive_toml_and_refuse_unknown_fields() {
        let list = LayerAttention::Each(vec![AnyMechanism::default(), "synthesizer-dense".parse().unwrap()]);
        let base = tiny(list);
        let block = BlockConfig { norm_order: NormOrder::Pre, ..base.block };
        let config = LanguageModelConfig { positions: PositionConfig::None, block, ..base };
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<LanguageModelConfig>(&text).unwrap(), config);
        let error = toml::from_str::<LanguageModelConfig>("d_modell = 3").unwrap_err().to_string();
        assert!(error.contains("d_modell"), "{error}");
        assert_eq!(toml::from_str::<LanguageModelConfig>("").unwrap(), LanguageModelConfig::default());
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let base = || tiny(AnyMechanism::default());
        let list = |length| LayerAttention::Each(vec![AnyMechanism::default(); length]);
        let layers = |name: &str| LayerAttention::All(name.parse().unwrap());
        let mixture_of_one: LayerAttention =
            toml::from_str::<LanguageModelConfig>("attention = { name = 'mixture', members = [] }").unwrap().attention;
        let cases = [
            ("vocabulary", LanguageModelConfig { vocabulary: 0, ..base() }),
            ("layers", LanguageModelConfig { layers: 0, ..base() }),
            ("d_model", LanguageModelConfig { block: BlockConfig { d_model: 0, ..base().block }, ..base() }),
            ("d_model", LanguageModelConfig { block: BlockConfig { d_model: 9, heads: 3, ..base().block }, ..base() }),
            ("heads", LanguageModelConfig { block: BlockConfig { heads: 0, ..base().block }, ..base() }),
            ("heads", LanguageModelConfig { block: BlockConfig { heads: 3, ..base().block }, ..base() }),
            ("d_ff", LanguageModelConfig { block: BlockConfig { d_ff: 0, ..base().block }, ..base() }),
            ("max_length", LanguageModelConfig { block: BlockConfig { max_length: 0, ..base().block }, ..base() }),
            ("dropout", LanguageModelConfig { block: BlockConfig { dropout: 1.0, ..base().block }, ..base() }),
            ("attention_dropout", LanguageModelConfig { block: BlockConfig { attention_dropout: -0.1, ..base().block }, ..base() }),
            (
                "feed_forward_dropout",
                LanguageModelConfig { block: BlockConfig { feed_forward_dropout: f64::NAN, ..base().block }, ..base() },
            ),
            ("logit_softcap", LanguageModelConfig { logit_softcap: Some(0.0), ..base() }),
            (
                "norm.epsilon",
                LanguageModelConfig { block: BlockConfig { norm: NormConfig::default().with_epsilon(0.0), ..base().block }, ..base() },
            ),
            ("norm_order", LanguageModelConfig { block: BlockConfig { parallel: Some(Parallel::OwnNorms), ..base().block }, ..base() }),
            (
                "parallel",
                LanguageModelConfig {
                    block: BlockConfig { parallel: Some(Parallel::SharedNorm), norm_order: NormOrder::Sandwich, ..base().block },
                    ..base()
                },
            ),
            (
                "parallel",
                LanguageModelConfig {
                    block: BlockConfig { parallel: Some(Parallel::SharedNorm), norm_order: NormOrder::Pre, ..base().block },
                    depth: DepthConfig::Reversible,
                    ..base()
                },
            ),
            (
                "qkv_bias",
                LanguageModelConfig { block: BlockConfig { qkv_bias: true, ..base().block }, attention: layers("random"), ..base() },
            ),
            ("attention", LanguageModelConfig { attention: list(3), ..base() }),
            ("attention", LanguageModelConfig { attention: list(0), ..base() }),
            ("members", LanguageModelConfig { attention: mixture_of_one, ..base() }),
        ];
        for (option, config) in cases {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("`{option}`")), "{option}: {error}");
        }
        assert!(base().validate().is_ok());
    }

    /// Mean of the visible values: an attention defined outside of heedful.
    #[derive(Module, Debug)]
    struct MeanAttention {
        value: Linear,
    }

    /// Values so far.
    #[derive(Clone, Debug)]
    struct MeanState(Progress, Option<Tensor<3>>);

    impl MeanAttention {
        fn attend(&self, values: Tensor<3>, input: &AttentionInput) -> AttentionOutput {
            let [batch, keys, _] = values.dims();
            let queries = input.query.dims()[1];
            let mut weights = Vec::new();
            for row in 0..batch {
                for i in input.positions.start..input.positions.start + queries {
                    let row = if input.visibility.rows() == 1 { 0 } else { row };
                    let seen: Vec<bool> = (0..keys).map(|j| input.visibility.is_visible(row, 0, i, j)).collect();
                    let count = seen.iter().filter(|&&seen| seen).count().max(1) as f32;
                    weights.extend(seen.iter().map(|&seen| if seen { 1.0 / count } else { 0.0 }));
                }
            }
            let weights = Tensor::<3>::from_data(TensorData::new(weights, [batch, queries, keys]), &values.device());
            AttentionOutput::new(weights.matmul(values))
        }
    }

    impl Attention for MeanAttention {
        type State = MeanState;

        fn abilities(&self) -> Abilities {
            Abilities { auxiliary_losses: true, ..Abilities::new(Causality::Masked) }
        }

        fn forward(&self, input: AttentionInput, _probe: &mut Probe) -> AttentionOutput {
            let span = Span::whole(input.query.dims()[1], input.query.dims()[1]);
            let mut output = self.attend(self.value.forward(input.query.clone()), &input);
            output.losses.push("keys", Tensor::full([1], span.keys as f32, &output.context.device()));
            output
        }

        fn state(&self, start: &DecodingStart) -> MeanState {
            MeanState(Progress::new(start), None)
        }

        fn step(&self, query: Tensor<3>, state: &mut MeanState, _probe: &mut Probe) -> AttentionOutput {
            let new = self.value.forward(query.clone());
            let values = state.1.take().map_or(new.clone(), |old| Tensor::cat(vec![old, new], 1));
            state.1 = Some(values.clone());
            self.attend(values, &state.0.advance(query))
        }

        fn select(&self, state: &mut MeanState, rows: &[usize]) {
            state.0.select(rows);
            let rows: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
            let rows = TensorData::new(rows.clone(), [rows.len()]);
            state.1 = state.1.take().map(|values| values.clone().select(0, Tensor::from_data(rows, &values.device())));
        }
    }

    #[test]
    fn an_attention_of_a_users_own_drops_in() {
        let build = |spec: &LayerSpec, key: &RandomKey, device: &Device| MeanAttention {
            value: init::linear(spec.d_model, spec.d_model, false, key, device),
        };
        let model: LanguageModel<MeanAttention> = tiny(AnyMechanism::default()).init_with(&RandomKey::from_seed(1), &Device::flex(), build);
        let input = tokens([[2, 5, 7, 1], [0, 9, 9, 4]]);
        let scores = model.forward_with(input.clone(), &[0, 1], None, &mut Probe::off());
        let losses: f32 = scores.losses.total().unwrap().into_scalar();
        assert_eq!(losses, 8.0, "auxiliary losses of both layers");
        let mut state = model.start(2, &[0, 1]);
        let first = model.step(input.clone().narrow(1, 0, 3), &mut state, &mut Probe::off()).logits;
        StepDecoder::select(&model, &mut state, &[1, 0]);
        let last = model.step(tokens([[4], [1]]), &mut state, &mut Probe::off()).logits;
        let flipped = Tensor::cat(vec![last.clone().narrow(0, 1, 1), last.narrow(0, 0, 1)], 0);
        let stepped = Tensor::cat(vec![first, flipped], 1).narrow(1, 1, 3);
        assert!(largest_difference(stepped, scores.logits.narrow(1, 1, 3)) < 1e-5);
    }

    #[test]
    fn each_layer_may_have_positions_of_its_own() {
        let config = LanguageModelConfig { positions: PositionConfig::PerLayer, ..tiny(AnyMechanism::default()) };
        config.validate().unwrap();
        let model = config.init(&RandomKey::from_seed(5), &Device::flex());
        assert_eq!(
            model.num_params(),
            tiny(AnyMechanism::default()).init(&RandomKey::from_seed(5), &Device::flex()).num_params() + 2 * 16 * 8
        );
        let input = tokens([[2, 5, 7, 1, 9, 3, 4]]);
        let whole = logits(&model, input.clone(), &[]);
        let mut state = model.start(1, &[]);
        let parts = [0..3, 3..4, 4..7]
            .map(|part| model.step(input.clone().narrow(1, part.start, part.len()), &mut state, &mut Probe::off()).logits);
        assert!(largest_difference(Tensor::cat(parts.to_vec(), 1), whole.clone()) < 1e-5);
        let mut changed = model;
        changed.decoder.positions[1] = config.init(&RandomKey::from_seed(6), &Device::flex()).decoder.positions[1].clone();
        assert!(largest_difference(logits(&changed, input, &[]), whole) > 1e-4, "the second layer does not see its own table");
        let reversible = LanguageModelConfig { depth: DepthConfig::Reversible, ..config };
        assert!(reversible.validate().unwrap_err().to_string().contains("per-layer"));
    }

    #[test]
    fn separable_networks_step_as_they_pass_and_do_not_see_padding() {
        for depth in [DepthConfig::Stacked, DepthConfig::Shared(SharedConfig::default())] {
            let mut config = LanguageModelConfig { depth, ..tiny(AnyMechanism::default()) };
            config.block.separable_feed_forward = true;
            config.validate().unwrap();
            let model = config.init(&RandomKey::from_seed(5), &Device::flex());
            let input = tokens([[2, 5, 7, 1, 9, 3, 4], [4, 9, 2, 8, 8, 10, 6]]);
            let whole = logits(&model, input.clone(), &[0, 2]);
            let mut state = model.start(2, &[0, 2]);
            let parts = [0..3, 3..4, 4..7];
            let parts = parts.map(|part| model.step(input.clone().narrow(1, part.start, part.len()), &mut state, &mut Probe::off()).logits);
            let real = |x: Tensor<3>| x.narrow(1, 2, 5);
            assert!(largest_difference(real(Tensor::cat(parts.to_vec(), 1)), real(whole.clone())) < 1e-5);
            let alone = logits(&model, tokens([[2, 8, 8, 10, 6]]), &[]);
            assert!(largest_difference(alone, whole.clone().slice([1..2, 2..7])) < 1e-5);
            // A convolution looks back, not ahead.
            let changed = logits(&model, tokens([[2, 5, 7, 6, 9, 3, 4], [4, 9, 2, 8, 8, 10, 6]]), &[0, 2]);
            let before = |x: &Tensor<3>| x.clone().slice([0..1, 0..3]).into_data();
            assert_eq!(before(&whole), before(&changed));
            // Selected rows keep the cached inputs of the convolutions.
            let mut state = model.start(2, &[]);
            model.step(input.clone().narrow(1, 0, 4), &mut state, &mut Probe::off());
            StepDecoder::select(&model, &mut state, &[1, 1]);
            let next = model.step(tokens([[8], [8]]), &mut state, &mut Probe::off()).logits;
            let expected = logits(&model, tokens([[4, 9, 2, 8, 8]]), &[]).narrow(1, 4, 1);
            assert!(largest_difference(next.clone().narrow(0, 0, 1), expected.clone()) < 1e-5);
            assert!(largest_difference(next.narrow(0, 1, 1), expected) < 1e-5);
        }
        let mut config = tiny(AnyMechanism::default());
        config.block.separable_feed_forward = true;
        config.block.feed_forward_chunk = Some(3);
        assert!(config.validate().unwrap_err().to_string().contains("feed_forward_chunk"));
    }
}
