//! The numbers that the layers of a stack keep of a batch for the backward pass.
//!
//! Each linear map and each normalisation keeps its input; dropout keeps its factors. A block that the backward pass recomputes keeps only its input until
//! then, a reversible stack its two streams. Not counted are the activations that only some attentions keep, gates, and the model before and after the stack.

use heedful_models::block::Parallel;
use heedful_models::block::layer_sharing::{DepthConfig, SharedConfig};
use heedful_models::parts::feed_forward::Activation;

use crate::model::ModelSettings;

/// Numbers of a batch of so many tokens that are there at once, at least; `attended` are those that an attention keeps of a token beyond its input.
pub(super) fn of_batch(settings: &ModelSettings, attended: u128, tokens: u128) -> u128 {
    let d_model = settings.d_model as u128;
    let layer = Layer::of(settings, attended);
    let passes = match settings.depth {
        // All positions may halt after the first.
        DepthConfig::Shared(SharedConfig { halting: Some(_), .. }) => 1,
        _ => settings.layers as u128,
    };
    let of_token = match settings.depth {
        // Beside both streams and their gradients there is one sublayer, which begins with a stream.
        DepthConfig::Reversible => d_model.saturating_mul(4).saturating_add(layer.larger().saturating_sub(d_model)),
        // The last block is computed again first, while all others still have their inputs.
        _ if settings.checkpoint => d_model.saturating_mul(passes.saturating_sub(1)).saturating_add(layer.both()),
        _ => layer.both().saturating_mul(passes),
    };
    // Hidden units may go before their gradient is there, but for those that the gradient of ReLU is known from.
    let at_once = settings.feed_forward_chunk.map_or(tokens, |chunk| tokens.min(chunk as u128));
    let of_hidden = if is_kept_once(settings) { settings.counted_d_ff() as u128 } else { 0 };
    of_token.saturating_mul(tokens).saturating_add(of_hidden.saturating_mul(at_once))
}

/// Whether what a feed-forward network maps last is also what its non-linearity keeps.
fn is_kept_once(settings: &ModelSettings) -> bool {
    !settings.gated_feed_forward && settings.activation == Activation::Relu && factors(settings.feed_forward_dropout) == 0
}

/// What one layer keeps of a token.
struct Layer {
    attention: u128,
    feed_forward: u128,
}

impl Layer {
    fn of(settings: &ModelSettings, attended: u128) -> Self {
        let [d_model, d_ff] = [settings.d_model, settings.counted_d_ff()].map(|size| size as u128);
        // Input and output of the normalisation, and the factors of the output's dropout.
        let of_residual = d_model.saturating_mul(2 + factors(settings.dropout));
        let is_dropped = factors(settings.feed_forward_dropout);
        let hidden = match (settings.gated_feed_forward, settings.activation) {
            // The gradient of ReLU is known from its output, so that what it is applied to need not be kept.
            (true, Activation::Relu) => 3 + is_dropped,
            // Both maps, the non-linearity of the first, and their product, from which dropout makes another one.
            (true, _) => 4 + is_dropped,
            (false, Activation::Relu) => 1 + 2 * is_dropped,
            (false, _) => 2 + is_dropped,
        };
        // Parallel sublayers are given the same numbers, which are normalised once where they share a normalisation.
        let shared = match settings.parallel {
            None => 0,
            Some(Parallel::OwnNorms) => d_model,
            Some(Parallel::SharedNorm) => d_model.saturating_mul(2),
        };
        let feed_forward = match d_ff {
            0 => 0,
            _ => of_residual.saturating_add(d_ff.saturating_mul(hidden)).saturating_sub(shared),
        };
        Self { attention: of_residual.saturating_add(attended), feed_forward }
    }

    fn both(&self) -> u128 {
        self.attention.saturating_add(self.feed_forward)
    }

    fn larger(&self) -> u128 {
        self.attention.max(self.feed_forward)
    }
}

/// 1 if dropout with this probability, which is rounded to a multiple of 1/65536, has factors, else 0.
fn factors(probability: f64) -> u128 {
    u128::from((probability * 65536.0).round() >= 1.0)
}

#[cfg(test)]
mod tests {
    use heedful_models::block::halting::HaltingConfig;

    use super::*;

    const PLAIN: fn() -> ModelSettings = || ModelSettings { layers: 3, d_model: 10, d_ff: 100, dropout: 0.0, ..ModelSettings::default() };

    /// Numbers for each of 1000 tokens.
    fn of_token(settings: &ModelSettings) -> u128 {
        let numbers = of_batch(settings, 20, 1000);
        assert_eq!(numbers % 1000, 0);
        numbers / 1000
    }

    #[test]
    fn hidden_units_count_as_often_as_their_network_keeps_them() {
        // Three layers of 20 and 20 + 20.
        let with = |hidden: u128| 3 * (60 + hidden);
        // And the gradient of the last hidden units.
        let gradient = 100;
        assert_eq!(of_token(&PLAIN()), with(100) + gradient);
        assert_eq!(of_token(&ModelSettings { activation: Activation::Gelu, ..PLAIN() }), with(200));
        let gated = ModelSettings { gated_feed_forward: true, ..PLAIN() };
        assert_eq!(of_token(&gated), with(300));
        assert_eq!(of_token(&ModelSettings { activation: Activation::Silu, ..gated }), with(400));
        assert_eq!(of_token(&ModelSettings { feed_forward_dropout: 0.1, ..PLAIN() }), with(300));
        assert_eq!(of_token(&ModelSettings { dropout: 0.1, ..PLAIN() }), with(120) + gradient);
        assert_eq!(of_token(&ModelSettings { dropout: 1e-6, ..PLAIN() }), with(100) + gradient, "it is rounded to none");
        assert_eq!(of_batch(&ModelSettings { feed_forward_chunk: Some(10), ..PLAIN() }, 20, 1000), 1000 * 3 * 160 + 1000);
    }

    #[test]
    fn parallel_sublayers_keep_the_same_numbers_once() {
        let parallel = |parallel| of_token(&ModelSettings { parallel, ..PLAIN() });
        let usual = of_token(&PLAIN());
        assert_eq!(parallel(None), usual);
        assert_eq!(parallel(Some(Parallel::OwnNorms)), usual - 3 * 10);
        assert_eq!(parallel(Some(Parallel::SharedNorm)), usual - 3 * 20);
    }

    #[test]
    fn stacks_that_compute_again_count_one_layer_and_what_it_is_computed_from() {
        let depth = |depth| ModelSettings { depth, ..PLAIN() };
        assert_eq!(of_token(&ModelSettings { checkpoint: true, ..PLAIN() }), 2 * 10 + 160 + 100);
        assert_eq!(of_token(&depth(DepthConfig::Reversible)), 4 * 10 + (20 + 100 - 10) + 100);
        assert_eq!(of_token(&ModelSettings { layers: 1000, ..depth(DepthConfig::Reversible) }), 250, "depth costs nothing");
        assert_eq!(of_token(&depth(DepthConfig::Shared(SharedConfig::default()))), 3 * 160 + 100);
        let halting = SharedConfig { halting: Some(HaltingConfig::default()), ..SharedConfig::default() };
        assert_eq!(of_token(&depth(DepthConfig::Shared(halting))), 160 + 100);
    }
}
