//! A pixel-by-pixel image decoder with logistic-mixture outputs (Parmar et al. 2018, sections 3.1 and 5.1).
//!
//! A linear map (the paper's convolution over the three channels) embeds the three intensities of a pixel, scaled to -1 to 1, as one vector. An image of `h` by
//! `w` pixels is thus a sequence of length `h w`, a third of its number of values. The sequence is shifted by one: the first input is 0.

mod config;

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use heedful_attention::engine::dropout::dropout;
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;

pub use self::config::PixelDecoderConfig;
use super::{logistic_mixture_nll, sample_logistic_mixture};
use crate::architectures::seq2seq::Scores;
use crate::block::stack::Stack;
use crate::block::{Context, Hidden};
use crate::kernels::fused::linear;
use crate::parts::position::PositionEncoding;

/// Values of a pixel.
const CHANNELS: usize = 3;

/// A pixel-by-pixel image decoder.
///
/// Should be created with [`PixelDecoderConfig`].
#[derive(Module, Debug)]
pub struct PixelDecoder<A: Attention = AnyAttention> {
    /// Map from the intensities of a pixel to a model vector, `[3, C]`.
    pub input: Linear,
    /// Position vectors.
    pub positions: PositionEncoding,
    /// The layers.
    pub decoder: Stack<A>,
    /// Map from a state to the numbers of a mixture with `M` components, `[C, 10 M]`.
    pub output: Linear,
    max_length: usize,
    dropout: f64,
}

impl<A: Attention> PixelDecoder<A> {
    /// Mixture numbers `[B, N, 10 M]` of each pixel given the earlier ones, for pixel sequences `[B, N, 3]` of intensities 0 to 255; see
    /// [`logistic_mixture_nll`]. Dropout is active if and only if a key is given.
    ///
    /// # Panics
    /// If the sequences are empty, or exceed `max_length`.
    pub fn forward_with(&self, pixels: Tensor<3, Int>, random: Option<RandomKey>, probe: &mut Probe) -> Scores<3> {
        let [batch, length, channels] = pixels.dims();
        assert_eq!(channels, CHANNELS, "intensities of a pixel");
        let before = (length > 1).then(|| pixels.narrow(1, 0, length - 1));
        let x = self.located(self.shifted(batch, before), &Positions::default(), random.map(|key| key.named("embedding")));
        let context = Context::new(Visibility::causal());
        let Hidden { states, losses } = probe.within("decoder", None, |probe| self.decoder.forward(x, &context, random, probe));
        Scores { logits: linear(states, &self.output), losses }
    }

    /// Negative log-likelihood `[B, N]`, in nats, of each pixel of `[B, N, 3]` under the mixtures of [`forward_with`](Self::forward_with), with the auxiliary
    /// losses.
    ///
    /// # Panics
    /// As [`forward_with`](Self::forward_with).
    pub fn negative_log_likelihood(&self, pixels: Tensor<3, Int>, random: Option<RandomKey>, probe: &mut Probe) -> Scores<2> {
        let [batch, length, _] = pixels.dims();
        let Scores { logits, losses } = self.forward_with(pixels.clone(), random, probe);
        let count = batch * length;
        let numbers = logits.dims()[2];
        let logits = logits.cast(FloatDType::F32).reshape([count, numbers]);
        let found = logistic_mixture_nll(logits, pixels.reshape([count, CHANNELS]));
        Scores { logits: found.reshape([batch, length]), losses }
    }

