//! One attention with given weights on given inputs: for comparison with code in another framework.
//!
//! A file in the format safetensors brings the weights, under the paths of the mechanism's fields (`logits.query.weight`), and the inputs; another takes
//! output, weights, auxiliary losses and the gradients of `sum(output * cotangent)`. Paths leave out which of several mechanisms a field holds, so that
//! they are the same wherever a mechanism stands; they are part of the interface and do not change.

mod parameters;
mod tensor_file;

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Bool, Device, Tensor, TensorData};
use heedful_attention::any::{AnyAttention, AttentionConfig};
use heedful_attention::contract::{Attention, AttentionInput};
use heedful_attention::error::ConfigError;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::probe::{Observation, Probe};
use heedful_attention::random::RandomKey;
use heedful_attention::visibility::Visibility;
use serde::{Deserialize, Serialize};

use self::parameters::Parameter;
use self::tensor_file::{Size, Sizes, TensorFile, TensorFileError, write};
use crate::backend::Backend;
use crate::error::{Completion, ExperimentError, print_line};
use crate::mechanisms::{columns, deserialize_attention};
use crate::settings::{Settings, complete};

/// An attention and its place: the content of `mechanism.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParityConfig {
    /// The attention: a table with its name and options, or a name alone (default `dot-product`).
    #[serde(deserialize_with = "deserialize_attention")]
    pub attention: AttentionConfig,
    /// `encoder` (default), `decoder` (causal) or `cross` (attends to `memory`).
    pub role: Role,
    /// Width of the model (default 64).
    pub d_model: usize,
    /// Number of heads (default 4).
    pub heads: usize,
    /// Longest sequence (default 64): the size of tables that are tied to positions.
    pub max_length: usize,
    /// Index of the layer, from 0 (default 0): some mechanisms differ from layer to layer.
    pub layer: usize,
    /// Number of layers (default 1).
    pub layers: usize,
    /// Seed of what is drawn and not in the file (default 1); no weight is.
    pub seed: u64,
}

impl Default for ParityConfig {
    fn default() -> Self {
        Self {
            attention: AttentionConfig::default(),
            role: Role::Encoder,
            d_model: 64,
            heads: 4,
            max_length: 64,
            layer: 0,
            layers: 1,
            seed: 1,
        }
    }
}

impl ParityConfig {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// A usage error with the line, the field and the remedy.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let settings = Settings::<Self>::read(Some(path), Vec::new())?;
        let config = &settings.value;
        for (field, value) in [("d_model", config.d_model), ("max_length", config.max_length), ("layers", config.layers)] {
            if value == 0 {
                return Err(settings.refuse(field, "give at least 1").into());
            }
        }
        if config.layer >= config.layers {
            let problem = format!("layer {} of {}: layers count from 0; set layers as well", config.layer, config.layers);
            return Err(settings.refuse("layer", problem).into());
        }
        config.attention.validate(&config.placement()).map_err(|error| {
            let field = if matches!(error, ConfigError::Option { option: "heads", .. }) { "heads" } else { "attention" };
            settings.refuse(field, error)
        })?;
        Ok(settings.value)
    }

    fn placement(&self) -> Placement {
        let Self { role, layer, layers, d_model, heads, max_length, .. } = *self;
        Placement { role, layer, layers, d_model, heads, max_length, dropout: 0.0 }
    }

    fn init(&self, device: &Device) -> AnyAttention {
        self.attention.init(&self.placement(), &RandomKey::from_seed(self.seed), device)
    }

    /// The shape of a sequence whose length goes by the given name.
    fn sequence(&self, length: &'static str) -> [Size; 3] {
        [Size::Free("batch"), Size::Free(length), Size::Is(self.d_model)]
    }

    /// What the length of `memory` is called.
    fn memory_length(&self) -> &'static str {
        if self.role == Role::Cross { "memory" } else { "carried" }
    }
}

/// Columns that the lines of [`describe`] fit in.
const COLUMNS: usize = 120;

