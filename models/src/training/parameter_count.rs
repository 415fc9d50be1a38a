//! Parameter counts of models from their configurations: no model is built, and sizes are unlimited.
//!
//! Counts equal those of a built model: a matrix that is embedding and output projection counts once, and a block shared by layers counts once. There is no
//! count if a mechanism does not report its parameters, if different configurations may share parameters across layers, or for a layerwise Linformer.

use heedful_attention::description::parameter_formula::ParameterCount;
use heedful_attention::mechanisms::linformer::Sharing;
use heedful_attention::prelude::*;

use crate::architectures::classifier::{ClassifierConfig, Pooling};
use crate::architectures::language_model::LanguageModelConfig;
use crate::architectures::seq2seq::{Seq2SeqConfig, Tying};
use crate::architectures::vision::VisionConfig;
use crate::block::BlockConfig;
use crate::block::auxiliary::AuxiliaryLossesConfig;
use crate::block::layer_sharing::{DepthConfig, SharedConfig};
use crate::block::stack::StackConfig;
use crate::parts::adaptive_softmax::{AdaptiveConfig, Cluster};
use crate::parts::embedding::TokenEmbeddingConfig;
use crate::parts::feed_forward::{FeedForwardConfig, KERNELS};
use crate::parts::norm::NormConfig;
use crate::parts::position::PositionConfig;
use crate::parts::residual::ResidualConfig;
use crate::parts::residual_gate::{GateConfig, GateKind};

/// A matrix of these sizes.
fn matrix(rows: usize, columns: usize) -> u128 {
    (rows as u128).saturating_mul(columns as u128)
}

/// A linear map.
fn map(inputs: usize, outputs: usize, bias: bool) -> u128 {
    matrix(inputs, outputs).saturating_add(if bias { outputs as u128 } else { 0 })
}

/// A count plus further trained parameters.
fn plus(count: ParameterCount, trained: u128) -> ParameterCount {
    ParameterCount { trained: count.trained.saturating_add(trained), ..count }
}

impl NormConfig {
    fn parameters(&self, d_model: usize) -> u128 {
        matrix(d_model, if self.has_bias() { 2 } else { 1 })
    }
}

impl GateConfig {
    fn parameters(&self, d_model: usize) -> u128 {
        let (maps, biases) = match self.kind {
            GateKind::Input => (1, 0),
            GateKind::Output | GateKind::Highway => (1, 1),
            GateKind::SigTanh => (2, 1),
            GateKind::Gru => (6, 1),
        };
        matrix(d_model, d_model).saturating_mul(maps).saturating_add(matrix(d_model, biases))
    }
}

impl FeedForwardConfig {
    fn parameters(&self) -> u128 {
        let Self { d_model, d_ff, gated, bias, separable, .. } = *self;
        let input = map(d_model, d_ff, bias).saturating_mul(if gated { 2 } else { 1 });
        let convolutions = if separable { matrix(KERNELS[0], d_model).saturating_add(matrix(KERNELS[1], d_ff)) } else { 0 };
        input.saturating_add(map(d_ff, d_model, bias)).saturating_add(convolutions)
    }
}

impl ResidualConfig {
    fn parameters(&self) -> u128 {
        let norms = u128::from(self.has_norm()) + u128::from(self.norm_order.is_on_output());
        let gate = self.gate.map_or(0, |gate| gate.parameters(self.d_model));
        self.norm.parameters(self.d_model).saturating_mul(norms).saturating_add(gate)
    }
}

impl BlockConfig {
    /// Parameters of a block without its attentions.
    fn parameters(&self, role: Role, has_cross_attention: bool) -> u128 {
        let feed_forward = self.feed_forward(role);
        let later = u128::from(has_cross_attention) + u128::from(feed_forward.is_some());
        let residuals = self.residual(true).parameters().saturating_add(self.residual(false).parameters().saturating_mul(later));
        residuals.saturating_add(feed_forward.map_or(0, |network| network.parameters()))
    }
}

impl PositionConfig {
    /// Parameters of vectors that are added once.
    fn parameters(&self, max_length: usize, d_model: usize) -> u128 {
        match self {
            Self::Learned | Self::PerLayer => matrix(max_length, d_model),
            Self::Grid(grid) => grid.parameters(d_model),
            Self::Sinusoidal | Self::None => 0,
        }
    }
}