    /// Completes images of `pixels` pixels, three intensities each, by sampling from the model after the given beginnings. Use a model without gradients
    /// (`model.valid()`).
    ///
    /// # Panics
    /// If the beginnings differ in length, are not whole pixels, or are complete images, or an image exceeds `max_length`.
    pub fn complete(&self, beginnings: &[Vec<u8>], pixels: usize, key: &RandomKey) -> Vec<Vec<u8>> {
        let mut images = beginnings.to_vec();
        let batch = images.len();
        if batch == 0 {
            return images;
        }
        let given = images[0].len() / CHANNELS;
        assert!(images.iter().all(|image| image.len() == given * CHANNELS), "beginnings of the same number of whole pixels");
        assert!(given < pixels, "{given} of {pixels} pixels are given");
        let device = self.device();
        let mut state = self.decoder.state(batch, self.max_length, &[], None);
        let all: Vec<u8> = images.concat();
        let mut x = self.shifted(batch, (given > 0).then(|| intensities(&all, batch, &device)));
        for pixel in given..pixels {
            let located = self.located(x, &state.positions(), None);
            let states = self.decoder.step(located, &mut state, &mut Probe::off()).states;
            let [_, length, width] = states.dims();
            let last = states.narrow(1, length - 1, 1).reshape([batch, width]);
            let drawn = sample_logistic_mixture(linear(last, &self.output), &key.numbered(pixel as u64));
            let drawn: Vec<u8> = read(drawn).iter::<u8>().collect();
            images.iter_mut().zip(drawn.chunks(CHANNELS)).for_each(|(image, pixel)| image.extend(pixel));
            x = self.embedded(intensities(&drawn, batch, &device));
        }
        images
    }

    fn device(&self) -> Device {
        self.output.weight.device()
    }

    /// Embeds pixels `[B, N, 3]` as vectors `[B, N, C]`.
    fn embedded(&self, pixels: Tensor<3, Int>) -> Tensor<3> {
        linear((pixels.float() / 127.5 - 1.0).cast(self.input.weight.dtype()), &self.input)
    }

    /// A zero vector, followed by the vectors of the pixels.
    fn shifted(&self, batch: usize, pixels: Option<Tensor<3, Int>>) -> Tensor<3> {
        let width = self.input.weight.dims()[1];
        let begin = Tensor::zeros([batch, 1, width], (&self.device(), self.input.weight.dtype()));
        match pixels {
            Some(pixels) => Tensor::cat(vec![begin, self.embedded(pixels)], 1),
            None => begin,
        }
    }

    /// Adds position vectors, then applies dropout.
    fn located(&self, x: Tensor<3>, positions: &Positions, random: Option<RandomKey>) -> Tensor<3> {
        let positions = self.positions.shifted(positions, x.dims()[1], random.as_ref());
        dropout(self.positions.forward(x, &positions), self.dropout, random.as_ref())
    }
}

/// Converts the concatenated values of images to pixels `[B, N, 3]`.
fn intensities(values: &[u8], batch: usize, device: &Device) -> Tensor<3, Int> {
    let numbers: Vec<i32> = values.iter().map(|&value| i32::from(value)).collect();
    Tensor::from_data(TensorData::new(numbers, [batch, values.len() / batch / CHANNELS, CHANNELS]), device)
}

#[cfg(test)]
mod tests {
    use burn::optim::GradientsParams;
    use heedful_attention::description::case::parameters;

    use super::*;
    use crate::block::BlockConfig;
    use crate::parts::position::PositionConfig;

