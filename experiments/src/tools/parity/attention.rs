//! One attention, all positions at once or step by step.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use heedful_attention::mechanisms::lsh::Lsh;
use heedful_attention::prelude::*;

use super::config::ParityConfig;
use super::inputs::{Input, Inputs};
use super::part::Part;
use super::pass::{Pass, loss};
use super::runnable::{Output, Runnable};
use super::tensor_file::{Size, TensorFileError};

pub(super) const BATCH: Size = Size::Free("batch");
pub(super) const LENGTH: Size = Size::Free("length");
/// What self-attention sees: what is carried over and the sequence.
pub(super) const KEYS: Size = Size::Sum("keys", &["carried", "length"]);

/// [`Part::Attention`] and [`Part::Step`].
pub(super) struct OneAttention<'a>(pub &'a ParityConfig);

impl OneAttention<'_> {
    fn is_cross(&self) -> bool {
        self.0.role == Role::Cross
    }

    fn takes_steps(&self) -> bool {
        self.0.part == Part::Step
    }

    fn keys(&self) -> Size {
        match (self.is_cross(), self.takes_steps()) {
            (true, _) => Size::Free("memory"),
            (false, true) => LENGTH,
            (false, false) => KEYS,
        }
    }

    /// What the queries from `start` on see of `keys` keys.
    fn visibility(&self, inputs: &Inputs, queries: usize) -> Visibility {
        let mut visibility = if self.0.role == Role::Decoder { Visibility::causal() } else { Visibility::all() };
        if let Some(counts) = inputs.counts("left_padding") {
            visibility = visibility.and(Visibility::left_padding(counts.to_vec()));
        }
        if let Some(padding) = inputs.flags("key_padding") {
            visibility = visibility.and(visible_keys(padding, inputs.numbers("x").map_or(1, |x| x.shape()[0]), queries));
        }
        visibility
    }

    /// The outputs of steps of the sizes in `steps`.
    fn step_by_step(
        &self,
        attention: &AnyAttention,
        x: Tensor<3>,
        memory: Option<Tensor<3>>,
        inputs: &Inputs,
        probe: &mut Probe,
    ) -> Tensor<3> {
        let [batch, length, _] = x.dims();
        let visibility = self.visibility(inputs, length);
        let begin = match memory {
            Some(memory) => DecodingStart::cross_attention(memory, visibility),
            None => DecodingStart::self_attention(batch, length).with_visibility(visibility),
        };
        let begin = begin.with_left_padding(inputs.counts("left_padding").unwrap_or_default()).with_engine(self.0.engine);
        let mut state = attention.state(&begin);
        let mut start = 0;
        let step = |&size: &usize| {
            let query = x.clone().narrow(1, start, size);
            start += size;
            attention.step(query, &mut state, probe).context
        };
        Tensor::cat(inputs.counts("steps").unwrap_or_default().iter().map(step).collect(), 1)
    }
}

/// Positions from `start` on, with the padding at the left that was read.
pub(super) fn positions(start: usize, inputs: &Inputs) -> Positions {
    Positions::from_start(start).with_left_padding(inputs.counts("left_padding").unwrap_or_default())
}

/// What is read where rows may be padded on the left.
pub(super) fn left_padding() -> Input {
    let meaning = "number of hidden padding elements at the start of each row (memory, then x); the first real one has position 0";
    Input::counts("left_padding", &[BATCH], meaning, &[0, 2]).optional()
}

/// A sequence of one element on the device of an attention, `[1, 1, C]`.
fn one_position(attention: &AnyAttention, d_model: usize) -> Tensor<3> {
    let device = attention.devices().into_iter().next().expect("every attention projects values");
    Tensor::zeros([1, 1, d_model], &device)
}

