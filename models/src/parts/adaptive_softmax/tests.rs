use std::path::Path;

use burn::module::{Module, Param};
use burn::nn::{Embedding, Linear};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::prelude::*;
use safetensors::SafeTensors;

use super::*;
use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
use crate::block::BlockConfig;
use crate::block::initialisation::Initialisation;
use crate::generation::GenerationConfig;
use crate::parts::embedding::{EmbeddingScale, TokenEmbeddingConfig};
use crate::parts::position::PositionConfig;
use crate::training::optimiser::OptimiserConfig;

const VOCABULARY: usize = 11;
const WIDTH: usize = 8;

/// Clusters of 4, 3 and 4 tokens with vectors of the widths 8, 4 and 2.
fn config(tied: bool) -> LanguageModelConfig {
    LanguageModelConfig {
        vocabulary: VOCABULARY,
        layers: 1,
        block: BlockConfig { d_model: WIDTH, heads: 2, d_ff: 16, max_length: 16, dropout: 0.0, ..BlockConfig::default() },
        positions: PositionConfig::None,
        embedding_scale: EmbeddingScale::None,
        adaptive: Some(AdaptiveConfig::new([4, 7]).with_div(2.0)),
        tied,
        ..LanguageModelConfig::default()
    }
}

fn model(tied: bool, device: &Device) -> LanguageModel {
    let config = config(tied);
    config.validate().unwrap();
    config.init(&RandomKey::from_seed(5), device)
}

fn states(rows: usize, device: &Device) -> Tensor<2> {
    Init::Normal(1.0).tensor([rows, WIDTH], &RandomKey::from_seed(6), device)
}

/// Both ends of each cluster.
const TARGETS: [i32; 7] = [0, 3, 4, 6, 7, 10, 2];

fn targets(device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TARGETS, device)
}

