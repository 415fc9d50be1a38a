//! Metrics of classification, all read off one matrix of counts.
//!
//! The idea: a confusion matrix is the sufficient statistic of every metric here, can be filled batch by batch and can be added. Accuracy, precision,
//! recall and F1 follow scikit-learn's definitions with its default for divisions by zero, which is zero. The Matthews correlation for any number
//! of classes is Gorodkin's R_K ("Comparing two K-category assignments by a K-category correlation coefficient", 2004), used for CoLA in GLUE.

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// How often each class was taken for each class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfusionMatrix {
    classes: usize,
    /// Row by row, `[actual, predicted]`.
    counts: Vec<u64>,
}

impl ConfusionMatrix {
    /// A matrix without examples for the labels `0..classes`.
    ///
    /// # Panics
    /// If `classes` is zero.
    pub fn new(classes: usize) -> Self {
        assert!(classes > 0, "a classification needs at least one class");
        Self { classes, counts: vec![0; classes * classes] }
    }

    /// The matrix of parallel lists of labels, each in `0..classes`.
    ///
    /// # Panics
    /// If the lists differ in length or a label is out of range.
    pub fn from_labels(classes: usize, actual: &[usize], predicted: &[usize]) -> Self {
        assert_eq!(actual.len(), predicted.len(), "each example needs an actual and a predicted label");
        let mut matrix = Self::new(classes);
        for (&actual, &predicted) in actual.iter().zip(predicted) {
            matrix.record(actual, predicted);
        }
        matrix
    }

    /// The matrix of counts that are known, row by row, `[actual, predicted]`.
    ///
    /// # Panics
    /// If `classes` is zero or there are not as many counts as pairs of classes.
    pub fn from_counts(classes: usize, counts: Vec<u64>) -> Self {
        assert!(classes > 0 && counts.len() == classes * classes, "{classes} classes have another number of counts than {}", counts.len());
        Self { classes, counts }
    }

    /// Counts one example.
    ///
    /// # Panics
    /// If a label is out of range.
    pub fn record(&mut self, actual: usize, predicted: usize) {
        let index = self.index(actual, predicted);
        self.counts[index] += 1;
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many examples of the class `actual` were predicted to be `predicted`.
    ///
    /// # Panics
    /// If a label is out of range.
    pub fn count(&self, actual: usize, predicted: usize) -> u64 {
        self.counts[self.index(actual, predicted)]
    }

    /// The number of examples.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The share of examples whose class was predicted, 0 to 1; `None` without examples.
    pub fn accuracy(&self) -> Option<f64> {
        let total = self.total();
        (total > 0).then(|| self.correct() as f64 / total as f64)
    }

    /// Precision, recall and F1 of the class `positive` against all others.
    ///
    /// # Panics
    /// If `positive` is out of range.
    pub fn binary_scores(&self, positive: usize) -> BinaryScores {
        let hits = self.count(positive, positive);
        let (actual, predicted) = (self.actual(positive), self.predicted(positive));
        BinaryScores { precision: share(hits, predicted), recall: share(hits, actual), f1: share(2 * hits, actual + predicted) }
    }

    /// The unweighted mean of the classes' F1, 0 to 1; `None` without examples.
    ///
    /// As in scikit-learn, classes that are neither actual nor predicted anywhere are left out of the mean.
    pub fn macro_f1(&self) -> Option<f64> {
        let present: Vec<usize> = (0..self.classes).filter(|&class| self.actual(class) + self.predicted(class) > 0).collect();
        let sum: f64 = present.iter().map(|&class| self.binary_scores(class).f1).sum();
        (!present.is_empty()).then(|| sum / present.len() as f64)
    }

    /// The correlation between actual and predicted classes.
    pub fn matthews_correlation(&self) -> Matthews {
        let total = i128::from(self.total());
        let (mut joint, mut actual, mut predicted) = (0, 0, 0);
        for class in 0..self.classes {
            let (of_actual, of_predicted) = (i128::from(self.actual(class)), i128::from(self.predicted(class)));
            joint += of_actual * of_predicted;
            actual += of_actual * of_actual;
            predicted += of_predicted * of_predicted;
        }
        let square = total * total;
        let (actual_variance, predicted_variance) = (square - actual, square - predicted);
        if actual_variance == 0 || predicted_variance == 0 {
            return Matthews { value: 0.0, defined: false };
        }
        let covariance = i128::from(self.correct()) * total - joint;
        let scale = (actual_variance as f64).sqrt() * (predicted_variance as f64).sqrt();
        Matthews { value: (covariance as f64 / scale).clamp(-1.0, 1.0), defined: true }
    }

    fn index(&self, actual: usize, predicted: usize) -> usize {
        assert!(actual < self.classes, "actual label {actual} is not one of {} classes", self.classes);
        assert!(predicted < self.classes, "predicted label {predicted} is not one of {} classes", self.classes);
        actual * self.classes + predicted
    }

    fn correct(&self) -> u64 {
        (0..self.classes).map(|class| self.count(class, class)).sum()
    }

    fn actual(&self, class: usize) -> u64 {
        (0..self.classes).map(|predicted| self.count(class, predicted)).sum()
    }

    fn predicted(&self, class: usize) -> u64 {
        (0..self.classes).map(|actual| self.count(actual, class)).sum()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl AddAssign<&Self> for ConfusionMatrix {
    /// # Panics
    /// If the matrices have different numbers of classes.
    fn add_assign(&mut self, other: &Self) {
        assert_eq!(self.classes, other.classes, "matrices of {} and {} classes cannot be added", self.classes, other.classes);
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }
}

impl Add for ConfusionMatrix {
    type Output = Self;

    /// # Panics
    /// If the matrices have different numbers of classes.
    fn add(mut self, other: Self) -> Self {
        self += &other;
        self
    }
}

/// Scores of one class against all others, each 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BinaryScores {
    /// The share of predicted positives that are positive; zero if none was predicted.
    pub precision: f64,
    /// The share of positives that were predicted; zero if there are none.
    pub recall: f64,
    /// The harmonic mean of precision and recall; zero if there are no positives, actual or predicted.
    pub f1: f64,
}

/// A Matthews correlation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matthews {
    /// The correlation, at most 1; zero is chance level, and the value if undefined.
    pub value: f64,
    /// Whether both the actual and the predicted labels vary. A model that predicts one class only has no correlation.
    pub defined: bool,
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        name: String,
        classes: usize,
        actual: Vec<usize>,
        predicted: Vec<usize>,
        confusion: Vec<Vec<u64>>,
        accuracy: f64,
        /// Precision, recall and F1 with each class as the positive one.
        binary: Vec<[f64; 3]>,
        macro_f1: f64,
        matthews: f64,
        matthews_defined: bool,
    }

