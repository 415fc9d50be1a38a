//! Masked language modelling (Devlin et al. 2019, section 3.1): an encoder learns to predict masked tokens.
//!
//! A fraction of the tokens of a sequence is chosen, 15 % in the paper. The model reads the mask token in place of four fifths of them, a random token for a
//! tenth, and the original token for the rest. It predicts all chosen tokens. A [`Classifier`] can continue with the encoder; the output projection is the
//! embedding matrix. The option [`masked_head`](crate::architectures::classifier::ClassifierConfig::masked_head) adds a [head](MaskedHead) before it, as in the
//! paper's code.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::contract::init;
use heedful_attention::prelude::*;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use crate::architectures::classifier::Classifier;
use crate::block::BlockConfig;
use crate::kernels::fused::linear;
use crate::parts::feed_forward::Activation;
use crate::parts::loss::{CrossEntropy, projected_cross_entropy, with_biases};
use crate::parts::norm::Norm;

/// Fraction of chosen tokens and their replacements. The vocabulary and the mask token must be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaskingConfig {
    /// Number of tokens.
    pub vocabulary: usize,
    /// The mask token.
    pub mask: u32,
    /// Number of tokens, from 0 on, that are never chosen and never drawn (padding, separators).
    pub special: usize,
    /// Further tokens that are never chosen but may be drawn: special tokens of a pretrained model at arbitrary ids (default: none).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<u32>,
    /// Probability of choosing a token, greater than 0 and at most 1 (default 0.15).
    pub probability: f64,
    /// Fraction of the chosen tokens replaced by the mask token (default 0.8).
    pub masked: f64,
    /// Fraction of the chosen tokens replaced by a random token (default 0.1); the rest is unchanged.
    pub random: f64,
}

impl Default for MaskingConfig {
    fn default() -> Self {
        Self { vocabulary: 0, mask: 0, special: 0, kept: Vec::new(), probability: 0.15, masked: 0.8, random: 0.1 }
    }
}

/// Sequences with masked tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masked {
    /// Input of the model.
    pub tokens: Vec<u32>,
    /// Positions of the tokens to predict.
    pub positions: Vec<usize>,
    /// The tokens to predict.
    pub targets: Vec<u32>,
}

impl MaskingConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// If the vocabulary contains no ordinary token, the mask token is outside it, or a fraction is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("masked language model");
        if self.vocabulary <= self.special {
            return Err(check.refuse("vocabulary", self.vocabulary, format!("give more tokens than the {} special ones", self.special)));
        }
        if self.mask as usize >= self.vocabulary {
            return Err(check.refuse("mask", self.mask, format!("give a token below {}", self.vocabulary)));
        }
        if !(self.probability > 0.0 && self.probability <= 1.0) {
            return Err(check.refuse("probability", self.probability, "give a probability greater than 0 and at most 1"));
        }
        if !(self.masked >= 0.0 && self.random >= 0.0 && self.masked + self.random <= 1.0) {
            let remedy = "give two fractions of at least 0 whose sum is at most 1";
            return Err(check.refuse("masked", format!("{} (random {})", self.masked, self.random), remedy));
        }
        Ok(())
    }

    /// Chooses tokens of one sequence, at least one if it contains an ordinary token.
    pub fn mask(&self, tokens: &[u32], key: &RandomKey) -> Masked {
        let mut rng = key.rng();
        let is_ordinary = |token: u32| token as usize >= self.special && !self.kept.contains(&token);
        let ordinary: Vec<usize> = (0..tokens.len()).filter(|&at| is_ordinary(tokens[at])).collect();
        let mut positions: Vec<usize> = ordinary.iter().copied().filter(|_| rng.random_bool(self.probability)).collect();
        if positions.is_empty() && !ordinary.is_empty() {
            positions.push(ordinary[rng.random_range(0..ordinary.len())]);
        }
        let mut given = tokens.to_vec();
        for &at in &positions {
            let chance: f64 = rng.random();
            if chance < self.masked {
                given[at] = self.mask;
            } else if chance < self.masked + self.random {
                given[at] = rng.random_range(self.special as u32..self.vocabulary as u32);
            }
        }
        let targets = positions.iter().map(|&at| tokens[at]).collect();
        Masked { tokens: given, positions, targets }
    }
}

/// Head before the projection by the embedding matrix, with logit biases: `norm(f(h W + b)) E^T + c` (the released code of Devlin et al. 2019). Non-linearity
/// and normalisation are those of the layers.
///
/// Should be created with [`ClassifierConfig::masked_head`](crate::architectures::classifier::ClassifierConfig::masked_head).
#[derive(Module, Debug)]
pub struct MaskedHead {
    /// `W`, `[C, C]`, and `b`.
    pub transform: Linear,
    /// Normalisation before the projection.
    pub norm: Norm,
    /// Biases of the logits `c`, `[V]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    activation: Activation,
}

