//! Large inputs: outputs and gradients are finite, and those of the formula in double precision.
//!
//! A logit of a thousand that is rounded to 32 bits moves weights more than one of 1. How far numbers may differ is therefore asked of the formula itself: by as
//! much as its result moves when inputs and parameters are rounded in another way.

use heedful_attention::description::view::{View, views};
use heedful_attention::description::{Case, PlainAttention};
use heedful_attention::prelude::*;

use crate::array::{Array, finite};
use crate::backends::{backends, flex};
use crate::properties::Outcome;
use crate::subject::{Subject, coefficients};
use crate::variants::{Variant, spec, variants};

const FACTORS: [f64; 4] = [1.0, 30.0, 100.0, 300.0];

/// Part by which numbers are moved, some bits more than the rounding to 32 bits moves them.
const ROUNDING: f64 = 3e-7;

/// Step of differences.
const STEP: f64 = 1e-5;

/// One of so many numbers has its slope compared; all of them must be finite.
const SAMPLED: usize = 7;

fn scaled(case: &Case, factor: f64) -> Case {
    // What 32 bits hold.
    let of = |array: &Array| Array { values: array.values.iter().map(|x| f64::from((x * factor) as f32)).collect(), ..array.clone() };
    Case { query: of(&case.query), memory: case.memory.as_ref().map(of) }
}

/// The numbers, each moved by a part that its place decides.
fn moved(array: &mut Array, name: &str) {
    let signs = Array::random(name, &array.shape);
    array.values.iter_mut().zip(&signs.values).for_each(|(x, sign)| *x *= 1.0 + ROUNDING * sign.signum());
}

/// The formula and the case, and the same in two other roundings.
fn roundings(plain: &PlainAttention, case: &Case) -> Vec<(PlainAttention, Case)> {
    let rounded = (0..2).map(|other| {
        let (mut plain, mut case) = (plain.clone(), case.clone());
        for (path, parameter) in &mut plain.parameters {
            moved(parameter, &format!("{path} {other}"));
        }
        moved(&mut case.query, &format!("query {other}"));
        if let Some(memory) = &mut case.memory {
            moved(memory, &format!("memory {other}"));
        }
        (plain, case)
    });
    std::iter::once((plain.clone(), case.clone())).chain(rounded).collect()
}

