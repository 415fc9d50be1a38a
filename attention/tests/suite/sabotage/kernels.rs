//! Kernels that are wrong in one way each, on both engines, and the property that has to notice.
//!
//! [`Lowered`] writes softmax attention down as a program, as the crate does, and executes it as a wrong kernel would: with another tile map, another
//! dropout key, the gradient of another program, or what a term more or less makes. The kernels themselves know nothing of it.

use std::sync::{Arc, Mutex};

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::conformance::Property;
use heedful_attention::contract::visibility::TILE;
use heedful_attention::engine::fused::{self, Part};
use heedful_attention::engine::heads::{merge_heads, split_heads};
use heedful_attention::engine::linear::linear;
use heedful_attention::engine::{AttentionProgram, Dropout, Weighting, reference};
use heedful_attention::prelude::*;
use heedful_attention::softmax_attention::kv_cache::KeyValueState;

use crate::backends::flex;
use crate::subject::Subject;
use crate::variants::{parse, spec};

/// What a kernel does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// The second tile of queries does not meet the first tile of keys.
    TileSkipped,
    /// The same, in the backward pass alone.
    TileSkippedBackward,
    /// In the second tile of queries each sees one key more.
    MaskOffByOneInTile,
    /// The tile map is that of the first call over as many queries and keys.
    StaleTileMap,
    /// All heads have the tile map of the first.
    TileMapOfFirstHead,
    /// All batch rows have the tile map of the first.
    TileMapOfFirstRow,
    /// Queries are masked as if the first stood at the beginning.
    QueryStartIgnored,
    /// The queries of a last tile that is not full have no output.
    LastQueriesLost,
    /// One key beyond the last counts in the sum that weights are divided by.
    KeyBeyondTheLastCounts,
    /// Sums over the first tile of keys are not scaled down when a later tile has the larger logits.
    SumsNotRescaled,
    /// Queries without a key take the mean of all values.
    EmptyRowsTakeTheMean,
    /// The gradient of the queries lacks their scale.
    ScaleLostBackward,
    /// Each head's gradient of the keys is added to that of the next head too.
    KeyGradientToNextHead,
    /// Each batch row's gradient of the values is added to that of the other rows too.
    ValueGradientToOtherRows,
    /// The gradient of the logits takes the sum that weights are divided by for a constant.
    NormaliserConstantBackward,
    /// Weights are recomputed from a wrong log-sum-exp.
    LogSumExpOffBackward,
    /// What the call before dropped is dropped.
    DropoutOfAnotherCall,
    /// The backward pass drops other weights than the forward pass did.
    DropoutOfAnotherCallBackward,
    /// The backward pass drops nothing.
    DropoutForgottenBackward,
}

/// Each fault, and the property that has to notice it on either engine.
const FAULTS: [(Fault, Property); 23] = [
    (Fault::TileSkipped, Property::Engines),
    (Fault::TileSkippedBackward, Property::Engines),
    (Fault::MaskOffByOneInTile, Property::Causality),
    (Fault::MaskOffByOneInTile, Property::Engines),
    (Fault::StaleTileMap, Property::Engines),
    (Fault::TileMapOfFirstHead, Property::Engines),
    (Fault::TileMapOfFirstRow, Property::Padding),
    (Fault::TileMapOfFirstRow, Property::LeftPadding),
    (Fault::QueryStartIgnored, Property::Steps),
    (Fault::LastQueriesLost, Property::Engines),
    (Fault::KeyBeyondTheLastCounts, Property::Engines),
    (Fault::SumsNotRescaled, Property::Engines),
    (Fault::EmptyRowsTakeTheMean, Property::EmptyRows),
    (Fault::ScaleLostBackward, Property::Gradients),
    (Fault::ScaleLostBackward, Property::Engines),
    (Fault::KeyGradientToNextHead, Property::Gradients),
    (Fault::ValueGradientToOtherRows, Property::Gradients),
    (Fault::NormaliserConstantBackward, Property::Gradients),
    (Fault::LogSumExpOffBackward, Property::Gradients),
    (Fault::LogSumExpOffBackward, Property::Engines),
    (Fault::DropoutOfAnotherCall, Property::Dropout),
    (Fault::DropoutOfAnotherCallBackward, Property::Gradients),
    (Fault::DropoutForgottenBackward, Property::Gradients),
];