    fn cases() -> Vec<Case> {
        let cases: Vec<Case> = load("classification");
        assert!(cases.iter().any(|case| !case.matthews_defined) && cases.iter().any(|case| case.classes > 2));
        cases
    }

    #[test]
    fn all_scores_agree_with_scikit_learn() {
        for case in cases() {
            let matrix = ConfusionMatrix::from_labels(case.classes, &case.actual, &case.predicted);
            for (actual, row) in case.confusion.iter().enumerate() {
                for (predicted, &count) in row.iter().enumerate() {
                    assert_eq!(matrix.count(actual, predicted), count, "{}", case.name);
                }
            }
            assert_agrees(matrix.accuracy().unwrap(), case.accuracy, &case.name);
            assert_agrees(matrix.macro_f1().unwrap(), case.macro_f1, &case.name);
            for (positive, &[precision, recall, f1]) in case.binary.iter().enumerate() {
                let scores = matrix.binary_scores(positive);
                assert_agrees(scores.precision, precision, &case.name);
                assert_agrees(scores.recall, recall, &case.name);
                assert_agrees(scores.f1, f1, &case.name);
            }
            let matthews = matrix.matthews_correlation();
            assert_eq!(matthews.defined, case.matthews_defined, "{}", case.name);
            assert_agrees(matthews.value, case.matthews, &case.name);
        }
    }

    #[test]
    fn matrices_of_batches_add_up_to_the_matrix_of_the_whole() {
        for case in cases() {
            let whole = ConfusionMatrix::from_labels(case.classes, &case.actual, &case.predicted);
            let mut sum = ConfusionMatrix::new(case.classes);
            for (actual, predicted) in case.actual.chunks(3).zip(case.predicted.chunks(3)) {
                sum += &ConfusionMatrix::from_labels(case.classes, actual, predicted);
            }
            assert_eq!(sum, whole, "{}", case.name);
        }
    }

    #[test]
    fn nothing_classified_has_no_accuracy() {
        let matrix = ConfusionMatrix::new(3);
        assert_eq!((matrix.accuracy(), matrix.macro_f1()), (None, None));
        assert!(!matrix.matthews_correlation().defined);
    }

    #[test]
    #[should_panic(expected = "predicted label 2 is not one of 2 classes")]
    fn a_label_out_of_range_is_refused() {
        ConfusionMatrix::from_labels(2, &[0, 1], &[0, 2]);
    }

    #[test]
    #[should_panic(expected = "each example needs")]
    fn lists_of_different_length_are_refused() {
        ConfusionMatrix::from_labels(2, &[0, 1], &[0]);
    }
}
