//! Parameters that several layers share: linformer with one projection for all layers.

use heedful_attention::mechanisms::linformer::{Linformer, Sharing};
use heedful_attention::prelude::*;
use heedful_attention::registry::constraints;
use heedful_models::architectures::classifier::{Classifier, ClassifierConfig, Pooling, Sentences};
use heedful_models::block::BlockConfig;

use super::*;
use crate::train::parameter::{EachParameter, visited};

fn model(sharing: Sharing, seed: u64) -> Classifier {
    let linformer = LinformerConfig::default().with_rank(3).with_sharing(sharing);
    let config = ClassifierConfig {
        vocabulary: 9,
        outputs: 2,
        attention: AnyMechanism::from(linformer).into(),
        layers: 3,
        block: BlockConfig { d_model: 8, heads: 2, d_ff: 8, max_length: 6, ..BlockConfig::default() },
        ..ClassifierConfig::default()
    };
    config.validate().unwrap();
    config.init(&RandomKey::from_seed(seed), &Device::flex().autodiff())
}

/// The projection of each layer.
fn projections(model: &Classifier) -> Vec<Param<Tensor<3>>> {
    let projection = |attention: &AnyAttention| {
        let linformer = attention.get::<Linformer>().expect("it is a linformer");
        linformer.key_slots.matrix.clone().expect("the projection is trained")
    };
    model.encoder.layers.iter().map(|block| projection(&block.self_attention)).collect()
}

fn values(model: &Classifier) -> Vec<TensorData> {
    projections(model).into_iter().map(|projection| projection.val().into_data()).collect()
}

fn loss(model: &Classifier) -> Tensor<1> {
    let device = model.devices().remove(0);
    let tokens = Tensor::from_data([[3, 4, 5, 6], [7, 8, 3, 0]], &device);
    let logits = model.forward_with(Sentences { tokens, segments: None, lengths: &[4, 3] }, None, &mut Probe::off()).logits;
    let targets = Tensor::<2, Int>::from_data([[0], [1]], &device);
    log_softmax(logits, 1).gather(1, targets).sum().neg()
}

struct SharedTask;

impl Task for SharedTask {
    type Model = Classifier;
    type Batch = ();
    type Carried = ();

    fn epoch(&self, _epoch: u64, _key: &RandomKey) -> Vec<Vec<usize>> {
        vec![vec![0]]
    }

    fn batch(&self, _items: &[usize], _epoch: u64, _key: &RandomKey) {}

    fn units(&self, (): &()) -> usize {
        2
    }

    fn loss(&self, model: &Classifier, (): &(), _pass: Pass<'_, ()>, _probe: &mut Probe) -> TrainingLoss {
        loss(model).into()
    }

    fn evaluate(&self, model: &Classifier, _split: Split, _interrupt: &Interrupt) -> Option<Scores> {
        Some(Scores::of("loss", f64::from(loss(model).into_scalar::<f32>()), ""))
    }

    fn selection(&self) -> Selection {
        Selection::lowest("loss")
    }

    fn can_locate(&self) -> bool {
        false
    }
}

fn train(steps: u64, folder: &Path, model: Classifier) -> TrainedModel<Classifier> {
    let config = TrainingConfig {
        steps,
        learning_rate: 0.01,
        schedule: ScheduleConfig::Constant,
        evaluate_every: 1,
        checkpoint_every: 1,
        ..TrainingConfig::default()
    };
    let trainer = Trainer::new(&SharedTask, &config, folder, DIGEST, RandomKey::from_seed(1)).watcher(Watcher::Nobody);
    match trainer.run(model).unwrap() {
        Outcome::Finished(result) => result,
        Outcome::Interrupted { step, .. } => panic!("interrupted after step {step}"),
    }
}

#[test]
fn layers_share_one_parameter_which_counts_once() {
    let shared = projections(&model(Sharing::Layerwise, 1));
    assert!(shared.iter().all(|projection| projection.id == shared[0].id));
    let own = projections(&model(Sharing::KeyValue, 1));
    assert!(own[0].id != own[1].id && own[1].id != own[2].id);
    let [shared, own] = [Sharing::Layerwise, Sharing::KeyValue].map(|sharing| ParameterCount::of(&model(sharing, 1)).total);
    assert_eq!(own - shared, 2 * 3 * 6);
}