/// One program with what hides its keys.
#[derive(Clone)]
struct Call {
    program: AttentionProgram,
    visibility: Visibility,
    span: Span,
    engine: Engine,
}

impl Call {
    fn heads(&self) -> usize {
        self.program.values.dims()[1]
    }

    /// The call as it should be executed.
    fn run(self, probe: &mut Probe) -> Tensor<4> {
        let Self { ref visibility, span, .. } = self;
        let heads = self.heads();
        if self.engine == Engine::Fused {
            return fused::attend(self.program, Arc::new([Part::in_order(visibility.tiles(span, heads))]));
        }
        let values = &self.program.values;
        let mask = visibility.mask(span, heads, values.dtype(), &values.device());
        reference::attend(AttentionProgram { mask, ..self.program }, probe)
    }

    fn context(self) -> Tensor<4> {
        self.run(&mut Probe::off())
    }

    fn seeing(self, see: impl FnOnce(Visibility) -> Visibility) -> Self {
        Self { visibility: see(self.visibility), ..self }
    }

    fn terms(&self) -> LogitTerms {
        let Weighting::Scores(terms, _) = &self.program.weighting else { unreachable!("logits make a softmax") };
        terms.clone()
    }

    fn content(&self) -> Content {
        self.terms().content.expect("the attention scores keys by a product")
    }

    fn with_terms(mut self, terms: LogitTerms) -> Self {
        self.program.weighting = Weighting::softmax(terms);
        self
    }

    fn with_dropout(mut self, dropout: Option<Dropout>) -> Self {
        self.program.dropout = dropout;
        self
    }

    /// All logits, `[B, H, Q, K]`; large negative numbers where hidden.
    fn logits(&self) -> Tensor<4> {
        let values = &self.program.values;
        let logits = reference::logits(self.terms(), self.span.keys);
        match self.visibility.mask(self.span, self.heads(), values.dtype(), &values.device()) {
            Some(mask) => logits + mask.bias,
            None => logits,
        }
    }
}

/// The values of one tensor with the gradient of another.
fn with_gradient_of(values: Tensor<4>, other: Tensor<4>) -> Tensor<4> {
    values.detach() + (other.clone() - other.detach())
}

/// The same values, and the gradient of `leak` besides.
fn leaking(x: Tensor<4>, leak: Tensor<4>) -> Tensor<4> {
    x + (leak.clone() - leak.detach())
}

/// What calls leave behind in a faulty kernel.
#[derive(Debug, Default)]
struct Traces {
    tile_maps: Vec<(Span, Visibility)>,
    dropout: Option<RandomKey>,
}

