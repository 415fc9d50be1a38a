//! Common parts of model configurations: setters in the style of Burn's configurations, and building.

/// Defines the setters of the block's sizes and options, and `build`.
macro_rules! model_builders {
    ($config:ident, $model:ident) => {
        impl burn::config::Config for $config {}

        impl $config {
            /// Sets the width of the model, at least 1, a multiple of the number of heads (default 512).
            pub fn with_d_model(mut self, d_model: usize) -> Self {
                self.block.d_model = d_model;
                self
            }

            /// Sets the number of heads, a divisor of the width (default 8).
            pub fn with_n_heads(mut self, n_heads: usize) -> Self {
                self.block.heads = n_heads;
                self
            }

            /// Sets the number of key and value heads, a divisor of the number of heads, which share them in groups (default: equal to the number of heads).
            pub fn with_n_kv_heads(mut self, n_kv_heads: usize) -> Self {
                self.block.kv_heads = Some(n_kv_heads);
                self
            }

            /// Sets the width of a head (default: the width of the model divided by the number of heads).
            pub fn with_head_width(mut self, head_width: usize) -> Self {
                self.block.head_width = Some(head_width);
                self
            }

            /// Sets the number of hidden units of the feed-forward networks, at least 1 (default 2048, for any width).
            pub fn with_d_ff(mut self, d_ff: usize) -> Self {
                self.block.d_ff = d_ff;
                self
            }

            /// Sets the length of the longest sequence in tokens, at least 1 (default 512).
            pub fn with_max_length(mut self, max_length: usize) -> Self {
                self.block.max_length = max_length;
                self
            }

            /// Sets the dropout probability of sublayers and embeddings, in `[0, 1)` (default 0.1).
            pub fn with_dropout(mut self, dropout: f64) -> Self {
                self.block.dropout = dropout;
                self
            }

            /// Sets the dropout probability of attention weights, in `[0, 1)` (default 0).
            pub fn with_attention_dropout(mut self, dropout: f64) -> Self {
                self.block.attention_dropout = dropout;
                self
            }

            /// Sets the kind of normalisation (default: layer normalisation with ε = 1e-6).
            pub fn with_norm(mut self, norm: crate::parts::norm::NormConfig) -> Self {
                self.block.norm = norm;
                self
            }

            /// Sets the place of the normalisation (default: after the residual sum).
            pub fn with_norm_order(mut self, norm_order: crate::parts::residual::NormOrder) -> Self {
                self.block.norm_order = norm_order;
                self
            }

            /// Sets the non-linearity of the feed-forward networks (default: ReLU).
            pub fn with_activation(mut self, activation: crate::parts::feed_forward::Activation) -> Self {
                self.block.activation = activation;
                self
            }

            /// Checks the configuration and builds the model. With a seed the weights are those of [`init`](Self::init) with
            /// [`RandomKey::from_seed`](heedful_random::RandomKey::from_seed).
            ///
            /// # Errors
            /// As [`validate`](Self::validate).
            pub fn build(&self, device: &burn::tensor::Device) -> Result<$model, heedful_attention::contract::error::ConfigError> {
                self.validate()?;
                Ok(self.init(&self.root(device), device))
            }

            /// Checks the configuration and builds the model with attentions that `attention` creates from their place and key: any type that implements
            /// [`Attention`](heedful_attention::contract::Attention). The [first page](crate) has an example.
            ///
            /// # Errors
            /// As [`validate`](Self::validate).
            pub fn build_with<A: heedful_attention::contract::Attention>(
                &self,
                device: &burn::tensor::Device,
                attention: impl Fn(&heedful_attention::contract::layer_spec::LayerSpec, &heedful_random::RandomKey, &burn::tensor::Device) -> A,
            ) -> Result<$model<A>, heedful_attention::contract::error::ConfigError> {
                self.validate()?;
                Ok(self.init_with(&self.root(device), device, attention))
            }

            fn root(&self, device: &burn::tensor::Device) -> heedful_random::RandomKey {
                use heedful_random::RandomKey;
                self.seed.map_or_else(|| heedful_attention::contract::random::drawn_key(device), RandomKey::from_seed)
            }
        }
    };
}

/// Defines further setters for models with one stack of layers.
macro_rules! one_stack_builders {
    ($config:ident, $model:ident) => {
        impl $config {
            /// Sets the self-attention: the same in all layers, or a list over the layers (see [`IntoLayers`](crate::block::layout::IntoLayers); default:
            /// dot-product).
            pub fn with_attention<Form>(mut self, attention: impl crate::block::layout::IntoLayers<Form>) -> Self {
                self.attention = attention.into_layers();
                self
            }

            /// Initialises the model.
            ///
            /// # Panics
            /// If the configuration is not valid.
            pub fn init(&self, key: &heedful_random::RandomKey, device: &burn::tensor::Device) -> $model {
                self.init_with(key, device, |spec, key, device| self.attention.at(spec.layer).init(spec, key, device))
            }
        }
    };
}

pub(crate) use {model_builders, one_stack_builders};

#[cfg(test)]
mod tests {
    use burn::config::Config;
    use burn::module::Module;
    use burn::tensor::{Device, Int, Tensor};
    use heedful_attention::contract::Attention;
    use heedful_attention::contract::mask::Mask;
    use heedful_attention::contract::probe::Probe;
    use heedful_attention::description::{AnyAttention, AnyMechanism};
    use heedful_random::RandomKey;

    use crate::architectures::classifier::{Classifier, ClassifierConfig, Pooling, Sentences};
    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::architectures::seq2seq::{Padded, Seq2SeqConfig, Tying};

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