/// A matrix in double precision.
#[derive(Clone, Debug)]
struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn of(tensor: Tensor<2>) -> Self {
        Self { columns: tensor.dims()[1], values: tensor.into_data().iter::<f64>().collect() }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..][..self.columns]
    }

    fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// `M x`.
    fn times(&self, x: &[f64]) -> Vec<f64> {
        (0..self.rows()).map(|row| dot(self.row(row), x)).collect()
    }

    /// `x M`.
    fn after(&self, x: &[f64]) -> Vec<f64> {
        (0..self.columns).map(|column| x.iter().enumerate().map(|(row, x)| x * self.row(row)[column]).sum()).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The weights of the softmax: `E_0`, `K`, and of each tail `E_i` and `P_i`.
fn of_softmax(model: &LanguageModel) -> Vec<Tensor<2>> {
    let softmax = model.adaptive.as_ref().unwrap();
    let (head, tails) = match (&softmax.own, &model.embedding.adaptive) {
        (Some(own), _) => (&own.head, &own.tails),
        (None, tied) => (&model.embedding.tokens, &tied.as_ref().unwrap().tails),
    };
    let tails = tails.iter().flat_map(|tail| [tail.tokens.weight.val(), tail.projection.weight.val()]);
    [head.weight.val(), softmax.clusters.weight.val()].into_iter().chain(tails).collect()
}

/// The weights of the input vectors: of each cluster `E_i` and `P_i`.
fn of_input(model: &LanguageModel) -> Vec<Tensor<2>> {
    let adaptive = model.embedding.adaptive.as_ref().unwrap();
    let tails = adaptive.tails.iter().flat_map(|tail| [tail.tokens.weight.val(), tail.projection.weight.val()]);
    [model.embedding.tokens.weight.val(), adaptive.projection.weight.val()].into_iter().chain(tails).collect()
}

fn log_softmax_of(logits: &[f64]) -> Vec<f64> {
    let total = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
    logits.iter().map(|logit| logit - total).collect()
}

/// The formula of the module: the logarithms of the probabilities of all tokens after `x`.
fn log_probabilities(weights: &[Matrix], x: &[f64]) -> Vec<f64> {
    let [head, clusters, tails @ ..] = weights else { panic!("there are a head and clusters") };
    let classes = log_softmax_of(&[head.times(x), clusters.after(x)].concat());
    let (of_head, of_clusters) = classes.split_at(head.rows());
    let mut found = of_head.to_vec();
    for (tail, of_cluster) in tails.chunks(2).zip(of_clusters) {
        let [tokens, projection] = tail else { panic!("tails have two matrices") };
        let within = log_softmax_of(&tokens.times(&projection.times(x)));
        found.extend(within.iter().map(|within| within + of_cluster));
    }
    found
}

fn loss(weights: &[Matrix], states: &Matrix, padding: Option<i32>, smoothing: f64) -> f64 {
    let rows = TARGETS.iter().enumerate().filter(|(_, target)| Some(**target) != padding);
    rows.map(|(row, &target)| {
        let logs = log_probabilities(weights, states.row(row));
        -(1.0 - smoothing) * logs[target as usize] - smoothing * logs.iter().sum::<f64>() / VOCABULARY as f64
    })
    .sum()
}

/// The formula of the module: the vector of a token.
fn embedded(weights: &[Matrix], token: usize) -> Vec<f64> {
    let mut rest = token;
    for cluster in weights.chunks(2) {
        if rest < cluster[0].rows() {
            return cluster[1].after(cluster[0].row(rest));
        }
        rest -= cluster[0].rows();
    }
    panic!("there is no token {token}");
}

/// Compares the gradients of tensors with central differences of `function` of them in double precision.
fn assert_gradients(tensors: &[Tensor<2>], found: &[Tensor<2>], function: impl Fn(&[Matrix]) -> f64) {
    const STEP: f64 = 1e-5;
    let mut matrices: Vec<Matrix> = tensors.iter().cloned().map(Matrix::of).collect();
    for (index, found) in found.iter().enumerate() {
        let found = Matrix::of(found.clone());
        for at in 0..found.values.len() {
            let value = matrices[index].values[at];
            let mut moved = |step: f64| {
                matrices[index].values[at] = value + step;
                function(&matrices)
            };
            let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            matrices[index].values[at] = value;
            assert!((slope - found.values[at]).abs() < 1e-4, "matrix {index}, number {at}: {} instead of {slope}", found.values[at]);
        }
    }
}

fn scalar(x: Tensor<1>) -> f64 {
    f64::from(x.into_scalar::<f32>())
}

#[test]
fn log_probabilities_are_those_of_the_definition_and_of_all_tokens() {
    let device = Device::flex();
    for tied in [true, false] {
        let model = model(tied, &device);
        let weights: Vec<Matrix> = of_softmax(&model).into_iter().map(Matrix::of).collect();
        let states = states(6, &device);
        let found = Matrix::of(model.project(states.clone()));
        let batched = Matrix::of(model.project(states.clone().reshape([2, 3, WIDTH])).reshape([6, VOCABULARY]));
        let states = Matrix::of(states);
        for row in 0..6 {
            let total: f64 = found.row(row).iter().map(|log| log.exp()).sum();
            assert!((total - 1.0).abs() < 1e-5, "the sum of probabilities is {total}");
            let expected = log_probabilities(&weights, states.row(row));
            for (token, expected) in expected.iter().enumerate() {
                for found in [&found, &batched] {
                    assert!(
                        (found.row(row)[token] - expected).abs() < 1e-5,
                        "{tied}, token {token}: {} and {expected}",
                        found.row(row)[token]
                    );
                }
            }
        }
    }
}

#[test]
fn the_loss_is_that_of_its_definition() {
    let device = Device::flex();
    for tied in [true, false] {
        let model = model(tied, &device);
        let weights: Vec<Matrix> = of_softmax(&model).into_iter().map(Matrix::of).collect();
        let states = states(TARGETS.len(), &device);
        // Padding of the head and of a tail.
        for (padding, smoothing) in [(None, 0.0), (Some(3), 0.0), (Some(7), 0.0), (None, 0.2), (Some(7), 0.2)] {
            let found = model.cross_entropy(states.clone(), targets(&device), padding.map(|token| token as u32), smoothing);
            let of = |smoothing| loss(&weights, &Matrix::of(states.clone()), padding, smoothing);
            let (found_loss, likelihood) = (scalar(found.loss), scalar(found.negative_log_likelihood));
            assert!((found_loss - of(smoothing)).abs() < 1e-4, "{padding:?}, {smoothing}: {found_loss} and {}", of(smoothing));
            assert!((likelihood - of(0.0)).abs() < 1e-4, "{padding:?}, {smoothing}: {likelihood} and {}", of(0.0));
        }
    }
}

#[test]
fn gradients_of_the_loss_are_finite_differences_of_its_definition() {
    let device = Device::flex().autodiff();
    for (tied, device) in [(true, device.clone()), (false, device.clone()), (true, device.gradient_checkpointing())] {
        let model = model(tied, &device);
        let leaf = states(TARGETS.len(), &device).require_grad();
        let gradients = model.cross_entropy(leaf.clone() * 1.0, targets(&device), None, 0.0).loss.backward();
        let all: Vec<Tensor<2>> = of_softmax(&model).into_iter().chain([leaf]).collect();
        let found: Vec<Tensor<2>> = all.iter().map(|tensor| tensor.grad(&gradients).expect("all have a gradient")).collect();
        assert_gradients(&all, &found, |matrices| {
            let (states, weights) = matrices.split_last().unwrap();
            loss(weights, states, None, 0.0)
        });
    }
}

#[test]
fn what_has_no_target_has_no_loss_and_no_gradient() {
    let device = Device::flex().autodiff();
    let model = model(true, &device);
    let run = |targets: [i32; 3], padding| {
        let leaf = states(3, &device).require_grad();
        let found = model.cross_entropy(leaf.clone() * 1.0, Tensor::from_data(targets, &device), padding, 0.0);
        let (loss, likelihood) = (scalar(found.loss.clone()), scalar(found.negative_log_likelihood));
        assert!((loss - likelihood).abs() < 1e-5, "{loss} and {likelihood}");
        let gradients = found.loss.backward();
        let has_gradient = |tensor: &Tensor<2>| tensor.grad(&gradients).is_some();
        let of_states = leaf.grad(&gradients).unwrap().into_data().iter::<f32>().map(f32::abs).sum::<f32>();
        (loss, of_states, of_softmax(&model).iter().map(has_gradient).collect::<Vec<_>>())
    };
    let (loss, of_states, has_gradient) = run([1, 8, 9], None);
    assert!(loss > 0.0 && of_states > 0.0);
    assert_eq!(has_gradient, [true, true, false, false, true, true], "no target lies in the first tail");
    assert_eq!(run([8, 8, 8], Some(8)), (0.0, 0.0, vec![false; 6]), "a batch of padding");
}

#[test]
#[should_panic(expected = "beyond the last of its tails")]
fn targets_beyond_the_vocabulary_panic() {
    let device = Device::flex();
    model(true, &device).cross_entropy(states(1, &device), Tensor::from_data([VOCABULARY as i32], &device), None, 0.0);
}

/// Tensor written by `tests/fixtures/torch_adaptive_softmax.py`: shape and numbers.
fn of_torch<const D: usize>(name: &str, device: &Device) -> Tensor<D> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch_adaptive_softmax.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(name).unwrap();
    let values: Vec<f32> = view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    Tensor::from_data(TensorData::new(values, view.shape().to_vec()), device)
}

