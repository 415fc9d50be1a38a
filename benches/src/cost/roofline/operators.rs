//! Operators of the engine alone, without the linear maps around them.

use std::hint::black_box;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use heedful_attention::description::multiplications::multiplications;
use heedful_attention::engine::fused::{GROUPS, Part, attend};
use heedful_attention::engine::recurrence::Recurrence;
use heedful_attention::engine::{AttentionProgram, Weighting};
use heedful_attention::prelude::*;

use super::kernels::{Candidate, Kernel, Numbers};
use super::model::Limit;
use crate::cost::point::Pass;
use crate::workload::{Sizes, wait};

/// Threads among which the backward pass of the fused operator can be divided: at least [`GROUPS`] groups of keys of all heads, of which the first of each head
/// is seen by most queries.
pub(super) fn threads_of_groups(planes: usize) -> f64 {
    let groups = GROUPS.div_ceil(planes) as f64;
    planes as f64 / (1.0 - (1.0 - 1.0 / groups).powi(2))
}

/// An operator of tensors.
struct Operator<const K: usize> {
    name: String,
    operands: [Tensor<4>; K],
    /// Of a forward pass.
    multiplications: f64,
    /// How many times as many a backward pass adds.
    backward: f64,
    /// Of both passes.
    limits: [Vec<Limit>; 2],
}

impl<const K: usize> Operator<K> {
    /// Forward, and forward and backward from the sum of the output to all operands.
    fn candidates(self, apply: impl Fn([Tensor<4>; K]) -> Tensor<4> + Clone + Send + 'static) -> [Candidate; 2] {
        let Self { name, operands, multiplications, backward, limits: [limits, training_limits] } = self;
        let (plain, applied) = (operands.clone().map(Tensor::inner), apply.clone());
        let count = |x: &Tensor<4>| x.dims().iter().product::<usize>();
        let numbers = Numbers { operands: operands.iter().map(count).sum(), results: count(&apply(plain.clone())) };
        let kernel = |pass: Pass, multiplications, limits| Kernel {
            name: name.clone(),
            pass,
            multiplications,
            bytes: numbers.bytes(pass),
            limits,
            ..Kernel::default()
        };
        let forward = Candidate::new(kernel(Pass::Forward, multiplications, limits), move || {
            let output = applied(plain.clone());
            wait(&output);
            black_box(output);
        });
        let training = kernel(Pass::Training, multiplications * (1.0 + backward), training_limits);
        let training = Candidate::new(training, move || {
            let operands = operands.clone().map(|x| x.detach().require_grad());
            let gradients = apply(operands.clone()).sum().backward();
            for x in &operands {
                black_box(x.grad(&gradients).expect("all operands require a gradient"));
            }
            wait(&operands[0]);
        });
        [forward, training]
    }
}

/// Random numbers on a device with autodiff.
fn random(name: &str, shape: [usize; 4], device: &Device) -> Tensor<4> {
    Init::Normal(1.0).tensor(shape, &RandomKey::from_seed(1).named(name), &device.clone().autodiff())
}

/// Multiplications of the pairs of a causal mechanism, forward.
fn pairs_of(mechanism: &str, sizes: Sizes, device: &Device) -> Result<f64, ConfigError> {
    let (mechanism, place): (AnyMechanism, _) = (mechanism.parse()?, sizes.spec(Role::Decoder));
    mechanism.validate(&place)?;
    Ok(multiplications(&mechanism.init(&place, &RandomKey::from_seed(0), device), &place, 0..sizes.length, sizes.length).pairs)
}

/// The name of something on this many heads.
pub(super) fn named(what: &str, Sizes { length, d_model, heads, .. }: Sizes) -> String {
    format!("{what}, {length} positions, {heads} heads of {}", d_model / heads)
}

/// Causal attention over a whole sequence with logits and values that are made of operands.
fn attention<const K: usize>(
    operator: Operator<K>,
    Sizes { length, heads, .. }: Sizes,
    program: impl Fn([Tensor<4>; K]) -> (LogitTerms, Tensor<4>) + Clone + Send + 'static,
) -> [Candidate; 2] {
    let parts: Arc<[Part]> = Arc::new([Part::in_order(Visibility::causal().tiles(Span::whole(length, length), heads))]);
    let backward = Limit { share: operator.backward / (1.0 + operator.backward), threads: threads_of_groups(heads) };
    Operator { limits: [Vec::new(), vec![backward]], ..operator }.candidates(move |operands| {
        let (terms, values) = program(operands);
        let program = AttentionProgram { weighting: Weighting::softmax(terms), mask: None, soft_span: None, values, dropout: None };
        attend(program, parts.clone())
    })
}

/// Scores and sums of values; backward the scores again, and two products for each of both.
pub(super) fn fused(sizes: Sizes, device: &Device) -> Result<[Candidate; 2], ConfigError> {
    let Sizes { length, d_model, heads, .. } = sizes;
    let operator = Operator {
        name: named("fused operator", sizes),
        operands: ["queries", "keys", "values"].map(|name| random(name, [1, heads, length, d_model / heads], device)),
        multiplications: pairs_of("dot-product", sizes, device)?,
        backward: 5.0 / 2.0,
        limits: Default::default(),
    };
    Ok(attention(operator, sizes, |[queries, keys, values]| (LogitTerms::content(queries, keys), values)))
}

