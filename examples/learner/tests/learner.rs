//! The models in Burn's own training loop.

use burn::module::{Module, ModuleDisplay, ModuleVisitor, Param, ParamId};
use burn::optim::{AdamConfig, SgdConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn::train::{InferenceStep, TrainStep};
use heedful_attention::contract::layer_spec::LayerSpec;
use heedful_attention::description::AnyMechanism;
use heedful_attention::mechanisms::gaussian::GaussianConfig;
use heedful_attention::tensors::read::read;
use heedful_models::architectures::classifier::ClassifierConfig;
use heedful_models::architectures::language_model::LanguageModelConfig;
use heedful_models::architectures::seq2seq::Seq2SeqConfig;
use heedful_models::block::BlockConfig;
use heedful_models::training::learner::{
    Classes, LabelledSentences, MaskedSentences, MaskedTokens, NextToken, Objective, SequencePairs, TargetTokens, Trainee, Values,
};
use heedful_random::RandomKey;

#[test]
fn the_example_learns_in_burns_loop() {
    // Who guesses one of eight letters has a loss of 2.08; the first letters of a word, which can only be guessed, leave 0.18. A Gaussian may begin at the
    // distance at which the letter stands, dot products have to find it.
    for (name, reached) in [("dot-product", 1.3), ("gaussian", 0.3)] {
        let directory = tempfile::tempdir().unwrap();
        let (_, [before, after]) = stock_learner::train(name.parse().unwrap(), 4, directory.path());
        assert!(before > 2.0 && after < reached, "{name}: from {before} to {after}");
        assert!(directory.path().join("checkpoint").is_dir());
    }
}

fn key() -> RandomKey {
    RandomKey::from_seed(3)
}

fn block() -> BlockConfig {
    BlockConfig { d_model: 8, heads: 2, d_ff: 16, dropout: 0.0, max_length: 8, ..BlockConfig::default() }
}

fn ids<const D: usize>(values: Vec<i32>, shape: [usize; D]) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

fn sequences() -> Tensor<2, Int> {
    ids(vec![1, 2, 3, 4, 5, 6, 2, 1, 3, 1, 0, 0], [2, 6])
}

/// Losses before and after some steps of training as Burn's learner makes them.
fn losses<M: Module + ModuleDisplay + 'static, O: Objective<M>>(
    model: M,
    objective: O,
    batch: &dyn Fn() -> O::Batch,
    loss: fn(O::Output) -> Tensor<1>,
) -> [f32; 2] {
    let mut trainee = Trainee::new(model, objective, &key());
    let mut optimiser = AdamConfig::new().init();
    let value = |trainee: &Trainee<M, O>| loss(InferenceStep::step(&trainee.valid(), batch())).into_scalar::<f32>();
    let before = value(&trainee);
    for _ in 0..20 {
        let output = TrainStep::step(&trainee, batch());
        trainee = trainee.optimize(&mut optimiser, 0.01.into(), output.grads);
    }
    [before, value(&trainee)]
}

fn assert_learnt(what: &str, [before, after]: [f32; 2]) {
    assert!(after < 0.5 * before, "{what}: from {before} to {after}");
}

#[test]
fn every_objective_is_learnt() {
    let device = Device::flex().autodiff();
    let language_model = LanguageModelConfig { vocabulary: 7, layers: 1, block: block(), ..Default::default() }.init(&key(), &device);
    let found = losses(language_model, NextToken { padding: Some(0) }, &sequences, |output| output.loss);
    assert_learnt("next tokens", found);

    let seq2seq = Seq2SeqConfig {
        source_vocabulary: 7,
        target_vocabulary: 7,
        encoder_layers: 1,
        decoder_layers: 1,
        block: block(),
        ..Default::default()
    };
    let pairs = || SequencePairs {
        source: ids(vec![3, 4, 5, 6], [2, 2]),
        source_lengths: vec![2, 1],
        target: sequences(),
        target_lengths: vec![6, 4],
    };
    let objective = TargetTokens { padding: 0, label_smoothing: 0.1 };
    assert_learnt("target tokens", losses(seq2seq.init(&key(), &device), objective, &pairs, |output| output.loss));

    let classifier =
        |outputs| ClassifierConfig { vocabulary: 7, outputs, layers: 1, block: block(), ..Default::default() }.init(&key(), &device);
    let lengths = || vec![6, 4];
    let labelled = || LabelledSentences { tokens: sequences(), segments: None, lengths: lengths(), labels: ids(vec![2, 0], [2]) };
    assert_learnt("classes", losses(classifier(3), Classes, &labelled, |output| output.loss));
    let values = || Tensor::<1>::from_data([2.0, -1.0], &Device::flex());
    let valued = || LabelledSentences { tokens: sequences(), segments: None, lengths: lengths(), labels: values() };
    assert_learnt("values", losses(classifier(1), Values, &valued, |output| output.loss));
    let masked =
        || MaskedSentences { tokens: sequences(), lengths: lengths(), positions: ids(vec![1, 8], [2]), targets: ids(vec![6, 5], [2]) };
    assert_learnt("masked tokens", losses(classifier(2), MaskedTokens, &masked, |output| output.loss));
}

