//! Recurrences over slices of numbers, chunk by chunk, in parallel over batch rows and heads, for backends with tensors in main memory.
//!
//! The formulas are those of [`chunks`](super::chunks) (Yang et al. 2024, section 4.3; Yang et al. 2024b, section 3.2), with tile products instead of tensor
//! operations. Training saves the inputs and the state before each chunk, linear in the length; the backward pass recomputes each chunk. Results do not depend
//! on the number of threads.

mod backward;
mod chunk;
mod cpu_operation;
mod decays;
mod forward;
mod logarithms;
mod products;
mod sizes;
mod solve;
mod step;

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Tensor};

use self::cpu_operation::{ChunkedRecurrence, Step};
use super::program::{Recurrence, RecurrentOutput};
use crate::engine::cpu::{computed, results};
use crate::tensors::main_memory;

impl Recurrence {
    /// Whether this execution supports it: 32-bit floats in main memory.
    pub(super) fn is_on_cpu(&self, state: Option<&Tensor<4>>) -> bool {
        let Self { queries, keys, values, log_decay, strengths, .. } = self;
        let mut all = [queries, keys, values].into_iter().chain(log_decay).chain(strengths).chain(state);
        main_memory::has_kernels(&keys.device()) && all.all(|x| x.dtype() == DType::F32)
    }

    /// Executes a recurrence that satisfies [`is_on_cpu`](Self::is_on_cpu), from a state `[B, H, R, D]`, with a column of sums if normalised, or from an empty
    /// one. Time `n (C (R + D) + R D)` for chunks of `C = 64` positions; memory is linear in the length.
    pub(super) fn on_cpu(self, state: Option<Tensor<4>>) -> RecurrentOutput {
        let ([batch, heads, length, width], value, normalised) = (self.keys.dims(), self.values.dims()[3], self.normalised);
        let rows = computed::<4, _>(ChunkedRecurrence { normalised }, self.operands(state));
        let part = |first: usize, count: usize| rows.clone().narrow(1, first, count).swap_dims(1, 2);
        let (context, state) = (part(0, length), part(length, width));
        if !normalised {
            return RecurrentOutput { context, state };
        }
        let count = rows.dims()[1] - length - width;
        let sums = part(length + width, count).reshape([batch, heads, count * value, 1]).narrow(2, 0, width);
        RecurrentOutput { context, state: Tensor::cat(vec![state, sums], 3) }
    }

    /// The same for one position, on a device without autodiff. An unshared state is overwritten.
    pub(super) fn step_on_cpu(self, state: Option<Tensor<4>>) -> RecurrentOutput {
        let normalised = self.normalised;
        let [context, state, ..] = results(Step { normalised }, self.operands(state));
        let [context, state] = [context, state].map(|result| Tensor::from_dispatch(result.expect("a step has a context and a state")));
        RecurrentOutput { context, state }
    }

    fn operands(self, state: Option<Tensor<4>>) -> [Option<DispatchTensor>; 6] {
        let Self { queries, keys, values, log_decay, strengths, normalised: _ } = self;
        [Some(queries), Some(keys), Some(values), log_decay, strengths, state].map(|operand| operand.map(|operand| operand.into_dispatch()))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::engine::custom_gradient::tests::{assert_same_for_any_number_of_threads, difference, drawn, gradient, numbers};

    /// What is computed.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        /// Rows, heads, positions.
        sizes: [usize; 3],
        /// Widths of queries and keys, and of values.
        widths: [usize; 2],
        /// Whether decays differ by row, position and channel, and their strength.
        decay: Option<([bool; 3], f64)>,
        delta: bool,
        normalised: bool,
    }

    const PLAIN: Case = Case { sizes: [2, 2, 70], widths: [8, 8], decay: None, delta: false, normalised: false };

