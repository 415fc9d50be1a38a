//! A mechanism that is a recurrence fulfils the contract, and both executions of a recurrence agree.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::abilities::{Abilities, Causality};
use heedful_attention::conformance::{Property, Subject};
use heedful_attention::contract::{Attention, AttentionInput, AttentionOutput};
use heedful_attention::engine::Engine;
use heedful_attention::engine::recurrence::{Recurrence, RecurrentState};
use heedful_attention::heads::{merge_heads, split_heads};
use heedful_attention::init;
use heedful_attention::linear::linear;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::probe::Probe;
use heedful_attention::progress::DecodingStart;
use heedful_attention::random::RandomKey;
use heedful_attention::visibility::{Span, Visibility};

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
        Abilities {
            cross_attention: false,
            causality: Causality::ByConstruction,
            steps: true,
            weights: true,
            max_length: None,
            auxiliary_losses: false,
            randomness: false,
        }
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
                self.of_real(recurrence.clone(), real).recur(None).context
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
        let real = visibility.real_positions(start + length, self.heads).expect("steps see what came before them");
        let real: Vec<bool> = real.chunks(start + length).flat_map(|row| &row[start..]).copied().collect();
        let recurrence = self.of_real(self.recurrence(query), &real);
        self.output(state.recur(recurrence))
    }

    fn select(&self, state: &mut RecurrentState, rows: &[usize]) {
        state.select(rows);
    }
}

fn subject(device: &Device, writes_padding: bool) -> Subject<Fading> {
    let build = move |place: &Placement, key: &RandomKey, device: &Device| {
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
    Subject::new(Placement::new(Role::Decoder, 6, 2).with_max_length(8), build, device).unnormalised()
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

/// Numbers that look random, of this shape.
fn numbers(name: &str, shape: [usize; 4]) -> Tensor<4> {
    Array::random(name, &shape).tensor(&flex().device.clone().autodiff())
}

#[test]
fn both_executions_agree_in_outputs_and_all_gradients_whatever_decays() {
    let (batch, heads, length, width, value) = (2, 3, 7, 4, 5);
    for (name, decay) in [("nothing", None), ("heads", Some([1, heads, 1, 1])), ("channels", Some([batch, heads, length, width]))] {
        let leaves = || {
            let wide = [batch, heads, length, width];
            let decay = decay.map(|shape| numbers("decay", shape).abs().neg().require_grad());
            (
                [numbers("queries", wide), numbers("keys", wide), numbers("values", [batch, heads, length, value])]
                    .map(Tensor::require_grad),
                decay,
            )
        };
        let run = |execute: &dyn Fn(Recurrence) -> Tensor<4>| {
            let ([queries, keys, values], log_decay) = leaves();
            let inputs = [Some(queries.clone()), Some(keys.clone()), Some(values.clone()), log_decay.clone()];
            let context = execute(Recurrence { queries, keys, values, log_decay });
            let gradients = (context.clone() * numbers("cotangent", [batch, heads, length, value])).sum().backward();
            let gradients = inputs.into_iter().flatten().map(|input| Array::read(input.grad(&gradients).unwrap())).collect::<Vec<_>>();
            (Array::read(context), gradients)
        };
        let (expected, slopes) = run(&|recurrence| recurrence.weigh(None, &mut Probe::off()));
        let (found, own) = run(&|recurrence| recurrence.recur(None).context);
        let halves = |recurrence: Recurrence| {
            let part = |start: usize, count: usize| {
                let narrow = |x: Tensor<4>| if x.dims()[2] == 1 { x } else { x.narrow(2, start, count) };
                let Recurrence { queries, keys, values, log_decay } = recurrence.clone();
                Recurrence { queries: narrow(queries), keys: narrow(keys), values: narrow(values), log_decay: log_decay.map(narrow) }
            };
            let first = part(0, 3).recur(None);
            Tensor::cat(vec![first.context, part(3, length - 3).recur(Some(first.state)).context], 2)
        };
        let (joined, of_joined) = run(&halves);
        same(name, &found.values, &expected.values, 1e-5).unwrap();
        same(&format!("{name}, in two segments"), &joined.values, &expected.values, 1e-5).unwrap();
        for ((own, joined), expected) in own.iter().zip(&of_joined).zip(&slopes) {
            same(&format!("{name}: gradient"), &own.values, &expected.values, 1e-5).unwrap();
            same(&format!("{name}: gradient through the state"), &joined.values, &expected.values, 1e-5).unwrap();
        }
    }
}