#[test]
fn outputs_and_gradients_are_those_of_pytorch() {
    let device = Device::flex().autodiff();
    let trained = |tensor: Tensor<2>| Param::from_tensor(tensor.detach());
    let classes = of_torch::<2>("head.weight", &device);
    let tail = |index: usize| Tail {
        tokens: Embedding { weight: trained(of_torch(&format!("tail.{index}.1.weight"), &device)) },
        projection: Linear { weight: trained(of_torch(&format!("tail.{index}.0.weight"), &device)), bias: None },
    };
    let softmax = AdaptiveSoftmax {
        clusters: Linear { weight: trained(classes.clone().narrow(0, 5, 2).transpose()), bias: None },
        own: Some(AdaptiveTables { head: Embedding { weight: trained(classes.narrow(0, 0, 5)) }, tails: vec![tail(0), tail(1)] }),
    };
    // The softmax has its own vectors.
    let embedding = TokenEmbeddingConfig {
        vocabulary: 20,
        d_model: 12,
        max_length: 9,
        positions: PositionConfig::None,
        position_offset: 0,
        segments: 0,
        scale: EmbeddingScale::None,
        norm: None,
        dropout: 0.0,
    };
    let embedding = embedding.init(&RandomKey::from_seed(1), &device);
    let difference = |found: Tensor<2>, name: &str| {
        let difference: f32 = (found.without_autodiff() - of_torch(name, &Device::flex())).abs().max().into_scalar();
        assert!(difference < 1e-5, "{name}: {difference}");
    };
    let leaf = of_torch::<2>("states", &device).require_grad();
    difference(softmax.log_probabilities(leaf.clone() * 1.0, &embedding), "log_probabilities");
    let targets = of_torch::<1>("targets", &device).int();
    let loss = softmax.cross_entropy(leaf.clone() * 1.0, &embedding, targets, None).loss / 9.0;
    assert!((scalar(loss.clone()) - scalar(of_torch("loss", &Device::flex()))).abs() < 1e-5);
    let gradients = loss.backward();
    let gradient = |param: &Tensor<2>| param.grad(&gradients).unwrap();
    let own = softmax.own.as_ref().unwrap();
    let of_classes = vec![gradient(&own.head.weight.val()), gradient(&softmax.clusters.weight.val()).transpose()];
    difference(Tensor::cat(of_classes, 0), "gradient.head.weight");
    for (index, tail) in own.tails.iter().enumerate() {
        difference(gradient(&tail.projection.weight.val()), &format!("gradient.tail.{index}.0.weight"));
        difference(gradient(&tail.tokens.weight.val()), &format!("gradient.tail.{index}.1.weight"));
    }
    difference(gradient(&leaf), "gradient.states");
}

