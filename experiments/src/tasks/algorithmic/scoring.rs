//! Scores that only this experiment has: other numbers of rounds, and halting steps.

use std::fmt::Write;

use heedful_attention::contract::probe::{Observation, Probe};
use heedful_attention::mechanisms::lsh::Lsh;
use heedful_attention::tensors::read::read;
use heedful_data::tokenise::Tokeniser;
use heedful_models::architectures::language_model::LanguageModel;
use heedful_random::RandomKey;

use crate::tasks::answers::{Answering, TokenExercise};

/// After how many steps the positions of some exercises halted.
pub(super) struct HaltingSteps {
    /// A line of words and one of steps for each exercise.
    pub(super) text: String,
    /// The mean over all positions.
    pub(super) mean: f64,
    /// For each exercise the sum over the positions of its question, and how many there are.
    pub(super) of_questions: Vec<[f64; 2]>,
}

/// `None` for models that do not halt.
pub(super) fn halting(model: &LanguageModel, exercises: &[TokenExercise], tokeniser: &Tokeniser) -> Option<HaltingSteps> {
    let (mut text, mut total, mut count, mut of_questions) = (String::new(), 0.0, 0, Vec::new());
    for exercise in exercises {
        let mut steps: Vec<f32> = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::HaltingSteps(found) = observation {
                steps = read(found).iter::<f32>().collect();
            }
        };
        Answering::show(model, exercise, &mut Probe::listening(&mut listener));
        if steps.is_empty() {
            return None;
        }
        let words = exercise.tokens.iter().map(|&token| tokeniser.token(token));
        let cells: Vec<_> = words.zip(&steps).map(|(word, steps)| (word.to_owned(), format!("{steps:.0}"))).collect();
        let line = |of: &dyn Fn(&(String, String)) -> String| {
            let cells = cells.iter().map(|cell| format!("{:>width$}", of(cell), width = cell.0.len().max(cell.1.len())));
            cells.collect::<Vec<_>>().join(" ")
        };
        let _ = writeln!(text, "{}\n{}\n", line(&|cell| cell.0.clone()), line(&|cell| cell.1.clone()));
        total += steps.iter().map(|&steps| f64::from(steps)).sum::<f64>();
        count += steps.len();
        let of_question = &steps[..exercise.question.min(steps.len())];
        of_questions.push([of_question.iter().map(|&steps| f64::from(steps)).sum(), of_question.len() as f64]);
    }
    Some(HaltingSteps { text, mean: total / count as f64, of_questions })
}

/// The model with `rounds` rounds of hashing for sequences of any length in all its attentions, or full attention for 0 rounds; `None` if they are no LSH
/// attentions.
pub(super) fn with_rounds(model: &LanguageModel, rounds: usize) -> Option<LanguageModel> {
    let mut model = model.clone();
    let key = RandomKey::from_seed(0).named("rounds");
    for (layer, block) in model.decoder.layers.iter_mut().enumerate() {
        let lsh = block.self_attention.get_mut::<Lsh>()?;
        *lsh = match rounds {
            0 => lsh.clone().with_full_attention_below(usize::MAX),
            _ => lsh.clone().with_rounds(rounds, &key.numbered(layer as u64)).with_full_attention_below(0),
        };
    }
    Some(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Int, Tensor, TensorData};
    use heedful_attention::description::AnyMechanism;
    use heedful_attention::mechanisms::lsh::LshConfig;

    use crate::model::ModelSettings;

    /// The states of 16 different tokens.
    fn states(model: &LanguageModel) -> TensorData {
        let tokens = Tensor::<1, Int>::arange(0..16, &Device::flex()).reshape([1, 16]);
        model.hidden(tokens, &[], None, &mut Probe::off()).states.into_data()
    }

    #[test]
    fn the_rounds_of_all_layers_are_changed() {
        let settings = ModelSettings { d_model: 16, heads: 2, d_ff: 16, ..ModelSettings::default() };
        let hashing = LshConfig::default().with_chunk(2).with_rounds(2).with_full_attention_below(0);
        let init = |attention: AnyMechanism| settings.language_model(16, &attention.into()).init(&RandomKey::from_seed(1), &Device::flex());
        let model = init(AnyMechanism::from(hashing.clone()));
        let with = |rounds| states(&with_rounds(&model, rounds).unwrap());
        assert_eq!(with(2), states(&model));
        assert_ne!(with(1), with(2));
        assert_ne!(with(4), with(2));
        let unhashed = init(AnyMechanism::from(hashing.with_full_attention_below(64)));
        assert_eq!(with(0), states(&unhashed));
        assert_ne!(with(0), with(2));
        assert!(with_rounds(&init(AnyMechanism::default()), 1).is_none());
    }
}