impl MaskedHead {
    /// Head for models with such blocks and this vocabulary.
    pub(crate) fn init(block: &BlockConfig, vocabulary: usize, key: &RandomKey, device: &Device) -> Self {
        let BlockConfig { d_model, norm, activation, .. } = *block;
        Self {
            transform: init::linear(d_model, d_model, true, &key.named("transform"), device),
            norm: norm.init(d_model, device),
            bias: Init::Constant(0.0).parameter([vocabulary], &key.named("bias"), device),
            activation,
        }
    }

    /// Hidden states `[.., C]` after the head.
    fn transformed<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        self.norm.forward(self.activation.apply(linear(hidden, &self.transform)))
    }
}

impl<A: Attention> Classifier<A> {
    /// Logits `[.., V]` of the masked tokens from hidden states `[.., C]`, projected by the embedding matrix, after the [head](MaskedHead) if present.
    pub fn masked_logits<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        match &self.masked_head {
            Some(head) => self.embedding.project(head.transformed(hidden)) + head.bias.val().unsqueeze(),
            None => self.embedding.project(hidden),
        }
    }

    /// Cross-entropy of hidden states `[P, C]` at masked positions against the original tokens `[P]`, equal to that of [`masked_logits`](Self::masked_logits),
    /// which are never materialised at once.
    ///
    /// # Panics
    /// If the number of targets differs.
    pub fn masked_cross_entropy(&self, hidden: Tensor<2>, targets: Tensor<1, Int>) -> CrossEntropy {
        let matrix = self.embedding.tokens.weight.val();
        let (hidden, matrix) = match &self.masked_head {
            Some(head) => with_biases(head.transformed(hidden), matrix, head.bias.val()),
            None => (hidden, matrix),
        };
        projected_cross_entropy(hidden, matrix, targets, None, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::optim::{AdamConfig, GradientsParams};
    use burn::tensor::{Device, TensorData};

    use crate::architectures::classifier::{ClassifierConfig, Sentences};
    use crate::parts::loss::cross_entropy;

    fn classifier(masked_head: bool) -> ClassifierConfig {
        let activation = if masked_head { Activation::Gelu } else { Activation::default() };
        let block = BlockConfig { d_model: 16, heads: 2, d_ff: 32, max_length: 16, dropout: 0.0, activation, ..BlockConfig::default() };
        ClassifierConfig { vocabulary: 30, outputs: 2, layers: 1, block, masked_head, ..ClassifierConfig::default() }
    }

    fn config() -> MaskingConfig {
        MaskingConfig { vocabulary: 30, mask: 2, special: 3, ..MaskingConfig::default() }
    }

    #[test]
    fn as_many_tokens_are_chosen_and_changed_as_the_fractions_say() {
        let tokens: Vec<u32> = (0..40_000).map(|index| index % 30).collect();
        let Masked { tokens: given, positions, targets } = config().mask(&tokens, &RandomKey::from_seed(1));
        let ordinary = tokens.iter().filter(|&&token| token >= 3).count() as f64;
        let share = |count: usize, of: f64| count as f64 / of;
        assert!((share(positions.len(), ordinary) - 0.15).abs() < 0.01);
        let count = |fits: &dyn Fn(usize) -> bool| share(positions.iter().filter(|&&at| fits(at)).count(), positions.len() as f64);
        assert!((count(&|at| given[at] == 2) - 0.8).abs() < 0.02);
        // A random token equals the original one in one of 27 cases.
        assert!((count(&|at| given[at] == tokens[at]) - 0.1 - 0.1 / 27.0).abs() < 0.02);
        assert!(positions.iter().zip(&targets).all(|(&at, &target)| tokens[at] == target && target >= 3));
        let changed: Vec<_> = (0..tokens.len()).filter(|&at| given[at] != tokens[at]).collect();
        assert!(changed.iter().all(|at| positions.binary_search(at).is_ok()), "nothing else is changed");
    }

    #[test]
    fn short_sequences_have_something_to_find() {
        for seed in 0..20 {
            let masked = config().mask(&[0, 7, 1], &RandomKey::from_seed(seed));
            assert_eq!((masked.positions, masked.targets), (vec![1], vec![7]));
        }
        assert_eq!(config().mask(&[0, 1], &RandomKey::from_seed(0)).positions, [0usize; 0]);
    }

    #[test]
    fn an_encoder_learns_to_find_them() {
        let device = Device::flex().autodiff();
        let mut model = classifier(false).init(&RandomKey::from_seed(1), &device);
        let mut optimiser = AdamConfig::new().init();
        let tokens: Vec<u32> = (3..15).collect();
        let mut losses = Vec::new();
        for step in 0..300 {
            let masked = config().mask(&tokens, &RandomKey::from_seed(step));
            let integers = |values: Vec<i32>| {
                let count = values.len();
                Tensor::<1, Int>::from_data(TensorData::new(values, [count]), &device)
            };
            let given = integers(masked.tokens.iter().map(|&token| token as i32).collect()).unsqueeze();
            let sentences = Sentences { tokens: given, segments: None, lengths: &[12] };
            let hidden = model.hidden(sentences, None, &mut Probe::off()).states.squeeze_dim::<2>(0);
            let hidden = hidden.select(0, integers(masked.positions.iter().map(|&at| at as i32).collect()));
            let targets = integers(masked.targets.iter().map(|&token| token as i32).collect());
            let loss = model.masked_cross_entropy(hidden, targets).loss / masked.targets.len() as f64;
            losses.push(loss.clone().into_scalar::<f32>());
            model = optimiser.step(1e-2, model.clone(), GradientsParams::from_grads(loss.backward(), &model));
        }
        let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
        assert!(mean(&losses[250..]) < 0.5 * mean(&losses[..20]), "{losses:?}");
    }

    /// Hidden states `[2, 5, 16]`, and a model with changed biases and norms in its head, if present.
    fn states_and_model(masked_head: bool, device: &Device) -> (Tensor<3>, Classifier) {
        let drawn = |name| Init::Normal(1.0).tensor([2, 5, 16], &RandomKey::from_seed(2).named(name), device);
        let mut model = classifier(masked_head).init(&RandomKey::from_seed(1), device);
        if let Some(head) = &mut model.masked_head {
            let changed = |old: Param<Tensor<1>>, name| {
                let change = Init::Normal(1.0).tensor(old.dims(), &RandomKey::from_seed(3).named(name), device);
                old.map(|old| {
                    let is_tracked = old.is_require_grad();
                    (old + change).detach().set_require_grad(is_tracked)
                })
            };
            head.bias = changed(head.bias.clone(), "bias");
            head.transform.bias = head.transform.bias.take().map(|bias| changed(bias, "transform"));
            head.norm.gamma = changed(head.norm.gamma.clone(), "gamma");
        }
        (drawn("states"), model)
    }

    #[test]
    fn a_head_is_a_map_a_non_linearity_and_a_normalisation_before_the_matrix_and_biases_after_it() {
        let (states, model) = states_and_model(true, &Device::flex());
        let head = model.masked_head.as_ref().unwrap();
        let transformed = head.norm.forward(heedful_attention::engine::gelu::gelu(head.transform.forward(states.clone())));
        let matrix = model.embedding.tokens.weight.val().transpose();
        let expected = transformed.matmul(matrix.unsqueeze()) + head.bias.val().unsqueeze();
        let difference: f32 = (model.masked_logits(states) - expected).abs().max().into_scalar();
        assert!(difference < 1e-4, "{difference}");
    }

    #[test]
    fn the_cross_entropy_is_that_of_the_logits() {
        let device = Device::flex().autodiff();
        for masked_head in [false, true] {
            let (states, model) = states_and_model(masked_head, &device);
            let states = states.reshape([10, 16]);
            let targets = Tensor::<1, Int>::from_data([3, 7, 7, 29, 11, 4, 5, 3, 20, 9], &device);
            let of = |loss: Tensor<1>| {
                let gradients = loss.clone().backward();
                let matrix = model.embedding.tokens.weight.val().grad(&gradients).unwrap().flatten::<1>(0, 1);
                let bias = model.masked_head.as_ref().map(|head| head.bias.val().grad(&gradients).unwrap());
                Tensor::cat([Some(loss.inner()), Some(matrix), bias].into_iter().flatten().collect(), 0)
            };
            let found = of(model.masked_cross_entropy(states.clone(), targets.clone()).loss);
            let expected = of(cross_entropy(model.masked_logits(states), targets, None, 0.0).loss);
            let difference: f32 = (found - expected).abs().max().into_scalar();
            assert!(difference < 1e-3, "head {masked_head}: {difference}");
        }
    }

    #[test]
    fn impossible_options_are_refused() {
        let refused = |config: MaskingConfig, option: &str| assert!(config.validate().unwrap_err().to_string().contains(option));
        refused(MaskingConfig::default(), "vocabulary");
        refused(MaskingConfig { mask: 30, ..config() }, "mask");
        refused(MaskingConfig { probability: 0.0, ..config() }, "probability");
        refused(MaskingConfig { random: 0.3, ..config() }, "random 0.3");
        config().validate().unwrap();
    }
}