    /// Contexts, the last state, and the gradients of all inputs for random gradients of both.
    fn found(case: Case, dtype: DType, execute: impl FnOnce(Recurrence, Tensor<4>) -> RecurrentOutput) -> Vec<Vec<f64>> {
        let device = Device::flex().autodiff();
        let Case { sizes: [batch, heads, length], widths: [width, value], decay, delta, normalised } = case;
        let leaf = |name: &str, shape: [usize; 4]| drawn(name, shape, &device, dtype);
        // Nearly vanishing sums of weights have few digits.
        let signed = |x: Tensor<4>| if normalised { x.abs() + 0.1 } else { x };
        let norm = |x: Tensor<4>| x.clone() / (x.powi_scalar(2).sum_dim(3) + 1e-3).sqrt();
        let queries = signed(leaf("queries", [batch, heads, length, width])).require_grad();
        let keys = signed(norm(leaf("keys", [batch, heads, length, width]))).require_grad();
        let values = leaf("values", [batch, heads, length, value]).require_grad();
        let log_decay = decay.map(|([rows, positions, channels], strength)| {
            let shape = [if rows { batch } else { 1 }, heads, if positions { length } else { 1 }, if channels { width } else { 1 }];
            (leaf("decay", shape).abs() * -strength).require_grad()
        });
        let strengths = delta.then(|| (leaf("strengths", [batch, heads, length, 1]).abs() * 0.5).require_grad());
        let state = signed(leaf("state", [batch, heads, width, value + usize::from(normalised)])).require_grad();
        let inputs = [&queries, &keys, &values, &state].into_iter().chain(&strengths).chain(&log_decay);
        let inputs: Vec<Tensor<4>> = inputs.cloned().collect();
        let output = execute(Recurrence { queries, keys, values, log_decay, strengths, normalised }, state);
        let loss = |x: &Tensor<4>, name: &str| (x.clone() * drawn(name, x.dims(), &device, dtype)).sum();
        let gradients = (loss(&output.context, "of contexts") + loss(&output.state, "of the state")).backward();
        let gradients = inputs.iter().map(|input| gradient(input, &gradients));
        [output.context, output.state].map(numbers).into_iter().chain(gradients).collect()
    }

    fn on_cpu(case: Case) -> Vec<Vec<f64>> {
        found(case, DType::F32, |recurrence, state| {
            assert!(recurrence.is_on_cpu(Some(&state)));
            recurrence.on_cpu(Some(state))
        })
    }

    /// Composed of tensor operations, in double precision.
    fn by_tensor_ops(case: Case) -> Vec<Vec<f64>> {
        found(case, DType::F64, |recurrence, state| {
            assert!(!recurrence.is_on_cpu(Some(&state)));
            recurrence.in_chunks(Some(state), 16)
        })
    }

    fn check(case: Case) {
        let off = difference(&on_cpu(case), &by_tensor_ops(case));
        assert!(off < 1e-5, "{case:?}: off by {off}");
    }

    fn decays() -> impl Iterator<Item = Option<([bool; 3], f64)>> {
        let shapes = [[true, true, false], [true, true, true], [false, true, true], [false, false, false], [false, false, true]];
        [None].into_iter().chain(shapes.into_iter().flat_map(|shape| [0.05, 2.0].map(|strength| Some((shape, strength)))))
    }

    #[test]
    fn heads_of_all_widths_agree_with_tensor_operations_in_outputs_and_gradients() {
        for decay in decays() {
            for delta in [false, true] {
                for widths in [[1, 1], [5, 40], [40, 5], [32, 64], [65, 33]] {
                    check(Case { widths, decay, delta, ..PLAIN });
                }
            }
            for widths in [[1, 1], [5, 40], [40, 5], [33, 64]] {
                check(Case { widths, decay, normalised: true, ..PLAIN });
            }
        }
    }

    #[test]
    fn sequences_of_all_lengths_agree_with_tensor_operations_in_outputs_and_gradients() {
        for length in [2, 7, 8, 9, 31, 33, 63, 64, 65, 128, 199] {
            for decay in decays() {
                for (delta, normalised) in [(false, false), (true, false), (false, true)] {
                    check(Case { sizes: [1, 2, length], decay, delta, normalised, ..PLAIN });
                }
            }
        }
    }

