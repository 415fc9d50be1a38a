//! What reads the sequences: a language model, and for compression what writes a sequence from what is known after its last token.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::contract::Positions;
use heedful_attention::contract::init;
use heedful_attention::contract::probe::Probe;
use heedful_attention::engine::gelu::gelu;
use heedful_data::generate::sequences::SequenceTask;
use heedful_models::architectures::language_model::{LanguageModel, LanguageModelConfig};
use heedful_models::parts::loss::cross_entropy;
use heedful_models::parts::norm::{Norm, NormConfig};
use heedful_models::parts::position::{PositionConfig, PositionEncoding};
use heedful_random::RandomKey;

/// A language model, and the decoder of the tasks that need one.
#[derive(Module, Debug)]
pub struct Reader {
    /// What reads.
    pub language: LanguageModel,
    /// What writes whole sequences, in compression.
    pub rebuilding: Option<Rebuilding>,
}

/// The decoder of compression (Poli et al. 2024, MAD): sinusoids of positions are added to the last state, and two normalised maps with GELU lead to logits.
#[derive(Module, Debug)]
pub struct Rebuilding {
    positions: PositionEncoding,
    input_norm: Norm,
    input: Linear,
    hidden_norm: Norm,
    hidden: Linear,
    output_norm: Norm,
    output: Linear,
}

impl Reader {
    /// Of a task, with a language model of this configuration.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn new(config: &LanguageModelConfig, task: &SequenceTask, key: &RandomKey, device: &Device) -> Self {
        let width = config.block.d_model;
        let linear = |name: &str, outputs: usize| init::linear(width, outputs, true, &key.named("rebuilding").named(name), device);
        let norm = || NormConfig::default().init(width, device);
        let rebuilding = task.is_rebuilt().then(|| Rebuilding {
            positions: PositionConfig::Sinusoidal.init(config.block.max_length, width, &key.named("rebuilding"), device),
            input_norm: norm(),
            input: linear("input", width),
            hidden_norm: norm(),
            hidden: linear("hidden", width),
            output_norm: norm(),
            output: linear("output", config.vocabulary),
        });
        Self { language: config.init(key, device), rebuilding }
    }

    /// Where it is.
    pub fn device(&self) -> Device {
        self.language.embedding.tokens.weight.device()
    }

    /// Bytes that decoding remembers of a sequence of so many tokens; `None` if the attention does not say.
    ///
    /// # Panics
    /// If it is longer than the model reads.
    pub(super) fn state_bytes(&self, length: usize) -> Option<usize> {
        let mut state = self.language.start(1, &[]);
        // What is out of reach is forgotten at the step after.
        for count in [length - 1, 1].into_iter().filter(|&count| count > 0) {
            let tokens = Tensor::<2, Int>::zeros([1, count], &self.device());
            self.language.step(tokens, &mut state, &mut Probe::off());
        }
        self.language.decoder.state_bytes(&state)
    }

    /// What tokens at positions of the rows of `states` `[B, N, C]` are told from, `[P, C]`; `at` `[P]` counts positions row after row.
    pub(super) fn answering(&self, states: Tensor<3>, at: Tensor<1, Int>) -> Tensor<2> {
        let [rows, length, width] = states.dims();
        let states = match &self.rebuilding {
            Some(rebuilding) => rebuilding.forward(states.narrow(1, length - 1, 1), length),
            None => states,
        };
        states.reshape([rows * length, width]).select(0, at)
    }

    /// Logits `[P, V]` of what tokens are told from.
    pub(super) fn logits(&self, answering: Tensor<2>) -> Tensor<2> {
        match &self.rebuilding {
            Some(rebuilding) => rebuilding.output.forward(answering),
            None => self.language.project(answering),
        }
    }

    /// The summed cross-entropy of the tokens `[P]`.
    pub(super) fn loss(&self, answering: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        match &self.rebuilding {
            Some(_) => cross_entropy(self.logits(answering), targets, None, 0.0).loss,
            None => self.language.cross_entropy(answering, targets, None, 0.0).loss,
        }
    }
}

impl Rebuilding {
    /// What each of `length` tokens is told from, `[B, N, C]`, from the last states `[B, 1, C]`.
    fn forward(&self, last: Tensor<3>, length: usize) -> Tensor<3> {
        let x = self.positions.forward(last.repeat_dim(1, length), &Positions::default());
        let x = gelu(self.input.forward(self.input_norm.forward(x)));
        let x = gelu(self.hidden.forward(self.hidden_norm.forward(x)));
        self.output_norm.forward(x)
    }
}
