//! The models that `mt --model` and `textgen --model` compare: their defining settings, at whatever size the rest of the configuration sets.

use heedful_models::architectures::seq2seq::Seq2SeqConfig;
use heedful_models::block::layer_sharing::DepthConfig;

use crate::tasks::prelude::*;

/// A block that is applied as many times as there are layers.
const UNIVERSAL: &[&str] = &[r#"model.depth = { kind = "shared", step_signal = "sinusoidal" }"#];
/// The same with positions that halt by themselves.
const UNIVERSAL_ACT: &[&str] = &[r#"model.depth = { kind = "shared", step_signal = "sinusoidal", halting = { ponder_weight = 0.01 } }"#];
/// Those of the models that have the weights of the stack.
const WIDE: [&str; 2] = ["universal-wide", "universal-act-wide"];

pub(crate) const MODELS: &[NamedModel] = &[
    NamedModel::new("transformer", "layers with weights of their own", "dot-product", &[]),
    NamedModel::new(
        "universal",
        "one block for all layers of a stack, as many steps for all positions (Dehghani et al. 2018)",
        "dot-product",
        UNIVERSAL,
    ),
    NamedModel::new("universal-act", "as universal, positions halt by themselves", "dot-product", UNIVERSAL_ACT),
    NamedModel::new(
        WIDE[0],
        "as universal, feed-forward networks so wide that it has the weights of transformer",
        "dot-product",
        UNIVERSAL,
    ),
    NamedModel::new(
        WIDE[1],
        "as universal-act, feed-forward networks so wide that it has the weights of transformer",
        "dot-product",
        UNIVERSAL_ACT,
    ),
];

/// Gives a wide model the parameters that a stack of layers with the settings `plain` has. `build` makes the configuration of a model from its settings.
///
/// # Errors
/// If the parameters are not known, or there is no network to be widened.
pub(crate) fn fit(
    name: &str,
    plain: &ModelSettings,
    own: &mut ModelSettings,
    build: impl Fn(&ModelSettings) -> Seq2SeqConfig,
) -> Result<(), ExperimentError> {
    if !WIDE.contains(&name) {
        return Ok(());
    }
    let stacked = build(&ModelSettings { depth: DepthConfig::Stacked, ..plain.clone() });
    let wide = stacked.parameters().and_then(|count| build(own).with_trained_parameters(count.trained));
    let Some(wide) = wide else {
        let narrow = name.trim_end_matches("-wide");
        return Err(ExperimentError::usage(format!(
            "model `{name}`: no d_ff gives it the parameters of a stack, whose attention does not say how many it has or which has no feed-forward networks; \
             give --model {narrow} and --set model.d_ff=N"
        )));
    };
    own.d_ff = wide.block.d_ff;
    Ok(())
}

#[cfg(test)]
mod tests {
    use heedful_models::architectures::seq2seq::Tying;
    use heedful_models::block::layout::AttentionLayout;

    use super::*;

    fn build(model: &ModelSettings) -> Seq2SeqConfig {
        model.encoder_decoder(50, AttentionLayout::default(), Tying::ThreeWay)
    }

    fn parameters(model: &ModelSettings) -> u128 {
        build(model).parameters().unwrap().trained
    }

    #[test]
    fn a_wide_model_has_the_weights_of_the_stack_and_others_are_as_they_are() {
        let plain = ModelSettings { layers: 4, ..ModelSettings::default() };
        let universal = ModelSettings { depth: DepthConfig::Shared(Default::default()), ..plain.clone() };
        for name in WIDE {
            let mut own = universal.clone();
            fit(name, &plain, &mut own, build).unwrap();
            let unit = 2 * (2 * plain.d_model + 1) as u128;
            assert!(own.d_ff > 4 * plain.d_ff && parameters(&own).abs_diff(parameters(&plain)) <= unit / 2, "{name}: {}", own.d_ff);
            assert_eq!(ModelSettings { d_ff: plain.d_ff, ..own }, universal);
        }
        let mut own = universal.clone();
        fit("universal", &plain, &mut own, build).unwrap();
        assert_eq!(own, universal);
    }

    #[test]
    fn a_model_without_networks_to_be_widened_is_refused() {
        let plain = ModelSettings { feed_forward_in: heedful_models::block::FeedForwardIn::None, ..ModelSettings::default() };
        let message = fit(WIDE[0], &plain, &mut plain.clone(), build).unwrap_err().to_string();
        assert!(
            message.contains("universal-wide") && message.contains("--model universal ") && message.contains("model.d_ff"),
            "{message}"
        );
    }

    #[test]
    fn wide_models_are_among_those_that_can_be_named() {
        for name in WIDE {
            let narrow = name.trim_end_matches("-wide");
            assert!([name, narrow].iter().all(|name| MODELS.iter().any(|model| model.name == *name)), "{name}");
        }
    }
}