/// Names of the losses that an attention returns.
pub(super) fn losses(attention: &AnyAttention, d_model: usize) -> Vec<&'static str> {
    if !attention.abilities().auxiliary_losses {
        return Vec::new();
    }
    let x = one_position(attention, d_model);
    let output = attention.forward(AttentionInput::self_attention(x), &mut Probe::off());
    output.losses.iter().map(|(name, _)| *name).collect()
}

/// What an attention alone or in a model shows of `keys` keys, under names that end with `suffix`.
pub(super) fn shown(attention: &AnyAttention, config: &ParityConfig, is_cross: bool, keys: Size, suffix: &str) -> Vec<Output> {
    let heads = Size::Is(config.heads);
    let mut kinds = Vec::new();
    let mut listener = |_: &str, observation: Observation| kinds.push(observation);
    let x = one_position(attention, config.d_model);
    let input = if is_cross { AttentionInput::cross_attention(x.clone(), x) } else { AttentionInput::self_attention(x) };
    attention.forward(input, &mut Probe::listening(&mut listener));
    let output = |kind: &str, shape: &[Size], meaning: &str| Output::shown(&format!("{kind}{suffix}"), shape, meaning);
    let mut outputs: Vec<_> = kinds
        .into_iter()
        .filter_map(|observation| match observation {
            Observation::Weights(_) => Some(output("weights", &[BATCH, heads, LENGTH, keys], "attention weights, 0 for keys out of reach")),
            Observation::SignedWeights(_) => Some(output(
                "signed_weights",
                &[BATCH, heads, LENGTH, keys],
                "weights of keys, which may be negative, 0 for keys out of reach",
            )),
            Observation::SlotWeights(weights) => {
                let slots = Size::Is(weights.dims()[3]);
                Some(output("slot_weights", &[BATCH, heads, LENGTH, slots], "weights of the slots that keys are mixed into"))
            }
            Observation::HeadGates(open) => {
                let shape = [BATCH, heads, LENGTH, Size::Is(open.dims()[3])];
                Some(output("head_gates", &shape, "how far the gates on what heads give are open"))
            }
            Observation::Spans(_) => Some(output("spans", &[BATCH, heads, LENGTH], "how far back queries look, in positions")),
            _ => None,
        })
        .collect();
    if let Some(lsh) = attention.get::<Lsh>() {
        let rounds = Size::Is(lsh.rotations.value().dims()[0]);
        let meaning = "bucket of each position in each round, where the sequence is hashed";
        outputs.push(output("buckets", &[BATCH, heads, rounds, keys], meaning));
    }
    outputs
}