impl TokenEmbeddingConfig {
    fn parameters(&self) -> u128 {
        let Self { vocabulary, d_model, max_length, positions, segments, norm, .. } = *self;
        matrix(vocabulary, d_model)
            .saturating_add(positions.parameters(max_length, d_model))
            .saturating_add(matrix(segments, d_model))
            .saturating_add(norm.map_or(0, |norm| norm.parameters(d_model)))
    }
}

impl AdaptiveConfig {
    /// Parameters of the input vectors of a vocabulary in a model of width `d_model`: `Σ_i V_i w_i + C Σ_i w_i` over clusters `i` of `V_i` tokens with vectors
    /// of width `w_i`, the head of width `C`.
    pub fn embedding_parameters(&self, vocabulary: usize, d_model: usize) -> u128 {
        let of_cluster = |Cluster { tokens, width }: Cluster| [matrix(tokens, width), matrix(width, d_model)];
        self.clusters(vocabulary, d_model).flat_map(of_cluster).fold(0, u128::saturating_add)
    }

    /// Parameters of the softmax over a vocabulary in a model of width `d_model`: `C` per tail, and unless tied those of the input without the projection of
    /// the head.
    pub fn softmax_parameters(&self, vocabulary: usize, d_model: usize, tied: bool) -> u128 {
        let own = if tied { 0 } else { self.embedding_parameters(vocabulary, d_model) - matrix(d_model, d_model) };
        matrix(d_model, self.cutoffs.len()).saturating_add(own)
    }
}

impl AuxiliaryLossesConfig {
    fn parameters(&self, layers: usize, d_model: usize, vocabulary: usize) -> u128 {
        let before_the_last = if self.intermediate_layers { layers.saturating_sub(1).saturating_mul(self.targets) } else { 0 };
        matrix(d_model, vocabulary).saturating_mul((before_the_last + self.targets.saturating_sub(1)) as u128)
    }
}

impl StackConfig {
    fn parameters<'a>(&self, attention: impl Fn(&LayerSpec) -> &'a AnyMechanism) -> Option<ParameterCount> {
        let BlockConfig { d_model, max_length, norm, .. } = self.block;
        let mut count = ParameterCount::default();
        // Mechanisms with parameters shared across layers, each with its role.
        let mut sharing: Vec<(Role, &AnyMechanism)> = Vec::new();
        for spec in self.specs() {
            let own = attention(&spec);
            let ParameterCount { trained, fixed } = of_attention(own, &spec)?;
            let ParameterCount { trained: mut common, .. } = own.shared_parameters_at(&spec);
            if common > 0 && !sharing.contains(&(spec.role, own)) {
                if sharing.iter().any(|(role, _)| *role == spec.role) {
                    // Two configurations may share some of them.
                    return None;
                }
                sharing.push((spec.role, own));
                common = 0;
            }
            count = ParameterCount { fixed: count.fixed.saturating_add(fixed), ..plus(count, trained - common) };
        }
        for cross_heads in &self.cross_heads {
            count = plus(count, self.block.parameters(self.role, cross_heads.is_some()));
        }
        if self.block.has_final_norm() {
            count = plus(count, norm.parameters(d_model));
        }
        if self.positions == PositionConfig::PerLayer {
            let tables = self.positions.parameters(max_length, d_model).saturating_mul(self.cross_heads.len() as u128);
            count = plus(count, tables);
        }
        if let DepthConfig::Shared(SharedConfig { step_signal, halting }) = self.depth {
            let coordinates = self.positions.parameters(max_length, d_model).saturating_add(step_signal.parameters(self.layers, d_model));
            let unit = if halting.is_some() { map(d_model, 1, true) } else { 0 };
            count = plus(count, coordinates.saturating_add(unit));
        }
        Some(count)
    }
}

fn of_attention(attention: &AnyMechanism, spec: &LayerSpec) -> Option<ParameterCount> {
    match attention.get::<LinformerConfig>() {
        Some(linformer) if linformer.sharing == Sharing::Layerwise && spec.layers > 1 => None,
        _ => attention.parameters_at(spec),
    }
}