impl Fault {
    fn run(self, call: Call, traces: &Mutex<Traces>, probe: &mut Probe) -> Tensor<4> {
        let (span, seen) = (call.span, call.visibility.clone());
        let skipped = |call: Call| call.seeing(|seen| seen.and(Visibility::relation(|i, j| !(TILE..2 * TILE).contains(&i) || j >= TILE)));
        match self {
            Self::Nothing => call.run(probe),
            Self::TileSkipped => skipped(call).run(probe),
            Self::TileSkippedBackward => with_gradient_of(call.clone().run(probe), skipped(call).context()),
            Self::MaskOffByOneInTile => call.seeing(|seen| seen.or(Visibility::relation(|i, j| i >= TILE && j == i + 1))).run(probe),
            Self::StaleTileMap => {
                let mut traces = traces.lock().expect("no panic happens while traces are locked");
                let known = traces.tile_maps.iter().find(|(known, _)| *known == span).map(|(_, seen)| seen.clone());
                let stale = known.unwrap_or_else(|| {
                    traces.tile_maps.push((span, seen.clone()));
                    seen
                });
                call.seeing(|_| stale).run(probe)
            }
            Self::TileMapOfFirstHead if seen.rows() == 1 => {
                call.seeing(|_| Visibility::relation(move |i, j| seen.is_visible(0, 0, i, j))).run(probe)
            }
            Self::TileMapOfFirstHead => call.run(probe),
            Self::TileMapOfFirstRow => call.seeing(|_| Visibility::pattern(move |h, i, j| seen.is_visible(0, h, i, j))).run(probe),
            Self::QueryStartIgnored => Call { span: Span { query_start: 0, ..span }, ..call }.run(probe),
            Self::LastQueriesLost => {
                let context = call.run(probe);
                let queries = context.dims()[2];
                let full = queries / TILE * TILE;
                if full == 0 || full == queries {
                    return context;
                }
                let lost = context.clone().narrow(2, full, queries - full) * 0.0;
                Tensor::cat(vec![context.narrow(2, 0, full), lost], 2)
            }
            Self::KeyBeyondTheLastCounts => {
                let Content { queries, keys } = call.content();
                let end = span.key_start + span.keys;
                let one_more = |x: Tensor<4>| Tensor::cat(vec![x.clone(), x.narrow(2, 0, 1) * 0.0], 2);
                let terms = LogitTerms::content(queries, one_more(keys));
                let mut call = call.with_terms(terms).seeing(|seen| seen.or(Visibility::relation(move |_, j| j == end)));
                call.span.keys += 1;
                call.program.values = one_more(call.program.values);
                call.context()
            }
            Self::SumsNotRescaled if span.keys > TILE => {
                let logits = call.logits().detach();
                let largest = |logits: Tensor<4>| logits.max_dim(3);
                let [batch, heads, queries, keys] = logits.dims();
                let scale = (largest(logits.clone()) - largest(logits.clone().narrow(3, 0, TILE))).clamp_max(20.0);
                let rest = logits.narrow(3, TILE, keys - TILE) * 0.0;
                let bias = Tensor::cat(vec![scale.expand([batch, heads, queries, TILE]), rest], 3);
                let terms = call.terms().plus(LogitTerms::bias(bias));
                call.with_terms(terms).context()
            }
            Self::SumsNotRescaled => call.run(probe),
            Self::EmptyRowsTakeTheMean => {
                let (heads, values) = (call.heads(), call.program.values.clone());
                let rows = seen.rows();
                let is_empty = |row, h, i| (0..span.keys).all(|j| !seen.is_visible(row, h, span.query_start + i, span.key_start + j));
                let planes = (0..rows).flat_map(|row| (0..heads).map(move |h| (row, h)));
                let empty = planes.flat_map(|(row, h)| (0..span.queries).map(move |i| (row, h, i)));
                let empty = empty.map(|(row, h, i)| if is_empty(row, h, i) { 1.0f32 } else { 0.0 }).collect();
                let empty = Tensor::<4>::from_data(TensorData::new(empty, [rows, heads, span.queries, 1]), &values.device());
                call.run(probe) + empty * values.mean_dim(2)
            }
            Self::ScaleLostBackward => {
                let Content { queries, keys } = call.content();
                let scale = (queries.dims()[3] as f64).sqrt();
                let queries = leaking(queries.clone(), queries * (scale - 1.0));
                call.with_terms(LogitTerms::content(queries, keys)).run(probe)
            }
            Self::KeyGradientToNextHead => {
                let Content { queries, keys } = call.content();
                let keys = leaking(keys.clone(), keys.flip([1]));
                call.with_terms(LogitTerms::content(queries, keys)).run(probe)
            }
            Self::ValueGradientToOtherRows => {
                let mut call = call;
                call.program.values = leaking(call.program.values.clone(), call.program.values.flip([0]));
                call.run(probe)
            }
            Self::NormaliserConstantBackward => {
                let logits = call.logits();
                let top = logits.clone().detach().max_dim(3);
                let exponentials = (logits - top).exp();
                let weights = exponentials.clone() / exponentials.sum_dim(3).detach();
                let wrong = AttentionProgram { weighting: Weighting::Density { weights, renormalise: false }, ..call.program.clone() };
                with_gradient_of(call.run(probe), reference::attend(wrong, &mut Probe::off()))
            }
            Self::LogSumExpOffBackward => {
                let context = call.run(probe);
                with_gradient_of(context.clone(), context * 1.25)
            }
            Self::DropoutOfAnotherCall => {
                let mut traces = traces.lock().expect("no panic happens while traces are locked");
                let own = call.program.dropout;
                let before = own.and_then(|own| traces.dropout.replace(own.key));
                let dropout = own.map(|own| Dropout { key: before.unwrap_or(own.key), ..own });
                call.with_dropout(dropout).run(probe)
            }
            Self::DropoutOfAnotherCallBackward => {
                let other = call.program.dropout.map(|own| Dropout { key: own.key.named("another call"), ..own });
                with_gradient_of(call.clone().run(probe), call.with_dropout(other).context())
            }
            Self::DropoutForgottenBackward => with_gradient_of(call.clone().run(probe), call.with_dropout(None).context()),
        }
    }
}

