//! Class-conditional language models, such as for images of a digit (Parmar et al. 2018, section 5.2).
//!
//! Each class has a vector that is added to every token of its sequences, where the embedding of [`Classifier`](crate::architectures::classifier::Classifier)
//! adds segment vectors. Methods without a class argument add none.

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::prelude::*;

use super::LanguageModel;
use crate::architectures::seq2seq::last_position;
use crate::block::Hidden;
use crate::block::stack::StackState;
use crate::generation::StepDecoder;

impl<A: Attention> LanguageModel<A> {
    /// Like [`hidden`](Self::hidden) for sequences `[B, N]` of the classes `[B]`, without padding on the left.
    ///
    /// # Panics
    /// If the model has no classes, or the sequences are longer than `max_length`.
    pub fn hidden_of_classes(
        &self,
        tokens: Tensor<2, Int>,
        classes: Tensor<1, Int>,
        random: Option<RandomKey>,
        probe: &mut Probe,
    ) -> Hidden {
        let classes = of_elements(classes, tokens.dims()[1]);
        let (x, context) = self.embedded(tokens, Some(classes), &[], random);
        probe.within("decoder", None, |probe| self.decoder.forward(x, &context, random, probe))
    }

    /// The model as a decoder of class-conditional sequences; its [state](OfClasses::start) stores the classes.
    pub fn of_classes(&self) -> OfClasses<'_, A> {
        OfClasses { model: self }
    }
}

/// Expands the class `[B]` of each sequence to all its tokens, `[B, N]`.
fn of_elements(classes: Tensor<1, Int>, length: usize) -> Tensor<2, Int> {
    let [batch] = classes.dims();
    classes.unsqueeze_dim::<2>(1).expand([batch, length])
}

/// Class-conditional decoder, created by [`LanguageModel::of_classes`].
#[derive(Debug)]
pub struct OfClasses<'m, A: Attention = AnyAttention> {
    model: &'m LanguageModel<A>,
}

/// Decoding state: the state of the layers, and the class of each row.
#[derive(Clone, Debug)]
pub struct ClassState<S> {
    stack: StackState<S>,
    classes: Tensor<1, Int>,
}

impl<A: Attention> OfClasses<'_, A> {
    /// Decoding state with one row per class.
    ///
    /// # Panics
    /// If a class is out of range.
    pub fn start(&self, classes: &[usize]) -> ClassState<A::State> {
        let known = self.model.embedding.segments.as_ref().map_or(0, |vectors| vectors.dims()[0]);
        assert!(classes.iter().all(|&class| class < known), "classes {classes:?} of a model that has {known}");
        let rows = classes.len();
        let classes = TensorData::new(classes.iter().map(|&class| class as i32).collect::<Vec<_>>(), [rows]);
        ClassState { stack: self.model.start(rows, &[]), classes: Tensor::from_data(classes, &self.device()) }
    }
}