#[test]
fn padding_has_no_part_in_the_loss() {
    let model = LanguageModelConfig { vocabulary: 7, layers: 1, block: block(), ..Default::default() }.init(&key(), &Device::flex());
    let loss = |rows: Tensor<2, Int>, padding| {
        let (loss, _) = NextToken { padding }.pass(&model, rows, None);
        loss.into_scalar::<f32>()
    };
    let row = |from, length| sequences().narrow(0, from, 1).narrow(1, 0, length);
    // Five predictions of the first row, three of the second.
    let expected = (5.0 * loss(row(0, 6), None) + 3.0 * loss(row(1, 4), None)) / 8.0;
    let found = loss(sequences(), Some(0));
    assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
    assert!((loss(sequences(), None) - expected).abs() > 1e-3, "padding would have counted");
}

#[test]
fn dropout_differs_from_step_to_step_and_not_from_run_to_run() {
    let dropping = BlockConfig { dropout: 0.5, ..block() };
    let config = LanguageModelConfig { vocabulary: 7, layers: 1, block: dropping, ..Default::default() };
    let trainee = || Trainee::new(config.init(&key(), &Device::flex().autodiff()), NextToken::default(), &key());
    let steps = |trainee: Trainee<_, NextToken>| {
        let copy = trainee.clone();
        [&trainee, &copy].map(|model| TrainStep::step(model, sequences()).item.loss.into_scalar::<f32>())
    };
    let [first, second] = steps(trainee());
    assert_ne!(first, second);
    assert_eq!(steps(trainee()), [first, second]);
}

/// The parameters under a name, with their identities.
struct Named<'a> {
    name: &'a str,
    path: Vec<String>,
    found: Vec<(ParamId, TensorData)>,
}

impl ModuleVisitor for Named<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.path.iter().any(|name| name == self.name) {
            self.found.push((param.id, read(param.val())));
        }
    }
}

fn named<M: Module>(model: &M, name: &str) -> Vec<(ParamId, TensorData)> {
    let mut visitor = Named { name, path: Vec::new(), found: Vec::new() };
    model.visit(&mut visitor);
    visitor.found
}

#[test]
fn spans_stay_fractions() {
    let attention: AnyMechanism = "adaptive-span".parse().unwrap();
    let config = LanguageModelConfig { vocabulary: 7, layers: 1, attention: attention.into(), block: block(), ..Default::default() };
    let trainee = Trainee::new(config.init(&key(), &Device::flex().autodiff()), NextToken::default(), &key());
    let output = TrainStep::step(&trainee, sequences());
    // A rate that takes every span out of its bounds.
    let trainee = trainee.optimize(&mut SgdConfig::new().init(), 1e6.into(), output.grads);
    let spans = named(&trainee, "span");
    assert!(!spans.is_empty() && spans.iter().all(|(_, span)| span.iter::<f32>().all(|span| (0.0..=1.0).contains(&span))), "{spans:?}");
}

#[test]
fn shared_parameters_stay_shared_on_another_device() {
    let attention: AnyMechanism = toml::from_str("name = \"linformer\"\nsharing = \"layerwise\"").unwrap();
    let config =
        ClassifierConfig { vocabulary: 7, outputs: 2, layers: 2, attention: attention.into(), block: block(), ..Default::default() };
    let device = Device::flex().autodiff();
    let trainee = Trainee::new(config.init(&key(), &device), Classes, &key());
    let batch = || LabelledSentences { tokens: sequences(), segments: None, lengths: vec![6, 4], labels: ids(vec![1, 0], [2]) };
    let gradient = |trainee: &Trainee<_, Classes>| {
        let output = TrainStep::step(trainee, batch());
        let (id, _) = named(trainee, "key_slots")[0].clone();
        (read(output.grads.get::<3>(id).unwrap()), output.grads)
    };
    let (expected, _) = gradient(&trainee);
    let moved = trainee.fork(&device);
    let (found, gradients) = gradient(&moved);
    assert_eq!(found, expected);
    let trained = moved.optimize(&mut SgdConfig::new().init(), 0.1.into(), gradients);
    let projections = named(&trained, "key_slots");
    assert!(projections.len() > 1 && projections.iter().all(|projection| *projection == projections[0]));
}

#[test]
fn models_of_one_mechanism_by_its_type_are_learnt_too() {
    let config = LanguageModelConfig { vocabulary: 7, layers: 1, block: block(), ..Default::default() };
    let build = |spec: &LayerSpec, key: &RandomKey, device: &Device| GaussianConfig::default().init(spec, key, device);
    let model = config.init_with(&key(), &Device::flex().autodiff(), build);
    assert_learnt("next tokens", losses(model, NextToken { padding: Some(0) }, &sequences, |output| output.loss));
}
