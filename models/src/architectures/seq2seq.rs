//! The encoder-decoder Transformer (Vaswani et al. 2017).

mod config;
#[cfg(test)]
mod universal_tests;

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::contract::training::Training;
use heedful_attention::prelude::*;

pub use self::config::{Seq2SeqConfig, Tying};
use crate::block::stack::{Stack, StackState};
use crate::block::{Context, Hidden};
use crate::generation::{GenerationConfig, Hypothesis, StepDecoder, generate, left_padded};
use crate::parts::embedding::{TokenEmbedding, output_matrix, project};
use crate::parts::loss::{CrossEntropy, projected_cross_entropy};

/// Logits, and the auxiliary losses of the pass.
#[derive(Clone, Debug)]
pub struct Scores<const D: usize> {
    /// `[.., V]`.
    pub logits: Tensor<D>,
    /// Auxiliary losses of all attentions passed.
    pub losses: Losses,
}

/// Sequences, padded on the right.
#[derive(Clone, Debug)]
pub struct Padded<'a> {
    /// Token ids `[B, N]`.
    pub tokens: Tensor<2, Int>,
    /// Number of real tokens per row.
    pub lengths: &'a [usize],
}

/// The encoder-decoder Transformer.
///
/// Should be created with [`Seq2SeqConfig`].
#[derive(Module, Debug)]
pub struct Seq2SeqTransformer<A: Attention = AnyAttention> {
    /// Embedding of the source; with a joint vocabulary also of the target, and the output projection.
    pub source: TokenEmbedding,
    /// Embedding of the target, if separate.
    pub target: Option<TokenEmbedding>,
    /// The encoder.
    pub encoder: Stack<A>,
    /// The decoder.
    pub decoder: Stack<A>,
    /// Output projection `[C, V]`, if not tied to an embedding.
    pub output: Option<Linear>,
    max_length: usize,
    training: Training,
}

impl<A: Attention> Seq2SeqTransformer<A> {
    /// Logits `[B, T, V]` of the token after each target token `[B, T]`, given the source `[B, S]`. The mask defines the padding of the source: [`Mask::none`],
    /// [`Mask::padding`], or a tensor mask, which is read back. The target starts with the begin token; its right padding need not be declared, since earlier
    /// tokens cannot see it.
    ///
    /// Dropout follows [`LanguageModel::forward`](crate::architectures::language_model::LanguageModel::forward): it is active in training.
    /// [`forward_with`](Self::forward_with) is the full form.
    ///
    /// # Panics
    /// If a sequence exceeds the maximal length of the model, or the mask hides more than padding at the end of the source.
    pub fn forward(&self, source: Tensor<2, Int>, target: Tensor<2, Int>, mask: &Mask) -> Tensor<3> {
        let ([batch, source_length], [rows, length]) = (source.dims(), target.dims());
        let lengths = mask.lengths(batch, source_length);
        let random = self.training.next_key(&self.device());
        let source = Padded { tokens: source, lengths: &lengths };
        let target = Padded { tokens: target, lengths: &vec![length; rows] };
        let Scores { logits, losses } = self.forward_with(source, target, random, &mut Probe::off());
        self.training.warn_of_lost(&losses, &self.device(), "forward_with");
        logits
    }

    /// Full form of [`forward`](Self::forward): logits `[B, T, V]` of the token after each target token, given the source `[B, S]`. The target `[B, T]` starts
    /// with the begin token. Dropout is active if and only if a key is given.
    ///
    /// # Panics
    /// If a sequence exceeds `max_length`.
    pub fn forward_with(&self, source: Padded, target: Padded, random: Option<RandomKey>, probe: &mut Probe) -> Scores<3> {
        let hidden = self.hidden(source, target, random, probe);
        Scores { logits: self.project(hidden.states), losses: hidden.losses }
    }

    /// Hidden states before the output projection of [`forward_with`](Self::forward_with), `[B, T, C]`.
    ///
    /// # Panics
    /// If a sequence exceeds `max_length`.
    pub fn hidden(&self, source: Padded, target: Padded, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let named = |name| random.map(|key| key.named(name));
        let memory_visibility = Visibility::padding(source.lengths.to_vec());
        let Hidden { states: memory, mut losses } = self.encode(source, named("encoder"), probe);
        let context = Context { memory: Some(memory), memory_visibility, ..Context::new(Visibility::causal()).lengths(target.lengths) };
        let x = self.target_embedding().forward(target.tokens, &Positions::default(), named("target"));
        let decoded = probe.within("decoder", None, |probe| self.decoder.forward(x, &context, named("decoder"), probe));
        losses.extend(decoded.losses);
        Hidden { states: decoded.states, losses }
    }

