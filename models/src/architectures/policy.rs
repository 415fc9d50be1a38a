//! Policy of an agent with memory (Parisotto et al. 2020, section 3; baseline: Hochreiter and Schmidhuber 1997).
//!
//! A core reads the embedded observations of an episode in order, and [`ActorCriticHeads`] map each state to a policy and a value. The core is a causal
//! [`Stack`] with a memory of earlier segments, or a stack of LSTM layers. Both act step by step and learn from unrolls. The state from before an unroll
//! carries no gradients, and rows are cleared when their episodes end.

use burn::module::Module;
use burn::nn::{Linear, Lstm, LstmConfig, LstmState};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::contract::init;
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;
use serde::{Deserialize, Serialize};

use crate::architectures::actor_critic::{ActorCriticHeads, ActorCriticHeadsConfig, Decision};
use crate::block::BlockConfig;
use crate::block::initialisation::Initialisation;
use crate::block::layer_sharing::DepthConfig;
use crate::block::layout::LayerAttention;
use crate::block::segment::SegmentMemory;
use crate::block::stack::{Stack, StackConfig};
use crate::parts::embedding::EmbeddingScale;
use crate::parts::position::{PositionConfig, PositionEncoding};

/// Core that reads the observations of an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Core {
    /// Causal Transformer with a memory of earlier segments.
    #[default]
    Transformer,
    /// LSTM layers with the width of the model.
    Lstm,
}

/// Configuration of [`Policy`]. The sizes of observations and actions must be given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Numbers in an observation.
    pub observation: usize,
    /// Core (default: a Transformer).
    pub core: Core,
    /// Self-attention of a Transformer's layers.
    pub attention: LayerAttention,
    /// Number of layers, at least 1.
    pub layers: usize,
    /// Sizes and options of a Transformer's layers; an LSTM uses their width.
    pub block: BlockConfig,
    /// Position vectors of a Transformer. Attention with relative positions needs none.
    pub positions: PositionConfig,
    /// Initialisation of the weights.
    pub initialisation: Initialisation,
    /// Number of actions, and loss weights. The width is that of the block.
    pub heads: ActorCriticHeadsConfig,
}

impl PolicyConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// An invalid option, or an attention that does not support it; the message names both and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("policy");
        check.at_least_one("observation", self.observation)?;
        check.at_least_one("layers", self.layers)?;
        self.block.validate(&check)?;
        self.block.validate_without_padding(&check, "unrolls are not padded")?;
        self.heads().validate()?;
        self.initialisation.validate(&check, false)?;
        if self.core == Core::Lstm {
            return Ok(());
        }
        self.stack().validate(&check, &self.attention)
    }

    fn heads(&self) -> ActorCriticHeadsConfig {
        ActorCriticHeadsConfig { d_model: self.block.d_model, ..self.heads }
    }

    fn stack(&self) -> StackConfig {
        let Self { block, layers, positions, .. } = *self;
        StackConfig::new(Role::Decoder, block, layers, DepthConfig::Stacked, positions).fitted_to(&self.attention)
    }

    /// Initialises the policy.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, key: &RandomKey, device: &Device) -> Policy {
        self.init_with(key, device, |spec, key, device| self.attention.at(spec.layer).init(spec, key, device))
    }

    /// The same with attentions that `build` creates from their place and key.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init_with<A: Attention>(
        &self,
        key: &RandomKey,
        device: &Device,
        build: impl Fn(&LayerSpec, &RandomKey, &Device) -> A,
    ) -> Policy<A> {
        let BlockConfig { d_model, max_length, .. } = self.block;
        let is_transformer = self.core == Core::Transformer;
        let lstm = |layer| lstm(d_model, &key.named("lstm").numbered(layer as u64), device);
        let policy = Policy {
            observation: init::linear(self.observation, d_model, true, &key.named("observation"), device),
            stack: is_transformer.then(|| self.stack().init_with(&key.named("stack"), device, &build)),
            positions: is_transformer.then(|| self.positions.init(max_length, d_model, &key.named("positions"), device)),
            lstm: if is_transformer { Vec::new() } else { (0..self.layers).map(lstm).collect() },
            heads: self.heads().init(&key.named("heads"), device),
        };
        self.initialisation.apply(policy, self.layers, EmbeddingScale::default(), key)
    }
}