    fn config(attention: &str) -> PixelDecoderConfig {
        let block = BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 6, ..BlockConfig::default() };
        let attention: AnyMechanism = attention.parse().unwrap();
        PixelDecoderConfig::new().with_components(2).with_layers(2).with_attention(attention).with_block(block)
    }

    fn model(attention: &str, device: &Device) -> PixelDecoder {
        let config = config(attention);
        config.validate().unwrap();
        config.init(&RandomKey::from_seed(3), device)
    }

    /// Two images of five pixels.
    fn values() -> Vec<u8> {
        (0..30).map(|index| (index * 37 % 256) as u8).collect()
    }

    fn numbers(model: &PixelDecoder, values: &[u8]) -> Tensor<3> {
        let pixels = intensities(values, 2, &model.device());
        model.forward_with(pixels, None, &mut Probe::off()).logits
    }

    fn largest_difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
        (a - b).abs().max().into_scalar()
    }

    #[test]
    fn a_pixel_says_nothing_of_its_own_mixture_and_of_those_before() {
        for attention in ["dot-product", "relative", "local-1d"] {
            let model = model(attention, &Device::flex());
            let mut changed = values();
            changed[3 * 3] ^= 128;
            let (before, after) = (numbers(&model, &values()), numbers(&model, &changed));
            assert_eq!(before.dims(), [2, 5, 20]);
            let part = |x: &Tensor<3>, first, count| x.clone().narrow(0, 0, 1).narrow(1, first, count);
            assert!(largest_difference(part(&before, 0, 4), part(&after, 0, 4)) < 1e-6, "{attention}");
            assert!(largest_difference(part(&before, 4, 1), part(&after, 4, 1)) > 1e-4, "{attention}");
        }
    }

    #[test]
    fn likelihoods_are_those_of_the_mixtures() {
        let model = model("dot-product", &Device::flex());
        let pixels = intensities(&values(), 2, &model.device());
        let found = model.negative_log_likelihood(pixels.clone(), None, &mut Probe::off()).logits;
        let numbers = numbers(&model, &values()).narrow(0, 1, 1).narrow(1, 2, 1).reshape([1, 20]);
        let of_one = logistic_mixture_nll(numbers, pixels.narrow(0, 1, 1).narrow(1, 2, 1).reshape([1, 3]));
        let difference: f32 = (found.narrow(0, 1, 1).narrow(1, 2, 1).reshape([1]) - of_one).abs().max().into_scalar();
        assert!(difference < 1e-4, "{difference}");
    }

    #[test]
    fn images_are_drawn_from_the_mixtures_of_the_whole_sequence() {
        let device = Device::flex();
        for (attention, positions) in
            [("dot-product", PositionConfig::Learned), ("linear-attention", PositionConfig::Sinusoidal), ("local-1d", PositionConfig::None)]
        {
            let model = config(attention).with_positions(positions).init(&RandomKey::from_seed(3), &device);
            let key = RandomKey::from_seed(7);
            for given in [0, 2] {
                let beginnings: Vec<Vec<u8>> = values().chunks(15).map(|image| image[..given * 3].to_vec()).collect();
                let images = model.complete(&beginnings, 5, &key);
                assert!(images.iter().zip(&beginnings).all(|(image, begin)| image.len() == 15 && image.starts_with(begin)));
                // Sampled again with the same keys from the mixtures of whole images.
                let of_images = numbers(&model, &images.concat());
                for pixel in given..5 {
                    let mixtures = of_images.clone().narrow(1, pixel, 1).reshape([2, 20]);
                    let again: Vec<i64> = read(sample_logistic_mixture(mixtures, &key.numbered(pixel as u64))).iter::<i64>().collect();
                    let drawn = images.iter().flat_map(|image| &image[pixel * 3..pixel * 3 + 3]).map(|&value| i64::from(value));
                    // Rounding may change values near a half.
                    let differ = again.into_iter().zip(drawn).map(|(a, b)| (a - b).abs()).max();
                    assert!(differ <= Some(1), "{attention}, pixel {pixel} after {given}: {differ:?}");
                }
            }
        }
        assert!(model("dot-product", &device).complete(&[], 5, &RandomKey::from_seed(1)).is_empty());
    }

    #[test]
    fn every_parameter_is_trained() {
        let device = Device::flex().autodiff();
        let model = model("dot-product", &device);
        let pixels = intensities(&values(), 2, &device);
        let loss = model.negative_log_likelihood(pixels, Some(RandomKey::from_seed(1)), &mut Probe::off()).logits.sum();
        let trained = GradientsParams::from_grads(loss.backward(), &model).len();
        assert_eq!(trained, parameters(&model, None).len());
    }

    #[test]
    #[should_panic(expected = "5 of 5 pixels are given")]
    fn whole_images_cannot_be_completed() {
        let beginnings: Vec<Vec<u8>> = values().chunks(15).map(<[u8]>::to_vec).collect();
        model("dot-product", &Device::flex()).complete(&beginnings, 5, &RandomKey::from_seed(1));
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let block = |max_length| BlockConfig { max_length, ..config("dot-product").block };
        for (option, config) in [
            ("components", config("dot-product").with_components(0)),
            ("layers", config("dot-product").with_layers(0)),
            ("max_length", config("dot-product").with_block(block(0))),
            ("heads", config("dot-product").with_n_heads(3)),
        ] {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("`{option}`")), "{option}: {error}");
        }
        assert!(config("linformer").validate().is_err(), "it is not causal");
        let text = toml::to_string(&config("relative")).unwrap();
        assert_eq!(toml::from_str::<PixelDecoderConfig>(&text).unwrap(), config("relative"));
    }
}