/// Softmax attention that is executed by one engine, which has a fault; by the other it is executed as it should be.
#[derive(Module, Debug)]
struct Lowered {
    inner: SoftmaxAttention<AnyLogits>,
    heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
    #[module(skip)]
    engine: Engine,
    #[module(skip)]
    fault: Fault,
    #[module(skip)]
    traces: Arc<Mutex<Traces>>,
}

impl Lowered {
    fn new(config: &AnyMechanism, engine: Engine, fault: Fault, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Self {
        let inner = config.init(spec, key, device).as_softmax().expect("it has logits").clone();
        Self { inner, heads: spec.heads, dropout: spec.dropout, limit: spec.limit(), engine, fault, traces: Arc::default() }
    }

    fn attend(
        &self,
        input: AttentionInput,
        keys: Option<Tensor<4>>,
        values: Tensor<4>,
        key_start: usize,
        probe: &mut Probe,
    ) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, random, engine, .. } = input;
        let span = Span { query_start: positions.start, queries: query.dims()[1], key_start, keys: values.dims()[2] };
        let losses = self.inner.logits.losses(&query);
        let program = AttentionProgram {
            soft_span: self.inner.logits.soft_span(&query, span),
            weighting: Weighting::softmax(self.inner.logits.terms(query, keys, span, &positions)),
            mask: None,
            values,
            dropout: random.map(|key| Dropout { probability: self.dropout, key: key.named("weights") }),
        };
        let engine = if engine == Engine::Auto { self.engine } else { engine };
        let call = Call { program, visibility, span, engine };
        if engine == Engine::Fused && probe.is_listening() {
            Call { engine: Engine::Reference, ..call.clone() }.with_dropout(None).run(probe);
        }
        let context = if engine == self.engine { self.fault.run(call, &self.traces, probe) } else { call.run(probe) };
        AttentionOutput { context: linear(merge_heads(context), &self.inner.output), losses }
    }
}

impl Attention for Lowered {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let input = AttentionInput { visibility: input.visibility.within(&self.limit), ..input };
        let memory = input.memory.clone().unwrap_or_else(|| input.query.clone());
        let values = split_heads(linear(memory.clone(), &self.inner.value), self.heads);
        self.attend(input, self.inner.logits.keys(memory, &Positions::default()), values, 0, probe)
    }

    fn state(&self, start: &DecodingStart) -> KeyValueState {
        self.inner.state(start)
    }

    fn step(&self, query: Tensor<3>, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let chunk = state.advance(query);
        if !state.is_fixed() {
            let values = split_heads(linear(chunk.query.clone(), &self.inner.value), self.heads);
            state.push(self.inner.logits.keys(chunk.query.clone(), &chunk.positions), values);
        }
        self.attend(chunk, state.keys(), state.values(), state.start(), probe)
    }

    fn select(&self, state: &mut KeyValueState, rows: &[usize]) {
        self.inner.select(state, rows);
    }
}

/// Dot-product attention over sequences of two tiles, of which the second is not full.
fn subject(engine: Engine, fault: Fault, property: Property) -> Subject<Lowered> {
    // In a decoder no real query sees padding that follows it.
    let role = if property == Property::Padding { Role::Encoder } else { Role::Decoder };
    let spec = spec(role, 2).with_max_length(TILE + 6);
    let config = parse("dot-product");
    let build = move |spec: &LayerSpec, key: &RandomKey, device: &Device| Lowered::new(&config, engine, fault, spec, key, device);
    Subject::new(spec, build, &flex().device)
}

#[test]
fn every_wrong_kernel_is_caught_by_its_property_on_both_engines() {
    for engine in [Engine::Reference, Engine::Fused] {
        for (fault, property) in FAULTS {
            assert!(property.check(&subject(engine, fault, property)).is_err(), "{property:?} did not notice {fault:?} in {engine:?}");
        }
    }
}

#[test]
fn the_kernels_as_they_are_have_these_properties() {
    for engine in [Engine::Reference, Engine::Fused] {
        let mut asked: Vec<Property> = Vec::new();
        for (_, property) in FAULTS {
            if !asked.contains(&property) {
                asked.push(property);
                property
                    .check(&subject(engine, Fault::Nothing, property))
                    .unwrap_or_else(|why| panic!("{property:?} in {engine:?}: {why}"));
            }
        }
    }
}