    /// The encoder's output `[B, S, C]`.
    ///
    /// # Panics
    /// If the source exceeds `max_length`.
    pub fn encode(&self, source: Padded, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let x = self.source.forward(source.tokens, &Positions::default(), random.map(|key| key.named("source")));
        let context = Context::new(Visibility::padding(source.lengths.to_vec())).lengths(source.lengths);
        probe.within("encoder", None, |probe| self.encoder.forward(x, &context, random, probe))
    }

    /// Logits `[.., V]` of hidden states `[.., C]`.
    pub fn project<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        project(hidden, self.output.as_ref(), self.target_embedding())
    }

    /// Cross-entropy of hidden states `[N, C]` against the following tokens `[N]`, equal to that of [`project`](Self::project)'s logits, which are never
    /// materialised at once ([`projected_cross_entropy`]).
    ///
    /// # Panics
    /// If `label_smoothing` is not in `[0, 1)` or the number of targets differs.
    pub fn cross_entropy(&self, hidden: Tensor<2>, targets: Tensor<1, Int>, padding: Option<u32>, label_smoothing: f64) -> CrossEntropy {
        let matrix = output_matrix(self.output.as_ref(), self.target_embedding());
        projected_cross_entropy(hidden, matrix, targets, padding, label_smoothing)
    }

    /// Generates the best target for each source `[B, S]`, starting from the begin token, which is not part of the result. The mask defines the padding of the
    /// source, as in [`forward`](Self::forward). It runs without gradients and dropout.
    ///
    /// # Example
    /// ```
    /// # use burn::tensor::{Device, Int, Tensor};
    /// # use heedful_models::prelude::*;
    /// # let device = Device::flex();
    /// # let model = Seq2SeqConfig::new(11, 11).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16).build(&device)?;
    /// # let source = Tensor::<2, Int>::from_data([[5, 7, 1], [4, 6, 0]], &device);
    /// let config = GenerationConfig::new(50).with_beam(BeamSearch::default()).with_end(2);
    /// let found = model.generate(source, &Mask::padding(&[3, 2], 3), 1, &config);
    /// # assert_eq!(found.len(), 2);
    /// # Ok::<(), ConfigError>(())
    /// ```
    ///
    /// # Panics
    /// If the source exceeds the maximal length of the model, the mask hides more than padding at its end, the options are not valid, or all logits are NaN.
    pub fn generate(&self, source: Tensor<2, Int>, mask: &Mask, begin: u32, config: &GenerationConfig) -> Vec<Hypothesis> {
        let device = self.device();
        if device.is_autodiff() {
            return self.valid().generate(source.inner(), mask, begin, config);
        }
        let [batch, length] = source.dims();
        let (tokens, _) = left_padded(&vec![[begin]; batch], begin, &device);
        generate(self, self.start(Padded { tokens: source, lengths: &mask.lengths(batch, length) }), tokens, config)
    }

    /// Decoding state for translations of the source, of at most `max_length` tokens each.
    ///
    /// # Panics
    /// If the source exceeds `max_length`.
    pub fn start(&self, source: Padded) -> StackState<A::State> {
        let lengths = source.lengths.to_vec();
        let memory = self.encode(source, None, &mut Probe::off()).states;
        self.decoder.state(lengths.len(), self.max_length, &[], Some((memory, lengths)))
    }

    /// Logits `[B, T, V]` of the token after each of the next target tokens `[B, T]`.
    ///
    /// # Panics
    /// If more than `max_length` tokens are decoded.
    pub fn step(&self, tokens: Tensor<2, Int>, state: &mut StackState<A::State>, probe: &mut Probe) -> Scores<3> {
        let x = self.target_embedding().forward(tokens, &state.positions(), None);
        let hidden = probe.within("decoder", None, |probe| self.decoder.step(x, state, probe));
        Scores { logits: self.project(hidden.states), losses: hidden.losses }
    }

    fn target_embedding(&self) -> &TokenEmbedding {
        self.target.as_ref().unwrap_or(&self.source)
    }
}