/// Sums of values by weights of a table; backward their gradients and those of the weights.
pub(super) fn random_table(sizes: Sizes, device: &Device) -> Result<[Candidate; 2], ConfigError> {
    let Sizes { length, d_model, heads, .. } = sizes;
    let operator = Operator {
        name: named("random table", sizes),
        operands: [("table", length), ("values", d_model / heads)].map(|(name, width)| random(name, [1, heads, length, width], device)),
        multiplications: pairs_of("synthesizer-random", sizes, device)?,
        backward: 2.0,
        limits: Default::default(),
    };
    Ok(attention(operator, sizes, |[table, values]| (LogitTerms::bias(table), values)))
}

/// Scores by content and by distance, and sums of values; backward both scores again, and two products for each of the three.
pub(super) fn relative(sizes: Sizes, device: &Device) -> Result<[Candidate; 2], ConfigError> {
    let Sizes { length, d_model, heads, .. } = sizes;
    let rows = [("queries", length), ("keys", length), ("of distances", length), ("distances", 2 * length - 1), ("values", length)];
    let operator = Operator {
        name: named("relative", sizes),
        operands: rows.map(|(name, rows)| random(name, [1, heads, rows, d_model / heads], device)),
        multiplications: pairs_of("relative", sizes, device)?,
        backward: 8.0 / 3.0,
        limits: Default::default(),
    };
    Ok(attention(operator, sizes, |[queries, keys, of_distances, distances, values]| {
        let relative = Some(Content { queries: of_distances, keys: distances });
        (LogitTerms { relative, ..LogitTerms::content(queries, keys) }, values)
    }))
}

/// The chunks of a recurrence, whose heads are computed side by side; backward by the rule of [`heedful_attention::description::multiplications`].
fn chunks<const K: usize>(
    mechanism: &str,
    sizes: Sizes,
    operands: [Tensor<4>; K],
    device: &Device,
    recurrence: impl Fn([Tensor<4>; K]) -> Recurrence + Clone + Send + 'static,
) -> Result<[Candidate; 2], ConfigError> {
    let of_heads = || vec![Limit { share: 1.0, threads: sizes.heads as f64 }];
    let operator = Operator {
        name: named(&format!("chunks of {mechanism}"), sizes),
        operands,
        multiplications: pairs_of(mechanism, sizes, device)?,
        backward: 5.0 / 2.0,
        limits: [of_heads(), of_heads()],
    };
    Ok(operator.candidates(move |operands| recurrence(operands).execute(None).context))
}

/// Linear attention, with features that are positive.
pub(super) fn linear_attention(sizes: Sizes, device: &Device) -> Result<[Candidate; 2], ConfigError> {
    let Sizes { length, d_model, heads, .. } = sizes;
    let [queries, keys, values] = ["queries", "keys", "values"].map(|name| random(name, [1, heads, length, d_model / heads], device));
    chunks("linear-attention", sizes, [queries.abs(), keys.abs(), values], device, |[queries, keys, values]| Recurrence {
        queries,
        keys,
        values,
        log_decay: None,
        strengths: None,
        normalised: true,
    })
}

/// Gated DeltaNet, with keys of a length of about 1, decays near 0.9 and strengths near 0.5.
pub(super) fn gated_delta_net(sizes: Sizes, device: &Device) -> Result<[Candidate; 2], ConfigError> {
    let GatedDeltaNetConfig { key_expansion, value_expansion, .. } = GatedDeltaNetConfig::default();
    let Sizes { length, d_model, heads, .. } = sizes;
    let key = (key_expansion * (d_model / heads) as f64).ceil() as usize;
    let of = |name: &str, width: usize| random(name, [1, heads, length, width], device);
    let [queries, keys] = ["queries", "keys"].map(|name| of(name, key) * (key as f64).powf(-0.5));
    let operands = [queries, keys, of("values", key * value_expansion), of("decays", 1) * 0.01 - 0.1, of("strengths", 1) * 0.01 + 0.5];
    chunks("gated-delta-net", sizes, operands, device, |[queries, keys, values, decays, strengths]| Recurrence {
        queries,
        keys,
        values,
        log_decay: Some(decays),
        strengths: Some(strengths),
        normalised: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { batch: 1, length: 40, d_model: 16, heads: 2, kv_heads: None };

    #[test]
    fn operators_are_counted_by_their_formulas() {
        let device = Device::flex();
        // Visible pairs of both heads, 8 wide.
        let pairs = (2 * 40 * 41 / 2 * 8) as f64;
        let counted = |[forward, training]: [Candidate; 2]| [forward, training].map(|candidate| candidate.kernel.multiplications / pairs);
        assert_eq!(counted(fused(SIZES, &device).unwrap()), [2.0, 7.0]);
        assert_eq!(counted(random_table(SIZES, &device).unwrap()), [1.0, 3.0]);
        assert_eq!(counted(relative(SIZES, &device).unwrap()), [3.0, 11.0]);
        let bytes = fused(SIZES, &device).unwrap().map(|candidate| candidate.kernel.bytes);
        assert_eq!(bytes, [4.0, 11.0].map(|tensors| tensors * 4.0 * 40.0 * 16.0));
    }

    #[test]
    fn groups_of_keys_are_as_many_threads_as_their_work_over_the_largest() {
        // Of four groups of a head the first is seen by seven sixteenths of the pairs.
        assert_eq!(threads_of_groups(4), 4.0 * 16.0 / 7.0);
        assert_eq!([16, 32].map(threads_of_groups), [16.0, 32.0]);
    }
}
