//! Weights of `torch.nn.Transformer`, as written by `safetensors.torch.save_file(model.state_dict(), path)`.
//!
//! The layout is that of PyTorch 2: for each layer `self_attn.in_proj_weight` (queries, keys and values, `[3 C, C]`), `self_attn.out_proj`, in decoders
//! `multihead_attn` likewise, `linear1`, `linear2`, `norm1` to `norm3`, and `norm` after each stack. PyTorch's matrices are the transposes of the maps here.
//! Its projections have biases: a model for its weights uses `dot-product` with [`bias`](heedful_attention::mechanisms::dot_product::DotProductConfig::bias)
//! everywhere. To compute the same results it also needs a final norm ([`final_norm`](crate::block::BlockConfig::final_norm)) and the normalisation order of
//! `norm_first`. Embeddings, positions and the output projection are not part of `torch.nn.Transformer`. By default normalisation adds `1e-6` to variances here
//! and `1e-5` (`layer_norm_eps`) there; set [`NormConfig::epsilon`](crate::parts::norm::NormConfig::epsilon) accordingly.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Tensor, TensorData};
use heedful_attention::mechanisms::dot_product::DotProduct;
use heedful_attention::prelude::*;
use safetensors::{Dtype, SafeTensors};
use thiserror::Error;

use crate::architectures::seq2seq::Seq2SeqTransformer;
use crate::block::Block;
use crate::block::stack::Stack;
use crate::parts::norm::{Norm, NormKind};
use crate::parts::residual::Residual;
use crate::training::weights::Match;

/// Weights that cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TorchError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not in safetensors format.
    #[error("`{}` is not a safetensors file: {reason}; write it with safetensors.torch.save_file(model.state_dict(), path)", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Error of the reader.
        reason: String,
    },
    /// A tensor of a type other than float32.
    #[error("`{name}` has the type {dtype}: convert the model with model.float() before it is saved")]
    Type {
        /// Its name.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// The model and the file have different parts.
    #[error("the model and the file have other layers or parts: not in the file are [{}], not in the model [{}]", missing.join(", "), unused.join(", "))]
    Mismatch {
        /// Tensors that the model needs.
        missing: Vec<String>,
        /// Tensors that the model does not need.
        unused: Vec<String>,
    },
    /// A tensor of another shape than the model's.
    #[error("`{name}` has the shape {found:?}, in the model it is {expected:?}")]
    Shape {
        /// Its name.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the model needs.
        expected: Vec<usize>,
    },
    /// A normalisation other than layer normalisation with shift, one per sublayer.
    #[error("the normalisation of `{place}` is not one layer normalisation with a shift, which is all that torch.nn.Transformer has")]
    Norm {
        /// Its place.
        place: String,
    },
    /// An attention other than dot-product with biases.
    #[error("the attention of `{place}` is not dot-product with `bias = true`, which is all that torch.nn.Transformer has")]
    Attention {
        /// Its place.
        place: String,
    },
}

/// A state dict.
#[derive(Clone, Debug)]
pub struct TorchState {
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    missing: Vec<String>,
}