impl LanguageModelConfig {
    /// Parameter count of the model, without building it: see [the module](crate::training::parameter_count).
    pub fn parameters(&self) -> Option<ParameterCount> {
        let (vocabulary, d_model) = (self.vocabulary, self.block.d_model);
        let count = self.stack().parameters(|spec| self.attention.at(spec.layer))?;
        // The embedding contains those of the head.
        let vectors = self.adaptive.as_ref().map_or(0, |adaptive| {
            adaptive.embedding_parameters(vocabulary, d_model).saturating_sub(matrix(adaptive.head(vocabulary), d_model))
        });
        let output = match &self.adaptive {
            Some(adaptive) => adaptive.softmax_parameters(vocabulary, d_model, self.tied),
            None if self.tied => 0,
            None => matrix(d_model, vocabulary),
        };
        let bias = if self.output_bias { vocabulary as u128 } else { 0 };
        let auxiliary = self.auxiliary.map_or(0, |losses| losses.parameters(self.layers, d_model, vocabulary));
        Some([self.embedding().parameters(), vectors, output, bias, auxiliary].into_iter().fold(count, plus))
    }
}

impl ClassifierConfig {
    /// Parameter count of the model, without building it: see [the module](crate::training::parameter_count).
    pub fn parameters(&self) -> Option<ParameterCount> {
        let d_model = self.block.d_model;
        let count = self.stack().parameters(|spec| self.attention.at(spec.layer))?;
        let pooler = if self.pooler { map(d_model, d_model, true) } else { 0 };
        let head = if self.masked_head {
            let transform = map(d_model, d_model, true).saturating_add(self.block.norm.parameters(d_model));
            transform.saturating_add(self.vocabulary as u128)
        } else {
            0
        };
        Some([self.embedding().parameters(), pooler, map(d_model, self.outputs, self.output_bias), head].into_iter().fold(count, plus))
    }
}

impl VisionConfig {
    /// Parameter count of the model, without building it: see [the module](crate::training::parameter_count).
    pub fn parameters(&self) -> Option<ParameterCount> {
        let BlockConfig { d_model, max_length, .. } = self.block;
        let count = self.stack().parameters(|spec| self.attention.at(spec.layer))?;
        let token = if self.pooling == Pooling::ClassToken { d_model as u128 } else { 0 };
        let positions = self.depth.embedded_positions(self.positions).parameters(max_length, d_model);
        Some([map(self.patch_size(), d_model, true), token, positions, map(d_model, self.classes, true)].into_iter().fold(count, plus))
    }
}

impl Seq2SeqConfig {
    /// Parameter count of the model, without building it: see [the module](crate::training::parameter_count).
    pub fn parameters(&self) -> Option<ParameterCount> {
        let of_stack = |stack: StackConfig| stack.parameters(|spec| self.attention.at(spec));
        let (encoder, decoder) = (of_stack(self.encoder_stack())?, of_stack(self.decoder_stack())?);
        let count = ParameterCount { fixed: encoder.fixed.saturating_add(decoder.fixed), ..plus(encoder, decoder.trained) };
        let target = if self.tying == Tying::ThreeWay { 0 } else { self.target_embedding().parameters() };
        let output = if self.tying == Tying::None { matrix(self.block.d_model, self.target_vocabulary) } else { 0 };
        Some([self.source_embedding().parameters(), target, output].into_iter().fold(count, plus))
    }

