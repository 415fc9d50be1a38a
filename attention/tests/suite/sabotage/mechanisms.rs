//! Single mechanisms that compute something else in one way each, and the property that has to notice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use burn::module::{Module, RunningState};
use burn::tensor::{Device, Tensor};
use heedful_attention::conformance::Property;
use heedful_attention::description::PlainAttention;
use heedful_attention::engine::blocked::Blocks;
use heedful_attention::engine::fused::Part;
use heedful_attention::engine::{Ramp, SoftSpan};
use heedful_attention::mechanisms::lsh::{Lsh, LshState};
use heedful_attention::prelude::*;
use heedful_attention::softmax_attention::pattern::Integration;

use crate::backends::flex;
use crate::properties::Outcome;
use crate::subject::Subject;
use crate::variants::{chunked_lsh, local_1d, parse, ramped, spec};

/// What logits do wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// Scores of a distance are those of the next.
    DistanceOffByOne,
    /// Scores of a key behind are those of one ahead.
    DistanceReversed,
    /// In a step, distances are those of the step after it.
    DistancesOfTheNextStep,
    /// The queries that score distances have no gradient.
    DistancesHaveNoGradient,
    /// The ramp is wider by one.
    RampTooWide,
    /// Distances of the ramp are those of the first query.
    RampOfTheFirstQuery,
    /// Spans have no gradient.
    SpansHaveNoGradient,
    /// What the end of the longest span reaches is forgotten.
    ReachTooShort,
    /// There is no penalty.
    PenaltyMissing,
    /// The pattern is that of the positions after.
    PatternOffByOne,
    /// Of a pattern, only the block of the query is seen.
    OwnBlockOnly,
    /// All heads have the pattern of the first.
    PatternOfFirstHead,
    /// The parts of the pattern are those of the first call over as many queries and keys.
    StaleParts,
    /// A part of the pattern counts twice.
    PartCountedTwice,
    /// A part of the pattern is missing.
    PartMissing,
}

/// Length of the blocks of the patterns here.
const BLOCK: usize = 2;

/// The parts of a pattern over a span.
type PartsOfSpan = (Span, Arc<[Part]>);

#[derive(Module, Debug)]
struct BrokenLogits {
    inner: AnyLogits,
    #[module(skip)]
    fault: Fault,
    #[module(skip)]
    parts: Arc<Mutex<Vec<PartsOfSpan>>>,
}

impl Logits for BrokenLogits {
    fn abilities(&self) -> LogitAbilities {
        self.inner.abilities()
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        self.inner.keys(memory, positions)
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let later = usize::from(self.fault == Fault::DistancesOfTheNextStep && span.query_start > 0);
        let terms = self.inner.terms(query, keys, Span { query_start: span.query_start + later, ..span }, positions);
        let relative = terms.relative.map(|Content { queries, keys }| {
            let count = keys.dims()[2];
            match self.fault {
                Fault::DistanceOffByOne if count > 1 => {
                    let keys = Tensor::cat(vec![keys.clone().narrow(2, 1, count - 1), keys.narrow(2, count - 1, 1)], 2);
                    Content { queries, keys }
                }
                Fault::DistanceReversed => Content { queries, keys: keys.flip([2]) },
                Fault::DistancesHaveNoGradient => Content { queries: queries.detach(), keys },
                _ => Content { queries, keys },
            }
        });
        LogitTerms { relative, ..terms }
    }

    fn visibility(&self) -> Option<Visibility> {
        let own = self.inner.visibility()?;
        Some(match self.fault {
            Fault::PatternOffByOne => Visibility::pattern(move |h, i, j| own.is_visible(0, h, i + 1, j + 1)),
            Fault::OwnBlockOnly => own.and(Visibility::relation(|i, j| i / BLOCK == j / BLOCK)),
            Fault::PatternOfFirstHead => Visibility::relation(move |i, j| own.is_visible(0, 0, i, j)),
            _ => own,
        })
    }

    fn spans(&self, query: &Tensor<3>) -> Option<Tensor<3>> {
        self.inner.spans(query)
    }

    fn soft_span(&self, query: &Tensor<3>, span: Span) -> Option<SoftSpan> {
        let SoftSpan { spans, ramp } = self.inner.soft_span(query, span)?;
        Some(match self.fault {
            Fault::RampTooWide => SoftSpan { spans, ramp: Ramp { width: ramp.width + 1.0, ..ramp } },
            Fault::RampOfTheFirstQuery => SoftSpan { spans, ramp: Ramp { offset: 0, ..ramp } },
            Fault::SpansHaveNoGradient => SoftSpan { spans: spans.detach(), ramp },
            _ => SoftSpan { spans, ramp },
        })
    }

    fn reach(&self) -> Option<usize> {
        let reach = self.inner.reach();
        if self.fault == Fault::ReachTooShort { reach.map(|reach| reach - 1) } else { reach }
    }