impl TorchState {
    /// Reads a safetensors file.
    ///
    /// # Errors
    /// A file that cannot be read or is of another format, or a tensor that is not float32.
    pub fn read(path: &Path) -> Result<Self, TorchError> {
        let bytes = std::fs::read(path).map_err(|source| TorchError::Read { path: path.into(), source })?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| TorchError::Format { path: path.into(), reason: error.to_string() })?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.iter() {
            if view.dtype() != Dtype::F32 {
                return Err(TorchError::Type { name: name.into(), dtype: format!("{:?}", view.dtype()) });
            }
            let (numbers, _) = view.data().as_chunks::<4>();
            let values = numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
            tensors.insert(name.to_owned(), (view.shape().to_vec(), values));
        }
        Ok(Self { tensors, missing: Vec::new() })
    }

    /// Loads these weights into the encoder and decoder of `model`. Its embeddings and output projection do not change. With [`Match::Partial`], parameters
    /// missing in the file keep their values, and tensors without a parameter are ignored.
    ///
    /// # Errors
    /// A tensor of another shape, a model with attentions unlike PyTorch's, and with [`Match::Exact`] all tensors that are missing or have no place in the
    /// model.
    pub fn load(mut self, mut model: Seq2SeqTransformer, names: Match) -> Result<Seq2SeqTransformer, TorchError> {
        model.encoder = self.stack("encoder", model.encoder)?;
        model.decoder = self.stack("decoder", model.decoder)?;
        if names == Match::Exact && !(self.missing.is_empty() && self.tensors.is_empty()) {
            return Err(TorchError::Mismatch { missing: self.missing, unused: self.tensors.into_keys().collect() });
        }
        Ok(model)
    }

    fn stack(&mut self, place: &str, mut stack: Stack) -> Result<Stack, TorchError> {
        let mut layers = Vec::with_capacity(stack.layers.len());
        for (index, block) in stack.layers.into_iter().enumerate() {
            layers.push(self.block(&format!("{place}.layers.{index}"), block)?);
        }
        stack.layers = layers;
        stack.norm = stack.norm.map(|norm| self.norm(&format!("{place}.norm"), norm)).transpose()?;
        Ok(stack)
    }

    fn block(&mut self, place: &str, mut block: Block) -> Result<Block, TorchError> {
        block.self_attention = self.attention(&format!("{place}.self_attn"), block.self_attention)?;
        block.self_attention_residual = self.residual(&format!("{place}.norm1"), block.self_attention_residual)?;
        let mut norms = 1;
        if let (Some(attention), Some(residual)) = (block.cross_attention.take(), block.cross_attention_residual.take()) {
            norms += 1;
            block.cross_attention = Some(self.attention(&format!("{place}.multihead_attn"), attention)?);
            block.cross_attention_residual = Some(self.residual(&format!("{place}.norm{norms}"), residual)?);
        }
        if let (Some(mut network), Some(residual)) = (block.feed_forward.take(), block.feed_forward_residual.take()) {
            network.input = self.linear(&format!("{place}.linear1"), network.input)?;
            network.output = self.linear(&format!("{place}.linear2"), network.output)?;
            block.feed_forward = Some(network);
            block.feed_forward_residual = Some(self.residual(&format!("{place}.norm{}", norms + 1), residual)?);
        }
        Ok(block)
    }

    fn attention(&mut self, place: &str, attention: AnyAttention) -> Result<AnyAttention, TorchError> {
        let other = || TorchError::Attention { place: place.into() };
        let mut attention = attention.as_softmax().ok_or_else(other)?.clone();
        let mut logits = attention.logits.get::<DotProduct>().ok_or_else(other)?.clone();
        if logits.query.bias.is_none() {
            return Err(other());
        }
        let [width, _] = logits.query.weight.dims();
        let weights = self.take(&format!("{place}.in_proj_weight"), &[3 * width, width])?;
        let biases = self.take(&format!("{place}.in_proj_bias"), &[3 * width])?;
        let part = |map: Linear, index: usize| {
            let weights = weights.as_ref().map(|weights| weights[index * width * width..][..width * width].to_vec());
            with_values(map, weights, biases.as_ref().map(|biases| biases[index * width..][..width].to_vec()))
        };
        logits.query = part(logits.query, 0);
        logits.key = part(logits.key, 1);
        attention.value = part(attention.value, 2);
        attention.output = self.linear(&format!("{place}.out_proj"), attention.output)?;
        *attention.logits.get_mut().ok_or_else(other)? = logits;
        Ok(AnyAttention::softmax(attention))
    }

    fn linear(&mut self, place: &str, map: Linear) -> Result<Linear, TorchError> {
        let [inputs, outputs] = map.weight.dims();
        let weights = self.take(&format!("{place}.weight"), &[outputs, inputs])?;
        let biases = if map.bias.is_some() { self.take(&format!("{place}.bias"), &[outputs])? } else { None };
        Ok(with_values(map, weights, biases))
    }

    fn residual(&mut self, place: &str, mut residual: Residual) -> Result<Residual, TorchError> {
        let (Some(norm), None) = (residual.norm.take(), &residual.output_norm) else {
            return Err(TorchError::Norm { place: place.into() });
        };
        residual.norm = Some(self.norm(place, norm)?);
        Ok(residual)
    }

    fn norm(&mut self, place: &str, mut norm: Norm) -> Result<Norm, TorchError> {
        if norm.kind() != NormKind::Layer || norm.beta.is_none() {
            return Err(TorchError::Norm { place: place.into() });
        }
        let [width] = norm.gamma.dims();
        norm.gamma = with(norm.gamma, self.take(&format!("{place}.weight"), &[width])?);
        let beta = self.take(&format!("{place}.bias"), &[width])?;
        norm.beta = norm.beta.map(|own| with(own, beta));
        Ok(norm)
    }

    /// Numbers of a tensor; `None` if it does not exist.
    fn take(&mut self, name: &str, expected: &[usize]) -> Result<Option<Vec<f32>>, TorchError> {
        let Some((found, values)) = self.tensors.remove(name) else {
            self.missing.push(name.into());
            return Ok(None);
        };
        if found != expected {
            return Err(TorchError::Shape { name: name.into(), found, expected: expected.to_vec() });
        }
        Ok(Some(values))
    }
}