    /// The same model with the number of hidden units, at least 1, that brings its trained parameters closest to `trained`. It serves comparisons of a shared
    /// block with separate layers at equal weights (Dehghani et al. 2018, section 3.6). `None` if there is no [count](Self::parameters) or no feed-forward
    /// network.
    pub fn with_trained_parameters(&self, trained: u128) -> Option<Self> {
        let with_d_ff = |d_ff: usize| Self { block: BlockConfig { d_ff, ..self.block }, ..self.clone() };
        let [one, two] = [1, 2].map(|d_ff| with_d_ff(d_ff).parameters());
        let (one, two) = (one?.trained, two?.trained);
        let unit = two.checked_sub(one).filter(|&unit| unit > 0)?;
        // The count grows linearly with the hidden units.
        let more = (trained.saturating_sub(one).saturating_add(unit / 2)) / unit;
        Some(with_d_ff(usize::try_from(more).ok()?.checked_add(1)?))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use burn::module::Module;
    use burn::tensor::Device;

    use crate::block::halting::HaltingConfig;
    use crate::block::layout::{AttentionLayout, LayerAttention};
    use crate::block::{FeedForwardIn, Parallel};
    use crate::parts::feed_forward::Activation;
    use crate::parts::norm::NormKind;
    use crate::parts::position::{GridConfig, Join};
    use crate::parts::residual::NormOrder;

    fn all(count: Option<ParameterCount>) -> usize {
        let ParameterCount { trained, fixed } = count.expect("the attentions say how many parameters they have");
        (trained + fixed) as usize
    }

    fn tiny(block: BlockConfig) -> BlockConfig {
        BlockConfig { d_model: 8, heads: 2, d_ff: 12, max_length: 16, norm_order: NormOrder::Pre, ..block }
    }

    fn blocks() -> Vec<BlockConfig> {
        let base = BlockConfig::default;
        let gate = |kind| BlockConfig { gate: Some(GateConfig::new(kind)), ..base() };
        vec![
            base(),
            BlockConfig { norm: NormConfig::new(NormKind::Rms), feed_forward_bias: false, gated_feed_forward: true, ..base() },
            BlockConfig { norm: NormConfig::default().with_bias(false), qkv_bias: true, ..base() },
            BlockConfig { attention_output_bias: true, qkv_bias: true, kv_heads: Some(1), head_width: Some(6), ..base() },
            BlockConfig { parallel: Some(Parallel::SharedNorm), ..base() },
            BlockConfig { parallel: Some(Parallel::OwnNorms), separable_feed_forward: true, ..base() },
            BlockConfig { feed_forward_in: FeedForwardIn::None, ..base() },
            BlockConfig { feed_forward_in: FeedForwardIn::Encoder, ..base() },
            BlockConfig { final_norm: Some(false), activation: Activation::GeluTanh, ..base() },
            gate(GateKind::Input),
            gate(GateKind::Output),
            gate(GateKind::Highway),
            gate(GateKind::SigTanh),
            gate(GateKind::Gru),
        ]
    }

    fn language_model(block: BlockConfig) -> LanguageModelConfig {
        LanguageModelConfig { vocabulary: 11, layers: 2, block: tiny(block), ..LanguageModelConfig::default() }
    }

    #[track_caller]
    fn assert_counted(config: &LanguageModelConfig) {
        config.validate().unwrap();
        let built = config.init(&RandomKey::from_seed(1), &Device::flex()).num_params();
        assert_eq!(all(config.parameters()), built, "{config:?}");
    }

    #[test]
    fn counts_are_those_of_built_models_whatever_their_blocks_are() {
        for block in blocks() {
            assert_counted(&language_model(block));
        }
        for norm_order in [NormOrder::Post, NormOrder::Sandwich, NormOrder::BranchOutput] {
            let config = language_model(BlockConfig::default());
            assert_counted(&LanguageModelConfig { block: BlockConfig { norm_order, ..config.block }, ..config });
        }
    }

    #[test]
    fn counts_are_those_of_built_models_whatever_is_around_the_blocks() {
        let base = || language_model(BlockConfig::default());
        assert_counted(&LanguageModelConfig { tied: false, output_bias: true, embedding_norm: true, ..base() });
        assert_counted(&LanguageModelConfig { auxiliary: Some(AuxiliaryLossesConfig::default()), ..base() });
        assert_counted(&LanguageModelConfig { classes: 4, ..base() });
        for (adaptive, tied) in [(AdaptiveConfig::new([3, 7]).with_div(2.5), true), (AdaptiveConfig::new([4]), false)] {
            assert_counted(&LanguageModelConfig { adaptive: Some(adaptive), tied, ..base() });
        }
        let last_alone = AuxiliaryLossesConfig { intermediate_layers: false, targets: 3, ..AuxiliaryLossesConfig::default() };
        assert_counted(&LanguageModelConfig { auxiliary: Some(last_alone), ..base() });
        let grid = |join| PositionConfig::Grid(GridConfig { channels: 3, join, ..GridConfig::new(4, 5) });
        for positions in
            [PositionConfig::Learned, PositionConfig::PerLayer, PositionConfig::None, grid(Join::Sum), grid(Join::Concatenated)]
        {
            assert_counted(&LanguageModelConfig { positions, ..base() });
        }
        assert_counted(&LanguageModelConfig { depth: DepthConfig::Reversible, ..base() });
        let shared = SharedConfig { step_signal: PositionConfig::Learned, halting: Some(HaltingConfig::default()) };
        for (shared, positions) in [(shared, PositionConfig::Learned), (SharedConfig::default(), PositionConfig::Sinusoidal)] {
            assert_counted(&LanguageModelConfig { depth: DepthConfig::Shared(shared), positions, ..base() });
        }
    }

    #[test]
    fn counts_are_those_of_built_models_with_every_mechanism() {
        for attention in AnyMechanism::all() {
            let block = tiny(BlockConfig::default());
            let config = ClassifierConfig {
                vocabulary: 11,
                outputs: 3,
                attention: attention.clone().into(),
                layers: 2,
                block,
                segments: true,
                pooler: true,
                masked_head: true,
                embedding_norm: true,
                ..ClassifierConfig::default()
            };
            let built = config.init(&RandomKey::from_seed(1), &Device::flex()).num_params();
            match config.parameters() {
                None => {
                    assert_eq!(attention.get::<LinformerConfig>().map(|config| config.sharing), Some(Sharing::Layerwise), "{attention}")
                }
                count => assert_eq!(all(count), built, "{attention}"),
            }
        }
        let lists = LayerAttention::Each(vec!["random-fixed".parse().unwrap(), AnyMechanism::default()]);
        let config = LanguageModelConfig { attention: lists, ..language_model(BlockConfig::default()) };
        assert_counted(&config);
        assert_eq!(config.parameters().unwrap().fixed, 2 * 16 * 16);
    }

    #[test]
    fn parameters_that_layers_have_in_common_count_once() {
        let config = |name: &str| LanguageModelConfig { layers: 4, ..language_model(BlockConfig::default()) }.with_attention(name);
        for (own, shared, common) in [
            ("relative", "relative{shared_biases=true}", 2 * 8),
            ("learned-relative", "learned-relative{shared_table=true}", (16 + 1) * 4),
            ("adaptive-span", "adaptive-span{shared_table=true}", (16 + 1) * 4),
            ("adaptive-span{max_span=5}", "adaptive-span{max_span=5,shared_table=true}", (5 + 1) * 4),
            ("sliding-window{logits={name=relative}}", "sliding-window{logits={name=relative,shared_biases=true}}", 2 * 8),
            ("output-gate{logits={name=relative}}", "output-gate{logits={name=relative,shared_biases=true}}", 2 * 8),
            ("differential{logits={name=relative}}", "differential{logits={name=relative,shared_biases=true}}", 2 * 8),
            ("talking-heads{logits={name=relative}}", "talking-heads{logits={name=relative,shared_biases=true}}", 2 * 8),
            ("soft-cap{logits={name=relative}}", "soft-cap{logits={name=relative,shared_biases=true}}", 2 * 8),
        ] {
            let [own, with] = [own, shared].map(config);
            assert_eq!(all(own.parameters()) - all(with.parameters()), 3 * common, "{shared}");
            assert_eq!(all(with.parameters()), distinct(&with.init(&RandomKey::from_seed(1), &Device::flex())), "{shared}");
            assert_eq!(all(own.parameters()), own.init(&RandomKey::from_seed(1), &Device::flex()).num_params());
        }
        let two = config("relative").with_attention(["relative{shared_biases=true}", "relative{shared_biases=true,clamp_length=3}"]);
        assert_eq!(two.parameters(), None);
    }

    /// Number of distinct values in the parameters of a model. The module's own count includes a parameter as often as it occurs.
    pub(crate) fn distinct<M: Module>(model: &M) -> usize {
        let (mut ids, mut distinct) = (std::collections::HashSet::new(), 0);
        model.visit(&mut Numbers(|id, count| distinct += if ids.insert(id) { count } else { 0 }));
        distinct
    }

    struct Numbers<F>(F);

    impl<F: FnMut(burn::module::ParamId, usize)> burn::module::ModuleVisitor for Numbers<F> {
        fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<burn::tensor::Tensor<D>>) {
            (self.0)(param.id, param.shape().num_elements());
        }
    }

