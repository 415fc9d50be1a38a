//! A mechanism that is a recurrence fulfils the contract, and all executions of a recurrence agree with one in double precision.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::conformance::{Property, Subject};
use heedful_attention::contract::init;
use heedful_attention::engine::heads::{merge_heads, split_heads};
use heedful_attention::engine::linear::linear;
use heedful_attention::engine::recurrence::{Recurrence, RecurrentOutput, RecurrentState};
use heedful_attention::prelude::*;

use crate::array::{Array, same};
use crate::backends::{backends, flex};

/// Linear attention with positive features whose past fades by the same factor at each position of a head.
#[derive(Module, Debug)]
struct Fading {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: usize,
    #[module(skip)]
    limit: Visibility,
    /// Whether padding writes to the state.
    writes_padding: bool,
}

impl Fading {
    fn recurrence(&self, x: Tensor<3>) -> Recurrence {
        let heads = |map| split_heads(linear(x.clone(), map), self.heads);
        let log_decay = (1..=self.heads).map(|head| -0.3 * head as f32).collect();
        let log_decay = Tensor::from_data(TensorData::new(log_decay, [1, self.heads, 1, 1]), (&x.device(), x.dtype()));
        Recurrence {
            queries: relu(heads(&self.query)),
            keys: relu(heads(&self.key)),
            values: heads(&self.value),
            log_decay: Some(log_decay),
            strengths: None,
            normalised: false,
        }
    }

    fn output(&self, context: Tensor<4>) -> AttentionOutput {
        AttentionOutput::new(linear(merge_heads(context), &self.output))
    }

    fn of_real(&self, recurrence: Recurrence, real: &[bool]) -> Recurrence {
        if self.writes_padding { recurrence } else { recurrence.of_real(real) }
    }
}

impl Attention for Fading {
    type State = RecurrentState;

    fn abilities(&self) -> Abilities {
        Abilities { weights: true, ..Abilities::new(Causality::ByConstruction) }
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, engine, .. } = input;
        let (visibility, length) = (visibility.within(&self.limit), query.dims()[1]);
        let recurrence = self.recurrence(query.clone());
        let real = visibility.real_positions(length, self.heads);
        let dense = |probe: &mut Probe| {
            let mask = visibility.mask(Span::whole(length, length), self.heads, query.dtype(), &query.device());
            // Decay stands still at padding in every execution.
            let recurrence = match &real {
                Some(real) => self.of_real(recurrence.clone(), real),
                None => recurrence.clone(),
            };
            recurrence.weigh(mask, probe)
        };
        let context = match &real {
            Some(real) if engine != Engine::Reference => {
                if probe.is_listening() {
                    dense(probe);
                }
                self.of_real(recurrence.clone(), real).execute(None).context
            }
            _ => dense(probe),
        };
        self.output(context)
    }

    fn state(&self, start: &DecodingStart) -> RecurrentState {
        RecurrentState::new(start)
    }

    fn step(&self, query: Tensor<3>, state: &mut RecurrentState, _: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, .. } = state.advance(query);
        let (start, length) = (positions.start, query.dims()[1]);
        let real = visibility.real_positions_of_step(start..start + length, self.heads).expect("steps see what came before them");
        let recurrence = self.of_real(self.recurrence(query), &real);
        self.output(state.recur(recurrence))
    }

    fn select(&self, state: &mut RecurrentState, rows: &[usize]) {
        state.select(rows);
    }
}

fn subject(device: &Device, writes_padding: bool) -> Subject<Fading> {
    let build = move |place: &LayerSpec, key: &RandomKey, device: &Device| {
        let linear = |name| init::linear(place.d_model, place.d_model, false, &key.named(name), device);
        Fading {
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            output: linear("output"),
            heads: place.heads,
            limit: place.limit(),
            writes_padding,
        }
    };
    Subject::new(LayerSpec::new(Role::Decoder, 6, 2).with_max_length(8), build, device).unnormalised()
}

