//! Operands of an attention on one backend.

use std::ops::Range;

use ::burn::tensor::DType;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType, TensorMetadata};

use super::plan::Plan;
#[cfg(feature = "cube")]
use crate::engine::extension as burn;

/// An optional tensor.
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(crate) enum Operand<B: Backend> {
    /// No tensor.
    Absent,
    /// A tensor.
    Given(FloatTensor<B>),
}

/// Operands of an attention, or their gradients.
///
/// Dimension letters: `B` batch rows, `H` heads, `G` key and value heads, a divisor of `H`, `Q` queries, `K` keys, `R` and `S` widths of thin factors, `D`
/// width of a head's values.
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(crate) struct Operands<B: Backend> {
    /// `[B, G, K, D]`.
    pub values: FloatTensor<B>,
    /// Scaled, `[B, H, Q, R]`.
    #[extension_type]
    pub queries: Operand<B>,
    /// `[B, G, K, R]`.
    #[extension_type]
    pub keys: Operand<B>,
    /// Added to the logits, `[B|1, H|1, Q, K]`.
    #[extension_type]
    pub bias: Operand<B>,
    /// Scale of the bias, `[1, H|1, 1, 1]`.
    #[extension_type]
    pub bias_scale: Operand<B>,
    /// Scaled queries of the scores by distance, `[B, H, Q, S]`.
    #[extension_type]
    pub relative_queries: Operand<B>,
    /// Their keys, `[B|1, H|1, Q + K - 1, S]`, in descending order of the distance from key to query.
    #[extension_type]
    pub relative_keys: Operand<B>,
    /// Left factors of [`Kronecker`](crate::engine::Kronecker) products, `[B, H, Q, a]`; [`Plan::first_pairs`](super::Plan::first_pairs) assigns products to
    /// keys.
    #[extension_type]
    pub left: Operand<B>,
    /// Right factors, `[B, H, Q, b]`.
    #[extension_type]
    pub right: Operand<B>,
    /// Spans, in positions, `[B|1, H|1, Q|1, 1]`, of [`Plan::ramp`](super::Plan::ramp).
    #[extension_type]
    pub spans: Operand<B>,
    /// Logits of sinks, `[1, H|1, 1, 1]`, which enter after the softmax of all other logits.
    #[extension_type]
    pub sink: Operand<B>,
}

impl<B: Backend> Operand<B> {
    /// The tensor, if present.
    pub(crate) fn given(self) -> Option<FloatTensor<B>> {
        match self {
            Self::Absent => None,
            Self::Given(tensor) => Some(tensor),
        }
    }

    /// The tensor, if present.
    pub(crate) fn as_ref(&self) -> Option<&FloatTensor<B>> {
        match self {
            Self::Absent => None,
            Self::Given(tensor) => Some(tensor),
        }
    }
}

impl<B: Backend> From<Option<FloatTensor<B>>> for Operand<B> {
    fn from(tensor: Option<FloatTensor<B>>) -> Self {
        tensor.map_or(Self::Absent, Self::Given)
    }
}

/// Number of [`Operands`].
pub(super) const COUNT: usize = 11;

/// Indices of values, queries and keys in the list of operands.
pub(super) const ROWS: Range<usize> = 0..3;

/// Indices of the bias and its scale.
pub(super) const BIAS: [usize; 2] = [3, 4];

/// Index of the sinks.
pub(super) const SINK: usize = 10;

impl<B: Backend> Operands<B> {
    /// Separates the sinks from the other operands.
    pub(super) fn without_sink(self) -> (Self, Option<FloatTensor<B>>) {
        let Self { sink, .. } = self;
        (Self { sink: Operand::Absent, ..self }, sink.given())
    }

    /// Number of queries of the logits.
    ///
    /// # Panics
    /// If they have no term.
    pub(super) fn queries(&self, plan: &Plan) -> usize {
        let length = |operand: &Operand<B>| operand.as_ref().map(|tensor| tensor.shape()[2]);
        let length = [&self.queries, &self.bias, &self.relative_queries, &self.left].into_iter().find_map(length);
        length.or(plan.gaussians.as_ref().map(|gaussians| gaussians.queries())).expect("logits have a term with queries")
    }

    /// Types of the numbers.
    pub(super) fn types(&self) -> [Option<DType>; COUNT] {
        self.clone().list().map(|operand| operand.map(|operand| operand.dtype()))
    }

    /// Converts to another backend, or transforms each tensor.
    pub(crate) fn map<O: Backend>(self, map: impl Fn(FloatTensor<B>) -> FloatTensor<O>) -> Operands<O> {
        Operands::from_list(self.list().map(|operand| operand.map(&map)))
    }

    /// Operands with only values.
    #[cfg(feature = "cube")]
    pub(crate) fn of_values(values: FloatTensor<B>) -> Self {
        let mut list = [const { None }; COUNT];
        list[0] = Some(values);
        Self::from_list(list)
    }

    pub(super) fn list(self) -> [Option<FloatTensor<B>>; COUNT] {
        let Self { values, queries, keys, bias, bias_scale, relative_queries, relative_keys, left, right, spans, sink } = self;
        [Operand::Given(values), queries, keys, bias, bias_scale, relative_queries, relative_keys, left, right, spans, sink]
            .map(Operand::given)
    }

    pub(super) fn from_list(list: [Option<FloatTensor<B>>; COUNT]) -> Self {
        let [values, rest @ ..] = list;
        let [queries, keys, bias, bias_scale, relative_queries, relative_keys, left, right, spans, sink] = rest.map(Operand::from);
        Self {
            values: values.expect("there are values"),
            queries,
            keys,
            bias,
            bias_scale,
            relative_queries,
            relative_keys,
            left,
            right,
            spans,
            sink,
        }
    }
}
