//! The observations of one text, as plain values.

use std::fmt;

use super::AnalyseError;

/// When in its life a model was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// With the weights it starts from.
    Initial,
    /// With the weights of a checkpoint.
    Trained,
}

impl State {
    /// Both, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Initial, Self::Trained];

    /// The word for it in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Trained => "trained",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Initial => "at initialisation",
            Self::Trained => "after training",
        })
    }
}

/// What the values of an [`Observed`] are. The shapes are those of the probe without the batch dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Attention weights `[heads, queries, keys]`, at least 0; a key of weight 0 is one that the query does not see.
    Weights,
    /// Weights of mixtures of keys, `[heads, queries, slots]`, at least 0.
    SlotWeights,
    /// How far back each query looks, in positions, `[heads, queries]`; `[heads, 1]` where it is the same for all queries.
    Spans,
    /// Numbers of hash buckets `[heads, rounds, positions]`.
    Buckets,
    /// How far a gate is open, `[length, width]` in `[0, 1]`.
    Gate,
    /// Steps after which each position halted, `[length]`.
    HaltingSteps,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Weights => "weights",
            Self::SlotWeights => "slot weights",
            Self::Spans => "spans",
            Self::Buckets => "buckets",
            Self::Gate => "gate openings",
            Self::HaltingSteps => "halting steps",
        })
    }
}

/// An observation of one text without padding.
///
/// # Example
/// ```
/// use heedful_experiments::analyse::{Kind, Observed, State};
///
/// let tokens = ["a".to_string(), "b".to_string()];
/// let observed = Observed {
///     state: State::Trained,
///     text: 0,
///     module: "decoder.layers.0.self_attention".into(),
///     queries: tokens.to_vec(),
///     keys: tokens.to_vec(),
///     query_start: Some(0),
///     kind: Kind::Weights,
///     shape: vec![1, 2, 2],
///     values: vec![1.0, 0.0, 0.5, 0.5],
/// };
/// assert!(observed.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// When the model was observed.
    pub state: State,
    /// Number of the text. Each segment of a text that is read in segments has a number of its own.
    pub text: usize,
    /// Path of the module.
    pub module: String,
    /// Tokens of the queries; for gates and halting steps those of the positions.
    pub queries: Vec<String>,
    /// Tokens of the keys, those of a memory first; for buckets those of the positions.
    pub keys: Vec<String>,
    /// Where the queries begin among the keys: 0, or the length of the memory; `None` where they are tokens of another text.
    pub query_start: Option<usize>,
    /// What the values are.
    pub kind: Kind,
    /// The shape that belongs to the kind.
    pub shape: Vec<usize>,
    /// The values, the last dimension first.
    pub values: Vec<f32>,
}

impl Observed {
    /// The error of what was shown.
    pub(super) fn refused(&self, problem: String) -> AnalyseError {
        AnalyseError::Observed(format!("text {}, module `{}`: {problem}", self.text, self.module))
    }

    /// Refuses values that do not fit their tokens, and values outside the range of their kind.
    ///
    /// # Errors
    /// [`AnalyseError::Observed`].
    pub fn check(&self) -> Result<(), AnalyseError> {
        let (queries, keys) = (self.queries.len(), self.keys.len());
        let expected = match self.kind {
            Kind::Weights => format!("[heads, {queries}, {keys}]"),
            Kind::SlotWeights => format!("[heads, {queries}, slots]"),
            Kind::Spans => format!("[heads, {queries}] or [heads, 1]"),
            Kind::Buckets => format!("[heads, rounds, {keys}]"),
            Kind::Gate => format!("[{queries}, width]"),
            Kind::HaltingSteps => format!("[{queries}]"),
        };
        let fits = match (self.kind, self.shape.as_slice()) {
            (Kind::Weights, &[_, rows, columns]) => {
                (rows, columns) == (queries, keys)
                    && self.query_start.is_none_or(|start| start.checked_add(queries).is_some_and(|end| end <= keys))
            }
            (Kind::SlotWeights, &[_, rows, _]) => rows == queries,
            (Kind::Spans, &[_, rows]) => rows == queries || rows == 1,
            (Kind::Buckets, &[_, _, positions]) => positions == keys,
            (Kind::Gate, &[length, _]) | (Kind::HaltingSteps, &[length]) => length == queries,
            _ => false,
        };
        let size = self.shape.iter().try_fold(1_usize, |size, &length| size.checked_mul(length));
        if !fits || size != Some(self.values.len()) || self.values.is_empty() {
            let (kind, shape, count) = (self.kind, &self.shape, self.values.len());
            let problem = format!("{kind} of the shape {shape:?} with {count} values instead of {expected}");
            let remedy = "each text is to be observed by itself, without padding, with its own tokens";
            return Err(self.refused(format!("{problem}; {remedy}")));
        }
        let (expected, is_right): (_, fn(f32) -> bool) = match self.kind {
            Kind::Weights | Kind::SlotWeights | Kind::Spans | Kind::HaltingSteps => {
                ("a finite number of at least 0", |value| value.is_finite() && value >= 0.0)
            }
            // Above 2^24 not every whole number is one of single precision.
            Kind::Buckets => ("a whole number below 2^24", |value| value.fract() == 0.0 && (0.0..16_777_216.0).contains(&value)),
            Kind::Gate => ("a number from 0 to 1", |value| (0.0..=1.0).contains(&value)),
        };
        match self.values.iter().position(|&value| !is_right(value)) {
            None => Ok(()),
            Some(at) => {
                let problem = format!("{} hold {} at {:?} instead of {expected}", self.kind, self.values[at], self.index(at));
                Err(self.refused(format!("{problem}; if the model has diverged, take an earlier checkpoint")))
            }
        }
    }