#[test]
fn a_recurrence_fulfils_the_contract() {
    for backend in backends() {
        let subject = subject(&backend.device, false).unmoved_within(backend.unmoved()).rounding(backend.rounding);
        subject.check().unwrap_or_else(|report| panic!("{}: {report}", backend.name));
    }
}

#[test]
fn a_state_that_padding_writes_to_is_noticed() {
    assert!(Property::LeftPadding.check(&subject(&flex().device, true)).is_err());
}

/// The recurrence of one head in plain double precision, and its gradients by the chain rule, position by position.
struct Plain<'a> {
    /// `[N, R]`.
    queries: &'a [f64],
    keys: &'a [f64],
    /// `[N, D]`.
    values: &'a [f64],
    /// `[N, R]`.
    log_decay: &'a [f64],
    /// `[N]`, where the delta rule writes.
    strengths: Option<&'a [f64]>,
    /// `[R, D]`.
    state: &'a [f64],
}

/// Gradients of queries, keys, values, decays, strengths and the initial state.
type Slopes = [Vec<f64>; 6];

const WIDTH: usize = 4;
const VALUE: usize = 5;

/// All places of a state.
fn places() -> impl Iterator<Item = (usize, usize)> {
    (0..WIDTH).flat_map(|r| (0..VALUE).map(move |d| (r, d)))
}

impl Plain<'_> {
    fn length(&self) -> usize {
        self.queries.len() / WIDTH
    }

    fn decayed(&self, t: usize, state: &[f64]) -> Vec<f64> {
        places().map(|(r, d)| state[r * VALUE + d] * self.log_decay[t * WIDTH + r].exp()).collect()
    }

    /// What the key reads of the decayed state, `[D]`.
    fn held(&self, t: usize, decayed: &[f64]) -> Vec<f64> {
        (0..VALUE).map(|d| (0..WIDTH).map(|r| self.keys[t * WIDTH + r] * decayed[r * VALUE + d]).sum()).collect()
    }

    /// What is written with the key, `[D]`.
    fn written(&self, t: usize, decayed: &[f64]) -> Vec<f64> {
        let (value, held) = (&self.values[t * VALUE..][..VALUE], self.held(t, decayed));
        match self.strengths {
            Some(strengths) => value.iter().zip(held).map(|(value, held)| strengths[t] * (value - held)).collect(),
            None => value.to_vec(),
        }
    }

    /// States after each position, that before the first in front.
    fn states(&self) -> Vec<Vec<f64>> {
        let mut states = vec![self.state.to_vec()];
        for t in 0..self.length() {
            let decayed = self.decayed(t, &states[t]);
            let written = self.written(t, &decayed);
            states.push(places().map(|(r, d)| decayed[r * VALUE + d] + self.keys[t * WIDTH + r] * written[d]).collect());
        }
        states
    }

    /// Contexts `[N, D]` and the last state.
    fn outputs(&self) -> (Vec<f64>, Vec<f64>) {
        let mut states = self.states();
        let read = |t: usize, d: usize| (0..WIDTH).map(|r| self.queries[t * WIDTH + r] * states[t + 1][r * VALUE + d]).sum::<f64>();
        let contexts = (0..self.length()).flat_map(|t| (0..VALUE).map(move |d| (t, d))).map(|(t, d)| read(t, d)).collect();
        (contexts, states.pop().unwrap())
    }

    /// Gradients for cotangents of contexts and of the last state.
    fn slopes(&self, of_contexts: &[f64], of_last: &[f64]) -> Slopes {
        let states = self.states();
        let zeros = |x: &[f64]| vec![0.0; x.len()];
        let [mut dq, mut dk, mut dv, mut dg] = [self.queries, self.keys, self.values, self.log_decay].map(zeros);
        let mut db = vec![0.0; self.length()];
        let mut ds = of_last.to_vec();
        for t in (0..self.length()).rev() {
            let decayed = self.decayed(t, &states[t]);
            let (held, written) = (self.held(t, &decayed), self.written(t, &decayed));
            let mut of_written = [0.0; VALUE];
            for (r, d) in places() {
                let (at, row, column) = (r * VALUE + d, t * WIDTH + r, t * VALUE + d);
                dq[row] += states[t + 1][at] * of_contexts[column];
                ds[at] += self.queries[row] * of_contexts[column];
                dk[row] += ds[at] * written[d];
                of_written[d] += ds[at] * self.keys[row];
            }
            for d in 0..VALUE {
                let strength = self.strengths.map_or(1.0, |strengths| strengths[t]);
                dv[t * VALUE + d] += strength * of_written[d];
                db[t] += of_written[d] * (self.values[t * VALUE + d] - held[d]);
            }
            for (r, d) in places() {
                let (at, row) = (r * VALUE + d, t * WIDTH + r);
                if let Some(strengths) = self.strengths {
                    dk[row] -= strengths[t] * of_written[d] * decayed[at];
                    ds[at] -= strengths[t] * of_written[d] * self.keys[row];
                }
                dg[row] += ds[at] * decayed[at];
                ds[at] *= self.log_decay[row].exp();
            }
        }
        [dq, dk, dv, dg, db, ds]
    }
}