impl<A: Attention> StepDecoder for Seq2SeqTransformer<A> {
    type State = StackState<A::State>;

    fn device(&self) -> Device {
        self.source.tokens.weight.device()
    }

    fn remaining(&self, state: &Self::State) -> usize {
        state.remaining()
    }

    fn next_logits(&self, tokens: Tensor<2, Int>, state: &mut Self::State) -> Tensor<2> {
        let x = self.target_embedding().forward(tokens, &state.positions(), None);
        let states = self.decoder.step(x, state, &mut Probe::off()).states;
        self.project(last_position(states))
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) {
        self.decoder.select(state, rows);
    }
}

/// Last of the states `[B, N, C]`, `[B, C]`.
pub(crate) fn last_position(states: Tensor<3>) -> Tensor<2> {
    let [batch, length, width] = states.dims();
    states.narrow(1, length - 1, 1).reshape([batch, width])
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::architectures::language_model::tests::all_pairs;
    use crate::block::BlockConfig;
    use crate::block::layer_sharing::{DepthConfig, SharedConfig};
    use crate::block::layout::{AttentionLayout, CrossAttention, CrossLayout, LayerAttention};
    use crate::parts::position::PositionConfig;

    fn tiny(attention: AttentionLayout) -> Seq2SeqConfig {
        Seq2SeqConfig {
            source_vocabulary: 11,
            target_vocabulary: 11,
            attention,
            encoder_layers: 2,
            decoder_layers: 3,
            block: BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..BlockConfig::default() },
            ..Seq2SeqConfig::default()
        }
    }

    fn built(attention: AttentionLayout) -> Seq2SeqTransformer {
        let config = tiny(attention);
        config.validate().unwrap();
        config.init(&RandomKey::from_seed(5), &Device::flex())
    }

    fn layouts() -> Vec<(String, AttentionLayout)> {
        let named = AttentionLayout::names().map(|name| (name.to_owned(), AttentionLayout::named(name).unwrap()));
        let able = AnyMechanism::all().into_iter().filter(|config| config.can_be_causal() && config.can_see_ahead());
        let able = able.map(all_pairs);
        let own = able.map(|a| (a.name(), AttentionLayout::for_attention(a)));
        let linformer: AnyMechanism = "linformer".parse().unwrap();
        let cross = CrossLayout::All(linformer.clone().into());
        let around = AttentionLayout { encoder: linformer.into(), cross, ..AttentionLayout::default() };
        named.into_iter().chain(own).chain([("linformer".to_owned(), around)]).collect()
    }

    fn tokens<const B: usize, const N: usize>(rows: [[i32; N]; B]) -> Tensor<2, Int> {
        Tensor::from_data(rows, &Device::flex())
    }

    fn source<const B: usize, const N: usize>(rows: [[i32; N]; B], lengths: &[usize]) -> Padded<'_> {
        Padded { tokens: tokens(rows), lengths }
    }

    fn logits(model: &Seq2SeqTransformer, source: Padded, target: Tensor<2, Int>) -> Tensor<3> {
        let [rows, length] = target.dims();
        let target = Padded { tokens: target, lengths: &vec![length; rows] };
        model.forward_with(source, target, None, &mut Probe::off()).logits
    }

    fn largest_difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
        (a - b).abs().max().into_scalar()
    }

    #[test]
    fn stepping_gives_the_logits_of_the_forward_pass_for_every_layout() {
        for (name, layout) in layouts() {
            let model = built(layout);
            let source = source([[5, 7, 1, 9, 3], [8, 8, 4, 0, 0]], &[5, 3]);
            let target = tokens([[2, 5, 7, 1, 9, 3, 4], [2, 6, 2, 8, 8, 10, 6]]);
            let whole = logits(&model, source.clone(), target.clone());
            for chunk in [1, 3, 7] {
                let mut state = model.start(source.clone());
                let parts = (0..7).step_by(chunk).map(|start| {
                    let part = target.clone().narrow(1, start, chunk.min(7 - start));
                    model.step(part, &mut state, &mut Probe::off()).logits
                });
                let difference = largest_difference(Tensor::cat(parts.collect(), 1), whole.clone());
                assert!(difference < 1e-5, "{name}, steps of {chunk}: {difference}");
            }
        }
    }

    #[test]
    fn later_target_tokens_leave_earlier_logits_bit_identical_and_the_whole_source_is_seen() {
        for (name, layout) in layouts() {
            let model = built(layout);
            let [before, after] = [7, 4].map(|token| logits(&model, source([[5, 7, 1]], &[3]), tokens([[2, 5, token, 9]])));
            let part = |x: &Tensor<3>, from, count| x.clone().narrow(1, from, count).into_data();
            assert_eq!(part(&before, 0, 2), part(&after, 0, 2), "{name}");
            assert_ne!(part(&before, 2, 1), part(&after, 2, 1), "{name}");
            let other = logits(&model, source([[5, 7, 2]], &[3]), tokens([[2, 5, 7, 9]]));
            assert_ne!(part(&before, 0, 1), part(&other, 0, 1), "{name}");
        }
    }

    #[test]
    fn what_padding_holds_never_matters() {
        for (name, layout) in layouts() {
            let model = built(layout);
            let run = |pad| logits(&model, source([[5, 7, pad, pad], [1, 2, 3, 4]], &[2, 4]), tokens([[2, 5, pad], [2, 3, 4]]));
            let (a, b) = (run(0), run(9));
            assert_eq!(a.clone().slice([0..1, 0..2]).into_data(), b.clone().slice([0..1, 0..2]).into_data(), "{name}");
            assert_eq!(a.narrow(0, 1, 1).into_data(), b.narrow(0, 1, 1).into_data(), "{name}");
        }
    }

    #[test]
    fn a_sentence_alone_equals_its_row_in_a_padded_batch() {
        for (name, layout) in layouts() {
            let model = built(layout);
            let alone = logits(&model, source([[5, 7]], &[2]), tokens([[2, 5, 8]]));
            let batch = logits(&model, source([[1, 2, 3, 4], [5, 7, 0, 0]], &[4, 2]), tokens([[2, 3, 4, 9], [2, 5, 8, 0]]));
            let difference = largest_difference(alone, batch.slice([1..2, 0..3]));
            assert!(difference < 1e-5, "{name}: {difference}");
        }
    }

    #[test]
    fn selecting_rows_of_a_state_is_selecting_rows_of_the_batch() {
        for (name, layout) in layouts() {
            let model = built(layout);
            let mut state = model.start(source([[5, 7, 1], [8, 4, 0]], &[3, 2]));
            model.step(tokens([[2, 3], [2, 6]]), &mut state, &mut Probe::off());
            StepDecoder::select(&model, &mut state, &[1, 0, 1]);
            let stepped = model.step(tokens([[4], [5], [9]]), &mut state, &mut Probe::off()).logits;
            let sources = source([[8, 4, 0], [5, 7, 1], [8, 4, 0]], &[2, 3, 2]);
            let whole = logits(&model, sources, tokens([[2, 6, 4], [2, 3, 5], [2, 6, 9]]));
            let difference = largest_difference(stepped, whole.narrow(1, 2, 1));
            assert!(difference < 1e-5, "{name}: {difference}");
        }
    }

    /// Parameters of a model with dot-product attention by the paper's formulas.
    fn formula(config: &Seq2SeqConfig) -> usize {
        let (d, f) = (config.block.d_model, config.block.d_ff);
        let (attention, feed_forward, norm) = (4 * d * d, 2 * d * f + f + d, 2 * d);
        let encoder = config.encoder_layers * (attention + feed_forward + 2 * norm);
        let decoder = config.decoder_layers * (2 * attention + feed_forward + 3 * norm);
        config.source_vocabulary * d + encoder + decoder
    }

    #[test]
    fn the_base_model_has_the_size_of_the_paper() {
        let config = tiny(AttentionLayout::default());
        assert_eq!(config.init(&RandomKey::from_seed(1), &Device::flex()).num_params(), formula(&config));
        let base = Seq2SeqConfig { source_vocabulary: 37_000, target_vocabulary: 37_000, ..Seq2SeqConfig::default() };
        base.validate().unwrap();
        let millions = formula(&base) as f64 / 1e6;
        assert!((millions - 65.0).abs() < 2.5, "{millions} million parameters");
    }

    #[test]
    fn tying_decides_how_many_vocabulary_matrices_there_are() {
        let count = |tying| {
            Seq2SeqConfig { tying, ..tiny(AttentionLayout::default()) }.init(&RandomKey::from_seed(1), &Device::flex()).num_params()
        };
        let matrix = 11 * 8;
        assert_eq!(count(Tying::Output), count(Tying::ThreeWay) + matrix);
        assert_eq!(count(Tying::None), count(Tying::ThreeWay) + 2 * matrix);
    }

    #[test]
    fn a_source_has_positions_of_its_own_where_it_needs_others() {
        let config = |positions, depth| Seq2SeqConfig {
            source_positions: positions,
            tying: Tying::Output,
            depth,
            ..tiny(AttentionLayout::default())
        };
        for depth in [DepthConfig::Stacked, DepthConfig::Shared(SharedConfig::default())] {
            // Whether the last logits are invariant to the order of the source, or of the target.
            let reads_no_order = |positions| {
                let config = config(positions, depth);
                config.validate().unwrap();
                let model = config.init(&RandomKey::from_seed(5), &Device::flex());
                assert_eq!(config.parameters().unwrap().trained, model.num_params() as u128);
                let last = |from, to| logits(&model, source([from], &[3]), tokens([to])).narrow(1, 2, 1);
                let difference = |from, to| largest_difference(last(from, to), last([5, 7, 1], [2, 6, 3]));
                [difference([7, 5, 1], [2, 6, 3]) < 1e-5, difference([5, 7, 1], [6, 2, 3]) < 1e-5]
            };
            assert_eq!(reads_no_order(None), [false, false], "{depth:?}");
            assert_eq!(reads_no_order(Some(PositionConfig::None)), [true, false], "{depth:?}");
            assert_eq!(reads_no_order(Some(PositionConfig::Learned)), [false, false], "{depth:?}");
        }
        let shared = Seq2SeqConfig { tying: Tying::ThreeWay, ..config(Some(PositionConfig::None), DepthConfig::Stacked) };
        let message = shared.validate().unwrap_err().to_string();
        assert!(message.contains("source_positions") && message.contains("tying"), "{message}");
    }

    #[test]
    fn hard_coded_layouts_save_what_the_paper_says() {
        let count = |layout| built(layout).num_params();
        let base = count(AttentionLayout::default());
        let (projections, layers, norm) = (2 * 64, 2 + 3, 2 * 8);
        assert_eq!(count(AttentionLayout::named("hc-sa").unwrap()), base - layers * projections);
        assert_eq!(count(AttentionLayout::named("hc-all").unwrap()), base - (layers + 3) * projections);
        // Two of three cross-attentions are removed with their normalisation; the third has one head and unchanged weights.
        assert_eq!(count(AttentionLayout::named("sh-x").unwrap()), base - layers * projections - 2 * (4 * 64 + norm));
    }

    #[test]
    fn the_only_cross_attention_of_sh_x_is_a_head_of_full_width_in_the_last_layer() {
        let model = built(AttentionLayout::named("sh-x").unwrap());
        let has_cross: Vec<_> = model.decoder.layers.iter().map(|block| block.cross_attention.is_some()).collect();
        assert_eq!(has_cross, [false, false, true]);
        assert!(model.decoder.layers[0].cross_attention_residual.is_none());
        let spec = tiny(AttentionLayout::named("sh-x").unwrap()).decoder_stack().specs().last().unwrap();
        assert_eq!((spec.role, spec.layer, spec.heads, spec.d_head()), (Role::Cross, 2, 1, 8));
        let mut heads = Vec::new();
        let mut listener = |path: &str, observation| {
            if let heedful_attention::contract::probe::Observation::Weights(weights) = observation {
                heads.push((path.to_owned(), weights.dims()[1]));
            }
        };
        model.forward_with(source([[5, 7]], &[2]), source([[2]], &[1]), None, &mut Probe::listening(&mut listener));
        assert_eq!(heads.last().unwrap(), &("decoder.layers.2.cross_attention".to_owned(), 1));
        assert_eq!(heads.len(), 2 + 3 + 1);
    }

    #[test]
    fn every_parameter_of_a_three_way_tied_model_is_trained() {
        let device = Device::flex().autodiff();
        let model = tiny(AttentionLayout::default()).init(&RandomKey::from_seed(1), &device);
        let source = Padded { tokens: Tensor::from_data([[5, 7, 1]], &device), lengths: &[3] };
        let target = Padded { tokens: Tensor::from_data([[2, 4, 6]], &device), lengths: &[3] };
        let scores = model.forward_with(source, target, Some(RandomKey::from_seed(2)), &mut Probe::off());
        let targets = Tensor::from_data([4, 6, 3], &device);
        let loss = crate::parts::loss::cross_entropy(scores.logits.reshape([3, 11]), targets, Some(0), 0.1).loss;
        let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &model);
        let (attention, feed_forward, norm) = (4, 4, 2);
        let encoder = 2 * (attention + feed_forward + 2 * norm);
        let decoder = 3 * (2 * attention + feed_forward + 3 * norm);
        assert_eq!(gradients.len(), 1 + encoder + decoder);
    }

    #[test]
    fn configurations_survive_toml_and_refuse_unknown_fields() {
        for (name, attention) in layouts() {
            let config = Seq2SeqConfig { tying: Tying::Output, ..tiny(attention) };
            let text = toml::to_string(&config).unwrap();
            assert_eq!(toml::from_str::<Seq2SeqConfig>(&text).unwrap(), config, "{name}");
        }
        let config: Seq2SeqConfig = toml::from_str("attention = 'sh-x'\n[block]\nd_model = 288").unwrap();
        assert_eq!(
            config,
            Seq2SeqConfig {
                attention: AttentionLayout::named("sh-x").unwrap(),
                block: BlockConfig { d_model: 288, ..BlockConfig::default() },
                ..Seq2SeqConfig::default()
            }
        );
        let error = toml::from_str::<Seq2SeqConfig>("tieing = 'none'").unwrap_err().to_string();
        assert!(error.contains("tieing"), "{error}");
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let base = || tiny(AttentionLayout::default());
        let encoder = AttentionLayout { encoder: LayerAttention::Each(vec![AnyMechanism::default(); 3]), ..AttentionLayout::default() };
        let decoder = AttentionLayout { decoder: LayerAttention::Each(vec![AnyMechanism::default(); 2]), ..AttentionLayout::default() };
        let cross = AttentionLayout { cross: CrossLayout::Each(vec![None; 2]), ..AttentionLayout::default() };
        let three_heads = CrossAttention { heads: Some(3), ..CrossAttention::default() };
        let heads = AttentionLayout { cross: CrossLayout::All(three_heads), ..AttentionLayout::default() };
        let cases = [
            ("source_vocabulary", Seq2SeqConfig { source_vocabulary: 0, ..base() }),
            ("target_vocabulary", Seq2SeqConfig { target_vocabulary: 0, ..base() }),
            ("tying", Seq2SeqConfig { target_vocabulary: 12, ..base() }),
            ("encoder_layers", Seq2SeqConfig { encoder_layers: 0, ..base() }),
            ("decoder_layers", Seq2SeqConfig { decoder_layers: 0, ..base() }),
            ("heads", Seq2SeqConfig { block: BlockConfig { heads: 5, ..base().block }, ..base() }),
            ("d_model", Seq2SeqConfig { block: BlockConfig { d_model: 9, heads: 3, ..base().block }, ..base() }),
            ("dropout", Seq2SeqConfig { block: BlockConfig { dropout: 1.5, ..base().block }, ..base() }),
            ("attention.encoder", Seq2SeqConfig { attention: encoder, ..base() }),
            ("attention.decoder", Seq2SeqConfig { attention: decoder, ..base() }),
            ("attention.cross", Seq2SeqConfig { attention: cross, ..base() }),
            ("heads", Seq2SeqConfig { attention: heads, ..base() }),
        ];
        for (option, config) in cases {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("`{option}`")), "{option}: {error}");
        }
        for (name, layout) in layouts() {
            assert!(tiny(layout).validate().is_ok(), "{name}");
        }
    }

    #[test]
    fn a_synthesizer_is_refused_as_cross_attention() {
        let cross = CrossLayout::All("synthesizer-random".parse::<AnyMechanism>().unwrap().into());
        let layout = AttentionLayout { cross, ..AttentionLayout::default() };
        let error = tiny(layout).validate().unwrap_err().to_string();
        assert!(error.contains("decoder layer 1 of 3, cross-attention") && error.contains("synthesizer-random"), "{error}");
    }
}