    #[test]
    fn counts_of_encoder_decoders_and_of_models_of_images_are_those_of_built_ones() {
        for tying in [Tying::ThreeWay, Tying::Output, Tying::None] {
            for layout in ["base", "sh-x", "hc-sa"] {
                let config = Seq2SeqConfig {
                    source_vocabulary: 11,
                    target_vocabulary: 11,
                    encoder_layers: 1,
                    decoder_layers: 2,
                    attention: AttentionLayout::named(layout).unwrap(),
                    block: tiny(BlockConfig::default()),
                    tying,
                    ..Seq2SeqConfig::default()
                };
                let built = config.init(&RandomKey::from_seed(1), &Device::flex()).num_params();
                assert_eq!(all(config.parameters()), built, "{tying:?}, {layout}");
            }
        }
        let config = ClassifierConfig { pooling: Pooling::LastToken, causal: true, output_bias: false, ..ClassifierConfig::new(11, 3) };
        let config = ClassifierConfig { layers: 2, block: tiny(BlockConfig::default()), ..config };
        assert_eq!(all(config.parameters()), config.init(&RandomKey::from_seed(1), &Device::flex()).num_params());
        for pooling in [Pooling::ClassToken, Pooling::Mean] {
            let block = tiny(BlockConfig::default());
            let config =
                VisionConfig { pooling, ..VisionConfig::new(5).with_image(4, 6, 2).with_patch(2).with_layers(2).with_block(block) };
            config.validate().unwrap();
            assert_eq!(all(config.parameters()), config.init(&RandomKey::from_seed(1), &Device::flex()).num_params(), "{pooling:?}");
        }
    }

