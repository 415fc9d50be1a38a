//! Held-out training examples, which select the checkpoint.

use std::collections::BTreeMap;

use heedful_random::RandomKey;
use rand::seq::SliceRandom;

use super::examples::TokenExample;
use crate::session::error::ExperimentError;

/// The name of the set.
pub(super) const SET: &str = "held-out";

/// What is left for training and, for a share above 0, what is held out, both in file order. Candidate answers to a question stay together. Which examples are
/// taken depends on the task alone, lest seeds differ in what they are trained on.
///
/// # Errors
/// If the share leaves one of the two empty.
pub(super) fn divided(
    examples: Vec<TokenExample>,
    share: f64,
    task: &str,
) -> Result<(Vec<TokenExample>, Option<Vec<TokenExample>>), ExperimentError> {
    if share == 0.0 {
        return Ok((examples, None));
    }
    // An example by itself is a question of its own.
    let question_of = |(index, example): (usize, &TokenExample)| example.group.unwrap_or(index);
    let questions = examples.iter().enumerate().map(question_of).max().map_or(0, |last| last + 1);
    let count = (questions as f64 * share).round() as usize;
    if count == 0 || count >= questions {
        let problem = format!("data.held_out = {share}: of {questions} training examples of {task} it takes {count}; give another share");
        return Err(ExperimentError::usage(problem));
    }
    let mut is_taken = vec![false; questions];
    is_taken[..count].fill(true);
    is_taken.shuffle(&mut RandomKey::from_seed(0).named("held out").named(task).rng());
    let numbered: Vec<(bool, TokenExample)> =
        examples.into_iter().enumerate().map(|(index, example)| (is_taken[question_of((index, &example))], example)).collect();
    let (taken, left): (Vec<_>, Vec<_>) = numbered.into_iter().partition(|(is_taken, _)| *is_taken);
    Ok((renumbered(left), Some(renumbered(taken))))
}

/// The examples with their questions numbered from 0.
fn renumbered(examples: Vec<(bool, TokenExample)>) -> Vec<TokenExample> {
    let mut numbers = BTreeMap::new();
    let examples = examples.into_iter().map(|(_, example)| {
        let next = numbers.len();
        let group = example.group.map(|group| *numbers.entry(group).or_insert(next));
        TokenExample { group, ..example }
    });
    examples.collect()
}

#[cfg(test)]
mod tests {
    use heedful_data::glue::Label;

    use super::*;

    fn examples(count: usize, of_question: Option<usize>) -> Vec<TokenExample> {
        let example = |index: usize| TokenExample {
            tokens: vec![index as u32],
            first: 1,
            separators: 1,
            words: [Vec::new(), Vec::new()],
            label: Label::Class(0),
            group: of_question.map(|size| index / size),
            entity: None,
        };
        (0..count).map(example).collect()
    }

    fn tokens(examples: &[TokenExample]) -> Vec<u32> {
        examples.iter().map(|example| example.tokens[0]).collect()
    }

    #[test]
    fn a_share_is_held_out_in_file_order_alike_for_all_seeds() {
        let (train, held_out) = divided(examples(50, None), 0.1, "MRPC").unwrap();
        let held_out = held_out.unwrap();
        assert_eq!((train.len(), held_out.len()), (45, 5));
        let mut all = [tokens(&train), tokens(&held_out)].concat();
        assert!(tokens(&train).is_sorted() && tokens(&held_out).is_sorted());
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<_>>());
        assert_eq!(tokens(&divided(examples(50, None), 0.1, "MRPC").unwrap().0), tokens(&train));
        assert_ne!(tokens(&divided(examples(50, None), 0.1, "RTE").unwrap().0), tokens(&train));
        assert!(divided(examples(50, None), 0.0, "MRPC").unwrap().1.is_none());
    }

    #[test]
    fn answers_to_a_question_stay_together_and_are_numbered_anew() {
        let (train, held_out) = divided(examples(40, Some(2)), 0.25, "COPA").unwrap();
        for set in [train, held_out.unwrap()] {
            let groups: Vec<_> = set.iter().map(|example| example.group.unwrap()).collect();
            assert_eq!(groups, (0..set.len()).map(|index| index / 2).collect::<Vec<_>>());
            assert!(set.chunks(2).all(|pair| pair[0].tokens[0] / 2 == pair[1].tokens[0] / 2));
        }
    }

    #[test]
    fn a_share_that_leaves_nothing_is_refused() {
        for share in [0.01, 0.99] {
            let error = divided(examples(10, None), share, "CB").unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains("data.held_out"), "{error}");
        }
    }
}
