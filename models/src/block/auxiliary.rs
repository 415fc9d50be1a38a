//! The auxiliary losses of deep character-level Transformers (Al-Rfou et al. 2018, section 3).
//!
//! In addition to the loss of every position, `L = Σ_l 1[l = n or τ < l / (2n)] (CE_l^(+1) + w CE_l^(+2) + ..)`. The states of each of `n` layers predict the
//! next token and further ones, whose losses each have weight `w = 0.5`. Layers below the last predict until the fraction `l / (2n)` of training has passed
//! (`τ` is the current fraction). Each layer and each distance has its own classifier. The last layer's next-token loss is the model's own loss and not
//! included. All losses are means over the positions with such a target. For models that read segments, these are positions of the segment.
//!
//! A reversible stack does not keep the outputs of its layers, the means of its streams. Their losses are computed in the forward pass, and again with
//! gradients in the backward pass, when the streams are reconstructed.
//!
//! The first of the paper's three auxiliary losses is that all positions predict. [`multiple_positions`](AuxiliaryLossesConfig::multiple_positions) disables
//! it: then only the last position predicts, in the model's own loss
//! ([`LanguageModel::predicting`](crate::architectures::language_model::LanguageModel::predicting)) and in the others.
//!
//! The classifiers serve only training. The experiments exclude them from the final weights of a run and from parameter counts; checkpoints keep them, so that
//! an interrupted run resumes exactly.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::contract::init;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use crate::parts::loss::projected_cross_entropy;

/// Selection of auxiliary losses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuxiliaryLossesConfig {
    /// Whether layers below the last also predict (default: yes).
    pub intermediate_layers: bool,
    /// Number of predicted tokens ahead, at least 1 (default 2: the next one and the one after it).
    pub targets: usize,
    /// Weight of each target beyond the next token, at least 0 (default 0.5).
    pub target_weight: f64,
    /// Whether all positions predict, the first of the paper's auxiliary losses (default: yes). If not, all losses, including the model's own, cover only the
    /// last position with such a target: the last one of a segment.
    pub multiple_positions: bool,
}

impl Default for AuxiliaryLossesConfig {
    fn default() -> Self {
        Self { intermediate_layers: true, targets: 2, target_weight: 0.5, multiple_positions: true }
    }
}

impl AuxiliaryLossesConfig {
    /// Whether it changes the training of a model with this number of layers: without further targets, losses of lower layers or the last-position loss it adds
    /// nothing.
    pub fn has_effect(&self, layers: usize) -> bool {
        self.has_further_targets() && self.target_weight > 0.0 || self.intermediate_layers && layers > 1 || !self.multiple_positions
    }

    /// Whether tokens beyond the next are predicted.
    pub fn has_further_targets(&self) -> bool {
        self.targets > 1
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// If the number of targets is 0, or a weight is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("auxiliary losses");
        check.at_least_one("targets", self.targets)?;
        if !(self.target_weight >= 0.0 && self.target_weight.is_finite()) {
            return Err(check.refuse("target_weight", self.target_weight, "give a number of at least 0"));
        }
        Ok(())
    }

    /// Initialises the classifiers for a stack of `layers` layers of width `d_model`.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, layers: usize, d_model: usize, vocabulary: usize, key: &RandomKey, device: &Device) -> AuxiliaryClassifiers {
        self.validate().expect("the configuration is valid");
        let classifiers = |layer: usize| {
            let is_last = layer + 1 == layers;
            let targets = if is_last || self.intermediate_layers { usize::from(is_last)..self.targets } else { 0..0 };
            let classifier = |target: usize| {
                let key = key.named("layers").numbered(layer as u64).named("targets").numbered(target as u64);
                init::linear(d_model, vocabulary, false, &key, device)
            };
            targets.map(classifier).collect()
        };
        AuxiliaryClassifiers { layers: (0..layers).map(classifiers).collect(), config: *self }
    }
}

/// Classifiers that predict tokens from the states of layers.
///
/// Should be created with [`AuxiliaryLossesConfig`].
#[derive(Module, Debug)]
pub struct AuxiliaryClassifiers {
    /// One matrix `[C, V]` per layer and target; the last layer has none for the next token.
    pub layers: Vec<Vec<Linear>>,
    #[module(skip)]
    config: AuxiliaryLossesConfig,
}