    #[test]
    fn one_block_for_all_layers_can_have_the_weights_of_the_stack() {
        let block = BlockConfig { d_model: 16, heads: 2, d_ff: 48, max_length: 16, ..BlockConfig::default() };
        let stacked = Seq2SeqConfig {
            source_vocabulary: 11,
            target_vocabulary: 11,
            encoder_layers: 3,
            decoder_layers: 3,
            block,
            ..Seq2SeqConfig::default()
        };
        let wanted = stacked.parameters().unwrap().trained;
        let shared =
            |halting| Seq2SeqConfig { depth: DepthConfig::Shared(SharedConfig { halting, ..SharedConfig::default() }), ..stacked.clone() };
        for halting in [None, Some(HaltingConfig::default())] {
            let narrow = shared(halting);
            let wide = narrow.with_trained_parameters(wanted).unwrap();
            assert!(3 * narrow.parameters().unwrap().trained < 2 * wanted);
            let found = all(wide.parameters());
            assert_eq!(found, wide.init(&RandomKey::from_seed(1), &Device::flex()).num_params());
            // One hidden unit has a row and a column of 16 and a bias in each of the two stacks.
            assert!(found.abs_diff(wanted as usize) <= 33, "{found} for {wanted}");
            assert_eq!((wide.block.d_model, wide.depth), (16, narrow.depth));
        }
        assert_eq!(stacked.with_trained_parameters(wanted), Some(stacked.clone()));
        assert_eq!(stacked.with_trained_parameters(0).unwrap().block.d_ff, 1);
        let without = BlockConfig { feed_forward_in: FeedForwardIn::None, ..block };
        assert_eq!(Seq2SeqConfig { block: without, ..stacked }.with_trained_parameters(wanted), None);
    }

    #[test]
    fn adaptive_vectors_are_counted_by_their_formula() {
        let base = LanguageModelConfig { vocabulary: 100, ..language_model(BlockConfig::default()) };
        let adaptive = AdaptiveConfig::new([20, 60]).with_div(3.0);
        // Widths 8, 2 and 0.9, which is invalid.
        assert!(LanguageModelConfig { adaptive: Some(adaptive), ..base.clone() }.validate().is_err());
        let adaptive = Some(AdaptiveConfig::new([20, 60]).with_div(2.5));
        let count = |tied, adaptive| LanguageModelConfig { tied, adaptive, ..base.clone() }.parameters().unwrap().trained;
        // Widths 8, 3 and 1.
        let (tables, tails) = (20 * 8 + 40 * 3 + 40, (3 + 1) * 8);
        assert_eq!(count(true, adaptive.clone()) + 100 * 8, count(true, None) + tables + tails + 8 * 8 + 2 * 8);
        assert_eq!(count(false, adaptive.clone()) - count(true, adaptive), tables + tails);
    }

    #[test]
    fn models_that_no_machine_holds_are_counted() {
        let block = BlockConfig { d_model: usize::MAX, heads: 1, d_ff: usize::MAX, ..BlockConfig::default() };
        let config = LanguageModelConfig { vocabulary: usize::MAX, layers: 3, block, ..LanguageModelConfig::default() };
        assert!(config.parameters().unwrap().trained > 3 * (usize::MAX as u128));
    }
}
