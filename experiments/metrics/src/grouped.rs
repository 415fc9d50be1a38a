//! Metrics of questions whose candidate answers are scored one by one: COPA, MultiRC and ReCoRD of SuperGLUE (Wang et al. 2019).
//!
//! The idea: a classifier says of each candidate how much rather right than wrong it is. Where one answer is wanted, the candidate with the highest
//! score is taken; where any number may be right, every candidate with a positive score is. Candidates come in any order, a question's need not be
//! neighbours. Text answers are compared as in SQuAD (Rajpurkar et al. 2016) and in ReCoRD's evaluation (Zhang et al. 2018): without case, ASCII
//! punctuation and articles. Not covered: MultiRC's F1 averaged over questions, which the benchmark does not report.

use std::collections::BTreeMap;

use super::clipped::{counts, take};
use super::{ConfusionMatrix, words};

/// A candidate answer to a question and what a model said of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Number of the question.
    pub group: usize,
    /// Score of the class `right` minus that of the class `wrong`, such as a difference of logits. What is not a number counts as the lowest.
    pub score: f64,
    /// Whether it is a right answer.
    pub is_right: bool,
}

/// Metrics of questions with any number of right answers, each 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnswerScores {
    /// F1 of the right answers, over the answers to all questions (`F1a`).
    pub f1: f64,
    /// The share of questions whose answers were all classified as they should be.
    pub exact_match: f64,
}

/// Metrics of text answers, each 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextScores {
    /// The mean over questions of the words' F1 with the right answer that fits best.
    pub f1: f64,
    /// The share of questions answered with the words of a right answer.
    pub exact_match: f64,
}

/// The share of questions whose candidate with the highest score is right (the first of equal ones), 0 to 1; `None` without candidates.
pub fn choice_accuracy(candidates: &[Candidate]) -> Option<f64> {
    let chosen = chosen(candidates);
    let right = chosen.iter().filter(|&&index| candidates[index].is_right).count();
    (!chosen.is_empty()).then(|| right as f64 / chosen.len() as f64)
}

/// Scores of MultiRC, where a candidate is taken for right if its score is above zero; `None` without candidates.
pub fn answer_scores(candidates: &[Candidate]) -> Option<AnswerScores> {
    let mut confusion = ConfusionMatrix::new(2);
    let mut exact: BTreeMap<usize, bool> = BTreeMap::new();
    for candidate in candidates {
        let predicted = candidate.score > 0.0;
        confusion.record(usize::from(candidate.is_right), usize::from(predicted));
        *exact.entry(candidate.group).or_insert(true) &= predicted == candidate.is_right;
    }
    let matches = exact.values().filter(|&&exact| exact).count();
    let exact_match = matches as f64 / exact.len() as f64;
    (!candidates.is_empty()).then(|| AnswerScores { f1: confusion.binary_scores(1).f1, exact_match })
}

/// Scores of ReCoRD: the text of the candidate with the highest score (the first of equal ones) against the right answers to its question, which
/// `texts` gives beside the text for each candidate; `None` without candidates.
///
/// [`Candidate::is_right`] plays no part. A question without right answers scores zero.
///
/// # Panics
/// If the lists differ in length.
pub fn text_scores<A: AsRef<str>>(candidates: &[Candidate], texts: &[(&str, &[A])]) -> Option<TextScores> {
    assert_eq!(candidates.len(), texts.len(), "each candidate needs a text: {} candidates, {} texts", candidates.len(), texts.len());
    let chosen = chosen(candidates);
    let questions = chosen.len() as f64;
    let (mut f1, mut matches) = (0.0, 0);
    for index in chosen {
        let (text, answers) = texts[index];
        f1 += answers.iter().map(|answer| word_f1(text, answer.as_ref())).fold(0.0, f64::max);
        matches += usize::from(answers.iter().any(|answer| normalised(text) == normalised(answer.as_ref())));
    }
    (!candidates.is_empty()).then(|| TextScores { f1: f1 / questions, exact_match: matches as f64 / questions })
}

/// F1 of the words that two answers share, each counted as often as it occurs in both, 0 to 1; without common words zero.
pub fn word_f1(answer: &str, right: &str) -> f64 {
    let (answer, right) = (normalised(answer), normalised(right));
    let mut left = counts(words(&right));
    match words(&answer).filter(|word| take(&mut left, word)).count() {
        0 => 0.0,
        shared => 2.0 * shared as f64 / (words(&answer).count() + words(&right).count()) as f64,
    }
}

/// `text` in lower case, without ASCII punctuation and the words `a`, `an` and `the`, its words separated by one space.
pub fn normalised(text: &str) -> String {
    let text: String = text.to_lowercase().chars().filter(|character| !character.is_ascii_punctuation()).collect();
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // A word in the sense of a regular expression ends at any character but letters and digits.
        let end = rest.find(|character: char| !character.is_alphanumeric()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        kept.push_str(if ["a", "an", "the"].contains(&word) { " " } else { word });
        let mut others = after.chars();
        kept.extend(others.next());
        rest = others.as_str();
    }
    words(&kept).collect::<Vec<_>>().join(" ")
}