impl Runnable for OneAttention<'_> {
    type Module = AnyAttention;

    fn module(&self, device: &Device) -> AnyAttention {
        self.0.init_attention(device)
    }

    fn inputs(&self, _: &AnyAttention) -> Vec<Input> {
        let config = self.0;
        let width = Size::Is(config.d_model);
        let mut inputs = vec![Input::numbers("x", &[BATCH, LENGTH, width], "the sequence whose elements attend").with_gradient(true)];
        if self.is_cross() {
            let meaning = "the sequence that is attended to";
            inputs.push(Input::numbers("memory", &[BATCH, Size::Free("memory"), width], meaning).with_gradient(true));
        } else if !self.takes_steps() {
            let meaning = match config.memory_gradient {
                true => "carried over from an earlier segment, attended to before x",
                false => "carried over from an earlier segment, attended to before x; no gradient reaches it unless memory_gradient is set",
            };
            let memory = Input::numbers("memory", &[BATCH, Size::Free("carried"), width], meaning).optional();
            inputs.push(memory.with_gradient(config.memory_gradient));
        }
        if self.takes_steps() {
            let meaning = "how many positions each step takes; they sum to length";
            inputs.push(Input::counts("steps", &[Size::Free("steps")], meaning, &[2, 1, 3]));
        }
        let seen = match (self.is_cross(), self.takes_steps()) {
            (true, _) => "memory",
            (false, true) => "x",
            (false, false) => "what is attended to (memory, then x)",
        };
        let meaning = format!("1 where {seen} is hidden padding, else 0; any type");
        inputs.push(Input::flags("key_padding", &[BATCH, self.keys()], &meaning).optional());
        if !self.is_cross() {
            inputs.push(left_padding());
        }
        inputs
    }

    fn outputs(&self, attention: &AnyAttention) -> Vec<Output> {
        let config = self.0;
        let width = Size::Is(config.d_model);
        let of_steps = |output: Output| if self.takes_steps() { output.without_cotangent() } else { output };
        let mut outputs = vec![of_steps(Output::new("output", &[BATCH, LENGTH, width], "what the attention returns"))];
        outputs.extend(shown(attention, config, self.is_cross(), self.keys(), ""));
        if !self.takes_steps() {
            let losses = losses(attention, config.d_model).into_iter();
            outputs.extend(losses.map(|name| Output::new(&loss(name), &[Size::Is(1)], "auxiliary loss")));
        }
        outputs
    }

    fn check(&self, attention: &AnyAttention, inputs: &Inputs) -> Result<(), TensorFileError> {
        let (length, memory) = (inputs.size("x", 1), inputs.size("memory", 1));
        let (keys, what) = match (self.is_cross(), memory) {
            (true, _) => (memory, "`memory`"),
            (false, 0) => (length, "`x`"),
            (false, _) => (memory + length, "`memory` and `x`"),
        };
        if let Some(limit) = attention.abilities().max_length.filter(|limit| keys.max(length) > *limit) {
            let name = if self.is_cross() && memory > limit { "memory" } else { "x" };
            let problem = format!("{} positions ({what}) exceed max_length = {limit}; raise it in the configuration", keys.max(length));
            return Err(inputs.refuse(name, problem));
        }
        inputs.check_counts("left_padding", 0, keys - 1)?;
        if self.takes_steps() { inputs.check_parts("steps", length) } else { Ok(()) }
    }

    fn engine(&self) -> Engine {
        self.0.engine
    }

    fn run(&self, attention: &AnyAttention, pass: &mut Pass) {
        let inputs = pass.inputs();
        let (x, memory) = (pass.tensor::<3>("x"), pass.given::<3>("memory"));
        let [batch, length, _] = x.dims();
        if self.takes_steps() {
            let context = pass.listening([batch, length], |probe| self.step_by_step(attention, x, memory, inputs, probe));
            return pass.output("output", context);
        }
        let input = match memory {
            Some(memory) if self.is_cross() => AttentionInput::cross_attention(x, memory),
            // `AttentionInput::segment` lets no gradient through to what is carried over.
            Some(carried) if self.0.memory_gradient => {
                AttentionInput { memory: Some(Tensor::cat(vec![carried, x.clone()], 1)), ..AttentionInput::self_attention(x) }
            }
            Some(carried) => AttentionInput::segment(x, carried),
            None => AttentionInput::self_attention(x),
        };
        let start = if self.is_cross() { 0 } else { inputs.size("memory", 1) };
        let visibility = self.visibility(inputs, start + length);
        let input = input.visibility(visibility).positions(positions(start, inputs)).engine(self.0.engine);
        let output = pass.listening([batch, length], |probe| attention.forward(input, probe));
        pass.output("output", output.context);
        pass.losses(&output.losses);
    }
}

/// Every query up to index `queries` sees the keys that are no padding.
fn visible_keys(padding: &[bool], batch: usize, queries: usize) -> Visibility {
    let keys = padding.len() / batch;
    let rows: Arc<[Vec<bool>]> = padding.chunks(keys).map(|row| row.iter().map(|padded| !padded).collect()).collect();
    let visible: Vec<bool> = rows.iter().flat_map(|row| (0..queries).flat_map(move |_| row.iter().copied())).collect();
    Visibility::explicit(Tensor::<4, Bool>::from_data(TensorData::new(visible, [batch, 1, queries, keys]), &Device::flex()))
}
