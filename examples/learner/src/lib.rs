//! A language model in Burn's own training loop, with any attention.
//!
//! Sequences repeat a word of three random letters; after these, attention to what came before tells all that follow.
//! `cargo run --release --manifest-path examples/learner/Cargo.toml` trains it; a name of a mechanism may follow after `--`.

use std::path::Path;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::optim::AdamConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn::train::metric::{AccuracyMetric, LossMetric, PerplexityMetric};
use burn::train::{InferenceStep, Learner, SupervisedTraining};
use heedful_attention::contract::random::RandomKey;
use heedful_attention::description::AnyMechanism;
use heedful_models::architectures::language_model::{LanguageModel, LanguageModelConfig};
use heedful_models::block::BlockConfig;
use heedful_models::parts::residual::NormOrder;
use heedful_models::training::learner::{NextToken, Trainee};
use rand::RngExt;

const LETTERS: i32 = 8;
const WORD: usize = 3;
const LENGTH: usize = 24;

/// Puts sequences of one length into a tensor.
struct Rows;

impl Batcher<Vec<i32>, Tensor<2, Int>> for Rows {
    fn batch(&self, rows: Vec<Vec<i32>>, device: &Device) -> Tensor<2, Int> {
        let shape = [rows.len(), rows[0].len()];
        Tensor::from_data(TensorData::new(rows.concat(), shape), device)
    }
}

fn sequences(count: u64, key: &RandomKey) -> Vec<Vec<i32>> {
    let sequence = |number| {
        let mut rng = key.numbered(number).rng();
        let word: Vec<i32> = (0..WORD).map(|_| rng.random_range(0..LETTERS)).collect();
        word.into_iter().cycle().take(LENGTH).collect()
    };
    (0..count).map(sequence).collect()
}

fn loader(sequences: Vec<Vec<i32>>) -> Arc<dyn DataLoader<Tensor<2, Int>>> {
    DataLoaderBuilder::new(Rows).batch_size(16).shuffle(1).set_device(Device::flex()).build(InMemDataset::new(sequences))
}

/// The model after training, and its losses per letter on new sequences before and after.
pub fn train(attention: AnyMechanism, epochs: usize, directory: &Path) -> (LanguageModel, [f32; 2]) {
    let key = RandomKey::from_seed(1);
    let block = BlockConfig {
        d_model: 32,
        heads: 4,
        d_ff: 64,
        dropout: 0.1,
        max_length: LENGTH,
        norm_order: NormOrder::Pre,
        ..BlockConfig::default()
    };
    let config = LanguageModelConfig { vocabulary: LETTERS as usize, attention: attention.into(), layers: 2, block, ..Default::default() };
    config.validate().expect("a valid model");
    let model = config.init(&key.named("init"), &Device::flex().autodiff());
    let model = Trainee::new(model, NextToken::default(), &key);

    let unseen = sequences(64, &key.named("test"));
    let loss = |model: &Trainee<LanguageModel, NextToken>| {
        let output = InferenceStep::step(model, Rows.batch(unseen.clone(), &Device::flex()));
        output.loss.into_scalar::<f32>()
    };
    let before = loss(&burn::module::Module::valid(&model));
    let (training, validation) = (sequences(1024, &key.named("training")), sequences(128, &key.named("validation")));
    let result = SupervisedTraining::new(directory, loader(training), loader(validation))
        .metrics((LossMetric::new(), AccuracyMetric::new(), PerplexityMetric::new()))
        .num_epochs(epochs)
        .with_default_checkpointers()
        .summary()
        .launch(Learner::new(model, AdamConfig::new().init(), 5e-3));
    if let Some(error) = result.error {
        panic!("training failed: {error}");
    }
    let after = loss(&result.model);
    (result.model.model, [before, after])
}