/// Prints the configuration with its defaults and every tensor of both files, with shape and meaning.
///
/// # Errors
/// A configuration that is refused.
pub fn describe(config: &Path) -> Result<Completion, ExperimentError> {
    let config = ParityConfig::read(config)?;
    let attention = config.init(&Device::flex().autodiff());
    let abilities = attention.abilities();
    let parameters = parameters::list(&attention);
    let row = |name: &str, shape: &[Size], meaning: &str| vec![name.to_owned(), tensor_file::shape(shape), meaning.to_owned()];
    let is = |shape: &[usize]| shape.iter().copied().map(Size::Is).collect::<Vec<_>>();

    let mut inputs: Vec<_> = parameters
        .iter()
        .map(|Parameter { path, shape, trained }| {
            let meaning = parameters::meaning(path).unwrap_or("parameter of the mechanism");
            row(path, &is(shape), &if *trained { meaning.to_owned() } else { format!("{meaning} (not trained)") })
        })
        .collect();
    let sequence = config.sequence("length");
    inputs.push(row("x", &sequence, "the sequence whose elements attend"));
    inputs.push(row(
        "memory",
        &config.sequence(config.memory_length()),
        match config.role {
            Role::Cross => "the sequence that is attended to",
            _ => "optional: carried over from an earlier segment, attended to before x; no gradient reaches it",
        },
    ));
    let keys = if config.role == Role::Cross { "memory" } else { "keys" };
    let padding = match config.role {
        Role::Cross => "optional: 1 where memory is padding, which nobody sees, else 0; any type",
        _ => "optional: 1 where what is attended to (memory, then x) is padding, which nobody sees, else 0; any type",
    };
    inputs.push(row("key_padding", &[Size::Free("batch"), Size::Free(keys)], padding));
    inputs.push(row("cotangent", &sequence, "optional: gradient of the loss by the output; without it no gradient is computed"));

    let mut outputs = vec![row("output", &sequence, "what the attention returns")];
    if abilities.weights {
        let shape = [Size::Free("batch"), Size::Is(config.heads), Size::Free("length"), Size::Free(keys)];
        outputs.push(row("weights", &shape, "attention weights"));
    }
    if abilities.auxiliary_losses {
        outputs.push(row("loss.NAME", &[Size::Is(1)], "auxiliary losses by their names"));
    }
    outputs.push(row("grad.x", &sequence, "gradient of sum(output * cotangent)"));
    if config.role == Role::Cross {
        outputs.push(row("grad.memory", &config.sequence("memory"), "likewise"));
    }
    outputs.extend(
        parameters
            .iter()
            .filter(|parameter| parameter.trained)
            .map(|parameter| row(&format!("grad.{}", parameter.path), &is(&parameter.shape), "likewise")),
    );

    let toml = toml::to_string(&complete(&config)?).map_err(|error| ExperimentError::failure(error.to_string()))?;
    let head = ["tensor", "shape", "meaning"];
    print_line(format!(
        "# The configuration, complete with defaults\n{toml}\n# Inputs: float32 or float64\n{}\n\n# Output: float32\n{}",
        columns(COLUMNS, &head, inputs),
        columns(COLUMNS, &head, outputs)
    ))?;
    Ok(Completion::Finished)
}

/// Runs the attention of `config` on `inputs` and writes `output`.
///
/// # Errors
/// A configuration or backend that is refused (usage); a file that cannot be read or written, a tensor that is missing, not known, of another shape, or
/// not finite (failure).
pub fn run(config: &Path, inputs: &Path, output: &Path, backend: &str) -> Result<Completion, ExperimentError> {
    let config = ParityConfig::read(config)?;
    let backend: Backend = backend.parse().map_err(ExperimentError::usage)?;
    let device = backend.device().map_err(ExperimentError::usage)?.autodiff();
    let attention = config.init(&device);
    let case = Case::read(&config, &attention, inputs).map_err(ExperimentError::failure)?;
    write(output, &case.compute(&config, &device))?;
    Ok(Completion::Finished)
}

/// What an input file holds.
struct Case {
    attention: AnyAttention,
    x: TensorData,
    memory: Option<TensorData>,
    /// `[batch, keys]`, `true` = padding.
    key_padding: Option<Vec<bool>>,
    cotangent: Option<TensorData>,
}