#[test]
fn input_vectors_and_their_gradients_are_those_of_the_definition() {
    let device = Device::flex().autodiff();
    let model = model(true, &device);
    let tokens: [[i32; 6]; 2] = [[0, 3, 4, 6, 7, 10], [10, 10, 1, 5, 0, 9]];
    let found = model.embedding.forward(Tensor::from_data(tokens, &device), &Positions::default(), None);
    assert_eq!((found.dims(), model.embedding.vocabulary()), ([2, 6, WIDTH], VOCABULARY));
    let factors = Init::Normal(1.0).tensor::<3>([2, 6, WIDTH], &RandomKey::from_seed(7), &device);
    let weights = of_input(&model);
    let [rows, by] = [found.clone(), factors.clone()].map(|tensor| Matrix::of(tensor.inner().reshape([12, WIDTH])));
    let plain: Vec<Matrix> = weights.iter().cloned().map(Matrix::of).collect();
    for (row, token) in tokens.as_flattened().iter().enumerate() {
        for (found, expected) in rows.row(row).iter().zip(embedded(&plain, *token as usize)) {
            assert!((found - expected).abs() < 1e-5, "token {token}: {found} and {expected}");
        }
    }
    let gradients = (found * factors).sum().backward();
    let of_weights: Vec<Tensor<2>> = weights.iter().map(|weight| weight.grad(&gradients).unwrap()).collect();
    assert_gradients(&weights, &of_weights, |matrices| {
        let rows = tokens.as_flattened().iter().enumerate();
        rows.map(|(row, &token)| dot(&embedded(matrices, token as usize), by.row(row))).sum()
    });
}

#[test]
fn tied_vectors_are_one_parameter_and_others_are_their_own() {
    let device = Device::flex();
    let count = |tied| model(tied, &device).num_params();
    // Tokens and projections of tails, and the tokens of the head.
    assert_eq!(count(false) - count(true), 3 * 4 + 4 * 2 + (4 + 2) * WIDTH + 4 * WIDTH);
}

#[test]
fn steps_and_generated_tokens_are_those_of_the_forward_pass() {
    let device = Device::flex();
    for tied in [true, false] {
        let model = model(tied, &device);
        let tokens = Tensor::<2, Int>::from_data([[2, 5, 7, 1, 9, 10]], &device);
        let whole = model.forward(tokens.clone());
        let mut state = model.start(1, &[]);
        let parts = [0..2, 2..3, 3..6]
            .map(|part| model.step(tokens.clone().narrow(1, part.start, part.len()), &mut state, &mut Probe::off()).logits);
        let difference: f32 = (Tensor::cat(parts.to_vec(), 1) - whole.clone()).abs().max().into_scalar();
        assert!(difference < 1e-5, "{difference}");
        let likeliest: i32 = whole.narrow(1, 5, 1).argmax(2).into_scalar();
        let generated = model.generate(&[[2, 5, 7, 1, 9, 10]], &GenerationConfig::new(4));
        assert_eq!((generated[0].tokens.len(), generated[0].tokens[0] as i32), (4, likeliest));
    }
}