/// Whether numbers are those expected, which come first among those of all roundings: within what these differ, and within a part of the greatest of them and
/// of `least`.
fn close(what: &str, found: &[f64], all: &[Vec<f64>], part: f64, least: f64) -> Outcome {
    let expected = &all[0];
    let greatest = expected.iter().fold(least, |greatest, x| greatest.max(x.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let apart = all.iter().map(|other| (other[at] - expected).abs()).fold(0.0, f64::max);
        if !expected.is_finite() {
            return Err(format!("{what}: the formula gives {expected} at {at}"));
        }
        // Not `>`, which passes over NaN.
        let is_near = (found - expected).abs() <= part * greatest + 20.0 * apart;
        if !is_near {
            return Err(format!("{what}, number {at}: {found} instead of {expected}, of which other roundings are {apart} away"));
        }
    }
    Ok(())
}

fn loss(plain: &PlainAttention, case: &Case, view: &View) -> f64 {
    let (context, _) = plain.forward(case, view);
    context.values.iter().zip(&coefficients(&context.shape).values).map(|(y, c)| y * c).sum()
}

/// Slopes of the loss at some of the numbers of queries and of what they attend to.
fn slopes(plain: &PlainAttention, case: &Case, view: &View) -> Vec<f64> {
    let mut case = case.clone();
    let mut slopes = Vec::new();
    let count = case.query.values.len();
    for at in (0..count + case.memory.as_ref().map_or(0, |memory| memory.values.len())).step_by(SAMPLED) {
        let mut by = |step: f64| {
            let number = if at < count { &mut case.query.values[at] } else { &mut case.attended().values[at - count] };
            let x = std::mem::replace(number, 0.0);
            *number = x + step;
            let found = loss(plain, &case, view);
            let number = if at < count { &mut case.query.values[at] } else { &mut case.attended().values[at - count] };
            *number = x;
            found
        };
        slopes.push((by(STEP) - by(-STEP)) / (2.0 * STEP));
    }
    slopes
}

/// The same attention with the least epsilon of its softpick, if it has one.
fn with_least_epsilon(config: &AnyMechanism) -> Option<AnyMechanism> {
    match config.get::<SoftpickConfig>() {
        Some(softpick) => Some(softpick.clone().with_epsilon(1e-30).into()),
        None => config.over(with_least_epsilon(config.inner()?)?),
    }
}

/// Variants, and whether their gradients are the slopes of their formula. A softpick takes its epsilon for a constant before the division, as the released kernel
/// does: its slopes are off by the epsilon times a value and a slope of a logit, which both grow as the inputs do. Those with the least epsilon are not.
fn swept() -> Vec<(Variant, bool)> {
    let of_variant = |variant: Variant| match with_least_epsilon(&variant.config) {
        Some(config) => {
            vec![(Variant { name: format!("{}, least epsilon", variant.name), config, ..variant.clone() }, true), (variant, false)]
        }
        None => vec![(variant, true)],
    };
    variants().into_iter().flat_map(of_variant).collect()
}

fn agrees(subject: &Subject<AnyAttention>, (variant, has_slopes): &(Variant, bool), factor: f64) -> Outcome {
    let plain = PlainAttention::read(&variant.config, subject.spec, &subject.attention);
    let case = scaled(&subject.case("large", 1, 5), factor);
    let all = roundings(&plain, &case);
    let wanted = |view: &&View| ["all", "causal"].contains(&view.name) && view.suits(&subject.attention, &case, subject.spec.heads);
    for view in views(&case, subject.spec.role).iter().filter(wanted) {
        let contexts: Vec<Vec<f64>> = all.iter().map(|(plain, case)| plain.forward(case, view).0.values).collect();
        let all_slopes: Vec<Vec<f64>> = all.iter().map(|(plain, case)| slopes(plain, case, view)).collect();
        for engine in [Engine::Auto, Engine::Fused, Engine::Reference] {
            let what = format!("times {factor}, {}, {engine:?}", view.name);
            let found = subject.forward(view.apply(case.input(&subject.device)).engine(engine));
            close(&what, &found.values, &contexts, 1e-5 * subject.rounding, 1.0)?;
            let gradients = subject.gradients(&case, |input| view.apply(input).engine(engine));
            let of_inputs: Vec<f64> =
                gradients.query.values.into_iter().chain(gradients.memory.into_iter().flat_map(|memory| memory.values)).collect();
            finite(&format!("{what}, gradient"), &of_inputs)?;
            if *has_slopes {
                let sampled: Vec<f64> = of_inputs.into_iter().step_by(SAMPLED).collect();
                // What rounding leaves of a weight is multiplied with a value and with a slope of the logit, which both grow as the inputs do.
                close(&format!("{what}, gradient"), &sampled, &all_slopes, 1e-3 * subject.rounding, 1.0 + factor * factor * 1e-3)?;
            }
            for (path, gradient) in gradients.parameters {
                finite(&format!("{what}, gradient of {path}"), &gradient.values)?;
            }
        }
    }
    Ok(())
}

#[test]
fn mechanisms_compute_their_formulas_for_inputs_of_any_size() {
    let mut failed = Vec::new();
    for swept in swept() {
        let subject = swept.0.subject(2, &flex());
        for factor in FACTORS {
            if let Err(error) = agrees(&subject, &swept, factor) {
                failed.push(format!("{}: {error}", swept.0.name));
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn features_of_any_size_are_right_on_every_backend() {
    for backend in backends() {
        for variant in variants() {
            if !["performer", "linear-attention"].contains(&variant.config.family()) {
                continue;
            }
            for factor in FACTORS {
                let subject = variant.subject(2, &backend);
                agrees(&subject, &(variant.clone(), true), factor)
                    .unwrap_or_else(|error| panic!("{}, {}: {error}", backend.name, variant.name));
            }
        }
    }
}

fn init(mechanism: &AnyMechanism, role: Role) -> AnyAttention {
    mechanism.init(&spec(role, 2), &RandomKey::from_seed(1), &flex().device)
}

fn self_attention(x: &Array) -> AttentionInput {
    AttentionInput::self_attention(x.tensor(&flex().device))
}

fn of_features() -> [AnyMechanism; 2] {
    [PerformerConfig::default().into(), LinearAttentionConfig::default().into()]
}

/// The outputs of steps of these sizes.
fn by_steps(attention: &AnyAttention, x: &Array, sizes: &[usize]) -> Vec<f64> {
    let mut state = attention.state(&DecodingStart::self_attention(x.shape[0], x.shape[1]));
    let (mut start, mut found) = (0, Vec::new());
    for size in sizes {
        let part = x.slice(start..start + size).tensor(&flex().device);
        found.extend(Array::read(attention.step(part, &mut state, &mut Probe::off()).context).values);
        start += size;
    }
    found
}

#[test]
fn steps_of_any_size_give_what_the_whole_pass_gives_where_features_leave_the_range() {
    for mechanism in of_features() {
        let attention = init(&mechanism, Role::Decoder);
        for factor in FACTORS {
            // The first positions are small and the later ones are not, so that the scale changes on the way.
            let mut x = Array::random("x", &[1, 7, 6]);
            x.values.iter_mut().enumerate().for_each(|(at, x)| *x *= if at < 12 { 1.0 } else { factor });
            let whole =
                Array::read(attention.forward(self_attention(&x).visibility(Visibility::causal()), &mut Probe::off()).context).values;
            for sizes in [&[1; 7][..], &[3, 4], &[2, 1, 4], &[7]] {
                close(
                    &format!("{mechanism}, {factor}, {sizes:?}"),
                    &by_steps(&attention, &x, sizes),
                    std::slice::from_ref(&whole),
                    1e-4,
                    1.0,
                )
                .unwrap();
            }
        }
    }
}

#[test]
fn later_keys_do_not_change_what_precedes_them_however_large_they_are() {
    for mechanism in of_features() {
        let attention = init(&mechanism, Role::Decoder);
        let causal = |x: &Array| {
            let input = self_attention(x).visibility(Visibility::causal());
            Array::read(attention.forward(input, &mut Probe::off()).context).slice(0..4).values
        };
        let x = Array::random("x", &[1, 7, 6]);
        let expected = causal(&x);
        for factor in [-300.0, -30.0, 30.0, 300.0] {
            let mut later = x.clone();
            later.values[4 * 6..].iter_mut().for_each(|x| *x *= factor);
            close(&format!("{mechanism}, {factor}"), &causal(&later), std::slice::from_ref(&expected), 1e-6, 1.0).unwrap();
        }
    }
}

#[test]
fn a_single_position_has_its_value_however_large_it_is() {
    for (mechanism, role) in of_features().into_iter().flat_map(|one| [(one.clone(), Role::Encoder), (one, Role::Decoder)]) {
        let attention = init(&mechanism, role);
        for factor in FACTORS {
            let mut x = Array::random("x", &[1, 1, 6]);
            let value = |x: &Array| Array::read(attention.forward(self_attention(x), &mut Probe::off()).context).values;
            let expected: Vec<f64> = value(&x).iter().map(|value| value * factor).collect();
            x.values.iter_mut().for_each(|x| *x *= factor);
            close(&format!("{mechanism}, {factor}"), &value(&x), &[expected], 1e-5, 1.0).unwrap();
        }
    }
}
