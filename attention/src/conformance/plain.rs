//! Agreement of an attention with its formula.

use crate::conformance::properties::Outcome;
use crate::conformance::subject::Subject;
use crate::contract::Attention;
use crate::description::PlainAttention;
use crate::description::array::same;
use crate::description::view::views;

impl PlainAttention {
    /// Checks that contexts and weights equal those of the formula, under every view of a random case.
    ///
    /// # Errors
    /// The first number that differs.
    pub fn agrees<A: Attention>(&self, subject: &Subject<A>, batch: usize, length: usize, tolerance: f64) -> Outcome {
        let case = subject.case("formula", batch, length);
        let heads = self.spec.heads;
        for view in views(&case, self.spec.role).into_iter().filter(|view| view.suits(&subject.attention, &case, heads)) {
            let (context, shown) = subject.observed(view.apply(case.input(&subject.device)));
            let (expected, expected_weights) = self.forward(&case, &view);
            let what = format!("batch {batch}, {heads} heads, length {length}, {}", view.name);
            let times = usize::from(subject.attention.abilities().weights);
            if shown.len() != times {
                return Err(format!("{what}: weights were shown {} times instead of {times}", shown.len()));
            }
            for b in 0..batch {
                // Outputs of left padding are unused.
                for i in view.padding(b)..length {
                    same(&format!("{what}: context of row {b}, query {i}"), context.row(&[b, i]), expected.row(&[b, i]), tolerance)?;
                    let pairs = shown.iter().zip(&expected_weights).flat_map(|pair| (0..heads).map(move |h| (pair, h)));
                    for ((weights, expected), h) in pairs {
                        let shared = if weights.shape[0] == 1 { 0 } else { b };
                        let what = format!("{what}: weights of row {b}, head {h}, query {i}");
                        same(&what, weights.row(&[shared, h, i]), expected.row(&[b, h, i]), tolerance)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Contexts and weights equal those of the paper's formula in double precision, under every view.
pub(super) fn contexts_and_weights_are_those_of_the_formula<A: Attention>(subject: &Subject<A>) -> Outcome {
    let mechanism = subject.mechanism.as_ref().expect("a property that presupposes a formula is asked where there is one");
    let plain = PlainAttention::read(mechanism, subject.spec, &subject.attention);
    plain.agrees(subject, 2, subject.spec.max_length.min(5), subject.close(1e-5))
}
