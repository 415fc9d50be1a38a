//! Recomputation of activations in the backward pass.
//!
//! [`checkpointed`] keeps the inputs of a part and recomputes the rest (Chen et al. 2016): a stack of checkpointed blocks stores one tensor per block. A
//! reversible stack ([`crate::block::layer_sharing`]) keeps only its outputs and reconstructs the inputs: its memory does not grow with depth.
//!
//! Both run the part twice. Its randomness must be reproducible, like that of dropout from a [`RandomKey`].

mod autodiff;
mod operator;

use std::collections::HashMap;

use burn::backend::Dispatch;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Device, Gradients, Tensor};
use heedful_attention::prelude::*;

use crate::block::Hidden;

pub use self::operator::Recomputation;
use self::operator::Replay;

/// Gradients of a recomputation: of the inputs, in order, and of the parameters.
pub(crate) struct ReplayedGradients {
    pub(crate) inputs: Vec<Tensor<3>>,
    pub(crate) parameters: ParameterGradients,
}

/// Runs `part`, which uses `module`'s parameters, on `inputs` `[B, N_i, C]`, without keeping intermediate results. `part` must return the same result at each
/// call.
///
/// # Panics
/// If the inputs differ in batch or width.
pub fn checkpointed<M: Module + 'static>(
    module: &M,
    inputs: Vec<Tensor<3>>,
    probe: &mut Probe,
    part: impl Fn(&M, &[Tensor<3>], &mut Probe) -> Hidden + Send + 'static,
) -> Hidden {
    if !is_recorded(&inputs) {
        return part(module, &inputs, probe);
    }
    let kept: Vec<_> = inputs.iter().map(|input| input.clone().inner()).collect();
    let plain = module.valid();
    let hidden = part(&plain, &kept, probe);
    replayed(module, inputs, hidden, move |gradient| {
        let inputs = kept.into_iter().map(|input| Tensor::from_inner(input).require_grad()).collect::<Vec<_>>();
        let module = plain.train();
        let mut gradients = gradient.backward(part(&module, &inputs, &mut Probe::off()));
        let mut parameters = ParameterGradients::default();
        parameters.add(&module, &mut gradients);
        ReplayedGradients { inputs: inputs.iter().map(|input| gradient_of(input, &mut gradients)).collect(), parameters }
    })
}

/// Whether a gradient may be requested.
pub(crate) fn is_recorded(inputs: &[Tensor<3>]) -> bool {
    inputs.iter().any(Tensor::is_autodiff)
}

/// Gradient of a leaf; zero if nothing depends on it.
pub(crate) fn gradient_of<const D: usize>(leaf: &Tensor<D>, gradients: &mut Gradients) -> Tensor<D> {
    leaf.grad_remove(gradients).unwrap_or_else(|| leaf.clone().inner().zeros_like())
}

/// Output computed from plain copies of `module`'s parameters and of `inputs`, with the gradients computed by `replay`.
pub(crate) fn replayed<M: Module>(
    module: &M,
    inputs: Vec<Tensor<3>>,
    hidden: Hidden,
    replay: impl FnOnce(HiddenGradient) -> ReplayedGradients + Send + 'static,
) -> Hidden {
    let layout = Layout::of(&hidden);
    let flat = Tensor::from_inner(flat(&hidden));
    let parameters = Parameters::of(module);
    let (order, of_hidden) = (parameters.order, layout.clone());
    let replay = Replay::new(move |gradient| {
        let gradient = of_hidden.gradient(Tensor::from_dispatch(gradient));
        let ReplayedGradients { inputs, parameters } = replay(gradient);
        (Tensor::cat(inputs, 1).into_dispatch(), parameters.flat(&order).into_dispatch())
    });
    let output = <Dispatch as Recomputation>::replayed(
        Tensor::cat(inputs, 1).into_dispatch(),
        parameters.flat.into_dispatch(),
        flat.into_dispatch(),
        replay,
    );
    layout.hidden(&Tensor::from_dispatch(output))
}

/// Flattens states and losses, in 32 bits unless all have the same number type.
fn flat(hidden: &Hidden) -> Tensor<1> {
    let losses = hidden.losses.iter().map(|(_, loss)| loss.clone());
    let parts: Vec<Tensor<1>> = std::iter::once(hidden.states.clone().flatten(0, 2)).chain(losses).collect();
    let dtype = parts[0].dtype();
    let is_uniform = parts.iter().all(|part| part.dtype() == dtype);
    Tensor::cat(parts.into_iter().map(|part| if is_uniform { part } else { part.cast(DType::F32) }).collect(), 0)
}