impl AuxiliaryClassifiers {
    /// Whether all positions predict.
    pub(crate) fn has_multiple_positions(&self) -> bool {
        self.config.multiple_positions
    }

    /// Losses at the fraction `progress` of training, 0 to 1, each a mean over positions. `states` `[B, N, C]` are the outputs of the layers in order
    /// ([`LanguageModel::hidden_of_layers`](crate::architectures::language_model::LanguageModel::hidden_of_layers)), `targets` `[B, N]` the token after each
    /// position.
    ///
    /// # Panics
    /// If the number of layers or targets differs.
    pub fn losses(&self, states: &[Tensor<3>], targets: Tensor<2, Int>, progress: f64) -> Losses {
        assert_eq!(states.len(), self.layers.len(), "states of layers for the classifiers of layers");
        LayerLosses::new(self, targets, progress).of_layers(states)
    }
}

/// Auxiliary losses in a pass: classifiers, targets and schedule.
#[derive(Clone, Debug)]
pub(crate) struct LayerLosses {
    pub(crate) classifiers: AuxiliaryClassifiers,
    targets: Tensor<2, Int>,
    progress: f64,
}

impl LayerLosses {
    /// As in [`AuxiliaryClassifiers::losses`].
    pub(crate) fn new(classifiers: &AuxiliaryClassifiers, targets: Tensor<2, Int>, progress: f64) -> Self {
        Self { classifiers: classifiers.clone(), targets: targets.inner(), progress }
    }

    /// The same with other classifiers.
    pub(crate) fn with_classifiers(&self, classifiers: AuxiliaryClassifiers) -> Self {
        Self { classifiers, ..self.clone() }
    }

    /// Losses of all layers.
    pub(crate) fn of_layers(&self, states: &[Tensor<3>]) -> Losses {
        let mut losses = Losses::default();
        states.iter().enumerate().for_each(|(layer, states)| losses.extend(self.of_layer(layer, states)));
        losses
    }

    /// Losses of a layer with output `states` `[B, N, C]`.
    pub(crate) fn of_layer(&self, layer: usize, states: &Tensor<3>) -> Losses {
        let Self { classifiers: AuxiliaryClassifiers { layers, config }, targets, progress } = self;
        let (is_last, count) = (layer + 1 == layers.len(), layers.len());
        let mut losses = Losses::default();
        if !is_last && *progress >= (layer + 1) as f64 / (2 * count) as f64 {
            return losses;
        }
        let [batch, length, width] = states.dims();
        assert_eq!(targets.dims(), [batch, length], "targets for states of {batch} rows of {length}");
        for (index, classifier) in layers[layer].iter().enumerate() {
            let ahead = index + usize::from(is_last);
            let Some(positions) = length.checked_sub(ahead).filter(|&positions| positions > 0) else { continue };
            let (first, positions) = if config.multiple_positions { (0, positions) } else { (positions - 1, 1) };
            let states = states.clone().narrow(1, first, positions).reshape([batch * positions, width]);
            let targets = targets.clone().narrow(1, first + ahead, positions).reshape([batch * positions]);
            let sum = projected_cross_entropy(states, classifier.weight.val().transpose(), targets, None, 0.0).loss;
            let weight = if ahead == 0 { 1.0 } else { config.target_weight };
            losses.push("auxiliary", sum * (weight / (batch * positions) as f64));
        }
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::activation::log_softmax;

    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::block::BlockConfig;
    use crate::block::halting::HaltingConfig;
    use crate::block::layer_sharing::{DepthConfig, SharedConfig};
    use crate::block::segment::SegmentMemory;
    use crate::parts::residual::NormOrder;

    const LAYERS: usize = 3;
    const VOCABULARY: usize = 7;

    fn block() -> BlockConfig {
        BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, dropout: 0.0, ..BlockConfig::default() }
    }

    fn model(device: &Device) -> LanguageModel {
        let config = LanguageModelConfig { vocabulary: VOCABULARY, layers: LAYERS, block: block(), ..LanguageModelConfig::default() };
        config.init(&RandomKey::from_seed(2), device)
    }

