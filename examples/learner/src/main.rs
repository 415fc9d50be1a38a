//! Trains with the mechanism that the command names.

use heedful_attention::description::AnyMechanism;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "dot-product".to_owned());
    let attention: AnyMechanism = match name.parse() {
        Ok(attention) => attention,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(2);
        }
    };
    let directory = std::env::temp_dir().join("heedful-stock-learner");
    let (_, [before, after]) = stock_learner::train(attention, 6, &directory);
    println!(
        "{name}: {before:.3} nats per letter before training, {after:.3} after it; logs and checkpoints are in {}",
        directory.display()
    );
}
