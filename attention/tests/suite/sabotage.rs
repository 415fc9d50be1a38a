//! Attentions that are broken in one way each, and the property that has to notice.
//!
//! Here an attention is broken from the outside; [`kernels`] breaks the engine, [`mechanisms`] what single mechanisms compute, and [`formulas`] what a mechanism
//! says that it computes.

mod formulas;
mod kernels;
mod mechanisms;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use heedful_attention::conformance::{Property, two_devices_agree};
use heedful_attention::description::{AnyState, PlainAttention};
use heedful_attention::mechanisms::synthesizer_random::SynthesizerRandom;
use heedful_attention::prelude::*;

use crate::backends::flex;
use crate::gradients::gradients_agree;
use crate::properties::Outcome;
use crate::subject::Subject;
use crate::variants::{parse, spec};

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
    /// Every step is the first one.
    StepsForget,
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
    /// The memory has no gradient.
    MemoryGradientDropped,
    /// The gradient is twice what it should be.
    GradientDoubled,
    /// Someone who looks on changes the output.
    ProbeDisturbs,
    /// Weights depend on more than the key.
    OtherWeights,
    /// No attention is built like the one before it.
    WeightsByChance,
    /// Outputs depend on how many there were before.
    CallsCounted,
    /// What is drawn from the key is not recorded.
    NotRecorded,
    /// The whole pass is cut into blocks that do not see each other.
    BlocksApart,
    /// The axis of a single head is taken for that of the sequence.
    SingleHeadLost,
    /// The fused engine sees one key more.
    FusedSeesMore,
    /// The fused engine's gradient is twice what it should be.
    FusedGradientDoubled,
    /// There is a loss, and it is not claimed.
    LossNotClaimed,
    /// There is no loss, although it is claimed.
    LossMissing,
    /// The loss has no gradient.
    LossDetached,
    /// The loss is infinite.
    LossInfinite,
}

/// Attentions built by [`Fault::WeightsByChance`].
static BUILT: AtomicU64 = AtomicU64::new(0);
/// Length of the blocks of [`Fault::BlocksApart`].
const BLOCK: usize = 4;

/// An attention with a fault.
#[derive(Module, Debug)]
struct Broken {
    inner: AnyAttention,
    #[module(skip)]
    fault: Fault,
    #[module(skip)]
    calls: Arc<AtomicU64>,
    unrecorded: Tensor<1>,
    #[module(skip)]
    limit: Visibility,
    heads: usize,
}