    fn classifiers(config: AuxiliaryLossesConfig, device: &Device) -> AuxiliaryClassifiers {
        config.init(LAYERS, 8, VOCABULARY, &RandomKey::from_seed(3), device)
    }

    fn tokens(device: &Device) -> Tensor<2, Int> {
        Tensor::from_data([[1, 4, 2, 6, 5, 3], [6, 0, 3, 3, 1, 2]], device)
    }

    fn values(losses: &Losses) -> Vec<(&'static str, f32)> {
        losses.iter().map(|(name, loss)| (*name, loss.clone().into_scalar::<f32>())).collect()
    }

    #[test]
    fn losses_are_means_of_the_predictions_of_each_layer_and_target() {
        let device = Device::flex();
        let tokens = tokens(&device);
        let (inputs, targets) = (tokens.clone().narrow(1, 0, 5), tokens.clone().narrow(1, 1, 5));
        let (_, states) = model(&device).hidden_of_layers(inputs, &[], None, &mut Probe::off());
        let classifiers = classifiers(AuxiliaryLossesConfig { targets: 3, ..Default::default() }, &device);
        let found = values(&classifiers.losses(&states, targets, 0.0));
        let mut expected = Vec::new();
        for (layer, states) in states.iter().enumerate() {
            for ahead in usize::from(layer + 1 == LAYERS)..3 {
                let classifier = &classifiers.layers[layer][ahead - usize::from(layer + 1 == LAYERS)];
                let logs = log_softmax(classifier.forward(states.clone()), 2);
                // Position `n` of the inputs has the target `n + 1 + ahead` of the tokens.
                let positions = 5 - ahead;
                let logs = logs.narrow(1, 0, positions).gather(2, tokens.clone().narrow(1, 1 + ahead, positions).unsqueeze_dim(2));
                expected.push(("auxiliary", -logs.mean().into_scalar::<f32>() * if ahead == 0 { 1.0 } else { 0.5 }));
            }
        }
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-5, "{found:?} and {expected:?}");
        }
    }

    #[test]
    fn without_multiple_positions_the_last_one_alone_predicts() {
        let device = Device::flex();
        let tokens = tokens(&device);
        let (inputs, targets) = (tokens.clone().narrow(1, 0, 5), tokens.clone().narrow(1, 1, 5));
        let (_, states) = model(&device).hidden_of_layers(inputs, &[], None, &mut Probe::off());
        let config = AuxiliaryLossesConfig { multiple_positions: false, ..Default::default() };
        let classifiers = classifiers(config, &device);
        let found = values(&classifiers.losses(&states, targets, 0.0));
        let mut expected = Vec::new();
        for (layer, states) in states.iter().enumerate() {
            for ahead in usize::from(layer + 1 == LAYERS)..2 {
                let classifier = &classifiers.layers[layer][ahead - usize::from(layer + 1 == LAYERS)];
                let at = 4 - ahead;
                let logs = log_softmax(classifier.forward(states.clone().narrow(1, at, 1)), 2);
                let logs = logs.gather(2, tokens.clone().narrow(1, at + 1 + ahead, 1).unsqueeze_dim(2));
                expected.push(-logs.mean().into_scalar::<f32>() * if ahead == 0 { 1.0 } else { 0.5 });
            }
        }
        assert_eq!(found.len(), expected.len());
        for ((_, found), expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
        }
    }

    #[test]
    fn a_model_predicts_from_all_positions_unless_it_is_told_otherwise() {
        let device = Device::flex();
        let states = || Tensor::<3>::from_data([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]], &device);
        let targets = || Tensor::<2, Int>::from_data([[1, 2, 3], [4, 5, 6]], &device);
        let found = |model: &LanguageModel| {
            let (states, targets) = model.predicting(states(), targets());
            (states.into_data().try_to_vec::<f32>().unwrap(), targets.into_data().iter::<i64>().collect::<Vec<_>>())
        };
        let with = |auxiliary: AuxiliaryLossesConfig| {
            let config = LanguageModelConfig { vocabulary: VOCABULARY, layers: LAYERS, block: block(), ..LanguageModelConfig::default() };
            config.with_auxiliary(auxiliary).init(&RandomKey::from_seed(2), &device)
        };
        let all = (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![1, 2, 3, 4, 5, 6]);
        assert_eq!(found(&model(&device)), all);
        assert_eq!(found(&with(AuxiliaryLossesConfig::default())), all);
        let last = AuxiliaryLossesConfig { multiple_positions: false, intermediate_layers: false, targets: 1, ..Default::default() };
        let last = with(last);
        assert_eq!(found(&last), (vec![3.0, 6.0], vec![3, 6]));
        // Without classifiers, the loss of the last position is the only one.
        assert_eq!(last.auxiliary.as_ref().unwrap().num_params(), 0);
        assert_eq!((last.predicting_positions(7), model(&device).predicting_positions(7)), (1, 7));
    }

    #[test]
    fn layers_fall_silent_one_after_the_other_in_the_first_half() {
        let device = Device::flex();
        let (_, states) = model(&device).hidden_of_layers(tokens(&device), &[], None, &mut Probe::off());
        let classifiers = classifiers(AuxiliaryLossesConfig::default(), &device);
        let count = |progress: f64| values(&classifiers.losses(&states, tokens(&device), progress)).len();
        // Two losses per layer below the last; the last adds one to the model's own.
        assert_eq!([0.0, 0.16, 0.17, 0.33, 0.34, 0.5, 1.0].map(count), [5, 5, 3, 3, 1, 1, 1]);
    }

    #[test]
    fn the_published_numbers_of_extra_parameters_are_met() {
        // 64 layers, two targets, 512 wide, 256 bytes: 16.8 M; the model's own classifier is included.
        for (layers, published) in [(64, 16.8), (12, 3.1)] {
            let classifiers = AuxiliaryLossesConfig::default().init(layers, 512, 256, &RandomKey::from_seed(0), &Device::flex());
            let count = (classifiers.num_params() + 512 * 256) as f64 / 1e6;
            assert!((count - published).abs() < 0.05, "{layers} layers: {count}");
        }
    }

    #[test]
    fn gradients_reach_the_layers_that_speak() {
        let device = Device::flex().autodiff();
        let model = model(&device);
        let classifiers = classifiers(AuxiliaryLossesConfig { targets: 1, ..Default::default() }, &device);
        let gradient = |progress: f64| {
            let (_, states) = model.hidden_of_layers(tokens(&device), &[], None, &mut Probe::off());
            let total = classifiers.losses(&states, tokens(&device), progress).total()?;
            let gradients = total.backward();
            let of = |layer: usize| model.decoder.layers[layer].feed_forward.as_ref().unwrap().output.weight.grad(&gradients).is_some();
            Some([of(0), of(1), of(2)])
        };
        assert_eq!(gradient(0.0), Some([true, true, false]), "the last layer has the model's own loss only");
        assert_eq!(gradient(0.2), Some([true, true, false]), "the second layer stands on the first");
        assert_eq!(gradient(0.4), None);
    }

    #[test]
    fn layers_speak_also_where_positions_halt_before_them() {
        let device = Device::flex();
        // A bias of 9 halts at the first step.
        let halting = Some(HaltingConfig { bias: 9.0, ..HaltingConfig::default() });
        let depth = DepthConfig::Shared(SharedConfig { halting, ..SharedConfig::default() });
        let block = BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, dropout: 0.0, ..BlockConfig::default() };
        let config = LanguageModelConfig { vocabulary: VOCABULARY, layers: LAYERS, block, depth, ..LanguageModelConfig::default() };
        let model = config.init(&RandomKey::from_seed(2), &device);
        let (hidden, states) = model.hidden_of_layers(tokens(&device), &[], None, &mut Probe::off());
        assert_eq!(states.len(), LAYERS);
        let early = model.hidden(tokens(&device), &[], None, &mut Probe::off());
        assert_eq!(hidden.states.into_data(), early.states.into_data());
        let classifiers = classifiers(AuxiliaryLossesConfig::default(), &device);
        assert_eq!(values(&classifiers.losses(&states, tokens(&device), 0.0)).len(), 5);
    }

    #[test]
    fn a_model_adds_the_losses_of_its_classifiers() {
        let device = Device::flex();
        let with = |depth: DepthConfig| {
            let block = BlockConfig { norm_order: NormOrder::Pre, final_norm: Some(false), ..block() };
            let config = LanguageModelConfig { vocabulary: VOCABULARY, layers: LAYERS, block, depth, ..LanguageModelConfig::default() };
            let config = config.with_auxiliary(AuxiliaryLossesConfig::default());
            config.validate().unwrap();
            config.init(&RandomKey::from_seed(2), &device)
        };
        let model = with(DepthConfig::Stacked);
        let targets = || tokens(&device).flip([1]);
        for progress in [0.0, 0.2, 0.9] {
            let hidden = model.hidden_with_auxiliary(tokens(&device), (targets(), progress), None, &mut Probe::off());
            let (by_hand, states) = model.hidden_of_layers(tokens(&device), &[], None, &mut Probe::off());
            let wanted = model.auxiliary.as_ref().unwrap().losses(&states, targets(), progress);
            assert_eq!(values(&hidden.losses), values(&wanted));
            assert_eq!(hidden.states.into_data(), by_hand.states.into_data());
        }
        // The last layer of a reversible stack is the stack's output.
        let reversible = with(DepthConfig::Reversible);
        let hidden = reversible.hidden_with_auxiliary(tokens(&device), (targets(), 0.9), None, &mut Probe::off());
        let last = LayerLosses::new(reversible.auxiliary.as_ref().unwrap(), targets(), 0.9).of_layer(LAYERS - 1, &hidden.states);
        assert_eq!(values(&hidden.losses), values(&last));
        let begin = reversible.hidden_with_auxiliary(tokens(&device), (targets(), 0.0), None, &mut Probe::off());
        assert_eq!(begin.losses.iter().count(), 5);
        // Without classifiers there is nothing to add.
        let plain = self::model(&device).hidden_with_auxiliary(tokens(&device), (targets(), 0.0), None, &mut Probe::off());
        assert_eq!(plain.losses.iter().count(), 0);
    }

    #[test]
    fn segments_have_the_losses_of_their_own_positions() {
        let device = Device::flex();
        let config = LanguageModelConfig { vocabulary: VOCABULARY, layers: LAYERS, block: block(), ..LanguageModelConfig::default() };
        let config = config.with_auxiliary(AuxiliaryLossesConfig::default()).with_attention("relative");
        let model = config.init(&RandomKey::from_seed(2), &device);
        let (mut memory, mut again) = (SegmentMemory::new(2, 4), SegmentMemory::new(2, 4));
        for segment in 0..2 {
            let inputs = tokens(&device).narrow(1, 2 * segment, 2);
            let targets = tokens(&device).narrow(1, 2 * segment + 1, 2);
            let hidden = model.segment_with_auxiliary(inputs.clone(), (targets.clone(), 0.0), &mut memory, None, &mut Probe::off());
            let states = model.segment(inputs.clone(), &mut again, None, &mut Probe::off()).states;
            assert_eq!(hidden.states.into_data(), states.into_data(), "segment {segment}");
            assert_eq!(memory.remembered(), again.remembered());
            let alone = model.hidden_with_auxiliary(inputs, (targets, 0.0), None, &mut Probe::off());
            let [found, alone] = [values(&hidden.losses), values(&alone.losses)];
            assert_eq!(found.len(), 5);
            let largest = found.iter().zip(&alone).map(|(a, b)| (a.1 - b.1).abs()).fold(0.0, f32::max);
            // The first segment has no predecessor; the second attends to the first.
            assert_eq!(largest > 1e-3, segment > 0, "segment {segment}: {largest}");
        }
    }

    #[test]
    fn impossible_options_are_refused() {
        let refused = |config: AuxiliaryLossesConfig, option: &str| assert!(config.validate().unwrap_err().to_string().contains(option));
        refused(AuxiliaryLossesConfig { targets: 0, ..Default::default() }, "targets");
        refused(AuxiliaryLossesConfig { target_weight: -1.0, ..Default::default() }, "target_weight");
    }
}