/// What the executions are given.
struct Numbers {
    /// Rows, heads, positions.
    sizes: [usize; 3],
    /// Logarithms of decays `[B, H, N|1, R|1]`, or none.
    decay: Option<Array>,
    /// `[B, H, N, 1]`, or none.
    strengths: Option<Array>,
    /// Queries, keys, values, initial state.
    parts: [Array; 4],
    /// Of contexts and of the last state.
    cotangents: [Array; 2],
}

/// Which decays and which rule.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Whether positions and channels decay apart, and how strongly.
    decay: Option<(bool, bool, f64)>,
    /// Whether the delta rule writes.
    delta: bool,
}

/// The strongest decays let the state underflow within a few positions.
fn kinds() -> impl Iterator<Item = Kind> {
    let decays = [
        None,
        Some((false, false, 0.1)),
        Some((true, false, 0.1)),
        Some((true, true, 0.1)),
        Some((false, true, 0.1)),
        Some((true, false, 0.0)),
        Some((true, true, 0.0)),
        Some((true, false, 30.0)),
        Some((true, true, 30.0)),
    ];
    decays.into_iter().flat_map(|decay| [false, true].map(|delta| Kind { decay, delta }))
}

impl Numbers {
    fn new(length: usize, kind: Kind) -> Self {
        let (batch, heads) = (2, 3);
        let of = |name: &str, shape: [usize; 2]| Array::random(name, &[batch, heads, shape[0], shape[1]]);
        let decay = kind.decay.map(|(each, channels, strength)| {
            let numbers = of("decay", [if each { length } else { 1 }, if channels { WIDTH } else { 1 }]);
            Array { values: numbers.values.iter().map(|x| -strength * x.abs()).collect(), ..numbers }
        });
        let strengths = kind.delta.then(|| {
            let numbers = of("strengths", [length, 1]);
            Array { values: numbers.values.iter().map(|x| x.abs()).collect(), ..numbers }
        });
        let mut keys = of("keys", [length, WIDTH]);
        if kind.delta {
            // Keys that are longer make the state grow without bound.
            keys.values.chunks_mut(WIDTH).for_each(|key| {
                let norm = key.iter().map(|x| x * x).sum::<f64>().sqrt();
                key.iter_mut().for_each(|x| *x = f64::from((*x / norm) as f32));
            });
        }
        let parts = [of("queries", [length, WIDTH]), keys, of("values", [length, VALUE]), of("state", [WIDTH, VALUE])];
        let cotangents = [of("cotangent", [length, VALUE]), of("of the state", [WIDTH, VALUE])];
        Self { sizes: [batch, heads, length], decay, strengths, parts, cotangents }
    }

