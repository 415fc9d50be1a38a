//! What `forward` of the models knows that `forward_with` is given: whether to drop, and with which random numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use burn::module::{Flag, Module, Param};
use burn::tensor::Device;
use heedful_attention::contract::Losses;
use heedful_attention::random::RandomKey;

/// Dropout as Burn's own layers have it: on devices with autodiff, unless the model was frozen or made by [`valid`](Module::valid).
#[derive(Module, Debug)]
pub(crate) struct Plain {
    training: Param<Flag>,
    #[module(skip)]
    stream: Arc<Stream>,
}

/// The keys of random numbers. Clones of a model draw from one stream.
#[derive(Debug)]
struct Stream {
    key: RandomKey,
    calls: AtomicU64,
    lost_losses: AtomicBool,
}

impl Plain {
    /// `key` begins the stream.
    pub(crate) fn new(key: &RandomKey) -> Self {
        let stream = Stream { key: *key, calls: AtomicU64::new(0), lost_losses: AtomicBool::new(false) };
        Self { training: Param::from_bool(true), stream: Arc::new(stream) }
    }

    /// The next key of the stream, if the model with weights on this device is trained.
    pub(crate) fn next_key(&self, device: &Device) -> Option<RandomKey> {
        let is_trained = self.training.is_enabled() && device.is_autodiff();
        is_trained.then(|| self.stream.key.numbered(self.stream.calls.fetch_add(1, Ordering::Relaxed)))
    }