#[test]
fn a_model_learns_which_token_follows() {
    let device = Device::flex().autodiff();
    for tied in [true, false] {
        let mut model = model(tied, &device);
        let mut optimiser = OptimiserConfig::default().init(&Device::flex()).unwrap();
        let tokens: Vec<i32> = (0..13).map(|index| index * 4 % VOCABULARY as i32).collect();
        let part = |range: std::ops::Range<usize>| TensorData::new(tokens[range].to_vec(), [12]);
        let mut losses = Vec::new();
        for _ in 0..150 {
            let inputs = Tensor::<1, Int>::from_data(part(0..12), &device).reshape([1, 12]);
            let hidden = model.hidden(inputs, &[], None, &mut Probe::off()).states.reshape([12, WIDTH]);
            let loss = model.cross_entropy(hidden, Tensor::from_data(part(1..13), &device), None, 0.0).loss / 12.0;
            losses.push(scalar(loss.clone()));
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimiser.step(0.01, model, gradients);
        }
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(last < 0.5 * first, "tied {tied}: from {first} to {last}");
    }
}

#[test]
fn impossible_options_are_refused_by_name() {
    let base = || config(true);
    let with =
        |cutoffs: &[usize], div: f64| LanguageModelConfig { adaptive: Some(AdaptiveConfig { cutoffs: cutoffs.to_vec(), div }), ..base() };
    let cases = [
        ("adaptive.cutoffs", "at least one", with(&[], 2.0)),
        ("adaptive.cutoffs", "greater than 0", with(&[0, 4], 2.0)),
        ("adaptive.cutoffs", "ascending", with(&[7, 4], 2.0)),
        ("adaptive.cutoffs", "none twice", with(&[4, 4], 2.0)),
        ("adaptive.cutoffs", "size of the vocabulary, 11", with(&[4, 11], 2.0)),
        ("adaptive.div", "at least 1", with(&[4], 0.5)),
        ("adaptive.div", "at least 1", with(&[4], f64::NAN)),
        ("adaptive.div", "tail 2 would have no width in a model of width 8", with(&[4, 7], 4.0)),
        ("output_bias", "no biases", LanguageModelConfig { output_bias: true, ..base() }),
        ("logit_softcap", "no bound", LanguageModelConfig { logit_softcap: Some(30.0), ..base() }),
        ("initialisation", "equally likely", LanguageModelConfig { initialisation: Initialisation::Scaled, ..config(false) }),
    ];
    for (option, remedy, config) in cases {
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(&format!("`{option}`")) && error.contains(remedy), "{option}, {remedy}: {error}");
    }
    // Up to the last token, and a width of 1.
    assert_eq!(with(&[4, 10], 2.8).validate(), Ok(()));
}

#[test]
fn configurations_survive_toml_and_are_off_where_nothing_is_said() {
    let text = toml::to_string(&config(true)).unwrap();
    assert_eq!(toml::from_str::<LanguageModelConfig>(&text).unwrap(), config(true));
    let given: LanguageModelConfig = toml::from_str("adaptive = { cutoffs = [20] }").unwrap();
    assert_eq!(given.adaptive, Some(AdaptiveConfig { cutoffs: vec![20], div: 4.0 }));
    assert!(toml::from_str::<LanguageModelConfig>("adaptive = { cutoff = [20] }").is_err());
    assert_eq!(toml::from_str::<LanguageModelConfig>("").unwrap().adaptive, None);
}

#[test]
fn initial_weights_are_drawn_as_the_configuration_says() {
    let initialisation = Initialisation::Normal { deviation: 0.02 };
    let config =
        LanguageModelConfig { vocabulary: 400, adaptive: Some(AdaptiveConfig::new([100]).with_div(2.0)), initialisation, ..config(false) };
    let model = config.init(&RandomKey::from_seed(5), &Device::flex());
    for tensor in of_softmax(&model).into_iter().chain(of_input(&model)) {
        let values = Matrix::of(tensor).values;
        let deviation = (dot(&values, &values) / values.len() as f64).sqrt();
        // The cluster's class has only 8 numbers, so the deviation itself is uncertain by a quarter.
        assert!((0.008..0.034).contains(&deviation), "{deviation}");
    }
}