/// A parameter with other numbers, if given.
fn with<const D: usize>(own: Param<Tensor<D>>, values: Option<Vec<f32>>) -> Param<Tensor<D>> {
    let Some(values) = values else { return own };
    let (shape, device) = (own.dims(), own.device());
    // A mapped parameter is tracked only if the new tensor says so.
    own.map(|old| Tensor::from_data(TensorData::new(values, shape), &device).set_require_grad(old.is_require_grad()))
}

/// A map `[inputs, outputs]` with weights `[outputs, inputs]`.
fn with_values(mut map: Linear, weights: Option<Vec<f32>>, biases: Option<Vec<f32>>) -> Linear {
    let [inputs, outputs] = map.weight.dims();
    if let Some(weights) = weights {
        let device = map.weight.device();
        let weights = Tensor::<2>::from_data(TensorData::new(weights, [outputs, inputs]), &device).transpose();
        map.weight = map.weight.map(|old| weights.set_require_grad(old.is_require_grad()));
    }
    map.bias = map.bias.map(|own| with(own, biases));
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;
    use burn::tensor::Device;

    use crate::architectures::seq2seq::Seq2SeqConfig;
    use crate::block::layout::CrossLayout;
    use crate::block::{BlockConfig, Context};
    use crate::parts::residual::NormOrder;
    use crate::training::weights::{load, save, to_bytes};

    /// Fixture of `tests/fixtures/torch_transformer.py`: weights, inputs and PyTorch's outputs for both orders of normalisation.
    fn fixture(order: &str) -> TorchState {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch_transformer.safetensors");
        let mut state = TorchState::read(&path).unwrap();
        let own = |name: String| name.strip_prefix(&format!("{order}.")).map(str::to_owned);
        state.tensors = state.tensors.into_iter().filter_map(|(name, tensor)| Some((own(name)?, tensor))).collect();
        state
    }

    fn tensor(state: &mut TorchState, name: &str) -> Tensor<3> {
        let (shape, values) = state.tensors.remove(name).unwrap();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    fn biased() -> AnyMechanism {
        AnyMechanism::from(DotProductConfig::default().with_bias(true))
    }

    fn model(norm_order: NormOrder, layers: usize, attention: AnyMechanism) -> Seq2SeqTransformer {
        let block =
            BlockConfig { d_model: 16, heads: 4, d_ff: 24, max_length: 16, norm_order, final_norm: Some(true), ..BlockConfig::default() };
        let config = Seq2SeqConfig {
            source_vocabulary: 5,
            target_vocabulary: 5,
            encoder_layers: layers,
            decoder_layers: 3,
            block,
            attention: crate::block::layout::AttentionLayout {
                encoder: attention.into(),
                decoder: biased().into(),
                cross: CrossLayout::All(biased().into()),
            },
            ..Seq2SeqConfig::default()
        };
        config.validate().unwrap();
        config.init(&RandomKey::from_seed(1), &Device::flex())
    }

    #[test]
    fn outputs_are_those_of_pytorch() {
        for (order, norm_order) in [("post", NormOrder::Post), ("pre", NormOrder::Pre)] {
            let mut state = fixture(order);
            let [source, target, expected] = ["source", "target", "output"].map(|name| tensor(&mut state, name));
            let model = state.load(model(norm_order, 2, biased()), Match::Exact).unwrap();
            let lengths = vec![source.dims()[1]; 2];
            let memory = model.encoder.forward(source, &Context::new(Visibility::all()), None, &mut Probe::off()).states;
            let context =
                Context { memory: Some(memory), memory_visibility: Visibility::padding(lengths), ..Context::new(Visibility::causal()) };
            let output = model.decoder.forward(target, &context, None, &mut Probe::off()).states;
            let difference: f32 = (output - expected).abs().max().into_scalar();
            assert!(difference < 5e-5, "{order}: {difference}");
        }
    }

    #[test]
    fn loaded_weights_are_trained() {
        let mut state = fixture("post");
        for name in ["source", "target", "output"] {
            state.tensors.remove(name);
        }
        let model = state.load(model(NormOrder::Post, 2, biased()).train(), Match::Exact).unwrap();
        let block = &model.encoder.layers[0];
        let attention = block.self_attention.as_softmax().unwrap();
        assert!(attention.output.weight.is_require_grad() && attention.value.bias.as_ref().unwrap().is_require_grad());
        assert!(block.feed_forward.as_ref().unwrap().input.weight.is_require_grad());
        assert!(block.feed_forward_residual.as_ref().unwrap().norm.as_ref().unwrap().beta.as_ref().unwrap().is_require_grad());
    }

    #[test]
    fn other_models_are_refused_with_the_name_of_what_does_not_fit() {
        let refused = |change: &dyn Fn(&mut TorchState), layers: usize, attention: AnyMechanism, parts: &[&str]| {
            let mut state = fixture("post");
            for name in ["source", "target", "output"] {
                state.tensors.remove(name);
            }
            change(&mut state);
            let error = state.load(model(NormOrder::Post, layers, attention), Match::Exact).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        };
        refused(&|_| {}, 3, biased(), &["encoder.layers.2.self_attn.in_proj_weight", "encoder.layers.2.norm2.bias"]);
        refused(&|_| {}, 1, biased(), &["not in the file are []", "encoder.layers.1.linear1.bias", "encoder.layers.1.norm1.weight"]);
        refused(&|_| {}, 2, AnyMechanism::default(), &["encoder.layers.0.self_attn", "bias = true"]);
        refused(&|_| {}, 2, "gaussian".parse().unwrap(), &["encoder.layers.0.self_attn", "dot-product"]);
        let shorten = |state: &mut TorchState| {
            state.tensors.insert("encoder.norm.bias".into(), (vec![15], vec![0.0; 15]));
        };
        refused(&shorten, 2, biased(), &["encoder.norm.bias", "[15]", "[16]"]);
    }

    #[test]
    fn what_is_missing_keeps_its_values_where_that_is_wanted() {
        let mut state = fixture("post");
        for name in ["source", "target", "output", "encoder.norm.bias"] {
            state.tensors.remove(name);
        }
        let loaded = state.load(model(NormOrder::Post, 2, biased()), Match::Partial).unwrap();
        let own = model(NormOrder::Post, 2, biased());
        let beta = |model: &Seq2SeqTransformer| model.encoder.norm.as_ref().unwrap().beta.as_ref().unwrap().val().into_data();
        assert_eq!(beta(&loaded), beta(&own));
    }

    #[test]
    fn saved_weights_of_pytorch_are_those_that_are_loaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let mut state = fixture("pre");
        for name in ["source", "target", "output"] {
            state.tensors.remove(name);
        }
        let loaded = state.load(model(NormOrder::Pre, 2, biased()), Match::Exact).unwrap();
        save(&loaded, &path).unwrap();
        let again = load(model(NormOrder::Pre, 2, biased()), &path, Match::Exact).unwrap();
        assert_eq!(to_bytes(&again), to_bytes(&loaded));
        assert_ne!(to_bytes(&again), to_bytes(&model(NormOrder::Pre, 2, biased())));

        // A model without biases has no place for them.
        let mut plain = model(NormOrder::Pre, 2, biased());
        plain.encoder = model(NormOrder::Pre, 2, AnyMechanism::default()).encoder;
        let refused = load(plain.clone(), &path, Match::Exact).unwrap_err().to_string();
        assert!(refused.contains("8 tensors of the file are not in the model"), "{refused}");
        assert!(refused.contains("encoder.layers.0.self_attention.Softmax.output.bias"), "{refused}");
        assert!(load(plain, &path, Match::Partial).is_ok());
    }

    #[test]
    fn files_that_are_none_are_refused() {
        let missing = TorchState::read(Path::new("nowhere.safetensors")).unwrap_err().to_string();
        assert!(missing.contains("nowhere.safetensors"), "{missing}");
        let other = TorchState::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap_err().to_string();
        assert!(other.contains("save_file"), "{other}");
    }
}