/// An LSTM layer with Xavier-uniform maps and an initially open forget gate, with a bias of 1 (Jozefowicz et al. 2015, section 2.2).
fn lstm(d_model: usize, key: &RandomKey, device: &Device) -> Lstm {
    let mut lstm = LstmConfig::new(d_model, d_model, true).init(device);
    let gates = [Some(&mut lstm.input_gate), lstm.forget_gate.as_mut(), Some(&mut lstm.output_gate), Some(&mut lstm.cell_gate)];
    for (number, gate) in gates.into_iter().flatten().enumerate() {
        let key = key.numbered(number as u64);
        gate.input_transform = init::linear(d_model, d_model, true, &key.named("input"), device);
        gate.hidden_transform = init::linear(d_model, d_model, true, &key.named("hidden"), device);
    }
    if let Some(forget) = &mut lstm.forget_gate {
        forget.input_transform.bias = Some(Init::Constant(1.0).parameter([d_model], key, device));
    }
    lstm
}

/// A policy with a value estimate.
///
/// Should be created with [`PolicyConfig`].
#[derive(Module, Debug)]
pub struct Policy<A: Attention = AnyAttention> {
    /// Map from an observation to a model vector.
    pub observation: Linear,
    /// Layers of a Transformer core.
    pub stack: Option<Stack<A>>,
    /// Position vectors of a Transformer.
    pub positions: Option<PositionEncoding>,
    /// Layers of an LSTM core.
    pub lstm: Vec<Lstm>,
    /// Policy and value heads.
    pub heads: ActorCriticHeads,
}

/// Memory of a policy for the episodes of several rows.
#[derive(Clone, Debug)]
pub enum PolicyState {
    /// Layer inputs of a Transformer.
    Segments(SegmentMemory),
    /// Cell and hidden state `[B, C]` of each LSTM layer; empty before the first step.
    Recurrent {
        /// Cell, then hidden state, of each layer.
        layers: Vec<[Tensor<2>; 2]>,
        /// Number of rows.
        rows: usize,
    },
}

impl<A: Attention> Policy<A> {
    /// Empty memory for `rows` rows, of at most `length` steps each; an LSTM ignores the length.
    pub fn start(&self, rows: usize, length: usize) -> PolicyState {
        match self.stack {
            Some(_) => PolicyState::Segments(SegmentMemory::new(rows, length)),
            None => PolicyState::Recurrent { layers: Vec::new(), rows },
        }
    }

    /// Reads the next steps `[B, T, O]` of episodes and stores them.
    ///
    /// # Panics
    /// If the state belongs to another policy or other rows.
    pub fn read(&self, observations: Tensor<3>, state: &mut PolicyState, probe: &mut Probe) -> Decision {
        let x = relu(self.observation.forward(observations));
        let states = match (&self.stack, state) {
            (Some(stack), PolicyState::Segments(memory)) => {
                let x = match &self.positions {
                    Some(positions) => positions.forward(x, &memory.positions()),
                    None => x,
                };
                stack.segment(x, memory, None, probe).states
            }
            (None, PolicyState::Recurrent { layers, rows }) => {
                assert_eq!(*rows, x.dims()[0], "rows of the state for observations");
                let mut before = std::mem::take(layers).into_iter();
                self.lstm.iter().fold(x, |x, lstm| {
                    let state = before.next().map(|[cell, hidden]| LstmState::new(cell, hidden));
                    let (outputs, LstmState { cell, hidden }) = lstm.forward(x, state);
                    layers.push([cell.detach(), hidden.detach()]);
                    outputs
                })
            }
            (_, state) => panic!("the state of another policy: {state:?}"),
        };
        self.heads.forward(states)
    }
}