/// For each question the index of the candidate with the highest score, the first of equal ones.
fn chosen(candidates: &[Candidate]) -> Vec<usize> {
    let mut best: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let best = best.entry(candidate.group).or_insert(index);
        let score = candidates[*best].score;
        if candidate.score > score || (score.is_nan() && !candidate.score.is_nan()) {
            *best = index;
        }
    }
    best.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct AnswerCase {
        groups: Vec<usize>,
        scores: Vec<f64>,
        right: Vec<bool>,
        accuracy: f64,
        f1a: f64,
        exact_match: f64,
    }

    #[derive(Deserialize)]
    struct TextCase {
        groups: Vec<usize>,
        scores: Vec<f64>,
        texts: Vec<String>,
        /// By question.
        answers: Vec<Vec<String>>,
        f1: f64,
        exact_match: f64,
    }

    #[derive(Deserialize)]
    struct NormalisedCase {
        text: String,
        normalised: String,
    }

    fn candidates(groups: &[usize], scores: &[f64], right: &[bool]) -> Vec<Candidate> {
        groups.iter().zip(scores).zip(right).map(|((&group, &score), &is_right)| Candidate { group, score, is_right }).collect()
    }

    #[test]
    fn choices_and_answers_agree_with_scikit_learn() {
        for case in load::<Vec<AnswerCase>>("grouped") {
            let candidates = candidates(&case.groups, &case.scores, &case.right);
            assert_agrees(choice_accuracy(&candidates).unwrap(), case.accuracy, "accuracy");
            let scores = answer_scores(&candidates).unwrap();
            assert_agrees(scores.f1, case.f1a, "F1a");
            assert_agrees(scores.exact_match, case.exact_match, "EM");
        }
    }

    #[test]
    fn text_answers_agree_with_the_definition_in_python() {
        for case in load::<Vec<TextCase>>("grouped_texts") {
            let candidates = candidates(&case.groups, &case.scores, &vec![false; case.groups.len()]);
            let texts: Vec<_> =
                case.groups.iter().zip(&case.texts).map(|(&group, text)| (text.as_str(), case.answers[group].as_slice())).collect();
            let scores = text_scores(&candidates, &texts).unwrap();
            assert_agrees(scores.f1, case.f1, "F1");
            assert_agrees(scores.exact_match, case.exact_match, "EM");
        }
    }

    #[test]
    fn answers_are_normalised_as_in_python() {
        for case in load::<Vec<NormalisedCase>>("normalised_answers") {
            assert_eq!(normalised(&case.text), case.normalised, "{:?}", case.text);
        }
    }

    #[test]
    fn a_question_is_right_if_its_best_candidate_is() {
        // Worked out by hand: question 0 chooses its second candidate, 7 its first, 3 its only one.
        let mut list = candidates(&[0, 7, 0, 7, 3], &[-2.0, 0.5, -1.0, 0.4, -9.0], &[false, false, true, true, true]);
        assert_eq!(choice_accuracy(&list), Some(2.0 / 3.0));
        // Taken for right are both of question 7 only: one of two is, of three that are; no question has all its answers as they should be.
        assert_eq!(answer_scores(&list), Some(AnswerScores { f1: 2.0 / 5.0, exact_match: 0.0 }));
        list.reverse();
        assert_eq!(choice_accuracy(&list), Some(2.0 / 3.0), "the order does not matter");
    }

    #[test]
    fn the_first_of_equal_candidates_is_chosen_and_none_that_is_no_number() {
        let tied = |right: [bool; 2]| choice_accuracy(&candidates(&[0, 0], &[1.0, 1.0], &right));
        assert_eq!((tied([true, false]), tied([false, true])), (Some(1.0), Some(0.0)));
        for scores in [[f64::NAN, -5.0], [-5.0, f64::NAN]] {
            let right = scores.map(|score| score == -5.0);
            assert_eq!(choice_accuracy(&candidates(&[0, 0], &scores, &right)), Some(1.0));
        }
        let undecided = answer_scores(&candidates(&[0, 1], &[0.0, f64::NAN], &[false, false])).unwrap();
        assert_eq!(undecided.exact_match, 1.0, "neither zero nor what is no number is above zero");
    }

    #[test]
    fn the_best_of_several_right_answers_counts() {
        let right = ["Donald John Trump", "Trump"];
        let of = |text: &str| text_scores(&candidates(&[0], &[0.0], &[false]), &[(text, &right)]).unwrap();
        assert_eq!(of("the Trump!"), TextScores { f1: 1.0, exact_match: 1.0 });
        // Two of two words are right, and two of three were found.
        assert_eq!(of("John Trump"), TextScores { f1: 0.8, exact_match: 0.0 });
        assert_eq!(of("Obama"), TextScores { f1: 0.0, exact_match: 0.0 });
        let none: [&str; 0] = [];
        let unanswered = text_scores(&candidates(&[0], &[0.0], &[false]), &[("Trump", none.as_slice())]);
        assert_eq!(unanswered, Some(TextScores { f1: 0.0, exact_match: 0.0 }));
    }

    #[test]
    fn without_candidates_there_is_no_score() {
        assert_eq!((choice_accuracy(&[]), answer_scores(&[]), text_scores::<&str>(&[], &[])), (None, None, None));
    }

    #[test]
    #[should_panic(expected = "each candidate needs a text")]
    fn lists_of_different_length_are_refused() {
        text_scores::<&str>(&candidates(&[0], &[0.0], &[true]), &[]);
    }
}
