//! Gradients against central differences of the formula in double precision.

use heedful_attention::contract::Attention;
use heedful_attention::description::view::{View, views};
use heedful_attention::description::{Case, PlainAttention};

use crate::array::same;
use crate::backends::{backends, flex};
use crate::properties::Outcome;
use crate::subject::{Subject, coefficients};
use crate::variants::variants;

/// Step of the differences: their error is about its square.
const STEP: f64 = 1e-5;

/// The loss whose gradients [`Subject::gradients`] returns.
fn loss(plain: &PlainAttention, case: &Case, view: &View) -> f64 {
    let (context, _) = plain.forward(case, view);
    let coefficients = coefficients(&context.shape);
    context.values.iter().zip(&coefficients.values).map(|(y, c)| y * c).sum()
}

/// The central difference when `nudge` moves one number.
fn difference(mut loss: impl FnMut(f64) -> f64) -> f64 {
    (loss(STEP) - loss(-STEP)) / (2.0 * STEP)
}

/// Whether the gradients of inputs and of all parameters are those of the formula. Whatever is frozen must have none.
pub fn gradients_agree<A: Attention>(subject: &Subject<A>, plain: &mut PlainAttention, frozen: &[&str]) -> Outcome {
    let case = subject.case("gradients", 2, 5);
    let wanted = |view: &&View| ["all", "causal and padding", "strictly before", "left padding, whole"].contains(&view.name);
    let suits = |view: &&View| view.suits(&subject.attention, &case, subject.spec.heads);
    for view in views(&case, subject.spec.role).iter().filter(wanted).filter(suits) {
        let found = subject.gradients(&case, |input| view.apply(input));
        let close = |what: &str, found: f64, expected: f64| {
            same(&format!("{}: gradient of {what}", view.name), &[found], &[expected], 1e-4 * subject.rounding * (1.0 + expected.abs()))
        };
        for at in 0..case.query.values.len() {
            let mut moved = case.clone();
            let x = moved.query.values[at];
            let expected = difference(|by| {
                moved.query.values[at] = x + by;
                loss(plain, &moved, view)
            });
            close(&format!("query element {at}"), found.query.values[at], expected)?;
        }
        for at in 0..case.memory.as_ref().map_or(0, |memory| memory.values.len()) {
            let mut moved = case.clone();
            let x = moved.attended().values[at];
            let expected = difference(|by| {
                moved.attended().values[at] = x + by;
                loss(plain, &moved, view)
            });
            let found = found.memory.as_ref().ok_or("the memory has no gradient")?;
            close(&format!("memory element {at}"), found.values[at], expected)?;
        }
        let paths: Vec<String> = plain.parameters.keys().cloned().collect();
        for path in paths {
            let gradient = found.parameters.get(&path);
            if frozen.iter().any(|name| path.ends_with(name)) {
                gradient.map_or(Ok(()), |_| Err(format!("{path} is frozen and has a gradient")))?;
                continue;
            }
            let gradient = gradient.ok_or_else(|| format!("{path} has no gradient"))?;
            for at in 0..gradient.values.len() {
                let x = plain.parameters[&path].values[at];
                let expected = difference(|by| {
                    plain.parameters.get_mut(&path).expect("the path is one of the map's").values[at] = x + by;
                    loss(plain, &case, view)
                });
                plain.parameters.get_mut(&path).expect("the path is one of the map's").values[at] = x;
                close(&format!("{path}, element {at}"), gradient.values[at], expected)?;
            }
        }
    }
    Ok(())
}

#[test]
fn every_gradient_is_that_of_the_formula() {
    for variant in variants() {
        let subject = variant.subject(2, &flex());
        let mut plain = PlainAttention::read(&variant.config, subject.spec, &subject.attention);
        if let Err(error) = gradients_agree(&subject, &mut plain, &["frozen_table", "frozen_matrix", "rotations", "directions"]) {
            panic!("{}: {error}", variant.name);
        }
    }
}

#[test]
fn every_backend_differentiates_dot_product_attention() {
    let variants = variants();
    let variant = variants.iter().find(|variant| variant.config.name() == "dot-product").expect("dot-product is in the list");
    for backend in backends() {
        let subject = variant.subject(2, &backend);
        let mut plain = PlainAttention::read(&variant.config, subject.spec, &subject.attention);
        if let Err(error) = gradients_agree(&subject, &mut plain, &[]) {
            panic!("{}: {error}", backend.name);
        }
    }
}
