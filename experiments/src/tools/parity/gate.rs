//! A gate between a stream and a sublayer's output.

use burn::tensor::Device;
use heedful_models::parts::residual_gate::{Gate, GateConfig, GateKind};

use super::attention::{BATCH, LENGTH};
use super::config::ParityConfig;
use super::inputs::Input;
use super::parameter_docs::meaning_in_gate;
use super::pass::Pass;
use super::runnable::{Output, Runnable};
use super::tensor_file::Size;

/// The gates of [`Part`](super::part::Part).
pub(super) struct OneGate<'a> {
    pub config: &'a ParityConfig,
    pub kind: GateKind,
}

impl OneGate<'_> {
    fn shape(&self) -> [Size; 3] {
        [BATCH, LENGTH, Size::Is(self.config.d_model)]
    }
}

impl Runnable for OneGate<'_> {
    type Module = Gate;

    fn module(&self, device: &Device) -> Gate {
        GateConfig::new(self.kind).init(self.config.d_model, &self.config.key(), device)
    }

    fn inputs(&self, _: &Gate) -> Vec<Input> {
        [("x", "the stream"), ("y", "a sublayer's output")]
            .map(|(name, meaning)| Input::numbers(name, &self.shape(), meaning).with_gradient(true))
            .to_vec()
    }

    fn outputs(&self, _: &Gate) -> Vec<Output> {
        let open = if self.kind == GateKind::Input { "how far the gate is open to x" } else { "how far the gate is open to y" };
        vec![Output::new("output", &self.shape(), "the stream that goes on"), Output::new("open", &self.shape(), open)]
    }

    fn meaning(&self, path: &str) -> Option<&'static str> {
        meaning_in_gate(path)
    }

    fn run(&self, gate: &Gate, pass: &mut Pass) {
        let (output, open) = gate.forward(pass.tensor("x"), pass.tensor("y"));
        pass.output("output", output);
        pass.output("open", open);
    }
}
