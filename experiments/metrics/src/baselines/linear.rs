//! Linear models of sparse features: logistic regression and ridge regression.
//!
//! The objective is scikit-learn's: half the squared weights, the intercepts left out, and `C` times the loss summed over the examples, where ridge regression has
//! `alpha = 1 / C`. Two classes have one vector of weights, more have one each. L-BFGS (Liu and Nocedal 1989) finds the minimum, which is the only one.

use std::collections::VecDeque;

use heedful_host::interrupt::Interrupt;

/// Steps whose curvature is remembered.
const REMEMBERED: usize = 8;
/// The largest element of the gradient at the minimum, for each example.
const TOLERANCE: f64 = 1e-6;
/// Most iterations.
const ITERATIONS: usize = 500;

/// Rows of features of which most are zero.
#[derive(Clone, Debug)]
pub struct SparseRows {
    width: usize,
    begins: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl SparseRows {
    /// No rows of so many features.
    pub fn new(width: usize) -> Self {
        Self { width, begins: vec![0], columns: Vec::new(), values: Vec::new() }
    }

    /// Adds a row of columns and their values.
    pub fn push(&mut self, row: &[(u32, f64)]) {
        self.columns.extend(row.iter().map(|(column, _)| *column));
        self.values.extend(row.iter().map(|(_, value)| *value as f32));
        self.begins.push(self.columns.len());
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.begins.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns of a row and their values.
    pub fn row(&self, number: usize) -> impl Iterator<Item = (usize, f64)> {
        let places = self.begins[number]..self.begins[number + 1];
        places.map(|place| (self.columns[place] as usize, f64::from(self.values[place])))
    }
}

/// What is to be predicted of each row.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'t> {
    /// Classes below this number.
    Classes(&'t [usize], usize),
    /// Scores.
    Scores(&'t [f64]),
}

/// A trained model.
#[derive(Clone, Debug)]
pub struct Linear {
    /// A vector of weights for each output, behind each its intercept.
    weights: Vec<f64>,
    width: usize,
    is_of_two_classes: bool,
}

impl Linear {
    /// Vectors of weights that targets need.
    pub fn vectors(targets: Targets<'_>) -> usize {
        match targets {
            Targets::Classes(_, classes) if classes > 2 => classes,
            Targets::Classes(..) | Targets::Scores(_) => 1,
        }
    }

    /// The model of rows and their targets, where the loss has the weight `c`; `None` if the interrupt was raised meanwhile.
    pub fn fit(rows: &SparseRows, targets: Targets<'_>, c: f64, interrupt: &Interrupt) -> Option<Self> {
        let stride = rows.width + 1;
        let problem = Problem { rows, targets, vectors: Self::vectors(targets), stride, c };
        let weights = minimum(vec![0.0; problem.vectors * stride], TOLERANCE * rows.len() as f64, |at| problem.value(at), interrupt)?;
        Some(Self { weights, width: rows.width, is_of_two_classes: matches!(targets, Targets::Classes(_, ..=2)) })
    }

    /// Outputs for each row: one for each class, before they become probabilities, or the score.
    pub fn outputs(&self, rows: &SparseRows) -> Vec<Vec<f32>> {
        let of_row = |number: usize| {
            let outputs = self.weights.chunks(self.width + 1).map(|weights| output(weights, rows.row(number)) as f32);
            if self.is_of_two_classes { std::iter::once(0.0).chain(outputs).collect() } else { outputs.collect() }
        };
        (0..rows.len()).map(of_row).collect()
    }
}

fn output(weights: &[f64], row: impl Iterator<Item = (usize, f64)>) -> f64 {
    row.map(|(column, value)| weights[column] * value).sum::<f64>() + weights[weights.len() - 1]
}

struct Problem<'p> {
    rows: &'p SparseRows,
    targets: Targets<'p>,
    vectors: usize,
    /// Numbers from one vector to the next.
    stride: usize,
    /// Weight of the loss.
    c: f64,
}

impl Problem<'_> {
    /// The objective and its gradient, both divided by the weight of the loss.
    fn value(&self, weights: &[f64]) -> (f64, Vec<f64>) {
        let mut gradient: Vec<f64> = weights.iter().map(|weight| weight / self.c).collect();
        gradient.chunks_mut(self.stride).for_each(|vector| vector[self.stride - 1] = 0.0);
        let mut value = 0.5 * self.c * dot(&gradient, &gradient);
        for number in 0..self.rows.len() {
            let outputs: Vec<f64> = weights.chunks(self.stride).map(|weights| output(weights, self.rows.row(number))).collect();
            let (loss, slopes) = self.loss(number, &outputs);
            value += loss;
            for (vector, slope) in slopes.into_iter().enumerate() {
                let begin = vector * self.stride;
                self.rows.row(number).for_each(|(column, value)| gradient[begin + column] += slope * value);
                gradient[begin + self.stride - 1] += slope;
            }
        }
        (value, gradient)
    }

    /// The loss of a row with these outputs, and how it changes with each of them.
    fn loss(&self, number: usize, outputs: &[f64]) -> (f64, Vec<f64>) {
        match self.targets {
            Targets::Scores(scores) => {
                let difference = outputs[0] - scores[number];
                (0.5 * difference * difference, vec![difference])
            }
            Targets::Classes(classes, _) if self.vectors == 1 => {
                let signed = if classes[number] == 1 { outputs[0] } else { -outputs[0] };
                let loss = (-signed).max(0.0) + (-signed.abs()).exp().ln_1p();
                let wrong = (-loss).exp_m1();
                (loss, vec![if classes[number] == 1 { wrong } else { -wrong }])
            }
            Targets::Classes(classes, _) => {
                let largest = outputs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let normaliser = largest + outputs.iter().map(|output| (output - largest).exp()).sum::<f64>().ln();
                let mut slopes: Vec<f64> = outputs.iter().map(|output| (output - normaliser).exp()).collect();
                slopes[classes[number]] -= 1.0;
                (normaliser - outputs[classes[number]], slopes)
            }
        }
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// Adds `factor` times `step`.
fn add(to: &mut [f64], factor: f64, step: &[f64]) {
    to.iter_mut().zip(step).for_each(|(to, step)| *to += factor * step);
}

/// Where a smooth convex function of value and gradient has its minimum, by L-BFGS from `at`; `None` if the interrupt was raised meanwhile.
fn minimum(mut at: Vec<f64>, tolerance: f64, function: impl Fn(&[f64]) -> (f64, Vec<f64>), interrupt: &Interrupt) -> Option<Vec<f64>> {
    let (mut value, mut gradient) = function(&at);
    let mut steps: VecDeque<[Vec<f64>; 2]> = VecDeque::new();
    for _ in 0..ITERATIONS {
        if gradient.iter().all(|slope| slope.abs() <= tolerance) {
            break;
        }
        if interrupt.is_raised() {
            return None;
        }
        let direction = direction(&gradient, &steps);
        let slope = dot(&direction, &gradient);
        let mut length = if steps.is_empty() { 1.0 / dot(&gradient, &gradient).sqrt() } else { 1.0 };
        let found = loop {
            let mut next = at.clone();
            add(&mut next, length, &direction);
            let (next_value, next_gradient) = function(&next);
            if next_value <= value + 1e-4 * length * slope {
                break Some((next, next_value, next_gradient));
            }
            length *= 0.5;
            // Numbers of 64 bits tell no better place.
            if length < 1e-12 {
                break None;
            }
        };
        let Some((next, next_value, next_gradient)) = found else { break };
        let change = |new: &[f64], old: &[f64]| new.iter().zip(old).map(|(new, old)| new - old).collect::<Vec<_>>();
        let pair = [change(&next, &at), change(&next_gradient, &gradient)];
        (at, value, gradient) = (next, next_value, next_gradient);
        if dot(&pair[0], &pair[1]) > 0.0 {
            steps.push_back(pair);
            if steps.len() > REMEMBERED {
                steps.pop_front();
            }
        }
    }
    Some(at)
}

/// The negative gradient, bent by the curvature that the last steps have met: the two loops of L-BFGS.
fn direction(gradient: &[f64], steps: &VecDeque<[Vec<f64>; 2]>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut shares = Vec::new();
    for [step, change] in steps.iter().rev() {
        let share = dot(step, &direction) / dot(step, change);
        add(&mut direction, -share, change);
        shares.push(share);
    }
    if let Some([step, change]) = steps.back() {
        let scale = dot(step, change) / dot(change, change);
        direction.iter_mut().for_each(|part| *part *= scale);
    }
    for ([step, change], share) in steps.iter().zip(shares.into_iter().rev()) {
        let other = dot(change, &direction) / dot(step, change);
        add(&mut direction, share - other, step);
    }
    direction
}

#[cfg(test)]
mod tests {
    use super::super::tf_idf::{Texts, TfIdf, tests};
    use super::*;

    /// Outputs for the last texts of a model of the first ones.
    fn outputs(targets: impl Fn(&[usize]) -> (Vec<usize>, Vec<f64>), kind: usize, c: f64) -> Vec<Vec<f32>> {
        let (texts, classes) = tests::texts(60);
        let texts: Vec<Texts> = texts.iter().map(|text| [&text[..], &[]]).collect();
        let (train, test) = texts.split_at(57);
        let model = TfIdf::fit(train, 10_000);
        let (classes, scores) = targets(&classes[..57]);
        let targets = if kind == 0 { Targets::Scores(&scores) } else { Targets::Classes(&classes, kind) };
        Linear::fit(&model.features(train), targets, c, &Interrupt::new()).unwrap().outputs(&model.features(test))
    }

    fn assert_near(found: &[Vec<f32>], expected: &[&[f64]]) {
        for (found, expected) in found.iter().flatten().zip(expected.iter().copied().flatten()) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{found} and {expected}");
        }
    }

    #[test]
    fn two_classes_more_classes_and_scores_have_the_outputs_of_scikit_learn() {
        let two = outputs(|classes| (classes.iter().map(|class| class.min(&1)).copied().collect(), Vec::new()), 2, 1.0);
        assert!(two.iter().all(|row| row.len() == 2 && row[0] == 0.0));
        assert_near(&two.iter().map(|row| vec![row[1]]).collect::<Vec<_>>(), &[&[-0.53802586], &[1.57088544], &[1.25221016]]);
        assert_near(
            &outputs(|classes| (classes.to_vec(), Vec::new()), 3, 1.0),
            &[&[1.04869536, -0.65584826, -0.39284709], &[-0.58807194, 0.83465935, -0.24658741], &[-0.33774500, -0.40968961, 0.74743461]],
        );
        assert_near(
            &outputs(|classes| (Vec::new(), classes.iter().map(|class| *class as f64 * 1.5 + 0.25).collect()), 0, 1.0),
            &[&[0.74667499], &[2.04411557], &[2.56793109]],
        );
        // C = 10, and alpha = 0.1.
        assert_near(
            &outputs(|classes| (classes.to_vec(), Vec::new()), 3, 10.0),
            &[&[2.16697418, -1.31377449, -0.85319968], &[-1.32029792, 1.73869796, -0.41840004], &[-0.76177828, -0.86264555, 1.62442383]],
        );
        assert_near(
            &outputs(|classes| (Vec::new(), classes.iter().map(|class| *class as f64 * 1.5 + 0.25).collect()), 0, 10.0),
            &[&[0.55556610], &[2.21339149], &[2.83912732]],
        );
    }

    #[test]
    fn rows_without_features_have_the_intercept() {
        let mut rows = SparseRows::new(2);
        [&[][..], &[], &[(0, 1.0)]].into_iter().for_each(|row| rows.push(row));
        let model = Linear::fit(&rows, Targets::Scores(&[2.0, 4.0, 3.0]), 1.0, &Interrupt::new()).unwrap();
        let found = model.outputs(&rows);
        assert!(found.iter().all(|row| (row[0] - 3.0).abs() < 1e-4), "{found:?}");
        assert!(!rows.is_empty() && rows.len() == 3);
    }
}
