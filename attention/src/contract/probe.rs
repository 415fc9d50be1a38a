//! Observation of model internals without changing results.
//!
//! A [`Probe`] travels through the forward pass. Without a listener it costs one branch per call; a listener receives the observations of mechanisms and
//! models, named by the path of the observed module.

use burn::tensor::{Int, Tensor};

use crate::contract::engine::Executed;

/// Observation of a mechanism or a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Observation {
    /// Attention weights `[batch, heads, queries, keys]` before dropout, over all keys of the sequence, including keys out of reach (0). The batch dimension is
    /// 1 if the weights do not depend on the input.
    Weights(Tensor<4>),
    /// Signed weights of keys, which need not sum to 1, `[batch, heads, queries, keys]` before dropout, over all keys of the sequence.
    SignedWeights(Tensor<4>),
    /// Attention span of each query and head, in positions `[batch, heads, queries]`; batch and queries are 1 if it does not depend on the input.
    Spans(Tensor<3>),
    /// Hash bucket of each position in each round, `[batch, heads, rounds, positions]`.
    Buckets(Tensor<4, Int>),
    /// Weights `[batch, heads, queries, slots]` before dropout, for queries that attend to mixtures of keys.
    SlotWeights(Tensor<4>),
    /// Values of the gates on head outputs, `[batch, heads, queries, d_head]` in `(0, 1)`, or `[batch, heads, queries, 1]` for headwise gates.
    HeadGates(Tensor<4>),
    /// Values of a gate between a stream and a sublayer, `[batch, length, d_model]` in `(0, 1)`.
    Gate(Tensor<3>),
    /// Number of steps until each position halted, `[batch, length]`; 0 for padding.
    HaltingSteps(Tensor<2>),
    /// Output of a block `[batch, length, d_model]`.
    Activation(Tensor<3>),
    /// Executed engine of an attention with several engines.
    Executed(Executed),
}

type Listener<'a> = &'a mut dyn FnMut(&str, Observation);

/// Disabled, or a listener with the path of the running module.
pub struct Probe<'a> {
    listener: Option<Listener<'a>>,
    path: String,
}

impl<'a> Probe<'a> {
    /// A probe without a listener.
    pub fn off() -> Self {
        Self { listener: None, path: String::new() }
    }

    /// A probe that calls `listener` with the module path (`encoder.layers.0.self_attention`) and the observation.
    pub fn listening(listener: &'a mut dyn FnMut(&str, Observation)) -> Self {
        Self { listener: Some(listener), path: String::new() }
    }

    /// Whether a listener is attached.
    pub fn is_listening(&self) -> bool {
        self.listener.is_some()
    }

    /// Emits an observation; `observe` runs only with a listener.
    pub fn observe(&mut self, observe: impl FnOnce() -> Observation) {
        if let Some(listener) = &mut self.listener {
            listener(&self.path, observe());
        }
    }

    /// Emits the executed engine.
    pub fn executed(&mut self, executed: Executed) {
        self.observe(|| Observation::Executed(executed));
    }

    /// Runs `run` with `name` (and `index`, for a list entry) appended to the path.
    pub fn within<T>(&mut self, name: &str, index: Option<usize>, run: impl FnOnce(&mut Self) -> T) -> T {
        if self.listener.is_none() {
            return run(self);
        }
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        if let Some(index) = index {
            self.path.push_str(&format!(".{index}"));
        }
        let result = run(self);
        self.path.truncate(length);
        result
    }

    /// Runs `run` with a probe that transforms its observations by `change`.
    pub(crate) fn changing<T>(&mut self, change: impl Fn(Observation) -> Observation, run: impl FnOnce(&mut Probe) -> T) -> T {
        if self.listener.is_none() {
            return run(self);
        }
        let mut listener = |path: &str, observation: Observation| {
            let path = (!path.is_empty()).then_some(path);
            let hand_out = |probe: &mut Self| probe.observe(|| change(observation));
            match path {
                Some(path) => self.within(path, None, hand_out),
                None => hand_out(self),
            }
        };
        run(&mut Probe::listening(&mut listener))
    }

    /// Runs `run`, which scores only keys from index `first` on, and extends its weights to all keys: earlier keys have weight 0.
    pub(crate) fn with_keys_before<T>(&mut self, first: usize, run: impl FnOnce(&mut Probe) -> T) -> T {
        self.with_keys_between(0, first, run)
    }

    /// Runs `run`, which scores all keys except `count` from index `first` on, and extends its weights to all keys: the skipped keys have weight 0.
    pub(crate) fn with_keys_between<T>(&mut self, first: usize, count: usize, run: impl FnOnce(&mut Probe) -> T) -> T {
        let all_keys = |weights: Tensor<4>| {
            let [rows, heads, queries, keys] = weights.dims();
            let missing = Tensor::zeros([rows, heads, queries, count], (&weights.device(), weights.dtype()));
            let behind = (first < keys).then(|| weights.clone().narrow(3, first, keys - first));
            let before = (first > 0).then(|| weights.narrow(3, 0, first));
            Tensor::cat(before.into_iter().chain([missing]).chain(behind).collect(), 3)
        };
        let all_keys = |observation| match observation {
            Observation::Weights(weights) if count > 0 => Observation::Weights(all_keys(weights)),
            Observation::SignedWeights(weights) if count > 0 => Observation::SignedWeights(all_keys(weights)),
            other => other,
        };
        self.changing(all_keys, run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn nothing_is_computed_while_nobody_listens() {
        Probe::off().observe(|| unreachable!("an unheard observation was computed"));
    }

    #[test]
    fn observations_carry_the_path_of_their_module() {
        let mut paths = Vec::new();
        let mut listener = |path: &str, _: Observation| paths.push(path.to_owned());
        let mut probe = Probe::listening(&mut listener);
        probe.within("encoder", None, |probe| {
            for layer in 0..2 {
                probe.within("layers", Some(layer), |probe| {
                    probe.observe(|| Observation::Activation(Tensor::zeros([1, 1, 1], &Device::flex())));
                });
            }
        });
        assert_eq!(paths, ["encoder.layers.0", "encoder.layers.1"]);
    }

    #[test]
    fn weights_of_some_keys_are_handed_out_for_all() {
        let mut shown = Vec::new();
        let mut listener = |path: &str, observation: Observation| match observation {
            Observation::Weights(weights) => shown.push((path.to_owned(), weights.into_data().iter::<f32>().collect::<Vec<_>>())),
            other => panic!("{other:?}"),
        };
        Probe::listening(&mut listener).within("layers", Some(1), |probe| {
            probe.with_keys_before(2, |probe| {
                probe.within("inner", None, |probe| probe.observe(|| Observation::Weights(Tensor::ones([1, 1, 1, 3], &Device::flex()))));
            });
        });
        assert_eq!(shown, [("layers.1.inner".to_owned(), vec![0.0, 0.0, 1.0, 1.0, 1.0])]);
    }

    #[test]
    fn weights_are_handed_out_for_keys_in_the_middle_too() {
        let mut shown = Vec::new();
        let mut listener = |_: &str, observation: Observation| match observation {
            Observation::Weights(weights) => shown = weights.into_data().try_to_vec::<f32>().unwrap(),
            other => panic!("{other:?}"),
        };
        Probe::listening(&mut listener).with_keys_between(1, 2, |probe| {
            probe.observe(|| Observation::Weights(Tensor::from_data([[[[1.0, 2.0, 3.0]]]], &Device::flex())));
        });
        assert_eq!(shown, [1.0, 0.0, 0.0, 2.0, 3.0]);
    }
}