    fn blocks(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize, values: &Tensor<4>) -> Option<Vec<Blocks>> {
        self.inner.blocks(seen, span, positions, heads, values)
    }

    fn parts(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize) -> Option<Arc<[Part]>> {
        let parts = self.inner.parts(seen, span, positions, heads)?;
        match self.fault {
            Fault::StaleParts => {
                let mut all = self.parts.lock().expect("no panic happens while parts are locked");
                if let Some((_, stale)) = all.iter().find(|(known, _)| *known == span) {
                    return Some(stale.clone());
                }
                all.push((span, parts.clone()));
                Some(parts)
            }
            Fault::PartCountedTwice => Some(parts.iter().chain(parts.first()).cloned().collect()),
            Fault::PartMissing => Some(parts[1..].into()),
            _ => Some(parts),
        }
    }

    fn losses(&self, query: &Tensor<3>) -> Losses {
        if self.fault == Fault::PenaltyMissing { Losses::default() } else { self.inner.losses(query) }
    }
}

/// What has to notice a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Check {
    Property(Property),
    Formula,
}

impl Check {
    fn run<A: Attention>(self, one: &Subject<A>, config: &AnyMechanism) -> Outcome {
        match self {
            Self::Property(property) => property.check(one),
            Self::Formula => {
                let sound = config.init(&one.spec, &RandomKey::from_seed(1), &one.device);
                PlainAttention::read(config, one.spec, &sound).agrees(one, 2, 7, 1e-5)
            }
        }
    }
}

fn of_logits(config: &AnyMechanism, fault: Fault) -> Subject<SoftmaxAttention<BrokenLogits>> {
    let config = config.clone();
    let build = move |spec: &LayerSpec, key: &RandomKey, device: &Device| {
        let inner = config.init_logits(spec, &key.named("logits"), device).expect("there are logits");
        SoftmaxAttention::new(BrokenLogits { inner, fault, parts: Arc::default() }, spec, key, device)
    };
    Subject::new(spec(Role::Decoder, 2), build, &flex().device).unnormalised()
}

fn faults() -> Vec<(AnyMechanism, Fault, Check)> {
    let (formula, steps) = (Check::Formula, Check::Property(Property::Steps));
    let (slopes, engines) = (Check::Property(Property::Gradients), Check::Property(Property::Engines));
    let relative = parse("relative");
    let span = AnyMechanism::from(ramped());
    let local = AnyMechanism::from(local_1d(BLOCK, None));
    let strided = |integration| AnyMechanism::from(SparseStridedConfig::default().with_stride(BLOCK).with_integration(integration));
    let fixed =
        |integration| AnyMechanism::from(SparseFixedConfig::default().with_stride(BLOCK).with_summary(1).with_integration(integration));
    let (merged, heads) = (Integration::Merged, Integration::Heads);
    vec![
        (relative.clone(), Fault::DistanceOffByOne, formula),
        (relative.clone(), Fault::DistanceReversed, formula),
        (relative.clone(), Fault::DistancesOfTheNextStep, steps),
        (relative, Fault::DistancesHaveNoGradient, slopes),
        (span.clone(), Fault::RampTooWide, formula),
        (span.clone(), Fault::RampOfTheFirstQuery, steps),
        (span.clone(), Fault::SpansHaveNoGradient, slopes),
        (span.clone(), Fault::ReachTooShort, steps),
        (span, Fault::PenaltyMissing, Check::Property(Property::Losses)),
        (local.clone(), Fault::PatternOffByOne, formula),
        (local.clone(), Fault::OwnBlockOnly, formula),
        (local.clone(), Fault::StaleParts, engines),
        (local, Fault::ReachTooShort, steps),
        (strided(merged), Fault::OwnBlockOnly, formula),
        (fixed(Integration::Interleaved), Fault::PatternOffByOne, formula),
        (strided(merged), Fault::StaleParts, engines),
        (strided(merged), Fault::PartCountedTwice, engines),
        (strided(merged), Fault::PartMissing, engines),
        (strided(heads), Fault::PatternOfFirstHead, formula),
        (fixed(merged), Fault::OwnBlockOnly, formula),
        (fixed(merged), Fault::PartMissing, engines),
        (fixed(heads), Fault::PatternOfFirstHead, formula),
    ]
}

#[test]
fn every_fault_of_logits_is_caught_by_its_property() {
    for (config, fault, check) in faults() {
        assert!(check.run(&of_logits(&config, fault), &config).is_err(), "{check:?} did not notice {fault:?} in {config}");
    }
}

#[test]
fn logits_without_fault_pass_the_same_checks() {
    for (config, _, check) in faults() {
        check.run(&of_logits(&config, Fault::Nothing), &config).unwrap_or_else(|why| panic!("{config}, {check:?}: {why}"));
    }
}

