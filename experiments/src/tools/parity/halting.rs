//! Adaptive computation time over states that are given.

use burn::tensor::{Device, Tensor};
use heedful_models::block::halting::{Halting, HaltingConfig};

use super::attention::{BATCH, LENGTH};
use super::config::ParityConfig;
use super::inputs::Input;
use super::pass::Pass;
use super::runnable::{Output, Runnable};
use super::tensor_file::Size;

/// [`Part::Halting`](super::part::Part::Halting).
pub(super) struct OneHalting<'a>(pub &'a ParityConfig);

impl OneHalting<'_> {
    fn options(&self) -> HaltingConfig {
        self.0.halting.unwrap_or_default().into()
    }
}

impl Runnable for OneHalting<'_> {
    type Module = Halting;

    fn module(&self, device: &Device) -> Halting {
        self.options().init(self.0.d_model, &self.0.key(), device)
    }

    fn inputs(&self, _: &Halting) -> Vec<Input> {
        let width = Size::Is(self.0.d_model);
        let meaning = "what each update returns; there are at most so many steps";
        let mut inputs = vec![Input::numbers("updates", &[Size::Free("steps"), BATCH, LENGTH, width], meaning).with_gradient(true)];
        if self.options().before_update {
            inputs.push(Input::numbers("x", &[BATCH, LENGTH, width], "what the first update is given").with_gradient(true));
        }
        inputs.push(Input::flags("padding", &[BATCH, LENGTH], "1 for positions that do not count, else 0; any type").optional());
        inputs
    }

    fn outputs(&self, _: &Halting) -> Vec<Output> {
        vec![
            Output::new("output", &[BATCH, LENGTH, Size::Is(self.0.d_model)], "what the states have become"),
            Output::new("cost", &[BATCH, LENGTH], "ponder cost N + R, 0 for positions that do not count"),
            Output::shown("halting_steps", &[BATCH, LENGTH], "steps N until each position halted"),
        ]
    }

    fn run(&self, halting: &Halting, pass: &mut Pass) {
        let (updates, x) = (pass.tensor::<4>("updates"), pass.given::<3>("x"));
        let [limit, batch, length, width] = updates.dims();
        let mut states = x.unwrap_or_else(|| Tensor::zeros([batch, length, width], pass.device()));
        let real = pass.flags("padding", [batch, length, 1]).map(Tensor::bool_not);
        let mut pondering = halting.start(&states, real, limit);
        let mut step = 0;
        while pondering.goes_on() {
            let updated = updates.clone().narrow(0, step, 1).squeeze_dim::<3>(0);
            states = halting.step(&mut pondering, states.clone(), states, |_| updated);
            step += 1;
        }
        pass.output("output", pondering.blended());
        pass.output("cost", pondering.cost().squeeze_dim::<2>(2));
        pass.show("halting_steps", pondering.steps().squeeze_dim::<2>(2));
    }
}