#[test]
fn the_gradient_is_the_sum_over_the_layers() {
    let shared = model(Sharing::Layerwise, 1);
    // The same values, as leaves of their own.
    let mut apart = shared.clone();
    for block in &mut apart.encoder.layers {
        let linformer = block.self_attention.get_mut::<Linformer>().expect("it is a linformer");
        let matrix = linformer.key_slots.matrix.as_mut().expect("the projection is trained");
        *matrix = Param::from_tensor(matrix.val().detach());
    }
    let gradients = loss(&apart).backward();
    let sum =
        projections(&apart).iter().map(|p| p.val().grad(&gradients).expect("every layer has a gradient")).reduce(|a, b| a + b).unwrap();
    // Leaves of their own under one identity, as after an optimiser's step.
    let mut split = apart;
    for (block, projection) in split.encoder.layers.iter_mut().zip(projections(&shared)) {
        let linformer = block.self_attention.get_mut::<Linformer>().expect("it is a linformer");
        linformer.key_slots.matrix.as_mut().expect("the projection is trained").id = projection.id;
    }
    for model in [shared, constraints::tie(split)] {
        let gradients = burn::optim::GradientsParams::from_grads(loss(&model).backward(), &model);
        let found = gradients.get::<3>(projections(&model)[0].id).expect("the shared projection has a gradient");
        let difference: f32 = (found - sum.clone()).abs().max().into_scalar();
        assert!(difference < 1e-6, "{difference}");
    }
}

#[test]
fn training_moves_all_layers_together() {
    let folder = tempfile::tempdir().unwrap();
    let before = values(&model(Sharing::Layerwise, 1));
    let result = train(3, folder.path(), model(Sharing::Layerwise, 1));
    let after = values(&result.model);
    assert_ne!(after[0], before[0]);
    assert!(after.iter().all(|values| *values == after[0]), "the tie was cut");
}

#[test]
fn a_checkpoint_keeps_what_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    train(2, folder.path(), model(Sharing::Layerwise, 1));
    let checkpoint = CheckpointFolder::new(folder.path(), DIGEST).load(2).unwrap();
    let loaded = super::super::state_dict::load_model(model(Sharing::Layerwise, 2), &checkpoint).unwrap();
    let layers = projections(&loaded);
    assert!(layers.iter().all(|layer| layer.id == layers[0].id && layer.val().into_data() == layers[0].val().into_data()));
    // One leaf of the graph: the gradient of any layer is that of all.
    let gradients = loss(&loaded).backward();
    let [first, last] = [0, 2].map(|layer| layers[layer].val().grad(&gradients).expect("every layer has a gradient").into_data());
    assert_eq!(first, last);
}

/// The names and identities of the parameters whose names end with one of these.
struct Ending<'a> {
    endings: &'a [&'a str],
    found: Vec<(burn::module::ParamId, TensorData)>,
}

impl EachParameter for Ending<'_> {
    fn visit<const D: usize>(&mut self, path: &[String], param: &Param<Tensor<D>>) {
        if path.last().is_some_and(|name| self.endings.contains(&name.as_str())) {
            self.found.push((param.id, param.val().into_data()));
        }
    }
}

#[test]
fn relative_positions_that_layers_share_are_trained_stored_and_loaded_as_one() {
    for (name, endings) in [
        ("relative{shared_biases=true}", &["content_bias", "position_bias"][..]),
        ("adaptive-span{shared_table=true,max_span=4}", &["distances"]),
    ] {
        let model = |seed: u64| {
            let config = ClassifierConfig {
                vocabulary: 9,
                outputs: 2,
                attention: name.parse::<AnyMechanism>().unwrap().into(),
                layers: 3,
                pooling: Pooling::Mean,
                causal: true,
                block: BlockConfig { d_model: 8, heads: 2, d_ff: 8, max_length: 6, ..BlockConfig::default() },
                ..ClassifierConfig::default()
            };
            config.validate().unwrap();
            config.init(&RandomKey::from_seed(seed), &Device::flex().autodiff())
        };
        let shared = |model: &Classifier| {
            let found = visited(model, Ending { endings, found: Vec::new() }).found;
            assert_eq!(found.len(), 3 * endings.len(), "{name}");
            let (first, others) = found.split_at(endings.len());
            assert!(others.chunks(endings.len()).all(|layer| layer == first), "{name}");
            first.to_vec()
        };
        let folder = tempfile::tempdir().unwrap();
        let before = shared(&model(1));
        let trained = train(2, folder.path(), model(1)).model;
        let after = shared(&trained);
        assert!(before.iter().zip(&after).all(|(before, after)| before.1 != after.1), "{name}");
        let checkpoint = CheckpointFolder::new(folder.path(), DIGEST).load(2).unwrap();
        let loaded = super::super::state_dict::load_model(model(2), &checkpoint).unwrap();
        let values = |found: Vec<(burn::module::ParamId, TensorData)>| found.into_iter().map(|(_, values)| values).collect::<Vec<_>>();
        assert_eq!(values(shared(&loaded)), values(after), "{name}");
    }
}