    /// Contexts, last states and gradients in double precision: of queries, keys, values, initial state, strengths and decays.
    fn expected(&self) -> Vec<Vec<f64>> {
        let [batch, heads, length] = self.sizes;
        let mut all = vec![Vec::new(); 7];
        let mut of_decay = self.decay.as_ref().map(|decay| Array { values: vec![0.0; decay.values.len()], ..decay.clone() });
        for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
            let place = |decay: &Array, t: usize, r: usize| [b, h, t % decay.shape[2], r % decay.shape[3]];
            let log_decay: Vec<f64> = (0..length * WIDTH)
                .map(|flat| self.decay.as_ref().map_or(0.0, |decay| decay.at(&place(decay, flat / WIDTH, flat % WIDTH))))
                .collect();
            let [queries, keys, values, state] = self.parts.each_ref().map(|part| part.row(&[b, h]));
            let strengths = self.strengths.as_ref().map(|strengths| strengths.row(&[b, h]));
            let plain = Plain { queries, keys, values, log_decay: &log_decay, strengths, state };
            let (contexts, last) = plain.outputs();
            let [dq, dk, dv, dg, db, ds] = plain.slopes(self.cotangents[0].row(&[b, h]), self.cotangents[1].row(&[b, h]));
            for (flat, slope) in dg.into_iter().enumerate() {
                if let Some(of_decay) = &mut of_decay {
                    let [b, h, t, r] = place(of_decay, flat / WIDTH, flat % WIDTH);
                    of_decay.row_mut(&[b, h, t])[r] += slope;
                }
            }
            all.iter_mut().zip([contexts, last, dq, dk, dv, ds, db]).for_each(|(all, own)| all.extend(own));
        }
        if self.strengths.is_none() {
            all.pop();
        }
        all.extend(of_decay.map(|decay| decay.values));
        all
    }

    /// The same of an execution.
    fn found(&self, execute: &dyn Fn(Recurrence, Tensor<4>) -> RecurrentOutput) -> Vec<Vec<f64>> {
        let device = flex().device.autodiff();
        let leaf = |array: &Array| array.tensor::<4>(&device).require_grad();
        let [queries, keys, values, state] = self.parts.each_ref().map(leaf);
        let (strengths, log_decay) = (self.strengths.as_ref().map(leaf), self.decay.as_ref().map(leaf));
        let inputs = [queries.clone(), keys.clone(), values.clone(), state.clone()].into_iter();
        let inputs = inputs.chain(strengths.clone()).chain(log_decay.clone());
        let output = execute(Recurrence { queries, keys, values, log_decay, strengths, normalised: false }, state);
        let [of_contexts, of_last] = self.cotangents.each_ref().map(|cotangent| cotangent.tensor::<4>(&device));
        let gradients = ((output.context.clone() * of_contexts).sum() + (output.state.clone() * of_last).sum()).backward();
        let gradients = inputs.map(|input| Array::read(input.grad(&gradients).unwrap()));
        [Array::read(output.context), Array::read(output.state)].into_iter().chain(gradients).map(|array| array.values).collect()
    }

    fn agree(&self, name: &str, execute: &dyn Fn(Recurrence, Tensor<4>) -> RecurrentOutput) {
        let (found, expected) = (self.found(execute), self.expected());
        assert_eq!(found.len(), expected.len(), "{name}");
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let part =
                ["contexts", "last state", "queries", "keys", "values", "initial state"].get(index).unwrap_or(&"strengths or decays");
            let largest = expected.iter().fold(1.0f64, |largest, number| largest.max(number.abs()));
            same(&format!("{name}: {part}"), found, expected, 1e-5 * largest).unwrap();
        }
    }
}

#[test]
fn positions_and_chunks_agree_with_double_precision_in_outputs_and_gradients() {
    for kind in kinds() {
        for length in [1, 2, 7, 16] {
            let numbers = Numbers::new(length, kind);
            numbers.agree(&format!("{kind:?}, length {length}"), &|recurrence, state| recurrence.recur(Some(state)));
            for chunk in [1, 3, 16, 64] {
                let name = format!("{kind:?}, length {length}, chunks of {chunk}");
                numbers.agree(&name, &|recurrence, state| recurrence.in_chunks(Some(state), chunk));
            }
        }
    }
}