    /// Contexts and the last state of single-position steps, from a shared state.
    fn stepped(case: Case, dtype: DType, execute: impl Fn(Recurrence, Tensor<4>) -> RecurrentOutput) -> Vec<Vec<f64>> {
        let device = Device::flex();
        let Case { sizes: [batch, heads, length], widths: [width, value], decay, delta, normalised } = case;
        let drawn = |name: &str, shape: [usize; 4]| drawn(name, shape, &device, dtype);
        let [queries, keys] = ["queries", "keys"].map(|name| drawn(name, [batch, heads, length, width]).abs() + 0.1);
        let keys = keys.clone() / (keys.powi_scalar(2).sum_dim(3) + 1e-3).sqrt();
        let values = drawn("values", [batch, heads, length, value]);
        let decay = decay.map(|([rows, _, channels], strength)| {
            drawn("decay", [if rows { batch } else { 1 }, heads, length, if channels { width } else { 1 }]).abs() * -strength
        });
        let strengths = delta.then(|| drawn("strengths", [batch, heads, length, 1]).abs() * 0.5);
        let first = drawn("state", [batch, heads, width, value + usize::from(normalised)]).abs();
        let (mut state, mut contexts) = (first.clone(), Vec::new());
        for position in 0..length {
            let at = |x: &Tensor<4>| x.clone().narrow(2, position, 1);
            let (log_decay, strengths) = (decay.as_ref().map(at), strengths.as_ref().map(at));
            let recurrence = Recurrence { queries: at(&queries), keys: at(&keys), values: at(&values), log_decay, strengths, normalised };
            let output = execute(recurrence, state);
            contexts.push(output.context);
            state = output.state;
        }
        [Tensor::cat(contexts, 2), state, first].map(numbers).into()
    }

    #[test]
    fn steps_agree_with_tensor_operations_and_leave_the_states_of_others() {
        let of_tensors = |case| stepped(case, DType::F64, |recurrence, state| recurrence.recur(Some(state)));
        let of_slices = |case| stepped(case, DType::F32, |recurrence, state| recurrence.execute(Some(state)));
        for decay in decays() {
            for widths in [[1, 1], [5, 40], [64, 33]] {
                for (delta, normalised) in [(false, false), (true, false), (false, true)] {
                    let case = Case { sizes: [3, 2, 4], widths, decay, delta, normalised };
                    let off = difference(&of_slices(case), &of_tensors(case));
                    assert!(off < 1e-5, "{case:?}: off by {off}");
                    assert_same_for_any_number_of_threads(|| of_slices(case));
                }
            }
        }
        let case = Case { decay: Some(([true, true, false], 0.05)), ..PLAIN };
        let other = Case { decay: Some(([true, true, false], 0.051)), ..PLAIN };
        assert!(difference(&of_slices(case), &of_tensors(other)) > 1e-4, "other decays are noticed");
    }

    #[test]
    fn another_recurrence_is_noticed() {
        let case = Case { decay: Some(([true, true, true], 0.05)), delta: true, ..PLAIN };
        let expected = by_tensor_ops(case);
        let check = |change: fn(Recurrence) -> Recurrence| {
            let changed = found(case, DType::F32, |recurrence, state| change(recurrence).on_cpu(Some(state)));
            assert!(difference(&changed, &expected) > 1e-4);
        };
        check(|recurrence| Recurrence { keys: recurrence.keys * 1.001, ..recurrence });
        check(|recurrence| Recurrence { log_decay: recurrence.log_decay.map(|x| x * 1.01), ..recurrence });
        check(|recurrence| Recurrence { strengths: recurrence.strengths.map(|x| x * 1.001), ..recurrence });
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let decays = [None, Some(([false, false, false], 0.1)), Some(([true, true, true], 0.1))];
        for (decay, delta) in decays.into_iter().flat_map(|decay| [(decay, false), (decay, true)]) {
            let case = Case { sizes: [2, 3, 150], decay, delta, ..PLAIN };
            assert_same_for_any_number_of_threads(|| on_cpu(case));
        }
    }

    #[test]
    fn what_reads_from_nothing_is_nothing_and_has_no_gradient() {
        let device = Device::flex().autodiff();
        let keys = Tensor::<4>::zeros([1, 1, 3, 2], &device).require_grad();
        let queries = Tensor::ones([1, 1, 3, 2], &device).require_grad();
        let recurrence = Recurrence {
            queries: queries.clone(),
            keys: keys.clone(),
            values: Tensor::ones([1, 1, 3, 4], &device),
            log_decay: None,
            strengths: None,
            normalised: true,
        };
        let context = recurrence.on_cpu(None).context;
        let gradients = context.clone().sum().backward();
        let numbers = |x: Tensor<4>| x.into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(numbers(context.detach()), [0.0; 12]);
        assert_eq!(numbers(queries.grad(&gradients).unwrap()), [0.0; 6]);
        // That of the division by 1 in its place: the sum over what reads and over values.
        assert_eq!(numbers(keys.grad(&gradients).unwrap()), [12.0, 12.0, 8.0, 8.0, 4.0, 4.0]);
    }
}
