//! A mechanism of one's own: defined, registered, put through the conformance suite, and trained in a language model.
//!
//! `logits_h[i, j] = -softplus(slope_h) · |i - j|`: every head looks back with a learned exponential decay, whatever the content. Run it with
//! `cargo run --release --example own_mechanism`.

use burn::module::{Module, Param};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::activation::softplus;
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::conformance::{Report, Subject};
use heedful_models::parts::loss::cross_entropy;
use heedful_models::prelude::*;
use serde::{Deserialize, Serialize};

/// Options of the mechanism, which has the name `recency`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecencyConfig {
    /// Mean of the initial slopes, before softplus (default 0).
    pub mean: f64,
}

/// Logits that fall with the distance, at a learned rate for each head.
#[derive(Module, Debug)]
pub struct Recency {
    /// Before softplus, `[H]`.
    slope: Param<Tensor<1>>,
}

impl Mechanism for RecencyConfig {
    type Module = LogitsOf<Recency>;
    const NAME: &'static str = "recency";
    const CARD: Card = Card {
        variant: "Recency",
        description: "Attends to what is near, at a learned rate for each head.",
        source: "this example",
        state: "n d",
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Recency {
        let slope = Init::Normal(1.0).tensor([spec.heads], &key.named("slope"), device) + self.mean;
        Recency { slope: Param::from_tensor(slope) }
    }
}

impl Logits for Recency {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities::default()
    }

    fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, _positions: &Positions) -> LogitTerms {
        let Span { query_start, queries, key_start, keys } = span;
        // One number for each signed distance of a query from a key, in descending order; keys after the query have negative ones, as far apart as their size.
        let distance = |column: usize| ((query_start + queries) as f32 - 1.0 - (key_start + column) as f32).abs();
        let distances = TensorData::new((0..queries + keys - 1).map(distance).collect::<Vec<_>>(), [1, 1, queries + keys - 1, 1]);
        let rate = softplus(self.slope.val(), 1.0).reshape([1, -1, 1, 1]);
        let [_, heads, ..] = rate.dims();
        let queries = rate.neg().expand([1, heads, queries, 1]);
        LogitTerms { relative: Some(Content { queries, keys: Tensor::from_data(distances, &query.device()) }), ..LogitTerms::default() }
    }
}

/// Asks every property of the mechanism.
pub fn conforms() -> Result<Report, Report> {
    let spec = LayerSpec::new(Role::Decoder, 6, 2).with_max_length(8).with_dropout(0.3);
    let recency = AnyMechanism::from(RecencyConfig::default());
    Subject::new(spec, move |place, key, device| recency.init(place, key, device), &Device::flex()).check()
}

/// Loss per token before each step of training on a sequence that repeats itself.
pub fn train(steps: usize) -> Vec<f32> {
    let device = Device::flex().autodiff();
    let config = LanguageModelConfig::new(5).with_attention(RecencyConfig::default()).with_layers(1).with_d_model(16).with_n_heads(2);
    let config = config.with_d_ff(32).with_dropout(0.0).with_max_length(16).with_seed(1);
    let mut model = config.build(&device).expect("the model is possible");
    let mut optimiser = AdamConfig::new().init();

    // The number after a 1 depends on what stands before it.
    let tokens: Vec<i32> = [1, 2, 1, 3, 4].into_iter().cycle().take(16).collect();
    let row = |from: usize| TensorData::new(tokens[from..from + 15].to_vec(), [1, 15]);
    let input = Tensor::<2, Int>::from_data(row(0), &device);
    let targets = Tensor::<2, Int>::from_data(row(1), &device).reshape([15]);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let logits = model.forward(input.clone()).reshape([15, 5]);
        let loss = cross_entropy(logits, targets.clone(), None, 0.0).loss / 15.0;
        losses.push(loss.clone().into_scalar());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimiser.step(0.01, model, gradients);
    }
    losses
}

/// Prints the report of the conformance suite and the loss of a short training.
pub fn main() -> Result<(), Report> {
    register::<RecencyConfig>().expect("no other mechanism is called `recency`");
    let mixed: AnyMechanism = "recency+dot-product".parse().expect("it is known by its name");
    println!("{mixed} is a mechanism as well");
    println!("{}", conforms()?);
    for (step, loss) in train(60).into_iter().enumerate().step_by(10) {
        println!("step {step:3}  loss {loss:.3}");
    }
    Ok(())
}