impl<A: Attention> StepDecoder for OfClasses<'_, A> {
    type State = ClassState<A::State>;

    fn device(&self) -> Device {
        self.model.device()
    }

    fn remaining(&self, state: &Self::State) -> usize {
        state.stack.remaining()
    }

    fn next_logits(&self, tokens: Tensor<2, Int>, state: &mut Self::State) -> Tensor<2> {
        let classes = of_elements(state.classes.clone(), tokens.dims()[1]);
        let x = self.model.embedding.forward_segments(tokens, Some(classes), &state.stack.positions(), None);
        let states = self.model.decoder.step(x, &mut state.stack, &mut Probe::off()).states;
        self.model.project(last_position(states))
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) {
        self.model.decoder.select(&mut state.stack, rows);
        let indices = TensorData::new(rows.iter().map(|&row| row as i32).collect::<Vec<_>>(), [rows.len()]);
        let indices = Tensor::<1, Int>::from_data(indices, &self.device());
        state.classes = state.classes.clone().select(0, indices);
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::optim::GradientsParams;

    use super::super::LanguageModelConfig;
    use super::*;
    use crate::block::BlockConfig;

    fn config(attention: &str) -> LanguageModelConfig {
        let block = BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..BlockConfig::default() };
        LanguageModelConfig::new(11)
            .with_attention(attention.parse::<AnyMechanism>().unwrap())
            .with_layers(2)
            .with_block(block)
            .with_classes(3)
    }

    fn model(attention: &str, device: &Device) -> LanguageModel {
        let config = config(attention);
        config.validate().unwrap();
        config.init(&RandomKey::from_seed(5), device)
    }

    fn tokens(device: &Device) -> Tensor<2, Int> {
        Tensor::from_data([[2, 5, 7, 1, 9], [2, 5, 7, 1, 9], [3, 8, 8, 10, 6]], device)
    }

    fn logits(model: &LanguageModel, classes: [i32; 3]) -> Tensor<3> {
        let device = model.device();
        let hidden = model.hidden_of_classes(tokens(&device), Tensor::from_data(classes, &device), None, &mut Probe::off());
        model.project(hidden.states)
    }

    fn largest_difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
        (a - b).abs().max().into_scalar()
    }

    #[test]
    fn the_vector_of_the_class_is_added_to_every_element() {
        let device = Device::flex();
        let mut with_vectors = model("dot-product", &device);
        let found = logits(&with_vectors, [1, 1, 1]);
        // Equal result if the vector is part of every token vector. The embedding multiplies these by the root of its width, unlike the output.
        let vector = with_vectors.embedding.segments.as_ref().unwrap().val().narrow(0, 1, 1);
        let output = with_vectors.embedding.tokens.weight.val();
        with_vectors.embedding.tokens.weight = burn::module::Param::from_tensor(output.clone() + vector / 8f64.sqrt());
        let hidden = with_vectors.hidden(tokens(&device), &[], None, &mut Probe::off());
        let expected = burn::tensor::module::linear(hidden.states, output.transpose(), None);
        let difference = largest_difference(found, expected);
        assert!(difference < 1e-5, "{difference}");
    }

    #[test]
    fn classes_change_their_own_rows_alone() {
        let model = model("dot-product", &Device::flex());
        let (before, after) = (logits(&model, [0, 1, 2]), logits(&model, [0, 2, 2]));
        let row = |x: &Tensor<3>, row| x.clone().narrow(0, row, 1);
        assert!(largest_difference(row(&before, 0), row(&after, 0)) < 1e-6);
        assert!(largest_difference(row(&before, 1), row(&after, 1)) > 1e-3);
        assert!(largest_difference(row(&before, 2), row(&after, 2)) < 1e-6);
        assert!(largest_difference(row(&before, 0), row(&before, 1)) > 1e-3, "equal tokens of different classes");
    }

    #[test]
    fn stepping_gives_the_logits_of_whole_sequences_also_for_selected_rows() {
        let device = Device::flex();
        for attention in ["dot-product", "relative", "linear-attention", "dynamic-conv"] {
            let model = model(attention, &device);
            let whole = logits(&model, [2, 0, 1]);
            let decoder = model.of_classes();
            let mut state = decoder.start(&[2, 0, 1]);
            let at = |position: usize, rows: &[i32]| {
                let rows = Tensor::<1, Int>::from_data(TensorData::from(rows), &device);
                whole.clone().narrow(1, position, 1).squeeze_dim::<2>(1).select(0, rows)
            };
            let first = decoder.next_logits(tokens(&device).narrow(1, 0, 3), &mut state);
            let difference = largest_difference(first, at(2, &[0, 1, 2]));
            assert!(difference < 1e-5, "{attention}: {difference}");
            decoder.select(&mut state, &[2, 1]);
            assert_eq!(decoder.remaining(&state), 13);
            let next = Tensor::<2, Int>::from_data([[10], [1]], &device);
            let difference = largest_difference(decoder.next_logits(next, &mut state), at(3, &[2, 1]));
            assert!(difference < 1e-5, "{attention}: {difference}");
        }
    }

    #[test]
    fn classes_are_trained_and_counted_and_change_no_other_initial_weight() {
        let device = Device::flex().autodiff();
        let model = model("dot-product", &device);
        let plain = config("dot-product").with_classes(0).init(&RandomKey::from_seed(5), &device);
        assert_eq!(model.num_params(), plain.num_params() + 3 * 8);
        assert!(plain.embedding.segments.is_none());
        assert_eq!(model.embedding.tokens.weight.val().into_data(), plain.embedding.tokens.weight.val().into_data());
        let gradients = GradientsParams::from_grads(logits(&model, [0, 1, 2]).powi_scalar(2).sum().backward(), &model);
        let of_classes = gradients.get::<2>(model.embedding.segments.as_ref().unwrap().id).unwrap();
        assert!(of_classes.into_data().iter::<f32>().all(|gradient| gradient != 0.0));
    }

    #[test]
    #[should_panic(expected = "classes [0, 3] of a model that has 3")]
    fn classes_that_a_model_does_not_have_are_refused() {
        let model = model("dot-product", &Device::flex());
        model.of_classes().start(&[0, 3]);
    }
}