impl PolicyState {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::Segments(memory) => memory.remembered().len(),
            Self::Recurrent { rows, .. } => *rows,
        }
    }

    /// Clears the marked rows.
    ///
    /// # Panics
    /// If the number of marks differs from the number of rows.
    pub fn forget(&mut self, marked: &[bool]) {
        assert_eq!(marked.len(), self.rows(), "marks for rows of the state");
        match self {
            Self::Segments(memory) => memory.forget(marked),
            Self::Recurrent { layers, .. } if marked.contains(&true) => {
                let kept: Vec<f32> = marked.iter().map(|&forgotten| if forgotten { 0.0 } else { 1.0 }).collect();
                for tensor in layers.iter_mut().flatten() {
                    let kept = Tensor::<2>::from_data(TensorData::new(kept.clone(), [kept.len(), 1]), &tensor.device());
                    *tensor = tensor.clone() * kept;
                }
            }
            Self::Recurrent { .. } => {}
        }
    }

    /// State of these rows, which may repeat. For a Transformer it keeps at most the last `length` steps, and has room for that many.
    pub fn select(&self, rows: &[usize], length: usize) -> Self {
        let index = |device: &Device| {
            let indices = rows.iter().map(|&row| row as i32).collect();
            Tensor::<1, Int>::from_data(TensorData::new::<i32, _>(indices, [rows.len()]), device)
        };
        match self {
            Self::Segments(memory) => {
                let kept = memory.held().min(length);
                let last = |layer: &Tensor<3>| layer.clone().narrow(1, memory.held() - kept, kept).select(0, index(&layer.device()));
                let layers = if kept == 0 { Vec::new() } else { memory.layers().iter().map(last).collect() };
                let remembered = rows.iter().map(|&row| memory.remembered()[row].min(kept)).collect();
                Self::Segments(SegmentMemory::holding(length, layers, remembered))
            }
            Self::Recurrent { layers, .. } => {
                let of_rows = |tensor: &Tensor<2>| tensor.clone().select(0, index(&tensor.device()));
                let layers = layers.iter().map(|state| state.each_ref().map(of_rows)).collect();
                Self::Recurrent { layers, rows: rows.len() }
            }
        }
    }

    /// A copy on another device, or with or without autodiff.
    pub fn to_device(&self, device: &Device) -> Self {
        match self {
            Self::Segments(memory) => {
                let layers = memory.layers().iter().map(|layer| layer.clone().to_device(device)).collect();
                Self::Segments(SegmentMemory::holding(memory.length(), layers, memory.remembered().to_vec()))
            }
            Self::Recurrent { layers, rows } => Self::Recurrent {
                layers: layers.iter().map(|state| state.each_ref().map(|tensor| tensor.clone().to_device(device))).collect(),
                rows: *rows,
            },
        }
    }

    /// Memory tensors by name, for a file.
    pub fn tensors(&self) -> Vec<(String, TensorData)> {
        match self {
            Self::Segments(memory) => {
                let counts: Vec<i64> = memory.remembered().iter().map(|&count| count as i64).collect();
                let rows = counts.len();
                let layers = memory.layers().iter().enumerate().map(|(layer, states)| (format!("layer.{layer}"), read(states.clone())));
                layers.chain([("remembered".to_owned(), TensorData::new(counts, [rows]))]).collect()
            }
            Self::Recurrent { layers, .. } => {
                let tensors = layers.iter().flatten().enumerate();
                tensors.map(|(index, tensor)| (format!("state.{index:03}"), read(tensor.clone()))).collect()
            }
        }
    }

    /// Restores the result of [`tensors`](Self::tensors) into a state like this one, on a device.
    pub fn restored(&self, mut tensors: Vec<(String, TensorData)>, device: &Device) -> Self {
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        match self {
            Self::Segments(memory) => {
                let (counts, layers): (Vec<_>, Vec<_>) = tensors.into_iter().partition(|(name, _)| name == "remembered");
                let remembered = match counts.first() {
                    Some((_, counts)) => counts.iter::<i64>().map(|count| count as usize).collect(),
                    None => memory.remembered().to_vec(),
                };
                let layers = layers.into_iter().map(|(_, data)| Tensor::from_data(data, device)).collect();
                Self::Segments(SegmentMemory::holding(memory.length(), layers, remembered))
            }
            Self::Recurrent { rows, .. } => {
                let mut tensors = tensors.into_iter().map(|(_, data)| Tensor::<2>::from_data(data, device));
                let mut layers = Vec::new();
                while let (Some(cell), Some(hidden)) = (tensors.next(), tensors.next()) {
                    layers.push([cell, hidden]);
                }
                Self::Recurrent { layers, rows: *rows }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::parts::residual::NormOrder;
    use crate::parts::residual_gate::{GateConfig, GateKind};

    const OBSERVATION: usize = 3;

    fn config(core: Core) -> PolicyConfig {
        let relative: AnyMechanism = "relative".parse().unwrap();
        PolicyConfig {
            observation: OBSERVATION,
            core,
            attention: relative.into(),
            layers: 2,
            block: BlockConfig {
                d_model: 8,
                heads: 2,
                d_ff: 16,
                max_length: 32,
                dropout: 0.0,
                norm_order: NormOrder::Pre,
                gate: Some(GateConfig::new(GateKind::Gru)),
                relu_before_residual: true,
                ..BlockConfig::default()
            },
            positions: PositionConfig::None,
            heads: ActorCriticHeadsConfig { actions: 4, ..Default::default() },
            ..PolicyConfig::default()
        }
    }

    fn policy(core: Core, device: &Device) -> Policy {
        let config = config(core);
        config.validate().unwrap();
        let mut policy = config.init(&RandomKey::from_seed(1), device);
        // At first all actions are equally good.
        policy.heads.policy.weight = Init::Normal(0.5).parameter([8, 4], &RandomKey::from_seed(2), device);
        policy
    }

    fn observations(steps: usize, device: &Device) -> Tensor<3> {
        let seen: Vec<f32> = (0..2 * steps * OBSERVATION).map(|index| (index as f32 * 0.73).sin()).collect();
        Tensor::from_data(TensorData::new(seen, [2, steps, OBSERVATION]), device)
    }

    fn difference(a: &Decision, b: &Decision) -> f32 {
        (a.log_policy.clone() - b.log_policy.clone()).abs().max().into_scalar()
    }

    fn part(decision: &Decision, first: usize, count: usize) -> Decision {
        Decision { log_policy: decision.log_policy.clone().narrow(1, first, count), value: decision.value.clone().narrow(1, first, count) }
    }

    #[test]
    fn layers_that_cannot_have_the_biases_of_the_block_are_made_without() {
        let mechanisms: Vec<AnyMechanism> = ["dot-product", "linear-attention"].map(|name| name.parse().unwrap()).to_vec();
        let plain = config(Core::Transformer);
        let block = BlockConfig { qkv_bias: true, ..plain.block };
        let mixed = PolicyConfig { attention: LayerAttention::Each(mechanisms), block, ..plain };
        mixed.validate().unwrap();
        mixed.init(&RandomKey::from_seed(1), &Device::flex());
    }

    #[test]
    fn step_by_step_is_reading_the_unroll() {
        let device = Device::flex();
        let seen = observations(7, &device);
        for core in [Core::Transformer, Core::Lstm] {
            let policy = policy(core, &device);
            let whole = policy.read(seen.clone(), &mut policy.start(2, 16), &mut Probe::off());
            let mut state = policy.start(2, 16);
            for step in 0..7 {
                let decision = policy.read(seen.clone().narrow(1, step, 1), &mut state, &mut Probe::off());
                let found = difference(&decision, &part(&whole, step, 1));
                assert!(found < 1e-5, "{core:?}, step {step}: {found}");
            }
        }
    }

    #[test]
    fn a_row_that_forgot_begins_anew_and_the_others_go_on() {
        let device = Device::flex();
        let seen = observations(6, &device);
        for core in [Core::Transformer, Core::Lstm] {
            let policy = policy(core, &device);
            let read = |part: Tensor<3>, state: &mut PolicyState| policy.read(part, state, &mut Probe::off());
            let whole = read(seen.clone(), &mut policy.start(2, 16));
            let mut state = policy.start(2, 16);
            read(seen.clone().narrow(1, 0, 3), &mut state);
            state.forget(&[true, false]);
            let rest = read(seen.clone().narrow(1, 3, 3), &mut state);
            let alone = read(seen.clone().narrow(1, 3, 3), &mut policy.start(2, 16));
            let row = |decision: &Decision, row: usize| decision.log_policy.clone().narrow(0, row, 1);
            let differ = |a: Tensor<3>, b: Tensor<3>| (a - b).abs().max().into_scalar::<f32>();
            assert!(differ(row(&rest, 0), row(&alone, 0)) < 1e-5, "{core:?}");
            assert!(differ(row(&rest, 1), row(&part(&whole, 3, 3), 1)) < 1e-5, "{core:?}");
            assert!(differ(row(&rest, 1), row(&alone, 1)) > 1e-4, "{core:?}: nothing was remembered");
        }
    }

    #[test]
    fn rows_of_a_state_go_on_as_they_would_have_and_come_back_from_a_file() {
        let device = Device::flex();
        let seen = observations(6, &device);
        for core in [Core::Transformer, Core::Lstm] {
            let policy = policy(core, &device);
            let read = |part: Tensor<3>, state: &mut PolicyState| policy.read(part, state, &mut Probe::off());
            let mut state = policy.start(2, 16);
            read(seen.clone().narrow(1, 0, 3), &mut state);
            let restored = policy.start(2, 16).restored(state.tensors(), &device);
            let mut swapped = restored.select(&[1, 0], 16);
            let rest = seen.clone().narrow(1, 3, 3);
            let expected = read(rest.clone(), &mut state);
            let turned = read(rest.flip([0]), &mut swapped);
            let turned = Decision { log_policy: turned.log_policy.flip([0]), value: turned.value };
            assert!(difference(&expected, &turned) < 1e-6, "{core:?}");
        }
    }

    #[test]
    fn a_memory_is_as_long_as_it_was_selected() {
        let device = Device::flex();
        let policy = policy(Core::Transformer, &device);
        let mut state = policy.start(2, 16);
        policy.read(observations(9, &device), &mut state, &mut Probe::off());
        let PolicyState::Segments(memory) = state.select(&[1], 4) else { panic!() };
        assert_eq!((memory.held(), memory.remembered()), (4, &[4][..]));
        let PolicyState::Segments(memory) = state.select(&[0, 1, 1], 0) else { panic!() };
        assert_eq!((memory.held(), memory.remembered()), (0, &[0; 3][..]));
    }

    #[test]
    fn every_parameter_learns() {
        let device = Device::flex().autodiff();
        for core in [Core::Transformer, Core::Lstm] {
            let policy = policy(core, &device);
            let mut state = policy.start(2, 16);
            policy.read(observations(3, &device), &mut state, &mut Probe::off());
            let decision = policy.read(observations(5, &device), &mut state, &mut Probe::off());
            let loss = decision.log_policy.narrow(2, 0, 1).sum() + decision.value.sum();
            let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &policy);
            let untrained = gradients.len() - burn::module::list_param_ids(&policy).len();
            // The keys' bias cancels if every key has it.
            assert_eq!(untrained, 0, "{core:?}");
        }
    }

    #[test]
    fn impossible_options_are_refused() {
        let refused = |config: PolicyConfig, part: &str| assert!(config.validate().unwrap_err().to_string().contains(part));
        refused(PolicyConfig { observation: 0, ..config(Core::Lstm) }, "observation");
        refused(PolicyConfig { layers: 0, ..config(Core::Lstm) }, "layers");
        refused(PolicyConfig { heads: ActorCriticHeadsConfig::default(), ..config(Core::Lstm) }, "actions");
    }
}