#[test]
fn long_sequences_are_executed_in_many_chunks() {
    // More chunks than have their states computed at once.
    for kind in kinds() {
        Numbers::new(75, kind).agree(&format!("{kind:?}"), &|recurrence, state| recurrence.in_chunks(Some(state), 2));
        Numbers::new(150, kind).agree(&format!("{kind:?}"), &|recurrence, state| recurrence.execute(Some(state)));
    }
}

#[test]
fn executions_agree_with_double_precision_around_the_borders_of_chunks() {
    for kind in kinds() {
        for length in [1, 2, 63, 64, 65, 199] {
            Numbers::new(length, kind).agree(&format!("{kind:?}, length {length}"), &|recurrence, state| recurrence.execute(Some(state)));
        }
    }
}

#[test]
fn decays_that_leave_nothing_do_not_blur_those_beside_them() {
    for (channels, delta) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut numbers = Numbers::new(150, Kind { decay: Some((true, channels, 0.01)), delta });
        for strongest in [-200.0, -1e7, f64::NEG_INFINITY] {
            let decay = numbers.decay.as_mut().unwrap();
            decay.values.iter_mut().step_by(7).for_each(|number| *number = strongest);
            numbers.agree(&format!("{strongest}, {channels}, {delta}"), &|recurrence, state| recurrence.execute(Some(state)));
        }
    }
}

#[test]
fn positions_that_are_not_real_leave_nothing_in_outputs_and_gradients() {
    for kind in kinds() {
        for before in [1, 5, 65] {
            Numbers::new(70, kind).agree(&format!("{kind:?}, {before} positions in front"), &|recurrence, state| {
                let length = recurrence.keys.dims()[2];
                let led = |x: Tensor<4>| {
                    let [batch, heads, positions, width] = x.dims();
                    // A number for all positions has none of its own in front.
                    let count = if positions == length { before } else { 0 };
                    if count == 0 { x } else { Tensor::cat(vec![Tensor::ones([batch, heads, count, width], &x.device()) * -0.7, x], 2) }
                };
                let Recurrence { queries, keys, values, log_decay, strengths, normalised } = recurrence;
                let [queries, keys, values] = [queries, keys, values].map(led);
                let all = Recurrence { queries, keys, values, log_decay: log_decay.map(led), strengths: strengths.map(led), normalised };
                let real: Vec<bool> = (0..before + length).map(|at| at >= before).collect();
                let output = all.of_real(&real).execute(Some(state));
                RecurrentOutput { context: output.context.narrow(2, before, length), ..output }
            });
        }
    }
}

/// `count` positions from `start` on.
fn narrowed(recurrence: &Recurrence, start: usize, count: usize) -> Recurrence {
    let narrow = |x: Tensor<4>| if x.dims()[2] == 1 { x } else { x.narrow(2, start, count) };
    let Recurrence { queries, keys, values, log_decay, strengths, normalised } = recurrence.clone();
    let [queries, keys, values] = [queries, keys, values].map(narrow);
    Recurrence { queries, keys, values, log_decay: log_decay.map(narrow), strengths: strengths.map(narrow), normalised }
}

#[test]
fn segments_that_carry_the_state_give_what_the_whole_gives() {
    for kind in kinds() {
        for cut in [1, 4, 6] {
            Numbers::new(7, kind).agree(&format!("{kind:?}, cut at {cut}"), &|recurrence, state| {
                let first = narrowed(&recurrence, 0, cut).in_chunks(Some(state), 4);
                let second = narrowed(&recurrence, cut, 7 - cut).execute(Some(first.state));
                RecurrentOutput { context: Tensor::cat(vec![first.context, second.context], 2), state: second.state }
            });
        }
    }
}

