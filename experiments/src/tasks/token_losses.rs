//! Losses token by token, from which the items of a score are made.

use burn::tensor::activation::log_softmax;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;

/// Tokens whose logits exist at once.
pub(crate) const CHUNK: usize = 512;

/// `-ln p` of each target, in nats. `logits` projects states `[n, C]` to `[n, V]`; `states` is `[N, C]`.
///
/// # Panics
/// If there are not as many targets as states.
pub(crate) fn token_losses(states: &Tensor<2>, targets: &[i32], logits: impl Fn(Tensor<2>) -> Tensor<2>) -> Vec<f64> {
    assert_eq!(states.dims()[0], targets.len(), "each state has a target");
    let mut losses = Vec::with_capacity(targets.len());
    for (chunk, targets) in targets.chunks(CHUNK).enumerate() {
        let count = targets.len();
        let logits = logits(states.clone().narrow(0, chunk * CHUNK, count)).cast(FloatDType::F32);
        let targets = Tensor::<2, Int>::from_data(TensorData::new(targets.to_vec(), [count, 1]), &logits.device());
        losses.extend(read(log_softmax(logits, 1).gather(1, targets).neg()).iter::<f64>());
    }
    losses
}

#[cfg(test)]
mod tests {
    use crate::tasks::image::{ImageClassification, ImageMixtures, ImageModelling, ImageOptions, SuperResolution};
    use crate::tasks::pre_training::{MaskedModelling, PreTrainingOptions, SpanModelling};
    use crate::tasks::prelude::*;
    use crate::tasks::testing::Case;

    /// Scores of the built-in test set by a model that has learned nothing.
    fn scores<E: Experiment>(mut config: Config<E>) -> Scores {
        config.model = ModelSettings { layers: 1, d_model: 8, heads: 2, d_ff: 8, dropout: 0.0, ..config.model };
        let case = Case::new(config, "dot-product");
        E::task(case.setup()).evaluate(&case.model(2, &Device::flex()), Split::Test, &Interrupt::default()).unwrap()
    }

    /// Asserts that there are so many items, the same in batches of whatever size, and that they make the score.
    fn has_items<E: Experiment>(count: usize, with_batch: impl Fn(Config<E>, usize) -> Config<E>) {
        let [few, many] = [2, 7].map(|batch| {
            let scores = scores(with_batch(Config::default(), batch));
            assert!(!scores.made_of.is_empty(), "{}", E::NAME);
            for (metric, made_of) in &scores.made_of {
                let (_, value) = scores.metrics.iter().find(|(name, _)| name == metric).unwrap();
                let found = made_of.combination.score(&scores.items[0].terms(made_of).unwrap().total());
                assert!((found - value).abs() <= 1e-5 * value.abs(), "{}, {metric}: {found} of items and {value}", E::NAME);
            }
            scores
        });
        assert_eq!(few.items[0].identity(), many.items[0].identity(), "{}", E::NAME);
        let rows = [few, many].map(|scores| {
            let json: serde_json::Value = serde_json::from_str(&scores.items[0].to_json()).unwrap();
            serde_json::from_value::<Vec<Vec<f64>>>(json["rows"].clone()).unwrap()
        });
        assert_eq!(rows[0].len(), count, "{}", E::NAME);
        for (item, (few, many)) in rows[0].iter().zip(&rows[1]).enumerate() {
            assert!(few.iter().zip(many).all(|(few, many)| (few - many).abs() < 1e-3), "{}, item {item}: {few:?} and {many:?}", E::NAME);
        }
    }

    #[test]
    fn images_are_items_in_whatever_batches() {
        fn with_batch(options: &mut ImageOptions, batch: usize) {
            options.data.batch = batch;
            options.data.test = Some(9);
        }
        has_items::<ImageModelling>(9, |mut config, batch| {
            with_batch(&mut config.own.0, batch);
            config
        });
        has_items::<SuperResolution>(9, |mut config, batch| {
            with_batch(&mut config.own.0, batch);
            config
        });
        has_items::<ImageClassification>(9, |mut config, batch| {
            config.own.data.batch = batch;
            config.own.data.test = Some(9);
            config
        });
        has_items::<ImageMixtures>(9, |mut config, batch| {
            config.own.data.batch = batch;
            config.own.data.test = Some(9);
            config
        });
    }

    #[test]
    fn sequences_are_items_in_whatever_batches() {
        fn with_batch(options: &mut PreTrainingOptions, batch: usize) {
            options.data.batch = batch;
            options.data.evaluated = Some(9);
            options.decoding.batch_tokens = 64 * batch;
        }
        has_items::<MaskedModelling>(9, |mut config, batch| {
            with_batch(&mut config.own.0, batch);
            config
        });
        has_items::<SpanModelling>(9, |mut config, batch| {
            with_batch(&mut config.own.0, batch);
            config
        });
    }
}
