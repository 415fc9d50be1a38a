//! An experiment with a module of one's own: regression on time series. Waves of unknown lengths, with noise, are continued value by value.

use burn::tensor::{Device, Tensor, TensorData};
use burn::{module::Module, nn::Linear};
use heedful_attention::contract::init;
use heedful_attention::contract::layer_spec::Role;
use heedful_attention::contract::visibility::Visibility;
use heedful_attention::contract::{Losses, Positions};
use heedful_experiments::prelude::*;
use heedful_models::block::Context;
use heedful_models::block::stack::Stack;
use heedful_models::parts::loss::squared_error;
use heedful_models::parts::position::PositionEncoding;
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// Options of this experiment alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Series {
    /// Values that a model reads, each of which it continues by the next one.
    length: usize,
    /// Series in a batch.
    batch: usize,
}

impl Default for Series {
    fn default() -> Self {
        Self { length: 32, batch: 32 }
    }
}

/// A causal stack of layers between two linear maps.
#[derive(Module, Debug)]
pub struct Forecaster {
    input: Linear,
    positions: PositionEncoding,
    stack: Stack,
    output: Linear,
}

impl Forecaster {
    /// Predictions `[B, N]` of the values after `x` `[B, N]`, and the auxiliary losses of the attentions.
    fn forward(&self, x: Tensor<2>, key: Option<RandomKey>, probe: &mut Probe) -> (Tensor<2>, Losses) {
        let x = self.positions.forward(self.input.forward(x.unsqueeze_dim(2)), &Positions::default());
        let hidden = self.stack.forward(x, &Context::new(Visibility::causal()), key, probe);
        (self.output.forward(hidden.states).squeeze_dim(2), hidden.losses)
    }
}

impl Experiment for Series {
    const NAME: &'static str = "series";
    const TITLE: &'static str = "Continuing time series";
    const DATA: &'static [&'static str] = &["length"];
    const BATCH: &'static str = "batch";
    /// Series of `length + 1` values for training, validation and test, and their SHA-256.
    type Data = ([Vec<Vec<f32>>; 3], String);
    type Model = Forecaster;
    type Task<'a> = Forecasting<'a>;

    fn check(settings: &Settings<Config<Series>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let Config { own: Series { length, .. }, model, .. } = &settings.value;
        settings.require("length", (1..=model.max_length).contains(length), "give 1 to model.max_length")?;
        attentions.iter().try_for_each(|own| Ok(model.language_model(1, &own.layout.decoder).validate()?))
    }

    fn open(config: &Config<Series>) -> Result<Vec<Self::Data>, ExperimentError> {
        let mut rng = RandomKey::from_seed(0).named("waves").rng();
        let mut series = |_| -> Vec<f32> {
            let waves: [(f64, f64); 2] = std::array::from_fn(|_| (rng.random_range(0.2..1.5), rng.random_range(0.0..6.3)));
            let value = |t: usize| waves.iter().map(|(speed, start)| (speed * t as f64 + start).sin()).sum::<f64>();
            (0..=config.own.length).map(|t| (value(t) + rng.random_range(-0.2..0.2)) as f32).collect()
        };
        let splits = [4096, 256, 256].map(|count| (0..count).map(&mut series).collect());
        let sha256 = sha256_hex(format!("{splits:?}").as_bytes());
        Ok(vec![(splits, sha256)])
    }

    fn card(([train, _, test], sha256): &Self::Data) -> Card<'_> {
        Card::new("waves", sha256, format!("{} training and {} test series", train.len(), test.len()))
    }

    fn lengths(setup: Setup<'_, Series>) -> TrainingLengths {
        let Config { own: Series { length, .. }, model, .. } = setup.config;
        TrainingLengths::new(&setup.attention.layout, model.max_length).decoder([*length])
    }

    fn task(setup: Setup<'_, Series>) -> Forecasting<'_> {
        Forecasting(setup)
    }

    fn model(setup: Setup<'_, Series>, key: &RandomKey, device: &Device) -> Result<Forecaster, ExperimentError> {
        let Setup { config: Config { model: sizes, .. }, attention, .. } = setup;
        Ok(Forecaster {
            input: init::linear(1, sizes.d_model, true, &key.named("input"), device),
            positions: sizes.positions.init(sizes.max_length, sizes.d_model, &key.named("positions"), device),
            stack: sizes.stack(Role::Decoder, &attention.layout.decoder, &key.named("stack"), device),
            output: init::linear(sizes.d_model, 1, true, &key.named("output"), device),
        })
    }

    fn columns() -> Vec<MetricColumn> {
        vec![MetricColumn::new("MSE", "MSE").digits(4).lower_is_better().defined_as("mean squared error of the next value")]
    }
}

/// Training a model to continue series.
pub struct Forecasting<'a>(Setup<'a, Series>);

impl Forecasting<'_> {
    /// The sum of the squared errors over all positions of some series, and the auxiliary losses.
    fn error(&self, model: &Forecaster, series: &[Vec<f32>], key: Option<RandomKey>, probe: &mut Probe) -> (Tensor<1>, Losses) {
        let length = self.0.config.own.length;
        let part = |first: usize| {
            let values: Vec<f32> = series.iter().flat_map(|values| &values[first..first + length]).copied().collect();
            Tensor::<2>::from_data(TensorData::new(values, [series.len(), length]), &model.output.weight.device())
        };
        let (found, losses) = model.forward(part(0), key, probe);
        (squared_error(found.flatten(0, 1), part(1).flatten(0, 1)), losses)
    }
}

impl Task for Forecasting<'_> {
    type Model = Forecaster;
    type Batch = Vec<Vec<f32>>;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.0.data.0[0].len(), self.0.config.own.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> Self::Batch {
        items.iter().map(|&item| self.0.data.0[0][item].clone()).collect()
    }

    fn units(&self, batch: &Self::Batch) -> usize {
        batch.len() * self.0.config.own.length
    }

    fn loss(&self, model: &Forecaster, batch: &Self::Batch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (error, losses) = self.error(model, batch, Some(pass.key), probe);
        TrainingLoss::new(error, &losses, self.units(batch))
    }

    fn evaluate(&self, model: &Forecaster, split: Split, _interrupt: &Interrupt) -> Option<Scores> {
        let series = &self.0.data.0[if split == Split::Valid { 1 } else { 2 }];
        let sum: f32 = self.error(model, series, None, &mut Probe::off()).0.into_scalar();
        Some(Scores::of("MSE", f64::from(sum) / self.units(series) as f64, format!("{} series", series.len())))
    }

    fn selection(&self) -> Selection {
        Selection::lowest("MSE")
    }
}

fn main() -> std::process::ExitCode {
    experiment::main::<Series>()
}