/// What LSH attention does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LshFault {
    Nothing,
    /// Every call hashes with other rotations.
    RotationsOfEachCall,
    /// Steps hash with other rotations than a full pass.
    RotationsOfSteps,
    /// The first round is the only one.
    RoundsLost,
    /// Nothing is hashed.
    NotHashed,
    /// Later members of a bucket are seen.
    LaterMembersSeen,
    /// Buckets and what else is remembered stay where they were when rows are reordered.
    StateNotReordered,
    /// What decides the bucket has no gradient, and with it neither have the scores.
    ScoresHaveNoGradient,
    /// The fused engine leaves one round out.
    FusedLosesRounds,
}

#[derive(Module, Debug)]
struct BrokenLsh {
    inner: Lsh,
    #[module(skip)]
    fault: LshFault,
    #[module(skip)]
    calls: Arc<AtomicU64>,
}

impl BrokenLsh {
    fn rotated(&self, number: u64) -> Lsh {
        let mut lsh = self.inner.clone();
        let rotations = lsh.rotations.value();
        let key = RandomKey::from_seed(5).numbered(number);
        lsh.rotations = RunningState::new(Init::Normal(1.0).tensor(rotations.dims(), &key, &rotations.device()));
        lsh
    }
}

impl Attention for BrokenLsh {
    type State = LshState;

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let one_round = || self.inner.clone().with_rounds(1, &RandomKey::from_seed(1));
        match self.fault {
            LshFault::RotationsOfEachCall => self.rotated(self.calls.fetch_add(1, Ordering::Relaxed)).forward(input, probe),
            LshFault::RoundsLost => one_round().forward(input, probe),
            LshFault::FusedLosesRounds if input.engine == Engine::Fused => one_round().forward(input, probe),
            LshFault::NotHashed => self.inner.clone().with_full_attention_below(usize::MAX).forward(input, probe),
            LshFault::LaterMembersSeen => self.inner.forward(input.visibility(Visibility::all()), probe),
            LshFault::ScoresHaveNoGradient => {
                let mut lsh = self.inner.clone();
                lsh.query_key.weight = lsh.query_key.weight.map(|weight| weight.detach() * 1.0);
                lsh.forward(input, probe)
            }
            _ => self.inner.forward(input, probe),
        }
    }

    fn state(&self, start: &DecodingStart) -> LshState {
        self.inner.state(start)
    }

    fn step(&self, query: Tensor<3>, state: &mut LshState, probe: &mut Probe) -> AttentionOutput {
        match self.fault {
            LshFault::RotationsOfSteps => self.rotated(0).step(query, state, probe),
            _ => self.inner.step(query, state, probe),
        }
    }

    fn select(&self, state: &mut LshState, rows: &[usize]) {
        let kept: Vec<usize> = (0..rows.len()).collect();
        self.inner.select(state, if self.fault == LshFault::StateNotReordered { &kept } else { rows });
    }
}

fn lsh(fault: LshFault) -> (Subject<BrokenLsh>, AnyMechanism) {
    let config = AnyMechanism::from(chunked_lsh());
    let built = config.clone();
    let build = move |spec: &LayerSpec, key: &RandomKey, device: &Device| {
        // What is to see too much must not be kept from it where it stands.
        let role = if fault == LshFault::LaterMembersSeen { Role::Encoder } else { spec.role };
        let built = built.init(&spec.with_role(role), key, device);
        let inner = built.get::<Lsh>().expect("this is LSH attention").clone();
        BrokenLsh { inner, fault, calls: Arc::default() }
    };
    (Subject::new(spec(Role::Decoder, 2), build, &flex().device), config)
}

fn lsh_faults() -> [(LshFault, Check); 8] {
    let property = Check::Property;
    [
        (LshFault::RotationsOfEachCall, property(Property::Determinism)),
        (LshFault::RotationsOfSteps, property(Property::Steps)),
        (LshFault::RoundsLost, Check::Formula),
        (LshFault::NotHashed, Check::Formula),
        (LshFault::LaterMembersSeen, property(Property::Causality)),
        (LshFault::StateNotReordered, property(Property::Selection)),
        (LshFault::ScoresHaveNoGradient, property(Property::Gradients)),
        (LshFault::FusedLosesRounds, property(Property::Engines)),
    ]
}

#[test]
fn every_fault_of_lsh_attention_is_caught_by_its_property() {
    for (fault, check) in lsh_faults() {
        let (subject, config) = lsh(fault);
        assert!(check.run(&subject, &config).is_err(), "{check:?} did not notice {fault:?}");
    }
}

#[test]
fn lsh_attention_without_fault_passes_the_same_checks() {
    for (_, check) in lsh_faults() {
        let (subject, config) = lsh(LshFault::Nothing);
        check.run(&subject, &config).unwrap_or_else(|why| panic!("{check:?}: {why}"));
    }
}