    /// Says once that a pass in training, which had a key, lost these losses.
    pub(crate) fn lose(&self, random: Option<RandomKey>, losses: &Losses) {
        if random.is_some() && losses.iter().next().is_some() && !self.stream.lost_losses.swap(true, Ordering::Relaxed) {
            tracing::warn!("this model has auxiliary losses, which training needs: call `forward_with`");
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::config::Config;
    use burn::tensor::{Int, Tensor};
    use heedful_attention::contract::Attention;
    use heedful_attention::mask::Mask;
    use heedful_attention::probe::Probe;
    use heedful_attention::registry::{AnyAttention, AnyMechanism};

    use super::*;
    use crate::classifier::{Classifier, ClassifierConfig, Pooling, Sentences};
    use crate::language_model::{LanguageModel, LanguageModelConfig};
    use crate::seq2seq::{Padded, Seq2SeqConfig, Tying};

    fn tokens<const B: usize, const N: usize>(ids: [[i32; N]; B], device: &Device) -> Tensor<2, Int> {
        Tensor::from_data(ids, device)
    }

    fn language_model() -> LanguageModelConfig {
        LanguageModelConfig::new(11).with_layers(2).with_d_model(8).with_n_heads(2).with_d_ff(16).with_max_length(16).with_seed(3)
    }

    fn classifier() -> ClassifierConfig {
        ClassifierConfig::new(11, 3).with_layers(1).with_d_model(8).with_n_heads(2).with_d_ff(16).with_max_length(16).with_seed(3)
    }

    fn logits<A: Attention>(model: &LanguageModel<A>) -> burn::tensor::TensorData {
        model.forward(tokens([[2, 5, 7]], &model.embedding.tokens.weight.device())).into_data()
    }

    #[test]
    fn a_model_that_is_built_is_the_one_that_is_initialised_with_its_seed() {
        let device = Device::flex();
        let built = language_model().build(&device).unwrap();
        let initialised = language_model().init(&RandomKey::from_seed(3), &device);
        assert_eq!(logits(&built), logits(&initialised));
        let full = initialised.forward_with(tokens([[2, 5, 7]], &device), &[], None, &mut Probe::off()).logits;
        assert_eq!(logits(&built), full.into_data());
        let own = language_model().build_with(&device, |place, key, device| AnyMechanism::default().init(place, key, device));
        assert_eq!(logits(&built), logits(&own.unwrap()));
        let unseeded = LanguageModelConfig { seed: None, ..language_model() };
        assert_ne!(logits(&unseeded.build(&device).unwrap()), logits(&unseeded.build(&device).unwrap()));
    }

    #[test]
    fn configurations_are_stored_as_those_of_burn() {
        let config = language_model().with_attention(["relative", "dot-product"]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.json");
        Config::save(&config, &path).unwrap();
        assert_eq!(LanguageModelConfig::load(&path).unwrap(), config);
    }

    #[test]
    fn building_refuses_what_validation_does() {
        let device = Device::flex();
        let refused = |config: LanguageModelConfig| config.build(&device).unwrap_err().to_string();
        assert!(refused(language_model().with_attention("dot-produkt")).contains("dot-produkt"));
        assert!(refused(language_model().with_attention("linformer")).contains("causal"));
        assert!(refused(language_model().with_attention(["dot-product"; 3])).contains("list of 3"));
        assert!(refused(language_model().with_n_heads(3)).contains("heads"));
        assert!(language_model().with_n_heads(3).build_with::<AnyAttention>(&device, |_, _, _| unreachable!()).is_err());
        assert!(classifier().with_dropout(1.0).build(&device).is_err());
        let seq2seq = Seq2SeqConfig::new(11, 12).with_d_model(8).with_n_heads(2);
        assert!(seq2seq.clone().with_cross_attention("synthesizer-random").build(&device).is_err());
        assert!(seq2seq.with_tying(Tying::ThreeWay).build(&device).unwrap_err().to_string().contains("tying"));
    }

    #[test]
    fn it_drops_where_the_model_is_trained() {
        let device = Device::flex().autodiff();
        let model = language_model().with_dropout(0.5).build(&device).unwrap();
        let [first, second] = [logits(&model), logits(&model)];
        assert_ne!(first, second, "each pass draws anew");
        let again = language_model().with_dropout(0.5).build(&device).unwrap();
        assert_eq!([first.clone(), second], [logits(&again), logits(&again)], "the seed decides");
        let evaluated = logits(&model.valid());
        assert_ne!(first, evaluated);
        assert_eq!([&evaluated; 2], [&logits(&model.valid()), &logits(&model.clone().freeze())]);
        assert_eq!(evaluated, logits(&language_model().with_dropout(0.5).build(&Device::flex()).unwrap()));
    }

    #[test]
    fn a_mask_tells_what_lengths_do() {
        let device = Device::flex();
        let (source, target) = (tokens([[5, 7, 1, 9], [8, 4, 0, 0]], &device), tokens([[2, 5, 7], [2, 6, 3]], &device));
        let lengths = [4, 2];
        let hidden = Tensor::<2, burn::tensor::Bool>::from_data([[false; 4], [false, false, true, true]], &device);
        let model = Seq2SeqConfig::new(11, 11).with_layers(1).with_d_model(8).with_n_heads(2).build(&device).unwrap();
        let source_given = Padded { tokens: source.clone(), lengths: &lengths };
        let full = model.forward_with(source_given, Padded { tokens: target.clone(), lengths: &[3, 3] }, None, &mut Probe::off()).logits;
        for mask in [Mask::padding(&lengths, 4), hidden.clone().into()] {
            assert_eq!(model.forward(source.clone(), target.clone(), &mask).into_data(), full.clone().into_data());
        }
        for pooling in [Pooling::ClassToken, Pooling::Mean] {
            let model: Classifier = classifier().with_pooling(pooling).build(&device).unwrap();
            let full = |lengths: &[usize]| {
                model
                    .forward_with(Sentences { tokens: source.clone(), segments: None, lengths }, None, &mut Probe::off())
                    .logits
                    .into_data()
            };
            assert_eq!(model.forward(source.clone(), &hidden.clone().into()).into_data(), full(&lengths));
            assert_eq!(model.forward(source.clone(), &Mask::none()).into_data(), full(&[4, 4]));
            assert_ne!(full(&lengths), full(&[4, 4]));
        }
    }

    #[test]
    #[should_panic(expected = "more than padding")]
    fn a_mask_of_anything_else_is_refused() {
        classifier().build(&Device::flex()).unwrap().forward(tokens([[2, 5, 7]], &Device::flex()), &Mask::left_padding(&[1]));
    }
}
