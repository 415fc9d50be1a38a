//! Gradients against finite differences of the module's own outputs, in single precision.
//!
//! For each input and each trained parameter, the derivative of a loss along a random direction is compared with central differences `D(s)` of step `s`. Two
//! steps yield the estimate `(4 D(s/2) - D(s)) / 3`, whose error is of order `s^4` for a smooth loss, and of order `s` if kinks (of a ReLU, say) lie within the
//! step. Rounding grows as `1/s`. So steps are halved while rounding is below a hundredth of the derivative's size, or the differences still change by more
//! than rounding. At one of the steps the derivative must agree within that hundredth and rounding; a missing or doubled term would fail.
//!
//! The size of a derivative is that for a typical direction, the root of the sum of its squared terms: in one direction the terms may cancel.
//!
//! If the loss has a jump or kink exactly at the initial values, no derivative exists: initialise the mechanism elsewhere for this check.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use heedful_random::RandomKey;

use crate::conformance::properties::Outcome;
use crate::conformance::subject::{Subject, coefficients};
use crate::contract::probe::Probe;
use crate::contract::visibility::Visibility;
use crate::contract::{Attention, AttentionInput};
use crate::description::Case;
use crate::description::array::{Array, finite, same};

/// The first step, in units of directions with elements up to 1.5.
const FIRST_STEP: f64 = 1.0 / 16.0;
/// The last step: a smaller one hardly changes a number in single precision.
const LAST_STEP: f64 = 1.0 / 65536.0;
/// Error of a loss in single precision, relative to the magnitude of its terms: several roundings per output.
const ROUNDING: f64 = 8.0 * f32::EPSILON as f64;
/// Target precision of the derivative, relative to its size.
const WANTED: f64 = 0.01;

/// Differentiated loss.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    /// `sum(context * coefficients)`.
    Context,
    /// The sum of the auxiliary losses.
    Auxiliary,
}

/// A loss, and the sum of the magnitudes of its terms.
struct Sum {
    value: f64,
    magnitude: f64,
}

impl Loss {
    fn of<A: Attention>(self, attention: &A, input: AttentionInput) -> Sum {
        let output = attention.forward(input, &mut Probe::off());
        let terms: Vec<f64> = match self {
            Self::Context => {
                let context = Array::read(output.context);
                let coefficients = coefficients(&context.shape);
                context.values.iter().zip(&coefficients.values).map(|(y, c)| y * c).collect()
            }
            Self::Auxiliary => output.losses.iter().flat_map(|(_, loss)| Array::read(loss.clone()).values).collect(),
        };
        Sum { value: terms.iter().sum(), magnitude: terms.iter().map(|term| term.abs()).sum() }
    }
}

/// Whether `gradient` agrees with the derivative of `loss` along `direction`.
fn is_derivative(what: &str, gradient: Option<&Array>, direction: &Array, loss: impl Fn(f64) -> Sum) -> Outcome {
    let along = |gradient: &Array| gradient.values.iter().zip(&direction.values).map(|(g, v)| g * v).collect();
    let terms: Vec<f64> = gradient.map_or_else(Vec::new, along);
    let found: f64 = terms.iter().sum();
    let typical = terms.iter().map(|term| term * term).sum::<f64>().sqrt();
    let difference = |step: f64| {
        let (ahead, behind) = (loss(step), loss(-step));
        ((ahead.value - behind.value) / (2.0 * step), ROUNDING * (ahead.magnitude + behind.magnitude) / (2.0 * step))
    };
    let mut step = FIRST_STEP;
    let (mut coarse, _) = difference(step);
    loop {
        step /= 2.0;
        let (fine, rounding) = difference(step);
        let expected = (4.0 * fine - coarse) / 3.0;
        finite(&format!("{what}, as a difference"), &[expected])?;
        let size = WANTED * expected.abs().max(typical);
        let outcome = same(what, &[found], &[expected], size + rounding);
        // Half the step doubles the rounding error.
        if outcome.is_ok() || step <= LAST_STEP || 2.0 * rounding > size.max((coarse - fine).abs()) {
            return outcome;
        }
        coarse = fine;
    }
}

fn moved(from: &Array, direction: &Array, by: f64) -> Array {
    let values = from.values.iter().zip(&direction.values).map(|(x, v)| x + by * v).collect();
    Array { shape: from.shape.clone(), values }
}

/// A parameter of a module.
struct Place {
    path: String,
    id: ParamId,
    shape: Vec<usize>,
    trained: bool,
}

