//! Attentions that are broken in one way each, and the property that has to notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use heedful_attention::abilities::Abilities;
use heedful_attention::any::{AnyAttention, AnyLogits, AnyState, AttentionConfig};
use heedful_attention::contract::{Attention, AttentionInput, AttentionOutput, Positions};
use heedful_attention::placement::Role;
use heedful_attention::probe::{Observation, Probe};
use heedful_attention::random::RandomKey;
use heedful_attention::visibility::Visibility;

use crate::backends::flex;
use crate::gradients::gradients_agree;
use crate::naive::{Naive, agrees};
use crate::properties::{self, Outcome};
use crate::subject::Subject;
use crate::variants::{parse, placement};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// Each query sees one key more.
    MaskOffByOne,
    /// Padding is visible.
    PaddingIgnored,
    /// Where nothing is visible, everything is.
    EmptyRowsSeeAll,
    /// The context passes through a function whose derivative at 0 is infinite.
    InfiniteGradient,
    /// What is beyond the maximal length is cut off.
    TooLongIsCut,
    /// Longer states than asked for.
    CapacityIgnored,
    /// The batch's first row is added to all.
    BatchMixed,
    /// Steps do not know their position.
    StepsWithoutPosition,
    /// A state keeps the order of its rows.
    StateNotReordered,
    /// A state is cut instead of selected from.
    StateCut,
    /// Where rows begin is ignored.
    LeftPaddingIgnored,
    /// Dropout is always on, with a key of its own.
    DropoutWithoutKey,
    /// All keys are the same.
    DropoutIgnoresKey,
    /// No call drops what the call before it dropped.
    DropoutNotReplayed,
    /// Never drops.
    DropoutNever,
    /// Dropped weights are not made up for.
    DropoutUnscaled,
    /// Rows of weights sum to 2.
    UnnormalisedRows,
    /// The weights of one head are shown as those of another.
    HeadsSwappedInWeights,
    /// Nothing is shown.
    WeightsNotShown,
    /// The outputs of heads are interleaved.
    HeadsMixedInOutput,
    /// The table of logits is transposed.
    TransposedTable,
    /// Logits are scaled by `1/sqrt(d)` although they are no product of queries and keys.
    ScaledTable,
    /// The queries have no gradient.
    GradientDropped,
    /// The gradient is twice what it should be.
    GradientDoubled,
    /// Someone who looks on changes the output.
    ProbeDisturbs,
    /// Weights depend on more than the key.
    OtherWeights,
}

/// An attention with a fault.
#[derive(Module, Debug)]
struct Broken {
    inner: AnyAttention,
    #[module(skip)]
    fault: Fault,
    #[module(skip)]
    calls: Arc<AtomicU64>,
}

impl Broken {
    fn new(config: &AttentionConfig, fault: Fault, role: Role, device: &Device) -> Self {
        let placement = placement(role, 2);
        let seed = if fault == Fault::OtherWeights && device.is_autodiff() { 2 } else { 1 };
        let mut inner = config.init(&placement, &RandomKey::from_seed(seed), device);
        if let AnyAttention::Softmax(attention) = &mut inner {
            if fault == Fault::HeadsMixedInOutput {
                let width = placement.d_model;
                let weight = attention.output.weight.val().reshape([2, 3, width]).swap_dims(0, 1).reshape([width, width]);
                attention.output.weight = Param::from_tensor(weight.detach());
            }
            if let AnyLogits::SynthesizerRandom(logits) = &mut attention.logits {
                let table = logits.table.as_ref().expect("the table is trained").val();
                match fault {
                    Fault::TransposedTable => logits.table = Some(Param::from_tensor(table.swap_dims(1, 2).detach())),
                    Fault::ScaledTable => logits.table = Some(Param::from_tensor((table / 3f64.sqrt()).detach())),
                    _ => {}
                }
            }
        }
        Self { inner, fault, calls: Arc::default() }
    }

    fn breaks_input(&self, mut input: AttentionInput) -> AttentionInput {
        let seen = input.visibility.clone();
        let (rows, keys) = (seen.rows(), input.memory.as_ref().unwrap_or(&input.query).dims()[1]);
        let shown = |row: usize, h: usize, i: usize| (0..keys).any(|j| seen.is_visible(row, h, i, j));
        match self.fault {
            Fault::MaskOffByOne => {
                input.visibility = Visibility::pattern(move |h, i, j| seen.is_visible(0, h, i, j.saturating_sub(1)));
            }
            Fault::PaddingIgnored => input.visibility = Visibility::all(),
            // Only the first batch row is asked; the checks make that the row without a key.
            Fault::EmptyRowsSeeAll if rows > 1 => {
                let blind: Vec<usize> = (0..input.query.dims()[1]).filter(|&i| !shown(0, 0, i)).collect();
                let others = Visibility::padding((0..rows).map(|row| if row == 0 { keys } else { 0 }).collect());
                let all = Visibility::pattern(move |_, i, _| blind.contains(&i)).and(others);
                input.visibility = input.visibility.or(all);
            }
            Fault::LeftPaddingIgnored => input.positions.left_padding = None,
            Fault::DropoutWithoutKey => input.random = Some(input.random.unwrap_or(RandomKey::from_seed(9))),
            Fault::DropoutIgnoresKey => input.random = input.random.map(|_| RandomKey::from_seed(9)),
            Fault::DropoutNotReplayed => {
                let call = self.calls.fetch_add(1, Ordering::Relaxed);
                input.random = input.random.map(|key| key.numbered(call));
            }
            Fault::DropoutNever => input.random = None,
            Fault::GradientDropped => input.query = input.query.detach(),
            _ => {}
        }
        input
    }