#[test]
fn all_pairs_agree_with_chunks_in_outputs_and_gradients() {
    for kind in kinds() {
        let mut numbers = Numbers::new(7, kind);
        // Pairs begin with nothing, and have no state.
        for number in numbers.parts[3].values.iter_mut().chain(&mut numbers.cotangents[1].values) {
            *number = 0.0;
        }
        let chunked = numbers.found(&|recurrence, state| recurrence.in_chunks(Some(state), 3));
        let weighed =
            numbers.found(&|recurrence, state| RecurrentOutput { context: recurrence.weigh(None, &mut Probe::off()), state: state * 1.0 });
        for (index, (weighed, chunked)) in weighed.iter().zip(&chunked).enumerate() {
            // The last state and the gradient of the first are not theirs.
            if ![1, 5].contains(&index) {
                same(&format!("{kind:?}: {index}"), weighed, chunked, 1e-5).unwrap();
            }
        }
    }
}

#[test]
fn normalised_contexts_are_divided_by_the_sum_of_their_weights() {
    for kind in kinds().filter(|kind| !kind.delta) {
        let mut numbers = Numbers::new(9, kind);
        // The sum of weights is what is read of values that are 1.
        numbers.parts[2].values.iter_mut().skip(VALUE - 1).step_by(VALUE).for_each(|value| *value = 1.0);
        numbers.parts[3].values.iter_mut().for_each(|state| *state = 0.0);
        let parts = numbers.parts.each_mut();
        parts.into_iter().take(2).for_each(|part| part.values.iter_mut().for_each(|x| *x = x.abs()));
        let divided = |row: &[f64]| row[..VALUE - 1].iter().map(|x| x / row[VALUE - 1]).collect::<Vec<_>>();
        let expected: Vec<f64> = numbers.expected()[0].chunks(VALUE).flat_map(divided).collect();
        let executions: [(&str, &dyn Fn(Recurrence) -> Tensor<4>); 4] = [
            ("by position", &|recurrence| recurrence.recur(None).context),
            ("in chunks", &|recurrence| recurrence.in_chunks(None, 4).context),
            ("as it is fast", &|recurrence| recurrence.execute(None).context),
            ("by pairs", &|recurrence| recurrence.weigh(None, &mut Probe::off())),
        ];
        for (name, execute) in executions {
            let run = |recurrence: Recurrence, state: Tensor<4>| {
                let values = recurrence.values.narrow(3, 0, VALUE - 1);
                let context = execute(Recurrence { values, normalised: true, ..recurrence });
                // The comparison asks for a column more.
                let one = Tensor::ones([2, 3, 9, 1], &context.device());
                RecurrentOutput { context: Tensor::cat(vec![context, one], 3), state: state * 1.0 }
            };
            let found: Vec<f64> = numbers.found(&run)[0].chunks(VALUE).flat_map(|row| row[..VALUE - 1].to_vec()).collect();
            same(&format!("{kind:?}, {name}"), &found, &expected, 1e-5).unwrap();
        }
    }
}

#[test]
fn the_delta_rule_is_exact_where_keys_repeat() {
    // One key alone, and two in turn, over several chunks: what series of powers get wrong by orders of magnitude.
    for period in [1, 2] {
        let mut numbers = Numbers::new(150, Kind { decay: None, delta: true });
        let keys = numbers.parts[1].clone();
        for (b, h, t) in (0..2).flat_map(|b| (0..3).flat_map(move |h| (0..150).map(move |t| (b, h, t)))) {
            numbers.parts[1].row_mut(&[b, h, t]).copy_from_slice(keys.row(&[b, h, t % period]));
        }
        for strength in [1.0, 0.7] {
            numbers.strengths.iter_mut().for_each(|strengths| strengths.values.iter_mut().for_each(|number| *number = strength));
            numbers.agree(&format!("{period} keys, strength {strength}"), &|recurrence, state| recurrence.execute(Some(state)));
        }
    }
}