impl Broken {
    fn new(config: &AnyMechanism, fault: Fault, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Self {
        let key = match fault {
            Fault::OtherWeights if device.is_autodiff() => key.named("autodiff"),
            Fault::WeightsByChance => key.numbered(BUILT.fetch_add(1, Ordering::Relaxed)),
            _ => *key,
        };
        let heads = spec.heads;
        // What is to see too much must not be kept from it where it stands.
        let sees_too_much = matches!(fault, Fault::MaskOffByOne | Fault::PaddingIgnored | Fault::EmptyRowsSeeAll | Fault::FusedSeesMore);
        let role = if sees_too_much && spec.role == Role::Decoder { Role::Encoder } else { spec.role };
        let mut inner = config.init(&spec.with_role(role), &key, device);
        if let Some(attention) = inner.get_mut::<SoftmaxAttention<AnyLogits>>() {
            if fault == Fault::HeadsMixedInOutput {
                let width = spec.d_model;
                let weight = attention.output.weight.val().reshape([heads, 3, width]).swap_dims(0, 1).reshape([width, width]);
                attention.output.weight = Param::from_tensor(weight.detach());
            }
            if let Some(logits) = attention.logits.get_mut::<SynthesizerRandom>() {
                let table = logits.table.as_ref().expect("the table is trained").val();
                match fault {
                    Fault::TransposedTable => logits.table = Some(Param::from_tensor(table.swap_dims(1, 2).detach())),
                    Fault::ScaledTable => logits.table = Some(Param::from_tensor((table / 3f64.sqrt()).detach())),
                    _ => {}
                }
            }
        }
        let unrecorded = Init::Normal(1.0).tensor([spec.d_model], &key.named("unrecorded"), device);
        Self { inner, fault, calls: Arc::default(), unrecorded, limit: spec.limit(), heads }
    }

    fn breaks_input(&self, mut input: AttentionInput) -> AttentionInput {
        input.visibility = input.visibility.within(&self.limit);
        let seen = input.visibility.clone();
        let (rows, keys) = (seen.rows(), input.memory.as_ref().unwrap_or(&input.query).dims()[1]);
        let shown = |row: usize, h: usize, i: usize| (0..keys).any(|j| seen.is_visible(row, h, i, j));
        match self.fault {
            Fault::FusedSeesMore if input.engine == Engine::Fused => {
                input.visibility = Visibility::pattern(move |h, i, j| seen.is_visible(0, h, i, j.saturating_sub(1)));
            }
            Fault::MaskOffByOne => {
                input.visibility = Visibility::pattern(move |h, i, j| seen.is_visible(0, h, i, j.saturating_sub(1)));
            }
            Fault::BlocksApart => {
                input.visibility = input.visibility.and(Visibility::pattern(|_, i, j| i / BLOCK == j / BLOCK));
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
            Fault::MemoryGradientDropped => input.memory = input.memory.map(Tensor::detach),
            _ => {}
        }
        input
    }

    fn breaks_output(&self, context: Tensor<3>, dropped: bool, listening: bool, engine: Engine) -> Tensor<3> {
        match self.fault {
            Fault::FusedGradientDoubled if engine == Engine::Fused => context.clone() * 2.0 - context.detach(),
            Fault::InfiniteGradient => context.clone().sign() * (context.clone() * context).sqrt(),
            Fault::BatchMixed => context.clone() + context.narrow(0, 0, 1),
            Fault::DropoutUnscaled if dropped => context * 0.7,
            // Equal in value: x = 2 x - x, of which one part is held constant.
            Fault::GradientDoubled => context.clone() * 2.0 - context.detach(),
            Fault::ProbeDisturbs if listening => context * 1.001,
            Fault::CallsCounted => context + self.calls.fetch_add(1, Ordering::Relaxed) as f64,
            Fault::NotRecorded => context + self.unrecorded.clone().unsqueeze(),
            Fault::SingleHeadLost if self.heads == 1 => context.clone().mean_dim(1).expand(context.dims()),
            _ => context,
        }
    }

    /// A tenth of the mean square of the queries, which a sound attention claims and returns.
    fn losses(&self, query: &Tensor<3>) -> Losses {
        let mut losses = Losses::default();
        let loss = (query.clone() * query.clone()).mean() / 10.0;
        match self.fault {
            Fault::LossMissing => {}
            Fault::LossDetached => losses.push("penalty", loss.detach()),
            Fault::LossInfinite => losses.push("penalty", (loss.clone() - loss).recip()),
            _ => losses.push("penalty", loss),
        }
        losses
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
    /// With what it began with.
    type State = (AnyState, DecodingStart);

    fn abilities(&self) -> Abilities {
        Abilities { auxiliary_losses: self.fault != Fault::LossNotClaimed, ..self.inner.abilities() }
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
        let losses = self.losses(&input.query);
        let (dropped, listening, engine) = (input.random.is_some(), probe.is_listening(), input.engine);
        let output = self.with_broken_probe(probe, |probe| self.inner.forward(input, probe));
        AttentionOutput { context: self.breaks_output(output.context, dropped, listening, engine), losses }
    }

    fn state(&self, start: &DecodingStart) -> Self::State {
        let start = match self.fault {
            Fault::CapacityIgnored => DecodingStart::self_attention(start.batch(), usize::MAX),
            _ => start.clone(),
        };
        (self.inner.state(&start), start)
    }

    fn step(&self, query: Tensor<3>, (state, start): &mut Self::State, probe: &mut Probe) -> AttentionOutput {
        if self.fault == Fault::StepsForget {
            *state = self.inner.state(start);
        }
        self.inner.step(query, state, probe)
    }

    fn select(&self, (state, _): &mut Self::State, rows: &[usize]) {
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
    let built = config.clone();
    let build = move |spec: &LayerSpec, key: &RandomKey, device: &Device| Broken::new(&built, fault, spec, key, device);
    Subject::new(spec(role, 2), build, &flex().device).computing(&config).with_border(BLOCK)
}

/// The values of the attention as it should be.
fn plain(name: &str) -> PlainAttention {
    let sound = subject(name, Fault::Nothing, Role::Decoder);
    PlainAttention::read(&parse(name), sound.spec, &sound.attention)
}

/// What has to notice a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Check {
    Property(Property),
    Formula,
    FormulaGradients,
    Devices,
}

impl Check {
    fn run(self, one: &Subject<Broken>, name: &str) -> Outcome {
        match self {
            Self::Property(property) => property.check(one),
            Self::Formula => plain(name).agrees(one, 2, 5, 1e-5),
            Self::FormulaGradients => gradients_agree(one, &mut plain(name), &[]),
            Self::Devices => {
                // The second device is one on which a broken initialiser draws other weights.
                let mut other = subject(name, one.attention.fault, Role::Decoder);
                other.attention = other.tracked.clone().valid();
                two_devices_agree(one, &other)
            }
        }
    }
}

const FORMULA: Check = Check::Formula;
const GRADIENTS: Check = Check::FormulaGradients;
const DEVICES: Check = Check::Devices;

/// Each fault, an attention that shows it, and the property that has to notice.
fn faults() -> Vec<(Fault, &'static str, Role, Check)> {
    let paper = Check::Property(Property::Formula);
    let causality = Check::Property(Property::Causality);
    let padding = Check::Property(Property::Padding);
    let empty = Check::Property(Property::EmptyRows);
    let lengths = Check::Property(Property::Lengths);
    let borders = Check::Property(Property::Borders);
    let batch = Check::Property(Property::Batch);
    let heads = Check::Property(Property::FewestHeads);
    let steps = Check::Property(Property::Steps);
    let select = Check::Property(Property::Selection);
    let left = Check::Property(Property::LeftPadding);
    let dropout = Check::Property(Property::Dropout);
    let weights = Check::Property(Property::Weights);
    let probe = Check::Property(Property::Probe);
    let slopes = Check::Property(Property::Gradients);
    let engines = Check::Property(Property::Engines);
    let losses = Check::Property(Property::Losses);
    let determinism = Check::Property(Property::Determinism);
    let record = Check::Property(Property::Record);
    let (own, cross) = (Role::Decoder, Role::Cross);
    vec![
        (Fault::FusedSeesMore, "dot-product", own, engines),
        (Fault::FusedGradientDoubled, "dot-product", cross, engines),
        (Fault::MaskOffByOne, "dot-product", own, causality),
        (Fault::MaskOffByOne, "random", own, FORMULA),
        (Fault::MaskOffByOne, "random", own, paper),
        (Fault::PaddingIgnored, "linformer", cross, paper),
        (Fault::PaddingIgnored, "dynamic-conv", Role::Encoder, paper),
        (Fault::LeftPaddingIgnored, "factorized-dense", own, paper),
        (Fault::UnnormalisedRows, "dot-product", own, paper),
        (Fault::WeightsNotShown, "dot-product", own, paper),
        (Fault::BatchMixed, "gaussian", cross, paper),
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
        (Fault::StepsForget, "random", own, steps),
        (Fault::StepsForget, "factorized-random", own, steps),
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
        (Fault::BlocksApart, "dot-product", own, borders),
        (Fault::BlocksApart, "dot-product", cross, borders),
        (Fault::SingleHeadLost, "dot-product", own, heads),
        (Fault::SingleHeadLost, "dot-product", cross, heads),
        (Fault::GradientDropped, "dot-product", own, slopes),
        (Fault::GradientDropped, "dot-product", cross, slopes),
        (Fault::MemoryGradientDropped, "dot-product", cross, slopes),
        (Fault::GradientDoubled, "dot-product", own, slopes),
        (Fault::GradientDoubled, "dense", own, slopes),
        (Fault::LossNotClaimed, "dot-product", own, losses),
        (Fault::LossMissing, "dot-product", own, losses),
        (Fault::LossDetached, "dot-product", own, losses),
        (Fault::LossInfinite, "dot-product", own, losses),
        (Fault::WeightsByChance, "dot-product", own, determinism),
        (Fault::CallsCounted, "dot-product", own, determinism),
        (Fault::NotRecorded, "dot-product", own, record),
    ]
}

#[test]
fn every_fault_is_caught_by_its_property() {
    for (fault, name, role, check) in faults() {
        assert!(check.run(&subject(name, fault, role), name).is_err(), "{fault:?} in {name} ({role:?}) was not noticed");
    }
}

#[test]
fn an_attention_without_fault_passes_the_same_checks() {
    for (_, name, role, check) in faults() {
        if let Err(error) = check.run(&subject(name, Fault::Nothing, role), name) {
            panic!("{name} ({role:?}): {error}");
        }
    }
}

#[test]
fn a_gradient_that_only_one_device_has_is_noticed() {
    for (fault, role, what) in [
        (Fault::GradientDropped, Role::Decoder, "gradient of the queries"),
        (Fault::MemoryGradientDropped, Role::Cross, "gradient of the memory"),
    ] {
        let [sound, broken] = [Fault::Nothing, fault].map(|fault| subject("dot-product", fault, role));
        assert_eq!(two_devices_agree(&sound, &sound), Ok(()));
        let error = two_devices_agree(&sound, &broken).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn every_property_has_a_fault() {
    let faults = faults();
    for &property in Property::ALL {
        assert!(faults.iter().any(|(_, _, _, check)| *check == Check::Property(property)), "nothing shows that {property:?} can fail");
    }
}