    fn breaks_output(&self, context: Tensor<3>, dropped: bool, listening: bool) -> Tensor<3> {
        match self.fault {
            Fault::InfiniteGradient => context.clone().sign() * (context.clone() * context).sqrt(),
            Fault::BatchMixed => context.clone() + context.narrow(0, 0, 1),
            Fault::DropoutUnscaled if dropped => context * 0.7,
            // Equal in value: x = 2 x - x, of which one part is held constant.
            Fault::GradientDoubled => context.clone() * 2.0 - context.detach(),
            Fault::ProbeDisturbs if listening => context * 1.001,
            _ => context,
        }
    }

    /// Runs with a probe that shows broken weights.
    fn with_broken_probe<T>(&self, probe: &mut Probe, run: impl FnOnce(&mut Probe) -> T) -> T {
        if !probe.is_listening() {
            return run(probe);
        }
        let mut shown = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            shown.push(match observation {
                Observation::Weights(weights) if self.fault == Fault::UnnormalisedRows => Observation::Weights(weights * 2.0),
                Observation::Weights(weights) if self.fault == Fault::HeadsSwappedInWeights => Observation::Weights(weights.flip([1])),
                other => other,
            });
        };
        let result = run(&mut Probe::listening(&mut listener));
        for observation in shown {
            if self.fault != Fault::WeightsNotShown {
                probe.observe(|| observation);
            }
        }
        result
    }
}

impl Attention for Broken {
    type State = AnyState;

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let [_, length, _] = input.query.dims();
        if let (Fault::TooLongIsCut, Some(limit)) = (self.fault, self.abilities().max_length)
            && length > limit
        {
            let query = input.query.clone().narrow(1, 0, limit);
            return self.inner.forward(AttentionInput { query, ..input }, probe);
        }
        let input = self.breaks_input(input);
        let (dropped, listening) = (input.random.is_some(), probe.is_listening());
        let output = self.with_broken_probe(probe, |probe| self.inner.forward(input, probe));
        AttentionOutput { context: self.breaks_output(output.context, dropped, listening), ..output }
    }

    fn state(&self, batch: usize, capacity: usize, memory: Option<Tensor<3>>) -> AnyState {
        let capacity = if self.fault == Fault::CapacityIgnored { usize::MAX } else { capacity };
        self.inner.state(batch, capacity, memory)
    }

    fn step(&self, chunk: AttentionInput, state: &mut AnyState, probe: &mut Probe) -> AttentionOutput {
        let mut chunk = self.breaks_input(chunk);
        if self.fault == Fault::StepsWithoutPosition {
            chunk.positions = Positions { start: 0, ..chunk.positions };
            chunk.visibility = Visibility::all();
        }
        self.inner.step(chunk, state, probe)
    }

    fn select(&self, state: &mut AnyState, rows: &[usize]) {
        let kept: Vec<usize> = (0..rows.len()).collect();
        match self.fault {
            Fault::StateNotReordered => self.inner.select(state, &kept),
            Fault::StateCut => self.inner.select(state, &vec![rows[0]; rows.len()]),
            _ => self.inner.select(state, rows),
        }
    }
}

fn subject(name: &str, fault: Fault, role: Role) -> Subject<Broken> {
    let config = parse(name);
    Subject::new(|device| Broken::new(&config, fault, role, device), placement(role, 2), true, &flex())
}

/// The values of the attention as it should be.
fn naive(name: &str) -> Naive {
    let (config, placement) = (parse(name), placement(Role::Decoder, 2));
    let sound = Broken::new(&config, Fault::Nothing, Role::Decoder, &flex().device);
    Naive::read(&config, placement, &sound)
}

type Check = fn(&Subject<Broken>, &str) -> Outcome;

const FORMULA: Check = |subject, name| agrees(subject, &naive(name), 2, 5, 1e-5);
const GRADIENTS: Check = |subject, name| gradients_agree(subject, &mut naive(name), &[]);
const DEVICES: Check = |one, name| {
    let config = parse(name);
    let fault = one.attention.fault;
    let build = |device: &Device| Broken::new(&config, fault, Role::Decoder, device);
    // The second device is one on which a broken initialiser draws other weights.
    let mut other = Subject::new(build, one.placement, true, &flex());
    other.attention = other.tracked.clone().valid();
    properties::two_devices_agree(one, &other)
};