/// Layout of the flattened states and losses.
#[derive(Clone)]
struct Layout {
    states: ([usize; 3], DType),
    losses: Vec<(&'static str, DType)>,
}

impl Layout {
    fn of(hidden: &Hidden) -> Self {
        Self {
            states: (hidden.states.dims(), hidden.states.dtype()),
            losses: hidden.losses.iter().map(|(name, loss)| (*name, loss.dtype())).collect(),
        }
    }

    fn hidden(&self, flat: &Tensor<1>) -> Hidden {
        let part = |start: usize, count: usize, dtype: DType| {
            let part = flat.clone().narrow(0, start, count);
            if part.dtype() == dtype { part } else { part.cast(dtype) }
        };
        let (shape, dtype) = self.states;
        let count = shape.iter().product();
        let mut losses = Losses::default();
        for (at, (name, dtype)) in self.losses.iter().enumerate() {
            losses.push(name, part(count + at, 1, *dtype));
        }
        Hidden { states: part(0, count, dtype).reshape(shape), losses }
    }

    fn gradient(&self, flat: Tensor<1>) -> HiddenGradient {
        HiddenGradient(self.hidden(&flat))
    }
}

/// Gradient of states and losses.
pub(crate) struct HiddenGradient(Hidden);

impl HiddenGradient {
    /// Gradient of the states.
    pub(crate) fn states(&self) -> Tensor<3> {
        self.0.states.clone()
    }

    /// Gradients of the losses, in order.
    pub(crate) fn losses(&self) -> Vec<Tensor<1>> {
        self.0.losses.iter().map(|(_, loss)| loss.clone()).collect()
    }

    /// Backward pass through the recomputed output.
    fn backward(&self, hidden: Hidden) -> Gradients {
        backward(hidden, self.states(), &self.losses())
    }
}

/// Backward pass through `hidden`, with these gradients of states and losses.
pub(crate) fn backward(hidden: Hidden, of_states: Tensor<3>, of_losses: &[Tensor<1>]) -> Gradients {
    let losses = hidden.losses.iter().zip(of_losses).map(|((_, loss), gradient)| loss.clone() * Tensor::from_inner(gradient.clone()));
    let states = (hidden.states * Tensor::from_inner(of_states)).sum();
    losses.fold(states, |sum, loss| sum + loss).backward()
}

/// Flattened parameters of a module.
struct Parameters {
    flat: Tensor<1>,
    order: Vec<Place>,
}

/// Position of a parameter in the flattened parameters.
struct Place {
    id: ParamId,
    count: usize,
    dtype: DType,
    device: Device,
}

impl Parameters {
    fn of<M: Module>(module: &M) -> Self {
        struct Collect(Vec<Tensor<1>>, Vec<Place>);

        impl ModuleVisitor for Collect {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let flat: Tensor<1> = param.val().reshape([-1]);
                self.1.push(Place { id: param.id, count: flat.dims()[0], dtype: flat.dtype(), device: flat.device().inner() });
                self.0.push(flat);
            }
        }

        let mut collect = Collect(Vec::new(), Vec::new());
        module.visit(&mut collect);
        Self { flat: Tensor::cat(collect.0, 0), order: collect.1 }
    }
}

/// Accumulated gradients of parameters.
#[derive(Default)]
pub(crate) struct ParameterGradients(HashMap<ParamId, Tensor<1>>);

impl ParameterGradients {
    /// Adds the gradients of `module`'s parameters among `gradients`.
    pub(crate) fn add<M: Module>(&mut self, module: &M, gradients: &mut Gradients) {
        struct Add<'a>(&'a mut HashMap<ParamId, Tensor<1>>, &'a mut Gradients);

        impl ModuleVisitor for Add<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let Some(gradient) = param.val().grad_remove(self.1) else { return };
                let gradient: Tensor<1> = gradient.reshape([-1]);
                let sum = match self.0.remove(&param.id) {
                    Some(sum) => sum + gradient,
                    None => gradient,
                };
                self.0.insert(param.id, sum);
            }
        }

        module.visit(&mut Add(&mut self.0, gradients));
    }

    fn flat(mut self, order: &[Place]) -> Tensor<1> {
        // The gradient of a parameter that occurs twice in a module is stored once.
        let zeros = |place: &Place| Tensor::zeros([place.count], (&place.device, place.dtype));
        let part = |place: &Place| self.0.remove(&place.id).unwrap_or_else(|| zeros(place));
        Tensor::cat(order.iter().map(part).collect(), 0)
    }
}