impl Case {
    fn read(config: &ParityConfig, attention: &AnyAttention, path: &Path) -> Result<Self, TensorFileError> {
        let file = TensorFile::read(path)?;
        let parameters = parameters::list(attention);
        let inputs = ["x", "memory", "key_padding", "cotangent"];
        let known: Vec<_> = parameters.iter().map(|parameter| parameter.path.as_str()).chain(inputs).collect();
        file.refuse_others(&known)?;

        let mut sizes = Sizes::default();
        let mut values = Vec::new();
        for Parameter { path, shape, .. } in &parameters {
            let shape: Vec<_> = shape.iter().copied().map(Size::Is).collect();
            values.push((path.clone(), file.numbers(path, &shape, &mut sizes)?));
        }
        let x = file.numbers("x", &config.sequence("length"), &mut sizes)?;
        let length = x.shape()[1];
        let memory = if config.role == Role::Cross || file.has("memory") {
            Some(file.numbers("memory", &config.sequence(config.memory_length()), &mut sizes)?)
        } else {
            None
        };
        let remembered = memory.as_ref().map_or(0, |memory| memory.shape()[1]);
        let (keys, what) = match config.role {
            Role::Cross => (remembered, "`memory`"),
            _ if memory.is_some() => (remembered + length, "`memory` and `x`"),
            _ => (length, "`x`"),
        };
        if let Some(limit) = attention.abilities().max_length.filter(|limit| keys.max(length) > *limit) {
            let name = if config.role == Role::Cross && remembered > limit { "memory" } else { "x" };
            let problem = format!("{} positions ({what}) exceed max_length = {limit}; raise it in the configuration", keys.max(length));
            return Err(file.refuse(name, problem));
        }
        sizes.set("keys", keys);
        let key_padding = match file.has("key_padding") {
            true => Some(file.booleans("key_padding", &[Size::Free("batch"), Size::Free("keys")], &mut sizes)?),
            false => None,
        };
        let cotangent = match file.has("cotangent") {
            true => Some(file.numbers("cotangent", &config.sequence("length"), &mut sizes)?),
            false => None,
        };
        Ok(Self { attention: parameters::load(attention.clone(), values), x, memory, key_padding, cotangent })
    }

    /// Everything that the output file holds.
    fn compute(self, config: &ParityConfig, device: &Device) -> Vec<(String, TensorData)> {
        let tracked = |data: TensorData| Tensor::<3>::from_data(data, device).require_grad();
        let x = tracked(self.x);
        let memory = self.memory.map(tracked);
        let [batch, length, _] = x.dims();
        let input = match (config.role, memory.clone()) {
            (Role::Cross, Some(memory)) => AttentionInput::cross_attention(x.clone(), memory),
            (_, Some(carried)) => AttentionInput::segment(x.clone(), carried),
            (_, None) => AttentionInput::self_attention(x.clone()),
        };
        let start = input.positions.start;
        let mut visibility = if config.role == Role::Decoder { Visibility::causal() } else { Visibility::all() };
        if let Some(padding) = self.key_padding {
            visibility = visibility.and(visible_keys(&padding, batch, start + length));
        }

        let mut weights = None;
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Weights(shown) = observation {
                weights = Some(shown);
            }
        };
        let output = self.attention.forward(input.visibility(visibility), &mut Probe::listening(&mut listener));
        let mut tensors = vec![("output".to_owned(), output.context.clone().into_data())];
        if let Some(weights) = weights {
            let [_, heads, queries, keys] = weights.dims();
            tensors.push(("weights".to_owned(), weights.expand([batch, heads, queries, keys]).into_data()));
        }
        tensors.extend(output.losses.iter().map(|(name, loss)| (format!("loss.{name}"), loss.clone().into_data())));

        if let Some(cotangent) = self.cotangent {
            let gradients = (output.context * Tensor::from_data(cotangent, device)).sum().backward();
            let inputs = [("x", Some(x)), ("memory", memory.filter(|_| config.role == Role::Cross))];
            for (name, input) in inputs.into_iter().filter_map(|(name, input)| Some((name, input?))) {
                let gradient = input.grad(&gradients).unwrap_or_else(|| input.without_autodiff().zeros_like());
                tensors.push((format!("grad.{name}"), gradient.into_data()));
            }
            let gradients = parameters::gradients(&self.attention, &gradients);
            tensors.extend(gradients.into_iter().map(|(path, gradient)| (format!("grad.{path}"), gradient)));
        }
        tensors
    }
}

/// Every query up to index `queries` sees the keys that are no padding.
fn visible_keys(padding: &[bool], batch: usize, queries: usize) -> Visibility {
    let keys = padding.len() / batch;
    let rows: Arc<[Vec<bool>]> = padding.chunks(keys).map(|row| row.iter().map(|padded| !padded).collect()).collect();
    let visible: Vec<bool> = rows.iter().flat_map(|row| (0..queries).flat_map(move |_| row.iter().copied())).collect();
    Visibility::explicit(Tensor::<4, Bool>::from_data(TensorData::new(visible, [batch, 1, queries, keys]), &Device::flex()))
}