    /// Where in the shape the value number `at` lies.
    fn index(&self, mut at: usize) -> Vec<usize> {
        let mut index: Vec<usize> = self.shape.iter().rev().map(|length| (at % length, at /= length).0).collect();
        index.reverse();
        index
    }

    /// The values of each head, or of each position of a gate.
    pub(super) fn heads(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.values.chunks_exact(self.shape[1..].iter().product()).enumerate()
    }

    /// The width of the last dimension: keys, slots, positions or channels.
    pub(super) fn width(&self) -> usize {
        *self.shape.last().expect("a checked shape has a dimension")
    }

    /// The names of the columns of weights.
    pub(super) fn columns(&self) -> Vec<String> {
        match self.kind {
            Kind::SlotWeights => (0..self.width()).map(|slot| format!("slot-{slot}")).collect(),
            _ => self.keys.clone(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn tokens(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// An observation of self-attention, or of whatever `kind` is, over the words of `text`.
    pub(crate) fn observed(kind: Kind, text: &str, shape: &[usize], values: &[f32]) -> Observed {
        Observed {
            state: State::Trained,
            text: 0,
            module: "encoder.layers.0.self_attention".into(),
            queries: tokens(text),
            keys: tokens(text),
            query_start: (kind == Kind::Weights).then_some(0),
            kind,
            shape: shape.to_vec(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn shapes_that_do_not_fit_the_tokens_are_refused() {
        for (kind, right, wrong) in [
            (Kind::Weights, vec![3, 2, 2], vec![vec![3, 2, 3], vec![3, 3, 2], vec![2, 2], vec![0, 2, 2]]),
            (Kind::SlotWeights, vec![3, 2, 5], vec![vec![3, 5, 2], vec![3, 2, 0]]),
            (Kind::Spans, vec![3, 2], vec![vec![3, 3], vec![3]]),
            (Kind::Spans, vec![3, 1], vec![vec![3, 1, 1]]),
            (Kind::Buckets, vec![3, 4, 2], vec![vec![3, 2, 4], vec![3, 2]]),
            (Kind::Gate, vec![2, 7], vec![vec![7, 2], vec![2]]),
            (Kind::HaltingSteps, vec![2], vec![vec![1], vec![2, 1]]),
        ] {
            let of = |shape: &[usize]| observed(kind, "a b", shape, &vec![0.0; shape.iter().product()]).check();
            assert!(of(&right).is_ok(), "{kind} {right:?}");
            for shape in wrong {
                let message = of(&shape).unwrap_err().to_string();
                assert!(message.contains("self_attention") && message.contains(&format!("{shape:?}")), "{message}");
            }
        }
        assert!(observed(Kind::HaltingSteps, "a b", &[2], &[1.0]).check().is_err(), "a value is missing");
        assert!(observed(Kind::Gate, "a b", &[2, usize::MAX], &[1.0]).check().is_err(), "the size overflows");
    }

    #[test]
    fn queries_lie_among_the_keys_of_self_attention() {
        let mut behind_memory = observed(Kind::Weights, "m a b", &[1, 2, 3], &[0.0; 6]);
        behind_memory.queries = tokens("a b");
        for (start, fits) in [(Some(0), true), (Some(1), true), (None, true), (Some(2), false), (Some(usize::MAX), false)] {
            behind_memory.query_start = start;
            assert_eq!(behind_memory.check().is_ok(), fits, "{start:?}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_their_place() {
        let weights = |value: f32| observed(Kind::Weights, "a b", &[2, 2, 2], &[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, value, 0.5]).check();
        assert!(weights(7.5).is_ok(), "a density may exceed 1");
        for value in [-0.1, f32::NAN, f32::INFINITY] {
            let message = weights(value).unwrap_err().to_string();
            assert!(message.contains("[1, 1, 0]") && message.contains(&value.to_string()), "{message}");
        }
        for (kind, value) in
            [(Kind::Gate, 1.5), (Kind::Buckets, 0.5), (Kind::Buckets, 1e9), (Kind::Spans, -1.0), (Kind::HaltingSteps, f32::NAN)]
        {
            let shape: &[usize] = match kind {
                Kind::HaltingSteps => &[1],
                Kind::Buckets => &[1, 1, 1],
                _ => &[1, 1],
            };
            assert!(observed(kind, "a", shape, &[1.0]).check().is_ok(), "{kind}");
            assert!(observed(kind, "a", shape, &[value]).check().is_err(), "{kind} {value}");
        }
    }
}