/// Each fault, an attention that shows it, and the property that has to notice.
fn faults() -> Vec<(Fault, &'static str, Role, Check)> {
    let causality: Check = |subject, _| properties::the_future_is_not_seen(subject);
    let padding: Check = |subject, _| properties::padding_content_does_not_matter(subject);
    let empty: Check = |subject, _| properties::a_row_without_a_key_has_weight_zero(subject);
    let lengths: Check = |subject, _| properties::lengths_up_to_the_maximum_work_and_longer_are_refused(subject);
    let batch: Check = |subject, _| properties::batch_rows_are_independent(subject);
    let steps: Check = |subject, _| properties::steps_equal_the_full_pass(subject);
    let select: Check = |subject, _| properties::selecting_rows_reorders_a_state(subject);
    let left: Check = |subject, _| properties::left_padding_equals_no_padding(subject);
    let dropout: Check = |subject, _| properties::dropout_is_a_function_of_its_key(subject);
    let weights: Check = |subject, _| properties::weights_are_those_of_the_view(subject);
    let probe: Check = |subject, _| properties::a_probe_changes_nothing(subject);
    let (own, cross) = (Role::Decoder, Role::Cross);
    vec![
        (Fault::MaskOffByOne, "dot-product", own, causality),
        (Fault::MaskOffByOne, "random", own, FORMULA),
        (Fault::MaskOffByOne, "random", own, weights),
        (Fault::PaddingIgnored, "dot-product", own, padding),
        (Fault::PaddingIgnored, "dot-product", cross, padding),
        (Fault::PaddingIgnored, "random", own, weights),
        (Fault::PaddingIgnored, "linformer", cross, padding),
        (Fault::PaddingIgnored, "dynamic-conv", Role::Encoder, padding),
        (Fault::EmptyRowsSeeAll, "dot-product", own, empty),
        (Fault::EmptyRowsSeeAll, "dense", own, empty),
        (Fault::InfiniteGradient, "dot-product", own, empty),
        (Fault::TooLongIsCut, "random", own, lengths),
        (Fault::CapacityIgnored, "dot-product", own, lengths),
        (Fault::BatchMixed, "dot-product", own, batch),
        (Fault::BatchMixed, "dot-product", cross, batch),
        (Fault::StepsWithoutPosition, "random", own, steps),
        (Fault::StepsWithoutPosition, "factorized-random", own, steps),
        (Fault::StateNotReordered, "dot-product", own, select),
        (Fault::StateNotReordered, "dot-product", cross, select),
        (Fault::StateNotReordered, "linformer", cross, select),
        (Fault::StateNotReordered, "dynamic-conv", own, select),
        (Fault::StateCut, "random", own, select),
        (Fault::LeftPaddingIgnored, "random", own, left),
        (Fault::LeftPaddingIgnored, "factorized-dense", own, left),
        (Fault::LeftPaddingIgnored, "gaussian", cross, left),
        (Fault::LeftPaddingIgnored, "linformer", Role::Encoder, left),
        (Fault::DropoutWithoutKey, "dot-product", own, dropout),
        (Fault::DropoutIgnoresKey, "dot-product", own, dropout),
        (Fault::DropoutNotReplayed, "dot-product", own, dropout),
        (Fault::DropoutNever, "dot-product", own, dropout),
        (Fault::DropoutUnscaled, "dot-product", own, dropout),
        (Fault::UnnormalisedRows, "dot-product", own, weights),
        (Fault::UnnormalisedRows, "dot-product", own, FORMULA),
        (Fault::HeadsSwappedInWeights, "dot-product", own, weights),
        (Fault::WeightsNotShown, "dot-product", own, weights),
        (Fault::HeadsMixedInOutput, "dot-product", own, FORMULA),
        (Fault::TransposedTable, "random", own, FORMULA),
        (Fault::ScaledTable, "random", own, FORMULA),
        (Fault::GradientDropped, "dot-product", own, GRADIENTS),
        (Fault::GradientDoubled, "dot-product", own, GRADIENTS),
        (Fault::ProbeDisturbs, "dot-product", own, probe),
        (Fault::OtherWeights, "dot-product", own, DEVICES),
    ]
}

#[test]
fn every_fault_is_caught_by_its_property() {
    for (fault, name, role, check) in faults() {
        assert!(check(&subject(name, fault, role), name).is_err(), "{fault:?} in {name} ({role:?}) was not noticed");
    }
}

#[test]
fn an_attention_without_fault_passes_the_same_checks() {
    for (_, name, role, check) in faults() {
        if let Err(error) = check(&subject(name, Fault::Nothing, role), name) {
            panic!("{name} ({role:?}): {error}");
        }
    }
}