#[derive(Default)]
struct Places {
    path: Vec<String>,
    found: Vec<Place>,
}

impl Places {
    fn of<M: Module>(module: &M) -> Vec<Place> {
        let mut places = Self::default();
        module.visit(&mut places);
        places.found
    }
}

impl ModuleVisitor for Places {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let place = Place { path: self.path.join("."), id: param.id, shape: value.dims().to_vec(), trained: value.is_require_grad() };
        self.found.push(place);
    }
}

/// Moves the parameter with one identity in a direction, anywhere in the module.
struct Moving<'a> {
    id: ParamId,
    direction: &'a Array,
    by: f64,
}

impl ModuleMapper for Moving<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.id != self.id {
            return param;
        }
        param.map(|value| {
            let step = self.direction.tensor::<D>(&value.device()) * self.by;
            value + step
        })
    }
}

/// Checks inputs and, without dropout, every trained parameter.
fn derivatives_agree<A: Attention>(subject: &Subject<A>, loss: Loss, dropout: Option<RandomKey>) -> Outcome {
    let case = subject.case("derivatives", 2, 5);
    let visibility = subject.usual().and(Visibility::padding(vec![case.keys(), case.keys() - 1]));
    let prepare = |input: AttentionInput| input.visibility(visibility.clone()).random(dropout);
    let gradients = match loss {
        Loss::Context => subject.gradients(&case, prepare),
        Loss::Auxiliary => subject.gradients_of(&case, prepare, |output| output.losses.total().expect("there are losses")),
    };
    let of = |attention: &A, case: &Case| loss.of(attention, prepare(case.input(&subject.device)));

    let direction = Array::random("direction of the queries", &case.query.shape);
    is_derivative("derivative by the queries", Some(&gradients.query), &direction, |by| {
        of(&subject.attention, &Case { query: moved(&case.query, &direction, by), ..case.clone() })
    })?;
    if let Some(memory) = &case.memory {
        let direction = Array::random("direction of the memory", &memory.shape);
        is_derivative("derivative by the memory", gradients.memory.as_ref(), &direction, |by| {
            of(&subject.attention, &Case { memory: Some(moved(memory, &direction, by)), ..case.clone() })
        })?;
    }
    if dropout.is_some() {
        return Ok(());
    }
    for (tracked, place) in Places::of(&subject.tracked).iter().zip(Places::of(&subject.attention)).filter(|(tracked, _)| tracked.trained) {
        let path = &tracked.path;
        let direction = Array::random(&format!("direction of {path}"), &place.shape);
        is_derivative(&format!("derivative by {path}"), gradients.parameters.get(path), &direction, |by| {
            let mut moving = Moving { id: place.id, direction: &direction, by };
            of(&subject.attention.clone().map(&mut moving), &case)
        })?;
    }
    Ok(())
}

/// Gradients of inputs and trained parameters equal the slopes of the outputs; for inputs also under dropout.
pub(super) fn gradients_are_slopes<A: Attention>(subject: &Subject<A>) -> Outcome {
    derivatives_agree(subject, Loss::Context, None)?;
    // Along one direction the derivatives for two masks can coincide.
    let keys = (0..3).map(|key| RandomKey::from_seed(7).numbered(key)).filter(|_| subject.spec.dropout > 0.0);
    for key in keys {
        derivatives_agree(subject, Loss::Context, Some(key)).map_err(|error| format!("with dropout: {error}"))?;
    }
    Ok(())
}

/// Auxiliary losses exist exactly if claimed; they are finite, and their gradients equal their slopes.
pub(super) fn auxiliary_losses_are_those_claimed<A: Attention>(subject: &Subject<A>) -> Outcome {
    let case = subject.case("losses", 2, 5);
    let output = subject.attention.forward(case.input(&subject.device).visibility(subject.usual()), &mut Probe::off());
    let names: Vec<&str> = output.losses.iter().map(|(name, _)| *name).collect();
    if names.is_empty() == subject.attention.abilities().auxiliary_losses {
        return Err(format!("losses {names:?}, and the abilities claim {}", if names.is_empty() { "some" } else { "none" }));
    }
    for (name, loss) in output.losses.iter() {
        finite(&format!("loss `{name}`"), &Array::read(loss.clone()).values)?;
        if loss.dims() != [1] {
            return Err(format!("loss `{name}` has shape {:?} instead of [1]", loss.dims()));
        }
    }
    if names.is_empty() { Ok(()) } else { derivatives_agree(subject, Loss::Auxiliary, None) }
}
