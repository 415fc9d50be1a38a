//! Which attention learns to copy? `copying --backend wgpu --attention gaussian`.

use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Int, Tensor};
use clap::Parser;
use heedful_attention::description::AnyMechanism;
use heedful_backends::Backend;
use heedful_models::parts::loss::cross_entropy;
use heedful_models::prelude::*;
use rand::RngExt;

#[derive(Parser)]
struct Options {
    #[arg(long, default_value = "flex")]
    backend: Backend,
    #[arg(long, default_value = "dot-product")]
    attention: AnyMechanism,
    #[arg(long, default_value_t = 200)]
    steps: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { backend, attention, steps } = Options::parse();
    let (device, key) = (backend.device()?.autodiff(), RandomKey::from_seed(1));
    let config = LanguageModelConfig::new(10).with_attention(attention).with_layers(2).with_d_model(32).with_n_heads(4);
    let mut model = config.with_max_length(16).with_seed(1).build(&device)?;
    let mut optimiser = AdamConfig::new().init();
    for step in 1..=steps {
        // 32 rows of 8 digits and their copies.
        let mut rng = key.named("digits").numbered(step).rng();
        let rows: Vec<[i32; 8]> = (0..32).map(|_| std::array::from_fn(|_| rng.random_range(0..10))).collect();
        let digits: Vec<i32> = rows.iter().flat_map(|row| [*row, *row]).flatten().collect();
        let digits = Tensor::<1, Int>::from_data(digits.as_slice(), &device).reshape([32, 16]);
        let logits = model.forward(digits.clone().narrow(1, 0, 15)).narrow(1, 7, 8);
        let loss = cross_entropy(logits.reshape([256, 10]), digits.narrow(1, 8, 8).reshape([256]), None, 0.0).loss / 256.0;
        if step % 50 == 0 {
            println!("step {step}: {:.4} nats per digit", loss.clone().into_scalar::<f32>());
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimiser.step(3e-3, model, gradients);
    }
    Ok(())
}
